//! `ctxbench run` with model arms, and the local model with its server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{KEY, Lab, answering, has_local_model, said, xattr};
use crate::common::{Mount, Scratch, Succeeds, can_mount, ctxbench, has, lacks, stderr, stdout};
use models::Behaviour;

/// A run's samples of one arm and one workload.
fn samples(out: &Path, arm: &str, workload: &str) -> Vec<serde_json::Value> {
    lines(out, "samples.jsonl", arm, workload)
}

/// The lines of a run's file that belong to one arm and one workload.
fn lines(out: &Path, name: &str, arm: &str, workload: &str) -> Vec<serde_json::Value> {
    let all = crate::common::lines(out, name).into_iter();
    all.filter(|sample| sample["arm"] == arm && sample["workload"] == workload)
        .collect()
}

fn measure(scratch: &Scratch, suite: &str) -> (PathBuf, Command) {
    let file = scratch.path().join("suite.toml");
    std::fs::write(&file, suite).unwrap();
    let out = scratch.path().join("out");
    let mut command = ctxbench(["run", "--seed", "7", "--policy", "none"]);
    command.arg("--suite").arg(file);
    command.arg("--out").arg(&out);
    command.arg("--scratch-dir").arg(scratch.path());
    (out, command)
}

#[test]
fn a_run_reports_wrong_data_of_an_arm_and_gives_it_no_latency() {
    let Some(lab) = answering() else { return };
    let suite = r#"
essay = "Files behind a simulated model, which is always wrong."
budget = 1
epochs = 3
rounds = 1
backends = ["direct", "llm-history-given", "llm-generate-given"]
call_timeout = 30.0
[[workload]]
name = "agent/shortened"
states = ["hot"]
[[workload]]
name = "micro/stat"
states = ["hot"]
[[workload]]
name = "micro/read-1k"
states = ["hot"]
"#;
    let (out, mut command) = measure(&lab.scratch, suite);
    let output = command
        .env("CTXBENCH_MODEL_URL", lab.server.base_url())
        .env("CTXBENCH_MODEL_NAME", "simulated")
        .env("CTXBENCH_API_KEY", KEY)
        .succeeds();

    let history = samples(&out, "llm-history-given", "agent/shortened");
    // One warm-up round and one round in each of three epochs.
    assert_eq!(history.len(), 6);
    for sample in &history {
        assert_eq!(sample["outcome"], "wrong-data");
        assert_eq!(sample["outcomes"]["wrong-data"], 5, "{sample}");
        assert_eq!(sample["outcomes"]["ok"], 7);
        assert_eq!(
            sample["calls"].get("read"),
            None,
            "wrong reads have no latency"
        );
        assert!(sample["waited_ns"].as_u64() > sample["makespan_ns"].as_u64());
    }
    let cells = lines(&out, "cells.jsonl", "llm-history-given", "agent/shortened");
    for cell in cells {
        // From the warm-up pass.
        let counted = &cell["counted"];
        assert_eq!(counted["passes"], 1, "{cell}");
        assert_eq!(counted["daemon"]["store"]["answers-simulated"], 5);
    }
    assert_eq!(
        lab.server.calls(),
        6 * 5,
        "a timed read asks once, and nothing else asks"
    );
    for sample in samples(&out, "llm-history-given", "micro/stat") {
        assert_eq!(sample["outcome"], "ok", "{sample}");
    }
    assert!(samples(&out, "llm-history-given", "micro/read-1k").is_empty());
    for workload in ["agent/shortened", "micro/stat", "micro/read-1k"] {
        let generate = samples(&out, "llm-generate-given", workload);
        assert_eq!(generate.len(), 6);
        assert!(
            generate.iter().all(|sample| sample["outcome"] == "ok"),
            "{generate:?}"
        );
    }

    let said = stdout(&output);
    has(
        &said,
        &[
            "agent/shortened hot on llm-history-given: 41.7 % of calls did not end well, in 6 of 6 passes",
        ],
    );
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    let parts = [
        "| agent/shortened hot | llm-history-given | 6 of 6 |",
        "41.7 %",
        "answers simulated",
        "asks a model at each of its 1024 reads",
    ];
    has(&report, &parts);
    let plan = std::fs::read_to_string(out.join("plan.toml")).unwrap();
    assert!(plan.contains("call_timeout_ms = 30000") && plan.contains("--call-timeout 30"));
    for text in [report, plan, said, stderr(&output)] {
        assert!(!text.contains(KEY));
    }
}

