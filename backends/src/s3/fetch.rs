//! Bringing content in when it is first read: small files whole, large ones in parts, a few ahead.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::try_join_all;
use futures::{StreamExt, stream};

use super::Inner;
use super::cache::{self, Object};
use super::large::PARALLEL_PARTS;
use super::noted::Noted;
use super::object::{self, Meta};
use super::plan::Put;
use super::remote::{Fetched, RemoteError};
use super::seal::{self, SEGMENT};
use super::stub::{self, Stub};
use super::stubbed::Stubbed;
use super::upload::Parts;
use crate::sqlite::{content, nodes};
use crate::store::{Caller, Errno, Ino, Store, StoreError, Timestamp};

/// Bytes of content in a part; smaller files are fetched whole.
pub(super) const PART: u64 = 4 << 20;

/// Parts that are fetched beyond what was asked for, when what was asked for goes on where the last ended.
const AHEAD: u64 = 2;

/// How often a file that keeps changing is fetched again.
pub(super) const ATTEMPTS: u32 = 4;

impl Inner {
    /// Brings in all of a file.
    pub(super) async fn fetch_all(&self, ino: Ino) -> Result<(), RemoteError> {
        self.fetch_version(ino, 0..u64::MAX, false).await
    }

    /// Brings in what is only in objects that are about to go, of files that have lost their names: somebody may have
    /// one open.
    ///
    /// # Errors
    /// If the server is away: nothing is to go then.
    pub(super) async fn fetch_unlinked(
        &self,
        objects: impl Iterator<Item = &Object>,
    ) -> Result<(), StoreError> {
        let lost = objects.filter(|object| {
            let stubbed = self.stub_of(object.ino);
            stubbed.is_some_and(|it| it.stub.key == object.key)
                && self
                    .cache
                    .getattr(object.ino)
                    .is_ok_and(|attr| attr.nlink == 0)
        });
        let lost: Vec<(Ino, &str)> = lost.map(|it| (it.ino, it.key.as_str())).collect();
        for (key, error) in self.fetch_each(lost).await? {
            tracing::warn!(key, %error, "it was not fetched before it goes: who has it open cannot read it");
        }
        Ok(())
    }

    /// Brings in all of several files, each with what it is called in the answer: which of them failed, for a reason of
    /// their own.
    ///
    /// # Errors
    /// If the server is away.
    pub(super) async fn fetch_each<T>(
        &self,
        files: Vec<(Ino, T)>,
    ) -> Result<Vec<(T, RemoteError)>, StoreError> {
        // What is under way is held in memory.
        let mut fetched = stream::iter(files)
            .map(|(ino, name)| async move { (name, self.fetch_all(ino).await) })
            .buffer_unordered(PARALLEL_PARTS);
        let mut failed = Vec::new();
        while let Some((name, fetched)) = fetched.next().await {
            match fetched {
                Ok(()) => {}
                Err(error) if error.is_of_all() => return Err(error.into()),
                Err(error) => failed.push((name, error)),
            }
        }
        Ok(failed)
    }

    /// Brings in what is in an object that the batch overwrites, and goes to another: files that were never read, and
    /// have changed places. It would be gone there before it was fetched. Answers what can be put, and notes the rest: a
    /// file that cannot be fetched, and what would overwrite it.
    ///
    /// # Errors
    /// If the server is away: nothing is to be overwritten then.
    pub(super) async fn fetch_overwritten(
        &self,
        changed: Vec<Put>,
        noted: &mut Noted,
    ) -> Result<Vec<Put>, StoreError> {
        let overwritten: BTreeSet<&str> = changed.iter().map(|put| put.key.as_str()).collect();
        let unread = changed.iter().filter_map(|put| {
            let from = self.stub_of(put.attr.ino)?.stub.key.clone();
            let goes = from != put.key && overwritten.contains(from.as_str());
            goes.then(|| (put.attr.ino, (put.attr.ino, put.key.clone(), from)))
        });
        let mut left_out = BTreeSet::new();
        for ((ino, key, from), error) in self.fetch_each(unread.collect()).await? {
            left_out.extend([key, from]);
            noted.fail(ino, error.into());
        }
        let (kept, left): (Vec<Put>, Vec<Put>) = changed
            .into_iter()
            .partition(|put| !left_out.contains(&put.key));
        noted.failed.extend(left.iter().map(|put| put.attr.ino));
        Ok(kept)
    }

    /// Brings in what is not here of a range, for who reads it: of the version that is known, if that was kept. The
    /// kernel has its size: of a later one a part would be seen, and could be written back without a conflict.
    pub(super) async fn fetch(&self, ino: Ino, range: Range<u64>) -> Result<(), RemoteError> {
        self.fetch_version(ino, range, true).await
    }

