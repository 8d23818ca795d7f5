//! `ctxbench check-store`: is everything in a store whole?

use std::path::PathBuf;
use std::process::ExitCode;

use backends::s3;
use backends::sqlite::check;
use clap::Args;

use super::s3::Bucket;

/// Check what is in a store, as fsck checks a disk. Nothing is changed.
///
/// A database that is mounted can be checked too: what is seen is one moment of it. Of a bucket, every object of
/// one agent is read.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench check-store notes.db
  ctxbench check-store s3 --endpoint http://127.0.0.1:9000 --agent-id alice

Exit codes: 0 whole, 1 not, or it cannot be read.")]
pub struct CheckStore {
    /// The database file of a `sqlite` file system, or `s3`.
    store: PathBuf,
    #[command(flatten)]
    bucket: Bucket,
}

impl CheckStore {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let is_whole = if self.store.as_os_str() == "s3" {
            self.check_bucket()?
        } else {
            self.check_database()?
        };
        Ok(ExitCode::from(u8::from(!is_whole)))
    }

    fn check_database(&self) -> anyhow::Result<bool> {
        let checked = check(&self.store)?;
        for problem in &checked.problems {
            println!("{problem}");
        }
        println!(
            "{}: {} inodes, {} names, {} pieces of content, {} without a name; {}",
            self.store.display(),
            checked.inodes,
            checked.names,
            checked.chunks,
            checked.orphans,
            if checked.problems.is_empty() {
                "whole".to_owned()
            } else {
                "NOT whole: copy the file, and export what can be read with sqlite3".to_owned()
            }
        );
        Ok(checked.problems.is_empty())
    }

    fn check_bucket(&self) -> anyhow::Result<bool> {
        let config = self.bucket.config(None)?;
        let checked = s3::check(&config)?;
        for problem in &checked.problems {
            println!("{problem}");
        }
        for key in &checked.foreign {
            println!("{key} was put there by another tool: it is readable as it is");
        }
        println!(
            "{} bucket {}, agent {}: {} objects; {}",
            config.endpoint,
            config.bucket,
            config.agent,
            checked.objects,
            if checked.problems.is_empty() {
                "whole".to_owned()
            } else {
                format!("{} problems", checked.problems.len())
            }
        );
        Ok(checked.problems.is_empty())
    }
}
