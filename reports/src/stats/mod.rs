//! Statistics of blocks: the block is the sample, never the single call.

mod bootstrap;
mod compare;
mod earned;

pub use bootstrap::{Interval, LEVEL, interval_of_mean};
pub use compare::{Comparison, MIN_EFFECT, MIN_ROUNDS, Verdict, compare, log_ratios};
pub use earned::{calls_needed, earned};
