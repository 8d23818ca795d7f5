//! `ctxbench report`: writes pages, tables, charts and data from a run.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use inputs::files::{self, PAGE};
use reports::render::{put_output, splice_faults};
use rundir::Run;

use super::fault;
use super::format::ScreenFormat;
use super::headline::print_answer;
use super::pool::pool;
use crate::environment;
use crate::evidence::{PriceList, check_whole, run_dir};
use crate::progress_line::ProgressLine;
use crate::reporting::ReportInputs;

/// Write the report of a run.
///
/// Writes report.md, report.html, report.json, *.csv, charts/ and hist/ into its directory, and prints the answer. It
/// measures nothing: the same run gives the same report on every machine. For a fault run it writes faults.md and
/// faults.html.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench report                                  # the newest run under results
  ctxbench report results/*-reproduce-* --out results/joined
  ctxbench report results/20261122-150000-fault --into docs/results/faults.md")]
pub struct Report {
    /// The run's directory [default: the newest under --results]. Several runs of one plan on one machine are joined
    /// into a new run, which has the epochs of all of them.
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The directory of the joined run [default: one under --results].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Decide by this policy, or by `all` built-in policies, instead of those that the run was made for.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Use the evidence of this run as well: a fault, conformance or other run of the same machine; may be given several times.
    #[arg(long, value_name = "RUN")]
    with: Vec<PathBuf>,
    /// Also write the answer in short into this file, such as a README, between the lines `<!-- ctxbench report: begin -->`
    /// and `<!-- ctxbench report: end -->`.
    #[arg(long, value_name = "FILE")]
    excerpt: Option<PathBuf>,
    /// Where the links of --excerpt lead: the directory with a copy of the report.
    #[arg(long, value_name = "PLACE", default_value = "docs/example", requires = "excerpt")]
    excerpt_links: String,
    /// Also write a short page about the run into this file, as in docs/results: command, machine, ratios and findings.
    #[arg(long, value_name = "FILE")]
    page: Option<PathBuf>,
    /// For a fault run: write its tables into this document, between marks such as `<!-- MATRIX -->` and `<!-- end of
    /// MATRIX -->`: MATRIX, CRASH, FINDINGS, BUCKET, MODEL. A table for which the run has no data stays as it is.
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    /// How to print the answer. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    prices: PriceList,
}

impl Report {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = self.dir()?;
        let line = ProgressLine::moving(&format!("reading {}", dir.display()));
        let run = Run::read(&dir)?;
        drop(line);
        if run.plan.breaks_things() {
            check_whole(&run)?;
            if self.excerpt.is_some() {
                bail!("{}: a fault run has no excerpt (use --into)", dir.display());
            }
            if let Some(file) = &self.into {
                put_into(&run, file)?;
            }
            return fault::conclude(&dir, self.format);
        }
        if self.into.is_some() {
            bail!("{}: --into takes a fault run (use --excerpt)", dir.display());
        }
        let report_inputs = ReportInputs::of(&dir, &self.with, self.policy.as_deref(), &self.prices)?;
        let page = report_inputs.write()?;
        print_answer(&report_inputs, &page, self.format)?;
        if let Some(file) = &self.page {
            put_output(file, &report_inputs.results_page())?;
        }
        if let Some(file) = &self.excerpt {
            report_inputs
                .splice_into(file, &self.excerpt_links)
                .with_context(|| format!("putting the excerpt into {}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Report {
    /// The run directory to report. Joins several runs into a new one first.
    fn dir(&self) -> anyhow::Result<PathBuf> {
        if self.runs.len() < 2 {
            if self.out.is_some() {
                bail!(
                    "--out joins runs, and fewer than two were given\n  fix: name two runs or more, or leave out --out"
                );
            }
            return run_dir(self.runs.first().map(PathBuf::as_path), &self.results);
        }
        let out = match &self.out {
            Some(out) => out.clone(),
            None => environment::new_run_dir(&self.results, &environment::now(), "joined")?,
        };
        let _line = ProgressLine::moving("joining the runs");
        pool(&self.runs, &out)?;
        Ok(out)
    }
}

/// Writes the tables of a fault run into a document.
fn put_into(run: &Run, file: &Path) -> anyhow::Result<()> {
    let name = file.display();
    let text = files::read_text(file, PAGE).with_context(|| format!("reading {name}"))?;
    let (text, replaced) = splice_faults(run, &text).with_context(|| name.to_string())?;
    put_output(file, &text)?;
    eprintln!("{name}: {}", replaced.join(", "));
    Ok(())
}
