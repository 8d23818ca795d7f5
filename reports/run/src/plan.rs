//! What a run is to measure, and on what machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Looks, ModelFilesPlan, SCHEMA_VERSION, ScratchReceipt};

/// `plan.toml`: written before the first pass.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`super::SCHEMA_VERSION`].
    pub schema: u32,
    /// The suite's name.
    pub suite: String,
    /// What the suite is for.
    pub essay: String,
    /// When the run was planned, in UTC.
    pub created: String,
    /// Version and commit of the ctxbench that planned and ran it.
    pub ctxbench: String,
    /// The command line that plans the same run.
    pub command: String,
    /// Decides the order of cells and arms and the order of calls; nothing else is random.
    pub seed: u64,
    /// How long it measures, in how many epochs and rounds.
    pub schedule: Schedule,
    /// The differences below which we do not care.
    pub margins: Margins,
    /// What counts as a busy machine.
    pub limits: Limits,
    /// Whether probes run after the passes.
    pub probes: bool,
    /// How much is measured after that of files that a language model makes up; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_files: Option<ModelFilesPlan>,
    /// How calls are measured.
    pub settings: Settings,
    /// The policy that the run was made for.
    pub policy: Option<PlannedPolicy>,
    /// The backends, `direct` twice.
    pub arms: Vec<Arm>,
    /// What is replayed.
    pub workloads: Vec<PlannedWorkload>,
    /// What is broken on purpose, in order; only in a fault run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<PlannedScenario>,
    /// Crash points for each backend that they fit; 0 for none.
    #[serde(default)]
    pub crash_points: u64,
    /// What is tried on each arm, in order, as `group: name`; only in a conformance run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Cells that cannot be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

impl Plan {
    /// Whether it is the plan of a fault run.
    pub fn breaks_things(&self) -> bool {
        !self.scenarios.is_empty() || self.crash_points > 0
    }

    /// Why it has nothing to compare, to decide by or to go on with: it is a fault run's or a conformance run's.
    pub fn measures_nothing(&self) -> Option<&'static str> {
        if self.breaks_things() {
            return Some("a fault run measures no passes");
        }
        (!self.features.is_empty()).then_some("a conformance run measures no passes")
    }

    /// A plan that measures no passes: of a fault run, or of a conformance run.
    pub fn without_passes(
        suite: &str,
        essay: &str,
        created: String,
        ctxbench: String,
        command: String,
        arms: Vec<Arm>,
    ) -> Self {
        Self {
            schema: SCHEMA_VERSION,
            suite: suite.to_owned(),
            essay: essay.to_owned(),
            created,
            ctxbench,
            command,
            seed: 0,
            schedule: Schedule {
                budget_ms: 0,
                epochs: 0,
                rounds: 0,
                looks: Looks(Vec::new()),
            },
            margins: Margins::default(),
            limits: Limits::default(),
            probes: false,
            model_files: None,
            settings: Settings {
                call_timeout_ms: 0,
                placement: "free".to_owned(),
            },
            policy: None,
            arms,
            workloads: Vec::new(),
            scenarios: Vec::new(),
            crash_points: 0,
            features: Vec::new(),
            skipped: Vec::new(),
        }
    }
}

/// A fault scenario as planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedScenario {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// What happens, in a few words.
    pub title: String,
    /// What it stands for, and what a good backend does.
    pub essay: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// After how many seconds a call counts as hung.
    pub hang_limit_s: f64,
}

/// How long a run measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// What measuring may take, in milliseconds; the first three epochs and two rounds of each cell are made all the same.
    pub budget_ms: u64,
    /// The most epochs. A cell is in every epoch until it is decided at a look.
    pub epochs: u32,
    /// The most rounds of a cell in an epoch.
    pub rounds: u32,
    /// When verdicts are looked at.
    pub looks: Looks,
}

/// The differences below which we do not care. In a cell the widest of them holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Margins {
    /// As a share of the baseline: 0.05 is 5 %.
    pub relative: f64,
    /// For each call, in nanoseconds.
    pub absolute_ns: f64,
    /// Of a recorded session, as a share of its turns, summed: 0.001 is 0.1 %.
    pub session_share: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self {
            relative: 0.05,
            absolute_ns: 1000.0,
            session_share: 0.001,
        }
    }
}

