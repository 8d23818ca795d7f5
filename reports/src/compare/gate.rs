//! The changes that make a comparison fail in CI.

use stats::Verdict;

use super::Compared;

inputs::named! {
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
                let failing = self.failures.iter().filter(|change| change.is_worse());
                let failing = failing.map(|change| {
                    format!(
                        "{} {}, {}: {} of {} passes fail, {} of {} did",
                        change.arm,
                        change.workload,
                        change.state,
                        change.new.0,
                        change.new.1,
                        change.old.0,
                        change.old.1
                    )
                });
                slower.chain(failing).collect()
            }
            Gate::Counts => {
                let risen = self.counts.iter().filter(|change| change.is_worse());
                let risen = risen.map(|change| {
                    format!(
                        "{} {}, {}: {} a call from {} to {}",
                        change.arm,
                        change.workload,
                        change.state,
                        change.name,
                        change.old,
                        change.new
                    )
                });
                risen.collect()
            }
            Gate::Claims => {
                let lost = self.claims.iter().filter(|change| change.is_lost());
                let lost = lost.map(|change| {
                    format!(
                        "{}: {}, was {}",
                        change.id,
                        change.new.name(),
                        change.old.name()
                    )
                });
                lost.collect()
            }
        }
    }
}
