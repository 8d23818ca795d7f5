//! The results of fault scenarios and of crash points, as a run directory keeps them.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Audit of the mount in use; no process of the backend was killed.
pub const IN_USE: &str = "in-use";
/// Audit after an orderly unmount and a new mount.
pub const ORDERLY_END: &str = "orderly-end";
/// Audit after the daemon was killed; without a daemon, after the agent's process was killed.
pub const KILLED_DAEMON: &str = "killed-daemon";
/// Audit after a power failure: data that had not reached the disk is gone.
pub const POWER_LOSS: &str = "power-loss";
/// Audit after the loss of the machine and its disks.
pub const MACHINE_LOSS: &str = "machine-loss";

/// A line of `fault-outcomes.jsonl`: one scenario, one backend, one seed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOutcome {
    /// The version of the run directory: [`super::RUN_DIRECTORY_VERSION`].
    pub v: u32,
    /// The scenario.
    #[serde(deserialize_with = "inputs::names::name")]
    pub scenario: String,
    /// Its group.
    #[serde(deserialize_with = "inputs::names::name")]
    pub group: String,
    /// The backend.
    #[serde(deserialize_with = "inputs::names::name")]
    pub backend: String,
    /// The seed.
    pub seed: u64,
    /// Whether the scenario ran.
    pub status: Status,
    /// Why the scenario did not run; `None` if it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The injected fault and the method, in a sentence.
    pub injected: String,
    /// Which parts were shortened, simulated or recorded; `None` if every part was real and complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The events that the agent saw, by first occurrence.
    pub seen: Vec<AgentEvent>,
    /// The longest call, in milliseconds.
    pub longest_call_ms: u64,
    /// The longest observed time of an agent's process in state `D` (uninterruptible sleep), in milliseconds.
    /// The harness polls every 50 ms while it waits, and every 5 ms while it ends a hung call.
    pub uninterruptible_ms: u64,
    /// The call that did not end within the limit; `None` if every call ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<Hang>,
    /// How the backend came back; `None` if it never went away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// Audits by loss: `in-use`, `orderly-end`, `killed-daemon`, `power-loss`, `machine-loss`.
    pub audits: BTreeMap<String, Audit>,
    /// Other findings by name: counts, times, words.
    pub facts: BTreeMap<String, Fact>,
    /// Behaviour that no backend may show.
    pub breaches: Vec<String>,
    /// How long the scenario took with preparation and audits, in milliseconds.
    pub took_ms: u64,
}

impl FaultOutcome {
    /// The outcome of a scenario that ran, and in which nothing has been seen yet.
    pub fn ran(scenario: &str, group: &str, backend: &str, seed: u64) -> Self {
        Self {
            v: super::RUN_DIRECTORY_VERSION,
            scenario: scenario.to_owned(),
            group: group.to_owned(),
            backend: backend.to_owned(),
            seed,
            ..Self::default()
        }
    }

    /// The outcome as one cell of the matrix: the worst event.
    pub fn cell(&self) -> CellKind {
        match self.status {
            Status::Unfit => return CellKind::Unfit,
            Status::Skipped => return CellKind::Skipped,
            Status::Infra => return CellKind::Infra,
            Status::Ran => {}
        }
        let verdict = self.audits.values().map(|audit| audit.verdict).max();
        if verdict == Some(AuditVerdict::Invalid)
            || self.seen.iter().any(|seen| seen.what == AgentEventKind::WrongBytes)
        {
            return CellKind::Lost;
        }
        if self.hang.is_some() {
            return CellKind::Hang;
        }
        match verdict {
            _ if self.needs_hand() => CellKind::Manual,
            _ if !self.breaches.is_empty() => CellKind::Breach,
            Some(AuditVerdict::Unknown) => CellKind::Unknown,
            _ if self.updates_lost() + self.torn_reads() > 0 => CellKind::Raced,
            _ if self.seen.iter().any(|seen| seen.what != AgentEventKind::Nothing) => CellKind::Error,
            _ => CellKind::Clean,
        }
    }

