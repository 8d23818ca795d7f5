//! What a report says of latencies: ratios, cache states, sessions.

use super::Report;
use super::charts;
use super::page::Part::{self, Chart, Folded, Heading, List, Table, Text};
use super::text::{count, percent, ratio, time};
use crate::summary::{Cell, MAKESPAN};

/// The arms to show as columns beside the baseline.
pub(super) fn compared<'a>(report: &'a Report<'_>) -> Vec<&'a str> {
    let arms = report.run.plan.arms.iter().map(|arm| arm.name.as_str());
    arms.filter(|arm| {
        *arm != report.summary.baseline && Some(*arm) != report.summary.twin.as_deref()
    })
    .collect()
}

fn find<'a>(report: &'a Report<'_>, place: &Cell, arm: &str) -> Option<&'a Cell> {
    report.summary.cells.iter().find(|cell| {
        cell.arm == arm
            && cell.workload == place.workload
            && cell.state == place.state
            && cell.metric == place.metric
    })
}

pub(super) fn ratio_rows(report: &Report<'_>, wanted: impl Fn(&Cell) -> bool) -> Part {
    let arms = compared(report);
    let mut head = vec![
        "workload".to_owned(),
        "state".to_owned(),
        "metric".to_owned(),
    ];
    head.push(report.summary.baseline.clone());
    head.push("noise floor".to_owned());
    head.extend(arms.iter().map(|arm| (*arm).to_owned()));
    let mut rows = Vec::new();
    let baseline = report.summary.cells.iter();
    for cell in baseline.filter(|cell| cell.arm == report.summary.baseline && wanted(cell)) {
        let floor = report.summary.noise.twins.iter().find(|twin| {
            twin.workload == cell.workload && twin.state == cell.state && twin.metric == cell.metric
        });
        let mut row = vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            time(cell.typical_ns),
            floor.map_or("–".to_owned(), |twin| percent(twin.floor)),
        ];
        for arm in &arms {
            row.push(match find(report, cell, arm) {
                None => "–".to_owned(),
                Some(own) => {
                    let comparison = own.against_baseline.as_ref().map(ratio);
                    let label = if own.is_kernel_cache() {
                        " (kernel cache)"
                    } else {
                        ""
                    };
                    format!("{}{label}", comparison.unwrap_or("–".to_owned()))
                }
            });
        }
        rows.push(row);
    }
    Table(head, rows)
}

pub(super) fn ratios(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Ratios to the plain directory".to_owned()));
    parts.push(Text(format!(
        "Each figure is a ratio to {} in the same round: the geometric mean over rounds of the blocks' medians, with its 99 % interval. \"better\" and \"worse\" clear the cell's noise floor; \"same\" is shown to lie within it, if it is at most 25 %; \"?\" is neither. \"kernel cache\": no call reached the daemon.",
        report.summary.baseline
    )));
    parts.push(Chart(charts::LATENCY, "Typical latency of one operation by backend, caches hot, with 99 % intervals; logarithmic."));
    parts.push(ratio_rows(report, |cell| {
        cell.workload.starts_with("micro/")
    }));
    let floors: Vec<Vec<String>> = report
        .summary
        .cells
        .iter()
        .filter_map(|cell| {
            let comparison = cell.against_floor.as_ref()?;
            Some(vec![
                cell.workload.clone(),
                cell.state.clone(),
                cell.metric.clone(),
                cell.arm.clone(),
                ratio(comparison),
            ])
        })
        .collect();
    if !floors.is_empty() {
        let head = ["workload", "state", "metric", "arm", "ratio to memory"];
        parts.push(Folded(
            "Ratios to the floor: the same front end over memory".to_owned(),
            vec![Table(head.map(str::to_owned).to_vec(), floors)],
        ));
    }
    parts.push(Folded(
        "Latencies and percentiles".to_owned(),
        vec![latencies(report)],
    ));
}

