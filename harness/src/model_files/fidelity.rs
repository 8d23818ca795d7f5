//! Measures how often a model returns the correct content of a file.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use fuse::store::{Errno, ROOT, StoreError};
use llm::history::HistoryOptions;
use llm::{Asker, HistoryStore};
use models::Totals;
use rundir::{LengthResult, ModelFilesPlan, ModelRead, Repeats};
use tracing::subscriber::{NoSubscriber, with_default};

use super::history::{OWNER, live};
use crate::progress_line::ProgressLine;
use trial::interrupt::Interrupt;

/// The outcome of a question.
enum QuestionOutcome<T> {
    Answer(T),
    Unusable,
    Unanswered,
}

impl<T> QuestionOutcome<T> {
    fn answer(self) -> Option<T> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Unusable | Self::Unanswered => None,
        }
    }
}

/// Asks a question and counts its outcome.
/// Fails if the budget is spent.
fn ask<T>(
    found: &mut LengthResult,
    store: &HistoryStore,
    interrupt: &Interrupt,
    ask: impl FnOnce() -> Result<T, StoreError>,
) -> anyhow::Result<QuestionOutcome<T>> {
    // A slow model takes tens of seconds for one answer.
    if interrupt.is_set() {
        bail!("interrupted");
    }
    let answers = || store.asker().meter().totals().calls;
    let before = answers();
    // The page reports what could not be used, and why; the store's warnings would only repeat it on the screen.
    match with_default(NoSubscriber::default(), ask) {
        Ok(answer) => Ok(QuestionOutcome::Answer(answer)),
        Err(error) if error.errno == Errno::DQUOT => Err(error.into()),
        Err(_) if answers() > before => {
            found.unusable += 1;
            Ok(QuestionOutcome::Unusable)
        }
        Err(error) => {
            found.unanswered += 1;
            found.unanswered_because.get_or_insert_with(|| error.to_string());
            Ok(QuestionOutcome::Unanswered)
        }
    }
}

/// Figures of all lengths together.
#[derive(Default)]
pub(super) struct Sums {
    pub(super) totals: Totals,
    /// Time outside the model and its queue.
    pub(super) validation: Duration,
    pub(super) repeats: Repeats,
}

pub(super) fn measure(
    plan: &ModelFilesPlan,
    length: u32,
    asker: &dyn Fn() -> Asker,
    sums: &mut Sums,
    interrupt: &Interrupt,
) -> anyhow::Result<LengthResult> {
    let mut found = LengthResult { operations: length, histories: plan.histories, ..LengthResult::default() };
    let line = ProgressLine::still();
    let mut before = None;
    let mut after = Totals::default();
    for history in 0..plan.histories {
        let store = HistoryStore::open(asker(), HistoryOptions::default(), None, &OWNER)?;
        before.get_or_insert_with(|| store.asker().meter().totals());
        let seed = plan.seed * 1000 + u64::from(history);
        let left = live(&store, length, seed)?;
        for (at, (name, changes)) in left.files.iter().take(plan.reads as usize).enumerate() {
            let what = format!(
                "llm-history: {length} operations, history {} of {}, file {}",
                history + 1,
                plan.histories,
                at + 1
            );
            let share = f64::from(history) / f64::from(plan.histories.max(1));
            line.show(share, None, &what);
            let reference = store.reference();
            let attr = reference.lookup(ROOT, name.as_bytes())?;
            let mut right = Vec::new();
            reference.read(attr.ino, 0, attr.size as usize, &mut right)?;
            let asked = timed(&store, &mut sums.validation, || {
                ask(&mut found, &store, interrupt, || store.ask_file(&format!("/{name}")))
            })?;
            if let QuestionOutcome::Unanswered = asked {
                continue;
            }
            let answer = asked.answer();
            let content = answer.as_ref().and_then(|answer| answer.content.clone());
            found.reads.push(ModelRead {
                bytes: right.len(),
                changes: *changes,
                is_exact: content.as_deref() == Some(&right),
                distance: content.as_deref().map(|content| distance(content, &right)),
            });
            if at == 0
                && let Some(first) = &answer
                && !interrupt.is_set()
                && let Ok(again) = store.ask_file(&format!("/{name}"))
            {
                sums.repeats.asked_twice += 1;
                sums.repeats.equal += u32::from(again.reply.text == first.reply.text);
            }
        }
        if let Some(name) = left.removed.first() {
            let asked = ask(&mut found, &store, interrupt, || store.ask_file(&format!("/{name}")))?;
            found.removed_asked += u32::from(!matches!(asked, QuestionOutcome::Unanswered));
            if let Some(answer) = asked.answer() {
                found.removed_invented += u32::from(answer.content.is_some());
            }
        }
        if let Some(named) = ask(&mut found, &store, interrupt, || store.ask_listing())?.answer() {
            let named = named.iter().map(|name| name.trim_start_matches('/'));
            let named: BTreeSet<&str> = named.collect();
            let there = |name: &str| left.files.iter().any(|(file, _)| file == name);
            let right = named.iter().filter(|name| there(name)).count() as u32;
            found.names_right += right;
            found.names_missing += left.files.len() as u32 - right;
            found.names_invented += named.len() as u32 - right;
        }
        after = store.asker().meter().totals();
    }
    let part = since(&before.unwrap_or_default(), &after);
    found.prompt_tokens = part.prompt_tokens;
    found.output_tokens = part.output_tokens;
    found.calls = part.calls;
    found.answer_ms = part.total.as_secs_f64() * 1000.0 / part.calls.max(1) as f64;
    sums.totals = after;
    Ok(found)
}

