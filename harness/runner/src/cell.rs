//! One cell of one epoch: all arms are mounted at once, and short passes alternate between them.
//!
//! [`crate::pass`] runs one pass. [`crate::schedule`] chooses the cells and their order.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use arms::backend::{Backend, DAEMON_PATIENCE, Description, WorkspaceConfig};
use arms::services::Services;
use fuse::cpu;
use replay::ResultBuffer;
use rundir::{CellEpoch, DaemonCounters, Limits, Load, Outcome, Sample};
use rustix::process::Signal;
use workloads::definition::{CacheState, Workload};
use workloads::script::FileOp;

use crate::pass::{CounterUse, Driver, Expectations, ExpectationsCache, Pass, PassResult, Workspaces, driver, failure};
use crate::quiet::Gauge;
use crate::system;
use record::{PendingPass, Totals};
use trial::interrupt::Interrupt;
use trial::watchdog::Watchdog;

/// Time limit for opening, filling, syncing or closing a workspace.
const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// Bytes that finished passes of an arm may keep on the scratch. Beyond it their subtrees are removed.
const KEPT_BYTES: u64 = 32 << 20;

/// Wait after dropping the caches, until the kernel's FORGET requests have reached every daemon.
pub const SETTLING: Duration = Duration::from_millis(30);

/// How long caches stay hot after a pass or a warm-up. Kernels keep names and attributes of FUSE mounts for a
/// second unless the mount sets another timeout.
const STAYS_HOT: Duration = Duration::from_millis(500);

/// Passes in rounds that are multiples of this read all files back, and so do passes of an arm until one has succeeded. Where
/// calls change no file, only these do: to read 1,000 files back would take as long as several rounds.
const READ_BACK_EVERY: u32 = 8;

/// Upper bound of an arm's stride, in rounds.
const MOST_STRIDE: u32 = 4;

/// The fewest rounds that are timed. One, for long passes: five epochs of one round decide more than three of two.
pub const MIN_ROUNDS: u32 = 1;

/// An arm in a cell.
#[derive(Clone)]
pub struct CellArm {
    /// Its name in the plan.
    pub name: String,
    /// Whether it is a third-party file system.
    pub is_external: bool,
    /// What mounts it.
    pub backend: Arc<dyn Backend>,
    /// By how many percent its calls are lengthened on purpose.
    pub slowed_percent: u32,
}

impl CellArm {
    /// Whether its files are in a bucket.
    fn has_bucket(&self) -> bool {
        self.backend.promises().machine_loss.is_some()
    }
}

/// What all cells of a run have in common.
#[derive(Clone)]
pub struct RunSetup {
    /// The `ctxbench` binary, for daemons.
    pub program: PathBuf,
    /// Ends the run between calls.
    pub interrupt: Interrupt,
    /// When the run started.
    pub started: Instant,
    /// The servers that the arms share.
    pub services: Arc<Services>,
    /// The results that passes must have.
    pub expectations: Arc<ExpectationsCache>,
}

/// The rounds of a cell.
pub struct Rounds {
    /// The order of the arms, by round.
    pub orders: Vec<Vec<usize>>,
    /// Whether the first round is not timed: it warms up a hot cell.
    pub warm_up: bool,
    /// How long after the start of the cell a round may begin. [`MIN_ROUNDS`] timed rounds run in any case.
    pub slice: Duration,
    /// The limits above which the machine counts as busy.
    pub limits: Limits,
}

impl Rounds {
    /// The first timed round.
    fn first_timed(&self) -> u32 {
        u32::from(self.warm_up)
    }
}

/// The input of a cell.
pub struct CellTask {
    /// What it has in common with the other cells of the run.
    pub setup: RunSetup,
    /// The number of the epoch, over all sections.
    pub epoch: u32,
    /// What each pass performs.
    pub workload: Arc<Workload>,
    /// The state of the caches before each pass.
    pub state: CacheState,
    /// The name of the cell's state, with the placement.
    pub state_name: String,
    /// The arms that take part.
    pub arms: Vec<CellArm>,
    /// Their rounds.
    pub rounds: Rounds,
    /// An empty directory of the cell's own on the scratch.
    pub dir: PathBuf,
    /// The processor that client and daemons share. `None`: the kernel's scheduler places them.
    pub cpu: Option<usize>,
    /// A call that takes longer is a timeout.
    pub call_timeout: Duration,
}

