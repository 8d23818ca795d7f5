//! The report's sections on two hosts with the same files, and on what a sync waits for.

use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::text::{columns, count, time};
use rundir::Outcome;

pub(super) fn hosts(report: &Report<'_>, parts: &mut Vec<Part>) {
    let summary = report.summary;
    if summary.handoffs.is_empty() && summary.shared_files.is_empty() {
        return;
    }
    parts.push(Heading(3, "Several hosts".to_owned()));
    parts.push(Text("Two mounts of one backend on this machine stand for two hosts. A plain directory does not take part, because no other host sees it.".to_owned()));
    let of = |time_ns: Option<u64>| time_ns.map_or("–".to_owned(), |ns| time(ns as f64));
    if !summary.handoffs.is_empty() {
        parts.push(Text("A time is measured from the start of writing a note on one host until the other host has read it and closed it. The times are of notes that were seen within the time limit of a call. The other notes are timeouts; no ratio or verdict includes a pass with a timeout.".to_owned()));
        let rows = summary.handoffs.iter().map(|handoffs| {
            vec![
                handoffs.workload.clone(),
                handoffs.arm.clone(),
                count(handoffs.written),
                count(handoffs.seen),
                of(handoffs.median_ns),
                of(handoffs.max_ns),
            ]
        });
        let head = columns("workload | arm | notes | seen in time | median | longest");
        parts.push(Table(head, rows.collect()));
    }
    if !summary.shared_files.is_empty() {
        parts.push(Text("Two hosts add lines to one file: one thread makes all edits in turn, and no host waits until it sees the other's edit. When both have settled, the harness looks for each line in every file on both hosts. A lost line is in no file. No two edits are in progress at one moment, so the file system lost the line, and not the writers.".to_owned()));
        let rows = summary.shared_files.iter().map(|files| {
            vec![
                files.workload.clone(),
                files.arm.clone(),
                count(files.lines),
                count(files.on_both),
                count(files.only_in_copies),
                count(files.on_one),
                count(files.lost),
                count(files.conflict_copies),
                format!("{} of {}", files.agreed, files.passes),
            ]
        });
        let head = columns(
            "workload | arm | lines written | in the file on both hosts | \
             in a conflict file only | on one host only | lost | conflict files | \
             passes after which both show the same",
        );
        parts.push(Table(head, rows.collect()));
    }
}

/// The list of each arm's sync call, and the durability it gives.
pub(super) fn syncs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    let waits = plan.workloads.iter().filter(|workload| workload.calls.keys().any(|kind| kind.starts_with("sync-")));
    let waits: Vec<&str> = waits.map(|workload| workload.name.as_str()).collect();
    if waits.is_empty() {
        return;
    }
    // The other arms have no such call, or no files at all.
    let made = |arm: &str| {
        let mut passes = report.run.samples.iter().filter(|pass| pass.arm == arm && waits.contains(&&*pass.workload));
        passes.any(|pass| pass.outcome != Outcome::Skipped)
    };
    parts.push(Text("The calls `sync-new` and `sync-overwritten` give different durability on different arms: each waits for the strongest that its backend offers:".to_owned()));
    let arms = plan.arms.iter().filter(|arm| made(&arm.name)).map(|arm| {
        let how = match arm.backend.has_bucket {
            true => "everything is in the bucket (the attribute `user.ctx.sync`)",
            false => "`fsync` of each file, one after the other",
        };
        format!("{}: {how}; {}", arm.name, arm.backend.durability)
    });
    parts.push(List(arms.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::markdown::markdown;
    use crate::render::testing::parts;
    use figures::testing;
    use rundir::{Run, Settled};
    use std::collections::BTreeMap;

    fn page(run: &Run) -> String {
        let both = |report: &Report<'_>, parts: &mut Vec<Part>| {
            hosts(report, parts);
            syncs(report, parts);
        };
        markdown(&parts(run, both))
    }

    #[test]
    fn only_a_run_of_two_hosts_has_host_tables() {
        let mut run = testing::run();
        assert_eq!(page(&run).trim(), "");
        run.plan.workloads[0].calls = BTreeMap::from([("handoff".to_owned(), 10)]);
        run.plan.workloads[1].calls = BTreeMap::from([("sync-new".to_owned(), 2)]);
        for sample in run.samples.iter_mut().filter(|s| s.workload != "micro/read") {
            sample.settled = Some(Settled {
                lines: 50,
                on_both: 48,
                lost: 2,
                conflict_copies: 7,
                agree: true,
                ..Settled::default()
            });
        }
        let text = page(&run);
        for row in [
            "| micro/read | sqlite | 2,400 | 0 | – | – |",
            "| agent/session | sqlite | 1,400 | 1,344 | 0 | 0 | 56 | 196 | 28 of 28 |",
            "sqlite: `fsync` of each file, one after the other; what is promised",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
    }
}
