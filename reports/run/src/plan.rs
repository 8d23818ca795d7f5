//! The plan of a run (`plan.toml`) and the machine it ran on (`env.json`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Looks, ModelFilesPlan, SCHEMA_VERSION, ScratchReceipt};

/// `plan.toml`: written before the first pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`super::SCHEMA_VERSION`].
    pub schema: u32,
    /// The suite's name.
    pub suite: String,
    /// The purpose of the suite.
    pub essay: String,
    /// When the run was planned, in UTC.
    pub created: String,
    /// Version and commit of the ctxbench that planned and ran it.
    pub ctxbench: String,
    /// The command line that makes the same plan.
    pub command: String,
    /// The seed for the order of the cells in an epoch and of the arms in each round.
    pub seed: u64,
    /// The time budget, and the numbers of epochs and rounds.
    pub schedule: Schedule,
    /// The differences below which we do not care.
    pub margins: Margins,
    /// The limits of a quiet machine.
    pub limits: Limits,
    /// Whether probes run, after the passes.
    pub probes: bool,
    /// How much of model-generated files is measured, after the probes; `None` for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_files: Option<ModelFilesPlan>,
    /// How calls are measured.
    pub settings: Settings,
    /// The one policy that command line or suite named, if any.
    pub policy: Option<PlannedPolicy>,
    /// SHA-256 of every built-in policy, by name; empty in a run that decides nothing, or by one named policy.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// The backends, `direct` twice.
    pub arms: Vec<Arm>,
    /// The workloads of the run.
    pub workloads: Vec<PlannedWorkload>,
    /// The fault scenarios, in order; only in a fault run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<PlannedScenario>,
    /// Crash points for each backend that supports them; 0 for none.
    #[serde(default)]
    pub crash_points: u64,
    /// Features tried on each arm, in order, as `group: name`; only in a conformance run, and in a run with probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Cells that cannot be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
}

/// The most epochs of a run, and rounds of an epoch, that a reader believes.
pub(crate) const MOST_EPOCHS: u32 = 100_000;

impl Plan {
    /// Checks what the types do not: that names are unique, and that shares and numbers of epochs are possible.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let unique = |field: &str, names: Vec<&String>| {
            let mut known = BTreeSet::new();
            let twice = names.into_iter().find(|name| !known.insert(name.as_str()));
            twice.map_or(Ok(()), |name| {
                Err(format!("field `{field}`: {name:?} is there twice"))
            })
        };
        let workloads = self.workloads.iter();
        let scenarios = self.scenarios.iter();
        unique("arms", self.arms.iter().map(|arm| &arm.name).collect())?;
        unique("workloads", workloads.map(|one| &one.name).collect())?;
        unique("scenarios", scenarios.map(|one| &one.name).collect())?;
        if self.arms.len() > 1000 || self.workloads.len().max(self.scenarios.len()) > 10_000 {
            return Err("has more arms, workloads or scenarios than a run can have".to_owned());
        }
        for workload in &self.workloads {
            unique("workloads.states", workload.states.iter().collect())?;
        }
        let schedule = &self.schedule;
        let own = self.workloads.iter().filter_map(|workload| workload.epochs);
        let looks = schedule.looks.0.iter().map(|look| look.epochs);
        let mut numbers = own.chain(looks).chain([schedule.epochs, schedule.rounds]);
        if numbers.any(|number| number > MOST_EPOCHS) {
            return Err(format!(
                "field `schedule`: more than the {MOST_EPOCHS} epochs or rounds that a run can have"
            ));
        }
        let mut alphas = schedule.looks.0.iter().map(|look| look.alpha);
        if alphas.any(|alpha| alpha <= 0.0 || alpha >= 1.0) {
            return Err("field `schedule.looks`: an error rate lies between 0 and 1".to_owned());
        }
        let margins = &self.margins;
        let shares = [margins.relative, margins.absolute_ns, margins.session_share];
        if shares.iter().any(|share| *share < 0.0) {
            return Err("field `margins`: a margin is not negative".to_owned());
        }
        Ok(())
    }

    /// Whether this is the plan of a fault run.
    pub fn breaks_things(&self) -> bool {
        !self.scenarios.is_empty() || self.crash_points > 0
    }

    /// Why the run cannot be compared, decided on or resumed; `None` if it measures passes.
    pub fn measures_nothing(&self) -> Option<&'static str> {
        if self.breaks_things() {
            return Some("a fault run measures no passes");
        }
        (!self.features.is_empty() && self.workloads.is_empty())
            .then_some("a conformance run measures no passes")
    }

    /// The arm called `name`.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The workload called `name`.
    pub fn workload(&self, name: &str) -> Option<&PlannedWorkload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// The error rate of the interval of a workload's cell with `epochs` epochs. A workload with a number of epochs of
    /// its own is looked at once, after them.
    pub fn alpha(&self, workload: &str, epochs: usize) -> f64 {
        match self.workload(workload).and_then(|planned| planned.epochs) {
            Some(most) => Looks::at_end(most).alpha(epochs),
            None => self.schedule.looks.alpha(epochs),
        }
    }

    /// A plan without passes: for a fault run or a conformance run.
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
            settings: Settings {
                call_timeout_ms: 0,
                placement: "free".to_owned(),
            },
            arms,
            ..Self::default()
        }
    }
}

