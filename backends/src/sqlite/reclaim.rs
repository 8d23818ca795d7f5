//! Frees the rows of inodes without a name. Their tails are freed elsewhere.

use super::db::Db;
use super::{content, nodes, xattrs};
use crate::store::{Ino, Result};

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
    orphans
        .into_iter()
        .try_for_each(|ino| reclaim(db, ino, true).map(|_| ()))
}

/// Frees the rows of an inode if it has no name; returns whether it had none.
pub(super) fn reclaim(db: &Db, ino: Ino, may_have_xattrs: bool) -> Result<bool> {
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
    match may_have_xattrs {
        true => xattrs::clear(db, first, last),
        false => Ok(()),
    }
}
