//! Simulated runs with known truths: how often intervals and verdicts are wrong, and whether runs contradict each other.
//! Noise, epochs and rounds are those of measured runs; every seed is fixed.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::{Arm, Calls, Cpu, Load, Looks, Margins, Outcome, Plan, PlannedWorkload, Sample, Schedule, Section};

use crate::testing::normal;
use crate::{Comparison, Ratios, SeriesKey, Table, Verdict, compare, compare_with_baseline};

const EPOCHS: u32 = 8;
const ROUNDS: u32 = 6;
const CALLS: u64 = 1000;
const WORKLOAD: &str = "micro/read";

/// What other processes do to a run.
#[derive(Clone, Copy, Debug)]
enum Neighbour {
    Absent,
    /// It makes passes wait for up to 0.6 of their own time on average, one arm more than another, and slows the caches.
    Busy,
    /// It is busy in nearly half of the rounds, and one of ten of these is not noticed. The others are left out.
    Intermittent,
}

fn plan(margin: f64) -> Plan {
    let arm = |name: &str, same_as: Option<&str>| Arm {
        name: name.to_owned(),
        same_as: same_as.map(str::to_owned),
        ..Arm::default()
    };
    Plan {
        schedule: Schedule {
            sections: vec![Section {
                name: "hot".to_owned(),
                epochs: EPOCHS,
                rounds: ROUNDS,
                arms: ["direct", "direct-again", "store"].map(str::to_owned).to_vec(),
                cells: BTreeMap::from([(WORKLOAD.to_owned(), vec!["hot".to_owned()])]),
                looks: Looks::at_end(EPOCHS),
                ..Section::default()
            }],
        },
        margins: Margins { relative: margin, absolute_ns: 0.0, session_share: 0.0 },
        arms: vec![arm("direct", None), arm("direct-again", Some("direct")), arm("store", None)],
        workloads: vec![PlannedWorkload {
            name: WORKLOAD.to_owned(),
            states: vec!["hot".to_owned()],
            ..PlannedWorkload::default()
        }],
        ..Plan::default()
    }
}

/// A run whose store takes `truth` times as long as the directory.
fn samples(rng: &mut ChaCha8Rng, truth: f64, neighbour: Neighbour) -> Vec<Sample> {
    let mut samples = Vec::new();
    let arms = [("direct", 1.0), ("direct-again", 1.0), ("store", truth)];
    // How much the neighbour takes from each arm in the whole run.
    let mut taken = [0.0; 3].map(|_: f64| rng.random_range(0.0..0.6));
    taken[1] = taken[0];
    for epoch in 0..EPOCHS {
        let level = rng.random_range(-0.1..0.1);
        // The effect of a placement or a layout on disk on an arm for a whole epoch; now and then it is large.
        let of_epoch = arms.map(|_| {
            let is_rare = rng.random_range(0..20) == 0;
            normal(rng, if is_rare { 0.02 } else { 0.004 })
        });
        for round in 0..ROUNDS {
            let is_busy = match neighbour {
                Neighbour::Absent => false,
                Neighbour::Busy => true,
                Neighbour::Intermittent => rng.random_range(0..100) < 45,
            };
            let is_noticed = is_busy && (!matches!(neighbour, Neighbour::Intermittent) || rng.random_range(0..10) > 0);
            for (at, (arm, factor)) in arms.iter().enumerate() {
                let burst = if rng.random_range(0..50) == 0 { 0.3 } else { 0.0 };
                let (caches, waits) = if is_busy {
                    let hit = -rng.random_range(1e-6_f64..1.0).ln();
                    (0.1 + normal(rng, 0.02), taken[at] * hit)
                } else {
                    (0.0, 0.0)
                };
                let noise = level + of_epoch[at] + normal(rng, 0.01) + burst + caches;
                let own = 1e6 * factor * f64::exp(noise);
                let total_ns = (own * f64::exp(waits)) as u64;
                let each = total_ns / CALLS;
                samples.push(Sample {
                    epoch,
                    round,
                    arm: (*arm).to_owned(),
                    workload: WORKLOAD.to_owned(),
                    state: "hot".to_owned(),
                    outcome: Outcome::Ok,
                    outcomes: BTreeMap::from([(Outcome::Ok, CALLS)]),
                    calls: BTreeMap::from([(
                        "read".to_owned(),
                        Calls { count: CALLS, total_ns, p50_ns: each, p90_ns: each, max_ns: each },
                    )]),
                    makespan_ns: total_ns,
                    waited_ns: total_ns,
                    cpu: Cpu {
                        client_ns: (own / 2.0) as u64,
                        // The store's daemon also works beside its caller.
                        daemon_ns: (own * if at == 2 { 0.6 } else { 0.5 }) as u64,
                    },
                    load: Load { busy: is_noticed.then(|| "a neighbour".to_owned()), ..Load::default() },
                    ..Sample::default()
                });
            }
        }
    }
    samples
}

