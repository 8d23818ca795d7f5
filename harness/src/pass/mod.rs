//! One pass: the calls of a script in one workspace, timed, then checked.
//!
//! Preparing a workspace and choosing what runs when is the cell's ([`crate::cell`]).

mod hosts;
mod read_back;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use backends::backend::{Description, Workspace};
use backends::fuse::Counters;
use backends::null::FILE_BYTES;
use hdrhistogram::Histogram;
use rundir::{Calls, Counted, Cpu, DaemonCounters, OpcodeCount, Outcome, Settled, histogram};
use rustix::io::Errno;
use workloads::definition::CacheState;
use workloads::model::{Expected, Model};
use workloads::script::{Bytes, Call, CallKind, FileOp, Script};

use crate::clock::Clock;
use crate::interrupt::Interrupt;
use crate::proof::{self, Touched};
use crate::replay::tools::{ask, narrowed, observe};
use crate::replay::{Observed, OpenFiles, Prepared, Scratch, perform, prepare, verify};
use crate::supervise::Pulse;
use crate::system;
pub use hosts::Hosts;

/// How often another host is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Bytes of results that wait to be checked: past it, the calls made so far are checked before the next is timed.
const UNCHECKED_MAX: usize = 512 * 1024;

/// After how many calls that follow each other their deadline is renewed; earlier where they are slow.
const CALLS_A_DEADLINE: usize = 16;

/// What a script must do on a backend, worked out once for all passes.
pub struct Expectations<'a> {
    script: &'a Script,
    calls: &'a [Call],
    expected: Vec<Vec<Expected>>,
    /// What the workspace must hold in the end.
    end: Model,
    touched: Touched,
}

impl<'a> Expectations<'a> {
    /// What `script` must do with caches in `state` on a backend.
    pub fn new(
        script: &'a Script,
        state: CacheState,
        backend: &Description,
        by_tools: bool,
    ) -> Self {
        let calls = script.calls_when(state == CacheState::Hot);
        let mut end = start_model(script, backend);
        let expected = calls.iter().map(|call| {
            let ops = call.ops.iter().map(|op| end.apply(op));
            match by_tools {
                true => ops.map(|one| narrowed(one, call.lines)).collect(),
                false => ops.collect(),
            }
        });
        let expected = expected.collect();
        Self {
            script,
            calls,
            expected,
            touched: proof::touched(script, calls),
            end,
        }
    }

    /// Whether the calls change anything: then each pass needs a fresh subtree.
    pub fn changes(&self) -> bool {
        self.touched.changes
    }

    /// Whether the calls wait for the disk by themselves.
    pub fn syncs(&self) -> bool {
        let mut ops = self.calls.iter().flat_map(|call| &call.ops);
        ops.any(|op| {
            matches!(op, FileOp::Sync(_) | FileOp::SyncAll { .. })
                || matches!(op, FileOp::Write { sync, .. } | FileOp::WriteAt { sync, .. } if *sync)
        })
    }
}

/// The reference model at the start of the calls.
pub fn start_model(script: &Script, backend: &Description) -> Model {
    if backend.capabilities.holds_data {
        Model::of(script)
    } else {
        let zeros = vec![0; FILE_BYTES as usize];
        Model::fixed(script, &Bytes::from(zeros))
    }
}

/// Whether, and from when on, a pass is counted.
#[derive(Debug)]
pub enum Counting {
    /// The daemon is asked for nothing.
    Never,
    /// The daemon is asked right before the calls, around those that are not timed, and after them.
    Now,
    /// The daemon had counted this before its caches were emptied, and is asked after the calls only; what is not timed
    /// between them counts, too. `None` where nothing counts.
    Since(Option<DaemonCounters>),
}

