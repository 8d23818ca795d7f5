//! `ctxbench check-store`: is everything in a store whole?

use std::path::PathBuf;
use std::process::ExitCode;

use backends::sqlite::check;
use clap::Args;

/// Check the database of a `sqlite` file system, as fsck checks a disk. Nothing is changed.
///
/// A mounted database can be checked too: what is seen is one moment of it.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 whole, 1 not, or it cannot be read.")]
pub struct CheckStore {
    /// The database file.
    db: PathBuf,
}

impl CheckStore {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let checked = check(&self.db)?;
        for problem in &checked.problems {
            println!("{problem}");
        }
        println!(
            "{}: {} inodes, {} names, {} pieces of content, {} without a name; {}",
            self.db.display(),
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
        Ok(ExitCode::from(u8::from(!checked.problems.is_empty())))
    }
}
