//! Context policies: which tool results and notes an agent keeps in its context, and which ones in files.
//! A policy turns the `inline` conversation, which keeps every result, into the same session under the policy.
//! The policy's file states the assumed share of a stored result that is read back.

mod memory;
mod results;
mod rewriter;

use std::path::Path;

use include_dir::{Dir, include_dir};
use serde::Deserialize;
use tokens::Conversation;

use crate::built_in;
use inputs::{InputError, parse_toml};
pub use memory::RECALL_TOOL;
use memory::{MemoryFile, MemoryRecall};
use results::{Evict, EvictOldest, Offload};
use rewriter::Rewriter;

static CONTEXTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/contexts");

/// The policy that keeps everything.
pub const INLINE: &str = "inline";

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
    evict_oldest: Option<EvictOldest>,
    memory_file: Option<MemoryFile>,
    memory_recall: Option<MemoryRecall>,
}

/// Every result stays in the context.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Inline {}

#[derive(Clone, Debug, PartialEq)]
enum Keep {
    Inline,
    Offload(Offload),
    Evict(Evict),
    EvictOldest(EvictOldest),
    MemoryFile(MemoryFile),
    MemoryRecall(MemoryRecall),
}

/// The names of all built-in context policies; `inline` first.
pub fn context_names() -> Vec<String> {
    let mut names = built_in::stems(&CONTEXTS);
    names.sort_by_key(|name| name != INLINE);
    names
}

/// The names of the built-in context policies that fit a session, which may have notes of earlier ones.
pub fn context_names_of(has_notes: bool) -> Vec<String> {
    let mut names = context_names();
    names.retain(|name| has_notes || context(name).is_ok_and(|policy| !policy.needs_notes()));
    names
}

