//! Passes of a workload, and the results that they verified.

use std::collections::BTreeSet;

use rundir::{Outcome, SAMPLES};

use super::faults::most_unseen;
use super::{ArmReading, Evidence, Gap, MeasureResult, missing, run_command, run_gap};
use figures::summary::FailedPasses;

impl Evidence<'_> {
    pub(super) fn passes(&self, workload: &str, within: Option<f64>, arm: &str) -> MeasureResult {
        let runs = self.runs.iter();
        let passes = runs.flat_map(|run| run.passes(workload, arm));
        let tried = passes.map(|pass| pass.outcome);
        let tried = tried.filter(|outcome| !matches!(outcome, Outcome::Skipped | Outcome::Infra));
        let tried: Vec<Outcome> = tried.collect();
        if tried.is_empty() {
            return match self.left_out(workload, arm) {
                Some(why) => MeasureResult::NotOffered(why),
                None => run_gap(workload, &[arm], format!("passes of {workload} on {arm}")),
            };
        }
        let failed = tried.iter().filter(|outcome| **outcome != Outcome::Ok);
        let failed = failed.count();
        let of = tried.len();
        let source = format!("{SAMPLES}: outcomes of {workload}");
        let exact = |words| ArmReading::exact(failed as f64, words, &source);
        MeasureResult::Value(match (failed, within) {
            (0, Some(_)) => exact(format!("0 of {of} passes failed ({})", most_unseen(of as u64, "passes")))
                .unseen(of as u64, within, 1.0),
            _ => exact(format!("{failed} of {of} passes failed")),
        })
    }

    pub(super) fn results(&self, workload: &str, arm: &str) -> MeasureResult {
        match self.passes(workload, None, arm) {
            MeasureResult::Value(found) if found.value == 0.0 => {}
            MeasureResult::Value(found) => {
                let what = format!("{workload} on {arm} has wrong results");
                let command = run_command([workload], &[arm]);
                return MeasureResult::Missing(Gap::because(&what, &found.words, command));
            }
            other => return other,
        }
        let tokens = self.runs.iter().filter_map(|run| run.result_tokens(workload)).max();
        match tokens {
            Some(tokens) => {
                let words = format!("{tokens} tokens of verified results");
                let source = "plan.toml: workloads.result_tokens; samples.jsonl: outcomes";
                MeasureResult::exact(tokens as f64, words, source)
            }
            None => run_gap(workload, &[arm], format!("tokens of the results of {workload}")),
        }
    }

    /// Passes of an arm that did not end well, in any workload and cache state, warm-up passes and void epochs included.
    /// Passes that the harness failed count neither way. Void where `baseline` fails in the same workloads with errors of
    /// calls, which are then not the arm's own.
    pub fn failing_passes(&self, arm: &str, baseline: &str) -> MeasureResult {
        let workloads = self.runs.iter().flat_map(|run| &run.run.plan.workloads);
        let workloads: BTreeSet<&str> = workloads.map(|planned| planned.name.as_str()).collect();
        let (mut all, mut own) = (FailedPasses::default(), 0);
        let mut shared = Vec::new();
        for workload in workloads {
            let mut found = self.failed_passes(workload, None, arm);
            found.tried -= found.failed.remove(&Outcome::Infra).unwrap_or(0);
            let of_calls = [Outcome::Errno, Outcome::Timeout];
            let is_of_calls = found.failed.keys().all(|how| of_calls.contains(how));
            if found.count() > 0 && is_of_calls && self.failed_passes(workload, None, baseline).of_arm() > 0 {
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
            let words = format!("void: {} in {workloads}, where {baseline} fails", all.words());
            return MeasureResult::Void(words);
        }
        MeasureResult::exact(all.count() as f64, all.words(), SAMPLES)
    }

    /// Passes of the arms that a policy compares with which did not end well, in any workload. A wrong answer of a plain
    /// directory is one of the machine or of the harness, and voids every comparison. `None` without such passes.
    pub fn baseline_passes(&self, named: &BTreeSet<&str>) -> Option<MeasureResult> {
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
            (_, 0) => Some(MeasureResult::exact(0.0, all.words(), SAMPLES)),
            _ => Some(MeasureResult::Void(format!("void: {} on {}", all.words(), arms.join(", ")))),
        }
    }
}
