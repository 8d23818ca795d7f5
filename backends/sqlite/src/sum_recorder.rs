//! Brings the checksum file up to date soon after tails have changed: see [`super::sum_file`].

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::tails::Tails;

/// The shortest time between two passes, and the longest.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The thread rests this many times as long as it worked: random writes to a long file leave much to read.
const REST: u32 = 25;

/// A thread that brings the checksum file up to date. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct SumRecorder {
    /// `None` once it is to end.
    goes_on: Option<SyncSender<()>>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
}

impl SumRecorder {
    pub(super) fn start(tails: &Arc<Tails>) -> std::io::Result<Self> {
        // One pending wake-up is enough: a pass takes all there is.
        let (wake, woken) = sync_channel(1);
        let (goes_on, ended) = sync_channel(1);
        tails.sum_file().wake_by(wake.clone());
        // What a killed mount has left unknown.
        let _ = wake.try_send(());
        let tails = Arc::clone(tails);
        let thread = std::thread::Builder::new().name("sums".to_owned()).spawn(move || run(&tails, &woken, &ended))?;
        Ok(Self { goes_on: Some(goes_on), wake, thread: Some(thread) })
    }
}

impl Drop for SumRecorder {
    fn drop(&mut self) {
        self.goes_on = None;
        // Full means that it wakes anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that records checksums panicked");
        }
    }
}

fn run(tails: &Tails, woken: &Receiver<()>, ended: &Receiver<()>) {
    // What changes meanwhile is left for the next pass, and wakes no thread.
    while tails.are_sums_behind() || woken.recv().is_ok() {
        let begun = Instant::now();
        tails.record_sums();
        let rest = (begun.elapsed() * REST).clamp(PAUSE, PAUSE_MAX);
        if ended.recv_timeout(rest) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
