//! Child processes: waiting for their end, killing their group, and reading their output and logs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use fuse::own_file;
use rustix::process::{Pid, Signal, kill_process_group};

/// Poll interval while a process ends.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Waits at most `patience` for a child; `None` if it has not ended.
pub(crate) fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() > deadline {
            return Ok(ended);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Kills a child and all other processes of its group, which it leads.
pub fn kill_group(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // An error means that the group has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Waiting for a killed child leaves no zombie.
    let _ = child.wait();
}

/// Runs a command to its end and returns its output, at most 64 KiB.
///
/// # Errors
/// If it cannot be started, fails, or takes longer than `patience`; with the last lines of its standard error.
pub fn output(command: &mut Command, patience: Duration) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failure = |why: String| io::Error::other(format!("{name}: {why}"));
    // Files, not pipes: a full pipe would stop the program.
    let (said, complaints) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(complaints.try_clone()?)
        .process_group(0)
        .spawn()
        .map_err(|error| failure(error.to_string()))?;
    let Some(status) = wait(&mut child, patience)? else {
        kill_group(&mut child);
        return Err(failure(format!("did not end within {} s", patience.as_secs())));
    };
    if !status.success() {
        let complaints = String::from_utf8_lossy(&head(complaints, OUTPUT_BYTES)?).into_owned();
        return Err(failure(format!("{status}: {}", complaints.trim())));
    }
    io::read_to_string(&*head(said, OUTPUT_BYTES)?)
}

/// How much of a program's output is read.
const OUTPUT_BYTES: u64 = 64 * 1024;

/// The first bytes of a file, at most `most`.
pub fn head(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last lines of a log, for an error.
pub(crate) fn last_lines(log: &Path) -> String {
    let log = own_file::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}

/// The processes that have a variable with this value in their environment. Those of other users are not seen.
pub(crate) fn with_variable(name: &str, value: &str) -> Vec<u32> {
    let variable = format!("{name}={value}");
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    ids.filter(has_it).collect()
}
