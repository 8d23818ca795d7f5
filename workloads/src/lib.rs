//! What agents do with the files that hold their context: traces, generators, importers, and the
//! scripts they all become.
//!
//! Nothing here touches a file system under test or a clock: that is the harness's.

pub mod catalogue;
pub mod compile;
pub mod context;
pub mod conversation;
pub mod definition;
pub mod exam;
pub mod fault;
pub mod filler;
pub mod generate;
pub mod import;
pub mod model;
pub mod path;
pub mod render;
pub mod script;
pub mod suite;
pub mod trace;
