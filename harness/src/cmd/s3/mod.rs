//! `ctxbench s3`: S3 servers, and commands for a memory in a bucket.

pub(super) mod check;
pub(super) mod gc;
mod import;
pub(super) mod log;
mod remote;
mod restore;
mod serve;
mod show;
pub(super) mod sync;

use std::process::ExitCode;

use clap::{Args, Subcommand};
pub use remote::Remote;

/// Start an S3 server; sync, check, restore or read the history of a memory in a bucket.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 serve                         # MinIO if it is installed, else the embedded server
  ctxbench s3 sync ~/memory                 # wait until everything is in the bucket
  ctxbench s3 log --agent-id alice plan.md")]
pub struct S3 {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Serve(serve::Serve),
    Sync(sync::Sync),
    Log(log::Log),
    Show(show::Show),
    Restore(restore::Restore),
    Check(check::Check),
    Gc(gc::Gc),
    Import(import::Import),
}

impl S3 {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Serve(serve) => serve.run(),
            Action::Sync(sync) => sync.run(),
            Action::Log(log) => log.run(),
            Action::Show(show) => show.run(),
            Action::Restore(restore) => restore.run(),
            Action::Check(check) => check.run(),
            Action::Gc(gc) => gc.run(),
            Action::Import(import) => import.run(),
        }
    }
}
