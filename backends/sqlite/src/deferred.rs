//! Changes of the open transaction that SQLite does not have yet: rows of inodes, chunks of content, deleted inodes.
//! Each row is written once, at the commit, however many calls change it. Rows of consecutive inodes are deleted
//! together. The redo log has the changes meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use fuse::store::{Attr, Ino};

/// Bytes of chunks after which they are written to SQLite, without a commit.
const BYTES_MAX: usize = 4 << 20;

/// An inode whose row does not say its attributes yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inode {
    pub(super) attr: Attr,
    /// There is no row yet.
    pub(super) is_new: bool,
}

/// The deferred rows of one connection.
#[derive(Debug, Default)]
pub(super) struct DeferredRows {
    /// Whether rows are deferred: not before the redo log begins, nor after it has ended.
    pub(super) is_on: Cell<bool>,
    inodes: RefCell<BTreeMap<Ino, Inode>>,
    /// Inodes whose rows are to be deleted, and whether they may have extended attributes.
    gone: RefCell<BTreeMap<Ino, bool>>,
    /// By row id.
    chunks: RefCell<BTreeMap<i64, Vec<u8>>>,
    bytes: Cell<usize>,
    changes: Cell<u64>,
}

impl DeferredRows {
    /// How often anything was changed here.
    pub(super) fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn changed(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.inodes.borrow_mut().clear();
        self.gone.borrow_mut().clear();
        self.chunks.borrow_mut().clear();
        self.bytes.set(0);
    }

    /// The attributes of an inode, if its row does not say them yet.
    pub(super) fn inode(&self, ino: Ino) -> Option<Attr> {
        self.inodes.borrow().get(&ino).map(|row| row.attr)
    }

    /// Leaves an inode's row to the commit. False where rows are not deferred.
    pub(super) fn put_inode(&self, attr: &Attr, is_new: bool) -> bool {
        if !self.is_on.get() {
            return false;
        }
        self.changed();
        let (attr, mut inodes) = (*attr, self.inodes.borrow_mut());
        let row = inodes.entry(attr.ino);
        row.or_insert(Inode { attr, is_new }).attr = attr;
        true
    }

    /// Leaves the deletion of an inode's rows to the commit.
    pub(super) fn put_gone(&self, ino: Ino, may_have_xattrs: bool) {
        self.changed();
        self.inodes.borrow_mut().remove(&ino);
        self.gone.borrow_mut().insert(ino, may_have_xattrs);
    }

    pub(super) fn is_gone(&self, ino: Ino) -> bool {
        self.gone.borrow().contains_key(&ino)
    }

    /// The inodes that are gone.
    pub(super) fn gone(&self) -> Vec<Ino> {
        self.gone.borrow().keys().copied().collect()
    }

    /// The inodes that are gone, in runs of numbers that follow each other: the first, the last, and whether any of them
    /// may have extended attributes.
    pub(super) fn take_gone(&self) -> Vec<(Ino, Ino, bool)> {
        let mut runs: Vec<(Ino, Ino, bool)> = Vec::new();
        for (ino, may_have_xattrs) in self.gone.take() {
            match runs.last_mut() {
                Some((_, last, any)) if *last + 1 == ino => {
                    (*last, *any) = (ino, *any || may_have_xattrs);
                }
                _ => runs.push((ino, ino, may_have_xattrs)),
            }
        }
        runs
    }

    pub(super) fn take_inodes(&self) -> BTreeMap<Ino, Inode> {
        self.inodes.take()
    }

    /// Calls `read` with a deferred chunk; `None` if there is none, and the table is up to date.
    pub(super) fn chunk<T>(&self, id: i64, read: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.chunks.borrow().get(&id).map(|chunk| read(chunk))
    }

    /// Leaves a chunk to the commit.
    pub(super) fn put_chunk(&self, id: i64, chunk: Vec<u8>) {
        self.changed();
        let added = chunk.len();
        let replaced = self.chunks.borrow_mut().insert(id, chunk);
        let replaced = replaced.map_or(0, |old| old.len());
        self.bytes.set(self.bytes.get() + added - replaced);
    }

