//! Jobs of the agent process that write and read records.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use arms::promise::Acknowledgement;
use fuse::attribute;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rundir::faults::Fact;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use workloads::fault::SyncClass;

use super::super::history::{RecordChange, acknowledge_lines, begin_line};
use super::super::record::{
    DIR, LOG, LOG_LINES, LONG_AT, STRANGERS, State, content, identify_any, log_line, log_states, long_bytes, name,
    number,
};
use super::remote::names;
use super::{Caller, unlink};

/// Name prefix of a temporary file that is renamed over a record.
const NEW: &str = ".new-";

/// Number of changes between two calls of `ctxbench s3 sync`.
const CHANGES_A_SYNC: u64 = 10;

/// Changes of records. The seed and the change's number determine which record changes, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Path of the acknowledgement log, outside the mount.
    pub acknowledgements: PathBuf,
    /// The seed.
    pub seed: u64,
    /// The number of the first change, from 1.
    pub first: u64,
    /// The number of changes.
    pub changes: u64,
    /// The number of records.
    pub records: u64,
    /// Bytes of each record.
    pub bytes: usize,
    /// The last call of each change.
    pub sync: SyncClass,
    /// Whether each change also appends a line to the log.
    pub log: bool,
    /// Whether every sixth record is a long one.
    pub long: bool,
}

/// A record that was written and whose file is still open.
pub struct OpenRecord {
    file: File,
    number: u64,
    version: u64,
    journal: File,
}

/// How a record is changed.
enum ChangeMethod {
    /// In place, by one write of the record's full length. A long record is truncated before: no store overwrites it as a
    /// whole.
    Overwrite,
    /// By a new file that is renamed over the record.
    Replace,
    /// By unlinking it.
    Remove,
}

/// Why a job stopped. A failure of the backend is already recorded.
enum StopReason {
    ByBackend,
    ByHarness(anyhow::Error),
}

impl From<io::Error> for StopReason {
    fn from(_: io::Error) -> Self {
        Self::ByBackend
    }
}

struct Writer<'a> {
    job: &'a Changes,
    caller: &'a mut Caller,
    journal: File,
    /// The workspace.
    root: &'a Path,
    dir: PathBuf,
}

impl Changes {
    /// Makes all changes, up to the first that fails.
    pub(super) fn perform(&self, root: &Path, caller: &mut Caller) -> anyhow::Result<()> {
        self.write(root, caller, |writer| writer.all()).map(drop)
    }

    /// Writes the record of the first change, and keeps its file open.
    pub(super) fn write_and_hold(&self, root: &Path, caller: &mut Caller) -> anyhow::Result<Option<OpenRecord>> {
        self.write(root, caller, |writer| writer.hold())
    }

    fn write<T>(
        &self,
        root: &Path,
        caller: &mut Caller,
        how: impl FnOnce(&mut Writer<'_>) -> Result<T, StopReason>,
    ) -> anyhow::Result<Option<T>> {
        let journal = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&self.acknowledgements)
            .with_context(|| format!("opening {}", self.acknowledgements.display()))?;
        let done = how(&mut Writer { job: self, caller, journal, root, dir: root.join(DIR) });
        match done {
            Ok(done) => Ok(Some(done)),
            Err(StopReason::ByBackend) => Ok(None),
            Err(StopReason::ByHarness(error)) => Err(error),
        }
    }
}

