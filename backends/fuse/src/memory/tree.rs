//! The inodes and names of a [`super::MemoryStore`].

use std::collections::{BTreeMap, HashMap};

use super::content::Content;
use crate::store::{Attr, Caller, Errno, Ino, Kind, NewNode, Result, Timestamp};

#[derive(Debug)]
pub(super) struct Tree {
    pub(super) nodes: HashMap<Ino, Node>,
    pub(super) next_ino: Ino,
    pub(super) next_cookie: u64,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) attr: Attr,
    pub(super) body: Body,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum Body {
    File(Content),
    Directory(Directory),
    Symlink(Vec<u8>),
    Special,
}

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) parent: Ino,
    pub(super) names: BTreeMap<Vec<u8>, Entry>,
    pub(super) by_cookie: BTreeMap<u64, Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) ino: Ino,
    pub(super) cookie: u64,
}

impl Directory {
    pub(super) fn new(parent: Ino) -> Self {
        Self { parent, names: BTreeMap::new(), by_cookie: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, name: &[u8], entry: Entry) {
        self.names.insert(name.to_vec(), entry);
        self.by_cookie.insert(entry.cookie, name.to_vec());
    }

    pub(super) fn remove(&mut self, name: &[u8]) {
        if let Some(entry) = self.names.remove(name) {
            self.by_cookie.remove(&entry.cookie);
        }
    }
}

impl Node {
    pub(super) fn directory(&self) -> Result<&Directory> {
        match &self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    pub(super) fn directory_mut(&mut self) -> Result<&mut Directory> {
        match &mut self.body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::NOTDIR.into()),
        }
    }

    pub(super) fn content(&self) -> Result<&Content> {
        match &self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    pub(super) fn content_mut(&mut self) -> Result<&mut Content> {
        match &mut self.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(Errno::ISDIR.into()),
            _ => Err(Errno::INVAL.into()),
        }
    }

    pub(super) fn stamp_content(&mut self, now: Timestamp) {
        self.attr.mtime = now;
        self.attr.ctime = now;
        if let Body::File(content) = &self.body {
            self.attr.blocks = content.blocks();
        }
    }
}

impl Tree {
    pub(super) fn node(&self, ino: Ino) -> Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| Errno::NOENT.into())
    }

    pub(super) fn entry(&self, parent: Ino, name: &[u8]) -> Result<Entry> {
        let directory = self.node(parent)?.directory()?;
        directory.names.get(name).copied().ok_or_else(|| Errno::NOENT.into())
    }

    /// Creates a node. `EEXIST` where the name is taken.
    pub(super) fn create(&mut self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let parent_attr = self.living_directory(parent)?.attr;
        if self.entry(parent, name).is_ok() {
            return Err(Errno::EXIST.into());
        }
        self.next_ino += 1;
        let ino = self.next_ino;
        let (gid, permissions) = node.inherit(&parent_attr, caller);
        let is_directory = node.kind == Kind::Directory;
        let attr = Attr {
            gid,
            rdev: node.rdev,
            size: node.target.len() as u64,
            ..Attr::new(ino, node.kind, permissions, caller)
        };
        let body = match node.kind {
            Kind::File => Body::File(Content::default()),
            Kind::Directory => Body::Directory(Directory::new(parent)),
            Kind::Symlink => Body::Symlink(node.target.to_vec()),
            Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => Body::Special,
        };
        let node = Node { attr, body, xattrs: BTreeMap::new() };
        self.nodes.insert(ino, node);
        let cookie = self.new_cookie();
        let directory = self.node_mut(parent)?.directory_mut()?;
        directory.insert(name, Entry { ino, cookie });
        self.names_changed(parent, caller.now, i32::from(is_directory))?;
        Ok(attr)
    }

    /// A directory that may get new names: one that has not been removed.
    pub(super) fn living_directory(&self, ino: Ino) -> Result<&Node> {
        let node = self.node(ino)?;
        node.directory()?;
        if node.attr.nlink == 0 {
            return Err(Errno::NOENT.into());
        }
        Ok(node)
    }

    pub(super) fn new_cookie(&mut self) -> u64 {
        self.next_cookie += 1;
        self.next_cookie
    }

    /// Updates the timestamps of a directory whose names changed, and its count of subdirectories.
    pub(super) fn names_changed(&mut self, dir: Ino, now: Timestamp, subdirectories: i32) -> Result<()> {
        let attr = &mut self.node_mut(dir)?.attr;
        attr.mtime = now;
        attr.ctime = now;
        attr.nlink = attr.nlink.saturating_add_signed(subdirectories);
        Ok(())
    }

    /// Removes one name of an inode; `Some` if it was the last.
    pub(super) fn drop_name(&mut self, ino: Ino, now: Timestamp) -> Result<Option<Ino>> {
        let node = self.node_mut(ino)?;
        node.attr.ctime = now;
        node.attr.nlink = match node.attr.kind {
            Kind::Directory => 0,
            _ => node.attr.nlink - 1,
        };
        Ok((node.attr.nlink == 0).then_some(ino))
    }

    /// Whether directory `dir` is `ancestor` or a descendant of it.
    pub(super) fn is_within(&self, mut dir: Ino, ancestor: Ino) -> Result<bool> {
        loop {
            if dir == ancestor {
                return Ok(true);
            }
            let parent = self.node(dir)?.directory()?.parent;
            if parent == dir {
                return Ok(false);
            }
            dir = parent;
        }
    }

    pub(super) fn is_empty(&self, dir: Ino) -> Result<bool> {
        Ok(self.node(dir)?.directory()?.names.is_empty())
    }
}
