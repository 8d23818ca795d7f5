//! A daemon that is stopped or panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::fuse::{self, Command};
use rundir::faults::{Fact, Return, SeenKind};
use rustix::process::{Pid, Signal, kill_process};

use super::super::agent::Task;
use super::super::bed::{Injected, ScenarioError, TestBed, infra};
use super::super::watch::{Agent, state_of};

/// How long a call must be in flight to count as waiting.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// The daemon's message for a requested panic.
const ASKED_FOR: &str = "this panic was asked for";

/// SIGSTOP, and SIGCONT `seconds` later. `long` is the full length.
pub fn stop(bed: &mut TestBed, seconds: f64, long: f64) -> Injected {
    let seconds = if bed.is_long { long } else { seconds };
    if seconds < long {
        bed.outcome.label = Some(format!("shortened: {seconds} s instead of {long} s"));
    }
    bed.open()?;
    bed.fill()?;
    bed.injected(format!(
        "SIGSTOP of the daemon, and SIGCONT {seconds} s later"
    ));
    let before = bed.counted();
    bed.stop_daemon()?;
    let resumer = Resumer::start(bed, Duration::from_secs_f64(seconds))?;
    let task = bed.write_task(10);
    bed.begin(&Task::Write(task))?;
    interrupt_another(bed)?;
    let answer = bed.end()?;
    let resumed = resumer.wait();
    let waited = bed.outcome.longest_call_ms as f64 / 1e3;
    if bed.outcome.hang.is_none() && waited < seconds * 0.8 {
        return infra(format!(
            "no call waited for the daemon: the longest took {waited:.1} s of {seconds} s"
        ));
    }
    match (answer, bed.is_usable()?) {
        (_, Ok(())) => {
            let ms = resumed.elapsed().as_millis() as u64;
            bed.recovered(Return::ByItself, ms, None);
            bed.count_syncs(before.as_ref());
        }
        (Some(_), Err(reason)) => {
            bed.breach(format!("it did not go on after SIGCONT: {reason}"));
            bed.come_back()?;
        }
        // The watchdog ended the call by force, and its connection with it.
        (None, Err(_)) => bed.come_back()?,
    }
    bed.audit()
}

/// Sends SIGCONT to the daemon after a delay, from a thread.
struct Resumer {
    thread: Option<JoinHandle<Instant>>,
    is_cancelled: Arc<AtomicBool>,
}

impl Resumer {
    fn start(bed: &TestBed, after: Duration) -> Injected<Self> {
        let pid = bed.workspace.as_ref().and_then(|open| open.daemon());
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| ScenarioError::Infra("there is no daemon to resume".into()))?;
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::clone(&is_cancelled);
        let thread = std::thread::spawn(move || {
            let deadline = Instant::now() + after;
            while Instant::now() < deadline && !cancelled.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(10));
            }
            // An error means that the daemon has ended.
            let _ = kill_process(pid, Signal::CONT);
            Instant::now()
        });
        Ok(Self {
            thread: Some(thread),
            is_cancelled,
        })
    }

    /// Waits for the SIGCONT. Returns its time.
    fn wait(mut self) -> Instant {
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or_else(Instant::now)
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The thread does not panic.
            let _ = thread.join();
        }
    }
}

/// Interrupts a second agent process whose call waits for the stopped daemon.
fn interrupt_another(bed: &mut TestBed) -> Injected {
    let mut another = Agent::start(bed.program())?;
    another.ask(&Task::Look { root: bed.root() })?;
    let began = Instant::now();
    while !another.is_waiting(UNDER_WAY) {
        if began.elapsed() > bed.hang_limit() {
            let words = "not measured: no call of another agent waited".to_owned();
            bed.fact("interrupted_by", Fact::Words(words));
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let state = state_of(another.pid()).unwrap_or('?');
    let call = another.call();
    let started = Instant::now();
    let ended_by = another.interrupt();
    let words = match ended_by {
        Some(signal) => format!("{signal}, after {} ms", started.elapsed().as_millis()),
        None => {
            bed.breach(format!(
                "{call} of another agent was ended by neither SIGINT nor SIGKILL, within 1 s each"
            ));
            "neither SIGINT nor SIGKILL, within 1 s each".to_owned()
        }
    };
    bed.fact(
        "interrupted_call",
        Fact::Words(format!("{call} in state {state}")),
    );
    bed.fact("interrupted_by", Fact::Words(words));
    Ok(())
}

/// A panic in the thread that serves the next request.
pub fn panic(bed: &mut TestBed) -> Injected {
    bed.open()?;
    bed.fill()?;
    let control = bed.config.dir.join("control");
    fuse::ask(&control, Command::PanicNext)?;
    bed.injected("a panic in the thread that answers the next request, before the store is called");
    let looked = bed.look()?;
    let failed = looked
        .as_ref()
        .is_some_and(|answer| !answer.failures.is_empty());
    let hung = looked.is_none();
    if !bed.logs(0, ASKED_FOR) {
        return infra("the daemon's log says nothing of a panic: nothing was hit");
    }
    if !failed && !hung {
        bed.saw("look", SeenKind::Nothing, None, "no call failed");
    }
    let started = Instant::now();
    // Checked several times, because any serving thread may be the one that died.
    let mut usable = Ok(());
    for _ in 0..5 {
        usable = bed.is_usable()?;
        if usable.is_err() {
            break;
        }
    }
    if let Some(exit_reason) = bed.exit_reason() {
        bed.fact("daemon", Fact::Words(exit_reason));
    }
    match usable {
        Ok(()) => {
            let ms = started.elapsed().as_millis() as u64;
            bed.recovered(Return::ByItself, ms, None);
            // One serving thread is missing from now on. The daemon reports the panic when it ends.
            if let Err(error) = bed.close()? {
                let last = error.lines().last().unwrap_or_default().to_owned();
                bed.fact("orderly_end", Fact::Words(last));
            }
            bed.open()?;
        }
        Err(reason) => {
            bed.saw("any", SeenKind::Unnumbered, None, &reason);
            bed.come_back()?;
        }
    }
    bed.audit()
}
