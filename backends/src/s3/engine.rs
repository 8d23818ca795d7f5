//! The thread that keeps bucket and cache together: it uploads, looks for news, and tidies, one after the other.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::error::is_damage;
use super::noted::Left;
use super::{GIVE_UP_EVERY, Inner, cache};
use crate::fuse::interrupt::requester_gave_up;
use crate::store::{Errno, Ino, StoreError};

/// How long the thread waits at most after failures in a row, before it asks a server again.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// How long it waits at most before it tries again what cannot go up for a reason of its own: that is read and sent.
const REST_MAX: Duration = Duration::from_secs(60);

/// How long nothing must have been asked for before others are told of what was written.
const IDLE: Duration = Duration::from_millis(200);

/// How long what is under way may go on when the mount is to end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// How an order ended: with what went wrong as whoever waits is told it.
type Done = Result<(), (Errno, String)>;

type Answer = SyncSender<Done>;

enum Order {
    /// Bring up all that is journalled now, and say when it is.
    Upload(Until, Answer),
    /// Look for news now.
    Pull(Answer),
    /// Note what has gone up without the engine.
    Note,
    Stop,
}

/// What somebody who waits for an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The bucket has everything, or at least all of this file: it is safe, and a journal that does not know so yet will
    /// find out.
    InBucket(Ino),
    /// The journal knows, too: nothing is pending any more.
    Noted,
}

/// The engine of one mount.
#[derive(Debug)]
pub(super) struct Engine {
    inner: Arc<Inner>,
    orders: Sender<Order>,
    /// Told when what is under way is not to be waited for any more.
    hurry: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    pub(super) fn start(inner: Arc<Inner>, runtime: Handle) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let hurry = Arc::new(Notify::new());
        let mut running = Running::new(Arc::clone(&inner), runtime, Arc::clone(&hurry));
        let thread = std::thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || running.run(&inbox))?;
        Ok(Self {
            inner,
            orders,
            hurry,
            thread: Mutex::new(Some(thread)),
        })
    }

    fn order(&self, order: impl FnOnce(Answer) -> Order) -> Result<Ordered, StoreError> {
        let (answer, answered) = sync_channel(1);
        let sent = self.orders.send(order(answer));
        sent.map_err(|_| StoreError::storage(Errno::IO, GONE))?;
        Ok(Ordered {
            inner: Arc::clone(&self.inner),
            answered,
        })
    }

    /// Has everything that has been journalled brought up.
    pub(super) fn upload(&self, until: Until) -> Result<Ordered, StoreError> {
        self.order(|answer| Order::Upload(until, answer))
    }

    /// Has the bucket looked at now.
    pub(super) fn pull(&self) -> Result<Ordered, StoreError> {
        self.order(Order::Pull)
    }

    /// Has it noted what has gone up without the engine.
    pub(super) fn note(&self) {
        // An error means that it has ended.
        let _ = self.orders.send(Order::Note);
    }

    /// Ends the thread. What it is at has a short while to end by itself: the rest is journalled.
    pub(super) fn stop(&self) {
        self.inner.is_ending.store(true, Ordering::Release);
        // An error means that it has ended.
        let _ = self.orders.send(Order::Stop);
        self.hurry.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
    }
}

/// What the thread was told to do.
pub(super) struct Ordered {
    inner: Arc<Inner>,
    answered: Receiver<Done>,
}

impl Ordered {
    /// Waits until it is done.
    ///
    /// # Errors
    /// What went wrong; `ETIMEDOUT` when nothing has been read or answered for as long as a request may take, and `EINTR` when
    /// whoever asked has given up. It goes on in the background then.
    pub(super) fn wait(self) -> Result<(), StoreError> {
        let timeout = self.inner.config.timeout;
        let mut answered = self.inner.progress();
        let mut deadline = Instant::now() + timeout;
        loop {
            match self.answered.recv_timeout(GIVE_UP_EVERY) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err((errno, reason))) => return Err(StoreError::storage(errno, reason)),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(StoreError::storage(Errno::IO, GONE));
                }
                Err(RecvTimeoutError::Timeout) if requester_gave_up() => {
                    return Err(Errno::INTR.into());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now_answered = self.inner.progress();
            if now_answered != answered {
                answered = now_answered;
                deadline = Instant::now() + timeout;
            } else if Instant::now()
                >= deadline.max(self.inner.remote.patience().unwrap_or(deadline))
            {
                let reason = format!("S3: no answer within {} s", timeout.as_secs());
                return Err(StoreError::storage(Errno::TIMEDOUT, reason));
            }
        }
    }
}

