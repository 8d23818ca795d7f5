//! The local side: what the bucket holds as far as this mount knows, and the journal of what it does not hold yet.
//!
//! It is a `sqlite` file system with more tables. Triggers write the journal in the transaction of the change
//! itself, so no change can get past it, and none is journalled that did not happen.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use super::config::S3Config;
use super::layout;
use super::object::Meta;
use super::remote::S3OpenError;
use super::seal::Seal;
use crate::sqlite::SqliteStore;
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{signed, unsigned};
use crate::sqlite::{names, nodes};
use crate::store::{Errno, Ino, Kind, ROOT, Result, StoreError};

/// Permissions of a directory that nothing says more about.
pub(super) const DIRECTORY_PERMISSIONS: u16 = 0o755;

/// A name, and the object that its file is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) parent: Ino,
    pub(super) name: Vec<u8>,
    pub(super) key: String,
    pub(super) ino: Ino,
    pub(super) etag: String,
    pub(super) meta: Meta,
}

/// What the manifest says of a directory: what its keys cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    /// The prefix of the directory that it is in.
    pub(super) parent: String,
    /// Its name there, as a component of a key.
    pub(super) name: String,
    /// Its permission bits.
    pub(super) permissions: u16,
}

/// What keys and entity tags do not tell, kept in one object for all writers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    /// Directories by their prefix.
    #[serde(default)]
    pub(super) directories: BTreeMap<String, Entry>,
    /// Objects whose attributes changed while their content, and so their entity tag, stayed; by version.
    #[serde(default)]
    pub(super) touched: BTreeMap<String, u64>,
}

pub(super) fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| StoreError::storage(Errno::IO, error))
}

pub(super) fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| StoreError::storage(Errno::IO, format!("the cache is damaged: {error}")))
}

/// Whose cache a file is: a mount of anything else refuses it.
pub(super) fn of(config: &S3Config) -> String {
    format!(
        "{} bucket {} {}agents/{}{}",
        config.endpoint,
        config.bucket,
        config.prefix,
        config.agent,
        if config.seal.is_some() { " sealed" } else { "" }
    )
}

/// The version of the tables in `schema.sql` and `doubt.sql`. The first had no setting that says so, and no `doubt.sql`.
const TABLES_VERSION: u32 = 2;

/// Refuses tables that a later ctxbench has made.
pub(super) fn must_be_known(
    file: &Path,
    version: Option<&str>,
) -> std::result::Result<(), S3OpenError> {
    match version.map(str::parse::<u32>) {
        None | Some(Ok(0..=TABLES_VERSION)) => Ok(()),
        Some(_) => Err(S3OpenError::Newer {
            file: file.to_owned(),
            reason: format!(
                "its tables have version {}; this ctxbench knows version {TABLES_VERSION}",
                version.unwrap_or_default()
            ),
        }),
    }
}

/// Makes a database the cache of a bucket, or checks that it is.
pub(super) fn prepare(
    store: &SqliteStore,
    file: &Path,
    config: &S3Config,
) -> std::result::Result<(), S3OpenError> {
    let of = of(config);
    let wrong = |error: StoreError| S3OpenError::of_cache(file, &error);
    let found = store
        .transaction(|db| {
            let has_tables = db.row(
                "SELECT 1 FROM sqlite_schema WHERE name = 's3_setting'",
                (),
                |_| Ok(()),
            )?;
            if has_tables.is_none() {
                if !names::is_empty(db, ROOT)? {
                    return Ok(None);
                }
                db.connection.execute_batch(include_str!("schema.sql"))?;
                set(db, "of", &of)?;
                set(db, "tables", &TABLES_VERSION.to_string())?;
                db.execute("INSERT INTO s3_directory (ino, prefix) VALUES (1, '')", ())?;
            }
            let found = setting(db, "of")?.unwrap_or_default();
            Ok(Some((found, setting(db, "tables")?)))
        })
        .map_err(wrong)?;
    match found {
        Some((found, version)) if found == of => {
            must_be_known(file, version.as_deref())?;
            let bring_up_to_date = |db: &Db| {
                db.connection.execute_batch(include_str!("doubt.sql"))?;
                db.connection.execute_batch(include_str!("version.sql"))?;
                set(db, "tables", &TABLES_VERSION.to_string())
            };
            store.transaction(bring_up_to_date).map_err(wrong)
        }
        Some((found, _)) => Err(S3OpenError::Cache(format!(
            "{} is the cache of {found}, not of {of}\n  fix: choose another file with --cache",
            file.display()
        ))),
        None => Err(S3OpenError::Cache(format!(
            "{} is a `sqlite` file system with files in it, and no cache of a bucket\n  fix: choose another file with --cache",
            file.display()
        ))),
    }
}

