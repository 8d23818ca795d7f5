//! Frees the rows of inodes without a name. Their tails are freed elsewhere.

use std::collections::BTreeSet;
use std::path::Path;

use fuse::store::{Ino, Result};
use rusqlite::OpenFlags;

use crate::db::Db;
use crate::{content, nodes, xattrs};

const READ: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// The rows that go with an inode.
const ROWS: [&str; 3] = [
    "SELECT target FROM inode WHERE ino = ?1",
    "SELECT bytes FROM chunk WHERE id >= ?1 << 24 AND id < (?1 + 1) << 24",
    "SELECT value FROM xattr WHERE ino = ?1",
];

/// Frees inodes that were unlinked but still open when an earlier mount ended.
pub(super) fn orphans(db: &Db) -> Result<()> {
    let mut orphans = Vec::new();
    {
        let mut statement = db.statement("SELECT ino FROM inode WHERE nlink = 0")?;
        let mut rows = statement.query(())?;
        while let Some(row) = rows.next()? {
            orphans.push(nodes::unsigned(row.get(0)?));
        }
    }
    let damaged = undeletable(db, &orphans);
    for ino in orphans {
        if damaged.contains(&ino) {
            tracing::warn!(ino, "a removed file stays in the database, because its pages are damaged");
        } else {
            reclaim(db, ino, true)?;
        }
    }
    Ok(())
}

/// Which of these inodes have committed rows that cannot be read, and so not be deleted. A connection of its own looks: an
/// error would end the transaction of the other one.
pub(super) fn undeletable(db: &Db, inodes: &[Ino]) -> BTreeSet<Ino> {
    if inodes.is_empty() {
        return BTreeSet::new();
    }
    let path = db.connection.path().map(Path::new);
    let Some(Ok(looking)) = path.map(|path| sqlite_pages::connect(path, READ)) else {
        return inodes.iter().copied().collect();
    };
    let is_readable = |ino: Ino| {
        ROWS.iter().try_for_each(|query| {
            let mut statement = looking.prepare_cached(query)?;
            let mut rows = statement.query([nodes::signed(ino)])?;
            while let Some(row) = rows.next()? {
                row.get_ref(0)?;
            }
            Ok::<_, rusqlite::Error>(())
        })
    };
    let damaged = inodes.iter().filter(|ino| is_readable(**ino).is_err());
    damaged.copied().collect()
}

/// Leaves the rows of an inode where they are, if they are on damaged pages. Whether they are.
pub(super) fn keep_damaged(db: &Db, ino: Ino) -> bool {
    let damaged = undeletable(db, &[ino]);
    let is_damaged = damaged.contains(&ino);
    db.undeletable.borrow_mut().extend(damaged);
    is_damaged
}

/// Frees the rows of an inode if it has no name; returns whether it had none.
pub(super) fn reclaim(db: &Db, ino: Ino, may_have_xattrs: bool) -> Result<bool> {
    if db.undeletable.borrow().contains(&ino) {
        content::forget(db, ino);
        return Ok(nodes::find(db, ino)?.is_none_or(|attr| attr.nlink == 0));
    }
    let is_named = db.deferred.inode(ino).map(|attr| attr.nlink > 0);
    db.let_go(ino);
    match is_named {
        Some(true) => Ok(false),
        Some(false) => {
            content::forget(db, ino);
            db.deferred.put_gone(ino, may_have_xattrs);
            Ok(true)
        }
        None => {
            let delete = "DELETE FROM inode WHERE ino = ?1 AND nlink = 0";
            let is_deleted = db.execute(delete, [nodes::signed(ino)])? > 0;
            if is_deleted {
                clear(db, ino, ino, may_have_xattrs)?;
            }
            Ok(is_deleted)
        }
    }
}

/// Deletes the rows of the inodes that changes have left to the commit.
pub(super) fn delete_gone(db: &Db) -> Result<()> {
    for (first, last, may_have_xattrs) in db.deferred.take_gone() {
        nodes::delete(db, first, last)?;
        clear(db, first, last, may_have_xattrs)?;
    }
    Ok(())
}

/// Deletes the rows of the inodes from `first` to `last`.
fn clear(db: &Db, first: Ino, last: Ino, may_have_xattrs: bool) -> Result<()> {
    content::clear(db, first, last)?;
    if may_have_xattrs { xattrs::clear(db, first, last) } else { Ok(()) }
}
