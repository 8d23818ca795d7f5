//! Files that a batch does not hold: read when their turn comes, and sent in parts where they are large.

use std::fs::File;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::plan::{Body, Put};
use super::remote::{Expect, RemoteError};
use super::seal::{SEGMENT, Seal};
use super::upload::{Done, Parts, other};
use super::{Inner, doubt, fetch, object};
use crate::store::{Attr, Errno, Store};

/// Objects from this size on go up in parts, of this size each.
pub(super) const PART: u64 = 8 << 20;

/// Parts under way at once.
pub(super) const PARALLEL_PARTS: usize = 4;

/// A file that keeps changing while it is sent is copied first if it is no longer than this: who writes to it waits for
/// the copy.
const COPIED_MAX: u64 = 1 << 30;

/// A file as it goes up.
#[derive(Debug)]
pub(super) struct Source {
    attr: Attr,
    /// Of all its content, where it would not stand still.
    copy: Option<File>,
}

impl Inner {
    /// Where the bytes of a file are read from; `None` if it is gone.
    fn source(&self, put: &Put) -> Result<Option<Source>, RemoteError> {
        let as_planned = || Source {
            attr: put.attr,
            copy: None,
        };
        if !matches!(put.body, Body::Restless) {
            return Ok(Some(as_planned()));
        }
        match self.cache.copy_of(put.attr.ino, COPIED_MAX) {
            Ok(Some((copy, attr))) => Ok(Some(Source {
                attr,
                copy: Some(copy),
            })),
            // Too long: it goes up when it stands still.
            Ok(None) => Ok(Some(as_planned())),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a file that changes while it is read would do so again: it is there, and no copy was made of it.
    pub(super) fn never_rests(&self, put: &Put) -> bool {
        matches!(put.body, Body::Restless) && self.cache.getattr(put.attr.ino).is_ok()
    }

    /// Reads a piece of a file; `None` if it is no longer as it was.
    fn piece(
        &self,
        source: &Source,
        offset: u64,
        size: usize,
    ) -> Result<Option<Vec<u8>>, RemoteError> {
        if let Some(copy) = &source.copy {
            let mut bytes = vec![0; size];
            copy.read_exact_at(&mut bytes, offset).map_err(other)?;
            return Ok(Some(bytes));
        }
        let mut bytes = Vec::with_capacity(size);
        let ino = source.attr.ino;
        let read = self.cache.read(ino, offset, size, &mut bytes);
        let now = match read.and_then(|()| self.cache.getattr(ino)) {
            Ok(now) => now,
            // Removed meanwhile, which the journal says, too.
            Err(error) if error.errno == Errno::NOENT => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let is_same = now.mtime == source.attr.mtime && now.size == source.attr.size;
        Ok((is_same && bytes.len() == size).then_some(bytes))
    }

    /// The checksum of a file as it was planned; `None` if it has changed since, or is not here.
    pub(super) fn checksum_of(&self, put: &Put) -> Result<Option<String>, RemoteError> {
        if self.is_stub(put.attr.ino) {
            return Ok(None);
        }
        let Some(source) = self.source(put)? else {
            return Ok(None);
        };
        Ok(self.digest(&source)?.map(|(sha256, _)| sha256))
    }

    /// The checksums of a file, and of each of the parts that others fetch it in.
    fn digest(&self, source: &Source) -> Result<Option<(String, Vec<String>)>, RemoteError> {
        let mut hash = Sha256::new();
        let mut parts = Vec::new();
        let mut at = 0;
        while at < source.attr.size {
            let size = fetch::PART.min(source.attr.size - at);
            let Some(piece) = self.piece(source, at, size as usize)? else {
                return Ok(None);
            };
            hash.update(&piece);
            parts.push(object::checksum(&piece));
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
        let Some(source) = self.source(put)? else {
            return Ok(Done::Later);
        };
        // The checksum stands before the content: the file is read twice rather than held.
        let Some((sha256, digests)) = self.digest(&source)? else {
            return Ok(Done::Later);
        };
        let (header, meta) = self.describe(put, &source.attr, version, sha256);
        let attributes = meta.attributes(self.seal.as_ref()).map_err(other)?;
        self.cache
            .transaction(|db| doubt::send(db, &put.key, &meta.sha256, put.parent, &put.name))?;
        self.keep_what_goes_up();
        let length = header.len() as u64 + source.attr.size;
        if length <= PART {
            let Some(content) = self.piece(&source, 0, source.attr.size as usize)? else {
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
        let upload = self.remote.start_parts(key, attributes).await?;
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
        made
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
        source: &Source,
        key: &str,
        upload: &str,
        header: &[u8],
        length: u64,
    ) -> Result<Option<Vec<String>>, RemoteError> {
        let prefix = Seal::new_prefix().map_err(other)?;
        let count = length.div_ceil(PART);
        let parts = stream::iter(0..count).map(|part| {
            let (start, end) = (part * PART, ((part + 1) * PART).min(length));
            async move {
                let first_content = start.max(header.len() as u64);
                let from = header.len().min(start as usize);
                let mut body = header[from..header.len().min(end as usize)].to_vec();
                let offset = first_content - header.len() as u64;
                let size = end.saturating_sub(first_content) as usize;
                let Some(content) = self.piece(source, offset, size)? else {
                    return Ok(None);
                };
                body.extend(content);
                if let Some(seal) = &self.seal {
                    let more = part + 1 < count;
                    let sealed = seal.seal_segments(&prefix, part * (PART / SEGMENT), &body, more);
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
