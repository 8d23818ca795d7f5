//! The `s3` file system without a server, in a directory that hosts share, and with the keys of a role.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use fuse::attribute;
use workloads::catalogue;
use workloads::script::FileOp;

use crate::common::{
    Mount, Scratch, Server, Succeeds, as_root, ctxbench, has, lacks, mountable, stderr, stdout, text_of, wait_for,
};

/// Mounts alice's memory in a directory, with a cache of its own.
fn mount(scratch: &Scratch, shared: &Path, writer: &str) -> Mount {
    let dir = scratch.path().join(writer);
    // A dead mount exists, but a `stat` of it fails.
    let _ = fs::create_dir_all(&dir);
    let mut command = ctxbench(["mount", "s3", "--agent-id", "alice", "--poll", "50", "--delay", "20"]);
    command.args(["--writer", writer, "--endpoint", &format!("file://{}", shared.display()), "--embeddings", "none"]);
    command.arg("--cache");
    command.arg(scratch.path().join(format!("{writer}.db"))).arg(&dir);
    Mount::of(command, &dir)
}

#[test]
fn hosts_share_a_memory_in_a_directory_without_a_server_and_a_key() {
    let Some(scratch) = mountable() else { return };
    let shared = scratch.dir("shared");
    let endpoint = format!("file://{}", shared.display());
    let command = |words: &[&str]| {
        let mut command = ctxbench(["s3"]);
        command.args(words).args(["--agent-id", "alice", "--endpoint", &endpoint]);
        command.env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nonexistent");
        command
    };
    let missing = command(&["log"]).output().unwrap();
    assert!(!missing.status.success());
    has(&stderr(&missing), &["there is no directory", "mkdir -p"]);
    fs::create_dir(shared.join("ctxbench")).unwrap();

    let (a, b) = (mount(&scratch, &shared, "a"), mount(&scratch, &shared, "b"));
    fs::write(a.dir.join("journal.log"), "from a\n").unwrap();
    wait_for("the note", || fs::read_to_string(b.dir.join("journal.log")).is_ok_and(|text| text == "from a\n"));
    let append = |mount: &Mount, line: &str| {
        let file = fs::File::options().append(true).open(mount.dir.join("journal.log"));
        file.unwrap().write_all(line.as_bytes()).unwrap();
    };
    append(&a, "a again\n");
    append(&b, "b too\n");
    let both = |mount: &Mount| {
        let text = fs::read_to_string(mount.dir.join("journal.log")).unwrap();
        ["from a\n", "a again\n", "b too\n"].iter().all(|line| text.contains(line))
    };
    wait_for("both lines on both hosts", || both(&a) && both(&b));
    // A killed host has lost nothing, and a directory that is away for a while is as a server that is.
    fs::write(a.dir.join("plan.md"), "step 1\n").unwrap();
    wait_for("the plan", || b.dir.join("plan.md").exists());
    a.crash();
    fs::rename(shared.join("ctxbench"), shared.join("away")).unwrap();
    fs::write(b.dir.join("plan.md"), "step 2\n").unwrap();
    let sync = ctxbench(["s3", "sync"]).arg(&b.dir).output().unwrap();
    assert!(!sync.status.success(), "{}", stdout(&sync));
    fs::rename(shared.join("away"), shared.join("ctxbench")).unwrap();
    ctxbench(["s3", "sync"]).arg(&b.dir).succeeds();
    let a = mount(&scratch, &shared, "a");
    wait_for("the second step", || fs::read_to_string(a.dir.join("plan.md")).is_ok_and(|text| text == "step 2\n"));
    // Each host finds what the other one wrote, after it has adopted it, also once the cache is mounted again.
    let search = |mount: &Mount, word: &str| fs::read_to_string(mount.dir.join(format!(":search?{word}"))).unwrap();
    for mount in [&a, &b] {
        wait_for("the plan is found", || search(mount, "step").starts_with("1 note matches\n/plan.md"));
    }
    fs::create_dir(b.dir.join("rules")).unwrap();
    fs::write(b.dir.join("rules/rsi.md"), "RSI above 70: exit\n").unwrap();
    has(&search(&b, "RSI"), &["/rules/rsi.md"]);
    wait_for("the rule is found", || search(&a, "RSI").starts_with("1 note matches\n/rules/rsi.md"));
    let recalled = ctxbench(["recall"]).arg(&a.dir).arg("when to exit?").output().unwrap();
    has(&stdout(&recalled), &["/rules/rsi.md", "RSI above 70: exit"]);
    a.end();
    let a = mount(&scratch, &shared, "a");
    has(&search(&a, "RSI"), &["/rules/rsi.md"]);
    a.end();
    b.end();

    let shown = command(&["show", "plan.md"]).output().unwrap();
    assert_eq!(stdout(&shown), "step 2\n");
    let checked = command(&["check"]).output().unwrap();
    assert!(checked.status.success(), "{}", stdout(&checked) + &stderr(&checked));
    let mirror = fs::read_to_string(shared.join("ctxbench/agents/alice/plan.md")).unwrap();
    has(&mirror, &["---\nctxbench:\n  version: ", "step 2\n"]);
}

