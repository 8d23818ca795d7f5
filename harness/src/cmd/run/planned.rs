//! Makes the plan of a new run from its suite and options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use backends::backend::{self, Backend};
use backends::registry::Registry;
use reports::context::check_prices;
use reports::decide::{identities, identity};
use reports::summary::FLOOR;
use rundir::{Environment, Looks, Margins, Plan, PlannedPolicy, Schedule, Settings, Writer};
use workloads::catalogue;
use workloads::definition::{CacheState, SessionSource, Workload};
use workloads::render::result_tokens;
use workloads::suite::Suite;

use super::Options;
use crate::cell::pass_bytes;
use crate::environment::{self, environment};
use crate::plan::{self, BASELINE, Inputs, LiveArm, arms};
use crate::reporting::OwnPolicy;
use crate::scratch::ScratchDisk;
use crate::session_contexts::session_contexts;

/// Seconds of measuring, unless suite or command line say otherwise.
const BUDGET: f64 = 250.0;

/// The margin in microseconds a call, unless suite or command line say otherwise.
const MARGIN_US: f64 = 1.0;

/// The most epochs, unless suite or command line say otherwise.
const EPOCHS: u32 = 8;

/// The most rounds of a cell in an epoch: beyond it, another epoch is a better use of time.
const ROUNDS: u32 = 60;

/// Seconds after which a call counts as a timeout, unless suite or command line say otherwise.
const CALL_TIMEOUT: f64 = 10.0;

impl Options {
    /// The disk of the workspaces.
    pub(super) fn scratch(
        &self,
        workloads: &[Arc<Workload>],
        arms: usize,
    ) -> anyhow::Result<ScratchDisk> {
        ScratchDisk::choose(self.scratch_dir.as_deref(), scratch_bytes(workloads, arms))
    }

    /// The command line that plans the same run.
    pub(super) fn command(&self, seed: u64, schedule: &Schedule, call_timeout: f64) -> String {
        let mut words = vec!["ctxbench run".to_owned(), format!("--suite {}", self.suite)];
        words.extend(
            self.workload
                .iter()
                .map(|name| format!("--workload {name}")),
        );
        for state in &self.state {
            words.push(format!("--state {}", CacheState::from(*state).name()));
        }
        words.extend(self.backend.iter().map(|name| format!("--backend {name}")));
        words.push(format!(
            "--budget {} --epochs {} --rounds {} --seed {seed}",
            schedule.budget_ms as f64 / 1000.0,
            schedule.epochs,
            schedule.rounds
        ));
        words.push(format!("--margin {}", self.margin));
        let margin_us = self.margin_us.iter();
        words.extend(margin_us.map(|margin| format!("--margin-us {margin}")));
        words.push(format!("--call-timeout {call_timeout}"));
        words.push(format!("--placement {}", self.placement.name()));
        words.extend(self.policy.iter().map(|name| format!("--policy {name}")));
        words.extend(self.prices.option());
        let scratch = self.scratch_dir.iter();
        words.extend(scratch.map(|dir| format!("--scratch-dir {}", dir.display())));
        words.extend(
            self.slowed
                .iter()
                .map(|percent| format!("--slowed {percent}")),
        );
        words.extend(self.no_probes.then(|| "--no-probes".to_owned()));
        words.extend(self.no_model_files.then(|| "--no-model-files".to_owned()));
        words.join(" ")
    }

