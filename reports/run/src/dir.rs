//! Writing and reading the files of a run directory.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use inputs::Document;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::faults::{CrashPoints, FaultOutcome};
use super::{
    CellEpoch, Environment, Epoch, Fault, ModelFiles, Plan, Probe, SCHEMA_VERSION, Sample,
    SessionContext,
};

/// The plan's file.
pub const PLAN: &str = "plan.toml";
/// The environment's file.
pub const ENVIRONMENT: &str = "env.json";
/// The policy's file.
pub const POLICY: &str = "policy.toml";
/// The file with one line per session and context policy.
pub const CONTEXTS: &str = "contexts.jsonl";
/// The file with one line per pass.
pub const SAMPLES: &str = "samples.jsonl";
/// The file with one line per arm, cell and epoch.
pub const CELLS: &str = "cells.jsonl";
/// The file with one line per epoch.
pub const EPOCHS: &str = "epochs.jsonl";
/// The file with one line per probe.
pub const PROBES: &str = "probes.jsonl";
/// The file with one line per fault.
pub const FAULTS: &str = "faults.jsonl";
/// The file with one line per fault scenario, arm and seed.
pub const FAULT_OUTCOMES: &str = "fault-outcomes.jsonl";
/// The file with one line per series of crash points.
pub const CRASH_POINTS: &str = "crash-points.jsonl";
/// The results for model-generated files.
pub const MODEL_FILES: &str = "model-files.json";

/// Why a run directory cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file is missing or cannot be read or written.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another version of ctxbench with another schema made the run.
    #[error("{}: schema version {found}; this ctxbench reads version {SCHEMA_VERSION}\n  fix: report it with the ctxbench that made it", .file.display())]
    Schema {
        /// The file.
        file: PathBuf,
        /// Its version.
        found: u64,
    },
    /// A file does not parse.
    #[error(transparent)]
    Broken(#[from] Broken),
}

/// A defect in a file.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Broken {
    /// The file.
    pub file: PathBuf,
    /// The line, from 1; `None` for a file that is not read by lines.
    pub line: Option<usize>,
    /// The defect.
    pub message: String,
}

/// A run directory in memory.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The run directory.
    pub dir: PathBuf,
    /// The plan.
    pub plan: Plan,
    /// The machine.
    pub environment: Environment,
    /// The policy's text, if the run has one.
    pub policy: Option<String>,
    /// The contexts of its sessions.
    pub contexts: Vec<SessionContext>,
    /// The samples, one per pass.
    pub samples: Vec<Sample>,
    /// Latencies and exact counts, one per arm, cell and epoch.
    pub cells: Vec<CellEpoch>,
    /// The completed epochs.
    pub epochs: Vec<Epoch>,
    /// The probes.
    pub probes: Vec<Probe>,
    /// The injected faults of `faults.jsonl`.
    pub faults: Vec<Fault>,
    /// The results of fault scenarios.
    pub fault_outcomes: Vec<FaultOutcome>,
    /// The results of crash points.
    pub crash_points: Vec<CrashPoints>,
    /// The results for model-generated files.
    pub model_files: Option<ModelFiles>,
}

impl Run {
    /// Reads the directory of a complete or interrupted run. A last line without its end is ignored:
    /// a full disk or a killed run leaves one.
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn read(dir: &Path) -> Result<Self, RunError> {
        let plan = read_plan(dir)?;
        let environment = read_json(&dir.join(ENVIRONMENT))?;
        Ok(Self {
            dir: dir.to_owned(),
            plan,
            environment,
            policy: read_if_there(&dir.join(POLICY))?,
            contexts: read_lines(&dir.join(CONTEXTS))?,
            samples: read_lines(&dir.join(SAMPLES))?,
            cells: read_lines(&dir.join(CELLS))?,
            epochs: read_lines(&dir.join(EPOCHS))?,
            probes: read_lines(&dir.join(PROBES))?,
            faults: read_lines(&dir.join(FAULTS))?,
            fault_outcomes: read_lines(&dir.join(FAULT_OUTCOMES))?,
            crash_points: read_lines(&dir.join(CRASH_POINTS))?,
            model_files: read_model_files(dir)?,
        })
    }
}

fn read_model_files(dir: &Path) -> Result<Option<ModelFiles>, RunError> {
    let file = dir.join(MODEL_FILES);
    let Some(text) = read_if_there(&file)? else {
        return Ok(None);
    };
    let found = parse(&file, None, &text)?.read();
    Ok(Some(found.map_err(|error| broken(&file, None, &error))?))
}

fn read_plan(dir: &Path) -> Result<Plan, RunError> {
    let file = dir.join(PLAN);
    let text = read_text(&file)?;
    let document = Document::from_toml(&text).map_err(|error| broken(&file, None, &error))?;
    check_schema(&file, document.unsigned("schema"))?;
    let plan = document.read();
    plan.map_err(|error| broken(&file, None, &error))
}

fn parse(file: &Path, line: Option<usize>, json: &str) -> Result<Document, RunError> {
    let parsed = Document::from_json(json);
    parsed.map_err(|error| broken(file, line, &error))
}

/// Reads a JSON document with a field `schema`.
fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T, RunError> {
    let text = read_text(file)?;
    let document = parse(file, None, &text)?;
    check_schema(file, document.unsigned("schema"))?;
    let item = document.read();
    item.map_err(|error| broken(file, None, &error))
}

/// Writes a JSON document to a new file.
fn write_json(file: &Path, item: &impl Serialize) -> Result<(), RunError> {
    let text = serde_json::to_string_pretty(item).map_err(|error| broken(file, None, &error))?;
    write_new(file, &text)
}

