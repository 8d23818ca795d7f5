//! Brings the checksum file up to date soon after tails have changed: see [`super::sum_file`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::tails::Tails;

/// How long a change may wait for its checksum.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The thread rests this many times as long as it worked: random writes to a long file leave much to read.
const REST: u32 = 50;

/// A thread that brings the checksum file up to date. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SumRecorder {
    wake: SyncSender<()>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl SumRecorder {
    pub(super) fn start(tails: &Arc<Tails>) -> std::io::Result<Self> {
        // One pending wake-up is enough: a pass takes all there is.
        let (wake, woken) = sync_channel(1);
        tails.sum_file().wake_by(wake.clone());
        // What a killed mount has left unknown.
        let _ = wake.try_send(());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (tails, thread_is_stopped) = (Arc::clone(tails), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new()
            .name("sums".to_owned())
            .spawn(move || run(&tails, &woken, &thread_is_stopped))?;
        Ok(Self {
            wake,
            is_stopped,
            thread: Some(thread),
        })
    }
}

impl Drop for SumRecorder {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // Full means that it wakes anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that records checksums panicked");
        }
    }
}

fn run(tails: &Tails, woken: &Receiver<()>, is_stopped: &AtomicBool) {
    let mut pause = PAUSE;
    while woken.recv().is_ok() {
        let until = Instant::now() + pause;
        loop {
            if is_stopped.load(Ordering::Acquire) {
                return;
            }
            match woken.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
        let begun = Instant::now();
        tails.record_sums();
        pause = (begun.elapsed() * REST).clamp(PAUSE, PAUSE_MAX);
    }
}
