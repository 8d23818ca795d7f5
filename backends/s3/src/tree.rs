//! A file tree as the log describes it: nodes by global identity, names by directory. Pure data, no I/O.

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hex_simd::AsciiCase;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes in every chunk of a file but the last: 8 MiB.
pub const CHUNK: u64 = 8 << 20;

/// The longest file: 512 GiB.
pub const FILE_MAX: u64 = 512 << 30;

/// Files up to this many bytes travel inside their commit: 64 KiB.
pub const INLINE_MAX: u64 = 64 << 10;

/// A node's identity in every mount: the mount that first committed it, and its inode number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId {
    /// The writer of the mount.
    pub writer: u64,
    /// The inode number in the mount's cache; inode numbers are never reused.
    pub ino: u64,
}

/// The root directory.
pub const ROOT: NodeId = NodeId { writer: 0, ino: 1 };

/// A file name: bytes without `/` and NUL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Name(#[serde(with = "serde_bytes")] pub Vec<u8>);

/// A SHA-256 digest.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// The HMAC-SHA256 of `bytes` under a key of any length (RFC 2104).
    pub(crate) fn with_key(key: &[u8], bytes: &[u8]) -> Self {
        #[expect(clippy::expect_used, reason = "HMAC takes a key of any length")]
        let mut hash = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
        hash.update(bytes);
        Self(hash.finalize().into_bytes().into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex_simd::encode_to_string(self.0, AsciiCase::Lower))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_string()[..8])
    }
}

/// Where the bytes of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// Only in the working copy that made it; never in a commit.
    Local,
    /// Nowhere: the chunk reads as zeros.
    Hole,
    /// In the blob of its digest. Each salt is another blob: garbage collection may remove the ones before.
    Blob {
        /// The salt.
        salt: u32,
    },
    /// In a commit, from `offset` of its inline section on. In an encoded commit, 0 stands for itself.
    Inline {
        /// The number of the commit.
        commit: u64,
        /// Bytes before the chunk in the inline section.
        offset: u32,
    },
}

/// A piece of a file: [`CHUNK`] bytes, or fewer at the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Chunk {
    /// The digest of its bytes.
    pub hash: Hash,
    /// Its length in bytes, 1 to [`CHUNK`].
    pub length: u32,
    /// Where the bytes are.
    pub place: Place,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// The size in bytes: the sum of the chunks' lengths.
    pub size: u64,
    /// The chunks in order.
    pub chunks: Vec<Chunk>,
}

/// Content at hand, by digest. A chunk that cannot be fetched any more has no bytes.
pub type ChunkBytes = BTreeMap<Hash, Bytes>;

impl Content {
    /// The content `bytes`, which only the working copy has so far.
    pub fn local(bytes: &[u8]) -> Self {
        let chunks = bytes.chunks(CHUNK as usize).map(|piece| Chunk {
            hash: Hash::of(piece),
            length: piece.len() as u32,
            place: Place::Local,
        });
        Self { size: bytes.len() as u64, chunks: chunks.collect() }
    }

    /// The same, with the bytes of its chunks.
    pub(crate) fn split(bytes: &Bytes) -> (Self, ChunkBytes) {
        let content = Self::local(bytes);
        let of = |(chunk, piece): (&Chunk, &[u8])| (chunk.hash, bytes.slice_ref(piece));
        let pieces = std::iter::zip(&content.chunks, bytes.chunks(CHUNK as usize));
        let pieces = pieces.map(of).collect();
        (content, pieces)
    }

