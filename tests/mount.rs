//! `ctxbench mount`, as a user sees it.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{CTXBENCH, Mount, Scratch, can_mount, is_root, mounts_under, run, stderr, wait_for};
use rustix::fs::{CWD, RenameFlags, XattrFlags, getxattr, listxattr, renameat_with, setxattr};
use rustix::process::Signal;

#[test]
fn a_mount_serves_files_and_ends_with_ctrl_c() {
    if !can_mount() {
        return;
    }
    for backend in ["memory", "sqlite"] {
        let scratch = Scratch::new();
        let dir = scratch.dir("ctx");
        let mount = Mount::new(backend, &dir, &[]);
        fs::create_dir(dir.join("notes")).unwrap();
        fs::write(dir.join("notes/a.md"), "# text\n").unwrap();
        assert_eq!(
            fs::read_to_string(dir.join("notes/a.md")).unwrap(),
            "# text\n"
        );
        mount.end();
        assert!(
            fs::read_dir(&dir).unwrap().next().is_none(),
            "the directory is as it was"
        );

        let mount = Mount::new(backend, &dir, &[]);
        let kept = fs::read_to_string(dir.join("notes/a.md"));
        match backend {
            "sqlite" => assert_eq!(kept.unwrap(), "# text\n"),
            _ => assert!(kept.is_err(), "memory forgets"),
        }
        mount.end();
    }
}

#[test]
fn a_mount_in_use_is_detached_on_sigterm() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("ctx");
    let mut mount = Mount::new("sqlite", &dir, &[]);
    let mut file = File::create(dir.join("open")).unwrap();
    file.write_all(b"written").unwrap();
    mount.signal(Signal::TERM);
    wait_for("the mount to leave the tree", || {
        mounts_under(&dir).is_empty()
    });
    let started = Instant::now();
    let status = mount.process.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(15));
    drop(file);
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(fs::read(dir.join("open")).unwrap(), b"written");
    mount.end();
}

#[test]
fn unmounting_from_outside_ends_it_too() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("ctx");
    let mut mount = Mount::new("memory", &dir, &[]);
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(mount.process.wait().unwrap().success());
}

#[test]
fn what_cannot_be_mounted_on_is_refused_and_nothing_is_created() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let refused = |dir: &Path| {
        let output = run(["mount".as_ref(), "sqlite".as_ref(), dir.as_os_str()]);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    let full = scratch.dir("full");
    fs::write(full.join("mine.txt"), "").unwrap();
    let message = refused(&full);
    assert!(
        message.contains("is not empty: it holds \"mine.txt\""),
        "{message}"
    );
    assert!(
        message.contains("fix: mount on an empty directory"),
        "{message}"
    );

    let message = refused(&scratch.path().join("missing"));
    assert!(
        message.contains("No such file") && message.contains("mkdir -p"),
        "{message}"
    );

    let message = refused(&full.join("mine.txt"));
    assert!(message.contains("Not a directory"), "{message}");

    let taken = scratch.dir("taken");
    let mount = Mount::new("memory", &taken, &[]);
    let message = refused(&taken);
    assert!(message.contains("is already a mount point"), "{message}");
    assert!(message.contains("fusermount3 -u"), "{message}");
    mount.end();

    let left: Vec<_> = fs::read_dir(scratch.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(left.len(), 2, "no database was created: {left:?}");
}

#[test]
fn a_dead_mount_is_taken_over_and_nothing_that_was_closed_is_lost() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("ctx");
    let mut expected = Vec::new();
    for crash in 0..3 {
        let mount = Mount::new("sqlite", &dir, &[]);
        for (name, text) in &expected {
            assert_eq!(&fs::read_to_string(dir.join(name)).unwrap(), text);
        }
        for number in 0..50 {
            let name = format!("{crash}-{number}");
            fs::write(dir.join(&name), &name).unwrap();
            expected.push((name.clone(), name));
        }
        mount.crash();
        assert_eq!(
            mounts_under(&dir).len(),
            1,
            "a crash leaves its mount behind"
        );
        assert!(fs::read_dir(&dir).is_err());
    }
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), expected.len());
    mount.end();
}

