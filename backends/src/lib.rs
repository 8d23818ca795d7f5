//! Ways to hold an agent's context as files.
//!
//! An [`arms::backend::Backend`] opens a workspace for one cell of an epoch. Our own file systems
//! implement [`fuse::store::Store`], which the crate `fuse` serves. [`registry`] lists all backends. Workloads,
//! measurement and analysis are in other crates.

mod direct;
mod fio;
pub mod llm;
mod memory;
pub mod null;
mod periodic;
pub mod registry;
pub mod state;
pub mod tools;
