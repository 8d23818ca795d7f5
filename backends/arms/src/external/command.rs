//! Runs third-party programs: arguments with variables, deadlines, and process groups that end as a whole.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use fuse::own_file;
use processes::ChildProcess;

use super::variables::Variables;

/// The exit reason of a program that runs in the background, once it has ended.
pub(super) fn exit_reason(process: &mut ChildProcess) -> Option<String> {
    process.ended().ok()?.map(how)
}

fn how(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

/// The variable in the environment of a workspace's programs, and of all that they start, that has the workspace's directory.
pub(super) const WORKSPACE: &str = "CTXBENCH_WORKSPACE";

/// The processes that a workspace's programs have left running.
pub(super) fn left_running(workspace: &str) -> Vec<u32> {
    processes::with_variable(WORKSPACE, workspace)
}

/// Variables and environment of a workspace's programs.
#[derive(Clone, Default)]
pub(super) struct CommandContext {
    pub(super) variables: Variables,
    /// Added to the environment, after variables in the values are replaced.
    pub(super) environment: BTreeMap<String, String>,
}

fn command(arguments: &[String], around: &CommandContext) -> io::Result<Command> {
    let variables = &around.variables;
    let mut filled = arguments.iter().map(|argument| variables.fill(argument));
    let program = filled.next().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"))?;
    let mut command = Command::new(program);
    let environment = around.environment.iter();
    command
        .args(filled)
        .env("PATH", search_path())
        .envs(environment.map(|(name, value)| (name, variables.fill(value))))
        .env(WORKSPACE, variables.fill("{site}"))
        .stdin(Stdio::null());
    Ok(command)
}

/// Where programs are searched: on the `PATH`, then where `make peers` installs them.
pub(super) fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let ours = inputs::targets().into_iter();
    let places = std::env::split_paths(&path).chain(ours.map(|target| target.join("peers/bin")));
    // A directory whose name has a colon cannot be on a `PATH`.
    std::env::join_paths(places).unwrap_or(path)
}

/// The log of a workspace's programs, to which they append.
fn appended(log: &Path) -> io::Result<File> {
    own_file::open(log, File::options().create(true).append(true))
}

/// Starts a program in the background, in a process group of its own; its output goes to `log`.
pub(super) fn start(arguments: &[String], around: &CommandContext, log: &Path) -> io::Result<ChildProcess> {
    let log = appended(log)?;
    let mut command = command(arguments, around)?;
    ChildProcess::start_group(command.stdout(log.try_clone()?).stderr(log)).map_err(|error| {
        let program = arguments.first().map_or("", String::as_str);
        io::Error::new(error.kind(), format!("starting {program}: {error}"))
    })
}

/// Runs a program to its end and returns its output, at most 64 KiB; its standard error goes to `log`.
///
/// # Errors
/// If it cannot be started, fails, or takes longer than `patience`.
pub(super) fn run(
    arguments: &[String],
    around: &CommandContext,
    log: Option<&Path>,
    patience: Duration,
) -> io::Result<String> {
    let complaints: Stdio = match log {
        Some(log) => appended(log)?.into(),
        None => Stdio::null(),
    };
    let mut command = command(arguments, around)?;
    let (status, said) = processes::run(&mut command, complaints, patience)?;
    if !status.success() {
        let program = command.get_program().to_string_lossy();
        return Err(io::Error::other(format!("{program}: {}", how(status))));
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_all_it_has_started() {
        let (started, none) = (Instant::now(), CommandContext::default());
        let hang = ["sh", "-c", "sleep 1000 & sleep 1000"].map(str::to_owned);
        let error = run(&hang, &none, None, Duration::from_millis(200)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_failed_command_names_its_cause() {
        let none = CommandContext::default();
        let patience = Duration::from_secs(20);
        assert_eq!(run(&words("echo a b"), &none, None, patience).unwrap(), "a b\n");
        let error = run(&words("false"), &none, None, patience).unwrap_err();
        assert_eq!(error.to_string(), "false: exit code 1");
        let error = run(&words("no-such-program x"), &none, None, patience).unwrap_err();
        assert!(error.to_string().starts_with("starting no-such-program"), "{error}");
    }
}
