//! The `s3` store: a local `sqlite` file system that follows and feeds an agent's log in a bucket.
//!
//! Every call that returned is in the local database and its journal: it survives a killed daemon, and power loss after
//! `fsync`, as `sqlite` promises. The bucket follows in the background, in atomic commits; `ctxbench s3 sync`, or `fsync`
//! and `close` where the [`SyncMode`] says so, wait for it. docs/S3.md explains the log; crate `s3` has the protocol.

mod adopt;
mod backend;
mod bare;
mod cache;
mod changes;
mod downloads;
mod engine;
mod hydrate;
mod index_link;
mod invalidation;
mod link;
mod memory;
mod mirroring;
mod notes;
mod open;
mod open_error;
mod options;
mod power_loss;
mod prefetch;
mod recovery;
mod retry;
mod tables;
#[cfg(test)]
mod testing;
mod unread;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, KernelCache, NewNode, RenameMode, Result, Seek,
    SlowCall, StatFs, Store, StoreError, XattrMode,
};
use s3::client::{Bucket, Client};
use s3::config::{S3Config, SyncMode};
use s3::objects::Fault;
use s3::session::SessionError;
use s3::tree::Chunk;
use sqlite::SqliteStore;
use sqlite::tables::{GuestRecovery, held};
use tokio::runtime::Runtime;

pub use backend::{BucketMount, S3Mount, S3Variant};
pub use bare::S3Bare;
use engine::Engine;
use index_link::IndexLink;
use invalidation::{Invalidation, StaleEntries};
pub use memory::S3Memory;
pub use open::OpenOptions;
pub use open_error::OpenError;
pub use options::{BucketOptions, BucketOptionsError, Mirror, S3Options};
use tables::Placeholders;
use unread::UnreadVersions;

/// How often a thread that waits for the bucket checks whether its caller has given up.
const GIVE_UP_EVERY: Duration = Duration::from_millis(100);

/// What the tables of the cache need when they are opened.
const RECOVERY: GuestRecovery = GuestRecovery { apply_note: notes::apply, mend: power_loss::mend };

/// Counts of the store's own work.
#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    adopted: AtomicU64,
    conflicts: AtomicU64,
    polls: AtomicU64,
    fetches: AtomicU64,
    failures: AtomicU64,
}

/// The state that the threads of a mount share.
#[derive(Debug)]
struct Inner {
    config: S3Config,
    /// One for reads, one for the engine, and one for the mirror if there is one.
    buckets: Vec<Bucket>,
    /// For reads.
    objects: Client,
    store: Arc<SqliteStore>,
    placeholders: Arc<Placeholders>,
    unread: Arc<UnreadVersions>,
    owner: Caller,
    kernel: Invalidation,
    index: IndexLink,
    /// The number of changes made through the mount.
    changes: AtomicU64,
    /// The number of those changes that the log has.
    synced: AtomicU64,
    /// The mount ends: no thread waits for a request any more.
    is_ending: AtomicBool,
    counters: Counters,
}

impl Inner {
    /// Requests and bytes, as [`Bucket::requests`] counts them.
    fn requests(&self) -> BTreeMap<&'static str, u64> {
        let mut requests = BTreeMap::new();
        for (kind, count) in self.buckets.iter().flat_map(Bucket::requests) {
            *requests.entry(kind).or_default() += count;
        }
        requests
    }

    /// Notes a change made through the mount.
    fn has_changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    fn has_changes(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }
}

/// A failed session as a caller of the file system sees it.
fn session_error(error: &SessionError) -> StoreError {
    let errno = match error {
        SessionError::Fault(Fault::Refused(_)) => Errno::ACCESS,
        SessionError::Replica(error) if error.kind == ErrorKind::StorageFull => Errno::NOSPC,
        _ => Errno::IO,
    };
    StoreError::storage(errno, error)
}

/// An agent's memory in a bucket, mounted.
#[derive(Debug)]
pub struct S3Store {
    inner: Arc<Inner>,
    /// `None` where the memory can only be read.
    engine: Engine,
    /// Why the mount is read-only; `None` if it is not.
    read_only: Option<String>,
    notes: Vec<String>,
    last_failure: hydrate::LastFailure,
    /// Of chunks, by inode and index.
    downloads: downloads::Downloads<(Ino, u64, Chunk)>,
    // Last, so that it is dropped last: requests run on it until the engine has ended.
    runtime: Runtime,
}

