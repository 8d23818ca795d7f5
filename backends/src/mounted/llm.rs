//! The names and launch options of `llm-*` mounts. The sources of answers are in `model_service`.

use std::io;

use super::Launch;
use crate::backend::Site;
use crate::model_service::Answers;

/// The longest answer in a run, in the model's tokens: limits the time that trailing text costs.
const ANSWER_TOKENS: u32 = 256;

/// What the mount requests from the language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LlmMode {
    /// A file's content, derived from the log of operations.
    History,
    /// The content of a file that no program has written.
    Generate,
}

/// An `llm-history` or `llm-generate` mount, and its source of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LlmMount {
    pub(crate) mode: LlmMode,
    pub(crate) answers: Answers,
}

impl LlmMode {
    pub(super) fn store(self) -> &'static str {
        match self {
            LlmMode::History => "llm-history",
            LlmMode::Generate => "llm-generate",
        }
    }
}

impl LlmMount {
    /// Parses a backend's name: the mode, then an optional source of answers, as in `llm-history-recorded`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [LlmMode::History, LlmMode::Generate]
            .into_iter()
            .find_map(|mode| {
                let answers = Answers::of_suffix(name.strip_prefix(mode.store())?)?;
                Some(Self { mode, answers })
            })
    }

    pub(super) fn name(self) -> String {
        format!("{}{}", self.mode.store(), self.answers.suffix())
    }

    pub(super) fn summary(self) -> String {
        let answers = self.answers.words();
        match self.mode {
            LlmMode::History => format!(
                "FUSE over a log of operations: each read asks a language model what the file holds now; {answers}, of at most {ANSWER_TOKENS} tokens"
            ),
            LlmMode::Generate => format!(
                "FUSE over memory, where a language model makes up what nobody has written; what a workload writes it keeps, and asks nothing; {answers}"
            ),
        }
    }

    pub(super) fn launch(self, site: &Site) -> io::Result<Launch> {
        let mut arguments = self.answers.arguments(&site.program, &site.dir)?;
        arguments.push(format!("--answer-tokens={ANSWER_TOKENS}").into());
        match self.mode {
            LlmMode::History => {
                let log = site.dir.join("log.db");
                arguments.extend(["--log-db".into(), log.into()]);
            }
            LlmMode::Generate => {
                let cache = site.dir.join("answers");
                arguments.extend(["--cache-folder".into(), cache.into()]);
            }
        }
        let mut environment = vec![("CTXBENCH_PROMPT", String::new())];
        if self.answers != Answers::Given {
            // Only the external server needs a key; no other may see one.
            environment.extend([
                ("CTXBENCH_API_KEY", String::new()),
                ("OPENAI_API_KEY", String::new()),
            ]);
        }
        Ok(Launch {
            arguments,
            environment,
        })
    }
}
