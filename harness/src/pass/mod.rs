//! One block: a workspace is opened, filled, brought into its cache state, measured and closed.

mod ending;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use backends::backend::{Backend, Site, Tools, Workspace};
use backends::cpu;
use backends::fuse::Counters;
use backends::null::FILE_BYTES;
use hdrhistogram::Histogram;
use reports::run::{
    Calls, Cpu, DaemonCounters, Memory, OpcodeCount, Outcome, Pressure, Settled, histogram,
};
use rustix::io::Errno;
use workloads::definition::{CacheState, Workload};
use workloads::model::{Expected, Model};
use workloads::script::{Bytes, Call, CallKind, FileOp, Script};

use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::proof;
use crate::replay::tools::{ask, narrowed, observe};
use crate::replay::{Observed, OpenFiles, Prepared, Scratch, perform, prepare, verify};
use crate::supervise::Pulse;
use crate::system;
use hosts::Hosts;

/// What bringing a workspace up, syncing it, or taking it down may take.
const SETUP_LIMIT: Duration = Duration::from_secs(120);

/// How often another host is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// What a block is to do.
pub struct Task {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The workload.
    pub workload: Arc<Workload>,
    /// The cache state.
    pub state: CacheState,
    /// Where the workspace may live.
    pub site: Site,
    /// A call that takes longer is a timeout; one that takes twice as long is cut off.
    pub call_timeout: Duration,
    /// Ends the block between calls.
    pub interrupt: Interrupt,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Measured {
    /// The worst that happened, and the first reason for it.
    pub verdict: Option<(Outcome, String)>,
    /// Timed calls by how they ended.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Service times by kind.
    pub calls: BTreeMap<String, Calls>,
    /// Service times summed, in nanoseconds.
    pub makespan_ns: u64,
    /// What the caller waited for all timed calls, wrong answers and failures among them, in nanoseconds.
    pub waited_ns: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes the calling thread fetched from disk.
    pub disk_read_bytes: u64,
    /// From the daemon's start to a usable mount.
    pub ready: Duration,
    /// What reached the daemon.
    pub daemon: Option<DaemonCounters>,
    /// Processor time.
    pub cpu: Cpu,
    /// The daemon's memory.
    pub memory: Memory,
    /// Pressure while it was measured.
    pub pressure: Pressure,
    /// What became of the lines that two hosts added to one file.
    pub settled: Option<Settled>,
    /// The run was interrupted: what was measured is not whole.
    pub interrupted: bool,
}

impl Measured {
    fn ended(outcome: Outcome, reason: impl ToString) -> Self {
        Self {
            verdict: Some((outcome, reason.to_string())),
            ..Self::default()
        }
    }

    /// Notes how something ended; the worst stays, and of equals the first.
    fn note(&mut self, outcome: Outcome, reason: String) {
        if self
            .verdict
            .as_ref()
            .is_none_or(|(worst, _)| outcome > *worst)
        {
            self.verdict = Some((outcome, reason));
        }
    }
}

impl Task {
    /// Does it.
    pub fn run(&self, pulse: &Pulse, clock: &impl Clock) -> Measured {
        if let Some(cpu) = self.site.cpu
            && let Err(error) = cpu::stay_on(cpu)
        {
            return Measured::ended(Outcome::Infra, format!("staying on one processor: {error}"));
        }
        pulse.enter(SETUP_LIMIT);
        let mut hosts = match self.backend.open(&self.site) {
            Ok(workspace) => Hosts::one(workspace),
            Err(error) => return Measured::ended(Outcome::Setup, error),
        };
        pulse.depend_on(hosts.first.lifeline());
        let prepared = self.bring_into_state(&mut *hosts.first, pulse);
        let prepared = prepared.and_then(|()| match self.script().needs_second_host() {
            true => hosts.add_second(&self.site, pulse),
            false => Ok(()),
        });
        let mut measured = match prepared {
            Ok(()) => {
                pulse.leave();
                self.measure(&mut hosts, pulse, clock)
            }
            Err(error) => {
                let (outcome, why) = match (pulse.severed(), hosts.obituary()) {
                    (Some(cut), _) => (Outcome::Hang, format!("; {cut}")),
                    (None, Some(obituary)) => (Outcome::Crash, format!("; {obituary}")),
                    (None, None) => (Outcome::Setup, String::new()),
                };
                Measured::ended(outcome, format!("preparing the workspace: {error}{why}"))
            }
        };
        pulse.enter(SETUP_LIMIT);
        if let Err(error) = hosts.close()
            && measured.verdict.is_none()
        {
            measured.note(Outcome::Infra, format!("closing the workspace: {error}"));
        }
        pulse.leave();
        measured
    }

