//! One pass: makes and times the calls of a script in one workspace, then checks their results.
//!
//! [`crate::cell`] prepares the workspaces and chooses the order of passes.

mod calls;
mod program;
mod read_back;
mod tasks;
mod workspaces;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arms::backend::{Access, Capabilities, Description, Workspace};
use backends::null::FILE_BYTES;
use fuse::Counters;
use hdrhistogram::Histogram;
use rundir::{Calls, Counted, DaemonCounters, OpcodeRecord, Outcome, Sample, Score, ScoreName, histogram};
use rustix::io::Errno;
use workloads::definition::{CacheState, Workload};
use workloads::exam::Asked;
use workloads::model::{Expected, ReferenceModel, Restoration};
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, Call, CallKind, FileOp, Script};

use crate::cache_state::{self, Touched};
use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::supervise::Watchdog;
use crate::system::{self, Io};
use calls::Replay;
pub use program::unsupported as unsupported_by_program;
use replay::in_process::perform_in_process;
use replay::tools::{ask, narrowed, observe};
use replay::workers::Workers;
use replay::{Observed, OpenFileTable, PreparedOp, ResultBuffer, perform, prepare, verify};
pub use tasks::{TaskContext, missing_programs, unsupported as unsupported_in_tasks};
pub use workspaces::Workspaces;

/// Pause between reads while one host waits for another host's write.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// How long opening files and starting client processes may take.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// How long a program that makes the calls in place of the harness may take.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// How long a daemon's process may take to end after its control socket is closed.
const ENDS_WITHIN: Duration = Duration::from_millis(200);

/// Bytes of unchecked results. Beyond it, the calls made so far are checked before the next one is timed.
const UNCHECKED_MAX: usize = 512 * 1024;

/// After how many calls without a pause the watchdog's deadline is renewed; slow calls renew it earlier.
const CALLS_A_DEADLINE: usize = 16;

/// The results that a script must have on a backend, computed once for all passes.
#[derive(Debug)]
pub struct Expectations {
    script: Arc<Script>,
    is_hot: bool,
    expected: Vec<Vec<Expected>>,
    /// The model of the workspace after all calls.
    end: ReferenceModel,
    touched: Touched,
    restoration: Option<Restoration>,
}

impl Expectations {
    /// Computes the results of `script` with caches in `state` on a backend.
    pub fn new(script: &Arc<Script>, state: CacheState, backend: &Description, access: Access) -> Self {
        let is_hot = state == CacheState::Hot;
        let calls = script.calls_when(is_hot);
        let mut end = start_model(script, backend);
        let expected = calls.iter().map(|call| {
            let ops = call.ops.iter().map(|op| match end.apply(op) {
                // Of the entries that it computes, only directories lie among a controller's own.
                Expected::Entries(entries) if backend.capabilities.changes_source => {
                    Expected::EntriesAmongDirectories(entries)
                }
                expected => expected,
            });
            match access == Access::Tools {
                true => ops.map(|one| narrowed(one, call.lines)).collect(),
                false => ops.collect(),
            }
        });
        let expected = expected.collect();
        Self {
            script: Arc::clone(script),
            is_hot,
            expected,
            touched: cache_state::touched(script, calls),
            restoration: restoration(script, &end),
            end,
        }
    }

    /// The calls of a pass.
    pub fn calls(&self) -> &[Call] {
        self.script.calls_when(self.is_hot)
    }

    /// Whether the calls change files. If so, each pass needs a fresh or a restored subtree.
    pub fn changes(&self) -> bool {
        self.touched.changes
    }

    /// Whether one pass that reads all files back speaks for the others of a cell: the calls change no file, and no answer is
    /// scored, which happens in passes that read back.
    pub fn is_read_back_once(&self) -> bool {
        !self.changes() && self.calls().iter().all(|call| call.asked.is_none())
    }

    /// The changes that undo the calls of a successful pass. `None` if a fresh subtree is made in less time, or if the changes
    /// are not known.
    pub fn restoration(&self) -> Option<&Restoration> {
        self.restoration.as_ref()
    }

    /// Whether any call syncs.
    pub fn syncs(&self) -> bool {
        let mut ops = self.calls().iter().flat_map(|call| &call.ops);
        ops.any(FileOp::syncs)
    }
}

