//! Opens a database file as a file system: ownership, identity, SQLite's settings.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock, statvfs};
use rustix::io::Errno;

use crate::files::{files_of, folder, foreign_beside, has_log, has_redo, log_of, redo_of, tails_of};
use crate::open_error::{DATABASE_VERSION, SqliteOpenError, unreadable};
use crate::{header, owner, room};

/// `PRAGMA application_id` of our databases: `ctxb`.
pub(super) const APPLICATION_ID: i32 = i32::from_be_bytes(*b"ctxb");

/// Bytes that must be left on the disk for a mount: its log, and SQLite's shared memory.
const ROOM: u64 = 5 << 20;

/// A process that has just forked holds the locks of its parent until it executes another program.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Holds a database for one mount. The lock ends with the process, however that ends.
///
/// `flock` does not interfere with the `fcntl` locks that SQLite takes on the same file. The file must
/// stay open for as long as SQLite uses it: closing any descriptor of it would drop SQLite's locks.
#[derive(Debug)]
pub(super) struct Ownership {
    file: Arc<File>,
    /// The database is unmounted when this is dropped.
    ends_mount: AtomicBool,
    /// Why it can only be read; `None` if it can be written.
    pub(super) read_only: Option<String>,
    /// The files that this start creates; empty where the database was there before.
    new: Vec<PathBuf>,
    discards_new: AtomicBool,
}

impl Ownership {
    /// Whether the files that this start has created are removed when it is dropped.
    pub(super) fn discard_new(&self, discards: bool) {
        self.discards_new.store(discards, Ordering::Release);
    }

    fn remove_new(&self) {
        for file in &self.new {
            let removed = if file.is_dir() { std::fs::remove_dir_all(file) } else { std::fs::remove_file(file) };
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(%error, "removing {}", file.display());
            }
        }
    }
}

impl Drop for Ownership {
    fn drop(&mut self) {
        // The lock is still held: no other mount has these files.
        if *self.discards_new.get_mut() && !self.new.is_empty() {
            self.remove_new();
        } else if *self.ends_mount.get_mut()
            && let Err(error) = room::leave_space(&self.file)
        {
            tracing::warn!(%error, "the disk is full, and the mount has no reserve left");
        }
    }
}

impl Ownership {
    /// Has space left for the next mount when SQLite has closed the database.
    pub(super) fn leave_space(&self) {
        self.ends_mount.store(true, Ordering::Release);
    }

    /// The database's file.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }
}

/// The path of the database itself, absolute: SQLite keeps the log beside the file that a symbolic link leads to, and
/// the working directory may go away.
///
/// # Errors
/// If it is a symbolic link that leads nowhere, or its directory is missing.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, SqliteOpenError> {
    let missing = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        found => return found.map_err(|error| unreadable(path, &error)),
    };
    if let Ok(target) = std::fs::read_link(path) {
        return Err(SqliteOpenError::DanglingLink { path: path.to_owned(), target });
    }
    let folder = folder(path).canonicalize();
    let folder = folder.map_err(|error| unreadable(path, &error))?;
    let name = path.file_name().ok_or_else(|| unreadable(path, &missing))?;
    Ok(folder.join(name))
}

/// The same error, or that the disk is full where that is the likely cause.
pub(super) fn map_disk_full(path: &Path, error: SqliteOpenError) -> SqliteOpenError {
    let SqliteOpenError::Unreadable { reason, .. } = &error else {
        return error;
    };
    // Messages of SQLite and the system for a full disk. On a full disk, damage has another message, too.
    let may_be_full = ["full", "I/O error", "No space left"];
    if !may_be_full.iter().any(|words| reason.contains(words)) {
        return error;
    }
    match statvfs(folder(path)) {
        Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < ROOM => SqliteOpenError::Full {
            path: path.to_owned(),
            reason: reason.clone(),
            left: disk.f_bavail.saturating_mul(disk.f_frsize) / 1024,
        },
        _ => error,
    }
}

