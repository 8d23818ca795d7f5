//! One cell of one epoch: all arms are mounted at once, and short passes alternate between them.
//!
//! [`crate::pass`] runs one pass. [`crate::schedule`] chooses the cells and their order.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use arms::backend::{Access, Backend, Description, WorkspaceConfig};
use arms::services::Services;
use fuse::cpu;
use hdrhistogram::Histogram;
use rundir::{CellEpoch, Counted, DaemonCounters, Latencies, Limits, Load, Memory, Outcome, SCHEMA_VERSION, Sample};
use rustix::process::{Pid, Signal, kill_process};
use workloads::definition::{CacheState, Workload};
use workloads::script::{CallKind, FileOp, Script};

use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::pass::{
    self, Counting, Expectations, ExpectationsCache, Pass, Passed, Steps, TaskContext, Workspaces, missing_programs,
    start_model,
};
use crate::quiet::Gauge;
use crate::supervise::Watchdog;
use crate::system;
use replay::ResultBuffer;

/// Time limit for opening, filling, syncing or closing a workspace.
const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// How long a daemon may take to start or stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

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

/// The input of a cell.
pub struct CellTask {
    /// The number of the epoch, over all sections.
    pub epoch: u32,
    /// What each pass performs.
    pub workload: Arc<Workload>,
    /// The state of the caches before each pass.
    pub state: CacheState,
    /// The name of the cell's state, with the placement.
    pub state_name: String,
    /// Whether the first round is not timed: it warms up a hot cell.
    pub warms_up: bool,
    /// The arms that take part.
    pub arms: Vec<CellArm>,
    /// The order of the arms, by round.
    pub orders: Vec<Vec<usize>>,
    /// An empty directory of the cell's own on the scratch.
    pub dir: PathBuf,
    /// The `ctxbench` binary, for daemons.
    pub program: PathBuf,
    /// The processor that client and daemons share. `None`: the kernel's scheduler places them.
    pub cpu: Option<usize>,
    /// A call that takes longer is a timeout.
    pub call_timeout: Duration,
    /// How long after the start of the cell a round may begin. [`MIN_ROUNDS`] timed rounds run in any case.
    pub slice: Duration,
    /// The limits above which the machine counts as busy.
    pub limits: Limits,
    /// Ends the cell between calls.
    pub interrupt: Interrupt,
    /// When the run started.
    pub run_started: Instant,
    /// The servers that the arms share.
    pub services: Arc<Services>,
    /// The results that passes must have.
    pub expectations: Arc<ExpectationsCache>,
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
    has_bucket: bool,
    expectations: Arc<Expectations>,
    config: WorkspaceConfig,
    workspaces: Option<Workspaces>,
    /// For tool backends: a snapshot of the empty workspace.
    empty: Option<String>,
    /// Fresh subtrees or workspaces filled so far.
    subtrees: u32,
    /// Whether the subtree can be reused. If calls change files, it must be restored first.
    is_filled: bool,
    /// Whether changes are undone, if they can be: in hot cells. If not, each pass gets its own subtree.
    is_restored: bool,
    /// End of the last pass, if it ended well and changed nothing.
    warmed: Option<Instant>,
    kept_bytes: u64,
    /// Whether a pass that succeeded has read all files back.
    is_read_back: bool,
    times: BTreeMap<CallKind, Histogram<u64>>,
    counted: Counted,
    ready_ns: Vec<u64>,
    timed_ns: u64,
    memory: Memory,
    /// In lukewarm and cold cells: the daemon's counters from before the caches were dropped.
    counted_before: Option<DaemonCounters>,
    /// The S3 servers, if they are stopped with its daemon.
    stops_servers: Option<&'a Services>,
    /// It takes part in rounds that are multiples of this.
    stride: u32,
}

/// A finished pass whose gauge window is still open: whether the machine was quiet is not known yet.
struct Pending {
    arm: usize,
    round: u32,
    passed: Passed,
    load: Load,
    began: Instant,
    took: Duration,
    is_warm_up: bool,
}

