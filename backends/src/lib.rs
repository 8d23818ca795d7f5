//! Ways to hold an agent's context as files.
//!
//! A [`backend::Backend`] opens a [`backend::Workspace`] for one cell of an epoch. Our own file systems
//! implement [`store::Store`], which the one FUSE front end in [`fuse`] serves. Workloads, measurement
//! and analysis are in other crates.

pub mod agent_memory;
pub mod attribute;
pub mod backend;
mod child;
pub mod cpu;
pub mod daemon_log;
mod direct;
mod external;
mod fio;
pub mod fuse;
pub mod llm;
pub mod memory;
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
pub mod store;
pub mod tools;
mod unfinished;
pub mod view;

pub use mounted::READY;
