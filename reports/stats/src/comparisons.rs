//! The comparisons of a run: paired by round, one list of log ratios per epoch, judged by the plan's margins.

use std::collections::{BTreeMap, BTreeSet};

use rundir::{Plan, PlannedWorkload, Sample};

use crate::compare::{Comparison, Margin, MarginKind, Verdict, compare};
use crate::epochs::{LEVEL, median};
use crate::modes::modes;

/// The least share of a cell's rounds for a combination of levels. Smaller combinations are outliers;
/// a verdict need not hold at them.
const MIN_LEVEL_SHARE: f64 = 0.05;

/// The metric that is the sum of all calls of a session.
pub const MAKESPAN: &str = "makespan";

/// A workload, a cache state and a metric: a call kind, or [`MAKESPAN`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The metric.
    pub metric: String,
}

impl SeriesKey {
    /// The key of a metric in a workload and cache state.
    pub fn new(workload: &str, state: &str, metric: &str) -> Self {
        Self {
            workload: workload.to_owned(),
            state: state.to_owned(),
            metric: metric.to_owned(),
        }
    }

    /// Whether its verdict counts: of a session only the sum of its calls.
    pub fn is_main(&self) -> bool {
        self.metric == MAKESPAN || !self.workload.starts_with("agent/")
    }
}

/// One arm's values in a cell, in nanoseconds, by epoch and round: the mean of a pass's calls, or its makespan.
pub type Series = BTreeMap<(u32, u32), f64>;

/// The values of a run, by cell and arm.
#[derive(Clone, Debug, Default)]
pub struct Table(pub BTreeMap<SeriesKey, BTreeMap<String, Series>>);

