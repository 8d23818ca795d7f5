//! The index of notes: reads and indexes the files that triggers have marked as changed.
//!
//! The triggers run in the transaction of the change, also on a `sqlite` mount, so no change is missed.

use fuse::store::{Attr, Ino, Kind, Result, StoreError, Timestamp};
use rusqlite::params;
use sqlite::HEAD;
use sqlite::tables::nodes::{self, signed, unsigned};
use sqlite::tables::{Db, content, xattrs};

use crate::NoteFiles;
use crate::merging;
use crate::metadata::{DEFAULT_IMPORTANCE, Metadata, head};
use crate::passage;
use crate::paths::{PathCache, found_as};
use crate::words::{fingerprint, stem, words};

/// The version of the index, as in `schema.sql`.
const VERSION: &str = "4";

/// The authors of marked files, as a mount noted them that ended before it indexed the files. An author counts until the
/// file changes again.
const AUTHORS: &str = "CREATE TABLE IF NOT EXISTS memory_author (
    ino    INTEGER PRIMARY KEY,
    ctime  INTEGER NOT NULL,
    author TEXT NOT NULL
) STRICT";

/// The most events kept for `:history`.
const EVENTS: i64 = 100_000;

/// Creates the index in a database that has none, and checks its version.
pub(super) fn prepare(db: &Db) -> Result<()> {
    if !is_prepared(db)? {
        db.connection.execute_batch(include_str!("schema.sql"))?;
    }
    // A database of an earlier ctxbench lacks it.
    db.connection.execute_batch(AUTHORS)?;
    check_version(db)?;
    merging::prepare(db)
}

/// Checks the version of the index.
pub(super) fn check_version(db: &Db) -> Result<()> {
    let version: Option<String> =
        db.row("SELECT value FROM memory_setting WHERE name = 'version'", (), |row| row.get(0))?;
    if version.as_deref() != Some(VERSION) {
        let reason = format!(
            "the index of notes has version {}, and this ctxbench knows version {VERSION}: remove the index (docs/MEMORY.md); the next mount builds a new one",
            version.unwrap_or_default()
        );
        return Err(StoreError::storage(fuse::store::Errno::INVAL, reason));
    }
    Ok(())
}

/// Whether the database has an index.
pub(super) fn is_prepared(db: &Db) -> Result<bool> {
    let exists = db.row("SELECT 1 FROM sqlite_schema WHERE name = 'memory_setting'", (), |_| Ok(()))?;
    Ok(exists.is_some())
}

/// Marks an inode.
pub(super) fn mark(db: &Db, ino: Ino) -> Result<()> {
    db.execute("INSERT INTO memory_stale VALUES (?1) ON CONFLICT (ino) DO NOTHING", [signed(ino)]).map(|_| ())
}

/// The author of changes that are indexed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author<'a> {
    /// This mount's agent; empty if it was given no name. `None` if no change is of this mount.
    pub(super) agent: Option<&'a str>,
    /// Changes before this time are of an earlier mount.
    pub(super) since: Timestamp,
}

impl<'a> Author<'a> {
    /// The author of a change made at `at`; `None` for one of an earlier mount.
    fn of(self, at: Timestamp) -> Option<&'a str> {
        self.agent.filter(|_| at >= self.since)
    }
}

/// Notes the author of the marked files that are not indexed; answers how many inodes are marked.
pub(super) fn leave(db: &Db, agent: &str, since: Timestamp) -> Result<u64> {
    if !agent.is_empty() {
        db.execute(
            "INSERT OR REPLACE INTO memory_author
             SELECT s.ino, i.ctime, ?1 FROM memory_stale s JOIN inode i ON i.ino = s.ino
             WHERE i.mode & 61440 = 32768 AND i.ctime >= ?2",
            params![agent, since.0],
        )?;
    }
    waiting(db)
}

/// The number of marked inodes, which wait to be indexed.
pub(super) fn waiting(db: &Db) -> Result<u64> {
    let waiting = db.row("SELECT count(*) FROM memory_stale", (), |row| row.get(0))?;
    Ok(unsigned(waiting.unwrap_or(0)))
}

/// The author of a file that an earlier mount has left to index; `None` if it noted none, or if the file has changed since.
fn left_author(db: &Db, attr: &Attr) -> Result<Option<String>> {
    db.row("SELECT author FROM memory_author WHERE ino = ?1 AND ctime = ?2", [signed(attr.ino), attr.ctime.0], |row| {
        row.get(0)
    })
}

/// Forgets the authors of files that are indexed by now.
pub(super) fn forget_authors(db: &Db) -> Result<()> {
    db.execute("DELETE FROM memory_author", ()).map(|_| ())
}

