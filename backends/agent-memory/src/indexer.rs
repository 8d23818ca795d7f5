//! When the index is brought up to date: by each request before it answers, and by a thread while no call changes anything.
//! The thread also merges the full text index. What a note's index holds is in [`super::index`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::store::{Errno, Result, StoreError, Timestamp};
use parking_lot::{Mutex, RwLock};
use sqlite::SqliteStore;

use crate::index::Author;
use crate::meaning::Meaning;
use crate::pace::{PART, Pace, Work};
use crate::paths::PathCache;
use crate::{Clock, NoteFiles, index, merging};

/// The most inodes that a request indexes in one transaction: calls wait for it.
const BATCH: usize = 512;

/// The most inodes that the end of a mount indexes in one transaction, and how long it goes on.
const BATCH_AT_END: usize = 32;
const TAKES_AT_END: Duration = Duration::from_secs(1);

/// Marked inodes that are still to do, and the number of the last change before they were read.
#[derive(Default)]
struct Turn {
    left: Vec<i64>,
    last: u64,
}

/// The state of the index of an open memory.
pub(super) struct Index {
    files: Arc<dyn NoteFiles>,
    /// Those of the files.
    rows: Arc<SqliteStore>,
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
    /// The thread sleeps until it is woken.
    sleeps: AtomicBool,
    /// Changes before this time, in nanoseconds since 1970, are of an earlier mount, and not indexed yet: the disk is full.
    earlier_until: AtomicI64,
    /// Why the index lacks changes: the disk is full. `None` if it lacks none, or has not been asked.
    behind: Mutex<Option<String>>,
    /// When the next note expires, in nanoseconds since 1970.
    next_expiry: AtomicI64,
    notes: AtomicI64,
    indexed: AtomicU64,
    /// Counts changes that may invalidate an answer.
    pub(super) changes: Arc<AtomicU64>,
}