/// A line for the run directory.
#[derive(Debug)]
pub enum Line {
    /// A pass. The receiver fills in its position in the run's order.
    Sample(Box<Sample>),
    /// An arm's cell.
    Cell(Box<CellEpoch>),
}

/// An arm's state during its cell.
struct MountedArm<'a> {
    arm: &'a CellArm,
    /// Its index in the cell.
    place: usize,
    described: Description,
    driver: Box<dyn Driver>,
    expectations: Arc<Expectations>,
    config: WorkspaceConfig,
    workspaces: Option<Workspaces>,
    subtree: SubtreeState,
    totals: Totals,
    /// In lukewarm and cold cells: the daemon's counters from before the caches were dropped.
    counted_before: Option<DaemonCounters>,
    /// It takes part in rounds that are multiples of this.
    stride: u32,
}

/// The state of an arm's subtree.
#[derive(Default)]
struct SubtreeState {
    /// Fresh subtrees or workspaces filled so far.
    number: u32,
    /// Whether the subtree can be reused. If calls change files, it must be restored first.
    is_filled: bool,
    /// End of the last pass, if it ended well and changed nothing.
    warmed: Option<Instant>,
    /// Whether a pass that succeeded has read all files back.
    is_read_back: bool,
    /// Bytes in the subtrees of earlier passes, estimated.
    kept_bytes: u64,
}

/// A cell under way.
struct CellRun<'a> {
    task: &'a CellTask,
    watchdog: &'a Watchdog,
    lines: &'a Sender<Line>,
    /// When the cell began; the clock of its calls.
    began: Instant,
    buffer: ResultBuffer,
    pending: Vec<PendingPass>,
    /// Timed rounds in closed gauge windows on a quiet machine.
    quiet_rounds: u32,
    /// Timed rounds in closed gauge windows on a busy machine.
    busy_rounds: u32,
}

impl CellTask {
    /// Runs the cell in the calling thread and sends its lines.
    pub fn run(&self, watchdog: &Watchdog, lines: &Sender<Line>) {
        let (began, buffer) = (Instant::now(), ResultBuffer::new());
        CellRun { task: self, watchdog, lines, began, buffer, pending: Vec::new(), quiet_rounds: 0, busy_rounds: 0 }
            .run();
    }

    /// The directory of the cell's arm at `place`, after `reopened` others of it. All have names of one length: a longer path
    /// takes longer to resolve.
    fn arm_dir(&self, place: usize, reopened: u32) -> PathBuf {
        self.dir.join(format!("arm{place:03}-{reopened:05}"))
    }
}

