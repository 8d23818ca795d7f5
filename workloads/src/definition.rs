//! Workload files: definitions of generated and recorded workloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokens::Conversation;

use crate::compile::compile;
use crate::context::{context, context_names_of};
use crate::conversation::{of_script, of_trace};
use crate::generate::finding::SearchWorkload;
use crate::generate::inbox::Inbox;
use crate::generate::memory_session::MemorySession;
use crate::generate::{asking, hosts, micro, offload, program, syncing, vsm_cycle};
use crate::script::clients::Clients;
use crate::script::{FileOp, Script};
use crate::trace::Trace;
use inputs::{InputError, parse_toml, sha256};

inputs::named! {
    /// The state of the caches when a workload starts.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum CacheState {
        /// Everything has just been used once.
        Hot = "hot",
        /// The kernel's caches are empty; a daemon keeps its cache.
        Lukewarm = "lukewarm",
        /// The daemon was stopped, the kernel's caches were dropped, and the daemon was started.
        Cold = "cold",
    }
}

/// A workload file as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Definition {
    #[serde(deserialize_with = "inputs::names::name")]
    name: String,
    essay: String,
    states: Vec<CacheState>,
    contexts: Option<Vec<String>>,
    micro: Option<micro::Micro>,
    asking: Option<asking::QuestionWorkload>,
    vsm_cycle: Option<vsm_cycle::VsmCycle>,
    offload_comparison: Option<offload::OffloadComparison>,
    memory_session: Option<MemorySession>,
    handoff: Option<hosts::Handoff>,
    two_writers: Option<hosts::TwoWriters>,
    syncing: Option<syncing::DirtyFiles>,
    clients: Option<Clients>,
    finding: Option<SearchWorkload>,
    program: Option<program::Program>,
    inbox: Option<Inbox>,
    trace: Option<TraceFile>,
    shortened: Option<WorkloadLimits>,
}

/// The possible tables of a workload, which has exactly one of them.
const TABLES: &str = "`[micro]`, `[asking]`, `[vsm_cycle]`, `[offload_comparison]`, `[memory_session]`, `[handoff]`, `[two_writers]`, `[syncing]`, `[clients]`, `[finding]`, `[program]`, `[inbox]`, `[trace]`";

impl Definition {
    /// The number of these tables in the definition.
    fn tables(&self) -> usize {
        [
            self.micro.is_some(),
            self.asking.is_some(),
            self.vsm_cycle.is_some(),
            self.offload_comparison.is_some(),
            self.memory_session.is_some(),
            self.handoff.is_some(),
            self.two_writers.is_some(),
            self.syncing.is_some(),
            self.clients.is_some(),
            self.finding.is_some(),
            self.program.is_some(),
            self.inbox.is_some(),
            self.trace.is_some(),
        ]
        .into_iter()
        .filter(|is_there| *is_there)
        .count()
    }

    /// Whether it consists of operations that an agent session makes.
    fn is_session(&self) -> bool {
        self.vsm_cycle.is_some()
            || self.offload_comparison.is_some()
            || self.memory_session.is_some()
            || self.trace.is_some()
    }

    fn check(&self) -> Result<(), String> {
        let wrong = if self.essay.trim().len() < 80 {
            "essay`: too short; say in a few sentences what the workload represents and what it does not show"
        } else if self.states.is_empty() {
            "states`: name at least one of `hot`, `lukewarm`, `cold`"
        } else if self.shortened.is_some() && self.vsm_cycle.is_none() {
            "shortened`: only `[vsm_cycle]` can be shortened: it neither reads nor writes at offsets"
        } else if self.shortened.is_some_and(|limits| limits.calls == 0 || limits.bytes == 0) {
            "shortened`: `calls` and `bytes` must be at least 1"
        } else {
            return match self.tables() {
                1 => Ok(()),
                _ => Err(format!("needs exactly one of the tables {TABLES}")),
            };
        };
        Err(format!("field `{wrong}"))
    }

    /// The context policies of its session: all that fit it, unless it names some.
    fn contexts(&self) -> Result<Vec<String>, String> {
        let has_notes = self.memory_session.is_some();
        let names = match &self.contexts {
            Some(names) => names.clone(),
            None if !self.is_session() => Vec::new(),
            None => context_names_of(has_notes),
        };
        for name in &names {
            let policy = context(name).map_err(|error| format!("field `contexts`: {error}"))?;
            if policy.needs_notes() && !has_notes {
                return Err(format!("field `contexts`: {name} needs notes, which only a `[memory_session]` has"));
            }
        }
        Ok(names)
    }

    /// The script of a workload that is not a session; `corpus` is the text of the corpus that it names.
    fn generated(&self, corpus: Option<&str>) -> Result<Script, String> {
        let scripts = [
            self.micro.as_ref().map(micro::Micro::script),
            self.asking.as_ref().map(asking::QuestionWorkload::script),
            self.handoff.as_ref().map(hosts::Handoff::script),
            self.two_writers.as_ref().map(hosts::TwoWriters::script),
            self.syncing.as_ref().map(syncing::DirtyFiles::script),
            self.clients.as_ref().map(Clients::script),
            self.finding.as_ref().map(|finding| finding.script(corpus)),
            self.program.as_ref().map(program::Program::script),
            self.inbox.as_ref().map(Inbox::script),
        ];
        let script = scripts.into_iter().flatten().next();
        script.unwrap_or_else(|| Ok(Script::default()))
    }
}

/// The limits of a shortened workload.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadLimits {
    /// The number of leading calls to keep.
    calls: usize,
    /// The maximum number of bytes of a file or a write.
    bytes: usize,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    /// Relative to the workload file; for a built-in workload, to the `workloads` folder.
    file: String,
}

