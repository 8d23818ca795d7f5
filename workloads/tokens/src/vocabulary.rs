//! Counts the tokens of a text in the vocabulary `o200k`. The words of a text repeat: each thread remembers the counts of
//! short ones, so that the vocabulary, whose tables are larger than the processor's caches, is asked for new words only.

use std::cell::RefCell;
use std::sync::LazyLock;

use regex_automata::meta::{Cache, Regex};
use regex_automata::{Anchored, Input};
use tiktoken_rs::{CoreBPE, o200k_base};

// A constant that takes long to load.
static VOCABULARY: LazyLock<CoreBPE> = LazyLock::new(|| {
    // The vocabulary is embedded in the crate, so it cannot be missing.
    o200k_base().unwrap_or_else(|error| unreachable!("the embedded vocabulary: {error}"))
});

/// The words that no token crosses, as the vocabulary's own expression splits them. That one ends with
/// `\s+(?!\S)|\s+`, which takes a backtracking engine; here, [`LOOKS_AHEAD`] is a pattern of its own.
const WORDS: [&str; 3] = [
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$",
    r"\s+\s",
    r"\s+",
];

/// The pattern of [`WORDS`] whose last character belongs to the next word.
const LOOKS_AHEAD: usize = 1;

static SPLITTER: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new_many(&WORDS).unwrap_or_else(|error| unreachable!("a constant expression: {error}"))
});

/// The longest word that is remembered, in bytes: a key has one more, for the length.
const LONGEST_REMEMBERED: usize = 15;

/// How many words a thread remembers, as a power of two: 512 KiB of keys.
const REMEMBERED: u32 = 15;

thread_local! {
    static COUNTER: RefCell<Counter> = RefCell::new(Counter::new());
}

/// Tokens of a text.
pub(crate) fn count(text: &str) -> u64 {
    COUNTER.with_borrow_mut(|counter| counter.text(text))
}

struct Counter {
    cache: Cache,
    /// Words, each at the place that its hash gives; 0 for none.
    words: Vec<u128>,
    /// The tokens of each word in `words`.
    tokens: Vec<u8>,
}

impl Counter {
    fn new() -> Self {
        Self {
            cache: SPLITTER.create_cache(),
            words: vec![0; 1 << REMEMBERED],
            tokens: vec![0; 1 << REMEMBERED],
        }
    }

    fn text(&mut self, text: &str) -> u64 {
        let (mut start, mut tokens) = (0, 0);
        while let Some(end) = self.end_of_word(text, start) {
            tokens += self.word(&text[start..end]);
            start = end;
        }
        tokens
    }

    /// Where the word ends that begins at `start`. Every character belongs to a word.
    fn end_of_word(&mut self, text: &str, start: usize) -> Option<usize> {
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let word = SPLITTER.search_with(&mut self.cache, &input)?;
        let end = word.end();
        if word.pattern().as_usize() != LOOKS_AHEAD {
            return Some(end);
        }
        let next = text[start..end].chars().next_back()?;
        Some(end - next.len_utf8())
    }

    fn word(&mut self, word: &str) -> u64 {
        let bytes = word.as_bytes();
        if bytes.len() > LONGEST_REMEMBERED {
            return asked(word);
        }
        let mut key = [0; LONGEST_REMEMBERED + 1];
        key[..bytes.len()].copy_from_slice(bytes);
        // The length tells a word from a longer one with zero bytes at its end.
        key[LONGEST_REMEMBERED] = bytes.len() as u8;
        let key = u128::from_le_bytes(key);
        let place = place(key);
        if self.words[place] != key {
            self.words[place] = key;
            // A token has at least one byte.
            self.tokens[place] = asked(word) as u8;
        }
        u64::from(self.tokens[place])
    }
}

/// The tokens of a word, by the vocabulary.
fn asked(word: &str) -> u64 {
    VOCABULARY.encode_ordinary(word).len() as u64
}

/// The place of a word among those that are remembered.
fn place(key: u128) -> usize {
    // Fibonacci hashing of both halves.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let (low, high) = (key as u64, (key >> 64) as u64);
    let mixed = (low.wrapping_mul(FACTOR) ^ high)
        .rotate_left(32)
        .wrapping_mul(FACTOR);
    (mixed >> (64 - REMEMBERED)) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_has_the_tokens_that_the_vocabulary_gives_it(
            text in "([a-zA-Zé字]{0,20}('s|'LL|'x)?|[0-9]{0,7}|[ \t\u{a0}\u{3000}]{0,20}|[\r\n/]{0,3}|[.,{}()\0\u{301}]{0,4}){0,40}"
        ) {
            let expected = asked(&text);
            // The second time, its words are remembered.
            prop_assert_eq!(count(&text), expected);
            prop_assert_eq!(count(&text), expected);
        }

        #[test]
        fn any_text_has_the_tokens_that_the_vocabulary_gives_it(text: String) {
            prop_assert_eq!(count(&text), asked(&text));
        }
    }
}
