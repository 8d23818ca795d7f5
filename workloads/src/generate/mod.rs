//! Generators of workloads. The same parameters always give the same script.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::path::WorkspacePath;

pub mod asking;
pub mod clients;
pub(crate) mod corpus;
pub mod finding;
pub mod hosts;
pub mod inbox;
pub mod memory_session;
pub mod micro;
pub mod notes;
pub mod offload;
pub mod program;
pub mod syncing;
pub mod vsm_cycle;

/// Checks that the parameter `field` is in a range.
fn check_range<T: Display + PartialOrd>(
    field: &str,
    value: &T,
    range: RangeInclusive<T>,
) -> Result<(), String> {
    let (least, most) = (range.start(), range.end());
    let is_in = range.contains(value);
    is_in
        .then_some(())
        .ok_or_else(|| format!("field `{field}`: must be from {least} to {most}"))
}

fn path(name: impl Into<String>) -> Result<WorkspacePath, String> {
    WorkspacePath::new(name).map_err(|error| error.to_string())
}

/// A path that this module's generators choose, which is always a valid one.
fn plain(name: &str) -> WorkspacePath {
    WorkspacePath::new(name).unwrap_or_else(|_| unreachable!("this module's names are plain"))
}
