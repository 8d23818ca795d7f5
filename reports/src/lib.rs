//! Run directories to statistics, verdicts and pages.
//!
//! Everything here is a function of files: nothing is mounted, timed or probed, and an old run can
//! always be reported again.

pub mod claims;
pub mod context;
pub mod decide;
mod digest;
pub mod prices;
pub mod render;
pub mod reproduction;
pub mod summary;
#[cfg(test)]
mod testing;

pub use inputs::InputError;
