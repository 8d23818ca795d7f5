//! Events for programs that watch files by inotify, after a change that did not come through the mount.
//!
//! The kernel makes an event only for a call through its VFS. So a thread of the daemon sets the modification time of the
//! changed file on its own mount, to the time that the file has already: `IN_MODIFY`. The front end answers this thread's
//! request without a change.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fstat, openat2, utimensat};
use rustix::io::Errno;
use rustix::thread::gettid;

use crate::connection::MountEntry;
use crate::own_mount::{leave_descriptors, open_root};
use crate::store::Ino;

/// Events that wait. More are dropped, and counted: the kernel itself drops events when a program's queue is full.
const QUEUE: usize = 4096;

/// A changed inode, and a path of it, relative to the root.
type ChangedInode = (Ino, Vec<u8>);

#[derive(Debug, Default)]
struct SharedState {
    /// The kernel's number of the thread, which is that of its requests; 0 before it makes any.
    thread: AtomicU32,
    raised: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// The events of one mount.
#[derive(Debug, Default)]
pub(super) struct WatchEvents {
    /// `None` if the thread could not be started. It starts with the first event.
    queue: OnceLock<Option<SyncSender<ChangedInode>>>,
    shared: Arc<SharedState>,
}

impl WatchEvents {
    /// Raises an event for an inode of the mount at `place`, soon.
    pub(super) fn raise(&self, place: &MountEntry, ino: Ino, path: &[u8]) {
        let queue = self.queue.get_or_init(|| self.start(place));
        let sent = queue.as_ref().is_some_and(|queue| queue.try_send((ino, path.to_vec())).is_ok());
        if !sent {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn start(&self, place: &MountEntry) -> Option<SyncSender<ChangedInode>> {
        let (queue, inbox) = sync_channel(QUEUE);
        let (place, shared) = (place.clone(), Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("watch-events".to_owned());
        match thread.spawn(move || run(&place, &inbox, &shared)) {
            Ok(_) => Some(queue),
            Err(error) => {
                tracing::error!(%error, "could not start the thread that raises inotify events for changes of other hosts");
                None
            }
        }
    }

    /// Whether a request comes from the thread that raises events.
    pub(super) fn are_from(&self, requester: u32) -> bool {
        let thread = self.shared.thread.load(Ordering::Acquire);
        thread != 0 && thread == requester
    }

    /// Counts for the control socket; none before the first event.
    pub(super) fn counts(&self) -> Vec<(&'static str, u64)> {
        let SharedState { raised, dropped, failed, .. } = &*self.shared;
        let counts = [("watch_events", raised), ("watch_events_dropped", dropped), ("watch_events_failed", failed)];
        match self.queue.get() {
            None => Vec::new(),
            Some(_) => counts.map(|(name, count)| (name, count.load(Ordering::Relaxed))).into(),
        }
    }
}

/// Raises events until the mount ends.
fn run(place: &MountEntry, inbox: &Receiver<ChangedInode>, shared: &SharedState) {
    if leave_descriptors().is_err() {
        // Later events are dropped, and counted.
        return;
    }
    let id = gettid().as_raw_nonzero().get().unsigned_abs();
    shared.thread.store(id, Ordering::Release);
    for (ino, path) in inbox {
        let count = match touch(place, ino, Path::new(OsStr::from_bytes(&path))) {
            Ok(()) => &shared.raised,
            // Moved, removed or covered since: it is not there to be watched by this path.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::XDEV | Errno::NOTCONN) => continue,
            Err(_) => &shared.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sets the modification time of an inode to what it is. Holds no descriptor on the mount when it returns.
fn touch(place: &MountEntry, ino: Ino, path: &Path) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Nothing of a mount that covers this one must change.
    let root = open_root(place, OFlags::PATH)?;
    let file = if path.as_os_str().is_empty() {
        root
    } else {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        openat2(&root, path, flags, Mode::empty(), resolve)?
    };
    // Asks for the new attributes before the kernel locks the inode: a new size can make it wait for pages.
    let found = fstat(&file)?;
    if found.st_ino != ino {
        return Err(Errno::NOENT);
    }
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: found.st_mtime, tv_nsec: found.st_mtime_nsec as _ },
    };
    utimensat(&file, c"", &times, AtFlags::EMPTY_PATH)
}
