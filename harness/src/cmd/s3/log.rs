//! `ctxbench s3 log`: lists the commits of a memory.

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use inputs::border;
use s3::history::{self, CommitHistory, Event};
use s3_store::BucketOptions;
use serde::Serialize;

use super::remote::{Remote, time};
use crate::cmd::format::ScreenFormat;

/// List the commits of a memory, newest first: number, time, writer and changed paths.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 log --agent-id alice
  ctxbench s3 log --agent-id alice notes/plan.md      # the commits that changed this file
  ctxbench s3 log --agent-id alice --format json      # a JSON object a line

Exit codes: 0 listed, 1 no such memory or path, or the log cannot be read.")]
pub struct Log {
    /// A file or directory of the memory, relative to its root [default: everything].
    #[arg(default_value = "", hide_default_value = true)]
    path: String,
    /// How to print the commits; `json` prints one object a line.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    bucket: BucketOptions,
}

impl Log {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let log = remote.run(history::log(&remote.client, &self.path))?;
        if log.entries.is_empty() {
            if self.path.is_empty() {
                return Err(remote.no_memory());
            } else {
                bail!(
                    "no commit of agent {} changed {} (give a path relative to the root of the memory)",
                    remote.config.agent,
                    self.path
                )
            }
        }
        match self.format {
            ScreenFormat::Text => print_text(&log),
            ScreenFormat::Json => print_json(&log)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print_text(log: &CommitHistory) {
    for entry in &log.entries {
        let (number, at, writer) = (entry.number, time(entry.time), border::line(&entry.writer));
        println!("{number} {at} {writer}");
        // One line at a time: the paths of nested directories are quadratic together.
        for (path, event) in &entry.events {
            let path = border::path(log.path(*path));
            match event {
                Event::Added => println!("  added      {path}"),
                Event::Changed => println!("  changed    {path}"),
                Event::Attributes => println!("  attributes {path}"),
                Event::Renamed(from) => println!("  renamed    {} -> {path}", border::path(log.path(*from))),
                Event::Removed => println!("  removed    {path}"),
            }
        }
    }
}

/// Prints an object in a line for each commit (docs/FORMAT.md), change by change: their paths are quadratic together.
fn print_json(log: &CommitHistory) -> anyhow::Result<()> {
    for entry in &log.entries {
        let commit = Commit { number: entry.number, time: time(entry.time), writer: &entry.writer };
        let commit = serde_json::to_string(&commit)?;
        print!("{},\"changes\":[", commit.trim_end_matches('}'));
        for (at, (path, event)) in entry.events.iter().enumerate() {
            let (change, from) = match event {
                Event::Added => ("added", None),
                Event::Changed => ("changed", None),
                Event::Attributes => ("attributes", None),
                Event::Renamed(from) => ("renamed", Some(log.path(*from))),
                Event::Removed => ("removed", None),
            };
            let change = serde_json::to_string(&Change { change, path: log.path(*path), from })?;
            let comma = if at > 0 { "," } else { "" };
            print!("{comma}{change}");
        }
        println!("]}}");
    }
    Ok(())
}

/// The head of a commit; its changes follow.
#[derive(Serialize)]
struct Commit<'a> {
    number: u64,
    time: String,
    writer: &'a str,
}

#[derive(Serialize)]
struct Change {
    change: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}
