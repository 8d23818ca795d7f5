//! Workloads that are made, not recorded. The same parameters always make the same script.

pub mod asking;
pub mod clients;
pub mod finding;
pub mod hosts;
pub mod micro;
pub mod notes;
pub mod offload;
pub mod syncing;
pub mod vsm_cycle;
