//! Context policies: which tool results and notes an agent keeps in its context, and which ones in files.
//! A policy turns the `inline` conversation, which keeps every result, into the same session under the policy.
//! The policy's file states the assumed share of a stored result that is read back.

use std::collections::VecDeque;
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use tokens::{Conversation, Part, PartKind, Rewrite, Step};

use crate::catalogue::{built_in, stems};
use crate::conversation::{TURN_MS, part};
use inputs::{InputError, parse_toml};

static CONTEXTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/contexts");

/// The policy that keeps everything.
pub const INLINE: &str = "inline";

/// The definition of the `recall` tool of `ctxbench mcp`, as the client sends it with every prompt.
pub const RECALL_TOOL: &str = r#"{"name":"recall","description":"The most useful notes for a question","inputSchema":{"additionalProperties":false,"properties":{"max_tokens":{"maximum":1000000,"minimum":64,"type":"integer"},"question":{"type":"string"},"strategy":{"enum":["balanced","recency","importance"],"type":"string"}},"required":["question"],"type":"object"}}"#;

/// A context policy, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextPolicy {
    /// Its name.
    pub name: String,
    /// The real policy that it represents, and its assumptions.
    pub essay: String,
    keep: Keep,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    name: String,
    essay: String,
    inline: Option<Inline>,
    offload: Option<Offload>,
    evict: Option<Evict>,
    recall: Option<Recall>,
    memory_file: Option<MemoryFile>,
    memory_recall: Option<MemoryRecall>,
}

/// Every result stays in the context.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inline {}

/// The model saves a large result: it reads the result and writes it out again.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Offload {
    /// Results of more tokens than this are saved.
    above_tokens: u64,
    /// The share of a saved result that a separate call reads back, once.
    read_back: f64,
    /// Whether a line replaces the result and the written content once saved. Otherwise both stay.
    clears: bool,
}

/// The tool layer stores a large result; the model sees only a part.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Evict {
    /// Results of more tokens than this are stored.
    above_tokens: u64,
    /// Tokens of the result that are shown in addition to the receipt.
    preview_tokens: u64,
    /// As in `Offload`.
    read_back: f64,
}

/// All results together stay within a budget. The oldest ones are stored first, and a receipt replaces each.
/// A result larger than the budget is stored immediately.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recall {
    /// The maximum number of tokens of all results together.
    budget_tokens: u64,
    /// Tokens of a result larger than the budget that are shown in addition to the receipt.
    preview_tokens: u64,
    /// The share of a result larger than the budget that a separate call reads back, once.
    read_back: f64,
}

/// The file of notes is loaded at the start of the session, up to a limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    /// Bytes of the file that are loaded; the rest is not in the context.
    limit_bytes: NonZeroU64,
}

/// No note is loaded. For each message of the user, the model calls `recall` once.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryRecall {
    /// The `max_tokens` of a call.
    budget_tokens: NonZeroU64,
    /// The mean tokens of an answer, at most the budget. All notes together are never exceeded.
    answer_tokens: NonZeroU64,
}

#[derive(Clone, Debug, PartialEq)]
enum Keep {
    Inline,
    Offload(Offload),
    Evict(Evict),
    Recall(Recall),
    MemoryFile(MemoryFile),
    MemoryRecall(MemoryRecall),
}

/// The names of all built-in context policies; `inline` first.
pub fn context_names() -> Vec<String> {
    let mut names = stems(&CONTEXTS);
    names.sort_by_key(|name| name != INLINE);
    names
}

/// The names of the built-in context policies that fit a session, which may have notes of earlier ones.
pub(crate) fn context_names_of(has_notes: bool) -> Vec<String> {
    let mut names = context_names();
    names.retain(|name| has_notes || context(name).is_ok_and(|own| !own.needs_notes()));
    names
}

/// The built-in context policy called `name`, or the one in the file at that path.
///
/// # Errors
/// [`InputError`] if the policy does not exist or is malformed.
pub fn context(name: &str) -> Result<ContextPolicy, InputError> {
    let found = built_in(&CONTEXTS, "contexts", name);
    let (file, text) = inputs::named("context policy", name, found, &context_names())?;
    ContextPolicy::parse(&file, &text)
}

