//! How useful a note is for a question: its relevance (BM25, mixed with meaning), its importance and its recency.
//!
//! These are formulas only. [`super::recall`] finds the notes and counts their words.
//! The constants were chosen on one half of the corpora of `make corpora`; docs/MEMORY.md reports the other half.

use crate::metadata::DEFAULT_IMPORTANCE;
use crate::request::Strategy;

/// How fast further occurrences of a word count less, as in SQLite's `bm25()`.
const K1: f64 = 1.2;

/// How much the length of a note counts, as in SQLite's `bm25()`.
const B: f64 = 0.75;

/// The weight of meaning in the relevance of a note with a vector.
const MEANING: f64 = 0.6;

/// Up to this cosine a note counts as unrelated.
pub(super) const CLOSE: f64 = 0.2;

/// The least that the closest note counts as above what is unrelated. So the closest of distant notes has not all of
/// [`MEANING`], unless no note has a word of the question.
const STEP: f64 = 0.05;

/// Below this cosine a note counts as unrelated even to words that no note has.
const DISTANT: f64 = 0.1;

/// The cosine up to which a note counts as unrelated to words that no note has, where the closest has `closest`.
///
/// A single word may be far from what is about it: `gardening` has a cosine of 0.18 with "He planted tomatoes in May".
pub(super) fn unrelated_to_new_words(closest: f64) -> f64 {
    if closest < DISTANT { CLOSE } else { CLOSE.min(closest - STEP) }
}

/// The share of the closest note's meaning that a note of `cosine` has, above what counts as `unrelated`.
pub(super) fn share(cosine: f64, closest: f64, unrelated: f64) -> f64 {
    (cosine - unrelated).max(0.0) / (closest - unrelated).max(STEP)
}

/// How many times a note of importance 1 counts as much as one of importance 0 that is equally relevant and recent.
const IMPORTANCE: f64 = 4.0;

/// How many times a new note counts as much as a very old one that is equally relevant and important.
const RECENCY: f64 = 1.25;

/// How far the question's vector is moved towards the best note, as a share of that note's vector. A question often
/// names one thing, and its answer is about another thing, which the first note names.
pub(super) const TOWARDS: f64 = 0.5;

/// The share of its relevance that a note gives to a neighbour of up to [`SHORT`] words; a longer one gets less.
const NEIGHBOUR: f64 = 0.2;

/// A turn of a dialogue with few words needs the turns beside it to say what it is about.
const SHORT: f64 = 25.0;

/// The share of the most words of the question that a note has, and the share of the best relevance: a note that has one
/// of them is ordered by the rule of `recency` or `importance`. Others only resemble the question, or are neighbours.
const MATCHED: f64 = 0.25;
const RELEVANT: f64 = 0.5;

/// The age at which recency is one half.
const HALF_AGE_DAYS: f64 = 30.0;

/// BM25 (Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, §3) over a memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bm25 {
    /// The number of notes.
    pub(super) notes: f64,
    /// The mean number of words in a note.
    pub(super) length: f64,
}

impl Bm25 {
    /// The weight of a word in `notes` notes: ln(1 + (N − df + ½) / (df + ½)), which is never negative.
    pub(super) fn idf(&self, notes: f64) -> f64 {
        (((self.notes - notes).max(0.0) + 0.5) / (notes + 0.5)).ln_1p()
    }

    /// The score of a word of weight `idf` in a note of `length` words that has it `count` times.
    pub(super) fn score(&self, idf: f64, count: f64, length: f64) -> f64 {
        let relative = length / self.length.max(1.0);
        idf * count * (K1 + 1.0) / (count + K1 * B.mul_add(relative - 1.0, 1.0))
    }
}

/// The relevance of a note from its shares of the best BM25 and of the closest cosine, if it has a vector.
pub(super) fn relevance(words: f64, meaning: Option<f64>) -> f64 {
    match meaning {
        Some(meaning) => MEANING.mul_add(meaning - words, words),
        None => words,
    }
}

/// The relevance that a note of `relevance` adds to a neighbour of `length` words.
pub(super) fn of_neighbour(relevance: f64, length: f64) -> f64 {
    NEIGHBOUR * relevance * (SHORT / length.max(SHORT)).powi(2)
}

