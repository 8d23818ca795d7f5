//! Counting tokens, with the `o200k` vocabulary that is built in, and what models count against it. What they
//! cost is not known here.

mod factor;

use std::sync::LazyLock;

use tiktoken_rs::{CoreBPE, o200k_base};

pub use factor::{Factor, factor, thinking_stays};

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
