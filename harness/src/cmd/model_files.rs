//! `ctxbench model-files`: how slow, how often wrong, and how dear files are that a language model makes up.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::llm::ModelArgs;
use crate::interrupt::Interrupt;
use crate::model_files::{Plan, brief, measure, write};
use crate::scratch::ScratchDir;

/// Measure files that a language model makes up. A few minutes with the local model.
///
/// Fidelity of `llm-history` by the length of the history, against a plain interpreter of the same log; model calls
/// per stat, listing, cat, grep, editor save and git status, over real mounts; consistency of `llm-generate`; where the
/// time goes; whether the model repeats itself; a short session against a plain directory; and what the counted tokens
/// would cost at two published prices. Live, recorded and simulated answers are labelled and never pooled.
#[derive(Debug, Args)]
pub struct ModelFiles {
    #[command(flatten)]
    model: ModelArgs,
    /// Only what `ctxbench run` measures after the default suite: one minute, answers of 128 tokens at most.
    #[arg(long, conflicts_with_all = ["lengths", "histories", "reads", "seed"])]
    brief: bool,
    /// Lengths of histories, in operations.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100], value_parser = clap::value_parser!(u32).range(1..=10_000))]
    lengths: Vec<u32>,
    /// Histories of each length.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    histories: u32,
    /// Files that are asked for in each history.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    reads: u32,
    /// The seed of the histories.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the results go [default: results/model-files-TIME].
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Where mounts are made [default: as `run`].
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
}

impl ModelFiles {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let interrupt = Interrupt::catch()?;
        let out = self.out.clone().unwrap_or_else(|| {
            let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
            PathBuf::from(format!("results/model-files-{now}"))
        });
        let scratch = ScratchDir::make(self.scratch.as_deref())?;
        let mut model = self.model;
        let plan = if self.brief {
            model.answer_tokens = brief::ANSWER_TOKENS;
            brief::plan()
        } else {
            Plan {
                lengths: self.lengths,
                histories: self.histories,
                reads: self.reads,
                seed: self.seed,
                is_brief: false,
            }
        };
        let results = measure(&model, &plan, scratch.path(), &interrupt)?;
        // Everything at the end: an interrupted measurement leaves nothing that looks like one.
        std::fs::create_dir_all(&out).with_context(|| format!("making {}", out.display()))?;
        print!("{}", write(&results, &out)?);
        println!("\nwritten to {}", out.display());
        Ok(ExitCode::SUCCESS)
    }
}
