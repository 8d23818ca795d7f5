//! The `memory` backend.

use crate::backend::Description;
use crate::mounted::{MountedStore, description};
use crate::promise::Promises;

/// A mount of a [`super::MemoryStore`].
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

    fn store(&self) -> &'static str {
        "memory"
    }

    fn gives(&self) -> &'static [&'static str] {
        &[]
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
