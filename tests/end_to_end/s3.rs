//! The `s3` file system over real mounts and a real server: MinIO where it is installed, else the embedded one.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{
    CTXBENCH, Mount, Scratch, Server, Succeeds, can_mount, ctxbench, embedded, has, lacks, lasting_port, memory_of,
    mountable, mounts_under, set_server, signal, stderr, stdout, text_of, wait_for, words,
};
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::Signal;
use serde_json::{Value, json};

impl Server {
    /// Mounts alice's memory for `writer`, with a cache of its own.
    fn mount(&self, scratch: &Scratch, writer: &str, more: &[&str]) -> Mount {
        let dir = scratch.path().join(writer);
        // A dead mount exists, but a `stat` of it fails.
        let _ = fs::create_dir_all(&dir);
        let mut command = self.command(&["mount", "s3", "--agent-id", "alice"]);
        command
            .args(["--writer", writer, "--cache"])
            .arg(scratch.path().join(format!("{writer}.db")))
            .args(more)
            .arg(&dir);
        Mount::of(command, &dir)
    }
}

fn sync(mount: &Mount) -> Output {
    ctxbench(["s3", "sync"]).arg(&mount.dir).output().unwrap()
}

fn synced(mount: &Mount) {
    let output = sync(mount);
    assert!(output.status.success(), "{}", stderr(&output));
    has(&stdout(&output), &["in the bucket"]);
}

#[test]
fn a_memory_is_read_only_on_a_server_that_ignores_if_none_match() {
    let Some(scratch) = mountable() else { return };
    let data = scratch.dir("server");
    let command = |access: &servers::ServerAccess, line: &str| {
        let mut command = ctxbench(words(line));
        let [endpoint, key] = [&access.endpoint, &access.access_key];
        set_server(&mut command, endpoint, key, &access.secret_key);
        command
    };
    let mount = |access: &servers::ServerAccess, name: &str| {
        let dir = scratch.dir(name);
        let mut command = command(access, "mount s3 --agent-id alice");
        command.arg(&dir);
        Mount::of(command, &dir)
    };
    let server = embedded(&data, servers::Quirk::None);
    let first = mount(&server.2, "first");
    fs::write(first.dir.join("note.md"), "there").unwrap();
    synced(&first);
    first.end();
    drop(server);
    // A program that another test starts just now may hold the lock until it runs.
    let lock = File::open(data.join(".lock")).unwrap();
    wait_for("an unlocked directory", || lock.try_lock().is_ok());
    drop(lock);

    let (_runtime, _server, access) = embedded(&data, servers::Quirk::IgnoresConditions);
    let mut second = mount(&access, "second");
    has(&second.said(), &["ignores If-None-Match"]);
    let file = second.dir.join("note.md");
    assert_eq!(fs::read_to_string(&file).unwrap(), "there");
    let refused = fs::write(&file, "changed").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    second.end();
    for line in ["s3 restore --agent-id alice note.md --at 1 --to x", "s3 import --agent-id alice"] {
        let refused = command(&access, line).output().unwrap();
        assert!(!refused.status.success(), "{}", stdout(&refused));
    }
    let (said, is_well) = doctor(command(&access, "doctor"));
    assert!(!is_well, "{said}");
    has(&said, &["MISSING   S3 server: it ignores If-None-Match"]);
}