/// The number of notes.
pub(super) fn count(db: &Db) -> Result<u64> {
    let count = db.row("SELECT count(*) FROM memory_note", (), |row| row.get(0))?;
    Ok(unsigned(count.unwrap_or(0)))
}

/// A note as it was indexed.
struct IndexedNote {
    id: i64,
    size: u64,
    changed: Timestamp,
    author: String,
    name: Vec<u8>,
    tags: String,
    words: Vec<u8>,
}

/// The result of a refresh.
#[derive(Debug, Default)]
pub(super) struct RefreshResult {
    /// The change in the number of notes.
    pub(super) notes: i64,
    /// The number of inodes processed.
    pub(super) looked_at: usize,
    /// Whether the caller must call [`refresh`] again.
    pub(super) has_more: bool,
    /// When the next note expires.
    pub(super) next_expiry: Option<Timestamp>,
    /// Notes with new content, and notes whose content is gone. Vectors are updated from both.
    pub(super) added: Vec<i64>,
    pub(super) forgotten: Vec<i64>,
}

/// Indexes at most `batch` marked inodes, in the caller's transaction.
///
/// `turn` holds the inodes marked when it was last empty, the oldest last, so that they are indexed in the order of
/// their times. Directories are last of all: they mark the files below, which may be in the turn already.
pub(super) fn refresh(
    db: &Db,
    (files, paths): (&dyn NoteFiles, &PathCache),
    author: Author<'_>,
    now: Timestamp,
    turn: &mut Vec<i64>,
    batch: usize,
) -> Result<RefreshResult> {
    let mut done = RefreshResult::default();
    expire(db, now)?;
    if turn.is_empty() {
        let mut statement = db.statement(
            "SELECT s.ino FROM memory_stale s LEFT JOIN inode i ON i.ino = s.ino
             ORDER BY coalesce(i.mode, 0) & 61440 = 16384, i.mtime DESC, s.ino DESC",
        )?;
        let inos = statement.query_map((), |row| row.get(0))?;
        *turn = inos.collect::<rusqlite::Result<_>>()?;
    }
    let batch = turn.split_off(turn.len().saturating_sub(batch));
    for ino in batch.into_iter().rev() {
        done.looked_at += 1;
        let is_marked = db.execute("DELETE FROM memory_stale WHERE ino = ?1", [ino])? > 0;
        let ino = unsigned(ino);
        let indexed = indexed(db, ino)?;
        let was = i64::from(indexed.is_some());
        let is = match nodes::find(db, ino)? {
            Some(attr) if attr.kind == Kind::Directory => {
                if is_marked {
                    expand(db, paths, ino)?;
                }
                false
            }
            Some(attr) if attr.kind == Kind::File && attr.nlink > 0 && files.lacks(db, ino)? => {
                // What the index has is of another content.
                if let Some(indexed) = indexed {
                    forget_content(db, indexed.id, &mut done)?;
                }
                false
            }
            Some(attr) if attr.kind == Kind::File && attr.nlink > 0 => {
                index(db, paths, author.of(attr.ctime), now, &attr, indexed, &mut done)?
            }
            _ => {
                remove(db, ino, indexed, now, &mut done)?;
                false
            }
        };
        done.notes += i64::from(is) - was;
    }
    let stale = db.row("SELECT 1 FROM memory_stale LIMIT 1", (), |_| Ok(()))?;
    done.has_more = stale.is_some();
    done.next_expiry = next_expiry(db)?;
    Ok(done)
}

/// When the next note expires.
pub(super) fn next_expiry(db: &Db) -> Result<Option<Timestamp>> {
    let next =
        db.row("SELECT min(expires) FROM memory_note WHERE expires IS NOT NULL AND is_found = 1", (), |row| {
            row.get::<_, Option<i64>>(0)
        })?;
    Ok(next.flatten().map(Timestamp))
}

/// Removes expired notes from the full text index.
fn expire(db: &Db, now: Timestamp) -> Result<()> {
    let expired: Vec<i64> = {
        let mut statement =
            db.statement("SELECT id FROM memory_note WHERE expires IS NOT NULL AND expires <= ?1 AND is_found = 1")?;
        let ids = statement.query_map([now.0], |row| row.get(0))?;
        ids.collect::<rusqlite::Result<_>>()?
    };
    for id in expired {
        db.execute("DELETE FROM memory_text WHERE rowid = ?1", [id])?;
        db.execute("UPDATE memory_note SET is_found = 0 WHERE id = ?1", [id])?;
    }
    Ok(())
}

