//! `ctxbench fault-agent`: the process that accesses the mount in `ctxbench fault`.

use std::process::ExitCode;

use clap::Args;

use trial::agent;

/// Take one task a line on standard input, answer one line each on standard output.
#[derive(Debug, Args)]
pub struct FaultAgent {}

impl FaultAgent {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        agent::serve()?;
        Ok(ExitCode::SUCCESS)
    }
}
