//! The lookup counts of the inodes that the kernel references.
//!
//! An unlinked inode stays alive until the kernel forgets it. So open descriptors can still read an
//! unlinked file, also on mounts without open requests.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::store::Ino;

#[derive(Debug, Default)]
struct Held {
    lookups: u64,
    orphan: bool,
}

/// The inode table of one mount.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    held: Mutex<HashMap<Ino, Held>>,
}

impl Inodes {
    fn held(&self) -> MutexGuard<'_, HashMap<Ino, Held>> {
        // Counts stay consistent if another thread panics: every change below is a single step.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more reference to `ino`. Call it before replying: a forget may follow at once.
    pub(crate) fn looked_up(&self, ino: Ino) {
        self.held().entry(ino).or_default().lookups += 1;
    }

    /// As [`Inodes::looked_up`], for every entry of a listing.
    pub(crate) fn looked_up_all(&self, inos: &[Ino]) {
        let mut held = self.held();
        for ino in inos {
            held.entry(*ino).or_default().lookups += 1;
        }
    }

    /// Records that `ino` lost its last name. True if the kernel holds no reference and it can be reclaimed.
    #[must_use]
    pub(crate) fn orphaned(&self, ino: Ino) -> bool {
        match self.held().get_mut(&ino) {
            Some(held) => {
                held.orphan = true;
                false
            }
            None => true,
        }
    }

    /// Releases `lookups` references. True if `ino` was an orphan and can be reclaimed now.
    #[must_use]
    pub(crate) fn forgotten(&self, ino: Ino, lookups: u64) -> bool {
        let mut held = self.held();
        let Some(entry) = held.get_mut(&ino) else {
            return false;
        };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        if entry.lookups > 0 {
            return false;
        }
        let orphan = entry.orphan;
        held.remove(&ino);
        orphan
    }

    /// Number of referenced inodes.
    pub(crate) fn len(&self) -> u64 {
        self.held().len() as u64
    }

    /// Removes and returns the orphans that the kernel did not forget, as an unmount may skip forgets.
    pub(crate) fn take_orphans(&self) -> Vec<Ino> {
        let held = std::mem::take(&mut *self.held());
        let orphans = held.into_iter().filter(|(_, held)| held.orphan);
        orphans.map(|(ino, _)| ino).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orphan_is_reclaimed_when_its_last_lookup_is_forgotten() {
        let inodes = Inodes::default();
        inodes.looked_up(7);
        inodes.looked_up_all(&[7, 8]);
        assert!(!inodes.orphaned(7), "the kernel holds it");
        assert!(!inodes.forgotten(7, 1));
        assert!(inodes.forgotten(7, 1));
        assert!(!inodes.forgotten(8, 1), "it has a name");
        assert_eq!(inodes.len(), 0);
    }

    #[test]
    fn an_inode_nobody_holds_is_reclaimed_at_once() {
        assert!(Inodes::default().orphaned(9));
    }

    #[test]
    fn orphans_left_at_the_end_are_handed_out() {
        let inodes = Inodes::default();
        inodes.looked_up_all(&[3, 4]);
        assert!(!inodes.orphaned(4));
        assert_eq!(inodes.take_orphans(), [4]);
    }
}
