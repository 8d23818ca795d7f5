//! A cache that was set aside, and may be damaged: each of its rows is read for itself.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use super::cache;
use super::known::{self, beside};
use super::object::Meta;
use super::stub;
use crate::sqlite::content::{CHUNK, INDEX_BITS, checksum};
use crate::sqlite::nodes::{self, signed, unsigned};
use crate::sqlite::{HEAD, SCHEMA_VERSION, is_cut, log_mark};
use crate::store::{Attr, Ino, Kind};

/// Bytes of a tail that are copied at once.
const PIECE: usize = 1 << 20;

/// A directory and a name in it.
pub(super) type Name = (Ino, Vec<u8>);

/// Why something cannot be saved.
pub(super) type Reason = String;

/// The name and value of an extended attribute.
pub(super) type Xattr = (Vec<u8>, Vec<u8>);

/// Takes a piece of content, and where it begins.
pub(super) type Take<'a, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'a;

/// A cache that was set aside.
#[derive(Debug)]
pub(super) struct Old {
    db: Connection,
    file: PathBuf,
    tails: PathBuf,
    /// The schema version.
    version: i32,
    /// Content has checksums.
    has_sums: bool,
    /// Whose cache it is.
    pub(super) of: String,
}

/// An inode as the old cache has it.
#[derive(Clone)]
pub(super) struct Inode {
    pub(super) attr: Attr,
    pub(super) target: Vec<u8>,
}

/// The object that a name's file was in, as the old cache has it.
pub(super) struct OldObject {
    pub(super) key: String,
    pub(super) etag: String,
    pub(super) ino: Ino,
}

fn reason(error: rusqlite::Error) -> Reason {
    error.to_string()
}

