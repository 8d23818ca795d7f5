//! Merging a commit into a working copy with changes of its own: a pure function of base, theirs and ours.
//!
//! The log orders commits: `theirs` is in it, and what is merged is committed after it. Different paths combine. An edit
//! outlives a deletion. Where both changed one file, [`crate::text`] merges it, or both stay: theirs under its name, ours
//! under a conflict name.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::replica::{Fetched, ReadOurs, ReplicaError, assemble, is_gone};
use crate::text;
use crate::tree::{
    Attributes, Body, Changes, Content, Entry, Hash, Name, Node, NodeId, ROOT, Tree,
};
use crate::view::View;
pub use crate::view::{difference, validate};

/// Files up to this many bytes are merged by content: 8 MiB.
pub const MERGE_MAX: u64 = 8 << 20;

/// Content that has to be fetched before the merge can be done.
pub type Needs = Vec<Content>;

/// What becomes of the working copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Files and directories of the working copy that get another identity before the actions: a new one, because both
    /// versions stay and theirs keeps the old one; or that of theirs, because both made the same.
    pub forks: Vec<(NodeId, NodeId)>,
    /// What changes in the working copy, after the forks. It also has what stays there, but is not as theirs has it: the
    /// journal needs everything here that differs from theirs.
    pub actions: Changes,
    /// The bytes of merged files, by digest.
    pub bytes: Fetched,
    /// The conflict names that were given.
    pub conflicts: Vec<Entry>,
}

/// The commit that is merged.
#[derive(Clone, Copy, Debug)]
pub struct Theirs<'a> {
    /// Its changes.
    pub changes: &'a Changes,
    /// Its number, which conflict names carry.
    pub number: u64,
    /// An earlier session of this working copy made it, which does not know that it did.
    pub is_own: bool,
}

struct Merge<'a, 'r> {
    base: &'a Tree,
    theirs: View<'a>,
    ours: View<'a>,
    /// Begins as theirs; what is ours is added.
    merged: View<'a>,
    commit: Theirs<'a>,
    writer: &'a str,
    fetched: &'a Fetched,
    read_ours: &'r mut ReadOurs<'r>,
    fresh: &'r mut dyn FnMut() -> NodeId,
    needs: Needs,
    out: Merged,
    /// Our nodes whose merged content is decided, by the identity that they have then.
    decided: BTreeSet<NodeId>,
}

