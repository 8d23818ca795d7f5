//! A whole file system as one JSON file, and back.

use std::collections::BTreeMap;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::memory::MemoryStore;
use crate::store::{
    Attr, Caller, Change, Ino, Kind, NewNode, ROOT, Store, StoreError, Timestamp, XattrMode,
};

/// The format's version.
const VERSION: u32 = 1;

/// Why a saved file system cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It cannot be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is something else.
    #[error("{} is no saved file system: {why}", .path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        why: String,
    },
    /// A node in it cannot be.
    #[error("{}: the node {node} cannot be restored: {error}", .path.display())]
    Node {
        /// The file.
        path: PathBuf,
        /// Its number in the file.
        node: u64,
        /// What the store said.
        error: StoreError,
    },
}

/// Bytes as text where they are, else in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Bytes {
    Text(String),
    Base64(String),
}

impl Bytes {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Base64(BASE64_STANDARD.encode(bytes)),
        }
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => BASE64_STANDARD
                .decode(text)
                .map_err(|error| error.to_string()),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    v: u32,
    nodes: Vec<Node>,
}

/// An inode. Directories come before what is in them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Node {
    /// Its number in this file; 1 is the root.
    node: u64,
    /// Directory and name, one for each hard link; none for the root.
    names: Vec<(u64, Bytes)>,
    /// The type bits of `st_mode`.
    kind: u32,
    permissions: u16,
    uid: u32,
    gid: u32,
    rdev: u32,
    /// Nanoseconds since 1970: access and modification.
    atime: i64,
    mtime: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<Bytes>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, Bytes>,
    /// It waits to be generated, and this is what it is to hold, where something says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<Pending>,
}

/// A file that has not been generated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pending {
    /// What makes it.
    pub(super) generator: String,
    /// What it is to hold.
    pub(super) about: Option<String>,
}

/// Writes everything in `store` but what `is_left_out` to a file, which is replaced as a whole and synced.
pub(super) fn save(
    path: &Path,
    store: &MemoryStore,
    pending: &dyn Fn(Ino) -> Option<Pending>,
    is_left_out: &dyn Fn(Ino) -> bool,
) -> Result<(), SavedError> {
    let failed = |error| SavedError::File {
        path: path.to_owned(),
        error,
    };
    let broken = |node: Ino| {
        move |error| SavedError::Node {
            path: path.to_owned(),
            node,
            error,
        }
    };
    let mut nodes = vec![node(store, ROOT).map_err(broken(ROOT))?];
    let mut places = BTreeMap::from([(ROOT, 0_usize)]);
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
            let name = (dir, Bytes::of(&name));
            if let Some(at) = places.get(&ino) {
                nodes[*at].names.push(name);
                continue;
            }
            let mut node = node(store, ino).map_err(broken(ino))?;
            node.names.push(name);
            node.pending = pending(ino);
            places.insert(ino, nodes.len());
            nodes.push(node);
            if kind == Kind::Directory {
                dirs.push(ino);
            }
        }
    }
    let saved = Saved { v: VERSION, nodes };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &saved)?;
        file.flush()?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    write().map_err(failed)
}

fn node(store: &MemoryStore, ino: Ino) -> Result<Node, StoreError> {
    let attr = store.getattr(ino)?;
    let content = if attr.kind == Kind::File {
        let mut content = Vec::new();
        store.read(
            ino,
            0,
            usize::try_from(attr.size).unwrap_or(usize::MAX),
            &mut content,
        )?;
        Some(Bytes::of(&content))
    } else {
        None
    };
    let target = match attr.kind {
        Kind::Symlink => Some(Bytes::of(&store.readlink(ino)?)),
        _ => None,
    };
    let mut xattrs = BTreeMap::new();
    for name in store.listxattr(ino)? {
        let value = store.getxattr(ino, &name)?;
        xattrs.insert(
            String::from_utf8_lossy(&name).into_owned(),
            Bytes::of(&value),
        );
    }
    Ok(Node {
        node: ino,
        names: Vec::new(),
        kind: attr.kind.mode_bits(),
        permissions: attr.permissions,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        content,
        target,
        xattrs,
        pending: None,
    })
}

/// Fills an empty `store` from a file; says which inode waits for what, and calls `named` for each name.
pub(super) fn load(
    path: &Path,
    store: &MemoryStore,
    mut named: impl FnMut(Ino, Ino, &[u8]),
) -> Result<Vec<(Ino, Pending)>, SavedError> {
    let form = |why: String| SavedError::Form {
        path: path.to_owned(),
        why,
    };
    let bytes = std::fs::read(path).map_err(|error| SavedError::File {
        path: path.to_owned(),
        error,
    })?;
    let saved: Saved = {
        let reader = &mut serde_json::Deserializer::from_slice(&bytes);
        serde_path_to_error::deserialize(reader).map_err(|error| form(error.to_string()))?
    };
    if saved.v != VERSION {
        return Err(form(format!(
            "it has version {}, and this program knows {VERSION}",
            saved.v
        )));
    }
    let mut inodes = BTreeMap::from([(ROOT, ROOT)]);
    let mut pending = Vec::new();
    for node in &saved.nodes {
        let broken = |error| SavedError::Node {
            path: path.to_owned(),
            node: node.node,
            error,
        };
        let decode = |bytes: &Bytes| bytes.bytes().map_err(&form);
        let caller = Caller {
            uid: node.uid,
            gid: node.gid,
            now: Timestamp(node.mtime),
        };
        let mut ino = None;
        if node.node == ROOT {
            ino = Some(ROOT);
        }
        for (dir, name) in &node.names {
            let name = decode(name)?;
            let is_name =
                !name.is_empty() && name.len() <= crate::store::NAME_MAX && !name.contains(&b'/');
            if !is_name || name == b"." || name == b".." {
                return Err(form(format!(
                    "node {} has a name that cannot be",
                    node.node
                )));
            }
            let dir = *inodes.get(dir).ok_or_else(|| {
                form(format!(
                    "node {} is in directory {dir}, which is not there before it",
                    node.node
                ))
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
        for (name, value) in &node.xattrs {
            let value = decode(value)?;
            store
                .setxattr(&caller, ino, name.as_bytes(), &value, XattrMode::Set)
                .map_err(broken)?;
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
    // What was put into a directory has changed its times since.
    for node in saved
        .nodes
        .iter()
        .filter(|node| Kind::from_mode(node.kind) == Some(Kind::Directory))
    {
        let Some(ino) = inodes.get(&node.node) else {
            continue;
        };
        let caller = Caller {
            uid: node.uid,
            gid: node.gid,
            now: Timestamp(node.mtime),
        };
        let times = Change {
            mtime: Some(Timestamp(node.mtime)),
            ..Change::default()
        };
        store
            .setattr(&caller, *ino, &times)
            .map_err(|error| SavedError::Node {
                path: path.to_owned(),
                node: node.node,
                error,
            })?;
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
) -> Result<crate::store::Result<Attr>, SavedError> {
    let target = node
        .target
        .as_ref()
        .map(decode)
        .transpose()?
        .unwrap_or_default();
    let new = NewNode {
        kind: Kind::from_mode(node.kind).unwrap_or(Kind::File),
        permissions: node.permissions,
        rdev: node.rdev,
        target: &target,
    };
    Ok(store.create(caller, dir, name, &new))
}
