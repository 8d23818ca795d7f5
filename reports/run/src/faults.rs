//! What came of a fault scenario on a backend, and of a stretch of crash points.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Nothing of the backend's was killed: what a living mount shows.
pub const IN_USE: &str = "in-use";
/// After the mount was ended in order, and made again.
pub const ORDERLY_END: &str = "orderly-end";
/// The daemon, or where there is none the program, was killed.
pub const KILLED_DAEMON: &str = "killed-daemon";
/// What the machine had not written is gone.
pub const POWER_LOSS: &str = "power-loss";
/// The machine and its disks are gone.
pub const MACHINE_LOSS: &str = "machine-loss";

/// A line of `fault-outcomes.jsonl`: one scenario, one backend, one seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOutcome {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The scenario.
    pub scenario: String,
    /// Its group.
    pub group: String,
    /// The backend.
    pub backend: String,
    /// The seed.
    pub seed: u64,
    /// Whether it was run.
    pub status: Status,
    /// Why it was not, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was broken, as it was done, in a sentence.
    pub injected: String,
    /// What of it was shortened, simulated or recorded; `None` where all of it was real and whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What the agent saw, in the order in which it was first seen.
    pub seen: Vec<Seen>,
    /// The longest call, in milliseconds.
    pub longest_call_ms: u64,
    /// The longest that an agent's process was seen in state `D`, in which no signal but a deadly one ends it, or none at all, in milliseconds: looked at
    /// every 50 ms while it is waited for, every 5 ms while a call that hangs is being ended.
    #[serde(default)]
    pub uninterruptible_ms: u64,
    /// The call that did not end within the limit, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang: Option<Hang>,
    /// How it came back; `None` where nothing had to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
    /// What became of the data, by what was lost: `killed-daemon`, `power-loss`, `machine-loss`.
    pub audits: BTreeMap<String, Audit>,
    /// What else was found, by name: counts, times, words.
    pub facts: BTreeMap<String, Fact>,
    /// What a backend must not do, and did.
    pub breaches: Vec<String>,
    /// How long it took with everything around it, in milliseconds.
    pub took_ms: u64,
}

impl FaultOutcome {
    /// What it comes to, for a matrix: the worst of what happened.
    pub fn cell(&self) -> CellKind {
        match self.status {
            Status::Unfit => return CellKind::Unfit,
            Status::Skipped => return CellKind::Skipped,
            Status::Infra => return CellKind::Infra,
            Status::Ran => {}
        }
        let verdict = self.audits.values().map(|audit| audit.verdict).max();
        if verdict == Some(Verdict::Invalid)
            || self
                .seen
                .iter()
                .any(|seen| seen.what == SeenKind::WrongBytes)
        {
            return CellKind::Lost;
        }
        if self.hang.is_some() {
            return CellKind::Hang;
        }
        let comes_back = self
            .recovery
            .as_ref()
            .is_none_or(|recovery| recovery.is_unaided());
        match verdict {
            _ if !comes_back => CellKind::Manual,
            _ if !self.breaches.is_empty() => CellKind::Breach,
            Some(Verdict::Unknown) => CellKind::Unknown,
            _ if self.updates_lost() + self.torn_reads() > 0 => CellKind::Raced,
            _ if self.seen.iter().any(|seen| seen.what != SeenKind::Nothing) => CellKind::Error,
            _ => CellKind::Clean,
        }
    }

    fn count(&self, name: &str) -> u64 {
        match self.facts.get(name) {
            Some(Fact::Count(count)) => *count,
            _ => 0,
        }
    }

    /// Lines that agents added to a shared file, whose calls all returned, and that are not in it afterwards.
    pub fn updates_lost(&self) -> u64 {
        self.count("updates_lost")
    }

    /// Damaged lines that agents read of a shared file.
    pub fn torn_reads(&self) -> u64 {
        self.count("torn_reads")
    }
}

/// Whether a scenario was run on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It was.
    Ran,
    /// It makes no sense for the backend.
    Unfit,
    /// It cannot be done here, such as without root.
    Skipped,
    /// The harness could not do its work.
    Infra,
}

/// Something that the agent saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// The call, such as `write`.
    pub call: String,
    /// What came of it.
    pub what: SeenKind,
    /// The error number, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// The text of the error, or what was wrong.
    pub text: String,
    /// How often.
    pub times: u64,
}

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SeenKind {
    /// Nothing out of the ordinary.
    Nothing,
    /// An error number.
    Errno,
    /// Success, with bytes that were never written there.
    WrongBytes,
    /// A failure without an error number, such as a write of no bytes.
    Unnumbered,
    /// What another had written was not seen in time.
    Late,
    /// A refusal to start, with its text.
    Refusal,
    /// No answer within the limit.
    Hang,
    /// The agent's process was killed: by the scenario, or by a signal that the call gave it.
    Killed,
}

