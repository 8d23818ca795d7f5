//! One SQLite connection: prepared statements, transactions, and SQLite's errors as the caller sees them.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row};

use super::content;
use super::deferred::Deferred;
use super::log::Log;
use super::names::Names;
use super::nodes::{self, signed};
use super::reclaim;
use super::record::{self, Record};
use super::redo::{Recorded, Redo};
use super::tails::Tails;
use crate::store::{Attr, Errno, Ino, Result, StoreError};

/// What the store counts of its own work.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) statements: AtomicU64,
    /// Statements of commits: the rows of many changes, which no single call causes.
    pub(crate) commit_statements: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) redo_syncs: AtomicU64,
    pub(crate) tail_syncs: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

impl Tally {
    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Inodes whose attributes are kept; all are let go when there are more.
const KEPT_INODES: usize = 16_384;

/// Makes the change again that a note describes: see [`Db::note`].
pub(crate) type ApplyNote = fn(&Db, &[u8]) -> Result<()>;

/// The notes of a file system that has no tables of another store: none.
pub(super) fn no_notes(_: &Db, _: &[u8]) -> Result<()> {
    let reason = "it is the cache of a bucket, whose mount was killed: mount it with `ctxbench mount s3` first";
    Err(StoreError::storage(Errno::IO, reason))
}

/// A connection and its tally.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) connection: Connection,
    pub(crate) tails: Arc<Tails>,
    tally: Arc<Tally>,
    /// What the rows of the inodes used last say: this connection is the only one that changes them.
    kept: RefCell<HashMap<Ino, Attr>>,
    /// What names the directories have, as far as it is known.
    pub(super) names: RefCell<Names>,
    /// What is written at the next commit.
    pub(super) deferred: Deferred,
    /// What a transaction had done could not be undone: whatever is read now may never have been acknowledged.
    is_broken: Cell<bool>,
    /// The log may say of itself that it is needed: see [`super::log_mark`].
    pub(super) log_says_needed: Cell<bool>,
    /// Where changes are recorded whose transaction is still open; `None` where every change is committed before it
    /// returns.
    pub(super) redo: RefCell<Option<Redo>>,
    /// SQLite's log; none while the database is prepared.
    pub(super) log: OnceCell<Arc<Log>>,
    /// Statements are those of a commit.
    is_committing: Cell<bool>,
    /// A commit has failed: the next change has to commit what is recorded first.
    is_stuck: Cell<bool>,
    apply_note: ApplyNote,
}

/// Undoes a transaction that a panic leaves open, before the next thread takes the lock.
struct UndoOnPanic<'a>(&'a Db);

impl Drop for UndoOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            match self.0.undo() {
                Ok(()) => tracing::warn!("what the call that panicked had changed is undone"),
                Err(error) => tracing::error!(%error, "what the call that panicked had changed"),
            }
        }
    }
}

impl Db {
    pub(crate) fn new(
        connection: Connection,
        tails: Arc<Tails>,
        tally: Arc<Tally>,
        apply_note: ApplyNote,
    ) -> Self {
        // More than there are statements in any store that uses it, so that each is compiled once.
        connection.set_prepared_statement_cache_capacity(128);
        Self {
            connection,
            tails,
            tally,
            kept: RefCell::default(),
            names: RefCell::default(),
            deferred: Deferred::default(),
            is_broken: Cell::new(false),
            log_says_needed: Cell::new(false),
            redo: RefCell::new(None),
            log: OnceCell::new(),
            is_committing: Cell::new(false),
            is_stuck: Cell::new(false),
            apply_note,
        }
    }

    /// The attributes of an inode, if they are kept or deferred.
    pub(crate) fn kept(&self, ino: Ino) -> Option<Attr> {
        let deferred = self.deferred.inode(ino);
        deferred.or_else(|| self.kept.borrow().get(&ino).copied())
    }

    /// Whether an inode has changed, and its row is not written yet.
    pub(crate) fn is_deferred(&self, ino: Ino) -> bool {
        self.deferred.inode(ino).is_some()
    }

    /// Whether changes are recorded that are not committed.
    pub(crate) fn has_open_changes(&self) -> bool {
        self.is_pending()
    }

    /// Writes the rows that changes have left to the commit.
    pub(crate) fn write_rows(&self) -> Result<()> {
        for row in self.deferred.take_inodes().values() {
            match row.is_new {
                true => nodes::insert_row(self, &row.attr, None, None)?,
                false => nodes::update_row(self, &row.attr)?,
            }
            self.keep(&row.attr);
        }
        content::write_chunks(self)?;
        reclaim::delete_gone(self)
    }

