//! A report of a large run: time and memory. Ignored by default; `make scale` runs it with the release binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rundir::{
    Calls, CellEpoch, Environment, Epoch, Latencies, Looks, Outcome, Plan, SCHEMA_VERSION, Sample,
    Writer, histogram,
};

use crate::common::{CTXBENCH, Scratch, memory_of};

const WORKLOADS: u32 = 25;
const EPOCHS: u32 = 8;
const ROUNDS: u32 = 20;
const CALLS: u64 = 50;

/// A run directory with a million calls: 25 cells of five arms, eight epochs of 20 rounds, 50 calls in a pass.
fn million_calls(dir: &Path) -> u64 {
    let mut plan: Plan =
        toml::from_str(include_str!("../../harness/src/testing/plan.toml")).unwrap();
    let environment: Environment =
        serde_json::from_str(include_str!("../../harness/src/testing/env.json")).unwrap();
    plan.schedule.epochs = EPOCHS;
    plan.schedule.looks = Looks::within(EPOCHS);
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
    plan.skipped.clear();
    let writer = Writer::create(dir, &plan, &environment, None, &[]).unwrap();
    let mut order = 0;
    for epoch in 0..EPOCHS {
        for workload in &plan.workloads {
            for (at, arm) in plan.arms.iter().enumerate() {
                let mut times = histogram();
                for round in 0..ROUNDS {
                    // A spread of service times, without a clock.
                    let ns =
                        |call: u64| 10_000 + 3_000 * at as u64 + 97 * (order + call * 13) % 2_000;
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
                        v: SCHEMA_VERSION,
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
                    v: SCHEMA_VERSION,
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
            v: SCHEMA_VERSION,
            epoch,
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

#[test]
#[ignore = "takes a release binary: make scale"]
fn a_run_of_a_million_calls_is_rendered_in_5_s_and_500_mb() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("run");
    let calls = million_calls(&dir);
    assert!(calls >= 1_000_000, "{calls}");
    let program = std::env::var_os("CTXBENCH_RELEASE").map_or(CTXBENCH.into(), PathBuf::from);
    let began = Instant::now();
    let mut report = Command::new(program)
        .args(["report", "--policy", "all"])
        .arg(&dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(memory_of(report.id(), "VmHWM:").unwrap_or(0));
        if let Some(status) = report.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let took = began.elapsed();
    assert!(status.success(), "{status}");
    let page = std::fs::metadata(dir.join("report.html")).unwrap().len();
    println!(
        "{calls} calls: {:.2} s, {} MiB, a page of {} KiB",
        took.as_secs_f64(),
        most / 1024,
        page / 1024
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(most < 500_000, "{most} KiB");
    assert!(page < 3_000_000, "{page} bytes");
}
