//! A change as the redo log records it, and how it is made in an open transaction.

use std::borrow::Cow;
use std::collections::HashMap;

use fuse::store::{
    Allocation, Attr, Caller, Change, Errno, Ino, Kind, NewNode, RenameMode, Result, StoreError, XattrMode,
    check_rename,
};
use serde::{Deserialize, Serialize};

use crate::HEAD;
use crate::db::Db;
use crate::redo::PAYLOAD_MAX;
use crate::{content, names, nodes, reclaim, synced_rows, xattrs};

/// The longest payload of a record that can wait, but of a long write: names and values beside it are shorter than the rest.
pub(super) const PAYLOAD_LIMIT: usize = PAYLOAD_MAX - 1024;

/// A change of one call, with all that decides its outcome. A change of this type, or of one in it, needs a new
/// [`super::DATABASE_VERSION`]: a mount may find the records of an earlier build.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Record<'a> {
    SetAttr {
        caller: Caller,
        ino: Ino,
        change: Change,
    },
    Create {
        caller: Caller,
        parent: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
        ino: Ino,
        #[serde(borrow)]
        node: NewNode<'a>,
    },
    Link {
        caller: Caller,
        ino: Ino,
        parent: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    Unlink {
        caller: Caller,
        parent: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    Rmdir {
        caller: Caller,
        parent: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    Rename {
        caller: Caller,
        from: Ino,
        #[serde(with = "serde_bytes")]
        from_name: &'a [u8],
        to: Ino,
        #[serde(with = "serde_bytes")]
        to_name: &'a [u8],
        mode: RenameMode,
    },
    Reclaim {
        ino: Ino,
    },
    Write {
        caller: Caller,
        ino: Ino,
        offset: u64,
        #[serde(with = "serde_bytes")]
        data: &'a [u8],
    },
    Append {
        caller: Caller,
        ino: Ino,
        #[serde(with = "serde_bytes")]
        data: &'a [u8],
    },
    Fallocate {
        caller: Caller,
        ino: Ino,
        how: Allocation,
        offset: u64,
        length: u64,
    },
    SetXattr {
        caller: Caller,
        ino: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
        #[serde(with = "serde_bytes")]
        value: &'a [u8],
        mode: XattrMode,
    },
    RemoveXattr {
        caller: Caller,
        ino: Ino,
        #[serde(with = "serde_bytes")]
        name: &'a [u8],
    },
    /// A change of tables that are another store's: [`Db::note`].
    Note {
        #[serde(with = "serde_bytes")]
        note: &'a [u8],
    },
    /// A rename with [`RenameMode::Whiteout`], and the inode of the whiteout.
    Whiteout {
        caller: Caller,
        from: Ino,
        #[serde(with = "serde_bytes")]
        from_name: &'a [u8],
        to: Ino,
        #[serde(with = "serde_bytes")]
        to_name: &'a [u8],
        ino: Ino,
    },
    /// A write to the tail alone, up to `end`: its bytes are in the tail. Such a record at the end needs no new version: an
    /// earlier build refuses to apply it.
    TailWritten {
        caller: Caller,
        ino: Ino,
        end: u64,
    },
    /// The tails of inodes are synced up to these lengths.
    TailsSynced {
        lengths: Cow<'a, [(Ino, u64)]>,
    },
    /// The next change replaces a file by this one, and needs so many bytes of its tail: see [`super::replacing`]. Changes nothing.
    TailNeeded {
        ino: Ino,
        length: u64,
    },
    /// A long write: `data` to the first 256 KiB of a file, and to the tail up to `end`, whose bytes are in the tail.
    LongWrite {
        caller: Caller,
        ino: Ino,
        offset: u64,
        #[serde(with = "serde_bytes")]
        data: &'a [u8],
        end: u64,
    },
}

impl Record<'_> {
    /// Whether the change frees space, or needs hardly any: it may use the reserve of a full disk.
    pub(super) fn frees(&self) -> bool {
        match self {
            Record::Unlink { .. }
            | Record::Rmdir { .. }
            | Record::Rename { .. }
            | Record::Reclaim { .. }
            | Record::RemoveXattr { .. }
            // To any size: an extension is a hole.
            | Record::SetAttr { .. }
            // Its bytes are in a plain file already.
            | Record::TailWritten { .. }
            | Record::TailsSynced { .. }
            | Record::TailNeeded { .. } => true,
            Record::Fallocate { how, .. } => *how == Allocation::PunchHole,
            Record::Write { offset, .. } => *offset >= HEAD,
            Record::Create { .. }
            | Record::Link { .. }
            | Record::Append { .. }
            | Record::SetXattr { .. }
            | Record::Note { .. }
            | Record::LongWrite { .. }
            | Record::Whiteout { .. } => false,
        }
    }

    /// Whether the change can wait for a commit: it is short, and making it again touches no tail. A tail is a plain
    /// file, and making a change of it again would undo a later one. The change does not include discarding bytes of a
    /// tail.
    pub(super) fn can_wait(&self, db: &Db) -> Result<bool> {
        let size = |ino| -> Result<u64> { Ok(nodes::find(db, ino)?.map_or(0, |attr| attr.size)) };
        let end = match self {
            Record::Write { offset, data, .. } => offset.saturating_add(data.len() as u64),
            Record::Append { ino, data, .. } => size(*ino)?.saturating_add(data.len() as u64),
            Record::SetAttr { ino, change, .. } => match change.size {
                Some(new) if new > size(*ino)? => new,
                _ => 0,
            },
            Record::Fallocate { ino, offset, length, .. } => offset.saturating_add(*length).max(size(*ino)?),
            _ => 0,
        };
        let payload = match self {
            Record::Write { data, .. } | Record::Append { data, .. } => data.len(),
            Record::Note { note } => note.len(),
            // At most 16 bytes each.
            Record::TailsSynced { lengths } => 16 * lengths.len(),
            _ => 0,
        };
        Ok(end <= HEAD && payload <= PAYLOAD_LIMIT)
    }

    /// Writes the record to `out`.
    pub(super) fn encode(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        postcard::to_io(self, out).map_err(std::io::Error::other)?;
        Ok(())
    }
}

/// What the changes of a redo log make of the sizes of files, and of how much of their tails is synced, without making them.
#[derive(Debug, Default)]
pub(super) struct Sizes<'a>(HashMap<Ino, Vec<SizeChange<'a>>>);

