//! The kernel's cache policy, derived from the store's coherence.

use std::time::Duration;

use crate::store::{Coherence, Ino, OpenFiles, Store};

/// The lifetime of cache entries that never become stale.
const A_YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// How long the kernel may answer from its caches, and which requests it may omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachePolicy {
    /// Lifetime of missing names and of new files in the kernel; [`attr_ttl`] has that of others.
    pub(crate) ttl: Duration,
    /// Answer `open` and `opendir` with `ENOSYS`. The kernel then stops sending them, and keeps pages and
    /// listings from one open to the next.
    pub(crate) no_open: bool,
    /// Send every read and write to the daemon, past the page cache.
    pub(crate) direct_io: bool,
    /// Use the kernel's writeback cache.
    pub(crate) writeback: bool,
}

impl CachePolicy {
    /// `writeback` applies only to an exclusive store: the kernel then keeps its own size of a file, whatever the store
    /// answers.
    pub(crate) fn for_store(coherence: Coherence, writeback: bool) -> Self {
        match coherence {
            // Nothing that the kernel keeps becomes stale by itself.
            Coherence::Exclusive => Self { ttl: A_YEAR, no_open: true, direct_io: false, writeback },
            Coherence::Uncached => Self { ttl: Duration::ZERO, no_open: false, direct_io: true, writeback: false },
        }
    }

    /// The open files of a store. None where the kernel sends no opens, and so no handles.
    pub(super) fn open_files(self, store: &dyn Store) -> Option<&dyn OpenFiles> {
        store.open_files().filter(|_| !self.no_open)
    }
}

/// How long the kernel may keep the name and the attributes of an inode.
pub(super) fn attr_ttl(store: &dyn Store, ino: Ino) -> Duration {
    match store.attr_coherence(ino) {
        Coherence::Exclusive => A_YEAR,
        Coherence::Uncached => Duration::ZERO,
    }
}
