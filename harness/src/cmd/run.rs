//! `ctxbench run`: measure a suite and record it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use backends::backend::{self, Backend};
use backends::cpu;
use clap::{Args, ValueEnum};
use reports::context::check_prices;
use reports::decide::{Policy, find, identity};
use reports::render::{decision_table, ratio, table, time};
use rundir::{
    Environment, Looks, MODEL_FILES, Margins, Plan, PlannedPolicy, Schedule, Settings, Writer,
};
use stats::MAKESPAN;
use workloads::catalogue;
use workloads::definition::{CacheState, SessionSource, Workload};
use workloads::render::result_tokens;
use workloads::suite::Suite;

use crate::cell::pass_bytes;
use crate::environment::{self, environment, warnings};
use crate::fusectl::Fusectl;
use crate::interrupt::Interrupt;
use crate::lab::{Machine, SHARED_CPU};
use crate::model_files;
use crate::plan::{self, BASELINE, Inputs, LiveArm, SAME, arms};
use crate::probe::Prober;
use crate::progress::Progress;
use crate::reporting::{Judgement, PriceList};
use crate::run::{Ended, Runner};
use crate::scratch::{ScratchDir, ScratchDisk, Want};
use crate::session_contexts::session_contexts;

/// Measure a suite of workloads over backends and record every pass.
///
/// A run has epochs, each with a scratch file system, daemons, an order and a processor of its own. In each epoch every
/// cell (backend × workload × cache state) is measured in rounds: all arms are mounted at once, and short passes
/// alternate between them. Cells that are decided stop; the others go on until --budget is used up.
///
/// The results are in a directory of their own under --results; `ctxbench report` makes pages of it. Ctrl-C ends the run
/// in order; --resume goes on with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench run                                         # the default suite, four minutes of measuring
  ctxbench run --workload micro/stat --budget 20       # one workload of it
  ctxbench run --backend direct --backend sqlite --state hot
  ctxbench run --resume results/20261121-120000-default

Exit codes: 0 complete, 1 failed, 130 interrupted.")]
pub struct Run {
    #[command(flatten)]
    options: Options,
    /// Go on with an interrupted run; everything else is as it was planned.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["suite", "workload", "state", "backend", "budget", "epochs", "rounds", "margin", "margin_us", "seed", "out", "call_timeout", "placement", "policy", "no_probes", "no_model_files"])]
    resume: Option<PathBuf>,
}

/// What is to be measured, and how long.
#[derive(Clone, Debug, Args)]
pub struct Options {
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
    /// Seconds that measuring may take; three epochs with two rounds of each cell are made all the same [default: as
    /// the suite says, else 240].
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    budget: Option<f64>,
    /// The most epochs [default: as the suite says, else 8].
    #[arg(long, value_parser = clap::value_parser!(u32).range(3..=100))]
    epochs: Option<u32>,
    /// The most rounds of a cell in an epoch [default: as many as the budget allows].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The difference below which nobody cares, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = positive)]
    margin: f64,
    /// The same in microseconds a call; the wider margin holds.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 1.0)]
    margin_us: f64,
    /// What decides all random choices [default: the time].
    #[arg(long)]
    pub seed: Option<u64>,
    /// The directory that gets a directory for each run.
    #[arg(long, value_name = "DIR", default_value = "results")]
    pub results: PathBuf,
    /// The run's own directory, which must not hold a run yet [default: by time, under --results].
    #[arg(long, value_name = "DIR", conflicts_with = "results")]
    pub out: Option<PathBuf>,
    /// Where workspaces live while they are measured: this directory as it is. Without it, root gets a fresh journaled
    /// ext4 image an epoch in $CTXBENCH_SCRATCH or /var/tmp, and others a directory there.
    #[arg(long, value_name = "DIR")]
    scratch_dir: Option<PathBuf>,
    /// Seconds after which a call counts as a timeout; after twice as long it is cut off [default: as the
    /// suite says, else 10].
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    call_timeout: Option<f64>,
    /// Where the client and the daemon run.
    #[arg(long, value_enum, default_value_t = Placement::SharedCpu)]
    placement: Placement,
    /// The policy that the run is made for: a built-in one, the path of a file, or `none`. Its text is
    /// kept with the run.
    #[arg(long, value_name = "NAME", default_value = "vsm")]
    policy: String,
    /// Leave out the probes of tools, cron and visibility.
    #[arg(long)]
    pub no_probes: bool,
    /// Leave out the minute in which files are measured that a language model makes up; so do --workload, --backend
    /// and --state.
    #[arg(long)]
    pub no_model_files: bool,
    /// Measure `direct` once more with every call lengthened by so many percent: what a run must find.
    #[arg(long, value_name = "PERCENT", hide = true)]
    pub slowed: Vec<u32>,
    #[command(flatten)]
    pub prices: PriceList,
}

