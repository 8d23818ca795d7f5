//! The policies of notes of earlier sessions: a file that is loaded at the start, or a tool that recalls some.

use std::num::NonZeroU64;

use serde::Deserialize;
use tokens::{Part, PartKind, Step};

use super::rewriter::Rewriter;
use crate::conversation::{TURN_MS, part};

/// The definition of the `recall` tool of `ctxbench mcp`, as the client sends it with every prompt.
pub const RECALL_TOOL: &str = r#"{"name":"recall","description":"The most useful notes for a question","inputSchema":{"additionalProperties":false,"properties":{"max_tokens":{"maximum":1000000,"minimum":64,"type":"integer"},"question":{"type":"string"},"strategy":{"enum":["balanced","recency","importance"],"type":"string"}},"required":["question"],"type":"object"}}"#;

/// The file of notes is loaded at the start of the session, up to a limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryFile {
    /// Bytes of the file that are loaded; the rest is not in the context.
    limit_bytes: NonZeroU64,
}

/// No note is loaded. For each message of the user, the model calls `recall` once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemoryRecall {
    /// The `max_tokens` of a call.
    budget_tokens: NonZeroU64,
    /// The mean tokens of an answer, at most the budget. All notes together are never exceeded.
    answer_tokens: NonZeroU64,
}

impl MemoryRecall {
    /// The field and the message if an answer exceeds the budget.
    pub(super) fn too_large(&self) -> Option<(&'static str, String)> {
        let message = format!(
            "field `memory_recall.answer_tokens`: {} is more than the budget of {}",
            self.answer_tokens, self.budget_tokens
        );
        (self.answer_tokens > self.budget_tokens).then_some(("answer_tokens", message))
    }
}

impl Rewriter {
    pub(super) fn memory_file(&mut self, step: &Step, file: &MemoryFile) {
        let limit = file.limit_bytes.get();
        let mut cut = step.clone();
        let enters = cut.enters.iter_mut();
        for memory in enters.filter(|part| part.kind == PartKind::Memory && part.bytes > limit) {
            let share = limit as f64 / memory.bytes as f64;
            memory.tokens = (memory.tokens as f64 * share).ceil() as u64;
            memory.bytes = limit;
        }
        self.keep(&cut);
    }

    pub(super) fn memory_recall(&mut self, step: &Step, recall: &MemoryRecall) {
        let mut empty = step.clone();
        for memory in &mut empty.enters {
            if memory.kind == PartKind::Memory {
                self.notes += memory.tokens;
                // It keeps its number, which rewrites of later parts count.
                *memory = Part::new(PartKind::Memory, 0);
                empty.files.remove("read");
            }
        }
        let asked = empty.enters.iter();
        let asked: Vec<Part> = asked.filter(|part| part.kind == PartKind::User).copied().collect();
        if asked.is_empty() {
            return self.keep(&empty);
        }
        let mut asking = self.begin(&empty);
        asking.enters.clone_from(&empty.enters);
        let budget = recall.budget_tokens.get();
        asking.emits = asked.iter().map(|part| recall_call(part, budget)).collect();
        asking.files.insert("recall".to_owned(), asked.len() as u64);
        self.push(asking, 0..empty.enters.len());
        let answer = recall.answer_tokens.get().min(self.notes);
        let answered = Step {
            gap_ms: TURN_MS,
            enters: vec![Part::new(PartKind::Result, answer); asked.len()],
            emits: empty.emits,
            files: empty.files,
            ..Step::default()
        };
        let count = asked.len() + answered.emits.len();
        self.push(answered, asked.len()..count);
    }
}

/// The model's call that asks for notes, in the words of the user's question.
fn recall_call(question: &Part, budget: u64) -> Part {
    let call = format!(r#"{{"name":"recall","input":{{"question":,"max_tokens":{budget}}}}}"#);
    let frame = part(PartKind::Arguments, &call).tokens;
    Part::new(PartKind::Arguments, question.tokens + frame)
}

#[cfg(test)]
mod tests {
    use tokens::{Account, Conversation};

    use super::*;
    use crate::context::tests::{account, conversation, policy};
    use crate::context::{INLINE, context};

    /// A session with notes of four bytes a token, and messages of the user of so many tokens.
    fn asking(notes: u64, questions: &[u64]) -> Conversation {
        let mut asking = conversation(&[]);
        asking.steps = questions
            .iter()
            .map(|tokens| Step {
                gap_ms: 1000,
                enters: vec![Part::new(PartKind::User, *tokens)],
                emits: vec![Part::new(PartKind::Text, 5)],
                ..Step::default()
            })
            .collect();
        let memory = Part { bytes: 4 * notes, ..Part::new(PartKind::Memory, notes) };
        asking.steps[0].enters.insert(0, memory);
        asking.steps[0].files.insert("read".to_owned(), 1);
        asking
    }

    fn prompts(account: &Account) -> Vec<u64> {
        account.calls.iter().map(|call| call.prompt).collect()
    }

    #[test]
    fn a_memory_file_is_in_every_prompt_up_to_its_limit() {
        let two = asking(4000, &[10, 20]);
        let cut = policy("[memory_file]\nlimit_bytes = 4000");
        assert_eq!(prompts(&account(&cut, &two)), [2010, 2035]);
        assert_eq!(account(&cut, &two).entering, 2040);
        // A file within the limit is loaded whole.
        let whole = policy("[memory_file]\nlimit_bytes = 16000");
        assert_eq!(whole.apply(&two), two);
        assert_eq!(prompts(&account(&whole, &two)), [5010, 5035]);
    }

    #[test]
    fn a_recall_costs_its_definition_a_call_and_an_answer_for_each_question() {
        let recall = policy("[memory_recall]\nbudget_tokens = 500\nanswer_tokens = 300");
        let tool = tokens::count(RECALL_TOOL);
        let frame = tokens::count(r#"{"name":"recall","input":{"question":,"max_tokens":500}}"#);
        assert!((60..120).contains(&tool) && (10..25).contains(&frame));
        let (applied, found) = {
            let two = asking(4000, &[10, 20]);
            (recall.apply(&two), account(&recall, &two))
        };
        let asked = 1000 + tool + 10;
        let answered = asked + (10 + frame) + 300;
        let again = answered + 5 + 20;
        let last = again + (20 + frame) + 300;
        assert_eq!(prompts(&found), [asked, answered, again, last]);
        assert_eq!(found.output(), (10 + frame) + 5 + (20 + frame) + 5);
        let files = |kind: &str| {
            let files = applied.steps.iter().filter_map(|step| step.files.get(kind));
            files.sum::<u64>()
        };
        assert_eq!((files("read"), files("recall")), (0, 2));
        // An answer holds no more than there is.
        let few = account(&recall, &asking(100, &[10]));
        assert_eq!(prompts(&few), [asked, asked + 10 + frame + 100]);
    }

    #[test]
    fn few_questions_are_cheaper_by_recall_and_many_by_a_file() {
        let entering = |name: &str, questions: usize| {
            let asked = asking(41_000, &vec![12; questions]);
            account(&context(name).unwrap(), &asked).entering
        };
        assert!(entering("memory-recall", 1) < entering("memory-file", 1) / 2);
        assert!(entering("memory-recall", 10) > entering("memory-file", 10));
        assert!(entering("memory-recall", 10) < entering(INLINE, 10));
    }
}