impl CellTask {
    /// Runs the cell in the calling thread and sends its lines.
    pub fn run(&self, watchdog: &Watchdog, clock: &impl Clock, lines: &Sender<Line>) {
        let began = Instant::now();
        if let Some(cpu) = self.cpu
            && let Err(error) = cpu::pin(cpu)
        {
            tracing::warn!("staying on processor {cpu}: {error}");
        }
        let arms = self.arms.iter().enumerate();
        let mut arms: Vec<MountedArm<'_>> = arms.map(|(place, arm)| self.mounted(place, arm)).collect();
        watchdog.shield();
        for arm in &mut arms {
            if self.ends(watchdog) {
                break;
            }
            watchdog.enter(SETUP_LIMIT);
            if let Err(error) = self.open(arm) {
                let passed = Passed::ended(Outcome::Setup, error);
                self.send_failure(lines, arm.arm, 0, passed, began);
                self.give_up(arm, watchdog);
            }
        }
        // Pause only now: pausing one arm can stop the server that another arm opens on.
        arms.iter().for_each(|arm| self.pause(arm));
        watchdog.leave();
        if !self.ends(watchdog) {
            watchdog.unshield();
        }
        let mut gauge = Gauge::open(self.limits);
        let mut buffer = ResultBuffer::new();
        let first_timed = self.first_timed();
        let mut pending: Vec<Pending> = Vec::new();
        // Timed rounds in closed gauge windows: quiet ones, busy ones.
        let mut rounds = (0, 0);
        for (round, order) in (0..).zip(&self.orders) {
            if self.ends(watchdog) {
                break;
            }
            if began.elapsed() >= self.slice && round >= first_timed + MIN_ROUNDS {
                if let Some(quiet) = gauge.window(true) {
                    self.flush(&mut arms, &mut pending, quiet, lines, &mut rounds);
                }
                let repeats = (self.limits.repeats * f64::from(MIN_ROUNDS)).ceil() as u32;
                if rounds.0 >= MIN_ROUNDS || rounds.0 + rounds.1 >= MIN_ROUNDS + repeats {
                    break;
                }
            }
            let alive = order.iter().any(|at| arms[*at].workspaces.is_some());
            if !alive {
                break;
            }
            // A repeated round is of all arms.
            let takes_part = |at: &usize| rounds.0 < MIN_ROUNDS || round.is_multiple_of(arms[*at].stride);
            let order: Vec<usize> = order.iter().copied().filter(takes_part).collect();
            if self.state != CacheState::Hot {
                self.fill_for_round(&mut arms, &order, round, watchdog, &mut buffer, lines);
            }
            let outside = gauge.before_round();
            for at in &order {
                let arm = &mut arms[*at];
                if self.state != CacheState::Hot {
                    self.empty_caches(arm, round, watchdog, lines);
                }
                if arm.workspaces.is_none() {
                    continue;
                }
                let pass_began = Instant::now();
                let is_warm_up = round < first_timed;
                let (passed, mut load) = self.pass(arm, round, &gauge, watchdog, clock, &mut buffer);
                if passed.interrupted || self.ends(watchdog) {
                    return self.take_down(arms, watchdog, lines, began);
                }
                load.busy = load.busy.or_else(|| outside.clone());
                let is_lost = watchdog.killed().is_some()
                    || matches!(passed.worst_outcome, Some((Outcome::Hang | Outcome::Crash | Outcome::Setup, _)));
                pending.push(Pending {
                    arm: *at,
                    round,
                    passed,
                    load,
                    began: pass_began,
                    took: pass_began.elapsed(),
                    is_warm_up,
                });
                if is_lost {
                    self.give_up(arm, watchdog);
                }
            }
            if round == first_timed {
                set_strides(&mut arms, &pending);
            }
            if let Some(quiet) = gauge.window(false) {
                self.flush(&mut arms, &mut pending, quiet, lines, &mut rounds);
            }
        }
        let quiet = gauge.window(true).unwrap_or(Ok(()));
        self.flush(&mut arms, &mut pending, quiet, lines, &mut rounds);
        self.take_down(arms, watchdog, lines, began);
    }

    /// The first timed round.
    fn first_timed(&self) -> u32 {
        u32::from(self.warms_up)
    }

