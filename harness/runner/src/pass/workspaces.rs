//! The one or two mounts of an arm. Counts the lines that two hosts added to shared files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use arms::backend::{Workspace, WorkspaceConfig};
use fuse::attribute;
use rundir::{Outcome, Settled};
use rustix::io::Errno;
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, FileOp, Host};

use crate::interrupt::Interrupt;
use crate::supervise::Watchdog;
use replay::{OpenFileTable, ResultBuffer, only_lines, perform, prepare};

/// Pause between comparisons of two hosts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The mount of an arm, a second one if the script needs two hosts, and the subtree in which a pass works.
pub struct Workspaces {
    /// Declared before `first`, so that it is dropped first: it may use resources of `first`.
    second: Option<Box<dyn Workspace>>,
    /// The mount of the first host.
    pub first: Box<dyn Workspace>,
    /// Relative to the root of each mount; empty for the root itself.
    pub subtree: PathBuf,
    /// The source that the calls change through the mount: the first files are made there, and the last ones read.
    pub source: Option<PathBuf>,
}

/// Why the lines could not be counted.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) outcome: Outcome,
    pub(super) reason: String,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self { outcome: Outcome::Errno, reason: error.to_string() }
    }
}

impl Workspaces {
    /// One mount.
    pub fn one(first: Box<dyn Workspace>) -> Self {
        Self { second: None, first, subtree: PathBuf::new(), source: None }
    }

    /// Mounts the files on a second host.
    pub fn add_second(&mut self, config: &WorkspaceConfig) -> io::Result<()> {
        let beside = config.dir.join("second");
        std::fs::create_dir(&beside)?;
        let second = self.first.second_host(&beside);
        let second =
            second.map_err(|error| io::Error::new(error.kind(), format!("mounting a second time: {error}")))?;
        let second = second.ok_or_else(|| io::Error::other("no second host can have it"))?;
        self.second = Some(second);
        Ok(())
    }

    /// Gives the watchdog the kill handles of these mounts for calls that hang.
    pub fn answer_for(&self, watchdog: &Watchdog) {
        watchdog.depend_on(self.first.kill_handle());
        if let Some(second) = &self.second {
            watchdog.depend_on_too(second.kill_handle());
        }
    }

    /// The directory on which an operation works.
    pub fn root(&self, op: &FileOp) -> PathBuf {
        let root = match (op.host(), &self.second) {
            (Host::Second, Some(second)) => second.root(),
            _ => self.first.root(),
        };
        // `join` with an empty path would add a slash.
        match self.subtree.as_os_str().is_empty() {
            true => root.to_owned(),
            false => root.join(&self.subtree),
        }
    }

    /// The directory that holds exactly the files of the script, before and after the calls.
    pub fn files(&self) -> PathBuf {
        self.source.clone().unwrap_or_else(|| self.root(&FileOp::Walk(WorkspacePath::root())))
    }

    /// Why a daemon ended, if one ended unexpectedly.
    pub fn exit_reason(&mut self) -> Option<String> {
        let of_second = |second: &mut Box<dyn Workspace>| {
            let exit_reason = second.exit_reason()?;
            Some(format!("on the second host, {exit_reason}"))
        };
        let first = self.first.exit_reason();
        first.or_else(|| self.second.as_mut().and_then(of_second))
    }

    /// Closes both, the second one first: it may use resources of the first.
    pub fn close(self) -> io::Result<()> {
        let second = self.second.map_or(Ok(()), |second| second.close());
        self.first.close().and(second)
    }

    fn each(&mut self) -> impl Iterator<Item = &mut Box<dyn Workspace>> {
        std::iter::once(&mut self.first).chain(&mut self.second)
    }