    /// Records that break the backend's promise, after any loss, and those that cannot be read after a recovery.
    pub fn broken(&self) -> u64 {
        let audits = self.audits.iter();
        let unreadable = |loss: &str, audit: &Audit| if Audit::is_after_recovery(loss) { audit.unreadable } else { 0 };
        audits.map(|(loss, audit)| audit.broken() + unreadable(loss, audit)).sum()
    }

    /// Whether only a manual step, or nothing, brought the backend back.
    pub fn needs_hand(&self) -> bool {
        let recovery = self.recovery.as_ref();
        recovery.is_some_and(|recovery| !recovery.is_unaided())
    }

    /// Calls that failed with an error number.
    pub fn errors(&self) -> u64 {
        let errors = self.seen.iter().filter(|seen| seen.errno.is_some());
        errors.map(|seen| seen.times).sum()
    }

    fn count(&self, name: &str) -> u64 {
        match self.facts.get(name) {
            Some(Fact::Count(count)) => *count,
            _ => 0,
        }
    }

    /// Lines that agents appended to a shared file, with success, and that are missing from it afterwards.
    pub fn updates_lost(&self) -> u64 {
        self.count("updates_lost")
    }

    /// Damaged lines that agents read from a shared file.
    pub fn torn_reads(&self) -> u64 {
        self.count("torn_reads")
    }
}

/// Whether a scenario ran on a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It ran.
    #[default]
    Ran,
    /// The scenario does not apply to the backend.
    Unfit,
    /// This machine or user cannot run it, for example without root.
    Skipped,
    /// The harness failed.
    Infra,
}

/// One kind of event that the agent saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentEvent {
    /// The call, such as `write`.
    pub call: String,
    /// The result of the call.
    pub what: AgentEventKind,
    /// The error number; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The text of the error, or a description of the defect.
    pub text: String,
    /// Number of occurrences.
    pub times: u64,
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AgentEventKind {
    /// The call succeeded with the expected result.
    Nothing,
    /// An error number.
    Errno,
    /// Success, with bytes that were never written to this place.
    WrongBytes,
    /// A failure without an error number, such as a write of no bytes.
    Unnumbered,
    /// Another agent's write became visible too late.
    Late,
    /// The backend refused to start.
    Refusal,
    /// No answer within the limit.
    Hang,
    /// The agent's process was killed, by the scenario or by a signal that the call raised.
    Killed,
}

/// A call that did not end within the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// The call.
    pub call: String,
    /// How long the harness waited for the call, in milliseconds.
    pub waited_ms: u64,
    /// The process that does not answer.
    pub culprit: Culprit,
    /// The kernel's state of the agent's process: `S` for interruptible sleep, `D` for uninterruptible.
    pub state: String,
    /// The means that ended the call: `SIGINT`, `SIGKILL`, `abort` (of the FUSE connection), or `nothing`.
    pub ended_by: String,
    /// How long ending the call took, in milliseconds.
    pub ended_after_ms: u64,
    /// How long the process was observed in state `D` while the call was being ended, in milliseconds.
    pub uninterruptible_ms: u64,
}

inputs::named! {
    /// The process that does not answer a hung call.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Culprit, words {
        /// The daemon has exited.
        DaemonDied = "daemon died",
        /// The daemon is stopped, or does not answer on its control socket either.
        DaemonStuck = "daemon stuck",
        /// The daemon answers on its control socket, but holds unanswered requests of the mount.
        /// It waits for another process, or for a lock of its own.
        DaemonWaits = "daemon waits",
        /// The daemon answers on its control socket and holds no request: the call waits in the kernel.
        KernelWaits = "kernel waits",
        /// The daemon answers on its control socket; whether it holds a request could not be read.
        Unclear = "daemon or kernel waits",
        /// The backend has no daemon.
        NoDaemon = "no daemon",
    }
}

/// How a backend came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// The means of its return.
    pub how: Return,
    /// From the end of the fault, or the start of the next attempt, to usable files, in milliseconds.
    pub ms: u64,
    /// The manual step, or why the backend did not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

