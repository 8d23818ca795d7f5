//! A [`Store`] without data, uncached by the kernel: it measures the cost of FUSE alone.
//!
//! Any name in the root is a directory; any name in such a directory is a file of [`FILE_BYTES`] zero
//! bytes. Every directory lists [`LISTED`] names. Writes are accepted and dropped, names cannot change.

mod backend;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use fuse::store::{Attr, Caller, Change, Coherence, DirEntry, EntrySink, FIRST_COOKIE, Ino, Kind, ROOT, Result, Store};

pub(crate) use backend::{NullMount, NullOptions};

/// The size of every file in bytes.
pub const FILE_BYTES: u64 = 1024;

/// The number of files that every directory lists: `f0000`, `f0001`, …
pub const LISTED: u64 = 1000;

/// Inodes with this bit, and the root, are directories; all others are files.
const DIRECTORY: Ino = 1 << 31;

/// A file system without data.
#[derive(Debug)]
pub struct NullStore {
    owner: Caller,
}

impl NullStore {
    /// A file system whose files all belong to `owner` and have the timestamp `owner.now`.
    pub fn new(owner: &Caller) -> Self {
        Self { owner: *owner }
    }

    fn attr(&self, ino: Ino) -> Attr {
        if ino == ROOT || ino & DIRECTORY != 0 {
            return Attr::new(ino, Kind::Directory, 0o755, &self.owner);
        }
        Attr { size: FILE_BYTES, blocks: 8, ..Attr::new(ino, Kind::File, 0o644, &self.owner) }
    }
}

/// The inode of `name` in `parent`, the same at every lookup. It has 32 bits, as the `ino_t` of a 32-bit program: two names
/// may have one, but all files are alike.
fn inode(parent: Ino, name: &[u8]) -> Ino {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((parent, name));
    let ino = (hash & (DIRECTORY - 1)).max(ROOT + 1);
    if parent == ROOT { ino | DIRECTORY } else { ino }
}

impl Store for NullStore {
    fn kind(&self) -> &'static str {
        "null"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Uncached
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        Ok(self.attr(inode(parent, name)))
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.attr(ino))
    }

    fn setattr(&self, _caller: &Caller, ino: Ino, _change: &Change) -> Result<Attr> {
        Ok(self.attr(ino))
    }

    fn parent(&self, _dir: Ino) -> Result<Ino> {
        Ok(ROOT)
    }

    fn read(&self, _ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let left = FILE_BYTES.saturating_sub(offset).min(size as u64);
        out.resize(out.len() + left as usize, 0);
        Ok(())
    }

    fn write(&self, _: &Caller, _: Ino, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        let first = (after + 1).max(FIRST_COOKIE);
        for cookie in first..FIRST_COOKIE + LISTED {
            let name = format!("f{:04}", cookie - FIRST_COOKIE);
            let attr = self.attr(inode(dir, name.as_bytes()));
            let entry = DirEntry {
                name: name.as_bytes(),
                ino: attr.ino,
                kind: attr.kind,
                cookie,
                attr: with_attr.then_some(attr),
            };
            if emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fuse::store::Timestamp;

    use std::ops::ControlFlow;

    use super::*;

    #[test]
    fn names_have_fixed_kinds_and_files_are_zeros() {
        let store = NullStore::new(&Caller { uid: 1, gid: 2, now: Timestamp(3) });
        let dir = store.lookup(ROOT, b"anything").unwrap();
        assert_eq!(dir.kind, Kind::Directory);
        let file = store.lookup(dir.ino, b"f0007").unwrap();
        assert_eq!((file.kind, file.size), (Kind::File, FILE_BYTES));
        let mut bytes = Vec::new();
        store.read(file.ino, 1000, 4096, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 24]);
        let mut listed = 0;
        store
            .readdir(dir.ino, 0, true, &mut |entry| {
                let known = store.lookup(dir.ino, entry.name).unwrap();
                assert_eq!(entry.attr, Some(known));
                assert!(dir.ino < 1 << 32 && entry.ino > ROOT && entry.ino < 1 << 32);
                listed += 1;
                ControlFlow::Continue(())
            })
            .unwrap();
        assert_eq!(listed, LISTED);
    }
}
