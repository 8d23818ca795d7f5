//! Tails: the bytes past the first 256 KiB of a file, in a plain file beside the database.
//!
//! The tail of inode 7 of `notes.db` is `notes.db-tails/7`; its first byte is the file's byte 262,144.
//! The database has the file's size. Bytes of a tail past it are never read, and are cut off before the file grows over
//! them. So a tail is written before the transaction that makes it part of the file. It is cut or removed after the
//! transaction that no longer needs it, once that is durable: see [`super::discards`] and [`super::set_aside`].

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, OnceLock};

use fuse::store::{Errno, Ino, Result, StoreError};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::{
    Access, AtFlags, Dir, FallocateFlags, Mode, OFlags, SeekFrom, Stat, accessat, fallocate, fstat, mkdirat, openat,
    renameat, seek, statat, unlinkat,
};

use crate::counters::Counters;
use crate::discards::Discards;
use crate::files::{DatabaseDirectory, SUMS, TAILS, is_foreign, open_in, tails_of};
use crate::growth::Growth;
use crate::set_aside::{ChangeId, TailName};
use crate::sum_file::SumFile;
use crate::tail_sums::{self, TailSums};

/// Tails held open; all are closed when there are more.
const OPEN_MAX: usize = 64;

/// How far ahead of a growing tail space is reserved, in bytes: a quarter of what there is, within these limits. The
/// file system then finds places for many writes at once: 64 MiB go into ext4 in 8.5 ms instead of 12.6.
const AHEAD_MIN: u64 = 64 << 10;
const AHEAD_MAX: u64 = 16 << 20;

/// Locks that all tails share: two files of one lock now and then wait for each other.
const BUSY: usize = 64;

/// A tail that is held open.
#[derive(Debug)]
struct Tail {
    file: File,
    /// The end of the space that is known to be reserved.
    reserved: AtomicU64,
    /// It has grown since the last [`Tails::trim_idle`].
    has_grown: AtomicBool,
}

/// The tails of one database.
#[derive(Debug)]
pub(crate) struct Tails {
    /// Where the directory was at the open, for messages.
    path: PathBuf,
    beside: DatabaseDirectory,
    /// The directory. Without one, no inode has a tail.
    dir: OnceLock<File>,
    creating: Mutex<()>,
    /// Set once, before the first tail is opened.
    is_read_only: AtomicBool,
    open: Mutex<HashMap<Ino, Arc<Tail>>>,
    /// Tails past whose end space may be reserved.
    ahead: Mutex<BTreeSet<Ino>>,
    /// The disk is full, or nearly: nothing is reserved.
    is_tight: AtomicBool,
    /// The checksums of the tails that were read or written.
    sums: Mutex<HashMap<Ino, Arc<TailSums>>>,
    /// Those of the tails that have changed, for the case of a kill.
    sum_file: Arc<SumFile>,
    unsynced: Mutex<UnsyncedChanges>,
    growth: Growth,
    /// Held, by inode, while bytes of a tail are read or written: a read sees all of a write, or nothing.
    busy: [RwLock<()>; BUSY],
    /// Held while tails are synced: a second sync must not return before the first has finished.
    syncing: Mutex<()>,
    /// Wakes the thread that syncs.
    wake: OnceLock<SyncSender<()>>,
    counters: Arc<Counters>,
    /// What the last sync of each tail has made durable, for tests that lose the rest.
    #[cfg(test)]
    pub(super) durable: Mutex<HashMap<TailName, Vec<u8>>>,
}

/// Changes since the last sync.
#[derive(Debug, Default)]
struct UnsyncedChanges {
    tails: BTreeSet<TailName>,
    /// Those that a sync has still to sync.
    in_sync: BTreeSet<TailName>,
    /// A tail has been created.
    directory: bool,
    /// The tails, and ends of tails, to remove once a state that does not need them is durable.
    discards: Discards,
}

