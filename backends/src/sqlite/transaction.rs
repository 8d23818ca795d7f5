//! Transactions over one connection: begun, recorded, committed, undone, and made again.

use parking_lot::{Mutex, MutexGuard};

use super::db::Db;
use super::nodes::{self, signed};
use super::record::{self, Record};
use super::redo::{Recorded, Redo};
use super::tally::Tally;
use super::{content, reclaim};
use crate::store::{Errno, Result, StoreError};

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

/// The connection, with what SQLite has rolled back made again.
pub(super) fn locked(db: &Mutex<Db>) -> MutexGuard<'_, Db> {
    // A transaction that a panic left open has been undone before the lock was free.
    let db = db.lock();
    if let Err(error) = db.mend() {
        tracing::error!(%error, "the changes since the last commit cannot be made again");
    }
    db
}

impl Db {
    /// Whether changes are recorded that are not committed.
    pub(crate) fn has_open_changes(&self) -> bool {
        self.redo.borrow().as_ref().is_some_and(Redo::is_pending)
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
        match self.has_open_changes() && self.connection.is_autocommit() {
            true => self.undo(),
            false => Ok(()),
        }
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
        match (&result, self.has_open_changes()) {
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
        if attempted.is_err() && !self.has_open_changes() {
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
        match self.has_open_changes() {
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
        self.is_stuck
            .set(committed.is_err() && self.has_open_changes());
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

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rusqlite::hooks::{AuthAction, AuthContext, Authorization, TransactionOperation};

    use super::*;
    use crate::sqlite::SqliteStore;
    use crate::sqlite::log_mark::tests::OWNER;
    use crate::store::{Change, Kind, NewNode, ROOT, RenameMode, Store};

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
