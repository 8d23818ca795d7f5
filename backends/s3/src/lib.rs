//! An agent's memory in a bucket: an append-only log of immutable objects.
//!
//! A memory is a [`tree`] that commits change, one after the other. A commit is an object that is created on the
//! condition that it does not exist, so the order of commits is the order in which the server created them, and
//! nothing is ever overwritten. [`session`] is the protocol, without I/O; [`merge`] combines what two writers did.
//! docs/S3-PROTOCOL.md explains both.
//!
//! The mount itself (FUSE, the local cache, threads) is in `backends`.

pub mod bucket;
pub mod check;
pub mod checkout;
pub mod client;
pub mod config;
pub mod gc;
pub mod history;
pub mod merge;
pub mod mirror;
pub mod objects;
mod reader;
pub mod replica;
pub mod seal;
pub mod session;
pub mod signature;
pub mod text;
pub mod tree;
mod upload;
mod view;