#[test]
fn a_run_without_a_model_skips_the_live_arm_and_says_how_to_install_one() {
    let Some(lab) = answering() else { return };
    let suite = r#"
essay = "Files behind a model that is not installed."
budget = 1
epochs = 3
rounds = 1
backends = ["direct", "llm-history"]
call_timeout = 60.0
[[workload]]
name = "micro/stat"
states = ["hot"]
[[workload]]
name = "agent/shortened"
states = ["hot"]
"#;
    let (out, mut command) = measure(&lab.scratch, suite);
    let output = command
        .env("CTXBENCH_MODEL", lab.path("missing.gguf"))
        .succeeds();
    let said = stderr(&output);
    let parts = [
        "skipped: llm-history-live:",
        "make model",
        "llm-history-recorded replays the answers of an earlier one",
    ];
    has(&said, &parts);
    assert!(samples(&out, "llm-history-live", "micro/stat").is_empty());
    assert_eq!(samples(&out, "llm-history-recorded", "micro/stat").len(), 6);
    // The session's reads are replayed from the recording, without a live model.
    let session = samples(&out, "llm-history-recorded", "agent/shortened");
    assert_eq!(session.len(), 6);
    let cells = lines(
        &out,
        "cells.jsonl",
        "llm-history-recorded",
        "agent/shortened",
    );
    let store = &cells[0]["counted"]["daemon"]["store"];
    assert_eq!(store["answers-recorded"], 5, "{store}");
    assert_eq!(store["model-failures"], 0, "{store}");
    assert_eq!(store.get("answers-live"), None, "{store}");
    let report = std::fs::read_to_string(out.join("report.md")).unwrap();
    has(
        &report,
        &["the answers of llm-history-recorded are recorded"],
    );
    lacks(&report, &["nothing on this page is simulated"]);
}

/// The children of `parent` whose command line contains `name`.
fn children(parent: u32, name: &str) -> Vec<String> {
    let found = Command::new("pgrep")
        .args(["-P", &parent.to_string(), "-f", name])
        .output()
        .unwrap();
    stdout(&found)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

#[test]
fn a_runs_model_server_ends_with_the_run() {
    if !can_mount() || !has_local_model() {
        return;
    }
    let suite = r#"
essay = "A session behind the local model."
rounds = 5
backends = ["direct", "llm-history"]
call_timeout = 60.0
[[workload]]
name = "agent/shortened"
states = ["hot"]
"#;
    for signal in ["-INT", "-KILL"] {
        let scratch = Scratch::new();
        let (out, mut command) = measure(&scratch, suite);
        let mut run = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let id = run.id();
        // To write the plan, the run starts a separate process for the program's version.
        crate::common::wait_for("the plan", || out.join("plan.toml").exists());
        crate::common::wait_for("the server", || !children(id, "llama-server").is_empty());
        let servers = children(id, "llama-server");
        assert_eq!(servers.len(), 1, "one server for all workspaces");
        let receipt = std::fs::read_to_string(out.join("plan.toml")).unwrap();
        assert!(receipt.contains(models::SMOLLM2.2) && receipt.contains("answers = \"live\""));
        let killed = Command::new("kill")
            .args([signal, &id.to_string()])
            .status();
        assert!(killed.unwrap().success());
        run.wait().unwrap();
        crate::common::wait_for("the server's end", || {
            !Path::new(&format!("/proc/{}", servers[0])).exists()
        });
        // The killed process had mounted `fusectl`; the next run unmounts it.
        crate::common::wait_for("the end of the mounts", || {
            let mut left = crate::common::mounts_under(scratch.path()).into_iter();
            left.all(|mount| mount.ends_with("fusectl"))
        });
    }
}

#[test]
fn the_local_models_server_ends_with_the_mount() {
    if !can_mount() || !has_local_model() {
        return;
    }
    let lab = Lab::new(vec![Behaviour::Answer]);
    let tree = lab.path("tree.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    let dir = lab.scratch.dir("mnt");
    command.arg(&dir).args(["--tree", &tree, "--no-cache"]);
    command.args(["--answer-tokens", "16", "--prompt", "A list of fruits"]);
    let temporary = lab.scratch.dir("tmp");
    command.env("TMPDIR", &temporary);
    let mount = Mount::of(command, &dir);
    let text = std::fs::read_to_string(dir.join("a.txt")).unwrap();
    assert!(!text.trim().is_empty());
    assert_eq!(xattr(&dir.join("a.txt"), "user.llmfs.cut-off"), "1");
    let children = said(
        lab.scratch.path(),
        &format!("pgrep -P {}", mount.process.id()),
    );
    let servers: Vec<&str> = children.split_whitespace().collect();
    assert!(!servers.is_empty(), "the server is a child of the mount");
    mount.crash();
    crate::common::wait_for("the server's end", || {
        servers
            .iter()
            .all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    has(&lab.log(), &["(live)"]);
    let left = temporary.read_dir().unwrap().count();
    assert_eq!(left, 0, "a killed mount leaves files behind");
}
