//! The changes that make a comparison fail in CI.

use stats::Verdict;

use super::counts::CountTally;
use super::harm::{HarmChange, UncheckedArm};
use super::{FailureChange, RunComparison, ScoreChange};

inputs::named! {
    /// A kind of change that fails a comparison.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Gate, name {
        /// A cell is slower beyond the margin, a larger share of its passes fails, it was not measured again, a score got
        /// worse, there is new harm, or the new run did not look for harm again.
        Worse = "worse",
        /// An exact count has risen, passes fail where none did, there are more tokens or fewer right answers beyond the
        /// margin, there is new harm, or the new run did not look again.
        Counts = "count",
        /// A confirmed claim is refuted, conditional, or without evidence.
        Claims = "claim",
    }
}

/// Why the gate of counts fails where no count could rise, and what to do.
fn no_counts(compared: CountTally) -> Option<String> {
    let why = match compared {
        CountTally { exact: 1.., .. } => return None,
        CountTally { varying: 0, .. } => {
            "the runs have no counted cell of one arm, workload and cache state in common (measure both with the same suite and backends)".to_owned()
        }
        CountTally { varying, .. } => format!(
            "all {varying} common counts vary between epochs (measure workloads without background work, such as micro/stat)"
        ),
    };
    Some(format!("no exact count was compared, which is not a pass: {why}"))
}

fn failing_words(change: &FailureChange) -> String {
    let FailureChange { arm, workload, state, old, new } = change;
    format!("{arm} {workload}, {state}: {} of {} passes fail, {} of {} did", new.0, new.1, old.0, old.1)
}

impl RunComparison {
    /// Harm that the old run never did, each kind in words.
    pub fn new_harm(&self) -> impl Iterator<Item = String> {
        let new = self.harms.iter().filter(|change| change.is_worse());
        new.map(|change| {
            let (HarmChange { arm, what, .. }, (count, of)) = (change, change.new);
            format!("{arm}, {what}: {count} of {of}, 0 of {} before", change.old.1)
        })
    }

    /// What the new runs of the same plan did not check again, in words.
    pub fn not_checked_again(&self) -> impl Iterator<Item = String> {
        self.unchecked_where(|_| true)
    }

    fn unchecked_where(&self, is_wanted: fn(&UncheckedArm) -> bool) -> impl Iterator<Item = String> {
        let unchecked = self.unchecked.iter().filter(move |check| self.mixed.is_empty() && is_wanted(check));
        unchecked.map(|check| format!("{}, which is not a pass", check.words))
    }

    fn worse_scores(&self, is_wanted: fn(&ScoreChange) -> bool) -> impl Iterator<Item = String> {
        self.scores.iter().filter(move |change| change.is_worse() && is_wanted(change)).map(ScoreChange::words)
    }

    /// The changes that make a gate fail, each in words. The gate `counts` also fails if no count was compared.
    pub fn failing(&self, gate: Gate) -> Vec<String> {
        match gate {
            Gate::Worse => {
                let slower = self.with(Verdict::Worse);
                let slower = slower.map(|cell| {
                    let (place, ratio) = (cell.place(), cell.ratio);
                    format!("{place}: ×{ratio:.2} ({})", cell.times())
                });
                let failing = self.failures.iter().filter(|change| change.is_worse()).map(failing_words);
                let harm = self.new_harm().chain(self.unchecked_where(|check| !check.is_cell));
                let gone = self.gone.iter().map(|cell| format!("{cell}, which is not a pass"));
                slower.chain(failing).chain(gone).chain(self.worse_scores(|_| true)).chain(harm).collect()
            }
            Gate::Counts => {
                let risen = self.counts.iter().filter(|change| change.is_worse());
                let risen = risen.map(|change| {
                    format!(
                        "{} {}, {}: {} a call from {} to {}",
                        change.arm, change.workload, change.state, change.name, change.old, change.new
                    )
                });
                let none = no_counts(self.counts_compared);
                let newly = self.failures.iter().filter(|change| change.old.0 == 0).map(failing_words);
                let checks = self.new_harm().chain(self.not_checked_again());
                let scores = self.worse_scores(|change| !change.is_delay());
                none.into_iter().chain(risen).chain(newly).chain(scores).chain(checks).collect()
            }
            Gate::Claims => {
                let lost = self.claims.iter().filter(|change| change.is_lost());
                let lost =
                    lost.map(|change| format!("{}: {}, was {}", change.id, change.new.name(), change.old.name()));
                lost.collect()
            }
        }
    }
}
