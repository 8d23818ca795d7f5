//! One estimate an epoch, one interval over epochs.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The confidence of intervals that no sequential rule narrows, such as those of the A/A check.
pub const LEVEL: f64 = 0.99;

/// The fewest epochs that carry an interval.
pub const MIN_EPOCHS: usize = 3;

/// The standard deviation of normal values over their median absolute deviation.
const NORMAL: f64 = 1.4826;

/// The variance of the Hodges–Lehmann estimate of normal values over that of their mean.
const EFFICIENCY: f64 = std::f64::consts::FRAC_PI_3;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
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
        Self {
            low: increasing(self.low),
            high: increasing(self.high),
        }
    }

    /// Whether it shares no point with `other`.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// The epochs of a cell, pooled.
#[derive(Clone, Debug, PartialEq)]
pub struct Pooled {
    /// The mean of the epochs' estimates.
    pub mean: f64,
    /// Each epoch's estimate, in the order given.
    pub estimates: Vec<f64>,
    /// The standard error of `mean`; `None` for fewer than two epochs.
    pub error: Option<f64>,
}

impl Pooled {
    /// The two-sided interval that leaves out a share of `alpha`, by Student's t with one degree of freedom less
    /// than epochs; `None` for fewer than [`MIN_EPOCHS`] epochs.
    pub fn interval(&self, alpha: f64) -> Option<Interval> {
        let epochs = self.estimates.len();
        let error = self.error.filter(|_| epochs >= MIN_EPOCHS)?;
        let reach = t_quantile(epochs, alpha) * error;
        Some(Interval {
            low: self.mean - reach,
            high: self.mean + reach,
        })
    }
}

/// Student's t that `epochs` values exceed with probability `alpha` in either direction together.
pub(crate) fn t_quantile(epochs: usize, alpha: f64) -> f64 {
    let freedom = epochs.saturating_sub(1).max(1) as f64;
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - alpha / 2.0))
}

/// Pools epochs: each epoch's Hodges–Lehmann estimate, then their mean. Epochs without values are left out; `None`
/// where all are.
///
/// This is the random-effects estimate of a balanced design: the spread of the epochs' estimates holds both what
/// varies between epochs and what varies within them. Three epochs can agree by chance, so the error is never below
/// what the spread within the epochs allows.
pub fn pool(epochs: &[Vec<f64>]) -> Option<Pooled> {
    let with_values: Vec<&Vec<f64>> = epochs.iter().filter(|values| !values.is_empty()).collect();
    let estimates: Vec<f64> = with_values
        .iter()
        .map(|values| hodges_lehmann(values))
        .collect();
    let count = estimates.len() as f64;
    if estimates.is_empty() {
        return None;
    }
    let mean = estimates.iter().sum::<f64>() / count;
    let error = (estimates.len() >= 2).then(|| {
        let squares: f64 = estimates.iter().map(|own| (own - mean).powi(2)).sum();
        let between = squares / (count - 1.0) / count;
        between.max(within_epochs(&with_values, &estimates)).sqrt()
    });
    Some(Pooled {
        mean,
        estimates,
        error,
    })
}

/// The mean of values that were each measured apart, and its [`LEVEL`] interval by Student's t.
pub fn mean_with_interval(values: &[f64]) -> Option<(f64, Option<Interval>)> {
    let apart: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
    let pooled = pool(&apart)?;
    Some((pooled.mean, pooled.interval(1.0 - LEVEL)))
}

/// The Hodges–Lehmann estimate of location: the median of the means of all pairs, each value with itself among them.
/// Hodges and Lehmann, "Estimates of Location Based on Rank Tests", Annals of Mathematical Statistics 34 (1963).
pub fn hodges_lehmann(values: &[f64]) -> f64 {
    let mut means = Vec::with_capacity(values.len() * (values.len() + 1) / 2);
    for (at, one) in values.iter().enumerate() {
        means.extend(values[at..].iter().map(|other| (one + other) / 2.0));
    }
    median(&mut means).unwrap_or(f64::NAN)
}

