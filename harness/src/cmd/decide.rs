//! `ctxbench decide`: decides by a policy: adopt, archive or inconclusive.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reports::decide::Verdict;
use reports::render::decision_table;

use crate::reporting::{PriceList, ReportInputs, measured_run_dir};

/// Decide by a policy: adopt, archive or inconclusive.
///
/// Prints the table, the verdict, the row that decides, and what would flip it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench decide                                  # the newest run, by the policy that it was made for
  ctxbench decide results/20261124-001409-default --policy my-policy.toml

Exit codes: 0 adopt, 10 archive, 11 inconclusive, 1 failed.")]
pub struct Decide {
    /// The run's directory [default: the newest under --results].
    run: Option<PathBuf>,
    /// Where to look for runs.
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,
    /// A built-in policy, or the path of a policy file [default: the one that the run was made for].
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    #[command(flatten)]
    prices: PriceList,
}

impl Decide {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let dir = measured_run_dir(self.run.as_deref(), &self.results)?;
        let inputs = ReportInputs::of(&dir, self.policy.as_deref(), &self.prices)?;
        let Some(decision) = inputs.decision else {
            bail!(
                "{} was made for no policy; give one with --policy",
                dir.display()
            );
        };
        print!("{}", decision_table(&decision));
        Ok(match decision.verdict {
            Verdict::Adopt => ExitCode::SUCCESS,
            Verdict::Archive => ExitCode::from(10),
            Verdict::Inconclusive => ExitCode::from(11),
        })
    }
}
