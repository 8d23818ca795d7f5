//! Two hosts on one memory.

use rundir::SAMPLES;
use serde::Deserialize;

use super::{Evidence, Found, run_gap};
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
            (Some((value, words)), _) => {
                Found::exact(value, words, &format!("{SAMPLES}: {workload}"))
            }
            (None, Some(why)) => Found::NotOffered(why),
            (None, None) => {
                let what = format!("two hosts of {arm} in {workload}");
                run_gap(workload, &[arm], what)
            }
        }
    }
}
