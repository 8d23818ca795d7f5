//! `ctxbench s3 sync`: waits until the changes in a mount are durable.

use std::borrow::Cow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use inputs::border;
use rustix::io::Errno;
use schemars::JsonSchema;
use serde::Serialize;

use fuse::attribute;

use crate::cmd::format::ScreenFormat;

/// Wait until all changes made so far in an `s3` mount are in the bucket.
///
/// For a directory that is in no `s3` mount, such as one whose daemon was killed, the command syncs the local file system
/// and fails, because nothing was uploaded.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 sync ~/memory
  ctxbench s3 sync && echo 'safe to shut down'    # the mount of the current directory

Exit codes: 0 everything is in the bucket, 1 it is not, or PATH is in no s3 mount.")]
pub struct Sync {
    /// A file or directory in the mount.
    #[arg(default_value = ".")]
    path: PathBuf,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
}

/// What `s3 sync` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(in crate::cmd) struct Synced<'a> {
    path: Cow<'a, str>,
    /// Always true: otherwise, the command fails.
    is_in_bucket: bool,
}

impl Sync {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let at = border::path(&self.path);
        std::fs::metadata(&self.path).with_context(|| format!("reading {at}"))?;
        match attribute::get(&self.path, "user.ctx.sync") {
            Ok(_) => {
                let document = Synced { path: self.path.to_string_lossy(), is_in_bucket: true };
                self.format.print(|| format!("{at}: everything is in the bucket\n"), &document)?;
            }
            // Not an `s3` mount: sync its file system.
            Err(Errno::NODATA | Errno::NOTSUP) => {
                let file = std::fs::File::open(&self.path);
                let file = file.with_context(|| format!("opening {at}"))?;
                file.sync_all().with_context(|| format!("syncing {at}"))?;
                rustix::fs::syncfs(&file).with_context(|| format!("syncing {at}"))?;
                bail!(
                    "{at}: in no s3 mount: its file system was synced, and nothing was uploaded (fix: `ctxbench status` lists the mounts)"
                );
            }
            Err(error) => {
                let hint = "the bucket cannot be reached, or refuses the changes; they are kept (the mount's log has the reason and the fix)";
                return Err(error).with_context(|| format!("syncing {at}: {hint}"));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
