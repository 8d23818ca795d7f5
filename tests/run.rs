//! Whole runs over real mounts: complete, interrupted, hung, crashed, on a machine that lacks things.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{
    CTXBENCH, Scratch, can_mount, ctxbench, is_root, mounts_under, run, stderr, stdout, wait_for,
};
use rustix::process::{Pid, Signal, kill_process};

const SUITE: &str = r#"
essay = "A few small cells, to see that everything works."
rounds = 2
backends = ["direct", "null", "memory", "sqlite"]
probes = true
[[workload]]
name = "micro/stat"
states = ["hot", "lukewarm", "cold"]
[[workload]]
name = "agent/vsm-cycle"
states = ["hot"]
"#;

fn suite(scratch: &Scratch, text: &str) -> PathBuf {
    let file = scratch.path().join("suite.toml");
    fs::write(&file, text).unwrap();
    file
}

fn arguments<'a>(suite: &'a Path, out: &'a Path, scratch: &'a Scratch) -> Vec<&'a str> {
    let text = |path: &'a Path| path.to_str().unwrap();
    vec![
        "run",
        "--suite",
        text(suite),
        "--out",
        text(out),
        "--scratch",
        text(scratch.path()),
        "--seed",
        "7",
    ]
}

fn samples(out: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn outcomes(out: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sample in samples(out) {
        *counts
            .entry(sample["outcome"].as_str().unwrap().to_owned())
            .or_insert(0) += 1;
    }
    counts
}

/// The daemons that a process has started, by pid.
fn daemons_of(parent: u32) -> Vec<Pid> {
    let mut daemons = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // pid (comm) state ppid …
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        let (state, ppid) = (fields.next(), fields.next());
        let cmdline = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if ppid == Some(&parent.to_string()) && state != Some("Z") && cmdline.contains("\0mount\0")
        {
            daemons.extend(
                entry
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .ok()
                    .and_then(Pid::from_raw),
            );
        }
    }
    daemons
}

