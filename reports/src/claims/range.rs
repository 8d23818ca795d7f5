//! The range that a claim says, and whether a measured interval lies in it.

use serde::Deserialize;

use stats::Interval;

/// The factor by which a measurement may differ from a claim of "about" a figure.
const ABOUT: f64 = 2.0;

inputs::named! {
    /// The unit of a claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Unit, name {
        /// Milliseconds.
        Ms = "ms",
        /// A ratio.
        Times = "times",
        /// The exponent of a growth: 0 for constant, 1 for linear.
        Exponent = "exponent",
        /// A share, or a saving, in percent.
        Percent = "percent",
        /// A share between 0 and 1.
        Share = "share",
        /// `o200k` tokens; those of a published account are its own.
        Tokens = "tokens",
        Dollars = "dollars",
        /// A number of things.
        Count = "count",
    }
}

impl Unit {
    /// A value in this unit, for pages.
    pub(super) fn show(self, value: f64) -> String {
        let number = match value {
            value if value.fract() == 0.0 && value.abs() < 1e15 => format!("{value}"),
            value if value.abs() >= 100.0 => format!("{value:.1}"),
            value if value.abs() >= 0.1 => format!("{value:.3}"),
            value => format!("{value:.5}"),
        };
        match self {
            Unit::Ms => format!("{number} ms"),
            Unit::Times => format!("×{number}"),
            Unit::Exponent => format!("n^{number}"),
            Unit::Percent => format!("{number} %"),
            Unit::Share => format!("{} %", Self::Count.show(value * 100.0)),
            Unit::Tokens => format!("{number} tokens"),
            Unit::Dollars => format!("${number}"),
            Unit::Count => number,
        }
    }
}

/// The range of a claim: exactly one of the limits, and their unit.
#[derive(Clone, Copy, Debug, Deserialize)]
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
    pub unit: Unit,
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
    pub(super) fn check(&self) -> Result<(), String> {
        let given = [
            self.below.is_some(),
            self.above.is_some(),
            self.between.is_some(),
            self.about.is_some(),
            self.equals.is_some(),
        ];
        if given.into_iter().filter(|is| *is).count() != 1 {
            return Err(
                "needs exactly one of `below`, `above`, `between`, `about` and `equals`".to_owned(),
            );
        }
        if self.between.is_some_and(|(from, to)| from > to) {
            return Err("`between`: the first number is the larger one".to_owned());
        }
        if self.about.is_some_and(|about| about <= 0.0) {
            return Err("`about`: must be above 0, as it is a factor of two either way".to_owned());
        }
        Ok(())
    }

    /// Both ends, and whether a value at an end is inside.
    fn ends(&self) -> (f64, f64, bool) {
        match (
            self.below,
            self.above,
            self.between,
            self.about,
            self.equals,
        ) {
            (Some(below), ..) => (f64::NEG_INFINITY, below, false),
            (_, Some(above), ..) => (above, f64::INFINITY, false),
            (_, _, Some((from, to)), ..) => (from, to, true),
            (_, _, _, Some(about), _) => (about / ABOUT, about * ABOUT, true),
            (_, _, _, _, equals) => {
                let equals = equals.unwrap_or(f64::NAN);
                (equals, equals, true)
            }
        }
    }

    /// Where an interval lies; an exact value is an interval of one point.
    pub(super) fn fit(&self, value: f64, interval: Interval) -> Fit {
        let (from, to, closed) = self.ends();
        let is_in = |at: f64| match closed {
            true => from <= at && at <= to,
            false => from < at && at < to,
        };
        if is_in(interval.low) && is_in(interval.high) {
            return Fit::Inside;
        }
        let is_under = interval.high < from || (!closed && interval.high <= from);
        let is_over = interval.low > to || (!closed && interval.low >= to);
        if !is_under && !is_over {
            return Fit::Across;
        }
        let factor = match is_under {
            true => from / value,
            false => value / to,
        };
        Fit::Outside(Some(factor).filter(|factor| factor.is_finite() && *factor > 1.0))
    }

    /// The range in words.
    pub(super) fn words(&self) -> String {
        let show = |value| self.unit.show(value);
        match (self.below, self.above, self.between, self.about) {
            (Some(below), ..) => format!("below {}", show(below)),
            (_, Some(above), ..) => format!("above {}", show(above)),
            (_, _, Some((from, to)), _) => format!("{} to {}", show(from), show(to)),
            (.., Some(about)) => format!("about {}", show(about)),
            _ => show(self.equals.unwrap_or(f64::NAN)),
        }
    }
}
