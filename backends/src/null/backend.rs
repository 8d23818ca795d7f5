//! The `null` backend.

use crate::backend::Description;
use crate::mounted::{MountedStore, description};
use crate::promise::Promises;

/// A mount of a [`super::NullStore`].
pub(crate) struct NullMount;

impl MountedStore for NullMount {
    fn describe(&self) -> Description {
        let mut own = description(
            "null",
            "FUSE over nothing: fixed names, attributes and bytes, nothing cached by the kernel",
            "holds nothing",
            env!("CTXBENCH_LINES_NULL"),
        );
        own.capabilities.holds_data = false;
        own
    }

    fn store(&self) -> &'static str {
        "null"
    }

    fn gives(&self) -> &'static [&'static str] {
        &[]
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
