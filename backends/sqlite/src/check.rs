//! Checks that a database holds a whole file system, as `fsck` checks a disk.
//!
//! A check changes nothing, and a mounted database can be checked too: all is read in one transaction.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use crate::check_tails::{compare_tails, path_of, short_tails};
use crate::content::{CHUNK, HEAD_CHUNKS, INDEX_BITS, checksum};
use crate::files::{has_log, is_foreign, log_of, open_beside, tails_of};
use crate::names::slots;
use crate::nodes::unsigned;
use crate::open::{
    connect, ensure_not_truncated, ensure_own_files, identify, keep_wal_on_close, missing_log, must_be_ours,
    needs_recovery, open_and_lock, open_immutable, open_pages, read_only_reason, resolve,
};
use crate::open_error::{SqliteOpenError, unreadable};
use crate::{HEAD, batch, header, redo, sum_file};

/// How many findings of one kind are listed one by one.
const SHOWN: usize = 10;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseCheck {
    /// The problems, in words; empty for a whole file system.
    pub problems: Vec<String>,
    /// Inodes that were looked at.
    pub inodes: u64,
    /// Names that were looked at.
    pub names: u64,
    /// Pieces of content that were looked at.
    pub chunks: u64,
    /// Files past whose first 256 KiB every byte was compared with its checksum.
    pub tails: u64,
    /// The paths of files with content past 256 KiB that has no checksums: a changed byte there cannot be found. A mount
    /// computes the checksums of what it wrote at its clean unmount.
    pub unchecked_tails: Vec<String>,
    /// Whether a mount had the database at the end of the check.
    pub is_mounted: bool,
    /// Inodes without a name: open files of a mount, or leftovers of a crash; the next mount frees them.
    pub orphans: u64,
}

/// A rule: a problem and the query that finds the rows with it. A row's first column identifies it.
struct Rule {
    wrong: &'static str,
    query: &'static str,
}

/// `+` keeps SQLite from an index of its own on the mode, which would make the rule quadratic.
///
/// Mode bits in octal: type 0170000, directory 0040000 = 16384, file 0100000 = 32768, link 0120000 = 40960.
const RULES: &[Rule] = &[
    Rule {
        wrong: "the root is not its own parent directory",
        query: "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM inode WHERE ino = 1 AND mode & 61440 = 16384 AND parent = 1)",
    },
    Rule {
        wrong: "an inode has an unknown type",
        query: "SELECT ino FROM inode WHERE mode & 61440 NOT IN (4096, 8192, 16384, 24576, 32768, 40960, 49152)",
    },
    Rule {
        wrong: "a name leads to no inode",
        query: "SELECT quote(name) || ' in ' || parent FROM dirent d WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = d.ino)",
    },
    Rule {
        wrong: "the parent of a name is not a directory",
        query: "SELECT quote(name) || ' in ' || parent FROM dirent d WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = d.parent AND i.mode & 61440 = 16384)",
    },
    Rule {
        wrong: "the type of a name differs from that of its inode",
        query: "SELECT quote(d.name) || ' in ' || d.parent FROM dirent d JOIN inode i USING (ino) WHERE d.mode <> i.mode & 61440",
    },
    Rule {
        wrong: "a directory has the same name twice",
        query: "SELECT quote(name) || ' in ' || parent FROM dirent GROUP BY parent, name HAVING count(*) > 1",
    },
    Rule {
        wrong: "the link count of a file differs from its number of names",
        query: "SELECT i.ino FROM inode i LEFT JOIN (SELECT ino, count(*) AS names FROM dirent GROUP BY ino) USING (ino) WHERE i.mode & 61440 <> 16384 AND i.nlink <> coalesce(names, 0)",
    },
    Rule {
        wrong: "the link count of a directory is not 2 plus its subdirectories",
        query: "SELECT i.ino FROM inode i LEFT JOIN (SELECT parent AS ino, count(*) AS below FROM dirent WHERE mode = 16384 GROUP BY parent) USING (ino) WHERE i.mode & 61440 = 16384 AND i.nlink <> 0 AND i.nlink <> 2 + coalesce(below, 0)",
    },
    Rule {
        wrong: "a removed directory is not empty",
        query: "SELECT i.ino FROM inode i WHERE i.mode & 61440 = 16384 AND i.nlink = 0 AND EXISTS (SELECT 1 FROM dirent d WHERE d.parent = i.ino)",
    },
    Rule {
        wrong: "a directory does not have exactly one name, in its parent directory",
        query: "SELECT i.ino FROM inode i LEFT JOIN (SELECT ino, count(*) AS names, max(parent) AS above FROM dirent GROUP BY ino) USING (ino) WHERE i.mode & 61440 = 16384 AND i.ino <> 1 AND i.nlink <> 0 AND (coalesce(names, 0) <> 1 OR above <> i.parent)",
    },
    Rule {
        wrong: "a directory cannot be reached from the root",
        query: "WITH RECURSIVE reached (ino) AS (SELECT 1 UNION SELECT d.ino FROM reached JOIN dirent d ON d.parent = reached.ino WHERE +d.mode = 16384) SELECT ino FROM inode WHERE mode & 61440 = 16384 AND nlink <> 0 AND ino NOT IN reached",
    },
    Rule {
        wrong: "the size of a symbolic link is not that of its target, or a node has a target and is not a symbolic link",
        query: "SELECT ino FROM inode WHERE (mode & 61440 = 40960) <> (target IS NOT NULL) OR (target IS NOT NULL AND size <> length(target))",
    },
    Rule {
        wrong: "an extended attribute belongs to no inode",
        query: "SELECT ino FROM xattr x WHERE NOT EXISTS (SELECT 1 FROM inode i WHERE i.ino = x.ino)",
    },
];

