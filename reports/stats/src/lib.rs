//! Statistics of a run. The pass is the sample, the epoch is the unit of replication.
//! A cell gives one log ratio per round, one robust estimate per epoch, and one interval over epochs.
//! Pages are in the crate `reports`. This crate mounts nothing and draws no random numbers.

mod combination;
mod compare;
mod comparisons;
mod epochs;
mod growth;
mod modes;
mod percentile_support;
mod ratios;
mod share;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod testing;

pub use combination::{POWER, WeightedSum, combine, holm};
pub use compare::{Comparison, Margin, MarginKind, Verdict, WIDEST_MARGIN, compare};
pub use comparisons::{
    MAKESPAN, Series, SeriesKey, Table, Tail, baselines, compare_arms, compare_with_baseline, compared_with, figure,
    is_median, log_ratios, logs, margin, ratios_by_level,
};
pub use epochs::{Interval, LEVEL, MIN_EPOCHS, PooledEstimate, hodges_lehmann, mean_with_interval, median, pool};
pub use growth::{Growth, GrowthShape, SizedTime, exponent_weights, growth};
pub use modes::{Modes, modes};
pub use percentile_support::{calls_needed, has_enough_calls};
pub use ratios::{BoundedLogRatio, Disturbance, Ratios};
pub use share::{failure_bound, share_interval};
