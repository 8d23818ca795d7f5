//! The scratch directory of a run: made for it, gone after it.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use tempfile::TempDir;

/// Where scratch directories are made if nothing else is said: on a disk on every Linux that follows
/// the file system hierarchy standard, unlike `/tmp`.
const DEFAULT: &str = "/var/tmp";

/// Makes a scratch directory in `parent`, or in `CTXBENCH_SCRATCH`, or in `/var/tmp`.
pub fn make(parent: Option<&Path>) -> anyhow::Result<TempDir> {
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
    made.with_context(|| format!("making a scratch directory in {}", parent.display()))
}
