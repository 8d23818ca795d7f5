//! Notes and questions of public corpora, from the files of `make corpora`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::notes::{AnswerState, Note, Notebook, Question};

/// The environment variable with another directory of corpora.
const VARIABLE: &str = "CTXBENCH_CORPORA";

/// The directory that `make corpora` fills, from the repository's root.
const INSTALLED: &str = "target/corpora";

/// A corpus as `scripts/corpora.py` writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Corpus {
    notes: Vec<Note>,
    questions: Vec<OwnQuestion>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnQuestion {
    text: String,
    /// Paths of notes.
    evidence: Vec<String>,
    /// In lower case. Unless null, every note of evidence is one line that has it, and a part with it counts as found.
    #[serde(deserialize_with = "Option::deserialize")]
    answer: Option<String>,
}

/// The text of a corpus.
///
/// # Errors
/// The missing file, and the command that installs it.
pub(crate) fn read(name: &str) -> Result<String, String> {
    let dir = std::env::var_os(VARIABLE).map_or_else(|| PathBuf::from(INSTALLED), PathBuf::from);
    let file = dir.join(format!("{name}.json"));
    std::fs::read_to_string(&file).map_err(|error| {
        format!(
            "corpus {name}: {}: {error}: `make corpora` installs it, or {VARIABLE} names its directory",
            file.display()
        )
    })
}

/// Parses a corpus.
///
/// # Errors
/// File, line and field of what is wrong.
pub(crate) fn notebook(name: &str, text: &str) -> Result<Notebook, String> {
    let mut corpus: Corpus = serde_json::from_str(text)
        .map_err(|error| format!("corpus {name}: {error} (`make corpora` makes it again)"))?;
    let now = corpus.notes.iter().map(|note| note.written).max();
    let now = now.ok_or_else(|| format!("corpus {name}: field `notes`: is empty"))?;
    for note in &mut corpus.notes {
        note.text.push('\n');
    }
    let notes = corpus.notes;
    let of_path = |path: &String| {
        let found = notes.iter().find(|note| note.path == *path);
        found
            .map(|note| note.text.trim_end().to_owned())
            .ok_or_else(|| format!("corpus {name}: field `evidence`: there is no note {path}"))
    };
    let questions = corpus.questions.into_iter().map(|question| {
        let lines = question.evidence.iter().map(of_path);
        let lines = lines.collect::<Result<Vec<String>, String>>()?;
        let lacks = |answer: &&String| {
            let mut lines = lines.iter();
            !lines.all(|line| line.to_lowercase().contains(*answer))
        };
        if let Some(answer) = question.answer.as_ref().filter(lacks) {
            return Err(format!(
                "corpus {name}: field `answer`: evidence of {:?} is not one line with {answer:?}",
                question.text
            ));
        }
        let mut lines = lines.into_iter();
        let evidence =
            lines.next().ok_or_else(|| format!("corpus {name}: field `evidence`: {:?} has none", question.text))?;
        Ok(Question {
            keyword: String::new(),
            keywords: String::new(),
            text: question.text,
            is_reworded: false,
            answerable: AnswerState::Once,
            evidence: Some(evidence),
            also: lines.collect(),
            answer: question.answer,
            superseded: Vec::new(),
        })
    });
    let questions = questions.collect::<Result<Vec<_>, String>>()?;
    Ok(Notebook { notes, questions, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_becomes_notes_and_questions_with_all_their_evidence() {
        let text = r#"{"notes": [{"path": "a/1.md", "text": "one", "written": 5}, {"path": "a/2.md", "text": "two", "written": 9}],
            "questions": [{"text": "Which?", "evidence": ["a/2.md", "a/1.md"], "answer": null}]}"#;
        let read = notebook("small", text).unwrap();
        assert_eq!((read.notes.len(), read.now), (2, 9));
        assert_eq!(read.questions[0].evidence.as_deref(), Some("two"));
        assert_eq!(read.questions[0].also, ["one"]);
        assert_eq!(read.questions[0].answer, None);
    }

    #[test]
    fn a_malformed_corpus_is_refused_by_field() {
        let note = r#"{"path": "a", "text": "one", "written": 5}"#;
        let lost = r#"{"text": "?", "evidence": ["b"], "answer": null}"#;
        let without = r#"{"text": "?", "evidence": ["a"], "answer": "two"}"#;
        let older = r#"{"text": "?", "evidence": ["a"]}"#;
        for (notes, questions, more, words) in [
            ("", "", r#", "colour": 1"#, ["colour", "line 1"]),
            ("", "", "", ["corpus small", "field `notes`"]),
            ("", older, "", ["`answer`", "make corpora"]),
            (note, lost, "", ["field `evidence`", "there is no note b"]),
            (note, without, "", ["field `answer`", "two"]),
        ] {
            let text = format!(r#"{{"notes": [{notes}], "questions": [{questions}]{more}}}"#);
            let error = notebook("small", &text).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    }

    #[test]
    fn a_missing_corpus_names_the_command_that_installs_it() {
        let missing = read("no-such-corpus").unwrap_err();
        assert!(missing.contains("no-such-corpus") && missing.contains("make corpora"), "{missing}");
    }
}
