//! The operation log in an SQLite file. A store in memory has none.

use std::fs::File;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params};

use super::operation::Operation;
use crate::sqlite::header::check_content;
use crate::sqlite::pages;
use crate::store::{Caller, Errno, Result, StoreError, Timestamp};

/// SQLite's `application_id` of a log: "ctxH".
const APPLICATION_ID: i32 = 0x6374_7848;

/// The schema version, in SQLite's `user_version`.
const VERSION: i32 = 3;

/// Why a log file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// SQLite cannot open, read or initialize the file.
    #[error("the log {}: {error}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        error: rusqlite::Error,
    },
    /// The file is no operation log of this version.
    #[error("{} is not an operation log of this version of ctxbench\n  fix: name another file with --log-db", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A stored operation cannot be parsed.
    #[error("the log {}: operation {number}: {why}", .path.display())]
    Operation {
        /// The file.
        path: PathBuf,
        /// The number of the operation, from 1.
        number: i64,
        /// Why it cannot be parsed.
        why: String,
    },
}

/// An operation and its caller.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) caller: Caller,
    pub(super) operation: Operation,
}

/// An operation that is neither committed nor rolled back.
#[derive(Debug)]
pub(super) struct Pending(());

/// An operation log.
#[derive(Debug)]
pub(super) struct Log {
    db: Option<Connection>,
    owner: Option<Caller>,
    /// The file, if opening the log has created it.
    new: Option<PathBuf>,
    /// Whether the reference has applied an operation that is missing in the log.
    is_broken: bool,
}

impl Log {
    pub(super) fn in_memory() -> Self {
        Self {
            db: None,
            owner: None,
            new: None,
            is_broken: false,
        }
    }