/// What a pass is to do.
pub struct Pass<'a> {
    /// What is called, and what must come of it.
    pub expectations: &'a Expectations<'a>,
    /// The backend.
    pub backend: &'a Description,
    /// A sync asked of the mount waits for a bucket.
    pub has_bucket: bool,
    /// The cache state.
    pub state: CacheState,
    /// By how many percent every call is lengthened on purpose.
    pub slowed_percent: u32,
    /// Whether the daemon is asked for its counters.
    pub counting: Counting,
    /// That the caches were as the state says is proved afterwards.
    pub proves_state: bool,
    /// Everything is read back afterwards.
    pub reads_back: bool,
    /// A call that takes longer is a timeout; one that takes twice as long is cut off.
    pub call_timeout: Duration,
    /// Ends the pass between calls.
    pub interrupt: &'a Interrupt,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Passed {
    /// The worst that happened, and the first reason for it.
    pub verdict: Option<(Outcome, String)>,
    /// Timed calls by how they ended.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Service times by kind.
    pub calls: BTreeMap<String, Calls>,
    /// All service times by kind, to be merged.
    pub times: BTreeMap<CallKind, Histogram<u64>>,
    /// Service times of calls that ended well, summed, in nanoseconds.
    pub makespan_ns: u64,
    /// What the caller waited for all timed calls, wrong answers and failures among them, in nanoseconds.
    pub waited_ns: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Processor time around the timed calls.
    pub cpu: Cpu,
    /// What was counted, if it was.
    pub counted: Option<Counted>,
    /// What became of the lines that two hosts added to one file.
    pub settled: Option<Settled>,
    /// What speaks against caches that were to be hot.
    pub not_hot: Option<String>,
    /// The run was interrupted: what was measured is not whole.
    pub interrupted: bool,
}

impl Passed {
    /// A pass that did not come to its calls.
    pub fn ended(outcome: Outcome, reason: impl ToString) -> Self {
        Self {
            verdict: Some((outcome, reason.to_string())),
            ..Self::default()
        }
    }

    /// Notes how something ended; the worst stays, and of equals the first.
    pub fn note(&mut self, outcome: Outcome, reason: String) {
        let worst = self.verdict.as_ref();
        if worst.is_none_or(|(worst, _)| outcome > *worst) {
            self.verdict = Some((outcome, reason));
        }
    }
}

/// What is read of the kernel before and after the timed calls: for every arm the same, whether it has a daemon or not.
struct Meters {
    daemon_cpu_ns: u64,
    client_disk: u64,
    daemon_disk: u64,
    client_dirtied: u64,
    daemon_dirtied: u64,
    daemon_written: u64,
}

impl Meters {
    fn read(daemon: Option<u32>) -> Self {
        // Where there is no daemon, the harness itself is read in its place, so that reading costs the same.
        let pid = daemon.unwrap_or_else(std::process::id);
        let client = system::thread_io();
        let other = system::process_io(pid);
        Self {
            daemon_cpu_ns: system::process_cpu_ns(pid),
            client_disk: client.read_bytes,
            daemon_disk: other.read_bytes,
            client_dirtied: client.write_bytes,
            daemon_dirtied: other.write_bytes,
            daemon_written: other.written,
        }
    }
}

