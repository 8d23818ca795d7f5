//! The disk space of a database: the space that its commits can rely on, and the maximum length of its log.
//!
//! A commit takes the place of its new pages in the database file before it is in SQLite's log. So a checkpoint needs
//! no space, and the log's file, which is not shortened below [`LOG_KEPT`], can be written from its start again however
//! full the disk is. So a change that removes something can always commit.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

use fuse::store::{Errno, Result, StoreError};

/// Bytes past the end of the database for changes that free space: a B-tree may split where a row grows.
const RESERVE: u64 = 256 << 10;

/// Bytes that are taken at once, past those that a commit needs.
const AHEAD: u64 = 1 << 20;

/// Bytes that a file system may need to note where the others are.
const METADATA: u64 = 64 << 10;

/// Bytes by which the log grows before it is copied into the database. What is written again and again is copied once:
/// 4 MiB measured 5 % less throughput with eight writing processes.
const CHECKPOINT_AT: u64 = 16 << 20;

/// The same where the disk is full.
const CHECKPOINT_AT_LEAST: u64 = 1 << 20;

/// Bytes of the log after which the writer waits for its copy, beside a share of the database.
const LOG_MAX: u64 = 24 << 20;

/// The longest log of a large database.
const LOG_MAX_LARGE: u64 = 256 << 20;

/// Bytes that the log file has from the start, and never less: appending to it then changes no metadata, and a sync has
/// only the appended pages to write.
pub(super) const LOG_KEPT: u64 = 4 << 20;

/// The log's file is shortened to so much when it begins again on a disk with room.
pub(super) const LOG_KEPT_ROOMY: u64 = CHECKPOINT_AT;

/// Free bytes from which the disk is no longer called full.
const ROOMY: u64 = 128 << 20;

/// Bytes that stay allocated past the end of an unmounted database, so that it can be mounted on a full disk: a
/// share of it, within these limits.
const UNMOUNTED_MIN: u64 = 128 << 10;
const UNMOUNTED_MAX: u64 = 1 << 20;

/// Bytes of free disk below which a mount takes the space past the end of the database for its logs.
const MOUNT_NEEDS: u64 = 8 << 20;

/// The space of one mounted database.
#[derive(Debug)]
pub struct Room {
    /// The descriptor that holds the lock of the mount, so SQLite's locks end no earlier.
    database: Arc<File>,
    /// Bytes of the reserve of a database of so many bytes.
    reserve: fn(u64) -> u64,
    /// Bytes of the database that are sure to have a place.
    placed: AtomicU64,
    /// Bytes that it has with the last commit, most of which may be in the log.
    length: AtomicU64,
    /// A checkpoint has run that the checkpoint thread does not know of.
    pub(super) was_copied: AtomicBool,
}

/// How long the log may become, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogLimits {
    /// The checkpoint thread copies it.
    pub(super) copy_at: u64,
    /// The writer copies it.
    pub(super) max: u64,
}

/// The limits for a database of `database` bytes on a disk with `free` bytes left.
fn log_limits(database: u64, free: u64) -> LogLimits {
    let copy_at = (free / 16).clamp(CHECKPOINT_AT_LEAST, CHECKPOINT_AT);
    let share = match copy_at {
        CHECKPOINT_AT => LOG_MAX + database / 6,
        _ => 2 * copy_at,
    };
    LogLimits { copy_at, max: share.min(LOG_MAX_LARGE) }
}

/// Bytes that users may still take of the disk that holds `file`.
pub(super) fn free_of(file: &File) -> u64 {
    fstatvfs(file).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Allocates a part of the database's file past its end.
fn place(file: &File, start: u64, end: u64) -> std::result::Result<(), Errno> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, start, end - start) {
        // Such a disk promises nothing.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        placed => placed,
    }
}

/// Allocates a part of a file, also past its end; whether there is room. Asks before: ext4 keeps a part of what it could not
/// allocate whole.
pub fn place_if_room(file: &File, start: u64, end: u64) -> bool {
    let allocated = file.metadata().map_or(0, |file| file.blocks() * 512);
    let missing = end.saturating_sub(allocated);
    let has_room = || missing == 0 || free_of(file) >= missing + METADATA;
    start >= end || (has_room() && place(file, start, end).is_ok())
}

impl Room {
    pub(super) fn new(database: &Arc<File>) -> Self {
        Self::with_reserve(database, |_| RESERVE)
    }

    /// The space of a database whose reserve depends on its length. SQLite must have closed the database before the last
    /// descriptor of `database` is closed, which ends SQLite's locks.
    pub fn with_reserve(database: &Arc<File>, reserve: fn(u64) -> u64) -> Self {
        Self {
            database: Arc::clone(database),
            reserve,
            placed: AtomicU64::new(0),
            length: AtomicU64::new(0),
            was_copied: AtomicBool::new(false),
        }
    }

    /// Bytes that users may still take of the disk.
    pub(super) fn free(&self) -> u64 {
        free_of(&self.database)
    }

    /// Whether the disk has so much room that nothing needs to be saved.
    pub(super) fn is_roomy(&self) -> bool {
        self.free() >= ROOMY
    }