    /// The bytes, if all chunks are at hand.
    pub(crate) fn assemble(&self, fetched: &ChunkBytes) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for chunk in &self.chunks {
            match chunk.place {
                Place::Hole => bytes.resize(bytes.len() + chunk.length as usize, 0),
                _ => bytes.extend_from_slice(fetched.get(&chunk.hash)?),
            }
        }
        Some(bytes)
    }

    /// Checks that the chunks make a file: each has 1 to [`CHUNK`] bytes, also a hole, and their sum is the size, at most
    /// [`FILE_MAX`]. Fails with the reason.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let is_chunk = |chunk: &Chunk| (1..=CHUNK).contains(&u64::from(chunk.length));
        if !self.chunks.iter().all(is_chunk) {
            return Err("has a chunk of a wrong length");
        }
        match self.length() {
            length if length > FILE_MAX => Err("is longer than 512 GiB"),
            length if length != self.size => Err("has a size other than the sum of its chunks"),
            _ => Ok(()),
        }
    }

    /// The sum of the chunks' lengths.
    pub(crate) fn length(&self) -> u64 {
        self.chunks.iter().map(|it| u64::from(it.length)).sum()
    }

    /// The start of `bytes`, if it is this content.
    pub(crate) fn start_of<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let start = bytes.get(..usize::try_from(self.size).ok()?)?;
        Self::local(start).same_bytes(self).then_some(start)
    }

    /// Whether the bytes are equal, wherever they are.
    pub fn same_bytes(&self, other: &Self) -> bool {
        self.size == other.size
            && self.chunks.len() == other.chunks.len()
            && std::iter::zip(&self.chunks, &other.chunks)
                .all(|(one, other)| (one.hash, one.length) == (other.hash, other.length))
    }
}

/// The attributes of a node. Times are nanoseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    /// Permission bits: `0..=0o7777`.
    pub permissions: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Last access, as set by `utimensat`.
    pub atime: i64,
    /// Last change of the content; of a directory always 0, because merging names would always change it.
    pub mtime: i64,
    /// Creation.
    pub btime: i64,
    /// Extended attributes.
    pub xattrs: BTreeMap<Name, serde_bytes::ByteBuf>,
}

impl Attributes {
    /// Merges attributes one by one. One that a single side changed is that side's; one that both changed is ours,
    /// which is later. A node that both made has theirs.
    pub(crate) fn merged(before: Option<&Self>, ours: &Self, theirs: &Self) -> Self {
        let Some(before) = before else {
            return theirs.clone();
        };
        fn pick<T: PartialEq + Clone>(before: &T, ours: &T, theirs: &T) -> T {
            let picked = if ours == before { theirs } else { ours };
            picked.clone()
        }
        let names: BTreeSet<&Name> = ours.xattrs.keys().chain(theirs.xattrs.keys()).collect();
        let xattrs = names.into_iter().filter_map(|name| {
            let [before, ours, theirs] = [before, ours, theirs].map(|it| it.xattrs.get(name).cloned());
            Some((name.clone(), pick(&before, &ours, &theirs)?))
        });
        Self {
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
}

/// The type of a node, with its content or target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// A directory.
    Directory,
    /// A regular file.
    File(Content),
    /// A symbolic link.
    Symlink(#[serde(with = "serde_bytes")] Vec<u8>),
    /// A pipe, socket or device: the type bits of `st_mode`.
    Special(u32),
}

/// A node: what it is, and its attributes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its type, with its content or target.
    pub body: Body,
    /// Its attributes.
    pub attributes: Attributes,
}

impl Node {
    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory)
    }

    /// The content of a regular file.
    pub fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// The same, to change it.
    pub fn content_mut(&mut self) -> Option<&mut Content> {
        match &mut self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }
}

/// A directory and a name in it.
pub type Entry = (NodeId, Name);

/// The changes of a commit. A node that loses its last name is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// New and changed nodes, whole.
    pub nodes: BTreeMap<NodeId, Node>,
    /// New and changed names; `None` removes.
    pub names: BTreeMap<Entry, Option<NodeId>>,
}

impl Changes {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.names.is_empty()
    }

    /// The chunks of all new and changed files.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        let contents = self.nodes.values().filter_map(Node::content);
        contents.flat_map(|content| &content.chunks)
    }

    /// The same, to change them.
    pub fn chunks_mut(&mut self) -> impl Iterator<Item = &mut Chunk> {
        let contents = self.nodes.values_mut().filter_map(Node::content_mut);
        contents.flat_map(|content| &mut content.chunks)
    }
}

/// Why an object does not belong to a log, or changes do not apply to a tree: the log is damaged, or a writer is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidLog(pub(crate) String);