    pub(super) fn planned(&self, registry: &Registry) -> anyhow::Result<PreparedRun> {
        let mut suite = self.suite()?;
        if let Err(problem) = suite.check_duplicates() {
            bail!("{problem}");
        }
        let workloads = load_workloads(&suite)?;
        let mut names = BTreeSet::new();
        if let Some(twice) = workloads.iter().find(|w| !names.insert(&w.name)) {
            bail!("two workloads have the name {}", twice.name);
        }
        for (entry, workload) in suite.workloads.iter().zip(&workloads) {
            for state in &entry.states {
                if !workload.states.contains(state) {
                    let name = state.name();
                    let states: Vec<&str> =
                        workload.states.iter().map(|state| state.name()).collect();
                    bail!(
                        "workload {} has no cache state {name} (it has {}); see `ctxbench list`",
                        entry.name,
                        states.join(", ")
                    );
                }
            }
        }
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        for name in &suite.backends {
            backends.push(registry.find(name)?.into());
        }
        if let Some(recorded) = recording_instead(registry, &backends) {
            backends.push(recorded);
        }
        // A plan names arms with their servers.
        let only = std::mem::take(&mut suite.only).into_iter();
        let only =
            only.map(|(name, workloads)| Ok((registry.find(&name)?.describe().name, workloads)));
        suite.only = only.collect::<anyhow::Result<_>>()?;
        let policy = self.policy(&suite)?;
        let mut arms = arms(backends);
        for (name, other) in &suite.against {
            let other = registry.find(other)?.describe().name;
            let name = registry.find(name)?.describe().name;
            for arm in arms.iter_mut().filter(|arm| arm.name == name) {
                arm.against = Some(other.clone());
            }
        }
        arms.extend(self.slowed(&arms));
        let schedule = self.schedule(&suite);
        let call_timeout = self
            .call_timeout
            .or(suite.call_timeout)
            .unwrap_or(CALL_TIMEOUT);
        let seed = self.seed.unwrap_or_else(time_seed);
        let inputs = Inputs {
            suite: &suite,
            arms: &arms,
            workloads: &workloads,
            result_tokens: &agent_tokens(&workloads),
            can_drop_caches: backend::can_drop_caches(),
        };
        let given = Plan {
            suite: self.suite.clone(),
            created: environment::now(),
            ctxbench: environment::ctxbench(),
            command: self.command(seed, &schedule, call_timeout),
            seed,
            schedule,
            margins: Margins {
                relative: self.margin / 100.0,
                absolute_ns: self.margin_us.or(suite.margin_us).unwrap_or(MARGIN_US) * 1000.0,
                ..Margins::default()
            },
            settings: Settings {
                call_timeout_ms: (call_timeout * 1000.0).ceil() as u64,
                placement: self.placement.name().to_owned(),
            },
            policy: policy.as_ref().map(|policy| PlannedPolicy {
                name: policy.policy.name.clone(),
                sha256: identity(&policy.text),
            }),
            policies: match self.named_policy(&suite) {
                None => identities(),
                Some(_) => BTreeMap::new(),
            },
            ..Plan::default()
        };
        let plan = plan::plan(&inputs, given);
        if let Some(policy) = &policy {
            let unknown = policy.check_names_before_run(&plan)?;
            if !unknown.is_empty() {
                eprintln!(
                    "warning: policy {} names arms that neither ctxbench nor this run has: {} (correct them, or decide with a run that has them)",
                    policy.policy.name,
                    unknown.join(", ")
                );
            }
            if !policy.policy.has_candidate(&plan) {
                eprintln!(
                    "warning: no arm of this run is a candidate of policy {}: {} (name some by --backend)",
                    policy.policy.name, policy.policy.candidates
                );
            }
            let missing = policy.policy.unanswered(&plan);
            if !missing.is_empty() {
                eprintln!(
                    "warning: policy {} needs more evidence than this run makes: {}",
                    policy.policy.name,
                    missing.join(", ")
                );
            }
        }
        let scratch = self.scratch(&workloads, arms.len())?;
        let environment = environment(scratch.receipt()).context("looking at the machine")?;
        let policy = policy.as_ref().map(|policy| policy.text.as_str());
        let contexts = session_contexts(&workloads);
        if !contexts.is_empty() {
            // Check prices now, not after minutes of measuring.
            if let Err(problem) = check_prices(&self.prices.read()?, &environment::today()) {
                bail!("the report of this run could not be priced: {problem}");
            }
        }
        let dir = match &self.out {
            Some(dir) => dir.clone(),
            None => {
                let suite = Path::new(&self.suite).file_stem().unwrap_or_default();
                environment::new_run_dir(&self.results, &plan.created, &suite.to_string_lossy())?
            }
        };
        let writer = Writer::create(&dir, &plan, &environment, policy, &contexts)?;
        Ok(PreparedRun {
            dir,
            plan,
            writer,
            before: None,
            workloads,
            arms,
            scratch,
            environment,
        })
    }

    pub(super) fn schedule(&self, suite: &Suite) -> Schedule {
        let budget = self.budget.or(suite.budget).unwrap_or(BUDGET);
        let epochs = self.epochs.or(suite.epochs).unwrap_or(EPOCHS);
        Schedule {
            budget_ms: (budget * 1000.0).ceil() as u64,
            epochs,
            rounds: self.rounds.or(suite.rounds).unwrap_or(ROUNDS),
            looks: Looks::within(epochs),
        }
    }

    /// An arm for each planted slowdown of FUSE over memory, and an identical arm. Without FUSE over memory,
    /// the baseline is slowed, without an identical arm.
    pub(super) fn slowed(&self, arms: &[LiveArm]) -> Vec<LiveArm> {
        let on_mount = arms.iter().find(|arm| arm.name == FLOOR);
        let planted_on = on_mount.or_else(|| arms.iter().find(|arm| arm.name == BASELINE));
        let Some(base) = planted_on.filter(|_| !self.slowed.is_empty()) else {
            return Vec::new();
        };
        let again = on_mount.map(|_| 0);
        let percents = again.into_iter().chain(self.slowed.iter().copied());
        let slowed = percents.map(|percent| LiveArm {
            name: match percent {
                0 => format!("{}-again", base.name),
                _ => format!("{}-slowed-{percent}", base.name),
            },
            slowed_percent: Some(percent),
            against: on_mount.map(|floor| floor.name.clone()),
            ..base.clone()
        });
        slowed.collect()
    }

    /// The policy that command line or suite name instead of the built-in ones; `none` decides nothing.
    fn named_policy<'a>(&'a self, suite: &'a Suite) -> Option<&'a str> {
        self.policy.as_deref().or(suite.policy.as_deref())
    }

