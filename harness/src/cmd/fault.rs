//! `ctxbench fault`: break the world of a backend on purpose, and say what came of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use backends::backend::{self, Backend};
use clap::Args;
use reports::faults::{
    CellKind, FaultOutcome, FaultPlan, FaultRun, FaultWriter, KILLED_DAEMON, MACHINE_LOSS,
    POWER_LOSS, PlannedBackend, PlannedScenario,
};
use reports::render::{splice_faults, table, write_faults};
use rundir::SCHEMA_VERSION;
use workloads::fault::{Group, Scenario, scenario, scenarios};

use crate::environment::{self, environment_in};
use crate::fault::{
    Ended, Estimate, Live, Turn, Watcher, misfit, of_points, play_all, roughly, turns,
};
use crate::fusectl::Fusectl;
use crate::interrupt::Interrupt;
use crate::scratch::ScratchDir;

/// Break the world of each backend on purpose: what the agent sees, how long it hangs, what is lost, how it comes back.
///
/// Each scenario is a file of workloads/faults. The agent is a process of its own under a watchdog; a mount that hangs is
/// aborted. Records are numbered and checksummed, and what was acknowledged is noted outside the mount. The results are
/// in a directory of their own under --results, with a page.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench fault --list                                 # the scenarios, and which backends they fit
  ctxbench fault                                        # all of them, on our backends
  ctxbench fault --group daemon --backend sqlite
  ctxbench fault --scenario kill-while-writing --seed 7
  ctxbench fault --report results/20261122-150000-fault # write its page anew
  ctxbench fault --report results/20261122-150000-fault --into docs/FAULTS.md   # and its tables into a document

Exit codes: 0 nothing was breached, 1 something was, or could not be measured, or is not known, 130 interrupted.")]
pub struct Fault {
    /// List the scenarios and end.
    #[arg(long)]
    list: bool,
    /// Only these scenarios, by name or path.
    #[arg(long, value_name = "NAME")]
    scenario: Vec<String>,
    /// Only scenarios of these groups.
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Vec<Group>,
    /// Only these backends.
    #[arg(long, value_name = "NAME")]
    backend: Vec<String>,
    /// What decides the random choices [default: as the scenario says].
    #[arg(long)]
    seed: Option<u64>,
    /// Kill the daemon so often, after delays that the seed decides, and look at every record after each: of the backends asked
    /// for, else of sqlite and s3. sqlite also gets as many simulated power cuts.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    crash_points: u64,
    /// Play no scenarios: crash points only.
    #[arg(long, requires = "crash_points")]
    no_scenarios: bool,
    /// Shorten nothing: SIGSTOP for 30 s, a whole GiB written, S3 outages of ten minutes each.
    #[arg(long)]
    long: bool,
    /// The directory that gets a directory for each run.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Where workspaces live [default: $CTXBENCH_SCRATCH or /var/tmp].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// Write the page of an earlier run anew and end.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Also put the run's tables into this document, between marks such as `<!-- MATRIX -->` and `<!-- end of MATRIX -->`:
    /// MATRIX, CRASH, FINDINGS, BUCKET, MODEL. What the run has nothing of stays.
    #[arg(long, value_name = "FILE", requires = "report")]
    into: Option<PathBuf>,
}

/// How often a line says how far the crash points are.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// What a scenario of group `llm` is played on.
const SCRIPTED: [&str; 2] = ["llm-history-scripted", "llm-generate-scripted"];

fn group(name: &str) -> Result<Group, String> {
    let names = Group::ALL.map(Group::name);
    let found = Group::ALL.into_iter().find(|group| group.name() == name);
    found.ok_or(format!("one of {}", names.join(", ")))
}

