//! A [`Store`] in one SQLite file, and a plain file beside it for the tail of each long file (`tails`).
//!
//! Once a call has returned, its effect survives a killed daemon: it is in the redo log (`redo`), and within 100 ms in
//! SQLite's write-ahead log. It survives power loss once a later `fsync` has returned.
//! docs/SQLITE.md has the whole contract, and the limits.

pub mod backend;
mod batch;
mod check;
mod check_tails;
mod checkpoint;
mod content;
mod counters;
pub mod database;
mod db;
mod deferred;
mod discards;
mod files;
mod flush;
mod free_pages;
mod free_tails;
mod growth;
mod header;
mod held;
mod log;
mod log_mark;
mod name_cache;
mod names;
mod nodes;
mod on_panic;
mod open;
mod open_error;
mod owner;
mod reclaim;
mod record;
mod redo;
mod replacing;
mod room;
mod set_aside;
mod space;
mod sum_file;
mod sum_recorder;
mod synced;
mod synced_rows;
pub mod tables;
mod tail_rows;
mod tail_sums;
mod tails;
mod transaction;
mod xattrs;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;

use batch::Committer;
pub use check::{DatabaseCheck, check, go_on_without_log};
use checkpoint::Checkpointer;
use counters::Counters;
use db::{Db, GuestRecovery};
use files::{INDEX, LOG, REDO, SUMS, tails_of};
use flush::Flusher;
use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Result, Seek,
    StatFs, Store, StoreError, XattrMode,
};
use log::Log;
use open::{
    Ownership, adopt_copy, connect, connect_read_only, keep_wal_on_close, map_disk_full, must_be_ours, open_and_lock,
    prepare, resolve,
};
use open_error::unreadable;
pub use open_error::{DATABASE_VERSION, SqliteOpenError};
use record::Record;
use redo::Redo;
use room::Room;
pub use space::{DatabaseSpace, space};
use sum_recorder::SumRecorder;
use tails::Tails;

/// Bytes of a file that are in the database: files of agents are hardly ever longer.
pub const HEAD: u64 = 256 * 1024;

/// A file system in one SQLite database.
#[derive(Debug)]
pub struct SqliteStore {
    // Order matters when dropped: connections close before the ownership lock ends.
    db: Arc<Mutex<Db>>,
    /// `None` once the store has ended.
    threads: Mutex<Option<Threads>>,
    log: Arc<Log>,
    tails: Arc<Tails>,
    next_ino: AtomicU64,
    /// Whether there is any extended attribute: the kernel asks for `security.capability` before many a write.
    has_xattrs: AtomicBool,
    counters: Arc<Counters>,
    path: PathBuf,
    ownership: Ownership,
}

/// Makes the redo log and the checksum file of the database at `path`, which is not mounted, those of a machine that has
/// restarted since: what is missing in them was lost with the power. Nothing, if there are none.
///
/// # Errors
/// If they cannot be written.
pub fn forget_boot(path: &Path) -> std::io::Result<()> {
    sum_file::forget_boot(path)?;
    redo::restart(path)
}

/// The threads of a store, in the order in which they end.
#[derive(Debug)]
struct Threads {
    flusher: Option<Flusher>,
    /// `None` until the redo log begins, and where the disk has no room for one.
    committer: Option<Committer>,
    checkpointer: Checkpointer,
    recorder: Option<SumRecorder>,
}

impl SqliteStore {
    /// Opens the file system in the database at `path`; creates one, whose root belongs to `owner`,
    /// where there is none.
    ///
    /// # Errors
    /// See [`SqliteOpenError`]; the database is as it was.
    pub fn open(path: &Path, owner: &Caller) -> std::result::Result<Self, SqliteOpenError> {
        Self::open_with(path, owner, GuestRecovery::NONE)
    }

    /// As [`SqliteStore::open`], for a database that has tables of another store.
    ///
    /// # Errors
    /// See [`SqliteOpenError`]; the database is as it was.
    pub fn open_with(path: &Path, owner: &Caller, guest: GuestRecovery) -> std::result::Result<Self, SqliteOpenError> {
        let path = &resolve(path)?;
        let begun = Self::begin(path, owner, guest).and_then(|store| {
            if store.read_only().is_none() {
                store.start_threads()?;
            }
            store.ownership.discard_new(false);
            Ok(store)
        });
        begun.map_err(|error| map_disk_full(path, error))
    }

