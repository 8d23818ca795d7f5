//! A working copy in memory, without a mount: for commands that make one commit.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use crate::merge::{ChunkBytes, MissingChunks, ReplicaError, Result};
use crate::objects::{Head, Objects};
use crate::replica::{LocalChanges, MergeWork, Replica, Writer};
use crate::session::{CommitReport, Contact, Session, SessionError};
use crate::tree::{Attributes, Body, Changes, Content, Entry, INLINE_MAX, Name, Node, NodeId, Place, ROOT, Tree};
use crate::view::difference;

/// A name on the way to a path, or the path itself, is taken by something of another kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} exists, with another type", String::from_utf8_lossy(.0))]
pub struct OccupiedPath(pub Vec<u8>);

/// The current time, in nanoseconds since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i64)
}

/// A log's newest tree, with edits that are not committed yet. After a [`SessionError::Fault`] the commit may be in the
/// log. An edit is [`OccupiedPath`] if its path, or one above it, is a directory or must be one and is not.
#[derive(Debug)]
pub struct Checkout {
    head: Head,
    base: Tree,
    /// The base with the edits; `None` without any.
    edited: Option<Tree>,
    writer: Writer,
    intents: Vec<[u8; 16]>,
    /// Content that is not committed yet, by digest of its chunks.
    bytes: ChunkBytes,
    last_ino: u64,
    /// How many names were looked up.
    lookups: u64,
    contact: Contact,
}

impl Checkout {
    /// The newest tree of the log in `objects`; `name` is the writer's name in commits.
    pub async fn open<O: Objects>(objects: &O, name: &str) -> Result<Self, SessionError> {
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|error| ReplicaError::other(error.to_string()))?;
        let mut checkout = Self {
            head: Head::default(),
            base: Tree::default(),
            edited: None,
            writer: Writer { id: u64::from_le_bytes(id), name: name.to_owned() },
            intents: Vec::new(),
            bytes: ChunkBytes::new(),
            last_ino: 1,
            lookups: 0,
            contact: Contact::default(),
        };
        checkout.join(objects).await?;
        Ok(checkout)
    }

    /// Adopts others' commits.
    pub async fn join<O: Objects>(&mut self, objects: &O) -> Result<u64, SessionError> {
        self.run(objects, async |session| session.join().await).await
    }

    /// Commits the edits, merged with others' commits.
    pub async fn commit<O: Objects>(&mut self, objects: &O) -> Result<CommitReport, SessionError> {
        self.run(objects, async |session| session.commit().await).await
    }

    async fn run<O: Objects, T>(
        &mut self,
        objects: &O,
        work: impl AsyncFnOnce(&mut Session<'_, O, Self>) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let mut contact = std::mem::take(&mut self.contact);
        let mut session = Session { objects, replica: self, now: &now, random: &random, contact: &mut contact };
        let done = work(&mut session).await;
        self.contact = contact;
        done
    }

    /// The tree with the edits.
    pub fn tree(&self) -> &Tree {
        self.edited.as_ref().unwrap_or(&self.base)
    }

    /// Gives a name to a node, which may be new or changed, or takes it.
    fn edit(&mut self, entry: Entry, to: Option<NodeId>, node: Option<Node>) {
        let edited = self.edited.get_or_insert_with(|| self.base.clone());
        edited.apply(&Changes { nodes: to.zip(node).into_iter().collect(), names: BTreeMap::from([(entry, to)]) });
    }

    /// How many names the edits have looked up: what they cost.
    pub fn lookups(&self) -> u64 {
        self.lookups
    }

    fn lookup(&mut self, entry: &Entry) -> Option<NodeId> {
        self.lookups += 1;
        self.tree().name(entry)
    }

    fn fresh(&mut self) -> NodeId {
        self.last_ino += 1;
        NodeId { writer: self.writer.id, ino: self.last_ino }
    }

    /// The directory and name of a path. Directories on the way are made: mode 0755, with the owner of the one above.
    fn entry(&mut self, path: &[u8]) -> Result<Entry, OccupiedPath> {
        let names = path.split(|byte| *byte == b'/');
        let mut names = names.filter(|name| !name.is_empty()).peekable();
        let mut dir = ROOT;
        while let Some(name) = names.next() {
            let entry = (dir, Name(name.to_vec()));
            if names.peek().is_none() {
                return Ok(entry);
            }
            dir = match self.lookup(&entry) {
                Some(id) if self.is_directory(id) => id,
                Some(_) => return Err(OccupiedPath(path.to_vec())),
                None => {
                    let id = self.fresh();
                    let node = Node { body: Body::Directory, attributes: self.new_attributes(dir, 0o755) };
                    self.edit(entry, Some(id), Some(node));
                    id
                }
            };
        }
        Err(OccupiedPath(path.to_vec()))
    }

    fn is_directory(&self, id: NodeId) -> bool {
        self.tree().node(id).is_some_and(Node::is_directory)
    }

    fn new_attributes(&self, dir: NodeId, permissions: u16) -> Attributes {
        let above = self.tree().node(dir).map(|node| &node.attributes);
        Attributes {
            permissions,
            uid: above.map_or(0, |above| above.uid),
            gid: above.map_or(0, |above| above.gid),
            ..Attributes::default()
        }
    }

    /// Gives a path this node: one of that identity, or else what is there, if it is of the same kind, or a new one.
    pub fn put(&mut self, path: &[u8], node: Node, id: Option<NodeId>) -> Result<NodeId, OccupiedPath> {
        if path.is_empty() {
            return Ok(ROOT);
        }
        let entry = self.entry(path)?;
        self.put_entry(entry, node, id)
    }

    /// Copies node `from` of `tree` and all below it to a path, as [`Checkout::put`] does; how many nodes that are. Hard
    /// links within what is copied stay links. Each name is looked up once, however deep it is nested.
    pub fn copy(&mut self, tree: &Tree, from: NodeId, path: &[u8]) -> Result<u64, OccupiedPath> {
        let mut links: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        // What is still to copy, and to where; no place for the root.
        let mut waiting = vec![(from, None)];
        if !path.is_empty() {
            waiting[0].1 = Some(self.entry(path)?);
        }
        let mut copied = 0;
        while let Some((from, to)) = waiting.pop() {
            copied += 1;
            let Some(node) = tree.node(from) else {
                continue;
            };
            let id = match to {
                Some(entry) => self.put_entry(entry, node.clone(), links.get(&from).copied())?,
                None => ROOT,
            };
            if node.is_directory() {
                let children = tree.children(from);
                waiting.extend(children.map(|(name, child)| (child, Some((id, name.clone())))));
            } else if tree.names_of(from).count() > 1 {
                links.insert(from, id);
            }
        }
        Ok(copied)
    }

    fn put_entry(&mut self, entry: Entry, mut node: Node, id: Option<NodeId>) -> Result<NodeId, OccupiedPath> {
        let there = self.lookup(&entry);
        let body = there.and_then(|id| Some(&self.tree().node(id)?.body));
        let kind = std::mem::discriminant(&node.body);
        let is_same = body.is_some_and(|body| std::mem::discriminant(body) == kind);
        let is_directory = body == Some(&Body::Directory) || node.is_directory();
        if body.is_some() && !is_same && is_directory {
            let path = self.tree().path_of(&entry);
            return Err(OccupiedPath(path.unwrap_or(entry.1.0)));
        }
        // The same bytes may be at another place in the log by now.
        if let (Some(Body::File(there)), Body::File(content)) = (body, &node.body)
            && there.same_bytes(content)
        {
            node.body = Body::File(there.clone());
        }
        let id = id.or(there.filter(|_| is_same));
        let id = id.unwrap_or_else(|| self.fresh());
        self.edit(entry, Some(id), Some(node));
        Ok(id)
    }

    /// Gives a file this content. A new file has the permissions 0644 and its directory's owner.
    pub fn write(&mut self, path: &[u8], bytes: &Bytes, mtime: i64) -> Result<(), OccupiedPath> {
        let entry = self.entry(path)?;
        let there = self.tree().name(&entry);
        let there = there.and_then(|id| self.tree().node(id));
        let attributes = match there.filter(|node| node.content().is_some()) {
            Some(node) => node.attributes.clone(),
            None => Attributes { btime: mtime, ..self.new_attributes(entry.0, 0o644) },
        };
        let (content, pieces) = Content::split(bytes);
        self.bytes.extend(pieces);
        let node = Node { body: Body::File(content), attributes: Attributes { mtime, ..attributes } };
        self.put(path, node, None).map(drop)
    }

    /// Removes the name of a file; whether there was one.
    pub fn remove(&mut self, path: &[u8]) -> bool {
        let id = self.tree().find(path);
        let is_file = id.is_some_and(|id| !self.is_directory(id));
        if is_file && let Ok(entry) = self.entry(path) {
            self.edit(entry, None, None);
        }
        is_file
    }
}

