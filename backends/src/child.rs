//! Child processes: waiting for their end, killing their group, and reading their output and logs.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

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
pub(crate) fn kill_group(child: &mut Child) {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        // An error means that the group has ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Waiting for a killed child leaves no zombie.
    let _ = child.wait();
}

/// The first bytes of a file, at most `most`.
pub(crate) fn head(mut file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The last lines of a log, for an error.
pub(crate) fn last_lines(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
