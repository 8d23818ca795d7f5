//! Probes for facts that a decision needs besides latencies. They test what a backend offers besides files, whether common
//! tools work, whether files are visible from outside, and whether a caller started by cron survives killed daemons.

mod cron;
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
use figures::evidence::CRON_KILL;
use rundir::properties::{PROPERTIES, PROPERTY};
use rundir::{Fault, Outcome, Probe, RUN_DIRECTORY_VERSION};

use crate::features::{short_features, try_in_workspace};
use crate::interrupt::Interrupt;
use crate::watchdog::{Watchdog, supervise};

pub use cron::KILLS_LIMIT;

/// The names of all probes but conformance features, by aspect.
pub fn probe_names() -> BTreeMap<String, BTreeSet<String>> {
    let tools = tools::names().into_iter().map(str::to_owned).collect();
    let facts = visible::NAMES.map(str::to_owned).into();
    let properties = PROPERTIES.map(|(name, _)| name.to_owned()).into();
    [(PROPERTY.to_owned(), properties), ("tool".to_owned(), tools), ("visible".to_owned(), facts)].into()
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
        let mut probes = self.supervised(PROPERTY, properties::probe);
        // The other probes run programs, which need paths.
        if self.backend.has_paths() {
            probes.extend(self.supervised("tool", tools::probe));
            probes.extend(self.supervised("visible", visible::probe));
            probes.extend(self.supervised(CONFORMANCE, Self::conformance));
        }
        probes
    }

    /// Runs all probes with faults. Their order in the run is the caller's.
    pub fn faults(&self) -> Vec<Fault> {
        if !self.backend.has_paths() {
            return Vec::new();
        }
        let prober = self.clone();
        let result = supervise(&self.interrupt, move |watchdog| cron::run(&prober, watchdog));
        let faults = result.map_err(io::Error::from).flatten();
        faults.unwrap_or_else(|error| vec![self.fault(Outcome::Infra, &error.to_string())])
    }

    fn supervised(&self, aspect: &'static str, probe: fn(&Prober, &Watchdog) -> io::Result<Vec<Probe>>) -> Vec<Probe> {
        let prober = self.clone();
        let result = supervise(&self.interrupt, move |watchdog| probe(&prober, watchdog));
        let probes = result.map_err(io::Error::from).flatten();
        probes.unwrap_or_else(|error| vec![self.probe(aspect, "all", Outcome::Infra, error.to_string())])
    }

    fn conformance(&self, watchdog: &Watchdog) -> io::Result<Vec<Probe>> {
        if !self.backend.describe().capabilities.holds_data {
            return Ok(Vec::new());
        }
        let (config, features) = (self.workspace_config("features")?, short_features().collect::<Vec<_>>());
        let results = try_in_workspace(&*self.backend, &config, &features, watchdog, &self.interrupt)?;
        let tried = features.iter().zip(&results);
        Ok(tried.map(|(feature, result)| feature.probe(&self.arm, result)).collect())
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
        Ok(WorkspaceConfig::new(dir, self.program.clone()))
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
            v: RUN_DIRECTORY_VERSION,
            scenario: CRON_KILL.to_owned(),
            arm: self.arm.clone(),
            order: 0,
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