/// Whether SQLite takes a file for a database that is yet to be made: then it removes the log beside it, even where it
/// may only read. To SQLite one byte is nothing, too.
fn is_cut(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() <= 1)
}

/// Refuses a file that is something else, before SQLite sees it: nothing in it or beside it changes.
pub(super) fn must_be_ours(path: &Path) -> Result<(), SqliteOpenError> {
    ensure_own_files(path)?;
    ensure_not_truncated(path)?;
    header::check_content(path, APPLICATION_ID)
}

/// Whether a log beside the database has changes that the database lacks.
pub(super) fn needs_recovery(path: &Path) -> bool {
    has_log(path) || has_redo(path)
}

/// Opens a connection that reads the database alone: SQLite makes no file beside it.
pub(super) fn open_immutable(path: &Path) -> Result<Connection, SqliteOpenError> {
    let (uri, flags) = header::immutable(path);
    let connection = sqlite_pages::connect(Path::new(&uri), flags);
    let connection = connection.map_err(|error| unreadable(path, &error))?;
    check_header(&connection, path)?;
    Ok(connection)
}

/// Opens a connection to a database that can only be read, and was closed in order.
pub(super) fn connect_read_only(path: &Path, reason: &str) -> Result<Connection, SqliteOpenError> {
    if needs_recovery(path) {
        return Err(SqliteOpenError::NeedsRecovery { path: path.to_owned(), reason: reason.to_owned() });
    }
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let connection = open_immutable(path)?;
    for (name, value) in [("cache_size", "-65536"), ("temp_store", "MEMORY")] {
        connection.pragma_update(None, name, value).map_err(wrong)?;
    }
    if !identify(&connection, path)? {
        return Err(unreadable(path, &format!("it is empty, and {reason}")));
    }
    match missing_log(&connection, path).map_err(wrong)? {
        Some(log) => Err(SqliteOpenError::LogGone { path: path.to_owned(), log }),
        None => Ok(connection),
    }
}

/// Refuses a database with something else in the place of one of its files.
pub(super) fn ensure_own_files(path: &Path) -> Result<(), SqliteOpenError> {
    match foreign_beside(path) {
        Some(beside) => Err(SqliteOpenError::ForeignFile { path: path.to_owned(), beside }),
        None => Ok(()),
    }
}

/// Refuses a database whose file is gone, or was cut to nothing, while one of its logs or its tails are still there.
pub(super) fn ensure_not_truncated(path: &Path) -> Result<(), SqliteOpenError> {
    if path.exists() && !is_cut(path) {
        return Ok(());
    }
    let tails = tails_of(path);
    let has_tails = std::fs::read_dir(&tails).is_ok_and(|mut tails| tails.next().is_some());
    let beside = if has_log(path) {
        log_of(path)
    } else if has_redo(path) {
        redo_of(path)
    } else if has_tails {
        tails
    } else {
        return Ok(());
    };
    Err(SqliteOpenError::Cut { path: path.to_owned(), beside })
}

/// Opens the database at `path`, creates the file where there is none, and locks it: alone, or together with other
/// readers if it can only be read. Until [`Ownership::discard_new`] says otherwise, a file that was created is removed
/// again.
pub(super) fn open_and_lock(path: &Path) -> Result<Ownership, SqliteOpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).truncate(false).mode(0o600);
    let (opened, is_new) = match options.clone().create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (options.create(true).open(path), false),
        created => {
            let is_new = created.is_ok();
            (created, is_new)
        }
    };
    let (file, read_only) = match opened {
        Ok(file) => (file, unwritable_folder(path)),
        Err(error) => match (why_read_only(&error), File::open(path)) {
            (Some(reason), Ok(file)) => (file, Some(reason)),
            _ => return Err(unreadable(path, &error)),
        },
    };
    let how = match &read_only {
        None => FlockOperation::NonBlockingLockExclusive,
        Some(_) => FlockOperation::NonBlockingLockShared,
    };
    let mut locked = flock(&file, how);
    for _ in 0..LOCK_ATTEMPTS {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        locked = flock(&file, how);
    }
    match locked {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(SqliteOpenError::Owned(path.to_owned(), owner::mount_of(path)));
        }
        Err(error) => return Err(unreadable(path, &io::Error::from(error))),
    }
    // Another start may have removed the file while this one waited, and a third may have created it again.
    let is_same = |there: std::fs::Metadata| {
        let here = file.metadata();
        here.is_ok_and(|here| (here.dev(), here.ino()) == (there.dev(), there.ino()))
    };
    if !std::fs::metadata(path).is_ok_and(is_same) {
        return Err(SqliteOpenError::Owned(path.to_owned(), None));
    }
    let is_absent = |file: &PathBuf| file == path || file.symlink_metadata().is_err();
    let new = if is_new { files_of(path).filter(is_absent).collect() } else { Vec::new() };
    Ok(Ownership {
        file: Arc::new(file),
        ends_mount: AtomicBool::new(false),
        read_only,
        new,
        discards_new: AtomicBool::new(true),
    })
}

