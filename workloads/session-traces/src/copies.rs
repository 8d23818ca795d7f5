//! Copies in several sessions. A recording can be an earlier state of another one, which then counts alone. A resumed or
//! forked session begins with the history of another one: each answer and each call counts in the first session that has
//! it.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::{ImportedSession, RecordedEvent};
use workloads::trace::TokenUsage;

/// A hash of a record, or of all records so far.
type RecordHash = u64;

/// The records of the sessions that were read, each with the session that counts it. Sessions are numbered from 0.
#[derive(Default)]
pub struct KnownCalls {
    answers: HashMap<RecordHash, usize>,
    calls: HashMap<RecordHash, usize>,
    /// The first records of each session, for each number of them.
    beginnings: HashMap<RecordHash, usize>,
    /// The number of events of each session.
    lengths: Vec<usize>,
    /// The sessions with these records, and no others.
    wholes: HashMap<RecordHash, Vec<usize>>,
    /// The later state of a session that is an earlier one.
    later: HashMap<usize, usize>,
}

/// A session that those before it do not contain.
pub struct AddedSession {
    /// Its number, from 0.
    pub number: usize,
    /// The answers and calls that count in another session.
    pub copied: u64,
}

/// The records of a session.
struct Records {
    /// For each record: the hash of it and all before it.
    beginnings: Vec<RecordHash>,
    /// For each answer with a time: the same, by its time alone. The end of a recording can cut the answer off.
    cut: Vec<RecordHash>,
}

impl KnownCalls {
    /// Adds a session, and removes what sessions before it have. `None` if all of the session is an earlier state of another
    /// one, or a copy.
    pub fn add(&mut self, session: &mut ImportedSession) -> Option<AddedSession> {
        let number = self.lengths.len();
        let length = session.events.len();
        self.lengths.push(length);
        let records = Records::of(session);
        let ends: Vec<RecordHash> =
            [records.beginnings.last(), records.cut.last()].into_iter().flatten().copied().collect();
        // Of two states with the same last answer, the longer one is the later one.
        let of_later = |end: &RecordHash| self.beginnings.get(end).filter(|other| self.lengths[**other] >= length);
        if let Some(other) = ends.iter().find_map(of_later) {
            self.later.insert(number, *other);
            return None;
        }
        for beginning in records.beginnings.iter().chain(&records.cut) {
            for earlier in self.wholes.get(beginning).into_iter().flatten() {
                if self.later_state(*earlier) != number {
                    self.later.insert(self.later_state(*earlier), number);
                }
            }
        }
        for end in ends {
            self.wholes.entry(end).or_default().push(number);
        }
        self.beginnings.extend(records.beginnings.into_iter().chain(records.cut).map(|hash| (hash, number)));
        Some(AddedSession { number, copied: self.remove_copies(session, number) })
    }

    /// The last state of a session.
    fn later_state(&self, session: usize) -> usize {
        let mut last = session;
        while let Some(later) = self.later.get(&last) {
            last = *later;
        }
        last
    }

    /// The number of recordings that are earlier states of a session; `None` if it is one itself.
    pub fn earlier_states(&self, session: usize) -> Option<usize> {
        let states = self.later.keys().filter(|earlier| self.later_state(**earlier) == session);
        (!self.later.contains_key(&session)).then(|| states.count())
    }

    /// Whether another session counts a record.
    fn is_of_another(&self, owner: Option<&usize>, number: usize) -> bool {
        owner.is_some_and(|owner| self.later_state(*owner) != number)
    }

