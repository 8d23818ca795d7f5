//! `ctxbench s3 restore`: brings back what a path of a memory held.

use std::process::ExitCode;

use clap::Args;
use s3::history::{self, HistoryPoint};
use s3_store::BucketOptions;

use super::remote::{Remote, moment};

/// Restore a file or directory to its state at a commit or time, by a new commit.
///
/// Mounts receive it like any other commit. Files that were added to a directory since then stay.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 restore --agent-id alice plan.md --at 17
  ctxbench s3 restore --agent-id alice notes --at 17 --to notes-of-yesterday

Exit codes: 0 restored, 1 no such path or commit, or the bucket cannot be used.")]
pub struct Restore {
    /// The file or directory, relative to the root of the memory.
    path: String,
    /// The commit number, or a time.
    #[arg(long, value_name = "COMMIT|TIME", value_parser = moment)]
    at: HistoryPoint,
    /// Path to restore it to [default: its own path].
    #[arg(long, value_name = "PATH")]
    to: Option<String>,
    #[command(flatten)]
    bucket: BucketOptions,
}

impl Restore {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let path = self.path.trim_matches('/');
        let (to, writer) = (self.to.as_deref(), &remote.config.writer);
        let done = remote.run(history::restore(&remote.client, path, self.at, to, writer))?;
        let (to, from) = (to.unwrap_or(path), done.from);
        match done.commit {
            Some(commit) => {
                println!("restored {to} to {path} of commit {from}, in commit {commit}")
            }
            None => println!("{to} is the same as {path} in commit {from}: nothing to restore"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
