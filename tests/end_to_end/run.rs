//! Whole runs over real mounts: complete, interrupted, hung, crashed, or with missing requirements.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{
    CTXBENCH, Scratch, Succeeds, as_root, ctxbench, has, has_ended, json_of, lines, measure, mountable, mounts_under,
    process_file, rooted, signal, state_of, stderr, stdout, suite, suite_run, text_of, wait_for, words,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const BRIEF: &str = "budget = 1\nrounds = 1";
const STATES: &[&str] = &["hot", "lukewarm", "cold"];
const HOT: &[&str] = &["hot"];
const COLD: &[&str] = &["cold"];

/// A suite of two workloads in several states, over four backends.
fn small(settings: &str) -> String {
    suite(settings, &["direct", "null", "memory", "sqlite"], &[("micro/stat", STATES), ("agent/vsm-cycle", HOT)])
}

fn samples(out: &Path) -> Vec<Value> {
    lines(out, "samples.jsonl")
}

/// The only pass that did not end well.
fn bad(samples: &[Value]) -> &Value {
    let bad: Vec<_> = samples.iter().filter(|s| s["outcome"] != "ok").collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    bad[0]
}

fn outcomes(out: &Path) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for sample in samples(out) {
        let outcome = sample["outcome"].as_str().unwrap().to_owned();
        *counts.entry(outcome).or_insert(0) += 1;
    }
    counts
}