    /// Reads and checks the run's own policy, if it has one.
    pub(super) fn policy(&self, suite: &Suite) -> anyhow::Result<Option<OwnPolicy>> {
        let Some(name) = self.named_policy(suite).filter(|name| *name != "none") else {
            return Ok(None);
        };
        OwnPolicy::named(name).map(Some)
    }

    /// The suite, narrowed by the options.
    pub(super) fn suite(&self) -> anyhow::Result<Suite> {
        let mut suite = catalogue::suite(&self.suite)?;
        if !self.workload.is_empty() {
            let known = std::mem::take(&mut suite.workloads);
            for name in &self.workload {
                let entry = known.iter().find(|entry| entry.name == *name).cloned();
                suite.workloads.push(match entry {
                    Some(entry) => entry,
                    None => workloads::suite::SuiteWorkload {
                        name: name.clone(),
                        states: catalogue::workload(name)?.states,
                        epochs: None,
                    },
                });
            }
        }
        if !self.state.is_empty() {
            let wanted: Vec<CacheState> = self.state.iter().copied().map(Into::into).collect();
            for entry in &mut suite.workloads {
                if !self.workload.is_empty() {
                    entry.states = catalogue::workload(&entry.name)?.states;
                }
                entry.states.retain(|state| wanted.contains(state));
            }
            suite.workloads.retain(|entry| !entry.states.is_empty());
            if suite.workloads.is_empty() {
                bail!("none of the workloads has any of the states asked for; see `ctxbench list`");
            }
        }
        if !self.backend.is_empty() {
            suite.backends.clone_from(&self.backend);
        }
        if !suite.backends.iter().any(|name| name == BASELINE) {
            suite.backends.insert(0, BASELINE.to_owned());
        }
        // A backend that the user names takes part in everything.
        let named = &self.backend;
        suite.only.retain(|name, _| !named.contains(name));
        for workloads in suite.only.values_mut() {
            workloads.retain(|name| suite.workloads.iter().any(|entry| entry.name == *name));
        }
        let only = &suite.only;
        suite
            .backends
            .retain(|name| only.get(name).is_none_or(|workloads| !workloads.is_empty()));
        let backends = &suite.backends;
        suite.only.retain(|name, _| backends.contains(name));
        let is_there = |name: &String| backends.contains(name);
        suite
            .against
            .retain(|name, other| is_there(name) && is_there(other));
        suite.probes &= !self.no_probes;
        let is_narrowed =
            !(self.workload.is_empty() && self.backend.is_empty() && self.state.is_empty());
        if self.no_model_files || is_narrowed {
            suite.model_files = None;
        }
        Ok(suite)
    }
}

/// A run that can be measured.
pub(super) struct PreparedRun {
    pub(super) dir: PathBuf,
    pub(super) plan: Plan,
    pub(super) writer: Writer,
    /// The records of the run's earlier part, if it is resumed.
    pub(super) before: Option<rundir::Run>,
    pub(super) workloads: Vec<Arc<Workload>>,
    pub(super) arms: Vec<LiveArm>,
    pub(super) scratch: ScratchDisk,
    pub(super) environment: Environment,
}

/// Estimate of the bytes that workspaces take on the scratch at a time, logs and journals included.
fn scratch_bytes(workloads: &[Arc<Workload>], arms: usize) -> u64 {
    let largest = workloads
        .iter()
        .map(|workload| pass_bytes(workload))
        .max()
        .unwrap_or(0);
    // A store holds content in its log and its database. Finished passes of an arm keep up to 32 MiB.
    (1 << 30) + arms as u64 * 3 * (2 * largest + (32 << 20))
}

fn load_workloads(suite: &Suite) -> anyhow::Result<Vec<Arc<Workload>>> {
    let workloads = suite.workloads.iter();
    let workloads = workloads.map(|entry| Ok(Arc::new(catalogue::workload(&entry.name)?)));
    workloads.collect()
}

fn agent_tokens(workloads: &[Arc<Workload>]) -> BTreeMap<String, u64> {
    let agents = workloads
        .iter()
        .filter(|w| w.name.starts_with("agent/") && !w.is_recorded)
        .filter(|w| !matches!(w.session, SessionSource::None));
    agents
        .map(|workload| (workload.name.clone(), result_tokens(&workload.script)))
        .collect()
}

/// The backend that replays recorded answers, if the run needs a live model and none is available.
fn recording_instead(
    registry: &Registry,
    backends: &[Arc<dyn Backend>],
) -> Option<Arc<dyn Backend>> {
    const LIVE: &str = "llm-history-live";
    const RECORDED: &str = "llm-history-recorded";
    let named = |name: &str| {
        let mut all = backends.iter();
        all.find(|backend| backend.describe().name == name)
    };
    let missing = named(LIVE)?.versions().err()?;
    if named(RECORDED).is_some() {
        return None;
    }
    eprintln!(
        "no live model: {missing}\n  {RECORDED} replays the answers of an earlier one in its place, as an arm of its own"
    );
    registry.find(RECORDED).ok().map(Arc::from)
}

/// A seed that fits into TOML's integers.
fn time_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64 & (i64::MAX as u64))
}
