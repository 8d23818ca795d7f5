//! `ctxbench s3 versions`: lists, prints or restores old versions of a file in an `s3` mount.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use rustix::io::Errno;

use backends::attribute;

/// List, print or bring back old versions of a file in an `s3` mount.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 versions ~/memory/plan.md               # version, writer, time, size; one a line
  ctxbench s3 versions ~/memory/plan.md --show 3      # up to 64 KiB
  ctxbench s3 versions ~/memory/plan.md --restore 3")]
pub struct Versions {
    /// The file.
    file: PathBuf,
    /// Print this version.
    #[arg(long, value_name = "N", conflicts_with = "restore")]
    show: Option<u64>,
    /// Give the file the content of this version; what it holds now becomes a version, too.
    #[arg(long, value_name = "N")]
    restore: Option<u64>,
}

impl Versions {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let at = self.file.display();
        let explain = |error: Errno| match error {
            Errno::NODATA => {
                "that version is not kept, or nothing of this file is in the bucket yet".to_owned()
            }
            Errno::NOTSUP => "it is not in an `s3` mount".to_owned(),
            Errno::TOOBIG => "it is larger than 64 KiB: use --restore".to_owned(),
            error => error.to_string(),
        };
        if let Some(version) = self.restore {
            match attribute::set(&self.file, "user.ctx.restore", &version.to_string()) {
                Ok(()) => println!("{at} is as version {version} was"),
                Err(error) => bail!("{at}: {}", explain(error)),
            }
            return Ok(ExitCode::SUCCESS);
        }
        let name = match self.show {
            Some(version) => format!("user.ctx.version.{version}"),
            None => "user.ctx.versions".to_owned(),
        };
        match attribute::get(&self.file, &name) {
            Ok(text) => std::io::stdout()
                .write_all(text.as_bytes())
                .context("writing to standard output")?,
            Err(error) => bail!("{at}: {}", explain(error)),
        }
        Ok(ExitCode::SUCCESS)
    }
}
