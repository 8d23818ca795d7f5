//! `ctxbench run`: measure a suite and record it.

mod crashes;
mod planned;
mod resumed;
mod shard;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backends::registry::Registry;
use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use fuse::cpu;
use reports::render::number_of;
use rundir::{Fault, MODEL_FILES, ModelFiles, Placement, Plan, Shard};
use workloads::definition::{CacheState, Workload};

use self::crashes::crash;
use self::planned::PreparedRun;
pub use self::planned::shard_option;
use super::format::ScreenFormat;
use super::headline::print_answer;
use crate::environment::warnings;
use crate::evidence::PriceList;
use crate::fusectl::Fusectl;
use crate::model_files;
use crate::model_options::ModelOptions;
use crate::progress::Progress;
use crate::progress_line::ProgressLine;
use crate::reporting::ReportInputs;
use crate::results_bucket::{ResultsAddress, ResultsBucket};
use crate::signals::end_process_at_signals;
use runner::cell::RunSetup;
use runner::lab::Machine;
use runner::pass::missing_programs;
use runner::plan::LiveArm;
use runner::run::{RunEnd, Runner};
use runner::schedule::all_cells;
use runner::scratch::EpochScratch;
use trial::ScheduleEnd;
use trial::interrupt::Interrupt;
use trial::probes::Prober;

/// Measure a suite of workloads over backends.
///
/// A run has sections, and each section has its own budget. A section has epochs; each epoch has a new scratch file
/// system, new daemons and its own order. In each epoch, every cell (workload × cache state) of the section is measured
/// in rounds: all arms are mounted at once, and short passes alternate between them, until the
/// section's epochs are done or its budget is used up.
///
/// Each run writes a directory of its own under --results, from which `ctxbench report` makes the report. Ctrl-C stops
/// the run cleanly; --resume continues it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench run                                         # the default suite, five minutes of measuring
  ctxbench run --workload micro/stat --budget 20       # one workload of it
  ctxbench run --backend direct --backend sqlite --state hot
  ctxbench run --resume results/20261121-120000-default
  ctxbench run --seed 7 --shard 0/3 --out results/part-0   # a third of the cells; then 1/3 and 2/3, and `ctxbench merge`
  ctxbench run --seed 7 --shard 0/3 --out s3://bucket/run  # the same; the records go into a bucket

Exit codes: 0 complete, 1 failed, 130 interrupted.")]
pub struct Run {
    #[command(flatten)]
    options: Options,
    /// Continue an interrupted run, by its own plan.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "workload", "state", "backend", "budget", "epochs", "rounds", "margin", "margin_us", "seed", "out", "call_timeout", "placement", "policy", "no_probes", "no_model_files", "shard"])]
    resume: Option<PathBuf>,
    /// Measure part I of N of the plan's cells, to spread a run over several machines. Parts count from 0, and need the same
    /// options and --seed; `ctxbench merge` makes one run of them. Each cell has its own `direct` pair, and a section's budget is
    /// shared among its cells. [default: JOB_COMPLETION_INDEX of JOB_COMPLETIONS, or SLURM_ARRAY_TASK_ID of
    /// SLURM_ARRAY_TASK_COUNT, if they are set].
    #[arg(long, value_name = "I/N", value_parser = shard::parse)]
    shard: Option<Shard>,
    /// How to print the answer at the end. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
}

