//! Listings of changing directories, and nodes that are neither files nor directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;

use rustix::fs::{CWD, Dev, FileType, Mode, mknodat};
use rustix::io::Errno;

use super::check::{Check, Shortfall, did, must, refused, same};
use super::{Feature, Group, TestDir};

/// More entries than one reply to a listing holds.
const ENTRIES: usize = 2_000;

const LISTING: Group = Group("listing");
const DIRECTORIES: Group = Group("directories");
const SPECIAL: Group = Group("special");

pub(super) const FEATURES: &[Feature] = &[
    LISTING.feature("2,000 entries, each once, with type and inode", |test_dir| {
        fill(test_dir)?;
        did("creating", fs::create_dir(test_dir.at("sub")))?;
        let mut count = 0;
        for entry in did("listing", fs::read_dir(&test_dir.path))? {
            let entry = did("listing", entry)?;
            let meta = did("stat", entry.metadata())?;
            same("inode", entry.ino(), meta.ino())?;
            let kind = did("type", entry.file_type())?;
            same("is a directory", kind.is_dir(), meta.is_dir())?;
            count += 1;
        }
        same("entries", count, ENTRIES + 1)
    }),
    LISTING.feature("while entries are added", |test_dir| {
        fill(test_dir)?;
        let seen = list(test_dir, |at| did("creating", fs::write(test_dir.at(&format!("new{at}")), "")))?;
        each_once(seen, |_| true)
    }),
    LISTING.feature("while entries are removed", |test_dir| {
        fill(test_dir)?;
        let seen = list(test_dir, |at| {
            let name = format!("{:04}", (at * 7) % ENTRIES);
            // An earlier iteration may have removed it.
            let _ = fs::remove_file(test_dir.at(&name));
            Ok(())
        })?;
        let left = |name: &str| test_dir.at(name).exists();
        each_once(seen, left)
    }),
    LISTING.feature("removing everything that is listed", |test_dir| {
        fill(test_dir)?;
        for entry in did("listing", fs::read_dir(&test_dir.path))? {
            let path = did("listing", entry)?.path();
            did("removing", fs::remove_file(path))?;
        }
        same("entries left", did("listing", fs::read_dir(&test_dir.path))?.count(), 0)
    }),
    DIRECTORIES.feature("only empty ones are removed, and not as files", |test_dir| {
        did("creating", fs::create_dir_all(test_dir.at("dir/in")))?;
        refused("removing a full one", fs::remove_dir(test_dir.at("dir")), Errno::NOTEMPTY)?;
        refused("unlinking one", fs::remove_file(test_dir.at("dir")), Errno::ISDIR)?;
        refused("creating one again", fs::create_dir(test_dir.at("dir")), Errno::EXIST)?;
        did("removing", fs::remove_dir(test_dir.at("dir/in")))?;
        did("removing", fs::remove_dir(test_dir.at("dir")))
    }),
    DIRECTORIES.feature("300 levels deep", |test_dir| {
        let mut path = test_dir.path.clone();
        for _ in 0..300 {
            path.push("d");
        }
        did("creating", fs::create_dir_all(&path))?;
        did("writing", fs::write(path.join("file"), "deep"))?;
        did("removing", fs::remove_dir_all(test_dir.at("d")))
    }),
    SPECIAL.feature("named pipes and sockets", |test_dir| {
        let mode = Mode::RUSR | Mode::WUSR;
        let made = mknodat(CWD, test_dir.at("pipe"), FileType::Fifo, mode, Dev::default());
        did("creating a pipe", made)?;
        did("binding a socket", UnixListener::bind(test_dir.at("s")))?;
        let (pipe, socket) = (test_dir.stat("pipe")?, test_dir.stat("s")?);
        let are_right = pipe.file_type().is_fifo() && socket.file_type().is_socket();
        must(are_right, || "they are of another type")
    }),
];

fn fill(test_dir: &TestDir) -> Check {
    for number in 0..ENTRIES {
        did("creating", fs::write(test_dir.at(&format!("{number:04}")), ""))?;
    }
    Ok(())
}

/// Counts how often each name of [`fill`] is listed; calls `meanwhile` after each tenth entry.
fn list(test_dir: &TestDir, meanwhile: impl Fn(usize) -> Check) -> Result<BTreeMap<String, usize>, Shortfall> {
    let mut seen = BTreeMap::new();
    for (at, entry) in did("listing", fs::read_dir(&test_dir.path))?.enumerate() {
        let name = did("listing", entry)?.file_name().to_string_lossy().into_owned();
        if !name.starts_with("new") {
            *seen.entry(name).or_insert(0) += 1;
        }
        // Listing added entries is permitted, but each of them may add more: the listing must still end.
        must(at < 3 * ENTRIES, || "the listing does not end")?;
        if at % 10 == 0 {
            meanwhile(at)?;
        }
    }
    Ok(seen)
}

/// Requires that every name that was never removed was listed exactly once, and no name twice.
fn each_once(seen: BTreeMap<String, usize>, there: impl Fn(&str) -> bool) -> Check {
    for number in 0..ENTRIES {
        let name = format!("{number:04}");
        let times = seen.get(&name).copied().unwrap_or(0);
        must(times == 1 || (times == 0 && !there(&name)), || format!("{name} was listed {times} times"))?;
    }
    Ok(())
}
