//! Fetching the missing chunks of placeholders.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::interrupt::requester_gave_up;
use fuse::store::{Errno, Ino, Result, StoreError};
use futures::{StreamExt, stream};
use network::limits;
use parking_lot::{Mutex, MutexGuard};
use s3::session::fetch;
use s3::tree::{CHUNK, Chunk};
use sqlite::HEAD;
use sqlite::tables::{Db, nodes};

use crate::index_link::IndexLink;
use crate::{GIVE_UP_EVERY, Inner, S3Store, adopt, session_error, tables};

/// How many chunks of one read are fetched at once; each is held in memory.
const AT_ONCE: usize = 2;

/// How often a read tries to fetch content that others replace meanwhile.
const ATTEMPTS: u32 = 100;

/// How long a slow failure answers for the same file: the kernel sends a failed READ of readahead a second time, and the
/// caller would wait for two time limits.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The last fetch that failed after a long wait.
#[derive(Debug, Default)]
pub(super) struct LastFailure(Mutex<Option<(Ino, Instant, Errno, String)>>);

impl LastFailure {
    fn recent(&self, ino: Ino) -> Option<StoreError> {
        let last = self.0.lock();
        let (failed, at, errno, reason) = last.as_ref()?;
        let is_recent = *failed == ino && at.elapsed() < REMEMBERED;
        is_recent.then(|| StoreError::storage(*errno, reason))
    }

    /// Notes the failure of a fetch that began at `began`. A quick failure, or one that the caller caused, is not kept.
    fn note(&self, ino: Ino, began: Instant, error: &StoreError) {
        if began.elapsed() >= REMEMBERED && error.errno != Errno::INTR {
            let mut last = self.0.lock();
            let reason = error.reason.clone().unwrap_or_default();
            *last = Some((ino, Instant::now(), error.errno, reason));
        }
    }
}

/// The first and the last index of the chunks that a range in bytes touches, up to the largest possible file.
fn chunks(range: &Range<u64>) -> (u64, u64) {
    if range.is_empty() { (1, 0) } else { (range.start / CHUNK, (range.end - 1).min(i64::MAX as u64) / CHUNK) }
}

impl S3Store {
    /// Whether the bytes of a range are here.
    pub(super) fn is_here(&self, ino: Ino, range: &Range<u64>) -> bool {
        if !self.inner.placeholders.contains(ino) {
            return true;
        }
        let (first, last) = chunks(range);
        let missing = tables::missing(&self.inner.store.db(), ino, first, last);
        missing.is_ok_and(|missing| missing.is_empty())
    }

    /// The store's lock, with a range of a file here for as long as it is held.
    pub(super) fn hold(&self, ino: Ino, range: Range<u64>) -> Result<MutexGuard<'_, Db>> {
        self.hold_of_size(ino, |_| range.clone())
    }

    /// As [`S3Store::hold`], for a write of a range: also holds the last chunk, if the file grows.
    pub(super) fn hold_for_write(&self, ino: Ino, range: Range<u64>) -> Result<MutexGuard<'_, Db>> {
        self.hold_of_size(ino, |size| {
            if range.end > size { range.start.min(size.saturating_sub(1))..range.end } else { range.clone() }
        })
    }

    /// As [`S3Store::hold`], with the range that depends on the file's size at that moment.
    pub(super) fn hold_of_size(&self, ino: Ino, range: impl Fn(u64) -> Range<u64>) -> Result<MutexGuard<'_, Db>> {
        for _ in 0..ATTEMPTS {
            let db = self.inner.store.db();
            if !self.inner.placeholders.contains(ino) {
                return Ok(db);
            }
            let (first, last) = chunks(&range(nodes::get(&db, ino)?.size));
            let missing = tables::missing(&db, ino, first, last)?;
            if missing.is_empty() {
                return Ok(db);
            }
            drop(db);
            if let Some(error) = self.last_failure.recent(ino) {
                return Err(error);
            }
            let began = Instant::now();
            self.fetch(ino, missing).inspect_err(|error| self.last_failure.note(ino, began, error))?;
        }
        let reason = "other writers replace the file faster than it can be fetched";
        Err(StoreError::storage(Errno::IO, reason))
    }

    fn fetch(&self, ino: Ino, missing: Vec<(u64, Chunk)>) -> Result<()> {
        let inner = &self.inner;
        let _pending = inner.kernel.reads.begin(ino);
        inner.counters.fetches.fetch_add(1, Ordering::Relaxed);
        let runtime = self.runtime.handle();
        runtime.block_on(async {
            let gets = missing.into_iter().map(|(at, chunk)| {
                let work = download(Arc::clone(inner), ino, at, chunk);
                self.downloads.join(runtime, (ino, at, chunk), work)
            });
            let mut gets = std::pin::pin!(stream::iter(gets).buffer_unordered(AT_ONCE));
            loop {
                match tokio::time::timeout(GIVE_UP_EVERY, gets.next()).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(got)) => got?,
                    // The downloads go on.
                    Err(_) if requester_gave_up() || inner.is_ending.load(Ordering::Acquire) => {
                        return Err(Errno::INTR.into());
                    }
                    Err(_) => {}
                }
            }
        })
    }
}

