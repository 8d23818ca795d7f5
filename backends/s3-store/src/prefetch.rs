//! Fetches content for the index in the background: the beginning of every file that is not too long, the newest first.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse::store::Ino;
use parking_lot::Mutex;

use crate::{S3Store, tables};

/// The longest file that is fetched unasked, in bytes.
const LONGEST: u64 = 1 << 20;

/// How many files are fetched at once.
const AT_ONCE: usize = 4;

/// After so many failed downloads in a row, the others wait for the next attempt.
const FAILURES: u32 = 8;

/// How long after a failed download the next attempt is made.
const AFTER_FAILURE: Duration = Duration::from_secs(10);

/// The thread that fetches content; it stops when this is dropped.
#[derive(Debug)]
pub(super) struct Prefetch {
    files: Arc<S3Store>,
    thread: Option<JoinHandle<()>>,
}

impl Prefetch {
    pub(super) fn start(files: Arc<S3Store>) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let at = Arc::clone(&files);
        let thread = std::thread::Builder::new().name("prefetch".to_owned()).spawn(move || run(&at, &woken))?;
        files.inner.index.set_prefetch(Some(wake));
        Ok(Self { files, thread: Some(thread) })
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.files.inner.index.set_prefetch(None);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that fetches content for the index panicked");
        }
    }
}

/// Wakes the thread after an adoption; it ends when this is dropped.
pub(super) type Wake = SyncSender<()>;

fn run(files: &S3Store, woken: &Receiver<()>) {
    loop {
        // Without the lock, which a download takes.
        let missing = tables::beginnings_missing(&files.inner.store.db(), LONGEST);
        let has_all = match missing {
            Ok(missing) => missing.is_empty() || fetch(files, missing),
            Err(error) => {
                tracing::warn!(%error, "could not read which content the index lacks");
                false
            }
        };
        let slept = if has_all {
            woken.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            woken.recv_timeout(AFTER_FAILURE)
        };
        if slept == Err(RecvTimeoutError::Disconnected) || files.inner.is_ending.load(Ordering::Acquire) {
            return;
        }
    }
}

/// Fetches the beginnings of files, which others may have fetched meanwhile. False if one of them failed.
fn fetch(files: &S3Store, missing: Vec<Ino>) -> bool {
    let left = Mutex::new(missing.into_iter());
    let (has_failed, in_a_row) = (AtomicBool::new(false), AtomicU32::new(0));
    let work = || {
        while in_a_row.load(Ordering::Relaxed) < FAILURES && !files.inner.is_ending.load(Ordering::Acquire) {
            let Some(ino) = left.lock().next() else {
                return;
            };
            match files.hold(ino, 0..1) {
                Ok(_) => in_a_row.store(0, Ordering::Relaxed),
                Err(error) if files.inner.placeholders.contains(ino) => {
                    tracing::debug!(ino, %error, "fetching content for the index");
                    has_failed.store(true, Ordering::Relaxed);
                    in_a_row.fetch_add(1, Ordering::Relaxed);
                }
                // A file that is gone needs no content.
                Err(_) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE {
            scope.spawn(work);
        }
        work();
    });
    !has_failed.into_inner()
}
