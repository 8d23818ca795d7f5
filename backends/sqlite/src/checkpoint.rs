//! Copies SQLite's write-ahead log into the database, off the request path.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rusqlite::hooks::Wal;
use rusqlite::wal::CheckpointMode;
use rusqlite::{Connection, ErrorCode};

use crate::counters::Counters;
use crate::db::Db;
use crate::log::Log;
use crate::log_mark;
use crate::on_panic::on_panic;
use crate::room::Room;
use crate::transaction::locked;

/// Bytes of a page in the log, with its header.
const FRAME: u64 = 4096 + 24;

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
        let room = Arc::clone(&locked(writer).room);
        let hook_room = Arc::clone(&room);
        // Bytes of the log: at the last commit, when the thread was woken, when the writer copied it.
        let (mut before, mut woken_at, mut copied_at) = (0, 0, 0);
        let hook = move |wal: &mut Wal, pages: i32| {
            let length = u64::try_from(pages).unwrap_or(0) * FRAME;
            if length < before {
                // All was copied, and the log is written from its start again.
                (woken_at, copied_at) = (0, 0);
            }
            before = length;
            if hook_log.is_broken() {
                // A failed sync may have lost parts of the log: nothing of it may be copied.
                return Ok(());
            }
            // More only while another connection reads an old state of it.
            let limits = hook_room.log_limits();
            let was_copied = hook_room.was_copied.swap(false, Ordering::AcqRel);
            if length >= limits.max && length >= copied_at + limits.max / 2 {
                copied_at = length;
                // Wait for the thread, which a writer without pause would outrun for ever, and copy the
                // rest: then the next write begins at the start of the log. Passive: it never waits for a reader.
                let _copying = copying.lock();
                if hook_log.is_broken() {
                    // By the copy that this one has waited for.
                    return Ok(());
                }
                match wal.checkpoint_v2(CheckpointMode::PASSIVE) {
                    Ok(_) => hook_room.copied(),
                    Err(error) => {
                        tracing::warn!(%error, length, "the log cannot be emptied");
                        hook_log.check_checkpoint(&error);
                    }
                }
                // The thread marks the file again: by now its content is that of the log.
                let _ = hook_wake.try_send(());
            } else if was_copied || length >= woken_at + limits.copy_at {
                woken_at = length;
                // Full means that a wake-up is pending.
                let _ = hook_wake.try_send(());
            }
            Ok(())
        };
        locked(writer).connection.wal_hook(Some(hook))?;
        let (db, log) = (Arc::clone(writer), Arc::clone(log));
        let thread = std::thread::Builder::new()
            .name("checkpoint".to_owned())
            .spawn(move || {
                run(&db, &connection, &log, &room, &woken, &thread_copying, &counters);
            })
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
        Ok(Self { wake: Some(wake), thread: Some(thread) })
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
    room: &Room,
    woken: &Receiver<()>,
    copying: &Mutex<()>,
    counters: &Counters,
) {
    // By the writing connection: a change by any other would make it forget what it keeps in memory.
    let say = |needed| {
        if let Err(error) = log_mark::set_needed(&locked(db), needed) {
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
                Ok(_) => {
                    Counters::add(&counters.checkpoints);
                    room.copied();
                }
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

    use fuse::store::{Errno, ROOT, Store};

    use crate::SqliteStore;
    use crate::log_mark::tests::{FILE, OWNER};

    #[test]
    fn nothing_is_called_durable_after_a_panic_of_the_checkpoint_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        store.create(&OWNER, ROOT, b"a", &FILE).unwrap();
        let at = ("UPDATE log SET needed", 0);
        store.db().panics_at.set(Some(at));
        {
            let threads = store.threads.lock();
            let checkpointer = &threads.as_ref().unwrap().checkpointer;
            checkpointer.wake.as_ref().unwrap().send(()).unwrap();
        }
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