fn nothing_is_left(scratch: &Scratch) {
    assert!(mounts_under(scratch.path()).is_empty());
    let left: Vec<_> = fs::read_dir(scratch.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("ctxbench-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_new_host_fetches_what_a_new_daemon_finds_in_its_cache() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let text = r#"
essay = "What is read cold, with the cache and without."
rounds = 1
backends = ["direct", "s3-embedded", "s3-fresh-embedded"]
[[workload]]
name = "micro/read-1k"
states = ["hot", "lukewarm", "cold"]
[[workload]]
name = "micro/list-1000-attributes"
states = ["cold"]
"#;
    let output = run(arguments(&suite(&scratch, text), &out, &scratch));
    assert!(output.status.success(), "{}", stderr(&output));
    nothing_is_left(&scratch);
    let samples = samples(&out);
    let of = |arm: &str, workload: &str, state: &str| {
        let mut all = samples.iter();
        all.find(|s| s["arm"] == arm && s["workload"] == workload && s["state"] == state)
    };
    let count = |arm: &str, workload: &str, name: &str| {
        let sample = of(arm, workload, "cold").unwrap();
        assert_eq!(sample["outcome"], "ok", "{sample}");
        sample["daemon"]["store"][name].as_u64().unwrap()
    };
    for arm in ["direct", "s3-embedded"] {
        assert!(of(arm, "micro/read-1k", "hot").is_some(), "{arm}");
    }
    for state in ["hot", "lukewarm"] {
        let played = of("s3-fresh-embedded", "micro/read-1k", state);
        assert!(played.is_none(), "{state} is no cell of its own");
    }
    assert_eq!(count("s3-embedded", "micro/read-1k", "s3_fetches"), 0);
    assert_eq!(
        count("s3-fresh-embedded", "micro/read-1k", "s3_fetches"),
        256
    );
    assert!(count("s3-fresh-embedded", "micro/read-1k", "s3_get") >= 256);
    // The listing came with the mount.
    let list = "micro/list-1000-attributes";
    assert_eq!(count("s3-fresh-embedded", list, "s3_fetches"), 0);
    let ready = |arm: &str| of(arm, list, "cold").unwrap()["ready_ns"].as_u64().unwrap();
    assert!(ready("s3-fresh-embedded") > 0);
}

#[test]
fn a_run_measures_every_cell_reports_and_decides() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let output = run(arguments(&suite(&scratch, SUITE), &out, &scratch));
    assert!(output.status.success(), "{}", stderr(&output));
    nothing_is_left(&scratch);

    // stat: 5 arms hot and lukewarm, 4 cold; vsm-cycle: 4; two rounds.
    assert_eq!(
        outcomes(&out),
        BTreeMap::from([("ok".to_owned(), 2 * (5 + 5 + 4 + 4))]),
        "{}",
        stderr(&output)
    );
    let samples = samples(&out);
    let daemon = |arm: &str, state: &str, opcode: &str| {
        let of = samples
            .iter()
            .find(|s| s["arm"] == arm && s["state"] == state && s["workload"] == "micro/stat");
        of.unwrap()["daemon"]["fuse"][opcode]["count"]
            .as_u64()
            .unwrap_or(0)
    };
    // Hot, the kernel answers by itself; lukewarm, every file is looked up once, and the directory unless
    // the kernel kept that one: it lets go of directories only after what was in them.
    assert_eq!(
        daemon("sqlite", "hot", "lookup") + daemon("sqlite", "hot", "getattr"),
        0
    );
    for arm in ["sqlite", "memory"] {
        let lookups = daemon(arm, "lukewarm", "lookup");
        assert!((256..=257).contains(&lookups), "{arm}: {lookups}");
    }
    assert!(daemon("null", "hot", "lookup") >= 512);

    let probes = fs::read_to_string(out.join("probes.jsonl")).unwrap();
    for probe in probes.lines().filter(|line| line.contains("\"tool\"")) {
        let is_well =
            probe.contains("\"outcome\":\"ok\"") || probe.contains("\"outcome\":\"skipped\"");
        assert!(is_well, "{probe}");
    }
    let faults = fs::read_to_string(out.join("faults.jsonl")).unwrap();
    let sqlite: Vec<_> = faults
        .lines()
        .filter(|line| line.contains("\"sqlite\""))
        .collect();
    assert_eq!(sqlite.len(), 4, "{faults}");
    for fault in sqlite {
        assert!(
            fault.contains("\"recovered\":true") && fault.contains("\"lost\":0"),
            "{fault}"
        );
    }

    let printed = stdout(&output);
    assert!(
        printed.contains("verdict: ") && printed.contains("report: "),
        "{printed}"
    );
    for file in [
        "report.md",
        "report.html",
        "report.json",
        "cells.csv",
        "charts/latency.svg",
    ] {
        assert!(out.join(file).is_file(), "{file}");
    }
    // A report is a function of the run's files.
    let before = fs::read(out.join("report.html")).unwrap();
    fs::remove_file(out.join("report.html")).unwrap();
    let output = run(["report".as_ref(), out.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(out.join("report.html")).unwrap() == before);

    // Two rounds carry no verdict about latency.
    let output = run(["decide".as_ref(), out.as_os_str()]);
    let printed = stdout(&output);
    assert!(matches!(output.status.code(), Some(10 | 11)), "{printed}");
    for aspect in [
        "Read latency",
        "Deployment",
        "Cron safety",
        "Token cost",
        "Complexity",
        "Tool support",
        "Observability",
    ] {
        assert!(printed.contains(aspect), "{printed}");
    }
    let output = run(["claims".as_ref(), out.as_os_str()]);
    assert!(output.status.success() && stdout(&output).contains("vsm-read-fuse"));

    // Running twice is safe: a directory that holds a run is left alone.
    let output = run(arguments(&suite(&scratch, SUITE), &out, &scratch));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("File exists"),
        "{}",
        stderr(&output)
    );
}

const LONG: &str = r#"
essay = "Enough blocks to be interrupted in."
rounds = 40
backends = ["direct", "memory", "sqlite"]
[[workload]]
name = "agent/vsm-cycle"
states = ["hot"]
"#;

fn started(arguments: Vec<&str>) -> Child {
    ctxbench(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn ctrl_c_leaves_nothing_behind_and_resume_completes_the_run() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let suite = suite(&scratch, &LONG.replace("rounds = 40", "rounds = 6"));
    let child = started(arguments(&suite, &out, &scratch));
    wait_for("some samples", || samples(&out).len() >= 3);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("--resume"), "{}", stderr(&output));
    nothing_is_left(&scratch);
    let before = samples(&out);
    assert!(before.len() < 24, "it was interrupted");
    assert!(
        before.iter().all(|sample| sample["outcome"] == "ok"),
        "half a block is not recorded"
    );

    let resume = [
        "run",
        "--resume",
        out.to_str().unwrap(),
        "--scratch",
        scratch.path().to_str().unwrap(),
    ];
    let output = run(resume);
    assert!(output.status.success(), "{}", stderr(&output));
    let after = samples(&out);
    assert_eq!(after[..before.len()], before[..], "what was measured stays");
    let orders: BTreeSet<u64> = after
        .iter()
        .map(|sample| sample["order"].as_u64().unwrap())
        .collect();
    assert_eq!((after.len(), orders.len()), (24, 24));
    nothing_is_left(&scratch);
}

#[test]
fn a_killed_run_takes_its_daemons_with_it() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let suite = suite(&scratch, LONG);
    let mut child = started(arguments(&suite, &out, &scratch));
    wait_for("a daemon", || !daemons_of(child.id()).is_empty());
    child.kill().unwrap();
    child.wait().unwrap();
    // `fusectl` is the killed process's own; the next run takes it down.
    wait_for("the daemons to unmount", || {
        let mut left = mounts_under(scratch.path()).into_iter();
        left.all(|mount| mount.ends_with("fusectl"))
    });
    // And to end, or they would write into the scratch directory while it is removed.
    wait_for("the daemons to end", || {
        let place = scratch.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut lines = processes.map(|p| fs::read(p.path().join("cmdline")).unwrap_or_default());
        !lines.any(|line| String::from_utf8_lossy(&line).contains(place))
    });
    let again = scratch.path().join("again");
    let one = [
        "--backend",
        "direct",
        "--workload",
        "micro/stat",
        "--rounds",
        "1",
    ];
    let output = ctxbench(["run", "--no-probes", "--policy", "none", "--state", "hot"])
        .args(one)
        .arg("--out")
        .arg(again)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn a_stopped_daemon_is_a_hang_with_its_duration_and_the_run_goes_on() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let suite = suite(&scratch, &LONG.replace("rounds = 40", "rounds = 24"));
    let mut arguments = arguments(&suite, &out, &scratch);
    arguments.extend(["--call-timeout", "0.5"]);
    let child = started(arguments);
    // Stopped at other moments each time, whatever the block is doing: a call hangs, or the setup does.
    let mut stopped = 0;
    wait_for("three daemons to be stopped", || {
        for daemon in daemons_of(child.id()) {
            std::thread::sleep(Duration::from_millis(4 + 8 * (stopped as u64 % 6)));
            stopped += usize::from(kill_process(daemon, Signal::STOP).is_ok());
            let hung = samples(&out).len();
            let deadline = Instant::now() + Duration::from_secs(20);
            while samples(&out).len() == hung && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        outcomes(&out).contains_key("hang") || stopped > 20
    });
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    let outcomes = outcomes(&out);
    assert!(outcomes["hang"] >= 1, "{outcomes:?}");
    assert_eq!(
        outcomes.values().sum::<usize>(),
        96,
        "every block is recorded: {outcomes:?}"
    );
    assert!(
        outcomes["ok"] >= 48,
        "direct and its twin were not touched: {outcomes:?}"
    );
    let hung = samples(&out)
        .into_iter()
        .find(|sample| sample["outcome"] == "hang")
        .unwrap();
    let reason = hung["reason"].as_str().unwrap().to_owned();
    assert!(
        reason.contains("no answer after 1.") && reason.ends_with("its connection was aborted"),
        "{reason}"
    );
    nothing_is_left(&scratch);
}

#[test]
fn a_killed_daemon_is_a_crash_and_the_run_goes_on() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let out = scratch.path().join("run");
    let suite = suite(&scratch, &LONG.replace("rounds = 40", "rounds = 8"));
    let child = started(arguments(&suite, &out, &scratch));
    let mut tries = 0;
    wait_for("a daemon to be killed in its block", || {
        for daemon in daemons_of(child.id()) {
            std::thread::sleep(Duration::from_millis(12));
            let _ = kill_process(daemon, Signal::KILL);
            tries += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        outcomes(&out).contains_key("crash") || tries > 20
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let outcomes = outcomes(&out);
    assert!(outcomes["crash"] >= 1, "{outcomes:?}");
    assert_eq!(outcomes.values().sum::<usize>(), 32, "{outcomes:?}");
    nothing_is_left(&scratch);
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(
        report.contains("crash 1") || report.contains("crash "),
        "the report says so"
    );
}

#[test]
fn without_fuse_the_rest_runs_and_the_report_says_what_was_skipped() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let suite = suite(&scratch, &SUITE.replace("probes = true", ""));
    let script = format!(
        "mknod fuse c 10 229 && chmod 600 fuse && mount --bind fuse /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups \
         {CTXBENCH} run --suite {} --out run --scratch . --policy none",
        suite.display()
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-euc", &script])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    assert!(
        message.contains("skipped: sqlite: /dev/fuse is not permitted to this user (fix: "),
        "{message}"
    );
    assert!(
        message.contains("only root can drop the kernel's caches"),
        "{message}"
    );
    let out = scratch.path().join("run");
    let arms: BTreeSet<String> = samples(&out)
        .iter()
        .map(|s| s["arm"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        arms,
        BTreeSet::from(["direct".to_owned(), "direct-twin".to_owned()])
    );
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(
        report.contains("SKIPPED: /dev/fuse is not permitted"),
        "{report}"
    );
    assert!(
        report.contains("skipped 8") || report.contains("skipped "),
        "{report}"
    );
}

#[test]
fn a_full_disk_ends_the_run_and_what_was_recorded_stays_readable() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let small = scratch.dir("small");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=128k", "none"])
        .arg(&small)
        .status()
        .unwrap();
    assert!(mounted.success());
    let out = small.join("run");
    let suite = suite(&scratch, &LONG.replace("\"memory\", \"sqlite\"", ""));
    let output = run(arguments(&suite, &out, &scratch));
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("results cannot be written any more"),
        "{message}"
    );
    assert!(message.contains("No space left on device"), "{message}");
    let copy = scratch.path().join("copy");
    assert!(
        Command::new("cp")
            .arg("-r")
            .arg(&out)
            .arg(&copy)
            .status()
            .unwrap()
            .success()
    );
    let output = run(["report".as_ref(), copy.as_os_str()]);
    assert!(output.status.success(), "{}", stderr(&output));
    let recorded = fs::read_to_string(copy.join("samples.jsonl"))
        .unwrap()
        .matches('\n')
        .count();
    assert!(recorded > 0 && recorded < 80, "{recorded}");
}

#[test]
fn several_processes_load_a_mount_and_leave_nothing_behind() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let output = ctxbench(["load", "sqlite", "--processes", "2", "--seconds", "1"])
        .args(["--rounds", "1", "--writes", "50", "--scratch"])
        .arg(scratch.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let page = stdout(&output);
    let row = |name: &str| page.lines().any(|line| line.starts_with(name));
    assert!(row("direct") && row("sqlite"), "{page}");
    assert!(page.contains("too few rounds for an interval"), "{page}");
    assert!(page.contains("2 processes, 50 % of calls write"), "{page}");
    assert!(mounts_under(scratch.path()).is_empty());
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);

    let output = run(["load", "null"]);
    assert!(
        stderr(&output).contains("`null` holds no data"),
        "{}",
        stderr(&output)
    );
}
