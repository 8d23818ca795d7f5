//! A [`Store`] in RAM: the reference model of the other stores, and the lower bound of FUSE's cost.
//!
//! Durability: none. Everything is gone when the daemon ends; `fsync` succeeds and promises nothing.

mod content;
mod tree;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::store::{
    Allocation, Attr, Caller, Change, Coherence, DirEntry, EntrySink, Errno, FIRST_COOKIE, Ino, Kind, NewNode, ROOT,
    RenameMode, Result, Seek, StatFs, Store, StoreError, XattrMode, check_rename,
};
use tree::{Body, Directory, Entry, Node, Tree};

/// A file system in this process's memory.
#[derive(Debug)]
pub struct MemoryStore {
    tree: RwLock<Tree>,
    /// Whether any extended attribute has been set.
    has_xattrs: AtomicBool,
}

impl MemoryStore {
    /// An empty file system whose root belongs to `owner` with mode 755.
    pub fn new(owner: &Caller) -> Self {
        let root = Node {
            attr: Attr::new(ROOT, Kind::Directory, 0o755, owner),
            body: Body::Directory(Directory::new(ROOT)),
            xattrs: BTreeMap::new(),
        };
        Self {
            tree: RwLock::new(Tree { nodes: HashMap::from([(ROOT, root)]), next_ino: ROOT, next_cookie: FIRST_COOKIE }),
            has_xattrs: AtomicBool::new(false),
        }
    }

    fn read_tree(&self) -> Result<RwLockReadGuard<'_, Tree>> {
        self.tree.read().map_err(|_| half_changed())
    }

    fn write_tree(&self) -> Result<RwLockWriteGuard<'_, Tree>> {
        self.tree.write().map_err(|_| half_changed())
    }
}

/// The error after a panic during a change, whose partial effects cannot be rolled back.
fn half_changed() -> StoreError {
    let reason = "a call panicked amid a change: nothing of this memory is served any more";
    StoreError::storage(Errno::IO, reason)
}

