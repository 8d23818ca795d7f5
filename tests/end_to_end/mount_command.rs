//! How `ctxbench mount`, `mount --daemon` and `unmount` begin and end.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use models::{Behaviour, FakeServer};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{
    CTXBENCH, Mount, Server, Succeeds, as_root, ctxbench, has, has_ended, mountable, mounts_under, sh, stderr, stdout,
    text_of, wait_for, words, write_files,
};
use crate::mount::as_nobody_with_fuse;

/// All paths below a directory, with type, length and time of change.
fn tree(dir: &Path) -> BTreeMap<PathBuf, (u32, u64, i64)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                waiting.push(path.clone());
            }
            // Mounting on a directory may change its own times.
            let changed = if metadata.is_dir() { 0 } else { metadata.mtime_nsec() };
            found.insert(path, (metadata.mode(), metadata.len(), changed));
        }
    }
    found
}

/// A shell command in `dir` with the program as `$C`.
fn shell(dir: &Path, command: &str) -> Output {
    sh(dir, &format!("C={CTXBENCH}; {command}"))
}

fn unmount(dir: &Path) -> Output {
    ctxbench(["unmount"]).arg(dir).output().unwrap()
}

/// The daemon that `status` names for a mount.
fn daemon_of(dir: &Path) -> Pid {
    let status = ctxbench(["status", "--json"]).output().unwrap();
    let all: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let mut all = all.as_array().unwrap().iter();
    let mount = all.find(|mount| mount["dir"] == dir.to_str().unwrap());
    let process = mount.unwrap()["process"].as_i64().unwrap();
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}

