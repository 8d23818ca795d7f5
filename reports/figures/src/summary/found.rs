//! Scores of planted evidence: exact counts of what each search method found.

use std::collections::BTreeMap;

use rundir::{Run, Sample, Score};
use schemars::JsonSchema;
use serde::Serialize;

/// The method of tasks, which search nothing: `render::tasks` shows them.
pub const TASK: &str = "task";

/// The method of tasks that programs beside plain files answer.
pub const PROGRAMS: &str = "programs";

/// The scores of one search method on one arm.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SearchScores {
    /// The workload.
    pub workload: String,
    /// The arm.
    pub arm: String,
    /// The search method.
    pub method: String,
    /// The counts of the first pass, by name.
    pub scores: BTreeMap<String, Score>,
    /// Whether passes differ. If so, the counts are not exact.
    pub differs: bool,
}

impl SearchScores {
    /// The count of this name.
    pub fn score(&self, name: &str) -> Option<Score> {
        self.scores.get(name).copied()
    }
}

/// All scores of a run, in the plan's order.
pub fn found(run: &Run) -> Vec<SearchScores> {
    let mut all = Vec::new();
    for workload in &run.plan.workloads {
        let compared = run.plan.arms.iter().filter(|arm| arm.same_as.is_none());
        for arm in compared {
            let has_scores = |sample: &&Sample| {
                sample.workload == workload.name && sample.arm == arm.name && !sample.scores.is_empty()
            };
            let mut passes = run.samples.iter().filter(has_scores);
            let Some(first) = passes.next() else {
                continue;
            };
            let others: Vec<&Sample> = passes.collect();
            for (method, scores) in first.scores.iter().filter(|(name, _)| ![TASK, PROGRAMS].contains(&name.as_str())) {
                let same = |other: &&Sample| other.scores.get(method) == Some(scores);
                all.push(SearchScores {
                    workload: workload.name.clone(),
                    arm: arm.name.clone(),
                    method: method.clone(),
                    scores: scores.clone(),
                    differs: !others.iter().all(same),
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;

    #[test]
    fn scores_that_differ_between_passes_are_marked() {
        let mut run = run();
        let workload = run.plan.workloads[0].name.clone();
        let score = |sum| BTreeMap::from([("tokens".to_owned(), Score { sum, of: 2 })]);
        let mut passes: Vec<_> =
            run.samples.iter_mut().filter(|sample| sample.workload == workload && sample.arm == "direct").collect();
        passes[0].scores.insert("grep".to_owned(), score(7));
        passes[1].scores.insert("grep".to_owned(), score(7));
        let found_here = found(&run);
        assert_eq!(found_here.len(), 1);
        assert!(!found_here[0].differs);
        assert_eq!(found_here[0].score("tokens").unwrap().sum, 7);
        run.samples
            .iter_mut()
            .filter(|sample| !sample.scores.is_empty())
            .last()
            .unwrap()
            .scores
            .insert("grep".to_owned(), score(8));
        assert!(found(&run)[0].differs);
    }
}
