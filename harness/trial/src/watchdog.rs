//! Runs work that may hang in its own thread: a trial, or a cell of a run. A watchdog gives each step a deadline and cuts off an
//! overdue one.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use arms::backend::{KillHandle, KillResult};
use parking_lot::Mutex;

use crate::interrupt::Interrupt;

/// How often the deadline is checked.
const TICK: Duration = Duration::from_millis(20);

/// How long the work may take to return after its kill handles were used.
const GRACE: Duration = Duration::from_secs(10);

/// The state that the work and its supervisor share.
#[derive(Debug)]
pub struct Watchdog {
    origin: Instant,
    /// Deadline of the current step, in nanoseconds since `origin`; 0 between steps.
    deadline: AtomicU64,
    /// Start of the current step, in nanoseconds since `origin`.
    entered: AtomicU64,
    killed: AtomicBool,
    /// The supervisor no longer waits for this work.
    abandoned: AtomicBool,
    /// The work mounts or closes, so an interrupt must not cut it off.
    shielded: AtomicBool,
    kill_handles: Mutex<Vec<KillHandle>>,
    how: Mutex<Option<Cut>>,
}

/// How a step was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How long the step had taken.
    pub after: Duration,
    /// The effect of the kill handles.
    pub killed: KillResult,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.killed.aborted, self.killed.killed) {
            (true, _) => "its connection was aborted",
            (false, true) => "its daemon was killed",
            (false, false) => "it could not be aborted",
        };
        write!(f, "no answer after {:.1} s; {how}", self.after.as_secs_f64())
    }
}

impl Watchdog {
    fn new() -> Self {
        Self {
            origin: Instant::now(),
            deadline: AtomicU64::new(0),
            entered: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            shielded: AtomicBool::new(false),
            kill_handles: Mutex::new(Vec::new()),
            how: Mutex::new(None),
        }
    }

    /// Begins a step that must end within `limit`.
    pub fn enter(&self, limit: Duration) {
        let now = self.origin.elapsed();
        self.entered.store(now.as_nanos() as u64, Ordering::Relaxed);
        let deadline = (now + limit).as_nanos() as u64;
        self.deadline.store(deadline, Ordering::Release);
    }

    /// Ends the step.
    pub fn leave(&self) {
        self.deadline.store(0, Ordering::Release);
    }

    /// Whether the supervisor no longer waits for this work, which must then stop.
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Acquire)
    }

    /// Notes that the work mounts or closes: from now on only deadlines cut it off, not interrupts. A mount that is left
    /// half done would leave its servers behind.
    pub fn shield(&self) {
        self.shielded.store(true, Ordering::Release);
    }

    /// Ends [`Watchdog::shield`].
    pub fn unshield(&self) {
        self.shielded.store(false, Ordering::Release);
    }

    /// Replaces the kill handles for calls that hang.
    pub fn depend_on(&self, kill_handle: KillHandle) {
        *self.kill_handles.lock() = vec![kill_handle];
    }

    /// Adds a kill handle, if a call may hang in either of two mounts.
    pub fn depend_on_too(&self, kill_handle: KillHandle) {
        self.kill_handles.lock().push(kill_handle);
    }

    /// Drops the kill handles, because their daemons end: the kernel can reuse a process id.
    pub fn independent(&self) {
        self.kill_handles.lock().clear();
    }

    /// Forgets the cut and the kill handles, after the hung mount is gone. Later steps have deadlines again.
    pub fn mend(&self) {
        self.leave();
        self.independent();
        let mut how = self.how.lock();
        *how = None;
        self.killed.store(false, Ordering::Release);
    }

    /// How the work was cut off, if it was.
    pub fn killed(&self) -> Option<Cut> {
        if !self.killed.load(Ordering::Acquire) {
            return None;
        }
        // The flag is set before the cut is complete. The lock waits for it.
        *self.how.lock()
    }

    fn is_overdue(&self) -> bool {
        let deadline = self.deadline.load(Ordering::Acquire);
        deadline != 0 && self.origin.elapsed().as_nanos() as u64 > deadline
    }

    /// Uses the kill handles if the step is still overdue, or in any case if `anyway`.
    fn kill(&self, anyway: bool) {
        let mut how = self.how.lock();
        // Read before the deadline: the step may end and the next one begin between the two reads.
        let entered = Duration::from_nanos(self.entered.load(Ordering::Relaxed));
        if !anyway && !self.is_overdue() {
            return;
        }
        self.killed.store(true, Ordering::Release);
        let mut killed = KillResult { aborted: false, killed: false };
        for kill_handle in self.kill_handles.lock().iter() {
            let one = kill_handle.kill();
            killed.aborted |= one.aborted;
            killed.killed |= one.killed;
        }
        *how = Some(Cut { after: self.origin.elapsed().saturating_sub(entered), killed });
    }
}

