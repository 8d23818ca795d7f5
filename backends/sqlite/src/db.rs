//! One SQLite connection: prepared statements, and cached rows.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use fuse::store::{Attr, Errno, Ino, Result, StoreError};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row};

use crate::counters::Counters;
use crate::deferred::DeferredRows;
use crate::growth::OpenReplacements;
use crate::log::Log;
use crate::name_cache::NameCache;
use crate::redo::Redo;
use crate::room::Room;
use crate::tails::Tails;

/// Inodes whose attributes are kept; all are let go when there are more.
const KEPT_INODES: usize = 16_384;

/// What a store with tables of its own in a database does for them when a mount opens the database.
#[derive(Clone, Copy, Debug)]
pub struct GuestRecovery {
    /// Makes the change again that a note describes: see [`SqliteStore::note`](crate::SqliteStore::note).
    pub apply_note: fn(&Db, &[u8]) -> Result<()>,
    /// Mends a long file of a cache after a power loss, in the transaction that makes the changes of the redo log.
    pub mend: fn(&Db, &UnsealedFile) -> Result<()>,
}

/// A file after a power loss whose tail has no checksums in the tables, or may lack bytes.
#[derive(Clone, Copy, Debug)]
pub struct UnsealedFile {
    /// Its attributes.
    pub attr: Attr,
    /// The bytes before this one are surely there. They are as they were written, if they were not overwritten in place.
    pub durable: u64,
    /// The file was truncated since its tail had checksums in the tables.
    pub is_cut: bool,
}

impl GuestRecovery {
    /// That of a file system without tables of another store.
    pub(super) const NONE: Self = Self {
        apply_note: |_, _| Err(of_a_cache("was killed")),
        mend: |_, file| if file.durable < file.attr.size { Err(of_a_cache("ended with the power")) } else { Ok(()) },
    };
}

fn of_a_cache(end: &str) -> StoreError {
    let reason = format!("it is the cache of a bucket, whose mount {end}: mount it with `ctxbench mount s3` first");
    StoreError::storage(Errno::IO, reason)
}

/// A connection and its counters.
#[derive(Debug)]
pub struct Db {
    /// The connection itself, for statements that [`Db::statement`] does not keep.
    pub connection: Connection,
    pub(crate) tails: Arc<Tails>,
    pub(super) room: Arc<Room>,
    /// The change that is made may need more space than the reserve has.
    pub(super) is_growth: Cell<bool>,
    /// Bytes to which the log's file is shortened when it begins again.
    pub(super) log_kept: Cell<u64>,
    pub(super) counters: Arc<Counters>,
    /// The rows of the inodes used last: this connection is the only one that changes them.
    kept: RefCell<HashMap<Ino, Attr>>,
    /// The known names of directories.
    pub(super) names: RefCell<NameCache>,
    /// The rows that the next commit writes.
    pub(super) deferred: DeferredRows,
    /// A change could not be undone, so reads might return changes that were never acknowledged; or a commit panicked.
    pub(super) is_broken: Cell<bool>,
    /// The log may say of itself that it is needed: see [`super::log_mark`].
    pub(super) log_says_needed: Cell<bool>,
    /// Files that have replaced others in the open transaction.
    pub(super) replacing: RefCell<OpenReplacements>,
    /// Where changes are recorded whose transaction is still open; `None` where every change is committed before it
    /// returns.
    pub(super) redo: RefCell<Option<Redo>>,
    /// SQLite's log; none while the database is prepared.
    pub(super) log: OnceCell<Arc<Log>>,
    /// Statements are those of a commit.
    pub(super) is_committing: Cell<bool>,
    /// A commit has failed: the next change has to commit the recorded changes first.
    pub(super) is_stuck: Cell<bool>,
    /// Inodes without a name whose rows are on damaged pages, so that they cannot be deleted.
    pub(super) undeletable: RefCell<BTreeSet<Ino>>,
    pub(super) guest: GuestRecovery,
    /// Where a test wants a panic: how the statement starts, and how many of them go well before.
    #[cfg(test)]
    pub(super) panics_at: Cell<Option<(&'static str, u32)>>,
    /// How many commits a test lets find room on the disk before one does not.
    #[cfg(test)]
    pub(super) full_after: Cell<Option<u32>>,
    /// A call has synced with the lock: a file that has replaced another one, or before it removed discards.
    #[cfg(test)]
    pub(super) synced_with_lock: Cell<bool>,
}

/// Opens the transaction of the changes until the next commit. It counts as a statement of that commit: the first of the
/// calls after a commit runs it for all.
pub(super) const BEGIN_CHANGES: &str = "BEGIN IMMEDIATE";

impl Db {
    pub(super) fn new(
        connection: Connection,
        tails: Arc<Tails>,
        room: Arc<Room>,
        counters: Arc<Counters>,
        guest: GuestRecovery,
    ) -> Self {
        // More than there are statements in any store that uses it, so that each is compiled once.
        connection.set_prepared_statement_cache_capacity(128);
        Self {
            connection,
            tails,
            room,
            is_growth: Cell::new(false),
            log_kept: Cell::new(0),
            counters,
            kept: RefCell::default(),
            names: RefCell::default(),
            deferred: DeferredRows::default(),
            is_broken: Cell::new(false),
            log_says_needed: Cell::new(false),
            replacing: RefCell::default(),
            redo: RefCell::new(None),
            log: OnceCell::new(),
            is_committing: Cell::new(false),
            is_stuck: Cell::new(false),
            undeletable: RefCell::default(),
            guest,
            #[cfg(test)]
            panics_at: Cell::new(None),
            #[cfg(test)]
            full_after: Cell::new(None),
            #[cfg(test)]
            synced_with_lock: Cell::new(false),
        }
    }