#[test]
fn every_store_can_be_mounted_again_at_once_after_an_unmount() {
    let Some(scratch) = mountable() else { return };
    let cycles: u32 = std::env::var("CTXBENCH_TEST_REMOUNTS").map_or(3, |text| text.parse().unwrap());
    let server = Server::start(&scratch.dir("server"), &[]);
    let model = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let asks = format!("--base-url {} --model simulated", model.base_url());
    let plain = scratch.dir("plain");
    write_files(&plain, &[("tasks/a.json", "{}")]);
    let view = format!("view --definition vsm --source {}", plain.display());
    let cache = scratch.dir("cache");
    let log = scratch.path().join("history.db");
    let tree = scratch.path().join("tree.json");
    fs::write(&tree, r#"{"entries":[{"path":"a.txt","kind":"file"}]}"#).unwrap();
    let history = format!("llm-history {asks} --log-db {}", log.display());
    let generate = format!("llm-generate {asks} --cache-folder {}", cache.display());
    // And whether files stay.
    for (line, keeps) in [
        ("sqlite", true),
        ("sqlite --writeback", true),
        ("agent-memory --embeddings none", true),
        ("agent-memory --embeddings none --agent-id ann", true),
        ("s3 --agent-id ann --delay 20", true),
        (&view, false),
        (&history, false),
        (&generate, false),
        ("memory", false),
    ] {
        let name = line.split(' ').next().unwrap();
        let dir = scratch.dir(&format!("{name}-{}", line.len()));
        let mut failures = Vec::new();
        for cycle in 0..cycles {
            let mut words = words(line);
            let tree_option = ["--tree", tree.to_str().unwrap()];
            if name == "llm-generate" && cycle == 0 {
                words.extend(tree_option);
            }
            let started = server.command(&["mount", "--daemon"]).args(&words).arg(&dir).output().unwrap();
            if !started.status.success() {
                failures.push(format!("mount {cycle}: {}", stderr(&started)));
                continue;
            }
            if keeps {
                if cycle > 0 && failures.is_empty() {
                    assert_eq!(text_of(&dir, &format!("f{}", cycle - 1)), "kept\n", "{line}");
                }
                fs::write(dir.join(format!("f{cycle}")), "kept\n").unwrap();
                if cycle % 10 == 0 {
                    fs::write(dir.join("long"), vec![b'x'; 400_000]).unwrap();
                }
            } else {
                // A view and generated files refuse some writes: what counts is the end.
                let _ = fs::write(dir.join("tasks/b.json"), "{}");
            }
            let ended = unmount(&dir);
            if !ended.status.success() {
                failures.push(format!("unmount {cycle}: {}", stderr(&ended)));
            }
        }
        assert!(failures.is_empty(), "{line}: {} of {cycles} cycles: {failures:#?}", failures.len());
        if name == "sqlite" || name == "agent-memory" {
            let db = dir.with_extension("db");
            assert!(!PathBuf::from(format!("{}-wal", db.display())).exists(), "{line}");
        }
    }
}

#[test]
fn an_unmount_whose_last_flush_fails_says_so() {
    let Some(scratch) = mountable() else { return };
    // The embedded one is this process, which can be stopped.
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let dir = scratch.dir("ctx");
    let options = "--agent-id ann --delay 60000 --timeout 1";
    let start = |daemon: &[&str]| {
        let mut command = server.command(&["mount"]);
        command.args(daemon).arg("s3").args(words(options)).arg(&dir);
        command
    };
    start(&["--daemon"]).succeeds();
    fs::write(dir.join("a"), "only here").unwrap();
    server.signal(Signal::STOP);
    let ended = unmount(&dir);
    assert_eq!(ended.status.code(), Some(1), "{}", stdout(&ended));
    let said = stderr(&ended);
    has(&said, &["is unmounted, but its last flush failed", "not in the bucket yet", "fix: "]);
    assert!(mounts_under(&dir).is_empty());

    // In the foreground, by a signal or by another program's unmount.
    server.signal(Signal::CONT);
    for end in ["signal", "umount"] {
        let mut mount = Mount::of(start(&[]), &dir);
        fs::write(dir.join("a"), end).unwrap();
        server.signal(Signal::STOP);
        match end {
            "signal" => kill_process(Pid::from_child(&mount.process), Signal::TERM).unwrap(),
            _ => assert!(Command::new("fusermount3").arg("-u").arg(&dir).status().unwrap().success()),
        }
        let status = mount.process.wait().unwrap();
        assert_eq!(status.code(), Some(1), "{end}");
        server.signal(Signal::CONT);
    }
    let mount = Mount::of(start(&[]), &dir);
    assert_eq!(text_of(&dir, "a"), "umount");
    mount.end();
}

#[test]
fn signals_end_a_mount_whose_parent_has_blocked_or_ignored_them() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let start = |options: &str| {
        let mut command = Command::new("env");
        command.args(["--block-signal", "--ignore-signal=CHLD", CTXBENCH, "mount"]);
        command.args(words(options)).arg("sqlite").arg(&dir);
        command
    };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        start("--daemon").succeeds();
        kill_process(daemon_of(&dir), signal).unwrap();
        wait_for("the unmount of the daemon", || mounts_under(&dir).is_empty());
        let mut mount = Mount::of(start(""), &dir);
        kill_process(Pid::from_child(&mount.process), signal).unwrap();
        wait_for("the end of the mount", || mount.process.try_wait().unwrap().is_some());
    }
    start("--daemon").succeeds();
    let mut unmount = Command::new("env");
    unmount.args(["--block-signal", "--ignore-signal=CHLD", CTXBENCH, "unmount"]).arg(&dir).succeeds();
}

#[test]
fn an_unmount_of_a_stopped_daemon_ends_and_says_what_to_do() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let start = || {
        ctxbench(words("mount --daemon sqlite")).arg(&dir).succeeds();
        daemon_of(&dir)
    };
    let daemon = start();
    fs::write(dir.join("a"), "kept").unwrap();
    kill_process(daemon, Signal::STOP).unwrap();
    let started = Instant::now();
    let refused = unmount(&dir);
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!(refused.status.code(), Some(1));
    let pid = daemon.as_raw_nonzero();
    let (go_on, kill) = (format!("kill -CONT {pid}"), format!("kill -KILL {pid}"));
    has(&stderr(&refused), &["is still mounted", "is stopped", &go_on, &kill]);
    kill_process(daemon, Signal::CONT).unwrap();
    assert!(unmount(&dir).status.success());
    assert!(has_ended(pid));

    let daemon = start();
    assert_eq!(text_of(&dir, "a"), "kept");
    kill_process(daemon, Signal::STOP).unwrap();
    assert!(!unmount(&dir).status.success());
    kill_process(daemon, Signal::KILL).unwrap();
    wait_for("the end of the daemon", || has_ended(daemon.as_raw_nonzero()));
    unmount_dead(&dir);
    start();
    assert_eq!(text_of(&dir, "a"), "kept");
    assert!(unmount(&dir).status.success());
}

