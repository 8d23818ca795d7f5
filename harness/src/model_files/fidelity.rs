//! How often a model says what a file really holds.

use std::time::{Duration, Instant};

use anyhow::bail;
use backends::llm::history::HistoryOptions;
use backends::llm::{Asker, HistoryStore};
use backends::store::{Caller, ROOT, Timestamp};
use models::Totals;
use serde::Serialize;

use super::history::live;
use super::{Plan, Repeats};
use crate::interrupt::Interrupt;

/// What was found at one length of histories.
#[derive(Debug, Default, Serialize)]
pub struct Fidelity {
    pub operations: u32,
    pub histories: u32,
    /// Files that are there and were asked for.
    pub reads: Vec<Read>,
    /// Files that were removed and asked for, and how many of them the model says are there.
    pub removed_asked: u32,
    pub removed_invented: u32,
    /// Answers to what names there are: names that are there and were named, that were not, and that are invented.
    pub names_right: u32,
    pub names_missing: u32,
    pub names_invented: u32,
    /// Questions without a usable answer, of any kind.
    pub unusable: u32,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub calls: u64,
    pub answer_ms: f64,
}

/// One file that was asked for.
#[derive(Debug, Serialize)]
pub struct Read {
    pub bytes: usize,
    /// Changes since the file was made.
    pub changes: u32,
    pub is_exact: bool,
    /// Bytes to insert, delete or replace; `None` without an answer.
    pub distance: Option<usize>,
}

pub(super) fn measure(
    plan: &Plan,
    length: u32,
    asker: &dyn Fn() -> Asker,
    totals: &mut Totals,
    validation: &mut Duration,
    repeats: &mut Repeats,
    interrupt: &Interrupt,
) -> anyhow::Result<Fidelity> {
    let mut found = Fidelity {
        operations: length,
        histories: plan.histories,
        ..Fidelity::default()
    };
    let mut part = Totals::default();
    for history in 0..plan.histories {
        let owner = Caller {
            uid: 0,
            gid: 0,
            now: Timestamp(0),
        };
        let store = HistoryStore::open(asker(), HistoryOptions::default(), None, &owner)?;
        let seed = plan.seed * 1000 + u64::from(history);
        let left = live(&store, length, seed)?;
        for (at, (name, changes)) in left.files.iter().take(plan.reads as usize).enumerate() {
            if interrupt.is_set() {
                bail!("interrupted");
            }
            eprint!(
                "\rfidelity: {length} operations, history {} of {}, file {} ",
                history + 1,
                plan.histories,
                at + 1
            );
            let attr = store.reference().lookup(ROOT, name.as_bytes())?;
            let mut right = Vec::new();
            store
                .reference()
                .read(attr.ino, 0, attr.size as usize, &mut right)?;
            let answer = timed(&store, validation, || store.ask_file(&format!("/{name}")));
            let content = answer
                .as_ref()
                .ok()
                .and_then(|answer| answer.content.clone());
            found.unusable += u32::from(answer.is_err());
            found.reads.push(Read {
                bytes: right.len(),
                changes: *changes,
                is_exact: content.as_deref() == Some(&right),
                distance: content.as_deref().map(|content| distance(content, &right)),
            });
            if at == 0
                && let Ok(first) = &answer
            {
                let again = store.ask_file(&format!("/{name}"));
                repeats.asked_twice += 1;
                repeats.equal +=
                    u32::from(again.is_ok_and(|again| again.reply.text == first.reply.text));
            }
        }
        if let Some(name) = left.removed.first() {
            found.removed_asked += 1;
            match store.ask_file(&format!("/{name}")) {
                Ok(answer) => found.removed_invented += u32::from(answer.content.is_some()),
                Err(_) => found.unusable += 1,
            }
        }
        match store.ask_listing() {
            Ok(named) => {
                let named: std::collections::BTreeSet<&str> = named
                    .iter()
                    .map(|name| name.trim_start_matches('/'))
                    .collect();
                let there = |name: &str| left.files.iter().any(|(file, _)| file == name);
                let right = named.iter().filter(|name| there(name)).count() as u32;
                found.names_right += right;
                found.names_missing += left.files.len() as u32 - right;
                found.names_invented += named.len() as u32 - right;
            }
            Err(_) => found.unusable += 1,
        }
        add(&mut part, &store.asker().meter().totals());
    }
    eprintln!();
    found.prompt_tokens = part.prompt_tokens;
    found.output_tokens = part.output_tokens;
    found.calls = part.calls;
    found.answer_ms = part.total.as_secs_f64() * 1000.0 / part.calls.max(1) as f64;
    add(totals, &part);
    Ok(found)
}

/// Does `ask`, and adds the time that was neither the model's nor its queue's.
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

fn add(to: &mut Totals, more: &Totals) {
    to.calls += more.calls;
    to.failures += more.failures;
    to.prompt_tokens += more.prompt_tokens;
    to.output_tokens += more.output_tokens;
    to.queue += more.queue;
    to.first_byte += more.first_byte;
    to.total += more.total;
}

/// Levenshtein's distance of two byte strings.
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
    use super::*;

    #[test]
    fn the_distance_is_levenshteins() {
        assert_eq!(distance(b"kitten", b"sitting"), 3);
        assert_eq!((distance(b"", b"abc"), distance(b"abc", b"")), (3, 3));
        assert_eq!(distance(b"same", b"same"), 0);
    }
}