/// The changes that undo a script whose calls end in `end`. `None` if a fresh subtree is made in less time, if programs changed
/// files, or if the script sets modification times.
fn restoration(script: &Script, end: &ReferenceModel) -> Option<Restoration> {
    if end.has_opaque() || !script.ages_ns.is_empty() {
        return None;
    }
    let restoration = end.restoration(&ReferenceModel::of(script));
    // To create a file takes a store about twice as long as to change or to remove one.
    let changed = restoration.changed.len() + restoration.removed_files.len();
    let is_less = 2 * restoration.created.len() + changed < 2 * script.files.len();
    is_less.then_some(restoration)
}

/// Expectations of a run, which its arms and epochs share: to compute those of a long session takes longer than a pass.
#[derive(Debug, Default)]
pub struct ExpectationsCache(Mutex<BTreeMap<ExpectationsKey, Arc<Expectations>>>);

/// What expectations depend on: the workload's name, and whether caches are hot, the backend holds data, tools ask, and
/// the backend changes a source.
type ExpectationsKey = (String, bool, bool, bool, bool);

impl ExpectationsCache {
    /// The results of a workload with caches in `state` on a backend.
    pub fn of(
        &self,
        workload: &Workload,
        state: CacheState,
        backend: &Description,
        access: Access,
    ) -> Arc<Expectations> {
        let Capabilities { holds_data, changes_source, .. } = backend.capabilities;
        let is_hot = state == CacheState::Hot;
        let key = (workload.name.clone(), is_hot, holds_data, access == Access::Tools, changes_source);
        // An abandoned cell may have panicked. Its records here are complete.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_key =
            known.entry(key).or_insert_with(|| Arc::new(Expectations::new(&workload.script, state, backend, access)));
        Arc::clone(of_key)
    }
}

/// The reference model before the first call.
pub fn start_model(script: &Script, backend: &Description) -> ReferenceModel {
    if backend.capabilities.holds_data {
        ReferenceModel::of(script)
    } else {
        let zeros = vec![0; FILE_BYTES as usize];
        ReferenceModel::fixed(script, &Bytes::from(zeros))
    }
}

/// Whether the daemon's counters are read for a pass, and from when on they count.
#[derive(Debug)]
pub enum Counting {
    /// The counters are not read.
    Never,
    /// The counters are read right before and after the calls. Calls that are not timed are subtracted.
    Now,
    /// The counters were read before the caches were dropped, and are read again after the calls. Calls that
    /// are not timed count, too. `None`: the backend has no counters.
    Since(Option<DaemonCounters>),
}

/// The input of a pass.
pub struct Pass<'a> {
    /// The calls and their expected results.
    pub expectations: &'a Expectations,
    /// The `ctxbench` binary, for client processes.
    pub program: &'a Path,
    /// How the calls reach the files.
    pub access: Access,
    /// The tasks that a scripted agent performs in place of calls; `None` in other workloads.
    pub task_context: Option<TaskContext<'a>>,
    /// The backend under test.
    pub backend: &'a Description,
    /// Whether the backend has a bucket: then one request to the mount syncs all files.
    pub has_bucket: bool,
    /// The state of the caches before the pass.
    pub state: CacheState,
    /// By how many percent every call is lengthened on purpose.
    pub slowed_percent: u32,
    /// When the daemon's counters are read.
    pub counting: Counting,
    /// Whether the cache state is proved after the calls.
    pub proves_state: bool,
    /// Whether all files are read back after the calls.
    pub reads_back: bool,
    /// A call that takes longer is a timeout. The watchdog cuts off one that takes twice as long.
    pub call_timeout: Duration,
    /// Ends the pass between calls.
    pub interrupt: &'a Interrupt,
}

/// The result of a pass.
#[derive(Debug, Default)]
pub struct Passed {
    /// The worst outcome with its first reason; `None` if all went well.
    pub worst_outcome: Option<(Outcome, String)>,
    /// The line of the run directory, without the position in the run and the load.
    pub sample: Sample,
    /// Histograms of service times in nanoseconds by kind, for the cell's totals.
    pub times: BTreeMap<CallKind, Histogram<u64>>,
    /// The counts of client and daemon, if they were read.
    pub counted: Option<Counted>,
    /// Why the caches of a hot pass were not hot.
    pub not_hot: Option<String>,
    /// Whether the run was interrupted: then the measurement is incomplete.
    pub interrupted: bool,
}

impl Passed {
    /// A pass that failed before its first call.
    pub fn ended(outcome: Outcome, reason: impl ToString) -> Self {
        Self { worst_outcome: Some((outcome, reason.to_string())), ..Self::default() }
    }