impl<'a> CellRun<'a> {
    fn run(mut self) {
        let arms = self.task.arms.iter().enumerate();
        let mut arms: Vec<MountedArm<'_>> = arms.map(|(place, arm)| self.mounted(place, arm)).collect();
        if let Some(cpu) = arms.iter().find_map(|arm| arm.config.cpu)
            && let Err(error) = cpu::pin(cpu)
        {
            tracing::warn!("staying on processor {cpu}: {error}");
        }
        self.watchdog.shield();
        for arm in &mut arms {
            if self.ends() {
                break;
            }
            self.watchdog.enter(SETUP_LIMIT);
            if let Err(error) = self.open(arm) {
                self.send_failure(arm.arm, 0, PassResult::ended(Outcome::Setup, error), self.began);
                self.give_up(arm);
            }
        }
        // Pause only now: pausing one arm can stop the server that another arm opens on.
        arms.iter().for_each(|arm| self.pause(arm));
        self.watchdog.leave();
        if !self.ends() {
            self.watchdog.unshield();
        }
        let mut gauge = Gauge::open(self.task.rounds.limits);
        let first_timed = self.task.rounds.first_timed();
        for (round, order) in (0..).zip(&self.task.rounds.orders) {
            if self.ends() {
                break;
            }
            if self.began.elapsed() >= self.task.rounds.slice && round >= first_timed + MIN_ROUNDS {
                if let Some(quiet) = gauge.window(true) {
                    self.flush(&mut arms, quiet);
                }
                let repeats = (self.task.rounds.limits.repeats * f64::from(MIN_ROUNDS)).ceil() as u32;
                if self.quiet_rounds >= MIN_ROUNDS || self.quiet_rounds + self.busy_rounds >= MIN_ROUNDS + repeats {
                    break;
                }
            }
            let alive = order.iter().any(|at| arms[*at].workspaces.is_some());
            if !alive {
                break;
            }
            // A repeated round is of all arms.
            let takes_part = |at: &usize| self.quiet_rounds < MIN_ROUNDS || round.is_multiple_of(arms[*at].stride);
            let order: Vec<usize> = order.iter().copied().filter(takes_part).collect();
            if self.task.state != CacheState::Hot {
                self.fill_for_round(&mut arms, &order, round);
            }
            let outside = gauge.before_round();
            for at in &order {
                let arm = &mut arms[*at];
                if self.task.state != CacheState::Hot {
                    self.empty_caches(arm, round);
                }
                if arm.workspaces.is_none() {
                    continue;
                }
                let pass_began = Instant::now();
                let is_warm_up = round < first_timed;
                let (passed, mut load) = self.pass(arm, round, &gauge);
                if passed.interrupted || self.ends() {
                    return self.take_down(arms);
                }
                load.busy = load.busy.or_else(|| outside.clone());
                let is_lost = self.watchdog.killed().is_some()
                    || matches!(passed.worst_outcome, Some((Outcome::Hang | Outcome::Crash | Outcome::Setup, _)));
                self.pending.push(PendingPass {
                    arm: *at,
                    round,
                    passed,
                    load,
                    began: pass_began,
                    took: pass_began.elapsed(),
                    is_warm_up,
                });
                if is_lost {
                    self.give_up(arm);
                }
            }
            if round == first_timed {
                set_strides(&mut arms, &self.pending);
            }
            if let Some(quiet) = gauge.window(false) {
                self.flush(&mut arms, quiet);
            }
        }
        let quiet = gauge.window(true).unwrap_or(Ok(()));
        self.flush(&mut arms, quiet);
        self.take_down(arms);
    }

    /// Whether no call may follow: the user ended the run, or the supervisor abandoned this thread.
    fn ends(&self) -> bool {
        self.task.setup.interrupt.is_set() || self.watchdog.is_abandoned()
    }

