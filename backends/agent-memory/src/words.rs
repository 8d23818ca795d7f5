//! The words of notes and questions. FTS5's `unicode61` splits text at the same positions.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Words that do not tell the topic of a question.
const STOP_WORDS: &[&str] = &[
    "a", "about", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from", "had", "has", "have",
    "how", "i", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our", "should", "that", "the", "their",
    "there", "this", "to", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why",
    "will", "with", "you", "your",
];

/// The most distinct words of a question that count, the first ones.
pub(super) const QUESTION_WORDS: usize = 32;

/// The most distinct words of a note in its fingerprint.
const NOTE_WORDS: usize = 4096;

/// The words of a text in lower case, in order: runs of letters and digits.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// The distinct words of a question without stop words; all of them if it has only stop words.
pub(super) fn question(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for word in words(text) {
        if !all.contains(&word) {
            all.push(word);
        }
        if all.len() == 4 * QUESTION_WORDS {
            break;
        }
    }
    let is_telling = |word: &String| !STOP_WORDS.contains(&word.as_str());
    let mut telling: Vec<String> = all.iter().filter(|word| is_telling(word)).cloned().collect();
    if telling.is_empty() {
        telling = all;
    }
    telling.truncate(QUESTION_WORDS);
    telling
}

/// The stem of an English word: without the endings -s, -ies, -ed, -ing and -e.
///
/// Less than Porter's algorithm removes, so that other languages and names keep more of theirs.
pub(super) fn stem(word: &str) -> Cow<'_, str> {
    if word.len() > 4
        && let Some(rest) = word.strip_suffix("ies")
    {
        return Cow::Owned(format!("{rest}y"));
    }
    let plural = |word: &str| word.len() > 3 && !word.ends_with("ss") && !word.ends_with("us");
    let mut stem = match word.strip_suffix('s') {
        Some(rest) if plural(word) => rest,
        _ => word,
    };
    for ending in ["ing", "ed"] {
        if stem.len() > ending.len() + 2
            && let Some(rest) = stem.strip_suffix(ending)
        {
            stem = undoubled(rest);
            break;
        }
    }
    if stem.len() > 3 {
        stem = stem.strip_suffix('e').unwrap_or(stem);
    }
    Cow::Borrowed(stem)
}

/// Without the second of two last letters, as in `stopp`, but for those that words end with: `fall`, `miss`, `buzz`.
fn undoubled(stem: &str) -> &str {
    let bytes = stem.as_bytes();
    match bytes {
        [_, .., a, b] if a == b && b.is_ascii_lowercase() && !b"lsz".contains(b) => &stem[..stem.len() - 1],
        _ => stem,
    }
}

/// FNV-1a, 32 bits. Of 4,096 words, two collide in about one of 500 notes, which only costs a little precision.
pub(super) fn hash(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The stored form of a note's words: their number, then the hash of each distinct stem, sorted, with how often it
/// occurs. All are `u32`, little-endian.
pub(super) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut length = 0_u32;
    for text in texts {
        for word in words(text) {
            length += 1;
            let hash = hash(&stem(&word));
            // Further occurrences of known words still count.
            if counts.len() < NOTE_WORDS || counts.contains_key(&hash) {
                *counts.entry(hash).or_default() += 1;
            }
        }
    }
    let counts = counts.into_iter().flat_map(|(hash, count)| [hash, count]);
    let numbers = std::iter::once(length).chain(counts);
    numbers.flat_map(u32::to_le_bytes).collect()
}

/// The number of words in a stored fingerprint.
pub(super) fn length(fingerprint: &[u8]) -> u32 {
    fingerprint.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// How often a stem occurs in a note, by its stored fingerprint.
pub(super) fn count(fingerprint: &[u8], hash: u32) -> u32 {
    let entries = fingerprint.get(4..).unwrap_or_default();
    let (entries, _) = entries.as_chunks::<8>();
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
    entries.binary_search_by_key(&hash, |entry| number(entry)).map_or(0, |at| number(&entries[at][4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_its_telling_words_once() {
        assert_eq!(question("What is the NVDA risk? nvda!"), ["nvda", "risk"]);
        assert_eq!(question("who is it"), ["who", "is", "it"]);
        assert!(question("?!").is_empty());
        let long: String = (0..1000).map(|n| format!("w{n} ")).collect();
        assert_eq!(question(&long).len(), QUESTION_WORDS);
    }

    #[test]
    fn the_forms_of_an_english_word_have_one_stem_and_short_words_stay() {
        for forms in [
            &["paint", "paints", "painted", "painting"][..],
            &["hike", "hikes", "hiked", "hiking"],
            &["stop", "stops", "stopped", "stopping"],
            &["story", "stories"],
            &["call", "calls", "called", "calling"],
            &["größe", "größen"][..1],
        ] {
            for form in forms {
                assert_eq!(stem(form), stem(forms[0]), "{form}");
            }
        }
        for word in ["", "as", "bus", "ring", "red", "class", "rsi", "70", "日本語"] {
            assert_eq!(stem(word), word);
        }
    }

    #[test]
    fn a_fingerprint_counts_the_words_of_a_note() {
        let print = fingerprint(["RSI > 70 on NVDA, rsi", "Größ"]);
        assert_eq!(length(&print), 6);
        for (word, times) in [("rsi", 2), ("70", 1), ("nvda", 1), ("größ", 1), ("risk", 0)] {
            assert_eq!(count(&print, hash(word)), times, "{word}");
        }
        assert_eq!((length(&[]), count(&[], hash("rsi"))), (0, 0));
        let many: String = (0..2 * NOTE_WORDS).map(|n| format!("w{n} w0 ")).collect();
        let print = fingerprint([&*many]);
        assert_eq!(print.len(), 4 + 8 * NOTE_WORDS);
        assert_eq!(length(&print) as usize, 4 * NOTE_WORDS);
        assert_eq!(count(&print, hash("w0")) as usize, 2 * NOTE_WORDS + 1);
    }
}