#[test]
fn a_database_is_mounted_once() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (one, two, db) = (
        scratch.dir("one"),
        scratch.dir("two"),
        scratch.path().join("a.db"),
    );
    let mount = Mount::new("sqlite", &one, &["--db", db.to_str().unwrap()]);
    let output = run([
        "mount".as_ref(),
        "sqlite".as_ref(),
        two.as_os_str(),
        "--db".as_ref(),
        db.as_os_str(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("in use by another ctxbench mount"),
        "{}",
        stderr(&output)
    );
    assert!(mounts_under(&two).is_empty());
    mount.end();
}

/// What agents' tools expect of any directory; run on a mount and on the file system below.
fn behaves_like_a_file_system(dir: &Path) {
    let at = |name: &str| dir.join(name);

    // An unlinked file lives on for those who have it open.
    let mut file = File::options()
        .create_new(true)
        .read(true)
        .write(true)
        .open(at("gone"))
        .unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(at("gone")).unwrap();
    fs::write(at("gone"), "another").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    file.write_all(b", and grows").unwrap();
    assert_eq!(file.metadata().unwrap().len(), 21);
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    assert_eq!(fs::read_to_string(at("gone")).unwrap(), "another");

    // Links of both kinds.
    fs::write(at("a"), "one").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    symlink("a", at("c")).unwrap();
    fs::write(at("c"), "two").unwrap();
    assert_eq!(fs::read_to_string(at("b")).unwrap(), "two");
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(at("c")).unwrap(), Path::new("a"));

    // Renames with flags.
    fs::write(at("x"), "x").unwrap();
    fs::write(at("y"), "y").unwrap();
    let rename = |flags| renameat_with(CWD, at("x"), CWD, at("y"), flags);
    assert_eq!(
        rename(RenameFlags::NOREPLACE).unwrap_err(),
        rustix::io::Errno::EXIST
    );
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read_to_string(at("x")).unwrap(), "y");
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read_to_string(at("y")).unwrap(), "y");
    assert!(!at("x").exists());

    // Holes.
    let sparse = File::create(at("sparse")).unwrap();
    sparse.write_all_at(b"end", 10 << 20).unwrap();
    let meta = sparse.metadata().unwrap();
    assert_eq!(meta.len(), (10 << 20) + 3);
    assert!(meta.blocks() * 512 < 1 << 20, "{} blocks", meta.blocks());
    let mut bytes = [1; 4];
    File::open(at("sparse"))
        .unwrap()
        .read_exact_at(&mut bytes, (10 << 20) - 1)
        .unwrap();
    assert_eq!(&bytes, b"\0end");

    // Extended attributes.
    setxattr(at("a"), "user.ctx.tag", b"important", XattrFlags::CREATE).unwrap();
    let mut value = [0; 64];
    let length = getxattr(at("a"), "user.ctx.tag", &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"important");
    let length = listxattr(at("a"), &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"user.ctx.tag\0");

    // Appends and overwrites keep what is around them; truncation takes it away.
    let mut log = File::options()
        .append(true)
        .create(true)
        .open(at("log"))
        .unwrap();
    for line in 0..100 {
        writeln!(log, "line {line}").unwrap();
    }
    let log = File::options().write(true).open(at("log")).unwrap();
    log.write_all_at(b"LINE", 0).unwrap();
    log.set_len(14).unwrap();
    assert_eq!(fs::read_to_string(at("log")).unwrap(), "LINE 0\nline 1\n");
    log.set_len(16).unwrap();
    assert_eq!(fs::read(at("log")).unwrap(), b"LINE 0\nline 1\n\0\0");

    // Attributes.
    fs::set_permissions(at("log"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(
        fs::metadata(at("log")).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let then = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    log.set_modified(then).unwrap();
    assert_eq!(fs::metadata(at("log")).unwrap().modified().unwrap(), then);
    assert_eq!(
        File::open(at("y".repeat(256).as_str()))
            .unwrap_err()
            .raw_os_error(),
        Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
    );

    // A directory larger than one reply, listed while it changes.
    fs::create_dir(at("many")).unwrap();
    for number in 0..1500 {
        fs::write(at("many").join(format!("{number:04}")), "").unwrap();
    }
    let mut seen = 0;
    for (number, entry) in fs::read_dir(at("many")).unwrap().enumerate() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        seen += usize::from(!name.starts_with("new"));
        if number % 100 == 0 {
            fs::write(at("many").join(format!("new{number}")), "").unwrap();
        }
    }
    assert_eq!(seen, 1500);
    assert_eq!(fs::metadata(at("many")).unwrap().nlink(), 2);
    fs::remove_dir_all(at("many")).unwrap();
    assert!(!at("many").exists());

    // A file larger than one request.
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 % 251) as u8).collect();
    fs::write(at("large"), &large).unwrap();
    assert!(fs::read(at("large")).unwrap() == large);
    File::open(at("large")).unwrap().sync_all().unwrap();
    File::open(dir).unwrap().sync_all().unwrap();
}

