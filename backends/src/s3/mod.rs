//! A [`Store`] in an S3 bucket, with a `sqlite` file system as its cache and journal.
//!
//! # What survives
//!
//! Every call that returned is in the cache's database, with its entry in the journal, in one transaction: it
//! survives a killed daemon, and power loss once `fsync` has returned, as `sqlite` promises. The bucket follows in
//! the background; what had not got there is brought up by the next mount of the same cache. The bucket itself is
//! what survives the loss of this machine: once `ctxbench s3 sync` (or a read of the attribute `user.ctx.sync`) has
//! returned, or `fsync` or `close` where the [`SyncMode`] says so, everything before it is there. Where
//! something can never go up, that is an error of `sync`, and of `fsync` and `close` of that file; who waits for another is
//! told that it is there.
//!
//! # Order
//!
//! What is journalled goes up in batches. Nothing of a batch is begun before the one before it is there, and
//! within one, new objects come first, then what overwrites others, then deletions. So whoever looks at the bucket
//! sees no name of what is not there yet, unless that cannot go up for a reason of its own; that something was overwritten before another file was created, he is not
//! shown in that order unless the bucket was waited for in between. Names, journal and layout: `docs/S3.md`.
//!
//! What lives elsewhere: FUSE ([`crate::fuse`]), the cache's own tables ([`crate::sqlite`]), servers.

mod alone;
mod apply;
mod aside;
mod bare;
mod cache;
mod check;
mod config;
mod conflict;
mod copy;
mod delete;
mod diagnose;
mod doubt;
mod engine;
mod error;
mod expect;
mod fetch;
mod fits;
mod forget;
mod identity;
mod keep;
mod known;
mod large;
mod layout;
mod manifest;
mod mark;
mod noted;
mod object;
mod old;
mod open;
mod orders;
mod plan;
mod probe;
mod pull;
mod rebuild;
mod refill;
mod refresh;
mod remote;
mod requests;
mod resolve;
mod salvage;
mod seal;
mod stub;
mod stubbed;
mod unread;
mod uplink;
mod upload;

use std::collections::{BTreeMap, HashMap};
use std::ops::{ControlFlow, Range};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::fuse::interrupt::requester_gave_up;
use crate::sqlite::db::Db;
use crate::sqlite::{SqliteStore, held};
use crate::store::{
    Allocate, Attr, Caller, Change, Coherence, DirEntry, Errno, Ino, KernelCache, NewNode,
    RenameMode, Result, Seek, Slow, StatFs, Store, StoreError, XattrMode,
};
use alone::ToNote;
pub(crate) use bare::S3Bare;
pub use check::{CheckedBucket, check};
pub use config::{
    AccessKey, ConfigError, ConflictPolicy, S3Config, Secret, SyncMode, check_name,
    find_access_key, seal_key,
};
pub use diagnose::check_access;
use doubt::Forgotten;
use engine::{Engine, Until};
use forget::{Forget, Forgetting};
use layout::Layout;
use manifest::KnownManifest;
use noted::is_journalled;
pub use open::OpenOptions;
use remote::Remote;
pub use remote::S3OpenError;
use seal::Seal;
use stubbed::Stubbed;

/// How often somebody who waits for the server is looked after: he may have given up.
const GIVE_UP_EVERY: Duration = Duration::from_millis(100);

/// What the server makes of conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// It refuses a write whose condition does not hold. If not, it overwrites silently: then somebody can come
    /// between a look and a write, and his change is lost.
    pub are_honoured: bool,
    /// The same of parts that are made an object; also false where nobody has tried.
    pub are_honoured_of_parts: bool,
}

/// What the store counts of its own work.
#[derive(Debug, Default)]
struct Tally {
    batches: AtomicU64,
    uploaded: AtomicU64,
    conflicts: AtomicU64,
    polls: AtomicU64,
    pulled: AtomicU64,
    fetches: AtomicU64,
    failures: AtomicU64,
    wrong_checksums: AtomicU64,
}

