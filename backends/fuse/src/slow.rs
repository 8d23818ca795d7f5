//! Threads for requests that may take long, so that other requests do not wait.
//!
//! An idle thread stays for the next request, because starting a thread costs more than many answers.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long an idle thread waits for work before it ends.
const STAYS: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

/// The threads of one mount.
#[derive(Clone, Default)]
pub(super) struct SlowThreads {
    shared: Arc<SharedQueue>,
}

#[derive(Default)]
struct SharedQueue {
    waiting: Mutex<WorkQueue>,
    more: Condvar,
}

/// Queued work and idle threads; there is never more work than threads.
#[derive(Default)]
struct WorkQueue {
    work: VecDeque<Work>,
    threads: usize,
}

impl SlowThreads {
    /// Runs `work` on an idle or new thread.
    ///
    /// # Errors
    /// If no thread can be started; `work` is dropped.
    pub(super) fn run(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut waiting = self.shared.waiting.lock();
        if waiting.threads > waiting.work.len() {
            waiting.work.push_back(Box::new(work));
            drop(waiting);
            self.shared.more.notify_one();
            return Ok(());
        }
        drop(waiting);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("slow".to_owned());
        thread.spawn(move || {
            work();
            while let Some(work) = shared.next() {
                work();
            }
        })?;
        Ok(())
    }
}

impl SharedQueue {
    /// The next work for the calling thread; `None` after [`STAYS`] without any.
    fn next(&self) -> Option<Work> {
        let mut waiting = self.waiting.lock();
        waiting.threads += 1;
        self.more.wait_while_for(&mut waiting, |waiting| waiting.work.is_empty(), STAYS);
        waiting.threads -= 1;
        waiting.work.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn no_call_waits_for_another_and_threads_are_reused() {
        const MANY: usize = 8;
        let threads = SlowThreads::default();
        let (tell, told) = channel();
        let who = || std::thread::current().id();
        // The barrier needs all requests at once: with fewer threads than requests, none would end.
        let all = Arc::new(Barrier::new(MANY));
        for _ in 0..MANY {
            let (all, tell) = (Arc::clone(&all), tell.clone());
            let work = move || {
                all.wait();
                tell.send(who()).unwrap();
            };
            threads.run(work).unwrap();
        }
        let first: Vec<_> = told.iter().take(MANY).collect();
        while threads.shared.waiting.lock().threads < MANY {
            std::thread::yield_now();
        }
        threads.run(move || tell.send(who()).unwrap()).unwrap();
        assert!(first.contains(&told.recv().unwrap()));
    }
}
