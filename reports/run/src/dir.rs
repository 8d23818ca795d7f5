//! Writing and reading the files of a run directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use inputs::files::{self, FileLimit, MOST_RECORDS, RUN_DOCUMENT, RUN_RECORDS};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::faults::{CrashPoints, FaultOutcome};
use super::plan::MOST_EPOCHS;
use super::{
    CellEpoch, Environment, Epoch, Fault, ModelFiles, Plan, Probe, RUN_DIRECTORY_VERSION, Sample, SessionContext,
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

/// The files of a run, from which its report follows.
pub const RECORDS: [&str; 12] = [
    PLAN,
    ENVIRONMENT,
    POLICY,
    CONTEXTS,
    SAMPLES,
    CELLS,
    EPOCHS,
    PROBES,
    FAULTS,
    FAULT_OUTCOMES,
    CRASH_POINTS,
    MODEL_FILES,
];

/// The way out of a damaged run directory.
const WHOLE: &str = "copy the run directory again from where it was made, or measure again";

/// Why a run directory cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file is missing or cannot be read or written.
    #[error("{}: {}", .file.display(), inputs::advised(.error))]
    Io {
        /// The file.
        file: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The directory has no plan.
    #[error("{}: not the directory of a run: it has no {PLAN}\n  fix: name a directory that `ctxbench run` wrote", .0.display())]
    NoRun(PathBuf),
    /// The directory has a plan, but lacks a file that every run has.
    #[error("{}: the run directory has no such file\n  fix: {WHOLE}", .0.display())]
    Lacks(PathBuf),
    /// Another version of ctxbench with another schema made the run.
    #[error("{}{}: schema version {found}; this ctxbench reads version {RUN_DIRECTORY_VERSION}\n  fix: report it with the ctxbench that made it", .file.display(), .line.map(|line| format!(":{line}")).unwrap_or_default())]
    Schema {
        /// The file.
        file: PathBuf,
        /// The line, from 1; `None` for a file that is not read by lines.
        line: Option<usize>,
        /// Its version.
        found: u64,
    },
    /// The directory holds a run, or one is being made in it.
    #[error("{}: contains a run, or a run is in progress there\n  fix: name another directory", .0.display())]
    Taken(PathBuf),
    /// Another process measures the run.
    #[error("{}: another process is still making this run\n  fix: wait until that process ends, or stop it", .0.display())]
    Running(PathBuf),
    /// A file does not parse.
    #[error(transparent)]
    Broken(#[from] FileDefect),
}

/// A defect in a file.
#[derive(Debug, thiserror::Error)]
#[error("{}{}: {message}", file.display(), line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct FileDefect {
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
        let environment = read_json(dir, ENVIRONMENT)?;
        let samples: Vec<Sample> = read_lines(dir, SAMPLES)?;
        check_once(dir, SAMPLES, &samples, |pass| {
            Some((pass.epoch, &pass.workload, &pass.state, &pass.arm, pass.round, pass.warm_up))
        })?;
        check_each(dir, SAMPLES, &samples, Sample::problem)?;
        let cells: Vec<CellEpoch> = read_lines(dir, CELLS)?;
        check_once(dir, CELLS, &cells, |cell| Some((cell.epoch, &cell.workload, &cell.state, &cell.arm)))?;
        let epochs: Vec<Epoch> = read_lines(dir, EPOCHS)?;
        check_once(dir, EPOCHS, &epochs, |epoch| Some(epoch.epoch))?;
        let contexts: Vec<SessionContext> = read_lines(dir, CONTEXTS)?;
        check_once(dir, CONTEXTS, &contexts, |context| Some((&context.workload, &context.policy)))?;
        let probes: Vec<Probe> = read_lines(dir, PROBES)?;
        check_each(dir, PROBES, &probes, Probe::problem)?;
        let faults: Vec<Fault> = read_lines(dir, FAULTS)?;
        check_once(dir, FAULTS, &faults, |fault| Some(fault.order))?;
        let fault_outcomes: Vec<FaultOutcome> = read_lines(dir, FAULT_OUTCOMES)?;
        check_once(dir, FAULT_OUTCOMES, &fault_outcomes, |one| Some((&one.scenario, &one.backend, one.seed)))?;
        let crash_points: Vec<CrashPoints> = read_lines(dir, CRASH_POINTS)?;
        check_once(dir, CRASH_POINTS, &crash_points, CrashPoints::identity)?;
        check_each(dir, CRASH_POINTS, &crash_points, CrashPoints::problem)?;
        Ok(Self {
            dir: dir.to_owned(),
            plan,
            environment,
            policy: read_if_there(dir, POLICY)?,
            contexts,
            samples,
            cells,
            epochs,
            probes,
            faults,
            fault_outcomes,
            crash_points,
            model_files: read_model_files(dir)?,
        })
    }
}