#[test]
fn two_hosts_see_each_others_changes_through_the_kernels_caches() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let quick = ["--poll", "50", "--delay", "20"];
    let a = server.mount(&scratch, "a", &quick);
    let b = server.mount(&scratch, "b", &quick);
    let (ours, theirs) = (a.dir.join("notes/plan.md"), b.dir.join("notes/plan.md"));
    // The kernel caches that the name is missing, and later the file's attributes.
    assert!(fs::metadata(&theirs).is_err());
    fs::create_dir(a.dir.join("notes")).unwrap();
    for text in ["first", "second, and longer", "3"] {
        fs::write(&ours, text).unwrap();
        wait_for("the change", || fs::read_to_string(&theirs).ok().as_deref() == Some(text));
        assert_eq!(fs::metadata(&theirs).unwrap().len(), text.len() as u64);
    }
    fs::rename(a.dir.join("notes"), a.dir.join("kept")).unwrap();
    wait_for("the rename", || b.dir.join("kept/plan.md").exists() && !b.dir.join("notes").exists());
    fs::remove_file(b.dir.join("kept/plan.md")).unwrap();
    wait_for("the deletion", || !a.dir.join("kept/plan.md").exists());
    ctxbench(["unmount"]).arg(&a.dir).succeeds();
    assert!(mounts_under(&a.dir).is_empty());
    b.end();
}

/// An inotify watch, and its events so far: bits and names.
struct Watch(File, Vec<(u32, String)>);

impl Watch {
    fn new(path: &Path) -> Self {
        let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&events, path, WatchFlags::ALL_EVENTS).unwrap();
        Self(events.into(), Vec::new())
    }

    fn read(&mut self) {
        let mut bytes = [0; 65536];
        while let Ok(length @ 1..) = self.0.read(&mut bytes) {
            let mut rest = &bytes[..length];
            while !rest.is_empty() {
                let number = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
                let (mask, end) = (number(4), 16 + number(12) as usize);
                let name = String::from_utf8_lossy(&rest[16..end]).replace('\0', "");
                self.1.push((mask, name));
                rest = &rest[end..];
            }
        }
    }

    /// Forgets the events so far.
    fn forget(&mut self) {
        self.read();
        self.1.clear();
    }

    /// Waits for an event that has the bits of `wanted` and the name `name`.
    fn wait_for(&mut self, wanted: u32, name: &str) {
        wait_for(&format!("event {wanted:#x} of {name:?}"), || {
            self.read();
            let mut events = self.1.iter();
            events.any(|(mask, found)| mask & wanted == wanted && found == name)
        });
    }
}

#[test]
fn changes_of_another_host_raise_inotify_events_and_change_nothing() {
    const DIRECTORY: u32 = 1 << 30;
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let quick = ["--poll", "50", "--delay", "20"];
    let a = server.mount(&scratch, "a", &quick);
    let b = server.mount(&scratch, "b", &quick);
    let (notes, theirs) = (a.dir.join("notes"), b.dir.join("notes"));
    fs::create_dir(&theirs).unwrap();
    fs::write(theirs.join("plan.md"), "first").unwrap();
    wait_for("the file", || notes.join("plan.md").exists());
    let (mut in_root, mut in_notes) = (Watch::new(&a.dir), Watch::new(&notes));
    let mut of_file = Watch::new(&notes.join("plan.md"));
    let modify = WatchFlags::MODIFY.bits();
    let was = fs::metadata(theirs.join("plan.md")).unwrap();

    let plan = File::options().append(true).open(theirs.join("plan.md"));
    plan.unwrap().write_all(b", and more").unwrap();
    of_file.wait_for(modify, "");
    // A program that is told reads the new text.
    assert_eq!(text_of(&notes, "plan.md"), "first, and more");
    in_notes.wait_for(modify, "plan.md");
    let times = |dir: &Path| fs::metadata(dir.join("plan.md")).unwrap().modified().unwrap();
    assert_eq!(times(&notes), times(&theirs));
    assert!(times(&notes) > was.modified().unwrap());

    for watch in [&mut in_root, &mut in_notes] {
        watch.forget();
    }
    fs::write(theirs.join("new.md"), "new").unwrap();
    in_notes.wait_for(modify | DIRECTORY, "");
    in_notes.wait_for(modify, "new.md");
    in_root.wait_for(modify | DIRECTORY, "notes");
    in_notes.forget();
    fs::remove_file(theirs.join("plan.md")).unwrap();
    in_notes.wait_for(modify | DIRECTORY, "");
    assert!(!notes.join("plan.md").exists());

    // The events are no changes of this host.
    let mut pending = [0; 8];
    let length = rustix::fs::getxattr(&a.dir, "user.ctx.pending", &mut pending).unwrap();
    assert_eq!(&pending[..length], b"0");
    let log = server.command(&["s3", "log", "--agent-id", "alice"]).output().unwrap();
    has(&stdout(&log), &["changed    notes/plan.md"]);
    lacks(&stdout(&log), &["attributes notes"]);
    a.end();
    b.end();
}

