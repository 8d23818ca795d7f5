//! The operation log in an SQLite file. A store in memory has none.

use std::fs::File;
use std::path::{Path, PathBuf};

use fuse::store::{Caller, Errno, Result, StoreError, Timestamp};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use sqlite::database::{self, check_content, has_log, immutable, read_only_reason, unwritable_folder};

use super::count::{self, Count, RecordedCount};
use super::operation::Operation;
use super::space::{Space, storage};

/// SQLite's `application_id` of a log: "ctxH".
const APPLICATION_ID: i32 = 0x6374_7848;

/// The schema version, in SQLite's `user_version`.
const VERSION: i32 = 3;

/// Why a log file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// SQLite cannot open, read or initialize the file.
    #[error("the log {}: {error}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        error: rusqlite::Error,
    },
    /// The file is not an operation log of this version.
    #[error("{} is not an operation log of this version of ctxbench\n  fix: name another file with --log-db", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It is a symbolic link that leads nowhere, which SQLite would follow to create a file.
    #[error("{} is a symbolic link to {}, which does not exist\n  fix: name that path by --log-db, or remove the link", .path.display(), .target.display())]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// What it names.
        target: PathBuf,
    },
    /// Operations of a killed mount are missing.
    #[error("the log {} has {found} of {expected} operations: it, or the file {}-wal, is damaged or missing; nothing was changed\n  fix: put both files back as they were; or remove {} to go on with the operations that are left", .path.display(), .path.display(), .count.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// The operations that can be read.
        found: u64,
        /// The operations whose calls had returned.
        expected: u64,
        /// The file that says so.
        count: PathBuf,
    },
    /// The last mount did not end in order, and SQLite's log is missing.
    #[error("the log {} has {found} of {expected} operations: its last mount did not end in order, and {}, which has the others, is missing; nothing was changed\n  fix: put that file back; or, to go on with the operations that are left, create it empty (`touch`), and remove {} if it is there", .path.display(), .wal.display(), .count.display())]
    NoWal {
        /// The file.
        path: PathBuf,
        /// SQLite's log.
        wal: PathBuf,
        /// The operations that can be read.
        found: u64,
        /// The operations whose calls had returned.
        expected: String,
        /// The file with their number.
        count: PathBuf,
    },
    /// The file with the number of operations cannot be used.
    #[error("{} says how many operations the log has, and {reason}\n  fix: remove it, to go on with the operations that can be read", .path.display())]
    Count {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It can only be read, and a mount that has it open, or was killed, has operations in SQLite's log.
    #[error("the log {} is read-only ({reason}), but {} has operations of a mount that was killed or still runs\n  fix: unmount that; or copy all files whose names begin with that of the log to a directory that you can write to, and name the copy by --log-db", .path.display(), .wal.display())]
    NeedsRecovery {
        /// The file.
        path: PathBuf,
        /// SQLite's log.
        wal: PathBuf,
        /// Why it can only be read.
        reason: String,
    },
    /// It can only be read, and has no operations to read.
    #[error("the log {} is missing or empty, and {reason}\n  fix: name a file in a directory that you can write to by --log-db", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why it cannot be made.
        reason: String,
    },
    /// The file cannot be opened.
    #[error("the log {}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The thread that syncs it cannot be started.
    #[error("starting the thread that syncs the log: {0}")]
    Thread(std::io::Error),
    /// A stored operation cannot be parsed.
    #[error("the log {}: operation {number}: {why}", .path.display())]
    Operation {
        /// The file.
        path: PathBuf,
        /// The number of the operation, from 1.
        number: i64,
        /// Why it cannot be parsed.
        why: String,
    },
}

/// An operation and its caller.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) caller: Caller,
    pub(super) operation: Operation,
}

/// An operation that is neither committed nor rolled back.
#[derive(Debug)]
pub(super) struct PendingOperation(());

