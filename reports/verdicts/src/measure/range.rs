//! The figures that each measure can have, and the bounds on them that decide something. No other place knows either.

use std::collections::BTreeSet;

use figures::context::DOLLARS;

use super::faults::FaultFigure;
use super::kinds::{Measure, Scale};
use super::limits::{
    DAY_S, LEAST_SHARE, LEAST_SPENT, MOST_BYTES, MOST_COUNT, MOST_RATIO, MOST_SAVED, STEPS_OF_SECOND, YEAR_S,
};
use super::model_files::FileFigure;
use super::units::{digits, range_words};

/// The bounds on a figure that decide something: some candidate can keep them, and some can break them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecidingRange {
    least: RangeEnd,
    most: RangeEnd,
    /// What the range is of, before its words.
    of: &'static str,
}

/// An end of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RangeEnd {
    at: f64,
    /// Whether no figure lies beyond it. Else some may, but no candidate's that anybody would choose.
    is_last: bool,
}

impl DecidingRange {
    /// All figures from `least` to `most`: there are no others.
    fn of_figures(least: f64, most: f64) -> Self {
        let last = |at| RangeEnd { at, is_last: true };
        Self { least: last(least), most: last(most), of: "the figure is" }
    }

    /// Figures from `least` to `most`. None is below a `least` of 0.
    fn sensible(least: f64, most: f64) -> Self {
        let least = RangeEnd { at: least, is_last: least == 0.0 };
        Self { least, most: RangeEnd { at: most, is_last: false }, of: "a bound that can turn a verdict is" }
    }

    /// A share with an interval: a number of tries bounds it, and never shows that it is 0 or 1.
    fn of_tries() -> Self {
        let end = |at| RangeEnd { at, is_last: false };
        Self { least: end(LEAST_SHARE), most: end(1.0 - LEAST_SHARE), of: "a million tries show" }
    }

    /// Seconds, in units of which a second has `of_second`.
    fn of_time(of_second: f64) -> Self {
        Self::sensible(of_second / STEPS_OF_SECOND, DAY_S * of_second)
    }

    /// Differences of two of these figures.
    fn differences(self) -> Self {
        let is_last = self.least.is_last && self.most.is_last;
        let most = self.most.at - self.least.at;
        let end = |at| RangeEnd { at, is_last };
        Self { least: end(-most), most: end(most), of: self.of }
    }

    /// Why a bound decides nothing, in words; `None` if it does. `is_most` says that figures must be at most the bound.
    pub fn problem(&self, bound: f64, is_most: bool, unit: &str) -> Option<String> {
        let (least, most) = (self.least, self.most);
        let is_below = bound < least.at;
        let is_above = bound > most.at;
        let (keeps_none, keeps_all) = if is_most {
            (is_below, is_above || (most.is_last && bound == most.at))
        } else {
            (is_above, is_below || (least.is_last && bound == least.at))
        };
        let problem = match (keeps_none, keeps_all) {
            (true, _) => "no candidate can keep",
            (_, true) => "every candidate keeps",
            _ => return None,
        };
        let range = if least.at == most.at { digits(least.at) } else { range_words((least.at, most.at)) };
        Some(format!("{problem} this bound: {} {range} ({unit})", self.of))
    }
}

/// The number of different names.
fn distinct(names: &[String]) -> f64 {
    names.iter().collect::<BTreeSet<_>>().len() as f64
}

