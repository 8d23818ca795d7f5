//! Runs with several hosts on the same files: note handover, concurrent writers, sync.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{
    Scratch, Succeeds, as_root, has, lines, measure, mountable, mounts_under, no_process_of, rooted, run, stalling,
    stderr, stdout, text_of,
};
use serde_json::Value;

const ESSAY: &str =
    "A few calls only, to see that two hosts are mounted, are timed, are compared, and are taken down again.";

/// Writes a workload file with the given table.
fn workload(scratch: &Scratch, name: &str, table: &str) -> PathBuf {
    let file = scratch.path().join(format!("{name}.toml"));
    let head = format!("name = 'agent/{name}'\nessay = '{ESSAY}'\nstates = ['hot']\n");
    fs::write(&file, format!("{head}{table}")).unwrap();
    file
}

/// Runs workloads over backends. Returns the run directory.
fn play(scratch: &Scratch, workloads: &[&Path], backends: &[&str], timeout: &str) -> (PathBuf, Output) {
    let line = "--seed 7 --no-probes --budget 60 --epochs 3 --rounds 1 --policy none";
    let (out, mut command) = measure(scratch, line);
    command.args(["--call-timeout", timeout]);
    for workload in workloads {
        command.arg("--workload").arg(workload);
    }
    for backend in backends {
        command.args(["--backend", backend]);
    }
    let output = command.succeeds();
    assert!(mounts_under(scratch.path()).is_empty());
    (out, output)
}

fn samples(out: &Path) -> Vec<Value> {
    lines(out, "samples.jsonl")
}

fn sample<'a>(samples: &'a [Value], arm: &str, workload: &str) -> &'a Value {
    let mut all = samples.iter();
    let found = all.find(|s| s["arm"] == arm && s["workload"] == format!("agent/{workload}"));
    found.unwrap_or_else(|| panic!("{arm} has not played {workload}"))
}

#[test]
fn a_run_measures_note_handover_and_sync_to_the_bucket() {
    let Some(scratch) = mountable() else { return };
    let notes = "[handoff]\nnotes = 2\nbytes = 200\npause_ms = 300\nseed = 1\n";
    let dirty = "[syncing]\nfiles = 10\nbytes = 1024\ntimes = 1\nseed = 1\n";
    let three = "[handoff]\nnotes = 2\nbytes = 200\npause_ms = 300\nhosts = 3\nseed = 1\n";
    let files =
        [("notes", notes), ("dirty", dirty), ("notes-3", three)].map(|(name, table)| workload(&scratch, name, table));
    let workloads: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let arms = ["sqlite", "s3-embedded", "s3-close-embedded"];
    let (out, output) = play(&scratch, &workloads, &arms, "20");
    let samples = samples(&out);
    for sample in &samples {
        assert_eq!(sample["outcome"], "ok", "{sample}{}", stderr(&output));
    }

    let delay = |arm: &str| {
        let calls = &sample(&samples, arm, "notes")["calls"]["handoff"];
        assert_eq!(calls["count"], 2, "{arm}");
        let of_three = &sample(&samples, arm, "notes-3")["calls"]["handoff"];
        assert_eq!(of_three["count"], 2, "{arm}");
        calls["p50_ns"].as_u64().unwrap()
    };
    // By default a host polls every second.
    assert!(delay("s3-close-embedded") < delay("s3-embedded"));

    for arm in ["direct", "sqlite", "s3-embedded"] {
        let calls = &sample(&samples, arm, "dirty")["calls"];
        for kind in ["sync-new", "sync-overwritten"] {
            assert_eq!(calls[kind]["count"], 1, "{arm}");
        }
    }
    // A sync commits every pending change before it returns.
    let cells = lines(&out, "cells.jsonl");
    let counted = &sample(&cells, "s3-embedded", "dirty")["counted"]["daemon"]["store"];
    assert!(counted["s3_put"].as_u64().unwrap() > 0, "{counted}");

    let plan = text_of(&out, "plan.toml");
    has(&plan, &["sqlite allows one mount at a time"]);
    let parts = [
        "## Several hosts",
        // Two notes in the timed pass of each epoch.
        "| agent/notes | s3-embedded | 6 | ",
        "s3-embedded: everything is in the bucket",
        "sqlite: `fsync` of each file",
    ];
    has(&text_of(&out, "report.md"), &parts);
    for (table, column) in [("passes.csv", "lines_lost"), ("handoffs.csv", "median_ns")] {
        let text = text_of(&out, table);
        has(text.lines().next().unwrap(), &[column]);
    }
}