/// An operation log.
#[derive(Debug)]
pub(super) struct Log {
    db: Option<Connection>,
    count: Option<Count>,
    /// The file of SQLite's own log.
    wal: PathBuf,
    /// The disk space of a file that operations are added to.
    space: Option<Space>,
    owner: Option<Caller>,
    /// The file, if opening the log has created it.
    new: Option<PathBuf>,
    /// Why the file can only be read; `None` if it can be written, or there is none.
    read_only: Option<String>,
    /// Whether power loss would take no operation.
    is_synced: bool,
    /// Whether the reference has applied an operation that is missing in the log, or a sync has failed.
    is_broken: bool,
}

impl Log {
    pub(super) fn in_memory() -> Self {
        Self {
            db: None,
            count: None,
            wal: PathBuf::new(),
            space: None,
            owner: None,
            new: None,
            read_only: None,
            is_synced: true,
            is_broken: false,
        }
    }

    /// Opens a log file, or creates it, and reads its operations.
    pub(super) fn open(path: &Path, owner: &Caller) -> std::result::Result<(Self, Vec<Entry>), LogError> {
        let failed = |error| LogError::Sqlite { path: path.to_owned(), error };
        if !path.exists()
            && let Ok(target) = std::fs::read_link(path)
        {
            return Err(LogError::DanglingLink { path: path.to_owned(), target });
        }
        check_content(path, APPLICATION_ID).map_err(|_| LogError::Foreign { path: path.to_owned() })?;
        if !path.exists() {
            must_have_all(path, 0)?;
        }
        let real = real(path);
        let only_read = if real.exists() { read_only_reason(&real) } else { unwritable_folder(&real) };
        if let Some(reason) = only_read {
            return Self::open_read_only(path, reason);
        }
        let is_new = File::create_new(path).is_ok();
        must_have_wal(path, &real)?;
        let unusable = |error: std::io::Error| LogError::File { path: path.to_owned(), error };
        let mut space = Space::new(&real, wal_of(&real)).map_err(unusable)?;
        let mut db = database::connect(path, OpenFlags::default()).map_err(failed)?;
        // An error below leaves SQLite's log as it is.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
        // Before SQLite reads a page: it then makes no file of shared memory, for which a full disk has no room.
        db.pragma_update(None, "locking_mode", "EXCLUSIVE").map_err(failed)?;
        let found = operations(&db, path)?.unwrap_or(0);
        must_have_all(path, found)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(failed)?;
        db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE; COMMIT;")
            .map_err(failed)?;
        space.open().map_err(unusable)?;
        let count = Count::create(&real, found);
        let count =
            count.map_err(|error| LogError::Count { path: count::path_of(&real), reason: error.to_string() })?;
        space.allocate(&mut db).map_err(failed)?;
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE;
             PRAGMA application_id = {APPLICATION_ID};
             PRAGMA user_version = {VERSION};
             CREATE TABLE IF NOT EXISTS owner (uid INTEGER NOT NULL, gid INTEGER NOT NULL, at INTEGER NOT NULL);
             CREATE TABLE IF NOT EXISTS operation (
                 number INTEGER PRIMARY KEY,
                 at INTEGER NOT NULL,
                 uid INTEGER NOT NULL,
                 gid INTEGER NOT NULL,
                 what TEXT NOT NULL,
                 data BLOB
             );
             CREATE TABLE IF NOT EXISTS mount (in_use INTEGER NOT NULL);
             INSERT INTO mount SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM mount);
             COMMIT;"
        ))
        .map_err(failed)?;
        let first = params![owner.uid, owner.gid, owner.now.0];
        db.execute("INSERT INTO owner SELECT ?1, ?2, ?3 WHERE NOT EXISTS (SELECT 1 FROM owner)", first)
            .map_err(failed)?;
        let owner = read_owner(&db).map_err(failed)?;
        let entries = read_entries(&db, path)?;
        // From now on the file alone says that it needs SQLite's log.
        let marked = db.execute("UPDATE mount SET in_use = 1", ()).and_then(|_| space.checkpoint(&db));
        if let Err(error) = marked {
            // If this fails, too, closing may keep the mark, and the next mount asks for a log that it does not need.
            let _ = db.execute("UPDATE mount SET in_use = 0", ());
            return Err(failed(error));
        }
        let log = Self {
            db: Some(db),
            count: Some(count),
            wal: wal_of(&real),
            space: Some(space),
            owner: Some(owner),
            new: is_new.then(|| path.to_owned()),
            read_only: None,
            is_synced: false,
            is_broken: false,
        };
        Ok((log, entries))
    }

    /// As [`Log::open`], of a file that can only be read for `reason`: nothing is made beside it, and nothing can be added.
    fn open_read_only(path: &Path, reason: String) -> std::result::Result<(Self, Vec<Entry>), LogError> {
        let failed = |error| LogError::Sqlite { path: path.to_owned(), error };
        let real = real(path);
        if has_log(&real) {
            return Err(LogError::NeedsRecovery { path: path.to_owned(), wal: wal_of(&real), reason });
        }
        let db = match real.metadata() {
            Ok(file) if file.len() > 0 => {
                let (uri, flags) = immutable(&real);
                Some(database::connect(Path::new(&uri), flags).map_err(failed)?)
            }
            _ => None,
        };
        let found = match &db {
            Some(db) => operations(db, path)?,
            None => None,
        };
        must_have_all(path, found.unwrap_or(0))?;
        must_have_wal(path, &real)?;
        let (Some(db), Some(_)) = (db, found) else {
            return Err(LogError::ReadOnly { path: path.to_owned(), reason });
        };
        let entries = read_entries(&db, path)?;
        let log = Self {
            db: None,
            count: None,
            wal: PathBuf::new(),
            space: None,
            owner: Some(read_owner(&db).map_err(failed)?),
            new: None,
            read_only: Some(reason),
            is_synced: true,
            is_broken: false,
        };
        Ok((log, entries))
    }

    /// Why the file can only be read; `None` if it can be written, or there is none.
    pub(super) fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// Whether an operation could not be written, or a sync has failed. The error was returned or logged then.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether there is a file that operations are added to.
    pub(super) fn is_written(&self) -> bool {
        self.db.is_some()
    }

    /// Removes the file, if opening the log has created it, while SQLite's lock still keeps other mounts away.
    pub(super) fn discard_new(&mut self) {
        let Some(path) = self.new.take() else {
            return;
        };
        let mut log = path.clone().into_os_string();
        log.push("-wal");
        for file in [count::path_of(&path), path, log.into()] {
            if let Err(error) = std::fs::remove_file(&file) {
                tracing::warn!(%error, "removing {}", file.display());
            }
        }
    }

    /// The owner of the file system; `None` without a log file.
    pub(super) fn owner(&self) -> Option<Caller> {
        self.owner
    }

    /// Appends an operation before it is applied. The caller must end with [`Log::commit`] or
    /// [`Log::roll_back`].
    pub(super) fn begin(&mut self, caller: &Caller, operation: &Operation) -> Result<PendingOperation> {
        if let Some(reason) = &self.read_only {
            return Err(StoreError::storage(Errno::ROFS, reason));
        }
        if self.is_broken {
            return Err(StoreError::storage(Errno::ROFS, "the log could not be written"));
        }
        if let Some(db) = &self.db {
            let what = serde_json::to_string(operation).map_err(|error| StoreError::storage(Errno::IO, error))?;
            let data = match operation {
                Operation::Write { data, .. } => Some(data),
                _ => None,
            };
            if let Some(space) = &mut self.space {
                let bytes = what.len() + data.map_or(0, Vec::len);
                space.take(db, bytes as u64, operation.frees())?;
            }
            let begun = db.execute_batch("BEGIN IMMEDIATE").and_then(|()| {
                let mut insert =
                    db.prepare_cached("INSERT INTO operation (at, uid, gid, what, data) VALUES (?1, ?2, ?3, ?4, ?5)")?;
                insert.execute(params![caller.now.0, caller.uid, caller.gid, what, data])
            });
            if let Err(error) = begun {
                self.roll_back(PendingOperation(()));
                return Err(storage(&error));
            }
        }
        Ok(PendingOperation(()))
    }

    /// Commits an operation that was applied.
    pub(super) fn commit(&mut self, _pending: PendingOperation) -> Result<()> {
        let Some(db) = &self.db else {
            return Ok(());
        };
        let operations = db.last_insert_rowid().cast_unsigned();
        self.is_synced = false;
        let done = db.execute_batch("COMMIT");
        if done.is_ok()
            && let Some(Err(error)) = self.count.as_ref().map(|count| count.set(operations))
        {
            tracing::error!(%error, "the number of operations is not noted: damage of the log may stay hidden");
        }
        if done.is_ok()
            && let Some(Err(error)) = self.space.as_ref().map(|space| space.committed(db))
        {
            tracing::error!(%error, "SQLite's log cannot be copied into the file");
            self.is_broken = storage(&error).errno != Errno::NOSPC;
        }
        done.map_err(|error| {
            // The reference cannot undo the operation, so further entries would not match it.
            tracing::error!(%error, "the log cannot be written; this mount accepts no more changes");
            self.is_broken = true;
            storage(&error)
        })
    }

    /// Removes an operation that was not applied.
    pub(super) fn roll_back(&self, _pending: PendingOperation) {
        if let Some(db) = &self.db
            && !db.is_autocommit()
            && let Err(error) = db.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "the log cannot be rolled back");
        }
    }

    /// Makes all committed operations survive power loss.
    ///
    /// # Errors
    /// `EIO` if the disk reports one, and from then on always: the kernel reports a page that it could not write only once.
    pub(super) fn sync(&mut self) -> Result<()> {
        let Some(db) = &self.db else {
            return Ok(());
        };
        if self.is_broken {
            let reason = "the log could not be written or synced: no operation is durable until the next mount";
            return Err(StoreError::storage(Errno::IO, reason));
        }
        if self.is_synced {
            return Ok(());
        }
        // A checkpoint syncs the WAL first, then the database file.
        let checkpoint = self.space.as_ref().map(|space| space.checkpoint(db));
        if let Some(Err(error)) = checkpoint {
            let error = storage(&error);
            // A full disk leaves the operations in the WAL, and the next checkpoint tries again.
            self.is_broken = error.errno != Errno::NOSPC;
            return Err(error);
        }
        self.is_synced = true;
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if let Some(db) = self.db.take()
            && let Err(error) = db.execute("UPDATE mount SET in_use = 0", ())
        {
            tracing::warn!(%error, "the log keeps {} until the next mount", self.wal.display());
            // An error means that the next mount misses it.
            let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        // The connection is closed here: that copies SQLite's log into the file, and removes it.
        if let Some(space) = self.space.take() {
            space.leave();
        }
        if let Some(count) = self.count.take()
            && !self.wal.exists()
        {
            count.remove();
        }
    }
}

