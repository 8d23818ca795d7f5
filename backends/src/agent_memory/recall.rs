//! `:recall`: the most useful notes that fit into a budget of tokens.
//!
//! `candidates` finds notes by the words of the question, and [`super::meaning`] finds the nearest by vector.
//! `score` computes relevance, importance and recency. `answer` drops notes below [`RELEVANT`] and orders the
//! rest by the strategy. `write` shows as many as the budget has tokens for.

use std::collections::{HashMap, HashSet};

use rusqlite::params;

use super::Failure;
use super::meaning::{self, Meant};
use super::passage;
use super::paths::{Places, Scope};
use super::request::Strategy;
use super::search::{Hit, body};
use super::words::{has, hash, question};
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{signed, unsigned};
use crate::store::{Result, Timestamp};

/// How many notes with a word are read, the newest first.
const NEWEST: usize = 64;

/// The most candidates by words that are scored.
const SCORED: usize = 96;

/// How many of the rarest words with more than [`NEWEST`] notes are searched for together.
const TOGETHER: usize = 3;

/// About how many notes with the rarest word the search for words together may read.
const PASSED: f64 = 4096.0;

/// The share of the best relevance that a note must have.
const RELEVANT: f64 = 0.8;

/// The age at which recency is one half.
const HALF_AGE_DAYS: f64 = 30.0;

/// The weight of meaning in the relevance of a note with a vector.
const MEANING: f64 = 0.35;

/// The least cosine that makes a note without any word of the question a candidate.
const CLOSE: f64 = 0.3;

/// The most notes in an answer.
const NOTES_MAX: usize = 50;

/// A word of the question.
#[derive(Debug)]
struct Word {
    text: String,
    hash: u32,
    /// How many notes have it. Above [`NEWEST`] notes, an estimate from the distance between the newest.
    notes: f64,
    /// The newest notes with it.
    newest: Vec<i64>,
}

impl Word {
    fn is_common(&self) -> bool {
        self.newest.len() == NEWEST
    }

    /// The idf of BM25 for `all` notes: ln(1 + (N − df + ½) / (df + ½)) (Robertson and Zaragoza, *The
    /// Probabilistic Relevance Framework: BM25 and Beyond*, 2009, §3).
    fn idf(&self, all: f64) -> f64 {
        ((all - self.notes).max(0.0) + 0.5)
            .mul_add(1.0 / (self.notes + 0.5), 1.0)
            .ln()
    }
}

/// A note with its score.
#[derive(Debug)]
struct Scored {
    hit: Hit,
    /// From 0 to 1.
    importance: f64,
    heading: String,
    /// Tokens of heading and body, if the note is shown whole.
    tokens: Option<u64>,
    /// Σ idf of the question's words in the note / Σ idf of those in any note. This is BM25 with k₁ = 0:
    /// notes are too short for word counts and lengths.
    relevance: f64,
    /// 1 / (1 + age / 30 days), with the age of the content. Hyperbolic forgetting: Wixted and Ebbesen, *On
    /// the form of forgetting*, 1991, find power functions.
    recency: f64,
}

impl Scored {
    /// relevance⁴ × √importance × √recency.
    fn balanced(&self) -> f64 {
        self.relevance.powi(4) * (self.importance * self.recency).sqrt()
    }

    /// The sort keys of a strategy, the first one decisive. Larger numbers come first.
    fn rank(&self, strategy: Strategy) -> [f64; 2] {
        match strategy {
            Strategy::Recency => [self.recency, self.relevance],
            Strategy::Importance => [self.importance, self.balanced()],
            Strategy::Balanced => [self.balanced(), self.relevance],
        }
    }
}

/// A question and its token budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    pub(super) query: &'a str,
    pub(super) max_tokens: u64,
    pub(super) strategy: Strategy,
    pub(super) now: Timestamp,
    /// The number of all notes.
    pub(super) notes: u64,
    /// The question's vector and its nearest notes.
    pub(super) meant: &'a Meant,
}

/// The answer to a recall, of at most `max_tokens`.
pub(super) fn answer(
    db: &Db,
    places: &Places,
    scope: &Scope,
    asked: &Asked<'_>,
) -> std::result::Result<String, Failure> {
    let words = read_words(db, scope, asked.query)?;
    let mut candidates = candidates(db, scope, &words, asked.notes)?;
    // If so, notes that were not read may be as relevant.
    let is_limited = candidates.len() == SCORED || words.iter().any(Word::is_common);
    let known: HashSet<i64> = candidates.iter().copied().collect();
    let mut near = asked.meant.nearest(db, places, scope)?;
    near.retain(|(_, closeness)| *closeness >= CLOSE);
    let is_limited = is_limited || near.len() == meaning::CANDIDATES;
    let near = near.into_iter().map(|(id, _)| id);
    candidates.extend(near.filter(|id| !known.contains(id)));
    let mut scored = score(db, &words, candidates, asked)?;
    add_meaning(db, &mut scored, asked.meant)?;
    let best = scored.iter().map(|note| note.relevance).fold(0.0, f64::max);
    scored.retain(|note| note.relevance >= RELEVANT * best);
    scored.sort_by(|a, b| {
        let (left, right) = (a.rank(asked.strategy), b.rank(asked.strategy));
        right[0]
            .total_cmp(&left[0])
            .then(right[1].total_cmp(&left[1]))
            .then(b.hit.id.cmp(&a.hit.id))
    });
    write(db, &words, scored, is_limited, asked)
}

