//! The plan of a run (`plan.toml`) and the machine it ran on (`env.json`).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Looks, ModelFilesPlan, RUN_DIRECTORY_VERSION, ScratchKind, ScratchReceipt};

/// `plan.toml`: written before the first pass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of the format of run directories.
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
    /// The part of the cells that this run measures, if several runs share the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// In a merged run: the shards that it was made of, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<MergedShard>,
    /// The sections, with their budgets, epochs and rounds.
    pub schedule: Schedule,
    /// The differences below which we do not care.
    pub margins: Margins,
    /// The limits of a quiet machine.
    pub limits: Limits,
    /// Whether probes run, after the passes.
    pub probes: bool,
    /// How much of model-generated files is measured, after the probes; absent for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_files: Option<ModelFilesPlan>,
    /// How calls are measured.
    pub settings: Settings,
    /// The one policy that command line or suite named, if any.
    pub policy: Option<PlannedPolicy>,
    /// SHA-256 of every built-in policy, by name; of a run with a named policy, that of its further ones.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policies: BTreeMap<String, String>,
    /// The backends, `direct` twice.
    pub arms: Vec<Arm>,
    /// The workloads of the run.
    pub workloads: Vec<PlannedWorkload>,
    /// The fault scenarios, in order; only in a fault run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scenarios: Vec<PlannedScenario>,
    /// Kills, and power cuts, of each backend that promises to survive them; 0 for none. In a run with probes, they come
    /// after them.
    #[serde(default)]
    pub crash_points: u64,
    /// Features tried on each arm, in order, as `group: name`; only in a conformance run, and in a run with probes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Names of the other probes, by aspect; only in a run with probes. An arm with one of an aspect has a line for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub probed: BTreeMap<String, BTreeSet<String>>,
    /// Cells that cannot be measured, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedCell>,
}

/// One of several runs that share a plan: each has a part of its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shard {
    /// The number of this part, from 0.
    pub index: u32,
    /// The number of shards.
    pub of: u32,
}

impl Shard {
    /// Whether item `number` of a list that the shards share is part of this one.
    pub fn has(self, number: usize) -> bool {
        number as u64 % u64::from(self.of.max(1)) == u64::from(self.index)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// A shard of a merged run. Its epochs are those from its first one to the first one of the next shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MergedShard {
    /// When it was planned, in UTC.
    pub created: String,
    /// The machine that it ran on: processor, kernel and memory, in words.
    pub machine: String,
    /// The number of its first epoch in the merged run.
    pub first_epoch: u32,
}

/// The most epochs of a run, and rounds of an epoch, that a reader believes.
pub(crate) const MOST_EPOCHS: u32 = 100_000;

/// The most shards of a run that a reader believes.
pub const MOST_SHARDS: u32 = 1000;

/// The most sections of a run that a reader believes.
const MOST_SECTIONS: usize = 1000;

impl Plan {
    /// Checks what the types do not: that names are unique, and that shares and numbers of epochs are possible.
    ///
    /// # Errors
    /// The field, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), String> {
        let unique = |field: &str, names: Vec<&String>| {
            let mut known = BTreeSet::new();
            let twice = names.into_iter().find(|name| !known.insert(name.as_str()));
            twice.map_or(Ok(()), |name| Err(format!("field `{field}`: {name:?} appears twice")))
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
        self.check_sections()?;
        self.check_shards()?;
        let margins = &self.margins;
        let shares = [margins.relative, margins.absolute_ns, margins.session_share];
        if shares.iter().any(|share| *share < 0.0) {
            return Err("field `margins`: a margin is not negative".to_owned());
        }
        Ok(())
    }

