//! The schedule of a fault run: the order of scenarios, backends and seeds, and the recording of their
//! outcomes.
//! The faults live in `injections`.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arms::backend::{Backend, WorkspaceConfig};
use rundir::RunError;
use rundir::Writer;
use rundir::faults::{CrashPoints, FaultOutcome, KILLED_DAEMON, POWER_LOSS, Status};
use workloads::fault::{Group, Scenario, ScenarioRequirement};

use super::bed::{ScenarioError, StepResult, TestBed, infra};
use super::crash_run::{self, Goal};
use super::injections::{self, power_cut};
use super::interrupt::Interrupt;
use super::power_loss::store_of;

/// The time that a series of kills or power cuts leaves to each later one.
const RESERVE: Duration = Duration::from_secs(3);

/// Kills and power cuts of each backend.
#[derive(Clone, Copy, Debug)]
pub struct CrashPointPlan {
    /// How many of each.
    pub points: u64,
    /// The seed.
    pub seed: u64,
    /// The most time for all backends together.
    pub limit: Option<Duration>,
}

/// One run of a scenario on a backend with a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioRun {
    /// Index of the scenario.
    pub scenario: usize,
    /// Index of the backend.
    pub backend: usize,
    /// The seed.
    pub seed: u64,
}

/// All runs in order, one scenario after the other, so that a matrix fills row by row. `seed` replaces the
/// scenarios' own seeds.
pub fn scenario_runs(scenarios: &[Scenario], backends: usize, seed: Option<u64>) -> Vec<ScenarioRun> {
    let mut runs = Vec::new();
    for (scenario, described) in scenarios.iter().enumerate() {
        let seeds = seed.map_or(described.seeds.clone(), |seed| vec![seed]);
        for backend in 0..backends {
            runs.extend(seeds.iter().map(|seed| ScenarioRun { scenario, backend, seed: *seed }));
        }
    }
    runs
}

/// Why a scenario does not apply to a backend. `None` if it applies.
pub fn misfit(scenario: &Scenario, backend: &dyn Backend) -> Option<String> {
    if !backend.has_paths() {
        return Some("it has no paths: programs cannot reach its files".to_owned());
    }
    let described = backend.describe();
    if described.name.ends_with("-scripted") && scenario.group != Group::Llm {
        return Some("its model is scripted by scenarios of group llm".to_owned());
    }
    let promises = backend.promises();
    let is_ours = described.lines_of_code > 0;
    let has = |need: &ScenarioRequirement| match need {
        ScenarioRequirement::Daemon => described.daemons > 0,
        ScenarioRequirement::Data => described.capabilities.holds_data && !described.capabilities.guesses_content,
        ScenarioRequirement::Persistence => described.capabilities.persistent,
        ScenarioRequirement::OurDaemon => described.daemons > 0 && is_ours,
        ScenarioRequirement::Database => {
            let nowhere = WorkspaceConfig::new(PathBuf::new(), PathBuf::new());
            backend.database(&nowhere).is_some()
        }
        ScenarioRequirement::LocalStore => described.capabilities.persistent,
        ScenarioRequirement::Bucket => promises.machine_loss.is_some(),
        ScenarioRequirement::Model => described.needs_model(),
    };
    let missing = scenario.needs.iter().find(|need| !has(need));
    missing.map(|need| need.missing().to_owned())
}

/// How the execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleEnd {
    /// All runs were executed.
    Complete,
    /// The user interrupted it.
    Interrupted,
}

/// Executes all runs and records each outcome. `execute` gives no outcome if it was interrupted. `recorded`
/// hears of each outcome, and how many runs are left after it.
pub fn run_all(
    runs: &[ScenarioRun],
    execute: &mut dyn FnMut(&ScenarioRun) -> Option<FaultOutcome>,
    writer: &Writer,
    recorded: &mut dyn FnMut(&FaultOutcome, usize),
    interrupt: &Interrupt,
) -> Result<ScheduleEnd, RunError> {
    for (done, run) in (1..).zip(runs) {
        if interrupt.is_set() {
            return Ok(ScheduleEnd::Interrupted);
        }
        let Some(outcome) = execute(run) else {
            return Ok(ScheduleEnd::Interrupted);
        };
        writer.outcome(&outcome)?;
        recorded(&outcome, runs.len() - done);
    }
    Ok(ScheduleEnd::Complete)
}

