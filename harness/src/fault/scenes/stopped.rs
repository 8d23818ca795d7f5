//! The daemon stands still, or panics.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::fuse::{self, Command};
use reports::faults::{Fact, Return, SeenKind};
use rustix::process::{Pid, Signal, kill_process};

use super::super::agent::Task;
use super::super::stage::{Played, Spoiled, Stage};
use super::super::watch::{Agent, state_of};

/// How long a call has to be under way to be one that waits.
const UNDER_WAY: Duration = Duration::from_millis(300);

/// What the daemon says when it panics because it was told to.
const ASKED_FOR: &str = "this panic was asked for";

/// SIGSTOP for so many seconds, then SIGCONT.
pub fn stop(stage: &mut Stage, seconds: f64, long: f64) -> Played {
    let seconds = if stage.is_long { long } else { seconds };
    if seconds < long {
        stage.outcome.label = Some(format!("shortened: {seconds} s instead of {long} s"));
    }
    stage.open()?;
    stage.fill()?;
    stage.injected(format!(
        "SIGSTOP of the daemon, and SIGCONT {seconds} s later"
    ));
    let before = stage.counted();
    stage.stop_daemon()?;
    let resumer = Resumer::start(stage, Duration::from_secs_f64(seconds))?;
    let task = stage.write_task(10);
    stage.begin(&Task::Write(task))?;
    interrupt_another(stage)?;
    let answer = stage.end()?;
    let resumed = resumer.wait();
    let waited = stage.outcome.longest_call_ms as f64 / 1e3;
    if stage.outcome.hang.is_none() && waited < seconds * 0.8 {
        return Err(Spoiled::Infra(format!(
            "no call waited for the daemon: the longest took {waited:.1} s of {seconds} s"
        )));
    }
    match (answer, stage.is_usable()?) {
        (_, Ok(())) => {
            let ms = resumed.elapsed().as_millis() as u64;
            stage.recovered(Return::ByItself, ms, None);
            stage.count_syncs(before.as_ref());
        }
        (Some(_), Err(reason)) => {
            stage.breach(format!("it did not go on after SIGCONT: {reason}"));
            stage.come_back()?;
        }
        // The call was ended by force, and the connection with it.
        (None, Err(_)) => stage.come_back()?,
    }
    stage.audit()
}

/// Sends SIGCONT after a while, whatever is waited for meanwhile.
struct Resumer {
    thread: Option<JoinHandle<Instant>>,
    is_cancelled: Arc<AtomicBool>,
}

impl Resumer {
    fn start(stage: &Stage, after: Duration) -> Played<Self> {
        let pid = stage.workspace.as_ref().and_then(|open| open.daemon());
        let pid = pid.and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Spoiled::Infra("there is no daemon to resume".into()))?;
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let cancelled = Arc::clone(&is_cancelled);
        let thread = std::thread::spawn(move || {
            let deadline = Instant::now() + after;
            while Instant::now() < deadline && !cancelled.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(10));
            }
            // An error means that it has ended.
            let _ = kill_process(pid, Signal::CONT);
            Instant::now()
        });
        Ok(Self {
            thread: Some(thread),
            is_cancelled,
        })
    }

    /// When the daemon was resumed.
    fn wait(mut self) -> Instant {
        let joined = self.thread.take().map(JoinHandle::join);
        joined.and_then(Result::ok).unwrap_or_else(Instant::now)
    }
}

impl Drop for Resumer {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// What becomes of another agent that asks while the daemon stands still, and is told to end.
fn interrupt_another(stage: &mut Stage) -> Played {
    let mut another = Agent::start(stage.program())?;
    another.ask(&Task::Look { root: stage.root() })?;
    let began = Instant::now();
    while !another.is_waiting(UNDER_WAY) {
        if began.elapsed() > stage.hang_limit() {
            let words = "not measured: no call of another agent waited".to_owned();
            stage.fact("interrupted_by", Fact::Words(words));
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
            stage.breach(format!(
                "{call} of another agent was ended by neither SIGINT nor SIGKILL, within 1 s each"
            ));
            "neither SIGINT nor SIGKILL, within 1 s each".to_owned()
        }
    };
    stage.fact(
        "interrupted_call",
        Fact::Words(format!("{call} in state {state}")),
    );
    stage.fact("interrupted_by", Fact::Words(words));
    Ok(())
}

/// A panic in the thread that answers the next request.
pub fn panic(stage: &mut Stage) -> Played {
    stage.open()?;
    stage.fill()?;
    let control = stage.site.dir.join("control");
    fuse::ask(&control, Command::PanicNext)?;
    stage.injected(
        "a panic in the thread that answers the next request, before the store is called",
    );
    let looked = stage.look()?;
    let failed = looked
        .as_ref()
        .is_some_and(|answer| !answer.failures.is_empty());
    let hung = looked.is_none();
    let log = std::fs::read_to_string(stage.site.dir.join("daemon.log")).unwrap_or_default();
    if !log.contains(ASKED_FOR) {
        return Err(Spoiled::Infra(
            "the daemon's log says nothing of a panic: nothing was hit".into(),
        ));
    }
    if !failed && !hung {
        stage.saw("look", SeenKind::Nothing, None, "no call failed");
    }
    let started = Instant::now();
    // What the mount is like from then on, several times: each thread that answers may be the one that is gone.
    let mut usable = Ok(());
    for _ in 0..5 {
        usable = stage.is_usable()?;
        if usable.is_err() {
            break;
        }
    }
    if let Some(obituary) = stage.obituary() {
        stage.fact("daemon", Fact::Words(obituary));
    }
    match usable {
        Ok(()) => {
            let ms = started.elapsed().as_millis() as u64;
            stage.recovered(Return::ByItself, ms, None);
            // One thread fewer answers from then on; the daemon says so when it ends.
            if let Err(error) = stage.close()? {
                let last = error.lines().last().unwrap_or_default().to_owned();
                stage.fact("orderly_end", Fact::Words(last));
            }
            stage.open()?;
        }
        Err(reason) => {
            stage.saw("any", SeenKind::Unnumbered, None, &reason);
            stage.come_back()?;
        }
    }
    stage.audit()
}
