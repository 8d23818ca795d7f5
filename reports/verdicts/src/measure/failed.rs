//! Failed passes in the workloads that a row reads: whose they are, and what that makes of the row.

use super::kinds::Measure;
use super::{Evidence, MeasureResult};
use figures::summary::FailedPasses;

impl Evidence<'_> {
    /// What failed passes make of a row: void if they are of the baseline or of the harness, failed if they are of the
    /// candidate. `baseline` is the arm that the row compares with.
    ///
    /// An error counts in every cache state of the workload; what the harness could not do or prove, only in the state that
    /// the row reads.
    pub fn barred(&self, measure: &Measure, candidate: &str, baseline: Option<&str>) -> Option<MeasureResult> {
        if let Some(baseline) = baseline {
            for (workload, state) in measure.read_by(true) {
                for arm in self.identical(baseline) {
                    let failed = self.failed_passes(workload, state, &arm);
                    if failed.count() > 0 {
                        return Some(MeasureResult::Void(void(&failed, workload, &arm)));
                    }
                }
            }
        }
        // Its failed passes are what this measure counts.
        let is_counted = matches!(measure, Measure::Passes { .. });
        measure.read_by(false).into_iter().find_map(|(workload, state)| {
            let failed = self.failed_passes(workload, state, candidate);
            if failed.of_arm() > 0 && !is_counted {
                return Some(MeasureResult::Failed(format!("{} in {workload}", failed.words())));
            }
            let is_harness = failed.of_harness() > 0;
            is_harness.then(|| MeasureResult::Void(void(&failed, workload, candidate)))
        })
    }

    /// The failed passes of an arm in all runs.
    pub(super) fn failed_passes(&self, workload: &str, state: Option<&str>, arm: &str) -> FailedPasses {
        let mut all = FailedPasses::default();
        for run in &self.runs {
            all.add(&run.failed_passes(workload, state, arm));
        }
        all
    }

    /// An arm, and those that are identical to it: a baseline's time is the mean of both.
    pub(super) fn identical(&self, arm: &str) -> Vec<String> {
        let arms = self.runs.iter().flat_map(|run| &run.run.plan.arms);
        let same = arms.filter(|other| other.same_as.as_deref() == Some(arm));
        let mut names = vec![arm.to_owned()];
        names.extend(same.map(|other| other.name.clone()));
        names.dedup();
        names
    }
}

fn void(failed: &FailedPasses, workload: &str, arm: &str) -> String {
    format!("void: {} in {workload} on {arm}", failed.words())
}
