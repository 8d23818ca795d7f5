//! Giving the local changes places in the bucket: uploads of blobs, and the inline section of the commit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::format::chunks_of;
use crate::objects::{Fault, Key, Objects, Put};
use crate::replica::{Local, Replica};
use crate::session::{Session, SessionError, fetch, is_recent};
use crate::tree::{Body, Changes, Chunk, Content, Hash, INLINE_MAX, NodeId, Place, Tree};

/// How many uploads are under way at once; each holds a chunk in memory.
const UPLOADS_AT_ONCE: usize = 4;

/// Bytes of files that travel in one commit; what is beyond is uploaded as blobs.
const COMMIT_MAX: usize = 16 << 20;

/// Changes that can be committed.
pub(crate) struct Placed {
    /// Every chunk has a place in the bucket, or in `inline`.
    pub(crate) changes: Changes,
    /// The inline section.
    pub(crate) inline: Vec<u8>,
    /// How many files were taken as they were read although they changed meanwhile.
    pub(crate) restless: u64,
    /// Files that are left out because their content is nowhere.
    pub(crate) missing: Vec<String>,
    /// When the oldest blob was created that an earlier attempt has uploaded.
    pub(crate) oldest: Option<i64>,
}

/// What reading a chunk gave.
enum Read {
    Bytes(Bytes),
    /// The file is not the one any more that has to be committed.
    Changed,
    /// The content is nowhere.
    Missing,
}