/// Looks at everything in the database at `path`.
///
/// # Errors
/// See [`SqliteOpenError`], if it is not a ctxbench file system or cannot be read. Damage inside one is
/// not an error but a problem.
pub fn check(path: &Path) -> Result<DatabaseCheck, SqliteOpenError> {
    // SQLite removes the log of an empty file, even for a connection that only reads.
    let path = &resolve(path)?;
    ensure_own_files(path)?;
    ensure_not_truncated(path)?;
    must_be_file_with_content(path)?;
    // Closed after the connection: closing it ends the locks that SQLite has on the file.
    let file = File::open(path).map_err(|error| unreadable(path, &error))?;
    header::check_whole(path, &file)?;
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let DatabaseReader { mut connection, is_there, is_idle } = open_to_read(path, &file)?;
    // Asking whether another process has the lock would give up the own one.
    let is_mounted = || !is_idle && is_mounted(&file);
    let damaged_pages = sqlite_pages::damaged(&connection, has_log(path));
    let mut checked = check_rows(&mut connection).map_err(wrong)?;
    let mut damaged_pages = damaged_pages.map_err(|error| unreadable(path, &error))?;
    if !damaged_pages.is_empty() && !is_mounted() {
        // A power loss during a checkpoint leaves pages of which the disk has written a part. The next mount reads them from
        // the log, and copies all of that again; a mount in use may have copied it already.
        let in_log = pages_in_log(path).map_err(|error| unreadable(path, &error))?;
        damaged_pages.retain(|page| !in_log.contains(page));
    }
    let lacks = || if is_there { missing_log(&connection, path).map_err(wrong) } else { Ok(None) };
    // A mount that ends meanwhile says so before it removes its log: a second look finds that.
    if let Some(log) = lacks()?.map_or(Ok(None), |_| lacks())? {
        let gone = SqliteOpenError::LogGone { path: path.to_owned(), log };
        checked.problems.push(gone.to_string());
    }
    let problems = &mut checked.problems;
    problems.extend(damaged_redo(&connection, path));
    let numbers = damaged_pages.iter().map(u64::to_string);
    note(problems, "a page of the database is damaged", numbers.collect());
    let mut failed = ReadFailures::default();
    let short = failed.note(short_tails(&connection, path));
    note(problems, "content past the first 256 KiB is missing", short);
    let tails = failed.note(compare_tails(&connection, path, is_mounted));
    note(problems, "content past the first 256 KiB has a wrong checksum", tails.damaged);
    problems.extend(failed.0);
    checked.tails = tails.compared;
    checked.unchecked_tails = tails.unchecked;
    checked.is_mounted = is_mounted();
    if !problems.is_empty() {
        note(problems, "lost", lost(&connection));
    }
    Ok(checked)
}

