//! Outcomes of faults, and one memory on two hosts.

use rundir::faults::FaultOutcome;
use serde::Deserialize;

use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::evidence::RunEvidence;
use crate::summary::{Handoffs, is_simulated};

/// A figure of a fault scenario on a backend, over all of its seeds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTest {
    /// A scenario, or `crash-points`.
    scenario: String,
    arm: String,
    figure: FaultFigure,
    /// The loss, for `crash-points`: `killed-daemon`, `power-loss`, `machine-loss`.
    loss: Option<String>,
}

inputs::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum FaultFigure, words {
        BrokenPromises = "records lost, torn, stale or phantom",
        /// Lines that agents without locks appended with success, and that are gone.
        UpdatesLost = "updates lost",
        Hangs = "hung calls",
        /// Outcomes after which the backend came back only by a manual step, or never.
        ManualSteps = "recoveries by hand",
        Errors = "errors seen",
    }
}

impl FaultFigure {
    fn of(self, outcome: &FaultOutcome) -> u64 {
        match self {
            FaultFigure::BrokenPromises => outcome.broken(),
            FaultFigure::UpdatesLost => outcome.updates_lost(),
            FaultFigure::Hangs => u64::from(outcome.hang.is_some()),
            FaultFigure::ManualSteps => u64::from(outcome.needs_hand()),
            FaultFigure::Errors => outcome.errors(),
        }
    }
}

impl FaultTest {
    fn is_crash_points(&self) -> bool {
        self.scenario == CRASH_POINTS
    }
}

impl Test for FaultTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let counts: Vec<u64> = match &self.loss {
            Some(loss) => {
                let series = run.crash_points(loss, arm);
                series.map(|points| points.audit.broken()).collect()
            }
            None => {
                let outcomes = run.outcomes(arm);
                let tried = outcomes.filter(|outcome| outcome.scenario == self.scenario);
                tried.map(|outcome| self.figure.of(outcome)).collect()
            }
        };
        let what = self.figure.words();
        if counts.is_empty() {
            let scenario = &self.scenario;
            return Finding::Missing(format!("this run did not try {scenario} on {arm}"));
        }
        let sum: u64 = counts.iter().sum();
        let times = match counts.len() {
            1 => "once".to_owned(),
            times => format!("{times} times"),
        };
        Finding::exact(
            sum as f64,
            format!("{sum} {what}: {} on {arm}, tried {times}", self.scenario),
        )
    }

    fn units(&self) -> Vec<Unit> {
        vec![Unit::Count]
    }

    fn check(&self) -> Result<(), String> {
        if self.is_crash_points() != self.loss.is_some() {
            return Err("`fault`: `loss` goes with `crash-points`, and only there".to_owned());
        }
        if self.is_crash_points() && self.figure != FaultFigure::BrokenPromises {
            return Err("`fault`: crash points count `broken-promises` only".to_owned());
        }
        Ok(())
    }

    fn command(&self) -> String {
        match self.is_crash_points() {
            true => format!("ctxbench fault --backend {} --crash-points 1000", self.arm),
            false => format!(
                "ctxbench fault --backend {} --scenario {}",
                self.arm, self.scenario
            ),
        }
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = vec![("arm", Name::Arm(&self.arm))];
        if !self.is_crash_points() {
            names.push(("scenario", Name::Scenario(&self.scenario)));
        }
        names
    }
}

/// The scenario's name for crash points.
const CRASH_POINTS: &str = "crash-points";

/// A figure of two hosts on one memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostsTest {
    workload: String,
    arm: String,
    figure: HostsFigure,
}

/// A measure of two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum HostsFigure {
    /// Milliseconds until the second host saw a write, the median.
    Median,
    /// Milliseconds until the second host saw a write, the longest.
    Longest,
    /// Writes that the second host did not see within the limit.
    Unseen,
    /// Appended lines that are in no file afterwards.
    Lost,
    /// Appended lines that are not in the shared file on both hosts afterwards.
    NotInFile,
}

impl Test for HostsTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let place = format!("{} on {arm}", self.workload);
        let found = match self.figure {
            HostsFigure::Median => handed(run, &self.workload, arm, |handoffs| handoffs.median_ns),
            HostsFigure::Longest => handed(run, &self.workload, arm, |handoffs| handoffs.max_ns),
            HostsFigure::Unseen => run.handoffs(&self.workload, arm).map(|handoffs| {
                let unseen = handoffs.written.saturating_sub(handoffs.seen);
                let words = format!("{unseen} of {} writes unseen: {place}", handoffs.written);
                Finding::exact(unseen as f64, words)
            }),
            HostsFigure::Lost | HostsFigure::NotInFile => {
                run.shared_files(&self.workload, arm).map(|files| {
                    let (count, what) = match self.figure {
                        HostsFigure::Lost => (files.lost, "lines are in no file"),
                        _ => (
                            files.lines - files.on_both,
                            "lines are not in the file on both hosts",
                        ),
                    };
                    let words = format!("{count} of {} {what}: {place}", files.lines);
                    Finding::exact(count as f64, words)
                })
            }
        };
        found.unwrap_or_else(|| Finding::Missing(format!("this run did not measure {place}")))
    }

    fn units(&self) -> Vec<Unit> {
        vec![match self.figure {
            HostsFigure::Median | HostsFigure::Longest => Unit::Ms,
            _ => Unit::Count,
        }]
    }

    fn command(&self) -> String {
        format!(
            "ctxbench run --suite hosts --workload {} --backend {}",
            self.workload, self.arm
        )
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
        ]
    }
}

/// A time until the second host saw a write.
fn handed(
    run: &RunEvidence<'_>,
    workload: &str,
    arm: &str,
    time_ns: fn(&Handoffs) -> Option<u64>,
) -> Option<Finding> {
    let handoffs = run.handoffs(workload, arm)?;
    let ms = time_ns(handoffs)? as f64 / 1e6;
    let words = format!(
        "{ms:.2} ms over {} of {} writes: {workload} on {arm}",
        handoffs.seen, handoffs.written
    );
    Some(match is_simulated(arm) {
        true => Finding::Simulated(format!(
            "{words}; the distance is simulated by our own proxy"
        )),
        false => Finding::exact(ms, words),
    })
}