    /// Removes the answers and calls that other sessions have. A copy keeps its time; without times, nothing tells a copy
    /// from another call with the same words.
    fn remove_copies(&mut self, session: &mut ImportedSession, number: usize) -> u64 {
        let Some(started) = session.started_ms else {
            return 0;
        };
        let mut own = Self::default();
        let mut removed = 0;
        let mut removed_calls = HashSet::new();
        let mut removed_usage: Vec<(Arc<str>, TokenUsage)> = Vec::new();
        // The number of answers that were removed before each answer.
        let mut before: Vec<u64> = Vec::new();
        let mut removed_answers = 0;
        session.events.retain(|event| {
            let Some(key) = record(event, started) else {
                return true;
            };
            let is_copy = match event {
                RecordedEvent::Api { usage, model, .. } => {
                    before.push(removed_answers);
                    let is_copy = *usage != TokenUsage::default() && self.is_of_another(self.answers.get(&key), number);
                    if is_copy {
                        removed_answers += 1;
                        removed_usage.push((model.clone(), *usage));
                    } else {
                        own.answers.insert(key, number);
                    }
                    is_copy
                }
                RecordedEvent::Call(call) => {
                    let is_copy = self.is_of_another(self.calls.get(&key), number);
                    if is_copy {
                        removed_calls.insert(call.id.clone());
                    } else {
                        own.calls.insert(key, number);
                    }
                    is_copy
                }
                _ => false,
            };
            removed += u64::from(is_copy);
            !is_copy
        });
        for event in &mut session.events {
            if let RecordedEvent::Call(call) = event {
                let gone = before.get(call.api as usize).copied().unwrap_or(0);
                call.api = call.api.saturating_sub(gone);
            }
        }
        let is_of_removed = |event: &RecordedEvent| match event {
            RecordedEvent::Result(result) => removed_calls.contains(&result.id),
            _ => false,
        };
        session.events.retain(|event| !is_of_removed(event));
        session.unplaced.retain(|one| {
            let key = hash(&("unplaced", time(started, one.at), &one.model, counts(one.tokens.tokens())));
            let is_copy = self.is_of_another(self.answers.get(&key), number);
            own.answers.entry(key).or_insert(number);
            removed += u64::from(is_copy);
            !is_copy
        });
        // What the source states of the whole session includes the copies.
        for (model, usage) in removed_usage {
            let of_model = session.totals.iter_mut().filter(|total| *total.model == *model);
            of_model.filter_map(|total| total.usage.as_mut()).for_each(|total| *total = less(total, &usage));
        }
        self.answers.extend(own.answers);
        self.calls.extend(own.calls);
        removed
    }
}

impl Records {
    fn of(session: &ImportedSession) -> Self {
        // Sessions with names of their own are not each other's states.
        let mut so_far = hash(&("session", &session.identity));
        let mut records = Self { beginnings: Vec::new(), cut: Vec::new() };
        let started = session.started_ms;
        for event in &session.events {
            let Some(key) = record(event, started.unwrap_or(0)) else {
                continue;
            };
            if let (RecordedEvent::Api { at, model, .. }, Some(started)) = (event, started) {
                records.cut.push(hash(&(so_far, time(started, *at), model)));
            }
            so_far = hash(&(so_far, key));
            records.beginnings.push(so_far);
        }
        if records.beginnings.is_empty() {
            let stated = format!("{:?} {:?}", session.totals, session.unplaced);
            records.beginnings.push(hash(&(so_far, stated)));
        }
        records
    }
}

/// The hash of a record; `None` for a result, which belongs to its call.
fn record(event: &RecordedEvent, started: i64) -> Option<RecordHash> {
    Some(match event {
        RecordedEvent::Api { at, usage, model, text, .. } => {
            hash(&("answer", time(started, *at), model, counts(usage), text.load().unwrap_or_default()))
        }
        RecordedEvent::Call(call) => {
            hash(&("call", time(started, call.at), &call.id, &call.tool, call.args.load().unwrap_or_default()))
        }
        RecordedEvent::User { text, .. } => hash(&("user", text.load().unwrap_or_default())),
        RecordedEvent::Compact { pre_tok } => hash(&("compact", pre_tok)),
        RecordedEvent::Inherited { tokens } => hash(&("inherited", tokens)),
        RecordedEvent::Result(_) => return None,
    })
}

fn hash(record: &impl Hash) -> RecordHash {
    let mut hasher = DefaultHasher::new();
    record.hash(&mut hasher);
    hasher.finish()
}

/// A time since the session's start, in milliseconds since the Unix epoch.
fn time(started: i64, at: u64) -> i64 {
    started.saturating_add(i64::try_from(at).unwrap_or(i64::MAX))
}

fn counts(usage: &TokenUsage) -> [u64; 6] {
    let TokenUsage { uncached, cache_read, cache_write_5m, cache_write_1h, output, reasoning } = *usage;
    [uncached, cache_read, cache_write_5m, cache_write_1h, output, reasoning]
}

/// What a total has beyond a part of it.
fn less(total: &TokenUsage, part: &TokenUsage) -> TokenUsage {
    TokenUsage {
        uncached: total.uncached.saturating_sub(part.uncached),
        cache_read: total.cache_read.saturating_sub(part.cache_read),
        cache_write_5m: total.cache_write_5m.saturating_sub(part.cache_write_5m),
        cache_write_1h: total.cache_write_1h.saturating_sub(part.cache_write_1h),
        output: total.output.saturating_sub(part.output),
        reasoning: total.reasoning.saturating_sub(part.reasoning),
    }
}
