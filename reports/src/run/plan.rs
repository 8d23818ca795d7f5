//! What a run is to measure, and on what machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `plan.toml`: written before the first block.
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
    /// Decides the order of blocks and the order of calls; nothing else is random.
    pub seed: u64,
    /// How often each cell is measured.
    pub rounds: u32,
    /// Whether probes run after the blocks.
    pub probes: bool,
    /// Whether files that a language model makes up are measured after that, in short.
    #[serde(default)]
    pub model_files: bool,
    /// How calls are measured.
    pub settings: Settings,
    /// The policy that the run was made for.
    pub policy: Option<PlannedPolicy>,
    /// The backends, `direct` twice.
    pub arms: Vec<Arm>,
    /// What is replayed.
    pub workloads: Vec<PlannedWorkload>,
    /// Cells that cannot be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// How calls are measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// A call that takes longer counts as a timeout, and later as a hang; milliseconds.
    pub call_timeout_ms: u64,
    /// Where the client and the daemon run: `shared-cpu`, both on one, or `free`, where the scheduler puts them.
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
    /// Set on the second of two identical arms: the name of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub twin_of: Option<String>,
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
    /// Processes beside the agent.
    pub daemons: u32,
    /// Mounts.
    pub mounts: u32,
    /// What must be on the machine.
    pub needs: Vec<String>,
    /// Lines of code that must work for its files to be there; 0 where nobody counted.
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
    /// Timed calls in a block, by kind.
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
    /// The scratch directory's file system: type, device and mount options.
    pub scratch: String,
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
