//! Brings a database that an earlier ctxbench wrote to today's schema.

use rusqlite::Connection;

use super::content::{CHUNK, HEAD_CHUNKS, INDEX_BITS, tail_length};
use super::nodes::{signed, unsigned};
use super::tails::{HEAD, Tails};
use crate::store::Result;

/// Brings a database of an earlier version up to date. A crash in between leaves one of the versions in between.
pub(super) fn bring_up(connection: &Connection, tails: &Tails, version: i32) -> Result<()> {
    if version < 2 {
        from_version_1(connection, tails)?;
    }
    if version < 3 {
        from_version_2(connection)?;
    }
    if version < 4 {
        from_version_3(connection)?;
    }
    Ok(())
}

/// Version 3 had no redo log.
fn from_version_3(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "BEGIN;
         ALTER TABLE log ADD COLUMN redo INTEGER;
         ALTER TABLE log ADD COLUMN applied INTEGER NOT NULL DEFAULT 0;
         PRAGMA user_version = 4;
         COMMIT;",
    )?;
    Ok(())
}

/// Version 2 did not say whether it needs its log, and had no checksums: what is there has none until it is written
/// again.
fn from_version_2(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "BEGIN;
         CREATE TABLE log (needed INTEGER NOT NULL) STRICT;
         INSERT INTO log VALUES (0);
         ALTER TABLE chunk ADD COLUMN sum INTEGER;
         PRAGMA user_version = 3;
         COMMIT;",
    )?;
    Ok(())
}

/// Version 1 kept all content in the database: moves what is past the first 256 KiB of a file to its tail.
///
/// A crash in between leaves version 1, and tails that the next attempt writes anew.
fn from_version_1(connection: &Connection, tails: &Tails) -> Result<()> {
    let index_mask = (1_i64 << INDEX_BITS) - 1;
    let mut files = connection
        .prepare("SELECT ino, size FROM inode WHERE mode & 61440 = 32768 AND size > ?1")?;
    let mut chunks = connection.prepare(
        "SELECT id & ?2, bytes FROM chunk WHERE id >= (?1 << ?3) + ?4 AND id < (?1 + 1) << ?3 ORDER BY id",
    )?;
    let mut rows = files.query([signed(HEAD)])?;
    while let Some(row) = rows.next()? {
        let (ino, size): (i64, i64) = (row.get(0)?, row.get(1)?);
        let length = tail_length(unsigned(size));
        tails.extend(unsigned(ino), 0, length)?;
        let mut rows = chunks.query((ino, index_mask, INDEX_BITS, signed(HEAD_CHUNKS)))?;
        while let Some(row) = rows.next()? {
            let (index, bytes): (i64, Vec<u8>) = (row.get(0)?, row.get(1)?);
            let at = tail_length(unsigned(index) * CHUNK);
            let inside = (length.saturating_sub(at)).min(bytes.len() as u64) as usize;
            tails.write(unsigned(ino), length, at, &bytes[..inside])?;
        }
    }
    drop(rows);
    tails.sync()?;
    let transaction = connection.unchecked_transaction()?;
    transaction.execute(
        "DELETE FROM chunk WHERE id & ?1 >= ?2",
        (index_mask, signed(HEAD_CHUNKS)),
    )?;
    transaction.execute(
        "UPDATE inode SET blocks = (SELECT coalesce(sum((length(bytes) + 4095) / 4096 * 8), 0)
           FROM chunk WHERE id >= inode.ino << ?2 AND id < (inode.ino + 1) << ?2)
         WHERE mode & 61440 = 32768 AND size > ?1",
        (signed(HEAD), INDEX_BITS),
    )?;
    transaction.pragma_update(None, "user_version", 2)?;
    transaction.commit()?;
    Ok(())
}
