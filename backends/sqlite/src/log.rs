//! The log that `fsync` makes durable: SQLite's write-ahead log, or the redo log where all before it is durable.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fuse::store::{Errno, Ino, Result, StoreError};
use memmap2::{Mmap, MmapOptions};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::ErrorCode;
use rustix::fs::{FallocateFlags, StatVfsMountFlags, fallocate, fstat};

use crate::counters::Counters;
use crate::files::{folder, index_of, log_of, open_beside};
use crate::on_panic::on_panic;
use crate::open_error::{SqliteOpenError, unreadable};
use crate::redo::PromisedRecords;
use crate::room::LOG_KEPT;
use crate::tails::Tails;

/// Bytes of the first part of SQLite's shared memory: for the first 4,096 frames of the log.
const INDEX_BYTES: u64 = 32 << 10;

/// Bytes that the file of the shared memory has allocated past its first part. SQLite truncates the file when it opens the
/// database after a kill, and writes it in pieces, which may need more blocks than before.
const INDEX_SPARE: u64 = 32 << 10;

/// Why a sync fails after another one has.
const BROKEN: &str = "an earlier sync or checkpoint failed: no change is durable until the next mount";

/// Keeps the log's pages in memory: its frames are not whole pages, so that appending to one that the
/// kernel has let go of would first have to read it.
#[expect(unsafe_code, reason = "the only way to keep pages of a file in memory")]
fn pin(file: &File) -> Option<Mmap> {
    // SAFETY: nothing ever reads through the map, so changes and truncations of the file do not matter.
    let map = unsafe { MmapOptions::new().len(LOG_KEPT as usize).map(file) };
    let pinned = map.and_then(|map| {
        map.lock()?;
        Ok(map)
    });
    pinned.inspect_err(|error| tracing::info!(%error, "cannot map the log: writing to it may need reads")).ok()
}

/// Fills the log file up with zeros, up to the room that the disk has. SQLite's recovery ends at the first frame without the
/// log's salt.
fn pad(file: &File) -> std::io::Result<()> {
    match pad_all(file) {
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            tracing::warn!("the disk is full: the log has less space than planned");
            Ok(())
        }
        padded => padded,
    }
}

fn pad_all(file: &File) -> std::io::Result<()> {
    let zeros = [0; 64 * 1024];
    let mut length = file.metadata()?.len();
    while length < LOG_KEPT {
        let piece = (LOG_KEPT - length).min(zeros.len() as u64);
        file.write_all_at(&zeros[..piece as usize], length)?;
        length += piece;
    }
    Ok(())
}

/// The log file of a database, held open to be synced.
///
/// SQLite locks the database and its shared memory, never the log, so a descriptor of our own is
/// safe. SQLite keeps the file for as long as a connection is open.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// The database's file, and its path at the start of the mount.
    database: (Arc<File>, PathBuf),
    /// SQLite's shared memory, which must stay open for as long as SQLite locks it.
    _index: Option<File>,
    _pinned: Option<Mmap>,
    /// A sync or a checkpoint has failed: the kernel may have dropped what it could not write, and calls it clean
    /// from then on, so no later sync can promise anything about it.
    is_broken: AtomicBool,
    /// Commits so far.
    commits: AtomicU64,
    /// How many of them are durable: those before the start of the last sync that has ended.
    durable: AtomicU64,
    /// The last change whose record a sync of the redo log has made durable.
    recorded: AtomicU64,
    /// One sync at a time: the kernel tells only one of several callers that a page could not be written.
    syncing: Mutex<()>,
    counters: Arc<Counters>,
}

/// Makes the names of the database at `path` and of its log durable.
pub(super) fn sync_names(path: &Path) -> std::result::Result<(), SqliteOpenError> {
    File::open(folder(path)).and_then(|dir| dir.sync_all()).map_err(|error| unreadable(path, &error))
}

/// Makes a file's bytes durable. An ext4 that an error has made read-only writes nothing, and before Linux 6.15 says
/// nothing; below an overlay it cannot be seen.
fn sync_data(file: &File) -> std::io::Result<()> {
    file.sync_data()?;
    let disk = rustix::fs::fstatvfs(file)?;
    if disk.f_flag.contains(StatVfsMountFlags::RDONLY) { Err(Errno::ROFS.into()) } else { Ok(()) }
}

