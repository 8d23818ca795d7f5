//! A tree with changes on top, without a copy of the tree; validation and difference of trees.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::{Changes, Entry, Invalid, Name, Node, NodeId, ROOT, Tree};

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

    /// The node of that identity.
    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        match self.nodes.get(&id) {
            Some(node) => node.as_ref(),
            None => self.base.node(id),
        }
    }

    /// What a name names.
    pub(crate) fn name(&self, entry: &Entry) -> Option<NodeId> {
        match self.names.get(entry) {
            Some(to) => *to,
            None => self.base.name(entry.0, &entry.1),
        }
    }

    /// Gives or takes a name.
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

    /// The names of a node.
    pub(crate) fn names_of(&self, id: NodeId) -> impl Iterator<Item = &Entry> {
        let changed = self.links.get(&id);
        let is_changed = move |entry: &&Entry| changed.is_some_and(|it| it.contains_key(*entry));
        let kept = self
            .base
            .names_of(id)
            .filter(move |entry| !is_changed(entry));
        let given = changed.into_iter().flatten();
        kept.chain(given.filter(|(_, has)| **has).map(|(entry, _)| entry))
    }

    /// Whether a node has no name; the root has none, and needs none.
    pub(crate) fn is_nameless(&self, id: NodeId) -> bool {
        id != ROOT && self.names_of(id).next().is_none()
    }

    /// The names in a directory.
    pub(crate) fn children(&self, dir: NodeId) -> impl Iterator<Item = (&Name, NodeId)> {
        let start = (dir, Name(Vec::new()));
        let changed = self
            .names
            .range(start..)
            .take_while(move |(entry, _)| entry.0 == dir);
        let kept = self.base.children(dir);
        kept.filter(move |(name, _)| !self.names.contains_key(&(dir, (*name).clone())))
            .chain(changed.filter_map(|((_, name), to)| Some((name, (*to)?))))
    }

    /// Whether a directory is `ancestor`, or below it. What is in a circle is only below what is in it.
    pub(crate) fn is_within(&self, mut dir: NodeId, ancestor: NodeId) -> bool {
        // No path is longer than there are nodes.
        for _ in 0..=self.base.len() + self.nodes.len() {
            if dir == ancestor {
                return true;
            }
            match self.names_of(dir).next() {
                Some((above, _)) => dir = *above,
                None => return false,
            }
        }
        false
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
        let touched: BTreeSet<NodeId> = self
            .nodes
            .keys()
            .chain(self.links.keys())
            .copied()
            .collect();
        for id in touched {
            if self.is_nameless(id) {
                self.nodes.insert(id, None);
            }
        }
    }
}

/// Whether a file can have that name.
fn is_possible(name: &Name) -> bool {
    let name = &name.0;
    (1..=255).contains(&name.len())
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
        && name != b"."
        && name != b".."
}

/// Checks that the changes leave `base` a tree: every name is in a directory and names a node, a directory has one name
/// and is not in itself, what loses its last name is empty, and no node becomes another kind of node.
///
/// # Errors
/// The first violation.
pub fn validate(base: &Tree, changes: &Changes) -> Result<(), Invalid> {
    for (id, node) in &changes.nodes {
        let before = base.node(*id);
        if before.is_some_and(|before| before.is_directory() != node.is_directory()) {
            return Err(Invalid::Kind(*id));
        }
        let lengths = node
            .content()
            .map(|content| content.chunks.iter().map(|it| u64::from(it.length)).sum());
        if lengths != node.content().map(|content| content.size) {
            return Err(Invalid::Size(*id));
        }
    }
    let view = View::of(base, changes);
    for (entry, to) in &changes.names {
        if !is_possible(&entry.1) {
            return Err(Invalid::Name);
        }
        let Some(to) = *to else { continue };
        if !view.node(entry.0).is_some_and(Node::is_directory) {
            return Err(Invalid::Parent(entry.0));
        }
        let node = view.node(to).ok_or(Invalid::Missing(to))?;
        if to == ROOT {
            return Err(Invalid::Cycle(ROOT));
        }
        if node.is_directory() {
            if view.names_of(to).nth(1).is_some() {
                return Err(Invalid::Names(to));
            }
            if !view.is_within(entry.0, ROOT) {
                return Err(Invalid::Cycle(to));
            }
        }
    }
    let mut gone = view.nodes.iter().filter(|(_, node)| node.is_none());
    match gone.find(|(id, _)| view.children(**id).next().is_some()) {
        Some((id, _)) => Err(Invalid::NotEmpty(*id)),
        None => Ok(()),
    }
}

/// What turns `from` into `to`.
pub fn difference(from: &Tree, to: &Tree) -> Changes {
    let mut changes = Changes::default();
    for (id, node) in to.nodes() {
        if from.node(id) != Some(node) {
            changes.nodes.insert(id, node.clone());
        }
    }
    let (from, to) = (from.to_changes().names, to.to_changes().names);
    for entry in from.keys().filter(|entry| !to.contains_key(*entry)) {
        changes.names.insert(entry.clone(), None);
    }
    for (entry, id) in to {
        if from.get(&entry) != Some(&id) {
            changes.names.insert(entry, id);
        }
    }
    changes
}
