//! The titles of panels.

use std::collections::{HashMap, HashSet};

use figures::summary::Cell;

/// The name of a workload without its family.
pub(super) fn short_name(workload: &str) -> &str {
    workload.split_once('/').map_or(workload, |(_, name)| name)
}

/// The workloads that have more than one metric, whose panels name it.
pub(super) fn with_many_metrics(cells: &[Cell]) -> HashSet<&str> {
    let mut first: HashMap<&str, &str> = HashMap::new();
    let many = cells.iter().filter(|cell| *first.entry(&cell.workload).or_insert(&cell.metric) != cell.metric.as_str());
    many.map(|cell| cell.workload.as_str()).collect()
}
