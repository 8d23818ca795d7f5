//! Reads the working copy's differences from the base, and the content of changed files.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use fuse::store::{Attr, Errno, Ino, Kind, Result, Seek, Store, StoreError};
use s3::replica::LocalChanges;
use s3::tree::{Attributes, Body, CHUNK, Chunk, Content, Hash, INLINE_MAX, Name, Node, NodeId, Place};
use sqlite::tables::{Db, held, names, nodes, xattrs};

use crate::cache::{Cache, FileStamp};
use crate::tables;

/// Bytes of small files that a commit takes up at once.
const INLINE_TOTAL: usize = 16 << 20;

/// Files from this size on are hashed without the lock.
const HASHED_AHEAD: u64 = 1 << 20;

fn local_chunk(bytes: &[u8]) -> Chunk {
    Chunk { hash: Hash::of(bytes), length: bytes.len() as u32, place: Place::Local }
}

/// The chunk `at` of a file, if it is missing here or a hole: its bytes need not be read.
fn chunk_without_bytes(db: &Db, attr: &Attr, at: u64) -> Result<Option<Chunk>> {
    if let Some((_, chunk)) = tables::missing(db, attr.ino, at, at)?.pop() {
        return Ok(Some(chunk));
    }
    let (start, length) = (at * CHUNK, CHUNK.min(attr.size - at * CHUNK));
    match held::seek(db, attr.ino, start, Seek::Data) {
        Ok(data) if data < start + length => return Ok(None),
        Err(error) if error.errno != Errno::NXIO => return Err(error),
        _ => {}
    }
    static ZEROS: OnceLock<Hash> = OnceLock::new();
    let zeros = || Hash::of(&vec![0; length as usize]);
    let hash = match length {
        CHUNK => *ZEROS.get_or_init(zeros),
        _ => zeros(),
    };
    Ok(Some(Chunk { hash, length: length as u32, place: Place::Hole }))
}

/// The local changes, read under the store's lock.
struct Reader<'a> {
    db: &'a Db,
    cache: &'a Cache,
    local: LocalChanges,
    room: usize,
    seen: HashMap<NodeId, FileStamp>,
    /// Inodes that got their identity here.
    identified: Vec<Ino>,
    /// Long files are left out that are not hashed yet.
    is_brief: bool,
    long: Vec<Ino>,
}

impl Reader<'_> {
    /// The identity of an inode; a new one gets the one that this session gives it.
    fn identity(&mut self, ino: Ino) -> Result<NodeId> {
        if let Some(id) = tables::identity(self.db, ino)? {
            return Ok(id);
        }
        let id = NodeId { writer: self.cache.writer.id, ino };
        tables::identify(self.db, ino, id)?;
        self.identified.push(ino);
        Ok(id)
    }

    fn name(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let found = names::find(self.db, parent, name)?;
        let is_there = found.is_some() || tables::identity(self.db, parent)?.is_some();
        if !is_there {
            return Ok(());
        }
        let entry = (self.identity(parent)?, Name(name.to_vec()));
        let to = match found {
            Some(found) => {
                let id = self.identity(found.ino)?;
                if self.cache.base.node(id).is_none() {
                    self.node(found.ino)?;
                }
                Some(id)
            }
            None => None,
        };
        if self.cache.base.name(&entry) != to {
            self.local.changes.names.insert(entry, to);
        }
        Ok(())
    }

    fn node(&mut self, ino: Ino) -> Result<()> {
        let Some(attr) = nodes::find(self.db, ino)?.filter(|attr| attr.nlink > 0) else {
            return Ok(());
        };
        let id = self.identity(ino)?;
        if self.local.changes.nodes.contains_key(&id) {
            return Ok(());
        }
        let body = match attr.kind {
            Kind::File => match self.content(id, &attr) {
                // Other files are not kept from the bucket by one that is damaged.
                Err(error) if error.errno == Errno::IO => {
                    tracing::debug!(%error, ino, "a changed file cannot be read");
                    self.local.unreadable.insert(id);
                    Body::File(Content::default())
                }
                content => Body::File(content?),
            },
            Kind::Directory => Body::Directory,
            Kind::Symlink => Body::Symlink(nodes::target(self.db, ino)?),
            kind => Body::Special(kind.mode_bits()),
        };
        let node = Node { body, attributes: self.attributes(&attr)? };
        if self.cache.base.node(id) != Some(&node) {
            self.local.changes.nodes.insert(id, node);
        }
        Ok(())
    }

    fn attributes(&self, attr: &Attr) -> Result<Attributes> {
        let is_directory = attr.kind == Kind::Directory;
        let mut found = Attributes {
            permissions: attr.permissions,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            atime: if is_directory { 0 } else { attr.atime.0 },
            mtime: if is_directory { 0 } else { attr.mtime.0 },
            btime: attr.btime.0,
            xattrs: BTreeMap::new(),
        };
        let names = if self.cache.store.may_have_xattrs() { xattrs::list(self.db, attr.ino)? } else { Vec::new() };
        for name in names {
            let value = xattrs::get(self.db, attr.ino, &name)?;
            found.xattrs.insert(Name(name), value.into());
        }
        Ok(found)
    }

    fn content(&mut self, id: NodeId, attr: &Attr) -> Result<Content> {
        let seen = FileStamp { ino: attr.ino, ctime: attr.ctime.0 };
        self.seen.insert(id, seen);
        let before = self.cache.base.node(id).and_then(Node::content);
        let mut content = match self.cache.hashed.get(&attr.ino) {
            Some((ctime, content)) if *ctime == attr.ctime.0 => {
                content.clone().ok_or_else(|| StoreError::storage(Errno::IO, "it could not be read"))?
            }
            _ if self.is_brief && attr.size >= HASHED_AHEAD => {
                self.long.push(attr.ino);
                return Ok(Content::default());
            }
            _ => self.hash(attr)?,
        };
        // Chunks that the base has are in the bucket.
        for (at, chunk) in content.chunks.iter_mut().enumerate() {
            let known = before.and_then(|before| before.chunks.get(at));
            if let Some(known) = known.filter(|it| it.hash == chunk.hash && it.length == chunk.length) {
                *chunk = *known;
            }
        }
        Ok(content)
    }

    fn hash(&mut self, attr: &Attr) -> Result<Content> {
        let mut content = Content { size: attr.size, chunks: Vec::new() };
        let may_lack_bytes = attr.size > INLINE_MAX || self.cache.placeholders.contains(attr.ino);
        for at in 0..attr.size.div_ceil(CHUNK) {
            if may_lack_bytes && let Some(chunk) = chunk_without_bytes(self.db, attr, at)? {
                content.chunks.push(chunk);
                continue;
            }
            let (start, length) = (at * CHUNK, CHUNK.min(attr.size - at * CHUNK));
            let mut bytes = Vec::new();
            held::read(self.db, attr.ino, start, length as usize, &mut bytes)?;
            let chunk = local_chunk(&bytes);
            if attr.size <= INLINE_MAX && bytes.len() <= self.room {
                self.room -= bytes.len();
                self.local.inline.insert(chunk.hash, bytes.into());
            }
            content.chunks.push(chunk);
        }
        Ok(content)
    }
}