/// Why a file whose opening for writing has failed so can only be read; `None` for another failure.
fn why_read_only(error: &io::Error) -> Option<String> {
    match Errno::from_io_error(error)? {
        Errno::ROFS => Some("its file system is read-only".to_owned()),
        Errno::ACCESS | Errno::PERM => Some("you cannot write to it".to_owned()),
        _ => None,
    }
}

/// Why the database at `path`, or its directory, can only be read; `None` if both can be written. Opens no file: closing one
/// would end the locks of this process on the database.
pub fn read_only_reason(path: &Path) -> Option<String> {
    match accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
        Ok(()) => unwritable_folder(path),
        Err(error) => why_read_only(&error.into()),
    }
}

/// Why no log can be made beside the database at `path`; `None` if one can.
pub fn unwritable_folder(path: &Path) -> Option<String> {
    let wanted = Access::WRITE_OK | Access::EXEC_OK;
    match accessat(CWD, folder(path), wanted, AtFlags::EACCESS) {
        Err(Errno::ROFS) => Some("its file system is read-only".to_owned()),
        Err(Errno::ACCESS | Errno::PERM) => Some("you cannot write to its directory".to_owned()),
        _ => None,
    }
}

/// Opens a connection with the settings that every connection of a mount shares.
pub(super) fn connect(path: &Path) -> Result<Connection, SqliteOpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let connection = open_pages(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(wrong)?;
    // Without it, SQLite recompiles a join whenever a bound value changes: 20 µs instead of 3.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map_err(wrong)?;
    let settings = [
        ("synchronous", "NORMAL"),
        // Content stays in the daemon's own memory when the kernel drops the file's pages.
        ("cache_size", "-65536"),
        ("temp_store", "MEMORY"),
    ];
    for (name, value) in settings {
        connection.pragma_update(None, name, value).map_err(wrong)?;
    }
    Ok(connection)
}

/// Whether a database is a file system; false if it is empty.
///
/// # Errors
/// If it is something else, or of another ctxbench.
pub(super) fn identify(connection: &Connection, path: &Path) -> Result<bool, SqliteOpenError> {
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let pragma = |name: &str| -> rusqlite::Result<i32> { connection.pragma_query_value(None, name, |row| row.get(0)) };
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", (), |row| row.get(0)).map_err(wrong)?;
    let application = pragma("application_id").map_err(wrong)?;
    let version = pragma("user_version").map_err(wrong)?;
    let is_new = tables == 0 && application == 0 && version == 0;
    if !is_new && application != APPLICATION_ID {
        return Err(SqliteOpenError::Foreign { path: path.to_owned(), found: application });
    }
    if !is_new && version != DATABASE_VERSION {
        return Err(SqliteOpenError::Version { path: path.to_owned(), found: version });
    }
    Ok(!is_new)
}

/// Opens a connection to a database of ours.
pub(super) fn open_pages(path: &Path, flags: OpenFlags) -> Result<Connection, SqliteOpenError> {
    let connection = sqlite_pages::connect(path, flags).map_err(|error| unreadable(path, &error))?;
    check_header(&connection, path)?;
    Ok(connection)
}

