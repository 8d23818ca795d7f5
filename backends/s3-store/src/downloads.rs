//! Downloads that callers share. A download belongs to the mount: a caller that gives up leaves it running, and the next
//! one joins it, or finds its result in the cache.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use fuse::store::{Errno, Result, StoreError};

/// How many downloads of a mount are under way at once; each holds its chunk in memory. Those that no caller waits for
/// any more count, too.
const AT_ONCE: usize = 32;

/// The result of a download, for every caller that waits for it.
type Outcome = std::result::Result<(), (Errno, String)>;

type DownloadMap<K> = Mutex<HashMap<K, watch::Receiver<Option<Outcome>>>>;

/// Downloads under way, by what they fetch.
#[derive(Debug)]
pub(super) struct Downloads<K> {
    running: Arc<DownloadMap<K>>,
    permits: Arc<Semaphore>,
}

impl<K> Default for Downloads<K> {
    fn default() -> Self {
        Self { running: Arc::default(), permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// Removes a download when it ends, however it does.
struct DownloadGuard<K: Eq + Hash>(Arc<DownloadMap<K>>, K);

impl<K: Eq + Hash> Drop for DownloadGuard<K> {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> Downloads<K> {
    /// Waits for the download of `key`, which is `work` on `runtime` unless one is under way. To drop the call ends only
    /// the wait.
    pub(super) async fn join(
        &self,
        runtime: &Handle,
        key: K,
        work: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        let mut outcome = self.started(runtime, key, work);
        let ended = outcome.wait_for(Option::is_some).await;
        let outcome = ended.ok().and_then(|outcome| outcome.clone());
        match outcome {
            Some(outcome) => outcome.map_err(|(errno, reason)| StoreError::storage(errno, reason)),
            None => Err(StoreError::storage(Errno::IO, "the download was aborted")),
        }
    }

    fn started(
        &self,
        runtime: &Handle,
        key: K,
        work: impl Future<Output = Result<()>> + Send + 'static,
    ) -> watch::Receiver<Option<Outcome>> {
        let mut running = self.running.lock();
        if let Some(outcome) = running.get(&key) {
            return outcome.clone();
        }
        let (sender, outcome) = watch::channel(None);
        running.insert(key.clone(), outcome.clone());
        let ended = DownloadGuard(Arc::clone(&self.running), key);
        let permits = Arc::clone(&self.permits);
        runtime.spawn(async move {
            // The semaphore is never closed.
            let _permit = permits.acquire().await;
            let done = work.await;
            // First, so that a caller that comes now looks into the cache.
            drop(ended);
            let done = done.map_err(|error| (error.errno, error.reason.unwrap_or_default()));
            // No caller may wait any more.
            let _ = sender.send(Some(done));
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    }

    #[test]
    fn a_caller_that_gives_up_leaves_the_download_to_the_next_one() {
        let (runtime, downloads) = (runtime(), Downloads::default());
        let starts = Arc::new(AtomicUsize::new(0));
        let ends = Arc::new(AtomicUsize::new(0));
        let may_end = Arc::new(AtomicBool::new(false));
        let work = || {
            let (starts, ends, may_end) = (Arc::clone(&starts), Arc::clone(&ends), Arc::clone(&may_end));
            async move {
                starts.fetch_add(1, Ordering::Relaxed);
                while !may_end.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                ends.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        };
        let handle = runtime.handle();
        let patient = |patience: u64| {
            let joined = downloads.join(handle, 7, work());
            runtime.block_on(async { tokio::time::timeout(Duration::from_millis(patience), joined).await })
        };
        // A caller has the answer a moment before the download is taken off the list.
        let wait_for_ends = |count: usize| {
            let began = Instant::now();
            while ends.load(Ordering::Relaxed) < count || !downloads.running.lock().is_empty() {
                assert!(began.elapsed() < Duration::from_secs(60), "it does not end");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        for _ in 0..3 {
            assert!(patient(20).is_err(), "the caller gives up");
        }
        may_end.store(true, Ordering::Relaxed);
        assert!(patient(60_000).unwrap().is_ok());
        wait_for_ends(1);
        assert_eq!(starts.load(Ordering::Relaxed), 1);
        assert_eq!(ends.load(Ordering::Relaxed), 1);
        // A download that no caller waits for ends, too.
        may_end.store(false, Ordering::Relaxed);
        assert!(patient(20).is_err());
        may_end.store(true, Ordering::Relaxed);
        wait_for_ends(2);
    }

    #[test]
    fn every_caller_gets_a_failure_and_the_next_one_tries_again() {
        let (runtime, downloads) = (runtime(), Downloads::default());
        let handle = runtime.handle();
        let fails = || async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err(StoreError::storage(Errno::TIMEDOUT, "late"))
        };
        let (one, two) = runtime
            .block_on(async { futures::join!(downloads.join(handle, 1, fails()), downloads.join(handle, 1, fails())) });
        for failed in [one, two] {
            assert_eq!(failed.unwrap_err().errno, Errno::TIMEDOUT);
        }
        let panics = async { panic!("on purpose") };
        let failed = runtime.block_on(downloads.join(handle, 1, panics));
        assert_eq!(failed.unwrap_err().errno, Errno::IO);
        let works = runtime.block_on(downloads.join(handle, 1, async { Ok(()) }));
        assert!(works.is_ok() && downloads.running.lock().is_empty());
    }
}
