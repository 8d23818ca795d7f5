//! Tails: the bytes past the first 256 KiB of a file, in a plain file beside the database.
//!
//! The tail of inode 7 of `notes.db` is `notes.db-tails/7`; its first byte is the file's byte 262,144.
//! The database has the file's size. Bytes of a tail past it are never read, and are cut off before the file grows over
//! them. So a tail is written before the transaction that makes it part of the file. It is cut or removed after the
//! transaction that no longer needs it, once that is durable.

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::counters::Counters;
use super::files::{folder, tails_of};
use crate::store::{Errno, Ino, Result, StoreError};

/// Bytes of a file that are in the database: files of agents are hardly ever longer.
pub const HEAD: u64 = 256 * 1024;

/// Tails held open; all are closed when there are more.
const OPEN_MAX: usize = 64;

/// How far ahead of a growing tail space is reserved, in bytes: as much as there is, up to 16 MiB. The
/// file system then finds places for many writes at once: 64 MiB go into ext4 in 8.5 ms instead of 12.6.
const AHEAD_MAX: u64 = 16 << 20;

/// Locks that all tails share: two files of one lock now and then wait for each other.
const BUSY: usize = 64;

/// A tail that is held open.
#[derive(Debug)]
struct Tail {
    file: File,
    /// Up to where space is reserved, as far as is known.
    reserved: AtomicU64,
}

/// The tails of one database.
#[derive(Debug)]
pub(crate) struct Tails {
    dir: PathBuf,
    /// Set once, before the first tail is opened.
    is_read_only: AtomicBool,
    /// Whether there is a directory: without one, no inode has a tail.
    has_directory: AtomicBool,
    open: Mutex<HashMap<Ino, Arc<Tail>>>,
    unsynced: Mutex<Unsynced>,
    /// Held, by inode, while bytes of a tail are read or written: a read sees all of a write, or nothing.
    busy: [RwLock<()>; BUSY],
    /// Held while tails are synced: a second sync must not return before the first has finished.
    syncing: Mutex<()>,
    counters: Arc<Counters>,
}

/// Changes since the last sync.
#[derive(Debug, Default)]
struct Unsynced {
    tails: BTreeSet<Ino>,
    /// A tail has been created.
    directory: bool,
}

impl Tail {
    /// Reserves space for the bytes up to `end`, and as much again for what will follow.
    fn reserve(&self, start: u64, end: u64) {
        if end <= self.reserved.load(Ordering::Relaxed) {
            return;
        }
        let ahead = end.min(AHEAD_MAX);
        // Where it cannot be had, the write finds its own place, or says why there is none.
        let _ = fallocate(
            &self.file,
            FallocateFlags::KEEP_SIZE,
            start,
            end - start + ahead,
        );
        self.reserved.store(end + ahead, Ordering::Relaxed);
    }

    /// Cuts or extends, and frees space reserved past the new end.
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.reserved.store(0, Ordering::Relaxed);
        self.file.set_len(length)
    }
}

/// The blocks of 512 bytes that `length` bytes occupy in whole pages.
pub(super) fn blocks(length: u64) -> u64 {
    length.div_ceil(4096) * 8
}

/// The inode whose tail has this name.
fn ino_of(name: &OsStr) -> Option<Ino> {
    name.to_str()?.parse().ok()
}

impl Tails {
    pub(super) fn new(database: &Path, counters: Arc<Counters>) -> Self {
        let dir = tails_of(database);
        Self {
            is_read_only: AtomicBool::new(false),
            has_directory: AtomicBool::new(dir.exists()),
            dir,
            open: Mutex::default(),
            unsynced: Mutex::default(),
            busy: std::array::from_fn(|_| RwLock::default()),
            syncing: Mutex::default(),
            counters,
        }
    }

    /// Opens tails for reading only from now on.
    pub(super) fn only_read(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    fn path(&self, ino: Ino) -> PathBuf {
        self.dir.join(ino.to_string())
    }

    fn failed(&self, ino: Ino, error: &io::Error) -> StoreError {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        // The tail is missing, not the file of the request.
        let errno = if errno == Errno::NOENT {
            Errno::IO
        } else {
            errno
        };
        StoreError::storage(errno, format!("{}: {error}", self.path(ino).display()))
    }

    /// The tail of a file that has one.
    fn get(&self, ino: Ino) -> Result<Arc<Tail>> {
        self.get_or_create(ino, false)
    }

    /// The tail of a file, which may not have had one yet if `may_create`.
    fn get_or_create(&self, ino: Ino, may_create: bool) -> Result<Arc<Tail>> {
        if let Some(file) = self.open.lock().get(&ino) {
            return Ok(Arc::clone(file));
        }
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(!self.is_read_only.load(Ordering::Acquire))
                .create(may_create)
                .truncate(false)
                .mode(0o600)
                .open(self.path(ino))
        };
        let opened = match open() {
            Err(error) if may_create && error.kind() == io::ErrorKind::NotFound => {
                self.create_directory().and_then(|()| open())
            }
            opened => opened,
        };
        let file = opened.map_err(|error| self.failed(ino, &error))?;
        self.unsynced.lock().directory |= may_create;
        Ok(self.hold(ino, file))
    }

