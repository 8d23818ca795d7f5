//! Compares a candidate with a baseline: better, worse, same or undecided.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::epochs::{Interval, MIN_EPOCHS, pool, t_quantile};

/// The maximum of [`Comparison::epochs_needed`].
const MOST_EPOCHS: usize = 500;

inputs::named! {
    /// The verdict on the candidate; lower values are better.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict, name {
        /// The whole interval lies below the margin, and every epoch's estimate below 1.
        Better = "better",
        /// The whole interval lies above the margin, and every epoch's estimate above 1.
        Worse = "worse",
        /// The whole interval lies inside the margin.
        Same = "same",
        /// None of the above.
        Undecided = "undecided",
    }
}

impl Verdict {
    /// Whether one verdict is better and the other worse.
    pub fn contradicts(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Verdict::Better, Verdict::Worse) | (Verdict::Worse, Verdict::Better)
        )
    }
}

/// The plan's margin that applies in a cell: the widest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MarginKind {
    /// A share of the baseline's time.
    Relative,
    /// A time per call.
    Absolute,
    /// A share of the recorded session.
    Session,
}

/// The difference below which we do not care, fixed before the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Margin {
    /// The margin as a ratio to the baseline, above 1.
    pub ratio: f64,
    /// The kind of margin that gave this ratio.
    pub kind: MarginKind,
}

/// A candidate against a baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Candidate over baseline: the geometric mean of the epochs' estimates.
    pub ratio: f64,
    /// Its interval; `None` for fewer than three epochs.
    pub interval: Option<Interval>,
    /// The error rate of the interval: the plan's share for a cell with this number of epochs.
    pub alpha: f64,
    /// Each epoch's ratio.
    pub epochs: Vec<f64>,
    /// Rounds in which candidate and baseline were both measured.
    pub rounds: usize,
    /// The margin.
    pub margin: Margin,
    /// The verdict.
    pub verdict: Verdict,
    /// Why the verdict that the interval would give is withheld.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
    /// For an undecided comparison: the total number of epochs that would decide it, if they vary as these do.
    /// `None` above 500 or if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epochs_needed: Option<u32>,
}

impl Comparison {
    /// The larger distance of the interval's ends from 1, as a ratio of at least 1.
    pub fn reach(&self) -> Option<f64> {
        self.interval
            .map(|interval| interval.high.max(1.0 / interval.low))
    }

    /// Withholds the verdict.
    pub fn withhold(&mut self, why: &str) {
        self.verdict = Verdict::Undecided;
        self.epochs_needed = None;
        self.withheld = Some(why.to_owned());
    }
}

