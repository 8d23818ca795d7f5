//! What is timed: a script's file operations in a directory, by tool calls or by a client, and the shell words of tasks;
//! and the check of their results. The clock, the order of calls and their records are in the binary.

pub mod in_process;
mod perform;
mod prepare;
pub mod shell;
#[cfg(test)]
mod testing;
pub mod tools;
mod verify;
pub mod worker;
pub mod workers;

pub use perform::{Observed, Scratch, perform, program, program_directories};
pub use prepare::{OpenFiles, Prepared, prepare};
pub use verify::{only_lines, verify};
