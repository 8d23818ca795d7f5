//! Mounts a database of Turso AgentFS: its SDK stores, this adapter only translates requests.
//!
//! It asks the kernel for what AgentFS's own command asks for: the writeback cache, and cached names and attributes
//! without end. It has no extended attributes, as the SDK has none.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agentfs_sdk::error::{Error, Result};
use agentfs_sdk::filesystem::AgentFS as Storage;
use agentfs_sdk::{
    AgentFS, AgentFSOptions, BoxedFile, FileSystem, FsError, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO,
    S_IFLNK, S_IFMT, S_IFSOCK, Stats, TimeChange,
};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use tokio::runtime::Runtime;

/// A year: this mount is the only writer.
const TTL: Duration = Duration::from_secs(365 * 24 * 3600);
const GENERATION: Generation = Generation(0);

struct Adapter {
    storage: Storage,
    runtime: Runtime,
    open: Mutex<HashMap<u64, BoxedFile>>,
    next: AtomicU64,
}

fn errno(error: &Error) -> Errno {
    match error {
        Error::Fs(error) => Errno::from_i32(error.to_errno()),
        other => {
            eprintln!("{other}");
            Errno::EIO
        }
    }
}

fn text(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or(FsError::InvalidPath.into())
}

fn number(ino: INodeNo) -> i64 {
    ino.0.cast_signed()
}

