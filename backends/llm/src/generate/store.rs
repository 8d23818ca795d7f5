//! [`Store`] for [`GenerateStore`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use fuse::UNSAVED;
use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, KernelCache, NewNode, ROOT, RenameMode, Result,
    Seek, SlowCall, StatFs, Store, StoreError, XattrMode, slice,
};
use models::Cancel;

use super::{FileRequest, GENERATOR, GenerateStore, Kernel, PROMPT, PROMPT_MAX};

impl Store for GenerateStore {
    fuse::forward! { self.shared.files =>
        fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
        fn getattr(&self, ino: Ino) -> Result<Attr>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;
        fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()>;
        fn statfs(&self) -> Result<StatFs>;
    }

    fn discard_new(&self) {
        if let Some(save) = &self.shared.save {
            save.discard_new_lock(true);
        }
    }

    fn is_lost_without_sync(&self) -> bool {
        self.shared.save.is_some()
    }

    fn kind(&self) -> &'static str {
        "llm-generate"
    }

    fn coherence(&self) -> Coherence {
        Coherence::Exclusive
    }

    fn attr_coherence(&self, ino: Ino) -> Coherence {
        if self.waits(ino) || self.shared.live.contains_key(&ino) { Coherence::Uncached } else { Coherence::Exclusive }
    }

    fn getattr_handle(&self, _handle: u64, ino: Ino) -> Result<Attr> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let mut attr = self.getattr(ino)?;
            let content = self.show(ino, generator)?;
            attr.size = content.len() as u64;
            self.shared.tell_kernel(ino, &content);
            return Ok(attr);
        }
        self.make(ino)?;
        self.getattr(ino)
    }

    fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr> {
        if change.size.is_some() {
            // `echo 1 > cache_clear` truncates the control file first; its content is not stored.
            if self.shared.live.contains_key(&ino) {
                return self.getattr(ino);
            }
            self.is_theirs_now(caller, ino);
        }
        self.changed(self.shared.files.setattr(caller, ino, change))
    }

    fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr> {
        let mut names = self.shared.names.write();
        let attr = self.changed(self.shared.files.create(caller, parent, name, node))?;
        names.add(attr.ino, parent, name);
        Ok(attr)
    }

    fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.check_not_control(ino)?;
        let mut names = self.shared.names.write();
        let attr = self.changed(self.shared.files.link(caller, ino, parent, name))?;
        names.add(ino, parent, name);
        Ok(attr)
    }

    fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, || self.shared.files.unlink(caller, parent, name))
    }

    fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, || self.shared.files.rmdir(caller, parent, name))
    }

    fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>> {
        self.check_name_not_control(from.0, from.1)?;
        self.check_name_not_control(to.0, to.1)?;
        let mut names = self.shared.names.write();
        let source = self.lookup(from.0, from.1)?.ino;
        let target = self.lookup(to.0, to.1).ok().map(|attr| attr.ino);
        let orphan = self.changed(self.shared.files.rename(caller, from, to, mode))?;
        if target != Some(source) {
            names.rename(source, target, from, to, mode);
        }
        Ok(orphan)
    }

    fn reclaim(&self, ino: Ino) -> Result<()> {
        if self.getattr(ino).is_ok_and(|attr| attr.nlink == 0) {
            self.shared.waiting.write().remove(&ino);
            self.shown.lock().remove(&ino);
        }
        self.shared.files.reclaim(ino)
    }

    fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let shown = self.shown.lock().get(&ino).cloned();
            let content = match shown {
                Some(content) => content,
                None => self.show(ino, generator)?,
            };
            out.extend_from_slice(slice(&content, offset, size));
            return Ok(());
        }
        self.make(ino)?;
        self.shared.files.read(ino, offset, size, out)
    }

    fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()> {
        if let Some(generator) = self.shared.live.get(&ino) {
            let generator = self.shared.generators.get(generator).ok_or(Errno::IO)?;
            let path = self.shared.names.read().path(ino).unwrap_or_default();
            let file = FileRequest { path: &path, about: None, around: &*self.shared, cancel: &Cancel::default() };
            generator.accept(&file, data)?;
            let said = String::from_utf8_lossy(data).trim().to_owned();
            self.shared.asker.log(&format!("{path} was set to {said}"));
            return Ok(());
        }
        self.is_theirs_now(caller, ino);
        self.changed(self.shared.files.write(caller, ino, offset, data))
    }

    fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()> {
        if self.shared.live.contains_key(&ino) {
            return Err(Errno::INVAL.into());
        }
        self.is_theirs_now(caller, ino);
        let files = &self.shared.files;
        self.changed(files.fallocate(caller, ino, how, offset, length))
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        if ino == ROOT && name == UNSAVED.as_bytes() {
            let unsaved = self.shared.save().err();
            return Ok(unsaved
                .map_or_else(Vec::new, |error| error.reason.unwrap_or_else(|| error.errno.to_string()).into_bytes()));
        }
        if name == b"user.llmfs.state" {
            let generator = self.shared.files.getxattr(ino, GENERATOR.as_bytes());
            return match (self.waits(ino), generator.is_ok()) {
                (true, _) => Ok(b"waiting".to_vec()),
                (false, true) => Ok(b"generated".to_vec()),
                (false, false) => Err(Errno::NODATA.into()),
            };
        }
        self.shared.files.getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut names = self.shared.files.listxattr(ino)?;
        if names.iter().any(|name| name == GENERATOR.as_bytes()) {
            names.push(b"user.llmfs.state".to_vec());
        }
        Ok(names)
    }

    fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name == PROMPT.as_bytes() {
            if value.len() > PROMPT_MAX {
                let why = format!("a prompt has at most {PROMPT_MAX} bytes");
                return Err(StoreError::storage(Errno::FBIG, why));
            }
            if let Some(waits) = self.shared.waiting.write().get_mut(&ino) {
                waits.about = Some(String::from_utf8_lossy(value).into_owned());
            }
        }
        if name == b"user.llmfs.state" {
            return Err(Errno::PERM.into());
        }
        if name == GENERATOR.as_bytes() {
            mode.check(self.shared.files.getxattr(ino, name).is_ok())?;
            self.set_generator(ino, value)?;
        }
        self.changed(self.shared.files.setxattr(caller, ino, name, value, mode))?;
        if let (Some(Kernel(kernel)), true) = (self.shared.kernel.get(), name == GENERATOR.as_bytes()) {
            // Without this, the kernel would serve a read from the cached size 0.
            kernel.invalidate_inode(ino);
        }
        Ok(())
    }

    fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.changed(self.shared.files.removexattr(caller, ino, name))?;
        if name == GENERATOR.as_bytes() {
            self.shared.waiting.write().remove(&ino);
        }
        Ok(())
    }

    fn fsync(&self, _ino: Ino, _data_only: bool) -> Result<()> {
        self.shared.save()
    }

    fn sync(&self) -> Result<()> {
        self.shared.save()
    }

    fn is_slow(&self, ino: Ino, call: SlowCall) -> bool {
        match call {
            SlowCall::Read { .. } => self.waits(ino),
            SlowCall::SizeForRead => self.attr_coherence(ino) == Coherence::Uncached,
            SlowCall::Fsync | SlowCall::Xattr => self.shared.save.is_some(),
            _ => false,
        }
    }

    fn has_slow_reads(&self) -> bool {
        true
    }

    fn attach(&self, kernel: Arc<dyn KernelCache>) {
        // Called once.
        let _ = self.shared.kernel.set(Kernel(kernel));
    }

    fn counters(&self) -> BTreeMap<&'static str, u64> {
        let mut counters = self.shared.asker.counters();
        let (hits, misses) = self.shared.cache.hits_and_misses();
        counters.insert("cache-hits", hits);
        counters.insert("cache-misses", misses);
        counters.insert("cache-saved-tokens", self.shared.cache.saved_tokens());
        let context = self.shared.context_tokens.load(Ordering::Relaxed);
        counters.insert("context-tokens-estimated", context);
        counters.insert("generated", self.shared.generated.load(Ordering::Relaxed));
        counters.insert("waiting", self.shared.waiting.read().len() as u64);
        counters
    }
}
