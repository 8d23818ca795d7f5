//! The report's sections on two hosts with the same files, and on what a sync waits for.

use std::collections::BTreeSet;

use super::part::Part::{self, Heading, List, Table, Text};
use super::report::Report;
use figures::summary::{Cell, SYNCS, survives_power_loss};
use figures::text::{columns, count, time};

pub(super) fn hosts(report: &Report<'_>, parts: &mut Vec<Part>) {
    let summary = report.summary;
    if summary.handoffs.is_empty() && summary.shared_files.is_empty() {
        return;
    }
    parts.push(Heading(3, "Several hosts".to_owned()));
    parts.push(Text("Mounts of one backend on this machine stand for hosts. A plain directory does not take part, because no other host sees it.".to_owned()));
    let of = |time_ns: Option<u64>| time_ns.map_or("–".to_owned(), |ns| time(ns as f64));
    if !summary.handoffs.is_empty() {
        parts.push(Text("A time is measured from the start of writing a note on one host until every other host has read it and closed it. The times are of notes that were seen within the time limit of a call. The other notes are timeouts; no ratio or verdict includes a pass with a timeout.".to_owned()));
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

/// What a sync does.
const BY_FILE: &str = "`fsync` of each file, one after the other";
const TO_BUCKET: &str = "everything is in the bucket (the attribute `user.ctx.sync`)";

/// What a sync does on each arm that has made one, and the durability it gives.
pub(super) fn syncs(report: &Report<'_>, parts: &mut Vec<Part>) {
    let plan = &report.run.plan;
    let cells = &report.summary.cells;
    let is_sync = |cell: &&Cell| SYNCS.contains(&cell.metric.as_str());
    let kinds: BTreeSet<&str> = cells.iter().filter(is_sync).map(|cell| cell.metric.as_str()).collect();
    if kinds.is_empty() {
        return;
    }
    let quoted = |kinds: Vec<&str>| {
        let kinds: Vec<String> = kinds.into_iter().map(|kind| format!("`{kind}`")).collect();
        kinds.join(", ")
    };
    parts.push(Text(format!(
        "Calls that make files durable ({}) give different durability on different arms. If a sync of an arm survives no power loss, its time shows what the calls cost without durability, and it gets no verdict \"better\" or \"same\". Where `fsync` makes all earlier calls durable, the first `fsync` covers the files that are synced after it. On {} each file is synced by itself; its equal would be one `syncfs`.",
        quoted(kinds.into_iter().collect()),
        report.summary.baseline
    )));
    let arms = plan.arms.iter().filter_map(|arm| {
        let own = cells.iter().filter(is_sync).filter(|cell| cell.arm == arm.name);
        let own: BTreeSet<&str> = own.map(|cell| cell.metric.as_str()).collect();
        let (to_bucket, by_file): (Vec<&str>, Vec<&str>) =
            own.into_iter().partition(|kind| arm.backend.has_bucket && kind.starts_with("sync-"));
        let how = match (by_file.is_empty(), to_bucket.is_empty()) {
            (true, true) => return None,
            (false, true) => BY_FILE.to_owned(),
            (true, false) => TO_BUCKET.to_owned(),
            (false, false) => format!("{BY_FILE}; with {} {TO_BUCKET}", quoted(to_bucket)),
        };
        let is_weaker = survives_power_loss(plan, &report.summary.baseline) && !survives_power_loss(plan, &arm.name);
        let weak = if is_weaker { "; no sync survives a power loss" } else { "" };
        Some(format!("{}: {how}; {}{weak}", arm.name, arm.backend.durability))
    });
    parts.push(List(arms.collect()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::markdown::markdown;
    use crate::render::testing::parts;
    use figures::testing;
    use rundir::faults::POWER_LOSS;
    use rundir::{Run, SettledLines};
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
        for sample in run.samples.iter_mut().filter(|s| s.workload != "micro/read") {
            sample.settled = Some(SettledLines {
                lines: 50,
                on_both: 48,
                lost: 2,
                conflict_copies: 7,
                agree: true,
                ..SettledLines::default()
            });
        }
        let text = page(&run);
        for row in [
            "| micro/read | sqlite | 2,400 | 0 | – | – |",
            "| agent/session | sqlite | 1,400 | 1,344 | 0 | 0 | 56 | 196 | 28 of 28 |",
        ] {
            assert!(text.contains(row), "{row} is not in {text}");
        }
        assert!(!text.contains("make files durable"), "{text}");
    }

    #[test]
    fn the_arms_that_made_syncs_are_listed_with_what_a_sync_survives() {
        let mut run = testing::run();
        testing::rename_calls(&mut run, "read", "sync-new");
        // An arm that has no such cell, as one without files.
        run.plan.arms.push(testing::arm("tools-sql", None));
        for arm in run.plan.arms.iter_mut().filter(|arm| arm.backend.name == "direct") {
            arm.backend.promises.insert(POWER_LOSS.to_owned(), "fsync".to_owned());
        }
        let text = page(&run);
        for line in [
            "direct: `fsync` of each file, one after the other; what is promised\n",
            "sqlite: `fsync` of each file, one after the other; what is promised; no sync survives a power loss\n",
        ] {
            assert!(text.contains(line), "{line} is not in {text}");
        }
        assert!(!text.contains("tools-sql"), "{text}");
        run.plan.arms[2].backend.has_bucket = true;
        let text = page(&run);
        assert!(text.contains("sqlite: everything is in the bucket"), "{text}");
    }
}
