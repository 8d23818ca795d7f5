//! `ctxbench sql-worker`: runs the statements of `ctxbench mcp sql`, which starts it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use mcp::run_statements;

/// Run the statements that come on standard input, within limits of memory, time and file size.
#[derive(Debug, Args)]
pub struct SqlWorker {
    /// The database.
    file: PathBuf,
    /// Run `execute`, too.
    #[arg(long)]
    writable: bool,
}

impl SqlWorker {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        run_statements(&self.file, self.writable)?;
        Ok(ExitCode::SUCCESS)
    }
}
