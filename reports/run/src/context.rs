//! What came into an agent's context in the sessions that a run replays.

use serde::{Deserialize, Serialize};
use tokens::{Conversation, ThinkingStays};

/// A line of `contexts.jsonl`: a workload's session under one context policy. Written before the first pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionContext {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The workload.
    pub workload: String,
    /// The context policy, or the name of a published account.
    pub policy: String,
    /// Where the tokens come from.
    pub basis: Basis,
    /// The model that the session was recorded on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The model's own tokens for each `o200k` token, by the model's name, with where that comes from.
    pub factors: Vec<ModelFactor>,
    /// The session.
    pub conversation: Conversation,
}

/// What a model counts for an `o200k` token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFactor {
    /// The model.
    pub model: String,
    /// Its own tokens for each `o200k` token.
    pub per_o200k: f64,
    /// The factor with its standing and source, in words.
    pub label: String,
    /// How long its thinking stays in its prompts. In older runs it is missing, and taken out already of the
    /// conversation where the recorded model's goes.
    #[serde(default)]
    pub thinking: ThinkingStays,
}

/// Where the tokens of a session come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Counted when the session was imported, from what was recorded.
    Recorded,
    /// Counted from what an agent would write and be shown.
    Generated,
    /// In part counted from texts, in part stated by who published the session, who gave no text for it.
    PartlyStated,
    /// What the session would have been under a context policy: calls are added that nobody made, and how much
    /// is read back is assumed.
    Simulated,
    /// Somebody's published figures, in their own units: nothing was counted.
    Published,
}

impl Basis {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Basis::Recorded => "recorded",
            Basis::Generated => "generated",
            Basis::PartlyStated => "partly stated",
            Basis::Simulated => "simulated",
            Basis::Published => "published figures, not counted",
        }
    }
}
