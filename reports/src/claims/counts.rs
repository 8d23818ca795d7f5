//! Exact counts: requests, system calls, needs of a backend, tools that fail.

use rundir::{Outcome, Probe};
use serde::Deserialize;

use super::cells::run_command;
use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::conformance::tried_features;
use crate::evidence::RunEvidence;

/// A count of an arm, or its ratio to the same count of another arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Count {
    figure: CountFigure,
    arm: String,
    /// For figures of a cell.
    workload: Option<String>,
    /// For figures of a cell.
    state: Option<String>,
    /// The name of one of the store's own counters, for the figure `store`.
    counter: Option<String>,
    /// The features whose names start so, for the figure `features-failing`; all without it.
    features: Option<String>,
    /// The arm by whose count it is divided.
    over: Option<String>,
}

inputs::named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum CountFigure, words {
        Requests = "requests a call",
        SystemCalls = "system calls a call",
        DiskWritten = "bytes written to disk a call",
        Store = "a call",
        /// `o200k` tokens of a workload's results, on an arm whose results were all right.
        ResultTokens = "tokens of results",
        /// Passes of a workload that did not end well, in every cache state.
        FailedPasses = "passes that did not end well",
        Daemons = "processes beside the agent",
        Needs = "daemons, mounts and other needs",
        /// Lines of this project's code that the files depend on.
        LinesOfCode = "lines of code",
        ToolsFailing = "tools that fail",
        /// Facts about the files that common tools do not show.
        HiddenFacts = "hidden facts",
        /// Features of a conformance run that do not work, without those that the machine itself fails.
        FeaturesFailing = "features that fail",
        /// Failed calls of a cron job whose daemon is killed.
        CronFailedCalls = "failed calls after kills",
        CronLost = "acknowledged records lost by kills",
    }
}

impl CountFigure {
    /// Whether it is a constant of this project or of a backend's makers.
    fn is_declared(self) -> bool {
        matches!(
            self,
            CountFigure::Daemons | CountFigure::Needs | CountFigure::LinesOfCode
        )
    }

    fn is_of_cell(self) -> bool {
        matches!(
            self,
            CountFigure::Requests
                | CountFigure::SystemCalls
                | CountFigure::DiskWritten
                | CountFigure::Store
        )
    }
}

impl Test for Count {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        match self.found(run) {
            Finding::Value { words, .. } if self.figure.is_declared() => Finding::Declared(words),
            found => found,
        }
    }

    fn units(&self) -> Vec<Unit> {
        vec![match self.over {
            Some(_) => Unit::Times,
            None if self.figure == CountFigure::ResultTokens => Unit::Tokens,
            None => Unit::Count,
        }]
    }

    fn check(&self) -> Result<(), String> {
        if self.figure.is_of_cell() && (self.workload.is_none() || self.state.is_none()) {
            return Err("`count`: a figure of a cell needs `workload` and `state`".to_owned());
        }
        let of_workload = [CountFigure::ResultTokens, CountFigure::FailedPasses];
        if of_workload.contains(&self.figure) && self.workload.is_none() {
            return Err("`count`: `result-tokens` and `failed-passes` need `workload`".to_owned());
        }
        if self.figure == CountFigure::ResultTokens && self.over.is_some() {
            return Err("`count`: `result-tokens` has no `over`: all arms replay one script, so that the tokens are equal by construction".to_owned());
        }
        if (self.figure == CountFigure::Store) != self.counter.is_some() {
            return Err(
                "`count`: `counter` goes with the figure `store`, and only there".to_owned(),
            );
        }
        if self.figure != CountFigure::FeaturesFailing && self.features.is_some() {
            return Err(
                "`count`: `features` goes with `features-failing`, and only there".to_owned(),
            );
        }
        Ok(())
    }

    fn command(&self) -> String {
        match &self.workload {
            None if self.figure == CountFigure::FeaturesFailing => {
                format!("ctxbench conform {}", self.arm)
            }
            // Probes belong to the default suite.
            workload => {
                let workload = workload.as_deref();
                run_command(workload.as_slice(), self.state.as_deref(), &[&self.arm])
            }
        }
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = vec![("arm", Name::Arm(&self.arm))];
        names.extend(self.over.iter().map(|over| ("over", Name::Arm(over))));
        if let Some(workload) = &self.workload {
            names.push(("workload", Name::Workload(workload)));
            let state = self.state.iter();
            names.extend(state.map(|state| ("state", Name::State(workload, state))));
        }
        names
    }
}

