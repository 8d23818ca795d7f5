//! Questions over generated notes to a backend that answers them: search and recall as in source 3.

use serde::Deserialize;

use super::{check_range, path};
use crate::notes::{Notebook, Question, notebook};
use crate::script::{CallKind, FileOp, Script};

/// The maximum number of notes, because each pass writes all of them.
const NOTES_MAX: usize = 10_000;

/// The parameters of a workload that asks questions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionWorkload {
    /// The kind of question.
    operation: Operation,
    /// Number of notes.
    notes: usize,
    /// Number of questions in a pass.
    calls: usize,
    /// The seed of notes and questions.
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    /// `:search` for a subject and an attribute.
    Search,
    /// `:recall` for a question, with a budget of about 2,000 tokens.
    Recall,
}

impl QuestionWorkload {
    pub(crate) fn script(&self) -> Result<Script, String> {
        check_range("asking.notes", &self.notes, 100..=NOTES_MAX)?;
        check_range("asking.calls", &self.calls, 1..=1000)?;
        let Notebook { notes, questions, .. } = notebook(self.notes, self.seed);
        let files = notes
            .into_iter()
            .map(|note| Ok((path(note.path)?, note.text.into_bytes().into())))
            .collect::<Result<Vec<_>, String>>()?;
        let first = files.first().map(|(file, _)| file.clone());
        let first = first.ok_or("there are no notes")?;
        let mut script = Script::new(files);
        let answered: Vec<&Question> =
            questions.iter().filter(|question| question.evidence.is_some() && !question.is_reworded).collect();
        for (number, question) in answered.iter().cycle().take(self.calls).enumerate() {
            // Each name is unique in a pass, because a backend may cache an answer.
            let (kind, name, says) = match self.operation {
                Operation::Search => {
                    (CallKind::Search, format!(":search?{}&limit={}", plus(&question.keywords), 20 + number), " match")
                }
                Operation::Recall => (
                    CallKind::Recall,
                    format!(":recall?query={}&max_tokens={}", plus(question.text.trim_end_matches('?')), 2000 + number),
                    ", by ",
                ),
            };
            let ask = FileOp::Ask { path: path(name)?, mentions: vec![says.to_owned(), question.keyword.clone()] };
            script.meanwhile(vec![FileOp::Touch(first.clone())]);
            script.call(kind, vec![ask]);
        }
        Ok(script)
    }
}

fn plus(words: &str) -> String {
    words.replace(' ', "+")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_in_a_pass_asks_under_a_unique_name() {
        let text = "operation = 'recall'\nnotes = 116\ncalls = 60\nseed = 1";
        let asking: QuestionWorkload = toml::from_str(text).unwrap();
        let script = asking.script().unwrap();
        let asked = script.calls.iter().filter(|call| call.kind.is_some());
        let names: BTreeSet<_> = asked.map(|call| call.ops[0].path()).collect();
        assert_eq!((names.len(), script.files.len()), (60, 116));
        assert!(names.iter().all(|name| name.to_string().len() < 256));
    }
}
