//! Shows the progress of a run: epoch, cell and spent budget.

use std::collections::HashSet;
use std::time::Duration;

use rundir::{Outcome, Plan, Sample, Section};

use crate::progress_line::ProgressLine;
use runner::run::Watcher;
use runner::schedule::PlannedCell;

/// Shows progress on standard error.
pub struct Progress {
    line: ProgressLine,
    failures: usize,
    /// The arms and reasons of failures that have been shown.
    shown: HashSet<(String, String)>,
    /// The epoch under way with its section, its cells, and how many of them have ended.
    epoch: (String, usize, usize),
    budget: Duration,
}

impl Progress {
    /// Progress through the budget of `plan`.
    pub fn new(plan: &Plan) -> Self {
        let sections = plan.schedule.sections.iter();
        let budget_ms = sections.map(|section| plan.budget_ms(section)).sum();
        Self {
            line: ProgressLine::still(),
            failures: 0,
            shown: HashSet::new(),
            epoch: (String::new(), 0, 0),
            budget: Duration::from_millis(budget_ms),
        }
    }

    /// Passes that did not end well.
    pub fn failures(&self) -> usize {
        self.failures
    }

    /// Whether an arm has not failed for this reason before.
    fn is_new(&mut self, arm: &str, reason: &str) -> bool {
        self.shown.insert((arm.to_owned(), reason.to_owned()))
    }

    /// Shows the cell under way.
    fn show(&self, cell: &str) {
        let elapsed = self.line.elapsed();
        let share = elapsed.as_secs_f64() / self.budget.as_secs_f64().max(1.0);
        // The last epoch ends after the budget.
        let left = self.budget.checked_sub(elapsed);
        let what = format!("{}, cell {} of {}{cell}", self.epoch.0, (self.epoch.2 + 1).min(self.epoch.1), self.epoch.1);
        self.line.show(share, left, &what);
    }
}

impl Watcher for Progress {
    fn epoch(&mut self, _plan: &Plan, section: &Section, turn: u32, cells: usize) {
        let epoch = format!("{}, epoch {}", section.name, turn + 1);
        self.epoch = (epoch, cells, 0);
    }

    fn begins(&mut self, plan: &Plan, cell: &PlannedCell) {
        let workload = &plan.workloads[cell.workload];
        self.show(&format!(": {} {}", workload.name, workload.states[cell.state]));
    }

    fn recorded(&mut self, sample: &Sample) {
        if sample.outcome != Outcome::Ok {
            self.failures += 1;
            let reason = sample.reason.as_deref().unwrap_or_default();
            if self.is_new(&sample.arm, reason) {
                self.line.say(&format!(
                    "{}: {} {} on {}: {reason}",
                    sample.outcome, sample.workload, sample.state, sample.arm
                ));
            }
        }
    }

    fn ends(&mut self) {
        self.epoch.2 += 1;
        self.show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_for_which_an_arm_fails_again_is_shown_once() {
        let mut progress = Progress::new(&Plan::default());
        assert!(progress.is_new("a", "it is a read-only file system"));
        assert!(!progress.is_new("a", "it is a read-only file system"));
        assert!(progress.is_new("a", "it ended"));
        assert!(progress.is_new("b", "it is a read-only file system"));
    }
}
