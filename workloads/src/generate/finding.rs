//! Searches for planted evidence in generated notes, by reading files or by asking the backend.

use std::sync::Arc;

use serde::Deserialize;

use super::{check_range, corpus, path};
use crate::exam::{Exam, ExamQuestion, Method};
use crate::notes::{Notebook, changed_max, notebook, notebook_of_changes};
use crate::script::{CallKind, FileOp, Script};

/// The maximum number of notes.
const NOTES_MAX: usize = 10_000;

/// The file with all notes.
const MEMORY_FILE: &str = "MEMORY.md";

/// The parameters of a workload that searches for evidence.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchWorkload {
    /// The access to the notes.
    by: NoteAccess,
    /// Number of generated notes.
    #[serde(default)]
    notes: usize,
    /// The number of facts, each of which changes once; only they are asked about, and only by the balanced recall.
    changed: Option<usize>,
    /// The name of a corpus of `make corpora`, instead of generated notes.
    corpus: Option<String>,
    /// The maximum number of tokens of an answer.
    max_tokens: u64,
    /// The seed of notes and questions.
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NoteAccess {
    /// By reading MEMORY.md, and by searching all files.
    Files,
    /// By `:search` and `:recall`.
    Request,
}

impl SearchWorkload {
    /// The text of the corpus, if one is named.
    ///
    /// # Errors
    /// The missing corpus, and the command that installs it.
    pub(crate) fn corpus(&self) -> Result<Option<String>, String> {
        self.corpus.as_deref().map(corpus::read).transpose()
    }

    /// The notes and questions; `text` is that of the corpus.
    fn notebook(&self, text: Option<&str>) -> Result<Notebook, String> {
        if let (Some(name), Some(text)) = (&self.corpus, text) {
            if self.notes != 0 || self.changed.is_some() || self.by != NoteAccess::Request {
                return Err(
                    "field `finding.corpus`: goes with `by = \"request\"` and without `notes` and `changed`".to_owned()
                );
            }
            return corpus::notebook(name, text);
        }
        check_range("finding.notes", &self.notes, 100..=NOTES_MAX)?;
        let Some(changed) = self.changed else {
            return Ok(notebook(self.notes, self.seed));
        };
        if self.by != NoteAccess::Request {
            return Err("field `finding.changed`: goes with `by = \"request\"`".to_owned());
        }
        check_range("finding.changed", &changed, 1..=changed_max(self.notes))?;
        Ok(notebook_of_changes(self.notes, changed, self.seed))
    }

    pub(crate) fn script(&self, text: Option<&str>) -> Result<Script, String> {
        check_range("finding.max_tokens", &self.max_tokens, 64..=1_000_000)?;
        let exam = Arc::new(Exam { notebook: self.notebook(text)?, max_tokens: self.max_tokens });
        let dir = match self.by {
            NoteAccess::Files => "notes/",
            NoteAccess::Request => "",
        };
        let notes = exam.notebook.notes.iter();
        let files = notes.map(|note| {
            let file = path(format!("{dir}{}", note.path))?;
            Ok((file, note.text.clone().into_bytes().into()))
        });
        let mut files = files.collect::<Result<Vec<_>, String>>()?;
        // Ages are relative to the pass, because backends rank notes by recency.
        let now = exam.notebook.now;
        let notes = exam.notebook.notes.iter();
        let ages: Vec<u64> = notes.map(|note| now.saturating_sub(note.written).max(0) as u64).collect();
        match self.by {
            NoteAccess::Files => {
                let memory = path(MEMORY_FILE)?;
                files.push((memory.clone(), exam.memory_file().into_bytes().into()));
                let mut script = Script::new(files);
                script.call(CallKind::Read, vec![FileOp::Read(memory)]);
                script.ask_last(exam.by(&[Method::WholeFile, Method::FileEnd], None));
                script.call(CallKind::Search, vec![FileOp::Search(path("notes")?)]);
                script.ask_last(exam.by(&[Method::Grep, Method::GrepBoth], None));
                Ok(script)
            }
            NoteAccess::Request => {
                let first = files.first().map(|(file, _)| file.clone());
                let first = first.ok_or("there are no notes")?;
                let mut script = Script::new(files);
                script.ages_ns = ages;
                let methods = match (&self.corpus, self.changed) {
                    (Some(_), _) => &Method::OF_CORPUS[..],
                    (None, Some(_)) => &Method::OF_CHANGES[..],
                    (None, None) => &Method::BY_REQUEST[..],
                };
                for method in methods {
                    // The scores of the other rankings need no call of their own.
                    let beside = match (&self.corpus, method) {
                        (Some(_), Method::Recall(_, budget)) => {
                            vec![*method, Method::Bm25(*budget), Method::Words(*budget)]
                        }
                        _ => vec![*method],
                    };
                    for (at, question) in exam.notebook.questions.iter().enumerate() {
                        let request = method.request(question, self.max_tokens);
                        let name = request.ok_or("a request has a name")?;
                        script.meanwhile(vec![FileOp::Touch(first.clone())]);
                        let ask = FileOp::Ask { path: path(name)?, mentions: Vec::new() };
                        let kind = match method {
                            Method::Search => CallKind::Search,
                            _ => CallKind::Recall,
                        };
                        script.call(kind, vec![ask]);
                        script.ask_last(exam.by(&beside, Some(at)));
                    }
                }
                Ok(script)
            }
        }
    }
}