/// A call that did not end within the limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hang {
    /// The call.
    pub call: String,
    /// How long it was waited for, in milliseconds.
    pub waited_ms: u64,
    /// Whose fault it was.
    pub culprit: Culprit,
    /// The state of the agent's process as the kernel gives it: `S` sleeps, `D` cannot be interrupted.
    pub state: String,
    /// What ended it: `SIGINT`, `SIGKILL`, `abort` (of the FUSE connection), or `nothing`.
    pub ended_by: String,
    /// How long that took, in milliseconds.
    pub ended_after_ms: u64,
    /// For how much of that the process was seen in state `D`, in milliseconds.
    #[serde(default)]
    pub uninterruptible_ms: u64,
}

/// What does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Culprit {
    /// The daemon is no more.
    DaemonDied,
    /// The daemon is there, and does not answer on its control socket either, or is stopped.
    DaemonStuck,
    /// The daemon answers on its control socket, and has requests of the mount that it has not answered: it waits for
    /// somebody else, or for a lock of its own.
    DaemonWaits,
    /// The daemon answers on its control socket, and no request is with it: the call waits in the kernel.
    KernelWaits,
    /// The daemon answers on its control socket; whether a request is with it could not be looked at.
    Unclear,
    /// There is no daemon.
    NoDaemon,
}

impl Culprit {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Culprit::DaemonDied => "daemon died",
            Culprit::DaemonStuck => "daemon stuck",
            Culprit::DaemonWaits => "daemon waits",
            Culprit::KernelWaits => "kernel waits",
            Culprit::Unclear => "daemon or kernel waits",
            Culprit::NoDaemon => "no daemon",
        }
    }
}

/// How a backend came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recovery {
    /// What brought it back.
    pub how: Return,
    /// From the end of the fault, or the start of the next try, to usable files, in milliseconds.
    pub ms: u64,
    /// What had to be done by hand, or why it did not come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

impl Recovery {
    /// Whether it came back without help.
    pub fn is_unaided(&self) -> bool {
        matches!(self.how, Return::ByItself | Return::NextMount)
    }
}

/// What brought a backend back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Return {
    /// The mount went on as soon as the fault had ended.
    ByItself,
    /// The caller's next mount, without a step more.
    NextMount,
    /// A mount after a step by hand.
    AfterStep,
    /// Nothing that was tried.
    Never,
}

/// What became of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// The weakest call after which the backend promises to keep data; `None` where it promises nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<String>,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why it is not known, or how the loss was simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Changes that were acknowledged, by the strongest call that returned.
    pub acknowledged: BTreeMap<String, u64>,
    /// Records that are as they should be.
    pub present: u64,
    /// Records that are not there, and never were acknowledged.
    pub absent: u64,
    /// Records that were acknowledged, but by less than the backend promises to keep, and are gone or old.
    pub unpromised: u64,
    /// Records that were acknowledged, and are gone.
    pub lost: u64,
    /// Records whose bytes are no state that they ever had.
    pub torn: u64,
    /// Records of which half of a change is there that was not acknowledged by what is promised, where nothing is promised
    /// of such a change either.
    #[serde(default)]
    pub half: u64,
    /// Records that are as they were before an acknowledged change.
    pub stale: u64,
    /// Records that were never written, or that are back although their removal was acknowledged.
    pub phantom: u64,
    /// Records that could not be read.
    pub unreadable: u64,
    /// The first of those that are not as they should be.
    pub examples: Vec<String>,
}

impl Audit {
    /// One that could not be made.
    pub fn unknown(reason: impl ToString) -> Self {
        Self {
            verdict: Verdict::Unknown,
            note: Some(reason.to_string()),
            ..Self::default()
        }
    }

    /// Adds what another stretch of the same came to; invalid beats unknown beats valid.
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
        // Of each kind a few: many of the first would hide the others.
        for example in &other.examples {
            let kind = |example: &str| {
                let mut words = example.split([' ', ':']);
                words
                    .find(|word| ["lost", "torn", "stale", "phantom"].contains(word))
                    .map(str::to_owned)
            };
            let own = kind(example);
            let same = self.examples.iter().filter(|known| kind(known) == own);
            if same.count() < 3 {
                self.examples.push(example.clone());
            }
        }
    }
}

/// What a checker says: the later, the worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything that was promised is there.
    #[default]
    Valid,
    /// It could not be looked at.
    Unknown,
    /// Something that was promised is not as it should be.
    Invalid,
}

