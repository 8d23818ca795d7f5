//! What a backend is to the harness.
//!
//! A [`backend::Backend`] opens a [`backend::Workspace`] for one cell of an epoch. [`mounted`] makes a backend of each of
//! our stores, [`external`] of each third-party file system. The stores themselves, and their list, are in other crates.

pub mod backend;
pub mod external;
pub mod mount_command;
pub mod mounted;
pub mod promise;
pub mod services;
pub mod source;

pub use mounted::READY;
