//! `:recall`: the most useful notes that fit into a budget of tokens.
//!
//! `candidates` finds notes by the words of the question, and [`super::meaning`] finds the nearest by vector.
//! `score` gives them their relevance by the formulas of [`super::ranking`], [`super::neighbours`] shares it, and `answer`
//! orders them. [`super::sections`] shows as many as the budget has tokens for.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use fuse::store::Result;
use rusqlite::{CachedStatement, Row, params};
use sqlite::tables::{Db, first};

use crate::Failure;
use crate::mean_length::mean_length;
use crate::meaning::NEAREST;
use crate::neighbours::Neighbours;
use crate::passage::SearchWord;
use crate::paths::{PathCache, Scope};
use crate::question::Question;
use crate::ranking::{self, Bm25, CLOSE, Maxima, Qualities, TOWARDS, of_neighbour, recency, relevance};
use crate::request::Strategy;
use crate::sections::{self, SearchResult};
use crate::vectors::{cosine, towards};
use crate::words::{count, hash, length, question, stem};

/// How many notes the words of a question may have together before only the newest of them are read.
const READ: usize = 8192;

/// The fewest notes with a word that are read, the newest first.
const READ_OF_WORD: usize = 256;

/// Tokens of the budget for one candidate by words: few notes with their heading have fewer.
const TOKENS_OF_CANDIDATE: u64 = 16;

/// The least and the most candidates by words that are scored.
const SCORED: RangeInclusive<u64> = 128..=4096;

/// The fewest candidates by words of a strategy that looks for the newest or most important of them.
const SCORED_BY_RULE: u64 = 1024;

/// How many of the rarest words with unread notes are searched for together.
const TOGETHER: usize = 3;

/// About how many notes with the rarest word the search for words together may read.
const PASSED: f64 = 4096.0;

/// How many of the most relevant notes give a share to their neighbours.
const SHARING: usize = 24;

/// A word of the question.
#[derive(Debug)]
struct Word {
    text: String,
    stem: String,
    /// Of the stem.
    hash: u32,
    /// How many notes have the stem; an estimate from the distance between the newest if not all were read.
    notes: f64,
    idf: f64,
    /// The newest notes with it.
    newest: Vec<i64>,
    /// Whether there may be more.
    has_more: bool,
}

impl Word {
    fn wanted(&self) -> SearchWord {
        SearchWord { hash: self.hash, weight: self.idf }
    }
}

/// A note with its score.
#[derive(Debug)]
struct Candidate {
    id: i64,
    /// BM25.
    words: f64,
    /// The number of its words.
    length: f64,
    /// The packed vector, if note and question have one.
    vector: Option<Vec<u8>>,
    /// The cosine with the question.
    closeness: Option<f64>,
    qualities: Qualities,
}

impl Question<'_> {
    /// The most candidates by words.
    fn scored(&self) -> usize {
        let fewest = match self.strategy {
            Strategy::Balanced => *SCORED.start(),
            Strategy::Recency | Strategy::Importance => SCORED_BY_RULE,
        };
        let wanted = self.max_tokens / TOKENS_OF_CANDIDATE;
        wanted.clamp(fewest, *SCORED.end()) as usize
    }

    /// The most candidates by meaning.
    fn meant(&self) -> usize {
        (self.scored() / 2).min(NEAREST)
    }
}

/// The answer to a recall, of at most `max_tokens`.
pub(super) fn answer(
    db: &Db,
    paths: &PathCache,
    scope: &Scope,
    asked: &Question<'_>,
) -> std::result::Result<String, Failure> {
    let bm25 = Bm25 { notes: asked.notes as f64, length: mean_length(db)? };
    let words = read_words(db, scope, asked.query, bm25)?;
    let mut ids = candidates(db, scope, &words, asked.scored())?;
    // If so, notes that were not read may be as relevant.
    let mut is_limited = ids.len() == asked.scored() || words.iter().any(|word| word.has_more);
    let near = asked.meant.nearest(db, paths, scope, asked.meant())?;
    is_limited |= near.len() == asked.meant();
    let unrelated = match near.first() {
        Some((_, closest)) if ids.is_empty() => ranking::unrelated_to_new_words(*closest),
        _ => CLOSE,
    };
    let related = near.iter().filter(|(_, cosine)| *cosine > unrelated);
    ids.extend(related.map(|(id, _)| *id));
    ids.sort_unstable();
    ids.dedup();
    let mut notes = Vec::with_capacity(ids.len());
    let mut candidates = Candidates::new(db, &words, bm25, asked)?;
    for id in ids {
        notes.extend(candidates.read(id)?);
    }
    score(&mut notes, asked.meant.vector(), unrelated);
    share(&mut Neighbours::new(db)?, &mut candidates, &mut notes)?;
    notes.retain(|note| note.qualities.relevance > 0.0);
    let best = Maxima::of(notes.iter().map(|note| note.qualities));
    let rank = |note: &Candidate| note.qualities.rank(asked.strategy, best);
    notes.sort_by(|a, b| {
        let (left, right) = (rank(a), rank(b));
        right[0].total_cmp(&left[0]).then(right[1].total_cmp(&left[1])).then(b.id.cmp(&a.id))
    });
    let relevant = SearchResult {
        notes: notes.iter().map(|note| note.id).collect(),
        is_limited,
        wanted: words.iter().map(Word::wanted).collect(),
        missing: words.iter().filter(|word| word.newest.is_empty()).map(|word| word.text.as_str()).collect(),
    };
    sections::write(db, scope, &relevant, asked)
}

