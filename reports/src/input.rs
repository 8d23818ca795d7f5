//! Reading claims and policies: errors that name file, line and field.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

/// What is wrong with an input file, and where.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct InputError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// What is wrong, with the field and what would be allowed.
    pub message: String,
}

impl InputError {
    /// An error about a file as a whole.
    pub fn whole(file: &Path, message: impl ToString) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            message: message.to_string(),
        }
    }
}

/// Reads a TOML document; `file` only names it in errors.
///
/// # Errors
/// [`InputError`] with the line and the field.
pub fn parse_toml<T: DeserializeOwned>(file: &Path, text: &str) -> Result<T, InputError> {
    toml::from_str(text).map_err(|error| {
        let line = error.span();
        let line = line.map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        InputError {
            file: file.to_owned(),
            line,
            message: error.message().to_owned(),
        }
    })
}

/// SHA-256 of a text, in lower-case hexadecimal.
pub fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
