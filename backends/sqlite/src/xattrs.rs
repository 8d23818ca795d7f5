//! Extended attributes.

use fuse::store::{Caller, Errno, Ino, Result, XattrMode};
use rusqlite::params;

use crate::db::Db;
use crate::nodes::{self, signed};

/// The value of an attribute. `ENODATA` where there is none.
pub fn get(db: &Db, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
    let value =
        db.row("SELECT value FROM xattr WHERE ino = ?1 AND name = ?2", params![signed(ino), name], |row| row.get(0))?;
    value.ok_or_else(|| Errno::NODATA.into())
}

/// The names of all attributes of an inode.
pub fn list(db: &Db, ino: Ino) -> Result<Vec<Vec<u8>>> {
    let mut statement = db.statement("SELECT name FROM xattr WHERE ino = ?1 ORDER BY name")?;
    let names = statement.query_map([signed(ino)], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}

/// Sets an attribute, and stamps the inode.
pub fn set(db: &Db, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
    let mut attr = nodes::get(db, ino)?;
    let exists = db.row("SELECT 1 FROM xattr WHERE ino = ?1 AND name = ?2", params![signed(ino), name], |_| Ok(()))?;
    mode.check(exists.is_some())?;
    db.execute(
        "INSERT INTO xattr (ino, name, value) VALUES (?1, ?2, ?3)
         ON CONFLICT (ino, name) DO UPDATE SET value = excluded.value",
        params![signed(ino), name, value],
    )?;
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

pub(crate) fn remove(db: &Db, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
    let mut attr = nodes::get(db, ino)?;
    let removed = db.execute("DELETE FROM xattr WHERE ino = ?1 AND name = ?2", params![signed(ino), name])?;
    if removed == 0 {
        return Err(Errno::NODATA.into());
    }
    attr.ctime = caller.now;
    nodes::update(db, &attr)
}

/// Deletes all attributes of the inodes from `first` to `last`.
pub fn clear(db: &Db, first: Ino, last: Ino) -> Result<()> {
    let delete = "DELETE FROM xattr WHERE ino >= ?1 AND ino <= ?2";
    db.execute(delete, [first, last].map(signed))?;
    Ok(())
}
