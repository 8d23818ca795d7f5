//! The working copy of a mount: a `sqlite` file system, its journal against the base, and placeholders.
//!
//! Its interface to the protocol is [`Replica`]. [`super::changes`] reads its changes, and [`super::adopt`] applies
//! commits of others to it.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use fuse::store::{Caller, Errno, Ino, Kind, ROOT, Result, Store, StoreError, Timestamp};
use s3::merge::{MERGE_MAX, MergeResult, MissingChunks};
use s3::replica::{Head, LocalChanges, MergeWork, Replica, ReplicaError, Writer};
use s3::tree::{CHUNK, Changes, Content, NodeId, Tree};
use sqlite::SqliteStore;
use sqlite::tables::{Db, held, nodes};

use crate::adopt::{AdoptedChanges, adopt};
use crate::notes::{Batch, Note};
use crate::power_loss;
use crate::tables::{self, Advance, LostEnd, Placeholders};
use crate::unread::{ArrivedVersions, UnreadVersions};

/// How often a long file that changes meanwhile is hashed without the lock, before it is hashed with it.
const HASHED_AHEAD_MAX: u32 = 3;

/// A file as [`Cache::local`] read it; it is uploaded afterwards.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileStamp {
    pub(super) ino: Ino,
    pub(super) ctime: i64,
}

/// A mount's working copy.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) store: Arc<SqliteStore>,
    pub(super) placeholders: Arc<Placeholders>,
    owner: Caller,
    pub(super) writer: Writer,
    writers: HashSet<u64>,
    /// Whether a power cut cannot bring back a time without this session.
    is_durable: bool,
    head: Head,
    pub(super) base: Tree,
    intents: Vec<[u8; 16]>,
    /// Files that a power loss has cut, and that are mended when it is known which commits the log has.
    lost: Vec<LostEnd>,
    /// Acknowledged commits that the tables do not have yet. If they never get them, the next session finds the commits
    /// in the log and knows them by their nonces.
    unsaved: Vec<Advance>,
    seen: HashMap<NodeId, FileStamp>,
    /// Content of long files by inode and ctime, hashed without the lock; `None` if the file cannot be read.
    pub(super) hashed: HashMap<Ino, (i64, Option<Content>)>,
    /// The invalidations that the kernel needs for the last adopted commits.
    pub(super) adopted: AdoptedChanges,
    /// Notes what adopted commits bring, once programs can have edits in progress.
    pub(super) unread: Option<Arc<UnreadVersions>>,
}

fn failed(error: StoreError) -> ReplicaError {
    ReplicaError { kind: io::Error::from(error.errno).kind(), reason: error.to_string() }
}

impl Cache {
    /// The working copy in `store`, whose tables exist, for a new session. Its identity is durable before its first commit.
    ///
    /// # Errors
    /// If the tables cannot be read or written.
    pub(super) fn open(
        store: Arc<SqliteStore>,
        placeholders: Arc<Placeholders>,
        owner: Caller,
        writer: Writer,
    ) -> Result<Self> {
        let (head, base, intents, writers, missing, lost) = store.transaction(|db| {
            tables::add_writer(db, writer.id)?;
            // An inode number that has an identity must not be given to another file.
            store.skip_inos(tables::tidy_identities(db)?);
            let head = tables::head(db)?;
            let base = tables::base(db)?;
            let intents = tables::intents(db)?;
            Ok((head, base, intents, tables::writers(db)?, tables::placeholders(db)?, tables::lost(db)?))
        })?;
        for LostEnd { ino, .. } in &lost {
            power_loss::lengthen(&store.db(), *ino)?;
        }
        *placeholders.write() = missing.into_iter().collect();
        Ok(Self {
            store,
            placeholders,
            owner,
            writers: writers.into_iter().collect(),
            writer,
            is_durable: false,
            head,
            base,
            intents,
            lost,
            unsaved: Vec::new(),
            seen: HashMap::new(),
            hashed: HashMap::new(),
            adopted: AdoptedChanges::default(),
            unread: None,
        })
    }

    /// Makes everything in the working copy a local change, for a new log.
    ///
    /// # Errors
    /// If the tables cannot be written: then nothing has changed.
    pub(super) fn forget_base(&mut self) -> Result<()> {
        let (root, nothing) = (s3::tree::ROOT, Tree::default());
        let has_changed_root = self.base.node(root) != nothing.node(root);
        self.store.transaction(|db| {
            tables::clear_base(db)?;
            if has_changed_root { tables::journal_inode(db, ROOT) } else { Ok(()) }
        })?;
        (self.head, self.base) = (Head::default(), nothing);
        self.intents.clear();
        self.unsaved.clear();
        Ok(())
    }

