//! The schedule of a fault run: the order of scenarios, backends and seeds, and the recording of their
//! outcomes.
//! The faults live in `injections`.

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backends::backend::{Backend, WorkspaceConfig};
use rundir::RunError;
use rundir::Writer;
use rundir::faults::{CrashPoints, FaultOutcome, KILLED_DAEMON, POWER_LOSS, Status};
use workloads::fault::{Group, Scenario, ScenarioRequirement};

use super::bed::{Injected, ScenarioError, TestBed, infra, skipped};
use super::crash_run;
use super::injections;

/// Time limit for a daemon to start or to stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// The reason that is recorded for a backend without simulated power cuts.
const POWER_LOSS_NOT_LOOKED_AT: &str = "not here: crash points cut the power under the sqlite store alone, without FUSE, page by page; the scenario power-loss cuts it under the disk of every local store";

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
pub fn scenario_runs(
    scenarios: &[Scenario],
    backends: usize,
    seed: Option<u64>,
) -> Vec<ScenarioRun> {
    let mut runs = Vec::new();
    for (scenario, described) in scenarios.iter().enumerate() {
        let seeds = seed.map_or(described.seeds.clone(), |seed| vec![seed]);
        for backend in 0..backends {
            runs.extend(seeds.iter().map(|seed| ScenarioRun {
                scenario,
                backend,
                seed: *seed,
            }));
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
        return Some("its model is scripted, by scenarios of group llm".to_owned());
    }
    let promises = backend.promises();
    let is_ours = described.lines_of_code > 0;
    let has = |need: &ScenarioRequirement| match need {
        ScenarioRequirement::Daemon => described.daemons > 0,
        ScenarioRequirement::Data => {
            described.capabilities.holds_data && !described.capabilities.guesses_content
        }
        ScenarioRequirement::Persistence => described.capabilities.persistent,
        ScenarioRequirement::OurDaemon => described.daemons > 0 && is_ours,
        ScenarioRequirement::Database => {
            let nowhere = workspace_config(PathBuf::new(), PathBuf::new());
            backend.database(&nowhere).is_some()
        }
        ScenarioRequirement::LocalStore => described.capabilities.persistent,
        ScenarioRequirement::Bucket => promises.machine_loss.is_some(),
        ScenarioRequirement::Model => described.needs_model(),
    };
    let missing = scenario.needs.iter().find(|need| !has(need));
    missing.map(|need| need.missing().to_owned())
}

fn workspace_config(dir: PathBuf, program: PathBuf) -> WorkspaceConfig {
    WorkspaceConfig {
        dir,
        program,
        patience: DAEMON_PATIENCE,
        cpu: None,
        allow_other: false,
    }
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
    interrupt: &AtomicBool,
) -> Result<ScheduleEnd, RunError> {
    for (done, run) in (1..).zip(runs) {
        if interrupt.load(Ordering::Relaxed) {
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
pub struct Live {
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
    /// The backends. The second value says why a backend is unavailable.
    pub backends: Vec<(Arc<dyn Backend>, Option<String>)>,
    /// Parent directory of the workspaces.
    pub scratch: PathBuf,
    /// The ctxbench binary.
    pub program: PathBuf,
    /// Set when the user interrupts the run.
    pub interrupt: Arc<AtomicBool>,
    /// Whether long-running steps run at full length.
    pub is_long: bool,
    /// How many workspaces have been created.
    pub sites: usize,
}

impl Live {
    /// Runs `points` crash points on every backend and records the results, or the reason for their
    /// absence. A failure does not stop the other backends.
    pub fn crash_points(
        &mut self,
        points: u64,
        seed: u64,
        writer: &Writer,
        told: &mut dyn FnMut(&str, &str, u64),
    ) -> anyhow::Result<ScheduleEnd> {
        let scenario = crash_points_scenario();
        for (backend, unavailable) in &self.backends {
            let name = backend.describe().name;
            let not_run = |loss, status, reason: String| {
                let line = CrashPoints::not_run(&name, loss, status, reason);
                writer.crash_points(&line)
            };
            let why = match (misfit(&scenario, &**backend), unavailable) {
                (Some(reason), _) => Some((Status::Unfit, reason)),
                (None, Some(reason)) => Some((Status::Infra, reason.clone())),
                (None, None) => None,
            };
            if let Some((status, reason)) = why {
                not_run(KILLED_DAEMON, status, reason)?;
                continue;
            }
            let dir = self.scratch.join(format!("c-{name}"));
            std::fs::create_dir_all(&dir)?;
            let mut bed = TestBed::new(
                &scenario,
                Arc::clone(backend),
                workspace_config(dir, self.program.clone()),
                seed,
                self.interrupt.clone(),
                false,
            );
            let kills =
                guarded(|| crash_run::kills(&mut bed, points, &mut |at| told(&name, "kills", at)));
            let record = |loss, lines: Injected<Vec<CrashPoints>>| {
                match lines.map_err(ScenarioError::reason) {
                    Ok(lines) => lines
                        .iter()
                        .try_for_each(|line| writer.crash_points(line))?,
                    Err(Some((status, reason))) => not_run(loss, status, reason)?,
                    Err(None) => return Ok(ScheduleEnd::Interrupted),
                }
                anyhow::Ok(ScheduleEnd::Complete)
            };
            if record(KILLED_DAEMON, kills)? == ScheduleEnd::Interrupted {
                return Ok(ScheduleEnd::Interrupted);
            }
            let cuts = match name.as_str() {
                "sqlite" => guarded(|| {
                    let mut told = |at| told(&name, "power cuts", at);
                    crash_run::power_cuts(&bed, points, &mut told).map(|line| vec![line])
                }),
                _ => skipped(POWER_LOSS_NOT_LOOKED_AT),
            };
            if record(POWER_LOSS, cuts)? == ScheduleEnd::Interrupted {
                return Ok(ScheduleEnd::Interrupted);
            }
        }
        Ok(ScheduleEnd::Complete)
    }
}

/// Turns a panic into a harness failure, so that one scenario does not end the others.
fn guarded<T>(scenario: impl FnOnce() -> Injected<T>) -> Injected<T> {
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

impl Live {
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
            workspace_config(dir.clone(), self.program.clone()),
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
        (!self.interrupt.load(Ordering::Relaxed)).then_some(outcome)
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
