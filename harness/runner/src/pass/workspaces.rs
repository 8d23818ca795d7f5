//! The mounts of an arm, one for each host, and operations outside the clock that fill, restore and warm them.

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use arms::backend::{Workspace, WorkspaceConfig};
use replay::{Observation, OpenFileTable, ResultBuffer, perform, prepare, verify};
use rundir::Outcome;
use rustix::io::Errno;
use workloads::filler::fill;
use workloads::model::{ExpectedResult, ReferenceModel, Restoration};
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, FileOp, Script};

use trial::watchdog::Watchdog;

/// The mount of an arm, one of each further host that the script needs, and the subtree in which a pass works.
pub struct Workspaces {
    /// The mounts of the other hosts. Declared before `first`, so that they are dropped first: they may use resources of `first`.
    others: Vec<Box<dyn Workspace>>,
    /// The mount of the first host.
    pub first: Box<dyn Workspace>,
    /// Relative to the root of each mount; empty for the root itself.
    pub subtree: PathBuf,
    /// The source that the calls change through the mount: the first files are made there, and the last ones read.
    pub source: Option<PathBuf>,
}

impl Workspaces {
    /// One mount.
    pub fn one(first: Box<dyn Workspace>) -> Self {
        Self { others: Vec::new(), first, subtree: PathBuf::new(), source: None }
    }

    /// Mounts the files on further hosts, until there are so many in all.
    pub(super) fn add_hosts(&mut self, hosts: u32, config: &WorkspaceConfig) -> io::Result<()> {
        for number in 2..=hosts {
            // A mount may take the name of its host from this directory.
            let beside = config.dir.join(format!("host{number}"));
            std::fs::create_dir(&beside)?;
            let other = self.first.second_host(&beside);
            let other =
                other.map_err(|error| io::Error::new(error.kind(), format!("mounting on host {number}: {error}")))?;
            self.others.push(other.ok_or_else(|| io::Error::other("no second host can have it"))?);
        }
        Ok(())
    }

    /// Gives the watchdog the kill handles of these mounts for calls that hang.
    pub fn answer_for(&self, watchdog: &Watchdog) {
        watchdog.depend_on(self.first.kill_handle());
        for other in &self.others {
            watchdog.depend_on_too(other.kill_handle());
        }
    }

    /// The directory on which an operation works.
    pub(super) fn root(&self, op: &FileOp) -> PathBuf {
        let other = (op.host().0 as usize).checked_sub(1).and_then(|at| self.others.get(at));
        other.map_or_else(|| self.mounted(), |other| self.subtree_of(&**other))
    }

    /// The directory of the calls, on the first host.
    pub fn mounted(&self) -> PathBuf {
        self.subtree_of(&*self.first)
    }

    fn subtree_of(&self, mount: &dyn Workspace) -> PathBuf {
        // `join` with an empty path would add a slash.
        if self.subtree.as_os_str().is_empty() { mount.root().to_owned() } else { mount.root().join(&self.subtree) }
    }

    /// The directory that holds exactly the files of the script, before and after the calls.
    pub fn files(&self) -> PathBuf {
        self.source.clone().unwrap_or_else(|| self.mounted())
    }

    /// Why a daemon ended, if one ended unexpectedly.
    pub fn exit_reason(&mut self) -> Option<String> {
        let first = self.first.exit_reason();
        first.or_else(|| {
            let mut others = (2..).zip(&mut self.others);
            others.find_map(|(number, other)| Some(format!("on host {number}, {}", other.exit_reason()?)))
        })
    }

    /// Closes all, the first one last: the others may use resources of it.
    pub fn close(self) -> io::Result<()> {
        let mut ended = Ok(());
        // Each is closed, also after one that fails.
        for other in self.others {
            ended = ended.and(other.close());
        }
        self.first.close().and(ended)
    }

    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Workspace>> {
        std::iter::once(&mut self.first).chain(&mut self.others)
    }
}

/// The outcome of a failure, and what to add to its reason: a hang if the watchdog cut off a call, a crash if a daemon ended.
pub fn failure(watchdog: &Watchdog, exit_reason: Option<String>, otherwise: Outcome) -> (Outcome, String) {
    match (watchdog.killed(), exit_reason) {
        (Some(cut), _) => (Outcome::Hang, format!("; {cut}")),
        (None, Some(exit_reason)) => (Outcome::Crash, format!("; {exit_reason}")),
        (None, None) => (otherwise, String::new()),
    }
}

/// Performs operations outside the clock.
pub struct Steps<'a> {
    /// The directory in which they work.
    pub root: &'a Path,
    /// Cuts off an operation that hangs.
    pub watchdog: &'a Watchdog,
    /// How long each operation may take.
    pub limit: Duration,
    /// Buffers for their results.
    pub buffer: &'a mut ResultBuffer,
}

