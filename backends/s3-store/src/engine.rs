//! The thread that runs the protocol for one mount: it commits, polls, and writes checkpoints and the mirror.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::interrupt::requester_gave_up;
use fuse::store::{Errno, Ino, Store, StoreError, Timestamp};
use parking_lot::Mutex;
use s3::checkout::random;
use s3::objects::Fault;
use s3::replica::{Replica, ReplicaError};
use s3::session::{Contact, Session, SessionError};
use s3::tree::{Body, Name, NodeId, ROOT, Tree};
use tokio::sync::Notify;

use crate::adopt::AdoptedChanges;
use crate::cache::Cache;
use crate::invalidation::StaleEntries;
use crate::link::{Link, Log};
use crate::mirroring::Mirror;
use crate::retry::{Retry, Work};
use crate::tables;
use crate::{GIVE_UP_EVERY, Inner, session_error};

/// The longest path of a call, with the zero at its end.
const PATH_MAX: usize = 4096;

/// How long the mirror lags behind at least, so that one object is written for many changes.
const MIRROR_AFTER: Duration = Duration::from_secs(2);

/// The bytes of uploads under way that have to have an answer within the time limit of one request.
const SOON: u64 = 4 << 20;

/// The slowest connection that a caller waits on for more, in bytes a second. On a slower one the call fails, and the upload
/// goes on.
const SLOWEST: u64 = 512 << 10;

/// How long the end of a mount may be put off by a checkpoint.
const LAST_CHECKPOINT: Duration = Duration::from_secs(5);

type SyncResult = Result<(), (Errno, String)>;
type Answer = SyncSender<SyncResult>;

enum Job {
    /// Commit the current journal.
    Commit(Answer),
    /// Adopt others' commits.
    Poll(Answer),
    Stop,
}

/// The engine of one mount.
#[derive(Debug)]
pub(super) struct Engine {
    inner: Arc<Inner>,
    jobs: Sender<Job>,
    /// Ends a poll that is under way, because something else is wanted.
    hurry: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

const GONE: &str = "the sync thread has ended";

impl Engine {
    pub(super) fn start(
        inner: Arc<Inner>,
        link: Link,
        (cache, contact): (Cache, Contact),
        mirror: Option<Mirror>,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = channel();
        let hurry = Arc::new(Notify::new());
        let now = Instant::now();
        let mirror_due = mirror.as_ref().filter(|it| !it.is_current(cache.head()));
        let mirror_due = mirror_due.map(|_| now + MIRROR_AFTER);
        let mut running = EngineState {
            inner: Arc::clone(&inner),
            contact,
            checkpoint: cache.head().number,
            cache,
            mirror_due,
            mirror,
            link,
            hurry: Arc::clone(&hurry),
            next_commit: now + inner.config.delay,
            next_poll: now + inner.config.poll,
            next_glance: now + inner.config.glance,
            uploads: Retry::new(Work::Upload, now),
            polls: Retry::new(Work::Poll, now),
            is_doubtful: false,
        };
        let thread = std::thread::Builder::new().name("sync".to_owned()).spawn(move || running.run(&inbox))?;
        Ok(Self { inner, jobs, hurry, thread: Mutex::new(Some(thread)) })
    }

    /// Waits until everything that was changed before is in the log.
    pub(super) fn commit(&self) -> Result<(), StoreError> {
        self.submit(Job::Commit)
    }

    /// Waits until all earlier commits of others are adopted.
    pub(super) fn poll(&self) -> Result<(), StoreError> {
        self.submit(Job::Poll)
    }

