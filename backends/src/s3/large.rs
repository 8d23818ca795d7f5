//! Files that a batch does not hold: read when their turn comes, and sent in parts where they are large.

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};

use super::plan::Put;
use super::remote::{Expect, RemoteError};
use super::seal::{SEGMENT, Seal};
use super::upload::{Done, Parts, other};
use super::{Inner, doubt, fetch, object};
use crate::store::Store;

/// Objects from this size on go up in parts, of this size each.
const PART: u64 = 8 << 20;

/// Parts under way at once.
const PARALLEL_PARTS: usize = 4;

impl Inner {
    /// Reads a piece of a file; `None` if it is no longer as it was when the batch was planned.
    fn piece(&self, put: &Put, offset: u64, size: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(size);
        self.cache
            .read(put.attr.ino, offset, size, &mut bytes)
            .ok()?;
        let now = self.cache.getattr(put.attr.ino).ok()?;
        let is_same = now.mtime == put.attr.mtime && now.size == put.attr.size;
        (is_same && bytes.len() == size).then_some(bytes)
    }

    /// The checksums of a file, and of each of the parts that others fetch it in.
    pub(super) fn checksum_of_file(&self, put: &Put) -> Option<(String, Vec<String>)> {
        let mut hash = Sha256::new();
        let mut parts = Vec::new();
        let mut at = 0;
        while at < put.attr.size {
            let size = fetch::PART.min(put.attr.size - at);
            let piece = self.piece(put, at, size as usize)?;
            hash.update(&piece);
            parts.push(object::checksum(&piece));
            at += size;
        }
        Some((object::hex(&hash.finalize()), parts))
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
        // The checksum stands before the content: the file is read twice rather than held.
        let Some((sha256, digests)) = self.checksum_of_file(put) else {
            return Ok(Done::Later);
        };
        let (header, meta) = self.describe(put, version, sha256);
        let attributes = meta.attributes(self.seal.as_ref()).map_err(other)?;
        self.cache
            .transaction(|db| doubt::send(db, &put.key, &meta.sha256, put.parent, &put.name))?;
        let length = header.len() as u64 + put.attr.size;
        if length <= PART {
            let Some(content) = self.piece(put, 0, put.attr.size as usize) else {
                return Ok(Done::Later);
            };
            let mut body = header;
            body.extend(content);
            if let Some(seal) = &self.seal {
                body = seal.seal(&body).map_err(other)?;
            }
            let etag = self
                .remote
                .put(key, Bytes::from(body), attributes, expect)
                .await?;
            if put.attr.size > fetch::PART {
                self.tell_parts(key, &etag, digests).await;
            }
            return Ok(Done::Written { etag, meta });
        }
        let upload = self.remote.start_parts(key, attributes).await?;
        let sent = self.send_parts(put, key, &upload, &header, length).await;
        let etag = match sent {
            Ok(Some(parts)) => {
                self.remote
                    .complete_parts(key, &upload, &parts, expect)
                    .await
            }
            Ok(None) => {
                self.abort(key, &upload).await;
                return Ok(Done::Later);
            }
            Err(error) => Err(error),
        };
        match etag {
            Ok(etag) => {
                self.tell_parts(key, &etag, digests).await;
                Ok(Done::Written { etag, meta })
            }
            Err(error) => {
                self.abort(key, &upload).await;
                Err(error)
            }
        }
    }

    /// Tells others the digests of a large file's parts. Without them they fetch all of it anew, and cannot tell a wrong
    /// byte on the way.
    async fn tell_parts(&self, key: &str, etag: &str, sha256: Vec<String>) {
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
        put: &Put,
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
                let Some(content) = self.piece(put, offset, size) else {
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
