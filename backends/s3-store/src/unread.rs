//! Versions of files that came from another host, and that no program on this host has read yet.
//!
//! A program that adds a line reads a file and writes all of it back. The kernel does not tell a file system that the two
//! calls belong together. If a commit of another host is adopted between them, the write overwrites a version that the
//! program has not seen. So a change that would destroy bytes of such a version first keeps it under a conflict name.
//!
//! A READ proves nothing before the kernel has asked for the new size: it cuts the bytes of the new version to the length
//! of the old one.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::store::{Attr, Caller, Ino, Kind, Result, Timestamp};
use parking_lot::Mutex;
use s3::merge::{ChunkBytes, MergeResult, conflict_name};
use s3::tree::{Changes, Chunk, Content, Entry, Name, Node, NodeId, Place, ROOT, Tree};
use sqlite::tables::{Db, names, nodes};

use crate::adopt::adopt;
use crate::invalidation::StaleEntries;
use crate::tables;
use crate::{Inner, S3Store};

/// How long an edit may have been in progress when a version of another host arrived. A later overwrite is taken for one
/// that wants to replace whatever is there.
const EDIT: Duration = Duration::from_secs(10);

/// A version that has arrived.
#[derive(Clone, Debug)]
struct Version {
    at: Instant,
    node: Node,
    /// Its merged bytes, which are not in the bucket yet.
    bytes: ChunkBytes,
    place: Entry,
    /// The commit that it came with.
    number: u64,
    /// The kernel has asked for its size.
    is_sized: bool,
}

/// Versions that have arrived in a transaction.
#[derive(Debug, Default)]
pub(super) struct ArrivedVersions(Vec<(Ino, Version)>);

/// The versions that no program has read yet, by inode.
#[derive(Debug)]
pub(super) struct UnreadVersions {
    /// The session, which names the conflict files.
    writer: u64,
    versions: Mutex<HashMap<Ino, Version>>,
}

impl UnreadVersions {
    pub(super) fn new(writer: u64) -> Self {
        Self { writer, versions: Mutex::default() }
    }

    /// The versions that a merge brings: files with other content than `before`, and names that name another file.
    /// `base` contains the merged commit.
    ///
    /// # Errors
    /// If the tables cannot be read.
    pub(super) fn arrived(
        db: &Db,
        base: &Tree,
        before: &BTreeMap<NodeId, Content>,
        merged: &MergeResult,
        number: u64,
    ) -> Result<ArrivedVersions> {
        let mut arrived = ArrivedVersions::default();
        let given = &merged.actions.names;
        let places: HashMap<NodeId, &Entry> = given.iter().filter_map(|(entry, to)| Some(((*to)?, entry))).collect();
        let changed = merged.actions.nodes.iter().filter(|(id, node)| {
            let content = node.content();
            content.is_some_and(|it| before.get(*id).is_none_or(|was| !was.same_bytes(it)))
        });
        // A file that only got a name stays as the base has it, or it is a version of this host.
        let moved = places.keys().filter_map(|id| {
            let is_changed = merged.actions.nodes.contains_key(id);
            let node = base.node(*id).filter(|_| !is_changed)?;
            Some((id, node))
        });
        for (id, node) in changed.chain(moved) {
            let Some(content) = node.content().filter(|content| content.size > 0) else {
                continue;
            };
            let place = places.get(id).copied();
            let place = place.or_else(|| base.names_of(*id).next());
            let (Some(place), Some(ino)) = (place, tables::ino_of(db, *id)?) else {
                continue;
            };
            let local = content.chunks.iter();
            let local = local.filter(|chunk| chunk.place == Place::Local);
            let bytes = |chunk: &Chunk| Some((chunk.hash, merged.bytes.get(&chunk.hash)?.clone()));
            let Some(bytes) = local.map(bytes).collect() else {
                continue;
            };
            let version = Version {
                at: Instant::now(),
                node: node.clone(),
                bytes,
                place: place.clone(),
                number,
                is_sized: false,
            };
            arrived.0.push((ino, version));
        }
        Ok(arrived)
    }

    /// Notes versions: after their transaction is committed, and before the store's lock ends.
    pub(super) fn note(&self, arrived: ArrivedVersions) {
        let mut versions = self.versions.lock();
        versions.retain(|_, version| version.at.elapsed() < EDIT);
        versions.extend(arrived.0);
    }

    /// Forgets versions that no edit in progress can overwrite any more.
    pub(super) fn forget_old(&self) {
        self.note(ArrivedVersions::default());
    }

