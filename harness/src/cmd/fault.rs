//! `ctxbench fault`: injects faults around a backend and reports the losses.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use arms::backend::Backend;
use backends::registry::Registry;
use clap::Args;
use reports::render::{number_of, table, write_faults};
use rundir::faults::{CellKind, CrashPoints, FaultOutcome};
use rundir::{Plan, PlannedScenario, Run, Writer};
use schemars::JsonSchema;
use serde::Serialize;
use workloads::fault::{Group, Scenario, scenario, scenarios};

use super::format::{ScreenFormat, print_json};
use crate::crash_words::crash_words;
use crate::environment::{self, environment};
use crate::fusectl::Fusectl;
use crate::named_backends::{check_usable, try_mounts};
use crate::progress_line::ProgressLine;
use runner::plan::{BASELINE, LiveArm, arm, single_arms};
use runner::scratch::ScratchDisk;
use trial::interrupt::Interrupt;
use trial::{
    CrashPointPlan, Estimate, LiveExecutor, ScenarioRun, ScheduleEnd, misfit, of_points, roughly, run_all,
    scenario_runs, scratch_bytes,
};

/// Inject faults into backends, and report what is lost.
///
/// Measures errors, wrong data, the time that calls hang, lost records, and how the backend recovers. Each scenario is
/// a file in workloads/faults. The agent runs in a process of its own under a watchdog; a mount that hangs is aborted.
/// Records are numbered and checksummed, and every acknowledgement is noted outside the mount. Each run writes a
/// directory of its own under --results, with a page.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench fault --list                                 # the scenarios, and which backends they fit
  ctxbench fault                                        # all of them, on our backends
  ctxbench fault --group daemon --backend sqlite
  ctxbench fault --scenario kill-while-writing --seed 7
  ctxbench report results/20261122-150000-fault         # write its page again

Exit codes: 0 no promise was breached; 1 a promise was breached, or an outcome is not measured or unknown; 130 interrupted.")]
pub struct Fault {
    /// List the scenarios, and exit.
    #[arg(long)]
    list: bool,
    /// Run only these scenarios (names or paths).
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Run only scenarios of these groups.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Vec<Group>,
    /// Test only these backends; `direct` runs for comparison in every scenario that fits it.
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// The seed of the random choices [default: the scenario's].
    #[arg(long)]
    seed: Option<u64>,
    /// Kill the daemon this many times, after delays that depend on the seed, and check every record after each kill;
    /// then simulate as many power cuts. Without --backend, this tests sqlite, agent-memory and s3.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    crash_points: u64,
    /// Run crash points only, and no scenarios.
    #[arg(long, requires = "crash_points")]
    no_scenarios: bool,
    /// Run scenarios at full length: SIGSTOP for 30 s, a write of a whole file of nearly 1 GiB, S3 outages of one or
    /// ten minutes.
    #[arg(long)]
    long: bool,
    /// Directory in which each run creates its own directory.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Keep the workspaces in this directory [default: as root a new journaled ext4 image in $CTXBENCH_SCRATCH or
    /// /var/tmp, else a directory there].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

/// The backends for scenarios of group `llm`.
const SCRIPTED: [&str; 2] = ["llm-history-scripted", "llm-generate-scripted"];

fn group(name: &str) -> Result<Group, String> {
    let found = Group::ALL.iter().find(|group| group.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = Group::ALL.iter().map(|group| group.name()).collect();
        format!("it must be one of {}", names.join(", "))
    })
}

