//! What the kernel has to forget, told by a thread of its own: the kernel may make whoever tells it wait for an
//! answer of this very mount, which must not be what nobody else can give.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::store::{Ino, KernelCache};

/// How long an inode that is being fetched is left alone.
const FETCH_PATIENCE: Duration = Duration::from_secs(60);

/// How often who waits for an inode is looked after.
const AGAIN: Duration = Duration::from_millis(1);

/// How long [`Forgetting::settle`] waits for a kernel that is busy.
const PATIENCE: Duration = Duration::from_secs(1);

/// What changed without the kernel's doing.
#[derive(Debug, Default)]
pub(super) struct Forget {
    pub(super) inodes: Vec<Ino>,
    pub(super) names: Vec<(Ino, Vec<u8>)>,
}

/// Inodes that reads are waiting for the bucket of. The kernel has locked their pages until these reads are
/// answered: who tells it to forget them waits for as long, and if this process is killed meanwhile, for ever.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<HashMap<Ino, u32>>);

/// One such read.
pub(super) struct WaitingRead<'a>(&'a Waiting, Ino);

impl Waiting {
    fn counts(&self) -> MutexGuard<'_, HashMap<Ino, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin(&self, ino: Ino) -> WaitingRead<'_> {
        *self.counts().entry(ino).or_default() += 1;
        WaitingRead(self, ino)
    }

    fn waits_for(&self, ino: Ino) -> bool {
        self.counts().contains_key(&ino)
    }
}

impl Drop for WaitingRead<'_> {
    fn drop(&mut self) {
        let mut counts = self.0.counts();
        if let Some(count) = counts.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.1);
            }
        }
    }
}

/// The way to the kernel, while there is one.
#[derive(Debug, Default)]
pub(super) struct Forgetting {
    pub(super) waiting: Arc<Waiting>,
    queue: Mutex<Option<Sender<Forget>>>,
    sent: AtomicU64,
    done: Arc<AtomicU64>,
}

impl Forgetting {
    pub(super) fn attach(&self, kernel: Arc<dyn KernelCache>) {
        let (queue, inbox) = channel();
        let (done, waiting) = (Arc::clone(&self.done), Arc::clone(&self.waiting));
        let spawned = std::thread::Builder::new()
            .name("forget".to_owned())
            .spawn(move || run(&kernel, &inbox, &waiting, &done));
        match spawned {
            Ok(_) => *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue),
            Err(error) => tracing::error!(%error, "changes of others will not be seen: no thread"),
        }
    }

    /// Not waited for: the kernel answers when the mount is gone.
    pub(super) fn detach(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    pub(super) fn tell(&self, forget: Forget) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = &*queue
            && queue.send(forget).is_ok()
        {
            self.sent.fetch_add(1, Ordering::Release);
        }
    }

    /// Waits until the kernel has been told all, unless it takes too long.
    pub(super) fn settle(&self) {
        let sent = self.sent.load(Ordering::Acquire);
        let deadline = Instant::now() + PATIENCE;
        while self.done.load(Ordering::Acquire) < sent && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// An inode that reads wait for, so that others are told of first.
struct Late {
    ino: Ino,
    deadline: Instant,
    /// What came with it is done with the last of these.
    _of: Rc<Done>,
}

/// Counts something done when all of it is.
struct Done(Arc<AtomicU64>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

fn run(
    kernel: &Arc<dyn KernelCache>,
    inbox: &Receiver<Forget>,
    waiting: &Waiting,
    done: &Arc<AtomicU64>,
) {
    let mut late: Vec<Late> = Vec::new();
    loop {
        let next = match late.is_empty() {
            true => inbox.recv().map_err(RecvTimeoutError::from),
            false => inbox.recv_timeout(AGAIN),
        };
        match next {
            Ok(forget) => {
                let of = Rc::new(Done(Arc::clone(done)));
                for (parent, name) in &forget.names {
                    kernel.forget_name(*parent, name);
                }
                for ino in forget.inodes {
                    match waiting.waits_for(ino) {
                        true => late.push(Late {
                            ino,
                            deadline: Instant::now() + FETCH_PATIENCE,
                            _of: Rc::clone(&of),
                        }),
                        false => kernel.forget_inode(ino),
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // The mount is gone, and what the kernel has of it.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        late.retain(|it| {
            let waits = waiting.waits_for(it.ino);
            if waits && Instant::now() < it.deadline {
                return true;
            }
            match waits {
                // Until it is answered the kernel has a page locked: whoever tells it waits for that.
                true => tell_apart(kernel, it.ino),
                false => kernel.forget_inode(it.ino),
            }
            false
        });
    }
}

/// Tells the kernel of an inode by a thread of its own.
fn tell_apart(kernel: &Arc<dyn KernelCache>, ino: Ino) {
    let own = Arc::clone(kernel);
    let thread = std::thread::Builder::new().name("forget-late".to_owned());
    if thread.spawn(move || own.forget_inode(ino)).is_err() {
        kernel.forget_inode(ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that says what it was told.
    struct Telling(Mutex<Sender<String>>);

    impl Telling {
        fn say(&self, what: String) {
            let tell = self.0.lock().unwrap();
            // The test has ended.
            let _ = tell.send(what);
        }
    }

    impl KernelCache for Telling {
        fn forget_inode(&self, ino: Ino) {
            self.say(format!("{ino}"));
        }

        fn forget_name(&self, parent: Ino, name: &[u8]) {
            self.say(format!("{parent}/{}", String::from_utf8_lossy(name)));
        }

        fn learn(&self, _ino: Ino, _offset: u64, _bytes: &[u8]) {}
    }

    #[test]
    fn an_inode_that_is_waited_for_holds_up_no_other() {
        let (tell, told) = channel();
        let forgetting = Forgetting::default();
        forgetting.attach(Arc::new(Telling(Mutex::new(tell))));
        let forget = |inodes: &[Ino], names: &[(Ino, Vec<u8>)]| {
            forgetting.tell(Forget {
                inodes: inodes.to_vec(),
                names: names.to_vec(),
            });
        };
        let next = || told.recv_timeout(Duration::from_secs(20)).unwrap();
        let read = forgetting.waiting.begin(7);
        forget(&[7, 8], &[(1, b"n".to_vec())]);
        forget(&[9], &[(2, b"m".to_vec())]);
        assert_eq!([next(), next(), next(), next()], ["1/n", "8", "2/m", "9"]);
        drop(read);
        assert_eq!(next(), "7");
        forgetting.settle();
        assert_eq!(forgetting.done.load(Ordering::Acquire), 2);
    }
}
