//! Writing a file system to its save file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use fuse::memory::MemoryStore;
use fuse::store::{Attr, Errno, Ino, Kind, ROOT, Seek, Store, StoreError};
use fuse::unfinished;
use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};

use super::checksum::ChecksumWriter;
use super::saved::{Bytes, Extent, Node, PendingFile, SaveFile, SavedError, VERSION, beside, folder};

/// The most bytes of content in one extent of a save file.
const PIECE: u64 = 1 << 20;

/// The data of a file outside its holes, read from the store during serialization.
struct Extents<'a> {
    store: &'a MemoryStore,
    ino: Ino,
    size: u64,
}

impl Serialize for Extents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut pieces = serializer.serialize_seq(None)?;
        let mut at = 0;
        // `seek` fails if no data follows `at`.
        while let Ok(start) = self.store.seek(self.ino, at, Seek::Data) {
            // The file may have been truncated or removed meanwhile.
            let Ok(hole) = self.store.seek(self.ino, start, Seek::Hole) else {
                break;
            };
            let end = hole.min(self.size);
            let mut from = start;
            while from < end {
                let wanted = (end - from).min(PIECE);
                let mut bytes = Vec::new();
                match self.store.read(self.ino, from, wanted as usize, &mut bytes) {
                    Err(error) if error.errno != Errno::NOENT => {
                        return Err(S::Error::custom(error));
                    }
                    _ if bytes.is_empty() => break,
                    _ => {}
                }
                let next = from + bytes.len() as u64;
                pieces.serialize_element(&Extent { at: from, bytes: Bytes::of(&bytes) })?;
                from = next;
            }
            if end <= at || end >= self.size {
                break;
            }
            at = end;
        }
        pieces.end()
    }
}

/// An inode with all its names, from one walk of the tree.
pub(super) struct NamedInode {
    ino: Ino,
    /// For a directory, its attributes at that time.
    directory: Option<Attr>,
    names: Vec<(Ino, Vec<u8>)>,
}

/// Every inode in `store` except those that `is_left_out`. Directories come first, parents before children.
/// The caller must keep names from changing meanwhile.
fn inodes(path: &Path, store: &MemoryStore, is_left_out: &dyn Fn(Ino) -> bool) -> Result<Vec<NamedInode>, SavedError> {
    let broken = |node: Ino| move |error| SavedError::Node { path: path.to_owned(), node, error };
    let inode = |ino, names| {
        let attr = store.getattr(ino).map_err(broken(ino))?;
        Ok(NamedInode { ino, directory: (attr.kind == Kind::Directory).then_some(attr), names })
    };
    let (mut directories, mut others) = (vec![inode(ROOT, Vec::new())?], Vec::<NamedInode>::new());
    let mut known = HashMap::new();
    let mut dirs = vec![ROOT];
    while let Some(dir) = dirs.pop() {
        let mut entries = Vec::new();
        let listed = store.readdir(dir, 0, false, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            ControlFlow::Continue(())
        });
        listed.map_err(broken(dir))?;
        for (name, ino, kind) in entries {
            if is_left_out(ino) {
                continue;
            }
            if kind == Kind::Directory {
                directories.push(inode(ino, vec![(dir, name)])?);
                dirs.push(ino);
            } else if let Some(at) = known.get(&ino) {
                let there: &mut NamedInode = &mut others[*at];
                there.names.push((dir, name));
            } else {
                known.insert(ino, others.len());
                others.push(inode(ino, vec![(dir, name)])?);
            }
        }
    }
    directories.append(&mut others);
    Ok(directories)
}

impl SaveFile {
    /// Every inode in `store` except those that `is_left_out`, with all its names. The caller must keep names
    /// from changing meanwhile.
    pub(super) fn inodes(
        &self,
        store: &MemoryStore,
        is_left_out: &dyn Fn(Ino) -> bool,
    ) -> Result<Vec<NamedInode>, SavedError> {
        inodes(self.path(), store, is_left_out)
    }

    /// Writes all of `inodes`. The save file is replaced atomically, and durable on return.
    pub(super) fn write(
        &self,
        store: &MemoryStore,
        inodes: &[NamedInode],
        pending: &dyn Fn(Ino) -> Option<PendingFile>,
    ) -> Result<(), SavedError> {
        let failed = |error| SavedError::File { path: self.path().to_owned(), error };
        let new = beside(self.path(), ".new");
        let write = || {
            let mut out = ChecksumWriter::new(BufWriter::new(unfinished::create(&new)?));
            write!(out, "{{\"v\":{VERSION},\"nodes\":[")?;
            let mut separator = "\n";
            for inode in inodes {
                let node = match written(store, inode, pending) {
                    Ok(node) => node,
                    Err(error) if error.errno == Errno::NOENT => continue,
                    Err(error) => return Err(std::io::Error::other(error)),
                };
                out.write_all(separator.as_bytes())?;
                serde_json::to_writer(&mut out, &node)?;
                separator = ",\n";
            }
            out.write_all(b"\n]")?;
            let file = out.finish()?.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
            std::fs::rename(&new, self.path())?;
            File::open(folder(self.path()))?.sync_all()
        };
        write().map_err(|error| {
            // Best effort: the next save removes an incomplete file, too.
            let _ = std::fs::remove_file(&new);
            failed(error)
        })
    }
}

/// Builds the node of an inode. `ENOENT` if the file was removed after its names were collected.
fn written<'a>(
    store: &'a MemoryStore,
    inode: &NamedInode,
    pending: &dyn Fn(Ino) -> Option<PendingFile>,
) -> Result<Node<Extents<'a>>, StoreError> {
    let ino = inode.ino;
    // Read before the content: a file generated in between would otherwise be saved as empty.
    let pending = pending(ino);
    let attr = match (inode.directory, store.getattr(ino)) {
        (_, Ok(attr)) => attr,
        // A removed directory is still the parent of nodes in `inodes`.
        (Some(attr), Err(_)) => attr,
        (None, Err(error)) => return Err(error),
    };
    // `seek` fails if the file is truncated at this moment.
    let is_dense = |hole: fuse::store::Result<u64>| hole.is_ok_and(|hole| hole >= attr.size);
    let (mut content, mut size, mut extents) = (None, None, None);
    if attr.kind == Kind::File && pending.is_none() {
        let is_whole = attr.size == 0 || (attr.size <= PIECE && is_dense(store.seek(ino, 0, Seek::Hole)));
        if is_whole {
            let mut bytes = Vec::new();
            store.read(ino, 0, PIECE as usize, &mut bytes)?;
            content = Some(Bytes::of(&bytes));
        } else {
            size = Some(attr.size);
            extents = Some(Extents { store, ino, size: attr.size });
        }
    }
    let target = match attr.kind {
        Kind::Symlink => Some(Bytes::of(&store.readlink(ino)?)),
        _ => None,
    };
    let (mut xattrs, mut more_xattrs) = (BTreeMap::new(), Vec::new());
    for name in store.listxattr(ino).unwrap_or_default() {
        let Ok(value) = store.getxattr(ino, &name) else {
            continue;
        };
        match Bytes::of(&name) {
            Bytes::Text(name) => {
                xattrs.insert(name, Bytes::of(&value));
            }
            name => more_xattrs.push((name, Bytes::of(&value))),
        }
    }
    let names = inode.names.iter();
    Ok(Node {
        node: ino,
        names: names.map(|(dir, name)| (*dir, Bytes::of(name))).collect(),
        kind: attr.kind.mode_bits(),
        permissions: attr.permissions,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        content,
        size,
        extents,
        target,
        xattrs,
        more_xattrs,
        pending,
    })
}