pub(super) fn setting(db: &Db, name: &str) -> Result<Option<String>> {
    db.row(
        "SELECT value FROM s3_setting WHERE name = ?1",
        [name],
        |row| row.get(0),
    )
}

pub(super) fn set(db: &Db, name: &str, value: &str) -> Result<()> {
    db.execute(
        "INSERT INTO s3_setting VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [name, value],
    )?;
    Ok(())
}

/// Runs `work`, which brings in what the bucket holds, without journalling it.
pub(super) fn applying<T>(db: &Db, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
    db.execute("UPDATE s3_clock SET is_applying = 1", ())?;
    let done = work(db)?;
    db.execute("UPDATE s3_clock SET is_applying = 0", ())?;
    Ok(done)
}

/// Ends the batch that changes are journalled under, and begins the next; its number.
pub(super) fn end_batch(db: &Db) -> Result<u64> {
    let batch = db.row("SELECT batch FROM s3_clock", (), |row| row.get(0))?;
    db.execute("UPDATE s3_clock SET batch = batch + 1", ())?;
    Ok(unsigned(batch.unwrap_or(0)))
}

/// How many inodes and names are journalled, and objects that others have not been told of yet.
pub(super) fn pending(db: &Db) -> Result<u64> {
    let count = db.row(
        "SELECT (SELECT count(*) FROM s3_dirty_inode) + (SELECT count(*) FROM s3_dirty_name)
              + (SELECT count(*) FROM s3_touched)",
        (),
        |row| row.get(0),
    )?;
    Ok(unsigned(count.unwrap_or(0)))
}

/// Whether no more is journalled than one file and its name.
pub(super) fn may_be_one_file(db: &Db) -> Result<bool> {
    let more = db.row(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM s3_dirty_inode LIMIT 2)) > 1
             OR (SELECT count(*) FROM (SELECT 1 FROM s3_dirty_name LIMIT 2)) > 1",
        (),
        |row| row.get(0),
    )?;
    Ok(!more.unwrap_or(true))
}

pub(super) fn dirty_inodes(db: &Db, batch: u64) -> Result<Vec<Ino>> {
    let mut statement = db.statement("SELECT ino FROM s3_dirty_inode WHERE batch <= ?1")?;
    let rows = statement.query_map([signed(batch)], |row| row.get(0))?;
    Ok(rows
        .map(|ino| ino.map(unsigned))
        .collect::<rusqlite::Result<_>>()?)
}