/// Checks that no record is there twice, which would count twice. A record without a key counts nothing. The records of a file
/// are its lines, in order.
fn check_once<'a, T, K: Ord>(
    dir: &Path,
    name: &str,
    items: &'a [T],
    key: impl Fn(&'a T) -> Option<K>,
) -> Result<(), RunError> {
    let mut known = BTreeMap::new();
    for (line, item) in (1..).zip(items) {
        if let Some(first) = key(item).and_then(|key| known.insert(key, line)) {
            let problem = format!("is the same record as line {first}: remove one of them");
            return Err(broken(&dir.join(name), Some(line), &problem));
        }
    }
    Ok(())
}

/// Checks what the type of a record leaves open; `problem` names the field. The records of a file are its lines, in order.
fn check_each<T>(
    dir: &Path,
    name: &str,
    items: &[T],
    problem: impl Fn(&T) -> Option<&'static str>,
) -> Result<(), RunError> {
    let mut found = (1..).zip(items).filter_map(|(line, item)| Some((line, problem(item)?)));
    found.next().map_or(Ok(()), |(line, problem)| Err(broken(&dir.join(name), Some(line), &problem)))
}

fn read_model_files(dir: &Path) -> Result<Option<ModelFiles>, RunError> {
    let file = dir.join(MODEL_FILES);
    let Some(text) = read_if_there(dir, MODEL_FILES)? else {
        return Ok(None);
    };
    let found = inputs::parse_json(&text).map_err(|error| damaged(&file, &error))?;
    read_document(&file, found).map(Some)
}

fn read_plan(dir: &Path) -> Result<Plan, RunError> {
    let file = dir.join(PLAN);
    let text = match read_text(dir, PLAN) {
        Err(RunError::Io { error, .. })
            if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) =>
        {
            return Err(RunError::NoRun(dir.to_owned()));
        }
        read => read?,
    };
    let plan = inputs::toml_as_json(&text).map_err(|error| damaged(&file, &error))?;
    check_schema(&file, None, &plan)?;
    let plan: Plan = read_document(&file, plan)?;
    plan.check().map_err(|problem| broken(&file, None, &problem))?;
    Ok(plan)
}

/// Reads a JSON document with a field `schema`.
fn read_json<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<T, RunError> {
    let file = &dir.join(name);
    let text = match read_text(dir, name) {
        Err(RunError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
            return Err(RunError::Lacks(file.to_owned()));
        }
        read => read?,
    };
    let document = inputs::parse_json(&text).map_err(|error| damaged(file, &error))?;
    check_schema(file, None, &document)?;
    read_document(file, document)
}

/// Reads a document whose numbers can be figures of a run.
fn read_document<T: DeserializeOwned>(file: &Path, document: Value) -> Result<T, RunError> {
    check_numbers(&document, &mut NumberSum::of("")).map_err(|problem| broken(file, None, &problem))?;
    inputs::read_value(document).map_err(|error| damaged(file, &error))
}

/// The sum that the numbers of a file stay below, so that no sum of them overflows: 2^60 nanoseconds are 36 years.
const MOST: u128 = 1 << 60;

/// The same of the tokens and milliseconds of sessions, which are multiplied: each call sends again what came before.
const MOST_TOKENS: u128 = 1 << 38;

/// The largest number with a point; larger ones would make infinite figures.
const LARGEST: f64 = 1e18;

/// The numbers of a file so far.
struct NumberSum {
    sum: u128,
    most: u128,
}

impl NumberSum {
    fn of(name: &str) -> Self {
        let most = match name {
            CONTEXTS => MOST_TOKENS,
            _ => MOST,
        };
        Self { sum: 0, most }
    }
}

