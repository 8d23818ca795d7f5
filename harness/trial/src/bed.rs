//! The test bed of a scenario: a workspace, an agent process under its watchdog, the records' history, and
//! the outcome so far.
//! The faults themselves live in `injections`.

mod count;
mod daemon;
mod mount;
mod records;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use arms::backend::{Backend, Launch, Workspace, WorkspaceConfig};
use processes::send;
use rundir::faults::{AgentEvent, AgentEventKind, Audit, Fact, FaultOutcome, Hang, Status};
use rustix::process::Signal;
use workloads::fault::Scenario;

use super::agent::{Job, JobAnswer};
use super::disk::SmallDisk;
use super::history::History;
use super::interrupt::Interrupt;
pub use records::{STREAM, unread};

use super::agent_process::{Agent, WaitOutcome, culprit, waiting_requests};

/// Why a scenario did not run to its end.
#[derive(Debug)]
pub enum ScenarioError {
    /// The scenario cannot run here.
    Skipped(String),
    /// The harness failed.
    Infra(String),
    /// The user interrupted the run.
    Interrupted,
}

impl ScenarioError {
    /// How the outcome records it, with the reason. `None` if the user interrupted the run.
    pub fn reason(self) -> Option<(Status, String)> {
        match self {
            ScenarioError::Skipped(reason) => Some((Status::Skipped, reason)),
            ScenarioError::Infra(reason) => Some((Status::Infra, reason)),
            ScenarioError::Interrupted => None,
        }
    }
}

impl From<io::Error> for ScenarioError {
    fn from(error: io::Error) -> Self {
        ScenarioError::Infra(error.to_string())
    }
}

impl From<anyhow::Error> for ScenarioError {
    fn from(error: anyhow::Error) -> Self {
        ScenarioError::Infra(format!("{error:#}"))
    }
}

/// The result of a step of a scenario.
pub type StepResult<T = ()> = Result<T, ScenarioError>;

/// Ends a scenario that the harness could not carry out.
pub fn infra<T>(reason: impl Into<String>) -> StepResult<T> {
    Err(ScenarioError::Infra(reason.into()))
}

/// Ends a scenario that this machine or backend cannot have.
pub fn skipped<T>(reason: impl Into<String>) -> StepResult<T> {
    Err(ScenarioError::Skipped(reason.into()))
}

/// The test bed of one scenario. Dropping it ends the agent process and unmounts the workspace.
pub struct TestBed {
    /// The scenario.
    pub scenario: Scenario,
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The directory and program of its workspace.
    pub config: WorkspaceConfig,
    /// The seed.
    pub seed: u64,
    /// Set when the user interrupts the run.
    pub interrupt: Interrupt,
    /// Whether long-running steps run at full length.
    pub is_long: bool,
    /// The changes of the records.
    pub history: History,
    /// The outcome so far.
    pub outcome: FaultOutcome,
    /// The workspace, while it is open.
    pub workspace: Option<Box<dyn Workspace>>,
    agent: Option<Agent>,
    next_change: u64,
    /// Bytes of the acknowledgement log at the power cut. Later lines do not count as acknowledgements.
    acknowledged_before_cut: Option<u64>,
    /// How many successful `fsync` calls the agent processes reported.
    fsyncs: u64,
    /// The answer to a job that no agent process received, because nothing was mounted.
    unasked: Option<JobAnswer>,
    /// Names of files written to the mount point's directory while nothing was mounted there.
    beside: Option<String>,
    /// Whether the daemon was killed, or ended when it should not have.
    has_lost_daemon: bool,
    /// The workspace's own disk, if it has one. Declared last, so that it is dropped when nothing uses it.
    pub disk: Option<SmallDisk>,
}

impl TestBed {
    /// A test bed before any step.
    pub fn new(
        scenario: &Scenario,
        backend: Arc<dyn Backend>,
        config: WorkspaceConfig,
        seed: u64,
        interrupt: Interrupt,
        is_long: bool,
    ) -> Self {
        let outcome = FaultOutcome::ran(&scenario.name, scenario.group.name(), &backend.describe().name, seed);
        Self {
            scenario: scenario.clone(),
            backend,
            config,
            seed,
            interrupt,
            is_long,
            history: History::default(),
            outcome,
            workspace: None,
            agent: None,
            next_change: 1,
            acknowledged_before_cut: None,
            fsyncs: 0,
            unasked: None,
            beside: None,
            has_lost_daemon: false,
            disk: None,
        }
    }

    /// Opens the workspace: starts its daemon and mounts it.
    pub fn open(&mut self) -> StepResult {
        self.workspace = Some(self.backend.open(&self.config).context("opening")?);
        Ok(())
    }

    /// The backend with a daemon of our own that is started in another way.
    pub fn with_launch(&self, launch: Launch) -> StepResult<Box<dyn Backend>> {
        let launched = self.backend.with_launch(launch);
        launched.map_or_else(|| skipped("its daemon is not served by `ctxbench mount`"), Ok)
    }

    /// The directory in which the agent process works.
    pub fn root(&self) -> PathBuf {
        let root = self.workspace.as_ref().map(|open| open.root().to_owned());
        root.unwrap_or_else(|| self.mount_point())
    }

