//! WordPiece tokenisation of BERT's uncased models.
//!
//! `BasicTokenizer` of <https://github.com/google-research/bert> (`tokenization.py`) removes control
//! characters and accents, isolates Chinese characters, lowers case, and splits at white space and
//! punctuation. Each word is then split into the longest pieces of the vocabulary.

use std::collections::HashMap;

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Maximum characters of a word; a longer word is one unknown piece.
const WORD_MAX: usize = 100;

/// The number of each piece: its line in `vocab.txt`, from 0.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    pieces: HashMap<String, u32>,
    lines: usize,
    unknown: u32,
    first: u32,
    last: u32,
}

impl Vocabulary {
    /// Parses a vocabulary, one piece per line. The error names a missing special piece.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let pieces: HashMap<String, u32> = (0..).zip(text.lines()).map(|(n, s)| (s.to_owned(), n)).collect();
        let find = |piece: &'static str| pieces.get(piece).copied().ok_or(piece);
        Ok(Self {
            lines: text.lines().count(),
            unknown: find("[UNK]")?,
            first: find("[CLS]")?,
            last: find("[SEP]")?,
            pieces,
        })
    }

    /// Number of lines, above every piece's number. It counts duplicate pieces.
    pub(crate) fn len(&self) -> usize {
        self.lines
    }

    /// The pieces of a text, at most `max` including `[CLS]` and `[SEP]`.
    pub(crate) fn cut(&self, text: &str, max: usize) -> Vec<u32> {
        let mut pieces = vec![self.first];
        for word in words(text) {
            self.cut_word(&word, &mut pieces);
            if pieces.len() >= max {
                break;
            }
        }
        pieces.truncate(max.saturating_sub(1).max(1));
        pieces.push(self.last);
        pieces
    }

    fn cut_word(&self, word: &str, pieces: &mut Vec<u32>) {
        let whole = pieces.len();
        if word.chars().count() > WORD_MAX {
            pieces.push(self.unknown);
            return;
        }
        let mut from = 0;
        let mut candidate = String::new();
        while from < word.len() {
            let ends = word[from..].char_indices().rev().map(|(at, c)| from + at + c.len_utf8());
            let found = ends.into_iter().find_map(|end| {
                candidate.clear();
                if from > 0 {
                    candidate.push_str("##");
                }
                candidate.push_str(&word[from..end]);
                self.pieces.get(&candidate).map(|piece| (*piece, end))
            });
            let Some((piece, end)) = found else {
                pieces.truncate(whole);
                pieces.push(self.unknown);
                return;
            };
            pieces.push(piece);
            from = end;
        }
    }
}

/// The normalised words and punctuation marks of a text; lazy, because a long text is truncated.
fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut plain = text
        .chars()
        .filter(|c| !is_dropped(*c))
        .flat_map(|c| if is_chinese(c) { [' ', c, ' '] } else { ['\0', c, '\0'] })
        .filter(|c| *c != '\0')
        .nfd()
        .filter(|c| c.general_category() != GeneralCategory::NonspacingMark)
        .flat_map(char::to_lowercase)
        .peekable();
    std::iter::from_fn(move || {
        while plain.next_if(|c| c.is_whitespace()).is_some() {}
        let first = plain.next()?;
        let mut word = String::from(first);
        if !is_punctuation(first) {
            while let Some(c) = plain.next_if(|c| !c.is_whitespace() && !is_punctuation(*c)) {
                word.push(c);
            }
        }
        Some(word)
    })
}

/// Control characters except white space, and the replacement character.
fn is_dropped(c: char) -> bool {
    if matches!(c, '\t' | '\n' | '\r') {
        return false;
    }
    c == '\u{fffd}' || c == '\0' || c.general_category_group() == GeneralCategoryGroup::Other
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.general_category_group() == GeneralCategoryGroup::Punctuation
}

/// The blocks of CJK ideographs that BERT isolates, without Japanese kana and Korean hangul.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        | 0x2B820..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PIECES: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\nun##\nre\n##sume\n,\n北\na\n!";

    fn all(text: &str) -> Vec<String> {
        words(text).collect()
    }

    #[test]
    fn text_is_made_plain_and_cut_at_space_and_punctuation() {
        assert_eq!(all("Größe, Résumé!"), ["große", ",", "resume", "!"]);
        assert_eq!(all("a\u{0}b\u{7}c\u{200d}d\u{fffd}e\tf\u{a0}g"), ["abcde", "f", "g"]);
        assert_eq!(all("ah北京zz"), ["ah", "北", "京", "zz"]);
        assert_eq!(all("e\u{301}x ½ ﬁ «İ»"), ["ex", "½", "ﬁ", "«", "i", "»"]);
        assert_eq!(all("x$y~z_1"), ["x", "$", "y", "~", "z", "_", "1"]);
        assert_eq!(all(" \n"), Vec::<String>::new());
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces() {
        let vocabulary = Vocabulary::parse(PIECES).unwrap();
        assert_eq!(vocabulary.cut("Unaffable, résumé 北a", 256), [2, 4, 5, 6, 10, 8, 9, 11, 12, 3]);
        // A word with an unknown part is unknown as a whole.
        assert_eq!(vocabulary.cut("unx a", 256), [2, 1, 12, 3]);
        assert_eq!(vocabulary.cut(&"a".repeat(101), 256), [2, 1, 3]);
        assert_eq!(vocabulary.cut("", 256), [2, 3]);
        assert_eq!(vocabulary.cut("a a a a", 4), [2, 12, 12, 3]);
        assert_eq!(Vocabulary::parse("a\n[UNK]\n[CLS]").unwrap_err(), "[SEP]");
        let twice = Vocabulary::parse("[UNK]\n[CLS]\n[SEP]\na\na").unwrap();
        assert_eq!((twice.len(), twice.cut("a", 9)), (5, vec![1, 4, 2]));
    }

    proptest! {
        #[test]
        fn any_text_can_be_cut(text in "(?s).{0,200}", max in 2_usize..300) {
            let pieces = Vocabulary::parse(PIECES).unwrap().cut(&text, max);
            prop_assert!((2..=max).contains(&pieces.len()));
            prop_assert_eq!((pieces[0], pieces[pieces.len() - 1]), (2, 3));
        }
    }
}
