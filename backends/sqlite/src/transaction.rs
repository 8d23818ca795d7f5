//! Transactions over one connection: begun, recorded, committed, undone, and made again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use std::sync::atomic::Ordering;
use std::time::Duration;

use fuse::store::{Errno, Result, StoreError};
use parking_lot::{Mutex, MutexGuard};
use rusqlite::ErrorCode;
use rusqlite::wal::CheckpointMode;

use crate::counters::Counters;
use crate::db::{BEGIN_CHANGES, Db};
use crate::nodes::{self, signed};
use crate::on_panic::on_panic;
use crate::record::{self, Record};
use crate::redo::{PromisedRecords, Redo};
use crate::room::{LOG_KEPT, LOG_KEPT_ROOMY};
use crate::{content, reclaim};

/// How often, and how long, a full disk waits for a checkpoint that another thread makes.
const COPY_ATTEMPTS: u32 = 200;
const COPY_PAUSE: Duration = Duration::from_millis(5);

/// The connection; changes that SQLite has rolled back are made again first.
pub(super) fn locked(db: &Mutex<Db>) -> MutexGuard<'_, Db> {
    // A transaction that a panic left open has been undone before the lock was free.
    let db = db.lock();
    if let Err(error) = db.mend() {
        tracing::error!(%error, "the changes since the last commit cannot be replayed");
    }
    db
}

impl Db {
    fn undo_what_panicked(&self) {
        // A second panic would end the process.
        match catch_unwind(AssertUnwindSafe(|| self.undo())) {
            Ok(Ok(())) => tracing::warn!("rolled back a call that panicked"),
            Ok(Err(error)) => tracing::error!(%error, "rolling back a call that panicked"),
            Err(_) => self.give_up(),
        }
    }

    /// Whether changes are recorded that are not committed.
    pub fn has_open_changes(&self) -> bool {
        self.redo.borrow().as_ref().is_some_and(Redo::is_pending)
    }

    /// Writes the rows that changes have left to the commit.
    pub fn write_rows(&self) -> Result<()> {
        for row in self.deferred.take_inodes().values() {
            if row.is_new {
                nodes::insert_row(self, &row.attr, None, None)?
            } else {
                nodes::update_row(self, &row.attr)?
            }
            self.keep(&row.attr);
        }
        content::write_chunks(self)?;
        reclaim::delete_gone(self)
    }

    /// Rolls back uncommitted changes, and makes the recorded ones again. If that fails, nothing is served any more.
    fn undo(&self) -> Result<()> {
        self.undo_and(|| ())
    }

    /// As [`Db::undo`], and does `between` where no transaction is open.
    fn undo_and(&self, between: impl FnOnce()) -> Result<()> {
        // A panic in here leaves a part of the recorded changes made again.
        let _broken = on_panic(|| self.give_up());
        // It may be a commit that panicked.
        self.is_committing.set(false);
        // Rows that were cached in the transaction may not be those of the database.
        self.forget();
        // A full disk makes SQLite roll back by itself.
        let undone = if self.connection.is_autocommit() { Ok(0) } else { self.execute("ROLLBACK", ()) };
        let undone = undone.and_then(|_| {
            between();
            self.redo_pending()
        });
        if undone.is_err() {
            self.give_up();
        }
        undone
    }

    /// Makes the recorded changes again, in a transaction that stays open.
    fn redo_pending(&self) -> Result<()> {
        let pending = match &*self.redo.borrow() {
            Some(redo) if redo.is_pending() => redo.pending(),
            _ => return Ok(()),
        };
        let unreadable = |error| StoreError::storage(Errno::IO, format!("the redo log: {error}"));
        let pending = pending.map_err(unreadable)?;
        self.execute(BEGIN_CHANGES, ())?;
        pending.iter().try_for_each(|payload| record::redo(self, payload))?;
        // These changes are recorded.
        self.replacing.borrow_mut().take_unrecorded();
        Ok(())
    }

