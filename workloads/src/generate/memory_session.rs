//! A session that asks about notes of earlier sessions. Notes and questions are those of the suite `recall`.
//! All notes are in its context, as MEMORY.md; context policies cut that file or replace it by recalls.

use std::collections::BTreeMap;

use serde::Deserialize;
use tokens::{Conversation, FixedOrigin, PartKind, Step};

use crate::conversation::{TURN_MS, part};
use crate::exam::Exam;
use crate::notes::{Question, notebook};
use crate::path::WorkspacePath;
use crate::script::{CallKind, FileOp, Script};

/// The file with all notes.
const MEMORY_FILE: &str = "MEMORY.md";

/// The parameters of the workload.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySession {
    /// Number of generated notes.
    notes: usize,
    /// Number of questions, one a message of the user.
    questions: usize,
    /// Tokens of the system prompt.
    system_tokens: u64,
    /// The seed of notes and questions.
    seed: u64,
}

impl MemorySession {
    /// The script, in which the session reads MEMORY.md, and the conversation with all of that file.
    ///
    /// # Errors
    /// A message with the field and the defect.
    pub(crate) fn session(&self) -> Result<(Script, Conversation), String> {
        if !(100..=10_000).contains(&self.notes) {
            return Err("field `memory_session.notes`: must be from 100 to 10000".to_owned());
        }
        let exam = Exam { notebook: notebook(self.notes, self.seed), max_tokens: 0 };
        let known = exam.notebook.questions.len();
        if !(1..=known).contains(&self.questions) {
            return Err(format!(
                "field `memory_session.questions`: must be from 1 to {known}, which {} notes have",
                self.notes
            ));
        }
        let memory = exam.memory_file();
        let asked = exam.notebook.questions.iter().take(self.questions);
        let mut steps: Vec<Step> = asked.map(step).collect();
        if let Some(first) = steps.first_mut() {
            first.gap_ms = 0;
            first.enters.insert(0, part(PartKind::Memory, &memory));
            first.files = BTreeMap::from([(CallKind::Read.to_string(), 1)]);
        }
        let conversation =
            Conversation { fixed: self.system_tokens, fixed_is: FixedOrigin::Stated, steps, ..Conversation::default() };
        let path = WorkspacePath::new(MEMORY_FILE).map_err(|error| error.to_string())?;
        let mut script = Script::new(vec![(path.clone(), memory.into_bytes().into())]);
        script.call(CallKind::Read, vec![FileOp::Read(path)]);
        Ok((script, conversation))
    }
}

/// The user asks, and the model answers with the line that was noted.
fn step(question: &Question) -> Step {
    let answer = question.evidence.as_deref();
    Step {
        gap_ms: TURN_MS,
        enters: vec![part(PartKind::User, &question.text)],
        emits: vec![part(PartKind::Text, answer.unwrap_or("No note says that."))],
        ..Step::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(notes: usize, questions: usize) -> (Script, Conversation) {
        let session = MemorySession { notes, questions, system_tokens: 8000, seed: 1 };
        session.session().unwrap()
    }

    #[test]
    fn a_session_reads_the_file_once_and_asks_each_question_in_a_message() {
        let (script, conversation) = session(100, 3);
        let (path, file) = &script.files[0];
        assert_eq!((path.as_str(), script.calls.len()), (MEMORY_FILE, 1));
        let memory = &conversation.steps[0].enters[0];
        assert_eq!(memory.bytes, file.len() as u64);
        let text = String::from_utf8_lossy(file);
        assert_eq!(memory.tokens, tokens::count(&text));
        let kinds: Vec<Vec<PartKind>> =
            conversation.steps.iter().map(|step| step.enters.iter().map(|part| part.kind).collect()).collect();
        let user = vec![PartKind::User];
        assert_eq!(kinds, [vec![PartKind::Memory, PartKind::User], user.clone(), user]);
    }

    #[test]
    fn the_file_grows_with_the_notes() {
        let memory = |notes| session(notes, 1).1.steps[0].enters[0].tokens;
        let (few, many) = (memory(100), memory(1000));
        assert!((8 * few..12 * few).contains(&many), "{few} {many}");
    }
}
