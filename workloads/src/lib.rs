//! Workloads of agents on the files of their context: traces, generators, importers and scripts.
//! Nothing here uses a file system under test or a clock; replay is in the harness.

mod bm25;
mod built_in;
pub mod catalogue;
pub mod compile;
pub mod context;
pub mod conversation;
pub mod definition;
pub mod exam;
pub mod fault;
pub mod filler;
pub mod generate;
pub mod model;
mod notes;
pub mod path;
pub mod render;
pub mod script;
pub mod suite;
pub mod tasks;
pub mod trace;
