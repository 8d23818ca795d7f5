//! What a new run damages, refuses or answers wrongly, and an old one does not: records, features, answers, lines.

use std::collections::BTreeMap;

use rundir::faults::Status;
use rundir::{Outcome, Run};
use serde::Serialize;

/// Counts of harm that differ between two runs: how often, and of how many tries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HarmChange {
    /// The arm.
    pub arm: String,
    /// The kind of harm, and where.
    pub what: String,
    /// How often in the old run, and of how many tries.
    pub old: (u64, u64),
    /// How often in the new runs, and of how many tries.
    pub new: (u64, u64),
}

impl HarmChange {
    /// Whether the new runs do harm that the old one never did. More of the same may be chance.
    pub fn is_worse(&self) -> bool {
        self.old.0 == 0 && self.new.0 > 0
    }
}

/// Tries that did harm and all tries, by arm and kind.
type Harms = BTreeMap<(String, String), (u64, u64)>;

/// The score that counts answers from an earlier state of the data.
const STALE_ANSWERS: &str = "stale-answers";

fn harms(runs: &[&Run]) -> Harms {
    let mut all = Harms::new();
    let mut add = |arm: &str, what: String, harm: u64, tries: u64| {
        let counts = all.entry((arm.to_owned(), what)).or_default();
        *counts = (counts.0 + harm, counts.1 + tries);
    };
    for run in runs {
        for points in run.crash_points.iter().filter(|points| points.points > 0) {
            let audit = &points.audit;
            let what = format!("records not kept after {}", points.loss);
            add(&points.backend, what, audit.broken() + audit.unreadable, audit.looks());
        }
        for fault in run.fault_outcomes.iter().filter(|fault| fault.status == Status::Ran) {
            for (loss, audit) in &fault.audits {
                let what = format!("records not kept in {} after {loss}", fault.scenario);
                add(&fault.backend, what, audit.broken() + audit.unreadable, audit.looks());
            }
        }
        for fault in run.faults.iter().filter(|fault| fault.outcome == Outcome::Ok && fault.killed) {
            let what = format!("records not kept in {}", fault.scenario);
            add(&fault.arm, what, fault.lost, fault.lost + fault.acknowledged);
        }
        let probed = run.probes.iter().filter(|probe| !matches!(probe.outcome, Outcome::Skipped | Outcome::Infra));
        for probe in probed {
            let what = format!("failure of {} {}", probe.aspect, probe.name);
            add(&probe.arm, what, u64::from(probe.outcome != Outcome::Ok), 1);
        }
        for pass in &run.samples {
            for score in pass.scores.values() {
                if let Some(stale) = score.get(STALE_ANSWERS) {
                    add(&pass.arm, format!("stale answers in {}", pass.workload), stale.sum, stale.of);
                }
            }
            if let Some(settled) = pass.settled {
                add(&pass.arm, format!("lines lost in {}", pass.workload), settled.lost, settled.lines);
            }
        }
    }
    all
}

/// The kinds of harm that only one side does, and how many kinds both sides looked for.
pub(super) fn harm_changes(old: &Run, new: &[&Run]) -> (Vec<HarmChange>, usize) {
    let (before, mut after) = (harms(&[old]), harms(new));
    let both = before.into_iter().filter_map(|(key, old)| Some((after.remove(&key)?, key, old)));
    let both: Vec<_> = both.collect();
    let tried = both.len();
    let changes = both.into_iter().filter(|(new, _, old)| (new.0 > 0) != (old.0 > 0));
    let changes = changes.map(|(new, (arm, what), old)| HarmChange { arm, what, old, new });
    (changes.collect(), tried)
}