/// What the threads of a mount share.
#[derive(Debug)]
struct Inner {
    config: S3Config,
    layout: Layout,
    seal: Option<Seal>,
    remote: Remote,
    cache: Arc<SqliteStore>,
    owner: Caller,
    conditions: Conditions,
    stubs: RwLock<HashMap<Ino, Arc<Stubbed>>>,
    kernel: Forgetting,
    manifest: Mutex<KnownManifest>,
    /// Counts changes made through the mount; `synced` is what it was when the last batch that got there began.
    changes: AtomicU64,
    synced: AtomicU64,
    /// Something went up that others have not been told of.
    has_news: AtomicBool,
    /// What was deleted, and may be listed still.
    forgotten: Forgotten,
    /// The mark that the bucket had is gone, or another: somebody has emptied the bucket, and not through a mount.
    is_emptied: AtomicBool,
    /// The server has not been met since this mount began.
    is_offline: AtomicBool,
    /// Held by who brings changes up, or looks for them.
    turn: tokio::sync::Mutex<()>,
    /// What has gone up without the engine, until who has the turn has noted it.
    to_note: Mutex<Vec<ToNote>>,
    /// Held by who copies a file that does not stand still, until it is sent.
    copying: Arc<tokio::sync::Semaphore>,
    /// An upload in parts was begun, by this mount or one before, and may not have ended.
    may_have_unended: AtomicBool,
    /// Pieces of files that were read to be sent.
    read: AtomicU64,
    /// Nobody waits for the server any more.
    is_ending: AtomicBool,
    tally: Tally,
}

impl Inner {
    /// The whole key of an object of the agent's.
    fn key(&self, key: &str) -> String {
        format!("{}{key}", self.layout.files())
    }

    fn has_changes(&self) -> bool {
        self.changes.load(Ordering::Acquire) != self.synced.load(Ordering::Acquire)
    }
}

/// An agent's memory in a bucket.
#[derive(Debug)]
pub struct S3Store {
    inner: Arc<Inner>,
    engine: Engine,
    notes: Vec<String>,
    // Last: what runs on it is told to stop before.
    runtime: Runtime,
}

impl S3Store {
    /// What whoever mounts has to be told, a line each: that the server is away, or what became of a damaged cache.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the server makes of conditions.
    pub fn conditions(&self) -> Conditions {
        self.inner.conditions
    }

    /// How many changes of inodes and names are not in the bucket yet, or not told to others.
    ///
    /// # Errors
    /// If the cache cannot be read.
    pub fn pending(&self) -> Result<u64> {
        self.inner.cache.transaction(cache::pending)
    }

    /// Waits until everything done so far is in the bucket.
    ///
    /// # Errors
    /// If the server cannot be reached: what is missing stays journalled.
    pub fn upload(&self) -> Result<()> {
        self.engine.upload(Until::Noted)?.wait()
    }

    /// Waits until the bucket has everything done so far, as soon as it has. What cannot get there is an error for who
    /// waits for that file, and not for who waits for another that is there.
    fn wait_for_bucket(&self, ino: Ino) -> Result<()> {
        let inner = &self.inner;
        let done = match self.upload_alone(ino) {
            Some(done) => done,
            None => self.engine.upload(Until::InBucket(ino))?.wait(),
        };
        done.or_else(|error| {
            let is_there = !inner.is_emptied.load(Ordering::Acquire)
                && !inner.cache.transaction(|db| is_journalled(db, ino))?;
            if is_there { Ok(()) } else { Err(error) }
        })
    }

