//! Random sequences of operations, and a driver that applies them to a store.

mod shared;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI64, Ordering};

use fuse::store::{
    Allocation, Attr, Caller, Change, Errno, FIRST_COOKIE, Ino, Kind, NewNode, RenameMode, Result, Seek, Store,
    Timestamp, XattrMode,
};
use proptest::prelude::*;

pub use shared::*;

pub fn caller(now: i64) -> Caller {
    Caller { uid: 1000, gid: 100, now: Timestamp(now) }
}

/// Time passes between operations.
pub fn now() -> Caller {
    static NOW: AtomicI64 = AtomicI64::new(1_000_000);
    caller(NOW.fetch_add(1, Ordering::Relaxed))
}

pub fn node(kind: Kind) -> NewNode<'static> {
    NewNode { kind, permissions: 0o644, rdev: 0, target: &[] }
}

pub fn create(store: &dyn Store, parent: Ino, name: &str, kind: Kind) -> Attr {
    store.create(&caller(10), parent, name.as_bytes(), &node(kind)).unwrap()
}

/// Sets an extended attribute.
pub fn set(store: &dyn Store, ino: Ino, name: &str, value: &str) -> Result<()> {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    store.setxattr(&caller(10), ino, name, value, XattrMode::Set)
}

pub fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.unwrap_err().errno
}

/// Checks that a call fails with this number, for a reason that has these parts.
#[track_caller]
pub fn fails<T: std::fmt::Debug>(result: Result<T>, errno: Errno, parts: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.errno, errno, "{error}");
    has(&error.reason.unwrap_or_default(), parts);
}

pub fn read(store: &dyn Store, ino: Ino, offset: u64, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    store.read(ino, offset, size, &mut out).unwrap();
    out
}

pub fn names(store: &dyn Store, dir: Ino) -> Vec<String> {
    let mut names = Vec::new();
    store
        .readdir(dir, 0, true, &mut |entry| {
            assert_eq!(entry.attr.unwrap().kind, entry.kind);
            assert!(entry.cookie >= FIRST_COOKIE && entry.cookie < 1 << 63);
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        })
        .unwrap();
    names.sort();
    names
}

pub fn size_change(size: u64) -> Change {
    Change { size: Some(size), ..Change::default() }
}

pub fn permissions(permissions: u16) -> Change {
    Change { permissions: Some(permissions), ..Change::default() }
}

pub fn resize(store: &dyn Store, ino: Ino, size: u64) {
    store.setattr(&now(), ino, &size_change(size)).unwrap();
}

/// Visits all entries below a directory by path, in the order of their names.
pub fn walk(store: &dyn Store, dir: Ino, path: &str, visit: &mut dyn FnMut(String, &Attr)) {
    let mut entries = BTreeMap::new();
    store
        .readdir(dir, 0, false, &mut |entry| {
            entries.insert(entry.name.to_vec(), entry.ino);
            ControlFlow::Continue(())
        })
        .unwrap();
    for (name, ino) in entries {
        let attr = store.getattr(ino).unwrap();
        assert_eq!(store.lookup(dir, &name).unwrap().ino, ino);
        let path = format!("{path}/{}", name.escape_ascii());
        visit(path.clone(), &attr);
        if attr.kind == Kind::Directory {
            walk(store, ino, &path, visit);
        }
    }
}

/// The content of a file as runs of equal bytes.
fn runs(store: &dyn Store, attr: &Attr) -> String {
    let content = read(store, attr.ino, 0, 2 << 20);
    assert_eq!(content.len() as u64, attr.size);
    let runs = content.chunk_by(|a, b| a == b);
    let runs = runs.map(|run| (run[0], run.len()));
    format!("{:?}", runs.collect::<Vec<_>>())
}

fn xattrs(store: &dyn Store, ino: Ino) -> String {
    let names = store.listxattr(ino).unwrap();
    let values = names.iter().map(|name| store.getxattr(ino, name).unwrap());
    format!("{names:?} {:?}", values.collect::<Vec<_>>())
}

