//! A cache of directories' names, which saves queries to SQLite.

use std::collections::HashMap;

use fuse::store::Ino;

/// Where a name sits and what it names.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    pub(crate) slot: u64,
    /// The inode that it names.
    pub ino: Ino,
}

/// A cached name, by its first slot: this connection is the only one that changes names. Only a name whose first slot
/// is free is cached as missing, so that a new name makes no other cached name wrong.
#[derive(Debug)]
struct CachedName {
    name: Box<[u8]>,
    found: Option<Name>,
}

/// The names used last; all are let go when there are more than [`NameCache::MAX`].
#[derive(Debug, Default)]
pub(super) struct NameCache {
    kept: HashMap<(Ino, u64), CachedName>,
}

impl NameCache {
    const MAX: usize = 16_384;

    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    pub(super) fn get(&self, parent: Ino, name: &[u8], first: u64) -> Option<Option<Name>> {
        let kept = self.kept.get(&(parent, first))?;
        (*kept.name == *name).then_some(kept.found)
    }

    pub(super) fn keep(&mut self, parent: Ino, name: &[u8], first: u64, found: Option<Name>) {
        if self.kept.len() >= Self::MAX {
            self.kept.clear();
        }
        let name = name.into();
        self.kept.insert((parent, first), CachedName { name, found });
    }

    pub(super) fn forget(&mut self, parent: Ino, first: u64) {
        self.kept.remove(&(parent, first));
    }
}
