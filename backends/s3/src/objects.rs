//! The objects of a log: keys, bytes, and the requests of the protocol, which create, read and list objects.
//! There is no overwrite and no delete. docs/S3-PROTOCOL.md describes the bytes for other readers:
//!
//! ```text
//! magic (8 bytes) | inline section | header (postcard) | length of the header (4 bytes, little-endian) | checksum
//! ```
//!
//! The checksum is the first 8 bytes of the SHA-256 of all before it.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::tree::{Changes, Hash, InvalidLog, Place};

/// An object of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A commit, by number; the first is 1.
    Log(u64),
    /// A chunk of a file, by digest and salt.
    Blob(Hash, u32),
    /// The whole tree after a commit, by its number.
    Checkpoint(u64),
    /// A statement by garbage collection that early commits are gone; the first is 1.
    Floor(u64),
}

impl Key {
    /// The key below `agents/<agent>/.ctx/`; `blob` spells the digest of a blob, which encryption hides.
    pub fn path(self, blob: impl Fn(Hash) -> String) -> String {
        match self {
            Self::Log(number) => format!("log/{number:020}"),
            Self::Blob(hash, 0) => format!("blob/{}", blob(hash)),
            Self::Blob(hash, salt) => format!("blob/{}-{salt:08x}", blob(hash)),
            Self::Checkpoint(number) => format!("checkpoint/{number:020}"),
            Self::Floor(number) => format!("floor/{number:020}"),
        }
    }
}

/// The outcome of a conditional PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was created by this request.
    Created,
    /// An object of that key exists. An earlier attempt at this request may have created it.
    Exists,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The answer is not known: a timeout, a broken connection, a server's error. The request may be done, even later.
    #[error("{0}")]
    Unknown(String),
    /// The server refuses: no access, no bucket, or a request that it does not implement.
    #[error("{0}")]
    Refused(String),
    /// The object was sealed with another key, or is damaged.
    #[error("{0}")]
    Unreadable(String),
}

/// The requests to a bucket that the protocol uses. They fail with a [`Fault`].
pub trait Objects: Sync {
    /// Creates an object unless one has that key (`If-None-Match: *`). After [`Fault::Unknown`] it may exist, or appear.
    fn put_new(&self, key: Key, body: Bytes) -> impl Future<Output = Result<PutOutcome, Fault>> + Send;

    /// Reads an object, or a range of it in bytes. `None` if there is none.
    fn get(&self, key: Key, range: Option<Range<u64>>) -> impl Future<Output = Result<Option<Bytes>, Fault>> + Send;

    /// The numbers of checkpoints. A stale answer is harmless.
    fn checkpoints(&self) -> impl Future<Output = Result<Vec<u64>, Fault>> + Send;
}

/// The first bytes of every object; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"ctxlog\0\x01";

/// Bytes of the checksum.
pub(crate) const CHECKSUM: usize = 8;

/// Bytes before the inline section.
pub const INLINE_START: u64 = MAGIC.len() as u64;

/// The last commit that a tree contains. The default is before the first commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Its number; 0 before the first.
    pub number: u64,
    /// Its digest; zeros before the first.
    pub hash: Hash,
    /// The digest of commit 1, which tells one log from another; zeros before it.
    pub first: Hash,
}

/// A batch of changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commit {
    /// Its number; the first is 1.
    pub number: u64,
    /// The digest of the commit before it; zeros before the first.
    pub parent: Hash,
    /// The mount that made it.
    pub writer: u64,
    /// That mount's name, as conflict names and the log show it.
    pub writer_name: String,
    /// Unique for each attempt to commit.
    pub nonce: [u8; 16],
    /// When it was made, in nanoseconds since 1970 by the writer's clock. Orders nothing.
    pub time: i64,
    /// Its changes. Inline chunks of the commit itself name commit 0.
    pub changes: Changes,
}

/// The whole tree after a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The number of the commit.
    pub number: u64,
    /// The digest of the commit.
    pub hash: Hash,
    /// When the commit was made.
    pub time: i64,
    /// The tree, as changes of an empty one.
    pub tree: Changes,
}

/// Garbage collection's statement that commits before a checkpoint may be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The checkpoint to start from.
    pub checkpoint: u64,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
}

/// The content of an object of the log.
pub trait Record: Serialize + DeserializeOwned {
    /// The object, with the bytes of inline chunks. Fails if it cannot be encoded.
    fn encode(&self, inline: &[u8]) -> Result<Bytes, InvalidLog> {
        let object = [MAGIC, inline].concat();
        let start = object.len();
        let encoded = postcard::to_extend(self, object);
        let mut object = encoded.map_err(|error| InvalidLog(error.to_string()))?;
        let length = (object.len() - start) as u32;
        object.extend(length.to_le_bytes());
        // The checksum detects damage before another commit names the object's digest.
        let sum = Hash::of(&object);
        object.extend(&sum.0[..CHECKSUM]);
        Ok(object.into())
    }

    /// Decodes an object. Fails if it is damaged, of a newer format, or none of ours.
    fn decode(object: &[u8]) -> Result<Self, InvalidLog> {
        let fail = |reason: &str| InvalidLog(reason.to_owned());
        let cut = || fail("it is not an object of a ctxbench log, or it is truncated");
        let (magic, rest) = object.split_first_chunk::<8>().ok_or_else(cut)?;
        if magic[..7] != MAGIC[..7] {
            return Err(cut());
        }
        if magic[7] != MAGIC[7] {
            let newer = "this ctxbench knows format 1 (use a newer ctxbench)";
            return Err(InvalidLog(format!("it has format {}; {newer}", magic[7])));
        }
        let (rest, sum) = rest.split_last_chunk::<CHECKSUM>().ok_or_else(cut)?;
        let Hash(digest) = Hash::of(&object[..object.len() - sum.len()]);
        if !digest.starts_with(sum) {
            return Err(fail("it is damaged: wrong checksum"));
        }
        let (rest, length) = rest.split_last_chunk::<4>().ok_or_else(cut)?;
        let start = rest.len().checked_sub(u32::from_le_bytes(*length) as usize);
        let header = &rest[start.ok_or_else(cut)?..];
        postcard::from_bytes(header).map_err(|error| InvalidLog(format!("it is damaged: {error}")))
    }
}

impl Record for Commit {}
impl Record for Checkpoint {}
impl Record for Floor {}

impl Commit {
    /// The commit in an object, as a tree has it: inline chunks name the commit.
    pub fn decode(object: &[u8]) -> Result<Self, InvalidLog> {
        <Self as Record>::decode(object).map(Self::located)
    }

    pub(crate) fn located(mut self) -> Self {
        for chunk in self.changes.chunks_mut() {
            if let Place::Inline { commit, .. } = &mut chunk.place
                && *commit == 0
            {
                *commit = self.number;
            }
        }
        self
    }
}
