//! Child processes that end with their user, and commands that end within a time limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Poll interval while a process ends.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How long the end of a killed process is waited for when it is dropped. One that waits in the kernel takes longer.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// How much of a program's output is read.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// A child process. Dropping it closes its standard input, and kills it if it does not end in time.
#[derive(Debug)]
pub struct ChildProcess {
    process: Child,
    input: Option<ChildStdin>,
    patience: Duration,
    leads_group: bool,
}

impl ChildProcess {
    /// Starts a command. When it is dropped, it has `patience` to end by itself.
    pub fn start(command: &mut Command, patience: Duration) -> io::Result<Self> {
        let mut process = command.spawn()?;
        let input = process.stdin.take();
        Ok(Self { process, input, patience, leads_group: false })
    }

    /// Starts a command in a process group of its own. A kill ends all processes of the group, and so does dropping a
    /// command that runs.
    pub fn start_group(command: &mut Command) -> io::Result<Self> {
        let mut started = Self::start(command.process_group(0), Duration::ZERO)?;
        started.leads_group = true;
        Ok(started)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Its standard input, if that is a pipe, until it is closed.
    pub fn input(&mut self) -> io::Result<&mut ChildStdin> {
        self.input.as_mut().ok_or_else(|| ErrorKind::BrokenPipe.into())
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// Its standard output, if that is a pipe, once.
    pub fn output(&mut self) -> io::Result<ChildStdout> {
        self.process.stdout.take().ok_or_else(|| io::Error::other("a child process has no standard output"))
    }

    /// Its exit status, once it has ended.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Whether it runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.ended(), Ok(None))
    }

    /// Waits until it ends.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// Waits until it ends; `None` after `patience`.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + patience;
        loop {
            let ended = self.ended()?;
            if ended.is_some() || Instant::now() > deadline {
                return Ok(ended);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends it, or its group, a signal. Fails if none of it runs any more.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        let id = Pid::from_child(&self.process);
        if self.leads_group {
            return Ok(kill_process_group(id, signal)?);
        }
        // The kernel may have given the id of an ended process to another one.
        match self.ended()? {
            Some(_) => Err(ErrorKind::NotFound.into()),
            None => Ok(kill_process(id, signal)?),
        }
    }

    /// Kills it, or its group, with SIGKILL, and waits until it has ended.
    pub fn kill(&mut self) -> io::Result<()> {
        // An error means that it has ended.
        let _ = self.signal(Signal::KILL);
        // Waiting leaves no zombie.
        self.wait().map(drop)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.close_input();
        if !matches!(self.wait_for(self.patience), Ok(None)) {
            return;
        }
        // An error means that it has ended.
        let _ = self.signal(Signal::KILL);
        if let Ok(None) = self.wait_for(KILL_PATIENCE) {
            tracing::warn!(pid = self.id(), "a process does not end after SIGKILL: it waits in the kernel");
        }
    }
}

/// Runs a command to its end, in a process group of its own. Returns its exit status and its output, at most 64 KiB; its
/// standard error goes to `complaints`.
///
/// # Errors
/// If it cannot be started, or takes longer than `patience`. Its group is killed then.
pub fn run(
    command: &mut Command,
    complaints: impl Into<Stdio>,
    patience: Duration,
) -> io::Result<(ExitStatus, String)> {
    let name = command.get_program().to_string_lossy().into_owned();
    // A file, not a pipe: a full pipe would stop the program, and the child of a program that forks would keep it open.
    let said = tempfile::tempfile()?;
    command.stdin(Stdio::null()).stdout(said.try_clone()?).stderr(complaints);
    let mut child = ChildProcess::start_group(command)
        .map_err(|error| io::Error::new(error.kind(), format!("starting {name}: {error}")))?;
    let Some(status) = child.wait_for(patience)? else {
        let why = format!("{name} did not end within {} s", patience.as_secs());
        return Err(io::Error::new(ErrorKind::TimedOut, why));
    };
    Ok((status, io::read_to_string(&*head(said, OUTPUT_BYTES)?)?))
}

/// As [`run`], for a command that must succeed.
///
/// # Errors
/// As [`run`], and if the command fails; with its standard error.
pub fn output(command: &mut Command, patience: Duration) -> io::Result<String> {
    let complaints = tempfile::tempfile()?;
    let (status, said) = run(command, complaints.try_clone()?, patience)?;
    if status.success() {
        return Ok(said);
    }
    let complaints = head(complaints, OUTPUT_BYTES)?;
    let (name, complaints) = (command.get_program().to_string_lossy(), String::from_utf8_lossy(&complaints));
    Err(io::Error::other(format!("{name}: {status}: {}", complaints.trim())))
}

/// The first bytes of a file, at most `most`.
pub fn head(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_dropped_child_ends_by_itself_when_its_input_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let ended = dir.path().join("ended");
        let mut command = shell("cat > /dev/null; : > \"$1\"");
        command.arg("sh").arg(&ended).stdin(Stdio::piped());
        drop(ChildProcess::start(&mut command, LIMIT).unwrap());
        assert!(ended.exists());
    }

    #[test]
    fn a_dropped_child_that_ignores_its_input_is_killed() {
        let mut command = Command::new("sleep");
        let child = ChildProcess::start(command.arg("1000").stdin(Stdio::piped()), Duration::ZERO).unwrap();
        let pid = child.id();
        drop(child);
        assert_eq!(crate::state_of(pid), None, "it was reaped");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_all_that_it_has_started() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let mut command = shell("sleep 1000 & echo $! > \"$1\"; sleep 1000");
        command.arg("sh").arg(&pid);
        let error = output(&mut command, Duration::from_secs(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let pid: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
        // Init reaps it, and not at once.
        assert!(crate::wait_until(LIMIT, POLL_INTERVAL, || matches!(crate::state_of(pid), None | Some('Z'))));
    }

    #[test]
    fn a_command_that_fails_or_cannot_start_is_an_error_with_a_reason() {
        assert_eq!(output(&mut shell("echo a b"), LIMIT).unwrap(), "a b\n");
        let error = output(&mut shell("echo no luck >&2; exit 3"), LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "sh: exit status: 3: no luck");
        let error = output(&mut Command::new("no-such-program"), LIMIT).unwrap_err();
        assert!(error.to_string().starts_with("starting no-such-program: "), "{error}");
    }
}
