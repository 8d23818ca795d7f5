//! The files of a database: its log, its redo log and its tails lie beside it.

use std::path::{Path, PathBuf};

/// The write-ahead log of the database at `path`.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

/// Whether there is a log; the empty one that SQLite makes when it opens a database is none.
pub(super) fn has_log(path: &Path) -> bool {
    std::fs::metadata(log_of(path)).is_ok_and(|log| log.len() > 0)
}

/// The redo log of the database at `path`.
pub(super) fn redo_of(path: &Path) -> PathBuf {
    beside(path, "-redo")
}

/// The directory that holds the tails of the database at `path`.
pub(super) fn tails_of(path: &Path) -> PathBuf {
    beside(path, "-tails")
}

/// All files that a database at `path` may have, itself first.
pub(crate) fn files_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let suffixes = ["", "-wal", "-shm", "-journal", "-redo", "-tails"];
    suffixes.into_iter().map(|suffix| beside(path, suffix))
}

/// The directory that holds the file at `path`.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}