/// Seconds of measuring, unless suite or command line say otherwise.
const BUDGET: f64 = 240.0;

/// The most epochs, unless suite or command line say otherwise.
const EPOCHS: u32 = 8;

/// The most rounds of a cell in an epoch: more than that, and time is better spent in another epoch.
const ROUNDS: u32 = 60;

/// Seconds after which a call counts as a timeout, unless suite or command line say otherwise.
const CALL_TIMEOUT: f64 = 10.0;

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
    /// scheduler happens to wake the other. A daemon's background threads go where they like.
    SharedCpu,
    /// Wherever the scheduler puts them.
    Free,
}

impl Placement {
    fn name(self) -> &'static str {
        match self {
            Placement::SharedCpu => SHARED_CPU,
            Placement::Free => "free",
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

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(number),
        _ => Err("must be a number above 0".to_owned()),
    }
}

/// What came of measuring.
pub enum Measured {
    /// All that was wanted is in this run directory.
    Complete(PathBuf),
    /// The user ended it.
    Interrupted(PathBuf),
}

impl Run {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let dir = match self.options.measure(&interrupt, self.resume.as_deref())? {
            Measured::Complete(dir) => dir,
            Measured::Interrupted(dir) => {
                eprintln!(
                    "interrupted; go on with `ctxbench run --resume {}`",
                    dir.display()
                );
                return Ok(ExitCode::from(130));
            }
        };
        let judgement = Judgement::of(&dir, None, &self.options.prices)?;
        let page = judgement.write()?;
        print!("{}", summary_table(&judgement));
        if let Some(decision) = &judgement.decision {
            print!("\n{}", decision_table(decision));
        }
        println!("\nreport: {}", page.display());
        Ok(ExitCode::SUCCESS)
    }
}

impl Options {
    /// Plans a run, or goes on with the one in `resume`, and measures it to its end.
    pub fn measure(
        &self,
        interrupt: &Interrupt,
        resume: Option<&Path>,
    ) -> anyhow::Result<Measured> {
        // Probes and model files have a directory of their own: nothing of theirs is timed in microseconds.
        let beside = ScratchDir::make(self.scratch_dir.as_deref())?;
        let _fusectl = Fusectl::at_hand(beside.path());
        let prepared = match resume {
            Some(dir) => self.resumed(dir)?,
            None => self.planned()?,
        };
        let Prepared {
            dir,
            plan,
            writer,
            before,
            workloads,
            arms,
            scratch,
            environment,
        } = prepared;
        for warning in warnings(&environment) {
            eprintln!("warning: {warning}");
        }
        for arm in &plan.arms {
            if let Some(reason) = &arm.unavailable {
                eprintln!("skipped: {}: {reason}", arm.name);
            }
        }
        eprintln!(
            "{} workloads, {} arms, at most {} epochs, {:.0} s of measuring, seed {}; results in {}",
            plan.workloads.len(),
            plan.arms.len(),
            plan.schedule.epochs,
            plan.schedule.budget_ms as f64 / 1000.0,
            plan.seed,
            dir.display()
        );
        let probed: BTreeSet<String> = before
            .iter()
            .flat_map(|run| &run.probes)
            .map(|probe| probe.arm.clone())
            .collect();
        let probers = probers(&plan, &arms, beside.path(), interrupt)?;
        let mut machine = Machine {
            arms,
            workloads,
            scratch,
            program: std::env::current_exe().context("finding the ctxbench binary")?,
            interrupt: interrupt.clone(),
            cpus: cpu::allowed().context("asking for the processors")?,
            started: Instant::now(),
            epoch: None,
        };
        let mut progress = Progress::new(&plan.schedule);
        let mut runner = Runner::new(&plan, &writer, interrupt, before);
        let ended = runner.run(&mut machine, &mut progress);
        progress.finish();
        // The scratch goes before anything else begins.
        drop(machine);
        match ended {
            Ended::Complete => {}
            Ended::Interrupted => return Ok(Measured::Interrupted(dir)),
            Ended::ScratchFull(reason) => {
                bail!(
                    "the scratch is full: {reason}\n  what was recorded is readable in {}\n  fix: free space, or name another disk with --scratch-dir, and start a new run",
                    dir.display()
                );
            }
            Ended::NoScratch(error) => return Err(error),
            Ended::CannotRecord(error) => {
                return Err(anyhow::Error::new(error).context(format!(
                    "results cannot be written any more; what was recorded is readable in {}",
                    dir.display()
                )));
            }
        }
        if progress.failures() > 0 {
            eprintln!("{} passes did not end well; see above", progress.failures());
        }
        let mut probers = probers;
        probers.retain(|prober| !probed.contains(&prober.arm));
        if !probers.is_empty() {
            eprintln!("probing tools, visibility and cron safety (about 10 s)");
            for prober in probers {
                let probes = prober.probes();
                let faults = prober.faults();
                if interrupt.is_set() {
                    return Ok(Measured::Interrupted(dir));
                }
                // All of an arm's or none, so that a resumed run does not probe it twice.
                probes.iter().try_for_each(|probe| writer.probe(probe))?;
                faults.iter().try_for_each(|fault| writer.fault(fault))?;
            }
        }
        if plan.model_files && !dir.join(MODEL_FILES).exists() {
            eprintln!("files that a language model makes up (a minute)");
            match model_files::brief(beside.path(), interrupt) {
                Ok(found) => {
                    model_files::write(&found, &dir)?;
                }
                Err(_) if interrupt.is_set() => return Ok(Measured::Interrupted(dir)),
                Err(error) => {
                    // The rest of the run is as good as without it, and the report says why it is missing.
                    eprintln!("warning: they were not measured: {error:#}");
                    let failed = serde_json::json!({"failed": format!("{error:#}")});
                    std::fs::write(dir.join(MODEL_FILES), failed.to_string())?;
                }
            }
        }
        Ok(Measured::Complete(dir))
    }

