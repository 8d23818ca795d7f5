//! Applies a merge to the working copy: in one transaction, under the store's lock.

use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use fuse::store::{Attr, Caller, Errno, Ino, Kind, Result, Store, StoreError, Timestamp, XattrMode};
use s3::merge::MergeResult;
use s3::tree::{Body, CHUNK, Chunk, Content, Node, NodeId, Place, Tree};
use sqlite::tables::{Db, content, names, nodes, note_copied, xattrs};
use sqlite::{HEAD, SqliteStore};

use crate::tables::{self, Placeholders};

/// The changes of another writer's commit, for the kernel's caches and for the work after the transaction.
#[derive(Debug, Default)]
pub(super) struct AdoptedChanges {
    /// Inodes whose attributes or content changed.
    pub(super) inodes: BTreeSet<Ino>,
    /// Names that came, went, or name something else.
    pub(super) names: BTreeSet<(Ino, Vec<u8>)>,
    /// Inodes that have lost their last name.
    pub(super) orphans: BTreeSet<Ino>,
    /// Conflict names that were given.
    pub(super) conflicts: u64,
    /// Files whose tail is shorter now, and its length.
    cut: Vec<(Ino, u64)>,
    /// Tails are in the tables yet.
    has_tails: bool,
    /// Tails get other bytes when their missing chunks are fetched.
    replaces_tails: bool,
    /// Files that may have missing chunks now, or none any more; and whether they have, where that is known.
    placeholders: BTreeMap<Ino, Option<bool>>,
}

impl AdoptedChanges {
    /// Adds the changes of a later commit.
    pub(super) fn add(&mut self, later: Self) {
        self.inodes.extend(later.inodes);
        self.names.extend(later.names);
        self.orphans.extend(later.orphans);
        self.conflicts += later.conflicts;
    }

    /// Writes and cuts tails, and notes placeholders: after the transaction is committed, and before the lock ends.
    ///
    /// # Errors
    /// If a tail cannot be written; the next mount tries again.
    pub(super) fn finish(&mut self, store: &SqliteStore, placeholders: &Placeholders, db: &Db) -> Result<()> {
        if self.has_tails {
            tables::write_tails(db, || store.settle())?;
        } else if self.replaces_tails {
            // The database that a power cut brings back must know that they are not the old bytes any more.
            store.settle()?;
        }
        for (ino, length) in self.cut.drain(..) {
            db.discard_end(ino, length);
        }
        if self.placeholders.is_empty() {
            return Ok(());
        }
        let mut known = placeholders.write();
        for (ino, is_one) in std::mem::take(&mut self.placeholders) {
            // Taken for one where that cannot be told: a read then asks the table.
            if is_one.unwrap_or_else(|| tables::is_placeholder(db, ino).unwrap_or(true)) {
                known.insert(ino)
            } else {
                known.remove(&ino)
            };
        }
        Ok(())
    }
}

struct Adoption<'a> {
    db: &'a Db,
    store: &'a SqliteStore,
    caller: &'a Caller,
    /// With the commit in it.
    base: &'a Tree,
    /// The content that named files have now.
    before: &'a BTreeMap<NodeId, Content>,
    /// Nodes that had no name here, or no inode.
    returned: BTreeSet<NodeId>,
    /// Inodes that this makes.
    made: HashSet<Ino>,
    /// The inodes of the nodes that were asked for so far.
    inos: RefCell<HashMap<NodeId, Ino>>,
    merged: &'a MergeResult,
    out: AdoptedChanges,
}

/// Applies a merge to the working copy. `base` contains the merged commit already; differences from it are journalled.
pub(super) fn adopt(
    db: &Db,
    store: &SqliteStore,
    caller: &Caller,
    base: &Tree,
    before: &BTreeMap<NodeId, Content>,
    merged: &MergeResult,
) -> Result<AdoptedChanges> {
    let mut adopting = Adoption {
        db,
        store,
        caller,
        base,
        before,
        returned: BTreeSet::new(),
        made: HashSet::new(),
        inos: RefCell::default(),
        merged,
        out: AdoptedChanges::default(),
    };
    tables::adopting(db, |_| adopting.run())?;
    adopting.journal()?;
    adopting.out.conflicts = merged.conflicts.len() as u64;
    Ok(adopting.out)
}

