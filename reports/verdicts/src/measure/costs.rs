//! Exact counts of each timed call: requests, system calls, bytes, and what a store counts itself.

use rundir::SAMPLES;
use serde::Deserialize;

use super::{ArmReading, Evidence, MeasureResult, pooled, run_gap};

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

impl CostMeasure {
    /// Whether the run counts it, and no store: fewer are better.
    pub(super) fn is_of_run(&self) -> bool {
        self.is_of_calls() || self.figure == "disk-written-bytes"
    }

    /// Whether it counts requests or system calls.
    pub(super) fn is_of_calls(&self) -> bool {
        ["requests", "system-calls"].contains(&self.figure.as_str())
    }
}

impl Evidence<'_> {
    pub(super) fn cost(&self, cost: &CostMeasure, arm: &str) -> MeasureResult {
        let counts_requests = self.arm(arm).is_some_and(|arm| arm.backend.counts_requests);
        let found = self.runs.iter().flat_map(|run| &run.summary.costs);
        let found =
            found.filter(|found| (&*found.arm, &found.workload, &found.state) == (arm, &cost.workload, &cost.state));
        let counts = found.filter_map(|found| match cost.figure.as_str() {
            "requests" => counts_requests.then_some(found.requests),
            "system-calls" => Some(found.system_calls),
            "disk-written-bytes" => Some(found.disk_written_bytes),
            counter => found.store_counts.get(counter).copied(),
        });
        let place = format!("{} of {} ({})", cost.figure, cost.workload, cost.state);
        let readings = counts.map(|count| {
            ArmReading::exact(count, format!("{count} {} a call", cost.figure), &format!("{SAMPLES}: {place}"))
        });
        match pooled(readings.collect()) {
            Some(reading) => MeasureResult::Value(reading),
            None => run_gap(&cost.workload, &[arm], format!("{place} on {arm}")),
        }
    }
}