    /// Panics where a test has asked for it.
    #[cfg(test)]
    pub(super) fn panic_if_asked(&self, at: &str) {
        match self.panics_at.get() {
            Some((start, before)) if at.starts_with(start) => {
                self.panics_at.set(before.checked_sub(1).map(|left| (start, left)));
                assert!(before > 0, "on purpose");
            }
            _ => {}
        }
    }

    /// Finds the disk full where a test has asked for it.
    #[cfg(test)]
    pub(super) fn fail_if_full(&self) -> Result<()> {
        let left = self.full_after.take();
        self.full_after.set(left.and_then(|left| left.checked_sub(1)));
        match left {
            Some(0) => Err(Errno::NOSPC.into()),
            _ => Ok(()),
        }
    }

    /// The attributes of an inode, if they are kept or deferred.
    pub(crate) fn kept(&self, ino: Ino) -> Option<Attr> {
        let deferred = self.deferred.inode(ino);
        deferred.or_else(|| self.kept.borrow().get(&ino).copied())
    }

    /// Whether an inode has changed, and its row is not written yet.
    pub fn is_deferred(&self, ino: Ino) -> bool {
        self.deferred.inode(ino).is_some()
    }

    /// Caches an inode's current row.
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

    /// A compiled statement. It is counted here, and not each time that it runs.
    pub fn statement(&self, sql: &'static str) -> Result<CachedStatement<'_>> {
        #[cfg(test)]
        self.panic_if_asked(sql);
        if self.is_broken.get() {
            let reason =
                "a rollback failed or a commit panicked (see the log): all reads and writes fail until the next mount";
            return Err(StoreError::storage(Errno::IO, reason));
        }
        Counters::add(if self.is_committing.get() || sql == BEGIN_CHANGES {
            &self.counters.commit_statements
        } else {
            &self.counters.statements
        });
        Ok(self.connection.prepare_cached(sql)?)
    }

    /// Runs a statement that returns no rows; answers how many it changed.
    pub fn execute(&self, sql: &'static str, params: impl Params) -> Result<usize> {
        Ok(self.statement(sql)?.execute(params)?)
    }

    /// The first row of a query, if there is one.
    pub fn row<T>(
        &self,
        sql: &'static str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>> {
        first(&mut self.statement(sql)?, params, read)
    }

    /// Serves nothing any more until the next mount.
    pub(super) fn give_up(&self) {
        self.is_broken.set(true);
        // Statements fail now; the cache would still answer.
        self.forget();
    }

    /// Lets go of everything that SQLite has not said in this transaction.
    pub(super) fn forget(&self) {
        self.kept.borrow_mut().clear();
        self.names.borrow_mut().clear();
        self.deferred.clear();
        self.replacing.take();
    }

    /// Makes a noted change again.
    pub(super) fn apply_note(&self, note: &[u8]) -> Result<()> {
        (self.guest.apply_note)(self, note)
    }
}

/// The first row of a compiled query, if there is one.
pub fn first<T>(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    Ok(statement.query_row(params, read).optional()?)
}
