//! Handlers of requests for directory listings.

use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use fuser::{INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyOpen, Request};

use crate::convert::{failed, file_type};
use crate::counters::{Opcode, Span};
use crate::front_end::{FrontEnd, reply_empty, reply_opened};
use crate::names::GENERATION;
use crate::policy::attr_ttl;
use crate::store::{DirEntry, Errno, Ino, Kind, Result, SlowCall};

/// The cookies of `.` and `..`.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl FrontEnd {
    /// Passes a listing to `add` from `offset` on, `.` and `..` first; `add` returns true when full.
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
                let ino = if cookie == DOT { dir } else { store.parent(dir)? };
                let attr = with_attr.then(|| store.getattr(ino)).transpose()?;
                let dot = DirEntry { name, ino, kind: Kind::Directory, cookie, attr };
                if add(dot) {
                    return Ok(());
                }
            }
            let cookies = &self.mounted.cookies;
            let after = if offset <= DOT_DOT { 0 } else { cookies.widen(dir, offset)? };
            let mut listing = cookies.listing(dir, add);
            let mut taken = Ok(());
            store.readdir(dir, after, with_attr, &mut |entry| {
                match listing.take(entry) {
                    Ok(flow) => return flow,
                    Err(error) => taken = Err(error),
                }
                ControlFlow::Break(())
            })?;
            taken?;
            listing.finish()
        })
    }

    pub(super) fn opendir(&self, reply: ReplyOpen) {
        let mut span = self.mounted.start(Opcode::Opendir);
        let opened = if self.policy.no_open { Err(Errno::NOSYS.into()) } else { Ok(0) };
        reply_opened(&mut span, opened, false, reply);
    }

    pub(super) fn readdir(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectory) {
        let mut span = self.mounted.start(Opcode::Readdir);
        let result = self.list(&mut span, ino.0, offset, false, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            reply.add(INodeNo(entry.ino), entry.cookie, file_type(entry.kind), name)
        });
        match result {
            Ok(()) => {
                span.handled();
                reply.ok();
            }
            Err(error) => reply.error(failed(&mut span, error)),
        }
    }

    pub(super) fn readdirplus(&self, ino: INodeNo, offset: u64, mut reply: ReplyDirectoryPlus) {
        let mut span = self.mounted.start(Opcode::Readdirplus);
        let _counting = self.mounted.counting();
        let mut listed = Vec::new();
        let result = self.list(&mut span, ino.0, offset, true, &mut |entry| {
            let Some(attr) = entry.attr else {
                return false;
            };
            let name = OsStr::from_bytes(entry.name);
            let ttl = attr_ttl(self.store(), attr.ino);
            let attr = self.mounted.file_attr(&attr);
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

    pub(super) fn releasedir(&self, reply: ReplyEmpty) {
        let _span = self.mounted.start(Opcode::Releasedir);
        reply.ok();
    }

    pub(super) fn fsyncdir(&self, req: &Request, ino: INodeNo, datasync: bool, reply: ReplyEmpty) {
        let is_slow = self.store().is_slow(ino.0, SlowCall::Fsync);
        self.answer(Opcode::Fsyncdir, req, is_slow, move |mounted, mut span| {
            let result = span.store(|| mounted.store.fsync(ino.0, datasync));
            reply_empty(&mut span, result, reply);
        });
    }
}
