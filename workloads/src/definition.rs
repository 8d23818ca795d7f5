//! Workload files: a named reason to measure, with an essay of what it stands for.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::compile::{compile, sha256};
use crate::generate::{micro, vsm_cycle};
use crate::script::Script;
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
    micro: Option<micro::Micro>,
    vsm_cycle: Option<vsm_cycle::VsmCycle>,
    trace: Option<TraceFile>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TraceFile {
    /// Relative to the workload file; of a built-in one, to the `workloads` folder.
    file: String,
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
    /// The file that defines it, if it is not built in; absolute.
    pub file: Option<PathBuf>,
    /// Whether its calls were recorded, not generated.
    pub is_recorded: bool,
    /// Whether it works on the fixed names and bytes of a backend that holds nothing.
    pub fits_fixed_tree: bool,
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
        let (script, fits_fixed_tree) =
            match (&definition.micro, &definition.vsm_cycle, &definition.trace) {
                (Some(micro), None, None) => {
                    let script = micro
                        .script()
                        .map_err(|message| InputError::whole(file, message))?;
                    (script, micro.fits_fixed_tree())
                }
                (None, Some(cycle), None) => (cycle.script(), false),
                (None, None, Some(trace)) => {
                    let (trace_file, jsonl) = read(&trace.file).map_err(|error| {
                        InputError::whole(
                            file,
                            format!("field `trace.file`: {}: {error}", trace.file),
                        )
                    })?;
                    let parsed = Trace::parse(&trace_file, &jsonl)?;
                    identity.push_str(&jsonl);
                    (compile(&trace_file, &parsed)?, false)
                }
                _ => {
                    let message =
                        "needs exactly one of the tables `[micro]`, `[vsm_cycle]`, `[trace]`";
                    return Err(InputError::whole(file, message));
                }
            };
        Ok(Self {
            name: definition.name,
            essay: definition.essay.trim().to_owned(),
            states: definition.states,
            script,
            file: None,
            is_recorded: definition.trace.is_some(),
            fits_fixed_tree,
            sha256: sha256(identity.as_bytes()),
        })
    }
}
