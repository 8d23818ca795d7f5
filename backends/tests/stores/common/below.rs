//! A directory of a store as a store of its own.

#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    reason = "test helpers, each used by some"
)]

use std::ops::ControlFlow;

use backends::store::{
    Allocate, Attr, Caller, Change, Coherence, DirEntry, Ino, Kind, NewNode, ROOT, RenameMode,
    Result, Seek, StatFs, Store, XattrMode,
};

use crate::common::{caller, node};

/// Shows a directory as the root, and passes all other calls to the store.
pub struct Below<S> {
    pub store: S,
    dir: Ino,
}

impl<S: Store> Below<S> {
    /// The directory `work` of a store, created if it is missing.
    pub fn new(store: S) -> Self {
        let dir = match store.lookup(ROOT, b"work") {
            Ok(attr) => attr.ino,
            Err(_) => {
                let work = NewNode {
                    permissions: 0o755,
                    ..node(Kind::Directory)
                };
                store.create(&caller(1), ROOT, b"work", &work).unwrap().ino
            }
        };
        Self { store, dir }
    }

    fn inner(&self, ino: Ino) -> Ino {
        if ino == ROOT { self.dir } else { ino }
    }

    fn outer(&self, ino: Ino) -> Ino {
        if ino == self.dir { ROOT } else { ino }
    }

    fn attr(&self, attr: Attr) -> Attr {
        Attr {
            ino: self.outer(attr.ino),
            ..attr
        }
    }
}

impl<S: Store> Store for Below<S> {
    fn kind(&self) -> &'static str {
        self.store.kind()
    }
    fn coherence(&self) -> Coherence {
        self.store.coherence()
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        Ok(self.attr(self.store.lookup(self.inner(parent), name)?))
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.attr(self.store.getattr(self.inner(ino))?))
    }
    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        Ok(self.attr(self.store.setattr(caller, self.inner(ino), change)?))
    }
    fn parent(&self, dir: Ino) -> Result<Ino> {
        if self.inner(dir) == self.dir {
            return Ok(ROOT);
        }
        Ok(self.outer(self.store.parent(dir)?))
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.store.readlink(self.inner(ino))
    }
    fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: &NewNode<'_>,
    ) -> Result<Attr> {
        let made = self.store.create(caller, self.inner(parent), name, node)?;
        Ok(self.attr(made))
    }
    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let (ino, parent) = (self.inner(ino), self.inner(parent));
        Ok(self.attr(self.store.link(caller, ino, parent, name)?))
    }
    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.store.unlink(caller, self.inner(parent), name)
    }
    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.store.rmdir(caller, self.inner(parent), name)
    }
    fn rename(
        &self,
        caller: &Caller,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        let (from, to) = ((self.inner(from.0), from.1), (self.inner(to.0), to.1));
        self.store.rename(caller, from, to, mode)
    }
    fn reclaim(&self, ino: Ino) -> Result<()> {
        self.store.reclaim(self.inner(ino))
    }
    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        self.store.read(self.inner(ino), offset, size, out)
    }
    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        self.store.write(caller, self.inner(ino), offset, data)
    }
    fn fallocate(
        &self,
        caller: &Caller,
        ino: Ino,
        how: Allocate,
        at: u64,
        length: u64,
    ) -> Result<()> {
        self.store
            .fallocate(caller, self.inner(ino), how, at, length)
    }
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        self.store.seek(self.inner(ino), offset, what)
    }
    fn readdir(
        &self,
        dir: Ino,
        after: u64,
        with_attr: bool,
        emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.store.readdir(self.inner(dir), after, with_attr, emit)
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.store.getxattr(self.inner(ino), name)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.store.listxattr(self.inner(ino))
    }
    fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.store
            .setxattr(caller, self.inner(ino), name, value, mode)
    }
    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.store.removexattr(caller, self.inner(ino), name)
    }
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        self.store.fsync(self.inner(ino), data_only)
    }
    fn sync(&self) -> Result<()> {
        self.store.sync()
    }
    fn statfs(&self) -> Result<StatFs> {
        self.store.statfs()
    }
}
