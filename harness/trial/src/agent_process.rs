//! The watchdog of an agent process: its deadlines, its hangs, the signals that end them, and the culprit.
//! The calls that the agent process makes live in `agent`.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use arms::backend::KillHandle;
use fuse::connection;
use parking_lot::Mutex;
use processes::{ChildProcess, state_of, wait_until};
use rundir::faults::{Culprit, Hang};
use rustix::process::Signal;

use super::agent::{Job, JobAnswer};
use super::interrupt::Interrupt;

/// How long a hanging agent process may take to end after each signal, before the next means.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(1);

/// Time limit of a job, as a multiple of the time limit of one call.
const CALLS_A_JOB: u32 = 20;

/// The call name of an agent process that has a job and has not made its first call.
const START: &str = "start";

/// The call whose returns are counted, because it makes data durable.
const SYNC: &str = "fsync";

/// How often the waiting watchdog checks the interrupt flag and the state of the agent process.
const TICK: Duration = Duration::from_millis(50);

/// An agent process under a watchdog. Dropping it kills the process.
pub struct Agent {
    process: ChildProcess,
    answers: Receiver<JobAnswer>,
    /// An answer that [`Agent::is_waiting`] received before [`Agent::wait`] was called.
    early: Option<JobAnswer>,
    progress: Arc<Mutex<Progress>>,
    uninterruptible: UninterruptibleTime,
}

/// How long a process has been in state `D`, from one sample to the next.
#[derive(Default)]
struct UninterruptibleTime {
    since: Option<Instant>,
    longest: Duration,
}

impl UninterruptibleTime {
    fn see(&mut self, state: Option<char>, at: Instant) {
        match (state, self.since) {
            (Some('D'), None) => self.since = Some(at),
            (Some('D'), Some(since)) => {
                self.longest = self.longest.max(at.saturating_duration_since(since));
            }
            _ => self.since = None,
        }
    }
}

/// The progress of an agent process with its job.
struct Progress {
    /// The current call, or the last one.
    call: String,
    /// When that call began.
    since: Instant,
    /// How many `fsync` calls have returned.
    syncs: u64,
}

/// The result of waiting for an answer.
#[derive(Debug)]
pub enum WaitOutcome {
    /// The agent process answered.
    Answered(JobAnswer),
    /// A call or the job exceeded its time limit.
    Overdue,
    /// The agent process ended; its exit status, if known.
    Ended(Option<ExitStatus>),
    /// The user interrupted the run.
    Interrupted,
}

