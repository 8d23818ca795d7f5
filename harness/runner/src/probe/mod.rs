//! Probes for facts that a decision needs besides latencies. They test what a backend offers besides files, whether common
//! tools work, whether files are visible from outside, and whether a caller started by cron survives killed daemons.

mod cron;
mod features;
mod properties;
mod tools;
mod visible;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use arms::backend::{Backend, Workspace, WorkspaceConfig};
use arms::source::Source;
use figures::conformance::CONFORMANCE;
use rundir::{Fault, Outcome, Probe, SCHEMA_VERSION};

use crate::interrupt::Interrupt;
use crate::supervise::{Lost, Watchdog, supervise};

pub use cron::KILLS_LIMIT;
pub use features::{feature_name, feature_outcome, short_features, try_features};

/// The names of all probes but conformance features, by aspect.
pub fn probe_names() -> BTreeMap<String, BTreeSet<String>> {
    let tools = tools::names().map(str::to_owned).collect();
    let facts = visible::NAMES.map(str::to_owned).into();
    let properties = properties::NAMES.map(str::to_owned).into();
    [(properties::ASPECT.to_owned(), properties), ("tool".to_owned(), tools), ("visible".to_owned(), facts)].into()
}

/// How long any one step of a probe may take.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// The input of the probes of one arm.
#[derive(Clone)]
pub struct Prober {
    /// The name of the arm in reports.
    pub arm: String,
    /// What mounts it.
    pub backend: Arc<dyn Backend>,
    /// The directory for the probes' workspaces.
    pub scratch: PathBuf,
    /// The ctxbench binary.
    pub program: PathBuf,
    /// Ends the probes.
    pub interrupt: Interrupt,
    /// The number of kills of a cron job's daemon, as far as the time suffices; at least one at each moment.
    pub kills: u64,
}

impl Prober {
    /// Runs all probes without faults.
    pub fn probes(&self) -> Vec<Probe> {
        let mut probes = self.supervised(properties::ASPECT, properties::probe);
        // The other probes run programs, which need paths.
        if self.backend.has_paths() {
            probes.extend(self.supervised("tool", tools::probe));
            probes.extend(self.supervised("visible", visible::probe));
            probes.extend(self.supervised(CONFORMANCE, features::probe));
        }
        probes
    }

    /// Runs all probes with faults.
    pub fn faults(&self) -> Vec<Fault> {
        if !self.backend.has_paths() {
            return Vec::new();
        }
        let prober = self.clone();
        let result = supervise(&self.interrupt, move |watchdog| cron::run(&prober, watchdog));
        match result {
            Ok(Ok(faults)) => faults,
            Ok(Err(error)) => vec![self.fault(Outcome::Infra, &error.to_string())],
            Err(lost) => vec![self.fault(Outcome::Infra, lost_words(lost))],
        }
    }

    fn supervised(&self, aspect: &'static str, probe: fn(&Prober, &Watchdog) -> io::Result<Vec<Probe>>) -> Vec<Probe> {
        let prober = self.clone();
        let result = supervise(&self.interrupt, move |watchdog| probe(&prober, watchdog));
        let failure = match result {
            Ok(Ok(probes)) => return probes,
            Ok(Err(error)) => error.to_string(),
            Err(lost) => lost_words(lost).to_owned(),
        };
        vec![self.probe(aspect, "all", Outcome::Infra, failure)]
    }

    /// Opens a workspace, within [`STEP_LIMIT`].
    fn open(&self, name: &str, watchdog: &Watchdog) -> io::Result<(WorkspaceConfig, Box<dyn Workspace>)> {
        watchdog.enter(STEP_LIMIT);
        let config = self.workspace_config(name)?;
        let workspace = self.backend.open(&config)?;
        watchdog.depend_on(workspace.kill_handle());
        Ok((config, workspace))
    }

    fn workspace_config(&self, name: &str) -> io::Result<WorkspaceConfig> {
        let dir = self.scratch.join(format!("{name}-{}", self.arm));
        std::fs::create_dir(&dir)?;
        Ok(WorkspaceConfig {
            dir,
            program: self.program.clone(),
            patience: Duration::from_secs(20),
            cpu: None,
            allow_other: false,
        })
    }

    /// Where a program writes a file, and where it is read: they differ for a view of a plain directory.
    fn places(&self, config: &WorkspaceConfig, workspace: &dyn Workspace) -> (PathBuf, PathBuf) {
        match self.backend.source(&config.dir) {
            Some(Source::Directory(plain)) => (plain.join("state"), workspace.root().join("state")),
            _ => (workspace.root().to_owned(), workspace.root().to_owned()),
        }
    }

    /// Whether the arm shows a database. No probe fits it, because no program writes files into a database.
    fn shows_rows(&self) -> bool {
        matches!(self.backend.source(Path::new("")), Some(Source::Database(_)))
    }

    fn probe(&self, aspect: &str, name: &str, outcome: Outcome, detail: String) -> Probe {
        Probe::new(aspect, name, &self.arm, outcome, &detail)
    }

    fn fault(&self, outcome: Outcome, detail: &str) -> Fault {
        Fault {
            v: SCHEMA_VERSION,
            scenario: cron::SCENARIO.to_owned(),
            arm: self.arm.clone(),
            outcome,
            detail: detail.to_owned(),
            killed: false,
            recovered: false,
            recovery_ms: 0,
            acknowledged: 0,
            lost: 0,
            failed_calls: 0,
        }
    }
}

fn lost_words(lost: Lost) -> &'static str {
    match lost {
        Lost::Stuck => "a step hung although its connection was aborted",
        Lost::Panicked => "the probe panicked; see the log",
    }
}

/// Whether a program is in `PATH`. Nothing is installed in the target directory itself.
fn is_installed(program: &str) -> bool {
    inputs::find_program(program, "").is_some()
}

/// Runs a command in `dir`. Returns its standard output, or its status with the last line of its errors.
fn run(command: &mut Command, dir: &Path) -> Result<String, String> {
    let output = command
        .current_dir(dir)
        .stdin(Stdio::null())
        .env("LC_ALL", "C")
        .output()
        .map_err(|error| format!("cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().last().unwrap_or_default().to_owned();
    Err(format!("{}: {last}", output.status))
}