/// Executes scenarios on this machine.
pub struct LiveExecutor {
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
    /// The backends. The second value says why a backend is unavailable.
    pub backends: Vec<(Arc<dyn Backend>, Option<String>)>,
    /// Parent directory of the workspaces.
    pub scratch: PathBuf,
    /// The ctxbench binary.
    pub program: PathBuf,
    /// Set when the user interrupts the run.
    pub interrupt: Interrupt,
    /// Whether long-running steps run at full length.
    pub is_long: bool,
    /// How many workspaces have been created.
    pub sites: usize,
}

impl LiveExecutor {
    /// Runs crash points on every backend and records the results, or the reason for their absence: all lines of a backend
    /// or none. A failure does not stop the other backends.
    pub fn crash_points(
        &self,
        plan: CrashPointPlan,
        writer: &Writer,
        told: &mut dyn FnMut(&str, &str, u64),
        recorded: &mut dyn FnMut(&[CrashPoints]),
    ) -> anyhow::Result<ScheduleEnd> {
        let ends = plan.limit.map(|limit| Instant::now() + limit);
        let mut series_left = 2 * self.backends.len() as u32;
        let mut goal = || {
            series_left = series_left.saturating_sub(1);
            let now = Instant::now();
            let until = |ends: Instant| ends.checked_sub(RESERVE * series_left).unwrap_or(now);
            Goal { points: plan.points, until: ends.map(until) }
        };
        for (backend, unavailable) in &self.backends {
            let name = backend.describe().name;
            let mut lines = Vec::new();
            for (loss, what) in [(KILLED_DAEMON, "kills"), (POWER_LOSS, "power cuts")] {
                let goal = goal();
                let misfit = match loss {
                    KILLED_DAEMON => misfit(&crash_points_scenario(), &**backend),
                    _ => misfit_of_cuts(&**backend),
                };
                let not_run = |status, reason: String| vec![CrashPoints::not_run(&name, loss, status, reason)];
                let series = match (misfit, unavailable) {
                    (Some(reason), _) => {
                        lines.extend(not_run(Status::Unfit, reason));
                        continue;
                    }
                    (None, Some(reason)) => infra(reason.clone()),
                    (None, None) => guarded(|| {
                        let progress = &mut |at| told(&name, what, at);
                        self.series(backend, loss, plan.seed, goal, progress)
                    }),
                };
                match series.map_err(ScenarioError::reason) {
                    Ok(series) => lines.extend(series),
                    Err(Some((status, reason))) => lines.extend(not_run(status, reason)),
                    Err(None) => return Ok(ScheduleEnd::Interrupted),
                }
            }
            for line in &lines {
                writer.crash_points(line)?;
            }
            recorded(&lines);
        }
        Ok(ScheduleEnd::Complete)
    }

    /// One series of kills or power cuts.
    fn series(
        &self,
        backend: &Arc<dyn Backend>,
        loss: &str,
        seed: u64,
        goal: Goal,
        progress: &mut dyn FnMut(u64),
    ) -> StepResult<Vec<CrashPoints>> {
        let name = backend.describe().name;
        let dir = self.scratch.join(format!("c-{name}-{loss}"));
        std::fs::create_dir_all(&dir)?;
        let mut bed = TestBed::new(
            &crash_points_scenario(),
            Arc::clone(backend),
            WorkspaceConfig::new(dir.clone(), self.program.clone()),
            seed,
            self.interrupt.clone(),
            false,
        );
        let lines = match (loss, store_of(&name)) {
            (KILLED_DAEMON, _) => crash_run::kills(&mut bed, goal, progress),
            (_, Some(open)) => crash_run::power_cuts(&bed, open, goal, progress).map(|line| vec![line]),
            (_, None) => power_cut::series(&mut bed, goal, progress).map(|line| vec![line]),
        };
        // Dropping the test bed unmounts the workspace before its directory is removed.
        let acknowledgements = bed.acknowledgements();
        drop(bed);
        let _ = std::fs::remove_file(acknowledgements);
        if let Err(error) = std::fs::remove_dir_all(&dir) {
            tracing::warn!("removing {}: {error}", dir.display());
        }
        if self.interrupt.is_set() {
            return Err(ScenarioError::Interrupted);
        }
        lines
    }
}

