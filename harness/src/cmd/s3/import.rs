//! `ctxbench s3 import`: commits what other tools wrote into the readable mirror.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use s3::mirror::{LATE, import};
use s3_store::{BucketOptions, Mirror};

use super::remote::Remote;

/// Commit changes that other S3 tools made in the readable mirror of a memory.
///
/// New and changed objects become files. A file that also changed in the memory is merged.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  aws s3 cp plan.md s3://ctxbench/agents/alice/plan.md && ctxbench s3 import --agent-id alice
  ctxbench s3 import --agent-id alice --remove        # also remove files whose objects are gone

Exit codes: 0 done, 1 the memory is encrypted, or the bucket cannot be used.")]
pub struct Import {
    /// Remove files whose objects are missing. Use it only if mounts have published the mirror since the memory was created.
    #[arg(long)]
    remove: bool,
    /// Which files the mirror should hold; --remove compares with these.
    #[arg(long, value_enum, default_value_t = Mirror::Markdown)]
    mirror: Mirror,
    #[command(flatten)]
    bucket: BucketOptions,
}

impl Import {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        if remote.config.seal.is_some() {
            anyhow::bail!("an encrypted memory has no mirror (copy the files into a mount)");
        }
        let (mirror, mode, writer) = (remote.mirror(), self.mirror.mode(), &remote.config.writer);
        let remove = self.remove.then_some(LATE);
        let done = remote.run(import(&remote.client, &mirror, mode, remove, writer))?;
        let mut text = String::new();
        for (what, paths) in
            [("added  ", &done.added), ("changed", &done.changed), ("removed", &done.removed), ("note   ", &done.notes)]
        {
            for path in paths {
                writeln!(text, "{what} {path}")?;
            }
        }
        match done.commit {
            Some(commit) => writeln!(text, "commit {commit}")?,
            None => writeln!(text, "nothing to import: no other tool has changed the mirror")?,
        }
        print!("{text}");
        Ok(ExitCode::SUCCESS)
    }
}
