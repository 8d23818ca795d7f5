//! What came of faults, and what two hosts saw of one memory.

use rundir::faults::{Audit, FaultOutcome, Status};
use serde::Deserialize;

use super::evidence::Evidence;
use super::finding::{Finding, Name};
use super::range::Unit;

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

/// What is counted of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum FaultFigure {
    /// Records lost, torn, stale or phantom against the backend's promise.
    BrokenPromises,
    /// Lines that agents without locks appended with success, and that are gone.
    UpdatesLost,
    /// Calls that did not end within the limit.
    Hangs,
    /// Outcomes after which the backend came back only by a manual step, or never.
    ManualSteps,
    /// Errors that the agent saw.
    Errors,
}

impl FaultFigure {
    fn words(self) -> &'static str {
        match self {
            FaultFigure::BrokenPromises => "records lost, torn, stale or phantom",
            FaultFigure::UpdatesLost => "updates lost",
            FaultFigure::Hangs => "hung calls",
            FaultFigure::ManualSteps => "recoveries by hand",
            FaultFigure::Errors => "errors seen",
        }
    }

    fn of(self, outcome: &FaultOutcome) -> u64 {
        match self {
            FaultFigure::BrokenPromises => outcome.audits.values().map(broken).sum(),
            FaultFigure::UpdatesLost => outcome.updates_lost(),
            FaultFigure::Hangs => u64::from(outcome.hang.is_some()),
            FaultFigure::ManualSteps => {
                let recovery = outcome.recovery.as_ref();
                u64::from(recovery.is_some_and(|own| !own.is_unaided()))
            }
            FaultFigure::Errors => {
                let errors = outcome.seen.iter().filter(|own| own.errno.is_some());
                errors.map(|own| own.times).sum()
            }
        }
    }
}

fn broken(audit: &Audit) -> u64 {
    audit.lost + audit.torn + audit.stale + audit.phantom
}

impl FaultTest {
    fn is_crash_points(&self) -> bool {
        self.scenario == CRASH_POINTS
    }

    pub(super) fn measure(&self, run: &Evidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let counts: Vec<u64> = match self.is_crash_points() {
            true => {
                let series = run.run.crash_points.iter().filter(|own| {
                    own.backend == arm
                        && own.status == Status::Ran
                        && Some(&own.loss) == self.loss.as_ref()
                });
                series.map(|own| broken(&own.audit)).collect()
            }
            false => {
                let outcomes = run.run.fault_outcomes.iter().filter(|own| {
                    own.backend == arm && own.status == Status::Ran && own.scenario == self.scenario
                });
                outcomes.map(|own| self.figure.of(own)).collect()
            }
        };
        let what = self.figure.words();
        if counts.is_empty() {
            return Finding::Missing {
                words: format!("this run did not try {} on {arm}", self.scenario),
            };
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

    pub(super) fn unit(&self) -> Unit {
        Unit::Count
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_crash_points() != self.loss.is_some() {
            return Err("`fault`: `loss` goes with `crash-points`, and only there".to_owned());
        }
        if self.is_crash_points() && self.figure != FaultFigure::BrokenPromises {
            return Err("`fault`: crash points count `broken-promises` only".to_owned());
        }
        Ok(())
    }

    pub(super) fn command(&self) -> String {
        match self.is_crash_points() {
            true => format!("ctxbench fault --backend {} --crash-points 1000", self.arm),
            false => format!(
                "ctxbench fault --backend {} --scenario {}",
                self.arm, self.scenario
            ),
        }
    }

    pub(super) fn names(&self) -> Vec<(&'static str, Name<'_>)> {
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
pub(super) struct Hosts {
    workload: String,
    arm: String,
    figure: HostsFigure,
}

/// What two hosts show.
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

impl Hosts {
    pub(super) fn measure(&self, run: &Evidence<'_>) -> Finding {
        let arm = run.arm(&self.arm);
        let place = format!("{} on {arm}", self.workload);
        let missing = || Finding::Missing {
            words: format!("this run did not measure {place}"),
        };
        let handed = run.summary.handoffs.iter();
        let mut handed = handed.filter(|own| own.arm == arm && own.workload == self.workload);
        let shared = run.summary.shared_files.iter();
        let mut shared = shared.filter(|own| own.arm == arm && own.workload == self.workload);
        match self.figure {
            HostsFigure::Median | HostsFigure::Longest | HostsFigure::Unseen => {
                let Some(own) = handed.next() else {
                    return missing();
                };
                let ns = match self.figure {
                    HostsFigure::Median => own.median_ns,
                    HostsFigure::Longest => own.max_ns,
                    _ => {
                        let unseen = own.written.saturating_sub(own.seen);
                        let words = format!("{unseen} of {} writes unseen: {place}", own.written);
                        return Finding::exact(unseen as f64, words);
                    }
                };
                let Some(ns) = ns else {
                    return missing();
                };
                let ms = ns as f64 / 1e6;
                let words = format!(
                    "{ms:.2} ms over {} of {} writes: {place}",
                    own.seen, own.written
                );
                match crate::summary::is_simulated(arm) {
                    true => Finding::Simulated {
                        words: format!("{words}; the distance is simulated by our own proxy"),
                    },
                    false => Finding::exact(ms, words),
                }
            }
            HostsFigure::Lost | HostsFigure::NotInFile => {
                let Some(own) = shared.next() else {
                    return missing();
                };
                let (count, what) = match self.figure {
                    HostsFigure::Lost => (own.lost, "lines are in no file"),
                    _ => (
                        own.lines - own.on_both,
                        "lines are not in the file on both hosts",
                    ),
                };
                let words = format!("{count} of {} {what}: {place}", own.lines);
                Finding::exact(count as f64, words)
            }
        }
    }

    pub(super) fn unit(&self) -> Unit {
        match self.figure {
            HostsFigure::Median | HostsFigure::Longest => Unit::Ms,
            _ => Unit::Count,
        }
    }

    pub(super) fn command(&self) -> String {
        format!(
            "ctxbench run --suite hosts --workload {} --backend {}",
            self.workload, self.arm
        )
    }

    pub(super) fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
        ]
    }
}
