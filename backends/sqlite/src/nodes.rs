//! Inode rows.

use fuse::store::{Attr, Caller, Errno, Ino, Kind, Result, StoreError, Timestamp};
use rusqlite::types::{FromSql, ValueRef};
use rusqlite::{Row, params};

use crate::db::Db;

/// The columns that [`attr`] reads, in its order.
macro_rules! columns {
    () => {
        "i.ino, i.mode, i.nlink, i.uid, i.gid, i.rdev, i.size, i.blocks, i.atime, i.mtime, i.ctime, i.btime"
    };
}
pub(crate) use columns;

/// How many they are.
pub(crate) const COLUMNS: usize = 12;

/// As [`attr`], of an outer join: what is deferred of inode `ino` counts, and `None` where there is nothing of it.
pub(crate) fn joined(db: &Db, ino: Ino, row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Attr>> {
    if let Some(attr) = db.deferred.inode(ino) {
        return Ok(Some(attr));
    }
    match row.get_ref(first)? {
        ValueRef::Null => Ok(None),
        _ => attr(row, first).map(Some),
    }
}

/// Reads the columns of [`columns`] from `first` on.
pub(crate) fn attr(row: &Row<'_>, first: usize) -> rusqlite::Result<Attr> {
    let mode: u32 = row.get(first + 1)?;
    let kind = kind(mode, first + 1)?;
    Ok(Attr {
        ino: unsigned(row.get(first)?),
        kind,
        permissions: (mode & 0o7777) as u16,
        nlink: row.get(first + 2)?,
        uid: row.get(first + 3)?,
        gid: row.get(first + 4)?,
        rdev: row.get(first + 5)?,
        size: unsigned(row.get(first + 6)?),
        blocks: unsigned(row.get(first + 7)?),
        atime: Timestamp(row.get(first + 8)?),
        mtime: Timestamp(row.get(first + 9)?),
        ctime: Timestamp(row.get(first + 10)?),
        btime: Timestamp(row.get(first + 11)?),
    })
}

/// The kind in a stored mode; a mode that no store wrote is a damaged row.
pub(crate) fn kind(mode: u32, column: usize) -> rusqlite::Result<Kind> {
    Kind::from_mode(mode).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, mode.into()))
}

/// SQLite's integers are signed; stored values never use the sign.
pub fn unsigned(value: i64) -> u64 {
    value as u64
}

/// The other way: sizes and inode numbers stay below 2⁶³, as `loff_t` does.
pub fn signed(value: u64) -> i64 {
    value as i64
}

/// The attributes of an inode; `None` if there is no such inode.
pub fn find(db: &Db, ino: Ino) -> Result<Option<Attr>> {
    if let Some(kept) = db.kept(ino) {
        return Ok(Some(kept));
    }
    if db.deferred.is_gone(ino) {
        return Ok(None);
    }
    let found =
        db.row(concat!("SELECT ", columns!(), " FROM inode i WHERE i.ino = ?1"), [signed(ino)], |row| attr(row, 0))?;
    if let Some(attr) = &found {
        db.keep(attr);
    }
    Ok(found)
}

/// The attributes of an inode that should exist.
pub fn get(db: &Db, ino: Ino) -> Result<Attr> {
    find(db, ino)?.ok_or_else(|| Errno::NOENT.into())
}

/// As [`get`], for an inode that a name names: that has a row, or the database is damaged.
pub(crate) fn named(db: &Db, ino: Ino) -> Result<Attr> {
    find(db, ino)?.ok_or_else(|| missing(ino))
}

/// A name names an inode that has no row.
pub(crate) fn missing(ino: Ino) -> StoreError {
    let reason = format!(
        "the database is damaged: a name leads to inode {ino}, which is missing; `ctxbench doctor --store` lists its path"
    );
    StoreError::storage(Errno::IO, reason)
}

/// As [`get`], for an inode whose content is to be read or changed.
pub fn get_file(db: &Db, ino: Ino) -> Result<Attr> {
    let attr = get(db, ino)?;
    match attr.kind {
        Kind::File => Ok(attr),
        Kind::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Errno::INVAL.into()),
    }
}

/// As [`get`], for a directory.
pub(crate) fn get_directory(db: &Db, ino: Ino) -> Result<Attr> {
    let attr = get(db, ino)?;
    if attr.kind != Kind::Directory {
        return Err(Errno::NOTDIR.into());
    }
    Ok(attr)
}

/// As [`get_directory`], for one that new names may go into: one that has itself not been removed.
pub(crate) fn get_living_directory(db: &Db, ino: Ino) -> Result<Attr> {
    let attr = get_directory(db, ino)?;
    if attr.nlink == 0 {
        return Err(Errno::NOENT.into());
    }
    Ok(attr)
}

/// Adds the row of a new inode: with `parent`, if it is a directory, and `target`, if it is a symbolic link.
pub fn insert(db: &Db, attr: &Attr, parent: Option<Ino>, target: &[u8]) -> Result<()> {
    // The row of a directory or a symbolic link says more than its attributes.
    if attr.kind == Kind::File && db.deferred.put_inode(attr, true) {
        return Ok(());
    }
    let target = (attr.kind == Kind::Symlink).then_some(target);
    insert_row(db, attr, parent, target)?;
    db.keep(attr);
    Ok(())
}