impl Fault {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let scenarios = self.scenarios()?;
        let backends = self.backends(registry, &scenarios)?;
        if self.list {
            print!("{}", list(&scenarios, &backends));
            return Ok(ExitCode::SUCCESS);
        }
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let needed = scratch_bytes(&scenarios, self.long);
        let disk = ScratchDisk::choose(self.scratch.as_deref(), needed)?;
        let scratch = disk.epoch()?;
        let _fusectl = Fusectl::at_hand(scratch.path());
        let mut arms = single_arms(&backends);
        let is_named = |_: &str| !self.backend.is_empty();
        check_usable(&arms, is_named)?;
        if !try_mounts(&mut arms, scratch.path(), &interrupt)? {
            return Ok(ExitCode::from(130));
        }
        check_usable(&arms, is_named)?;
        let backends: Vec<(Arc<dyn Backend>, Option<String>)> = arms
            .iter()
            .map(|arm| {
                let unavailable = arm.versions.as_ref().err();
                (Arc::clone(&arm.backend), unavailable.map(ToString::to_string))
            })
            .collect();
        for (backend, unavailable) in &backends {
            if let Some(reason) = unavailable {
                eprintln!("skipped: {}: {reason}", backend.describe().name);
            }
        }
        let plan = plan(&scenarios, &arms, self.crash_points);
        let environment = environment(disk.receipt()).context("reading the properties of the machine")?;
        let dir = environment::new_run_dir(&self.results, &plan.created, "fault")?;
        let writer = Writer::create(&dir, &plan, &environment, None, &[])?;
        let runs = scenario_runs(&scenarios, backends.len(), self.seed);
        let estimate = Estimate::of(&runs, &scenarios, &backends, self.long);
        eprintln!(
            "{} on {}; results in {}",
            number_of(scenarios.len(), "scenario"),
            number_of(backends.len(), "backend"),
            dir.display()
        );
        if !runs.is_empty() {
            let whole = estimate.left(runs.len());
            eprintln!("the scenarios will take about {}", roughly(whole));
        }
        let mut live = LiveExecutor {
            scenarios,
            backends,
            scratch: scratch.path().to_owned(),
            program: std::env::current_exe().context("finding the ctxbench binary")?,
            interrupt: interrupt.clone(),
            is_long: self.long,
            sites: 0,
        };
        let mut execute = |run: &ScenarioRun| live.run(run);
        let mut recorded = |outcome: &FaultOutcome, left| print_outcome(outcome, left, &estimate);
        let mut ended = run_all(&runs, &mut execute, &writer, &mut recorded, &interrupt).map_err(anyhow::Error::from);
        if matches!(ended, Ok(ScheduleEnd::Complete)) && self.crash_points > 0 {
            live.backends.retain(|(backend, _)| {
                let name = backend.describe().name;
                if self.backend.is_empty() {
                    ["sqlite", "agent-memory"].contains(&&*name)
                        || (name.starts_with("s3-") && !name.starts_with("s3-fsync"))
                } else {
                    // Not on a baseline that was added for the scenarios.
                    name != BASELINE || self.backend.contains(&name)
                }
            });
            let points = self.crash_points;
            let whole = of_points(points, live.backends.iter().map(|(backend, _)| &**backend));
            eprintln!("the crash points will take about {}", roughly(whole));
            let line = ProgressLine::still();
            let mut told = |backend: &str, what: &str, at: u64| {
                let share = at as f64 / points as f64;
                line.show(share, None, &format!("{backend}: {at} of {points} {what}"));
            };
            let mut recorded = |lines: &[CrashPoints]| eprintln!("{}", crash_words(lines));
            let plan = CrashPointPlan { points, seed: self.seed.unwrap_or(1), limit: None };
            ended = live.crash_points(plan, &writer, &mut told, &mut recorded);
        }
        drop(live);
        // Write the page even if the run failed.
        let concluded = conclude(&dir, ScreenFormat::Text);
        match ended? {
            ScheduleEnd::Interrupted => {
                eprintln!("interrupted; the partial results are in {}", dir.display());
                Ok(ExitCode::from(130))
            }
            ScheduleEnd::Complete => concluded,
        }
    }

    fn scenarios(&self) -> anyhow::Result<Vec<Scenario>> {
        if self.no_scenarios {
            return Ok(Vec::new());
        }
        let mut all = if self.scenario.is_empty() {
            scenarios()?
        } else {
            let named = self.scenario.iter().map(|name| scenario(name));
            named.collect::<Result<_, _>>()?
        };
        all.retain(|scenario| self.group.is_empty() || self.group.contains(&scenario.group));
        if all.is_empty() {
            bail!("no scenario has this group: see `ctxbench fault --list`");
        }
        Ok(all)
    }

    /// The backends of `--backend`, or all of ours with data and paths and without a model. Scenarios of group
    /// `llm` add backends with a scripted model.
    fn backends(&self, registry: &Registry, scenarios: &[Scenario]) -> anyhow::Result<Vec<Arc<dyn Backend>>> {
        if !self.backend.is_empty() {
            let named = self.backend.iter().map(|name| Ok(registry.find(name)?.into()));
            let mut named: Vec<Arc<dyn Backend>> = named.collect::<anyhow::Result<_>>()?;
            // A step that a scenario takes on every backend says nothing about one of them.
            let baseline: Arc<dyn Backend> = registry.find(BASELINE)?.into();
            let is_there = |name: &str| named.iter().any(|one| one.describe().name == name);
            let fits = |scenario: &Scenario| misfit(scenario, &*baseline).is_none();
            if !is_there(BASELINE) && scenarios.iter().any(fits) {
                named.push(baseline);
            }
            return Ok(named);
        }
        let ours = registry.ours().into_iter();
        let fit = ours.filter(|backend| {
            let described = backend.describe();
            described.capabilities.holds_data && !described.needs_model() && backend.has_paths()
        });
        let mut fit: Vec<Arc<dyn Backend>> = fit.map(Arc::from).collect();
        if scenarios.iter().any(|scenario| scenario.group == Group::Llm) {
            for name in SCRIPTED {
                fit.push(registry.find(name)?.into());
            }
        }
        Ok(fit)
    }
}

