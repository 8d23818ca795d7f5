//! `ctxbench s3 show`: prints a file of a memory as it was.

use std::process::ExitCode;

use clap::Args;
use s3::history::{self, HistoryPoint};
use s3_store::BucketOptions;

use super::remote::{Remote, moment};

/// Print a file as it was at a commit or time.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 show --agent-id alice plan.md --at 17
  ctxbench s3 show --agent-id alice plan.md --at 2026-07-01T12:00:00Z | diff - ~/memory/plan.md

Exit codes: 0 printed, 1 no such file or commit, or the log cannot be read.")]
pub struct Show {
    /// The file, relative to the root of the memory.
    path: String,
    /// The commit number, or a time [default: the newest commit].
    #[arg(long, value_name = "COMMIT|TIME", value_parser = moment)]
    at: Option<HistoryPoint>,
    #[command(flatten)]
    bucket: BucketOptions,
}

impl Show {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let path = self.path.trim_matches('/');
        let at = self.at.unwrap_or(HistoryPoint::Head);
        let mut out = std::io::stdout();
        remote.run(history::show(&remote.client, path, at, &mut out))?;
        Ok(ExitCode::SUCCESS)
    }
}