/// The names of a node: nearly every node has one. They are those of [`Tree::names`], shared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Links {
    One(Arc<Entry>),
    /// None or several.
    #[expect(clippy::box_collection, reason = "without the box, every node is larger by 16 bytes")]
    Set(Box<BTreeSet<Arc<Entry>>>),
}

impl Links {
    fn iter(&self) -> impl Iterator<Item = &Entry> {
        let (one, set) = match self {
            Self::One(entry) => (Some(entry), None),
            Self::Set(entries) => (None, Some(entries.iter())),
        };
        one.into_iter().chain(set.into_iter().flatten()).map(|entry| &**entry)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Set(entries) if entries.is_empty())
    }

    /// The same names, as a set.
    fn as_set(&mut self) -> &mut BTreeSet<Arc<Entry>> {
        if let Self::One(entry) = self {
            *self = Self::Set(Box::new(BTreeSet::from([Arc::clone(entry)])));
        }
        match self {
            Self::Set(entries) => entries,
            Self::One(_) => unreachable!("it was replaced"),
        }
    }

    fn insert(&mut self, entry: Arc<Entry>) {
        match self {
            Self::One(known) if *known == entry => {}
            Self::Set(entries) if entries.is_empty() => *self = Self::One(entry),
            _ => drop(self.as_set().insert(entry)),
        }
    }

    fn remove(&mut self, entry: &Entry) {
        let set = self.as_set();
        set.remove(entry);
        if set.len() == 1
            && let Some(last) = set.pop_first()
        {
            *self = Self::One(last);
        }
    }
}

/// A whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    names: BTreeMap<Arc<Entry>, NodeId>,
    /// Names by node.
    links: BTreeMap<NodeId, Links>,
}

impl Default for Tree {
    fn default() -> Self {
        let root =
            Node { body: Body::Directory, attributes: Attributes { permissions: 0o755, ..Attributes::default() } };
        Self { nodes: BTreeMap::from([(ROOT, root)]), names: BTreeMap::new(), links: BTreeMap::new() }
    }
}

impl Tree {
    /// Every node and name, as changes of an empty tree.
    pub fn to_changes(&self) -> Changes {
        let given = |(entry, id): (&Arc<Entry>, &NodeId)| (Entry::clone(entry), Some(*id));
        Changes { nodes: self.nodes.clone(), names: self.names.iter().map(given).collect() }
    }

