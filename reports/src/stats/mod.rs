//! Statistics of blocks: the block is the sample, never the single call.

mod bootstrap;
mod compare;
mod earned;

pub use bootstrap::{Interval, LEVEL, MIN_ROUNDS, interval_of_mean};
pub use compare::{Comparison, MIN_EFFECT, Verdict, compare, log_ratios};
pub use earned::{calls_needed, earned};