impl Table {
    /// Collects measured values. It leaves out passes of `void` epochs, and busy passes unless `also_busy`.
    pub fn of(samples: &[Sample], void: &BTreeSet<u32>, also_busy: bool) -> Self {
        let mut table = Self::default();
        let measured = samples.iter();
        let measured = measured
            .filter(|sample| sample.is_measured(also_busy) && !void.contains(&sample.epoch));
        for sample in measured {
            let mut put = |metric: &str, value: f64| {
                let key = SeriesKey::new(&sample.workload, &sample.state, metric);
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
    let aa_arm = plan.arms.iter().find(|arm| arm.same_as.is_some());
    let first = plan.arms.first().map(|arm| arm.name.clone());
    match aa_arm {
        Some(arm) => (
            arm.same_as.clone().unwrap_or_default(),
            Some(arm.name.clone()),
        ),
        None => (first.unwrap_or_default(), None),
    }
}

/// The margin of a cell whose baseline takes `typical_ns` nanoseconds: the widest margin of the plan.
pub fn margin(plan: &Plan, key: &SeriesKey, typical_ns: f64) -> Margin {
    let margins = &plan.margins;
    let workload = plan.workload(&key.workload);
    let is_session = key.metric == MAKESPAN;
    let calls = |workload: &PlannedWorkload| workload.calls.values().sum::<u64>() as f64;
    let calls = workload.filter(|_| is_session).map_or(1.0, calls);
    let session_ms = workload
        .filter(|_| is_session)
        .and_then(|workload| workload.session_ms);
    let of = |kind, share: f64| Margin {
        ratio: 1.0 + share,
        kind,
    };
    let session_ns = session_ms.map(|ms| ms as f64 * 1e6);
    let session = session_ns.map(|ns| margins.session_share * ns / typical_ns.max(1.0));
    let absolute = margins.absolute_ns * calls / typical_ns.max(1.0);
    let widest = of(MarginKind::Relative, margins.relative);
    let others = std::iter::once(of(MarginKind::Absolute, absolute))
        .chain(session.map(|share| of(MarginKind::Session, share)));
    others.fold(widest, |widest, margin| match margin.ratio > widest.ratio {
        true => margin,
        false => widest,
    })
}

/// The logarithms of an arm's values, by epoch.
pub fn logs(series: &Series) -> Vec<Vec<f64>> {
    let mut epochs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for ((epoch, _), value) in series {
        epochs.entry(*epoch).or_default().push(value.max(1.0).ln());
    }
    epochs.into_values().collect()
}

/// The log ratios of `candidate` to the geometric mean of `baselines`, by epoch.
/// Rounds that any of them lacks are left out.
pub fn log_ratios(candidate: &Series, baselines: &[&Series]) -> Vec<Vec<f64>> {
    let mut epochs: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (at, value) in candidate {
        let base = baselines.iter().map(|baseline| baseline.get(at).copied());
        let values: Option<Vec<f64>> = std::iter::once(Some(*value)).chain(base).collect();
        if let Some(ratio) = values.and_then(|values| log_ratio(&values)) {
            epochs.entry(at.0).or_default().push(ratio);
        }
    }
    epochs.into_values().collect()
}

/// The logarithm of the first value over the geometric mean of the others; `None` if a value is not above 0.
fn log_ratio(values: &[f64]) -> Option<f64> {
    let (candidate, base) = values.split_first()?;
    if base.is_empty() || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let mean = base.iter().map(|value| value.ln()).sum::<f64>() / base.len() as f64;
    Some(candidate.ln() - mean)
}

/// Compares `arm` with the mean of the arms `with` in a cell; `None` without a common round.
pub fn compare_arms(
    plan: &Plan,
    table: &Table,
    key: &SeriesKey,
    arm: &str,
    with: &[&str],
) -> Option<Comparison> {
    let arms = table.0.get(key)?;
    let baselines: Option<Vec<&Series>> = with.iter().map(|name| arms.get(*name)).collect();
    let baselines = baselines?;
    let ratios = log_ratios(arms.get(arm)?, &baselines);
    let mut typical: Vec<f64> = baselines
        .iter()
        .flat_map(|baseline| baseline.values().copied())
        .collect();
    let margin = margin(plan, key, median(&mut typical)?);
    // The A/A check decides nothing, so its looks spend no error rate.
    let is_identical = plan
        .arm(arm)
        .is_some_and(|planned| planned.same_as.is_some());
    let is_check = with.len() == 1 && is_identical;
    let alpha = match is_check {
        true => 1.0 - LEVEL,
        false => plan.alpha(&key.workload, ratios.len()),
    };
    compare(&ratios, alpha, margin)
}

/// Compares `arm` with the baseline: with the mean of both identical arms, if there are two.
pub fn compare_with_baseline(
    plan: &Plan,
    table: &Table,
    key: &SeriesKey,
    arm: &str,
) -> Option<Comparison> {
    let with = compared_with(plan, arm);
    let with: Vec<&str> = with.iter().map(String::as_str).collect();
    compare_arms(plan, table, key, arm, &with)
}

/// The arms whose mean `arm` is compared with: the arm that the plan names for it, else both identical arms.
/// An identical arm is not compared with itself.
pub fn compared_with(plan: &Plan, arm: &str) -> Vec<String> {
    if let Some(against) = plan.arm(arm).and_then(|planned| planned.against.clone()) {
        return vec![against];
    }
    let (baseline, aa_arm) = baselines(plan);
    let aa_arm = aa_arm.filter(|aa_arm| arm != aa_arm);
    std::iter::once(baseline).chain(aa_arm).collect()
}

/// The median ratios of `arm` to the mean of the arms `with`, one per combination of their levels in a cell.
/// [`modes`] finds the levels; empty if each arm has one level.
/// Levels that all arms share, such as a slower processor in one epoch, do not change the ratios.
/// Levels of a single arm do.
pub fn ratios_by_level(table: &Table, key: &SeriesKey, arm: &str, with: &[&str]) -> Vec<f64> {
    let Some(arms) = table.0.get(key) else {
        return Vec::new();
    };
    let series = std::iter::once(&arm).chain(with);
    let Some(series) = series
        .map(|name| arms.get(*name))
        .collect::<Option<Vec<_>>>()
    else {
        return Vec::new();
    };
    let borders = series.iter().map(|of_arm| {
        let values: Vec<f64> = of_arm.values().copied().collect();
        modes(&values).map(|modes| (modes.low * modes.high).sqrt())
    });
    let borders: Vec<Option<f64>> = borders.collect();
    if borders.iter().all(Option::is_none) {
        return Vec::new();
    }
    let mut by_levels: BTreeMap<Vec<bool>, Vec<f64>> = BTreeMap::new();
    let mut rounds = 0;
    for at in series[0].keys() {
        let values = series.iter().map(|of_arm| of_arm.get(at).copied());
        let Some(values) = values.collect::<Option<Vec<f64>>>() else {
            continue;
        };
        let levels = values.iter().zip(&borders);
        let levels = levels.map(|(value, border)| border.is_some_and(|border| *value > border));
        let ratio = log_ratio(&values);
        by_levels.entry(levels.collect()).or_default().extend(ratio);
        rounds += 1;
    }
    let fewest = (MIN_LEVEL_SHARE * f64::from(rounds)).max(2.0);
    let often = by_levels
        .into_values()
        .filter(|ratios| ratios.len() as f64 >= fewest);
    often
        .filter_map(|mut ratios| Some(median(&mut ratios)?.exp()))
        .collect()
}

/// The A/A spread below which a cell may stop, as a share of the relative margin.
const PRECISE: f64 = 1.0 / 3.0;

/// The undecided arms of a cell by its main metric: the makespan of a session, else its one kind of calls.
/// The A/A arm is undecided until its interval is within a third of the margin.
pub fn undecided(plan: &Plan, table: &Table, workload: &str, state: &str) -> BTreeSet<String> {
    let (baseline, aa_arm) = baselines(plan);
    let precise = 1.0 + plan.margins.relative * PRECISE;
    let mut open = BTreeSet::new();
    let cells = table.0.keys();
    let is_wanted =
        |key: &&SeriesKey| key.workload == workload && key.state == state && key.is_main();
    for key in cells.filter(is_wanted) {
        for arm in &plan.arms {
            if arm.name == baseline {
                continue;
            }
            let Some(found) = compare_with_baseline(plan, table, key, &arm.name) else {
                continue;
            };
            let is_open = match Some(&arm.name) == aa_arm.as_ref() {
                true => found
                    .interval
                    .is_none_or(|interval| interval.high > precise || interval.low < 1.0 / precise),
                false => found.verdict == Verdict::Undecided,
            };
            if is_open {
                open.insert(arm.name.clone());
            }
        }
    }
    open
}
