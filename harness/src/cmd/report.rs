//! `ctxbench report`: pages, tables, charts and data from a run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::reporting::{Judgement, run_dir};

/// Write the report of a run: report.md, report.html, report.json, *.csv, charts/, hist/.
///
/// Nothing is measured: the same run always gives the same report, on any machine.
#[derive(Debug, Args)]
pub struct Report {
    /// The run's directory [default: the newest under --results].
    run: Option<PathBuf>,
    /// Where to look for runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// Decide by this policy instead of the one that the run was made for.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

impl Report {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        let judgement = Judgement::of(&dir, self.policy.as_deref())?;
        println!("{}", judgement.write()?.display());
        Ok(ExitCode::SUCCESS)
    }
}
