//! `ctxbench run` with model arms, and the local model with its server.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{KEY, answering, has_local_model, xattr};
use crate::common::{
    Mount, Succeeds, ctxbench, has, lacks, mountable, mounts_under, stderr, stdout, suite, suite_run, text_of, wait_for,
};

/// A run's samples of one arm and one workload.
fn samples(out: &Path, arm: &str, workload: &str) -> Vec<serde_json::Value> {
    lines(out, "samples.jsonl", arm, workload)
}

/// The lines of a run's file that belong to one arm and one workload.
fn lines(out: &Path, name: &str, arm: &str, workload: &str) -> Vec<serde_json::Value> {
    let all = crate::common::lines(out, name).into_iter();
    all.filter(|sample| sample["arm"] == arm && sample["workload"] == workload).collect()
}

const HOT: &[&str] = &["hot"];

#[test]
fn a_run_reports_wrong_data_of_an_arm_and_gives_it_no_latency() {
    let Some(lab) = answering() else { return };
    let workloads = ["agent/shortened", "micro/stat", "micro/read-1k"];
    let suite = suite(
        "budget = 1\nrounds = 1\ncall_timeout = 30.0",
        &["direct", "llm-history-given", "llm-generate-given"],
        &workloads.map(|name| (name, HOT)),
    );
    let out = lab.path("out");
    let output = suite_run(&lab.scratch, &suite, &out)
        .args(["--policy", "none"])
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
        let read = sample["calls"].get("read");
        assert_eq!(read, None, "wrong reads have no latency");
        assert!(sample["waited_ns"].as_u64() > sample["makespan_ns"].as_u64());
    }
    let cells = lines(&out, "cells.jsonl", "llm-history-given", "agent/shortened");
    for cell in cells {
        // From the warm-up pass.
        let counted = &cell["counted"];
        assert_eq!(counted["passes"], 1, "{cell}");
        assert_eq!(counted["daemon"]["store"]["answers-simulated"], 5);
    }
    // A timed read asks once, and nothing else asks.
    assert_eq!(lab.server.calls(), 6 * 5);
    for sample in samples(&out, "llm-history-given", "micro/stat") {
        assert_eq!(sample["outcome"], "ok", "{sample}");
    }
    assert!(samples(&out, "llm-history-given", "micro/read-1k").is_empty());
    for workload in workloads {
        let generate = samples(&out, "llm-generate-given", workload);
        assert_eq!(generate.len(), 6);
        for sample in generate {
            assert_eq!(sample["outcome"], "ok", "{sample}");
        }
    }

    let said = stdout(&output);
    has(&said, &["Failures: 6 of 66 passes: llm-history-given 6 wrong-data."]);
    let report = text_of(&out, "report.md");
    let parts = [
        "| agent/shortened hot | llm-history-given | 6 of 6 |",
        "41.7 %",
        "the answers of llm-history-given are simulated",
    ];
    has(&report, &parts);
    let page = text_of(&out, "report.html");
    has(&page, &["asks a model at each of the 1024 reads"]);
    let plan = text_of(&out, "plan.toml");
    has(&plan, &["call_timeout_ms = 30000", "--call-timeout 30"]);
    for text in [report, plan, said, stderr(&output)] {
        lacks(&text, &[KEY]);
    }
}