/// The pages that the log of the database at `path` has: a mount that begins reads them there.
fn pages_in_log(path: &Path) -> io::Result<HashSet<u64>> {
    match open_beside(&log_of(path), File::options().read(true)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HashSet::new()),
        log => sqlite_pages::in_log(log?),
    }
}

/// Refuses what holds no database: SQLite would call a directory an error of the disk, and an empty file a damaged one.
fn must_be_file_with_content(path: &Path) -> Result<(), SqliteOpenError> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    let reason = match (metadata.is_file(), metadata.len()) {
        (false, _) => "it is not a regular file",
        (true, 0) if !has_log(path) => "it is empty, so there is nothing to check",
        (true, _) => return Ok(()),
    };
    Err(SqliteOpenError::Unknown { path: path.to_owned(), reason: reason.to_owned() })
}

/// A connection that only reads a database.
struct DatabaseReader {
    connection: Connection,
    /// Whether the database is a file system.
    is_there: bool,
    /// Whether a lock keeps mounts away until the database is closed.
    is_idle: bool,
}

/// Opens the database in `file` to read it.
fn open_to_read(path: &Path, file: &File) -> Result<DatabaseReader, SqliteOpenError> {
    let identified = |connection| Ok((identify(&connection, path)?, connection));
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        open_pages(path, flags).and_then(identified)
    };
    // The lock keeps mounts away: SQLite would not see what they write. It makes no file beside an immutable database.
    let is_idle = !needs_recovery(path) && flock(file, FlockOperation::NonBlockingLockShared).is_ok();
    let (is_there, connection) = match read_only_reason(path) {
        _ if is_idle => open_immutable(path).and_then(identified)?,
        None => open()?,
        // A mount may have the database, and has then made the files that SQLite needs beside it.
        Some(reason) => open().map_err(|error| match error {
            SqliteOpenError::Unreadable { .. } if !is_mounted(file) => {
                SqliteOpenError::NeedsRecovery { path: path.to_owned(), reason }
            }
            error => error,
        })?,
    };
    Ok(DatabaseReader { connection, is_there, is_idle })
}

/// Whether a mount has the database in this file.
fn is_mounted(file: &File) -> bool {
    match flock(file, FlockOperation::NonBlockingLockShared) {
        // A mount that begins just now tries again.
        Ok(()) => flock(file, FlockOperation::Unlock).is_err(),
        Err(_) => true,
    }
}

/// Why rows cannot be looked at: each reason once.
#[derive(Default)]
struct ReadFailures(Vec<String>);

impl ReadFailures {
    /// What was found; nothing, if rows cannot be read.
    fn note<T: Default>(&mut self, found: rusqlite::Result<T>) -> T {
        found.unwrap_or_else(|error| {
            let reason = format!("the database can be checked only in part: {error}");
            if !self.0.contains(&reason) {
                self.0.push(reason);
            }
            T::default()
        })
    }
}

