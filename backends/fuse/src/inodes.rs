//! The lookup counts of the inodes that the kernel references.
//!
//! An unlinked inode stays alive until the kernel forgets it. So open descriptors can still read an
//! unlinked file, also on mounts without open requests.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::store::Ino;

#[derive(Debug, Default)]
struct InodeReferences {
    lookups: u64,
    orphan: bool,
}

/// The state of an inode after a forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForgetOutcome {
    /// The kernel holds references, or never held one.
    References,
    /// The kernel holds none; the inode has a name.
    Name,
    /// Nothing: it can be reclaimed now.
    Orphan,
}

/// The inode table of one mount.
#[derive(Debug, Default)]
pub(crate) struct Inodes {
    held: Mutex<HashMap<Ino, InodeReferences>>,
}

impl Inodes {
    /// Counts one more reference to `ino`. Call it before replying: a forget may follow at once.
    pub(crate) fn looked_up(&self, ino: Ino) {
        self.held.lock().entry(ino).or_default().lookups += 1;
    }

    /// As [`Inodes::looked_up`], for every entry of a listing.
    pub(crate) fn looked_up_all(&self, inos: &[Ino]) {
        let mut held = self.held.lock();
        for ino in inos {
            held.entry(*ino).or_default().lookups += 1;
        }
    }

    /// Records that `ino` lost its last name. True if the kernel holds no reference and it can be reclaimed.
    #[must_use]
    pub(crate) fn orphaned(&self, ino: Ino) -> bool {
        match self.held.lock().get_mut(&ino) {
            Some(held) => {
                held.orphan = true;
                false
            }
            None => true,
        }
    }

    /// Releases `lookups` references; returns the inode's state after it.
    #[must_use]
    pub(crate) fn forgotten(&self, ino: Ino, lookups: u64) -> ForgetOutcome {
        let mut held = self.held.lock();
        let Some(entry) = held.get_mut(&ino) else {
            return ForgetOutcome::References;
        };
        entry.lookups = entry.lookups.saturating_sub(lookups);
        if entry.lookups > 0 {
            return ForgetOutcome::References;
        }
        let orphan = entry.orphan;
        held.remove(&ino);
        if orphan { ForgetOutcome::Orphan } else { ForgetOutcome::Name }
    }

    /// Whether the kernel holds a reference.
    pub(crate) fn is_referenced(&self, ino: Ino) -> bool {
        self.held.lock().contains_key(&ino)
    }

    /// Number of referenced inodes.
    pub(crate) fn len(&self) -> u64 {
        self.held.lock().len() as u64
    }

    /// Removes and returns the orphans that the kernel did not forget, as an unmount may skip forgets.
    pub(crate) fn take_orphans(&self) -> Vec<Ino> {
        let held = std::mem::take(&mut *self.held.lock());
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
        assert_eq!(inodes.forgotten(7, 1), ForgetOutcome::References);
        assert_eq!(inodes.forgotten(7, 1), ForgetOutcome::Orphan);
        assert_eq!(inodes.forgotten(8, 1), ForgetOutcome::Name);
        assert_eq!(inodes.len(), 0);
    }

    #[test]
    fn an_inode_without_a_holder_is_reclaimed_at_once() {
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