    fn start_threads(&self) -> std::result::Result<(), SqliteOpenError> {
        if let Some(threads) = &mut *self.threads.lock() {
            threads.committer = Committer::start(&self.db, &self.path)?;
            let flusher = Flusher::start(&self.db, &self.log, &self.tails);
            let flusher = flusher.map_err(|error| unreadable(&self.path, &error))?;
            threads.flusher = Some(flusher);
            let recorder = SumRecorder::start(&self.tails);
            threads.recorder = Some(recorder.map_err(|error| unreadable(&self.path, &error))?);
        }
        Ok(())
    }

    fn begin(path: &Path, owner: &Caller, guest: GuestRecovery) -> std::result::Result<Self, SqliteOpenError> {
        must_be_ours(path)?;
        let ownership = open_and_lock(path)?;
        if let Some(reason) = ownership.read_only.clone() {
            return Self::begin_read_only(path, ownership, &reason, guest);
        }
        adopt_copy(path)?;
        let was_killed = files::has_log(path);
        let room = Arc::new(Room::new(ownership.file()));
        if !was_killed {
            room.open().map_err(|error| unreadable(path, &error))?;
        }
        let connection = connect(path)?;
        sqlite_pages::read_rows_together(&connection, ownership.file()).map_err(|error| unreadable(path, &error))?;
        keep_wal_on_close(&connection, path).map_err(|error| unreadable(path, &error))?;
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(path, Arc::clone(&counters));
        let tails = Arc::new(tails.map_err(|error| unreadable(path, &error))?);
        prepare(&connection, path)?;
        let db = Db::new(connection, Arc::clone(&tails), room, Arc::clone(&counters), guest);
        db.fit();
        if was_killed && !db.room.is_roomy() {
            // The killed mount may have filled the log's file.
            db.copy_log();
        }
        batch::restore_tails(&db.connection, path)?;
        let redone = batch::recover(&db, path)?;
        if redone > 0 {
            tracing::info!(changes = redone, "replayed the redo log of a killed mount");
        }
        let store_error = |error: StoreError| unreadable(path, &error);
        // Another program may have removed the log of a killed mount, and an unmount may have failed to note lengths.
        let has_left = was_killed || redone > 0 || !tails.unsealed().map_err(store_error)?.is_empty();
        let known = batch::known(&db.connection).map_err(|error| unreadable(path, &error))?;
        tail_rows::go_on(&db, known);
        let (next_ino, has_xattrs) = db
            .transaction(|db| {
                create_root(db, owner)?;
                reclaim::orphans(db)?;
                if has_left {
                    // Their numbers are used again.
                    tail_rows::clear_gone(db)?;
                }
                let max = db.row("SELECT max(ino) FROM inode", (), |row| row.get(0))?;
                let xattr = db.row("SELECT 1 FROM xattr LIMIT 1", (), |_| Ok(()))?;
                Ok((nodes::unsigned(max.unwrap_or(1)) + 1, xattr.is_some()))
            })
            .map_err(store_error)?;
        log::sync_names(path)?;
        // Before its first sync, so that no call of a user's pays for the log's length.
        let log = Arc::new(Log::open(path, ownership.file(), Arc::clone(&counters))?);
        // From here on it counts commits: those before count as one.
        let _ = db.log.set(Arc::clone(&log));
        log_mark::begin(&db).map_err(store_error)?;
        // A crash's leftovers are removed once it is durable that nothing needs them.
        let synced = if has_left { synced::note_left(&db, &log) } else { log.sync(&tails) };
        if synced.is_err() {
            log_mark::end(&db, true);
        }
        synced.map_err(store_error)?;
        let wanted = |ino| {
            let size = nodes::find(&db, ino)?.map_or(0, |attr| attr.size);
            Ok((size > HEAD).then(|| content::tail_length(size)))
        };
        let longer = tails.sweep(wanted).map_err(store_error)?;
        for (ino, length) in longer {
            let sums = tail_rows::of(&db, ino).map_err(store_error)?;
            tails.cut(&sums, ino, length);
        }
        // The database is durably in a later state. The next mount counts its changes from 1 again.
        set_aside::remove(&tails_of(path)).map_err(|error| unreadable(path, &error))?;
        tails.beside().remove(REDO);
        let unknown = tail_rows::unknown(&db).map_err(store_error)?.len();
        if unknown > 0 {
            tracing::warn!(
                "{unknown} files have content past 256 KiB without checksums: the machine restarted, or the mount was killed, while a mount wrote it, or the store was copied without its -sums or without file modes; a byte there that has changed since cannot be found"
            );
        }
        db.connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(|error| unreadable(path, &error))?;
        let db = Arc::new(Mutex::new(db));
        let checkpointer = Checkpointer::start(&db, connect(path)?, &log, Arc::clone(&counters))
            .map_err(|error| unreadable(path, &error))?;
        Ok(Self {
            db,
            threads: Mutex::new(Some(Threads { flusher: None, committer: None, checkpointer, recorder: None })),
            log,
            tails,
            next_ino: AtomicU64::new(next_ino),
            has_xattrs: AtomicBool::new(has_xattrs),
            counters,
            path: path.to_owned(),
            ownership,
        })
    }

