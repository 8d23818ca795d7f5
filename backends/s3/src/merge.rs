//! Merging a commit into a working copy with changes of its own: a pure function of base, theirs and ours.
//!
//! The log orders commits: `theirs` is in it, and what is merged is committed after it. Different paths combine. An edit
//! outlives a deletion. Where both changed one file, [`crate::text`] merges it, or both stay: theirs under its name, ours
//! under a conflict name.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use bytes::Bytes;

use crate::text;
pub use crate::tree::ChunkBytes;
use crate::tree::{Attributes, Body, Changes, Chunk, Content, Entry, Name, Node, NodeId, Place, ROOT, Tree};
use crate::view::View;
pub use crate::view::{conflict_name, difference, validate};

/// Files up to this many bytes are merged by content: 8 MiB.
pub const MERGE_MAX: u64 = 8 << 20;

/// Chunks that have to be fetched before the merge can be done.
pub type MissingChunks = Vec<Chunk>;

/// An error of the working copy's own storage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ReplicaError {
    /// Whether it is a full disk, or what else.
    pub kind: ErrorKind,
    /// What failed, for the user.
    pub reason: String,
}

impl ReplicaError {
    /// An error of a kind that needs no distinction.
    pub fn other(reason: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Other, reason: reason.into() }
    }
}

/// The result of a call to the working copy's storage.
pub type Result<T, E = ReplicaError> = std::result::Result<T, E>;

/// How a merge reads a file of the working copy: `None` if it is longer than asked for, or gone.
pub type LocalReader<'a> = dyn FnMut(NodeId) -> Result<Option<Bytes>> + 'a;

/// The result of a merge, as changes of the working copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeResult {
    /// Files and directories of the working copy that get another identity before the actions: a new one, because both
    /// versions stay and theirs keeps the old one; or that of theirs, because both made the same.
    pub forks: Vec<(NodeId, NodeId)>,
    /// The changes of the working copy, after the forks. They include nodes and names that stay as they are but differ
    /// from theirs: the journal needs every difference from theirs.
    pub actions: Changes,
    /// The bytes of merged files, by digest.
    pub bytes: ChunkBytes,
    /// The conflict names that were given.
    pub conflicts: Vec<Entry>,
}

/// The commit that is merged.
#[derive(Clone, Copy, Debug)]
pub struct RemoteCommit<'a> {
    /// Its changes.
    pub changes: &'a Changes,
    /// Its number, which conflict names carry.
    pub number: u64,
    /// An earlier session of this working copy made it, which does not know that it did.
    pub is_own: bool,
    /// Content of the base and of the commit, and no bytes for a chunk that is gone.
    pub fetched: &'a ChunkBytes,
    /// The name of this mount in conflict names.
    pub writer: &'a str,
}

struct Merge<'a, 'r> {
    base: &'a Tree,
    theirs: View<'a>,
    ours: View<'a>,
    /// Begins as theirs; ours is added.
    merged: View<'a>,
    commit: RemoteCommit<'a>,
    read_ours: &'r mut LocalReader<'r>,
    fresh: &'r mut dyn FnMut() -> NodeId,
    needs: MissingChunks,
    out: MergeResult,
    /// Our nodes whose merged content is decided, by the identity that they have then.
    decided: BTreeSet<NodeId>,
}

