//! Files whose content is in the bucket only, as the cache has them, and which parts of the large ones have been fetched.

use rusqlite::params;

use super::cache::{self, json, parse};
use super::fetch::PART;
use super::object::Meta;
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{signed, unsigned};
use crate::store::{Ino, Result};

/// A file whose content is in the bucket only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stub {
    pub(super) key: String,
    pub(super) etag: String,
    /// Bytes of the object, front matter and seal included.
    pub(super) size: u64,
    pub(super) meta: Meta,
}

impl Stub {
    /// How many parts it is fetched in.
    pub(super) fn count(&self) -> u64 {
        count(&self.meta)
    }
}

/// How many parts a file's content is fetched in.
pub(super) fn count(meta: &Meta) -> u64 {
    meta.size.div_ceil(PART)
}

pub(super) fn find(db: &Db, ino: Ino) -> Result<Option<Stub>> {
    let found: Option<(String, String, i64, String)> = db.row(
        "SELECT key, etag, size, meta FROM s3_stub WHERE ino = ?1",
        [signed(ino)],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    )?;
    found
        .map(|(key, etag, size, meta)| {
            Ok(Stub {
                key,
                etag,
                size: unsigned(size),
                meta: parse(&meta)?,
            })
        })
        .transpose()
}

/// Every stub, and the parts that have been fetched of it.
pub(super) fn all(db: &Db) -> Result<Vec<(Ino, Stub, Vec<u64>)>> {
    let inos: Vec<Ino> = {
        let mut statement = db.statement("SELECT ino FROM s3_stub")?;
        let rows = statement.query_map((), |row| row.get(0).map(unsigned))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    let mut all = Vec::new();
    for ino in inos {
        let Some(stub) = find(db, ino)? else { continue };
        all.push((ino, stub, parts(db, ino)?));
    }
    Ok(all)
}

/// Which parts of a file have been fetched.
pub(super) fn parts(db: &Db, ino: Ino) -> Result<Vec<u64>> {
    let mut statement = db.statement("SELECT part FROM s3_part WHERE ino = ?1")?;
    let rows = statement.query_map([signed(ino)], |row| row.get(0).map(unsigned))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn put(db: &Db, ino: Ino, stub: &Stub) -> Result<()> {
    db.execute(
        "INSERT INTO s3_stub VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (ino) DO UPDATE SET key = excluded.key, etag = excluded.etag,
           size = excluded.size, meta = excluded.meta",
        params![
            signed(ino),
            stub.key,
            stub.etag,
            signed(stub.size),
            json(&stub.meta)?
        ],
    )?;
    db.execute("DELETE FROM s3_part WHERE ino = ?1", [signed(ino)])?;
    Ok(())
}

/// What is to be fetched from an object is to be fetched from another that holds the same, if there is one.
pub(super) fn follow(db: &Db, ino: Ino, key: &str) -> Result<Option<Stub>> {
    let Some(mut stub) = find(db, ino)?.filter(|stub| stub.key == key) else {
        return Ok(None);
    };
    let mut objects = cache::objects_of(db, ino)?.into_iter();
    let Some(other) = objects.rfind(|object| object.key != key) else {
        return Ok(None);
    };
    (stub.key, stub.etag) = (other.key, other.etag);
    db.execute(
        "UPDATE s3_stub SET key = ?2, etag = ?3 WHERE ino = ?1",
        params![signed(ino), stub.key, stub.etag],
    )?;
    Ok(Some(stub))
}

/// The object that a file is to be fetched from is told under another entity tag now.
pub(super) fn retag(db: &Db, ino: Ino, key: &str, etag: &str) -> Result<Option<Stub>> {
    let Some(mut stub) = find(db, ino)?.filter(|stub| stub.key == key && stub.etag != etag) else {
        return Ok(None);
    };
    etag.clone_into(&mut stub.etag);
    db.execute(
        "UPDATE s3_stub SET etag = ?2 WHERE ino = ?1",
        params![signed(ino), etag],
    )?;
    Ok(Some(stub))
}

pub(super) fn put_part(db: &Db, ino: Ino, part: u64) -> Result<()> {
    db.execute(
        "INSERT OR IGNORE INTO s3_part VALUES (?1, ?2)",
        [signed(ino), signed(part)],
    )?;
    Ok(())
}

/// A file of which all parts are here is a stub no more: what is written into it from then on is here only. Whether it is
/// none.
pub(super) fn settle(db: &Db, ino: Ino, stub: &Stub) -> Result<bool> {
    let is_all_here = parts(db, ino)?.len() as u64 == stub.count();
    if is_all_here {
        remove(db, ino)?;
    }
    Ok(is_all_here)
}

/// Settles what an earlier build has left.
pub(super) fn settle_all(db: &Db) -> Result<()> {
    let inos: Vec<Ino> = {
        let mut statement = db.statement("SELECT DISTINCT ino FROM s3_part")?;
        let rows = statement.query_map((), |row| row.get(0).map(unsigned))?;
        rows.collect::<rusqlite::Result<_>>()?
    };
    for ino in inos {
        if let Some(stub) = find(db, ino)? {
            settle(db, ino, &stub)?;
        }
    }
    Ok(())
}

pub(super) fn remove(db: &Db, ino: Ino) -> Result<()> {
    db.execute("DELETE FROM s3_stub WHERE ino = ?1", [signed(ino)])?;
    db.execute("DELETE FROM s3_part WHERE ino = ?1", [signed(ino)])?;
    Ok(())
}