impl<O: Objects, R: Replica> Session<'_, O, R> {
    /// Uploads the chunks that travel as blobs, and gives all chunks their places. A commit refers only to chunks that the
    /// base has, which garbage collection keeps, and to blobs that this mount has created lately.
    ///
    /// `None` if files change meanwhile and it `is_patient`; otherwise they are taken as they are read. They are never
    /// left out: a commit that deletes a file, but does not have the one that its content went to, would lose it.
    pub(crate) async fn upload(
        &mut self,
        local: Local,
        is_patient: bool,
    ) -> Result<Option<Placed>, SessionError> {
        let Local {
            mut changes,
            mut inline,
            ..
        } = local;
        let mut restless: BTreeSet<NodeId> = BTreeSet::new();
        let mut lost: BTreeSet<NodeId> = BTreeSet::new();
        let wanted = self.wanted(&changes, &inline);
        let (mut places, oldest) = self.known_places(&changes, &wanted);
        let mut room = COMMIT_MAX.saturating_sub(inline.values().map(Bytes::len).sum());
        let mut queue = wanted.iter().copied().peekable();
        while queue.peek().is_some() {
            let mut batch: BTreeMap<Hash, Bytes> = BTreeMap::new();
            while batch.len() < UPLOADS_AT_ONCE
                && let Some((id, index)) = queue.next()
            {
                let Some(content) = content_mut(&mut changes, id) else {
                    continue;
                };
                let Some(chunk) = content.chunks.get(index) else {
                    continue;
                };
                if places.contains_key(&chunk.hash) || batch.contains_key(&chunk.hash) {
                    continue;
                }
                let read = match inline.get(&chunk.hash) {
                    Some(bytes) => Read::Bytes(bytes.clone()),
                    None => self.read(id, index, chunk).await?,
                };
                match read {
                    Read::Bytes(bytes) => {
                        let is_small = chunk.place != Place::Local
                            && content.size <= INLINE_MAX
                            && content.chunks.len() == 1;
                        let hash = chunk.hash;
                        if is_small && bytes.len() <= room && !inline.contains_key(&hash) {
                            room -= bytes.len();
                            content.chunks[index].place = Place::Local;
                            inline.insert(hash, bytes);
                        } else {
                            batch.insert(hash, bytes);
                        }
                    }
                    Read::Missing => {
                        lost.insert(id);
                    }
                    Read::Changed if is_patient => return Ok(None),
                    Read::Changed => {
                        restless.insert(id);
                        if let Some(bytes) =
                            self.replica.read(id, index)?.filter(|it| !it.is_empty())
                        {
                            let hash = take_as_read(content, index, Some(&bytes));
                            batch.extend(hash.map(|hash| (hash, bytes)));
                        } else {
                            take_as_read(content, index, None);
                        }
                    }
                }
            }
            places.extend(self.put_blobs(batch).await?);
        }
        for (id, index) in wanted {
            let content = content_mut(&mut changes, id);
            if let Some(chunk) = content.and_then(|content| content.chunks.get_mut(index))
                && let Some(place) = places.get(&chunk.hash)
            {
                chunk.place = *place;
            }
        }
        for (id, node) in &changes.nodes {
            // What changed while it was read may be a mixture of two states.
            let is_long = node
                .content()
                .is_some_and(|content| content.chunks.len() > 1);
            if is_long && !self.replica.is_unchanged(*id)? {
                restless.insert(*id);
            }
        }
        if is_patient && !restless.is_empty() {
            return Ok(None);
        }
        let base = self.replica.base();
        let missing = lost
            .iter()
            .map(|id| describe(base, &changes, *id))
            .collect();
        for id in lost {
            leave_out(&mut changes, base, id);
        }
        let inline = place_inline(&mut changes, &inline);
        Ok(Some(Placed {
            changes,
            inline,
            restless: restless.len() as u64,
            missing,
            oldest,
        }))
    }

    /// The chunks that do not travel inside the commit and that the base does not have in the same file.
    fn wanted(&self, changes: &Changes, inline: &BTreeMap<Hash, Bytes>) -> Vec<(NodeId, usize)> {
        let mut room = COMMIT_MAX;
        let mut wanted = Vec::new();
        for (id, node) in &changes.nodes {
            let Some(content) = node.content() else {
                continue;
            };
            let before = self
                .replica
                .base()
                .node(*id)
                .and_then(|node| node.content());
            let before: BTreeSet<&Chunk> = before
                .into_iter()
                .flat_map(|content| &content.chunks)
                .collect();
            for (index, chunk) in content.chunks.iter().enumerate() {
                let length = chunk.length as usize;
                let is_inline = content.size <= INLINE_MAX && inline.contains_key(&chunk.hash);
                match chunk.place {
                    Place::Hole => {}
                    Place::Local if is_inline && length <= room => room -= length,
                    Place::Local => wanted.push((*id, index)),
                    _ if before.contains(chunk) => {}
                    _ => wanted.push((*id, index)),
                }
            }
        }
        wanted
    }

    /// The places of wanted chunks that the log has already: those of the base, which garbage collection keeps, and those
    /// that this mount created lately; and when the oldest of these was.
    fn known_places(
        &self,
        changes: &Changes,
        wanted: &[(NodeId, usize)],
    ) -> (BTreeMap<Hash, Place>, Option<i64>) {
        let mut places = BTreeMap::new();
        if wanted.is_empty() {
            return (places, None);
        }
        let hash = |(id, index): &(NodeId, usize)| {
            let content = changes.nodes.get(id)?.content()?;
            Some(content.chunks[*index].hash)
        };
        let hashes: BTreeSet<Hash> = wanted.iter().filter_map(hash).collect();
        let base = self.replica.base().nodes();
        let contents = base.filter_map(|(_, node)| node.content());
        for chunk in contents.flat_map(|content| &content.chunks) {
            if chunk.place != Place::Hole && hashes.contains(&chunk.hash) {
                places.insert(chunk.hash, chunk.place);
            }
        }
        let mut oldest: Option<i64> = None;
        for hash in hashes {
            let uploaded = self.contact.uploaded.get(&hash);
            if let Some((salt, at)) = uploaded.filter(|(_, at)| self.is_recent(*at)) {
                places.entry(hash).or_insert_with(|| {
                    oldest = Some(oldest.map_or(*at, |oldest| oldest.min(*at)));
                    Place::Blob { salt: *salt }
                });
            }
        }
        (places, oldest)
    }

    /// The bytes of a chunk from the working copy, or else from where others may have left it.
    async fn read(
        &mut self,
        id: NodeId,
        index: usize,
        chunk: &Chunk,
    ) -> Result<Read, SessionError> {
        let read = self.replica.read(id, index)?;
        if let Some(bytes) = read.filter(|bytes| Hash::of(bytes) == chunk.hash) {
            return Ok(Read::Bytes(bytes));
        }
        if chunk.place == Place::Local {
            return Ok(Read::Changed);
        }
        match fetch(self.objects, chunk).await {
            Ok(bytes) => Ok(Read::Bytes(bytes)),
            Err(SessionError::Broken(_)) => Ok(Read::Missing),
            Err(error) => Err(error),
        }
    }

    /// Creates blobs. A key is never used again, not even after garbage collection has removed it: a request of the
    /// collection may be late, too. So each upload has a salt of its own.
    async fn put_blobs(
        &mut self,
        blobs: BTreeMap<Hash, Bytes>,
    ) -> Result<Vec<(Hash, Place)>, SessionError> {
        let (objects, started) = (self.objects, (self.now)());
        let salted = blobs.into_iter().map(|(hash, bytes)| {
            let mut salt = [0; 4];
            (self.random)(&mut salt);
            (hash, bytes, u32::from_le_bytes(salt).max(1))
        });
        let puts = salted.map(|(hash, bytes, salt)| async move {
            match objects.put_new(Key::Blob(hash, salt), bytes).await? {
                Put::Created => Ok((hash, salt)),
                Put::Exists => Err(Fault::Unknown(format!(
                    "blob {hash}-{salt:08x} exists already"
                ))),
            }
        });
        let puts = stream::iter(puts).buffer_unordered(UPLOADS_AT_ONCE);
        let created: Vec<(Hash, u32)> = puts.try_collect().await?;
        let now = (self.now)();
        self.contact
            .uploaded
            .retain(|_, (_, at)| is_recent(now, *at));
        let uploaded = created.iter().map(|(hash, salt)| (*hash, (*salt, started)));
        self.contact.uploaded.extend(uploaded);
        let places = created
            .into_iter()
            .map(|(hash, salt)| (hash, Place::Blob { salt }));
        Ok(places.collect())
    }
}