    async fn fetch_version(
        &self,
        ino: Ino,
        range: Range<u64>,
        is_read: bool,
    ) -> Result<(), RemoteError> {
        for attempt in 1..=ATTEMPTS {
            let Some(stubbed) = self.stub_of(ino) else {
                return Ok(());
            };
            let _fetching = stubbed.fetching.lock().await;
            if !self.is_current(ino, &stubbed) {
                // All of it came meanwhile, or it is another object now, of which nothing is here.
                continue;
            }
            let fetched = self.fetch_once(ino, &stubbed, &range).await;
            match fetched {
                Ok(()) if self.is_here(ino, &range) => return Ok(()),
                // It is in another object since.
                Ok(()) => self.reread_stub(ino)?,
                Err(RemoteError::Changed(_) | RemoteError::NotFound(_)) => {
                    // Where nothing was changed here, as attributes are merged with the later version.
                    let wants_known = is_read
                        && !self
                            .cache
                            .transaction(|db| cache::is_dirty_inode(db, ino))?;
                    if wants_known && self.find_kept(&stubbed).await? {
                        continue;
                    }
                    // A new version since it was listed: take that.
                    let refreshed = self.refresh(ino, &stubbed.stub).await;
                    let is_gone = matches!(refreshed, Err(RemoteError::NotFound(_)));
                    if !is_gone || !self.find_kept(&stubbed).await? {
                        refreshed?;
                    }
                }
                Err(RemoteError::Damaged(reason)) if attempt < ATTEMPTS => {
                    tracing::warn!(reason, "fetched again");
                    self.tally.wrong_checksums.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        Err(keeps_changing().into())
    }

    /// What is placed nowhere, because the file is in another object since, is no error.
    async fn fetch_once(
        &self,
        ino: Ino,
        stubbed: &Arc<Stubbed>,
        range: &Range<u64>,
    ) -> Result<(), RemoteError> {
        if stubbed.has(range) {
            return Ok(());
        }
        self.tally.fetches.fetch_add(1, Ordering::Relaxed);
        if stubbed.count() <= 1 {
            return self.fetch_whole(ino, stubbed).await;
        }
        let wanted = stubbed.parts_of(range);
        let goes_on = wanted.start == 0 || stubbed.parts().contains(&(wanted.start - 1));
        let ahead = if goes_on { AHEAD } else { 0 };
        let last = (wanted.end + ahead).min(stubbed.count());
        let missing: Vec<u64> = {
            let parts = stubbed.parts();
            (wanted.start..last)
                .filter(|part| !parts.contains(part))
                .collect()
        };
        // A few at a time: what is under way is held in memory.
        for some in missing.chunks(4) {
            let fetched = some.iter().map(|part| self.fetch_part(stubbed, *part));
            let bodies = try_join_all(fetched).await?;
            for (part, body) in some.iter().zip(bodies) {
                if !self.place_content(ino, stubbed, *part * PART, &body, Some(*part))? {
                    return Ok(());
                }
            }
        }
        if stubbed.parts().len() as u64 == stubbed.count() {
            // The tables have let go of it with the last part.
            self.let_go(ino, stubbed);
        }
        Ok(())
    }

    async fn fetch_whole(&self, ino: Ino, stubbed: &Arc<Stubbed>) -> Result<(), RemoteError> {
        let stub = &stubbed.stub;
        let (key, etag) = self.source_of(stubbed);
        let fetched = self.remote.get(&key).await?;
        if fetched.etag != etag {
            return Err(RemoteError::Changed(key));
        }
        let plain = object::open(&fetched.body, self.seal.as_ref())
            .map_err(|error| RemoteError::Damaged(format!("{key}: {error}")))?;
        let content = plain.get(stub.meta.header as usize..).unwrap_or_default();
        self.check_content(&key, &stub.meta, content, &fetched)?;
        // The checksum of a file that is shown with its front matter is of what follows that.
        if let Some(meta) = Meta::from_attributes(&fetched.attributes, self.seal.as_ref())
            && self.shows_front_matter(&meta)
            && meta.with_front_matter().size == stub.meta.size
        {
            let content = plain.get(meta.header as usize..).unwrap_or_default();
            self.check_content(&key, &meta, content, &fetched)?;
        }
        if self.place_content(ino, stubbed, 0, content, None)? {
            self.let_go(ino, stubbed);
        }
        Ok(())
    }

    /// One part of a large file's content.
    async fn fetch_part(&self, stubbed: &Stubbed, part: u64) -> Result<Vec<u8>, RemoteError> {
        let stub = &stubbed.stub;
        let (key, etag) = self.source_of(stubbed);
        let start = stub.meta.header + part * PART;
        let end = (start + PART).min(stub.meta.header + stub.meta.size);
        let Some(opener) = &self.seal else {
            let digests = stubbed.digests.get_or_try_init(|| self.digests(stub));
            let (fetched, digests) =
                tokio::try_join!(self.remote.get_range(&key, start..end, &etag), digests)?;
            let is_whole = fetched.body.len() as u64 == end - start;
            let digest = digests.get(part as usize);
            if !is_whole || digest.is_some_and(|digest| object::checksum(&fetched.body) != *digest)
            {
                return Err(damaged(&key));
            }
            return Ok(fetched.body.to_vec());
        };
        let (range, first) = seal::segments(start, end);
        let range = range.start..range.end.min(stub.size);
        let to_end = range.end == stub.size;
        let (prefix, sealed) = tokio::try_join!(
            self.remote.get_range(&key, 0..19, &etag),
            self.remote.get_range(&key, range, &etag)
        )?;
        let plain = opener
            .open_segments(&prefix.body, first, &sealed.body, to_end)
            .map_err(|error| RemoteError::Damaged(format!("{key}: {error}")))?;
        let skip = (start - first * SEGMENT) as usize;
        let wanted = plain.get(skip..skip + (end - start) as usize);
        Ok(wanted.unwrap_or_default().to_vec())
    }

    /// The checksums of the parts of a large file; none if its writer has left none of this version.
    async fn digests(&self, stub: &Stub) -> Result<Vec<String>, RemoteError> {
        if self.config.front_matter_visible && stub.meta.sha256.is_empty() {
            // They are of parts without the front matter.
            return Ok(Vec::new());
        }
        let at = self.layout.parts(&self.key(&stub.key));
        match self.remote.get(&at).await {
            Ok(fetched) => {
                let parts: Parts = self.parse_json(&fetched)?;
                let is_of_this = parts.etag == stub.etag;
                Ok(if is_of_this { parts.sha256 } else { Vec::new() })
            }
            Err(RemoteError::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Whether content is what its object says, or at least what the server has.
    pub(super) fn check_content(
        &self,
        key: &str,
        meta: &Meta,
        content: &[u8],
        fetched: &Fetched,
    ) -> Result<(), RemoteError> {
        if content.len() as u64 != meta.size {
            return Err(damaged(key));
        }
        if meta.sha256.is_empty() || object::checksum(content) == meta.sha256 {
            return Ok(());
        }
        // Where the entity tag is a digest of the bytes, it tells a wrong byte on the way from a tool that has written
        // other bytes and kept what the metadata said.
        if object::md5(&fetched.body) != fetched.etag {
            return Err(damaged(key));
        }
        tracing::warn!(
            key,
            "its content is not what its checksum says, but what the server has: another tool has changed it"
        );
        self.tally.wrong_checksums.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes what was fetched, a part or all of it, into the file as if it had always been there, if the stub is still
    /// the same; whether it is.
    fn place_content(
        &self,
        ino: Ino,
        stubbed: &Stubbed,
        offset: u64,
        bytes: &[u8],
        part: Option<u64>,
    ) -> Result<bool, StoreError> {
        let is_placed = self.cache.transaction(|db| {
            let is_same = stub::find(db, ino)?.is_some_and(|now| now.etag == stubbed.stub.etag);
            if !is_same {
                return Ok(false);
            }
            cache::applying(db, |db| {
                let before = nodes::get_file(db, ino)?;
                let caller = Caller {
                    uid: 0,
                    gid: 0,
                    now: Timestamp::now(),
                };
                content::write(db, &caller, ino, offset, bytes)?;
                let mut attr = nodes::get(db, ino)?;
                (attr.mtime, attr.ctime) = (before.mtime, before.ctime);
                attr.size = before.size;
                nodes::update(db, &attr)?;
                match part {
                    Some(part) => {
                        stub::put_part(db, ino, part)?;
                        stub::settle(db, ino, &stubbed.stub).map(drop)
                    }
                    None => stub::remove(db, ino),
                }
            })?;
            Ok(true)
        })?;
        if let Some(part) = part.filter(|_| is_placed) {
            stubbed.parts().insert(part);
        }
        Ok(is_placed)
    }

    /// The size of a file, as the kernel knows it.
    pub(super) fn size(&self, ino: Ino) -> Result<u64, StoreError> {
        Ok(self.cache.getattr(ino)?.size)
    }
}

pub(super) fn keeps_changing() -> StoreError {
    StoreError::storage(Errno::AGAIN, "others keep writing this file")
}

fn damaged(key: &str) -> RemoteError {
    RemoteError::Damaged(format!(
        "{key} came with bytes that are not what its checksum says"
    ))
}

impl From<StoreError> for RemoteError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error.errno {
            Errno::TIMEDOUT => Self::Timeout(message),
            Errno::ACCESS => Self::Refused(message),
            _ => Self::Here(error),
        }
    }
}