/// Gives every note its relevance; by meaning, once more with the question moved towards the best note.
fn score(notes: &mut [Candidate], question: Option<&[f32]>, unrelated: f64) {
    relate(notes, question, unrelated);
    let Some(question) = question else {
        return;
    };
    let best = notes.iter().max_by(|a, b| {
        let (a, b) = (a.qualities.relevance, b.qualities.relevance);
        a.total_cmp(&b)
    });
    let best = best.and_then(|note| note.vector.as_deref());
    if let Some(moved) = best.and_then(|packed| towards(question, packed, TOWARDS)) {
        relate(notes, Some(&moved), unrelated);
    }
}

/// Computes relevance from each note's shares of the best BM25 and of the best cosine.
fn relate(notes: &mut [Candidate], question: Option<&[f32]>, unrelated: f64) {
    for note in &mut *notes {
        let packed = note.vector.as_deref();
        note.closeness = question.and_then(|question| cosine(question, packed?));
    }
    let words = notes.iter().map(|note| note.words).fold(0.0, f64::max);
    let words = if words > 0.0 { words } else { 1.0 };
    let closest = notes.iter().filter_map(|note| note.closeness);
    let closest = closest.fold(-1.0, f64::max);
    for note in notes {
        let meaning = note.closeness.map(|cosine| ranking::share(cosine, closest, unrelated));
        note.qualities.relevance = relevance(note.words / words, meaning);
    }
}

/// Lets the most relevant notes share with their neighbours, which may be new candidates.
fn share(neighbours: &mut Neighbours<'_>, candidates: &mut Candidates<'_>, notes: &mut Vec<Candidate>) -> Result<()> {
    let mut order: Vec<(f64, i64)> = notes
        .iter()
        .map(|note| (note.qualities.relevance, note.id))
        .filter(|(relevance, _)| *relevance > 0.0)
        .collect();
    order.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    order.truncate(SHARING);
    let mut at: HashMap<i64, usize> = notes.iter().map(|note| note.id).zip(0..).collect();
    for (relevance, id) in order {
        for neighbour in neighbours.of(id)? {
            let place = match at.get(&neighbour) {
                Some(place) => *place,
                None => {
                    let Some(note) = candidates.read(neighbour)? else {
                        continue;
                    };
                    notes.push(note);
                    at.insert(neighbour, notes.len() - 1);
                    notes.len() - 1
                }
            };
            let length = notes[place].length;
            notes[place].qualities.relevance += of_neighbour(relevance, length);
        }
    }
    Ok(())
}

/// The newest notes with each word.
fn read_words(db: &Db, scope: &Scope, query: &str, bm25: Bm25) -> Result<Vec<Word>> {
    let last = db.row("SELECT max(id) FROM memory_note", (), |row| row.get::<_, Option<i64>>(0))?;
    let last = last.flatten().unwrap_or(0);
    let words = question(query);
    let most = (READ / words.len().max(1)).max(READ_OF_WORD);
    words
        .into_iter()
        .map(|text| {
            let stem = stem(&text).into_owned();
            let newest = newest(db, &scope.matching_stems(&quoted(&stem)), 0, most)?;
            let mut notes = newest.len() as f64;
            let has_more = newest.len() == most;
            if has_more {
                let oldest = newest.last().copied().unwrap_or(last);
                let span = (last - oldest + 1).max(1) as f64;
                notes *= (last as f64 / span).max(1.0);
            }
            Ok(Word { hash: hash(&stem), idf: bm25.idf(notes), text, stem, notes, newest, has_more })
        })
        .collect()
}

