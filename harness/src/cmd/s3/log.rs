//! `ctxbench s3 log`: lists the commits of a memory.

use std::io;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use inputs::border;
use s3::history::{self, CommitHistory, Event, LogEntry};
use s3_store::BucketOptions;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

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

/// Prints an object in a line for each commit, change by change: their paths are quadratic together.
fn print_json(log: &CommitHistory) -> anyhow::Result<()> {
    for entry in &log.entries {
        let changes = ChangeList { log, entry };
        let commit = PrintedCommit { number: entry.number, time: time(entry.time), writer: &entry.writer, changes };
        serde_json::to_writer(Output, &commit)?;
        println!("");
    }
    Ok(())
}

/// A line of `s3 log` for programs: a commit.
#[derive(Serialize, JsonSchema)]
pub(in crate::cmd) struct PrintedCommit<'a> {
    number: u64,
    /// The time of the commit by the writer's clock, as RFC 3339 writes it.
    time: String,
    writer: &'a str,
    #[schemars(with = "Vec<Change>")]
    changes: ChangeList<'a>,
}

/// The changes of a commit.
struct ChangeList<'a> {
    log: &'a CommitHistory,
    entry: &'a LogEntry,
}

impl Serialize for ChangeList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entry.events.iter().map(|(path, event)| {
            let (change, from) = match event {
                Event::Added => (ChangeWord::Added, None),
                Event::Changed => (ChangeWord::Changed, None),
                Event::Attributes => (ChangeWord::Attributes, None),
                Event::Renamed(from) => (ChangeWord::Renamed, Some(self.log.path(*from))),
                Event::Removed => (ChangeWord::Removed, None),
            };
            Change { change, path: self.log.path(*path), from }
        }))
    }
}

/// A change of a path.
#[derive(Serialize, JsonSchema)]
struct Change {
    change: ChangeWord,
    path: String,
    /// The old path of a renamed file.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// How a path changed.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum ChangeWord {
    Added,
    Changed,
    Attributes,
    Renamed,
    Removed,
}

/// Standard output, by this binary's `print!`. The writer of JSON gives it whole characters.
struct Output;

impl io::Write for Output {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        print!("{}", String::from_utf8_lossy(text));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