fn judged(rng: &mut ChaCha8Rng, truth: f64, margin: f64, neighbour: Neighbour) -> Comparison {
    let is_busy = matches!(neighbour, Neighbour::Busy);
    let samples = samples(rng, truth, neighbour);
    let table = Table::of(&samples, &BTreeSet::new(), is_busy);
    let key = SeriesKey::new(WORKLOAD, "hot", "read");
    compare_with_baseline(&plan(margin), &table, &key, "store").unwrap()
}

/// Whether a verdict is wrong of this truth.
fn is_wrong(verdict: Verdict, truth: f64, margin: f64) -> bool {
    let edge = 1.0 + margin;
    match verdict {
        Verdict::Worse => truth <= edge,
        Verdict::Better => truth >= 1.0 / edge,
        Verdict::Same | Verdict::BelowWhatMatters => truth > edge || truth < 1.0 / edge,
        Verdict::Undecided => false,
    }
}

#[test]
fn an_interval_of_identical_arms_excludes_1_as_rarely_as_it_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(43);
    let key = SeriesKey::new(WORKLOAD, "hot", "read");
    let mut all: Vec<Vec<f64>> = Vec::new();
    for _ in 0..25 {
        let samples = samples(&mut rng, 1.0, Neighbour::Absent);
        let table = Table::of(&samples, &BTreeSet::new(), false);
        let ratios = table.ratios(&key, "direct-again", &["direct"], None);
        all.extend(ratios.unwrap().measured);
    }
    for epochs in [3, 5, 8] {
        let runs = 4000;
        let excluded = (0..runs).filter(|_| {
            // Whole epochs, each turned around or not: the true ratio is 1, whatever the epochs hold.
            let drawn = (0..epochs).map(|_| {
                let epoch = &all[rng.random_range(0..all.len())];
                let sign = if rng.random_range(0..2) == 0 { -1.0 } else { 1.0 };
                epoch.iter().map(|ratio| sign * ratio).collect()
            });
            let ratios = Ratios::undisturbed(drawn.collect());
            let margin = crate::margin(&plan(0.05), &key, 1e3);
            let interval = compare(&ratios, 0.01, margin).unwrap().interval.unwrap();
            interval.low > 1.0 || interval.high < 1.0
        });
        let excluded = excluded.count();
        assert!(excluded * 1000 <= runs * 15, "{excluded} of {runs} with {epochs} epochs");
    }
}

#[test]
fn planted_slowdowns_are_found_or_undecided() {
    let mut rng = ChaCha8Rng::seed_from_u64(44);
    for (percent, margin, fewest) in [(2, 0.0, 70), (5, 0.01, 90), (10, 0.05, 90)] {
        let truth = 1.0 + f64::from(percent) / 100.0;
        let mut found = 0;
        for _ in 0..100 {
            let verdict = judged(&mut rng, truth, margin, Neighbour::Absent).verdict;
            assert!(!is_wrong(verdict, truth, margin), "{percent} %: {verdict:?}");
            found += usize::from(verdict == Verdict::Worse);
        }
        assert!(found >= fewest, "{percent} %: found in {found} of 100 runs");
        for _ in 0..100 {
            let verdict = judged(&mut rng, truth, margin, Neighbour::Busy).verdict;
            assert!(!is_wrong(verdict, truth, margin), "{percent} %: {verdict:?}");
        }
    }
}