/// 1 / (1 + age / 30 days). Hyperbolic forgetting: Wixted and Ebbesen, *On the form of forgetting*, 1991, find power
/// functions.
pub(super) fn recency(age_nanos: i64) -> f64 {
    let age_days = age_nanos.max(0) as f64 / 86_400e9;
    1.0 / (1.0 + age_days / HALF_AGE_DAYS)
}

/// The qualities of a note.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qualities {
    /// At least 0.
    pub(super) relevance: f64,
    /// How many words of the question the note has.
    pub(super) matched: f64,
    /// From 0 to 1.
    pub(super) importance: f64,
    /// From 0 to 1.
    pub(super) recency: f64,
}

/// The largest values of the notes of a recall.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Maxima {
    relevance: f64,
    matched: f64,
}

impl Maxima {
    /// The largest values of these notes.
    pub(super) fn of(notes: impl Iterator<Item = Qualities>) -> Self {
        notes.fold(Self::default(), |best, note| Self {
            relevance: best.relevance.max(note.relevance),
            matched: best.matched.max(note.matched),
        })
    }
}

impl Qualities {
    /// Importance × recency × relevance, as source 3 says. The weights bound the first two factors.
    fn balanced(self) -> f64 {
        let importance = IMPORTANCE.powf(self.importance - DEFAULT_IMPORTANCE);
        self.relevance * importance * RECENCY.powf(self.recency - 1.0)
    }