impl Tail {
    /// Reserves space for the bytes up to `end`, and for what will follow. True if it may have.
    fn reserve(&self, start: u64, end: u64) -> bool {
        self.has_grown.store(true, Ordering::Relaxed);
        if end <= self.reserved.load(Ordering::Relaxed) {
            return false;
        }
        let ahead = (end / 4).clamp(AHEAD_MIN, AHEAD_MAX);
        // Where it cannot be had, the write finds its own place, or says why there is none.
        let _ = fallocate(&self.file, FallocateFlags::KEEP_SIZE, start, end - start + ahead);
        self.reserved.store(end + ahead, Ordering::Relaxed);
        true
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

/// Whether a tail surely holds no data before byte `end`.
fn is_hole_to(file: &File, end: u64) -> bool {
    match seek(file, SeekFrom::Data(0)) {
        Ok(data) => data >= end,
        Err(error) => error == Errno::NXIO,
    }
}

/// Whether a write has failed for lack of space.
fn is_out_of_space(written: &Result<()>) -> bool {
    written.as_ref().is_err_and(|error| matches!(error.errno, Errno::NOSPC | Errno::DQUOT))
}

/// Frees space reserved past the end of a tail, whose bytes must not change meanwhile.
fn free_reserved(tail: &Tail) -> io::Result<()> {
    let metadata = tail.file.metadata()?;
    if metadata.blocks() > blocks(metadata.len()) { tail.set_length(metadata.len()) } else { Ok(()) }
}

/// The inode whose current tail has this name.
fn ino_of(name: &OsStr) -> Option<Ino> {
    let name = TailName::parse(name)?;
    name.set_aside.is_none().then_some(name.ino)
}

impl Tails {
    /// The tails of `database`, whose directory must exist.
    pub(super) fn new(database: &Path, counters: Arc<Counters>) -> io::Result<Self> {
        let beside = DatabaseDirectory::open(database)?;
        let sum_file = SumFile::new(beside.folder().try_clone()?, beside.name(SUMS));
        let tails = Self {
            path: tails_of(database),
            beside,
            dir: OnceLock::new(),
            creating: Mutex::default(),
            is_read_only: AtomicBool::new(false),
            open: Mutex::default(),
            ahead: Mutex::default(),
            is_tight: AtomicBool::new(false),
            sums: Mutex::default(),
            sum_file: Arc::new(sum_file),
            unsynced: Mutex::default(),
            growth: Growth::default(),
            busy: std::array::from_fn(|_| RwLock::default()),
            syncing: Mutex::default(),
            wake: OnceLock::new(),
            counters,
            #[cfg(test)]
            durable: Mutex::default(),
        };
        match tails.open_directory() {
            Ok(dir) => drop(tails.dir.set(dir)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(tails)
    }

    /// From now on, opens tails only for reading.
    pub(super) fn only_read(&self) {
        self.is_read_only.store(true, Ordering::Release);
    }

    /// The directory of the database.
    pub(super) fn beside(&self) -> &DatabaseDirectory {
        &self.beside
    }

    fn open_directory(&self) -> std::result::Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = self.beside.name(TAILS);
        let dir = openat(self.beside.folder(), name, flags, Mode::empty())?;
        Ok(File::from(dir))
    }

    /// Opens the tail of an inode by `flags`.
    fn open_file(&self, ino: Ino, flags: OFlags) -> io::Result<File> {
        self.open_name(TailName::current(ino), flags)
    }

    fn open_name(&self, name: TailName, flags: OFlags) -> io::Result<File> {
        let dir = self.dir.get().ok_or(Errno::NOENT)?;
        open_in(dir, Path::new(&name.to_string()), flags)
    }

    /// The path of a tail, for messages: its directory may have been moved since.
    fn path(&self, ino: Ino) -> PathBuf {
        self.path.join(ino.to_string())
    }

    fn failed(&self, ino: Ino, error: &io::Error) -> StoreError {
        let errno = Errno::from_io_error(error).unwrap_or(Errno::IO);
        // The tail is missing or closed to the mount, not the file of the request.
        let errno = if matches!(errno, Errno::NOENT | Errno::ACCESS | Errno::PERM) { Errno::IO } else { errno };
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
        let flags = match may_create {
            true => OFlags::RDWR | OFlags::CREATE,
            false if self.is_read_only.load(Ordering::Acquire) => OFlags::RDONLY,
            false => OFlags::RDWR,
        };
        if may_create && self.dir.get().is_none() {
            self.create_directory().map_err(|error| self.failed(ino, &error))?;
        }
        let opened = self.open_file(ino, flags);
        let file = opened.map_err(|error| self.failed(ino, &error))?;
        self.unsynced.lock().directory |= may_create;
        Ok(self.hold(ino, file))
    }

    fn create_directory(&self) -> io::Result<()> {
        let _creating = self.creating.lock();
        if self.dir.get().is_some() {
            return Ok(());
        }
        let folder = self.beside.folder();
        match mkdirat(folder, self.beside.name(TAILS), Mode::RWXU) {
            // By an attempt that failed after it.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder.sync_all()?;
        let _ = self.dir.set(self.open_directory()?);
        Ok(())
    }

    fn hold(&self, ino: Ino, file: File) -> Arc<Tail> {
        let tail = Arc::new(Tail { file, reserved: AtomicU64::new(0), has_grown: AtomicBool::new(false) });
        let closed = {
            let mut open = self.open.lock();
            let closed = if open.len() >= OPEN_MAX { std::mem::take(&mut *open) } else { HashMap::new() };
            open.insert(ino, Arc::clone(&tail));
            closed
        };
        for (ino, tail) in closed {
            self.trim(ino, &tail);
        }
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

    /// Keeps the bytes of all tails as they are until it is dropped.
    #[cfg(test)]
    pub(super) fn freeze(&self) -> Vec<RwLockReadGuard<'_, ()>> {
        self.busy.iter().map(RwLock::read).collect()
    }

    /// Keeps readers away from the bytes of a tail while they change.
    fn alone(&self, ino: Ino) -> RwLockWriteGuard<'_, ()> {
        self.busy(ino).write()
    }

    /// Fills `out` from `offset` on.
    ///
    /// # Errors
    /// `EIO` if the tail is too short, or its bytes are not those that were written.
    pub(super) fn read(&self, sums: &TailSums, ino: Ino, offset: u64, out: &mut [u8]) -> Result<()> {
        let tail = self.get(ino)?;
        let read = tail.file.read_exact_at(out, offset);
        let verified = read.and_then(|()| sums.verify(&tail.file, offset, out));
        match verified.map_err(|error| self.failed(ino, &error))? {
            Some(at) => Err(tail_sums::damage(&self.path(ino), at)),
            None => Ok(()),
        }
    }

    /// The checksums of a tail, if they are kept.
    pub(super) fn known_sums(&self, ino: Ino) -> Option<Arc<TailSums>> {
        self.sums.lock().get(&ino).map(Arc::clone)
    }

    /// Keeps the checksums of a tail.
    pub(super) fn keep_sums(&self, ino: Ino, sums: &Arc<TailSums>) {
        self.sums.lock().insert(ino, Arc::clone(sums));
    }

    /// The file that has the checksums of changed tails.
    pub(super) fn sum_file(&self) -> &Arc<SumFile> {
        &self.sum_file
    }

    /// Brings the checksum file up to date.
    pub(super) fn record_sums(&self) {
        // Another thread may be at it: its tails stay in this set until it is done with them.
        for ino in self.sum_file.behind() {
            // A tail that is gone needs no checksums.
            let (Some(sums), Ok(file)) = (self.known_sums(ino), self.file(ino)) else {
                self.sum_file.is_up_to_date(ino);
                continue;
            };
            if let Err(error) = sums.catch_up(&file, || self.sum_file.is_up_to_date(ino)) {
                tracing::warn!(ino, %error, "a checksum of content past the first 256 KiB is not recorded");
            }
        }
    }

    /// Whether the checksum file is behind some tail.
    pub(super) fn are_sums_behind(&self) -> bool {
        !self.sum_file.behind().is_empty()
    }

    /// Whether there may be a tail of any inode.
    pub(super) fn are_any(&self) -> bool {
        self.dir.get().is_some()
    }

    /// The metadata of the file of a tail; `None` if there is no such file, or its name is that of something else.
    pub(super) fn metadata(&self, ino: Ino) -> Result<Option<std::fs::Metadata>> {
        let opened = match self.open_file(ino, OFlags::PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_foreign(&error) => return Ok(None),
            opened => opened,
        };
        let metadata = opened.and_then(|file| file.metadata());
        metadata.map(Some).map_err(|error| self.failed(ino, &error))
    }

    /// The file of a tail.
    pub(super) fn file(&self, ino: Ino) -> Result<File> {
        let file = self.get(ino)?.file.try_clone();
        file.map_err(|error| self.failed(ino, &error))
    }

    /// The inodes whose tails have changed since they had checksums.
    pub(super) fn unsealed(&self) -> Result<Vec<Ino>> {
        let mut found = Vec::new();
        for ino in self.names()?.iter().filter_map(|name| ino_of(name)) {
            // Something else in the place of a tail has no checksums to compute.
            let is_sealed = self.metadata(ino)?.as_ref().is_none_or(tail_sums::is_sealed);
            found.extend((!is_sealed).then_some(ino));
        }
        Ok(found)
    }

    /// Fails if a tail holds less than `length` bytes.
    fn must_hold(&self, ino: Ino, tail: &Tail, length: u64) -> Result<()> {
        let held = tail.file.metadata().map(|file| file.len());
        match held.map_err(|error| self.failed(ino, &error))? {
            held if held < length => {
                let reason = format!("it has {held} of {length} bytes");
                Err(self.failed(ino, &io::Error::other(reason)))
            }
            _ => Ok(()),
        }
    }

    /// Writes at `offset` of the tail of a file whose tail is `length` long, if that is not 0.
    pub(super) fn write(&self, sums: &TailSums, ino: Ino, length: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let tail = self.get_or_create(ino, length == 0)?;
        self.must_hold(ino, &tail, length)?;
        let end = offset + bytes.len() as u64;
        let is_tight = self.is_tight.load(Ordering::Relaxed);
        if offset == length && !is_tight && tail.reserve(offset, end) {
            self.ahead.lock().insert(ino);
        }
        let file = &tail.file;
        let write = || {
            let work = || file.write_all_at(bytes, offset);
            self.change(ino, || sums.write(file, offset, bytes, work))
        };
        let mut written = write();
        if is_out_of_space(&written) {
            self.give_up_ahead();
            written = write();
        }
        if is_out_of_space(&written) && end > length {
            // The file does not include the part that was written: free its space.
            let cut = || sums.resize(file, length, || tail.set_length(length));
            self.change(ino, cut)
                .unwrap_or_else(|error| tracing::warn!(%error, "could not free the space past the end of a file"));
        }
        if written.is_ok() && end > length {
            self.growth.grew(ino);
        }
        written
    }

    /// The tails that have grown since their lengths were noted.
    pub(super) fn growth(&self) -> &Growth {
        &self.growth
    }

    /// Frees all space reserved ahead, and reserves none from now on: the disk is full.
    pub(super) fn give_up_ahead(&self) {
        self.is_tight.store(true, Ordering::Relaxed);
        self.trim_all(|_| true);
    }

    /// Reserves space ahead again, if the disk has room.
    pub(super) fn set_tight(&self, is_tight: bool) {
        self.is_tight.store(is_tight, Ordering::Relaxed);
    }

    /// Frees space reserved past the ends of tails that have not grown since the last call.
    pub(super) fn trim_idle(&self) {
        self.trim_all(|tail| !tail.has_grown.swap(false, Ordering::Relaxed));
    }

    fn trim_all(&self, is_wanted: impl Fn(&Tail) -> bool) {
        let ahead = self.ahead.lock().clone();
        for ino in ahead {
            let held = self.open.lock().get(&ino).map(Arc::clone);
            let tail = match held {
                Some(tail) => Ok(tail),
                None => self.open_file(ino, OFlags::RDWR).map(|file| {
                    Arc::new(Tail { file, reserved: AtomicU64::new(0), has_grown: AtomicBool::new(false) })
                }),
            };
            match tail {
                Ok(tail) if is_wanted(&tail) => self.trim(ino, &tail),
                Ok(_) => {}
                // It is removed.
                Err(_) => drop(self.ahead.lock().remove(&ino)),
            }
        }
    }

    /// Frees space reserved past the end of a tail, unless its bytes are just changing or held still.
    fn trim(&self, ino: Ino, tail: &Tail) {
        // Without waiting: the caller may hold one of these locks.
        let Some(_alone) = self.busy(ino).try_write() else {
            return;
        };
        if !self.ahead.lock().remove(&ino) {
            return;
        }
        if let Err(error) = free_reserved(tail) {
            tracing::warn!(ino, %error, "could not free the space reserved past the end of a file");
        }
    }

    /// Changes a tail, which has to be synced then. Not before: a sync that begins meanwhile would take it for done.
    fn change(&self, ino: Ino, work: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let changing = self.alone(ino);
        let changed = work();
        drop(changing);
        self.unsynced.lock().tails.insert(TailName::current(ino));
        changed.map_err(|error| self.failed(ino, &error))
    }

    /// Extends a tail of `length` bytes to `longer` with a hole, which replaces leftovers.
    pub(super) fn extend(&self, sums: &TailSums, ino: Ino, length: u64, longer: u64) -> Result<()> {
        let tail = self.get_or_create(ino, length == 0)?;
        self.must_hold(ino, &tail, length)?;
        let resize = |to| sums.resize(&tail.file, to, || tail.set_length(to));
        self.change(ino, || resize(length).and_then(|()| resize(longer)))?;
        self.growth.grew(ino);
        Ok(())
    }

    /// Extends a tail that is shorter than `length`, or missing, with a hole.
    pub(super) fn lengthen(&self, sums: &TailSums, ino: Ino, length: u64) -> Result<()> {
        let tail = self.get_or_create(ino, true)?;
        let held = tail.file.metadata().map_err(|error| self.failed(ino, &error))?.len();
        if held < length {
            self.change(ino, || sums.resize(&tail.file, length, || tail.set_length(length)))?;
            self.growth.grew(ino);
        }
        Ok(())
    }

    /// Truncates a tail to `length`, if there is one: the file no longer has the bytes past it.
    pub(super) fn cut(&self, sums: &TailSums, ino: Ino, length: u64) {
        let cut = self.get(ino).and_then(|tail| {
            self.must_hold(ino, &tail, length)?;
            let resize = || sums.resize(&tail.file, length, || tail.set_length(length));
            self.change(ino, resize)
        });
        if let Err(error) = cut {
            tracing::warn!(%error, "could not free the space past the end of a file");
        }
    }

    /// Makes a range of the tail read as zeros.
    pub(super) fn punch(&self, sums: &TailSums, ino: Ino, offset: u64, length: u64) -> Result<()> {
        let tail = self.get(ino)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = || Ok(fallocate(&tail.file, flags, offset, length)?);
        let range = offset..offset + length;
        self.change(ino, || sums.punch(&tail.file, range, punch))
    }

    /// The first byte at or after `offset` that lies in no hole of a tail that has to hold `length` bytes.
    ///
    /// # Errors
    /// `EIO` if the tail is shorter, or the hole was something else when it was written.
    pub(super) fn next_data(&self, sums: &TailSums, ino: Ino, length: u64, offset: u64) -> Result<Option<u64>> {
        let tail = self.get(ino)?;
        self.must_hold(ino, &tail, length)?;
        let found = match seek(&tail.file, SeekFrom::Data(offset)) {
            Ok(at) => Some(at),
            Err(Errno::NXIO) => None,
            Err(error) => return Err(self.failed(ino, &io::Error::from(error))),
        };
        match sums.lost_in_hole(offset..found.unwrap_or(length)) {
            Some(at) => Err(tail_sums::damage(&self.path(ino), at)),
            None => Ok(found),
        }
    }

    /// The first byte at or after `offset` that lies in a hole, or past all that the tail holds; it has to hold `length`
    /// bytes.
    pub(super) fn next_hole(&self, ino: Ino, length: u64, offset: u64) -> Result<u64> {
        let tail = self.get(ino)?;
        self.must_hold(ino, &tail, length)?;
        match seek(&tail.file, SeekFrom::Hole(offset)) {
            Ok(at) => Ok(at),
            Err(Errno::NXIO) => Ok(offset),
            Err(error) => Err(self.failed(ino, &io::Error::from(error))),
        }
    }

    /// The blocks of 512 bytes that the tail occupies, without reserved ones past it; 0 where it is missing, or where all
    /// that it holds waits for its removal.
    pub(super) fn blocks(&self, ino: Ino) -> u64 {
        let held = |tail: &Tail| {
            let metadata = tail.file.metadata().ok()?;
            Some(metadata.blocks().min(blocks(metadata.len())))
        };
        let tail = self.get(ino).ok();
        let Some((held, tail)) = tail.and_then(|tail| Some((held(&tail)?, tail))) else {
            return 0;
        };
        match self.discarded_end(ino) {
            Some(end) if is_hole_to(&tail.file, end) => 0,
            _ => held,
        }
    }

    /// Whether there is a tail.
    pub(super) fn has(&self, ino: Ino) -> bool {
        self.dir.get().is_some_and(|dir| {
            let is_there = || accessat(dir, ino.to_string(), Access::EXISTS, AtFlags::empty());
            self.open.lock().contains_key(&ino) || is_there().is_ok()
        })
    }

    /// Removes the tail of an inode that is gone, if it had one.
    fn remove(&self, ino: Ino) {
        self.let_go(ino);
        let name = TailName::current(ino);
        self.unsynced.lock().tails.remove(&name);
        self.unlink(name);
    }

    /// Forgets a tail that is no longer the one of its inode.
    fn let_go(&self, ino: Ino) {
        self.open.lock().remove(&ino);
        let sums = self.sums.lock().remove(&ino);
        if let Some(sums) = sums {
            sums.forget();
        }
        self.ahead.lock().remove(&ino);
    }

    fn unlink(&self, name: TailName) {
        #[cfg(test)]
        self.durable.lock().remove(&name);
        let remove = |dir| unlinkat(dir, name.to_string(), AtFlags::empty());
        if let Some(Err(error)) = self.dir.get().map(remove)
            && error != Errno::NOENT
        {
            let tail = self.path.join(name.to_string());
            tracing::warn!(tail = %tail.display(), %error, "cannot be removed");
        }
    }

    /// The bytes that a tail occupies from byte `length` on.
    fn occupied(&self, ino: Ino, length: u64) -> u64 {
        let file = self.metadata(ino).ok().flatten();
        let occupied = file.map_or(0, |file| (file.blocks() * 512).min(file.len()));
        occupied.saturating_sub(length)
    }

    /// Removes the tail of an inode that is gone, once commit `commit` is durable.
    pub(super) fn discard(&self, ino: Ino, commit: u64) {
        let bytes = self.occupied(ino, 0);
        self.let_go(ino);
        let name = TailName::current(ino);
        self.add_discard(|discards| discards.add_file(name, bytes, commit));
    }

    /// Cuts off what is past `length`, where there is a tail, once commit `commit` is durable.
    pub(super) fn discard_end(&self, ino: Ino, length: u64, commit: u64) {
        if self.has(ino) {
            let counted_from = self.discarded_end(ino).unwrap_or(u64::MAX);
            let bytes = self.occupied(ino, length).min(counted_from.saturating_sub(length));
            self.add_discard(|discards| discards.add_end(ino, length, bytes, commit));
        }
    }

    fn add_discard(&self, add: impl FnOnce(&mut Discards)) {
        let mut unsynced = self.unsynced.lock();
        add(&mut unsynced.discards);
        let are_many = unsynced.discards.are_many();
        drop(unsynced);
        if are_many {
            self.wake();
        }
    }

    /// Wakes the thread that syncs.
    fn wake(&self) {
        if let Some(wake) = self.wake.get() {
            // Full means that a wake-up is pending.
            let _ = wake.try_send(());
        }
    }

    /// Sets the channel that wakes the thread that syncs.
    pub(super) fn wake_by(&self, wake: SyncSender<()>) {
        let _ = self.wake.set(wake);
    }

    /// Sets the tail of an inode aside, because no state from change `change` on needs it. Its file is removed once
    /// commit `commit` is durable.
    pub(super) fn set_aside(&self, ino: Ino, change: ChangeId, commit: u64) -> Result<()> {
        let bytes = self.occupied(ino, 0);
        let Some(dir) = self.dir.get() else {
            return Ok(());
        };
        let (current, aside) = (TailName::current(ino), TailName { ino, set_aside: Some(change) });
        {
            // A read that has begun finds the file by its name.
            let _alone = self.alone(ino);
            let unsynced = &mut *self.unsynced.lock();
            match renameat(dir, current.to_string(), dir, aside.to_string()) {
                Ok(()) => {}
                // It has none.
                Err(Errno::NOENT) => return Ok(()),
                Err(error) => return Err(self.failed(ino, &error.into())),
            }
            #[cfg(test)]
            {
                let mut durable = self.durable.lock();
                let bytes = durable.remove(&current);
                durable.extend(bytes.map(|bytes| (aside, bytes)));
            }
            for names in [&mut unsynced.tails, &mut unsynced.in_sync] {
                if names.remove(&current) {
                    names.insert(aside);
                }
            }
            self.let_go(ino);
        }
        self.add_discard(|discards| discards.add_file(aside, bytes, commit));
        Ok(())
    }

    /// From which byte on the tail of an inode is discarded.
    pub(super) fn discarded_end(&self, ino: Ino) -> Option<u64> {
        self.unsynced.lock().discards.end(ino)
    }

    /// Bytes that the removal of discards will free.
    pub(super) fn discarded_bytes(&self) -> u64 {
        self.unsynced.lock().discards.bytes()
    }

    /// Whether anything waits for its removal.
    pub(super) fn has_discards(&self) -> bool {
        let discards = &self.unsynced.lock().discards;
        !discards.files(u64::MAX).is_empty() || !discards.cut_at(u64::MAX).is_empty()
    }

    /// Whether the removal of discards must not wait.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_tight.load(Ordering::Relaxed) || self.unsynced.lock().discards.are_too_many()
    }

    /// Removes the discards that no state needs, now that `durable` commits are durable.
    pub(super) fn free(&self, durable: u64) {
        let (files, cut) = {
            let discards = &mut self.unsynced.lock().discards;
            (discards.take_files(durable), discards.cut_at(durable))
        };
        files.into_iter().for_each(|name| self.unlink(name));
        for ino in cut {
            self.cut_discarded(ino, durable);
        }
    }

    /// Truncates the tail of an inode to the shortest length that the first `durable` commits have made final.
    pub(super) fn cut_discarded(&self, ino: Ino, durable: u64) {
        // A tail that was set aside meanwhile is removed as a whole.
        let tail = self.has(ino).then(|| self.get(ino));
        let cut = tail.transpose().and_then(|tail| {
            let Some(tail) = tail else { return Ok(()) };
            let sums = self.known_sums(ino);
            let _alone = self.alone(ino);
            // It may have been set aside, or cut, until now.
            let due = self.unsynced.lock().discards.due_end(ino, durable);
            let (Some(length), Some(sums)) = (due, sums) else {
                return Ok(());
            };
            self.must_hold(ino, &tail, length)?;
            let cut = sums.resize(&tail.file, length, || tail.set_length(length));
            self.unsynced.lock().tails.insert(TailName::current(ino));
            cut.map_err(|error| self.failed(ino, &error))
        });
        if let Err(error) = cut {
            tracing::warn!(%error, "could not free the space past the end of a file");
        }
        self.unsynced.lock().discards.cut_done(ino, durable);
    }

    /// Makes the names of tails durable, before the next mount counts its own changes.
    pub(super) fn sync_names(&self) -> Result<()> {
        let Some(dir) = self.dir.get() else {
            return Ok(());
        };
        let failed = |error| StoreError::storage(Errno::IO, format!("{}: {error}", self.path.display()));
        dir.sync_all().map_err(failed)?;
        Counters::add(&self.counters.tail_name_syncs);
        Ok(())
    }

    /// Removes the leftovers of a crash: tails of removed files, or of files that end before the tail, and space
    /// reserved past the others. `wanted` is the length of the tail of an inode. Answers which tails are longer.
    pub(super) fn sweep(&self, wanted: impl Fn(Ino) -> Result<Option<u64>>) -> Result<Vec<(Ino, u64)>> {
        let mut longer = Vec::new();
        for name in self.names()? {
            let Some(tail) = TailName::parse(&name) else {
                tracing::warn!(file = %self.path.join(name).display(), "is not a tail of this store");
                continue;
            };
            if tail.set_aside.is_some() {
                continue;
            }
            // An inode that cannot be read may need it.
            match wanted(tail.ino).unwrap_or(Some(u64::MAX)) {
                None => self.remove(tail.ino),
                Some(length) => {
                    self.give_back(tail.ino);
                    let held = self.metadata(tail.ino)?.map_or(0, |file| file.len());
                    longer.extend((held > length).then_some((tail.ino, length)));
                }
            }
        }
        Ok(longer)
    }

    /// Frees space reserved past the end of a tail.
    fn give_back(&self, ino: Ino) {
        let Ok(tail) = self.get(ino) else {
            return;
        };
        if let Err(error) = free_reserved(&tail) {
            tracing::warn!(ino, %error, "could not free the space reserved past the end of a file");
        }
    }

    /// Whether there is nothing to sync.
    pub(super) fn are_clean(&self) -> bool {
        let unsynced = self.unsynced.lock();
        unsynced.tails.is_empty() && !unsynced.directory
    }

    /// Whether bytes of the tail of an inode may not be durable yet.
    pub(super) fn is_unsynced(&self, ino: Ino) -> bool {
        let name = TailName::current(ino);
        let unsynced = self.unsynced.lock();
        unsynced.tails.contains(&name) || unsynced.in_sync.contains(&name)
    }

    /// Whether bytes of any tail may not be durable yet.
    pub(super) fn are_any_unsynced(&self) -> bool {
        let unsynced = self.unsynced.lock();
        !(unsynced.tails.is_empty() && unsynced.in_sync.is_empty())
    }

    /// Takes every tail for one that has to be synced: the mount that wrote them may have been killed before it did.
    pub(super) fn take_over(&self) -> Result<()> {
        let names = self.names()?;
        let mut unsynced = self.unsynced.lock();
        unsynced.directory = self.are_any();
        let inos = names.iter().filter_map(|name| ino_of(name));
        unsynced.tails.extend(inos.map(TailName::current));
        Ok(())
    }

    /// The names in the directory, if there is one.
    fn names(&self) -> Result<Vec<OsString>> {
        let Some(dir) = self.dir.get() else {
            return Ok(Vec::new());
        };
        let names = Dir::read_from(dir).and_then(|entries| {
            let name = |entry: rustix::fs::DirEntry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            entries.map(|entry| entry.map(name)).collect()
        });
        let mut names: Vec<OsString> =
            names.map_err(|error| StoreError::storage(Errno::IO, format!("{}: {error}", self.path.display())))?;
        names.retain(|name| name != "." && name != "..");
        Ok(names)
    }

    /// Makes all writes to tails so far durable that a state needs which has `commits` commits.
    pub(super) fn sync(&self, commits: u64) -> Result<()> {
        let _syncing = self.syncing.lock();
        let directory = {
            let unsynced = &mut *self.unsynced.lock();
            unsynced.in_sync = std::mem::take(&mut unsynced.tails);
            for unneeded in unsynced.discards.files(commits) {
                unsynced.in_sync.remove(&unneeded);
            }
            std::mem::take(&mut unsynced.directory)
        };
        while let Some((name, opened)) = self.next_in_sync() {
            self.sync_opened(name, opened)?;
            self.unsynced.lock().in_sync.remove(&name);
        }
        if directory { self.sync_names() } else { Ok(()) }
    }

    /// Makes the bytes of the tails of some inodes durable, and their names. The next [`Tails::sync`] syncs them again.
    pub(super) fn sync_some(&self, inos: impl IntoIterator<Item = Ino>) -> Result<()> {
        for ino in inos {
            let name = TailName::current(ino);
            let opened = {
                // With the lock that a renaming holds.
                let _unsynced = self.unsynced.lock();
                self.open_name(name, OFlags::RDONLY)
            };
            self.sync_opened(name, opened)?;
        }
        self.sync_names()
    }

    fn sync_opened(&self, name: TailName, opened: io::Result<File>) -> Result<()> {
        let file = match opened {
            Ok(file) => file,
            // Its file is gone, so nothing of it has to be durable.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Only this file is lost; to fail would refuse all others, too.
            Err(error) if is_foreign(&error) => {
                tracing::warn!(tail = %self.path.join(name.to_string()).display(), %error, "cannot be synced");
                return Ok(());
            }
            Err(error) => return Err(self.failed(name.ino, &error)),
        };
        Counters::add(&self.counters.tail_syncs);
        #[cfg(test)]
        let bytes = {
            let mut bytes = Vec::new();
            io::Read::read_to_end(&mut &file, &mut bytes).map_err(|error| self.failed(name.ino, &error))?;
            bytes
        };
        file.sync_data().map_err(|error| self.failed(name.ino, &error))?;
        #[cfg(test)]
        self.durable.lock().insert(name, bytes);
        Ok(())
    }

    /// Opens the next tail that the sync has to sync. With the lock that a renaming holds.
    fn next_in_sync(&self) -> Option<(TailName, io::Result<File>)> {
        let unsynced = self.unsynced.lock();
        let name = *unsynced.in_sync.first()?;
        Some((name, self.open_name(name, OFlags::RDONLY)))
    }
}

impl Drop for Tails {
    fn drop(&mut self) {
        if *self.is_read_only.get_mut() {
            return;
        }
        if let Err(error) = self.sweep(|_| Ok(Some(u64::MAX))) {
            tracing::warn!(%error, "could not free the space reserved past the ends of files");
        }
        // Without a single tail the database is one file again; with any, this fails. After the database was moved, another
        // one may have a directory of this name.
        let name = self.beside.name(TAILS);
        let identity = |found: Stat| (found.st_dev, found.st_ino);
        let there = statat(self.beside.folder(), &name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = self.dir.get().and_then(|dir| fstat(dir).ok());
        if there.ok().map(identity) == ours.map(identity) {
            let _ = unlinkat(self.beside.folder(), name, AtFlags::REMOVEDIR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_that_is_synced_while_it_changes_is_synced_again() {
        let dir = tempfile::tempdir().unwrap();
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(&dir.path().join("a.db"), Arc::clone(&counters)).unwrap();
        let sums = TailSums::default();
        tails.write(&sums, 7, 0, 0, b"one").unwrap();
        tails.sync(0).unwrap();
        let synced_meanwhile = || {
            tails.sync(0).unwrap();
            Ok(())
        };
        tails.change(7, synced_meanwhile).unwrap();
        let before = counters.tail_syncs.load(Ordering::Relaxed);
        tails.sync(0).unwrap();
        assert_eq!(counters.tail_syncs.load(Ordering::Relaxed), before + 1);
    }

    #[test]
    fn the_tails_of_a_killed_mount_are_synced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(&path, Arc::clone(&counters)).unwrap();
        assert!(tails.are_clean());
        let sums = TailSums::default();
        tails.write(&sums, 7, 0, 0, b"one").unwrap();
        assert!(!tails.are_clean());
        let again = Tails::new(&path, Arc::clone(&counters)).unwrap();
        again.take_over().unwrap();
        again.sync(0).unwrap();
        assert_eq!(counters.tail_syncs.load(Ordering::Relaxed), 1);
    }
}
