//! The process of an external server: its log, its end, and its death with its parent.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use processes::{ChildProcess, last_lines};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tokio::time::{sleep, timeout};

use crate::launch::Launch;

/// Number of log lines that an error shows.
const SHOWN_LINES: usize = 10;

/// Poll interval while a process runs.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Why a process did not start.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its log cannot be opened.
    #[error("cannot write the log {}: {error}", log.display())]
    Log {
        /// Path of the log.
        log: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The program does not start.
    #[error("cannot start {}: {error}", program.display())]
    Spawn {
        /// Path of the program.
        program: PathBuf,
        /// The cause.
        error: io::Error,
    },
}

/// A running process in its own process group. Dropping it kills the group.
#[derive(Debug)]
pub(crate) struct Child {
    process: ChildProcess,
    log: PathBuf,
    grace: Option<Duration>,
    leftovers: Vec<PathBuf>,
}

impl Child {
    /// Starts a server, through `launcher` if that is not empty. Its output goes to `log`.
    pub(crate) fn spawn(launch: Launch, launcher: &[OsString], log: PathBuf) -> Result<Self, ChildError> {
        let open = || File::options().create(true).append(true).open(&log);
        let (stdout, stderr) = match (open(), open()) {
            (Ok(stdout), Ok(stderr)) => (stdout, stderr),
            (Err(error), _) | (_, Err(error)) => return Err(ChildError::Log { log, error }),
        };
        let program = PathBuf::from(launch.command.get_program());
        let mut command = through(launcher, launch.command);
        command.stdin(Stdio::null()).stdout(stdout).stderr(stderr);
        // Its own group, so that Ctrl-C does not reach the server: we stop it in order.
        let process = ChildProcess::start_group(&mut command).map_err(|error| ChildError::Spawn { program, error })?;
        Ok(Self { process, log, grace: launch.grace, leftovers: launch.leftovers })
    }

    /// The exit status, if the process has ended.
    pub(crate) fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Waits until the process ends by itself.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.process.ended()? {
                return Ok(status);
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// The last lines of the log.
    pub(crate) fn last_words(&self) -> String {
        last_lines(&std::fs::read(&self.log).unwrap_or_default(), SHOWN_LINES)
    }

    /// Stops the process: with SIGTERM if it has a grace period, then with SIGKILL.
    pub(crate) async fn stop(mut self) -> io::Result<()> {
        if let Some(grace) = self.grace {
            // An error means that the process has just ended.
            let _ = self.process.signal(Signal::TERM);
            if timeout(grace, self.wait()).await.is_ok() {
                // Dropping it kills the children that it left behind.
                return Ok(());
            }
        }
        self.kill()
    }

    /// Kills the process group.
    pub(crate) fn kill(mut self) -> io::Result<()> {
        self.process.kill()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Also the children of one that was stopped. Its directory can be removed once all have ended.
        if let Err(error) = self.process.kill() {
            tracing::warn!("a server's process did not end: {error}");
        }
        for leftover in &self.leftovers {
            // The server may have removed it itself.
            let _ = std::fs::remove_file(leftover);
        }
    }
}

/// `command` as the arguments of `launcher`.
fn through(launcher: &[OsString], command: Command) -> Command {
    let Some((first, more)) = launcher.split_first() else {
        return command;
    };
    let mut launched = Command::new(first);
    launched.args(more).arg(command.get_program()).args(command.get_args());
    // Servers get their own environment, because the user's variables are not meant for them.
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

/// The words before a command that make it end with this process: `program` is the `ctxbench` binary.
#[must_use]
pub fn bound_to_this_process(program: &Path) -> [OsString; 3] {
    let parent = std::process::id().to_string();
    [program.into(), "with-parent".into(), parent.into()]
}

/// Replaces this process by `program`, which the kernel kills when the process `parent` ends.
///
/// Returns only if that fails.
#[must_use]
pub fn exec_bound_to_parent(parent: u32, program: &Path, arguments: &[OsString]) -> io::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return error.into();
    }
    // If the parent ended before the call, no signal would come.
    let is_parent = getppid().is_some_and(|now| u32::try_from(now.as_raw_pid()) == Ok(parent));
    if !is_parent {
        return io::Error::other("the process that wanted it has ended");
    }
    Command::new(program).args(arguments).exec()
}
