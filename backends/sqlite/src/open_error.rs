//! Why a database cannot be opened as a file system.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::files::folder;

/// `PRAGMA user_version` of the schema in `schema.sql`.
pub const DATABASE_VERSION: i32 = 6;

/// Why a database cannot be opened as a file system. Nothing was changed in it.
#[derive(Debug, thiserror::Error)]
pub enum SqliteOpenError {
    /// Another process has it mounted: the file, and where, if that can be told.
    #[error(
        "{} is in use by another {}\n  fix: use that mount, which serves every process of this host; or unmount it; or choose another file with --db",
        .0.display(), .1.as_ref().map_or_else(|| "ctxbench mount, or by a check of `ctxbench doctor`".to_owned(), |at| format!("ctxbench mount, at {}", at.display()))
    )]
    Owned(PathBuf, Option<PathBuf>),
    /// It is an SQLite database of something else.
    #[error("{} is an SQLite database, but not a ctxbench file system (application_id {found:#x})\n  fix: choose another file", .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        found: i32,
    },
    /// It is not an SQLite database.
    #[error("{} is not a ctxbench file system: {reason}; nothing in it was changed\n  fix: choose another file", .path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Why the file is refused.
        reason: String,
    },
    /// It can only be read, and a mount that did not end in order has left changes in its logs.
    #[error(
        "{} is read-only ({reason}), but it was not unmounted cleanly, so its logs must be replayed into it\n  fix: copy it, with all files whose names begin with its name, to a directory that you can write to, and mount the copy", .path.display()
    )]
    NeedsRecovery {
        /// The file.
        path: PathBuf,
        /// Why it can only be read.
        reason: String,
    },
    /// It is read-only, but opening it needs a write.
    #[error("{} is read-only: {reason}\n  fix: {fix}", .path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// Why it can only be read.
        reason: String,
        /// What to do.
        fix: &'static str,
    },
    /// Another ctxbench wrote it.
    #[error("{} has schema version {found}; this ctxbench knows version {DATABASE_VERSION}\n  fix: mount it with the ctxbench that wrote it", .path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        found: i32,
    },
    /// Its log was removed, and with it the changes that were not yet in the database.
    #[error(
        "the log {} is missing, but {} was not unmounted cleanly, so its latest changes are lost without the log\n  fix: put the log back; or mount with --without-log to continue with an earlier state", .log.display(), .path.display()
    )]
    LogGone {
        /// The database.
        path: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// Its log or its redo log is damaged, and with it changes that had returned.
    #[error(
        "the log {} is damaged, and the latest changes of {} cannot be read from it: {reason}\n  fix: restore {}, its -wal and its -redo from a copy; or mount with --without-log to continue with the state before the damage", .log.display(), .path.display(), .path.display()
    )]
    LogDamaged {
        /// The database.
        path: PathBuf,
        /// Its redo log.
        log: PathBuf,
        /// What is damaged.
        reason: String,
    },
    /// Its file is missing or empty, but one of its logs or its tails are not. SQLite would remove its log, the mount the others.
    #[error(
        "{} is missing or empty, but {} of the same database is there\n  fix: put the database back; or move that file away to begin with an empty store", .path.display(), .beside.display()
    )]
    Cut {
        /// The database.
        path: PathBuf,
        /// Its log, or the directory of its tails.
        beside: PathBuf,
    },
    /// Something else is in the place of one of its files.
    #[error(
        "{} cannot be opened: {} is {}, and not a file of this database\n  fix: move it away", .path.display(), .beside.display(), kind_of(.beside)
    )]
    ForeignFile {
        /// The database.
        path: PathBuf,
        /// What is in the place of one of its files.
        beside: PathBuf,
    },
    /// Its log is missing, and the database without it mixes several states.
    #[error(
        "{} is inconsistent without its log: {problem}\n  fix: put the log back; `ctxbench doctor --store` lists all damage", .path.display()
    )]
    NotWhole {
        /// The database.
        path: PathBuf,
        /// The first thing that is wrong.
        problem: String,
    },
    /// It is a symbolic link to a file that does not exist.
    #[error(
        "{} cannot be opened: it is a symbolic link to {}, which does not exist\n  fix: give --db the path that the link names, to create a database there; or remove the link", .path.display(), .target.display()
    )]
    DanglingLink {
        /// The link.
        path: PathBuf,
        /// What it names.
        target: PathBuf,
    },
    /// Its disk has no room for the log of a mount.
    #[error(
        "{} cannot be opened: {reason}; its disk has {left} KiB left\n  fix: free at least 8 MiB, and mount it again; nothing in it was changed", .path.display()
    )]
    Full {
        /// The database.
        path: PathBuf,
        /// The message of SQLite or the system.
        reason: String,
        /// KiB that are left.
        left: u64,
    },
    /// SQLite cannot read it.
    #[error("{} cannot be opened: {reason}\n  fix: {}", .path.display(), open_fix(.path, .reason))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The message of SQLite or the system.
        reason: String,
    },
}

fn kind_of(path: &Path) -> &'static str {
    match path.symlink_metadata() {
        Ok(found) if found.is_symlink() => "a symbolic link",
        Ok(found) if found.is_dir() => "a directory",
        Ok(found) if found.is_file() => "a regular file",
        _ => "a special file",
    }
}

/// What to do about a file that cannot be opened.
fn open_fix(path: &Path, reason: &str) -> String {
    let folder = folder(path);
    let says = |errno: Errno| reason.contains(&io::Error::from(errno).to_string());
    if !folder.exists() {
        format!("create its directory with `mkdir -p {}`", folder.display())
    } else if says(Errno::NOENT) {
        "correct the path".to_owned()
    } else if says(Errno::ACCESS) || says(Errno::PERM) {
        "use it as a user who may read and write the file and its directory, or change their modes".to_owned()
    } else if says(Errno::NOTDIR) {
        format!("choose a file in a directory: {} is none", folder.display())
    } else if says(Errno::NOSPC) || says(Errno::DQUOT) {
        "free at least 8 MiB on its disk, or raise the quota, and mount it again".to_owned()
    } else if says(Errno::FBIG) {
        "raise the limit of file sizes (`ulimit -f`), and mount it again".to_owned()
    } else {
        "restore it from a copy, or choose another file".to_owned()
    }
}

pub(super) fn unreadable(path: &Path, reason: &impl ToString) -> SqliteOpenError {
    SqliteOpenError::Unreadable { path: path.to_owned(), reason: reason.to_string() }
}
