//! Detects a missing log: a removed one differs from one that never existed.
//!
//! While a mount has the database, the row of `log` is 1 in the file and 0 in the log. A reader through the log, or of
//! the file after a complete checkpoint, reads 0. A reader that reads 1 and has no log lacks changes.
//! A 1 can also be in the log during a checkpoint; a daemon killed then leaves its log, which the next mount needs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use super::check::{check_rows, short_tails};
use super::db::Db;
use super::open::{OpenError, connect, identify, must_not_be_cut, own, unreadable};
use super::redo::redo_of;
use crate::store::Result;

/// The write-ahead log of the database at `path`.
pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut log = OsString::from(path);
    log.push("-wal");
    log.into()
}

/// Whether there is a log; the empty one that SQLite makes when it opens a database is none.
pub(crate) fn has_log(path: &Path) -> bool {
    std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0)
}

/// Makes `connection` leave the log of the database at `path` in place when it closes. The last connection to close
/// checkpoints the log; after a kill during a checkpoint, the next mount would then miss that log.
pub(crate) fn leave(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    if has_log(path) {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    Ok(())
}

/// The log that the database at `path` needs and that is not there: SQLite's, or the redo log.
pub(crate) fn lacks_log(connection: &Connection, path: &Path) -> rusqlite::Result<Option<PathBuf>> {
    let first = |sql| connection.query_row(sql, (), |row| row.get::<_, bool>(0));
    if first("SELECT needed FROM log")? && !has_log(path) {
        return Ok(Some(log_of(path)));
    }
    let redo = redo_of(path);
    // Where SQLite's log is gone and not missed, this is a copy of the tables alone.
    let is_needed = has_log(path) && first("SELECT redo IS NOT NULL FROM log")?;
    Ok((is_needed && !redo.exists()).then_some(redo))
}

/// Notes in the log whether the database needs it.
pub(super) fn say(db: &Db, needed: bool) -> Result<()> {
    // A commit that fails may be there after all.
    db.log_says_needed.set(true);
    db.transaction(|db| db.execute("UPDATE log SET needed = ?1", [needed]))?;
    db.log_says_needed.set(needed);
    Ok(())
}

/// Copies the log of a database that was just opened, so that from now on the file alone says that it needs it. The
/// log's name must be durable before.
pub(super) fn begin(db: &Db) -> Result<()> {
    let begun = say(db, true).and_then(|()| copy(db));
    if begun.is_err() {
        end(db, false);
    }
    begun
}

fn copy(db: &Db) -> Result<()> {
    let copied = db
        .connection
        .wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE);
    match copied {
        Ok(_) => {}
        // Another connection reads an old state: the checkpoint copies less.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
        Err(error) => tracing::warn!(%error, "the log cannot be copied into the database"),
    }
    say(db, false)
}

/// Sees to it that closing the database leaves the log where it is, if that says that it is needed, or is broken: what a
/// failed sync has lost of it may not be copied.
pub(super) fn end(db: &Db, is_broken: bool) {
    if !is_broken && (!db.log_says_needed.get() || say(db, false).is_ok()) {
        return;
    }
    let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    match db.connection.set_db_config(keep, true) {
        Ok(_) => tracing::warn!("the log stays, and is copied at the next mount"),
        Err(error) => tracing::warn!(%error, "keeping the log"),
    }
}

/// Has the database at `path`, whose log is gone, opened in the state in which it is: an earlier one. Of files that
/// are longer than [`super::HEAD`], what is past that may be newer, or gone: of those whose bytes are gone, reading
/// them there fails, and the log of the daemon names them. Answers whether a log was missing at all.
///
/// # Errors
/// As [`super::SqliteStore::open`], and [`OpenError::NotWhole`] if what is left contradicts itself.
pub fn go_on_without_log(path: &Path) -> std::result::Result<bool, OpenError> {
    if !path.exists() {
        return Ok(false);
    }
    must_not_be_cut(path)?;
    let _ownership = match own(path) {
        // A mount has the database, and its logs.
        Err(OpenError::Owned(..)) => return Ok(false),
        owned => owned?,
    };
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let mut connection = connect(path)?;
    leave(&connection, path).map_err(wrong)?;
    if !identify(&connection, path)? || lacks_log(&connection, path).map_err(wrong)?.is_none() {
        return Ok(false);
    }
    // A daemon that was killed during a checkpoint may have left pages of two states.
    let checked = check_rows(&mut connection).map_err(wrong)?;
    if let Some(problem) = checked.problems.into_iter().next() {
        return Err(OpenError::NotWhole {
            path: path.to_owned(),
            problem,
        });
    }
    // The end of a file that was deleted or cut since is gone at once, and no sign of two states.
    for short in short_tails(&connection, path).map_err(wrong)? {
        tracing::warn!(
            "{}: content past the first 256 KiB is missing: inode {short}",
            path.display()
        );
    }
    connection
        .execute("UPDATE log SET needed = 0, redo = NULL", ())
        .map_err(wrong)?;
    Ok(true)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sqlite::SqliteStore;
    use crate::store::{Caller, ROOT, Store, Timestamp};

    pub(crate) const OWNER: Caller = Caller {
        uid: 7,
        gid: 7,
        now: Timestamp(0),
    };

    /// What a daemon leaves that was killed while it copied its log: a log that says that it is needed.
    pub(crate) fn killed_while_copying(dir: &Path) -> PathBuf {
        let (path, left) = (dir.join("a.db"), dir.join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        say(&store.db(), true).unwrap();
        std::fs::copy(&path, &left).unwrap();
        std::fs::copy(log_of(&path), log_of(&left)).unwrap();
        std::fs::copy(redo_of(&path), redo_of(&left)).unwrap();
        left
    }

    #[test]
    fn whoever_looks_leaves_a_needed_log_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let left = killed_while_copying(dir.path());
        let looking = connect(&left).unwrap();
        leave(&looking, &left).unwrap();
        identify(&looking, &left).unwrap();
        drop(looking);
        let store = SqliteStore::open(&left, &OWNER).unwrap();
        store.getattr(ROOT).unwrap();
    }

    #[test]
    fn a_needed_log_that_another_program_copied_and_removed_is_missed() {
        let dir = tempfile::tempdir().unwrap();
        let left = killed_while_copying(dir.path());
        let looking = connect(&left).unwrap();
        identify(&looking, &left).unwrap();
        drop(looking);
        let error = SqliteStore::open(&left, &OWNER).unwrap_err();
        assert!(matches!(error, OpenError::LogGone { .. }), "{error}");
    }
}
