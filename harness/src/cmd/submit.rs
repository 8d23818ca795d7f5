//! `ctxbench submit`: makes one small file of a run, for others and for tools that draw trends.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use inputs::files::{self, RUN_RECORDS};
use inputs::sha256_of_open;
use reports::render::put_output;
use rundir::RECORDS;

use super::verify::Verify;
use crate::evidence::{PriceList, run_dir};
use crate::reporting::ReportInputs;

/// Write a summary file of a run, to publish it or to follow it over time.
///
/// The file has the answers, every figure with its interval, the machine, the command, and the SHA-256 of each file of
/// records. With the hashes, a reader can check a run directory that is published later, and then run
/// `ctxbench verify` on it.
/// The run is verified before the file is written: a run with a difference is refused.
/// The command and the machine's description are in the file: read it before you publish it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench submit --out run.json                                     # the newest run under results
  ctxbench submit results/mine --for bencher --out ratios.json       # its adapter is `json`
  ctxbench submit --for github-action-benchmark --out ratios.json    # its tool is `customSmallerIsBetter`

Exit codes: 0 written; 1 the run differs from its records, or cannot be read.")]
pub struct Submit {
    /// The run's directory [default: the newest under --results].
    #[arg(value_name = "RUN")]
    run: Option<PathBuf>,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// The file to write. An older one is replaced.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The reader of the file. Trend tools get the ratios to the baseline with their intervals, and nothing else.
    #[arg(long = "for", value_enum, value_name = "READER", default_value_t)]
    reader: Reader,
    #[command(flatten)]
    prices: PriceList,
}

/// The reader of a submission.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Reader {
    /// People and `ctxbench`: everything.
    #[default]
    Ctxbench,
    /// github-action-benchmark.
    GithubActionBenchmark,
    /// Bencher.
    Bencher,
}

impl Submit {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        check_out(&self.out, &dir)?;
        let before = hashes(&dir)?;
        let differences = Verify::differences(dir.clone(), self.prices.clone())?;
        if let Some(first) = differences.first() {
            bail!(
                "{}: {first}{}\n  fix: see all with `ctxbench verify {}`; write the report again with `ctxbench report {}` if only the report is old",
                dir.display(),
                match differences.len() - 1 {
                    0 => String::new(),
                    more => format!(" (and {more} more differences)"),
                },
                dir.display(),
                dir.display()
            );
        }
        let report_inputs = ReportInputs::of(&dir, &[], None, &self.prices)?;
        if report_inputs.reported.run.plan.measures_nothing().is_some() {
            bail!(
                "{}: a run without measured passes has nothing to submit\n  fix: name a directory that `ctxbench run` made",
                dir.display()
            );
        }
        let text = match self.reader {
            Reader::Ctxbench => report_inputs.submission(&before)?,
            Reader::GithubActionBenchmark => report_inputs.github_action_benchmark()?,
            Reader::Bencher => report_inputs.bencher()?,
        };
        if hashes(&dir)? != before {
            bail!("{}: its records changed while they were read\n  fix: submit a run that has ended", dir.display());
        }
        put_output(&self.out, &text).with_context(|| format!("writing {}", self.out.display()))?;
        eprintln!("{}: {} KB, of {}", self.out.display(), text.len().div_ceil(1000), dir.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// The SHA-256 of each file of records that a run has. A run directory may be another's: no link is followed in it.
fn hashes(dir: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut hashes = BTreeMap::new();
    for name in RECORDS {
        let hash = match files::open_inside(dir, Path::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => Err(error),
            Ok(file) => files::check_length(&file, RUN_RECORDS).and_then(|()| sha256_of_open(file)),
        };
        hashes.insert(name.to_owned(), hash.with_context(|| format!("reading {}", dir.join(name).display()))?);
    }
    Ok(hashes)
}

/// Refuses a file in the run's directory, where it could replace one of the run.
fn check_out(out: &Path, dir: &Path) -> anyhow::Result<()> {
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let place = parent.canonicalize().with_context(|| parent.display().to_string())?;
    let run = dir.canonicalize().with_context(|| dir.display().to_string())?;
    if place.starts_with(&run) {
        bail!(
            "{} is in the directory of the run, and could replace a file of it\n  fix: name a file elsewhere with --out",
            out.display()
        );
    }
    Ok(())
}
