//! Counters of a store's work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the mount.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) statements: AtomicU64,
    /// Statements of commits: the rows of many changes, and the begin of their transaction, which no single call causes.
    pub(super) commit_statements: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) syncs: AtomicU64,
    pub(super) redo_syncs: AtomicU64,
    pub(super) tail_syncs: AtomicU64,
    /// Of the directory of the tails.
    pub(super) tail_name_syncs: AtomicU64,
    pub(super) checkpoints: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
