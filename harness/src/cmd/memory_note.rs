//! `ctxbench remember` and `ctxbench recall`: the memory tools of [`super::mcp`] for scripts, over a mounted memory.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::format::ScreenFormat;
use mcp::{REMEMBERED, call_memory};

/// Store a note in a mounted agent-memory.
///
/// If the memory is mounted with --agent-id, the note is private: it is written into memory/private/AGENT/, and no search
/// or recall of another agent finds it. With --namespace it is shared. A memory without an agent has no private notes:
/// the note is written into the directory notes/ of DIR.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ctxbench remember /tmp/avm 'RSI above 70: exit' --title rsi_rule --importance 0.9 --tags trading,nvda
  ctxbench remember /tmp/avm 'Market regime: risk-off' --namespace market    # for all agents
  ctxbench remember /tmp/avm 'earnings on Thursday' --ttl 7d")]
pub struct Remember {
    /// The mount, or a directory below the agent's private directory.
    dir: PathBuf,
    /// The text of the note.
    text: String,
    /// The file name, to which `.md` is added [default: the first words of the text].
    #[arg(long)]
    title: Option<String>,
    /// From 0 to 1 [default: 0.5].
    #[arg(long)]
    importance: Option<f64>,
    /// Tags, separated by commas; a search for `tags:TAG` finds the note. May be given several times.
    #[arg(long, alias = "tag", value_name = "WORDS", value_delimiter = ',')]
    tags: Vec<String>,
    /// How long search and recall find the note: seconds, or a number with s, m, h, d or w, such as 7d [default: no end].
    #[arg(long)]
    ttl: Option<String>,
    /// Share the note with other agents: write it into memory/shared/NAME/, which is made if it is missing.
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// How to print the path of the note. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
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
    /// How to print the notes. Standard output gets nothing else.
    #[arg(long, value_enum, default_value_t)]
    format: ScreenFormat,
}

/// What `remember` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct RememberedNote<'a> {
    /// The path of the note.
    path: &'a str,
}

/// What `recall` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(super) struct RecalledNotes<'a> {
    /// The notes, as the text form prints them.
    answer: &'a str,
}

impl Remember {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let mut given = Map::from_iter([("text".to_owned(), json!(self.text)), ("tags".to_owned(), json!(self.tags))]);
        let optional = [
            ("title", self.title.map(|title| json!(title))),
            ("importance", self.importance.map(|number| json!(number))),
            ("ttl", self.ttl.map(|ttl| json!(ttl))),
            ("namespace", self.namespace.map(|name| json!(name))),
        ];
        for (name, value) in optional {
            given.extend(value.map(|value| (name.to_owned(), value)));
        }
        let answer = call_memory(&self.dir, "remember", given)?;
        let path =
            answer.strip_prefix(REMEMBERED).ok_or_else(|| anyhow!("the memory answered without a path: {answer}"))?;
        self.format.print(|| format!("{answer}\n"), &RememberedNote { path })?;
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
        let answer = call_memory(&self.dir, "recall", given)?;
        self.format.print(|| format!("{answer}\n"), &RecalledNotes { answer: &answer })?;
        Ok(ExitCode::SUCCESS)
    }
}
