//! The comparisons of a run: paired by round, one list of log ratios per epoch, judged by the plan's margins.

use std::collections::{BTreeMap, BTreeSet};

use rundir::{Calls, Plan, PlannedWorkload, Sample, cache_state};
use schemars::JsonSchema;
use serde::Serialize;

use crate::compare::{Comparison, Margin, MarginKind, compare};
use crate::epochs::{Interval, LEVEL, hodges_lehmann, mean_with_interval, median};
use crate::modes::modes;
use crate::ratios::{Disturbance, Ratios};

/// The least share of a cell's rounds for a combination of levels. Smaller combinations are outliers;
/// a verdict need not hold at them.
const MIN_LEVEL_SHARE: f64 = 0.05;

/// The metric that is the sum of all calls of a session.
pub const MAKESPAN: &str = "makespan";

/// A workload, a cache state and a metric: a call kind, or `makespan`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
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
        Self { workload: workload.to_owned(), state: state.to_owned(), metric: metric.to_owned() }
    }

    /// Whether its verdict counts: of a session only the sum of its calls.
    pub fn is_main(&self) -> bool {
        self.metric == MAKESPAN || !self.workload.starts_with("agent/")
    }
}

/// The fewest calls of a pass whose median is its figure.
const MEDIAN_FROM: u64 = 16;

/// Whether the figure of a pass for its calls of one kind is their median: in hot cells of workloads that repeat one
/// operation. Elsewhere it is their mean: with empty caches and in sessions the calls of a pass are not alike, so that their
/// median answers another question.
pub fn is_median(sample: &Sample, calls: &Calls) -> bool {
    cache_state(&sample.state) == "hot" && !sample.workload.starts_with("agent/") && calls.count >= MEDIAN_FROM
}

/// The figure of a pass for its calls of one kind, in nanoseconds a call.
pub fn figure(sample: &Sample, calls: &Calls) -> f64 {
    if is_median(sample, calls) { calls.p50_ns as f64 } else { calls.mean_ns() }
}

/// What rare slow calls add: the mean of all calls less their figure, in nanoseconds a call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Tail {
    /// The mean over epochs. It is below 0 if fast calls are further from the median than slow ones.
    pub mean_ns: f64,
    /// The 99 % interval over epochs; null for fewer than three.
    pub interval: Option<Interval>,
}

impl Tail {
    /// The tail of one arm's measured passes of a cell; `None` if their figure is not a median. Each epoch gives one
    /// value, over all its calls: a robust estimate over passes would hide what is rare.
    pub fn of<'a>(passes: impl IntoIterator<Item = &'a Sample>, metric: &str) -> Option<Self> {
        let mut epochs: BTreeMap<u32, (f64, u64)> = BTreeMap::new();
        for pass in passes {
            let Some(calls) = pass.calls.get(metric).filter(|calls| is_median(pass, calls)) else {
                continue;
            };
            let (excess, count) = epochs.entry(pass.epoch).or_default();
            *excess += calls.total_ns as f64 - figure(pass, calls) * calls.count as f64;
            *count += calls.count;
        }
        let values = epochs.into_values();
        let values: Vec<f64> = values.map(|(excess, count)| excess / count as f64).collect();
        let (mean_ns, interval) = mean_with_interval(&values)?;
        Some(Self { mean_ns, interval })
    }
}

/// One arm's values in a cell, in nanoseconds, by epoch and round: the [`figure`] of a pass, or its makespan.
pub type Series = BTreeMap<(u32, u32), f64>;

/// Log ratios, one list per epoch.
type Epochs = Vec<Vec<f64>>;

/// The values of a run, by cell and arm.
#[derive(Clone, Debug, Default)]
pub struct Table(pub BTreeMap<SeriesKey, BTreeMap<String, Series>>, Option<Waits>);

/// What is known of the waiting of a run's passes.
#[derive(Clone, Debug, Default, PartialEq)]
struct Waits {
    /// By workload, cache state and arm: the logarithm of a pass's time over the processor time of its own processes.
    /// Passes whose processor time was not recorded are missing.
    lengthened: BTreeMap<(String, String, String), Series>,
    /// By cell and arm: the share of a pass's time that its calls of this metric took.
    shares: BTreeMap<(SeriesKey, String), Series>,
}

