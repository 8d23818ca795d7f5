//! Search methods for planted evidence in notes, and the scores of their answers.
//! Scores are counts: the same notes and answers always get the same scores.
//! Replay makes the calls and times them.

use std::collections::BTreeMap;

use crate::bm25;
use crate::notes::{AnswerState, Note, Notebook, Question};

/// A method to search the notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Read one file with all notes.
    WholeFile,
    /// Read the end of that file, as much as fits into the budget.
    FileEnd,
    /// `grep -r` for the keyword, as much output as fits, oldest note first.
    Grep,
    /// `grep` for lines with keyword and attribute, as much as fits, newest note first.
    /// It uses the same words as `Search`.
    GrepBoth,
    /// `:search` for keyword and attribute.
    Search,
    /// The notes with the most words of the question, newest first, as much as fits: what `grep` can do.
    Words(AnswerBudget),
    /// The notes by BM25 over the words of the question, as SQLite's `bm25()` computes it, as much as fits.
    Bm25(AnswerBudget),
    /// `:recall` with the unchanged question, by this strategy.
    Recall(&'static str, AnswerBudget),
}

/// The token budget of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnswerBudget {
    /// [`BRIEF_TOKENS`], if the exam's is not smaller.
    Brief,
    /// That of the exam.
    Exam,
}

/// The tokens of [`AnswerBudget::Brief`].
pub const BRIEF_TOKENS: u64 = 500;

impl Method {
    /// The methods that ask the backend.
    pub const BY_REQUEST: [Self; 5] = [
        Self::Search,
        Self::Recall("balanced", AnswerBudget::Brief),
        Self::Recall("balanced", AnswerBudget::Exam),
        Self::Recall("recency", AnswerBudget::Exam),
        Self::Recall("importance", AnswerBudget::Exam),
    ];

    /// The method that asks the backend about facts that have changed: what a request gets that names none.
    pub const OF_CHANGES: [Self; 1] = [Self::Recall("balanced", AnswerBudget::Exam)];

    /// The methods that ask the backend about a corpus.
    pub const OF_CORPUS: [Self; 2] =
        [Self::Recall("balanced", AnswerBudget::Brief), Self::Recall("balanced", AnswerBudget::Exam)];

    /// The name in results and reports.
    pub fn name(self) -> String {
        let name = match self {
            Self::WholeFile => "MEMORY.md, whole",
            Self::FileEnd => "MEMORY.md, its end",
            Self::Grep => "grep",
            Self::GrepBoth => "grep, both words, newest first",
            Self::Search => ":search",
            Self::Words(_) => "grep, most words first",
            Self::Bm25(_) => "BM25",
            Self::Recall(strategy, _) => &format!(":recall {strategy}"),
        };
        match self.budget() {
            AnswerBudget::Brief => format!("{name}, {BRIEF_TOKENS} tokens"),
            AnswerBudget::Exam => name.to_owned(),
        }
    }

    fn budget(self) -> AnswerBudget {
        match self {
            Self::Words(budget) | Self::Bm25(budget) | Self::Recall(_, budget) => budget,
            _ => AnswerBudget::Exam,
        }
    }

    /// The maximum number of tokens of an answer, of an exam with `max_tokens`.
    fn tokens(self, max_tokens: u64) -> u64 {
        match self.budget() {
            AnswerBudget::Brief => max_tokens.min(BRIEF_TOKENS),
            AnswerBudget::Exam => max_tokens,
        }
    }

    /// The file name that asks a backend a question; `None` for a method that reads files.
    pub fn request(self, question: &Question, max_tokens: u64) -> Option<String> {
        let strategy = match self {
            Self::Search => return Some(format!(":search?{}", encoded(&question.keywords))),
            Self::Recall(strategy, _) => strategy,
            _ => return None,
        };
        let budget = self.tokens(max_tokens);
        Some(format!(":recall?query={}&max_tokens={budget}&strategy={strategy}", encoded(&question.text)))
    }
}