impl Agent {
    /// Starts an agent process.
    pub fn start(program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        command.arg("fault-agent").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = ChildProcess::start(&mut command, Duration::ZERO)?;
        let stdout = process.output()?;
        let (sender, answers) = channel();
        let progress = Arc::new(Mutex::new(Progress { call: START.to_owned(), since: Instant::now(), syncs: 0 }));
        let current = Arc::clone(&progress);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let mut current = current.lock();
                // Any further line of output means that the previous call has returned.
                current.syncs += u64::from(current.call == SYNC);
                let name = line.strip_prefix('>').unwrap_or(START);
                name.clone_into(&mut current.call);
                current.since = Instant::now();
                drop(current);
                if line.starts_with('>') {
                    continue;
                }
                if let Ok(answer) = serde_json::from_str(&line)
                    && sender.send(answer).is_err()
                {
                    // The [`Agent`] was dropped.
                    break;
                }
            }
        });
        Ok(Self { process, answers, early: None, progress, uninterruptible: UninterruptibleTime::default() })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Gives the agent process a job on the file, directory or workspace `at`.
    pub fn ask(&mut self, at: &Path, job: &Job) -> io::Result<()> {
        {
            let mut progress = self.progress.lock();
            progress.since = Instant::now();
            START.clone_into(&mut progress.call);
        }
        let line = serde_json::to_string(&(at, job))?;
        writeln!(self.process.input()?, "{line}")
    }

    /// Waits for the answer. A call may take at most `limit`, the job at most `CALLS_A_JOB` times
    /// `limit`.
    pub fn wait(&mut self, limit: Duration, interrupt: &Interrupt) -> WaitOutcome {
        let deadline = Instant::now() + limit * CALLS_A_JOB;
        if let Some(answer) = self.early.take() {
            return WaitOutcome::Answered(answer);
        }
        loop {
            self.see();
            let left = limit.saturating_sub(self.in_call());
            let is_overdue = left.is_zero() || Instant::now() > deadline;
            match self.answers.recv_timeout(left.min(TICK)) {
                Ok(answer) => return WaitOutcome::Answered(answer),
                Err(RecvTimeoutError::Disconnected) => {
                    return WaitOutcome::Ended(self.process.wait().ok());
                }
                Err(RecvTimeoutError::Timeout) if interrupt.is_set() => {
                    return WaitOutcome::Interrupted;
                }
                Err(RecvTimeoutError::Timeout) if is_overdue => return WaitOutcome::Overdue,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Sends the process a signal.
    pub fn signal(&mut self, signal: Signal) {
        // An error means that the process has ended.
        let _ = self.process.signal(signal);
    }

    /// The name of the current call, or of the last one.
    pub fn call(&self) -> String {
        self.progress.lock().call.clone()
    }

    /// How many `fsync` calls have returned, according to the process's output.
    pub fn syncs(&self) -> u64 {
        self.progress.lock().syncs
    }

    /// Whether the current call of the job has been in flight for at least this long.
    pub fn is_waiting(&mut self, for_at_least: Duration) -> bool {
        if self.early.is_none() {
            self.early = self.answers.try_recv().ok();
        }
        let is_running = self.process.runs();
        let progress = self.progress.lock();
        self.early.is_none() && is_running && progress.call != START && progress.since.elapsed() >= for_at_least
    }

    /// The longest time for which the process was sampled in state `D` without a break.
    pub fn uninterruptible(&self) -> Duration {
        self.uninterruptible.longest
    }

    fn see(&mut self) {
        let state = state_of(self.process.id());
        self.uninterruptible.see(state, Instant::now());
    }

    /// How long the current call has been in flight.
    pub fn in_call(&self) -> Duration {
        self.progress.lock().since.elapsed()
    }

    /// Ends a hanging call by SIGINT, then SIGKILL, then an abort of the mount's FUSE connection.
    /// Returns a record of the hang and of the means that ended it.
    pub fn end_hang(&mut self, waited: Duration, mount: &KillHandle, culprit: Culprit) -> Hang {
        let mut hang = Hang {
            call: self.call(),
            waited_ms: waited.as_millis() as u64,
            culprit,
            state: state_of(self.process.id()).unwrap_or('?').to_string(),
            ended_by: "nothing".to_owned(),
            ended_after_ms: 0,
            uninterruptible_ms: 0,
        };
        let started = Instant::now();
        if let Some(signal) = self.interrupt() {
            hang.ended_by = signal.to_owned();
        } else if mount.abort() && self.ends_within(SIGNAL_PATIENCE) {
            hang.ended_by = "abort".to_owned();
        }
        hang.ended_after_ms = started.elapsed().as_millis() as u64;
        hang.uninterruptible_ms = self.uninterruptible.longest.as_millis() as u64;
        hang
    }

    /// Sends SIGINT, then SIGKILL. Returns the name of the signal that ended the process.
    pub fn interrupt(&mut self) -> Option<&'static str> {
        let signals = [("SIGINT", Signal::INT), ("SIGKILL", Signal::KILL)];
        let ended = signals.into_iter().find(|(_, signal)| {
            self.signal(*signal);
            self.ends_within(SIGNAL_PATIENCE)
        });
        ended.map(|(name, _)| name)
    }

    fn ends_within(&mut self, patience: Duration) -> bool {
        wait_until(patience, Duration::from_millis(5), || {
            self.see();
            !self.process.runs()
        })
    }
}

/// The number of requests of the FUSE mount at `mount` that are queued for the daemon or unanswered by it.
/// `None` where the kernel does not report it.
pub fn waiting_requests(mount: &Path) -> Option<u64> {
    let found = connection::mount_at(mount).ok()??;
    let control = found.is_fuse().then(connection::fusectl)??;
    let file = control.join(found.device.1.to_string()).join("waiting");
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The culprit of a hang, from the daemon's state, its control socket and the number of its waiting
/// requests.
pub fn culprit(daemon: Option<u32>, had_daemon: bool, control: &Path, waiting: Option<u64>) -> Culprit {
    let Some(pid) = daemon else {
        return if had_daemon { Culprit::DaemonDied } else { Culprit::NoDaemon };
    };
    match state_of(pid) {
        None | Some('Z' | 'X') => Culprit::DaemonDied,
        Some('T' | 't') => Culprit::DaemonStuck,
        // The control socket does not go through the mount, so it cannot hang with it. It times out after
        // ten seconds.
        _ => match fuse::ask(control, fuse::ControlCommand::Counters) {
            Ok(_) => waiting_process(waiting),
            Err(_) => Culprit::DaemonStuck,
        },
    }
}

/// The culprit while the daemon answers on its control socket but not in the mount.
fn waiting_process(waiting: Option<u64>) -> Culprit {
    match waiting {
        Some(0) => Culprit::KernelWaits,
        Some(_) => Culprit::DaemonWaits,
        None => Culprit::Unclear,
    }
}

#[cfg(test)]
#[path = "../../../tests/executable.rs"]
mod executable;

#[cfg(test)]
mod tests {
    use processes::send;

    use super::executable::write_executable;
    use super::*;

    fn until(what: &str, is_so: impl FnMut() -> bool) {
        assert!(wait_until(Duration::from_secs(20), TICK / 10, is_so), "{what}");
    }

    #[test]
    fn the_daemons_state_determines_the_culprit() {
        let of = |daemon, had_daemon| culprit(daemon, had_daemon, Path::new("/nonexistent"), Some(1));
        assert_eq!(of(None, true), Culprit::DaemonDied);
        assert_eq!(of(None, false), Culprit::NoDaemon);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let daemon = child.id();
        send(daemon, Signal::STOP).unwrap();
        until("it stops", || state_of(daemon) == Some('T'));
        assert_eq!(of(Some(daemon), true), Culprit::DaemonStuck);
        send(daemon, Signal::CONT).unwrap();
        assert_eq!(of(Some(daemon), true), Culprit::DaemonStuck);
        child.kill().unwrap();
        until("it ends", || state_of(daemon) == Some('Z'));
        assert_eq!(of(Some(daemon), true), Culprit::DaemonDied);
        child.wait().unwrap();
        assert_eq!(of(Some(daemon), true), Culprit::DaemonDied);
    }

    #[test]
    fn a_daemon_with_queued_requests_is_the_one_that_waits() {
        assert_eq!(waiting_process(Some(0)), Culprit::KernelWaits);
        assert_eq!(waiting_process(Some(2)), Culprit::DaemonWaits);
        assert_eq!(waiting_process(None), Culprit::Unclear);
    }

    #[test]
    fn only_unbroken_samples_of_state_d_count_as_uninterruptible() {
        let mut seen = UninterruptibleTime::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        for (ms, state) in [(0, 'S'), (50, 'D'), (100, 'D'), (150, 'S'), (200, 'D')] {
            seen.see(Some(state), at(ms));
        }
        assert_eq!(seen.longest, Duration::from_millis(50));
        seen.see(Some('D'), at(400));
        assert_eq!(seen.longest, Duration::from_millis(200));
    }

    /// An agent that is a shell script.
    fn scripted(dir: &Path, script: &str) -> Agent {
        let program = dir.join("agent");
        write_executable(&program, &format!("#!/bin/sh\nread job\n{script}\n"));
        let mut agent = Agent::start(&program).unwrap();
        agent.ask(dir, &Job::SyncHeld).unwrap();
        agent
    }

    #[test]
    fn a_call_is_in_flight_until_its_agent_writes_another_line() {
        let dir = tempfile::tempdir().unwrap();
        let mut agent = scripted(dir.path(), "echo '>fsync'; exec sleep 60");
        until("the call begins", || agent.is_waiting(Duration::ZERO));
        assert!(!agent.is_waiting(Duration::from_secs(30)));
        assert_eq!((agent.call().as_str(), agent.syncs()), ("fsync", 0));
    }

    #[test]
    fn an_agent_that_has_answered_is_not_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let answer = serde_json::to_string(&JobAnswer::default()).unwrap();
        let script = format!("echo '>fsync'; echo '>close'; echo '{answer}'; exec sleep 60");
        let mut agent = scripted(dir.path(), &script);
        until("the answer", || {
            assert!(!agent.is_waiting(Duration::from_secs(5)));
            agent.early.is_some()
        });
        assert_eq!(agent.syncs(), 1);
        let waited = agent.wait(Duration::from_secs(5), &Interrupt::never());
        assert!(matches!(waited, WaitOutcome::Answered(_)), "{waited:?}");
    }
}
