//! A measure of an arm or context policy, or its ratio to that of another one.

use serde::Deserialize;
use stats::Interval;

use super::finding::{Finding, Name, Test};
use super::range::Unit;
use crate::evidence::{CRON_KILL, RunEvidence};
use crate::measure::{Evidence, Found, Measure, Reading};
use crate::provenance::Provenance;
use crate::summary::is_simulated;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadingTest {
    arm: String,
    measure: Measure,
    /// The arm by whose figure it is divided.
    over: Option<String>,
    /// The arm or context policy against which it saves, in percent.
    saved_against: Option<String>,
}

impl ReadingTest {
    /// Whether its arms are context policies.
    fn is_context(&self) -> bool {
        matches!(self.measure, Measure::Context(_))
    }

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
        let on = |reading: &Reading, arm: &str| match self.is_context() {
            true => reading.words.clone(),
            false => format!("{} on {arm}", reading.words),
        };
        let words = on(&reading, arm);
        let (value, ends, words) = match self.over.as_ref().or(self.saved_against.as_ref()) {
            None => (reading.value, (reading.low, reading.high), words),
            Some(over) => {
                let base = self.read(&evidence, run.arm(over))?;
                let words = format!("{words}, {}", on(&base, over));
                if base.value <= 0.0 {
                    return Err(Finding::Open {
                        words: format!("{words}: no ratio"),
                        is_final: true,
                    });
                }
                let ratio = reading.value / base.value;
                let ends = (reading.low / base.high, reading.high / base.low);
                let saved = |ratio: f64| (1.0 - ratio) * 100.0;
                match self.saved_against {
                    Some(_) => {
                        let words = format!("{:.1} % saved: {words}", saved(ratio));
                        (saved(ratio), (saved(ends.1), saved(ends.0)), words)
                    }
                    None => (ratio, ends, format!("×{ratio:.3}: {words}")),
                }
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
        Ok(Finding::Value {
            value,
            interval: Some(Interval { low, high }),
            words,
            is_published: reading.provenance == Provenance::Arithmetic,
        })
    }
}

impl Test for ReadingTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        self.found(run).unwrap_or_else(|finding| finding)
    }

    fn units(&self) -> Vec<Unit> {
        vec![match (&self.over, self.measure.kind()) {
            _ if self.saved_against.is_some() => Unit::Percent,
            (Some(_), _) => Unit::Times,
            (None, "USD") => Unit::Dollars,
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
            (_, Some(_)) if self.saved_against.is_some() => {
                Err("`over` excludes `saved_against`".to_owned())
            }
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
        let others = [("over", &self.over), ("saved_against", &self.saved_against)];
        let others = others
            .into_iter()
            .filter_map(|(field, arm)| Some((field, arm.as_ref()?)));
        let arms = std::iter::once(("arm", &self.arm)).chain(others);
        let mut names: Vec<_> = arms
            .map(|(field, arm)| match &self.measure {
                Measure::Context(context) => (field, Name::Policy(&context.workload, arm)),
                _ => (field, Name::Arm(arm)),
            })
            .collect();
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
