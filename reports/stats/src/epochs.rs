//! One estimate per epoch, and one interval over epochs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of the intervals of the A/A check.
pub const LEVEL: f64 = 0.99;

/// The minimum number of epochs for an interval.
pub const MIN_EPOCHS: usize = 3;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Interval {
    /// Applies an increasing function to both ends.
    pub fn map(self, increasing: impl Fn(f64) -> f64) -> Self {
        Self { low: increasing(self.low), high: increasing(self.high) }
    }

    /// Whether it shares no point with `other`.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// The pooled epochs of a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledEstimate {
    /// The mean of the epochs' estimates.
    pub mean: f64,
    /// Each epoch's estimate, in the order given.
    pub estimates: Vec<f64>,
    /// The standard error of `mean`; `None` for fewer than two epochs.
    pub error: Option<f64>,
}

impl PooledEstimate {
    /// The two-sided interval at error rate `alpha`, by Student's t with one degree of freedom fewer than
    /// epochs.
    /// `None` for fewer than [`MIN_EPOCHS`] epochs.
    pub fn interval(&self, alpha: f64) -> Option<Interval> {
        let epochs = self.estimates.len();
        let error = self.error.filter(|_| epochs >= MIN_EPOCHS)?;
        let reach = t_quantile(epochs, alpha) * error;
        Some(Interval { low: self.mean - reach, high: self.mean + reach })
    }
}

/// The two-sided quantile of Student's t for `epochs` values at error rate `alpha`.
fn t_quantile(epochs: usize, alpha: f64) -> f64 {
    let freedom = epochs.saturating_sub(1).max(1) as f64;
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - alpha / 2.0))
}

/// Pools epochs: the mean of their Hodges–Lehmann estimates. Epochs without values are left out;
/// `None` if all are empty.
///
/// This is the random-effects estimate of a balanced design: the spread of the epochs' estimates
/// contains the variation between epochs and within them.
/// Three epochs can agree by chance, so the variation within epochs is a lower bound of the error, where they have more
/// than one round.
pub fn pool(epochs: &[Vec<f64>]) -> Option<PooledEstimate> {
    let with_values: Vec<&Vec<f64>> = epochs.iter().filter(|values| !values.is_empty()).collect();
    let estimates: Vec<f64> = with_values.iter().map(|values| hodges_lehmann(values)).collect();
    let count = estimates.len() as f64;
    if estimates.is_empty() {
        return None;
    }
    let mean = estimates.iter().sum::<f64>() / count;
    let error = (estimates.len() >= 2).then(|| {
        let squares: f64 = estimates.iter().map(|estimate| (estimate - mean).powi(2)).sum();
        let between = squares / (count - 1.0) / count;
        between.max(within_epochs(&with_values)).sqrt()
    });
    Some(PooledEstimate { mean, estimates, error })
}

/// The mean of independently measured values, and its [`LEVEL`] interval by Student's t.
pub fn mean_with_interval(values: &[f64]) -> Option<(f64, Option<Interval>)> {
    let apart: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
    let pooled = pool(&apart)?;
    Some((pooled.mean, pooled.interval(1.0 - LEVEL)))
}

/// The Hodges–Lehmann estimate of location: the median of the means of all pairs, self-pairs included.
/// Hodges and Lehmann, "Estimates of Location Based on Rank Tests", Annals of Mathematical Statistics 34 (1963).
/// Of more than 2,048 values it takes 2,048, evenly spaced by rank: the number of pairs grows with the square.
pub fn hodges_lehmann(values: &[f64]) -> f64 {
    const MOST: usize = 2048;
    if values.len() > MOST {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let spaced = (0..MOST).map(|rank| sorted[rank * last / (MOST - 1)]);
        return hodges_lehmann(&spaced.collect::<Vec<f64>>());
    }
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (at, one) in values.iter().enumerate() {
        means.extend(values[at..].iter().map(|other| (one + other) / 2.0));
    }
    median(&mut means).unwrap_or(f64::NAN)
}

/// The squared standard error of the mean that the variation between rounds alone implies.
/// It uses the median absolute deviation of all epochs' rounds from their epochs' medians,
/// because a single epoch may have few rounds.
/// The efficiency of [`hodges_lehmann`] on normal values is 3/π. 0 if no epoch has two rounds.
fn within_epochs(epochs: &[&Vec<f64>]) -> f64 {
    let mut deviations = Vec::new();
    for values in epochs.iter().filter(|values| values.len() >= 2) {
        let rounds = values.len() as f64;
        let middle = median(&mut values.to_vec()).unwrap_or(0.0);
        // Deviations from an epoch's own median are biased low, most of all with two rounds.
        let lost = (rounds / (rounds - 1.0)).sqrt();
        deviations.extend(values.iter().map(|value| (value - middle).abs() * lost));
    }
    let deviation = 1.4826 * median(&mut deviations).unwrap_or(0.0);
    let rounds = epochs.iter().map(|values| 1.0 / values.len() as f64).sum::<f64>();
    let count = epochs.len() as f64;
    deviation.powi(2) * std::f64::consts::FRAC_PI_3 * rounds / count / count
}

/// The median; sorts the values. `None` without values.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn an_outlier_moves_the_estimate_little() {
        let mut values = vec![1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0];
        assert!((hodges_lehmann(&values) - 1.0).abs() < 0.01);
        values.push(50.0);
        assert!((hodges_lehmann(&values) - 1.0).abs() < 0.02);
    }

    #[test]
    fn intervals_cover_the_true_mean_about_as_often_as_they_say() {
        for (epochs, rounds) in [(3, 1), (5, 1), (3, 10), (4, 20), (8, 6)] {
            for between in [0.0, 1.0] {
                let mut rng = ChaCha8Rng::seed_from_u64(1);
                let covered = (0..1000).filter(|_| {
                    let values: Vec<Vec<f64>> = (0..epochs)
                        .map(|_| {
                            let level = between * normal(&mut rng, 1.0);
                            (0..rounds).map(|_| level + normal(&mut rng, 1.0)).collect()
                        })
                        .collect();
                    let interval = pool(&values).unwrap().interval(1.0 - LEVEL).unwrap();
                    interval.low <= 0.0 && 0.0 <= interval.high
                });
                let covered = covered.count();
                // 99 % of 1,000, minus three standard errors. Coverage is higher where the lower bound of the
                // error applies.
                assert!(covered >= 981, "{covered} of {epochs} epochs of {rounds}");
            }
        }
    }

    #[test]
    fn epochs_that_agree_by_chance_do_not_narrow_the_interval() {
        let wide: Vec<f64> = (0..9).map(|n| f64::from(n % 3 - 1)).collect();
        let same = vec![wide.clone(), wide.clone(), wide];
        let pooled = pool(&same).unwrap();
        assert!(pooled.error.unwrap() > 0.1, "{pooled:?}");
    }

    #[test]
    fn two_epochs_carry_no_interval() {
        let pooled = pool(&[vec![1.0, 2.0], vec![1.0], vec![]]).unwrap();
        assert_eq!(pooled.estimates.len(), 2);
        assert_eq!(pooled.interval(0.01), None);
        assert_eq!(pool(&[vec![]]), None);
    }
}