/// Merges the commit `theirs` with our changes, both relative to `base`.
/// Fails if the working copy cannot be read. The inner error names the chunks that [`RemoteCommit::fetched`]
/// needs first.
pub fn merge<'a, 'r>(
    base: &'a Tree,
    theirs: RemoteCommit<'a>,
    ours: &Changes,
    read_ours: &'r mut LocalReader<'r>,
    fresh: &'r mut dyn FnMut() -> NodeId,
) -> Result<Result<MergeResult, MissingChunks>> {
    if ours.is_empty() {
        let actions = theirs.changes.clone();
        return Ok(Ok(MergeResult { bytes: at_hand(&actions, theirs.fetched), actions, ..MergeResult::default() }));
    }
    let view = View::of(base, theirs.changes);
    let mut merge = Merge {
        base,
        merged: view.clone(),
        theirs: view,
        ours: View::of(base, ours),
        commit: theirs,
        read_ours,
        fresh,
        needs: Vec::new(),
        out: MergeResult::default(),
        decided: BTreeSet::new(),
    };
    merge.join()?;
    let forks = merge.nodes()?;
    merge.names();
    merge.directories();
    merge.survivors()?;
    merge.orphans();
    merge.merged.drop_nameless();
    if !merge.needs.is_empty() {
        return Ok(Err(merge.needs));
    }
    Ok(Ok(merge.finish(forks)))
}

/// The bytes that the working copy may take up with the merged tree.
fn at_hand(actions: &Changes, fetched: &ChunkBytes) -> ChunkBytes {
    let bytes = actions.chunks().map(|it| fetched.get_key_value(&it.hash));
    let bytes = bytes.flatten().filter(|(_, bytes)| !bytes.is_empty());
    bytes.map(|(hash, bytes)| (*hash, bytes.clone())).collect()
}

impl Merge<'_, '_> {
    /// The bytes of `content`; `None` if they are gone, or have to be fetched before another merge.
    fn bytes_of(&mut self, content: &Content) -> Option<Vec<u8>> {
        let fetched = self.commit.fetched;
        let is_gone = |chunk: &Chunk| fetched.get(&chunk.hash).is_some_and(Bytes::is_empty);
        if content.chunks.iter().any(is_gone) {
            return None;
        }
        let is_needed = |chunk: &&Chunk| chunk.place != Place::Hole && !fetched.contains_key(&chunk.hash);
        self.needs.extend(content.chunks.iter().filter(is_needed));
        content.assemble(fetched)
    }

    /// Merges the content of our file `id` with theirs. `None` if both have to stay, or content is missing.
    fn resolve(
        &mut self,
        before: Option<&Content>,
        id: NodeId,
        ours: &Content,
        theirs: &Content,
    ) -> Result<Option<Content>> {
        let is_before = |it: &Content| before.is_some_and(|before| before.same_bytes(it));
        if ours.same_bytes(theirs) || is_before(ours) {
            return Ok(Some(theirs.clone()));
        }
        if is_before(theirs) {
            return Ok(Some(ours.clone()));
        }
        let sizes = [before.map_or(0, |it| it.size), ours.size, theirs.size];
        if sizes.iter().any(|size| *size > MERGE_MAX) {
            return Ok(None);
        }
        let (Some(theirs), Some(ours)) = (self.bytes_of(theirs), (self.read_ours)(id)?) else {
            return Ok(None);
        };
        let before = match before {
            // Where a side only appended, the base need not be fetched, and may even be gone.
            Some(content) => {
                let mut sides = [&ours[..], &theirs[..]].into_iter();
                match sides.find_map(|side| content.start_of(side)) {
                    Some(start) => Some(start.to_vec()),
                    None => self.bytes_of(content),
                }
            }
            None => {
                let mut names = self.ours.names_of(id);
                let is_journal = names.any(|(_, name)| text::is_journal(&name.0));
                is_journal.then(|| text::journal_base(&ours, &theirs).to_vec())
            }
        };
        let merged = text::merge(before.as_deref(), &ours, &theirs, self.commit.is_own);
        Ok(merged.map(|bytes| {
            let (content, pieces) = Content::split(&bytes.into());
            self.out.bytes.extend(pieces);
            content
        }))
    }

    /// Our node `id` becomes their node `other`, with `body`.
    fn identify(&mut self, id: NodeId, other: NodeId, body: Body) {
        let of = |view: &View<'_>, id| view.node(id).map(|node| node.attributes.clone());
        let before = self.base.node(id).map(|node| &node.attributes);
        let ours = of(&self.ours, id).unwrap_or_default();
        let theirs = of(&self.theirs, other).unwrap_or_default();
        let attributes = Attributes::merged(before, &ours, &theirs);
        self.ours.identify(id, other);
        self.out.forks.push((id, other));
        self.decided.insert(other);
        self.merged.set_node(other, Node { body, attributes });
    }

