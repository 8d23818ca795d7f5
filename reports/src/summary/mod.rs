//! From samples to cells: typical latencies, comparisons with the baseline, the noise floor.

mod cost;
mod ending;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};

use hdrhistogram::Histogram;
use serde::Serialize;

use cost::costs;
pub use cost::{Cost, OpcodeCost};
pub use ending::{Ending, Failing};
use ending::{endings, failing};
pub use hosts::{Handoffs, SharedFiles};
use hosts::{handoffs, shared_files};

use crate::run::{Arm, Outcome, Plan, Run, Sample};
use crate::stats::{Comparison, Interval, compare, earned, interval_of_mean, log_ratios};

/// The metric that sums all calls of a session.
pub const MAKESPAN: &str = "makespan";

/// The arm that every other daemon is held against, too: the same front end over memory.
pub const FLOOR: &str = "memory";

/// Everything that follows from a run's samples.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The arm that the others are compared with.
    pub baseline: String,
    /// Its second, identical arm, where the run has one.
    pub twin: Option<String>,
    /// By workload, state, metric and arm, in the plan's order.
    pub cells: Vec<Cell>,
    /// What identical arms differ by.
    pub noise: Noise,
    /// Where the time goes, by workload, state and arm.
    pub costs: Vec<Cost>,
    /// How blocks and calls ended, by arm.
    pub endings: Vec<Ending>,
    /// What callers waited where something ended wrong.
    pub failing: Vec<Failing>,
    /// How long it took until a second host saw what the first had written.
    pub handoffs: Vec<Handoffs>,
    /// What became of lines that two hosts added to one file.
    pub shared_files: Vec<SharedFiles>,
}

/// One metric of one arm in one workload and cache state.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// A call kind, or [`MAKESPAN`].
    pub metric: String,
    /// The arm.
    pub arm: String,
    /// Blocks that ended well.
    pub blocks: usize,
    /// Calls in them.
    pub calls: u64,
    /// The geometric mean of the blocks' medians (of the blocks' sums for [`MAKESPAN`]), in nanoseconds.
    pub typical_ns: f64,
    /// Its interval.
    pub interval: Option<Interval>,
    /// Percentiles of all calls together, in nanoseconds, where there are enough calls for them.
    pub p90_ns: Option<u64>,
    /// As `p90_ns`.
    pub p99_ns: Option<u64>,
    /// As `p90_ns`.
    pub p999_ns: Option<u64>,
    /// The longest call, in nanoseconds.
    pub max_ns: u64,
    /// Against the baseline; `None` for the baseline itself.
    pub against_baseline: Option<Comparison>,
    /// Against the [`FLOOR`] arm, for other arms with a daemon; judged by the same noise floor.
    pub against_floor: Option<Comparison>,
    /// Requests that reached the daemon for each call; `None` where nothing counts them, or where the
    /// workload makes calls of several kinds and the counters cannot tell whose they were.
    pub requests_per_call: Option<f64>,
}

impl Cell {
    /// Whether the kernel answered from its caches: no call reached the daemon.
    pub fn is_kernel_cache(&self) -> bool {
        self.requests_per_call
            .is_some_and(|requests| requests < 0.01)
    }
}

/// What identical arms differ by.
#[derive(Clone, Debug, Serialize)]
pub struct Noise {
    /// The median, over all cells, of the ratio that the twins' interval reaches; 1.05 means 5 %.
    pub median_floor: Option<f64>,
    /// The same for the noisiest cell.
    pub worst: Option<TwinCell>,
    /// Every cell's twins.
    pub twins: Vec<TwinCell>,
    /// Cells whose twins are called different when judged by the floor of the others.
    pub called_different: usize,
    /// Cells whose twins' interval does not hold 1; one in a hundred is expected.
    pub excluding_one: usize,
    /// The median, over all cells, of the ratio above 1 that a twin would have to differ by to be
    /// called different four times out of five.
    pub median_detectable: Option<f64>,
}

/// The twins in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct TwinCell {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The metric.
    pub metric: String,
    /// The ratio, at least 1, that the twins' interval reaches: the cell's noise floor.
    pub floor: f64,
    /// The twins compared, with the median floor of the other cells in the same state.
    pub judged: Comparison,
}

/// How many kinds of timed calls a workload makes.
fn kinds(plan: &Plan, workload: &str) -> usize {
    let planned = plan
        .workloads
        .iter()
        .find(|planned| planned.name == workload);
    planned.map_or(0, |planned| planned.calls.len())
}

/// The key of a cell without its arm.
type Place = (String, String, String);

/// What is collected for one cell.
#[derive(Default)]
struct Collected {
    by_round: BTreeMap<u32, f64>,
    histogram: Option<Histogram<u64>>,
    calls: u64,
    max_ns: u64,
}