impl Adoption<'_> {
    fn run(&mut self) -> Result<()> {
        for (id, fork) in &self.merged.forks {
            if let Some(ino) = tables::ino_of(self.db, *id)? {
                // A file without a name may still have it.
                tables::forget_identity(self.db, *fork)?;
                tables::identify(self.db, ino, *fork)?;
            }
        }
        for (id, node) in &self.merged.actions.nodes {
            self.provide(*id, node)?;
        }
        self.names()?;
        for (id, node) in &self.merged.actions.nodes {
            let ino = self.ino(*id)?;
            if let Body::File(to) = &node.body {
                let before = self.before.get(id);
                self.content(ino, before.filter(|_| !self.returned.contains(id)), to)?;
            }
            self.attributes(ino, node)?;
            self.out.inodes.insert(ino);
        }
        Ok(())
    }

    /// The inode of a node, if it has one.
    fn ino_of(&self, id: NodeId) -> Result<Option<Ino>> {
        let known = self.inos.borrow().get(&id).copied();
        if known.is_some() {
            return Ok(known);
        }
        let found = tables::ino_of(self.db, id)?;
        if let Some(ino) = found {
            self.inos.borrow_mut().insert(id, ino);
        }
        Ok(found)
    }

    fn ino(&self, id: NodeId) -> Result<Ino> {
        self.ino_of(id)?.ok_or_else(|| StoreError::storage(Errno::IO, format!("the cache does not know node {id:?}")))
    }

    /// Makes sure that a node has an inode. One that was unlinked here returns; the journal refers to its number.
    fn provide(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let known = self.ino_of(id)?;
        let found = match known {
            Some(ino) => nodes::find(self.db, ino)?,
            None => None,
        };
        match found {
            Some(attr) if attr.nlink > 0 => return Ok(()),
            Some(mut attr) if attr.kind == Kind::Directory => {
                attr.nlink = 2;
                nodes::update(self.db, &attr)?;
            }
            Some(_) => {}
            None => {
                let ino = known.map_or_else(|| self.store.new_ino(), Ok)?;
                self.make(ino, id, node)?;
                self.made.insert(ino);
                self.inos.borrow_mut().insert(id, ino);
            }
        }
        self.returned.insert(id);
        Ok(())
    }

    /// An inode without a name and without content.
    fn make(&self, ino: Ino, id: NodeId, node: &Node) -> Result<()> {
        let kind = match &node.body {
            Body::Directory => Kind::Directory,
            Body::File(_) => Kind::File,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(bits) => {
                Kind::from_mode(*bits).ok_or_else(|| StoreError::storage(Errno::IO, "a node of an unknown kind"))?
            }
        };
        let target: &[u8] = match &node.body {
            Body::Symlink(target) => target,
            _ => &[],
        };
        let attr = Attr {
            ino,
            kind,
            permissions: node.attributes.permissions,
            nlink: if kind == Kind::Directory { 2 } else { 0 },
            uid: node.attributes.uid,
            gid: node.attributes.gid,
            rdev: node.attributes.rdev,
            size: target.len() as u64,
            blocks: 0,
            atime: self.caller.now,
            mtime: self.caller.now,
            ctime: self.caller.now,
            btime: Timestamp(node.attributes.btime),
        };
        let parent = (kind == Kind::Directory).then_some(fuse::store::ROOT);
        nodes::insert(self.db, &attr, parent, target)?;
        tables::identify(self.db, ino, id)
    }

    /// Takes all names that change, then gives the new ones: directories may swap places.
    fn names(&mut self) -> Result<()> {
        let mut taken = BTreeSet::new();
        let mut is_empty: HashMap<Ino, bool> = HashMap::new();
        for (dir, name) in self.merged.actions.names.keys() {
            let Some(parent) = self.ino_of(*dir)? else {
                continue;
            };
            let is_empty = match is_empty.entry(parent) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(unknown) => *unknown.insert(names::is_empty(self.db, parent)?),
            };
            if is_empty {
                continue;
            }
            let Some(found) = names::find(self.db, parent, &name.0)? else {
                continue;
            };
            names::remove(self.db, parent, &name.0, found)?;
            let mut attr = nodes::get(self.db, found.ino)?;
            let is_directory = attr.kind == Kind::Directory;
            if !is_directory {
                attr.nlink = attr.nlink.saturating_sub(1);
                nodes::update(self.db, &attr)?;
            }
            nodes::names_changed(self.db, parent, self.caller, -i32::from(is_directory))?;
            taken.insert(found.ino);
            self.out.inodes.extend([parent, found.ino]);
            self.out.names.insert((parent, name.0.clone()));
        }
        let mut given = BTreeSet::new();
        for ((dir, name), to) in &self.merged.actions.names {
            let Some(to) = to else { continue };
            let (parent, ino) = (self.ino(*dir)?, self.ino(*to)?);
            let mut attr = nodes::get(self.db, ino)?;
            let is_directory = attr.kind == Kind::Directory;
            names::insert(self.db, parent, &name.0, ino, attr.kind)?;
            if is_directory {
                nodes::set_parent(self.db, ino, parent)?;
            } else {
                attr.nlink += 1;
                attr.ctime = self.caller.now;
                nodes::update(self.db, &attr)?;
            }
            nodes::names_changed(self.db, parent, self.caller, i32::from(is_directory))?;
            given.insert(ino);
            self.out.inodes.extend([parent, ino]);
            self.out.names.insert((parent, name.0.clone()));
        }
        for ino in taken.difference(&given) {
            let mut attr = nodes::get(self.db, *ino)?;
            if attr.kind == Kind::Directory {
                attr.nlink = 0;
                nodes::update(self.db, &attr)?;
            }
            if attr.nlink == 0 {
                self.out.orphans.insert(*ino);
            }
        }
        Ok(())
    }

    /// Gives a file the content `to`. Chunks whose bytes are not at hand become placeholders; so do all that reach past
    /// the head of a file, because a tail is not part of the transaction.
    fn content(&mut self, ino: Ino, before: Option<&Content>, to: &Content) -> Result<()> {
        if before.is_some_and(|before| before.same_bytes(to)) {
            let mut chunks = (0..).zip(&to.chunks);
            return chunks.try_for_each(|(at, chunk)| tables::move_missing(self.db, ino, at, chunk));
        }
        // A chunk's place follows from its index: a log with other lengths would write past the file.
        let is_whole =
            |(at, chunk): (u64, &Chunk)| u64::from(chunk.length) == CHUNK.min(to.size.saturating_sub(at * CHUNK));
        if to.chunks.len() as u64 != to.size.div_ceil(CHUNK) || !(0..).zip(&to.chunks).all(is_whole) {
            let reason = format!("the log is damaged: the chunks of inode {ino} do not make a file");
            return Err(StoreError::storage(Errno::IO, reason));
        }
        let mut attr = nodes::get_file(self.db, ino)?;
        let (old_size, old_tail) = (attr.size, content::tail_length(attr.size));
        content::truncate(self.db, &mut attr, to.size)?;
        if to.chunks.iter().all(|chunk| chunk.place != Place::Local) {
            note_copied(self.db, [ino])?;
        }
        nodes::update(self.db, &attr)?;
        let is_made = self.made.contains(&ino);
        let mut is_placeholder = false;
        let clear = |at, and_after| if is_made { Ok(()) } else { tables::clear_missing(self.db, ino, at, and_after) };
        clear(to.size.div_ceil(CHUNK), true)?;
        for (at, chunk) in to.chunks.iter().enumerate() {
            let is_same = before
                .and_then(|before| before.chunks.get(at))
                .is_some_and(|old| old.hash == chunk.hash && old.length == chunk.length);
            let at = at as u64;
            if is_same {
                tables::move_missing(self.db, ino, at, chunk)?;
                continue;
            }
            match self.merged.bytes.get(&chunk.hash) {
                Some(bytes) if to.size <= HEAD => {
                    content::write(self.db, self.caller, ino, at * CHUNK, bytes)?;
                    clear(at, false)?;
                }
                Some(bytes) if chunk.place == Place::Local => {
                    // Merged bytes. What belongs into the tail goes there after the transaction.
                    let start = at * CHUNK;
                    let in_head = HEAD.saturating_sub(start).min(bytes.len() as u64) as usize;
                    let (head, tail) = bytes.split_at(in_head);
                    if !head.is_empty() {
                        content::write(self.db, self.caller, ino, start, head)?;
                    }
                    tables::set_tail(self.db, ino, start.saturating_sub(HEAD), tail)?;
                    clear(at, false)?;
                    self.out.has_tails = true;
                }
                _ if chunk.place == Place::Hole && at * CHUNK >= old_size => clear(at, false)?,
                _ => {
                    is_placeholder = true;
                    tables::set_missing(self.db, ino, at, chunk)?;
                    self.out.replaces_tails |= old_tail > 0;
                }
            }
        }
        let tail = content::tail_length(to.size);
        if tail < old_tail {
            self.out.cut.push((ino, tail));
        }
        let is_placeholder = is_made.then_some(is_placeholder);
        self.out.placeholders.insert(ino, is_placeholder);
        Ok(())
    }

    fn attributes(&self, ino: Ino, node: &Node) -> Result<()> {
        let mut attr = nodes::get(self.db, ino)?;
        let to = &node.attributes;
        attr.permissions = to.permissions;
        (attr.uid, attr.gid) = (to.uid, to.gid);
        if attr.kind != Kind::Directory {
            attr.atime = Timestamp(to.atime);
            attr.mtime = Timestamp(to.mtime);
        }
        attr.ctime = self.caller.now;
        if (attr.btime.0, attr.rdev) != (to.btime, to.rdev) {
            // Only a merge of two files that both hosts made changes these.
            (attr.btime, attr.rdev) = (Timestamp(to.btime), to.rdev);
            nodes::set_origin(self.db, &attr)?;
        }
        nodes::update(self.db, &attr)?;
        let may_have = self.store.may_have_xattrs() && !self.made.contains(&ino);
        let has_none = !may_have || xattrs::list(self.db, ino)?.is_empty();
        if has_none && to.xattrs.is_empty() {
            return Ok(());
        }
        self.store.expect_xattrs();
        xattrs::clear(self.db, ino, ino)?;
        for (name, value) in &to.xattrs {
            xattrs::set(self.db, self.caller, ino, &name.0, value, XattrMode::Set)?;
        }
        Ok(())
    }

    /// Journals the merged nodes and names that the base does not have.
    fn journal(&self) -> Result<()> {
        for (id, node) in &self.merged.actions.nodes {
            if self.base.node(*id) != Some(node) {
                tables::journal_inode(self.db, self.ino(*id)?)?;
            }
        }
        for (_, fork) in &self.merged.forks {
            if let Some(ino) = tables::ino_of(self.db, *fork)? {
                tables::journal_inode(self.db, ino)?;
            }
        }
        for (entry, to) in &self.merged.actions.names {
            if self.base.name(entry) != *to
                && let Some(parent) = tables::ino_of(self.db, entry.0)?
            {
                tables::journal_name(self.db, parent, &entry.1.0)?;
            }
        }
        Ok(())
    }
}

/// Writes the bytes of a missing chunk, which stays noted as missing, into its file, whose other attributes stay.
pub(super) fn fill(db: &Db, owner: &Caller, ino: Ino, (at, chunk): (u64, &Chunk), bytes: &[u8]) -> Result<()> {
    tables::adopting(db, |db| {
        let attr = nodes::get_file(db, ino)?;
        let (start, mut filled) = (at * CHUNK, attr);
        match chunk.place {
            Place::Hole => content::punch(db, &mut filled, start, u64::from(chunk.length))?,
            _ => {
                content::write(db, owner, ino, start, bytes)?;
                filled = nodes::get_file(db, ino)?;
            }
        }
        let blocks = filled.blocks;
        nodes::update(db, &Attr { blocks, ..attr })
    })
}
