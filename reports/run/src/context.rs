//! The agent's context in the sessions that a run replays.

use schemars::JsonSchema;
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize};
use tokens::{Conversation, ThinkingRetention};

/// A line of `contexts.jsonl`: a workload's session under one context policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionContext {
    /// The version of the run directory: [`super::RUN_DIRECTORY_VERSION`].
    pub v: u32,
    /// The workload.
    #[serde(deserialize_with = "inputs::names::name")]
    pub workload: String,
    /// The context policy, or the name of a published account.
    pub policy: String,
    /// The origin of the token counts.
    pub basis: Basis,
    /// The model that the session was recorded on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// For each model, its own tokens per `o200k` token, with the source.
    pub factors: Vec<ModelFactor>,
    /// The session.
    pub conversation: Conversation,
}

/// A model's own tokens per `o200k` token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFactor {
    /// The model.
    pub model: String,
    /// Its own tokens per `o200k` token.
    #[serde(deserialize_with = "believed_factor")]
    pub per_o200k: f64,
    /// The factor with its reliability and source, in words.
    pub label: String,
    /// How long its thinking stays in its prompts.
    pub thinking: ThinkingRetention,
}

/// Reads a factor between tokenizers, of which none is beyond 10.
fn believed_factor<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(input)?;
    if factor > 0.0 && factor <= 10.0 {
        Ok(factor)
    } else {
        Err(D::Error::custom(format_args!("{factor} is not a valid factor between tokenizers (0 to 10)")))
    }
}

inputs::named! {
    /// The origin of a session's token counts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Basis, name {
        /// Counted by the importer, from the recording.
        Recorded = "recorded",
        /// Counted from what an agent would write and see.
        Generated = "generated",
        /// Partly counted from texts, partly stated by the session's publisher without the text.
        PartlyStated = "partly stated",
        /// Computed for a context policy that the recording did not have.
        /// It adds calls that no agent made, and assumes how much is read back.
        Simulated = "simulated",
        /// Published figures in their own units, not counted by us.
        Published = "published figures, not counted",
    }
}
