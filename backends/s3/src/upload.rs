//! Giving the local changes places in the bucket: uploads of blobs, and the inline section of the commit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};

use crate::objects::{Fault, Key, Objects, PutOutcome};
use crate::reader::{Result, SessionError, fetch};
use crate::replica::{LocalChanges, Replica};
use crate::session::{CommitReport, Session, is_recent};
use crate::tree::{Changes, Chunk, Content, Hash, INLINE_MAX, Node, NodeId, Place, describe, leave_out};

/// How many uploads are under way at once; each holds a chunk in memory.
const UPLOADS_AT_ONCE: usize = 4;

/// Maximum bytes of file content inside a commit; further content is uploaded as blobs.
const COMMIT_MAX: usize = 16 << 20;

/// Changes that can be committed, whose chunks all have a place in the bucket or in the inline section; that section; and
/// when the oldest blob was created that an earlier attempt has uploaded.
pub(crate) type PlacedChanges = (Changes, Vec<u8>, Option<i64>);

/// A chunk that the log does not have in the same file: node, index and digest.
type NewChunk = (NodeId, usize, Hash);

/// The outcome of reading a chunk.
enum ReadOutcome {
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
    pub(crate) async fn place(
        &mut self,
        local: LocalChanges,
        is_patient: bool,
        done: &mut CommitReport,
    ) -> Result<Option<PlacedChanges>> {
        let (mut changes, mut inline) = (local.changes, local.inline);
        let (mut restless, mut lost) = (BTreeSet::new(), local.unreadable);
        let wanted = self.wanted(&changes, &inline);
        let (mut places, oldest) = self.known_places(&wanted);
        let mut room = COMMIT_MAX.saturating_sub(inline.values().map(Bytes::len).sum());
        let mut batch: BTreeMap<Hash, Bytes> = BTreeMap::new();
        for (id, index, _) in &wanted {
            let node = changes.nodes.get_mut(id);
            let Some(content) = node.and_then(Node::content_mut) else {
                continue;
            };
            // A file that is shorter by now has fewer.
            let Some(chunk) = content.chunks.get(*index).copied() else {
                continue;
            };
            let hash = chunk.hash;
            if places.contains_key(&hash) || batch.contains_key(&hash) {
                continue;
            }
            let read = match inline.get(&hash) {
                Some(bytes) => ReadOutcome::Bytes(bytes.clone()),
                None => self.read(*id, *index, &chunk).await?,
            };
            match read {
                ReadOutcome::Bytes(bytes)
                    if chunk.place != Place::Local && content.size <= INLINE_MAX && bytes.len() <= room =>
                {
                    room -= bytes.len();
                    content.chunks[*index].place = Place::Local;
                    inline.insert(hash, bytes);
                }
                ReadOutcome::Bytes(bytes) => drop(batch.insert(hash, bytes)),
                ReadOutcome::Missing => {
                    lost.insert(*id);
                }
                ReadOutcome::Changed if is_patient => return Ok(None),
                ReadOutcome::Changed => {
                    restless.insert(*id);
                    let read = self.replica.read(*id, *index)?.unwrap_or_default();
                    if let Some(chunk) = take_as_read(content, *index, &read) {
                        batch.insert(chunk.hash, read);
                    }
                }
            }
            if batch.len() == UPLOADS_AT_ONCE {
                places.extend(self.put_blobs(std::mem::take(&mut batch)).await?);
            }
        }
        places.extend(self.put_blobs(batch).await?);
        for (id, index, _) in wanted {
            let content = changes.nodes.get_mut(&id).and_then(Node::content_mut);
            if let Some(chunk) = content.and_then(|content| content.chunks.get_mut(index))
                && let Some(place) = places.get(&chunk.hash)
            {
                chunk.place = *place;
            }
        }
        for (id, node) in &changes.nodes {
            // A file that changed while it was read may be a mixture of two states.
            let is_long = node.content().is_some_and(|it| it.chunks.len() > 1);
            if is_long && !self.replica.is_unchanged(*id)? {
                restless.insert(*id);
            }
        }
        if is_patient && !restless.is_empty() {
            return Ok(None);
        }
        let base = self.replica.base();
        let missing = lost.iter().map(|id| describe(base, &changes, *id));
        (done.restless, done.missing) = (restless.len() as u64, missing.collect());
        for id in lost {
            leave_out(&mut changes, base, id);
        }
        let inline = place_inline(&mut changes, &inline);
        Ok(Some((changes, inline, oldest)))
    }

