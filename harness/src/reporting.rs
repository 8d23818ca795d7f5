//! Turns a run directory into a report and a decision, for the commands `run`, `report`, `decide` and `claims`.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use reports::claims::{self, Judged};
use reports::context::{Contexts, contexts};
use reports::decide::{Decision, Policy, decide, find};
use reports::prices::Prices;
use reports::render::{Report, results_page, splice, write};
use reports::summary::{Summary, summarise};
use rundir::{PLAN, POLICY, Run};

/// Which price list counts.
#[derive(Clone, Debug, Args)]
pub struct PriceList {
    /// Another price list than the built-in one.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
}

impl PriceList {
    /// Reads the price list.
    pub fn read(&self) -> anyhow::Result<Prices> {
        Ok(Prices::find(self.prices.as_deref())?)
    }

    /// The option that selects this list, for a printed command.
    pub fn option(&self) -> Option<String> {
        let file = self.prices.as_ref()?;
        Some(format!("--prices {}", file.display()))
    }
}

/// A run with everything derived from it.
pub struct ReportInputs {
    /// The run.
    pub run: Run,
    /// The summary of its samples.
    pub summary: Summary,
    /// The costs of its sessions' contexts.
    pub contexts: Contexts,
    /// The published figures, judged by this run.
    pub claims: Vec<Judged>,
    /// The decision, if there is a policy.
    pub decision: Option<Decision>,
}

impl ReportInputs {
    /// Reads a run and decides by `policy`, or by the policy in its plan.
    pub fn of(dir: &Path, policy: Option<&str>, prices: &PriceList) -> anyhow::Result<Self> {
        let run = Run::read(dir)?;
        let summary = match summarise(&run) {
            Ok(summary) => summary,
            Err(problem) => bail!("{}: {problem}", dir.display()),
        };
        let contexts = match contexts(&run, &prices.read()?) {
            Ok(contexts) => contexts,
            Err(problem) => bail!("{}: {problem}", dir.display()),
        };
        let claims = claims::judge(&summary, &contexts)?;
        let text = match (policy, &run.policy) {
            (Some(name), _) => Some(find(name)?),
            (None, Some(text)) => Some((dir.join(POLICY), text.clone())),
            (None, None) => None,
        };
        let decision = match text {
            Some((file, text)) => {
                let policy = Policy::parse(&file, &text)?;
                Some(decide(&policy, &text, &run, &summary))
            }
            None => None,
        };
        Ok(Self {
            run,
            summary,
            contexts,
            claims,
            decision,
        })
    }

    fn report(&self) -> Report<'_> {
        Report {
            run: &self.run,
            summary: &self.summary,
            contexts: &self.contexts,
            claims: &self.claims,
            decision: self.decision.clone(),
        }
    }

    /// Writes the report's excerpt between the marks in a file.
    pub fn splice_into(&self, file: &Path, links: &str) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file)?;
        std::fs::write(file, splice(&self.report(), &text, links)?)?;
        Ok(())
    }

    /// The results page, to which user pages link.
    pub fn results_page(&self) -> String {
        results_page(&self.report())
    }

    /// Writes the report into the run's directory. Returns the page's path.
    pub fn write(&self) -> anyhow::Result<PathBuf> {
        let dir = &self.run.dir;
        write(&self.report(), dir)
            .with_context(|| format!("writing the report into {}", dir.display()))
    }
}

/// The directory `asked`, or the newest run directory under `results`.
pub fn run_dir(asked: Option<&Path>, results: &Path) -> anyhow::Result<PathBuf> {
    match asked {
        Some(dir) => Ok(dir.to_owned()),
        None => newest(results, |_| true),
    }
}

/// As [`run_dir`], but only a run with measurements: no fault run, no conformance run.
///
/// # Errors
/// If `asked` has no measurements, or `results` has no such run.
pub fn measured_run_dir(asked: Option<&Path>, results: &Path) -> anyhow::Result<PathBuf> {
    let Some(dir) = asked else {
        // Take an unreadable run, so that the caller reports the error.
        return newest(results, |dir| {
            Run::read(dir).map_or(true, |run| run.plan.measures_nothing().is_none())
        });
    };
    if let Some(why) = Run::read(dir)?.plan.measures_nothing() {
        bail!(
            "{}: {why}\n  fix: name a directory that `ctxbench run` wrote",
            dir.display()
        );
    }
    Ok(dir.to_owned())
}

fn newest(results: &Path, is_wanted: impl Fn(&Path) -> bool) -> anyhow::Result<PathBuf> {
    let entries = match std::fs::read_dir(results) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "there is no {} here: make a run with `ctxbench run`, or name its directory",
                results.display()
            )
        }
        Err(error) => return Err(error).with_context(|| format!("reading {}", results.display())),
    };
    let runs = entries.flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = runs.filter(|dir| dir.join(PLAN).is_file()).collect();
    // Names start with the time, so the last is the newest.
    runs.sort();
    match runs.into_iter().rfind(|dir| is_wanted(dir)) {
        Some(newest) => Ok(newest),
        None => bail!(
            "there is no run in {}: make one with `ctxbench run`",
            results.display()
        ),
    }
}