/// The selection of cells, and the limits of the measurement.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// A built-in suite, or the path of a suite file.
    #[arg(long, default_value = "default")]
    suite: String,
    /// Measure only these workloads (names or paths), in one section. They need not belong to the suite.
    #[arg(long, value_name = "NAME")]
    workload: Vec<String>,
    /// Measure only these cache states.
    #[arg(long, value_enum)]
    state: Vec<State>,
    /// Measure only these backends. `direct` is always measured; twice, except in sections that only
    /// count.
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// Seconds that the passes may take, shared among the sections in proportion to their own budgets. A section needs
    /// at least three epochs with one timed round of each cell; a budget that is too short for this is refused. Probes,
    /// kills, power cuts and model files take time beyond the budget; --no-probes and --no-model-files skip them. The
    /// command first prints how long everything takes [default: the suite's, else 250 a section].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = positive)]
    budget: Option<f64>,
    /// Maximum number of epochs of each section [default: the suite's, else 8].
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(3..=100))]
    epochs: Option<u32>,
    /// Maximum number of rounds of a cell in an epoch [default: the suite's, else 60].
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Treat differences of at most this many percent as equal.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, allow_negative_numbers = true, value_parser = positive)]
    margin: f64,
    /// The same margin in microseconds a call; the wider of the two margins counts [default: the suite's, else 1].
    #[arg(long, value_name = "MICROSECONDS", allow_negative_numbers = true, value_parser = not_negative)]
    margin_us: Option<f64>,
    /// The seed of all random choices [default: the current time].
    #[arg(long)]
    pub seed: Option<u64>,
    /// Directory in which each run creates its own directory.
    #[arg(long, value_name = "DIR", default_value = "results", value_parser = local_path())]
    pub results: PathBuf,
    /// The run's directory, which must not contain a run yet. The records of a shard can also go to s3://BUCKET/PREFIX,
    /// on the server and with the keys that `ctxbench mount s3` would use; its directory is then a new one under results
    /// [default: a directory under --results, named by the time].
    #[arg(long, value_name = "DIR", conflicts_with = "results", value_parser = run_place())]
    pub out: Option<RunPlace>,
    /// Keep the measured workspaces in this directory, whatever file system it is on. Without this option, root gets a
    /// new journaled ext4 image for each epoch in $CTXBENCH_SCRATCH or /var/tmp, and other users get a plain directory
    /// there.
    #[arg(long, value_name = "DIR")]
    scratch_dir: Option<PathBuf>,
    /// Seconds after which a call counts as a timeout; after twice this time it is aborted [default: the suite's, else
    /// 10].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = positive)]
    call_timeout: Option<f64>,
    /// Which processors the client and the daemon run on, in all sections [default: the suite's, else free].
    #[arg(long, value_enum)]
    placement: Option<PlacementOption>,
    /// Decide by this policy only: a built-in one, the path of a file, or `none`. The run keeps a copy of its text
    /// [default: the suite's, else all built-in policies].
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Skip the probes (properties, tools, cron, visibility), the kills and the simulated power cuts.
    #[arg(long)]
    pub no_probes: bool,
    /// Skip the measurement of files that a language model generates, which takes about a minute. --workload, --backend
    /// and --state skip it, too.
    #[arg(long)]
    pub no_model_files: bool,
    /// Add an arm whose calls are lengthened by so many percent, which the run must find: a copy of `memory`, together with
    /// an identical one, or a copy of `direct` if `memory` is not measured.
    #[arg(long, value_name = "PERCENT", hide = true)]
    pub slowed: Vec<u32>,
    /// The part of the cells that is measured.
    #[arg(skip)]
    shard: Option<Shard>,
    /// The only stores whose daemons are killed and whose power is cut; `None` for all.
    #[arg(skip)]
    pub crashed: Option<Vec<String>>,
    /// SHA-256 of each policy by which the run is decided beside that of `policy`, by name.
    #[arg(skip)]
    pub further_policies: BTreeMap<String, String>,
    /// The command line that plans the same run, if these options do not state it.
    #[arg(skip)]
    pub command: Option<String>,
    #[command(flatten)]
    pub prices: PriceList,
    #[command(flatten, next_help_heading = "Files that a language model generates")]
    pub model: ModelOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// All that a pass reads is cached: everything has just been read.
    Hot,
    /// The kernel's caches are empty; the daemon keeps running.
    Lukewarm,
    /// The kernel's caches are empty, and the daemon has just started.
    Cold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlacementOption {
    /// Any: the scheduler places them, as it does for users.
    Free,
    /// One for both, a different one in each epoch, so that no request wakes another processor. A daemon's background
    /// threads run anywhere. Such cells have cache states of their own, such as hot-shared-cpu, which no policy reads.
    SharedCpu,
}

impl PlacementOption {
    fn planned(self) -> Placement {
        match self {
            PlacementOption::Free => Placement::Free,
            PlacementOption::SharedCpu => Placement::SharedCpu,
        }
    }
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

pub fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

/// Where a run goes.
#[derive(Clone, Debug)]
pub enum RunPlace {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A bucket, after it was measured in a directory under `--results`.
    Bucket(ResultsAddress),
}

fn run_place() -> impl TypedValueParser<Value = RunPlace> {
    PathBufValueParser::new().try_map(|path| match ResultsAddress::of_argument(&path) {
        Some(address) => address.map(RunPlace::Bucket),
        None => local(path).map(RunPlace::Directory),
    })
}

fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(local)
}