/// Checks that numbers can be figures of a run: not too large, and below the limit together with those before them.
/// Seeds are no figures.
fn check_numbers(value: &Value, sum: &mut NumberSum) -> Result<(), String> {
    match value {
        Value::Number(number) => {
            if let Some(count) = number.as_u64() {
                sum.sum += u128::from(count);
            } else if let Some(number) = number.as_f64().filter(|number| number.abs() > LARGEST) {
                return Err(format!("the number {number:e} is out of range for a figure of a run"));
            }
        }
        Value::Array(items) => return items.iter().try_for_each(|item| check_numbers(item, sum)),
        Value::Object(fields) => {
            let figures = fields.iter().filter(|(name, _)| *name != "seed");
            for (name, value) in figures {
                let problem = check_numbers(value, sum);
                problem.map_err(|problem| match problem.strip_prefix("field `") {
                    Some(rest) => format!("field `{name}.{rest}"),
                    None => format!("field `{name}`: {problem}"),
                })?;
            }
        }
        _ => {}
    }
    if sum.sum < sum.most {
        Ok(())
    } else {
        Err("the numbers up to here are too large for figures of a run".to_owned())
    }
}

/// Writes a JSON document to a new file.
fn write_json(file: &Path, item: &impl Serialize) -> Result<(), RunError> {
    let text = serde_json::to_string_pretty(item).map_err(|error| broken(file, None, &error))?;
    write_new(file, &text)
}

/// Checks the version of a document, or of the record in a line.
fn check_schema(file: &Path, line: Option<usize>, document: &Value) -> Result<(), RunError> {
    let field = match line {
        Some(_) => "v",
        None => "schema",
    };
    match document.get(field).and_then(Value::as_u64) {
        Some(found) if found == u64::from(RUN_DIRECTORY_VERSION) => Ok(()),
        Some(found) => Err(RunError::Schema { file: file.to_owned(), line, found }),
        None => {
            let problem = format!("field `{field}`: not a schema version");
            Err(broken(file, line, &problem))
        }
    }
}

/// Opens a file of a run directory. A link in it may lead anywhere, and is not followed.
fn open(dir: &Path, name: &str) -> io::Result<File> {
    files::open_inside(dir, Path::new(name))
}

fn read_text(dir: &Path, name: &str) -> Result<String, RunError> {
    let read = open(dir, name).and_then(|file| files::read_file(file, RUN_DOCUMENT));
    let text = read.and_then(files::text);
    text.map_err(|error| io_error(&dir.join(name), error))
}