/// Runs `ask` and adds its time without the model and its queue to `validation`.
fn timed<T>(store: &HistoryStore, validation: &mut Duration, ask: impl FnOnce() -> T) -> T {
    let meter = store.asker().meter();
    let before = meter.totals();
    let started = Instant::now();
    let done = ask();
    let took = started.elapsed();
    let after = meter.totals();
    let models = (after.total + after.queue).saturating_sub(before.total + before.queue);
    if after.calls > before.calls {
        *validation += took.saturating_sub(models);
    }
    done
}

/// The difference of two totals of one meter, in the fields that reports show.
fn since(before: &Totals, after: &Totals) -> Totals {
    Totals {
        calls: after.calls - before.calls,
        prompt_tokens: after.prompt_tokens - before.prompt_tokens,
        output_tokens: after.output_tokens - before.output_tokens,
        total: after.total.saturating_sub(before.total),
        ..Totals::default()
    }
}

/// The Levenshtein distance of two byte strings.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use llm::AskerOptions;
    use models::{Budget, Cancel, Finish, Meter, Model, ModelError, Origin, Reply, Request, Timing, Usage};

    use super::*;

    #[test]
    fn distance_computes_the_levenshtein_distance() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!((distance(b"", b"abc"), distance(b"abc", b"")), (3, 3));
        assert_eq!(distance(b"same", b"same"), 0);
    }

    /// A model that answers every second question unusably and the others not at all.
    struct FailingModel(std::sync::atomic::AtomicUsize);

    impl Model for FailingModel {
        fn name(&self) -> &str {
            "failing"
        }

        fn complete(&self, _: &Request, _: &Cancel) -> Result<Reply, ModelError> {
            let number = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number % 2 == 1 {
                return Err(ModelError::Unreachable { url: "nowhere".to_owned(), why: "it has gone".to_owned() });
            }
            Ok(Reply {
                text: "no JSON".to_owned(),
                finish: Finish::Stop,
                usage: Usage::default(),
                timing: Timing::default(),
                origin: Origin::Simulated,
                has_own_sampling: false,
            })
        }
    }

    #[test]
    fn a_failed_provider_does_not_count_as_a_wrong_answer() {
        let failing = FailingModel(std::sync::atomic::AtomicUsize::new(0));
        let meter = Arc::new(Meter::new(Box::new(failing), None, Budget::default(), 1));
        let asker = || Asker::new(Arc::clone(&meter), AskerOptions::default(), None);
        let plan = ModelFilesPlan { lengths: vec![10], histories: 2, reads: 2, seed: 1, is_brief: false };
        let mut sums = Sums::default();
        let found = measure(&plan, 10, &asker, &mut sums, &Interrupt::never()).unwrap();
        assert_eq!(found.calls, u64::from(found.unusable), "what was answered could not be used");
        assert!(found.unanswered > 0 && found.unusable > 0, "{found:?}");
        assert!(found.reads.len() as u32 <= found.unusable, "no failure is a read: {found:?}");
        assert!(found.unanswered_because.unwrap().contains("it has gone"));
        assert_eq!(sums.repeats.asked_twice, 0);
    }
}
