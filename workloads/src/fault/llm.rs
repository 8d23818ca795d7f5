//! Faults of a language model's provider.

use serde::{Deserialize, Serialize};

use super::Bounds;

/// A fault of the provider, as in `injection = { llm = "hang" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum LlmFault {
    /// Status 429, with or without `Retry-After`.
    RateLimited {
        /// Seconds in `Retry-After`; `None` for no header.
        retry_after: Option<u64>,
    },
    /// Status 500.
    ServerError,
    /// The provider accepts the request and never answers.
    Hang,
    /// The stream of the answer breaks off.
    StreamCut,
    /// The answer is not JSON.
    InvalidJson,
    /// The answer is complete, and empty.
    Empty,
    /// The model refuses to answer.
    Refusal,
    /// Status 400, `context_length_exceeded`.
    ContextOverflow,
    /// Status 401.
    KeyRevoked,
    /// The mount's own budget of tokens is spent.
    BudgetExhausted,
    /// The answer has the size of the file, but other bytes.
    WrongContent,
}

impl LlmFault {
    /// Its parameters.
    pub(super) fn ranges(self) -> Vec<Bounds> {
        match self {
            LlmFault::RateLimited { retry_after: Some(seconds) } => vec![("retry_after", seconds as f64, 0.0, 3600.0)],
            _ => Vec::new(),
        }
    }
}
