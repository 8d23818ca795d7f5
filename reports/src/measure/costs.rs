//! Exact counts of each timed call: requests, system calls, bytes, and what a store counts itself.

use rundir::SAMPLES;
use serde::Deserialize;

use super::{Evidence, Found, run_gap};

/// See [`super::Measure::Cost`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CostMeasure {
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// `requests`, `system-calls`, `disk-written-bytes`, or the name of one of the store's own counters.
    pub figure: String,
}

impl Evidence<'_> {
    pub(super) fn cost(&self, cost: &CostMeasure, arm: &str) -> Found {
        let counts_requests = self.arm(arm).is_some_and(|arm| arm.backend.counts_requests);
        let found = self.runs.iter().find_map(|run| {
            let mut costs = run.summary.costs.iter();
            let found = costs
                .find(|found| (&*found.arm, &found.workload, &found.state) == (arm, &cost.workload, &cost.state))?;
            match cost.figure.as_str() {
                "requests" => counts_requests.then_some(found.requests),
                "system-calls" => Some(found.system_calls),
                "disk-written-bytes" => Some(found.disk_written_bytes),
                counter => found.store_counts.get(counter).copied(),
            }
        });
        let place = format!("{} of {} ({})", cost.figure, cost.workload, cost.state);
        match found {
            Some(count) => {
                Found::exact(count, format!("{count} {} a call", cost.figure), &format!("{SAMPLES}: {place}"))
            }
            None => run_gap(&cost.workload, &[arm], format!("{place} on {arm}")),
        }
    }
}
