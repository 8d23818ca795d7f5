//! The results of one pass, one cell in an epoch, one epoch, one probe and one fault.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Calls, Latencies};

inputs::named! {
    /// How a call or a pass ended.
    #[derive(
        Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
    )]
    #[serde(rename_all = "kebab-case")]
    pub enum Outcome, name {
        /// The result matches the reference model.
        #[default]
        Ok = "ok",
        /// It cannot be measured on this machine.
        Skipped = "skipped",
        /// It succeeded, but too late.
        Timeout = "timeout",
        /// It failed with an error number that the reference model does not expect.
        Errno = "errno",
        /// It succeeded, but returned wrong bytes, names or sizes.
        WrongData = "wrong-data",
        /// The watchdog had to abort it.
        Hang = "hang",
        /// The daemon died during it.
        Crash = "crash",
        /// The workspace could not be mounted or filled.
        Setup = "setup",
        /// The harness failed, or could not prove what it measured.
        Infra = "infra",
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A line of `samples.jsonl`: one pass of one arm through a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The version of the run directory: [`super::RUN_DIRECTORY_VERSION`].
    pub v: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The round within the cell's epoch, from 0; passes of one round are paired.
    pub round: u32,
    /// The position of the pass among all passes, from 0.
    pub order: u64,
    /// The arm.
    #[serde(deserialize_with = "inputs::names::name")]
    pub arm: String,
    /// The workload.
    #[serde(deserialize_with = "inputs::names::name")]
    pub workload: String,
    /// The cache state, with the placement: see [`super::Placement::state`].
    #[serde(deserialize_with = "inputs::names::name")]
    pub state: String,
    /// The pass fills the caches; it is in exact counts, but in no latency.
    #[serde(default, skip_serializing_if = "is_false")]
    pub warm_up: bool,
    /// The worst outcome of its calls, or why there were none.
    pub outcome: Outcome,
    /// The first failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Timed calls by outcome.
    pub outcomes: BTreeMap<Outcome, u64>,
    /// Service times of successful calls, by kind.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub calls: BTreeMap<String, Calls>,
    /// The sum of the service times of all successful calls, in nanoseconds: the agent's wait for files.
    pub makespan_ns: u64,
    /// The caller's wait for all timed calls, wrong and failed ones included, in nanoseconds.
    /// It is the duration of a session with wrong answers, and not a latency.
    pub waited_ns: u64,
    /// Bytes that reads and searches returned.
    pub bytes_read: u64,
    /// Processor time around the timed calls.
    pub cpu: Cpu,
    /// How busy the machine was.
    pub load: Load,
    /// The lines that two hosts appended to one file; only in workloads that do so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<SettledLines>,
    /// How much planted evidence was found, by search method and then by counted unit, outside the clock.
    /// Only in workloads that ask for it, and not in every pass.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "inputs::names::by_name")]
    pub scores: BTreeMap<String, BTreeMap<String, Score>>,
    /// From the start of the run to the start of the pass, in milliseconds.
    pub started_ms: u64,
    /// How long the pass took with preparation and checks, in microseconds.
    pub took_us: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Sample {
    /// Whether the pass is in the latencies of its cell: timed, successful, and on a quiet machine unless
    /// `also_busy`.
    pub fn is_measured(&self, also_busy: bool) -> bool {
        !self.warm_up && self.outcome == Outcome::Ok && (also_busy || self.load.busy.is_none())
    }

    /// What its type leaves open: a cell that cannot be measured has no pass, and a question has one answer.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.outcome == Outcome::Skipped {
            return Some("field `outcome`: skipped, although a cell that is skipped has no pass");
        }
        if self.settled.is_some_and(|settled| !settled.adds_up()) {
            return Some("field `settled`: `lines` is not the sum of `on_both`, `only_in_copies`, `on_one` and `lost`");
        }
        let has_more = |(name, score): (&String, &Score)| {
            let kind = ScoreName::find(name).map(ScoreName::kind);
            matches!(kind, Some(ScoreKind::Found | ScoreKind::Wrong)) && score.sum > score.of
        };
        let more = self.scores.values().flatten().any(has_more);
        more.then_some("field `scores`: more answers than questions")
    }
}

/// An exact count over questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The number of answers, or of tokens.
    pub sum: u64,
    /// The number of questions.
    pub of: u64,
}

impl Score {
    /// The count a question; `None` without questions.
    pub fn mean(self) -> Option<f64> {
        (self.of > 0).then(|| self.sum as f64 / self.of as f64)
    }
}