    /// Nodes that both made at one name become one, where their content can be merged.
    fn join(&mut self) -> Result<()> {
        let base = self.base;
        let mut entries: Vec<Entry> = self.ours.names.keys().cloned().collect();
        while let Some(entry) = entries.pop() {
            let (Some(id), Some(other)) = (self.ours.name(&entry), self.theirs.name(&entry)) else {
                continue;
            };
            let is_known = base.node(id).is_some() || self.theirs.node(id).is_some();
            let (our, their) = (self.ours.node(id), self.theirs.node(other));
            let (Some(our), Some(their)) = (our.cloned(), their.cloned()) else {
                continue;
            };
            if is_known || self.ours.node(other).is_some() {
                continue;
            }
            if let (Some(ours), Some(theirs)) = (our.content(), their.content()) {
                // Both may have replaced the same file. Where it lives on under another name, later edits of it are there,
                // and its content now is not what both began with.
                let lives_on = |was: &NodeId| [&self.ours, &self.theirs].iter().any(|it| it.entry(*was).is_some());
                let was = base.name(&entry).filter(|was| !lives_on(was));
                let before = was.and_then(|was| base.node(was)?.content());
                if let Some(content) = self.resolve(before, id, ours, theirs)? {
                    self.identify(id, other, Body::File(content));
                }
            } else if our.body == their.body {
                self.identify(id, other, their.body);
                let children = self.ours.children(other);
                entries.extend(children.map(|(name, _)| (other, name.clone())));
            }
        }
        Ok(())
    }

    /// Nodes that we changed or made. Returns the files that keep both versions, with our version's new identity.
    fn nodes(&mut self) -> Result<Vec<(NodeId, NodeId)>> {
        let (base, mut forks) = (self.base, Vec::new());
        let changed = self.ours.nodes.iter();
        let changed = changed.filter_map(|(id, node)| Some((*id, node.clone()?)));
        for (id, our) in changed.collect::<Vec<_>>() {
            let before = base.node(id);
            let Some(their) = self.theirs.node(id).cloned() else {
                if before.is_none() {
                    self.merged.set_node(id, our);
                }
                continue;
            };
            if self.decided.contains(&id) {
                continue;
            }
            let was = before.map(|node| &node.attributes);
            let attributes = Attributes::merged(was, &our.attributes, &their.attributes);
            let mut body = their.body;
            if let (Some(ours), Body::File(theirs)) = (our.content(), &body) {
                self.decided.insert(id);
                let before = before.and_then(Node::content);
                let Some(content) = self.resolve(before, id, ours, theirs)? else {
                    let fork = (self.fresh)();
                    forks.push((id, fork));
                    self.merged.set_node(fork, our);
                    if let Some(entry) = self.ours.entry(id) {
                        self.keep_under_conflict_name(&entry, fork);
                    }
                    continue;
                };
                body = Body::File(content);
            }
            self.merged.set_node(id, Node { body, attributes });
        }
        Ok(forks)
    }

    /// Names that we gave or took. Where both changed a name, theirs stays.
    fn names(&mut self) {
        for (entry, to) in self.ours.names.clone() {
            let was = self.base.name(&entry);
            let their = self.theirs.name(&entry);
            if to == was || to == their {
                continue;
            }
            match to {
                Some(id) if their == was || their.is_none() => self.place(&entry, id),
                Some(id) => self.keep_under_conflict_name(&entry, id),
                None if their == was => self.merged.set(&entry, None),
                None => {}
            }
        }
    }