#[test]
fn a_run_finds_every_line_of_two_writers() {
    let Some(scratch) = mountable() else { return };
    let lines = "[two_writers]\nlines = 8\npause_ms = 150\nseed = 1\n";
    let lines = workload(&scratch, "lines", lines);
    let (out, output) = play(&scratch, &[&lines], &["s3-embedded"], "20");
    let samples = samples(&out);
    for sample in &samples {
        assert_eq!(sample["outcome"], "ok", "{sample}{}", stderr(&output));
    }
    let settled = |arm: &str, what: &str| {
        let settled = &sample(&samples, arm, "lines")["settled"];
        assert_eq!(settled["lines"], 16, "{arm}: {settled}");
        assert_eq!(settled["agree"], true, "{arm}: {settled}");
        settled[what].as_u64().unwrap()
    };
    let plan = text_of(&out, "plan.toml");
    has(&plan, &["direct keeps its files on one machine"]);
    let [both, copies] = ["on_both", "only_in_copies"].map(|what| settled("s3-embedded", what));
    assert_eq!(both + copies, 16, "no line is lost");
    // A host that rewrites content from before the other host's commit does not append: both versions stay. How often
    // that happens is a matter of time. A copy may repeat lines that the shared file has, too.
    let conflicts = settled("s3-embedded", "conflict_copies");
    assert!(copies == 0 || conflicts > 0, "{copies} lines in {conflicts} copies");

    let report = text_of(&out, "report.md");
    let mut rows = report.lines();
    let row = rows.find(|row| row.starts_with("| agent/lines | s3-embedded | "));
    let cells: Vec<&str> = row.unwrap().split(" | ").collect();
    assert_eq!(cells[5..7], ["0"; 2], "on one host, or lost: {cells:?}");
    assert!(!report.contains("| agent/lines | direct | "));
    let table = text_of(&out, "shared_files.csv");
    has(table.lines().next().unwrap(), &["conflict_copies"]);
}

#[test]
fn a_run_records_a_stalled_second_host_as_a_hang_and_continues() {
    let Some(scratch) = as_root() else { return };
    let told = scratch.dir("told");
    let backend = scratch.path().join("stalling.toml");
    // The second host stalls once a note is on the first one.
    let condition = r#"case \"$2\" in */host2) ;; *) exit ;; esac; [ -e \"$3/../mnt/note-0000.md\" ]"#;
    fs::write(&backend, stalling("my-stalling-host", &told, condition)).unwrap();
    let notes = "[handoff]\nnotes = 2\nbytes = 200\npause_ms = 0\nseed = 1\n";
    let notes = workload(&scratch, "notes", notes);
    let begun = Instant::now();
    let (out, _) = play(&scratch, &[&notes], &[backend.to_str().unwrap(), "s3-close-embedded"], "2");
    assert!(begun.elapsed() < Duration::from_secs(400));
    let samples = samples(&out);
    let stalled = sample(&samples, "my-stalling-host", "notes");
    assert_eq!(stalled["outcome"], "hang", "{stalled}");
    let reason = stalled["reason"].as_str().unwrap();
    has(reason, &["its connection was aborted"]);
    assert_eq!(sample(&samples, "s3-close-embedded", "notes")["outcome"], "ok");
    // A daemon per host and epoch, and one that was tried first.
    no_process_of(&told, 1 + 3 * 2);
}

#[test]
fn rsync_in_both_directions_loses_the_lines_of_one_of_two_writers() {
    let scratch = Scratch::new();
    if Command::new("rsync").arg("--version").output().is_err() {
        eprintln!("SKIPPED: rsync is not installed");
        return;
    }
    let lines = "[two_writers]\nlines = 6\npause_ms = 0\nseed = 1\n";
    let lines = workload(&scratch, "lines", lines);
    let (out, output) = play(&scratch, &[&lines, Path::new("program/rsync-few")], &["rsync"], "10");
    let samples = samples(&out);
    for sample in &samples {
        assert_eq!(sample["outcome"], "ok", "{sample}{}", stderr(&output));
    }
    let settled = &sample(&samples, "rsync", "lines")["settled"];
    let counts = ["lines", "on_both", "lost", "conflict_copies"].map(|name| settled[name].as_u64().unwrap());
    // One host's file replaces the other's, and no copy of it stays.
    assert_eq!((counts, &settled["agree"]), ([12, 6, 6, 0], &Value::Bool(true)), "{settled}");
    let mut copies = samples.iter().filter(|sample| sample["workload"] == "program/rsync-few");
    assert!(copies.any(|sample| sample["arm"] == "direct" && sample["calls"]["mirror"]["count"] == 1));
    // No run waits for a schedule.
    let other = Scratch::new();
    let notes = workload(&other, "notes", "[handoff]\nnotes = 1\nbytes = 200\npause_ms = 0\nseed = 1\n");
    let (_, mut command) = measure(&other, "--no-probes --policy none --backend rsync");
    let refused = command.arg("--workload").arg(notes).output().unwrap();
    has(&stderr(&refused), &["rsync copies on a schedule, which no run waits for"]);
    // It is no candidate of any policy.
    let decided = run(["decide", out.to_str().unwrap(), "--policy", "cron-controller"]);
    assert!(!stdout(&decided).contains("rsync"), "{}", stdout(&decided));
}

#[test]
fn two_hosts_of_a_bind_mount_share_one_directory() {
    let Some(scratch) = rooted() else { return };
    let lines = "[two_writers]\nlines = 3\npause_ms = 0\nseed = 1\n";
    let lines = workload(&scratch, "lines", lines);
    let (out, _) = play(&scratch, &[&lines], &["bind"], "10");
    let samples = samples(&out);
    let settled = &sample(&samples, "bind", "lines")["settled"];
    assert_eq!(settled["on_both"], 6, "{settled}");
    assert_eq!(settled["agree"], true, "{settled}");
}
