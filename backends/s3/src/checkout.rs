//! A working copy in memory, without a mount: for commands that make one commit.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::merge::{Needs, difference};
use crate::objects::Objects;
use crate::replica::{
    Fetched, Head, Local, MergeWork, NOTHING, Replica, ReplicaError, Writer, assemble,
};
use crate::session::{Committed, Contact, Session, SessionError};
use crate::tree::{
    Attributes, Body, CHUNK, Changes, Content, INLINE_MAX, Name, Node, NodeId, Place, ROOT, Tree,
};

/// A name on the way to a path, or the path itself, is taken by something of another kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} exists, and is of another kind", String::from_utf8_lossy(.0))]
pub struct Occupied(pub Vec<u8>);

/// The current time, in nanoseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}

/// A log's newest tree, with edits that are not committed yet.
#[derive(Debug)]
pub struct Checkout {
    head: Head,
    base: Tree,
    /// The base with the edits; `None` without any.
    edited: Option<Tree>,
    writer: Writer,
    intents: Vec<[u8; 16]>,
    /// Content that is not committed yet, by digest of its chunks.
    bytes: Fetched,
    last_ino: u64,
    contact: Contact,
}

impl Checkout {
    /// The newest tree of the log in `objects`; `name` is the writer's name in commits.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn open<O: Objects>(objects: &O, name: &str) -> Result<Self, SessionError> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| ReplicaError(error.to_string()))?;
        let mut checkout = Self {
            head: NOTHING,
            base: Tree::default(),
            edited: None,
            writer: Writer {
                id: u64::from_le_bytes(id),
                name: name.to_owned(),
            },
            intents: Vec::new(),
            bytes: Fetched::new(),
            last_ino: 1,
            contact: Contact::default(),
        };
        checkout.join(objects).await?;
        Ok(checkout)
    }

    /// Adopts what others have committed meanwhile.
    ///
    /// # Errors
    /// [`SessionError`].
    pub async fn join<O: Objects>(&mut self, objects: &O) -> Result<u64, SessionError> {
        let mut contact = std::mem::take(&mut self.contact);
        let joined = Session::new(objects, self, &now, &random, &mut contact)
            .join()
            .await;
        self.contact = contact;
        joined
    }

    /// The tree with the edits.
    pub fn tree(&self) -> &Tree {
        self.edited.as_ref().unwrap_or(&self.base)
    }

    fn edit(&mut self, changes: &Changes) {
        self.edited
            .get_or_insert_with(|| self.base.clone())
            .apply(changes);
    }

    fn fresh(&mut self) -> NodeId {
        self.last_ino += 1;
        NodeId {
            writer: self.writer.id,
            ino: self.last_ino,
        }
    }

    /// Keeps new content until it is committed.
    pub fn hold(&mut self, bytes: &Bytes) -> Content {
        let content = Content::local(bytes);
        for (index, chunk) in content.chunks.iter().enumerate() {
            let start = index * CHUNK as usize;
            let piece = bytes.slice(start..start + chunk.length as usize);
            self.bytes.insert(chunk.hash, piece);
        }
        content
    }

    /// The directory at a path, which is made if there is none, with the permissions 0755 and its parent's owner.
    fn directory(&mut self, path: &[u8]) -> Result<NodeId, Occupied> {
        let mut dir = ROOT;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let name = Name(name.to_vec());
            let above = self.tree().node(dir).map(|node| node.attributes.clone());
            dir = match self.tree().name(dir, &name) {
                Some(id) if self.tree().node(id).is_some_and(Node::is_directory) => id,
                Some(_) => return Err(Occupied(path.to_vec())),
                None => {
                    let id = self.fresh();
                    let node = Node {
                        body: Body::Directory,
                        attributes: new_attributes(above.as_ref(), 0o755),
                    };
                    self.edit(&Changes {
                        nodes: BTreeMap::from([(id, node)]),
                        names: BTreeMap::from([((dir, name), Some(id))]),
                    });
                    id
                }
            };
        }
        Ok(dir)
    }

    /// Gives a path this node. What is there keeps its identity if it is of the same kind.
    ///
    /// # Errors
    /// [`Occupied`] if the path, or one above it, is a directory or must be one and is not.
    pub fn put(&mut self, path: &[u8], node: Node) -> Result<NodeId, Occupied> {
        let (above, name) = split(path);
        if name.is_empty() {
            return Ok(ROOT);
        }
        let (dir, name) = (self.directory(above)?, Name(name.to_vec()));
        let there = self.tree().name(dir, &name);
        let body = there.and_then(|id| Some(&self.tree().node(id)?.body));
        let is_same = body
            .is_some_and(|body| std::mem::discriminant(body) == std::mem::discriminant(&node.body));
        if let Some(body) = body
            && !is_same
            && (*body == Body::Directory || node.is_directory())
        {
            return Err(Occupied(path.to_vec()));
        }
        let id = match there.filter(|_| is_same) {
            Some(id) => id,
            None => self.fresh(),
        };
        self.edit(&Changes {
            nodes: BTreeMap::from([(id, node)]),
            names: BTreeMap::from([((dir, name), Some(id))]),
        });
        Ok(id)
    }

    /// Gives a file this content. A new file has the permissions 0644 and its directory's owner.
    ///
    /// # Errors
    /// As [`Checkout::put`].
    pub fn write(&mut self, path: &[u8], bytes: &Bytes, mtime: i64) -> Result<(), Occupied> {
        let dir = self.directory(split(path).0)?;
        let tree = self.tree();
        let there = tree.find(path).and_then(|id| tree.node(id));
        let attributes = match there.filter(|node| node.content().is_some()) {
            Some(node) => node.attributes.clone(),
            None => Attributes {
                btime: mtime,
                ..new_attributes(tree.node(dir).map(|node| &node.attributes), 0o644)
            },
        };
        let node = Node {
            body: Body::File(self.hold(bytes)),
            attributes: Attributes {
                mtime,
                ..attributes
            },
        };
        self.put(path, node).map(drop)
    }

    /// Gives a node that is there another name, in place of any file that has it.
    ///
    /// # Errors
    /// As [`Checkout::put`].
    pub fn link(&mut self, path: &[u8], id: NodeId) -> Result<(), Occupied> {
        let (above, name) = split(path);
        let entry = (self.directory(above)?, Name(name.to_vec()));
        let there = self.tree().name(entry.0, &entry.1);
        if there.is_some_and(|id| self.tree().node(id).is_some_and(Node::is_directory)) {
            return Err(Occupied(path.to_vec()));
        }
        self.edit(&Changes {
            nodes: BTreeMap::new(),
            names: BTreeMap::from([(entry, Some(id))]),
        });
        Ok(())
    }

    /// Removes the name of a file; whether there was one.
    pub fn remove(&mut self, path: &[u8]) -> bool {
        let (above, name) = split(path);
        let tree = self.tree();
        let (dir, name) = (tree.find(above), Name(name.to_vec()));
        let file = dir.and_then(|dir| tree.node(tree.name(dir, &name)?));
        let (Some(dir), true) = (dir, file.is_some_and(|node| !node.is_directory())) else {
            return false;
        };
        self.edit(&Changes {
            nodes: BTreeMap::new(),
            names: BTreeMap::from([((dir, name), None)]),
        });
        true
    }

    /// Commits the edits, merged with what others have committed meanwhile.
    ///
    /// # Errors
    /// [`SessionError`]. After [`SessionError::Fault`] the commit may be in the log.
    pub async fn commit<O: Objects>(&mut self, objects: &O) -> Result<Committed, SessionError> {
        let mut contact = std::mem::take(&mut self.contact);
        let committed = Session::new(objects, self, &now, &random, &mut contact)
            .commit()
            .await;
        self.contact = contact;
        committed
    }
}

