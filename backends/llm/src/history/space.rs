//! The disk space of a log: what an operation needs is allocated before the operation is applied, because the reference
//! cannot undo it. Operations that remove something may use a reserve, so that a full disk can be emptied.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::store::{Errno, Result, StoreError};
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode};
use sqlite::database::{Room, leave_bytes, place_if_room};

/// Bytes of a page, and of a frame of SQLite's log with one.
const PAGE: u64 = 4096;
const FRAME: u64 = PAGE + 24;

/// Pages that an operation may change beside those of its own data: a leaf, the pages above it, and what a split adds.
const PAGES_BESIDE: u64 = 8;

/// Bytes that SQLite's log gets when the log is opened: as many of these as the disk has.
const WAL_BYTES: [u64; 4] = [8 << 20, 2 << 20, 512 << 10, 64 << 10];

/// Bytes that stay allocated past the end of an unmounted log, so that a full disk can still mount and empty it.
const UNMOUNTED: u64 = 1 << 20;

/// Bytes of the reserve of a log of so many bytes. Removing a name takes about as much as creating it took.
fn reserve(length: u64) -> u64 {
    length.clamp(1 << 20, 16 << 20)
}

/// The space of an open log.
#[derive(Debug)]
pub(super) struct Space {
    /// Closed only after SQLite has closed the database: it would end SQLite's locks.
    database: Arc<File>,
    room: Room,
    wal: PathBuf,
    /// Bytes that SQLite's log is sure to have.
    wal_bytes: u64,
    /// Frames that SQLite's log has.
    frames: Arc<AtomicU64>,
}

impl Space {
    /// The space of the database at `path`, which SQLite has not opened yet.
    pub(super) fn new(path: &Path, wal: PathBuf) -> io::Result<Self> {
        let database = Arc::new(File::options().read(true).write(true).open(path)?);
        let room = Room::with_reserve(&database, reserve);
        Ok(Self { room, database, wal, wal_bytes: 0, frames: Arc::default() })
    }

    /// Gives a mount on a full disk what the last one has left. The mount must have locked the database.
    pub(super) fn open(&self) -> io::Result<()> {
        self.room.open()
    }

    /// Allocates SQLite's log and the reserve, or as much of each as the disk has room for.
    pub(super) fn allocate(&mut self, db: &mut Connection) -> rusqlite::Result<()> {
        let frames = Arc::clone(&self.frames);
        // It also ends SQLite's own checkpoints, which would take the reserve away.
        db.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            frames.store(u64::try_from(pages).unwrap_or(0), Ordering::Relaxed);
            Ok(())
        }))?;
        let _ = WAL_BYTES.into_iter().any(|bytes| self.extend_wal(bytes));
        self.room.copied();
        Ok(())
    }

    fn extend_wal(&mut self, bytes: u64) -> bool {
        // Such a file has no locks that closing it would end.
        let wal = File::options().write(true).open(&self.wal);
        let is_done = wal.is_ok_and(|wal| place_if_room(&wal, 0, bytes));
        if is_done {
            self.wal_bytes = bytes;
        }
        is_done
    }

    /// Sees to it that a transaction with `bytes` of data can commit. One that removes something may use the reserve.
    ///
    /// # Errors
    /// `ENOSPC` if the disk is full.
    pub(super) fn take(&mut self, db: &Connection, bytes: u64, frees: bool) -> Result<()> {
        let pages = bytes / 4000 + PAGES_BESIDE;
        let has = |space: &Self| (space.frames.load(Ordering::Relaxed) + pages) * FRAME <= space.wal_bytes;
        if !has(self) {
            self.checkpoint(db).map_err(|error| storage(&error))?;
            if !has(self) && !self.extend_wal((pages + 1) * FRAME) && !frees {
                return Err(StoreError::storage(Errno::NOSPC, "no place in SQLite's log for the operation"));
            }
        }
        let used: u64 = db
            .prepare_cached("PRAGMA page_count")
            .and_then(|mut count| count.query_row((), |row| row.get(0)).map(i64::cast_unsigned))
            .map_err(|error| storage(&error))?;
        self.room.take((used + pages) * PAGE, frees)
    }

    /// Copies SQLite's log once it is half full.
    pub(super) fn committed(&self, db: &Connection) -> rusqlite::Result<()> {
        let is_due = 2 * self.frames.load(Ordering::Relaxed) * FRAME >= self.wal_bytes.max(WAL_BYTES[1]);
        if is_due { self.checkpoint(db) } else { Ok(()) }
    }

    /// Copies SQLite's log into the database, and syncs both: SQLite then writes its log from the start again.
    pub(super) fn checkpoint(&self, db: &Connection) -> rusqlite::Result<()> {
        let copied = db.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()));
        // A complete one frees what lies past the end of the database.
        self.room.copied();
        if copied.is_ok() {
            self.frames.store(0, Ordering::Relaxed);
        }
        copied
    }

    /// SQLite has closed the database.
    pub(super) fn leave(self) {
        if let Err(error) = leave_bytes(&self.database, UNMOUNTED) {
            tracing::warn!(%error, "the log keeps no space for a mount on a full disk");
        }
    }
}

/// The error of a statement for a caller.
pub(super) fn storage(error: &rusqlite::Error) -> StoreError {
    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    StoreError::storage(if is_full { Errno::NOSPC } else { Errno::IO }, error)
}
