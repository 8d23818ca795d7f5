//! Counts writes from the kernel's page cache, to know when none is on its way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The cached writes of one mount.
#[derive(Clone, Debug, Default)]
pub(super) struct CachedWrites(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// How many have been read from the kernel, and how many of them are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) begun: u64,
    pub(super) ended: u64,
}

/// A cached write, which ends when this is dropped: after its answer.
#[derive(Debug)]
pub(super) struct CachedWrite(Arc<Counters>);

impl CachedWrites {
    /// Notes that a write was read from the kernel.
    pub(super) fn begin(&self) -> CachedWrite {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        CachedWrite(Arc::clone(&self.0))
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { ended: self.0.ended.load(Ordering::SeqCst), begun: self.0.begun.load(Ordering::SeqCst) }
    }
}

impl Drop for CachedWrite {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}
