//! The costs of a cell's timed calls: time by layer, requests, processor time, memory.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use rundir::{CellEpoch, DaemonCounters, ExactCounts, Sample, cache_state};
use stats::{Interval, LEVEL, pool};

use super::groups::{Group, Groups};

/// The costs of the timed calls of an arm in a cell, per call.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Cost {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The arm.
    pub arm: String,
    /// The caller's wait, in nanoseconds.
    pub service_ns: f64,
    /// Time in the store, in nanoseconds.
    pub store_ns: f64,
    /// Time in our front end, without the store, in nanoseconds.
    pub front_end_ns: f64,
    /// The remaining time, in nanoseconds: system calls, kernel, request queue, wake-ups, fuser.
    pub kernel_and_queue_ns: f64,
    /// Requests that reached the daemon, per call.
    pub requests: f64,
    /// System calls of the caller, per call.
    pub system_calls: f64,
    /// Bytes that caller and daemon wrote to disk, per call.
    pub disk_written_bytes: f64,
    /// Passes that were counted.
    pub counted_passes: u64,
    /// Processor time of the caller per call in nanoseconds, kernel included: the mean over timed passes.
    pub client_cpu_ns: f64,
    /// Processor time of the daemon per call in nanoseconds: the mean over timed passes.
    pub daemon_cpu_ns: f64,
    /// The daemon's peak of resident memory, in bytes.
    pub daemon_peak_bytes: u64,
    /// From each start of the daemon to a usable mount, in nanoseconds.
    /// In a cold cell these are the starts on existing files, else the start on an empty workspace.
    pub ready_ns: Vec<u64>,
    /// The store's own counters, per call.
    pub store_counts: BTreeMap<String, f64>,
    /// The requests that a caller waited for, by descending total time.
    pub opcodes: Vec<OpcodeCost>,
}

/// The cost of the requests of one opcode.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct OpcodeCost {
    /// The FUSE opcode.
    pub opcode: String,
    /// Number of requests, per call.
    pub requests: f64,
    /// The mean time of a request in our front end, in nanoseconds.
    pub front_end_ns: f64,
    /// The mean time of a request in the store, in nanoseconds.
    pub store_ns: f64,
}

fn opcodes(daemon: &DaemonCounters, calls: u64) -> Vec<OpcodeCost> {
    let mut waited: Vec<_> = daemon.waited().collect();
    waited.sort_by_key(|(_, count)| std::cmp::Reverse(count.handling_ns));
    let each = |ns: u64, count: u64| ns as f64 / count as f64;
    let costs = waited.into_iter().filter(|(_, count)| count.count > 0).map(|(opcode, count)| OpcodeCost {
        opcode: opcode.to_owned(),
        requests: each(count.count, calls),
        front_end_ns: each(count.handling_ns.saturating_sub(count.store_ns), count.count),
        store_ns: each(count.store_ns, count.count),
    });
    costs.collect()
}

/// From a daemon's start to a usable mount, in one cell of one arm.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ready {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The arm.
    pub arm: String,
    /// The geometric mean over epochs, in nanoseconds.
    pub typical_ns: f64,
    /// Its 99 % interval over epochs.
    pub interval: Option<Interval>,
}

pub(super) fn ready(groups: &Groups<'_>) -> Vec<Ready> {
    let found = groups.all().filter_map(|group| {
        let epochs = group.cells.iter().map(|cell| {
            let starts = starts(cell).iter().filter(|ns| **ns > 0);
            starts.map(|ns| (*ns as f64).ln()).collect()
        });
        let pooled = pool(&epochs.collect::<Vec<_>>())?;
        Some(Ready {
            workload: group.workload.name.clone(),
            state: group.state.to_owned(),
            arm: group.arm.name.clone(),
            typical_ns: pooled.mean.exp(),
            interval: pooled.interval(1.0 - LEVEL).map(|logs| logs.map(f64::exp)),
        })
    });
    found.collect()
}

/// The starts of a cell's daemon that belong to its cache state. A cold cell's first start is on an empty
/// workspace.
fn starts(cell: &CellEpoch) -> &[u64] {
    let first = usize::from(cache_state(&cell.state) == "cold");
    cell.ready_ns.get(first..).unwrap_or_default()
}

pub(super) fn costs(groups: &Groups<'_>) -> Vec<Cost> {
    groups.all().filter_map(cost).collect()
}

fn cost(group: &Group<'_>) -> Option<Cost> {
    let cells = &group.cells;
    let passes = group.passes.iter().filter(|pass| pass.is_measured(true));
    let passes: Vec<&&Sample> = passes.collect();
    let mut counted = ExactCounts::default();
    for cell in cells {
        counted.add(&cell.counted);
    }
    let timed: u64 = passes.iter().flat_map(|pass| pass.outcomes.values()).sum();
    if counted.calls == 0 || timed == 0 {
        return None;
    }
    let calls = counted.calls as f64;
    let daemon = counted.daemon.clone().unwrap_or_default();
    let service_ns = counted.waited_ns as f64 / calls;
    let handling_ns = daemon.handling_ns() as f64 / calls;
    let store_ns = daemon.store_ns() as f64 / calls;
    let mean = |of: fn(&Sample) -> u64| passes.iter().map(|pass| of(pass)).sum::<u64>() as f64 / timed as f64;
    let counts = daemon.store.iter();
    Some(Cost {
        workload: group.workload.name.clone(),
        state: group.state.to_owned(),
        arm: group.arm.name.clone(),
        service_ns,
        store_ns,
        front_end_ns: handling_ns - store_ns,
        kernel_and_queue_ns: service_ns - handling_ns,
        requests: daemon.requests() as f64 / calls,
        system_calls: counted.system_calls as f64 / calls,
        disk_written_bytes: counted.disk_written_bytes as f64 / calls,
        counted_passes: counted.passes,
        client_cpu_ns: mean(|pass| pass.cpu.client_ns),
        daemon_cpu_ns: mean(|pass| pass.cpu.daemon_ns),
        daemon_peak_bytes: cells.iter().map(|cell| cell.memory.peak).max().unwrap_or(0),
        ready_ns: cells.iter().flat_map(|cell| starts(cell).to_vec()).collect(),
        store_counts: counts.map(|(name, count)| (name.clone(), *count as f64 / calls)).collect(),
        opcodes: opcodes(&daemon, counted.calls),
    })
}
