//! Running work that may hang: in a thread of its own, with a deadline for every step, and a way to end it.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use backends::backend::{KillHandle, Killed};

use crate::interrupt::Interrupt;

/// How often the deadlines are looked at.
const TICK: Duration = Duration::from_millis(20);

/// How long the work may take to come back after its kill handle was used.
const GRACE: Duration = Duration::from_secs(10);

/// What the work and its supervisor share.
#[derive(Debug)]
pub struct Watchdog {
    epoch: Instant,
    /// When the current step must have ended, in nanoseconds since `epoch`; 0 while there is none.
    deadline: AtomicU64,
    /// When the current step began, in nanoseconds since `epoch`.
    entered: AtomicU64,
    killed: AtomicBool,
    /// The supervisor has given up on this work.
    abandoned: AtomicBool,
    /// The work takes everything down: an interrupt has nothing more to ask of it.
    closing: AtomicBool,
    kill_handles: Mutex<Vec<KillHandle>>,
    how: Mutex<Option<Cut>>,
}

/// How a step was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How long it had taken by then.
    pub after: Duration,
    /// What ended it.
    pub killed: Killed,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.killed.aborted, self.killed.killed) {
            (true, _) => "its connection was aborted",
            (false, true) => "its daemon was killed",
            (false, false) => "nothing could be done about it",
        };
        write!(
            f,
            "no answer after {:.1} s; {how}",
            self.after.as_secs_f64()
        )
    }
}

impl Watchdog {
    fn new() -> Self {
        Self {
            epoch: Instant::now(),
            deadline: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            kill_handles: Mutex::new(Vec::new()),
            how: Mutex::new(None),
        }
    }

    /// A step begins that must end within `limit`.
    pub fn enter(&self, limit: Duration) {
        let now = self.epoch.elapsed();
        self.entered.store(now.as_nanos() as u64, Ordering::Relaxed);
        let deadline = (now + limit).as_nanos() as u64;
        self.deadline.store(deadline, Ordering::Release);
    }

    /// The step has ended.
    pub fn leave(&self) {
        self.deadline.store(0, Ordering::Release);
    }

    /// Whether the supervisor has given up on this work: it must not go on where it hung.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// From now on everything is taken down: only the deadline of a step can cut it off.
    pub fn close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// What it takes to end a call that hangs, from now on.
    pub fn depend_on(&self, kill_handle: KillHandle) {
        *self.kill_handles() = vec![kill_handle];
    }

    /// What else it takes, where a call may hang in either of two mounts.
    pub fn depend_on_too(&self, kill_handle: KillHandle) {
        self.kill_handles().push(kill_handle);
    }

    /// What it took to end a call is gone, or about to be: its process may soon be another one's number.
    pub fn independent(&self) {
        self.kill_handles().clear();
    }

    /// What hung has been taken down, and its kill_handles with it: the next step starts anew.
    pub fn mend(&self) {
        self.leave();
        self.independent();
        let mut how = self.how.lock().unwrap_or_else(PoisonError::into_inner);
        *how = None;
        self.killed.store(false, Ordering::Release);
    }

    fn kill_handles(&self) -> MutexGuard<'_, Vec<KillHandle>> {
        self.kill_handles
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How the work was cut off, if it was.
    pub fn killed(&self) -> Option<Cut> {
        if !self.killed.load(Ordering::Acquire) {
            return None;
        }
        // The flag is set before the cutting is done: wait for the answer.
        *self.how.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_overdue(&self) -> bool {
        let deadline = self.deadline.load(Ordering::Acquire);
        deadline != 0 && self.epoch.elapsed().as_nanos() as u64 > deadline
    }

    /// Cuts the kill_handles, unless the step has ended by itself in the meantime; `anyway` if even then.
    fn kill(&self, anyway: bool) {
        let mut how = self.how.lock().unwrap_or_else(PoisonError::into_inner);
        // Before it is looked at: the step may end, and the next begin, right now.
        let entered = Duration::from_nanos(self.entered.load(Ordering::Relaxed));
        if !anyway && !self.is_overdue() {
            return;
        }
        self.killed.store(true, Ordering::Release);
        let mut killed = Killed {
            aborted: false,
            killed: false,
        };
        for kill_handle in self.kill_handles().iter() {
            let one = kill_handle.kill();
            killed.aborted |= one.aborted;
            killed.killed |= one.killed;
        }
        *how = Some(Cut {
            after: self.epoch.elapsed().saturating_sub(entered),
            killed,
        });
    }
}

/// Why work did not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It did not come back although its kill handle was used; its thread is left behind.
    Stuck,
    /// It panicked.
    Panicked,
}