/// Encodes words for a request.
fn encoded(words: &str) -> String {
    let encode = |byte: u8| match byte {
        b' ' => "+".to_owned(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    words.bytes().map(encode).collect()
}

/// Notes with questions, and the token budget of an answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Exam {
    /// The notes and the questions.
    pub notebook: Notebook,
    /// The maximum number of tokens of an answer.
    pub max_tokens: u64,
}

/// Sums over questions by name: the count, and the number of questions.
pub type Scores = BTreeMap<&'static str, (u64, u64)>;

/// The question of a call, and the methods to score.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExamQuestion {
    /// The notes.
    pub exam: std::sync::Arc<Exam>,
    /// The methods whose answers are scored.
    pub methods: Vec<Method>,
    /// The index of the question; `None` for all questions, if the call reads files.
    pub question: Option<usize>,
}

impl ExamQuestion {
    /// Scores the answer of a call, by method.
    ///
    /// # Errors
    /// A message if the answer cannot be scored.
    pub fn score(&self, answer: &str) -> Result<Vec<(Method, Scores)>, String> {
        let questions = &self.exam.notebook.questions;
        let questions = match self.question {
            Some(at) => &questions[at..=at],
            None => &questions[..],
        };
        let scored = self.methods.iter().map(|method| {
            let mut scores = Scores::new();
            let file = self.exam.file(*method);
            let file = file.as_ref().map(|shown| (shown, shown.tokens()));
            for question in questions {
                let asked;
                let (shown, tokens) = match file {
                    Some(known) => known,
                    None => {
                        asked = self.exam.shown(*method, question, answer)?;
                        (&asked, asked.tokens())
                    }
                };
                self.exam.add(*method, question, shown, tokens, &mut scores);
            }
            Ok((*method, scores))
        });
        scored.collect()
    }
}

/// Whether a text has the words of an answer, not only as a part of longer words.
fn has_words(text: &str, answer: &str) -> bool {
    let goes_on = |before: Option<char>, after: Option<char>| {
        let is_of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        is_of_word(before) && is_of_word(after)
    };
    text.match_indices(answer).any(|(at, found)| {
        let (before, after) = (&text[..at], &text[at + found.len()..]);
        !goes_on(before.chars().next_back(), found.chars().next())
            && !goes_on(found.chars().next_back(), after.chars().next())
    })
}

/// Whether a text is the line above a recall's notes of one day, as `# 2026-11-22`.
fn is_date(text: &str) -> bool {
    let date = text.strip_prefix("# ").map(|rest| rest.trim_end_matches('\n'));
    date.is_some_and(|date| date.parse::<jiff::civil::Date>().is_ok())
}

/// The text that enters the context for one question, in pieces in order of reading.
struct ContextText {
    pieces: Vec<String>,
    admits: bool,
}

impl ContextText {
    fn position(&self, line: &str) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.lines().any(|found| found.ends_with(line)))
    }

    /// The position of the section of a note of one line, if that line, the section's last, shows an answer.
    /// `is_of_note` tells by the path in the section's heading.
    fn position_of_answer(&self, is_of_note: impl Fn(&str) -> bool, answer: &str) -> Option<usize> {
        self.pieces.iter().position(|piece| {
            let mut lines = piece.lines();
            let is_of_note = lines.any(|line| line.strip_prefix("## ").is_some_and(&is_of_note));
            let has_answer = |line: &str| has_words(&line.to_lowercase(), answer);
            is_of_note && lines.last().is_some_and(has_answer)
        })
    }

    /// The position of a line among all lines, in order of reading.
    fn line(&self, line: &str) -> Option<usize> {
        let mut lines = self.pieces.iter().flat_map(|piece| piece.lines());
        lines.position(|found| found.ends_with(line))
    }

    /// Whether a superseded answer comes before the current one, or without it.
    fn has_old_first(&self, evidence: &str, superseded: &[String]) -> bool {
        let old = superseded.iter().filter_map(|old| self.line(old)).min();
        let new = self.line(evidence);
        old.is_some_and(|old| new.is_none_or(|new| old < new))
    }

    fn tokens(&self) -> u64 {
        self.pieces.iter().map(|piece| tokens::count(piece)).sum()
    }
}