impl ContextPolicy {
    /// Parses a policy file; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let read: PolicyFile = parse_toml(file, text)?;
        let tables = [
            read.inline.map(|Inline {}| Keep::Inline),
            read.offload.map(Keep::Offload),
            read.evict.map(Keep::Evict),
            read.recall.map(Keep::Recall),
            read.memory_file.map(Keep::MemoryFile),
            read.memory_recall.map(Keep::MemoryRecall),
        ];
        let mut tables = tables.into_iter().flatten();
        let (Some(keep), None) = (tables.next(), tables.next()) else {
            let message = "needs exactly one of the tables `[inline]`, `[offload]`, `[evict]`, `[recall]`, `[memory_file]`, `[memory_recall]`";
            return Err(InputError::whole(file, message));
        };
        let wrong = match &keep {
            Keep::Offload(Offload { read_back, .. }) => not_a_share("offload", *read_back),
            Keep::Evict(Evict { read_back, .. }) => not_a_share("evict", *read_back),
            Keep::Recall(Recall { read_back, .. }) => not_a_share("recall", *read_back),
            Keep::MemoryRecall(recall) => recall.too_large(),
            Keep::Inline | Keep::MemoryFile(_) => None,
        };
        if let Some((field, message)) = wrong {
            let mut lines = (1..).zip(text.lines());
            return Err(InputError {
                file: file.to_owned(),
                line: lines
                    .find(|(_, line)| line.trim_start().starts_with(field))
                    .map(|(number, _)| number),
                message,
            });
        }
        Ok(Self {
            name: read.name,
            essay: read.essay.trim().to_owned(),
            keep,
        })
    }

    /// Whether it says how notes of earlier sessions get into the context. It fits no session without notes.
    pub fn needs_notes(&self) -> bool {
        matches!(self.keep, Keep::MemoryFile(_) | Keep::MemoryRecall(_))
    }

    /// The conversation of the same session under this policy.
    pub fn apply(&self, inline: &Conversation) -> Conversation {
        let mut rewriter = Rewriter {
            steps: Vec::new(),
            parts: 0,
            moved: Vec::new(),
            stored: 0,
            live: VecDeque::new(),
            notes: 0,
        };
        for step in &inline.steps {
            match &self.keep {
                Keep::Inline => rewriter.keep(step),
                Keep::Offload(offload) => rewriter.offload(step, offload),
                Keep::Evict(evict) => rewriter.evict(step, evict),
                Keep::Recall(recall) => rewriter.recall(step, recall),
                Keep::MemoryFile(file) => rewriter.memory_file(step, file),
                Keep::MemoryRecall(recall) => rewriter.memory_recall(step, recall),
            }
        }
        let tool = match self.keep {
            Keep::MemoryRecall(_) => tokens::count(RECALL_TOOL),
            _ => 0,
        };
        Conversation {
            steps: rewriter.steps,
            fixed: inline.fixed + tool,
            fixed_is: inline.fixed_is,
            subagents: inline.subagents,
            subagent_calls: inline.subagent_calls,
        }
    }
}

/// The field and the message for a share that is none.
fn not_a_share(table: &str, read_back: f64) -> Option<(&'static str, String)> {
    let message = format!("field `{table}.read_back`: {read_back} is not a share from 0 to 1");
    (!(0.0..=1.0).contains(&read_back)).then_some(("read_back", message))
}

impl MemoryRecall {
    /// The field and the message if an answer exceeds the budget.
    fn too_large(&self) -> Option<(&'static str, String)> {
        let message = format!(
            "field `memory_recall.answer_tokens`: {} is more than the budget of {}",
            self.answer_tokens, self.budget_tokens
        );
        (self.answer_tokens > self.budget_tokens).then_some(("answer_tokens", message))
    }
}

struct Rewriter {
    steps: Vec<Step>,
    /// Number of parts so far.
    parts: usize,
    /// The new number of each part of the inline conversation.
    moved: Vec<usize>,
    /// Number of results stored so far.
    stored: u64,
    /// Results in the context, oldest first.
    live: VecDeque<Live>,
    /// Tokens of all notes.
    notes: u64,
}

/// A result in the context.
struct Live {
    part: usize,
    tokens: u64,
    /// Tokens of its receipt, if it is already stored.
    receipt: Option<u64>,
}