impl Pass<'_> {
    /// Makes the calls in `hosts`, in their subtree, and checks what they did; `timed` is called once the last call has
    /// been made and before anything is read back.
    pub fn run<C: Clock>(
        &self,
        hosts: &mut Hosts,
        pulse: &Pulse,
        clock: &C,
        scratch: &mut Scratch,
        timed: &mut dyn FnMut(),
    ) -> Passed {
        let mut passed = Passed::default();
        let prepared = match self.prepare(hosts) {
            Ok(prepared) => prepared,
            Err(error) => return Passed::ended(Outcome::Infra, error),
        };
        let is_counted = !matches!(self.counting, Counting::Never);
        let before = match &self.counting {
            Counting::Never => None,
            Counting::Since(before) => before.clone(),
            Counting::Now => match counters(&mut *hosts.first) {
                Ok(counters) => counters,
                Err(error) => return Passed::ended(Outcome::Infra, error),
            },
        };
        let mut replay = Replay {
            pass: self,
            clock,
            pulse,
            scratch,
            observed: Vec::with_capacity(1024),
            times: BTreeMap::new(),
            added: BTreeSet::new(),
            uncounted: before,
        };
        replay.scratch.system_calls = 0;
        let daemon = hosts.first.daemon();
        let meters = Meters::read(daemon);
        replay.calls(&prepared, hosts, &mut passed);
        timed();
        let after = Meters::read(daemon);
        let system_calls = replay.scratch.system_calls;
        passed.cpu.daemon_ns = match daemon {
            Some(_) => after.daemon_cpu_ns.saturating_sub(meters.daemon_cpu_ns),
            None => 0,
        };
        let client_disk = after.client_disk.saturating_sub(meters.client_disk);
        let mut of_daemon = None;
        if is_counted {
            match counters(&mut *hosts.first) {
                Ok(Some(now)) => of_daemon = replay.uncounted.take().map(|then| now.since(&then)),
                Ok(None) => {}
                Err(error) if passed.verdict.is_none() => passed.note(Outcome::Infra, error),
                Err(_) => {}
            }
            let daemon_dirtied = after.daemon_dirtied.saturating_sub(meters.daemon_dirtied);
            passed.counted = Some(Counted {
                passes: 1,
                calls: passed.outcomes.values().sum(),
                waited_ns: passed.waited_ns,
                system_calls,
                disk_written_bytes: after.client_dirtied.saturating_sub(meters.client_dirtied)
                    + daemon.map_or(0, |_| daemon_dirtied),
                disk_read_bytes: client_disk,
                daemon: of_daemon.clone(),
            });
        }
        for (kind, (times, total_ns)) in std::mem::take(&mut replay.times) {
            let calls = Calls::of(&times, total_ns);
            passed.calls.insert(kind.to_string(), calls);
            passed.times.insert(kind, times);
        }
        let added = std::mem::take(&mut replay.added);
        if passed.verdict.is_none() && !passed.interrupted {
            let capabilities = self.backend.capabilities;
            let counts = capabilities.counts_requests && is_counted;
            let counted = of_daemon.as_ref().filter(|_| counts);
            // Without the counts of a daemon that has them, only what comes from disk can prove anything.
            let can_prove =
                self.state == CacheState::Hot || counts || !capabilities.counts_requests;
            let disk = proof::DiskReads {
                client: client_disk,
                daemon: daemon.map(|_| {
                    (
                        after.daemon_disk,
                        after.daemon_disk.saturating_sub(meters.daemon_disk),
                    )
                }),
                answered: daemon
                    .map(|_| after.daemon_written.saturating_sub(meters.daemon_written)),
                is_persistent: capabilities.persistent,
                fetched: capabilities.starts_empty.then(|| fetched(counted)),
            };
            let proof = proof::check(self.state, &self.expectations.touched, counted, &disk);
            match proof {
                Err(reason) if self.proves_state && self.state == CacheState::Hot => {
                    passed.not_hot = Some(reason);
                }
                Err(reason) if self.proves_state && can_prove => {
                    passed.note(Outcome::Infra, reason);
                }
                _ => {}
            }
            let shared = self.expectations.script.shared_files();
            if self.backend.capabilities.holds_data && shared.is_empty() && self.reads_back {
                self.read_everything_back(hosts, pulse, scratch, &mut passed);
            }
        }
        // What came late or failed is no reason not to look what became of the rest.
        let is_sound = passed.verdict.as_ref();
        let is_sound = is_sound.is_none_or(|(worst, _)| *worst < Outcome::WrongData);
        let shares = !self.expectations.script.shared_files().is_empty();
        if is_sound && !passed.interrupted && shares {
            self.settle(hosts, pulse, &added, &mut passed);
        }
        passed
    }

    fn prepare<'p>(&'p self, hosts: &Hosts) -> io::Result<Vec<Vec<Prepared<'p>>>> {
        let mut open_files = OpenFiles::new();
        let mut one = |op| {
            let prepared = prepare(&hosts.root(op), op, &mut open_files)?;
            Ok(Prepared {
                has_bucket: self.has_bucket,
                ..prepared
            })
        };
        let calls = self.expectations.calls.iter();
        calls
            .map(|call| call.ops.iter().map(&mut one).collect())
            .collect()
    }
}

