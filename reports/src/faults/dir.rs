//! The directory of a fault run: `fault-plan.json` and `env.json` before the first scenario, then one line a scenario and
//! backend in `fault-outcomes.jsonl` and one line a stretch of crash points in `crash-points.jsonl`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::outcome::{CrashPoints, FaultOutcome};
use rundir::dir::{append, read_json, read_lines, write_json};
use rundir::{ENVIRONMENT, Environment, RunError};

/// The plan's file.
pub const FAULT_PLAN: &str = "fault-plan.json";
/// One line a scenario and backend.
pub const OUTCOMES: &str = "fault-outcomes.jsonl";
/// One line a stretch of crash points.
pub const CRASH_POINTS: &str = "crash-points.jsonl";

/// What was to be run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPlan {
    /// [`rundir::SCHEMA_VERSION`].
    pub schema: u32,
    /// When it was planned.
    pub created: String,
    /// The version and commit of `ctxbench`.
    pub ctxbench: String,
    /// The scenarios, in order.
    pub scenarios: Vec<PlannedScenario>,
    /// The backends, in order.
    pub backends: Vec<PlannedBackend>,
    /// Crash points for each backend that they fit; 0 for none.
    pub crash_points: u64,
}

/// A scenario as planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedScenario {
    /// Its name.
    pub name: String,
    /// Its group.
    pub group: String,
    /// What happens, in a few words.
    pub title: String,
    /// What it stands for, and what a good backend does.
    pub essay: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// After how many seconds a call counts as hung.
    pub hang_limit_s: f64,
}

/// A backend as planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedBackend {
    /// Its name.
    pub name: String,
    /// What it is.
    pub summary: String,
    /// What it promises to keep, in its own words.
    pub durability: String,
    /// The same, by what is lost: the call after which it is kept; missing where nothing is promised.
    pub promises: BTreeMap<String, String>,
    /// The versions of its parts.
    pub receipt: BTreeMap<String, String>,
    /// Why it cannot be used here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
}

/// A fault run, read back.
#[derive(Clone, Debug)]
pub struct FaultRun {
    /// Where it lies.
    pub dir: PathBuf,
    /// What was to be run.
    pub plan: FaultPlan,
    /// The machine.
    pub environment: Environment,
    /// What came of it.
    pub outcomes: Vec<FaultOutcome>,
    /// What came of the crash points.
    pub crash_points: Vec<CrashPoints>,
}

impl FaultRun {
    /// Reads a run, a complete or an interrupted one.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        Ok(Self {
            dir: dir.to_owned(),
            plan: read_json(&dir.join(FAULT_PLAN))?,
            environment: read_json(&dir.join(ENVIRONMENT))?,
            outcomes: read_lines(&dir.join(OUTCOMES))?,
            crash_points: read_lines(&dir.join(CRASH_POINTS))?,
        })
    }
}

/// Writes a fault run, line by line.
#[derive(Debug)]
pub struct FaultWriter {
    dir: PathBuf,
}

impl FaultWriter {
    /// Starts a run in `dir`, which must not hold one yet.
    ///
    /// # Errors
    /// If `dir` holds a plan, or cannot be written.
    pub fn create(
        dir: &Path,
        plan: &FaultPlan,
        environment: &Environment,
    ) -> Result<Self, RunError> {
        std::fs::create_dir_all(dir).map_err(|error| RunError::Io {
            file: dir.to_owned(),
            error,
        })?;
        write_json(&dir.join(ENVIRONMENT), environment)?;
        // The plan last: a directory with a plan is a run.
        write_json(&dir.join(FAULT_PLAN), plan)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Appends an outcome.
    ///
    /// # Errors
    /// If it cannot be written; what was written before stays readable.
    pub fn outcome(&self, outcome: &FaultOutcome) -> Result<(), RunError> {
        append(&self.dir.join(OUTCOMES), outcome)
    }

    /// Appends a stretch of crash points.
    ///
    /// # Errors
    /// As [`FaultWriter::outcome`].
    pub fn crash_points(&self, points: &CrashPoints) -> Result<(), RunError> {
        append(&self.dir.join(CRASH_POINTS), points)
    }
}