/// Summarises a run.
///
/// # Errors
/// If a histogram is damaged.
pub fn summarise(run: &Run) -> Result<Summary, String> {
    let plan = &run.plan;
    let twin = plan.arms.iter().find(|arm| arm.twin_of.is_some());
    let baseline = match twin {
        Some(twin) => twin.twin_of.clone().unwrap_or_default(),
        None => plan
            .arms
            .first()
            .map(|arm| arm.name.clone())
            .unwrap_or_default(),
    };
    let twin = twin.map(|arm| arm.name.clone());
    let collected = collect(&run.samples)?;
    let noise = noise(plan, &collected, &baseline, twin.as_deref());
    let floors: BTreeMap<Place, f64> = noise
        .twins
        .iter()
        .map(|twin| {
            let place = (
                twin.workload.clone(),
                twin.state.clone(),
                twin.metric.clone(),
            );
            (place, twin.floor)
        })
        .collect();
    let costs = costs(plan, &run.samples);
    let mut cells = Vec::new();
    for place in places(plan, &collected) {
        let base = collected.get(&(place.clone(), baseline.clone()));
        for arm in &plan.arms {
            let Some(own) = collected.get(&(place.clone(), arm.name.clone())) else {
                continue;
            };
            let against = base.filter(|_| arm.name != baseline).and_then(|base| {
                let logs = log_ratios(&own.by_round, &base.by_round);
                let floor = floors.get(&place).copied().unwrap_or(1.0);
                compare(&logs, floor, seed(plan, &place, &arm.name))
            });
            let cost = costs.iter().find(|cost| {
                cost.workload == place.0 && cost.state == place.1 && cost.arm == arm.name
            });
            let of_one_kind = place.2 == MAKESPAN || kinds(plan, &place.0) == 1;
            let requests = cost.filter(|_| arm.backend.counts_requests && of_one_kind);
            let floor_arm = collected.get(&(place.clone(), FLOOR.to_owned()));
            let is_compared = arm.backend.counts_requests && arm.name != FLOOR;
            let against_floor = floor_arm.filter(|_| is_compared).and_then(|floor_arm| {
                let logs = log_ratios(&own.by_round, &floor_arm.by_round);
                let floor = floors.get(&place).copied().unwrap_or(1.0);
                compare(&logs, floor, seed(plan, &place, &arm.name))
            });
            cells.push(cell(
                plan,
                &place,
                arm,
                own,
                (against, against_floor),
                requests.map(|cost| cost.requests),
            ));
        }
    }
    let failing = failing(plan, &run.samples, &baseline);
    Ok(Summary {
        baseline,
        twin,
        cells,
        noise,
        costs,
        failing,
        handoffs: handoffs(plan, &run.samples)?,
        shared_files: shared_files(plan, &run.samples),
        endings: endings(plan, &run.samples),
    })
}

fn collect(samples: &[Sample]) -> Result<BTreeMap<(Place, String), Collected>, String> {
    let mut collected: BTreeMap<(Place, String), Collected> = BTreeMap::new();
    // Calls that failed are in no histogram; a block in which one failed is left out as a whole,
    // because what follows a failure is not what the others did.
    for sample in samples
        .iter()
        .filter(|sample| sample.outcome == Outcome::Ok)
    {
        let key = |metric: &str| {
            let place = (
                sample.workload.clone(),
                sample.state.clone(),
                metric.to_owned(),
            );
            (place, sample.arm.clone())
        };
        for (kind, calls) in &sample.calls {
            let own = collected.entry(key(kind)).or_default();
            own.by_round.insert(sample.round, calls.p50_ns as f64);
            let histogram = calls.histogram()?;
            match &mut own.histogram {
                Some(all) => all
                    .add(&histogram)
                    .map_err(|error| format!("merging histograms: {error:?}"))?,
                None => own.histogram = Some(histogram),
            }
            own.calls += calls.count;
            own.max_ns = own.max_ns.max(calls.max_ns);
        }
        if sample.workload.starts_with("agent/") {
            let own = collected.entry(key(MAKESPAN)).or_default();
            own.by_round.insert(sample.round, sample.makespan_ns as f64);
            own.calls += sample.outcomes.values().sum::<u64>();
            own.max_ns = own.max_ns.max(sample.makespan_ns);
        }
    }
    Ok(collected)
}

