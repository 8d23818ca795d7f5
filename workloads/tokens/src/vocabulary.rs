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

static SPLITTER: LazyLock<Regex> =
    LazyLock::new(|| Regex::new_many(&WORDS).unwrap_or_else(|error| unreachable!("a constant expression: {error}")));

/// The longest words that are remembered, in bytes, short ones and long ones: a key has one byte more, for the length.
const SHORT: usize = 15;
const LONG: usize = 31;

/// The bytes of a word that the vocabulary is asked for at once: it looks for the next pair to merge in all of the word. A
/// word that is longer counts at most one token more for each piece.
const PIECE: usize = 2048;

/// How many short and how many long words a thread remembers, as powers of two: 2 MiB and 1 MiB of keys.
const SHORT_WORDS: u32 = 17;
const LONG_WORDS: u32 = 15;

thread_local! {
    static COUNTER: RefCell<Counter> = RefCell::new(Counter::new());
}

/// Tokens of a text.
pub(crate) fn count(text: &str) -> u64 {
    COUNTER.with_borrow_mut(|counter| counter.text(text))
}

struct Counter {
    cache: Cache,
    short: WordCache<1>,
    long: WordCache<2>,
}

impl Counter {
    fn new() -> Self {
        Self { cache: SPLITTER.create_cache(), short: WordCache::new(SHORT_WORDS), long: WordCache::new(LONG_WORDS) }
    }

    fn text(&mut self, text: &str) -> u64 {
        let (mut start, mut tokens) = (0, 0);
        while start < text.len() {
            let end = end_of_ascii_word(&text.as_bytes()[start..]).map(|length| start + length);
            let Some(end) = end.or_else(|| self.end_of_word(text, start)) else {
                break;
            };
            tokens += self.word(text, start, end);
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

    /// The tokens of the word at this place of a text.
    fn word(&mut self, text: &str, start: usize, end: usize) -> u64 {
        let ask = || asked(&text[start..end]);
        let bytes = text.as_bytes();
        let length = end - start;
        if length <= SHORT {
            return self.short.tokens([half(bytes, start, length)], length, ask);
        }
        if length <= LONG {
            let halves = [half(bytes, start, SHORT + 1), half(bytes, start + SHORT + 1, length - SHORT - 1)];
            return self.long.tokens(halves, length, ask);
        }
        pieces(&text[start..end]).map(asked).sum()
    }
}

/// The pieces of a long word, each of about [`PIECE`] bytes.
fn pieces(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let end = (PIECE..rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (piece, left) = rest.split_at(end);
        rest = left;
        (!piece.is_empty()).then_some(piece)
    })
}

/// At most 16 bytes of a text, as a number.
fn half(bytes: &[u8], start: usize, length: usize) -> u128 {
    let rest = &bytes[start..];
    match rest.first_chunk() {
        // The bytes behind the word are no part of it.
        Some(chunk) if length < 16 => u128::from_le_bytes(*chunk) & ((1 << (8 * length)) - 1),
        Some(chunk) => u128::from_le_bytes(*chunk),
        None => {
            let mut chunk = [0; 16];
            chunk[..length].copy_from_slice(&rest[..length]);
            u128::from_le_bytes(chunk)
        }
    }
}

/// Words whose tokens are known.
struct WordCache<const HALVES: usize> {
    /// Words, each at the place that its hash gives; 0 for none.
    words: Vec<[u128; HALVES]>,
    /// The tokens of each word in `words`.
    tokens: Vec<u8>,
    bits: u32,
}

impl<const HALVES: usize> WordCache<HALVES> {
    fn new(bits: u32) -> Self {
        Self { words: vec![[0; HALVES]; 1 << bits], tokens: vec![0; 1 << bits], bits }
    }

