//! `ctxbench mount` from the user's point of view.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{
    CTXBENCH, Mount, Scratch, Succeeds, as_root, can_mount, conform, ctxbench, has, is_root, mountable, mounts_under,
    run, said, sh, signal, stderr, stdout, text_of, wait_for, words, write_executable, write_files,
};
use rustix::fs::{Access, RawDir, SeekFrom, access, getxattr, seek};
use rustix::io::Errno;
use rustix::process::Signal;

/// Runs the words of a line and a path.
fn with_path(line: &str, path: &Path) -> Output {
    ctxbench(words(line)).arg(path).output().unwrap()
}

#[test]
fn a_mount_serves_files_and_ends_with_ctrl_c() {
    for backend in ["memory", "sqlite"] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("ctx");
        let mount = Mount::new(backend, &dir, &[]);
        write_files(&dir, &[("notes/a.md", "# text\n")]);
        assert_eq!(text_of(&dir, "notes/a.md"), "# text\n");
        mount.end();
        let left = fs::read_dir(&dir).unwrap().count();
        assert_eq!(left, 0, "the directory is as it was");

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
fn on_its_own_mount_root_may_do_everything_except_run_a_file_without_an_execute_bit() {
    let Some(scratch) = as_root() else { return };
    let dir = scratch.dir("ctx");
    let mount = Mount::new("sqlite", &dir, &[]);
    let (closed, tool) = (dir.join("closed"), dir.join("closed/tool"));
    fs::create_dir(&closed).unwrap();
    write_executable(&tool, "#!/bin/sh\nexit 7\n");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&closed, 0o000).unwrap();
    mode(&tool, 0o000).unwrap();
    assert_eq!(access(&tool, Access::READ_OK | Access::WRITE_OK), Ok(()));
    assert_eq!(access(&closed, Access::EXEC_OK), Ok(()));
    assert_eq!(access(&tool, Access::EXEC_OK), Err(Errno::ACCESS));
    let refused = Command::new(&tool).status().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    mode(&tool, 0o100).unwrap();
    assert_eq!(access(&tool, Access::EXEC_OK), Ok(()));
    assert_eq!(Command::new(&tool).status().unwrap().code(), Some(7));
    mount.end();
}

#[test]
fn a_mount_in_use_is_detached_on_sigterm() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let mut mount = Mount::new("sqlite", &dir, &[]);
    let mut file = File::create(dir.join("open")).unwrap();
    file.write_all(b"written").unwrap();
    signal(&mount.process, Signal::TERM);
    wait_for("the mount to leave the tree", || mounts_under(&dir).is_empty());
    let started = Instant::now();
    let status = mount.process.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(started.elapsed() < Duration::from_secs(60));
    drop(file);
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(fs::read(dir.join("open")).unwrap(), b"written");
    mount.end();
}

#[test]
fn a_panic_fails_only_the_call_that_meets_it() {
    const EIO: i32 = 5;
    for backend in ["memory", "sqlite"] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("ctx");
        let control = scratch.path().join("control");
        let options = ["--threads=2", "--control", control.to_str().unwrap()];
        let mount = Mount::new(backend, &dir, &options);
        let threads = || {
            let tasks = format!("/proc/{}/task", mount.process.id());
            let tasks = fs::read_dir(tasks).unwrap().flatten();
            let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
            names.filter(|name| name.starts_with("fuser-")).count()
        };
        fs::write(dir.join("kept"), "kept").unwrap();
        // More panics than threads. A program that scans all mounts may meet one of them.
        let (mut met, mut asked) = (0, 0);
        while met < 6 {
            asked += 1;
            assert!(asked < 30, "{met} of {asked} panics met a call");
            fuse::ask(&control, fuse::ControlCommand::PanicNext).unwrap();
            let name = dir.join(format!("new-{asked}"));
            let failed = match met % 3 {
                0 => fs::metadata(&name).map(|_| ()),
                1 => fs::create_dir(&name),
                _ => fs::write(&name, "new"),
            };
            if failed.is_err_and(|error| error.raw_os_error() == Some(EIO)) {
                met += 1;
            }
            fs::write(dir.join(format!("file-{asked}")), "new").unwrap();
            assert_eq!(text_of(&dir, "kept"), "kept");
        }
        assert_eq!(threads(), 2);
        let log = mount.end_with_log();
        let mut lines: Vec<_> = log.lines().collect();
        lines.retain(|line| line.contains("panicked and returned EIO"));
        assert_eq!(lines.len(), asked, "{log}");
        for line in lines {
            has(line, &["this panic was asked for", "opcode"]);
        }
    }
}

