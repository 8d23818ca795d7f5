//! Summarises a run: cells with typical latencies and comparisons, costs, outcomes, health.

mod cost;
mod ending;
mod failed;
mod found;
mod groups;
mod health;
mod hosts;

use std::collections::BTreeSet;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

pub use cost::{Cost, OpcodeCost, Ready};
use cost::{costs, ready};
pub use ending::{Ending, FailedCallPasses};
use ending::{endings, failing};
pub use failed::FailedPasses;
pub use found::SearchScores;
pub use found::{PROGRAMS, TASK};
use groups::Groups;
pub use health::{AaCell, Health, SectionHealth};
pub use health::{SYNCS, survives_power_loss};
use health::{health, withhold};
pub use hosts::{Handoffs, SharedFiles};
use hosts::{handoffs, shared_files};
use rundir::{Arm, CellEpoch, Latencies, Placement, Plan, Run, Sample, cache_state};
pub use stats::MAKESPAN;
use stats::{
    Comparison, Interval, MarginKind, Modes, Series, SeriesKey, Table, Tail, Verdict, baselines, compare_arms,
    compare_with_baseline, has_enough_calls, logs, modes, pool,
};

use crate::text::{BELOW_WHAT_MATTERS, small_share, time};

/// The arm that every other arm with a daemon is also compared with: the same front end over memory.
pub const FLOOR: &str = "memory";

/// All results that follow from a run's samples.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// The baseline arm.
    pub baseline: String,
    /// Its A/A arm, if the run has one.
    #[serde(rename = "same")]
    pub aa_arm: Option<String>,
    /// The cells by workload, state, metric and arm, in the plan's order.
    pub cells: Vec<Cell>,
    /// The health of the run.
    pub health: Health,
    /// The costs by workload, state and arm.
    pub costs: Vec<Cost>,
    /// The times from start to readiness of daemons.
    pub ready: Vec<Ready>,
    /// The outcomes of passes and calls, by arm.
    pub endings: Vec<Ending>,
    /// The callers' waits in failing passes.
    pub failing: Vec<FailedCallPasses>,
    /// The times until the second host saw a write of the first.
    pub handoffs: Vec<Handoffs>,
    /// The lines that two hosts appended to one file.
    pub shared_files: Vec<SharedFiles>,
    /// The scores of planted evidence.
    pub found: Vec<SearchScores>,
}

/// One metric of one arm in one workload and cache state.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// A call kind, or `makespan`.
    pub metric: String,
    /// The arm.
    pub arm: String,
    /// Epochs in which it was measured.
    pub epochs: usize,
    /// Measured passes.
    pub passes: usize,
    /// Calls in the measured passes.
    pub calls: u64,
    /// The passes of the arm in this workload and cache state that did not end well. They are in no time.
    pub failed: FailedPasses,
    /// The typical value in nanoseconds: the geometric mean of one robust estimate per epoch. A pass's value is the
    /// median of its calls in hot cells that repeat one operation, their mean in others, and their sum for `makespan`.
    pub typical_ns: f64,
    /// How far the mean of all calls is above `typical_ns`; absent where `typical_ns` comes from means.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<Tail>,
    /// Its 99 % interval over epochs.
    pub interval: Option<Interval>,
    /// The median over all calls, in nanoseconds; null for `makespan`.
    pub p50_ns: Option<u64>,
    /// The 90th percentile over all calls, in nanoseconds; null with too few calls. Calls on a busy machine are in no
    /// percentile.
    pub p90_ns: Option<u64>,
    /// The 99th percentile; see `p90_ns`.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile; see `p90_ns`.
    pub p999_ns: Option<u64>,
    /// The longest call, in nanoseconds; for `makespan` the longest pass.
    pub max_ns: u64,
    /// Two levels among the passes, in nanoseconds; absent for one level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modes: Option<Modes>,
    /// The passes' values in nanoseconds, in order, for a chart of their distribution.
    #[serde(skip)]
    pub values: Vec<f64>,
    /// The comparison with the baseline; null for the baseline itself.
    pub against_baseline: Option<Comparison>,
    /// The comparison with `memory`, FUSE over memory, for other arms with a daemon; null for others.
    pub against_floor: Option<Comparison>,
    /// Requests that reached the daemon, per call, counted exactly. Null if the backend does not count, or if the
    /// workload makes calls of several kinds, which the counters cannot tell apart.
    pub requests_per_call: Option<f64>,
}