    fn check_sections(&self) -> Result<(), String> {
        let sections = &self.schedule.sections;
        let wrong = |name: &str, problem: String| Err(format!("field `schedule.sections`: {name:?} {problem}"));
        if sections.len() > MOST_SECTIONS {
            return Err("field `schedule.sections`: more than a run can have".to_owned());
        }
        let mut known = BTreeSet::new();
        let mut cells = BTreeSet::new();
        for section in sections {
            let name = &section.name;
            if !known.insert(name) {
                return wrong(name, "appears twice".to_owned());
            }
            let looks = &section.looks.0;
            let mut numbers = looks.iter().map(|look| look.epochs);
            if numbers.any(|number| number > MOST_EPOCHS) || section.epochs.max(section.rounds) > MOST_EPOCHS {
                return wrong(name, format!("has more than the {MOST_EPOCHS} epochs or rounds that a run can have"));
            }
            let mut alphas = looks.iter().map(|look| look.alpha);
            if alphas.any(|alpha| alpha <= 0.0 || alpha >= 1.0) {
                return wrong(name, "has an error rate that is not between 0 and 1".to_owned());
            }
            for (workload, states) in &section.cells {
                for state in states {
                    let planned = self.workload(workload);
                    if planned.is_none_or(|planned| !planned.states.contains(state)) {
                        return wrong(name, format!("has a cell that no workload has: {workload} {state}"));
                    }
                    if Placement::of_state(state) != section.placement {
                        return wrong(name, format!("has a cell of another placement: {workload} {state}"));
                    }
                    if !cells.insert((workload, state)) {
                        return wrong(name, format!("has a cell that appears twice: {workload} {state}"));
                    }
                }
            }
        }
        let planned = self.workloads.iter();
        let mut planned = planned.flat_map(|one| one.states.iter().map(move |state| (&one.name, state)));
        match planned.find(|cell| !cells.contains(cell)) {
            Some((workload, state)) => {
                Err(format!("field `schedule.sections`: no section has the cell {workload} {state}"))
            }
            None => Ok(()),
        }
    }

    fn check_shards(&self) -> Result<(), String> {
        let most = self.shard.map_or(0, |shard| shard.of as usize).max(self.merged.len());
        if most > MOST_SHARDS as usize {
            return Err(format!("field `shard`: more than the {MOST_SHARDS} shards that a run can have"));
        }
        if let Some(shard) = self.shard.filter(|shard| shard.index >= shard.of) {
            return Err(format!("field `shard`: {shard} is not one of {} shards", shard.of));
        }
        let firsts: Vec<u32> = self.merged.iter().map(|shard| shard.first_epoch).collect();
        let is_sorted = firsts.is_sorted() && firsts.first().is_none_or(|first| *first == 0);
        if !is_sorted || firsts.last().is_some_and(|last| *last > MOST_EPOCHS) {
            return Err("field `merged.first_epoch`: is not a number of epochs in ascending order".to_owned());
        }
        if self.shard.is_some() && !self.merged.is_empty() {
            Err("field `merged`: a shard is not a merged run".to_owned())
        } else {
            Ok(())
        }
    }

    /// The cells of all sections, workload and cache state, in an order that all shards share.
    fn cells(&self) -> impl Iterator<Item = (&str, &str)> {
        let cells = self.schedule.sections.iter().flat_map(|one| &one.cells);
        cells.flat_map(|(workload, states)| {
            let states = states.iter();
            states.map(move |state| (workload.as_str(), state.as_str()))
        })
    }

    /// The number of cells of all shards together.
    pub fn cell_count(&self) -> usize {
        self.cells().count()
    }

    /// The number of cells of this run.
    pub fn cells_of_run(&self) -> usize {
        self.cells().filter(|(workload, state)| self.has_cell(workload, state)).count()
    }

    /// Whether this run measures a cell: it has all of them, unless it is a shard.
    pub fn has_cell(&self, workload: &str, state: &str) -> bool {
        self.shard.is_none_or(|shard| {
            let mut cells = self.cells();
            let number = cells.position(|cell| cell == (workload, state));
            number.is_some_and(|number| shard.has(number))
        })
    }

