//! The rankings that `:recall` is compared with: BM25 as SQLite's `bm25()` computes it, and the number of words in common.
//! Both read every note: they are for scores, not for speed.

use std::collections::{BTreeSet, HashMap};

use crate::notes::Note;

/// The constants of SQLite's `bm25()`.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// The least weight of a word in SQLite's `bm25()`, for words in more than half of the notes.
const IDF_MIN: f64 = 1e-6;

fn words(text: &str) -> impl Iterator<Item = String> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase)
}

/// How often each word of the question occurs in each note, and the notes' lengths.
fn counted(notes: &[Note], question: &str) -> (Vec<HashMap<String, f64>>, Vec<f64>) {
    let asked: BTreeSet<String> = words(question).collect();
    let counted = notes.iter().map(|note| {
        let mut counts = HashMap::new();
        let mut length = 0.0;
        for word in words(&note.text) {
            length += 1.0;
            if asked.contains(&word) {
                *counts.entry(word).or_default() += 1.0;
            }
        }
        (counts, length)
    });
    counted.unzip()
}

/// The indices of notes with a score above 0, the best first, of equals the newer first.
fn ordered(scores: impl Iterator<Item = f64>) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> = scores.zip(0..).filter(|(score, _)| *score > 0.0).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    order.into_iter().map(|(_, at)| at).collect()
}

/// The notes with a word of the question, by how many of its words they have.
pub(crate) fn by_words(notes: &[Note], question: &str) -> Vec<usize> {
    let (counts, _) = counted(notes, question);
    ordered(counts.iter().map(|words| words.len() as f64))
}

/// The notes with a word of the question, by BM25.
pub(crate) fn by_bm25(notes: &[Note], question: &str) -> Vec<usize> {
    let (counts, lengths) = counted(notes, question);
    let all = notes.len() as f64;
    let mean = lengths.iter().sum::<f64>() / all;
    let mut having: HashMap<&str, f64> = HashMap::new();
    for word in counts.iter().flat_map(HashMap::keys) {
        *having.entry(word).or_default() += 1.0;
    }
    let idf = |word: &str| {
        let having = having.get(word).copied().unwrap_or_default();
        ((all - having + 0.5) / (having + 0.5)).ln().max(IDF_MIN)
    };
    ordered(counts.iter().zip(&lengths).map(|(words, length)| {
        let of_word = words.iter().map(|(word, count)| {
            let norm = K1 * (1.0 - B + B * length / mean);
            idf(word) * count * (K1 + 1.0) / (count + norm)
        });
        // In a fixed order, because sums of floats depend on it.
        let mut parts: Vec<f64> = of_word.collect();
        parts.sort_by(f64::total_cmp);
        parts.iter().sum()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bm25_prefers_rare_words_and_short_notes_and_words_in_common_do_not() {
        let texts = [
            "the boat is in the harbour",
            "the zebra",
            "the zebra ran and ran until it was dark and cold",
            "the the the",
            "a dog",
            "a cat",
            "a cow",
        ];
        let notes: Vec<Note> =
            texts.iter().map(|text| Note { path: String::new(), text: (*text).to_owned(), written: 0 }).collect();
        assert_eq!(by_bm25(&notes, "The zebra?")[..2], [1, 2]);
        assert_eq!(by_words(&notes, "The zebra?"), [2, 1, 3, 0]);
        assert!(by_bm25(&notes, "aardvark").is_empty());
    }
}