    /// Records an outcome. The worst one stays; among equal ones, the first.
    pub fn note(&mut self, outcome: Outcome, reason: String) {
        let worst = self.worst_outcome.as_ref();
        if worst.is_none_or(|(worst, _)| outcome > *worst) {
            self.worst_outcome = Some((outcome, reason));
        }
    }
}

/// Kernel statistics of client and daemon, read before and after the timed calls.
struct Meters {
    client: Io,
    daemon: Io,
    daemon_cpu_ns: u64,
}

impl Meters {
    fn read(daemon: Option<u32>) -> Self {
        // Without a daemon, read the harness instead, so that reading costs every arm the same.
        let pid = daemon.unwrap_or_else(std::process::id);
        Self {
            client: system::thread_io(),
            daemon: system::process_io(pid),
            daemon_cpu_ns: system::process_cpu_ns(pid),
        }
    }
}

impl Pass<'_> {
    /// Makes the calls in the subtree of `workspaces` and checks their results. Calls `timed` after the last call,
    /// before files are read back.
    pub fn run<C: Clock>(
        &self,
        workspaces: &mut Workspaces,
        watchdog: &Watchdog,
        clock: &C,
        buffer: &mut ResultBuffer,
        timed: &mut dyn FnMut(),
    ) -> Passed {
        let mut passed = Passed::default();
        // Client processes read their files during preparation, on a mount that may hang.
        watchdog.enter(PREPARE_LIMIT);
        let prepared = self.prepare(workspaces);
        watchdog.leave();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Passed::ended(Outcome::Infra, error),
        };
        let is_counted = !matches!(self.counting, Counting::Never);
        let before = match &self.counting {
            Counting::Never => None,
            Counting::Since(before) => before.clone(),
            Counting::Now => match counters(&mut *workspaces.first) {
                Ok(counters) => counters,
                Err(error) => {
                    let (outcome, reason) = unanswered(workspaces, error);
                    return Passed::ended(outcome, reason);
                }
            },
        };
        let mut replay = Replay {
            pass: self,
            clock,
            watchdog,
            buffer,
            observed: Vec::with_capacity(1024),
            times: BTreeMap::new(),
            added: BTreeSet::new(),
            uncounted: before,
        };
        replay.buffer.system_calls = 0;
        let daemon = workspaces.first.daemon();
        let meters = Meters::read(daemon);
        match (&self.task_context, self.access) {
            (Some(context), _) => {
                let times = &mut replay.times;
                self.by_tasks(context, workspaces, clock, watchdog, times, &mut passed);
            }
            (None, Access::Program) => self.by_program(workspaces, watchdog, &mut passed),
            (None, _) => replay.calls(&prepared, workspaces, &mut passed),
        }
        timed();
        let after = Meters::read(daemon);
        let system_calls = replay.buffer.system_calls;
        passed.sample.cpu.daemon_ns = match daemon {
            Some(_) => after.daemon_cpu_ns.saturating_sub(meters.daemon_cpu_ns),
            None => 0,
        };
        let client_io = after.client.since(&meters.client);
        let daemon_io = after.daemon.since(&meters.daemon);
        let mut of_daemon = None;
        if is_counted {
            match counters(&mut *workspaces.first) {
                Ok(Some(now)) => of_daemon = replay.uncounted.take().map(|then| now.since(&then)),
                Ok(None) => {}
                Err(error) if passed.worst_outcome.is_none() => {
                    let (outcome, reason) = unanswered(workspaces, error);
                    passed.note(outcome, reason);
                }
                Err(_) => {}
            }
            passed.counted = Some(Counted {
                passes: 1,
                calls: passed.sample.outcomes.values().sum(),
                waited_ns: passed.sample.waited_ns,
                system_calls,
                disk_written_bytes: client_io.write_bytes + daemon.map_or(0, |_| daemon_io.write_bytes),
                disk_read_bytes: client_io.read_bytes,
                daemon: of_daemon.clone(),
            });
        }
        for (kind, (times, total_ns)) in std::mem::take(&mut replay.times) {
            let calls = Calls::of(&times, total_ns);
            passed.sample.calls.insert(kind.to_string(), calls);
            passed.times.insert(kind, times);
        }
        let added = std::mem::take(&mut replay.added);
        if passed.worst_outcome.is_none() && !passed.interrupted {
            let capabilities = self.backend.capabilities;
            let counts = capabilities.counts_requests && is_counted;
            let counted = of_daemon.as_ref().filter(|_| counts);
            // If the backend has request counters, the proof needs them: this pass may not have read them.
            let can_prove = self.state == CacheState::Hot || counts || !capabilities.counts_requests;
            let disk = cache_state::DiskReads {
                client: client_io.read_bytes,
                daemon: daemon.map(|_| (after.daemon.read_bytes, daemon_io.read_bytes)),
                answered: daemon.map(|_| daemon_io.written),
                is_persistent: capabilities.persistent,
                fetched: capabilities.starts_empty.then(|| fetched(counted)),
            };
            match cache_state::check(self.state, &self.expectations.touched, counted, &disk) {
                Err(reason) if self.proves_state && self.state == CacheState::Hot => {
                    passed.not_hot = Some(reason);
                }
                Err(reason) if self.proves_state && can_prove => {
                    passed.note(Outcome::Infra, reason);
                }
                _ => {}
            }
            let shared = self.expectations.script.shared_files();
            let holds_script = self.backend.capabilities.holds_data && self.task_context.is_none();
            if holds_script && shared.is_empty() && self.reads_back {
                self.read_everything_back(workspaces, watchdog, buffer, &mut passed);
            }
        }
        // Late or failed calls do not prevent the count of the lines that were added.
        let is_sound = passed.worst_outcome.as_ref();
        let is_sound = is_sound.is_none_or(|(worst, _)| *worst < Outcome::WrongData);
        let shares = !self.expectations.script.shared_files().is_empty();
        if is_sound && !passed.interrupted && shares {
            self.settle(workspaces, watchdog, &added, &mut passed);
        }
        passed
    }

    fn prepare<'p>(&'p self, workspaces: &Workspaces) -> io::Result<Vec<Vec<PreparedOp<'p>>>> {
        let mut open_files = OpenFileTable::new();
        let mut one = |op| {
            let root = workspaces.root(op);
            let prepared = prepare(&root, op, &mut open_files)?;
            let workers = match op {
                FileOp::Together { dir, clients } => Some(Workers::start(self.program, &dir.below(&root), clients)?),
                _ => None,
            };
            Ok(PreparedOp { workers, has_bucket: self.has_bucket, ..prepared })
        };
        let calls = self.expectations.calls().iter();
        calls.map(|call| call.ops.iter().map(&mut one).collect()).collect()
    }
}

