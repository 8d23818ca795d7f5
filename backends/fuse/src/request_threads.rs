//! Counts the requests that each thread has answered, to know when no thread has read a request without handling it.

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

thread_local! {
    // A thread answers the requests of one mount.
    static ANSWERED: OnceCell<Arc<AtomicU64>> = const { OnceCell::new() };
}

/// The threads that read the requests of one mount.
#[derive(Clone, Debug)]
pub(super) struct RequestThreads {
    threads: usize,
    /// One count for each thread that has answered a request.
    answered: Arc<Mutex<Vec<Arc<AtomicU64>>>>,
}

impl RequestThreads {
    pub(super) fn new(threads: usize) -> Self {
        Self { threads, answered: Arc::default() }
    }

    /// Number of threads.
    pub(super) fn len(&self) -> usize {
        self.threads
    }

    /// Counts a request that the calling thread has answered, or has handed over to another thread.
    pub(super) fn count_answer(&self) {
        ANSWERED.with(|answered| {
            let answered = answered.get_or_init(|| {
                let answered = Arc::default();
                self.answered.lock().push(Arc::clone(&answered));
                answered
            });
            answered.fetch_add(1, Ordering::Release);
        });
    }

    /// The requests that each thread has answered; a thread that has answered none is not listed.
    pub(super) fn answered(&self) -> Vec<u64> {
        let answered = self.answered.lock();
        answered.iter().map(|count| count.load(Ordering::Acquire)).collect()
    }

    /// Whether every thread has answered a request since [`RequestThreads::answered`] returned `before`.
    pub(super) fn all_answered_since(&self, before: &[u64]) -> bool {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        let answered = self.answered();
        answered.len() >= self.threads && answered.iter().zip(before).all(|(count, before)| *count > before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_read_a_request_and_not_answered_it_is_missed() {
        let threads = RequestThreads::new(2);
        let (first, second) = (threads.clone(), threads.clone());
        std::thread::scope(|scope| {
            let (tell, told) = std::sync::mpsc::channel();
            let (done, is_done) = std::sync::mpsc::channel();
            scope.spawn(move || {
                for () in told {
                    first.count_answer();
                    done.send(()).unwrap();
                }
            });
            let answer_elsewhere = || {
                tell.send(()).unwrap();
                is_done.recv().unwrap();
            };
            answer_elsewhere();
            assert!(!threads.all_answered_since(&[]), "the second thread may have read a request");
            second.count_answer();
            assert!(threads.all_answered_since(&[]));
            let before = threads.answered();
            for _ in 0..3 {
                answer_elsewhere();
                assert!(!threads.all_answered_since(&before));
            }
            second.count_answer();
            assert!(threads.all_answered_since(&before));
            drop(tell);
        });
    }
}
