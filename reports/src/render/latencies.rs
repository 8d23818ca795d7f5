//! The report's sections on latencies: ratios, cache states, sessions.

use std::collections::BTreeSet;

use super::part::Part::{self, Chart, Folded, Heading, Linked, List, Table, Text};
use super::part::{LinkedRow, command_anchor};
use super::report::Report;
use super::tasks::TOOL_CALL;
use super::{curves, stems};
use crate::summary::{Cell, MAKESPAN, is_simulated};
use crate::text::{columns, count, percent, ratio, time};
use rundir::Plan;
use stats::Comparison;

/// The caption of the chart of operations.
pub(super) const LATENCY_SHOWS: &str = "One operation by backend, caches hot: each tick is a pass (of many, forty by rank), the bar the 99 % interval over epochs, the dot its middle; logarithmic.";

/// The arms with columns of their own, without the baseline.
pub(super) fn compared<'a>(report: &'a Report<'_>) -> Vec<&'a str> {
    let mut arms = report.arms();
    arms.retain(|arm| *arm != report.summary.baseline);
    arms
}

/// An arm's name, with the arm of comparison if that is not the baseline.
fn arm_and_its_baseline(plan: &Plan, arm: &str) -> String {
    match plan.arm(arm).and_then(|planned| planned.against.as_ref()) {
        Some(against) => format!("{arm} ÷ {against}"),
        None => arm.to_owned(),
    }
}

fn find<'a>(report: &'a Report<'_>, place: &Cell, arm: &str) -> Option<&'a Cell> {
    let summary = report.summary;
    summary.cell(&place.workload, &place.state, &place.metric, arm)
}

pub(super) fn ratio_rows(report: &Report<'_>, wanted: impl Fn(&Cell) -> bool) -> Part {
    // Some arms take part in few workloads only.
    let has_cell = |arm: &&str| {
        let mut cells = report.summary.cells.iter();
        cells.any(|cell| cell.arm == *arm && wanted(cell))
    };
    let arms: Vec<&str> = compared(report).into_iter().filter(has_cell).collect();
    let baseline = &report.summary.baseline;
    let mut head = columns(&format!("workload | state | metric | {baseline} | A/A"));
    head.extend(arms.iter().map(|arm| {
        let name = arm_and_its_baseline(&report.run.plan, arm);
        match is_simulated(arm) {
            true => format!("{name} (SIMULATED distance)"),
            false => name,
        }
    }));
    let mut rows = Vec::new();
    let baseline = report.summary.cells.iter();
    for cell in baseline.filter(|cell| cell.arm == report.summary.baseline && wanted(cell)) {
        let aa_arm = report.summary.aa_arm.as_deref();
        let aa = aa_arm.and_then(|arm| find(report, cell, arm)?.against_baseline.as_ref());
        let apart = aa.map(Comparison::apart);
        let mut row = vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            typical(cell),
            apart.map_or("–".to_owned(), percent),
        ];
        let below = report
            .summary
            .below_what_matters(&report.run.plan, &cell.key());
        let is_below = below.is_some();
        row.extend(below);
        // One word for all arms of the cell.
        row.extend(
            arms.iter()
                .skip(1)
                .filter(|_| is_below)
                .map(|_| String::new()),
        );
        for arm in arms.iter().filter(|_| !is_below) {
            row.push(match find(report, cell, arm) {
                None => "–".to_owned(),
                Some(of_arm) => {
                    let comparison = of_arm.against_baseline.as_ref().map(ratio);
                    let label = if of_arm.is_kernel_cache() {
                        " (kernel cache)"
                    } else {
                        ""
                    };
                    format!(
                        "{}{label}{}",
                        comparison.unwrap_or("–".to_owned()),
                        of_arm.failed.caveat()
                    )
                }
            });
        }
        rows.push(LinkedRow {
            anchor: cell.anchor(),
            to: command_anchor(&cell.workload, &cell.state),
            cells: row,
        });
        if cell.tail.is_some() {
            let of_arm = |arm: &&str| tail(find(report, cell, arm));
            let mut row = vec![
                cell.workload.clone(),
                cell.state.clone(),
                format!("{}, tail", cell.metric),
                tail(Some(cell)),
                "–".to_owned(),
            ];
            row.extend(arms.iter().map(of_arm));
            rows.push(LinkedRow {
                anchor: String::new(),
                to: command_anchor(&cell.workload, &cell.state),
                cells: row,
            });
        }
    }
    Linked(head, rows)
}

/// How far the mean of a cell's calls is above their median.
fn tail(cell: Option<&Cell>) -> String {
    match cell.and_then(|cell| cell.tail) {
        Some(tail) if tail.mean_ns > 0.0 => format!("+{}", time(tail.mean_ns)),
        Some(_) => "none".to_owned(),
        None => "–".to_owned(),
    }
}

