//! Files whose content is not all here, as memory has them: who reads or writes a file needs no statement to know that
//! all of it is here.
//!
//! Memory is changed under the lock of the database, with the transaction that changes the tables: who holds that lock and
//! finds no stub here can read and write what the database has, until he lets go of it. What is only taken away
//! ([`Inner::let_go`]) may be late: who finds a stub that is none any more finds out when he fetches.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::Inner;
use super::fetch::PART;
use super::stub::{self, Stub};
use crate::sqlite::db::Db;
use crate::store::{Ino, Result};

/// For how long a read that waited in vain is answered as the one before it: the kernel reads ahead, and when that
/// fails it asks again at once for what was read, so that its caller would wait twice.
const SAME_READ: Duration = Duration::from_millis(100);

/// A file whose content is not all here yet.
#[derive(Debug)]
pub(super) struct Stubbed {
    pub(super) stub: Stub,
    parts: Mutex<BTreeSet<u64>>,
    /// Where its object is kept, if that was deleted: whole key and entity tag.
    pub(super) kept: OnceLock<(String, String)>,
    /// The checksums of the parts of a large file, where its writer has left them.
    pub(super) digests: OnceCell<Vec<String>>,
    /// When a read last waited in vain.
    timed_out: Mutex<Option<Instant>>,
    /// Held while fetching: whoever needs the same waits, and finds it here.
    pub(super) fetching: tokio::sync::Mutex<()>,
}

impl Stubbed {
    pub(super) fn new(stub: Stub, parts: Vec<u64>) -> Self {
        Self {
            stub,
            parts: Mutex::new(parts.into_iter().collect()),
            kept: OnceLock::new(),
            digests: OnceCell::new(),
            timed_out: Mutex::default(),
            fetching: tokio::sync::Mutex::new(()),
        }
    }

