//! The [`Store`] trait: inodes, names and bytes, without any FUSE in it.
//!
//! The front end owns lookup counts, cache lifetimes, open flags and requests.
//! File locks are not here either: while one mount owns a store, the kernel's own locks are exact.

mod attr;
mod forward;
mod open_files;
#[cfg(feature = "rusqlite")]
mod sqlite_error;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

pub use attr::{Attr, Caller, Change, Kind, NewNode, Timestamp};
pub use open_files::OpenFiles;
pub use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// An inode number; [`ROOT`] is the root directory, 0 is never used.
pub type Ino = u64;

/// The inode number of the root directory, fixed by FUSE.
pub const ROOT: Ino = 1;

/// The longest name in bytes, as on ext4.
pub const NAME_MAX: usize = 255;

/// The longest symbolic link target in bytes (`PATH_MAX` without its NUL).
pub const TARGET_MAX: usize = 4095;

/// The longest extended attribute value in bytes, as the kernel limits it.
pub const XATTR_VALUE_MAX: usize = 65_536;

/// The first cookie a store may give a directory entry; smaller ones are the front end's `.` and `..`.
pub const FIRST_COOKIE: u64 = 3;

/// Why an operation failed: the error number for the caller, and an optional reason for the log.
#[derive(Debug, thiserror::Error)]
#[error("{errno}{}", reason.as_deref().map(|r| format!(": {r}")).unwrap_or_default())]
pub struct StoreError {
    /// The error number that the system call returns.
    pub errno: Errno,
    /// Detail for the log; never contains file content.
    pub reason: Option<String>,
}

impl StoreError {
    /// A failure of the store's own storage, returned to the caller as `errno`.
    pub fn storage(errno: Errno, reason: impl ToString) -> Self {
        Self { errno, reason: Some(reason.to_string()) }
    }

    /// The reason or, without one, the meaning of the error number.
    pub fn into_reason(self) -> String {
        self.reason.unwrap_or_else(|| self.errno.to_string())
    }
}

impl From<Errno> for StoreError {
    fn from(errno: Errno) -> Self {
        Self { errno, reason: None }
    }
}

/// The result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

/// One directory entry that [`Store::readdir`] emits.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The name, neither `.` nor `..`.
    pub name: &'a [u8],
    /// The inode it names.
    pub ino: Ino,
    /// The inode's type.
    pub kind: Kind,
    /// The position to continue from after this entry: unique in its directory, at least
    /// [`FIRST_COOKIE`], below 2⁶³, and within one listing stable for as long as the entry exists.
    pub cookie: u64,
    /// The inode's attributes, if the request wants them.
    pub attr: Option<Attr>,
}

/// How [`Store::rename`] handles an existing destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum RenameMode {
    /// Replace it.
    Replace,
    /// Fail with `EEXIST`.
    NoReplace,
    /// Swap the two names.
    Exchange,
    /// As `Replace`, and leave [`NewNode::WHITEOUT`] at the old name, all in one change.
    Whiteout,
    /// As `Whiteout`, and fail with `EEXIST` for an existing destination.
    WhiteoutNoReplace,
}

impl RenameMode {
    /// Whether an existing destination is replaced.
    pub fn replaces(self) -> bool {
        matches!(self, Self::Replace | Self::Whiteout)
    }

    /// Whether a whiteout stays at the old name.
    pub fn leaves_whiteout(self) -> bool {
        matches!(self, Self::Whiteout | Self::WhiteoutNoReplace)
    }
}

/// The operation of [`Store::fallocate`] on a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Allocation {
    /// Reserve space for writes; extends the file to the end of the range unless `keep_size`.
    Reserve {
        /// Keep the file's size.
        keep_size: bool,
    },
    /// Make the range a hole; never changes the size.
    PunchHole,
    /// Make the range read as zeros; extends the file unless `keep_size`.
    Zero {
        /// Keep the file's size.
        keep_size: bool,
    },
}

/// The target of [`Store::seek`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is not in a hole.
    Data,
    /// The next hole; the end of the file counts as one.
    Hole,
}