/// Quotes a word, so that FTS5 does not take it for an operator.
fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// The newest matching notes with an id of at least `oldest`, at most `most`.
fn newest(db: &Db, expression: &str, oldest: i64, most: usize) -> Result<Vec<i64>> {
    let mut statement = db.statement(
        "SELECT rowid FROM memory_text WHERE memory_text MATCH ?1 AND rowid >= ?2 ORDER BY rowid DESC LIMIT ?3",
    )?;
    let rows = statement.query_map(params![expression, oldest, most as i64], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The candidates by words: the notes with the largest sum of idf, at most `most`.
///
/// They come from the newest notes with each word, and from the newest with several common words. The cost
/// depends on the question, not on the number of notes.
fn candidates(db: &Db, scope: &Scope, words: &[Word], most: usize) -> Result<Vec<i64>> {
    let found = words.iter().flat_map(|word| word.newest.iter().map(move |id| (*id, word.idf)));
    let mut found: Vec<(i64, f64)> = found.collect();
    merge(&mut found, |a, b| a + b);
    let mut common: Vec<&Word> = words.iter().filter(|word| word.has_more).collect();
    common.sort_by(|a, b| a.notes.total_cmp(&b.notes));
    common.truncate(TOGETHER);
    let last = found.last().map_or(0, |(id, _)| *id);
    for (at, first) in common.iter().enumerate() {
        for second in &common[at + 1..] {
            let expression = format!("{} AND {}", quoted(&first.stem), quoted(&second.stem));
            // Words may rarely occur together, so bound the search by notes with the rarer word.
            let oldest = last - (last as f64 * (PASSED / first.notes).min(1.0)) as i64;
            let newest = newest(db, &scope.matching_stems(&expression), oldest, READ_OF_WORD)?;
            found.extend(newest.into_iter().map(|id| (id, first.idf + second.idf)));
        }
    }
    merge(&mut found, f64::max);
    let better = |a: &(i64, f64), b: &(i64, f64)| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0));
    if found.len() > most {
        found.select_nth_unstable_by(most, better);
        found.truncate(most);
    }
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

/// Sorts notes by id, and makes one of those with the same id.
fn merge(found: &mut Vec<(i64, f64)>, of_two: impl Fn(f64, f64) -> f64) {
    // Stable: numbers are added in the order of the words, so equal notes have equal sums.
    found.sort_by_key(|(id, _)| *id);
    found.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 = of_two(kept.1, next.1);
        }
        is_same
    });
}

/// Reads candidates, by a compiled statement.
struct Candidates<'a> {
    statement: CachedStatement<'a>,
    words: &'a [Word],
    bm25: Bm25,
    asked: &'a Question<'a>,
}

impl<'a> Candidates<'a> {
    fn new(db: &'a Db, words: &'a [Word], bm25: Bm25, asked: &'a Question<'a>) -> Result<Self> {
        let statement = db.statement(match asked.meant.model() {
            None => "SELECT changed, importance, words, NULL FROM memory_note WHERE id = ?1 AND is_found = 1",
            Some(_) => {
                "SELECT n.changed, n.importance, n.words, e.vector FROM memory_note n
                 LEFT JOIN memory_embedding e ON e.id = n.id AND e.model = ?2 WHERE n.id = ?1 AND n.is_found = 1"
            }
        })?;
        Ok(Self { statement, words, bm25, asked })
    }

    /// Reads a candidate and counts the question's words in it; `None` if it is gone or has expired.
    fn read(&mut self, id: i64) -> Result<Option<Candidate>> {
        let scored = |row: &Row<'_>| {
            let print = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
            let length = f64::from(length(print));
            let (mut words, mut matched) = (0.0, 0.0);
            for word in self.words {
                let counted = f64::from(count(print, word.hash));
                words += self.bm25.score(word.idf, counted, length);
                matched += counted.min(1.0);
            }
            let changed: i64 = row.get(0)?;
            Ok(Candidate {
                id,
                words,
                length,
                vector: row.get(3)?,
                closeness: None,
                qualities: Qualities {
                    relevance: 0.0,
                    matched,
                    importance: row.get(1)?,
                    recency: recency(self.asked.now.0.saturating_sub(changed)),
                },
            })
        };
        match self.asked.meant.model() {
            None => first(&mut self.statement, [id], scored),
            Some(model) => first(&mut self.statement, params![id, model], scored),
        }
    }
}