fn indexed(db: &Db, ino: Ino) -> Result<Option<IndexedNote>> {
    db.row(
        "SELECT id, size, changed, author, name, tags, words FROM memory_note WHERE ino = ?1",
        [signed(ino)],
        |row| {
            Ok(IndexedNote {
                id: row.get(0)?,
                size: unsigned(row.get(1)?),
                changed: Timestamp(row.get(2)?),
                author: row.get(3)?,
                name: row.get(4)?,
                tags: row.get(5)?,
                words: row.get(6)?,
            })
        },
    )
}

/// Marks every file below a new or moved directory, and below all other marked directories, whose marks it removes: one
/// after the other, nested directories would take quadratic time.
fn expand(db: &Db, paths: &PathCache, dir: Ino) -> Result<()> {
    db.execute(
        "WITH RECURSIVE below (ino, mode) AS (
           SELECT ?1, 16384
           UNION
           SELECT s.ino, 16384 FROM memory_stale s JOIN inode i ON i.ino = s.ino WHERE i.mode & 61440 = 16384
           UNION
           SELECT d.ino, d.mode FROM below b JOIN dirent d ON d.parent = b.ino WHERE b.mode = 16384
         )
         INSERT INTO memory_stale SELECT ino FROM below WHERE mode = 32768 ON CONFLICT (ino) DO NOTHING",
        [signed(dir)],
    )?;
    let marked: Vec<i64> = {
        let mut statement = db.statement(
            "DELETE FROM memory_stale
             WHERE ino IN (SELECT s.ino FROM memory_stale s JOIN inode i ON i.ino = s.ino WHERE i.mode & 61440 = 16384)
             RETURNING ino",
        )?;
        let inos = statement.query_map((), |row| row.get(0))?;
        inos.collect::<rusqlite::Result<_>>()?
    };
    // The thread that moved them may not have cleared the cached paths yet.
    for dir in marked.into_iter().map(unsigned).chain([dir]) {
        paths.forget(dir);
    }
    Ok(())
}

fn remove(db: &Db, ino: Ino, indexed: Option<IndexedNote>, now: Timestamp, done: &mut RefreshResult) -> Result<()> {
    let Some(indexed) = indexed else {
        return Ok(());
    };
    db.execute(
        "INSERT INTO memory_event (at, what, ino, dir, name, size, author)
         SELECT ?2, 'removed', ino, dir, name, size, author FROM memory_note WHERE ino = ?1",
        params![signed(ino), now.0],
    )?;
    forget_content(db, indexed.id, done)
}

/// Removes a note from the index, and its vector.
fn forget_content(db: &Db, id: i64, done: &mut RefreshResult) -> Result<()> {
    db.execute("DELETE FROM memory_embedding WHERE id = ?1", [id])?;
    done.forgotten.push(id);
    forget(db, id)
}

fn forget(db: &Db, id: i64) -> Result<()> {
    db.execute("DELETE FROM memory_text WHERE rowid = ?1", [id])?;
    db.execute("DELETE FROM memory_note WHERE id = ?1", [id])?;
    Ok(())
}

/// The indexed part of a note's text: its first 256 KiB. `None` if it is not text.
pub(super) fn text(db: &Db, attr: &Attr) -> Result<Option<String>> {
    text_from(db, attr, 0)
}

/// As [`text`], from byte `from` on.
pub(super) fn text_from(db: &Db, attr: &Attr, from: usize) -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let size = (HEAD as usize).saturating_sub(from);
    content::read(db, attr.ino, from as u64, size, &mut bytes)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let utf8 = error.utf8_error();
            // The limit may cut a character.
            let is_cut = utf8.error_len().is_none() && attr.size > HEAD;
            let valid = utf8.valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(valid);
            is_cut.then(|| String::from_utf8_lossy(&bytes).into_owned())
        }
    })
}

/// The metadata in the extended attributes of a file.
pub(super) fn attributes(db: &Db, ino: Ino) -> Result<Metadata> {
    let mut said = Metadata::default();
    for name in xattrs::list(db, ino)? {
        let value = xattrs::get(db, ino, &name)?;
        if let Err(reason) = said.take(&name, &value) {
            // A `sqlite` mount sets attributes without a check.
            tracing::warn!(ino, reason, "an attribute was not indexed");
        }
    }
    Ok(said)
}

/// When a note expires that was changed at `changed` and lives for `ttl` seconds.
pub(super) fn expiry(changed: Timestamp, ttl: u64) -> Timestamp {
    let nanos = i64::try_from(ttl).ok().and_then(|seconds| seconds.checked_mul(1_000_000_000)).unwrap_or(i64::MAX);
    Timestamp(changed.0.saturating_add(nanos))
}

