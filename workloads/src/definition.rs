//! Workload files: a named reason to measure, with an essay of what it stands for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tokens::Conversation;

use crate::compile::{compile, sha256};
use crate::context::{context, context_names};
use crate::conversation::{of_script, of_trace};
use crate::generate::{asking, clients, finding, hosts, micro, offload, syncing, vsm_cycle};
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
    handoff: Option<hosts::Handoff>,
    two_writers: Option<hosts::TwoWriters>,
    syncing: Option<syncing::Syncing>,
    clients: Option<clients::Clients>,
    finding: Option<finding::Finding>,
    trace: Option<TraceFile>,
    shortened: Option<Shortened>,
}

/// The tables of which a workload has one.
const TABLES: &str = "`[micro]`, `[asking]`, `[vsm_cycle]`, `[offload_comparison]`, `[handoff]`, `[two_writers]`, `[syncing]`, `[clients]`, `[finding]`, `[trace]`";

impl Definition {
    /// How many tables it has that say what is done.
    fn tables(&self) -> usize {
        [
            self.micro.is_some(),
            self.asking.is_some(),
            self.vsm_cycle.is_some(),
            self.offload_comparison.is_some(),
            self.handoff.is_some(),
            self.two_writers.is_some(),
            self.syncing.is_some(),
            self.clients.is_some(),
            self.finding.is_some(),
            self.trace.is_some(),
        ]
        .into_iter()
        .filter(|is_there| *is_there)
        .count()
    }

    /// Whether it is operations alone, which nobody's session would make.
    fn is_no_session(&self) -> bool {
        self.micro.is_some()
            || self.asking.is_some()
            || self.handoff.is_some()
            || self.two_writers.is_some()
            || self.syncing.is_some()
            || self.clients.is_some()
            || self.finding.is_some()
    }

    /// The script of a workload that is no session.
    fn generated(&self) -> Result<Script, String> {
        match self {
            Self {
                micro: Some(micro), ..
            } => micro.script(),
            Self {
                asking: Some(asking),
                ..
            } => asking.script(),
            Self {
                handoff: Some(handoff),
                ..
            } => handoff.script(),
            Self {
                two_writers: Some(writers),
                ..
            } => writers.script(),
            Self {
                syncing: Some(syncing),
                ..
            } => syncing.script(),
            Self {
                clients: Some(clients),
                ..
            } => clients.script(),
            Self {
                finding: Some(finding),
                ..
            } => finding.script(),
            _ => Err(format!("needs exactly one of the tables {TABLES}")),
        }
    }
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
            None if definition.is_no_session() => Vec::new(),
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
        if definition.tables() != 1 {
            let message = format!("needs exactly one of the tables {TABLES}");
            return Err(InputError::whole(file, message));
        }
        let mut script = if definition.is_no_session() {
            session = SessionSource::None;
            definition
                .generated()
                .map_err(|message| InputError::whole(file, message))?
        } else if let Some(cycle) = &definition.vsm_cycle {
            cycle.script()
        } else if let Some(comparison) = &definition.offload_comparison {
            comparison
                .check()
                .map_err(|message| InputError::whole(file, message))?;
            session = SessionSource::Stated {
                conversation: comparison.conversation(),
                published: comparison.published(),
            };
            comparison.script()
        } else if let Some(trace) = &definition.trace {
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
            compile(&trace_file, &parsed)?
        } else {
            Script::default()
        };
        if script.needs_second_host() && definition.states != [CacheState::Hot] {
            let message = "field `states`: what two hosts do is measured `hot` only: nothing is said of the second one's caches";
            return Err(InputError::whole(file, message));
        }
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
            fits_fixed_tree: definition
                .micro
                .is_some_and(|micro| micro.fits_fixed_tree()),
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