    /// The kernel gets these attributes. Those of before the version arrived have another size, or the same, which cuts
    /// nothing.
    pub(super) fn show(&self, attr: &Attr) {
        if let Some(version) = self.versions.lock().get_mut(&attr.ino) {
            version.is_sized |= version.node.content().is_some_and(|it| it.size == attr.size);
        }
    }

    /// A program reads the file. The caller holds the store's lock.
    pub(super) fn read(&self, ino: Ino) {
        let mut versions = self.versions.lock();
        if versions.get(&ino).is_some_and(|version| version.is_sized) {
            versions.remove(&ino);
        }
    }

    fn of(&self, ino: Ino) -> Option<Version> {
        let versions = self.versions.lock();
        let version = versions.get(&ino)?;
        (version.at.elapsed() < EDIT).then(|| version.clone())
    }
}

impl S3Store {
    /// Keeps the version that a change of a file from byte `from` on would destroy unread, under a conflict name. `db` is
    /// the store's lock, which the caller holds until the change is made.
    ///
    /// # Errors
    /// If the version cannot be kept: then the change must not be made.
    pub(super) fn keep_unread(&self, db: &Db, ino: Ino, from: u64) -> Result<()> {
        let inner = &self.inner;
        let Some(version) = inner.unread.of(ino) else {
            return Ok(());
        };
        let attr = nodes::find(db, ino)?;
        if attr.is_none_or(|attr| attr.nlink == 0 || attr.size <= from) {
            return Ok(());
        }
        inner.keep(db, version)?;
        inner.unread.versions.lock().remove(&ino);
        Ok(())
    }

    /// As [`S3Store::keep_unread`], for a file over whose name another is renamed.
    ///
    /// # Errors
    /// As there.
    pub(super) fn keep_replaced(
        &self,
        db: &Db,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
    ) -> Result<()> {
        let there = names::find(db, to, to_name)?;
        match (names::find(db, from, from_name)?, there) {
            // A rename of one link over another of the same file does nothing.
            (Some(moved), Some(there)) if moved.ino != there.ino => self.keep_unread(db, there.ino, 0),
            _ => Ok(()),
        }
    }
}

impl Inner {
    /// Gives a version a file of its own. Its bytes stay where they are: in the bucket, or merged here.
    fn keep(&self, db: &Db, version: Version) -> Result<()> {
        let (mut dir, name) = version.place;
        let mut parent = tables::ino_of(db, dir)?;
        if let Some(ino) = parent {
            let attr = nodes::find(db, ino)?;
            let is_there = |it: Attr| it.kind == Kind::Directory && it.nlink > 0;
            parent = parent.filter(|_| attr.is_some_and(is_there));
        }
        let parent = parent.unwrap_or_else(|| {
            dir = ROOT;
            fuse::store::ROOT
        });
        let number = version.number;
        let mut attempt = 0;
        let name = loop {
            let Name(name) = conflict_name(&name, &self.config.writer, number, attempt);
            if names::find(db, parent, &name)?.is_none() {
                break name;
            }
            attempt += 1;
        };
        let id = NodeId { writer: self.unread.writer, ino: self.store.new_ino()? };
        let entry = (dir, Name(name));
        let kept = MergeResult {
            actions: Changes {
                nodes: BTreeMap::from([(id, version.node)]),
                names: BTreeMap::from([(entry.clone(), Some(id))]),
            },
            bytes: version.bytes,
            conflicts: vec![entry],
            ..MergeResult::default()
        };
        let owner = Caller { now: Timestamp::now(), ..self.owner };
        // No base has the new file: all of it is journalled.
        let (base, before) = (Tree::default(), BTreeMap::new());
        let mut adopted = db.transaction(|db| adopt(db, &self.store, &owner, &base, &before, &kept))?;
        self.has_changed();
        self.counters.conflicts.fetch_add(adopted.conflicts, Ordering::Relaxed);
        adopted.finish(&self.store, &self.placeholders, db)?;
        self.kernel.send(StaleEntries {
            inodes: adopted.inodes.into_iter().collect(),
            names: adopted.names.into_iter().collect(),
            ..StaleEntries::default()
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overwrite_long_after_a_version_arrived_may_replace_it() {
        let unread = UnreadVersions::new(1);
        let version = |age: Duration| Version {
            at: Instant::now() - age,
            node: Node { body: s3::tree::Body::Directory, attributes: s3::tree::Attributes::default() },
            bytes: ChunkBytes::new(),
            place: (ROOT, Name(b"f".to_vec())),
            number: 2,
            is_sized: false,
        };
        unread.note(ArrivedVersions(vec![(7, version(Duration::ZERO)), (8, version(EDIT))]));
        assert!(unread.of(7).is_some() && unread.of(8).is_none());
        unread.forget_old();
        assert_eq!(unread.versions.lock().len(), 1);
    }
}
