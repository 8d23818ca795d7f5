//! Files that a batch does not hold: read when their turn comes, and sent in parts where they are large.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::Attributes;
use sha2::{Digest, Sha256};
use tokio::sync::OwnedSemaphorePermit;

use super::plan::{Body, Put};
use super::remote::{Expect, RemoteError};
use super::seal::{SEGMENT, Seal};
use super::upload::{Done, Parts, other};
use super::{Inner, doubt, fetch, object};
use crate::sqlite::SqliteStore;
use crate::store::{Attr, Errno, Store, StoreError};

/// Objects from this size on go up in parts, of this size each if they are not too many.
pub(super) const PART: u64 = 8 << 20;

/// Parts that S3 makes an object of at most.
const PARTS_MAX: u64 = 10_000;

/// Parts of files that are too long for that are of whole units of this.
const PART_UNIT: u64 = 1 << 20;

/// Bytes in each part of an object, but for the last.
fn part_of(length: u64) -> u64 {
    let least = length.div_ceil(PARTS_MAX);
    PART.max(least.next_multiple_of(PART_UNIT))
}

/// Parts under way at once.
pub(super) const PARALLEL_PARTS: usize = 4;

/// A file that keeps changing while it is sent is copied first if it is no longer than this: who writes to it waits for
/// the copy.
const COPIED_MAX: u64 = 1 << 30;

/// A file as it goes up.
#[derive(Debug)]
pub(super) struct Source {
    attr: Attr,
    /// Of all its content, where it would not stand still. Others are copied when this one has gone up: they take as much
    /// of the disk as the file.
    copy: Option<(File, OwnedSemaphorePermit)>,
}

impl Source {
    /// Reads a piece of a file; `None` if it is no longer as it was.
    fn piece(
        &self,
        cache: &SqliteStore,
        offset: u64,
        size: usize,
    ) -> Result<Option<Vec<u8>>, RemoteError> {
        if let Some((copy, _)) = &self.copy {
            let mut bytes = vec![0; size];
            copy.read_exact_at(&mut bytes, offset).map_err(other)?;
            return Ok(Some(bytes));
        }
        let mut bytes = Vec::with_capacity(size);
        let ino = self.attr.ino;
        let read = cache.read(ino, offset, size, &mut bytes);
        let now = match read.and_then(|()| cache.getattr(ino)) {
            Ok(now) => now,
            // Removed meanwhile, which the journal says, too.
            Err(error) if error.errno == Errno::NOENT => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Whoever writes can set the time of the content, as `rsync --times` does.
        let is_same = now.ctime == self.attr.ctime && now.size == self.attr.size;
        Ok((is_same && bytes.len() == size).then_some(bytes))
    }
}

/// Does work that takes long on a thread of its own: requests are under way meanwhile, and have to be looked after.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RemoteError> + Send + 'static,
) -> Result<T, RemoteError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let error = format!("reading a file: {error}");
        Err(StoreError::storage(Errno::IO, error).into())
    })
}

impl Inner {
    /// Grows as requests are answered and files are read.
    pub(super) fn progress(&self) -> u64 {
        self.remote.answered() + self.read.load(Ordering::Relaxed)
    }

