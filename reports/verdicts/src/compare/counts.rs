//! Exact counts of two runs: requests, system calls, and the stores' own counters, each a call.

use std::collections::BTreeMap;

use rundir::{ExactCounts, Run};
use schemars::JsonSchema;
use serde::Serialize;

use figures::summary::void;

/// A count that differs between two runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CountChange {
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The name of the count, per call.
    pub name: String,
    /// The old count a call.
    pub old: f64,
    /// The count in the new runs.
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
fn by_epoch(runs: &[&Run]) -> BTreeMap<CountKey, Vec<f64>> {
    let mut all = BTreeMap::new();
    for run in runs {
        add_epochs(&mut all, run);
    }
    all
}

fn add_epochs(all: &mut BTreeMap<CountKey, Vec<f64>>, run: &Run) {
    let void = void(run);
    for cell in run.cells.iter().filter(|cell| !void.contains(&cell.epoch)) {
        if cell.counted.calls == 0 {
            continue;
        }
        for (name, count) in named(&cell.counted) {
            let key = (cell.arm.clone(), cell.workload.clone(), cell.state.clone(), name);
            let a_call = count as f64 / cell.counted.calls as f64;
            all.entry(key).or_default().push(a_call);
        }
    }
}

fn named(counted: &ExactCounts) -> Vec<(String, u64)> {
    let mut named = vec![("system calls".to_owned(), counted.system_calls)];
    if let Some(daemon) = &counted.daemon {
        named.push(("requests".to_owned(), daemon.requests()));
        named.extend(daemon.store.iter().map(|(name, count)| (name.clone(), *count)));
    }
    named
}

/// How many counts both sides have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CountTally {
    /// Counts that are the same in all epochs of a side.
    pub exact: usize,
    /// Counts that vary between epochs, which gate nothing.
    pub varying: usize,
}

/// The counts that differ, the exact ones first; and how many both sides have.
pub(super) fn counts(old: &Run, new: &[&Run]) -> (Vec<CountChange>, CountTally) {
    let (before, after) = (by_epoch(&[old]), by_epoch(new));
    let is_exact = |epochs: &[f64]| epochs.windows(2).all(|pair| pair[0] == pair[1]);
    let mean = |epochs: &[f64]| epochs.iter().sum::<f64>() / epochs.len() as f64;
    let (mut changes, mut compared) = (Vec::new(), CountTally::default());
    for (key, old) in before {
        let Some(new) = after.get(&key) else {
            continue;
        };
        let is_exact = is_exact(&old) && is_exact(new);
        compared.exact += usize::from(is_exact);
        compared.varying += usize::from(!is_exact);
        // An exact count is that of any epoch, without rounding.
        let (old, new) = if is_exact { (old[0], new[0]) } else { (mean(&old), mean(new)) };
        if old == new {
            continue;
        }
        let (arm, workload, state, name) = key;
        changes.push(CountChange { arm, workload, state, name, old, new, is_exact });
    }
    changes.sort_by_key(|change| !change.is_exact);
    (changes, compared)
}