impl Seek {
    /// The result of [`Store::seek`] in a file of `size` bytes whose only hole is its end.
    pub fn without_holes(self, offset: u64, size: u64) -> Result<u64> {
        match self {
            _ if offset >= size => Err(Errno::NXIO.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

/// The part of `content` that [`Store::read`] returns.
pub fn slice(content: &[u8], offset: u64, size: usize) -> &[u8] {
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let rest = content.get(offset..).unwrap_or_default();
    &rest[..size.min(rest.len())]
}

/// How [`Store::setxattr`] handles an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Fail with `EEXIST` where it exists.
    Create,
    /// Fail with `ENODATA` where it does not.
    Replace,
}

impl XattrMode {
    /// Checks whether the mode permits setting an attribute that `exists` or not.
    pub fn check(self, exists: bool) -> Result<()> {
        match (self, exists) {
            (XattrMode::Create, true) => Err(Errno::EXIST.into()),
            (XattrMode::Replace, false) => Err(Errno::NODATA.into()),
            _ => Ok(()),
        }
    }
}

/// Decides a rename as Linux does (`rename(2)`, `vfs_rename`). `Ok(false)`: there is nothing to do.
///
/// `inside_itself`: the destination's parent is the source, or one of its descendants.
/// `around_itself`: the source's parent is the destination, or one of its descendants.
pub fn check_rename(
    source: &Attr,
    target: Option<&Attr>,
    mode: RenameMode,
    inside_itself: bool,
    around_itself: bool,
    target_is_empty: bool,
) -> Result<bool> {
    if !mode.replaces() && mode != RenameMode::Exchange && target.is_some() {
        return Err(Errno::EXIST.into());
    }
    if inside_itself {
        return Err(Errno::INVAL.into());
    }
    let Some(target) = target else {
        return if mode == RenameMode::Exchange { Err(Errno::NOENT.into()) } else { Ok(true) };
    };
    if around_itself {
        return Err(if mode == RenameMode::Exchange { Errno::INVAL } else { Errno::NOTEMPTY }.into());
    }
    if target.ino == source.ino {
        return Ok(false);
    }
    if mode == RenameMode::Exchange {
        return Ok(true);
    }
    match (source.kind, target.kind) {
        (Kind::Directory, Kind::Directory) if !target_is_empty => Err(Errno::NOTEMPTY.into()),
        (Kind::Directory, Kind::Directory) => Ok(true),
        (Kind::Directory, _) => Err(Errno::NOTDIR.into()),
        (_, Kind::Directory) => Err(Errno::ISDIR.into()),
        _ => Ok(true),
    }
}

/// Space and inodes of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_bytes: u32,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for users other than root.
    pub blocks_available: u64,
    /// Total inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Takes the entries of a listing, until it breaks.
pub type EntrySink<'a> = &'a mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>;

/// Whether a store may change other than through this mount. This decides what the kernel may cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coherence {
    /// Only this mount changes the store, or the store tells the kernel of each change by others: names, attributes and
    /// pages stay valid until then.
    Exclusive,
    /// Nothing may be cached: every call must reach the store.
    Uncached,
}

/// A call whose answer may have to wait for a remote server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowCall {
    /// [`Store::read`] of a range.
    Read {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        size: usize,
    },
    /// [`OpenFiles::open`] for writing.
    Open,
    /// [`Store::setattr`] of a size, without an open file.
    Resize,
    /// [`Store::write`], [`Store::fallocate`], [`Store::seek`], or a [`Store::setattr`] of a size other than 0.
    Change,
    /// Any changing call that needs approval before it is applied; asked of a file, or of the directory of a name.
    Approval,
    /// [`Store::close`].
    Close,
    /// [`Store::fsync`].
    Fsync,
    /// [`Store::getxattr`] or [`Store::setxattr`] of a name that is a command to the store.
    Xattr,
    /// [`Store::getattr_handle`].
    SizeForRead,
}

/// The kernel's caches of one mount, for a store that changes other than through the mount.
pub trait KernelCache: Send + Sync {
    /// Invalidates the attributes and pages of an inode.
    fn invalidate_inode(&self, ino: Ino);

    /// Invalidates a cached name, positive or negative.
    fn invalidate_name(&self, parent: Ino, name: &[u8]);

    /// Puts bytes into the page cache at `offset` (`FUSE_NOTIFY_STORE`).
    ///
    /// The kernel extends the file's size to cover them, even if an older attribute reply is in flight.
    fn store_pages(&self, ino: Ino, offset: u64, bytes: &[u8]);

    /// Whether the kernel holds a reference to an inode: only then can a program watch it.
    fn knows(&self, _ino: Ino) -> bool {
        false
    }

    /// Raises an inotify event for an inode that changed other than through the mount, after its invalidation. `path` leads
    /// to it from the root. Returns at once.
    fn tell_watchers(&self, _ino: Ino, _path: &[u8]) {}

