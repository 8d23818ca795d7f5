//! Seeded text that stands in for text nobody may publish: same size, same number of lines.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Common English words: filler then has about as many tokens a byte as prose has.
const WORDS: &[&str] = &[
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as",
    "his", "they", "at", "be", "this", "from", "have", "or", "by", "one", "had", "not", "but",
    "what", "all", "were", "when", "we", "there", "can", "an", "your", "which", "their", "said",
    "if", "do", "will", "each", "about", "how", "up", "out", "them", "then", "she", "many", "some",
    "so", "these", "would", "other", "into", "has", "more", "her", "two", "like", "him", "see",
    "time", "could", "no", "make", "than", "first", "been", "its", "who", "now", "people", "my",
    "made", "over", "did", "down", "only", "way", "find", "use", "may", "water", "long", "little",
    "very", "after", "words", "called", "just", "where", "most", "know",
];

/// `bytes` bytes of text with `lines` newlines (at most `bytes`), the last byte one of them if
/// there are any. The same seed always gives the same text, on every machine and in every version:
/// committed traces depend on it.
pub fn fill(seed: u64, bytes: u64, lines: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let lines = lines.min(bytes);
    let mut text = Vec::with_capacity(bytes as usize);
    if lines == 0 {
        words(&mut rng, bytes as usize, &mut text);
        return text;
    }
    // Line lengths vary as a random share of what is left for text.
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

/// Appends `length` bytes of words with single spaces between them; the last word is cut to fit.
fn words(rng: &mut ChaCha8Rng, length: usize, text: &mut Vec<u8>) {
    let end = text.len() + length;
    while text.len() < end {
        let word = WORDS[rng.random_range(0..WORDS.len())];
        text.extend_from_slice(word.as_bytes());
        text.push(b' ');
    }
    text.truncate(end);
    // A line that ends in a space is what editors strip.
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
        // Committed traces carry the SHA-256 of filler: this text may never change.
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
