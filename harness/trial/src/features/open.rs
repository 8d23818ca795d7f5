//! The flags of `open`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::thread;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use super::check::{Check, did, must, refused, same};
use super::names::read;
use super::{Feature, Group, TestDir};

const OPEN: Group = Group("open");

pub(super) const FEATURES: &[Feature] = &[
    OPEN.feature("`O_EXCL`: one of many wins, a dangling link does not count", exclusive),
    OPEN.feature("`O_APPEND`: no line lost between four writers", appends),
    OPEN.feature("`O_TRUNC`, and write without truncating", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), "0123456789"))?;
        let mut file = did("opening", File::options().write(true).open(test_dir.at("a")))?;
        did("writing", file.write_all(b"abc"))?;
        same("content", read(&test_dir.at("a"))?, "abc3456789".to_owned())?;
        did("truncating", File::create(test_dir.at("a")))?;
        same("content", read(&test_dir.at("a"))?, String::new())
    }),
    OPEN.feature("`O_DIRECTORY` of a file, writing a directory", |test_dir| {
        did("creating", fs::write(test_dir.at("a"), ""))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY;
        let opened = openat(CWD, test_dir.at("a"), flags, Mode::empty());
        refused("opening a file as a directory", opened, Errno::NOTDIR)?;
        let opened = File::options().write(true).open(&test_dir.path);
        refused("opening a directory to write", opened, Errno::ISDIR)
    }),
    OPEN.feature("`O_SYNC` and `O_DSYNC` writes", |test_dir| {
        for (name, flags) in [("sync", OFlags::SYNC), ("dsync", OFlags::DSYNC)] {
            let flags = flags | OFlags::CREATE | OFlags::WRONLY;
            let file = did("opening", openat(CWD, test_dir.at(name), flags, Mode::RWXU))?;
            did("writing", File::from(file).write_all(b"durable"))?;
            same("content", read(&test_dir.at(name))?, "durable".to_owned())?;
        }
        Ok(())
    }),
    OPEN.feature("`fsync`, `fdatasync`, and `fsync` of a directory", |test_dir| {
        let mut file = did("creating", File::create(test_dir.at("a")))?;
        did("writing", file.write_all(b"durable"))?;
        did("fdatasync", file.sync_data())?;
        did("fsync", file.sync_all())?;
        let dir = did("opening the directory", File::open(&test_dir.path))?;
        did("fsync of the directory", dir.sync_all())
    }),
    OPEN.feature("`O_TMPFILE`: a file that never had a name", |test_dir| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = did("opening", openat(CWD, &test_dir.path, flags, Mode::RWXU))?;
        did("writing", File::from(file).write_all(b"nameless"))?;
        same("entries", did("listing", fs::read_dir(&test_dir.path))?.count(), 0)
    }),
];

fn exclusive(test_dir: &TestDir) -> Check {
    let path = test_dir.at("lock");
    let create = || File::options().write(true).create_new(true).open(&path);
    let won = thread::scope(|scope| {
        let racers: Vec<_> = (0..4).map(|_| scope.spawn(create)).collect();
        // A racing thread only opens a file, so it cannot panic.
        let results = racers.into_iter().map(|racer| racer.join());
        results.filter(|result| matches!(result, Ok(Ok(_)))).count()
    });
    same("winners of four", won, 1)?;
    refused("creating again", create(), Errno::EXIST)?;
    did("linking", symlink("missing", test_dir.at("dangling")))?;
    let dangling = File::options().write(true).create_new(true).open(test_dir.at("dangling"));
    refused("creating through a dangling link", dangling, Errno::EXIST)
}

fn appends(test_dir: &TestDir) -> Check {
    const WRITERS: usize = 4;
    const LINES: usize = 50;
    let path = test_dir.at("log");
    let write = |writer: usize| -> io::Result<()> {
        let mut file = File::options().append(true).create(true).open(&path)?;
        for line in 0..LINES {
            file.write_all(format!("writer {writer} line {line}\n").as_bytes())?;
        }
        Ok(())
    };
    let results: Vec<io::Result<()>> = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let lost = || Err(io::Error::other("the writer panicked"));
        writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| lost())).collect()
    });
    for result in results {
        did("appending", result)?;
    }
    let text = read(&path)?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let whole = |line: &&str| line.starts_with("writer ") && line.contains(" line ");
    must(lines.len() == WRITERS * LINES && lines.iter().all(whole), || {
        format!("{} of {} lines are there whole", lines.len(), WRITERS * LINES)
    })
}