    /// Mends the files that a power loss has cut. The base must have all commits that were sent before it.
    ///
    /// # Errors
    /// If the tables or a tail cannot be read or written; the next call tries again.
    pub(super) fn mend_lost(&mut self) -> Result<()> {
        if self.lost.is_empty() {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let db = store.db();
        db.transaction(|db| {
            self.save_in(db)?;
            for lost in &self.lost {
                let id = tables::identity(db, lost.ino)?;
                let base = id.and_then(|id| self.base.node(id)).and_then(s3::tree::Node::content);
                power_loss::mend_changed(db, lost, base)?;
            }
            Ok(())
        })?;
        self.unsaved.clear();
        for LostEnd { ino, .. } in &self.lost {
            power_loss::lengthen(&db, *ino)?;
            self.adopted.inodes.insert(*ino);
            if tables::is_placeholder(&db, *ino)? {
                self.placeholders.write().insert(*ino);
            }
        }
        db.transaction(tables::forget_lost)?;
        self.lost.clear();
        Ok(())
    }

    /// Frees the space of files that adopted commits have removed, before any kernel knows them.
    pub(super) fn reclaim_orphans(&mut self) -> Result<()> {
        let adopted = std::mem::take(&mut self.adopted);
        adopted.orphans.into_iter().try_for_each(|ino| self.store.reclaim(ino))
    }

    pub(super) fn base(&self) -> &Tree {
        &self.base
    }
}

impl Replica for Cache {
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
        self.writers.contains(&id)
    }

    fn intents(&self) -> Vec<[u8; 16]> {
        self.intents.clone()
    }

    fn local(&mut self, nonce: [u8; 16]) -> std::result::Result<LocalChanges, ReplicaError> {
        self.mend_lost().map_err(failed)?;
        let store = Arc::clone(&self.store);
        if tables::is_clean(&store.db()).map_err(failed)? {
            return Ok(LocalChanges::default());
        }
        let mut attempts = 0;
        loop {
            let read = store.note(|db| {
                self.save_in(db)?;
                let mut read = self.read_local(db, attempts < HASHED_AHEAD_MAX)?;
                let is_whole = read.long.is_empty();
                let batch = Batch {
                    writer: self.writer.id,
                    identified: std::mem::take(&mut read.identified),
                    ends: is_whole,
                    intent: (is_whole && !read.local.changes.is_empty()).then_some(nonce),
                };
                read.local.mark = batch.end(db)?;
                let note = Note { saved: Cow::Borrowed(&self.unsaved), batch: Some(batch) };
                Ok((read, note.encode()?))
            });
            let read = read.map_err(failed)?;
            self.unsaved.clear();
            if read.long.is_empty() {
                if !read.local.changes.is_empty() {
                    if !self.is_durable {
                        store.sync().map_err(failed)?;
                        self.is_durable = true;
                    }
                    self.intents.push(nonce);
                }
                self.seen = read.seen;
                return Ok(read.local);
            }
            self.hash_ahead(&read.long).map_err(failed)?;
            attempts += 1;
        }
    }

    fn read(&mut self, id: NodeId, index: usize) -> std::result::Result<Option<Bytes>, ReplicaError> {
        let Some(seen) = self.seen.get(&id).copied() else {
            return Ok(None);
        };
        let db = self.store.db();
        // The current content: the session compares digests.
        let start = index as u64 * CHUNK;
        let attr = nodes::find(&db, seen.ino).map_err(failed)?;
        let Some(attr) = attr.filter(|attr| attr.kind == Kind::File && attr.size > start) else {
            return Ok(None);
        };
        let length = CHUNK.min(attr.size - start) as usize;
        let mut bytes = Vec::with_capacity(length);
        let read = self.store.read_held(db, seen.ino, start, length, &mut bytes);
        read.map_err(failed)?;
        Ok(Some(bytes.into()))
    }

    fn is_unchanged(&mut self, id: NodeId) -> std::result::Result<bool, ReplicaError> {
        let Some(seen) = self.seen.get(&id).copied() else {
            return Ok(true);
        };
        let attr = nodes::find(&self.store.db(), seen.ino).map_err(failed)?;
        Ok(attr.is_some_and(|attr| attr.ctime.0 == seen.ctime))
    }

    fn acknowledge(
        &mut self,
        head: Head,
        changes: &Changes,
        mark: Option<u64>,
    ) -> std::result::Result<(), ReplicaError> {
        // The tables follow with the next transaction: until then the log itself is the record.
        let advance = Advance::make(&mut self.base, head, changes, mark);
        self.unsaved.push(advance);
        self.head = head;
        self.intents.clear();
        Ok(())
    }

