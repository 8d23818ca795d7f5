//! The words of notes and questions. FTS5's `unicode61` splits text at the same positions.

/// Words that do not tell the topic of a question.
const STOP_WORDS: &[&str] = &[
    "a", "about", "an", "and", "are", "as", "at", "be", "by", "did", "do", "does", "for", "from",
    "had", "has", "have", "how", "i", "in", "is", "it", "its", "me", "my", "of", "on", "or", "our",
    "should", "that", "the", "their", "there", "this", "to", "was", "we", "were", "what", "when",
    "where", "which", "who", "whom", "whose", "why", "will", "with", "you", "your",
];

/// The most distinct words of a question that count, the first ones.
pub(super) const QUESTION_WORDS: usize = 32;

/// The most distinct words of a note in its fingerprint.
const NOTE_WORDS: usize = 4096;

/// The words of a text in lower case, in order: runs of letters and digits.
pub(super) fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
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
    let mut telling: Vec<String> = all
        .iter()
        .filter(|word| is_telling(word))
        .cloned()
        .collect();
    if telling.is_empty() {
        telling = all;
    }
    telling.truncate(QUESTION_WORDS);
    telling
}

/// FNV-1a, 32 bits. Of 4,096 words, two collide in about one of 500 notes, which only costs a little precision.
pub(super) fn hash(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

/// The sorted hashes of the distinct words of a note, as stored.
pub(super) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut hashes: Vec<u32> = Vec::new();
    for text in texts {
        hashes.extend(words(text).map(|word| hash(&word)));
    }
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(NOTE_WORDS);
    hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect()
}

/// Whether a stored fingerprint contains a hash.
pub(super) fn has(fingerprint: &[u8], hash: u32) -> bool {
    let (hashes, _) = fingerprint.as_chunks::<4>();
    hashes
        .binary_search_by_key(&hash, |bytes| u32::from_le_bytes(*bytes))
        .is_ok()
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
    fn a_fingerprint_has_the_words_of_a_note_and_no_others() {
        let print = fingerprint(["RSI > 70 on NVDA", "Größe"]);
        for word in ["rsi", "70", "on", "nvda", "größe"] {
            assert!(has(&print, hash(word)), "{word}");
        }
        assert!(!has(&print, hash("risk")));
        assert!(!has(&[], hash("rsi")));
    }
}
