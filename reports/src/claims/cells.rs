//! The cells and arms of a run that claims name.

use serde::Deserialize;
use stats::{Interval, LEVEL, SeriesKey, share_interval};

use crate::evidence::RunEvidence;
use crate::summary::Cell;

/// A cell of an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArmCell {
    pub arm: String,
    pub workload: String,
    pub state: String,
    /// A kind of call, `makespan`, or `ready`.
    pub metric: String,
}

impl ArmCell {
    pub(super) fn words(&self) -> String {
        format!(
            "{} {} {} on {}",
            self.metric, self.workload, self.state, self.arm
        )
    }

    pub(super) fn key(&self) -> SeriesKey {
        SeriesKey::new(&self.workload, &self.state, &self.metric)
    }
}

impl RunEvidence<'_> {
    pub(super) fn cell(&self, cell: &ArmCell) -> Option<&Cell> {
        let arm = self.arm(&cell.arm);
        self.summary
            .cell(&cell.workload, &cell.state, &cell.metric, arm)
    }
}

/// The command of a run that measures some arms in some workloads.
pub(super) fn run_command(workloads: &[&str], state: Option<&str>, arms: &[&str]) -> String {
    let workloads = workloads
        .iter()
        .map(|workload| format!(" --workload {workload}"));
    let state = state.map(|state| format!(" --state {state}"));
    let arms = arms.iter().map(|arm| format!(" --backend {arm}"));
    let options: String = workloads.chain(state).chain(arms).collect();
    format!("ctxbench run{options}")
}

/// The interval of a share that was seen `hits` times of `of`, in percent.
pub(super) fn percent_interval(hits: u64, of: u64) -> Interval {
    share_interval(hits, of, 1.0 - LEVEL).map(|share| share * 100.0)
}
