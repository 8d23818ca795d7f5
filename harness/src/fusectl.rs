//! Having `fusectl` at hand while a run goes on, so that a hung mount can be aborted.

use std::path::{Path, PathBuf};

use backends::fuse::connection::{FUSECTL, mounts};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// What our mounts of it show as their source, before the number of the process.
const SOURCE: &str = "ctxbench-fusectl-";

/// `fusectl`, mounted by us in a place of our own until dropped, or by somebody else and left alone.
#[derive(Debug)]
pub struct Fusectl {
    ours: Option<PathBuf>,
}

impl Fusectl {
    /// Mounts it in `scratch` unless it is where it usually is, or this user may not; without it, a
    /// hung mount can only be ended by killing its daemon. What another run has mounted may be gone
    /// when it is needed. What a killed run has left mounted is taken down first.
    pub fn at_hand(scratch: &Path) -> Self {
        let mounts = mounts().unwrap_or_default();
        let of_runs = mounts.iter().filter(|mount| mount.kind == "fusectl");
        for mount in of_runs {
            let pid = mount.source.strip_prefix(SOURCE);
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // Another run may be at it, too.
                let _ = unmount(&mount.at, UnmountFlags::DETACH);
            }
        }
        if mounts.iter().any(|mount| mount.at == Path::new(FUSECTL)) {
            return Self { ours: None };
        }
        let at = scratch.join("fusectl");
        let source = format!("{SOURCE}{}", std::process::id());
        let mounted = std::fs::create_dir(&at)
            .and_then(|()| Ok(mount(&source, &at, "fusectl", MountFlags::empty(), None)?));
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
