//! `ctxbench remember` and `ctxbench recall`: the memory tools of [`super::mcp`] for scripts, over a mounted memory.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use mcp::call_memory;

/// Store a note in a mounted agent-memory.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench remember /tmp/avm 'RSI above 70: exit' --importance 0.9 --tag trading
  ctxbench remember ~/memory/ctxbench 'the build needs protoc'    # the directory of one project")]
pub struct Remember {
    /// The mount, or a directory in it; the note is written below its `notes/`.
    dir: PathBuf,
    /// The text of the note.
    text: String,
    /// From 0 to 1 [default: 0.5].
    #[arg(long)]
    importance: Option<f64>,
    /// A word by which `tags:WORD` finds the note; may be given several times.
    #[arg(long, value_name = "WORD")]
    tag: Vec<String>,
}

/// Print the notes of a mounted agent-memory that are most useful for a question.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench recall /tmp/avm 'when to exit' --max-tokens 500
  ctxbench recall /tmp/avm NVDA --strategy recency    # the newest first")]
pub struct Recall {
    /// The mount, or a directory in it.
    dir: PathBuf,
    /// A question, or words.
    question: String,
    /// Maximum length of the answer in tokens, from 64 to 1,000,000.
    #[arg(long, value_name = "NUMBER", default_value_t = 2000)]
    max_tokens: u64,
    /// `balanced`, `recency` or `importance`.
    #[arg(long, default_value = "balanced")]
    strategy: String,
}

impl Remember {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut given = Map::from_iter([
            ("text".to_owned(), json!(self.text)),
            ("tags".to_owned(), json!(self.tag)),
        ]);
        if let Some(importance) = self.importance {
            given.insert("importance".to_owned(), json!(importance));
        }
        println!("{}", call_memory(&self.dir, "remember", given)?);
        Ok(ExitCode::SUCCESS)
    }
}

impl Recall {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let given: Map<String, Value> = Map::from_iter([
            ("question".to_owned(), json!(self.question)),
            ("max_tokens".to_owned(), json!(self.max_tokens)),
            ("strategy".to_owned(), json!(self.strategy)),
        ]);
        println!("{}", call_memory(&self.dir, "recall", given)?);
        Ok(ExitCode::SUCCESS)
    }
}