    /// Syncs both hosts, lets each poll for the other's commits, and waits until both show the same files twice
    /// in a row. Waits at most `patience`; `limit` is for each step.
    pub(super) fn wait_until_equal(
        &mut self,
        patience: Duration,
        limit: Duration,
        watchdog: &Watchdog,
        interrupt: &Interrupt,
    ) -> Result<SettledFiles, Trouble> {
        let began = Instant::now();
        let mut before: Option<Tree> = None;
        loop {
            let mut shown = Vec::new();
            let subtree = self.subtree.clone();
            for mount in self.each() {
                watchdog.enter(limit);
                mount.sync()?;
                pull(mount.root())?;
            }
            for mount in self.each() {
                watchdog.enter(limit);
                shown.push(tree(&mount.root().join(&subtree)));
            }
            let is_over = began.elapsed() > patience || watchdog.killed().is_some() || interrupt.is_set();
            let all: io::Result<Vec<Tree>> = match is_over {
                // Patience is over: an unreadable file is an error now.
                true => shown.into_iter().collect(),
                false => Ok(shown.into_iter().flatten().collect()),
            };
            let all = all?;
            let agreed = match &all[..] {
                [one, other] if one == other => Some(one.clone()),
                _ => None,
            };
            let agree = agreed.is_some() && agreed == before;
            if agree || is_over {
                return Ok(SettledFiles { shown: all, agree });
            }
            before = agreed;
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Files by path with their content.
type Tree = BTreeMap<String, Vec<u8>>;

/// The files of all hosts, once both show the same ones or the patience is over.
pub(super) struct SettledFiles {
    shown: Vec<Tree>,
    agree: bool,
}

impl SettledFiles {
    /// Counts on which hosts and in which files each line of `added` is. `added` are the lines whose write succeeded, `tried` all
    /// lines that a host tried to write.
    pub(super) fn count(
        &self,
        added: &BTreeSet<Bytes>,
        tried: &BTreeSet<Bytes>,
        shared: &BTreeSet<&WorkspacePath>,
    ) -> Result<Settled, Trouble> {
        let mut copies = BTreeSet::new();
        // By line, on how many hosts it is: in any file, and in a shared one.
        let mut seen: BTreeMap<&[u8], [usize; 2]> = BTreeMap::new();
        for tree in &self.shown {
            let mut here: BTreeMap<&[u8], bool> = BTreeMap::new();
            for (name, bytes) in tree {
                only_lines(tried, bytes)
                    .map_err(|what| Trouble { outcome: Outcome::WrongData, reason: format!("{name} {what}") })?;
                let is_shared = shared.iter().any(|file| file.as_str() == *name);
                for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                    *here.entry(line).or_default() |= is_shared;
                }
                if !is_shared {
                    copies.insert(name.as_str());
                }
            }
            for (line, is_shared) in here {
                let hosts = seen.entry(line).or_default();
                hosts[0] += 1;
                hosts[1] += usize::from(is_shared);
            }
        }
        let count = |is_so: fn([usize; 2]) -> bool| {
            let hosts = |line: &&Bytes| seen.get(&line[..]).copied().unwrap_or_default();
            added.iter().filter(|line| is_so(hosts(line))).count() as u64
        };
        Ok(Settled {
            lines: added.len() as u64,
            on_both: count(|[_, shared]| shared == 2),
            only_in_copies: count(|[any, shared]| any == 2 && shared < 2),
            on_one: count(|[any, _]| any == 1),
            lost: count(|[any, _]| any == 0),
            conflict_copies: copies.len() as u64,
            agree: self.agree,
        })
    }
}

/// All files that a host shows.
fn tree(root: &Path) -> io::Result<Tree> {
    let everything = FileOp::Search(WorkspacePath::root());
    let prepared = prepare(root, &everything, &mut OpenFileTable::new())?;
    let mut buffer = ResultBuffer::new();
    perform(&prepared, &mut buffer)?;
    let files = buffer.entries.iter().filter(|entry| !entry.is_dir);
    let files = files.map(|file| {
        let name = String::from_utf8_lossy(&buffer.names[file.name.clone()]);
        let content = buffer.data[file.content.clone()].to_vec();
        (name.into_owned(), content)
    });
    Ok(files.collect())
}

/// Lets a host poll for others' commits, if its file system can.
fn pull(root: &Path) -> io::Result<()> {
    match attribute::get(root, "user.ctx.pull") {
        Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOENT) => Ok(()),
        Err(error) => Err(io::Error::other(format!("polling for commits of the other host: {error}"))),
    }
}
