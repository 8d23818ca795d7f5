//! The bytes of objects: commits, checkpoints and floors. docs/S3.md describes them for other readers.
//!
//! ```text
//! magic (8 bytes) | inline section | header (postcard) | length of the header (4 bytes, little-endian) | checksum
//! ```
//!
//! The checksum is the first 8 bytes of the SHA-256 of all before it.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::tree::{Body, Changes, Chunk, Hash, Node, Place};

/// The first bytes of every object; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"ctxlog\0\x01";

/// Bytes before the inline section.
pub const INLINE_START: u64 = MAGIC.len() as u64;

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// It was not written by ctxbench, or is cut.
    #[error("it is no object of a ctxbench log, or is cut")]
    NotOurs,
    /// It was written by a later ctxbench.
    #[error("it has format {0}; this ctxbench knows format 1 (mount with a newer ctxbench)")]
    Newer(u8),
    /// Its checksum is wrong, or its header does not decode.
    #[error("it is damaged: {0}")]
    Damaged(String),
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
    /// What it changes.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The checkpoint to start from.
    pub checkpoint: u64,
    /// When it was made, in nanoseconds since 1970.
    pub time: i64,
}

/// What tells a damaged object before another commit names its digest.
fn checksum(object: &[u8]) -> [u8; 8] {
    let mut sum = [0; 8];
    sum.copy_from_slice(&Hash::of(object).0[..8]);
    sum
}

fn encode(inline: &[u8], header: &impl Serialize) -> Result<Bytes, FormatError> {
    let damaged = |error: postcard::Error| FormatError::Damaged(error.to_string());
    let mut object = Vec::with_capacity(inline.len() + 512);
    object.extend(MAGIC);
    object.extend(inline);
    let start = object.len();
    let mut object = postcard::to_extend(header, object).map_err(damaged)?;
    let length = (object.len() - start) as u32;
    object.extend(length.to_le_bytes());
    object.extend(checksum(&object));
    Ok(object.into())
}

fn decode<T: DeserializeOwned>(object: &[u8]) -> Result<T, FormatError> {
    let Some((magic, rest)) = object.split_first_chunk::<8>() else {
        return Err(FormatError::NotOurs);
    };
    if magic[..7] != MAGIC[..7] {
        return Err(FormatError::NotOurs);
    }
    if magic[7] != MAGIC[7] {
        return Err(FormatError::Newer(magic[7]));
    }
    let (_, sum) = rest.split_last_chunk::<8>().ok_or(FormatError::NotOurs)?;
    if *sum != checksum(&object[..object.len() - sum.len()]) {
        return Err(FormatError::Damaged(
            "its checksum is not that of its bytes".to_owned(),
        ));
    }
    let rest = &rest[..rest.len() - sum.len()];
    let (rest, length) = rest.split_last_chunk::<4>().ok_or(FormatError::NotOurs)?;
    let length = u32::from_le_bytes(*length) as usize;
    let start = rest.len().checked_sub(length).ok_or(FormatError::NotOurs)?;
    postcard::from_bytes(&rest[start..]).map_err(|error| FormatError::Damaged(error.to_string()))
}

impl Commit {
    /// The object of the commit; `inline` holds the bytes of its inline chunks.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn encode(&self, inline: &[u8]) -> Result<Bytes, FormatError> {
        encode(inline, self)
    }

    /// The commit in an object. Its inline chunks name it.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(object: &[u8]) -> Result<Self, FormatError> {
        let mut commit: Self = decode(object)?;
        for chunk in chunks_of(&mut commit.changes) {
            if let Place::Inline { commit: 0, offset } = chunk.place {
                let number = commit.number;
                chunk.place = Place::Inline {
                    commit: number,
                    offset,
                };
            }
        }
        Ok(commit)
    }
}

impl Checkpoint {
    /// The object of the checkpoint.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn encode(&self) -> Result<Bytes, FormatError> {
        encode(&[], self)
    }

    /// The checkpoint in an object.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(object: &[u8]) -> Result<Self, FormatError> {
        decode(object)
    }
}

impl Floor {
    /// The object of the floor.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub fn encode(&self) -> Result<Bytes, FormatError> {
        encode(&[], self)
    }

    /// The floor in an object.
    ///
    /// # Errors
    /// [`FormatError`].
    pub fn decode(object: &[u8]) -> Result<Self, FormatError> {
        decode(object)
    }
}

/// The chunks of all files in the changes.
pub fn chunks_of(changes: &mut Changes) -> impl Iterator<Item = &mut Chunk> {
    changes.nodes.values_mut().flat_map(chunks_of_node)
}

fn chunks_of_node(node: &mut Node) -> &mut [Chunk] {
    match &mut node.body {
        Body::File(content) => &mut content.chunks,
        _ => &mut [],
    }
}

/// The bytes of an inline chunk in the object of its commit; `None` if they are not there or not these.
pub fn inline_bytes(object: &Bytes, chunk: &Chunk) -> Option<Bytes> {
    let Place::Inline { offset, .. } = chunk.place else {
        return None;
    };
    let start = INLINE_START as usize + offset as usize;
    let end = start + chunk.length as usize;
    let bytes = (end <= object.len()).then(|| object.slice(start..end))?;
    (Hash::of(&bytes) == chunk.hash).then_some(bytes)
}
