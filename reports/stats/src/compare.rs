//! Compares a candidate with a baseline: better, worse, same or undecided.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::epochs::{Interval, pool};
use crate::ratios::{BoundedLogRatio, Ratios};

/// The widest margin that a comparison can have, as a ratio. A wider one allows any difference that matters to a reader
/// of ratios, because the times are a tiny share of what surrounds them.
pub const WIDEST_MARGIN: f64 = 2.0;

inputs::named! {
    /// The verdict on the candidate; lower values are better.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Verdict, name {
        /// The whole interval lies below the margin.
        Better = "better",
        /// The whole interval lies above the margin.
        Worse = "worse",
        /// The whole interval lies inside the margin.
        Same = "same",
        /// The whole interval lies inside a margin that is wider than a factor of two: neither the candidate nor the baseline
        /// takes long enough to matter.
        BelowWhatMatters = "below what matters",
        /// The interval contains an edge of the margin, or there is none.
        Undecided = "undecided",
    }
}

impl Verdict {
    /// Whether it says better, worse or same.
    pub fn is_decided(self) -> bool {
        matches!(self, Verdict::Better | Verdict::Worse | Verdict::Same)
    }

    /// Whether one verdict is better and the other worse.
    pub fn contradicts(self, other: Self) -> bool {
        matches!((self, other), (Verdict::Better, Verdict::Worse) | (Verdict::Worse, Verdict::Better))
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
    /// The interval of the ratio; null for fewer than three epochs. On a busy machine it is widened by what the
    /// disturbance can have changed, and null where that is unknown.
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
    /// Half of the interval's width on logarithms, as a ratio above 1. The interval of a larger measured difference
    /// excludes 1. Absent without an interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_width: Option<f64>,
}

impl Comparison {
    /// How far the arms came out apart, as a ratio of at least 1.
    pub fn apart(&self) -> f64 {
        self.ratio.max(1.0 / self.ratio)
    }

    /// Makes an undecided comparison one of times below what matters, if its whole interval lies inside a margin that is wide
    /// enough for that. Any other verdict stays.
    pub fn leave_open_below(&mut self, margin: Margin) {
        let verdict = self.interval.map(|ends| margin.verdict(ends.map(f64::ln)));
        if self.verdict == Verdict::Undecided && verdict == Some(Verdict::BelowWhatMatters) {
            (self.verdict, self.margin) = (Verdict::BelowWhatMatters, margin);
        }
    }