/// The places that have samples, in the plan's order; the makespan first.
fn places(plan: &Plan, collected: &BTreeMap<(Place, String), Collected>) -> Vec<Place> {
    let with_samples: BTreeSet<&Place> = collected.keys().map(|(place, _)| place).collect();
    let mut places = Vec::new();
    for workload in &plan.workloads {
        for state in &workload.states {
            let metrics =
                std::iter::once(MAKESPAN).chain(workload.calls.keys().map(String::as_str));
            for metric in metrics {
                let place = (workload.name.clone(), state.clone(), metric.to_owned());
                if with_samples.contains(&place) {
                    places.push(place);
                }
            }
        }
    }
    places
}

fn cell(
    plan: &Plan,
    place: &Place,
    arm: &Arm,
    own: &Collected,
    (against_baseline, against_floor): (Option<Comparison>, Option<Comparison>),
    requests_per_call: Option<f64>,
) -> Cell {
    let logs: Vec<f64> = own
        .by_round
        .values()
        .map(|value| value.max(1.0).ln())
        .collect();
    let mean = logs.iter().sum::<f64>() / logs.len().max(1) as f64;
    let percentile = |q: f64| {
        let histogram = own.histogram.as_ref().filter(|all| earned(q, all.len()))?;
        Some(histogram.value_at_quantile(q))
    };
    Cell {
        workload: place.0.clone(),
        state: place.1.clone(),
        metric: place.2.clone(),
        arm: arm.name.clone(),
        blocks: own.by_round.len(),
        calls: own.calls,
        typical_ns: mean.exp(),
        interval: interval_of_mean(&logs, seed(plan, place, &arm.name))
            .map(|logs| logs.map(f64::exp)),
        p90_ns: percentile(0.9),
        p99_ns: percentile(0.99),
        p999_ns: percentile(0.999),
        max_ns: own.max_ns,
        against_baseline,
        against_floor,
        requests_per_call,
    }
}

