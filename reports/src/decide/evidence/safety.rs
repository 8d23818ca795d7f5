//! Results that bar adoption under every policy: wrong data, lost acknowledged bytes, crashes, hangs, failed set-ups.

use std::collections::BTreeMap;

use rundir::faults::{CellKind, FaultOutcome};
use rundir::{Outcome, SAMPLES};

use super::{Evidence, Found, missing};

/// Outcomes of a pass that bar adoption.
const BARRING: [Outcome; 4] = [
    Outcome::WrongData,
    Outcome::Crash,
    Outcome::Hang,
    Outcome::Setup,
];

/// The audits after a fault that destroyed bytes of the store. No backend promises those bytes, and the faults of
/// `direct` destroy none.
const DESTROYED: [&str; 2] = ["damaged", "log-gone"];

/// Whether the fault has destroyed bytes of the store itself.
pub(super) fn is_destroyed(outcome: &FaultOutcome) -> bool {
    let mut looks = outcome.audits.keys();
    looks.any(|look| DESTROYED.contains(&look.as_str()))
}

impl Evidence<'_> {
    /// Passes of an arm that bar its adoption, warm-up passes and void epochs included.
    pub(in crate::decide) fn barring_passes(&self, arm: &str) -> Found {
        let samples = self.runs.iter().flat_map(|run| &run.run.samples);
        let samples = samples.filter(|sample| sample.arm == arm);
        let (mut all, mut barring) = (0u64, BTreeMap::<&str, u64>::new());
        for sample in samples {
            all += 1;
            if BARRING.contains(&sample.outcome) {
                *barring.entry(sample.outcome.name()).or_default() += 1;
            }
        }
        if let Some(steps) = self.barring_steps(arm) {
            all += steps.0;
            if steps.1 > 0 {
                *barring.entry("hang").or_default() += steps.1;
            }
        }
        if all == 0 {
            let command = format!("ctxbench run --backend {arm}");
            return missing(format!("no pass of {arm}"), command);
        }
        let count: u64 = barring.values().sum();
        let words: Vec<String> = barring
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        let words = match words.is_empty() {
            true => format!("0 of {all} passes"),
            false => format!("{} of {all} passes", words.join(", ")),
        };
        Found::exact(count as f64, words, SAMPLES)
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
