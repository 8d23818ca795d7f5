//! A measure of an arm or context policy, alone or beside that of a baseline, as a run has it.

use inputs::PathStep::{self, Any, Field};
use serde::Deserialize;
use stats::{Interval, MIN_EPOCHS};

use super::finding::{Finding, Name, Test};
use crate::measure::{Evidence, Figure, Measure, MeasureResult, Scale, spread};
use figures::evidence::{CRON_KILL, RunEvidence};
use figures::provenance::Provenance;
use figures::summary::is_simulated;

/// As a row of a policy: a measure, and the arm with which it is compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadingTest {
    arm: String,
    measure: Measure,
    /// The arm or context policy of comparison, where the unit compares.
    baseline: Option<String>,
}

/// The finding of a run without a usable figure.
fn without(found: MeasureResult) -> Finding {
    let (words, is_final) = match found {
        MeasureResult::Missing(gap) => return Finding::Missing(format!("this run has no {}", gap.what)),
        MeasureResult::Value(reading) => (reading.words, false),
        MeasureResult::NotOffered(words) | MeasureResult::Failed(words) => (words, true),
        MeasureResult::Void(words) | MeasureResult::Unknown(words) => (words, false),
    };
    Finding::Open { words, is_final }
}

impl ReadingTest {
    /// A reading of one arm. Every figure except a time includes failed passes.
    fn read(&self, evidence: &Evidence<'_>, arm: &str, is_base: bool) -> Result<f64, MeasureResult> {
        let is_time = self.measure.is_timed() || self.measure.kind() == "ms";
        let barred = if is_time || matches!(self.measure, Measure::Passes { .. }) {
            evidence.barred(&self.measure, arm, None)
        } else {
            None
        };
        let found = barred.unwrap_or_else(|| evidence.read(&self.measure, arm, is_base));
        Ok(found.value()?.value)
    }

    fn figure(
        &self,
        evidence: &Evidence<'_>,
        (arm, baseline): (&str, Option<&str>),
        scale: Scale,
    ) -> Result<Figure, MeasureResult> {
        let own = self.read(evidence, arm, false)?;
        let Some(baseline) = baseline else {
            let reading = evidence.read(&self.measure, arm, false).value()?;
            return Ok(Figure::of(reading, String::new()));
        };
        let base = self.read(evidence, baseline, true)?;
        if base <= 0.0 && matches!(scale, Scale::Ratio | Scale::Saved) {
            let why = format!("no ratio: {own} on {arm}, {base} on {baseline}");
            return Err(MeasureResult::NotOffered(why));
        }
        evidence.figure(&self.measure, scale, arm, baseline)
    }

    /// The figure in words, with the cell and the arms that it is of.
    fn words(&self, figure: &Figure, (arm, baseline): (&str, Option<&str>), unit: &str) -> String {
        let reading = &figure.reading;
        // The arms of a context are policies, which its words name.
        let on = |words: &str, arm: &str| match &self.measure {
            Measure::Context(_) => words.to_owned(),
            Measure::Latency(cell) => {
                let (metric, workload, state) = (&cell.metric, &cell.workload, &cell.state);
                format!("{words}, {metric} {workload} {state} on {arm}")
            }
            _ => format!("{words} on {arm}"),
        };
        let words = on(&reading.words, arm);
        let shown = spread(reading.value, (reading.low, reading.high), unit);
        match baseline {
            Some(baseline) => {
                let base = on(&figure.baseline, baseline);
                format!("{shown}: {words}, against {base}")
            }
            None if reading.low < reading.high => format!("{shown}: {words}"),
            None => words,
        }
    }
}