fn read_if_there(dir: &Path, name: &str) -> Result<Option<String>, RunError> {
    match read_text(dir, name) {
        Ok(text) => Ok(Some(text)),
        Err(RunError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads JSON lines; a last line without its end is ignored.
fn read_lines<T: DeserializeOwned>(dir: &Path, name: &str) -> Result<Vec<T>, RunError> {
    let file = &dir.join(name);
    let mut open = match open(dir, name) {
        Ok(open) => open,
        // An interrupted run may not have created every file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(file, error)),
    };
    // Counted first, so that too many records are refused before they are parsed and held.
    check_size(&mut open, RUN_RECORDS, MOST_RECORDS).map_err(|error| io_error(file, error))?;
    let sum = NumberSum::of(name);
    records(file, BufReader::new(open), RUN_RECORDS, sum)
}

/// Checks that a file has at most `most` records in all, and none that is too long. Leaves it at its start.
fn check_size(file: &mut File, limit: FileLimit, most: usize) -> io::Result<()> {
    let refused = |problem: String| Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    files::check_length(file, limit)?;
    let (mut records, mut line) = (0, 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut lines = buffer[..count].split(|byte| *byte == b'\n');
        let first = lines.next().map_or(0, <[u8]>::len);
        line += first as u64;
        if line > limit.line() {
            return refused(too_long(limit));
        }
        // A record inside a piece is shorter than any limit.
        for rest in lines {
            records += 1;
            line = rest.len() as u64;
        }
        if records > most {
            return refused(format!("a run directory has at most {most} records in a file"));
        }
    }
    file.rewind()
}

fn too_long(limit: FileLimit) -> String {
    format!("a record has at most {} bytes", limit.line())
}

/// The records in `lines`; `file` is for messages.
fn records<T: DeserializeOwned>(
    file: &Path,
    mut lines: impl BufRead,
    limit: FileLimit,
    mut sum: NumberSum,
) -> Result<Vec<T>, RunError> {
    let (mut items, mut line) = (Vec::new(), Vec::new());
    for number in 1.. {
        line.clear();
        let mut rest = lines.by_ref().take(limit.line() + 1);
        let read = rest.read_until(b'\n', &mut line);
        read.map_err(|error| io_error(file, error))?;
        let wrong = |problem: &dyn ToString| broken(file, Some(number), &problem.to_string());
        if line.len() as u64 > limit.line() {
            return Err(wrong(&too_long(limit)));
        }
        if line.pop() != Some(b'\n') {
            break;
        }
        let text = std::str::from_utf8(&line).map_err(|_| wrong(&"is not UTF-8 text"))?;
        let record = inputs::parse_json(text).map_err(|error| wrong(&error))?;
        check_schema(file, Some(number), &record)?;
        check_numbers(&record, &mut sum).map_err(|problem| wrong(&problem))?;
        let epoch = record.get("epoch").and_then(Value::as_u64);
        if let Some(epoch) = epoch.filter(|epoch| *epoch > u64::from(MOST_EPOCHS)) {
            let problem = format!("field `epoch`: {epoch} is out of range");
            return Err(wrong(&problem));
        }
        let item = inputs::read_value(record);
        items.push(item.map_err(|error| wrong(&error))?);
    }
    Ok(items)
}

fn io_error(file: &Path, error: io::Error) -> RunError {
    RunError::Io { file: file.to_owned(), error }
}

fn broken(file: &Path, line: Option<usize>, message: &impl ToString) -> RunError {
    RunError::Broken(FileDefect { file: file.to_owned(), line, message: message.to_string() })
}

/// The error of a document that does not parse, or lacks fields: most often, its end is missing.
fn damaged(file: &Path, problem: &impl ToString) -> RunError {
    let message = format!("the file is damaged or cut off: {}\n  fix: {WHOLE}", problem.to_string().trim_end());
    broken(file, None, &message)
}

/// Writes a run directory, line by line.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    /// The contexts' file, locked as long as the run is being made. The lock ends with the writer, or with the process.
    lock: File,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that was forked and has not called `exec` yet holds it, too.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl Run {
    /// The number of epochs that began.
    pub fn epochs_begun(&self) -> u32 {
        let begun = self.samples.iter().map(|sample| sample.epoch + 1);
        let ended = self.epochs.iter().map(|epoch| epoch.epoch + 1);
        begun.chain(ended).max().unwrap_or(0)
    }
}

/// The numbers of records that runs have, and that are given again when their records become those of one run.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordCounts {
    epochs: u32,
    passes: u64,
    faults: u64,
}

impl Writer {
    /// Writes all records of another run after those of the runs `before`, which it is then counted among. Its epochs, passes
    /// and faults get the next numbers. Of several runs with files that a model made up, the first one's are kept: see
    /// [`ModelFiles::agrees_with`].
    ///
    /// # Errors
    /// If a record cannot be written.
    pub fn append(&self, run: &Run, before: &mut RecordCounts) -> Result<(), RunError> {
        // Without `..`, so that a new kind of record cannot be forgotten.
        let Run {
            dir: _,
            plan: _,
            environment: _,
            policy: _,
            contexts: _,
            samples,
            cells,
            epochs,
            probes,
            faults,
            fault_outcomes,
            crash_points,
            model_files,
        } = run;
        for sample in samples {
            let mut sample = sample.clone();
            sample.epoch += before.epochs;
            sample.order += before.passes;
            self.sample(&sample)?;
        }
        for cell in cells {
            let mut cell = cell.clone();
            cell.epoch += before.epochs;
            self.cell(&cell)?;
        }
        for epoch in epochs {
            let mut epoch = epoch.clone();
            epoch.epoch += before.epochs;
            self.epoch(&epoch)?;
        }
        probes.iter().try_for_each(|probe| self.probe(probe))?;
        for fault in faults {
            self.fault(&Fault { order: fault.order + before.faults, ..fault.clone() })?;
        }
        fault_outcomes.iter().try_for_each(|outcome| self.outcome(outcome))?;
        crash_points.iter().try_for_each(|points| self.crash_points(points))?;
        before.epochs += run.epochs_begun();
        before.passes += samples.len() as u64;
        before.faults += faults.len() as u64;
        match model_files {
            Some(found) if !self.dir.join(MODEL_FILES).exists() => self.model_files(found),
            _ => Ok(()),
        }
    }

    /// Starts a run in `dir`, which must not contain a run yet. Of two that start at once, one is refused before it
    /// writes anything.
    ///
    /// # Errors
    /// If `dir` contains a file of a run, or cannot be written.
    pub fn create(
        dir: &Path,
        plan: &Plan,
        environment: &Environment,
        policy: Option<&str>,
        contexts: &[SessionContext],
    ) -> Result<Self, RunError> {
        fs::create_dir_all(dir).map_err(|error| io_error(dir, error))?;
        let mut lines = String::new();
        for session in contexts {
            let line = serde_json::to_string(session);
            lines += &line.map_err(|error| broken(&dir.join(CONTEXTS), None, &error))?;
            lines.push('\n');
        }
        let mut files = RECORDS.iter().map(|name| dir.join(name));
        if files.any(|file| file.symlink_metadata().is_ok()) {
            return Err(RunError::Taken(dir.to_owned()));
        }
        let (file, mut options) = (dir.join(CONTEXTS), OpenOptions::new());
        // Only one of several processes creates it.
        let lock = options.read(true).write(true).create_new(true).open(&file);
        let mut lock = lock.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => RunError::Taken(dir.to_owned()),
            _ => io_error(&file, error),
        })?;
        lock_run(&lock, dir, &file)?;
        let written = lock.write_all(lines.as_bytes());
        written.map_err(|error| io_error(&file, error))?;
        if let Some(policy) = policy {
            write_new(&dir.join(POLICY), policy)?;
        }
        write_json(&dir.join(ENVIRONMENT), environment)?;
        let text = toml::to_string_pretty(plan).map_err(|error| broken(&dir.join(PLAN), None, &error))?;
        // The plan is last because a directory with a plan counts as a run.
        write_new(&dir.join(PLAN), &text)?;
        Ok(Self { dir: dir.to_owned(), lock })
    }

    /// Resumes the run in `dir`, and truncates each file after its last complete line.
    ///
    /// # Errors
    /// If another process makes the run, or `dir` cannot be read and written.
    pub fn resume(dir: &Path) -> Result<(Self, Run), RunError> {
        read_plan(dir)?;
        let file = dir.join(CONTEXTS);
        let lock = open_to_write(&file).map_err(|error| io_error(&file, error))?;
        lock_run(&lock, dir, &file)?;
        let run = Run::read(dir)?;
        for name in [SAMPLES, CELLS, EPOCHS, PROBES, FAULTS, FAULT_OUTCOMES, CRASH_POINTS] {
            let file = dir.join(name);
            cut_off_half_line(&file).map_err(|error| io_error(&file, error))?;
        }
        let writer = Self { dir: dir.to_owned(), lock };
        Ok((writer, run))
    }

    /// Writes the results for model-generated files atomically.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn model_files(&self, found: &ModelFiles) -> Result<(), RunError> {
        let file = self.dir.join(MODEL_FILES);
        let new = self.dir.join(format!("{MODEL_FILES}.new"));
        let text = serde_json::to_string_pretty(found).map_err(|error| broken(&file, None, &error))?;
        // What a killed process left would be in the way.
        let removed = fs::remove_file(&new);
        if let Err(error) = removed
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(io_error(&new, error));
        }
        write_new(&new, &text)?;
        fs::rename(&new, &file).map_err(|error| io_error(&file, error))
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
    let mut options = OpenOptions::new();
    let nofollow = OFlags::NOFOLLOW.bits() as i32;
    let open = options.create(true).append(true).custom_flags(nofollow);
    open.open(file).and_then(|mut open| open.write_all(&line)).map_err(|error| io_error(file, error))
}

fn write_new(file: &Path, text: &str) -> Result<(), RunError> {
    let mut open = OpenOptions::new().write(true).create_new(true).open(file).map_err(|error| io_error(file, error))?;
    open.write_all(text.as_bytes()).map_err(|error| io_error(file, error))
}

/// Opens a file of the run for reading and writing, over no link.
fn open_to_write(file: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    let flags = flags.bits() as i32;
    let open = options.read(true).write(true).custom_flags(flags);
    let open = open.open(file)?;
    if open.metadata()?.is_file() {
        Ok(open)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"))
    }
}

/// Takes the lock of the process that makes a run.
fn lock_run(lock: &File, dir: &Path, file: &Path) -> Result<(), RunError> {
    flock(lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        Errno::WOULDBLOCK => RunError::Running(dir.to_owned()),
        error => io_error(file, error.into()),
    })
}

fn cut_off_half_line(file: &Path) -> io::Result<()> {
    let mut open = match open_to_write(file) {
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