    /// Directories that both moved have one name, theirs; and where the moves of both make a circle, ours is undone.
    fn directories(&mut self) {
        let named: BTreeSet<NodeId> = self.merged.names.values().flatten().copied().collect();
        let is_directory = |id: &NodeId| self.merged.node(*id).is_some_and(Node::is_directory);
        let mut moved: Vec<NodeId> = named.into_iter().filter(is_directory).collect();
        for id in &moved {
            let names: Vec<Entry> = self.merged.names_of(*id).cloned().collect();
            let theirs = names.iter().find(|it| self.theirs.name(it) == Some(*id));
            let kept = theirs.or(names.first()).cloned();
            for name in names.iter().filter(|name| Some(*name) != kept.as_ref()) {
                self.merged.set(name, None);
            }
        }
        moved.retain(|id| {
            let place = self.theirs.entry(*id);
            place.is_some_and(|place| self.merged.name(&place) != Some(*id))
        });
        let is_in_circle = |merge: &Self, id: &NodeId| {
            let entry = merge.merged.entry(*id);
            entry.is_some_and(|entry| merge.merged.is_within(entry.0, *id))
        };
        while let Some(at) = moved.iter().position(|id| is_in_circle(self, id)) {
            let id = moved.swap_remove(at);
            while let Some(name) = self.merged.entry(id) {
                self.merged.set(&name, None);
            }
            if let Some(place) = self.theirs.entry(id) {
                self.put_back(&place, id);
            }
        }
    }

    /// Files that one side edited and the other deleted or replaced: the edit goes into what is there, or it is back.
    fn survivors(&mut self) -> Result<()> {
        let base = self.base;
        for is_ours in [false, true] {
            let of = |(id, node): (&NodeId, &Option<Node>)| {
                let content = node.as_ref()?.content()?;
                let was = base.node(*id)?.content();
                let is_edited = !was.is_some_and(|was| was.same_bytes(content));
                is_edited.then(|| (*id, content.clone()))
            };
            let edited = self.side(is_ours).nodes.iter().filter_map(of);
            for (id, edit) in edited.collect::<Vec<_>>() {
                let place = self.side(is_ours).entry(id);
                let Some(place) = place.filter(|_| self.merged.is_nameless(id)) else {
                    continue;
                };
                // Where each side took the names that the other left, neither let the old content go.
                let is_split = self.side(!is_ours).entry(id).is_some();
                if is_split || !self.put_into(&place, id, &edit, is_ours)? {
                    self.put_back(&place, id);
                }
            }
        }
        // Of a node with several names, each side may have taken those that the other left.
        let touched = self.merged.names.keys().filter_map(|it| base.name(it));
        for id in touched.collect::<BTreeSet<_>>() {
            if let Some(place) = self.ours.entry(id)
                && self.theirs.node(id).is_some()
                && self.merged.is_nameless(id)
            {
                self.put_back(&place, id);
            }
        }
        Ok(())
    }

