//! The timed operations: those of a script in a directory, by tool calls or by a client, and the shell commands of tasks.
//! Also the check of their results. The clock, the order of calls and their records are in the binary.

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

pub use perform::{Observation, ResultBuffer, perform, program, program_directories};
pub use prepare::{OpenFileTable, PreparedOp, prepare};
pub use verify::{only_lines, verify};