#[test]
fn a_run_without_a_model_skips_the_live_arm_and_says_how_to_install_one() {
    let Some(lab) = answering() else { return };
    let suite = suite(
        "budget = 1\nrounds = 1\ncall_timeout = 60.0",
        &["direct", "llm-history"],
        &[("micro/stat", HOT), ("agent/shortened", HOT)],
    );
    let out = lab.path("out");
    let output = suite_run(&lab.scratch, &suite, &out)
        .args(["--policy", "none"])
        .env("CTXBENCH_MODEL", lab.path("missing.gguf"))
        .succeeds();
    let said = stderr(&output);
    let parts = ["skipped: llm-history-live:", "make model", "the arm llm-history-recorded replays recorded answers"];
    has(&said, &parts);
    assert!(samples(&out, "llm-history-live", "micro/stat").is_empty());
    assert_eq!(samples(&out, "llm-history-recorded", "micro/stat").len(), 6);
    // The session's reads are replayed from the recording, without a live model.
    let session = samples(&out, "llm-history-recorded", "agent/shortened");
    assert_eq!(session.len(), 6);
    let recorded = ("llm-history-recorded", "agent/shortened");
    let cells = lines(&out, "cells.jsonl", recorded.0, recorded.1);
    let store = &cells[0]["counted"]["daemon"]["store"];
    assert_eq!(store["answers-recorded"], 5, "{store}");
    assert_eq!(store["model-failures"], 0, "{store}");
    assert_eq!(store.get("answers-live"), None, "{store}");
    let report = text_of(&out, "report.md");
    let recorded = "the answers of llm-history-recorded are recorded";
    has(&report, &[recorded]);
    lacks(&report, &["nothing on this page is simulated"]);
}

/// The children of `parent` whose command line contains `name`.
fn children(parent: u32, name: &str) -> Vec<String> {
    let mut pgrep = Command::new("pgrep");
    pgrep.args(["-P", &parent.to_string(), "-f", name]);
    let found = stdout(&pgrep.output().unwrap());
    found.split_whitespace().map(str::to_owned).collect()
}

/// Waits until none of these processes runs.
fn wait_for_end(processes: &[String]) {
    let runs = |pid: &String| Path::new("/proc").join(pid).exists();
    wait_for("the server's end", || !processes.iter().any(runs));
}

#[test]
fn a_runs_model_server_ends_with_the_run() {
    if !has_local_model() {
        return;
    }
    let suite = suite("rounds = 5\ncall_timeout = 60.0", &["direct", "llm-history"], &[("agent/shortened", HOT)]);
    for signal in ["-INT", "-KILL"] {
        let Some(scratch) = mountable() else { return };
        let out = scratch.path().join("out");
        let mut run = suite_run(&scratch, &suite, &out)
            .args(["--policy", "none"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let id = run.id();
        // To write the plan, the run starts a separate process for the program's version.
        wait_for("the plan", || out.join("plan.toml").exists());
        wait_for("the server", || !children(id, "llama-server").is_empty());
        let servers = children(id, "llama-server");
        assert_eq!(servers.len(), 1, "one server for all workspaces");
        let receipt = text_of(&out, "plan.toml");
        has(&receipt, &[models::SMOLLM2.2, "answers = \"live\""]);
        let killed = Command::new("kill").args([signal, &id.to_string()]).status();
        assert!(killed.unwrap().success());
        run.wait().unwrap();
        wait_for_end(&servers);
        // The killed process had mounted `fusectl`; the next run unmounts it.
        wait_for("the end of the mounts", || {
            let mut left = mounts_under(scratch.path()).into_iter();
            left.all(|mount| mount.ends_with("fusectl"))
        });
    }
}

#[test]
fn the_local_models_server_ends_with_the_mount() {
    if !has_local_model() {
        return;
    }
    let Some(lab) = answering() else { return };
    let tree = lab.path("tree.json").display().to_string();
    let mut command = ctxbench(["mount", "llm-generate"]);
    let dir = lab.scratch.dir("mnt");
    command.arg(&dir).args(["--tree", &tree, "--no-cache"]);
    command.args(["--answer-tokens", "16", "--prompt", "A list of fruits"]);
    let temporary = lab.scratch.dir("tmp");
    command.env("TMPDIR", &temporary);
    let mount = Mount::of(command, &dir);
    assert!(!text_of(&dir, "a.txt").trim().is_empty());
    assert_eq!(xattr(&dir.join("a.txt"), "user.llmfs.cut-off"), "1");
    let servers = children(mount.process.id(), "llama-server");
    assert!(!servers.is_empty(), "the server is a child of the mount");
    mount.crash();
    wait_for_end(&servers);
    has(&lab.log(), &["(live)"]);
    let left = temporary.read_dir().unwrap().count();
    assert_eq!(left, 0, "a killed mount leaves files behind");
}