impl Waits {
    fn add(&mut self, sample: &Sample) {
        let own_ns = sample.cpu.client_ns + sample.cpu.daemon_ns;
        if own_ns == 0 || sample.waited_ns == 0 {
            return;
        }
        let at = (sample.epoch, sample.round);
        let pass_ns = sample.waited_ns as f64;
        let place = (sample.workload.clone(), sample.state.clone(), sample.arm.clone());
        let lengthened = self.lengthened.entry(place).or_default();
        lengthened.insert(at, (pass_ns / own_ns as f64).ln());
        let kinds = sample.calls.iter();
        let kinds = kinds.map(|(kind, calls)| (kind.as_str(), calls.total_ns));
        for (metric, total_ns) in kinds.chain([(MAKESPAN, sample.makespan_ns)]) {
            let key = SeriesKey::new(&sample.workload, &sample.state, metric);
            let shares = self.shares.entry((key, sample.arm.clone())).or_default();
            shares.insert(at, total_ns as f64 / pass_ns);
        }
    }
}

impl Table {
    /// Collects measured values. It leaves out passes of `void` epochs, and busy passes unless `also_busy`. With busy
    /// passes, comparisons are widened by what other processes can have changed, and the figure of every pass is a mean: the
    /// waiting of a pass bounds what it added to the sum of the calls, and not what it added to their median.
    pub fn of(samples: &[Sample], void: &BTreeSet<u32>, also_busy: bool) -> Self {
        let mut table = Self(BTreeMap::new(), also_busy.then(Waits::default));
        let measured = samples.iter();
        let measured = measured.filter(|sample| sample.is_measured(also_busy) && !void.contains(&sample.epoch));
        for sample in measured {
            let mut put = |metric: &str, value: f64| {
                let key = SeriesKey::new(&sample.workload, &sample.state, metric);
                let arms = table.0.entry(key).or_default();
                let series = arms.entry(sample.arm.clone()).or_default();
                series.insert((sample.epoch, sample.round), value);
            };
            for (kind, calls) in &sample.calls {
                put(kind, if also_busy { calls.mean_ns() } else { figure(sample, calls) });
            }
            if sample.workload.starts_with("agent/") {
                put(MAKESPAN, sample.makespan_ns as f64);
            }
            if let Some(waits) = &mut table.1 {
                waits.add(sample);
            }
        }
        table
    }

    /// The ratios of `arm` to the geometric mean of the arms `with` in a cell, and what other processes can have changed.
    /// `identical` names the two identical arms. `None` if the cell lacks an arm.
    pub fn ratios(&self, key: &SeriesKey, arm: &str, with: &[&str], identical: Option<(&str, &str)>) -> Option<Ratios> {
        let arms = self.0.get(key)?;
        let others: Option<Vec<&Series>> = with.iter().map(|name| arms.get(*name)).collect();
        let measured = log_ratios(arms.get(arm)?, &others?);
        let disturbance = match &self.1 {
            None => Disturbance::Absent,
            Some(waits) => {
                let bounds = self.bounds(waits, key, arm, with);
                let identical = identical.and_then(|(one, other)| {
                    match (with, arm == one || arm == other) {
                        // Identical arms are not widened by their own difference.
                        ([with], true) if *with == one || *with == other => Some(0.0),
                        _ => self.identical(waits, key, one, other),
                    }
                });
                match (bounds, identical) {
                    (Some((least, most)), Some(identical)) => Disturbance::Bounded { least, most, identical },
                    _ => Disturbance::Unknown,
                }
            }
        };
        Some(Ratios { measured, disturbance })
    }

    /// The logarithms of an arm's own times in a cell, and what other processes can have changed. `None` if it has none.
    pub fn times(&self, key: &SeriesKey, arm: &str) -> Option<Ratios> {
        let series = self.0.get(key)?.get(arm)?;
        let shorter = self.1.as_ref();
        let shorter = shorter.map(|waits| self.without_waiting(waits, key, arm));
        Some(Ratios {
            measured: logs(series),
            disturbance: match shorter {
                None => Disturbance::Absent,
                Some(None) => Disturbance::Unknown,
                Some(Some((_, shorter))) => {
                    Disturbance::Bounded { least: logs(&shorter), most: logs(series), identical: 0.0 }
                }
            },
        })
    }

