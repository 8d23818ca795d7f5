//! `ctxbench unmount`: ends a mount of ctxbench.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use backends::fuse::end;
use clap::Args;

use backends::attribute;

/// End a mount: its daemon uploads pending changes and exits.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench unmount ~/notes
  ctxbench status && ctxbench unmount /tmp/avm

Exit codes: 0 unmounted, 1 nothing of ours is mounted there, or it is in use.")]
pub struct Unmount {
    /// The mounted directory.
    dir: PathBuf,
}

impl Unmount {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let at = self.dir.display();
        // Ignore errors: the cache keeps changes that cannot be uploaded now, and the next mount uploads them.
        let _ = attribute::get(&self.dir, "user.ctx.sync");
        end(&self.dir).with_context(|| format!("unmounting {at}"))?;
        println!("{at} is unmounted");
        Ok(ExitCode::SUCCESS)
    }
}
