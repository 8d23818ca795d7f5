//! What makes a comparison fail in CI.

use stats::Verdict;

use super::Compared;

rundir::named! {
    /// A kind of change that fails a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Gate, name {
        /// A cell is slower beyond the margin, or a larger share of its passes fails.
        Worse = "worse",
        /// An exact count has risen.
        Counts = "count",
        /// A confirmed claim is refuted, or conditional.
        Claims = "claim",
    }
}

impl Compared {
    /// The changes that a gate fails on, each in words.
    pub fn failing(&self, gate: Gate) -> Vec<String> {
        match gate {
            Gate::Worse => {
                let slower = self.with(Verdict::Worse);
                let slower = slower.map(|cell| format!("{}: ×{:.2}", cell.place(), cell.ratio));
                let failing = self.failures.iter().filter(|own| own.is_worse());
                let failing = failing.map(|own| {
                    format!(
                        "{} {}, {}: {} of {} passes fail, {} of {} did",
                        own.arm,
                        own.workload,
                        own.state,
                        own.new.0,
                        own.new.1,
                        own.old.0,
                        own.old.1
                    )
                });
                slower.chain(failing).collect()
            }
            Gate::Counts => {
                let risen = self.counts.iter().filter(|own| own.is_worse());
                let risen = risen.map(|own| {
                    format!(
                        "{} {}, {}: {} a call from {} to {}",
                        own.arm, own.workload, own.state, own.name, own.old, own.new
                    )
                });
                risen.collect()
            }
            Gate::Claims => {
                let lost = self.claims.iter().filter(|own| own.is_lost());
                let lost = lost
                    .map(|own| format!("{}: {}, was {}", own.id, own.new.name(), own.old.name()));
                lost.collect()
            }
        }
    }
}
