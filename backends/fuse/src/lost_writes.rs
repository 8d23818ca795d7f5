//! Writes from the kernel's page cache that the store refused, such as on a full disk.
//!
//! The kernel returns the error from the next `msync`, `fsync` or `close` of the file. A program that stores through a
//! mapping after its last `close` makes none of these calls: the daemon's log and counters are then the only witnesses.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::store::{Ino, StoreError};

/// The refused writes of one mount.
#[derive(Debug, Default)]
pub(crate) struct LostWrites {
    /// Inodes with a refused write that the kernel references: pages of theirs may differ from the store.
    inodes: Mutex<HashSet<Ino>>,
    bytes: AtomicU64,
}

impl LostWrites {
    /// Records and logs that `bytes` at `offset` did not reach the store.
    pub(super) fn record(&self, ino: Ino, offset: u64, bytes: usize, error: &StoreError) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.inodes.lock().insert(ino);
        tracing::error!(
            "lost {bytes} bytes at offset {offset} of the file with inode {ino}, which a program wrote through a memory map or the writeback cache: {} (find its name with `find DIR -inum {ino}`, free disk space, and write the file again)",
            error.errno
        );
    }

    /// Whether the kernel may hold pages of the inode that the store refused.
    pub(super) fn contains(&self, ino: Ino) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0 && self.inodes.lock().contains(&ino)
    }

    /// The kernel has dropped the inode with its pages.
    pub(super) fn forget(&self, ino: Ino) {
        if self.bytes.load(Ordering::Relaxed) > 0 {
            self.inodes.lock().remove(&ino);
        }
    }

    /// Bytes lost since the mount began.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Errno;

    #[test]
    fn a_lost_write_is_remembered_until_the_kernel_forgets_the_inode_and_counted_for_ever() {
        let lost = LostWrites::default();
        assert!(!lost.contains(7));
        lost.record(7, 4096, 100, &Errno::NOSPC.into());
        lost.record(7, 8192, 50, &Errno::NOSPC.into());
        assert!(lost.contains(7) && !lost.contains(8));
        lost.forget(7);
        assert!(!lost.contains(7));
        assert_eq!(lost.bytes(), 150);
    }
}