/// A step of a random sequence. A `usize` picks an inode from those that the sequence has created.
#[derive(Clone, Debug)]
pub enum Step {
    /// In a directory, with a name, of a kind.
    Create(usize, u8, u8),
    /// Of a node, in a directory, with a name.
    Link(usize, usize, u8),
    Unlink(usize, u8),
    Rmdir(usize, u8),
    /// From a directory and name to others, in a mode.
    Rename((usize, u8), (usize, u8), u8),
    /// At an offset, so many times a byte.
    Write(usize, u32, u16, u8),
    Truncate(usize, u32),
    /// An offset and a length.
    Punch(usize, u32, u32),
    /// A name and a value.
    Xattr(usize, u8, u8),
    Reclaim(usize),
}

pub fn step() -> impl Strategy<Value = Step> {
    let index = 0usize..12;
    let name = 0u8..6;
    let entry = (index.clone(), name.clone());
    // Small files, and some with an end near the size at which a store may keep content elsewhere.
    let offset = prop_oneof![3 => 0u32..200_000, 1 => 1_000_000u32..1_100_000];
    prop_oneof![
        4 => (entry.clone(), 0u8..3).prop_map(|((dir, name), kind)| Step::Create(dir, name, kind)),
        1 => (index.clone(), index.clone(), name).prop_map(|(node, dir, name)| Step::Link(node, dir, name)),
        1 => entry.clone().prop_map(|(dir, name)| Step::Unlink(dir, name)),
        1 => entry.clone().prop_map(|(dir, name)| Step::Rmdir(dir, name)),
        3 => (entry.clone(), entry, 0u8..5).prop_map(|(from, to, mode)| Step::Rename(from, to, mode)),
        3 => (index.clone(), offset.clone(), any::<u16>(), any::<u8>())
            .prop_map(|(node, offset, length, byte)| Step::Write(node, offset, length, byte)),
        1 => (index.clone(), offset.clone()).prop_map(|(node, size)| Step::Truncate(node, size)),
        1 => (index.clone(), offset, 1u32..100_000)
            .prop_map(|(node, offset, length)| Step::Punch(node, offset, length)),
        1 => (index.clone(), 0u8..3, any::<u8>()).prop_map(|(node, name, value)| Step::Xattr(node, name, value)),
        1 => index.prop_map(Step::Reclaim),
    ]
}

/// A store with the inodes that a sequence has created. Two stores with different inode numbers can then run
/// the same steps.
pub struct StoreDriver<'a> {
    pub store: &'a dyn Store,
    pub made: Vec<Ino>,
}