fn random(buffer: &mut [u8]) {
    // `open` has asked the kernel before: it does not fail later.
    if let Err(error) = getrandom::fill(buffer) {
        tracing::error!(%error, "the kernel provides no random bytes");
    }
}

/// A path without its last name, and that name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path
        .iter()
        .rposition(|byte| *byte != b'/')
        .map_or(0, |at| at + 1);
    let path = &path[..end];
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

fn new_attributes(above: Option<&Attributes>, permissions: u16) -> Attributes {
    Attributes {
        permissions,
        uid: above.map_or(0, |above| above.uid),
        gid: above.map_or(0, |above| above.gid),
        ..Attributes::default()
    }
}

impl Replica for Checkout {
    fn head(&self) -> Head {
        self.head
    }

    fn base(&self) -> &Tree {
        &self.base
    }

    fn writer(&self) -> &Writer {
        &self.writer
    }

    fn was_writer(&self, id: u64) -> bool {
        id == self.writer.id
    }

    fn intents(&self) -> Vec<[u8; 16]> {
        self.intents.clone()
    }

    fn local(&mut self, nonce: [u8; 16]) -> Result<Local, ReplicaError> {
        let Some(edited) = &self.edited else {
            return Ok(Local::default());
        };
        self.intents.push(nonce);
        let changes = difference(&self.base, edited);
        let small = changes.nodes.values().filter_map(Node::content);
        let small = small.filter(|content| content.size <= INLINE_MAX);
        let chunks = small.flat_map(|content| &content.chunks);
        let inline = chunks
            .filter(|chunk| chunk.place == Place::Local)
            .filter_map(|chunk| Some((chunk.hash, self.bytes.get(&chunk.hash)?.clone())));
        let inline = inline.collect();
        Ok(Local {
            changes,
            inline,
            mark: 0,
        })
    }