impl Writer<'_> {
    fn note(&mut self, lines: &str) -> Result<(), StopReason> {
        let written = self.journal.write_all(lines.as_bytes());
        written.map_err(|error| {
            let error = anyhow::Error::new(error).context("writing the acknowledgement log");
            StopReason::ByHarness(error)
        })
    }

    fn acknowledge(&mut self, number: u64, version: u64, class: Acknowledgement) -> Result<(), StopReason> {
        self.note(&acknowledge_lines(&[(number, version)], class))
    }

    fn all(&mut self) -> Result<(), StopReason> {
        self.caller.answer.next = self.job.first;
        self.caller.call("mkdir", || fs::create_dir_all(&self.dir))?;
        if self.job.sync != SyncClass::Close {
            self.sync_dir(self.root)?;
        }
        let mut unsynced = Vec::new();
        for version in self.job.first..self.job.first + self.job.changes {
            // A started change is never started again, even if it fails.
            self.caller.answer.next = version + 1;
            let number = self.change(version)?;
            unsynced.push((number, version));
            if self.job.log {
                self.append(version)?;
                unsynced.push((LOG_LINES + version, version));
            }
            if self.job.sync == SyncClass::Sync && version % CHANGES_A_SYNC == 0 {
                self.caller.call("sync", || sync(self.root))?;
                let lines = acknowledge_lines(&unsynced, Acknowledgement::Sync);
                self.note(&lines)?;
                unsynced.clear();
            }
        }
        Ok(())
    }

    fn change(&mut self, version: u64) -> Result<u64, StopReason> {
        let job = self.job;
        let mut dice = ChaCha8Rng::seed_from_u64(job.seed ^ version.wrapping_mul(0x9e37_79b9));
        let number = dice.random_range(0..job.records);
        let how = match dice.random_range(0..10) {
            0 => ChangeMethod::Remove,
            1..=4 => ChangeMethod::Replace,
            _ => ChangeMethod::Overwrite,
        };
        let path = self.dir.join(name(number));
        let change = match how {
            ChangeMethod::Remove => RecordChange::Remove,
            ChangeMethod::Replace => RecordChange::Replace,
            ChangeMethod::Overwrite => RecordChange::Put,
        };
        if matches!(how, ChangeMethod::Overwrite) && self.is_long(number) {
            self.note(&begin_line(number, version, RecordChange::Remove))?;
        }
        self.note(&begin_line(number, version, change))?;
        match how {
            ChangeMethod::Remove => {
                self.caller.call("unlink", || unlink(&path))?;
            }
            ChangeMethod::Overwrite => {
                let file = self.overwrite(number, version)?;
                self.finish(file)?;
            }
            ChangeMethod::Replace => {
                let new = self.dir.join(format!("{NEW}{number}"));
                let file = self.caller.call("create", || File::create(&new))?;
                let (at, bytes) = self.content(number, version);
                self.caller.call("write", || file.write_all_at(&bytes, at))?;
                self.finish(file)?;
                self.caller.call("rename", || fs::rename(&new, &path))?;
            }
        }
        self.acknowledge(number, version, Acknowledgement::Close)?;
        if self.job.sync != SyncClass::Close {
            self.sync_dir(&self.dir.clone())?;
            self.acknowledge(number, version, Acknowledgement::Fsync)?;
        }
        Ok(number)
    }

    fn is_long(&self, number: u64) -> bool {
        self.job.long && number.is_multiple_of(6)
    }

    /// The content of a version of a record, and where it lies in its file.
    fn content(&self, number: u64, version: u64) -> (u64, Vec<u8>) {
        if self.is_long(number) {
            (LONG_AT, content(self.job.seed, number, version, long_bytes(version)))
        } else {
            (0, content(self.job.seed, number, version, self.job.bytes))
        }
    }

    /// Writes a record in place, and keeps its file open.
    fn overwrite(&mut self, number: u64, version: u64) -> Result<File, StopReason> {
        let path = self.dir.join(name(number));
        let (at, bytes) = self.content(number, version);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(self.is_long(number));
        let file = self.caller.call("open", || options.open(&path))?;
        self.caller.call("write", || file.write_all_at(&bytes, at))?;
        self.acknowledge(number, version, Acknowledgement::Write)?;
        Ok(file)
    }

    fn append(&mut self, version: u64) -> Result<(), StopReason> {
        let path = self.root.join(LOG);
        let line = log_line(self.job.seed, version);
        self.note(&begin_line(LOG_LINES + version, version, RecordChange::Put))?;
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        let mut file = self.caller.call("open", || options.open(&path))?;
        self.caller.call("append", || file.write_all(&line))?;
        self.acknowledge(LOG_LINES + version, version, Acknowledgement::Write)?;
        self.finish(file)?;
        if version == self.job.first && self.job.sync != SyncClass::Close {
            // The line may have created the log.
            self.sync_dir(self.root)?;
        }
        let class = match self.job.sync {
            SyncClass::Close => Acknowledgement::Close,
            SyncClass::Fsync | SyncClass::Sync => Acknowledgement::Fsync,
        };
        self.acknowledge(LOG_LINES + version, version, class)
    }

    /// Syncs the file if the job asks for that, and closes it.
    fn finish(&mut self, file: File) -> Result<(), StopReason> {
        if self.job.sync != SyncClass::Close {
            self.caller.call("fsync", || file.sync_all())?;
        }
        Ok(self.caller.call("close", || close(file))?)
    }

    fn sync_dir(&mut self, dir: &Path) -> Result<(), StopReason> {
        let opened = self.caller.call("open", || File::open(dir))?;
        Ok(self.caller.call("fsync", || opened.sync_all())?)
    }

    fn hold(&mut self) -> Result<OpenRecord, StopReason> {
        let job = self.job;
        self.caller.answer.next = job.first + 1;
        self.caller.call("mkdir", || fs::create_dir_all(&self.dir))?;
        // A record that no other change writes.
        let (number, version) = (job.records, job.first);
        self.note(&begin_line(number, version, RecordChange::Put))?;
        let file = self.overwrite(number, version)?;
        let journal = self.journal.try_clone();
        let journal = journal.map_err(|error| StopReason::ByHarness(error.into()))?;
        Ok(OpenRecord { file, number, version, journal })
    }
}