#[test]
fn a_daemon_killed_while_it_raises_events_ends_at_once() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let quick = ["--poll", "50", "--delay", "20"];
    let b = server.mount(&scratch, "b", &quick);
    for round in 0..6 {
        let a = server.mount(&scratch, "a", &quick);
        for number in 0..400 {
            fs::write(b.dir.join(format!("f{number}")), round.to_string()).unwrap();
        }
        wait_for("the changes", || fs::read_to_string(a.dir.join("f399")).ok() == Some(round.to_string()));
        std::thread::sleep(Duration::from_millis(3 * round));
        let began = Instant::now();
        // Waits for the end of the process.
        let dir = a.dir.clone();
        a.crash();
        assert!(began.elapsed() < Duration::from_secs(60), "round {round}");
        Command::new("umount").arg(&dir).succeeds();
    }
    b.end();
}

#[test]
fn a_log_that_is_kept_open_for_appending_takes_nothing_from_what_others_append() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let [a, b] = ["a", "b"].map(|writer| server.mount(&scratch, writer, &["--poll", "60000"]));
    let pull = |mount: &Mount| {
        let mut answer = [0; 8];
        rustix::fs::getxattr(&mount.dir, "user.ctx.pull", &mut answer).unwrap();
    };
    let append = |mount: &Mount| {
        let log = mount.dir.join("log.md");
        File::options().create(true).append(true).open(log).unwrap()
    };
    let mut ours = append(&a);
    ours.write_all(b"first of a\n").unwrap();
    synced(&a);
    pull(&b);
    append(&b).write_all(b"first of b\n").unwrap();
    synced(&b);
    pull(&a);
    ours.write_all(b"second of a\n").unwrap();
    synced(&a);
    pull(&b);
    for mount in [&a, &b] {
        let log = text_of(&mount.dir, "log.md");
        assert_eq!(log, "first of a\nfirst of b\nsecond of a\n");
    }
    a.end();
    b.end();
}

#[test]
fn close_can_wait_for_the_bucket() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let a = server.mount(&scratch, "a", &["--sync", "close", "--delay", "60000"]);
    fs::write(a.dir.join("x.md"), "there").unwrap();
    // Neither the daemon nor its disk is needed any more.
    a.crash();
    let b = server.mount(&scratch, "b", &[]);
    assert_eq!(text_of(&b.dir, "x.md"), "there");
    b.end();
}

#[test]
fn ctrl_c_ends_a_read_that_waits_for_a_server_which_does_not_answer() {
    let Some(scratch) = mountable() else { return };
    // In the process of `s3 serve` itself, which can then be stopped.
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let a = server.mount(&scratch, "a", &[]);
    // Larger than what a poll brings with its commit.
    let text = "far away ".repeat(10_000);
    fs::write(a.dir.join("note.md"), &text).unwrap();
    synced(&a);
    a.end();
    let b = server.mount(&scratch, "b", &["--timeout", "120", "--poll", "60000"]);
    server.signal(Signal::STOP);

    let mut reader = Command::new("cat").arg(b.dir.join("note.md")).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(reader.try_wait().unwrap().is_none(), "it waits");
    let asked = Instant::now();
    signal(&reader, Signal::TERM);
    reader.wait().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(60));

    server.signal(Signal::CONT);
    assert_eq!(text_of(&b.dir, "note.md"), text);
    b.end();
}

