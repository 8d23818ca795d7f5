//! `ctxbench s3 log`: lists the commits of a memory.

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::bail;
use backends::s3::BucketOptions;
use clap::Args;
use s3::history::{self, Event};

use super::remote::{Remote, time};

/// List the commits of a memory, newest first: number, time, writer and changed paths.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 log --agent-id alice
  ctxbench s3 log --agent-id alice notes/plan.md      # the commits that changed this file

Exit codes: 0 listed, 1 no such memory or path, or the log cannot be read.")]
pub struct Log {
    /// A file or directory of the memory, relative to its root [default: everything].
    #[arg(default_value = "", hide_default_value = true)]
    path: String,
    #[command(flatten)]
    bucket: BucketOptions,
}

impl Log {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let entries = remote.run(history::log(&remote.client, &self.path))?;
        if entries.is_empty() {
            let config = &remote.config;
            let (endpoint, bucket, agent) = (&config.endpoint, &config.bucket, &config.agent);
            match self.path.is_empty() {
                true => bail!(
                    "{endpoint} bucket {bucket} has no memory of agent {agent} (check --bucket, --prefix and --agent-id)"
                ),
                false => bail!(
                    "no commit of agent {agent} changed {} (give a path relative to the root of the memory)",
                    self.path
                ),
            }
        }
        let mut text = String::new();
        for entry in entries {
            let (number, at, writer) = (entry.number, time(entry.time), &entry.writer);
            writeln!(text, "{number} {at} {writer}")?;
            for (path, event) in &entry.events {
                match event {
                    Event::Added => writeln!(text, "  added      {path}")?,
                    Event::Changed => writeln!(text, "  changed    {path}")?,
                    Event::Attributes => writeln!(text, "  attributes {path}")?,
                    Event::Renamed(from) => writeln!(text, "  renamed    {from} -> {path}")?,
                    Event::Removed => writeln!(text, "  removed    {path}")?,
                }
            }
        }
        print!("{text}");
        Ok(ExitCode::SUCCESS)
    }
}
