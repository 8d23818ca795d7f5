//! Backends that a user defines in a TOML file, without code.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::common::{
    CTXBENCH, Scratch, Succeeds, as_root, ctxbench, has, lacks, lines, measure, mounts_under, no_process_of, refused,
    rooted, signal, stalling, stderr, stdout, suite, suite_run, text_of, words,
};

/// The only TOML block of the page on adding a foreign file system.
fn documented() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = text_of(&docs, "ADDING-A-BACKEND.md");
    let (_, after) = page.split_once("```toml\n").unwrap();
    after.split_once("```").unwrap().0.to_owned()
}

fn write(scratch: &Scratch, text: &str) -> PathBuf {
    let file = scratch.path().join("my-bind.toml");
    fs::write(&file, text).unwrap();
    file
}

/// Checks that an arm has passes, and that all of them ended well.
fn all_ok(results: &Path, arm: &str) {
    let samples = lines(results, "samples.jsonl");
    let mut passes = samples.iter().filter(|sample| sample["arm"] == arm).peekable();
    assert!(passes.peek().is_some(), "{samples:?}");
    assert!(passes.all(|sample| sample["outcome"] == "ok"), "{samples:?}");
}

#[test]
fn the_documented_example_is_measured_like_every_other_backend() {
    let Some(scratch) = rooted() else { return };
    let file = write(&scratch, &documented());
    let line = "--workload micro/read-1k --state hot --budget 60 --epochs 3 --rounds 1 --backend";
    let (results, mut run) = measure(&scratch, line);
    run.arg(&file).succeeds();
    has(&text_of(&results, "report.md"), &["my-bind"]);
    all_ok(&results, "my-bind");
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn several_clients_leave_a_foreign_directory_as_it_was() {
    let scratch = Scratch::new();
    let theirs = scratch.dir("theirs");
    let line = "--suite load --backend directory --budget 60 --epochs 3 --rounds 1";
    let (out, mut run) = measure(&scratch, line);
    let output = run.env("CTXBENCH_DIRECTORY", &theirs).succeeds();
    has(&stdout(&output), &["eight-clients"]);
    all_ok(&out, "directory");
    // The calls of eight processes are timed as one.
    let samples = lines(&out, "samples.jsonl");
    let clients = |sample: &&serde_json::Value| sample["workload"] == "micro/eight-clients";
    for sample in samples.iter().filter(clients) {
        assert_eq!(sample["calls"]["concurrent"]["count"], 1, "{sample}");
    }
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn a_call_of_an_open_loop_that_starts_late_counts_from_its_scheduled_start() {
    let scratch = Scratch::new();
    let own = scratch.dir("0");
    for file in 0..4 {
        fs::write(own.join(file.to_string()), [0; 16]).unwrap();
    }
    let clients =
        r#"{"processes": 1, "files": 4, "bytes": 16, "calls": 500, "writes": 10, "every_us": 10000, "seed": 1}"#;
    let mut worker = ctxbench(["worker"]);
    worker.arg(scratch.path()).args(["0", clients]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut worker = worker.spawn().unwrap();
    let mut told = BufReader::new(worker.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    worker.stdin.take().unwrap().write_all(b"go").unwrap();
    // All calls whose start is scheduled in this pause are late, not only the one that is under way.
    std::thread::sleep(Duration::from_millis(500));
    signal(&worker, Signal::STOP);
    std::thread::sleep(Duration::from_secs(3));
    signal(&worker, Signal::CONT);
    line.clear();
    told.read_line(&mut line).unwrap();
    assert!(worker.wait().unwrap().success());
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("done"));
    let times: Vec<u64> = words.map(|word| word.parse().unwrap()).collect();
    let late = times.iter().filter(|time| **time > 500_000_000).count();
    assert_eq!(times.len(), 500);
    assert!((150..490).contains(&late), "{late} of 500 calls were late");
}

/// A bind mount that requests the S3 server, and writes what it received next to its site.
const ON_A_BUCKET: &str = r#"
name = "my-bucket-{s3_server}"
summary = "a bind mount that knows of a bucket"
durability = "as the file system below promises"
persistent = true
daemons = 0
version = ["mount", "--version"]
setup = [["sh", "-c", "cp \"$1/key\" \"$TOLD/$2.key\"; stat -c %a \"$1/key\" > \"$TOLD/$2.mode\"; echo \"$3 $SECRET\" > \"$TOLD/$2\"", "sh", "{site}", "{id}", "{s3_endpoint} {s3_bucket} {s3_region} {s3_prefix} {s3_server}"]]
mount = ["mount", "--bind", "{data}", "{mount}"]
counters = ["echo", "asked 7"]
unmount = ["umount", "{mount}"]

[environment]
SECRET = "{s3_secret_key}"

[[file]]
path = "{site}/key"
content = "{s3_access_key} {s3_secret_key}"
"#;

/// The contents of all files below a directory.
fn contents(dir: &Path) -> String {
    let entries = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let texts = entries.map(|path| {
        if path.is_dir() { contents(&path) } else { String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned() }
    });
    texts.collect()
}

#[test]
fn a_definition_receives_the_bucket_and_results_hide_its_keys() {
    let Some(scratch) = rooted() else { return };
    let file = write(&scratch, ON_A_BUCKET);
    let told = scratch.dir("told");
    let line = "--workload micro/stat --state hot --budget 60 --epochs 3 --rounds 1 --no-probes --backend";
    let (results, mut run) = measure(&scratch, line);
    let output = run.arg(&file).env("TOLD", &told).env_remove("CTXBENCH_S3_ENDPOINT").succeeds();
    let of_mine = |file: &str| {
        let text = text_of(&results, file);
        let mut lines = text.lines();
        let mine = lines.find(|line| line.contains("my-bucket-"));
        mine.unwrap().to_owned()
    };
    let mine = of_mine("samples.jsonl");
    has(&mine, &["\"ok\""]);
    has(&of_mine("cells.jsonl"), &["asked"]);

    let mut files = fs::read_dir(&told).unwrap().map(|it| it.unwrap().path());
    let mode = files.find(|path| path.extension().is_some_and(|e| e == "mode"));
    let mode = mode.unwrap();
    assert_eq!(fs::read_to_string(&mode).unwrap(), "600\n");
    let line = fs::read_to_string(mode.with_extension("")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert!(words[0].starts_with("http://127.0.0.1:"), "{line}");
    assert!(words[3].starts_with("ctxbench-blocks/") && !words[3].ends_with('/'));
    has(&mine, &[&format!("my-bucket-{}", words[4])]);
    let keys = fs::read_to_string(mode.with_extension("key")).unwrap();
    let (access_key, secret_key) = keys.split_once(' ').unwrap();
    assert_eq!(words[5], secret_key);
    let said = contents(&results) + &stdout(&output) + &stderr(&output);
    has(&said, &["my-bucket-"]);
    lacks(&said, &[secret_key, access_key]);
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn a_run_records_a_stalled_peer_as_a_hang_and_continues() {
    let Some(scratch) = as_root() else { return };
    let told = scratch.dir("told");
    let condition = r#"[ -e \"$1/p00001/files\" ]"#;
    let file = write(&scratch, &stalling("my-stalling", &told, condition));
    let begun = Instant::now();
    let line = "--workload micro/list-1000-attributes --state hot --no-probes --budget 60 \
                --epochs 3 --rounds 2 --call-timeout 2 --backend";
    let (results, mut run) = measure(&scratch, line);
    run.arg(&file).succeeds();
    assert!(begun.elapsed() < Duration::from_secs(400));
    let samples = lines(&results, "samples.jsonl");
    // Per epoch, both `direct` arms have a warm-up round and two rounds. The peer is excluded after its
    // first round.
    assert_eq!(samples.len(), 3 * (2 * 3 + 1), "{samples:?}");
    for sample in &samples {
        if sample["arm"] != "my-stalling" {
            assert_eq!(sample["outcome"], "ok", "{sample}");
            continue;
        }
        assert_eq!(sample["outcome"], "hang", "{sample}");
        // The watchdog aborts a call after twice its limit.
        let parts = ["no answer after ", "its connection was aborted"];
        has(sample["reason"].as_str().unwrap(), &parts);
        assert_eq!(sample["makespan_ns"], 0, "what hung has no latency");
    }
    let cells = lines(&results, "cells.jsonl").len();
    assert_eq!(cells, 3 * 3, "all cells are recorded");
    has(&text_of(&results, "report.md"), &["hang"]);
    // The hang leaves no mount and no process.
    assert!(mounts_under(scratch.path()).is_empty());
    // One was tried before the three epochs.
    no_process_of(&told, 1 + 3);
}

/// A definition with these lines.
fn defined(lines: &str) -> String {
    format!("name = 'my-own'\nsummary = 's'\ndurability = 'd'\npersistent = true\ndaemons = 1\n{lines}\n")
}

#[test]
fn a_named_backend_that_cannot_be_measured_is_refused_before_the_run() {
    let Some(scratch) = as_root() else { return };
    let daemon = format!("mount = ['{CTXBENCH}', 'mount', '--daemon', '--log', '{{site}}/log', 'memory', '{{mount}}']");
    let read_only = "mount = ['mount', '-t', 'tmpfs', '-o', 'ro', 'none', '{mount}']";
    for (lines, parts) in [
        (
            "mount = ['no-such-program', '{mount}']",
            &["cannot use the backend my-own", "no-such-program", "fix: install it"][..],
        ),
        ("mount = ['false']", &["it cannot be mounted: my-own could not be mounted", "false: exit code 1"]),
        (read_only, &["it is a read-only file system", "fix: mount it writable"]),
        (&daemon, &["the daemon runs in the background", "`-f`", "`stays = true`"]),
        (&format!("stays = true\n{daemon}"), &["the daemon runs in the background", "`-f`", "`stays = true`"]),
    ] {
        let file = write(&scratch, &defined(lines));
        let (out, mut run) = measure(&scratch, "--workload micro/stat --state hot --backend");
        let output = run.arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{lines}");
        let said = stderr(&output);
        has(&said, parts);
        assert_eq!(said.matches("ctxbench: ").count(), 1, "{said}");
        assert!(!out.exists(), "{lines}");
        assert!(mounts_under(scratch.path()).is_empty(), "{lines}");
    }
    let line = "run --workload micro/read-1k --state hot --backend state";
    has(&refused(&words(line)), &["no cell of this run can be measured on state", "tool calls only"]);
}

#[test]
fn a_suite_skips_a_file_system_that_cannot_be_mounted_and_says_why() {
    let Some(scratch) = as_root() else { return };
    let file = write(&scratch, &defined("mount = ['false']"));
    let backends = ["direct", file.to_str().unwrap()];
    let text = suite("budget = 2\nrounds = 1", &backends, &[("micro/stat", &["hot"])]);
    let out = scratch.path().join("run");
    let output = suite_run(&scratch, &text, &out).succeeds();
    has(&stderr(&output), &["skipped: my-own: it cannot be mounted", "it takes about "]);
    has(&text_of(&out, "report.html"), &["SKIPPED: it cannot be mounted"]);
}
