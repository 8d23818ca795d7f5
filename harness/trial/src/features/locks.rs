//! `flock` and byte-range locks, on one mount and between two mounts.

use std::fs::{self, File};
use std::path::Path;

use nix::errno::Errno as NixErrno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::check::{Check, Shortfall, did, refused, same};
use super::names::read;
use super::{Feature, Group, TestDir};

const LOCKS: Group = Group("locks");
const TWO_MOUNTS: Group = Group("two mounts");

pub(super) const FEATURES: &[Feature] = &[
    LOCKS.feature("flock", |test_dir| {
        let (one, two) = opened(test_dir, &test_dir.path)?;
        flocks(&one, &two)
    }),
    LOCKS.feature("byte ranges (`fcntl`)", |test_dir| {
        let (one, two) = opened(test_dir, &test_dir.path)?;
        ranges(&one, &two)
    }),
    TWO_MOUNTS.feature("flock", |test_dir| {
        let (one, two) = opened(test_dir, elsewhere(test_dir)?)?;
        flocks(&one, &two)
    }),
    TWO_MOUNTS.feature("byte ranges (`fcntl`)", |test_dir| {
        let (one, two) = opened(test_dir, elsewhere(test_dir)?)?;
        ranges(&one, &two)
    }),
    TWO_MOUNTS.feature("each sees at once what the other writes", |test_dir| {
        let other = elsewhere(test_dir)?.join("a");
        for round in 0..20 {
            let text = format!("round {round}{}", ".".repeat(round));
            did("writing here", fs::write(test_dir.at("a"), &text))?;
            same("content there", read(&other)?, text.clone())?;
            let text = format!("{text} answered");
            did("writing there", fs::write(&other, &text))?;
            same("content here", read(&test_dir.at("a"))?, text)?;
        }
        Ok(())
    }),
];

fn elsewhere(test_dir: &TestDir) -> Result<&Path, Shortfall> {
    test_dir
        .elsewhere
        .as_deref()
        .ok_or_else(|| Shortfall::NotHere("no second mount of the same files was given (--also)".to_owned()))
}

/// One file opened twice: in `test_dir`, and through `other`.
fn opened(test_dir: &TestDir, other: &Path) -> Result<(File, File), Shortfall> {
    did("creating", fs::write(test_dir.at("lock"), "0123456789"))?;
    let open = |path| did("opening", File::options().read(true).write(true).open(path));
    Ok((open(test_dir.at("lock"))?, open(other.join("lock"))?))
}

fn flocks(one: &File, two: &File) -> Check {
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    did("locking", flock(one, exclusive))?;
    refused("locking again", flock(two, exclusive), Errno::WOULDBLOCK)?;
    did("making it shared", flock(one, FlockOperation::NonBlockingLockShared))?;
    did("sharing it", flock(two, FlockOperation::NonBlockingLockShared))?;
    refused("exclusive against shared", flock(one, exclusive), Errno::WOULDBLOCK)?;
    did("unlocking", flock(one, FlockOperation::Unlock))?;
    did("locking what was unlocked", flock(two, exclusive))
}

/// Uses locks of open file descriptions, which conflict as those of two processes do.
fn ranges(one: &File, two: &File) -> Check {
    let lock = |file: &File, kind: i32, start: i64, length: i64| {
        let range = libc::flock {
            l_type: kind as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: start,
            l_len: length,
            l_pid: 0,
        };
        fcntl(file, FcntlArg::F_OFD_SETLK(&range)).map(drop)
    };
    let (read, write, unlock) = (libc::F_RDLCK, libc::F_WRLCK, libc::F_UNLCK);
    did("locking 0–9", lock(one, write, 0, 10))?;
    conflicts("5–14 against 0–9", lock(two, write, 5, 10))?;
    did("10–19 beside 0–9", lock(two, write, 10, 10))?;
    did("unlocking 5–9", lock(one, unlock, 5, 5))?;
    did("5–9 after unlocking", lock(two, read, 5, 5))?;
    conflicts("write against read", lock(one, write, 5, 1))?;
    did("read beside read", lock(one, read, 5, 1))
}

fn conflicts(what: &str, result: Result<(), NixErrno>) -> Check {
    refused(what, result, Errno::AGAIN)
}
