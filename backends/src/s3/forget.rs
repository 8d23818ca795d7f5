//! What the kernel has to forget, told by a thread of its own: the kernel may make whoever tells it wait for an
//! answer of this very mount, which must not be what nobody else can give.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::{Ino, KernelCache};

/// How long an inode that is being fetched is left alone.
const FETCH_PATIENCE: Duration = Duration::from_secs(60);

/// How long [`Forgetting::settle`] waits for a kernel that is busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// What changed without the kernel's doing.
#[derive(Debug, Default)]
pub(super) struct Forget {
    pub(super) inodes: Vec<Ino>,
    pub(super) names: Vec<(Ino, Vec<u8>)>,
}

/// Inodes that reads are waiting for the bucket of. The kernel has locked their pages until these reads are
/// answered: who tells it to forget them waits for as long, and if this process is killed meanwhile, for ever.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<Ino, u32>>);

/// One such read.
pub(super) struct WaitingRead<'a>(&'a Waiting, Ino);

impl Waiting {
    fn counts(&self) -> MutexGuard<'_, HashMap<Ino, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, ino: Ino) -> WaitingRead<'_> {
        *self.counts().entry(ino).or_default() += 1;
        WaitingRead(self, ino)
    }

    /// Waits until nothing waits for an inode, unless that takes too long.
    fn settle(&self, ino: Ino) {
        let deadline = Instant::now() + FETCH_PATIENCE;
        while self.counts().contains_key(&ino) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for WaitingRead<'_> {
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

/// The way to the kernel, while there is one.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    pub(super) waiting: Arc<Waiting>,
    queue: Mutex<Option<Sender<Forget>>>,
    sent: AtomicU64,
    done: Arc<AtomicU64>,
}

impl Forgetting {
    pub(super) fn attach(&self, kernel: Arc<dyn KernelCache>) {
        let (queue, inbox) = channel();
        let (done, waiting) = (Arc::clone(&self.done), Arc::clone(&self.waiting));
        let spawned = std::thread::Builder::new()
            .name("forget".to_owned())
            .spawn(move || run(&*kernel, &inbox, &waiting, &done));
        match spawned {
            Ok(_) => *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue),
            Err(error) => tracing::error!(%error, "changes of others will not be seen: no thread"),
        }
    }

    /// Not waited for: the kernel answers when the mount is gone.
    pub(super) fn detach(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    pub(super) fn tell(&self, forget: Forget) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*queue
            && queue.send(forget).is_ok()
        {
            self.sent.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until the kernel has been told all, unless it takes too long.
    pub(super) fn settle(&self) {
        let sent = self.sent.load(Ordering::Acquire);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::Acquire) < sent && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

fn run(kernel: &dyn KernelCache, inbox: &Receiver<Forget>, waiting: &Waiting, done: &AtomicU64) {
    while let Ok(forget) = inbox.recv() {
        for (parent, name) in &forget.names {
            kernel.forget_name(*parent, name);
        }
        for ino in &forget.inodes {
            waiting.settle(*ino);
            kernel.forget_inode(*ino);
        }
        done.fetch_add(1, Ordering::Release);
    }
}