    /// Looks now for what others have changed.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn pull(&self) -> Result<()> {
        self.engine.pull()?.wait()?;
        self.inner.kernel.settle();
        Ok(())
    }

    fn changed<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_ok() {
            self.inner.changes.fetch_add(1, Ordering::Release);
        }
        result
    }

    fn fetch(&self, ino: Ino, range: Range<u64>) -> Result<()> {
        if self.inner.is_here(ino, &range) {
            return Ok(());
        }
        let stubbed = self.inner.stub_of(ino);
        if stubbed
            .as_ref()
            .is_some_and(|stubbed| stubbed.has_just_timed_out())
        {
            return Err(Errno::TIMEDOUT.into());
        }
        let _waiting = self.inner.kernel.waiting.begin(ino);
        let timeout = self.inner.config.timeout;
        let fetched = self.runtime.block_on(async {
            let mut fetching = pin!(self.inner.fetch(ino, range));
            let mut come = self.inner.come(ino);
            let mut deadline = Instant::now() + timeout;
            loop {
                match tokio::time::timeout(GIVE_UP_EVERY, &mut fetching).await {
                    Ok(fetched) => return Ok(fetched?),
                    // What has come so far stays; the rest comes when somebody asks again.
                    Err(_) if requester_gave_up() => return Err(Errno::INTR.into()),
                    Err(_) => {}
                }
                let now_come = self.inner.come(ino);
                if now_come != come {
                    come = now_come;
                    deadline = Instant::now() + timeout;
                } else if Instant::now() >= deadline {
                    let reason = format!("S3: nothing has come within {} s", timeout.as_secs());
                    return Err(StoreError::storage(Errno::TIMEDOUT, reason));
                }
            }
        });
        if let (Err(error), Some(stubbed)) = (&fetched, stubbed)
            && error.errno == Errno::TIMEDOUT
        {
            stubbed.time_out();
        }
        fetched
    }

    /// The database, with a range of a file here for as long as its lock is held: what others have written takes its
    /// place before or after.
    fn hold(&self, ino: Ino, range: Range<u64>) -> Result<MutexGuard<'_, Db>> {
        let mut attempts = 0..fetch::ATTEMPTS;
        loop {
            let db = self.inner.cache.db();
            if self.inner.is_here(ino, &range) {
                return Ok(db);
            }
            drop(db);
            if attempts.next().is_none() {
                return Err(fetch::keeps_changing());
            }
            self.fetch(ino, range.clone())?;
        }
    }

    /// As [`S3Store::hold`], with all of the file.
    fn hold_all(&self, ino: Ino) -> Result<MutexGuard<'_, Db>> {
        self.hold(ino, 0..u64::MAX)
    }

    /// Whether a call that promises the bucket has anything to wait for.
    fn must_wait(&self, promise: bool) -> bool {
        promise && self.inner.has_changes()
    }

    fn fsync_promises_bucket(&self) -> bool {
        self.inner.config.sync != SyncMode::Local
    }
}

impl Drop for S3Store {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

impl Store for S3Store {
    fn kind(&self) -> &'static str {
        "s3"
    }

