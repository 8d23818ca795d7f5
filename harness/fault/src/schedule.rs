//! Which scenario is played on which backend, in what order, and what is recorded of it.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backends::backend::{Backend, Site};
use rundir::RunError;
use rundir::Writer;
use rundir::faults::{CrashPoints, FaultOutcome, KILLED_DAEMON, POWER_LOSS, Status};
use workloads::fault::{Group, Need, Scenario};

use super::bed::{Injected, ScenarioError, TestBed};
use super::crash_run;
use super::injections;

/// How long a daemon may take to start or stop.
const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// Why there is no row of power cuts for a backend.
const POWER_LOSS_NOT_LOOKED_AT: &str = "not here: crash points cut the power under the sqlite store alone, without FUSE, page by page; the scenario power-loss cuts it under the disk of every local store";

/// A scenario, on a backend, by a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioRun {
    /// Which scenario.
    pub scenario: usize,
    /// Which backend.
    pub backend: usize,
    /// The seed.
    pub seed: u64,
}

/// All turns: scenario by scenario, so that a matrix fills row by row; `seed` in the place of the scenarios' own.
pub fn turns(scenarios: &[Scenario], backends: usize, seed: Option<u64>) -> Vec<ScenarioRun> {
    let mut turns = Vec::new();
    for (scenario, described) in scenarios.iter().enumerate() {
        let seeds = seed.map_or(described.seeds.clone(), |seed| vec![seed]);
        for backend in 0..backends {
            turns.extend(seeds.iter().map(|seed| ScenarioRun {
                scenario,
                backend,
                seed: *seed,
            }));
        }
    }
    turns
}

/// Why a scenario makes no sense on a backend, where it does not.
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
    let has = |need: &Need| match need {
        Need::Daemon => described.daemons > 0,
        Need::Data => described.capabilities.holds_data && !described.capabilities.guesses_content,
        Need::Persistence => described.capabilities.persistent,
        Need::OurDaemon => described.daemons > 0 && is_ours,
        Need::Database => {
            let nowhere = site(PathBuf::new(), PathBuf::new());
            backend.database(&nowhere).is_some()
        }
        Need::LocalStore => described.capabilities.persistent,
        Need::Bucket => promises.machine_loss.is_some(),
        Need::Model => described.needs_model(),
    };
    let missing = scenario.needs.iter().find(|need| !has(need));
    missing.map(|need| need.missing().to_owned())
}

fn site(dir: PathBuf, program: PathBuf) -> Site {
    Site {
        dir,
        program,
        patience: DAEMON_PATIENCE,
        cpu: None,
        allow_other: false,
    }
}

/// Plays turns.
pub trait Executor {
    /// Plays one; `None` if it was interrupted, so that there is nothing whole to record.
    fn play(&mut self, turn: &ScenarioRun) -> Option<FaultOutcome>;
}

/// Sees how far it is.
pub trait Watcher {
    /// A turn begins.
    fn begins(&mut self, turn: &ScenarioRun, left: usize);
    /// It was recorded.
    fn recorded(&mut self, outcome: &FaultOutcome);
}

/// How playing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All was played.
    Complete,
    /// The user wanted to end.
    Interrupted,
}

/// Plays all turns, and records each.
///
/// # Errors
/// If an outcome cannot be recorded.
pub fn play_all(
    turns: &[ScenarioRun],
    player: &mut dyn Executor,
    writer: &Writer,
    watcher: &mut dyn Watcher,
    interrupt: &AtomicBool,
) -> Result<Ended, RunError> {
    for (at, turn) in turns.iter().enumerate() {
        if interrupt.load(Ordering::Relaxed) {
            return Ok(Ended::Interrupted);
        }
        watcher.begins(turn, turns.len() - at);
        let Some(outcome) = player.play(turn) else {
            return Ok(Ended::Interrupted);
        };
        writer.outcome(&outcome)?;
        watcher.recorded(&outcome);
    }
    Ok(Ended::Complete)
}

/// Plays on this machine.
pub struct Live {
    /// The scenarios.
    pub scenarios: Vec<Scenario>,
    /// The backends, and why one cannot be used.
    pub backends: Vec<(Arc<dyn Backend>, Option<String>)>,
    /// Where workspaces live.
    pub scratch: PathBuf,
    /// The ctxbench binary.
    pub program: PathBuf,
    /// Set when the user wants to end.
    pub interrupt: Arc<AtomicBool>,
    /// Whether what takes long is not to be shortened.
    pub is_long: bool,
    /// How many workspaces there were.
    pub sites: usize,
}