/// Runs `work` in a thread of its own and uses its kill handle if a step takes too long, or if the run
/// is interrupted while a step is under way.
///
/// # Errors
/// If it does not come back.
pub fn supervise<T: Send + 'static>(
    interrupt: &Interrupt,
    work: impl FnOnce(&Watchdog) -> T + Send + 'static,
) -> Result<T, Lost> {
    let watchdog = Arc::new(Watchdog::new());
    let (sender, done) = channel();
    let worker_pulse = Arc::clone(&watchdog);
    std::thread::spawn(move || {
        let result = work(&worker_pulse);
        // The supervisor may have given up on this thread.
        let _ = sender.send(result);
    });
    let mut severed_at: Option<Instant> = None;
    let mut interrupted_at: Option<Instant> = None;
    loop {
        match done.recv_timeout(TICK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(Lost::Panicked),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !watchdog.killed.load(Ordering::Acquire) {
            // Never cut off, or gone on without what hung.
            severed_at = None;
        }
        if let Some(at) = severed_at {
            if at.elapsed() > GRACE {
                watchdog.abandoned.store(true, Ordering::Release);
                return Err(Lost::Stuck);
            }
            continue;
        }
        if interrupt.is_set() && interrupted_at.is_none() {
            interrupted_at = Some(Instant::now());
        }
        // An interrupted worker stops by itself after the current call; it gets two seconds for that.
        let is_impatient = interrupted_at.is_some_and(|at| at.elapsed() > Duration::from_secs(2))
            && !watchdog.closing.load(Ordering::Acquire);
        if watchdog.is_overdue() || is_impatient {
            watchdog.kill(is_impatient);
            severed_at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_keeps_its_deadlines_comes_back_whole() {
        let result = supervise(&Interrupt::never(), |watchdog| {
            watchdog.enter(Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(50));
            watchdog.leave();
            (7, watchdog.killed())
        });
        assert_eq!(result, Ok((7, None)));
    }

    #[test]
    fn a_step_that_takes_too_long_is_cut_off() {
        let result = supervise(&Interrupt::never(), |watchdog| {
            watchdog.enter(Duration::from_millis(30));
            // A call that only ends because its kill handle is used.
            while watchdog.killed().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            watchdog.killed().is_some()
        });
        assert_eq!(result, Ok(true));
    }

    #[test]
    fn work_that_gives_up_what_hung_goes_on_with_deadlines_of_its_own() {
        let hangs = |watchdog: &Watchdog| {
            watchdog.enter(Duration::from_millis(30));
            let began = Instant::now();
            while watchdog.killed().is_none() && began.elapsed() < Duration::from_secs(5) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_severed = watchdog.killed().is_some();
            watchdog.mend();
            is_severed
        };
        let result = supervise(&Interrupt::never(), move |watchdog| {
            let first = hangs(watchdog);
            let between = watchdog.killed();
            (first, between, hangs(watchdog), watchdog.killed())
        });
        assert_eq!(result, Ok((true, None, true, None)));
    }

    #[test]
    fn a_panic_is_reported() {
        let result: Result<(), Lost> = supervise(&Interrupt::never(), |_| panic!("on purpose"));
        assert_eq!(result, Err(Lost::Panicked));
    }
}