    fn script(&self) -> &Script {
        &self.workload.script
    }

    /// The reference model at the start of the calls.
    fn model(&self) -> Model {
        if self.holds_data() {
            Model::of(self.script())
        } else {
            let zeros = vec![0; FILE_BYTES as usize];
            Model::fixed(self.script(), &Bytes::from(zeros))
        }
    }

    /// After how long a call is cut off.
    fn call_limit(&self) -> Duration {
        2 * self.call_timeout
    }

    /// Creates the script's first files.
    fn fill(&self, root: &Path, pulse: &Pulse, scratch: &mut Scratch) -> io::Result<()> {
        let dirs = self.script().dirs.iter();
        let dirs = dirs.map(|dir| FileOp::MakeDir(dir.clone()));
        let files = self.script().files.iter();
        let files = files.map(|(path, content)| FileOp::Write {
            path: path.clone(),
            content: Bytes::clone(content),
            sync: false,
        });
        for op in dirs.chain(files) {
            let prepared = prepare(root, &op, &mut OpenFiles::new())?;
            pulse.enter(self.call_limit());
            perform(&prepared, scratch).map_err(|errno| {
                io::Error::new(
                    io::Error::from(errno).kind(),
                    format!("{}: {errno}", op.describe()),
                )
            })?;
        }
        Ok(())
    }