fn list(scenarios: &[Scenario], backends: &[Arc<dyn Backend>]) -> String {
    let rows: Vec<Vec<String>> = scenarios
        .iter()
        .map(|scenario| {
            let fits = backends
                .iter()
                .filter(|backend| misfit(scenario, &***backend).is_none())
                .map(|backend| backend.describe().name);
            vec![
                scenario.group.name().to_owned(),
                scenario.name.clone(),
                scenario.title.clone(),
                fits.collect::<Vec<_>>().join(" "),
            ]
        })
        .collect();
    table(&["group", "scenario", "what happens", "fits"], &rows)
}

fn plan(scenarios: &[Scenario], arms: &[LiveArm], crash_points: u64) -> Plan {
    let scenarios = scenarios.iter().map(|scenario| PlannedScenario {
        name: scenario.name.clone(),
        group: scenario.group.name().to_owned(),
        title: scenario.title.clone(),
        essay: scenario.essay.trim().to_owned(),
        sha256: scenario.sha256.clone(),
        hang_limit_s: scenario.limits.hang,
    });
    Plan {
        scenarios: scenarios.collect(),
        crash_points,
        ..Plan::without_passes(
            "fault",
            "What each backend does when a fault is injected.",
            environment::now(),
            environment::ctxbench(),
            environment::command(),
            arms.iter().map(arm).collect(),
        )
    }
}

/// Prints a line about an outcome on standard error, and about the runs that are left.
fn print_outcome(outcome: &FaultOutcome, left: usize, estimate: &Estimate) {
    let kind = outcome.cell();
    if kind == CellKind::Unfit {
        return;
    }
    let seen = outcome.seen.first();
    let seen = seen.map(|seen| format!("{}: {}", seen.call, seen.text));
    let breach = outcome.breaches.first().cloned();
    let more = outcome.reason.clone().or(breach).or(seen);
    eprintln!(
        "{left:4} left, about {:>6}  {} on {}: {} ({:.1} s) {}",
        roughly(estimate.left(left)),
        outcome.scenario,
        outcome.backend,
        kind.words(),
        outcome.took_ms as f64 / 1e3,
        more.unwrap_or_default()
    );
}

/// What `report` prints of a fault run for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct FaultHeadline<'a> {
    /// The run's directory.
    run: Cow<'a, str>,
    /// The page of the report.
    report: Cow<'a, str>,
    /// How many scenarios on a backend ended so, by outcome.
    outcomes: BTreeMap<&'static str, u64>,
    /// The crash points, by backend and loss.
    crash_points: &'a [CrashPoints],
}

/// Writes the page and prints a summary. The exit code is 1 if a promise was breached or an outcome is unknown.
pub fn conclude(dir: &Path, format: ScreenFormat) -> anyhow::Result<ExitCode> {
    let run = Run::read(dir)?;
    let page = write_faults(&run).context("writing the page")?;
    let mut kinds: BTreeMap<CellKind, u64> = BTreeMap::new();
    for outcome in &run.fault_outcomes {
        *kinds.entry(outcome.cell()).or_default() += 1;
    }
    match format {
        ScreenFormat::Text => print!("{}", summary(&run, &kinds, &page)),
        ScreenFormat::Json => {
            let kinds = kinds.iter().map(|(kind, count)| (kind.words(), *count));
            print_json(&FaultHeadline {
                run: dir.to_string_lossy(),
                report: page.to_string_lossy(),
                outcomes: kinds.collect(),
                crash_points: &run.crash_points,
            })?;
        }
    }
    let bad_outcome = kinds.keys().any(|kind| *kind >= CellKind::Unknown);
    let bad_point = run.crash_points.iter().any(|points| !points.is_passed());
    Ok(ExitCode::from(u8::from(bad_outcome || bad_point)))
}

fn summary(run: &Run, kinds: &BTreeMap<CellKind, u64>, page: &Path) -> String {
    let mut text = String::new();
    for (kind, count) in kinds.iter().rev() {
        text += &format!("{count:5}  {}\n", kind.words());
    }
    for points in &run.crash_points {
        if let Some(reason) = &points.reason {
            text += &format!("crash points on {}, {}: {:?}: {reason}\n", points.backend, points.loss, points.status);
        }
        if points.points == 0 {
            continue;
        }
        let audit = &points.audit;
        text += &format!(
            "{} crash points on {}, {}: {} lost, {} torn, {} stale, {} phantom, {} mixtures, {} unreadable: {}\n",
            points.points,
            points.backend,
            points.loss,
            audit.lost,
            audit.torn,
            audit.stale,
            audit.phantom,
            points.mixtures.map_or("-".to_owned(), |mixtures| mixtures.to_string()),
            audit.unreadable,
            audit.verdict.name()
        );
    }
    text + &format!("page: {}\n", page.display())
}