    /// As [`SqliteStore::begin`], of a database that can only be read: without logs, and nothing of it changes.
    fn begin_read_only(
        path: &Path,
        ownership: Ownership,
        reason: &str,
        guest: GuestRecovery,
    ) -> std::result::Result<Self, SqliteOpenError> {
        let connection = connect_read_only(path, reason)?;
        sqlite_pages::read_rows_together(&connection, ownership.file()).map_err(|error| unreadable(path, &error))?;
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(path, Arc::clone(&counters));
        let tails = Arc::new(tails.map_err(|error| unreadable(path, &error))?);
        tails.only_read();
        let log = Arc::new(Log::unused(path, ownership.file(), Arc::clone(&counters))?);
        let db = Db::new(
            connection,
            Arc::clone(&tails),
            Arc::new(Room::new(ownership.file())),
            Arc::clone(&counters),
            guest,
        );
        let _ = db.log.set(Arc::clone(&log));
        let read = |db: &Db| {
            nodes::get(db, ROOT)?;
            let max = db.row("SELECT max(ino) FROM inode", (), |row| row.get(0))?;
            let xattr = db.row("SELECT 1 FROM xattr LIMIT 1", (), |_| Ok(()))?;
            Ok((nodes::unsigned(max.unwrap_or(1)) + 1, xattr.is_some()))
        };
        let (next_ino, has_xattrs) = read(&db).map_err(|error: StoreError| unreadable(path, &error))?;
        Ok(Self {
            db: Arc::new(Mutex::new(db)),
            threads: Mutex::new(None),
            log,
            tails,
            next_ino: AtomicU64::new(next_ino),
            has_xattrs: AtomicBool::new(has_xattrs),
            counters,
            path: path.to_owned(),
            ownership,
        })
    }

    /// Why the file system can only be read; `None` if it can be written.
    pub fn read_only(&self) -> Option<&str> {
        self.ownership.read_only.as_deref()
    }