/// The squared standard error of the mean of the epochs' estimates that their rounds alone allow: the spread of rounds
/// about their epoch's estimate, pooled over epochs, by the rounds of each. 0 where no epoch has two rounds.
///
/// The spread is the median absolute deviation, because an outlier widens the variance and hardly moves an estimate.
fn within_epochs(epochs: &[&Vec<f64>], estimates: &[f64]) -> f64 {
    let several = epochs.iter().zip(estimates);
    let several = several.filter(|(values, _)| values.len() >= 2);
    let (mut deviations, mut freedom) = (Vec::new(), 0);
    for (values, center) in several {
        deviations.extend(values.iter().map(|value| (value - center).abs()));
        freedom += values.len() - 1;
    }
    let rounds = deviations.len() as f64;
    let Some(deviation) = median(&mut deviations) else {
        return 0.0;
    };
    let variance = (NORMAL * deviation).powi(2) * rounds / freedom as f64;
    let count = epochs.len() as f64;
    let each = epochs.iter().map(|values| variance / values.len() as f64);
    each.sum::<f64>() * EFFICIENCY / count / count
}

/// The median; sorts the values. `None` of none.
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
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use statrs::distribution::Normal;

    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        let uniform = rng.random_range(1e-9..1.0 - 1e-9);
        Normal::new(0.0, 1.0).unwrap().inverse_cdf(uniform)
    }

    #[test]
    fn an_outlier_moves_the_estimate_little() {
        let mut values = vec![1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.0];
        assert!((hodges_lehmann(&values) - 1.0).abs() < 0.01);
        values.push(50.0);
        assert!((hodges_lehmann(&values) - 1.0).abs() < 0.02);
    }

    /// How many of 1,000 intervals hold the true mean, and their mean width; `noise` makes a round's.
    fn coverage(
        (epochs, rounds): (usize, usize),
        between: f64,
        noise: fn(&mut ChaCha8Rng) -> f64,
    ) -> (usize, f64) {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let intervals: Vec<Interval> = (0..1000)
            .map(|_| {
                let mut level = || {
                    let level = between * normal(&mut rng);
                    (0..rounds).map(|_| level + noise(&mut rng)).collect()
                };
                let values: Vec<Vec<f64>> = (0..epochs).map(|_| level()).collect();
                pool(&values).unwrap().interval(1.0 - LEVEL).unwrap()
            })
            .collect();
        let covered = intervals
            .iter()
            .filter(|own| own.low <= 0.0 && 0.0 <= own.high);
        let width = intervals.iter().map(|own| own.high - own.low).sum::<f64>() / 1000.0;
        (covered.count(), width)
    }

    /// One round in twenty is far out, on either side: a burst hit candidate or baseline.
    fn with_outliers(rng: &mut ChaCha8Rng) -> f64 {
        let is_far = rng.random_range(0..20) == 0;
        normal(rng) * if is_far { 15.0 } else { 1.0 }
    }

    const DESIGNS: [(usize, usize); 6] = [(3, 4), (3, 10), (4, 20), (5, 2), (8, 3), (8, 6)];

    #[test]
    fn intervals_cover_the_true_mean_about_as_often_as_they_say() {
        for design in DESIGNS {
            for between in [0.0, 1.0] {
                for noise in [normal, with_outliers] {
                    let (covered, width) = coverage(design, between, noise);
                    println!("{design:?} {between} {covered} {width}");
                    // 99 % of 1,000, give or take three standard errors; more where the floor of the error acts.
                    assert!(covered >= 981, "{covered} of {design:?}");
                }
            }
        }
    }

    #[test]
    fn outliers_widen_an_interval_little() {
        let (_, clean) = coverage((4, 20), 0.0, normal);
        let (_, with) = coverage((4, 20), 0.0, with_outliers);
        assert!(with < 1.3 * clean, "{with} against {clean}");
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
