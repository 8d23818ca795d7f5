//! What is found of planted evidence, and for how many tokens. Counts only: the same seed gives the same table.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use backends::agent_memory::{AgentMemory, Strategy};
use serde::Serialize;
use workloads::generate::notes::{Answerable, Note, Notebook, Question, notebook};

use super::{ask, embed, encoded, fill};
use crate::interrupt::Interrupt;

/// A way to get at what the notes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// All notes in one file, read whole.
    WholeFile,
    /// The end of it, as much as fits into the budget.
    FileEnd,
    /// `grep -r` for the most telling word, as much of it as fits, oldest file first.
    Grep,
    /// Lines with the most telling word and the attribute's, as much of it as fits, newest file first: what an agent
    /// gets that knows as much as one who searches.
    GrepBoth,
    /// `:search` for the most telling word and the attribute's.
    Search,
    /// `:recall` with the question as it is.
    Recall(RecallBy),
    /// The same with every note embedded.
    RecallMeaning(RecallBy),
}

/// The strategy of a recall, in an order for tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecallBy {
    /// See [`Strategy::Balanced`].
    Balanced,
    /// See [`Strategy::Recency`].
    Recency,
    /// See [`Strategy::Importance`].
    Importance,
}

const METHODS: [Method; 8] = [
    Method::WholeFile,
    Method::FileEnd,
    Method::Grep,
    Method::GrepBoth,
    Method::Search,
    Method::Recall(RecallBy::Balanced),
    Method::Recall(RecallBy::Recency),
    Method::Recall(RecallBy::Importance),
];

const BY_MEANING: [Method; 3] = [
    Method::RecallMeaning(RecallBy::Balanced),
    Method::RecallMeaning(RecallBy::Recency),
    Method::RecallMeaning(RecallBy::Importance),
];

/// A sentence model to recall with, too.
#[derive(Clone, Copy, Debug)]
pub struct ByMeaning<'a> {
    /// The model's directory.
    pub model: &'a Path,
    /// Larger memories are not embedded: a hundred notes take a second or more.
    pub notes_max: usize,
}

impl Method {
    fn name(self) -> String {
        match self {
            Self::WholeFile => "MEMORY.md, whole".to_owned(),
            Self::FileEnd => "MEMORY.md, its end".to_owned(),
            Self::Grep => "grep".to_owned(),
            Self::GrepBoth => "grep, both words, newest first".to_owned(),
            Self::Search => ":search".to_owned(),
            Self::Recall(by) => format!(":recall {}", by.strategy().name()),
            Self::RecallMeaning(by) => format!(":recall {}, meaning", by.strategy().name()),
        }
    }
}

impl RecallBy {
    fn strategy(self) -> Strategy {
        match self {
            Self::Balanced => Strategy::Balanced,
            Self::Recency => Strategy::Recency,
            Self::Importance => Strategy::Importance,
        }
    }
}

/// What one method made of all questions at one size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// How many notes there were.
    pub notes: usize,
    /// What was done.
    pub method: String,
    /// Questions that the notes answer.
    pub answerable: usize,
    /// Of those, how many had the answer in the first 1, 5, 10 pieces; nothing where there is no order.
    pub found_at: Option<BTreeMap<usize, usize>>,
    /// How many had it within the budget.
    pub in_budget: usize,
    /// Of the questions asked in the notes' own words, and in other words: found in budget, and asked.
    pub own_words: (usize, usize),
    /// See `own_words`.
    pub other_words: (usize, usize),
    /// Questions whose answer has changed.
    pub updated: usize,
    /// Of those, how many had only an answer that no longer holds.
    pub stale: usize,
    /// Of those, how many showed an answer that no longer holds before the one that does, or without it.
    pub old_first: usize,
    /// Tokens that all answerable questions brought into the context.
    pub tokens: u64,
    /// Questions that no note answers.
    pub unanswerable: usize,
    /// Of those, how many were told that nothing, or not that word, was found.
    pub admitted: Option<usize>,
    /// Tokens that those brought into the context.
    pub unanswerable_tokens: u64,
}