/// Bytes of content that an operation is expected to return.
fn content_bytes(expected: &Expected) -> usize {
    match expected {
        Expected::Bytes(bytes) => bytes.len(),
        Expected::Lines(lines) => lines.iter().map(|line| line.len()).sum(),
        // An answer of 2,000 tokens takes far less.
        Expected::Mentions(_) => 64 * 1024,
        Expected::Part { start, end, .. } => end - start,
        Expected::Tree { files, .. } => files.values().map(|bytes| bytes.len()).sum(),
        _ => 0,
    }
}

fn expected_bytes(expected: &[Expected]) -> usize {
    // Room for the names of a listing.
    let names = |one: &Expected| match one {
        Expected::Entries(entries) | Expected::EntriesAmongDirectories(entries) => 64 * entries.len(),
        _ => 0,
    };
    expected.iter().map(|one| content_bytes(one) + names(one)).sum()
}

/// Performs operations outside the clock.
pub struct Steps<'a> {
    /// The directory in which they work.
    pub root: &'a Path,
    /// Cuts off an operation that hangs.
    pub watchdog: &'a Watchdog,
    /// How long each operation may take.
    pub limit: Duration,
    /// Buffers for their results.
    pub buffer: &'a mut ResultBuffer,
}

impl Steps<'_> {
    fn perform(&mut self, op: &FileOp) -> io::Result<Result<Observed, Errno>> {
        let prepared = prepare(self.root, op, &mut OpenFileTable::new())?;
        self.buffer.clear();
        self.watchdog.enter(self.limit);
        Ok(perform(&prepared, self.buffer))
    }

    fn expect(&mut self, op: &FileOp, expected: &Expected) -> io::Result<()> {
        let observed = self.perform(op)?;
        verify(op, expected, &observed, self.buffer).map_err(io::Error::other)
    }

    /// Creates the first files of a script, and lets its set-up programs complete them.
    pub fn fill(&mut self, script: &Script) -> io::Result<()> {
        self.make(&script.dirs, &script.files)?;
        for run in &script.setup {
            let op = FileOp::Run(Box::new(run.clone()));
            self.expect(&op, &Expected::Ran(run.output.clone()))?;
        }
        let now = std::time::SystemTime::now();
        for ((path, _), age) in script.files.iter().zip(&script.ages_ns) {
            self.watchdog.enter(self.limit);
            let file = std::fs::File::open(path.below(self.root))?;
            file.set_modified(now - Duration::from_nanos(*age))?;
        }
        Ok(())
    }

    /// Restores the first files of a script.
    pub fn restore(&mut self, restoration: &Restoration) -> io::Result<()> {
        for path in &restoration.removed_files {
            self.watchdog.enter(self.limit);
            std::fs::remove_file(path.below(self.root))?;
        }
        for path in &restoration.removed_dirs {
            self.watchdog.enter(self.limit);
            std::fs::remove_dir(path.below(self.root))?;
        }
        self.make(&restoration.dirs, &restoration.created)?;
        for change in &restoration.changed {
            self.watchdog.enter(self.limit);
            let file = OpenOptions::new().write(true).open(change.path.below(self.root))?;
            if let Some(length) = change.length {
                file.set_len(length)?;
            }
            file.write_all_at(&change.content, change.offset)?;
        }
        Ok(())
    }

    fn make(&mut self, dirs: &[WorkspacePath], files: &[(WorkspacePath, Bytes)]) -> io::Result<()> {
        let dirs = dirs.iter().map(|dir| FileOp::MakeDir(dir.clone()));
        let files = files.iter().map(|(path, content)| FileOp::Write {
            path: path.clone(),
            content: Bytes::clone(content),
            sync: false,
        });
        for op in dirs.chain(files) {
            self.perform(&op)?.map_err(|errno| {
                let kind = io::Error::from(errno).kind();
                io::Error::new(kind, format!("{}: {errno}", op.describe()))
            })?;
        }
        Ok(())
    }

    /// Makes the caches of a script's files hot. `skip` selects operations that warm nothing on this backend.
    pub fn warm_up(
        &mut self,
        script: &Script,
        model: &mut ReferenceModel,
        skip: impl Fn(&FileOp) -> bool,
    ) -> io::Result<()> {
        let mut ops = script.warm_up.iter().filter(|op| !skip(op));
        ops.try_for_each(|op| self.expect(op, &model.apply(op)))
    }

    /// As [`Steps::warm_up`], on a backend that shows more than the script's files: each file is read, and each of its
    /// directories is listed.
    pub fn warm_up_among_others(&mut self, script: &Script) -> io::Result<()> {
        let reads = script.files.iter().map(|(path, _)| FileOp::Read(path.clone()));
        let lists = script.dirs.iter().map(|dir| FileOp::list(dir.clone(), true));
        for op in reads.chain(lists) {
            self.perform(&op)?.map_err(|errno| io::Error::other(format!("{}: {errno}", op.describe())))?;
        }
        Ok(())
    }
}

