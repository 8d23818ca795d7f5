//! The page All cells: every figure of a run, with the file of its passes and the command that measures it again.

use std::collections::HashMap;

use inputs::names::{FileName, NameError};
use rundir::{Placement, cache_state};
use stats::Comparison;

use super::part::{CellGroup, CellRow, Part};
use super::report::Report;
use figures::summary::Cell;
use figures::text::{columns, count, ratio_with_interval, time};

/// The folder with a file of passes for each workload and cache state.
pub(super) const PASSES: &str = "passes";

/// The file with the passes of a workload in a cache state.
pub(super) fn passes_file(workload: &str, state: &str) -> Result<FileName, NameError> {
    FileName::of_name(&format!("{workload}.{state}"), ".csv")
}

/// The address of a file beside the page: bytes with a meaning of their own in an address are encoded.
fn address(path: &str) -> String {
    let mut address = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' => {
                address.push(char::from(byte));
            }
            _ => address += &format!("%{byte:02X}"),
        }
    }
    address
}

/// The anchor of a cell's row: its number among the run's cells.
pub(super) fn row_anchor(number: usize) -> String {
    format!("c{number}")
}

/// The numbers of a run's cells, by workload, cache state, metric and arm.
pub(super) fn numbers(cells: &[Cell]) -> HashMap<[&str; 4], usize> {
    let numbers = cells.iter().enumerate();
    let numbers = numbers.map(|(at, cell)| ([&*cell.workload, &*cell.state, &*cell.metric, &*cell.arm], at));
    numbers.collect()
}

pub(super) fn cells(report: &Report<'_>) -> Part {
    let plan = &report.run.plan;
    let baseline = &report.summary.baseline;
    let mut groups: Vec<CellGroup> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (number, cell) in report.summary.cells.iter().enumerate() {
        let at = *places.entry(cell.anchor()).or_insert_with(|| {
            groups.push(CellGroup {
                anchor: cell.anchor(),
                title: format!("{} · {} · {}", cell.workload, cell.state, cell.metric),
                passes: passes_file(&cell.workload, &cell.state)
                    .map_or(String::new(), |name| address(&format!("{PASSES}/{name}"))),
                command: format!(
                    "ctxbench run --suite {} --workload {} --state {}{} --seed {}",
                    plan.suite,
                    cell.workload,
                    cache_state(&cell.state),
                    match Placement::of_state(&cell.state) {
                        Placement::Free => "",
                        Placement::SharedCpu => " --placement shared-cpu",
                    },
                    plan.seed
                ),
                rows: Vec::new(),
            });
            groups.len() - 1
        });
        groups[at].rows.push(CellRow { anchor: row_anchor(number), cells: row(cell) });
    }
    let head = columns(&format!(
        "arm | mean | 99 % interval | ÷ {baseline} | ÷ memory | p50 | p90 | p99 | p99.9 | max | \
         calls | failed passes"
    ));
    Part::Cells(head, groups)
}

fn row(cell: &Cell) -> Vec<String> {
    let dash = |value: Option<u64>| value.map_or("–".to_owned(), |ns| time(ns as f64));
    let interval = cell.interval.map(|interval| format!("[{}, {}]", time(interval.low), time(interval.high)));
    vec![
        cell.arm.clone(),
        typical(cell),
        interval.unwrap_or("–".to_owned()),
        cell.against_baseline.as_ref().map_or("–".to_owned(), compared),
        match &cell.against_floor {
            Some(found) => format!("×{:.2}", found.ratio),
            None => "–".to_owned(),
        },
        dash(cell.p50_ns),
        dash(cell.p90_ns),
        dash(cell.p99_ns),
        dash(cell.p999_ns),
        time(cell.max_ns as f64),
        count(cell.calls),
        format!("{} of {} (≤ {:.1} %)", cell.failed.count(), cell.failed.tried, 100.0 * cell.failed.bound()),
    ]
}

/// A ratio with its interval and its verdict, without the reasons that the tables of ratios have.
fn compared(found: &Comparison) -> String {
    let verdict = match found.withheld {
        Some(_) => "no verdict",
        None => found.verdict.name(),
    };
    format!("{} {verdict}", ratio_with_interval(found.ratio, found.interval))
}

/// A cell's typical time, or both of its levels, with the share of failed passes.
pub(super) fn typical(cell: &Cell) -> String {
    let time = match cell.modes {
        Some(modes) => format!("⇅ {} or {} ({:.0} %)", time(modes.low), time(modes.high), modes.high_share * 100.0),
        None => time(cell.typical_ns),
    };
    format!("{time}{}", cell.failed.caveat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_signs_in_its_name_keeps_its_address() {
        let name = passes_file("own/a b#c%d?e", "hot").unwrap();
        assert_eq!(address(&name.to_string()), "own-a%20b%23c%25d%3Fe.hot.csv");
        assert_eq!(address("passes/micro-read-1k.hot.csv"), "passes/micro-read-1k.hot.csv");
    }
}
