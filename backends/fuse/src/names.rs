//! Handlers of requests for names: lookup, create, link, rename, unlink, and the kernel's forgets.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, RenameFlags, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, Request,
};

use rustix::fs::OFlags;

use crate::convert::{check_name, failed, file_attr, missing, new_node};
use crate::counters::{Opcode, Span};
use crate::front_end::{FrontEnd, MountState};
use crate::inodes::ForgetOutcome;
use crate::policy::attr_ttl;
use crate::store::{Attr, Errno, Ino, Kind, NewNode, RenameMode, Result, StoreError, TARGET_MAX};

/// A mount never reuses an inode number, so one generation is enough.
pub(super) const GENERATION: Generation = Generation(0);

impl FrontEnd {
    /// Creates a node and replies with its entry.
    fn create_node(
        &self,
        opcode: Opcode,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        node: Result<OwnedNode>,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (self.caller(req), name.to_owned());
        self.change(opcode, req, parent, move |mounted, mut span| {
            let _counting = mounted.counting();
            let result = node.and_then(|node| {
                check_name(&name)?;
                let node = node.as_new();
                span.store(|| mounted.store.create(&caller, parent.0, name.as_bytes(), &node))
            });
            reply_entry(mounted, &mut span, result, reply);
        });
    }

    pub(super) fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut span = self.mounted.start(Opcode::Lookup);
        let _counting = self.mounted.counting();
        let result = check_name(name).and_then(|()| span.store(|| self.store().lookup(parent.0, name.as_bytes())));
        match result {
            // A reply of inode 0 with a lifetime makes the kernel cache the missing name.
            Err(error)
                if error.errno == Errno::NOENT
                    && !self.policy.ttl.is_zero()
                    && self.store().keeps_missing(name.as_bytes()) =>
            {
                span.failed();
                let nothing = file_attr(&missing(req));
                reply.entry(&self.policy.ttl, &nothing, GENERATION);
            }
            result => reply_entry(&self.mounted, &mut span, result, reply),
        }
    }

    pub(super) fn forget(&self, ino: INodeNo, lookups: u64) {
        // A forget has no reply, so the panic of `Command::PanicNext` must not hit it.
        let mut span = self.mounted.recorder.start(Opcode::Forget);
        let left = self.mounted.inodes.forgotten(ino.0, lookups);
        if left != ForgetOutcome::References {
            self.mounted.lost_writes.forget(ino.0);
            self.mounted.cookies.forget(ino.0);
        }
        match left {
            ForgetOutcome::References => {}
            ForgetOutcome::Name => span.store(|| self.mounted.forget(ino.0)),
            ForgetOutcome::Orphan => span.store(|| self.mounted.reclaim(ino.0)),
        }
    }

    pub(super) fn readlink(&self, ino: INodeNo, reply: ReplyData) {
        let mut span = self.mounted.start(Opcode::Readlink);
        match span.store(|| self.store().readlink(ino.0)) {
            Ok(target) => {
                span.handled();
                reply.data(&target);
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    pub(super) fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, rdev: u32, reply: ReplyEntry) {
        let node = match Kind::from_mode(mode) {
            None | Some(Kind::Directory | Kind::Symlink) => Err(Errno::INVAL.into()),
            Some(kind) => Ok(OwnedNode { rdev, ..OwnedNode::new(kind, mode) }),
        };
        self.create_node(Opcode::Mknod, req, parent, name, node, reply);
    }

    pub(super) fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, reply: ReplyEntry) {
        let node = OwnedNode::new(Kind::Directory, mode);
        self.create_node(Opcode::Mkdir, req, parent, name, Ok(node), reply);
    }

    pub(super) fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (self.caller(req), name.to_owned());
        self.change(Opcode::Unlink, req, parent, move |mounted, mut span| {
            let store = &mounted.store;
            let result =
                check_name(&name).and_then(|()| span.store(|| store.unlink(&caller, parent.0, name.as_bytes())));
            reply_removed(mounted, span, result, reply);
        });
    }

    pub(super) fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, name) = (self.caller(req), name.to_owned());
        self.change(Opcode::Rmdir, req, parent, move |mounted, mut span| {
            let store = &mounted.store;
            let result =
                check_name(&name).and_then(|()| span.store(|| store.rmdir(&caller, parent.0, name.as_bytes())));
            reply_removed(mounted, span, result, reply);
        });
    }

    pub(super) fn symlink(&self, req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        let node = if target.len() > TARGET_MAX {
            Err(Errno::NAMETOOLONG.into())
        } else {
            Ok(OwnedNode { target: target.to_vec(), ..OwnedNode::new(Kind::Symlink, 0o777) })
        };
        self.create_node(Opcode::Symlink, req, parent, name, node, reply);
    }

    pub(super) fn rename(
        &self,
        req: &Request,
        (parent, name): (INodeNo, &OsStr),
        (newparent, newname): (INodeNo, &OsStr),
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            Ok(RenameMode::Replace)
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Ok(RenameMode::NoReplace)
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Ok(RenameMode::Exchange)
        } else if flags == RenameFlags::RENAME_WHITEOUT {
            Ok(RenameMode::Whiteout)
        } else if flags == RenameFlags::RENAME_WHITEOUT | RenameFlags::RENAME_NOREPLACE {
            Ok(RenameMode::WhiteoutNoReplace)
        } else {
            Err(StoreError::from(Errno::INVAL))
        };
        let (caller, name, newname) = (self.caller(req), name.to_owned(), newname.to_owned());
        self.change(Opcode::Rename, req, parent, move |mounted, mut span| {
            let result = mode.and_then(|mode| {
                check_name(&name)?;
                check_name(&newname)?;
                let from = (parent.0, name.as_bytes());
                let to = (newparent.0, newname.as_bytes());
                span.store(|| mounted.store.rename(&caller, from, to, mode))
            });
            reply_removed(mounted, span, result, reply);
        });
    }

    pub(super) fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let (caller, newname) = (self.caller(req), newname.to_owned());
        self.change(Opcode::Link, req, newparent, move |mounted, mut span| {
            let _counting = mounted.counting();
            let store = &mounted.store;
            let result = check_name(&newname)
                .and_then(|()| span.store(|| store.link(&caller, ino.0, newparent.0, newname.as_bytes())));
            reply_entry(mounted, &mut span, result, reply);
        });
    }

    pub(super) fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        (mode, flags): (u32, i32),
        reply: ReplyCreate,
    ) {
        let (policy, caller, name) = (self.policy, self.caller(req), name.to_owned());
        self.change(Opcode::Create, req, parent, move |mounted, mut span| {
            let _counting = mounted.counting();
            let node = new_node(Kind::File, mode, 0);
            let store = &mounted.store;
            let made = check_name(&name).and_then(|()| {
                span.store(|| {
                    let name = name.as_bytes();
                    let attr = store.create(&caller, parent.0, name, &node);
                    let is_there = || store.lookup(parent.0, name).is_ok();
                    let attr = attr.map_err(|error| not_created(error, flags, is_there))?;
                    let files = policy.open_files(&**store);
                    let handle = files.map_or(Ok(0), |files| files.open(attr.ino, true))?;
                    Ok((attr, FileHandle(handle)))
                })
            });
            match made {
                Ok((attr, handle)) => {
                    mounted.inodes.looked_up(attr.ino);
                    let flags =
                        if policy.direct_io { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::FOPEN_KEEP_CACHE };
                    let attr = mounted.file_attr(&attr);
                    span.handled();
                    reply.created(&policy.ttl, &attr, GENERATION, handle, flags);
                }
                Err(error) => reply.error(failed(&mut span, error)),
            }
        });
    }
}