impl Exam {
    /// The content of MEMORY.md: all notes in sequence.
    pub fn memory_file(&self) -> String {
        self.sections().collect()
    }

    fn sections(&self) -> impl Iterator<Item = String> {
        let notes = self.notebook.notes.iter();
        notes.map(|note| format!("## {}\n{}\n", note.path, note.text))
    }

    /// The text for every question, if the method reads a file regardless of the question; else `None`.
    fn file(&self, method: Method) -> Option<ContextText> {
        let mut pieces: Vec<String> = match method {
            Method::WholeFile | Method::FileEnd => self.sections().collect(),
            _ => return None,
        };
        if method == Method::FileEnd {
            let mut used = 0;
            let kept = pieces.iter().rev().take_while(|piece| {
                used += tokens::count(piece);
                used <= self.max_tokens
            });
            let kept = kept.count();
            pieces.drain(..pieces.len() - kept);
        }
        Some(ContextText { pieces, admits: false })
    }

    /// The text that a method puts into the context; `answer` is the backend's answer.
    fn shown(&self, method: Method, question: &Question, answer: &str) -> Result<ContextText, String> {
        match method {
            Method::WholeFile | Method::FileEnd => Err("a file is read once".to_owned()),
            Method::Grep | Method::GrepBoth => Ok(self.grepped(method, question)),
            Method::Words(_) | Method::Bm25(_) => Ok(self.ranked(method, question)),
            Method::Search => {
                let lines = answer.split_inclusive('\n').map(str::to_owned);
                // The first line is the number of results.
                let mut pieces = self.within(lines);
                merge_first(&mut pieces);
                Ok(ContextText { pieces, admits: answer.starts_with("nothing found") })
            }
            Method::Recall(..) => self.recalled(question, answer, method.tokens(self.max_tokens)),
        }
    }

    fn grepped(&self, method: Method, question: &Question) -> ContextText {
        let words: Vec<&str> = match method {
            Method::Grep => vec![&question.keyword],
            _ => question.keywords.split(' ').collect(),
        };
        let lines = |note: &Note| -> Vec<String> {
            let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
            let found = note.text.lines().filter(has_all);
            let found = found.map(|line| format!("{}:{line}\n", note.path));
            found.collect()
        };
        let notes = self.notebook.notes.iter();
        let pieces = match method {
            Method::Grep => self.within(notes.flat_map(lines)),
            _ => self.within(notes.rev().flat_map(lines)),
        };
        let admits = pieces.is_empty();
        ContextText { pieces, admits }
    }

    /// Whole notes in the order of a ranking; one that does not fit leaves room for a smaller one.
    fn ranked(&self, method: Method, question: &Question) -> ContextText {
        let notes = &self.notebook.notes;
        let order = match method {
            Method::Words(_) => bm25::by_words(notes, &question.text),
            _ => bm25::by_bm25(notes, &question.text),
        };
        let mut used = 0;
        let mut pieces = Vec::new();
        for at in order {
            let section = format!("## {}\n{}", notes[at].path, notes[at].text);
            let cost = tokens::count(&section);
            if used + cost <= method.tokens(self.max_tokens) {
                used += cost;
                pieces.push(section);
            }
        }
        let admits = pieces.is_empty();
        ContextText { pieces, admits }
    }

    fn recalled(&self, question: &Question, answer: &str, limit: u64) -> Result<ContextText, String> {
        let counted = tokens::count(answer);
        if counted > limit {
            return Err(format!("the answer has {counted} tokens, more than the {limit} asked for"));
        }
        let missing = answer.lines().find_map(|line| line.strip_prefix("# in no note: "));
        let misses = |words: &str| words.split(", ").any(|word| word == question.keyword);
        let admits = answer.starts_with("# nothing found") || missing.is_some_and(misses);
        let mut pieces: Vec<String> = Vec::new();
        for line in answer.split_inclusive('\n') {
            let is_dated = pieces.last().is_some_and(|last| is_date(last));
            let is_first = is_date(line) || line.starts_with("## ") && !is_dated;
            match pieces.last_mut() {
                Some(last) if !is_first => last.push_str(line),
                _ => pieces.push(line.to_owned()),
            }
        }
        merge_first(&mut pieces);
        Ok(ContextText { pieces, admits })
    }

