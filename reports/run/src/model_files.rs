//! What a run found of files that a language model makes up: `model-files.json`.

use serde::{Deserialize, Serialize};

/// How much of them is measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFilesPlan {
    /// Lengths of histories, in operations.
    pub lengths: Vec<u32>,
    /// Histories of each length.
    pub histories: u32,
    /// Files that are asked for in each history.
    pub reads: u32,
    /// The seed of the histories.
    pub seed: u64,
    /// Fewer mounts, and nothing is asked anew.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_brief: bool,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelFiles {
    /// Why there is nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// How much was measured.
    pub plan: ModelFilesPlan,
    /// `live`, `recorded` or `simulated`: of all answers in here, which have one origin.
    pub origin: String,
    /// The model.
    pub model: String,
    /// What runs it, or did when it was recorded.
    pub engine: String,
    /// How often `llm-history` was right, by the length of the history.
    pub fidelity: Vec<AtLength>,
    /// Whether the same request gave the same answer.
    pub repeats: Repeats,
    /// Where the time of the answers went.
    pub latency: AnswerLatency,
    /// A mount of `llm-history`.
    pub history: MountedModel,
    /// A mount of `llm-generate`.
    pub generate: MountedModel,
    /// A generated file read again, as a ratio to `memory`, with its 99 % interval.
    pub memory_ratio: Option<(f64, f64, f64)>,
}

/// Whether the same request gave the same answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeats {
    /// Questions that were asked twice.
    pub asked_twice: u32,
    /// Of those, how many had the same answer.
    pub equal: u32,
    /// The server takes no temperature: sampling is its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_own_sampling: bool,
}

/// Where the time of the answers about histories went, each a mean in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerLatency {
    /// Answers.
    pub answers: u64,
    /// Waiting for the model to be free.
    pub queue_ms: f64,
    /// Transfer and the reading of the question.
    pub first_byte_ms: f64,
    /// Writing the answer.
    pub generation_ms: f64,
    /// Reading and checking the answer.
    pub validation_ms: f64,
    /// Tokens of questions that the model reads in a second.
    pub prompt_tokens_per_second: f64,
    /// Tokens of answers that the model writes in a second.
    pub output_tokens_per_second: f64,
}

/// What was found at one length of histories.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtLength {
    /// Operations in the log.
    pub operations: u32,
    /// Histories.
    pub histories: u32,
    /// Files that are there and were asked for.
    pub reads: Vec<ModelRead>,
    /// Files that were removed and asked for.
    pub removed_asked: u32,
    /// Of those, how many the model says are there.
    pub removed_invented: u32,
    /// Names that are there and were named.
    pub names_right: u32,
    /// Names that are there and were not named.
    pub names_missing: u32,
    /// Names that are not there and were named.
    pub names_invented: u32,
    /// Answers that could not be used, of any kind: the model's fault.
    pub unusable: u32,
    /// Questions that the provider did not answer, which are in no other figure.
    pub unanswered: u32,
    /// Why the first of them was not.
    pub unanswered_because: Option<String>,
    /// Tokens of the questions.
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    pub output_tokens: u64,
    /// Answers.
    pub calls: u64,
    /// Milliseconds an answer, in the mean.
    pub answer_ms: f64,
}

/// A file that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelRead {
    /// Its size in bytes.
    pub bytes: usize,
    /// Changes since the file was made.
    pub changes: u32,
    /// The answer was what had been written, to the byte.
    pub is_exact: bool,
    /// Bytes to insert, delete or replace; `None` without an answer.
    pub distance: Option<usize>,
}

/// What was done on one mount, and on a plain directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountedModel {
    /// What tools did.
    pub steps: Vec<AskedStep>,
    /// Seconds of a short session: here, and in a plain directory.
    pub session: Option<(f64, f64)>,
    /// Reads of that session, and how many were byte-exact.
    pub session_reads: Option<(u32, u32)>,
    /// Questions of that session, their tokens, and those of the answers.
    pub session_tokens: Option<(u64, u64, u64)>,
    /// What was tried of consistency, and what was found.
    #[serde(default)]
    pub consistency: Vec<(String, String)>,
}

/// What a tool did, and what it asked of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskedStep {
    /// What was done.
    pub what: String,
    /// Questions to the model.
    pub calls: u64,
    /// Tokens of the questions.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Tokens of the answers.
    #[serde(default)]
    pub output_tokens: u64,
    /// How long it took.
    pub seconds: f64,
    /// `ok`, or how it ended.
    pub outcome: String,
}