/// Compares by the logarithms of paired ratios, with one list per epoch. `alpha` is the error rate of the
/// interval.
/// `None` without ratios.
pub fn compare(epochs: &[Vec<f64>], alpha: f64, margin: Margin) -> Option<Comparison> {
    let pooled = pool(epochs)?;
    let interval = pooled.interval(alpha);
    let edge = margin.ratio.ln();
    let all = |holds: fn(f64) -> bool| pooled.estimates.iter().all(|estimate| holds(*estimate));
    let verdict = match interval {
        Some(interval) if interval.low > edge && all(|estimate| estimate > 0.0) => Verdict::Worse,
        Some(interval) if interval.high < -edge && all(|estimate| estimate < 0.0) => {
            Verdict::Better
        }
        Some(interval) if interval.low >= -edge && interval.high <= edge => Verdict::Same,
        _ => Verdict::Undecided,
    };
    let undecided = verdict == Verdict::Undecided;
    let distance = (pooled.mean.abs() - edge).abs();
    let needed = pooled.error.filter(|_| undecided).and_then(|error| {
        let now = pooled.estimates.len();
        let spread = error * (now as f64).sqrt();
        let decides =
            |epochs: usize| t_quantile(epochs, alpha) * spread / (epochs as f64).sqrt() < distance;
        ((now + 1).max(MIN_EPOCHS)..=MOST_EPOCHS).find(|epochs| decides(*epochs))
    });
    Some(Comparison {
        ratio: pooled.mean.exp(),
        interval: interval.map(|logs| logs.map(f64::exp)),
        alpha,
        epochs: pooled
            .estimates
            .iter()
            .map(|estimate| estimate.exp())
            .collect(),
        rounds: epochs.iter().map(Vec::len).sum(),
        margin,
        verdict,
        withheld: None,
        epochs_needed: needed.map(|epochs| epochs as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARGIN: Margin = Margin {
        ratio: 1.05,
        kind: MarginKind::Relative,
    };

    /// Four epochs around `center` that differ by `spread`, ten rounds each.
    fn epochs(center: f64, spread: f64) -> Vec<Vec<f64>> {
        (0..4)
            .map(|epoch| {
                let level = center.ln() + spread * (f64::from(epoch) - 1.5);
                (0..10)
                    .map(|n| level + 0.003 * f64::from(n % 3 - 1))
                    .collect()
            })
            .collect()
    }

    fn verdict(center: f64, spread: f64) -> Verdict {
        compare(&epochs(center, spread), 0.01, MARGIN)
            .unwrap()
            .verdict
    }

    #[test]
    fn verdicts_depend_on_the_whole_interval_and_the_margin() {
        assert_eq!(verdict(1.5, 0.005), Verdict::Worse);
        assert_eq!(verdict(0.6, 0.005), Verdict::Better);
        assert_eq!(verdict(1.01, 0.002), Verdict::Same);
        assert_eq!(verdict(1.05, 0.005), Verdict::Undecided, "at the margin");
        assert_eq!(verdict(1.5, 0.3), Verdict::Undecided, "epochs that differ");
    }

    #[test]
    fn epochs_that_disagree_in_direction_get_no_verdict() {
        let mut mixed = epochs(3.0, 0.0);
        mixed[0] = vec![-0.001; 10];
        let found = compare(&mixed, 0.5, MARGIN).unwrap();
        assert!(found.interval.unwrap().low > 1.05, "{found:?}");
        assert_eq!(found.verdict, Verdict::Undecided);
    }

    #[test]
    fn an_undecided_cell_says_how_many_epochs_would_decide_it() {
        let unsure = compare(&epochs(1.2, 0.1), 0.01, MARGIN).unwrap();
        assert_eq!(unsure.verdict, Verdict::Undecided);
        let needed = unsure.epochs_needed.unwrap();
        assert!((5..100).contains(&needed), "{needed}");
        let sure = compare(&epochs(1.5, 0.005), 0.01, MARGIN).unwrap();
        assert_eq!(sure.epochs_needed, None);
    }

    #[test]
    fn two_epochs_never_get_a_verdict() {
        let few = compare(&epochs(2.0, 0.0)[..2], 0.01, MARGIN).unwrap();
        assert_eq!((few.verdict, few.interval), (Verdict::Undecided, None));
        assert_eq!(compare(&[], 0.01, MARGIN), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn swapping_the_arms_inverts_the_verdict(
            values in prop::collection::vec(prop::collection::vec(-1.0f64..1.0, 3..8), 3..8)
        ) {
            let there = compare(&values, 0.01, MARGIN).unwrap();
            let swapped: Vec<Vec<f64>> =
                values.iter().map(|epoch| epoch.iter().map(|value| -value).collect()).collect();
            let back = compare(&swapped, 0.01, MARGIN).unwrap();
            prop_assert!((there.ratio * back.ratio - 1.0).abs() < 1e-9);
            let expected = match there.verdict {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                other => other,
            };
            prop_assert_eq!(back.verdict, expected);
        }

        #[test]
        fn the_ratio_lies_in_its_interval(
            values in prop::collection::vec(prop::collection::vec(-1.0f64..1.0, 3..8), 3..8)
        ) {
            let found = compare(&values, 0.01, MARGIN).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(interval.low <= found.ratio && found.ratio <= interval.high);
        }
    }
}
