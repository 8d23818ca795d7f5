//! Run directories with what follows from them, and where a command finds them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use figures::context::{Contexts, contexts};
use figures::evidence;
use figures::prices::Prices;
use figures::summary::{Summary, summarise};
use records::check_records;
use rundir::{PLAN, Run};
use verdicts::decide::check_distinct;

use crate::progress_line::ProgressLine;
use crate::shell_word::shell_word;

/// Which price list counts.
#[derive(Clone, Debug, Default, Args)]
pub struct PriceList {
    /// Use this price list instead of the built-in one.
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
        Some(format!("--prices {}", shell_word(&file.display().to_string())))
    }
}

/// A run, its summary and the costs of its sessions.
pub struct SummarisedRun {
    pub run: Run,
    /// The summary of its samples.
    pub summary: Summary,
    /// The costs of its sessions' contexts.
    pub contexts: Contexts,
}

impl SummarisedRun {
    /// Reads a run directory.
    pub fn read(dir: &Path, prices: &PriceList) -> anyhow::Result<Self> {
        let line = ProgressLine::moving(&format!("reading {}", dir.display()));
        let run = Run::read(dir)?;
        check_whole(&run)?;
        line.show(0.5, None, &format!("summarising {}", dir.display()));
        let derived = summarise(&run);
        let costs = contexts(&run, &prices.read()?);
        match (derived, costs) {
            (Ok(summary), Ok(contexts)) => Ok(Self { run, summary, contexts }),
            (Err(problem), _) | (_, Err(problem)) => bail!("{}: {problem}", dir.display()),
        }
    }

    /// Reads several run directories.
    /// Fails if one is named twice, or is a copy of another one.
    pub fn read_all(dirs: &[PathBuf], prices: &PriceList) -> anyhow::Result<Vec<Self>> {
        let mut known = BTreeSet::new();
        let read = dirs.iter().map(|dir| {
            let run = Self::read(dir, prices)?;
            let place = dir.canonicalize().with_context(|| dir.display().to_string())?;
            if !known.insert(place) {
                bail!("{}: the same run twice (name it once)", dir.display());
            }
            Ok(run)
        });
        let read: Vec<Self> = read.collect::<anyhow::Result<_>>()?;
        let runs: Vec<&Run> = read.iter().map(|one| &one.run).collect();
        check_distinct(&runs).map_err(anyhow::Error::msg)?;
        Ok(read)
    }

    /// The run as evidence of claims, comparisons and decisions.
    pub fn evidence(&self) -> evidence::RunEvidence<'_> {
        evidence::RunEvidence::new(&self.run, &self.summary, &self.contexts)
    }
}

/// Fails if the records of a run contradict each other or are not all there: no verdict may rest on them.
pub fn check_whole(run: &Run) -> anyhow::Result<()> {
    let wrong = check_records(run);
    let Some(first) = wrong.first() else {
        return Ok(());
    };
    let dir = run.dir.display();
    let more = match wrong.len() {
        1 => String::new(),
        all => format!(" (and {} more)", all - 1),
    };
    bail!(
        "{dir}/{first}{more}\n  fix: records of this run are missing or changed, so nothing is decided by it; `ctxbench verify {}` lists them; get a whole copy of the run, or measure again",
        shell_word(&dir.to_string())
    )
}

/// The directory `asked`, or the newest run directory under `results`.
pub fn run_dir(asked: Option<&Path>, results: &Path) -> anyhow::Result<PathBuf> {
    match asked {
        Some(dir) => Ok(dir.to_owned()),
        None => newest(results, |_| true),
    }
}

/// As [`run_dir`], but only a run with measurements: no fault run, no conformance run.
pub fn measured_run_dir(asked: Option<&Path>, results: &Path) -> anyhow::Result<PathBuf> {
    let _line = ProgressLine::moving("looking for a run with measurements");
    let Some(dir) = asked else {
        // Take an unreadable run, so that the caller reports the error.
        return newest(results, |dir| Run::read(dir).map_or(true, |run| run.plan.measures_nothing().is_none()));
    };
    if let Some(why) = Run::read(dir)?.plan.measures_nothing() {
        bail!("{}: {why}\n  fix: name a directory that `ctxbench run` wrote", dir.display());
    }
    Ok(dir.to_owned())
}

fn newest(results: &Path, is_wanted: impl Fn(&Path) -> bool) -> anyhow::Result<PathBuf> {
    let entries = match std::fs::read_dir(results) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!(
                "{}: no such directory\n  fix: make a run with `ctxbench run`, or name the directory of a run",
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
        None => bail!("there is no run in {}: make one with `ctxbench run`", results.display()),
    }
}

#[cfg(test)]
mod tests {
    use rundir::Sample;

    use super::*;

    #[test]
    fn a_run_that_lacks_records_is_refused_with_the_file_and_the_next_step() {
        let samples = vec![Sample { order: 1, ..Sample::default() }];
        let run = Run { dir: "results/mine".into(), samples, ..Run::default() };
        let error = check_whole(&run).unwrap_err().to_string();
        assert!(error.starts_with("results/mine/samples.jsonl: line 1 "), "{error}");
        assert!(error.contains("\n  fix: records of this run are missing"), "{error}");
        assert!(error.contains("`ctxbench verify results/mine` lists them"), "{error}");
        check_whole(&Run::default()).unwrap();
    }
}