/// The source of the conversation that a workload represents.
#[derive(Clone, Debug)]
pub enum SessionSource {
    /// None: a micro workload is not a session.
    None,
    /// Derived from the script by [`of_script`].
    Script,
    /// Stated by the workload.
    Stated {
        /// The conversation in which every result stays.
        conversation: Conversation,
        /// Published accounts of it in their own units, by name.
        published: Vec<(String, Conversation)>,
    },
    /// Recorded.
    Recorded {
        /// The model it was recorded on.
        model: String,
        /// The conversation, or why the trace does not contain it.
        conversation: Result<Conversation, String>,
    },
}

/// A workload, ready for replay.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name, as in `micro/read-1k`.
    pub name: String,
    /// The real use that it represents, and what it does not show.
    pub essay: String,
    /// The cache states in which it can be measured.
    pub states: Vec<CacheState>,
    /// The script to replay.
    pub script: Arc<Script>,
    /// The session it represents.
    pub session: SessionSource,
    /// The names of the context policies for its session.
    pub contexts: Vec<String>,
    /// The file that defines it, if it is not built in; absolute.
    pub file: Option<PathBuf>,
    /// Whether its calls are recorded rather than generated.
    pub is_recorded: bool,
    /// The Debian package of each program that it runs.
    pub needs: BTreeMap<String, String>,
    /// The program or corpus that it needs and that is not installed, and how to install it. Its script is then empty.
    pub missing: Option<String>,
    /// Whether it runs on a backend with fixed names and bytes that stores no data.
    pub fits_fixed_tree: bool,
    /// Whether it asks questions that only some backends answer.
    pub asks: bool,
    /// SHA-256 of the definition and its trace, as the identity of the workload.
    pub sha256: String,
}

impl Workload {
    /// Parses a workload file; `file` is only for error messages.
    /// `read` returns the path and text of the trace file that it names.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(
        file: &Path,
        text: &str,
        read: impl FnOnce(&str) -> std::io::Result<(PathBuf, String)>,
    ) -> Result<Self, InputError> {
        let definition: Definition = parse_toml(file, text)?;
        let whole = |message: String| InputError::whole(file, message);
        definition.check().map_err(whole)?;
        let contexts = definition.contexts().map_err(whole)?;
        let mut identity = text.to_owned();
        let mut session = SessionSource::Script;
        let mut missing = None;
        let mut script = if let Some(cycle) = &definition.vsm_cycle {
            cycle.script()
        } else if let Some(comparison) = &definition.offload_comparison {
            comparison.check().map_err(whole)?;
            session =
                SessionSource::Stated { conversation: comparison.conversation(), published: comparison.published() };
            comparison.script()
        } else if let Some(memory) = &definition.memory_session {
            let (script, conversation) = memory.session().map_err(whole)?;
            session = SessionSource::Stated { conversation, published: Vec::new() };
            script
        } else if let Some(trace) = &definition.trace {
            let (trace_file, jsonl) =
                read(&trace.file).map_err(|error| whole(format!("field `trace.file`: {}: {error}", trace.file)))?;
            let parsed = Trace::parse(&trace_file, &jsonl)?;
            identity.push_str(&jsonl);
            let model = parsed.head.model.clone();
            session = SessionSource::Recorded { conversation: of_trace(&parsed), model };
            compile(&trace_file, &parsed)?
        } else {
            session = SessionSource::None;
            let finding = definition.finding.as_ref();
            match finding.map_or(Ok(None), SearchWorkload::corpus) {
                Ok(corpus) => {
                    identity.push_str(corpus.as_deref().unwrap_or_default());
                    let generated = definition.generated(corpus.as_deref());
                    generated.map_err(whole)?
                }
                Err(reason) => {
                    missing = Some(reason);
                    Script::default()
                }
            }
        };
        if script.needs_second_host() && definition.states != [CacheState::Hot] {
            let message = "field `states`: workloads with several hosts are `hot` only, because the cache state of the other hosts is not controlled";
            return Err(whole(message.to_owned()));
        }
        if let Some(WorkloadLimits { calls, bytes }) = definition.shortened {
            script.shorten(calls, bytes);
        }
        let mut ops = script.calls.iter().flat_map(|call| &call.ops);
        let asks = ops.any(|op| matches!(op, FileOp::Ask { .. }));
        Ok(Self {
            asks,
            missing,
            needs: definition.program.map_or_else(BTreeMap::new, |program| program.needs),
            name: definition.name,
            essay: definition.essay.trim().to_owned(),
            states: definition.states,
            script: Arc::new(script),
            session,
            contexts,
            file: None,
            is_recorded: definition.trace.is_some(),
            fits_fixed_tree: definition.micro.is_some_and(|micro| micro.fits_fixed_tree()),
            sha256: sha256(identity),
        })
    }

    /// The session that the workload represents, with every result kept in place.
    ///
    /// # Errors
    /// The reason if the conversation is unknown.
    pub fn conversation(&self) -> Result<Conversation, String> {
        match &self.session {
            SessionSource::None => Err("not a session: it has no conversation\n  fix: name a workload that is a session, such as agent/offload-comparison".to_owned()),
            SessionSource::Script => Ok(of_script(&self.script)),
            SessionSource::Stated { conversation, .. } => Ok(conversation.clone()),
            SessionSource::Recorded { conversation, .. } => conversation.clone(),
        }
    }

    /// The model of the recorded session; `None` if it was not recorded.
    pub fn recorded_model(&self) -> Option<&str> {
        match &self.session {
            SessionSource::Recorded { model, .. } => Some(model),
            _ => None,
        }
    }
}
