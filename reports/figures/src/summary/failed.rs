//! The passes of an arm that did not end well: their number, share and bound.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use rundir::{Outcome, Sample};

/// Passes that did not end well, among those that were tried. Warm-up passes are among both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FailedPasses {
    /// Passes that were tried: all but skipped ones.
    pub tried: u64,
    /// Failed passes by outcome.
    pub failed: BTreeMap<Outcome, u64>,
}

impl FailedPasses {
    /// Counts passes.
    pub fn of<'a>(passes: impl Iterator<Item = &'a Sample>) -> Self {
        let mut all = Self::default();
        for pass in passes.filter(|pass| pass.outcome != Outcome::Skipped) {
            all.tried += 1;
            if pass.outcome != Outcome::Ok {
                *all.failed.entry(pass.outcome).or_default() += 1;
            }
        }
        all
    }

    /// Adds other passes.
    pub fn add(&mut self, other: &Self) {
        self.tried += other.tried;
        for (outcome, count) in &other.failed {
            *self.failed.entry(*outcome).or_default() += count;
        }
    }

    /// The number of failed passes.
    pub fn count(&self) -> u64 {
        self.failed.values().sum()
    }

    /// Failed passes for a reason of the arm, and not of the harness.
    pub fn of_arm(&self) -> u64 {
        self.count() - self.of_harness()
    }

    /// Passes in which the harness failed, or could not prove what it measured.
    pub fn of_harness(&self) -> u64 {
        self.failed.get(&Outcome::Infra).copied().unwrap_or(0)
    }

    /// The upper 95 % bound of the share of failed passes, between 0 and 1. The pass is the unit, because the calls of a
    /// pass fail together.
    pub fn bound(&self) -> f64 {
        stats::failure_bound(self.count(), self.tried)
    }

    /// The number, the outcomes, the share and its bound.
    pub fn words(&self) -> String {
        let outcomes = self.failed.iter();
        let outcomes: Vec<String> = outcomes.map(|(outcome, count)| format!("{count} {outcome}")).collect();
        let share = 100.0 * self.count() as f64 / self.tried.max(1) as f64;
        let seen = if outcomes.is_empty() { String::new() } else { format!("{}: {share:.1} %, ", outcomes.join(", ")) };
        format!("{} of {} passes failed ({seen}≤ {:.1} %)", self.count(), self.tried, 100.0 * self.bound())
    }

    /// The words in brackets after a time, if a pass failed: the time is of the other passes only.
    pub fn caveat(&self) -> String {
        match self.count() {
            0 => String::new(),
            _ => format!(" ({})", self.words()),
        }
    }
}