    fn side(&self, is_ours: bool) -> &View<'_> {
        if is_ours { &self.ours } else { &self.theirs }
    }

    /// Merges the edit of a file into the file that the other side has put in its place. Returns whether this is
    /// possible.
    fn put_into(&mut self, place: &Entry, id: NodeId, edit: &Content, is_ours: bool) -> Result<bool> {
        // Its merged content has to be that side's, and nothing may have been merged into it.
        let there = self.merged.name(place);
        let there = there.filter(|there| !self.decided.contains(there));
        let node = there.and_then(|there| self.side(!is_ours).node(there));
        let node = node.filter(|node| there.and_then(|it| self.merged.node(it)) == Some(node));
        let content = node.and_then(Node::content).cloned();
        let (Some(there), Some(node), Some(content)) = (there, node.cloned(), content) else {
            return Ok(false);
        };
        let before = self.base.node(id).and_then(Node::content);
        let merged = if is_ours {
            self.resolve(before, id, edit, &content)?
        } else {
            self.resolve(before, there, &content, edit)?
        };
        let Some(content) = merged else {
            return Ok(false);
        };
        if is_ours && self.ours.node(there).is_none() {
            // An open file stays open.
            self.identify(id, there, Body::File(content));
        } else {
            self.decided.insert(there);
            let body = Body::File(content);
            self.merged.set_node(there, Node { body, ..node });
        }
        Ok(true)
    }

    /// Directories that have lost their name, but not all that is in them, come back.
    fn orphans(&mut self) {
        let names = self.merged.names.iter();
        let dirs = names.flat_map(|(entry, to)| [to.map(|_| entry.0), self.base.name(entry)]);
        let mut dirs: Vec<NodeId> = dirs.flatten().collect();
        while let Some(dir) = dirs.pop() {
            if !self.merged.is_nameless(dir) || self.merged.children(dir).next().is_none() {
                continue;
            }
            let place = self.ours.entry(dir).or_else(|| self.theirs.entry(dir));
            let place = place.or_else(|| self.base.names_of(dir).next().cloned());
            let mut place = place.unwrap_or((ROOT, Name(b"restored".to_vec())));
            if self.merged.is_within(place.0, dir) {
                place.0 = ROOT;
            }
            dirs.push(place.0);
            self.put_back(&place, dir);
        }
    }

    /// Gives our node a name in the merged tree.
    fn place(&mut self, entry: &Entry, id: NodeId) {
        if self.merged.node(id).is_none() {
            let node = self.ours.node(id).or_else(|| self.theirs.node(id));
            let node = node.or_else(|| self.base.node(id)).cloned();
            self.merged.nodes.insert(id, node);
        }
        self.merged.set(entry, Some(id));
    }

    /// Gives a node the name back that it had on one side. Of two nodes, theirs has it.
    fn put_back(&mut self, entry: &Entry, id: NodeId) {
        match self.merged.name(entry) {
            None => self.place(entry, id),
            Some(ours) if self.theirs.name(entry) == Some(id) => {
                self.place(entry, id);
                self.keep_under_conflict_name(entry, ours);
            }
            Some(_) => self.keep_under_conflict_name(entry, id),
        }
    }

    fn keep_under_conflict_name(&mut self, entry: &Entry, id: NodeId) {
        let sides = [&self.merged, &self.ours, &self.theirs];
        let is_free = |name: &Entry| sides.iter().all(|view| view.name(name).is_none());
        let commit = self.commit;
        let name = |attempt| conflict_name(&entry.1, commit.writer, commit.number, attempt);
        let free = (0..).map(|attempt| (entry.0, name(attempt))).find(is_free);
        // One of endless many names is free.
        if let Some(free) = free {
            self.place(&free, id);
            self.out.conflicts.push(free);
        }
    }

    /// The changes that turn the working copy into the merged tree, and those that it only has to note as its own: they
    /// are there already, but differ from theirs.
    fn finish(mut self, forks: Vec<(NodeId, NodeId)>) -> MergeResult {
        for (id, fork) in &forks {
            self.ours.identify(*id, *fork);
        }
        self.out.forks.extend(forks);
        let Self { mut out, merged, ours, theirs, commit, .. } = self;
        out.conflicts.retain(|name| merged.name(name).is_some());
        for entry in merged.names.keys().chain(ours.names.keys()) {
            let to = merged.name(entry);
            let is_kept = !ours.names.contains_key(entry) && theirs.name(entry) != to;
            if ours.name(entry) != to || is_kept {
                out.actions.names.insert(entry.clone(), to);
            }
        }
        for id in merged.nodes.keys().chain(ours.nodes.keys()) {
            let Some(to) = merged.node(*id) else { continue };
            let is_kept = !ours.nodes.contains_key(id) && theirs.node(*id) != Some(to);
            if ours.node(*id) != Some(to) || is_kept {
                out.actions.nodes.insert(*id, to.clone());
            }
        }
        out.bytes.extend(at_hand(&out.actions, commit.fetched));
        out
    }
}