fn check_schema(file: &Path, found: Option<u64>) -> Result<(), RunError> {
    match found {
        Some(found) if found == u64::from(SCHEMA_VERSION) => Ok(()),
        Some(found) => Err(RunError::Schema {
            file: file.to_owned(),
            found,
        }),
        None => Err(broken(file, None, &"missing field `schema`")),
    }
}

fn read_text(file: &Path) -> Result<String, RunError> {
    fs::read_to_string(file).map_err(|error| io_error(file, error))
}

fn read_if_there(file: &Path) -> Result<Option<String>, RunError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(file, error)),
    }
}

/// Reads JSON lines; a last line without its end is ignored.
fn read_lines<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, RunError> {
    // An interrupted run may not have created every file.
    let text = read_if_there(file)?.unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let mut items = Vec::new();
    for (number, line) in (1..).zip(whole.lines()) {
        let document = parse(file, Some(number), line)?;
        check_schema(file, document.unsigned("v"))?;
        let item = document.read();
        items.push(item.map_err(|error| broken(file, Some(number), &error))?);
    }
    Ok(items)
}

fn io_error(file: &Path, error: io::Error) -> RunError {
    RunError::Io {
        file: file.to_owned(),
        error,
    }
}

fn broken(file: &Path, line: Option<usize>, message: &impl ToString) -> RunError {
    RunError::Broken(Broken {
        file: file.to_owned(),
        line,
        message: message.to_string(),
    })
}

/// Writes a run directory, line by line.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
}

impl Writer {
    /// Starts a run in `dir`, which must not contain a run yet.
    ///
    /// # Errors
    /// If `dir` contains a plan, or cannot be written.
    pub fn create(
        dir: &Path,
        plan: &Plan,
        environment: &Environment,
        policy: Option<&str>,
        contexts: &[SessionContext],
    ) -> Result<Self, RunError> {
        fs::create_dir_all(dir).map_err(|error| io_error(dir, error))?;
        if let Some(policy) = policy {
            write_new(&dir.join(POLICY), policy)?;
        }
        let mut lines = String::new();
        for session in contexts {
            let line = serde_json::to_string(session);
            lines += &line.map_err(|error| broken(&dir.join(CONTEXTS), None, &error))?;
            lines.push('\n');
        }
        write_new(&dir.join(CONTEXTS), &lines)?;
        write_json(&dir.join(ENVIRONMENT), environment)?;
        let text =
            toml::to_string_pretty(plan).map_err(|error| broken(&dir.join(PLAN), None, &error))?;
        // The plan is last because a directory with a plan counts as a run.
        write_new(&dir.join(PLAN), &text)?;
        Ok(Self {
            dir: dir.to_owned(),
        })
    }

    /// Resumes the run in `dir`, and truncates each file after its last complete line.
    ///
    /// # Errors
    /// If `dir` cannot be read and written.
    pub fn resume(dir: &Path) -> Result<(Self, Run), RunError> {
        let run = Run::read(dir)?;
        for name in [
            SAMPLES,
            CELLS,
            EPOCHS,
            PROBES,
            FAULTS,
            FAULT_OUTCOMES,
            CRASH_POINTS,
        ] {
            let file = dir.join(name);
            cut_off_half_line(&file).map_err(|error| io_error(&file, error))?;
        }
        let writer = Self {
            dir: dir.to_owned(),
        };
        Ok((writer, run))
    }

    /// Writes the results for model-generated files atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn model_files(&self, found: &ModelFiles) -> Result<(), RunError> {
        let file = self.dir.join(MODEL_FILES);
        let new = self.dir.join(format!("{MODEL_FILES}.new"));
        let text = serde_json::to_vec_pretty(found).map_err(|error| broken(&file, None, &error))?;
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &file));
        written.map_err(|error| io_error(&file, error))
    }
}

macro_rules! lines {
    ($($what:literal $append:ident($line:ty) in $file:ident;)*) => {
        impl Writer {
            $(
                #[doc = concat!("Appends ", $what, " to its file. Earlier lines stay readable if it fails.")]
                ///
                /// # Errors
                /// If the line cannot be written.
                pub fn $append(&self, line: &$line) -> Result<(), RunError> {
                    append(&self.dir.join($file), line)
                }
            )*
        }
    };
}

lines! {
    "a sample" sample(Sample) in SAMPLES;
    "the result of an arm in a cell of an epoch" cell(CellEpoch) in CELLS;
    "an epoch" epoch(Epoch) in EPOCHS;
    "a probe" probe(Probe) in PROBES;
    "a fault" fault(Fault) in FAULTS;
    "the result of a scenario" outcome(FaultOutcome) in FAULT_OUTCOMES;
    "a series of crash points" crash_points(CrashPoints) in CRASH_POINTS;
}

/// Appends a JSON line.
fn append(file: &Path, item: &impl Serialize) -> Result<(), RunError> {
    let mut line = serde_json::to_vec(item).map_err(|error| broken(file, None, &error))?;
    line.push(b'\n');
    let open = OpenOptions::new().create(true).append(true).open(file);
    open.and_then(|mut open| open.write_all(&line))
        .map_err(|error| io_error(file, error))
}

fn write_new(file: &Path, text: &str) -> Result<(), RunError> {
    let mut open = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(file)
        .map_err(|error| io_error(file, error))?;
    open.write_all(text.as_bytes())
        .map_err(|error| io_error(file, error))
}

fn cut_off_half_line(file: &Path) -> io::Result<()> {
    let mut open = match File::options().read(true).write(true).open(file) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    open.seek(SeekFrom::Start(0))?;
    open.read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n');
    open.set_len(whole.map_or(0, |end| end as u64 + 1))
}

#[cfg(test)]
#[path = "dir_tests.rs"]
mod tests;
