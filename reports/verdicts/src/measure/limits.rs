//! The largest and the smallest numbers of bounds and of stated parameters.

/// The seconds of a day: the longest time that a bound may name, and the longest stated time between two copies.
pub(super) const DAY_S: f64 = 86_400.0;

/// The seconds of a year: the longest time of a year without files, and the most crashes of a year, one a second.
pub(super) const YEAR_S: f64 = 365.0 * DAY_S;

/// The shortest time that a bound may name is a nanosecond, the step of the clock: so many are a second.
pub(super) const STEPS_OF_SECOND: f64 = 1e9;

/// The smallest upper bound of a share that tries without an event can show: that of a million.
pub(super) const LEAST_SHARE: f64 = 3e-6;

/// The upper bound of a share that a single try without an event shows.
pub(super) const ONE_TRY: f64 = 0.95;

/// The most things that a run counts in a candidate, such as records, calls and lines.
pub(super) const MOST_COUNT: f64 = 1e6;

/// The most bytes or tokens.
pub(super) const MOST_BYTES: f64 = 1e12;

/// The least tokens and calls a question: one in a million questions.
pub(super) const LEAST_SPENT: f64 = 1.0 / MOST_COUNT;

/// The largest ratio. Nothing that is a thousand times as slow is a replacement, and nothing is a thousand times as fast.
pub(super) const MOST_RATIO: f64 = 1000.0;

/// The largest saving, in percent: that of the smallest ratio.
pub(super) const MOST_SAVED: f64 = 99.9;
