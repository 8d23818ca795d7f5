//! A plain directory as a table: a row for each file below it, kept up to date by the kernel's notices.
//!
//! Changes that give no notice (by `mmap`, or by another host on a network file system) are seen within a second.

use std::collections::{HashMap, HashSet};
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ToSql, params};

use super::super::definition::SourceDefinition;
use super::sqlite::{Sqlite, Tables};
use crate::store::{Errno, Result, StoreError};

/// Longer files have no `content`.
const CONTENT_MAX: u64 = 64 << 20;

/// How long the kernel's notices are relied on.
const WALK_EVERY: Duration = Duration::from_secs(1);

/// `key` numbers the paths; `path` is relative, `dir` the path without the name; `modified` is in seconds; `json` is the
/// content if it is JSON. Not the inode number: hard links have one.
const SCHEMA: &str = "
CREATE TABLE file (
  key      INTEGER PRIMARY KEY,
  path     TEXT NOT NULL UNIQUE,
  dir      TEXT NOT NULL,
  name     TEXT NOT NULL,
  size     INTEGER NOT NULL,
  modified REAL NOT NULL,
  content  TEXT,
  json     TEXT AS (CASE WHEN json_valid(content) THEN content END)
);
CREATE INDEX file_dir ON file (dir, name);";

/// A path, or a part of it, as text that need not be UTF-8.
struct Bytes<'a>(&'a [u8]);

impl ToSql for Bytes<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(ValueRef::Text(self.0)))
    }
}

/// What tells that a file has changed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &Metadata) -> Self {
        Self {
            ino: file.ino(),
            size: file.len(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// A path's row.
struct Known {
    key: i64,
    /// `None` if the table does not have the row as it is.
    stamp: Option<Stamp>,
}

struct Directory {
    root: PathBuf,
    notices: Inotify,
    known: HashMap<PathBuf, Known>,
    /// The last key that a path was given.
    last_key: i64,
    walked: Option<Instant>,
    stale: Duration,
}

/// The directory at `root` as a source.
///
/// # Errors
/// Why it cannot be read, in words.
pub(super) fn open(
    root: &Path,
    definition: &SourceDefinition,
) -> std::result::Result<Sqlite, String> {
    let notices = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC);
    let directory = Directory {
        root: root.to_owned(),
        notices: notices.map_err(|error| format!("inotify: {error}"))?,
        known: HashMap::new(),
        last_key: 0,
        walked: None,
        stale: definition.stale(),
    };
    Sqlite::in_memory(SCHEMA, Box::new(directory), definition.timeout())
}

/// The content of a file that has not become a link meanwhile: what is elsewhere is not part of the source.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = std::fs::File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

impl Directory {
    /// Whether the kernel has told of any change since the last call.
    fn has_changed(&self) -> bool {
        let mut any = false;
        // An error means that there is nothing to read, or that the kernel cannot tell: the next walk finds out.
        while let Ok(events) = self.notices.read_events() {
            any = any || !events.is_empty();
        }
        any
    }

    fn walk(&mut self, connection: &Connection) -> Result<()> {
        let away = |path: &Path, error: std::io::Error| {
            StoreError::storage(Errno::IO, format!("the source {}: {error}", path.display()))
        };
        let mut seen = HashSet::new();
        let mut dirs = vec![self.root.clone()];
        connection.execute_batch("BEGIN")?;
        while let Some(dir) = dirs.pop() {
            let flags = AddWatchFlags::IN_MODIFY
                | AddWatchFlags::IN_ATTRIB
                | AddWatchFlags::IN_CREATE
                | AddWatchFlags::IN_DELETE
                | AddWatchFlags::IN_MOVE
                | AddWatchFlags::IN_DELETE_SELF
                | AddWatchFlags::IN_MOVE_SELF;
            // Watched before it is read: what changes meanwhile is told. Without a watch, the walk each second finds it.
            if let Err(error) = self.notices.add_watch(&dir, flags) {
                tracing::debug!(dir = %dir.display(), %error, "watching a directory");
            }
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(_) if dir != self.root => continue,
                Err(error) => return Err(away(&dir, error)),
            };
            for entry in entries.flatten() {
                // What has gone since is told by the next notice.
                let Ok(file) = entry.metadata() else { continue };
                let path = entry.path();
                if file.is_dir() {
                    dirs.push(path);
                } else if file.is_file() {
                    self.take(connection, &path, &file)?;
                    seen.insert(path);
                }
            }
        }
        let gone: Vec<PathBuf> = (self.known.keys().filter(|path| !seen.contains(*path)))
            .cloned()
            .collect();
        for known in gone.iter().filter_map(|path| self.known.remove(path)) {
            let mut delete = connection.prepare_cached("DELETE FROM file WHERE key = ?1")?;
            delete.execute([known.key])?;
        }
        connection.execute_batch("COMMIT")?;
        self.walked = Some(Instant::now());
        Ok(())
    }

    /// Takes a file into the table, if it has changed.
    fn take(&mut self, connection: &Connection, path: &Path, file: &Metadata) -> Result<()> {
        let stamp = Stamp::of(file);
        let known = self.known.entry(path.to_owned()).or_insert_with(|| {
            self.last_key += 1;
            Known {
                key: self.last_key,
                stamp: None,
            }
        });
        if known.stamp.as_ref() == Some(&stamp) {
            return Ok(());
        }
        let content = match file.len() <= CONTENT_MAX {
            true => read(path).ok(),
            false => None,
        };
        // The bytes themselves: two names that are no UTF-8 may be equal in any other form.
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        let dir = relative.parent().unwrap_or(Path::new(""));
        let name = relative.file_name().unwrap_or_default();
        let mut insert = connection
            .prepare_cached("INSERT OR REPLACE INTO file VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        let content = content.map(|bytes| match String::from_utf8(bytes) {
            Ok(text) => rusqlite::types::Value::Text(text),
            Err(error) => rusqlite::types::Value::Blob(error.into_bytes()),
        });
        insert.execute(params![
            known.key,
            Bytes(relative.as_os_str().as_bytes()),
            Bytes(dir.as_os_str().as_bytes()),
            Bytes(name.as_bytes()),
            file.len() as i64,
            file.mtime() as f64 + file.mtime_nsec() as f64 / 1e9,
            content,
        ])?;
        known.stamp = Some(stamp);
        Ok(())
    }
}

impl Tables for Directory {
    fn refresh(&mut self, connection: &Connection, _deadline: Instant) -> Result<()> {
        let age = self.walked.map(|at| at.elapsed());
        if age.is_some_and(|age| age < self.stale) {
            return Ok(());
        }
        if !self.has_changed() && age.is_some_and(|age| age < WALK_EVERY) {
            return Ok(());
        }
        let walked = self.walk(connection);
        if walked.is_err() {
            // Paths keep their keys: the files' inode numbers stay when the source comes back.
            self.known.values_mut().for_each(|known| known.stamp = None);
            self.walked = None;
            // The next walk begins anew: rows of files that have gone by then would stay.
            let emptied = match connection.is_autocommit() {
                true => connection.execute_batch("DELETE FROM file"),
                false => connection.execute_batch("ROLLBACK; DELETE FROM file"),
            };
            if let Err(error) = emptied {
                tracing::warn!(%error, "emptying the table of files");
            }
        }
        walked
    }
}