    /// The chunks that do not travel inside the commit and that the base does not have in the same file.
    fn wanted(&self, changes: &Changes, inline: &BTreeMap<Hash, Bytes>) -> Vec<NewChunk> {
        let mut room = COMMIT_MAX;
        let mut wanted = Vec::new();
        for (id, node) in &changes.nodes {
            let Some(content) = node.content() else {
                continue;
            };
            let before = self.replica.base().node(*id).and_then(Node::content);
            let before = before.into_iter().flat_map(|content| &content.chunks);
            let before: BTreeSet<&Chunk> = before.collect();
            for (index, chunk) in content.chunks.iter().enumerate() {
                let length = chunk.length as usize;
                let is_inline = content.size <= INLINE_MAX && inline.contains_key(&chunk.hash);
                match chunk.place {
                    Place::Local if is_inline && length <= room => room -= length,
                    Place::Hole => {}
                    _ if before.contains(chunk) => {}
                    _ => wanted.push((*id, index, chunk.hash)),
                }
            }
        }
        wanted
    }

    /// The places of wanted chunks that the log has already: those of the base, which garbage collection keeps, and those
    /// that this mount created lately; and when the oldest of these was.
    fn known_places(&self, wanted: &[NewChunk]) -> (BTreeMap<Hash, Place>, Option<i64>) {
        let (mut places, mut oldest) = (BTreeMap::new(), None);
        let hashes: BTreeSet<Hash> = wanted.iter().map(|(_, _, hash)| *hash).collect();
        if hashes.is_empty() {
            return (places, oldest);
        }
        let known = self.replica.base().chunks();
        let known = known.filter(|it| it.place != Place::Hole && hashes.contains(&it.hash));
        places.extend(known.map(|chunk| (chunk.hash, chunk.place)));
        let now = (self.now)();
        for hash in hashes {
            if let Some((salt, at)) = self.contact.uploaded.get(&hash)
                && is_recent(now, *at)
                && !places.contains_key(&hash)
            {
                places.insert(hash, Place::Blob { salt: *salt });
                oldest = Some(oldest.map_or(*at, |oldest: i64| oldest.min(*at)));
            }
        }
        (places, oldest)
    }

    /// The bytes of a chunk from the working copy, or else from where others may have left it.
    async fn read(&mut self, id: NodeId, index: usize, chunk: &Chunk) -> Result<ReadOutcome> {
        let read = self.replica.read(id, index)?;
        if let Some(bytes) = read.filter(|bytes| Hash::of(bytes) == chunk.hash) {
            return Ok(ReadOutcome::Bytes(bytes));
        }
        if chunk.place == Place::Local {
            return Ok(ReadOutcome::Changed);
        }
        match fetch(self.objects, chunk).await {
            Ok(bytes) => Ok(ReadOutcome::Bytes(bytes)),
            Err(SessionError::Broken(_)) => Ok(ReadOutcome::Missing),
            Err(error) => Err(error),
        }
    }

    /// Creates blobs. A key is never used again, not even after garbage collection has removed it: a request of the
    /// collection may be late, too. So each upload has a salt of its own.
    async fn put_blobs(&mut self, blobs: BTreeMap<Hash, Bytes>) -> Result<Vec<(Hash, Place)>> {
        let (objects, started) = (self.objects, (self.now)());
        let puts = blobs.into_iter().map(|(hash, bytes)| {
            let mut salt = [0; 4];
            (self.random)(&mut salt);
            let salt = u32::from_le_bytes(salt).max(1);
            async move {
                match objects.put_new(Key::Blob(hash, salt), bytes).await? {
                    PutOutcome::Created => Ok((hash, salt)),
                    PutOutcome::Exists => {
                        let reason = format!("blob {hash}-{salt:08x} exists already");
                        Err(Fault::Unknown(reason))
                    }
                }
            }
        });
        let puts = stream::iter(puts).buffer_unordered(UPLOADS_AT_ONCE);
        let created: Vec<(Hash, u32)> = puts.try_collect().await?;
        let now = (self.now)();
        let uploaded = &mut self.contact.uploaded;
        uploaded.retain(|_, (_, at)| is_recent(now, *at));
        uploaded.extend(created.iter().map(|(hash, salt)| (*hash, (*salt, started))));
        let place = |(hash, salt)| (hash, Place::Blob { salt });
        Ok(created.into_iter().map(place).collect())
    }
}

/// Makes a chunk what was read of it, and the end of the file where that is shorter; the chunk, if anything was read.
fn take_as_read(content: &mut Content, index: usize, read: &Bytes) -> Option<Chunk> {
    let is_short = read.len() != content.chunks[index].length as usize;
    let taken = Content::local(read).chunks.pop();
    let rest = content.chunks.split_off(index);
    let rest = rest.into_iter().skip(1).filter(|_| !is_short);
    content.chunks.extend(taken.into_iter().chain(rest));
    content.size = content.length();
    taken
}

/// Puts the bytes of small files into the inline section, and notes their places.
fn place_inline(changes: &mut Changes, bytes: &BTreeMap<Hash, Bytes>) -> Vec<u8> {
    let mut inline = Vec::new();
    let mut offsets: BTreeMap<Hash, u32> = BTreeMap::new();
    let local = changes.chunks_mut().filter(|it| it.place == Place::Local);
    for chunk in local {
        if let Some(bytes) = bytes.get(&chunk.hash) {
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
