//! File systems whose content a language model writes: two stores that call a model from `read`.
//!
//! [`HistoryStore`] asks what a file holds after a log of operations. [`GenerateStore`] asks for a file on
//! its first read. Both use an [`Asker`]. Lookup, `stat`, listing and open never call a model; a change only
//! does under a policy. The model clients are in the crate `models`.

mod asker;
mod backend;
mod flight;
pub mod generate;
pub mod history;
mod log_file;
mod names;
mod periodic;

pub use asker::{Asker, AskerOptions, Purpose, PurposeTotals};
pub use backend::{GENERATE, HISTORY, LlmMode, LlmMount};
pub use generate::GenerateStore;
pub use history::HistoryStore;
pub use log_file::LogFile;

/// The extended attribute with the reason of the last failure.
pub const ERROR: &str = "user.llmfs.error";