/// Merges the commit `theirs` with our changes, both relative to `base`. `fetched` holds content of the base and of the
/// commit, and no bytes for a chunk that is gone; `writer` names this mount in conflict names.
///
/// # Errors
/// If the working copy cannot be read. The inner error is the content that has to be in `fetched` first.
pub fn merge<'a, 'r>(
    base: &'a Tree,
    theirs: Theirs<'a>,
    ours: &Changes,
    writer: &'a str,
    fetched: &'a Fetched,
    read_ours: &'r mut ReadOurs<'r>,
    fresh: &'r mut dyn FnMut() -> NodeId,
) -> Result<Result<Merged, Needs>, ReplicaError> {
    if ours.is_empty() {
        return Ok(Ok(Merged {
            actions: theirs.changes.clone(),
            ..Merged::default()
        }));
    }
    let view = View::of(base, theirs.changes);
    let mut merge = Merge {
        base,
        merged: view.clone(),
        theirs: view,
        ours: View::of(base, ours),
        commit: theirs,
        writer,
        fetched,
        read_ours,
        fresh,
        needs: Vec::new(),
        out: Merged::default(),
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

fn is_same(one: Option<&Content>, other: Option<&Content>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.same_bytes(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

/// The start of `bytes`, if it is `content`.
fn start_of<'b>(bytes: &'b [u8], content: &Content) -> Option<&'b [u8]> {
    let start = bytes.get(..usize::try_from(content.size).ok()?)?;
    let mut rest = start;
    let is_same = content.chunks.iter().all(|chunk| {
        let (piece, after) = rest.split_at((chunk.length as usize).min(rest.len()));
        rest = after;
        Hash::of(piece) == chunk.hash
    });
    is_same.then_some(start)
}

/// Each attribute that only one side changed is that side's; of others, ours, which is committed later. Of a node that
/// both made, theirs.
fn attributes(before: Option<&Attributes>, ours: &Attributes, theirs: &Attributes) -> Attributes {
    let Some(before) = before else {
        return theirs.clone();
    };
    fn pick<T: PartialEq + Clone>(before: &T, ours: &T, theirs: &T) -> T {
        if ours == before {
            theirs.clone()
        } else {
            ours.clone()
        }
    }
    let names: BTreeSet<&Name> = ours.xattrs.keys().chain(theirs.xattrs.keys()).collect();
    let xattrs = names.into_iter().filter_map(|name| {
        let [before, ours, theirs] = [before, ours, theirs].map(|it| it.xattrs.get(name).cloned());
        Some((name.clone(), pick(&before, &ours, &theirs)?))
    });
    Attributes {
        permissions: pick(&before.permissions, &ours.permissions, &theirs.permissions),
        uid: pick(&before.uid, &ours.uid, &theirs.uid),
        gid: pick(&before.gid, &ours.gid, &theirs.gid),
        rdev: theirs.rdev,
        atime: pick(&before.atime, &ours.atime, &theirs.atime),
        mtime: pick(&before.mtime, &ours.mtime, &theirs.mtime),
        btime: theirs.btime,
        xattrs: xattrs.collect(),
    }
}

impl Merge<'_, '_> {
    /// The bytes of `content`; the inner `None` if they are gone, the outer one if they have to be fetched.
    fn bytes_of(&mut self, content: &Content) -> Option<Option<Vec<u8>>> {
        if is_gone(content, self.fetched) {
            return Some(None);
        }
        let bytes = assemble(content, self.fetched);
        if bytes.is_none() {
            self.needs.push(content.clone());
        }
        bytes.map(Some)
    }

    /// Merges the content of our file `id` with theirs. `None` if both have to stay, or content is missing.
    fn resolve(
        &mut self,
        before: Option<&Content>,
        id: NodeId,
        ours: &Content,
        theirs: &Content,
    ) -> Result<Option<Content>, ReplicaError> {
        if ours.same_bytes(theirs) || is_same(before, Some(ours)) {
            return Ok(Some(theirs.clone()));
        }
        if is_same(before, Some(theirs)) {
            return Ok(Some(ours.clone()));
        }
        let sizes = [before.map_or(0, |it| it.size), ours.size, theirs.size];
        if sizes.iter().any(|size| *size > MERGE_MAX) {
            return Ok(None);
        }
        let (Some(Some(theirs)), Some(ours)) = (self.bytes_of(theirs), (self.read_ours)(id)?)
        else {
            return Ok(None);
        };
        let before = match before {
            // Where a side only appended, the base need not be fetched, and may even be gone.
            Some(content) => {
                match start_of(&ours, content).or_else(|| start_of(&theirs, content)) {
                    Some(start) => Some(start.to_vec()),
                    None => match self.bytes_of(content) {
                        Some(bytes) => bytes,
                        None => return Ok(None),
                    },
                }
            }
            None => None,
        };
        let merged = text::merge(before.as_deref(), &ours, &theirs, self.commit.is_own);
        Ok(merged.map(|bytes| {
            let content = Content::local(&bytes);
            let bytes = Bytes::from(bytes);
            let mut start = 0;
            for chunk in &content.chunks {
                let end = start + chunk.length as usize;
                self.out.bytes.insert(chunk.hash, bytes.slice(start..end));
                start = end;
            }
            content
        }))
    }

    /// Our node `id` becomes their node `other`, with `body`.
    fn identify(&mut self, id: NodeId, other: NodeId, body: Body) {
        let of = |view: &View<'_>, id| view.node(id).map(|node| node.attributes.clone());
        let before = self.base.node(id).map(|node| &node.attributes);
        let (ours, theirs) = (of(&self.ours, id), of(&self.theirs, other));
        let attributes = attributes(
            before,
            &ours.unwrap_or_default(),
            &theirs.unwrap_or_default(),
        );
        self.ours.identify(id, other);
        self.out.forks.push((id, other));
        self.decided.insert(other);
        self.merged
            .nodes
            .insert(other, Some(Node { body, attributes }));
    }

    /// Nodes that both made at one name become one, where their content can be merged.
    fn join(&mut self) -> Result<(), ReplicaError> {
        let mut entries: Vec<Entry> = self.ours.names.keys().cloned().collect();
        while let Some(entry) = entries.pop() {
            let (Some(id), Some(other)) = (self.ours.name(&entry), self.theirs.name(&entry)) else {
                continue;
            };
            if self.base.node(id).is_some()
                || self.theirs.node(id).is_some()
                || self.ours.node(other).is_some()
            {
                continue;
            }
            let (Some(our), Some(their)) = (
                self.ours.node(id).cloned(),
                self.theirs.node(other).cloned(),
            ) else {
                continue;
            };
            if let (Some(ours), Some(theirs)) = (our.content(), their.content()) {
                // Both may have replaced the same file.
                let before = self
                    .base
                    .name(entry.0, &entry.1)
                    .and_then(|was| self.base.node(was)?.content());
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

    /// Nodes that we changed or made. Returns the files of which both versions stay, and our version's new identity.
    fn nodes(&mut self) -> Result<Vec<(NodeId, NodeId)>, ReplicaError> {
        let mut forks = Vec::new();
        let changed = self
            .ours
            .nodes
            .iter()
            .filter_map(|(id, node)| Some((*id, node.clone()?)));
        for (id, our) in changed.collect::<Vec<_>>() {
            let before = self.base.node(id).cloned();
            let Some(their) = self.theirs.node(id).cloned() else {
                if before.is_none() {
                    self.merged.nodes.insert(id, Some(our));
                }
                continue;
            };
            if self.decided.contains(&id) {
                continue;
            }
            let was = before.as_ref().map(|node| &node.attributes);
            let attributes = attributes(was, &our.attributes, &their.attributes);
            let body = match (our.content(), their.content()) {
                (Some(ours), Some(theirs)) => {
                    self.decided.insert(id);
                    match self.resolve(before.as_ref().and_then(Node::content), id, ours, theirs)? {
                        Some(content) => Body::File(content),
                        None => {
                            let fork = (self.fresh)();
                            forks.push((id, fork));
                            self.merged.nodes.insert(fork, Some(our));
                            let entry = self.ours.names_of(id).next().cloned();
                            if let Some(entry) = entry {
                                self.keep_under_conflict_name(&entry, fork);
                            }
                            continue;
                        }
                    }
                }
                _ => their.body,
            };
            self.merged
                .nodes
                .insert(id, Some(Node { body, attributes }));
        }
        Ok(forks)
    }

    /// Names that we gave or took. Where they changed what we changed, theirs stays.
    fn names(&mut self) {
        for (entry, to) in self.ours.names.clone() {
            let was = self.base.name(entry.0, &entry.1);
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
            if names.len() > 1 {
                let kept = names
                    .iter()
                    .find(|name| self.theirs.name(name) == Some(*id))
                    .unwrap_or(&names[0]);
                for name in names.iter().filter(|name| *name != kept) {
                    self.merged.set(name, None);
                }
            }
        }
        let their_place = |merge: &Self, id| merge.theirs.names_of(id).next().cloned();
        moved.retain(|id| {
            their_place(self, *id).is_some_and(|place| self.merged.name(&place) != Some(*id))
        });
        let is_in_circle = |merge: &Self, id: &NodeId| {
            merge
                .merged
                .names_of(*id)
                .next()
                .is_some_and(|entry| merge.merged.is_within(entry.0, *id))
        };
        while let Some(at) = moved.iter().position(|id| is_in_circle(self, id)) {
            let id = moved.swap_remove(at);
            for name in self.merged.names_of(id).cloned().collect::<Vec<_>>() {
                self.merged.set(&name, None);
            }
            if let Some(place) = their_place(self, id) {
                self.put_back(&place, id);
            }
        }
    }

    /// Files that one side edited and the other deleted or replaced: the edit goes into what replaced it, or the file
    /// comes back.
    fn survivors(&mut self) -> Result<(), ReplicaError> {
        let edited = |view: &View<'_>| -> Vec<(NodeId, Content)> {
            let of = |(id, node): (&NodeId, &Option<Node>)| {
                let content = node.as_ref()?.content()?;
                let was = self.base.node(*id)?.content();
                (!is_same(was, Some(content))).then(|| (*id, content.clone()))
            };
            view.nodes.iter().filter_map(of).collect()
        };
        for (id, theirs) in edited(&self.theirs) {
            let place = self.theirs.names_of(id).next().cloned();
            let Some(place) = place.filter(|_| self.merged.is_nameless(id)) else {
                continue;
            };
            let ours = self
                .merged
                .name(&place)
                .and_then(|ours| self.undecided(ours, &self.ours));
            if let Some((ours, node, content)) = ours
                && let Some(content) =
                    self.resolve(self.content_before(id).as_ref(), ours, &content, &theirs)?
            {
                self.decided.insert(ours);
                let body = Body::File(content);
                self.merged.nodes.insert(ours, Some(Node { body, ..node }));
                continue;
            }
            self.put_back(&place, id);
        }
        for (id, ours) in edited(&self.ours) {
            let place = self.ours.names_of(id).next().cloned();
            let Some(place) = place.filter(|_| self.merged.is_nameless(id)) else {
                continue;
            };
            let theirs = self
                .merged
                .name(&place)
                .and_then(|theirs| self.undecided(theirs, &self.theirs));
            if let Some((theirs, node, content)) = theirs
                && let Some(content) =
                    self.resolve(self.content_before(id).as_ref(), id, &ours, &content)?
            {
                match self.ours.node(theirs) {
                    // An open file stays open.
                    None => self.identify(id, theirs, Body::File(content)),
                    Some(_) => {
                        self.decided.insert(theirs);
                        let body = Body::File(content);
                        self.merged
                            .nodes
                            .insert(theirs, Some(Node { body, ..node }));
                    }
                }
                continue;
            }
            self.put_back(&place, id);
        }
        // Of a node with several names, each side may have taken those that the other left.
        let touched = self
            .merged
            .names
            .keys()
            .filter_map(|(dir, name)| self.base.name(*dir, name));
        for id in touched.collect::<BTreeSet<_>>() {
            let place = self.ours.names_of(id).next().cloned();
            if let Some(place) = place
                && self.theirs.node(id).is_some()
                && self.merged.is_nameless(id)
            {
                self.put_back(&place, id);
            }
        }
        Ok(())
    }

    fn content_before(&self, id: NodeId) -> Option<Content> {
        self.base.node(id)?.content().cloned()
    }

    /// A file of one side, if its merged content is that side's and nothing was merged into it.
    fn undecided(&self, id: NodeId, side: &View<'_>) -> Option<(NodeId, Node, Content)> {
        let node = side
            .node(id)
            .filter(|node| self.merged.node(id) == Some(node))?;
        let content = node.content().filter(|_| !self.decided.contains(&id))?;
        Some((id, node.clone(), content.clone()))
    }

    /// Directories that have lost their name, but not all that is in them, come back.
    fn orphans(&mut self) {
        let given = self
            .merged
            .names
            .iter()
            .filter(|(_, to)| to.is_some())
            .map(|((dir, _), _)| *dir);
        let gone = self
            .merged
            .names
            .keys()
            .filter_map(|(dir, name)| self.base.name(*dir, name));
        let mut dirs: Vec<NodeId> = given.chain(gone).collect();
        while let Some(dir) = dirs.pop() {
            if !self.merged.is_nameless(dir) || self.merged.children(dir).next().is_none() {
                continue;
            }
            let place = self
                .ours
                .names_of(dir)
                .chain(self.theirs.names_of(dir))
                .chain(self.base.names_of(dir))
                .next();
            let mut place = place.cloned().unwrap_or((ROOT, Name(b"restored".to_vec())));
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
            let node = self
                .ours
                .node(id)
                .or_else(|| self.theirs.node(id))
                .or_else(|| self.base.node(id));
            self.merged.nodes.insert(id, node.cloned());
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
        for attempt in 0.. {
            let free = (
                entry.0,
                conflict_name(&entry.1, self.writer, self.commit.number, attempt),
            );
            let sides = [&self.merged, &self.ours, &self.theirs];
            if sides.iter().all(|view| view.name(&free).is_none()) {
                self.place(&free, id);
                self.out.conflicts.push(free);
                return;
            }
        }
    }

    /// What the working copy has to change, where it differs from the merged tree; and what it has to note as a change of
    /// its own, although it stays as it is.
    fn finish(mut self, forks: Vec<(NodeId, NodeId)>) -> Merged {
        for (id, fork) in &forks {
            self.ours.identify(*id, *fork);
        }
        self.out.forks.extend(forks);
        self.out
            .conflicts
            .retain(|name| self.merged.name(name).is_some());
        for entry in self.merged.names.keys().chain(self.ours.names.keys()) {
            let to = self.merged.name(entry);
            let is_kept = !self.ours.names.contains_key(entry) && self.theirs.name(entry) != to;
            if self.ours.name(entry) != to || is_kept {
                self.out.actions.names.insert(entry.clone(), to);
            }
        }
        for id in self.merged.nodes.keys().chain(self.ours.nodes.keys()) {
            let Some(to) = self.merged.node(*id) else {
                continue;
            };
            let is_kept = !self.ours.nodes.contains_key(id) && self.theirs.node(*id) != Some(to);
            if self.ours.node(*id) != Some(to) || is_kept {
                self.out.actions.nodes.insert(*id, to.clone());
            }
        }
        self.out
    }
}

/// The name under which a second version stays: `plan.conflict-bob@host-17.md`.
fn conflict_name(name: &Name, writer: &str, number: u64, attempt: u32) -> Name {
    let again = match attempt {
        0 => String::new(),
        attempt => format!("-{attempt}"),
    };
    let writer: String = writer
        .chars()
        .filter(|char| !matches!(char, '/' | '\0'))
        .take(32)
        .collect();
    let mark = format!(".conflict-{writer}-{number}{again}");
    let dot = name
        .0
        .iter()
        .rposition(|byte| *byte == b'.')
        .filter(|at| *at > 0);
    let (stem, extension) = name.0.split_at(dot.unwrap_or(name.0.len()));
    let extension = if extension.len() > 32 { &[] } else { extension };
    let mut stem = &stem[..stem.len().min(255 - mark.len() - extension.len())];
    // A cut name ends with a whole character, if it is text.
    if let Err(error) = std::str::from_utf8(stem)
        && error.error_len().is_none()
    {
        stem = &stem[..error.valid_up_to()];
    }
    Name([stem, mark.as_bytes(), extension].concat())
}