fn latencies(report: &Report<'_>) -> Part {
    let head = [
        "workload",
        "state",
        "metric",
        "arm",
        "blocks",
        "calls",
        "typical",
        "99 % interval",
        "p90",
        "p99",
        "p99.9",
        "max",
        "detectable",
    ];
    let dash = |value: Option<u64>| value.map_or("—".to_owned(), |ns| time(ns as f64));
    let rows = report.summary.cells.iter().map(|cell| {
        let interval = cell
            .interval
            .map(|i| format!("[{}, {}]", time(i.low), time(i.high)));
        let detectable = cell
            .against_baseline
            .and_then(|c| c.detectable)
            .map(percent);
        vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            cell.blocks.to_string(),
            count(cell.calls),
            time(cell.typical_ns),
            interval.unwrap_or("—".to_owned()),
            dash(cell.p90_ns),
            dash(cell.p99_ns),
            dash(cell.p999_ns),
            time(cell.max_ns as f64),
            detectable.unwrap_or("—".to_owned()),
        ]
    });
    Table(head.map(str::to_owned).to_vec(), rows.collect())
}

pub(super) fn states(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_states = report.summary.cells.iter().any(|cell| cell.state != "hot");
    if !has_states {
        return;
    }
    parts.push(Heading(2, "Hot, lukewarm, cold".to_owned()));
    parts.push(Text("Hot: everything has just been used. Lukewarm: the kernel's caches are empty, the daemon keeps its own. Cold: the daemon has just been started too. Each state is proved by what the daemon was asked, or by what came from disk.".to_owned()));
    parts.push(Chart(
        charts::STATES,
        "The same operation with caches hot, lukewarm and cold, by backend; logarithmic.",
    ));
}

pub(super) fn sessions(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_sessions = report
        .summary
        .cells
        .iter()
        .any(|cell| cell.metric == MAKESPAN);
    if !has_sessions {
        return;
    }
    parts.push(Heading(2, "Agents' sessions".to_owned()));
    parts.push(Text(
        "Makespan: how long an agent waited for files in a whole session, model time left out."
            .to_owned(),
    ));
    parts.push(Chart(
        charts::SESSIONS,
        "How long a session waited for files, by backend and cache state, with 99 % intervals.",
    ));
    parts.push(ratio_rows(report, |cell| cell.metric == MAKESPAN));
    let mut rows = Vec::new();
    for workload in &report.run.plan.workloads {
        let (Some(session_ms), Some(turns)) = (workload.session_ms, workload.turns) else {
            continue;
        };
        let cells = report.summary.cells.iter();
        for cell in cells.filter(|c| c.workload == workload.name && c.metric == MAKESPAN) {
            let session_ns = session_ms as f64 * 1e6;
            rows.push(vec![
                cell.workload.clone(),
                cell.state.clone(),
                cell.arm.clone(),
                time(cell.typical_ns),
                time(session_ns),
                turns.to_string(),
                format!("{:.3} %", cell.typical_ns / session_ns * 100.0),
            ]);
        }
    }
    if !rows.is_empty() {
        let head = [
            "session",
            "state",
            "arm",
            "waited for files",
            "recorded turns, summed",
            "turns",
            "share of the session",
        ];
        parts.push(Text("The same as a share of the recorded session: the sum of the times from one model answer to the next, tools included, breaks of more than ten minutes left out. It is what a backend can win or lose of an agent's time at all.".to_owned()));
        parts.push(Table(head.map(str::to_owned).to_vec(), rows));
    }
    parts.push(Folded(
        "Sessions by call kind".to_owned(),
        vec![ratio_rows(report, |cell| {
            cell.workload.starts_with("agent/") && cell.metric != MAKESPAN
        })],
    ));
    let replayed = report
        .run
        .plan
        .workloads
        .iter()
        .filter(|w| !w.not_replayed.is_empty());
    let lines = replayed.map(|workload| {
        let counts = |counts: &std::collections::BTreeMap<String, u64>| {
            let parts: Vec<_> = counts
                .iter()
                .map(|(kind, n)| format!("{n} {kind}"))
                .collect();
            parts.join(", ")
        };
        format!(
            "{}: replayed {}; recorded but not replayed: {}",
            workload.name,
            counts(&workload.calls),
            counts(&workload.not_replayed)
        )
    });
    parts.push(List(lines.collect()));
}