/// Whether the daemon of a backend can be killed at crash points.
pub fn has_crash_points(backend: &dyn Backend) -> bool {
    misfit(&crash_points_scenario(), backend).is_none()
}

/// Whether the power of a backend is cut under a real mount.
pub fn has_mounted_cuts(backend: &dyn Backend) -> bool {
    misfit_of_cuts(backend).is_none() && store_of(&backend.describe().name).is_none()
}

/// Why power cuts do not apply to a backend. `None` if they apply.
fn misfit_of_cuts(backend: &dyn Backend) -> Option<String> {
    let scenario =
        Scenario { needs: vec![ScenarioRequirement::Data, ScenarioRequirement::LocalStore], ..crash_points_scenario() };
    let promises_nothing = || {
        let promise = backend.promises().power_loss;
        promise.is_none().then(|| "it makes no promise for a power loss".to_owned())
    };
    misfit(&scenario, backend).or_else(promises_nothing)
}

/// Turns a panic into a harness failure, so that one scenario does not end the others.
fn guarded<T>(scenario: impl FnOnce() -> StepResult<T>) -> StepResult<T> {
    let result = std::panic::catch_unwind(AssertUnwindSafe(scenario));
    result.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("see standard error");
        infra(format!("the harness panicked: {words}"))
    })
}

/// The requirements of crash points on a backend, in the form of a scenario.
fn crash_points_scenario() -> Scenario {
    let text = include_str!("crash_points.toml");
    Scenario::parse(Path::new("crash_points.toml"), text)
        .unwrap_or_else(|error| unreachable!("it is built in, and a test reads it: {error}"))
}

impl LiveExecutor {
    /// Executes one run. `None` if it was interrupted and leaves no complete outcome.
    pub fn run(&mut self, run: &ScenarioRun) -> Option<FaultOutcome> {
        let began = Instant::now();
        let scenario = &self.scenarios[run.scenario];
        let (backend, unavailable) = &self.backends[run.backend];
        self.sites += 1;
        let dir = self.scratch.join(format!("f{}", self.sites));
        let mut bed = TestBed::new(
            scenario,
            Arc::clone(backend),
            WorkspaceConfig::new(dir.clone(), self.program.clone()),
            run.seed,
            self.interrupt.clone(),
            self.is_long,
        );
        let result = match (misfit(scenario, &**backend), unavailable) {
            (Some(reason), _) => {
                bed.outcome.status = Status::Unfit;
                bed.outcome.reason = Some(reason);
                Ok(())
            }
            (None, Some(reason)) => Err(ScenarioError::Skipped(reason.clone())),
            (None, None) => match std::fs::create_dir(&dir) {
                Ok(()) => guarded(|| injections::run(&mut bed)),
                Err(error) => infra(format!("creating {}: {error}", dir.display())),
            },
        };
        let mut outcome = bed.outcome.clone();
        // Dropping the test bed unmounts the workspace before its directory is removed.
        let acknowledgements = bed.acknowledgements();
        drop(bed);
        // Most scenarios write no acknowledgement log.
        let _ = std::fs::remove_file(acknowledgements);
        if dir.exists()
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::warn!("removing {}: {error}", dir.display());
        }
        if let Err(error) = result {
            let (status, reason) = error.reason()?;
            outcome.status = status;
            outcome.reason = Some(reason);
        }
        outcome.took_ms = began.elapsed().as_millis() as u64;
        (!self.interrupt.is_set()).then_some(outcome)
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
