//! A server's process: its log, its end, and that it cannot outlive us.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use tokio::process::{Child as Process, Command};
use tokio::time::timeout;

use crate::launch::Launch;

/// How many lines of a log are shown.
const SHOWN_LINES: usize = 10;

/// How long a killed process may take to be gone.
const FORCE_PATIENCE: Duration = Duration::from_secs(5);

/// A process that could not be started or ended.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its log cannot be written.
    #[error("cannot write the log {}: {source}", log.display())]
    Log {
        /// The log.
        log: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The program does not start.
    #[error("cannot start {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A running process, in a process group of its own; killed when dropped.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    log: PathBuf,
    grace: Option<Duration>,
    leftovers: Vec<PathBuf>,
}

impl Child {
    /// Starts a server, through `launcher` where there is one, with all it says in `log`.
    pub(crate) fn spawn(
        launch: Launch,
        launcher: &[OsString],
        log: PathBuf,
    ) -> Result<Self, ChildError> {
        let open = || File::options().create(true).append(true).open(&log);
        let (stdout, stderr) = match (open(), open()) {
            (Ok(stdout), Ok(stderr)) => (stdout, stderr),
            (Err(source), _) | (_, Err(source)) => return Err(ChildError::Log { log, source }),
        };
        let program = PathBuf::from(launch.command.get_program());
        let mut command = Command::from(through(launcher, launch.command));
        command
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            // A Ctrl-C is for us: we stop the server, in our own way.
            .process_group(0);
        let process = command
            .spawn()
            .map_err(|source| ChildError::Spawn { program, source })?;
        Ok(Self {
            process,
            log,
            grace: launch.grace,
            leftovers: launch.leftovers,
        })
    }

    /// Its end, if it has ended.
    pub(crate) fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for an end that nobody asked for.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// The last lines that it said.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.trim().lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    /// Stops it: politely, if it has grace, and by force in the end.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        if let Some(grace) = self.grace {
            self.signal(Signal::TERM);
            if timeout(grace, self.process.wait()).await.is_ok() {
                // What it started may have stayed.
                return Ok(());
            }
        }
        self.kill().await
    }

    /// Ends it by force.
    pub(crate) async fn kill(mut self) -> io::Result<()> {
        self.signal(Signal::KILL);
        self.process.wait().await?;
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // It may have ended in this moment; then there is nobody to tell.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // If it was not stopped, it is now, and seen to be gone, so that its directory can be removed.
        self.signal(Signal::KILL);
        let deadline = Instant::now() + FORCE_PATIENCE;
        while let Ok(None) = self.process.try_wait() {
            if Instant::now() > deadline {
                tracing::warn!("a server's process did not end after SIGKILL");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        for leftover in &self.leftovers {
            // It may have cleared up itself.
            let _ = std::fs::remove_file(leftover);
        }
    }
}

/// `command`, as the arguments of `launcher`.
fn through(launcher: &[OsString], command: std::process::Command) -> std::process::Command {
    let Some((first, more)) = launcher.split_first() else {
        return command;
    };
    let mut launched = std::process::Command::new(first);
    launched
        .args(more)
        .arg(command.get_program())
        .args(command.get_args());
    // Servers get an environment of their own: what a user has set for them is not for ours.
    launched.env_clear();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            launched.env(name, value);
        }
    }
    if let Some(dir) = command.get_current_dir() {
        launched.current_dir(dir);
    }
    launched
}

/// Becomes `program`, which the kernel kills as soon as the process `parent` ends, however it ends.
///
/// Returns only if that fails.
#[must_use]
pub fn exec_bound_to_parent(parent: u32, program: &Path, arguments: &[OsString]) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // Had the parent ended before the kernel was asked, nobody would be told any more.
    let is_parent = getppid().is_some_and(|now| u32::try_from(now.as_raw_pid()) == Ok(parent));
    if !is_parent {
        return io::Error::other("the process that wanted it has ended");
    }
    std::process::Command::new(program).args(arguments).exec()
}
