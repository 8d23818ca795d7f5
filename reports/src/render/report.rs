//! The input of a report.

use std::path::PathBuf;

use rundir::Run;

use crate::answer::Overview;
use crate::sessions::TriedSession;
use figures::context::Contexts;
use figures::summary::Summary;
use figures::text::time;
use verdicts::claims::ClaimResult;
use verdicts::decide::Decision;

/// A run with all that is reported of it.
pub struct Report<'a> {
    /// The run.
    pub run: &'a Run,
    /// The summary of its samples.
    pub summary: &'a Summary,
    /// The costs of its session contexts.
    pub contexts: &'a Contexts,
    /// Its verdicts on published claims.
    pub claims: &'a [ClaimResult],
    /// The decisions by policy and candidate.
    pub decisions: Vec<Decision>,
    /// The answer that follows from them.
    pub overview: &'a Overview,
    /// The directories of the other runs that claims and decisions rest on.
    pub others: &'a [PathBuf],
    /// The sessions that `ctxbench try` was given; none in other runs.
    pub sessions: &'a [TriedSession],
}

impl<'a> Report<'a> {
    /// The names of the arms, without the second of two identical ones.
    pub(super) fn arms(&self) -> Vec<&'a str> {
        let arms = self.run.plan.arms.iter().map(|arm| arm.name.as_str());
        let aa_arm = self.summary.aa_arm.as_deref();
        arms.filter(|arm| Some(*arm) != aa_arm).collect()
    }

    /// The typical time of a metric of a workload on an arm, in its first cache state.
    pub(super) fn typical(&self, workload: &str, arm: &str, metric: &str) -> String {
        let mut cells = self.summary.cells.iter();
        let cell = cells.find(|cell| cell.workload == workload && cell.arm == arm && cell.metric == metric);
        cell.map_or("–".to_owned(), |cell| format!("{}{}", time(cell.typical_ns), cell.failed.caveat()))
    }
}
