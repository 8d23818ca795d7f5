//! Files that a language model makes up: two stores that put a model behind `read`.
//!
//! [`HistoryStore`] keeps a log of operations and asks what a file holds now; [`GenerateStore`] has a tree
//! of names and asks for a file's content when it is first read. Both ask through an [`Asker`], which counts, caches
//! nothing by itself, and turns a model's failure into an error number and a line in the log. How a model is reached is
//! in the crate `models`.
//!
//! No lookup, `stat`, listing, open or truncation ever asks a model.

mod asker;
mod flight;
pub mod generate;
pub mod history;
mod log_file;
mod names;

pub use asker::{Asker, AskerOptions, Purpose, Tally};
pub use generate::GenerateStore;
pub use history::HistoryStore;
pub use log_file::LogFile;

/// The attribute with the reason of the last failure.
pub const ERROR: &str = "user.llmfs.error";
