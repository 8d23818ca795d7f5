//! The `null` backend.

use std::sync::Arc;

use super::NullStore;
use crate::backend::{Description, Opener};
use crate::mounted::{MountedStore, description};
use crate::promise::Promises;

/// A mount of a [`NullStore`].
pub(crate) struct NullMount;

impl MountedStore for NullMount {
    fn describe(&self) -> Description {
        let mut description = description(
            "null",
            "FUSE over nothing: fixed names, attributes and bytes, nothing cached by the kernel",
            "holds nothing",
            env!("CTXBENCH_LINES_NULL"),
        );
        description.capabilities.holds_data = false;
        description
    }

    fn opener(&self) -> Option<Opener> {
        Some(|owner| Ok(Arc::new(NullStore::new(owner))))
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