#[test]
fn a_neighbour_that_slows_most_calls_of_one_arm_makes_no_verdict_wrong() {
    // The median of a pass is then lengthened by more than the pass: ×3 in six of ten calls, and ×2.2 in the sum.
    let mut rng = ChaCha8Rng::seed_from_u64(47);
    for slowed in ["store", "direct"] {
        for _ in 0..50 {
            let mut run = samples(&mut rng, 1.0, Neighbour::Absent);
            // One round of three is left alone: the bounds need a pass without waiting of a daemon that works beside its caller.
            let is_slowed = |pass: &&mut Sample| pass.arm.starts_with(slowed) && !pass.round.is_multiple_of(3);
            for pass in run.iter_mut().filter(is_slowed) {
                for calls in pass.calls.values_mut() {
                    calls.total_ns = (calls.total_ns as f64 * 2.2) as u64;
                    (calls.p50_ns, calls.p90_ns) = (calls.p50_ns * 3, calls.p90_ns * 3);
                    calls.max_ns *= 3;
                    (pass.makespan_ns, pass.waited_ns) = (calls.total_ns, calls.total_ns);
                }
            }
            let table = Table::of(&run, &BTreeSet::new(), true);
            let key = SeriesKey::new(WORKLOAD, "hot", "read");
            let found = compare_with_baseline(&plan(0.05), &table, &key, "store").unwrap();
            assert!(!is_wrong(found.verdict, 1.0, 0.05), "{slowed}: {found:?}");
        }
    }
}

#[test]
fn wrong_verdicts_are_as_rare_as_the_interval_says() {
    let mut rng = ChaCha8Rng::seed_from_u64(45);
    for neighbour in [Neighbour::Absent, Neighbour::Intermittent, Neighbour::Busy] {
        let (mut wrong, mut runs) = (0, 0);
        // At the edges of the margin a verdict is most easily wrong.
        for truth in [0.9, 1.0 / 1.051, 1.0 / 1.049, 1.0, 1.049, 1.051, 1.1] {
            for _ in 0..200 {
                let verdict = judged(&mut rng, truth, 0.05, neighbour).verdict;
                wrong += usize::from(is_wrong(verdict, truth, 0.05));
                runs += 1;
            }
        }
        assert!(wrong * 1000 <= runs * 15, "{wrong} of {runs}, {neighbour:?}");
    }
}

#[test]
fn quiet_and_busy_runs_contradict_each_other_nowhere() {
    let mut rng = ChaCha8Rng::seed_from_u64(46);
    let (mut quiet, mut intermittent, mut busy) = (0, 0, 0);
    let truths = [0.2, 0.47, 0.6, 0.8, 0.95, 1.0, 1.05, 1.1, 1.5, 2.0, 2.8, 4.0, 5.5, 6.0];
    for truth in truths {
        for _ in 0..30 {
            let runs = [Neighbour::Absent, Neighbour::Absent, Neighbour::Intermittent, Neighbour::Busy];
            let runs = runs.map(|neighbour| judged(&mut rng, truth, 0.05, neighbour).verdict);
            for (at, one) in runs.iter().enumerate() {
                for other in &runs[at + 1..] {
                    assert!(!one.contradicts(*other), "×{truth}: {one:?}, {other:?}");
                }
            }
            let is_decided = |at: usize| usize::from(runs[at] != Verdict::Undecided);
            quiet += is_decided(0);
            intermittent += is_decided(0) * is_decided(2);
            busy += is_decided(0) * is_decided(3);
        }
    }
    assert!(intermittent * 10 >= quiet * 8, "{intermittent} verdicts beside an intermittent neighbour, of {quiet}");
    assert!(busy * 10 >= quiet * 6, "{busy} verdicts beside a busy neighbour, of {quiet}");
}