    /// Runs `work`, which only reads, with one lock of the log instead of one for each of its statements.
    pub fn reading<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let _undo = on_panic(|| self.undo_what_panicked());
        if !self.connection.is_autocommit() {
            return work(self);
        }
        self.execute("BEGIN", ())?;
        let result = work(self);
        // Some errors end it by themselves.
        if !self.connection.is_autocommit() {
            self.execute("COMMIT", ())?;
        }
        result
    }

    /// Makes the recorded changes again if SQLite has rolled them back: out of memory, a failing disk or a full one end
    /// the transaction inside any statement, also one that reads. If that fails, nothing is served any more.
    pub(super) fn mend(&self) -> Result<()> {
        if self.has_open_changes() && self.connection.is_autocommit() { self.undo() } else { Ok(()) }
    }

    /// Runs `work` in the open transaction: all of it happens, or nothing.
    fn attempt<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.mend()?;
        if self.connection.is_autocommit() {
            self.execute(BEGIN_CHANGES, ())?;
        }
        let changes = || self.connection.total_changes() + self.deferred.changes();
        let before = changes();
        let _undo = on_panic(|| self.undo_what_panicked());
        let mut result = work(self);
        let is_open = !self.connection.is_autocommit();
        if result.is_ok() && !is_open {
            let reason = "SQLite has rolled the change back";
            result = Err(StoreError::storage(Errno::IO, reason));
        }
        if result.is_err() && !(is_open && changes() == before) {
            self.undo()?;
        }
        result
    }

    /// Runs `work` in a transaction that is committed: all of it happens, or nothing.
    pub fn transaction<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let result = self.attempt(work);
        match (&result, self.has_open_changes()) {
            (Ok(_), _) => {
                if let Err(error) = self.commit_with(1) {
                    if error.errno == Errno::NOSPC {
                        // For the next attempt.
                        self.make_room()?;
                    }
                    return Err(error);
                }
            }
            // Recorded changes stay for their own commit.
            (Err(_), true) => {}
            (Err(_), false) => self.undo()?,
        }
        result
    }

    /// As [`Db::transaction`], for changes that must leave the space that is reserved for changes that free space.
    pub fn growing_transaction<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let was_growth = self.is_growth.replace(true);
        let result = self.transaction(work);
        self.is_growth.set(was_growth);
        result
    }

    /// Runs `work`, and records it as `record`: it survives a killed daemon, and is committed later. Where there is no
    /// redo log, or the change cannot wait, as [`Db::transaction`]. Where the disk is full, it is tried again after
    /// [`Db::make_room`].
    pub(crate) fn change<T>(&self, record: &Record<'_>, work: impl Fn(&Self) -> Result<T>) -> Result<T> {
        self.is_growth.set(!record.frees());
        let mut changed = self.change_once(record, &work);
        if changed.as_ref().is_err_and(|error| error.errno == Errno::NOSPC) {
            if let Err(error) = self.free_discards() {
                tracing::warn!(%error, "space of removed files is not freed");
            }
            changed = self.make_room().and_then(|()| self.change_once(record, &work));
        }
        self.is_growth.set(false);
        changed
    }

    fn change_once<T>(&self, record: &Record<'_>, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        if !self.can_wait()? || !record.can_wait(self)? {
            return self.transaction(work);
        }
        let value = self.attempt_all(work)?;
        self.record(record)?;
        Ok(value)
    }

    /// As [`Db::change`], for a change of tables that are another store's: `work` also answers the note from which
    /// [`GuestRecovery`](crate::tables::GuestRecovery) makes it again.
    pub(crate) fn note<T>(&self, work: impl FnOnce(&Self) -> Result<(T, Vec<u8>)>) -> Result<T> {
        if !self.can_wait()? {
            return self.transaction(work).map(|(value, _)| value);
        }
        let (value, note) = self.attempt_all(work)?;
        let record = Record::Note { note: &note };
        if record.can_wait(self)? {
            self.record(&record)?
        } else {
            self.commit_with(1)?
        }
        Ok(value)
    }

    /// Whether the disk and earlier changes let a change wait for its commit.
    fn can_wait(&self) -> Result<bool> {
        if self.is_stuck.get() {
            self.commit()?;
        }
        Ok(self.redo.borrow().as_ref().is_some_and(Redo::can_wait))
    }

    /// Runs `work` in the open transaction, or in a new one that is undone with it.
    fn attempt_all<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let attempted = self.attempt(work);
        if attempted.is_err() && !self.has_open_changes() {
            self.undo()?;
        }
        attempted
    }

    /// Records the change that was made last.
    fn record(&self, record: &Record<'_>) -> Result<()> {
        let undo = on_panic(|| self.undo_what_panicked());
        let needed = self.replacing.borrow_mut().take_unrecorded();
        let mut needed = needed.into_iter().map(|(ino, length)| Record::TailNeeded { ino, length });
        let recorded = needed.try_for_each(|needed| self.append(&needed)).and_then(|()| self.append(record));
        drop(undo);
        if let Err(error) = recorded {
            self.undo()?;
            return Err(error);
        }
        // The change is in the redo log: an undo would replay it, although its caller sees an error.
        let _broken = on_panic(|| self.give_up());
        let is_full = self.redo.borrow().as_ref().is_none_or(Redo::is_full);
        if is_full && let Err(error) = self.commit() {
            // This change is recorded; the next one has to wait for room.
            tracing::warn!(%error, "committing changes");
        }
        Ok(())
    }

    /// Appends a record to the redo log, if there is one.
    pub(super) fn append(&self, record: &Record<'_>) -> Result<()> {
        let Some(redo) = &mut *self.redo.borrow_mut() else {
            return Ok(());
        };
        let encode = |out: &mut Vec<u8>| {
            #[cfg(test)]
            self.panic_if_asked("record");
            record.encode(out)
        };
        redo.append(encode).map_err(|error| {
            let reason = format!("writing the redo log: {error}");
            StoreError::storage(Errno::from_io_error(&error).unwrap_or(Errno::IO), reason)
        })
    }

    /// The records of the redo log, if its sync makes every change durable: that is, all commits are durable already.
    pub(super) fn promise(&self) -> Option<PromisedRecords> {
        let log = self.log.get().filter(|_| !self.is_broken.get());
        let commits = log.filter(|log| log.is_durable()).map(|log| log.commits())?;
        let mut redo = self.redo.borrow_mut();
        redo.as_mut().map(|redo| redo.promise(commits))
    }

    /// Commits the recorded changes.
    ///
    /// # Errors
    /// If the disk is full or fails; the recorded changes stay, and the next change tries again.
    pub(super) fn commit(&self) -> Result<()> {
        self.mend()?;
        if !self.has_open_changes() {
            return Ok(());
        }
        // Its changes are acknowledged already.
        let is_growth = self.is_growth.replace(false);
        let committed = self.commit_readable();
        self.is_growth.set(is_growth);
        committed
    }

    /// Commits the recorded changes; without deleting rows on damaged pages, if these make it fail.
    fn commit_readable(&self) -> Result<()> {
        for _ in 0..2 {
            match self.commit_in_room() {
                Err(error) if error.errno == Errno::IO && self.keep_undeletable()? => {
                    tracing::warn!(%error, "removed files stay in the database, because their pages are damaged");
                }
                committed => return committed,
            }
        }
        self.commit_in_room()
    }

    /// Commits the recorded changes; a second time after [`Db::make_room`], if the disk is full.
    fn commit_in_room(&self) -> Result<()> {
        match self.commit_with(0) {
            Err(error) if error.errno == Errno::NOSPC => self.make_room().and_then(|()| self.commit_with(0)),
            committed => committed,
        }
    }

    /// Gives up what is reserved, and copies the log into the database, so that the next commit begins it again. Changes
    /// that are not recorded are undone.
    fn make_room(&self) -> Result<()> {
        self.undo_and(|| {
            self.tails.give_up_ahead();
            if let Err(error) = self.free_committed() {
                tracing::warn!(%error, "space of removed files is not freed");
            }
            self.keep_log(LOG_KEPT);
            self.copy_log();
        })
    }

    /// Copies the log, whatever the limits say. No transaction may be open.
    pub(super) fn copy_log(&self) {
        let log = self.log.get();
        if log.is_some_and(|log| log.is_broken()) {
            return;
        }
        for _ in 0..COPY_ATTEMPTS {
            match self.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
                Ok(_) => {
                    self.room.copied();
                    self.room.was_copied.store(true, Ordering::Release);
                    return;
                }
                // The checkpoint thread copies it just now.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                    std::thread::sleep(COPY_PAUSE);
                }
                Err(error) => {
                    tracing::warn!(%error, "checkpoint: the log cannot be copied into the database");
                    if let Some(log) = log {
                        log.check_checkpoint(&error);
                    }
                    return;
                }
            }
        }
    }

    /// Adapts what is reserved to the free space of the disk.
    pub(super) fn fit(&self) {
        let is_roomy = self.room.is_roomy();
        self.tails.set_tight(!is_roomy);
        self.keep_log(if is_roomy { LOG_KEPT_ROOMY } else { LOG_KEPT });
    }

    /// Has the log's file shortened to so many bytes when it begins again.
    fn keep_log(&self, bytes: u64) {
        if self.log_kept.replace(bytes) == bytes {
            return;
        }
        let limit = signed(bytes);
        let set =
            self.connection.pragma_update_and_check(None, "journal_size_limit", limit, |row| row.get::<_, i64>(0));
        if let Err(error) = set {
            tracing::warn!(%error, "the file of the log keeps its length");
        }
    }

    /// Sees to it that the pages of the open transaction have a place in the database file: see [`super::room`].
    pub(super) fn take_room(&self) -> Result<()> {
        #[cfg(test)]
        self.fail_if_full()?;
        let pragma = |sql: &str| -> rusqlite::Result<u64> {
            let mut statement = self.connection.prepare_cached(sql)?;
            statement.query_row((), |row| row.get(0)).map(nodes::unsigned)
        };
        let length = pragma("PRAGMA page_count")? * pragma("PRAGMA page_size")?;
        self.room.take(length, !self.is_growth.get())
    }

    /// Makes the recorded changes again, without deleting rows on damaged pages; without any deletion, if it is not known
    /// which these are. Whether that is another commit than before.
    fn keep_undeletable(&self) -> Result<bool> {
        let gone = self.deferred.gone();
        if gone.is_empty() || self.is_broken.get() {
            return Ok(false);
        }
        let mut damaged = reclaim::undeletable(self, &gone);
        if damaged.is_empty() {
            damaged.extend(gone);
        }
        self.undeletable.borrow_mut().extend(damaged);
        self.undo()?;
        Ok(true)
    }

    /// Commits the open transaction, in which so many changes are not recorded.
    fn commit_with(&self, unrecorded: u64) -> Result<()> {
        if self.connection.is_autocommit() {
            self.undo()?;
            let reason = "SQLite has rolled the transaction back";
            return Err(StoreError::storage(Errno::IO, reason));
        }
        let last = self.redo.borrow().as_ref().map(|redo| redo.last() + unrecorded);
        self.is_committing.set(true);
        let undo = on_panic(|| self.undo_what_panicked());
        let applied = self.write_rows().and_then(|()| match last {
            Some(last) => self.execute("UPDATE log SET applied = ?1", [signed(last)]),
            None => Ok(0),
        });
        let applied = applied.and_then(|_| self.take_room()).and_then(|()| self.note_replacing());
        drop(undo);
        // An undo after a commit would make the recorded changes twice.
        let _broken = on_panic(|| self.give_up());
        let committed = applied.and_then(|_| self.execute("COMMIT", ()));
        self.is_committing.set(false);
        self.is_stuck.set(committed.is_err() && self.has_open_changes());
        if let Err(error) = committed {
            self.undo()?;
            return Err(error);
        }
        self.replacing.take();
        Counters::add(&self.counters.commits);
        let log = self.log.get();
        if let Some(log) = log {
            log.committed();
        }
        if let (Some(redo), Some(last)) = (&mut *self.redo.borrow_mut(), last) {
            redo.committed(last, || log.map_or(Ok(()), |log| log.sync(&self.tails)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fuse::store::{Change, Ino, ROOT, RenameMode, Seek, Store};
    use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};

    use super::*;
    use crate::log_mark::tests::{FILE, OWNER};
    use crate::{SqliteStore, check, held};

    /// Changes the root's row and its cached copy, then panics.
    fn panic_amid_a_change(store: &SqliteStore) {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            store.transaction::<()>(|db| {
                let mut root = nodes::get(db, ROOT)?;
                root.uid = 99;
                nodes::update(db, &root)?;
                panic!("on purpose");
            })
        }));
        assert!(panicked.is_err());
    }

    #[test]
    fn a_panic_in_a_transaction_undoes_it_before_anybody_looks() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        assert_eq!(store.getattr(ROOT).unwrap().uid, 7);
        panic_amid_a_change(&store);
        assert_eq!(store.getattr(ROOT).unwrap().uid, 7);
        let read = catch_unwind(AssertUnwindSafe(|| store.db().reading::<(), StoreError>(|_| panic!("on purpose"))));
        assert!(read.is_err());
        assert!(store.db().connection.is_autocommit());
        let change = Change { permissions: Some(0o700), ..Change::default() };
        store.setattr(&OWNER, ROOT, &change).unwrap();
        assert_eq!(store.getattr(ROOT).unwrap().permissions, 0o700);
    }

    #[test]
    fn a_store_that_cannot_undo_serves_nothing_until_it_is_reopened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let no_rollback = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Transaction { operation: TransactionOperation::Rollback } => Authorization::Deny,
            _ => Authorization::Allow,
        };
        store.db().connection.authorizer(Some(no_rollback)).unwrap();
        panic_amid_a_change(&store);
        for error in [
            store.getattr(ROOT).unwrap_err(),
            store.lookup(ROOT, b"a").unwrap_err(),
            store.setattr(&OWNER, ROOT, &Change::default()).unwrap_err(),
        ] {
            assert_eq!(error.errno, Errno::IO);
            assert!(error.to_string().contains("a rollback failed"), "{error}");
        }
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(store.getattr(ROOT).unwrap().uid, 7);
    }

    #[test]
    fn a_store_whose_changes_are_made_again_in_part_answers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let first = store.create(&OWNER, ROOT, b"a", &FILE).unwrap().ino;
        store.create(&OWNER, ROOT, b"b", &FILE).unwrap();
        store.rename(&OWNER, (ROOT, b"b"), (ROOT, b"c"), RenameMode::Replace).unwrap();
        // The creations are made again, the rename is not.
        let no_rename = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Update { table_name: "dirent", .. } => Authorization::Deny,
            _ => Authorization::Allow,
        };
        {
            let mut db = store.db();
            db.connection.authorizer(Some(no_rename)).unwrap();
            db.connection.execute_batch("ROLLBACK").unwrap();
        }
        for name in [b"a", b"b", b"c"] {
            assert_eq!(store.lookup(ROOT, name).unwrap_err().errno, Errno::IO);
        }
        assert_eq!(store.getattr(first).unwrap_err().errno, Errno::IO);
    }

    /// Creates a file that has its name as content, under a lock that keeps the commit thread away.
    fn create(store: &SqliteStore, db: &Db, name: &[u8]) -> Ino {
        let ino = store.new_ino().unwrap();
        let record = Record::Create { caller: OWNER, parent: ROOT, name, ino, node: FILE };
        let work = |db: &Db| record::create(db, &OWNER, ROOT, name, ino, &FILE);
        db.change(&record, work).unwrap();
        held::write(db, &OWNER, ino, 0, name).unwrap();
        ino
    }

    fn panics<T>(work: impl FnOnce() -> T) -> bool {
        catch_unwind(AssertUnwindSafe(work)).is_err()
    }

    fn has_files(store: &SqliteStore, names: &[&[u8]]) {
        for name in names {
            let ino = store.lookup(ROOT, name).unwrap().ino;
            let mut bytes = Vec::new();
            store.read(ino, 0, 100, &mut bytes).unwrap();
            assert_eq!(bytes, *name);
        }
    }

    #[test]
    fn a_panic_before_a_commit_loses_no_recorded_change() {
        for point in [("INSERT INTO inode", 1), ("INSERT INTO chunk", 1), ("UPDATE log SET applied", 0)] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            {
                let db = store.db();
                create(&store, &db, b"one");
                create(&store, &db, b"two");
                db.panics_at.set(Some(point));
                assert!(panics(|| db.commit()), "{point:?}");
            }
            has_files(&store, &[b"one", b"two"]);
            store.sync().unwrap();
            drop(store);
            assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            has_files(&store, &[b"one", b"two"]);
        }
    }

    #[test]
    fn a_panic_while_a_change_is_recorded_undoes_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        {
            let db = store.db();
            create(&store, &db, b"one");
            db.panics_at.set(Some(("record", 0)));
            assert!(panics(|| create(&store, &db, b"two")));
        }
        assert_eq!(store.lookup(ROOT, b"two").unwrap_err().errno, Errno::NOENT);
        store.sync().unwrap();
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(store.lookup(ROOT, b"two").unwrap_err().errno, Errno::NOENT);
        has_files(&store, &[b"one"]);
    }

    #[test]
    fn a_panic_in_a_read_loses_no_recorded_change() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let db = store.db();
        let ino = create(&store, &db, b"one");
        db.panics_at.set(Some(("INSERT INTO chunk", 0)));
        assert!(panics(|| held::seek(&db, ino, 0, Seek::Data)));
        let mut bytes = Vec::new();
        held::read(&db, ino, 0, 100, &mut bytes).unwrap();
        assert_eq!(bytes, b"one");
        let in_transaction = |db: &Db| -> Result<()> {
            assert!(db.deferred.take_inodes().is_empty(), "on purpose");
            Ok(())
        };
        assert!(panics(|| db.reading(in_transaction)));
        drop(db);
        has_files(&store, &[b"one"]);
        store.sync().unwrap();
        has_files(&store, &[b"one"]);
    }

    /// Has a call panic amid a change; whether it did.
    type PanickingCall = fn(&SqliteStore, &Db) -> bool;

    #[test]
    fn a_store_answers_nothing_after_a_panic_that_leaves_a_change_in_doubt() {
        let commits = |store: &SqliteStore, db: &Db| {
            create(store, db, b"two");
            db.panics_at.set(Some(("COMMIT", 0)));
            panics(|| db.commit())
        };
        let replays = |store: &SqliteStore, db: &Db| {
            create(store, db, b"two");
            db.execute("ROLLBACK", ()).unwrap();
            db.panics_at.set(Some(("INSERT INTO dirent", 1)));
            panics(|| db.mend())
        };
        // The change that fills the redo log is recorded, and cannot be undone.
        let records = |store: &SqliteStore, db: &Db| {
            create(store, db, b"two");
            db.panics_at.set(Some(("UPDATE log SET applied", 0)));
            let mut numbers = 0..2000;
            numbers.any(|number| panics(|| create(store, db, number.to_string().as_bytes())))
        };
        let undoes = |store: &SqliteStore, db: &Db| {
            create(store, db, b"two");
            let change = |db: &Db| -> Result<()> {
                db.panics_at.set(Some(("INSERT INTO dirent", 1)));
                panic!("on purpose");
            };
            panics(|| db.transaction(change))
        };
        let ways: [PanickingCall; 4] = [commits, replays, records, undoes];
        for (way, has_panicked) in ways.into_iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("a.db");
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            {
                let db = store.db();
                create(&store, &db, b"one");
                assert!(has_panicked(&store, &db), "way {way}");
            }
            for name in [&b"one"[..], b"two", b"three"] {
                let error = store.lookup(ROOT, name).unwrap_err();
                assert_eq!(error.errno, Errno::IO, "way {way}");
            }
            assert!(store.sync().is_err());
            drop(store);
            let store = SqliteStore::open(&path, &OWNER).unwrap();
            has_files(&store, &[b"one", b"two"]);
        }
    }
}
