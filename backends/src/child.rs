//! Child processes: the wait for their end, and the end of their logs.

use std::io;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

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

/// The last lines of a log, for an error.
pub(crate) fn last_lines(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.trim().lines().collect();
    lines[lines.len().saturating_sub(5)..].join("\n")
}