    /// Records that an inode lost its last name. True if the kernel holds no reference, and the store may reclaim it;
    /// otherwise the front end does when the kernel forgets it.
    fn is_unreferenced(&self, ino: Ino) -> bool;
}

/// Inodes, names and bytes, called from several threads at once. A method that a store does not
/// implement answers as a read-only file system does.
///
/// Names are bytes without `/` and NUL, neither `.` nor `..`, at most [`NAME_MAX`] long; the front
/// end has checked that. The kernel has checked permissions, by the attributes that the store returns.
/// Every operation is atomic and seen by the next one. Errors are those of the Linux system call of
/// the same name. A panic fails only the call that raises it. A store that panics during a change
/// rolls it back, or fails every later call.
pub trait Store: Send + Sync {
    /// The last part of the mount's type: `fuse.ctxbench-<kind>`.
    fn kind(&self) -> &'static str;

    /// Whether the store may change other than through this mount.
    fn coherence(&self) -> Coherence;

    /// The [`Store::coherence`] of one inode's name and attributes: a directory may stay as it is in a store that
    /// changes, and a size may be unknown in one that does not.
    fn attr_coherence(&self, _ino: Ino) -> Coherence {
        self.coherence()
    }

    /// Finds `name` in `parent`. `ENOENT` where there is none.
    ///
    /// A result that no directory lists, such as the answer to a search, has an `nlink` of 0. The kernel
    /// does not cache it, and it is reclaimed with the kernel's last reference.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Whether the kernel may cache a failed lookup of the name until the mount creates it. False if
    /// another change can make the lookup succeed, such as creating the file that a search name refers to.
    fn keeps_missing(&self, _name: &[u8]) -> bool {
        true
    }

    /// The attributes of an inode, linked or unlinked.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// [`Store::getattr`] through the open file `handle`, before a read past the size that the kernel knows, or a seek to
    /// the end; `stat` never calls this. A store that does not know the size earlier finds it out here.
    fn getattr_handle(&self, _handle: u64, ino: Ino) -> Result<Attr> {
        self.getattr(ino)
    }

    /// Changes attributes and returns the new ones.
    fn setattr(&self, _caller: &Caller, _ino: Ino, _change: &Change) -> Result<Attr> {
        Err(Errno::ROFS.into())
    }

    /// The parent directory of directory `dir`; the root is its own parent.
    fn parent(&self, dir: Ino) -> Result<Ino>;

    /// The target of a symbolic link.
    fn readlink(&self, _ino: Ino) -> Result<Vec<u8>> {
        Err(Errno::INVAL.into())
    }

    /// Creates a node. `EEXIST` where the name is taken.
    fn create(&self, _caller: &Caller, _parent: Ino, _name: &[u8], _node: &NewNode<'_>) -> Result<Attr> {
        Err(Errno::ROFS.into())
    }

    /// Gives an inode another name and returns its attributes.
    fn link(&self, _caller: &Caller, _ino: Ino, _parent: Ino, _name: &[u8]) -> Result<Attr> {
        Err(Errno::ROFS.into())
    }

    /// Removes a name that is not a directory's. Returns the inode if that was its last name: open
    /// descriptors keep it alive until [`Store::reclaim`].
    fn unlink(&self, _caller: &Caller, _parent: Ino, _name: &[u8]) -> Result<Option<Ino>> {
        Err(Errno::ROFS.into())
    }

    /// Removes an empty directory; returns its inode, which stays alive until [`Store::reclaim`].
    fn rmdir(&self, _caller: &Caller, _parent: Ino, _name: &[u8]) -> Result<Option<Ino>> {
        Err(Errno::ROFS.into())
    }

    /// Moves `from` to `to`, each a directory and a name. Returns the inode of a replaced
    /// destination if that was its last name.
    fn rename(
        &self,
        _caller: &Caller,
        _from: (Ino, &[u8]),
        _to: (Ino, &[u8]),
        _mode: RenameMode,
    ) -> Result<Option<Ino>> {
        Err(Errno::ROFS.into())
    }

