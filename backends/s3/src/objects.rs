//! What the protocol needs of a bucket: create, read, list. There is no overwrite and no delete.

use std::future::Future;
use std::ops::Range;

use bytes::Bytes;

use crate::tree::Hash;

/// An object of the log. [`crate::keys`] spells it.
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

/// What came of a conditional PUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The object was created by this request.
    Created,
    /// An object of that key exists. An earlier attempt at this request may have created it.
    Exists,
}

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The answer is not known: a timeout, a broken connection, an error of the server. The request may be
    /// done, or may be done later.
    #[error("{0}")]
    Unknown(String),
    /// The server refuses: no access, no bucket, or a request that it does not implement.
    #[error("{0}")]
    Refused(String),
    /// The object was sealed with another key, or is damaged.
    #[error("{0}")]
    Unreadable(String),
}

/// A bucket, as far as the protocol uses it.
pub trait Objects: Sync {
    /// Creates an object unless one of that key exists (`If-None-Match: *`).
    ///
    /// # Errors
    /// [`Fault`]; after [`Fault::Unknown`] the object may exist, or may appear later.
    fn put_new(&self, key: Key, body: Bytes) -> impl Future<Output = Result<Put, Fault>> + Send;

    /// Reads an object, or a range of it in bytes. `None` if there is none.
    ///
    /// # Errors
    /// [`Fault`].
    fn get(
        &self,
        key: Key,
        range: Option<Range<u64>>,
    ) -> impl Future<Output = Result<Option<Bytes>, Fault>> + Send;

    /// The numbers of checkpoints. A stale answer is harmless.
    ///
    /// # Errors
    /// [`Fault`].
    fn checkpoints(&self) -> impl Future<Output = Result<Vec<u64>, Fault>> + Send;
}
