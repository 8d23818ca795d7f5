//! Calls on several hosts that mount the same files. Counts the lines that two hosts added to shared files.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use arms::backend::{Backend, Description, WorkspaceConfig};
use fuse::attribute;
use replay::{Observation, OpenFileTable, PreparedOp, ResultBuffer, only_lines, perform, prepare};
use rundir::{Outcome, SettledLines};
use rustix::io::Errno;
use workloads::definition::{CacheState, Workload};
use workloads::path::WorkspacePath;
use workloads::script::{Bytes, Call, FileOp};

use super::calls::{Pass, READ_BACK_LIMIT, Replay, Results, TimedCalls};
use super::driver::{Driver, Rules};
use super::files::{self, PathCalls};
use super::workspaces::Workspaces;
use crate::clock::Clock;
use trial::watchdog::Watchdog;

/// Pause between reads while one host waits for another host's write.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Pause between comparisons of two hosts.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct HostDriver {
    pub(super) hosts: u32,
}

impl<C: Clock> Driver<C> for HostDriver {
    fn pass(&self, replay: &mut Replay<'_, C>) {
        let Some(prepared) = replay.prepare(PathCalls::prepare) else {
            return;
        };
        let (pass, watchdog) = (replay.pass, replay.watchdog);
        let mut calls = HostCalls { prepared, pass, watchdog, added: BTreeSet::new() };
        replay.measure(|replay| replay.calls(&mut calls));
        let shared = pass.expectations.script.shared_files();
        if shared.is_empty() {
            replay.read_back(files::read_back);
        } else {
            settle(replay, &calls.added, &shared);
        }
    }

    fn unsupported(&self, workload: &Workload, _: CacheState, backend: &Description) -> Option<String> {
        let name = &backend.name;
        if !backend.capabilities.several_hosts {
            return Some(match backend.mounts {
                0 => format!("{name} keeps its files on one machine: no other host sees them"),
                _ => {
                    format!("{name} allows one mount at a time: a second mount is refused, or shows none of the files")
                }
            });
        }
        let waits = backend.capabilities.is_practice && workload.script.waits_for_second_host();
        waits.then(|| {
            format!(
                "{name} copies on a schedule, which no run waits for, so the delay of a note is computed and not measured"
            )
        })
    }

    fn open(&mut self, workspaces: &mut Workspaces, _: &dyn Backend, config: &WorkspaceConfig) -> io::Result<()> {
        workspaces.add_hosts(self.hosts, config)
    }

    fn rules(&self) -> Rules {
        // Another host may show a new directory only after minutes, but it shows the root from the start. Calls that ended in
        // time count even if another call was late.
        Rules { reopens: true, runs_idle_arms: true, counts_failed_passes: true, ..Rules::default() }
    }
}

struct HostCalls<'p> {
    prepared: PathCalls<'p>,
    pass: &'p Pass<'p>,
    watchdog: &'p Watchdog,
    /// Lines whose write succeeded.
    added: BTreeSet<Bytes>,
}

impl TimedCalls for HostCalls<'_> {
    #[inline(always)]
    fn make(&mut self, at: usize, _: &Call, _: &mut Workspaces, results: &mut Results<'_>) {
        let began = Instant::now();
        for op in &self.prepared.0[at] {
            let observed = match op.op {
                FileOp::SeenByOther { content, .. } => Ok(self.poll_until_seen(op, content, began, results.buffer)),
                _ => perform(op, results.buffer),
            };
            results.observed.push(observed);
        }
    }

    fn end(&mut self, calls: &[Call], results: &mut Results<'_>) {
        for (op, observed) in calls.iter().flat_map(|call| &call.ops).zip(&results.observed) {
            if let (FileOp::AddLine { line, .. }, Ok(_)) = (op, observed) {
                self.added.insert(Bytes::clone(line));
            }
        }
    }
}

impl HostCalls<'_> {
    /// Reads a file on another host until it holds `content`, or the timeout of the call that `began` then is over.
    fn poll_until_seen(
        &self,
        op: &PreparedOp<'_>,
        content: &[u8],
        began: Instant,
        buffer: &mut ResultBuffer,
    ) -> Observation {
        let mark = buffer.mark();
        loop {
            buffer.back_to(mark);
            // Retry after an error: the name may appear later.
            if let Ok(Observation::Bytes(place)) = perform(op, buffer)
                && buffer.data[place.clone()] == *content
            {
                return Observation::Bytes(place);
            }
            let is_over = began.elapsed() >= self.pass.call_timeout;
            if is_over || self.watchdog.killed().is_some() || self.pass.interrupt.is_set() {
                return Observation::NotSeen;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Waits until the hosts agree and counts the lines that they added. Late or failed calls do not prevent the count.
fn settle<C: Clock>(replay: &mut Replay<'_, C>, added: &BTreeSet<Bytes>, shared: &BTreeSet<&WorkspacePath>) {
    let worst = replay.passed.worst_outcome.as_ref();
    if worst.is_some_and(|(worst, _)| *worst >= Outcome::WrongData) || replay.passed.interrupted {
        return;
    }
    let files = wait_until_equal(replay.pass, replay.workspaces, replay.watchdog);
    let found = files.and_then(|files| files.count(added, &replay.pass.expectations.end.lines(), shared));
    replay.watchdog.leave();
    match found {
        Ok(settled) => replay.passed.sample.settled = Some(settled),
        Err(Trouble { outcome, reason }) => replay.note(outcome, format!("after both hosts settled: {reason}")),
    }
}

/// Why the lines could not be counted.
#[derive(Debug)]
struct Trouble {
    outcome: Outcome,
    reason: String,
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self { outcome: Outcome::Errno, reason: error.to_string() }
    }
}

/// Syncs both hosts, lets each poll for the other's commits, and waits until both show the same files twice in a row. Waits
/// twice as long as a call may take.
fn wait_until_equal(
    pass: &Pass<'_>,
    workspaces: &mut Workspaces,
    watchdog: &Watchdog,
) -> Result<SettledFiles, Trouble> {
    let began = Instant::now();
    let mut before: Option<Tree> = None;
    loop {
        let mut shown = Vec::new();
        let subtree = workspaces.subtree.clone();
        for mount in workspaces.each() {
            watchdog.enter(READ_BACK_LIMIT);
            mount.sync()?;
            pull(mount.root())?;
        }
        for mount in workspaces.each() {
            watchdog.enter(READ_BACK_LIMIT);
            shown.push(tree(&mount.root().join(&subtree)));
        }
        let is_over = began.elapsed() > 2 * pass.call_timeout || watchdog.killed().is_some() || pass.interrupt.is_set();
        let all: io::Result<Vec<Tree>> = if is_over {
            // Patience is over: an unreadable file is an error now.
            shown.into_iter().collect()
        } else {
            Ok(shown.into_iter().flatten().collect())
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
        std::thread::sleep(COMPARISON_INTERVAL);
    }
}

/// Files by path with their content.
type Tree = BTreeMap<String, Vec<u8>>;

/// The files of all hosts, once both show the same ones or the patience is over.
struct SettledFiles {
    shown: Vec<Tree>,
    agree: bool,
}

impl SettledFiles {
    /// Counts on which hosts and in which files each line of `added` is. `added` are the lines whose write succeeded, `tried` all
    /// lines that a host tried to write.
    fn count(
        &self,
        added: &BTreeSet<Bytes>,
        tried: &BTreeSet<Bytes>,
        shared: &BTreeSet<&WorkspacePath>,
    ) -> Result<SettledLines, Trouble> {
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
        Ok(SettledLines {
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