    /// The node of that identity.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, node))
    }

    /// How many nodes there are, the root among them.
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The node that a name stands for.
    pub fn name(&self, entry: &Entry) -> Option<NodeId> {
        self.names.get(entry).copied()
    }

    /// The names in a directory.
    pub fn children(&self, dir: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        let first = (dir, Name(Vec::new()));
        let names = self.names.range::<Entry, _>((Bound::Included(&first), Bound::Unbounded));
        let names = names.take_while(move |(entry, _)| entry.0 == dir);
        names.map(|(entry, id)| (&entry.1, *id))
    }

    /// The names of a node; the root has none.
    pub fn names_of(&self, id: NodeId) -> impl Iterator<Item = &Entry> {
        self.links.get(&id).into_iter().flat_map(Links::iter)
    }

    /// A path of a node, without a leading `/`; the root's is empty. `None` if it is not there.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        match id {
            ROOT => Some(Vec::new()),
            _ => self.path_of(self.names_of(id).next()?),
        }
    }

    /// The path of a name. `None` if its directory is not there.
    pub fn path_of(&self, (dir, name): &Entry) -> Option<Vec<u8>> {
        let (mut names, mut at) = (vec![&name.0[..]], *dir);
        while at != ROOT {
            let (above, name) = self.names_of(at).next()?;
            names.push(&name.0);
            at = *above;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    /// Visits a node, whose path is given, and all below it; a directory comes before its entries. The paths of nested
    /// directories are not kept: together they would be quadratic.
    pub(crate) fn visit(&self, id: NodeId, path: Vec<u8>, mut visit: impl FnMut(&[u8], NodeId)) {
        visit(&path, id);
        let mut at = path;
        // What is still to visit: the length of the path of its directory, its name, its identity.
        let mut waiting: Vec<(usize, &Name, NodeId)> = Vec::new();
        let mut dir = Some(id);
        loop {
            if let Some(dir) = dir {
                let children = self.children(dir);
                waiting.extend(children.map(|(name, id)| (at.len(), name, id)));
            }
            let Some((length, name, id)) = waiting.pop() else {
                return;
            };
            at.truncate(length);
            if !at.is_empty() {
                at.push(b'/');
            }
            at.extend_from_slice(&name.0);
            visit(&at, id);
            dir = self.node(id).is_some_and(Node::is_directory).then_some(id);
        }
    }

    /// The node at a path of names separated by `/`; empty ones are skipped.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = path.split(|byte| *byte == b'/');
        names.try_fold(
            ROOT,
            |dir, name| if name.is_empty() { Some(dir) } else { self.name(&(dir, Name(name.to_vec()))) },
        )
    }

    /// The content of the file at a path.
    pub fn content_at(&self, path: &[u8]) -> Option<&Content> {
        self.node(self.find(path)?).and_then(Node::content)
    }

    /// The chunks of all files.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        let contents = self.nodes.values().filter_map(Node::content);
        contents.flat_map(|content| &content.chunks)
    }

    /// Applies the changes of one commit, which were checked before (`view::validate`).
    pub fn apply(&mut self, changes: &Changes) {
        for (id, node) in &changes.nodes {
            self.nodes.insert(*id, node.clone());
        }
        let mut unlinked = BTreeSet::new();
        for (entry, to) in &changes.names {
            let shared = to.map(|id| (Arc::new(entry.clone()), id));
            let was = match &shared {
                Some((entry, id)) => self.names.insert(Arc::clone(entry), *id),
                None => self.names.remove(entry),
            };
            if let Some(was) = was {
                if let Some(links) = self.links.get_mut(&was) {
                    links.remove(entry);
                }
                unlinked.insert(was);
            }
            if let Some((entry, id)) = shared {
                match self.links.entry(id) {
                    btree_map::Entry::Vacant(none) => drop(none.insert(Links::One(entry))),
                    btree_map::Entry::Occupied(links) => links.into_mut().insert(entry),
                }
            }
        }
        for id in unlinked.into_iter().chain(changes.nodes.keys().copied()) {
            if id != ROOT && self.links.get(&id).is_none_or(Links::is_empty) {
                self.links.remove(&id);
                self.nodes.remove(&id);
            }
        }
        if changes.names.len() > self.names.len() / 2 {
            self.compact();
        }
    }

    /// Fills the inner nodes of the maps: insertions in order leave them half empty.
    fn compact(&mut self) {
        self.nodes = std::mem::take(&mut self.nodes).into_iter().collect();
        self.names = std::mem::take(&mut self.names).into_iter().collect();
        self.links = std::mem::take(&mut self.links).into_iter().collect();
    }
}

/// The known part of the path of a changed node.
pub(crate) fn describe(base: &Tree, changes: &Changes, id: NodeId) -> String {
    let mut given = changes.names.iter().filter(|(_, to)| **to == Some(id));
    let given = given.next().map(|(entry, _)| entry);
    let Some(entry) = given.or_else(|| base.names_of(id).next()) else {
        return format!("{id:?}");
    };
    // Of what is in a new directory, the name alone is known.
    let path = base.path_of(entry);
    String::from_utf8_lossy(path.as_ref().unwrap_or(&entry.1.0)).into_owned()
}

/// Leaves out a file whose content is nowhere; one that the base has stays as it is there.
pub(crate) fn leave_out(changes: &mut Changes, base: &Tree, id: NodeId) {
    changes.nodes.remove(&id);
    if base.node(id).is_some() {
        return;
    }
    let names = changes.names.iter().filter(|(_, to)| **to == Some(id));
    for entry in names.map(|(entry, _)| entry.clone()).collect::<Vec<_>>() {
        let was = base.name(&entry);
        // The node that it replaces stays, unless that is a directory with another name now.
        let is_moved = was.is_some_and(|was| {
            base.node(was).is_some_and(Node::is_directory) && changes.names.values().any(|to| *to == Some(was))
        });
        if is_moved {
            changes.names.insert(entry, None)
        } else {
            changes.names.remove(&entry)
        };
    }
}