fn noise(
    plan: &Plan,
    collected: &BTreeMap<(Place, String), Collected>,
    baseline: &str,
    twin: Option<&str>,
) -> Noise {
    let mut found: Vec<(Place, Vec<f64>, f64)> = Vec::new();
    if let Some(twin) = twin {
        for place in places(plan, collected) {
            let arm = |name: &str| collected.get(&(place.clone(), name.to_owned()));
            let (Some(first), Some(second)) = (arm(baseline), arm(twin)) else {
                continue;
            };
            let logs = log_ratios(&second.by_round, &first.by_round);
            let interval = interval_of_mean(&logs, seed(plan, &place, twin));
            if let Some(interval) = interval {
                let reach = interval.low.abs().max(interval.high.abs());
                found.push((place, logs, reach.exp()));
            }
        }
    }
    let mut twins = Vec::new();
    for (at, (place, logs, floor)) in found.iter().enumerate() {
        // By its own floor a cell's twins can never differ; by that of the others, they can.
        let others: Vec<f64> = found
            .iter()
            .enumerate()
            .filter(|(other, (their, _, _))| *other != at && their.1 == place.1)
            .map(|(_, (_, _, floor))| *floor)
            .collect();
        let others = median(others).unwrap_or(1.0);
        let twin = twin.unwrap_or_default();
        if let Some(judged) = compare(logs, others, seed(plan, place, twin)) {
            twins.push(TwinCell {
                workload: place.0.clone(),
                state: place.1.clone(),
                metric: place.2.clone(),
                floor: *floor,
                judged,
            });
        }
    }
    let worst = twins.iter().max_by(|a, b| a.floor.total_cmp(&b.floor));
    Noise {
        median_floor: median(twins.iter().map(|twin| twin.floor).collect()),
        worst: worst.cloned(),
        excluding_one: twins
            .iter()
            .filter_map(|twin| twin.judged.interval)
            .filter(|interval| interval.low > 1.0 || interval.high < 1.0)
            .count(),
        median_detectable: median(twins.iter().filter_map(|t| t.judged.detectable).collect()),
        called_different: twins
            .iter()
            .filter(|twin| twin.judged.verdict != crate::stats::Verdict::Inconclusive)
            .count(),
        twins,
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// A seed of its own for every cell, so that the page does not depend on what else is on it.
fn seed(plan: &Plan, place: &Place, arm: &str) -> u64 {
    let parts = [&place.0, &place.1, &place.2, arm];
    let bytes = parts.into_iter().flat_map(|part| part.bytes().chain([0]));
    bytes.fold(plan.seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Verdict;
    use crate::testing;

    #[test]
    fn identical_arms_are_never_called_different_in_20_seeded_runs() {
        for seed in 0..20 {
            let summary = summarise(&testing::seeded(seed)).unwrap();
            assert_eq!(summary.noise.called_different, 0, "seed {seed}");
            assert!(summary.noise.median_floor.unwrap() < 1.3, "seed {seed}");
        }
    }

    #[test]
    fn arms_that_do_differ_are_called_so_in_every_one_of_them() {
        for seed in 0..20 {
            let summary = summarise(&testing::seeded(seed)).unwrap();
            let cells = summary.cells.iter().filter(|cell| cell.arm == "sqlite");
            for cell in cells {
                let comparison = cell.against_baseline.unwrap();
                assert_eq!(comparison.verdict, Verdict::Worse, "seed {seed}, {cell:?}");
                let interval = comparison.interval.unwrap();
                assert!(interval.low < 2.2 && 1.8 < interval.high, "{comparison:?}");
            }
        }
    }

    #[test]
    fn twins_that_are_not_identical_are_found_out() {
        let mut run = testing::run();
        // Only one of the cells: the others' floor has to judge it.
        for sample in &mut run.samples {
            if sample.workload == "agent/session" {
                continue;
            }
            sample.workload = "micro/read".to_owned();
        }
        let mut slow = run.clone();
        testing::scale(&mut slow, "direct-twin", 1.6);
        for (own, slow) in run.samples.iter_mut().zip(slow.samples) {
            if own.workload == "micro/read" {
                *own = slow;
            }
        }
        let summary = summarise(&run).unwrap();
        assert_eq!(summary.noise.called_different, 1);
        let worst = summary.noise.worst.unwrap();
        assert_eq!(
            (worst.workload.as_str(), worst.judged.verdict),
            ("micro/read", Verdict::Worse)
        );
    }

    #[test]
    fn a_block_in_which_a_call_failed_is_in_no_latency() {
        let mut run = testing::run();
        for sample in run.samples.iter_mut().filter(|s| s.round > 0) {
            sample.outcome = Outcome::WrongData;
            sample.reason = Some("byte 0 is wrong".to_owned());
        }
        let summary = summarise(&run).unwrap();
        assert!(summary.cells.iter().all(|cell| cell.blocks == 1));
        let ending = &summary.endings[0];
        assert_eq!(ending.blocks[&Outcome::WrongData], 18);
        assert_eq!(ending.reasons.values().sum::<u64>(), 18);
    }

    #[test]
    fn an_arm_that_is_always_wrong_has_no_latency_but_what_was_waited_for_it() {
        let mut run = testing::run();
        for sample in run.samples.iter_mut() {
            if sample.arm == "sqlite" && sample.workload == "agent/session" {
                sample.outcome = Outcome::WrongData;
                let all: u64 = sample.outcomes.values().sum();
                sample.outcomes = BTreeMap::from([(Outcome::WrongData, 5), (Outcome::Ok, all - 5)]);
                sample.waited_ns = 1_000_000_000;
            }
        }
        let summary = summarise(&run).unwrap();
        let mut cells = summary.cells.iter();
        assert!(!cells.any(|cell| cell.arm == "sqlite" && cell.workload == "agent/session"));
        assert!(summary.cells.iter().any(|cell| cell.arm == "sqlite"));
        let [failing] = &summary.failing[..] else {
            panic!("{:?}", summary.failing);
        };
        assert_eq!((failing.blocks, failing.of_blocks), (10, 10));
        assert_eq!(failing.calls[&Outcome::WrongData], 50);
        assert!(failing.share() > 0.0 && failing.share() < 1.0);
        assert!((failing.waited_ns - 1e9).abs() < 1.0);
        assert!(failing.baseline_ns.unwrap() < 1e9);
        assert!(testing::summary().failing.is_empty());
    }

    #[test]
    fn no_failure_of_n_is_a_bound_and_not_a_zero() {
        let summary = testing::summary();
        let ending = &summary.endings[0];
        assert_eq!(ending.calls[&Outcome::Ok], 2000);
        assert_eq!(ending.failure_bound(), Some(3.0 / 2000.0));
    }

    #[test]
    fn percentiles_are_earned_by_all_calls_together() {
        let summary = testing::summary();
        let read = summary
            .cells
            .iter()
            .find(|cell| cell.metric == "read")
            .unwrap();
        assert_eq!(read.calls, 1000);
        assert!(read.p99_ns.is_some() && read.p999_ns.is_none());
    }

    #[test]
    fn the_parts_of_a_cost_add_up() {
        let summary = testing::summary();
        let cost = summary
            .costs
            .iter()
            .find(|cost| cost.arm == "sqlite")
            .unwrap();
        let sum = cost.store_ns + cost.front_end_ns + cost.kernel_and_queue_ns;
        assert!((sum / cost.service_ns - 1.0).abs() < 1e-9);
        assert!((cost.store_ns / cost.service_ns - 0.2).abs() < 0.01);
        assert_eq!(cost.requests, 2.0);
    }
}
