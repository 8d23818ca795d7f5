//! Workload files: a named reason to measure, with an essay of what it stands for.

use std::path::{Path, PathBuf};

use ledger::Conversation;
use serde::{Deserialize, Serialize};

use crate::compile::{compile, sha256};
use crate::context::{context, context_names};
use crate::conversation::{of_script, of_trace};
use crate::generate::{asking, micro, offload, vsm_cycle};
use crate::script::{FileOp, Script};
use crate::trace::Trace;
use inputs::{InputError, parse_toml};

/// What the caches hold when a workload starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheState {
    /// Everything has just been used.
    Hot,
    /// The kernel's caches are empty; a daemon keeps its own.
    Lukewarm,
    /// The daemon has been stopped, the kernel's caches emptied, the daemon started.
    Cold,
}

impl CacheState {
    /// The name in files and reports.
    pub fn name(self) -> &'static str {
        match self {
            CacheState::Hot => "hot",
            CacheState::Lukewarm => "lukewarm",
            CacheState::Cold => "cold",
        }
    }
}

/// A workload file as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    name: String,
    essay: String,
    states: Vec<CacheState>,
    contexts: Option<Vec<String>>,
    micro: Option<micro::Micro>,
    asking: Option<asking::Asking>,
    vsm_cycle: Option<vsm_cycle::VsmCycle>,
    offload_comparison: Option<offload::OffloadComparison>,
    trace: Option<TraceFile>,
    shortened: Option<Shortened>,
}

/// What is left of a generated workload that would take too long.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Shortened {
    /// Its first timed calls, so many.
    calls: usize,
    /// Of what a file or a write holds, so many bytes.
    bytes: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    /// Relative to the workload file; of a built-in one, to the `workloads` folder.
    file: String,
}

/// Where the conversation comes from that a workload stands for.
#[derive(Clone, Debug)]
pub enum SessionSource {
    /// The operations of a micro workload are nobody's session.
    None,
    /// A model that did what the script does would have it: see [`of_script`].
    Script,
    /// The workload states it.
    Stated {
        /// The conversation in which every result stays.
        conversation: Conversation,
        /// What somebody published of it, in their own units, by name.
        published: Vec<(String, Conversation)>,
    },
    /// It was recorded.
    Recorded {
        /// The model it was recorded on.
        model: String,
        /// The conversation, or why the trace does not tell it.
        conversation: Result<Conversation, String>,
    },
}

/// A workload, ready to be replayed.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name, as in `micro/read-1k`.
    pub name: String,
    /// What it stands for and what it does not show.
    pub essay: String,
    /// The cache states it makes sense in.
    pub states: Vec<CacheState>,
    /// What is replayed.
    pub script: Script,
    /// The session it stands for.
    pub session: SessionSource,
    /// The context policies that its session is accounted under, by name.
    pub contexts: Vec<String>,
    /// The file that defines it, if it is not built in; absolute.
    pub file: Option<PathBuf>,
    /// Whether its calls were recorded, not generated.
    pub is_recorded: bool,
    /// Whether it works on the fixed names and bytes of a backend that holds nothing.
    pub fits_fixed_tree: bool,
    /// Whether it asks questions, which only some backends answer.
    pub asks: bool,
    /// SHA-256 of the definition and of the trace it names: what was measured.
    pub sha256: String,
}

