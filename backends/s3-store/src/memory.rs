//! A mounted memory that answers `:search`, `:recall` and the other requests of `agent-memory`.
//!
//! The first request of a cache makes the index, in the cache's database; a memory that is never asked pays nothing for it.
//! Adoptions and downloads mark what they change, as local changes do. Content that is still in the bucket is fetched by
//! [`Prefetch`]; answers count what is missing.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use agent_memory::{AgentMemory, Embeddings, NoteFiles, is_indexed, is_request, keeps_missing};
use fuse::store::{
    Allocation, Attr, Caller, Change, Coherence, EntrySink, Errno, Ino, KernelCache, Kind, NewNode, RenameMode, Result,
    Seek, SlowCall, StatFs, Store, StoreError, Timestamp, XattrMode,
};
use parking_lot::Mutex;
use s3::config::S3Config;
use sqlite::tables::Db;

use crate::prefetch::Prefetch;
use crate::{OpenError, OpenOptions, S3Store, tables};

impl NoteFiles for S3Store {
    fn lacks(&self, db: &Db, ino: Ino) -> Result<bool> {
        // The index has the first 256 KiB, which are in the first chunk.
        Ok(self.inner.placeholders.contains(ino) && !tables::missing(db, ino, 0, 0)?.is_empty())
    }

    fn lacking(&self, db: &Db) -> Result<Option<u64>> {
        let any = !self.inner.placeholders.is_empty();
        Ok(Some(if any { tables::without_beginning(db)? } else { 0 }))
    }
}

/// An agent's memory in a bucket, mounted, with an index of its notes once a program has asked for it.
pub struct S3Memory {
    files: Arc<S3Store>,
    owner: Caller,
    embeddings: Embeddings,
    indexed: OnceLock<Arc<AgentMemory>>,
    prefetch: Mutex<Option<Prefetch>>,
}

impl S3Memory {
    /// As [`S3Store::open`]. Starts the index if the cache has one.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        config: S3Config,
        file: &Path,
        owner: &Caller,
        options: OpenOptions,
        embeddings: Embeddings,
    ) -> std::result::Result<Self, OpenError> {
        let files = Arc::new(S3Store::open(config, file, owner, options)?);
        let memory = Self { files, owner: *owner, embeddings, indexed: OnceLock::new(), prefetch: Mutex::default() };
        let in_cache = |error: StoreError| OpenError::Cache(format!("the cache {}: {error}", file.display()));
        let has_index = is_indexed(&memory.files.inner.store.db()).map_err(in_cache)?;
        if has_index && let Err(error) = memory.index() {
            // The files do not need it, and the next request tries again.
            tracing::warn!("the index of notes: {error}");
        }
        Ok(memory)
    }

    /// The files without the index.
    pub fn files(&self) -> &S3Store {
        &self.files
    }

    /// The memory with its index, which is made if there is none.
    fn index(&self) -> Result<&Arc<AgentMemory>> {
        // Held while the index is made: others wait for it.
        let mut prefetch = self.prefetch.lock();
        if let Some(indexed) = self.indexed.get() {
            return Ok(indexed);
        }
        let inner = &self.files.inner;
        let (files, rows) = (Arc::clone(&self.files) as Arc<dyn NoteFiles>, Arc::clone(&inner.store));
        let mut memory = AgentMemory::over(files, rows, &self.owner, None, Box::new(Timestamp::now))?;
        if let Err(reason) = memory.set_embeddings(self.embeddings.clone()) {
            tracing::warn!("recall uses full text only: {reason}");
        }
        let memory = Arc::new(memory);
        inner.index.set(Some(&memory));
        // What was adopted or downloaded since it was indexed.
        memory.follow();
        let started = Prefetch::start(Arc::clone(&self.files));
        *prefetch =
            Some(started.map_err(|error| StoreError::storage(Errno::IO, format!("starting a thread: {error}")))?);
        Ok(self.indexed.get_or_init(|| memory))
    }

    /// The files, with the index if there is one.
    fn store(&self) -> &dyn Store {
        match self.indexed.get() {
            Some(indexed) => &**indexed,
            None => &*self.files,
        }
    }

    /// Whether a name that no file has is a request.
    fn is_request(&self, parent: Ino, name: &[u8]) -> bool {
        let store = &self.files.inner.store;
        is_request(name, |file| store.lookup(parent, file).is_ok_and(|attr| attr.kind == Kind::File))
    }
}

impl Drop for S3Memory {
    fn drop(&mut self) {
        // Gives up the downloads that the thread waits for.
        self.files.engine.stop();
        drop(self.prefetch.lock().take());
        self.files.inner.index.set(None);
    }
}

impl Store for S3Memory {
    fuse::forward! { self.files =>
        fn kind(&self) -> &'static str;
        fn coherence(&self) -> Coherence;
        fn places_appends(&self) -> bool;
        fn may_have_xattrs(&self) -> bool;
        fn sync(&self) -> Result<()>;
        fn wants_close(&self) -> bool;
        fn close(&self, handle: u64, ino: Ino) -> Result<()>;
        fn is_slow(&self, ino: Ino, call: SlowCall) -> bool;
        fn has_slow_reads(&self) -> bool;
        fn attach(&self, kernel: Arc<dyn KernelCache>);
        fn discard_new(&self);
        fn statfs(&self) -> Result<StatFs>;
    }

    fuse::forward! { self.store() =>
        fn getattr(&self, ino: Ino) -> Result<Attr>;
        fn setattr(&self, caller: &Caller, ino: Ino, change: &Change) -> Result<Attr>;
        fn parent(&self, dir: Ino) -> Result<Ino>;
        fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
        fn create(&self, caller: &Caller, parent: Ino, name: &[u8], node: &NewNode<'_>) -> Result<Attr>;
        fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;
        fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>>;
        fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> Result<Option<Ino>>;
        fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<Option<Ino>>;
        fn reclaim(&self, ino: Ino) -> Result<()>;
        fn read(&self, ino: Ino, offset: u64, size: usize, out: &mut Vec<u8>) -> Result<()>;
        fn write(&self, caller: &Caller, ino: Ino, offset: u64, data: &[u8]) -> Result<()>;
        fn append(&self, caller: &Caller, ino: Ino, end: u64, data: &[u8]) -> Result<()>;
        fn fallocate(&self, caller: &Caller, ino: Ino, how: Allocation, offset: u64, length: u64) -> Result<()>;
        fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64>;
        fn readdir(&self, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()>;
        fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
        fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
        fn setxattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;
        fn removexattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<()>;
        fn fsync(&self, ino: Ino, data_only: bool) -> Result<()>;
        fn finish(&self) -> Result<()>;
        fn counters(&self) -> BTreeMap<&'static str, u64>;
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        match self.store().lookup(parent, name) {
            Err(error)
                if error.errno == Errno::NOENT && self.indexed.get().is_none() && self.is_request(parent, name) =>
            {
                self.index()?.lookup(parent, name)
            }
            found => found,
        }
    }

    fn keeps_missing(&self, name: &[u8]) -> bool {
        keeps_missing(name)
    }

    fn detach(&self) {
        self.files.detach();
        // A download that it waits for has been given up.
        drop(self.prefetch.lock().take());
    }
}