#[test]
fn a_mount_after_a_crash_is_refused_if_its_log_is_missing() {
    let Some(scratch) = mountable() else { return };
    let (dir, log) = (scratch.dir("ctx"), scratch.path().join("ctx.db-wal"));
    let mount = Mount::new("sqlite", &dir, &[]);
    fs::write(dir.join("early"), "early").unwrap();
    mount.end();
    let mount = Mount::new("sqlite", &dir, &[]);
    fs::write(dir.join("late"), "late").unwrap();
    mount.crash();
    fs::remove_file(&log).unwrap();
    let output = with_path("mount sqlite", &dir);
    assert_eq!(output.status.code(), Some(1));
    let parts = ["ctx.db-wal is missing", "fix: put the log back"];
    has(&stderr(&output), &parts);
    let output = with_path("doctor --store", &scratch.path().join("ctx.db"));
    assert_eq!(output.status.code(), Some(1));
    has(&stdout(&output), &["ctx.db-wal is missing"]);

    let mount = Mount::new("sqlite", &dir, &["--without-log"]);
    assert_eq!(text_of(&dir, "early"), "early");
    assert!(!dir.join("late").exists());
    fs::write(dir.join("later"), "later").unwrap();
    mount.crash();
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(text_of(&dir, "later"), "later");
    mount.end();
    let refused = with_path("mount memory --without-log", &dir);
    has(&stderr(&refused), &["unexpected argument '--without-log'"]);
}

#[test]
fn a_daemon_ends_after_an_external_unmount() {
    let Some(scratch) = as_root() else { return };
    let dir = scratch.dir("ctx");
    let mut mount = Mount::new("memory", &dir, &[]);
    assert!(Command::new("umount").arg(&dir).status().unwrap().success());
    assert!(mount.process.wait().unwrap().success());
}

#[test]
fn an_unusable_mount_point_is_refused_and_nothing_is_created() {
    let Some(scratch) = mountable() else { return };
    let refuses = |dir: &Path, reason: &str, fix: &str| {
        let output = with_path("mount sqlite", dir);
        assert_eq!(output.status.code(), Some(1));
        has(&stderr(&output), &[reason, fix]);
    };
    let full = scratch.dir("full");
    let file = full.join("mine.txt");
    fs::write(&file, "").unwrap();
    let reason = "is not empty: it holds \"mine.txt\"";
    refuses(&full, reason, "fix: mount on an empty directory");
    refuses(&scratch.path().join("missing"), "No such file", "mkdir -p");
    refuses(&file, "Not a directory", "");
    let taken = scratch.dir("taken");
    let mount = Mount::new("memory", &taken, &[]);
    refuses(&taken, "is already a mount point", "fusermount3 -u");
    mount.end();
    let left = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left, 2, "no database was created");
}

