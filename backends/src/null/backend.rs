//! The `null` backend.

use arms::backend::Description;
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions};
use arms::mounted::{MountedStore, description};
use arms::promise::Promises;
use clap::Args;

use super::NullStore;

/// Fixed names, attributes and bytes, to measure the cost of any FUSE mount.
#[derive(Debug, Args)]
pub(crate) struct NullOptions {}

impl StoreOptions for NullOptions {
    const NAME: &'static str = "null";

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        Ok(OpenedStore::of(NullStore::new(at.owner), Self::NAME))
    }
}

/// A mount of a [`NullStore`].
pub(crate) struct NullMount;

impl MountedStore for NullMount {
    fn describe(&self) -> Description {
        let mut description = description(
            NullOptions::NAME,
            "FUSE with fixed names, attributes and bytes, without caching by the kernel: the lower bound of any FUSE file system",
            "holds nothing",
        );
        description.capabilities.holds_data = false;
        description
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