/// Indexes a file. False if it has no name.
fn index(
    db: &Db,
    paths: &PathCache,
    agent: Option<&str>,
    now: Timestamp,
    attr: &Attr,
    indexed: Option<IndexedNote>,
    done: &mut RefreshResult,
) -> Result<bool> {
    let Some((dir, name)) = found_as(db, paths, attr.ino)? else {
        if let Some(indexed) = indexed {
            forget_content(db, indexed.id, done)?;
        }
        return Ok(false);
    };
    let dir_path = paths.of(db, dir)?;
    let text = text(db, attr)?;
    let is_text = text.is_some();
    let text = text.unwrap_or_default();
    let head = head(&text);
    let said = attributes(db, attr.ino)?.or(head.metadata);
    let tags = said.tags.unwrap_or_default().join(",");
    let shown_name = String::from_utf8_lossy(&name);
    let body = &text[head.body..];
    // Drop the extension: every note would match `md`.
    let name_text = shown_name.rsplit_once('.').map_or(&*shown_name, |(before, _)| before);
    let print = fingerprint([name_text, &*tags, body]);
    let same_content = indexed.as_ref().is_some_and(|indexed| {
        let is_described_alike = indexed.name == name && indexed.tags == tags;
        // An edit may keep the size, and `touch` may give back the time.
        let is_edited = is_described_alike && indexed.words != print;
        indexed.changed == attr.mtime && indexed.size == attr.size && !is_edited
    });
    let author = match (said.author, &indexed, agent) {
        (Some(author), _, _) => author,
        (None, Some(indexed), _) if same_content => indexed.author.clone(),
        (None, _, Some(agent)) => agent.to_owned(),
        (None, _, None) => left_author(db, attr)?.unwrap_or_default(),
    };
    let expires = said.ttl.map(|ttl| expiry(attr.mtime, ttl));
    let is_found = expires.is_none_or(|expires| expires > now);
    let importance = said.importance.unwrap_or(DEFAULT_IMPORTANCE);
    let path = format!("{}/{shown_name}", dir_path.path);
    let heading = passage::heading(&path, importance, &tags, &author);
    let tokens = passage::whole(body).map(|body| tokens::count(&(heading.clone() + &body)));

    let what = if indexed.is_none() { "written" } else { "changed" };
    let id = match indexed {
        Some(indexed) if same_content => {
            forget(db, indexed.id)?;
            indexed.id
        }
        indexed => {
            if let Some(indexed) = indexed {
                forget_content(db, indexed.id, done)?;
            }
            let at = if agent.is_some() { now } else { attr.mtime };
            record(db, at, what, attr, dir, &name, &author)?;
            let last = db.row("SELECT max(id) FROM memory_note", (), |row| row.get::<_, Option<i64>>(0))?;
            let id = last.flatten().unwrap_or(0) + 1;
            done.added.push(id);
            id
        }
    };
    db.execute(
        "INSERT INTO memory_note (id, ino, dir, name, size, changed, importance, tags, author, expires, is_text,
                                  is_found, body, heading, tokens, words)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            id,
            signed(attr.ino),
            signed(dir),
            name,
            signed(attr.size),
            attr.mtime.0,
            importance,
            tags,
            author,
            expires.map(|at| at.0),
            is_text,
            is_found,
            head.body as i64,
            heading,
            tokens.map(signed),
            print,
        ],
    )?;
    if is_found {
        let within: Vec<String> = dir_path.chain.iter().map(|dir| format!("d{dir}")).collect();
        let name_words: Vec<String> = words(name_text).collect();
        let stems = stems([name_text, &*tags, body]);
        db.execute(
            "INSERT INTO memory_text (rowid, name, tags, text, stems, within) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![id, name_words.join(" "), tags, body, stems, within.join(" ")],
        )?;
    }
    Ok(true)
}

/// The stems of words that are not the word itself, separated by spaces.
fn stems<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut stems = String::new();
    for word in texts.into_iter().flat_map(words) {
        let stem = stem(&word);
        if stem != word {
            stems += &stem;
            stems.push(' ');
        }
    }
    stems
}

fn record(db: &Db, at: Timestamp, what: &str, attr: &Attr, dir: Ino, name: &[u8], author: &str) -> Result<()> {
    // The event must not be older than the file and its directory: readers take an older event for one of an
    // earlier file with the same inode number.
    let made = nodes::find(db, dir)?.map_or(attr.btime, |dir| dir.btime.max(attr.btime));
    db.execute(
        "INSERT INTO memory_event (at, what, ino, dir, name, size, author) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![at.max(made).0, what, signed(attr.ino), signed(dir), name, signed(attr.size), author],
    )?;
    let last = db.connection.last_insert_rowid();
    if last % 256 == 0 {
        db.execute("DELETE FROM memory_event WHERE id <= ?1", [last - EVENTS])?;
    }
    Ok(())
}
