//! Marks that the database needs its log, so that a mount misses a removed one: see [`super::open::missing_log`].
//!
//! While a mount has the database, the row of `log` is 1 in the file and 0 in the log. A reader through the log, or of
//! the file after a complete checkpoint, reads 0. A reader that reads 1 and has no log lacks changes.
//! A 1 can also be in the log during a checkpoint; a daemon killed then leaves its log, which the next mount needs.

use fuse::store::Result;
use rusqlite::ErrorCode;
use rusqlite::config::DbConfig;
use rusqlite::wal::CheckpointMode;

use crate::db::Db;

/// Notes in the log whether the database needs it.
pub(super) fn set_needed(db: &Db, needed: bool) -> Result<()> {
    // A commit that fails may be there after all.
    db.log_says_needed.set(true);
    db.transaction(|db| db.execute("UPDATE log SET needed = ?1", [needed]))?;
    db.log_says_needed.set(needed);
    Ok(())
}

/// Copies the log of a database that was just opened, so that from now on the file alone says that it needs it. The
/// log's name must be durable before.
pub(super) fn begin(db: &Db) -> Result<()> {
    let begun = set_needed(db, true).and_then(|()| copy(db));
    if begun.is_err() {
        end(db, false);
    }
    begun
}

fn copy(db: &Db) -> Result<()> {
    let copied = db.connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE);
    match copied {
        Ok(_) => db.room.copied(),
        // Another connection reads an old state: the checkpoint copies less.
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
        Err(error) => {
            tracing::warn!(%error, "checkpoint: the log cannot be copied into the database")
        }
    }
    set_needed(db, false)
}

/// Sees to it that closing the database leaves the log where it is, if that says that it is needed, or is broken: what a
/// failed sync has lost of it may not be copied. True if it may be copied.
pub(super) fn end(db: &Db, is_broken: bool) -> bool {
    if !is_broken && (!db.log_says_needed.get() || set_needed(db, false).is_ok()) {
        return true;
    }
    let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
    match db.connection.set_db_config(keep, true) {
        Ok(_) => tracing::warn!("the log is kept, and is replayed at the next mount"),
        Err(error) => tracing::warn!(%error, "keeping the log"),
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::{Path, PathBuf};

    use fuse::store::{Caller, Kind, NewNode, ROOT, Store, Timestamp};

    use super::*;
    use crate::SqliteStore;
    use crate::files::{log_of, redo_of};
    use crate::open::{connect, identify, keep_wal_on_close};
    use crate::open_error::SqliteOpenError;

    pub(crate) const FILE: NewNode<'_> = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: b"" };

    pub(crate) const OWNER: Caller = Caller { uid: 7, gid: 7, now: Timestamp(0) };

    /// The database of a daemon that was killed while it copied its log: the log says that it is needed.
    pub(crate) fn killed_while_copying(dir: &Path) -> PathBuf {
        let (path, left) = (dir.join("a.db"), dir.join("b.db"));
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        set_needed(&store.db(), true).unwrap();
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
        keep_wal_on_close(&looking, &left).unwrap();
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
        assert!(matches!(error, SqliteOpenError::LogGone { .. }), "{error}");
    }
}
