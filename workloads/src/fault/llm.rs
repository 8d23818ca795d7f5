//! Faults of a language model's provider.

use serde::Deserialize;

/// A fault of the provider, as in `injection = { llm = "hang" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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
    /// The answer is no JSON.
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
    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            LlmFault::RateLimited { .. } => "llm.rate-limited",
            LlmFault::ServerError => "llm.server-error",
            LlmFault::Hang => "llm.hang",
            LlmFault::StreamCut => "llm.stream-cut",
            LlmFault::InvalidJson => "llm.invalid-json",
            LlmFault::Empty => "llm.empty",
            LlmFault::Refusal => "llm.refusal",
            LlmFault::ContextOverflow => "llm.context-overflow",
            LlmFault::KeyRevoked => "llm.key-revoked",
            LlmFault::BudgetExhausted => "llm.budget-exhausted",
            LlmFault::WrongContent => "llm.wrong-content",
        }
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            LlmFault::RateLimited {
                retry_after: Some(seconds),
            } if *seconds > 3600 => Err(format!(
                "field `injection.llm.rate-limited.retry_after`: {seconds} s is more than an hour"
            )),
            _ => Ok(()),
        }
    }
}
