//! Tests of all stores through the [`fuse::store::Store`] trait, and of the log in a bucket; without a mount.

#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/s3.rs"]
mod hosts;
#[path = "common/model.rs"]
mod model;
#[path = "common/oracle.rs"]
mod oracle;

mod agent_memory;
mod bucket;
mod conformance;
mod damage;
mod greeting;
mod llm;
mod llm_context;
mod llm_generator;
mod nesting;
mod s3_bucket;
mod s3_crashes;
mod s3_faults;
mod s3_files;
mod s3_mirror;
mod s3_power_loss;
mod s3_search;
mod s3_writers;
mod sqlite;
mod sqlite_space;
mod view;