impl Summary {
    /// The cell of an arm.
    pub fn cell(&self, workload: &str, state: &str, metric: &str, arm: &str) -> Option<&Cell> {
        let is_wanted =
            |cell: &&Cell| cell.arm == arm && cell.metric == metric && cell.workload == workload && cell.state == state;
        self.cells.iter().find(is_wanted)
    }
}

impl Summary {
    /// The words for all arms of a cell if their times are so short that no ratio between them matters: what they take of
    /// the session, or a call. `None` if one of the arms has another verdict, or none.
    pub fn below_what_matters(&self, plan: &Plan, of: &SeriesKey) -> Option<String> {
        let cells = self.cells.iter().filter(|cell| cell.key() == *of);
        let is_compared = |cell: &&&Cell| cell.against_baseline.is_some() && Some(&cell.arm) != self.aa_arm.as_ref();
        let cells: Vec<&Cell> = cells.collect();
        let compared = cells.iter().filter(is_compared);
        let compared: Vec<&Comparison> = compared.filter_map(|cell| cell.against_baseline.as_ref()).collect();
        let is_below = |one: &&Comparison| one.verdict == Verdict::BelowWhatMatters;
        let first = compared.first().filter(|_| compared.iter().all(is_below))?;
        let longest_ns = cells.iter().map(|cell| cell.typical_ns).fold(0.0, f64::max);
        let workload = plan.workload(&of.workload)?;
        let session_ns = workload.session_ms.map(|ms| ms as f64 * 1e6);
        let share = match (first.margin.kind, session_ns) {
            (MarginKind::Session, Some(session_ns)) => {
                // A kind of calls is in the session so often; the makespan is one figure of a pass.
                let times = workload.calls.get(&of.metric).copied().unwrap_or(1);
                let share = small_share(longest_ns * times as f64 / session_ns);
                format!("{share} of the session")
            }
            _ => {
                let calls: u64 = match of.metric.as_str() {
                    MAKESPAN => workload.calls.values().sum(),
                    _ => 1,
                };
                format!("at most {} a call", time(longest_ns / calls.max(1) as f64))
            }
        };
        Some(format!("{BELOW_WHAT_MATTERS} ({share})"))
    }
}

impl Cell {
    /// Workload, cache state and metric.
    pub fn key(&self) -> SeriesKey {
        SeriesKey::new(&self.workload, &self.state, &self.metric)
    }

    /// The anchor of the cell's row on a page; all arms share it.
    pub fn anchor(&self) -> String {
        cell_anchor(&self.workload, &self.state, &self.metric)
    }

    /// Whether the kernel answered from its caches: no call reached the daemon.
    pub fn is_kernel_cache(&self) -> bool {
        self.requests_per_call.is_some_and(|requests| requests < 0.01)
    }

    /// The cell in which the scheduler places client and daemon, if they share a processor in this one.
    pub fn placed_freely(&self) -> Option<SeriesKey> {
        (Placement::of_state(&self.state) != Placement::Free)
            .then(|| SeriesKey::new(&self.workload, cache_state(&self.state), &self.metric))
    }

    /// Whether it is its workload's main metric. Only the verdicts of main metrics count.
    pub fn is_main(&self) -> bool {
        self.metric == MAKESPAN || !self.workload.starts_with("agent/")
    }
}

/// The anchor of a cell's row on a page.
pub fn cell_anchor(workload: &str, state: &str, metric: &str) -> String {
    format!("cell-{workload}-{state}-{metric}").replace('/', "-")
}

/// Whether our own proxy injects the arm's distance from its server, so that no real network is measured.
pub fn is_simulated(arm: &str) -> bool {
    arm.contains('@')
}

/// The calls of a pass that belong to a metric.
fn calls(pass: &Sample, metric: &str) -> u64 {
    match metric {
        MAKESPAN => pass.outcomes.values().sum(),
        kind => pass.calls.get(kind).map_or(0, |calls| calls.count),
    }
}

/// Epochs that do not count: void ones, and incomplete ones.
pub fn void(run: &Run) -> BTreeSet<u32> {
    let mut void: BTreeSet<u32> = run.samples.iter().map(|sample| sample.epoch).collect();
    void.extend(run.epochs.iter().map(|epoch| epoch.epoch));
    for epoch in run.epochs.iter().filter(|epoch| epoch.void.is_none()) {
        void.remove(&epoch.epoch);
    }
    void
}

/// All calls of one kind of one arm in some cells; `None` if none were kept.
fn all_calls<'a>(cells: impl Iterator<Item = &'a &'a CellEpoch>, kind: &str) -> Result<Option<Histogram<u64>>, String> {
    let kept: Vec<_> = cells.filter_map(|cell| cell.latencies.get(kind)).collect();
    Latencies::merged(&kept)
}