/// A fault scenario as planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedScenario {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// Its group.
    #[serde(deserialize_with = "inputs::names::name")]
    pub group: String,
    /// The injected fault, in a few words.
    pub title: String,
    /// The real fault that it represents, and how a good backend behaves.
    pub essay: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// The time after which a call counts as hung, in seconds.
    pub hang_limit_s: f64,
}

/// The length of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The time budget of measuring, in milliseconds. Three epochs and one timed round of each cell are run
    /// regardless.
    pub budget_ms: u64,
    /// The maximum number of epochs. A cell is in every epoch until an interim analysis decides it, or until its
    /// workload's own number of epochs is reached.
    pub epochs: u32,
    /// The maximum number of rounds of a cell in an epoch.
    pub rounds: u32,
    /// The interim analyses and the final one.
    pub looks: Looks,
}

/// The differences below which we do not care. In each cell the widest one applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Margins {
    /// As a share of the baseline: 0.05 is 5 %.
    pub relative: f64,
    /// The absolute margin per call, in nanoseconds.
    pub absolute_ns: f64,
    /// For a recorded session: a share of the summed time of its turns. 0.001 is 0.1 %.
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

/// The limits of a quiet machine. A round with a pass beyond any of them is in no figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processor time of other processes than the harness, its daemons and servers.
    /// It is measured over several rounds, as a multiple of one processor.
    pub foreign_cpu: f64,
    /// Share of a pass in which a task waited for a processor.
    /// It applies to passes without a daemon and without disk access.
    pub cpu: f64,
    /// Share of a pass in which a task waited for input or output. It applies to passes without disk access.
    pub io: f64,
    /// Share of a pass in which a task waited for memory.
    pub memory: f64,
    /// Share of several rounds that the hypervisor gave to other machines.
    pub steal: f64,
    /// Runnable tasks of other processes before a round, counted again five milliseconds after they were
    /// first seen.
    pub runnable: u32,
    /// The most rounds that may be repeated, as a share of the fewest rounds of a cell, rounded up.
    pub repeats: f64,
    /// Share of busy passes above which a run gets no verdicts.
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The time after which a call counts as a timeout, and later as a hang, in milliseconds.
    pub call_timeout_ms: u64,
    /// Where client and daemon run. `shared-cpu`: both on one processor, a different one each epoch.
    /// `free`: where the scheduler puts them.
    pub placement: String,
}

/// The policy of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedPolicy {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// SHA-256 of its text, which is in the run directory.
    pub sha256: String,
}

