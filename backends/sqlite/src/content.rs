//! File content: the first 256 KiB in chunks, the rest in a tail (see [`super::tails`]).
//!
//! A chunk row may be short or missing: the rest reads as zeros. Every row but the first begins before the end of the
//! file. Bytes of a row past the end are never read, and are cut off before the file grows over them. So a file that an
//! editor empties and writes again overwrites its rows in place, and only the pages that differ get into the log.

use std::os::unix::fs::FileExt;

use fuse::store::{Attr, Caller, Errno, Ino, Result, StoreError};
use rusqlite::{Row, params};

use crate::HEAD;
use crate::db::Db;
use crate::nodes::{self, signed, unsigned};
use crate::tails::blocks;
use crate::{synced_rows, tail_rows, tail_sums};

/// Bytes in a chunk.
pub(crate) const CHUNK: u64 = 32 * 1024;

/// Bits of a chunk id that count the chunks of one file.
pub(crate) const INDEX_BITS: u32 = 24;

/// The largest number of a chunk.
const INDEX_MAX: u64 = (1 << INDEX_BITS) - 1;

/// The largest file in bytes: 512 GiB.
pub(crate) const SIZE_MAX: u64 = CHUNK << INDEX_BITS;

/// Chunks of a file with a tail.
pub(crate) const HEAD_CHUNKS: u64 = HEAD / CHUNK;

/// The largest inode number whose chunk ids fit into SQLite's integers.
pub(crate) const INO_MAX: Ino = (1 << (63 - INDEX_BITS)) - 1;

fn id(ino: Ino, index: u64) -> i64 {
    signed((ino << INDEX_BITS) | index)
}

fn index(id: i64) -> u64 {
    unsigned(id) & INDEX_MAX
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
    // An empty range has no pieces, even if it begins inside a chunk.
    let last = if length > 0 { end.div_ceil(CHUNK) } else { 0 };
    (offset / CHUNK..last).map(move |index| {
        let start = offset.max(index * CHUNK);
        let stop = end.min((index + 1) * CHUNK);
        Piece { index, within: (start % CHUNK) as usize, length: (stop - start) as usize }
    })
}

/// How much of a file of so many bytes is in its tail.
pub fn tail_length(size: u64) -> u64 {
    size.saturating_sub(HEAD)
}

/// How many of `length` bytes at `offset` are in the head.
pub(super) fn in_head(offset: u64, length: u64) -> usize {
    HEAD.saturating_sub(offset).min(length) as usize
}

/// Appends the bytes from `offset` to the end of the file, at most `length`, to `out`. Returns how many of them, at the
/// end, are zeros that the caller must read from the tail.
pub fn read(db: &Db, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<usize> {
    let attr = nodes::get_file(db, ino)?;
    let all = attr.size.saturating_sub(offset).min(size as u64) as usize;
    let head = in_head(offset, all as u64);
    let start = out.len();
    out.resize(start + all, 0);
    if head > 0 {
        read_head(db, ino, offset, &mut out[start..start + head])?;
    }
    Ok(all - head)
}

fn read_head(db: &Db, ino: Ino, offset: u64, out: &mut [u8]) -> Result<()> {
    let length = out.len() as u64;
    let (first, last) = (offset / CHUNK, (offset + length - 1) / CHUNK);
    let mut copy = |index: u64, bytes: &[u8]| {
        let chunk_start = index * CHUNK;
        let chunk_end = chunk_start + bytes.len() as u64;
        let (from, to) = (chunk_start.max(offset), chunk_end.min(offset + length));
        if from < to {
            out[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - chunk_start) as usize..(to - chunk_start) as usize]);
        }
    };
    let mut is_in_rows = false;
    for index in first..=last {
        let is_deferred = db.deferred.chunk(id(ino, index), |bytes| copy(index, bytes));
        is_in_rows |= is_deferred.is_none();
    }
    if !is_in_rows {
        return Ok(());
    }
    let mut statement = db.statement("SELECT id, sum, bytes FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id")?;
    let mut rows = statement.query([id(ino, first), id(ino, last)])?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        if db.deferred.chunk(id, |_| ()).is_none() {
            copy(index(id), verified(row)?);
        }
    }
    Ok(())
}

