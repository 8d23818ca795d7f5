//! Inodes as callers see and change them: kinds, attributes, times.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Ino;

/// Nanoseconds since the Unix epoch; covers the years 1677 to 2262, saturating outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The current wall-clock time.
    pub fn now() -> Self {
        SystemTime::now().into()
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let nanos = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
            Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |nanos| -nanos),
        };
        Self(nanos)
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = std::time::Duration::from_nanos(time.0.unsigned_abs());
        if time.0 < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    }
}

/// The type of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix domain socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// The file type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::Fifo => 0o010_000,
            Kind::CharDevice => 0o020_000,
            Kind::Directory => 0o040_000,
            Kind::BlockDevice => 0o060_000,
            Kind::File => 0o100_000,
            Kind::Symlink => 0o120_000,
            Kind::Socket => 0o140_000,
        }
    }

    /// The kind in an `st_mode`, or `None` for type bits that Linux does not know.
    pub fn from_mode(mode: u32) -> Option<Self> {
        [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice]
            .into_iter()
            .find(|kind| kind.mode_bits() == mode & 0o170_000)
    }
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode number.
    pub ino: Ino,
    /// The inode's type.
    pub kind: Kind,
    /// Permission bits including set-user-ID, set-group-ID and sticky: `0..=0o7777`.
    pub permissions: u16,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, else 0.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated size in units of 512 bytes; holes are not counted.
    pub blocks: u64,
    /// Last access; only `setattr` changes it, as on a mount with `noatime`.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

impl Attr {
    /// The attributes of an empty node that `caller` makes, with one name.
    pub fn new(ino: Ino, kind: Kind, permissions: u16, caller: &Caller) -> Self {
        Self {
            ino,
            kind,
            permissions,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: caller.now,
            mtime: caller.now,
            ctime: caller.now,
            btime: caller.now,
        }
    }
}

/// The process that requested an operation, and the operation's time.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Caller {
    /// Owner of a created node.
    pub uid: u32,
    /// Group of a created node, unless a set-group-ID parent directory passes its own on.
    pub gid: u32,
    /// The timestamp that the operation sets.
    pub now: Timestamp,
}

/// A node to be created.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct NewNode<'a> {
    /// The node's type.
    pub kind: Kind,
    /// Permission bits with the umask already applied: `0..=0o7777`.
    pub permissions: u16,
    /// Device number for device nodes, else 0.
    pub rdev: u32,
    /// The target of a symbolic link, else empty.
    #[serde(with = "serde_bytes")]
    pub target: &'a [u8],
}

impl NewNode<'static> {
    /// The mark of a removed name in the upper layer of an overlay: a character device 0/0 without permissions.
    pub const WHITEOUT: Self = Self { kind: Kind::CharDevice, permissions: 0, rdev: 0, target: &[] };
}

impl NewNode<'_> {
    /// The group and permissions of a new node.
    ///
    /// A set-group-ID directory passes its group on, and the bit itself to subdirectories
    /// (`inode_init_owner` in Linux).
    pub fn inherit(&self, parent: &Attr, caller: &Caller) -> (u32, u16) {
        const SET_GROUP_ID: u16 = 0o2000;
        if parent.permissions & SET_GROUP_ID == 0 {
            (caller.gid, self.permissions)
        } else if self.kind == Kind::Directory {
            (parent.gid, self.permissions | SET_GROUP_ID)
        } else {
            (parent.gid, self.permissions)
        }
    }
}

/// A change of attributes; `None` leaves a field as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Change {
    /// New permission bits.
    pub permissions: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size: truncates, or extends by a hole. Stamps `mtime`.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<Timestamp>,
    /// New modification time.
    pub mtime: Option<Timestamp>,
    /// Clear set-user-ID, and set-group-ID where the group may execute, as an unprivileged write does.
    pub drop_privileges: bool,
}

impl Change {
    /// The permissions after an unprivileged write.
    pub const DROP_PRIVILEGES: Self =
        Self { permissions: None, uid: None, gid: None, size: None, atime: None, mtime: None, drop_privileges: true };

    /// Applies everything but `size` to `attr`, and stamps `ctime`.
    pub fn apply(&self, attr: &mut Attr, now: Timestamp) {
        if let Some(permissions) = self.permissions {
            attr.permissions = permissions;
        }
        attr.uid = self.uid.unwrap_or(attr.uid);
        attr.gid = self.gid.unwrap_or(attr.gid);
        if self.drop_privileges && attr.kind != Kind::Directory {
            attr.permissions &= !0o4000;
            if attr.permissions & 0o010 != 0 {
                attr.permissions &= !0o2000;
            }
        }
        if self.size.is_some() {
            attr.mtime = now;
        }
        attr.atime = self.atime.unwrap_or(attr.atime);
        attr.mtime = self.mtime.unwrap_or(attr.mtime);
        attr.ctime = now;
    }
}
