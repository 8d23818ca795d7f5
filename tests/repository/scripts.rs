//! The script that makes evidence, with a stand-in for the program that it calls.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::executable::write_executable;
use crate::top;

/// A stand-in for ctxbench: `doctor`, and commands that make a run directory, the slow one slowly.
const STAND_IN: &str = r##"#!/bin/bash
case $1 in
doctor) echo "peer      python-passthrough: here"; exit 1 ;;
--version) echo "ctxbench 0.1.0 (abc with changes)"; exit ;;
report) touch "$2/report.html"; exit ;;
decide) [ ! -f "$2/cut-off" ] || { echo "a pass is missing" >&2; exit 1; }; echo "# decisions of ${@:2}"; exit 11 ;;
claims) echo "Measurements decide 1 of the 2 claims"; exit ;;
esac
while [ "$1" != --results ]; do [ "$1" = recall ] && slow=1; kind=${kind:-$1}; shift; done
mkdir -p "$2/run-of-$kind"
touch "$2/run-of-$kind/plan.toml"
trap 'exit 130' INT
[ -z "$slow" ] || for _ in $(seq 300); do sleep 0.1; done
[ "$kind" != fault ] || exit 1
"##;

fn evidence(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(top().join("scripts/evidence"));
    command.args(arguments).env("CTXBENCH", program);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_parts_of_the_evidence_take_at_most_90_minutes_and_name_what_exists() {
    let program = Path::new(env!("CARGO_BIN_EXE_ctxbench"));
    let output = evidence(program, &["--plan"]).output().unwrap();
    let plan = text(&output.stdout);
    assert!(output.status.success(), "{plan}{}", text(&output.stderr));
    let limits = plan.lines().filter_map(|line| {
        let limit = line.split_whitespace().nth(1)?.strip_suffix('s')?;
        limit.parse::<u32>().ok()
    });
    let limits: Vec<u32> = limits.collect();
    assert!(limits.len() >= 14, "{plan}");
    assert!(limits.iter().sum::<u32>() <= 90 * 60, "{plan}");
    let list = Command::new(program).arg("list").output().unwrap();
    let known = text(&list.stdout);
    let known: Vec<&str> = known.split([' ', ',', '\n']).filter(|name| !name.is_empty()).collect();
    let is_known = |name: &str| {
        let stem = name.split('@').next().unwrap();
        // The list names the default server's arms.
        let stem = stem.strip_suffix("-embedded").unwrap_or(stem);
        let on_server = |name: &&&str| name.starts_with(&format!("{stem}-"));
        known.contains(&stem) || known.iter().any(|name| on_server(&name))
    };
    for line in plan.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            if ["--suite", "--workload", "--backend"].contains(&pair[0]) {
                assert!(is_known(pair[1]), "{}: {line}", pair[1]);
            }
        }
    }
}

#[test]
fn the_evidence_has_every_workload_that_a_row_of_a_policy_reads() {
    let program = Path::new(env!("CARGO_BIN_EXE_ctxbench"));
    let output = evidence(program, &["--plan"]).output().unwrap();
    let plan = text(&output.stdout);
    let mut measured = Vec::new();
    for line in plan.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |option: &str| {
            let pairs = words.windows(2).filter(|pair| pair[0] == option);
            pairs.map(|pair| pair[1].to_owned()).collect::<Vec<_>>()
        };
        let workloads = after("--workload");
        // Without a selection, a part measures its whole suite.
        let suite = match after("--suite").pop() {
            None if line.starts_with("default ") => Some("default".to_owned()),
            suite => suite.filter(|_| workloads.is_empty()),
        };
        if let Some(suite) = suite {
            let file = top().join(format!("workloads/suites/{suite}.toml"));
            let suite = fs::read_to_string(file).unwrap();
            measured.extend(suite.split('"').filter(|name| name.contains('/')).map(str::to_owned));
        }
        measured.extend(workloads);
    }
    let mut rows = 0;
    for file in fs::read_dir(top().join("reports/policies")).unwrap() {
        let file = file.unwrap().path();
        let policy = fs::read_to_string(&file).unwrap();
        for row in policy.split("workload = \"").skip(1) {
            let name = row.split('"').next().unwrap();
            rows += 1;
            assert!(measured.iter().any(|known| known == name), "{}: {name}\n{plan}", file.display());
        }
    }
    assert!(rows > 30, "{rows}");
}

