//! Loading a save file into an empty store.

use std::collections::BTreeMap;
use std::path::Path;

use fuse::memory::MemoryStore;
use fuse::own_file;
use fuse::store::{Attr, Caller, Change, Ino, Kind, NewNode, ROOT, Store, Timestamp, XattrMode};

use super::checksum;
use super::saved::{Bytes, Node, PendingFile, SavedError, SavedTree, VERSION};

/// Loads the save file at `path` into an empty `store`. Calls `named` for each name, and returns the waiting
/// files.
pub(super) fn load(
    path: &Path,
    store: &MemoryStore,
    mut named: impl FnMut(Ino, Ino, &[u8]),
) -> Result<Vec<(Ino, PendingFile)>, SavedError> {
    let form = |why: String| SavedError::Form { path: path.to_owned(), why };
    let bytes = own_file::read(path).map_err(|error| SavedError::File { path: path.to_owned(), error })?;
    let text = String::from_utf8(bytes).map_err(|error| form(error.to_string()))?;
    let value = inputs::parse_json(&text).map_err(|error| form(error.to_string()))?;
    let saved: SavedTree = inputs::read_value(value).map_err(|error| form(error.to_string()))?;
    if saved.v != VERSION {
        return Err(form(format!("it has version {}; this ctxbench knows version {VERSION}", saved.v)));
    }
    if !checksum::is_right(text.as_bytes()) {
        return Err(form("its checksum is wrong: a byte was changed or is missing".to_owned()));
    }
    let broken = |node: &Node, error| SavedError::Node { path: path.to_owned(), node: node.node, error };
    let caller = |node: &Node| Caller { uid: node.uid, gid: node.gid, now: Timestamp(node.mtime) };
    let is_directory = |node: &&Node| Kind::from_mode(node.kind) == Some(Kind::Directory);
    let mut inodes = BTreeMap::from([(ROOT, ROOT)]);
    let mut pending = Vec::new();
    for node in &saved.nodes {
        let broken = |error| broken(node, error);
        let decode = |bytes: &Bytes| bytes.bytes().map_err(&form);
        let caller = caller(node);
        let mut ino = (node.node == ROOT).then_some(ROOT);
        for (dir, name) in &node.names {
            let name = decode(name)?;
            let is_name = !name.is_empty() && name.len() <= fuse::store::NAME_MAX && !name.contains(&b'/');
            if !is_name || name == b"." || name == b".." {
                return Err(form(format!("node {} has an invalid name", node.node)));
            }
            let dir = *inodes.get(dir).ok_or_else(|| {
                form(format!("node {} is in directory {dir}, which does not come before it", node.node))
            })?;
            let attr = match ino {
                Some(ino) => store.link(&caller, ino, dir, &name).map_err(broken)?,
                None => create(store, &caller, dir, &name, node, &decode)?.map_err(broken)?,
            };
            ino = Some(attr.ino);
            named(attr.ino, dir, &name);
        }
        let Some(ino) = ino else {
            return Err(form(format!("node {} has no name", node.node)));
        };
        inodes.insert(node.node, ino);
        let content = node.content.as_ref().map(decode).transpose()?;
        if let Some(content) = content.filter(|content| !content.is_empty()) {
            store.write(&caller, ino, 0, &content).map_err(broken)?;
        }
        for extent in node.extents.iter().flatten() {
            let bytes = decode(&extent.bytes)?;
            let end = extent.at.checked_add(bytes.len() as u64);
            if end.is_none_or(|end| end > node.size.unwrap_or(0)) {
                return Err(form(format!("node {} has bytes past its end, at {}", node.node, extent.at)));
            }
            store.write(&caller, ino, extent.at, &bytes).map_err(broken)?;
        }
        if let Some(size) = node.size {
            if i64::try_from(size).is_err() {
                let why = format!("node {} is longer than a file can be", node.node);
                return Err(form(why));
            }
            let size = Change { size: Some(size), ..Change::default() };
            store.setattr(&caller, ino, &size).map_err(broken)?;
        }
        let text = node.xattrs.iter();
        let text = text.map(|(name, value)| (Bytes::Text(name.clone()), value.clone()));
        for (name, value) in node.more_xattrs.iter().cloned().chain(text) {
            let (name, value) = (decode(&name)?, decode(&value)?);
            store.setxattr(&caller, ino, &name, &value, XattrMode::Set).map_err(broken)?;
        }
        let times = Change {
            permissions: Some(node.permissions),
            gid: Some(node.gid),
            atime: Some(Timestamp(node.atime)),
            mtime: Some(Timestamp(node.mtime)),
            ..Change::default()
        };
        store.setattr(&caller, ino, &times).map_err(broken)?;
        if let Some(waits) = &node.pending {
            pending.push((ino, waits.clone()));
        }
    }
    // Creating the children has changed the times of their directory.
    for node in saved.nodes.iter().filter(is_directory) {
        let Some(ino) = inodes.get(&node.node) else {
            continue;
        };
        let times = Change { mtime: Some(Timestamp(node.mtime)), ..Change::default() };
        store.setattr(&caller(node), *ino, &times).map_err(|error| broken(node, error))?;
    }
    Ok(pending)
}

type Decode<'a> = &'a dyn Fn(&Bytes) -> Result<Vec<u8>, SavedError>;

fn create(
    store: &MemoryStore,
    caller: &Caller,
    dir: Ino,
    name: &[u8],
    node: &Node,
    decode: Decode<'_>,
) -> Result<fuse::store::Result<Attr>, SavedError> {
    let target = node.target.as_ref().map(decode).transpose()?.unwrap_or_default();
    let new = NewNode {
        kind: Kind::from_mode(node.kind).unwrap_or(Kind::File),
        permissions: node.permissions,
        rdev: node.rdev,
        target: &target,
    };
    Ok(store.create(caller, dir, name, &new))
}