inputs::named! {
    /// The names of scores in records.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum ScoreName {
        /// Questions whose whole answer was within the budget of tokens.
        EvidenceInBudget = "evidence-in-budget",
        /// Answers in the first place.
        FoundAt1 = "found-at-1",
        /// Answers among the first 5.
        FoundAt5 = "found-at-5",
        /// Answers among the first 10.
        FoundAt10 = "found-at-10",
        /// Answers to questions in a note's own words.
        OwnWords = "own-words",
        /// Answers to questions in other words.
        OtherWords = "other-words",
        /// Outdated notes before current ones.
        OldFirst = "old-first",
        /// Outdated answers of a search.
        Stale = "stale",
        /// Tokens of answers to questions that have one.
        Tokens = "tokens",
        /// Tokens of answers to questions that have none.
        TokensUnanswerable = "tokens-unanswerable",
        /// Questions without an answer of which the search said so.
        Admitted = "admitted",
        /// Tokens of the definitions of tools.
        DefinitionTokens = "definition-tokens",
        /// Tokens of calls.
        CallTokens = "call-tokens",
        /// Tokens of results.
        ResultTokens = "result-tokens",
        /// Calls of tools.
        Calls = "calls",
        /// Answers of a task that were right before the last commit.
        StaleAnswers = "stale-answers",
        /// Microseconds until a task's reader sees a commit.
        LagUs = "lag-us",
        /// Copies that a task's agent works on, made on a schedule of a simulated clock.
        Copies = "copies",
    }
}

/// The kind of thing that a score counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreKind {
    /// Right answers.
    Found,
    /// Wrong answers.
    Wrong,
    /// Tokens and calls, of which fewer are better.
    Cost,
    /// Time.
    Delay,
    /// A circumstance, which is neither good nor bad.
    Circumstance,
}

impl ScoreName {
    /// The name in a record; `None` for one of another version.
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|score| score.name() == name)
    }

    /// The kind of thing that it counts.
    pub fn kind(self) -> ScoreKind {
        match self {
            ScoreName::EvidenceInBudget
            | ScoreName::FoundAt1
            | ScoreName::FoundAt5
            | ScoreName::FoundAt10
            | ScoreName::OwnWords
            | ScoreName::OtherWords
            | ScoreName::Admitted => ScoreKind::Found,
            ScoreName::OldFirst | ScoreName::Stale | ScoreName::StaleAnswers => ScoreKind::Wrong,
            ScoreName::Tokens
            | ScoreName::TokensUnanswerable
            | ScoreName::DefinitionTokens
            | ScoreName::CallTokens
            | ScoreName::ResultTokens
            | ScoreName::Calls => ScoreKind::Cost,
            ScoreName::LagUs => ScoreKind::Delay,
            ScoreName::Copies => ScoreKind::Circumstance,
        }
    }
}

/// How busy the machine was during the pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The limit of the plan that was exceeded, with the figure; `None` on a quiet machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<String>,
    /// Share of the pass in which any task of the machine waited for a processor (PSI), the pass's own tasks
    /// included.
    pub cpu: f32,
    /// Share of the pass in which a task waited for input or output (PSI).
    pub io: f32,
    /// Share of the pass in which a task waited for memory (PSI).
    pub memory: f32,
}

/// A line of `cells.jsonl`: all passes of one arm in one cell of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellEpoch {
    /// The version of the run directory: [`super::RUN_DIRECTORY_VERSION`].
    pub v: u32,
    /// The epoch, from 0.
    pub epoch: u32,
    /// The arm.
    #[serde(deserialize_with = "inputs::names::name")]
    pub arm: String,
    /// The workload.
    #[serde(deserialize_with = "inputs::names::name")]
    pub workload: String,
    /// The cache state, with the placement: see [`super::Placement::state`].
    #[serde(deserialize_with = "inputs::names::name")]
    pub state: String,
    /// All measured service times, by kind of call.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub latencies: BTreeMap<String, Latencies>,
    /// Exact counts of the counted passes: the warm-up pass of a hot cell, else every pass.
    pub counted: ExactCounts,
    /// The daemon's memory at the end of the cell.
    pub memory: Memory,
    /// Bytes that the arm's files occupy on the local disk at the end of the cell: blocks, not lengths. What is in a
    /// bucket is not counted. `None` if the workspace was not closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// From each start of the daemon to a usable mount, in nanoseconds; empty without a daemon.
    pub ready_ns: Vec<u64>,
    /// How long the cell took with preparation and checks, in milliseconds.
    pub took_ms: u64,
    /// The sum of the arm's measured service times, in microseconds.
    pub timed_us: u64,
}

/// Exact counts of an arm's counted passes in a cell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExactCounts {
    /// Passes.
    pub passes: u64,
    /// Timed calls in them.
    pub calls: u64,
    /// The caller's wait for these calls, in nanoseconds.
    pub waited_ns: u64,
    /// System calls made by the timed calls.
    pub system_calls: u64,
    /// Bytes that client and daemon wrote to disk for the timed calls, by the end of the pass.
    pub disk_written_bytes: u64,
    /// Bytes that the caller read from disk.
    pub disk_read_bytes: u64,
    /// Requests that reached the daemon; `None` if the backend counts none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon: Option<DaemonCounters>,
}