#[derive(Debug)]
enum SizeChange<'a> {
    Made(Record<'a>),
    Synced(u64),
}

impl<'a> Sizes<'a> {
    /// Those of the records with these payloads. A record that cannot be read says nothing; [`redo`] refuses it.
    pub(super) fn of(payloads: &'a [Vec<u8>]) -> Self {
        let mut sizes = Self::default();
        for payload in payloads {
            let Ok(record) = postcard::from_bytes(payload) else {
                continue;
            };
            let ino = match &record {
                Record::TailsSynced { lengths } => {
                    for (ino, length) in lengths.iter() {
                        sizes.0.entry(*ino).or_default().push(SizeChange::Synced(*length));
                    }
                    continue;
                }
                Record::SetAttr { ino, change, .. } if change.size.is_some() => *ino,
                Record::Create { ino, .. }
                | Record::Reclaim { ino }
                | Record::Write { ino, .. }
                | Record::Append { ino, .. }
                | Record::Fallocate { ino, .. }
                | Record::LongWrite { ino, .. }
                | Record::TailWritten { ino, .. } => *ino,
                // A note changes other tables.
                Record::SetAttr { .. }
                | Record::Link { .. }
                | Record::Unlink { .. }
                | Record::Rmdir { .. }
                | Record::Rename { .. }
                | Record::SetXattr { .. }
                | Record::RemoveXattr { .. }
                | Record::Note { .. }
                | Record::Whiteout { .. }
                | Record::TailNeeded { .. } => continue,
            };
            sizes.0.entry(ino).or_default().push(SizeChange::Made(record));
        }
        sizes
    }

    /// The inodes whose sizes may change.
    pub(super) fn inodes(&self) -> impl Iterator<Item = Ino> {
        self.0.keys().copied()
    }

    /// The size of a file afterwards, whose size is `size` in the tables; `None` for an inode that is not there.
    pub(super) fn after(&self, ino: Ino, size: Option<u64>) -> Option<u64> {
        let changes = self.0.get(&ino).into_iter().flatten();
        changes.fold(size, |size, change| {
            let SizeChange::Made(record) = change else {
                return size;
            };
            let before = size.unwrap_or(0);
            let grown = |end: u64| Some(before.max(end));
            match record {
                Record::SetAttr { change, .. } => change.size,
                Record::Create { node, .. } => Some(node.target.len() as u64),
                Record::Reclaim { .. } => None,
                Record::Write { offset, data, .. } if !data.is_empty() => {
                    grown(offset.saturating_add(data.len() as u64))
                }
                Record::Append { data, .. } => Some(before.saturating_add(data.len() as u64)),
                Record::Fallocate { how, offset, length, .. } => match how {
                    Allocation::Reserve { keep_size: false } | Allocation::Zero { keep_size: false } => {
                        grown(offset.saturating_add(*length))
                    }
                    Allocation::Reserve { .. } | Allocation::Zero { .. } | Allocation::PunchHole => size,
                },
                Record::TailWritten { end, .. } | Record::LongWrite { end, .. } => grown(*end),
                _ => size,
            }
        })
    }

