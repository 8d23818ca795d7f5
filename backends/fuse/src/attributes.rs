//! Handlers of requests for attributes: `stat`, extended attributes, `statfs`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::SystemTime;

use fuser::{AccessFlags, FileHandle, INodeNo, ReplyAttr, ReplyEmpty, ReplyStatfs, ReplyXattr, Request, TimeOrNow};

use crate::convert::{check_xattr_name, failed, permission_bits, reply_xattr, whole_time};
use crate::counters::{Opcode, Span};
use crate::front_end::{FrontEnd, MountState, reply_empty};
use crate::policy::attr_ttl;
use crate::store::{
    Attr, Caller, Change, Errno, Kind, NAME_MAX, ROOT, Result, SlowCall, Store, StoreError, XATTR_VALUE_MAX, XattrMode,
};

/// The attribute of a mount's root that holds the number of bytes which programs stored through memory maps, or the
/// writeback cache, and which the store refused since the mount began.
pub const LOST_BYTES: &str = "user.ctxbench.lost_bytes";

/// The attribute of a mount's root by which a store that keeps its files in memory saves them. Its value is empty, or the
/// reason why they could not be saved.
pub const UNSAVED: &str = "user.ctx.unsaved";

/// The label of SELinux, for which `ls -l` asks at every file, unless the file system has none.
const LABEL: &[u8] = b"security.selinux";

/// The prefix of attributes that may be commands to a store, which may take long.
const ORDERS: &[u8] = b"user.ctx.";

fn reply_attr(mounted: &MountState, mut span: Span<'_>, result: Result<Attr>, reply: ReplyAttr) {
    match result {
        Ok(attr) => {
            span.handled();
            let ttl = attr_ttl(&*mounted.store, attr.ino);
            reply.attr(&ttl, &mounted.file_attr(&attr));
        }
        Err(error) => reply.error(failed(&mut span, error)),
    }
}

/// The error of a missing attribute. While no file has any, `EOPNOTSUPP` for [`LABEL`]: then `ls` asks once for all files.
fn without_label(error: StoreError, name: &[u8], store: &dyn Store) -> StoreError {
    if error.errno == Errno::NODATA && name == LABEL && !store.may_have_xattrs() {
        Errno::OPNOTSUPP.into()
    } else {
        error
    }
}

/// Whether a change of attributes clears set-user-ID and set-group-ID. With FUSE_HANDLE_KILLPRIV_V2 the daemon clears the
/// bits: on every change of owner, and on truncation by a user other than root. A change of nothing is a change of owner, too:
/// of `chown` with the present owner by the numbers -1, the kernel sends no owner.
fn clears_privileges(owner: bool, size: bool, other: bool, is_root: bool) -> bool {
    owner || if size { !is_root } else { !other }
}

/// The attribute with a program's capabilities.
const CAPABILITIES: &[u8] = b"security.capability";

/// Refuses to clear the privileges of a file for a caller that may neither change nor write it. The kernel sends the same
/// request for a write and for `chown` with -1 and -1, and checks no permission for the latter.
fn may_clear_privileges(
    attr: &Attr,
    caller: &Caller,
    is_root: bool,
    is_in_group: impl FnOnce(u32) -> bool,
) -> Result<()> {
    let is_writer = || attr.permissions & 0o002 != 0 || (attr.permissions & 0o020 != 0 && is_in_group(attr.gid));
    if is_root || caller.uid == attr.uid || is_writer() { Ok(()) } else { Err(Errno::PERM.into()) }
}

impl FrontEnd {
    /// Whether getting or setting an attribute is a command to the store that may take long.
    fn is_slow_order(&self, ino: INodeNo, name: &OsStr) -> bool {
        name.as_bytes().starts_with(ORDERS) && self.store().is_slow(ino.0, SlowCall::Xattr)
    }

