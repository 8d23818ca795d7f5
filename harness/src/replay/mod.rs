//! Executing a script's file operations in a directory, and checking what they return.

mod perform;
mod prepare;
mod verify;

pub use perform::{Observed, Scratch, perform};
pub use prepare::{OpenFiles, Prepared, prepare};
pub use verify::verify;