    fn adopt(
        &mut self,
        head: Head,
        theirs: &Changes,
        merge: &mut MergeWork<'_>,
    ) -> std::result::Result<std::result::Result<(), MissingChunks>, ReplicaError> {
        // A commit that was sent for the number of this one is not in the log.
        self.mend_lost().map_err(failed)?;
        let store = Arc::clone(&self.store);
        let mut attempts = 0;
        let db = loop {
            let db = store.db();
            if tables::is_clean(&db).map_err(failed)? {
                break db;
            }
            let read = db.transaction(|db| self.read_local(db, attempts < HASHED_AHEAD_MAX));
            let long = read.map_err(failed)?.long;
            if long.is_empty() {
                break db;
            }
            drop(db);
            self.hash_ahead(&long).map_err(failed)?;
            attempts += 1;
        };
        let (mut adopted, mut arrived) = (AdoptedChanges::default(), ArrivedVersions::default());
        let done: Result<std::result::Result<(), MissingChunks>> = db.transaction(|db| {
            self.save_in(db)?;
            let local = self.read_local(db, false)?.local.without_unreadable(&self.base, theirs);
            let local = local.map_err(|error| StoreError::storage(Errno::IO, error))?;
            let merged = match self.merge(db, &local.changes, merge)? {
                Ok(merged) => merged,
                Err(needs) => return Ok(Err(needs)),
            };
            let before = self.current(&local.changes, &merged);
            Advance::make(&mut self.base, head, theirs, None).save(db)?;
            let owner = Caller { now: Timestamp::now(), ..self.owner };
            adopted = adopt(db, &store, &owner, &self.base, &before, &merged)?;
            if self.unread.is_some() {
                arrived = UnreadVersions::arrived(db, &self.base, &before, &merged, head.number)?;
            }
            Ok(Ok(()))
        });
        let done = match done {
            Ok(Ok(())) => {
                if let Some(unread) = &self.unread {
                    unread.note(arrived);
                }
                // Before the next write to a tail.
                adopted.finish(&store, &self.placeholders, &db).map(Ok)
            }
            other => other,
        };
        drop(db);
        match done {
            Ok(Ok(())) => {
                self.head = head;
                self.intents.clear();
                self.unsaved.clear();
                self.adopted.add(adopted);
                Ok(Ok(()))
            }
            Ok(Err(needs)) => {
                self.unsaved.clear();
                Ok(Err(needs))
            }
            Err(error) => {
                self.reload()?;
                Err(failed(error))
            }
        }
    }
}

impl Cache {
    /// Writes acknowledged commits to the tables.
    ///
    /// # Errors
    /// If the tables cannot be written; the next call tries again.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        self.store.note(|db| {
            self.save_in(db)?;
            let note = Note { saved: Cow::Borrowed(&self.unsaved), batch: None };
            Ok(((), note.encode()?))
        })?;
        self.unsaved.clear();
        Ok(())
    }

    fn save_in(&self, db: &Db) -> Result<()> {
        self.unsaved.iter().try_for_each(|step| step.save(db))
    }

    /// Loads the base from the tables after a failed transaction: the base in memory was ahead of them.
    fn reload(&mut self) -> std::result::Result<(), ReplicaError> {
        let read = {
            let db = self.store.db();
            tables::base(&db).and_then(|base| Ok((base, tables::head(&db)?, tables::intents(&db)?)))
        };
        (self.base, self.head, self.intents) = read.map_err(failed)?;
        self.unsaved.clear();
        Ok(())
    }

    fn merge(
        &self,
        db: &Db,
        ours: &Changes,
        merge: &mut MergeWork<'_>,
    ) -> Result<std::result::Result<MergeResult, MissingChunks>> {
        let mut read = |id: NodeId| -> std::result::Result<Option<Bytes>, ReplicaError> {
            let found = (|| {
                let Some(ino) = tables::ino_of(db, id)? else {
                    return Ok(None);
                };
                let attr = nodes::find(db, ino)?;
                match attr.filter(|it| it.size <= MERGE_MAX) {
                    Some(_) if tables::is_placeholder(db, ino)? => Ok(None),
                    Some(attr) => {
                        let mut bytes = Vec::new();
                        held::read(db, ino, 0, attr.size as usize, &mut bytes)?;
                        Ok(Some(bytes.into()))
                    }
                    None => Ok(None),
                }
            })();
            found.map_err(failed)
        };
        let mut error = None;
        let writer = self.writer.id;
        let mut fresh = || match self.store.new_ino() {
            Ok(ino) => NodeId { writer, ino },
            Err(failure) => {
                error = Some(failure);
                NodeId { writer, ino: 0 }
            }
        };
        let merged = merge(&self.base, ours, &mut read, &mut fresh);
        if let Some(error) = error {
            return Err(error);
        }
        merged.map_err(|error| StoreError::storage(Errno::IO, error))
    }

    /// The content that the working copy has now of the files that the merge changes.
    fn current(&self, ours: &Changes, merged: &MergeResult) -> BTreeMap<NodeId, Content> {
        let forks: HashMap<NodeId, NodeId> = merged.forks.iter().map(|(id, fork)| (*fork, *id)).collect();
        let forked: HashSet<NodeId> = merged.forks.iter().map(|(id, _)| *id).collect();
        let of = |id: &NodeId| {
            if forked.contains(id) {
                return None;
            }
            let old = forks.get(id).unwrap_or(id);
            let node = ours.nodes.get(old).or_else(|| self.base.node(*old))?;
            Some((*id, node.content()?.clone()))
        };
        merged.actions.nodes.keys().filter_map(of).collect()
    }
}