/// One arm of the comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name in samples.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// On the A/A arm, the second of two identical arms: the name of the first.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "inputs::names::optional_name"
    )]
    pub same_as: Option<String>,
    /// On an arm that is slower on purpose: by how many percent each call is lengthened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed_percent: Option<u32>,
    /// The arm of comparison, if it is not the baseline.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "inputs::names::optional_name"
    )]
    pub against: Option<String>,
    /// The workloads that it takes part in; all of them if empty.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "inputs::names::name_list"
    )]
    pub only: Vec<String>,
    /// Why the arm cannot be measured here, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The backend.
    pub backend: ArmBackend,
}

impl Arm {
    /// Whether a policy can decide on it: not on an identical arm, and not on one that is slower on purpose.
    pub fn can_be_candidate(&self) -> bool {
        self.same_as.is_none() && self.slowed_percent.is_none()
    }
}

/// The parts of a backend's description and receipt that a plan keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArmBackend {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// The TOML file that describes the backend, if it is not built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A short description.
    pub summary: String,
    /// The data that survives, by the last call that returned.
    pub durability: String,
    /// Whether reads return the bytes that were written.
    pub holds_data: bool,
    /// Whether its files survive its daemon.
    pub persistent: bool,
    /// Whether its daemon counts requests.
    pub counts_requests: bool,
    /// Whether a requested sync of its mount waits for a bucket, which survives the loss of the machine.
    #[serde(default)]
    pub has_bucket: bool,
    /// The call after which data survives, by loss; a loss is missing if nothing is promised for it.
    #[serde(default)]
    pub promises: BTreeMap<String, String>,
    /// Number of processes in addition to the agent.
    pub daemons: u32,
    /// Number of mounts.
    pub mounts: u32,
    /// Requirements on the machine.
    pub needs: Vec<String>,
    /// Its properties besides files: `one-file`, `snapshots`, `versions`; `None` if its makers do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gives: Option<Vec<String>>,
    /// Lines of code that its files depend on; 0 if not counted.
    pub lines_of_code: u32,
    /// Versions of its parts; empty if the backend is unavailable.
    #[serde(rename = "receipt")]
    pub versions: BTreeMap<String, String>,
}

/// A workload of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PlannedWorkload {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// The file that defines it, if it is not built in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The real use that it represents.
    pub essay: String,
    /// SHA-256 of its definition and trace.
    pub sha256: String,
    /// The cache states in which it is measured.
    #[serde(deserialize_with = "inputs::names::name_list")]
    pub states: Vec<String>,
    /// The number of epochs that measure it, with the fewest rounds; `None` for all epochs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epochs: Option<u32>,
    /// Timed calls in a hot pass, by kind.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub calls: BTreeMap<String, u64>,
    /// Recorded calls that no file operation can replay, by what they do.
    pub not_replayed: BTreeMap<String, u64>,
    /// How often recorded shell commands ran each program, such as `git status`; empty if the trace does not say.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, u64>,
    /// Tokens (`o200k`) of all results as an agent sees them. Only for generated agent workloads:
    /// a replay does not show what a recorded agent saw of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_tokens: Option<u64>,
    /// The summed time of the recording's turns, from one model answer to the next, in milliseconds.
    /// Only for recorded sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_ms: Option<u64>,
    /// Number of turns in the recording.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
}

/// A cell that the run leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// The arm.
    #[serde(deserialize_with = "inputs::names::name")]
    pub arm: String,
    /// The workload.
    #[serde(deserialize_with = "inputs::names::name")]
    pub workload: String,
    /// The cache state.
    #[serde(deserialize_with = "inputs::names::name")]
    pub state: String,
    /// Why it is left out, and what would change that.
    pub reason: String,
}

/// `env.json`: the machine, as it was when the run started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// The scratch file system of the workspaces.
    pub scratch: ScratchReceipt,
    /// The user: `root` or `non-root`.
    pub user: String,
    /// How this binary was built.
    pub build: String,
    /// SHA-256 of this binary.
    pub binary_sha256: String,
    /// Load averages over 1, 5 and 15 minutes at the start.
    pub load: String,
    /// Share of the 10 s before the start in which a task waited for a processor (PSI `avg10`), in percent.
    pub cpu_pressure_avg10: Option<f64>,
    /// Whether a hung mount can be aborted through `fusectl`.
    pub fusectl: bool,
}