#[test]
fn yesterdays_cache_can_be_mounted_while_the_server_is_away() {
    let Some(scratch) = mountable() else { return };
    let data = scratch.dir("server");
    let port = lasting_port().to_string();
    let server = Server::start(&data, &["--port", &port]);
    let a = server.mount(&scratch, "a", &[]);
    fs::write(a.dir.join("before.md"), "before").unwrap();
    synced(&a);
    let dir = a.dir.clone();
    a.end();
    let mount = |more: &[&str]| {
        let mut command = server.command(&["mount", "s3", "--agent-id", "alice", "--writer", "a"]);
        command.arg("--cache").arg(scratch.path().join("a.db"));
        command.args(more).arg(&dir);
        command
    };
    let (mut plain, offline) = (mount(&[]), mount(&["--allow-offline"]));
    drop(server);

    let refused = plain.output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    has(&stderr(&refused), &["does not answer"]);
    assert!(mounts_under(&dir).is_empty());
    let mut a = Mount::of(offline, &dir);
    let later = "uploads changes when the server answers";
    has(&a.said(), &["does not answer", later]);
    assert_eq!(text_of(&dir, "before.md"), "before");
    fs::write(dir.join("away.md"), "away").unwrap();
    let begun = Instant::now();
    let failed = sync(&a);
    assert!(!failed.status.success(), "{}", stdout(&failed));
    has(&stderr(&failed), &["cannot be reached"]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "a sync that fails must end");
    a.crash();

    let again = Server::start(&data, &["--port", &port]);
    let a = again.mount(&scratch, "a", &[]);
    synced(&a);
    let b = again.mount(&scratch, "b", &[]);
    assert_eq!(text_of(&b.dir, "away.md"), "away");
    a.end();
    b.end();
}