/// The error of an `open` that has made no file. If another host has made one since the kernel looked the name up, the
/// kernel has to open that one, unless the program insists on a new file: `ESTALE` makes it look the name up again.
fn not_created(error: StoreError, flags: i32, is_there: impl FnOnce() -> bool) -> StoreError {
    let is_exclusive = OFlags::from_bits_retain(flags.cast_unsigned()).contains(OFlags::EXCL);
    if error.errno == Errno::EXIST && !is_exclusive && is_there() { Errno::STALE.into() } else { error }
}

/// A node to be created, possibly on another thread than the one that received the request.
struct OwnedNode {
    kind: Kind,
    mode: u32,
    rdev: u32,
    target: Vec<u8>,
}

impl OwnedNode {
    fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, rdev: 0, target: Vec::new() }
    }

    fn as_new(&self) -> NewNode<'_> {
        NewNode { target: &self.target, ..new_node(self.kind, self.mode, self.rdev) }
    }
}

/// Replies with an entry that the kernel references until it forgets it.
fn reply_entry(mounted: &MountState, span: &mut Span<'_>, result: Result<Attr>, reply: ReplyEntry) {
    match result {
        Ok(attr) => {
            mounted.inodes.looked_up(attr.ino);
            let ttl = if attr.nlink > 0 {
                attr_ttl(&*mounted.store, attr.ino)
            } else {
                // The store generates an unlisted entry at each lookup, so the kernel must not cache it. As an
                // orphan it is reclaimed at the kernel's forget; the kernel references it now.
                let _ = mounted.inodes.orphaned(attr.ino);
                Duration::ZERO
            };
            span.handled();
            reply.entry(&ttl, &mounted.file_attr(&attr), GENERATION);
        }
        Err(error) => reply.error(failed(span, error)),
    }
}

/// Replies, then reclaims an inode without a name that the kernel does not reference.
fn reply_removed(mounted: &MountState, mut span: Span<'_>, result: Result<Option<Ino>>, reply: ReplyEmpty) {
    match result {
        Ok(orphan) => {
            span.handled();
            reply.ok();
            if let Some(ino) = orphan
                && mounted.inodes.orphaned(ino)
            {
                mounted.reclaim(ino);
            }
        }
        Err(error) => reply.error(failed(&mut span, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_finds_the_file_that_another_host_made_after_the_lookup() {
        let plain = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let told = |errno: Errno, flags: OFlags, is_there: bool| {
            not_created(errno.into(), flags.bits().cast_signed(), || is_there).errno
        };
        assert_eq!(told(Errno::EXIST, plain, true), Errno::STALE);
        assert_eq!(told(Errno::EXIST, plain | OFlags::EXCL, true), Errno::EXIST);
        // A name that is reserved.
        assert_eq!(told(Errno::EXIST, plain, false), Errno::EXIST);
        assert_eq!(told(Errno::NOSPC, plain, true), Errno::NOSPC);
    }
}
