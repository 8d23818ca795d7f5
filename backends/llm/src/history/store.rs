//! [`Store`] for [`HistoryStore`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, NewNode, RenameMode, Result, Seek, SlowCall,
    StatFs, Store, XattrMode, slice,
};

use super::HistoryStore;
use super::operation::Operation;
use crate::ERROR;

impl Store for HistoryStore {
    fuse::forward! { self.shared.reference =>
        fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
        fn getattr(&self, ino: Ino) -> Result<Attr>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;
        fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()>;
        fn statfs(&self) -> Result<StatFs>;
    }

    fn discard_new(&self) {
        self.shared.history.lock().log.discard_new();
    }

    fn kind(&self) -> &'static str {
        "llm-history"
    }

    fn coherence(&self) -> Coherence {
        // The kernel's page cache must not answer reads: content comes from the model.
        Coherence::Uncached
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        let change = *change;
        self.change(caller, Operation::SetAttr { ino, change })?.attr()
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let operation = Operation::Create {
            parent,
            name: name.to_vec(),
            kind: node.kind,
            permissions: node.permissions,
            rdev: node.rdev,
            target: node.target.to_vec(),
        };
        self.change(caller, operation)?.attr()
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let name = name.to_vec();
        self.change(caller, Operation::Link { ino, parent, name })?.attr()
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let name = name.to_vec();
        let applied = self.change(caller, Operation::Unlink { parent, name })?;
        Ok(applied.orphan)
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        let name = name.to_vec();
        let applied = self.change(caller, Operation::Rmdir { parent, name })?;
        Ok(applied.orphan)
    }

    fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        let operation =
            Operation::Rename { from: from.0, from_name: from.1.to_vec(), to: to.0, to_name: to.1.to_vec(), mode };
        Ok(self.change(caller, operation)?.orphan)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        let is_gone = self.getattr(ino).is_ok_and(|attr| attr.nlink == 0);
        if is_gone {
            self.shared.answers.lock().remove(&ino);
            self.shared.failures.lock().remove(&ino);
        }
        self.shared.reference.reclaim(ino)
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        let length = self.length();
        let known = self.shared.answers.lock().get(&ino).filter(|(at, _)| offset > 0 && *at == length).cloned();
        let content = match known {
            Some((_, content)) => content,
            None => {
                let shared = Arc::clone(&self.shared);
                let asked = self.flights.join((ino, length), move |cancel| shared.content(ino, cancel));
                self.shared.note(ino, &asked);
                asked?
            }
        };
        out.extend_from_slice(slice(&content, offset, size));
        Ok(())
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        let data = data.to_vec();
        self.change(caller, Operation::Write { ino, offset, data })?;
        Ok(())
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        let operation = Operation::Allocate { ino, how, offset, length };
        self.change(caller, operation)?;
        Ok(())
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if name == ERROR.as_bytes() {
            let failure = self.shared.failure(ino).map(String::into_bytes);
            return failure.ok_or_else(|| Errno::NODATA.into());
        }
        self.shared.reference.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.shared.reference.listxattr(ino)?;
        if self.shared.failure(ino).is_some() {
            names.push(ERROR.into());
        }
        Ok(names)
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name == ERROR.as_bytes() {
            return Err(Errno::PERM.into());
        }
        let operation = Operation::SetXattr { ino, name: name.to_vec(), value: value.to_vec(), mode };
        self.change(caller, operation)?;
        Ok(())
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        let name = name.to_vec();
        self.change(caller, Operation::RemoveXattr { ino, name })?;
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.sync()
    }

    fn sync(&self) -> Result<()> {
        self.shared.history.lock().log.sync()
    }

    fn is_slow(&self, _ino: Ino, call: SlowCall) -> bool {
        match call {
            SlowCall::Read { .. } => true,
            SlowCall::Approval => self.shared.options.policy.is_some(),
            _ => false,
        }
    }

    fn has_slow_reads(&self) -> bool {
        true
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.shared.asker.counters();
        counters.insert("log-operations", self.length());
        counters.insert("log-cut", self.shared.log_cut.load(Ordering::Relaxed));
        counters.insert("refused", self.shared.refused.load(Ordering::Relaxed));
        counters
    }
}
