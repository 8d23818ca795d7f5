//! FUSE requests to store calls and back.

use std::ffi::OsStr;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::convert::{
    allocate, caller, check_name, check_xattr_name, failed, file_attr, file_type, missing,
    new_node, permission_bits, reply_xattr, whole_time,
};
use super::counters::{Opcode, Recorder, Span};
use super::inodes::Inodes;
use super::interrupt;
use super::policy::CachePolicy;
use super::slow::SlowThreads;
use crate::store::{
    Attr, Change, DirEntry, Errno, Ino, Kind, NAME_MAX, NewNode, RenameMode, Result, Seek, Slow,
    Store, StoreError, TARGET_MAX, XATTR_VALUE_MAX, XattrMode,
};

/// Inode numbers are never used twice while a mount lives, so one generation is enough.
const GENERATION: Generation = Generation(0);

/// The cookies of `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Attributes whose names begin so may be orders to a store, and take long.
const ORDERS: &[u8] = b"user.ctx.";

/// What a mount shares with its control socket.
pub(crate) struct Mounted {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) recorder: Recorder,
    pub(crate) inodes: Inodes,
    /// The next request is to panic: `ctxbench fault` sees what becomes of a mount with a bug.
    pub(crate) panics_next: AtomicBool,
}

impl Mounted {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            recorder: Recorder::new(),
            inodes: Inodes::default(),
            panics_next: AtomicBool::new(false),
        }
    }

    /// Reclaims what was unlinked while open and never forgotten.
    pub(crate) fn reclaim_orphans(&self) {
        for ino in self.inodes.take_orphans() {
            self.reclaim(ino);
        }
    }

    fn reclaim(&self, ino: Ino) {
        if let Err(error) = self.store.reclaim(ino) {
            tracing::warn!(ino, %error, "could not reclaim an unlinked inode");
        }
    }
}

/// The front end of one mount.
pub(crate) struct FrontEnd {
    mounted: Arc<Mounted>,
    policy: CachePolicy,
    slow: SlowThreads,
}

impl FrontEnd {
    pub(crate) fn new(mounted: Arc<Mounted>, policy: CachePolicy) -> Self {
        Self {
            mounted,
            policy,
            slow: SlowThreads::default(),
        }
    }