    /// An arm's values in a cell, and as they would be if all waiting of each pass had been in the calls of this metric.
    /// `None` if the waiting of a pass is unknown, or as long as these calls.
    ///
    /// A daemon that works beside its caller uses more processor time than the pass takes. The pass that waited least
    /// then stands for no waiting, so that such work hides none.
    fn without_waiting(&self, waits: &Waits, key: &SeriesKey, arm: &str) -> Option<(&Series, Series)> {
        let series = self.0.get(key)?.get(arm)?;
        let place = (key.workload.clone(), key.state.clone(), arm.to_owned());
        let lengthened = waits.lengthened.get(&place)?;
        let shares = waits.shares.get(&(key.clone(), arm.to_owned()))?;
        let least = lengthened.values().copied().fold(0.0, f64::min);
        let shorter = series.iter();
        let shorter = shorter.map(|(at, value)| {
            let waiting = 1.0 - (least - lengthened.get(at)?).exp();
            let left = 1.0 - waiting / shares.get(at)?;
            (left > 0.0).then_some((*at, value * left))
        });
        Some((series, shorter.collect::<Option<Series>>()?))
    }

    /// The log ratios without the candidate's waiting, and without that of the other arms.
    fn bounds(&self, waits: &Waits, key: &SeriesKey, arm: &str, with: &[&str]) -> Option<(Epochs, Epochs)> {
        let (candidate, shorter) = self.without_waiting(waits, key, arm)?;
        let others = with.iter();
        let others = others.map(|name| self.without_waiting(waits, key, name));
        let others: Vec<(&Series, Series)> = others.collect::<Option<_>>()?;
        let measured: Vec<&Series> = others.iter().map(|(measured, _)| *measured).collect();
        let others: Vec<&Series> = others.iter().map(|(_, shorter)| shorter).collect();
        Some((log_ratios(&shorter, &measured), log_ratios(candidate, &others)))
    }

    /// The logarithm of the largest ratio of two identical arms in an epoch of a cell, waiting taken out; at least 0.
    fn identical(&self, waits: &Waits, key: &SeriesKey, one: &str, other: &str) -> Option<f64> {
        let (_, one) = self.without_waiting(waits, key, one)?;
        let (_, other) = self.without_waiting(waits, key, other)?;
        let epochs = log_ratios(&one, &[&other]);
        let apart = epochs.iter().map(|rounds| hodges_lehmann(rounds).abs());
        apart.reduce(f64::max)
    }
}