/// The process ids of the daemons that a process has started.
fn daemons_of(parent: u32) -> Vec<Pid> {
    let mut daemons = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // Format: pid (comm) state ppid …
        let Some((_, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let mut fields = rest.split(' ');
        let (state, ppid) = (fields.next(), fields.next());
        let cmdline = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if ppid == Some(&parent.to_string()) && state != Some("Z") && cmdline.contains("\0mount\0") {
            let pid = entry.file_name().to_str().unwrap().parse();
            daemons.extend(pid.ok().and_then(Pid::from_raw));
        }
    }
    daemons
}

fn nothing_is_left(scratch: &Scratch) {
    assert!(mounts_under(scratch.path()).is_empty());
    let entries = fs::read_dir(scratch.path()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let left = names.filter(|name| name.starts_with("ctxbench-"));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn a_new_host_fetches_what_a_restarted_daemon_has_in_its_cache() {
    let Some(scratch) = as_root() else { return };
    let out = scratch.path().join("run");
    let text = suite(
        BRIEF,
        &["direct", "s3-embedded", "s3-fresh-embedded"],
        &[("micro/read-1k", STATES), ("micro/list-1000-attributes", COLD)],
    );
    suite_run(&scratch, &text, &out).succeeds();
    nothing_is_left(&scratch);
    for sample in samples(&out) {
        assert_eq!(sample["outcome"], "ok", "{sample}");
    }
    let cells = lines(&out, "cells.jsonl");
    let of = |arm: &str, workload: &str, state: &str| {
        let mut all = cells.iter();
        all.find(|c| c["arm"] == arm && c["workload"] == workload && c["state"] == state)
    };
    // Counters of one pass.
    let count = |arm: &str, workload: &str, name: &str| {
        let counted = &of(arm, workload, "cold").unwrap()["counted"];
        assert_eq!(counted["passes"], 1, "{counted}");
        counted["daemon"]["store"][name].as_u64().unwrap()
    };
    for arm in ["direct", "s3-embedded"] {
        assert!(of(arm, "micro/read-1k", "hot").is_some(), "{arm}");
    }
    for state in ["hot", "lukewarm"] {
        let played = of("s3-fresh-embedded", "micro/read-1k", state);
        assert!(played.is_none(), "{state} has no cell of its own");
    }
    assert_eq!(count("s3-embedded", "micro/read-1k", "s3_fetches"), 0);
    // Each of the 64 files is fetched once.
    let fresh = "s3-fresh-embedded";
    assert_eq!(count(fresh, "micro/read-1k", "s3_fetches"), 64);
    assert!(count(fresh, "micro/read-1k", "s3_get") >= 64);
    // The mount has fetched the listing already.
    let list = "micro/list-1000-attributes";
    assert_eq!(count(fresh, list, "s3_fetches"), 0);
    // The host was mounted once before the data existed, and once for its pass.
    let ready = &of(fresh, list, "cold").unwrap()["ready_ns"];
    assert_eq!(ready.as_array().unwrap().len(), 2, "{ready}");
}

#[test]
fn cold_cells_of_four_sizes_read_a_few_files_among_fillers() {
    let Some(scratch) = as_root() else { return };
    let sizes = [2_u64, 4, 8, 16];
    let files = sizes.map(|megabytes| {
        let file = scratch.path().join(format!("database-{megabytes}.toml"));
        let head = format!("name = 'micro/database-{megabytes}'\nstates = ['cold']\n");
        let essay = "essay = 'A few files of a store that many others make larger, to see that those are made once and not read.'\n";
        let micro = "[micro]\noperation = 'stat-read'\nfiles = 8\nfile_bytes = 125000\nbytes = 4096\ncalls = 8\n";
        fs::write(&file, format!("{head}{essay}{micro}filler_files = {}\n", megabytes * 8 - 8)).unwrap();
        file
    });
    let line = "--seed 7 --no-probes --budget 1 --epochs 3 --rounds 2 --policy none --backend direct --backend sqlite";
    let (out, mut command) = measure(&scratch, line);
    for file in &files {
        command.arg("--workload").arg(file);
    }
    let output = command.succeeds();
    nothing_is_left(&scratch);
    assert_eq!(outcomes(&out).keys().collect::<Vec<_>>(), ["ok"], "{}", stderr(&output));
    for cell in lines(&out, "cells.jsonl") {
        let size: u64 = cell["workload"].as_str().unwrap().rsplit_once('-').unwrap().1.parse().unwrap();
        let stored = cell["stored_bytes"].as_u64().unwrap();
        assert!((size * 1_000_000..size * 1_250_000 + 1_000_000).contains(&stored), "{cell}");
    }
}

#[test]
fn a_run_measures_every_cell_and_reports_and_decides() {
    let Some(scratch) = as_root() else { return };
    let out = scratch.path().join("run");
    let small = small(&format!("{BRIEF}\nprobes = true"));
    let output = suite_run(&scratch, &small, &out).succeeds();
    nothing_is_left(&scratch);

    // stat: 5 arms hot with one warm-up round and one round, 5 lukewarm, 4 cold. vsm-cycle: 4 arms, hot.
    // Three epochs.
    assert_eq!(outcomes(&out), BTreeMap::from([("ok".to_owned(), 3 * (2 * 5 + 5 + 4 + 2 * 4))]), "{}", stderr(&output));
    let samples = samples(&out);
    for sample in &samples {
        let is_first = sample["state"] == "hot" && sample["round"] == 0;
        assert_eq!(sample.get("warm_up").is_some(), is_first, "{sample}");
    }
    let epochs = lines(&out, "epochs.jsonl");
    assert_eq!(epochs.len(), 3);
    for epoch in &epochs {
        assert_eq!((&epoch["cells"], &epoch["void"]), (&4.into(), &Value::Null));
        assert!(epoch["hot_timed_ms"].as_u64().unwrap() > 0, "{epoch}");
    }
    let cells = lines(&out, "cells.jsonl");
    assert_eq!(cells.len(), 3 * (5 + 5 + 4 + 4));
    for cell in cells.iter().filter(|cell| cell["workload"] == "micro/stat") {
        // Each call is one system call. In the hot state, only the warm-up pass is counted.
        let (passes, calls) = match cell["state"].as_str().unwrap() {
            "hot" => (1, 4096),
            _ => (1, 64),
        };
        let counted = &cell["counted"];
        assert_eq!(counted["passes"], passes, "{cell}");
        assert_eq!(counted["calls"], calls, "{cell}");
        assert_eq!(counted["system_calls"], calls, "{cell}");
        let has_daemon = !cell["arm"].as_str().unwrap().starts_with("direct");
        assert_eq!(counted.get("daemon").is_some(), has_daemon, "{cell}");
        // Other load on the machine may have disturbed every pass of a cell.
        let is_timed = samples.iter().any(|sample| {
            let same = |field| sample[field] == cell[field];
            let is_own = ["epoch", "arm", "workload", "state"].into_iter().all(same);
            is_own && sample.get("warm_up").is_none() && sample["load"].get("busy").is_none()
        });
        assert_eq!(cell["latencies"].get("stat").is_some(), is_timed, "{cell}");
    }
    // The minimum over all epochs, because another test may drop the machine's caches during a hot pass.
    let daemon = |arm: &str, state: &str, opcode: &str| {
        let fields = [("arm", arm), ("state", state), ("workload", "micro/stat")];
        let is_own = |cell: &&Value| fields.iter().all(|(field, value)| cell[field] == *value);
        let found = cells.iter().filter(is_own);
        let counts = found.map(|c| &c["counted"]["daemon"]["fuse"][opcode]["count"]);
        let counts = counts.map(|count| count.as_u64().unwrap_or(0));
        counts.min().unwrap()
    };
    // Hot: the kernel answers from its caches. Lukewarm: one lookup per file and pass, and perhaps for
    // directories above. The kernel evicts a directory only after its entries.
    for opcode in ["lookup", "getattr"] {
        assert_eq!(daemon("sqlite", "hot", opcode), 0, "{opcode}");
    }
    for arm in ["sqlite", "memory"] {
        let lookups = daemon(arm, "lukewarm", "lookup");
        assert!((64..=68).contains(&lookups), "{arm}: {lookups}");
    }
    assert!(daemon("null", "hot", "lookup") >= 4096);

    let probes = text_of(&out, "probes.jsonl");
    for probe in probes.lines().filter(|line| line.contains("\"tool\"")) {
        let good = ["\"outcome\":\"ok\"", "\"outcome\":\"skipped\""];
        let is_well = good.iter().any(|outcome| probe.contains(outcome));
        assert!(is_well, "{probe}");
    }
    let property = |arm: &str, name: &str| {
        let all = lines(&out, "probes.jsonl");
        let mut own = all
            .into_iter()
            .filter(|probe| probe["aspect"] == "property" && probe["arm"] == arm && probe["name"] == name);
        own.next().unwrap()["outcome"].clone()
    };
    for arm in ["direct", "sqlite"] {
        assert_eq!(property(arm, "portable"), "ok", "{arm}");
        assert_eq!(property(arm, "second-process"), "ok", "{arm}");
        assert_eq!(property(arm, "snapshot"), "skipped", "{arm}");
    }
    assert_eq!(property("memory", "portable"), "skipped");
    let said = stderr(&output);
    has(&said, &["sqlite: 0 lost in ", " kills and ", " simulated power cuts (at most "]);
    let points = lines(&out, "crash-points.jsonl");
    for (backend, loss) in [("sqlite", "killed-daemon"), ("sqlite", "power-loss"), ("direct", "power-loss")] {
        let is_own = |line: &&Value| line["backend"] == backend && line["loss"] == loss;
        let line = points.iter().find(is_own).unwrap();
        assert_eq!(line["audit"]["verdict"], "valid", "{line}");
        // A busy machine may make fewer in the time.
        assert!(line["points"].as_u64() > Some(0), "{line}");
        assert_eq!(line["broken"], 0, "{line}");
    }
    let faults = text_of(&out, "faults.jsonl");
    let sqlite = faults.lines().filter(|line| line.contains("\"sqlite\""));
    let sqlite: Vec<_> = sqlite.collect();
    assert_eq!(sqlite.len(), 4, "{faults}");
    for fault in sqlite {
        has(fault, &["\"recovered\":true", "\"lost\":0"]);
    }

    let printed = stdout(&output);
    has(&printed, &["Cron controller", "Report ("]);
    assert!(printed.lines().count() <= 40, "{printed}");
    // Progress is for terminals; a pipe gets plain lines.
    let said = stderr(&output);
    assert!(!said.contains(['\r', '\u{1b}']), "{said:?}");
    for file in words("report.md report.html report.json cells.csv charts/latency.svg") {
        assert!(out.join(file).is_file(), "{file}");
    }
    // The report only depends on the run's files.
    let before = fs::read(out.join("report.html")).unwrap();
    fs::remove_file(out.join("report.html")).unwrap();
    ctxbench(["report".as_ref(), out.as_os_str()]).succeeds();
    assert!(fs::read(out.join("report.html")).unwrap() == before);

    decides(&out);
    let output = ctxbench(["claims"]).arg(&out).succeeds();
    has(&stdout(&output), &["vsm-fuse-latency"]);
    // A user may judge claims from a file, and a wrong name in it is refused.
    let file = scratch.path().join("own.toml");
    let claim = |arm: &str| {
        format!(
            "source = 'me'\n[[claim]]\nid = 'own'\nquote = 'q'\nsays = {{ equals = 0, unit = 'probes' }}\ntest.reading = {{ arm = '{arm}', measure.probes = {{ aspect = 'tool', names = ['cat'] }} }}\n"
        )
    };
    fs::write(&file, claim("sqlite")).unwrap();
    let judge = || {
        let mut command = ctxbench(["claims", "--format", "json", "--file"]);
        command.args([&file, &out]).output().unwrap()
    };
    let judged: Value = serde_json::from_str(&stdout(&judge())).unwrap();
    assert_eq!(judged["claims"][0]["standing"], "confirmed", "{judged}");
    assert_eq!(judged["tally"]["tested"], 1, "{judged}");
    assert_eq!(judged["tally"]["claims"], 1, "{judged}");
    fs::write(&file, claim("sqlight")).unwrap();
    let refused = stderr(&judge());
    has(&refused, &["own.toml:6: field `claim[0].test.reading.arm`"]);

    // A run compared with itself would pass every gate.
    let copy = scratch.path().join("copy");
    assert!(Command::new("cp").arg("-r").args([&out, &copy]).status().unwrap().success());
    for other in [&out, &copy] {
        let gates = words("compare --fail-on worse,counts,claims --format junit");
        let output = ctxbench(gates).args([&out, other]).output().unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(11), ""));
        has(&stderr(&output), &["nothing is decided", "the same run twice"]);
    }
    let output = ctxbench(["compare"]).arg(&out).succeeds();
    has(&stdout(&output), &["paired by round"]);

    // A second run into the same directory is refused.
    let output = suite_run(&scratch, &small, &out).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    has(&stderr(&output), &["contains a run"]);
}

/// A policy that no arm of a run of plain directories and databases fits.
const NOBODYS_POLICY: &str = r#"
name = "nobodys"
question = "Who is a candidate of a policy that wants a bucket, where no arm has one?"
essay = "Nobody: neither a plain directory nor a database is in a bucket, and a run of these two says so."
baseline = "direct"
benefits_needed = 1
[candidates]
can = ["bucket"]
names = ["s3*"]
[[benefit]]
title = "More state is kept when the power goes"
measure.kept = { loss = "power-loss" }
unit = "share more"
at_least = 0.05
"#;

/// Decides on a run in every format. With so few workloads nothing is decided, and the page says what a killed daemon cost.
fn decides(out: &Path) {
    let decide = |options: &[&str]| {
        let mut command = ctxbench(["decide"]);
        command.arg(out).args(options).output().unwrap()
    };
    let all = decide(&[]);
    assert_eq!(all.status.code(), Some(11), "{}", stderr(&all));
    let policies = ["cron-controller", "roaming-agents"];
    has(&stdout(&all), &policies);
    has(&stdout(&all), &["Missing: "]);
    let one = ["--policy", "cron-controller", "--candidate", "sqlite"];
    let output = decide(&one);
    let printed = stdout(&output);
    assert_eq!(output.status.code(), Some(11), "{printed}");
    has(&printed, &["because: no evidence: ", "calls a year more"]);
    let aspects = ["Read latency", "Deployment", "Cron safety", "Token cost"];
    has(&printed, &aspects);
    has(&printed, &["Complexity", "Tool support", "Observability"]);
    let json = decide(&[&one[..], &["--format", "json"]].concat());
    let json: Value = serde_json::from_str(&stdout(&json)).unwrap();
    assert_eq!(json["decisions"][0]["verdict"], "not-decided");
    assert_eq!(json["decisions"][0]["planned"], true);
    // Programs get the same answer from `report`, and nothing else.
    let mut report = ctxbench(["report", "--format", "json"]);
    let report = report.arg(out).output().unwrap();
    let json: Value = serde_json::from_str(&stdout(&report)).unwrap();
    assert!(json["answer"]["passes"]["tried"].as_u64() > Some(0), "{json}");
    assert!(json["report"].as_str().unwrap().ends_with("report.html"));
    let record = stdout(&decide(&[&one[..], &["--adr"]].concat()));
    let title = "# Cron controller: not decided sqlite";
    assert!(record.starts_with(title), "{record}");
    let missing = decide(&["--candidate", "nonsense"]);
    assert_eq!(missing.status.code(), Some(1));
    has(&stderr(&missing), &["nonsense is not a candidate of these policies"]);
    let policy = out.with_extension("toml");
    fs::write(&policy, NOBODYS_POLICY).unwrap();
    let nobody = decide(&["--policy", policy.to_str().unwrap()]);
    assert_eq!(nobody.status.code(), Some(1));
    let said = stderr(&nobody);
    has(&said, &["direct", "nobodys: can = [\"bucket\"], names = [\"s3*\"]"]);

    // Another machine's run is refused, unless the user asks for it.
    let other = out.with_extension("other");
    Command::new("cp").arg("-r").args([out, &other]).succeeds();
    let mut environment = json_of(&other, "env.json");
    environment["cpu"] = "another processor".into();
    fs::write(other.join("env.json"), environment.to_string()).unwrap();
    let other = other.to_str().unwrap();
    let copied = decide(&[other]);
    assert_eq!(copied.status.code(), Some(1));
    has(&stderr(&copied), &["the same run twice"]);
    as_other_run(Path::new(other));
    let refused = decide(&[other]);
    assert_eq!(refused.status.code(), Some(1));
    has(&stderr(&refused), &["another processor"]);
    let mixed = decide(&[other, "--mixed"]);
    assert_eq!(mixed.status.code(), Some(11), "{}", stderr(&mixed));
}

/// Makes another run of a copied one, interrupted before its first pass: `decide` tells runs apart by their plans, passes and
/// crash points.
fn as_other_run(dir: &Path) {
    for name in ["samples.jsonl", "cells.jsonl", "epochs.jsonl", "crash-points.jsonl"] {
        fs::write(dir.join(name), "").unwrap();
    }
}

/// Enough passes to be interrupted in.
fn long(budget: u32, backends: &[&str]) -> String {
    let settings = format!("budget = {budget}\nrounds = 40");
    suite(&settings, backends, &[("agent/vsm-cycle", HOT)])
}

const LOCAL: [&str; 3] = ["direct", "memory", "sqlite"];

fn started(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn an_interrupted_run_leaves_nothing_behind_and_resumes() {
    let Some(scratch) = mountable() else { return };
    let out = scratch.path().join("run");
    let child = started(suite_run(&scratch, &long(6, &LOCAL), &out));
    wait_for("an epoch and a half", || lines(&out, "epochs.jsonl").len() == 1 && !daemons_of(child.id()).is_empty());
    // In the second epoch's cell.
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    has(&stderr(&output), &["--resume"]);
    nothing_is_left(&scratch);
    let before = samples(&out);
    let epochs = |samples: &[Value]| -> BTreeSet<u64> {
        let epochs = samples.iter().map(|sample| &sample["epoch"]);
        epochs.map(|epoch| epoch.as_u64().unwrap()).collect()
    };
    // Half a cell is not recorded.
    let whole = lines(&out, "epochs.jsonl").len() as u64;
    assert_eq!(epochs(&before), (0..whole).collect());
    let is_well = before.iter().all(|sample| sample["outcome"] == "ok");
    assert!(is_well, "{before:?}");

    let mut resume = ctxbench(["run", "--resume"]);
    resume.arg(&out).arg("--scratch-dir").arg(scratch.path());
    resume.succeeds();
    let after = samples(&out);
    assert_eq!(after[..before.len()], before[..], "what was measured stays");
    assert_eq!(epochs(&after), BTreeSet::from([0, 1, 2]));
    let orders = after.iter().map(|sample| sample["order"].as_u64().unwrap());
    assert!(orders.eq(0..after.len() as u64));
    nothing_is_left(&scratch);
}

/// A definition of `sqlite` as a file system of others, which names `state` as its whole state.
fn sqlite_of_others(scratch: &Scratch, name: &str, state: &str) -> PathBuf {
    let file = scratch.path().join(format!("{name}.toml"));
    let text = format!(
        "name = '{name}'\nsummary = 's'\ndurability = 'd'\npersistent = true\ndaemons = 1\nstays = true\n\
         version = ['{CTXBENCH}', '--version']\n\
         mount = ['{CTXBENCH}', 'mount', 'sqlite', '{{mount}}', '--db', '{{data}}/store.db']\n\
         unmount = ['{CTXBENCH}', 'unmount', '{{mount}}']\n[properties]\nstate = {state}\n"
    );
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn a_run_finds_a_state_that_is_not_whole_and_an_interrupted_power_cut_leaves_nothing() {
    let Some(scratch) = as_root() else { return };
    let part = sqlite_of_others(&scratch, "part", "['{data}/store.db']");
    let whole = "['{data}/store.db', '{data}/store.db-tails']";
    let whole = sqlite_of_others(&scratch, "whole", whole);
    let out = scratch.path().join("run");
    let line = "--workload micro/stat --state hot --budget 1 --rounds 1 --epochs 3 --policy none";
    let mut command = ctxbench(["run", "--scratch-dir"]);
    command.arg(scratch.path()).args(words(line)).arg("--out").arg(&out);
    command.arg("--backend").arg(part).arg("--backend").arg(whole);
    command.stderr(fs::File::create(scratch.path().join("said")).unwrap());
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_for("the power cuts", || {
        let said = text_of(scratch.path(), "said");
        assert_eq!(child.try_wait().unwrap(), None, "{said}");
        said.contains("simulating power cuts")
    });
    std::thread::sleep(Duration::from_secs(2));
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    nothing_is_left(&scratch);
    let probes = lines(&out, "probes.jsonl");
    let portable = |arm: &str| {
        let is_own = |probe: &&Value| probe["arm"] == arm && probe["name"] == "portable";
        probes.iter().find(is_own).unwrap().clone()
    };
    assert_eq!(portable("whole")["outcome"], "ok", "{}", portable("whole"));
    let part = portable("part");
    assert_eq!(part["outcome"], "wrong-data", "{part}");
    has(part["detail"].as_str().unwrap(), &["long.bin"]);
}

#[test]
fn a_killed_run_ends_its_daemons_even_stopped_ones() {
    let Some(scratch) = mountable() else { return };
    for after_ms in [0, 150, 400] {
        let out = scratch.path().join(format!("run-{after_ms}"));
        let mut child = started(suite_run(&scratch, &long(6, &LOCAL), &out));
        // At most one of the two daemons runs at a time; the other one is stopped.
        wait_for("a daemon that is stopped", || {
            let daemons = daemons_of(child.id());
            daemons.len() == 2 && daemons.iter().any(|daemon| state_of(daemon) == Some('T'))
        });
        std::thread::sleep(Duration::from_millis(after_ms));
        let mut daemons = Vec::new();
        // Between two epochs there may be fewer.
        wait_for("two daemons", || {
            daemons = daemons_of(child.id());
            daemons.len() == 2
        });
        child.kill().unwrap();
        child.wait().unwrap();
        // The killed process had mounted `fusectl`; the next run unmounts it.
        wait_for("the daemons to unmount", || {
            let mut left = mounts_under(scratch.path()).into_iter();
            left.all(|mount| mount.ends_with("fusectl"))
        });
        // The daemons must end, too, before the scratch directory is removed.
        wait_for("the daemons to end", || daemons.iter().all(has_ended));
    }
    let mut again = ctxbench(words(
        "run --no-probes --policy none --state hot --backend direct --workload micro/stat \
         --rounds 1 --epochs 3 --budget 60 --scratch-dir",
    ));
    again.arg(scratch.path()).arg("--out");
    again.arg(scratch.path().join("again")).succeeds();
    nothing_is_left(&scratch);
}

#[test]
fn a_run_in_a_scratch_directory_with_a_long_path_measures_every_arm() {
    let Some(scratch) = mountable() else { return };
    let deep = scratch.path().join(vec!["d".repeat(120); 3].join("/"));
    fs::create_dir_all(&deep).unwrap();
    let out = scratch.path().join("run");
    let mut command = ctxbench(words(
        "run --no-probes --policy none --state hot --backend direct --backend memory --backend sqlite \
         --workload micro/stat --rounds 1 --epochs 3 --budget 60 --scratch-dir",
    ));
    command.arg(&deep).arg("--out").arg(&out).succeeds();
    let samples = samples(&out);
    for arm in ["direct", "memory", "sqlite"] {
        let mut passes = samples.iter().filter(|pass| pass["arm"] == arm).peekable();
        assert!(passes.peek().is_some(), "{arm} was not measured");
        assert!(passes.all(|pass| pass["outcome"] == "ok"), "{arm}");
    }
    nothing_is_left(&scratch);
}

/// Runs a suite whose daemon gets a signal in the middle of a write. Returns the run directory, and the only pass that
/// did not end well.
fn signalled(scratch: &Scratch, rounds: u32, options: &[&str], sent: Signal) -> (PathBuf, Value) {
    let out = scratch.path().join("run");
    let settings = format!("budget = 60\nrounds = {rounds}");
    let workload = ("micro/write-64m", HOT);
    let large = suite(&settings, &["direct", "memory"], &[workload]);
    let mut command = suite_run(scratch, &large, &out);
    command.args(options);
    let mut child = started(command);
    wait_for("a daemon in the middle of a write", || {
        assert!(child.try_wait().unwrap().is_none(), "the run has ended");
        let mut daemons = daemons_of(child.id()).into_iter();
        daemons.any(|daemon| is_half_written(daemon) && kill_process(daemon, sent).is_ok())
    });
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let bad = bad(&samples(&out)).clone();
    (out, bad)
}

#[test]
fn a_run_records_a_killed_daemon_as_a_crash_and_continues() {
    let Some(scratch) = mountable() else { return };
    let (out, crashed) = signalled(&scratch, 1, &[], Signal::KILL);
    assert_eq!(crashed["outcome"], "crash");
    let reason = crashed["reason"].as_str().unwrap();
    has(reason, &["daemon ended: signal: 9"]);
    assert_eq!(lines(&out, "epochs.jsonl").len(), 3);
    nothing_is_left(&scratch);
    has(&text_of(&out, "report.md"), &["crash 1"]);
}

/// Whether `micro/write-64m` is writing a file in the daemon's mount: the file has between 1 and 32 MiB.
fn is_half_written(daemon: Pid) -> bool {
    let cmdline = process_file(daemon, "cmdline").unwrap_or_default();
    let mut arguments = cmdline.split('\0').skip_while(|argument| *argument != "mount");
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten();
    entries(Path::new(arguments.nth(2).unwrap_or_default()))
        .flat_map(|subtree| entries(&subtree.path().join("files")))
        .filter_map(|file| file.metadata().ok())
        .any(|file| file.is_file() && (1 << 20..32 << 20).contains(&file.len()))
}

#[test]
fn a_run_records_a_stopped_daemon_as_a_hang_and_leaves_nothing() {
    let Some(scratch) = as_root() else { return };
    // A few long calls, with time for all rounds, including those after a hang.
    let (out, hung) = signalled(&scratch, 3, &["--call-timeout", "5"], Signal::STOP);
    assert_eq!(hung["outcome"], "hang", "{hung}");
    assert_eq!(hung["arm"], "memory", "{hung}");
    let parts = ["no answer after ", "its connection was aborted"];
    has(hung["reason"].as_str().unwrap(), &parts);
    let cells = lines(&out, "cells.jsonl").len();
    assert_eq!(cells, 3 * 3, "all cells are recorded");
    nothing_is_left(&scratch);
}

#[test]
fn a_run_removes_its_default_scratch_image() {
    let Some(scratch) = as_root() else { return };
    let base = scratch.dir("base");
    let out = scratch.path().join("run");
    let workloads = [("micro/fsync-1k", HOT), ("micro/read-1k", COLD)];
    let file = scratch.path().join("suite.toml");
    fs::write(&file, suite(BRIEF, &["direct", "sqlite"], &workloads)).unwrap();
    let mut run = ctxbench(["run", "--policy", "none", "--suite"]);
    run.arg(file).arg("--out").arg(&out);
    run.env("CTXBENCH_SCRATCH", &base);
    let mut child = started(run);
    // Two mounts: the image, and a daemon's mount in it.
    wait_for("a mount of a daemon", || mounts_under(&base).len() >= 2 || child.try_wait().unwrap().is_some());
    assert!(child.try_wait().unwrap().is_none(), "it has ended before");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let receipt = &json_of(&out, "env.json")["scratch"];
    for (field, expected) in [("kind", "image"), ("file_system", "ext4"), ("journal", "journaled")] {
        assert_eq!(receipt[field], expected, "{receipt}");
    }
    let features = receipt["features"].as_array().unwrap();
    assert!(features.contains(&"has_journal".into()), "{receipt}");
    let device = receipt["device"].as_str().unwrap();
    let is_loop = device.starts_with("loop device (direct I/O) on ");
    assert!(is_loop, "{device}");
    assert!(receipt.get("fallback").is_none(), "{receipt}");
    let outcomes: Vec<String> = outcomes(&out).into_keys().collect();
    assert_eq!(outcomes, ["ok"], "{}", stderr(&output));
    assert!(mounts_under(scratch.path()).is_empty());
    assert_eq!(fs::read_dir(&base).unwrap().count(), 0);
    let loops = fs::read_dir("/sys/block").unwrap().flatten();
    for device in loops {
        let file = fs::read_to_string(device.path().join("loop/backing_file"));
        assert!(!file.unwrap_or_default().contains(base.to_str().unwrap()));
    }
}

#[test]
fn a_run_without_fuse_skips_mounts_and_reports_it() {
    let Some(scratch) = as_root() else { return };
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(scratch.path().join("suite.toml"), small(BRIEF)).unwrap();
    let script = format!(
        "mknod fuse c 10 229 && chmod 600 fuse && mount --bind fuse /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups \
         {CTXBENCH} run --suite suite.toml --out run --scratch-dir . --policy none"
    );
    let output = Command::new("unshare")
        .args(["-m", "sh", "-euc", &script])
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let message = stderr(&output);
    assert!(output.status.success(), "{message}");
    let skipped = "skipped: sqlite: you have no permission to open /dev/fuse (fix: ";
    let caches = "only root can drop the kernel's caches";
    has(&message, &[skipped, caches]);
    let out = scratch.path().join("run");
    let samples = samples(&out);
    let arms = samples.iter().map(|s| s["arm"].as_str().unwrap());
    let arms: BTreeSet<&str> = arms.collect();
    assert_eq!(arms, BTreeSet::from(["direct", "direct-again"]));
    let skipped = ["SKIPPED: you have no permission to open /dev/fuse", "skipped in "];
    has(&text_of(&out, "report.html"), &skipped);
}

#[test]
fn a_full_disk_ends_a_run_and_keeps_its_recorded_results() {
    let Some(scratch) = rooted() else { return };
    let small = scratch.dir("small");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=128k", "none"]);
    mount.arg(&small).succeeds();
    let out = small.join("run");
    let mut run = suite_run(&scratch, &long(6, &["direct"]), &out);
    let output = run.args(["--budget", "60", "--rounds", "200"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    let parts = ["results can no longer be written", "No space left on device"];
    has(&stderr(&output), &parts);
    let copy = scratch.path().join("copy");
    Command::new("cp").arg("-r").args([&out, &copy]).succeeds();
    ctxbench(["report".as_ref(), copy.as_os_str()]).succeeds();
    let recorded = samples(&copy).len();
    assert!(recorded > 0, "{recorded}");
}

#[test]
fn a_bare_s3_client_is_an_arm_next_to_mounts() {
    let scratch = Scratch::new();
    let workloads = ["micro/create-fsync-1k-few", "micro/write-sync-100"];
    let line = "--seed 7 --no-probes --policy none --budget 60 --epochs 3 --rounds 2 --state hot \
                --backend s3-bare-embedded --workload";
    let (out, mut command) = measure(&scratch, line);
    command.arg(workloads[0]).args(["--workload", workloads[1]]);
    command.succeeds();
    assert!(mounts_under(scratch.path()).is_empty());
    let left = fs::read_dir(scratch.path().join("work")).unwrap().count();
    assert_eq!(left, 0, "files of workspaces stay behind");
    let samples = samples(&out);
    for workload in workloads {
        let is_of = |sample: &&Value| sample["arm"] == "s3-bare-embedded" && sample["workload"] == workload;
        let passes: Vec<_> = samples.iter().filter(is_of).collect();
        assert!(passes.len() >= 6, "{workload}: {}", passes.len());
        assert!(passes.iter().all(|sample| sample["outcome"] == "ok"), "{passes:?}");
    }
}

/// A session of a greeting and its answer, without a tool call.
const GREETING: &str = r#"{"parentUuid":null,"isSidechain":false,"userType":"external","cwd":"/home/u/p","sessionId":"s1","version":"2.1.200","gitBranch":"main","type":"user","uuid":"u1","timestamp":"2026-10-01T10:00:01.000Z","message":{"role":"user","content":"hi"}}
{"parentUuid":"u1","isSidechain":false,"userType":"external","cwd":"/home/u/p","sessionId":"s1","version":"2.1.200","gitBranch":"main","type":"assistant","uuid":"u2","timestamp":"2026-10-01T10:00:02.000Z","requestId":"r1","message":{"id":"m1","type":"message","role":"assistant","model":"claude-opus-4-5-20251101","content":[{"type":"text","text":"hello"}],"usage":{"input_tokens":100,"output_tokens":10}}}
"#;

#[test]
fn a_session_with_nothing_to_replay_is_run_and_reported_in_time() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.path();
    let file = |name: &str| dir.join(name).display().to_string();
    fs::write(file("greeting.jsonl"), GREETING).unwrap();
    let arguments = ["trace", "import", "--format", "claude-code", &file("greeting.jsonl")];
    let mut import = ctxbench(arguments);
    let imported = import.args(["--out", &file("mine.trace.jsonl")]);
    let imported = stdout(&imported.succeeds());
    assert!(imported.contains("nothing to replay: no tool call"), "{imported}");
    let essay = "A session that only talks, so that no call of it can be replayed on any backend.";
    let workload = format!(
        "name = \"agent/mine\"\nessay = \"{essay}\"\nstates = [\"hot\"]\n[trace]\nfile = \"mine.trace.jsonl\"\n"
    );
    fs::write(file("mine.toml"), workload).unwrap();
    let started = std::time::Instant::now();
    let line = "--backend memory --budget 1 --rounds 1 --no-probes --workload";
    let (out, mut command) = measure(&scratch, line);
    let messages = stderr(&command.arg(file("mine.toml")).succeeds());
    assert!(messages.contains("agent/mine: nothing to replay"), "{messages}");
    ctxbench(["report", &file("run")]).succeeds();
    assert!(started.elapsed() < Duration::from_secs(400));
    let page = text_of(&out, "report.md");
    assert!(page.contains("agent/mine: nothing to replay"), "{page}");
}

#[test]
fn a_run_that_is_being_made_is_neither_made_again_nor_resumed() {
    let Some(scratch) = mountable() else { return };
    let out = scratch.path().join("run");
    let name = out.display().to_string();
    let command = || {
        let line = "--workload micro/stat --backend memory --state hot --budget 60 --no-probes";
        let (_, mut command) = measure(&scratch, line);
        command.stderr(Stdio::null()).stdout(Stdio::null());
        command
    };
    let mut first = command().spawn().unwrap();
    wait_for("the plan", || out.join("plan.toml").exists());
    let before = text_of(&out, "plan.toml");
    let second = command().stderr(Stdio::piped()).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("contains a run, or a run is in progress there"), "{}", stderr(&second));
    let resumed = ctxbench(["run", "--resume", &name]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(1));
    assert!(stderr(&resumed).contains("another process is still making this run"), "{}", stderr(&resumed));
    signal(&first, Signal::INT);
    assert_eq!(first.wait().unwrap().code(), Some(130));
    assert_eq!(text_of(&out, "plan.toml"), before);
    nothing_is_left(&scratch);
}

#[test]
fn a_hot_pass_after_one_that_read_all_files_back_asks_the_daemon_for_nothing() {
    let Some(scratch) = mountable() else { return };
    let (out, mut command) = measure(
        &scratch,
        "--workload micro/list-1000-attributes --backend memory --state hot --budget 3 --epochs 3 --rounds 2 --no-probes",
    );
    command.succeeds();
    let timed = |sample: &Value| sample["arm"] == "memory" && sample["warm_up"] != true;
    let used: Vec<u64> = samples(&out)
        .iter()
        .filter(|sample| timed(sample))
        .map(|sample| sample["cpu"]["daemon_ns"].as_u64().unwrap())
        .collect();
    assert!(!used.is_empty());
    // The attributes of a thousand files, one by one, take more than ten times as long. Other tests empty the kernel's caches,
    // but not in most passes.
    let few = used.iter().filter(|used| **used < 2_000_000).count();
    assert!(few * 2 > used.len(), "{used:?}");
}

#[test]
fn a_signal_ends_a_report_at_once_and_leaves_no_part_of_a_file() {
    let Some(scratch) = mountable() else { return };
    let (out, command) =
        measure(&scratch, "--workload micro/stat --backend memory --state hot --budget 1 --rounds 1 --no-probes");
    let mut command = command;
    command.succeeds();
    // More records than a report takes in a moment.
    let samples = text_of(&out, "samples.jsonl");
    fs::write(out.join("samples.jsonl"), samples.repeat(400_000 / samples.lines().count())).unwrap();
    fs::remove_file(out.join("report.md")).unwrap();
    for (line, asked) in [
        ("report", Signal::INT),
        ("report", Signal::TERM),
        ("decide", Signal::INT),
        ("claims", Signal::TERM),
        ("compare", Signal::INT),
    ] {
        let mut command = ctxbench([line]);
        let process = command.arg(&out).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = process.spawn().unwrap();
        // The handlers are installed, and the records are being read.
        wait_for("a reader of the samples", || {
            let files = fs::read_dir(format!("/proc/{}/fd", process.id())).into_iter().flatten();
            let mut files = files.flatten().filter_map(|file| fs::read_link(file.path()).ok());
            files.any(|file| file.ends_with("samples.jsonl"))
        });
        signal(&process, asked);
        let at = std::time::Instant::now();
        assert_eq!(process.wait().unwrap().code(), Some(130), "{line}");
        assert!(at.elapsed() < Duration::from_secs(60), "{line}");
        let left = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
        let parts: Vec<String> = left.filter(|name| name.ends_with(".part")).collect();
        assert_eq!(parts, Vec::<String>::new(), "{line}");
    }
}

#[test]
fn the_load_of_reproduce_has_the_name_that_reports_know() {
    let mut load = ctxbench(["busy"]).stdin(Stdio::piped()).spawn().unwrap();
    let name = format!("/proc/{}/comm", load.id());
    wait_for("the load names itself", || fs::read_to_string(&name).unwrap().trim() == rundir::LOAD_PROCESS);
    drop(load.stdin.take());
    assert!(load.wait().unwrap().success());
}