    /// How long the log may become.
    pub(super) fn log_limits(&self) -> LogLimits {
        let length = self.database.metadata().map_or(0, |file| file.len());
        log_limits(length, self.free())
    }

    /// Gives a mount the space that the last one has left past the end of the database, if the disk is nearly full. The
    /// mount must have locked the database.
    ///
    /// # Errors
    /// Those of the file.
    pub fn open(&self) -> io::Result<()> {
        if self.free() < MOUNT_NEEDS { self.database.set_len(self.database.metadata()?.len()) } else { Ok(()) }
    }

    /// Sees to it that a database of `length` bytes has its place, before the commit that makes it so long. A commit
    /// that frees space may use the reserve.
    ///
    /// # Errors
    /// `ENOSPC` if the disk is full.
    pub fn take(&self, length: u64, frees: bool) -> Result<()> {
        let before = self.length.swap(length, Ordering::AcqRel);
        let (placed, needed) = (self.placed.load(Ordering::Acquire), length + (self.reserve)(length));
        if needed <= placed {
            return Ok(());
        }
        let file = self.database.metadata();
        let file = file.map_err(|error| StoreError::storage(Errno::IO, error))?;
        let start = placed.max(file.len());
        let ends = match frees {
            true if length <= start => return Ok(()),
            true => [needed + AHEAD, needed, length],
            false => [needed + AHEAD, needed, needed],
        };
        for end in ends {
            if self.place(start, end) {
                self.placed.store(end, Ordering::Release);
                return Ok(());
            }
        }
        // Nothing is committed, so a checkpoint must not look for so much space.
        self.length.store(before, Ordering::Release);
        let reason = "no place for the new pages of the database";
        Err(StoreError::storage(Errno::NOSPC, reason))
    }

    fn place(&self, start: u64, end: u64) -> bool {
        place_if_room(&self.database, start, end)
    }

    /// A checkpoint has ended, and may have freed what lay past the end of the database: takes that again.
    pub fn copied(&self) {
        let start = self.database.metadata().map_or(0, |file| file.len());
        // A commit may have come in between, and have lost its place.
        let length = start.max(self.length.load(Ordering::Acquire));
        // A part of the reserve is better than none.
        let reserve = (self.reserve)(length);
        let ends = [reserve, reserve / 2, reserve / 4, 0].map(|reserve| length + reserve);
        let placed = ends.into_iter().find(|end| self.place(start, *end)).unwrap_or(0);
        self.placed.store(placed, Ordering::Release);
    }
}

/// Leaves a little space past the end of a database that SQLite has closed, for a mount on a full disk.
pub(super) fn leave_space(database: &File) -> io::Result<()> {
    let length = database.metadata()?.len();
    leave_bytes(database, (length / 128).clamp(UNMOUNTED_MIN, UNMOUNTED_MAX))
}

/// Leaves so many bytes past the end of a database that SQLite has closed, unless it is empty.
///
/// # Errors
/// Those of the file. A full disk does not count as an error.
pub fn leave_bytes(database: &File, bytes: u64) -> io::Result<()> {
    let file = database.metadata()?;
    let length = file.len();
    if length == 0 {
        return Ok(());
    }
    let end = length + bytes;
    if file.blocks() * 512 > end {
        database.set_len(length)?;
    }
    // Without it, such a mount has to find room elsewhere.
    let _ = place(database, length, end);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_by_shares_of_the_disk_and_of_the_database() {
        const MIB: u64 = 1 << 20;
        let limits = |database, free| {
            let limits = log_limits(database * MIB, free * MIB);
            (limits.copy_at / MIB, limits.max / MIB)
        };
        assert_eq!(limits(10, 0), (1, 2));
        assert_eq!(limits(10, 64), (4, 8));
        assert_eq!(limits(12, 100_000), (16, 26));
        assert_eq!(limits(600, 100_000), (16, 124));
        assert_eq!(limits(80_000, 100_000), (16, 256));
        // A disk without room has a log no longer than the file that it keeps.
        const { assert!(2 * CHECKPOINT_AT_LEAST < LOG_KEPT) };
    }

    #[test]
    fn a_commit_has_its_place_before_it_is_made() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = File::create(dir.path().join("a.db"));
        let file = Arc::new(file.unwrap());
        file.set_len(4096).unwrap();
        let room = Room::new(&file);
        let allocated = || file.metadata().unwrap().blocks() * 512;
        room.take(100 << 20, false).unwrap();
        assert!(allocated() >= 100 << 20);
        assert_eq!(file.metadata().unwrap().len(), 4096);
        room.take(4096, false).unwrap();
        // As a complete checkpoint does.
        file.set_len(4096).unwrap();
        room.copied();
        assert!((RESERVE..RESERVE + 8192).contains(&allocated()));
        leave_space(&file).unwrap();
        assert!(allocated() <= UNMOUNTED_MIN + 8192);
        // More than any disk has.
        let error = room.take(1 << 60, false).unwrap_err();
        assert_eq!(error.errno, Errno::NOSPC, "{error}");
        assert!(room.take(1 << 60, true).is_err());
        room.take(4096, true).unwrap();
    }
}