impl Workload {
    /// Reads a workload file; `file` names it in errors, `read` gives the place and the text of the trace
    /// file that it names.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(
        file: &Path,
        text: &str,
        read: impl FnOnce(&str) -> std::io::Result<(PathBuf, String)>,
    ) -> Result<Self, InputError> {
        let definition: Definition = parse_toml(file, text)?;
        if definition.essay.trim().len() < 80 {
            let message = "field `essay`: say in a few sentences what the workload stands for and what it does not show";
            return Err(InputError::whole(file, message));
        }
        if definition.states.is_empty() {
            let message = "field `states`: name at least one of `hot`, `lukewarm`, `cold`";
            return Err(InputError::whole(file, message));
        }
        let mut identity = text.to_owned();
        let contexts = match &definition.contexts {
            Some(names) => names.clone(),
            None if definition.micro.is_some() || definition.asking.is_some() => Vec::new(),
            None => context_names(),
        };
        for name in &contexts {
            context(name)
                .map_err(|error| InputError::whole(file, format!("field `contexts`: {error}")))?;
        }
        let mut session = SessionSource::Script;
        if definition.shortened.is_some() && definition.vsm_cycle.is_none() {
            let message = "field `shortened`: only `[vsm_cycle]` can be shortened: it neither reads nor writes at offsets";
            return Err(InputError::whole(file, message));
        }
        let (mut script, fits_fixed_tree) = match (
            &definition.micro,
            &definition.asking,
            &definition.vsm_cycle,
            &definition.offload_comparison,
            &definition.trace,
        ) {
            (None, Some(asking), None, None, None) => {
                session = SessionSource::None;
                let script = asking
                    .script()
                    .map_err(|message| InputError::whole(file, message))?;
                (script, false)
            }
            (Some(micro), None, None, None, None) => {
                session = SessionSource::None;
                let script = micro
                    .script()
                    .map_err(|message| InputError::whole(file, message))?;
                (script, micro.fits_fixed_tree())
            }
            (None, None, Some(cycle), None, None) => (cycle.script(), false),
            (None, None, None, Some(comparison), None) => {
                comparison
                    .check()
                    .map_err(|message| InputError::whole(file, message))?;
                session = SessionSource::Stated {
                    conversation: comparison.conversation(),
                    published: comparison.published(),
                };
                (comparison.script(), false)
            }
            (None, None, None, None, Some(trace)) => {
                let (trace_file, jsonl) = read(&trace.file).map_err(|error| {
                    InputError::whole(file, format!("field `trace.file`: {}: {error}", trace.file))
                })?;
                let parsed = Trace::parse(&trace_file, &jsonl)?;
                identity.push_str(&jsonl);
                let model = parsed.head.model.clone();
                session = SessionSource::Recorded {
                    conversation: of_trace(&parsed),
                    model,
                };
                (compile(&trace_file, &parsed)?, false)
            }
            _ => {
                let message = "needs exactly one of the tables `[micro]`, `[asking]`, `[vsm_cycle]`, `[offload_comparison]`, `[trace]`";
                return Err(InputError::whole(file, message));
            }
        };
        if let Some(Shortened { calls, bytes }) = definition.shortened {
            if calls == 0 || bytes == 0 {
                let message = "field `shortened`: `calls` and `bytes` must be at least 1";
                return Err(InputError::whole(file, message));
            }
            script.shorten(calls, bytes);
        }
        let mut ops = script.calls.iter().flat_map(|call| &call.ops);
        let asks = ops.any(|op| matches!(op, FileOp::Ask { .. }));
        Ok(Self {
            asks,
            name: definition.name,
            essay: definition.essay.trim().to_owned(),
            states: definition.states,
            script,
            session,
            contexts,
            file: None,
            is_recorded: definition.trace.is_some(),
            fits_fixed_tree,
            sha256: sha256(identity.as_bytes()),
        })
    }

    /// The session that the workload stands for, with every result where it came.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn conversation(&self) -> Result<Conversation, String> {
        match &self.session {
            SessionSource::None => Err(format!("{} is nobody's session", self.name)),
            SessionSource::Script => Ok(of_script(&self.script)),
            SessionSource::Stated { conversation, .. } => Ok(conversation.clone()),
            SessionSource::Recorded { conversation, .. } => conversation.clone(),
        }
    }

    /// The model that the session was recorded on, if it was.
    pub fn recorded_model(&self) -> Option<&str> {
        match &self.session {
            SessionSource::Recorded { model, .. } => Some(model),
            _ => None,
        }
    }
}
