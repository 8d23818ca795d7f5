//! What a run found of files that a language model makes up, as far as a report says it.

use serde::{Deserialize, Serialize};

/// `model-files.json`, of which this is a part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelFiles {
    /// Why there is nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// `live`, `recorded` or `simulated`.
    #[serde(default)]
    pub origin: String,
    /// The model.
    #[serde(default)]
    pub model: String,
    /// What runs it, or did when it was recorded.
    #[serde(default)]
    pub engine: String,
    /// How often `llm-history` was right, by the length of the history.
    #[serde(default)]
    pub fidelity: Vec<AtLength>,
    /// A mount of `llm-history`.
    #[serde(default)]
    pub history: MountedModel,
    /// A mount of `llm-generate`.
    #[serde(default)]
    pub generate: MountedModel,
}

/// What was found at one length of histories.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AtLength {
    /// Operations in the log.
    pub operations: u32,
    /// Files that were asked for.
    pub reads: Vec<ModelRead>,
    /// Answers.
    pub calls: u64,
    /// Answers that could not be used.
    pub unusable: u32,
    /// Questions that the provider did not answer.
    pub unanswered: u32,
    /// Milliseconds an answer, in the mean.
    pub answer_ms: f64,
}

/// A file that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelRead {
    /// The answer was what had been written, to the byte.
    pub is_exact: bool,
}

/// What was done on one mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountedModel {
    /// What tools did.
    #[serde(default)]
    pub steps: Vec<AskedStep>,
    /// Seconds of a short session: here, and in a plain directory.
    #[serde(default)]
    pub session: Option<(f64, f64)>,
    /// Reads of that session, and how many were byte-exact.
    #[serde(default)]
    pub session_reads: Option<(u32, u32)>,
}

/// What a tool did, and what it asked of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AskedStep {
    /// What was done.
    pub what: String,
    /// Questions to the model.
    pub calls: u64,
    /// How long it took.
    pub seconds: f64,
    /// `ok`, or how it ended.
    pub outcome: String,
}