    /// The sort keys of a strategy, the first one decisive. Larger numbers come first.
    pub(super) fn rank(self, strategy: Strategy, best: Maxima) -> [f64; 2] {
        let wanted = match strategy {
            Strategy::Balanced => return [0.0, self.balanced()],
            Strategy::Recency => self.recency,
            Strategy::Importance => self.importance,
        };
        // The other notes follow.
        let has_words = self.matched > 0.0 && self.matched >= MATCHED * best.matched;
        let is_relevant = has_words || self.relevance >= RELEVANT * best.relevance;
        [if is_relevant { wanted } else { -1.0 }, self.balanced()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_neighbour_gets_a_smaller_share_than_a_short_one() {
        let of = |length| of_neighbour(2.0, length);
        assert_eq!((of(0.0), of(SHORT)), (0.4, 0.4));
        assert!((of(2.0 * SHORT) - 0.1).abs() < 1e-12);
    }

    const ALL: Bm25 = Bm25 { notes: 1000.0, length: 20.0 };

    #[test]
    fn rare_words_repeated_words_and_short_notes_score_higher() {
        let score = |notes, count, length| ALL.score(ALL.idf(notes), count, length);
        assert!(score(3.0, 1.0, 20.0) > score(300.0, 1.0, 20.0));
        assert!(score(3.0, 2.0, 20.0) > score(3.0, 1.0, 20.0));
        assert!(score(3.0, 1.0, 10.0) > score(3.0, 1.0, 40.0));
        // Repetition counts less and less: at most k1 + 1 times the weight.
        assert!(score(3.0, 1e9, 20.0) <= 2.2 * ALL.idf(3.0));
        assert!(ALL.idf(1000.0) > 0.0);
    }

    #[test]
    fn a_note_of_mean_length_with_a_word_once_scores_its_weight() {
        assert!((ALL.score(7.0, 1.0, 20.0) - 7.0).abs() < 1e-9);
    }

    #[test]
    fn meaning_moves_a_note_between_its_two_shares_and_a_missing_vector_does_not_count() {
        assert!(relevance(0.0, Some(1.0)) > relevance(0.0, Some(0.5)));
        assert!((relevance(1.0, Some(1.0)) - 1.0).abs() < 1e-9);
        assert!((relevance(0.7, None) - 0.7).abs() < 1e-9);
    }

    #[test]
    fn distant_notes_count_only_for_words_that_no_note_has() {
        let new = unrelated_to_new_words;
        for (closest, cosine, unrelated, expected) in [
            (0.6, 0.4, CLOSE, 0.5),
            (0.6, 0.2, CLOSE, 0.0),
            (0.6, -0.3, CLOSE, 0.0),
            (0.22, 0.22, CLOSE, 0.4),
            (0.16, 0.16, CLOSE, 0.0),
            // Notes about as close as the closest.
            (0.16, 0.16, new(0.16), 1.0),
            (0.16, 0.135, new(0.16), 0.5),
            (0.16, 0.11, new(0.16), 0.0),
            (0.1, 0.1, new(0.1), 1.0),
            (0.09, 0.09, new(0.09), 0.0),
            (0.6, 0.2, new(0.6), 0.0),
            // The question was moved to the closest note: others are as related as before.
            (0.56, 0.16, new(0.16), 0.05 / 0.45),
        ] {
            let got = share(cosine, closest, unrelated);
            assert!((got - expected).abs() < 1e-9, "{cosine} of {closest}: {got}");
        }
    }

    /// The names of notes in the order of a strategy.
    fn order<const N: usize>(strategy: Strategy, mut notes: [(&'static str, Qualities); N]) -> [&'static str; N] {
        let best = Maxima::of(notes.iter().map(|(_, note)| *note));
        notes.sort_by(|a, b| {
            let (a, b) = (a.1.rank(strategy, best), b.1.rank(strategy, best));
            b.partial_cmp(&a).unwrap()
        });
        notes.map(|(name, _)| name)
    }

    const NOTE: Qualities = Qualities { relevance: 1.0, matched: 2.0, importance: 0.5, recency: 0.5 };

    #[test]
    fn recency_and_importance_order_notes_with_words_of_the_question_and_no_others() {
        let notes = [
            ("best", Qualities { importance: 0.0, recency: 0.1, ..NOTE }),
            ("has one word", Qualities { relevance: 0.05, matched: 1.0, importance: 0.6, recency: 1.0 }),
            ("neighbour", Qualities { relevance: 0.2, matched: 0.0, importance: 1.0, recency: 1.0 }),
            ("means it", Qualities { relevance: 0.6, matched: 0.0, importance: 0.5, recency: 0.5 }),
        ];
        let by_rule = ["has one word", "means it", "best", "neighbour"];
        assert_eq!(order(Strategy::Recency, notes), by_rule);
        assert_eq!(order(Strategy::Importance, notes), by_rule);
        assert_eq!(order(Strategy::Balanced, notes)[3], "has one word");
        assert!(recency(0) > recency(86_400_000_000_000));
    }

    #[test]
    fn a_note_with_one_of_many_words_of_the_question_does_not_count_as_relevant() {
        let new = Qualities { relevance: 0.1, matched: 1.0, recency: 1.0, ..NOTE };
        for (matched, first) in [(4.0, "new"), (5.0, "best")] {
            let best = Qualities { matched, ..NOTE };
            let notes = [("best", best), ("new", new)];
            assert_eq!(order(Strategy::Recency, notes)[0], first, "{matched}");
        }
    }

    #[test]
    fn each_of_relevance_importance_and_recency_decides_where_the_others_are_equal() {
        let more = 1e-6;
        for better in [
            Qualities { relevance: NOTE.relevance + more, ..NOTE },
            Qualities { importance: NOTE.importance + more, ..NOTE },
            Qualities { recency: NOTE.recency + more, ..NOTE },
        ] {
            for notes in [[("better", better), ("other", NOTE)], [("other", NOTE), ("better", better)]] {
                assert_eq!(order(Strategy::Balanced, notes)[0], "better", "{better:?}");
            }
        }
    }

    #[test]
    fn importance_and_recency_outweigh_relevance_up_to_their_weights() {
        let of = |relevance, importance, recency| Qualities { relevance, importance, recency, ..NOTE };
        let first = |a, b| order(Strategy::Balanced, [("a", a), ("b", b)])[0];
        // A note of the highest importance, against one without any.
        assert_eq!(first(of(1.0, 1.0, 0.5), of(IMPORTANCE - 0.01, 0.0, 0.5)), "a");
        assert_eq!(first(of(1.0, 1.0, 0.5), of(IMPORTANCE + 0.01, 0.0, 0.5)), "b");
        // A new note, against one that is very old.
        assert_eq!(first(of(1.0, 0.5, 1.0), of(RECENCY - 0.01, 0.5, 0.0)), "a");
        assert_eq!(first(of(1.0, 0.5, 1.0), of(RECENCY + 0.01, 0.5, 0.0)), "b");
        // Notes without importance keep their order by relevance.
        assert_eq!(NOTE.balanced() / RECENCY.powf(-0.5), NOTE.relevance);
    }
}
