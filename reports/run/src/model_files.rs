//! The results for model-generated files: `model-files.json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much of model-generated files is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelFilesPlan {
    /// Lengths of histories, in operations.
    pub lengths: Vec<u32>,
    /// Histories of each length.
    pub histories: u32,
    /// Files read in each history.
    pub reads: u32,
    /// The seed of the histories.
    pub seed: u64,
    /// Fewer mounts, and no repeated questions.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_brief: bool,
}

/// All results for model-generated files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelFiles {
    /// Why there are no other results; `None` if there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// How much was measured.
    pub plan: ModelFilesPlan,
    /// The common origin of all answers: `live`, `recorded` or `simulated`.
    pub origin: String,
    /// The model.
    pub model: String,
    /// The engine that runs the model, or ran it for the recording.
    pub engine: String,
    /// How often `llm-history` answered correctly, by the length of the history.
    pub fidelity: Vec<LengthResult>,
    /// How often the same request gave the same answer.
    pub repeats: Repeats,
    /// The parts of the answer time.
    pub latency: AnswerLatency,
    /// The results on a mount of `llm-history`.
    pub history: MountedModel,
    /// The results on a mount of `llm-generate`.
    pub generate: MountedModel,
    /// The time of rereading a generated file, as a ratio to `memory`, with its 99 % interval.
    pub memory_ratio: Option<(f64, f64, f64)>,
}

impl ModelFiles {
    /// Whether another run found the same, but for times and for the place of the engine.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.untimed() == other.untimed()
    }

    fn untimed(&self) -> Self {
        let mut same = self.clone();
        (same.engine, same.latency, same.memory_ratio) = Default::default();
        same.fidelity.iter_mut().for_each(|length| length.answer_ms = 0.0);
        for mounted in [&mut same.history, &mut same.generate] {
            mounted.session = None;
            mounted.steps.iter_mut().for_each(|step| step.seconds = 0.0);
            // Behind the result stands what it took.
            let results = mounted.consistency.iter_mut().map(|(_, result)| result);
            results.for_each(|result| result.truncate(result.find(';').unwrap_or(result.len())));
        }
        same
    }
}

/// How often the same request gave the same answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    /// Questions that were asked twice.
    pub asked_twice: u32,
    /// Questions whose two answers were equal.
    pub equal: u32,
    /// The server accepts no temperature and samples as it is configured.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_own_sampling: bool,
}

/// The parts of the answer time for histories, each a mean in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerLatency {
    /// Answers.
    pub answers: u64,
    /// Waiting for the model to be free.
    pub queue_ms: f64,
    /// Transfer, and the model's processing of the prompt.
    pub first_byte_ms: f64,
    /// Generation of the answer.
    pub generation_ms: f64,
    /// Parsing and checking the answer.
    pub validation_ms: f64,
    /// Prompt tokens that the model processes per second.
    pub prompt_tokens_per_second: f64,
    /// Output tokens that the model generates per second.
    pub output_tokens_per_second: f64,
}

/// The results at one length of histories.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LengthResult {
    /// Operations in the log.
    pub operations: u32,
    /// Histories.
    pub histories: u32,
    /// Reads of files that exist.
    pub reads: Vec<ModelRead>,
    /// Removed files that were asked for.
    pub removed_asked: u32,
    /// Removed files that the model claims to exist.
    pub removed_invented: u32,
    /// Existing names that the model listed.
    pub names_right: u32,
    /// Existing names that the model did not list.
    pub names_missing: u32,
    /// Names that the model listed although they do not exist.
    pub names_invented: u32,
    /// Unusable answers of any kind, by the model's fault.
    pub unusable: u32,
    /// Questions that the provider did not answer. They are in no other figure.
    pub unanswered: u32,
    /// Why the first of them was not answered.
    pub unanswered_because: Option<String>,
    /// Tokens of the questions.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Answers.
    pub calls: u64,
    /// The mean time per answer, in milliseconds.
    pub answer_ms: f64,
}

/// A read of one file in a history.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRead {
    /// Its size in bytes.
    pub bytes: usize,
    /// Changes since the file was created.
    pub changes: u32,
    /// Whether the answer equals the written bytes.
    pub is_exact: bool,
    /// The edit distance in bytes: insertions, deletions and replacements; `None` without an answer.
    pub distance: Option<usize>,
}

/// The same work on one mount and in a plain directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountedModel {
    /// The steps of tools.
    pub steps: Vec<AskedStep>,
    /// Seconds of a short session: on this mount, and in a plain directory.
    pub session: Option<(f64, f64)>,
    /// Reads of that session, and how many of them were byte-exact.
    pub session_reads: Option<(u32, u32)>,
    /// Questions of that session, their prompt tokens, and the output tokens.
    pub session_tokens: Option<(u64, u64, u64)>,
    /// Consistency checks and their results.
    #[serde(default)]
    pub consistency: Vec<(String, String)>,
}

/// A step of a tool, and its questions to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedStep {
    /// The step, in words.
    pub what: String,
    /// Questions to the model.
    pub calls: u64,
    /// Tokens of the questions.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    #[serde(default)]
    pub output_tokens: u64,
    /// The duration of the step, in seconds.
    pub seconds: f64,
    /// `ok`, or how the step ended.
    pub outcome: String,
}