impl Verdict {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Unknown => "unknown",
            Verdict::Invalid => "invalid",
        }
    }
}

/// Something that was found.
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

/// What a scenario comes to on a backend, for a picture: the later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CellKind {
    /// It makes no sense there.
    Unfit,
    /// It cannot be done here.
    Skipped,
    /// Nothing was seen of it.
    Clean,
    /// The agent saw an error, and everything promised was kept.
    Error,
    /// Agents that did not exclude one another lost updates, or read half of one: no promise of the backend's.
    Raced,
    /// What became of the data is not known.
    Unknown,
    /// The harness failed.
    Infra,
    /// Something that must not be, but no data was lost.
    Breach,
    /// It came back only by hand, or not at all.
    Manual,
    /// A call did not end within the limit.
    Hang,
    /// Promised data was lost, or wrong bytes were read.
    Lost,
}

impl CellKind {
    /// In words, for a legend.
    pub fn words(self) -> &'static str {
        match self {
            CellKind::Unfit => "does not fit",
            CellKind::Skipped => "skipped",
            CellKind::Clean => "nothing seen",
            CellKind::Raced => "agents' updates lost",
            CellKind::Error => "error, data kept",
            CellKind::Unknown => "data unknown",
            CellKind::Infra => "not measured",
            CellKind::Breach => "breach",
            CellKind::Manual => "needs a hand",
            CellKind::Hang => "hang",
            CellKind::Lost => "lost or wrong",
        }
    }
}

/// A line of `crash-points.jsonl`: so many crash points of one kind on one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashPoints {
    /// [`super::SCHEMA_VERSION`].
    pub v: u32,
    /// The backend.
    pub backend: String,
    /// What was lost at each: `killed-daemon`, `power-loss`, `machine-loss`.
    pub loss: String,
    /// Whether it was looked at.
    #[serde(default = "ran")]
    pub status: Status,
    /// Why it was not, or not to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How it was done, and what of it is simulated.
    pub how: String,
    /// The seed.
    pub seed: u64,
    /// How many points.
    pub points: u64,
    /// Of those, points at which a request was with the daemon, or queued for it, when it was killed: the agent's call
    /// failed with `ECONNABORTED`. `None` where that is not looked at.
    #[serde(default)]
    pub in_flight: Option<u64>,
    /// Points at which at least one change had begun and was not acknowledged; `None` where that is not looked at.
    #[serde(default)]
    pub unacknowledged: Option<u64>,
    /// Points before which at least one change was acknowledged since the last; `None` where that is not looked at.
    #[serde(default)]
    pub newly_acknowledged: Option<u64>,
    /// Points at which something promised was lost, torn, stale or phantom; `None` where points are not told apart. What was
    /// counted once is not counted at later points.
    #[serde(default)]
    pub broken: Option<u64>,
    /// Times that the daemon had ended by itself before it was to be killed.
    #[serde(default)]
    pub died_by_itself: u64,
    /// Points that could not be judged, which are not among the points.
    pub unjudged: u64,
    /// Points after which the records together were in no state that there ever was; `None` where that is not looked at.
    #[serde(default)]
    pub mixtures: Option<u64>,
    /// What was found, over all points: a record that is looked at after each of ten points counts ten times.
    pub audit: Audit,
    /// Recovery times in milliseconds: median, and the longest.
    pub recovery_ms: (f64, f64),
    /// How long all of it took, in milliseconds.
    pub took_ms: u64,
}

fn ran() -> Status {
    Status::Ran
}

impl CrashPoints {
    /// A line that says that nothing was looked at, and why.
    pub fn not_run(backend: &str, loss: &str, status: Status, reason: impl ToString) -> Self {
        Self {
            v: super::SCHEMA_VERSION,
            backend: backend.to_owned(),
            loss: loss.to_owned(),
            status,
            reason: Some(reason.to_string()),
            how: String::new(),
            seed: 0,
            points: 0,
            in_flight: None,
            unacknowledged: None,
            newly_acknowledged: None,
            broken: None,
            died_by_itself: 0,
            unjudged: 0,
            mixtures: None,
            audit: Audit {
                verdict: Verdict::Unknown,
                ..Audit::default()
            },
            recovery_ms: (0.0, 0.0),
            took_ms: 0,
        }
    }

    /// Whether what was looked at is as promised, or was not to be looked at. False if it is not known.
    pub fn is_passed(&self) -> bool {
        match self.status {
            Status::Unfit | Status::Skipped => true,
            Status::Infra => false,
            Status::Ran => self.audit.verdict == Verdict::Valid && self.died_by_itself == 0,
        }
    }
}