impl Store for MemoryStore {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let tree = self.read_tree()?;
        let entry = tree.entry(parent, name)?;
        Ok(tree.node(entry.ino)?.attr)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Ok(self.read_tree()?.node(ino)?.attr)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let mut tree = self.write_tree()?;
        let node = tree.node_mut(ino)?;
        if let Some(size) = change.size {
            let content = node.content_mut()?;
            content.truncate(size);
            node.attr.blocks = content.blocks();
            node.attr.size = size;
        }
        change.apply(&mut node.attr, caller.now);
        Ok(node.attr)
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        Ok(self.read_tree()?.node(dir)?.directory()?.parent)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        match &self.read_tree()?.node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        self.write_tree()?.create(caller, parent, name, node)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut tree = self.write_tree()?;
        tree.living_directory(parent)?;
        let attr = tree.node(ino)?.attr;
        if attr.kind == Kind::Directory {
            return Err(Errno::PERM.into());
        }
        if attr.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        if tree.entry(parent, name).is_ok() {
            return Err(Errno::EXIST.into());
        }
        let cookie = tree.new_cookie();
        let directory = tree.node_mut(parent)?.directory_mut()?;
        directory.insert(name, Entry { ino, cookie });
        tree.names_changed(parent, caller.now, 0)?;
        let node = tree.node_mut(ino)?;
        node.attr.nlink += 1;
        node.attr.ctime = caller.now;
        Ok(node.attr)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let mut tree = self.write_tree()?;
        let entry = tree.entry(parent, name)?;
        if tree.node(entry.ino)?.attr.kind == Kind::Directory {
            return Err(Errno::ISDIR.into());
        }
        tree.node_mut(parent)?.directory_mut()?.remove(name);
        tree.names_changed(parent, caller.now, 0)?;
        tree.drop_name(entry.ino, caller.now)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let mut tree = self.write_tree()?;
        let entry = tree.entry(parent, name)?;
        if !tree.is_empty(entry.ino)? {
            return Err(Errno::NOTEMPTY.into());
        }
        tree.node_mut(parent)?.directory_mut()?.remove(name);
        tree.names_changed(parent, caller.now, -1)?;
        tree.drop_name(entry.ino, caller.now)
    }

    fn rename(
        &self,
        caller: &Caller,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        let mut tree = self.write_tree()?;
        let source = tree.entry(from, from_name)?;
        tree.living_directory(to)?;
        let target = tree.entry(to, to_name).ok();
        let source_attr = tree.node(source.ino)?.attr;
        let target_attr = target.map(|entry| tree.node(entry.ino).map(|node| node.attr)).transpose()?;
        let inside_itself = source_attr.kind == Kind::Directory && tree.is_within(to, source.ino)?;
        let around_itself = match &target_attr {
            Some(attr) if attr.kind == Kind::Directory => tree.is_within(from, attr.ino)?,
            _ => false,
        };
        let target_is_empty = match &target_attr {
            Some(attr) if attr.kind == Kind::Directory => tree.is_empty(attr.ino)?,
            _ => true,
        };
        if !check_rename(&source_attr, target_attr.as_ref(), mode, inside_itself, around_itself, target_is_empty)? {
            return Ok(None);
        }

        let is_directory = |attr: &Attr| i32::from(attr.kind == Kind::Directory);
        let moved = is_directory(&source_attr);
        let mut replaced = None;
        match (mode, target, target_attr) {
            (RenameMode::Exchange, Some(target), Some(target_attr)) => {
                let back = is_directory(&target_attr);
                let (a, b) = (source.ino, target.ino);
                let set = |tree: &mut Tree, dir: Ino, name: &[u8], ino: Ino, cookie: u64| {
                    tree.node_mut(dir)?.directory_mut()?.insert(name, Entry { ino, cookie });
                    Ok::<_, StoreError>(())
                };
                set(&mut tree, from, from_name, b, source.cookie)?;
                set(&mut tree, to, to_name, a, target.cookie)?;
                if back == 1 {
                    tree.node_mut(b)?.directory_mut()?.parent = from;
                }
                tree.node_mut(b)?.attr.ctime = caller.now;
                tree.names_changed(from, caller.now, back - moved)?;
                tree.names_changed(to, caller.now, moved - back)?;
            }
            (_, target, target_attr) => {
                let gone = target_attr.as_ref().map_or(0, is_directory);
                let cookie = match target {
                    Some(target) => target.cookie,
                    None => tree.new_cookie(),
                };
                tree.node_mut(from)?.directory_mut()?.remove(from_name);
                let entry = Entry { ino: source.ino, cookie };
                let directory = tree.node_mut(to)?.directory_mut()?;
                directory.insert(to_name, entry);
                tree.names_changed(from, caller.now, -moved)?;
                tree.names_changed(to, caller.now, moved - gone)?;
                if let Some(target) = target {
                    replaced = tree.drop_name(target.ino, caller.now)?;
                }
                if mode.leaves_whiteout() {
                    tree.create(caller, from, from_name, &NewNode::WHITEOUT)?;
                }
            }
        }
        let node = tree.node_mut(source.ino)?;
        node.attr.ctime = caller.now;
        if let Body::Directory(directory) = &mut node.body {
            directory.parent = to;
        }
        Ok(replaced)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        let mut tree = self.write_tree()?;
        if tree.nodes.get(&ino).is_some_and(|n| n.attr.nlink == 0) {
            tree.nodes.remove(&ino);
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let tree = self.read_tree()?;
        let node = tree.node(ino)?;
        let content = node.content()?;
        let left = node.attr.size.saturating_sub(offset);
        content.read(offset, left.min(size as u64) as usize, out);
        Ok(())
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let mut tree = self.write_tree()?;
        let node = tree.node_mut(ino)?;
        node.content_mut()?.write(offset, data);
        node.attr.size = node.attr.size.max(offset + data.len() as u64);
        node.stamp_content(caller.now);
        Ok(())
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        let mut tree = self.write_tree()?;
        let node = tree.node_mut(ino)?;
        let size = node.attr.size;
        let content = node.content_mut()?;
        let end = offset + length;
        let keep_size = match how {
            Allocation::Reserve { keep_size } => keep_size,
            Allocation::PunchHole => {
                content.punch(offset, length);
                true
            }
            Allocation::Zero { keep_size } => {
                content.punch(offset, length);
                keep_size
            }
        };
        if !keep_size {
            node.attr.size = size.max(end);
        }
        node.stamp_content(caller.now);
        Ok(())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let tree = self.read_tree()?;
        let node = tree.node(ino)?;
        let content = node.content()?;
        if offset >= node.attr.size {
            return Err(Errno::NXIO.into());
        }
        match what {
            Seek::Hole => Ok(content.next_hole(offset).min(node.attr.size)),
            Seek::Data => match content.next_data(offset) {
                Some(at) if at < node.attr.size => Ok(at),
                _ => Err(Errno::NXIO.into()),
            },
        }
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        let tree = self.read_tree()?;
        let directory = tree.node(dir)?.directory()?;
        let rest = (Bound::Excluded(after), Bound::Unbounded);
        for (&cookie, name) in directory.by_cookie.range(rest) {
            let Some(entry) = directory.names.get(name) else {
                continue;
            };
            let attr = tree.node(entry.ino)?.attr;
            let entry = DirEntry { name, ino: entry.ino, kind: attr.kind, cookie, attr: with_attr.then_some(attr) };
            if emit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn may_have_xattrs(&self) -> bool {
        self.has_xattrs.load(Ordering::Acquire)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let tree = self.read_tree()?;
        let value = tree.node(ino)?.xattrs.get(name).cloned();
        value.ok_or_else(|| Errno::NODATA.into())
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.read_tree()?.node(ino)?.xattrs.keys().cloned().collect())
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.has_xattrs.store(true, Ordering::Release);
        let mut tree = self.write_tree()?;
        let node = tree.node_mut(ino)?;
        let exists = node.xattrs.contains_key(name);
        mode.check(exists)?;
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.attr.ctime = caller.now;
        Ok(())
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        let mut tree = self.write_tree()?;
        let node = tree.node_mut(ino)?;
        node.xattrs.remove(name).ok_or(Errno::NODATA)?;
        node.attr.ctime = caller.now;
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        // There is no limit; a terabyte satisfies tools that check for space.
        let blocks = (1 << 40) / 4096;
        Ok(StatFs {
            block_bytes: 4096,
            blocks,
            blocks_free: blocks,
            blocks_available: blocks,
            inodes: 1 << 32,
            inodes_free: (1 << 32) - self.read_tree()?.nodes.len() as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::store::Timestamp;

    #[test]
    fn after_a_panic_amid_a_change_nothing_is_served() {
        let store = MemoryStore::new(&Caller { uid: 0, gid: 0, now: Timestamp(1) });
        let reading = catch_unwind(AssertUnwindSafe(|| {
            let _tree = store.read_tree();
            panic!("on purpose");
        }));
        assert!(reading.is_err());
        store.getattr(ROOT).unwrap();
        let changing = catch_unwind(AssertUnwindSafe(|| {
            let _tree = store.write_tree();
            panic!("on purpose");
        }));
        assert!(changing.is_err());
        let error = store.getattr(ROOT).unwrap_err();
        assert_eq!(error.errno, Errno::IO);
        assert!(error.to_string().contains("amid a change"), "{error}");
        assert_eq!(store.reclaim(ROOT).unwrap_err().errno, Errno::IO);
    }
}
