//! [`Store`] for [`AgentMemory`]: the files of [`crate::sqlite`], and answers to requests.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, KernelCache, NewNode, RenameMode, Result, Seek,
    SlowCall, StatFs, Store, XattrMode, slice,
};

use crate::answers::is_answer;
use crate::{AgentMemory, EmbeddingState, metadata};

/// `EPERM` for an answer, which cannot be changed.
fn check_file(ino: Ino) -> Result<()> {
    if is_answer(ino) {
        return Err(Errno::PERM.into());
    }
    Ok(())
}

/// `ENOTDIR` for an answer.
fn check_dir(ino: Ino) -> Result<()> {
    if is_answer(ino) {
        return Err(Errno::NOTDIR.into());
    }
    Ok(())
}

impl Store for AgentMemory {
    fuse::forward! { self.files =>
        fn places_appends(&self) -> bool;
        fn may_have_xattrs(&self) -> bool;
        fn sync(&self) -> Result<()>;
        fn wants_close(&self) -> bool;
        fn close(&self, handle: u64, ino: Ino) -> Result<()>;
        fn is_slow(&self, ino: Ino, call: SlowCall) -> bool;
        fn attach(&self, kernel: Arc<dyn KernelCache>);
        fn detach(&self);
        fn discard_new(&self);
        fn statfs(&self) -> Result<StatFs>;
    }

    fn kind(&self) -> &'static str {
        "agent-memory"
    }

    fn coherence(&self) -> Coherence {
        // This holds for files. The kernel caches no names of answers.
        Coherence::Exclusive
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_dir(parent)?;
        match self.lookup_file(parent, name) {
            Err(error) if error.errno == Errno::NOENT => self.answer(parent, name)?.ok_or(error),
            found => found,
        }
    }

    fn keeps_missing(&self, name: &[u8]) -> bool {
        crate::keeps_missing(name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        if is_answer(ino) {
            return Ok(self.answer_attr(&self.kept_answer(ino)?));
        }
        self.files.getattr(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        check_file(ino)?;
        self.changed(self.files.setattr(caller, ino, change))
    }

    fn parent(&self, dir: Ino) -> Result<Ino> {
        check_dir(dir)?;
        self.files.parent(dir)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        if is_answer(ino) {
            return Err(Errno::INVAL.into());
        }
        self.files.readlink(ino)
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        check_dir(parent)?;
        self.check_new_name(parent, name)?;
        self.changed(self.files.create(caller, parent, name, node))
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_file(ino)?;
        check_dir(parent)?;
        self.check_new_name(parent, name)?;
        self.changed(self.files.link(caller, ino, parent, name))
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        check_dir(parent)?;
        self.check_old_name(parent, name)?;
        self.changed(self.files.unlink(caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        check_dir(parent)?;
        self.check_old_name(parent, name)?;
        let removed = self.files.rmdir(caller, parent, name);
        self.index.paths.clear();
        self.changed(removed)
    }

    fn rename(
        &self,
        caller: &Caller,
        (from, from_name): (Ino, &[u8]),
        (to, to_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Result<Option<Ino>> {
        check_dir(from)?;
        check_dir(to)?;
        self.check_old_name(from, from_name)?;
        if self.lookup_file(to, to_name).is_ok() {
            self.check_old_name(to, to_name)?;
        } else {
            self.check_new_name(to, to_name)?;
        }
        let renamed = self.files.rename(caller, (from, from_name), (to, to_name), mode);
        // Clear the cached paths first: a thread that sees the change must not use old paths.
        self.index.paths.clear();
        self.changed(renamed)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        if is_answer(ino) {
            self.answers.let_go(ino);
            return Ok(());
        }
        self.files.reclaim(ino)
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        if is_answer(ino) {
            let answer = self.kept_answer(ino)?;
            out.extend_from_slice(slice(&answer.text, offset, size));
            return Ok(());
        }
        self.files.read(ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        check_file(ino)?;
        self.changed(self.files.write(caller, ino, offset, data))
    }

    fn append(&self, caller: &Caller, ino: Ino, end: u64, data: &[u8]) -> Result<()> {
        check_file(ino)?;
        self.changed(self.files.append(caller, ino, end, data))
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        check_file(ino)?;
        self.changed(self.files.fallocate(caller, ino, how, offset, length))
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        if !is_answer(ino) {
            return self.files.seek(ino, offset, what);
        }
        what.without_holes(offset, self.kept_answer(ino)?.text.len() as u64)
    }

    fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
        check_dir(dir)?;
        let others = self.privacy.filter(|privacy| privacy.all == dir);
        self.files.readdir(dir, after, with_attr, &mut |entry| {
            if others.is_some_and(|privacy| entry.ino != privacy.own) {
                return ControlFlow::Continue(());
            }
            emit(entry)
        })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if is_answer(ino) {
            return Err(Errno::NODATA.into());
        }
        self.files.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        if is_answer(ino) {
            return Ok(Vec::new());
        }
        self.files.listxattr(ino)
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        check_file(ino)?;
        if let Err((errno, reason)) = metadata::check(name, value) {
            return Err(self.refuse(errno, name, &reason));
        }
        self.changed(self.files.setxattr(caller, ino, name, value, mode))
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        check_file(ino)?;
        self.changed(self.files.removexattr(caller, ino, name))
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        if is_answer(ino) {
            return Ok(());
        }
        self.files.fsync(ino, data_only)
    }

    fn finish(&self) -> Result<()> {
        self.end_index();
        self.files.finish()
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // The cost of changes counts with the changes, not with the request after them.
        let waited = self.index.refresh().unwrap_or_else(|error| {
            // It was logged when it began.
            if self.index.behind().is_none() {
                tracing::warn!(%error, "could not index notes; the next request retries");
            }
            0
        });
        let mut counters = self.files.counters();
        counters.extend([
            ("notes", self.notes()),
            ("notes_indexed", self.index.indexed()),
            ("notes_waited", waited as u64),
            ("searches", load(&self.counters.searches)),
            ("recalls", load(&self.counters.recalls)),
            ("requests_refused", load(&self.counters.refused)),
        ]);
        if let Some(meaning) = &*self.index.meaning.read() {
            counters.insert("notes_embedded", meaning.embedded());
        }
        let waiting = match self.embeddings() {
            // The number is unknown while the model loads, but it must not look like zero.
            EmbeddingState::Loading => self.notes().max(1),
            EmbeddingState::Ready { waiting, .. } => waiting,
            EmbeddingState::Off(_) | EmbeddingState::Failed(_) => 0,
        };
        counters.insert("waiting_to_be_embedded", waiting);
        if let Ok(waiting) = self.index.waiting() {
            counters.insert("waiting_to_be_indexed", waiting);
        }
        counters
    }
}
