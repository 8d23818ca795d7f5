//! Ways to hold an agent's context as files.
//!
//! An [`arms::backend::Backend`] opens a workspace for one cell of an epoch. Our own file systems
//! implement [`fuse::store::Store`], which the crate `fuse` serves. [`registry`] lists all backends. Workloads,
//! measurement and analysis are in other crates.

mod direct;
mod fio;
mod memory;
pub mod null;
pub mod registry;
mod rsync;
pub mod state;
pub mod tools;
