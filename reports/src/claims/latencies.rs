//! Times: of a cell, of one cell over another, and how they grow with a size.

use rundir::Outcome;
use serde::Deserialize;
use stats::{Interval, LEVEL, MIN_EPOCHS, Pooled, combine, compare_arms, logs, pool};

use super::cells::{ArmCell, run_command};
use super::finding::{Finding, Name, Test};
use super::growth::Sizes;
use super::range::Unit;
use crate::evidence::RunEvidence;
use crate::summary::{FailedPasses, is_simulated};
use crate::text::time;

/// The metric of claims about readiness: the time from the start of the daemon to a usable mount.
pub(super) const READY: &str = "ready";

/// One cell over another, of one run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ratio {
    of: ArmCell,
    to: ArmCell,
}

/// How the time of a call grows with a size: the exponent of a power law through the sizes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Growth {
    arm: String,
    state: String,
    metric: String,
    sizes: Sizes,
}

/// A value that this run can judge by, or why it cannot. `cells` are those that it is of.
fn judged(
    value: f64,
    interval: Option<Interval>,
    words: String,
    cells: &[&ArmCell],
    run: &RunEvidence<'_>,
) -> Finding {
    let mut failed = FailedPasses::default();
    for cell in cells {
        failed.add(&run.failed_passes(&cell.workload, Some(&cell.state), run.arm(&cell.arm)));
    }
    let words = format!("{words}; {}", failed.words());
    if failed.count() > 0 {
        return Finding::Open {
            words: format!("{words}: the time of the others settles nothing"),
            is_final: failed.of_arm() > 0,
        };
    }
    let Some(interval) = interval else {
        return Finding::Open {
            words: format!("{words}: fewer than {MIN_EPOCHS} epochs say too little about spread"),
            is_final: false,
        };
    };
    if run.summary.health.is_busy {
        return Finding::Open {
            words: format!(
                "{words}; this machine was busy, which neither confirms nor refutes a figure"
            ),
            is_final: false,
        };
    }
    if cells.iter().any(|cell| is_simulated(run.arm(&cell.arm))) {
        return Finding::Simulated(format!(
            "{words}; the distance is simulated by our own proxy, which neither confirms nor refutes a figure about a real one"
        ));
    }
    Finding::measured(value, interval, words)
}

/// The typical time of a cell, in milliseconds.
impl Test for ArmCell {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let ready = run.summary.ready.iter().find(|ready| {
            self.metric == READY
                && ready.arm == arm
                && ready.workload == self.workload
                && ready.state == self.state
        });
        let found = match ready {
            Some(ready) => Some((ready.typical_ns, ready.interval)),
            None => run.cell(self).map(|cell| (cell.typical_ns, cell.interval)),
        };
        let Some((typical_ns, interval)) = found else {
            return missing(self, run);
        };
        let typical = typical_ns / 1e6;
        let interval = interval.map(|interval| interval.map(|ns| ns / 1e6));
        let words = format!(
            "{typical:.4} ms{}, {} {} {} on {arm}",
            spread(interval, 4),
            self.metric,
            self.workload,
            self.state
        );
        judged(typical, interval, words, &[self], run)
    }

    fn command(&self) -> String {
        run_command(&[&self.workload], Some(&self.state), &[&self.arm])
    }

    fn units(&self) -> Vec<Unit> {
        vec![Unit::Ms]
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
            ("state", Name::State(&self.workload, &self.state)),
            ("metric", Name::Metric(&self.workload, &self.metric)),
        ]
    }
}

/// An interval in brackets; empty without one.
fn spread(interval: Option<Interval>, places: usize) -> String {
    interval.map_or(String::new(), |Interval { low, high }| {
        format!(" [{low:.places$}, {high:.places$}]")
    })
}

/// Why a run has no time of a cell.
fn missing(cell: &ArmCell, run: &RunEvidence<'_>) -> Finding {
    let arm = run.arm(&cell.arm);
    let planned = run.run.plan.arm(arm);
    let unavailable = planned.and_then(|arm| arm.unavailable.as_ref());
    let failing = run.summary.failing.iter().find(|found| {
        found.arm == arm && found.workload == cell.workload && found.state == cell.state
    });
    let ended_badly = run.passes(&cell.workload, arm).find(|pass| {
        pass.state == cell.state && !matches!(pass.outcome, Outcome::Ok | Outcome::Skipped)
    });
    let why = match (unavailable, failing, ended_badly) {
        (Some(why), ..) => format!(": {arm} could not be measured: {why}"),
        (_, Some(found), _) => format!(
            ": {:.1} % of the calls did not end well, in {} of {} passes, and a wrong answer has no latency; a pass's calls were waited for {}",
            found.share() * 100.0,
            found.passes,
            found.of_passes,
            time(found.waited_ns)
        ),
        (_, _, Some(pass)) => format!(": passes ended with {}", pass.outcome),
        _ => String::new(),
    };
    let words = format!("this run did not measure {}{why}", cell.words());
    match failing.is_some() || ended_badly.is_some() {
        true => Finding::Open {
            words,
            is_final: true,
        },
        false => Finding::Missing(words),
    }
}

