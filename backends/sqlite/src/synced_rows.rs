//! The rows of synced lengths: see [`super::synced`].

use fuse::store::{Ino, Result};
use rusqlite::{Connection, OptionalExtension};

use crate::db::Db;
use crate::nodes::{signed, unsigned};

/// Notes a truncation, in its transaction.
pub(super) fn cut(db: &Db, ino: Ino, length: u64) -> Result<()> {
    {
        let state = &mut *db.tails.growth().state.lock();
        state.is_cut |= state.in_sync.contains_key(&ino);
    }
    db.execute(
        "INSERT INTO tail (ino, length, synced, is_cut) VALUES (?1, 0, 0, 1)
         ON CONFLICT (ino) DO UPDATE SET synced = min(synced, ?2), is_cut = 1",
        [signed(ino), signed(length)],
    )?;
    Ok(())
}

/// Notes that another place has these files as they were after their last truncation.
pub fn note_copied(db: &Db, inos: impl IntoIterator<Item = Ino>) -> Result<()> {
    for ino in inos {
        db.execute("UPDATE tail SET is_cut = 2 WHERE ino = ?1 AND is_cut = 1", [signed(ino)])?;
    }
    Ok(())
}

/// Whether [`note_copied`] was the last to note anything of a truncated file.
pub fn is_copied(db: &Db, ino: Ino) -> Result<bool> {
    let is_copied = db.row("SELECT is_cut = 2 FROM tail WHERE ino = ?1", [signed(ino)], |row| row.get(0))?;
    Ok(is_copied.unwrap_or_default())
}

/// Notes how much of tails is synced.
pub(super) fn set(db: &Db, lengths: &[(Ino, u64)]) -> Result<()> {
    for (ino, length) in lengths {
        db.execute(
            "INSERT INTO tail (ino, length, synced, is_cut) VALUES (?1, 0, ?2, 0)
             ON CONFLICT (ino) DO UPDATE SET synced = max(synced, excluded.synced)",
            [signed(*ino), signed(*length)],
        )?;
    }
    Ok(())
}

/// Whether this is the cache of a bucket, which has the bytes that a file lacks, and would upload a file that was cut.
pub(super) fn has_guest(connection: &Connection) -> rusqlite::Result<bool> {
    let cache = "SELECT 1 FROM sqlite_schema WHERE name = 's3_setting'";
    Ok(connection.query_row(cache, (), |_| Ok(())).optional()?.is_some())
}

/// How much of the tail of an inode is synced, and whether it was truncated since it had checksums in the tables.
pub(super) fn of(connection: &Connection, ino: Ino) -> rusqlite::Result<(u64, bool)> {
    let mut statement = connection.prepare_cached("SELECT synced, is_cut FROM tail WHERE ino = ?1")?;
    let found = statement.query_row([signed(ino)], |row| Ok((unsigned(row.get(0)?), row.get(1)?)));
    Ok(found.optional()?.unwrap_or_default())
}