/// The daemon's counters; `None` if the backend has none.
pub fn counters(workspace: &mut dyn Workspace) -> Result<Option<DaemonCounters>, String> {
    match workspace.counters() {
        Ok(counters) => Ok(counters.map(|counters| daemon_counters(&counters))),
        Err(error) => Err(format!("reading the daemon's counters: {error}")),
    }
}

/// The outcome if the daemon does not answer: a crash if its process has ended.
fn unanswered(workspaces: &mut Workspaces, error: String) -> (Outcome, String) {
    let began = Instant::now();
    loop {
        if let Some(exit_reason) = workspaces.exit_reason() {
            return (Outcome::Crash, format!("{error}; {exit_reason}"));
        }
        // The socket is closed a moment before the process has ended.
        if began.elapsed() > ENDS_WITHIN {
            return (Outcome::Infra, error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Files that a daemon has fetched from its server: the smaller of its own count and its GET requests. Polls
/// are GET requests, too.
fn fetched(daemon: Option<&DaemonCounters>) -> u64 {
    let count = |name| daemon.and_then(|daemon| daemon.store.get(name)).copied();
    let (fetches, requests) = (count("s3_fetches"), count("s3_get"));
    fetches.unwrap_or(0).min(requests.unwrap_or(0))
}

fn daemon_counters(counters: &Counters) -> DaemonCounters {
    let fuse = counters.fuse.iter().map(|(opcode, count)| {
        let count = OpcodeRecord {
            count: count.count,
            errors: count.errors,
            handling_ns: count.handling_ns,
            store_ns: count.store_ns,
        };
        (opcode.clone(), count)
    });
    DaemonCounters { fuse: fuse.collect(), store: counters.store.clone() }
}

#[cfg(test)]
mod tests;
