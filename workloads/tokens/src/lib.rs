//! Tokens: how many a text has, and what an agent's context costs in them. Prices are in `reports`.
//!
//! [`count`] uses the `o200k` vocabulary that is built in; a [`Factor`] says what a model counts against it.
//! A [`Conversation`] says what came into a context, call by call of the model's API. An [`Account`] says what had to be
//! sent for it, what of that a prompt cache could answer, and how full the context became.

mod account;
mod conversation;
mod factor;
mod residual;

use std::sync::LazyLock;

use tiktoken_rs::{CoreBPE, o200k_base};

pub use account::{Account, CallTokens, TTL_MS, Terms};
pub use conversation::{
    Conversation, Fixed, Part, PartKind, Reported, Rewrite, Step, ThinkingStays,
};
pub use factor::{Factor, factor, thinking_stays};
pub use residual::{CacheResidual, Residual, cached_prompts, median, residual};

/// The vocabulary's name in traces and results.
pub const NAME: &str = "o200k";

static VOCABULARY: LazyLock<CoreBPE> = LazyLock::new(|| {
    // The vocabulary is embedded in the crate: it cannot be missing.
    o200k_base().unwrap_or_else(|error| unreachable!("the embedded vocabulary: {error}"))
});

/// Tokens of a text. The first call loads the vocabulary, which takes about 0.2 s.
pub fn count(text: &str) -> u64 {
    if text.is_empty() {
        return 0;
    }
    VOCABULARY.encode_ordinary(text).len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_as_the_published_vocabulary_does() {
        assert_eq!(count(""), 0);
        assert_eq!(count("hello world"), 2);
        // Text that looks like a control token is only text.
        assert!(count("<|endoftext|>") > 1);
    }
}
