//! What a cache remembers of the server between mounts, and whether there is enough of the file to be one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rusqlite::{Connection, OpenFlags, OptionalExtension};

use super::remote::S3OpenError;
use super::{Conditions, cache, mark};
use crate::sqlite::db::Db;
use crate::sqlite::{is_cut, log_mark};
use crate::store::Result;

/// The word for conditions that are honoured.
pub(super) const HONOURED: &str = "honoured";

/// What an earlier mount has found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// Whose cache it is.
    pub(super) of: String,
    pub(super) conditions: Option<Conditions>,
    /// The mark that the bucket had, if it had one.
    pub(super) mark: Option<mark::Known>,
    /// What tells a wrong key, as it is in the bucket.
    pub(super) seal_check: Option<Vec<u8>>,
}

fn known_from<E>(
    setting: impl Fn(&str) -> std::result::Result<Option<String>, E>,
) -> std::result::Result<Known, E> {
    let of_parts = setting("conditions_of_parts")?;
    let conditions = setting("conditions")?.map(|word| Conditions {
        are_honoured: word == HONOURED,
        are_honoured_of_parts: of_parts.is_some_and(|word| word == HONOURED),
    });
    let seal_check = setting("seal_check")?;
    let mark = match setting("mark")? {
        Some(id) => Some(mark::Known::Own(id)),
        None => setting("marked")?.map(mark::Known::InServer),
    };
    Ok(Known {
        of: setting("of")?.unwrap_or_default(),
        conditions,
        mark,
        seal_check: seal_check.and_then(|check| STANDARD.decode(check).ok()),
    })
}

/// What a cache that is open remembers.
pub(super) fn settings(db: &Db) -> Result<Known> {
    known_from(|name| cache::setting(db, name))
}

/// What the file of a cache remembers, before it is opened as one; `None` if it is none, or cannot be read, which
/// opening it then says.
pub(super) fn read(file: &Path) -> Option<Known> {
    if !file.exists() {
        return None;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags).ok()?;
    connection.busy_timeout(Duration::from_secs(5)).ok()?;
    log_mark::leave(&connection, file).ok()?;
    known_from(|name| setting(&connection, name)).ok()
}

/// A setting of a cache that is not opened as one.
pub(super) fn setting(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    let mut statement = connection.prepare("SELECT value FROM s3_setting WHERE name = ?1")?;
    statement.query_row([name], |row| row.get(0)).optional()
}

pub(super) fn keep_seal_check(db: &Db, check: &[u8]) -> Result<()> {
    cache::set(db, "seal_check", &STANDARD.encode(check))
}

/// The bucket has this mark, and what is here is held against what is there.
pub(super) fn keep_mark(db: &Db, mark: &str) -> Result<()> {
    cache::set(db, "mark", mark)
}

pub(super) fn keep_conditions(db: &Db, conditions: Conditions, mark: Option<&str>) -> Result<()> {
    if let Some(mark) = mark {
        keep_mark(db, mark)?;
    }
    let word = |are_honoured: bool| if are_honoured { HONOURED } else { "ignored" };
    cache::set(db, "conditions", word(conditions.are_honoured))?;
    let of_parts = word(conditions.are_honoured_of_parts);
    cache::set(db, "conditions_of_parts", of_parts)
}

/// A file that belongs to a database: its log, the index of that, or its tails.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Refuses a cache that was cut to nothing while its log was not: SQLite takes it for a new one, and removes the log.
pub(super) fn must_not_be_cut(file: &Path) -> std::result::Result<(), S3OpenError> {
    if log_mark::has_log(file) && is_cut(file) {
        let log = log_mark::log_of(file);
        return Err(S3OpenError::Damaged {
            file: file.to_owned(),
            reason: format!("it is empty, and its log {} is not", log.display()),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::SqliteStore;
    use crate::sqlite::log_mark::tests::{OWNER, killed_while_copying};

    #[test]
    fn asking_a_killed_daemons_cache_does_not_take_its_log_away() {
        let dir = tempfile::tempdir().unwrap();
        let cache = killed_while_copying(dir.path());
        // It is no cache of a bucket, and so nothing is known from it.
        assert!(read(&cache).is_none());
        SqliteStore::open(&cache, &OWNER).unwrap();
    }
}
