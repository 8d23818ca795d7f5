//! File content in chunks.
//!
//! A chunk row holds as many bytes as have been written of it; what is missing, at its end or as a
//! whole, reads as zeros. Rows never reach past the end of the file.

use rusqlite::params;

use super::db::Db;
use super::nodes::{self, signed, unsigned};
use crate::store::{Attr, Caller, Errno, Ino, Result};

/// Bytes in a chunk.
pub(super) const CHUNK: u64 = 32 * 1024;

/// Bits of a chunk id that count the chunks of one file.
pub(super) const INDEX_BITS: u32 = 24;

/// The largest file in bytes: 512 GiB.
pub(super) const SIZE_MAX: u64 = CHUNK << INDEX_BITS;

/// The largest inode number whose chunk ids fit into SQLite's integers.
pub(super) const INO_MAX: Ino = (1 << (63 - INDEX_BITS)) - 1;

fn id(ino: Ino, index: u64) -> i64 {
    signed((ino << INDEX_BITS) | index)
}

fn index(id: i64) -> u64 {
    unsigned(id) & ((1 << INDEX_BITS) - 1)
}

/// What a chunk of so many bytes occupies, in units of 512 bytes and whole pages.
fn blocks(length: u64) -> u64 {
    length.div_ceil(4096) * 8
}

/// A part of one chunk.
struct Piece {
    index: u64,
    within: usize,
    length: usize,
}

/// Cuts a range at chunk borders.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = Piece> {
    let end = offset + length;
    (offset / CHUNK..end.div_ceil(CHUNK)).map(move |index| {
        let start = offset.max(index * CHUNK);
        let stop = end.min((index + 1) * CHUNK);
        Piece {
            index,
            within: (start % CHUNK) as usize,
            length: (stop - start) as usize,
        }
    })
}

/// Appends the bytes at `offset` to `out`, as far as the file goes.
pub(super) fn read(db: &Db, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
    let attr = nodes::get_file(db, ino)?;
    let length = attr.size.saturating_sub(offset).min(size as u64);
    if length == 0 {
        return Ok(());
    }
    let start = out.len();
    out.resize(start + length as usize, 0);
    let out = &mut out[start..];
    let (first, last) = (offset / CHUNK, (offset + length - 1) / CHUNK);
    let mut statement =
        db.statement("SELECT id, bytes FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id")?;
    let mut rows = statement.query([id(ino, first), id(ino, last)])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let chunk_start = index(row.get(0)?) * CHUNK;
        let chunk_end = chunk_start + bytes.len() as u64;
        let (from, to) = (chunk_start.max(offset), chunk_end.min(offset + length));
        if from < to {
            out[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                &bytes[(from - chunk_start) as usize..(to - chunk_start) as usize],
            );
        }
    }
    Ok(())
}

/// Writes `data` at `offset` and stamps the inode.
pub(super) fn write(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let mut attr = nodes::get_file(db, ino)?;
    let end = offset + data.len() as u64;
    if end > SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    let mut rest = data;
    for piece in pieces(offset, data.len() as u64) {
        let (bytes, after) = rest.split_at(piece.length);
        rest = after;
        // Past the old end there is no row to merge with.
        let is_new = piece.index * CHUNK >= attr.size;
        let old = if is_new {
            None
        } else {
            chunk(db, ino, piece.index)?
        };
        let old_length = old.as_ref().map_or(0, |old| old.len() as u64);
        let new_length = match old {
            Some(mut old) if piece.within > 0 || piece.length < old.len() => {
                let stop = piece.within + piece.length;
                if old.len() < stop {
                    old.resize(stop, 0);
                }
                old[piece.within..stop].copy_from_slice(bytes);
                put(db, ino, piece.index, &old)?
            }
            _ if piece.within > 0 => {
                let mut padded = vec![0; piece.within];
                padded.extend_from_slice(bytes);
                put(db, ino, piece.index, &padded)?
            }
            _ => put(db, ino, piece.index, bytes)?,
        };
        attr.blocks += blocks(new_length);
        attr.blocks -= blocks(old_length).min(attr.blocks);
    }
    attr.size = attr.size.max(end);
    attr.mtime = caller.now;
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

/// Cuts or extends the content to `size` and notes it in `attr`, which the caller writes back.
pub(super) fn truncate(db: &Db, attr: &mut Attr, size: u64) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    if size < attr.size {
        let first_gone = size.div_ceil(CHUNK);
        delete(db, attr.ino, first_gone, attr.size / CHUNK)?;
        if !size.is_multiple_of(CHUNK) {
            db.execute(
                "UPDATE chunk SET bytes = substr(bytes, 1, ?2) WHERE id = ?1 AND length(bytes) > ?2",
                params![id(attr.ino, size / CHUNK), signed(size % CHUNK)],
            )?;
        }
        attr.blocks = if size == 0 {
            0
        } else {
            count_blocks(db, attr.ino)?
        };
    }
    attr.size = size;
    Ok(())
}