    fn timed_out(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.timed_out
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// A read has waited in vain.
    pub(super) fn time_out(&self) {
        *self.timed_out() = Some(Instant::now());
    }

    /// Whether the same read, in the kernel's eyes, has waited in vain.
    pub(super) fn has_just_timed_out(&self) -> bool {
        self.timed_out().is_some_and(|at| at.elapsed() < SAME_READ)
    }

    pub(super) fn parts(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> u64 {
        self.stub.count()
    }

    /// The parts that a range lies in.
    pub(super) fn parts_of(&self, range: &Range<u64>) -> Range<u64> {
        let end = range.end.min(self.stub.meta.size);
        if range.start >= end {
            return 0..0;
        }
        range.start / PART..end.div_ceil(PART)
    }

    /// Whether all of a range is here.
    pub(super) fn has(&self, range: &Range<u64>) -> bool {
        let parts = self.parts();
        self.parts_of(range).all(|part| parts.contains(&part))
    }
}

/// What a transaction has made of the content of a file.
pub(super) enum StubChange {
    /// It has to be fetched, but for some parts.
    Made {
        ino: Ino,
        stub: Stub,
        parts: Vec<u64>,
    },
    /// What is not here of it is to be fetched from another object, which holds the same.
    Followed(Ino, Stub),
    /// There is nothing to fetch.
    Gone(Ino),
}

impl StubChange {
    /// See [`stub::follow`].
    pub(super) fn follow(db: &Db, ino: Ino, key: &str) -> Result<Option<Self>> {
        let followed = stub::follow(db, ino, key)?;
        Ok(followed.map(|stub| Self::Followed(ino, stub)))
    }
}

impl Inner {
    pub(super) fn stub_of(&self, ino: Ino) -> Option<Arc<Stubbed>> {
        let stubs = self.stubs.read().unwrap_or_else(PoisonError::into_inner);
        stubs.get(&ino).map(Arc::clone)
    }

    pub(super) fn is_stub(&self, ino: Ino) -> bool {
        let stubs = self.stubs.read().unwrap_or_else(PoisonError::into_inner);
        stubs.contains_key(&ino)
    }

    fn stubs_mut(&self) -> RwLockWriteGuard<'_, HashMap<Ino, Arc<Stubbed>>> {
        self.stubs.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What only a fetch can tell apart: whether the content of an inode is all here.
    pub(super) fn is_here(&self, ino: Ino, range: &Range<u64>) -> bool {
        self.stub_of(ino).is_none_or(|stubbed| stubbed.has(range))
    }

    pub(super) fn is_current(&self, ino: Ino, stubbed: &Arc<Stubbed>) -> bool {
        self.stub_of(ino)
            .is_some_and(|now| Arc::ptr_eq(&now, stubbed))
    }

    pub(super) fn let_go(&self, ino: Ino, stubbed: &Arc<Stubbed>) {
        let mut all = self.stubs_mut();
        if all.get(&ino).is_some_and(|now| Arc::ptr_eq(now, stubbed)) {
            all.remove(&ino);
        }
    }

    /// Runs `work` in one transaction; what it says of stubs is in memory before anybody else gets at the database.
    pub(super) fn with_stubs<T>(
        &self,
        work: impl FnOnce(&Db, &mut Vec<StubChange>) -> Result<T>,
    ) -> Result<T> {
        let mut changes = Vec::new();
        let db = self.cache.db();
        let done = db.transaction(|db| work(db, &mut changes))?;
        self.show(changes);
        drop(db);
        Ok(done)
    }

    /// For who holds the lock of the database, after the transaction.
    fn show(&self, changes: Vec<StubChange>) {
        if changes.is_empty() {
            return;
        }
        let mut all = self.stubs_mut();
        for change in changes {
            match change {
                StubChange::Made { ino, stub, parts } => {
                    all.insert(ino, Arc::new(Stubbed::new(stub, parts)));
                }
                StubChange::Followed(ino, stub) => {
                    let Some(old) = all.get(&ino) else { continue };
                    let parts = old.parts().iter().copied().collect();
                    all.insert(ino, Arc::new(Stubbed::new(stub, parts)));
                }
                StubChange::Gone(ino) => {
                    all.remove(&ino);
                }
            }
        }
    }

    /// Takes what the tables say of a file.
    pub(super) fn reread_stub(&self, ino: Ino) -> Result<()> {
        let db = self.cache.db();
        let change = match stub::find(&db, ino)? {
            Some(stub) => StubChange::Made {
                ino,
                stub,
                parts: stub::parts(&db, ino)?,
            },
            None => StubChange::Gone(ino),
        };
        self.show(vec![change]);
        drop(db);
        Ok(())
    }

    /// A file is emptied, or gone: there is nothing to fetch of it.
    pub(super) fn forget_stub(&self, ino: Ino) {
        if self.is_stub(ino) {
            self.stubs_mut().remove(&ino);
        }
    }

    /// Changes with every part of a file that comes.
    pub(super) fn come(&self, ino: Ino) -> usize {
        self.stub_of(ino)
            .map_or(usize::MAX, |stubbed| stubbed.parts().len())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, AtomicI64, Ordering};

    use super::*;
    use crate::s3::apply::{Kept, News};
    use crate::s3::forget::Forget;
    use crate::s3::remote::Listed;
    use crate::s3::{AccessKey, ConflictPolicy, S3Config, S3Store, Secret, SyncMode, cache};
    use crate::store::{
        Allocate, Caller, Change, Kind, NewNode, ROOT, Seek, Store, StoreError, Timestamp,
    };

    /// Time passes between operations.
    fn caller() -> Caller {
        static NOW: AtomicI64 = AtomicI64::new(1);
        Caller {
            uid: 7,
            gid: 7,
            now: Timestamp(NOW.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// A mount with nothing that happens by itself.
    fn mount(access: &servers::Access, dir: &std::path::Path, writer: &str) -> S3Store {
        let config = S3Config {
            endpoint: access.endpoint.clone(),
            region: access.region.clone(),
            bucket: servers::BUCKET.to_owned(),
            prefix: String::new(),
            agent: "agent".to_owned(),
            writer: writer.to_owned(),
            path_style: true,
            access_key: AccessKey {
                id: access.access_key.clone(),
                secret: Secret(access.secret_key.clone()),
                token: None,
                source: "the test".to_owned(),
            },
            sync: SyncMode::Local,
            conflicts: ConflictPolicy::KeepBoth,
            front_matter_visible: false,
            keep_versions: false,
            poll: Duration::from_secs(3600),
            delay: Duration::from_secs(3600),
            timeout: Duration::from_secs(10),
            seal: None,
        };
        S3Store::open(config, &dir.join(format!("{writer}.db")), &caller()).unwrap()
    }

    fn write(store: &S3Store, name: &str, content: &[u8]) {
        let node = NewNode {
            kind: Kind::File,
            permissions: 0o644,
            rdev: 0,
            target: b"",
        };
        let ino = match store.lookup(ROOT, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => {
                store
                    .create(&caller(), ROOT, name.as_bytes(), &node)
                    .unwrap()
                    .ino
            }
        };
        store.write(&caller(), ino, 0, content).unwrap();
        let size = Change {
            size: Some(content.len() as u64),
            ..Change::default()
        };
        store.setattr(&caller(), ino, &size).unwrap();
    }

    fn content(store: &S3Store, ino: Ino) -> Vec<u8> {
        let mut out = Vec::new();
        store.read(ino, 0, 1 << 24, &mut out).unwrap();
        out
    }

    fn text(store: &S3Store, ino: Ino) -> String {
        String::from_utf8(content(store, ino)).unwrap()
    }

    /// Waits until a thread of this process waits for something.
    fn wait_until_blocked(thread: &AtomicI32) {
        loop {
            let id = thread.load(Ordering::Acquire);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"));
            let is_blocked = stat.is_ok_and(|stat| {
                let after_name = stat.rsplit(") ").next();
                after_name.is_some_and(|state| state.starts_with('S'))
            });
            if id != 0 && is_blocked {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// A file that Alice has read, and Bob has written since.
    struct Changed {
        a: S3Store,
        b: S3Store,
        ino: Ino,
        news: News,
        _server: servers::Server,
        _runtime: tokio::runtime::Runtime,
        _dir: tempfile::TempDir,
    }

    fn changed() -> Changed {
        changed_from(b"first", b"laterlater")
    }

    fn changed_from(first: &[u8], later: &[u8]) -> Changed {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let server = servers::Options {
            server: servers::ServerKind::Embedded.find().unwrap(),
            dir: dir.path().to_owned(),
            port: 0,
            rtt: Duration::ZERO,
            keys: None,
            launcher: Vec::new(),
        };
        let server = runtime.block_on(servers::start(server)).unwrap();
        let b = mount(server.access(), dir.path(), "bob");
        write(&b, "f", first);
        b.upload().unwrap();
        let a = mount(server.access(), dir.path(), "alice");
        let ino = a.lookup(ROOT, b"f").unwrap().ino;
        assert!(content(&a, ino) == first);
        write(&b, "f", later);
        b.upload().unwrap();
        let inner = &a.inner;
        let key = inner.key("f");
        let (head, meta) = a.runtime.block_on(async {
            let head = inner.remote.head(&key).await.unwrap();
            let meta = inner.meta_of(&key, &head).await.unwrap();
            (head, meta)
        });
        let news = News {
            listed: Listed {
                key,
                etag: head.etag,
                size: head.size,
                modified: head.modified,
            },
            key: "f".to_owned(),
            meta,
            target: Vec::new(),
            kept: Kept::default(),
        };
        Changed {
            a,
            b,
            ino,
            news,
            _server: server,
            _runtime: runtime,
            _dir: dir,
        }
    }

    /// Does `work` on a file while what others have made of it is being taken in: it begins when the file is here, and
    /// has its turn when that is a stub. Answers what `work` answered, and what is then in the file.
    fn amid_a_pull<T: Send>(work: impl FnOnce(&S3Store, Ino) -> Result<T> + Send) -> (T, String) {
        let changed = changed();
        let (a, b, ino, news) = (&changed.a, &changed.b, changed.ino, &changed.news);
        let thread = AtomicI32::new(0);
        let done = std::thread::scope(|scope| {
            a.inner
                .with_stubs(|db, stubs| {
                    let worker = scope.spawn(|| {
                        let id = rustix::thread::gettid().as_raw_nonzero().get();
                        thread.store(id, Ordering::Release);
                        work(a, ino).unwrap()
                    });
                    wait_until_blocked(&thread);
                    stubs.extend(cache::applying(db, |db| {
                        a.inner.apply(db, news, &mut Forget::default())
                    })?);
                    Ok::<_, StoreError>(worker)
                })
                .unwrap()
                .join()
                .unwrap()
        });
        a.upload().unwrap();
        b.pull().unwrap();
        let content = text(a, ino);
        let elsewhere = b.lookup(ROOT, b"f").unwrap().ino;
        assert_eq!(text(b, elsewhere), content);
        (done, content)
    }

    #[test]
    fn a_write_that_others_came_before_is_one_to_what_they_wrote() {
        let ((), content) = amid_a_pull(|a, ino| a.write(&caller(), ino, 2, b"!!"));
        assert_eq!(content, "la!!rlater");
        let change = Change {
            size: Some(3),
            ..Change::default()
        };
        let (attr, content) = amid_a_pull(|a, ino| a.setattr(&caller(), ino, &change));
        assert_eq!((attr.size, content.as_str()), (3, "lat"));
        let zero = Allocate::Zero { keep_size: true };
        let ((), content) = amid_a_pull(|a, ino| a.fallocate(&caller(), ino, zero, 0, 2));
        assert_eq!(content, "\0\0terlater");
    }

    #[test]
    fn a_read_that_others_came_before_is_one_of_what_they_wrote() {
        let (read, _) = amid_a_pull(|a, ino| Ok(text(a, ino)));
        assert_eq!(read, "laterlater");
        let (data, _) = amid_a_pull(|a, ino| a.seek(ino, 0, Seek::Data));
        assert_eq!(data, 0);
    }

    #[test]
    fn a_large_file_is_as_it_was_where_taking_in_others_comes_to_nothing() {
        for later in [vec![2; 400_000], vec![2; 290_000], vec![2; 1_000]] {
            let first = vec![1; 300_000];
            let changed = changed_from(&first, &later);
            let (a, ino, news) = (&changed.a, changed.ino, &changed.news);
            let failed = a.inner.with_stubs(|db, stubs| {
                stubs.extend(cache::applying(db, |db| {
                    a.inner.apply(db, news, &mut Forget::default())
                })?);
                Err::<(), _>(StoreError::from(crate::store::Errno::NOSPC))
            });
            assert!(failed.is_err());
            assert!(content(a, ino) == first);
            a.pull().unwrap();
            assert!(content(a, ino) == later);
        }
    }

    #[test]
    fn parts_that_were_here_of_another_version_are_fetched() {
        let mut changed = changed();
        let (a, ino) = (&changed.a, changed.ino);
        changed.news.kept = Kept {
            of: "what a read has replaced since".to_owned(),
            parts: vec![0],
        };
        let news = &changed.news;
        let applied = a.inner.with_stubs(|db, stubs| {
            stubs.extend(cache::applying(db, |db| {
                a.inner.apply(db, news, &mut Forget::default())
            })?);
            Ok(())
        });
        applied.unwrap();
        assert_eq!(text(a, ino), "laterlater");
    }

    /// Whether a file is a stub in the tables.
    fn is_stub(store: &S3Store, ino: Ino) -> bool {
        let found = store.inner.cache.transaction(|db| stub::find(db, ino));
        found.unwrap().is_some()
    }

    #[test]
    fn a_large_file_of_which_all_parts_are_here_is_no_stub() {
        let size = PART as usize + 1;
        let mut changed = changed_from(&vec![1; size], &vec![2; size]);
        let (a, ino) = (&changed.a, changed.ino);
        assert!(!is_stub(a, ino), "it was fetched in parts");
        let known = a.inner.cache.transaction(|db| cache::objects_of(db, ino));
        let known = known.unwrap().remove(0);
        // As far as this machine can tell, others have changed nothing of its content.
        changed.news.kept = Kept {
            of: known.etag,
            parts: vec![0, 1],
        };
        let (a, news) = (&changed.a, &changed.news);
        let applied = a.inner.with_stubs(|db, stubs| {
            stubs.extend(cache::applying(db, |db| {
                a.inner.apply(db, news, &mut Forget::default())
            })?);
            Ok(())
        });
        applied.unwrap();
        assert!(!is_stub(a, ino) && !a.inner.is_stub(ino));
        assert!(content(a, ino) == vec![1; size]);

        // As earlier builds could leave it.
        let left = a.inner.cache.transaction(|db| {
            let stub = Stub {
                key: "f".to_owned(),
                etag: news.listed.etag.clone(),
                size: news.listed.size,
                meta: news.meta.clone(),
            };
            stub::put(db, ino, &stub)?;
            stub::put_part(db, ino, 0)?;
            stub::put_part(db, ino, 1)
        });
        left.unwrap();
        let Changed {
            a,
            _server: server,
            _runtime: runtime,
            _dir: dir,
            ..
        } = changed;
        drop(a);
        let a = mount(server.access(), dir.path(), "alice");
        assert!(!is_stub(&a, ino) && !a.inner.is_stub(ino));
        drop(runtime);
    }

    #[test]
    fn a_file_that_is_emptied_while_others_change_it_stays_empty() {
        let empty = Change {
            size: Some(0),
            ..Change::default()
        };
        let (attr, content) = amid_a_pull(|a, ino| a.setattr(&caller(), ino, &empty));
        assert_eq!((attr.size, content.as_str()), (0, ""));
    }
}
