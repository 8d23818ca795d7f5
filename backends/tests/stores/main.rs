//! Tests of the stores of this crate through the [`backends::store::Store`] trait, without a mount.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

#[path = "common/below.rs"]
mod below;
mod common;
#[path = "common/model.rs"]
mod model;
#[path = "common/oracle.rs"]
mod oracle;
#[path = "common/s3.rs"]
mod s3;

mod agent_memory;
mod agent_memory_meaning;
mod conformance;
mod llm;
mod s3_directories;
mod s3_doubts;
mod s3_emptied;
mod s3_faults;
mod s3_files;
mod s3_foreign;
mod s3_identity;
mod s3_opening;
mod s3_rebuild;
mod s3_recovery;
mod s3_renamed;
mod s3_restless;
mod s3_salvage;
mod s3_stuck;
mod s3_unconditional;
mod s3_unread;
mod sqlite;