    /// Path of the acknowledgement log, on a plain file system next to the workspace.
    pub fn acknowledgements(&self) -> PathBuf {
        let mut path = self.config.dir.clone().into_os_string();
        path.push(".acknowledged");
        path.into()
    }

    /// The time limit of one call.
    pub fn hang_limit(&self) -> Duration {
        Duration::from_secs_f64(self.scenario.limits.hang)
    }

    /// The disk of its own under the workspace.
    pub fn disk(&self) -> StepResult<&SmallDisk> {
        Ok(self.disk.as_ref().context("there is no small disk")?)
    }

    /// Describes the injected fault, in a sentence.
    pub fn injected(&mut self, what: impl Into<String>) {
        self.outcome.injected = what.into();
    }

    /// Says in which way the fault is simulated or shortened.
    pub fn label(&mut self, label: impl Into<String>) {
        self.outcome.label = Some(label.into());
    }

    /// Records a fact.
    pub fn fact(&mut self, name: &str, fact: Fact) {
        self.outcome.facts.insert(name.to_owned(), fact);
    }

    /// Records a count.
    pub fn count(&mut self, name: &str, count: u64) {
        self.fact(name, Fact::Count(count));
    }

    /// Records a fact in words.
    pub fn words(&mut self, name: &str, words: impl Into<String>) {
        self.fact(name, Fact::Words(words.into()));
    }

    /// Records the refusal of a mount.
    pub fn refused(&mut self, words: &str) {
        self.saw("mount", AgentEventKind::Refusal, None, words);
    }

    /// Records an audit under the name `what`.
    pub fn audited(&mut self, what: &str, audit: Audit) {
        self.outcome.audits.insert(what.to_owned(), audit);
    }

    /// Records a behaviour that the backend must not show.
    pub fn breach(&mut self, what: impl Into<String>) {
        self.outcome.breaches.push(what.into());
    }

    /// Records what the agent process observed of a call.
    pub fn saw(&mut self, call: &str, what: AgentEventKind, errno: Option<i32>, text: &str) {
        let seen = self.outcome.seen.iter_mut();
        let mut same =
            seen.filter(|seen| seen.call == call && seen.what == what && seen.errno == errno && seen.text == text);
        if let Some(seen) = same.next() {
            seen.times += 1;
            return;
        }
        self.outcome.seen.push(AgentEvent { call: call.to_owned(), what, errno, text: text.to_owned(), times: 1 });
    }

    // ── The agent ──────────────────────────────────────────────────────────────────────────────

