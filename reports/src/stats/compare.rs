//! Two arms, paired within rounds: better, worse, or inconclusive.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bootstrap::{Interval, LEVEL, MIN_ROUNDS, interval_of_mean};

/// The smallest effect that counts, as a ratio.
pub const MIN_EFFECT: f64 = 1.02;

/// The noisiest floor, as a ratio, within which two arms may be called the same. Within a wider one
/// everything is.
pub const SAME_WITHIN: f64 = 1.25;

/// The chance to find an effect as large as the minimum detectable one.
const POWER: f64 = 0.8;

/// What a comparison says about the candidate, lower being better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Lower than the baseline by more than noise and the smallest effect that counts.
    Better,
    /// Higher by more than that.
    Worse,
    /// Neither can be said.
    Inconclusive,
}

/// A candidate against a baseline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Candidate over baseline: the geometric mean of the rounds' ratios.
    pub ratio: f64,
    /// Its interval, where there are [`MIN_ROUNDS`] rounds or more.
    pub interval: Option<Interval>,
    /// Rounds in which both were measured.
    pub rounds: usize,
    /// The ratio that had to be cleared, above 1: the noise floor or the smallest effect that counts.
    pub floor: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether the whole interval lies within the floor: shown to be the same, not only not shown to differ.
    pub equivalent: bool,
    /// The ratio, above 1, that this many rounds with this spread would find four times out of five.
    pub detectable: Option<f64>,
}

/// The logarithms of the ratios of two arms' values, by round; rounds that only one of them has are
/// left out, as are values that are not positive.
pub fn log_ratios(candidate: &BTreeMap<u32, f64>, baseline: &BTreeMap<u32, f64>) -> Vec<f64> {
    candidate
        .iter()
        .filter_map(|(round, value)| {
            let base = baseline.get(round)?;
            (*value > 0.0 && *base > 0.0).then(|| (value / base).ln())
        })
        .collect()
}

/// Compares by the logarithms of paired ratios. `floor` is the ratio, at least 1, that identical arms
/// may differ by.
pub fn compare(log_ratios: &[f64], floor: f64, seed: u64) -> Option<Comparison> {
    let rounds = log_ratios.len();
    if rounds == 0 {
        return None;
    }
    let floor = floor.max(MIN_EFFECT);
    let mean = log_ratios.iter().sum::<f64>() / rounds as f64;
    let interval = interval_of_mean(log_ratios, seed).map(|logs| logs.map(f64::exp));
    let verdict = match interval {
        Some(interval) if interval.low > floor => Verdict::Worse,
        Some(interval) if interval.high < 1.0 / floor => Verdict::Better,
        _ => Verdict::Inconclusive,
    };
    let equivalent = floor <= SAME_WITHIN
        && interval.is_some_and(|interval| interval.low > 1.0 / floor && interval.high < floor);
    Some(Comparison {
        ratio: mean.exp(),
        interval,
        rounds,
        floor,
        verdict,
        equivalent,
        detectable: detectable(log_ratios, mean, floor),
    })
}

/// The smallest effect that would be found with power [`POWER`]: the floor and, beyond it, the
/// two-sided t test's reach, (t₁₋α⸝₂ + t_power) · s / √n.
fn detectable(log_ratios: &[f64], mean: f64, floor: f64) -> Option<f64> {
    let rounds = log_ratios.len();
    if rounds < MIN_ROUNDS {
        return None;
    }
    let freedom = (rounds - 1) as f64;
    let squares: f64 = log_ratios.iter().map(|log| (log - mean).powi(2)).sum();
    let error = (squares / freedom / rounds as f64).sqrt();
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    let reach = student.inverse_cdf(1.0 - (1.0 - LEVEL) / 2.0) + student.inverse_cdf(POWER);
    Some((floor.ln() + reach * error).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratios(center: f64) -> Vec<f64> {
        (0..10)
            .map(|n| (center * (1.0 + 0.01 * f64::from(n % 3 - 1))).ln())
            .collect()
    }

    #[test]
    fn a_clear_difference_gets_a_verdict_and_noise_does_not() {
        let verdict = |center, floor| compare(&ratios(center), floor, 1).unwrap().verdict;
        assert_eq!(verdict(1.5, 1.0), Verdict::Worse);
        assert_eq!(verdict(0.5, 1.0), Verdict::Better);
        assert_eq!(
            verdict(1.01, 1.0),
            Verdict::Inconclusive,
            "below the smallest effect"
        );
        assert_eq!(
            verdict(1.2, 1.3),
            Verdict::Inconclusive,
            "below the noise floor"
        );
    }

    #[test]
    fn the_same_is_shown_only_by_a_narrow_interval() {
        let same = compare(&ratios(1.0), 1.05, 1).unwrap();
        assert!(same.equivalent && same.verdict == Verdict::Inconclusive);
        let noisy = compare(&ratios(1.0), 1.3, 1).unwrap();
        assert!(
            !noisy.equivalent,
            "within such noise, everything is the same"
        );
        let spread: Vec<f64> = (0..10).map(|n| f64::from(n % 3 - 1) * 0.3).collect();
        let unclear = compare(&spread, 1.05, 1).unwrap();
        assert!(!unclear.equivalent && unclear.verdict == Verdict::Inconclusive);
        assert!(unclear.detectable.unwrap() > same.detectable.unwrap());
    }

    #[test]
    fn few_rounds_never_get_a_verdict() {
        let few = compare(&[1.0, 1.0, 1.0, 1.0], 1.0, 1).unwrap();
        assert_eq!(few.verdict, Verdict::Inconclusive);
        assert_eq!(few.detectable, None);
        assert_eq!(compare(&[], 1.0, 1), None);
    }

    #[test]
    fn only_rounds_that_both_arms_have_are_paired() {
        let a = BTreeMap::from([(0, 2.0), (1, 4.0), (3, 1.0), (4, 0.0)]);
        let b = BTreeMap::from([(0, 1.0), (1, 1.0), (2, 1.0), (4, 1.0)]);
        let logs = log_ratios(&a, &b);
        assert_eq!(logs, [2f64.ln(), 4f64.ln()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn swapping_the_arms_turns_the_verdict_round(values in prop::collection::vec(-1.0f64..1.0, 8..15)) {
            let there = compare(&values, 1.0, 3).unwrap();
            let swapped: Vec<f64> = values.iter().map(|value| -value).collect();
            let back = compare(&swapped, 1.0, 3).unwrap();
            prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
            let expected = match there.verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                Verdict::Inconclusive => Verdict::Inconclusive,
            };
            prop_assert_eq!(back.verdict, expected);
        }

        #[test]
        fn the_ratio_lies_in_its_interval(values in prop::collection::vec(-1.0f64..1.0, 8..15)) {
            let found = compare(&values, 1.0, 3).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(interval.low <= found.ratio + 1e-9 && found.ratio <= interval.high + 1e-9);
        }
    }
}