/// Makes a range read as zeros, and notes what that frees in `attr`, which the caller writes back.
pub(super) fn punch(db: &Db, attr: &mut Attr, offset: u64, length: u64) -> Result<()> {
    let end = (offset + length).min(attr.size);
    if offset >= end {
        return Ok(());
    }
    // Whole chunks go at once, however many: a range may be larger than all that is stored.
    let (first_whole, end_whole) = (offset.div_ceil(CHUNK), end / CHUNK);
    if first_whole < end_whole {
        delete(db, attr.ino, first_whole, end_whole - 1)?;
    }
    let mut edges = vec![offset / CHUNK, (end - 1) / CHUNK];
    edges.dedup();
    for index in edges {
        let start = index * CHUNK;
        let Some(mut bytes) = chunk(db, attr.ino, index)? else {
            continue;
        };
        let stop = (end - start).min(bytes.len() as u64) as usize;
        let within = offset.saturating_sub(start) as usize;
        if within == 0 && stop == bytes.len() {
            delete(db, attr.ino, index, index)?;
        } else if let Some(range) = bytes.get_mut(within..stop) {
            range.fill(0);
            put(db, attr.ino, index, &bytes)?;
        }
    }
    attr.blocks = count_blocks(db, attr.ino)?;
    Ok(())
}

/// The first byte at or after `offset`, before the end of the file, that lies in a chunk.
pub(super) fn next_data(db: &Db, attr: &Attr, offset: u64) -> Result<Option<u64>> {
    let found = db.row(
        "SELECT id FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT 1",
        [
            id(attr.ino, offset / CHUNK),
            id(attr.ino, attr.size / CHUNK),
        ],
        |row| row.get(0),
    )?;
    let at = found.map(|id| offset.max(index(id) * CHUNK));
    Ok(at.filter(|at| *at < attr.size))
}

/// The first byte at or after `offset` that lies in no chunk; at the latest the end of the file.
pub(super) fn next_hole(db: &Db, attr: &Attr, offset: u64) -> Result<u64> {
    let first = offset / CHUNK;
    let mut statement =
        db.statement("SELECT id FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id")?;
    let mut rows = statement.query([id(attr.ino, first), id(attr.ino, attr.size / CHUNK)])?;
    let mut hole = first;
    while let Some(row) = rows.next()? {
        if index(row.get(0)?) != hole {
            break;
        }
        hole += 1;
    }
    Ok(offset.max(hole * CHUNK).min(attr.size))
}

/// Deletes all content of an inode that is going away.
pub(super) fn clear(db: &Db, ino: Ino) -> Result<()> {
    delete(db, ino, 0, (1 << INDEX_BITS) - 1)
}

fn chunk(db: &Db, ino: Ino, index: u64) -> Result<Option<Vec<u8>>> {
    db.row(
        "SELECT bytes FROM chunk WHERE id = ?1",
        [id(ino, index)],
        |row| row.get(0),
    )
}

fn put(db: &Db, ino: Ino, index: u64, bytes: &[u8]) -> Result<u64> {
    db.execute(
        "INSERT INTO chunk (id, bytes) VALUES (?1, ?2)
         ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes",
        params![id(ino, index), bytes],
    )?;
    Ok(bytes.len() as u64)
}

fn delete(db: &Db, ino: Ino, first: u64, last: u64) -> Result<()> {
    db.execute(
        "DELETE FROM chunk WHERE id >= ?1 AND id <= ?2",
        [id(ino, first), id(ino, last)],
    )?;
    Ok(())
}

fn count_blocks(db: &Db, ino: Ino) -> Result<u64> {
    let counted = db.row(
        "SELECT coalesce(sum((length(bytes) + 4095) / 4096 * 8), 0) FROM chunk WHERE id >= ?1 AND id <= ?2",
        [id(ino, 0), id(ino, (1 << INDEX_BITS) - 1)],
        |row| row.get(0),
    )?;
    Ok(unsigned(counted.unwrap_or(0)))
}
