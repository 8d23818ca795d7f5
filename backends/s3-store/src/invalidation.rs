//! Sends cache invalidations to the kernel from a dedicated thread. An invalidation can block until this mount answers a
//! pending read, so a request thread that sent it could deadlock.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use fuse::store::{Ino, KernelCache, Store};
use parking_lot::{Mutex, MutexGuard};

use sqlite::SqliteStore;

/// How long the invalidation of an inode is put off while reads of it wait for the bucket.
const READ_PATIENCE: Duration = Duration::from_secs(60);

/// How often the pending reads of an inode are checked.
const RETRY: Duration = Duration::from_millis(1);

/// How long [`Invalidation::settle`] waits.
const PATIENCE: Duration = Duration::from_secs(1);

/// Changes that were not made through the mount.
#[derive(Debug, Default)]
pub(super) struct StaleEntries {
    /// Inodes whose attributes or content changed.
    pub(super) inodes: Vec<Ino>,
    /// Names that came, went, or name something else.
    pub(super) names: Vec<(Ino, Vec<u8>)>,
    /// Inodes that lost their last name.
    pub(super) orphans: Vec<Ino>,
    /// Inodes with their paths, for programs that watch them.
    pub(super) watched: Vec<(Ino, Vec<u8>)>,
}

/// Inodes with reads that wait for the bucket. The kernel has locked their pages: an invalidation would wait for the
/// answer, and if this process were killed meanwhile, for ever.
#[derive(Debug, Default)]
pub(super) struct PendingReads(Mutex<HashMap<Ino, u32>>);

/// One such read.
pub(super) struct PendingRead<'a>(&'a PendingReads, Ino);

impl PendingReads {
    fn counts(&self) -> MutexGuard<'_, HashMap<Ino, u32>> {
        self.0.lock()
    }

    pub(super) fn begin(&self, ino: Ino) -> PendingRead<'_> {
        *self.counts().entry(ino).or_default() += 1;
        PendingRead(self, ino)
    }

    fn has(&self, ino: Ino) -> bool {
        self.counts().contains_key(&ino)
    }
}

impl Drop for PendingRead<'_> {
    fn drop(&mut self) {
        let mut counts = self.0.counts();
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// The kernel, and the queue of the thread that tells it.
struct Kernel {
    cache: Arc<dyn KernelCache>,
    queue: Sender<StaleEntries>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").finish_non_exhaustive()
    }
}

/// The invalidation thread of a mount; without a mount, invalidations are dropped.
#[derive(Debug, Default)]
pub(super) struct Invalidation {
    pub(super) reads: Arc<PendingReads>,
    kernel: Mutex<Option<Kernel>>,
    sent: AtomicU64,
    done: Arc<AtomicU64>,
}

impl Invalidation {
    pub(super) fn attach(&self, kernel: Arc<dyn KernelCache>, store: Arc<SqliteStore>) {
        let (queue, inbox) = channel();
        let thread =
            Thread { kernel: Arc::clone(&kernel), store, reads: Arc::clone(&self.reads), done: Arc::clone(&self.done) };
        let spawned = std::thread::Builder::new().name("invalidate".to_owned()).spawn(move || thread.run(&inbox));
        match spawned {
            Ok(_) => {
                *self.kernel.lock() = Some(Kernel { cache: kernel, queue });
            }
            Err(error) => {
                tracing::error!(%error, "could not start the invalidation thread: the kernel's caches can become stale")
            }
        }
    }

    /// Ends the thread without waiting: the kernel may answer only when the mount is gone.
    pub(super) fn detach(&self) {
        let mut kernel = self.kernel.lock();
        kernel.take();
    }

    /// Whether a program can watch an inode.
    pub(super) fn knows(&self, ino: Ino) -> bool {
        let kernel = self.kernel.lock();
        (kernel.as_ref()).is_some_and(|kernel| kernel.cache.knows(ino))
    }

