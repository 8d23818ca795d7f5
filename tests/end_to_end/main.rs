//! Tests of the binary over real mounts, in one program, so that waiting tests leave the processors to
//! others.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod agent_memory;
mod common;
mod counts;
mod durability;
mod fault_network;
mod faults;
mod formats;
mod hosts;
mod inbox;
mod inputs;
#[path = "../../benches/large_run.rs"]
mod large_run;
mod llm;
mod mcp;
mod mount;
mod mount_command;
mod peers;
mod programs;
mod python;
mod run;
mod s3;
mod s3_places;
mod scale;
mod sdk;
mod servers;
mod shards;
mod tls;
mod tokens;
mod try_session;
mod unread_log;
mod verify;
mod view;
mod view_speed;
mod workspace;