impl Steps<'_> {
    pub(super) fn perform(&mut self, op: &FileOp) -> io::Result<Result<Observation, Errno>> {
        let prepared = prepare(self.root, op, &mut OpenFileTable::new())?;
        self.buffer.clear();
        self.watchdog.enter(self.limit);
        Ok(perform(&prepared, self.buffer))
    }

    pub(super) fn expect(&mut self, op: &FileOp, expected: &ExpectedResult) -> io::Result<()> {
        let observed = self.perform(op)?;
        verify(op, expected, &observed, self.buffer).map_err(io::Error::other)
    }

    /// Creates the first files of a script, with its filler files in `beside`, and lets its set-up programs complete them.
    pub fn fill(&mut self, script: &Script, beside: &Path) -> io::Result<()> {
        if script.filler.count == 0 {
            self.make(&script.dirs, &script.files)?;
        } else {
            self.make(&script.dirs, &[])?;
            for (number, file) in script.files.iter().enumerate() {
                self.make(&[], std::slice::from_ref(file))?;
                // Directories of moderate size, however many files there are.
                let dir = beside.join(number.to_string());
                self.make_filler(&dir, script.filler.after(number, script.files.len()), script.filler.bytes)?;
            }
        }
        for run in &script.setup {
            let op = FileOp::Run(Box::new(run.clone()));
            self.expect(&op, &ExpectedResult::Ran(run.output.clone()))?;
        }
        let now = std::time::SystemTime::now();
        for ((path, _), age) in script.files.iter().zip(&script.ages_ns) {
            self.watchdog.enter(self.limit);
            let file = std::fs::File::open(path.below(self.root))?;
            file.set_modified(now - Duration::from_nanos(*age))?;
        }
        Ok(())
    }

    /// Restores the first files of a script.
    pub fn restore(&mut self, restoration: &Restoration) -> io::Result<()> {
        for path in &restoration.removed_files {
            self.watchdog.enter(self.limit);
            std::fs::remove_file(path.below(self.root))?;
        }
        for path in &restoration.removed_dirs {
            self.watchdog.enter(self.limit);
            std::fs::remove_dir(path.below(self.root))?;
        }
        self.make(&restoration.dirs, &restoration.created)?;
        for change in &restoration.changed {
            self.watchdog.enter(self.limit);
            let file = OpenOptions::new().write(true).open(change.path.below(self.root))?;
            if let Some(length) = change.length {
                file.set_len(length)?;
            }
            file.write_all_at(&change.content, change.offset)?;
        }
        Ok(())
    }

    fn make_filler(&self, dir: &Path, numbers: Range<u64>, bytes: u32) -> io::Result<()> {
        std::fs::create_dir_all(dir)?;
        for number in numbers {
            // Other bytes in each, so that no backend can keep one copy of all.
            let content = fill(number, bytes.into(), u64::from(bytes) / 40);
            let path = dir.join(number.to_string());
            self.watchdog.enter(self.limit);
            std::fs::write(&path, content)
                .map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))?;
        }
        Ok(())
    }

    fn make(&mut self, dirs: &[WorkspacePath], files: &[(WorkspacePath, Bytes)]) -> io::Result<()> {
        let dirs = dirs.iter().map(|dir| FileOp::MakeDir(dir.clone()));
        let files = files.iter().map(|(path, content)| FileOp::Write {
            path: path.clone(),
            content: Bytes::clone(content),
            sync: false,
        });
        for op in dirs.chain(files) {
            self.perform(&op)?.map_err(|errno| {
                let kind = io::Error::from(errno).kind();
                io::Error::new(kind, format!("{}: {errno}", op.describe()))
            })?;
        }
        Ok(())
    }

    /// Makes the caches of a script's files hot. `skip` selects operations that warm nothing on this backend.
    pub fn warm_up(
        &mut self,
        script: &Script,
        model: &mut ReferenceModel,
        skip: impl Fn(&FileOp) -> bool,
    ) -> io::Result<()> {
        let mut ops = script.warm_up.iter().filter(|op| !skip(op));
        ops.try_for_each(|op| self.expect(op, &model.apply(op)))
    }

    /// As [`Steps::warm_up`], on a backend that shows more than the script's files: each file is read, and each of its
    /// directories is listed.
    pub fn warm_up_among_others(&mut self, script: &Script) -> io::Result<()> {
        let reads = script.files.iter().map(|(path, _)| FileOp::Read(path.clone()));
        let lists = script.dirs.iter().map(|dir| FileOp::list(dir.clone(), true));
        for op in reads.chain(lists) {
            self.perform(&op)?.map_err(|errno| io::Error::other(format!("{}: {errno}", op.describe())))?;
        }
        Ok(())
    }
}