/// The names of the baseline and of its A/A arm.
pub fn baselines(plan: &Plan) -> (String, Option<String>) {
    let aa_arm = plan.arms.iter().find(|arm| arm.same_as.is_some());
    let first = plan.arms.first().map(|arm| arm.name.clone());
    match aa_arm {
        Some(arm) => (arm.same_as.clone().unwrap_or_default(), Some(arm.name.clone())),
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
    let session_ms = workload.filter(|_| is_session).and_then(|workload| workload.session_ms);
    let of = |kind, share: f64| Margin { ratio: 1.0 + share, kind };
    let session_ns = session_ms.map(|ms| ms as f64 * 1e6);
    let session = session_ns.map(|ns| margins.session_share * ns / typical_ns.max(1.0));
    let absolute = margins.absolute_ns * calls / typical_ns.max(1.0);
    let widest = of(MarginKind::Relative, margins.relative);
    let others =
        std::iter::once(of(MarginKind::Absolute, absolute)).chain(session.map(|share| of(MarginKind::Session, share)));
    others.fold(widest, |widest, margin| if margin.ratio > widest.ratio { margin } else { widest })
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

/// Compares `arm` with the mean of the arms `with` in a cell; `None` without a common round, and in a section that only
/// counts.
pub fn compare_arms(plan: &Plan, table: &Table, key: &SeriesKey, arm: &str, with: &[&str]) -> Option<Comparison> {
    if !plan.compares(&key.workload, &key.state) {
        return None;
    }
    let (baseline, aa_arm) = baselines(plan);
    let identical = aa_arm.as_deref().map(|aa_arm| (baseline.as_str(), aa_arm));
    let ratios = table.ratios(key, arm, with, identical)?;
    let arms = table.0.get(key)?;
    let baselines = with.iter().filter_map(|name| arms.get(*name));
    let mut typical: Vec<f64> = baselines.flat_map(|baseline| baseline.values().copied()).collect();
    let typical_ns = median(&mut typical)?;
    let margin = margin(plan, key, typical_ns);
    // The A/A check decides nothing, so its looks spend no error rate.
    let is_identical = plan.arm(arm).is_some_and(|planned| planned.same_as.is_some());
    let is_check = with.len() == 1 && is_identical;
    let alpha = if is_check { 1.0 - LEVEL } else { plan.alpha(&key.workload, &key.state, ratios.measured.len()) };
    let mut compared = compare(&ratios, alpha, margin)?;
    if let Some(margin) = session_margin(plan, key, typical_ns) {
        compared.leave_open_below(margin);
    }
    Some(compared)
}

/// The margin of a session for the calls of one kind in it, which are a part of the session; `None` outside of a recorded
/// session. It decides no comparison that the margins of a call decide.
fn session_margin(plan: &Plan, key: &SeriesKey, typical_ns: f64) -> Option<Margin> {
    let workload = plan.workload(&key.workload)?;
    let session_ns = workload.session_ms? as f64 * 1e6;
    let calls = *workload.calls.get(&key.metric)? as f64;
    Some(Margin {
        ratio: 1.0 + plan.margins.session_share * session_ns / (typical_ns * calls).max(1.0),
        kind: MarginKind::Session,
    })
}

/// Compares `arm` with the baseline: with the mean of both identical arms, if there are two.
pub fn compare_with_baseline(plan: &Plan, table: &Table, key: &SeriesKey, arm: &str) -> Option<Comparison> {
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
    let Some(series) = series.map(|name| arms.get(*name)).collect::<Option<Vec<_>>>() else {
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
    let often = by_levels.into_values().filter(|ratios| ratios.len() as f64 >= fewest);
    often.filter_map(|mut ratios| Some(median(&mut ratios)?.exp())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u32 = 10;
    const CALLS: u64 = 100;

    /// Passes of `CALLS` calls of 1,000 ns in a state, in three epochs. In one pass of the first epoch, one call takes
    /// `slowest_ns`.
    fn passes(workload: &str, state: &str, slowest_ns: u64) -> Vec<Sample> {
        let pass = |epoch, round| {
            let mut times = rundir::histogram();
            times.record_n(1_000, CALLS - 1).unwrap();
            let last = match (epoch, round) {
                (0, 4) => slowest_ns,
                _ => 1_000,
            };
            times.record(last).unwrap();
            let calls = Calls::of(&times, (CALLS - 1) * 1_000 + last);
            Sample {
                epoch,
                round,
                arm: "direct".to_owned(),
                workload: workload.to_owned(),
                state: state.to_owned(),
                calls: BTreeMap::from([("append".to_owned(), calls)]),
                ..Sample::default()
            }
        };
        let rounds = (0..3).flat_map(|epoch| (0..ROUNDS).map(move |round| (epoch, round)));
        rounds.map(|(epoch, round)| pass(epoch, round)).collect()
    }

    fn values(passes: &[Sample], workload: &str, state: &str) -> Series {
        let table = Table::of(passes, &BTreeSet::new(), false);
        table.0[&SeriesKey::new(workload, state, "append")]["direct"].clone()
    }

    #[test]
    fn one_slow_call_does_not_move_a_hot_figure_and_is_in_the_tail() {
        const SLOW: u64 = 50_000_000;
        for state in ["hot", "hot-shared-cpu"] {
            let (plain, slow) = (passes("micro/append", state, 1_000), passes("micro/append", state, SLOW));
            let figures = values(&slow, "micro/append", state);
            assert_eq!(figures, values(&plain, "micro/append", state));
            assert_eq!(Tail::of(&plain, "append").unwrap().mean_ns, 0.0);
            let tail = Tail::of(&slow, "append").unwrap();
            // One call of a thousand in one epoch of three.
            let expected = (SLOW - 1_000) as f64 / (u64::from(ROUNDS) * CALLS) as f64 / 3.0;
            assert!((tail.mean_ns / expected - 1.0).abs() < 1e-9, "{tail:?}");
            assert!(tail.interval.is_some_and(|interval| interval.high > expected));
        }
    }

    #[test]
    fn the_waiting_of_a_pass_can_all_have_been_in_the_calls_of_one_kind() {
        // A tenth of a pass's time is that of `append`. The pass takes this many times its processor time.
        for (lengthened, expected) in [(1.0, Some(1.0)), (20.0 / 19.0, Some(0.5)), (1.25, None)] {
            let mut passes = passes("micro/append", "hot", 1_000);
            for pass in &mut passes {
                pass.waited_ns = 10 * pass.calls["append"].total_ns;
                pass.cpu.client_ns = (pass.waited_ns as f64 / lengthened) as u64;
            }
            let table = Table::of(&passes, &BTreeSet::new(), true);
            let key = SeriesKey::new("micro/append", "hot", "append");
            let times = table.times(&key, "direct").unwrap();
            let found = match times.disturbance {
                Disturbance::Bounded { least, .. } => Some(least[0][0].exp() / 1_000.0),
                Disturbance::Absent | Disturbance::Unknown => None,
            };
            assert_eq!(found.is_some(), expected.is_some(), "×{lengthened}");
            if let (Some(found), Some(expected)) = (found, expected) {
                assert!((found - expected).abs() < 1e-3, "×{lengthened}: {found}");
            }
        }
    }

    #[test]
    fn a_busy_run_has_the_mean_of_every_pass() {
        let slow = passes("micro/append", "hot", 1_001_000);
        let table = Table::of(&slow, &BTreeSet::new(), true);
        let figures = &table.0[&SeriesKey::new("micro/append", "hot", "append")]["direct"];
        assert_eq!((figures[&(0, 3)], figures[&(0, 4)]), (1_000.0, 11_000.0));
    }

    #[test]
    fn with_empty_caches_and_in_sessions_the_figure_is_the_mean() {
        for (workload, state) in [("micro/append", "lukewarm"), ("micro/append", "cold"), ("agent/s", "hot")] {
            let slow = passes(workload, state, 1_001_000);
            let figures = values(&slow, workload, state);
            assert_eq!((figures[&(0, 3)], figures[&(0, 4)]), (1_000.0, 11_000.0));
            assert_eq!(Tail::of(&slow, "append"), None);
        }
    }

    #[test]
    fn of_a_few_calls_the_figure_is_the_mean() {
        let mut times = rundir::histogram();
        times.record_n(1_000, MEDIAN_FROM - 2).unwrap();
        times.record(16_000).unwrap();
        let few = Calls::of(&times, (MEDIAN_FROM - 2) * 1_000 + 16_000);
        let pass = Sample {
            workload: "program/git".to_owned(),
            state: "hot".to_owned(),
            calls: BTreeMap::from([("status".to_owned(), few)]),
            ..Sample::default()
        };
        assert_eq!(figure(&pass, &few), 2_000.0);
        assert_eq!(Tail::of([&pass], "status"), None);
    }

    #[test]
    fn the_two_placements_of_a_cell_are_never_in_one_series() {
        let mut both = passes("micro/append", "hot", 1_000);
        both.extend(passes("micro/append", "hot-shared-cpu", 1_000));
        let table = Table::of(&both, &BTreeSet::new(), false);
        let states: Vec<&str> = table.0.keys().map(|key| &*key.state).collect();
        assert_eq!(states, ["hot", "hot-shared-cpu"]);
        for arms in table.0.values() {
            assert_eq!(arms["direct"].len(), 3 * ROUNDS as usize);
        }
    }
}
