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
}

impl CachePolicy {
    pub(crate) fn for_store(coherence: Coherence) -> Self {
        match coherence {
            // A year: as long as this mount is the only writer, nothing in the kernel grows old.
            Coherence::Exclusive => Self {
                ttl: Duration::from_secs(365 * 24 * 3600),
                no_open: true,
                direct_io: false,
            },
            Coherence::Uncached => Self {
                ttl: Duration::ZERO,
                no_open: false,
                direct_io: true,
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
