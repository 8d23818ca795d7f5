//! What the kernel may keep, derived from who else may change the store.

use std::time::Duration;

use crate::store::{Coherence, Ino, Store};

/// How long the kernel may answer by itself, and which requests it may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CachePolicy {
    /// Lifetime of names and attributes in the kernel; of missing names too.
    pub(crate) ttl: Duration,
    /// Answer `open` and `opendir` by `ENOSYS`: the kernel then opens without asking, and keeps
    /// pages and listings from one open to the next.
    pub(crate) no_open: bool,
    /// Send every read and write to the daemon, past the page cache.
    pub(crate) direct_io: bool,
    /// Let the kernel gather writes in its pages, and send them when a file is closed or synced, or later.
    pub(crate) writeback: bool,
}

impl CachePolicy {
    /// `writeback` is for stores that nobody else changes: of any other, the kernel would not see the new sizes.
    pub(crate) fn for_store(coherence: Coherence, writeback: bool) -> Self {
        match coherence {
            // A year: as long as this mount is the only writer, nothing in the kernel grows old.
            Coherence::Exclusive => Self {
                ttl: Duration::from_secs(365 * 24 * 3600),
                no_open: true,
                direct_io: false,
                writeback,
            },
            Coherence::Uncached => Self {
                ttl: Duration::ZERO,
                no_open: false,
                direct_io: true,
                writeback: false,
            },
        }
    }

    /// How long the kernel may keep the attributes of an inode.
    pub(crate) fn attr_ttl(self, store: &dyn Store, ino: Ino) -> Duration {
        if store.is_settled(ino) {
            self.ttl
        } else {
            Duration::ZERO
        }
    }
}