fn unmount_dead(dir: &Path) {
    // The last thread of a killed process closes `/dev/fuse`, after the first one has become a zombie.
    wait_for("the unmount", || {
        let ended = unmount(dir);
        ended.status.success() || mounts_under(dir).is_empty()
    });
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.path();
    scratch.dir("in");
    scratch.dir("full/below");
    scratch.dir("closed");
    fs::write(dir.join("file"), "").unwrap();
    fs::write(dir.join("text"), "dear diary").unwrap();
    fs::write(dir.join("byte"), "x").unwrap();
    std::os::unix::fs::symlink("in", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("in/ctx.db", dir.join("dangling")).unwrap();
    std::os::unix::fs::symlink("text", dir.join("link-to-text")).unwrap();
    fs::write(dir.join("other.db"), b"SQLite format 3\0").unwrap();
    assert!(shell(dir, "mkfifo fifo").status.success());
    let before = tree(dir);
    let s3 = "AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b CTXBENCH_S3_ENDPOINT=http://127.0.0.1:1";
    let model = "--base-url http://127.0.0.1:1/v1 --model none";
    for line in [
        "$C mount sqlite --db in/ctx.db in",
        "$C mount sqlite --db ./in/../in/ctx.db in",
        "$C mount sqlite --db link/ctx.db in",
        "$C mount sqlite --db dangling in",
        "$C mount sqlite --db in/ctx.db link",
        "$C mount sqlite --db in in",
        "(cd in && $C mount sqlite --db ctx.db .)",
        "(cd full/below && $C mount sqlite ..)",
        "(cd full && $C mount sqlite .)",
        "$C mount sqlite full",
        "$C mount sqlite full/",
        "$C mount sqlite missing",
        "$C mount sqlite missing/below",
        "$C mount sqlite file",
        "$C mount sqlite file/",
        "$C mount sqlite ''",
        "$C mount sqlite --db missing/ctx.db in",
        "$C mount sqlite --db text in",
        "$C mount sqlite --db byte in",
        "$C mount sqlite --db closed in",
        "$C mount sqlite --control missing/socket in",
        "$C mount sqlite --control in/socket in",
        "$C mount sqlite --log in/log in",
        "$C mount sqlite --log missing/log in",
        "$C mount sqlite --log other.db in",
        "$C mount sqlite --log closed in",
        "$C mount sqlite --log link-to-text in",
        "$C mount sqlite --log fifo in",
        "$C mount sqlite --log in.db in",
        "$C mount sqlite --log in.db-wal in",
        "$C mount sqlite --db new.db --log ./closed/../new.db in",
        "$C mount agent-memory --embeddings none --log in.db in",
        "$C mount sqlite --threads 0 in",
        "$C mount sqlite --no-such-option in",
        "$C mount agent-memory --embeddings missing in",
        "$C mount agent-memory --agent-id a/b in",
        "$C mount agent-memory --embeddings none --db in/a.db in",
        "$C mount agent-memory --embeddings none --control missing/socket in",
        "$C mount memory --control missing/socket in",
        "$C mount view --definition missing --source text in",
        "$C mount view --definition mail --source missing in",
        &format!("{s3} $C mount s3 --agent-id ann --timeout 1 in"),
        &format!("{s3} $C mount s3 --agent-id ann --timeout 1 --cache in/c in"),
        &format!("{s3} $C mount s3 --agent-id ann --timeout 1 --cache text in"),
        &format!("$C mount llm-history {model} in"),
        &format!("$C mount llm-history {model} --log-db byte in"),
        &format!("$C mount llm-generate {model} --cache-folder in/cache in"),
    ] {
        for line in [line.to_owned(), line.replace("$C mount", "$C mount --daemon")] {
            let failed = shell(dir, &line);
            assert!(!failed.status.success(), "{line}");
            assert!(!stderr(&failed).is_empty(), "{line}");
            assert!(mounts_under(dir).is_empty(), "{line}");
            let left: Vec<_> = tree(dir).into_keys().filter(|path| !before.contains_key(path)).collect();
            assert!(left.is_empty(), "{line} leaves {left:?}; {}", stderr(&failed));
            assert_eq!(tree(dir), before, "{line}");
        }
    }
    has(&stderr(&shell(dir, "$C mount sqlite --db in/ctx.db in")), &["in/ctx.db is inside", "fix: "]);
    for (log, why) in [
        ("other.db", "it has content that is not text"),
        ("link-to-text", "it is a symbolic link, not a regular file"),
        ("in.db", "would be written into a file of the store"),
    ] {
        for daemon in ["", "--daemon"] {
            let said = stderr(&shell(dir, &format!("$C mount {daemon} sqlite --log {log} in")));
            has(&said, &[log, why, "fix: ", "--log FILE"]);
        }
    }
}

#[test]
fn a_mount_appends_its_log_to_the_log_of_earlier_mounts() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.path();
    scratch.dir("ctx");
    fs::write(dir.join("ctx.log"), " WARN an earlier mount\n").unwrap();
    for line in ["", "--log ctx.log", "--log new.log", "--log new.log"] {
        let line = format!("$C mount --daemon {line} memory ctx && $C unmount ctx");
        let mounted = shell(dir, &line);
        assert!(mounted.status.success(), "{line}: {}", stderr(&mounted));
    }
    let log = text_of(dir, "ctx.log");
    assert!(log.starts_with(" WARN an earlier mount\n"), "{log}");
}

