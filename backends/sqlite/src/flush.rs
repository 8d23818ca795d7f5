//! Syncs unsynced changes every few seconds, which bounds the loss at a power loss. Also returns unused space.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuse::store::Result;
use parking_lot::Mutex;

use crate::db::Db;
use crate::free_pages::give_back_excess;
use crate::log::Log;
use crate::synced;
use crate::tails::Tails;
use crate::transaction::locked;

/// How often changes are synced: with the time that a commit waits and a sync takes, less than five seconds.
const EVERY: Duration = Duration::from_secs(4);

/// A thread that syncs.
#[derive(Debug)]
pub(super) struct Flusher {
    wake: SyncSender<()>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(super) fn start(db: &Arc<Mutex<Db>>, log: &Arc<Log>, tails: &Arc<Tails>) -> std::io::Result<Self> {
        // One pending wake-up is enough: a sync takes all there is.
        let (wake, woken) = sync_channel(1);
        tails.wake_by(wake.clone());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let thread_is_stopped = Arc::clone(&is_stopped);
        let (db, log, tails) = (Arc::clone(db), Arc::clone(log), Arc::clone(tails));
        let thread = std::thread::Builder::new()
            .name("flush".to_owned())
            .spawn(move || run(&db, &log, &tails, &woken, &thread_is_stopped))?;
        Ok(Self { wake, is_stopped, thread: Some(thread) })
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // Full means that it wakes anyway.
        let _ = self.wake.try_send(());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the flush thread panicked");
        }
    }
}

fn run(db: &Mutex<Db>, log: &Log, tails: &Tails, woken: &Receiver<()>, is_stopped: &AtomicBool) {
    let mut next = Instant::now() + EVERY;
    loop {
        // It ends by a wake-up, by the clock or by the end of the mount: all three are asked for below.
        let _ = woken.recv_timeout(next.saturating_duration_since(Instant::now()));
        if is_stopped.load(Ordering::Acquire) {
            return;
        }
        let is_time = Instant::now() >= next;
        if is_time {
            next = Instant::now() + EVERY;
        }
        if log.is_broken() {
            continue;
        }
        match flush(db, log, tails) {
            Ok(()) => tails.free(log.durable()),
            Err(error) => {
                tracing::error!(%error, "changes older than {EVERY:?} are not durable");
            }
        }
        if !is_time {
            continue;
        }
        locked(db).fit();
        tails.trim_idle();
        if let Err(error) = give_back_excess(db) {
            tracing::warn!(%error, "could not return free pages to the disk");
        }
    }
}

/// Makes every change so far durable. Calls wait for the commit alone, as always.
pub(super) fn flush(db: &Mutex<Db>, log: &Log, tails: &Tails) -> Result<()> {
    synced::note(db, log, tails)?;
    {
        let db = locked(db);
        db.note_rest(log)?;
        db.commit()?;
    }
    if !(log.is_durable() && tails.are_clean()) {
        log.sync(tails)?;
    }
    Ok(())
}
