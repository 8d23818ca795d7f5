//! The thread that keeps bucket and cache together: it uploads, looks for news, and tidies, one after the other.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::{Inner, cache};
use crate::store::{Errno, StoreError};

/// How long the thread waits at most after failures in a row.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// How long nothing must have been asked for before others are told of what was written.
const IDLE: Duration = Duration::from_millis(200);

enum Order {
    /// Bring up all that is journalled now, and say when it is.
    Upload(Until, SyncSender<Result<(), String>>),
    /// Look for news now.
    Pull(SyncSender<Result<(), String>>),
    Stop,
}

/// What somebody who waits for an upload waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The bucket has everything: it is safe, and a journal that does not know so yet will find out.
    InBucket,
    /// The journal knows, too: nothing is pending any more.
    Noted,
}

/// The engine of one mount.
#[derive(Debug)]
pub(super) struct Engine {
    orders: Sender<Order>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    pub(super) fn start(inner: Arc<Inner>, runtime: Handle) -> std::io::Result<Self> {
        let (orders, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("sync".to_owned())
            .spawn(move || Running::new(inner, runtime).run(&inbox))?;
        Ok(Self {
            orders,
            thread: Mutex::new(Some(thread)),
        })
    }

    fn order(
        &self,
        order: impl FnOnce(SyncSender<Result<(), String>>) -> Order,
    ) -> Result<Ordered, StoreError> {
        let (answer, answered) = sync_channel(1);
        let sent = self.orders.send(order(answer));
        sent.map_err(|_| StoreError::storage(Errno::IO, GONE))?;
        Ok(Ordered(answered))
    }

    /// Has everything that has been journalled brought up.
    pub(super) fn upload(&self, until: Until) -> Result<Ordered, StoreError> {
        self.order(|answer| Order::Upload(until, answer))
    }

    /// Has the bucket looked at now.
    pub(super) fn pull(&self) -> Result<Ordered, StoreError> {
        self.order(Order::Pull)
    }

    /// Ends the thread, after what it is at.
    pub(super) fn stop(&self) {
        // An error means that it has ended.
        let _ = self.orders.send(Order::Stop);
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
pub(super) struct Ordered(Receiver<Result<(), String>>);

impl Ordered {
    /// Waits until it is done.
    pub(super) fn wait(self) -> Result<(), StoreError> {
        match self.0.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(StoreError::storage(Errno::IO, reason)),
            Err(_) => Err(StoreError::storage(Errno::IO, GONE)),
        }
    }
}

const GONE: &str = "the sync thread has ended";

struct Running {
    inner: Arc<Inner>,
    runtime: Handle,
    next_pull: Instant,
    /// Nothing is tried by itself before then, after a failure.
    not_before: Instant,
    failures: u32,
    last_order: Instant,
}

impl Running {
    fn new(inner: Arc<Inner>, runtime: Handle) -> Self {
        let now = Instant::now();
        Self {
            next_pull: now + inner.config.poll,
            inner,
            runtime,
            not_before: now,
            failures: 0,
            last_order: now - IDLE,
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
                    Order::Stop => {
                        self.tidy();
                        return;
                    }
                }
            }
            let now = Instant::now();
            let may_try = now >= self.not_before;
            if !uploads.is_empty() || (may_try && self.inner.has_changes()) {
                let mut in_bucket = || {
                    uploads.retain(|(until, answer)| {
                        let waits = *until == Until::Noted;
                        if !waits {
                            // Nobody may be waiting any more.
                            let _ = answer.send(Ok(()));
                        }
                        waits
                    });
                };
                let done = self.runtime.block_on(self.inner.upload(&mut in_bucket));
                self.last_order = Instant::now();
                self.note("bringing up changes", &done);
                for (_, answer) in uploads {
                    // Nobody may be waiting any more.
                    let _ = answer.send(done.as_ref().map_err(ToString::to_string).copied());
                }
            }
            if !pulls.is_empty() || (may_try && now >= self.next_pull) {
                let done = self.runtime.block_on(self.inner.pull());
                self.next_pull = Instant::now() + self.inner.config.poll;
                self.note("looking for changes of others", &done);
                for answer in pulls {
                    let _ = answer.send(done.as_ref().map_err(ToString::to_string).copied());
                }
            }
            if self.last_order.elapsed() >= IDLE && may_try {
                self.tidy();
            }
        }
    }

    /// Says once that the server is not to be reached, and once that it is again.
    fn note(&mut self, what: &str, done: &Result<(), StoreError>) {
        match done {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::warn!(
                        "the bucket is reached again after {} failures",
                        self.failures
                    );
                }
                self.failures = 0;
                self.not_before = Instant::now();
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!("{what}: {error}; trying again");
                }
                self.failures += 1;
                self.inner.tally.failures.fetch_add(1, Ordering::Relaxed);
                let wait = Duration::from_millis(200) * 2_u32.saturating_pow(self.failures.min(8));
                self.not_before = Instant::now() + wait.min(BACKOFF_MAX);
            }
        }
    }

    /// Writes what nobody waits for: the index, and the audit log.
    fn tidy(&self) {
        if !self.inner.has_news.load(Ordering::Acquire) {
            return;
        }
        let tidied = self.runtime.block_on(async {
            self.inner.write_index().await?;
            self.inner.write_audit().await
        });
        match tidied {
            // Only uploads make news, and they are this thread's.
            Ok(()) => self.inner.has_news.store(false, Ordering::Release),
            Err(error) => tracing::debug!(%error, "index and audit log wait"),
        }
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
