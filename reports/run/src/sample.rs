//! What came of one pass, one cell of an epoch, one epoch, one probe, one fault.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Calls, Latencies};

/// How a call or a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// As the model says.
    Ok,
    /// It cannot be measured here.
    Skipped,
    /// It ended well, but too late.
    Timeout,
    /// With an error number that the model does not expect.
    Errno,
    /// Successfully, with bytes, names or sizes that are not what they should be.
    WrongData,
    /// It had to be ended by force.
    Hang,
    /// The daemon died under it.
    Crash,
    /// The workspace could not be brought up or filled.
    Setup,
    /// The harness could not do its work, or could not prove what it measured.
    Infra,
}

impl Outcome {
    /// The name in samples and reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Skipped => "skipped",
            Outcome::Timeout => "timeout",
            Outcome::Errno => "errno",
            Outcome::WrongData => "wrong-data",
            Outcome::Hang => "hang",
            Outcome::Crash => "crash",
            Outcome::Setup => "setup",
            Outcome::Infra => "infra",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line of `samples.jsonl`: one pass of one arm through a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The round within the cell's epoch, from 0; passes of one round are paired.
    pub round: u32,
    /// Its place in the order of all passes, from 0.
    pub order: u64,
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// It only brings caches up and is counted: it is in no latency.
    #[serde(default, skip_serializing_if = "is_false")]
    pub warm_up: bool,
    /// How it ended: the worst of its calls, or why there were none.
    pub outcome: Outcome,
    /// The first thing that went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Timed calls by how they ended.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Service times by call kind, of calls that ended well.
    pub calls: BTreeMap<String, Calls>,
    /// Service times of all calls that ended well, summed: what the agent waited for files, in nanoseconds.
    pub makespan_ns: u64,
    /// What the caller waited for all timed calls, wrong answers and failures among them, in nanoseconds: no
    /// latency, but what a session took that was answered wrongly.
    pub waited_ns: u64,
    /// Bytes that reads and searches returned.
    pub bytes_read: u64,
    /// Processor time around the timed calls.
    pub cpu: Cpu,
    /// How busy the machine was.
    pub load: Load,
    /// What became of the lines that two hosts added to one file; only where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// What was found of planted evidence, by method and then by what is counted, outside the clock; only where a workload
    /// asks for it, and not in every pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, BTreeMap<String, Score>>,
    /// From the start of the run to the start of the pass, in milliseconds.
    pub started_ms: u64,
    /// How long it took with everything around it, in microseconds.
    pub took_us: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Sample {
    /// Whether it is in the latencies of its cell: timed, ended well, on a quiet machine unless `also_busy`.
    pub fn is_measured(&self, also_busy: bool) -> bool {
        !self.warm_up && self.outcome == Outcome::Ok && (also_busy || self.load.busy.is_none())
    }
}

/// An exact count over questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// What was counted: answers, or tokens.
    pub sum: u64,
    /// Over so many questions.
    pub of: u64,
}

/// How busy the machine was beside the pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// Which limit of the plan it was outside of, with the figure; `None` on a quiet machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
    /// Share of the pass in which a task waited for a processor (PSI), machine-wide, the pass's own among them.
    pub cpu: f32,
    /// Share of the pass in which a task waited for input or output (PSI).
    pub io: f32,
    /// Share of the pass in which a task waited for memory (PSI).
    pub memory: f32,
}

/// A line of `cells.jsonl`: one arm in one cell of one epoch, all its passes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEpoch {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// All measured service times, by call kind.
    pub latencies: BTreeMap<String, Latencies>,
    /// What was counted exactly, in the passes that are counted: the warm-up pass of a hot cell, else every pass.
    pub counted: Counted,
    /// The daemon's memory at the end.
    pub memory: Memory,
    /// From each start of the daemon to a usable mount, in nanoseconds; empty without a daemon.
    pub ready_ns: Vec<u64>,
    /// What the cell took with everything around it, in milliseconds.
    pub took_ms: u64,
    /// Of that, the arm's measured service times, in microseconds.
    pub timed_us: u64,
}

/// What the counted passes of an arm in a cell did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Passes.
    pub passes: u64,
    /// Timed calls in them.
    pub calls: u64,
    /// What the caller waited for these calls, in nanoseconds.
    pub waited_ns: u64,
    /// System calls that the timed calls made.
    pub system_calls: u64,
    /// Bytes that the timed calls had written to disk, by the client and the daemon, so far as they were written by the
    /// end of the pass.
    pub disk_written_bytes: u64,
    /// Bytes that the caller fetched from disk.
    pub disk_read_bytes: u64,
    /// What reached the daemon; `None` where nothing counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonCounters>,
}

impl Counted {
    /// Adds another pass.
    pub fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.calls += other.calls;
        self.waited_ns += other.waited_ns;
        self.system_calls += other.system_calls;
        self.disk_written_bytes += other.disk_written_bytes;
        self.disk_read_bytes += other.disk_read_bytes;
        match (&mut self.daemon, &other.daemon) {
            (Some(own), Some(more)) => own.add(more),
            (own @ None, Some(more)) => *own = Some(more.clone()),
            (_, None) => {}
        }
    }
}