    /// The position of the text that shows a line of evidence, or the question's answer in its note.
    fn position(&self, shown: &ContextText, question: &Question, evidence: &str) -> Option<usize> {
        let Some(answer) = &question.answer else {
            return shown.position(evidence);
        };
        let notes = &self.notebook.notes;
        let note = notes.iter().find(|it| it.text.trim_end() == evidence)?;
        // A memory names notes from its root, below which the notes are in a directory of the pass.
        let is_at = |heading: &str, path: &str| {
            let rest = heading.strip_suffix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let is_of_note = |heading: &str| {
            let found = notes.iter().filter(|it| is_at(heading, &it.path));
            let found = found.max_by_key(|it| it.path.len());
            found.is_some_and(|it| it.path == note.path)
        };
        shown.position_of_answer(is_of_note, answer)
    }

    /// The leading lines that fit into the budget.
    fn within(&self, lines: impl Iterator<Item = String>) -> Vec<String> {
        let mut used = 0;
        lines
            .take_while(|line| {
                used += tokens::count(line);
                used <= self.max_tokens
            })
            .collect()
    }

    fn add(&self, method: Method, question: &Question, shown: &ContextText, tokens: u64, scores: &mut Scores) {
        let mut count = |name, found: u64, of: u64| {
            let sum = scores.entry(name).or_default();
            sum.0 += found;
            sum.1 += of;
        };
        let is_file = matches!(method, Method::WholeFile | Method::FileEnd);
        let is_over = method == Method::WholeFile && tokens > self.max_tokens;
        let Some(evidence) = &question.evidence else {
            count("tokens-unanswerable", tokens, 1);
            if !is_file {
                count("admitted", u64::from(shown.admits), 1);
            }
            return;
        };
        count("tokens", tokens, 1);
        let at = self.position(shown, question, evidence);
        let at = at.filter(|_| !is_over);
        let found = u64::from(at.is_some());
        let also = question.also.iter();
        let is_found = |line: &&String| self.position(shown, question, line).is_some();
        let found_also = also.filter(|line| !is_over && is_found(line));
        let all_found = found + found_also.count() as u64;
        if !is_file {
            for (name, first) in [("found-at-1", 1), ("found-at-5", 5), ("found-at-10", 10)] {
                count(name, u64::from(at.is_some_and(|at| at < first)), 1);
            }
        }
        let all = 1 + question.also.len() as u64;
        count("evidence-in-budget", all_found, all);
        if question.is_reworded {
            count("other-words", found, 1)
        } else {
            count("own-words", found, 1)
        }
        if question.answerable == AnswerState::Updated {
            let is_old_first = !is_over && shown.has_old_first(evidence, &question.superseded);
            count("old-first", u64::from(is_old_first), 1);
            count("stale", u64::from(is_old_first && at.is_none()), 1);
        }
    }
}

/// Merges the text before the first result with the first result.
fn merge_first(pieces: &mut Vec<String>) {
    if pieces.len() > 1 {
        let first = pieces.remove(0);
        pieces[0].insert_str(0, &first);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::notes::notebook;

    fn exam() -> Arc<Exam> {
        Arc::new(Exam { notebook: notebook(100, 1), max_tokens: 2000 })
    }

    fn asked(exam: Arc<Exam>, method: Method, question: Option<usize>) -> ExamQuestion {
        let methods = vec![method];
        ExamQuestion { exam, methods, question }
    }

    fn scores(method: Method, answer: &str, question: Option<usize>) -> Scores {
        let asked = asked(exam(), method, question);
        asked.score(answer).unwrap().remove(0).1
    }

    #[test]
    fn an_answer_inside_longer_words_does_not_count() {
        for (text, answer, has) in [
            ("built in 1900", "1900", true),
            ("built in 1900", "19", false),
            ("the romance of rome.", "rome", true),
            ("a romance", "roman", false),
            ("it cost $5 (five)", "$5", true),
            ("", "rome", false),
        ] {
            assert_eq!(has_words(text, answer), has, "{text}: {answer}");
        }
    }

    #[test]
    fn a_file_that_fits_the_budget_has_all_evidence_and_a_larger_one_none() {
        let small = Exam { notebook: notebook(100, 1), max_tokens: 1_000_000 };
        let whole = asked(Arc::new(small), Method::WholeFile, None);
        let found = whole.score("").unwrap().remove(0).1["evidence-in-budget"];
        assert!(found.0 == found.1 && found.1 > 10, "{found:?}");
        let (none, _) = scores(Method::WholeFile, "", None)["evidence-in-budget"];
        assert_eq!(none, 0, "more than 2,000 tokens do not fit");
    }

    #[test]
    fn a_part_of_a_note_counts_if_it_has_the_answer_and_another_note_does_not() {
        let text = r#"{"notes": [{"path": "a/1.md", "text": "Tosca: An opera. Sung in Rome first.", "written": 5},
                                 {"path": "b/a/1.md", "text": "Rome: A city.", "written": 6}],
            "questions": [{"text": "Where?", "evidence": ["a/1.md"], "answer": "in rome"}]}"#;
        let exam = Exam { notebook: crate::generate::corpus::notebook("small", text).unwrap(), max_tokens: 2000 };
        let asked = asked(Arc::new(exam), Method::Recall("balanced", AnswerBudget::Exam), Some(0));
        // A pass asks about notes in a directory of its own.
        for (note, expected) in [
            ("/a/1.md\n… Sung in Rome first. …", 1),
            ("/a/1.md\nSung in Rome.\n# 2026-11-23\n## /b.md\nTosca.", 1),
            ("/p7/files/a/1.md\nby kim\n… Sung in Rome first. …", 1),
            ("/p7/files/a/11.md\n… Sung in Rome first. …", 0),
            ("/a/1.md\nTosca: An opera. …", 0),
            ("/p7/files/b/a/1.md\nSung in Rome.", 0),
            ("/b/a/1.md\nSung in Rome.", 0),
            ("/a/1.md\ntags in rome\nTosca.", 0),
        ] {
            let answer = format!("# 1 of 1\n# 2026-11-22\n## {note}\n");
            let scored = asked.score(&answer).unwrap();
            assert_eq!(scored[0].1["evidence-in-budget"].0, expected, "{note}");
        }
    }

