//! A measure of an arm, or its ratio to the same measure of another arm.

use serde::Deserialize;
use stats::Interval;

use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::evidence::{CRON_KILL, RunEvidence};
use crate::measure::{Evidence, Found, Measure, Reading};
use crate::summary::is_simulated;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadingTest {
    arm: String,
    measure: Measure,
    /// The arm by whose figure it is divided.
    over: Option<String>,
}

impl ReadingTest {
    fn is_time(&self) -> bool {
        self.measure.kind() == "ms"
    }

    fn read(&self, evidence: &Evidence<'_>, arm: &str) -> Result<Reading, Finding> {
        let barred = match self.is_time() || matches!(self.measure, Measure::Passes { .. }) {
            true => evidence.barred(&self.measure, arm, None),
            // What failed is in the figure.
            false => None,
        };
        let found = barred.unwrap_or_else(|| evidence.read(&self.measure, arm, false));
        Err(match found {
            Found::Value(reading) => return Ok(reading),
            Found::Missing(gap) => Finding::Missing(format!("this run has no {}", gap.what)),
            Found::NotOffered(words) | Found::Failed(words) => Finding::Open {
                words,
                is_final: true,
            },
            Found::Void(words) => Finding::Open {
                words,
                is_final: false,
            },
        })
    }

    fn found(&self, run: &RunEvidence<'_>) -> Result<Finding, Finding> {
        let evidence = Evidence {
            runs: vec![run.clone()],
        };
        let arm = run.arm(&self.arm);
        let reading = self.read(&evidence, arm)?;
        let words = format!("{} on {arm}", reading.words);
        let (value, ends, words) = match &self.over {
            None => (reading.value, (reading.low, reading.high), words),
            Some(over) => {
                let base = self.read(&evidence, run.arm(over))?;
                let words = format!("{words}, {} on {over}", base.words);
                if base.value <= 0.0 {
                    return Err(Finding::Open {
                        words: format!("{words}: no ratio"),
                        is_final: true,
                    });
                }
                let ratio = reading.value / base.value;
                let ends = (reading.low / base.high, reading.high / base.low);
                (ratio, ends, format!("×{ratio:.3}: {words}"))
            }
        };
        if self.measure.is_declared() {
            return Ok(Finding::Declared(words));
        }
        if self.is_time() && is_simulated(arm) {
            return Ok(Finding::Simulated(format!(
                "{words}; the distance is simulated by our own proxy"
            )));
        }
        let (low, high) = ends;
        Ok(Finding::measured(value, Interval { low, high }, words))
    }
}

impl Test for ReadingTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        self.found(run).unwrap_or_else(|finding| finding)
    }

    fn units(&self) -> Vec<Unit> {
        vec![match (&self.over, self.measure.kind()) {
            (Some(_), _) => Unit::Times,
            (None, "ms") => Unit::Ms,
            (None, "tokens") => Unit::Tokens,
            (None, "share") => Unit::Share,
            (None, _) => Unit::Count,
        }]
    }

    fn check(&self) -> Result<(), String> {
        if let Some((field, message)) = self.measure.problem() {
            return Err(format!("`measure`: field `{field}`: {message}"));
        }
        match (&self.measure, &self.over) {
            (Measure::Results { .. }, Some(_)) => Err(
                "`over`: all arms replay one script, so that the tokens of `results` are equal by construction"
                    .to_owned(),
            ),
            _ => Ok(()),
        }
    }

    /// The command that fills the gap of no run at all.
    fn command(&self) -> String {
        match (Evidence { runs: Vec::new() }).read(&self.measure, &self.arm, false) {
            Found::Missing(gap) => gap.command,
            _ => format!("ctxbench run --backend {}", self.arm),
        }
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = vec![("arm", Name::Arm(&self.arm))];
        names.extend(self.over.iter().map(|over| ("over", Name::Arm(over))));
        for (workload, cell) in self.measure.cells() {
            names.push(("measure.workload", Name::Workload(workload)));
            if let Some((state, metric)) = cell {
                names.push(("measure.state", Name::State(workload, state)));
                names.push(("measure.metric", Name::Metric(workload, metric)));
            }
        }
        if let Measure::Faults { scenarios, .. } = &self.measure {
            // Every run with probes kills a cron job's daemon.
            let listed = scenarios.iter().filter(|name| *name != CRON_KILL);
            names.extend(listed.map(|name| ("measure.scenarios", Name::Scenario(name))));
        }
        names
    }
}