/// Fills a buffer with random bytes of the kernel.
pub fn random(buffer: &mut [u8]) {
    // `open` has asked the kernel before: it does not fail later.
    if let Err(error) = getrandom::fill(buffer) {
        tracing::error!(%error, "the kernel provides no random bytes");
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

    fn local(&mut self, nonce: [u8; 16]) -> Result<LocalChanges> {
        let Some(edited) = &self.edited else {
            return Ok(LocalChanges::default());
        };
        self.intents.push(nonce);
        let changes = difference(&self.base, edited);
        let small = changes.nodes.values().filter_map(Node::content);
        let small = small.filter(|content| content.size <= INLINE_MAX);
        let local = small.flat_map(|content| &content.chunks);
        let local = local.filter(|it| it.place == Place::Local);
        let inline = local.filter_map(|it| Some((it.hash, self.bytes.get(&it.hash)?.clone())));
        Ok(LocalChanges { inline: inline.collect(), changes, ..LocalChanges::default() })
    }

    fn read(&mut self, id: NodeId, index: usize) -> Result<Option<Bytes>> {
        let content = self.tree().node(id).and_then(Node::content);
        let chunk = content.and_then(|content| content.chunks.get(index));
        Ok(chunk.and_then(|chunk| self.bytes.get(&chunk.hash).cloned()))
    }

    fn is_unchanged(&mut self, _: NodeId) -> Result<bool> {
        Ok(true)
    }

    fn acknowledge(&mut self, head: Head, changes: &Changes, _: Option<u64>) -> Result<()> {
        self.base.apply(changes);
        self.head = head;
        self.intents.clear();
        // Every edit was made before the commit.
        self.edited = None;
        Ok(())
    }

    fn adopt(&mut self, head: Head, theirs: &Changes, merge: &mut MergeWork<'_>) -> Result<Result<(), MissingChunks>> {
        if let Some(edited) = &self.edited {
            let ours = difference(&self.base, edited);
            let mut read_ours = |id: NodeId| {
                let content = edited.node(id).and_then(Node::content);
                let bytes = content.and_then(|content| content.assemble(&self.bytes));
                Ok(bytes.map(Bytes::from))
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
                let names = edited.names_of(*id);
                let names = names.map(|entry| (entry.clone(), Some(*fork))).collect();
                let node = edited.node(*id).map(|node| (*fork, node.clone()));
                let nodes = node.into_iter().collect();
                edited.apply(&Changes { nodes, names });
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
