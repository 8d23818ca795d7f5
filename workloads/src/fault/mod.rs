//! Fault scenarios: the injected fault, its moment, and the agent's work.
//! Each scenario is a TOML file in `workloads/faults`. The harness injects the fault and audits the data.

mod injection;
mod llm;
mod s3;

use std::fmt::Display;
use std::path::{Path, PathBuf};

use include_dir::{Dir, include_dir};
use inputs::{InputError, parse_toml, sha256};
use serde::{Deserialize, Serialize};

use crate::built_in;
pub use injection::{Injection, WriteMode};
pub use llm::LlmFault;
pub use s3::{BadAnswer, FailurePattern, OutageCause, S3Fault};

static FAULTS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/faults");

/// A parameter of an injection, with its least and its greatest value.
type Bounds = (&'static str, f64, f64, f64);

/// A scenario.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Its name; for a built-in scenario, the name of its file.
    #[serde(deserialize_with = "inputs::names::name")]
    pub name: String,
    /// The part of the environment that fails.
    pub group: Group,
    /// The injected fault, in a few words.
    pub title: String,
    /// The real fault that it represents, and how a good backend behaves.
    pub essay: String,
    /// The properties of a backend to which the scenario applies.
    #[serde(default)]
    pub needs: Vec<ScenarioRequirement>,
    /// The injected fault.
    pub injection: Injection,
    /// The moment of the fault, for injections that have one.
    pub when: Option<Moment>,
    /// The agent's work.
    #[serde(default)]
    pub work: Work,
    /// The time limits.
    #[serde(default)]
    pub limits: TimeLimits,
    /// The seeds of the random choices; the scenario runs once per seed.
    #[serde(default = "one_seed")]
    pub seeds: Vec<u64>,
    /// SHA-256 of its file.
    #[serde(skip)]
    pub sha256: String,
}

inputs::named! {
    /// The part of the environment that fails.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Group {
        /// The process that serves the files.
        Daemon = "daemon",
        /// The storage below the store.
        Storage = "storage",
        /// The S3 server, and the network to it.
        S3 = "s3",
        /// The language model.
        Llm = "llm",
        /// Several concurrent agents.
        ManyAgents = "many-agents",
        /// The agent itself.
        AgentSide = "agent-side",
    }
}

/// A property that a scenario requires of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScenarioRequirement {
    /// It has its own daemon.
    Daemon,
    /// Its reads return the written bytes.
    Data,
    /// Its data outlives its daemon.
    Persistence,
    /// It is a backend of `ctxbench mount`.
    OurDaemon,
    /// It keeps its data in a SQLite file.
    Database,
    /// It keeps its data in local files of its site, whose storage can fail.
    LocalStore,
    /// It keeps its data in a bucket.
    Bucket,
    /// It asks a language model.
    Model,
}

impl ScenarioRequirement {
    /// Why a scenario does not apply to a backend without this property.
    pub fn missing(self) -> &'static str {
        match self {
            ScenarioRequirement::Daemon => "it has no daemon",
            ScenarioRequirement::Data => "it does not return what was written to it",
            ScenarioRequirement::Persistence => "it promises nothing after the end of its daemon",
            ScenarioRequirement::OurDaemon => {
                "it is not served by `ctxbench mount`, and only those daemons support this fault"
            }
            ScenarioRequirement::Database => "it keeps nothing in a SQLite file",
            ScenarioRequirement::LocalStore => "it keeps nothing on a local file system",
            ScenarioRequirement::Bucket => "it keeps nothing in a bucket",
            ScenarioRequirement::Model => "it asks no language model",
        }
    }
}

/// The moment of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// The backend has been idle for a while.
    Idle,
    /// Calls are in flight.
    Writing,
    /// `write` has returned, and `fsync` has not been called.
    BeforeSync,
    /// `fsync` has just returned.
    AfterSync,
}

/// The last call for each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncClass {
    /// `close`.
    Close,
    /// `fsync`, then `close`.
    #[default]
    Fsync,
    /// As `Fsync`, with `ctxbench s3 sync` after every tenth record.
    Sync,
}

