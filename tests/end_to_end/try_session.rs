//! `ctxbench try`: recorded sessions to an answer, in one command.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{
    Scratch, Succeeds, ctxbench, has, mountable, mounts_under, refused, signal, stderr, stdout, wait_for,
};

/// A conversation with file calls, in OpenAI's form.
fn conversation() -> String {
    let call = |id: usize, name: &str, args: Value| {
        json!({"role": "assistant", "content": null, "model": "gpt-5.5",
            "usage": {"prompt_tokens": 1000 * (id + 1), "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 900 * id}},
            "tool_calls": [{"id": format!("c{id}"), "type": "function", "function": {"name": name, "arguments": args.to_string()}}]})
    };
    let result = |id: usize, text: &str| json!({"role": "tool", "tool_call_id": format!("c{id}"), "content": text});
    let mut messages = vec![json!({"role": "user", "content": "Keep notes."})];
    for id in 0..12 {
        let path = format!("/w/p/notes/{id}.md");
        messages.push(call(3 * id, "write_file", json!({"path": path, "content": format!("secret {id}\n")})));
        messages.push(result(3 * id, "ok"));
        messages.push(call(3 * id + 1, "read_file", json!({"path": path})));
        messages.push(result(3 * id + 1, &format!("secret {id}\n")));
        messages.push(call(3 * id + 2, "bash", json!({"command": "make"})));
        messages.push(result(3 * id + 2, "done"));
    }
    json!({ "messages": messages }).to_string()
}

fn written(dir: &Path, name: &str, text: &str) -> String {
    let file = dir.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_recorded_session_is_answered_in_one_command() {
    let Some(scratch) = mountable() else {
        return;
    };
    let session = written(scratch.path(), "session.json", &conversation());
    let results = scratch.path().join("results");
    let output = ctxbench(["try", &session, "--budget", "3", "--results"])
        .arg(&results)
        .env("CTXBENCH_SCRATCH", scratch.path())
        .succeeds();
    let shown = stdout(&output);
    has(
        &shown,
        &[
            "format messages",
            "tool calls     36; ",
            "as reported ",
            "on gpt-5.5: $",
            "our ledger ",
            "Coding agent",
            "Large results",
            "Report (one file",
            "By these sessions alone, sqlite compared with a plain directory:",
        ],
    );
    // The answer names the session's file and its own model.
    has(&shown, &["session-session"]);
    // The recording has no times, and the sessions are no workloads of `run`.
    assert!(!shown.contains("inf") && !shown.contains("run --workload agent/session"), "{shown}");
    let runs: Vec<_> = fs::read_dir(&results).unwrap().collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let run = runs.into_iter().next().unwrap().unwrap().path();
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    has(&page, &["session.json", "openai", "on gpt-5.5", "USD, as reported", "Your sessions"]);
    the_printed_command_gives_the_printed_answer(&shown, &run);
    // No text of the session is in the results.
    let traces = fs::read_dir(run.join("sessions")).unwrap();
    for file in traces {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        assert!(!text.contains("secret") && !text.contains("notes/"), "{text}");
    }
}

/// The command behind "Why", and each policy that the run was made for, decide again as the screen says.
fn the_printed_command_gives_the_printed_answer(shown: &str, run: &Path) {
    let printed = shown.lines().find_map(|line| line.strip_prefix("Why, per use: ctxbench ")).unwrap();
    let words: Vec<&str> = printed.split(' ').collect();
    let output = ctxbench(&words[..]).output().unwrap();
    let rows = stdout(&output);
    let report: Value = serde_json::from_str(&fs::read_to_string(run.join("report.json")).unwrap()).unwrap();
    let option = |name: &str| words[1 + words.iter().position(|word| *word == name).unwrap()];
    let decisions = report["decisions"].as_array().unwrap();
    let decided = |one: &&Value| one["policy"] == *option("--policy") && one["candidate"] == *option("--candidate");
    let decision = decisions.iter().find(decided).unwrap();
    has(&rows, &[&format!("verdict: {}", decision["verdict"].as_str().unwrap().replace('-', " "))]);
    for row in decision["rows"].as_array().unwrap() {
        has(&rows, &[row["title"].as_str().unwrap()]);
    }
    // Without a policy, all of them decide again, with the same answers.
    let screen = stdout(&ctxbench(["decide"]).arg(run).output().unwrap());
    for answer in report["answer"]["uses"].as_array().unwrap() {
        let blanks = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        has(&blanks(&screen), &[&blanks(answer["advice"].as_str().unwrap().trim_end_matches('.'))]);
    }
    ctxbench(["report"]).arg(run).succeeds();
    let again: Value = serde_json::from_str(&fs::read_to_string(run.join("report.json")).unwrap()).unwrap();
    assert_eq!(again, report);
}

#[test]
fn an_interrupted_try_says_what_it_stopped_and_leaves_nothing() {
    let Some(scratch) = mountable() else {
        return;
    };
    let session = written(scratch.path(), "session.json", &conversation());
    let results = scratch.dir("results");
    let mut command = ctxbench(["try", &session, "--budget", "20", "--results"]);
    command.arg(&results).env("CTXBENCH_SCRATCH", scratch.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    wait_for("the replay", || {
        let mut runs = fs::read_dir(&results).unwrap();
        runs.any(|run| run.unwrap().path().join("samples.jsonl").exists())
    });
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    has(&stderr(&output), &["interrupted: the replay was stopped", "nothing is left behind"]);
    assert_eq!(fs::read_dir(&results).unwrap().count(), 0);
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn tokens_are_counted_without_a_replay_and_a_session_comes_from_anywhere() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let rollout = include_str!("../../workloads/importers/src/fixtures/codex-rollout.jsonl");
    let codex = written(dir, "home/.codex/sessions/2026/02/01/rollout-1.jsonl", rollout);
    written(dir, "home/.codex/sessions/2026/02/01/other.jsonl", "{}");
    let home = dir.join("home");
    let output =
        ctxbench(["try", "--session", "codex", "--no-replay"]).env("HOME", &home).env_remove("CODEX_HOME").succeeds();
    has(&stdout(&output), &["newest sessions of Codex", &codex, "format codex", "codex 0.98.0 on gpt-5.5"]);
    // Standard input, a directory, and a pattern.
    let input = fs::File::open(&codex).unwrap();
    let output = ctxbench(["try", "-", "--no-replay"]).stdin(Stdio::from(input)).succeeds();
    has(&stdout(&output), &["standard input", "format codex"]);
    let output = ctxbench(["try", "--no-replay"]).arg(home.join(".codex/**/roll*.jsonl")).succeeds();
    has(&stdout(&output), &["format codex"]);
    let pi = include_str!("../../workloads/importers/src/fixtures/pi.jsonl");
    written(dir, "many/a.jsonl", pi);
    written(dir, "many/b.jsonl", rollout);
    written(dir, "many/c.json", "{\"alpha\":1}");
    let output = ctxbench(["try", "--no-replay"]).arg(dir.join("many")).output().unwrap();
    // A part that failed is named, and the exit code says it.
    assert_eq!(output.status.code(), Some(1));
    has(
        &stdout(&output),
        &["2 sessions: $", "Large results", "Next, to replay the file calls and decide about files: ctxbench try "],
    );
    let unreadable = dir.join("many/c.json");
    has(&stderr(&output), &[&format!("1 of 3 files could not be read: {}\n  fix: ", unreadable.display())]);
    // A session with nothing to replay still has its tokens, and nothing is measured.
    let talk = r#"[{"role":"user","content":"Hello."},{"role":"assistant","content":"Hello."}]"#;
    let talk = written(dir, "talk.json", talk);
    let output = ctxbench(["try", &talk]).current_dir(dir).succeeds();
    has(
        &stdout(&output),
        &[
            "nothing to replay: no tool call",
            "tokens ",
            "nothing is decided about files",
            "Next, for the tokens of its context: ctxbench tokens ",
        ],
    );
    assert!(!dir.join("results").exists());
}

#[test]
fn a_file_that_is_not_a_session_is_named_or_described() {
    let scratch = Scratch::new();
    let file = |name: &str, text: &str| written(scratch.path(), name, text);
    has(&refused(&["try"]), &["--session claude-code"]);
    let database = file("goose.db", "SQLite format 3\u{0}");
    has(&refused(&["try", &database]), &["looks like an SQLite database", "opencode export"]);
    let other = file("x.json", "{\"alpha\":1}");
    has(&refused(&["try", &other]), &["with the fields alpha", "docs/ADDING-AN-IMPORTER.md"]);
}