/// The features that `ctxbench conform` reports as failing, one line of its table each.
fn failing(output: &Output) -> Vec<String> {
    let table = stdout(output);
    let lines = table.lines().filter(|line| line.contains("FAILS"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_mount_conforms_to_a_posix_file_system() {
    let direct = conform(["direct"]);
    assert!(failing(&direct).is_empty(), "{}", stdout(&direct));
    if !can_mount() {
        return;
    }
    for backend in ["memory", "sqlite", "sqlite-writeback"] {
        let output = conform([backend]);
        let failing = failing(&output);
        assert_eq!(failing.len(), 1, "{failing:?}");
        // `fuser` does not implement FUSE_TMPFILE.
        has(&failing[0], &["`O_TMPFILE`"]);
        assert_eq!(output.status.code(), Some(1));
        if is_root() {
            let table = stdout(&output);
            let skipped = table.lines().filter(|line| line.contains("skipped"));
            let expected = skipped.filter(|line| !line.starts_with("two mounts"));
            assert_eq!(expected.count(), 0, "{table}");
        }
    }
}

/// Mounts each store that files can be written to, with and without the writeback cache.
fn on_every_writable_mount(more: &[&str], check: impl Fn(&Path)) {
    for line in ["memory", "memory --writeback", "sqlite", "sqlite --writeback", "agent-memory"] {
        let Some(scratch) = mountable() else { return };
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let dir = scratch.dir("ctx");
        let (store, options) = line.split_once(' ').unwrap_or((line, ""));
        println!("{line}");
        let mount = Mount::new(store, &dir, &[more, &words(options)].concat());
        check(&dir);
        mount.end();
    }
}

#[test]
fn copies_of_a_sparse_file_have_what_a_live_map_has_written() {
    // A map of a file of 8 MiB, 44 bytes of which are not zero, until its standard input ends.
    const WRITER: &str = "import mmap, sys
f = open('sparse', 'w+b'); f.truncate(8 << 20)
m = mmap.mmap(f.fileno(), 0)
for at in (4096, 100_000, 1 << 20, 5 << 20): m[at:at + 11] = b'hello world'
print('ready', flush=True); sys.stdin.read()";
    on_every_writable_mount(&[], |dir| {
        let mut writer = Command::new("python3");
        writer.args(["-c", WRITER]).current_dir(dir);
        let piped = writer.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut writer = piped.spawn().unwrap();
        let mut ready = [0; 6];
        let mut output = writer.stdout.take().unwrap();
        output.read_exact(&mut ready).unwrap();
        let out = tempfile::tempdir().unwrap();
        let copies = [
            "cp sparse OUT/1",
            "cp -a sparse OUT/2",
            "cp --sparse=never sparse OUT/3",
            "cp --sparse=always sparse OUT/4",
            "tar -S -cf - sparse | tar -xO > OUT/5",
            "cat sparse > OUT/6",
        ];
        for copy in copies {
            let copy = copy.replace("OUT", &out.path().display().to_string());
            said(dir, &format!("set -o pipefail; {copy}"));
        }
        for entry in fs::read_dir(out.path()).unwrap() {
            let copy = fs::read(entry.unwrap().path()).unwrap();
            assert_eq!(copy.len(), 8 << 20);
            let bytes = copy.iter().filter(|byte| **byte != 0).count();
            assert_eq!(bytes, 44);
        }
        drop(writer.stdin.take());
        assert!(writer.wait().unwrap().success());
    });
}

#[test]
fn a_search_for_holes_finds_what_a_map_has_just_written_and_starts_no_process() {
    // Each page is written through the map, and looked for at once.
    const SEARCHES: &str = "import mmap, os
page = 4096
f = open('sparse', 'w+b'); f.truncate(1000 * page)
m = mmap.mmap(f.fileno(), 0)
for at in range(page, 1000 * page, 2 * page):
    m[at] = 1
    data = os.lseek(f.fileno(), at - page, os.SEEK_DATA)
    assert data <= at, (data, at)
    hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
    assert hole >= at + page, (hole, at)";
    for store in ["memory", "sqlite"] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("ctx");
        let (programs, started) = (scratch.dir("programs"), scratch.path().join("started"));
        for name in ["stat", "sync"] {
            let program =
                format!("#!/bin/sh\necho {name} >> {}\nPATH=${{PATH#*:}} exec {name} \"$@\"\n", started.display());
            write_executable(&programs.join(name), &program);
        }
        let mut command = ctxbench(["mount", store, "--threads=4"]);
        let path = std::env::var("PATH").unwrap();
        command.arg(&dir).env("PATH", format!("{}:{path}", programs.display()));
        let mount = Mount::of(command, &dir);
        Command::new("python3").args(["-c", SEARCHES]).current_dir(&dir).succeeds();
        let log = mount.end_with_log();
        assert!(!log.contains("could not write back"), "{log}");
        assert!(!started.exists(), "{}", fs::read_to_string(&started).unwrap());
    }
}

#[test]
fn a_daemon_killed_while_holes_are_searched_leaves_no_program_hanging() {
    // A map with 8,192 dirty pages, until its standard input ends.
    const WRITER: &str = "import mmap, sys
f = open('sparse', 'w+b'); f.truncate(1 << 30)
m = mmap.mmap(f.fileno(), 0)
for at in range(0, 32 << 20, 4096): m[at] = 1
print('ready', flush=True); sys.stdin.read()";
    for delay in [0, 5, 10, 20, 40, 80] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("ctx");
        let mount = Mount::new("memory", &dir, &[]);
        let mut writer = Command::new("python3");
        writer.args(["-c", WRITER]).current_dir(&dir);
        let piped = writer.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut writer = piped.spawn().unwrap();
        let mut output = writer.stdout.take().unwrap();
        output.read_exact(&mut [0; 6]).unwrap();
        let mut copy = Command::new("cp");
        let quiet = copy.arg(dir.join("sparse")).arg(scratch.path().join("copy"));
        let mut copy = quiet.stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        mount.crash();
        wait_for("the copy to end", || copy.try_wait().unwrap().is_some());
        drop(writer.stdin.take());
        // Its pages are gone: a store to one of them would have ended it.
        let _ = writer.wait().unwrap();
    }
}

#[test]
fn a_copy_of_a_large_hole_reads_none_of_it() {
    on_every_writable_mount(&[], |dir| {
        let file = File::create_new(dir.join("hole")).unwrap();
        file.set_len(256 << 30).unwrap();
        // Reading all of it would take minutes.
        said(dir, "cp hole copy && tar -S -cf hole.tar hole");
        let copy = fs::metadata(dir.join("copy")).unwrap();
        assert_eq!((copy.len(), copy.blocks()), (256 << 30, 1));
        let at = 128 << 30;
        file.write_all_at(b"data", at).unwrap();
        said(dir, "cp hole copy");
        let copy = File::open(dir.join("copy")).unwrap();
        let data = seek(&copy, SeekFrom::Data(0)).unwrap();
        assert!(data > at - (1 << 20) && data <= at, "{data}");
        let mut bytes = [0; 4];
        copy.read_exact_at(&mut bytes, at).unwrap();
        assert_eq!(&bytes, b"data");
    });
}

#[test]
fn a_program_that_another_user_changes_no_longer_runs_as_root() {
    if !is_root() {
        return;
    }
    on_every_writable_mount(&["--allow-other", "--allow-privileges"], |dir| {
        let of = |group: &str| conform(["--only".as_ref(), group.as_ref(), "--path".as_ref(), dir.as_os_str()]);
        let output = of("permissions");
        assert!(output.status.success(), "{}", stdout(&output));
        assert!(!stdout(&output).contains("skipped"), "{}", stdout(&output));
    });
}

#[test]
fn a_set_group_id_bit_goes_or_stays_with_a_change_as_in_a_plain_directory() {
    if !is_root() {
        return;
    }
    on_every_writable_mount(&["--allow-other", "--allow-privileges"], |dir| {
        let plain = dir.with_file_name("plain");
        fs::create_dir(&plain).unwrap();
        let mode_after = |at: &Path, mode: &str, groups: &str, change: &str| {
            let user = format!("setpriv --reuid=65534 --regid=65534 {groups} sh -euc '{change}'");
            let owner = if change.starts_with("chown") { 65534 } else { 0 };
            let prepare = format!("rm -f F && echo x > F && chown {owner}:0 F && chmod {mode} F");
            said(at, &format!("{prepare} && stat F > /dev/null && {user} && stat -c %a F"))
        };
        for change in ["echo y >> F", "truncate -s +1 F", ": > F", "fallocate -l 1M F", "chown :65534 F"] {
            for mode in ["2767", "2666", "6766", "2777"] {
                for groups in ["--clear-groups", "--groups=0"] {
                    let [expected, found] = [&*plain, dir].map(|at| mode_after(at, mode, groups, change));
                    assert_eq!(found, expected, "{mode}, {groups}: {change}");
                }
            }
        }
    });
}

#[test]
fn a_32_bit_program_can_list_a_directory_and_go_back_in_it() {
    on_every_writable_mount(&[], |dir| {
        const ENTRIES: usize = 3_000;
        for number in 0..ENTRIES {
            File::create_new(dir.join(format!("f{number}"))).unwrap();
        }
        let file = File::open(dir).unwrap();
        let list = |buffer: &mut [MaybeUninit<u8>]| {
            let mut entries = Vec::new();
            let mut listing = RawDir::new(&file, buffer);
            while let Some(entry) = listing.next() {
                let entry = entry.unwrap();
                // `off_t` and `ino_t` of such a program have 32 bits.
                assert!(entry.next_entry_cookie() < 1 << 31 && entry.ino() < 1 << 32);
                entries.push((entry.file_name().to_owned(), entry.next_entry_cookie()));
            }
            entries
        };
        let mut buffer = Vec::with_capacity(1 << 12);
        let all = list(buffer.spare_capacity_mut());
        assert_eq!(all.len(), ENTRIES + 2);
        let cookies: BTreeSet<u64> = all.iter().map(|(_, cookie)| *cookie).collect();
        assert_eq!(cookies.len(), all.len());
        // Names come and go; a place in the directory stays.
        for (name, _) in all.iter().step_by(7).filter(|(name, _)| name.count_bytes() > 2) {
            fs::remove_file(dir.join(name.to_str().unwrap())).unwrap();
        }
        for number in 0..100 {
            File::create_new(dir.join(format!("new{number}"))).unwrap();
        }
        // A removed name may still be listed: the kernel keeps the listing until its directory is opened again.
        let stays = |name: &CString| name.to_bytes().starts_with(b"f") && dir.join(name.to_str().unwrap()).exists();
        for (at, (_, cookie)) in all.iter().enumerate().step_by(311) {
            seek(&file, SeekFrom::Start(*cookie)).unwrap();
            let rest = list(buffer.spare_capacity_mut());
            let rest = rest.into_iter().map(|(name, _)| name);
            let expected = all[at + 1..].iter().map(|(name, _)| name.clone());
            let (rest, expected): (Vec<_>, Vec<_>) = (rest.filter(stays).collect(), expected.filter(stays).collect());
            assert!(rest == expected, "after entry {at} other names are listed");
        }
    });
}

#[test]
fn an_overlay_has_its_upper_layer_on_a_mount() {
    if as_root().is_none() {
        return;
    }
    on_every_writable_mount(&["--allow-other"], |dir| {
        let scratch = Scratch::new();
        let (lower, merged) = (scratch.dir("lower"), scratch.dir("merged"));
        write_files(&lower, &[("a", "a"), ("b", "b"), ("c", "c"), ("dir/in", "in")]);
        said(dir, "mkdir upper work");
        let options = format!("lowerdir={},upperdir={1}/upper,workdir={1}/work", lower.display(), dir.display());
        let mut mount = Command::new("mount");
        mount.args(["-t", "overlay", "overlay", "-o", &options]);
        mount.arg(&merged).succeeds();
        said(
            &merged,
            "rm a && mkdir a && touch a/new && mv b moved && chmod 600 c && echo more >> c \
             && rm -r dir && mkdir dir && mv c dir/c && ln -s x link && rm link",
        );
        let list = "find . -mindepth 1 | sort | tr '\n' ' '; cat moved dir/c; stat -c %a dir/c";
        let expected = "./a ./a/new ./dir ./dir/c ./moved bcmore\n600\n";
        assert_eq!(said(&merged, list), expected);
        let unmount = format!("umount {}", merged.display());
        said(dir, &unmount);
        mount.succeeds();
        assert_eq!(said(&merged, list), expected);
        said(dir, &unmount);
        assert_eq!(text_of(&lower, "dir/in"), "in");
    });
}

#[test]
fn a_store_through_a_map_that_a_full_disk_refuses_is_in_the_log_and_in_status() {
    // It closes the file first, and never syncs: no call of this program returns the error.
    const WRITER: &str = "import mmap, os
fd = os.open('mapped', os.O_RDWR | os.O_CREAT); os.truncate(fd, 64 << 20)
m = mmap.mmap(fd, 64 << 20); os.close(fd)
for at in range(0, 64 << 20, 4096): m[at] = 1";
    let Some(scratch) = as_root() else { return };
    let (dir, disk) = (scratch.dir("ctx"), scratch.dir("disk"));
    let mut tmpfs = Command::new("mount");
    tmpfs.args(["-t", "tmpfs", "-o", "size=32m", "tmpfs"]);
    tmpfs.arg(&disk).succeeds();
    let db = disk.join("ctx.db");
    let mut mount = Mount::new("sqlite", &dir, &["--db", db.to_str().unwrap()]);
    let status = || stdout(&run(["status"]));
    assert!(!status().contains("LOST"));
    sh(&disk, "dd if=/dev/zero of=ballast bs=1M");
    let mut writer = Command::new("python3");
    writer.args(["-c", WRITER]).current_dir(&dir).succeeds();
    sh(&dir, "sync");
    wait_for("the loss to be counted", || status().contains("  LOST "));
    let inode = fs::metadata(dir.join("mapped")).unwrap().ino();
    fs::remove_file(disk.join("ballast")).unwrap();
    let log = mount.process.stderr.take().unwrap();
    let unmounted = ctxbench(["unmount"]).arg(&dir).output().unwrap();
    assert_eq!(unmounted.status.code(), Some(1), "{unmounted:?}");
    has(
        &stderr(&unmounted),
        &["is unmounted, but the store had no place for ", "fix: find the files in the daemon's log"],
    );
    assert!(mount.process.wait().unwrap().success());
    let log = std::io::read_to_string(log).unwrap();
    has(&log, &["lost ", &format!("of the file with inode {inode}"), "No space left"]);
}

#[test]
fn what_was_stored_through_a_map_survives_the_end_of_a_mount_in_use() {
    const WRITER: &str = "import mmap, os, sys
fd = os.open('mapped', os.O_RDWR | os.O_CREAT); os.truncate(fd, 1 << 20)
m = mmap.mmap(fd, 1 << 20); os.close(fd)
for at in range(0, 1 << 20, 4096): m[at] = 1 + at % 251
print('stored', flush=True); sys.stdin.read()";
    let Some(scratch) = mountable() else { return };
    for more in [&[][..], &["--writeback"]] {
        let dir = scratch.dir("ctx");
        let mount = Mount::new("sqlite", &dir, more);
        let mut writer = Command::new("python3");
        let writer = writer.args(["-c", WRITER]).current_dir(&dir);
        let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let writer = writer.as_mut().unwrap();
        let mut stored = String::new();
        let mut said = BufReader::new(writer.stdout.take().unwrap());
        said.read_line(&mut stored).unwrap();
        assert_eq!(stored, "stored\n");
        mount.end();
        drop(writer.stdin.take());
        writer.wait().unwrap();
        let mount = Mount::new("sqlite", &dir, more);
        let found = fs::read(dir.join("mapped")).unwrap();
        let is_kept = |at: usize| usize::from(found[at]) == 1 + at % 251;
        assert!((0..1 << 20).step_by(4096).all(is_kept), "{more:?}");
        fs::remove_file(dir.join("mapped")).unwrap();
        mount.end();
    }
}

#[test]
fn a_mount_works_with_one_thread_and_with_four() {
    let Some(scratch) = mountable() else { return };
    for threads in ["1", "4"] {
        let dir = scratch.dir(&format!("sqlite-{threads}"));
        let mount = Mount::new("sqlite", &dir, &["--threads", threads]);
        let output = conform(["--path".as_ref(), dir.as_os_str()]);
        assert_eq!(failing(&output).len(), 1, "{}", stdout(&output));
        mount.end();
        let db = scratch.path().join(format!("sqlite-{threads}.db"));
        let checked = with_path("doctor --store", &db);
        assert!(checked.status.success(), "{}", stdout(&checked));
    }
}

#[test]
fn a_conformance_run_leaves_a_foreign_directory_as_it_was() {
    let scratch = Scratch::new();
    let dir = scratch.dir("theirs");
    let path = dir.to_string_lossy().into_owned();
    let output = conform(["--path", &path, "--also", &path, "--only", "two mounts"]);
    assert!(output.status.success(), "{}", stdout(&output));
    assert_eq!(stdout(&output).matches(" works").count(), 3);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let unknown = conform(["floppy"]);
    has(&stderr(&unknown), &["floppy: unknown backend"]);
}

#[test]
fn an_unlinked_open_file_is_freed_at_its_close() {
    let Some(scratch) = mountable() else { return };
    let (dir, db) = (scratch.dir("ctx"), scratch.path().join("ctx.db"));
    let mount = Mount::new("sqlite", &dir, &[]);
    fs::write(dir.join("big"), vec![7; 1 << 20]).unwrap();
    let open = File::open(dir.join("big")).unwrap();
    let chunks = || -> i64 {
        let database = rusqlite::Connection::open(&db).unwrap();
        let count = "SELECT count(*) FROM chunk";
        database.query_row(count, (), |row| row.get(0)).unwrap()
    };
    // A long write waits for its commit.
    wait_for("the content to be committed", || chunks() > 0);
    fs::remove_file(dir.join("big")).unwrap();
    assert!(chunks() > 0);
    drop(open);
    wait_for("the content to be freed", || chunks() == 0);
    mount.end();
}

#[test]
fn a_mount_refuses_other_users() {
    let Some(scratch) = as_root() else { return };
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = scratch.dir("ctx");
    let as_nobody = || {
        let mut cat = Command::new("setpriv");
        cat.args(words("--reuid=65534 --regid=65534 --clear-groups cat"));
        cat.arg(dir.join("a")).output().unwrap()
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

/// Runs a script as user nobody in its own mount namespace, with the given mode on `/dev/fuse`.
pub fn as_nobody_with_fuse(scratch: &Scratch, mode: &str, script: &str) -> Output {
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
fn an_unprivileged_user_mounts_through_fusermount3() {
    let Some(scratch) = as_root() else { return };
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
    assert_eq!(stdout(&output), "hello\nnobody\n0\n", "{}", stderr(&output));
}

#[test]
fn a_mount_without_permission_names_the_fix() {
    let Some(scratch) = as_root() else { return };
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let output = as_nobody_with_fuse(&scratch, "600", "mkdir ctx; $CTXBENCH mount memory ctx");
    assert_eq!(output.status.code(), Some(1));
    let reason = "you have no permission to open /dev/fuse";
    has(&stderr(&output), &[reason, "fix: ", "chmod 666"]);
}

#[test]
fn a_daemon_outlives_its_command_and_is_listed_by_status() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("notes");
    let start = || {
        let mut command = ctxbench(words("mount --daemon sqlite"));
        command.arg(&dir);
        command
    };
    let started = start().succeeds();
    has(&stdout(&started), &["is mounted on", "notes.log"]);
    fs::write(dir.join("a.md"), "kept").unwrap();

    let listed = |status: &Output| {
        let all: serde_json::Value = serde_json::from_str(&stdout(status)).unwrap();
        let mut all = all.as_array().unwrap().clone().into_iter();
        all.find(|mount| mount["dir"] == dir.to_str().unwrap())
    };
    let mut mount = serde_json::Value::Null;
    // On a busy machine, an answer may take longer than `status` waits.
    wait_for("a mount that answers", || {
        mount = listed(&run(["status", "--json"])).unwrap();
        mount["health"] == "answers"
    });
    assert_eq!(mount["backend"], "sqlite", "{mount}");
    let pid = mount["process"].as_u64().unwrap();
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();

    rustix::process::kill_process(pid, Signal::STOP).unwrap();
    let status = run(["status"]);
    assert_eq!(status.status.code(), Some(1));
    has(&stdout(&status), &["SILENT"]);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // The last thread of a killed process closes `/dev/fuse`, after the first one has become a zombie.
    wait_for("the status of a killed daemon", || {
        listed(&run(["status", "--json"])).is_some_and(|mount| mount["health"] == "dead")
    });

    ctxbench(["unmount"]).arg(&dir).succeeds();
    assert_eq!(listed(&run(["status", "--json"])), None);

    // A second start finds the data of the first. A start that cannot mount reports the reason, as in the
    // foreground.
    start().succeeds();
    assert_eq!(text_of(&dir, "a.md"), "kept");
    assert_eq!(start().status().unwrap().code(), Some(1));
    ctxbench(["unmount"]).arg(&dir).succeeds();
}

#[test]
fn the_log_of_a_mount_in_the_foreground_goes_to_a_file() {
    let Some(scratch) = mountable() else { return };
    let (dir, log) = (scratch.dir("notes"), scratch.path().join("mount.log"));
    let mut command = ctxbench(words("mount agent-memory --embeddings none --log"));
    command.arg(&log).arg(&dir).env("CTXBENCH_LOG", "info");
    assert_eq!(Mount::of(command, &dir).end_with_log(), "");
    let logged = "recall uses full text only";
    has(&text_of(scratch.path(), "mount.log"), &[logged]);

    // The user sees why a mount fails without reading the log, which keeps its earlier lines.
    let mut command = ctxbench(words("mount view --definition missing.toml --source x --log"));
    let failed = command.arg(&log).arg(&dir).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let reason = "missing.toml";
    has(&stderr(&failed), &[reason]);
    has(&text_of(scratch.path(), "mount.log"), &[logged, reason]);
}

#[test]
fn calls_that_fail_as_on_any_file_system_leave_the_log_empty() {
    for backend in ["memory", "sqlite", "agent-memory"] {
        let Some(scratch) = mountable() else { return };
        let dir = scratch.dir("ctx");
        let mount = Mount::new(backend, &dir, &[]);
        // `test -t` asks by ioctl whether the file is a terminal.
        let calls = "printf note > a; test -t 0 < a; cat missing; mkdir -p d/e; rmdir d; mv -T a d";
        let mut shell = Command::new("sh");
        let ended = shell.args(["-c", calls]).current_dir(&dir).output();
        has(&stderr(&ended.unwrap()), &["missing", "not empty", "directory"]);
        let value = getxattr(dir.join("a"), c"user.none", &mut [0; 9]);
        assert_eq!(value, Err(Errno::NODATA));
        assert_eq!(mount.end_with_log(), "", "{backend}");
    }
}
