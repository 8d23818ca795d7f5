//! Scripted tasks on mail, tasks and logs: a short run of all arms, its decision, and a planted stale copy.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{
    Scratch, Succeeds, has, lines, measure, mountable, mounts_under, run, stderr, stdout, text_of, words,
};

const WORKLOADS: [&str; 3] = ["agent/inbox-find", "agent/inbox-triage", "agent/inbox-log"];

/// The run directory and the samples of a short run of the suite with more options.
fn brief(scratch: &Scratch, more: &[&str]) -> (PathBuf, Vec<Value>) {
    let line = "--suite inbox --seed 7 --budget 1 --epochs 3 --rounds 2";
    let (out, mut command) = measure(scratch, line);
    command.args(more).succeeds();
    assert!(mounts_under(scratch.path()).is_empty());
    let samples = lines(&out, "samples.jsonl");
    (out, samples)
}

fn samples_of<'a>(samples: &'a [Value], workload: &str, arm: &str) -> Vec<&'a Value> {
    let all = samples.iter();
    all.filter(|sample| sample["workload"] == workload && sample["arm"] == arm).collect()
}

#[test]
fn every_arm_answers_the_tasks_and_the_inbox_policy_is_decided() {
    let Some(scratch) = mountable() else { return };
    let (out, samples) = brief(&scratch, &[]);
    for workload in WORKLOADS {
        for arm in ["direct", "view-mail", "view-vsm", "tools-sql", "tools-mcp"] {
            let passes = samples_of(&samples, workload, arm);
            if (workload, arm) == ("agent/inbox-find", "view-vsm") {
                assert!(passes.is_empty(), "a controller's directory has no mail");
                continue;
            }
            assert!(passes.len() >= 6, "{workload} on {arm}: {}", passes.len());
            for sample in &passes {
                assert_eq!(sample["outcome"], "ok", "{sample}");
                let calls = sample["calls"]["tool-call"]["count"].as_u64();
                assert!(calls > Some(0), "{sample}");
            }
            let scored = passes.iter().filter_map(|sample| sample["scores"].get("task"));
            let scored: Vec<&Value> = scored.collect();
            assert!(!scored.is_empty(), "{workload} on {arm}");
            for scores in scored {
                for name in words("definition-tokens call-tokens result-tokens calls lag-us") {
                    let sum = scores[name]["sum"].as_u64();
                    assert!(sum > Some(0), "{workload} on {arm}: {name} of {scores}");
                }
                let is_stale = scores["stale-answers"]["sum"].as_u64() > Some(0);
                assert_eq!(is_stale, arm == "direct", "{workload} on {arm}: {scores}");
            }
        }
    }
    for workload in &WORKLOADS[1..] {
        let passes = samples_of(&samples, workload, "direct");
        let mut scored = passes.iter().filter_map(|sample| sample["scores"].get("programs"));
        let scores = scored.next().unwrap_or_else(|| panic!("no program answered {workload}"));
        for name in words("definition-tokens call-tokens result-tokens calls") {
            assert!(scores[name]["sum"].as_u64() > Some(0), "{workload}: {name} of {scores}");
        }
    }
    let dir = out.to_str().unwrap();
    for candidate in ["view-mail", "direct"] {
        let decided = run(["decide", dir, "--policy", "inbox", "--candidate", candidate]);
        let code = decided.status.code().unwrap();
        let said = stdout(&decided) + &stderr(&decided);
        assert!([10, 11].contains(&code), "{candidate}: {code}: {said}");
    }
    // The log is evidence for the controller's policy, too.
    let question = ["--policy", "cron-controller", "--candidate", "view-vsm"];
    let decided = stdout(&run([&["decide", dir][..], &question].concat()));
    let mut rows = decided.lines();
    let row = rows.find(|line| line.contains("Tokens for aggregated logs"));
    let row = row.and(rows.next());
    let row = row.unwrap_or_else(|| panic!("no row of the log in {decided}"));
    assert!(row.contains("×"), "{row}");
    let page = text_of(&out, "report.html");
    has(&page, &["Scripted tasks, in which no model chose the steps"]);
}

#[test]
fn a_copy_that_is_never_renewed_raises_stale_answers() {
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/agent");
    let shipped = text_of(&agent, "inbox-find.toml");
    let stale = |name: &str, every: &str| {
        let text = shipped
            .replace("name = \"agent/inbox-find\"", &format!("name = \"{name}\""))
            .replace("copied_every_s = 300", &format!("copied_every_s = {every}"));
        let scratch = Scratch::new();
        let file = scratch.path().join(format!("{name}.toml"));
        fs::write(&file, text).unwrap();
        let more = "--backend direct --policy none --workload";
        let more = [words(more), vec![file.to_str().unwrap()]].concat();
        let (_, samples) = brief(&scratch, &more);
        let passes = samples_of(&samples, name, "direct");
        let mut scored = passes.iter().filter_map(|sample| sample["scores"].get("task"));
        scored.next().unwrap()["stale-answers"]["sum"].as_u64().unwrap()
    };
    assert_eq!(stale("fresh", "5"), 0);
    assert_eq!(stale("planted", "100000"), 3);
}

#[test]
fn the_arms_are_listed_and_looked_at_by_the_doctor() {
    let listed = stdout(&run(["list"]));
    has(&listed, &words("view-mail view-vsm tools-sql tools-mcp"));
    let doctor = stdout(&run(["doctor"]));
    has(&doctor, &["tools-sql: ctxbench"]);
}