impl ExactCounts {
    /// Adds another pass.
    pub fn add(&mut self, other: &Self) {
        self.passes += other.passes;
        self.calls += other.calls;
        self.waited_ns += other.waited_ns;
        self.system_calls += other.system_calls;
        self.disk_written_bytes += other.disk_written_bytes;
        self.disk_read_bytes += other.disk_read_bytes;
        match (&mut self.daemon, &other.daemon) {
            (Some(daemon), Some(more)) => daemon.add(more),
            (daemon @ None, Some(more)) => *daemon = Some(more.clone()),
            (_, None) => {}
        }
    }
}

/// The name that the load of `ctxbench reproduce --load` gives its process. Among [`Epoch::neighbours`], it was asked for.
pub const LOAD_PROCESS: &str = "ctxbench-load";

/// A line of `epochs.jsonl`, written at the end of the epoch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Epoch {
    /// The version of the run directory: [`super::RUN_DIRECTORY_VERSION`].
    pub v: u32,
    /// The epoch, from 0. The numbers of all sections are one sequence.
    pub epoch: u32,
    /// The section that it is an epoch of.
    #[serde(deserialize_with = "inputs::names::name")]
    pub section: String,
    /// The processor that client and daemons shared; `None` with free placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Why the epoch is void: the clock jumped, or the machine slept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
    /// Number of cells.
    pub cells: u32,
    /// How long the epoch took, in milliseconds.
    pub took_ms: u64,
    /// Wall-clock time of the hot cells, from the first mount to the last unmount, in milliseconds; 0 in a section of counts.
    pub hot_ms: u64,
    /// The timed part of `hot_ms`, in milliseconds.
    pub hot_timed_ms: u64,
    /// Share of processor time that the hypervisor gave to other machines.
    pub steal: f64,
    /// Share of the epoch in which a task waited for a processor, for input or output, for memory (PSI).
    pub stalled: [f64; 3],
    /// Processor time of other processes than the harness, its daemons and servers, in seconds, by the names that they
    /// give themselves. A process that ended counts for its parent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<String, f64>,
}

/// The lines that two hosts appended to the same files, after the last change had settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettledLines {
    /// Lines appended with success: the sum of the four counts below.
    pub lines: u64,
    /// Lines in the shared file on both hosts.
    pub on_both: u64,
    /// Lines on both hosts, but at least on one of them in a conflict copy only.
    pub only_in_copies: u64,
    /// Lines in a file on one host only.
    pub on_one: u64,
    /// Lines in no file.
    pub lost: u64,
    /// Conflict copies, kept in addition to the files that were written.
    pub conflict_copies: u64,
    /// Whether both hosts showed the same files in the end.
    pub agree: bool,
}

impl SettledLines {
    /// Whether each line is in one of the four counts.
    fn adds_up(self) -> bool {
        let parts = [self.on_both, self.only_in_copies, self.on_one, self.lost];
        parts.into_iter().try_fold(0_u64, u64::checked_add) == Some(self.lines)
    }

    /// Whether the hosts still had different files in the end, so that the counts can change. A line on one host only says
    /// so, too, whatever `agree` says.
    pub fn is_apart(&self) -> bool {
        !self.agree || self.on_one > 0
    }
}

/// Counters of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonCounters {
    /// Requests by FUSE opcode.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub fuse: BTreeMap<String, OpcodeRecord>,
    /// The store's own counters.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub store: BTreeMap<String, u64>,
}

impl DaemonCounters {
    /// The number of requests that a caller waited for.
    pub fn requests(&self) -> u64 {
        self.waited().map(|(_, count)| count.count).sum()
    }

    /// Time from parsed request to written reply, in nanoseconds, summed.
    pub fn handling_ns(&self) -> u64 {
        self.waited().map(|(_, count)| count.handling_ns).sum()
    }

    /// The part of `handling_ns` inside the store.
    pub fn store_ns(&self) -> u64 {
        self.waited().map(|(_, count)| count.store_ns).sum()
    }

    /// Requests of one opcode.
    pub fn count(&self, opcode: &str) -> u64 {
        self.fuse.get(opcode).map_or(0, |count| count.count)
    }

    /// Adds the counters of another period.
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

    /// The counters of the period from `before` to this.
    pub fn since(&self, before: &Self) -> Self {
        let fuse = self.fuse.iter().map(|(opcode, now)| {
            let then = before.fuse.get(opcode).copied().unwrap_or_default();
            (opcode.clone(), now.since(&then))
        });
        let store = self.store.iter().map(|(name, now)| {
            let then = before.store.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        });
        Self { fuse: fuse.filter(|(_, count)| count.count > 0).collect(), store: store.collect() }
    }

