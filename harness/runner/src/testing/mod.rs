//! Shared code of unit tests: scripts, workloads, and a backend over a plain directory with scripted failures.

#[path = "../../../replay/src/testing.rs"]
mod operations;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arms::backend::{Backend, Description, KillHandle, Unavailable, Versions, Workspace, WorkspaceConfig};
use backends::registry::Registry;
use fuse::{Counters, OpcodeCount};
use rundir::{Environment, Limits, Plan};
use workloads::definition::{CacheState, SessionSource, Workload};
use workloads::script::{CallKind, FileOp, Script};

pub use operations::*;

pub fn workload(script: Script) -> Workload {
    Workload {
        name: "micro/test".to_owned(),
        essay: "A test.".to_owned(),
        states: vec![CacheState::Hot],
        script: Arc::new(script),
        session: SessionSource::Script,
        contexts: Vec::new(),
        file: None,
        is_recorded: false,
        needs: std::collections::BTreeMap::new(),
        missing: None,
        fits_fixed_tree: false,
        asks: false,
        sha256: String::new(),
    }
}

/// Two files: `a` holds "first" and `b` holds "second".
pub fn two_files() -> Script {
    Script::new(vec![(path("a"), bytes("first")), (path("b"), bytes("second"))])
}

/// A script that reads both files and changes nothing.
pub fn two_reads() -> Script {
    let mut script = two_files();
    script.call(CallKind::Read, vec![FileOp::Read(path("a"))]);
    script.call(CallKind::Read, vec![FileOp::Read(path("b"))]);
    script
}

pub fn plan() -> Plan {
    toml::from_str(include_str!("plan.toml")).unwrap()
}

pub fn environment() -> Environment {
    serde_json::from_str(include_str!("env.json")).unwrap()
}

/// Limits that no load exceeds, because other tests run at the same time.
pub fn no_limits() -> Limits {
    Limits {
        foreign_cpu: f64::INFINITY,
        cpu: f64::INFINITY,
        io: f64::INFINITY,
        memory: f64::INFINITY,
        steal: f64::INFINITY,
        runnable: u32::MAX,
        ..Limits::default()
    }
}

/// The configuration of a workspace in `dir`, for backends without daemons.
pub fn workspace_config(dir: &Path) -> WorkspaceConfig {
    WorkspaceConfig::new(dir.to_owned(), "/nonexistent".into())
}

pub fn direct() -> Arc<dyn Backend> {
    Registry::default().find("direct").unwrap().into()
}

/// A backend over a plain directory, with scripted failures.
#[derive(Clone, Default)]
pub struct BrokenBackend {
    /// Whether it claims to guess content.
    pub guesses_content: bool,
    /// The error when it is opened.
    pub opening: Option<String>,
    /// Applied to the newest subtree of a pass, just before its calls.
    pub tamper: Option<fn(&Path)>,
    /// As `tamper`, for the root, if passes have no subtree.
    pub tamper_root: Option<fn(&Path)>,
    /// Applied to the root when its daemon is started again.
    pub starting: Option<fn(&Path)>,
    /// Why its daemon ended.
    pub exit_reason: Option<&'static str>,
    /// The daemon's read counts, one for each reading of its counters. `None`: it has no counters.
    pub counts: Option<Arc<Mutex<Vec<u64>>>>,
    /// Whether a second host has the same directory.
    pub is_shared: bool,
    /// How often it was opened.
    pub opened: Arc<Mutex<u32>>,
}

struct BrokenWorkspace {
    backend: BrokenBackend,
    root: PathBuf,
}

impl Backend for BrokenBackend {
    fn describe(&self) -> Description {
        let mut described = direct().describe();
        described.name = "broken".to_owned();
        described.capabilities.guesses_content = self.guesses_content;
        described.capabilities.counts_requests = self.counts.is_some();
        described.capabilities.several_hosts = self.is_shared;
        described
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        Ok(Versions::new())
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        *self.opened.lock().unwrap() += 1;
        if let Some(reason) = &self.opening {
            return Err(io::Error::other(reason.clone()));
        }
        let root = config.dir.join("root");
        std::fs::create_dir_all(&root)?;
        Ok(Box::new(BrokenWorkspace { backend: self.clone(), root }))
    }
}

impl Workspace for BrokenWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn second_host(&self, _: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        Ok(self.backend.is_shared.then(|| -> Box<dyn Workspace> {
            Box::new(Self { backend: self.backend.clone(), root: self.root.clone() })
        }))
    }

    /// Tampers here, because it is the last call of the workspace before the calls of a pass.
    fn kill_handle(&self) -> KillHandle {
        if let Some(tamper) = self.backend.tamper
            && let Some(newest) = newest_subtree(&self.root)
        {
            tamper(&newest);
        }
        if let Some(tamper) = self.backend.tamper_root {
            tamper(&self.root);
        }
        KillHandle::default()
    }

    fn start(&mut self) -> io::Result<()> {
        if let Some(starting) = self.backend.starting {
            starting(&self.root);
        }
        Ok(())
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        let Some(counts) = &self.backend.counts else {
            return Ok(None);
        };
        let reads = OpcodeCount { count: counts.lock().unwrap().remove(0), ..OpcodeCount::default() };
        let mut counters = Counters::default();
        counters.fuse.insert("read".to_owned(), reads);
        Ok(Some(counters))
    }

    fn exit_reason(&mut self) -> Option<String> {
        self.backend.exit_reason.map(str::to_owned)
    }
}

/// The subtree with the highest number.
fn newest_subtree(root: &Path) -> Option<PathBuf> {
    let passes = (1..).map(|pass| root.join(crate::cell::subtree_name(pass)));
    passes.take_while(|subtree| subtree.exists()).last()
}