    /// Frees an inode without a name, after the kernel's last reference. Ignores an inode that has a
    /// name, and an unknown one.
    fn reclaim(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// Drops the store's state of inodes that the kernel has forgotten: the kernel looks up each one before it uses it
    /// again. For a store that makes up inode numbers at a lookup, and would otherwise keep every one until the
    /// unmount.
    fn forget(&self, _inos: &[Ino]) {}

    /// Appends up to `size` bytes at `offset` to `out`; fewer only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()>;

    /// The open files of a store whose open files have contents of their own. Without them, calls through an open file
    /// are calls on its inode, and a handle is 0.
    fn open_files(&self) -> Option<&dyn OpenFiles> {
        None
    }

    /// Writes all of `data` at `offset`, extending the file as needed.
    fn write(&self, _caller: &Caller, _ino: Ino, _offset: u64, _data: &[u8]) -> Result<()> {
        Err(Errno::ROFS.into())
    }

    /// Writes all of `data` to the end of the file. The kernel takes the end to be `end`; another host's write may have
    /// moved it.
    fn append(&self, caller: &Caller, ino: Ino, end: u64, data: &[u8]) -> Result<()> {
        self.write(caller, ino, end, data)
    }

    /// Whether [`Store::append`] finds the end itself: the parts of one long write must then arrive in order.
    fn places_appends(&self) -> bool {
        false
    }

    /// Reserves, punches or zeroes a range. `length` is not 0.
    fn fallocate(&self, _caller: &Caller, _ino: Ino, _how: Allocation, _offset: u64, _length: u64) -> Result<()> {
        Err(Errno::ROFS.into())
    }

    /// The next data or hole at or after `offset`. `ENXIO` where there is none. Unless implemented, the
    /// only hole is the end of the file.
    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        what.without_holes(offset, self.getattr(ino)?.size)
    }

    /// Emits the entries of `dir` after cookie `after` (0: from the start) in cookie order, until `emit`
    /// breaks. With `with_attr`, entries carry attributes.
    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()>;

    /// The value of an extended attribute. `ENODATA` where there is none.
    fn getxattr(&self, _ino: Ino, _name: &[u8]) -> Result<Vec<u8>> {
        Err(Errno::NODATA.into())
    }

    /// Whether any inode may have an extended attribute.
    fn may_have_xattrs(&self) -> bool {
        true
    }

    /// The names of all extended attributes.
    fn listxattr(&self, _ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute.
    fn setxattr(&self, _caller: &Caller, _ino: Ino, _name: &[u8], _value: &[u8], _mode: XattrMode) -> Result<()> {
        Err(Errno::ROFS.into())
    }

    /// Removes an extended attribute. `ENODATA` where there is none.
    fn removexattr(&self, _caller: &Caller, _ino: Ino, _name: &[u8]) -> Result<()> {
        Err(Errno::ROFS.into())
    }

    /// Makes all completed changes of this inode and its names as durable as the store can.
    ///
    /// With `data_only`, the store may leave out changes that reading the content back does not need.
    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;

    /// [`Store::fsync`] for every inode.
    fn sync(&self) -> Result<()>;

    /// Whether changes before a successful [`Store::sync`] end with the process. The mount then waits for room on a full disk
    /// before it ends.
    fn is_lost_without_sync(&self) -> bool {
        false
    }

    /// Whether [`Store::close`] has work to do. If not, the front end turns `FUSE_FLUSH` off, except with a
    /// writeback cache.
    fn wants_close(&self) -> bool {
        false
    }

    /// Handles the `close` of a descriptor of the open file `handle`; `close` returns an error from here.
    fn close(&self, _handle: u64, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// Whether a call may have to wait for a remote server. The front end then answers it on its own
    /// thread, so that other requests do not wait.
    fn is_slow(&self, _ino: Ino, _call: SlowCall) -> bool {
        false
    }

    /// Whether reads of cached files may be [slow](SlowCall::Read). The kernel then sends more of its own requests at once: dirty pages
    /// otherwise wait until as many slow reads are answered.
    fn has_slow_reads(&self) -> bool {
        false
    }

    /// Whether the kernel asks for attributes with each listing. A view says no: it would compute those of each row.
    fn lists_attributes(&self) -> bool {
        true
    }

    /// Passes the kernel's caches to a store that has to invalidate them. Called once, before the first
    /// request.
    fn attach(&self, _kernel: Arc<dyn KernelCache>) {}

    /// Ends background work after the unmount, completed or abandoned. [`Store::sync`] has run before.
    fn detach(&self) {}

    /// The mount failed before it could be used: when the store is closed, it removes the files that opening it created.
    /// It never removes a file that was there before.
    fn discard_new(&self) {}

    /// Ends the store after [`Store::detach`]; it serves nothing afterwards.
    ///
    /// # Errors
    /// If its last changes could not be made durable.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Space and inodes, total and free. Without an answer of its own a store has none to give.
    fn statfs(&self) -> Result<StatFs> {
        Ok(StatFs { block_bytes: 4096, ..StatFs::default() })
    }

    /// Counts of the store's own work since it was opened, such as SQL statements or syncs.
    fn counters(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::new()
    }
}
