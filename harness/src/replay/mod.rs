//! Executes a script's file operations, in a directory, by tool calls or by a client, and checks their results.

pub mod in_process;
mod perform;
mod prepare;
pub mod tools;
mod verify;
pub mod workers;

pub use perform::{Observed, Scratch, perform, program, program_directories};
pub use prepare::{OpenFiles, Prepared, prepare};
pub use verify::{only_lines, verify};
