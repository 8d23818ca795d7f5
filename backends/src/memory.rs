//! The `memory` backend: a mount of a [`MemoryStore`].

use clap::Args;
use fuse::memory::MemoryStore;

use arms::backend::Description;
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions, Writeback};
use arms::mounted::{MountedStore, description};
use arms::promise::Promises;

/// Files in the daemon's memory, which are lost when the daemon ends.
#[derive(Debug, Args)]
pub(crate) struct MemoryOptions {
    #[command(flatten)]
    writeback: Writeback,
}

impl StoreOptions for MemoryOptions {
    const NAME: &'static str = "memory";

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        Ok(OpenedStore {
            writeback: self.writeback.writeback,
            ..OpenedStore::of(MemoryStore::new(at.owner), Self::NAME)
        })
    }
}

/// A mount of a [`MemoryStore`].
pub(crate) struct MemoryMount;

impl MountedStore for MemoryMount {
    fn describe(&self) -> Description {
        let mut description = description(
            MemoryOptions::NAME,
            "FUSE over the daemon's memory: the lower bound of the cost of our FUSE front end",
            "nothing survives the end of the daemon, even after fsync",
        );
        description.capabilities.persistent = false;
        description
    }

    fn promises(&self) -> Promises {
        Promises::NONE
    }
}