/// Whether the redo log, or the log, lacks changes that were there. A mount may be writing to them: then the next look
/// finds other changes.
fn damaged_redo(connection: &Connection, path: &Path) -> Option<String> {
    let look = || match batch::pending(connection, path) {
        Err(error @ SqliteOpenError::LogDamaged { .. }) => Some(error.to_string()),
        _ => None,
    };
    let mut before = look()?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        let now = look()?;
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

/// Takes from each tail the mark that it has checksums.
fn unseal_all(path: &Path) -> io::Result<()> {
    let entries = match std::fs::read_dir(tails_of(path)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        // Through a link, this would change a file of another program.
        match open_beside(&entry?.path(), File::options().read(true)) {
            Err(error) if is_foreign(&error) => {}
            tail => tail?.set_permissions(std::fs::Permissions::from_mode(0o600))?,
        }
    }
    Ok(())
}

/// Has the database at `path`, whose log is gone, opened in the state in which it is: an earlier one. Of files that
/// are longer than [`super::HEAD`], what is past that may be newer, or gone: of those whose bytes are gone, reading
/// them there fails, and the log of the daemon names them. Answers whether a log was missing at all.
///
/// # Errors
/// As [`super::SqliteStore::open`], and [`SqliteOpenError::NotWhole`] if what is left contradicts itself.
pub fn go_on_without_log(path: &Path) -> Result<bool, SqliteOpenError> {
    if !path.exists() {
        return Ok(false);
    }
    let path = &resolve(path)?;
    must_be_ours(path)?;
    let ownership = match open_and_lock(path) {
        // A mount has the database, and its logs.
        Err(SqliteOpenError::Owned(..)) => return Ok(false),
        owned => owned?,
    };
    if let Some(reason) = &ownership.read_only {
        return Err(SqliteOpenError::ReadOnly {
            path: path.to_owned(),
            reason: reason.clone(),
            fix: "copy it to a directory that you can write to, and mount the copy",
        });
    }
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let mut connection = connect(path)?;
    keep_wal_on_close(&connection, path).map_err(wrong)?;
    if !identify(&connection, path)? {
        return Ok(false);
    }
    let missing_log = missing_log(&connection, path).map_err(wrong)?.is_some();
    let pending = || batch::pending(&connection, path);
    let is_damaged = || matches!(pending(), Err(SqliteOpenError::LogDamaged { .. }));
    if !missing_log && !is_damaged() {
        return Ok(false);
    }
    // A daemon that was killed during a checkpoint may have left pages of two states.
    let checked = check_rows(&mut connection).map_err(wrong)?;
    if let Some(problem) = checked.problems.into_iter().next() {
        return Err(SqliteOpenError::NotWhole { path: path.to_owned(), problem });
    }
    // The end of a file that was deleted or cut since is gone at once, and no sign of two states.
    for short in short_tails(&connection, path).map_err(wrong)? {
        tracing::warn!("{}: content past the first 256 KiB is missing: inode {short}", path.display());
    }
    // They may be those of a later state.
    // A power loss must not cut what may be whole.
    let forget = format!(
        "BEGIN; DELETE FROM tail; DELETE FROM tail_sum;
         INSERT INTO tail SELECT ino, 0, size - {HEAD}, 1 FROM inode WHERE mode & 61440 = 32768 AND size > {HEAD}; COMMIT"
    );
    connection.execute_batch(&forget).map_err(wrong)?;
    unseal_all(path).map_err(|error| unreadable(path, &error))?;
    // The mount then applies the changes before the damage.
    let forgotten = sum_file::forget_boot(path).and_then(|()| redo::forget_boot(path));
    forgotten.map_err(|error| unreadable(path, &error))?;
    let is_damaged = matches!(batch::pending(&connection, path), Err(SqliteOpenError::LogDamaged { .. }));
    if missing_log || is_damaged {
        batch::restore_last_tails(&connection, path)?;
        connection.execute("UPDATE log SET needed = 0, redo = NULL", ()).map_err(wrong)?;
        batch::remove(path);
    }
    Ok(true)
}

/// Looks at the rows and what they hold, not at the log and the tails.
fn check_rows(connection: &mut Connection) -> rusqlite::Result<DatabaseCheck> {
    let db = &connection.transaction_with_behavior(TransactionBehavior::Deferred)?;
    let mut failed = ReadFailures::default();
    let mut count = |sql| {
        let counted = db.query_row(sql, (), |row| row.get(0)).map(unsigned);
        failed.note(counted)
    };
    let mut checked = DatabaseCheck {
        problems: Vec::new(),
        inodes: count("SELECT count(*) FROM inode"),
        names: count("SELECT count(*) FROM dirent"),
        chunks: count("SELECT count(*) FROM chunk"),
        tails: 0,
        unchecked_tails: Vec::new(),
        is_mounted: false,
        orphans: count("SELECT count(*) FROM inode WHERE nlink = 0"),
    };
    let problems = &mut checked.problems;
    let found = failed.note(integrity(db));
    note(problems, "SQLite reports damage to the file", found);
    for rule in RULES {
        note(problems, rule.wrong, failed.note(broken(db, rule)));
    }
    note(problems, "a name is at a place where a lookup does not find it", failed.note(misplaced(db)));
    failed.note(content(db, problems));
    let found = failed.note(damaged(db));
    note(problems, "content has a wrong checksum", found);
    problems.extend(failed.0);
    Ok(checked)
}

/// The rows that break a rule.
fn broken(db: &Connection, rule: &Rule) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare(rule.query)?;
    let rows = statement.query_map((), |row| {
        Ok(match row.get_ref(0)? {
            ValueRef::Integer(number) => number.to_string(),
            other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
        })
    })?;
    rows.collect()
}