/// Fetches a chunk into its file, within the time that its length has.
async fn download(inner: Arc<Inner>, ino: Ino, at: u64, chunk: Chunk) -> Result<()> {
    let patience = inner.config.timeout + Duration::from_secs(u64::from(chunk.length) / limits::SLOWEST);
    let got = tokio::time::timeout(patience, fetch(&inner.objects, &chunk)).await;
    let bytes = match got {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(error)) => {
            inner.counters.failures.fetch_add(1, Ordering::Relaxed);
            return Err(session_error(&error));
        }
        Err(_) => {
            let reason = format!("the bucket has not answered within {patience:?}");
            return Err(StoreError::storage(Errno::TIMEDOUT, reason));
        }
    };
    // The thread of the runtime serves the other downloads.
    let filled = tokio::task::spawn_blocking(move || inner.fill(ino, at, &chunk, &bytes));
    let panicked = |_| StoreError::storage(Errno::IO, "writing a chunk into the cache panicked");
    filled.await.map_err(panicked)?
}

impl Inner {
    /// Writes a fetched chunk into its file, unless another took its place meanwhile. What lies in the tail is durable before
    /// the tables have it: otherwise a power loss leaves zeros there, which the mount might upload.
    fn fill(&self, ino: Ino, at: u64, chunk: &Chunk, bytes: &[u8]) -> Result<()> {
        let is_wanted = |db: &Db| -> Result<bool> { Ok(tables::missing(db, ino, at, at)? == [(at, *chunk)]) };
        let write =
            |db: &Db| if is_wanted(db)? { adopt::fill(db, &self.owner, ino, (at, chunk), bytes) } else { Ok(()) };
        let is_in_head = at * CHUNK + u64::from(chunk.length) <= HEAD;
        if !is_in_head {
            self.store.transaction(write)?;
            self.store.sync_tail(ino)?;
        }
        let db = self.store.db();
        let is_whole = db.transaction(|db| {
            if is_in_head {
                write(db)?;
            }
            if is_wanted(db)? {
                tables::clear_missing(db, ino, at, false)?;
                IndexLink::filled(db, ino)?;
            }
            Ok(!tables::is_placeholder(db, ino)?)
        })?;
        if is_whole {
            self.placeholders.write().remove(&ino);
        }
        // With the lock: the next request sees that the content is here, and has to index it first.
        self.index.follow();
        drop(db);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fuse::interrupt::on_behalf_of;
    use fuse::store::{ROOT, Store};
    use s3::config::{S3Config, Secret};
    use s3::credentials::{AccessKey, Credentials};
    use servers::{Embedded, Proxy, ServerAccess};

    use tokio::runtime::Runtime;

    use super::super::OpenOptions;
    use super::*;
    use crate::testing::{FILE, OWNER, config};

    fn open(access: &ServerAccess, endpoint: String, cache: &Path, writer: &str) -> S3Store {
        let key = AccessKey {
            id: access.access_key.clone(),
            secret: Secret(access.secret_key.clone()),
            token: None,
            source: "the test".to_owned(),
        };
        let config = S3Config {
            region: access.region.clone(),
            credentials: Credentials::Key(key),
            timeout: Duration::from_secs(60),
            ..config(endpoint, servers::BUCKET, writer)
        };
        S3Store::open(config, cache, &OWNER, OpenOptions::default()).unwrap()
    }

    #[test]
    fn a_read_that_is_interrupted_again_and_again_gets_its_chunk() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let (_server, access) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let access = ServerAccess::random(listener.local_addr().unwrap().port()).unwrap();
            let server = Embedded::serve(listener, &dir.path().join("data"), &access).unwrap();
            servers::create_bucket(&access, servers::BUCKET).await.unwrap();
            (server, access)
        });
        let content = vec![b'x'; 3_000_000];
        let here = open(&access, access.endpoint.clone(), &dir.path().join("a.db"), "a");
        let ino = here.create(&OWNER, ROOT, b"long", &FILE).unwrap().ino;
        here.write(&OWNER, ino, 0, &content).unwrap();
        here.engine.commit().unwrap();
        // Each answer takes longer than the reader has before the next signal.
        let upstream = access.endpoint.strip_prefix("http://").unwrap().parse().unwrap();
        let far = Proxy::start(0, upstream, Duration::from_millis(300)).unwrap();
        let endpoint = format!("http://{}", far.address());
        let there = open(&access, endpoint, &dir.path().join("b.db"), "b");
        let ino = there.lookup(ROOT, b"long").unwrap().ino;
        let (mut read, mut interrupted) = (Vec::new(), 0);
        let began = Instant::now();
        // A thread that does not exist has given up.
        while let Err(error) = on_behalf_of(u32::MAX, || there.read(ino, 0, content.len(), &mut read)) {
            assert_eq!(error.errno, Errno::INTR);
            interrupted += 1;
            assert!(began.elapsed() < Duration::from_secs(60), "no progress");
        }
        assert!(interrupted > 0 && read == content, "{interrupted}");
        // The file has one chunk, which was fetched once.
        let gets = there.inner.requests()["s3_get"];
        there.read(ino, 0, 100, &mut read).unwrap();
        assert_eq!(there.inner.requests()["s3_get"], gets);
    }
}