/// Bytes up to which a row is as long as its content; longer ones are whole pages long, so that they
/// mostly keep their length, and with it their place, when their content's changes a little.
const EXACT_MAX: u64 = 2048;

/// How long the row for so many bytes of content is.
fn padded(length: u64) -> u64 {
    if length <= EXACT_MAX { length } else { length.next_multiple_of(4096) }
}

/// Writes `data` at `offset` and stamps the inode.
pub fn write(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let mut attr = nodes::get_file(db, ino)?;
    let end = offset + data.len() as u64;
    if end > SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    if offset > attr.size {
        grow(db, &mut attr, offset)?;
    }
    let (mut rest, tail) = data.split_at(in_head(offset, data.len() as u64));
    if !tail.is_empty() {
        write_tail(db, ino, tail_length(attr.size), tail_length(offset), tail)?;
    }
    for piece in pieces(offset, rest.len() as u64) {
        let (bytes, after) = rest.split_at(piece.length);
        rest = after;
        write_piece(db, &mut attr, &piece, bytes)?;
    }
    attr.size = attr.size.max(end);
    attr.mtime = caller.now;
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

/// Whether a write at `offset` changes a tail alone, and leaves no hole before it.
pub(super) fn is_in_tail(db: &Db, ino: Ino, offset: u64) -> Result<bool> {
    Ok(offset >= HEAD && offset <= nodes::get_file(db, ino)?.size)
}

/// Stamps an inode whose tail was written up to `end`.
pub(super) fn stamp(db: &Db, caller: &Caller, ino: Ino, end: u64) -> Result<()> {
    let mut attr = nodes::get_file(db, ino)?;
    attr.size = attr.size.max(end);
    attr.mtime = caller.now;
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

/// Writes at `offset` of a tail that is `length` bytes long.
pub fn write_tail(db: &Db, ino: Ino, length: u64, offset: u64, bytes: &[u8]) -> Result<()> {
    db.claim_end(ino, offset + bytes.len() as u64);
    let sums = tail_rows::of(db, ino)?;
    db.tails.write(&sums, ino, length, offset, bytes)
}

/// How many bytes the file of the tail of an inode has; 0 where there is none.
pub fn held_tail(db: &Db, ino: Ino) -> Result<u64> {
    Ok(db.tails.metadata(ino)?.map_or(0, |file| file.len()))
}

/// Makes the file of a tail `length` bytes long, with a hole at its end: the caller knows what belongs there.
pub fn lengthen_tail(db: &Db, ino: Ino, length: u64) -> Result<()> {
    let sums = tail_rows::of(db, ino)?;
    db.tails.lengthen(&sums, ino, length)
}

/// Cuts a file's end off its tail, and leaves its size: reads of the end then fail.
pub fn cut_off(db: &Db, ino: Ino, size: u64) -> Result<()> {
    if held_tail(db, ino)? <= tail_length(size) {
        return Ok(());
    }
    let cut = db.tails.file(ino)?.set_len(tail_length(size));
    cut.map_err(|error| StoreError::storage(Errno::IO, error))
}

/// Notes, in the transaction that depends on it, that so much of a tail is synced.
pub fn note_synced(db: &Db, ino: Ino, length: u64) -> Result<()> {
    synced_rows::set(db, &[(ino, length)])
}

/// The `length` bytes at `offset` that a power loss has left of a file, whatever their checksums; `None` if some are missing or
/// damaged, and an empty list if all lie in a hole.
pub fn read_left(db: &Db, ino: Ino, offset: u64, length: u64) -> Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; length as usize];
    let head = in_head(offset, length);
    if head > 0 && read_head(db, ino, offset, &mut bytes[..head]).is_err() {
        return Ok(None);
    }
    let (start, end) = (tail_length(offset), tail_length(offset + length));
    if start == end {
        return Ok(Some(bytes));
    }
    let Ok(file) = db.tails.file(ino) else {
        return Ok(None);
    };
    let read = || -> std::io::Result<Option<Vec<u8>>> {
        if file.metadata()?.len() < end {
            return Ok(None);
        }
        if head == 0 && tail_sums::next_data(&file, start)?.is_none_or(|data| data >= end) {
            return Ok(Some(Vec::new()));
        }
        file.read_exact_at(&mut bytes[head..], start)?;
        Ok(Some(bytes))
    };
    read().map_err(|error| StoreError::storage(Errno::IO, error))
}