impl Old {
    /// Opens it to be read.
    pub(super) fn open(file: &Path) -> Result<Self, Reason> {
        if is_cut(file) {
            return Err("it is empty".to_owned());
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(file, flags).map_err(reason)?;
        db.busy_timeout(Duration::from_secs(5)).map_err(reason)?;
        // SQLite then reads a file of which the end is missing, as far as it goes.
        let lenient = db.pragma_update(None, "writable_schema", true);
        lenient.map_err(reason)?;
        let version: i32 = db
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .map_err(reason)?;
        let tables = known::setting(&db, "tables").map_err(reason)?;
        if version > SCHEMA_VERSION || cache::must_be_known(file, tables.as_deref()).is_err() {
            return Err("a newer ctxbench has written it".to_owned());
        }
        let of = known::setting(&db, "of").map_err(reason)?;
        let sum = "SELECT 1 FROM pragma_table_info('chunk') WHERE name = 'sum'";
        let sum = db.query_row(sum, (), |_| Ok(())).optional();
        Ok(Self {
            has_sums: sum.map_err(reason)?.is_some(),
            db,
            file: file.to_owned(),
            version,
            tails: beside(file, "-tails"),
            of: of.unwrap_or_default(),
        })
    }

    /// Why rows may be missing of which nothing says so; `None` if the database is whole, and has its log.
    pub(super) fn doubt(&self) -> Option<Reason> {
        let integrity = self.db.query_row("PRAGMA integrity_check(1)", (), |row| {
            row.get::<_, String>(0)
        });
        match integrity {
            Ok(told) if told == "ok" => {}
            Ok(told) => {
                let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
                return Some(format!("it is damaged: {told}"));
            }
            Err(error) => return Some(format!("it is damaged: {error}")),
        }
        match self.lacks_log() {
            Ok(false) => None,
            Ok(true) => Some("its log is gone".to_owned()),
            Err(error) => Some(format!("it is damaged: {error}")),
        }
    }

    /// Whether what was changed last was in a log that is gone.
    fn lacks_log(&self) -> rusqlite::Result<bool> {
        let log = log_mark::lacks_log(&self.db, Some(self.version), &self.file)?;
        Ok(log.is_some())
    }

    /// Every row of a query, as far as they can be read; and why not all, if so.
    pub(super) fn rows<T>(
        &self,
        sql: &str,
        read: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<T>,
    ) -> (Vec<T>, Option<Reason>) {
        let mut all = Vec::new();
        let mut fill = || {
            let mut statement = self.db.prepare(sql)?;
            let mut rows = statement.query(())?;
            while let Some(row) = rows.next()? {
                all.push(read(row)?);
            }
            Ok(())
        };
        let failed = fill().err().map(reason);
        (all, failed)
    }

    pub(super) fn inode(&self, ino: Ino) -> Result<Inode, Reason> {
        let sql = concat!(
            "SELECT i.target, ",
            nodes::columns!(),
            " FROM inode i WHERE i.ino = ?1"
        );
        let found = self.db.query_row(sql, [signed(ino)], |row| {
            let target: Option<Vec<u8>> = row.get(0)?;
            let attr = nodes::attr(row, 1)?;
            Ok(Inode {
                attr,
                target: target.unwrap_or_default(),
            })
        });
        found.map_err(reason)
    }

    /// How many names an inode says it has; `None` if it is gone.
    pub(super) fn links(&self, ino: Ino) -> Result<Option<u32>, Reason> {
        let sql = "SELECT nlink FROM inode WHERE ino = ?1";
        let found = self.db.query_row(sql, [signed(ino)], |row| row.get(0));
        found.optional().map_err(reason)
    }

    /// The object that a name's file was in.
    pub(super) fn object(&self, (parent, name): &Name) -> Result<Option<OldObject>, Reason> {
        let sql = "SELECT key, etag, ino FROM s3_object WHERE parent = ?1 AND name = ?2";
        let found = self
            .db
            .query_row(sql, params![signed(*parent), name], |row| {
                Ok(OldObject {
                    key: row.get(0)?,
                    etag: row.get(1)?,
                    ino: unsigned(row.get(2)?),
                })
            });
        found.optional().map_err(reason)
    }

    /// The name whose file was in an object.
    pub(super) fn name_of_key(&self, key: &str) -> Result<Option<Name>, Reason> {
        let sql = "SELECT parent, name FROM s3_object WHERE key = ?1";
        let found = self
            .db
            .query_row(sql, [key], |row| Ok((unsigned(row.get(0)?), row.get(1)?)));
        found.optional().map_err(reason)
    }

    /// The directory that had a prefix in the bucket.
    pub(super) fn directory_of_prefix(&self, prefix: &str) -> Result<Option<Ino>, Reason> {
        let sql = "SELECT ino FROM s3_directory WHERE prefix = ?1";
        let found = self
            .db
            .query_row(sql, [prefix], |row| row.get(0).map(unsigned));
        found.optional().map_err(reason)
    }

    /// The key and entity tag of the object that has the content of a file which is not here.
    pub(super) fn stub(&self, ino: Ino) -> Result<Option<(String, String)>, Reason> {
        let sql = "SELECT key, etag, meta FROM s3_stub WHERE ino = ?1";
        let found = self.db.query_row(sql, [signed(ino)], |row| {
            let meta: String = row.get(2)?;
            Ok(((row.get(0)?, row.get(1)?), meta))
        });
        let Some((object, meta)) = found.optional().map_err(reason)? else {
            return Ok(None);
        };
        let meta: Meta = serde_json::from_str(&meta).map_err(|error| error.to_string())?;
        // Earlier builds could keep the row of a file of which all parts had come, and which was then written to.
        let sql = "SELECT count(*) FROM s3_part WHERE ino = ?1";
        let parts = self.db.query_row(sql, [signed(ino)], |row| row.get(0));
        let is_all_here = parts.map(unsigned).map_err(reason)? == stub::count(&meta);
        Ok((!is_all_here).then_some(object))
    }

    pub(super) fn prefix(&self, dir: Ino) -> Option<String> {
        let sql = "SELECT prefix FROM s3_directory WHERE ino = ?1";
        let found = self.db.query_row(sql, [signed(dir)], |row| row.get(0));
        // Where it cannot be read, the path says where the directory is.
        found.ok()
    }

    pub(super) fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, Reason> {
        let sql = "SELECT name, value FROM xattr WHERE ino = ?1";
        let mut statement = self.db.prepare_cached(sql).map_err(reason)?;
        let pair = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows = statement.query_map([signed(ino)], pair).map_err(reason)?;
        rows.collect::<rusqlite::Result<_>>().map_err(reason)
    }

    /// Hands on all of a file's content, a piece at a time, holes as zeros.
    ///
    /// # Errors
    /// What `take` says; or if some of it is not what was written, or, with `is_doubtful`, less is there than the file
    /// counts: what is missing is then no hole.
    pub(super) fn content<E: From<Reason>>(
        &self,
        attr: &Attr,
        is_doubtful: bool,
        take: &mut Take<'_, E>,
    ) -> Result<(), E> {
        let sql = match self.has_sums {
            true => "SELECT sum, bytes FROM chunk WHERE id = ?1",
            false => "SELECT NULL, bytes FROM chunk WHERE id = ?1",
        };
        let (mut at, mut blocks) = (0, 0);
        while at < attr.size.min(HEAD) {
            let id = signed((attr.ino << INDEX_BITS) | (at / CHUNK));
            let row = self.db.query_row(sql, [id], |row| {
                Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Vec<u8>>(1)?))
            });
            let mut bytes = Vec::new();
            if let Some((sum, held)) = row.optional().map_err(reason)? {
                // Rows that an earlier ctxbench wrote have none.
                if sum.is_some_and(|sum| sum != checksum(id, &held)) {
                    return Err(format!(
                        "it is damaged at byte {at}: a checksum is not that of what was written"
                    )
                    .into());
                }
                blocks += (held.len() as u64).div_ceil(4096) * 8;
                bytes = held;
            }
            bytes.resize(CHUNK.min(attr.size - at) as usize, 0);
            take(at, &bytes)?;
            at += CHUNK;
        }
        if is_doubtful && attr.kind == Kind::File && attr.size > 0 && blocks != attr.blocks {
            return Err("some of it is missing".to_owned().into());
        }
        if attr.size <= HEAD {
            return Ok(());
        }
        // Tails have no checksums, and where the log is lost one may be of a later time than the rest.
        if self.lacks_log().map_err(reason)? {
            let reason = "what is past 256 KiB of it may be newer than the rest: the log is gone";
            return Err(reason.to_owned().into());
        }
        let tail = self.tails.join(attr.ino.to_string());
        let wrong = |error: std::io::Error| format!("{}: {error}", tail.display());
        let tail_file = File::open(&tail).map_err(wrong)?;
        let mut piece = vec![0; PIECE];
        let mut at = HEAD;
        while at < attr.size {
            let length = (attr.size - at).min(PIECE as u64) as usize;
            let wanted = &mut piece[..length];
            tail_file.read_exact_at(wanted, at - HEAD).map_err(wrong)?;
            take(at, wanted)?;
            at += length as u64;
        }
        Ok(())
    }
}
