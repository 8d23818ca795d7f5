//! Scores of questions with planted evidence: `samples.jsonl`, field `scores`.

use rundir::Score;
use serde::Deserialize;

use super::cells::{percent_interval, run_command};
use super::finding::{Finding, Name, Test};
use super::growth::{Sizes, exponent};
use super::range::Unit;
use crate::evidence::RunEvidence;

/// A score of one method on one arm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScoreTest {
    arm: String,
    workload: String,
    method: String,
    /// The counted unit, such as `tokens` or `evidence-in-budget`.
    figure: String,
    /// The method and arm against which the mean is smaller; the claim is then in percent saved.
    saved_against: Option<Against>,
    /// `percent` of the questions, or the mean a question.
    unit: ScoreUnit,
}

/// Another method to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Against {
    arm: String,
    workload: String,
    method: String,
}

/// How a score is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ScoreUnit {
    Percent,
    Tokens,
    Count,
}

/// How the mean of a score grows with a size.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScoreGrowth {
    arm: String,
    method: String,
    figure: String,
    sizes: Sizes,
}

fn score(
    run: &RunEvidence<'_>,
    (arm, workload, method, figure): (&str, &str, &str, &str),
) -> Option<Score> {
    let arm = run.arm(arm);
    let found = run.summary.found.iter();
    let mut found =
        found.filter(|row| row.arm == arm && row.workload == workload && row.method == method);
    let score = found.next()?.score(figure)?;
    score.mean().map(|_| score)
}

/// The mean of a score, which is of a question at least.
fn mean(score: Score) -> f64 {
    score.mean().unwrap_or(f64::NAN)
}

fn missing(arm: &str, workload: &str, method: &str, figure: &str) -> Finding {
    Finding::Missing(format!(
        "this run has no score {figure} of {method} in {workload} on {arm}"
    ))
}

impl Test for ScoreTest {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let (arm, workload, method, figure) =
            (&*self.arm, &*self.workload, &*self.method, &*self.figure);
        let Some(found) = score(run, (arm, workload, method, figure)) else {
            return missing(arm, workload, method, figure);
        };
        let place = format!("{method} in {workload} on {arm}");
        if let Some(against) = &self.saved_against {
            let other = (
                against.arm.as_str(),
                against.workload.as_str(),
                against.method.as_str(),
                figure,
            );
            let Some(before) = score(run, other).filter(|before| before.sum > 0) else {
                return missing(other.0, other.1, other.2, other.3);
            };
            let saved = (1.0 - mean(found) / mean(before)) * 100.0;
            let words = format!(
                "{saved:.1} % saved: {:.1} {figure} a question by {place}, {:.1} by {} in {} on {}",
                mean(found),
                mean(before),
                against.method,
                against.workload,
                against.arm
            );
            return Finding::exact(saved, words);
        }
        match self.unit {
            ScoreUnit::Percent => {
                let share = mean(found) * 100.0;
                let interval = percent_interval(found.sum, found.of);
                let words = format!(
                    "{share:.1} % [{:.1}, {:.1}], {} of {}: {figure} of {place}",
                    interval.low, interval.high, found.sum, found.of
                );
                Finding::measured(share, interval, words)
            }
            ScoreUnit::Tokens | ScoreUnit::Count => {
                let mean = mean(found);
                Finding::exact(mean, format!("{mean:.1} a question: {figure} of {place}"))
            }
        }
    }

    fn units(&self) -> Vec<Unit> {
        vec![match self.unit {
            _ if self.saved_against.is_some() => Unit::Percent,
            ScoreUnit::Percent => Unit::Percent,
            ScoreUnit::Tokens => Unit::Tokens,
            ScoreUnit::Count => Unit::Count,
        }]
    }

    fn command(&self) -> String {
        let mut workloads = vec![self.workload.as_str()];
        workloads.extend(
            self.saved_against
                .iter()
                .map(|against| against.workload.as_str()),
        );
        workloads.dedup();
        run_command(&workloads, None, &[&self.arm])
    }

    fn names(&self) -> Vec<(&'static str, Name<'_>)> {
        let mut names = vec![
            ("arm", Name::Arm(&self.arm)),
            ("workload", Name::Workload(&self.workload)),
        ];
        if let Some(against) = &self.saved_against {
            names.push(("saved_against.arm", Name::Arm(&against.arm)));
            names.push(("saved_against.workload", Name::Workload(&against.workload)));
        }
        names
    }
}

impl Test for ScoreGrowth {
    fn measure(&self, run: &RunEvidence<'_>) -> Finding {
        let mut points = Vec::new();
        for (size, workload) in self.sizes.iter() {
            let place = (&*self.arm, workload, &*self.method, &*self.figure);
            match score(run, place).filter(|score| score.sum > 0) {
                Some(score) => points.push((size, mean(score))),
                None => return missing(place.0, place.1, place.2, place.3),
            }
        }
        let exponent = exponent(&points);
        let means = points.iter();
        let means: Vec<_> = means.map(|(n, mean)| format!("{mean:.0} at {n}")).collect();
        let words = format!(
            "n^{exponent:.3}: {} of {} on {} is {}",
            self.figure,
            self.method,
            self.arm,
            means.join(", ")
        );
        Finding::exact(exponent, words)
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
        self.sizes.names(&self.arm)
    }
}
