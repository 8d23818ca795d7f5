//! The report's sections on latencies: ratios, cache states, sessions.

use super::cells_page::{numbers, row_anchor, typical};
use super::part::Part::{self, Chart, Folded, Heading, List, Table, Text};
use super::part::{LinkedRow, TableCell};
use super::report::Report;
use super::stems;
use super::tasks::TOOL_CALL;
use figures::provenance::Provenance;
use figures::summary::{Cell, MAKESPAN, is_simulated};
use figures::text::{columns, percent, ratio, time};
use rundir::Plan;
use stats::Comparison;
use verdicts::decide::arm_words;

/// The caption of the chart of operations.
pub(super) const LATENCY_SHOWS: &str = "What one operation costs: the time of a call, divided by the baseline's time, which is beside each title. Caches are hot where that was measured. The vertical line is ×1; a bar is the 99 % interval, and the number behind ± is half of it (\"wide\": more than the ratio). Inside the shaded margin, arms are treated as equal. †: some passes failed, and no time includes them. Ratios beyond ×64 are drawn at the edge.";

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

pub(super) fn ratio_rows(report: &Report<'_>, wanted: impl Fn(&Cell) -> bool) -> Part {
    let cells = &report.summary.cells;
    // Some arms take part in few workloads only.
    let has_cell = |arm: &&str| cells.iter().any(|cell| cell.arm == *arm && wanted(cell));
    let arms: Vec<&str> = compared(report).into_iter().filter(has_cell).collect();
    let baseline = &report.summary.baseline;
    let mut head = columns(&format!("workload | caches | metric | {baseline} | A/A"));
    head.extend(arms.iter().map(|arm| {
        let name = arm_and_its_baseline(&report.run.plan, arm);
        if is_simulated(arm) { Provenance::Simulated.marked(&format!("{name} (simulated distance)")) } else { name }
    }));
    let numbers = numbers(cells);
    let number = |place: &Cell, arm: &str| {
        let key = [&*place.workload, &*place.state, &*place.metric, arm];
        numbers.get(&key).copied()
    };
    let mut rows = Vec::new();
    for cell in cells.iter().filter(|cell| cell.arm == *baseline && wanted(cell)) {
        let aa = report.summary.aa_arm.as_deref().and_then(|arm| number(cell, arm));
        let apart = aa.and_then(|at| cells[at].against_baseline.as_ref());
        let apart = apart.map(Comparison::apart);
        let to = |at: Option<usize>| at.map_or(String::new(), row_anchor);
        let mut row = vec![
            TableCell::new(&cell.workload, cell.anchor()),
            TableCell::plain(&cell.state),
            TableCell::plain(&cell.metric),
            TableCell::new(typical(cell), to(number(cell, baseline))),
            TableCell::new(apart.map_or("–".to_owned(), percent), to(aa)),
        ];
        let below = report.summary.below_what_matters(&report.run.plan, &cell.key());
        let is_below = below.is_some();
        row.extend(below.iter().flat_map(|words| {
            let cells = arms.iter().map(|arm| number(cell, arm).map_or("–", |_| words.as_str()));
            cells.map(TableCell::plain)
        }));
        for arm in arms.iter().filter(|_| !is_below) {
            let at = number(cell, arm);
            row.push(match at {
                None => TableCell::plain("–"),
                Some(number) => {
                    let of_arm = &cells[number];
                    let comparison = of_arm.against_baseline.as_ref().map(ratio);
                    let label = if of_arm.is_kernel_cache() { " (kernel's cache)" } else { "" };
                    let text = format!("{}{label}{}", comparison.unwrap_or("–".to_owned()), of_arm.failed.caveat());
                    TableCell::new(text, to(at))
                }
            });
        }
        rows.push(LinkedRow { anchor: String::new(), cells: row });
        if cell.tail.is_some() {
            let tail_of = |arm: &str| {
                let of_arm = number(cell, arm).map(|at| &cells[at]);
                TableCell::plain(tail(of_arm))
            };
            let mut row = vec![
                TableCell::plain(&cell.workload),
                TableCell::plain(&cell.state),
                TableCell::plain(format!("{}, mean − median", cell.metric)),
                tail_of(baseline),
                TableCell::plain("–"),
            ];
            row.extend(arms.iter().map(|arm| tail_of(arm)));
            rows.push(LinkedRow { anchor: String::new(), cells: row });
        }
    }
    Part::Linked(head, rows)
}

/// How far the mean of a cell's calls is above their median.
fn tail(cell: Option<&Cell>) -> String {
    match cell.and_then(|cell| cell.tail) {
        Some(tail) if tail.mean_ns > 0.0 => format!("+{}", time(tail.mean_ns)),
        Some(_) => "none".to_owned(),
        None => "–".to_owned(),
    }
}