/// The file that a path leads to: SQLite keeps its log beside that.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// SQLite's log of the file at `path`.
fn wal_of(path: &Path) -> PathBuf {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    wal.into()
}

/// The number of operations in a log of this version; `None` in a database without tables.
fn operations(db: &Connection, path: &Path) -> std::result::Result<Option<u64>, LogError> {
    let failed = |error| LogError::Sqlite { path: path.to_owned(), error };
    let foreign = || LogError::Foreign { path: path.to_owned() };
    // Before SQLite reads a page: those of another program have no checksums.
    let header = database::header(db).map_err(|_| foreign())?;
    let is_ours = |header: database::Header| {
        let is_new = (header.application_id, header.user_version) == (0, 0);
        let is_log = (header.application_id, header.user_version) == (APPLICATION_ID, VERSION);
        header.has_checksums && (is_new || is_log)
    };
    if !header.is_none_or(is_ours) {
        return Err(foreign());
    }
    let number = |pragma: &str| db.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let (id, version) = (number("application_id").map_err(failed)?, number("user_version").map_err(failed)?);
    let tables: i64 = db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    if (tables > 0 || id != 0) && (id, version) != (APPLICATION_ID, VERSION) {
        return Err(foreign());
    }
    if tables == 0 {
        return Ok(None);
    }
    let count = db.query_row("SELECT count(*) FROM operation", [], |row| row.get(0));
    Ok(Some(i64::cast_unsigned(count.map_err(failed)?)))
}

