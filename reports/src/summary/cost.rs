//! Where the time of a cell's timed calls went, and what its daemon used.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::run::{DaemonCounters, Outcome, Plan, Sample};
use crate::stats::{Interval, interval_of_mean};

/// Where the time of the timed calls went, in nanoseconds a call.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The arm.
    pub arm: String,
    /// What the caller waited.
    pub service_ns: f64,
    /// In the store.
    pub store_ns: f64,
    /// In our front end, around the store.
    pub front_end_ns: f64,
    /// All the rest: the caller's own system calls, the kernel, the queue, waking up, fuser.
    pub kernel_and_queue_ns: f64,
    /// Requests that reached the daemon, for each call.
    pub requests: f64,
    /// Processor time of the caller, kernel included.
    pub client_cpu_ns: f64,
    /// Processor time of the daemon.
    pub daemon_cpu_ns: f64,
    /// The most memory that the daemon had resident, in bytes.
    pub daemon_peak_bytes: u64,
    /// From the start of the daemon to a usable mount, in nanoseconds, block by block. Where caches are
    /// cold it is started on the files that are there, else on nothing.
    pub ready_ns: Vec<u64>,
    /// The store's own counts, for each call.
    pub store_counts: BTreeMap<String, f64>,
    /// The requests that somebody waited for, by what took longest in all.
    pub opcodes: Vec<OpcodeCost>,
}

/// What the requests of one opcode took.
#[derive(Clone, Debug, Serialize)]
pub struct OpcodeCost {
    /// The FUSE opcode.
    pub opcode: String,
    /// How many there were, for each call.
    pub requests: f64,
    /// What one of them took in our front end, in nanoseconds.
    pub front_end_ns: f64,
    /// What one of them took in the store, in nanoseconds.
    pub store_ns: f64,
}

fn opcodes(blocks: &[&Sample], calls: u64) -> Vec<OpcodeCost> {
    let mut all = DaemonCounters::default();
    for counters in blocks.iter().filter_map(|block| block.daemon.as_ref()) {
        all.add(counters);
    }
    let mut waited: Vec<_> = all.waited().collect();
    waited.sort_by_key(|(_, count)| std::cmp::Reverse(count.handling_ns));
    let each = |ns: u64, count: u64| ns as f64 / count as f64;
    let costs = waited
        .into_iter()
        .filter(|(_, count)| count.count > 0)
        .map(|(opcode, count)| OpcodeCost {
            opcode: opcode.to_owned(),
            requests: each(count.count, calls),
            front_end_ns: each(
                count.handling_ns.saturating_sub(count.store_ns),
                count.count,
            ),
            store_ns: each(count.store_ns, count.count),
        });
    costs.collect()
}

impl Cost {
    /// The geometric mean of [`Cost::ready_ns`], and its interval where there are blocks enough; `None` where nothing has
    /// to start.
    pub fn ready(&self) -> Option<(f64, Option<Interval>)> {
        let starts = self.ready_ns.iter().filter(|ns| **ns > 0);
        let logs: Vec<f64> = starts.map(|ns| (*ns as f64).ln()).collect();
        if logs.is_empty() {
            return None;
        }
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        // Any seed does: the same blocks have the same interval.
        let interval = interval_of_mean(&logs, 0);
        Some((mean.exp(), interval.map(|logs| logs.map(f64::exp))))
    }
}

pub(super) fn costs(plan: &Plan, samples: &[Sample]) -> Vec<Cost> {
    let mut costs = Vec::new();
    for workload in &plan.workloads {
        for state in &workload.states {
            for arm in &plan.arms {
                let blocks: Vec<&Sample> = samples
                    .iter()
                    .filter(|sample| {
                        sample.workload == workload.name
                            && sample.state == *state
                            && sample.arm == arm.name
                            && sample.outcome == Outcome::Ok
                    })
                    .collect();
                if let Some(cost) = cost(&blocks) {
                    costs.push(cost);
                }
            }
        }
    }
    costs
}

fn cost(blocks: &[&Sample]) -> Option<Cost> {
    let first = blocks.first()?;
    let calls: u64 = blocks
        .iter()
        .flat_map(|block| block.outcomes.values())
        .sum();
    if calls == 0 {
        return None;
    }
    let sum = |value: &dyn Fn(&Sample) -> u64| {
        blocks.iter().map(|block| value(block)).sum::<u64>() as f64 / calls as f64
    };
    let daemon = |value: &dyn Fn(&DaemonCounters) -> u64| {
        sum(&|block| block.daemon.as_ref().map_or(0, value))
    };
    let service_ns = sum(&|block| block.makespan_ns);
    let handling_ns = daemon(&|counters| counters.handling_ns());
    let store_ns = daemon(&|counters| counters.store_ns());
    let mut store_counts: BTreeMap<String, f64> = BTreeMap::new();
    for counters in blocks.iter().filter_map(|block| block.daemon.as_ref()) {
        for (name, count) in &counters.store {
            *store_counts.entry(name.clone()).or_default() += *count as f64 / calls as f64;
        }
    }
    Some(Cost {
        workload: first.workload.clone(),
        state: first.state.clone(),
        arm: first.arm.clone(),
        service_ns,
        store_ns,
        front_end_ns: handling_ns - store_ns,
        kernel_and_queue_ns: service_ns - handling_ns,
        requests: daemon(&|counters| counters.requests()),
        client_cpu_ns: sum(&|block| block.cpu.client_ns),
        daemon_cpu_ns: sum(&|block| block.cpu.daemon_ns),
        daemon_peak_bytes: blocks
            .iter()
            .map(|block| block.memory.peak)
            .max()
            .unwrap_or(0),
        ready_ns: blocks.iter().map(|block| block.ready_ns).collect(),
        store_counts,
        opcodes: opcodes(blocks, calls),
    })
}