    fn start(&self, opcode: Opcode) -> Span<'_> {
        let panics = &self.mounted.panics_next;
        // The load first: it costs nothing while nobody asks for a panic.
        assert!(
            !(panics.load(Ordering::Relaxed) && panics.swap(false, Ordering::Relaxed)),
            "this panic was asked for, by the control socket"
        );
        self.mounted.recorder.start(opcode)
    }

    fn store(&self) -> &dyn Store {
        &*self.mounted.store
    }

    /// Whether asking for an attribute, or setting it, is an order to the store that may take long.
    fn is_slow_order(&self, ino: INodeNo, name: &OsStr) -> bool {
        name.as_bytes().starts_with(ORDERS) && self.store().is_slow(ino.0, Slow::Xattr)
    }

    /// Answers a request here, or on a thread of its own if that may take long: nobody else waits for it, and it ends
    /// when whoever made it gives up.
    fn answer(
        &self,
        request: &Request,
        is_slow: bool,
        answer: impl FnOnce(&Mounted) + Send + 'static,
    ) {
        if !is_slow {
            return answer(&self.mounted);
        }
        let mounted = Arc::clone(&self.mounted);
        let requester = request.pid();
        let answer = move || interrupt::on_behalf_of(requester, || answer(&mounted));
        if let Err(error) = self.slow.run(answer) {
            // The reply went with the closure, and has answered EIO.
            tracing::error!(%error, "no thread for a request that has to wait");
        }
    }

    /// Replies with an entry that the kernel will hold until it forgets it.
    fn reply_entry(&self, span: &mut Span<'_>, result: Result<Attr>, reply: ReplyEntry) {
        match result {
            Ok(attr) => {
                self.mounted.inodes.looked_up(attr.ino);
                let ttl = if attr.nlink > 0 {
                    self.policy.attr_ttl(self.store(), attr.ino)
                } else {
                    // What can be looked up but has no name is made anew each time: the kernel asks again,
                    // and what it has forgotten is reclaimed. It holds the inode, so not now.
                    let _ = self.mounted.inodes.orphaned(attr.ino);
                    Duration::ZERO
                };
                span.handled();
                reply.entry(&ttl, &file_attr(&attr), GENERATION);
            }
            Err(error) => reply.error(failed(span, error)),
        }
    }

    fn reply_attr(&self, span: &mut Span<'_>, result: Result<Attr>, reply: ReplyAttr) {
        match result {
            Ok(attr) => {
                span.handled();
                reply.attr(
                    &self.policy.attr_ttl(self.store(), attr.ino),
                    &file_attr(&attr),
                );
            }
            Err(error) => reply.error(failed(span, error)),
        }
    }

    /// Replies, then reclaims an inode that lost its last name and that nobody holds.
    fn reply_removed(&self, mut span: Span<'_>, result: Result<Option<Ino>>, reply: ReplyEmpty) {
        match result {
            Ok(orphan) => {
                span.handled();
                reply.ok();
                if let Some(ino) = orphan
                    && self.mounted.inodes.orphaned(ino)
                {
                    self.mounted.reclaim(ino);
                }
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    fn create_node(
        &self,
        span: &mut Span<'_>,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        node: &NewNode<'_>,
    ) -> Result<Attr> {
        check_name(name)?;
        span.store(|| {
            self.store()
                .create(&caller(req), parent.0, name.as_bytes(), node)
        })
    }

    fn reply_opened(&self, opcode: Opcode, reply: ReplyOpen) {
        let mut span = self.start(opcode);
        if self.policy.no_open {
            reply.error(failed(&mut span, Errno::NOSYS.into()));
        } else {
            let flags = if self.policy.direct_io && opcode == Opcode::Open {
                FopenFlags::FOPEN_DIRECT_IO
            } else {
                FopenFlags::empty()
            };
            span.handled();
            reply.opened(FileHandle(0), flags);
        }
    }

    /// Feeds a listing to `add` from `offset` on, `.` and `..` first; `add` returns true when full.
    fn list(
        &self,
        span: &mut Span<'_>,
        dir: Ino,
        offset: u64,
        with_attr: bool,
        add: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let store = self.store();
        span.store(|| {
            for (cookie, name) in [(DOT, b".".as_slice()), (DOT_DOT, b"..")] {
                if offset >= cookie {
                    continue;
                }
                let ino = if cookie == DOT {
                    dir
                } else {
                    store.parent(dir)?
                };
                let attr = with_attr.then(|| store.getattr(ino)).transpose()?;
                let dot = DirEntry {
                    name,
                    ino,
                    kind: Kind::Directory,
                    cookie,
                    attr,
                };
                if add(dot) {
                    return Ok(());
                }
            }
            let after = if offset <= DOT_DOT { 0 } else { offset };
            store.readdir(dir, after, with_attr, &mut |entry| {
                if add(entry) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        })
    }
}

fn reply_empty(span: &mut Span<'_>, result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => {
            span.handled();
            reply.ok();
        }
        Err(error) => reply.error(failed(span, error)),
    }
}

impl Filesystem for FrontEnd {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Each is an improvement that an older kernel may lack; the mount works without any of them.
        let wanted = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_ASYNC_DIO,
        ];
        let cached = [
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
            InitFlags::FUSE_NO_OPENDIR_SUPPORT,
        ];
        let cached = cached.into_iter().filter(|_| self.policy.no_open);
        let gathered = self
            .policy
            .writeback
            .then_some(InitFlags::FUSE_WRITEBACK_CACHE);
        for flag in wanted.into_iter().chain(cached).chain(gathered) {
            if config.add_capabilities(flag).is_err() {
                tracing::info!(?flag, "this kernel's FUSE does not offer it");
            }
        }
        let no_open = InitFlags::FUSE_NO_OPEN_SUPPORT | InitFlags::FUSE_NO_OPENDIR_SUPPORT;
        if self.policy.no_open && !config.capabilities().contains(no_open) {
            tracing::warn!("this kernel asks for every open: reads will be slower");
            self.policy.no_open = false;
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut span = self.start(Opcode::Lookup);
        let result = check_name(name)
            .and_then(|()| span.store(|| self.store().lookup(parent.0, name.as_bytes())));
        match result {
            // Inode 0 with a lifetime is how a missing name is cached.
            Err(error)
                if error.errno == Errno::NOENT
                    && !self.policy.ttl.is_zero()
                    && self.store().keeps_missing(name.as_bytes()) =>
            {
                span.failed();
                let nothing = file_attr(&missing(req));
                reply.entry(&self.policy.ttl, &nothing, GENERATION);
            }
            result => self.reply_entry(&mut span, result, reply),
        }
    }

    fn forget(&self, _req: &Request, ino: INodeNo, lookups: u64) {
        let mut span = self.start(Opcode::Forget);
        if self.mounted.inodes.forgotten(ino.0, lookups) {
            span.store(|| self.mounted.reclaim(ino.0));
        }
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        // The kernel names a file handle only on behalf of a read past the size it knows, or a seek to the
        // end: `stat` and `fstat` come without one.
        if fh.is_some() && self.store().is_slow(ino.0, Slow::SizeForRead) {
            let policy = self.policy;
            self.answer(req, true, move |mounted| {
                let mut span = mounted.recorder.start(Opcode::Getattr);
                match span.store(|| mounted.store.size_for_read(ino.0)) {
                    Ok(attr) => {
                        span.handled();
                        let ttl = policy.attr_ttl(&*mounted.store, ino.0);
                        reply.attr(&ttl, &file_attr(&attr));
                    }
                    Err(error) => reply.error(failed(&mut span, error)),
                }
            });
            return;
        }
        let mut span = self.start(Opcode::Getattr);
        let result = span.store(|| self.store().getattr(ino.0));
        self.reply_attr(&mut span, result, reply);
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut caller = caller(req);
        // The kernel says when a file changed only where it gathered the writes: before now, then.
        if let Some(ctime) = ctime {
            caller.now = whole_time(ctime);
        }
        let time = |time: TimeOrNow| match time {
            TimeOrNow::Now => caller.now,
            TimeOrNow::SpecificTime(time) => whole_time(time),
        };
        let change = Change {
            permissions: mode.map(permission_bits),
            uid,
            gid,
            size,
            atime: atime.map(time),
            mtime: mtime.map(time),
            // With FUSE_HANDLE_KILLPRIV_V2 the kernel leaves this to us: always on a change of
            // owner, on truncation by anybody but root.
            drop_privileges: uid.is_some() || gid.is_some() || (size.is_some() && req.uid() != 0),
        };
        let is_slow =
            size.is_some_and(|size| size > 0) && self.store().is_slow(ino.0, Slow::Change);
        let policy = self.policy;
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Setattr);
            match span.store(|| mounted.store.setattr(&caller, ino.0, &change)) {
                Ok(attr) => {
                    span.handled();
                    let ttl = policy.attr_ttl(&*mounted.store, ino.0);
                    reply.attr(&ttl, &file_attr(&attr));
                }
                Err(error) => reply.error(failed(&mut span, error)),
            }
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let mut span = self.start(Opcode::Readlink);
        match span.store(|| self.store().readlink(ino.0)) {
            Ok(target) => {
                span.handled();
                reply.data(&target);
            }
            Err(error) => reply.error(failed(&mut span, error)),
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
        let mut span = self.start(Opcode::Mknod);
        let result = match Kind::from_mode(mode) {
            None | Some(Kind::Directory | Kind::Symlink) => Err(Errno::INVAL.into()),
            Some(kind) => {
                let node = new_node(kind, mode, rdev);
                self.create_node(&mut span, req, parent, name, &node)
            }
        };
        self.reply_entry(&mut span, result, reply);
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
        let mut span = self.start(Opcode::Mkdir);
        let node = new_node(Kind::Directory, mode, 0);
        let result = self.create_node(&mut span, req, parent, name, &node);
        self.reply_entry(&mut span, result, reply);
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut span = self.start(Opcode::Unlink);
        let result = check_name(name).and_then(|()| {
            span.store(|| self.store().unlink(&caller(req), parent.0, name.as_bytes()))
        });
        self.reply_removed(span, result, reply);
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut span = self.start(Opcode::Rmdir);
        let result = check_name(name).and_then(|()| {
            span.store(|| self.store().rmdir(&caller(req), parent.0, name.as_bytes()))
        });
        self.reply_removed(span, result, reply);
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let mut span = self.start(Opcode::Symlink);
        let target = target.as_os_str().as_bytes();
        let result = if target.len() > TARGET_MAX {
            Err(Errno::NAMETOOLONG.into())
        } else {
            let node = NewNode {
                target,
                ..new_node(Kind::Symlink, 0o777, 0)
            };
            self.create_node(&mut span, req, parent, name, &node)
        };
        self.reply_entry(&mut span, result, reply);
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut span = self.start(Opcode::Rename);
        let mode = if flags.is_empty() {
            Ok(RenameMode::Replace)
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            Ok(RenameMode::NoReplace)
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            Ok(RenameMode::Exchange)
        } else {
            Err(StoreError::from(Errno::INVAL))
        };
        let result = mode.and_then(|mode| {
            check_name(name)?;
            check_name(newname)?;
            let from = (parent.0, name.as_bytes());
            let to = (newparent.0, newname.as_bytes());
            span.store(|| self.store().rename(&caller(req), from, to, mode))
        });
        self.reply_removed(span, result, reply);
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let mut span = self.start(Opcode::Link);
        let result = check_name(newname).and_then(|()| {
            span.store(|| {
                self.store()
                    .link(&caller(req), ino.0, newparent.0, newname.as_bytes())
            })
        });
        self.reply_entry(&mut span, result, reply);
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.reply_opened(Opcode::Open, reply);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            // Reads come one after the other on each thread: one buffer serves them all.
            static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let size = size as usize;
        let is_slow = self.store().is_slow(ino.0, Slow::Read { offset, size });
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Read);
            BUFFER.with_borrow_mut(|buffer| {
                buffer.clear();
                match span.store(|| mounted.store.read(ino.0, offset, size, buffer)) {
                    Ok(()) => {
                        span.handled();
                        reply.data(buffer);
                    }
                    Err(error) => reply.error(failed(&mut span, error)),
                }
            });
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let caller = caller(req);
        let answer = move |mounted: &Mounted, data: &[u8]| {
            let mut span = mounted.recorder.start(Opcode::Write);
            let result = span.store(|| {
                mounted.store.write(&caller, ino.0, offset, data)?;
                if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                    let change = Change {
                        drop_privileges: true,
                        ..Change::default()
                    };
                    mounted.store.setattr(&caller, ino.0, &change)?;
                }
                Ok(())
            });
            match result {
                Ok(()) => {
                    span.handled();
                    reply.written(data.len() as u32);
                }
                Err(error) => reply.error(failed(&mut span, error)),
            }
        };
        if self.store().is_slow(ino.0, Slow::Change) {
            let data = data.to_vec();
            self.answer(req, true, move |mounted| answer(mounted, &data));
        } else {
            answer(&self.mounted, data);
        }
    }

    fn flush(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        if !self.store().wants_close() {
            // A write is in the store when it returns, so close has nothing to add: `ENOSYS` tells the
            // kernel to stop asking.
            let mut span = self.start(Opcode::Flush);
            reply.error(failed(&mut span, Errno::NOSYS.into()));
            return;
        }
        let is_slow = self.store().is_slow(ino.0, Slow::Close);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Flush);
            let result = span.store(|| mounted.store.close(ino.0));
            reply_empty(&mut span, result, reply);
        });
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _span = self.start(Opcode::Release);
        reply.ok();
    }

    fn fsync(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let is_slow = self.store().is_slow(ino.0, Slow::Fsync);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Fsync);
            let result = span.store(|| mounted.store.fsync(ino.0, datasync));
            reply_empty(&mut span, result, reply);
        });
    }

    fn opendir(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.reply_opened(Opcode::Opendir, reply);
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut span = self.start(Opcode::Readdir);
        let result = self.list(&mut span, ino.0, offset, false, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            reply.add(
                INodeNo(entry.ino),
                entry.cookie,
                file_type(entry.kind),
                name,
            )
        });
        match result {
            Ok(()) => {
                span.handled();
                reply.ok();
            }
            Err(error) => reply.error(failed(&mut span, error)),
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
        let mut span = self.start(Opcode::Readdirplus);
        let mut listed = Vec::new();
        let result = self.list(&mut span, ino.0, offset, true, &mut |entry| {
            let Some(attr) = entry.attr else {
                return false;
            };
            let name = OsStr::from_bytes(entry.name);
            let ttl = self.policy.attr_ttl(self.store(), attr.ino);
            let attr = file_attr(&attr);
            let full = reply.add(attr.ino, entry.cookie, name, &ttl, &attr, GENERATION);
            // The kernel takes no reference on `.` and `..`.
            if !full && entry.cookie > DOT_DOT {
                listed.push(entry.ino);
            }
            full
        });
        match result {
            Ok(()) => {
                self.mounted.inodes.looked_up_all(&listed);
                span.handled();
                reply.ok();
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        let _span = self.start(Opcode::Releasedir);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        let is_slow = self.store().is_slow(ino.0, Slow::Fsync);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Fsyncdir);
            let result = span.store(|| mounted.store.fsync(ino.0, datasync));
            reply_empty(&mut span, result, reply);
        });
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let mut span = self.start(Opcode::Statfs);
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

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
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
        let (caller, name, value) = (caller(req), name.to_owned(), value.to_vec());
        let is_slow = self.is_slow_order(ino, &name);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Setxattr);
            let result = mode.and_then(|mode| {
                check_xattr_name(&name)?;
                if value.len() > XATTR_VALUE_MAX {
                    return Err(Errno::TOOBIG.into());
                }
                let store = &mounted.store;
                span.store(|| store.setxattr(&caller, ino.0, name.as_bytes(), &value, mode))
            });
            reply_empty(&mut span, result, reply);
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        let is_slow = self.is_slow_order(ino, &name);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Getxattr);
            let result = check_xattr_name(&name)
                .and_then(|()| span.store(|| mounted.store.getxattr(ino.0, name.as_bytes())));
            reply_xattr(&mut span, result, size, reply);
        });
    }

    fn listxattr(&self, _req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let mut span = self.start(Opcode::Listxattr);
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

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut span = self.start(Opcode::Removexattr);
        let result = check_xattr_name(name).and_then(|()| {
            span.store(|| {
                self.store()
                    .removexattr(&caller(req), ino.0, name.as_bytes())
            })
        });
        reply_empty(&mut span, result, reply);
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
        let mut span = self.start(Opcode::Create);
        let node = new_node(Kind::File, mode, 0);
        match self.create_node(&mut span, req, parent, name, &node) {
            Ok(attr) => {
                self.mounted.inodes.looked_up(attr.ino);
                let flags = if self.policy.direct_io {
                    FopenFlags::FOPEN_DIRECT_IO
                } else {
                    FopenFlags::FOPEN_KEEP_CACHE
                };
                let attr = file_attr(&attr);
                span.handled();
                reply.created(&self.policy.ttl, &attr, GENERATION, FileHandle(0), flags);
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let caller = caller(req);
        let is_slow = self.store().is_slow(ino.0, Slow::Change);
        self.answer(req, is_slow, move |mounted| {
            let mut span = mounted.recorder.start(Opcode::Fallocate);
            let result = allocate(mode).and_then(|how| {
                span.store(|| mounted.store.fallocate(&caller, ino.0, how, offset, length))
            });
            reply_empty(&mut span, result, reply);
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let mut span = self.start(Opcode::Lseek);
        if self.policy.writeback {
            // What the kernel has gathered would look like a hole: it takes the whole file for data instead.
            reply.error(failed(&mut span, Errno::NOSYS.into()));
            return;
        }
        let what = match whence {
            SEEK_DATA => Ok(Seek::Data),
            SEEK_HOLE => Ok(Seek::Hole),
            _ => Err(StoreError::from(Errno::INVAL)),
        };
        let result = what.and_then(|what| {
            let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
            span.store(|| self.store().seek(ino.0, offset, what))
        });
        match result {
            Ok(offset) => {
                span.handled();
                reply.offset(offset as i64);
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }
}