impl StoreDriver<'_> {
    pub fn ino(&self, index: usize) -> Ino {
        self.made[index % self.made.len()]
    }

    /// Runs a step, and returns the result that two stores must agree on.
    pub fn step(&mut self, step: &Step, now: i64) -> std::result::Result<Option<usize>, i32> {
        let name = |name: u8| vec![b'a' + name];
        let caller = caller(now);
        let place = |made: &[Ino], ino: Option<Ino>| ino.map(|ino| made.iter().position(|made| *made == ino).unwrap());
        let store = self.store;
        let result = match *step {
            Step::Create(dir, n, kind) => {
                let kind = [Kind::File, Kind::Directory, Kind::Symlink][usize::from(kind)];
                let new = NewNode { target: if kind == Kind::Symlink { b"t" } else { b"" }, ..node(kind) };
                let made = store.create(&caller, self.ino(dir), &name(n), &new);
                made.map(|attr| {
                    self.made.push(attr.ino);
                    None
                })
            }
            Step::Link(node, dir, n) => {
                let linked = store.link(&caller, self.ino(node), self.ino(dir), &name(n));
                linked.map(|attr| place(&self.made, Some(attr.ino)))
            }
            Step::Unlink(dir, n) => {
                let gone = store.unlink(&caller, self.ino(dir), &name(n));
                gone.map(|ino| place(&self.made, ino))
            }
            Step::Rmdir(dir, n) => {
                let gone = store.rmdir(&caller, self.ino(dir), &name(n));
                gone.map(|ino| place(&self.made, ino))
            }
            Step::Rename((from, old), (to, new), mode) => {
                let mode = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                    RenameMode::WhiteoutNoReplace,
                ][usize::from(mode)];
                let (old, new) = (name(old), name(new));
                let (from, to) = (self.ino(from), (self.ino(to), &*new));
                let gone = store.rename(&caller, (from, &old), to, mode);
                if mode.leaves_whiteout()
                    && gone.is_ok()
                    && let Ok(left) = store.lookup(from, &old)
                    && !self.made.contains(&left.ino)
                {
                    self.made.push(left.ino);
                }
                gone.map(|ino| place(&self.made, ino))
            }
            Step::Write(node, offset, length, byte) => {
                let data = vec![byte; usize::from(length) + 1];
                let written = store.write(&caller, self.ino(node), offset.into(), &data);
                written.map(|()| None)
            }
            Step::Truncate(node, size) => {
                let change = size_change(size.into());
                let changed = store.setattr(&caller, self.ino(node), &change);
                changed.map(|_| None)
            }
            Step::Punch(node, offset, length) => {
                let (how, offset) = (Allocation::PunchHole, offset.into());
                let punched = store.fallocate(&caller, self.ino(node), how, offset, length.into());
                punched.map(|()| None)
            }
            Step::Xattr(node, n, value) => {
                let (name, mode) = ([b'k', n], XattrMode::Set);
                let set = store.setxattr(&caller, self.ino(node), &name, &[value], mode);
                set.map(|()| None)
            }
            Step::Reclaim(node) => store.reclaim(self.ino(node)).map(|()| None),
        };
        let named = match *step {
            Step::Create(dir, name, _)
            | Step::Link(_, dir, name)
            | Step::Unlink(dir, name)
            | Step::Rmdir(dir, name)
            | Step::Rename(_, (dir, name), _) => Some((dir, name)),
            _ => None,
        };
        if let Some((dir, n)) = named {
            // A store caches names: the next steps use the cache, and `dump` compares it.
            let _ = self.store.lookup(self.ino(dir), &name(n));
        }
        result.map_err(|error| error.errno.raw_os_error())
    }

    /// Everything that is visible, with inodes numbered in the order of creation.
    pub fn dump(&self) -> Vec<String> {
        let place = |ino: Ino| self.made.iter().position(|made| *made == ino).unwrap();
        let mut dump = Vec::new();
        for (number, ino) in self.made.iter().enumerate() {
            let Ok(attr) = self.store.getattr(*ino) else {
                dump.push(format!("{number} gone"));
                continue;
            };
            // Blocks depend on how a store splits files; all else must be equal.
            let seen = Attr { ino: 0, blocks: 0, ..attr };
            let mut line = format!("{number} {seen:?}");
            match attr.kind {
                Kind::Directory => {
                    let mut entries = BTreeMap::new();
                    self.store
                        .readdir(*ino, 0, false, &mut |entry| {
                            entries.insert(entry.name.to_vec(), (place(entry.ino), entry.kind));
                            ControlFlow::Continue(())
                        })
                        .unwrap();
                    for name in (b'a'..=b'f').map(|name| vec![name]) {
                        let found = self.store.lookup(*ino, &name);
                        let found = found.ok().map(|attr| place(attr.ino));
                        assert_eq!(found, entries.get(&name).map(|entry| entry.0));
                    }
                    // The first one may be any directory of the store.
                    let parent = match number {
                        0 => 0,
                        _ => place(self.store.parent(*ino).unwrap()),
                    };
                    line += &format!(" {entries:?} in {parent}");
                }
                Kind::Symlink => line += &format!(" {:?}", self.store.readlink(*ino).unwrap()),
                Kind::Fifo | Kind::Socket | Kind::CharDevice | Kind::BlockDevice => {}
                Kind::File => {
                    line += &format!(" {}", runs(self.store, &attr));
                    assert_eq!(attr.blocks == 0, self.store.seek(*ino, 0, Seek::Data).is_err());
                }
            }
            dump.push(format!("{line} {}", xattrs(self.store, *ino)));
        }
        dump
    }
}

/// Everything below a directory that another machine can see, by path, without inode numbers and hard links.
pub fn tree(store: &dyn Store, dir: Ino) -> Vec<String> {
    let mut lines = Vec::new();
    walk(store, dir, "", &mut |path, attr| {
        let mut line = format!("{path} {:?} {:o}", attr.kind, attr.permissions);
        match attr.kind {
            Kind::Symlink => line += &format!(" {:?}", store.readlink(attr.ino).unwrap()),
            Kind::File => {
                let (runs, xattrs) = (runs(store, attr), xattrs(store, attr.ino));
                line += &format!(" {} {runs} {xattrs}", attr.mtime.0);
            }
            _ => {}
        }
        lines.push(line);
    });
    lines
}