#[test]
fn a_memory_in_a_directory_that_can_only_be_read_is_mounted_read_only() {
    let Some(scratch) = as_root() else { return };
    let shared = scratch.dir("shared");
    fs::create_dir(shared.join("ctxbench")).unwrap();
    let first = mount(&scratch, &shared, "first");
    fs::write(first.dir.join("note.md"), "there").unwrap();
    ctxbench(["s3", "sync"]).arg(&first.dir).succeeds();
    first.end();
    Command::new("mount").args(["--bind", "-o", "ro"]).args([&shared, &shared]).succeeds();
    // A new cache, and one that has the memory.
    for writer in ["second", "second", "first"] {
        let mut mount = mount(&scratch, &shared, writer);
        has(&mount.said(), &["cannot be written to: Read-only file system", "the memory is read-only"]);
        assert_eq!(text_of(&mount.dir, "note.md"), "there");
        let refused = fs::write(mount.dir.join("other.md"), "lost").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
        // Each mount of the machine has a line.
        let status = stdout(&ctxbench(["status"]).output().unwrap());
        let line = status.lines().find(|line| line.contains(mount.dir.to_str().unwrap()));
        has(line.unwrap(), &["read-only"]);
        mount.end();
    }
}

#[test]
fn a_memory_in_a_bucket_gives_the_answers_of_an_agent_memory_with_the_same_notes() {
    let Some(scratch) = mountable() else { return };
    let shared = scratch.dir("shared");
    fs::create_dir(shared.join("ctxbench")).unwrap();
    let script = catalogue::workload("micro/find-by-request-100").unwrap().script;
    let now = SystemTime::now();
    let notes: Vec<(&str, &[u8], SystemTime)> = script
        .files
        .iter()
        .zip(&script.ages_ns)
        .map(|((path, text), age)| (path.as_str(), &text[..], now - Duration::from_nanos(*age)))
        .collect();
    let fill = |dir: &Path| {
        for (path, text, time) in &notes {
            let file = dir.join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            fs::File::open(&file).unwrap().set_modified(*time).unwrap();
        }
    };
    // Each index is made of all notes at once, and so in the order of their times.
    let database = scratch.path().join("notes.db").display().to_string();
    let files = Mount::new("sqlite", &scratch.dir("notes"), &["--db", &database]);
    fill(&files.dir);
    let dir = files.dir.clone();
    files.end();
    let model = Mount::new("agent-memory", &dir, &["--db", &database, "--embeddings", "none"]);
    let (a, b) = (mount(&scratch, &shared, "a"), mount(&scratch, &shared, "b"));
    fill(&a.dir);
    ctxbench(["s3", "sync"]).arg(&a.dir).succeeds();
    attribute::get(&b.dir, "user.ctx.pull").unwrap();
    for (path, text, time) in &notes {
        let file = b.dir.join(path);
        assert_eq!(fs::read(&file).unwrap(), *text);
        assert_eq!(file.metadata().unwrap().modified().unwrap(), *time);
    }
    let mut asked = 0;
    for op in script.calls.iter().flat_map(|call| &call.ops) {
        let FileOp::Ask { path, .. } = op else { continue };
        let expected = text_of(&model.dir, path.as_str());
        for host in [&a, &b] {
            assert_eq!(text_of(&host.dir, path.as_str()), expected, "{path} on {}", host.dir.display());
        }
        asked += 1;
    }
    assert!(asked > 100, "{asked}");
    for mount in [model, a, b] {
        mount.end();
    }
}

/// The agent of a container's host: gives the keys of a server for a few seconds each, and counts how often.
fn key_agent(server: &Server, seconds: i64) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/key", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (id, secret) = (server.announcement.access_key.clone(), server.announcement.secret_key.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            counted.fetch_add(1, Ordering::Relaxed);
            let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            let body = serde_json::json!({
                "AccessKeyId": id, "SecretAccessKey": secret, "Token": "of-a-role", "Expiration": end.to_string(),
            });
            let body = body.to_string();
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    (address, asked)
}

#[test]
fn a_mount_renews_the_key_of_a_role_before_it_expires() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let (agent, asked) = key_agent(&server, 6);
    let dir = scratch.dir("mount");
    let mut command = server.command(&["mount", "s3", "--agent-id", "alice", "--poll", "100", "--cache"]);
    command.arg(scratch.path().join("cache.db")).arg(&dir);
    command.env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nonexistent");
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent);
    let mount = Mount::of(command, &dir);
    for round in 0..10 {
        fs::write(dir.join("note.md"), format!("{round}\n")).unwrap();
        ctxbench(["s3", "sync"]).arg(&dir).succeeds();
        std::thread::sleep(Duration::from_secs(1));
    }
    let times = asked.load(Ordering::Relaxed);
    assert!((3..20).contains(&times), "{times} keys for ten seconds");
    let log = mount.end_with_log();
    lacks(&log, &[&server.announcement.secret_key, "of-a-role", "WARN"]);
}