    /// The database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection, locked. No method of the store may be called that locks it, too.
    pub fn db(&self) -> MutexGuard<'_, Db> {
        transaction::locked(&self.db)
    }

    /// Runs `work` in one transaction: all of it happens, or nothing.
    pub fn transaction<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.db().transaction(work)
    }

    /// Runs `work` in the open transaction, and records it by the note that it makes: a change of
    /// tables that are another store's, which its [`GuestRecovery`] makes again after a kill.
    pub fn note<T>(&self, work: impl FnOnce(&Db) -> Result<(T, Vec<u8>)>) -> Result<T> {
        self.db().note(work)
    }

    /// Attributes as others see them: with what the tail occupies.
    pub fn with_tail(&self, mut attr: Attr) -> Attr {
        if attr.kind == Kind::File && attr.size > HEAD {
            let held = self.tails.blocks(attr.ino);
            attr.blocks += held.min(tails::blocks(content::tail_length(attr.size)));
        }
        attr
    }

    /// Extended attributes are about to be set in another way than [`Store::setxattr`].
    pub fn expect_xattrs(&self) {
        self.has_xattrs.store(true, Ordering::Release);
    }

    /// Makes what is committed, and the tails, durable: [`Store::sync`] under a lock that the caller holds.
    pub fn settle(&self) -> Result<()> {
        self.log.sync(&self.tails)
    }

    /// Makes the tail of a file durable; nothing if it has none.
    pub fn sync_tail(&self, ino: Ino) -> Result<()> {
        if self.tails.has(ino) { self.log.sync_some(&self.tails, [ino]) } else { Ok(()) }
    }

    /// The connection, for a change that `can_wait` for its commit or not. A commit syncs the files that have replaced others: before
    /// one that this change makes, they are synced without the lock.
    fn changing(&self, can_wait: impl FnOnce(&Db) -> Result<bool>) -> MutexGuard<'_, Db> {
        let db = self.db();
        if !db.would_sync_replacing(can_wait) {
            return db;
        }
        drop(db);
        if let Err(error) = synced::note_replacing(&self.db) {
            tracing::warn!(%error, "a power loss may cut a file that has replaced another one just now");
        }
        self.db()
    }

    /// The connection, for a rename. Its commit syncs its file with the lock: where the rename cannot wait for its commit, the tails
    /// are synced before it, without the lock.
    pub fn renaming(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> MutexGuard<'_, Db> {
        let db = self.changing(|_| Ok(true));
        if !db.has_unsynced_tails() || !db.is_last_to_wait() {
            return db;
        }
        if let Err(error) = db.commit() {
            tracing::warn!(%error, "committing changes");
        }
        // Of names and rows that cannot be read, the rename itself tells the caller.
        if !db.is_last_to_wait() || !db.would_replace(from, to, mode).unwrap_or(false) {
            return db;
        }
        drop(db);
        if let Err(error) = synced::note_all(&self.db, &self.log, &self.tails) {
            tracing::warn!(%error, "a power loss may cut a file that is about to replace another one");
        }
        self.db()
    }

    /// Makes the current state durable, and removes the discards, if the disk is nearly full, or if there are too many of them.
    /// The caller must not hold the lock: other calls go on during the sync.
    pub fn free_if_urgent(&self) {
        if !(self.tails.is_urgent() && self.tails.has_discards()) {
            return;
        }
        match flush::flush(&self.db, &self.log, &self.tails) {
            Ok(()) => self.tails.free(self.log.durable()),
            Err(error) => tracing::warn!(%error, "could not free the space of removed files"),
        }
    }

    /// Leaves out the inode numbers up to `last`: another table still refers to them.
    pub fn skip_inos(&self, last: Ino) {
        self.next_ino.fetch_max(last + 1, Ordering::Relaxed);
    }

    /// An inode number that was never used.
    pub fn new_ino(&self) -> Result<Ino> {
        let ino = self.next_ino.fetch_add(1, Ordering::Relaxed);
        if ino > content::INO_MAX {
            return Err(Errno::NOSPC.into());
        }
        Ok(ino)
    }
}

