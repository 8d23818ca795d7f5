//! Two hosts on one memory.

use rundir::SAMPLES;
use serde::Deserialize;

use super::{Evidence, Found, run_gap};
use crate::summary::Handoffs;
use crate::text::time;

/// A figure of two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFigure {
    /// Lines that are missing from the shared file on a host: lost, on one host, or in a conflict copy.
    LinesOutside,
    /// Lines in no file.
    LostLines,
    /// The median time until the second host saw a note, in milliseconds.
    HandoffMs,
    /// Notes that the second host did not see within the call timeout.
    UnseenNotes,
}

/// Whether notes were seen, but none of them on a quiet machine. The time is then unknown; it is not infinite.
fn is_untimed(found: &Handoffs) -> bool {
    found.seen > 0 && found.median_ns.is_none()
}

impl Evidence<'_> {
    pub(super) fn hosts(&self, workload: &str, figure: HostFigure, arm: &str) -> Found {
        let mut runs = self.runs.iter();
        let found = match figure {
            HostFigure::LinesOutside | HostFigure::LostLines => {
                let found = runs.find_map(|run| run.shared_files(workload, arm));
                found.map(|found| {
                    let words = format!(
                        "of {} lines {} in the file on both hosts, {} in conflict copies, {} on one host, {} lost",
                        found.lines, found.on_both, found.only_in_copies, found.on_one, found.lost
                    );
                    let value = match figure {
                        HostFigure::LostLines => found.lost,
                        _ => found.only_in_copies + found.on_one + found.lost,
                    };
                    // Lines a pass, as runs differ in the number of passes.
                    (value as f64 / found.passes.max(1) as f64, words)
                })
            }
            HostFigure::HandoffMs | HostFigure::UnseenNotes => {
                let found = runs.find_map(|run| run.handoffs(workload, arm));
                if let Some(found) = found
                    && figure == HostFigure::HandoffMs
                    && is_untimed(found)
                {
                    let what = format!("quiet passes of {arm} in {workload}: all were disturbed");
                    return run_gap(workload, &[arm], what);
                }
                found.map(|found| match (figure, found.median_ns) {
                    (HostFigure::UnseenNotes, _) => {
                        let unseen = found.written.saturating_sub(found.seen);
                        let words = format!("{unseen} of {} notes not seen in time", found.written);
                        (unseen as f64, words)
                    }
                    (_, Some(ns)) => {
                        let words = format!("{} (median of {} notes)", time(ns as f64), found.seen);
                        (ns as f64 / 1e6, words)
                    }
                    (_, None) => {
                        let words = format!("none of {} notes was seen", found.written);
                        (f64::INFINITY, words)
                    }
                })
            }
        };
        match (found, self.left_out(workload, arm)) {
            (Some((value, words)), _) => Found::exact(value, words, &format!("{SAMPLES}: {workload}")),
            (None, Some(why)) => Found::NotOffered(why),
            (None, None) => {
                let what = format!("two hosts of {arm} in {workload}");
                run_gap(workload, &[arm], what)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_that_were_seen_on_a_busy_machine_only_have_no_time() {
        let found = |seen, median_ns| Handoffs {
            workload: "agent/handoff".to_owned(),
            arm: "s3".to_owned(),
            written: 9,
            seen,
            median_ns,
            max_ns: median_ns,
        };
        assert!(is_untimed(&found(9, None)));
        assert!(!is_untimed(&found(9, Some(7))));
        // No note was seen at all: the wait has no end.
        assert!(!is_untimed(&found(0, None)));
    }
}
