//! What commands print for programs.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{
    Mount, Scratch, Succeeds, ctxbench, entry_of, every_command, mountable, refused, stderr, suite, suite_run, words,
};

/// The published schema of commands, and the commands whose output was compared with it.
struct Published {
    schema: Value,
    compared: RefCell<BTreeSet<String>>,
}

impl Published {
    fn read() -> Self {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/commands.schema.json");
        let schema = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        Self { schema, compared: RefCell::default() }
    }

    /// The commands with a schema. A definition with a capital letter is a part of others.
    fn commands(&self) -> BTreeSet<String> {
        let names = self.schema["$defs"].as_object().unwrap().keys();
        names.filter(|name| name.starts_with(|c: char| c.is_lowercase())).cloned().collect()
    }

    fn check(&self, name: &str, document: &Value) {
        let mut schema = self.schema.clone();
        assert!(schema["$defs"][name].is_object(), "docs/commands.schema.json has no {name}");
        schema["$ref"] = format!("#/$defs/{name}").into();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors = validator.iter_errors(document).map(|error| format!("{}: {error}", error.instance_path));
        let errors: Vec<String> = errors.collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        assert!(!validator.is_valid(&json!({"other": 1})), "{name} accepts everything");
        self.compared.borrow_mut().insert(name.to_owned());
    }

    /// What a command prints: one document, which follows the schema, and which orders nothing from a terminal.
    #[track_caller]
    fn document(&self, name: &str, mut command: Command) -> Value {
        let output = command.output().unwrap();
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", stderr(&output)));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{text}");
        self.check(name, &document);
        document
    }

    /// What a command line prints with `--format json`.
    #[track_caller]
    fn printed(&self, name: &str, line: &str, last: &[&Path]) -> Value {
        let mut command = ctxbench(words(line));
        command.args(last).args(["--format", "json"]);
        self.document(name, command)
    }
}

/// Whether a list has an object with this value of a field.
fn has_value(list: &Value, field: &str, value: &str) -> bool {
    list.as_array().unwrap().iter().any(|entry| entry[field] == value)
}

/// Whether a command can print JSON, by its help.
fn prints_json(help: &str) -> bool {
    let words: Vec<&str> = help.split(|c: char| c.is_whitespace() || "[],".contains(c)).collect();
    let values = words.iter().position(|word| *word == "--format").map_or(&[][..], |at| &words[at + 1..]);
    // The values of an option end where the next one begins.
    let mut values = values.iter().take_while(|word| !word.starts_with("--"));
    values.any(|word| *word == "json:" || *word == "json") || help.lines().any(|line| line.trim() == "--json")
}

#[test]
fn every_command_that_prints_json_has_a_schema() {
    let commands = every_command();
    let printing = commands.iter().filter(|(_, help)| prints_json(help));
    let mut printing: BTreeSet<String> = printing.map(|(command, _)| command.replace(' ', "-")).collect();
    assert!(printing.contains("s3-log") && printing.contains("tokens") && !printing.contains("try"), "{printing:?}");
    // The option of a command prints another document.
    printing.insert("doctor-store".to_owned());
    assert_eq!(Published::read().commands(), printing);
}

#[test]
fn every_command_prints_json_by_its_schema() {
    let Some(scratch) = mountable() else { return };
    let published = Published::read();
    of_this_machine(&published, &scratch);
    of_a_memory(&published, &scratch);
    of_a_bucket(&published, &scratch);
    of_sessions(&published);
    of_runs(&published, &scratch);
    assert_eq!(*published.compared.borrow(), published.commands(), "the first are compared, the others published");
}