impl SqliteStore {
    /// Ends the threads, and leaves the files as an unmounted database has them. Does nothing the second time.
    fn end(&self) -> Result<()> {
        let Some(mut threads) = self.threads.lock().take() else {
            return Ok(());
        };
        if let Some(flusher) = &mut threads.flusher {
            flusher.stop();
        }
        // It ends when dropped.
        threads.recorder = None;
        let committed = match &mut threads.committer {
            Some(committer) => committer.stop(),
            None => Ok(()),
        };
        if committed.is_ok()
            && let Err(error) = synced::note(&self.db, &self.log, &self.tails)
        {
            tracing::warn!(%error, "a power loss may cut files that have grown just now");
        }
        let synced = if self.log.is_durable() && self.tails.are_clean() { Ok(()) } else { self.log.sync(&self.tails) };
        // That nothing needs it must be durable first.
        if committed.is_ok() && synced.is_ok() {
            self.tails.free(self.log.durable());
            if let Err(error) = self.tails.sync_names() {
                tracing::warn!(%error, "names of tails may not be durable");
            }
            let sealed = tail_rows::seal(&self.db(), || self.log.sync(&self.tails));
            let is_sealed = sealed.and_then(|()| self.tails.unsealed());
            let is_sealed = is_sealed
                .inspect_err(|error| tracing::warn!(%error, "no checksums for content past the first 256 KiB"))
                .is_ok_and(|unsealed| unsealed.is_empty());
            if self.tails.beside().is_of(self.ownership.file()) {
                self.tails.beside().remove(REDO);
                if is_sealed {
                    self.tails.beside().remove(SUMS);
                }
            }
            if let Err(error) = self.db().give_back_all() {
                tracing::warn!(%error, "could not return free pages to the disk");
            }
        }
        if let Err(error) = self.db().connection.wal_hook(None::<fn(&mut _, _) -> _>) {
            tracing::warn!(%error, "removing the log hook");
        }
        threads.checkpointer.stop();
        let db = self.db();
        if log_mark::end(&db, self.log.is_broken()) && self.was_moved() {
            self.end_log(&db);
        }
        self.ownership.leave_space();
        committed.and(synced).and(self.log.must_have_name())
    }

    /// Whether the database is no longer where it was opened.
    fn was_moved(&self) -> bool {
        let is_same = |there: std::fs::Metadata| {
            let here = self.ownership.file().metadata();
            here.is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
        };
        !std::fs::metadata(&self.path).is_ok_and(is_same)
    }

    /// Copies the log and removes it, as SQLite does when it closes a database that was not moved.
    fn end_log(&self, db: &Db) {
        let copied = db.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::TRUNCATE);
        match copied {
            Ok(_) if self.tails.beside().is_of(self.ownership.file()) => {
                self.tails.beside().remove(LOG);
                self.tails.beside().remove(INDEX);
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%error, "the log is kept, and is replayed at the next mount");
            }
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::error!(%error, "the latest changes may not be durable");
        }
    }
}

fn create_root(db: &Db, owner: &Caller) -> Result<()> {
    if nodes::find(db, ROOT)?.is_some() {
        return Ok(());
    }
    let root = Attr::new(ROOT, Kind::Directory, 0o755, owner);
    nodes::insert(db, &root, Some(ROOT), &[])
}

impl Store for SqliteStore {
    fn discard_new(&self) {
        self.ownership.discard_new(true);
    }

