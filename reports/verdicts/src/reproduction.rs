//! Compares several runs of one plan: disjoint intervals, contradicting verdicts, and planted differences.

use std::collections::BTreeMap;

use rundir::Run;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{Comparison, SeriesKey, Verdict};

use crate::compare::differences;
use figures::summary::summarise;

/// The comparison of several runs of one plan.
#[derive(Clone, Debug)]
pub struct Reproduction {
    /// One entry per arm, in the plan's order.
    pub arms: Vec<ArmReproduction>,
    /// Notes on each run, with the run's number from 1.
    pub notes: Vec<(usize, String)>,
}

/// One arm in all runs. Only main metrics count: call kinds of micro workloads, makespans of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ArmReproduction {
    /// The arm.
    pub arm: String,
    /// Pairs of runs with an interval of the ratio in the same cell.
    pub intervals: usize,
    /// Pairs with disjoint intervals.
    pub disjoint: usize,
    /// Pairs of runs with a verdict in the same cell.
    pub verdicts: usize,
    /// Pairs with one verdict better and the other worse.
    pub contradicting: usize,
    /// Cells, summed over runs.
    pub judged: usize,
    /// Cells whose interval excludes 1. For an identical arm that is a false verdict;
    /// for a slowed arm it is the planted difference.
    pub called_different: usize,
    /// Undecided cells.
    pub undecided: usize,
    /// Cells whose times are below what matters; they are neither decided nor undecided.
    pub below_what_matters: usize,
}

/// The build that made a run, and the versions of its arms.
fn build(run: &Run) -> impl PartialEq {
    let arms = run.plan.arms.iter();
    let arms: Vec<_> = arms.map(|arm| arm.backend.versions.clone()).collect();
    let binary = run.environment.binary_sha256.clone();
    (run.plan.ctxbench.clone(), binary, arms)
}

/// Checks that runs are of one plan on one machine.
///
/// # Errors
/// A message that names the run and the difference.
pub fn check_same_plan(runs: &[Run]) -> Result<(), String> {
    let Some((first, others)) = runs.split_first() else {
        return Err("no run was given".to_owned());
    };
    for run in runs {
        if let Some(why) = run.plan.measures_nothing() {
            return Err(format!("{}: {why}", run.dir.display()));
        }
    }
    for other in others {
        let mut found = differences(first, other);
        if build(first) != build(other) {
            found.push("builds, or versions of arms".to_owned());
        }
        if !found.is_empty() {
            return Err(format!(
                "{}: another plan or machine than {}: {}",
                other.dir.display(),
                first.dir.display(),
                found.join("; ")
            ));
        }
    }
    Ok(())
}

/// Compares runs of one plan.
///
/// # Errors
/// If they are not of one plan on one machine, or a histogram is damaged.
pub fn reproduction(runs: &[Run]) -> Result<Reproduction, String> {
    check_same_plan(runs)?;
    let mut notes = Vec::new();
    let mut all: BTreeMap<&str, BTreeMap<SeriesKey, Vec<Comparison>>> = BTreeMap::new();
    let plan = &runs[0].plan;
    for (number, run) in (1..).zip(runs) {
        let summary = summarise(run)?;
        let health = &summary.health;
        notes.push((
            number,
            format!(
                "{}, {} of {} passes busy. {}.",
                health.epochs_in_words(),
                health.busy_passes,
                health.passes,
                health.identical_arms()
            ),
        ));
        for note in &health.notes {
            notes.push((number, note.clone()));
        }
        for cell in summary.cells.iter().filter(|cell| cell.is_main()) {
            if let (Some(arm), Some(comparison)) = (plan.arm(&cell.arm), &cell.against_baseline) {
                let cells = all.entry(arm.name.as_str()).or_default();
                cells.entry(cell.key()).or_default().push(comparison.clone());
            }
        }
    }
    let arms = plan.arms.iter().filter_map(|arm| {
        let cells = all.get(arm.name.as_str())?;
        Some(reproduced(&arm.name, cells.values()))
    });
    Ok(Reproduction { arms: arms.collect(), notes })
}