pub(super) fn ratios(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Ratios to the plain directory".to_owned()));
    parts.push(Text(format!(
        "Each figure is the ratio of the time of a call to that of {} in the same round: in hot cells the median of a pass's calls, with empty caches their mean. The row \"tail\" below a median is the mean of all calls less the median, in time a call: what rare slow calls add; it is no ratio and gets no verdict. The time of {} is the mean of both identical arms. Each epoch gives a Hodges–Lehmann estimate; the figure is their mean, with an interval over epochs. The intervals of all looks at a cell together leave out the true ratio in at most 1 % of runs. \"better\" and \"worse\": the whole interval is past the margin. \"same\": the whole interval is inside the margin. \"below what matters\": it is inside a margin wider than ×2, where no ratio matters. \"undecided\": the interval contains an edge of the margin; the smallest difference that this run can show in the cell stands beside it, and a longer --budget and more --epochs make it smaller. The margin was fixed before the run: {}. \"kernel cache\": no call reached the daemon. \"⇅\": two levels, both shown. A/A: how far identical arms came out apart.",
        report.summary.baseline,
        report.summary.baseline,
        margins(report)
    )));
    parts.push(Chart(stems::LATENCY, LATENCY_SHOWS));
    if !curves::growth(report).is_empty() {
        parts.push(Chart(
            stems::GROWTH,
            "How the time of a call grows with the number of files or notes, by backend; both axes are logarithmic.",
        ));
    }
    parts.push(ratio_rows(report, |cell| {
        !cell.workload.starts_with("agent/")
    }));
    let cells = report.summary.cells.iter();
    let floors = cells.filter_map(|cell| {
        let comparison = cell.against_floor.as_ref()?;
        Some(vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            format!("{}{}", ratio(comparison), cell.failed.caveat()),
        ])
    });
    let floors: Vec<Vec<String>> = floors.collect();
    if !floors.is_empty() {
        let head = columns("workload | state | metric | arm | ratio to memory");
        parts.push(Folded(
            "Ratios to the floor: the same front end over memory".to_owned(),
            vec![Table(head, floors)],
        ));
    }
    parts.push(Folded(
        "Latencies and percentiles".to_owned(),
        vec![latencies(report)],
    ));
}

/// A cell's typical time, or both of its levels, with the share of failed passes.
fn typical(cell: &Cell) -> String {
    let time = match cell.modes {
        Some(modes) => format!(
            "⇅ {} or {} ({:.0} %)",
            time(modes.low),
            time(modes.high),
            modes.high_share * 100.0
        ),
        None => time(cell.typical_ns),
    };
    format!("{time}{}", cell.failed.caveat())
}

/// The plan's margins in words.
pub(super) fn margins(report: &Report<'_>) -> String {
    let margins = &report.run.plan.margins;
    format!(
        "{:.0} %, {} a call, or {:.1} % of a recorded session, whichever is widest",
        margins.relative * 100.0,
        time(margins.absolute_ns),
        margins.session_share * 100.0
    )
}

fn latencies(report: &Report<'_>) -> Part {
    let head = columns(
        "workload | state | metric | arm | epochs | passes | failed (95 %) | calls | typical | 99 % interval | \
         p50 | p90 | p99 | p99.9 | max",
    );
    let dash = |value: Option<u64>| value.map_or("—".to_owned(), |ns| time(ns as f64));
    let mut known: BTreeSet<String> = BTreeSet::new();
    let rows = report.summary.cells.iter().map(|cell| {
        let interval = cell
            .interval
            .map(|i| format!("[{}, {}]", time(i.low), time(i.high)));
        // A cell that the baseline has is anchored in the table of ratios.
        let anchor = cell.anchor();
        let is_first = known.insert(anchor.clone());
        let has_baseline = find(report, cell, &report.summary.baseline).is_some();
        let cells = vec![
            cell.workload.clone(),
            cell.state.clone(),
            cell.metric.clone(),
            cell.arm.clone(),
            cell.epochs.to_string(),
            cell.passes.to_string(),
            format!(
                "{} of {} (≤ {:.1} %)",
                cell.failed.count(),
                cell.failed.tried,
                100.0 * cell.failed.bound()
            ),
            count(cell.calls),
            typical(cell),
            interval.unwrap_or("—".to_owned()),
            dash(cell.p50_ns),
            dash(cell.p90_ns),
            dash(cell.p99_ns),
            dash(cell.p999_ns),
            time(cell.max_ns as f64),
        ];
        LinkedRow {
            anchor: if is_first && !has_baseline {
                anchor
            } else {
                String::new()
            },
            to: command_anchor(&cell.workload, &cell.state),
            cells,
        }
    });
    Linked(head, rows.collect())
}

pub(super) fn states(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_states = report.summary.cells.iter().any(|cell| cell.state != "hot");
    if !has_states {
        return;
    }
    parts.push(Heading(2, "Hot, lukewarm, cold".to_owned()));
    parts.push(Text("Hot: everything has just been used. Lukewarm: the kernel's caches are empty, the daemon keeps its own. Cold: the daemon has just been started too. Each state is proved by what the daemon was asked, or by what came from disk. All arms share each emptying of the caches.".to_owned()));
    parts.push(Chart(
        stems::STATES,
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
        stems::SESSIONS,
        "How long a session waited for files, by backend and cache state: each tick is a pass, the bar the 99 % interval.",
    ));
    let is_task = |cell: &Cell| {
        let planned = report.run.plan.workload(&cell.workload);
        planned.is_some_and(|planned| planned.calls.contains_key(TOOL_CALL))
    };
    let is_session = |cell: &Cell| cell.metric == MAKESPAN && !is_task(cell);
    let cells = &report.summary.cells;
    if cells.iter().any(is_session) {
        parts.push(ratio_rows(report, is_session));
    }
    if cells.iter().any(is_task) {
        parts.push(Text("Scripted tasks, in which no model chose the steps: the wait for all shell commands, or tool calls, of a pass.".to_owned()));
        parts.push(ratio_rows(report, |cell| {
            cell.metric == MAKESPAN && is_task(cell)
        }));
    }
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
                typical(cell),
                time(session_ns),
                turns.to_string(),
                format!("{:.3} %", cell.typical_ns / session_ns * 100.0),
            ]);
        }
    }
    if !rows.is_empty() {
        let head = columns(
            "session | state | arm | waited for files | recorded turns, summed | turns | \
             share of the session",
        );
        parts.push(Text("The same as a share of the recorded session: the sum of the times from one model answer to the next, tools included, breaks of more than ten minutes left out. It is what a backend can win or lose of an agent's time at all.".to_owned()));
        parts.push(Table(head, rows));
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
