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
        let mut description = description(
            "memory",
            "FUSE over the daemon's memory: the floor of what our FUSE front end costs",
            "gone when the daemon ends, fsync or not",
            env!("CTXBENCH_LINES_MEMORY"),
        );
        description.capabilities.persistent = false;
        description
    }

    fn opener(&self) -> Option<Opener> {
        Some(|owner| Ok(Arc::new(MemoryStore::new(owner))))
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