fn reproduced<'a>(arm: &str, cells: impl Iterator<Item = &'a Vec<Comparison>>) -> ArmReproduction {
    let mut found = ArmReproduction { arm: arm.to_owned(), ..ArmReproduction::default() };
    for runs in cells {
        for (at, one) in runs.iter().enumerate() {
            found.judged += 1;
            found.undecided += usize::from(one.verdict == Verdict::Undecided);
            found.below_what_matters += usize::from(one.verdict == Verdict::BelowWhatMatters);
            let excludes_one = one.interval.is_some_and(|interval| interval.low > 1.0 || interval.high < 1.0);
            found.called_different += usize::from(excludes_one && one.withheld.is_none());
            for other in &runs[at + 1..] {
                if let (Some(interval), Some(theirs)) = (one.interval, other.interval) {
                    found.intervals += 1;
                    found.disjoint += usize::from(interval.is_disjoint(&theirs));
                }
                if one.verdict.is_decided() && other.verdict.is_decided() {
                    found.verdicts += 1;
                    found.contradicting += usize::from(one.verdict.contradicts(other.verdict));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use figures::testing;
    use stats::{Margin, MarginKind, Ratios, compare};

    fn comparison(center: f64) -> Comparison {
        let epochs: Vec<Vec<f64>> = (0..4).map(|n| vec![f64::ln(center) + 0.002 * f64::from(n); 5]).collect();
        let margin = Margin { ratio: 1.05, kind: MarginKind::Relative };
        compare(&Ratios::undisturbed(epochs), 0.01, margin).unwrap()
    }

    #[test]
    fn runs_of_another_build_or_machine_do_not_repeat_a_run() {
        let (first, same) = (testing::seeded(1), testing::seeded(2));
        assert_eq!(check_same_plan(&[first.clone(), same.clone()]), Ok(()));
        let mut built = same.clone();
        built.environment.binary_sha256 = "2".repeat(64);
        let error = check_same_plan(&[first.clone(), built]).unwrap_err();
        assert!(error.ends_with("builds, or versions of arms"), "{error}");
        let mut moved = same;
        moved.environment.kernel = "another kernel".to_owned();
        let error = check_same_plan(&[first, moved]).unwrap_err();
        assert!(error.contains("and another kernel"), "{error}");
    }

    #[test]
    fn disjoint_intervals_and_contradicting_verdicts_are_counted_by_pairs_of_runs() {
        let cells = [
            vec![comparison(1.5), comparison(1.5), comparison(0.5)],
            vec![comparison(1.0), comparison(1.001), comparison(1.0)],
        ];
        let found = reproduced("sqlite", cells.iter());
        assert_eq!((found.intervals, found.disjoint), (6, 2));
        assert_eq!((found.verdicts, found.contradicting), (6, 2));
        assert_eq!((found.judged, found.undecided), (6, 0));
        assert_eq!(found.called_different, 3);
    }

    #[test]
    fn times_below_what_matters_are_neither_decided_nor_undecided() {
        let mut below = comparison(0.47);
        below.margin.ratio = 97.0;
        below.verdict = Verdict::BelowWhatMatters;
        let found = reproduced("sqlite", [vec![below.clone(), below]].iter());
        assert_eq!((found.judged, found.below_what_matters), (2, 2));
        assert_eq!((found.undecided, found.verdicts), (0, 0));
    }

    #[test]
    fn a_withheld_verdict_contradicts_nothing() {
        let mut levels = comparison(0.5);
        levels.withhold("two levels, with different verdicts");
        let cells = [vec![comparison(1.5), levels]];
        let found = reproduced("sqlite", cells.iter());
        assert_eq!((found.verdicts, found.contradicting), (0, 0));
        assert_eq!((found.intervals, found.disjoint), (1, 1));
    }
}