impl Fault {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if let Some(dir) = &self.report {
            if let Some(file) = &self.into {
                put_into(&FaultRun::read(dir)?, file)?;
            }
            return conclude(dir);
        }
        let scenarios = self.scenarios()?;
        let backends = self.backends(&scenarios)?;
        if self.list {
            print!("{}", list(&scenarios, &backends));
            return Ok(ExitCode::SUCCESS);
        }
        let interrupt = Interrupt::catch().context("setting up signal handling")?;
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        let _fusectl = Fusectl::at_hand(scratch.path());
        let backends: Vec<(Arc<dyn Backend>, Option<String>)> = backends
            .into_iter()
            .map(|backend| {
                let unavailable = backend.receipt().err().map(|error| error.to_string());
                (backend, unavailable)
            })
            .collect();
        for (backend, unavailable) in &backends {
            if let Some(reason) = unavailable {
                eprintln!("skipped: {}: {reason}", backend.describe().name);
            }
        }
        let plan = plan(&scenarios, &backends, self.crash_points);
        let dir = self.results.join(format!("{}-fault", stamp(&plan.created)));
        let environment = environment_in(scratch.path()).context("looking at the machine")?;
        let writer = FaultWriter::create(&dir, &plan, &environment)?;
        let turns = turns(&scenarios, backends.len(), self.seed);
        let estimate = Estimate::of(&turns, &scenarios, &backends, self.long);
        eprintln!(
            "{} scenarios on {} backends; results in {}",
            scenarios.len(),
            backends.len(),
            dir.display()
        );
        if !turns.is_empty() {
            let whole = estimate.left(turns.len());
            eprintln!("the scenarios will take about {}", roughly(whole));
        }
        let mut live = Live {
            scenarios,
            backends,
            scratch: scratch.path().to_owned(),
            program: std::env::current_exe().context("finding the ctxbench binary")?,
            interrupt: interrupt.clone(),
            is_long: self.long,
            sites: 0,
        };
        let mut progress = Lines {
            names: plan.scenarios.iter().map(|s| s.name.clone()).collect(),
            estimate,
            turn: String::new(),
        };
        let mut ended = play_all(&turns, &mut live, &writer, &mut progress, &interrupt)
            .map_err(anyhow::Error::from);
        if matches!(ended, Ok(Ended::Complete)) && self.crash_points > 0 {
            if self.backend.is_empty() {
                live.backends.retain(|(backend, _)| {
                    let name = backend.describe().name;
                    name == "sqlite" || (name.starts_with("s3-") && !name.starts_with("s3-fsync"))
                });
            }
            let points = self.crash_points;
            let whole = of_points(points, live.backends.len());
            eprintln!("the crash points will take about {}", roughly(whole));
            let mut last = Instant::now();
            let mut told = |backend: &str, what: &str, at: u64| {
                if at == points || last.elapsed() > LINE_EVERY {
                    last = Instant::now();
                    eprintln!("{backend}: {at} of {points} {what}");
                }
            };
            ended = live.crash_points(points, self.seed.unwrap_or(1), &writer, &mut told);
        }
        drop(live);
        // Whatever has become of the rest: there is a page of what there is.
        let concluded = conclude(&dir);
        match ended? {
            Ended::Interrupted => {
                eprintln!("interrupted; what there is of it is in {}", dir.display());
                Ok(ExitCode::from(130))
            }
            Ended::Complete => concluded,
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
            bail!("no scenario is of that group: see `ctxbench fault --list`");
        }
        Ok(all)
    }

    /// The backends asked for, or all of ours that an agent's files can be in; those that ask a model with one that
    /// scenarios script.
    fn backends(&self, scenarios: &[Scenario]) -> anyhow::Result<Vec<Arc<dyn Backend>>> {
        if !self.backend.is_empty() {
            let named = self
                .backend
                .iter()
                .map(|name| Ok(backend::find(name)?.into()));
            return named.collect();
        }
        let ours = backend::registry().into_iter();
        let fit = ours.filter(|backend| {
            let described = backend.describe();
            described.capabilities.holds_data
                && !described.needs_model()
                && !backend.is_tools_only()
        });
        let mut fit: Vec<Arc<dyn Backend>> = fit.map(Arc::from).collect();
        if scenarios
            .iter()
            .any(|scenario| scenario.group == Group::Llm)
        {
            for name in SCRIPTED {
                fit.push(backend::find(name)?.into());
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

fn plan(
    scenarios: &[Scenario],
    backends: &[(Arc<dyn Backend>, Option<String>)],
    crash_points: u64,
) -> FaultPlan {
    let scenarios = scenarios.iter().map(|scenario| PlannedScenario {
        name: scenario.name.clone(),
        group: scenario.group.name().to_owned(),
        title: scenario.title.clone(),
        essay: scenario.essay.trim().to_owned(),
        sha256: scenario.sha256.clone(),
        hang_limit_s: scenario.limits.hang,
    });
    let backends = backends.iter().map(|(backend, unavailable)| {
        let described = backend.describe();
        let promises = backend.promises();
        let promised = [
            (KILLED_DAEMON, promises.killed_daemon),
            (POWER_LOSS, promises.power_loss),
            (MACHINE_LOSS, promises.machine_loss),
        ];
        let promised = promised
            .into_iter()
            .filter_map(|(loss, class)| Some((loss.to_owned(), class?.name().to_owned())));
        PlannedBackend {
            name: described.name,
            summary: described.summary,
            durability: described.durability,
            promises: promised.collect(),
            receipt: backend.receipt().unwrap_or_else(|_| BTreeMap::new()),
            unavailable: unavailable.clone(),
        }
    });
    FaultPlan {
        schema: SCHEMA_VERSION,
        created: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        ctxbench: environment::ctxbench(),
        scenarios: scenarios.collect(),
        backends: backends.collect(),
        crash_points,
    }
}

/// A time as part of a directory's name.
fn stamp(created: &str) -> String {
    created.replace(['-', ':', 'Z'], "").replace('T', "-")
}

/// A line on standard error for each turn.
struct Lines {
    names: Vec<String>,
    estimate: Estimate,
    turn: String,
}

impl Watcher for Lines {
    fn begins(&mut self, turn: &Turn, left: usize) {
        self.turn = format!(
            "{left:4} left, about {:>6}  {}",
            roughly(self.estimate.left(left)),
            self.names[turn.scenario]
        );
    }

    fn recorded(&mut self, outcome: &FaultOutcome) {
        let kind = outcome.cell();
        if kind == CellKind::Unfit {
            return;
        }
        let more = outcome
            .reason
            .clone()
            .or_else(|| outcome.breaches.first().cloned())
            .or_else(|| {
                outcome
                    .seen
                    .first()
                    .map(|seen| format!("{}: {}", seen.call, seen.text))
            })
            .unwrap_or_default();
        eprintln!(
            "{} on {}: {} ({:.1} s) {more}",
            self.turn,
            outcome.backend,
            kind.words(),
            outcome.took_ms as f64 / 1e3
        );
    }
}

/// Writes the page, says where it lies and what is on it.
fn conclude(dir: &Path) -> anyhow::Result<ExitCode> {
    let run = FaultRun::read(dir)?;
    let page = write_faults(&run).context("writing the page")?;
    let mut kinds: BTreeMap<CellKind, u64> = BTreeMap::new();
    for outcome in &run.outcomes {
        *kinds.entry(outcome.cell()).or_default() += 1;
    }
    for (kind, count) in kinds.iter().rev() {
        println!("{count:5}  {}", kind.words());
    }
    for points in &run.crash_points {
        if let Some(reason) = &points.reason {
            println!(
                "crash points on {}, {}: {:?}: {reason}",
                points.backend, points.loss, points.status
            );
        }
        if points.points == 0 {
            continue;
        }
        let audit = &points.audit;
        println!(
            "{} crash points on {}, {}: {} lost, {} torn, {} stale, {} phantom, {} mixtures, {} unreadable: {}",
            points.points,
            points.backend,
            points.loss,
            audit.lost,
            audit.torn,
            audit.stale,
            audit.phantom,
            points
                .mixtures
                .map_or("-".to_owned(), |mixtures| mixtures.to_string()),
            audit.unreadable,
            audit.verdict.name()
        );
    }
    println!("page: {}", page.display());
    let bad_outcome = kinds.keys().any(|kind| *kind >= CellKind::Unknown);
    let bad_point = run.crash_points.iter().any(|points| !points.is_passed());
    Ok(ExitCode::from(u8::from(bad_outcome || bad_point)))
}

/// Puts the tables of a run into a document.
fn put_into(run: &FaultRun, file: &Path) -> anyhow::Result<()> {
    let name = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {name}"))?;
    let (text, replaced) = splice_faults(run, &text).with_context(|| name.to_string())?;
    std::fs::write(file, text).with_context(|| format!("writing {name}"))?;
    println!("{name}: {}", replaced.join(", "));
    Ok(())
}
