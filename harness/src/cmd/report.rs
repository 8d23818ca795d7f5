//! `ctxbench report`: pages, tables, charts and data from a run.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::reporting::{Judgement, PriceList, run_dir};

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
    /// Put the report's excerpt into this file too, between its marks, as in a README.
    #[arg(long, value_name = "FILE")]
    excerpt: Option<PathBuf>,
    /// Where links in the excerpt go: the directory that holds a copy of the report.
    #[arg(
        long,
        value_name = "PLACE",
        default_value = "docs/example",
        requires = "excerpt"
    )]
    excerpt_links: String,
    #[command(flatten)]
    prices: PriceList,
}

impl Report {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        let judgement = Judgement::of(&dir, self.policy.as_deref(), &self.prices)?;
        println!("{}", judgement.write()?.display());
        if let Some(file) = &self.excerpt {
            judgement
                .splice_into(file, &self.excerpt_links)
                .with_context(|| format!("putting the excerpt into {}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