impl S3Store {
    /// Messages for the user, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Why the memory can only be read; `None` if it can be written.
    pub fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    /// The number of journalled inodes and names: changed here, and not in the bucket yet.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub fn pending(&self) -> Result<u64> {
        if self.inner.has_changes() || self.read_only.is_some() {
            tables::pending(&self.inner.store.db())
        } else {
            // The journal is cleared a moment later.
            Ok(0)
        }
    }

    /// Waits until everything that was changed before is in the bucket.
    ///
    /// # Errors
    /// If the bucket does not answer, or the memory can only be read: what is missing stays journalled.
    pub fn upload(&self) -> Result<()> {
        if self.read_only.is_some() && self.pending()? == 0 {
            return Ok(());
        }
        self.may_write()?;
        self.engine.commit()
    }

    /// Waits until this mount has adopted all earlier commits of other writers and invalidated the kernel's caches.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub fn pull(&self) -> Result<()> {
        self.engine.poll()?;
        self.inner.kernel.settle();
        Ok(())
    }

    fn may_write(&self) -> Result<()> {
        match &self.read_only {
            None => Ok(()),
            Some(reason) => Err(StoreError::storage(Errno::ROFS, reason)),
        }
    }

    fn changed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.inner.has_changed();
            self.inner.index.changed();
        }
        result
    }

    /// Whether a call that returns only after an upload has anything to wait for.
    fn must_wait(&self, promises: bool) -> bool {
        promises && self.inner.has_changes()
    }

    fn fsync_promises_bucket(&self) -> bool {
        self.inner.config.sync != SyncMode::Local
    }

    /// Performs the request if reading the attribute `name` is one; returns its answer.
    fn request(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(Some(match name {
            b"user.ctx.sync" => {
                self.inner.store.sync()?;
                self.upload()?;
                b"durable".to_vec()
            }
            b"user.ctx.pull" => {
                self.pull()?;
                b"done".to_vec()
            }
            b"user.ctx.pending" => self.pending()?.to_string().into_bytes(),
            _ => return Ok(None),
        }))
    }
}

impl Drop for S3Store {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl Store for S3Store {
    fuse::forward! { self.inner.store =>
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        fn may_have_xattrs(&self) -> bool;
        fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
        fn discard_new(&self);
        fn finish(&self) -> Result<()>;
        fn statfs(&self) -> Result<StatFs>;
    }

    fn kind(&self) -> &'static str {
        "s3"
    }

