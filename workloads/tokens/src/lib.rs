//! Counts tokens of texts and of agents' contexts. Prices are in `reports`.
//! [`count`] uses the built-in `o200k` vocabulary; a [`Factor`] converts to a model's own tokens.
//! A [`Conversation`] lists what enters a context at each call of the model's API.
//! An [`Account`] sums prompts, the part that the prompt cache serves, and the size of the context.

mod account;
mod conversation;
mod factor;
mod residual;
mod usage;
mod vocabulary;

pub use account::{Account, CallTokens, TTL_MS, Terms};
pub use conversation::{
    CallPurpose, CallUsage, Conversation, FixedOrigin, Part, PartKind, Rewrite, Step, ThinkingRetention,
};
pub use factor::{Factor, Frame, factor, frame, thinking_stays};
pub use residual::{CacheResidual, Residual, cached_prompts, median, residual};
pub use usage::BilledUsage;

/// The vocabulary's name in traces and results.
pub const NAME: &str = "o200k";

/// The most bytes that the vocabulary splits at once. Its regular expression panics on a run of a million blanks.
const PIECE_MAX: usize = 256 << 10;

/// Tokens of a text. The first call loads the vocabulary, which takes about 0.2 s.
///
/// A text of more than 256 KiB is counted in pieces that end with a line. Where it has no line of that length, the count
/// may be more by one token for each piece.
pub fn count(text: &str) -> u64 {
    let (mut rest, mut tokens) = (text, 0);
    while !rest.is_empty() {
        let (piece, left) = rest.split_at(end_of_piece(rest));
        tokens += vocabulary::count(piece);
        rest = left;
    }
    tokens
}

/// Where the first piece of a text ends. No token crosses the end of a line before a letter.
fn end_of_piece(text: &str) -> usize {
    if text.len() <= PIECE_MAX {
        return text.len();
    }
    let bytes = text.as_bytes();
    let is_line = |at: &usize| bytes[*at - 1] == b'\n' && bytes[*at].is_ascii_alphabetic();
    let line = (PIECE_MAX / 2..PIECE_MAX).rev().find(is_line);
    let boundary = || (0..PIECE_MAX).rev().find(|at| text.is_char_boundary(*at));
    line.or_else(boundary).unwrap_or(PIECE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_counted_in_time() {
        for part in ["a", " ", "\n", " \n", ".", "1", "\u{301}", "字", "'", "a1 ", "\u{a0}", "/\n"] {
            assert!(count(&part.repeat(3_000_000 / part.len())) > 0, "{part:?}");
        }
    }

    #[test]
    fn a_long_text_has_as_many_tokens_as_its_lines() {
        let line = "The agent reads 12 files, then it writes one.\n";
        let lines = 3 * PIECE_MAX / line.len();
        assert_eq!(count(&line.repeat(lines)), count(line) * lines as u64);
    }

    #[test]
    fn counts_as_the_published_vocabulary_does() {
        assert_eq!(count(""), 0);
        assert_eq!(count("hello world"), 2);
        // A control token in a text counts as plain text.
        assert!(count("<|endoftext|>") > 1);
    }
}