    /// Withholds the verdict.
    pub fn withhold(&mut self, why: &str) {
        self.verdict = Verdict::Undecided;
        self.withheld = Some(why.to_owned());
    }
}

impl Margin {
    /// The verdict that an interval of log ratios gets. Its verdict depends on the interval alone, and not on the order
    /// or the direction of single epochs.
    pub fn verdict(&self, logs: Interval) -> Verdict {
        let edge = self.ratio.ln();
        if logs.low > edge {
            Verdict::Worse
        } else if logs.high < -edge {
            Verdict::Better
        } else if logs.low < -edge || logs.high > edge {
            Verdict::Undecided
        } else if self.ratio > WIDEST_MARGIN {
            Verdict::BelowWhatMatters
        } else {
            Verdict::Same
        }
    }
}

/// Compares by the logarithms of paired ratios. `alpha` is the error rate of the interval.
/// `None` without ratios.
pub fn compare(ratios: &Ratios, alpha: f64, margin: Margin) -> Option<Comparison> {
    let pooled = pool(&ratios.measured)?;
    let logs = BoundedLogRatio::of(&[(1.0, ratios)]).map(|found| found.interval(alpha));
    Some(Comparison {
        ratio: pooled.mean.exp(),
        interval: logs.map(|logs| logs.map(f64::exp)),
        alpha,
        epochs: pooled.estimates.iter().map(|estimate| estimate.exp()).collect(),
        rounds: ratios.measured.iter().map(Vec::len).sum(),
        margin,
        verdict: logs.map_or(Verdict::Undecided, |logs| margin.verdict(logs)),
        withheld: None,
        half_width: logs.map(|logs| ((logs.high - logs.low) / 2.0).exp()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MARGIN: Margin = Margin { ratio: 1.05, kind: MarginKind::Relative };

    /// Four epochs around `center` that differ by `spread`, ten rounds each.
    fn epochs(center: f64, spread: f64) -> Vec<Vec<f64>> {
        (0..4)
            .map(|epoch| {
                let level = center.ln() + spread * (f64::from(epoch) - 1.5);
                (0..10).map(|n| level + 0.003 * f64::from(n % 3 - 1)).collect()
            })
            .collect()
    }

    fn compared(epochs: Vec<Vec<f64>>, alpha: f64, margin: Margin) -> Option<Comparison> {
        compare(&Ratios::undisturbed(epochs), alpha, margin)
    }

    fn verdict(center: f64, spread: f64) -> Verdict {
        compared(epochs(center, spread), 0.01, MARGIN).unwrap().verdict
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
    fn a_single_epoch_has_no_veto() {
        let mut mixed = vec![vec![1.0]; 30];
        mixed[0] = vec![-0.001];
        let found = compared(mixed, 0.01, MARGIN).unwrap();
        assert!(found.interval.unwrap().low > 1.05, "{found:?}");
        assert_eq!(found.verdict, Verdict::Worse);
    }

    #[test]
    fn verdicts_get_no_rarer_with_more_epochs() {
        for center in [0.85, 1.0, 1.15] {
            let few = epochs(center, 0.02);
            let many: Vec<_> = std::iter::repeat_n(few.clone(), 8).flatten().collect();
            let verdict = |epochs| compared(epochs, 0.01, MARGIN).unwrap().verdict;
            assert_ne!(verdict(many.clone()), Verdict::Undecided, "{center}");
            assert!([verdict(many), Verdict::Undecided].contains(&verdict(few)));
        }
    }

    #[test]
    fn a_cell_with_a_wide_margin_has_no_verdict_unless_the_difference_is_wider() {
        let wide = |ratio| Margin { ratio, kind: MarginKind::Session };
        let verdict = |center, ratio| {
            let found = compared(epochs(center, 0.005), 0.01, wide(ratio)).unwrap();
            found.verdict
        };
        assert_eq!(verdict(0.47, 97.0), Verdict::BelowWhatMatters);
        assert_eq!(verdict(50.0, 97.0), Verdict::BelowWhatMatters);
        assert_eq!(verdict(200.0, 97.0), Verdict::Worse);
        assert_eq!(verdict(97.0, 97.0), Verdict::Undecided);
        assert_eq!(verdict(1.3, 2.0), Verdict::Same, "×2 is still a comparison");
        assert_eq!(verdict(1.3, 2.001), Verdict::BelowWhatMatters);
        let unknown = compared(epochs(0.47, 0.0)[..2].to_vec(), 0.01, wide(97.0)).unwrap();
        assert_eq!(unknown.verdict, Verdict::Undecided, "too few epochs");
    }

    #[test]
    fn a_difference_larger_than_the_half_width_excludes_1() {
        let found = compared(epochs(1.0, 0.01), 0.01, MARGIN).unwrap();
        let shown = found.half_width.unwrap();
        for (center, excludes_one) in [(shown * 1.001, true), (shown / 1.001, false)] {
            let found = compared(epochs(center, 0.01), 0.01, MARGIN).unwrap();
            assert_eq!(found.interval.unwrap().low > 1.0, excludes_one, "{found:?}");
        }
    }

    #[test]
    fn two_epochs_never_get_a_verdict() {
        let few = compared(epochs(2.0, 0.0)[..2].to_vec(), 0.01, MARGIN).unwrap();
        assert_eq!((few.verdict, few.interval), (Verdict::Undecided, None));
        assert_eq!(few.half_width, None);
        assert_eq!(compared(Vec::new(), 0.01, MARGIN), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn swapping_the_arms_inverts_the_verdict(
            values in prop::collection::vec(prop::collection::vec(-1.0f64..1.0, 3..8), 3..8)
        ) {
            let there = compared(values.clone(), 0.01, MARGIN).unwrap();
            let swapped: Vec<Vec<f64>> =
                values.iter().map(|epoch| epoch.iter().map(|value| -value).collect()).collect();
            let back = compared(swapped, 0.01, MARGIN).unwrap();
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
            let found = compared(values.clone(), 0.01, MARGIN).unwrap();
            let interval = found.interval.unwrap();
            prop_assert!(interval.low <= found.ratio && found.ratio <= interval.high);
        }
    }

    #[test]
    fn only_an_undecided_comparison_inside_a_wide_margin_is_below_what_matters() {
        let session = |ratio| Margin { ratio, kind: MarginKind::Session };
        for (center, spread, margin, expected) in [
            (1.0, 0.1, session(100.0), Verdict::BelowWhatMatters),
            // Decided by the margin of a call.
            (2.0, 0.001, session(100.0), Verdict::Worse),
            (0.5, 0.001, session(100.0), Verdict::Better),
            (1.0, 0.001, session(100.0), Verdict::Same),
            // Not inside, and not wide.
            (90.0, 0.1, session(100.0), Verdict::Worse),
            (1.0, 0.2, session(1.9), Verdict::Undecided),
            (1.0, 0.4, session(2.1), Verdict::Undecided),
        ] {
            let mut found = compared(epochs(center, spread), 0.01, MARGIN).unwrap();
            let before = found.margin;
            found.leave_open_below(margin);
            assert_eq!(found.verdict, expected, "{center} ± {spread}: {found:?}");
            let is_below = expected == Verdict::BelowWhatMatters;
            assert_eq!(found.margin, if is_below { margin } else { before });
        }
    }
}