impl Live {
    /// Has every backend go through so many crash points, and records each stretch, or why there is none; goes on with the next
    /// where one fails.
    ///
    /// # Errors
    /// If a line cannot be recorded.
    pub fn crash_points(
        &mut self,
        points: u64,
        seed: u64,
        writer: &Writer,
        told: &mut dyn FnMut(&str, &str, u64),
    ) -> anyhow::Result<Ended> {
        let scenario = crash_points_scenario();
        for (backend, unavailable) in &self.backends {
            let name = backend.describe().name;
            let why = match (misfit(&scenario, &**backend), unavailable) {
                (Some(reason), _) => Some((Status::Unfit, reason)),
                (None, Some(reason)) => Some((Status::Infra, reason.clone())),
                (None, None) => None,
            };
            if let Some((status, reason)) = why {
                let line = CrashPoints::not_run(&name, KILLED_DAEMON, status, reason);
                writer.crash_points(&line)?;
                continue;
            }
            let dir = self.scratch.join(format!("c-{name}"));
            std::fs::create_dir_all(&dir)?;
            let mut bed = TestBed::new(
                &scenario,
                Arc::clone(backend),
                site(dir, self.program.clone()),
                seed,
                self.interrupt.clone(),
                false,
            );
            let kills =
                guarded(|| crash_run::kills(&mut bed, points, &mut |at| told(&name, "kills", at)));
            let failed = |reason| {
                vec![CrashPoints::not_run(
                    &name,
                    KILLED_DAEMON,
                    Status::Infra,
                    reason,
                )]
            };
            let Some(lines) = whole(kills, failed) else {
                return Ok(Ended::Interrupted);
            };
            for line in lines {
                writer.crash_points(&line)?;
            }
            let cuts = match name.as_str() {
                "sqlite" => guarded(|| {
                    let mut told = |at| told(&name, "power cuts", at);
                    crash_run::power_cuts(&bed, points, &mut told).map(|line| vec![line])
                }),
                _ => Err(ScenarioError::Skipped(POWER_LOSS_NOT_LOOKED_AT.to_owned())),
            };
            // What was mounted goes before the next is.
            drop(bed);
            let failed = |reason| {
                vec![CrashPoints::not_run(
                    &name,
                    POWER_LOSS,
                    Status::Infra,
                    reason,
                )]
            };
            let lines = match cuts {
                Err(ScenarioError::Skipped(reason)) => vec![CrashPoints::not_run(
                    &name,
                    POWER_LOSS,
                    Status::Skipped,
                    reason,
                )],
                cuts => match whole(cuts, failed) {
                    Some(lines) => lines,
                    None => return Ok(Ended::Interrupted),
                },
            };
            for line in lines {
                writer.crash_points(&line)?;
            }
        }
        Ok(Ended::Complete)
    }
}

/// What crash points came to, or a line that says why there are none; `None` if the user wanted to end.
fn whole(
    played: Injected<Vec<CrashPoints>>,
    failed: impl FnOnce(String) -> Vec<CrashPoints>,
) -> Option<Vec<CrashPoints>> {
    match played {
        Ok(lines) => Some(lines),
        Err(ScenarioError::Interrupted) => None,
        Err(ScenarioError::Skipped(reason) | ScenarioError::Infra(reason)) => Some(failed(reason)),
    }
}

/// Plays, and takes a panic of ours for a failure of the harness: one scenario must not end the others.
fn guarded<T>(play: impl FnOnce() -> Injected<T>) -> Injected<T> {
    let played = std::panic::catch_unwind(AssertUnwindSafe(play));
    played.unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("see standard error");
        Err(ScenarioError::Infra(format!(
            "the harness panicked: {words}"
        )))
    })
}

/// What crash points need of a backend, in the form of a scenario.
fn crash_points_scenario() -> Scenario {
    let text = include_str!("crash_points.toml");
    Scenario::parse(std::path::Path::new("crash_points.toml"), text)
        .unwrap_or_else(|error| unreachable!("it is built in, and a test reads it: {error}"))
}

impl Executor for Live {
    fn play(&mut self, turn: &ScenarioRun) -> Option<FaultOutcome> {
        let began = Instant::now();
        let scenario = &self.scenarios[turn.scenario];
        let (backend, unavailable) = &self.backends[turn.backend];
        self.sites += 1;
        let dir = self.scratch.join(format!("f{}", self.sites));
        let mut bed = TestBed::new(
            scenario,
            Arc::clone(backend),
            site(dir.clone(), self.program.clone()),
            turn.seed,
            self.interrupt.clone(),
            self.is_long,
        );
        let played = match (misfit(scenario, &**backend), unavailable) {
            (Some(reason), _) => {
                bed.outcome.status = Status::Unfit;
                bed.outcome.reason = Some(reason);
                Ok(())
            }
            (None, Some(reason)) => Err(ScenarioError::Skipped(reason.clone())),
            (None, None) => match std::fs::create_dir(&dir) {
                Ok(()) => guarded(|| injections::play(&mut bed)),
                Err(error) => Err(ScenarioError::Infra(format!(
                    "creating {}: {error}",
                    dir.display()
                ))),
            },
        };
        let mut outcome = bed.outcome.clone();
        // What is mounted there goes before the directory does.
        let acknowledgements = bed.acknowledgements();
        drop(bed);
        // Mostly it is not there.
        let _ = std::fs::remove_file(acknowledgements);
        if dir.exists()
            && let Err(error) = std::fs::remove_dir_all(&dir)
        {
            tracing::warn!("removing {}: {error}", dir.display());
        }
        match played {
            Ok(()) => {}
            Err(ScenarioError::Interrupted) => return None,
            Err(ScenarioError::Skipped(reason)) => {
                outcome.status = Status::Skipped;
                outcome.reason = Some(reason);
            }
            Err(ScenarioError::Infra(reason)) => {
                outcome.status = Status::Infra;
                outcome.reason = Some(reason);
            }
        }
        outcome.took_ms = began.elapsed().as_millis() as u64;
        (!self.interrupt.load(Ordering::Relaxed)).then_some(outcome)
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
