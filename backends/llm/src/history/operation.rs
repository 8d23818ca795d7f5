//! One operation of a log: its stored form, its effect on the reference, and its text in a prompt.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fuse::memory::MemoryStore;
use fuse::store::{Allocation, Attr, Caller, Change, Ino, Kind, NewNode, RenameMode, Result, Store, XattrMode};
use serde::{Deserialize, Serialize};

use super::OperationResult;
use crate::names::{Names, shown};

/// An operation as a log stores it. The data of a write has a column of its own. A change of this type, or of one
/// in it, needs a new `VERSION` of the log.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Operation {
    SetAttr {
        ino: Ino,
        change: Change,
    },
    Create {
        parent: Ino,
        name: Vec<u8>,
        kind: Kind,
        permissions: u16,
        rdev: u32,
        target: Vec<u8>,
    },
    Link {
        ino: Ino,
        parent: Ino,
        name: Vec<u8>,
    },
    Unlink {
        parent: Ino,
        name: Vec<u8>,
    },
    Rmdir {
        parent: Ino,
        name: Vec<u8>,
    },
    Rename {
        from: Ino,
        from_name: Vec<u8>,
        to: Ino,
        to_name: Vec<u8>,
        mode: RenameMode,
    },
    Write {
        ino: Ino,
        offset: u64,
        #[serde(skip)]
        data: Vec<u8>,
    },
    Allocate {
        ino: Ino,
        how: Allocation,
        offset: u64,
        length: u64,
    },
    SetXattr {
        ino: Ino,
        name: Vec<u8>,
        value: Vec<u8>,
        mode: XattrMode,
    },
    RemoveXattr {
        ino: Ino,
        name: Vec<u8>,
    },
}

impl Operation {
    /// Applies the operation to the reference and updates `names`.
    pub(super) fn apply(&self, store: &MemoryStore, caller: &Caller, names: &mut Names) -> Result<OperationResult> {
        let of = |attr: Attr| OperationResult { attr: Some(attr), ..OperationResult::default() };
        let orphaned = |orphan: Option<Ino>| OperationResult { orphan, ..OperationResult::default() };
        let nothing = |()| OperationResult::default();
        match self {
            Operation::SetAttr { ino, change } => store.setattr(caller, *ino, change).map(of),
            Operation::Create { parent, name, kind, permissions, rdev, target } => {
                let node = NewNode { kind: *kind, permissions: *permissions, rdev: *rdev, target };
                let attr = store.create(caller, *parent, name, &node)?;
                names.add(attr.ino, *parent, name);
                Ok(of(attr))
            }
            Operation::Link { ino, parent, name } => {
                let attr = store.link(caller, *ino, *parent, name)?;
                names.add(*ino, *parent, name);
                Ok(of(attr))
            }
            Operation::Unlink { parent, name } | Operation::Rmdir { parent, name } => {
                let ino = store.lookup(*parent, name)?.ino;
                let orphan = match self {
                    Operation::Unlink { .. } => store.unlink(caller, *parent, name)?,
                    _ => store.rmdir(caller, *parent, name)?,
                };
                names.remove(ino, *parent, name);
                Ok(orphaned(orphan))
            }
            Operation::Rename { from, from_name, to, to_name, mode } => {
                let source = store.lookup(*from, from_name)?.ino;
                let target = store.lookup(*to, to_name).ok().map(|attr| attr.ino);
                let (from, to) = ((*from, from_name.as_slice()), (*to, to_name.as_slice()));
                let orphan = store.rename(caller, from, to, *mode)?;
                let is_nothing = target == Some(source);
                if !is_nothing {
                    names.rename(source, target, from, to, *mode);
                }
                Ok(OperationResult { is_nothing, ..orphaned(orphan) })
            }
            Operation::Write { ino, offset, data } => store.write(caller, *ino, *offset, data).map(nothing),
            Operation::Allocate { ino, how, offset, length } => {
                store.fallocate(caller, *ino, *how, *offset, *length).map(nothing)
            }
            Operation::SetXattr { ino, name, value, mode } => {
                store.setxattr(caller, *ino, name, value, *mode).map(nothing)
            }
            Operation::RemoveXattr { ino, name } => store.removexattr(caller, *ino, name).map(nothing),
        }
    }