impl Recovery {
    /// Whether the backend came back without a manual step.
    pub fn is_unaided(&self) -> bool {
        matches!(self.how, Return::ByItself | Return::NextMount)
    }
}

/// The means of a backend's return after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// The same mount worked again once the fault had ended.
    ByItself,
    /// The caller's next mount, without any other step.
    NextMount,
    /// A mount after a manual step.
    AfterStep,
    /// No attempt worked.
    Never,
}

/// The state of the records after a loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// The weakest call after which the backend promises to keep data; absent if it promises nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<String>,
    /// The checker's verdict.
    pub verdict: AuditVerdict,
    /// Why the verdict is unknown, or how the loss was simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Acknowledged changes, by the strongest call that returned.
    pub acknowledged: BTreeMap<String, u64>,
    /// Records in the expected state.
    pub present: u64,
    /// Missing records that were never acknowledged.
    pub absent: u64,
    /// Missing or old records, acknowledged only by a weaker call than the one that the promise requires.
    pub unpromised: u64,
    /// Missing records whose change was acknowledged as the promise requires.
    pub lost: u64,
    /// Records whose bytes match no state of theirs.
    pub torn: u64,
    /// Records with half of a change, where the backend promises nothing for a change that is not yet
    /// acknowledged.
    pub half: u64,
    /// Records in their state before an acknowledged change.
    pub stale: u64,
    /// Records that were never written, or that returned after an acknowledged removal.
    pub phantom: u64,
    /// Records that could not be read.
    pub unreadable: u64,
    /// The first few records that violate the promise.
    pub examples: Vec<String>,
}

impl Audit {
    /// An audit that could not be made.
    pub fn unknown(reason: impl ToString) -> Self {
        Self { verdict: AuditVerdict::Unknown, note: Some(reason.to_string()), ..Self::default() }
    }

    /// Looks at a record, whatever was found.
    pub fn looks(&self) -> u64 {
        let kept = self.present + self.absent + self.unpromised + self.half;
        kept + self.broken() + self.unreadable
    }

    /// Records that break the backend's promise.
    pub fn broken(&self) -> u64 {
        self.lost + self.torn + self.stale + self.phantom
    }

    /// Whether an audit of this loss is one after an orderly recovery, so that every acknowledged record must be readable.
    pub fn is_after_recovery(loss: &str) -> bool {
        [ORDERLY_END, KILLED_DAEMON, POWER_LOSS, MACHINE_LOSS].contains(&loss)
    }

    /// Adds another audit of the same loss; invalid beats unknown beats valid.
    pub fn add(&mut self, other: &Self) {
        self.verdict = self.verdict.max(other.verdict);
        for (class, count) in &other.acknowledged {
            *self.acknowledged.entry(class.clone()).or_default() += count;
        }
        self.promised = self.promised.take().or_else(|| other.promised.clone());
        self.note = self.note.take().or_else(|| other.note.clone());
        self.present += other.present;
        self.absent += other.absent;
        self.unpromised += other.unpromised;
        self.lost += other.lost;
        self.torn += other.torn;
        self.half += other.half;
        self.stale += other.stale;
        self.phantom += other.phantom;
        self.unreadable += other.unreadable;
        // At most three of each kind, so that the first kind does not hide the others.
        for example in &other.examples {
            let kind = |example: &str| {
                let mut words = example.split([' ', ':']);
                words.find(|word| ["lost", "torn", "stale", "phantom"].contains(word)).map(str::to_owned)
            };
            let kind_here = kind(example);
            let same = self.examples.iter().filter(|known| kind(known) == kind_here);
            if same.count() < 3 {
                self.examples.push(example.clone());
            }
        }
    }
}

inputs::named! {
    /// A checker's verdict, from best to worst.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum AuditVerdict, name {
        /// Everything promised was kept.
        #[default]
        Valid = "valid",
        /// The data could not be checked.
        Unknown = "unknown",
        /// A promise was broken.
        Invalid = "invalid",
    }
}

