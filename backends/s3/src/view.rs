//! A tree with changes on top, without a copy of the tree; validation and difference of trees.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Changes, Content, Entry, InvalidLog, Name, Node, NodeId, ROOT, Tree};

/// A tree with changes on top.
#[derive(Clone)]
pub(crate) struct View<'a> {
    base: &'a Tree,
    /// Changed nodes; `None` is gone.
    pub(crate) nodes: BTreeMap<NodeId, Option<Node>>,
    /// Changed names; `None` is gone.
    pub(crate) names: BTreeMap<Entry, Option<NodeId>>,
    /// Changed names by node: whether it has the name.
    links: BTreeMap<NodeId, BTreeMap<Entry, bool>>,
}

impl<'a> View<'a> {
    /// The tree after `changes`.
    pub(crate) fn of(base: &'a Tree, changes: &Changes) -> Self {
        let nodes = changes.nodes.iter();
        let mut view = Self {
            base,
            nodes: nodes.map(|(id, node)| (*id, Some(node.clone()))).collect(),
            names: BTreeMap::new(),
            links: BTreeMap::new(),
        };
        for (entry, to) in &changes.names {
            view.set(entry, *to);
        }
        view.drop_nameless();
        view
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        match self.nodes.get(&id) {
            Some(node) => node.as_ref(),
            None => self.base.node(id),
        }
    }

    pub(crate) fn name(&self, entry: &Entry) -> Option<NodeId> {
        match self.names.get(entry) {
            Some(to) => *to,
            None => self.base.name(entry),
        }
    }

    pub(crate) fn set(&mut self, entry: &Entry, to: Option<NodeId>) {
        if let Some(was) = self.name(entry) {
            let links = self.links.entry(was).or_default();
            links.insert(entry.clone(), false);
        }
        if let Some(to) = to {
            let links = self.links.entry(to).or_default();
            links.insert(entry.clone(), true);
        }
        self.names.insert(entry.clone(), to);
    }

    pub(crate) fn names_of(&self, id: NodeId) -> impl Iterator<Item = &Entry> {
        let changed = self.links.get(&id);
        let is_changed = move |entry: &&Entry| changed.is_some_and(|it| it.contains_key(*entry));
        let kept = self.base.names_of(id);
        let kept = kept.filter(move |entry| !is_changed(entry));
        let given = changed.into_iter().flatten();
        kept.chain(given.filter(|(_, has)| **has).map(|(entry, _)| entry))
    }

    pub(crate) fn entry(&self, id: NodeId) -> Option<Entry> {
        self.names_of(id).next().cloned()
    }

    pub(crate) fn set_node(&mut self, id: NodeId, node: Node) {
        self.nodes.insert(id, Some(node));
    }

    /// Whether a node has no name; the root has none, and needs none.
    pub(crate) fn is_nameless(&self, id: NodeId) -> bool {
        id != ROOT && self.names_of(id).next().is_none()
    }

    pub(crate) fn children(&self, dir: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        let changed = self.names.range((dir, Name(Vec::new()))..);
        let changed = changed.take_while(move |(entry, _)| entry.0 == dir);
        let kept = self.base.children(dir);
        kept.filter(move |(name, _)| !self.names.contains_key(&(dir, (*name).clone())))
            .chain(changed.filter_map(|((_, name), to)| Some((name, (*to)?))))
    }

    /// Whether a directory is `ancestor`, or below it. A node in a circle is only below the nodes of that circle.
    pub(crate) fn is_within(&self, mut dir: NodeId, ancestor: NodeId) -> bool {
        // No path is longer than there are nodes.
        for _ in 0..=self.base.count() + self.nodes.len() {
            if dir == ancestor {
                return true;
            }
            match self.names_of(dir).next() {
                Some((above, _)) => dir = *above,
                None => break,
            }
        }
        false
    }

    /// Whether a directory is below one of `rooted`, which then has all directories between them, too.
    fn is_rooted(&self, mut dir: NodeId, rooted: &mut BTreeSet<NodeId>) -> bool {
        let mut between = BTreeSet::new();
        while !rooted.contains(&dir) {
            // What is in a circle comes round.
            if !between.insert(dir) {
                return false;
            }
            match self.names_of(dir).next() {
                Some((above, _)) => dir = *above,
                None => return false,
            }
        }
        rooted.extend(between);
        true
    }