impl OpenRecord {
    /// Syncs and closes the file.
    pub(super) fn sync(mut self, caller: &mut Caller) -> anyhow::Result<()> {
        let file = self.file;
        if caller.call("fsync", || file.sync_all()).is_err() {
            // The failure is recorded. A result of `close` adds nothing to it.
            return Ok(());
        }
        let lines = acknowledge_lines(&[(self.number, self.version)], Acknowledgement::Fsync);
        self.journal.write_all(lines.as_bytes()).context("writing the acknowledgement log")?;
        // A failure of `close` is recorded.
        let _ = caller.call("close", || close(file));
        Ok(())
    }
}

/// Closes a file and returns the error of `close`.
#[expect(unsafe_code, reason = "closing a descriptor and hearing of errors is not in the standard library")]
fn close(file: File) -> io::Result<()> {
    let descriptor = std::os::fd::IntoRawFd::into_raw_fd(file);
    // SAFETY: the descriptor was just taken out of its only owner.
    let result = unsafe { rustix::io::try_close(descriptor) };
    Ok(result?)
}

/// Waits until the bucket has all changes, as `ctxbench s3 sync` does. Without a bucket, syncs the file
/// system.
pub fn sync(root: &Path) -> io::Result<()> {
    match attribute::get(root, "user.ctx.sync") {
        Ok(_) => Ok(()),
        Err(Errno::NODATA | Errno::NOTSUP) => {
            let file = File::open(root)?;
            file.sync_all()?;
            Ok(rustix::fs::syncfs(&file)?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Describes a file that is not a record. For a conflict copy of a record, that includes the version it
/// holds.
fn strange(dir: &Path, name: &str, seed: u64) -> String {
    let record = name.split('.').next().and_then(number);
    let held = record.and_then(|number| {
        let bytes = fs::read(dir.join(name)).ok()?;
        Some(identify_any(seed, number, &bytes))
    });
    match held {
        Some(State::Whole(version)) => format!("{name} (version {version})"),
        Some(State::Empty) => format!("{name} (empty)"),
        _ => name.to_owned(),
    }
}

/// Reads every record and the log. The fact `beside` names files that no job made.
pub(super) fn read(root: &Path, seed: u64, caller: &mut Caller) -> BTreeMap<u64, State> {
    let mut found = BTreeMap::new();
    let dir = root.join(DIR);
    let names = caller.call("readdir", || match names(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    });
    let mut beside = Vec::new();
    for name in names.unwrap_or_default() {
        let Some(number) = number(&name) else {
            if !name.starts_with(NEW) {
                // A file that no job made, such as a conflict copy. It gets a record number from the hash
                // of its name.
                let mut hasher = DefaultHasher::new();
                name.hash(&mut hasher);
                found.insert(STRANGERS + (hasher.finish() >> 16), State::Whole(0));
                beside.push(strange(&dir, &name, seed));
            }
            continue;
        };
        let state = match caller.call("read", || fs::read(dir.join(&name))) {
            Ok(bytes) => identify_any(seed, number, &bytes),
            Err(error) => State::Unreadable(format!("listed, but: {error}")),
        };
        found.insert(number, state);
    }
    if !beside.is_empty() {
        caller.fact("beside", Fact::Words(beside.join(", ")));
    }
    let log = caller.call("read", || match fs::read(root.join(LOG)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        log => log,
    });
    match log {
        Ok(log) => found.extend(log_states(seed, &log)),
        Err(error) => {
            found.insert(LOG_LINES, State::Unreadable(format!("the log: {error}")));
        }
    }
    found
}