impl Measure {
    /// The least and the largest figure that there can be.
    pub fn range(&self, scale: Scale) -> (f64, f64) {
        let most = match self {
            Measure::Probes { names, .. } if !names.is_empty() => distinct(names),
            Measure::Property { of } => of.len() as f64,
            Measure::Score(score) => score.most(),
            _ if self.kind() == "share" => 1.0,
            _ => f64::INFINITY,
        };
        match scale {
            Scale::Own if self.kind() == "exponent" => (f64::NEG_INFINITY, f64::INFINITY),
            Scale::Own => (0.0, most),
            Scale::Ratio => (0.0, f64::INFINITY),
            Scale::Saved => (f64::NEG_INFINITY, 100.0),
            // Only the properties that the other lacks are counted.
            Scale::More | Scale::Fewer if matches!(self, Measure::Property { .. }) => (0.0, most),
            Scale::More | Scale::Fewer => (-most, most),
            Scale::SessionShare | Scale::TurnShare => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// The bounds that decide something. `counted` is the number of probes or features that the figure counts, where it is
    /// known.
    pub fn deciding(&self, scale: Scale, counted: Option<usize>) -> DecidingRange {
        let own = self.deciding_own(counted);
        let ratio = match self {
            // A baseline without any has no ratio.
            Measure::Property { of } => DecidingRange::of_figures(1.0 / MOST_RATIO, of.len() as f64),
            _ => DecidingRange::sensible(1.0 / MOST_RATIO, MOST_RATIO),
        };
        match (scale, self) {
            (Scale::Own, _) => own,
            (Scale::Ratio, _) => ratio,
            (Scale::Saved, _) => {
                let least = RangeEnd { at: (1.0 - ratio.most.at) * 100.0, is_last: ratio.most.is_last };
                DecidingRange { least, most: RangeEnd { at: MOST_SAVED, is_last: false }, of: ratio.of }
            }
            // Only the properties that the other lacks are counted.
            (Scale::More | Scale::Fewer, Measure::Property { .. }) => own,
            (Scale::More | Scale::Fewer, _) if self.kind() == "ms" => {
                DecidingRange::sensible(-DAY_S * 1000.0, DAY_S * 1000.0)
            }
            (Scale::More | Scale::Fewer, _) => own.differences(),
            (Scale::SessionShare | Scale::TurnShare, _) => DecidingRange::sensible(-1.0, 1.0),
        }
    }

    /// The bounds on a candidate's own figure.
    fn deciding_own(&self, counted: Option<usize>) -> DecidingRange {
        let range = DecidingRange::sensible;
        let count = || range(0.0, MOST_COUNT);
        let known = |most: Option<f64>| most.map_or_else(count, |most| DecidingRange::of_figures(0.0, most));
        match self {
            Measure::Latency(_) | Measure::Tail(_) | Measure::Mix { .. } | Measure::Lag { .. } => {
                DecidingRange::of_time(1000.0)
            }
            Measure::Passes { .. } => DecidingRange {
                of: "under every policy, one failed pass bars a candidate, so that a bound that can turn a verdict is",
                ..range(0.0, 0.0)
            },
            Measure::Probes { names, .. } if !names.is_empty() => known(Some(distinct(names))),
            Measure::Probes { .. } | Measure::Conformance { .. } => known(counted.map(|most| most as f64)),
            Measure::Faults { scenarios, figure, crashes_a_year, .. } => match (figure, crashes_a_year) {
                // Each fault has one at most.
                (FaultFigure::ManualRecoveries | FaultFigure::Hangs, rate) => {
                    known(Some(rate.unwrap_or_else(|| distinct(scenarios))))
                }
                (FaultFigure::RecoveryMs, None) => range(0.0, DAY_S * 1000.0),
                (FaultFigure::RecoveryMs, Some(rate)) => range(0.0, YEAR_S.min(rate * DAY_S)),
                (FaultFigure::LostRecords | FaultFigure::FailedCalls | FaultFigure::UpdatesLost, rate) => {
                    range(0.0, MOST_COUNT * rate.unwrap_or(1.0))
                }
            },
            Measure::Kept { .. } => known(Some(1.0)),
            Measure::Durability { .. } | Measure::Questions(_) => DecidingRange::of_tries(),
            Measure::Score(score) if score.is_share() => DecidingRange::of_tries(),
            Measure::Score(score) if score.most().is_finite() => known(Some(score.most())),
            Measure::Score(score) if score.is_of_delay() => DecidingRange::of_time(1e6),
            Measure::Score(score) if score.is_of_cost() => range(LEAST_SPENT, MOST_BYTES),
            Measure::Score(_) | Measure::Results { .. } => range(0.0, MOST_BYTES),
            // Every request has a prompt.
            Measure::Context(context) if context.figure == DOLLARS => range(LEAST_SPENT, MOST_COUNT),
            Measure::Context(context) if context.figure == "peak" => range(1.0, MOST_BYTES),
            Measure::Context(_) => range(0.0, MOST_BYTES),
            Measure::Cost(cost) if cost.is_of_calls() => count(),
            Measure::Cost(_) => range(0.0, MOST_BYTES),
            Measure::Hosts { figure, .. } if figure.is_delay() => DecidingRange::of_time(1000.0),
            Measure::Hosts { .. } | Measure::Burden { .. } => count(),
            Measure::Property { of } => known(Some(of.len() as f64)),
            Measure::ModelFiles(files) => match files.figure {
                FileFigure::Plausible | FileFigure::Consistent | FileFigure::Exact => known(Some(1.0)),
                FileFigure::ExactReads => DecidingRange::of_tries(),
                FileFigure::FailedSteps | FileFigure::Calls => count(),
                // The tokens of the file itself are among them.
                FileFigure::TokensOverWriting => range(1.0, MOST_RATIO),
                FileFigure::Reread => range(1.0 / MOST_RATIO, MOST_RATIO),
                FileFigure::SecondsAFile => DecidingRange::of_time(1.0),
                FileFigure::StepMs | FileFigure::AnswerMs => DecidingRange::of_time(1000.0),
            },
            // From the shortest time at one size to the longest one at another.
            Measure::Growth(growth) => growth.sizes.deciding(DAY_S * STEPS_OF_SECOND),
            Measure::ScoreGrowth(growth) => growth.sizes.deciding(MOST_BYTES / LEAST_SPENT),
        }
    }
}

impl super::growth::Sizes {
    /// The exponents of figures of which the largest is `most` times the smallest.
    fn deciding(&self, most: f64) -> DecidingRange {
        let steepest = (self.steepest(most) * 100.0).ceil() / 100.0;
        DecidingRange::sensible(-steepest, steepest)
    }
}
