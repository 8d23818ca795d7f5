//! The one FUSE front end, for every [`Store`](crate::store::Store): mounting, the inode table, the
//! kernel's cache policy, threads, and counters per FUSE opcode.
//!
//! No store's own logic is here, and no code outside this module handles FUSE requests.

mod attributes;
mod cached_writes;
pub mod connection;
mod content;
mod control;
mod convert;
mod cookies;
mod counters;
pub mod daemon;
mod directories;
mod front_end;
mod holes;
mod inodes;
pub mod interrupt;
mod lost_writes;
mod names;
mod owner;
mod panics;
mod policy;
mod requests;
mod serve;
mod slow;
mod watch_events;

pub use attributes::LOST_BYTES;
pub use connection::end;
pub use control::{ControlCommand, ask};
pub use counters::{Counters, Opcode, OpcodeCount};
pub use owner::StoredOwner;
pub use serve::{MountError, MountOptions, Stop, check, check_device, serve};