/// What counts as a busy machine: a pass outside is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processors' time that other processes used than the harness, its daemons and servers, as a multiple of one
    /// processor, over a stretch of rounds.
    pub foreign_cpu: f64,
    /// Share of a pass in which a task waited for a processor, where the pass has no daemon and leaves the disk alone.
    pub cpu: f64,
    /// Share of a pass in which a task waited for input or output, where the pass leaves the disk alone.
    pub io: f64,
    /// Share of a pass in which a task waited for memory.
    pub memory: f64,
    /// Share of a stretch of rounds that the hypervisor gave to other machines.
    pub steal: f64,
    /// Tasks, beside the harness's own, that are still ready to run five milliseconds after they were first seen before a
    /// round.
    pub runnable: u32,
    /// Rounds that may be repeated for it, as a share of those that are wanted.
    pub repeats: f64,
    /// Share of a run's passes outside from which it gets no verdicts.
    pub busy_share: f64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            foreign_cpu: 0.25,
            cpu: 0.25,
            io: 0.25,
            memory: 0.02,
            steal: 0.05,
            runnable: 1,
            repeats: 0.5,
            busy_share: 0.1,
        }
    }
}

/// How calls are measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A call that takes longer counts as a timeout, and later as a hang; milliseconds.
    pub call_timeout_ms: u64,
    /// Where the client and the daemon run: `shared-cpu`, both on one, another one each epoch, or `free`, where the
    /// scheduler puts them.
    pub placement: String,
}

/// The policy that a run was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedPolicy {
    /// Its name.
    pub name: String,
    /// SHA-256 of its text, which lies beside the plan.
    pub sha256: String,
}

/// One arm of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name in samples.
    pub name: String,
    /// Set on the A/A arm, the second of two identical ones: the name of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_as: Option<String>,
    /// Set on an arm that is slower on purpose: by how many percent every call of it is lengthened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed_percent: Option<u32>,
    /// The arm that it is compared with, where that is not the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Why it cannot be measured here, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The backend.
    pub backend: ArmBackend,
}

/// What a plan keeps of a backend's description and receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmBackend {
    /// Its name.
    pub name: String,
    /// The TOML file that describes it, where it is no part of `ctxbench`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What it is.
    pub summary: String,
    /// What survives, by the last call that returned.
    pub durability: String,
    /// It returns the bytes that were written to it.
    pub holds_data: bool,
    /// What it holds survives its daemon.
    pub persistent: bool,
    /// Its daemon counts requests.
    pub counts_requests: bool,
    /// A sync that is asked of its mount waits for a bucket, which survives the loss of the machine.
    #[serde(default)]
    pub has_bucket: bool,
    /// The call after which data survives, by what is lost; missing where nothing is promised.
    #[serde(default)]
    pub promises: BTreeMap<String, String>,
    /// Processes beside the agent.
    pub daemons: u32,
    /// Mounts.
    pub mounts: u32,
    /// What must be on the machine.
    pub needs: Vec<String>,
    /// Lines of code that must work for its files to be there; 0 where they were not counted.
    pub lines_of_code: u32,
    /// Versions of its parts; empty if it is unavailable.
    pub receipt: BTreeMap<String, String>,
}

/// A workload of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedWorkload {
    /// Its name.
    pub name: String,
    /// The file that defines it, if it is not built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// What it stands for.
    pub essay: String,
    /// SHA-256 of its definition and trace.
    pub sha256: String,
    /// The cache states it is measured in.
    pub states: Vec<String>,
    /// Timed calls in a hot pass, by kind.
    pub calls: BTreeMap<String, u64>,
    /// Recorded calls that no file operation stands for, by what they do.
    pub not_replayed: BTreeMap<String, u64>,
    /// Tokens of all results as an agent is shown them (o200k); only for agent workloads that are
    /// generated: what a recorded agent was shown of a file is not replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// The recording's times from one model answer to the next, summed, in milliseconds; only for recorded
    /// sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<u64>,
    /// Those times in the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
}

/// A cell that is not measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The arm.
    pub arm: String,
    /// The workload.
    pub workload: String,
    /// The cache state.
    pub state: String,
    /// Why not, and what would change it.
    pub reason: String,
}

/// `env.json`: the machine, as it was when the run started.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// [`super::SCHEMA_VERSION`].
    pub schema: u32,
    /// The kernel's release and version.
    pub kernel: String,
    /// The processor's model.
    pub cpu: String,
    /// Processors that the run may use.
    pub cpus: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// The clock that times calls.
    pub clock: String,
    /// The hypervisor, if the machine says that it runs on one.
    pub hypervisor: Option<String>,
    /// Where the workspaces were.
    pub scratch: ScratchReceipt,
    /// The user: `root` or `non-root`.
    pub user: String,
    /// How this binary was built.
    pub build: String,
    /// SHA-256 of this binary.
    pub binary_sha256: String,
    /// Load averages over 1, 5 and 15 minutes at the start.
    pub load: String,
    /// Share of time in which something waited for a processor in the 10 s before the start, in percent.
    pub cpu_pressure_avg10: Option<f64>,
    /// Whether a hung mount can be aborted through `fusectl`.
    pub fusectl: bool,
}