/// Mixes the cosine, as a share of the best candidate's, into the relevance of notes with a vector.
fn add_meaning(db: &Db, scored: &mut [Scored], meant: &Meant) -> Result<()> {
    let closeness = scored
        .iter()
        .map(|note| meant.closeness(db, note.hit.id))
        .collect::<Result<Vec<_>>>()?;
    let best = closeness.iter().flatten().copied().fold(CLOSE, f64::max);
    for (note, closeness) in scored.iter_mut().zip(closeness) {
        if let Some(closeness) = closeness {
            let meaning = (closeness / best).max(0.0);
            note.relevance += MEANING * (meaning - note.relevance);
        }
    }
    Ok(())
}

/// The newest notes with each word.
fn read_words(db: &Db, scope: &Scope, query: &str) -> Result<Vec<Word>> {
    let last = db.row("SELECT max(id) FROM memory_note", (), |row| {
        row.get::<_, Option<i64>>(0)
    })?;
    let last = last.flatten().unwrap_or(0);
    question(query)
        .into_iter()
        .map(|text| {
            let newest = newest(db, &scope.matching(&quoted(&text)), 0)?;
            let mut notes = newest.len() as f64;
            if newest.len() == NEWEST {
                let oldest = newest.last().copied().unwrap_or(last);
                let span = (last - oldest + 1).max(1) as f64;
                notes *= (last as f64 / span).max(1.0);
            }
            Ok(Word {
                hash: hash(&text),
                text,
                notes,
                newest,
            })
        })
        .collect()
}

/// Quotes a word, so that FTS5 does not take it for an operator.
fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

/// The newest matching notes with an id of at least `oldest`, at most [`NEWEST`].
fn newest(db: &Db, expression: &str, oldest: i64) -> Result<Vec<i64>> {
    let mut statement = db.statement(
        "SELECT rowid FROM memory_text WHERE memory_text MATCH ?1 AND rowid >= ?2 ORDER BY rowid DESC LIMIT ?3",
    )?;
    let rows = statement.query_map(params![expression, oldest, NEWEST as i64], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The candidates by words: the [`SCORED`] notes with the largest sum of idf.
///
/// They come from the newest notes with each word, and from the newest with several common words. The cost
/// depends on the question, not on the number of notes.
fn candidates(db: &Db, scope: &Scope, words: &[Word], notes: u64) -> Result<Vec<i64>> {
    let all = notes as f64;
    let mut found: HashMap<i64, f64> = HashMap::new();
    for word in words {
        for id in &word.newest {
            *found.entry(*id).or_default() += word.idf(all);
        }
    }
    let mut common: Vec<&Word> = words.iter().filter(|word| word.is_common()).collect();
    common.sort_by(|a, b| a.notes.total_cmp(&b.notes));
    common.truncate(TOGETHER);
    for together in combinations(&common) {
        let expression: Vec<String> = together.iter().map(|word| quoted(&word.text)).collect();
        // Words may rarely occur together, so bound the search by notes with the rarest word.
        let span = match together.first() {
            Some(rarest) if rarest.notes > PASSED => PASSED / rarest.notes,
            _ => 1.0,
        };
        let last = words.iter().filter_map(|word| word.newest.first()).max();
        let last = last.copied().unwrap_or(0);
        let oldest = last - (last as f64 * span) as i64;
        let idf: f64 = together.iter().map(|word| word.idf(all)).sum();
        for id in newest(db, &scope.matching(&expression.join(" AND ")), oldest)? {
            let known = found.entry(id).or_default();
            *known = known.max(idf);
        }
    }
    let mut found: Vec<(i64, f64)> = found.into_iter().collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
    found.truncate(SCORED);
    Ok(found.into_iter().map(|(id, _)| id).collect())
}

/// All words together, and every pair.
fn combinations<'a>(words: &[&'a Word]) -> Vec<Vec<&'a Word>> {
    let mut all = Vec::new();
    if words.len() > 2 {
        all.push(words.to_vec());
    }
    for (at, first) in words.iter().enumerate() {
        for second in &words[at + 1..] {
            all.push(vec![*first, *second]);
        }
    }
    all
}