/// What is put into the context for one question: pieces in the order they are read.
struct Shown {
    pieces: Vec<String>,
    admits: bool,
}

impl Shown {
    fn position(&self, line: &str) -> Option<usize> {
        self.pieces
            .iter()
            .position(|piece| piece.lines().any(|found| found.ends_with(line)))
    }

    /// Which of all lines it is, as they are read.
    fn line(&self, line: &str) -> Option<usize> {
        let mut lines = self.pieces.iter().flat_map(|piece| piece.lines());
        lines.position(|found| found.ends_with(line))
    }

    /// Whether who reads on meets an answer that no longer holds before the one that does, or only that.
    fn has_old_first(&self, evidence: &str, superseded: &[String]) -> bool {
        let old = superseded.iter().filter_map(|old| self.line(old)).min();
        let new = self.line(evidence);
        old.is_some_and(|old| new.is_none_or(|new| old < new))
    }

    fn tokens(&self) -> u64 {
        self.pieces.iter().map(|piece| tokens::count(piece)).sum()
    }
}

/// Asks all questions at every size.
///
/// # Errors
/// If a store fails, or the user interrupts.
pub fn evaluate(
    sizes: &[usize],
    seed: u64,
    max_tokens: u64,
    by_meaning: Option<ByMeaning<'_>>,
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for size in sizes {
        let notebook = notebook(*size, seed);
        let mut memory = fill(&scratch.join(format!("{size}.db")), &notebook, interrupt)?;
        for method in METHODS {
            rows.push(row(&notebook, &memory, method, max_tokens)?);
        }
        if let Some(by_meaning) = by_meaning.filter(|by_meaning| *size <= by_meaning.notes_max) {
            embed(&mut memory, by_meaning.model, interrupt)?;
            for method in BY_MEANING {
                rows.push(row(&notebook, &memory, method, max_tokens)?);
            }
        }
    }
    Ok(rows)
}

fn row(
    notebook: &Notebook,
    memory: &AgentMemory,
    method: Method,
    max_tokens: u64,
) -> anyhow::Result<Row> {
    let mut row = Row {
        notes: notebook.notes.len(),
        method: method.name(),
        answerable: 0,
        found_at: None,
        in_budget: 0,
        own_words: (0, 0),
        other_words: (0, 0),
        updated: 0,
        stale: 0,
        old_first: 0,
        tokens: 0,
        unanswerable: 0,
        admitted: None,
        unanswerable_tokens: 0,
    };
    // The same for all questions.
    let file = match method {
        Method::WholeFile | Method::FileEnd => Some(read_file(notebook, method, max_tokens)),
        _ => None,
    };
    let file_tokens = file.as_ref().map_or(0, Shown::tokens);
    let is_over = method == Method::WholeFile && file_tokens > max_tokens;
    if file.is_none() {
        row.found_at = Some([1, 5, 10].map(|k| (k, 0)).into());
        row.admitted = Some(0);
    }
    for question in &notebook.questions {
        let asked;
        let (shown, tokens) = match &file {
            Some(file) => (file, file_tokens),
            None => {
                asked = show(notebook, memory, method, question, max_tokens)?;
                (&asked, asked.tokens())
            }
        };
        let Some(evidence) = &question.evidence else {
            row.unanswerable += 1;
            row.unanswerable_tokens += tokens;
            if let Some(admitted) = &mut row.admitted {
                *admitted += usize::from(shown.admits);
            }
            continue;
        };
        row.answerable += 1;
        row.tokens += tokens;
        let at = shown.position(evidence).filter(|_| !is_over);
        let found = usize::from(at.is_some());
        if let (Some(at), Some(found_at)) = (at, &mut row.found_at) {
            for (k, count) in found_at {
                *count += usize::from(at < *k);
            }
        }
        row.in_budget += found;
        let words = if question.is_reworded {
            &mut row.other_words
        } else {
            &mut row.own_words
        };
        words.0 += found;
        words.1 += 1;
        if question.answerable == Answerable::Updated {
            row.updated += 1;
            let is_old_first = !is_over && shown.has_old_first(evidence, &question.superseded);
            row.old_first += usize::from(is_old_first);
            row.stale += usize::from(is_old_first && at.is_none());
        }
    }
    Ok(row)
}

