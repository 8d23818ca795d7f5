//! Ways to hold an agent's context as files.
//!
//! A [`backend::Backend`] opens a [`backend::Workspace`] for one measured block. Our own file systems
//! implement [`store::Store`], which the one FUSE front end in [`fuse`] serves. Workloads, measurement
//! and analysis are in other crates.

pub mod agent_memory;
pub mod attribute;
pub mod backend;
pub mod conform;
pub mod cpu;
pub mod daemon_log;
mod direct;
mod external;
mod fio;
pub mod fuse;
pub mod llm;
pub mod memory;
pub mod model_service;
mod mounted;
pub mod null;
pub mod promise;
pub mod s3;
pub mod s3_service;
pub mod sqlite;
pub mod state;
pub mod store;

pub use mounted::READY;

#[cfg(doctest)]
#[doc = include_str!("../../docs/ADDING-A-BACKEND.md")]
struct AddingABackend;

#[cfg(doctest)]
#[doc = include_str!("../../docs/LLM.md")]
struct FilesOfAModel;
