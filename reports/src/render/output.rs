//! Writes files of reports, each atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why a report could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file cannot be written.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A document, chart or table cannot be formatted.
    #[error("{0}")]
    Format(String),
}

/// Writes a file atomically, by a temporary file and a rename.
pub(super) fn put(file: &Path, text: &str) -> Result<(), WriteError> {
    let io = |error| WriteError::Io {
        file: file.to_owned(),
        error,
    };
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).map_err(io)?;
    }
    let half = file.with_extension("part");
    fs::write(&half, text).map_err(io)?;
    fs::rename(&half, file).map_err(io)
}