/// Summarises a run.
///
/// # Errors
/// If a histogram is damaged.
pub fn summarise(run: &Run) -> Result<Summary, String> {
    let plan = &run.plan;
    let (baseline, aa_arm) = baselines(plan);
    let mut health = health(run);
    let table = Table::of(&run.samples, &void(run), health.is_busy);
    let groups = Groups::of_run(run);
    let costs = costs(&groups);
    let mut cells = Vec::new();
    for key in keys(plan, &table) {
        let arms = &table.0[&key];
        for arm in &plan.arms {
            let Some(series) = arms.get(&arm.name) else {
                continue;
            };
            let against_baseline =
                (arm.name != baseline).then(|| compare_with_baseline(plan, &table, &key, &arm.name)).flatten();
            let has_floor = arm.backend.counts_requests && arm.name != FLOOR;
            let against_floor = has_floor.then(|| compare_arms(plan, &table, &key, &arm.name, &[FLOOR])).flatten();
            let Some(group) = groups.of(&key.workload, &key.state, &arm.name) else {
                continue;
            };
            let cost = costs
                .iter()
                .find(|cost| cost.workload == key.workload && cost.state == key.state && cost.arm == arm.name);
            let of_one_kind = key.metric == MAKESPAN || group.workload.calls.len() == 1;
            let requests = cost.filter(|_| arm.backend.counts_requests && of_one_kind);
            let all = all_calls(group.cells.iter(), &key.metric)?;
            let mut cell = cell(&key, arm, series, all.as_ref());
            let passes = group.passes.iter().copied();
            let passes = passes.filter(|pass| pass.is_measured(health.is_busy));
            // The figure of a busy pass is its mean, tail included.
            cell.tail = if health.is_busy { None } else { Tail::of(passes.clone(), &key.metric) };
            cell.calls = passes.map(|pass| calls(pass, &key.metric)).sum();
            cell.failed = FailedPasses::of(group.passes.iter().copied());
            cell.against_baseline = against_baseline;
            cell.against_floor = against_floor;
            cell.requests_per_call = requests.map(|cost| cost.requests);
            cells.push(cell);
        }
    }
    withhold(run, &mut health, &table, &mut cells);
    Ok(Summary {
        found: found::found(run),
        ready: ready(&groups),
        failing: failing(&groups, &baseline),
        handoffs: handoffs(plan, &groups)?,
        shared_files: shared_files(run),
        endings: endings(plan, &groups),
        baseline,
        aa_arm,
        cells,
        health,
        costs,
    })
}

/// The cells that have values, in the plan's order; the makespan first.
fn keys(plan: &Plan, table: &Table) -> Vec<SeriesKey> {
    let mut keys = Vec::new();
    for workload in &plan.workloads {
        for state in &workload.states {
            let metrics = std::iter::once(MAKESPAN).chain(workload.calls.keys().map(String::as_str));
            for metric in metrics {
                let key = SeriesKey::new(&workload.name, state, metric);
                if table.0.contains_key(&key) {
                    keys.push(key);
                }
            }
        }
    }
    keys
}

fn cell(key: &SeriesKey, arm: &Arm, series: &Series, all: Option<&Histogram<u64>>) -> Cell {
    let epochs = logs(series);
    let pooled = pool(&epochs);
    let values: Vec<f64> = series.values().copied().collect();
    let percentile = |q: f64| {
        let all = all.filter(|all| has_enough_calls(q, all.len()))?;
        Some(all.value_at_quantile(q))
    };
    let longest = values.iter().copied().fold(0.0, f64::max) as u64;
    Cell {
        workload: key.workload.clone(),
        state: key.state.clone(),
        metric: key.metric.clone(),
        arm: arm.name.clone(),
        epochs: epochs.len(),
        passes: values.len(),
        calls: 0,
        failed: FailedPasses::default(),
        tail: None,
        typical_ns: pooled.as_ref().map_or(0.0, |pooled| pooled.mean.exp()),
        interval: pooled.and_then(|pooled| pooled.interval(1.0 - stats::LEVEL)).map(|logs| logs.map(f64::exp)),
        p50_ns: percentile(0.5),
        p90_ns: percentile(0.9),
        p99_ns: percentile(0.99),
        p999_ns: percentile(0.999),
        max_ns: all.map_or(longest, Histogram::max),
        modes: modes(&values),
        values,
        against_baseline: None,
        against_floor: None,
        requests_per_call: None,
    }
}

#[cfg(test)]
mod tests;