fn of_this_machine(published: &Published, scratch: &Scratch) {
    let listed = published.printed("list", "list", &[]);
    assert!(has_value(&listed["backends"], "name", "sqlite") && has_value(&listed["policies"], "name", "inbox"));
    let found = published.printed("doctor", "doctor", &[]);
    assert!(has_value(&found["findings"], "label", "kernel"), "{found}");

    let dir = scratch.dir("notes");
    let mut command = ctxbench(["mount", "--daemon", "sqlite", "--db"]);
    assert!(command.arg(scratch.path().join("notes.db")).arg(&dir).status().unwrap().success());
    let at = dir.to_str().unwrap();
    assert!(has_value(&published.printed("status", "status", &[]), "dir", at));
    assert_eq!(published.printed("unmount", "unmount", &[&dir]), json!({"dir": at, "had_daemon": true}));
    let checked = published.printed("doctor-store", "doctor --store", &[&scratch.path().join("notes.db")]);
    assert_eq!(checked["is_whole"], true);
}

fn of_a_memory(published: &Published, scratch: &Scratch) {
    let dir = scratch.dir("avm");
    let mount = Mount::new("agent-memory", &dir, &["--agent-id", "akashi"]);
    let kept = published.printed("remember", "remember --title rsi_rule", &[&dir, Path::new("RSI above 70: exit")]);
    assert_eq!(kept, json!({"path": "memory/private/akashi/rsi_rule.md"}));
    let found = published.printed("recall", "recall", &[&dir, Path::new("when to exit")]);
    assert!(found["answer"].as_str().unwrap().ends_with("RSI above 70: exit\n"), "{found}");
    mount.end();
}