    /// The tokens of the word with these bytes. `ask` gives those of a word that is not known.
    fn tokens(&mut self, mut key: [u128; HALVES], length: usize, ask: impl FnOnce() -> u64) -> u64 {
        // The length tells a word from a longer one with zero bytes at its end.
        key[HALVES - 1] |= (length as u128) << 120;
        let place = place(&key, self.bits);
        if self.words[place] != key {
            self.words[place] = key;
            // A token has at least one byte.
            self.tokens[place] = ask() as u8;
        }
        u64::from(self.tokens[place])
    }
}

/// The length of the first word of a text, as [`WORDS`] splits it, if it and the character behind it are ASCII: most are,
/// and the expression's engine takes ten times as long for one.
fn end_of_ascii_word(text: &[u8]) -> Option<usize> {
    // The end of a run of bytes from `start`, if the byte behind it is ASCII.
    let run = |start: usize, is_in: fn(u8) -> bool| {
        let rest = &text[start..];
        let length = rest.iter().position(|byte| !is_in(*byte));
        let end = start + length.unwrap_or(rest.len());
        text.get(end).is_none_or(u8::is_ascii).then_some(end)
    };
    let is_letter = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphabetic);
    let first = *text.first()?;
    if first.is_ascii_digit() {
        let digits = text.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        let is_whole = digits == 3 || text.get(digits).is_none_or(u8::is_ascii);
        return is_whole.then_some(digits);
    }
    let is_line_end = first == b'\r' || first == b'\n';
    let letters = usize::from(!first.is_ascii_alphabetic());
    if first.is_ascii() && !is_line_end && is_letter(letters) {
        let capitals = run(letters, |byte| byte.is_ascii_uppercase())?;
        let end = run(capitals, |byte| byte.is_ascii_lowercase())?;
        let after = &text[end..];
        if after.first() != Some(&b'\'') {
            return Some(end);
        }
        return match after.get(1..) {
            // The long s is an s to the expression.
            Some([next, ..]) if !next.is_ascii() => None,
            Some([b's' | b'S' | b't' | b'T' | b'm' | b'M' | b'd' | b'D', ..]) => Some(end + 2),
            Some([b'r' | b'R' | b'v' | b'V', b'e' | b'E', ..] | [b'l' | b'L', b'l' | b'L', ..]) => Some(end + 3),
            _ => Some(end),
        };
    }
    if !is_blank(first) || first == b' ' && text.get(1).is_some_and(|byte| is_mark(*byte)) {
        let marks = run(usize::from(first == b' '), is_mark).filter(|end| *end > 0)?;
        return run(marks, |byte| matches!(byte, b'\r' | b'\n' | b'/'));
    }
    let end = run(0, is_blank)?;
    let lines = text[..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n'));
    Some(match lines {
        Some(last) => last + 1,
        // The last blank belongs to the next word.
        None if end < text.len() && end > 1 => end - 1,
        None => end,
    })
}

/// Whether a byte is a blank character or the end of a line.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | b' ')
}

/// Whether a byte is an ASCII character that is no letter, digit or blank.
fn is_mark(byte: u8) -> bool {
    byte.is_ascii() && !byte.is_ascii_alphanumeric() && !is_blank(byte)
}

/// The tokens of a word, by the vocabulary.
fn asked(word: &str) -> u64 {
    VOCABULARY.encode_ordinary(word).len() as u64
}

/// The place of a word among `1 << bits` that are remembered.
fn place(key: &[u128], bits: u32) -> usize {
    // Fibonacci hashing of all parts.
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mixed = key.iter().fold(0_u64, |mixed, half| {
        let (low, high) = (*half as u64, (*half >> 64) as u64);
        let low = (mixed ^ low).wrapping_mul(FACTOR);
        (low ^ high).rotate_left(32).wrapping_mul(FACTOR)
    });
    (mixed >> (64 - bits)) as usize
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
        fn an_ascii_text_has_the_tokens_that_the_vocabulary_gives_it(
            text in "([a-zA-Z]{0,3}|'([sSrRvVlL][eElLſé]?|ſ)|[ \t\u{b}\u{c}\u{1c}\r\n/]{1,3}|[!-/:-@\0é]{1,2}|[0-9]{1,4}|[a-z]{13,40}){0,30}"
        ) {
            let expected = asked(&text);
            prop_assert_eq!(count(&text), expected);
            prop_assert_eq!(count(&text), expected);
        }

        #[test]
        fn a_word_is_split_as_the_expression_splits_it(text in "[a-cA-C'sſé0-2 \t\r\n/.\u{1c}]{1,7}") {
            if let Some(end) = end_of_ascii_word(text.as_bytes()) {
                prop_assert_eq!(Counter::new().end_of_word(&text, 0), Some(end));
            }
        }

        #[test]
        fn any_text_has_the_tokens_that_the_vocabulary_gives_it(text: String) {
            prop_assert_eq!(count(&text), asked(&text));
        }
    }

    #[test]
    fn a_long_word_is_counted_in_pieces_of_limited_length() {
        for letter in ["a", "é", "字"] {
            let word = letter.repeat(4 * PIECE);
            let all: Vec<&str> = pieces(&word).collect();
            assert_eq!(all.concat(), word);
            assert!(all.iter().all(|piece| piece.len() < PIECE + letter.len()), "{letter}");
            let (counted, whole) = (count(&word), asked(&word));
            assert!((whole..=whole + all.len() as u64).contains(&counted), "{letter}: {counted} for {whole}");
        }
    }
}
