//! `ctxbench claims`: compares published figures with a run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use reports::render::table;

use crate::reporting::{PriceList, ReportInputs, measured_run_dir};

/// Hold published figures against a run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench claims                                  # of the newest run under results
  ctxbench claims results/20261124-001409-default

Each figure is confirmed, refuted, open (the run cannot tell) or untested; arithmetic is checked as such.")]
pub struct Claims {
    /// The run's directory [default: the newest under --results].
    run: Option<PathBuf>,
    /// Where to look for runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    #[command(flatten)]
    prices: PriceList,
}

impl Claims {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = measured_run_dir(self.run.as_deref(), &self.results)?;
        let inputs = ReportInputs::of(&dir, None, &self.prices)?;
        let rows: Vec<Vec<String>> = inputs
            .claims
            .into_iter()
            .map(|claim| {
                let standing = claim.standing.name().to_owned();
                vec![standing, claim.id, claim.quote, claim.evidence]
            })
            .collect();
        print!(
            "{}",
            table(&["standing", "claim", "it says", "evidence"], &rows)
        );
        Ok(ExitCode::SUCCESS)
    }
}