#[test]
fn a_start_that_fails_after_opening_a_model_store_leaves_nothing() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let model = FakeServer::start(vec![Behaviour::Answer]).unwrap();
    let before = tree(scratch.path());
    let home = scratch.path();
    for store in ["llm-history", "llm-generate", "llm-history --log-db history.db"] {
        for daemon in ["", "--daemon"] {
            let line = format!(
                "HOME=$PWD $C mount {daemon} {store} --base-url {} --model simulated --control missing/socket ctx",
                model.base_url()
            );
            let failed = shell(home, &line);
            assert!(!failed.status.success(), "{line}");
            let left = tree(home);
            assert_eq!(
                left.keys().collect::<Vec<_>>(),
                before.keys().collect::<Vec<_>>(),
                "{line}: {}",
                stderr(&failed)
            );
        }
    }
    drop(dir);
}

#[test]
fn a_mount_on_the_current_directory_keeps_its_database_beside_it() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx/deep");
    for (from, at) in [(dir.clone(), "."), (scratch.dir("ctx/deep"), "../deep")] {
        let started = shell(&from, &format!("$C mount --daemon sqlite {at}"));
        assert!(started.status.success(), "{}", stderr(&started));
        fs::write(dir.join("a"), "kept").unwrap();
        assert!(unmount(&dir).status.success());
        assert!(scratch.path().join("ctx/deep.db").exists());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    }
}

#[test]
fn a_daemon_keeps_no_file_and_no_directory_of_its_caller() {
    let Some(scratch) = as_root() else { return };
    let (dir, disk) = (scratch.dir("ctx"), scratch.dir("disk"));
    let tmpfs = ["-t", "tmpfs", "none"];
    Command::new("mount").args(tmpfs).arg(&disk).succeeds();
    let db = scratch.path().join("ctx.db");
    let line = format!(
        "exec 7>held 8<. 9>&1; flock lock $C mount --daemon sqlite --db {} {} | cat; flock -n lock true",
        db.display(),
        dir.display()
    );
    let started = Instant::now();
    let ended = shell(&disk, &line);
    assert!(ended.status.success(), "the lock is held: {}", stderr(&ended));
    assert!(started.elapsed() < Duration::from_secs(120), "the pipe is held");
    has(&stdout(&ended), &["is mounted on"]);
    let daemon = daemon_of(&dir).as_raw_nonzero();
    let proc = PathBuf::from(format!("/proc/{daemon}"));
    assert_eq!(fs::read_link(proc.join("cwd")).unwrap(), Path::new("/"));
    let files: Vec<_> =
        fs::read_dir(proc.join("fd")).unwrap().filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()).collect();
    assert!(files.iter().all(|file| !file.starts_with(&disk)), "{files:?}");
    for fd in ["0", "1"] {
        assert_eq!(fs::read_link(proc.join("fd").join(fd)).unwrap(), Path::new("/dev/null"));
    }
    let stat = fs::read_to_string(proc.join("stat")).unwrap();
    let session = stat.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap().to_owned();
    assert_eq!(session, daemon.to_string(), "it leads its session");
    Command::new("umount").arg(&disk).succeeds();
    fs::write(dir.join("a"), vec![b'a'; 300_000]).unwrap();
    assert!(unmount(&dir).status.success());
}