#[test]
fn every_mount_behaves_like_the_file_system_below() {
    let scratch = Scratch::new();
    behaves_like_a_file_system(&scratch.dir("direct"));
    if !can_mount() {
        return;
    }
    for backend in ["memory", "sqlite"] {
        for threads in ["1", "4"] {
            let dir = scratch.dir(&format!("{backend}-{threads}"));
            let mount = Mount::new(backend, &dir, &["--threads", threads]);
            behaves_like_a_file_system(&dir);
            mount.end();
        }
    }
}

#[test]
fn what_was_unlinked_while_open_is_freed_when_it_is_closed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    let (dir, db) = (scratch.dir("ctx"), scratch.path().join("ctx.db"));
    let mount = Mount::new("sqlite", &dir, &[]);
    fs::write(dir.join("big"), vec![7; 1 << 20]).unwrap();
    let open = File::open(dir.join("big")).unwrap();
    fs::remove_file(dir.join("big")).unwrap();
    let chunks = || -> i64 {
        let database = rusqlite::Connection::open(&db).unwrap();
        database
            .query_row("SELECT count(*) FROM chunk", (), |row| row.get(0))
            .unwrap()
    };
    assert!(chunks() > 0);
    drop(open);
    wait_for("the content to be freed", || chunks() == 0);
    mount.end();
}

#[test]
fn other_users_are_kept_out() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.dir("ctx");
    let as_nobody = || {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat"])
            .arg(dir.join("a"))
            .output()
            .unwrap()
    };
    let mount = Mount::new("memory", &dir, &[]);
    fs::write(dir.join("a"), "secret").unwrap();
    assert!(!as_nobody().status.success());
    mount.end();
    let mount = Mount::new("memory", &dir, &["--allow-other"]);
    fs::write(dir.join("a"), "shared").unwrap();
    assert_eq!(as_nobody().stdout, b"shared");
    fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o600)).unwrap();
    assert!(!as_nobody().status.success(), "permissions count");
    mount.end();
}

/// Runs a script as nobody in a mount namespace of its own, in which `/dev/fuse` has the given mode.
fn as_nobody_with_fuse(scratch: &Scratch, mode: &str, script: &str) -> std::process::Output {
    let node = scratch.path().join("fuse");
    let setup = format!(
        "mknod {node} c 10 229 && chmod {mode} {node} && mount --bind {node} /dev/fuse && \
         exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -euc \"$1\"",
        node = node.display()
    );
    Command::new("unshare")
        .args(["-m", "sh", "-euc", &setup, "sh", script])
        .env("CTXBENCH", CTXBENCH)
        .env("CTXBENCH_SCRATCH", scratch.path())
        .current_dir(scratch.path())
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_user_who_is_not_root_mounts_through_fusermount3() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody_with_fuse(
        &scratch,
        "666",
        "mkdir ctx
         $CTXBENCH mount sqlite ctx >out 2>err &
         for i in $(seq 200); do grep -q mounted out && break; sleep 0.05; done
         echo hello > ctx/a; cat ctx/a; stat -c %U ctx/a
         kill -INT $!; wait $!; grep -c $PWD/ctx /proc/mounts || true; cat err >&2",
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        common::stdout(&output),
        "hello\nnobody\n0\n",
        "{}",
        stderr(&output)
    );
}

#[test]
fn without_permission_the_fix_is_named() {
    if !can_mount() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody_with_fuse(&scratch, "600", "mkdir ctx; $CTXBENCH mount memory ctx");
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(
        message.contains("/dev/fuse is not permitted to this user"),
        "{message}"
    );
    assert!(
        message.contains("fix: ") && message.contains("chmod 666"),
        "{message}"
    );
}
