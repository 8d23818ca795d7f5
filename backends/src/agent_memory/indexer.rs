//! When the index is brought up to date: by each request before it answers, and by a thread soon after a change.
//! The thread also merges the full text index while nothing changes. What a note's index holds is in [`super::index`].

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

use super::meaning::Meaning;
use super::paths::PathCache;
use super::{Clock, index, merging};
use crate::sqlite::SqliteStore;
use crate::store::Result;

/// How long nothing must have changed before the thread indexes, and how long it waits at most.
const SETTLED: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);

/// How long nothing must have changed before a merge.
const QUIET: Duration = Duration::from_millis(500);

/// The most inodes that a request indexes in one transaction, and the thread: calls wait for it.
const BATCH: usize = 512;
const BATCH_OF_THREAD: usize = 16;

/// Marked inodes that are still to do, and the number of the last change before they were read.
#[derive(Default)]
struct Turn {
    left: Vec<i64>,
    last: u64,
}

/// The state of the index of an open memory.
pub(super) struct Index {
    pub(super) files: Arc<SqliteStore>,
    pub(super) paths: PathCache,
    pub(super) clock: Clock,
    /// `None` if relevance by meaning is off.
    pub(super) meaning: RwLock<Option<Meaning>>,
    /// The author of changes: this mount's agent; empty if it was given no name.
    agent: String,
    /// Locked by the thread that updates the index; requests wait for it.
    turn: Mutex<Turn>,
    /// How many changes were reported, and up to which the index has them.
    marked: AtomicU64,
    done: AtomicU64,
    /// When the next note expires, in nanoseconds since 1970.
    next_expiry: AtomicI64,
    notes: AtomicI64,
    indexed: AtomicU64,
    /// Counts changes that may invalidate an answer.
    pub(super) changes: Arc<AtomicU64>,
}

impl Index {
    /// The index of `notes` notes.
    pub(super) fn new(files: SqliteStore, agent: Option<&str>, clock: Clock, notes: u64) -> Self {
        Self {
            files: Arc::new(files),
            paths: PathCache::default(),
            clock,
            meaning: RwLock::default(),
            agent: agent.unwrap_or_default().to_owned(),
            turn: Mutex::default(),
            // Notes may be marked already.
            marked: AtomicU64::new(1),
            done: AtomicU64::new(0),
            next_expiry: AtomicI64::new(i64::MAX),
            notes: AtomicI64::new(notes as i64),
            indexed: AtomicU64::new(0),
            changes: Arc::default(),
        }
    }

    /// The number of notes.
    pub(super) fn notes(&self) -> u64 {
        u64::try_from(self.notes.load(Ordering::Acquire)).unwrap_or(0)
    }

    /// The number of notes indexed since the start.
    pub(super) fn indexed(&self) -> u64 {
        self.indexed.load(Ordering::Relaxed)
    }

    /// Ends relevance by meaning. The lock is released first: the thread that ends may wait for the database, and a request
    /// that holds the database may wait for this lock.
    pub(super) fn stop_meaning(&self) {
        let ended = self.meaning.write().take();
        drop(ended);
    }

