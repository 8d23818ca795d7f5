//! A second mount of a workspace's data, as on another host or in another process.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use arms::READY;
use arms::backend::{Backend, Workspace, WorkspaceConfig};
use processes::ChildProcess;

/// The result of mounting a second time.
pub enum SecondMount {
    /// The second mount is ready.
    Mounted(Box<dyn Workspace>),
    /// The mount was refused; the first lines of its standard error.
    Refused(String),
    /// The backend has nothing to mount a second time.
    NoMount,
}

impl SecondMount {
    /// Mounts the data of the workspace of `config` a second time, below `beside`.
    pub fn start(backend: &dyn Backend, config: &WorkspaceConfig, beside: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(beside)?;
        let log = beside.join("daemon.log");
        match backend.second_host(config, beside) {
            Ok(Some(second)) => Ok(Self::Mounted(second)),
            Ok(None) => Ok(Self::NoMount),
            Err(_) if log.exists() => Ok(Self::Refused(first_lines(&log))),
            Err(error) => Err(error),
        }
    }

    /// Ends the second mount, if there is one.
    pub fn end(self) {
        if let Self::Mounted(second) = self
            && let Err(error) = second.close()
        {
            tracing::warn!("a second mount did not end by itself: {error}");
        }
    }
}

/// Mounts `memory` over a directory that is a mount already. Returns the first lines of its standard error; `None`
/// if it mounted, which ends at once.
pub fn mount_over(program: &Path, mount: &Path, log: &Path, patience: Duration) -> io::Result<Option<String>> {
    let mut command = Command::new(program);
    command.args(["mount", "memory"]).arg(mount).arg("--until-stdin-ends");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(log)?);
    let mut process = ChildProcess::start(&mut command, Duration::ZERO)?;
    if process.wait_for(patience)?.is_none() {
        process.kill()?;
    }
    let said = io::read_to_string(process.output()?)?;
    let is_mounted = said.starts_with(READY);
    Ok((!is_mounted).then(|| first_lines(log)))
}

fn first_lines(log: &Path) -> String {
    let said = std::fs::read_to_string(log).unwrap_or_default();
    said.trim().lines().take(3).collect::<Vec<_>>().join(" ")
}
