//! What a language model's provider can do instead of answering.

use serde::Deserialize;

/// What the provider does: as in `injection = { llm = "hang" }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum LlmFault {
    /// 429, with or without `Retry-After`.
    RateLimited {
        /// Seconds in `Retry-After`; none for no header.
        retry_after: Option<u64>,
    },
    /// 500.
    ServerError,
    /// It takes the request and never answers.
    Hang,
    /// The stream of the answer breaks off.
    StreamCut,
    /// The answer is no JSON.
    InvalidJson,
    /// The answer is complete, and empty.
    Empty,
    /// The model says that it will not.
    Refusal,
    /// 400, `context_length_exceeded`.
    ContextOverflow,
    /// 401.
    KeyRevoked,
    /// The mount's own budget of tokens is spent.
    BudgetExhausted,
    /// The answer has as many bytes as the file, and is not what the file holds.
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

    /// Whether its parameters make sense.
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
