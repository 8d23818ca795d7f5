//! State and dispatch that all requests of one mount share: store, counters, threads, panics.
//!
//! The handlers of single requests are in the other modules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use fuser::{FileAttr, FileHandle, FopenFlags, INodeNo, Notifier, ReplyEmpty, ReplyOpen, Request};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::cached_writes::CachedWrites;
use crate::connection::MountEntry;
use crate::convert::{caller, failed, file_attr};
use crate::cookies::Cookies;
use crate::counters::{Opcode, Recorder, Span};
use crate::inodes::Inodes;
use crate::interrupt;
use crate::lost_writes::LostWrites;
use crate::owner::{OwnerMap, StoredOwner};
use crate::page_writeback::{PageWriteback, WritebackParts};
use crate::panics::contain;
use crate::policy::CachePolicy;
use crate::request_threads::RequestThreads;
use crate::slow::SlowThreads;
use crate::store::{Attr, Caller, Change, Ino, Kind, Result, SlowCall, Store};
use crate::watch_events::WatchEvents;

fn without_group_bit(attr: &Attr, is_in_group: impl FnOnce(u32) -> bool) -> Option<u16> {
    const SET_GROUP_ID: u16 = 0o2000;
    const GROUP_EXECUTES: u16 = 0o010;
    let is_bare = attr.kind != Kind::Directory && attr.permissions & (SET_GROUP_ID | GROUP_EXECUTES) == SET_GROUP_ID;
    (is_bare && !is_in_group(attr.gid)).then_some(attr.permissions & !SET_GROUP_ID)
}

/// The supplementary groups of a thread, which the kernel does not send. `None` of a thread that is not in this namespace.
fn groups_of(pid: u32) -> Option<Vec<u32>> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:"))?;
    Some(groups.split_whitespace().filter_map(|group| group.parse().ok()).collect())
}

/// The state that a mount shares with its control socket.
pub(crate) struct MountState {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) recorder: Recorder,
    pub(crate) inodes: Inodes,
    pub(crate) lost_writes: LostWrites,
    pub(super) cookies: Cookies,
    /// The kernel gathers writes: it may know a larger size of a file than the store.
    writeback: bool,
    /// Sends invalidations to the kernel; set before the first request.
    pub(super) notifier: OnceLock<Notifier>,
    /// The mount; set before the first request that asks for it.
    pub(super) place: OnceLock<MountEntry>,
    pub(super) watch_events: WatchEvents,
    /// Writes from the kernel's page cache.
    pub(super) cached_writes: CachedWrites,
    pub(super) request_threads: RequestThreads,
    page_writeback: PageWriteback,
    /// Read-locked from a store's call that answers with an inode until the kernel's new reference is counted.
    /// [`MountState::forget`] needs the write lock, so the store forgets no inode in between.
    pub(super) counting: RwLock<()>,
    /// Inodes without references, which the store has not yet forgotten.
    unreferenced: Mutex<Vec<Ino>>,
    /// `None` shows owners as they are stored.
    owner: Option<OwnerMap>,
    /// The next request panics: `ctxbench fault` tests how a mount survives a bug.
    pub(crate) panics_next: AtomicBool,
}

impl MountState {
    /// `writeback`: the mount uses the kernel's writeback cache. `threads` read its requests.
    pub(crate) fn new(store: Arc<dyn Store>, writeback: bool, threads: usize) -> Self {
        Self {
            store,
            recorder: Recorder::new(),
            inodes: Inodes::default(),
            lost_writes: LostWrites::default(),
            cookies: Cookies::default(),
            writeback,
            notifier: OnceLock::new(),
            place: OnceLock::new(),
            watch_events: WatchEvents::default(),
            cached_writes: CachedWrites::default(),
            request_threads: RequestThreads::new(threads),
            page_writeback: PageWriteback::default(),
            counting: RwLock::new(()),
            unreferenced: Mutex::default(),
            owner: None,
            panics_next: AtomicBool::new(false),
        }
    }

    /// Shows files of a stored owner as those of this process's user.
    pub(crate) fn with_owner(self, stored: Option<StoredOwner>) -> Self {
        let owner = stored.map(OwnerMap::new);
        Self { owner, ..self }
    }

    /// The stored user for one that the kernel names.
    pub(super) fn stored_uid(&self, uid: u32) -> u32 {
        let owner = self.owner.as_ref();
        owner.map_or(uid, |owner| owner.stored_uid(uid))
    }

    /// The stored group for one that the kernel names.
    pub(super) fn stored_gid(&self, gid: u32) -> u32 {
        let owner = self.owner.as_ref();
        owner.map_or(gid, |owner| owner.stored_gid(gid))
    }

    /// Attributes for the kernel. A regular file that may have content has at least one block: programs such as GNU tar
    /// take a file of 0 blocks for one hole without asking, although a shared mapping may have dirty pages of it.
    pub(super) fn file_attr(&self, attr: &Attr) -> FileAttr {
        let mut found = match &self.owner {
            None => file_attr(attr),
            Some(owner) => file_attr(&owner.shown(attr)),
        };
        // With the writeback cache, the kernel extends a file without asking for its blocks again.
        if attr.kind == Kind::File && (attr.size > 0 || self.writeback) {
            found.blocks = found.blocks.max(1);
        }
        found
    }