impl Rewriter {
    /// Appends a step and returns the number of its first part. Those of its parts that are `of_inline` get the numbers
    /// of the next parts of the inline conversation.
    fn push(&mut self, step: Step, of_inline: Range<usize>) -> usize {
        let first = self.parts;
        self.moved
            .extend(first + of_inline.start..first + of_inline.end);
        self.parts += step.enters.len() + step.emits.len();
        self.steps.push(step);
        first
    }

    /// A copy of `step` without its entering and emitted parts, files and reported usage.
    fn begin(&self, step: &Step) -> Step {
        let moved = |rewrite: &Rewrite| {
            let part = *self.moved.get(rewrite.part)?;
            Some(Rewrite {
                part,
                tokens: rewrite.tokens,
            })
        };
        Step {
            gap_ms: step.gap_ms,
            compacted: step.compacted,
            before_compaction: step.before_compaction,
            rewrites: step.rewrites.iter().filter_map(moved).collect(),
            ..Step::default()
        }
    }

    fn keep(&mut self, step: &Step) {
        let mut own = self.begin(step);
        own.enters.clone_from(&step.enters);
        own.emits.clone_from(&step.emits);
        own.files.clone_from(&step.files);
        own.reported = step.reported;
        let count = own.enters.len() + own.emits.len();
        self.push(own, 0..count);
    }

    fn evict(&mut self, step: &Step, evict: &Evict) {
        let is_large = |part: &Part| is_large(part, evict.above_tokens);
        let large: Vec<Part> = step.enters.iter().copied().filter(is_large).collect();
        if large.is_empty() {
            return self.keep(step);
        }
        let mut own = self.begin(step);
        for entering in &step.enters {
            own.enters.push(if is_large(entering) {
                let receipt = self.receipt(entering);
                Part {
                    tokens: receipt.tokens + evict.preview_tokens.min(entering.tokens),
                    ..receipt
                }
            } else {
                *entering
            });
        }
        own.files.insert("write".to_owned(), large.len() as u64);
        let entered = own.enters.len();
        if evict.read_back == 0.0 {
            own.emits.clone_from(&step.emits);
            add_files(&mut own, step);
            self.push(own, 0..entered + step.emits.len());
        } else {
            own.emits = large.iter().map(|_| read_call(self.stored)).collect();
            *own.files.entry("read".to_owned()).or_default() += large.len() as u64;
            self.push(own, 0..entered);
            self.read_back(step, &large, evict.read_back);
        }
    }

    fn offload(&mut self, step: &Step, offload: &Offload) {
        let is_large = |part: &Part| is_large(part, offload.above_tokens);
        let large: Vec<Part> = step.enters.iter().copied().filter(is_large).collect();
        if large.is_empty() {
            return self.keep(step);
        }
        // The model has seen the result, and writes it out to save it.
        let mut saving = self.begin(step);
        saving.enters.clone_from(&step.enters);
        saving.emits = large.iter().map(write_call).collect();
        saving.files.insert("write".to_owned(), large.len() as u64);
        let entered = saving.enters.len();
        let first = self.push(saving, 0..entered);
        let mut saved = Step {
            gap_ms: TURN_MS,
            enters: large.iter().map(|part| self.receipt(part)).collect(),
            ..Step::default()
        };
        if offload.clears {
            let results = (first..).zip(&step.enters);
            let results = results.filter(|(_, part)| is_large(part)).map(|(at, _)| at);
            let written = first + entered..first + entered + large.len();
            let line = part(PartKind::Receipt, "[saved]").tokens;
            saved.rewrites = results
                .chain(written)
                .map(|part| Rewrite { part, tokens: line })
                .collect();
        }
        if offload.read_back == 0.0 {
            saved.emits.clone_from(&step.emits);
            saved.files.clone_from(&step.files);
            self.push(saved, large.len()..large.len() + step.emits.len());
        } else {
            saved.emits = large.iter().map(|_| read_call(self.stored)).collect();
            saved.files.insert("read".to_owned(), large.len() as u64);
            self.push(saved, 0..0);
            self.read_back(step, &large, offload.read_back);
        }
    }