    /// Gives the agent process a job on the file, directory or workspace `at`, without waiting for the
    /// answer.
    pub fn begin(&mut self, at: impl AsRef<Path>, job: &Job) -> StepResult {
        if self.interrupt.is_set() {
            return Err(ScenarioError::Interrupted);
        }
        let at = at.as_ref();
        if !job.is_of_open_file() && self.is_bare(at) {
            self.unasked = Some(mount::not_mounted());
            return Ok(());
        }
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => Agent::start(&self.config.program)?,
        };
        Ok(self.agent.insert(agent).ask(at, job)?)
    }

    /// Waits for the agent process's answer. `None` if it hung or was killed. Both are recorded, and the
    /// next job starts a new process.
    pub fn end(&mut self) -> StepResult<Option<JobAnswer>> {
        let limit = self.hang_limit();
        self.end_within(limit)
    }

    /// As [`TestBed::end`], with another time limit per call than the scenario's.
    pub fn end_within(&mut self, limit: Duration) -> StepResult<Option<JobAnswer>> {
        if let Some(answer) = self.unasked.take() {
            self.note(&answer);
            return Ok(Some(answer));
        }
        let Some(mut agent) = self.agent.take() else {
            return Ok(None);
        };
        let waited = agent.wait(limit, &self.interrupt);
        let answer = self.take(agent, waited)?;
        self.sweep();
        Ok(answer)
    }

    /// As [`TestBed::end`], for an agent process that is not the test bed's own. The process is not
    /// returned if it hung or ended.
    pub fn end_of(&mut self, mut other: Agent) -> StepResult<(Option<JobAnswer>, Option<Agent>)> {
        let agent = self.agent.take();
        let waited = other.wait(self.hang_limit(), &self.interrupt);
        let answer = self.take(other, waited)?;
        let other = std::mem::replace(&mut self.agent, agent);
        Ok((answer, other))
    }

    /// Records the result of waiting for an agent process, and keeps the process if it answered.
    fn take(&mut self, mut agent: Agent, waited: WaitOutcome) -> StepResult<Option<JobAnswer>> {
        match waited {
            WaitOutcome::Answered(answer) => {
                self.note(&answer);
                self.note_uninterruptible(agent.uninterruptible());
                self.agent = Some(agent);
                Ok(Some(answer))
            }
            WaitOutcome::Interrupted => Err(ScenarioError::Interrupted),
            WaitOutcome::Ended(status) => {
                let call = agent.call();
                let status = status.map_or("unknown".to_owned(), |status| status.to_string());
                let text = format!("the agent ended: {status}");
                self.saw(&call, AgentEventKind::Killed, None, &text);
                Ok(None)
            }
            WaitOutcome::Overdue => {
                let hang = self.blame(&mut agent);
                self.note_uninterruptible(agent.uninterruptible());
                self.note_hang(hang);
                Ok(None)
            }
        }
    }

    /// Gives the agent process a job and waits for the answer.
    pub fn perform(&mut self, at: impl AsRef<Path>, job: &Job) -> StepResult<Option<JobAnswer>> {
        self.begin(at, job)?;
        self.end()
    }

    /// As [`TestBed::perform`]. Returns whether there was an answer without a failure.
    pub fn succeeds(&mut self, at: impl AsRef<Path>, job: &Job) -> StepResult<bool> {
        let answer = self.perform(at, job)?;
        Ok(answer.is_some_and(|answer| answer.failures.is_empty()))
    }

    /// As [`TestBed::perform`]. Failures are not added to the outcome; a hang is.
    pub fn try_out(&mut self, at: impl AsRef<Path>, job: &Job) -> StepResult<Option<JobAnswer>> {
        let before = self.outcome.seen.clone();
        let answer = self.perform(at, job)?;
        if answer.is_some() {
            self.outcome.seen = before;
        }
        Ok(answer)
    }

    /// The agent process, if one is running.
    pub fn agent(&mut self) -> Option<&mut Agent> {
        self.agent.as_mut()
    }

    /// Drops the agent process. The next job starts a new one.
    pub fn dismiss_agent(&mut self) {
        self.agent = None;
    }

    fn note(&mut self, answer: &JobAnswer) {
        self.next_change = self.next_change.max(answer.next);
        self.fsyncs += answer.fsyncs;
        let longest = answer.longest_ns / 1_000_000;
        self.outcome.longest_call_ms = self.outcome.longest_call_ms.max(longest);
        if Duration::from_nanos(answer.longest_ns) > self.hang_limit() {
            self.breach(format!(
                "a call took {:.1} s, more than the limit of {} s, and then ended by itself",
                answer.longest_ns as f64 / 1e9,
                self.scenario.limits.hang
            ));
        }
        for failure in &answer.failures {
            self.saw(&failure.call, failure.what, failure.errno, &failure.text);
        }
    }

    fn note_uninterruptible(&mut self, seen: Duration) {
        let ms = seen.as_millis() as u64;
        if seen > self.hang_limit() && self.outcome.uninterruptible_ms < ms {
            self.breach(format!(
                "an agent was in state D (uninterruptible, or only killable) for {:.1} s",
                seen.as_secs_f64()
            ));
        }
        self.outcome.uninterruptible_ms = self.outcome.uninterruptible_ms.max(ms);
    }

    /// Determines the culprit of a hang, and ends the agent process.
    fn blame(&self, agent: &mut Agent) -> Hang {
        // Measured first, because finding the culprit may take seconds.
        let waited = agent.in_call();
        let daemon = self.daemon();
        let had_daemon = self.backend.describe().daemons > 0;
        let waiting = waiting_requests(&self.mount_point());
        let culprit = culprit(daemon, had_daemon, &self.config.dir.join("control"), waiting);
        let mount = self.workspace.as_ref().map(|workspace| workspace.kill_handle());
        agent.end_hang(waited, &mount.unwrap_or_default(), culprit)
    }

    /// Records a hang of the agent process.
    fn note_hang(&mut self, hang: Hang) {
        let culprit = hang.culprit;
        self.outcome.longest_call_ms = self.outcome.longest_call_ms.max(hang.waited_ms);
        let words = format!("{}, ended by {}", culprit.words(), hang.ended_by);
        self.saw(&hang.call, AgentEventKind::Hang, None, &words);
        self.breach(format!("{} did not end within {} s: {words}", hang.call, self.scenario.limits.hang));
        self.outcome.hang.get_or_insert(hang);
    }

    /// Waits until a condition holds. Returns false if `limit` passes first.
    pub fn wait_until(
        &mut self,
        limit: Duration,
        tick: Duration,
        mut is_so: impl FnMut(&mut Self) -> StepResult<bool>,
    ) -> StepResult<bool> {
        let deadline = Instant::now() + limit;
        while !is_so(self)? {
            if self.interrupt.is_set() {
                return Err(ScenarioError::Interrupted);
            }
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(tick);
        }
        Ok(true)
    }

    /// The short duration, or with `--long` the long one.
    pub fn seconds(&self, short: f64, long: f64) -> f64 {
        if self.is_long { long } else { short }
    }

    /// Path of the ctxbench binary.
    pub fn program(&self) -> &Path {
        &self.config.program
    }
}

impl Drop for TestBed {
    fn drop(&mut self) {
        // The agent process is dropped first, because it may have open files in the mount. A stopped daemon
        // gets SIGCONT, so that it can end.
        self.agent = None;
        if let Some(daemon) = self.daemon() {
            // An error means that the daemon has ended.
            let _ = send(daemon, Signal::CONT);
        }
        self.workspace = None;
    }
}

#[cfg(test)]
#[path = "bed_tests.rs"]
mod tests;
