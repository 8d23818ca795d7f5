//! A daemon that is stopped or panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use fuse::ControlCommand;
use processes::{send, state_of, wait_until};
use rundir::faults::{AgentEventKind, Return};
use rustix::process::Signal;

use super::super::agent::Job;
use super::super::agent_process::Agent;
use super::super::bed::{StepResult, TestBed, infra};

/// How long a call must be in flight to count as waiting.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// The daemon's message for a requested panic.
const ASKED_FOR: &str = "this panic was asked for";

/// SIGSTOP, and SIGCONT `seconds` later. `long` is the full length.
pub fn stop(bed: &mut TestBed, seconds: f64, long: f64) -> StepResult {
    let seconds = bed.seconds(seconds, long);
    if seconds < long {
        bed.label(format!("shortened: {seconds} s instead of {long} s"));
    }
    bed.open_and_fill()?;
    bed.injected(format!("SIGSTOP of the daemon, and SIGCONT {seconds} s later"));
    let before = bed.counted();
    bed.stop_daemon()?;
    let resumer = Resumer::start(bed, Duration::from_secs_f64(seconds))?;
    bed.begin_changes(10)?;
    interrupt_another(bed)?;
    let answer = bed.end()?;
    let resumed = resumer.wait();
    let waited = bed.outcome.longest_call_ms as f64 / 1e3;
    if bed.outcome.hang.is_none() && waited < seconds * 0.8 {
        return infra(format!("no call waited for the daemon: the longest took {waited:.1} s of {seconds} s"));
    }
    match (answer, bed.is_usable()?) {
        (_, Ok(())) => {
            bed.recovered(Return::ByItself, resumed.elapsed(), None);
            bed.count_syncs(before.as_ref());
        }
        (Some(_), Err(reason)) => {
            bed.breach(format!("it did not continue after SIGCONT: {reason}"));
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
    fn start(bed: &TestBed, after: Duration) -> StepResult<Self> {
        let daemon = bed.daemon().context("there is no daemon to resume")?;
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::clone(&is_cancelled);
        let thread = std::thread::spawn(move || {
            wait_until(after, Duration::from_millis(10), || cancelled.load(Ordering::Acquire));
            // An error means that the daemon has ended.
            let _ = send(daemon, Signal::CONT);
            Instant::now()
        });
        Ok(Self { thread: Some(thread), is_cancelled })
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
fn interrupt_another(bed: &mut TestBed) -> StepResult {
    let mut another = Agent::start(bed.program())?;
    another.ask(&bed.root(), &Job::Look)?;
    let waits = || another.is_waiting(UNDER_WAY);
    if !wait_until(bed.hang_limit(), Duration::from_millis(10), waits) {
        let words = "not measured: no call of another agent waited";
        bed.words("interrupted_by", words);
        return Ok(());
    }
    let state = state_of(another.pid()).unwrap_or('?');
    let call = another.call();
    let started = Instant::now();
    let ended_by = another.interrupt();
    let words = match ended_by {
        Some(signal) => format!("{signal}, after {} ms", started.elapsed().as_millis()),
        None => {
            bed.breach(format!("{call} of another agent was ended by neither SIGINT nor SIGKILL, within 1 s each"));
            "neither SIGINT nor SIGKILL, within 1 s each".to_owned()
        }
    };
    bed.words("interrupted_call", format!("{call} in state {state}"));
    bed.words("interrupted_by", words);
    Ok(())
}

/// A panic in the thread that serves the next request.
pub fn panic(bed: &mut TestBed) -> StepResult {
    bed.open_and_fill()?;
    let control = bed.config.dir.join("control");
    fuse::ask(&control, ControlCommand::PanicNext)?;
    bed.injected("a panic in the thread that answers the next request, before the store is called");
    let is_unharmed = bed.succeeds(bed.root(), &Job::Look)?;
    if !bed.logs(0, ASKED_FOR) {
        return infra("the daemon's log has no panic: the fault hit nothing");
    }
    if is_unharmed {
        bed.saw("look", AgentEventKind::Nothing, None, "no call failed");
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
        bed.words("daemon", exit_reason);
    }
    match usable {
        Ok(()) => {
            bed.recovered(Return::ByItself, started.elapsed(), None);
            // One serving thread is missing from now on. The daemon reports the panic when it ends.
            if let Err(error) = bed.close()? {
                let last = error.lines().last().unwrap_or_default().to_owned();
                bed.words("orderly_end", last);
            }
            bed.open()?;
        }
        Err(reason) => {
            bed.saw("any", AgentEventKind::Unnumbered, None, &reason);
            bed.come_back()?;
        }
    }
    bed.audit()
}