    fn submit(&self, job: impl FnOnce(Answer) -> Job) -> Result<(), StoreError> {
        let gone = || StoreError::storage(Errno::IO, GONE);
        let (answer, answered) = sync_channel(1);
        self.jobs.send(job(answer)).map_err(|_| gone())?;
        self.hurry.notify_one();
        // The engine's requests to the bucket: those of reads prove nothing here.
        let bucket = &self.inner.buckets[1];
        let sent = || bucket.requests().get("s3_bytes_sent").copied().unwrap_or(0);
        let (mut answers, mut sent_before) = (bucket.answers(), sent());
        let mut since = Instant::now();
        loop {
            match answered.recv_timeout(GIVE_UP_EVERY) {
                Ok(done) => {
                    return done.map_err(|(errno, reason)| StoreError::storage(errno, reason));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if requester_gave_up() => {
                    return Err(Errno::INTR.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = bucket.answers();
            if now != answers {
                (answers, sent_before, since) = (now, sent(), Instant::now());
            }
            // Only an answer is progress: a request that is sent again proves nothing.
            let under_way = sent().saturating_sub(sent_before);
            let bodies = Duration::from_secs(under_way.saturating_sub(SOON) / SLOWEST);
            let limit = self.inner.config.timeout + bodies;
            if since.elapsed() >= limit {
                let seconds = limit.as_secs();
                let reason = format!("the bucket has not answered within {seconds} s");
                return Err(StoreError::storage(Errno::TIMEDOUT, reason));
            }
        }
    }

    /// Ends the thread and drops its work in progress: the journal has it.
    pub(super) fn stop(&self) {
        self.inner.is_ending.store(true, Ordering::Release);
        // An error means that it has ended.
        let _ = self.jobs.send(Job::Stop);
        self.hurry.notify_one();
        let mut thread = self.thread.lock();
        if let Some(thread) = thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}

struct EngineState {
    inner: Arc<Inner>,
    cache: Cache,
    contact: Contact,
    /// The last checkpoint that this mount knows of.
    checkpoint: u64,
    mirror: Option<Mirror>,
    mirror_due: Option<Instant>,
    link: Link,
    hurry: Arc<Notify>,
    /// The time of the next commit that no caller asks for.
    next_commit: Instant,
    next_poll: Instant,
    next_glance: Instant,
    uploads: Retry,
    polls: Retry,
    /// The log may have lost its last commits: a server that was away may be back without them.
    is_doubtful: bool,
}

/// A request to the bucket was dropped because the mount ends, or because another job has come.
fn dropped() -> SessionError {
    Fault::Unknown("the request was dropped".to_owned()).into()
}

/// Files that cannot be committed until they are written again.
fn nowhere(files: &[String]) -> SessionError {
    let files = files.join(", ");
    let reason = format!(
        "the content of {files} is damaged or lost here, and the bucket does not have it; write these files again, or remove them"
    );
    ReplicaError { kind: ErrorKind::InvalidData, reason }.into()
}

impl EngineState {
    fn run(&mut self, inbox: &Receiver<Job>) {
        loop {
            let now = Instant::now();
            let unasked = self.commit_due().min(self.poll_due());
            let due = self.mirror_due.map_or(unasked, |due| due.min(unasked));
            let wait = due.saturating_duration_since(now);
            let first = match inbox.recv_timeout(wait) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let is_idle = first.is_none();
            // All callers that wait by now share a commit.
            let (mut commits, mut polls) = (Vec::new(), Vec::new());
            for job in first.into_iter().chain(inbox.try_iter()) {
                match job {
                    Job::Commit(answer) => commits.push(answer),
                    Job::Poll(answer) => polls.push(answer),
                    Job::Stop => return self.end(),
                }
            }
            let now = Instant::now();
            let is_due = now >= self.commit_due();
            if !commits.is_empty() || (is_due && self.inner.has_changes()) {
                let done = self.commit();
                self.answer(Work::Upload, commits, &done);
                // After a failure, `uploads` alone puts off the next attempt.
                self.next_commit = Instant::now();
                if done.is_ok() {
                    self.next_commit += self.inner.config.delay;
                    self.make_checkpoint();
                }
            } else if is_due {
                self.next_commit = now + self.inner.config.delay;
            }
            if !polls.is_empty() || Instant::now() >= self.poll_due() {
                let done = self.poll(!polls.is_empty());
                self.answer(Work::Poll, polls, &done);
            }
            if self.mirror_due.is_some_and(|due| Instant::now() >= due) {
                self.show_in_mirror();
            }
            if is_idle {
                self.save();
            }
        }
    }

    /// When the next commit is due that no caller asks for.
    fn commit_due(&self) -> Instant {
        self.next_commit.max(self.uploads.not_before())
    }

    /// When the next poll, or check of the head, is due that no caller asks for.
    fn poll_due(&self) -> Instant {
        self.next_poll.min(self.next_glance).max(self.polls.not_before())
    }

    fn save(&mut self) {
        if let Err(error) = self.cache.save() {
            // The next session reads the commits from the log again.
            tracing::debug!(%error, "noting commits in the cache");
        }
    }

    /// Leaves the mirror as the log is, and a checkpoint for the next mount without a cache, if the bucket answers.
    fn end(&mut self) {
        self.save();
        if let Some(mut mirror) = self.mirror.take() {
            if !mirror.is_current(self.cache.head()) {
                mirror.show(&self.cache);
            }
            mirror.end(&self.cache);
        }
        let (last, is_writer) = (self.checkpoint, self.inner.counters.commits.load(Ordering::Relaxed) > 0);
        if self.uploads.is_failing() || self.polls.is_failing() || !is_writer {
            return;
        }
        let link = &self.link;
        let now = || Timestamp::now().0;
        let mut session = Session {
            objects: &link.log,
            replica: &mut self.cache,
            now: &now,
            random: &random,
            contact: &mut self.contact,
        };
        let written = async { tokio::time::timeout(LAST_CHECKPOINT, session.checkpoint(last, true)).await };
        if !matches!(link.runtime.block_on(written), Ok(Ok(_))) {
            // Nothing depends on it.
            tracing::debug!("no checkpoint was written at the end");
        }
    }

    fn answer(&mut self, work: Work, waiting: Vec<Answer>, done: &Result<(), SessionError>) {
        if let Err(error) = done
            && !self.inner.is_ending.load(Ordering::Acquire)
        {
            self.has_failed(work, error);
        }
        for answer in waiting {
            let told = done.as_ref().map_err(|error| {
                let error = session_error(error);
                (error.errno, error.reason.unwrap_or_default())
            });
            // The caller may have given up.
            let _ = answer.send(told.copied());
        }
    }

    fn retry(&mut self, work: Work) -> &mut Retry {
        match work {
            Work::Upload => &mut self.uploads,
            Work::Poll => &mut self.polls,
        }
    }

    /// Says the first of several failures of one kind, and puts off the next attempt of the same work.
    fn has_failed(&mut self, work: Work, error: &SessionError) {
        // A full disk here says nothing of the log.
        self.is_doubtful |= !matches!(error, SessionError::Replica(_));
        self.inner.counters.failures.fetch_add(1, Ordering::Relaxed);
        let inner = Arc::clone(&self.inner);
        match self.retry(work).failed(error, inner.store.path(), Instant::now()) {
            Some(line) if matches!(error, SessionError::Broken(_)) => tracing::error!("{line}"),
            Some(line) => tracing::warn!("{line}"),
            None => {}
        }
    }

    fn has_succeeded(&mut self, work: Work) {
        if let Some(line) = self.retry(work).succeeded(Instant::now()) {
            tracing::warn!("{line}");
        }
    }

    /// Runs `work` with a session. It is dropped when the mount ends, and if `may_hurry` also when a job comes.
    fn session<T>(
        &mut self,
        may_hurry: bool,
        work: impl AsyncFnOnce(&mut Session<'_, Log, Cache>) -> Result<T, SessionError>,
    ) -> Result<T, SessionError> {
        let now = || Timestamp::now().0;
        let inner = Arc::clone(&self.inner);
        let mut session = Session {
            objects: &self.link.log,
            replica: &mut self.cache,
            now: &now,
            random: &random,
            contact: &mut self.contact,
        };
        let hurry = &self.hurry;
        self.link.runtime.block_on(async {
            let ended = async {
                while !inner.is_ending.load(Ordering::Acquire) {
                    hurry.notified().await;
                    if may_hurry {
                        // The job is done next.
                        return;
                    }
                }
            };
            tokio::select! {
                biased;
                done = work(&mut session) => done,
                () = ended => Err(dropped()),
            }
        })
    }

    fn commit(&mut self) -> Result<(), SessionError> {
        let changes = self.inner.changes.load(Ordering::Acquire);
        let (is_doubtful, before) = (self.is_doubtful, self.cache.head());
        let done = self.session(false, async |session| {
            if is_doubtful {
                // A commit to a bucket that was emptied would succeed.
                session.verify().await?;
            }
            session.commit().await
        });
        self.take_adopted();
        let done = done?;
        self.is_doubtful = false;
        if self.cache.head() != before {
            // Also a commit whose answer was lost, which is found in the log.
            self.mirror_soon();
        }
        if done.number.is_some() {
            // Being created right after the head, it has proved that there was nothing to poll for.
            self.next_poll = Instant::now() + self.inner.config.poll;
            self.inner.counters.commits.fetch_add(1, Ordering::Relaxed);
        }
        // A file that changed meanwhile was taken as it was read: with all changes before this call, and maybe with some of
        // those that the next batch takes.
        if done.restless == 0 {
            self.inner.synced.fetch_max(changes, Ordering::AcqRel);
        }
        if !done.missing.is_empty() {
            return Err(nowhere(&done.missing));
        }
        self.has_succeeded(Work::Upload);
        Ok(())
    }

    /// Adopts others' commits. Where a check of the head is due and no caller waits, it only checks.
    fn poll(&mut self, is_waited_for: bool) -> Result<(), SessionError> {
        let is_doubtful = self.is_doubtful;
        let is_due = is_doubtful || Instant::now() >= self.next_glance;
        // Only a poll that follows the log ends failures of polls.
        let follows = is_waited_for || is_doubtful || !is_due;
        // A check is never cut short: a mount with one commit after another would never finish one.
        let done = self.session(!is_waited_for && !is_due, async |session| {
            match is_due {
                true if is_doubtful => session.verify().await?,
                true => session.glance().await?,
                false => {}
            }
            if follows { session.follow().await } else { Ok(0) }
        });
        self.take_adopted();
        self.inner.unread.forget_old();
        match done {
            Ok(adopted) => {
                self.inner.counters.adopted.fetch_add(adopted, Ordering::Relaxed);
                self.is_doubtful = false;
                if follows {
                    self.has_succeeded(Work::Poll);
                }
            }
            // Cut short for a job: it is tried again soon.
            Err(error) if error == dropped() && !is_waited_for => return Ok(()),
            Err(error) => {
                self.next_poll = Instant::now() + self.inner.config.poll;
                return Err(error);
            }
        }
        let now = Instant::now();
        if is_due {
            self.next_glance = now + self.inner.config.glance;
        }
        if follows {
            self.inner.counters.polls.fetch_add(1, Ordering::Relaxed);
            self.next_poll = now + self.inner.config.poll;
        }
        Ok(())
    }

    /// Invalidates the kernel's caches for adopted commits.
    fn take_adopted(&mut self) {
        let adopted = std::mem::take(&mut self.cache.adopted);
        self.inner.counters.conflicts.fetch_add(adopted.conflicts, Ordering::Relaxed);
        let watched = self.watched(&adopted).unwrap_or_else(|error| {
            tracing::warn!(%error, "no inotify event is raised for a change of another host");
            Vec::new()
        });
        let stale = StaleEntries {
            watched,
            inodes: adopted.inodes.into_iter().collect(),
            names: adopted.names.into_iter().collect(),
            orphans: adopted.orphans.into_iter().collect(),
        };
        if !(stale.inodes.is_empty() && stale.names.is_empty()) {
            self.inner.index.adopted();
            self.inner.kernel.send(stale);
        }
    }

    /// The changed inodes that a program may watch, and new names in directories that it may watch, with their paths.
    /// Directories come first: their events tell of a change if the others are dropped.
    fn watched(&self, adopted: &AdoptedChanges) -> Result<Vec<(Ino, Vec<u8>)>, StoreError> {
        let kernel = &self.inner.kernel;
        let (base, store) = (&self.cache.base, &self.inner.store);
        let mut watched = BTreeMap::new();
        for ino in adopted.inodes.iter().filter(|ino| kernel.knows(**ino)) {
            let id = tables::identity(&store.db(), *ino)?;
            if let Some(id) = id
                && let Some(path) = short_path(base, id)
            {
                let node = base.node(id);
                let is_directory = node.is_some_and(|node| node.body == Body::Directory);
                watched.insert((!is_directory && id != ROOT, *ino), path);
            }
        }
        for (parent, name) in &adopted.names {
            let Some(dir) = watched.get(&(false, *parent)) else {
                continue;
            };
            let path = if dir.is_empty() { name.clone() } else { [dir, &b"/"[..], name].concat() };
            let db = store.db();
            let found = tables::identity(&db, *parent)?;
            let found = found.and_then(|dir| base.name(&(dir, Name(name.clone()))));
            let ino = match found {
                Some(id) => tables::ino_of(&db, id)?,
                None => None,
            };
            if let Some(ino) = ino {
                watched.insert((true, ino), path);
            }
        }
        Ok(watched.into_iter().map(|((_, ino), path)| (ino, path)).collect())
    }

    fn make_checkpoint(&mut self) {
        let last = self.checkpoint;
        let head = self.cache.head().number;
        match self.session(false, async |session| session.checkpoint(last, false).await) {
            Ok(true) => self.checkpoint = head,
            Ok(false) => {}
            // Nothing depends on it; the next commit tries again.
            Err(error) => tracing::debug!(%error, "writing a checkpoint"),
        }
    }

    fn mirror_soon(&mut self) {
        if self.mirror.is_some() {
            self.mirror_due.get_or_insert_with(|| Instant::now() + MIRROR_AFTER);
        }
    }

    fn show_in_mirror(&mut self) {
        self.mirror_due = None;
        if let Some(mirror) = &mut self.mirror {
            mirror.show(&self.cache);
        }
    }
}

/// A path of a node that the kernel takes in one call; `None` for a longer one, or a node without a name.
fn short_path(base: &Tree, id: NodeId) -> Option<Vec<u8>> {
    let (mut names, mut length, mut at) = (Vec::new(), 0, id);
    while at != ROOT {
        let (dir, name) = base.names_of(at).next()?;
        length += name.0.len() + 1;
        if length > PATH_MAX {
            return None;
        }
        names.push(&name.0[..]);
        at = *dir;
    }
    names.reverse();
    Some(names.join(&b'/'))
}

/// Makes everything durable here, and then in the bucket.
///
/// # Errors
/// If either cannot be done; the reason says how much is left.
pub(super) fn sync_before_end(inner: &Inner, engine: &Engine) -> Result<(), StoreError> {
    inner.store.sync()?;
    if !inner.has_changes() {
        return Ok(());
    }
    engine.commit().map_err(|error| {
        let pending = tables::pending(&inner.store.db()).unwrap_or(0);
        let reason = error.reason.unwrap_or_default();
        let reason = format!(
            "{pending} changes are not in the bucket yet: {reason}; the cache keeps them, and the next mount uploads them"
        );
        StoreError::storage(error.errno, reason)
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
    use s3::config::S3Config;

    use super::*;
    use crate::testing::{FILE, OWNER, config};
    use crate::{OpenOptions, S3Store};

    #[test]
    fn a_poll_that_succeeds_ends_no_pause_of_an_upload_that_the_local_disk_refuses() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bucket")).unwrap();
        let soon = Duration::from_millis(10);
        let config =
            S3Config { poll: soon, delay: soon, ..config(format!("file://{}", dir.path().display()), "bucket", "a") };
        let store = S3Store::open(config, &dir.path().join("a.db"), &OWNER, OpenOptions::default()).unwrap();
        let counted = |name| store.counters()[name];
        let refuse = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Insert { table_name: "s3_intent" } => Authorization::Deny,
            _ => Authorization::Allow,
        };
        store.inner.store.db().connection.authorizer(Some(refuse)).unwrap();
        store.create(&OWNER, fuse::store::ROOT, b"a", &FILE).unwrap();
        let began = Instant::now();
        let polled = counted("s3_polls") + 20;
        while counted("s3_polls") < polled || began.elapsed() < Duration::from_millis(1500) {
            assert!(began.elapsed() < Duration::from_secs(60), "a failing upload stops the polls");
            std::thread::sleep(soon);
        }
        // After 0.2, 0.4, 0.8, 1.6 s and so on.
        let most = 5 + began.elapsed().as_secs();
        assert!((1..=most).contains(&counted("s3_failures")), "{} failures", counted("s3_failures"));
        assert_eq!(counted("s3_commits"), 0);
        let allow = |_: AuthContext<'_>| Authorization::Allow;
        store.inner.store.db().connection.authorizer(Some(allow)).unwrap();
        store.upload().unwrap();
        assert_eq!((counted("s3_commits"), store.pending().unwrap()), (1, 0));
    }

    #[test]
    fn a_full_local_disk_is_no_space_to_a_caller_that_waits_for_an_upload() {
        let full = ReplicaError { kind: ErrorKind::StorageFull, reason: "the cache is full".to_owned() };
        assert_eq!(session_error(&full.into()).errno, Errno::NOSPC);
        assert_eq!(session_error(&nowhere(&["a".to_owned()])).errno, Errno::IO);
    }
}
