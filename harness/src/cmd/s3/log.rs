//! `ctxbench s3 log`: lists the commits of a memory.

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
        let log = remote.run(history::log(&remote.client, &self.path))?;
        if log.entries.is_empty() {
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
        for entry in &log.entries {
            let (number, at, writer) = (entry.number, time(entry.time), &entry.writer);
            println!("{number} {at} {writer}");
            // One line at a time: the paths of nested directories are quadratic together.
            for (path, event) in &entry.events {
                let path = log.path(*path);
                match event {
                    Event::Added => println!("  added      {path}"),
                    Event::Changed => println!("  changed    {path}"),
                    Event::Attributes => println!("  attributes {path}"),
                    Event::Renamed(from) => println!("  renamed    {} -> {path}", log.path(*from)),
                    Event::Removed => println!("  removed    {path}"),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
