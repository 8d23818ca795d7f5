//! The two Python daemons of `backends/external`, which `make peers` installs the packages for.

use std::path::Path;
use std::process::Command;

use crate::common::{
    Scratch, Succeeds, as_root, conform, ctxbench, entry_of, installed, json_of, lines, measure, mounts_under, stderr,
    stdout,
};

/// Each with the package that it needs.
const DAEMONS: [(&str, &str); 2] = [("python-passthrough", "mfusepy"), ("python-async", "pyfuse3")];

/// The daemons that can run here. `CTXBENCH_REQUIRE_PYTHON`, set in CI, makes a missing one a failure.
fn daemons() -> Vec<&'static str> {
    if as_root().is_none() {
        return Vec::new();
    }
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/bin/ctxbench-python");
    let runnable = DAEMONS.into_iter().filter_map(|(daemon, package)| {
        let mut import = Command::new(&python);
        let output = import.args(["-c", &format!("import {package}")]).output();
        let is_there = output.is_ok_and(|output| output.status.success());
        let python = python.display();
        let missing = format!("{daemon}: {python} cannot import {package}: make peers");
        let found = is_there.then_some(daemon).ok_or(missing);
        installed(found, "CTXBENCH_REQUIRE_PYTHON")
    });
    runnable.collect()
}

#[test]
fn the_passthrough_daemon_has_at_most_150_lines() {
    let lines = include_str!("../../backends/external/python/passthrough.py").lines();
    assert!(lines.count() <= 150);
}

#[test]
fn bytes_written_through_a_python_daemon_are_read_back() {
    for daemon in daemons() {
        let scratch = Scratch::new();
        // A pass compares every byte with the model, and ends as `ok` only if they are equal.
        let line = "--workload agent/vsm-cycle --workload micro/write-1k --state lukewarm \
                    --no-probes --budget 1 --epochs 3 --rounds 1 --backend";
        let (results, mut run) = measure(&scratch, line);
        run.arg(daemon).succeeds();
        let mut passes = lines(&results, "samples.jsonl");
        passes.retain(|sample| sample["arm"] == daemon);
        assert!(!passes.is_empty(), "no pass of {daemon}");
        for sample in passes {
            assert_eq!(sample["outcome"], "ok", "{sample}");
        }
        assert!(mounts_under(scratch.path()).is_empty());
    }
}

#[test]
fn a_python_daemon_conforms_but_for_what_its_library_lacks() {
    for daemon in daemons() {
        let table = stdout(&conform([daemon]));
        let known = [
            "`O_TMPFILE`",
            "`SEEK_DATA`",
            "`RENAME_WHITEOUT`",
            // libfuse's high-level interface has paths, not inodes.
            "a directory removed while open",
            // The daemons write as root, for whom the file system below keeps the bits.
            "a changed program no longer runs as its owner",
            // pyfuse3 has no handler for it.
            "fallocate",
        ];
        for line in table.lines().filter(|line| line.contains("FAILS")) {
            assert!(known.iter().any(|name| line.contains(name)), "{line}");
        }
        let mut lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        lines.retain(|line| line.ends_with("works"));
        assert!(lines.len() > 30, "{table}");
    }
}

#[test]
fn a_killed_python_daemon_is_an_error_at_once_and_no_hang() {
    for daemon in daemons() {
        let scratch = Scratch::new();
        let output = ctxbench(["fault", "--scenario", "kill-idle", "--backend", daemon])
            .arg("--results")
            .arg(scratch.path())
            .output()
            .unwrap();
        // Its exit code says that the dead mount had to be unmounted by hand.
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let outcome = json_of(&entry_of(scratch.path()), "fault-outcomes.jsonl");
        assert_eq!(outcome["status"], "ran", "{outcome}");
        let seen = outcome["seen"].as_array().unwrap();
        assert!(!seen.is_empty(), "{outcome}");
        for call in seen {
            // ENOTCONN, or ECONNABORTED for a call under way.
            assert!(matches!(call["errno"].as_u64(), Some(107 | 103)), "{call}");
        }
        let longest = outcome["longest_call_ms"].as_u64().unwrap();
        assert!(longest < 5000, "{outcome}");
        assert_eq!(outcome["audits"]["killed-daemon"]["lost"], 0, "{outcome}");
    }
}
