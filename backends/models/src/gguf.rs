//! Checks of model files: the GGUF format and the SHA-256.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// File name, bytes and SHA-256 of the model that `make model` installs.
pub const SMOLLM2: (&str, u64, &str) =
    ("SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53");

/// Why a file cannot be used as a model.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be read.
    #[error("the model {}: {error}\n  fix: `make model` installs one", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not GGUF.
    #[error("{} is not a GGUF file: it begins with {begins:?}, not with \"GGUF\"", .path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// Its first four bytes, as text.
        begins: String,
    },
    /// The file is another model, or damaged.
    #[error(
        "{} is not the expected model: its SHA-256 is {is}, not {expected}\n  fix: remove it and run `make model`; or give the right --model-sha256",
        .path.display()
    )]
    Checksum {
        /// The file.
        path: PathBuf,
        /// Its SHA-256.
        is: String,
        /// The expected SHA-256.
        expected: String,
    },
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// If it cannot be read.
pub fn sha256_of(path: &Path) -> Result<String, GgufError> {
    inputs::sha256_of(path).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, error: io::Error) -> GgufError {
    let path = path.to_owned();
    GgufError::File { path, error }
}

/// Checks that a file is GGUF and has the `expected` SHA-256. A file with the name of [`SMOLLM2`] must
/// have that model's SHA-256 by default.
///
/// # Errors
/// [`GgufError`], which names the file.
pub fn check_gguf(path: &Path, expected: Option<&str>) -> Result<(), GgufError> {
    let mut magic = Vec::new();
    let read = File::open(path).and_then(|file| file.take(4).read_to_end(&mut magic));
    read.map_err(|error| unreadable(path, error))?;
    if magic != b"GGUF" {
        return Err(GgufError::NotGguf { path: path.to_owned(), begins: String::from_utf8_lossy(&magic).into_owned() });
    }
    let is_known = path.file_name().is_some_and(|name| name == SMOLLM2.0);
    let Some(expected) = expected.or(is_known.then_some(SMOLLM2.2)) else {
        return Ok(());
    };
    let is = sha256_of(path)?;
    if is.eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    Err(GgufError::Checksum { path: path.to_owned(), is, expected: expected.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        let error = |expected| check_gguf(&path, expected).unwrap_err().to_string();
        assert!(error(None).contains("m.gguf") && error(None).contains("make model"));
        std::fs::write(&path, "PK\x03\x04").unwrap();
        assert!(error(None).contains("not a GGUF file"));
        std::fs::write(&path, "GGUFabc").unwrap();
        check_gguf(&path, None).unwrap();
        assert!(error(Some("00")).contains("SHA-256"));
        let right = "A1B3".to_owned();
        let is = error(Some(&right));
        let is = is.split("SHA-256 is ").nth(1).unwrap();
        check_gguf(&path, Some(&is[..64])).unwrap();

        let known = dir.path().join(SMOLLM2.0);
        std::fs::write(&known, "GGUF but damaged").unwrap();
        let damaged = check_gguf(&known, None).unwrap_err().to_string();
        assert!(damaged.contains(SMOLLM2.2), "{damaged}");
    }
}
