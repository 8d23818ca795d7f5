//! A file tree as the log describes it: nodes by global identity, names by directory. Pure data, no I/O.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes in every chunk of a file but the last: 8 MiB.
pub const CHUNK: u64 = 8 << 20;

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..4]
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Where the bytes of a chunk are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// Only in the working copy that made it; never in a commit.
    Local,
    /// Nowhere: the chunk reads as zeros.
    Hole,
    /// In the blob of its digest. A salt other than 0 names another blob of equal content, which was
    /// uploaded because garbage collection may remove the first.
    Blob {
        /// The salt.
        salt: u32,
    },
    /// In a commit, from `offset` of its inline section on. In an encoded commit, 0 stands for the
    /// commit itself.
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

impl Content {
    /// The content `bytes`, which only the working copy has so far.
    pub fn local(bytes: &[u8]) -> Self {
        let chunks = bytes.chunks(CHUNK as usize).map(|piece| Chunk {
            hash: Hash::of(piece),
            length: piece.len() as u32,
            place: Place::Local,
        });
        Self {
            size: bytes.len() as u64,
            chunks: chunks.collect(),
        }
    }

    /// Whether the bytes are equal, wherever they are.
    pub fn same_bytes(&self, other: &Self) -> bool {
        self.size == other.size
            && self.chunks.len() == other.chunks.len()
            && std::iter::zip(&self.chunks, &other.chunks)
                .all(|(one, other)| one.hash == other.hash && one.length == other.length)
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

/// What a node is.
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
    /// What it is.
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
}

/// A directory and a name in it.
pub type Entry = (NodeId, Name);

/// What a commit changes. A node that loses its last name is gone.
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
}

/// Why changes do not apply to a tree: the log is damaged, or a writer is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// A name in something that is no directory.
    #[error("a name in {0:?}, which is no directory")]
    Parent(NodeId),
    /// A name of a node that is not there.
    #[error("a name of {0:?}, which is not there")]
    Missing(NodeId),
    /// A directory with two names.
    #[error("directory {0:?} has several names")]
    Names(NodeId),
    /// A directory in itself.
    #[error("directory {0:?} is inside itself")]
    Cycle(NodeId),
    /// A directory that is gone, with names in it.
    #[error("directory {0:?} is removed, but not empty")]
    NotEmpty(NodeId),
    /// A name that no file can have.
    #[error("an impossible name")]
    Name,
    /// A directory that becomes something else, or the reverse.
    #[error("{0:?} becomes another kind of node")]
    Kind(NodeId),
    /// A file whose chunks are not as long as it is.
    #[error("file {0:?} is not as long as its chunks")]
    Size(NodeId),
}

/// A whole tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<NodeId, Node>,
    /// Names by directory.
    entries: BTreeMap<NodeId, BTreeMap<Name, NodeId>>,
    /// Names by node.
    links: BTreeMap<NodeId, BTreeSet<Entry>>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node {
            body: Body::Directory,
            attributes: Attributes {
                permissions: 0o755,
                ..Attributes::default()
            },
        };
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            entries: BTreeMap::new(),
            links: BTreeMap::new(),
        }
    }
}

impl Tree {
    /// The tree of these nodes and names.
    ///
    /// # Errors
    /// If they are no tree.
    pub fn of(changes: &Changes) -> Result<Self, Invalid> {
        let mut tree = Self::default();
        crate::merge::validate(&tree, changes)?;
        tree.apply(changes);
        Ok(tree)
    }

    /// Every node and name, as changes of an empty tree.
    pub fn to_changes(&self) -> Changes {
        let names = self.entries.iter().flat_map(|(dir, names)| {
            let of = |(name, node): (&Name, &NodeId)| ((*dir, name.clone()), Some(*node));
            names.iter().map(of)
        });
        Changes {
            nodes: self.nodes.clone(),
            names: names.collect(),
        }
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
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() == 1
    }

    /// What a name names.
    pub fn name(&self, dir: NodeId, name: &Name) -> Option<NodeId> {
        self.entries.get(&dir)?.get(name).copied()
    }

    /// The names in a directory.
    pub fn children(&self, dir: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        let names = self.entries.get(&dir).into_iter().flatten();
        names.map(|(name, node)| (name, *node))
    }

    /// The names of a node; the root has none.
    pub fn names_of(&self, id: NodeId) -> impl Iterator<Item = &Entry> {
        self.links.get(&id).into_iter().flatten()
    }

    /// A path of a node, without a leading `/`; the root's is empty. `None` if it is not there.
    pub fn path(&self, id: NodeId) -> Option<Vec<u8>> {
        if id == ROOT {
            return Some(Vec::new());
        }
        let (dir, name) = self.names_of(id).next()?;
        let mut path = self.path(*dir)?;
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(&name.0);
        Some(path)
    }

    /// The node at a path of names separated by `/`; empty ones are skipped.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut names = path.split(|byte| *byte == b'/');
        names.try_fold(ROOT, |dir, name| match name.is_empty() {
            true => Some(dir),
            false => self.name(dir, &Name(name.to_vec())),
        })
    }

    /// Applies the changes of one commit, which [`crate::merge::validate`] has checked.
    pub fn apply(&mut self, changes: &Changes) {
        for (id, node) in &changes.nodes {
            self.nodes.insert(*id, node.clone());
        }
        let mut unlinked = BTreeSet::new();
        for ((dir, name), to) in &changes.names {
            let entries = self.entries.entry(*dir).or_default();
            let was = match to {
                Some(node) => entries.insert(name.clone(), *node),
                None => entries.remove(name),
            };
            if entries.is_empty() {
                self.entries.remove(dir);
            }
            if let Some(was) = was {
                let links = self.links.entry(was).or_default();
                links.remove(&(*dir, name.clone()));
                unlinked.insert(was);
            }
            if let Some(node) = to {
                let links = self.links.entry(*node).or_default();
                links.insert((*dir, name.clone()));
            }
        }
        for id in unlinked.into_iter().chain(changes.nodes.keys().copied()) {
            if id != ROOT && self.links.get(&id).is_none_or(BTreeSet::is_empty) {
                self.links.remove(&id);
                self.nodes.remove(&id);
            }
        }
    }
}