/// Writes the part in one chunk, and notes in `attr` the blocks that it allocates.
fn write_piece(db: &Db, attr: &mut Attr, piece: &Piece, bytes: &[u8]) -> Result<()> {
    let start = piece.index * CHUNK;
    let stop = piece.within + piece.length;
    // Past the end there is no row, but for leftovers in the first.
    let may_have_row = start < attr.size || piece.index == 0;
    let valid = attr.size.saturating_sub(start).min(CHUNK) as usize;
    let is_whole = piece.within == 0 && piece.length >= valid;
    let (old_blocks, mut content) = if !may_have_row {
        (0, Vec::new())
    } else if is_whole && attr.size <= CHUNK {
        // The only row there is.
        (attr.blocks, Vec::new())
    } else if is_whole {
        let length = row_length(db, attr.ino, piece.index)?;
        (blocks(length), Vec::new())
    } else {
        let old = match db.deferred.take_chunk(id(attr.ino, piece.index)) {
            Some(old) => old,
            None => chunk(db, attr.ino, piece.index)?.unwrap_or_default(),
        };
        (blocks(old.len() as u64), old)
    };
    content.truncate(valid);
    let length = padded(valid.max(stop) as u64).min(CHUNK);
    content.resize(length as usize, 0);
    content[piece.within..stop].copy_from_slice(bytes);
    put(db, attr.ino, piece.index, content)?;
    if start < attr.size {
        attr.blocks -= old_blocks.min(attr.blocks);
    }
    attr.blocks += blocks(length);
    Ok(())
}

/// Cuts or extends the content to `size` and notes it in `attr`, which the caller writes back.
pub fn truncate(db: &Db, attr: &mut Attr, size: u64) -> Result<()> {
    if size > SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    if size < attr.size {
        if tail_length(attr.size) > 0 {
            synced_rows::cut(db, attr.ino, tail_length(size))?;
        }
        let first_gone = size.div_ceil(CHUNK).max(1);
        let last = (attr.size.min(HEAD) - 1) / CHUNK;
        let is_cut = first_gone <= last;
        if is_cut {
            delete(db, attr.ino, first_gone, last)?;
        }
        if size == 0 {
            attr.blocks = 0;
        } else if is_cut {
            attr.blocks = count_blocks(db, attr.ino)?;
        }
    } else if size > attr.size {
        grow(db, attr, size)?;
    }
    attr.size = size;
    Ok(())
}

/// Makes the range from the end of the file to `size` a hole: cuts off leftovers there.
fn grow(db: &Db, attr: &mut Attr, size: u64) -> Result<()> {
    let (last, valid) = (attr.size / CHUNK, attr.size % CHUNK);
    if tail_length(size) > 0 {
        db.claim_end(attr.ino, tail_length(size));
        let (length, sums) = (tail_length(attr.size), tail_rows::of(db, attr.ino)?);
        db.tails.extend(&sums, attr.ino, length, tail_length(size))?;
    }
    if attr.size == 0 {
        delete(db, attr.ino, 0, 0)?;
    } else if attr.size < HEAD
        && valid > 0
        && row_length(db, attr.ino, last)? > valid
        && let Some(mut bytes) = chunk(db, attr.ino, last)?
    {
        bytes.truncate(valid as usize);
        put(db, attr.ino, last, bytes)?;
        attr.blocks = count_blocks(db, attr.ino)?;
    }
    Ok(())
}