    fn settle(&mut self, _: u64) -> Result<(), ReplicaError> {
        self.edited = None;
        Ok(())
    }

    fn read(&mut self, id: NodeId, index: usize) -> Result<Option<Bytes>, ReplicaError> {
        let content = self.tree().node(id).and_then(Node::content);
        let chunk = content.and_then(|content| content.chunks.get(index));
        Ok(chunk.and_then(|chunk| self.bytes.get(&chunk.hash).cloned()))
    }

    fn is_unchanged(&mut self, _: NodeId) -> Result<bool, ReplicaError> {
        Ok(true)
    }

    fn acknowledge(
        &mut self,
        head: Head,
        changes: &Changes,
        _: Option<u64>,
    ) -> Result<(), ReplicaError> {
        self.base.apply(changes);
        self.head = head;
        self.intents.clear();
        // Every edit was made before the commit.
        self.edited = None;
        Ok(())
    }

    fn adopt(
        &mut self,
        head: Head,
        theirs: &Changes,
        merge: &mut MergeWork<'_>,
    ) -> Result<Result<(), Needs>, ReplicaError> {
        if let Some(edited) = &self.edited {
            let ours = difference(&self.base, edited);
            let bytes = &self.bytes;
            let mut read_ours = |id: NodeId| {
                let content = edited.node(id).and_then(Node::content);
                Ok(content
                    .and_then(|content| assemble(content, bytes))
                    .map(Bytes::from))
            };
            let (writer, mut ino) = (self.writer.id, self.last_ino);
            let mut fresh = || {
                ino += 1;
                NodeId { writer, ino }
            };
            let merged = match merge(&self.base, &ours, &mut read_ours, &mut fresh)? {
                Ok(merged) => merged,
                Err(needs) => return Ok(Err(needs)),
            };
            let mut edited = edited.clone();
            for (id, fork) in &merged.forks {
                let names = edited
                    .names_of(*id)
                    .map(|entry| (entry.clone(), Some(*fork)));
                let forked = Changes {
                    names: names.collect(),
                    nodes: edited
                        .node(*id)
                        .map(|node| (*fork, node.clone()))
                        .into_iter()
                        .collect(),
                };
                edited.apply(&forked);
            }
            edited.apply(&merged.actions);
            self.last_ino = ino;
            self.edited = Some(edited);
            self.bytes.extend(merged.bytes);
        }
        self.base.apply(theirs);
        self.head = head;
        self.intents.clear();
        Ok(Ok(()))
    }
}