    fn create_directory(&self) -> io::Result<()> {
        self.has_directory.store(true, Ordering::Release);
        DirBuilder::new().mode(0o700).create(&self.dir)?;
        File::open(folder(&self.dir))?.sync_all()
    }

    fn hold(&self, ino: Ino, file: File) -> Arc<Tail> {
        let tail = Arc::new(Tail {
            file,
            reserved: AtomicU64::new(0),
        });
        let mut open = self.open.lock();
        if open.len() >= OPEN_MAX {
            open.clear();
        }
        open.insert(ino, Arc::clone(&tail));
        tail
    }

    fn busy(&self, ino: Ino) -> &RwLock<()> {
        &self.busy[ino as usize % BUSY]
    }

    /// Keeps the bytes of a tail as they are until it is dropped.
    pub(super) fn hold_still(&self, ino: Ino) -> RwLockReadGuard<'_, ()> {
        // A write that panicked has failed; writes to a tail are not undone.
        self.busy(ino).read()
    }

    /// Keeps readers away from the bytes of a tail while they change.
    fn alone(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        self.busy(ino).write()
    }

    /// Fills `out` from `offset` on; what the tail does not hold reads as zeros.
    pub(super) fn read(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<()> {
        let tail = self.get(ino)?;
        let mut filled = 0;
        while filled < out.len() {
            match tail
                .file
                .read_at(&mut out[filled..], offset + filled as u64)
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(ino, &error)),
            }
        }
        out[filled..].fill(0);
        Ok(())
    }

    /// Writes at `offset` of the tail of a file whose tail is `length` long, if that is not 0.
    pub(crate) fn write(&self, ino: Ino, length: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let tail = self.get_or_create(ino, length == 0)?;
        if offset == length {
            tail.reserve(offset, offset + bytes.len() as u64);
        }
        self.change(ino, || tail.file.write_all_at(bytes, offset))
    }

    /// Changes a tail, which has to be synced then. Not before: a sync that begins meanwhile would take it for done.
    fn change(&self, ino: Ino, work: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let changing = self.alone(ino);
        let changed = work();
        drop(changing);
        self.unsynced.lock().tails.insert(ino);
        changed.map_err(|error| self.failed(ino, &error))
    }

    /// Extends a tail of `length` bytes to `longer` with a hole, which replaces leftovers.
    pub(super) fn extend(&self, ino: Ino, length: u64, longer: u64) -> Result<()> {
        let tail = self.get_or_create(ino, length == 0)?;
        self.change(ino, || {
            tail.set_length(length)?;
            tail.set_length(longer)
        })
    }

    /// Cuts off what is past `length`, where there is a tail; it is no part of the file any more.
    pub(super) fn cut(&self, ino: Ino, length: u64) {
        let tail = self.get(ino);
        let cut = tail.and_then(|tail| self.change(ino, || tail.set_length(length)));
        if let Err(error) = cut {
            tracing::warn!(%error, "space past the end of a file is not freed");
        }
    }

    /// Makes a range of the tail read as zeros.
    pub(super) fn punch(&self, ino: Ino, offset: u64, length: u64) -> Result<()> {
        let tail = self.get(ino)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.change(ino, || Ok(fallocate(&tail.file, flags, offset, length)?))
    }

    /// The first byte at or after `offset` that lies in no hole.
    pub(super) fn next_data(&self, ino: Ino, offset: u64) -> Result<Option<u64>> {
        match seek(&self.get(ino)?.file, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(self.failed(ino, &io::Error::from(error))),
        }
    }

    /// The first byte at or after `offset` that lies in a hole, or past all that the tail holds.
    pub(super) fn next_hole(&self, ino: Ino, offset: u64) -> Result<u64> {
        match seek(&self.get(ino)?.file, SeekFrom::Hole(offset)) {
            Ok(at) => Ok(at),
            Err(Errno::NXIO) => Ok(offset),
            Err(error) => Err(self.failed(ino, &io::Error::from(error))),
        }
    }

    /// The blocks of 512 bytes that the tail occupies, without reserved ones past it; 0 where it is missing.
    pub(super) fn blocks(&self, ino: Ino) -> u64 {
        let metadata = self
            .get(ino)
            .ok()
            .and_then(|tail| tail.file.metadata().ok());
        metadata.map_or(0, |metadata| metadata.blocks().min(blocks(metadata.len())))
    }

    /// Whether there is a tail.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.has_directory.load(Ordering::Acquire)
            && (self.open.lock().contains_key(&ino) || self.path(ino).exists())
    }

    /// Removes the tail of an inode that is gone, if it had one.
    pub(super) fn remove(&self, ino: Ino) {
        self.open.lock().remove(&ino);
        self.unsynced.lock().tails.remove(&ino);
        if let Err(error) = std::fs::remove_file(self.path(ino))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(tail = %self.path(ino).display(), %error, "cannot be removed");
        }
    }

    /// Removes what a crash has left: tails of files that are gone, or that end before, and space
    /// reserved past the others.
    pub(super) fn sweep(&self, has_tail: impl Fn(Ino) -> Result<bool>) -> Result<()> {
        for name in self.names()? {
            match ino_of(&name) {
                Some(ino) if !has_tail(ino)? => self.remove(ino),
                Some(ino) => self.give_back(ino),
                None => {
                    tracing::warn!(file = %self.dir.join(name).display(), "is no tail of ours");
                }
            }
        }
        Ok(())
    }

    /// Frees space reserved past the end of a tail.
    fn give_back(&self, ino: Ino) {
        let Ok(tail) = self.get(ino) else {
            return;
        };
        let freed = tail.file.metadata().and_then(|metadata| {
            if metadata.blocks() > blocks(metadata.len()) {
                tail.set_length(metadata.len())?;
            }
            Ok(())
        });
        if let Err(error) = freed {
            tracing::warn!(ino, %error, "space reserved past the end of a file is not freed");
        }
    }

    /// Whether there is nothing to sync.
    pub(super) fn are_clean(&self) -> bool {
        let unsynced = self.unsynced.lock();
        unsynced.tails.is_empty() && !unsynced.directory
    }

    /// Takes every tail for one that has to be synced: the mount that wrote them may have been killed before it did.
    pub(super) fn take_over(&self) -> Result<()> {
        let names = self.names()?;
        let mut unsynced = self.unsynced.lock();
        unsynced.directory = !names.is_empty();
        unsynced
            .tails
            .extend(names.iter().filter_map(|name| ino_of(name)));
        Ok(())
    }

    /// The names in the directory, if there is one.
    fn names(&self) -> Result<Vec<OsString>> {
        match std::fs::read_dir(&self.dir) {
            Ok(entries) => Ok(entries
                .filter_map(|entry| Some(entry.ok()?.file_name()))
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => {
                let reason = format!("{}: {error}", self.dir.display());
                Err(StoreError::storage(Errno::IO, reason))
            }
        }
    }

    /// Makes all writes to tails so far durable.
    pub(super) fn sync(&self) -> Result<()> {
        let _syncing = self.syncing.lock();
        let unsynced = std::mem::take(&mut *self.unsynced.lock());
        for ino in unsynced.tails {
            let file = match File::open(self.path(ino)) {
                Ok(file) => file,
                // Its file is gone, so nothing of it has to be durable.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(self.failed(ino, &error)),
            };
            Counters::add(&self.counters.tail_syncs);
            file.sync_data().map_err(|error| self.failed(ino, &error))?;
        }
        if unsynced.directory {
            File::open(&self.dir)
                .and_then(|dir| dir.sync_all())
                .map_err(|error| {
                    StoreError::storage(Errno::IO, format!("{}: {error}", self.dir.display()))
                })?;
        }
        Ok(())
    }
}

impl Drop for Tails {
    fn drop(&mut self) {
        if let Err(error) = self.sweep(|_| Ok(true)) {
            tracing::warn!(%error, "space reserved past the ends of files is not freed");
        }
        // Without a single tail the database is one file again; with any, this fails.
        let _ = std::fs::remove_dir(&self.dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_that_is_synced_while_it_changes_is_synced_again() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(&dir.path().join("a.db"), Arc::clone(&counters));
        tails.write(7, 0, 0, b"one").unwrap();
        tails.sync().unwrap();
        let synced_meanwhile = || {
            tails.sync().unwrap();
            Ok(())
        };
        tails.change(7, synced_meanwhile).unwrap();
        let before = counters.tail_syncs.load(Ordering::Relaxed);
        tails.sync().unwrap();
        assert_eq!(counters.tail_syncs.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn the_tails_of_a_killed_mount_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(&path, Arc::clone(&counters));
        assert!(tails.are_clean());
        tails.write(7, 0, 0, b"one").unwrap();
        assert!(!tails.are_clean());
        let again = Tails::new(&path, Arc::clone(&counters));
        again.take_over().unwrap();
        again.sync().unwrap();
        assert_eq!(counters.tail_syncs.load(Ordering::Relaxed), 1);
    }
}