pub(super) fn insert_row(db: &Db, attr: &Attr, parent: Option<Ino>, target: Option<&[u8]>) -> Result<()> {
    db.execute(
        "INSERT INTO inode (ino, mode, nlink, uid, gid, rdev, size, blocks, atime, mtime, ctime, btime, parent, target)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        params![
            signed(attr.ino),
            mode(attr),
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.rdev,
            signed(attr.size),
            signed(attr.blocks),
            attr.atime.0,
            attr.mtime.0,
            attr.ctime.0,
            attr.btime.0,
            parent.map(signed),
            target,
        ],
    )?;
    Ok(())
}

/// Deletes the rows of the inodes from `first` to `last`.
pub(super) fn delete(db: &Db, first: Ino, last: Ino) -> Result<()> {
    let delete = "DELETE FROM inode WHERE ino >= ?1 AND ino <= ?2";
    db.execute(delete, [first, last].map(signed))?;
    Ok(())
}

/// Writes back everything of an inode that can change.
pub fn update(db: &Db, attr: &Attr) -> Result<()> {
    if db.deferred.put_inode(attr, false) {
        return Ok(());
    }
    update_row(db, attr)?;
    db.keep(attr);
    Ok(())
}

pub(super) fn update_row(db: &Db, attr: &Attr) -> Result<()> {
    db.execute(
        "UPDATE inode SET mode = ?2, nlink = ?3, uid = ?4, gid = ?5, size = ?6, blocks = ?7,
         atime = ?8, mtime = ?9, ctime = ?10 WHERE ino = ?1",
        params![
            signed(attr.ino),
            mode(attr),
            attr.nlink,
            attr.uid,
            attr.gid,
            signed(attr.size),
            signed(attr.blocks),
            attr.atime.0,
            attr.mtime.0,
            attr.ctime.0,
        ],
    )?;
    Ok(())
}

/// Writes back the columns that [`update`] leaves out, because no call of a file system changes them.
pub fn set_origin(db: &Db, attr: &Attr) -> Result<()> {
    db.execute(
        "UPDATE inode SET btime = ?2, rdev = ?3 WHERE ino = ?1",
        params![signed(attr.ino), attr.btime.0, attr.rdev],
    )?;
    Ok(())
}

/// Stamps a directory whose names have changed, and moves its count of subdirectories.
pub fn names_changed(db: &Db, dir: Ino, caller: &Caller, subdirectories: i32) -> Result<()> {
    let mut attr = get(db, dir)?;
    attr.nlink = attr.nlink.saturating_add_signed(subdirectories);
    (attr.mtime, attr.ctime) = (caller.now, caller.now);
    update(db, &attr)
}

/// Takes one name away from an inode; `Some` if it was the last.
pub(crate) fn drop_name(db: &Db, ino: Ino, caller: &Caller) -> Result<Option<Ino>> {
    let mut attr = get(db, ino)?;
    attr.nlink = match attr.kind {
        Kind::Directory => 0,
        _ => attr.nlink.saturating_sub(1),
    };
    attr.ctime = caller.now;
    update(db, &attr)?;
    Ok((attr.nlink == 0).then_some(ino))
}

/// A column of an inode's row; `absent` where it is empty.
fn column<T: FromSql>(db: &Db, ino: Ino, sql: &'static str, absent: Errno) -> Result<T> {
    let value = db.row(sql, [signed(ino)], |row| row.get::<_, Option<T>>(0))?;
    value.ok_or(Errno::NOENT)?.ok_or_else(|| absent.into())
}

/// The directory that a directory is in.
pub fn parent(db: &Db, dir: Ino) -> Result<Ino> {
    let sql = "SELECT parent FROM inode WHERE ino = ?1";
    column(db, dir, sql, Errno::NOTDIR).map(unsigned)
}

/// Notes that a directory is in another one.
pub fn set_parent(db: &Db, dir: Ino, parent: Ino) -> Result<()> {
    db.execute("UPDATE inode SET parent = ?2 WHERE ino = ?1", [signed(dir), signed(parent)])?;
    Ok(())
}

/// Whether directory `dir` is `ancestor` or lies below it.
pub(crate) fn is_within(db: &Db, mut dir: Ino, ancestor: Ino) -> Result<bool> {
    let mut steps = PathToRoot::default();
    loop {
        if dir == ancestor {
            return Ok(true);
        }
        let above = parent(db, dir)?;
        if above == dir {
            return Ok(false);
        }
        dir = above;
        steps.step(dir)?;
    }
}

/// The way from a directory to the root. In a damaged database, a directory can be inside itself.
#[derive(Debug, Default)]
pub struct PathToRoot {
    count: u64,
    /// The directory at the last power of two (Brent's algorithm).
    mark: Option<Ino>,
}

impl PathToRoot {
    /// The next directory is `dir`.
    ///
    /// # Errors
    /// `EIO` if the way is a circle.
    pub fn step(&mut self, dir: Ino) -> Result<()> {
        if self.mark == Some(dir) {
            let reason = format!("directory {dir} is inside itself: the database is damaged");
            return Err(StoreError::storage(Errno::IO, reason));
        }
        self.count += 1;
        if self.count.is_power_of_two() {
            self.mark = Some(dir);
        }
        Ok(())
    }
}

/// The target of a symbolic link.
pub fn target(db: &Db, ino: Ino) -> Result<Vec<u8>> {
    let sql = "SELECT target FROM inode WHERE ino = ?1";
    column(db, ino, sql, Errno::INVAL)
}

fn mode(attr: &Attr) -> u32 {
    attr.kind.mode_bits() | u32::from(attr.permissions)
}