/// Makes a range read as zeros, and notes the freed blocks in `attr`, which the caller writes back.
pub fn punch(db: &Db, attr: &mut Attr, offset: u64, length: u64) -> Result<()> {
    let end = (offset + length).min(attr.size);
    if tail_length(end) > tail_length(offset) {
        let (start, sums) = (tail_length(offset), tail_rows::of(db, attr.ino)?);
        let length = tail_length(end) - start;
        db.tails.punch(&sums, attr.ino, start, length)?;
    }
    let end = end.min(HEAD);
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
        let valid = (attr.size - start).min(bytes.len() as u64) as usize;
        let stop = (end - start).min(valid as u64) as usize;
        let within = offset.saturating_sub(start) as usize;
        if within == 0 && stop == valid {
            delete(db, attr.ino, index, index)?;
        } else if let Some(range) = bytes.get_mut(within..stop) {
            range.fill(0);
            put(db, attr.ino, index, bytes)?;
        }
    }
    attr.blocks = count_blocks(db, attr.ino)?;
    Ok(())
}

/// The first byte at or after `offset`, before the end of the file, that lies in a chunk.
pub(crate) fn next_data(db: &Db, attr: &Attr, offset: u64) -> Result<Option<u64>> {
    write_chunks(db)?;
    let found = db.row(
        "SELECT id FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id LIMIT 1",
        [id(attr.ino, offset / CHUNK), id(attr.ino, attr.size / CHUNK)],
        |row| row.get(0),
    )?;
    let at = match found {
        Some(id) => Some(offset.max(index(id) * CHUNK)),
        None if tail_length(attr.size) > 0 => {
            let (length, sums) = (tail_length(attr.size), tail_rows::of(db, attr.ino)?);
            let at = tail_length(offset);
            let found = db.tails.next_data(&sums, attr.ino, length, at)?;
            found.map(|at| HEAD + at)
        }
        None => None,
    };
    Ok(at.filter(|at| *at < attr.size))
}

/// The first byte at or after `offset` that lies in no chunk; at the latest the end of the file.
pub(crate) fn next_hole(db: &Db, attr: &Attr, offset: u64) -> Result<u64> {
    write_chunks(db)?;
    let first = offset / CHUNK;
    let mut hole = first;
    let mut statement = db.statement("SELECT id FROM chunk WHERE id >= ?1 AND id <= ?2 ORDER BY id")?;
    let mut rows = statement.query([id(attr.ino, first), id(attr.ino, attr.size / CHUNK)])?;
    while let Some(row) = rows.next()? {
        if index(row.get(0)?) != hole {
            break;
        }
        hole += 1;
    }
    let mut at = offset.max(hole * CHUNK);
    if at >= HEAD && at < attr.size {
        let length = tail_length(attr.size);
        at = HEAD + db.tails.next_hole(attr.ino, length, tail_length(at))?;
    }
    Ok(at.min(attr.size))
}

/// Drops an inode's deferred content.
pub(super) fn forget(db: &Db, ino: Ino) {
    db.deferred.drop_chunks(id(ino, 0), id(ino, INDEX_MAX));
}

/// Deletes all content of the inodes from `first` to `last`, which are going away.
pub(super) fn clear(db: &Db, first: Ino, last: Ino) -> Result<()> {
    delete_rows(db, id(first, 0), id(last, INDEX_MAX))
}

/// The checksum of a row: CRC-32 of its id and its bytes, and a bit above, so that SQLite stores each in equally many
/// bytes. A row whose length changes is not overwritten in place.
pub(crate) fn checksum(id: i64, bytes: &[u8]) -> i64 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&id.to_le_bytes());
    sum.update(bytes);
    (1 << 32) | i64::from(sum.finalize())
}