/// The value of a finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Fact {
    /// A count.
    Count(u64),
    /// A number.
    Number(f64),
    /// Words.
    Words(String),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Count(count) => count.fmt(f),
            Fact::Number(number) => write!(f, "{number:.3}"),
            Fact::Words(words) => words.fmt(f),
        }
    }
}

inputs::named! {
    /// The outcome of a scenario on a backend in the matrix, from best to worst.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum CellKind, words {
        /// The scenario does not apply to the backend.
        Unfit = "does not fit",
        /// This machine or user cannot run it.
        Skipped = "skipped",
        /// The agent saw nothing of the fault.
        Clean = "nothing seen",
        /// The agent saw an error, and everything promised was kept.
        Error = "error, data kept",
        /// Agents without mutual exclusion lost updates or read torn ones, which the backend does not promise to
        /// prevent.
        Raced = "agents' updates lost",
        /// The state of the data is unknown.
        Unknown = "data unknown",
        /// The harness failed.
        Infra = "not measured",
        /// The backend did something forbidden, without losing data.
        Breach = "breach",
        /// The backend came back only after a manual step, or not at all.
        Manual = "needs a hand",
        /// A call did not end within the limit.
        Hang = "hang",
        /// Promised data was lost, or wrong bytes were read.
        Lost = "lost or wrong",
    }
}

inputs::named! {
    /// How crash points are made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum CrashMethod {
        /// A process is killed, over a real mount.
        Kill = "kill",
        /// A disk below a real mount stops all writes: a simulated power cut.
        SimulatedDisk = "simulated-disk",
        /// Without a mount, pages and sectors of the store's files are as a seed says: a simulated power cut.
        SimulatedFiles = "simulated-files",
    }
}

/// A line of `crash-points.jsonl`: the crash points of one kind on one backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CrashPoints {
    /// The version of the format of run directories.
    pub v: u32,
    /// The backend.
    #[serde(deserialize_with = "inputs::names::name")]
    pub backend: String,
    /// The loss at each point: `killed-daemon`, `power-loss`, `machine-loss`.
    #[serde(deserialize_with = "inputs::names::name")]
    pub loss: String,
    /// Whether the points ran.
    pub status: Status,
    /// Why they did not run, or not to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How the points were made; absent if they did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<CrashMethod>,
    /// The method in words.
    pub how: String,
    /// The seed.
    pub seed: u64,
    /// Number of points.
    pub points: u64,
    /// Points at which the daemon held or had queued a request when it was killed. The agent's call then failed with
    /// `ECONNABORTED`. Null if this loss does not count them.
    pub in_flight: Option<u64>,
    /// Points with at least one change begun but not acknowledged; null if this loss does not count them.
    pub unacknowledged: Option<u64>,
    /// Points with at least one change acknowledged since the previous point; null if this loss does not count them.
    pub newly_acknowledged: Option<u64>,
    /// Points with a request in flight or a change newly acknowledged: only these could show a loss. Absent if this
    /// loss does not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exposed: Option<u64>,
    /// Points at which a promised record was lost, torn, stale, phantom or unreadable; null if this loss does not count
    /// them. A lost record counts once, not again at later points.
    pub broken: Option<u64>,
    /// Times that the daemon exited before it was to be killed.
    pub died_by_itself: u64,
    /// Points that could not be judged; `points` does not include them.
    pub unjudged: u64,
    /// Points after which all records together match no state that ever existed; null if this loss does not check it.
    pub mixtures: Option<u64>,
    /// The audits of all points, added up: a record checked after each of ten points counts ten times.
    pub audit: Audit,
    /// Recovery times in milliseconds: median and maximum.
    pub recovery_ms: (f64, f64),
    /// How long all points took, in milliseconds.
    pub took_ms: u64,
}

impl CrashPoints {
    /// A line for points that were not run, with the reason.
    pub fn not_run(backend: &str, loss: &str, status: Status, reason: impl ToString) -> Self {
        Self {
            v: super::RUN_DIRECTORY_VERSION,
            backend: backend.to_owned(),
            loss: loss.to_owned(),
            status,
            reason: Some(reason.to_string()),
            audit: Audit { verdict: AuditVerdict::Unknown, ..Audit::default() },
            ..Self::default()
        }
    }

