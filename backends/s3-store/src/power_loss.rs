//! Mends the files of a cache after a power loss.
//!
//! The first 256 KiB of a file are as its row says. Its tail may lack bytes, or have older ones. What the bucket has
//! becomes a placeholder again. A file with changes loses only what no sync has made durable: it is mended when the log
//! has said whether the last commit is in it.

use fuse::store::{Attr, Ino, Kind, Result};
use s3::tree::{CHUNK, Chunk, Content, Hash, Node, Place};
use sqlite::HEAD;
use sqlite::tables::{Db, UnsealedFile, content, is_copied, nodes};

use crate::tables::{self, LostEnd};

/// What is done with a file that has changes of its own.
#[derive(Debug, PartialEq, Eq)]
enum Repair {
    /// These chunks are fetched again, and the file ends here.
    Fetch(Vec<(u64, Chunk)>, u64),
    /// No version of the end can be told to be the right one: reads of it fail.
    Refuse,
}

/// Mends a file whose tail may lack bytes, in the transaction that replays the redo log. Of one with changes, the doubtful
/// bytes are cut off, so that reads of them fail, and noted for [`mend_changed`].
///
/// # Errors
/// If the tables or the tail cannot be read, or the tables cannot be written.
pub(super) fn mend(db: &Db, file: &UnsealedFile) -> Result<()> {
    let ino = file.attr.ino;
    if file.attr.nlink == 0 || tables::has_merged_tail(db, ino)? {
        // The next step of the mount writes it.
        return Ok(());
    }
    let base = base(db, ino)?.filter(|base| base.size == file.attr.size);
    match base {
        Some(base) if !tables::is_dirty(db, ino)? => {
            if !fetch_again(db, &file.attr, &base)? {
                return Ok(());
            }
        }
        _ if file.durable >= file.attr.size => return Ok(()),
        _ => content::cut_off(db, ino, file.durable)?,
    }
    tables::note_lost(db, ino, file.durable, file.is_cut)
}

/// Makes the tail of a mended file as long as the file, with a hole, if all that it lacks is missing: only then can it be
/// filled, and get longer.
pub(super) fn lengthen(db: &Db, ino: Ino) -> Result<()> {
    let Some(attr) = nodes::find(db, ino)?.filter(|attr| attr.kind == Kind::File) else {
        return Ok(());
    };
    let (held, needed) = (content::held_tail(db, ino)?, content::tail_length(attr.size));
    if held >= needed {
        return Ok(());
    }
    let (first, last) = ((HEAD + held) / CHUNK, (attr.size - 1) / CHUNK);
    let missing = tables::missing(db, ino, first, last)?.len() as u64;
    if missing == last - first + 1 { content::lengthen_tail(db, ino, needed) } else { Ok(()) }
}

/// The content that the log has of a file.
fn base(db: &Db, ino: Ino) -> Result<Option<Content>> {
    let id = tables::identity(db, ino)?;
    let node = id.map(|id| tables::base_node(db, id)).transpose()?.flatten();
    Ok(node.as_ref().and_then(Node::content).cloned())
}

/// Makes placeholders of the chunks of a file without changes that are not as the bucket has them; whether there are any.
fn fetch_again(db: &Db, attr: &Attr, base: &Content) -> Result<bool> {
    let mut missing = Vec::new();
    for (at, chunk) in (0..).zip(&base.chunks) {
        let is_in_head = at * CHUNK + u64::from(chunk.length) <= HEAD;
        if !is_in_head && !is_missing(db, attr.ino, at)? && !is_here(db, attr.ino, at, chunk)? {
            missing.push((at, *chunk));
        }
    }
    set_missing(db, attr.ino, &missing)?;
    Ok(!missing.is_empty())
}

fn set_missing(db: &Db, ino: Ino, missing: &[(u64, Chunk)]) -> Result<()> {
    if !missing.is_empty() {
        let count = missing.len();
        tracing::warn!(ino, "the power was lost before {count} parts of a file were synced: they are fetched again");
    }
    missing.iter().try_for_each(|(at, chunk)| tables::set_missing(db, ino, *at, chunk))
}

fn is_missing(db: &Db, ino: Ino, at: u64) -> Result<bool> {
    Ok(!tables::missing(db, ino, at, at)?.is_empty())
}

/// Whether the disk has the bytes of a chunk.
fn is_here(db: &Db, ino: Ino, at: u64, chunk: &Chunk) -> Result<bool> {
    let left = content::read_left(db, ino, at * CHUNK, u64::from(chunk.length))?;
    Ok(left.is_some_and(|bytes| match (bytes.is_empty(), chunk.place) {
        (true, place) => place == Place::Hole,
        (false, _) => Hash::of(&bytes) == chunk.hash,
    }))
}

/// Mends a file that has changes which the bucket may lack, where `base` has what the log has of it. The file may be
/// another one by now.
pub(super) fn mend_changed(db: &Db, lost: &LostEnd, base: Option<&Content>) -> Result<()> {
    let Some(mut attr) = nodes::find(db, lost.ino)?.filter(|attr| attr.kind == Kind::File) else {
        return Ok(());
    };
    let durable = lost.durable;
    if durable >= attr.size || content::held_tail(db, lost.ino)? >= content::tail_length(attr.size) {
        return Ok(());
    }
    let nothing = Content::default();
    match mending(db, &attr, lost, base.unwrap_or(&nothing))? {
        Repair::Refuse => {
            tracing::warn!(
                "the power was lost before bytes {durable} to {} of inode {} were synced: they cannot be read",
                attr.size - 1,
                attr.ino
            );
            Ok(())
        }
        Repair::Fetch(missing, end) => {
            set_missing(db, attr.ino, &missing)?;
            if end < attr.size {
                tracing::warn!(
                    "the power was lost before bytes {end} to {} of inode {} were synced: the file is cut to {end} bytes",
                    attr.size - 1,
                    attr.ino
                );
                attr.size = end;
                nodes::update(db, &attr)?;
                tables::clear_missing(db, attr.ino, end.div_ceil(CHUNK), true)?;
            }
            Ok(())
        }
    }
}

fn mending(db: &Db, attr: &Attr, lost: &LostEnd, base: &Content) -> Result<Repair> {
    let LostEnd { durable, is_cut, .. } = *lost;
    let (mut missing, mut end) = (Vec::new(), attr.size);
    for at in durable / CHUNK..attr.size.div_ceil(CHUNK) {
        let known = base.chunks.get(at as usize);
        if is_missing(db, attr.ino, at)? {
            if end == attr.size {
                continue;
            } else {
                // A part that the bucket has would be cut off.
                return Ok(Repair::Refuse);
            }
        }
        if end < attr.size {
            continue;
        }
        let length = CHUNK.min(attr.size - at * CHUNK);
        match known {
            Some(chunk) if u64::from(chunk.length) == length => {
                missing.push((at, *chunk));
            }
            // The file has grown since the commit that the bucket has.
            Some(chunk) if u64::from(chunk.length) < length => {
                end = durable.max(base.size);
                if base.size > durable {
                    missing.push((at, *chunk));
                }
            }
            Some(_) => return Ok(Repair::Refuse),
            None => end = durable.max(at * CHUNK),
        }
    }
    // The bucket may have the file as it was before it was truncated.
    let is_cut = is_cut && !is_copied(db, attr.ino)?;
    Ok(if is_cut && !missing.is_empty() { Repair::Refuse } else { Repair::Fetch(missing, end) })
}