const GONE: &str = "the sync thread has ended";

/// Something that is tried until it is done.
struct Trying {
    what: &'static str,
    failures: u32,
    /// Nothing is tried by itself before then, after a failure.
    not_before: Instant,
}

impl Trying {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            failures: 0,
            not_before: Instant::now(),
        }
    }

    fn may(&self) -> bool {
        Instant::now() >= self.not_before
    }

    fn is_done(&mut self) {
        if self.failures > 0 {
            let (what, failures) = (self.what, self.failures);
            tracing::warn!("{what}: done, after {failures} failures");
        }
        *self = Self::new(self.what);
    }

    /// Says it once.
    fn has_failed(&mut self, error: &StoreError, longest: Duration) {
        if self.failures == 0 {
            tracing::warn!("{}: {error}; trying again", self.what);
            if is_damage(&error.to_string()) {
                tracing::error!(
                    "the cache is damaged: unmount, and mount again with --rebuild-cache"
                );
            }
        }
        self.failures += 1;
        let wait = Duration::from_millis(200) * 2_u32.saturating_pow(self.failures.min(10));
        self.not_before = Instant::now() + wait.min(longest);
    }
}

struct Running {
    inner: Arc<Inner>,
    runtime: Handle,
    hurry: Arc<Notify>,
    next_pull: Instant,
    uploads: Trying,
    pulls: Trying,
    /// What could not go up for reasons of its own, and rests until it is tried again.
    left: Option<Left>,
    /// How many changes there were when changes were brought up last.
    tried: u64,
    /// The server did what it was asked for last.
    is_reached: bool,
    last_order: Instant,
    /// Nobody is told what went up before then, after a failure.
    next_tidy: Instant,
}

impl Running {
    fn new(inner: Arc<Inner>, runtime: Handle, hurry: Arc<Notify>) -> Self {
        let now = Instant::now();
        Self {
            next_pull: now + inner.config.poll,
            inner,
            runtime,
            hurry,
            uploads: Trying::new("bringing up changes"),
            pulls: Trying::new("looking for changes of others"),
            left: None,
            tried: 0,
            is_reached: true,
            last_order: now - IDLE,
            next_tidy: now,
        }
    }

    fn run(&mut self, inbox: &Receiver<Order>) {
        let tick = self.inner.config.delay.clamp(
            Duration::from_millis(10),
            self.inner.config.poll.max(Duration::from_millis(10)),
        );
        loop {
            let mut uploads = Vec::new();
            let mut pulls = Vec::new();
            // Others wait to be told of what went up.
            let has_news = self.inner.has_news.load(Ordering::Acquire);
            let wait = if has_news { tick.min(IDLE) } else { tick };
            let first = match inbox.recv_timeout(wait) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            // Everybody who waits by now is served by the same batch.
            for order in first.into_iter().chain(inbox.try_iter()) {
                match order {
                    Order::Upload(until, answer) => uploads.push((until, answer)),
                    Order::Pull(answer) => pulls.push(answer),
                    Order::Note => {
                        // Who has the turn otherwise has taken it since, and has noted it.
                        if let Ok(_turn) = self.inner.turn.try_lock() {
                            self.inner.note_waiting();
                        }
                        self.last_order = Instant::now();
                    }
                    Order::Stop => {
                        // A server that does not answer has made everybody wait long enough.
                        if self.is_reached {
                            self.tidy();
                        }
                        return;
                    }
                }
            }
            let changes = self.inner.changes.load(Ordering::Acquire);
            let is_new = changes != self.tried;
            // What cannot go up holds up nothing that has come since.
            let only_rests = self.left.is_some() && self.is_reached;
            let may_try = self.uploads.may() || (is_new && only_rests);
            if !uploads.is_empty() || (may_try && self.inner.has_changes()) {
                if !uploads.is_empty() || is_new {
                    self.last_order = Instant::now();
                }
                self.tried = changes;
                self.bring_up(uploads);
            }
            if !pulls.is_empty() || (self.pulls.may() && Instant::now() >= self.next_pull) {
                let done = self.until_hurried(self.inner.pull());
                self.next_pull = Instant::now() + self.inner.config.poll;
                self.is_reached = done.is_ok();
                match &done {
                    Ok(()) => self.pulls.is_done(),
                    Err(error) => {
                        self.pulls.has_failed(error, BACKOFF_MAX);
                        self.inner.tally.failures.fetch_add(1, Ordering::Relaxed);
                    }
                }
                for answer in pulls {
                    let _ = answer.send(told(done.as_ref()));
                }
            }
            let is_idle = self.last_order.elapsed() >= IDLE;
            if is_idle && self.is_reached && Instant::now() >= self.next_tidy {
                self.tidy();
            }
        }
    }

