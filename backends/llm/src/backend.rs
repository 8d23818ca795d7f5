//! The `llm-*` backends. The sources of answers are in [`arms::services::model`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arms::backend::{Description, Launch, MODEL, Need, Unavailable, Versions, WorkspaceConfig};
use arms::mounted::{MountedStore, description};
use arms::promise::Promises;
use arms::services::Services;
use arms::services::model::Answers;

/// The name of the store that keeps a log, in `ctxbench mount`.
pub const HISTORY: &str = "llm-history";

/// The name of the store that generates files, in `ctxbench mount`.
pub const GENERATE: &str = "llm-generate";

/// The longest answer in a run, in the model's tokens: limits the time that trailing text costs.
const ANSWER_TOKENS: u32 = 256;

/// The kind of answer that the mount requests from the language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LlmMode {
    /// A file's content, derived from the log of operations.
    History,
    /// The content of a file that no program has written.
    Generate,
}

/// An `llm-history` or `llm-generate` mount, and its source of answers.
pub struct LlmMount {
    /// The kind of answer.
    pub mode: LlmMode,
    /// The source of answers.
    pub answers: Answers,
    /// The servers of this process.
    pub services: Arc<Services>,
}

impl LlmMode {
    fn store(self) -> &'static str {
        match self {
            LlmMode::History => HISTORY,
            LlmMode::Generate => GENERATE,
        }
    }

    /// Parses a backend's name: the mode, then an optional source of answers, as in `llm-history-recorded`.
    pub fn of_name(name: &str) -> Option<(Self, Answers)> {
        let mut modes = [LlmMode::History, LlmMode::Generate].into_iter();
        modes.find_map(|mode| Some((mode, Answers::of_suffix(name.strip_prefix(mode.store())?)?)))
    }
}

impl MountedStore for LlmMount {
    fn describe(&self) -> Description {
        let answers = self.answers.words();
        let (summary, durability) = match self.mode {
            LlmMode::History => (
                format!(
                    "FUSE over a log of operations: each read asks a language model for the current content of the file; {answers}, of at most {ANSWER_TOKENS} tokens"
                ),
                "the log survives as with sqlite; content is not stored, and the model is asked again",
            ),
            LlmMode::Generate => (
                format!(
                    "FUSE over memory: a language model generates the files that no program has written; written files are stored without asking the model; {answers}"
                ),
                "a killed daemon loses the changes since the last fsync, unmount or generated file",
            ),
        };
        let name = format!("{}{}", self.mode.store(), self.answers.suffix());
        let mut description = description(&name, summary, durability);
        description.capabilities.guesses_content = self.mode == LlmMode::History;
        description.needs.push(Need { name: MODEL.to_owned(), why: self.answers.need().to_owned() });
        description
    }

    fn store(&self) -> String {
        self.mode.store().to_owned()
    }

    fn promises(&self) -> Promises {
        match self.mode {
            // The log is an SQLite file, but the model derives a file's content from it again at each read.
            LlmMode::History => Promises::NONE,
            LlmMode::Generate => Promises::POSIX,
        }
    }

    fn unsupported_reason(&self, workload: &str, sha256: &str) -> Option<String> {
        match self.mode {
            LlmMode::History => self.answers.unsupported_reason(workload, sha256),
            LlmMode::Generate => None,
        }
    }

    fn work(&self, root: &Path) -> PathBuf {
        match self.mode {
            LlmMode::History => root.to_owned(),
            // The root also lists `.llmfs`.
            LlmMode::Generate => root.join("workspace"),
        }
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        self.answers.versions(&self.services.model)
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let local = &self.services.model;
        let mut arguments = self.answers.arguments(local, &config.program, &config.dir)?;
        arguments.push(format!("--answer-tokens={ANSWER_TOKENS}").into());
        match self.mode {
            LlmMode::History => {
                let log = config.dir.join("log.db");
                arguments.extend(["--log-db".into(), log.into()]);
            }
            LlmMode::Generate => {
                let cache = config.dir.join("answers");
                arguments.extend(["--cache-folder".into(), cache.into()]);
            }
        }
        let mut environment = vec![("CTXBENCH_PROMPT", String::new())];
        if self.answers != Answers::Given {
            // Only the external server needs a key; no other may see one.
            environment.extend([("CTXBENCH_API_KEY", String::new()), ("OPENAI_API_KEY", String::new())]);
        }
        Ok(Launch { arguments, environment })
    }
}
