//! Where answers come from.

use serde::{Deserialize, Serialize};

/// The origin of an answer. Latencies of different origins are never pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A model that computed the answer.
    Live,
    /// A recording of a model's answer, with the recorded latency.
    Recorded,
    /// A program that imitates a model.
    Simulated,
}

impl Origin {
    /// Its name in results and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Recorded => "recorded",
            Self::Simulated => "simulated",
        }
    }
}
