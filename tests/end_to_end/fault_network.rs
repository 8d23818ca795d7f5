//! `ctxbench fault` with the groups `s3` and `llm`: faults of the bucket and of the model, over real
//! mounts.

use std::path::Path;
use std::process::Command;

use crate::common::{CTXBENCH, mountable};
use serde_json::Value;

/// Runs scenarios and returns their outcomes.
fn play(out: &Path, backends: &[&str], scenarios: &[&str]) -> Vec<Value> {
    let mut command = Command::new(CTXBENCH);
    command.arg("fault").arg("--results").arg(out);
    command.arg("--scratch").arg(out.parent().unwrap());
    for backend in backends {
        command.args(["--backend", backend]);
    }
    for scenario in scenarios {
        command.args(["--scenario", scenario]);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let run = std::fs::read_dir(out)
        .unwrap()
        .next()
        .expect(&said)
        .unwrap();
    let lines = std::fs::read_to_string(run.path().join("fault-outcomes.jsonl")).unwrap();
    let outcomes: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(outcomes.len(), backends.len() * scenarios.len(), "{said}");
    outcomes
}

#[test]
fn a_mount_reports_bucket_faults_as_errors_and_loses_nothing() {
    let Some(scratch) = mountable() else { return };
    let out = scratch.path().join("results");
    let scenarios = [
        "s3-short-body",
        "s3-wrong-bytes",
        "s3-stale-list",
        "s3-lost-answers",
        "s3-partition-in-sync",
        "s3-conflict",
    ];
    for outcome in play(&out, &["s3-embedded"], &scenarios) {
        assert_eq!(outcome["status"], "ran", "{outcome:#}");
        assert_eq!(
            outcome["breaches"].as_array().unwrap().len(),
            0,
            "{outcome:#}"
        );
        for (loss, audit) in outcome["audits"].as_object().unwrap() {
            assert_eq!(audit["verdict"], "valid", "{loss}: {outcome:#}");
        }
        let label = outcome["label"].as_str().unwrap();
        assert!(label.contains("simulated"), "{label}");
        let seen = outcome["seen"].as_array().unwrap();
        assert!(
            seen.iter().all(|seen| seen["what"] == "errno"),
            "{outcome:#}"
        );
        match outcome["scenario"].as_str().unwrap() {
            "s3-conflict" => assert_eq!(outcome["facts"]["conflicts_detected"], 5),
            "s3-partition-in-sync" => assert_eq!(outcome["facts"]["commits_of_the_batch"], 1),
            // A fault that hit no request would prove nothing.
            _ => assert!(
                outcome["facts"]["requests_hit"].as_u64() > Some(0),
                "{outcome:#}"
            ),
        }
    }
}

#[test]
fn a_mount_commits_every_change_once_after_an_outage() {
    let Some(scratch) = mountable() else { return };
    let out = scratch.path().join("results");
    let outcomes = play(&out, &["s3-embedded"], &["s3-slow-down"]);
    let outcome = &outcomes[0];
    assert_eq!(outcome["status"], "ran", "{outcome:#}");
    let mut breaches = outcome["breaches"].as_array().unwrap().clone();
    // The limit holds for release builds. The limit for debug builds is below.
    breaches.retain(|breach| !breach.as_str().unwrap().starts_with("the daemon grew"));
    assert_eq!(breaches.len(), 0, "{outcome:#}");
    assert_eq!(outcome["recovery"]["how"], "by-itself", "{outcome:#}");
    let facts = &outcome["facts"];
    assert!(facts["commits"].as_u64() > Some(0), "{outcome:#}");
    let kib = |name: &str| facts[name].as_u64().unwrap();
    // The daemon must not hold even half of the data written during the outage.
    // The kernel counts both at different moments: a daemon that did not grow can have the lower peak.
    let grown = kib("rss_peak_kib").saturating_sub(kib("rss_before_kib"));
    assert!(grown < kib("written_meanwhile_kib") / 2, "{outcome:#}");
}

#[test]
fn a_mount_reports_model_faults_as_errors_never_as_an_empty_file() {
    let Some(scratch) = mountable() else { return };
    let out = scratch.path().join("results");
    let backends = ["llm-history-scripted", "llm-generate-scripted"];
    let scenarios = ["llm-empty", "llm-context-overflow", "llm-wrong-content"];
    for outcome in play(&out, &backends, &scenarios) {
        if outcome["scenario"] == "llm-wrong-content" && outcome["backend"] != backends[0] {
            assert_eq!(outcome["status"], "skipped", "{outcome:#}");
            continue;
        }
        assert_eq!(outcome["status"], "ran", "{outcome:#}");
        assert!(
            outcome["facts"]["model_calls"].as_u64() > Some(0),
            "{outcome:#}"
        );
        let seen = &outcome["seen"][0];
        if outcome["scenario"] == "llm-wrong-content" {
            // The mount cannot detect this. The report records that wrong bytes were read.
            assert_eq!(seen["what"], "wrong-bytes", "{outcome:#}");
        } else {
            assert_eq!(seen["errno"], 5, "{outcome:#}");
            assert!(outcome["facts"]["log_line"].is_string(), "{outcome:#}");
            assert_eq!(
                outcome["breaches"].as_array().unwrap().len(),
                0,
                "{outcome:#}"
            );
            assert_eq!(outcome["recovery"]["how"], "by-itself", "{outcome:#}");
        }
    }
}