impl Count {
    fn found(&self, run: &RunEvidence<'_>) -> Finding {
        let Some(count) = self.of(&self.arm, run) else {
            return self.missing(&self.arm);
        };
        let what = match (&self.counter, &self.features) {
            (Some(counter), _) => format!("{counter} {}", self.figure.words()),
            (_, Some(features)) => format!("{} ({features} …)", self.figure.words()),
            _ => self.figure.words().to_owned(),
        };
        let place = match (&self.workload, &self.state) {
            (Some(workload), Some(state)) => format!(" in {workload} {state}"),
            (Some(workload), None) => format!(" in {workload}"),
            _ => String::new(),
        };
        let arm = run.arm(&self.arm);
        let Some(over) = &self.over else {
            let words = format!("{what}{place} on {arm}: {count}");
            return Finding::exact(count, words);
        };
        match self.of(over, run) {
            Some(base) if base > 0.0 => Finding::exact(
                count / base,
                format!(
                    "×{:.3}: {what}{place} on {arm} {count}, on {over} {base}",
                    count / base
                ),
            ),
            Some(base) => Finding::Open {
                words: format!("{what}{place} on {arm} {count}, on {over} {base}: no ratio"),
                is_final: true,
            },
            None => self.missing(over),
        }
    }

    fn missing(&self, arm: &str) -> Finding {
        let what = self.figure.words();
        Finding::Missing(format!("this run did not count {what} on {arm}"))
    }

    fn of(&self, arm: &str, run: &RunEvidence<'_>) -> Option<f64> {
        let arm = run.arm(arm);
        let planned = run.run.plan.arm(arm)?;
        if planned.unavailable.is_some() {
            return None;
        }
        let backend = &planned.backend;
        match self.figure {
            CountFigure::Requests
            | CountFigure::SystemCalls
            | CountFigure::DiskWritten
            | CountFigure::Store => {
                let mut costs = run.summary.costs.iter();
                let cost = costs.find(|cost| {
                    cost.arm == arm
                        && Some(&cost.workload) == self.workload.as_ref()
                        && Some(&cost.state) == self.state.as_ref()
                })?;
                match self.figure {
                    CountFigure::Requests => backend.counts_requests.then_some(cost.requests),
                    CountFigure::SystemCalls => Some(cost.system_calls),
                    CountFigure::DiskWritten => Some(cost.disk_written_bytes),
                    _ => cost.store_counts.get(self.counter.as_ref()?).copied(),
                }
            }
            CountFigure::ResultTokens => {
                let workload = self.workload.as_ref()?;
                let tokens = run.result_tokens(workload)?;
                let mut passes = run.passes(workload, arm).peekable();
                passes.peek()?;
                passes
                    .all(|pass| pass.outcome == Outcome::Ok)
                    .then_some(tokens as f64)
            }
            CountFigure::FailedPasses => {
                let failed = run.failed_passes(self.workload.as_ref()?, None, arm);
                // Passes that the harness failed say nothing of the arm.
                let is_known = failed.tried > 0 && failed.of_harness() == 0;
                is_known.then(|| failed.count() as f64)
            }
            CountFigure::Daemons => Some(f64::from(backend.daemons)),
            CountFigure::Needs => {
                let parts = f64::from(backend.daemons) + f64::from(backend.mounts);
                Some(parts + backend.needs.len() as f64)
            }
            CountFigure::LinesOfCode => {
                (backend.lines_of_code > 0).then(|| f64::from(backend.lines_of_code))
            }
            CountFigure::ToolsFailing => failing(run, "tool", arm),
            CountFigure::HiddenFacts => failing(run, "visible", arm),
            CountFigure::FeaturesFailing => {
                let features = self.features.as_deref().unwrap_or_default();
                let is_wanted = |name: &str| name.starts_with(features);
                let tried = tried_features(run.run.probes.iter(), arm, is_wanted)?;
                Some(tried.failing.len() as f64)
            }
            CountFigure::CronFailedCalls | CountFigure::CronLost => {
                let mut kills = run.kills(arm).peekable();
                kills.peek()?;
                let counts = kills.map(|kill| match self.figure {
                    CountFigure::CronLost => kill.lost,
                    _ => kill.failed_calls,
                });
                Some(counts.sum::<u64>() as f64)
            }
        }
    }
}

/// Failing probes of an aspect; `None` without probes, or if one could not be made.
fn failing(run: &RunEvidence<'_>, aspect: &str, arm: &str) -> Option<f64> {
    let probes: Vec<&Probe> = run.probes(aspect, arm).collect();
    let is_infra = |probe: &&Probe| probe.outcome == Outcome::Infra;
    if probes.is_empty() || probes.iter().any(is_infra) {
        return None;
    }
    let failing = probes.iter().filter(|probe| probe.outcome != Outcome::Ok);
    Some(failing.count() as f64)
}