    /// Brings up what there is, for all who wait. What could not go up before rests, unless it is time or somebody waits
    /// for that.
    fn bring_up(&mut self, mut waiting: Vec<(Until, Answer)>) {
        let mut resting = self.left.take();
        let is_wanted = |left: &Left| {
            waiting.iter().any(|(until, _)| match until {
                Until::InBucket(ino) => left.concerns(*ino),
                Until::Noted => true,
            })
        };
        if self.uploads.may() || resting.as_ref().is_some_and(is_wanted) {
            resting = None;
        }
        let mut in_bucket = || {
            waiting.retain(|(until, answer)| {
                let waits = *until == Until::Noted;
                if !waits {
                    // Nobody may be waiting any more.
                    let _ = answer.send(Ok(()));
                }
                waits
            });
        };
        let done = self.until_hurried(self.inner.upload(resting.as_ref(), &mut in_bucket));
        if !waiting.is_empty() {
            self.last_order = Instant::now();
        }
        for (until, answer) in waiting {
            let is_there =
                matches!((until, &done), (Until::InBucket(ino), Err(left)) if !left.concerns(ino));
            let done = done.as_ref().map_err(|left| &left.reason);
            // Nobody may be waiting any more.
            let _ = answer.send(if is_there { Ok(()) } else { told(done) });
        }
        self.is_reached = done.as_ref().err().is_none_or(|left| left.own.is_some());
        if done.is_err() {
            self.inner.tally.failures.fetch_add(1, Ordering::Relaxed);
        }
        match done {
            Ok(()) => self.uploads.is_done(),
            Err(left) if left.own.is_none() => {
                self.uploads.has_failed(&left.reason, BACKOFF_MAX);
                self.left = resting;
            }
            Err(left) => {
                if resting.is_none() {
                    self.uploads.has_failed(&left.reason, REST_MAX);
                }
                self.left = Some(left);
            }
        }
    }

    /// Does `work`, but for no longer than [`LAST_WORDS`] once the mount is to end.
    fn until_hurried<E: From<StoreError>>(
        &self,
        work: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let work = async {
            let _turn = self.inner.turn.lock().await;
            self.inner.note_waiting();
            work.await
        };
        self.runtime.block_on(async {
            let hurried = async {
                self.hurry.notified().await;
                // For the order to stop, which comes next.
                self.hurry.notify_one();
                tokio::time::sleep(self.inner.config.timeout.min(LAST_WORDS)).await;
            };
            tokio::select! {
                done = work => done,
                () = hurried => Err(StoreError::storage(Errno::IO, "S3: the mount ends").into()),
            }
        })
    }

    /// Writes what nobody waits for: the index, and the audit log.
    fn tidy(&mut self) {
        if !self.inner.has_news.load(Ordering::Acquire) {
            return;
        }
        let tidied: Result<(), StoreError> = self.until_hurried(async {
            self.inner.write_index().await?;
            self.inner.write_audit().await
        });
        match tidied {
            // Only uploads make news, and they are this thread's.
            Ok(()) => self.inner.has_news.store(false, Ordering::Release),
            Err(error) => {
                tracing::debug!(%error, "index and audit log wait");
                self.next_tidy = Instant::now() + BACKOFF_MAX;
            }
        }
    }
}

fn told(done: Result<&(), &StoreError>) -> Done {
    match done {
        Ok(()) => Ok(()),
        Err(error) => Err((error.errno, error.to_string())),
    }
}

impl Inner {
    /// Appends to the audit log: one object a time, never changed again.
    async fn write_audit(&self) -> Result<(), StoreError> {
        let (lines, last) = self.cache.transaction(cache::audit)?;
        if lines.is_empty() {
            return Ok(());
        }
        let at = jiff::Timestamp::now().as_nanosecond().to_string();
        let mut body = lines.into_bytes();
        if let Some(seal) = &self.seal {
            body = seal
                .seal(&body)
                .map_err(|error| StoreError::storage(Errno::IO, error))?;
        }
        let key = self.layout.audit(&at);
        let attributes = object_store::Attributes::new();
        self.remote
            .put(
                &key,
                body.into(),
                attributes,
                &super::remote::Expect::Anything,
            )
            .await?;
        self.cache.transaction(|db| cache::audited(db, last))
    }
}
