//! A figure of a candidate beside the baseline's.

use serde::Serialize;

use super::Reading;
use crate::text::small_share;

/// A figure of a candidate beside the baseline's.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// The figure in the unit of the row.
    pub(crate) reading: Reading,
    /// The baseline in words.
    pub(crate) baseline: String,
    /// The time that a call of the candidate adds, in nanoseconds; `None` for other measures.
    pub(crate) added_ns: Option<f64>,
    /// The wait as a share of the recorded session, with what was not replayed; `None` without a recording.
    pub(crate) session: Option<String>,
    /// The added time as a share of the recorded session, for a ratio of times in it.
    pub(crate) share: Option<SessionShare>,
}

/// The time that a candidate adds, as a share of the recorded session that it is added to; below 0 if it saves time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SessionShare {
    /// The share.
    pub value: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end of its interval.
    pub high: f64,
    /// The plan's margin: a smaller share does not matter, whatever its ratio.
    pub margin: f64,
}

impl SessionShare {
    /// Whether the whole interval is too small to matter.
    pub(crate) fn is_below_what_matters(&self) -> bool {
        -self.margin <= self.low && self.high <= self.margin
    }

    /// Whether the whole interval is an addition that matters.
    pub(crate) fn surely_costs(&self) -> bool {
        self.low > self.margin
    }

    /// Whether the whole interval is a saving that matters.
    pub(crate) fn surely_saves(&self) -> bool {
        self.high < -self.margin
    }

    /// In words: `0.04 % of the session`.
    pub(crate) fn words(&self) -> String {
        let sign = if self.value < 0.0 { "−" } else { "" };
        format!("{sign}{} of the session", small_share(self.value.abs()))
    }
}

impl Figure {
    /// A figure other than a time.
    pub(crate) fn of(reading: Reading, baseline: String) -> Self {
        Self {
            reading,
            baseline,
            added_ns: None,
            session: None,
            share: None,
        }
    }
}

/// The saving of a ratio, in percent.
pub(super) fn saved(ratio: f64) -> f64 {
    (1.0 - ratio) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_matters_only_if_its_whole_interval_is_past_the_margin() {
        for (low, high, is_below, costs, saves) in [
            (0.0002, 0.0009, true, false, false),
            (-0.0009, 0.0002, true, false, false),
            (0.0009, 0.0011, false, false, false),
            (0.0011, 0.0020, false, true, false),
            (-0.0020, -0.0011, false, false, true),
            (f64::NEG_INFINITY, f64::INFINITY, false, false, false),
        ] {
            let share = SessionShare {
                value: f64::midpoint(low, high),
                low,
                high,
                margin: 0.001,
            };
            let found = (
                share.is_below_what_matters(),
                share.surely_costs(),
                share.surely_saves(),
            );
            assert_eq!(found, (is_below, costs, saves), "{low} to {high}");
        }
    }
}