impl Cache {
    /// Hashes long files, chunk by chunk, so that the lock is not held for long.
    pub(super) fn hash_ahead(&mut self, long: &[Ino]) -> Result<()> {
        self.hashed.retain(|ino, _| long.contains(ino));
        for ino in long {
            let Some(attr) = nodes::find(&self.store.db(), *ino)? else {
                continue;
            };
            let chunks: Result<Vec<Chunk>> =
                (0..attr.size.div_ceil(CHUNK)).map(|at| self.hash_chunk(&attr, at)).collect();
            let content = match chunks {
                Ok(chunks) => Some(Content { size: attr.size, chunks }),
                Err(error) if error.errno == Errno::IO => None,
                Err(error) => return Err(error),
            };
            self.hashed.insert(*ino, (attr.ctime.0, content));
        }
        Ok(())
    }

    fn hash_chunk(&self, attr: &Attr, at: u64) -> Result<Chunk> {
        let db = self.store.db();
        if let Some(chunk) = chunk_without_bytes(&db, attr, at)? {
            return Ok(chunk);
        }
        let (start, length) = (at * CHUNK, CHUNK.min(attr.size - at * CHUNK));
        let mut bytes = Vec::new();
        self.store.read_held(db, attr.ino, start, length as usize, &mut bytes)?;
        // The file may have been cut since; its ctime then tells so.
        bytes.resize(length as usize, 0);
        Ok(local_chunk(&bytes))
    }

    /// Reads the local changes in the transaction that `db` has open.
    pub(super) fn read_local(&self, db: &Db, is_brief: bool) -> Result<ChangeSet> {
        let mut reader = Reader {
            db,
            cache: self,
            local: LocalChanges::default(),
            room: INLINE_TOTAL,
            seen: HashMap::new(),
            identified: Vec::new(),
            is_brief,
            long: Vec::new(),
        };
        // Rows that callers' changes have left to the commit are journalled by it.
        db.write_rows()?;
        let (inodes, names) = (tables::dirty_inodes(db)?, tables::dirty_names(db)?);
        for ino in inodes {
            reader.node(ino)?;
        }
        for (parent, name) in names {
            reader.name(parent, &name)?;
        }
        Ok(ChangeSet { local: reader.local, seen: reader.seen, identified: reader.identified, long: reader.long })
    }
}

/// The changes that a reader found.
pub(super) struct ChangeSet {
    pub(super) local: LocalChanges,
    pub(super) seen: HashMap<NodeId, FileStamp>,
    /// Inodes that got their identity here, from this session.
    pub(super) identified: Vec<Ino>,
    /// Long files that have to be hashed first.
    pub(super) long: Vec<Ino>,
}
