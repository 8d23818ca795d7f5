//! The part of a ratio that is the wake-up of another processor: cells that are measured in both placements.

use super::part::Part::{self, Heading, Table, Text};
use super::report::Report;
use figures::text::{columns, ratio};

/// Adds the table, if the run has such cells.
pub(super) fn placements(report: &Report<'_>, parts: &mut Vec<Part>) {
    let summary = report.summary;
    let rows = summary.cells.iter().filter(|cell| cell.is_main());
    let rows = rows.filter(|cell| Some(&cell.arm) != summary.aa_arm.as_ref());
    let rows = rows.filter_map(|cell| {
        let free = cell.placed_freely()?;
        let free = summary.cell(&free.workload, &free.state, &free.metric, &cell.arm)?;
        let (shared, free) = (cell.against_baseline.as_ref()?, free.against_baseline.as_ref()?);
        Some(vec![
            cell.workload.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            ratio(free),
            ratio(shared),
            format!("×{:.2}", free.ratio / shared.ratio),
        ])
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if rows.is_empty() {
        return;
    }
    parts.push(Heading(2, "Without the wake-up of another processor".to_owned()));
    parts.push(Text("The same cells in two placements. \"All processors\": the scheduler places client and daemon, as in every other table. \"One processor\": both share one (cache states that end in -shared-cpu), as on a machine or in a container with one processor. The last column is the difference: what waking another processor adds.".to_owned()));
    let head = columns("workload | metric | arm | all processors | one processor | the wake-up");
    parts.push(Table(head, rows));
}
