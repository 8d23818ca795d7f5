//! Performing a batch: what the journal holds goes up, in parallel where the order leaves it open.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::Inner;
use super::cache::{self, Object};
use super::config::ConflictPolicy;
use super::doubt;
use super::identity::Met;
use super::layout;
use super::noted::{Left, Name, Noted, Own};
use super::object::{self, Meta};
use super::plan::{self, Body, Plan, Put};
use super::remote::{Expect, Fetched, RemoteError};
use super::stubbed::StubChange;
use crate::sqlite::db::Db;
use crate::store::{Attr, Errno, Ino, Kind, Store, StoreError};

/// Requests under way at once.
pub(super) const PARALLEL: usize = 32;

/// What others can tell by which parts of a large file a change has left alone.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    pub(super) etag: String,
    /// Of each part of the content, in hexadecimal.
    pub(super) sha256: Vec<String>,
}

/// What became of a put.
pub(super) enum Done {
    /// The object is there.
    Written { etag: String, meta: Meta },
    /// Somebody else has written it.
    Conflict(Box<Fetched>),
    /// The file changed while it was read: it is journalled again.
    Later,
    /// The server had gone away before its turn came.
    NotTried,
}

/// So often a batch begins anew because somebody else was there first with one of its files, or one has changed while
/// it was read.
const ROUNDS_MAX: usize = 8;

/// How a batch ended.
enum Ended {
    /// The bucket has all of it.
    Done,
    /// What is not there yet has to be planned anew: these files changed while they were read, and somebody else may
    /// have been first with others.
    Again(BTreeSet<Ino>),
}

impl Put {
    /// Whether an object that was written may have the entity tag that others know of what was there before.
    pub(super) fn is_touched(&self, etag: &str, meta: &Meta) -> bool {
        let before = self.known.as_ref().map(|known| &known.etag);
        let before = before.or(self.last_etag.as_ref());
        before.is_some_and(|before| before == etag) || meta.version > self.version_before() + 1
    }

    /// The version that is replaced, or that was the last one before.
    fn version_before(&self) -> u64 {
        let known = self.known.as_ref().map(|known| known.meta.version);
        known.unwrap_or(self.last_version)
    }
}

