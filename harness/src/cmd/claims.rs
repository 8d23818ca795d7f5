//! `ctxbench claims`: published figures, tested.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use reports::render::table;

use crate::reporting::{Judgement, PriceList, run_dir};

/// Print what a run says about the figures that people have published.
#[derive(Debug, Args)]
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
        let dir = run_dir(self.run.as_deref(), &self.results)?;
        let judgement = Judgement::of(&dir, None, &self.prices)?;
        let rows: Vec<Vec<String>> = judgement
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
