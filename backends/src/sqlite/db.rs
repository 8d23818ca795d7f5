//! One SQLite connection: prepared statements, transactions, and SQLite's errors as the caller sees them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row};

use super::tails::Tails;
use crate::store::{Attr, Errno, Ino, Result, StoreError};

/// What the store counts of its own work.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) statements: AtomicU64,
    pub(crate) commits: AtomicU64,
    pub(crate) syncs: AtomicU64,
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

/// A connection and its tally.
#[derive(Debug)]
pub(crate) struct Db {
    pub(crate) connection: Connection,
    pub(crate) tails: Arc<Tails>,
    tally: Arc<Tally>,
    /// What the rows of the inodes used last say: this connection is the only one that changes them.
    kept: RefCell<HashMap<Ino, Attr>>,
}

impl Db {
    pub(crate) fn new(connection: Connection, tails: Arc<Tails>, tally: Arc<Tally>) -> Self {
        // More than there are statements in any store that uses it, so that each is compiled once.
        connection.set_prepared_statement_cache_capacity(128);
        Self {
            connection,
            tails,
            tally,
            kept: RefCell::default(),
        }
    }

    /// The attributes of an inode, if they are kept.
    pub(crate) fn kept(&self, ino: Ino) -> Option<Attr> {
        self.kept.borrow().get(&ino).copied()
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
        Tally::add(&self.tally.statements);
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

    /// Only a panic leaves a transaction open; what was done in it must not be kept.
    fn end_what_was_left(&self) -> Result<()> {
        if !self.connection.is_autocommit() {
            self.kept.borrow_mut().clear();
            self.execute("ROLLBACK", ())?;
        }
        Ok(())
    }

    /// Runs `work`, which only reads, with one lock of the log instead of one for each of its statements.
    pub(crate) fn reading<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&Self) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        self.end_what_was_left()?;
        self.execute("BEGIN", ())?;
        let result = work(self);
        // Some errors end it by themselves.
        if !self.connection.is_autocommit() {
            self.execute("COMMIT", ())?;
        }
        result
    }

    /// Runs `work` in a transaction: all of it happens, or nothing.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        self.end_what_was_left()?;
        self.execute("BEGIN IMMEDIATE", ())?;
        let result = work(self).and_then(|value| {
            self.execute("COMMIT", ())?;
            Ok(value)
        });
        match &result {
            Ok(_) => Tally::add(&self.tally.commits),
            Err(_) => {
                // What was kept inside may not be what the rows say after all.
                self.kept.borrow_mut().clear();
                // A full disk makes SQLite roll back by itself.
                if !self.connection.is_autocommit() {
                    self.execute("ROLLBACK", ())?;
                }
            }
        }
        result
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
