//! Counts the backend's own syncs and uploads, by its own counters.

use fuse::Counters;
use rundir::faults::Fact;

use super::TestBed;

/// Counters of the backend's own syncs: of its logs, and of tails, which are files next to the database.
const OWN_SYNCS: [&str; 3] = ["log_syncs", "redo_syncs", "tail_syncs"];

/// Counters of its uploads.
const PUTS: [&str; 1] = ["s3_put"];

/// Counters at one moment.
pub struct CounterSnapshot {
    daemon: u32,
    counters: Counters,
    fsyncs: u64,
}

/// The sum of the growth of these counters. `None` if the backend has no such counter.
fn grown(names: &[&str], before: &Counters, after: &Counters) -> Option<u64> {
    let grown = names.iter().filter_map(|name| {
        let now = after.store.get(*name)?;
        let then = before.store.get(*name).copied().unwrap_or(0);
        Some(now.saturating_sub(then))
    });
    let grown: Vec<u64> = grown.collect();
    (!grown.is_empty()).then(|| grown.iter().sum())
}

impl TestBed {
    /// The counters now. `None` if the backend has none.
    pub fn counted(&mut self) -> Option<CounterSnapshot> {
        let daemon = self.daemon()?;
        Some(CounterSnapshot { daemon, counters: self.counters()?, fsyncs: self.fsyncs })
    }

    /// Records the backend's own syncs and uploads since `before`, in total and per successful `fsync`.
    /// Records nothing if the daemon was replaced.
    pub fn count_syncs(&mut self, before: Option<&CounterSnapshot>) {
        let after = self.counted();
        let (Some(before), Some(after)) = (before, after) else {
            return;
        };
        if before.daemon != after.daemon {
            return;
        }
        let fsyncs = after.fsyncs - before.fsyncs;
        self.count("fsyncs", fsyncs);
        for (names, all, each) in
            [(&OWN_SYNCS[..], "own_syncs", "own_syncs_per_fsync"), (&PUTS[..], "puts", "puts_per_fsync")]
        {
            let Some(count) = grown(names, &before.counters, &after.counters) else {
                continue;
            };
            self.count(all, count);
            if fsyncs > 0 {
                self.fact(each, Fact::Number(count as f64 / fsyncs as f64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_of_log_and_tails_are_added_and_missing_counters_are_not_zero() {
        let of = |counts: &[(&str, u64)]| {
            let mut counters = Counters::default();
            for (name, count) in counts {
                counters.store.insert((*name).to_owned(), *count);
            }
            counters
        };
        let before = of(&[("log_syncs", 2), ("tail_syncs", 1)]);
        let after = of(&[("log_syncs", 7), ("tail_syncs", 2)]);
        assert_eq!(grown(&OWN_SYNCS, &before, &after), Some(6));
        assert_eq!(grown(&PUTS, &before, &after), None);
    }
}
