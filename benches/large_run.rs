//! A run directory of a large run, for the benchmark of reports and for the test of their limits.

use std::collections::BTreeMap;
use std::path::Path;

use rundir::{
    Calls, CellEpoch, Environment, Epoch, Latencies, Looks, Outcome, Plan, RUN_DIRECTORY_VERSION, Sample, Writer,
    histogram,
};

const WORKLOADS: u32 = 25;
const EPOCHS: u32 = 8;
const ROUNDS: u32 = 20;
const CALLS: u64 = 50;

/// A run directory with a million calls: 25 cells of five arms, eight epochs of 20 rounds, 50 calls in a pass.
pub fn million_calls(dir: &Path) -> u64 {
    let mut plan: Plan = toml::from_str(include_str!("../harness/runner/src/testing/plan.toml")).unwrap();
    let environment: Environment =
        serde_json::from_str(include_str!("../harness/runner/src/testing/env.json")).unwrap();
    let section = &mut plan.schedule.sections[0];
    section.epochs = EPOCHS;
    section.looks = Looks::at_end(EPOCHS);
    let mut workload = plan.workloads[0].clone();
    workload.states = vec!["hot".to_owned()];
    let kind = workload.calls.keys().next().unwrap().clone();
    workload.calls = BTreeMap::from([(kind.clone(), CALLS)]);
    plan.workloads = (0..WORKLOADS)
        .map(|number| {
            let mut copy = workload.clone();
            copy.name = format!("micro/cell-{number}");
            copy
        })
        .collect();
    let cells = plan.workloads.iter();
    section.cells = cells.map(|workload| (workload.name.clone(), workload.states.clone())).collect();
    plan.skipped.clear();
    let writer = Writer::create(dir, &plan, &environment, None, &[]).unwrap();
    let mut order = 0;
    for epoch in 0..EPOCHS {
        for workload in &plan.workloads {
            for (at, arm) in plan.arms.iter().enumerate() {
                let mut times = histogram();
                for round in 0..ROUNDS {
                    // A spread of service times, without a clock.
                    let ns = |call: u64| 10_000 + 3_000 * at as u64 + 97 * (order + call * 13) % 2_000;
                    let durations: Vec<u64> = (0..CALLS).map(ns).collect();
                    durations.iter().for_each(|ns| times.record(*ns).unwrap());
                    let total = durations.iter().sum();
                    let calls = Calls {
                        count: CALLS,
                        total_ns: total,
                        p50_ns: durations[0],
                        p90_ns: durations[1],
                        max_ns: durations[2],
                    };
                    let sample = Sample {
                        v: RUN_DIRECTORY_VERSION,
                        epoch,
                        round,
                        order,
                        arm: arm.name.clone(),
                        workload: workload.name.clone(),
                        state: "hot".to_owned(),
                        outcomes: BTreeMap::from([(Outcome::Ok, CALLS)]),
                        calls: BTreeMap::from([(kind.clone(), calls)]),
                        makespan_ns: total,
                        waited_ns: total,
                        started_ms: order,
                        took_us: total / 1000,
                        ..Sample::default()
                    };
                    writer.sample(&sample).unwrap();
                    order += 1;
                }
                let cell = CellEpoch {
                    v: RUN_DIRECTORY_VERSION,
                    epoch,
                    arm: arm.name.clone(),
                    workload: workload.name.clone(),
                    state: "hot".to_owned(),
                    latencies: BTreeMap::from([(kind.clone(), Latencies::new(&times).unwrap())]),
                    took_ms: 10,
                    timed_us: 700,
                    ..CellEpoch::default()
                };
                writer.cell(&cell).unwrap();
            }
        }
        let ended = Epoch {
            v: RUN_DIRECTORY_VERSION,
            epoch,
            section: plan.schedule.sections[0].name.clone(),
            cells: WORKLOADS,
            took_ms: 30_000,
            hot_ms: 20_000,
            hot_timed_ms: 10_000,
            ..Epoch::default()
        };
        writer.epoch(&ended).unwrap();
    }
    order * CALLS
}