    /// Whether no call may follow: the user ended the run, or the supervisor abandoned this thread.
    fn ends(&self, watchdog: &Watchdog) -> bool {
        self.interrupt.is_set() || watchdog.is_abandoned()
    }

    /// The directory of the cell's arm at `place`, after `reopened` others of it. All have names of one length: a longer path
    /// takes longer to resolve.
    fn arm_dir(&self, place: usize, reopened: u32) -> PathBuf {
        self.dir.join(format!("arm{place:03}-{reopened:05}"))
    }

    fn mounted<'a>(&'a self, place: usize, arm: &'a CellArm) -> MountedArm<'a> {
        let described = arm.backend.describe();
        let access = arm.backend.access();
        let script = &self.workload.script;
        let known = &self.expectations;
        let expectations = known.of(&self.workload, self.state, &described, access);
        let is_restored = self.state == CacheState::Hot
            && described.capabilities.holds_data
            && matches!(access, Access::Paths | Access::Program)
            && !is_reopened(script, &described);
        MountedArm {
            is_restored,
            expectations,
            place,
            has_bucket: arm.backend.promises().machine_loss.is_some(),
            config: WorkspaceConfig {
                dir: self.arm_dir(place, 0),
                program: self.program.clone(),
                patience: DAEMON_PATIENCE,
                cpu: self.cpu,
                allow_other: false,
            },
            described,
            arm,
            workspaces: None,
            empty: None,
            subtrees: 0,
            is_filled: false,
            warmed: None,
            kept_bytes: 0,
            is_read_back: false,
            times: BTreeMap::new(),
            counted: Counted::default(),
            ready_ns: Vec::new(),
            timed_ns: 0,
            memory: Memory::default(),
            counted_before: None,
            // An external file system in the cell may use the same servers, so they keep running.
            stops_servers: (arm.backend.promises().machine_loss.is_some()
                && self.arms.iter().all(|arm| !arm.is_external))
            .then_some(&*self.services),
            stride: 1,
        }
    }

    fn open(&self, arm: &mut MountedArm<'_>) -> io::Result<()> {
        std::fs::create_dir_all(&arm.config.dir)?;
        let mut workspaces = Workspaces::one(arm.arm.backend.open(&arm.config)?);
        arm.note_ready(workspaces.first.time_to_ready());
        if self.workload.script.needs_second_host() {
            workspaces.add_second(&arm.config)?;
        }
        if arm.described.capabilities.changes_source && self.workload.script.tasks.is_none() {
            workspaces.source = arm.arm.backend.source(&arm.config.dir).map(|source| source.path().to_owned());
        }
        arm.empty = workspaces.first.tools().map(|tools| tools.snapshot());
        arm.workspaces = Some(workspaces);
        Ok(())
    }

    /// In hot cells the daemon and the servers of an idle arm are stopped, so that no other arm pays for their
    /// background work. In lukewarm and cold cells they run on, to receive the kernel's FORGET requests.
    fn pauses(&self) -> bool {
        self.state == CacheState::Hot && !self.workload.script.needs_second_host()
    }

    fn pause(&self, arm: &MountedArm<'_>) {
        if self.pauses() {
            arm.signal(Signal::STOP);
        }
    }

    /// If preparing an arm failed, sends a sample with the error and gives the arm up.
    fn or_give_up(
        &self,
        arm: &mut MountedArm<'_>,
        prepared: io::Result<()>,
        round: u32,
        watchdog: &Watchdog,
        lines: &Sender<Line>,
        began: Instant,
    ) {
        let Err(error) = prepared else {
            return;
        };
        let passed = self.failed_to_prepare(arm, &error, watchdog);
        self.send_failure(lines, arm.arm, round, passed, began);
        self.give_up(arm, watchdog);
    }

    /// Drops an arm's workspaces and excludes it from the rest of the cell. The other arms go on.
    fn give_up(&self, arm: &mut MountedArm<'_>, watchdog: &Watchdog) {
        resume(arm);
        arm.workspaces = None;
        watchdog.mend();
    }

