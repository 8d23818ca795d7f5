//! Makes the plan of a new run from its suite and options.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use arms::backend::{self, Backend};
use backends::registry::Registry;
use figures::context::check_prices;
use figures::summary::FLOOR;
use rundir::{
    Arm, Environment, Margins, Placement, Plan, PlannedPolicy, Schedule, Settings, Shard, SkippedCell, Writer,
};
use verdicts::decide::{identities, identity};
use workloads::catalogue;
use workloads::definition::{CacheState, SessionSource, Workload};
use workloads::render::result_tokens;
use workloads::suite::{ONE_SECTION, Suite, SuiteSection, SuiteWorkload};

use super::{Options, RunPlace};
use crate::environment::{self, environment};
use crate::named_backends::{check_usable, try_mounts};
use crate::reporting::OwnPolicy;
use crate::session_contexts::session_contexts;
use runner::cell::pass_bytes;
use runner::plan::{self, BASELINE, Inputs, LiveArm, arms};
use runner::schedule::all_cells;
use runner::scratch::ScratchDisk;
use trial::interrupt::Interrupt;

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
    pub(super) fn scratch(&self, workloads: &[Arc<Workload>], arms: usize) -> anyhow::Result<ScratchDisk> {
        ScratchDisk::choose(self.scratch_dir.as_deref(), scratch_bytes(workloads, arms))
    }

    /// The command line that plans the same run.
    pub(super) fn command(&self, seed: u64, call_timeout: f64) -> String {
        if let Some(command) = &self.command {
            return command.clone();
        }
        let mut words = vec!["ctxbench run".to_owned(), format!("--suite {}", self.suite)];
        words.extend(self.workload.iter().map(|name| format!("--workload {name}")));
        for state in &self.state {
            words.push(format!("--state {}", CacheState::from(*state).name()));
        }
        words.extend(self.backend.iter().map(|name| format!("--backend {name}")));
        words.extend(self.budget.iter().map(|seconds| format!("--budget {seconds}")));
        words.extend(self.epochs.iter().map(|most| format!("--epochs {most}")));
        words.extend(self.rounds.iter().map(|most| format!("--rounds {most}")));
        words.push(format!("--seed {seed} --margin {}", self.margin));
        let margin_us = self.margin_us.iter();
        words.extend(margin_us.map(|margin| format!("--margin-us {margin}")));
        words.push(format!("--call-timeout {call_timeout}"));
        let placement = self.placement.iter();
        words.extend(placement.map(|placement| format!("--placement {}", placement.planned().name())));
        words.extend(self.policy.iter().map(|name| format!("--policy {name}")));
        words.extend(self.prices.option());
        let scratch = self.scratch_dir.iter();
        words.extend(scratch.map(|dir| format!("--scratch-dir {}", dir.display())));
        words.extend(self.slowed.iter().map(|percent| format!("--slowed {percent}")));
        words.extend(self.no_probes.then(|| "--no-probes".to_owned()));
        words.extend(self.no_model_files.then(|| "--no-model-files".to_owned()));
        words.extend(self.shard.map(|shard| shard_option(&shard)));
        words.join(" ")
    }

    /// Plans a run. Backends that a file defines are tried in `scratch` first. `None` after an interrupt.
    pub(super) fn planned(
        &self,
        registry: &Registry,
        scratch: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Option<PreparedRun>> {
        // Read now, not after minutes of measuring.
        let prices = self.prices.read()?;
        let mut suite = self.suite()?;
        if let Err(problem) = suite.check_duplicates() {
            bail!("{problem}");
        }
        let workloads = load_workloads(&mut suite)?;
        for entry in suite.workloads() {
            let workload = workloads.iter().find(|workload| workload.name == entry.name);
            let Some(workload) = workload else { continue };
            for state in &entry.states {
                if !workload.states.contains(state) {
                    let name = state.name();
                    let states: Vec<&str> = workload.states.iter().map(|state| state.name()).collect();
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
        // What the user names is measured, and nothing instead of it.
        if self.backend.is_empty()
            && let Some(recorded) = recording_instead(registry, &backends)
        {
            backends.push(recorded);
        }
        let named = self.backend.iter();
        let named = named.map(|name| Ok(registry.find(name)?.describe().name));
        let named: BTreeSet<String> = named.collect::<anyhow::Result<_>>()?;
        // A plan names arms with their servers.
        let only = std::mem::take(&mut suite.only).into_iter();
        let only = only.map(|(name, workloads)| Ok((registry.find(&name)?.describe().name, workloads)));
        suite.only = only.collect::<anyhow::Result<_>>()?;
        for section in &mut suite.sections {
            if let Some(names) = &mut section.backends {
                for name in names {
                    *name = registry.find(name)?.describe().name;
                }
            }
        }
        let policy = self.policy(&suite)?;
        let mut arms = arms(backends);
        check_names(&arms)?;
        let is_named = |name: &str| named.contains(name);
        check_usable(&arms, is_named)?;
        for (name, other) in &suite.against {
            let other = registry.find(other)?.describe().name;
            let name = registry.find(name)?.describe().name;
            for arm in arms.iter_mut().filter(|arm| arm.name == name) {
                arm.against = Some(other.clone());
            }
        }
        if !try_mounts(&mut arms, scratch, interrupt)? {
            return Ok(None);
        }
        check_usable(&arms, is_named)?;
        arms.extend(self.slowed(&arms));
        let schedule = self.schedule(&suite, &arms);
        let call_timeout = self.call_timeout.or(suite.call_timeout).unwrap_or(CALL_TIMEOUT);
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
            command: self.command(seed, call_timeout),
            seed,
            shard: self.shard,
            schedule,
            margins: Margins {
                relative: self.margin / 100.0,
                absolute_ns: self.margin_us.or(suite.margin_us).unwrap_or(MARGIN_US) * 1000.0,
                ..Margins::default()
            },
            settings: Settings { call_timeout_ms: (call_timeout * 1000.0).ceil() as u64 },
            policy: policy
                .as_ref()
                .map(|policy| PlannedPolicy { name: policy.policy.name.clone(), sha256: identity(&policy.text) }),
            policies: match self.named_policy(&suite) {
                None => identities(),
                Some(_) => self.further_policies.clone(),
            },
            ..Plan::default()
        };
        let plan = plan::plan(&inputs, given);
        check_shard(&plan)?;
        check_cells(&plan, is_named, |_| !self.workload.is_empty())?;
        check_budget(&plan, &workloads, &arms)?;
        if let Some(policy) = &policy {
            let unknown = policy.check_names_before_run(&plan)?;
            if !unknown.is_empty() {
                eprintln!(
                    "warning: policy {} names unknown arms: {} (correct the names, or decide with a run that has these arms)",
                    policy.policy.name,
                    unknown.join(", ")
                );
            }
            policy.policy.check_baselines(&policy.file, &policy.text, &plan)?;
            if !policy.policy.has_candidate(&plan) {
                eprintln!(
                    "warning: no arm of this run is a candidate of policy {}: {} (name one with --backend)",
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
        let environment = environment(scratch.receipt()).context("reading the properties of the machine")?;
        let policy = policy.as_ref().map(|policy| policy.text.as_str());
        let contexts = session_contexts(&workloads);
        if !contexts.is_empty()
            && let Err(problem) = check_prices(&prices, &environment::today())
        {
            bail!("the report of this run would have no prices: {problem}");
        }
        let dir = match &self.out {
            Some(RunPlace::Directory(dir)) => dir.clone(),
            Some(RunPlace::Bucket(_)) | None => {
                let suite = Path::new(&self.suite).file_stem().unwrap_or_default();
                environment::new_run_dir(&self.results, &plan.created, &suite.to_string_lossy())?
            }
        };
        let writer = Writer::create(&dir, &plan, &environment, policy, &contexts)?;
        Ok(Some(PreparedRun { dir, plan, writer, before: None, workloads, arms, scratch, environment }))
    }

    /// The sections of the suite. `--budget` is shared among them in proportion to their own budgets.
    pub(super) fn schedule(&self, suite: &Suite, arms: &[LiveArm]) -> Schedule {
        let own = |section: &SuiteSection| section.budget.unwrap_or(BUDGET);
        let all: f64 = suite.sections.iter().map(own).sum();
        let share = self.budget.map_or(1.0, |budget| budget / all);
        let budget = |section: &SuiteSection| own(section) * share;
        Schedule { sections: plan::sections(suite, arms, budget, EPOCHS, ROUNDS) }
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
            self.only_named_workloads(&mut suite)?;
        }
        if !self.state.is_empty() {
            let wanted: Vec<CacheState> = self.state.iter().copied().map(Into::into).collect();
            for entry in suite.sections.iter_mut().flat_map(|one| &mut one.workloads) {
                entry.states.retain(|state| wanted.contains(state));
            }
            drop_empty(&mut suite);
            if suite.sections.is_empty() {
                bail!(
                    "no workload has any of the requested cache states\n  fix: name another --state or --workload; `ctxbench list` shows the states of each workload"
                );
            }
        }
        if let Some(placement) = self.placement {
            place_all(&mut suite, placement.planned());
        }
        for section in &mut suite.sections {
            section.epochs = self.epochs.or(section.epochs);
            section.rounds = self.rounds.or(section.rounds);
            if !self.backend.is_empty() {
                section.backends = None;
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
        let sections = &suite.sections;
        let is_left = |name: &String| {
            let mut entries = sections.iter().flat_map(|section| &section.workloads);
            entries.any(|entry| entry.name == *name)
        };
        for workloads in suite.only.values_mut() {
            workloads.retain(is_left);
        }
        let only = &suite.only;
        suite.backends.retain(|name| only.get(name).is_none_or(|workloads| !workloads.is_empty()));
        let backends = &suite.backends;
        suite.only.retain(|name, _| backends.contains(name));
        let is_there = |name: &String| backends.contains(name);
        suite.against.retain(|name, other| is_there(name) && is_there(other));
        suite.probes &= !self.no_probes;
        let is_narrowed = !(self.workload.is_empty() && self.backend.is_empty() && self.state.is_empty());
        if self.no_model_files || is_narrowed {
            suite.model_files = None;
        }
        Ok(suite)
    }

    /// Leaves one section, of the workloads that the user names. It is the suite's own if that has only one, and else one
    /// with defaults. A workload is measured in the states in which the suite places it freely, or in all of its own if the
    /// suite does not have it or the user names states.
    fn only_named_workloads(&self, suite: &mut Suite) -> anyhow::Result<()> {
        let mut entries = Vec::new();
        for name in &self.workload {
            let own = catalogue::workload(name)?.states;
            let sections = suite.sections.iter().filter(|section| !section.shared_cpu);
            let known = sections.flat_map(|section| &section.workloads);
            let known: Vec<CacheState> =
                known.filter(|entry| entry.name == *name).flat_map(|entry| entry.states.iter().copied()).collect();
            let states = if known.is_empty() || !self.state.is_empty() { own } else { known };
            entries.push(SuiteWorkload { name: name.clone(), states });
        }
        let section = match &suite.sections[..] {
            [only] => SuiteSection { workloads: entries, ..only.clone() },
            _ => SuiteSection::of(ONE_SECTION, entries),
        };
        suite.sections = vec![section];
        Ok(())
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
    let largest = workloads.iter().map(|workload| pass_bytes(workload)).max().unwrap_or(0);
    let filler = workloads.iter().map(|workload| workload.script.filler.disk_bytes()).max().unwrap_or(0);
    // A store holds content in its log and its database. Finished passes of an arm keep up to 32 MiB. Filler files are made once
    // for a cell, and a store takes less than an eighth beside their content.
    (1 << 30) + arms as u64 * (3 * (2 * largest + (32 << 20)) + filler + filler / 8)
}

/// Removes workloads without states, and sections without workloads.
fn drop_empty(suite: &mut Suite) {
    for section in &mut suite.sections {
        section.workloads.retain(|entry| !entry.states.is_empty());
    }
    suite.sections.retain(|section| !section.workloads.is_empty());
}

/// Gives all sections one placement. A cell that two sections then have stays in the first.
fn place_all(suite: &mut Suite, placement: Placement) {
    let mut known = BTreeSet::new();
    for section in &mut suite.sections {
        section.shared_cpu = placement == Placement::SharedCpu;
        for entry in &mut section.workloads {
            let name = entry.name.clone();
            entry.states.retain(|state| known.insert((name.clone(), *state)));
        }
    }
    drop_empty(suite);
}

/// Loads the workloads of a suite, each once, and gives their entries the workloads' names: an entry may name a file.
fn load_workloads(suite: &mut Suite) -> anyhow::Result<Vec<Arc<Workload>>> {
    let mut loaded: Vec<(String, Arc<Workload>)> = Vec::new();
    for entry in suite.sections.iter_mut().flat_map(|one| &mut one.workloads) {
        let known = loaded.iter().find(|(place, _)| *place == entry.name);
        let workload = match known {
            Some((_, workload)) => Arc::clone(workload),
            None => {
                let workload = Arc::new(catalogue::workload(&entry.name)?);
                if loaded.iter().any(|(_, other)| other.name == workload.name) {
                    bail!("two workloads have the name {}\n  fix: give one of them another `name`", workload.name);
                }
                loaded.push((entry.name.clone(), Arc::clone(&workload)));
                workload
            }
        };
        entry.name.clone_from(&workload.name);
    }
    Ok(loaded.into_iter().map(|(_, workload)| workload).collect())
}

/// The option that selects a shard, as it stands in the command of its plan.
pub fn shard_option(shard: &Shard) -> String {
    format!("--shard {shard}")
}

/// Refuses more shards than the plan has cells: some of them would measure nothing.
fn check_shard(plan: &Plan) -> anyhow::Result<()> {
    let cells = plan.cell_count();
    match plan.shard.filter(|shard| shard.of as usize > cells) {
        Some(shard) => bail!(
            "shard {shard}: the plan has only {cells} cells (workload × cache state)\n  fix: use at most {cells} shards"
        ),
        None => Ok(()),
    }
}

/// Refuses two backends that have one name: their passes could not be told apart.
fn check_names(arms: &[LiveArm]) -> anyhow::Result<()> {
    let mut known: BTreeMap<&str, Option<PathBuf>> = BTreeMap::new();
    for arm in arms {
        let file = arm.backend.describe().file;
        let Some(first) = known.insert(&arm.name, file.clone()) else {
            continue;
        };
        match (first, file) {
            (Some(first), Some(second)) if first != second => bail!(
                "{} and {} both have the name {} (give each file a name of its own)",
                first.display(),
                second.display(),
                arm.name
            ),
            _ => bail!("the backend {} is named twice (name it once)", arm.name),
        }
    }
    Ok(())
}

/// Refuses a plan without a cell of a backend or a workload that the user names; with the reasons.
fn check_cells(
    plan: &Plan,
    is_named_backend: impl Fn(&str) -> bool,
    is_named_workload: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    // Of all shards together: a shard may have no cell of a backend that others measure.
    let plan = &Plan { shard: None, ..plan.clone() };
    let cells = all_cells(plan);
    let reasons = |is_meant: &dyn Fn(&SkippedCell) -> bool| {
        let skipped = plan.skipped.iter().filter(|cell| is_meant(cell));
        let unique: BTreeSet<&str> = skipped.map(|cell| cell.reason.as_str()).collect();
        unique.into_iter().collect::<Vec<_>>().join("; ")
    };
    let is_empty = |at: usize| cells.iter().all(|cell| !cell.arms.contains(&at));
    let mut arms = plan.arms.iter().enumerate();
    let without = |(at, arm): &(usize, &Arm)| is_named_backend(&arm.name) && is_empty(*at);
    if !plan.workloads.is_empty()
        && let Some((_, arm)) = arms.find(without)
    {
        bail!(
            "no cell of this run can be measured on {}: {}\n  fix: name a workload or a cache state that fits it, or leave it out",
            arm.name,
            reasons(&|cell| cell.arm == arm.name)
        );
    }
    for (at, workload) in plan.workloads.iter().enumerate() {
        let mut of_workload = cells.iter().filter(|cell| cell.workload == at);
        if is_named_workload(&workload.name) && of_workload.all(|cell| cell.arms.is_empty()) {
            bail!(
                "workload {} cannot be measured here: {}",
                workload.name,
                reasons(&|cell| cell.workload == workload.name)
            );
        }
    }
    Ok(())
}

/// Seconds by which the share of a section may have been rounded down.
const ROUNDED: f64 = 0.001;

/// Refuses a plan with a section whose budget is shorter than the time that it needs on any machine.
fn check_budget(plan: &Plan, workloads: &[Arc<Workload>], arms: &[LiveArm]) -> anyhow::Result<()> {
    // Of all shards together, so that none is refused alone.
    let plan = &Plan { shard: None, ..plan.clone() };
    let (mut short, mut factor) = (Vec::new(), 1.0_f64);
    for (at, section) in plan.schedule.sections.iter().enumerate() {
        let needs = plan::least_time(plan, at, workloads, arms).as_secs_f64();
        let has = section.budget_ms as f64 / 1000.0;
        if needs > has {
            short.push(format!("section {} needs {needs:.1} s, but has {has:.1} s", section.name));
            factor = factor.max((needs + ROUNDED) / has);
        }
    }
    if short.is_empty() {
        return Ok(());
    }
    let whole = plan.schedule.budget_ms() as f64 / 1000.0 + ROUNDED * plan.schedule.sections.len() as f64;
    bail!(
        "the plan does not fit its budget: {}; each section has a fixed share of the budget, so the run needs at least {:.0} s\n  fix: give the run --budget {1:.0} or more, or fewer workloads, states or backends",
        short.join(", "),
        (whole * factor).ceil()
    );
}

fn agent_tokens(workloads: &[Arc<Workload>]) -> BTreeMap<String, u64> {
    let agents = workloads
        .iter()
        .filter(|w| w.name.starts_with("agent/") && !w.is_recorded)
        .filter(|w| !matches!(w.session, SessionSource::None));
    agents.map(|workload| (workload.name.clone(), result_tokens(&workload.script))).collect()
}

/// The backend that replays recorded answers, if the run needs a live model and none is available.
fn recording_instead(registry: &Registry, backends: &[Arc<dyn Backend>]) -> Option<Arc<dyn Backend>> {
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
    eprintln!("no live model: {missing}\n  the arm {RECORDED} replays recorded answers instead");
    registry.find(RECORDED).ok().map(Arc::from)
}

/// A seed that fits into TOML's integers.
fn time_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64 & (i64::MAX as u64))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    fn options(line: &str) -> Options {
        let words = std::iter::once("run").chain(line.split_whitespace());
        Command::try_parse_from(words).unwrap().options
    }

    /// The sections of the default suite under these options: name, budget in milliseconds, epochs, cells.
    fn sections(line: &str) -> Vec<(String, u64, u32, Vec<String>)> {
        let options = options(line);
        let mut suite = options.suite().unwrap();
        load_workloads(&mut suite).unwrap();
        let schedule = options.schedule(&suite, &[]);
        let sections = schedule.sections.into_iter().map(|section| {
            let cells = section.cells.into_iter();
            let cells =
                cells.flat_map(|(workload, states)| states.into_iter().map(move |state| format!("{workload} {state}")));
            (section.name, section.budget_ms, section.epochs, cells.collect())
        });
        sections.collect()
    }

    #[test]
    fn the_scratch_has_room_for_the_filler_files_of_every_arm() {
        let needed = |name: &str| scratch_bytes(&[Arc::new(catalogue::workload(name).unwrap())], 3);
        let (small, large) = (needed("micro/database-100"), needed("micro/database-10000"));
        let filler = 39_600 * 250_000;
        assert!(large - small >= 3 * filler && large < 4 * filler, "{small} {large}");
    }

    #[test]
    fn a_number_that_an_option_does_not_take_is_refused_with_its_range() {
        for (line, told) in [
            ("--budget -3", "above 0"),
            ("--margin -1", "above 0"),
            ("--margin-us -1", "from 0"),
            ("--call-timeout -1", "above 0"),
            ("--epochs -1", "-1 is not in 3..=100"),
            ("--rounds -1", "-1 is not in 1.."),
        ] {
            let words = std::iter::once("run").chain(line.split_whitespace());
            let error = Command::try_parse_from(words).err().unwrap().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
    }

    #[test]
    fn a_price_list_that_cannot_be_read_is_refused_before_anything_is_measured() {
        // A micro workload has no session, whose tokens would cost something.
        let options = options("--workload micro/stat --prices none.toml");
        let scratch = tempfile::tempdir().unwrap();
        let planned = options.planned(&Registry::default(), scratch.path(), &Interrupt::never());
        let error = format!("{:#}", planned.err().unwrap());
        assert!(error.contains("none.toml: No such file"), "{error}");
    }

    #[test]
    fn a_budget_is_shared_in_proportion_and_options_hold_in_all_sections() {
        let (own, half) = (sections(""), sections("--epochs 4"));
        assert!(own.len() > 3 && own.iter().any(|section| section.2 == 14));
        assert!(half.iter().all(|section| section.2 == 4));
        let all: u64 = own.iter().map(|section| section.1).sum();
        let half = sections(&format!("--budget {}", all as f64 / 2000.0));
        for (own, half) in own.iter().zip(&half) {
            assert_eq!((&own.0, own.1 / 2), (&half.0, half.1));
        }
    }

    #[test]
    fn named_workloads_are_one_section_that_is_placed_freely() {
        let found = sections("--workload micro/stat --workload micro/stat-100000");
        let [(name, _, epochs, cells)] = &found[..] else {
            panic!("{found:?}");
        };
        assert_eq!((&name[..], *epochs), ("all", EPOCHS));
        let expected = ["micro/stat hot", "micro/stat lukewarm", "micro/stat-100000 hot"];
        assert_eq!(cells[..], expected);
        let shared = sections("--workload micro/stat --state hot --placement shared-cpu");
        assert_eq!(shared[0].3, ["micro/stat hot-shared-cpu"]);
        // The only section of a suite keeps its own numbers.
        let found = sections("--suite hosts --workload agent/handoff");
        assert_eq!((found.len(), found[0].1, found[0].2), (1, 600_000, 3));
    }

    #[test]
    fn one_placement_for_all_sections_measures_no_cell_twice() {
        let shared = sections("--placement shared-cpu");
        let cells: Vec<&String> = shared.iter().flat_map(|section| &section.3).collect();
        assert!(cells.iter().all(|cell| cell.ends_with("-shared-cpu")));
        let unique: BTreeSet<&&String> = cells.iter().collect();
        assert_eq!(unique.len(), cells.len());
        assert!(shared.iter().all(|section| section.0 != "shared-cpu"));
        let free = sections("--placement free");
        assert!(free.iter().flat_map(|section| &section.3).all(|cell| !cell.contains("shared")));
    }

    /// The plan of these options on a machine that has everything, with its workloads and arms.
    fn plan_of(line: &str, shard: Option<Shard>) -> (Plan, Vec<Arc<Workload>>, Vec<LiveArm>) {
        let options = options(line);
        let mut suite = options.suite().unwrap();
        let workloads = load_workloads(&mut suite).unwrap();
        let registry = Registry::default();
        let backends = suite.backends.iter();
        let backends = backends.map(|name| registry.find(name).unwrap().into());
        let mut arms = arms(backends.collect());
        for arm in &mut arms {
            arm.versions = Ok(BTreeMap::new());
        }
        let inputs = Inputs {
            suite: &suite,
            arms: &arms,
            workloads: &workloads,
            result_tokens: &BTreeMap::new(),
            can_drop_caches: true,
        };
        let given = Plan { shard, schedule: options.schedule(&suite, &arms), ..Plan::default() };
        (plan::plan(&inputs, given), workloads, arms)
    }

    #[test]
    fn a_named_backend_without_a_cell_is_refused_and_one_with_a_cell_in_another_shard_is_not() {
        let check = |line: &str, name: &str, shard| {
            let (plan, ..) = plan_of(line, shard);
            check_cells(&plan, |arm| arm == name, |_| true)
        };
        let line = "--workload micro/stat --workload micro/read-1k --state hot --backend sqlite";
        check(line, "sqlite", None).unwrap();
        for index in 0..2 {
            check(line, "sqlite", Some(Shard { index, of: 2 })).unwrap();
        }
        let refused = check(&format!("{line} --backend state"), "state", None).unwrap_err();
        let refused = refused.to_string();
        for part in ["measured on state: ", "tool calls only", "fix: name a workload"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        // A suite's own arm may have no cell.
        check(&format!("{line} --backend state"), "sqlite", None).unwrap();
        let (_, _, mut arms) = plan_of(line, None);
        check_names(&arms).unwrap();
        arms.push(arms[0].clone());
        let refused = check_names(&arms).unwrap_err().to_string();
        assert!(refused.contains("direct is named twice"), "{refused}");
    }

    #[test]
    fn a_plan_that_cannot_fit_its_budget_is_refused_with_the_time_that_it_needs() {
        let check = |line: &str| {
            let (plan, workloads, arms) = plan_of(line, None);
            check_budget(&plan, &workloads, &arms)
        };
        check("").unwrap();
        let refused = check("--budget 4").unwrap_err().to_string();
        for part in ["section empty-caches needs", "the run needs at least", "--budget"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        let needs = refused.split("--budget ").nth(1).unwrap();
        let needs = needs.split(' ').next().unwrap();
        check(&format!("--budget {needs}")).unwrap();
    }
}
