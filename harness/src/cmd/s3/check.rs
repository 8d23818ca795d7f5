//! `ctxbench s3 check`: verifies everything that can be reached in the log of a memory.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use reports::render::number_of;
use s3::check::check;
use s3::config::MirrorMode;
use s3_store::{BucketOptions, Mirror};
use schemars::JsonSchema;
use serde::Serialize;

use super::remote::Remote;
use crate::cmd::format::ScreenFormat;

/// Check the log of a memory: read every reachable object, and compare it with its digest. Nothing is written.
///
/// Differences between the readable mirror and the newest commit are notes, not damage.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 check --agent-id alice
  ctxbench s3 check --endpoint http://127.0.0.1:9000 --agent-id alice --mirror off

Exit codes: 0 undamaged, 1 damaged, or it cannot be read.")]
pub struct Check {
    /// Which files the mirror should hold.
    #[arg(long, value_enum, default_value_t = Mirror::Markdown)]
    mirror: Mirror,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    bucket: BucketOptions,
}

/// What `s3 check` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(in crate::cmd) struct PrintedLogCheck<'a> {
    endpoint: &'a str,
    bucket: &'a str,
    agent: &'a str,
    /// Damage of the log, one line for each.
    problems: &'a [String],
    /// Differences between the log and its mirror of readable files.
    notes: &'a [String],
    commits: u64,
    checkpoints: u64,
    nodes: u64,
    chunks: u64,
    bytes: u64,
}

impl Check {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let (mode, mirror) = (self.mirror.mode(), remote.mirror());
        let has_mirror = mode != MirrorMode::Off && remote.config.seal.is_none();
        let mirror = has_mirror.then_some((&mirror, mode));
        let checked = remote.run(check(&remote.client, mirror))?;
        let mut text = String::new();
        for problem in &checked.problems {
            writeln!(text, "DAMAGED {problem}")?;
        }
        for note in &checked.notes {
            writeln!(text, "note    {note}")?;
        }
        let config = &remote.config;
        let (endpoint, bucket, agent) = (&config.endpoint, &config.bucket, &config.agent);
        let (commits, checkpoints, nodes) = (checked.commits, checked.checkpoints, checked.nodes);
        let (chunks, bytes) = (checked.chunks, checked.bytes);
        let verdict = match checked.problems.len() {
            0 => "whole".to_owned(),
            problems => format!(
                "{} (restore missing objects from a copy of the bucket, or restore files with `ctxbench s3 restore`)",
                number_of(problems, "problem")
            ),
        };
        writeln!(
            text,
            "{endpoint} bucket {bucket}, agent {agent}: {}, {}, {} for files and directories, {} of {}: {verdict}",
            number_of(commits as usize, "commit"),
            number_of(checkpoints as usize, "checkpoint"),
            number_of(nodes as usize, "node"),
            number_of(chunks as usize, "chunk"),
            number_of(bytes as usize, "byte"),
        )?;
        let document = PrintedLogCheck {
            endpoint,
            bucket,
            agent,
            problems: &checked.problems,
            notes: &checked.notes,
            commits,
            checkpoints,
            nodes,
            chunks,
            bytes,
        };
        self.format.print(|| text, &document)?;
        Ok(ExitCode::from(u8::from(!checked.problems.is_empty())))
    }
}