    /// Has the kernel write its dirty pages back, and waits until the store has them. False if some of an inode's may not
    /// have reached the store.
    ///
    /// Never call this on a thread that answers requests.
    pub(super) fn write_back(&self, ino: Ino) -> bool {
        match self.try_write_back() {
            Ok(()) => !self.lost_writes.contains(ino),
            Err(reason) => {
                tracing::warn!(ino, %reason, "the kernel could not write back dirty pages: the whole file is reported as data");
                false
            }
        }
    }

    /// As [`MountState::write_back`], of every inode, before the mount is detached.
    pub(super) fn write_back_all(&self) {
        if let Err(reason) = self.try_write_back() {
            tracing::error!(
                "the kernel could not write back dirty pages ({reason}): what programs have stored through memory maps may be lost"
            );
        }
    }

    fn try_write_back(&self) -> std::result::Result<(), String> {
        let mount = self.place.get().ok_or("the mount is not in the table of mounts")?;
        self.page_writeback.wait(|| WritebackParts {
            mount: mount.clone(),
            writes: self.cached_writes.clone(),
            threads: self.request_threads.clone(),
        })
    }

    /// Invalidates the kernel's attributes of an inode, and none of its pages. It never waits for another
    /// request.
    pub(super) fn invalidate_attributes(&self, ino: Ino) {
        let told = (self.notifier.get()).map(|notifier| notifier.inval_inode(INodeNo(ino), -1, 0));
        if let Some(Err(error)) = told {
            tracing::error!(ino, %error, "could not invalidate changed attributes in the kernel");
        }
    }

    /// Clears set-user-ID and set-group-ID, as [`MountState::without_group_bit`] says, before a change by a caller without
    /// privileges.
    ///
    /// The kernel leaves that to the daemon, and keeps its cached mode until an invalidation.
    pub(super) fn drop_privileges(&self, caller: &Caller, pid: u32, ino: Ino) -> Result<()> {
        let mut attr = self.store.getattr(ino)?;
        let permissions = self.without_group_bit(caller, pid, &attr);
        let (change, before) = (Change { permissions, ..Change::DROP_PRIVILEGES }, attr.permissions);
        change.apply(&mut attr, caller.now);
        if attr.permissions != before {
            self.store.setattr(caller, ino, &change)?;
            self.invalidate_attributes(ino);
        }
        Ok(())
    }

    /// The permissions without a set-group-ID that does not let the group execute, if a change by an unprivileged caller
    /// clears it: the caller, the thread `pid`, is not in the file's group (`setattr_should_drop_sgid` in Linux).
    pub(super) fn without_group_bit(&self, caller: &Caller, pid: u32, attr: &Attr) -> Option<u16> {
        without_group_bit(attr, |gid| self.is_in_group(caller, pid, gid).unwrap_or(false))
    }

    /// Whether the caller, the thread `pid`, may be in a group; true if its groups are not known.
    pub(super) fn may_be_in_group(&self, caller: &Caller, pid: u32, gid: u32) -> bool {
        self.is_in_group(caller, pid, gid).unwrap_or(true)
    }

    /// Whether the caller, the thread `pid`, is in a group; `None` where its groups are not known.
    fn is_in_group(&self, caller: &Caller, pid: u32, gid: u32) -> Option<bool> {
        if caller.gid == gid {
            return Some(true);
        }
        Some(groups_of(pid)?.iter().any(|group| self.stored_gid(*group) == gid))
    }

    /// Starts timing a request; panics if the control socket has requested it.
    pub(super) fn start(&self, opcode: Opcode) -> Span<'_> {
        let span = self.recorder.start(opcode);
        let panics = &self.panics_next;
        // The load comes first: unlike the swap, it costs nothing in the usual case.
        assert!(
            !(panics.load(Ordering::Relaxed) && panics.swap(false, Ordering::Relaxed)),
            "this panic was asked for, by the control socket"
        );
        span
    }

    /// Reclaims inodes that were unlinked while open and that the kernel did not forget.
    pub(crate) fn reclaim_orphans(&self) {
        for ino in self.inodes.take_orphans() {
            self.reclaim(ino);
        }
    }

    /// Keeps the store from forgetting inodes until the guard is dropped.
    pub(super) fn counting(&self) -> RwLockReadGuard<'_, ()> {
        self.counting.read()
    }

    /// Lets the store forget an inode without references. A request that is answering with an inode may answer with
    /// this one: then the inode stays in `unreferenced` until a later call.
    pub(super) fn forget(&self, ino: Ino) {
        let mut waiting = self.unreferenced.lock();
        waiting.push(ino);
        if let Some(_alone) = self.counting.try_write() {
            waiting.retain(|ino| !self.inodes.is_referenced(*ino));
            self.store.forget(&waiting);
            waiting.clear();
        }
    }

    pub(super) fn reclaim(&self, ino: Ino) {
        if let Err(error) = self.store.reclaim(ino) {
            tracing::warn!(ino, %error, "could not reclaim an unlinked inode");
        }
        // Another request may be answering with this inode: `forget` then keeps it for a later call.
        self.forget(ino);
    }
}