fn kind(mode: u32) -> FileType {
    match mode & S_IFMT {
        S_IFDIR => FileType::Directory,
        S_IFLNK => FileType::Symlink,
        S_IFIFO => FileType::NamedPipe,
        S_IFCHR => FileType::CharDevice,
        S_IFBLK => FileType::BlockDevice,
        S_IFSOCK => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

fn attributes(stats: &Stats) -> FileAttr {
    let time = |seconds: i64, nanos: u32| {
        UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or(0), nanos)
    };
    let size = u64::try_from(stats.size).unwrap_or(0);
    FileAttr {
        ino: INodeNo(stats.ino.cast_unsigned()),
        size,
        blocks: size.div_ceil(512),
        atime: time(stats.atime, stats.atime_nsec),
        mtime: time(stats.mtime, stats.mtime_nsec),
        ctime: time(stats.ctime, stats.ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(stats.mode),
        perm: (stats.mode & 0o7777) as u16,
        nlink: stats.nlink,
        uid: stats.uid,
        gid: stats.gid,
        rdev: stats.rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

fn change(time: Option<TimeOrNow>) -> TimeChange {
    match time {
        None => TimeChange::Omit,
        Some(TimeOrNow::Now) => TimeChange::Now,
        Some(TimeOrNow::SpecificTime(at)) => {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
            TimeChange::Set(since.as_secs().cast_signed(), since.subsec_nanos())
        }
    }
}

impl Adapter {
    fn file(&self, handle: FileHandle) -> Result<BoxedFile> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = open.get(&handle.0).cloned();
        file.ok_or(FsError::NotFound.into())
    }

    fn opened(&self, file: BoxedFile) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(handle, file);
        FileHandle(handle)
    }

    fn wait<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        self.runtime.block_on(future)
    }

    fn attr(&self, ino: INodeNo) -> Result<Stats> {
        let found = self.wait(FileSystem::getattr(&self.storage, number(ino)))?;
        found.ok_or(FsError::NotFound.into())
    }

    /// `.`, `..` and the entries of a directory.
    fn entries(&self, ino: INodeNo) -> Result<Vec<(String, Stats)>> {
        let dir = self.attr(ino)?;
        let listed = self.wait(FileSystem::readdir_plus(&self.storage, number(ino)))?;
        let listed = listed.ok_or(FsError::NotADirectory)?;
        // The kernel knows the parent, and shows its own number.
        let dots = [".", ".."].map(|name| (name.to_owned(), dir.clone()));
        let listed = listed.into_iter().map(|entry| (entry.name, entry.stats));
        Ok(dots.into_iter().chain(listed).collect())
    }
}

fn entry(result: Result<Stats>, reply: ReplyEntry) {
    match result {
        Ok(stats) => reply.entry(&TTL, &attributes(&stats), GENERATION),
        Err(error) => reply.error(errno(&error)),
    }
}

fn empty(result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        for flag in [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_WRITEBACK_CACHE,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        ] {
            if config.add_capabilities(flag).is_err() {
                eprintln!("this kernel does not offer {flag:?}");
            }
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = text(name)
            .and_then(|name| self.wait(FileSystem::lookup(&self.storage, number(parent), name)));
        entry(
            found.and_then(|stats| stats.ok_or(FsError::NotFound.into())),
            reply,
        );
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Ok(stats) => reply.attr(&TTL, &attributes(&stats)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let storage = &self.storage;
        let changed = self.wait(async {
            if let Some(mode) = mode {
                FileSystem::chmod(storage, number(ino), mode).await?;
            }
            if uid.is_some() || gid.is_some() {
                FileSystem::chown(storage, number(ino), uid, gid).await?;
            }
            if let Some(size) = size {
                let file = match fh.map(|handle| self.file(handle)) {
                    Some(file) => file?,
                    None => FileSystem::open(storage, number(ino), 2).await?,
                };
                file.truncate(size).await?;
            }
            if atime.is_some() || mtime.is_some() {
                FileSystem::utimens(storage, number(ino), change(atime), change(mtime)).await?;
            }
            Ok(())
        });
        match changed.and_then(|()| self.attr(ino)) {
            Ok(stats) => reply.attr(&TTL, &attributes(&stats)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.wait(FileSystem::readlink(&self.storage, number(ino)));
        match target.and_then(|target| target.ok_or(FsError::NotASymlink.into())) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (storage, parent) = (&self.storage, number(parent));
        let made = text(name).and_then(|name| {
            let (rdev, uid, gid) = (u64::from(rdev), req.uid(), req.gid());
            self.wait(FileSystem::mknod(
                storage, parent, name, mode, rdev, uid, gid,
            ))
        });
        entry(made, reply);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (storage, parent) = (&self.storage, number(parent));
        let made = text(name).and_then(|name| {
            self.wait(FileSystem::mkdir(
                storage,
                parent,
                name,
                mode,
                req.uid(),
                req.gid(),
            ))
        });
        entry(made, reply);
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = text(name)
            .and_then(|name| self.wait(FileSystem::unlink(&self.storage, number(parent), name)));
        empty(gone, reply);
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let gone = text(name)
            .and_then(|name| self.wait(FileSystem::rmdir(&self.storage, number(parent), name)));
        empty(gone, reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (storage, parent) = (&self.storage, number(parent));
        let made = text(name).and_then(|name| {
            let target = text(target.as_os_str())?;
            self.wait(FileSystem::symlink(
                storage,
                parent,
                name,
                target,
                req.uid(),
                req.gid(),
            ))
        });
        entry(made, reply);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let moved = text(name).and_then(|name| {
            let (from, to) = (number(parent), number(newparent));
            let newname = text(newname)?;
            self.wait(FileSystem::rename(&self.storage, from, name, to, newname))
        });
        empty(moved, reply);
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = text(newname).and_then(|name| {
            self.wait(FileSystem::link(
                &self.storage,
                number(ino),
                number(newparent),
                name,
            ))
        });
        entry(made, reply);
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.wait(FileSystem::open(&self.storage, number(ino), flags.0)) {
            Ok(file) => reply.opened(self.opened(file), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let (storage, parent) = (&self.storage, number(parent));
        let made = text(name).and_then(|name| {
            self.wait(FileSystem::create_file(
                storage,
                parent,
                name,
                mode,
                req.uid(),
                req.gid(),
            ))
        });
        match made {
            Ok((stats, file)) => {
                let (attr, handle) = (attributes(&stats), self.opened(file));
                reply.created(
                    &TTL,
                    &attr,
                    GENERATION,
                    handle,
                    FopenFlags::FOPEN_KEEP_CACHE,
                );
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = self.file(fh);
        match file.and_then(|file| self.wait(file.pread(offset, u64::from(size)))) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = self.file(fh);
        match file.and_then(|file| self.wait(file.pwrite(offset, data))) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.remove(&fh.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        empty(
            self.file(fh).and_then(|file| self.wait(file.fsync())),
            reply,
        );
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        match self.entries(ino) {
            Ok(entries) => {
                for (at, (name, stats)) in entries.iter().enumerate().skip(offset as usize) {
                    let inode = INodeNo(stats.ino.cast_unsigned());
                    if reply.add(inode, at as u64 + 1, kind(stats.mode), name) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.entries(ino) {
            Ok(entries) => {
                for (at, (name, stats)) in entries.iter().enumerate().skip(offset as usize) {
                    let inode = INodeNo(stats.ino.cast_unsigned());
                    if reply.add(
                        inode,
                        at as u64 + 1,
                        name,
                        &TTL,
                        &attributes(stats),
                        GENERATION,
                    ) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.wait(FileSystem::statfs(&self.storage)) {
            Ok(usage) => {
                let (used, room) = (usage.bytes_used.div_ceil(4096), 1 << 28);
                reply.statfs(
                    used + room,
                    room,
                    room,
                    usage.inodes + room,
                    room,
                    4096,
                    255,
                    4096,
                );
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, mount] = &arguments[..] else {
        if arguments == ["--version"] {
            println!("agentfs-sdk 0.6.4, through an adapter of ctxbench");
            return Ok(());
        }
        return Err("usage: ctxbench-agentfs-sdk DATABASE DIRECTORY".into());
    };
    let runtime = Runtime::new()?;
    let opened = runtime.block_on(AgentFS::open(AgentFSOptions::with_path(database.clone())))?;
    let adapter = Adapter {
        storage: opened.fs,
        runtime,
        open: Mutex::default(),
        next: AtomicU64::new(1),
    };
    let mut config = Config::default();
    let source = MountOption::FSName("agentfs-sdk".to_owned());
    config.mount_options = vec![source, MountOption::DefaultPermissions];
    fuser::mount(adapter, mount, &config)?;
    Ok(())
}
