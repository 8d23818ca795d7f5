//! File operations on a tree with bytes, as a mount's callers do them. Every piece of content has a token, `[writer-n-check]`,
//! so that a test can ask what became of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use s3::tree::{Attributes, Body, Changes, Chunk, Content, Entry, Hash, Name, Node, NodeId, Place, ROOT, Tree};

thread_local! {
    /// All bytes that were ever made in this history: what a test knows, not what a host has.
    static ORACLE: RefCell<HashMap<Hash, Bytes>> = RefCell::new(HashMap::new());
}

/// Forgets the bytes of the last history.
pub fn forget() {
    ORACLE.with_borrow_mut(HashMap::clear);
}

/// The bytes of a chunk, wherever they are.
pub fn oracle(hash: &Hash) -> Bytes {
    ORACLE.with_borrow(|known| known[hash].clone())
}

/// Notes bytes for [`oracle`].
pub fn note(hash: Hash, bytes: &Bytes) {
    ORACLE.with_borrow_mut(|known| {
        known.entry(hash).or_insert_with(|| bytes.clone());
    });
}

/// The bytes of a file, wherever they are.
pub fn whole(content: &Content) -> Vec<u8> {
    content.chunks.iter().flat_map(|chunk| oracle(&chunk.hash)).collect()
}

