//! Detects two levels in one cell: an arm that is fast in some passes and slow in others has no typical value.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::epochs::median;

/// The minimum number of values for the detection of two modes.
const MIN_VALUES: usize = 12;

/// The minimum share of values in the smaller mode; fewer are outliers.
const MIN_SHARE: f64 = 0.15;

/// The minimum distance of the modes in units of their spread, as Ashman's D.
/// Two halves of one normal distribution reach 2.7, of a uniform one 3.5.
/// Ashman, Bird and Zepf, The Astronomical Journal 108 (1994).
const MIN_SEPARATION: f64 = 5.0;

/// The minimum distance of the modes as a ratio; below it they count as one level.
const MIN_RATIO: f64 = 1.1;

/// Two modes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Modes {
    /// The median of the lower mode, in the unit of the values.
    pub low: f64,
    /// The median of the upper mode, in the unit of the values.
    pub high: f64,
    /// The share of values in the upper mode.
    pub high_share: f64,
}

/// Finds two modes in positive values by a gap test on logarithms: the split with the least variance
/// within its parts, if the parts are far apart for their spread. `None` if there is one mode.
pub fn modes(values: &[f64]) -> Option<Modes> {
    let mut logs: Vec<f64> = values.iter().filter(|v| **v > 0.0).map(|v| v.ln()).collect();
    if logs.len() < MIN_VALUES {
        return None;
    }
    logs.sort_by(f64::total_cmp);
    let count = logs.len();
    let smallest = ((count as f64 * MIN_SHARE).ceil() as usize).max(2);
    let split =
        (smallest..=count - smallest).min_by(|a, b| inner_squares(&logs, *a).total_cmp(&inner_squares(&logs, *b)))?;
    let (low, high) = logs.split_at(split);
    let spread = (variance(low) + variance(high)).sqrt();
    let distance = mean(high) - mean(low);
    let separation = std::f64::consts::SQRT_2 * distance / spread.max(1e-12);
    let (low, high) = (median(&mut low.to_vec())?, median(&mut high.to_vec())?);
    if separation < MIN_SEPARATION || high - low < MIN_RATIO.ln() {
        return None;
    }
    Some(Modes { low: low.exp(), high: high.exp(), high_share: (count - split) as f64 / count as f64 })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64
}

fn inner_squares(sorted: &[f64], split: usize) -> f64 {
    let (low, high) = sorted.split_at(split);
    variance(low) * low.len() as f64 + variance(high) * high.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn one_mode_is_not_split() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let normal: Vec<f64> = (0..60).map(|_| (0.05 * normal(&mut rng, 1.0)).exp()).collect();
            let uniform: Vec<f64> = (0..60).map(|_| rng.random_range(1.0..2.0)).collect();
            let tailed: Vec<f64> = (0..60).map(|_| 1.0 - 0.3 * rng.random_range(1e-6..1.0f64).ln()).collect();
            assert_eq!(modes(&normal), None);
            assert_eq!(modes(&uniform), None);
            assert_eq!(modes(&tailed), None);
        }
    }

    #[test]
    fn two_levels_are_found_with_their_shares() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let values: Vec<f64> = (0..60)
            .map(|n| {
                let level = if n % 4 == 0 { 70.0 } else { 20.0 };
                level * (0.04 * normal(&mut rng, 1.0)).exp()
            })
            .collect();
        let found = modes(&values).unwrap();
        assert!((found.low / 20.0 - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.high / 70.0 - 1.0).abs() < 0.05, "{found:?}");
        assert!((found.high_share - 0.25).abs() < 0.01);
    }

    #[test]
    fn a_few_outliers_do_not_form_a_mode() {
        let mut values = vec![20.0, 20.1, 19.9, 20.2, 19.8, 20.0, 20.1, 20.0, 20.0, 19.9, 20.05, 20.15, 20.1, 20.0];
        values.push(200.0);
        assert_eq!(modes(&values), None);
    }
}
