//! The time until a task's reader sees a commit of another program: `samples.jsonl`, field `scores`, count `lag-us`.

use rundir::Outcome;
use serde::Deserialize;

use super::cells::run_command;
use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::evidence::RunEvidence;
use crate::summary::TASK;

/// The lag of commits on an arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LagTest {
    arm: String,
    workload: String,
}

impl Test for LagTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let (workload, arm) = (&*self.workload, run.arm(&self.arm));
        let passes: Vec<_> = run.passes(workload, arm).collect();
        // A pass that saw a stale answer, or no answer, did not end well.
        let failed = passes.iter().filter(|pass| pass.outcome != Outcome::Ok);
        let failed = failed.count();
        if failed > 0 {
            let words = format!(
                "{failed} of {} passes of {workload} on {arm} did not end well",
                passes.len()
            );
            return Finding::Open {
                words,
                is_final: false,
            };
        }
        let lag_us = passes
            .iter()
            .filter_map(|pass| pass.scores.get(TASK)?.get("lag-us")?.mean());
        let lags_us: Vec<f64> = lag_us.collect();
        if lags_us.is_empty() {
            return Finding::Missing(format!("this run has no lag of {workload} on {arm}"));
        }
        let slowest = lags_us.iter().copied().fold(0.0, f64::max) / 1000.0;
        let words = format!(
            "{slowest:.3} ms: the mean lag in the slowest of {} passes of {workload} on {arm}",
            lags_us.len()
        );
        Finding::exact(slowest, words)
    }

    fn units(&self) -> Vec<Unit> {
        vec![Unit::Ms]
    }

    fn command(&self) -> String {
        run_command(&[&self.workload], None, &[&self.arm])
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
        ]
    }
}
