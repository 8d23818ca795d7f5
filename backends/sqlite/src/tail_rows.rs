//! The tables of the checksums of tails: see [`super::tail_sums`].

use std::sync::Arc;

use fuse::store::{Errno, Ino, Result, StoreError};
use rusqlite::params;

use crate::HEAD;
use crate::db::Db;
use crate::nodes::{self, signed, unsigned};
use crate::set_aside::RedoRecord;
use crate::sum_file::{RecordedTail, Slot};
use crate::tail_sums::{Recorder, TailSums, is_sealed};

/// Bits of an id that count the groups of one tail.
const GROUP_BITS: u32 = 24;

fn id(ino: Ino, group: u64) -> i64 {
    signed((ino << GROUP_BITS) | group)
}

/// The checksums of the tail of an inode.
///
/// # Errors
/// If the tables cannot be read: then it is not known whether the tail is as it was written.
pub(crate) fn of(db: &Db, ino: Ino) -> Result<Arc<TailSums>> {
    if let Some(known) = db.tails.known_sums(ino) {
        return Ok(known);
    }
    let length = length(db, ino)?;
    let recorder = Recorder { file: Arc::clone(db.tails.sum_file()), ino };
    let sums = match (length, db.tails.metadata(ino)?) {
        (Some(length), Some(file)) if is_sealed(&file) => TailSums::sealed(length, rows(db, ino)?, Some(recorder)),
        (_, Some(file)) if file.len() > 0 => TailSums::unknown(),
        // Reading one that is missing fails, and what is written belongs to a new one.
        _ => TailSums::new(recorder),
    };
    let sums = Arc::new(sums);
    db.tails.keep_sums(ino, &sums);
    Ok(sums)
}

/// Takes over what a killed mount has recorded of the tails that it changed, for a database that says `known`. To be called
/// when its changes are in the tables, and before anything else changes a tail.
pub(super) fn go_on(db: &Db, known: RedoRecord) {
    for (ino, left) in db.tails.sum_file().go_on(known) {
        let recorder = Recorder { file: Arc::clone(db.tails.sum_file()), ino };
        match restored(db, ino, &left) {
            Ok(Some((sums, changed))) => {
                sums.go_on(left, &changed, &recorder);
                db.tails.keep_sums(ino, &Arc::new(sums));
            }
            // It is sealed, gone, or about to go.
            Ok(None) => recorder.forget(left),
            Err(error) => {
                tracing::warn!(ino, %error, "no checksums for content past the first 256 KiB");
                recorder.forget(left);
            }
        }
    }
}

/// The checksums of a tail that a killed mount has left, and the slots that have to say something else.
type RestoredTail = (TailSums, Vec<(u64, Slot)>);

/// The checksums of a tail of which a killed mount has left `left`, and the slots that have to say something else. `None` if
/// what is left of it does not count.
fn restored(db: &Db, ino: Ino, left: &RecordedTail) -> Result<Option<RestoredTail>> {
    let needed = nodes::find(db, ino)?.map_or(0, |attr| attr.size.saturating_sub(HEAD));
    let is_unsealed = |file: std::fs::Metadata| !is_sealed(&file);
    if needed == 0 || !db.tails.metadata(ino)?.is_some_and(is_unsealed) {
        return Ok(None);
    }
    let rows = (length(db, ino)?.unwrap_or(0), rows(db, ino)?);
    let restored = TailSums::left(&db.tails.file(ino)?, needed, left, rows);
    restored.map(Some).map_err(|error| StoreError::storage(Errno::IO, error.to_string()))
}

/// The tails of which a changed byte may not be found.
pub(super) fn unknown(db: &Db) -> Result<Vec<Ino>> {
    let mut unknown = db.tails.unsealed()?;
    unknown.retain(|ino| db.tails.known_sums(*ino).is_none_or(|sums| sums.has_unknown()));
    Ok(unknown)
}

/// The length of a tail when its rows were written.
fn length(db: &Db, ino: Ino) -> Result<Option<u64>> {
    db.row("SELECT length FROM tail WHERE ino = ?1", [signed(ino)], |row| row.get(0).map(unsigned))
}

fn rows(db: &Db, ino: Ino) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut statement = db.statement("SELECT id, sums FROM tail_sum WHERE id >= ?1 AND id < ?2")?;
    let rows = statement.query_map([id(ino, 0), id(ino + 1, 0)], |row| {
        let group = unsigned(row.get(0)?) & ((1 << GROUP_BITS) - 1);
        Ok((group, row.get(1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Gives every tail without checksums its own. `sync` makes tails and tables durable.
pub(super) fn seal(db: &Db, sync: impl Fn() -> Result<()>) -> Result<()> {
    let mut files = Vec::new();
    for ino in db.tails.unsealed()? {
        let (sums, file) = (of(db, ino)?, db.tails.file(ino)?);
        // A tail that cannot be read now has no checksums; reading it fails, too.
        match sums.complete(&file) {
            Ok(()) => files.push((ino, sums, file)),
            Err(error) => {
                tracing::warn!(ino, %error, "no checksums for content past the first 256 KiB");
            }
        }
    }
    if files.is_empty() && !db.tails.are_any() {
        return Ok(());
    }
    // The bytes must be durable before their checksums are.
    sync()?;
    db.transaction(|db| {
        clear_gone(db)?;
        files.iter().try_for_each(|(ino, sums, _)| write(db, *ino, sums))
    })?;
    sync()?;
    for (_, sums, file) in &files {
        let sealed = sums.seal(file);
        sealed.map_err(|error| StoreError::storage(Errno::IO, error.to_string()))?;
    }
    Ok(())
}

/// Deletes the checksums of files that are gone.
pub(super) fn clear_gone(db: &Db) -> Result<()> {
    for delete in [
        "DELETE FROM tail WHERE ino NOT IN (SELECT ino FROM inode)",
        "DELETE FROM tail_sum WHERE id >> 24 NOT IN (SELECT ino FROM tail)",
    ] {
        db.execute(delete, ())?;
    }
    Ok(())
}

/// Replaces the rows of a tail.
fn write(db: &Db, ino: Ino, sums: &TailSums) -> Result<()> {
    let (length, rows) = sums.rows();
    let needed = nodes::find(db, ino)?.map_or(0, |attr| attr.size.saturating_sub(HEAD));
    db.execute(
        "INSERT INTO tail (ino, length, synced, is_cut) VALUES (?1, ?2, ?3, 0)
         ON CONFLICT (ino) DO UPDATE
         SET length = excluded.length, synced = max(excluded.synced, min(synced, ?4)), is_cut = 0",
        // Synced bytes that the disk has lost stay an error.
        [signed(ino), signed(length), signed(length.min(needed)), signed(needed)],
    )?;
    db.execute("DELETE FROM tail_sum WHERE id >= ?1 AND id < ?2", [id(ino, 0), id(ino + 1, 0)])?;
    for (group, bytes) in rows {
        db.execute("INSERT INTO tail_sum (id, sums) VALUES (?1, ?2)", params![id(ino, group), bytes])?;
    }
    Ok(())
}