    pub(super) fn send(&self, stale: StaleEntries) {
        let kernel = self.kernel.lock();
        if let Some(kernel) = &*kernel
            && kernel.queue.send(stale).is_ok()
        {
            self.sent.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until the kernel has everything that was sent, at most [`PATIENCE`].
    pub(super) fn settle(&self) {
        let sent = self.sent.load(Ordering::Acquire);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::Acquire) < sent && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// An inode with pending reads, whose invalidation is put off.
struct DeferredInvalidation {
    ino: Ino,
    deadline: Instant,
    /// The path, if a program may watch it.
    watched: Option<Vec<u8>>,
    /// The batch counts as done with the last of these.
    _batch: Rc<Batch>,
}

/// Counts a batch when the last reference to it goes.
struct Batch(Arc<AtomicU64>);

impl Drop for Batch {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

struct Thread {
    kernel: Arc<dyn KernelCache>,
    store: Arc<SqliteStore>,
    reads: Arc<PendingReads>,
    done: Arc<AtomicU64>,
}

impl Thread {
    fn run(&self, inbox: &Receiver<StaleEntries>) {
        let mut deferred: Vec<DeferredInvalidation> = Vec::new();
        loop {
            let next = if deferred.is_empty() {
                inbox.recv().map_err(RecvTimeoutError::from)
            } else {
                inbox.recv_timeout(RETRY)
            };
            match next {
                Ok(stale) => self.invalidate(stale, &mut deferred),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            deferred.retain(|it| {
                let is_pending = self.reads.has(it.ino);
                if is_pending && Instant::now() < it.deadline {
                    return true;
                }
                if is_pending {
                    self.invalidate_apart(it.ino)
                } else {
                    self.kernel.invalidate_inode(it.ino)
                }
                if let Some(path) = &it.watched {
                    self.kernel.tell_watchers(it.ino, path);
                }
                false
            });
        }
    }

    fn invalidate(&self, stale: StaleEntries, deferred: &mut Vec<DeferredInvalidation>) {
        let batch = Rc::new(Batch(Arc::clone(&self.done)));
        for (parent, name) in &stale.names {
            self.kernel.invalidate_name(*parent, name);
        }
        let first = deferred.len();
        for ino in stale.inodes {
            if self.reads.has(ino) {
                deferred.push(DeferredInvalidation {
                    ino,
                    deadline: Instant::now() + READ_PATIENCE,
                    watched: None,
                    _batch: Rc::clone(&batch),
                })
            } else {
                self.kernel.invalidate_inode(ino)
            }
        }
        for (ino, path) in stale.watched {
            // A program that is told reads the file: not before its invalidation.
            match deferred[first..].iter_mut().find(|it| it.ino == ino) {
                Some(it) => it.watched = Some(path),
                None => self.kernel.tell_watchers(ino, &path),
            }
        }
        for ino in stale.orphans {
            if self.kernel.is_unreferenced(ino)
                && let Err(error) = self.store.reclaim(ino)
            {
                tracing::warn!(ino, %error, "the space of a removed file is freed only at the next mount");
            }
        }
    }

    /// Invalidates on another thread, which the kernel may block.
    fn invalidate_apart(&self, ino: Ino) {
        let kernel = Arc::clone(&self.kernel);
        let thread = std::thread::Builder::new().name("invalidate-late".to_owned());
        if thread.spawn(move || kernel.invalidate_inode(ino)).is_err() {
            self.kernel.invalidate_inode(ino);
        }
    }
}

#[cfg(test)]
mod tests {
    use fuse::store::{Caller, Timestamp};

    use super::*;

    const OWNER: Caller = Caller { uid: 7, gid: 7, now: Timestamp(0) };

    /// A kernel that says what it was told.
    struct KernelLog(Mutex<Sender<String>>);

    impl KernelLog {
        fn say(&self, what: String) {
            // The test may have ended.
            let _ = self.0.lock().send(what);
        }
    }

    impl KernelCache for KernelLog {
        fn invalidate_inode(&self, ino: Ino) {
            self.say(format!("{ino}"));
        }

        fn invalidate_name(&self, parent: Ino, name: &[u8]) {
            self.say(format!("{parent}/{}", String::from_utf8_lossy(name)));
        }

        fn store_pages(&self, _ino: Ino, _offset: u64, _bytes: &[u8]) {}

        fn tell_watchers(&self, ino: Ino, path: &[u8]) {
            self.say(format!("event {ino} {}", String::from_utf8_lossy(path)));
        }

        fn is_unreferenced(&self, ino: Ino) -> bool {
            self.say(format!("orphan {ino}"));
            false
        }
    }

    #[test]
    fn a_pending_read_delays_the_invalidation_and_the_event_of_its_inode_only() {
        let (tell, told) = channel();
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
        let invalidation = Invalidation::default();
        invalidation.attach(Arc::new(KernelLog(Mutex::new(tell))), Arc::new(store));
        let send = |inodes: &[Ino], names: &[(Ino, Vec<u8>)], orphans: &[Ino]| {
            invalidation.send(StaleEntries {
                inodes: inodes.to_vec(),
                names: names.to_vec(),
                orphans: orphans.to_vec(),
                watched: inodes.iter().map(|ino| (*ino, b"p".to_vec())).collect(),
            });
        };
        let next = || told.recv_timeout(Duration::from_secs(60)).unwrap();
        let read = invalidation.reads.begin(7);
        send(&[7, 8], &[(1, b"n".to_vec())], &[]);
        send(&[9], &[(2, b"m".to_vec())], &[5]);
        let first = [(); 7].map(|()| next());
        let expected = ["1/n", "8", "event 8 p", "2/m", "9", "event 9 p", "orphan 5"];
        assert_eq!(first, expected);
        drop(read);
        assert_eq!([next(), next()], ["7", "event 7 p"]);
        invalidation.settle();
        assert_eq!(invalidation.done.load(Ordering::Acquire), 2);
    }
}
