//! Counts tokens of texts and of agents' contexts. Prices are in `reports`.
//! [`count`] uses the built-in `o200k` vocabulary; a [`Factor`] converts to a model's own tokens.
//! A [`Conversation`] lists what enters a context at each call of the model's API.
//! An [`Account`] sums prompts, the part that the prompt cache serves, and the size of the context.

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

// A constant that takes long to load.
static VOCABULARY: LazyLock<CoreBPE> = LazyLock::new(|| {
    // The vocabulary is embedded in the crate, so it cannot be missing.
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
        // A control token in a text counts as plain text.
        assert!(count("<|endoftext|>") > 1);
    }
}