/// The file that all notes are in, as it is read at the start of a session.
fn read_file(notebook: &Notebook, method: Method, max_tokens: u64) -> Shown {
    let mut pieces: Vec<String> = notebook
        .notes
        .iter()
        .map(|note| format!("## {}\n{}\n", note.path, note.text))
        .collect();
    if method == Method::FileEnd {
        let mut used = 0;
        let kept = pieces.iter().rev().take_while(|piece| {
            used += tokens::count(piece);
            used <= max_tokens
        });
        let kept = kept.count();
        pieces.drain(..pieces.len() - kept);
    }
    Shown {
        pieces,
        admits: false,
    }
}

fn show(
    notebook: &Notebook,
    memory: &AgentMemory,
    method: Method,
    question: &Question,
    max_tokens: u64,
) -> anyhow::Result<Shown> {
    match method {
        Method::WholeFile | Method::FileEnd => anyhow::bail!("a file is read once"),
        Method::Grep | Method::GrepBoth => {
            let words = match method {
                Method::Grep => vec![question.keyword.as_str()],
                _ => question.keywords.split(' ').collect(),
            };
            let lines = |note: &Note| -> Vec<String> {
                let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
                let found = note.text.lines().filter(has_all);
                found
                    .map(|line| format!("{}:{line}\n", note.path))
                    .collect()
            };
            let notes = notebook.notes.iter();
            let pieces = match method {
                Method::Grep => within(notes.flat_map(lines), max_tokens),
                _ => within(notes.rev().flat_map(lines), max_tokens),
            };
            let admits = pieces.is_empty();
            Ok(Shown { pieces, admits })
        }
        Method::Search => {
            let answer = ask(memory, &format!(":search?{}", encoded(&question.keywords)))?;
            let admits = answer.starts_with("nothing found");
            // The first line says how many there are.
            let mut pieces = within(answer.split_inclusive('\n').map(str::to_owned), max_tokens);
            merge_first(&mut pieces);
            Ok(Shown { pieces, admits })
        }
        Method::Recall(by) | Method::RecallMeaning(by) => {
            let strategy = by.strategy();
            let request = format!(
                ":recall?query={}&max_tokens={max_tokens}&strategy={}",
                encoded(&question.text),
                strategy.name()
            );
            let answer = ask(memory, &request)?;
            if let Method::RecallMeaning(_) = method {
                let basis = answer.lines().take(2).any(|line| {
                    line.contains("by full text and meaning") && !line.contains("no embedding")
                });
                anyhow::ensure!(basis, "{request} is not answered by meaning: {answer}");
            }
            let counted = tokens::count(&answer);
            anyhow::ensure!(counted <= max_tokens, "{request} took {counted} tokens");
            let missing = answer
                .lines()
                .find_map(|line| line.strip_prefix("# in no note: "));
            let misses = |words: &str| words.split(", ").any(|word| word == question.keyword);
            let admits = answer.starts_with("# nothing found") || missing.is_some_and(misses);
            let mut pieces: Vec<String> = Vec::new();
            for line in answer.split_inclusive('\n') {
                match pieces.last_mut() {
                    Some(last) if !line.starts_with("## ") => last.push_str(line),
                    _ => pieces.push(line.to_owned()),
                }
            }
            merge_first(&mut pieces);
            Ok(Shown { pieces, admits })
        }
    }
}

/// What comes before the first result is read with it.
fn merge_first(pieces: &mut Vec<String>) {
    if pieces.len() > 1 {
        let first = pieces.remove(0);
        pieces[0].insert_str(0, &first);
    }
}

/// As many lines from the start as fit.
fn within(lines: impl Iterator<Item = String>, max_tokens: u64) -> Vec<String> {
    let mut used = 0;
    lines
        .take_while(|line| {
            used += tokens::count(line);
            used <= max_tokens
        })
        .collect()
}