#[test]
fn a_daemon_reads_relative_paths_where_its_command_was_started() {
    let Some(scratch) = mountable() else { return };
    let here = scratch.dir("here");
    scratch.dir("here/ctx");
    write_files(&here, &[("controller/tasks/a.json", "{}")]);
    for line in [
        "sqlite --db sub.db ctx",
        "agent-memory --embeddings none --db sub.db ctx",
        "view --definition vsm --source controller ctx",
    ] {
        let line = format!("$C mount --daemon --log sub.log {line} && ls ctx && $C unmount ctx");
        let ended = shell(&here, &line);
        assert!(ended.status.success(), "{line}: {}", stderr(&ended));
        assert!(here.join("sub.log").exists(), "{line}");
    }
}

#[test]
fn a_signal_at_any_time_of_a_start_leaves_a_mount_or_nothing() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let before = tree(scratch.path());
    let mut mounted = 0;
    for delay in (0..40).map(|step| step * 4) {
        for daemon in ["--daemon", ""] {
            let line = format!(
                "timeout --preserve-status -s INT -k 20 {}.{:03} $C mount {daemon} sqlite ctx",
                delay / 1000,
                delay % 1000 + 1
            );
            let ended = shell(scratch.path(), &line);
            if daemon.is_empty() || ended.status.code() != Some(0) {
                assert!(mounts_under(&dir).is_empty(), "{line}: {}", stderr(&ended));
            } else {
                mounted += 1;
                assert!(unmount(&dir).status.success(), "{line}");
            }
            let left = scratch.path().join("ctx.db");
            if left.exists() {
                // A whole one: it was mounted, if only for a moment.
                let checked = ctxbench(["doctor", "--store"]).arg(&left).output().unwrap();
                assert!(checked.status.success(), "{line}: {}", stdout(&checked));
            }
            for (path, _) in tree(scratch.path()) {
                if !before.contains_key(&path) {
                    fs::remove_file(&path).unwrap_or_else(|error| panic!("{line}: {}: {error}", path.display()));
                }
            }
        }
    }
    eprintln!("{mounted} of 40 daemons were mounted before the signal");
}

