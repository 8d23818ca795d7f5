//! Having `fusectl` at hand while a run goes on, so that a hung mount can be aborted.

use std::path::{Path, PathBuf};

use backends::fuse::connection::fusectl;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// `fusectl`, mounted by us in a place of our own until dropped, or by somebody else and left alone.
#[derive(Debug)]
pub struct Fusectl {
    ours: Option<PathBuf>,
}

impl Fusectl {
    /// Mounts it in `scratch` where it is not mounted anywhere yet and this user may; without it, a
    /// hung mount can only be ended by killing its daemon.
    pub fn at_hand(scratch: &Path) -> Self {
        if fusectl().is_some() {
            return Self { ours: None };
        }
        let at = scratch.join("fusectl");
        let mounted = std::fs::create_dir(&at)
            .and_then(|()| Ok(mount("none", &at, "fusectl", MountFlags::empty(), None)?));
        if let Err(error) = &mounted {
            tracing::debug!("fusectl cannot be mounted: {error}");
        }
        Self {
            ours: mounted.is_ok().then_some(at),
        }
    }
}

impl Drop for Fusectl {
    fn drop(&mut self) {
        if let Some(at) = &self.ours
            && let Err(error) = unmount(at, UnmountFlags::DETACH)
        {
            tracing::warn!("{} stays mounted: {error}", at.display());
        }
    }
}