#[test]
fn a_run_of_another_build_or_machine_and_one_that_decides_nothing_are_refused_before_anything_is_measured() {
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("ctxbench");
    write_executable(&program, STAND_IN);
    let (bench, dir) = (scratch.path().join("bench"), scratch.path().join("evidence"));
    fs::create_dir(&bench).unwrap();
    let plan = bench.join("plan.toml");
    let made = |by: &str| {
        fs::write(&plan, format!("schema = 4\nctxbench = \"{by}\"\n[[arms]]\nctxbench = \"x\"\n")).unwrap();
        let bench = bench.to_str().unwrap();
        let all = ["--bench", bench, "--only", "default", "--only", "faults", dir.to_str().unwrap()];
        evidence(&program, &all).output().unwrap()
    };
    let refused = |by: &str| {
        let output = made(by);
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(!dir.exists(), "nothing was begun");
        why
    };
    let why = refused("0.1.0 (def)");
    assert!(why.contains("made by ctxbench 0.1.0 (def)") && why.contains("is 0.1.0 (abc with changes)"), "{why}");
    let this = "0.1.0 (abc with changes)";
    let environment = |kernel: &str, binary: &str| {
        let fields = format!("\"kernel\": \"{kernel}\",\n  \"binary_sha256\": \"{binary}\",\n  \"cpu\": \"x\"");
        fs::write(bench.join("env.json"), format!("{{\n  \"schema\": 4,\n  {fields}\n}}\n")).unwrap();
    };
    environment("6.1.0 #1", &"1".repeat(64));
    let why = refused(this);
    let other = "made by another binary of the same version, 0.1.0 (abc with changes)";
    assert!(why.contains(other), "{why}");
    let binary = inputs::sha256(STAND_IN.as_bytes());
    environment("6.1.0 #1", &binary);
    let why = refused(this);
    assert!(why.contains("was made with the kernel 6.1.0 #1, and this machine has "), "{why}");
    let kernel = rustix::system::uname();
    let here = format!("{} {}", kernel.release().to_string_lossy(), kernel.version().to_string_lossy());
    environment(&here, &binary);
    fs::write(bench.join("cut-off"), "").unwrap();
    let why = refused(this);
    assert!(why.contains("cannot be taken: a pass is missing"), "{why}");
    fs::remove_file(bench.join("cut-off")).unwrap();
    let taken = made(this);
    assert!(taken.status.success(), "{}", text(&taken.stderr));
}

#[test]
fn evidence_is_made_once_and_an_interrupted_part_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let program = scratch.path().join("ctxbench");
    write_executable(&program, STAND_IN);
    let dir = scratch.path().join("evidence");
    let place = dir.to_str().unwrap();
    let all = ["--only", "default", "--only", "faults", "--only", "llm", place];
    let first = evidence(&program, &all).output().unwrap();
    let (said, errors) = (text(&first.stdout), text(&first.stderr));
    assert!(first.status.success(), "{said}{errors}");
    assert!(said.contains("skipped: llm: llm-history-live is not usable here"), "{said}");
    assert!(said.contains("1 of the 2 claims"), "{said}");
    let decisions = fs::read_to_string(dir.join("decisions.md")).unwrap();
    for run in ["default/run-of-run", "faults/run-of-fault"] {
        assert!(decisions.contains(run), "{decisions}");
    }
    let again = text(&evidence(&program, &all).output().unwrap().stdout);
    assert!(again.contains("== default: is there"), "{again}");

    let mut slow = evidence(&program, &["--only", "recall", place]);
    // A group of its own, as a terminal's Ctrl-C reaches script and command.
    let mut slow = std::os::unix::process::CommandExt::process_group(&mut slow, 0).spawn().unwrap();
    let part = dir.join("recall");
    let began = Instant::now();
    while !part.join("run-of-run/plan.toml").exists() {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    let group = Pid::from_raw(slow.id() as i32).unwrap();
    rustix::process::kill_process_group(group, Signal::INT).unwrap();
    assert_eq!(slow.wait().unwrap().code(), Some(130));
    assert!(!part.exists() && dir.join("default/.complete").exists());
    assert!(kill_process(group, Signal::INT).is_err(), "it is left behind");
}

#[test]
fn the_site_has_every_document() {
    let script = fs::read_to_string(top().join("scripts/site")).unwrap();
    let lists = script.lines().filter(|line| line.trim_start().starts_with("for page in "));
    let listed: Vec<&str> = lists.flat_map(|line| line.split([' ', ';'])).collect();
    for entry in fs::read_dir(top().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(page) = name.strip_suffix(".md") {
            assert!(listed.contains(&page), "scripts/site does not list docs/{name}");
        }
    }
}
