//! Copies in several sessions: a resumed or forked session of Claude Code begins with the history of another one. Each
//! answer and each call counts in the first session that has it.

use std::collections::HashSet;

use importers::{ImportedSession, Recorded};
use workloads::trace::TokenUsage;

/// The answers and calls of the sessions that were read. A copy keeps its time.
#[derive(Default)]
pub struct KnownCalls {
    answers: HashSet<(i64, String, [u64; 6])>,
    calls: HashSet<(i64, String)>,
}

impl KnownCalls {
    /// Removes what sessions before this one have. Returns the number of answers and calls that were removed.
    pub fn remove_copies(&mut self, session: &mut ImportedSession) -> u64 {
        let Some(started) = session.started_ms else {
            return 0;
        };
        let time = |at: u64| started.saturating_add(i64::try_from(at).unwrap_or(i64::MAX));
        let mut own = Self::default();
        let mut removed = 0;
        let mut removed_calls = HashSet::new();
        // The number of answers that were removed before each answer.
        let mut before: Vec<u64> = Vec::new();
        let mut removed_answers = 0;
        session.events.retain(|event| {
            let is_copy = match event {
                Recorded::Api { at, usage, model, .. } => {
                    before.push(removed_answers);
                    let key = (time(*at), model.clone(), counts(usage));
                    let is_copy = *usage != TokenUsage::default() && self.answers.contains(&key);
                    removed_answers += u64::from(is_copy);
                    own.answers.insert(key);
                    is_copy
                }
                Recorded::Call(call) => {
                    let key = (time(call.at), call.id.clone());
                    let is_copy = self.calls.contains(&key);
                    if is_copy {
                        removed_calls.insert(call.id.clone());
                    }
                    own.calls.insert(key);
                    is_copy
                }
                Recorded::Result(_) | Recorded::User { .. } | Recorded::Compact { .. } => false,
            };
            removed += u64::from(is_copy);
            !is_copy
        });
        for event in &mut session.events {
            if let Recorded::Call(call) = event {
                let gone = before.get(call.api as usize).copied().unwrap_or(0);
                call.api = call.api.saturating_sub(gone);
            }
        }
        let is_of_removed =
            |event: &Recorded| matches!(event, Recorded::Result(result) if removed_calls.contains(&result.id));
        session.events.retain(|event| !is_of_removed(event));
        self.answers.extend(own.answers);
        self.calls.extend(own.calls);
        removed
    }
}

fn counts(usage: &TokenUsage) -> [u64; 6] {
    let TokenUsage { uncached, cache_read, cache_write_5m, cache_write_1h, output, reasoning } = *usage;
    [uncached, cache_read, cache_write_5m, cache_write_1h, output, reasoning]
}