    /// The budget of this run for a section, in milliseconds: a shard has its cells' part of it.
    pub fn budget_ms(&self, section: &Section) -> u64 {
        let states = section.cells.iter();
        let cells = states.flat_map(|(workload, states)| states.iter().map(move |state| (workload, state)));
        let all = cells.clone().count() as u64;
        let own = cells.filter(|(workload, state)| self.has_cell(workload, state)).count() as u64;
        match all {
            0 => section.budget_ms,
            all => section.budget_ms.saturating_mul(own).div_ceil(all),
        }
    }

    /// Whether this run probes an arm.
    pub fn probes_arm(&self, name: &str) -> bool {
        self.probes && self.tries_arm(name)
    }

    /// Whether this run has a part in the probes and kills of an arm: of several shards, one has it.
    pub fn tries_arm(&self, name: &str) -> bool {
        let probed = self.arms.iter().filter(|arm| arm.can_be_candidate() && arm.unavailable.is_none());
        let number = probed.into_iter().position(|arm| arm.name == name);
        number.is_some_and(|number| self.shard.is_none_or(|shard| shard.has(number)))
    }

    /// Whether this run measures files that a language model generates: of several shards, the first one does.
    pub fn measures_model_files(&self) -> bool {
        self.model_files.is_some() && self.shard.is_none_or(|shard| shard.index == 0)
    }

    /// The shard of a merged run that an epoch belongs to; `None` in a run that was not merged.
    pub fn shard_of(&self, epoch: u32) -> Option<usize> {
        let later = self.merged.partition_point(|shard| shard.first_epoch <= epoch);
        later.checked_sub(1)
    }

    /// Whether this is the plan of a fault run. Kills and power cuts are also part of a run with probes.
    pub fn breaks_things(&self) -> bool {
        !self.scenarios.is_empty() || (self.crash_points > 0 && !self.probes)
    }

    /// Why the run cannot be compared, decided on or resumed; `None` if it measures passes.
    pub fn measures_nothing(&self) -> Option<&'static str> {
        if self.breaks_things() {
            return Some("a fault run measures no passes");
        }
        (!self.features.is_empty() && self.workloads.is_empty()).then_some("a conformance run measures no passes")
    }

    /// The arm called `name`.
    pub fn arm(&self, name: &str) -> Option<&Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The workload called `name`.
    pub fn workload(&self, name: &str) -> Option<&PlannedWorkload> {
        self.workloads.iter().find(|workload| workload.name == name)
    }

    /// The section of a cell.
    pub fn section(&self, workload: &str, state: &str) -> Option<&Section> {
        let mut sections = self.schedule.sections.iter();
        sections.find(|section| section.has(workload, state))
    }

    /// Whether an arm takes part in a cell, unless the cell is skipped on it.
    pub fn takes_part(&self, arm: &str, workload: &str, state: &str) -> bool {
        let is_in = |section: &Section| section.arms.iter().any(|own| own == arm);
        self.section(workload, state).is_some_and(is_in)
            && self.arm(arm).is_some_and(|arm| arm.only.is_empty() || arm.only.iter().any(|own| own == workload))
    }

    /// Whether the times of a cell are compared. Of some sections only counts are wanted.
    pub fn compares(&self, workload: &str, state: &str) -> bool {
        self.section(workload, state).is_none_or(|section| !section.counts)
    }

