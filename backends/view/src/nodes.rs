//! The nodes that the kernel knows by inode number, and their attributes.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fuse::store::{Attr, Errno, Ino, Kind, ROOT, Result, Timestamp};

use crate::ViewStore;
use crate::source::{Parameter, Text};
use crate::tree::Level;

/// A file in the result of a query.
pub(super) struct FileRow {
    pub(super) key: i64,
    pub(super) size: u64,
    pub(super) modified: Option<Timestamp>,
    /// Of a file of a directory.
    pub(super) permissions: Option<u16>,
    pub(super) name: Vec<u8>,
}

/// The columns of the directories above a node, with their values in its path.
pub(super) type ParentValues = Arc<Vec<(String, Value)>>;

/// The value that names a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) text: Vec<u8>,
    /// The same as a number, where its column does not compare numbers with text.
    pub(super) number: Text,
}

impl Value {
    pub(super) fn parameter(&self) -> Parameter<'_> {
        match &self.number {
            Some(number) => Parameter::Number(number),
            None => Parameter::Text(&self.text),
        }
    }
}

impl Hash for Value {
    /// Hashes the text only, because the text is the name.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum NodeKind {
    Level(usize),
    File {
        files: usize,
        key: i64,
    },
    Computed(usize),
    Link {
        links: usize,
        value: Vec<u8>,
    },
    Answer {
        question: usize,
        text: Vec<u8>,
    },
    /// A file that has no row yet. The number differs from that of an earlier file with the same name.
    New {
        files: usize,
        name: Vec<u8>,
        number: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) what: NodeKind,
    pub(super) above: ParentValues,
    pub(super) parent: Ino,
}

impl Node {
    fn root() -> Self {
        Self { what: NodeKind::Level(0), above: ParentValues::default(), parent: ROOT }
    }

    /// A node in the directory `parent`, which is `self`.
    pub(super) fn child(&self, parent: Ino, what: NodeKind) -> Self {
        Self { what, above: Arc::clone(&self.above), parent }
    }

    /// The inode number, which stays the same for as long as the row has its key.
    pub(super) fn ino(&self) -> Ino {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let ino = hasher.hash_one((&self.what, &self.above)) >> 1;
        ino.max(ROOT + 1)
    }
}

/// The nodes that the kernel may ask for.
#[derive(Default)]
pub(super) struct Nodes(HashMap<Ino, Arc<Node>>);

impl Nodes {
    pub(super) fn get(&self, ino: Ino) -> Option<&Arc<Node>> {
        self.0.get(&ino)
    }

    /// Remembers a node, because the kernel will ask for it by its number.
    pub(super) fn know(&mut self, node: Node) -> Ino {
        let ino = node.ino();
        // The value of a directory can have changed from a number to the same text. Otherwise keep the first node:
        // nodes below share its `above`.
        if self.get(ino).is_none_or(|known| known.above != node.above) {
            self.0.insert(ino, Arc::new(node));
        }
        ino
    }

    /// Makes the inode number of a file that had no row stand for `node`.
    pub(super) fn replace(&mut self, ino: Ino, node: Node) {
        self.0.insert(ino, Arc::new(node));
    }

    pub(super) fn remove(&mut self, ino: Ino) {
        self.0.remove(&ino);
        // Return the memory of an earlier, much larger table.
        if self.0.len() < self.0.capacity() / 8 {
            self.0.shrink_to(self.0.len() * 2);
        }
    }
}

impl ViewStore {
    pub(super) fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        if ino == ROOT {
            return Ok(Arc::new(Node::root()));
        }
        let known = self.state().nodes.get(ino).cloned();
        known.ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn level(&self, ino: Ino) -> Result<(Arc<Node>, &Level)> {
        let node = self.node(ino)?;
        match node.what {
            NodeKind::Level(level) => Ok((node, &self.tree.levels[level])),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    /// As [`Nodes::know`].
    pub(super) fn know(&self, node: Node) -> Ino {
        self.state().nodes.know(node)
    }

    pub(super) fn attr(&self, ino: Ino, kind: Kind, size: u64, modified: Option<Timestamp>) -> Attr {
        let time = modified.unwrap_or(self.owner.now);
        Attr {
            ino,
            kind,
            permissions: match kind {
                Kind::Directory => 0o755,
                Kind::Symlink => 0o777,
                _ => 0o644,
            },
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
        }
    }

    pub(super) fn file_attr(&self, ino: Ino, files: usize, shown: &FileRow) -> Attr {
        let mut attr = self.attr(ino, Kind::File, shown.size, shown.modified);
        if self.tree.files[files].write.update.is_none() {
            attr.permissions = 0o444;
        } else if let Some(permissions) = shown.permissions {
            attr.permissions = permissions;
        }
        attr
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_looked_up_again_keeps_the_values_that_its_files_share() {
        let dir = |number: Option<&[u8]>| Node {
            what: NodeKind::Level(1),
            above: Arc::new(vec![(
                "year".to_owned(),
                Value { text: b"4".to_vec(), number: number.map(<[u8]>::to_vec) },
            )]),
            parent: ROOT,
        };
        let mut nodes = Nodes::default();
        let ino = nodes.know(dir(Some(b"4")));
        let first = Arc::clone(&nodes.get(ino).unwrap().above);
        nodes.know(dir(Some(b"4")));
        assert!(Arc::ptr_eq(&first, &nodes.get(ino).unwrap().above));
        nodes.know(dir(None));
        assert_ne!(nodes.get(ino).unwrap().above, first, "it has become text");
    }
}
