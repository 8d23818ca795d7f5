//! Answers `SEEK_DATA` and `SEEK_HOLE` without hiding bytes that are dirty in the kernel's page cache.
//!
//! The kernel tells the daemon nothing of shared mappings. So before an answer calls a range a hole, the kernel
//! writes the dirty pages of that range back, by an invalidation; then the store is asked again.

use std::ops::Range;

use crate::store::{Errno, Ino, Result, Seek, Store};

/// The end of a range that reaches to the end of the file.
pub(super) const END: u64 = u64::MAX;

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
    /// What the store finds, `None` for `ENXIO`, and the range that this calls a hole. The end of the file is not a hole:
    /// it holds no bytes.
    pub(super) fn ask(&self, store: &dyn Store) -> Result<(Option<u64>, Option<Range<u64>>)> {
        let found = self.seek(store, self.offset, self.target)?;
        let is_end = |offset| match self.size_lags {
            true => Ok(false),
            false => store.getattr(self.ino).map(|attr| offset >= attr.size),
        };
        let hole = match (self.target, found) {
            (Seek::Data, Some(at)) => (at > self.offset).then_some(self.offset..at),
            (_, None) => (!is_end(self.offset)?).then_some(self.offset..END),
            (Seek::Hole, Some(at)) if is_end(at)? => None,
            (Seek::Hole, Some(at)) => {
                let data = self.seek(store, at, Seek::Data)?;
                Some(at..data.unwrap_or(END))
            }
        };
        Ok((found, hole))
    }

    fn seek(&self, store: &dyn Store, offset: u64, target: Seek) -> Result<Option<u64>> {
        match store.seek(self.ino, offset, target) {
            Ok(at) => Ok(Some(at)),
            Err(error) if error.errno == Errno::NXIO => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The answer after `write_back` has made the kernel write the dirty pages of each range that the answer calls a
    /// hole. `write_back` is false if some of them may not have reached the store: then the whole file is data.
    ///
    /// `ENOSYS`, after which the kernel takes every file of the mount for data, where the file's size is not known.
    pub(super) fn settle(
        &self,
        store: &dyn Store,
        mut write_back: impl FnMut(&Range<u64>) -> bool,
    ) -> Result<u64> {
        let mut written = 0..0;
        loop {
            let (found, hole) = self.ask(store)?;
            let found = found.ok_or(Errno::NXIO.into());
            let Some(hole) = hole else {
                return found;
            };
            if written.start <= hole.start && hole.end <= written.end {
                return found;
            }
            // The first time only the hole, which is cheap. If its pages turned out to be data, the rest of the file:
            // every later answer is then within what has been written.
            written = match written.is_empty() {
                true => hole,
                false => self.offset..END,
            };
            if !write_back(&written) {
                return match self.size_lags {
                    true => Err(Errno::NOSYS.into()),
                    false => self
                        .target
                        .without_holes(self.offset, store.getattr(self.ino)?.size),
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::{Caller, Change, Kind, NewNode, ROOT, Timestamp};

    const MIB: u64 = 1 << 20;
    const CALLER: Caller = Caller {
        uid: 0,
        gid: 0,
        now: Timestamp(1),
    };

    /// A sparse file of 8 MiB with data at each of `data`.
    fn sparse(data: &[u64]) -> (MemoryStore, Ino) {
        let store = MemoryStore::new(&CALLER);
        let node = NewNode {
            kind: Kind::File,
            permissions: 0o644,
            rdev: 0,
            target: &[],
        };
        let ino = store.create(&CALLER, ROOT, b"f", &node).unwrap().ino;
        let size = Change {
            size: Some(8 * MIB),
            ..Change::default()
        };
        store.setattr(&CALLER, ino, &size).unwrap();
        for at in data {
            store.write(&CALLER, ino, *at, b"data").unwrap();
        }
        (store, ino)
    }

    fn search(ino: Ino, target: Seek, offset: u64) -> HoleSearch {
        HoleSearch {
            ino,
            target,
            offset,
            size_lags: false,
        }
    }

    /// The kernel: pages of 4 KiB that are dirty, written back when their range is invalidated.
    struct Kernel<'a> {
        store: &'a MemoryStore,
        ino: Ino,
        dirty: Vec<u64>,
        written: Vec<Range<u64>>,
    }

    impl Kernel<'_> {
        fn write_back(&mut self, range: &Range<u64>) -> bool {
            self.written.push(range.clone());
            let within = |at: &u64| (range.start & !4095..range.end).contains(at);
            for at in self.dirty.extract_if(.., |at| within(at)) {
                self.store.write(&CALLER, self.ino, at, &[7; 4096]).unwrap();
            }
            true
        }
    }

    #[test]
    fn no_answer_hides_a_dirty_page() {
        let dirty = [4096, 96 << 10, MIB, 5 * MIB, 8 * MIB - 4096];
        for data in [&[][..], &[0], &[3 * MIB], &[0, MIB + 65_536]] {
            for target in [Seek::Data, Seek::Hole] {
                for offset in (0..8 * MIB).step_by(60_000) {
                    let (store, ino) = sparse(data);
                    let mut kernel = Kernel {
                        store: &store,
                        ino,
                        dirty: dirty.to_vec(),
                        written: Vec::new(),
                    };
                    let answer = search(ino, target, offset)
                        .settle(&store, |range| kernel.write_back(range));
                    let from = match (target, &answer) {
                        (Seek::Data, _) => offset,
                        (Seek::Hole, Ok(at)) => *at,
                        (Seek::Hole, Err(_)) => panic!("{answer:?}"),
                    };
                    let to = match (target, &answer) {
                        (Seek::Data, Ok(at)) => *at,
                        (Seek::Data, Err(_)) => END,
                        // What is at the hole that was found must not be dirty.
                        (Seek::Hole, _) => from + 1,
                    };
                    let hidden = dirty.iter().find(|at| **at < to && **at + 4096 > from);
                    assert_eq!(hidden, None, "{target:?} at {offset}: {answer:?}");
                    assert!(kernel.written.len() <= 2, "{:?}", kernel.written);
                }
            }
        }
    }

    #[test]
    fn an_answer_without_a_hole_asks_the_kernel_nothing() {
        let (store, ino) = sparse(&[0]);
        let whole = Change {
            size: Some(4),
            ..Change::default()
        };
        store.setattr(&CALLER, ino, &whole).unwrap();
        for (target, offset) in [(Seek::Data, 0), (Seek::Hole, 0), (Seek::Data, 4)] {
            assert_eq!(search(ino, target, offset).ask(&store).unwrap().1, None);
        }
    }

    #[test]
    fn only_the_range_called_a_hole_is_written_back() {
        let (store, ino) = sparse(&[2 * MIB]);
        let hole = |target, offset| search(ino, target, offset).ask(&store).unwrap().1;
        assert_eq!(hole(Seek::Data, 0), Some(0..2 * MIB));
        assert_eq!(hole(Seek::Hole, 0), Some(0..2 * MIB));
        let after = 2 * MIB + 65_536;
        assert_eq!(hole(Seek::Hole, 2 * MIB), Some(after..END));
        assert_eq!(hole(Seek::Data, after), Some(after..END));
    }

    #[test]
    fn all_is_data_when_the_kernel_could_not_write_back() {
        let (store, ino) = sparse(&[]);
        let data = search(ino, Seek::Data, 5).settle(&store, |_| false);
        let hole = search(ino, Seek::Hole, 5).settle(&store, |_| false);
        assert_eq!((data.unwrap(), hole.unwrap()), (5, 8 * MIB));
        let lagging = HoleSearch {
            size_lags: true,
            ..search(ino, Seek::Data, 5)
        };
        let refused = lagging.settle(&store, |_| false).unwrap_err();
        assert_eq!(refused.errno, Errno::NOSYS);
    }

    #[test]
    fn a_size_that_only_the_kernel_knows_is_found() {
        let (store, ino) = sparse(&[]);
        let lagging = HoleSearch {
            size_lags: true,
            ..search(ino, Seek::Data, 8 * MIB)
        };
        let mut kernel = Kernel {
            store: &store,
            ino,
            dirty: vec![9 * MIB],
            written: Vec::new(),
        };
        let answer = lagging.settle(&store, |range| kernel.write_back(range));
        assert_eq!(answer.unwrap(), 9 * MIB);
    }
}
