//! Conversions between FUSE types and store types.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, ReplyXattr, Request};
use rustix::fs::FallocateFlags;

use crate::counters::Span;
use crate::store::{Allocation, Attr, Caller, Errno, Kind, NAME_MAX, NewNode, Result, StoreError, Timestamp};

/// Counts and logs a failure and converts it to the kernel's error number.
pub(super) fn failed(span: &mut Span<'_>, error: StoreError) -> fuser::Errno {
    span.failed();
    if let Some(reason) = &error.reason {
        tracing::error!(errno = %error.errno, "{reason}");
    }
    fuser::Errno::from_i32(error.errno.raw_os_error())
}

pub(super) fn caller(req: &Request) -> Caller {
    Caller { uid: req.uid(), gid: req.gid(), now: Timestamp::now() }
}

pub(super) fn check_name(name: &OsStr) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(())
}

/// Refuses `system.*`: access control lists are not enforced, so they must not be stored.
/// Accepts the names of extended attributes that ext4 accepts, and fails with its errors: `EOPNOTSUPP` for a namespace
/// other than `user`, `trusted` and `security`, and `EINVAL` for a namespace alone.
pub(super) fn check_xattr_name(name: &OsStr) -> Result<()> {
    let in_namespace =
        [&b"user."[..], b"trusted.", b"security."].into_iter().find_map(|prefix| name.as_bytes().strip_prefix(prefix));
    match in_namespace {
        None => Err(Errno::OPNOTSUPP.into()),
        Some([]) => Err(Errno::INVAL.into()),
        Some(_) => Ok(()),
    }
}

pub(super) fn permission_bits(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(super) fn new_node(kind: Kind, mode: u32, rdev: u32) -> NewNode<'static> {
    NewNode { kind, permissions: permission_bits(mode), rdev, target: &[] }
}

pub(super) fn allocate(mode: i32) -> Result<Allocation> {
    let flags = FallocateFlags::from_bits(mode as u32).ok_or(Errno::OPNOTSUPP)?;
    let keep_size = flags.contains(FallocateFlags::KEEP_SIZE);
    let rest = flags - FallocateFlags::KEEP_SIZE;
    if rest.is_empty() {
        Ok(Allocation::Reserve { keep_size })
    } else if rest == FallocateFlags::PUNCH_HOLE && keep_size {
        Ok(Allocation::PunchHole)
    } else if rest == FallocateFlags::ZERO_RANGE {
        Ok(Allocation::Zero { keep_size })
    } else {
        Err(Errno::OPNOTSUPP.into())
    }
}

pub(super) fn reply_xattr(span: &mut Span<'_>, result: Result<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match result {
        Ok(data) if size == 0 => {
            span.handled();
            reply.size(data.len() as u32);
        }
        Ok(data) if data.len() <= size as usize => {
            span.handled();
            reply.data(&data);
        }
        Ok(_) => reply.error(failed(span, Errno::RANGE.into())),
        Err(error) => reply.error(failed(span, error)),
    }
}

/// Corrects a time before 1970: fuser 0.18 subtracts its nanoseconds instead of adding them.
pub(super) fn whole_time(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            let nanos = seconds.saturating_mul(-1_000_000_000);
            Timestamp(nanos.saturating_add(i64::from(before.subsec_nanos())))
        }
    }
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: file_type(attr.kind),
        perm: attr.permissions,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// Attributes of inode 0, the reply for a missing name.
pub(super) fn missing(req: &Request) -> Attr {
    Attr {
        ino: 0,
        kind: Kind::File,
        permissions: 0,
        nlink: 0,
        uid: req.uid(),
        gid: req.gid(),
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: Timestamp(0),
        mtime: Timestamp(0),
        ctime: Timestamp(0),
        btime: Timestamp(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_has_a_namespace_and_a_name_in_it() {
        for (name, expected) in [
            ("user.a", Ok(())),
            ("trusted.overlay.opaque", Ok(())),
            ("security.capability", Ok(())),
            ("user.", Err(Errno::INVAL)),
            ("security.", Err(Errno::INVAL)),
            ("user", Err(Errno::OPNOTSUPP)),
            ("foo.bar", Err(Errno::OPNOTSUPP)),
            ("system.posix_acl_access", Err(Errno::OPNOTSUPP)),
        ] {
            assert_eq!(check_xattr_name(OsStr::new(name)).map_err(|error| error.errno), expected, "{name}");
        }
    }
}