    fn mounted(&self, place: usize, arm: &'a CellArm) -> MountedArm<'a> {
        let described = arm.backend.describe();
        let driver: Box<dyn Driver> = driver(&self.task.workload.script, &*arm.backend);
        let known = &self.task.setup.expectations;
        MountedArm {
            expectations: known.of(&self.task.workload, self.task.state, &described, arm.backend.access()),
            place,
            config: WorkspaceConfig {
                dir: self.task.arm_dir(place, 0),
                program: self.task.setup.program.clone(),
                patience: DAEMON_PATIENCE,
                cpu: self.task.cpu.filter(|_| !driver.rules().needs_all_processors),
                allow_other: false,
            },
            described,
            driver,
            arm,
            workspaces: None,
            subtree: SubtreeState::default(),
            totals: Totals::default(),
            counted_before: None,
            stride: 1,
        }
    }

    fn open(&self, arm: &mut MountedArm<'_>) -> io::Result<()> {
        std::fs::create_dir_all(&arm.config.dir)?;
        let mut workspaces = Workspaces::one(arm.arm.backend.open(&arm.config)?);
        arm.totals.note_ready(workspaces.first.time_to_ready());
        arm.driver.open(&mut workspaces, &*arm.arm.backend, &arm.config)?;
        arm.workspaces = Some(workspaces);
        Ok(())
    }

    /// In hot cells the daemon and the servers of an idle arm are stopped, so that no other arm pays for their
    /// background work. In lukewarm and cold cells they run on, to receive the kernel's FORGET requests.
    fn pause(&self, arm: &MountedArm<'_>) {
        if self.task.state == CacheState::Hot && !arm.driver.rules().runs_idle_arms {
            self.signal(arm, Signal::STOP);
        }
    }

    fn resume(&self, arm: &MountedArm<'_>) {
        self.signal(arm, Signal::CONT);
    }

    /// Sends `signal` to the arm's daemon, and to the S3 servers if its files are on them.
    fn signal(&self, arm: &MountedArm<'_>, signal: Signal) {
        let daemon = arm.workspaces.as_ref().and_then(|workspaces| workspaces.first.daemon());
        // An external file system in the cell may use the same servers, so they keep running.
        let signals_servers = arm.arm.has_bucket() && self.task.arms.iter().all(|arm| !arm.is_external);
        let servers = if signals_servers { self.task.setup.services.s3.processes() } else { Vec::new() };
        signal_all(servers.into_iter().chain(daemon), signal);
    }

    /// If preparing an arm failed, sends a sample with the error and gives the arm up.
    fn or_give_up(&self, arm: &mut MountedArm<'_>, prepared: io::Result<()>, round: u32, began: Instant) {
        if let Err(error) = prepared {
            let passed = self.failed_to_prepare(arm, &error);
            self.send_failure(arm.arm, round, passed, began);
            self.give_up(arm);
        }
    }

    /// Drops an arm's workspaces and excludes it from the rest of the cell. The other arms go on.
    fn give_up(&self, arm: &mut MountedArm<'_>) {
        self.resume(arm);
        arm.workspaces = None;
        self.watchdog.mend();
    }

    fn failed_to_prepare(&self, arm: &mut MountedArm<'_>, error: &io::Error) -> PassResult {
        let exit_reason = arm.workspaces.as_mut().and_then(Workspaces::exit_reason);
        let (outcome, why) = failure(self.watchdog, exit_reason, Outcome::Setup);
        PassResult::ended(outcome, format!("preparing the workspace: {error}{why}"))
    }

    fn pass(&mut self, arm: &mut MountedArm<'_>, round: u32, gauge: &Gauge) -> (PassResult, Load) {
        let is_hot = self.task.state == CacheState::Hot;
        let is_warm_up = round < self.task.rounds.first_timed();
        let rules = arm.driver.rules();
        self.resume(arm);
        if is_hot {
            let waits_for_others = arm.expectations.syncs() || rules.syncs_first;
            let mut prepared = self.freshen(arm);
            let is_warm = arm.subtree.warmed.is_some_and(|at| at.elapsed() < STAYS_HOT);
            if !is_warm {
                prepared = prepared.and_then(|()| self.warm(arm));
            }
            if waits_for_others {
                // Other arms' dirty pages must not lengthen this arm's calls.
                prepared = prepared.and_then(|()| {
                    self.watchdog.enter(SETUP_LIMIT);
                    Ok(rustix::fs::syncfs(std::fs::File::open(&self.task.dir)?)?)
                });
            }
            if let Err(error) = prepared {
                let passed = self.failed_to_prepare(arm, &error);
                return (passed, Load::default());
            }
        }
        self.watchdog.leave();
        let Some(workspaces) = &mut arm.workspaces else {
            return (PassResult::ended(Outcome::Setup, "the workspace is gone"), Load::default());
        };
        workspaces.answer_for(self.watchdog);
        let is_due = round.is_multiple_of(READ_BACK_EVERY) && !arm.expectations.is_read_back_once();
        let reads_back = !arm.subtree.is_read_back || is_due;
        let pass = Pass {
            expectations: &arm.expectations,
            backend: &arm.described,
            has_bucket: arm.arm.has_bucket(),
            state: self.task.state,
            slowed_percent: arm.arm.slowed_percent,
            counting: match (is_hot, is_warm_up) {
                _ if rules.is_uncounted => CounterUse::Never,
                (true, true) => CounterUse::Now,
                // Without a warm-up pass, the first timed pass is counted.
                (true, false) if !self.task.rounds.warm_up && round == 0 => CounterUse::Now,
                (true, false) => CounterUse::Never,
                (false, _) => CounterUse::Since(arm.counted_before.take()),
            },
            // A warm-up pass starts with cold caches.
            proves_state: !is_warm_up && !rules.is_unproved,
            reads_back,
            call_timeout: self.task.call_timeout,
            interrupt: &self.task.setup.interrupt,
        };
        let reading = gauge.begin();
        let mut load = Load::default();
        let mut passed = pass.run(&*arm.driver, workspaces, self.watchdog, &self.began, &mut self.buffer, &mut || {
            let waits_for_disk =
                !is_hot || arm.expectations.syncs() || arm.expectations.changes() || rules.waits_for_disk;
            load = gauge.end(&reading, arm.described.daemons == 0, waits_for_disk);
        });
        if let Some(daemon) = workspaces.first.daemon() {
            arm.totals.memory = system::process_memory(daemon);
        }
        if let Some(cold) = passed.not_hot.take() {
            // A pass that was not hot counts as one on a busy machine.
            load.busy.get_or_insert(cold);
        }
        let went_wrong = passed.worst_outcome.is_some();
        let subtree = &mut arm.subtree;
        subtree.is_filled &= !went_wrong;
        subtree.is_read_back |= reads_back && !went_wrong;
        // Reading a file makes the kernel forget its access time, and with it the attributes that the next pass asks for.
        let is_as_before = subtree.is_filled && !arm.expectations.changes() && !reads_back;
        subtree.warmed = is_as_before.then(Instant::now);
        self.pause(arm);
        (passed, load)
    }

    fn take_down(&self, arms: Vec<MountedArm<'_>>) {
        self.watchdog.shield();
        arms.iter().for_each(|arm| self.resume(arm));
        for mut arm in arms {
            self.watchdog.independent();
            self.watchdog.enter(SETUP_LIMIT);
            if arm.arm.has_bucket() && arm.described.capabilities.counts_requests {
                // Skip the orderly close: it would upload files that no later pass reads.
                arm.workspaces = None;
            }
            // A mount that did not close could make a walk hang.
            let closed = arm.workspaces.take().map(|workspaces| workspaces.close());
            let stored_bytes = matches!(closed, Some(Ok(()))).then(|| system::disk_use(&arm.config.dir));
            if let Some(Err(error)) = closed
                && !self.task.setup.interrupt.is_set()
            {
                let passed = PassResult::ended(Outcome::Infra, format!("closing the workspace: {error}"));
                self.send_failure(arm.arm, 0, passed, self.began);
            }
            self.watchdog.leave();
            let cell = CellEpoch {
                epoch: self.task.epoch,
                arm: arm.arm.name.clone(),
                workload: self.task.workload.name.clone(),
                state: self.task.state_name.clone(),
                stored_bytes,
                took_ms: self.began.elapsed().as_millis() as u64,
                ..arm.totals.into()
            };
            let _ = self.lines.send(Line::Cell(Box::new(cell)));
        }
    }
}

/// Lets slow arms skip rounds, so that the other arms get enough passes. `passes` must hold the first timed
/// round of every arm.
fn set_strides(arms: &mut [MountedArm<'_>], passes: &[PendingPass]) {
    let mut took: Vec<(usize, f64)> =
        passes.iter().filter(|pass| !pass.is_warm_up).map(|pass| (pass.arm, pass.took.as_secs_f64())).collect();
    took.sort_by(|a, b| a.1.total_cmp(&b.1));
    // For an even number of arms, the slower of the middle two.
    let Some((_, middle)) = took.get(took.len() / 2).copied() else {
        return;
    };
    for (arm, took) in took {
        arms[arm].stride = ((took / middle / 1.5) as u32).clamp(1, MOST_STRIDE);
    }
}

/// Sends a signal to processes. Errors are ignored: the next call that needs an ended process reports it.
pub fn signal_all(pids: impl IntoIterator<Item = u32>, signal: Signal) {
    for pid in pids {
        let _ = processes::send(pid, signal);
    }
}

/// Bytes that a pass leaves on the scratch, estimated from its script, without filler files: they are made once for a cell.
pub fn pass_bytes(workload: &Workload) -> u64 {
    let script = &workload.script;
    let files = script.files.iter().map(|(_, content)| content.len() as u64);
    let ops = script.calls.iter().flat_map(|call| &call.ops);
    let written = ops.map(|op| match op {
        FileOp::Write { content, .. } | FileOp::WriteAt { content, .. } | FileOp::Append { content, .. } => {
            content.len() as u64
        }
        _ => 0,
    });
    let first = files.sum::<u64>() + 4096 * script.files.len() as u64;
    let ops = script.calls.iter().flat_map(|call| &call.ops);
    let runs = ops.filter_map(|op| match op {
        FileOp::Run(run) => Some(&**run),
        _ => None,
    });
    let trees = runs.chain(&script.setup).map(|run| (run.copies.len() + run.makes.len()) as u64);
    first * (1 + trees.sum::<u64>()) + written.sum::<u64>()
}

mod record;
#[cfg(test)]
mod tests;
mod workspaces;
#[cfg(test)]
pub use workspaces::subtree_name;