    /// Where the bytes of a file are read from; `None` if it is gone.
    async fn source(&self, put: &Put) -> Result<Option<Arc<Source>>, RemoteError> {
        let as_planned = || {
            Some(Arc::new(Source {
                attr: put.attr,
                copy: None,
            }))
        };
        if !matches!(put.body, Body::Restless) {
            return Ok(as_planned());
        }
        // Only one that was closed has none, and this one never is.
        let turn = Arc::clone(&self.copying).acquire_owned().await;
        let turn = turn.map_err(other)?;
        let (cache, ino) = (Arc::clone(&self.cache), put.attr.ino);
        let copied = aside(move || {
            let free = cache.statfs()?;
            let free = free.blocks_available * u64::from(free.block_bytes);
            // A disk that it would fill is full for every writer of this mount.
            Ok(cache.copy_of(ino, COPIED_MAX.min(free / 2))?)
        });
        match copied.await {
            Ok(Some((copy, attr))) => Ok(Some(Arc::new(Source {
                attr,
                copy: Some((copy, turn)),
            }))),
            // Too long: it goes up when it stands still.
            Ok(None) => Ok(as_planned()),
            Err(RemoteError::Here(error)) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a file that changes while it is read would do so again: it is there, and no copy was made of it.
    pub(super) fn never_rests(&self, put: &Put) -> bool {
        matches!(put.body, Body::Restless) && self.cache.getattr(put.attr.ino).is_ok()
    }

    async fn piece(
        &self,
        source: &Arc<Source>,
        offset: u64,
        size: usize,
    ) -> Result<Option<Vec<u8>>, RemoteError> {
        let (cache, source) = (Arc::clone(&self.cache), Arc::clone(source));
        let read = aside(move || source.piece(&cache, offset, size)).await;
        self.read.fetch_add(1, Ordering::Relaxed);
        read
    }

    /// The checksum of a file as it was planned; `None` if it has changed since, or is not here.
    pub(super) async fn checksum_of(&self, put: &Put) -> Result<Option<String>, RemoteError> {
        if self.is_stub(put.attr.ino) {
            return Ok(None);
        }
        let Some(source) = self.source(put).await? else {
            return Ok(None);
        };
        Ok(self.digest(&source).await?.map(|(sha256, _)| sha256))
    }

    /// The checksums of a file, and of each of the parts that others fetch it in.
    async fn digest(
        &self,
        source: &Arc<Source>,
    ) -> Result<Option<(String, Vec<String>)>, RemoteError> {
        let mut hash = Sha256::new();
        let mut parts = Vec::new();
        let mut at = 0;
        while at < source.attr.size {
            let size = fetch::PART.min(source.attr.size - at);
            let Some(piece) = self.piece(source, at, size as usize).await? else {
                return Ok(None);
            };
            let hashed = aside(move || {
                hash.update(&piece);
                Ok((hash, object::checksum(&piece)))
            });
            let part;
            (hash, part) = hashed.await?;
            parts.push(part);
            at += size;
        }
        Ok(Some((object::hex(&hash.finalize()), parts)))
    }

    /// A file that the plan did not read: in one request, or in parts.
    pub(super) async fn put_file(
        &self,
        put: &Put,
        key: &str,
        version: u64,
        expect: &Expect,
    ) -> Result<Done, RemoteError> {
        if self.is_stub(put.attr.ino) {
            // Its attributes or its name changed: the object carries both, so it has to be written anew.
            self.fetch_all(put.attr.ino).await?;
        }
        let Some(source) = self.source(put).await? else {
            return Ok(Done::Later);
        };
        // The checksum stands before the content: the file is read twice rather than held.
        let Some((sha256, digests)) = self.digest(&source).await? else {
            return Ok(Done::Later);
        };
        let (header, meta) = self.describe(put, &source.attr, version, sha256);
        let attributes = meta.attributes(self.seal.as_ref()).map_err(other)?;
        self.cache
            .transaction(|db| doubt::send(db, &put.key, &meta.sha256, put.parent, &put.name))?;
        self.keep_what_goes_up();
        let length = header.len() as u64 + source.attr.size;
        if length <= PART {
            let content = self.piece(&source, 0, source.attr.size as usize);
            let Some(content) = content.await? else {
                return Ok(Done::Later);
            };
            let mut body = header;
            body.extend(content);
            if let Some(seal) = &self.seal {
                body = seal.seal(&body).map_err(other)?;
            }
            let etag = self.put_whole(key, body, attributes, expect).await?;
            if source.attr.size > fetch::PART && put.shown.is_none() {
                self.tell_parts(key, &etag, digests).await;
            }
            return Ok(Done::Written { etag, meta });
        }
        let upload = self.begin_parts(key, attributes).await?;
        let sent = self
            .send_parts(&source, key, &upload, &header, length)
            .await;
        let Some(etag) = self.end_parts(key, &upload, sent, expect).await? else {
            return Ok(Done::Later);
        };
        // They would have to be of parts without the front matter.
        if put.shown.is_none() {
            self.tell_parts(key, &etag, digests).await;
        }
        Ok(Done::Written { etag, meta })
    }

    /// Makes an object of parts. Without them, and if it cannot be made, they are given up.
    pub(super) async fn end_parts(
        &self,
        key: &str,
        upload: &str,
        parts: Result<Option<Vec<String>>, RemoteError>,
        expect: &Expect,
    ) -> Result<Option<String>, RemoteError> {
        let made = match parts {
            Ok(Some(parts)) => {
                let made = self.put_parts_together(key, upload, &parts, expect);
                made.await.map(Some)
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(made, Ok(Some(_))) {
            self.abort(key, upload).await;
        }
        self.cache
            .transaction(|db| doubt::has_ended(db, key, upload))?;
        made
    }

    /// Begins an upload in parts, which is noted until it ends: one that is cut short would take space in the bucket.
    pub(super) async fn begin_parts(
        &self,
        key: &str,
        attributes: Attributes,
    ) -> Result<String, RemoteError> {
        let upload = self.remote.start_parts(key, attributes).await?;
        self.may_have_unended.store(true, Ordering::Release);
        self.cache
            .transaction(|db| doubt::has_begun(db, key, &upload))?;
        Ok(upload)
    }

    /// Gives up what was cut short, by the end of a mount or of its power. For whoever has the turn, before he begins.
    pub(super) async fn abort_unended(&self) -> Result<(), StoreError> {
        if !self.may_have_unended.load(Ordering::Acquire) {
            return Ok(());
        }
        for (key, upload) in self.cache.transaction(doubt::unended)? {
            match self.remote.abort_parts(&key, &upload).await {
                // Made an object, or given up before.
                Ok(()) | Err(RemoteError::NotFound(_)) => {}
                Err(error) if error.is_of_all() => return Err(error.into()),
                Err(error) => {
                    tracing::warn!(key, %error, "an upload that was cut short still takes space in the bucket");
                }
            }
            self.cache
                .transaction(|db| doubt::has_ended(db, &key, &upload))?;
        }
        self.may_have_unended.store(false, Ordering::Release);
        Ok(())
    }

    /// Tells others the digests of a large file's parts. Without them they fetch all of it anew, and cannot tell a wrong
    /// byte on the way.
    pub(super) async fn tell_parts(&self, key: &str, etag: &str, sha256: Vec<String>) {
        let parts = Parts {
            etag: etag.to_owned(),
            sha256,
        };
        let at = self.layout.parts(key);
        if let Err(error) = self.put_json(&at, &parts, &Expect::Anything).await {
            tracing::debug!(key, %error, "the digests of its parts");
        }
    }

    async fn abort(&self, key: &str, upload: &str) {
        if let Err(error) = self.remote.abort_parts(key, upload).await {
            tracing::warn!(key, %error, "an upload that was given up still takes space in the bucket");
        }
    }

    /// The entity tags of the parts; `None` if the file changed meanwhile.
    async fn send_parts(
        &self,
        source: &Arc<Source>,
        key: &str,
        upload: &str,
        header: &[u8],
        length: u64,
    ) -> Result<Option<Vec<String>>, RemoteError> {
        let prefix = Seal::new_prefix().map_err(other)?;
        let each = part_of(length);
        let count = length.div_ceil(each);
        let parts = stream::iter(0..count).map(|part| {
            let (start, end) = (part * each, ((part + 1) * each).min(length));
            async move {
                let first_content = start.max(header.len() as u64);
                let from = header.len().min(start as usize);
                let mut body = header[from..header.len().min(end as usize)].to_vec();
                let offset = first_content - header.len() as u64;
                let size = end.saturating_sub(first_content) as usize;
                let Some(content) = self.piece(source, offset, size).await? else {
                    return Ok(None);
                };
                body.extend(content);
                if let Some(seal) = &self.seal {
                    let more = part + 1 < count;
                    let sealed = seal.seal_segments(&prefix, part * (each / SEGMENT), &body, more);
                    let first = if part == 0 {
                        prefix.to_vec()
                    } else {
                        Vec::new()
                    };
                    body = [first, sealed.map_err(other)?].concat();
                }
                let body = Bytes::from(body);
                let etag = self
                    .remote
                    .put_part(key, upload, part as usize, body)
                    .await?;
                Ok::<_, RemoteError>(Some(etag))
            }
        });
        let sent: Vec<Option<String>> = parts.buffered(PARALLEL_PARTS).try_collect().await?;
        Ok(sent.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_more_parts_than_s3_takes() {
        for length in [1, PART, 78 << 30, (78 << 30) + (1 << 27), 512 << 30] {
            let part = part_of(length);
            assert!(length.div_ceil(part) <= PARTS_MAX, "{length}");
            assert!(part >= PART && part.is_multiple_of(SEGMENT), "{length}");
        }
        assert_eq!(part_of(10_000 * PART), PART);
        assert_eq!(part_of(10_000 * PART + 1), PART + PART_UNIT);
    }
}
