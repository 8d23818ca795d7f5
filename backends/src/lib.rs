//! Ways to hold an agent's context as files.
//!
//! A [`backend::Backend`] opens a [`backend::Workspace`] for one cell of an epoch. Our own file systems
//! implement [`fuse::store::Store`], which the crate `fuse` serves. Workloads, measurement
//! and analysis are in other crates.

pub mod agent_memory;
pub mod backend;
mod child;
mod direct;
mod external;
mod fio;
pub mod llm;
mod memory;
pub mod mount_command;
mod mounted;
pub mod null;
mod periodic;
pub mod promise;
pub mod registry;
pub mod s3;
pub mod services;
pub mod source;
pub mod sqlite;
pub mod state;
pub mod tools;
pub mod view;

pub use mounted::READY;
