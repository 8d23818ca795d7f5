//! File systems in user space: a program implements [`store::Store`], and [`serve`] mounts it.
//!
//! The one FUSE front end is here: mounting, the inode table, the kernel's cache policy, threads, and counters per FUSE
//! opcode. No store's own logic is here, except [`memory`], from which others are made, and no code outside this crate
//! handles FUSE requests. `examples/map.rs` is a program with a store of its own.

pub mod attribute;
mod attributes;
mod cached_writes;
pub mod connection;
mod content;
mod control;
mod convert;
mod cookies;
mod counters;
pub mod cpu;
pub mod daemon;
pub mod daemon_log;
mod directories;
mod front_end;
mod holes;
mod inodes;
pub mod interrupt;
mod lost_writes;
pub mod memory;
mod names;
pub mod own_file;
mod own_mount;
mod owner;
mod page_writeback;
mod panics;
mod policy;
mod request_threads;
mod requests;
mod serve;
mod slow;
pub mod store;
pub mod unfinished;
mod watch_events;

pub use attributes::{LOST_BYTES, UNSAVED};
pub use connection::end;
pub use control::{ControlCommand, ask};
pub use counters::{Counters, Opcode, OpcodeCount};
pub use owner::StoredOwner;
pub use serve::{MountError, MountOptions, Stop, check, check_device, serve};
