//! Keeps `fusectl` mounted during a run, so that a hung FUSE connection can be aborted.

use std::path::{Path, PathBuf};

use fuse::connection::{FUSECTL, mounts};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Source of our mounts in the mount table; the process id follows.
const SOURCE: &str = "ctxbench-fusectl-";

/// A mount of `fusectl`: our own, unmounted on drop, or the system's, which is left alone.
#[derive(Debug)]
pub struct Fusectl {
    ours: Option<PathBuf>,
}

impl Fusectl {
    /// Mounts `fusectl` in `scratch`, unless the system has mounted it or this user may not mount. Without it,
    /// only killing the daemon ends a hung mount. Unmounts what killed runs left, and ignores mounts of other
    /// live runs, which can end at any time.
    pub fn at_hand(scratch: &Path) -> Self {
        let mounts = mounts().unwrap_or_default();
        let of_runs = mounts.iter().filter(|mount| mount.kind == "fusectl");
        for mount in of_runs {
            let pid = mount.source.strip_prefix(SOURCE);
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                // Ignore errors: another run may unmount it at the same time.
                let _ = unmount(&mount.at, UnmountFlags::DETACH);
            }
        }
        if mounts.iter().any(|mount| mount.at == Path::new(FUSECTL)) {
            return Self { ours: None };
        }
        let at = scratch.join("fusectl");
        let source = format!("{SOURCE}{}", std::process::id());
        let mounted =
            std::fs::create_dir(&at).and_then(|()| Ok(mount(&source, &at, "fusectl", MountFlags::empty(), None)?));
        if let Err(error) = &mounted {
            tracing::debug!("fusectl cannot be mounted: {error}");
        }
        Self { ours: mounted.is_ok().then_some(at) }
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