    /// Something has changed: the index has to follow, and answers may be outdated.
    pub(super) fn changed(&self) {
        self.marked.fetch_add(1, Ordering::AcqRel);
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Indexes the notes that have changed so far, and drops expired notes from the index.
    pub(super) fn refresh(&self) -> Result<()> {
        self.refresh_as(Some(&self.agent))
    }

    /// As [`Index::refresh`], of changes by an unknown author: another backend, or a mount that ended before it indexed
    /// them.
    pub(super) fn refresh_unknown(&self) -> Result<()> {
        self.refresh_as(None)
    }

    fn refresh_as(&self, author: Option<&str>) -> Result<()> {
        let last = self.marked.load(Ordering::Acquire);
        let mut turn = self.turn.lock();
        let mut total = 0;
        while self.done.load(Ordering::Acquire) < last || self.has_expired() {
            let before = total;
            total += self.step(&mut turn, author, BATCH)?;
            if total / 10_000 > before / 10_000 {
                tracing::info!("indexing notes: {total} so far");
            }
        }
        Ok(())
    }

    fn has_expired(&self) -> bool {
        (self.clock)().0 >= self.next_expiry.load(Ordering::Acquire)
    }

    /// Indexes one batch; answers how many inodes were looked at.
    fn step(&self, turn: &mut Turn, author: Option<&str>, batch: usize) -> Result<usize> {
        let has_expired = self.has_expired();
        let now = (self.clock)();
        // Empty where this fails or panics: the rows that mark them are still there.
        let mut left = std::mem::take(&mut turn.left);
        if left.is_empty() {
            turn.last = self.marked.load(Ordering::Acquire);
        }
        let db = self.files.db();
        let done = db.transaction(|db| {
            // Triggers mark an inode once its row is written.
            db.write_rows()?;
            index::refresh(db, &self.paths, author, now, &mut left, batch)
        })?;
        if let Some(meaning) = &*self.meaning.read() {
            meaning.take_up(&done);
        }
        drop(db);
        turn.left = left;
        self.notes.fetch_add(done.notes, Ordering::AcqRel);
        let next = done.next_expiry.map_or(i64::MAX, |at| at.0);
        self.next_expiry.store(next, Ordering::Release);
        if has_expired || done.looked_at > 0 {
            self.changes.fetch_add(1, Ordering::AcqRel);
        }
        let looked_at = done.looked_at;
        self.indexed.fetch_add(looked_at as u64, Ordering::Relaxed);
        if !done.has_more {
            self.done.store(turn.last, Ordering::Release);
        }
        Ok(looked_at)
    }

    /// Indexes what the thread finds, with a pause after each batch as long as the batch, for calls and requests.
    fn catch_up(&self) -> Result<()> {
        while self.done.load(Ordering::Acquire) < self.marked.load(Ordering::Acquire) {
            let started = Instant::now();
            self.step(&mut self.turn.lock(), Some(&self.agent), BATCH_OF_THREAD)?;
            std::thread::sleep(started.elapsed());
        }
        Ok(())
    }
}

/// The thread that indexes and merges; it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Indexer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Indexer {
    /// Starts the thread, as if something had changed.
    pub(super) fn start(index: Arc<Index>) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || run(&index, &woken))?;
        let indexer = Self {
            wake: Some(wake),
            thread: Some(thread),
        };
        indexer.wake();
        Ok(indexer)
    }

    /// Tells the thread that something has changed.
    pub(super) fn wake(&self) {
        if let Some(wake) = &self.wake {
            // If the channel is full, the thread is about to wake up.
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Indexer {
    fn drop(&mut self) {
        self.wake.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that indexes notes panicked");
        }
    }
}

/// The next step of the thread.
enum Next {
    Wait,
    /// To index once nothing has changed for a while, at the latest then.
    Index(Instant),
    /// To merge after a pause.
    Merge(Duration),
}

fn run(index: &Index, woken: &Receiver<()>) {
    let mut next = Next::Wait;
    loop {
        let pause = match next {
            Next::Wait => Duration::MAX,
            Next::Index(latest) => SETTLED.min(latest.saturating_duration_since(Instant::now())),
            Next::Merge(pause) => pause,
        };
        let is_changed = match woken.recv_timeout(pause) {
            Ok(()) => true,
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        next = match next {
            Next::Index(latest) if is_changed && Instant::now() < latest => Next::Index(latest),
            Next::Index(_) => {
                if let Err(error) = index.catch_up() {
                    tracing::warn!(%error, "could not index notes; the next request retries");
                }
                Next::Merge(QUIET)
            }
            _ if is_changed => Next::Index(Instant::now() + LATEST),
            Next::Merge(_) => merged(index),
            Next::Wait => Next::Wait,
        };
    }
}

fn merged(index: &Index) -> Next {
    let started = Instant::now();
    match index.files.transaction(merging::step) {
        // Pause as long as the step took: merging uses at most half of the time.
        Ok(true) => Next::Merge(started.elapsed()),
        Ok(false) => Next::Wait,
        Err(error) => {
            // Results stay correct; queries are only slower.
            tracing::warn!(%error, "could not merge the segments of the index");
            Next::Wait
        }
    }
}
