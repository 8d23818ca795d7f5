//! The table of all handled requests, each wrapped so that a panic fails only that request.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use fuser::{
    AccessFlags, BsdFileFlags, FileHandle, Filesystem, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::content::WritePosition;
use crate::counters::Opcode;
use crate::front_end::FrontEnd;
use crate::panics::contain;

/// Generates trait methods that call the front end's handler of the same name and contain its panics.
macro_rules! contained {
    ($($opcode:ident: $method:ident($($argument:ident: $kind:ty),* $(,)?) => ($($passed:expr),*);)*) => {
        $(fn $method(&self, $($argument: $kind),*) {
            contain(Opcode::$opcode, || FrontEnd::$method(self, $($passed),*));
            self.mounted.request_threads.count_answer();
        })*
    };
}

/// How many reads ahead and writes of dirty pages the kernel sends at once to a store with slow reads. With more, a large
/// writeback would delay the calls that come after it.
const AT_ONCE_SLOW: u16 = 128;

impl Filesystem for FrontEnd {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is optional: an older kernel may lack it, and the mount works without it.
        let listed = (self.store().lists_attributes()).then_some(InitFlags::FUSE_DO_READDIRPLUS);
        let wanted = [InitFlags::FUSE_PARALLEL_DIROPS, InitFlags::FUSE_HANDLE_KILLPRIV_V2];
        // With FUSE_ASYNC_DIO the kernel sends the parts of one long direct write in parallel, in any order.
        let at_once = (!self.store().places_appends()).then_some(InitFlags::FUSE_ASYNC_DIO);
        let cached = [
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        ];
        let cached = cached.into_iter().filter(|_| self.policy.no_open);
        let truncated = self.policy.open_files(self.store()).is_some().then_some(InitFlags::FUSE_ATOMIC_O_TRUNC);
        let gathered = self.policy.writeback.then_some(InitFlags::FUSE_WRITEBACK_CACHE);
        let optional = listed.into_iter().chain(at_once).chain(truncated).chain(cached).chain(gathered);
        for flag in wanted.into_iter().chain(optional) {
            if config.add_capabilities(flag).is_err() {
                tracing::info!(?flag, "this kernel's FUSE does not support it");
            }
        }
        if self.store().has_slow_reads() {
            // Only 0 is refused.
            let _ = config.set_max_background(AT_ONCE_SLOW);
        }
        let no_open = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.policy.no_open && !config.capabilities().contains(no_open) {
            tracing::warn!("this kernel sends a request for every open: reads are slower");
            self.policy.no_open = false;
        }
        Ok(())
    }

    contained! {
        Lookup: lookup(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) => (req, parent, name, reply);
        Forget: forget(_req: &Request, ino: INodeNo, lookups: u64) => (ino, lookups);
        Getattr: getattr(req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) => (req, ino, fh, reply);
        Setattr: setattr(
            req: &Request, ino: INodeNo, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>,
            size: Option<u64>, atime: Option<TimeOrNow>, mtime: Option<TimeOrNow>,
            ctime: Option<SystemTime>, fh: Option<FileHandle>, _crtime: Option<SystemTime>,
            _chgtime: Option<SystemTime>, _bkuptime: Option<SystemTime>, _flags: Option<BsdFileFlags>,
            reply: ReplyAttr,
        ) => (req, (ino, fh), mode, uid, gid, size, atime, mtime, ctime, reply);
        Readlink: readlink(_req: &Request, ino: INodeNo, reply: ReplyData) => (ino, reply);
        Mknod: mknod(
            req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, rdev: u32,
            reply: ReplyEntry,
        ) => (req, parent, name, mode, rdev, reply);
        Mkdir: mkdir(
            req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry,
        ) => (req, parent, name, mode, reply);
        Unlink: unlink(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) => (req, parent, name, reply);
        Rmdir: rmdir(req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) => (req, parent, name, reply);
        Symlink: symlink(
            req: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry,
        ) => (req, parent, name, target, reply);
        Rename: rename(
            req: &Request, parent: INodeNo, name: &OsStr, newparent: INodeNo, newname: &OsStr,
            flags: RenameFlags, reply: ReplyEmpty,
        ) => (req, (parent, name), (newparent, newname), flags, reply);
        Link: link(
            req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry,
        ) => (req, ino, newparent, newname, reply);
        Open: open(req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) => (req, ino, flags, reply);
        Read: read(
            req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, size: u32, _flags: OpenFlags,
            _lock_owner: Option<LockOwner>, reply: ReplyData,
        ) => (req, (ino, fh), offset, size, reply);
        Write: write(
            req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, data: &[u8],
            write_flags: WriteFlags, flags: OpenFlags, _lock_owner: Option<LockOwner>,
            reply: ReplyWrite,
        ) => (req, (ino, fh), WritePosition::of(offset, flags, write_flags), data, write_flags, reply);
        Flush: flush(
            req: &Request, ino: INodeNo, fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty,
        ) => (req, (ino, fh), reply);
        Release: release(
            _req: &Request, _ino: INodeNo, fh: FileHandle, _flags: OpenFlags,
            _lock_owner: Option<LockOwner>, _flush: bool, reply: ReplyEmpty,
        ) => (fh, reply);
        Fsync: fsync(req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) => (req, (ino, fh), datasync, reply);
        Opendir: opendir(_req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) => (reply);
        Readdir: readdir(
            _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectory,
        ) => (ino, offset, reply);
        Readdirplus: readdirplus(
            _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus,
        ) => (ino, offset, reply);
        Releasedir: releasedir(
            _req: &Request, _ino: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty,
        ) => (reply);
        Fsyncdir: fsyncdir(
            req: &Request, ino: INodeNo, _fh: FileHandle, datasync: bool, reply: ReplyEmpty,
        ) => (req, ino, datasync, reply);
        Statfs: statfs(_req: &Request, _ino: INodeNo, reply: ReplyStatfs) => (reply);
        Setxattr: setxattr(
            req: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _position: u32,
            reply: ReplyEmpty,
        ) => (req, ino, name, value, flags, reply);
        Getxattr: getxattr(
            req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr,
        ) => (req, ino, name, size, reply);
        Listxattr: listxattr(_req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) => (ino, size, reply);
        Removexattr: removexattr(req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) => (req, ino, name, reply);
        Access: access(_req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) => (ino, mask, reply);
        Create: create(
            req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, flags: i32,
            reply: ReplyCreate,
        ) => (req, parent, name, (mode, flags), reply);
        Ioctl: ioctl(
            _req: &Request, _ino: INodeNo, _fh: FileHandle, _flags: IoctlFlags, _cmd: u32,
            _in_data: &[u8], _out_size: u32, reply: ReplyIoctl,
        ) => (reply);
        Fallocate: fallocate(
            req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, length: u64, mode: i32,
            reply: ReplyEmpty,
        ) => (req, ino, offset, length, mode, reply);
        Lseek: lseek(
            req: &Request, ino: INodeNo, _fh: FileHandle, offset: i64, whence: i32,
            reply: ReplyLseek,
        ) => (req, ino, offset, whence, reply);
    }
}
