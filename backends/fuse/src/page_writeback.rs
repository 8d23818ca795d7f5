//! Has the kernel write its dirty pages back, and waits until the store has them.
//!
//! The kernel does not tell the daemon of pages that a shared mapping has made dirty. `syncfs` queues their writes and does
//! not wait for them. A thread with descriptors of its own makes the calls: see [`own_mount`](crate::own_mount).

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{OFlags, fstatfs, syncfs};
use rustix::io::Errno;

use crate::cached_writes::CachedWrites;
use crate::connection::MountEntry;
use crate::interrupt::requester_gave_up;
use crate::own_mount::{leave_descriptors, open_root};
use crate::request_threads::RequestThreads;

/// How long a caller waits for the kernel's dirty pages.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a caller waits before it looks at its requester again.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a thread that has answered needs to wait for its next request.
const TURN: Duration = Duration::from_micros(200);

/// The reason for which some dirty pages may not have reached the store.
type Outcome = Result<(), String>;

/// The parts of a mount that its writeback needs.
#[derive(Clone, Debug)]
pub(super) struct WritebackParts {
    pub(super) mount: MountEntry,
    pub(super) writes: CachedWrites,
    pub(super) threads: RequestThreads,
}

/// The writebacks of one mount.
#[derive(Debug, Default)]
pub(super) struct PageWriteback {
    /// `None` if the thread could not be started. It starts with the first writeback.
    queue: OnceLock<Option<Sender<Sender<Outcome>>>>,
}

impl PageWriteback {
    /// Returns when the store has all pages that were dirty when the call began.
    ///
    /// Never call this on a thread that answers requests.
    pub(super) fn wait(&self, parts: impl FnOnce() -> WritebackParts) -> Outcome {
        let until = Instant::now() + PATIENCE;
        let queue = self.queue.get_or_init(|| start(parts()));
        let queue = queue.as_ref().ok_or("its thread could not be started")?;
        let (reply, outcome) = channel();
        queue.send(reply).map_err(|_| "its thread has ended")?;
        loop {
            match outcome.recv_timeout(PAUSE) {
                Ok(outcome) => return outcome,
                Err(RecvTimeoutError::Disconnected) => return Err("its thread has ended".to_owned()),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= until => return Err(too_slow()),
                Err(RecvTimeoutError::Timeout) if requester_gave_up() => {
                    return Err("its requester has ended".to_owned());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn too_slow() -> String {
    format!("it takes longer than {} s", PATIENCE.as_secs())
}

fn start(parts: WritebackParts) -> Option<Sender<Sender<Outcome>>> {
    let (queue, inbox) = channel();
    let thread = std::thread::Builder::new().name("page-writeback".to_owned());
    match thread.spawn(move || run(&inbox, &parts)) {
        Ok(_) => Some(queue),
        Err(error) => {
            tracing::error!(%error, "could not start the thread that has the kernel write dirty pages back");
            None
        }
    }
}

/// Answers until the mount ends.
fn run(inbox: &Receiver<Sender<Outcome>>, parts: &WritebackParts) {
    let left = leave_descriptors().map_err(|error| format!("its thread cannot close the daemon's files: {error}"));
    for first in inbox {
        // One writeback is for all that wait when it begins.
        let waiting: Vec<_> = std::iter::once(first).chain(inbox.try_iter()).collect();
        let outcome = left.clone().and_then(|()| write_back(parts));
        for reply in waiting {
            // A caller that has lost its patience does not receive it.
            let _ = reply.send(outcome.clone());
        }
    }
}

fn write_back(WritebackParts { mount, writes, threads }: &WritebackParts) -> Outcome {
    let until = Instant::now() + PATIENCE;
    let failed = |error: Errno| format!("{}: {error}", mount.at.display());
    loop {
        let before = writes.counts();
        // Opened for each round, because an open root keeps the mount in use.
        let root = open_root(mount, OFlags::RDONLY | OFlags::DIRECTORY).map_err(failed)?;
        syncfs(&root).map_err(failed)?;
        let is_handled = pass_requests(&root, threads, until).map_err(failed)?;
        let after = writes.counts();
        // The kernel sends a limited number of writes at once, and the next one after an answer.
        if is_handled && before == after && after.begun == after.ended {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(too_slow());
        }
    }
}

/// Waits until the daemon's threads handle all requests that the kernel has sent before this call. False after `until`.
fn pass_requests(root: &OwnedFd, threads: &RequestThreads, until: Instant) -> Result<bool, Errno> {
    // The kernel queues it behind them, so once it is answered, a thread has read each of them.
    fstatfs(root)?;
    let before = threads.answered();
    let mut requests = 0;
    // A thread that has answered one more request has handled what it had read before.
    while !threads.all_answered_since(&before) {
        if Instant::now() >= until {
            return Ok(false);
        }
        // The kernel wakes the thread that has waited longest, but a thread that is awake may be faster.
        if requests >= threads.len() {
            std::thread::sleep(TURN);
        }
        fstatfs(root)?;
        requests += 1;
    }
    Ok(true)
}