    /// Keeps what an inode's row says now.
    pub(crate) fn keep(&self, attr: &Attr) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() >= KEPT_INODES && !kept.contains_key(&attr.ino) {
            kept.clear();
        }
        kept.insert(attr.ino, *attr);
    }

    /// Lets go of an inode whose row changes in another way.
    pub(crate) fn let_go(&self, ino: Ino) {
        self.kept.borrow_mut().remove(&ino);
    }

    /// A compiled statement, counted.
    pub(crate) fn statement(&self, sql: &'static str) -> Result<CachedStatement<'_>> {
        if self.is_broken.get() {
            let reason = "a change that failed could not be undone: nothing is read or written until the next mount";
            return Err(StoreError::storage(Errno::IO, reason));
        }
        Tally::add(match self.is_committing.get() {
            true => &self.tally.commit_statements,
            false => &self.tally.statements,
        });
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Runs a statement that returns no rows; answers how many it changed.
    pub(crate) fn execute(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        Ok(self.statement(sql)?.execute(params)?)
    }

    /// The first row of a query, if there is one.
    pub(crate) fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        Ok(self.statement(sql)?.query_row(params, read).optional()?)
    }

    /// Takes back what is not committed, but for the changes that are recorded: these are made again. If that fails,
    /// nothing is served any more.
    fn undo(&self) -> Result<()> {
        // What was kept inside may not be what the rows say after all.
        self.forget();
        // A full disk makes SQLite roll back by itself.
        let undone = match self.connection.is_autocommit() {
            true => Ok(0),
            false => self.execute("ROLLBACK", ()),
        };
        let undone = undone.and_then(|_| self.redo_pending());
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
        self.execute("BEGIN IMMEDIATE", ())?;
        pending
            .iter()
            .try_for_each(|payload| record::redo(self, payload))
    }

    /// Runs `work`, which only reads, with one lock of the log instead of one for each of its statements.
    pub(crate) fn reading<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        if !self.connection.is_autocommit() {
            return work(self);
        }
        self.execute("BEGIN", ())?;
        let _undo = UndoOnPanic(self);
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
        match self.is_pending() && self.connection.is_autocommit() {
            true => self.undo(),
            false => Ok(()),
        }
    }

    /// Serves nothing any more until the next mount.
    pub(super) fn give_up(&self) {
        self.is_broken.set(true);
        // A statement fails now; what is kept would still answer.
        self.forget();
    }

    /// Lets go of everything that SQLite has not said in this transaction.
    fn forget(&self) {
        self.kept.borrow_mut().clear();
        self.names.borrow_mut().clear();
        self.deferred.clear();
    }

    /// Runs `work` in the open transaction: all of it happens, or nothing.
    fn attempt<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.mend()?;
        if self.connection.is_autocommit() {
            self.execute("BEGIN IMMEDIATE", ())?;
        }
        let changes = || self.connection.total_changes() + self.deferred.changes();
        let before = changes();
        let _undo = UndoOnPanic(self);
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
    pub(crate) fn transaction<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let result = self.attempt(work);
        match (&result, self.is_pending()) {
            (Ok(_), _) => self.commit_with(1)?,
            // What is recorded stays for its own commit.
            (Err(_), true) => {}
            (Err(_), false) => self.undo()?,
        }
        result
    }

    /// Runs `work`, and records it as `record`: it survives a killed daemon, and is committed later. Where there is no
    /// redo log, or the change cannot wait, as [`Db::transaction`].
    pub(crate) fn change<T>(
        &self,
        record: &Record<'_>,
        work: impl FnOnce(&Self) -> Result<T>,
    ) -> Result<T> {
        if !self.can_wait()? || !record.can_wait(self)? {
            return self.transaction(work);
        }
        let value = self.attempt_all(work)?;
        self.record(record)?;
        Ok(value)
    }

    /// As [`Db::change`], for a change of tables that are another store's: `work` also answers the note from which
    /// [`ApplyNote`] makes it again.
    pub(crate) fn note<T>(&self, work: impl FnOnce(&Self) -> Result<(T, Vec<u8>)>) -> Result<T> {
        if !self.can_wait()? {
            return self.transaction(work).map(|(value, _)| value);
        }
        let (value, note) = self.attempt_all(work)?;
        let record = Record::Note { note: &note };
        match record.can_wait(self)? {
            true => self.record(&record)?,
            false => self.commit_with(1)?,
        }
        Ok(value)
    }

    /// Makes a noted change again.
    pub(super) fn apply_note(&self, note: &[u8]) -> Result<()> {
        (self.apply_note)(self, note)
    }

    /// Whether a change may wait for its commit, as far as the disk and earlier changes are concerned.
    fn can_wait(&self) -> Result<bool> {
        if self.is_stuck.get() {
            self.commit()?;
        }
        Ok(self.redo.borrow().as_ref().is_some_and(Redo::can_wait))
    }

    /// Runs `work` in the open transaction, or in a new one that is undone with it.
    fn attempt_all<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let attempted = self.attempt(work);
        if attempted.is_err() && !self.is_pending() {
            self.undo()?;
        }
        attempted
    }

    /// Records the change that was made last.
    fn record(&self, record: &Record<'_>) -> Result<()> {
        let (recorded, is_full) = match &mut *self.redo.borrow_mut() {
            Some(redo) => (redo.append(|out| record.encode(out)), redo.is_full()),
            None => (Ok(()), true),
        };
        if let Err(error) = recorded {
            self.undo()?;
            let reason = format!("writing the redo log: {error}");
            return Err(StoreError::storage(
                Errno::from_io_error(&error).unwrap_or(Errno::IO),
                reason,
            ));
        }
        if is_full && let Err(error) = self.commit() {
            // This change is recorded; the next one has to wait for room.
            tracing::warn!(%error, "committing changes");
        }
        Ok(())
    }

    fn is_pending(&self) -> bool {
        self.redo.borrow().as_ref().is_some_and(Redo::is_pending)
    }

    /// What is recorded, if a sync of the redo log makes every change durable: all that is committed is.
    pub(super) fn promise(&self) -> Option<Recorded> {
        let log = self.log.get().filter(|_| !self.is_broken.get());
        let is_durable = log.is_some_and(|log| log.is_durable());
        let mut redo = self.redo.borrow_mut();
        redo.as_mut().filter(|_| is_durable).map(Redo::promise)
    }

    /// Commits what is recorded.
    ///
    /// # Errors
    /// If the disk is full or fails; what is recorded stays, and the next change tries again.
    pub(super) fn commit(&self) -> Result<()> {
        self.mend()?;
        match self.is_pending() {
            true => self.commit_with(0),
            false => Ok(()),
        }
    }

    /// Commits the open transaction, in which so many changes are not recorded.
    fn commit_with(&self, unrecorded: u64) -> Result<()> {
        if self.connection.is_autocommit() {
            self.undo()?;
            let reason = "SQLite has rolled the transaction back";
            return Err(StoreError::storage(Errno::IO, reason));
        }
        let last = self
            .redo
            .borrow()
            .as_ref()
            .map(|redo| redo.last() + unrecorded);
        self.is_committing.set(true);
        let applied = self.write_rows().and_then(|()| match last {
            Some(last) => self.execute("UPDATE log SET applied = ?1", [signed(last)]),
            None => Ok(0),
        });
        let committed = applied.and_then(|_| self.execute("COMMIT", ()));
        self.is_committing.set(false);
        self.is_stuck.set(committed.is_err() && self.is_pending());
        if let Err(error) = committed {
            self.undo()?;
            return Err(error);
        }
        Tally::add(&self.tally.commits);
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

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        let errno = match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Errno::NOSPC,
            Some(ErrorCode::ReadOnly) => Errno::ROFS,
            Some(ErrorCode::OutOfMemory) => Errno::NOMEM,
            Some(ErrorCode::TooBig) => Errno::FBIG,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Errno::BUSY,
            _ => Errno::IO,
        };
        StoreError::storage(errno, format!("SQLite: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};

    use super::*;
    use crate::sqlite::{SqliteStore, nodes};
    use crate::store::{Caller, Change, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};

    const OWNER: Caller = Caller {
        uid: 7,
        gid: 0,
        now: Timestamp(1),
    };

    /// Changes the root's row and what is kept of it, then panics.
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
        let read = catch_unwind(AssertUnwindSafe(|| {
            store
                .db()
                .reading::<(), StoreError>(|_| panic!("on purpose"))
        }));
        assert!(read.is_err());
        assert!(store.db().connection.is_autocommit());
        let change = Change {
            permissions: Some(0o700),
            ..Change::default()
        };
        store.setattr(&OWNER, ROOT, &change).unwrap();
        assert_eq!(store.getattr(ROOT).unwrap().permissions, 0o700);
    }

    #[test]
    fn a_store_that_cannot_undo_serves_nothing_until_it_is_opened_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let no_rollback = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Transaction {
                operation: TransactionOperation::Rollback,
            } => Authorization::Deny,
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
            assert!(error.to_string().contains("could not be undone"), "{error}");
        }
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(store.getattr(ROOT).unwrap().uid, 7);
    }

    #[test]
    fn a_store_whose_changes_are_made_again_in_part_answers_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let file = NewNode {
            kind: Kind::File,
            permissions: 0o644,
            rdev: 0,
            target: b"",
        };
        let first = store.create(&OWNER, ROOT, b"a", &file).unwrap().ino;
        store.create(&OWNER, ROOT, b"b", &file).unwrap();
        store
            .rename(&OWNER, (ROOT, b"b"), (ROOT, b"c"), RenameMode::Replace)
            .unwrap();
        // The creations are made again, the rename is not.
        let no_rename = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Update {
                table_name: "dirent",
                ..
            } => Authorization::Deny,
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
}
