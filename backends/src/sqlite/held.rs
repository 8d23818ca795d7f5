//! Calls under a lock that the caller already holds.

use std::sync::MutexGuard;

use super::SqliteStore;
use super::content;
use super::db::Db;
use super::nodes;
use super::record::Record;
use crate::store::{Allocate, Attr, Caller, Change, Errno, Ino, Kind, Result, Seek};

impl SqliteStore {
    pub(crate) fn setattr_held(
        &self,
        db: &Db,
        caller: &Caller,
        ino: Ino,
        change: &Change,
    ) -> Result<Attr> {
        let record = Record::SetAttr {
            caller: *caller,
            ino,
            change: *change,
        };
        let (old_size, attr) = db.change(&record, |db| set_attr(db, caller, ino, change))?;
        let tail = content::tail_length(attr.size);
        if attr.kind == Kind::File && tail < content::tail_length(old_size) && self.is_settled(ino)
        {
            // Before the next write to that range.
            self.tails.cut(ino, tail);
        }
        Ok(attr)
    }

    /// Gives a file other content, and does `also` in the same transaction: all of it, or nothing, but for what is in the
    /// tail.
    pub(crate) fn replace_held(
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
        let tail = content::tail_length(bytes.len() as u64);
        if tail < content::tail_length(old_size) && self.is_settled(ino) {
            // Before the next write to that range.
            self.tails.cut(ino, tail);
        }
        Ok(())
    }

    /// As [`Store::setattr`](crate::store::Store::setattr), and does `also` in the same transaction.
    pub(crate) fn setattr_with(
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
        let tail = content::tail_length(attr.size);
        if tail < content::tail_length(old_size) {
            self.cut_tail(ino, tail);
        }
        Ok(attr)
    }

    /// Cuts a tail that a committed change has made shorter: before the next write to that range.
    pub(crate) fn cut_tail(&self, ino: Ino, length: u64) {
        if self.is_settled(ino) {
            self.tails.cut(ino, length);
        }
    }

    /// Lets go of the lock before it reads from a tail.
    pub(crate) fn read_held(
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
            let _still = self.tails.hold_still(ino);
            drop(db);
            let start = out.len() - in_tail;
            let offset = content::tail_length(offset);
            self.tails.read(ino, offset, &mut out[start..])?;
        }
        Ok(())
    }
}

/// Appends up to `size` bytes at `offset` to `out`, of one moment with the lock.
pub(crate) fn read(db: &Db, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
    let in_tail = content::read(db, ino, offset, size, out)?;
    if in_tail > 0 {
        let start = out.len() - in_tail;
        db.tails
            .read(ino, content::tail_length(offset), &mut out[start..])?;
    }
    Ok(())
}

/// Changes attributes; the size before, and the attributes after.
pub(super) fn set_attr(db: &Db, caller: &Caller, ino: Ino, change: &Change) -> Result<(u64, Attr)> {
    let mut attr = match change.size {
        Some(_) => nodes::get_file(db, ino)?,
        None => nodes::get(db, ino)?,
    };
    let old_size = attr.size;
    if let Some(size) = change.size {
        content::truncate(db, &mut attr, size)?;
    }
    change.apply(&mut attr, caller.now);
    nodes::update(db, &attr)?;
    Ok((old_size, attr))
}

pub(crate) fn write(db: &Db, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
    let record = Record::Write {
        caller: *caller,
        ino,
        offset,
        data,
    };
    db.change(&record, |db| content::write(db, caller, ino, offset, data))
}

/// Writes to the end of a file; where that was.
pub(crate) fn append(db: &Db, caller: &Caller, ino: Ino, data: &[u8]) -> Result<u64> {
    let record = Record::Append {
        caller: *caller,
        ino,
        data,
    };
    db.change(&record, |db| write_end(db, caller, ino, data))
}

pub(super) fn write_end(db: &Db, caller: &Caller, ino: Ino, data: &[u8]) -> Result<u64> {
    let end = nodes::get_file(db, ino)?.size;
    content::write(db, caller, ino, end, data)?;
    Ok(end)
}

pub(crate) fn fallocate(
    db: &Db,
    caller: &Caller,
    ino: Ino,
    how: Allocate,
    offset: u64,
    length: u64,
) -> Result<()> {
    let record = Record::Fallocate {
        caller: *caller,
        ino,
        how,
        offset,
        length,
    };
    db.change(&record, |db| allocate(db, caller, ino, how, offset, length))
}

pub(super) fn allocate(
    db: &Db,
    caller: &Caller,
    ino: Ino,
    how: Allocate,
    offset: u64,
    length: u64,
) -> Result<()> {
    let mut attr = nodes::get_file(db, ino)?;
    let end = offset + length;
    if end > content::SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    let keep_size = match how {
        Allocate::Reserve { keep_size } => keep_size,
        Allocate::PunchHole => {
            content::punch(db, &mut attr, offset, length)?;
            true
        }
        Allocate::Zero { keep_size } => {
            content::punch(db, &mut attr, offset, length)?;
            keep_size
        }
    };
    if !keep_size && end > attr.size {
        content::truncate(db, &mut attr, end)?;
    }
    attr.mtime = caller.now;
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

pub(crate) fn seek(db: &Db, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
    let attr = nodes::get_file(db, ino)?;
    if offset >= attr.size {
        return Err(Errno::NXIO.into());
    }
    match what {
        Seek::Hole => content::next_hole(db, &attr, offset),
        Seek::Data => content::next_data(db, &attr, offset)?.ok_or_else(|| Errno::NXIO.into()),
    }
}
