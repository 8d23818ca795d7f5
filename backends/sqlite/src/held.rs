//! Calls under a lock that the caller already holds.

use fuse::store::{Allocation, Attr, Caller, Change, Errno, Ino, RenameMode, Result, Seek};
use parking_lot::MutexGuard;

use crate::HEAD;
use crate::db::Db;
use crate::record::{PAYLOAD_LIMIT, Record, allocate, set_attr, write_end};
use crate::redo::Redo;
use crate::{SqliteStore, content, nodes, record, tail_rows};

/// The longest write that can wait for its commit: the kernel sends 1 MiB at most.
const LONG_MAX: usize = 1 << 20;

impl SqliteStore {
    /// As [`Store::setattr`](fuse::store::Store::setattr), with the lock.
    pub fn setattr_held(&self, db: &Db, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let record = Record::SetAttr { caller: *caller, ino, change: *change };
        let (old_size, attr) = db.change(&record, |db| set_attr(db, caller, ino, change))?;
        cut_shorter(db, ino, old_size, attr.size);
        Ok(attr)
    }

    /// As [`Store::rename`](fuse::store::Store::rename), with the lock.
    pub fn rename_held(
        &self,
        db: &Db,
        caller: &Caller,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        if mode.leaves_whiteout() {
            let ino = self.new_ino()?;
            let record = Record::Whiteout { caller: *caller, from, from_name, to, to_name, ino };
            let work = |db: &Db| record::whiteout(db, caller, (from, from_name), (to, to_name), ino, mode);
            return db.change(&record, work);
        }
        let record = Record::Rename { caller: *caller, from, from_name, to, to_name, mode };
        let work = |db: &Db| record::rename(db, caller, (from, from_name), (to, to_name), mode);
        db.change(&record, work)
    }

    /// Gives a file other content, and does `also` in the same transaction: all of it, or nothing, except in the
    /// tail.
    pub fn replace_held(
        &self,
        db: &Db,
        caller: &Caller,
        ino: Ino,
        bytes: &[u8],
        also: impl FnOnce(&Db) -> Result<()>,
    ) -> Result<()> {
        let old_size = db.transaction(|db| {
            let old_size = nodes::get_file(db, ino)?.size;
            content::write(db, caller, ino, 0, bytes)?;
            let mut attr = nodes::get_file(db, ino)?;
            content::truncate(db, &mut attr, bytes.len() as u64)?;
            nodes::update(db, &attr)?;
            also(db)?;
            Ok(old_size)
        })?;
        cut_shorter(db, ino, old_size, bytes.len() as u64);
        Ok(())
    }

    /// As [`Store::setattr`](fuse::store::Store::setattr), and does `also` in the same transaction.
    pub fn setattr_with(
        &self,
        db: &Db,
        caller: &Caller,
        ino: Ino,
        change: &Change,
        also: impl FnOnce(&Db) -> Result<()>,
    ) -> Result<Attr> {
        let (old_size, attr) = db.transaction(|db| {
            also(db)?;
            set_attr(db, caller, ino, change)
        })?;
        cut_shorter(db, ino, old_size, attr.size);
        Ok(attr)
    }

    /// Lets go of the lock before it reads from a tail.
    pub fn read_held(
        &self,
        db: MutexGuard<'_, Db>,
        ino: Ino,
        offset: u64,
        size: usize,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let in_tail = content::read(&db, ino, offset, size, out)?;
        if in_tail > 0 {
            // Other requests go on meanwhile, except writes to this tail: the read is of one moment.
            let (_still, sums) = (self.tails.hold_still(ino), tail_rows::of(&db, ino)?);
            drop(db);
            let start = out.len() - in_tail;
            let offset = content::tail_length(offset);
            self.tails.read(&sums, ino, offset, &mut out[start..])?;
        }
        Ok(())
    }
}

/// Discards the end of the tail of a file, if a change that was made has made it shorter.
fn cut_shorter(db: &Db, ino: Ino, old_size: u64, size: u64) {
    let tail = content::tail_length(size);
    if tail < content::tail_length(old_size) {
        db.discard_end(ino, tail);
    }
}

/// Appends up to `size` bytes at `offset` to `out`, of one moment with the lock.
pub fn read(db: &Db, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
    let in_tail = content::read(db, ino, offset, size, out)?;
    if in_tail > 0 {
        let (start, sums) = (out.len() - in_tail, tail_rows::of(db, ino)?);
        let offset = content::tail_length(offset);
        db.tails.read(&sums, ino, offset, &mut out[start..])?;
    }
    Ok(())
}

/// Writes `data` at `offset`.
pub fn write(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let record = write_record(db, caller, ino, offset, data)?;
    db.change(&record, |db| content::write(db, caller, ino, offset, data))
}

/// Whether [`write`] can wait for its commit.
pub(super) fn can_write_wait(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<bool> {
    write_record(db, caller, ino, offset, data)?.can_wait(db)
}

fn write_record<'a>(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &'a [u8]) -> Result<Record<'a>> {
    let (caller, end) = (*caller, offset.saturating_add(data.len() as u64));
    let (head, tail) = data.split_at(content::in_head(offset, data.len() as u64));
    let is_long = data.len() > PAYLOAD_LIMIT || !head.is_empty() && !tail.is_empty();
    // A longer one is committed at once.
    let can_long_wait = |redo: &Redo| data.len() <= LONG_MAX && redo.can_long_wait(head.len());
    if is_long && !db.redo.borrow().as_ref().is_some_and(can_long_wait) {
        return Ok(Record::Write { caller, ino, offset, data });
    }
    Ok(match is_long {
        _ if content::is_in_tail(db, ino, offset)? => Record::TailWritten { caller, ino, end },
        true if !head.is_empty() => Record::LongWrite { caller, ino, offset, data: head, end },
        _ => Record::Write { caller, ino, offset, data },
    })
}

/// Writes to the end of a file; where that was.
pub fn append(db: &Db, caller: &Caller, ino: Ino, data: &[u8]) -> Result<u64> {
    let end = nodes::get_file(db, ino)?.size;
    if end >= HEAD {
        write(db, caller, ino, end, data)?;
        return Ok(end);
    }
    let record = Record::Append { caller: *caller, ino, data };
    db.change(&record, |db| write_end(db, caller, ino, data))
}

/// As [`Store::fallocate`](fuse::store::Store::fallocate).
pub fn fallocate(db: &Db, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
    let record = Record::Fallocate { caller: *caller, ino, how, offset, length };
    db.change(&record, |db| allocate(db, caller, ino, how, offset, length))
}

/// As [`Store::seek`](fuse::store::Store::seek).
pub fn seek(db: &Db, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
    let attr = nodes::get_file(db, ino)?;
    if offset >= attr.size {
        return Err(Errno::NXIO.into());
    }
    match what {
        Seek::Hole => content::next_hole(db, &attr, offset),
        Seek::Data => content::next_data(db, &attr, offset)?.ok_or_else(|| Errno::NXIO.into()),
    }
}
