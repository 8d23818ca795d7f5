//! `ctxbench s3 gc`: removes what only old states of a memory need.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use jiff::{Span, SpanRelativeTo};
use s3::checkout::now;
use s3::gc::{GcOptions, collect};
use s3::session::GRACE;
use s3_store::BucketOptions;
use schemars::JsonSchema;
use serde::Serialize;

use super::remote::Remote;
use crate::cmd::format::{ScreenFormat, print_json};

/// Delete objects that no state younger than a given age needs. No other command deletes from a log.
///
/// The first run only records the oldest commit that stays readable. A run at least one day later deletes the objects that
/// older commits alone need, when no request in flight depends on them. Run this command daily or weekly, with an access key that may
/// delete.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 gc --agent-id alice --older-than 30d --dry-run
  ctxbench s3 gc --agent-id alice --older-than 30d

Exit codes: 0 done, 1 the log is damaged, or the bucket cannot be used.")]
pub struct Gc {
    /// The age up to which history stays readable, such as 30d or 12h.
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Duration,
    /// Print what would be deleted, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// How to print the result. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
    #[command(flatten)]
    bucket: BucketOptions,
}

/// Parses an age such as `30d`.
fn age(text: &str) -> Result<Duration, String> {
    let wrong = |_| "give an age such as 30d or 12h".to_owned();
    let span: Span = text.parse().map_err(wrong)?;
    let age = span.to_duration(SpanRelativeTo::days_are_24_hours()).map_err(wrong)?;
    age.try_into().map_err(wrong)
}

/// What `s3 gc` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(in crate::cmd) struct Collection {
    is_dry_run: bool,
    /// The commit where history begins.
    released_before: Option<u64>,
    /// The commit before which objects are deleted.
    deleted_before: Option<u64>,
    objects: usize,
    bytes: u64,
    kept_commits: Vec<u64>,
}

impl Gc {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let remote = Remote::new(self.bucket.config()?)?;
        let options = GcOptions {
            older_than: self.older_than,
            grace: Duration::from_nanos(GRACE.unsigned_abs()),
            dry_run: self.dry_run,
        };
        let done = remote.run(collect(&remote.client, &remote.sweeper(), options, now()))?;
        if self.format == ScreenFormat::Json {
            print_json(&Collection {
                is_dry_run: self.dry_run,
                released_before: done.floor,
                deleted_before: done.swept,
                objects: done.deleted.len(),
                bytes: done.bytes,
                kept_commits: done.stray,
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        let would = if self.dry_run { "would be " } else { "" };
        match done.floor {
            Some(floor) => println!("history before commit {floor} {would}released for deletion"),
            None => println!("no more history is released: no commit is older than that"),
        }
        let (objects, bytes) = (done.deleted.len(), done.bytes);
        match done.swept {
            Some(swept) => println!(
                "{objects} objects of {bytes} bytes {would}deleted: only states before commit {swept} needed them"
            ),
            None => {
                let hours = options.grace.as_secs() / 3600;
                println!("nothing {would}deleted: run this again in {hours} hours");
            }
        }
        for number in done.stray {
            println!("commit {number} is kept: it was made after the history before it was released");
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_names_the_grace_time() {
        let help = Gc::augment_args(clap::Command::new("gc"));
        let help = help.get_long_about().map(ToString::to_string);
        assert!(help.is_some_and(|help| help.contains("A run at least one day later deletes")));
        assert_eq!(GRACE, 24 * 3600 * 1_000_000_000, "a day");
    }

    #[test]
    fn an_age_has_a_unit() {
        assert_eq!(age("30d"), Ok(Duration::from_secs(30 * 86400)));
        assert_eq!(age("0s"), Ok(Duration::ZERO));
        for wrong in ["", "30", "-1d", "1mo"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
