//! The promises of the `sqlite` mount: a killed daemon keeps acknowledged data, and a full disk fails only
//! the call that meets it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{
    CTXBENCH, Mount, Scratch, Succeeds, as_root, ctxbench, in_own_process, mountable, stderr, text_of, wait_for,
};

type Files = BTreeMap<String, Vec<u8>>;

/// One change of a file or of its name.
enum Step {
    Write { name: String, offset: usize, bytes: Vec<u8> },
    Truncate { name: String, size: usize },
    Rename { from: String, to: String },
    Unlink { name: String },
}

impl Step {
    fn random(dice: &mut ChaCha8Rng) -> Self {
        let mut name = || format!("f{}", dice.random_range(0..6));
        let (name, other) = (name(), name());
        match dice.random_range(0..10) {
            0 => Self::Truncate { name, size: dice.random_range(0..500_000) },
            1 => Self::Rename { from: name, to: other },
            2 => Self::Unlink { name },
            _ => Self::Write {
                name,
                // Around the offset at which a file gets a tail, and at its start.
                offset: [0, dice.random_range(0..5_000), dice.random_range(200_000..300_000)][dice.random_range(0..3)],
                bytes: vec![dice.random(); dice.random_range(1..60_000)],
            },
        }
    }

    /// Applies the step to the expected content of the files.
    fn apply(&self, files: &mut Files) {
        match self {
            Self::Write { name, offset, bytes } => {
                let file = files.entry(name.clone()).or_default();
                let end = offset + bytes.len();
                file.resize(file.len().max(end), 0);
                file[*offset..end].copy_from_slice(bytes);
            }
            Self::Truncate { name, size } => {
                files.entry(name.clone()).or_default().resize(*size, 0);
            }
            Self::Rename { from, to } => {
                if let Some(file) = files.remove(from) {
                    files.insert(to.clone(), file);
                }
            }
            Self::Unlink { name } => {
                files.remove(name);
            }
        }
    }

    /// Performs the step. A missing file does not count as a failure.
    fn perform(&self, dir: &Path) -> io::Result<()> {
        let open = |name: &String| File::options().write(true).create(true).truncate(false).open(dir.join(name));
        let done = match self {
            Self::Write { name, offset, bytes } => open(name).and_then(|file| {
                file.write_all_at(bytes, *offset as u64)?;
                // Dropping a file would ignore the error of `close`.
                Ok(nix::unistd::close(file)?)
            }),
            Self::Truncate { name, size } => open(name)?.set_len(*size as u64),
            Self::Rename { from, to } => fs::rename(dir.join(from), dir.join(to)),
            Self::Unlink { name } => fs::remove_file(dir.join(name)),
        };
        match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }
}

fn read_all(dir: &Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

/// Whether a file is in a state between `before` and `after` an interrupted step. A write into the tail may
/// be partial. A write that the kernel split may end at a page boundary. A new file may be empty.
fn is_between(seen: Option<&Vec<u8>>, before: Option<&Vec<u8>>, after: Option<&Vec<u8>>) -> bool {
    let Some(seen) = seen else {
        return before.is_none() || after.is_none();
    };
    let empty = Vec::new();
    let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
    let between = before.len().min(after.len())..=before.len().max(after.len());
    let is_cut_at_page = seen.len() % 4096 == 0 && between.contains(&seen.len());
    (seen.len() == before.len() || seen.len() == after.len() || is_cut_at_page)
        && seen.iter().enumerate().all(|(at, byte)| before.get(at) == Some(byte) || after.get(at) == Some(byte))
}

/// Describes where the found content differs from the acknowledged one: the range, and the first byte of
/// each.
fn differing(seen: Option<&Vec<u8>>, acknowledged: Option<&Vec<u8>>) -> String {
    let (Some(seen), Some(acknowledged)) = (seen, acknowledged) else {
        return format!("{} instead of {}", seen.is_some(), acknowledged.is_some());
    };
    let pairs = || seen.iter().zip(acknowledged);
    let first = pairs().position(|(seen, wanted)| seen != wanted);
    let last = pairs().rposition(|(seen, wanted)| seen != wanted);
    format!(
        "{} bytes of {}, from {first:?} to {last:?}, {:?} there",
        seen.len(),
        acknowledged.len(),
        first.map(|at| (seen[at], acknowledged[at]))
    )
}

#[test]
fn a_killed_daemon_keeps_every_acknowledged_byte() {
    crash_and_compare(&[]);
}

#[test]
fn a_killed_daemon_keeps_closed_files_with_writeback() {
    crash_and_compare(&["--writeback"]);
}

/// Linux drops the dirty pages of a dead mount without an error. Only a request that the kernel sends on
/// `close` reports it.
#[test]
fn close_fails_if_a_killed_daemon_lost_dirty_pages() {
    in_own_process(lose_dirty_pages);
}

fn lose_dirty_pages() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let mount = Mount::new("sqlite", &dir, &["--writeback"]);
    fs::write(dir.join("file"), "old").unwrap();
    let file = File::options().write(true).open(dir.join("file")).unwrap();
    file.write_all_at(b"new", 0).unwrap();
    mount.crash();
    assert!(nix::unistd::close(file).is_err());
    let mount = Mount::new("sqlite", &dir, &[]);
    assert_eq!(text_of(&dir, "file"), "old");
    mount.end();
}

