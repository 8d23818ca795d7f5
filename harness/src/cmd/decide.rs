//! `ctxbench decide`: adopt, archive or inconclusive.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use reports::decide::Verdict;
use reports::render::decision_table;

use crate::reporting::{Judgement, PriceList, run_dir};

/// Apply a policy to a run and print the table, the verdict, which row decides, and what would flip it.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 adopt, 10 archive, 11 inconclusive, 1 failed.")]
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
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        let judgement = Judgement::of(&dir, self.policy.as_deref(), &self.prices)?;
        let Some(decision) = judgement.decision else {
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