    /// How much of a tail is synced afterwards, of which `synced` bytes are in the tables.
    pub(super) fn synced_after(&self, ino: Ino, synced: u64) -> u64 {
        let changes = self.0.get(&ino).into_iter().flatten();
        changes.fold(synced, |synced, change| match change {
            SizeChange::Synced(length) => synced.max(*length),
            SizeChange::Made(Record::SetAttr { change, .. }) => {
                synced.min(change.size.map_or(u64::MAX, content::tail_length))
            }
            SizeChange::Made(_) => synced,
        })
    }
}

/// Makes a recorded change again.
///
/// # Errors
/// If the record is not one of this version, or does not apply.
pub(super) fn redo(db: &Db, payload: &[u8]) -> Result<()> {
    let record = postcard::from_bytes(payload)
        .map_err(|error| StoreError::storage(Errno::IO, format!("a record of the redo log: {error}")))?;
    match record {
        Record::SetAttr { caller, ino, change } => set_attr(db, &caller, ino, &change).map(|_| ()),
        Record::Create { caller, parent, name, ino, node } => create(db, &caller, parent, name, ino, &node).map(|_| ()),
        Record::Link { caller, ino, parent, name } => link(db, &caller, ino, parent, name).map(|_| ()),
        Record::Unlink { caller, parent, name } => unlink(db, &caller, parent, name).map(|_| ()),
        Record::Rmdir { caller, parent, name } => rmdir(db, &caller, parent, name).map(|_| ()),
        Record::Rename { caller, from, from_name, to, to_name, mode } => {
            rename(db, &caller, (from, from_name), (to, to_name), mode).map(|_| ())
        }
        Record::Reclaim { ino } => reclaim::reclaim(db, ino, true).map(|_| ()),
        Record::Write { caller, ino, offset, data } => content::write(db, &caller, ino, offset, data),
        Record::Append { caller, ino, data } => write_end(db, &caller, ino, data).map(|_| ()),
        Record::Fallocate { caller, ino, how, offset, length } => allocate(db, &caller, ino, how, offset, length),
        Record::SetXattr { caller, ino, name, value, mode } => xattrs::set(db, &caller, ino, name, value, mode),
        Record::RemoveXattr { caller, ino, name } => xattrs::remove(db, &caller, ino, name),
        Record::Note { note } => db.apply_note(note),
        Record::Whiteout { caller, from, from_name, to, to_name, ino } => {
            whiteout(db, &caller, (from, from_name), (to, to_name), ino, RenameMode::Whiteout).map(|_| ())
        }
        Record::TailWritten { caller, ino, end } => content::stamp(db, &caller, ino, end),
        Record::LongWrite { caller, ino, offset, data, end } => {
            content::write(db, &caller, ino, offset, data)?;
            content::stamp(db, &caller, ino, end)
        }
        Record::TailsSynced { lengths } => synced_rows::set(db, &lengths),
        Record::TailNeeded { .. } => Ok(()),
    }
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

pub(super) fn create(db: &Db, caller: &Caller, parent: Ino, name: &[u8], ino: Ino, node: &NewNode<'_>) -> Result<Attr> {
    let parent_attr = nodes::get_living_directory(db, parent)?;
    names::insert(db, parent, name, ino, node.kind)?;
    let (gid, permissions) = node.inherit(&parent_attr, caller);
    let is_directory = node.kind == Kind::Directory;
    let attr =
        Attr { gid, rdev: node.rdev, size: node.target.len() as u64, ..Attr::new(ino, node.kind, permissions, caller) };
    nodes::insert(db, &attr, is_directory.then_some(parent), node.target)?;
    nodes::names_changed(db, parent, caller, i32::from(is_directory))?;
    Ok(attr)
}

pub(super) fn link(db: &Db, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
    nodes::get_living_directory(db, parent)?;
    let mut attr = nodes::get(db, ino)?;
    if attr.kind == Kind::Directory {
        return Err(Errno::PERM.into());
    }
    if attr.nlink == 0 {
        return Err(Errno::NOENT.into());
    }
    names::insert(db, parent, name, ino, attr.kind)?;
    nodes::names_changed(db, parent, caller, 0)?;
    attr.nlink += 1;
    attr.ctime = caller.now;
    nodes::update(db, &attr)?;
    Ok(attr)
}

pub(super) fn unlink(db: &Db, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
    let found = names::get(db, parent, name)?;
    if nodes::named(db, found.ino)?.kind == Kind::Directory {
        return Err(Errno::ISDIR.into());
    }
    names::remove(db, parent, name, found)?;
    nodes::names_changed(db, parent, caller, 0)?;
    nodes::drop_name(db, found.ino, caller)
}

pub(super) fn rmdir(db: &Db, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
    let found = names::get(db, parent, name)?;
    if nodes::named(db, found.ino)?.kind != Kind::Directory {
        return Err(Errno::NOTDIR.into());
    }
    if !names::is_empty(db, found.ino)? {
        return Err(Errno::NOTEMPTY.into());
    }
    names::remove(db, parent, name, found)?;
    nodes::names_changed(db, parent, caller, -1)?;
    nodes::drop_name(db, found.ino, caller)
}

pub(super) fn rename(
    db: &Db,
    caller: &Caller,
    (from, from_name): (Ino, &[u8]),
    (to, to_name): (Ino, &[u8]),
    mode: RenameMode,
) -> Result<Option<Ino>> {
    let source = names::get(db, from, from_name)?;
    nodes::get_living_directory(db, to)?;
    let target = names::find(db, to, to_name)?;
    let mut source_attr = nodes::named(db, source.ino)?;
    let target_attr = target.map(|name| nodes::named(db, name.ino));
    let target_attr = target_attr.transpose()?;
    let target_dir = target_attr.filter(|attr| attr.kind == Kind::Directory);
    let inside_itself = source_attr.kind == Kind::Directory && from != to && nodes::is_within(db, to, source.ino)?;
    let around_itself = match &target_dir {
        Some(attr) if from != to => nodes::is_within(db, from, attr.ino)?,
        _ => false,
    };
    let target_is_empty = match &target_dir {
        Some(attr) => names::is_empty(db, attr.ino)?,
        None => true,
    };
    if !check_rename(&source_attr, target_attr.as_ref(), mode, inside_itself, around_itself, target_is_empty)? {
        return Ok(None);
    }

    let moved = i32::from(source_attr.kind == Kind::Directory);
    let met = i32::from(target_dir.is_some());
    let mut replaced = None;
    match (target, target_attr) {
        (Some(target), Some(mut target_attr)) => {
            names::point(db, to, to_name, target, &source_attr)?;
            if mode == RenameMode::Exchange {
                names::point(db, from, from_name, source, &target_attr)?;
                target_attr.ctime = caller.now;
                nodes::update(db, &target_attr)?;
                if met == 1 {
                    nodes::set_parent(db, target.ino, from)?;
                }
                nodes::names_changed(db, from, caller, met - moved)?;
            } else {
                names::remove(db, from, from_name, source)?;
                replaced = nodes::drop_name(db, target.ino, caller)?;
                nodes::names_changed(db, from, caller, -moved)?;
            }
            nodes::names_changed(db, to, caller, moved - met)?;
        }
        _ => {
            names::change(db, (from, from_name, source), (to, to_name))?;
            nodes::names_changed(db, from, caller, -moved)?;
            nodes::names_changed(db, to, caller, moved)?;
        }
    }
    if moved == 1 && from != to {
        nodes::set_parent(db, source.ino, to)?;
    }
    source_attr.ctime = caller.now;
    nodes::update(db, &source_attr)?;
    if target.is_some() && mode != RenameMode::Exchange {
        db.replaces(&source_attr);
    }
    Ok(replaced)
}

/// Renames, and creates a whiteout with the number `ino` at the old name.
pub(super) fn whiteout(
    db: &Db,
    caller: &Caller,
    from: (Ino, &[u8]),
    to: (Ino, &[u8]),
    ino: Ino,
    mode: RenameMode,
) -> Result<Option<Ino>> {
    let replaced = rename(db, caller, from, to, mode)?;
    // Two names of one inode both stay.
    if names::find(db, from.0, from.1)?.is_none() {
        create(db, caller, from.0, from.1, ino, &NewNode::WHITEOUT)?;
    }
    Ok(replaced)
}

pub(super) fn write_end(db: &Db, caller: &Caller, ino: Ino, data: &[u8]) -> Result<u64> {
    let end = nodes::get_file(db, ino)?.size;
    content::write(db, caller, ino, end, data)?;
    Ok(end)
}

pub(super) fn allocate(db: &Db, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
    let mut attr = nodes::get_file(db, ino)?;
    let end = offset + length;
    if end > content::SIZE_MAX {
        return Err(Errno::FBIG.into());
    }
    let keep_size = match how {
        Allocation::Reserve { keep_size } => keep_size,
        Allocation::PunchHole => {
            content::punch(db, &mut attr, offset, length)?;
            true
        }
        Allocation::Zero { keep_size } => {
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
