//! Syncs what no call has synced, every few seconds: power loss takes no more than that. Also gives unused space back.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use super::db::Db;
use super::free_pages::give_back_excess;
use super::log::Log;
use super::tails::Tails;
use super::transaction::locked;
use crate::store::Result;

/// How often changes are synced: with the time that a commit waits and a sync takes, less than five seconds.
const EVERY: Duration = Duration::from_secs(4);

/// A thread that syncs.
#[derive(Debug)]
pub(super) struct Flusher {
    /// Ends the thread when it is dropped.
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    pub(super) fn start(
        db: &Arc<Mutex<Db>>,
        log: &Arc<Log>,
        tails: &Arc<Tails>,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = sync_channel(0);
        let (db, log, tails) = (Arc::clone(db), Arc::clone(log), Arc::clone(tails));
        let thread = std::thread::Builder::new()
            .name("flush".to_owned())
            .spawn(move || run(&db, &log, &tails, &stopped))?;
        Ok(Self {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends the thread.
    pub(super) fn stop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the flush thread panicked");
        }
    }
}

fn run(db: &Mutex<Db>, log: &Log, tails: &Tails, stopped: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(EVERY) {
        if log.is_broken() {
            continue;
        }
        if let Err(error) = flush(db, log, tails) {
            tracing::error!(%error, "changes older than {EVERY:?} are not durable");
        }
        locked(db).fit();
        tails.trim_idle();
        if let Err(error) = give_back_excess(db) {
            tracing::warn!(%error, "could not return free pages to the disk");
        }
    }
}

/// Makes every change so far durable. Calls wait for the commit alone, as always.
fn flush(db: &Mutex<Db>, log: &Log, tails: &Tails) -> Result<()> {
    locked(db).commit()?;
    match log.is_durable() && tails.are_clean() {
        true => Ok(()),
        false => log.sync(tails),
    }
}