    pub(super) fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        // The kernel sends a file handle only for a read past the size it knows, or a seek to the end;
        // `stat` and `fstat` send none.
        let is_slow = fh.is_some() && self.store().is_slow(ino.0, SlowCall::SizeForRead);
        let answer = move |mounted: &MountState, mut span: Span<'_>| {
            let store = &mounted.store;
            let result = span.store(|| match fh {
                Some(handle) => store.getattr_handle(handle.0, ino.0),
                None => store.getattr(ino.0),
            });
            reply_attr(mounted, span, result, reply);
        };
        self.answer(Opcode::Getattr, req, is_slow, answer);
    }

    #[expect(clippy::too_many_arguments, reason = "the request has so many")]
    pub(super) fn setattr(
        &self,
        req: &Request,
        (ino, fh): (INodeNo, Option<FileHandle>),
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        reply: ReplyAttr,
    ) {
        if self.mounted.watch_events.are_from(req.pid()) {
            // Only the kernel's event is wanted.
            return self.getattr(req, ino, None, reply);
        }
        let (policy, mut caller, pid) = (self.policy, self.caller(req), req.pid());
        let is_unprivileged = req.uid() != 0;
        // The kernel sends a ctime only with its writeback cache: the change happened before this request.
        if let Some(ctime) = ctime {
            caller.now = whole_time(ctime);
        }
        let time = |time: TimeOrNow| match time {
            TimeOrNow::Now => caller.now,
            TimeOrNow::SpecificTime(time) => whole_time(time),
        };
        let change = Change {
            permissions: mode.map(permission_bits),
            uid: uid.map(|uid| self.mounted.stored_uid(uid)),
            gid: gid.map(|gid| self.mounted.stored_gid(gid)),
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
            drop_privileges: clears_privileges(
                uid.is_some() || gid.is_some(),
                size.is_some(),
                mode.is_some() || atime.is_some() || mtime.is_some(),
                !is_unprivileged,
            ),
        };
        let is_chown_of_nothing = change == Change::DROP_PRIVILEGES;
        let answer = move |mounted: &MountState, mut span: Span<'_>| {
            let store = &mounted.store;
            let result = span.store(|| {
                if is_chown_of_nothing {
                    let attr = store.getattr(ino.0)?;
                    if attr.kind != Kind::Directory && attr.permissions & 0o6000 != 0 {
                        let is_in_group = |gid| mounted.may_be_in_group(&caller, pid, gid);
                        may_clear_privileges(&attr, &caller, !is_unprivileged, is_in_group)?;
                    }
                }
                match (fh, policy.open_files(&**store)) {
                    (Some(handle), Some(files)) => files.setattr_handle(handle.0, &caller, ino.0, &change),
                    _ => {
                        let mut change = change;
                        if is_unprivileged && change.drop_privileges && change.permissions.is_none() {
                            change.permissions = mounted.without_group_bit(&caller, pid, &store.getattr(ino.0)?);
                        }
                        store.setattr(&caller, ino.0, &change)
                    }
                }
            });
            reply_attr(mounted, span, result, reply);
        };
        if size.is_some() && fh.is_none() && self.store().is_slow(ino.0, SlowCall::Resize) {
            self.answer(Opcode::Setattr, req, true, answer);
        } else if size.is_some_and(|size| size > 0 || fh.is_some()) {
            self.change_content(Opcode::Setattr, req, ino, answer);
        } else {
            self.change(Opcode::Setattr, req, ino, answer);
        }
    }

    pub(super) fn statfs(&self, reply: ReplyStatfs) {
        let mut span = self.mounted.start(Opcode::Statfs);
        match span.store(|| self.store().statfs()) {
            Ok(fs) => {
                span.handled();
                reply.statfs(
                    fs.blocks,
                    fs.blocks_free,
                    fs.blocks_available,
                    fs.inodes,
                    fs.inodes_free,
                    fs.block_bytes,
                    NAME_MAX as u32,
                    fs.block_bytes,
                );
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    pub(super) fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        reply: ReplyEmpty,
    ) {
        const CREATE: i32 = 1;
        const REPLACE: i32 = 2;
        let mode = match flags {
            0 => Ok(XattrMode::Set),
            CREATE => Ok(XattrMode::Create),
            REPLACE => Ok(XattrMode::Replace),
            _ => Err(StoreError::from(Errno::INVAL)),
        };
        let (caller, name, value) = (self.caller(req), name.to_owned(), value.to_vec());
        let is_slow = self.is_slow_order(ino, &name);
        let answer = move |mounted: &MountState, mut span: Span<'_>| {
            let result = mode.and_then(|mode| {
                check_xattr_name(&name)?;
                if value.len() > XATTR_VALUE_MAX {
                    return Err(Errno::TOOBIG.into());
                }
                let store = &mounted.store;
                span.store(|| store.setxattr(&caller, ino.0, name.as_bytes(), &value, mode))
            });
            reply_empty(&mut span, result, reply);
        };
        if is_slow {
            self.answer(Opcode::Setxattr, req, true, answer);
        } else {
            self.change(Opcode::Setxattr, req, ino, answer);
        }
    }

    pub(super) fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        let is_slow = self.is_slow_order(ino, &name);
        self.answer(Opcode::Getxattr, req, is_slow, move |mounted, mut span| {
            if ino.0 == ROOT && name.as_bytes() == LOST_BYTES.as_bytes() {
                let lost = mounted.lost_writes.bytes().to_string();
                return reply_xattr(&mut span, Ok(lost.into_bytes()), size, reply);
            }
            let result = check_xattr_name(&name)
                .and_then(|()| span.store(|| mounted.store.getxattr(ino.0, name.as_bytes())))
                .map_err(|error| without_label(error, name.as_bytes(), &*mounted.store));
            reply_xattr(&mut span, result, size, reply);
        });
    }

    pub(super) fn listxattr(&self, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut span = self.mounted.start(Opcode::Listxattr);
        let result = span.store(|| self.store().listxattr(ino.0)).map(|names| {
            let mut list = Vec::new();
            for name in names {
                list.extend_from_slice(&name);
                list.push(0);
            }
            list
        });
        reply_xattr(&mut span, result, size, reply);
    }

    /// The kernel sends this only if it does not check permissions itself: for root, which may do everything except run
    /// a file without any execute bit.
    pub(super) fn access(&self, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let mut span = self.mounted.start(Opcode::Access);
        let runs = mask.contains(AccessFlags::X_OK);
        let result = match runs.then(|| span.store(|| self.store().getattr(ino.0))) {
            None => Ok(()),
            Some(Ok(attr)) if attr.kind == Kind::File && attr.permissions & 0o111 == 0 => Err(Errno::ACCESS.into()),
            Some(found) => found.map(|_| ()),
        };
        reply_empty(&mut span, result, reply);
    }

    pub(super) fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (caller, pid, name, is_root) = (self.caller(req), req.pid(), name.to_owned(), req.uid() == 0);
        self.change(Opcode::Removexattr, req, ino, move |mounted, mut span| {
            let store = &mounted.store;
            let remove = || {
                // The kernel asks for it in the name of a caller, before a write or a change of owner.
                if name.as_bytes() == CAPABILITIES && !is_root {
                    let is_in_group = |gid| mounted.may_be_in_group(&caller, pid, gid);
                    may_clear_privileges(&store.getattr(ino.0)?, &caller, is_root, is_in_group)?;
                }
                store.removexattr(&caller, ino.0, name.as_bytes())
            };
            let result = check_xattr_name(&name).and_then(|()| span.store(remove));
            reply_empty(&mut span, result, reply);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use crate::store::Timestamp;

    #[test]
    fn a_change_of_owner_even_to_the_same_one_clears_privileges() {
        let cleared = |owner, size, other| clears_privileges(owner, size, other, true);
        assert!(cleared(true, false, false) && cleared(true, true, true));
        assert!(cleared(false, false, false), "chown with -1 and -1");
        assert!(!cleared(false, true, false) && !cleared(false, false, true));
        assert!(clears_privileges(false, true, false, false));
        assert!(!clears_privileges(false, false, true, false));
    }

    #[test]
    fn only_root_the_owner_and_a_writer_clear_the_privileges_of_a_file() {
        let caller = |uid| Caller { uid, gid: uid, now: Timestamp(0) };
        let store = MemoryStore::new(&caller(1));
        let mut attr = store.getattr(ROOT).unwrap();
        for (permissions, uid, is_root, may) in [
            (0o6755, 2, false, false),
            (0o6755, 1, false, true),
            (0o6755, 0, true, true),
            (0o6775, 2, false, false),
            (0o6775, 3, false, true),
            (0o6757, 2, false, true),
            (0o6555, 2, false, false),
        ] {
            attr.permissions = permissions;
            let cleared = may_clear_privileges(&attr, &caller(uid), is_root, |gid| gid == attr.gid && uid == 3);
            assert_eq!(
                cleared.map_err(|error| error.errno),
                if may { Ok(()) } else { Err(Errno::PERM) },
                "{permissions:o} {uid}"
            );
        }
    }

    #[test]
    fn labels_are_unsupported_only_while_no_file_has_an_attribute() {
        let owner = Caller { uid: 0, gid: 0, now: Timestamp(0) };
        let store = MemoryStore::new(&owner);
        let told = |name: &[u8]| {
            let error = store.getxattr(ROOT, name).unwrap_err();
            without_label(error, name, &store).errno
        };
        assert_eq!(told(LABEL), Errno::OPNOTSUPP);
        assert_eq!(told(b"security.capability"), Errno::NODATA);
        let (set, capability) = (XattrMode::Set, b"security.capability");
        store.setxattr(&owner, ROOT, capability, b"", set).unwrap();
        assert_eq!(told(LABEL), Errno::NODATA);
    }
}