fn read_owner(db: &Connection) -> rusqlite::Result<Caller> {
    db.query_row("SELECT uid, gid, at FROM owner", [], |row| {
        Ok(Caller { uid: row.get(0)?, gid: row.get(1)?, now: Timestamp(row.get(2)?) })
    })
}

/// Fails if a log in which `found` operations can be read lacks some of a killed mount.
fn must_have_all(path: &Path, found: u64) -> std::result::Result<(), LogError> {
    let real = real(path);
    let unusable = |reason: String| LogError::Count { path: count::path_of(&real), reason };
    match count::read(&real).map_err(|error| unusable(error.to_string()))? {
        RecordedCount::AtLeast(expected) if found < expected => {
            Err(LogError::Lost { path: path.to_owned(), found, expected, count: count::path_of(&real) })
        }
        RecordedCount::Damaged => Err(unusable("is damaged".to_owned())),
        RecordedCount::AtLeast(_) | RecordedCount::Nothing => Ok(()),
    }
}

/// Fails if the last mount has left the file at `real` with the mark of a mount, and SQLite's log is missing. Reads the file
/// alone: SQLite would make an empty log.
fn must_have_wal(path: &Path, real: &Path) -> std::result::Result<(), LogError> {
    let wal = wal_of(real);
    if wal.exists() || real.metadata().map_or(0, |file| file.len()) == 0 {
        return Ok(());
    }
    let failed = |error| LogError::Sqlite { path: path.to_owned(), error };
    let (uri, flags) = immutable(real);
    let db = database::connect(Path::new(&uri), flags).map_err(failed)?;
    let Some(found) = operations(&db, path)? else {
        return Ok(());
    };
    let first = |sql| db.query_row(sql, (), |row| row.get::<_, bool>(0)).map_err(failed);
    let is_in_use = first("SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'mount')")?
        && first("SELECT EXISTS (SELECT 1 FROM mount WHERE in_use)")?;
    let expected = match count::read(real) {
        // Another program has copied SQLite's log into the file, and removed it.
        Ok(RecordedCount::AtLeast(expected)) if found >= expected => return Ok(()),
        Ok(RecordedCount::AtLeast(expected)) => expected.to_string(),
        _ => "an unknown number of".to_owned(),
    };
    if !is_in_use {
        return Ok(());
    }
    Err(LogError::NoWal { path: path.to_owned(), wal, found, expected, count: count::path_of(real) })
}