    /// Opens a log file, or creates it, and reads its operations.
    pub(super) fn open(
        path: &Path,
        owner: &Caller,
    ) -> std::result::Result<(Self, Vec<Entry>), LogError> {
        let failed = |error| LogError::Sqlite {
            path: path.to_owned(),
            error,
        };
        check_content(path, APPLICATION_ID).map_err(|_| LogError::Foreign {
            path: path.to_owned(),
        })?;
        let is_new = File::create_new(path).is_ok();
        let db = pages::connect(path, OpenFlags::default()).map_err(failed)?;
        let foreign = || LogError::Foreign {
            path: path.to_owned(),
        };
        // Before SQLite reads a page: those of another program have no checksums.
        let header = pages::header(&db).map_err(|_| foreign())?;
        let is_ours = |header: pages::Header| {
            let is_new = (header.application_id, header.user_version) == (0, 0);
            let is_log = (header.application_id, header.user_version) == (APPLICATION_ID, VERSION);
            header.has_checksums && (is_new || is_log)
        };
        if !header.is_none_or(is_ours) {
            return Err(foreign());
        }
        let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
        let (id, version) = (
            number("application_id").map_err(failed)?,
            number("user_version").map_err(failed)?,
        );
        let tables: i64 = db
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        if (tables > 0 || id != 0) && (id, version) != (APPLICATION_ID, VERSION) {
            return Err(foreign());
        }
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             PRAGMA locking_mode = EXCLUSIVE;
             BEGIN IMMEDIATE;
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {VERSION};
             CREATE TABLE IF NOT EXISTS owner (uid INTEGER NOT NULL, gid INTEGER NOT NULL, at INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS operation (
                 number INTEGER PRIMARY KEY,
                 at INTEGER NOT NULL,
                 uid INTEGER NOT NULL,
                 gid INTEGER NOT NULL,
                 what TEXT NOT NULL,
                 data BLOB
             );
             COMMIT;"
        ))
        .map_err(failed)?;
        let first = params![owner.uid, owner.gid, owner.now.0];
        db.execute(
            "INSERT INTO owner SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM owner)",
            first,
        )
        .map_err(failed)?;
        let owner = db
            .query_row("SELECT uid, gid, at FROM owner", [], |row| {
                Ok(Caller {
                    uid: row.get(0)?,
                    gid: row.get(1)?,
                    now: Timestamp(row.get(2)?),
                })
            })
            .map_err(failed)?;
        let entries = read_entries(&db, path)?;
        let log = Self {
            db: Some(db),
            owner: Some(owner),
            new: is_new.then(|| path.to_owned()),
            is_broken: false,
        };
        Ok((log, entries))
    }

    /// Removes the file, if opening the log has created it, while SQLite's lock still keeps other mounts away.
    pub(super) fn discard_new(&mut self) {
        let Some(path) = self.new.take() else {
            return;
        };
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        for file in [path, log.into()] {
            if let Err(error) = std::fs::remove_file(&file) {
                tracing::warn!(%error, "removing {}", file.display());
            }
        }
    }

    /// The owner of the file system; `None` without a log file.
    pub(super) fn owner(&self) -> Option<Caller> {
        self.owner
    }

    /// Appends an operation before it is applied. The caller must end with [`Log::commit`] or
    /// [`Log::roll_back`].
    pub(super) fn begin(&mut self, caller: &Caller, operation: &Operation) -> Result<Pending> {
        if self.is_broken {
            return Err(StoreError::storage(
                Errno::ROFS,
                "the log could not be written",
            ));
        }
        if let Some(db) = &self.db {
            let what = serde_json::to_string(operation)
                .map_err(|error| StoreError::storage(Errno::IO, error))?;
            let data = match operation {
                Operation::Write { data, .. } => Some(data),
                _ => None,
            };
            let begun = db.execute_batch("BEGIN IMMEDIATE").and_then(|()| {
                let mut insert = db.prepare_cached(
                    "INSERT INTO operation (at, uid, gid, what, data) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?;
                insert.execute(params![caller.now.0, caller.uid, caller.gid, what, data])
            });
            if let Err(error) = begun {
                self.roll_back(Pending(()));
                return Err(storage(&error));
            }
        }
        Ok(Pending(()))
    }

    /// Commits an operation that was applied.
    pub(super) fn commit(&mut self, _pending: Pending) -> Result<()> {
        let Some(db) = &self.db else {
            return Ok(());
        };
        let done = db.execute_batch("COMMIT");
        done.map_err(|error| {
            // The reference cannot undo the operation, so further entries would not match it.
            tracing::error!(%error, "the log cannot be written; this mount accepts no more changes");
            self.is_broken = true;
            storage(&error)
        })
    }

    /// Removes an operation that was not applied.
    pub(super) fn roll_back(&self, _pending: Pending) {
        if let Some(db) = &self.db
            && !db.is_autocommit()
            && let Err(error) = db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the log cannot be rolled back");
        }
    }

    /// Makes all committed operations survive power loss.
    pub(super) fn sync(&self) -> Result<()> {
        let Some(db) = &self.db else {
            return Ok(());
        };
        // A checkpoint syncs the WAL first, then the database file.
        db.query_row("PRAGMA wal_checkpoint(FULL)", [], |_| Ok(()))
            .map_err(|error| storage(&error))
    }
}

fn storage(error: &rusqlite::Error) -> StoreError {
    let is_full = error.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull);
    StoreError::storage(if is_full { Errno::NOSPC } else { Errno::IO }, error)
}

fn read_entries(db: &Connection, path: &Path) -> std::result::Result<Vec<Entry>, LogError> {
    let failed = |error| LogError::Sqlite {
        path: path.to_owned(),
        error,
    };
    let mut query = db
        .prepare("SELECT number, at, uid, gid, what, data FROM operation ORDER BY number")
        .map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let number: i64 = row.get(0).map_err(failed)?;
        let caller = Caller {
            now: Timestamp(row.get(1).map_err(failed)?),
            uid: row.get(2).map_err(failed)?,
            gid: row.get(3).map_err(failed)?,
        };
        let what: String = row.get(4).map_err(failed)?;
        let mut operation: Operation =
            serde_json::from_str(&what).map_err(|error| LogError::Operation {
                path: path.to_owned(),
                number,
                why: error.to_string(),
            })?;
        if let Operation::Write { data, .. } = &mut operation {
            *data = row.get(5).map_err(failed)?;
        }
        entries.push(Entry { caller, operation });
    }
    Ok(entries)
}