impl Index {
    /// The index of `notes` notes.
    pub(super) fn new(
        files: Arc<dyn NoteFiles>,
        rows: Arc<SqliteStore>,
        agent: Option<&str>,
        clock: Clock,
        notes: u64,
    ) -> Self {
        Self {
            files,
            rows,
            paths: PathCache::default(),
            clock,
            meaning: RwLock::default(),
            agent: agent.unwrap_or_default().to_owned(),
            turn: Mutex::default(),
            // Notes may be marked already.
            marked: AtomicU64::new(1),
            done: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            earlier_until: AtomicI64::new(i64::MIN),
            behind: Mutex::default(),
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

    /// Something has changed: the index has to follow, and answers may be outdated. True if the thread has to be woken: it
    /// is not woken by each change, because a wake-up takes longer than most calls.
    pub(super) fn changed(&self) -> bool {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.marked.fetch_add(1, Ordering::SeqCst);
        self.sleeps.load(Ordering::SeqCst) && self.sleeps.swap(false, Ordering::SeqCst)
    }

    /// Why the index lacks changes; `None` if the last refresh has indexed all.
    pub(super) fn behind(&self) -> Option<String> {
        self.behind.lock().clone()
    }

    /// The number of inodes that wait to be indexed.
    pub(super) fn waiting(&self) -> Result<u64> {
        index::waiting(&self.rows.db())
    }

    /// Indexes the notes that have changed so far, and drops expired notes from the index. Answers how many inodes waited.
    pub(super) fn refresh(&self) -> Result<usize> {
        self.refresh_as(self.author())
    }

    fn author(&self) -> Author<'_> {
        Author { agent: Some(&self.agent), since: Timestamp(self.earlier_until.load(Ordering::Acquire)) }
    }

    /// As [`Index::refresh`], of changes by an earlier mount: their author is known only if that mount has noted it at its
    /// end. If the disk is full, the rest of them waits for later.
    pub(super) fn refresh_earlier(&self) -> Result<()> {
        let refreshed = self.refresh_as(Author { agent: None, since: Timestamp(i64::MAX) });
        match refreshed.and_then(|_| self.rows.transaction(index::forget_authors)) {
            Err(error) if error.errno == Errno::NOSPC => {
                self.earlier_until.store(Timestamp::now().0, Ordering::Release);
                Ok(())
            }
            refreshed => refreshed,
        }
    }

    /// Uses the index of a read-only database as it is: notes that it lacks are missing until a writable mount.
    pub(super) fn take_as_it_is(&self) -> Result<()> {
        let db = self.rows.db();
        if index::waiting(&db)? == 0 {
            self.done.store(self.marked.load(Ordering::Acquire), Ordering::Release);
        }
        let next = index::next_expiry(&db)?.map_or(i64::MAX, |at| at.0);
        self.next_expiry.store(next, Ordering::Release);
        Ok(())
    }

    /// Fails if rows that can only be read need a change of their index.
    fn must_be_current(&self, last: u64) -> Result<()> {
        let lack = if self.done.load(Ordering::Acquire) < last {
            "notes have changed since it was last indexed"
        } else if self.has_expired() {
            "a note has expired"
        } else {
            return Ok(());
        };
        let reason = format!(
            "{lack}, and this mount is read-only: mount the database writable once, or a copy of it in a directory that you can write to"
        );
        Err(StoreError::storage(Errno::ROFS, reason))
    }

    fn refresh_as(&self, author: Author<'_>) -> Result<usize> {
        let last = self.marked.load(Ordering::Acquire);
        if self.rows.read_only().is_some() {
            return self.must_be_current(last).map(|()| 0);
        }
        let mut turn = self.turn.lock();
        let mut total = 0;
        let mut batch = self.first_batch(BATCH);
        while self.done.load(Ordering::Acquire) < last || self.has_expired() {
            let before = total;
            total += self.step_in_room(&mut turn, author, &mut batch)?;
            batch = (batch * 2).min(BATCH);
            if total / 10_000 > before / 10_000 {
                tracing::info!("indexing notes: {total} so far");
            }
        }
        Ok(total)
    }

    /// Indexes for a second, and notes for the next mount the author of what is left. The thread must have ended.
    pub(super) fn end(&self) -> Result<()> {
        let until = Instant::now() + TAKES_AT_END;
        let last = self.marked.load(Ordering::Acquire);
        let mut turn = self.turn.lock();
        while self.done.load(Ordering::Acquire) < last {
            if Instant::now() >= until {
                return self.leave();
            }
            match self.step_in_room(&mut turn, self.author(), &mut self.first_batch(BATCH_AT_END)) {
                Err(error) if error.errno == Errno::NOSPC => return self.leave(),
                stepped => stepped?,
            };
        }
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        let left = self.rows.transaction(|db| {
            db.write_rows()?;
            index::leave(db, &self.agent, self.author().since)
        })?;
        tracing::info!("{left} changes wait to be indexed by the next mount");
        Ok(())
    }

    fn has_expired(&self) -> bool {
        (self.clock)().0 >= self.next_expiry.load(Ordering::Acquire)
    }

    /// The size of a batch. While the index is behind, a larger one would hardly fit, and costs the time of its notes.
    fn first_batch(&self, usual: usize) -> usize {
        match self.behind() {
            Some(_) => 1,
            None => usual,
        }
    }

    /// As [`Index::step`]. Where the disk has no room for a batch, makes it smaller.
    fn step_in_room(&self, turn: &mut Turn, author: Author<'_>, batch: &mut usize) -> Result<usize> {
        let stepped = loop {
            match self.step(turn, author, *batch) {
                Err(error) if error.errno == Errno::NOSPC && *batch > 1 => *batch = (*batch / 8).max(1),
                stepped => break stepped,
            }
        };
        let behind = match &stepped {
            Ok(_) if self.done.load(Ordering::Acquire) < turn.last => return stepped,
            Ok(_) => None,
            Err(error) if error.errno == Errno::NOSPC => Some(error.to_string()),
            Err(_) => return stepped,
        };
        let was_behind = std::mem::replace(&mut *self.behind.lock(), behind);
        match (&stepped, was_behind) {
            (Err(error), None) => {
                tracing::warn!(
                    "the index of notes is behind: {error}; search and recall fail with ENOSPC until 8 MiB are free on the disk of the memory; files can be read and removed"
                );
            }
            (Ok(_), Some(_)) => tracing::info!("the disk has room again: the index is current"),
            _ => {}
        }
        stepped
    }

    /// Indexes one batch; answers how many inodes were looked at.
    fn step(&self, turn: &mut Turn, author: Author<'_>, batch: usize) -> Result<usize> {
        let has_expired = self.has_expired();
        let now = (self.clock)();
        // Empty where this fails or panics: the rows that mark them are still there.
        let mut left = std::mem::take(&mut turn.left);
        if left.is_empty() {
            turn.last = self.marked.load(Ordering::Acquire);
        }
        let db = self.rows.db();
        let done = db.growing_transaction(|db| {
            // Triggers mark an inode once its row is written.
            db.write_rows()?;
            index::refresh(db, (&*self.files, &self.paths), author, now, &mut left, batch)
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

    /// Indexes at most `batch` inodes for the thread; answers how many of those that it knows of are left.
    fn index_some(&self, batch: usize) -> Result<usize> {
        let mut turn = self.turn.lock();
        self.step_in_room(&mut turn, self.author(), &mut self.first_batch(batch))?;
        Ok(turn.left.len())
    }
}

/// The thread that indexes and merges; it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Indexer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Indexer {
    /// Starts the thread, which begins as if something had changed.
    pub(super) fn start(index: Arc<Index>) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let thread = std::thread::Builder::new().name("index".to_owned()).spawn(move || run(&index, &woken))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
    }

    /// Ends the thread's sleep.
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

/// The memory is closed: the thread has to end.
#[derive(Debug)]
struct Shutdown;

fn run(index: &Index, woken: &Receiver<()>) {
    let mut followed = 0;
    while sleep(index, woken, followed).is_ok() {
        match follow(index, woken) {
            Ok(last) => followed = last,
            Err(Shutdown) => return,
        }
    }
}

/// Sleeps until something has changed after the change with number `followed`.
fn sleep(index: &Index, woken: &Receiver<()>, followed: u64) -> std::result::Result<(), Shutdown> {
    loop {
        index.sleeps.store(true, Ordering::SeqCst);
        if index.marked.load(Ordering::SeqCst) != followed {
            index.sleeps.store(false, Ordering::SeqCst);
            return Ok(());
        }
        woken.recv().map_err(|_| Shutdown)?;
    }
}

/// Waits, whatever wakes the thread before.
fn wait(woken: &Receiver<()>, pause: Duration) -> std::result::Result<(), Shutdown> {
    let until = Instant::now() + pause;
    loop {
        match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(Shutdown),
        }
    }
}

/// Indexes and merges until there is nothing left to do; answers the number of the last change.
fn follow(index: &Index, woken: &Receiver<()>) -> std::result::Result<u64, Shutdown> {
    let mut pace = Pace::new(index.marked.load(Ordering::SeqCst));
    let mut pause = PART;
    loop {
        wait(woken, pause)?;
        let marked = index.marked.load(Ordering::SeqCst);
        let is_behind = index.done.load(Ordering::Acquire) < marked;
        let work = pace.after(pause, marked, is_behind);
        let started = Instant::now();
        let worked = match work {
            Work::Nothing => Ok(true),
            Work::Index(batch) => index.index_some(batch).map(|left| {
                pace.left = left;
                true
            }),
            Work::Merge => index.rows.db().growing_transaction(merging::step),
        };
        match worked {
            Ok(true) => pause = work.pause(started.elapsed()),
            Ok(false) => return Ok(marked),
            // An index that is behind was logged when it began to be, and a merge can wait.
            Err(error) if error.errno == Errno::NOSPC => return Ok(marked),
            Err(error) => {
                // Results stay correct: each request indexes what is left.
                tracing::warn!(%error, "could not index notes or merge their index; the next change retries");
                return Ok(marked);
            }
        }
    }
}
