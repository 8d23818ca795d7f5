//! Generators of workloads. The same parameters always give the same script.

pub mod asking;
pub mod clients;
pub(crate) mod corpus;
pub mod finding;
pub mod hosts;
pub mod inbox;
pub mod memory_session;
pub mod micro;
pub mod notes;
pub mod offload;
pub mod program;
pub mod syncing;
pub mod vsm_cycle;