pub(super) fn dirty_names(db: &Db, batch: u64) -> Result<Vec<(Ino, Vec<u8>)>> {
    let mut statement = db.statement("SELECT parent, name FROM s3_dirty_name WHERE batch <= ?1")?;
    let rows = statement.query_map([signed(batch)], |row| {
        Ok((unsigned(row.get(0)?), row.get(1)?))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn is_dirty_inode(db: &Db, ino: Ino) -> Result<bool> {
    let found = db.row(
        "SELECT 1 FROM s3_dirty_inode WHERE ino = ?1",
        [signed(ino)],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

pub(super) fn is_dirty_name(db: &Db, parent: Ino, name: &[u8]) -> Result<bool> {
    let found = db.row(
        "SELECT 1 FROM s3_dirty_name WHERE parent = ?1 AND name = ?2",
        params![signed(parent), name],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// Journals a name that has not changed, as if it had.
pub(super) fn journal_name(db: &Db, parent: Ino, name: &[u8]) -> Result<()> {
    db.execute(
        "INSERT INTO s3_dirty_name SELECT ?1, ?2, batch FROM s3_clock WHERE true
         ON CONFLICT (parent, name) DO UPDATE SET batch = excluded.batch",
        params![signed(parent), name],
    )?;
    Ok(())
}

/// Journals a file that has not changed, as if it had.
pub(super) fn journal(db: &Db, parent: Ino, name: &[u8], ino: Ino) -> Result<()> {
    journal_name(db, parent, name)?;
    journal_inode(db, ino)
}

/// Journals an inode that has not changed, as if it had.
pub(super) fn journal_inode(db: &Db, ino: Ino) -> Result<()> {
    db.execute(
        "INSERT INTO s3_dirty_inode SELECT ?1, batch FROM s3_clock WHERE true
         ON CONFLICT (ino) DO UPDATE SET batch = excluded.batch",
        [signed(ino)],
    )?;
    Ok(())
}

/// What the batch has brought up is journalled no more, unless it has changed again.
pub(super) fn clean_inode(db: &Db, ino: Ino, batch: u64) -> Result<()> {
    db.execute(
        "DELETE FROM s3_dirty_inode WHERE ino = ?1 AND batch <= ?2",
        [signed(ino), signed(batch)],
    )?;
    Ok(())
}

pub(super) fn clean_name(db: &Db, parent: Ino, name: &[u8], batch: u64) -> Result<()> {
    db.execute(
        "DELETE FROM s3_dirty_name WHERE parent = ?1 AND name = ?2 AND batch <= ?3",
        params![signed(parent), name, signed(batch)],
    )?;
    Ok(())
}

type ObjectRow = (i64, Vec<u8>, String, i64, String, String);

fn object_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<ObjectRow> {
    Ok((
        row.get(0)?,
        row.get(1)?,
        row.get(2)?,
        row.get(3)?,
        row.get(4)?,
        row.get(5)?,
    ))
}

fn to_object((parent, name, key, ino, etag, meta): ObjectRow) -> Result<Object> {
    Ok(Object {
        parent: unsigned(parent),
        name,
        key,
        ino: unsigned(ino),
        etag,
        meta: parse(&meta)?,
    })
}

pub(super) fn object(db: &Db, parent: Ino, name: &[u8]) -> Result<Option<Object>> {
    let found = db.row(OBJECT_BY_NAME, params![signed(parent), name], object_row)?;
    found.map(to_object).transpose()
}

pub(super) fn object_of_key(db: &Db, key: &str) -> Result<Option<Object>> {
    let found = db.row(OBJECT_BY_KEY, [key], object_row)?;
    found.map(to_object).transpose()
}

const OBJECT_BY_KEY: &str =
    "SELECT parent, name, key, ino, etag, meta FROM s3_object WHERE key = ?1";
const OBJECT_BY_NAME: &str =
    "SELECT parent, name, key, ino, etag, meta FROM s3_object WHERE parent = ?1 AND name = ?2";
const OBJECT_BY_INO: &str =
    "SELECT parent, name, key, ino, etag, meta FROM s3_object WHERE ino = ?1";
const ALL_OBJECTS: &str = "SELECT parent, name, key, ino, etag, meta FROM s3_object";

pub(super) fn objects_of(db: &Db, ino: Ino) -> Result<Vec<Object>> {
    let mut statement = db.statement(OBJECT_BY_INO)?;
    let rows = statement.query_map([signed(ino)], object_row)?;
    rows.map(|row| to_object(row?)).collect()
}

pub(super) fn objects(db: &Db) -> Result<Vec<Object>> {
    let mut statement = db.statement(ALL_OBJECTS)?;
    let rows = statement.query_map((), object_row)?;
    rows.map(|row| to_object(row?)).collect()
}

/// The entity tags and versions of all objects, by key.
pub(super) fn etags(db: &Db) -> Result<HashMap<String, (String, u64)>> {
    let mut statement = db.statement("SELECT key, etag, version FROM s3_object")?;
    let rows = statement.query_map((), |row| {
        Ok((row.get(0)?, (row.get(1)?, unsigned(row.get(2)?))))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The version that the last object of a key had which is no more; 0 if there was none that this cache knows of.
pub(super) fn last_version(db: &Db, key: &str) -> Result<u64> {
    let found = db.row(
        "SELECT version FROM s3_version WHERE key = ?1",
        [key],
        |row| row.get(0).map(unsigned),
    )?;
    Ok(found.unwrap_or(0))
}

/// The entity tag that the last object of a key had which is no more.
pub(super) fn last_etag(db: &Db, key: &str) -> Result<Option<String>> {
    db.row(
        "SELECT etag FROM s3_last_etag WHERE key = ?1",
        [key],
        |row| row.get(0),
    )
}

/// Notes whether an object was written with the content it had.
pub(super) fn set_touched(db: &Db, key: &str, version: u64) -> Result<()> {
    db.execute(
        "INSERT INTO s3_touched VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET version = excluded.version",
        params![key, signed(version)],
    )?;
    Ok(())
}

/// An object is gone: there is nothing to say of it.
pub(super) fn forget_touched(db: &Db, key: &str) -> Result<()> {
    db.execute("DELETE FROM s3_touched WHERE key = ?1", [key])?;
    Ok(())
}

/// What the manifest has to say of objects whose entity tags do not tell.
pub(super) fn touched(db: &Db) -> Result<BTreeMap<String, u64>> {
    let mut statement = db.statement("SELECT key, version FROM s3_touched")?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, unsigned(row.get(1)?))))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The manifest says so now.
pub(super) fn clear_touched(db: &Db, said: &BTreeMap<String, u64>) -> Result<()> {
    for (key, version) in said {
        db.execute(
            "DELETE FROM s3_touched WHERE key = ?1 AND version <= ?2",
            params![key, signed(*version)],
        )?;
    }
    Ok(())
}

pub(super) fn put_object(db: &Db, object: &Object) -> Result<()> {
    // A key is one name's: whatever had it before has lost it.
    db.execute(
        "DELETE FROM s3_object WHERE key = ?1 AND NOT (parent = ?2 AND name = ?3)",
        params![object.key, signed(object.parent), object.name],
    )?;
    db.execute(
        "INSERT INTO s3_object (parent, name, key, ino, etag, version, meta) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (parent, name) DO UPDATE SET key = excluded.key, ino = excluded.ino,
           etag = excluded.etag, version = excluded.version, meta = excluded.meta",
        params![
            signed(object.parent),
            object.name,
            object.key,
            signed(object.ino),
            object.etag,
            signed(object.meta.version),
            json(&object.meta)?,
        ],
    )?;
    Ok(())
}

pub(super) fn remove_object(db: &Db, parent: Ino, name: &[u8]) -> Result<()> {
    db.execute(
        "DELETE FROM s3_object WHERE parent = ?1 AND name = ?2",
        params![signed(parent), name],
    )?;
    Ok(())
}

/// The prefix of a directory, if it has one yet, and what the manifest says of it.
pub(super) fn directory(db: &Db, dir: Ino) -> Result<Option<(String, Option<Entry>)>> {
    let found: Option<(String, Option<String>)> = db.row(
        "SELECT prefix, entry FROM s3_directory WHERE ino = ?1",
        [signed(dir)],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )?;
    found
        .map(|(prefix, entry)| Ok((prefix, entry.as_deref().map(parse).transpose()?)))
        .transpose()
}

pub(super) fn directory_of_prefix(db: &Db, prefix: &str) -> Result<Option<Ino>> {
    db.row(
        "SELECT ino FROM s3_directory WHERE prefix = ?1",
        [prefix],
        |row| row.get(0).map(unsigned),
    )
}

pub(super) fn set_directory(db: &Db, dir: Ino, prefix: &str, entry: Option<&Entry>) -> Result<()> {
    let entry = entry.map(json).transpose()?;
    db.execute(
        "INSERT INTO s3_directory VALUES (?1, ?2, ?3)
         ON CONFLICT (ino) DO UPDATE SET prefix = excluded.prefix, entry = excluded.entry",
        params![signed(dir), prefix, entry],
    )?;
    Ok(())
}

pub(super) fn remove_directory(db: &Db, prefix: &str) -> Result<()> {
    db.execute("DELETE FROM s3_directory WHERE prefix = ?1", [prefix])?;
    Ok(())
}

/// Prefixes whose directories are gone.
pub(super) fn removed_directories(db: &Db) -> Result<Vec<(String, bool)>> {
    let mut statement = db.statement(
        "SELECT prefix, entry IS NOT NULL FROM s3_directory d WHERE NOT EXISTS
         (SELECT 1 FROM inode WHERE inode.ino = d.ino AND inode.nlink > 0)",
    )?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// All directories that the manifest has an entry of.
pub(super) fn entries(db: &Db) -> Result<Vec<(Ino, String, Entry)>> {
    let mut statement =
        db.statement("SELECT ino, prefix, entry FROM s3_directory WHERE entry IS NOT NULL")?;
    let rows = statement.query_map((), |row| {
        Ok((unsigned(row.get(0)?), row.get(1)?, row.get::<_, String>(2)?))
    })?;
    rows.map(|row| {
        let (ino, prefix, entry) = row?;
        Ok((ino, prefix, parse(&entry)?))
    })
    .collect()
}

/// The name of a directory in its parent.
pub(super) fn name_of(db: &Db, parent: Ino, dir: Ino) -> Result<Vec<u8>> {
    let name = db.row(
        "SELECT name FROM dirent WHERE parent = ?1 AND ino = ?2",
        [signed(parent), signed(dir)],
        |row| row.get(0),
    )?;
    name.ok_or_else(|| Errno::NOENT.into())
}

/// The prefix of a directory; a new one gets its path, or the next free one like it.
pub(super) fn ensure_prefix(db: &Db, dir: Ino, seal: Option<&Seal>) -> Result<String> {
    if let Some((prefix, _)) = directory(db, dir)? {
        return Ok(prefix);
    }
    let parent = nodes::parent(db, dir)?;
    let above = ensure_prefix(db, parent, seal)?;
    let component = layout::component(&name_of(db, parent, dir)?, seal);
    let free = free_key(db, &format!("{above}{component}"))?;
    let prefix = format!("{free}/");
    set_directory(db, dir, &prefix, None)?;
    Ok(prefix)
}

/// A key that is no file's, and no directory's: the given one, or the next free one like it.
pub(super) fn free_key(db: &Db, key: &str) -> Result<String> {
    let mut free = key.to_owned();
    let mut other = 2;
    while object_of_key(db, &free)?.is_some()
        || directory_of_prefix(db, &format!("{free}/"))?.is_some()
    {
        free = format!("{key}~{other}");
        other += 1;
    }
    Ok(free)
}

/// The prefix of the parent, and the last component, of a prefix.
pub(super) fn split_prefix(prefix: &str) -> (&str, &str) {
    let path = prefix.strip_suffix('/').unwrap_or(prefix);
    match path.rfind('/') {
        Some(at) => (&prefix[..=at], &path[at + 1..]),
        None => ("", path),
    }
}

/// What the manifest has to say of a directory: `None` if its files' keys say it all.
pub(super) fn needed_entry(db: &Db, dir: Ino, seal: Option<&Seal>) -> Result<Option<Entry>> {
    if dir == ROOT {
        return Ok(None);
    }
    let attr = nodes::get_directory(db, dir)?;
    let prefix = ensure_prefix(db, dir, seal)?;
    let parent = nodes::parent(db, dir)?;
    let entry = Entry {
        parent: ensure_prefix(db, parent, seal)?,
        name: layout::component(&name_of(db, parent, dir)?, seal),
        permissions: attr.permissions,
    };
    let is_plain = split_prefix(&prefix) == (entry.parent.as_str(), entry.name.as_str());
    let is_said =
        is_plain && attr.permissions == DIRECTORY_PERMISSIONS && has_files_below(db, dir)?;
    Ok((!is_said).then_some(entry))
}

/// Whether there is a file in a directory or in a plain one of its directories.
fn has_files_below(db: &Db, dir: Ino) -> Result<bool> {
    let found = db.row(
        "SELECT 1 FROM dirent WHERE parent = ?1 AND mode <> ?2 LIMIT 1",
        params![signed(dir), Kind::Directory.mode_bits()],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

pub(super) fn add_audit(db: &Db, json: &str) -> Result<()> {
    db.execute("INSERT INTO s3_audit (json) VALUES (?1)", [json])?;
    Ok(())
}

/// What is to go into the audit log, and the last line of it.
pub(super) fn audit(db: &Db) -> Result<(String, i64)> {
    let mut statement = db.statement("SELECT line, json FROM s3_audit ORDER BY line")?;
    let mut rows = statement.query(())?;
    let (mut text, mut last) = (String::new(), 0);
    while let Some(row) = rows.next()? {
        last = row.get(0)?;
        text.push_str(&row.get::<_, String>(1)?);
        text.push('\n');
    }
    Ok((text, last))
}

pub(super) fn audited(db: &Db, last: i64) -> Result<()> {
    db.execute("DELETE FROM s3_audit WHERE line <= ?1", [last])?;
    Ok(())
}
