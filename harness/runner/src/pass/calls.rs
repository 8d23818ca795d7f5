//! A pass under way: makes and times its calls in stretches, and checks each stretch against the model.
//!
//! The driver of its kind puts the steps in order: [`Replay::prepare`], [`Replay::measure`], [`Replay::read_back`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use arms::backend::{Description, Workspace};
use fuse::Counters;
use hdrhistogram::Histogram;
use replay::{Observation, ResultBuffer, verify};
use rundir::{Calls, DaemonCounters, ExactCounts, OpcodeRecord, Outcome, Sample, Score, ScoreName, histogram};
use rustix::io::Errno;
use workloads::definition::CacheState;
use workloads::exam::ExamQuestion;
use workloads::model::ExpectedResult;
use workloads::path::WorkspacePath;
use workloads::script::{Call, CallKind, FileOp};

use super::expectations::{Expectations, expected_bytes};
use super::workspaces::Workspaces;
use crate::cache_state;
use crate::clock::Clock;
use crate::system::{self, Io};
use trial::interrupt::Interrupt;
use trial::watchdog::Watchdog;

/// How long opening files and starting client processes may take.
pub(super) const PREPARE_LIMIT: Duration = Duration::from_secs(60);

/// How long reading all files back may take.
pub(super) const READ_BACK_LIMIT: Duration = Duration::from_secs(120);

/// How long a daemon's process may take to end after its control socket is closed.
const ENDS_WITHIN: Duration = Duration::from_millis(200);

/// Bytes of unchecked results. Beyond it, the calls made so far are checked before the next one is timed.
const UNCHECKED_MAX: usize = 512 * 1024;

/// After how many calls without a pause the watchdog's deadline is renewed; slow calls renew it earlier.
const CALLS_A_DEADLINE: usize = 16;

/// Whether the daemon's counters are read for a pass, and from when on they count.
#[derive(Debug)]
pub enum CounterUse {
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
    /// The backend under test.
    pub backend: &'a Description,
    /// Whether the backend has a bucket: then one request to the mount syncs all files.
    pub has_bucket: bool,
    /// The state of the caches before the pass.
    pub state: CacheState,
    /// By how many percent every call is lengthened on purpose.
    pub slowed_percent: u32,
    /// When the daemon's counters are read.
    pub counting: CounterUse,
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
pub struct PassResult {
    /// The worst outcome with its first reason; `None` if all went well.
    pub worst_outcome: Option<(Outcome, String)>,
    /// The line of the run directory, without the position in the run and the load.
    pub sample: Sample,
    /// Histograms of service times in nanoseconds by kind, for the cell's totals.
    pub times: BTreeMap<CallKind, Histogram<u64>>,
    /// The counts of client and daemon, if they were read.
    pub counted: Option<ExactCounts>,
    /// Why the caches of a hot pass were not hot.
    pub not_hot: Option<String>,
    /// Whether the run was interrupted: then the measurement is incomplete.
    pub interrupted: bool,
}

impl PassResult {
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

/// Service times of calls by kind, with their sums, in nanoseconds.
pub(super) type TimesByKind = BTreeMap<CallKind, (Histogram<u64>, u64)>;

/// The results of a stretch of calls.
pub struct Results<'a> {
    pub(super) buffer: &'a mut ResultBuffer,
    /// One for each operation.
    pub(super) observed: Vec<Result<Observation, Errno>>,
}

/// Makes the calls of one kind of workload.
pub(super) trait TimedCalls {
    /// Gets ready for a stretch of `ops` operations. Not timed.
    fn begin(&mut self, ops: usize) {
        let _ = ops;
    }

    /// Makes a call, which is at `at` in the script. Timed.
    fn make(&mut self, at: usize, call: &Call, workspaces: &mut Workspaces, results: &mut Results<'_>);

    /// Completes the results of a stretch, so that each operation has one. Not timed.
    fn end(&mut self, calls: &[Call], results: &mut Results<'_>) {
        let _ = (calls, results);
    }
}

/// A pass under way.
pub struct Replay<'a, C> {
    pub(super) pass: &'a Pass<'a>,
    pub(super) clock: &'a C,
    pub(super) watchdog: &'a Watchdog,
    pub(super) workspaces: &'a mut Workspaces,
    pub(super) results: Results<'a>,
    /// Called after the last call, before files are read back.
    pub(super) timed: &'a mut dyn FnMut(),
    pub(super) times: TimesByKind,
    /// The daemon's counters before the timed calls, plus its counts during calls that are not timed.
    pub(super) uncounted: Option<DaemonCounters>,
    pub(super) passed: PassResult,
}

/// Waits as long after a call as the plan slows its arm down. Returns the time at which the call then ended.
#[inline(always)]
pub(super) fn lengthened(clock: &impl Clock, started: u64, mut ended: u64, percent: u32) -> u64 {
    let until = ended + ended.saturating_sub(started) * u64::from(percent) / 100;
    while ended < until {
        ended = clock.now_ns();
    }
    ended
}

impl<'a, C: Clock> Replay<'a, C> {
    /// Prepares the calls. `None` if that failed.
    pub(super) fn prepare<T>(&mut self, prepare: impl FnOnce(&'a Pass<'a>, &Workspaces) -> io::Result<T>) -> Option<T> {
        // Client processes read their files during preparation, on a mount that may hang.
        self.watchdog.enter(PREPARE_LIMIT);
        let prepared = prepare(self.pass, self.workspaces);
        self.watchdog.leave();
        prepared.map_err(|error| self.passed = PassResult::ended(Outcome::Infra, error)).ok()
    }

