//! Two hosts on one memory.

use rundir::{SAMPLES, SettledLines};
use serde::Deserialize;

use super::faults::most_unseen;
use super::{ArmReading, Evidence, Gap, MeasureResult, pooled, run_command, run_gap};
use figures::summary::Handoffs;
use figures::text::{interval_words, number_of, time};

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
    /// The longest of these times, in milliseconds: so long may a note be on one host alone.
    LongestHandoffMs,
    /// Notes that the second host did not see within the call timeout.
    UnseenNotes,
}

impl HostFigure {
    /// Whether it is a time until the other host sees a note.
    pub(super) fn is_delay(self) -> bool {
        matches!(self, HostFigure::HandoffMs | HostFigure::LongestHandoffMs)
    }

    /// Whether it counts what should not happen.
    pub fn is_event(self) -> bool {
        matches!(self, HostFigure::LostLines | HostFigure::UnseenNotes)
    }

    /// What it is counted over.
    pub fn things(self) -> &'static str {
        match self {
            HostFigure::LinesOutside | HostFigure::LostLines => "lines",
            HostFigure::HandoffMs | HostFigure::LongestHandoffMs | HostFigure::UnseenNotes => "notes",
        }
    }

    /// Whether it is the longest of some times.
    pub fn is_longest(self) -> bool {
        self == HostFigure::LongestHandoffMs
    }
}

/// Whether notes were seen, but none of them on a quiet machine. The time is then unknown; it is not infinite.
fn is_untimed(found: &Handoffs) -> bool {
    found.seen > 0 && found.median_ns.is_none()
}