#[test]
fn the_history_of_a_memory_is_listed_shown_restored_checked_and_given_up() {
    let Some(scratch) = mountable() else { return };
    // Its objects are plain files, which the test can damage.
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let a = server.mount(&scratch, "a", &["--poll", "50", "--delay", "60000"]);
    fs::create_dir(a.dir.join("notes")).unwrap();
    for text in ["one", "two"] {
        fs::write(a.dir.join("notes/plan.md"), text).unwrap();
        synced(&a);
    }
    fs::rename(a.dir.join("notes"), a.dir.join("kept")).unwrap();
    fs::write(a.dir.join("x.bin"), vec![7; 200_000]).unwrap();
    synced(&a);
    let ask = |line: &str| {
        let mut command = server.command(&["s3"]);
        let command = command.args(words(line)).args(["--agent-id", "alice"]);
        command.output().unwrap()
    };
    let done = |line: &str| {
        let output = ask(line);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let refused = |line: &str, reason: &str| {
        let output = ask(line);
        assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
        has(&stderr(&output), &[reason]);
    };

    let log = done("log");
    let changes = [
        "  added      notes/plan.md\n",
        "  changed    notes/plan.md\n",
        "  renamed    notes -> kept\n",
        "  added      x.bin\n",
    ];
    has(&log, &changes);
    let heads = |log: &str| -> Vec<u64> {
        let heads = log.lines().filter(|line| !line.starts_with(' '));
        let numbers = heads.map(|head| head.split(' ').next().unwrap());
        numbers.map(|number| number.parse().unwrap()).collect()
    };
    assert_eq!(heads(&log), [4, 3, 2, 1]);
    let first = log.lines().next().unwrap();
    assert!(first.starts_with("4 2") && first.ends_with("Z a"), "{log}");
    assert_eq!(heads(&done("log x.bin")), [4]);
    let json = done("log --format json");
    let commits: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<u64> = commits.iter().map(|commit| commit["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [4, 3, 2, 1]);
    assert_eq!(first, format!("4 {} a", commits[0]["time"].as_str().unwrap()));
    assert_eq!(commits[0]["writer"], "a");
    let all: Vec<&Value> = commits.iter().flat_map(|commit| commit["changes"].as_array().unwrap()).collect();
    let renamed = json!({"change": "renamed", "path": "kept", "from": "notes"});
    for change in [renamed, json!({"change": "added", "path": "x.bin"})] {
        assert!(all.contains(&&change), "{json}");
    }
    assert_eq!(heads(&done("log notes/plan.md")), [4, 3, 2]);
    let reason = "no commit of agent alice changed nothing.md";
    refused("log nothing.md", reason);
    refused("log --prefix other", "has no memory of agent alice");

    refused("show notes/plan.md --prefix other", "has no memory of agent alice (check --bucket");

    assert_eq!(done("show notes/plan.md --at 2"), "one");
    assert_eq!(done("show kept/plan.md"), "two");
    assert_eq!(done("show x.bin").len(), 200_000);
    let reason = "no commit 9; the newest is 4";
    refused("show kept/plan.md --at 9", reason);
    refused("show plan.md", "plan.md is not in commit 4");

    let restored = done("restore notes --at 2");
    assert_eq!(restored, "restored notes to notes of commit 2, in commit 5\n");
    wait_for("the restored file", || fs::read(a.dir.join("notes/plan.md")).is_ok_and(|text| text == b"one"));
    assert!(done("restore x.bin --at 4").ends_with("nothing to restore\n"));
    assert!(done("check --mirror off").ends_with(": whole\n"));

    let planned = done("gc --older-than 0s --dry-run");
    has(&planned, &["history before commit 5 would be released"]);
    let nothing = "no more history is released: no commit is older than that\n";
    assert!(done("gc --older-than 30d").starts_with(nothing));
    let collected = done("gc --older-than 0s");
    has(&collected, &["history before commit 5 released"]);
    has(&collected, &["nothing deleted: run this again in 24 hours"]);
    let reason = "history begins at commit 5";
    refused("show notes/plan.md --at 2", reason);
    // A new host begins with what is kept, and the mount goes on.
    fs::write(a.dir.join("after.md"), "after").unwrap();
    synced(&a);
    let b = server.mount(&scratch, "b", &[]);
    assert_eq!(text_of(&b.dir, "after.md"), "after");
    assert_eq!(text_of(&b.dir, "notes/plan.md"), "one");
    assert_eq!(fs::read(b.dir.join("x.bin")).unwrap(), vec![7; 200_000]);
    b.end();
    a.end();

    // Damage is found and named.
    damage_blob(&scratch.path().join("server"));
    let output = ask("check --mirror off");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    has(&stdout(&output), &["DAMAGED chunk "]);
}

/// Changes a byte in the file of an object that holds the byte 7 two hundred thousand times.
fn damage_blob(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            damage_blob(&path);
        } else if let Ok(mut bytes) = fs::read(&path)
            && let Some(at) = bytes.windows(1000).position(|window| *window == [7; 1000])
        {
            bytes[at + 10] = 8;
            fs::write(&path, bytes).unwrap();
        }
    }
}

#[test]
fn other_s3_tools_read_the_mirror_and_their_edits_are_imported() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let a = server.mount(&scratch, "a", &["--poll", "50"]);
    fs::create_dir(a.dir.join("notes")).unwrap();
    fs::write(a.dir.join("notes/plan.md"), "# Plan\n\nfirst\n").unwrap();
    fs::write(a.dir.join("data.bin"), "not mirrored").unwrap();
    synced(&a);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = server.client();
    let get = |key: &str| {
        let object = async {
            let object = client.get(&Key::from(key)).await.ok()?;
            Some(String::from_utf8(object.bytes().await.unwrap().to_vec()).unwrap())
        };
        runtime.block_on(object)
    };
    let key = "agents/alice/notes/plan.md";
    wait_for("the mirror", || get(key).is_some());
    let object = get(key).unwrap();
    let (front, body) = object.split_once("\n---\n").unwrap();
    assert!(front.starts_with("---\nctxbench:\n  version: "), "{object}");
    has(front, &["  modified: ", "  created: ", "  sha256: "]);
    assert_eq!(body, "# Plan\n\nfirst\n");
    assert_eq!(get("agents/alice/data.bin"), None);

    // Another tool edits the object, front matter and all, and adds one.
    let edited = object.replace("first\n", "first\nsecond, by hand\n");
    let put = |key: &str, text: String| {
        let key = Key::from(key);
        runtime.block_on(client.put(&key, text.into())).unwrap();
    };
    put(key, edited);
    put("agents/alice/new.md", "by hand".to_owned());
    let import = || {
        let mut command = server.command(&["s3", "import", "--agent-id", "alice"]);
        stdout(&command.succeeds())
    };
    let imported = import();
    has(&imported, &["added   new.md\n", "changed notes/plan.md\n"]);
    wait_for("the imported edits", || {
        let text = |name: &str| fs::read_to_string(a.dir.join(name)).ok();
        text("notes/plan.md").as_deref() == Some("# Plan\n\nfirst\nsecond, by hand\n")
            && text("new.md").as_deref() == Some("by hand")
    });
    assert!(import().starts_with("nothing to import"));
    // The removal of a file reaches the mirror, too.
    fs::remove_file(a.dir.join("notes/plan.md")).unwrap();
    synced(&a);
    wait_for("the removal", || get(key).is_none());
    a.end();
}