    /// Appends the step in which the parts read back enter, and the model continues with the output of `step`.
    fn read_back(&mut self, step: &Step, large: &[Part], share: f64) {
        let back = large.iter().map(|part| {
            let tokens = (part.tokens as f64 * share).ceil() as u64;
            Part::new(PartKind::ReadBack, tokens)
        });
        let own = Step {
            gap_ms: TURN_MS,
            enters: back.collect(),
            emits: step.emits.clone(),
            files: step.files.clone(),
            ..Step::default()
        };
        self.push(own, large.len()..large.len() + step.emits.len());
    }

    fn recall(&mut self, step: &Step, recall: &Recall) {
        let mut own = self.begin(step);
        if step.compacted {
            self.live.clear();
        }
        // Results larger than the budget, with the tokens of their receipts.
        let mut large: Vec<(Part, u64)> = Vec::new();
        let old = self.live.len();
        for (number, entering) in step.enters.iter().enumerate() {
            let mut shown = *entering;
            if entering.kind == PartKind::Result {
                let mut receipt = None;
                if entering.tokens > recall.budget_tokens {
                    // The result is stored, and only its beginning is shown.
                    shown = self.receipt(entering);
                    receipt = Some(shown.tokens);
                    large.push((*entering, shown.tokens));
                    shown.tokens += recall.preview_tokens.min(entering.tokens);
                }
                self.live.push_back(Live {
                    part: self.parts + number,
                    tokens: shown.tokens,
                    receipt,
                });
            }
            own.enters.push(shown);
        }
        let mut written = self.trim(&mut own, old, recall.budget_tokens);
        written += large.len() as u64;
        if written > 0 {
            own.files.insert("write".to_owned(), written);
        }
        let mut first = 0;
        if !large.is_empty() && recall.read_back > 0.0 {
            own.emits = large.iter().map(|_| read_call(self.stored)).collect();
            own.files.insert("read".to_owned(), large.len() as u64);
            let entered = own.enters.len();
            self.push(own, 0..entered);
            own = Step {
                gap_ms: TURN_MS,
                ..Step::default()
            };
            let old = self.live.len();
            for (number, (part, receipt)) in large.iter().enumerate() {
                let tokens = (part.tokens as f64 * recall.read_back).ceil() as u64;
                self.live.push_back(Live {
                    part: self.parts + number,
                    tokens,
                    receipt: Some(*receipt),
                });
                own.enters.push(Part::new(PartKind::ReadBack, tokens));
            }
            let written = self.trim(&mut own, old, recall.budget_tokens);
            if written > 0 {
                own.files.insert("write".to_owned(), written);
            }
            first = large.len();
        }
        own.emits.clone_from(&step.emits);
        add_files(&mut own, step);
        let count = own.enters.len() + own.emits.len();
        self.push(own, first..count);
    }