    /// Gives a node another identity.
    pub(crate) fn identify(&mut self, from: NodeId, to: NodeId) {
        for entry in self.names_of(from).cloned().collect::<Vec<_>>() {
            self.set(&entry, Some(to));
        }
        let children = self.children(from).map(|(name, id)| (name.clone(), id));
        for (name, id) in children.collect::<Vec<_>>() {
            self.set(&(from, name.clone()), None);
            self.set(&(to, name), Some(id));
        }
        let node = self.node(from).cloned();
        self.nodes.insert(to, node);
        self.nodes.insert(from, None);
    }

    /// Removes nodes that have lost their last name.
    pub(crate) fn drop_nameless(&mut self) {
        let touched = self.nodes.keys().chain(self.links.keys());
        for id in touched.copied().collect::<BTreeSet<NodeId>>() {
            if self.is_nameless(id) {
                self.nodes.insert(id, None);
            }
        }
    }
}

/// Whether a file can have that name.
pub(crate) fn is_possible(name: &[u8]) -> bool {
    let is_short = (1..=255).contains(&name.len());
    is_short && !name.iter().any(|it| matches!(it, b'/' | 0)) && name != b"." && name != b".."
}

/// The name under which a second version stays: `plan.conflict-bob@host-17.md`.
pub fn conflict_name(name: &Name, writer: &str, number: u64, attempt: u32) -> Name {
    let again = match attempt {
        0 => String::new(),
        attempt => format!("-{attempt}"),
    };
    let writer = writer.chars().filter(|char| !matches!(char, '/' | '\0'));
    let writer: String = writer.take(32).collect();
    let mark = format!(".conflict-{writer}-{number}{again}");
    let dot = name.0.iter().rposition(|byte| *byte == b'.');
    let dot = dot.filter(|at| *at > 0).unwrap_or(name.0.len());
    let (stem, extension) = name.0.split_at(dot);
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

/// Checks that the changes leave `base` a tree: every name is in a directory and names a node, a directory has one name
/// and is not in itself, what loses its last name is empty, and no node becomes another kind of node.
/// Fails with the first violation.
pub fn validate(base: &Tree, changes: &Changes) -> Result<(), InvalidLog> {
    let invalid = |reason: String| Err(InvalidLog(reason));
    for (id, node) in &changes.nodes {
        let before = base.node(*id);
        if before.is_some_and(|before| before.is_directory() != node.is_directory()) {
            return invalid(format!("{id:?} changes its type"));
        }
        if let Some(Err(reason)) = node.content().map(Content::check) {
            return invalid(format!("file {id:?} {reason}"));
        }
    }
    let view = View::of(base, changes);
    // Directories that are known to be below the root: each is climbed from once.
    let mut rooted = BTreeSet::from([ROOT]);
    for ((dir, name), to) in &changes.names {
        if !is_possible(&name.0) {
            return invalid(format!("{name:?} is not a valid file name"));
        }
        let Some(to) = *to else { continue };
        if !view.node(*dir).is_some_and(Node::is_directory) {
            return invalid(format!("a name in {dir:?}, which is not a directory"));
        }
        let Some(node) = view.node(to) else {
            return invalid(format!("a name of {to:?}, which does not exist"));
        };
        if node.is_directory() && view.names_of(to).nth(1).is_some() {
            return invalid(format!("directory {to:?} has several names"));
        }
        if to == ROOT || (node.is_directory() && !view.is_rooted(*dir, &mut rooted)) {
            return invalid(format!("directory {to:?} is inside itself"));
        }
    }
    let mut gone = view.nodes.iter().filter(|(_, node)| node.is_none());
    match gone.find(|(id, _)| view.children(**id).next().is_some()) {
        Some((id, _)) => invalid(format!("directory {id:?} is removed, but not empty")),
        None => Ok(()),
    }
}

impl Tree {
    /// The tree of these nodes and names. Fails if they are none.
    pub fn of(changes: &Changes) -> Result<Self, InvalidLog> {
        let mut tree = Self::default();
        validate(&tree, changes)?;
        tree.apply(changes);
        Ok(tree)
    }
}

/// The changes that turn `from` into `to`.
pub fn difference(from: &Tree, to: &Tree) -> Changes {
    let Changes { mut nodes, mut names } = to.to_changes();
    nodes.retain(|id, node| from.node(*id) != Some(node));
    names.retain(|entry, id| from.name(entry) != *id);
    let gone = from.to_changes().names.into_keys();
    let gone = gone.filter(|entry| to.name(entry).is_none());
    names.extend(gone.map(|entry| (entry, None)));
    Changes { nodes, names }
}