    fn failed_to_prepare(&self, arm: &mut MountedArm<'_>, error: &io::Error, watchdog: &Watchdog) -> Passed {
        let exit_reason = arm.workspaces.as_mut().and_then(Workspaces::exit_reason);
        let (outcome, why) = match (watchdog.killed(), exit_reason) {
            (Some(cut), _) => (Outcome::Hang, format!("; {cut}")),
            (None, Some(exit_reason)) => (Outcome::Crash, format!("; {exit_reason}")),
            (None, None) => (Outcome::Setup, String::new()),
        };
        Passed::ended(outcome, format!("preparing the workspace: {error}{why}"))
    }

    fn pass<C: Clock>(
        &self,
        arm: &mut MountedArm<'_>,
        round: u32,
        gauge: &Gauge,
        watchdog: &Watchdog,
        clock: &C,
        buffer: &mut ResultBuffer,
    ) -> (Passed, Load) {
        let is_hot = self.state == CacheState::Hot;
        let is_warm_up = round < self.first_timed();
        resume(arm);
        if is_hot {
            let waits_for_others = arm.expectations.syncs() || self.workload.script.runs_programs();
            let mut prepared = self.freshen(arm, watchdog, buffer);
            let is_warm = arm.warmed.is_some_and(|at| at.elapsed() < STAYS_HOT);
            if !is_warm {
                prepared = prepared.and_then(|()| self.warm(arm, watchdog, buffer));
            }
            if waits_for_others {
                // Other arms' dirty pages must not lengthen this arm's syncs, or the long passes of programs.
                prepared = prepared.and_then(|()| {
                    watchdog.enter(SETUP_LIMIT);
                    Ok(rustix::fs::syncfs(std::fs::File::open(&self.dir)?)?)
                });
            }
            if let Err(error) = prepared {
                let passed = self.failed_to_prepare(arm, &error, watchdog);
                return (passed, Load::default());
            }
        }
        watchdog.leave();
        let Some(workspaces) = &mut arm.workspaces else {
            return (Passed::ended(Outcome::Setup, "the workspace is gone"), Load::default());
        };
        workspaces.answer_for(watchdog);
        let is_due = round.is_multiple_of(READ_BACK_EVERY) && !arm.expectations.is_read_back_once();
        let reads_back = !arm.is_read_back || is_due;
        let pass = Pass {
            expectations: &arm.expectations,
            program: &self.program,
            backend: &arm.described,
            has_bucket: arm.has_bucket,
            state: self.state,
            slowed_percent: arm.arm.slowed_percent,
            task_context: self.workload.script.tasks.as_ref().map(|tasks| TaskContext {
                tasks,
                shown: arm.arm.backend.source(&arm.config.dir),
                dir: &arm.config.dir,
                has_programs: missing_programs().is_none(),
            }),
            counting: match (is_hot, is_warm_up) {
                // The agent does not make the requests for copies and polls between tasks.
                _ if self.workload.script.tasks.is_some() => Counting::Never,
                (true, true) => Counting::Now,
                // Without a warm-up pass, the first timed pass is counted.
                (true, false) if !self.warms_up && round == 0 => Counting::Now,
                (true, false) => Counting::Never,
                (false, _) => Counting::Since(arm.counted_before.take()),
            },
            access: arm.arm.backend.access(),
            // A warm-up pass starts with cold caches. A client in this process has no cache to prove. The disk reads of
            // a program are not counted, so a proof would hold for arms with a daemon alone.
            proves_state: !is_warm_up
                && arm.arm.backend.access() != Access::Client
                && self.workload.script.tasks.is_none()
                && !self.workload.script.runs_programs(),
            reads_back,
            call_timeout: self.call_timeout,
            interrupt: &self.interrupt,
        };
        let reading = gauge.begin();
        let mut load = Load::default();
        let mut passed = pass.run(workspaces, watchdog, clock, buffer, &mut || {
            let waits_for_disk = !is_hot
                || arm.expectations.syncs()
                || arm.expectations.changes()
                || self.workload.script.tasks.is_some();
            load = gauge.end(&reading, arm.described.daemons == 0, waits_for_disk);
        });
        if let Some(daemon) = workspaces.first.daemon() {
            arm.memory = system::process_memory(daemon);
        }
        if let Some(cold) = passed.not_hot.take() {
            // A pass that was not hot counts as one on a busy machine.
            load.busy.get_or_insert(cold);
        }
        let went_wrong = passed.worst_outcome.is_some();
        arm.is_filled &= !went_wrong;
        arm.is_read_back |= reads_back && !went_wrong;
        // Reading a file makes the kernel forget its access time, and with it the attributes that the next pass asks for.
        let is_as_before = arm.is_filled && !arm.expectations.changes() && !reads_back;
        arm.warmed = is_as_before.then(Instant::now);
        self.pause(arm);
        (passed, load)
    }

