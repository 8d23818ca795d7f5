//! `ctxbench claims`: checks published claims against runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use backends::registry::Registry;
use clap::Args;
use reports::render::{claims_markdown, claims_text};
use schemars::JsonSchema;
use serde::Serialize;
use verdicts::claims::{Catalogue, ClaimFile, ClaimResult, Tally, built_in, check, judge_file, tally};
use verdicts::compare::machine_differences;

use super::format::OutputFormat;
use crate::built_in_names::BuiltIn;
use crate::evidence::{PriceList, SummarisedRun, run_dir};
use crate::progress_line::ProgressLine;

/// Check published claims against runs.
///
/// A claim is confirmed, refuted (with the factor), conditional (with the condition), arithmetic only (it follows from the
/// published figures, and nothing was measured), declared (by a constant), not measured (with the command that would measure it), not reproduced here, or untestable (with the
/// reason). The last lines say which share of the claims is settled, and which commands would settle more. Runs of
/// different kinds can be given together: measured, fault and conformance runs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench claims                                  # the newest run under results
  ctxbench claims results/20261124-001409-default results/20261124-002112-fault --format markdown
  ctxbench claims results/20261124-001409-default --file my-claims.toml

docs/FORMAT.md lists the fields of a claims file.")]
pub struct Claims {
    /// Run directories [default: the newest under --results].
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Check the claims in this file instead of the built-in ones; may be given several times.
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Accept runs of different machines.
    #[arg(long)]
    mixed: bool,
    /// How to print the claims.
    #[arg(long, value_enum, default_value_t = OutputFormat::Text)]
    format: OutputFormat,
    /// Directory that contains the runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    prices: PriceList,
}

/// What `claims` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct CheckedClaims<'a> {
    /// The directories of the runs.
    runs: Vec<String>,
    /// How many claims there are of each status.
    tally: Tally,
    /// The claims, in the order of their files.
    claims: &'a [ClaimResult],
}

impl Claims {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        let dirs = if self.runs.is_empty() { vec![run_dir(None, &self.results)?] } else { self.runs.clone() };
        let runs = SummarisedRun::read_all(&dirs, &self.prices)?;
        if let Some((first, others)) = runs.split_first()
            && !self.mixed
        {
            for other in others {
                let found = machine_differences(&first.run, &other.run);
                if !found.is_empty() {
                    bail!(
                        "{} and {} were made on different machines: {}\n  fix: name runs of one machine, or add --mixed",
                        other.run.dir.display(),
                        first.run.dir.display(),
                        found.join("; ")
                    );
                }
            }
        }
        let evidence: Vec<_> = runs.iter().map(SummarisedRun::evidence).collect();
        let files = match self.file.as_slice() {
            [] => built_in()
                .into_iter()
                .map(|(name, text)| ClaimFile::parse(&name, text))
                .collect::<Result<Vec<_>, _>>()?,
            files => {
                let built_in_names = BuiltIn(registry.clone());
                let mut read = Vec::new();
                for name in files {
                    let text = inputs::read(name)?;
                    let file = ClaimFile::parse(name, &text)?;
                    let plans = runs.iter().map(|evidence| &evidence.run as &dyn Catalogue);
                    let known: Vec<&dyn Catalogue> = plans.chain([&built_in_names as _]).collect();
                    check(&file, &known)?;
                    read.push(file);
                }
                read
            }
        };
        let line = ProgressLine::moving("checking the claims");
        let judged = files.iter().flat_map(|file| judge_file(file, &evidence));
        let judged: Vec<_> = judged.collect();
        drop(line);
        let names = runs.iter().map(|evidence| evidence.run.dir.display().to_string());
        let json = CheckedClaims { runs: names.collect(), tally: tally(&judged), claims: &judged };
        let (text, markdown) = (|| claims_text(&judged), || claims_markdown(&judged));
        self.format.print(text, markdown, &json)?;
        Ok(ExitCode::SUCCESS)
    }
}
