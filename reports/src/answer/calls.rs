//! The small table of an answer: about six operations with hot caches, the baseline's time and the ratios of other arms.

use rundir::Placement;
use schemars::JsonSchema;
use serde::Serialize;
use stats::{Comparison, SeriesKey};

use super::figure::{is_wide, places, ratio_words};
use figures::evidence::RunEvidence;
use figures::summary::{Cell, FailedPasses, MAKESPAN, Summary};
use figures::text::time;
use verdicts::decide::Decision;

/// Rows of the table.
const ROWS: usize = 6;

/// The factor between the intervals of two placements from which the ratio depends on the placement.
const APART: f64 = 1.2;

/// Kinds of calls in the order in which they are chosen.
const KINDS: [&str; 9] = ["read", "append", "write", "create", "rename", "stat", "list", "delete", "fsync"];

/// Operations with hot caches; empty if no call was timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CallTable {
    /// The title of the rows, in a few words.
    pub title: String,
    /// The baseline.
    pub baseline: String,
    /// The arms that are compared with it, in the order of the columns.
    pub arms: Vec<String>,
    /// The rows.
    pub rows: Vec<CallRow>,
    /// The operations whose ratio depends on where the scheduler places client and daemon; empty without any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub placements: String,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CallRow {
    /// The cell.
    pub cell: SeriesKey,
    /// The operation in a few words.
    pub label: String,
    /// The baseline's time in nanoseconds.
    pub baseline_ns: f64,
    /// The same in words, with failed passes.
    pub baseline: String,
    /// The other arms, in the order of the columns.
    pub cells: Vec<CallCell>,
}

/// One operation on one arm.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct CallCell {
    /// The ratio to the baseline, with the ends of its interval if there is one.
    pub ratio: Option<f64>,
    /// The lower end.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The ratio with its interval, or the reason why there is none, in words.
    pub text: String,
}

impl CallCell {
    fn of(cell: Option<&Cell>) -> Self {
        let Some(cell) = cell else {
            return Self { text: "not measured".to_owned(), ..Self::default() };
        };
        let failed = failed(&cell.failed);
        let Some(comparison) = &cell.against_baseline else {
            return Self { text: format!("no ratio{failed}"), ..Self::default() };
        };
        let ratio = comparison.ratio;
        let (low, high) = match comparison.interval {
            Some(interval) => (Some(interval.low), Some(interval.high)),
            None => (None, None),
        };
        let text = match comparison.interval {
            Some(interval) if is_wide(ratio, interval.low, interval.high) => {
                format!("{}{failed}", ratio_words(ratio, interval.low, interval.high))
            }
            Some(interval) => {
                let half = (interval.high - ratio).max(ratio - interval.low);
                let places = places(half);
                format!("×{ratio:.places$}{}{failed}", half_words(half, places))
            }
            None => format!("×{ratio:.2}, no interval{failed}"),
        };
        Self { ratio: Some(ratio), low, high, text }
    }
}

/// Half of an interval behind its ratio, ` ±0.02`; empty if it is 0 in these places.
pub(crate) fn half_words(half: f64, places: usize) -> String {
    let words = format!("{half:.places$}");
    if words.chars().all(|c| matches!(c, '0' | '.')) { String::new() } else { format!(" ±{words}") }
}

fn failed(passes: &FailedPasses) -> String {
    match passes.count() {
        0 => String::new(),
        failed => format!(", {failed} of {} failed", passes.tried),
    }
}

/// The table of a run. The arms with decisions of most policies come first.
pub(super) fn table(run: &RunEvidence<'_>, decisions: &[Decision]) -> CallTable {
    let (plan, summary) = (&run.run.plan, run.summary);
    let of_baseline = summary.cells.iter();
    let of_baseline: Vec<&Cell> = of_baseline.filter(|cell| cell.arm == summary.baseline && cell.is_main()).collect();
    let chosen = chosen(&of_baseline);
    let mut arms: Vec<&str> = plan
        .arms
        .iter()
        .filter(|arm| arm.name != summary.baseline && arm.same_as.is_none())
        .filter(|arm| arm.against.is_none())
        .map(|arm| arm.name.as_str())
        .filter(|arm| {
            let has_cell = |cell: &&Cell| summary.cell(&cell.workload, &cell.state, &cell.metric, arm).is_some();
            chosen.iter().any(has_cell)
        })
        .collect();
    let measured = |arm: &str| {
        let has_cell = |cell: &&&Cell| summary.cell(&cell.workload, &cell.state, &cell.metric, arm).is_some();
        chosen.iter().filter(has_cell).count()
    };
    let decided = |arm: &str| {
        let of_arm = decisions.iter();
        of_arm.filter(|decision| decision.candidate == arm).count()
    };
    arms.sort_by_key(|arm| std::cmp::Reverse((decided(arm), measured(arm))));
    let rows = chosen.iter().map(|cell| CallRow {
        cell: cell.key(),
        label: label(cell),
        baseline_ns: cell.typical_ns,
        baseline: format!("{}{}", time(cell.typical_ns), failed(&cell.failed)),
        cells: arms
            .iter()
            .map(|arm| CallCell::of(summary.cell(&cell.workload, &cell.state, &cell.metric, arm)))
            .collect(),
    });
    let rows: Vec<CallRow> = rows.collect();
    let all = |wanted: fn(&CallRow) -> bool| rows.iter().all(wanted);
    let title = match (all(|row| row.cell.workload.starts_with("micro/")), all(|row| row.cell.state == "hot")) {
        (true, true) => "one call, caches hot",
        (false, true) => "caches hot",
        (true, false) => "one call",
        (false, false) => "time",
    };
    CallTable {
        placements: placements(&chosen, summary, &arms),
        title: title.to_owned(),
        baseline: summary.baseline.clone(),
        arms: arms.into_iter().map(str::to_owned).collect(),
        rows,
    }
}