impl Exam {
    fn by(self: &Arc<Self>, methods: &[Method], question: Option<usize>) -> ExamQuestion {
        ExamQuestion { exam: Arc::clone(self), methods: methods.to_vec(), question }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(by: NoteAccess, notes: usize) -> SearchWorkload {
        SearchWorkload { by, notes, changed: None, corpus: None, max_tokens: 2000, seed: 1 }
    }

    #[test]
    fn files_are_read_once_and_every_question_is_asked_by_each_request() {
        let by_files = finding(NoteAccess::Files, 100).script(None).unwrap();
        assert_eq!(by_files.calls.len(), 2);
        let by_request = finding(NoteAccess::Request, 100).script(None).unwrap();
        let asked = by_request.calls.iter().filter(|call| call.kind.is_some());
        let questions = notebook(100, 1).questions.len();
        assert_eq!(asked.count(), Method::BY_REQUEST.len() * questions);
        assert_eq!(by_request.ages_ns.len(), by_request.files.len());
    }

    #[test]
    fn changed_facts_are_asked_about_by_one_recall_each_and_no_more_of_them_than_notes_can_state() {
        let of_changes = |by, changed| SearchWorkload { changed: Some(changed), ..finding(by, 100) };
        let script = of_changes(NoteAccess::Request, 50).script(None).unwrap();
        assert_eq!(script.calls.iter().filter(|call| call.kind.is_some()).count(), 50);
        for (by, changed) in [(NoteAccess::Request, 51), (NoteAccess::Request, 0), (NoteAccess::Files, 50)] {
            let error = of_changes(by, changed).script(None).unwrap_err();
            assert!(error.contains("finding.changed"), "{error}");
        }
    }

    #[test]
    fn every_question_of_a_corpus_is_recalled_within_two_budgets_and_scored_by_three_rankings() {
        let text = r#"{"notes": [{"path": "a/1.md", "text": "one", "written": 5}],
            "questions": [{"text": "Which one?", "evidence": ["a/1.md"], "answer": null}]}"#;
        let mut of_corpus = finding(NoteAccess::Request, 0);
        of_corpus.corpus = Some("small".to_owned());
        let script = of_corpus.script(Some(text)).unwrap();
        let asked: Vec<_> = script.calls.iter().filter_map(|call| call.asked.as_ref()).collect();
        let names = asked.iter().map(|asked| asked.methods.iter().map(|it| it.name()));
        let names: Vec<String> = names.flatten().collect();
        let rankings = [":recall balanced", "BM25", "grep, most words first"];
        let brief = rankings.map(|name| format!("{name}, 500 tokens"));
        assert_eq!(names, [brief, rankings.map(str::to_owned)].concat());
        of_corpus.notes = 100;
        assert!(of_corpus.script(Some(text)).unwrap_err().contains("finding.corpus"));
    }
}