#[test]
fn a_store_that_can_only_be_read_is_mounted_read_only() {
    let Some(scratch) = as_root() else { return };
    let (dir, disk, ro) = (scratch.dir("ctx"), scratch.dir("disk"), scratch.dir("ro"));
    let db = disk.join("notes.db");
    let long: Vec<u8> = (0..600_000_u32).map(|at| at as u8).collect();
    let mount = |db: &Path, more: &[&str]| {
        let mut command = ctxbench(["mount", "sqlite", "--db"]);
        command.arg(db).arg(&dir).args(more);
        Mount::of(command, &dir)
    };
    let writable = mount(&db, &[]);
    write_files(&dir, &[("notes/a.md", "# a\n")]);
    fs::write(dir.join("long"), &long).unwrap();
    rustix::fs::setxattr(dir.join("long"), "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
    writable.end();
    let bind = ["--bind", "-o", "ro"];
    Command::new("mount").args(bind).arg(&disk).arg(&ro).succeeds();
    let before = tree(&disk);

    let mut read_only = mount(&ro.join("notes.db"), &[]);
    has(&read_only.said(), &["read-only: its file system is read-only"]);
    assert_eq!(text_of(&dir, "notes/a.md"), "# a\n");
    assert_eq!(fs::read(dir.join("long")).unwrap(), long);
    assert_eq!(rustix::fs::getxattr(dir.join("long"), "user.a", &mut [0; 9]), Ok(1));
    for change in ["echo > new", "echo >> long", "rm long", "mkdir d", "mv long b", "chmod 600 long", "touch long"] {
        has(&stderr(&sh(&dir, change)), &["Read-only file system"]);
    }
    let copied = scratch.path().join("copied");
    let copy = format!("sync -f long && cp -a notes {0} && rm -r {0}", copied.display());
    assert!(sh(&dir, &copy).status.success());
    let mut line = String::new();
    // On a busy machine, an answer may take longer than `status` waits.
    wait_for("a mount that answers", || {
        let status = stdout(&ctxbench(["status"]).output().unwrap());
        line = status.lines().find(|line| line.starts_with(dir.to_str().unwrap())).unwrap().to_owned();
        line.contains("answers")
    });
    has(&line, &["read-only"]);
    // Others may read it, too.
    let other = scratch.dir("other");
    let second = ctxbench(words("mount --daemon sqlite --db")).arg(ro.join("notes.db")).arg(&other).output().unwrap();
    assert!(second.status.success(), "{}", stderr(&second));
    assert!(unmount(&other).status.success());
    read_only.end();
    assert_eq!(tree(&disk), before);

    // Stores that have to write say what to do.
    for (store, fix) in
        [("agent-memory --embeddings none --db", "mount sqlite --db"), ("s3 --agent-id a --cache", "--cache")]
    {
        let mut command = ctxbench(["mount"]);
        command.args(words(store)).arg(ro.join("notes.db")).arg(&dir);
        command.env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
        let refused = command.env("CTXBENCH_S3_ENDPOINT", "http://127.0.0.1:1").output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{store}");
        has(&stderr(&refused), &["is read-only", fix]);
    }

    // A log that would have to be applied.
    let killed = mount(&db, &[]);
    fs::write(dir.join("late"), "late").unwrap();
    killed.crash();
    Command::new("umount").arg(&dir).succeeds();
    let before = tree(&disk);
    let refused = ctxbench(["mount", "sqlite", "--db"]).arg(ro.join("notes.db")).arg(&dir).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    has(&stderr(&refused), &["was not unmounted cleanly", "fix: copy it"]);
    assert_eq!(tree(&disk), before);
    mount(&db, &[]).end();
}

#[test]
fn a_memory_that_can_only_be_read_answers_requests_while_its_index_is_current() {
    let Some(scratch) = as_root() else { return };
    let (dir, disk, ro) = (scratch.dir("ctx"), scratch.dir("disk"), scratch.dir("ro"));
    let db = disk.join("notes.db");
    let command = |store: &str, db: &Path| {
        let mut command = ctxbench(["mount"]);
        command.args(words(store)).arg("--db").arg(db).arg(&dir);
        command
    };
    let of = |agent: &str| format!("agent-memory --embeddings none --agent-id {agent}");
    let (ann, bob) = (of("ann"), of("bob"));
    let writable = Mount::of(command(&ann, &db), &dir);
    write_files(&dir, &[("a.md", "exit rule\n"), ("memory/private/ann/b.md", "exit now\n")]);
    writable.end();
    Command::new("mount").args(["--bind", "-o", "ro"]).args([&disk, &ro]).succeeds();
    let (before, same) = (tree(&disk), ro.join("notes.db"));

    let mut read_only = Mount::of(command(&ann, &same), &dir);
    has(&read_only.said(), &["read-only: its file system is read-only"]);
    has(&text_of(&dir, ":search?exit"), &["2 notes match", "/a.md", "/memory/private/ann/b.md"]);
    has(&text_of(&dir, ":recall?exit"), &["exit rule", "by ann"]);
    has(&text_of(&dir, ":stats"), &["index: current"]);
    has(&stderr(&sh(&dir, "echo > new")), &["Read-only file system"]);
    read_only.end();
    let refused = command(&bob, &same).output().unwrap();
    has(&stderr(&refused), &["is read-only", "bob", "--agent-id"]);
    assert_eq!(tree(&disk), before);

    // A note that expires while nothing can change the index, and one that another store has written.
    for (store, name, text) in [(&*ann, "c.md", "---\nttl: 1\n---\nexit soon\n"), ("sqlite", "d.md", "exit\n")] {
        let writable = Mount::of(command(store, &db), &dir);
        fs::write(dir.join(name), text).unwrap();
        writable.end();
        std::thread::sleep(Duration::from_millis(1100));
        let read_only = Mount::of(command(&ann, &same), &dir);
        let late = fs::read_to_string(dir.join(":search?exit")).unwrap_err();
        assert_eq!(late.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{name}");
        assert_eq!(text_of(&dir, name), text);
        read_only.end();
    }
}

#[test]
fn a_user_who_may_only_read_the_files_of_a_store_mounts_it_read_only() {
    let Some(scratch) = as_root() else { return };
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.dir("mine");
    let mount = Mount::new("sqlite", &dir, &["--db", scratch.path().join("notes.db").to_str().unwrap()]);
    write_files(&dir, &[("a", "text\n")]);
    mount.end();
    let db = scratch.path().join("notes.db");
    let theirs = scratch.dir("theirs");
    std::os::unix::fs::chown(&theirs, Some(65534), Some(65534)).unwrap();
    let script = "cd theirs; mkdir ctx; $CTXBENCH mount --daemon sqlite --db ../notes.db ctx; cat ctx/a; \
                  (echo > ctx/b) 2>&1 || true; $CTXBENCH unmount ctx; rmdir ctx; rm ctx.log";
    for (mode, reason) in
        [(0o644, "read-only: you cannot write to it"), (0o666, "read-only: you cannot write to its directory")]
    {
        fs::set_permissions(&db, fs::Permissions::from_mode(mode)).unwrap();
        let ended = as_nobody_with_fuse(&scratch, "666", script);
        fs::remove_file(scratch.path().join("fuse")).unwrap();
        assert!(ended.status.success(), "{}", stderr(&ended));
        has(&stdout(&ended), &[reason, "text\n", "Read-only file system"]);
    }
}

#[test]
fn files_of_a_user_namespace_belong_to_their_owner_outside_of_it() {
    let Some(scratch) = as_root() else { return };
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // As in the namespace: every file belongs to user 0.
    let dir = scratch.dir("ctx");
    let mount = Mount::new("sqlite", &dir, &[]);
    write_files(&dir, &[("notes/a", "text\n")]);
    std::os::unix::fs::chown(dir.join("notes"), None, Some(7)).unwrap();
    mount.end();
    for path in ["ctx", "ctx.db"] {
        std::os::unix::fs::chown(scratch.path().join(path), Some(65534), Some(65534)).unwrap();
    }
    let script = "$CTXBENCH mount --daemon sqlite ctx; (echo > ctx/b) 2>&1 || true; $CTXBENCH unmount ctx
                  $CTXBENCH mount --daemon --owner 0:0 sqlite ctx; stat -c %u:%g ctx ctx/notes ctx/notes/a
                  echo new > ctx/new; echo more >> ctx/notes/a; mkdir ctx/d; chown 65534:65534 ctx/d; chmod 700 ctx/d
                  touch ctx/d/e; stat -c %u:%g ctx/new ctx/d
                  cd ctx; echo run | tee long cut written > /dev/null; chmod 4755 long cut written
                  fallocate -l 9 long; : > cut; echo more >> written; stat -c %a long cut written; cd ..
                  $CTXBENCH unmount ctx";
    let ended = as_nobody_with_fuse(&scratch, "666", script);
    assert!(ended.status.success(), "{}{}", stdout(&ended), stderr(&ended));
    let said = stdout(&ended);
    has(&said, &["belongs to user 0", "`--owner 0:0`", "Permission denied"]);
    has(
        &said,
        &[
            "65534:65534\n65534:7\n65534:65534\n",
            "65534:65534\n65534:65534\n",
            // The stored caller is user 0, whose changes would leave programs their privileges.
            "755\n755\n755\n",
        ],
    );
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(text_of(&dir, "notes/a"), "text\nmore\n");
    for path in ["new", "d", "d/e", "notes/a"] {
        let metadata = fs::metadata(dir.join(path)).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (0, 0), "{path}");
    }
    mount.end();
}