/// The paths of everything that has a name and cannot be read. Names before and after a damaged one are still found.
fn lost(db: &Connection) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), HashSet::from([1]));
    let mut directories = vec![(1, String::new())];
    while let Some((dir, path)) = directories.pop() {
        let (entries, is_whole) = names(db, dir);
        if !is_whole {
            found.push(format!("names in {path}/"));
        }
        for (name, ino) in entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(&name));
            let inode = db.query_row("SELECT mode FROM inode WHERE ino = ?1", [ino], |row| row.get::<_, u32>(0));
            let Ok(mode) = inode else {
                found.push(format!("{path}: its attributes, and so the whole file"));
                continue;
            };
            let reads = |query| {
                let mut statement = db.prepare_cached(query)?;
                let mut rows = statement.query([ino])?;
                while let Some(row) = rows.next()? {
                    row.get_ref(0)?;
                }
                Ok::<_, rusqlite::Error>(())
            };
            let content = "SELECT bytes FROM chunk WHERE id >= ?1 << 24 AND id < (?1 + 1) << 24";
            let xattrs = "SELECT value FROM xattr WHERE ino = ?1";
            let target = "SELECT target FROM inode WHERE ino = ?1";
            let sums = "SELECT sums FROM tail_sum WHERE id >= ?1 << 24 AND id < (?1 + 1) << 24";
            for (what, query) in [
                ("its first 256 KiB", content),
                ("its extended attributes", xattrs),
                ("its target", target),
                ("content past the first 256 KiB", sums),
            ] {
                if reads(query).is_err() {
                    found.push(format!("{path}: {what}"));
                }
            }
            if mode & 0o170_000 == 0o040_000 && seen.insert(ino) {
                directories.push((ino, path));
            }
        }
    }
    found
}

/// The names of a directory that can be read, from the first on and from the last one back; and whether that is all.
fn names(db: &Connection, dir: i64) -> (Vec<(Vec<u8>, i64)>, bool) {
    let (mut found, mut slots, mut is_whole) = (Vec::new(), HashSet::new(), true);
    for order in ["ASC", "DESC"] {
        let query = format!("SELECT slot, name, ino FROM dirent WHERE parent = ?1 ORDER BY slot {order}");
        let mut add = || {
            let mut statement = db.prepare_cached(&query)?;
            let mut rows = statement.query([dir])?;
            while let Some(row) = rows.next()? {
                let slot: i64 = row.get(0)?;
                if slots.insert(slot) {
                    found.push((row.get(1)?, row.get(2)?));
                }
            }
            Ok::<_, rusqlite::Error>(())
        };
        is_whole = add().is_ok();
        if is_whole {
            break;
        }
    }
    (found, is_whole)
}