    /// What no other series has. A joined run has several of an arm and a loss, each with a duration of its own. `None` for
    /// points that did not run.
    pub(crate) fn identity(&self) -> Option<(&str, &str, u64, u64)> {
        (self.status == Status::Ran).then_some((&*self.backend, &*self.loss, self.seed, self.took_ms))
    }

    /// What its type leaves open: points that ran have a method.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.status != Status::Ran {
            return None;
        }
        if self.method.is_none() {
            return Some("field `method`: missing, although the points ran");
        }
        let is_killed = self.method == Some(CrashMethod::Kill);
        if is_killed == (self.loss == POWER_LOSS) {
            return Some("field `method`: is not that of the loss");
        }
        // The agent is lost with the machine, and with it what it had asked for.
        let of_requests = [self.in_flight, self.unacknowledged, self.newly_acknowledged, self.exposed];
        if self.loss == MACHINE_LOSS && of_requests.iter().any(Option::is_some) {
            return Some("field `loss`: a lost machine has no count of requests, and a kill has");
        }
        let counts = [
            (self.in_flight, "field `in_flight`: above `points`"),
            (self.unacknowledged, "field `unacknowledged`: above `points`"),
            (self.newly_acknowledged, "field `newly_acknowledged`: above `points`"),
            (self.exposed, "field `exposed`: above `points`"),
            (self.broken, "field `broken`: above `points`"),
            (self.mixtures, "field `mixtures`: above `points`"),
        ];
        // A point whose records could not be read ends the series and is not counted in `points`.
        let most = self.points.saturating_add(self.unjudged).saturating_add(1);
        if let Some((_, problem)) = counts.into_iter().find(|(count, _)| count.is_some_and(|count| count > most)) {
            return Some(problem);
        }
        let changes = self.audit.acknowledged.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
        if self.newly_acknowledged.is_some_and(|points| points > changes.saturating_add(1)) {
            return Some("field `newly_acknowledged`: above the acknowledged changes of `audit`");
        }
        let is_known = self.audit.verdict != AuditVerdict::Unknown;
        (is_known && self.points > self.audit.looks()).then_some("field `points`: above the records of `audit`")
    }

    /// Records that were not kept: those that break the promise, and those that could not be read after the recovery. At
    /// least one if the records together match no state, or if the audit found a broken promise.
    pub fn records_not_kept(&self) -> u64 {
        let records = self.audit.broken() + self.audit.unreadable;
        let least = u64::from(self.audit.verdict == AuditVerdict::Invalid);
        records.max(self.mixtures.unwrap_or(0)).max(least)
    }

    /// Points at which a record was not kept, or before which the daemon exited by itself; at most all of them.
    pub fn failed_points(&self) -> u64 {
        // Without a count of points, each record may be of another one. A count of none beside such records is of a
        // version that counted no unreadable record.
        let counted = self.broken.filter(|points| *points > 0).map(|points| points.max(self.mixtures.unwrap_or(0)));
        let failed = counted.unwrap_or_else(|| self.records_not_kept());
        (failed + self.died_by_itself).min(self.points.max(1))
    }

    /// Whether the records could not be checked, so that the points show neither a loss nor that nothing was lost.
    pub fn is_unknown(&self) -> bool {
        self.audit.verdict == AuditVerdict::Unknown && self.failed_points() == 0
    }

    /// Points that could show a loss: a request was in flight, or a change newly acknowledged. All points where neither is
    /// counted. Of a series that counts both and not together, at least the larger number.
    pub fn exposed_points(&self) -> u64 {
        let least = self.in_flight.max(self.newly_acknowledged);
        self.exposed.or(least).unwrap_or(self.points).max(self.failed_points())
    }

    /// Whether the data was kept as promised, or the points do not apply. False if the data is unknown.
    pub fn is_passed(&self) -> bool {
        match self.status {
            Status::Unfit | Status::Skipped => true,
            Status::Infra => false,
            Status::Ran => self.audit.verdict == AuditVerdict::Valid && self.died_by_itself == 0,
        }
    }
}