/// A line of `epochs.jsonl`, written at the epoch's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The processor that client and daemons shared, if they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Why nothing of it counts: the clock jumped, the machine slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Cells in it.
    pub cells: u32,
    /// What it took, in milliseconds.
    pub took_ms: u64,
    /// Wall-clock of its hot cells, from the first mount to the last unmount, in milliseconds.
    pub hot_ms: u64,
    /// Of that, timed work, in milliseconds.
    pub hot_timed_ms: u64,
    /// Share of the processors' time that the hypervisor gave to other machines.
    pub steal: f64,
    /// Share of the epoch in which a task waited for a processor, for input or output, for memory (PSI).
    pub stalled: [f64; 3],
}

/// What became of the lines that two hosts added to the same files, once nothing changed any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    /// Lines whose adding had succeeded: the four below, summed.
    pub lines: u64,
    /// Of those, in a file on both hosts.
    pub on_both: u64,
    /// In a file on one host only.
    pub on_one: u64,
    /// In no file, but in a version that is kept of one.
    pub only_in_versions: u64,
    /// Nowhere.
    pub lost: u64,
    /// Files that are kept beside those that were written.
    pub conflict_copies: u64,
    /// Whether both hosts showed the same in the end.
    pub agree: bool,
}

/// What a daemon counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonCounters {
    /// Requests by FUSE opcode.
    pub fuse: BTreeMap<String, OpcodeCount>,
    /// The store's own counts.
    pub store: BTreeMap<String, u64>,
}

impl DaemonCounters {
    /// All requests that a caller waited for.
    pub fn requests(&self) -> u64 {
        self.waited().map(|(_, count)| count.count).sum()
    }

    /// Time from parsed request to written reply, in nanoseconds, summed.
    pub fn handling_ns(&self) -> u64 {
        self.waited().map(|(_, count)| count.handling_ns).sum()
    }

    /// Of that, time inside the store.
    pub fn store_ns(&self) -> u64 {
        self.waited().map(|(_, count)| count.store_ns).sum()
    }

    /// Requests of one opcode.
    pub fn count(&self, opcode: &str) -> u64 {
        self.fuse.get(opcode).map_or(0, |count| count.count)
    }

    /// Adds another stretch of counting.
    pub fn add(&mut self, other: &Self) {
        for (opcode, more) in &other.fuse {
            let count = self.fuse.entry(opcode.clone()).or_default();
            count.count += more.count;
            count.errors += more.errors;
            count.handling_ns += more.handling_ns;
            count.store_ns += more.store_ns;
        }
        for (name, more) in &other.store {
            *self.store.entry(name.clone()).or_default() += more;
        }
    }

    /// What was counted between `before` and this.
    pub fn since(&self, before: &Self) -> Self {
        let fuse = self.fuse.iter().map(|(opcode, now)| {
            let then = before.fuse.get(opcode).copied().unwrap_or_default();
            (opcode.clone(), now.since(&then))
        });
        let store = self.store.iter().map(|(name, now)| {
            let then = before.store.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        });
        Self {
            fuse: fuse.filter(|(_, count)| count.count > 0).collect(),
            store: store.collect(),
        }
    }

    /// The requests that a caller waited for, by opcode. No caller waits for a forget, and release is answered after
    /// `close` has returned.
    pub fn waited(&self) -> impl Iterator<Item = (&str, &OpcodeCount)> {
        let unwaited = ["forget", "release", "releasedir"];
        let counts = self.fuse.iter().map(|(name, count)| (name.as_str(), count));
        counts.filter(move |(name, _)| !unwaited.contains(name))
    }
}

/// Requests of one FUSE opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeCount {
    /// How many.
    pub count: u64,
    /// Of those, answered with an error number.
    pub errors: u64,
    /// Nanoseconds from parsed request to written reply, summed.
    pub handling_ns: u64,
    /// Of those, inside the store.
    pub store_ns: u64,
}

impl OpcodeCount {
    fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            errors: self.errors.saturating_sub(before.errors),
            handling_ns: self.handling_ns.saturating_sub(before.handling_ns),
            store_ns: self.store_ns.saturating_sub(before.store_ns),
        }
    }
}

/// Processor time in nanoseconds, around the timed calls: preparing and checking are outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// Of the thread that calls, kernel time included.
    pub client_ns: u64,
    /// Of the daemon, all threads.
    pub daemon_ns: u64,
}

/// The daemon's memory in bytes; 0 without a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Resident now.
    pub resident: u64,
    /// The most that was resident.
    pub peak: u64,
}

/// A line of `probes.jsonl`: something that works or does not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// What is probed: `tool`, `visible`.
    pub aspect: String,
    /// Which one, such as `grep`.
    pub name: String,
    /// The arm.
    pub arm: String,
    /// Whether it works.
    pub outcome: Outcome,
    /// What was seen.
    pub detail: String,
}

/// A line of `faults.jsonl`: something was broken on purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The scenario.
    pub scenario: String,
    /// The arm.
    pub arm: String,
    /// Whether it could be run.
    pub outcome: Outcome,
    /// What was seen, in a sentence.
    pub detail: String,
    /// Whether there was a daemon to kill.
    pub killed: bool,
    /// Whether the backend came back by the caller's next try, without anyone's help.
    pub recovered: bool,
    /// From the caller's next try to usable files, in milliseconds.
    pub recovery_ms: u64,
    /// Records that were acknowledged since the fault before this one.
    pub acknowledged: u64,
    /// Acknowledged records that were there before the fault, and gone afterwards.
    pub lost: u64,
    /// Calls that failed between the fault and the recovery.
    pub failed_calls: u64,
}
