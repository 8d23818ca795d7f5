//! Seeded filler in place of text that may not be published, with the same size and number of lines.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Common English words, so that filler has about as many tokens per byte as prose.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "his", "they", "at",
    "be", "this", "from", "have", "or", "by", "one", "had", "not", "but", "what", "all", "were", "when", "we", "there",
    "can", "an", "your", "which", "their", "said", "if", "do", "will", "each", "about", "how", "up", "out", "them",
    "then", "she", "many", "some", "so", "these", "would", "other", "into", "has", "more", "her", "two", "like", "him",
    "see", "time", "could", "no", "make", "than", "first", "been", "its", "who", "now", "people", "my", "made", "over",
    "did", "down", "only", "way", "find", "use", "may", "water", "long", "little", "very", "after", "words", "called",
    "just", "where", "most", "know",
];

/// Returns `bytes` bytes of text with `lines` newlines (at most `bytes`); with newlines, the last byte is
/// one. The same seed gives the same text on every machine and in every version, because committed traces
/// depend on it.
pub fn fill(seed: u64, bytes: u64, lines: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let lines = lines.min(bytes);
    let mut text = Vec::with_capacity(bytes as usize);
    if lines == 0 {
        words(&mut rng, bytes as usize, &mut text);
        return text;
    }
    // Each line takes a random share of the remaining bytes.
    let mut letters = bytes - lines;
    for left in (1..=lines).rev() {
        let length = if left == 1 {
            letters
        } else {
            let mean = letters / left;
            rng.random_range(0..=2 * mean).min(letters)
        };
        words(&mut rng, length as usize, &mut text);
        text.push(b'\n');
        letters -= length;
    }
    text
}

/// Appends `length` bytes of words, separated by single spaces. The last word is cut to fit.
fn words(rng: &mut ChaCha8Rng, length: usize, text: &mut Vec<u8>) {
    let end = text.len() + length;
    while text.len() < end {
        let word = WORDS[rng.random_range(0..WORDS.len())];
        text.extend_from_slice(word.as_bytes());
        text.push(b' ');
    }
    text.truncate(end);
    // No trailing space, because editors remove it.
    if length > 0
        && let Some(last) = text.last_mut()
        && *last == b' '
    {
        *last = b'.';
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_the_same_for_ever() {
        // Committed traces contain the SHA-256 of filler, so this text must never change.
        let text = String::from_utf8(fill(1, 60, 3)).unwrap();
        insta::assert_snapshot!(text.escape_debug().to_string());
    }

    proptest! {
        #[test]
        fn has_the_size_and_the_lines_it_should(seed: u64, bytes in 0u64..5000, lines in 0u64..200) {
            let text = fill(seed, bytes, lines);
            prop_assert_eq!(text.len() as u64, bytes);
            let newlines = text.iter().filter(|b| **b == b'\n').count() as u64;
            prop_assert_eq!(newlines, lines.min(bytes));
            prop_assert!(text.is_ascii());
        }
    }
}