/// The bytes of a row of id, checksum and bytes; an error if they are not what was written.
fn verified<'a>(row: &'a Row<'_>) -> Result<&'a [u8]> {
    let bytes = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
    // Rows that an earlier ctxbench wrote have none.
    let Some(sum) = row.get::<_, Option<i64>>(1)? else {
        return Ok(bytes);
    };
    let id = row.get(0)?;
    if sum == checksum(id, bytes) {
        return Ok(bytes);
    }
    let (ino, piece) = (unsigned(id) >> INDEX_BITS, index(id));
    let reason =
        format!("chunk {piece} of inode {ino} is damaged: wrong checksum; `ctxbench doctor --store` lists its path");
    Err(StoreError::storage(Errno::IO, reason))
}

fn chunk(db: &Db, ino: Ino, index: u64) -> Result<Option<Vec<u8>>> {
    if let Some(bytes) = db.deferred.chunk(id(ino, index), <[u8]>::to_vec) {
        return Ok(Some(bytes));
    }
    let mut statement = db.statement("SELECT id, sum, bytes FROM chunk WHERE id = ?1")?;
    let mut rows = statement.query([id(ino, index)])?;
    rows.next()?.map(|row| verified(row).map(<[u8]>::to_vec)).transpose()
}

/// How long a row is, without reading it; 0 where there is none.
fn row_length(db: &Db, ino: Ino, index: u64) -> Result<u64> {
    if let Some(length) = db.deferred.chunk(id(ino, index), <[u8]>::len) {
        return Ok(length as u64);
    }
    let length = db.row("SELECT length(bytes) FROM chunk WHERE id = ?1", [id(ino, index)], |row| row.get(0))?;
    Ok(length.map_or(0, unsigned))
}

fn put(db: &Db, ino: Ino, index: u64, bytes: Vec<u8>) -> Result<()> {
    let id = id(ino, index);
    if !db.deferred.is_on.get() {
        return put_row(db, id, &bytes);
    }
    db.deferred.put_chunk(id, bytes);
    if db.deferred.is_full() { write_chunks(db) } else { Ok(()) }
}

/// Makes rows of the chunks that changes have left to the commit.
pub(super) fn write_chunks(db: &Db) -> Result<()> {
    while let Some(id) = db.deferred.first_chunk() {
        // A read may be what asked for it, and undoes nothing: a chunk stays deferred until it is a row.
        let written = db.deferred.chunk(id, |bytes| put_row(db, id, bytes));
        written.transpose()?;
        db.deferred.take_chunk(id);
    }
    Ok(())
}

fn put_row(db: &Db, id: i64, bytes: &[u8]) -> Result<()> {
    db.execute(
        "INSERT INTO chunk (id, sum, bytes) VALUES (?1, ?2, ?3)
         ON CONFLICT (id) DO UPDATE SET sum = excluded.sum, bytes = excluded.bytes",
        params![id, checksum(id, bytes), bytes],
    )?;
    Ok(())
}

fn delete(db: &Db, ino: Ino, first: u64, last: u64) -> Result<()> {
    delete_rows(db, id(ino, first), id(ino, last))
}

fn delete_rows(db: &Db, first: i64, last: i64) -> Result<()> {
    db.deferred.drop_chunks(first, last);
    let delete = "DELETE FROM chunk WHERE id >= ?1 AND id <= ?2";
    db.execute(delete, [first, last])?;
    Ok(())
}

fn count_blocks(db: &Db, ino: Ino) -> Result<u64> {
    write_chunks(db)?;
    let counted = db.row(
        "SELECT coalesce(sum((length(bytes) + 4095) / 4096 * 8), 0) FROM chunk WHERE id >= ?1 AND id <= ?2",
        [id(ino, 0), id(ino, INDEX_MAX)],
        |row| row.get(0),
    )?;
    Ok(unsigned(counted.unwrap_or(0)))
}