    /// The error rate of the interval of a cell with `epochs` epochs.
    pub fn alpha(&self, workload: &str, state: &str, epochs: usize) -> f64 {
        match self.section(workload, state) {
            Some(section) => section.looks.alpha(epochs),
            None => Looks::default().alpha(epochs),
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
            schema: RUN_DIRECTORY_VERSION,
            suite: suite.to_owned(),
            essay: essay.to_owned(),
            created,
            ctxbench,
            command,
            settings: Settings { call_timeout_ms: 0 },
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

/// The length of a run: that of its sections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// The sections. Their epochs take turns.
    #[serde(default)]
    pub sections: Vec<Section>,
}

impl Schedule {
    /// The time budget of all sections, in milliseconds.
    pub fn budget_ms(&self) -> u64 {
        let budgets = self.sections.iter().map(|section| section.budget_ms);
        budgets.fold(0, u64::saturating_add)
    }
}

/// A part of a run with cells, a budget and epochs of its own, from which no other section takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Its name.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// The time budget of measuring, in milliseconds. Three epochs and one timed round of each cell are run
    /// regardless.
    pub budget_ms: u64,
    /// The maximum number of epochs. A cell is in every epoch of its section.
    pub epochs: u32,
    /// The maximum number of rounds of a cell in an epoch.
    pub rounds: u32,
    /// Where client and daemon run. The names of its cells' states say so, too.
    pub placement: Placement,
    /// Whether an epoch of a hot cell begins with a round that is not timed.
    pub warm_up: bool,
    /// Whether only counts are wanted, so that no times are compared.
    pub counts: bool,
    /// The names of the arms that take part.
    #[serde(deserialize_with = "inputs::names::name_list")]
    pub arms: Vec<String>,
    /// The cells: names of states, by workload.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub cells: BTreeMap<String, Vec<String>>,
    /// The analyses of its cells.
    pub looks: Looks,
}

impl Section {
    /// Whether it has the cell.
    pub fn has(&self, workload: &str, state: &str) -> bool {
        let states = self.cells.get(workload);
        states.is_some_and(|states| states.iter().any(|own| own == state))
    }
}

inputs::named! {
    /// Where client and daemon run.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Placement, name {
        /// Where the scheduler puts them.
        #[default]
        Free = "free",
        /// Both on one processor, a different one each epoch.
        SharedCpu = "shared-cpu",
    }
}

/// The end of the names of states in [`Placement::SharedCpu`].
const ON_SHARED_CPU: &str = "-shared-cpu";

impl Placement {
    /// The name of a cell's state: the cache state, with the placement unless that is free. A cell of another placement
    /// is another cell, so that no reader of samples can pool the two.
    pub fn state(self, cache_state: &str) -> String {
        match self {
            Placement::Free => cache_state.to_owned(),
            Placement::SharedCpu => format!("{cache_state}{ON_SHARED_CPU}"),
        }
    }

    /// The placement in the name of a cell's state.
    pub fn of_state(state: &str) -> Self {
        if state.ends_with(ON_SHARED_CPU) { Placement::SharedCpu } else { Placement::Free }
    }
}

/// The cache state in the name of a cell's state.
pub fn cache_state(state: &str) -> &str {
    state.strip_suffix(ON_SHARED_CPU).unwrap_or(state)
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
        Self { relative: 0.05, absolute_ns: 1000.0, session_share: 0.001 }
    }
}

/// When the machine is busy, and what a run does then. A pass beyond one of the first six limits is a busy pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Processor time of other processes than the harness, its daemons and servers.
    /// It is measured over several rounds, as a multiple of one processor.
    pub foreign_cpu: f64,
    /// Share of a pass in which a task waited for a processor.
    /// It applies to passes without a daemon and without disk access.
    pub cpu: f64,
    /// Share of a pass in which a task waited for input or output.
    /// It applies to passes without a daemon and without disk access.
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
    /// The largest share of busy passes of a run that leaves rounds with busy passes out of its figures. A run with more is
    /// busy: it keeps them, and widens its intervals by what they can have changed.
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
            busy_share: 0.5,
        }
    }
}

/// How calls are measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The time after which a call counts as a timeout, and later as a hang, in milliseconds.
    pub call_timeout_ms: u64,
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
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "inputs::names::optional_name")]
    pub same_as: Option<String>,
    /// On an arm that is slower on purpose: by how many percent each call is lengthened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slowed_percent: Option<u32>,
    /// The arm of comparison, if it is not the baseline.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "inputs::names::optional_name")]
    pub against: Option<String>,
    /// The workloads that it takes part in; all of them if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "inputs::names::name_list")]
    pub only: Vec<String>,
    /// Why the arm cannot be measured here, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The backend.
    pub backend: ArmBackend,
}