fn pooled(cell: &ArmCell, run: &RunEvidence<'_>) -> Option<Pooled> {
    let arms = run.table().0.get(&cell.key())?;
    pool(&logs(arms.get(run.arm(&cell.arm))?))
}

impl Test for Ratio {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let (of, to) = (run.arm(&self.of.arm), run.arm(&self.to.arm));
        let Some(upper) = pooled(&self.of, run) else {
            return missing(&self.of, run);
        };
        let Some(lower) = pooled(&self.to, run) else {
            return missing(&self.to, run);
        };
        let is_paired = self.of.key() == self.to.key();
        let plan = &run.run.plan;
        let comparison = is_paired
            .then(|| compare_arms(plan, run.table(), &self.of.key(), of, &[to]))
            .flatten();
        let (ratio, interval, how) = match comparison {
            Some(paired) => (paired.ratio, paired.interval, "paired by round"),
            None => {
                let combined = combine(&[(1.0, &upper), (-1.0, &lower)]);
                let interval =
                    combined.map(|difference| difference.interval(1.0 - LEVEL).map(f64::exp));
                ((upper.mean - lower.mean).exp(), interval, "not paired")
            }
        };
        let words = format!(
            "×{ratio:.3}{}, {how}: {} over {}",
            spread(interval, 3),
            self.of.words(),
            self.to.words()
        );
        judged(ratio, interval, words, &[&self.of, &self.to], run)
    }

    fn units(&self) -> Vec<Unit> {
        vec![Unit::Times]
    }

    fn command(&self) -> String {
        let mut workloads = vec![self.of.workload.as_str(), &self.to.workload];
        workloads.dedup();
        let mut arms = vec![self.of.arm.as_str(), &self.to.arm];
        arms.dedup();
        arms.retain(|arm| *arm != "direct");
        run_command(&workloads, None, &arms)
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = self.of.names();
        names.extend(self.to.names());
        names
    }
}

impl Growth {
    fn cell(&self, workload: &str) -> ArmCell {
        ArmCell {
            arm: self.arm.clone(),
            workload: workload.to_owned(),
            state: self.state.clone(),
            metric: self.metric.clone(),
        }
    }
}

impl Test for Growth {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let mut parts = Vec::new();
        for (weight, (_, workload)) in self.sizes.weights().iter().zip(self.sizes.iter()) {
            match pooled(&self.cell(workload), run) {
                Some(estimate) => parts.push((*weight, estimate)),
                None => return missing(&self.cell(workload), run),
            }
        }
        let weighted = parts.iter().map(|(weight, estimate)| (*weight, estimate));
        let weighted: Vec<(f64, &Pooled)> = weighted.collect();
        let exponents = weighted
            .iter()
            .map(|(weight, estimate)| weight * estimate.mean);
        let exponent: f64 = exponents.sum();
        let interval = combine(&weighted).map(|sum| sum.interval(1.0 - LEVEL));
        let times = self.sizes.iter().zip(&parts);
        let times = times
            .map(|((size, _), (_, estimate))| format!("{} at {size}", time(estimate.mean.exp())));
        let words = format!(
            "n^{exponent:.3}{}: {} on {arm} takes {}",
            spread(interval, 3),
            self.metric,
            times.collect::<Vec<_>>().join(", ")
        );
        let cells: Vec<ArmCell> = self.sizes.iter().map(|(_, name)| self.cell(name)).collect();
        let cells: Vec<&ArmCell> = cells.iter().collect();
        judged(exponent, interval, words, &cells, run)
    }

    fn units(&self) -> Vec<Unit> {
        vec![Unit::Exponent]
    }

    fn check(&self) -> Result<(), String> {
        self.sizes.check()
    }

    fn command(&self) -> String {
        self.sizes.command(&self.arm)
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = self.sizes.names(&self.arm);
        for (_, workload) in self.sizes.iter() {
            names.push(("state", Name::State(workload, &self.state)));
            names.push(("metric", Name::Metric(workload, &self.metric)));
        }
        names
    }
}
