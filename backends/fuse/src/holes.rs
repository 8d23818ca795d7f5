//! Answers `SEEK_DATA` and `SEEK_HOLE` without hiding bytes that are dirty in the kernel's page cache.
//!
//! The kernel tells the daemon nothing of shared mappings. So before an answer calls a range a hole, the kernel
//! writes its dirty pages back; then the store is asked again.

use crate::store::{Errno, Ino, Result, Seek, Store};

/// One `SEEK_DATA` or `SEEK_HOLE`.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoleSearch {
    pub(super) ino: Ino,
    pub(super) target: Seek,
    pub(super) offset: u64,
    /// The kernel may know a larger size than the store: the end of the store's file is then not yet the end.
    pub(super) size_lags: bool,
}

impl HoleSearch {
    /// What the store finds, `None` for `ENXIO`, and whether this calls a range a hole. The end of the file is not a hole:
    /// it holds no bytes.
    pub(super) fn ask(&self, store: &dyn Store) -> Result<(Option<u64>, bool)> {
        let found = self.seek(store)?;
        let is_end =
            |offset| if self.size_lags { Ok(false) } else { store.getattr(self.ino).map(|attr| offset >= attr.size) };
        let is_hole = match (self.target, found) {
            (Seek::Data, Some(at)) => at > self.offset,
            (_, None) => !is_end(self.offset)?,
            (Seek::Hole, Some(at)) => !is_end(at)?,
        };
        Ok((found, is_hole))
    }

    fn seek(&self, store: &dyn Store) -> Result<Option<u64>> {
        match store.seek(self.ino, self.offset, self.target) {
            Ok(at) => Ok(Some(at)),
            Err(error) if error.errno == Errno::NXIO => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The answer after `write_back` has made the kernel write its dirty pages. `write_back` is false if some of them may
    /// not have reached the store: then the whole file is data.
    ///
    /// `ENOSYS`, after which the kernel takes every file of the mount for data, where the file's size is not known.
    pub(super) fn settle(&self, store: &dyn Store, write_back: impl FnOnce() -> bool) -> Result<u64> {
        let (mut found, is_hole) = self.ask(store)?;
        if is_hole {
            if !write_back() {
                return if self.size_lags {
                    Err(Errno::NOSYS.into())
                } else {
                    self.target.without_holes(self.offset, store.getattr(self.ino)?.size)
                };
            }
            // The store now has the pages that were dirty when the call began.
            found = self.seek(store)?;
        }
        found.ok_or(Errno::NXIO.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::{Caller, Change, Kind, NewNode, ROOT, Timestamp};

    const MIB: u64 = 1 << 20;
    const CALLER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(1) };

    /// A sparse file of 8 MiB with data at each of `data`.
    fn sparse(data: &[u64]) -> (MemoryStore, Ino) {
        let store = MemoryStore::new(&CALLER);
        let node = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: &[] };
        let ino = store.create(&CALLER, ROOT, b"f", &node).unwrap().ino;
        let size = Change { size: Some(8 * MIB), ..Change::default() };
        store.setattr(&CALLER, ino, &size).unwrap();
        for at in data {
            store.write(&CALLER, ino, *at, b"data").unwrap();
        }
        (store, ino)
    }

    fn search(ino: Ino, target: Seek, offset: u64) -> HoleSearch {
        HoleSearch { ino, target, offset, size_lags: false }
    }

    /// A model of the kernel's dirty pages of 4 KiB.
    fn write_back(store: &MemoryStore, ino: Ino, dirty: &[u64]) -> bool {
        for at in dirty {
            store.write(&CALLER, ino, *at, &[7; 4096]).unwrap();
        }
        true
    }

    #[test]
    fn no_answer_hides_a_dirty_page() {
        let dirty = [4096, 96 << 10, MIB, 5 * MIB, 8 * MIB - 4096];
        for data in [&[][..], &[0], &[3 * MIB], &[0, MIB + 65_536]] {
            for target in [Seek::Data, Seek::Hole] {
                for offset in (0..8 * MIB).step_by(60_000) {
                    let (store, ino) = sparse(data);
                    let answer = search(ino, target, offset).settle(&store, || write_back(&store, ino, &dirty));
                    let from = match (target, &answer) {
                        (Seek::Data, _) => offset,
                        (Seek::Hole, Ok(at)) => *at,
                        (Seek::Hole, Err(_)) => panic!("{answer:?}"),
                    };
                    let to = match (target, &answer) {
                        (Seek::Data, Ok(at)) => *at,
                        (Seek::Data, Err(_)) => u64::MAX,
                        // The page at the reported hole must not be dirty.
                        (Seek::Hole, _) => from + 1,
                    };
                    let hidden = dirty.iter().find(|at| **at < to && **at + 4096 > from);
                    assert_eq!(hidden, None, "{target:?} at {offset}: {answer:?}");
                }
            }
        }
    }

    #[test]
    fn an_answer_without_a_hole_asks_the_kernel_nothing() {
        let (store, ino) = sparse(&[0]);
        let whole = Change { size: Some(4), ..Change::default() };
        store.setattr(&CALLER, ino, &whole).unwrap();
        for (target, offset) in [(Seek::Data, 0), (Seek::Hole, 0), (Seek::Data, 4)] {
            assert!(!search(ino, target, offset).ask(&store).unwrap().1);
        }
    }

    #[test]
    fn all_is_data_when_the_kernel_could_not_write_back() {
        let (store, ino) = sparse(&[]);
        let data = search(ino, Seek::Data, 5).settle(&store, || false);
        let hole = search(ino, Seek::Hole, 5).settle(&store, || false);
        assert_eq!((data.unwrap(), hole.unwrap()), (5, 8 * MIB));
        let lagging = HoleSearch { size_lags: true, ..search(ino, Seek::Data, 5) };
        let refused = lagging.settle(&store, || false).unwrap_err();
        assert_eq!(refused.errno, Errno::NOSYS);
    }

    #[test]
    fn a_size_that_only_the_kernel_knows_is_found() {
        let (store, ino) = sparse(&[]);
        let lagging = HoleSearch { size_lags: true, ..search(ino, Seek::Data, 8 * MIB) };
        let answer = lagging.settle(&store, || write_back(&store, ino, &[9 * MIB]));
        assert_eq!(answer.unwrap(), 9 * MIB);
    }
}
