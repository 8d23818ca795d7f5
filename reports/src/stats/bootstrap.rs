//! Bootstrap intervals of a mean, honest for the few blocks that a run has.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// The confidence of every interval on the page. A page holds dozens of them: at 95 %, some would be
/// wrong on every page.
pub const LEVEL: f64 = 0.99;

/// How often the blocks are drawn anew.
const RESAMPLES: usize = 10_000;

/// The fewest values that carry an interval. A bootstrap interval never leaves the range of its values,
/// and of fewer than 8 not even that whole range covers the middle 99 times out of 100 (1 − 2¹⁻ⁿ).
pub const MIN_ROUNDS: usize = 8;

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
}

/// The [`LEVEL`] bootstrap percentile interval of the mean of `values`, expanded for small samples as
/// in Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015),
/// section 5.3: the plain percentile interval of 10 values is as narrow as if their spread were known.
/// `None` for fewer than [`MIN_ROUNDS`] values. The same values and seed give the same interval.
pub fn interval_of_mean(values: &[f64], seed: u64) -> Option<Interval> {
    let count = values.len();
    if count < MIN_ROUNDS {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..count).map(|_| values[rng.random_range(0..count)]);
            drawn.sum::<f64>() / count as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let tail = expanded_tail(count);
    Some(Interval {
        low: quantile(&means, tail),
        high: quantile(&means, 1.0 - tail),
    })
}

/// The share of resamples to cut off at each end.
fn expanded_tail(count: usize) -> f64 {
    let freedom = (count - 1) as f64;
    let (Ok(student), Ok(normal)) = (StudentsT::new(0.0, 1.0, freedom), Normal::new(0.0, 1.0))
    else {
        unreachable!("at least one degree of freedom")
    };
    let t = student.inverse_cdf((1.0 - LEVEL) / 2.0);
    normal.cdf((count as f64 / freedom).sqrt() * t)
}

/// A quantile of sorted values, between neighbours by linear interpolation.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = q * (sorted.len() - 1) as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        let uniform = rng.random_range(1e-9..1.0 - 1e-9);
        Normal::new(0.0, 1.0).unwrap().inverse_cdf(uniform)
    }

    #[test]
    fn covers_the_true_mean_about_as_often_as_it_says() {
        for count in [MIN_ROUNDS, 12, 20] {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let trials = 500;
            let covered = (0..trials)
                .filter(|trial| {
                    let values: Vec<f64> = (0..count).map(|_| normal(&mut rng)).collect();
                    let interval = interval_of_mean(&values, *trial).unwrap();
                    interval.low <= 0.0 && 0.0 <= interval.high
                })
                .count();
            // 99 % of 500, give or take three standard errors, and the resampling's own roughness.
            assert!((486..=500).contains(&covered), "{covered} of {count}");
        }
    }

    #[test]
    fn is_wider_with_fewer_values_and_the_same_every_time() {
        let values = |count: u32| -> Vec<f64> { (0..count).map(|n| f64::from(n % 3)).collect() };
        let few = interval_of_mean(&values(9), 7).unwrap();
        let many = interval_of_mean(&values(30), 7).unwrap();
        assert!(few.high - few.low > many.high - many.low);
        assert_eq!(few, interval_of_mean(&values(9), 7).unwrap());
        assert_eq!(interval_of_mean(&values(7), 7), None);
    }
}