    fn kind(&self) -> &'static str {
        "sqlite"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = names::lookup(&self.db(), parent, name)?;
        Ok(self.with_tail(attr))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let attr = nodes::get(&self.db(), ino)?;
        Ok(self.with_tail(attr))
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let record = Record::SetAttr { caller: *caller, ino, change: *change };
        let attr = self.setattr_held(&self.changing(|db| record.can_wait(db)), caller, ino, change)?;
        self.free_if_urgent();
        Ok(self.with_tail(attr))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        nodes::parent(&self.db(), dir)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        nodes::target(&self.db(), ino)
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let ino = self.new_ino()?;
        let record = Record::Create { caller: *caller, parent, name, ino, node: *node };
        let work = |db: &Db| record::create(db, caller, parent, name, ino, node);
        self.changing(|db| record.can_wait(db)).change(&record, work)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let record = Record::Link { caller: *caller, ino, parent, name };
        let work = |db: &Db| record::link(db, caller, ino, parent, name);
        let linked = self.changing(|db| record.can_wait(db)).change(&record, work);
        linked.map(|attr| self.with_tail(attr))
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let record = Record::Unlink { caller: *caller, parent, name };
        let work = |db: &Db| record::unlink(db, caller, parent, name);
        self.changing(|db| record.can_wait(db)).change(&record, work)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let record = Record::Rmdir { caller: *caller, parent, name };
        let work = |db: &Db| record::rmdir(db, caller, parent, name);
        self.changing(|db| record.can_wait(db)).change(&record, work)
    }

    fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        self.rename_held(&self.renaming(from, to, mode), caller, from, to, mode)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        let record = Record::Reclaim { ino };
        let may_have_xattrs = self.may_have_xattrs();
        let work = |db: &Db| reclaim::reclaim(db, ino, may_have_xattrs);
        let db = self.changing(|db| record.can_wait(db));
        let is_gone = match db.change(&record, work) {
            // Its rows stay; its name and its tail do not.
            Err(error) if error.errno == Errno::IO && reclaim::keep_damaged(&db, ino) => db.change(&record, work)?,
            is_gone => is_gone?,
        };
        if is_gone && self.tails.has(ino) {
            db.discard_tail(ino);
            drop(db);
            self.free_if_urgent();
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        self.read_held(self.db(), ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let db = self.changing(|db| held::can_write_wait(db, caller, ino, offset, data));
        held::write(&db, caller, ino, offset, data)
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        let record = Record::Fallocate { caller: *caller, ino, how, offset, length };
        held::fallocate(&self.changing(|db| record.can_wait(db)), caller, ino, how, offset, length)
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        held::seek(&self.db(), ino, offset, what)
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        names::list(&self.db(), dir, after, with_attr, &mut |mut entry| {
            entry.attr = entry.attr.map(|attr| self.with_tail(attr));
            emit(entry)
        })
    }

    fn may_have_xattrs(&self) -> bool {
        self.has_xattrs.load(Ordering::Acquire)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if !self.may_have_xattrs() {
            return Err(Errno::NODATA.into());
        }
        xattrs::get(&self.db(), ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if !self.may_have_xattrs() {
            return Ok(Vec::new());
        }
        xattrs::list(&self.db(), ino)
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.has_xattrs.store(true, Ordering::Release);
        let record = Record::SetXattr { caller: *caller, ino, name, value, mode };
        let work = |db: &Db| xattrs::set(db, caller, ino, name, value, mode);
        self.changing(|db| record.can_wait(db)).change(&record, work)
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        let record = Record::RemoveXattr { caller: *caller, ino, name };
        self.changing(|db| record.can_wait(db)).change(&record, |db| xattrs::remove(db, caller, ino, name))
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.sync()
    }

    fn close(&self, _handle: u64, _ino: Ino) -> Result<()> {
        self.tails.record_sums();
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        if self.read_only().is_some() {
            return Ok(());
        }
        self.tails.record_sums();
        synced::note(&self.db, &self.log, &self.tails)?;
        let recorded = {
            let db = self.db();
            // What has grown meanwhile becomes durable with it.
            db.note_rest(&self.log)?;
            // The disk would get the bytes of a long write from either log, and those of the other one later.
            let has_long = db.redo.borrow().as_ref().is_some_and(Redo::has_long);
            let recorded = if has_long { None } else { db.promise() };
            if recorded.is_none() {
                db.commit()?;
            }
            recorded
        };
        match recorded {
            Some(recorded) => self.log.sync_redo(&recorded, &self.tails),
            None => self.settle(),
        }
    }

    fn finish(&self) -> Result<()> {
        self.end()
    }

    fn statfs(&self) -> Result<StatFs> {
        let fs = rustix::fs::fstatvfs(self.ownership.file())?;
        // A write that finds the disk full frees these first.
        let discarded = self.tails.discarded_bytes() / fs.f_frsize.max(1);
        Ok(StatFs {
            block_bytes: u32::try_from(fs.f_frsize).unwrap_or(4096),
            blocks: fs.f_blocks,
            blocks_free: fs.f_bfree + discarded,
            blocks_available: fs.f_bavail + discarded,
            inodes: content::INO_MAX,
            inodes_free: content::INO_MAX - self.next_ino.load(Ordering::Relaxed),
        })
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BTreeMap::from([
            ("sql_statements", load(&self.counters.statements)),
            ("sql_commit_statements", load(&self.counters.commit_statements)),
            ("sql_commits", load(&self.counters.commits)),
            ("log_syncs", load(&self.counters.syncs)),
            ("redo_syncs", load(&self.counters.redo_syncs)),
            ("tail_syncs", load(&self.counters.tail_syncs)),
            ("tail_name_syncs", load(&self.counters.tail_name_syncs)),
            ("checkpoints", load(&self.counters.checkpoints)),
        ])
    }
}