fn content_mut(changes: &mut Changes, id: NodeId) -> Option<&mut Content> {
    match &mut changes.nodes.get_mut(&id)?.body {
        Body::File(content) => Some(content),
        _ => None,
    }
}

/// Makes a chunk what was read of it, and the end of the file where that is shorter; the chunk's digest.
fn take_as_read(content: &mut Content, index: usize, read: Option<&Bytes>) -> Option<Hash> {
    let is_short = read.is_none_or(|bytes| bytes.len() != content.chunks[index].length as usize);
    if is_short {
        content.chunks.truncate(index + 1);
    }
    let hash = match read {
        Some(bytes) => {
            let (hash, length) = (Hash::of(bytes), bytes.len() as u32);
            content.chunks[index] = Chunk {
                hash,
                length,
                place: Place::Local,
            };
            Some(hash)
        }
        None => {
            content.chunks.truncate(index);
            None
        }
    };
    content.size = content
        .chunks
        .iter()
        .map(|chunk| u64::from(chunk.length))
        .sum();
    hash
}

/// The path of a changed node, as far as it is known.
fn describe(base: &Tree, changes: &Changes, id: NodeId) -> String {
    let given = changes
        .names
        .iter()
        .find(|(_, to)| **to == Some(id))
        .map(|(entry, _)| entry);
    let Some((dir, name)) = given.or_else(|| base.names_of(id).next()) else {
        return format!("{id:?}");
    };
    let name = String::from_utf8_lossy(&name.0);
    match base.path(*dir).filter(|path| !path.is_empty()) {
        Some(path) => format!("{}/{name}", String::from_utf8_lossy(&path)),
        None => name.into_owned(),
    }
}

/// Leaves out a file whose content is nowhere; one that the base has stays as it is there.
fn leave_out(changes: &mut Changes, base: &Tree, id: NodeId) {
    changes.nodes.remove(&id);
    if base.node(id).is_some() {
        return;
    }
    let names = changes.names.iter().filter(|(_, to)| **to == Some(id));
    for entry in names.map(|(entry, _)| entry.clone()).collect::<Vec<_>>() {
        let was = base.name(entry.0, &entry.1);
        // What it replaces stays. But a directory cannot, if it has another name now.
        let is_moved = was.is_some_and(|was| {
            base.node(was).is_some_and(|node| node.is_directory())
                && changes.names.values().any(|to| *to == Some(was))
        });
        match is_moved {
            true => changes.names.insert(entry, None),
            false => changes.names.remove(&entry),
        };
    }
}

/// Puts the bytes of small files into the inline section, and notes their places.
fn place_inline(changes: &mut Changes, bytes: &BTreeMap<Hash, Bytes>) -> Vec<u8> {
    let mut inline = Vec::new();
    let mut offsets: BTreeMap<Hash, u32> = BTreeMap::new();
    for chunk in chunks_of(changes) {
        if chunk.place == Place::Local
            && let Some(bytes) = bytes.get(&chunk.hash)
        {
            let offset = *offsets.entry(chunk.hash).or_insert_with(|| {
                let offset = inline.len() as u32;
                inline.extend_from_slice(bytes);
                offset
            });
            chunk.place = Place::Inline { commit: 0, offset };
        }
    }
    inline
}