    fn coherence(&self) -> Coherence {
        // Changes of others reach the kernel as invalidations.
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let attr = self.inner.store.lookup(parent, name)?;
        self.inner.unread.show(&attr);
        Ok(attr)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        let attr = self.inner.store.getattr(ino)?;
        self.inner.unread.show(&attr);
        Ok(attr)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        self.may_write()?;
        let inner = &self.inner;
        let Some(size) = change.size else {
            return self.changed(inner.store.setattr(caller, ino, change));
        };
        // The chunk with the file's new end, or with its old end.
        let db = self.hold_of_size(ino, |old| {
            let end = size.min(old);
            end.saturating_sub(1)..end
        })?;
        self.keep_unread(&db, ino, size)?;
        if !inner.placeholders.contains(ino) {
            let attr = self.changed(inner.store.setattr_held(&db, caller, ino, change))?;
            drop(db);
            inner.store.free_if_urgent();
            return Ok(inner.store.with_tail(attr));
        }
        let forget = |db: &_| tables::clear_missing(db, ino, size.div_ceil(s3::tree::CHUNK), true);
        let attr = inner.store.setattr_with(&db, caller, ino, change, forget);
        let attr = self.changed(attr)?;
        if !tables::is_placeholder(&db, ino)? {
            inner.placeholders.write().remove(&ino);
        }
        drop(db);
        inner.store.free_if_urgent();
        Ok(inner.store.with_tail(attr))
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        self.may_write()?;
        self.changed(self.inner.store.create(caller, parent, name, node))
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.may_write()?;
        self.changed(self.inner.store.link(caller, ino, parent, name))
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.may_write()?;
        self.changed(self.inner.store.unlink(caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.may_write()?;
        self.changed(self.inner.store.rmdir(caller, parent, name))
    }

    fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        self.may_write()?;
        let store = &self.inner.store;
        let db = store.renaming(from, to, mode);
        if mode.replaces() {
            self.keep_replaced(&db, from, to)?;
        }
        self.changed(store.rename_held(&db, caller, from, to, mode))
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        self.inner.store.reclaim(ino)?;
        if self.inner.placeholders.contains(ino) && self.inner.store.getattr(ino).is_err() {
            self.inner.placeholders.write().remove(&ino);
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let db = self.hold(ino, offset..offset.saturating_add(size as u64))?;
        self.inner.unread.read(ino);
        self.inner.store.read_held(db, ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        let end = offset.saturating_add(data.len() as u64);
        let db = self.hold_for_write(ino, offset..end)?;
        self.keep_unread(&db, ino, offset)?;
        self.changed(held::write(&db, caller, ino, offset, data))
    }

    fn append(&self, caller: &Caller, ino: Ino, end: u64, data: &[u8]) -> Result<()> {
        self.may_write()?;
        let db = self.hold_for_write(ino, end..u64::MAX)?;
        let written = self.changed(held::append(&db, caller, ino, data));
        drop(db);
        if written? != end {
            // The kernel has the old size, and these bytes at the wrong offset.
            self.inner.kernel.send(StaleEntries { inodes: vec![ino], ..StaleEntries::default() });
        }
        Ok(())
    }

    fn places_appends(&self) -> bool {
        true
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        self.may_write()?;
        let end = offset.saturating_add(length);
        let db = self.hold_for_write(ino, offset..end)?;
        if !matches!(how, Allocation::Reserve { .. }) {
            self.keep_unread(&db, ino, offset)?;
        }
        self.changed(held::fallocate(&db, caller, ino, how, offset, length))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inner = &self.inner;
        if !inner.placeholders.contains(ino) {
            return held::seek(&inner.store.db(), ino, offset, what);
        }
        // The holes of missing chunks are not known, and a store need not report holes.
        what.without_holes(offset, inner.store.getattr(ino)?.size)
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        self.inner.store.readdir(dir, after, with_attr, &mut |entry| {
            if let Some(attr) = &entry.attr {
                self.inner.unread.show(attr);
            }
            emit(entry)
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        match self.request(name)? {
            Some(answer) => Ok(answer),
            None => self.inner.store.getxattr(ino, name),
        }
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.may_write()?;
        if matches!(name, b"user.ctx.sync" | b"user.ctx.pull" | b"user.ctx.pending") {
            return Err(Errno::PERM.into());
        }
        self.changed(self.inner.store.setxattr(caller, ino, name, value, mode))
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.may_write()?;
        self.changed(self.inner.store.removexattr(caller, ino, name))
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        if self.must_wait(self.fsync_promises_bucket()) {
            // A commit contains all changes before it.
            self.upload()
        } else {
            self.inner.store.fsync(ino, data_only)
        }
    }

    fn sync(&self) -> Result<()> {
        engine::sync_before_end(&self.inner, &self.engine)
    }

    fn wants_close(&self) -> bool {
        self.inner.config.sync == SyncMode::Close
    }

    fn close(&self, _handle: u64, _ino: Ino) -> Result<()> {
        if self.must_wait(self.wants_close()) { self.upload() } else { Ok(()) }
    }

    fn is_slow(&self, ino: Ino, call: SlowCall) -> bool {
        match call {
            SlowCall::Read { offset, size } => !self.is_here(ino, &(offset..offset.saturating_add(size as u64))),
            SlowCall::Change => self.inner.placeholders.contains(ino),
            SlowCall::Close => self.must_wait(self.wants_close()),
            SlowCall::Fsync => self.must_wait(self.fsync_promises_bucket()),
            SlowCall::Xattr => true,
            SlowCall::Open | SlowCall::Resize | SlowCall::Approval | SlowCall::SizeForRead => false,
        }
    }

    fn has_slow_reads(&self) -> bool {
        true
    }

    fn attach(&self, kernel: Arc<dyn KernelCache>) {
        self.inner.kernel.attach(kernel, Arc::clone(&self.inner.store));
    }

    fn detach(&self) {
        self.inner.kernel.detach();
        self.engine.stop();
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let counters = &self.inner.counters;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counts = self.inner.store.counters();
        counts.extend(self.inner.requests());
        counts.extend([
            ("s3_commits", load(&counters.commits)),
            ("s3_adopted", load(&counters.adopted)),
            ("s3_conflicts", load(&counters.conflicts)),
            ("s3_polls", load(&counters.polls)),
            ("s3_fetches", load(&counters.fetches)),
            ("s3_failures", load(&counters.failures)),
        ]);
        counts
    }
}