/// Each operation with another ratio if client and daemon share a processor, with both; empty if there is none. Where the
/// scheduler places them is not in the interval of a ratio, because it places them again in each epoch.
fn placements(cells: &[&Cell], summary: &Summary, arms: &[&str]) -> String {
    let mut parts: Vec<String> = Vec::new();
    for cell in cells {
        let compared = |state: &str, arm: &&str| {
            let found = summary.cell(&cell.workload, state, &cell.metric, arm)?;
            found.against_baseline.as_ref()
        };
        let state = Placement::SharedCpu.state(&cell.state);
        let pairs = arms.iter();
        let pairs: Vec<(&Comparison, &Comparison)> =
            pairs.filter_map(|arm| Some((compared(&state, arm)?, compared(&cell.state, arm)?))).collect();
        let is_apart = |(shared, free): &(&Comparison, &Comparison)| {
            let ends = shared.interval.zip(free.interval);
            ends.is_some_and(|(shared, free)| shared.high * APART < free.low)
        };
        if !pairs.iter().any(is_apart) {
            continue;
        }
        let of_epochs = pairs.iter().flat_map(|(_, free)| &free.epochs);
        let most = of_epochs.copied().fold(0.0, f64::max);
        let shared = || pairs.iter().map(|(shared, _)| shared.ratio);
        let least = shared().fold(f64::INFINITY, f64::min);
        let [least, largest, most] = [least, shared().fold(0.0, f64::max), most].map(|ratio| format!("×{ratio:.0}"));
        let shared = if least == largest { least } else { format!("{least} to {largest}") };
        let [on_one, across] = if parts.is_empty() { [" on one processor", " across two"] } else { [""; 2] };
        let name = label(cell);
        parts.push(format!("{name} {shared}{on_one}, up to {most}{across}"));
    }
    if parts.is_empty() { String::new() } else { format!("By placement: {}.", parts.join("; ")) }
}

/// The cells of the rows: single calls with hot caches, one of each kind; then sessions, programs and other states.
fn chosen<'a>(cells: &[&'a Cell]) -> Vec<&'a Cell> {
    let is_micro = |cell: &Cell| cell.workload.starts_with("micro/") && cell.metric != MAKESPAN;
    let by_kind = KINDS.iter().filter_map(|kind| {
        let mut of_kind = cells.iter();
        of_kind.find(|cell| is_micro(cell) && cell.state == "hot" && cell.metric == *kind)
    });
    let by_kind: Vec<&Cell> = by_kind.copied().collect();
    let rank = |cell: &Cell| {
        (
            cell.state != "hot",
            match cell.workload.split('/').next() {
                Some("micro") => 0,
                Some("agent") => 1,
                _ => 2,
            },
        )
    };
    let mut others: Vec<&Cell> = cells.to_vec();
    others.sort_by_key(|cell| rank(cell));
    let mut all: Vec<&Cell> = Vec::new();
    for cell in by_kind.into_iter().chain(others) {
        if all.len() < ROWS && !all.iter().any(|other| std::ptr::eq(*other, cell)) {
            all.push(cell);
        }
    }
    all
}

/// An operation in a few words: `read 1 KiB`, `git clone`, `claude-code-write-heavy`.
fn label(cell: &Cell) -> String {
    let name = cell.workload.rsplit('/').next().unwrap_or(&cell.workload);
    let words = match (cell.workload.split('/').next(), cell.metric.as_str()) {
        (_, MAKESPAN) => name.to_owned(),
        (Some("micro"), metric) => match name.strip_prefix(metric) {
            Some("-1k") => format!("{metric} 1 KiB"),
            Some(rest) => format!("{metric}{}", rest.replace('-', " ")),
            None => format!("{metric}, {name}"),
        },
        (_, metric) => format!("{name} {metric}"),
    };
    match cell.state.as_str() {
        "hot" => words,
        state => format!("{words}, {state}"),
    }
}