/// The rows of a table, and what its columns are called.
pub fn table(rows: &[Row]) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let head = vec![
        "notes",
        "method",
        "recall@1",
        "@5",
        "@10",
        "answer in budget",
        "own words",
        "other words",
        "stale",
        "old before new",
        "tokens a question",
        "tokens a found answer",
        "unanswerable: said so",
        "their tokens",
    ];
    let share = |part: usize, of: usize| match of {
        0 => "–".to_owned(),
        of => format!("{:.0} % ({part}/{of})", 100.0 * part as f64 / of as f64),
    };
    let each = |tokens: u64, of: usize| match of {
        0 => "–".to_owned(),
        of => format!("{:.0}", tokens as f64 / of as f64),
    };
    let rows = rows.iter().map(|row| {
        let at = |k: usize| match &row.found_at {
            Some(found) => share(found.get(&k).copied().unwrap_or(0), row.answerable),
            None => "–".to_owned(),
        };
        vec![
            row.notes.to_string(),
            row.method.clone(),
            at(1),
            at(5),
            at(10),
            share(row.in_budget, row.answerable),
            share(row.own_words.0, row.own_words.1),
            share(row.other_words.0, row.other_words.1),
            share(row.stale, row.updated),
            share(row.old_first, row.updated),
            each(row.tokens, row.answerable),
            each(row.tokens, row.in_budget),
            row.admitted.map_or("–".to_owned(), |admitted| {
                share(admitted, row.unanswerable)
            }),
            each(row.unanswerable_tokens, row.unanswerable),
        ]
    });
    (head, rows.collect())
}

/// Writes a file, whole or not at all.
///
/// # Errors
/// If it cannot be written.
pub fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(parent)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    file.persist(path)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_finds_the_same_and_recall_finds_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let evaluate = |name: &str| {
            let scratch = dir.path().join(name);
            std::fs::create_dir(&scratch).unwrap();
            evaluate(&[100, 400], 1, 500, None, &scratch, &Interrupt::never()).unwrap()
        };
        let rows = evaluate("a");
        assert_eq!(rows, evaluate("b"), "counts are deterministic");
        let of = |notes: usize, method: &str| {
            let found = rows
                .iter()
                .find(|row| row.notes == notes && row.method == method);
            found.unwrap().clone()
        };
        for notes in [100, 400] {
            let recall = of(notes, ":recall balanced");
            assert!(recall.answerable >= 20 && recall.updated > 0 && recall.unanswerable > 0);
            assert!(
                recall.own_words.0 * 5 >= recall.own_words.1 * 4,
                "{recall:?}"
            );
            let file = of(notes, "MEMORY.md, its end");
            assert!(recall.in_budget > file.in_budget, "{recall:?} {file:?}");
        }
        // A file has what is old before what is new; grep from the newest on has not.
        let by_grep = of(400, "grep, both words, newest first");
        assert!(by_grep.in_budget > of(400, "grep").in_budget, "{by_grep:?}");
        assert_eq!(by_grep.old_first, 0);
        let whole = of(100, "grep");
        assert!(
            whole.old_first > 0 && whole.stale <= whole.old_first,
            "{whole:?}"
        );
        // A file that does not fit answers nothing within the budget, whatever is in it.
        assert_eq!(of(400, "MEMORY.md, whole").in_budget, 0);
    }

    #[test]
    fn an_old_answer_is_told_from_the_one_that_holds() {
        let shown = Shown {
            pieces: vec![
                "a\nThe port of x is 1.\n".to_owned(),
                "p:The port of x is 2.\n".to_owned(),
            ],
            admits: false,
        };
        assert_eq!(shown.position("The port of x is 1."), Some(0));
        assert_eq!(shown.position("The port of x is 2."), Some(1));
        assert_eq!(shown.position("The port of x is 3."), None);
        let is_first = |evidence: &str, old: &str| {
            let line = |value: &str| format!("The port of x is {value}.");
            shown.has_old_first(&line(evidence), &[line(old)])
        };
        assert!(is_first("2", "1"), "before");
        assert!(!is_first("1", "2"), "after");
        assert!(is_first("3", "2"), "alone");
        assert!(!is_first("2", "3") && !is_first("3", "4"), "not at all");
    }
}