    #[test]
    fn an_answer_is_scored_by_the_position_of_the_evidence() {
        let exam = exam();
        let questions = &exam.notebook.questions;
        let is_once = |question: &Question| question.evidence.is_some() && question.superseded.is_empty();
        let at = questions.iter().position(is_once);
        let evidence = questions[at.unwrap()].evidence.clone();
        let answer = format!("# 10 tokens\n## a\nno\n## b\n{}\n", evidence.unwrap());
        let scored = scores(Method::Recall("balanced", AnswerBudget::Exam), &answer, at);
        assert_eq!(scored["found-at-1"], (0, 1));
        assert_eq!(scored["found-at-5"], (1, 1));
        assert_eq!(scored["evidence-in-budget"], (1, 1));
    }

    #[test]
    fn an_answer_over_the_budget_is_refused() {
        let long = "word ".repeat(1000);
        scores(Method::Recall("recency", AnswerBudget::Exam), &long, Some(0));
        let asked = asked(exam(), Method::Recall("balanced", AnswerBudget::Brief), Some(0));
        let error = asked.score(&long).unwrap_err();
        assert!(error.contains("more than the 500"), "{error}");
    }

    #[test]
    fn only_an_empty_answer_admits_an_unanswerable_question() {
        let exam = exam();
        let mut questions = exam.notebook.questions.iter();
        let at = questions.position(|question| question.evidence.is_none());
        let admitted = |answer: &str| scores(Method::Search, answer, at)["admitted"];
        assert_eq!(admitted("nothing found\n"), (1, 1));
        assert_eq!(admitted("3 notes match\n"), (0, 1));
    }
}