    /// Reads counters and meters before and after `calls`, and checks the cache state by them.
    pub(super) fn measure(&mut self, calls: impl FnOnce(&mut Self)) {
        let is_counted = !matches!(self.pass.counting, CounterUse::Never);
        self.uncounted = match &self.pass.counting {
            CounterUse::Never => None,
            CounterUse::Since(before) => before.clone(),
            CounterUse::Now => match counters(&mut *self.workspaces.first) {
                Ok(counters) => counters,
                Err(error) => {
                    let (outcome, reason) = unanswered(self.workspaces, error);
                    self.passed = PassResult::ended(outcome, reason);
                    return;
                }
            },
        };
        self.results.buffer.system_calls = 0;
        let daemon = self.workspaces.first.daemon();
        let meters = Meters::read(daemon);
        calls(self);
        (self.timed)();
        let after = Meters::read(daemon);
        let passed = &mut self.passed;
        passed.sample.cpu.daemon_ns = match daemon {
            Some(_) => after.daemon_cpu_ns.saturating_sub(meters.daemon_cpu_ns),
            None => 0,
        };
        let client_io = after.client.since(&meters.client);
        let daemon_io = after.daemon.since(&meters.daemon);
        let mut of_daemon = None;
        if is_counted {
            match counters(&mut *self.workspaces.first) {
                Ok(Some(now)) => of_daemon = self.uncounted.take().map(|then| now.since(&then)),
                Ok(None) => {}
                Err(error) if passed.worst_outcome.is_none() => {
                    let (outcome, reason) = unanswered(self.workspaces, error);
                    passed.note(outcome, reason);
                }
                Err(_) => {}
            }
            passed.counted = Some(ExactCounts {
                passes: 1,
                calls: passed.sample.outcomes.values().sum(),
                waited_ns: passed.sample.waited_ns,
                system_calls: self.results.buffer.system_calls,
                disk_written_bytes: client_io.write_bytes + daemon.map_or(0, |_| daemon_io.write_bytes),
                disk_read_bytes: client_io.read_bytes,
                daemon: of_daemon.clone(),
            });
        }
        for (kind, (times, total_ns)) in std::mem::take(&mut self.times) {
            passed.sample.calls.insert(kind.to_string(), Calls::of(&times, total_ns));
            passed.times.insert(kind, times);
        }
        if passed.worst_outcome.is_some() || passed.interrupted || !self.pass.proves_state {
            return;
        }
        let capabilities = self.pass.backend.capabilities;
        let counts = capabilities.counts_requests && is_counted;
        let counted = of_daemon.as_ref().filter(|_| counts);
        let disk = cache_state::DiskReads {
            client: client_io.read_bytes,
            daemon: daemon.map(|_| (after.daemon.read_bytes, daemon_io.read_bytes)),
            answered: daemon.map(|_| daemon_io.written),
            is_persistent: capabilities.persistent,
            fetched: capabilities.starts_empty.then(|| fetched(counted)),
        };
        let state = self.pass.state;
        let proved = cache_state::check(state, &self.pass.expectations.touched, counted, &disk);
        match proved {
            Err(reason) if state == CacheState::Hot => passed.not_hot = Some(reason),
            // If the backend has request counters, the proof needs them: this pass may not have read them.
            Err(reason) if counts || !capabilities.counts_requests => passed.note(Outcome::Infra, reason),
            _ => {}
        }
    }

    /// Makes all calls. A stretch is a sequence of calls without a pause: it is timed first, then checked.
    pub(super) fn calls<T: TimedCalls>(&mut self, timed: &mut T) {
        let calls = self.pass.expectations.calls();
        let mut next = 0;
        while next < calls.len() {
            if self.pass.interrupt.is_set() {
                self.passed.interrupted = true;
                return;
            }
            let stretch = next..self.stretch_end(next);
            let before = match (calls[next].kind, &self.pass.counting) {
                (None, CounterUse::Now) => counters(&mut *self.workspaces.first).ok().flatten(),
                _ => None,
            };
            next = stretch.end;
            if !self.stretch(stretch, timed) {
                return;
            }
            if let (Some(before), Some(uncounted)) = (before, &mut self.uncounted)
                && let Ok(Some(now)) = counters(&mut *self.workspaces.first)
            {
                uncounted.add(&now.since(&before));
            }
        }
    }