/// Adds the first findings of a kind, and how many more there are.
fn note(problems: &mut Vec<String>, wrong: &str, found: Vec<String>) {
    let more = found.len().saturating_sub(SHOWN);
    problems.extend(found.iter().take(SHOWN).map(|which| format!("{wrong}: {which}")));
    if more > 0 {
        problems.push(format!("{wrong}: and {more} more"));
    }
}

fn integrity(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare("PRAGMA integrity_check")?;
    let rows = statement.query_map((), |row| row.get::<_, String>(0))?;
    let lines: Vec<String> = rows.collect::<Result<_, _>>()?;
    Ok(lines.into_iter().filter(|line| line != "ok").collect())
}

fn misplaced(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare("SELECT parent, slot, name FROM dirent")?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name: Vec<u8> = row.get(2)?;
        let slot = unsigned(row.get(1)?);
        if !slots(&name).contains(&slot) {
            let parent: i64 = row.get(0)?;
            let name = String::from_utf8_lossy(&name);
            found.push(format!("{name:?} in {parent}: slot {slot}"));
        }
    }
    Ok(found)
}

/// Content that differs from its checksum, by the paths of its files.
fn damaged(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = db.prepare("SELECT id, sum, bytes FROM chunk WHERE sum IS NOT NULL")?;
    let mut rows = statement.query(())?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let id: i64 = row.get(0)?;
        // Damage can also make another type of a value.
        let is_whole = match (row.get_ref(1)?, row.get_ref(2)?) {
            (ValueRef::Integer(sum), ValueRef::Blob(bytes)) => sum == checksum(id, bytes),
            _ => false,
        };
        if is_whole {
            continue;
        }
        let (ino, piece) = (id >> INDEX_BITS, id & ((1 << INDEX_BITS) - 1));
        let path = path_of(db, ino);
        found.push(format!("{path}: chunk {piece} of inode {ino}"));
    }
    Ok(found)
}

