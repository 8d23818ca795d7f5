//! The interface of a mount's working copy to the protocol. A mount keeps it in SQLite, the simulation in memory.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

pub use crate::merge::ReplicaError;
use crate::merge::{LocalReader, MergeResult, MissingChunks, Result};
pub use crate::objects::Head;
use crate::tree::{Changes, Hash, NodeId, Tree, describe, leave_out};

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
pub struct LocalChanges {
    /// The differences from the base. Chunks that the base does not have are [`crate::tree::Place::Local`].
    pub changes: Changes,
    /// The bytes of files that may travel inside the commit, by digest of their one chunk.
    pub inline: BTreeMap<Hash, Bytes>,
    /// Changed files that cannot be read: `changes` has no content of them, and they are not committed.
    pub unreadable: BTreeSet<NodeId>,
    /// The mark up to which the journal is cleared once the changes are committed; 0 for nothing.
    pub mark: u64,
}

impl LocalChanges {
    /// Without the files that cannot be read, for a merge with `theirs`.
    ///
    /// # Errors
    /// If `theirs` have such a file: neither version may replace the other.
    pub fn without_unreadable(mut self, base: &Tree, theirs: &Changes) -> Result<Self> {
        for id in std::mem::take(&mut self.unreadable) {
            let mut names = self.changes.names.iter().filter(|(_, to)| **to == Some(id));
            if theirs.nodes.contains_key(&id) || names.any(|(entry, _)| theirs.names.contains_key(entry)) {
                let file = describe(base, &self.changes, id);
                let reason = "cannot be read in this cache, and another host has changed it, too";
                return Err(ReplicaError::other(format!("{file} {reason}: mount with --rebuild-cache")));
            }
            leave_out(&mut self.changes, base, id);
        }
        Ok(self)
    }
}

/// The merge of [`Replica::adopt`]: over base, local changes, a reader of local content, a source of new identities.
pub type MergeWork<'a> = dyn FnMut(
        &Tree,
        &Changes,
        &mut LocalReader<'_>,
        &mut dyn FnMut() -> NodeId,
    ) -> Result<Result<MergeResult, MissingChunks>>
    + 'a;

/// A working copy, the tree that it was last equal to (the base), and the journal between the two.
///
/// Every method is atomic: after a kill or a power cut it has happened, or not. It fails if the storage does.
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

    /// The working copy's differences from the base. If there are any, also notes that a commit of them with that nonce
    /// may be sent as the one after the head; after a failure, nothing may be sent.
    fn local(&mut self, nonce: [u8; 16]) -> Result<LocalChanges>;

    /// The chunk `index` of a local file that [`Replica::local`] saw, as it is now; `None` if it is not there any more.
    fn read(&mut self, id: NodeId, index: usize) -> Result<Option<Bytes>>;

    /// Whether a file still has the content that [`Replica::local`] saw.
    fn is_unchanged(&mut self, id: NodeId) -> Result<bool>;

    /// A commit of ours is in the log: it is the head, its changes part of the base. The journal ends up to the mark.
    fn acknowledge(&mut self, head: Head, changes: &Changes, mark: Option<u64>) -> Result<()>;

    /// A commit of another becomes the head. `theirs` becomes part of the base, and what `merge` makes of it and the
    /// local changes becomes part of the working copy. Nothing happens if the merge needs content first.
    fn adopt(&mut self, head: Head, theirs: &Changes, merge: &mut MergeWork<'_>) -> Result<Result<(), MissingChunks>>;
}
