//! The comparisons of a run: paired by round, one list of log ratios an epoch, judged by the plan's margins.

use std::collections::{BTreeMap, BTreeSet};

use rundir::{Plan, PlannedWorkload, Sample};

use crate::compare::{Comparison, Margin, MarginKind, Verdict, compare};
use crate::epochs::{LEVEL, median};

/// The metric that sums all calls of a session.
pub const MAKESPAN: &str = "makespan";

/// A workload, a cache state and a metric: a call kind, or [`MAKESPAN`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The metric.
    pub metric: String,
}

/// One arm's values in a cell, in nanoseconds, by epoch and round: the mean of a pass's calls, or its makespan.
pub type Series = BTreeMap<(u32, u32), f64>;

/// All values of a run, by cell and arm.
#[derive(Clone, Debug, Default)]
pub struct Table(pub BTreeMap<CellKey, BTreeMap<String, Series>>);

impl Table {
    /// Collects what was measured. Passes of `void` epochs are left out, and those on a busy machine unless `also_busy`.
    pub fn of(samples: &[Sample], void: &BTreeSet<u32>, also_busy: bool) -> Self {
        let mut table = Self::default();
        let measured = samples.iter();
        let measured =
            measured.filter(|own| own.is_measured(also_busy) && !void.contains(&own.epoch));
        for sample in measured {
            let mut put = |metric: &str, value: f64| {
                let key = CellKey {
                    workload: sample.workload.clone(),
                    state: sample.state.clone(),
                    metric: metric.to_owned(),
                };
                let arms = table.0.entry(key).or_default();
                let series = arms.entry(sample.arm.clone()).or_default();
                series.insert((sample.epoch, sample.round), value);
            };
            for (kind, calls) in &sample.calls {
                put(kind, calls.mean_ns());
            }
            if sample.workload.starts_with("agent/") {
                put(MAKESPAN, sample.makespan_ns as f64);
            }
        }
        table
    }
}

/// The names of the baseline and of its A/A arm.
pub fn baselines(plan: &Plan) -> (String, Option<String>) {
    let same = plan.arms.iter().find(|arm| arm.same_as.is_some());
    let first = plan.arms.first().map(|arm| arm.name.clone());
    match same {
        Some(arm) => (
            arm.same_as.clone().unwrap_or_default(),
            Some(arm.name.clone()),
        ),
        None => (first.unwrap_or_default(), None),
    }
}

/// The margin of a cell whose baseline takes `typical_ns` nanoseconds: the widest of the plan's.
pub fn margin(plan: &Plan, key: &CellKey, typical_ns: f64) -> Margin {
    let margins = &plan.margins;
    let workload = plan.workloads.iter().find(|own| own.name == key.workload);
    let is_session = key.metric == MAKESPAN;
    let calls = |own: &PlannedWorkload| own.calls.values().sum::<u64>() as f64;
    let calls = workload.filter(|_| is_session).map_or(1.0, calls);
    let session_ms = workload
        .filter(|_| is_session)
        .and_then(|own| own.session_ms);
    let of = |kind, share: f64| Margin {
        ratio: 1.0 + share,
        kind,
    };
    let mut widest = of(MarginKind::Relative, margins.relative);
    let absolute = of(
        MarginKind::Absolute,
        margins.absolute_ns * calls / typical_ns.max(1.0),
    );
    if absolute.ratio > widest.ratio {
        widest = absolute;
    }
    if let Some(session_ms) = session_ms {
        let session_ns = session_ms as f64 * 1e6;
        let session = of(
            MarginKind::Session,
            margins.session_share * session_ns / typical_ns.max(1.0),
        );
        if session.ratio > widest.ratio {
            widest = session;
        }
    }
    widest
}

/// The log ratios of `candidate` to the mean of `baselines`, taken on logarithms, by epoch; rounds that one of them lacks
/// are left out.
fn log_ratios(candidate: &Series, baselines: &[&Series]) -> Vec<Vec<f64>> {
    let mut epochs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (at, value) in candidate {
        let base: Option<Vec<f64>> = baselines.iter().map(|own| own.get(at).copied()).collect();
        let Some(base) = base.filter(|base| *value > 0.0 && base.iter().all(|own| *own > 0.0))
        else {
            continue;
        };
        let mean = base.iter().map(|own| own.ln()).sum::<f64>() / base.len() as f64;
        epochs.entry(at.0).or_default().push(value.ln() - mean);
    }
    epochs.into_values().collect()
}

/// Compares `arm` with the mean of the arms `with` in a cell; `None` where they have no round in common.
pub fn compare_arms(
    plan: &Plan,
    table: &Table,
    key: &CellKey,
    arm: &str,
    with: &[&str],
) -> Option<Comparison> {
    let arms = table.0.get(key)?;
    let baselines: Option<Vec<&Series>> = with.iter().map(|own| arms.get(*own)).collect();
    let baselines = baselines?;
    let ratios = log_ratios(arms.get(arm)?, &baselines);
    let mut typical: Vec<f64> = baselines
        .iter()
        .flat_map(|own| own.values().copied())
        .collect();
    let margin = margin(plan, key, median(&mut typical)?);
    // The A/A check decides nothing, so that no look of it has to be paid for.
    let is_check = with.len() == 1
        && plan
            .arms
            .iter()
            .any(|own| own.name == arm && own.same_as.is_some());
    let alpha = match is_check {
        true => 1.0 - LEVEL,
        false => plan.schedule.looks.alpha(ratios.len()),
    };
    compare(&ratios, alpha, margin)
}

/// Compares `arm` with the baseline: with the mean of both identical arms, where there are two.
pub fn compare_with_baseline(
    plan: &Plan,
    table: &Table,
    key: &CellKey,
    arm: &str,
) -> Option<Comparison> {
    let (baseline, same) = baselines(plan);
    match &same {
        Some(same) if arm == same => compare_arms(plan, table, key, arm, &[&baseline]),
        Some(same) => compare_arms(plan, table, key, arm, &[&baseline, same]),
        None => compare_arms(plan, table, key, arm, &[&baseline]),
    }
}

/// How far identical arms may differ in a cell that stops, as a share of the relative margin.
const PRECISE: f64 = 1.0 / 3.0;

/// The arms that are not decided yet in a cell, by its main metric: of a session the makespan, else its one kind of
/// calls. The A/A arm is among them until it is shown to differ by less than a third of the margin.
pub fn undecided(plan: &Plan, table: &Table, workload: &str, state: &str) -> BTreeSet<String> {
    let (baseline, same) = baselines(plan);
    let precise = 1.0 + plan.margins.relative * PRECISE;
    let mut open = BTreeSet::new();
    let cells = table.0.keys();
    for key in cells.filter(|key| key.workload == workload && key.state == state) {
        if workload.starts_with("agent/") && key.metric != MAKESPAN {
            continue;
        }
        for arm in &plan.arms {
            if arm.name == baseline {
                continue;
            }
            let Some(found) = compare_with_baseline(plan, table, key, &arm.name) else {
                continue;
            };
            let is_open = match Some(&arm.name) == same.as_ref() {
                true => found
                    .interval
                    .is_none_or(|own| own.high > precise || own.low < 1.0 / precise),
                false => found.verdict == Verdict::Undecided,
            };
            if is_open {
                open.insert(arm.name.clone());
            }
        }
    }
    open
}
