//! Exact counts of two runs: requests, system calls, and the stores' own counters, each a call.

use std::collections::BTreeMap;

use rundir::{Counted, Run};
use serde::Serialize;

use crate::summary::void;

/// A count that differs between two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct CountChange {
    pub arm: String,
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The name of the count, per call.
    pub name: String,
    /// The old count a call.
    pub old: f64,
    pub new: f64,
    /// Whether all epochs of each run have the same count. Background work makes others vary.
    pub is_exact: bool,
}

impl CountChange {
    /// Whether an exact count has risen.
    pub fn is_worse(&self) -> bool {
        self.is_exact && self.new > self.old
    }
}

/// The arm, workload, state and name of a count.
type CountKey = (String, String, String, String);

/// Counts a call, one for each valid epoch.
fn by_epoch(run: &Run) -> BTreeMap<CountKey, Vec<f64>> {
    let void = void(run);
    let mut all: BTreeMap<CountKey, Vec<f64>> = BTreeMap::new();
    for cell in run.cells.iter().filter(|cell| !void.contains(&cell.epoch)) {
        if cell.counted.calls == 0 {
            continue;
        }
        for (name, count) in named(&cell.counted) {
            let key = (
                cell.arm.clone(),
                cell.workload.clone(),
                cell.state.clone(),
                name,
            );
            let a_call = count as f64 / cell.counted.calls as f64;
            all.entry(key).or_default().push(a_call);
        }
    }
    all
}

fn named(counted: &Counted) -> Vec<(String, u64)> {
    let mut named = vec![("system calls".to_owned(), counted.system_calls)];
    if let Some(daemon) = &counted.daemon {
        named.push(("requests".to_owned(), daemon.requests()));
        named.extend(
            daemon
                .store
                .iter()
                .map(|(name, count)| (name.clone(), *count)),
        );
    }
    named
}

/// The counts that differ, the exact ones first.
pub(super) fn counts(old: &Run, new: &Run) -> Vec<CountChange> {
    let (before, after) = (by_epoch(old), by_epoch(new));
    let is_exact = |epochs: &[f64]| epochs.windows(2).all(|pair| pair[0] == pair[1]);
    let mean = |epochs: &[f64]| epochs.iter().sum::<f64>() / epochs.len() as f64;
    let mut changes: Vec<CountChange> = before
        .into_iter()
        .filter_map(|(key, old)| {
            let new = after.get(&key)?;
            let is_exact = is_exact(&old) && is_exact(new);
            // An exact count is that of any epoch, without rounding.
            let (old, new) = match is_exact {
                true => (old[0], new[0]),
                false => (mean(&old), mean(new)),
            };
            let (arm, workload, state, name) = key;
            (old != new).then_some(CountChange {
                arm,
                workload,
                state,
                name,
                old,
                new,
                is_exact,
            })
        })
        .collect();
    changes.sort_by_key(|change| !change.is_exact);
    changes
}