/// The most memory that the daemons of two hosts have, in bytes: one writes a file, the other reads it.
fn peaks(server: &Server, scratch: &Scratch, mib: u64) -> [u64; 2] {
    let peak = |mount: &Mount| memory_of(mount.process.id(), "VmHWM:").unwrap() * 1024;
    let a = server.mount(scratch, "a", &[]);
    let mut file = File::create(a.dir.join("big")).unwrap();
    let mut piece: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    for number in 0..mib {
        // No two chunks are equal: equal ones would be one blob.
        piece[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&piece).unwrap();
    }
    drop(file);
    synced(&a);
    let b = server.mount(scratch, "b", &[]);
    let mut copied = std::io::sink();
    let read = std::io::copy(&mut File::open(b.dir.join("big")).unwrap(), &mut copied).unwrap();
    assert_eq!(read, mib << 20);
    let peaks = [peak(&a), peak(&b)];
    a.end();
    b.end();
    peaks
}

#[test]
fn large_files_take_little_memory() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let peaks = peaks(&server, &scratch, 300);
    assert!(peaks.iter().all(|peak| *peak <= 256 << 20), "{peaks:?}");
}

#[test]
#[ignore = "takes a release binary, as CTXBENCH_RELEASE names it, and 5 GiB of scratch"]
fn a_gibibyte_takes_at_most_150_mb() {
    let Some(scratch) = mountable() else { return };
    let mut server = Server::start(&scratch.dir("server"), &[]);
    server.program = std::env::var_os("CTXBENCH_RELEASE").map_or(CTXBENCH.into(), PathBuf::from);
    let peaks = peaks(&server, &scratch, 1024);
    println!("bytes of the writer and of the reader: {peaks:?}");
    assert!(peaks.iter().all(|peak| *peak <= 150_000_000), "{peaks:?}");
}

#[test]
fn an_error_of_s3_is_one_line_and_nothing_is_mounted() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &[]);
    let dir = scratch.dir("mnt");
    let dead = "--endpoint http://127.0.0.1:9";
    for (line, variables, reason) in [
        (dead, &[][..], "9 does not answer"),
        ("--bucket nowhere", &[], "no bucket nowhere"),
        ("", WRONG_KEY, "refuses the access key"),
        ("", NO_KEY, "AWS_ACCESS_KEY_ID"),
        ("", &[("CTXBENCH_S3_KEY", Some("hush"))], "CTXBENCH_S3_KEY"),
    ] {
        let mut command = server.command(&["mount", "s3", "--agent-id", "alice"]);
        set(command.args(words(line)), variables);
        let output = command.arg(&dir).output().unwrap();
        assert!(!output.status.success());
        has(&stderr(&output), &[reason]);
        lacks(&stderr(&output), &["hush"]);
        assert!(mounts_under(&dir).is_empty());
        let leftovers = fs::read_dir(scratch.path()).unwrap().count();
        assert_eq!(leftovers, 2, "the server and the directory");
    }
}

