//! Outcomes of passes and calls, and the caller's wait for failed calls.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use rundir::{Arm, Outcome, Plan, Sample};
use stats::median;

use super::failed::FailedPasses;
use super::groups::{Group, Groups};

/// The outcomes of an arm's passes and calls.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Ending {
    /// The arm.
    pub arm: String,
    /// Passes by outcome, warm-up passes included.
    pub passes: BTreeMap<Outcome, u64>,
    /// Cells that were left out, with the reason.
    pub skipped: BTreeMap<String, String>,
    /// Timed calls by outcome.
    pub calls: BTreeMap<Outcome, u64>,
    /// The reasons of failures, with their number.
    pub reasons: BTreeMap<String, u64>,
}

/// Passes of one arm in one workload with a failed timed call. They are in no cell, because a wrong
/// answer has no latency. The caller's wait for them is reported here.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FailedCallPasses {
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// The arm.
    pub arm: String,
    /// Passes with a failed timed call.
    pub passes: u64,
    /// All passes of the arm in this workload and cache state.
    pub of_passes: u64,
    /// Timed calls of failing passes, by outcome.
    pub calls: BTreeMap<Outcome, u64>,
    /// The median wait of the caller for all calls of a failing pass, in nanoseconds.
    pub waited_ns: f64,
    /// The median wait for the baseline's successful passes, in nanoseconds.
    pub baseline_ns: Option<f64>,
}

impl FailedCallPasses {
    /// The share of failed calls.
    pub fn share(&self) -> f64 {
        let all: u64 = self.calls.values().sum();
        let ok = self.calls.get(&Outcome::Ok).copied().unwrap_or(0);
        (all - ok) as f64 / all.max(1) as f64
    }
}

impl Ending {
    /// The upper 95 % bound of the share of failed passes. `None` without passes.
    pub fn failure_bound(&self) -> Option<f64> {
        let mut failed = FailedPasses { tried: self.passes.values().sum(), failed: self.passes.clone() };
        failed.failed.remove(&Outcome::Ok);
        failed.tried -= failed.failed.remove(&Outcome::Skipped).unwrap_or(0);
        (failed.tried > 0).then(|| failed.bound())
    }
}

pub(super) fn endings(plan: &Plan, groups: &Groups<'_>) -> Vec<Ending> {
    let ending = |arm: &Arm| {
        let mut ending = Ending { arm: arm.name.clone(), ..Ending::default() };
        let of_arm = groups.all().filter(|group| group.arm.name == arm.name);
        for sample in of_arm.flat_map(|group| &group.passes) {
            *ending.passes.entry(sample.outcome).or_default() += 1;
            for (outcome, count) in &sample.outcomes {
                *ending.calls.entry(*outcome).or_default() += count;
            }
            if let Some(reason) = &sample.reason {
                let place = format!("{} {}: {reason}", sample.workload, sample.state);
                *ending.reasons.entry(place).or_default() += 1;
            }
        }
        let skipped = plan.skipped.iter();
        for skipped in skipped.filter(|skipped| skipped.arm == arm.name) {
            let cell = format!("{} {}", skipped.workload, skipped.state);
            ending.skipped.insert(cell, skipped.reason.clone());
        }
        ending
    };
    plan.arms.iter().map(ending).collect()
}

pub(super) fn failing(groups: &Groups<'_>, baseline: &str) -> Vec<FailedCallPasses> {
    let waited = |passes: &mut dyn Iterator<Item = &&Sample>| {
        let mut waits: Vec<f64> = passes.map(|pass| pass.waited_ns as f64).collect();
        median(&mut waits)
    };
    let is_sound = |pass: &&&Sample| pass.outcome == Outcome::Ok && pass.waited_ns > 0;
    let is_wrong = |pass: &&&Sample| pass.waited_ns > 0 && pass.outcomes.keys().any(|how| *how != Outcome::Ok);
    let of_group = |group: &Group<'_>| {
        let wrong = || group.passes.iter().filter(is_wrong);
        let waited_ns = waited(&mut wrong())?;
        let mut calls = BTreeMap::new();
        for (outcome, count) in wrong().flat_map(|pass| &pass.outcomes) {
            *calls.entry(*outcome).or_default() += count;
        }
        let sound = groups.of(&group.workload.name, group.state, baseline);
        Some(FailedCallPasses {
            workload: group.workload.name.clone(),
            state: group.state.to_owned(),
            arm: group.arm.name.clone(),
            passes: wrong().count() as u64,
            of_passes: group.passes.len() as u64,
            calls,
            waited_ns,
            baseline_ns: sound.and_then(|baseline| waited(&mut baseline.passes.iter().filter(is_sound))),
        })
    };
    groups.all().filter_map(of_group).collect()
}