    pub(super) fn take_chunk(&self, id: i64) -> Option<Vec<u8>> {
        let taken = self.chunks.borrow_mut().remove(&id)?;
        self.changed();
        self.bytes.set(self.bytes.get() - taken.len());
        Some(taken)
    }

    /// The smallest id of a chunk.
    pub(super) fn first_chunk(&self) -> Option<i64> {
        self.chunks.borrow().keys().next().copied()
    }

    /// Drops the chunks from `first` to `last`.
    pub(super) fn drop_chunks(&self, first: i64, last: i64) {
        let chunks = self.chunks.borrow();
        let ids: Vec<i64> = chunks.range(first..=last).map(|(id, _)| *id).collect();
        drop(chunks);
        ids.into_iter().for_each(|id| drop(self.take_chunk(id)));
    }

    /// Whether the chunks have to be written before more are deferred.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.get() > BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use fuse::store::{ROOT, Store};

    use super::*;
    use crate::log_mark::tests::{FILE, OWNER};
    use crate::{SqliteStore, check};

    fn create(store: &SqliteStore, name: &str) -> Ino {
        let made = store.create(&OWNER, ROOT, name.as_bytes(), &FILE);
        made.unwrap().ino
    }

    fn statements(store: &SqliteStore) -> [u64; 2] {
        let counts = store.counters();
        [counts["sql_statements"], counts["sql_commit_statements"]]
    }

    #[test]
    fn a_chunk_that_many_calls_change_is_one_row_at_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let ino = create(&store, "log");
        store.db().commit().unwrap();
        let before = statements(&store);
        let lines: Vec<String> = (0..200).map(|n| format!("line {n}\n")).collect();
        let mut end = 0;
        for line in &lines {
            store.append(&OWNER, ino, end, line.as_bytes()).unwrap();
            end += line.len() as u64;
        }
        let [calls, _] = statements(&store);
        // A commit by the timer may come in between.
        assert!(calls - before[0] <= 50, "{} statements", calls - before[0]);
        let all = |store: &SqliteStore| {
            let mut bytes = Vec::new();
            store.read(ino, 0, 1 << 20, &mut bytes).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(all(&store), lines.concat(), "before the commit");
        store.db().commit().unwrap();
        let [_, commit] = statements(&store);
        assert!(commit - before[1] <= 50, "{} statements", commit - before[1]);
        drop(store);
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        assert_eq!(all(&store), lines.concat(), "after the commit");
    }

    #[test]
    fn removed_files_whose_numbers_follow_each_other_are_deleted_together() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let store = SqliteStore::open(&path, &OWNER).unwrap();
        let files = (0..100).map(|n| (n, create(&store, &format!("f{n}"))));
        let files: Vec<(u32, Ino)> = files.collect();
        for (_, ino) in &files {
            store.write(&OWNER, *ino, 0, b"content").unwrap();
        }
        store.db().commit().unwrap();
        let [_, before] = statements(&store);
        for (n, ino) in files.iter().filter(|(n, _)| *n != 50) {
            let name = format!("f{n}");
            assert_eq!(store.unlink(&OWNER, ROOT, name.as_bytes()).unwrap(), Some(*ino));
            store.reclaim(*ino).unwrap();
            assert!(store.getattr(*ino).is_err(), "{name} is gone at once");
        }
        store.db().commit().unwrap();
        let [_, after] = statements(&store);
        assert!(after - before <= 100, "{} statements", after - before);
        let found = check(&path).unwrap();
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!((found.inodes, found.chunks), (2, 1), "the root and f50");
    }

    #[test]
    fn chunks_beyond_the_limit_have_to_be_written() {
        let deferred = DeferredRows::default();
        for id in 0..128 {
            deferred.put_chunk(id, vec![0; 32 << 10]);
        }
        assert!(!deferred.is_full());
        deferred.put_chunk(0, vec![0; 16 << 10]);
        deferred.put_chunk(128, vec![0; 17 << 10]);
        assert!(deferred.is_full());
        deferred.drop_chunks(1, 1);
        assert!(!deferred.is_full());
        assert_eq!(deferred.chunk(1, <[u8]>::len), None);
        assert_eq!(deferred.chunk(0, <[u8]>::len), Some(16 << 10));
    }
}
