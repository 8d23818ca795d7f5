//! A whole file system as one JSON file, and back. One mount owns it at a time.
//!
//! It is written beside its place first, synced, and then renamed into it: after a crash or power loss there is the
//! whole old one or the whole new one. Holes are not written, and content goes through memory a piece at a time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::load;
use crate::memory::MemoryStore;
use crate::store::{Ino, StoreError};

/// The format's version, and the oldest one that is read.
pub(super) const VERSION: u32 = 2;
pub(super) const OLDEST: u32 = 1;

/// Why a saved file system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It can be neither made nor locked.
    #[error(
        "nothing can be saved in {}: {error}\n  fix: make its folder and let this user write there, or name another file by --save",
        .path.display()
    )]
    Place {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// Another mount saves there.
    #[error(
        "{} belongs to another mount, which holds {}\n  fix: unmount that one, or name another file by --save",
        .path.display(), .lock.display()
    )]
    Owned {
        /// The file.
        path: PathBuf,
        /// Its lock.
        lock: PathBuf,
    },
    /// It is something else.
    #[error("{} is no saved file system: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        why: String,
    },
    /// A node in it cannot be.
    #[error("{}: the node {node} cannot be restored: {error}", .path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// Its number in the file.
        node: u64,
        /// What the store said.
        error: StoreError,
    },
}

/// Bytes as text where they are, else in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Bytes {
    Text(String),
    Base64(String),
}

impl Bytes {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64_STANDARD.encode(bytes)),
        }
    }

    pub(super) fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => BASE64_STANDARD
                .decode(text)
                .map_err(|error| error.to_string()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Saved {
    pub(super) v: u32,
    pub(super) nodes: Vec<Node>,
}

/// Bytes of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extent {
    /// The first byte's place.
    pub(super) at: u64,
    pub(super) bytes: Bytes,
}

/// An inode as it is read. Directories come before other nodes, those above first; in version 1, in any order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    /// Its number in this file; 1 is the root.
    pub(super) node: u64,
    /// Directory and name, one for each hard link; none for the root.
    pub(super) names: Vec<(u64, Bytes)>,
    /// The type bits of `st_mode`.
    pub(super) kind: u32,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    /// Nanoseconds since 1970: access and modification.
    pub(super) atime: i64,
    pub(super) mtime: i64,
    /// All of it, of a short file without holes.
    pub(super) content: Option<Bytes>,
    /// The size, and what is there of it, of any other.
    pub(super) size: Option<u64>,
    pub(super) extents: Option<Vec<Extent>>,
    pub(super) target: Option<Bytes>,
    #[serde(default)]
    pub(super) xattrs: BTreeMap<String, Bytes>,
    /// Those whose names are no text.
    #[serde(default)]
    pub(super) more_xattrs: Vec<(Bytes, Bytes)>,
    /// It waits to be generated, and this is what it is to hold, where something says so.
    pub(super) pending: Option<Pending>,
}

/// A file that has not been generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pending {
    /// What makes it.
    pub(super) generator: String,
    /// What it is to hold.
    pub(super) about: Option<String>,
}

/// The file that a mount saves itself in. Its lock, a file beside it, ends with the process, however that ends.
#[derive(Debug)]
pub(super) struct SaveFile {
    path: PathBuf,
    _lock: File,
}

impl SaveFile {
    /// Takes possession of a file, which need not be there; its folder has to.
    pub(super) fn own(path: &Path) -> Result<Self, SavedError> {
        let unusable = |error| SavedError::Place {
            path: path.to_owned(),
            error,
        };
        // Two names of one file must not be two files.
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(_) => {
                let name = path.file_name().ok_or_else(|| {
                    let what = std::io::ErrorKind::InvalidInput;
                    unusable(std::io::Error::new(what, "it names no file"))
                })?;
                folder(path).canonicalize().map_err(unusable)?.join(name)
            }
        };
        let lock = beside(&path, ".lock");
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock)
            .map_err(unusable)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(SavedError::Owned { path, lock }),
            Err(error) => Err(unusable(error.into())),
        }
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether something has been saved there.
    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Fills an empty `store` from it; says which inode waits for what, and calls `named` for each name.
    pub(super) fn load(
        &self,
        store: &MemoryStore,
        named: impl FnMut(Ino, Ino, &[u8]),
    ) -> Result<Vec<(Ino, Pending)>, SavedError> {
        load::load(&self.path, store, named)
    }
}

pub(super) fn folder(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