    /// As [`Task::fill`] and a warm-up, for files that have no path and nothing to warm.
    fn fill_by_tools(&self, tools: &mut dyn Tools) -> io::Result<()> {
        for (path, content) in &self.script().files {
            tools
                .write_file(path.as_str(), content)
                .map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn holds_data(&self) -> bool {
        self.backend.describe().capabilities.holds_data
    }

    fn guesses_content(&self) -> bool {
        self.backend.describe().capabilities.guesses_content
    }

    fn bring_into_state(&self, workspace: &mut dyn Workspace, pulse: &Pulse) -> io::Result<()> {
        let root = workspace.root().to_owned();
        if let Some(tools) = workspace.tools() {
            self.fill_by_tools(tools)?;
        } else if self.holds_data() {
            // What holds nothing can neither be filled nor warmed up.
            let mut scratch = Scratch::new();
            self.fill(&root, pulse, &mut scratch)?;
            let mut model = self.model();
            // A read that asks a model warms nothing.
            let guesses = self.guesses_content();
            let warm_up = self.script().warm_up.iter();
            for op in warm_up.filter(|op| !(guesses && op.reads_content())) {
                let prepared = prepare(&root, op, &mut OpenFiles::new())?;
                scratch.clear();
                pulse.enter(self.call_limit());
                let observed = perform(&prepared, &mut scratch);
                verify(op, &model.apply(op), &observed, &scratch).map_err(io::Error::other)?;
            }
        }
        pulse.enter(SETUP_LIMIT);
        // Nothing that was written to get here may still be on its way to the disk.
        workspace.sync()?;
        match self.state {
            CacheState::Hot => {}
            CacheState::Lukewarm => workspace.drop_caches()?,
            CacheState::Cold => {
                pulse.independent();
                workspace.restart()?;
                pulse.depend_on(workspace.lifeline());
            }
        }
        Ok(())
    }

    fn measure(&self, hosts: &mut Hosts, pulse: &Pulse, clock: &impl Clock) -> Measured {
        let mut measured = Measured {
            ready: hosts.first.time_to_ready(),
            ..Measured::default()
        };
        let has_bucket = self.backend.promises().machine_loss.is_some();
        let calls = self.script().calls_when(self.state == CacheState::Hot);
        let mut open_files = OpenFiles::new();
        let prepared: io::Result<Vec<Vec<Prepared<'_>>>> = calls
            .iter()
            .map(|call| {
                let ops = call.ops.iter();
                ops.map(|op| {
                    let prepared = prepare(hosts.root(op.host()), op, &mut open_files);
                    prepared.map(|prepared| Prepared {
                        has_bucket,
                        ..prepared
                    })
                })
                .collect()
            })
            .collect();
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return Measured::ended(Outcome::Infra, error),
        };
        // What was counted before the timed calls, and between them by what is not timed.
        let mut uncounted = match counters(&mut *hosts.first) {
            Ok(counters) => counters,
            Err(error) => return Measured::ended(Outcome::Infra, error),
        };
        let daemon = hosts.first.daemon();
        let daemon_cpu = || daemon.map_or(0, system::process_cpu_ns);
        let cpu_before = (system::thread_cpu(), daemon_cpu());
        let disk_before = system::thread_disk_read();
        let daemon_disk_before = daemon.map_or(0, system::process_disk_read);
        let daemon_written_before = daemon.map_or(0, system::process_written);
        let pressure_before = system::pressure();

        let mut replay = Replay {
            task: self,
            clock,
            pulse,
            model: self.model(),
            scratch: Scratch::new(),
            observed: Vec::with_capacity(1024),
            times: BTreeMap::new(),
            added: BTreeSet::new(),
        };
        for (call, ops) in calls.iter().zip(&prepared) {
            if self.interrupt.is_set() {
                measured.interrupted = true;
                break;
            }
            let before = match call.kind {
                Some(_) => None,
                None => counters(&mut *hosts.first).ok().flatten(),
            };
            if !replay.call(call, ops, hosts, &mut measured) {
                break;
            }
            if let (Some(before), Some(uncounted)) = (before, &mut uncounted)
                && let Ok(Some(now)) = counters(&mut *hosts.first)
            {
                uncounted.add(&now.since(&before));
            }
        }

        measured.pressure = system::pressure_since(&pressure_before, &system::pressure());
        measured.disk_read_bytes = system::thread_disk_read().saturating_sub(disk_before);
        measured.cpu = Cpu {
            client_ns: system::thread_cpu().saturating_sub(cpu_before.0).as_nanos() as u64,
            daemon_ns: daemon_cpu().saturating_sub(cpu_before.1),
        };
        measured.memory = daemon.map(system::process_memory).unwrap_or_default();
        let daemon_written = daemon.map(system::process_written);
        for (kind, (times, total_ns)) in std::mem::take(&mut replay.times) {
            match Calls::new(&times, total_ns) {
                Ok(calls) => {
                    measured.calls.insert(kind.to_string(), calls);
                }
                Err(error) => measured.note(Outcome::Infra, error),
            }
        }
        match counters(&mut *hosts.first) {
            Ok(Some(now)) => measured.daemon = uncounted.map(|before| now.since(&before)),
            Ok(None) => {}
            Err(error) if measured.verdict.is_none() => measured.note(Outcome::Infra, error),
            Err(_) => {}
        }
        if measured.verdict.is_none() && !measured.interrupted {
            let touched = proof::touched(self.script(), calls);
            let capabilities = self.backend.describe().capabilities;
            let counted = measured.daemon.as_ref();
            let counted = counted.filter(|_| capabilities.counts_requests);
            let disk = proof::DiskReads {
                client: measured.disk_read_bytes,
                daemon: daemon.map(|pid| {
                    let since_start = system::process_disk_read(pid);
                    (since_start, since_start.saturating_sub(daemon_disk_before))
                }),
                answered: daemon_written.map(|bytes| bytes.saturating_sub(daemon_written_before)),
                is_persistent: capabilities.persistent,
                fetched: capabilities.starts_empty.then(|| fetched(counted)),
            };
            let proof = proof::check(self.state, &touched, counted, &disk);
            if let Err(reason) = proof {
                measured.note(Outcome::Infra, reason);
            }
            if self.holds_data() && self.script().shared_files().is_empty() {
                self.read_everything_back(hosts, pulse, &mut replay, &mut measured);
            }
        }
        // What came late or failed is no reason not to look what became of the rest.
        let is_sound = measured.verdict.as_ref();
        let is_sound = is_sound.is_none_or(|(worst, _)| *worst < Outcome::WrongData);
        if is_sound && !measured.interrupted && !self.script().shared_files().is_empty() {
            self.settle(hosts, pulse, &replay, &mut measured);
        }
        measured
    }
}

struct Replay<'a, C> {
    task: &'a Task,
    clock: &'a C,
    pulse: &'a Pulse,
    model: Model,
    scratch: Scratch,
    observed: Vec<Result<Observed, Errno>>,
    times: BTreeMap<CallKind, (Histogram<u64>, u64)>,
    /// Lines whose adding succeeded.
    added: BTreeSet<Bytes>,
}

impl<C: Clock> Replay<'_, C> {
    /// Makes one call, times it and checks it. False if there is no point in going on.
    fn call(
        &mut self,
        call: &Call,
        ops: &[Prepared<'_>],
        hosts: &mut Hosts,
        measured: &mut Measured,
    ) -> bool {
        std::thread::sleep(Duration::from_millis(call.pause_ms));
        let mut expected: Vec<Expected> = call.ops.iter().map(|op| self.model.apply(op)).collect();
        let by_tools = hosts.first.tools().is_some();
        if by_tools {
            let narrow = |expected| narrowed(expected, call.lines);
            expected = expected.into_iter().map(narrow).collect();
        }
        self.scratch.clear();
        self.scratch
            .reserve(expected.iter().map(content_bytes).sum());
        self.observed.clear();
        self.observed.reserve(ops.len());

        let mut answers = Vec::with_capacity(if by_tools { ops.len() } else { 0 });
        self.pulse.enter(self.task.call_limit());
        let started = self.clock.now_ns();
        match hosts.first.tools() {
            Some(tools) => answers.extend(call.ops.iter().map(|op| ask(op, call.lines, tools))),
            None => {
                for op in ops {
                    let observed = match op.op {
                        FileOp::SeenByOther { content, .. } => {
                            Ok(self.look_until_seen(op, content))
                        }
                        _ => perform(op, &mut self.scratch),
                    };
                    self.observed.push(observed);
                }
            }
        }
        let took = self.clock.now_ns().saturating_sub(started);
        self.pulse.leave();
        for (op, answers) in call.ops.iter().zip(&answers) {
            self.observed.push(observe(op, answers, &mut self.scratch));
        }

        for (op, observed) in call.ops.iter().zip(&self.observed) {
            if let (FileOp::AddLine { line, .. }, Ok(_)) = (op, observed) {
                self.added.insert(Bytes::clone(line));
            }
        }
        let (outcome, reason) = self.judge(call, &expected, took, hosts);
        if let Some(kind) = call.kind {
            *measured.outcomes.entry(outcome).or_default() += 1;
            measured.waited_ns += took;
            if outcome == Outcome::Ok {
                measured.makespan_ns += took;
                // A failure, though the recording had it too, takes as long as failing takes.
                if !expected.iter().any(|e| matches!(e, Expected::Errno(_))) {
                    let (times, total) = self.times.entry(kind).or_insert_with(|| (histogram(), 0));
                    times.saturating_record(took.max(1));
                    *total += took;
                }
                let returned = self.observed.iter().flatten().map(returned_bytes);
                measured.bytes_read += returned.sum::<u64>()
                    + self
                        .scratch
                        .entries
                        .iter()
                        .map(|e| e.content.len() as u64)
                        .sum::<u64>();
            }
        }
        if outcome != Outcome::Ok {
            measured.note(outcome, reason);
        }
        !matches!(outcome, Outcome::Hang | Outcome::Crash)
    }

    /// Reads a file on the other host until it holds `content`, or a call may take no longer.
    fn look_until_seen(&mut self, op: &Prepared<'_>, content: &[u8]) -> Observed {
        let began = Instant::now();
        let mark = self.scratch.mark();
        loop {
            self.scratch.back_to(mark);
            // An error may be gone at the next look, as that of a name which is not there yet.
            if let Ok(Observed::Bytes(place)) = perform(op, &mut self.scratch)
                && self.scratch.data[place.clone()] == *content
            {
                return Observed::Bytes(place);
            }
            let is_over = began.elapsed() >= self.task.call_timeout;
            if is_over || self.pulse.severed().is_some() || self.task.interrupt.is_set() {
                return Observed::NotSeen;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn judge(
        &self,
        call: &Call,
        expected: &[Expected],
        took: u64,
        hosts: &mut Hosts,
    ) -> (Outcome, String) {
        let what = || call.ops.first().map(FileOp::describe).unwrap_or_default();
        if let Some(cut) = self.pulse.severed() {
            return (Outcome::Hang, format!("{}: {cut}", what()));
        }
        for ((op, expected), observed) in call.ops.iter().zip(expected).zip(&self.observed) {
            if let Err(mut reason) = verify(op, expected, observed, &self.scratch) {
                if let Some(obituary) = hosts.obituary() {
                    return (Outcome::Crash, format!("{reason}; {obituary}"));
                }
                let outcome = match observed {
                    Err(_) => Outcome::Errno,
                    Ok(Observed::NotSeen) => {
                        let limit = self.task.call_timeout.as_secs_f64();
                        reason = format!("{}: not within {limit} s", op.describe());
                        Outcome::Timeout
                    }
                    Ok(_) => Outcome::WrongData,
                };
                return (outcome, reason);
            }
        }
        let took = Duration::from_nanos(took);
        if took > self.task.call_timeout {
            let reason = format!("{}: took {:.1} s", what(), took.as_secs_f64());
            return (Outcome::Timeout, reason);
        }
        (Outcome::Ok, String::new())
    }
}

/// Content that an operation is expected to return, in bytes.
fn content_bytes(expected: &Expected) -> usize {
    match expected {
        Expected::Bytes(bytes) => bytes.len(),
        Expected::Lines(lines) => lines.iter().map(|line| line.len()).sum(),
        // Room for an answer of 2,000 tokens and more.
        Expected::Mentions(_) => 64 * 1024,
        Expected::Part { start, end, .. } => end - start,
        Expected::Tree(tree) => tree.values().map(|bytes| bytes.len()).sum(),
        _ => 0,
    }
}

fn returned_bytes(observed: &Observed) -> u64 {
    match observed {
        Observed::Bytes(place) => place.len() as u64,
        _ => 0,
    }
}

/// What the daemon has counted so far.
fn counters(workspace: &mut dyn Workspace) -> Result<Option<DaemonCounters>, String> {
    match workspace.counters() {
        Ok(counters) => Ok(counters.map(|counters| daemon_counters(&counters))),
        Err(error) => Err(format!("reading the daemon's counters: {error}")),
    }
}

/// How many files' content a daemon has asked its server for, as it says itself and by the requests that it made: looks
/// for changes are requests, too.
fn fetched(daemon: Option<&DaemonCounters>) -> u64 {
    let count = |name| daemon.and_then(|daemon| daemon.store.get(name)).copied();
    let (fetches, requests) = (count("s3_fetches"), count("s3_get"));
    fetches.unwrap_or(0).min(requests.unwrap_or(0))
}

fn daemon_counters(counters: &Counters) -> DaemonCounters {
    let fuse = counters.fuse.iter().map(|(opcode, count)| {
        let count = OpcodeCount {
            count: count.count,
            errors: count.errors,
            handling_ns: count.handling_ns,
            store_ns: count.store_ns,
        };
        (opcode.clone(), count)
    });
    DaemonCounters {
        fuse: fuse.collect(),
        store: counters.store.clone(),
    }
}

#[cfg(test)]
mod tests;
