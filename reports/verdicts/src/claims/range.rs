//! The range that a claim says, and whether a measured interval lies in it.

use serde::Deserialize;
use stats::Interval;

use crate::measure::{amount, range_words};

/// The factor by which a measurement may differ from a claim of "about" a figure.
const ABOUT: f64 = 2.0;

/// The range of a claim: exactly one of the limits, and their unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Range {
    /// The upper limit, excluded.
    below: Option<f64>,
    /// The lower limit, excluded.
    above: Option<f64>,
    /// Both ends, included.
    between: Option<(f64, f64)>,
    /// The approximate figure; a factor of two in either direction confirms it.
    about: Option<f64>,
    /// The exact figure.
    equals: Option<f64>,
    /// A unit of the test, as those of a policy's rows.
    pub unit: String,
}

/// Where a measurement lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fit {
    /// Wholly inside the range.
    Inside,
    /// Wholly outside, with the factor to the nearest end where that is a number.
    Outside(Option<f64>),
    /// Across an end of the range.
    Across,
}

impl Range {
    /// The first problem: the field, empty for the whole range, and the problem in words.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let one = [self.below, self.above, self.about, self.equals];
        let given = one.iter().flatten().count() + usize::from(self.between.is_some());
        let ends = self.between.map_or([None; 2], |(from, to)| [Some(from), Some(to)]);
        let mut all = one.into_iter().chain(ends).flatten();
        if given != 1 {
            let message = "needs exactly one of `below`, `above`, `between`, `about` and `equals`";
            return Some(("", message));
        }
        if !all.all(f64::is_finite) {
            return Some(("", "must be finite"));
        }
        if self.between.is_some_and(|(from, to)| from > to) {
            return Some(("between", "the first number is the larger one"));
        }
        let is_wrong = self.about.is_some_and(|about| about <= 0.0);
        is_wrong.then_some(("about", "must be above 0, as it is a factor of two either way"))
    }

    /// Why no run can refute or confirm it, where a figure can only be from `low` to `high`.
    pub(super) fn one_sided(&self, (low, high): (f64, f64)) -> Option<String> {
        // An open range excludes an infinite end, which cannot be measured.
        let ends = Interval { low, high }.map(|end| end.clamp(f64::MIN, f64::MAX));
        let word = match self.fit(ends.low, ends) {
            Fit::Inside => "refute",
            Fit::Outside(_) => "confirm",
            Fit::Across => return None,
        };
        let range = range_words((low, high));
        let unit = &self.unit;
        Some(format!("no run can {word} it: the figure is {range} ({unit})"))
    }

    /// Both ends, and whether a value at an end is inside.
    fn ends(&self) -> (f64, f64, bool) {
        match (self.below, self.above, self.between, self.about) {
            (Some(below), ..) => (f64::NEG_INFINITY, below, false),
            (_, Some(above), ..) => (above, f64::INFINITY, false),
            (_, _, Some((from, to)), _) => (from, to, true),
            (.., Some(about)) => (about / ABOUT, about * ABOUT, true),
            _ => {
                let equals = self.equals.unwrap_or(f64::NAN);
                (equals, equals, true)
            }
        }
    }

    /// Where an interval lies; an exact value is an interval of one point.
    pub(super) fn fit(&self, value: f64, interval: Interval) -> Fit {
        let (from, to, closed) = self.ends();
        let is_in = |at: f64| if closed { from <= at && at <= to } else { from < at && at < to };
        if is_in(interval.low) && is_in(interval.high) {
            return Fit::Inside;
        }
        let is_under = interval.high < from || (!closed && interval.high <= from);
        let is_over = interval.low > to || (!closed && interval.low >= to);
        if !is_under && !is_over {
            return Fit::Across;
        }
        let factor = if is_under { from / value } else { value / to };
        Fit::Outside(Some(factor).filter(|factor| factor.is_finite() && *factor > 1.0))
    }

    /// The range in words.
    pub(super) fn words(&self) -> String {
        let show = |value| amount(value, &self.unit);
        match (self.below, self.above, self.between, self.about) {
            (Some(below), ..) => format!("below {}", show(below)),
            (_, Some(above), ..) => format!("above {}", show(above)),
            (_, _, Some((from, to)), _) => format!("{} to {}", show(from), show(to)),
            (.., Some(about)) => format!("about {}", show(about)),
            _ => show(self.equals.unwrap_or(f64::NAN)),
        }
    }
}
