//! `ctxbench s3 check`: verifies every object of an agent's memory in a bucket.

use std::process::ExitCode;

use backends::s3;
use clap::Args;

use super::Bucket;

/// Read every object of one agent's memory, and hold it against what it says of itself. Nothing is changed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench s3 check --agent-id alice
  ctxbench s3 check --endpoint http://127.0.0.1:9000 --agent-id alice

Exit codes: 0 whole, 1 not, or it cannot be read.")]
pub struct Check {
    #[command(flatten)]
    bucket: Bucket,
}

impl Check {
    pub fn run(self) -> anyhow::Result<ExitCode> {
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
        Ok(ExitCode::from(u8::from(!checked.problems.is_empty())))
    }
}
