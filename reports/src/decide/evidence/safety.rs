//! Results that bar adoption under every policy: failed passes and lost acknowledged bytes.

use std::collections::BTreeSet;

use rundir::faults::{CellKind, FaultOutcome};
use rundir::{Outcome, SAMPLES};

use super::{Evidence, Found, missing};
use crate::decide::policy::Policy;
use crate::summary::FailedPasses;

/// The audits after a fault that destroyed bytes of the store. No backend promises those bytes, and the faults of
/// `direct` destroy none.
const DESTROYED: [&str; 2] = ["damaged", "log-gone"];

/// Whether the fault has destroyed bytes of the store itself.
pub(super) fn is_destroyed(outcome: &FaultOutcome) -> bool {
    let mut looks = outcome.audits.keys();
    looks.any(|look| DESTROYED.contains(&look.as_str()))
}

impl Evidence<'_> {
    /// Passes of an arm that did not end well, in any workload and cache state, warm-up passes and void epochs included.
    /// Passes that the harness failed count neither way. Void where `baseline` fails in the same workloads with errors of
    /// calls, which are then not the arm's own.
    pub(in crate::decide) fn failing_passes(&self, arm: &str, baseline: &str) -> Found {
        let workloads = self.runs.iter().flat_map(|run| &run.run.plan.workloads);
        let workloads: BTreeSet<&str> = workloads.map(|planned| planned.name.as_str()).collect();
        let (mut all, mut own) = (FailedPasses::default(), 0);
        let mut shared = Vec::new();
        for workload in workloads {
            let mut found = self.failed_passes(workload, None, arm);
            found.tried -= found.failed.remove(&Outcome::Infra).unwrap_or(0);
            let of_calls = [Outcome::Errno, Outcome::Timeout];
            let is_of_calls = found.failed.keys().all(|how| of_calls.contains(how));
            if found.count() > 0
                && is_of_calls
                && self.failed_passes(workload, None, baseline).of_arm() > 0
            {
                shared.push(workload);
            } else {
                own += found.count();
            }
            all.add(&found);
        }
        if let Some((steps, hung)) = self.barring_steps(arm) {
            all.tried += steps;
            own += hung;
            if hung > 0 {
                *all.failed.entry(Outcome::Hang).or_default() += hung;
            }
        }
        if all.tried == 0 {
            let command = format!("ctxbench run --backend {arm}");
            return missing(format!("no pass of {arm}"), command);
        }
        if own == 0 && !shared.is_empty() {
            let workloads = shared.join(", ");
            let words = format!(
                "void: {} in {workloads}, where {baseline} fails",
                all.words()
            );
            return Found::Void(words);
        }
        Found::exact(all.count() as f64, all.words(), SAMPLES)
    }

    /// Passes of the arms that the policy compares with which did not end well, in any workload. A wrong answer of a plain
    /// directory is one of the machine or of the harness, and voids every comparison. `None` without such passes.
    pub(in crate::decide) fn baseline_passes(&self, policy: &Policy) -> Option<Found> {
        let rows = policy.rows().into_iter().flat_map(|(_, rows)| rows);
        let named = rows.filter_map(|row| row.baseline.as_deref());
        let named: BTreeSet<&str> = named.chain([policy.baseline.as_str()]).collect();
        let mut all = FailedPasses::default();
        let mut wrong = BTreeSet::new();
        for run in &self.runs {
            let passes = run.run.samples.iter();
            let passes = passes.filter(|pass| pass.outcome != Outcome::Infra);
            for arm in named.iter().flat_map(|name| self.identical(name)) {
                let of_arm = passes.clone().filter(|pass| pass.arm == arm);
                let found = FailedPasses::of(of_arm);
                if found.count() > 0 {
                    wrong.insert(arm);
                }
                all.add(&found);
            }
        }
        let arms: Vec<String> = wrong.into_iter().collect();
        match (all.tried, all.count()) {
            (0, _) => None,
            (_, 0) => Some(Found::exact(0.0, all.words(), SAMPLES)),
            _ => Some(Found::Void(format!(
                "void: {} on {}",
                all.words(),
                arms.join(", ")
            ))),
        }
    }

    /// Acknowledged records that an arm lost or damaged, in any fault or with two hosts; `Missing` without an audit.
    pub(in crate::decide) fn lost_records(&self, arm: &str) -> Found {
        let (mut looked, mut lost, mut checked) = (false, 0u64, 0u64);
        let mut places: Vec<String> = Vec::new();
        for run in &self.runs {
            for fault in run.run.faults.iter().filter(|fault| fault.arm == arm) {
                looked |= !matches!(fault.outcome, Outcome::Infra | Outcome::Skipped);
                checked += fault.acknowledged;
                lost += fault.lost;
                if fault.lost > 0 {
                    places.push(fault.scenario.clone());
                }
            }
            let outcomes = run.run.fault_outcomes.iter();
            let outcomes =
                outcomes.filter(|outcome| outcome.backend == arm && !is_destroyed(outcome));
            for outcome in outcomes {
                looked |= outcome.status == rundir::faults::Status::Ran;
                let broken = outcome.broken();
                let audits = outcome.audits.values();
                checked += audits.map(|audit| audit.present).sum::<u64>();
                // Bytes that no task wrote are no record of the audit.
                let other = u64::from(broken == 0 && outcome.cell() == CellKind::Lost);
                lost += broken + other;
                if broken + other > 0 {
                    places.push(outcome.scenario.clone());
                }
            }
            let points = run.run.crash_points.iter();
            for series in points.filter(|series| series.backend == arm) {
                looked |= series.status == rundir::faults::Status::Ran;
                checked += series.audit.present;
                lost += series.audit.broken();
                if series.audit.broken() > 0 {
                    places.push(format!("crash points, {}", series.loss));
                }
            }
            let shared = run.summary.shared_files.iter();
            for files in shared.filter(|files| files.arm == arm) {
                looked = true;
                checked += files.lines;
                lost += files.lost;
                if files.lost > 0 {
                    places.push(files.workload.clone());
                }
            }
        }
        if !looked {
            let command = format!("ctxbench fault --backend {arm}");
            return missing(format!("no fault was injected on {arm}"), command);
        }
        places.dedup();
        let place = match places.is_empty() {
            true => String::new(),
            false => format!(" ({})", places.join(", ")),
        };
        let words = format!("{lost} not kept as promised, {checked} kept{place}");
        let source = "faults.jsonl, fault-outcomes.jsonl, crash-points.jsonl, samples.jsonl";
        Found::exact(lost as f64, words, source)
    }
}

#[cfg(test)]
mod tests {
    use rundir::faults::Audit;

    use super::*;
    use crate::testing;

    #[test]
    fn what_a_fault_destroyed_in_the_store_is_no_loss_and_what_a_kill_took_is() {
        for (look, lost) in [("damaged", 0.0), ("log-gone", 0.0), ("killed-daemon", 1.0)] {
            let mut run = testing::run();
            let mut outcome = FaultOutcome::ran("a fault", "storage", "sqlite", 1);
            let audit = Audit {
                lost: 1,
                ..Audit::default()
            };
            outcome.audits.insert(look.to_owned(), audit);
            run.faults.clear();
            run.fault_outcomes = vec![outcome];
            let (summary, contexts) = (testing::summary(), testing::contexts());
            let evidence = Evidence::of(&run, &summary, &contexts);
            match evidence.lost_records("sqlite") {
                Found::Value(found) => assert_eq!(found.value, lost, "{look}"),
                // No other fault was injected.
                Found::Missing(_) => assert_eq!(lost, 0.0, "{look}"),
                other => panic!("{look}: {other:?}"),
            }
        }
    }
}
