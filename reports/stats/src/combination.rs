//! Differences of means that were measured independently, and tests of many such differences at once.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::epochs::{Interval, MIN_EPOCHS, PooledEstimate};

/// The chance that a test finds a difference of [`WeightedSum::detectable`].
pub const POWER: f64 = 0.8;

/// A weighted sum of means, such as the difference of two logarithms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightedSum {
    /// The weighted sum.
    pub mean: f64,
    /// Its standard error.
    pub error: f64,
    /// The degrees of freedom of the error.
    pub freedom: f64,
}

/// Sums independent means with weights. `None` if a mean comes from fewer than [`MIN_EPOCHS`] epochs.
///
/// The degrees of freedom are Welch's: B. L. Welch, "The Generalization of 'Student's' Problem when Several
/// Different Population Variances are Involved", Biometrika 34 (1947).
pub fn combine(parts: &[(f64, &PooledEstimate)]) -> Option<WeightedSum> {
    let (mut mean, mut variance, mut squares) = (0.0, 0.0, 0.0);
    for (weight, pooled) in parts {
        let epochs = pooled.estimates.len();
        let error = pooled.error.filter(|_| epochs >= MIN_EPOCHS)?;
        let term = (weight * error).powi(2);
        mean += weight * pooled.mean;
        variance += term;
        squares += term.powi(2) / (epochs - 1) as f64;
    }
    if parts.is_empty() {
        return None;
    }
    Some(WeightedSum {
        mean,
        error: variance.sqrt(),
        // Without any variance every number of degrees gives the same interval.
        freedom: if squares > 0.0 { variance.powi(2) / squares } else { 1.0 },
    })
}

impl WeightedSum {
    /// The two-sided interval at error rate `alpha`.
    pub fn interval(&self, alpha: f64) -> Interval {
        let reach = self.quantile(1.0 - alpha / 2.0) * self.error;
        Interval { low: self.mean - reach, high: self.mean + reach }
    }

    /// The two-sided p-value of the hypothesis that the true sum is at most `edge`.
    pub fn p_above(&self, edge: f64) -> f64 {
        self.p_farther(self.mean - edge)
    }

    /// The two-sided p-value of the hypothesis that the true sum is at least `edge`.
    pub fn p_below(&self, edge: f64) -> f64 {
        self.p_farther(edge - self.mean)
    }

    fn p_farther(&self, distance: f64) -> f64 {
        if self.error <= 0.0 {
            return if distance > 0.0 { 0.0 } else { 1.0 };
        }
        let above = student(self.freedom).map_or(1.0, |t| 1.0 - t.cdf(distance / self.error));
        (2.0 * above).min(1.0)
    }

    /// The smallest true sum that a test against `edge` at error rate `alpha` finds with the chance [`POWER`].
    pub fn detectable(&self, edge: f64, alpha: f64) -> f64 {
        edge + (self.quantile(1.0 - alpha / 2.0) + self.quantile(POWER)) * self.error
    }

    fn quantile(&self, q: f64) -> f64 {
        student(self.freedom).map_or(f64::INFINITY, |t| t.inverse_cdf(q))
    }
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

/// Holm's adjusted p-values, in the order given: a hypothesis rejected at its adjusted value keeps the chance of
/// any false rejection among all of them below that value, however they depend on each other.
/// S. Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6 (1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut adjusted = vec![1.0; p.len()];
    let mut largest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max((p.len() - rank) as f64 * p[at]).min(1.0);
        adjusted[at] = largest;
    }
    adjusted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epochs::pool;
    use crate::testing::normal;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Epochs of one value each.
    fn epochs(rng: &mut ChaCha8Rng, count: usize, center: f64, spread: f64) -> PooledEstimate {
        let values = (0..count).map(|_| vec![center + normal(rng, spread)]);
        pool(&values.collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_difference_of_unequal_spreads_is_covered_as_often_as_the_interval_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let covered = (0..1000).filter(|_| {
            let (old, new) = (epochs(&mut rng, 4, 0.0, 0.05), epochs(&mut rng, 8, 0.3, 0.3));
            let interval = combine(&[(1.0, &new), (-1.0, &old)]).unwrap().interval(0.05);
            interval.low <= 0.3 && 0.3 <= interval.high
        });
        let covered = covered.count();
        // 95 % of 1,000, give or take four standard errors.
        assert!((922..=978).contains(&covered), "{covered}");
    }

    #[test]
    fn a_detectable_difference_is_found_about_as_often_as_its_power_says() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let edge = 0.05;
        let mut found = 0;
        // The true error of a difference of two means over 30 epochs of spread 0.1.
        let truly = WeightedSum { mean: 0.0, error: 0.1 * (2.0_f64 / 30.0).sqrt(), freedom: 58.0 };
        let difference = truly.detectable(edge, 0.01);
        for _ in 0..1000 {
            let old = epochs(&mut rng, 30, 0.0, 0.1);
            let new = epochs(&mut rng, 30, difference, 0.1);
            let p = combine(&[(1.0, &new), (-1.0, &old)]).unwrap().p_above(edge);
            found += usize::from(p <= 0.01);
        }
        assert!((750..=850).contains(&found), "{found}");
    }

    #[test]
    fn two_epochs_give_no_difference() {
        let few = pool(&[vec![1.0], vec![1.1]]).unwrap();
        let enough = pool(&[vec![1.0], vec![1.1], vec![1.2]]).unwrap();
        assert_eq!(combine(&[(1.0, &few), (-1.0, &enough)]), None);
        assert_eq!(combine(&[]), None);
    }

    #[test]
    fn holm_corrects_the_smallest_most() {
        let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
        let expected = [0.03, 0.06, 0.06, 0.02];
        for (value, expected) in adjusted.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn holm_keeps_false_alarms_among_many_tests_below_the_rate() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let alarms = (0..2000).filter(|_| {
            let p: Vec<f64> = (0..50).map(|_| rng.random_range(0.0..1.0)).collect();
            holm(&p).iter().any(|value| *value <= 0.05)
        });
        let alarms = alarms.count();
        assert!(alarms <= 140, "{alarms} of 2,000, at most 100 expected");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn holm_never_lowers_a_p_value_and_keeps_their_order(p in prop::collection::vec(0.0f64..1.0, 1..20)) {
            let adjusted = holm(&p);
            for (at, value) in p.iter().enumerate() {
                prop_assert!(adjusted[at] >= *value);
                for (other, theirs) in p.iter().enumerate() {
                    prop_assert!(value > theirs || adjusted[at] <= adjusted[other]);
                }
            }
        }

        #[test]
        fn swapping_old_and_new_turns_the_difference_around(
            old in prop::collection::vec(-1.0f64..1.0, 3..8),
            new in prop::collection::vec(-1.0f64..1.0, 3..8)
        ) {
            let apart = |values: &[f64]| pool(&values.iter().map(|value| vec![*value]).collect::<Vec<_>>()).unwrap();
            let (old, new) = (apart(&old), apart(&new));
            let there = combine(&[(1.0, &new), (-1.0, &old)]).unwrap();
            let back = combine(&[(1.0, &old), (-1.0, &new)]).unwrap();
            prop_assert!((there.mean + back.mean).abs() < 1e-12);
            prop_assert!((there.p_above(0.1) - back.p_below(-0.1)).abs() < 1e-12);
        }
    }
}