/// Content belongs to files, stays within their size, and is counted in their blocks.
fn content(db: &Connection, problems: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut statement = db.prepare(
        "SELECT c.id >> ?1, c.id & ?2, length(c.bytes), i.mode, i.size
         FROM chunk c LEFT JOIN inode i ON i.ino = c.id >> ?1",
    )?;
    let mut rows = statement.query([i64::from(INDEX_BITS), (1 << INDEX_BITS) - 1])?;
    let (mut lost, mut outside) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let ino: i64 = row.get(0)?;
        let (index, length) = (unsigned(row.get(1)?), unsigned(row.get(2)?));
        let mode: Option<u32> = row.get(3)?;
        if mode.is_none_or(|mode| mode & 0o170_000 != 0o100_000) {
            lost.push(format!("piece {index} of {ino}"));
            continue;
        }
        let size = unsigned(row.get(4)?);
        // Bytes past the end in the last row, or in the first of an empty file, are left over and harmless.
        if length > CHUNK || index >= HEAD_CHUNKS || (index > 0 && index * CHUNK >= size) {
            outside.push(format!("piece {index} of {ino}: {length} bytes, size {size}"));
        }
    }
    note(problems, "content belongs to no file", lost);
    note(problems, "content reaches past the end of its file", outside);
    let mut statement = db.prepare(
        "SELECT i.ino, i.blocks, coalesce(held, 0) FROM inode i LEFT JOIN
           (SELECT id >> ?1 AS ino, sum((length(bytes) + 4095) / 4096 * 8) AS held FROM chunk GROUP BY 1)
         USING (ino) WHERE i.blocks <> iif(i.size = 0, 0, coalesce(held, 0))",
    )?;
    let rows = statement.query_map([INDEX_BITS], |row| {
        let (ino, says, held): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        Ok(format!("{ino}: {says}, not {held}"))
    })?;
    let found = rows.collect::<Result<_, _>>()?;
    note(problems, "the block count of a file is wrong", found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

    use super::*;
    use crate::SqliteStore;
    use crate::files::log_of;
    use crate::free_tails::tests::{LONG, create};
    use crate::log_mark::tests::OWNER;

    /// Files that are immutable, even for root, until it is dropped.
    struct ReadOnly(Vec<PathBuf>);

    impl ReadOnly {
        /// Whether the file system has done as told.
        fn set(&self, is_read_only: bool) -> bool {
            self.0.iter().all(|path| {
                let file = File::open(path).unwrap();
                let flags = ioctl_getflags(&file);
                let changed = flags.and_then(|mut flags| {
                    flags.set(IFlags::IMMUTABLE, is_read_only);
                    ioctl_setflags(&file, flags)
                });
                changed.is_ok()
            })
        }

        /// `None` for root on a file system, or in a container, without the flag: modes do not bind root.
        fn of(paths: &[&Path]) -> Option<Self> {
            let files = Self(paths.iter().map(|path| path.to_path_buf()).collect());
            if !files.set(true) {
                if rustix::process::geteuid().is_root() {
                    return None;
                }
                for path in &files.0 {
                    let mode = if path.is_dir() { 0o500 } else { 0o400 };
                    let mode = std::fs::Permissions::from_mode(mode);
                    std::fs::set_permissions(path, mode).unwrap();
                }
            }
            Some(files)
        }
    }

    impl Drop for ReadOnly {
        fn drop(&mut self) {
            if !self.set(false) {
                for path in self.0.iter().rev() {
                    let mode = std::fs::Permissions::from_mode(0o700);
                    std::fs::set_permissions(path, mode).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_check_leaves_no_file_beside_an_unmounted_database() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        create(&SqliteStore::open(&path, &OWNER).unwrap(), "f0", &[1; LONG]);
        let listed = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let before = listed();
        let checked = check(&path).unwrap();
        assert!(checked.problems.is_empty() && !checked.is_mounted);
        assert_eq!(listed(), before);
        // The lock of the check has ended: a mount can have the database.
        let mounted = SqliteStore::open(&path, &OWNER).unwrap();
        assert!(check(&path).unwrap().is_mounted);
        drop(mounted);
        assert_eq!(listed(), before);
    }

    #[test]
    fn what_is_no_database_is_refused_by_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty.db");
        std::fs::write(&empty, "").unwrap();
        let missing = dir.path().join("none/a.db");
        for (path, parts) in [
            (dir.path(), ["it is not a regular file", "choose another file"]),
            (&empty, ["it is empty", "choose another file"]),
            (&missing, ["No such file", "create its directory with `mkdir -p "]),
        ] {
            let refused = check(path).unwrap_err().to_string();
            assert!(parts.iter().all(|part| refused.contains(part)), "{refused}");
        }
    }

    #[test]
    fn a_database_that_can_only_be_read_is_checked_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        create(&SqliteStore::open(&path, &OWNER).unwrap(), "f0", &[1; LONG]);
        let expected = check(&path).unwrap();
        assert_eq!((expected.tails, expected.problems.len()), (1, 0));
        {
            let Some(_read_only) = ReadOnly::of(&[&path, dir.path()]) else {
                eprintln!("skipped: root cannot make a file immutable here");
                return;
            };
            let plain = open_pages(&path, OpenFlags::SQLITE_OPEN_READ_ONLY);
            let plain = plain.and_then(|connection| identify(&connection, &path));
            assert!(plain.is_err(), "it can be written to after all");
            assert_eq!(check(&path).unwrap(), expected);
        }
        // Only a mount can replay the log of a killed one.
        std::fs::write(log_of(&path), [1; 4096]).unwrap();
        let _read_only = ReadOnly::of(&[&path, dir.path()]);
        let error = check(&path).unwrap_err();
        let is_told = matches!(error, SqliteOpenError::NeedsRecovery { .. });
        assert!(is_told, "{error}");
    }
}