fn read_entries(db: &Connection, path: &Path) -> std::result::Result<Vec<Entry>, LogError> {
    let failed = |error| LogError::Sqlite { path: path.to_owned(), error };
    let mut query =
        db.prepare("SELECT number, at, uid, gid, what, data FROM operation ORDER BY number").map_err(failed)?;
    let mut rows = query.query([]).map_err(failed)?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let number: i64 = row.get(0).map_err(failed)?;
        let caller = Caller {
            now: Timestamp(row.get(1).map_err(failed)?),
            uid: row.get(2).map_err(failed)?,
            gid: row.get(3).map_err(failed)?,
        };
        let what: String = row.get(4).map_err(failed)?;
        let mut operation: Operation = serde_json::from_str(&what).map_err(|error| LogError::Operation {
            path: path.to_owned(),
            number,
            why: error.to_string(),
        })?;
        if let Operation::Write { data, .. } = &mut operation {
            *data = row.get(5).map_err(failed)?;
        }
        entries.push(Entry { caller, operation });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use fuse::store::ROOT;

    use super::*;

    const OWNER: Caller = Caller { uid: 7, gid: 7, now: Timestamp(0) };

    /// A log with so many operations, as a killed mount leaves it.
    fn killed(dir: &Path, operations: u64) -> PathBuf {
        let (path, copy) = (dir.join("a.log"), dir.join("b.log"));
        let (mut log, entries) = Log::open(&path, &OWNER).unwrap();
        assert!(entries.is_empty());
        for number in 0..operations {
            let operation = Operation::Unlink { parent: ROOT, name: number.to_string().into_bytes() };
            let pending = log.begin(&OWNER, &operation).unwrap();
            log.commit(pending).unwrap();
        }
        for suffix in ["", "-wal", "-count"] {
            std::fs::copy(with(&path, suffix), with(&copy, suffix)).unwrap();
        }
        drop(log);
        for suffix in ["-wal", "-count"] {
            assert!(!with(&path, suffix).exists(), "{suffix} after an orderly end");
        }
        assert_eq!(Log::open(&path, &OWNER).unwrap().1.len() as u64, operations);
        copy
    }

    fn with(path: &Path, suffix: &str) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    #[test]
    fn a_log_that_lacks_operations_of_a_killed_mount_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = killed(dir.path(), 40);
        let files = ["", "-wal", "-count"].map(|suffix| with(&path, suffix));
        let whole = files.clone().map(|file| std::fs::read(file).unwrap());
        let restore = || {
            for (file, bytes) in files.iter().zip(&whole) {
                std::fs::write(file, bytes).unwrap();
            }
            let _ = std::fs::remove_file(with(&path, "-shm"));
        };
        let length = whole[1].len();
        let mut flipped = Vec::new();
        for at in (0..length).step_by(length / 50) {
            let mut bytes = whole[1].clone();
            bytes[at] ^= 1;
            flipped.push(bytes);
        }
        let cut = [0, 100, length / 3, length - 1].map(|length| whole[1][..length].to_vec());
        for (case, bytes) in flipped.into_iter().chain(cut).enumerate() {
            std::fs::write(&files[1], &bytes).unwrap();
            let error = Log::open(&path, &OWNER).unwrap_err().to_string();
            assert!(error.contains("operations"), "case {case}: {error}");
            assert_eq!(std::fs::read(&files[1]).unwrap(), bytes, "case {case}");
            restore();
        }
        for missing in [&files[1..2], &files[..2]] {
            for file in missing {
                std::fs::remove_file(file).unwrap();
            }
            let error = Log::open(&path, &OWNER).unwrap_err().to_string();
            assert!(error.contains("of 40 operations"), "{error}");
            // SQLite makes an empty log to read a file that lacks one.
            let length = |file: &PathBuf| file.metadata().map_or(0, |file| file.len());
            assert!(missing.iter().all(|file| length(file) == 0), "{missing:?}");
            restore();
        }
        std::fs::write(&files[2], &whole[2][..20]).unwrap();
        let error = Log::open(&path, &OWNER).unwrap_err().to_string();
        assert!(error.contains("is damaged"), "{error}");
        restore();
        assert_eq!(Log::open(&path, &OWNER).unwrap().1.len(), 40);
    }

    #[test]
    fn a_log_goes_on_with_what_is_left_once_its_count_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = killed(dir.path(), 40);
        std::fs::remove_file(with(&path, "-wal")).unwrap();
        Log::open(&path, &OWNER).unwrap_err();
        std::fs::remove_file(with(&path, "-count")).unwrap();
        std::fs::write(with(&path, "-wal"), "").unwrap();
        assert!(Log::open(&path, &OWNER).unwrap().1.len() < 40);
    }

    #[test]
    fn a_killed_log_without_its_wal_and_its_count_is_refused_and_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = killed(dir.path(), 40);
        let wal = std::fs::read(with(&path, "-wal")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for suffix in ["-wal", "-count"] {
            std::fs::remove_file(with(&path, suffix)).unwrap();
        }
        let read_only = || Log::open_read_only(&path, "its disk is read-only".to_owned());
        for _ in 0..2 {
            for opened in [Log::open(&path, &OWNER), read_only()] {
                let error = opened.unwrap_err();
                assert!(matches!(error, LogError::NoWal { .. }), "{error}");
                let text = error.to_string();
                assert!(text.contains("0 of an unknown number of operations") && text.contains("b.log-wal"), "{text}");
            }
        }
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        assert!(!with(&path, "-wal").exists());
        // With its log, it has them all.
        std::fs::write(with(&path, "-wal"), wal).unwrap();
        assert_eq!(Log::open(&path, &OWNER).unwrap().1.len(), 40);
        // The mark ends with the mount.
        assert_eq!(read_only().unwrap().1.len(), 40);
    }

    #[test]
    fn a_killed_log_is_complete_after_another_program_has_copied_its_wal() {
        let dir = tempfile::tempdir().unwrap();
        let path = killed(dir.path(), 40);
        let other = database::connect(&path, OpenFlags::default()).unwrap();
        other.query_row("SELECT count(*) FROM operation", (), |_| Ok(())).unwrap();
        drop(other);
        assert!(!with(&path, "-wal").exists());
        assert_eq!(Log::open(&path, &OWNER).unwrap().1.len(), 40);
    }

    #[test]
    fn a_log_reserves_space_and_refuses_an_operation_without_space_before_it_is_applied() {
        use std::os::unix::fs::MetadataExt;

        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = dir.path().join("a.log");
        let (mut log, _) = Log::open(&path, &OWNER).unwrap();
        let allocated = |path: &Path| path.metadata().unwrap().blocks() * 512;
        let past_end = || allocated(&path).saturating_sub(path.metadata().unwrap().len());
        assert!(past_end() >= 1 << 20 && allocated(&with(&path, "-wal")) >= 8 << 20);
        {
            let (Some(space), Some(db)) = (&mut log.space, &log.db) else { panic!("it is written") };
            // More than any disk has.
            let error = space.take(db, 1 << 60, false).unwrap_err();
            assert_eq!(error.errno, Errno::NOSPC, "{error}");
        }
        for number in 0..3000_u32 {
            let operation = Operation::Unlink { parent: ROOT, name: number.to_le_bytes().to_vec() };
            let pending = log.begin(&OWNER, &operation).unwrap();
            log.commit(pending).unwrap();
        }
        // Checkpoints, which free what lies past the end of the file, take it again.
        assert!(past_end() >= 1 << 20 && allocated(&with(&path, "-wal")) <= 9 << 20);
        drop(log);
        assert!(((1 << 20) - 4096..=(1 << 20) + 8192).contains(&past_end()), "{}", past_end());
        assert_eq!(Log::open(&path, &OWNER).unwrap().1.len(), 3000);
    }

    #[test]
    fn a_log_that_can_only_be_read_is_read_as_it_is_and_takes_no_operation() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path| Log::open_read_only(path, "its disk is read-only".to_owned());
        let killed = killed(dir.path(), 40);
        let error = open(&killed).unwrap_err();
        assert!(matches!(error, LogError::NeedsRecovery { .. }), "{error}");
        let whole = dir.path().join("a.log");
        let files = || {
            let names = std::fs::read_dir(dir.path()).unwrap().flatten();
            let file = |file: std::fs::DirEntry| (file.file_name(), std::fs::read(file.path()).unwrap());
            names.map(file).collect::<std::collections::BTreeMap<_, _>>()
        };
        let before = files();
        let link = tempfile::tempdir().unwrap();
        let link = link.path().join("link");
        std::os::unix::fs::symlink(&whole, &link).unwrap();
        for path in [&whole, &link] {
            let (mut log, entries) = open(path).unwrap();
            assert_eq!(entries.len(), 40);
            assert_eq!(log.owner().unwrap().uid, OWNER.uid);
            assert_eq!(log.read_only(), Some("its disk is read-only"));
            let refused = log.begin(&OWNER, &entries[0].operation).unwrap_err();
            assert_eq!(refused.errno, Errno::ROFS);
            log.sync().unwrap();
        }
        assert_eq!(files(), before);
        // What a killed mount has synced in part, without SQLite's log.
        std::fs::remove_file(with(&killed, "-wal")).unwrap();
        let error = open(&killed).unwrap_err();
        assert!(matches!(error, LogError::Lost { .. }), "{error}");
        for text in [None, Some("")] {
            let empty = dir.path().join("empty.log");
            if let Some(text) = text {
                std::fs::write(&empty, text).unwrap();
            }
            let error = open(&empty).unwrap_err();
            assert!(matches!(error, LogError::ReadOnly { .. }), "{error}");
        }
    }

    #[test]
    fn a_log_at_a_link_that_leads_nowhere_is_refused_and_nothing_is_created() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("missing"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        let error = Log::open(&link, &OWNER).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert!(!target.exists());
        std::fs::write(&target, b"").unwrap();
        drop(Log::open(&link, &OWNER).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