/// Opens SQLite's shared memory, and allocates its first part and, if the disk has room, what the next mount needs after a
/// kill.
fn index(path: &Path) -> std::result::Result<File, SqliteOpenError> {
    let path = index_of(path);
    let opened = open_beside(&path, File::options().read(true).write(true));
    let file = opened.map_err(|error| unreadable(&path, &error))?;
    match fallocate(&file, FallocateFlags::empty(), 0, INDEX_BYTES) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(error) => return Err(unreadable(&path, &std::io::Error::from(error))),
    }
    let spare = fallocate(&file, FallocateFlags::KEEP_SIZE, INDEX_BYTES, INDEX_SPARE);
    if let Err(error) = spare
        && !matches!(error, Errno::OPNOTSUPP | Errno::NOSYS)
    {
        tracing::warn!(%error, "no spare space for SQLite's shared memory: after a kill, a mount may need free space");
    }
    Ok(file)
}

impl Log {
    /// Opens the log of the database at `path`, which a first transaction has created.
    pub(super) fn open(
        path: &Path,
        database: &Arc<File>,
        counters: Arc<Counters>,
    ) -> std::result::Result<Self, SqliteOpenError> {
        let log = log_of(path);
        let index = index(path)?;
        let file = open_beside(&log, File::options().read(true).write(true))
            .and_then(|file| pad(&file).map(|()| file))
            .map_err(|error| unreadable(&log, &error))?;
        let pinned = pin(&file);
        let database = (Arc::clone(database), path.to_owned());
        Ok(Self::of(file, database, Some(index), pinned, counters))
    }

    /// The log of a database that can only be read: nothing is ever written to it. Its file is the database itself.
    pub(super) fn unused(
        path: &Path,
        database: &Arc<File>,
        counters: Arc<Counters>,
    ) -> std::result::Result<Self, SqliteOpenError> {
        let file = File::open(path).map_err(|error| unreadable(path, &error))?;
        let database = (Arc::clone(database), path.to_owned());
        let log = Self::of(file, database, None, None, counters);
        log.durable.store(log.commits.load(Ordering::Acquire), Ordering::Release);
        Ok(log)
    }