/// The agent's work: it changes numbered, checksummed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Work {
    /// Number of changes: records written, overwritten or removed.
    pub changes: u64,
    /// The maximum number of records; each change picks one of them.
    pub records: u64,
    /// Bytes of each record, from 128 to 4,096, which fit into one request of the kernel.
    pub bytes: usize,
    /// The last call of each change.
    pub sync: SyncClass,
    /// Whether each change is also appended to a log file.
    pub log: bool,
}

impl Default for Work {
    fn default() -> Self {
        Self { changes: 40, records: 16, bytes: 512, sync: SyncClass::Fsync, log: true }
    }
}

/// The time limits of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeLimits {
    /// The time after which a call counts as hung and its connection is aborted, in seconds.
    pub hang: f64,
    /// The time within which files must be usable again, in seconds.
    pub recovery: f64,
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self { hang: 30.0, recovery: 30.0 }
    }
}

fn one_seed() -> Vec<u64> {
    vec![1]
}

impl Scenario {
    /// Parses a scenario file; `file` is only for error messages.
    ///
    /// # Errors
    /// [`InputError`] with file, line and field.
    pub fn parse(file: &Path, text: &str) -> Result<Self, InputError> {
        let mut scenario: Self = parse_toml(file, text)?;
        scenario.check().map_err(|message| InputError::whole(file, message))?;
        scenario.sha256 = sha256(text);
        Ok(scenario)
    }

    fn check(&self) -> Result<(), String> {
        if self.essay.trim().len() < 60 {
            return Err(
                "field `essay`: too short; say what the scenario represents, and what a good backend does".into()
            );
        }
        let Work { changes, records, bytes, .. } = self.work;
        within("work.changes", changes, 1, 100_000)?;
        within("work.records", records, 1, 10_000)?;
        within("work.bytes", bytes, 128, 4096)?;
        for (field, seconds) in [("limits.hang", self.limits.hang), ("limits.recovery", self.limits.recovery)] {
            if !(seconds > 0.0 && seconds <= 3600.0) {
                return Err(format!("field `{field}`: {seconds} s is not above 0 and at most an hour"));
            }
        }
        if self.seeds.is_empty() {
            return Err("field `seeds`: name at least one".into());
        }
        match (self.injection.takes_moment(), self.when) {
            (true, None) => Err(format!(
                "field `when`: {} needs one of `idle`, `writing`, `before-sync`, `after-sync`",
                self.injection.name()
            )),
            (false, Some(_)) => {
                Err(format!("field `when`: {} defines its own moment; remove the field", self.injection.name()))
            }
            _ => self.injection.check(),
        }
    }
}

/// Checks that a field has a value from `least` to `most`.
fn within<T: Display + PartialOrd>(field: &str, value: T, least: T, most: T) -> Result<(), String> {
    let is_within = least <= value && value <= most;
    is_within.then_some(()).ok_or_else(|| format!("field `{field}`: {value} is not from {least} to {most}"))
}

/// All built-in scenarios, by group.
///
/// # Errors
/// [`InputError`] if one is malformed.
pub fn scenarios() -> Result<Vec<Scenario>, InputError> {
    let mut all = Vec::new();
    for found in FAULTS.files() {
        let file = PathBuf::from("workloads/faults").join(found.path());
        let text = found.contents_utf8().unwrap_or_default();
        let scenario = Scenario::parse(&file, text)?;
        if found.path().file_stem().and_then(|stem| stem.to_str()) != Some(&scenario.name) {
            let message = format!("field `name`: {:?} is not the file's name", scenario.name);
            return Err(InputError::whole(&file, message));
        }
        all.push(scenario);
    }
    all.sort_by(|a, b| (a.group, &a.name).cmp(&(b.group, &b.name)));
    Ok(all)
}

/// The built-in scenario called `name`, or the scenario file at that path.
///
/// # Errors
/// [`InputError`] if the scenario does not exist or is malformed.
pub fn scenario(name: &str) -> Result<Scenario, InputError> {
    let known: Vec<String> = scenarios()?.into_iter().map(|scenario| scenario.name).collect();
    let found = built_in::file(&FAULTS, "faults", name);
    let (file, text) = inputs::named("scenario", name, found, &known)?;
    Scenario::parse(&file, &text)
}

#[cfg(test)]
mod tests;
