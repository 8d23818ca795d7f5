//! Which mount of this host has a database open, for the message that refuses a second one.

use std::fs::{canonicalize, read_dir, read_link};
use std::path::{Path, PathBuf};

use fuse::connection::{MountEntry, mounts};
use fuse::daemon::Daemon;

/// The mount point of the daemon that has `database` open; `None` if it cannot be told.
pub(super) fn mount_of(database: &Path) -> Option<PathBuf> {
    let database = canonicalize(database).ok()?;
    let has_it = |mount: &MountEntry| {
        let daemon = Daemon::of(mount)?;
        let files = read_dir(format!("/proc/{}/fd", daemon.pid())).ok()?;
        let mut files = files.flatten().filter_map(|file| read_link(file.path()).ok());
        files.find(|file| *file == database)
    };
    let mut ours = mounts().ok()?.into_iter().filter(MountEntry::is_ours);
    ours.find(|mount| has_it(mount).is_some()).map(|mount| mount.at)
}