fn of_a_bucket(published: &Published, scratch: &Scratch) {
    let shared = scratch.dir("shared");
    scratch.dir("shared/ctxbench");
    let dir = scratch.dir("mnt");
    let options = format!("--agent-id alice --endpoint file://{}", shared.display());
    let mut mount = ctxbench(["mount", "s3", "--cache"]);
    mount.arg(scratch.path().join("cache.db")).args(words(&options)).arg(&dir);
    let mount = Mount::of(mount, &dir);
    let hostile = "a\u{1b}\u{9b}\u{202e}é\\.md";
    fs::write(dir.join(hostile), "a").unwrap();
    assert_eq!(published.printed("s3-sync", "s3 sync", &[&dir])["is_in_bucket"], true);
    fs::rename(dir.join(hostile), dir.join("b.md")).unwrap();
    mount.end();
    let checked = published.printed("s3-check", &format!("s3 check {options}"), &[]);
    assert!(checked["problems"] == json!([]) && checked["chunks"].as_u64() > Some(0), "{checked}");
    let collected = published.printed("s3-gc", &format!("s3 gc --older-than 30d --dry-run {options}"), &[]);
    assert_eq!((&collected["objects"], &collected["is_dry_run"]), (&json!(0), &json!(true)));
    // A document a line.
    let log = ctxbench(words(&format!("s3 log --format json {options}"))).succeeds();
    let log = String::from_utf8(log.stdout).unwrap();
    assert!(!log.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{log}");
    let commits: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    commits.iter().for_each(|commit| published.check("s3-log", commit));
    let renamed = json!({"change": "renamed", "path": "b.md", "from": hostile});
    assert!(commits[0]["changes"].as_array().unwrap().contains(&renamed), "{commits:?}");
}

fn of_sessions(published: &Published) {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../workloads/traces/claude-code-write-heavy.trace.jsonl");
    let shown = published.printed("trace-show", "trace show", &[Path::new(trace)]);
    let checked = published.printed("trace-check", "trace check", &[Path::new(trace)]);
    assert_eq!(checked["coverage"], shown["coverage"]);
    for line in [
        "tokens --json --policy inline --policy evict --advise --workload agent/offload-comparison",
        &format!("tokens --json --on 2026-11-01 {trace}"),
    ] {
        let counted = published.document("tokens", ctxbench(words(line)));
        assert!(counted[0]["policies"][0]["calls"].as_u64() > Some(1), "{counted}");
    }
}

/// A run of one cell. A shard, so that it can be merged.
fn small_run(scratch: &Scratch, out: &Path) -> Command {
    let settings = "budget = 1\nrounds = 1\nprobes = false\npolicy = 'cron-controller'";
    let text = suite(settings, &["direct", "memory", "sqlite"], &[("micro/stat", &["hot"])]);
    let mut command = suite_run(scratch, &text, out);
    command.args(["--shard", "0/1", "--format", "json"]);
    command
}

fn of_runs(published: &Published, scratch: &Scratch) {
    // A run directory may come from another machine, with its name.
    let hostile = OsStr::from_bytes(b"ru\xff\x1b\xc2\x9bn\xe2\x80\xae");
    let [old, new]: [PathBuf; 2] = ["old", "new"].map(|name| {
        let dir = scratch.dir(name).join(hostile);
        let answered = published.document("run", small_run(scratch, &dir));
        assert_eq!(answered["run"], *dir.to_string_lossy());
        dir
    });
    let reported = published.printed("report", "report", &[&old]);
    assert!(reported["answer"]["uses"][0]["policy"] == "cron-controller", "{reported}");
    let merged = scratch.path().join("merged");
    published.printed("merge", "merge --out", &[&merged, &old]);
    let decided = published.printed("decide", "decide --policy all", &[&old]);
    assert!(has_value(&decided["decisions"], "candidate", "sqlite"), "{decided}");
    let claims = published.printed("claims", "claims", &[&old]);
    assert_eq!(claims["runs"][0], *old.to_string_lossy());
    let ranked = published.printed("compare", "compare", &[&old]);
    assert!(ranked["cells"].is_array() && ranked["pairs"].is_number(), "{ranked}");
    let compared = published.printed("compare", "compare", &[&old, &new]);
    assert_eq!(compared["old"]["dir"], *old.to_string_lossy());
    let repeated = published.printed("reproduce", "reproduce --of", &[&old, &new]);
    assert!(has_value(&repeated["arms"], "arm", "sqlite"), "{repeated}");
    let verified = published.printed("verify", "verify", &[&old]);
    assert_eq!(verified["holds"], true, "{verified}");
    fs::write(old.join("cells.csv"), "changed\n").unwrap();
    let verified = published.printed("verify", "verify", &[&old]);
    assert!(has_value(&verified["differences"], "file", "cells.csv"), "{verified}");

    let results = scratch.dir("results");
    let tried = published.printed("conform", "conform direct --only rename --results", &[&results]);
    assert!(tried["features"][0]["results"]["direct"]["outcome"].is_string(), "{tried}");
    let reported = published.printed("report", "report", &[&entry_of(&results)]);
    assert_eq!(reported["answer"]["uses"], json!([]));
    let results = scratch.dir("faults");
    let mut faults = ctxbench(words("fault --backend direct --scenario nothing-broken --results"));
    faults.arg(&results).arg("--scratch").arg(scratch.dir("work")).succeeds();
    let reported = published.printed("report", "report", &[&entry_of(&results)]);
    assert!(reported["outcomes"].is_object(), "{reported}");
}

#[test]
fn a_refused_command_prints_no_json() {
    for line in [
        "run --suite /none",
        "report /none",
        "merge --out /none/out /none",
        "decide /none",
        "claims /none",
        "compare /none",
        "compare /none /none",
        "reproduce --of /none /none",
        "verify /none",
        "trace show /none",
        "trace check /none",
        "doctor --store /none",
        "unmount /none",
        "conform /none",
        "s3 log --agent-id alice --endpoint file:///none",
        "s3 check --agent-id alice --endpoint file:///none",
        "s3 gc --older-than 30d --agent-id alice --endpoint file:///none",
        "s3 sync /none",
    ] {
        let message = refused(&words(&format!("{line} --format json")));
        assert!(message.contains("none"), "{line}: {message}");
    }
    assert!(refused(&["tokens", "--json", "/none"]).contains("/none"));
}