    /// The end of the stretch that begins with call `first`. A stretch ends at a pause, at an untimed call, or
    /// before its unchecked results exceed [`UNCHECKED_MAX`].
    fn stretch_end(&self, first: usize) -> usize {
        let expectations = self.pass.expectations;
        let calls = expectations.calls();
        let mut bytes = expected_bytes(&expectations.expected[first]);
        let mut end = first + 1;
        while end < calls.len() && calls[end].pause_ms == 0 && calls[first].kind.is_some() && calls[end].kind.is_some()
        {
            bytes += expected_bytes(&expectations.expected[end]);
            if bytes > UNCHECKED_MAX {
                break;
            }
            end += 1;
        }
        end
    }

    /// Makes and times the calls of a stretch, then checks them. False after a hang or a crash.
    fn stretch<T: TimedCalls>(&mut self, stretch: Range<usize>, timed: &mut T) -> bool {
        let expectations = self.pass.expectations;
        let calls = &expectations.calls()[stretch.clone()];
        let expected = &expectations.expected[stretch.clone()];
        std::thread::sleep(Duration::from_millis(calls[0].pause_ms));
        let results = &mut self.results;
        results.buffer.clear();
        results.buffer.reserve(expected.iter().map(|one| expected_bytes(one)).sum());
        let ops = calls.iter().map(|call| call.ops.len()).sum();
        results.observed.clear();
        results.observed.reserve(ops);
        timed.begin(ops);
        let mut took = Vec::with_capacity(calls.len());
        let system_calls = results.buffer.system_calls;
        let limit = 2 * self.pass.call_timeout;
        let slowed_percent = self.pass.slowed_percent;

        let renewed_after = limit.as_nanos() as u64 / 4;
        let (mut renewed, mut ended) = (0_u64, 0_u64);
        let cpu_before = system::thread_cpu();
        for (at, call) in calls.iter().enumerate() {
            if at % CALLS_A_DEADLINE == 0 || ended.saturating_sub(renewed) > renewed_after {
                self.watchdog.enter(limit);
                renewed = ended;
            }
            let started = self.clock.now_ns();
            timed.make(stretch.start + at, call, self.workspaces, results);
            ended = self.clock.now_ns();
            if slowed_percent > 0 {
                ended = lengthened(self.clock, started, ended, slowed_percent);
            }
            let response = results.buffer.response_ns.take();
            took.push(response.unwrap_or(ended.saturating_sub(started)));
        }
        let cpu = system::thread_cpu().saturating_sub(cpu_before);
        self.watchdog.leave();
        if calls[0].kind.is_some() {
            self.passed.sample.cpu.client_ns += cpu.as_nanos() as u64;
        } else {
            results.buffer.system_calls = system_calls;
        }

        timed.end(calls, results);
        let mut first = 0;
        for ((call, expected), took) in calls.iter().zip(expected).zip(took) {
            let observed = first..first + call.ops.len();
            first = observed.end;
            if !self.check(call, expected, observed, took) {
                return false;
            }
        }
        true
    }

    /// Checks one call and records its service time, `took`, in nanoseconds. False after a hang or a crash.
    fn check(&mut self, call: &Call, expected: &[ExpectedResult], observed: Range<usize>, took: u64) -> bool {
        let (mut outcome, mut reason) = self.outcome_of(call, expected, observed.clone(), took);
        let passed = &mut self.passed;
        // Scores do not vary between rounds: compute them only in rounds that read files back.
        if outcome == Outcome::Ok
            && self.pass.reads_back
            && let Some(asked) = &call.asked
            && let Err(why) = score(asked, &self.results.answer(observed.clone()), &mut passed.sample.scores)
        {
            (outcome, reason) = (Outcome::WrongData, format!("{}: {why}", described(call)));
        }
        if let Some(kind) = call.kind {
            *passed.sample.outcomes.entry(outcome).or_default() += 1;
            passed.sample.waited_ns += took;
            if outcome == Outcome::Ok {
                passed.sample.makespan_ns += took;
                // An expected failure is not timed: failing takes another time than succeeding.
                if !expected.iter().any(|e| matches!(e, ExpectedResult::Errno(_))) {
                    let (times, total) = self.times.entry(kind).or_insert_with(|| (histogram(), 0));
                    times.saturating_record(took.max(1));
                    *total += took;
                }
                passed.sample.bytes_read += self.results.returned_bytes(observed);
            }
        }
        if outcome != Outcome::Ok {
            passed.note(outcome, reason);
        }
        !matches!(outcome, Outcome::Hang | Outcome::Crash)
    }