/// Reads the candidates and scores them.
fn score(db: &Db, words: &[Word], candidates: Vec<i64>, asked: &Asked<'_>) -> Result<Vec<Scored>> {
    let all = asked.notes as f64;
    // A word in no note does not distinguish notes.
    let idf: Vec<f64> = words
        .iter()
        .map(|word| if word.notes > 0.0 { word.idf(all) } else { 0.0 })
        .collect();
    let whole: f64 = idf.iter().sum();
    let mut scored = Vec::with_capacity(candidates.len());
    for id in candidates {
        let note = db.row(
            "SELECT ino, dir, name, changed, body, importance, heading, tokens, words
             FROM memory_note WHERE id = ?1",
            [id],
            |row| {
                let print = row.get_ref(8)?.as_blob().map_err(rusqlite::Error::from)?;
                let found: f64 = words
                    .iter()
                    .zip(&idf)
                    .filter(|(word, _)| has(print, word.hash) || word.newest.contains(&id))
                    .map(|(_, idf)| idf)
                    .sum();
                let changed = Timestamp(row.get(3)?);
                let age_days = asked.now.0.saturating_sub(changed.0).max(0) as f64 / 86_400e9;
                Ok(Scored {
                    hit: Hit {
                        id,
                        ino: unsigned(row.get(0)?),
                        dir: unsigned(row.get(1)?),
                        name: row.get(2)?,
                        changed,
                        body: row.get::<_, u32>(4)? as usize,
                    },
                    importance: row.get(5)?,
                    heading: row.get(6)?,
                    tokens: row.get::<_, Option<i64>>(7)?.map(unsigned),
                    relevance: if whole > 0.0 { found / whole } else { 0.0 },
                    recency: 1.0 / (1.0 + age_days / HALF_AGE_DAYS),
                })
            },
        )?;
        scored.extend(note);
    }
    Ok(scored)
}

/// Writes as many notes as fit into the budget.
fn write(
    db: &Db,
    words: &[Word],
    scored: Vec<Scored>,
    is_limited: bool,
    asked: &Asked<'_>,
) -> std::result::Result<String, Failure> {
    let missing: Vec<&str> = words
        .iter()
        .filter(|word| word.newest.is_empty())
        .map(|word| word.text.as_str())
        .collect();
    let found = scored.len();
    if found == 0 {
        let text = format!(
            "# nothing found\nNo note has a word of the query{} ({} notes; {}).\n",
            if asked.meant.is_by_meaning() {
                ", or is close to what it means"
            } else {
                ""
            },
            asked.notes,
            asked.meant.basis
        );
        return Ok(text);
    }
    let mut sections = Vec::new();
    let of_what = if is_limited {
        "best candidates"
    } else {
        "relevant notes"
    };
    // The first line is written last, so its tokens are reserved.
    let first_line = |shown: usize, tokens: u64| {
        format!(
            "# {shown} of {found} {of_what}, {tokens} of {} tokens, {}, {}\n",
            asked.max_tokens,
            asked.strategy.name(),
            asked.meant.basis
        )
    };
    let reserved = tokens::count(&first_line(found.max(NOTES_MAX), asked.max_tokens)) + 2;
    let mut used = reserved;
    if !missing.is_empty() {
        let line = format!("# in no note: {}\n", missing.join(", "));
        let cost = tokens::count(&line);
        // Missing words may take at most a quarter of the budget.
        if cost <= asked.max_tokens / 4 && used + cost <= asked.max_tokens {
            used += cost;
            sections.push(line);
        }
    }
    let mut shown = 0;
    for note in scored {
        if shown == NOTES_MAX {
            break;
        }
        // Do not read a note that cannot fit; a passage has at least one token.
        if used + note.tokens.unwrap_or(1) > asked.max_tokens {
            continue;
        }
        let Some(text) = body(db, &note.hit)? else {
            continue;
        };
        // The token count of the index holds unless the note is marked as changed.
        let is_marked = db.row(
            "SELECT 1 FROM memory_stale WHERE ino = ?1",
            [signed(note.hit.ino)],
            |_| Ok(()),
        )?;
        let is_as_indexed = is_marked.is_none();
        let shown_text = passage::whole(&text).unwrap_or_else(|| {
            let wanted: Vec<String> = words.iter().map(|word| word.text.clone()).collect();
            passage::around(&text, &wanted)
        });
        let section = note.heading + &shown_text;
        let cost = match note.tokens {
            Some(tokens) if is_as_indexed => tokens,
            _ => tokens::count(&section),
        };
        if used + cost > asked.max_tokens {
            continue;
        }
        used += cost;
        shown += 1;
        sections.push(section);
    }
    if shown == 0 {
        return Ok(format!(
            "# {found} {of_what}, but none fits into {} tokens; {}\n",
            asked.max_tokens, asked.meant.basis
        ));
    }
    let rest = used - reserved;
    let mut total = rest;
    for _ in 0..3 {
        // The length of the line may depend on the number in it.
        total = rest + tokens::count(&first_line(shown, total));
    }
    let mut text = first_line(shown, total);
    text.extend(sections);
    // The vocabulary always splits between a newline and `#`, so the costs add up. A second count would take
    // as long as the rest of a recall.
    debug_assert_eq!(tokens::count(&text), total, "{text}");
    Ok(text)
}