/// A token. Its last digits tell a torn one, which is half of one and half of another.
fn token(writer: u64, number: u64) -> String {
    let check = (writer << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
    format!("{writer:x}-{number}-{check:04x}")
}

/// The tokens in some bytes, with repetitions.
pub fn tokens_in(bytes: &[u8]) -> Vec<String> {
    let parts = bytes.split(|byte| *byte == b'[').skip(1);
    let tokens = parts.filter_map(|part| {
        let end = part.iter().position(|byte| *byte == b']')?;
        let text = std::str::from_utf8(&part[..end]).ok()?;
        let (writer, rest) = text.split_once('-')?;
        let (number, _) = rest.split_once('-')?;
        let writer = u64::from_str_radix(writer, 16).ok()?;
        (token(writer, number.parse().ok()?) == text).then(|| text.to_owned())
    });
    tokens.collect()
}

/// The tokens of all files in a tree.
pub fn tokens_of(tree: &Tree) -> BTreeSet<String> {
    let contents = tree.nodes().filter_map(|(_, node)| node.content());
    contents.flat_map(|content| tokens_in(&whole(content))).collect()
}

/// A tree as text: paths, identities, tokens.
pub fn show(tree: &Tree) -> String {
    let lines = tree.to_changes().names.into_iter().map(|((dir, name), id)| {
        let id = id.expect("a tree has no removed names");
        let path = tree.path(dir).map(|path| String::from_utf8_lossy(&path).into_owned());
        let name = String::from_utf8_lossy(&name.0).into_owned();
        let tokens = tree.node(id).and_then(Node::content).map(|content| tokens_in(&whole(content)));
        format!("{path:?}/{name} {:x}-{} {tokens:?}", id.writer, id.ino)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Whether two trees are equal but for the places of chunks and how content is cut into them.
pub fn is_equal(one: &Tree, other: &Tree) -> bool {
    let plain = |tree: &Tree| {
        let mut all = tree.to_changes();
        for node in all.nodes.values_mut() {
            if let Body::File(content) = &mut node.body {
                content.chunks = vec![Chunk { hash: Hash::of(&whole(content)), length: 0, place: Place::Local }];
            }
        }
        all
    };
    plain(one) == plain(other)
}

/// The name of the file that every host appends to, and does nothing else with.
pub const JOURNAL: &str = "journal.md";

/// A working copy's files.
#[derive(Clone)]
pub struct Files {
    /// The tree.
    pub tree: Tree,
    /// The bytes of chunks that are at hand.
    pub bytes: BTreeMap<Hash, Bytes>,
    /// The host that makes nodes and tokens now.
    pub writer: u64,
    /// The next inode number, which is also the next token's.
    pub next: u64,
    /// The tokens that operations here have overwritten or deleted.
    pub destroyed: BTreeSet<String>,
    /// Lines that were appended to [`JOURNAL`].
    pub appended: BTreeSet<String>,
    /// Bytes in a chunk.
    pub chunk: usize,
    /// Bytes of padding in a large file.
    pub large: usize,
}

impl Files {
    /// No files.
    pub fn new(writer: u64, chunk: usize, large: usize) -> Self {
        Self {
            tree: Tree::default(),
            bytes: BTreeMap::new(),
            writer,
            next: 2,
            destroyed: BTreeSet::new(),
            appended: BTreeSet::new(),
            chunk,
            large,
        }
    }

    /// A new identity.
    pub fn fresh(&mut self) -> NodeId {
        self.next += 1;
        NodeId { writer: self.writer, ino: self.next }
    }

    fn token(&mut self) -> String {
        self.next += 1;
        token(self.writer, self.next)
    }

    /// A line with a token of its own.
    fn line(&mut self, random: u32) -> Vec<u8> {
        let token = self.token();
        match random % 16 {
            0 => format!("[{token}] {}\n", "x".repeat(self.large)).into_bytes(),
            1 => [b"\xff[", token.as_bytes(), b"]\n"].concat(),
            2 => format!("[{token}]").into_bytes(),
            _ => format!("[{token}]\n").into_bytes(),
        }
    }

    /// The bytes of a file, if they are at hand.
    pub fn read(&self, content: &Content) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(content.size as usize);
        for chunk in &content.chunks {
            bytes.extend_from_slice(self.bytes.get(&chunk.hash)?);
        }
        Some(bytes)
    }

    /// The content of `bytes`, which are at hand from now on.
    pub fn content(&mut self, bytes: &[u8]) -> Content {
        let mut chunks = Vec::new();
        for piece in bytes.chunks(self.chunk) {
            let (hash, piece) = (Hash::of(piece), Bytes::copy_from_slice(piece));
            note(hash, &piece);
            chunks.push(Chunk { hash, length: piece.len() as u32, place: Place::Local });
            self.bytes.insert(hash, piece);
        }
        Content { size: bytes.len() as u64, chunks }
    }

    fn node(&mut self, body: Body) -> Node {
        let attributes = Attributes {
            permissions: 0o644,
            mtime: if body == Body::Directory { 0 } else { self.next as i64 },
            ..Attributes::default()
        };
        Node { body, attributes }
    }

    fn journal(&self) -> Option<NodeId> {
        self.tree.find(JOURNAL.as_bytes())
    }

    fn files(&self) -> Vec<(NodeId, Content)> {
        let journal = self.journal();
        let files = self.tree.nodes().filter(|(id, _)| Some(*id) != journal);
        files.filter_map(|(id, node)| Some((id, node.content()?.clone()))).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        let names = self.tree.to_changes().names;
        names.into_keys().filter(|(_, name)| name.0 != JOURNAL.as_bytes()).collect()
    }

    /// An entry that may exist: few names, so that writers meet.
    fn target(&self, random: u32) -> Entry {
        let dirs: Vec<NodeId> = self.tree.nodes().filter(|(_, node)| node.is_directory()).map(|(id, _)| id).collect();
        let dir = dirs[(random / 8) as usize % dirs.len()];
        let name = ["a.md", "b", "c.txt", "d", "e.rs", "f.md", "g", "h"][random as usize % 8];
        (dir, Name(name.as_bytes().to_vec()))
    }

    /// Notes that an operation replaces `before` by `after`. A token that appears twice, as after a snapshot, is
    /// destroyed by two writers that each replace one.
    fn destroy(&mut self, before: &Content, after: &[u8]) {
        let (was, kept) = (tokens_in(&whole(before)), tokens_in(after));
        let times = |all: &[String], token: &String| all.iter().filter(|it| *it == token).count();
        let gone = was.iter().filter(|it| times(&kept, it) < times(&was, it));
        self.destroyed.extend(gone.cloned());
    }

    fn apply(&mut self, changes: &Changes) {
        s3::merge::validate(&self.tree, changes).expect("an operation that leaves a tree");
        for (entry, to) in &changes.names {
            let Some(was) = self.tree.name(entry).filter(|was| Some(*was) != *to) else {
                continue;
            };
            let is_last = self.tree.names_of(was).all(|name| changes.names.contains_key(name))
                && !changes.names.values().any(|to| *to == Some(was));
            if let (true, Some(content)) = (is_last, self.tree.node(was).and_then(Node::content).cloned()) {
                // The node that takes its place may have its content.
                let after = to.and_then(|to| changes.nodes.get(&to)?.content().map(whole));
                self.destroy(&content, &after.unwrap_or_default());
            }
        }
        self.tree.apply(changes);
    }

    fn write(&mut self, id: NodeId, bytes: &[u8]) {
        let Some(mut node) = self.tree.node(id).cloned() else {
            return;
        };
        let before = node.content().cloned().unwrap_or_default();
        self.destroy(&before, bytes);
        node.body = Body::File(self.content(bytes));
        self.next += 1;
        node.attributes.mtime = self.next as i64;
        self.tree.apply(&Changes { nodes: BTreeMap::from([(id, node)]), names: BTreeMap::new() });
    }

    fn give(&mut self, entry: Entry, body: Body) {
        let (id, node) = (self.fresh(), self.node(body));
        self.apply(&Changes { nodes: BTreeMap::from([(id, node)]), names: BTreeMap::from([(entry, Some(id))]) });
    }

    /// Appends a line to the journal, which is made if there is none.
    pub fn append_to_journal(&mut self) {
        let token = self.token();
        let line = format!("[{token}]\n");
        match self.journal() {
            Some(id) => {
                let content = self.tree.node(id).and_then(Node::content).cloned().unwrap_or_default();
                let Some(mut bytes) = self.read(&content) else {
                    return;
                };
                bytes.extend(line.bytes());
                self.write(id, &bytes);
            }
            None => {
                let content = self.content(line.as_bytes());
                self.give((ROOT, Name(JOURNAL.into())), Body::File(content));
            }
        }
        self.appended.insert(token);
    }

    /// Edits some text: a line added at the end or elsewhere, or one replaced.
    fn edited(&mut self, bytes: &[u8], [how, at]: [u32; 2]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let line = self.line(how / 4);
        let at = at as usize % lines.len().max(1);
        match how % 4 {
            _ if lines.is_empty() => lines.push(&line),
            0 => lines[at] = &line,
            1 => lines.insert(at, &line),
            _ => lines.push(&line),
        }
        lines.concat()
    }

    /// Removes an entry and all below it.
    fn remove(&mut self, entry: &Entry) {
        let Some(id) = self.tree.name(entry) else {
            return;
        };
        let children: Vec<Name> = self.tree.children(id).map(|(name, _)| name.clone()).collect();
        for name in children {
            self.remove(&(id, name));
        }
        self.apply(&Changes { nodes: BTreeMap::new(), names: BTreeMap::from([(entry.clone(), None)]) });
    }

    fn is_within(&self, mut dir: NodeId, ancestor: NodeId) -> bool {
        loop {
            match self.tree.names_of(dir).next() {
                _ if dir == ancestor => return true,
                Some((above, _)) => dir = *above,
                None => return false,
            }
        }
    }

    fn rename(&mut self, from: Entry, to: Entry) {
        let Some(id) = self.tree.name(&from) else {
            return;
        };
        let replaced = self.tree.name(&to);
        let is_directory = self.tree.node(id).is_some_and(Node::is_directory);
        let fits = replaced.is_none_or(|replaced| {
            let is_empty = self.tree.children(replaced).next().is_none();
            replaced != id && self.tree.node(replaced).is_some_and(|it| it.is_directory() == is_directory && is_empty)
        });
        if fits && !(is_directory && self.is_within(to.0, id)) {
            self.apply(&Changes { nodes: BTreeMap::new(), names: BTreeMap::from([(from, None), (to, Some(id))]) });
        }
    }

    /// One operation, chosen by random numbers. One that a file system would refuse, or that needs bytes which are not at
    /// hand, does nothing.
    pub fn act(&mut self, [what, one, two, three]: [u32; 4]) {
        let (files, entries) = (self.files(), self.entries());
        let file = (!files.is_empty()).then(|| files[one as usize % files.len()].clone());
        let entry = (!entries.is_empty()).then(|| entries[one as usize % entries.len()].clone());
        match (what % 20, file, entry) {
            (0..=3, ..) => {
                let target = self.target(one);
                let line = self.line(two);
                match self.tree.name(&target) {
                    None => {
                        let content = self.content(&line);
                        self.give(target, Body::File(content));
                    }
                    Some(id) if self.tree.node(id).is_some_and(|it| it.content().is_some()) => {
                        self.write(id, &line);
                    }
                    Some(_) => {}
                }
            }
            (4..=8, Some((id, content)), _) => {
                if let Some(bytes) = self.read(&content) {
                    let bytes = self.edited(&bytes, [two, three]);
                    self.write(id, &bytes);
                }
            }
            (9 | 10, Some((id, content)), _) => {
                // As editors save: a new file takes the place of the old one.
                let entry = self.tree.names_of(id).next().cloned();
                if let (Some(bytes), Some(entry)) = (self.read(&content), entry) {
                    let bytes = self.edited(&bytes, [two, three]);
                    let content = self.content(&bytes);
                    self.give(entry, Body::File(content));
                }
            }
            (11..=13, _, Some(from)) => {
                let to = self.target(two);
                self.rename(from, to);
            }
            (14, _, Some(entry)) => self.remove(&entry),
            (15 | 16, ..) => {
                let target = self.target(one);
                if self.tree.name(&target).is_none() {
                    self.give(target, Body::Directory);
                }
            }
            (17, Some((id, _)), _) => {
                let target = self.target(two);
                if self.tree.name(&target).is_none() {
                    self.apply(&Changes { nodes: BTreeMap::new(), names: BTreeMap::from([(target, Some(id))]) });
                }
            }
            (18, _, Some(entry)) => {
                let id = self.tree.name(&entry);
                if let Some((id, mut node)) = id.and_then(|id| Some((id, self.tree.node(id)?.clone()))) {
                    match two % 3 {
                        0 => node.attributes.permissions = (three % 0o1000) as u16,
                        1 => node.attributes.uid = three % 4,
                        _ => {
                            let value = three.to_le_bytes().to_vec().into();
                            node.attributes.xattrs.insert(Name(vec![b'u', (three % 3) as u8]), value);
                        }
                    }
                    self.tree.apply(&Changes { nodes: BTreeMap::from([(id, node)]), names: BTreeMap::new() });
                }
            }
            (19, ..) => {
                let target = self.target(one);
                if self.tree.name(&target).is_none() {
                    let body = match two % 2 {
                        0 => Body::Symlink(format!("to-{}", three % 3).into_bytes()),
                        _ => Body::Special(0o010_000),
                    };
                    self.give(target, body);
                }
            }
            _ => {}
        }
    }
}
