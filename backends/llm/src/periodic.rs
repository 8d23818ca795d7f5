//! Work that a thread of its own repeats until its owner is dropped.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The thread. Dropping this ends it, and waits for the work that it has begun.
#[derive(Debug)]
pub(crate) struct Periodic {
    /// Its end wakes the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Periodic {
    /// Does `work` each time `pause` has passed.
    pub(crate) fn start(name: &str, pause: Duration, mut work: impl FnMut() + Send + 'static) -> io::Result<Self> {
        let (end, ended) = channel();
        let run = move || {
            while ended.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                work();
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a thread that repeats work panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_repeated_until_its_owner_is_dropped_and_never_after() {
        let (tell, told) = channel();
        let periodic = Periodic::start("test", Duration::from_millis(1), move || {
            let _ = tell.send(());
        });
        let periodic = periodic.unwrap();
        for _ in 0..3 {
            told.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        drop(periodic);
        while told.try_recv().is_ok() {}
        assert!(told.recv().is_err(), "the thread has ended");
    }
}
