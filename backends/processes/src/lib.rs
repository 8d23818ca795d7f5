//! Child processes and daemons: their start, their state, signals to them, and their end.
//!
//! Here: every wait with a time limit and every kill. What a program writes, and what its end means, is its user's matter.

mod child;
mod state;

pub use child::{ChildProcess, head, output, run};
pub use state::{send, stands_still, state_of, wait_until, with_variable};

/// The last `most` lines of a log, for an error.
pub fn last_lines(log: &[u8], most: usize) -> String {
    let log = String::from_utf8_lossy(log);
    let lines: Vec<&str> = log.trim().lines().collect();
    lines[lines.len().saturating_sub(most)..].join("\n")
}
