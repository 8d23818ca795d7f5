//! `ctxbench worker`: a client process of a workload with several clients.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use replay::worker::work;
use workloads::script::clients::Clients;

/// Reads its files once, says `ready`, waits until it is told to go, makes its calls, says `done`.
#[derive(Debug, Args)]
pub struct Worker {
    /// The directory of all processes.
    dir: PathBuf,
    /// Which of them this is.
    process: u32,
    /// The calls of the processes, as JSON.
    clients: String,
}

impl Worker {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let clients: Clients = serde_json::from_str(&self.clients).context("what to do")?;
        work(&self.dir, self.process, &clients)?;
        Ok(ExitCode::SUCCESS)
    }
}
