//! What the protocol needs of a mount's working copy. A mount keeps it in SQLite, the simulation in memory.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::merge::{Merged, Needs};
use crate::tree::{Changes, Chunk, Content, Hash, NodeId, Place, Tree};

/// The last commit that a working copy contains. Number 0 is before the first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Its number.
    pub number: u64,
    /// Its digest; zeros before the first.
    pub hash: Hash,
}

/// Before the first commit.
pub const NOTHING: Head = Head {
    number: 0,
    hash: Hash([0; 32]),
};

/// The identity of one mount session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// Random, and durable before the first commit that has it.
    pub id: u64,
    /// The name in conflict names and in the log.
    pub name: String,
}

/// The local changes of a moment.
#[derive(Clone, Debug, Default)]
pub struct Local {
    /// What the working copy differs in from the base. Chunks that the base does not have are
    /// [`crate::tree::Place::Local`].
    pub changes: Changes,
    /// The bytes of files that may travel inside the commit, by digest of their one chunk.
    pub inline: BTreeMap<Hash, Bytes>,
    /// What to clear from the journal once the changes are committed.
    pub mark: u64,
}

/// An error of the working copy's own storage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReplicaError(pub String);

/// How a merge reads a file of the working copy: `None` if it is longer than asked for, or gone.
pub type ReadOurs<'a> = dyn FnMut(NodeId) -> Result<Option<Bytes>, ReplicaError> + 'a;

/// The merge that [`Replica::adopt`] runs: over the base, the local changes, a reader of local content, and
/// a source of new identities.
pub type MergeWork<'a> = dyn FnMut(
        &Tree,
        &Changes,
        &mut ReadOurs<'_>,
        &mut dyn FnMut() -> NodeId,
    ) -> Result<Result<Merged, Needs>, ReplicaError>
    + 'a;

/// A working copy, the tree that it was last equal to (the base), and the journal between the two.
///
/// Every method is atomic: after a kill or a power cut it has happened, or not.
pub trait Replica: Send {
    /// The last commit that the base contains.
    fn head(&self) -> Head;

    /// The tree after that commit.
    fn base(&self) -> &Tree;

    /// This session.
    fn writer(&self) -> &Writer;

    /// Whether a session of this working copy has or had that identity.
    fn was_writer(&self, id: u64) -> bool;

    /// The nonces of commits that were sent as the one after the head.
    fn intents(&self) -> Vec<[u8; 16]>;

    /// What the working copy differs in from the base. If there is anything, also notes that a commit of it with that
    /// nonce may be sent as the one after the head.
    ///
    /// # Errors
    /// If the storage fails: then nothing may be sent.
    fn local(&mut self, nonce: [u8; 16]) -> Result<Local, ReplicaError>;

    /// Clears the journal up to a mark whose changes turned out to be none.
    ///
    /// # Errors
    /// If the storage fails.
    fn settle(&mut self, mark: u64) -> Result<(), ReplicaError>;

    /// The chunk `index` of a local file that [`Replica::local`] saw, as it is now; `None` if it is not there any more.
    ///
    /// # Errors
    /// If the storage fails.
    fn read(&mut self, id: NodeId, index: usize) -> Result<Option<Bytes>, ReplicaError>;

    /// Whether a file still has the content that [`Replica::local`] saw.
    ///
    /// # Errors
    /// If the storage fails.
    fn is_unchanged(&mut self, id: NodeId) -> Result<bool, ReplicaError>;

    /// A commit of this working copy is in the log: it becomes the head, and its changes part of the base. With a
    /// `mark`, the journal is cleared up to it.
    ///
    /// # Errors
    /// If the storage fails.
    fn acknowledge(
        &mut self,
        head: Head,
        changes: &Changes,
        mark: Option<u64>,
    ) -> Result<(), ReplicaError>;

    /// A commit of another becomes the head. `theirs` becomes part of the base, and what `merge` makes of it and the
    /// local changes becomes part of the working copy. Nothing happens if the merge needs content first.
    ///
    /// # Errors
    /// If the storage fails.
    fn adopt(
        &mut self,
        head: Head,
        theirs: &Changes,
        merge: &mut MergeWork<'_>,
    ) -> Result<Result<(), Needs>, ReplicaError>;
}

/// Content that was fetched for a merge, by digest. A chunk that cannot be fetched any more has no bytes.
pub type Fetched = BTreeMap<Hash, Bytes>;

/// The bytes of `content`, if all its chunks are in `fetched`.
pub fn assemble(content: &Content, fetched: &Fetched) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(content.size as usize);
    for chunk in &content.chunks {
        match chunk.place {
            Place::Hole => bytes.resize(bytes.len() + chunk.length as usize, 0),
            _ => bytes.extend_from_slice(fetched.get(&chunk.hash)?),
        }
    }
    Some(bytes)
}

/// Whether a chunk of `content` cannot be fetched any more.
pub fn is_gone(content: &Content, fetched: &Fetched) -> bool {
    let is_gone = |chunk: &Chunk| fetched.get(&chunk.hash).is_some_and(Bytes::is_empty);
    content.chunks.iter().any(is_gone)
}
