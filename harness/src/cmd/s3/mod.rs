//! `ctxbench s3`: S3 servers, and commands for a memory in a bucket.

mod bucket;
mod check;
mod serve;
mod sync;
mod versions;

use std::process::ExitCode;

pub use bucket::{Behaviour, Bucket};
use clap::{Args, Subcommand};

/// Start an S3 server, and sync, check or look back into a memory in a bucket.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 serve                         # MinIO if it is installed, else the embedded server
  ctxbench s3 sync ~/memory                 # wait until everything is in the bucket
  ctxbench s3 versions ~/memory/plan.md")]
pub struct S3 {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(serve::Serve),
    Sync(sync::Sync),
    Versions(versions::Versions),
    Check(check::Check),
}

impl S3 {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Serve(serve) => serve.run(),
            Action::Sync(sync) => sync.run(),
            Action::Versions(versions) => versions.run(),
            Action::Check(check) => check.run(),
        }
    }
}
