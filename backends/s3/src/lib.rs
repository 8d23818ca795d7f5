//! An agent's memory in a bucket: a [`tree`] that the commits of an append-only log change, one after the other.
//!
//! A commit is an object that is created on the condition that it does not exist. So the server's order of creation is
//! the order of commits, and nothing is ever overwritten. [`session`] is the protocol, without I/O; [`merge`] combines
//! the changes of two writers. docs/S3-PROTOCOL.md explains both. The mount (FUSE, cache, threads) is in the crate `s3-store`.

pub mod bucket;
pub mod check;
pub mod checkout;
pub mod client;
pub mod config;
pub mod credentials;
pub mod directory;
pub mod gc;
pub mod history;
pub mod merge;
pub mod mirror;
pub mod objects;
mod reader;
pub mod replica;
pub mod seal;
mod secret;
mod server;
pub mod session;
pub mod signature;
mod stored;
pub mod text;
pub mod tree;
mod upload;
mod view;
mod wire;