    fn coherence(&self) -> Coherence {
        // What others change reaches the kernel through `KernelCache`.
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.inner.cache.lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.inner.cache.getattr(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let cache = &self.inner.cache;
        let db = match change.size {
            None | Some(0) => cache.db(),
            Some(_) => self.hold_all(ino)?,
        };
        let attr = self.changed(cache.setattr_held(&db, caller, ino, change))?;
        if change.size == Some(0) {
            // The tables have let go of it in the same transaction.
            self.inner.forget_stub(ino);
        }
        drop(db);
        Ok(cache.with_tail(attr))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        self.inner.cache.parent(dir)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.inner.cache.readlink(ino)
    }

    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Attr> {
        self.inner.must_fit(parent, name)?;
        self.changed(self.inner.cache.create(caller, parent, name, node))
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.inner.must_fit(parent, name)?;
        self.changed(self.inner.cache.link(caller, ino, parent, name))
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.changed(self.inner.cache.unlink(caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.changed(self.inner.cache.rmdir(caller, parent, name))
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        self.inner.must_fit(to.0, to.1)?;
        self.changed(self.inner.cache.rename(caller, from, to, mode))
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        self.inner.cache.reclaim(ino)?;
        if self.inner.is_stub(ino) && self.inner.cache.getattr(ino).is_err() {
            self.inner.forget_stub(ino);
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let db = self.hold(ino, offset..offset.saturating_add(size as u64))?;
        self.inner.cache.read_held(db, ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let db = self.hold_all(ino)?;
        self.changed(held::write(&db, caller, ino, offset, data))
    }

    fn append(&self, caller: &Caller, ino: Ino, end: u64, data: &[u8]) -> Result<()> {
        let db = self.hold_all(ino)?;
        let written = self.changed(held::append(&db, caller, ino, data));
        drop(db);
        if written? != end {
            // The kernel has the old size, and these bytes in the wrong place.
            self.inner.kernel.tell(Forget {
                inodes: vec![ino],
                names: Vec::new(),
            });
        }
        Ok(())
    }

    fn places_appends(&self) -> bool {
        true
    }

    fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        how: Allocate,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let db = self.hold_all(ino)?;
        self.changed(held::fallocate(&db, caller, ino, how, offset, length))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let db = self.inner.cache.db();
        if !self.inner.is_stub(ino) {
            return held::seek(&db, ino, offset, what);
        }
        drop(db);
        // Where its holes are is not known: the only one is the end, as the interface allows.
        let size = self.inner.size(ino)?;
        match what {
            _ if offset >= size => Err(Errno::NXIO.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn readdir(
        &self,
        dir: Ino,
        after: u64,
        with_attr: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.inner.cache.readdir(dir, after, with_attr, emit)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        match self.order(ino, name)? {
            Some(answer) => Ok(answer),
            None => self.inner.cache.getxattr(ino, name),
        }
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.inner.cache.listxattr(ino)
    }

    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        if self.set_order(caller, ino, name, value)? {
            return Ok(());
        }
        self.changed(self.inner.cache.setxattr(caller, ino, name, value, mode))
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.changed(self.inner.cache.removexattr(caller, ino, name))
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        if !self.must_wait(self.fsync_promises_bucket()) {
            return self.inner.cache.fsync(ino, data_only);
        }
        // What goes up is on this disk before.
        self.wait_for_bucket(ino)
    }

    fn sync(&self) -> Result<()> {
        self.inner.cache.sync()?;
        if !self.inner.has_changes() {
            return Ok(());
        }
        self.upload().map_err(|error| {
            let pending = self.pending().unwrap_or(0);
            StoreError::storage(
                error.errno,
                format!(
                    "{pending} changes are not in the bucket yet: {}; they are kept, and go up when the cache is mounted again",
                    error.reason.unwrap_or_default()
                ),
            )
        })
    }

    fn wants_close(&self) -> bool {
        self.inner.config.sync == SyncMode::Close
    }

    fn close(&self, ino: Ino) -> Result<()> {
        if self.must_wait(self.wants_close()) {
            self.wait_for_bucket(ino)?;
        }
        Ok(())
    }

    fn is_slow(&self, ino: Ino, call: Slow) -> bool {
        match call {
            Slow::Read { offset, size } => {
                let range = offset..offset.saturating_add(size as u64);
                !self.inner.is_here(ino, &range)
            }
            Slow::Change => self.inner.is_stub(ino),
            Slow::Close => self.must_wait(self.wants_close()),
            Slow::Fsync => self.must_wait(self.fsync_promises_bucket()),
            Slow::Xattr => true,
            Slow::Judged | Slow::SizeForRead => false,
        }
    }

    fn attach(&self, kernel: Arc<dyn KernelCache>) {
        self.inner.kernel.attach(kernel);
    }

    fn detach(&self) {
        self.inner.kernel.detach();
        self.engine.stop();
    }

    fn statfs(&self) -> Result<StatFs> {
        self.inner.cache.statfs()
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let tally = &self.inner.tally;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counters = self.inner.cache.counters();
        counters.extend(self.inner.remote.requests());
        counters.extend([
            ("s3_batches", load(&tally.batches)),
            ("s3_uploaded", load(&tally.uploaded)),
            ("s3_conflicts", load(&tally.conflicts)),
            ("s3_polls", load(&tally.polls)),
            ("s3_pulled", load(&tally.pulled)),
            ("s3_fetches", load(&tally.fetches)),
            ("s3_failures", load(&tally.failures)),
            ("s3_wrong_checksums", load(&tally.wrong_checksums)),
            // 1 while others have not been told of what went up.
            (
                "s3_untold",
                u64::from(self.inner.has_news.load(Ordering::Acquire)),
            ),
        ]);
        counters
    }
}
