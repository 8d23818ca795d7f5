//! Tests of the binary over real mounts, in one program, so that waiting tests leave the processors to
//! others.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "tests"
)]

mod agent_memory;
mod common;
mod counts;
mod durability;
mod fault_network;
mod faults;
mod hosts;
mod inputs;
mod llm;
mod mount;
mod peers;
mod programs;
mod run;
mod s3;
mod servers;
mod tls;
mod tokens;
mod unread_log;