/// Refuses a file whose header is of something else, before SQLite reads it: its pages have no checksums.
fn check_header(connection: &Connection, path: &Path) -> Result<(), SqliteOpenError> {
    let header = sqlite_pages::header(connection).map_err(|error| unreadable(path, &error))?;
    let Some(header) = header else {
        return Ok(());
    };
    // The pages of a database that was never copied into say neither.
    let is_new = (header.application_id, header.user_version) == (0, 0);
    if !header.is_database {
        Err(unreadable(path, &"file is not a database"))
    } else if header.application_id != APPLICATION_ID && !(is_new && header.has_checksums) {
        Err(SqliteOpenError::Foreign { path: path.to_owned(), found: header.application_id })
    } else if header.user_version != DATABASE_VERSION && !is_new {
        Err(SqliteOpenError::Version { path: path.to_owned(), found: header.user_version })
    } else if !header.has_checksums {
        Err(unreadable(path, &"the first page of the database is damaged"))
    } else {
        Ok(())
    }
}

/// Gives checksums to a database that another program has copied without: see [`sqlite_pages::stamp_copy`].
pub(super) fn adopt_copy(path: &Path) -> Result<(), SqliteOpenError> {
    if has_log(path) {
        return Ok(());
    }
    let is_ours = |header: sqlite_pages::Header| {
        header.is_database
            && header.has_checksums
            && header.application_id == APPLICATION_ID
            && header.user_version == DATABASE_VERSION
    };
    sqlite_pages::stamp_copy(path, is_ours).map_err(|error| unreadable(path, &error))
}

/// Makes `connection` leave the log of the database at `path` in place when it closes. The last connection to close
/// checkpoints the log; after a kill during a checkpoint, the next mount would then miss that log.
pub(super) fn keep_wal_on_close(connection: &Connection, path: &Path) -> rusqlite::Result<()> {
    if has_log(path) {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    Ok(())
}

/// The log that the database at `path` needs and that is not there: SQLite's, or the redo log.
pub(super) fn missing_log(connection: &Connection, path: &Path) -> rusqlite::Result<Option<PathBuf>> {
    let first = |sql| connection.query_row(sql, (), |row| row.get::<_, bool>(0));
    if first("SELECT needed FROM log")? && !has_log(path) {
        return Ok(Some(log_of(path)));
    }
    let redo = redo_of(path);
    // Where SQLite's log is gone and not missed, this is a copy of the tables alone.
    let is_needed = has_log(path) && first("SELECT redo IS NOT NULL FROM log")?;
    Ok((is_needed && !redo.exists()).then_some(redo))
}

/// Checks the schema of the file, and creates the tables in an empty file.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<(), SqliteOpenError> {
    let wrong = |error: rusqlite::Error| unreadable(path, &error);
    let is_there = identify(connection, path)?;
    if is_there && let Some(log) = missing_log(connection, path).map_err(wrong)? {
        return Err(SqliteOpenError::LogGone { path: path.to_owned(), log });
    }
    if !is_there {
        // Free pages can then be given back to the disk in small steps: see `Db::give_back`.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(wrong)?;
    }
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0)).map_err(wrong)?;
    if mode != "wal" {
        let reason = format!("SQLite offers journal mode {mode:?} here, but WAL is needed");
        return Err(unreadable(path, &reason));
    }
    // An unmount that was interrupted while it gave free pages back leaves the mode in which every commit does.
    let vacuum: i64 = connection.pragma_query_value(None, "auto_vacuum", |row| row.get(0)).map_err(wrong)?;
    if is_there && vacuum == 1 {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(wrong)?;
    }
    if !is_there {
        let create = format!(
            "BEGIN; {} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {DATABASE_VERSION}; COMMIT;",
            include_str!("schema.sql")
        );
        connection.execute_batch(&create).map_err(wrong)?;
    }
    Ok(())
}