impl Test for ReadingTest {
    fn measure(&self, run: &RunEvidence<'_>, unit: &str) -> Finding {
        let evidence = Evidence { runs: vec![run.clone()] };
        let arms = (evidence.arm_named(&self.arm), self.baseline.as_deref().map(|name| evidence.arm_named(name)));
        // A parsed claim has no other unit.
        let scale = self.measure.scale(unit).unwrap_or(Scale::Own);
        let figure = match self.figure(&evidence, arms, scale) {
            Ok(figure) => figure,
            Err(found) => return without(found),
        };
        let words = self.words(&figure, arms, unit);
        let reading = figure.reading;
        if self.measure.is_declared() {
            return Finding::Declared(words);
        }
        let open = |why: String| Finding::Open { words: format!("{words}; {why}"), is_final: false };
        if self.measure.is_timed() && run.summary.health.is_busy {
            let why = "this machine was busy, which neither confirms nor refutes a figure";
            return open(why.to_owned());
        }
        let is_unbounded = reading.low.is_infinite() || reading.high.is_infinite();
        if is_unbounded && reading.low < reading.high {
            return open(format!(
                "a verdict is withheld, or fewer than {MIN_EPOCHS} epochs say too little about spread"
            ));
        }
        let is_time = self.measure.is_timed() || self.measure.kind() == "ms";
        if is_time && (is_simulated(arms.0) || arms.1.is_some_and(is_simulated)) {
            return Finding::Simulated(format!(
                "{words}; the distance is simulated by our own proxy, which neither confirms nor refutes a figure about a real one"
            ));
        }
        Finding::Value {
            value: reading.value,
            interval: Interval { low: reading.low, high: reading.high },
            words,
            is_published: reading.provenance == Provenance::Computed,
        }
    }

    /// The measure's own unit, or with a baseline those that compare with it.
    fn units(&self) -> Vec<String> {
        let mut units = self.measure.units();
        match self.baseline {
            Some(_) => drop(units.remove(0)),
            None => units.truncate(1),
        }
        units
    }

    fn range(&self, unit: &str) -> (f64, f64) {
        let scale = self.measure.scale(unit).unwrap_or(Scale::Own);
        self.measure.range(scale)
    }

    fn problem(&self) -> Option<(Vec<PathStep<'static>>, String)> {
        if let Some((field, message)) = self.measure.problem() {
            return Some((vec![Field("measure"), Any, Field(field)], message));
        }
        if let Some((field, message)) = self.measure.seen_once() {
            return Some((vec![Field("measure"), Any, Field(field)], message));
        }
        // A median and a mean have intervals or samples of their own.
        let has_ends =
            matches!(&self.measure, Measure::Hosts { figure, .. } if !figure.is_event() && !figure.is_longest());
        if let Some((_, message)) = self.measure.unbounded().filter(|_| !has_ends) {
            return Some((vec![Field("measure"), Any], message));
        }
        if self.baseline.as_ref() == Some(&self.arm) && !self.measure.compares_methods() {
            let message = "is the arm of the claim: a figure beside itself confirms and refutes nothing";
            return Some((vec![Field("baseline")], message.to_owned()));
        }
        let why = self.measure.equal_by_construction().filter(|_| self.baseline.is_some())?;
        Some((vec![Field("baseline")], why.to_owned()))
    }

    /// The command that fills the gap of no run at all.
    fn command(&self, unit: &str) -> String {
        let evidence = Evidence { runs: Vec::new() };
        let scale = self.measure.scale(unit).unwrap_or(Scale::Own);
        let baseline = self.baseline.as_deref().unwrap_or(&self.arm);
        match evidence.figure(&self.measure, scale, &self.arm, baseline) {
            Err(MeasureResult::Missing(gap)) => gap.command,
            _ => format!("ctxbench run --backend {}", self.arm),
        }
    }

    fn names(&self) -> Vec<(Vec<PathStep<'static>>, Name<'_>)> {
        let arms = [("arm", Some(&self.arm)), ("baseline", self.baseline.as_ref())];
        let arms = arms.into_iter();
        let arms = arms.filter_map(|(field, arm)| Some((vec![Field(field)], arm?)));
        let mut names: Vec<_> = arms
            .map(|(path, arm)| match &self.measure {
                Measure::Context(context) => (path, Name::Policy(&context.workload, arm)),
                _ => (path, Name::Arm(arm)),
            })
            .collect();
        let field = |name| match &self.measure {
            Measure::Growth(_) | Measure::ScoreGrowth(_) if name == "workload" => {
                vec![Field("measure"), Any, Field("sizes")]
            }
            _ => vec![Field("measure"), Any, Field(name)],
        };
        for (workload, cell) in self.measure.cells() {
            names.push((field("workload"), Name::Workload(workload)));
            if let Some((state, metric)) = cell {
                names.push((field("state"), Name::State(workload, state)));
                names.push((field("metric"), Name::Metric(workload, metric)));
            }
        }
        if let Measure::Faults { scenarios, .. } = &self.measure {
            // Every run with probes kills a cron job's daemon.
            let listed = scenarios.iter().filter(|name| *name != CRON_KILL);
            names.extend(listed.map(|name| (field("scenarios"), Name::Scenario(name))));
        }
        names
    }
}
