//! The two Python daemons of `backends/external`, which `make peers` installs the packages for.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{
    Scratch, Succeeds, can_mount, conform, ctxbench, is_root, lines, measure, mounts_under, stderr,
    stdout,
};

/// Each with the package that it needs.
const DAEMONS: [(&str, &str); 2] = [
    ("python-passthrough", "mfusepy"),
    ("python-async", "pyfuse3"),
];

/// The daemons that can run here. `CTXBENCH_REQUIRE_PYTHON`, set in CI, makes a missing one a failure.
fn daemons() -> Vec<&'static str> {
    if !can_mount() || !is_root() {
        return Vec::new();
    }
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers/bin/ctxbench-python");
    let is_there = |package: &str| {
        let output = Command::new(&python)
            .args(["-c", &format!("import {package}")])
            .output();
        output.is_ok_and(|output| output.status.success())
    };
    let mut found = Vec::new();
    for (daemon, package) in DAEMONS {
        if is_there(package) {
            found.push(daemon);
            continue;
        }
        assert!(
            std::env::var_os("CTXBENCH_REQUIRE_PYTHON").is_none(),
            "{} cannot import {package}: make peers",
            python.display()
        );
        eprintln!(
            "SKIPPED: {daemon}: {} cannot import {package}: make peers",
            python.display()
        );
    }
    found
}

#[test]
fn what_is_written_through_a_python_daemon_is_read_back() {
    for daemon in daemons() {
        let scratch = Scratch::new();
        // A pass compares every byte with the model, and ends as `ok` only if they are equal.
        let line = "--workload agent/vsm-cycle --workload micro/write-1k --state lukewarm \
                    --no-probes --budget 1 --epochs 3 --rounds 1 --backend";
        let (results, mut run) = measure(&scratch, line);
        run.arg(daemon).succeeds();
        let mut own = lines(&results, "samples.jsonl");
        own.retain(|own| own["arm"] == daemon);
        assert!(!own.is_empty(), "no pass of {daemon}");
        for sample in own {
            assert_eq!(sample["outcome"], "ok", "{sample}");
        }
        assert!(mounts_under(scratch.path()).is_empty());
    }
}

#[test]
fn a_python_daemon_conforms_but_for_what_its_library_lacks() {
    for daemon in daemons() {
        let table = stdout(&conform([daemon]));
        let failing: Vec<&str> = table
            .lines()
            .filter(|line| line.contains("FAILS"))
            .collect();
        let known = [
            "`O_TMPFILE`",
            "`SEEK_DATA`",
            // libfuse's high-level interface has paths, not inodes.
            "a directory removed while open",
            // pyfuse3 has no handler for it.
            "fallocate",
        ];
        for line in &failing {
            assert!(known.iter().any(|name| line.contains(name)), "{line}");
        }
        let works = table
            .lines()
            .filter(|line| line.trim_end().ends_with("works"));
        assert!(works.count() > 30, "{table}");
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
        let run = fs::read_dir(scratch.path())
            .unwrap()
            .next()
            .unwrap()
            .unwrap();
        let outcomes = fs::read_to_string(run.path().join("fault-outcomes.jsonl")).unwrap();
        let outcome: serde_json::Value = serde_json::from_str(outcomes.trim()).unwrap();
        assert_eq!(outcome["status"], "ran", "{outcome}");
        let seen = outcome["seen"].as_array().unwrap();
        assert!(!seen.is_empty(), "{outcome}");
        for call in seen {
            // ENOTCONN, or ECONNABORTED for a call under way.
            assert!(matches!(call["errno"].as_u64(), Some(107 | 103)), "{call}");
        }
        assert!(
            outcome["longest_call_ms"].as_u64().unwrap() < 5000,
            "{outcome}"
        );
        assert_eq!(outcome["audits"]["killed-daemon"]["lost"], 0, "{outcome}");
    }
}
