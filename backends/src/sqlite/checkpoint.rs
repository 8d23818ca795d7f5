//! Copies SQLite's write-ahead log into the database, off the request path.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use super::counters::Counters;
use super::db::Db;
use super::log::Log;
use super::log_mark;
use super::on_panic::on_panic;
use super::transaction::locked;

/// Pages by which the log grows before it is copied into the database: 16 MiB. What is written again
/// and again is copied once: 4 MiB measured 5 % less throughput with eight writing processes.
const CHECKPOINT_PAGES: i32 = 4096;

/// Pages in the log after which the writer checkpoints, too: 256 MiB. A writer that fills the log faster than
/// the thread empties it waits. The log grows while another connection reads an old state of it.
const CHECKPOINT_PAGES_MAX: i32 = 65_536;

/// Pages by which the log has to grow before the writer tries again.
const CHECKPOINT_PAGES_AGAIN: i32 = 8_192;

/// A thread that copies the log into the database, through a connection of its own.
#[derive(Debug)]
pub(super) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread, and has the writing connection wake it when the log has grown.
    pub(super) fn start(
        writer: &Arc<Mutex<Db>>,
        connection: Connection,
        log: &Arc<Log>,
        counters: Arc<Counters>,
    ) -> rusqlite::Result<Self> {
        // One pending wake-up is enough: a checkpoint takes all there is.
        let (wake, woken) = sync_channel(1);
        let hook_wake = wake.clone();
        let copying = Arc::new(Mutex::new(()));
        let thread_copying = Arc::clone(&copying);
        let hook_log = Arc::clone(log);
        let (mut before, mut next, mut next_own) = (0, CHECKPOINT_PAGES, CHECKPOINT_PAGES_MAX);
        let hook = move |wal: &mut Wal, pages: i32| {
            if pages < before {
                // All was copied, and the log has begun anew.
                (next, next_own) = (CHECKPOINT_PAGES, CHECKPOINT_PAGES_MAX);
            }
            before = pages;
            if hook_log.is_broken() {
                // A failed sync may have lost parts of the log: nothing of it may be copied.
                return Ok(());
            }
            if pages >= next_own {
                next_own = pages.saturating_add(CHECKPOINT_PAGES_AGAIN);
                // Wait for the thread, which a writer without pause would outrun for ever, and copy the
                // rest: then the next write starts the log anew. Passive: it never waits for a reader.
                let _copying = copying.lock();
                if hook_log.is_broken() {
                    // By the copy that this one has waited for.
                    return Ok(());
                }
                if let Err(error) = wal.checkpoint_v2(CheckpointMode::PASSIVE) {
                    tracing::warn!(%error, pages, "the log cannot be emptied");
                    hook_log.check_checkpoint(&error);
                }
                // The thread marks the file again: by now its content is that of the log.
                let _ = hook_wake.try_send(());
            } else if pages >= next {
                next = pages.saturating_add(CHECKPOINT_PAGES);
                // Full means that a wake-up is pending.
                let _ = hook_wake.try_send(());
            }
            Ok(())
        };
        locked(writer).connection.wal_hook(Some(hook))?;
        let (db, log) = (Arc::clone(writer), Arc::clone(log));
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || run(&db, &connection, &log, &woken, &thread_copying, &counters))
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(Self {
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    /// No thread: the database is not written.
    pub(super) fn none() -> Self {
        Self {
            wake: None,
            thread: None,
        }
    }

    /// Ends the thread. The writer's hook must be gone, or the thread goes on waiting for it.
    pub(super) fn stop(&mut self) {
        self.wake.take();
        if let Some(thread) = self.thread.take() {
            // If it panicked, the log has said so.
            let _ = thread.join();
        }
    }
}

fn run(
    db: &Mutex<Db>,
    connection: &Connection,
    log: &Log,
    woken: &Receiver<()>,
    copying: &Mutex<()>,
    counters: &Counters,
) {
    // By the writing connection: a change by any other would make it forget what it keeps in memory.
    let say = |needed| {
        if let Err(error) = log_mark::say(&locked(db), needed) {
            tracing::warn!(%error, "noting whether the log is needed");
        }
    };
    let give_up = || log.give_up("the checkpoint thread panicked");
    let _broken = on_panic(give_up);
    while woken.recv().is_ok() {
        if log.is_broken() {
            continue;
        }
        say(true);
        {
            // Never held while waiting for the writer, which may wait for it.
            let _copying = copying.lock();
            let _broken = on_panic(give_up);
            match connection.wal_checkpoint_v2(None::<&str>, CheckpointMode::PASSIVE) {
                Ok(_) => Counters::add(&counters.checkpoints),
                // The writer was just turning a page of the log's index; it wakes this thread again.
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {}
                Err(error) => {
                    tracing::warn!(%error, "checkpoint");
                    log.check_checkpoint(&error);
                }
            }
        }
        say(false);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::sqlite::SqliteStore;
    use crate::sqlite::log_mark::tests::{FILE, OWNER};
    use crate::store::{Errno, ROOT, Store};

    #[test]
    fn nothing_is_called_durable_after_a_panic_of_the_checkpoint_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.create(&OWNER, ROOT, b"a", &FILE).unwrap();
        let at = ("UPDATE log SET needed", 0);
        store.db().panics_at.set(Some(at));
        store.checkpointer.wake.as_ref().unwrap().send(()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !store.log.is_broken() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(store.sync().unwrap_err().errno, Errno::IO);
        store.lookup(ROOT, b"a").unwrap();
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.lookup(ROOT, b"a").unwrap();
        store.sync().unwrap();
    }
}