    /// What workspaces live on.
    fn scratch(&self, workloads: &[Arc<Workload>], arms: usize) -> anyhow::Result<ScratchDisk> {
        let want = match &self.scratch_dir {
            Some(dir) => Want::Directory(dir),
            None => Want::Default,
        };
        ScratchDisk::choose(want, scratch_bytes(workloads, arms))
    }

    /// The command line that plans the same run.
    fn command(&self, seed: u64, schedule: &Schedule, call_timeout: f64) -> String {
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
        words.push(format!(
            "--margin {} --margin-us {}",
            self.margin, self.margin_us
        ));
        words.push(format!("--call-timeout {call_timeout}"));
        words.push(format!("--placement {}", self.placement.name()));
        words.push(format!("--policy {}", self.policy));
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

    fn planned(&self) -> anyhow::Result<Prepared> {
        let suite = self.suite()?;
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
                    bail!(
                        "workload {} makes no sense {name}; see `ctxbench list`",
                        entry.name
                    );
                }
            }
        }
        let mut backends: Vec<Arc<dyn Backend>> = Vec::new();
        for name in &suite.backends {
            backends.push(backend::find(name)?.into());
        }
        if let Some(recorded) = recording_instead(&backends) {
            backends.push(recorded);
        }
        let policy = self.policy()?;
        let mut arms = arms(backends);
        arms.extend(self.slowed(&arms));
        let schedule = self.schedule(&suite);
        let call_timeout = self
            .call_timeout
            .or(suite.call_timeout)
            .unwrap_or(CALL_TIMEOUT);
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
            schedule: schedule.clone(),
            margins: Margins {
                relative: self.margin / 100.0,
                absolute_ns: self.margin_us * 1000.0,
                ..Margins::default()
            },
            settings: Settings {
                call_timeout_ms: (call_timeout * 1000.0).ceil() as u64,
                placement: self.placement.name().to_owned(),
            },
            policy: policy.as_ref().map(|(name, text)| PlannedPolicy {
                name: name.clone(),
                sha256: identity(text),
            }),
            can_drop_caches: backend::can_drop_caches(),
            created: now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            ctxbench: environment::ctxbench(),
            command: self.command(seed, &schedule, call_timeout),
        });
        if let Some((_, text)) = &policy {
            let (file, _) = find(&self.policy)?;
            let missing = Policy::parse(&file, text)?.unanswered(&plan);
            if !missing.is_empty() {
                eprintln!(
                    "warning: policy {} will stay inconclusive: this run does not measure {}",
                    self.policy,
                    missing.join(", ")
                );
            }
        }
        let dir = match &self.out {
            Some(dir) => dir.clone(),
            None => {
                let suite = Path::new(&self.suite).file_stem().unwrap_or_default();
                let time = now.strftime("%Y%m%d-%H%M%S");
                self.results
                    .join(format!("{time}-{}", suite.to_string_lossy()))
            }
        };
        let scratch = self.scratch(&workloads, arms.len())?;
        let environment = environment(scratch.receipt()).context("looking at the machine")?;
        let policy = policy.as_ref().map(|(_, text)| text.as_str());
        let contexts = session_contexts(&workloads);
        if !contexts.is_empty() {
            // Not after minutes of measuring.
            let day = now.strftime("%Y-%m-%d").to_string();
            if let Err(problem) = check_prices(&self.prices.read()?, &day) {
                bail!("the report of this run could not be priced: {problem}");
            }
        }
        let writer = Writer::create(&dir, &plan, &environment, policy, &contexts)?;
        Ok(Prepared {
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

    fn schedule(&self, suite: &Suite) -> Schedule {
        let budget = self.budget.or(suite.budget).unwrap_or(BUDGET);
        let epochs = self.epochs.or(suite.epochs).unwrap_or(EPOCHS);
        Schedule {
            budget_ms: (budget * 1000.0).ceil() as u64,
            epochs,
            rounds: self.rounds.or(suite.rounds).unwrap_or(ROUNDS),
            looks: Looks::within(epochs),
        }
    }

    /// The baseline once more for each planted slowdown.
    fn slowed(&self, arms: &[LiveArm]) -> Vec<LiveArm> {
        let baseline = arms.iter().find(|arm| arm.name == BASELINE);
        let slowed = self.slowed.iter().filter_map(|percent| {
            let arm = baseline?.clone();
            Some(LiveArm {
                name: format!("{BASELINE}-slowed-{percent}"),
                slowed_percent: Some(*percent),
                ..arm
            })
        });
        slowed.collect()
    }

    /// The policy's name and text, checked before anything is measured.
    fn policy(&self) -> anyhow::Result<Option<(String, String)>> {
        if self.policy == "none" {
            return Ok(None);
        }
        let (file, text) = find(&self.policy)?;
        let policy = Policy::parse(&file, &text)?;
        Ok(Some((policy.name, text)))
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
        suite.probes &= !self.no_probes;
        let is_narrowed =
            !(self.workload.is_empty() && self.backend.is_empty() && self.state.is_empty());
        suite.model_files &= !(self.no_model_files || is_narrowed);
        Ok(suite)
    }

    fn resumed(&self, dir: &Path) -> anyhow::Result<Prepared> {
        let (writer, run) = Writer::resume(dir)?;
        let mut workloads = Vec::new();
        for planned in &run.plan.workloads {
            let place = planned.file.as_ref().unwrap_or(&planned.name);
            let workload = catalogue::workload(place)?;
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
        for arm in run
            .plan
            .arms
            .iter()
            .filter(|arm| arm.same_as.is_none() && arm.slowed_percent.is_none())
        {
            let named = arm.backend.file.as_ref().unwrap_or(&arm.backend.name);
            let found = backend::find(named)?;
            if arm.unavailable.is_none()
                && found.receipt().ok().as_ref() != Some(&arm.backend.receipt)
            {
                bail!(
                    "backend {} is not what it was when {} was planned\n  fix: start a new run",
                    arm.backend.name,
                    dir.display()
                );
            }
            backends.push(found.into());
        }
        let mut arms = arms(backends);
        let slowed = run.plan.arms.iter().filter_map(|arm| arm.slowed_percent);
        let options = Options {
            slowed: slowed.collect(),
            ..self.clone()
        };
        arms.extend(options.slowed(&arms));
        let scratch = self.scratch(&workloads, arms.len())?;
        let (then, now) = (&run.environment, environment(scratch.receipt())?);
        for (what, then, now) in [
            ("the binary", &then.binary_sha256, &now.binary_sha256),
            ("the kernel", &then.kernel, &now.kernel),
            ("the processor", &then.cpu, &now.cpu),
            (
                "the scratch file system",
                &then.scratch.file_system,
                &now.scratch.file_system,
            ),
            ("the user", &then.user, &now.user),
        ] {
            if then != now {
                bail!(
                    "{}: {what} is another one than when the run began ({then}; now {now}): figures do not mix\n  fix: start a new run",
                    dir.display()
                );
            }
        }
        Ok(Prepared {
            dir: dir.to_owned(),
            plan: run.plan.clone(),
            writer,
            environment: now,
            before: Some(run),
            workloads,
            arms,
            scratch,
        })
    }
}

struct Prepared {
    dir: PathBuf,
    plan: Plan,
    writer: Writer,
    /// What an earlier part of the run has recorded.
    before: Option<rundir::Run>,
    workloads: Vec<Arc<Workload>>,
    arms: Vec<LiveArm>,
    scratch: ScratchDisk,
    environment: Environment,
}

/// A prober for every arm that can be measured, the same again and slowed ones left out; none if the plan wants no probes.
fn probers(
    plan: &Plan,
    arms: &[LiveArm],
    scratch: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Vec<Prober>> {
    if !plan.probes {
        return Ok(Vec::new());
    }
    let program = std::env::current_exe().context("finding the ctxbench binary")?;
    let arms = arms
        .iter()
        // Programs are what is probed with: what has no path has nothing for them.
        .filter(|arm| {
            arm.receipt.is_ok()
                && arm.name != SAME
                && arm.slowed_percent.is_none()
                && !arm.backend.is_tools_only()
        });
    let prober = |arm: &LiveArm| Prober {
        arm: arm.name.clone(),
        backend: Arc::clone(&arm.backend),
        scratch: scratch.to_owned(),
        program: program.clone(),
        interrupt: interrupt.clone(),
    };
    Ok(arms.map(prober).collect())
}

/// What workspaces may take on the scratch at once, in bytes, with room for logs and journals.
fn scratch_bytes(workloads: &[Arc<Workload>], arms: usize) -> u64 {
    let largest = workloads
        .iter()
        .map(|own| pass_bytes(own))
        .max()
        .unwrap_or(0);
    // A store holds bytes in its log and its database; finished passes stay up to 32 MiB an arm.
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

/// The arm that answers from the recording, where a run is to ask a live model and there is none.
fn recording_instead(backends: &[Arc<dyn Backend>]) -> Option<Arc<dyn Backend>> {
    const LIVE: &str = "llm-history-live";
    const RECORDED: &str = "llm-history-recorded";
    let named = |name: &str| {
        let mut all = backends.iter();
        all.find(|backend| backend.describe().name == name)
    };
    let missing = named(LIVE)?.receipt().err()?;
    if named(RECORDED).is_some() {
        return None;
    }
    eprintln!(
        "no live model: {missing}\n  {RECORDED} replays the answers of an earlier one in its place, as an arm of its own"
    );
    backend::find(RECORDED).ok().map(Arc::from)
}

/// A seed that fits into TOML's integers.
fn time_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64 & (i64::MAX as u64))
}

/// The headline of a run: operations and sessions, each arm's ratio to the baseline.
fn summary_table(judgement: &Judgement) -> String {
    let summary = &judgement.summary;
    let arms = judgement.run.plan.arms.iter().map(|arm| arm.name.as_str());
    let arms: Vec<&str> = arms
        .filter(|arm| *arm != summary.baseline && Some(*arm) != summary.same.as_deref())
        .collect();
    let mut rows = Vec::new();
    let baseline = summary
        .cells
        .iter()
        .filter(|cell| cell.arm == summary.baseline);
    for cell in baseline {
        if cell.workload.starts_with("agent/") && cell.metric != MAKESPAN {
            continue;
        }
        let mut row = vec![
            format!("{} {}", cell.workload, cell.state),
            time(cell.typical_ns),
        ];
        for arm in &arms {
            let own = summary.cells.iter().find(|own| {
                own.arm == *arm
                    && own.workload == cell.workload
                    && own.state == cell.state
                    && own.metric == cell.metric
            });
            let comparison = own.and_then(|own| own.against_baseline.as_ref());
            row.push(comparison.map_or("–".to_owned(), ratio));
        }
        rows.push(row);
    }
    let wrong: String = summary
        .failing
        .iter()
        .map(|failing| {
            format!(
                "{} {} on {}: {} of calls did not end well, in {} of {} passes; it is in no figure above\n",
                failing.workload,
                failing.state,
                failing.arm,
                format_args!("{:.1} %", failing.share() * 100.0),
                failing.passes,
                failing.of_passes
            )
        })
        .collect();
    let mut head = vec!["workload", &summary.baseline];
    head.extend(&arms);
    let mut text = table(&head, &rows);
    for note in &summary.health.notes {
        text += &format!("\n{note}");
    }
    text += &format!(
        "\nratios to {} with 99 % intervals over {} epochs; {}\n{wrong}",
        summary.baseline,
        summary.health.epochs,
        summary.health.identical_arms()
    );
    text
}
