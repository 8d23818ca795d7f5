//! Which mount of this host has a database open, for the message that refuses a second one.

use std::fs::{canonicalize, read, read_dir, read_link, read_to_string};
use std::path::{Path, PathBuf};

/// The mount point of the process that has `database` open; `None` if it cannot be told.
pub(super) fn mount_of(database: &Path) -> Option<PathBuf> {
    let database = canonicalize(database).ok()?;
    let mounts = read_to_string("/proc/self/mountinfo").ok()?;
    let is_mount = |path: &Path| {
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
        // The kernel writes a space as `\040`.
        points
            .map(|point| point.replace("\\040", " "))
            .any(|point| Path::new(&point) == path)
    };
    read_dir("/proc").ok()?.flatten().find_map(|process| {
        let files = read_dir(process.path().join("fd")).ok()?;
        let mut files = files
            .flatten()
            .filter_map(|file| read_link(file.path()).ok());
        files.find(|file| *file == database)?;
        let started_in = read_link(process.path().join("cwd")).ok()?;
        let command = read(process.path().join("cmdline")).ok()?;
        let words = command
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        words
            .filter_map(|word| Some(started_in.join(std::str::from_utf8(word).ok()?)))
            .find(|path| is_mount(path))
    })
}