/// The front end of one mount.
pub(crate) struct FrontEnd {
    pub(super) mounted: Arc<MountState>,
    pub(super) policy: CachePolicy,
    slow: SlowThreads,
}

impl FrontEnd {
    pub(crate) fn new(mounted: Arc<MountState>, policy: CachePolicy) -> Self {
        Self { mounted, policy, slow: SlowThreads::default() }
    }

    /// The requester, as the store sees it.
    pub(super) fn caller(&self, req: &Request) -> Caller {
        let caller = caller(req);
        let owner = self.mounted.owner.as_ref();
        owner.map_or(caller, |owner| owner.stored(caller))
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.mounted.store
    }

    /// Answers a request on this thread, or on its own thread if it `is_slow`.
    ///
    /// Other requests do not wait for a slow one, and it ends when its requester gives up.
    pub(super) fn answer(
        &self,
        opcode: Opcode,
        request: &Request,
        is_slow: bool,
        answer: impl FnOnce(&MountState, Span<'_>) + Send + 'static,
    ) {
        if !is_slow {
            return answer(&self.mounted, self.mounted.start(opcode));
        }
        let mounted = Arc::clone(&self.mounted);
        let requester = request.pid();
        let answer = move || {
            interrupt::on_behalf_of(requester, || {
                contain(opcode, || answer(&mounted, mounted.start(opcode)));
            });
        };
        if let Err(error) = self.slow.run(answer) {
            // Dropping the closure has dropped the reply, which answers EIO.
            tracing::error!(%error, "could not start a thread for a request that waits");
        }
    }

    /// Makes a change of `ino`, or of names in it.
    ///
    /// A change that needs approval waits for it on its own thread, until its requester is interrupted.
    pub(super) fn change(
        &self,
        opcode: Opcode,
        req: &Request,
        ino: INodeNo,
        make: impl FnOnce(&MountState, Span<'_>) + Send + 'static,
    ) {
        let is_slow = self.store().is_slow(ino.0, SlowCall::Approval);
        self.answer(opcode, req, is_slow, make);
    }

    /// As [`FrontEnd::change`], for a change that may have to hydrate the present content first.
    pub(super) fn change_content(
        &self,
        opcode: Opcode,
        req: &Request,
        ino: INodeNo,
        make: impl FnOnce(&MountState, Span<'_>) + Send + 'static,
    ) {
        let is_slow = |call| self.store().is_slow(ino.0, call);
        let is_slow = is_slow(SlowCall::Approval) || is_slow(SlowCall::Change);
        self.answer(opcode, req, is_slow, make);
    }
}

pub(super) fn reply_opened(span: &mut Span<'_>, opened: Result<u64>, direct_io: bool, reply: ReplyOpen) {
    let flags = if direct_io { FopenFlags::FOPEN_DIRECT_IO } else { FopenFlags::empty() };
    match opened {
        Ok(handle) => {
            span.handled();
            reply.opened(FileHandle(handle), flags);
        }
        Err(error) => reply.error(failed(span, error)),
    }
}

pub(super) fn reply_empty(span: &mut Span<'_>, result: Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => {
            span.handled();
            reply.ok();
        }
        Err(error) => reply.error(failed(span, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ROOT, Timestamp};

    #[test]
    fn a_group_bit_without_execution_goes_with_a_change_from_outside_of_the_group() {
        let owner = Caller { uid: 1, gid: 7, now: Timestamp(1) };
        let after = |kind, permissions, groups: &[u32]| {
            let attr = Attr::new(ROOT + 1, kind, permissions, &owner);
            without_group_bit(&attr, |gid| groups.contains(&gid))
        };
        assert_eq!(after(Kind::File, 0o2767, &[8]), Some(0o767));
        assert_eq!(after(Kind::File, 0o6666, &[]), Some(0o4666));
        assert_eq!(after(Kind::File, 0o2767, &[8, 7]), None, "as in Linux, the group keeps it");
        assert_eq!(after(Kind::File, 0o2777, &[]), None, "it lets the group execute: the store clears it");
        assert_eq!(after(Kind::File, 0o4767, &[]), None);
        assert_eq!(after(Kind::Directory, 0o2767, &[]), None);
    }

    #[test]
    fn the_groups_of_this_process_are_those_that_the_kernel_names() {
        let mut groups = groups_of(std::process::id()).unwrap();
        let groups_now = rustix::process::getgroups().unwrap();
        let mut expected: Vec<u32> = groups_now.into_iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        expected.sort_unstable();
        assert_eq!(groups, expected);
        assert_eq!(groups_of(0), None, "it is not in this namespace");
    }
}