impl Arm {
    /// Whether a policy can decide on it: not on an identical arm, on one that is slower on purpose, or on a practice that
    /// candidates are compared with.
    pub fn can_be_candidate(&self) -> bool {
        self.same_as.is_none() && self.slowed_percent.is_none() && !self.backend.is_practice
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
    /// Whether it stands for what a team does without a backend, so that it is no candidate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_practice: bool,
    /// The call after which data survives, by loss; a loss is missing if nothing is promised for it.
    #[serde(default)]
    pub promises: BTreeMap<String, String>,
    /// Number of processes in addition to the agent.
    pub daemons: u32,
    /// Number of mounts.
    pub mounts: u32,
    /// Requirements on the machine.
    pub needs: Vec<String>,
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
    /// The names of the cache states in which it is measured; that of a section on one processor says so, too.
    #[serde(deserialize_with = "inputs::names::name_list")]
    pub states: Vec<String>,
    /// Timed calls in a hot pass, by kind.
    #[serde(deserialize_with = "inputs::names::by_name")]
    pub calls: BTreeMap<String, u64>,
    /// The kinds of calls that make files durable. Plans of earlier versions lack them.
    #[serde(default, deserialize_with = "inputs::names::name_list", skip_serializing_if = "Vec::is_empty")]
    pub syncs: Vec<String>,
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
pub struct SkippedCell {
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
    /// The version of the format of run directories.
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

impl Environment {
    /// The properties of the machine that times depend on, in words: equal for machines of one kind.
    pub fn machine(&self) -> String {
        let kind = match self.scratch.kind {
            ScratchKind::Image => "a fresh image",
            ScratchKind::Directory => "a directory",
        };
        format!(
            "{}, {} processors, {} GiB, kernel {}, {} in {kind}, {}",
            self.cpu,
            self.cpus,
            // The kernel's own share differs from boot to boot.
            self.memory_bytes.div_ceil(1 << 30),
            self.kernel,
            self.scratch.file_system,
            self.user
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of one cell in two placements, in two sections.
    fn plan() -> Plan {
        let section = |placement: Placement| Section {
            name: placement.name().to_owned(),
            epochs: 8,
            placement,
            cells: BTreeMap::from([("micro/stat".to_owned(), vec![placement.state("hot")])]),
            ..Section::default()
        };
        Plan {
            workloads: vec![PlannedWorkload {
                name: "micro/stat".to_owned(),
                states: vec!["hot".to_owned(), "hot-shared-cpu".to_owned()],
                ..PlannedWorkload::default()
            }],
            schedule: Schedule { sections: vec![section(Placement::Free), section(Placement::SharedCpu)] },
            ..Plan::default()
        }
    }

    #[test]
    fn a_state_says_its_placement() {
        for placement in [Placement::Free, Placement::SharedCpu] {
            for cache in ["hot", "lukewarm", "cold"] {
                let state = placement.state(cache);
                assert_eq!(Placement::of_state(&state), placement);
                assert_eq!(cache_state(&state), cache);
            }
        }
        assert_ne!(Placement::SharedCpu.state("hot"), "hot");
    }

    #[test]
    fn every_cell_budget_and_arm_is_in_exactly_one_shard() {
        let mut whole = plan();
        for (number, section) in whole.schedule.sections.iter_mut().enumerate() {
            section.budget_ms = 1000;
            for more in 0..=number {
                let name = format!("micro/more-{number}-{more}");
                let state = section.placement.state("hot");
                section.cells.insert(name, vec![state]);
            }
        }
        whole.probes = true;
        whole.arms = ["a", "b", "c"].map(|name| Arm { name: name.to_owned(), ..Arm::default() }).into();
        let cells: Vec<(String, String)> =
            whole.cells().map(|(workload, state)| (workload.to_owned(), state.to_owned())).collect();
        assert_eq!((cells.len(), whole.cell_count()), (5, 5));
        for of in 1..=5 {
            let shards: Vec<Plan> =
                (0..of).map(|index| Plan { shard: Some(Shard { index, of }), ..whole.clone() }).collect();
            let in_one = |has: &dyn Fn(&Plan) -> bool| shards.iter().filter(|plan| has(plan)).count() == 1;
            for (workload, state) in &cells {
                assert!(in_one(&|plan| plan.has_cell(workload, state)), "{workload} of {of}");
            }
            for arm in &whole.arms {
                assert!(in_one(&|plan| plan.probes_arm(&arm.name)), "{}", arm.name);
            }
            for section in &whole.schedule.sections {
                let sum: u64 = shards.iter().map(|plan| plan.budget_ms(section)).sum();
                assert!((1000..1000 + u64::from(of)).contains(&sum), "{sum}");
            }
            let sizes = shards
                .iter()
                .map(|plan| cells.iter().filter(|(workload, state)| plan.has_cell(workload, state)).count());
            let sizes: Vec<usize> = sizes.collect();
            assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
        }
    }

    #[test]
    fn shards_that_cannot_be_are_refused() {
        let wrong = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.check().unwrap_err()
        };
        let shard = wrong(|plan| plan.shard = Some(Shard { index: 3, of: 3 }));
        assert!(shard.contains("3/3 is not one of 3 shards"), "{shard}");
        let first = |first_epoch| MergedShard { first_epoch, ..MergedShard::default() };
        for firsts in [vec![1], vec![0, 5, 4], vec![0, MOST_EPOCHS + 1]] {
            let mut plan = plan();
            plan.merged = firsts.into_iter().map(first).collect();
            plan.check().unwrap_err();
        }
        let mut merged = plan();
        merged.merged = [0, 4, 4, 9].map(first).into();
        merged.check().unwrap();
        let shards = [0, 3, 4, 8, 9, 100].map(|epoch| merged.shard_of(epoch));
        // The second shard has no epoch.
        assert_eq!(shards, [0, 0, 2, 2, 3, 3].map(Some));
        assert_eq!(plan().shard_of(3), None);
    }

    #[test]
    fn every_cell_is_in_one_section_of_its_placement() {
        plan().check().unwrap();
        let wrong = |change: fn(&mut Vec<Section>)| {
            let mut plan = plan();
            change(&mut plan.schedule.sections);
            plan.check().unwrap_err()
        };
        for (change, expected) in [
            ((|sections| sections[1].name = "free".to_owned()) as fn(&mut Vec<Section>), "\"free\" appears twice"),
            (|sections| drop(sections.pop()), "no section has the cell micro/stat hot-shared-cpu"),
            (
                |sections| sections[1].placement = Placement::Free,
                "has a cell of another placement: micro/stat hot-shared-cpu",
            ),
            (
                |sections| sections[0].cells = sections[1].cells.clone(),
                "has a cell of another placement: micro/stat hot-shared-cpu",
            ),
            (
                |sections| {
                    sections[0].cells.insert("micro/x".to_owned(), vec!["hot".to_owned()]);
                },
                "has a cell that no workload has: micro/x hot",
            ),
            (|sections| sections[0].epochs = MOST_EPOCHS + 1, "has more than the 100000 epochs"),
            (|sections| sections[0].looks = Looks::at_end(MOST_EPOCHS + 1), "has more than the 100000 epochs"),
            (
                |sections| {
                    let states = sections[0].cells.get_mut("micro/stat").unwrap();
                    states.push("hot".to_owned());
                },
                "has a cell that appears twice: micro/stat hot",
            ),
        ] {
            let error = wrong(change);
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
