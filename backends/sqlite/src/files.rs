//! The files of a database: its log, its redo log and its tails lie beside it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub(super) use fuse::own_file::{is_foreign, open as open_beside, open_in};
use rustix::fs::{AtFlags, fstat, statat, unlinkat};

/// What follows the name of a database in those of the files beside it.
pub(super) const LOG: &str = "-wal";
pub(super) const INDEX: &str = "-shm";
pub(super) const REDO: &str = "-redo";
pub(super) const TAILS: &str = "-tails";
pub(super) const SUMS: &str = "-sums";

/// The write-ahead log of the database at `path`.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, LOG)
}

/// The shared memory of SQLite's connections to the database at `path`.
pub(super) fn index_of(path: &Path) -> PathBuf {
    beside(path, INDEX)
}

/// Whether there is a log; the empty one that SQLite makes when it opens a database is none.
pub fn has_log(path: &Path) -> bool {
    std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0)
}

/// Whether there is a redo log.
pub(super) fn has_redo(path: &Path) -> bool {
    std::fs::metadata(redo_of(path)).is_ok_and(|redo| redo.len() > 0)
}

/// The redo log of the database at `path`.
pub(super) fn redo_of(path: &Path) -> PathBuf {
    beside(path, REDO)
}

/// A redo log of the database at `path` that is being made.
pub(super) fn new_redo_of(path: &Path) -> PathBuf {
    beside(path, "-redo-new")
}

/// The directory that holds the tails of the database at `path`.
pub(super) fn tails_of(path: &Path) -> PathBuf {
    beside(path, TAILS)
}

/// The checksum file of the database at `path`.
pub(super) fn sums_of(path: &Path) -> PathBuf {
    beside(path, SUMS)
}

/// All files that a database at `path` may have, itself first.
pub(crate) fn files_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let suffixes = ["", "-wal", "-shm", "-journal", "-redo", "-redo-new", "-tails", "-sums"];
    suffixes.into_iter().map(|suffix| beside(path, suffix))
}

/// What lies beside the database at `path` in the place of one of its files, and is something else: through a symbolic link,
/// a mount would write to a file of another program, and it would wait for a pipe.
pub(super) fn foreign_beside(path: &Path) -> Option<PathBuf> {
    let tails = tails_of(path);
    files_of(path).skip(1).find(|file| {
        let found = file.symlink_metadata();
        found.is_ok_and(|found| if *file == tails { !found.is_dir() } else { !found.is_file() })
    })
}

/// Whether a regular file has that path.
pub(super) fn is_regular(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_file())
}

/// The directory that holds the file at `path`.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The directory of a database, held open: the files beside the database are found after the directory was moved, too.
#[derive(Debug)]
pub(super) struct DatabaseDirectory {
    folder: File,
    /// The name of the database in it.
    name: OsString,
}

impl DatabaseDirectory {
    /// Opens the directory of the database at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self { folder: File::open(folder(path))?, name })
    }

    /// The directory.
    pub(super) fn folder(&self) -> &File {
        &self.folder
    }

    /// The name of the file with `suffix`, in the directory.
    pub(super) fn name(&self, suffix: &str) -> OsString {
        let mut name = self.name.clone();
        name.push(suffix);
        name
    }

    /// Whether the files here are still of the database whose file is `database`: after that was moved alone, another one may
    /// have been created under its name.
    pub(super) fn is_of(&self, database: &File) -> bool {
        let there = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match (there, fstat(database)) {
            (Err(rustix::io::Errno::NOENT), _) => true,
            (Ok(there), Ok(here)) => (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino),
            _ => false,
        }
    }

    /// Removes a file that nothing needs, if it is there.
    pub(super) fn remove(&self, suffix: &str) {
        let name = self.name(suffix);
        match unlinkat(&self.folder, &name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => {
                tracing::warn!(file = %name.display(), %error, "cannot be removed");
            }
        }
    }
}