/// The built-in context policy called `name`, or the one in the file at that path.
///
/// # Errors
/// [`InputError`] if the policy does not exist or is malformed.
pub fn context(name: &str) -> Result<ContextPolicy, InputError> {
    let found = built_in::file(&CONTEXTS, "contexts", name);
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
            read.evict_oldest.map(Keep::EvictOldest),
            read.memory_file.map(Keep::MemoryFile),
            read.memory_recall.map(Keep::MemoryRecall),
        ];
        let mut tables = tables.into_iter().flatten();
        let (Some(keep), None) = (tables.next(), tables.next()) else {
            let message = "needs exactly one of the tables `[inline]`, `[offload]`, `[evict]`, `[evict_oldest]`, `[memory_file]`, `[memory_recall]`";
            return Err(InputError::whole(file, message));
        };
        let wrong = match &keep {
            Keep::Offload(Offload { read_back, .. }) => not_a_share("offload", *read_back),
            Keep::Evict(Evict { read_back, .. }) => not_a_share("evict", *read_back),
            Keep::EvictOldest(EvictOldest { read_back, .. }) => not_a_share("evict_oldest", *read_back),
            Keep::MemoryRecall(recall) => recall.too_large(),
            Keep::Inline | Keep::MemoryFile(_) => None,
        };
        if let Some((field, message)) = wrong {
            let mut lines = (1..).zip(text.lines());
            return Err(InputError {
                file: file.to_owned(),
                line: lines.find(|(_, line)| line.trim_start().starts_with(field)).map(|(number, _)| number),
                message,
            });
        }
        Ok(Self { name: read.name, essay: read.essay.trim().to_owned(), keep })
    }

    /// Whether it says how notes of earlier sessions get into the context. It fits no session without notes.
    pub fn needs_notes(&self) -> bool {
        matches!(self.keep, Keep::MemoryFile(_) | Keep::MemoryRecall(_))
    }

    /// The conversation of the same session under this policy.
    pub fn apply(&self, inline: &Conversation) -> Conversation {
        let mut rewriter = Rewriter::default();
        for step in &inline.steps {
            rewriter.model.clone_from(&step.model);
            match &self.keep {
                Keep::Inline => rewriter.keep(step),
                Keep::Offload(offload) => rewriter.offload(step, offload),
                Keep::Evict(evict) => rewriter.evict(step, evict),
                Keep::EvictOldest(evict) => rewriter.evict_oldest(step, evict),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokens::{Account, FixedOrigin, Part, PartKind, Step, Terms, ThinkingRetention};

    pub(super) fn conversation(results: &[u64]) -> Conversation {
        let mut steps: Vec<Step> = vec![Step {
            enters: vec![Part::new(PartKind::User, 50)],
            emits: vec![Part::new(PartKind::Arguments, 30)],
            ..Step::default()
        }];
        for tokens in results {
            steps.push(Step {
                gap_ms: 1000,
                enters: vec![Part::new(PartKind::Result, *tokens)],
                emits: vec![Part::new(PartKind::Thinking, 7), Part::new(PartKind::Arguments, 30)],
                ..Step::default()
            });
        }
        Conversation { fixed: 1000, fixed_is: FixedOrigin::Stated, steps, ..Conversation::default() }
    }

    pub(super) fn policy(text: &str) -> ContextPolicy {
        let text = format!("name = 'p'\nessay = 'e'\n{text}\n");
        ContextPolicy::parse(Path::new("p.toml"), &text).unwrap()
    }

    pub(super) fn account(policy: &ContextPolicy, conversation: &Conversation) -> Account {
        Account::of(&policy.apply(conversation), &Terms::default())
    }

    #[test]
    fn to_offload_by_writing_costs_more_unless_the_history_is_cleared_and_to_evict_costs_less() {
        let two = conversation(&[12_000, 12_000, 100, 100, 100]);
        let offload = |clears: bool| {
            let text = format!("[offload]\nabove_tokens = 5000\nread_back = 0.05\nclears = {clears}");
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
    fn the_steps_of_every_policy_have_the_model_of_the_recorded_step() {
        let mut inline = conversation(&[9000, 9000]);
        inline.steps[2].model = "other".to_owned();
        for name in context_names_of(false) {
            let steps = context(&name).unwrap().apply(&inline).steps;
            let models: Vec<&str> = steps.iter().map(|step| step.model.as_str()).collect();
            let first = models.iter().position(|model| *model == "other").unwrap();
            let is_whole = first >= 2 && models[..first].iter().all(|model| model.is_empty());
            assert!(is_whole && models[first..].iter().all(|model| *model == "other"), "{name}: {models:?}");
        }
    }

    #[test]
    fn a_budget_is_never_exceeded_and_the_oldest_go_first() {
        let three = conversation(&[600, 600, 600, 5000]);
        let evicted =
            policy("[evict_oldest]\nbudget_tokens = 1500\npreview_tokens = 100\nread_back = 0.0").apply(&three);
        let rewritten: Vec<usize> =
            evicted.steps.iter().map(|step| step.rewrites.iter().filter(|r| r.tokens > 0).count()).collect();
        // The fourth result exceeds the budget. Its receipt and 100 tokens leave room for two others.
        assert_eq!(rewritten, [0, 0, 0, 1, 0]);
        let shown = evicted.steps[4].enters[0];
        assert_eq!(shown.kind, PartKind::Receipt);
        assert!((105..150).contains(&shown.tokens), "{shown:?}");
        let written: u64 = evicted.steps.iter().filter_map(|step| step.files.get("write")).sum();
        assert_eq!(written, 2, "what is not in the context is in a file");
        let inline = account(&policy("[inline]"), &three);
        let evicted = Account::of(&evicted, &Terms::default());
        assert!(evicted.peak() < inline.peak());
        assert!(evicted.cached() < inline.cached(), "rewriting breaks prefixes");
    }

    #[test]
    fn policies_of_notes_are_left_out_and_refused_where_there_are_none() {
        let of_notes = ["memory-file", "memory-recall", "memory-recall-meaning"].map(str::to_owned);
        let without = context_names_of(false);
        assert!(of_notes.iter().all(|name| !without.contains(name)));
        assert_eq!(context_names_of(true), context_names());
        let text = format!(
            "name = 'agent/x'\nessay = '{}'\nstates = ['hot']\ncontexts = ['memory-file']\n\
             [vsm_cycle]\ncycles = 1\ntasks = 1\nobservations = 1\nobservation_bytes = 100\nseed = 1\n",
            "e".repeat(80)
        );
        let parsed =
            crate::definition::Workload::parse(
                Path::new("x.toml"),
                &text,
                |_| Err(std::io::ErrorKind::NotFound.into()),
            );
        insta::assert_snapshot!(parsed.unwrap_err(), @"x.toml: field `contexts`: memory-file needs notes, which only a `[memory_session]` has");
    }

    #[test]
    fn a_policy_that_is_wrong_is_refused_with_file_line_and_field() {
        let error = |text: &str| {
            let text = format!("name = 'p'\nessay = 'e'\n{text}");
            ContextPolicy::parse(Path::new("p.toml"), &text).unwrap_err().to_string()
        };
        insta::assert_snapshot!(error("[inline]\n[evict]\nabove_tokens = 1\npreview_tokens = 1\nread_back = 0.1\n"), @"p.toml: needs exactly one of the tables `[inline]`, `[offload]`, `[evict]`, `[evict_oldest]`, `[memory_file]`, `[memory_recall]`");
        insta::assert_snapshot!(error("[inline]\nbudget = 1\n"), @"p.toml:4: field `inline.budget`: unknown field `budget`, there are no fields");
        insta::assert_snapshot!(error("[evict_oldest]\nbudget_tokens = -1\n"), @"p.toml:4: field `evict_oldest.budget_tokens`: invalid value: integer `-1`, expected u64");
        insta::assert_snapshot!(error("[evict]\nabove_tokens = 1\npreview_tokens = 1\nread_back = 1.5\n"), @"p.toml:6: field `evict.read_back`: 1.5 is not a share from 0 to 1");
        insta::assert_snapshot!(error("[offload]\nabove_tokens = 1\nread_back = 0.1\n"), @"p.toml:3: field `offload`: missing field `clears`");
        insta::assert_snapshot!(error("[memory_file]\nlimit_bytes = 0\n"), @"p.toml:4: field `memory_file.limit_bytes`: invalid value: integer `0`, expected a nonzero u64");
        insta::assert_snapshot!(error("[memory_recall]\nbudget_tokens = 500\n"), @"p.toml:3: field `memory_recall`: missing field `answer_tokens`");
        insta::assert_snapshot!(error("[memory_recall]\nbudget_tokens = 500\nanswer_tokens = 501\n"), @"p.toml:5: field `memory_recall.answer_tokens`: 501 is more than the budget of 500");
        let error = context("nonsense").unwrap_err().to_string();
        assert!(error.contains("inline, evict, evict-oldest, memory-file"), "{error}");
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
            let evict = policy("[evict_oldest]\nbudget_tokens = 1000000\npreview_tokens = 100\nread_back = 0.0");
            prop_assert_eq!(&evict.apply(&conversation), &conversation);
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
                "[evict_oldest]\nbudget_tokens = 5000\npreview_tokens = 100\nread_back = 0.1".to_owned(),
            ] {
                let applied = policy(&text).apply(&conversation);
                let thought = |conversation: &Conversation| {
                    let parts = conversation.parts().filter(|part| part.kind == PartKind::Thinking);
                    parts.map(|part| part.tokens).sum::<u64>()
                };
                prop_assert_eq!(thought(&applied), thought(&conversation));
                // The last prompt contains all earlier thinking, or none of it.
                let last = |thinking| account(&applied, thinking).calls.last().unwrap().prompt;
                let emitted = applied.steps.last().unwrap().emits.iter();
                let emitted = emitted.filter(|part| part.kind == PartKind::Thinking).map(|part| part.tokens);
                let kept = last(ThinkingRetention::Always) - last(ThinkingRetention::Never);
                prop_assert_eq!(kept, thought(&applied) - emitted.sum::<u64>());
            }
        }

        #[test]
        fn results_never_hold_more_than_the_budget(
            results in prop::collection::vec(0..9000u64, 0..12), budget in 500..6000u64
        ) {
            let text = format!("[evict_oldest]\nbudget_tokens = {budget}\npreview_tokens = 100\nread_back = 0.3");
            let evicted = policy(&text).apply(&conversation(&results));
            let account = Account::of(&evicted, &Terms::default());
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
        let written = saved.parts().find(|part| part.kind == PartKind::Content).unwrap();
        let call = serde_json::json!({"name": "write_file", "input": {
            "file_path": "results/0001.txt", "content": text}});
        let whole = tokens::count(&call.to_string());
        assert!(written.tokens.abs_diff(whole) <= 3, "{} {whole}", written.tokens);
        assert!(whole > tokens::count(&text) * 105 / 100, "{whole}");
    }
}
