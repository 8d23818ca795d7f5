//! Shell commands of a recording: parsed, never executed.

mod posix;
pub(super) mod programs;
mod steps;

pub use steps::{Platform, ProgramClass, ShellCommand, ShellStep, ShellWork};

/// The file operations of a command that ended with status 0 (`ok`) and printed `output`.
/// What a command touched must be certain from its text and output; otherwise the work says why it is not.
pub fn operations(command: &ShellCommand, output: &str, ok: bool) -> ShellWork {
    match command.platform {
        Platform::Posix => posix::operations(command, output, ok),
        Platform::PowerShell => ShellWork::uncertain("PowerShell"),
    }
}