/// A path that no reader takes for a URL: a run is written to a directory of this machine.
fn local(path: PathBuf) -> Result<PathBuf, String> {
    let text = path.to_string_lossy();
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_owned());
    let is_scheme = |it: &String| !it.is_empty() && it.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match scheme.filter(is_scheme) {
        Some(scheme) => Err(format!(
            "a run is written to a local directory, not to {scheme}://; give a directory, and copy it there after the run"
        )),
        None => Ok(path),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number from 0".to_owned()),
    }
}

/// How measuring ended.
pub enum RunOutcome {
    /// The run in this directory is complete.
    Complete(PathBuf),
    /// The user interrupted the run in this directory, which can be resumed.
    Interrupted(PathBuf),
    /// The user interrupted the command before the run had a directory.
    NotBegun,
}

impl Run {
    pub fn run(mut self, registry: &Registry) -> anyhow::Result<ExitCode> {
        if self.resume.is_none() {
            self.options.shard = shard::chosen(self.shard, self.options.seed)?;
        }
        let upload = self.options.upload()?;
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let dir = match self.options.measure(registry, &interrupt, self.resume.as_deref())? {
            RunOutcome::Complete(dir) => dir,
            RunOutcome::Interrupted(dir) => {
                eprintln!("interrupted; continue with `ctxbench run --resume {}`", dir.display());
                return Ok(ExitCode::from(130));
            }
            RunOutcome::NotBegun => {
                eprintln!("interrupted; nothing was measured, and nothing is left behind");
                return Ok(ExitCode::from(130));
            }
        };
        // Nothing is mounted any more: from here on a signal can end the process at any point.
        registry.services().stop();
        end_process_at_signals().context("setting up signal handling")?;
        if interrupt.is_set() {
            eprintln!("interrupted; the run is complete: `ctxbench report {}` writes its report", dir.display());
            return Ok(ExitCode::from(130));
        }
        if let Some((bucket, shard)) = upload {
            bucket.upload(&dir, shard).with_context(|| {
                format!(
                    "the shard is complete in {}, which `ctxbench merge` also takes, but not uploaded",
                    dir.display()
                )
            })?;
            eprintln!("shard {shard}: its records are in {}", bucket.address());
        }
        let report_inputs = ReportInputs::of(&dir, &[], None, &self.options.prices)?;
        conclude(&report_inputs, self.format)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a run's report, and prints its answer.
pub fn conclude(report_inputs: &ReportInputs, format: ScreenFormat) -> anyhow::Result<()> {
    let page = report_inputs.write()?;
    print_answer(report_inputs, &page, format)
}

impl Options {
    /// The bucket that the records go to, and the shard that they are. Fails if it cannot take them.
    fn upload(&self) -> anyhow::Result<Option<(ResultsBucket, Shard)>> {
        let Some(RunPlace::Bucket(address)) = &self.out else { return Ok(None) };
        let Some(shard) = self.shard else {
            bail!(
                "{address} takes the shards of a run\n  fix: give --shard I/N, or a directory; --shard 0/1 has all cells"
            );
        };
        let bucket = ResultsBucket::new(address)?;
        bucket.check_free(shard)?;
        Ok(Some((bucket, shard)))
    }

    /// Plans a run, or resumes the one in `resume`, and measures it.
    pub fn measure(
        &self,
        registry: &Registry,
        interrupt: &Interrupt,
        resume: Option<&Path>,
    ) -> anyhow::Result<RunOutcome> {
        // Probes and model files need no fresh file system: none of their times is in microseconds.
        let beside = EpochScratch::in_directory(self.scratch_dir.as_deref())?;
        let _fusectl = Fusectl::at_hand(beside.path());
        let prepared = match resume {
            Some(dir) => self.resumed(registry, dir)?,
            None => match self.planned(registry, beside.path(), interrupt)? {
                Some(prepared) => prepared,
                None => return Ok(RunOutcome::NotBegun),
            },
        };
        let PreparedRun { dir, plan, writer, before, workloads, arms, scratch, environment } = prepared;
        let is_crashed = |arm: &&LiveArm| {
            let only = self.crashed.as_ref();
            only.is_none_or(|only| only.contains(&arm.name))
        };
        let stores: Vec<LiveArm> = arms.iter().filter(is_crashed).cloned().collect();
        for warning in warnings(&environment) {
            eprintln!("warning: {warning}");
        }
        for arm in &plan.arms {
            if let Some(reason) = &arm.unavailable {
                eprintln!("skipped: {}: {reason}", arm.name);
            }
        }
        if let Some(shard) = plan.shard {
            eprintln!("shard {shard} of the plan: a part of its cells");
        }
        eprintln!(
            "{}, {}, seed {}; results in {}",
            number_of(plan.workloads.len(), "workload"),
            number_of(plan.arms.len(), "arm"),
            plan.seed,
            dir.display()
        );
        eprintln!("{}", duration_words(&plan, &arms, &stores));
        for (at, section) in plan.schedule.sections.iter().enumerate() {
            let cells = all_cells(&plan);
            let cells = cells.iter().filter(|cell| cell.section == at);
            eprintln!(
                "section {}: {}, {:.0} s, at most {} epochs, placement {}",
                section.name,
                number_of(cells.count(), "cell"),
                plan.budget_ms(section) as f64 / 1000.0,
                section.epochs,
                section.placement.name()
            );
        }
        let probed: BTreeSet<String> =
            before.iter().flat_map(|run| &run.probes).map(|probe| probe.arm.clone()).collect();
        let idle = |workload: &&Arc<Workload>| workload.is_recorded && workload.script.timed_calls().is_empty();
        for workload in workloads.iter().filter(idle) {
            eprintln!("warning: {}: nothing to replay: none of its calls is a file operation", workload.name);
        }
        let asks_programs =
            |workload: &Arc<Workload>| workload.script.tasks.as_ref().is_some_and(|tasks| !tasks.needs_mail());
        if let Some(missing) = missing_programs().filter(|_| workloads.iter().any(asks_programs)) {
            eprintln!("warning: {missing}: the tokens of programs beside plain files are not counted");
        }
        let mut probers = probers(&plan, &arms, beside.path(), interrupt)?;
        let crashed = before.as_ref().map(|run| run.crash_points.clone());
        let mut next_fault = before.as_ref().map_or(0, |run| run.faults.len() as u64);
        let mut machine = Machine {
            arms,
            workloads,
            scratch,
            setup: RunSetup {
                program: std::env::current_exe().context("finding the ctxbench binary")?,
                interrupt: interrupt.clone(),
                started: Instant::now(),
                services: Arc::clone(registry.services()),
                expectations: Arc::default(),
            },
            cpus: cpu::allowed().context("asking for the processors")?,
            epoch: None,
        };
        let mut progress = Progress::new(&plan);
        let mut runner = Runner::new(&plan, &writer, interrupt, before);
        let ended = runner.run(&mut machine, &mut progress);
        let failures = progress.failures();
        drop(progress);
        // Remove the scratch before the probes start.
        drop(machine);
        match ended {
            RunEnd::Complete => {}
            RunEnd::Interrupted => return Ok(RunOutcome::Interrupted(dir)),
            RunEnd::ScratchFull(reason) => {
                bail!(
                    "the scratch disk is full: {reason}\n  the recorded part is readable in {}\n  fix: free space or name another disk with --scratch-dir, then start a new run",
                    dir.display()
                );
            }
            RunEnd::NoScratch(error) => return Err(error),
            RunEnd::CannotRecord(error) => {
                return Err(anyhow::Error::new(error).context(format!(
                    "results can no longer be written; the recorded part is readable in {}",
                    dir.display()
                )));
            }
        }
        if failures > 0 {
            eprintln!("failed passes: {failures}; the first one for each reason is above");
        }
        probers.retain(|prober| !probed.contains(&prober.arm));
        let mut killing = Duration::ZERO;
        if !probers.is_empty() {
            let line = ProgressLine::still();
            let all = probers.len();
            for (done, prober) in probers.into_iter().enumerate() {
                let what = format!("testing properties, tools and features on {}", prober.arm);
                line.step(done, all, &what);
                let probes = prober.probes();
                let began = Instant::now();
                let faults = prober.faults();
                killing += began.elapsed();
                if interrupt.is_set() {
                    return Ok(RunOutcome::Interrupted(dir));
                }
                // Record all probes of an arm or none, so that a resumed run does not repeat them.
                probes.iter().try_for_each(|probe| writer.probe(probe))?;
                for fault in faults {
                    writer.fault(&Fault { order: next_fault, ..fault })?;
                    next_fault += 1;
                }
            }
        }
        let crashed = crash(&plan, &stores, crashed, (beside.path(), killing), &writer, interrupt)?;
        if crashed == ScheduleEnd::Interrupted {
            return Ok(RunOutcome::Interrupted(dir));
        }
        if let Some(wanted) = &plan.model_files
            && plan.measures_model_files()
            && !dir.join(MODEL_FILES).exists()
        {
            eprintln!("measuring files that a language model generates (a minute or more)");
            match model_files::measure_for(wanted, &self.model, beside.path(), interrupt) {
                Ok(found) => writer.model_files(&found)?,
                Err(_) if interrupt.is_set() => return Ok(RunOutcome::Interrupted(dir)),
                // Without workloads the run has no other result.
                Err(error) if plan.workloads.is_empty() => return Err(error),
                Err(error) => {
                    // The rest of the run is valid. The report shows the reason.
                    eprintln!("warning: files that a language model generates were not measured: {error:#}");
                    writer.model_files(&ModelFiles { failed: Some(format!("{error:#}")), ..ModelFiles::default() })?;
                }
            }
        }
        Ok(RunOutcome::Complete(dir))
    }
}

/// The time that the probes of an arm usually take.
const OF_PROBES: Duration = Duration::from_secs(4);

/// The time that model files usually take.
const OF_MODEL_FILES: Duration = Duration::from_secs(60);

/// How long a run takes: its passes, what follows them, and all of it.
fn duration_words(plan: &Plan, arms: &[LiveArm], stores: &[LiveArm]) -> String {
    let sections = plan.schedule.sections.iter();
    let passes = Duration::from_millis(sections.map(|section| plan.budget_ms(section)).sum());
    let probed = arms.iter().filter(|arm| plan.probes_arm(&arm.name));
    let probes = OF_PROBES * probed.count() as u32;
    let crashes = crashes::usual_time(plan, arms, stores);
    let model_files = plan.measures_model_files().then_some(OF_MODEL_FILES);
    let parts = [
        (passes, "of passes"),
        (probes, "of probes"),
        (crashes, "of kills and power cuts"),
        (model_files.unwrap_or_default(), "of model files"),
    ];
    let all: Duration = parts.iter().map(|(time, _)| *time).sum();
    let parts = parts.iter().filter(|(time, _)| !time.is_zero());
    let parts = parts.map(|(time, what)| format!("{:.0} s {what}", time.as_secs_f64()));
    let parts = parts.collect::<Vec<_>>();
    let all = match all.as_secs_f64() {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds => format!("{:.1} minutes", seconds / 60.0),
    };
    match parts.len() {
        0 | 1 => format!("it takes about {all}"),
        _ => format!("it takes about {all}: {}", parts.join(", then ")),
    }
}

/// A prober for every available arm, except the A/A arm and slowed arms. None if the plan has no probes.
fn probers(plan: &Plan, arms: &[LiveArm], scratch: &Path, interrupt: &Interrupt) -> anyhow::Result<Vec<Prober>> {
    if !plan.probes {
        return Ok(Vec::new());
    }
    let program = std::env::current_exe().context("finding the ctxbench binary")?;
    let arms = arms.iter().filter(|arm| plan.probes_arm(&arm.name));
    let prober = |arm: &LiveArm| Prober {
        arm: arm.name.clone(),
        backend: Arc::clone(&arm.backend),
        scratch: scratch.to_owned(),
        program: program.clone(),
        interrupt: interrupt.clone(),
        // Crash points kill the daemons of stores more often, and at seeded moments.
        kills: if trial::has_crash_points(&*arm.backend) { 0 } else { plan.crash_points },
    };
    Ok(arms.map(prober).collect())
}