/// Environment variables, and their values; `None` removes one.
type Variables = [(&'static str, Option<&'static str>)];

const WRONG_KEY: &Variables = &[("AWS_SECRET_ACCESS_KEY", Some("hush"))];
const NO_KEY: &Variables = &[("AWS_ACCESS_KEY_ID", None), ("HOME", Some("/nonexistent"))];

fn set(command: &mut Command, variables: &Variables) {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The output of the doctor, and whether it finds everything. It never waits for long.
fn doctor(mut command: Command) -> (String, bool) {
    let begun = Instant::now();
    let output = command.output().unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    let text = stdout(&output) + &stderr(&output);
    (text, output.status.success())
}

#[test]
fn the_doctor_asks_the_server_that_the_environment_names() {
    let scratch = Scratch::new();
    // In the process of `s3 serve` itself, which can then be stopped.
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let (well, _) = doctor(server.command(&["doctor"]));
    let endpoint = &server.announcement.endpoint;
    let parts = [
        &format!("s3        {endpoint} (from CTXBENCH_S3_ENDPOINT)\n"),
        "s3        region us-east-1, bucket ctxbench in the path (path style)\n",
        "s3        access key from the environment\n",
        "ok        S3 server: ",
        "and honours If-None-Match\n",
    ];
    has(&well, &parts);
    if can_mount() {
        has(&well, &["ok        s3-given: "]);
    }
    lacks(&well, &[&server.announcement.secret_key]);

    let ails = |variables: &Variables, reason: &str| {
        let mut command = server.command(&["doctor"]);
        set(&mut command, variables);
        let (text, is_well) = doctor(command);
        assert!(!is_well, "{text}");
        let missing = text.lines().filter_map(|it| it.strip_prefix("MISSING   "));
        let missing: Vec<&str> = missing.collect();
        // One line with the fix, and no `ok` for an arm that needs the server.
        let [server_line, ..] = missing[..] else { panic!("nothing is missing in {text}") };
        has(server_line, &["S3 server: ", reason, " (fix: "]);
        for arm in ["s3-given: ", "s3-fsync-given: "] {
            assert!(missing.iter().any(|line| line.starts_with(arm)), "{text}");
        }
        let secrets = [&*server.announcement.secret_key, "hush"];
        lacks(&text, &["ok        s3-", "\npeer      s3fs-"]);
        lacks(&text, &secrets);
    };
    let dead = [("CTXBENCH_S3_ENDPOINT", Some("http://127.0.0.1:9"))];
    ails(&dead, "endpoint http://127.0.0.1:9 does not answer");
    ails(WRONG_KEY, "refuses the access key from the environment");
    let bucket = [("CTXBENCH_S3_BUCKET", Some("nowhere"))];
    ails(&bucket, "there is no bucket nowhere");
    ails(NO_KEY, "no access key for ");
    // One that takes the connection and says nothing.
    server.signal(Signal::STOP);
    ails(&[], "does not answer");
}

#[test]
fn without_an_endpoint_the_doctor_says_which_server_a_run_starts_and_why() {
    let asked = |required: Option<&'static str>| {
        let mut command = ctxbench(["doctor"]);
        let variables = [
            ("CTXBENCH_S3_ENDPOINT", None),
            ("CTXBENCH_REQUIRE_MINIO", required),
            ("CTXBENCH_MINIO", Some("/nonexistent/minio")),
        ];
        set(&mut command, &variables);
        doctor(command).0
    };
    let embedded =
        "s3        embedded S3, started by each run: MinIO is not installed: CTXBENCH_MINIO names /nonexistent/minio";
    has(&asked(None), &[embedded]);
    let minio = "s3        MinIO, started by each run: CTXBENCH_REQUIRE_MINIO is set; but";
    has(&asked(Some("1")), &[minio, "MISSING   s3-minio: "]);
}