    fn outcome_of(
        &mut self,
        call: &Call,
        expected: &[ExpectedResult],
        observed: Range<usize>,
        took: u64,
    ) -> (Outcome, String) {
        let took = Duration::from_nanos(took);
        let limit = self.pass.call_timeout;
        let observed = &self.results.observed[observed];
        for ((op, expected), observed) in call.ops.iter().zip(expected).zip(observed) {
            if let Err(mut reason) = verify(op, expected, observed, self.results.buffer) {
                if let Some(cut) = self.watchdog.killed() {
                    return (Outcome::Hang, format!("{}: {cut}", described(call)));
                }
                if let Some(exit_reason) = self.workspaces.exit_reason() {
                    return (Outcome::Crash, format!("{reason}; {exit_reason}"));
                }
                let outcome = match observed {
                    Err(_) => Outcome::Errno,
                    Ok(Observation::NotSeen) => {
                        reason = format!("{}: not within {} s", op.describe(), limit.as_secs_f64());
                        Outcome::Timeout
                    }
                    Ok(_) => Outcome::WrongData,
                };
                return (outcome, reason);
            }
        }
        if took > limit {
            if let Some(cut) = self.watchdog.killed() {
                return (Outcome::Hang, format!("{}: {cut}", described(call)));
            }
            let reason = format!("{}: took {:.1} s", described(call), took.as_secs_f64());
            return (Outcome::Timeout, reason);
        }
        (Outcome::Ok, String::new())
    }

    /// Compares the files with the model after all calls by `compare`, if this pass reads files back and went well.
    pub(super) fn read_back(&mut self, compare: impl FnOnce(&mut Self) -> Result<(), String>) {
        let is_due = self.pass.reads_back && self.pass.backend.capabilities.holds_data;
        if !is_due || self.passed.interrupted || self.passed.worst_outcome.is_some() {
            return;
        }
        self.watchdog.enter(READ_BACK_LIMIT);
        self.results.buffer.clear();
        if let Err(reason) = compare(self) {
            self.note(Outcome::WrongData, format!("reading everything back: {reason}"));
        }
        self.watchdog.leave();
    }

    /// Records an outcome; a hang if the watchdog cut off a call.
    pub(super) fn note(&mut self, outcome: Outcome, reason: String) {
        match self.watchdog.killed() {
            Some(cut) => self.passed.note(Outcome::Hang, format!("{reason}; {cut}")),
            None => self.passed.note(outcome, reason),
        }
    }

    /// Compares the result of a search for all files with the model after all calls.
    pub(super) fn verify_all(&self, held: &Result<Observation, Errno>) -> Result<(), String> {
        let everything = FileOp::Search(WorkspacePath::root());
        let expected = self.pass.expectations.end.clone().apply(&everything);
        verify(&everything, &expected, held, self.results.buffer)
    }
}

impl Results<'_> {
    /// The content that the first reading operation of a call returned.
    fn answer(&self, observed: Range<usize>) -> Cow<'_, str> {
        let answer = self.observed[observed].iter().flatten().find_map(|one| match one {
            Observation::Bytes(place) => Some(&self.buffer.data[place.clone()]),
            _ => None,
        });
        String::from_utf8_lossy(answer.unwrap_or_default())
    }

    /// Bytes of content that the operations of a call returned.
    fn returned_bytes(&self, observed: Range<usize>) -> u64 {
        let bytes = |one: &Observation| match one {
            Observation::Bytes(place) => place.len() as u64,
            Observation::Entries(place) => {
                let entries = self.buffer.entries[place.clone()].iter();
                entries.map(|entry| entry.content.len() as u64).sum()
            }
            _ => 0,
        };
        self.observed[observed].iter().flatten().map(bytes).sum()
    }
}

fn described(call: &Call) -> String {
    call.ops.first().map(FileOp::describe).unwrap_or_default()
}

/// Scores the answer of a call and adds it to `scores`.
fn score(
    asked: &ExamQuestion,
    answer: &str,
    scores: &mut BTreeMap<String, BTreeMap<String, Score>>,
) -> Result<(), String> {
    for (method, found) in asked.score(answer)? {
        let of_method = scores.entry(method.name()).or_default();
        for (name, (sum, of)) in found {
            // A comparison of runs goes by the kind of a score.
            let known = ScoreName::find(name).ok_or_else(|| format!("the score {name:?} has no kind"))?;
            let score = of_method.entry(known.name().to_owned()).or_default();
            score.sum += sum;
            score.of += of;
        }
    }
    Ok(())
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
