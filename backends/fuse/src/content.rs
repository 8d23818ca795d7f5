//! Handlers of requests for the content of files.

use fuser::{
    FileHandle, INodeNo, OpenFlags, ReplyData, ReplyEmpty, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use rustix::fs::OFlags;

use crate::convert::{allocate, failed};
use crate::counters::{Opcode, Span};
use crate::front_end::{FrontEnd, MountState, reply_empty, reply_opened};
use crate::holes::HoleSearch;
use crate::store::{Change, Errno, Result, Seek, SlowCall, Store, StoreError};

/// The position of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WritePosition {
    At(u64),
    /// The end of the file, where the kernel last saw it: another host may have appended since.
    End(u64),
}

impl WritePosition {
    pub(super) fn of(offset: u64, flags: OpenFlags, write_flags: WriteFlags) -> Self {
        let appends = OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(OFlags::APPEND);
        // A page from the kernel's cache has a fixed offset, even if the writer appended.
        if appends && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            Self::End(offset)
        } else {
            Self::At(offset)
        }
    }
}

impl FrontEnd {
    pub(super) fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let (policy, caller, store) = (self.policy, self.caller(req), self.store());
        // Not `caller.uid`: the owner map may turn a plain user into stored user 0.
        let is_root = req.uid() == 0;
        let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let writes = flags & OFlags::ACCMODE != OFlags::RDONLY;
        // The kernel sends the flag only where the mount has asked for it.
        let truncates = flags.contains(OFlags::TRUNC);
        let open = move |store: &dyn Store| {
            let Some(files) = policy.open_files(store) else {
                return Ok(0);
            };
            let handle = files.open(ino.0, writes)?;
            let cut = Change { size: Some(0), drop_privileges: !is_root, ..Change::default() };
            if truncates && let Err(error) = files.setattr_handle(handle, &caller, ino.0, &cut) {
                files.release(handle);
                return Err(error);
            }
            Ok(handle)
        };
        let is_slow = writes && !policy.no_open && store.is_slow(ino.0, SlowCall::Open);
        self.answer(Opcode::Open, req, is_slow, move |mounted, mut span| {
            let opened = if policy.no_open { Err(Errno::NOSYS.into()) } else { span.store(|| open(&*mounted.store)) };
            reply_opened(&mut span, opened, policy.direct_io, reply);
        });
    }

    pub(super) fn read(
        &self,
        req: &Request,
        (ino, handle): (INodeNo, FileHandle),
        offset: u64,
        size: u32,
        reply: ReplyData,
    ) {
        thread_local! {
            // A thread answers one read at a time, so its reads share a buffer.
            static BUFFER: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let (policy, size) = (self.policy, size as usize);
        let is_slow = self.store().is_slow(ino.0, SlowCall::Read { offset, size });
        self.answer(Opcode::Read, req, is_slow, move |mounted, mut span| {
            BUFFER.with_borrow_mut(|buffer| {
                buffer.clear();
                let store = &*mounted.store;
                let read = span.store(|| match policy.open_files(store) {
                    Some(files) => files.read_handle(handle.0, ino.0, offset, size, buffer),
                    None => store.read(ino.0, offset, size, buffer),
                });
                match read {
                    Ok(()) => {
                        span.handled();
                        reply.data(buffer);
                    }
                    Err(error) => reply.error(failed(&mut span, error)),
                }
            });
        });
    }

    pub(super) fn write(
        &self,
        req: &Request,
        (ino, handle): (INodeNo, FileHandle),
        position: WritePosition,
        data: &[u8],
        write_flags: WriteFlags,
        reply: ReplyWrite,
    ) {
        let (policy, caller, pid) = (self.policy, self.caller(req), req.pid());
        let is_cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let cached = is_cached.then(|| self.mounted.cached_writes.begin());
        let answer = move |mounted: &MountState, mut span: Span<'_>, data: &[u8]| {
            let _until_answered = cached;
            let result = span.store(|| {
                let store = &*mounted.store;
                // As in Linux, the bits go before the content changes.
                if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                    mounted.drop_privileges(&caller, pid, ino.0)?;
                }
                match (position, policy.open_files(store)) {
                    (WritePosition::At(offset), Some(files)) => {
                        files.write_handle(handle.0, offset, data)?;
                    }
                    (WritePosition::End(_), Some(files)) => files.append_handle(handle.0, data)?,
                    (WritePosition::At(offset), None) => {
                        store.write(&caller, ino.0, offset, data)?;
                    }
                    (WritePosition::End(end), None) => store.append(&caller, ino.0, end, data)?,
                }
                Ok(())
            });
            match result {
                Ok(()) => {
                    span.handled();
                    reply.written(data.len() as u32);
                }
                Err(error) => {
                    if let WritePosition::At(offset) = position
                        && is_cached
                    {
                        let lost = &mounted.lost_writes;
                        lost.record(ino.0, offset, data.len(), &error);
                    }
                    reply.error(failed(&mut span, error));
                }
            }
        };
        let may_wait = [SlowCall::Approval, SlowCall::Change];
        if may_wait.iter().any(|call| self.store().is_slow(ino.0, *call)) {
            let data = data.to_vec();
            self.change_content(Opcode::Write, req, ino, move |mounted, span| {
                answer(mounted, span, &data);
            });
        } else {
            answer(&self.mounted, self.mounted.start(Opcode::Write), data);
        }
    }

    pub(super) fn flush(&self, req: &Request, (ino, handle): (INodeNo, FileHandle), reply: ReplyEmpty) {
        // Linux silently drops dirty pages of a broken connection (`fuse_send_writepage`). Only the
        // failure of this request makes `close` fail when the daemon is gone.
        if !self.store().wants_close() && !self.policy.writeback {
            // A completed write is in the store, so close has nothing to add. After `ENOSYS` the kernel
            // stops sending this request.
            let mut span = self.mounted.start(Opcode::Flush);
            reply.error(failed(&mut span, Errno::NOSYS.into()));
            return;
        }
        let is_slow = self.store().is_slow(ino.0, SlowCall::Close);
        self.answer(Opcode::Flush, req, is_slow, move |mounted, mut span| {
            let result = span.store(|| mounted.store.close(handle.0, ino.0));
            reply_empty(&mut span, result, reply);
        });
    }

    pub(super) fn release(&self, handle: FileHandle, reply: ReplyEmpty) {
        let mut span = self.mounted.start(Opcode::Release);
        if let Some(files) = self.policy.open_files(self.store()) {
            span.store(|| files.release(handle.0));
        }
        reply.ok();
    }

    /// Answers `ENOTTY`: Python checks at every open whether the file is a terminal.
    pub(super) fn ioctl(&self, reply: ReplyIoctl) {
        let mut span = self.mounted.start(Opcode::Ioctl);
        reply.error(failed(&mut span, Errno::NOTTY.into()));
    }

    pub(super) fn fsync(&self, req: &Request, (ino, handle): (INodeNo, FileHandle), datasync: bool, reply: ReplyEmpty) {
        let policy = self.policy;
        let is_slow = self.store().is_slow(ino.0, SlowCall::Fsync);
        self.answer(Opcode::Fsync, req, is_slow, move |mounted, mut span| {
            let store = &*mounted.store;
            let result = span.store(|| match policy.open_files(store) {
                Some(files) => files.fsync_handle(handle.0),
                None => store.fsync(ino.0, datasync),
            });
            reply_empty(&mut span, result, reply);
        });
    }

    pub(super) fn fallocate(
        &self,
        req: &Request,
        ino: INodeNo,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let (caller, pid) = (self.caller(req), req.pid());
        // Not `caller.uid`: the owner map may turn a plain user into stored user 0.
        let is_root = req.uid() == 0;
        self.change_content(Opcode::Fallocate, req, ino, move |mounted, mut span| {
            let result = allocate(mode).and_then(|how| {
                span.store(|| {
                    // This request has no FUSE_WRITE_KILL_SUIDGID.
                    if !is_root {
                        mounted.drop_privileges(&caller, pid, ino.0)?;
                    }
                    let store = &mounted.store;
                    store.fallocate(&caller, ino.0, how, offset, length)
                })
            });
            reply_empty(&mut span, result, reply);
        });
    }

    pub(super) fn lseek(&self, req: &Request, ino: INodeNo, offset: i64, whence: i32, reply: ReplyLseek) {
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let search = |target| {
            Ok(HoleSearch {
                ino: ino.0,
                target,
                offset: u64::try_from(offset).map_err(|_| Errno::NXIO)?,
                size_lags: self.policy.writeback,
            })
        };
        let search = match whence {
            SEEK_DATA => search(Seek::Data),
            SEEK_HOLE => search(Seek::Hole),
            _ => Err(StoreError::from(Errno::INVAL)),
        };
        let mut span = self.mounted.start(Opcode::Lseek);
        let asked = search.and_then(|search| {
            let (found, is_hole) = span.store(|| search.ask(self.store()))?;
            Ok((search, found, is_hole))
        });
        match asked {
            // Without a page cache there are no dirty pages.
            Ok((search, _, true)) if !self.policy.direct_io => {
                span.hand_over();
                self.answer(Opcode::Lseek, req, true, move |mounted, mut span| {
                    let store = &*mounted.store;
                    let write_back = || mounted.write_back(search.ino);
                    let found = span.store(|| search.settle(store, write_back));
                    reply_offset(&mut span, found, reply);
                });
            }
            asked => {
                let found = asked.and_then(|(_, found, _)| found.ok_or(Errno::NXIO.into()));
                reply_offset(&mut span, found, reply);
            }
        }
    }
}

fn reply_offset(span: &mut Span<'_>, found: Result<u64>, reply: ReplyLseek) {
    match found {
        Ok(offset) => {
            span.handled();
            reply.offset(offset as i64);
        }
        Err(error) => reply.error(failed(span, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_program_appends_goes_to_the_end() {
        let append = OpenFlags(OFlags::APPEND.bits().cast_signed());
        let (none, cached) = (WriteFlags::empty(), WriteFlags::FUSE_WRITE_CACHE);
        assert_eq!(WritePosition::of(7, append, none), WritePosition::End(7));
        assert_eq!(WritePosition::of(7, OpenFlags(1), none), WritePosition::At(7));
        assert_eq!(WritePosition::of(7, append, cached), WritePosition::At(7));
    }
}
