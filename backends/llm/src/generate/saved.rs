//! The save file: a whole file system as one JSON file with a checksum, which one mount owns at a time.
//!
//! A save writes a file beside it, syncs it and renames it: after a crash or power loss the old or the new
//! file is complete. Holes are not written. A save holds one extent of content in memory.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fuse::memory::MemoryStore;
use fuse::own_file;
use fuse::store::{Errno, Ino, StoreError};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sqlite::database::unwritable_folder;

use super::load;

/// The format version.
pub(super) const VERSION: u32 = 3;

/// Why a save file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// The save file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// The save file's folder is unusable, or its lock cannot be taken.
    #[error(
        "cannot save in {}: {error}\n  fix: create its directory with write permission for you, or name another file with --save",
        .path.display()
    )]
    Folder {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
    /// Another mount holds the lock.
    #[error(
        "{} is in use by another mount, which holds {}\n  fix: unmount that one, or name another file with --save",
        .path.display(), .lock.display()
    )]
    Owned {
        /// The file.
        path: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// The file is not a save file of a known version.
    #[error("{} is not a saved file system: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// The invalid field and its place.
        why: String,
    },
    /// A node cannot be saved or restored.
    #[error("{}: the node {node} cannot be restored: {error}", .path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// The number of the node.
        node: u64,
        /// The error of the store.
        error: StoreError,
    },
}

/// Bytes as text if they are UTF-8, else in base64.
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
            Self::Base64(text) => BASE64_STANDARD.decode(text).map_err(|error| error.to_string()),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SavedTree {
    pub(super) v: u32,
    pub(super) nodes: Vec<Node>,
    /// See [`super::checksum`].
    #[serde(default, rename = "crc32")]
    pub(super) _crc32: String,
}

/// Contiguous bytes of a file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Extent {
    /// The offset of the first byte.
    pub(super) at: u64,
    pub(super) bytes: Bytes,
}

/// An inode; `E` are its extents, which are read from the store while they are written. Directories come before other
/// nodes, parents before children.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node<E = Vec<Extent>> {
    /// The number of the node in this file; 1 is the root.
    pub(super) node: u64,
    /// Directory and name of each hard link; none for the root.
    pub(super) names: Vec<(u64, Bytes)>,
    /// The type bits of `st_mode`.
    pub(super) kind: u32,
    pub(super) permissions: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) rdev: u32,
    /// Access and modification time, in nanoseconds since 1970.
    pub(super) atime: i64,
    pub(super) mtime: i64,
    /// The whole content of a short file without holes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<Bytes>,
    /// The size in bytes and the extents of any other file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extents: Option<E>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Bytes>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) xattrs: BTreeMap<String, Bytes>,
    /// Attributes whose names are not UTF-8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) more_xattrs: Vec<(Bytes, Bytes)>,
    /// Present if the file waits for generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pending: Option<PendingFile>,
}

/// How a waiting file is to be generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingFile {
    /// The name of the generator.
    pub(super) generator: String,
    /// The prompt of the file.
    pub(super) about: Option<String>,
}

/// The save file of a mount. The kernel releases its lock, on a file beside it, when the process ends.
#[derive(Debug)]
pub(super) struct SaveFile {
    path: PathBuf,
    /// `None` where it can only be read.
    lock: Option<Lock>,
    /// Why it can only be read.
    read_only: Option<String>,
}

#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _file: File,
    /// This start has created the file.
    is_new: bool,
    /// It is removed with this value.
    is_discarded: AtomicBool,
}

impl Lock {
    /// Removes the file with this value if this start has created it, or keeps it.
    fn discard_new(&self, discards: bool) {
        self.is_discarded.store(self.is_new && discards, Ordering::Relaxed);
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock is still held: no mount can take it before.
        if *self.is_discarded.get_mut()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(%error, "removing {}", self.path.display());
        }
    }
}

impl SavedError {
    /// The error number for a caller that waits for a save.
    pub(super) fn errno(&self) -> Errno {
        match self {
            Self::File { error, .. } => Errno::from_io_error(error).unwrap_or(Errno::IO),
            _ => Errno::IO,
        }
    }
}

impl SaveFile {
    /// Locks the save file at `path`. The file need not exist; its folder must. One that exists in a folder without write
    /// permission can only be read. Until [`SaveFile::discard_new_lock`], a lock file that was created is removed again.
    pub(super) fn own(path: &Path) -> Result<Self, SavedError> {
        let unusable = |error| SavedError::Folder { path: path.to_owned(), error };
        // Two paths of one file must share a lock.
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
        if let Some(reason) = unwritable_folder(&path).filter(|_| path.exists()) {
            return Ok(Self { path, lock: None, read_only: Some(reason) });
        }
        let lock = beside(&path, ".lock");
        let is_new = !lock.exists();
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = own_file::open(&lock, &options).map_err(unusable)?;
        // A refused start may have removed the file meanwhile.
        let is_same = || -> std::io::Result<bool> {
            let (here, there) = (file.metadata()?, lock.symlink_metadata()?);
            Ok((here.dev(), here.ino()) == (there.dev(), there.ino()))
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_same().unwrap_or(false) => {
                let is_discarded = AtomicBool::new(is_new);
                Ok(Self { path, lock: Some(Lock { path: lock, _file: file, is_new, is_discarded }), read_only: None })
            }
            Ok(()) | Err(Errno::WOULDBLOCK) => Err(SavedError::Owned { path, lock }),
            Err(error) => Err(unusable(error.into())),
        }
    }

    /// Whether a lock file that this start has created is removed when this is dropped.
    pub(super) fn discard_new_lock(&self, discards: bool) {
        if let Some(lock) = &self.lock {
            lock.discard_new(discards);
        }
    }

    /// Why it can only be read; `None` if it can be written.
    pub(super) fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// The canonical path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the save file exists.
    pub(super) fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Loads an empty `store`. Calls `named` for each name, and returns the waiting files.
    pub(super) fn load(
        &self,
        store: &MemoryStore,
        named: impl FnMut(Ino, Ino, &[u8]),
    ) -> Result<Vec<(Ino, PendingFile)>, SavedError> {
        load::load(&self.path, store, named)
    }
}

pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