impl Inner {
    /// Brings everything up that was journalled when it begins, but for what is `resting`. `in_bucket` is called as soon
    /// as the bucket has all of it, where that is before the journal says so.
    pub(super) async fn upload(
        &self,
        resting: Option<&Left>,
        in_bucket: &mut dyn FnMut(),
    ) -> Result<(), Left> {
        if self.is_emptied.load(Ordering::Acquire) || self.is_offline.load(Ordering::Acquire) {
            // Says why, or finds the bucket as it was; and nothing goes up before the first look.
            self.pull().await?;
        }
        self.abort_unended().await?;
        let changes = self.changes.load(Ordering::Acquire);
        let mut restless = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let plan = self
                .cache
                .transaction(|db| plan::plan(db, self.seal.as_ref(), &restless))?;
            let mut ended = Ended::Done;
            if !plan.is_empty() {
                self.keep_what_goes_up();
                self.tally.batches.fetch_add(1, Ordering::Relaxed);
                ended = self.perform(plan, resting, in_bucket).await?;
            }
            match ended {
                Ended::Done => {
                    self.synced.fetch_max(changes, Ordering::AcqRel);
                    return Ok(());
                }
                Ended::Again(mut later) => restless.append(&mut later),
            }
        }
        let reason = "S3: the same files change again and again, here or by others: what is missing goes up later";
        Err(StoreError::storage(Errno::AGAIN, reason).into())
    }

    /// What goes up, and the note that it does, is on this disk before: after power loss the bucket would else be ahead of
    /// the cache, and the next change here a conflict with ourselves.
    pub(super) fn keep_what_goes_up(&self) {
        if let Err(error) = self.cache.sync() {
            tracing::warn!(%error, "it goes up all the same: the bucket keeps what this disk may not");
        }
    }

    async fn perform(
        &self,
        mut plan: Plan,
        resting: Option<&Left>,
        in_bucket: &mut dyn FnMut(),
    ) -> Result<Ended, Left> {
        let batch = plan.batch;
        let to_put = plan.added.iter().chain(&plan.changed);
        let mut left: BTreeSet<Name> = to_put.map(|put| (put.parent, put.name.clone())).collect();
        let mut put = Noted::default();
        if let Some(resting) = resting {
            put.let_rest(&mut plan, resting);
        }
        let added = std::mem::take(&mut plan.added);
        let changed = std::mem::take(&mut plan.changed);
        let nothing_follows = !plan.must_tell && plan.gone.is_empty() && plan.doubtful.is_empty();
        let added_are_all = nothing_follows && changed.is_empty() && put.is_all();
        let added = self.put_all(added, batch, added_are_all.then_some(&mut *in_bucket));
        put.append(added.await?);
        if put.is_cut_short() {
            // Ours has another name now, or is not there. What it was called is deleted only after it has gone up.
            return Ok(Ended::Again(put.later));
        }
        let changed = plan::hold_back(changed, &mut put.failed);
        let mut changed = self.fetch_overwritten(changed, &mut put).await?;
        loop {
            changed = plan::hold_back(changed, &mut put.failed);
            if changed.is_empty() {
                break;
            }
            let first = plan::next_in_order(&mut changed);
            let replaced = first.iter().filter_map(|put| put.known.as_ref());
            self.fetch_unlinked(replaced).await?;
            let are_all = nothing_follows && changed.is_empty() && put.is_all();
            let first = self.put_all(first, batch, are_all.then_some(&mut *in_bucket));
            put.append(first.await?);
            if put.is_cut_short() {
                return Ok(Ended::Again(put.later));
            }
        }
        left.retain(|name| !put.names.contains(name));
        if put.must_tell || plan.must_tell {
            let touched = self.cache.transaction(cache::touched)?;
            self.write_manifest(&plan.directories, &touched).await?;
            plan.must_tell = false;
        }
        if !plan.doubtful.is_empty() {
            let (found, failed) = self.find_doubtful(&plan.doubtful).await?;
            plan.gone.extend(found);
            for (doubt, error) in failed {
                left.insert((doubt.parent, doubt.name.clone()));
                put.reason.get_or_insert(error.into());
            }
        }
        for gone in std::mem::take(&mut plan.gone) {
            if let Some(resting) = resting.filter(|it| it.holds(gone.parent, &gone.name)) {
                put.reason.get_or_insert_with(|| resting.again());
                left.insert((gone.parent, gone.name));
            } else if put.failed.contains(&gone.ino) {
                // The old name of a file that is not there under its new one holds its content.
                left.insert((gone.parent, gone.name));
            } else {
                plan.gone.push(gone);
            }
        }
        self.fetch_unlinked(plan.gone.iter()).await?;
        for (object, error) in self.delete_all(&plan.gone, batch).await? {
            left.insert((object.parent, object.name.clone()));
            put.reason.get_or_insert(error.into());
        }
        plan.doubtful
            .retain(|it| !left.contains(&(it.parent, it.name.clone())));
        if !plan.doubtful.is_empty() {
            let over = plan.doubtful.iter();
            self.cache
                .transaction(|db| over.clone().try_for_each(|it| doubt::is_over(db, &it.key)))?;
        }
        // Mostly nothing is left: each transaction is time that somebody waits for the bucket.
        plan.names
            .retain(|name| !put.names.contains(name) && !left.contains(name));
        plan.inodes
            .retain(|ino| !put.inodes.contains(ino) && !put.failed.contains(ino));
        if !plan.is_empty() {
            self.cache.transaction(|db| {
                for (parent, name) in &plan.names {
                    cache::clean_name(db, *parent, name, batch)?;
                }
                for ino in &plan.inodes {
                    cache::clean_inode(db, *ino, batch)?;
                }
                Ok(())
            })?;
        }
        match put.reason {
            Some(reason) => Err(Left {
                reason,
                own: Some(Own {
                    names: left,
                    files: put.failed,
                }),
            }),
            None => Ok(Ended::Done),
        }
    }

    /// Puts objects in parallel, and notes each that got there, also if another did not. `all_there` is called when
    /// all are there and nobody needs to be told anything else, before the last are noted. An error is one of the server,
    /// and not of one file.
    async fn put_all(
        &self,
        puts: Vec<Put>,
        batch: u64,
        mut all_there: Option<&mut dyn FnMut()>,
    ) -> Result<Noted, StoreError> {
        let mut noted = Noted::default();
        let mut away = None;
        let mut under_way = puts.len();
        // A server that does not answer is not asked for everything else as well.
        let is_away = AtomicBool::new(false);
        let is_away = &is_away;
        let mut stream = stream::iter(puts)
            .map(|put| async move {
                if is_away.load(Ordering::Relaxed) {
                    return (put, Ok(Done::NotTried));
                }
                let done = self.put(&put).await;
                if done.as_ref().is_err_and(RemoteError::is_of_all) {
                    is_away.store(true, Ordering::Relaxed);
                }
                (put, done)
            })
            .buffer_unordered(PARALLEL)
            .ready_chunks(PARALLEL);
        while let Some(chunk) = stream.next().await {
            let mut written = Vec::new();
            let mut contested = Vec::new();
            for (put, done) in chunk {
                under_way -= 1;
                match done {
                    Ok(Done::Written { etag, meta }) => {
                        noted.must_tell |= put.is_touched(&etag, &meta);
                        written.push((put, etag, meta));
                    }
                    Ok(Done::Later) if self.never_rests(&put) => {
                        let reason = format!(
                            "S3: {} is too long to be copied while it is written to, or the disk too full: it goes up when it rests",
                            put.key
                        );
                        noted.fail(put.attr.ino, StoreError::storage(Errno::AGAIN, reason));
                    }
                    Ok(Done::Later) => {
                        noted.later.insert(put.attr.ino);
                    }
                    Ok(Done::Conflict(theirs)) => {
                        // What else has got there is noted first.
                        contested.push((put, theirs));
                    }
                    // The one that was tried has failed.
                    Ok(Done::NotTried) => {}
                    Err(error) if error.is_of_all() => away = Some(StoreError::from(error)),
                    Err(error) => noted.fail(put.attr.ino, error.into()),
                }
            }
            if under_way == 0
                && away.is_none()
                && contested.is_empty()
                && noted.is_all()
                && let Some(all_there) = all_there.take()
            {
                all_there();
            }
            self.note_written(written, batch, &mut noted)?;
            for (put, theirs) in contested {
                match self.resolve_conflict(&put, &theirs).await {
                    Ok(()) => {
                        noted.is_contested = true;
                        self.tally.conflicts.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => noted.fail(put.attr.ino, error),
                }
            }
        }
        match away {
            Some(error) => Err(error),
            None => Ok(noted),
        }
    }

    pub(super) fn note_written(
        &self,
        written: Vec<(Put, String, Meta)>,
        batch: u64,
        noted: &mut Noted,
    ) -> Result<(), StoreError> {
        if written.is_empty() {
            return Ok(());
        }
        self.tally
            .uploaded
            .fetch_add(written.len() as u64, Ordering::Relaxed);
        self.has_news.store(true, Ordering::Release);
        self.with_stubs(|db, stubs| {
            for (put, etag, meta) in &written {
                let before = cache::object_of_key(db, &put.key)?;
                cache::put_object(
                    db,
                    &Object {
                        parent: put.parent,
                        name: put.name.clone(),
                        key: put.key.clone(),
                        ino: put.attr.ino,
                        etag: etag.clone(),
                        meta: meta.clone(),
                    },
                )?;
                // What was never read of another file is not there any more.
                if let Some(before) = before.filter(|before| before.ino != put.attr.ino) {
                    stubs.extend(StubChange::follow(db, before.ino, &before.key)?);
                }
                doubt::is_written(db, &put.key, &meta.sha256)?;
                if put.is_touched(etag, meta) {
                    cache::set_touched(db, &put.key, meta.version)?;
                }
                cache::clean_name(db, put.parent, &put.name, batch)?;
                if put.attr.nlink <= 1 {
                    // Also if another put of the batch fails: this one need not come again.
                    cache::clean_inode(db, put.attr.ino, batch)?;
                }
                self.audit(db, "write", &put.key, meta.version, &meta.sha256)?;
            }
            Ok(())
        })?;
        for (put, _, _) in written {
            if put.attr.nlink <= 1 {
                noted.inodes.insert(put.attr.ino);
            }
            noted.names.insert((put.parent, put.name));
        }
        Ok(())
    }

    pub(super) fn audit(
        &self,
        db: &Db,
        what: &str,
        key: &str,
        version: u64,
        sha256: &str,
    ) -> Result<(), StoreError> {
        let line = serde_json::json!({
            "at": jiff::Timestamp::now().to_string(),
            "writer": self.config.writer,
            "what": what,
            "key": key,
            "version": version,
            "sha256": sha256,
        });
        cache::add_audit(db, &line.to_string())
    }

    fn expectation(&self, put: &Put) -> Expect {
        match (&put.known, self.config.conflicts) {
            (_, ConflictPolicy::LastWriteWins) => Expect::Anything,
            (Some(known), _) => Expect::Etag(known.etag.clone()),
            (None, _) => Expect::Absent,
        }
    }

    pub(super) async fn put(&self, put: &Put) -> Result<Done, RemoteError> {
        let mut expect = self.expectation(put);
        let mut known = put.known.clone();
        for attempt in 0..3 {
            match self.put_expecting(put, known.as_ref(), &expect).await {
                Err(RemoteError::Changed(_)) => {}
                // The server may have done it all the same; if not, the next attempt may fare better.
                Err(RemoteError::NoAnswer(_)) if attempt == 0 && expect != Expect::Anything => {}
                written => return written,
            }
            match self.remote.head(&self.key(&put.key)).await {
                Ok(theirs) => match self.met(put, known.as_ref(), &theirs).await? {
                    // It got there, but we did not hear of it: before a crash, or a lost answer.
                    Met::Done(meta) => {
                        let etag = theirs.etag;
                        return Ok(Done::Written { etag, meta });
                    }
                    Met::Known(replaced) => {
                        expect = Expect::Etag(theirs.etag);
                        known = replaced.or(known);
                    }
                    Met::Another => return Ok(Done::Conflict(Box::new(theirs))),
                },
                // Deleted by somebody else, and changed by us: the change stays.
                Err(RemoteError::NotFound(_)) => {
                    // HEAD does not say what is not there.
                    self.remote.has_bucket().await?;
                    expect = Expect::Absent;
                }
                Err(error) => return Err(error),
            }
        }
        Err(RemoteError::Changed(put.key.clone()))
    }

    async fn put_expecting(
        &self,
        put: &Put,
        known: Option<&Object>,
        expect: &Expect,
    ) -> Result<Done, RemoteError> {
        let key = self.key(&put.key);
        if let Some(known) = known {
            self.keep_version(known).await?;
        }
        let version = known.map_or(put.last_version, |known| known.meta.version) + 1;
        match &put.body {
            Body::Bytes(bytes) => self.put_bytes(put, &key, bytes, version, expect).await,
            Body::File | Body::Restless => self.put_file(put, &key, version, expect).await,
            Body::Copy(source) => match self.put_copy(put, &key, source, version, expect).await? {
                Some(done) => Ok(done),
                None => {
                    tracing::debug!(
                        key,
                        "sent: its other object has changed, or this server copies on no condition"
                    );
                    self.put_file(put, &key, version, expect).await
                }
            },
        }
    }

    /// What stands before the content, and what is said of it.
    pub(super) fn describe(
        &self,
        put: &Put,
        attr: &Attr,
        version: u64,
        sha256: String,
    ) -> (Vec<u8>, Meta) {
        let mut meta = Meta::new(attr, version, &self.config.writer, sha256, attr.size);
        meta.name.clone_from(&put.other_name);
        if !meta.set_xattrs(&put.xattrs) {
            tracing::warn!(
                key = put.key,
                "its extended attributes take more than {} bytes, and stay on this machine",
                object::XATTRS_MAX
            );
        }
        if let Some(shown) = &put.shown {
            (meta.size, meta.header) = (shown.size, shown.header);
            meta.sha256.clone_from(&shown.sha256);
            return (Vec::new(), meta);
        }
        let has_front_matter = put.attr.kind == Kind::File
            && layout::is_markdown(&put.name)
            && !self.config.front_matter_visible;
        let mut header = Vec::new();
        if has_front_matter {
            header = meta.front_matter().into_bytes();
            meta.header = header.len() as u64;
        }
        (header, meta)
    }

    async fn put_bytes(
        &self,
        put: &Put,
        key: &str,
        bytes: &[u8],
        version: u64,
        expect: &Expect,
    ) -> Result<Done, RemoteError> {
        let sha256 = put.sha256.clone();
        let sha256 = sha256.unwrap_or_else(|| object::checksum(bytes));
        let (mut body, meta) = self.describe(put, &put.attr, version, sha256);
        body.extend_from_slice(bytes);
        if let Some(seal) = &self.seal {
            body = seal.seal(&body).map_err(other)?;
        }
        let attributes = meta.attributes(self.seal.as_ref()).map_err(other)?;
        let etag = self.put_whole(key, body, attributes, expect).await?;
        Ok(Done::Written { etag, meta })
    }
}

pub(super) fn other(error: impl std::fmt::Display) -> RemoteError {
    RemoteError::Other(error.to_string())
}