    fn of(
        file: File,
        database: (Arc<File>, PathBuf),
        index: Option<File>,
        pinned: Option<Mmap>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            _pinned: pinned,
            file,
            database,
            _index: index,
            is_broken: AtomicBool::new(false),
            // The state at opening and the commits that prepared it count as one commit.
            commits: AtomicU64::new(1),
            durable: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            syncing: Mutex::default(),
            counters,
        }
    }

    /// A transaction was committed.
    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::AcqRel);
    }

    /// Commits so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Acquire)
    }

    /// How many commits are durable.
    pub(super) fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Whether every committed transaction is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire) == self.commits.load(Ordering::Acquire)
    }

    /// Makes every committed transaction durable: what is no longer in the log, a checkpoint has
    /// synced into the database before it left the log. The tails first: a length that the log
    /// promises must have its bytes.
    ///
    /// # Errors
    /// `EIO` if the disk reports one, and from then on always; also after a checkpoint that failed.
    pub(super) fn sync(&self, tails: &Tails) -> Result<()> {
        let wanted = self.commits.load(Ordering::Acquire);
        let _syncing = self.alone()?;
        if self.durable.load(Ordering::Acquire) >= wanted && tails.are_clean() {
            // By the one before.
            return Ok(());
        }
        let commits = self.commits.load(Ordering::Acquire);
        // A panic here may lose the list of unsynced tails.
        let _broken = on_panic(|| self.give_up("a sync panicked"));
        tails.sync(commits).map_err(|error| self.broken(error.to_string()))?;
        self.check()?;
        let synced = sync_data(&self.file);
        synced.map_err(|error| self.broken(format!("syncing the log: {error}")))?;
        self.check()?;
        self.durable.fetch_max(commits, Ordering::AcqRel);
        Counters::add(&self.counters.syncs);
        Ok(())
    }

    /// Makes the tails durable that a state needs which has `commits` commits. A sync of a log has to follow.
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub(super) fn sync_tails(&self, tails: &Tails, commits: u64) -> Result<()> {
        let _syncing = self.alone()?;
        let _broken = on_panic(|| self.give_up("a sync panicked"));
        tails.sync(commits).map_err(|error| self.broken(error.to_string()))?;
        self.check()
    }

    /// Makes the tails of some inodes durable, without waiting for a sync of others. The next sync syncs them again.
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub(super) fn sync_some(&self, tails: &Tails, inos: impl IntoIterator<Item = Ino>) -> Result<()> {
        self.check()?;
        tails.sync_some(inos).map_err(|error| self.broken(error.to_string()))
    }

    /// Makes recorded changes durable, before which every committed transaction is. The tails first, as in [`Log::sync`].
    ///
    /// # Errors
    /// As [`Log::sync`].
    pub(super) fn sync_redo(&self, recorded: &PromisedRecords, tails: &Tails) -> Result<()> {
        let _syncing = self.alone()?;
        if self.recorded.load(Ordering::Acquire) >= recorded.last && tails.are_clean() {
            return Ok(());
        }
        let _broken = on_panic(|| self.give_up("a sync panicked"));
        // The records count as the next commit.
        tails.sync(recorded.commits + 1).map_err(|error| self.broken(error.to_string()))?;
        self.check()?;
        let synced = sync_data(&recorded.file);
        synced.map_err(|error| self.broken(format!("syncing the redo log: {error}")))?;
        self.check()?;
        self.recorded.fetch_max(recorded.last, Ordering::AcqRel);
        Counters::add(&self.counters.redo_syncs);
        Ok(())
    }

    /// Whether a sync or a checkpoint has failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Acquire)
    }

    /// Takes a checkpoint that failed for a failed sync, unless it only had to wait: the kernel tells that a page could not be
    /// written once, and that was then.
    pub(super) fn check_checkpoint(&self, error: &rusqlite::Error) {
        let harmless = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked, ErrorCode::DiskFull];
        if !error.sqlite_error_code().is_some_and(|code| harmless.contains(&code)) {
            self.give_up(&format!("checkpoint: {error}"));
        }
    }

    /// Lets every later sync fail.
    pub(super) fn give_up(&self, reason: &str) {
        self.is_broken.store(true, Ordering::Release);
        tracing::error!("{reason}: no change is durable until the next mount");
    }

    fn alone(&self) -> Result<MutexGuard<'_, ()>> {
        let syncing = self.syncing.lock();
        self.check()?;
        Ok(syncing)
    }

    /// Fails after a sync that failed. Also before and after the sync of a log: that of some tails may have taken the disk's error meanwhile.
    fn check(&self) -> Result<()> {
        if self.is_broken() { Err(StoreError::storage(Errno::IO, BROKEN)) } else { self.must_have_name() }
    }

    /// Fails if another program has deleted or replaced the database: the file then ends with the mount, whatever is synced.
    pub(super) fn must_have_name(&self) -> Result<()> {
        let (database, path) = &self.database;
        if fstat(database)?.st_nlink > 0 {
            return Ok(());
        }
        let reason = format!(
            "another program has deleted or replaced the database {}; the mount still shows its files, and they are lost once it is unmounted (copy them elsewhere before)",
            path.display()
        );
        Err(StoreError::storage(Errno::IO, reason))
    }

    fn broken(&self, reason: String) -> StoreError {
        self.is_broken.store(true, Ordering::Release);
        StoreError::storage(Errno::IO, reason)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use fuse::store::{ROOT, Store};

    use super::*;
    use crate::SqliteStore;
    use crate::log_mark::tests::{FILE, OWNER};

    #[test]
    fn the_shared_memory_keeps_space_for_the_mount_after_a_kill() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("a.db");
        let _store = SqliteStore::open(&path, &OWNER).unwrap();
        let index = std::fs::metadata(index_of(&path)).unwrap();
        assert_eq!(index.len(), INDEX_BYTES);
        assert!(index.blocks() * 512 >= INDEX_BYTES + INDEX_SPARE, "{} blocks", index.blocks());
    }

    #[test]
    fn a_database_that_another_program_removes_or_replaces_fails_every_sync_and_the_unmount() {
        for is_replaced in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            store.sync().unwrap();
            if is_replaced {
                std::fs::write(dir.path().join("other"), "other").unwrap();
                std::fs::rename(dir.path().join("other"), &path).unwrap();
            } else {
                std::fs::remove_file(&path).unwrap();
            }
            store.create(&OWNER, ROOT, b"a", &FILE).unwrap();
            for failed in [store.sync(), store.finish()] {
                let error = failed.unwrap_err();
                assert_eq!(error.errno, Errno::IO);
                let reason = error.into_reason();
                assert!(reason.contains("deleted or replaced the database") && reason.contains("a.db"), "{reason}");
            }
            if is_replaced {
                assert_eq!(std::fs::read(&path).unwrap(), b"other");
            }
        }
    }

    #[test]
    fn an_unmount_fails_without_a_change_if_another_program_has_removed_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.sync().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(store.finish().unwrap_err().errno, Errno::IO);
    }

    #[test]
    fn a_database_that_was_moved_is_synced_as_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        std::fs::rename(&path, dir.path().join("b.db")).unwrap();
        store.sync().unwrap();
        store.finish().unwrap();
    }
}
