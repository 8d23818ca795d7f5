//! `ctxbench run`: measure a suite and record it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use backends::backend::{self, Backend};
use clap::{Args, ValueEnum};
use reports::run::{Plan, Sample, Settings, Writer};
use workloads::catalogue;
use workloads::definition::{CacheState, Workload};
use workloads::render::result_tokens;
use workloads::suite::Suite;

use crate::environment::{self, environment, warnings};
use crate::interrupt::Interrupt;
use crate::lab::Machine;
use crate::plan::{self, BASELINE, Inputs, arms, blocks};
use crate::progress::Progress;
use crate::run::{Ended, run};
use crate::scratch;

/// Measure a suite of workloads over backends and record every block.
///
/// Each cell (backend × workload × cache state) is measured in as many rounds as the suite says, in
/// an order that the seed decides. The results are in a directory of their own under --results;
/// `ctxbench report` makes pages of it. Ctrl-C ends the run in order; --resume goes on with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench run                                         # the default suite, about four minutes
  ctxbench run --workload micro/stat --rounds 20       # one workload of it, more often
  ctxbench run --backend direct --backend sqlite --state hot
  ctxbench run --resume results/20261121-120000-default

Exit codes: 0 complete, 1 failed, 130 interrupted.")]
pub struct Run {
    /// A built-in suite, or the path of a suite file.
    #[arg(long, default_value = "default")]
    suite: String,
    /// Only these workloads, by name or path; they need not be in the suite.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Only these cache states.
    #[arg(long, value_enum)]
    state: Vec<State>,
    /// Only these backends; `direct` is always measured, twice.
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// How often each cell is measured [default: as the suite says].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// What decides all random choices [default: the time].
    #[arg(long)]
    seed: Option<u64>,
    /// The directory that gets a directory for each run.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The run's own directory, which must not hold a run yet [default: by time, under --results].
    #[arg(long, value_name = "DIR", conflicts_with = "results")]
    out: Option<PathBuf>,
    /// Where workspaces live while they are measured; a disk, not memory
    /// [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Seconds after which a call counts as a timeout; after twice as long it is cut off.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive)]
    call_timeout: f64,
    /// Where the client and the daemon run.
    #[arg(long, value_enum, default_value_t = Placement::SharedCpu)]
    placement: Placement,
    /// Leave out the probes of tools, cron and visibility.
    #[arg(long)]
    no_probes: bool,
    /// Go on with an interrupted run; everything else is as it was planned.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "workload", "state", "backend", "rounds", "seed", "out", "call_timeout", "placement", "no_probes"])]
    resume: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Everything has just been used.
    Hot,
    /// The kernel's caches are empty.
    Lukewarm,
    /// The daemon has just started, the kernel's caches are empty.
    Cold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Placement {
    /// On one processor: only one of the two runs at a time, and no figure depends on where the
    /// scheduler happens to wake the other.
    SharedCpu,
    /// Wherever the scheduler puts them.
    Free,
}

impl From<State> for CacheState {
    fn from(state: State) -> Self {
        match state {
            State::Hot => CacheState::Hot,
            State::Lukewarm => CacheState::Lukewarm,
            State::Cold => CacheState::Cold,
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

impl Run {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let scratch = scratch::make(self.scratch.as_deref())?;
        let prepared = match &self.resume {
            Some(dir) => resumed(dir)?,
            None => self.planned(scratch.path())?,
        };
        let Prepared {
            dir,
            plan,
            writer,
            done,
            workloads,
            arms,
        } = prepared;
        let environment = environment(scratch.path()).context("looking at the machine")?;
        for warning in warnings(&environment) {
            eprintln!("warning: {warning}");
        }
        for arm in &plan.arms {
            if let Some(reason) = &arm.unavailable {
                eprintln!("skipped: {}: {reason}", arm.name);
            }
        }
        let todo = blocks(&plan).len() - done.len();
        eprintln!(
            "{todo} blocks: {} workloads, {} arms, {} rounds, seed {}; results in {}",
            plan.workloads.len(),
            plan.arms.len(),
            plan.rounds,
            plan.seed,
            dir.display()
        );
        let mut machine = Machine {
            arms,
            workloads,
            scratch: scratch.path().to_owned(),
            program: std::env::current_exe().context("finding the ctxbench binary")?,
            interrupt: interrupt.clone(),
            started: Instant::now(),
        };
        let mut progress = Progress::new(todo);
        let ended = run(
            &plan,
            &done,
            &mut machine,
            &writer,
            &interrupt,
            &mut progress,
        );
        progress.finish();
        match ended {
            Ended::Complete => {}
            Ended::Interrupted => {
                eprintln!(
                    "interrupted; go on with `ctxbench run --resume {}`",
                    dir.display()
                );
                return Ok(ExitCode::from(130));
            }
            Ended::CannotRecord(error) => {
                return Err(anyhow::Error::new(error).context(format!(
                    "results cannot be written any more; what was recorded is readable in {}",
                    dir.display()
                )));
            }
        }
        if progress.failures() > 0 {
            eprintln!("{} blocks did not end well; see above", progress.failures());
        }
        Ok(ExitCode::SUCCESS)
    }

    fn planned(&self, scratch: &Path) -> anyhow::Result<Prepared> {
        let suite = self.suite()?;
        let workloads = load_workloads(&suite)?;
        for (entry, workload) in suite.workloads.iter().zip(&workloads) {
            for state in &entry.states {
                if !workload.states.contains(state) {
                    let name = state.name();
                    bail!(
                        "workload {} makes no sense {name}; see `ctxbench list`",
                        entry.name
                    );
                }
            }
        }
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        for name in &suite.backends {
            let Some(found) = backend::find(name) else {
                let known = backend::registry();
                let known: Vec<_> = known.iter().map(|b| b.describe().name).collect();
                bail!("no backend {name:?}; there are {}", known.join(", "));
            };
            backends.push(found.into());
        }
        let arms = arms(backends);
        let tokens = agent_tokens(&workloads);
        let seed = self.seed.unwrap_or_else(time_seed);
        let now = jiff::Timestamp::now();
        let plan = plan::plan(&Inputs {
            name: &self.suite,
            suite: &suite,
            arms: &arms,
            workloads: &workloads,
            result_tokens: &tokens,
            seed,
            settings: Settings {
                call_timeout_ms: (self.call_timeout * 1000.0).ceil() as u64,
                placement: match self.placement {
                    Placement::SharedCpu => "shared-cpu".to_owned(),
                    Placement::Free => "free".to_owned(),
                },
            },
            policy: None,
            can_drop_caches: backend::can_drop_caches(),
            created: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            ctxbench: environment::ctxbench(),
        });
        let dir = match &self.out {
            Some(dir) => dir.clone(),
            None => {
                let suite = Path::new(&self.suite).file_stem().unwrap_or_default();
                let time = now.strftime("%Y%m%d-%H%M%S");
                self.results
                    .join(format!("{time}-{}", suite.to_string_lossy()))
            }
        };
        let environment = environment(scratch).context("looking at the machine")?;
        let writer = Writer::create(&dir, &plan, &environment, None)?;
        Ok(Prepared {
            dir,
            plan,
            writer,
            done: Vec::new(),
            workloads,
            arms,
        })
    }

    /// The suite, narrowed to what was asked for.
    fn suite(&self) -> anyhow::Result<Suite> {
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
        suite.rounds = self.rounds.unwrap_or(suite.rounds);
        suite.probes &= !self.no_probes;
        Ok(suite)
    }
}

struct Prepared {
    dir: PathBuf,
    plan: Plan,
    writer: Writer,
    done: Vec<Sample>,
    workloads: Vec<Arc<Workload>>,
    arms: Vec<plan::LiveArm>,
}

fn resumed(dir: &Path) -> anyhow::Result<Prepared> {
    let (writer, run) = Writer::resume(dir)?;
    let this = environment::ctxbench();
    if run.plan.ctxbench != this {
        bail!(
            "{} was measured by ctxbench {}, this is {this}: figures of two versions do not mix\n  fix: start a new run",
            dir.display(),
            run.plan.ctxbench
        );
    }
    let mut workloads = Vec::new();
    for planned in &run.plan.workloads {
        let workload = catalogue::workload(&planned.name)?;
        if workload.sha256 != planned.sha256 {
            bail!(
                "workload {} has changed since {} was planned\n  fix: start a new run",
                planned.name,
                dir.display()
            );
        }
        workloads.push(Arc::new(workload));
    }
    let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
    for arm in run.plan.arms.iter().filter(|arm| arm.twin_of.is_none()) {
        let found = backend::find(&arm.backend.name)
            .with_context(|| format!("no backend {:?}", arm.backend.name))?;
        backends.push(found.into());
    }
    Ok(Prepared {
        dir: dir.to_owned(),
        plan: run.plan,
        writer,
        done: run.samples,
        workloads,
        arms: arms(backends),
    })
}

fn load_workloads(suite: &Suite) -> anyhow::Result<Vec<Arc<Workload>>> {
    let workloads = suite.workloads.iter();
    let workloads = workloads.map(|entry| Ok(Arc::new(catalogue::workload(&entry.name)?)));
    workloads.collect()
}

fn agent_tokens(workloads: &[Arc<Workload>]) -> BTreeMap<String, u64> {
    let agents = workloads.iter().filter(|w| w.name.starts_with("agent/"));
    agents
        .map(|workload| (workload.name.clone(), result_tokens(&workload.script)))
        .collect()
}

/// A seed that fits into TOML's integers.
fn time_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64 & (i64::MAX as u64))
}
