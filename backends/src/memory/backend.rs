//! The `memory` backend.

use std::sync::Arc;

use super::MemoryStore;
use crate::backend::{Description, Opener};
use crate::mounted::{MountedStore, description};
use crate::promise::Promises;

/// A mount of a [`MemoryStore`].
pub(crate) struct MemoryMount;

impl MountedStore for MemoryMount {
    fn describe(&self) -> Description {
        let mut own = description(
            "memory",
            "FUSE over the daemon's memory: the floor of what our FUSE front end costs",
            "gone when the daemon ends, fsync or not",
            env!("CTXBENCH_LINES_MEMORY"),
        );
        own.capabilities.persistent = false;
        own
    }

    fn opener(&self) -> Option<Opener> {
        Some(|owner| Ok(Arc::new(MemoryStore::new(owner))))
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