    fn take_down(&self, arms: Vec<MountedArm<'_>>, watchdog: &Watchdog, lines: &Sender<Line>, began: Instant) {
        watchdog.shield();
        arms.iter().for_each(resume);
        for mut arm in arms {
            watchdog.independent();
            watchdog.enter(SETUP_LIMIT);
            if arm.has_bucket && arm.described.capabilities.counts_requests {
                // Skip the orderly close: it would upload files that no later pass reads.
                arm.workspaces = None;
            }
            // A mount that did not close could make a walk hang.
            let closed = arm.workspaces.take().map(|workspaces| workspaces.close());
            let stored_bytes = matches!(closed, Some(Ok(()))).then(|| system::disk_use(&arm.config.dir));
            if let Some(Err(error)) = closed
                && !self.interrupt.is_set()
            {
                let passed = Passed::ended(Outcome::Infra, format!("closing the workspace: {error}"));
                self.send_failure(lines, arm.arm, 0, passed, began);
            }
            watchdog.leave();
            let latencies = arm.times.iter().filter_map(|(kind, times)| {
                let packed = Latencies::new(times).ok()?;
                Some((kind.to_string(), packed))
            });
            let cell = CellEpoch {
                v: SCHEMA_VERSION,
                epoch: self.epoch,
                arm: arm.arm.name.clone(),
                workload: self.workload.name.clone(),
                state: self.state_name.clone(),
                latencies: latencies.collect(),
                counted: arm.counted,
                memory: arm.memory,
                stored_bytes,
                ready_ns: arm.ready_ns,
                took_ms: began.elapsed().as_millis() as u64,
                timed_us: arm.timed_ns / 1000,
            };
            let _ = lines.send(Line::Cell(Box::new(cell)));
        }
    }
}

/// Whether every pass opens a new workspace. A model sees the paths, so they must be the same in every pass. A
/// second host may show a new directory only after minutes, but it shows the root from the start. A source has the
/// directories of a controller, and no others for passes.
fn is_reopened(script: &Script, backend: &Description) -> bool {
    let capabilities = backend.capabilities;
    capabilities.guesses_content || capabilities.changes_source || script.needs_second_host()
}

/// Lets slow arms skip rounds, so that the other arms get enough passes. `passes` must hold the first timed
/// round of every arm.
fn set_strides(arms: &mut [MountedArm<'_>], passes: &[Pending]) {
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

impl MountedArm<'_> {
    fn note_ready(&mut self, ready: Duration) {
        if !ready.is_zero() {
            self.ready_ns.push(ready.as_nanos() as u64);
        }
    }

    /// Sends `signal` to the arm's daemon, and to the S3 servers if they stop with it.
    fn signal(&self, signal: Signal) {
        let daemon = self.workspaces.as_ref().and_then(|workspaces| workspaces.first.daemon());
        let servers = match self.stops_servers {
            Some(services) => services.s3.processes(),
            None => Vec::new(),
        };
        signal_all(servers.into_iter().chain(daemon), signal);
    }
}

/// Sends a signal to processes. Errors are ignored: the next call that needs an ended process reports it.
pub fn signal_all(processes: impl IntoIterator<Item = u32>, signal: Signal) {
    for pid in processes {
        if let Some(pid) = Pid::from_raw(pid as i32) {
            let _ = kill_process(pid, signal);
        }
    }
}

fn resume(arm: &MountedArm<'_>) {
    arm.signal(Signal::CONT);
}

/// Bytes that a pass leaves on the scratch, estimated from its script.
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