/// The words of the tables of ratios, once for all of them.
pub(super) fn ratio_words(report: &Report<'_>) -> [Part; 2] {
    let text = format!(
        "A figure is the time of a call, divided by that of {} in the same round. In brackets is its interval over epochs, which misses the true ratio in at most 1 % of runs; without brackets, both ends round to the figure. Every figure links to its cell, which has its passes and its command.",
        arm_words(&report.summary.baseline)
    );
    let margin = format!(
        "The margin was fixed before the run: {}. Differences inside it are treated as equal.",
        margins(report)
    );
    let words = [
        &margin,
        "\"better\", \"worse\": the whole interval is outside of the margin. \"same\": the whole interval is inside it. \"too little to matter\": the same, where the margin is a time or a share of a session.",
        "\"below what matters\": the margin is wider than ×2, and the whole interval is inside it.",
        "\"undecided\": the interval contains an edge of the margin. The margin stands beside it; a longer --budget and more --epochs make the interval narrower.",
        "With hot caches, a pass counts by the median of its calls. The row \"mean − median\" is what rare slow calls add to a call. With empty caches, and in a busy run, a pass counts by its mean.",
        "\"kernel's cache\": it answered the calls, and no request reached the daemon. \"⇅\": the passes have two levels; both are shown, and behind them the share of passes at the higher one. A/A: how far two measurements of the baseline differ.",
    ];
    [Text(text), List(words.map(str::to_owned).into())]
}

/// The ratios of single operations and of programs' steps.
pub(super) fn ratios(report: &Report<'_>, parts: &mut Vec<Part>) {
    parts.push(Heading(2, "Ratios to the plain directory".to_owned()));
    parts.extend(ratio_words(report));
    parts.push(ratio_rows(report, |cell| !cell.workload.starts_with("agent/")));
}

/// The plan's margins in words.
pub(super) fn margins(report: &Report<'_>) -> String {
    let margins = &report.run.plan.margins;
    format!(
        "the widest of {:.0} %, {} a call, and {:.1} % of a recorded session",
        margins.relative * 100.0,
        time(margins.absolute_ns),
        margins.session_share * 100.0
    )
}

/// The words and the chart of cache states; nothing if all cells are hot.
pub(super) fn states(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_states = report.summary.cells.iter().any(|cell| cell.state != "hot");
    if !has_states {
        return;
    }
    parts.push(Heading(3, "Hot, lukewarm, cold".to_owned()));
    parts.push(Text("Hot: everything that is read is cached. Lukewarm: the kernel's caches are empty, but those of the daemon are not. Cold: the kernel's caches are empty, and the daemon has just started. Each state is proved by the requests that reached the daemon, or by the bytes that came from the disk. The kernel's caches are dropped before each pass of an arm.".to_owned()));
    parts.push(Chart(
        stems::STATES,
        "How much the state of the caches matters: the time of the same work in each state. The scale is logarithmic, and each panel has its own.",
    ));
}

pub(super) fn sessions(report: &Report<'_>, parts: &mut Vec<Part>) {
    let has_sessions = report.summary.cells.iter().any(|cell| cell.metric == MAKESPAN);
    if !has_sessions {
        return;
    }
    parts.push(Heading(3, "Agents' sessions".to_owned()));
    parts.push(Text("How long an agent waited for files in a whole session; the model's time is left out.".to_owned()));
    parts.push(Chart(
        stems::SESSIONS,
        "How long a session waits for files on each arm, divided by its wait on the baseline. Read it like the chart of operations.",
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
        parts.push(Text("Scripted tasks, in which no model chose the steps: the wait for all shell commands, or for all tool calls, of a pass.".to_owned()));
        parts.push(ratio_rows(report, |cell| cell.metric == MAKESPAN && is_task(cell)));
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
        parts.push(Text("The same as a share of the recorded session. A session lasts from its first answer of the model to its last, tools included; breaks of more than ten minutes are left out. No backend can win or lose more than this share of an agent's time.".to_owned()));
        parts.push(Table(head, rows));
    }
    let replayed = report.run.plan.workloads.iter().filter(|w| !w.not_replayed.is_empty());
    let lines = replayed.map(|workload| {
        let counts = |counts: &std::collections::BTreeMap<String, u64>| {
            let parts: Vec<_> = counts.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
            parts.join(", ")
        };
        format!(
            "{}: replayed {}; recorded but not replayed: {}",
            workload.name,
            counts(&workload.calls),
            counts(&workload.not_replayed)
        )
    });
    let lines: Vec<String> = lines.collect();
    if !lines.is_empty() {
        let title = "What was replayed, and what was not".to_owned();
        parts.push(Folded(title, vec![List(lines)]));
    }
}