struct Replay<'a, C> {
    pass: &'a Pass<'a>,
    clock: &'a C,
    pulse: &'a Pulse,
    scratch: &'a mut Scratch,
    observed: Vec<Result<Observed, Errno>>,
    times: BTreeMap<CallKind, (Histogram<u64>, u64)>,
    /// Lines whose adding succeeded.
    added: BTreeSet<Bytes>,
    /// What the daemon had counted before the timed calls, and between them by what is not timed.
    uncounted: Option<DaemonCounters>,
}

impl<C: Clock> Replay<'_, C> {
    /// Makes all calls: stretches of calls that follow each other without a pause are timed, then checked.
    fn calls(&mut self, prepared: &[Vec<Prepared<'_>>], hosts: &mut Hosts, passed: &mut Passed) {
        let calls = self.pass.expectations.calls;
        let mut next = 0;
        while next < calls.len() {
            if self.pass.interrupt.is_set() {
                passed.interrupted = true;
                return;
            }
            let stretch = next..self.stretch_end(next);
            let before = match (calls[next].kind, &self.pass.counting) {
                (None, Counting::Now) => counters(&mut *hosts.first).ok().flatten(),
                _ => None,
            };
            next = stretch.end;
            if !self.stretch(stretch, prepared, hosts, passed) {
                return;
            }
            if let (Some(before), Some(uncounted)) = (before, &mut self.uncounted)
                && let Ok(Some(now)) = counters(&mut *hosts.first)
            {
                uncounted.add(&now.since(&before));
            }
        }
    }

    /// Where the stretch of calls ends that begins with call `first`: before the next pause, before or after a call
    /// that is not timed, or where enough results wait to be checked.
    fn stretch_end(&self, first: usize) -> usize {
        let expectations = self.pass.expectations;
        let calls = expectations.calls;
        let mut bytes = expected_bytes(&expectations.expected[first]);
        let mut end = first + 1;
        while end < calls.len()
            && calls[end].pause_ms == 0
            && calls[first].kind.is_some()
            && calls[end].kind.is_some()
        {
            bytes += expected_bytes(&expectations.expected[end]);
            if bytes > UNCHECKED_MAX {
                break;
            }
            end += 1;
        }
        end
    }

    /// Makes and times the calls of a stretch, then checks them. False if there is no point in going on.
    fn stretch(
        &mut self,
        stretch: std::ops::Range<usize>,
        prepared: &[Vec<Prepared<'_>>],
        hosts: &mut Hosts,
        passed: &mut Passed,
    ) -> bool {
        let expectations = self.pass.expectations;
        let calls = &expectations.calls[stretch.clone()];
        let expected = &expectations.expected[stretch.clone()];
        let prepared = &prepared[stretch];
        std::thread::sleep(Duration::from_millis(calls[0].pause_ms));
        self.scratch.clear();
        let bytes = expected.iter().map(|one| expected_bytes(one)).sum();
        self.scratch.reserve(bytes);
        self.observed.clear();
        self.observed.reserve(prepared.iter().map(Vec::len).sum());
        let mut took = Vec::with_capacity(calls.len());
        let mut answers = Vec::new();
        let by_tools = hosts.first.tools().is_some();
        if by_tools {
            answers.reserve(calls.iter().map(|call| call.ops.len()).sum());
        }
        let system_calls = self.scratch.system_calls;
        let limit = 2 * self.pass.call_timeout;
        let slowed = u64::from(self.pass.slowed_percent);

        let renewed_after = limit.as_nanos() as u64 / 4;
        let (mut renewed, mut ended) = (0_u64, 0_u64);
        let cpu_before = system::thread_cpu();
        for (at, (call, ops)) in calls.iter().zip(prepared).enumerate() {
            if at % CALLS_A_DEADLINE == 0 || ended.saturating_sub(renewed) > renewed_after {
                self.pulse.enter(limit);
                renewed = ended;
            }
            let started = self.clock.now_ns();
            match hosts.first.tools() {
                Some(tools) => answers.extend(call.ops.iter().map(|op| ask(op, call.lines, tools))),
                None => {
                    for op in ops {
                        let observed = match op.op {
                            FileOp::SeenByOther { content, .. } => {
                                Ok(self.look_until_seen(op, content))
                            }
                            _ => perform(op, self.scratch),
                        };
                        self.observed.push(observed);
                    }
                }
            }
            ended = self.clock.now_ns();
            if slowed > 0 {
                let until = ended + ended.saturating_sub(started) * slowed / 100;
                while ended < until {
                    ended = self.clock.now_ns();
                }
            }
            took.push(ended.saturating_sub(started));
        }
        let cpu = system::thread_cpu().saturating_sub(cpu_before);
        self.pulse.leave();
        let is_timed = calls[0].kind.is_some();
        if is_timed {
            passed.cpu.client_ns += cpu.as_nanos() as u64;
        } else {
            self.scratch.system_calls = system_calls;
        }

        if by_tools {
            let ops = calls.iter().flat_map(|call| &call.ops);
            for (op, answers) in ops.zip(&answers) {
                self.observed.push(observe(op, answers, self.scratch));
            }
        }
        let mut first = 0;
        for ((call, expected), took) in calls.iter().zip(expected).zip(took) {
            let observed = first..first + call.ops.len();
            first = observed.end;
            if !self.check(call, expected, observed, took, hosts, passed) {
                return false;
            }
        }
        true
    }

    /// Checks one call and notes what it took. False if there is no point in going on.
    fn check(
        &mut self,
        call: &Call,
        expected: &[Expected],
        observed: std::ops::Range<usize>,
        took: u64,
        hosts: &mut Hosts,
        passed: &mut Passed,
    ) -> bool {
        for (op, observed) in call.ops.iter().zip(&self.observed[observed.clone()]) {
            if let (FileOp::AddLine { line, .. }, Ok(_)) = (op, observed) {
                self.added.insert(Bytes::clone(line));
            }
        }
        let observed = &self.observed[observed];
        let (outcome, reason) = self.judge(call, expected, observed, took, hosts);
        if let Some(kind) = call.kind {
            *passed.outcomes.entry(outcome).or_default() += 1;
            passed.waited_ns += took;
            if outcome == Outcome::Ok {
                passed.makespan_ns += took;
                // A failure, though the recording had it too, takes as long as failing takes.
                if !expected.iter().any(|e| matches!(e, Expected::Errno(_))) {
                    let (times, total) = self.times.entry(kind).or_insert_with(|| (histogram(), 0));
                    times.saturating_record(took.max(1));
                    *total += took;
                }
                let returned = observed
                    .iter()
                    .flatten()
                    .map(|one| self.returned_bytes(one));
                passed.bytes_read += returned.sum::<u64>();
            }
        }
        if outcome != Outcome::Ok {
            passed.note(outcome, reason);
        }
        !matches!(outcome, Outcome::Hang | Outcome::Crash)
    }

    fn returned_bytes(&self, observed: &Observed) -> u64 {
        match observed {
            Observed::Bytes(place) => place.len() as u64,
            Observed::Entries(place) => {
                let entries = self.scratch.entries[place.clone()].iter();
                entries.map(|entry| entry.content.len() as u64).sum()
            }
            _ => 0,
        }
    }

    /// Reads a file on the other host until it holds `content`, or a call may take no longer.
    fn look_until_seen(&mut self, op: &Prepared<'_>, content: &[u8]) -> Observed {
        let began = Instant::now();
        let mark = self.scratch.mark();
        loop {
            self.scratch.back_to(mark);
            // An error may be gone at the next look, as that of a name which is not there yet.
            if let Ok(Observed::Bytes(place)) = perform(op, self.scratch)
                && self.scratch.data[place.clone()] == *content
            {
                return Observed::Bytes(place);
            }
            let is_over = began.elapsed() >= self.pass.call_timeout;
            if is_over || self.pulse.severed().is_some() || self.pass.interrupt.is_set() {
                return Observed::NotSeen;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn judge(
        &self,
        call: &Call,
        expected: &[Expected],
        observed: &[Result<Observed, Errno>],
        took: u64,
        hosts: &mut Hosts,
    ) -> (Outcome, String) {
        let what = || call.ops.first().map(FileOp::describe).unwrap_or_default();
        let took = Duration::from_nanos(took);
        let limit = self.pass.call_timeout;
        for ((op, expected), observed) in call.ops.iter().zip(expected).zip(observed) {
            if let Err(mut reason) = verify(op, expected, observed, self.scratch) {
                if let Some(cut) = self.pulse.severed() {
                    return (Outcome::Hang, format!("{}: {cut}", what()));
                }
                if let Some(obituary) = hosts.obituary() {
                    return (Outcome::Crash, format!("{reason}; {obituary}"));
                }
                let outcome = match observed {
                    Err(_) => Outcome::Errno,
                    Ok(Observed::NotSeen) => {
                        reason = format!("{}: not within {} s", op.describe(), limit.as_secs_f64());
                        Outcome::Timeout
                    }
                    Ok(_) => Outcome::WrongData,
                };
                return (outcome, reason);
            }
        }
        if took > limit {
            if let Some(cut) = self.pulse.severed() {
                return (Outcome::Hang, format!("{}: {cut}", what()));
            }
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

fn expected_bytes(expected: &[Expected]) -> usize {
    // Names take room as well: a thousand entries are no more than a page or two each.
    let names = |one: &Expected| match one {
        Expected::Entries(entries) => 64 * entries.len(),
        _ => 0,
    };
    expected
        .iter()
        .map(|one| content_bytes(one) + names(one))
        .sum()
}

/// Creates the first files of a script below `root`.
///
/// # Errors
/// If one cannot be created.
pub fn fill(
    script: &Script,
    root: &Path,
    pulse: &Pulse,
    limit: Duration,
    scratch: &mut Scratch,
) -> io::Result<()> {
    let dirs = script.dirs.iter();
    let dirs = dirs.map(|dir| FileOp::MakeDir(dir.clone()));
    let files = script.files.iter();
    let files = files.map(|(path, content)| FileOp::Write {
        path: path.clone(),
        content: Bytes::clone(content),
        sync: false,
    });
    for op in dirs.chain(files) {
        let prepared = prepare(root, &op, &mut OpenFiles::new())?;
        scratch.clear();
        pulse.enter(limit);
        perform(&prepared, scratch).map_err(|errno| {
            io::Error::new(
                io::Error::from(errno).kind(),
                format!("{}: {errno}", op.describe()),
            )
        })?;
    }
    Ok(())
}

/// Does what brings the caches of a script's files below `root` into the state called hot; `skip` says what warms
/// nothing on this backend.
///
/// # Errors
/// If something returns what it should not.
pub fn warm_up(
    script: &Script,
    model: &mut Model,
    root: &Path,
    pulse: &Pulse,
    limit: Duration,
    scratch: &mut Scratch,
    skip: impl Fn(&FileOp) -> bool,
) -> io::Result<()> {
    for op in script.warm_up.iter().filter(|op| !skip(op)) {
        let prepared = prepare(root, op, &mut OpenFiles::new())?;
        scratch.clear();
        pulse.enter(limit);
        let observed = perform(&prepared, scratch);
        verify(op, &model.apply(op), &observed, scratch).map_err(io::Error::other)?;
    }
    Ok(())
}

/// What the daemon has counted so far.
///
/// # Errors
/// If it does not answer.
pub fn counters(workspace: &mut dyn Workspace) -> Result<Option<DaemonCounters>, String> {
    match workspace.counters() {
        Ok(counters) => Ok(counters.map(|counters| daemon_counters(&counters))),
        Err(error) => Err(format!("reading the daemon's counters: {error}")),
    }
}

/// How many files' content a daemon has asked its server for, as it says itself and by the requests that it made: polls
/// are requests, too.
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
