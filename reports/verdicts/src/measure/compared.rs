//! A figure of a candidate beside the baseline's.

use super::ArmReading;

/// A figure of a candidate beside the baseline's.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The figure in the unit of the row.
    pub reading: ArmReading,
    /// The baseline in words.
    pub baseline: String,
    /// The baseline's figure alone; empty for a time of a cell.
    pub baseline_short: String,
    /// The time that a call of the candidate adds, in nanoseconds; `None` for other measures.
    pub added_ns: Option<f64>,
    /// The wait as a share of the recorded session, with what was not replayed; `None` without a recording.
    pub session: Option<String>,
}

impl Figure {
    /// A figure other than a time.
    pub fn of(reading: ArmReading, baseline: String) -> Self {
        Self { reading, baseline, baseline_short: String::new(), added_ns: None, session: None }
    }
}

/// The saving of a ratio, in percent.
pub(super) fn saved(ratio: f64) -> f64 {
    (1.0 - ratio) * 100.0
}
