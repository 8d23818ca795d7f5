//! How blocks and calls ended, and what a caller waited for calls that did not end well.

use std::collections::BTreeMap;

use serde::Serialize;

use super::median;
use crate::run::{Arm, Outcome, Plan, Sample};

/// How an arm's blocks and calls ended.
#[derive(Clone, Debug, Serialize)]
pub struct Ending {
    /// The arm.
    pub arm: String,
    /// Blocks by how they ended.
    pub blocks: BTreeMap<Outcome, u64>,
    /// Timed calls by how they ended.
    pub calls: BTreeMap<Outcome, u64>,
    /// What went wrong, each reason once, with how often.
    pub reasons: BTreeMap<String, u64>,
}

/// Blocks of one arm in one workload in which a timed call did not end well. They are in no cell: a wrong answer has
/// no latency. What the caller waited for it is told apart.
#[derive(Clone, Debug, Serialize)]
pub struct Failing {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The arm.
    pub arm: String,
    /// Such blocks.
    pub blocks: u64,
    /// All blocks of the arm here.
    pub of_blocks: u64,
    /// Timed calls of such blocks, by how they ended.
    pub calls: BTreeMap<Outcome, u64>,
    /// What the caller waited for all calls of a block, however they ended: the median, in nanoseconds.
    pub waited_ns: f64,
    /// The same for the baseline, of its blocks that ended well.
    pub baseline_ns: Option<f64>,
}

impl Failing {
    /// The share of calls that did not end well.
    pub fn share(&self) -> f64 {
        let all: u64 = self.calls.values().sum();
        let ok = self.calls.get(&Outcome::Ok).copied().unwrap_or(0);
        (all - ok) as f64 / all.max(1) as f64
    }
}

impl Ending {
    /// The most that the rate of failing calls can be, given that none of n failed: 3/n, the "rule of
    /// three" for 95 %. `None` if calls did fail, or there were none.
    pub fn failure_bound(&self) -> Option<f64> {
        let all: u64 = self.calls.values().sum();
        let ok = self.calls.get(&Outcome::Ok).copied().unwrap_or(0);
        (all > 0 && all == ok).then(|| 3.0 / all as f64)
    }
}

pub(super) fn endings(plan: &Plan, samples: &[Sample]) -> Vec<Ending> {
    let ending = |arm: &Arm| {
        let mut ending = Ending {
            arm: arm.name.clone(),
            blocks: BTreeMap::new(),
            calls: BTreeMap::new(),
            reasons: BTreeMap::new(),
        };
        for sample in samples.iter().filter(|sample| sample.arm == arm.name) {
            *ending.blocks.entry(sample.outcome).or_default() += 1;
            for (outcome, count) in &sample.outcomes {
                *ending.calls.entry(*outcome).or_default() += count;
            }
            if let Some(reason) = &sample.reason {
                let place = format!("{} {}: {reason}", sample.workload, sample.state);
                *ending.reasons.entry(place).or_default() += 1;
            }
        }
        for skipped in plan
            .skipped
            .iter()
            .filter(|skipped| skipped.arm == arm.name)
        {
            *ending.blocks.entry(Outcome::Skipped).or_default() += u64::from(plan.rounds);
            let place = format!("{} {}: {}", skipped.workload, skipped.state, skipped.reason);
            ending.reasons.insert(place, u64::from(plan.rounds));
        }
        ending
    };
    plan.arms.iter().map(ending).collect()
}

pub(super) fn failing(plan: &Plan, samples: &[Sample], baseline: &str) -> Vec<Failing> {
    let mut found = Vec::new();
    for workload in &plan.workloads {
        for state in &workload.states {
            let of_arm = |arm: &str| {
                let all = samples.iter();
                all.filter(|sample| {
                    sample.arm == arm && sample.workload == workload.name && sample.state == *state
                })
                .collect::<Vec<_>>()
            };
            let waited = |blocks: &[&Sample]| {
                median(blocks.iter().map(|block| block.waited_ns as f64).collect())
            };
            let mut sound = of_arm(baseline);
            sound.retain(|block| block.outcome == Outcome::Ok && block.waited_ns > 0);
            for arm in &plan.arms {
                let all = of_arm(&arm.name);
                let mut wrong = all.clone();
                wrong.retain(|block| {
                    block.waited_ns > 0 && block.outcomes.keys().any(|how| *how != Outcome::Ok)
                });
                let Some(waited_ns) = waited(&wrong) else {
                    continue;
                };
                let mut calls = BTreeMap::new();
                for (outcome, count) in wrong.iter().flat_map(|block| &block.outcomes) {
                    *calls.entry(*outcome).or_default() += count;
                }
                found.push(Failing {
                    workload: workload.name.clone(),
                    state: state.clone(),
                    arm: arm.name.clone(),
                    blocks: wrong.len() as u64,
                    of_blocks: all.len() as u64,
                    calls,
                    waited_ns,
                    baseline_ns: waited(&sound),
                });
            }
        }
    }
    found
}