    fn memory_file(&mut self, step: &Step, file: &MemoryFile) {
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

    fn memory_recall(&mut self, step: &Step, recall: &MemoryRecall) {
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
        let asked: Vec<Part> = asked
            .filter(|part| part.kind == PartKind::User)
            .copied()
            .collect();
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

    /// Replaces the oldest results by receipts until the budget holds. The first `old` results were in the
    /// context before `own`; the others enter with it. Returns the number of newly stored results.
    fn trim(&mut self, own: &mut Step, mut old: usize, budget: u64) -> u64 {
        let mut written = 0;
        let mut held: u64 = self.live.iter().map(|live| live.tokens).sum();
        while held > budget {
            let Some(gone) = self.live.pop_front() else {
                break;
            };
            let receipt = gone.receipt.unwrap_or_else(|| {
                written += 1;
                let result = Part::new(PartKind::Result, gone.tokens);
                self.receipt(&result).tokens
            });
            let left = receipt.min(gone.tokens);
            held -= gone.tokens;
            if old > 0 {
                own.rewrites.push(Rewrite {
                    part: gone.part,
                    tokens: left,
                });
                old -= 1;
            } else {
                // The results of one step exceed the budget, so this one enters only as a receipt.
                own.enters[gone.part - self.parts].tokens = left;
            }
        }
        written
    }

    fn receipt(&mut self, stored: &Part) -> Part {
        self.stored += 1;
        let bytes = match stored.bytes {
            // Only the number of digits matters, and an estimate has as many as the size.
            0 => stored.tokens * 4,
            bytes => bytes,
        };
        let line = format!("✅ Saved results/{:04}.txt ({bytes} bytes)", self.stored);
        part(PartKind::Receipt, &line)
    }
}

fn is_large(part: &Part, above: u64) -> bool {
    part.kind == PartKind::Result && part.tokens > above
}

fn add_files(own: &mut Step, step: &Step) {
    for (kind, count) in &step.files {
        *own.files.entry(kind.clone()).or_default() += count;
    }
}

/// The model's call that stores a result, with the whole content as a JSON string.
/// For a recording only the tokens of the content are known, so the tokens of escaping are left out.
fn write_call(stored: &Part) -> Part {
    let call = r#"{"name":"write_file","input":{"file_path":"results/0001.txt","content":}}"#;
    let content = stored.escaped.max(stored.tokens);
    Part::new(
        PartKind::Content,
        content + part(PartKind::Content, call).tokens,
    )
}

/// The model's call that reads back a part of a stored result.
fn read_call(number: u64) -> Part {
    let call = format!(
        r#"{{"name":"read_file","input":{{"file_path":"results/{number:04}.txt","offset":1,"limit":100}}}}"#
    );
    part(PartKind::Arguments, &call)
}

/// The model's call that asks for notes, in the words of the user's question.
fn recall_call(question: &Part, budget: u64) -> Part {
    let call = format!(r#"{{"name":"recall","input":{{"question":,"max_tokens":{budget}}}}}"#);
    let frame = part(PartKind::Arguments, &call).tokens;
    Part::new(PartKind::Arguments, question.tokens + frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokens::{Account, Fixed, Terms, ThinkingStays};

    fn conversation(results: &[u64]) -> Conversation {
        let mut steps: Vec<Step> = vec![Step {
            enters: vec![Part::new(PartKind::User, 50)],
            emits: vec![Part::new(PartKind::Arguments, 30)],
            ..Step::default()
        }];
        for tokens in results {
            steps.push(Step {
                gap_ms: 1000,
                enters: vec![Part::new(PartKind::Result, *tokens)],
                emits: vec![
                    Part::new(PartKind::Thinking, 7),
                    Part::new(PartKind::Arguments, 30),
                ],
                ..Step::default()
            });
        }
        Conversation {
            fixed: 1000,
            fixed_is: Fixed::Stated,
            steps,
            ..Conversation::default()
        }
    }

    fn policy(text: &str) -> ContextPolicy {
        let text = format!("name = 'p'\nessay = 'e'\n{text}\n");
        ContextPolicy::parse(Path::new("p.toml"), &text).unwrap()
    }

    fn account(policy: &ContextPolicy, conversation: &Conversation) -> Account {
        Account::of(&policy.apply(conversation), &Terms::default())
    }

    #[test]
    fn to_offload_by_writing_costs_more_unless_the_history_is_cleared_and_to_evict_costs_less() {
        let two = conversation(&[12_000, 12_000, 100, 100, 100]);
        let offload = |clears: bool| {
            let text =
                format!("[offload]\nabove_tokens = 5000\nread_back = 0.05\nclears = {clears}");
            account(&policy(&text), &two)
        };
        let evict = policy("[evict]\nabove_tokens = 5000\npreview_tokens = 500\nread_back = 0.05");
        let evict = account(&evict, &two);
        let inline = account(&policy("[inline]"), &two);
        // The context contains the content twice: as a result and as written content.
        assert!(offload(false).peak() > inline.peak() + 23_000);
        // While it is being saved, the context contains it twice; afterwards not at all.
        assert!(offload(true).peak() > 24_000);
        let last = |account: &Account| account.calls.last().unwrap().prompt;
        assert!(last(&offload(true)) < last(&inline) / 5);
        assert!(evict.peak() < 5_000, "{}", evict.peak());
        // `offload` adds two calls for each of two results, to save and to read back; `evict` adds one.
        let calls = [&inline, &evict, &offload(true)].map(|account| account.calls.len());
        assert_eq!(calls, [6, 8, 10]);
        assert!(offload(true).output() > inline.output() + 24_000);
        assert!(evict.output() < inline.output() + 200);
        assert!(offload(true).entering > inline.entering + 24_000);
    }

    #[test]
    fn a_budget_is_never_exceeded_and_the_oldest_go_first() {
        let three = conversation(&[600, 600, 600, 5000]);
        let recalled =
            policy("[recall]\nbudget_tokens = 1500\npreview_tokens = 100\nread_back = 0.0")
                .apply(&three);
        let rewritten: Vec<usize> = recalled
            .steps
            .iter()
            .map(|step| step.rewrites.iter().filter(|r| r.tokens > 0).count())
            .collect();
        // The fourth result exceeds the budget. Its receipt and 100 tokens leave room for two others.
        assert_eq!(rewritten, [0, 0, 0, 1, 0]);
        let shown = recalled.steps[4].enters[0];
        assert_eq!(shown.kind, PartKind::Receipt);
        assert!((105..150).contains(&shown.tokens), "{shown:?}");
        let written: u64 = recalled
            .steps
            .iter()
            .filter_map(|step| step.files.get("write"))
            .sum();
        assert_eq!(written, 2, "what is not in the context is in a file");
        let inline = account(&policy("[inline]"), &three);
        let recalled = Account::of(&recalled, &Terms::default());
        assert!(recalled.peak() < inline.peak());
        assert!(
            recalled.cached() < inline.cached(),
            "rewriting breaks prefixes"
        );
    }

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
        let memory = Part {
            bytes: 4 * notes,
            ..Part::new(PartKind::Memory, notes)
        };
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
        assert!(entering("memory-recall", 10) < entering(INLINE, 10) / 3);
    }

    #[test]
    fn policies_of_notes_are_left_out_and_refused_where_there_are_none() {
        let of_notes = ["memory-file", "memory-recall"].map(str::to_owned);
        let without = context_names_of(false);
        assert!(of_notes.iter().all(|name| !without.contains(name)));
        assert_eq!(context_names_of(true), context_names());
        let text = format!(
            "name = 'agent/x'\nessay = '{}'\nstates = ['hot']\ncontexts = ['memory-file']\n\
             [vsm_cycle]\ncycles = 1\ntasks = 1\nobservations = 1\nobservation_bytes = 100\nseed = 1\n",
            "e".repeat(80)
        );
        let parsed = crate::definition::Workload::parse(Path::new("x.toml"), &text, |_| {
            Err(std::io::ErrorKind::NotFound.into())
        });
        insta::assert_snapshot!(parsed.unwrap_err(), @"x.toml: field `contexts`: memory-file needs notes, which only a `[memory_session]` has");
    }

    #[test]
    fn a_policy_that_is_wrong_is_refused_with_file_line_and_field() {
        let error = |text: &str| {
            let text = format!("name = 'p'\nessay = 'e'\n{text}");
            ContextPolicy::parse(Path::new("p.toml"), &text)
                .unwrap_err()
                .to_string()
        };
        insta::assert_snapshot!(error("[inline]\n[evict]\nabove_tokens = 1\npreview_tokens = 1\nread_back = 0.1\n"), @"p.toml: needs exactly one of the tables `[inline]`, `[offload]`, `[evict]`, `[recall]`, `[memory_file]`, `[memory_recall]`");
        insta::assert_snapshot!(error("[inline]\nbudget = 1\n"), @"p.toml:4: field `inline.budget`: unknown field `budget`, there are no fields");
        insta::assert_snapshot!(error("[recall]\nbudget_tokens = -1\n"), @"p.toml:4: field `recall.budget_tokens`: invalid value: integer `-1`, expected u64");
        insta::assert_snapshot!(error("[evict]\nabove_tokens = 1\npreview_tokens = 1\nread_back = 1.5\n"), @"p.toml:6: field `evict.read_back`: 1.5 is not a share from 0 to 1");
        insta::assert_snapshot!(error("[offload]\nabove_tokens = 1\nread_back = 0.1\n"), @"p.toml:3: field `offload`: missing field `clears`");
        insta::assert_snapshot!(error("[memory_file]\nlimit_bytes = 0\n"), @"p.toml:4: field `memory_file.limit_bytes`: invalid value: integer `0`, expected a nonzero u64");
        insta::assert_snapshot!(error("[memory_recall]\nbudget_tokens = 500\n"), @"p.toml:3: field `memory_recall`: missing field `answer_tokens`");
        insta::assert_snapshot!(error("[memory_recall]\nbudget_tokens = 500\nanswer_tokens = 501\n"), @"p.toml:5: field `memory_recall.answer_tokens`: 501 is more than the budget of 500");
        let error = context("nonsense").unwrap_err().to_string();
        assert!(error.contains("inline, evict, memory-file"), "{error}");
    }

    #[test]
    fn every_built_in_policy_can_be_read_and_is_named_as_its_file() {
        let names = context_names();
        assert_eq!(names[0], INLINE);
        for name in &names {
            let policy = context(name).unwrap();
            assert_eq!(&policy.name, name);
            assert!(policy.essay.len() >= 80, "{name}");
        }
    }

    proptest! {
        #[test]
        fn inline_changes_nothing_and_small_results_are_left_alone(
            results in prop::collection::vec(0..4000u64, 0..12)
        ) {
            let conversation = conversation(&results);
            prop_assert_eq!(&policy("[inline]").apply(&conversation), &conversation);
            let evict = policy("[evict]\nabove_tokens = 4000\npreview_tokens = 9\nread_back = 0.5");
            prop_assert_eq!(&evict.apply(&conversation), &conversation);
            let recall = policy("[recall]\nbudget_tokens = 1000000\npreview_tokens = 100\nread_back = 0.0");
            prop_assert_eq!(&recall.apply(&conversation), &conversation);
        }

        #[test]
        fn thinking_stays_gone_under_every_policy(
            results in prop::collection::vec(0..9000u64, 0..12), clears: bool
        ) {
            let conversation = conversation(&results);
            let account = |conversation: &Conversation, thinking| {
                Account::of(conversation, &Terms { thinking, ..Terms::default() })
            };
            for text in [
                format!("[offload]\nabove_tokens = 3000\nread_back = 0.1\nclears = {clears}"),
                "[evict]\nabove_tokens = 3000\npreview_tokens = 100\nread_back = 0.1".to_owned(),
                "[recall]\nbudget_tokens = 5000\npreview_tokens = 100\nread_back = 0.1".to_owned(),
            ] {
                let applied = policy(&text).apply(&conversation);
                let thought = |conversation: &Conversation| {
                    let parts = conversation.parts().filter(|part| part.kind == PartKind::Thinking);
                    parts.map(|part| part.tokens).sum::<u64>()
                };
                prop_assert_eq!(thought(&applied), thought(&conversation));
                // The last prompt contains all earlier thinking, or none of it.
                let last = |thinking| account(&applied, thinking).calls.last().unwrap().prompt;
                let own = applied.steps.last().unwrap().emits.iter();
                let own = own.filter(|part| part.kind == PartKind::Thinking).map(|part| part.tokens);
                let kept = last(ThinkingStays::Always) - last(ThinkingStays::Never);
                prop_assert_eq!(kept, thought(&applied) - own.sum::<u64>());
            }
        }

        #[test]
        fn results_never_hold_more_than_the_budget(
            results in prop::collection::vec(0..9000u64, 0..12), budget in 500..6000u64
        ) {
            let text = format!("[recall]\nbudget_tokens = {budget}\npreview_tokens = 100\nread_back = 0.3");
            let recalled = policy(&text).apply(&conversation(&results));
            let account = Account::of(&recalled, &Terms::default());
            // Other tokens: 1,050 before the results, at most 60 of the model per call, two receipts of at
            // most 30 per result.
            for (at, call) in account.calls.iter().enumerate() {
                let others = 1050 + (60 + 60) * at as u64;
                prop_assert!(call.prompt <= budget + others, "call {}: {:?}", at, call);
            }
        }
    }

    #[test]
    fn to_save_json_is_to_write_it_with_every_quote_escaped() {
        let text = r#"{"title": "All hands", "attendees": ["Ann", "Hiro"]}"#.repeat(200);
        let mut conversation = conversation(&[0]);
        conversation.steps[1].enters = vec![crate::conversation::result_part(&text)];
        let offload = policy("[offload]\nabove_tokens = 1000\nread_back = 0.0\nclears = false");
        let saved = offload.apply(&conversation);
        let written = saved
            .parts()
            .find(|part| part.kind == PartKind::Content)
            .unwrap();
        let call = serde_json::json!({"name": "write_file", "input": {
            "file_path": "results/0001.txt", "content": text}});
        let whole = tokens::count(&call.to_string());
        assert!(
            written.tokens.abs_diff(whole) <= 3,
            "{} {whole}",
            written.tokens
        );
        assert!(whole > tokens::count(&text) * 105 / 100, "{whole}");
    }
}