    /// The inode that the operation changes, or the directory whose names it changes.
    pub(super) fn inode(&self) -> Ino {
        match self {
            Operation::SetAttr { ino, .. }
            | Operation::Write { ino, .. }
            | Operation::Allocate { ino, .. }
            | Operation::SetXattr { ino, .. }
            | Operation::RemoveXattr { ino, .. } => *ino,
            Operation::Create { parent, .. }
            | Operation::Link { parent, .. }
            | Operation::Unlink { parent, .. }
            | Operation::Rmdir { parent, .. } => *parent,
            Operation::Rename { from, .. } => *from,
        }
    }

    /// The names that the operation gives.
    pub(super) fn new_names(&self) -> Vec<(Ino, &[u8])> {
        match self {
            Operation::Create { parent, name, .. } | Operation::Link { parent, name, .. } => {
                vec![(*parent, name)]
            }
            Operation::Rename { from, from_name, to, to_name, mode } => {
                let back = (*mode == RenameMode::Exchange).then_some((*from, &from_name[..]));
                back.into_iter().chain([(*to, &to_name[..])]).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether the operation may use the reserve of a full disk: it removes, truncates or renames something.
    pub(super) fn frees(&self) -> bool {
        match self {
            Operation::SetAttr { change, .. } => change.size.is_some(),
            Operation::Unlink { .. } | Operation::Rmdir { .. } | Operation::Rename { .. } => true,
            Operation::RemoveXattr { .. } => true,
            Operation::Allocate { how, .. } => matches!(how, Allocation::PunchHole),
            _ => false,
        }
    }

    /// Whether the operation changes content or names. A prompt omits all others.
    pub(super) fn is_told(&self) -> bool {
        match self {
            Operation::SetAttr { change, .. } => change.size.is_some(),
            Operation::SetXattr { .. } | Operation::RemoveXattr { .. } => false,
            _ => true,
        }
    }

    /// The line of a prompt for the operation, with the names before it.
    pub(super) fn describe(&self, names: &Names) -> String {
        let path = |ino: &Ino| names.shown_path(*ino).unwrap_or_else(|| "(a file without a name)".to_owned());
        let within = |parent: &Ino, name: &[u8]| names.shown_path_in(*parent, name);
        match self {
            Operation::SetAttr { ino, change } => {
                if let Some(size) = change.size {
                    return format!("truncate {} to {size} bytes", path(ino));
                }
                let mode = change.permissions.map_or_else(String::new, |mode| format!(" mode {mode:o}"));
                let owner = if change.uid.is_some() || change.gid.is_some() { " owner" } else { "" };
                format!("set attributes of {}{mode}{owner}", path(ino))
            }
            Operation::Create { parent, name, kind, target, .. } => {
                let path = within(parent, name);
                match kind {
                    Kind::Directory => format!("mkdir {path}"),
                    Kind::Symlink => format!("symlink {path} -> {}", shown(target)),
                    _ => format!("create {path}"),
                }
            }
            Operation::Link { ino, parent, name } => {
                format!("link {} as {}", path(ino), within(parent, name))
            }
            Operation::Unlink { parent, name } => format!("delete {}", within(parent, name)),
            Operation::Rmdir { parent, name } => format!("rmdir {}", within(parent, name)),
            Operation::Rename { from, from_name, to, to_name, mode } => {
                let verb = match mode {
                    RenameMode::Exchange => "exchange",
                    _ => "rename",
                };
                format!("{verb} {} to {}", within(from, from_name), within(to, to_name))
            }
            Operation::Write { ino, offset, data } => {
                let shown = match std::str::from_utf8(data) {
                    Ok(text) => serde_json::Value::from(text).to_string(),
                    Err(_) => format!("base64:{}", BASE64_STANDARD.encode(data)),
                };
                format!("write {} at {offset}: {shown}", path(ino))
            }
            Operation::Allocate { ino, how, offset, length } => {
                let (verb, keep_size) = match how {
                    Allocation::Reserve { keep_size } => ("reserve", *keep_size),
                    Allocation::PunchHole => ("zero", true),
                    Allocation::Zero { keep_size } => ("zero", *keep_size),
                };
                let size = if keep_size { ", and leave its size" } else { "" };
                format!("{verb} {length} bytes of {} at {offset}{size}", path(ino))
            }
            Operation::SetXattr { ino, name, .. } => {
                format!("set attribute {} of {}", shown(name), path(ino))
            }
            Operation::RemoveXattr { ino, name } => {
                format!("remove attribute {} of {}", shown(name), path(ino))
            }
        }
    }
}