    /// The requests that a caller waited for, by opcode.
    /// No caller waits for a forget, nor for a release, which is answered after `close` has returned.
    pub fn waited(&self) -> impl Iterator<Item = (&str, &OpcodeRecord)> {
        let unwaited = ["forget", "release", "releasedir"];
        let counts = self.fuse.iter().map(|(name, count)| (name.as_str(), count));
        counts.filter(move |(name, _)| !unwaited.contains(name))
    }
}

/// Requests of one FUSE opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpcodeRecord {
    /// Number of requests.
    pub count: u64,
    /// Requests answered with an error number.
    pub errors: u64,
    /// Nanoseconds from parsed request to written reply, summed.
    pub handling_ns: u64,
    /// The part of `handling_ns` inside the store.
    pub store_ns: u64,
}

impl OpcodeRecord {
    fn since(&self, before: &Self) -> Self {
        Self {
            count: self.count.saturating_sub(before.count),
            errors: self.errors.saturating_sub(before.errors),
            handling_ns: self.handling_ns.saturating_sub(before.handling_ns),
            store_ns: self.store_ns.saturating_sub(before.store_ns),
        }
    }
}

/// Processor time in nanoseconds during the timed calls, without preparation and checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cpu {
    /// The calling thread, kernel time included.
    pub client_ns: u64,
    /// All threads of the daemon.
    pub daemon_ns: u64,
}

/// The daemon's memory in bytes; 0 without a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// Resident at the time of reading.
    pub resident: u64,
    /// The peak of resident memory.
    pub peak: u64,
}

/// A line of `probes.jsonl`: the result of one probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// The version of the format of run directories.
    pub v: u32,
    /// The probed aspect: `property`, `tool`, `visible`, or `conformance`. What is not offered or was not tried is `skipped`.
    #[serde(deserialize_with = "inputs::names::name")]
    pub aspect: String,
    /// The probe's name within the aspect, such as `grep`.
    pub name: String,
    /// The arm.
    #[serde(deserialize_with = "inputs::names::name")]
    pub arm: String,
    /// Whether the probe passed.
    pub outcome: Outcome,
    /// Why a probe with the outcome `skipped` was not tried; absent for other outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkipReason>,
    /// The probe's finding.
    pub detail: String,
}

inputs::named! {
    /// Why a probe is `skipped`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SkipReason {
        /// The backend does not name the property.
        NotOffered = "not-offered",
        /// It was not tried here, so that it may work or not.
        NotTried = "not-tried",
    }
}

impl Probe {
    /// A line. What is `skipped` was not tried.
    pub fn new(aspect: &str, name: &str, arm: &str, outcome: Outcome, detail: &str) -> Self {
        Self {
            v: super::RUN_DIRECTORY_VERSION,
            aspect: aspect.to_owned(),
            name: name.to_owned(),
            arm: arm.to_owned(),
            outcome,
            skipped: (outcome == Outcome::Skipped).then_some(SkipReason::NotTried),
            detail: detail.to_owned(),
        }
    }

    /// A line about what the backend does not offer.
    pub fn not_offered(aspect: &str, name: &str, arm: &str) -> Self {
        let skipped = Some(SkipReason::NotOffered);
        Self { skipped, ..Self::new(aspect, name, arm, Outcome::Skipped, "not offered") }
    }

    /// What its type leaves open: only a probe that is `skipped` has a reason for it.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match (self.outcome == Outcome::Skipped, self.skipped.is_some()) {
            (true, false) => Some("field `skipped`: missing, although the outcome is skipped"),
            (false, true) => Some("field `skipped`: a reason, although the outcome is not skipped"),
            _ => None,
        }
    }
}

/// A line of `faults.jsonl`: one injected fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The version of the format of run directories.
    pub v: u32,
    /// The scenario.
    #[serde(deserialize_with = "inputs::names::name")]
    pub scenario: String,
    /// The arm.
    #[serde(deserialize_with = "inputs::names::name")]
    pub arm: String,
    /// Its position among all faults of the file, from 0: a copy of a line has that of its original.
    pub order: u64,
    /// Whether the fault could be injected.
    pub outcome: Outcome,
    /// The finding, in a sentence.
    pub detail: String,
    /// Whether there was a daemon to kill.
    pub killed: bool,
    /// Whether the backend came back by the caller's next attempt, without a manual step.
    pub recovered: bool,
    /// From the caller's next attempt to usable files, in milliseconds.
    pub recovery_ms: u64,
    /// Records acknowledged since the previous fault.
    pub acknowledged: u64,
    /// Acknowledged records that existed before the fault and are missing after it.
    pub lost: u64,
    /// Calls that failed between the fault and the recovery.
    pub failed_calls: u64,
}
