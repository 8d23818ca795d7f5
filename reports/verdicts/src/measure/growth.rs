//! How a figure grows with a size: the exponent of a power law, 0 for constant and 1 for linear.

use rundir::SAMPLES;
use serde::Deserialize;
use stats::{LEVEL, PooledEstimate, SeriesKey, combine, exponent_weights, logs, pool};

use super::{ArmReading, Evidence, MeasureResult, pooled, runs_gap};
use figures::evidence::RunEvidence;
use figures::text::time;

/// Sizes, each with the workload of that size.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct Sizes(Vec<(f64, String)>);

/// See [`super::Measure::Growth`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeGrowth {
    pub state: String,
    pub metric: String,
    pub sizes: Sizes,
}

/// See [`super::Measure::ScoreGrowth`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoreGrowth {
    /// The method of search.
    pub method: String,
    pub count: String,
    pub sizes: Sizes,
}

impl Sizes {
    /// The workloads, in the order given.
    pub(super) fn workloads(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(_, workload)| workload.as_str())
    }

    /// Why no power law can be fitted to these sizes; `None` if one can.
    pub(super) fn problem(&self) -> Option<(&'static str, String)> {
        let mut numbers: Vec<f64> = self.0.iter().map(|(size, _)| *size).collect();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let is_right = numbers.len() >= 2 && numbers.len() == self.0.len() && numbers[0] > 0.0;
        let message = "needs at least two different sizes above 0";
        (!is_right).then(|| ("sizes", message.to_owned()))
    }

    /// The largest exponent of figures of which the largest is `most` times the smallest.
    pub(super) fn steepest(&self, most: f64) -> f64 {
        let weights = exponent_weights(self.0.iter().map(|(size, _)| *size)).into_iter();
        weights.filter(|weight| *weight > 0.0).sum::<f64>() * most.ln()
    }
}

impl Evidence<'_> {
    /// The exponent of the time of a call.
    pub(super) fn growth(&self, growth: &TimeGrowth, arm: &str) -> MeasureResult {
        let found = self.runs.iter().filter_map(|run| {
            let times = growth.sizes.workloads();
            let times = times.map(|workload| {
                let key = SeriesKey::new(workload, &growth.state, &growth.metric);
                pooled_time(run, &key, arm)
            });
            times.collect::<Option<Vec<PooledEstimate>>>()
        });
        let place = format!("{} ({})", growth.metric, growth.state);
        let readings = found.map(|times| {
            let weights = exponent_weights(growth.sizes.0.iter().map(|(size, _)| *size));
            let parts: Vec<(f64, &PooledEstimate)> = weights.into_iter().zip(&times).collect();
            let ends = combine(&parts).map(|sum| sum.interval(1.0 - LEVEL));
            let (low, high) = ends.map_or((f64::NEG_INFINITY, f64::INFINITY), |ends| (ends.low, ends.high));
            let value: f64 = parts.iter().map(|(weight, time)| weight * time.mean).sum();
            let words = growth.sizes.words(times.iter().map(|at| time(at.mean.exp())));
            ArmReading { low, high, ..ArmReading::exact(value, words, &format!("{SAMPLES}: {place}")) }
        });
        pooled(readings.collect()).map_or_else(|| growth.sizes.gap(&place, arm), MeasureResult::Value)
    }

    /// The exponent of a count a question.
    pub(super) fn score_growth(&self, growth: &ScoreGrowth, arm: &str) -> MeasureResult {
        let (method, count) = (&growth.method, &growth.count);
        let found = self.runs.iter().filter_map(|run| {
            let means = growth.sizes.workloads();
            let means = means.map(|workload| {
                let score = run.searched(workload, arm, method)?.score(count)?;
                score.mean().filter(|mean| *mean > 0.0)
            });
            means.collect::<Option<Vec<f64>>>()
        });
        let place = format!("{count} of {method}");
        let readings = found.map(|means| {
            let sizes = growth.sizes.0.iter().map(|(size, _)| *size);
            let points: Vec<(f64, f64)> = sizes.zip(means.iter().copied()).collect();
            let words = growth.sizes.words(means.iter().map(|at| format!("{at:.0}")));
            ArmReading::exact(exponent(&points), words, &format!("{SAMPLES}: {place}"))
        });
        pooled(readings.collect()).map_or_else(|| growth.sizes.gap(&place, arm), MeasureResult::Value)
    }
}

impl Sizes {
    fn gap(&self, figure: &str, arm: &str) -> MeasureResult {
        let workloads: Vec<&str> = self.workloads().collect();
        let what = format!("{figure} on {arm} in each of {}", workloads.join(", "));
        runs_gap(workloads, &[arm], what)
    }

    /// A figure of each size, in words.
    fn words(&self, figures: impl Iterator<Item = String>) -> String {
        let sizes = self.0.iter().zip(figures);
        let sizes: Vec<String> = sizes.map(|((size, _), figure)| format!("{figure} at {size}")).collect();
        sizes.join(", ")
    }
}

/// The logarithm of an arm's time in a cell.
fn pooled_time(run: &RunEvidence<'_>, key: &SeriesKey, arm: &str) -> Option<PooledEstimate> {
    pool(&logs(run.table().0.get(key)?.get(arm)?))
}

/// The least-squares exponent of a power law through points of size and value.
pub fn exponent(points: &[(f64, f64)]) -> f64 {
    let logs: Vec<f64> = points.iter().map(|(_, value)| value.ln()).collect();
    // Subtracting the mean keeps rounding out of the exponent of equal values.
    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
    let weights = exponent_weights(points.iter().map(|(size, _)| *size));
    let parts = weights.iter().zip(&logs);
    parts.map(|(weight, log)| weight * (log - mean)).sum()
}
