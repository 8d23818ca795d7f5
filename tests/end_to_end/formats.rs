//! What commands print for programs.

use std::path::Path;

use serde_json::{Value, json};

use crate::common::{Mount, ctxbench, mountable, stderr, words};

/// The output of a command, which must follow its published schema.
fn printed(name: &str, line: &str, last: &[&Path]) -> Value {
    let output = ctxbench(words(line)).args(last).args(["--format", "json"]).output().unwrap();
    let log = stderr(&output);
    let document: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{line}: {error}: {log}"));
    let published = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.schema.json");
    let mut schema: Value = serde_json::from_str(&std::fs::read_to_string(published).unwrap()).unwrap();
    schema["$ref"] = format!("#/$defs/{name}").into();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors = validator.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path));
    let errors: Vec<String> = errors.collect();
    assert!(errors.is_empty(), "{line}: {errors:#?}");
    assert!(!validator.is_valid(&json!({"other": 1})), "{name} accepts everything");
    document
}

/// Whether a list has an object with this value of a field.
fn has_value(list: &Value, field: &str, value: &str) -> bool {
    list.as_array().unwrap().iter().any(|entry| entry[field] == value)
}

#[test]
fn commands_print_json_by_their_schema() {
    let Some(scratch) = mountable() else { return };
    let listed = printed("list", "list", &[]);
    assert!(has_value(&listed["backends"], "name", "sqlite") && has_value(&listed["policies"], "name", "inbox"));
    let found = printed("doctor", "doctor", &[]);
    assert!(has_value(&found["findings"], "label", "kernel"), "{found}");

    let dir = scratch.dir("notes");
    let mut command = ctxbench(["mount", "--daemon", "sqlite", "--db"]);
    assert!(command.arg(scratch.path().join("notes.db")).arg(&dir).status().unwrap().success());
    let at = dir.to_str().unwrap();
    assert!(has_value(&printed("status", "status", &[]), "dir", at));
    assert_eq!(printed("unmount", "unmount", &[&dir]), json!({"dir": at, "had_daemon": true}));
    let checked = printed("doctor-store", "doctor --store", &[&scratch.path().join("notes.db")]);
    assert_eq!(checked["is_whole"], true);

    let tried = printed("conform", "conform direct --only rename --results", &[&scratch.dir("results")]);
    assert!(tried["features"][0]["results"]["direct"]["outcome"].is_string(), "{tried}");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/traces/claude-code-write-heavy.trace.jsonl");
    let shown = printed("trace-show", "trace show", &[Path::new(trace)]);
    let checked = printed("trace-check", "trace check", &[Path::new(trace)]);
    assert_eq!(checked["coverage"], shown["coverage"]);
}

#[test]
fn memory_commands_print_json_by_their_schema() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    let kept = printed("remember", "remember --title rsi_rule", &[&dir, Path::new("RSI above 70: exit")]);
    assert_eq!(kept, json!({"path": "memory/private/akashi/rsi_rule.md"}));
    let found = printed("recall", "recall", &[&dir, Path::new("when to exit")]);
    assert!(found["answer"].as_str().unwrap().ends_with("RSI above 70: exit\n"), "{found}");
    mount.end();
}

#[test]
fn commands_on_a_bucket_print_json_by_their_schema() {
    let Some(scratch) = mountable() else { return };
    let shared = scratch.dir("shared");
    scratch.dir("shared/ctxbench");
    let dir = scratch.dir("mnt");
    let options = format!("--agent-id alice --endpoint file://{}", shared.display());
    let mut mount = ctxbench(["mount", "s3", "--cache"]);
    mount.arg(scratch.path().join("cache.db")).args(words(&options)).arg(&dir);
    let mount = Mount::of(mount, &dir);
    std::fs::write(dir.join("a.md"), "a").unwrap();
    assert_eq!(printed("s3-sync", "s3 sync", &[&dir])["is_in_bucket"], true);
    mount.end();
    let checked = printed("s3-check", &format!("s3 check {options}"), &[]);
    assert!(checked["problems"] == json!([]) && checked["chunks"].as_u64() > Some(0), "{checked}");
    let collected = printed("s3-gc", &format!("s3 gc --older-than 30d --dry-run {options}"), &[]);
    assert_eq!((&collected["objects"], &collected["is_dry_run"]), (&json!(0), &json!(true)));
}