impl Evidence<'_> {
    pub(super) fn hosts(
        &self,
        workload: &str,
        figure: HostFigure,
        within: Option<f64>,
        arm: &str,
        as_baseline: bool,
    ) -> MeasureResult {
        let found = match figure {
            HostFigure::LinesOutside => self.lines_outside(workload, within, arm),
            // A line that one run has lost is lost, whatever the others say.
            HostFigure::LostLines => {
                let passes = self.runs.iter().flat_map(|run| run.settled(arm));
                let passes: Vec<SettledLines> =
                    passes.filter(|(of, _)| *of == workload).map(|(_, settled)| settled).collect();
                let lost: u64 = passes.iter().map(|settled| settled.lost).sum();
                let lines: u64 = passes.iter().map(|settled| settled.lines).sum();
                let of_pass = lost as f64 / passes.len().max(1) as f64;
                let what = "lines lost";
                (!passes.is_empty()).then(|| counted((lost, lines), (what, "lines"), of_pass, within, workload))
            }
            HostFigure::HandoffMs | HostFigure::LongestHandoffMs => self.handoff_time(workload, figure, within, arm),
            HostFigure::UnseenNotes => {
                let of_runs = self.runs.iter().filter_map(|run| run.handoffs(workload, arm));
                let of_runs: Vec<&Handoffs> = of_runs.collect();
                let written: u64 = of_runs.iter().map(|found| found.written).sum();
                let unseen: u64 = of_runs.iter().map(|found| found.written.saturating_sub(found.seen)).sum();
                let what = ("notes not seen in time", "notes");
                (!of_runs.is_empty()).then(|| counted((unseen, written), what, unseen as f64, within, workload))
            }
        };
        let apart = self.apart_words(workload, figure, arm);
        match (found, self.left_out(workload, arm)) {
            (Some(MeasureResult::Value(reading)), _) => MeasureResult::Value(match apart {
                // A line that is not on both hosts yet may arrive, and one in a file may still be overwritten: what was
                // counted is the best of a candidate, and the worst of its baseline.
                Some(words) => ArmReading {
                    low: if as_baseline { 0.0 } else { reading.low },
                    high: f64::INFINITY,
                    words: format!("{}; {words}", reading.words),
                    ..reading
                },
                None => reading,
            }),
            (Some(found), _) => found,
            (None, Some(why)) => MeasureResult::NotOffered(why),
            (None, None) => {
                let what = format!("two hosts of {arm} in {workload}");
                run_gap(workload, &[arm], what)
            }
        }
    }

    /// That the hosts of an arm showed different files at the end of some passes, so that no count of lines is final; `None`
    /// if all passes settled, and for notes.
    pub fn apart_words(&self, workload: &str, figure: HostFigure, arm: &str) -> Option<String> {
        if figure.things() != "lines" {
            return None;
        }
        let files = self.runs.iter().filter_map(|run| run.shared_files(workload, arm));
        let (passes, agreed) = files.fold((0, 0), |sum, found| (sum.0 + found.passes, sum.1 + found.agreed));
        let apart = passes - agreed;
        (apart > 0).then(|| format!("the hosts showed different files at the end of {apart} of {passes} passes"))
    }

    /// Lines a pass that are not in the shared file, of each run, as runs differ in the number of passes.
    fn lines_outside(&self, workload: &str, within: Option<f64>, arm: &str) -> Option<MeasureResult> {
        let of_runs = self.runs.iter().filter_map(|run| run.shared_files(workload, arm));
        let mut all = 0;
        let lines = of_runs.map(|found| {
            all += found.lines;
            let words = format!(
                "of {} lines in {}: {} in the file on both hosts, {} in conflict files, {} on one host, {} lost",
                found.lines,
                number_of(found.passes as usize, "trial"),
                found.on_both,
                found.only_in_copies,
                found.on_one,
                found.lost
            );
            let outside = found.only_in_copies + found.on_one + found.lost;
            ArmReading::exact(outside as f64 / found.passes.max(1) as f64, words, &source(workload))
        });
        let reading = pooled(lines.collect())?;
        Some(MeasureResult::Value(reading.unseen(all, within, f64::INFINITY)))
    }

    /// The median or the longest time of each run, in milliseconds.
    fn handoff_time(
        &self,
        workload: &str,
        figure: HostFigure,
        within: Option<f64>,
        arm: &str,
    ) -> Option<MeasureResult> {
        let is_longest = figure.is_longest();
        let of_runs = self.runs.iter().filter_map(|run| run.handoffs(workload, arm));
        let (untimed, timed): (Vec<&Handoffs>, Vec<&Handoffs>) = of_runs.partition(|found| is_untimed(found));
        let seen: u64 = timed.iter().map(|found| found.seen).sum();
        let times = timed.into_iter().map(|found| match if is_longest { found.max_ns } else { found.median_ns } {
            Some(ns) => {
                // The longest time is one of a note, and no estimate.
                let ends = found.median_low_ns.zip(found.median_high_ns).filter(|_| !is_longest);
                let (low, high) = ends.unwrap_or((ns, ns));
                let [figure, from, to] = [ns, low, high].map(|ns| time(ns as f64));
                let ends = interval_words(&figure, &from, &to);
                let short = format!("{figure}{ends} in {}", number_of(found.seen as usize, "note"));
                let which = if is_longest {
                    format!("longest; {} take longer", most_unseen(found.seen, "notes"))
                } else {
                    "median".to_owned()
                };
                let exact = ArmReading::exact(ns as f64 / 1e6, format!("{short} ({which})"), &source(workload));
                ArmReading { low: low as f64 / 1e6, high: high as f64 / 1e6, short, ..exact }
            }
            None => {
                let words = format!("none of {} notes was seen", found.written);
                ArmReading::exact(f64::INFINITY, words, &source(workload))
            }
        });
        match (pooled(times.collect()), untimed.is_empty()) {
            (Some(reading), _) => Some(MeasureResult::Value(reading.unseen(seen, within, f64::INFINITY))),
            (None, true) => None,
            (None, false) => {
                let what = format!("quiet passes of {arm} in {workload}");
                let command = run_command([workload], &[arm]);
                Some(MeasureResult::Missing(Gap::because(&what, "all were disturbed", command)))
            }
        }
    }

    /// More notes or lines of two hosts, for a bound that a policy asks for.
    pub fn more_of_hosts(&self, workload: &str, figure: HostFigure, asked: &str, arm: &str) -> Gap {
        let things = figure.things();
        let what = format!("enough {things} of {arm} for {asked}");
        Gap::too_few(things, what, format!("ctxbench run --epochs 9 --workload {workload} --backend {arm}"))
    }
}

/// Events that were counted among things; the figure is `value`.
fn counted(
    (events, of): (u64, u64),
    (what, things): (&str, &str),
    value: f64,
    within: Option<f64>,
    workload: &str,
) -> MeasureResult {
    let exact = |words| ArmReading::exact(value, words, &source(workload));
    MeasureResult::Value(match events {
        0 => exact(format!("0 of {of} {what} ({})", most_unseen(of, things))).unseen(of, within, 1.0),
        _ => exact(format!("{events} of {of} {what}")),
    })
}

fn source(workload: &str) -> String {
    format!("{SAMPLES}: {workload}")
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
            median_low_ns: median_ns,
            median_high_ns: median_ns,
            max_ns: median_ns,
        };
        assert!(is_untimed(&found(9, None)));
        assert!(!is_untimed(&found(9, Some(7))));
        // No note was seen at all: the wait has no end.
        assert!(!is_untimed(&found(0, None)));
    }
}
