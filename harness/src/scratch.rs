//! The scratch directory of a run: made for it, gone after it, with whatever is still mounted in it.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use backends::fuse::connection::{detach, mounts};
use tempfile::TempDir;

/// Where scratch directories are made if nothing else is said: on a disk on every Linux that follows
/// the file system hierarchy standard, unlike `/tmp`.
const DEFAULT: &str = "/var/tmp";

/// A scratch directory. Dropping it detaches our mounts in it and removes it.
#[derive(Debug)]
pub struct ScratchDir {
    dir: TempDir,
}

impl ScratchDir {
    /// Makes one in `parent`, or in `CTXBENCH_SCRATCH`, or in `/var/tmp`.
    pub fn make(parent: Option<&Path>) -> anyhow::Result<Self> {
        let from_environment = std::env::var_os("CTXBENCH_SCRATCH").map(PathBuf::from);
        let parent = parent
            .map(Path::to_owned)
            .or(from_environment)
            .unwrap_or_else(|| PathBuf::from(DEFAULT));
        let made: io::Result<TempDir> = parent.canonicalize().and_then(|parent| {
            tempfile::Builder::new()
                .prefix("ctxbench-")
                .tempdir_in(parent)
        });
        let dir =
            made.with_context(|| format!("making a scratch directory in {}", parent.display()))?;
        Ok(Self { dir })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Every workspace takes its own mount down; this is for those that could not.
        let Ok(mounts) = mounts() else {
            return;
        };
        let ours = mounts.iter().rev();
        for mount in ours.filter(|mount| mount.is_ours() && mount.at.starts_with(self.path())) {
            if let Err(error) = detach(&mount.at) {
                tracing::warn!("{} stays mounted: {error}", mount.at.display());
            }
        }
    }
}