/// Kills the daemon repeatedly; every step ends with `close`.
fn crash_and_compare(options: &[&str]) {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let mut dice = ChaCha8Rng::seed_from_u64(3);
    let mut acknowledged = Files::new();
    for crash in 0..8 {
        let mount = Mount::new("sqlite", &dir, options);
        // A slow machine makes as many steps as a fast one, and the crash comes anywhere in the next ones.
        let (least, pause) = (dice.random_range(13..60), Duration::from_micros(dice.random_range(0..20_000)));
        let done = AtomicUsize::new(0);
        let counted = &done;
        let cut_off = std::thread::scope(|scope| {
            scope.spawn(move || {
                while counted.load(Ordering::Relaxed) < least {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(pause);
                mount.crash();
            });
            loop {
                let step = Step::random(&mut dice);
                if step.perform(&dir).is_err() {
                    done.store(least, Ordering::Relaxed);
                    break step;
                }
                step.apply(&mut acknowledged);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mount = Mount::new("sqlite", &dir, &[]);
        let seen = read_all(&dir);
        let mut after = acknowledged.clone();
        cut_off.apply(&mut after);
        for name in (0..6).map(|number| format!("f{number}")) {
            let (seen, before, after) = (seen.get(&name), acknowledged.get(&name), after.get(&name));
            let is_kept = if before == after { seen == before } else { is_between(seen, before, after) };
            assert!(
                is_kept,
                "crash {crash}: {name}: {} before, {} after the step that was cut off",
                differing(seen, before),
                differing(seen, after)
            );
        }
        acknowledged = seen;
        mount.crash();
        ctxbench(["doctor", "--store"]).arg(scratch.path().join("ctx.db")).succeeds();
    }
}

#[test]
fn a_write_with_a_durability_flag_syncs_the_log() {
    let Some(scratch) = mountable() else { return };
    let (dir, control) = (scratch.dir("ctx"), scratch.path().join("control"));
    let mount = Mount::new("sqlite", &dir, &["--control", control.to_str().unwrap()]);
    let syncs = || {
        let counters = fuse::ask(&control, fuse::ControlCommand::Counters).unwrap();
        counters.store["log_syncs"] + counters.store["redo_syncs"]
    };
    let write = |name: &str, flags: i32| {
        let mut options = fs::OpenOptions::new();
        let options = options.create(true).append(true).custom_flags(flags);
        let mut file = options.open(dir.join(name)).unwrap();
        (0..5).for_each(|_| file.write_all(b"a line\n").unwrap());
        file
    };
    let flags = rustix::fs::OFlags::SYNC.bits() as i32;
    let data_flags = rustix::fs::OFlags::DSYNC.bits() as i32;
    let sync = || File::open(&dir).unwrap().sync_all().unwrap();
    let write_and_sync = || {
        drop(write("c", 0));
        sync();
    };
    for (what, did, wanted) in [
        ("no flag", &(|| drop(write("plain", 0))) as &dyn Fn(), 0),
        ("O_SYNC", &|| drop(write("sync", flags)), 5),
        ("O_DSYNC", &|| drop(write("dsync", data_flags)), 5),
        ("fsync of a file", &|| write("a", 0).sync_all().unwrap(), 1),
        ("fdatasync", &|| write("b", 0).sync_data().unwrap(), 1),
        ("fsync of a directory", &write_and_sync, 1),
        ("fsync after no change", &sync, 0),
    ] {
        let before = syncs();
        did();
        // A commit by the clock syncs, too, once an `fsync` relies on what it commits.
        let most = wanted + u64::from(before > 0);
        let found = syncs() - before;
        assert!((wanted..=most).contains(&found), "{what}: {found}");
    }
    mount.end();
}

/// Mounts a disk of 8 MiB.
fn small_disk(scratch: &Scratch) -> PathBuf {
    let disk = scratch.dir("disk");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=8m", "none"]);
    mount.arg(&disk).succeeds();
    disk
}

#[test]
fn a_full_disk_fails_only_the_call_that_meets_it() {
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (small_disk(&scratch), scratch.dir("ctx"));
    let db = disk.join("fs.db");
    let db_option = db.to_str().unwrap();
    let mount = Mount::new("sqlite", &dir, &["--db", db_option]);
    let text = |number: usize| vec![number as u8; 20_000 + number * 1_000];
    // Writes small files and files with a tail, until the disk is full.
    let mut written = 0;
    let error = loop {
        let name = dir.join(written.to_string());
        match fs::write(&name, text(written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000, "the disk does not get full");
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    assert!(written > 10, "{written}");
    let tail = File::create(dir.join("tail"))
        .and_then(|file| (0..200).try_for_each(|at| file.write_all_at(&[1; 65_536], at * 65_536)));
    assert_eq!(tail.unwrap_err().kind(), io::ErrorKind::StorageFull);
    let intact = || {
        (0..written).for_each(|number| {
            assert!(fs::read(dir.join(number.to_string())).unwrap() == text(number));
        });
    };
    intact();
    mount.end();
    ctxbench(["doctor", "--store"]).arg(&db).succeeds();

    // With free space, the mount works again.
    let mut remount = Command::new("mount");
    remount.args(["-o", "remount,size=32m"]);
    remount.arg(&disk).succeeds();
    let mount = Mount::new("sqlite", &dir, &["--db", db_option]);
    intact();
    fs::write(dir.join("more"), "more").unwrap();
    assert_eq!(text_of(&dir, "more"), "more");
    mount.end();
}

#[test]
fn a_mount_opens_on_a_disk_that_another_program_has_filled() {
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (small_disk(&scratch), scratch.dir("ctx"));
    let db = disk.join("fs.db");
    let mount = || Mount::new("sqlite", &dir, &["--db", db.to_str().unwrap()]);
    let mounted = mount();
    fs::write(dir.join("note"), "acknowledged").unwrap();
    fs::write(dir.join("other"), "acknowledged").unwrap();
    mounted.end();
    let filler = disk.join("filler");
    let mut full = File::create(&filler).unwrap();
    while full.write_all(&[1; 4096]).is_ok() {}
    let mounted = mount();
    assert_eq!(text_of(&dir, "note"), "acknowledged");
    fs::remove_file(dir.join("other")).unwrap();
    mounted.end();
    drop(full);
    fs::remove_file(&filler).unwrap();
    let mounted = mount();
    assert_eq!(text_of(&dir, "note"), "acknowledged");
    assert!(!dir.join("other").exists());
    mounted.end();
}

#[test]
fn a_full_disk_takes_other_bytes_in_the_place_of_those_past_256_kib() {
    const LENGTH: usize = 600_000;
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (small_disk(&scratch), scratch.dir("ctx"));
    let db = disk.join("fs.db");
    let mount = || Mount::new("sqlite", &dir, &["--db", db.to_str().unwrap()]);
    let mounted = mount();
    let mut bytes = vec![1; LENGTH];
    fs::write(dir.join("long"), &bytes).unwrap();
    let mut full = File::create(disk.join("filler")).unwrap();
    while full.write_all(&[1; 4096]).is_ok() {}
    let file = File::options().write(true).open(dir.join("long"));
    let file = file.unwrap();
    for number in 0..300_u64 {
        let at = (300_000 + number * 900) as usize;
        let part = [number as u8; 800];
        file.write_all_at(&part, at as u64).unwrap();
        bytes[at..at + part.len()].copy_from_slice(&part);
    }
    let long = vec![9; 150_000];
    file.write_all_at(&long, 400_000).unwrap();
    bytes[400_000..550_000].copy_from_slice(&long);
    drop(file);
    assert!(fs::read(dir.join("long")).unwrap() == bytes);
    mounted.crash();
    let mounted = mount();
    assert!(fs::read(dir.join("long")).unwrap() == bytes);
    mounted.end();
}

/// A disk of some MB with an ext4, which ends with this.
struct LoopDisk(PathBuf);

impl LoopDisk {
    /// Its blocks have 1 KiB, as those of every ext4 of less than 512 MB.
    fn new(scratch: &Scratch, megabytes: u64) -> Self {
        let (image, dir) = (scratch.path().join("image"), scratch.dir("disk"));
        let file = File::create(&image).unwrap();
        file.set_len(megabytes * 1_000_000).unwrap();
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0", "-b", "1024"]).arg(&image).succeeds();
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).args([&image, &dir]).succeeds();
        Self(dir)
    }

    /// Fills what is left of it.
    fn fill(&self) {
        let mut options = File::options();
        let opened = options.create(true).append(true).open(self.0.join("filler"));
        // There may be no room for its name.
        let Ok(mut filler) = opened else { return };
        for bytes in [1 << 20, 4096, 512] {
            while filler.write_all(&vec![1; bytes]).is_ok() {}
        }
        let _ = filler.sync_all();
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn megabyte(number: usize) -> Vec<u8> {
    vec![number as u8; 1_000_000]
}

/// Writes files of a megabyte until the disk is full; how many there are.
fn fill_with_files(dir: &Path) -> usize {
    for number in 0.. {
        let name = dir.join(number.to_string());
        if let Err(error) = fs::write(&name, megabyte(number)) {
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
            fs::remove_file(&name).unwrap();
            return number;
        }
    }
    unreachable!("the disk gets full");
}

#[test]
fn a_store_that_fills_its_disk_can_be_emptied() {
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (LoopDisk::new(&scratch, 95), scratch.dir("ctx"));
    let db = disk.0.join("fs.db");
    let mount = || Mount::new("sqlite", &dir, &["--db", db.to_str().unwrap()]);
    let mut mounted = mount();
    fs::create_dir(dir.join("sub")).unwrap();
    let written = fill_with_files(&dir);
    assert!(written > 70, "{written} files");
    let name = |number: usize| dir.join(number.to_string());
    let is_intact = |number: usize| assert!(fs::read(name(number)).unwrap() == megabyte(number));
    (0..written).for_each(is_intact);
    for is_killed in [false, true, true, false] {
        disk.fill();
        if is_killed {
            mounted.crash()
        } else {
            mounted.end()
        }
        disk.fill();
        mounted = mount();
        (0..written).for_each(is_intact);
    }
    fs::remove_dir(dir.join("sub")).unwrap();
    fs::remove_file(name(0)).unwrap();
    fs::rename(name(1), name(2)).unwrap();
    fs::rename(name(2), dir.join("a longer name than before")).unwrap();
    File::options().write(true).open(name(3)).and_then(|file| file.set_len(10)).unwrap();
    (4..written).for_each(is_intact);
    for number in 3..written {
        fs::remove_file(name(number)).unwrap();
    }
    let _ = fs::remove_file(disk.0.join("filler"));
    let again = fill_with_files(&dir);
    assert!(again + 5 >= written, "{again} of {written} files fit again");
    (0..again).for_each(is_intact);
    mounted.end();
    ctxbench(["doctor", "--store"]).arg(&db).succeeds();
}

/// SQLite writes one byte of each 4 KiB of its shared memory: where blocks have 1 KiB, the rest has no place yet.
#[test]
fn a_mount_without_a_place_for_the_shared_memory_is_refused_by_an_error() {
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (LoopDisk::new(&scratch, 30), scratch.dir("ctx"));
    let (first, copy) = (scratch.path().join("fs.db"), disk.0.join("fs.db"));
    let mounted = Mount::new("sqlite", &dir, &["--db", first.to_str().unwrap()]);
    fs::write(dir.join("note"), "acknowledged").unwrap();
    mounted.end();
    // A copy has no reserve.
    let mut cp = Command::new("cp");
    cp.arg(&first).arg(&copy).succeeds();
    for kibibytes in 6..15 {
        let spare = disk.0.join("spare");
        fs::write(&spare, vec![1; kibibytes << 10]).unwrap();
        let synced = File::open(&spare).and_then(|file| file.sync_all());
        synced.unwrap();
        disk.fill();
        fs::remove_file(&spare).unwrap();
        for mode in [&["--daemon"][..], &[]] {
            let mut mount = ctxbench(["mount"]);
            mount.args(mode).args(["sqlite", "--db", copy.to_str().unwrap()]).arg(&dir);
            let refused = mount.output().unwrap();
            let said = stderr(&refused);
            assert_eq!(refused.status.code(), Some(1), "{kibibytes} KiB: {:?}: {said}", refused.status);
            assert!(said.contains("free at least 8 MiB"), "{kibibytes} KiB: {said}");
        }
        fs::remove_file(disk.0.join("filler")).unwrap();
    }
    let mounted = Mount::new("sqlite", &dir, &["--db", copy.to_str().unwrap()]);
    assert_eq!(text_of(&dir, "note"), "acknowledged");
    mounted.end();
}

#[test]
fn a_memory_that_fills_its_disk_mounts_again_and_indexes_once_there_is_room() {
    let Some(scratch) = as_root() else { return };
    let (disk, dir) = (LoopDisk::new(&scratch, 40), scratch.dir("ctx"));
    let db = disk.0.join("fs.db");
    let options = ["--db", db.to_str().unwrap(), "--embeddings", "none"];
    let mount = || Mount::new("agent-memory", &dir, &options);
    let note = |number: usize| dir.join(format!("{number}.md"));
    let mut dice = ChaCha8Rng::seed_from_u64(1);
    let mut text = || {
        let words = (0..2_000).map(|_| format!("{:08x} ", dice.random::<u32>()));
        words.collect::<String>() + "needle"
    };
    let mut mounted = mount();
    let written = (0..).take_while(|number| fs::write(note(*number), text()).is_ok()).count();
    assert!(written > 200, "{written} notes");
    mounted.end();
    for is_killed in [false, true] {
        mounted = mount();
        assert!(text_of(&dir, "7.md").ends_with("needle"));
        let stats = text_of(&dir, ":stats");
        assert!(stats.contains("\nindex: no room: "), "{stats}");
        let error = fs::read(dir.join(":search?needle")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        disk.fill();
        fs::remove_file(note(usize::from(is_killed))).unwrap();
        if is_killed { mounted.crash() } else { mounted.end() }
    }
    mounted = mount();
    for number in 2..written - 20 {
        fs::remove_file(note(number)).unwrap();
    }
    let _ = fs::remove_file(disk.0.join("filler"));
    wait_for("an index that is current", || text_of(&dir, ":stats").contains("\nindex: current\n"));
    let found = text_of(&dir, ":search?needle&limit=1000");
    assert!(found.contains(&format!("{}.md", written - 1)), "{found}");
    assert!(!found.contains("/5.md"), "{found}");
    mounted.end();
}

#[test]
fn a_write_past_the_limit_of_file_sizes_fails_and_the_mount_goes_on() {
    let Some(scratch) = mountable() else { return };
    let dir = scratch.dir("ctx");
    let limited = format!("ulimit -f 8192; exec {} mount sqlite {}", CTXBENCH, dir.display());
    let mut command = Command::new("bash");
    command.args(["-c", &limited]);
    let mounted = Mount::of(command, &dir);
    fs::write(dir.join("note"), "acknowledged").unwrap();
    let error = fs::write(dir.join("long"), vec![1; 20 << 20]).unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::FileTooLarge | io::ErrorKind::StorageFull), "{error}");
    assert_eq!(text_of(&dir, "note"), "acknowledged");
    fs::write(dir.join("other"), "acknowledged").unwrap();
    mounted.end();
}
