//! `ctxbench busy`: makes the machine busy until standard input ends, for `ctxbench reproduce --load`.

use std::io::Read;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use anyhow::Context;
use clap::Args;
use rundir::LOAD_PROCESS;

use runner::load::LoadGenerator;

/// Make this machine busy until standard input ends: a loop for each processor, and a writing disk.
#[derive(Debug, Args)]
pub struct Busy {
    /// Leave that to a daemonized process, and end.
    #[arg(long)]
    detach: bool,
}

impl Busy {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        if self.detach {
            // The new process inherits standard input and ends with it.
            Command::new(std::env::current_exe()?).arg("busy").spawn().context("starting the load")?;
            return Ok(ExitCode::SUCCESS);
        }
        // A report knows the load by this name. Without it, the advice is to stop it, which does no harm.
        let _ = std::fs::write("/proc/self/comm", LOAD_PROCESS);
        let load = LoadGenerator::start()?;
        let mut end = Vec::new();
        // An error counts as the end of the input.
        let _ = std::io::stdin().read_to_end(&mut end);
        drop(load);
        Ok(ExitCode::SUCCESS)
    }
}

/// A load in a process that is not a child of the harness, so that it counts as foreign. Dropping it ends the process.
pub struct DetachedLoad {
    _stdin: Option<ChildStdin>,
    _started: Child,
}

impl DetachedLoad {
    /// Starts the load.
    pub fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["busy", "--detach"])
            .stdin(Stdio::piped())
            .spawn()
            .context("starting the load")?;
        let stdin = child.stdin.take();
        let ended = child.wait().context("starting the load")?;
        anyhow::ensure!(ended.success(), "the load did not start: {ended}");
        Ok(Self { _stdin: stdin, _started: child })
    }
}