/// Why work did not return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonReason {
    /// It hangs although its kill handles were used. Its thread is left behind.
    Stuck,
    /// It panicked.
    Panicked,
}

impl From<AbandonReason> for io::Error {
    fn from(lost: AbandonReason) -> Self {
        io::Error::other(match lost {
            AbandonReason::Stuck => "a call hung, and could not be aborted",
            AbandonReason::Panicked => "it panicked; see the log",
        })
    }
}

/// Runs `work` in its own thread. Uses its kill handles if a step is overdue, or if the work runs on for two
/// seconds after an interrupt and is not shielded.
pub fn supervise<T: Send + 'static>(
    interrupt: &Interrupt,
    work: impl FnOnce(&Watchdog) -> T + Send + 'static,
) -> Result<T, AbandonReason> {
    let watchdog = Arc::new(Watchdog::new());
    let (sender, done) = channel();
    let worker_watchdog = Arc::clone(&watchdog);
    std::thread::spawn(move || {
        let result = work(&worker_watchdog);
        // The supervisor may no longer wait for this thread.
        let _ = sender.send(result);
    });
    let mut cut_at: Option<Instant> = None;
    let mut interrupted_at: Option<Instant> = None;
    loop {
        match done.recv_timeout(TICK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(AbandonReason::Panicked),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !watchdog.killed.load(Ordering::Acquire) {
            // Never cut off, or repaired since.
            cut_at = None;
        }
        if let Some(at) = cut_at {
            if at.elapsed() > GRACE {
                watchdog.abandoned.store(true, Ordering::Release);
                return Err(AbandonReason::Stuck);
            }
            continue;
        }
        if interrupt.is_set() && interrupted_at.is_none() {
            interrupted_at = Some(Instant::now());
        }
        // Interrupted work stops by itself after the current call, within two seconds.
        let is_impatient = interrupted_at.is_some_and(|at| at.elapsed() > Duration::from_secs(2))
            && !watchdog.shielded.load(Ordering::Acquire);
        if watchdog.is_overdue() || is_impatient {
            watchdog.kill(is_impatient);
            cut_at = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_leaves_work_within_its_deadline_alone() {
        let result = supervise(&Interrupt::never(), |watchdog| {
            watchdog.enter(Duration::from_secs(5));
            std::thread::sleep(Duration::from_millis(50));
            watchdog.leave();
            (7, watchdog.killed())
        });
        assert_eq!(result, Ok((7, None)));
    }

    #[test]
    fn the_watchdog_cuts_off_an_overdue_step() {
        let result = supervise(&Interrupt::never(), |watchdog| {
            watchdog.enter(Duration::from_millis(30));
            // A call that ends only if the watchdog kills it.
            while watchdog.killed().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            watchdog.killed().is_some()
        });
        assert_eq!(result, Ok(true));
    }

    #[test]
    fn the_watchdog_cuts_off_a_second_step_after_mend() {
        let hangs = |watchdog: &Watchdog| {
            watchdog.enter(Duration::from_millis(30));
            let began = Instant::now();
            while watchdog.killed().is_none() && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(5));
            }
            let is_cut = watchdog.killed().is_some();
            watchdog.mend();
            is_cut
        };
        let result = supervise(&Interrupt::never(), move |watchdog| {
            let first = hangs(watchdog);
            let between = watchdog.killed();
            (first, between, hangs(watchdog), watchdog.killed())
        });
        assert_eq!(result, Ok((true, None, true, None)));
    }

    #[test]
    fn an_interrupt_cuts_off_no_mount_that_is_under_way() {
        let interrupt = Interrupt::of(Arc::new(AtomicBool::new(true)));
        let mount = |watchdog: &Watchdog, takes: Duration| {
            let began = Instant::now();
            while watchdog.killed().is_none() && began.elapsed() < takes {
                std::thread::sleep(Duration::from_millis(20));
            }
            watchdog.killed().is_none()
        };
        let shielded = supervise(&interrupt, move |watchdog| {
            watchdog.shield();
            mount(watchdog, Duration::from_millis(2500))
        });
        assert_eq!(shielded, Ok(true));
        let cut = supervise(&interrupt, move |watchdog| mount(watchdog, Duration::from_secs(60)));
        assert_eq!(cut, Ok(false));
    }

    #[test]
    fn supervise_reports_a_panic() {
        let result: Result<(), AbandonReason> = supervise(&Interrupt::never(), |_| panic!("on purpose"));
        assert_eq!(result, Err(AbandonReason::Panicked));
    }
}
