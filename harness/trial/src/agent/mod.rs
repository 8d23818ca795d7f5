//! The agent process of a scenario: the only process that touches the mount. It may hang or be killed.
//!
//! It reads one job per line from standard input, as JSON, and writes one JSON answer per line to standard
//! output. Before each call it writes `>` and the call's name, for `agent_process`.

mod client;
mod records;
mod remote;
mod sharing;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rundir::faults::{AgentEventKind, Fact};
use serde::{Deserialize, Serialize};
use workloads::fault::WriteMode;

pub use records::{Changes, OpenRecord};
pub use remote::FileSeries;
pub use sharing::word;

use fuse::attribute;

use super::record::{LOG, State};
use client::timed;

/// A job of an agent process. Its file, directory or workspace comes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    // Records.
    /// Writes, overwrites and removes records of the workspace.
    Change(Changes),
    /// Writes one record and keeps its file open.
    ChangeAndHold(Changes),
    /// Syncs and closes the file that is kept open.
    SyncHeld,
    /// Reads every record of the seed, and the log.
    ReadRecords(u64),
    /// Removes the log of the records.
    RemoveLog,

    // The workspace.
    /// The first calls of any program: list the directory, stat, statfs, write a file and read it.
    Look,
    /// Waits for the bucket, as `ctxbench s3 sync` does.
    Sync,
    /// Asks the mount how many changes are not in the bucket yet. Fact `pending`.
    Pending,

    // A file that several agent processes use.
    /// Adds lines to a file. Fact `not_added` names the lines with a failed call.
    AddLines {
        /// How a line is added.
        how: WriteMode,
        /// Number of the agent process.
        agent: u32,
        /// The number of lines.
        times: u32,
        /// Microseconds between two lines.
        pause_us: u64,
    },
    /// Counts the lines of a file that are whole, damaged or duplicated. Fact `present` names the whole
    /// ones.
    CountLines,
    /// Tries to take an exclusive `flock` and to keep it. Fact `locked`: 1 if it succeeded.
    TryLock,
    /// Releases the lock.
    Unlock,
    /// Waits until a file has this content. Facts `partial_reads` and `seen_after_ms`.
    AwaitText(String),

    // Unusual requests.
    /// Opens so many files in an empty directory at once; writes and reads each through its descriptor.
    OpenMany(u64),
    /// Creates so many files in an empty directory, lists them and removes them.
    ManyFiles(u64),
    /// Writes a large, mostly sparse file.
    LargeFile {
        /// Its size in MiB.
        mib: u64,
        /// MiB that are written: a third each at the start, in the middle and at the end.
        written_mib: u64,
    },
    /// Creates files whose names programs often mishandle.
    OddNames,
    /// Creates so many nested directories with a file at the bottom, and renames the top.
    DeepPath(u32),
    /// `rm -rf`.
    RemoveTree,

    // Files that other hosts or a model also serve.
    /// Writes each file of a series, even after a failure.
    WriteSeries(FileSeries),
    /// Reads each file of a series and compares it with the expected content.
    ReadSeries(FileSeries),
    /// Removes each file of a series.
    RemoveSeries(FileSeries),
    /// Waits until all files of a series have their sizes. Fact `awaited`: how many do.
    AwaitSeries(FileSeries),
    /// Lists a directory. Fact `names`: one name per line.
    List,
    /// Creates an empty directory.
    MakeDir,
    /// Writes a file.
    WriteText(String),
    /// Reads a file whose content is unknown but not empty. Facts `bytes` and `text`.
    ReadAny,
}

impl Job {
    /// Whether the job only uses a file that is open already.
    pub fn is_of_open_file(&self) -> bool {
        matches!(self, Job::SyncHeld | Job::Unlock)
    }
}

/// The result of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobAnswer {
    /// How many `fsync` calls succeeded.
    pub fsyncs: u64,
    /// Duration of the longest call, in nanoseconds.
    pub longest_ns: u64,
    /// Calls that failed or gave a wrong result.
    pub failures: Vec<Failure>,
    /// The number of the next change.
    pub next: u64,
    /// The states of the records that were read.
    pub found: BTreeMap<u64, State>,
    /// Other results of the job, by name.
    pub facts: BTreeMap<String, Fact>,
}

impl JobAnswer {
    /// The first failure, in words.
    pub fn failure(&self) -> Option<String> {
        let first = self.failures.first();
        first.map(|failure| format!("{}: {}", failure.call, failure.text))
    }

    /// A fact that is a count; 0 without it.
    pub fn count(&self, name: &str) -> u64 {
        match self.facts.get(name) {
            Some(Fact::Count(count)) => *count,
            _ => 0,
        }
    }

    /// A fact in words; empty without it.
    pub fn words(&self, name: &str) -> String {
        let fact = self.facts.get(name);
        fact.map(ToString::to_string).unwrap_or_default()
    }
}

/// A call that failed or gave a wrong result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The name of the call.
    pub call: String,
    /// The kind of failure.
    pub what: AgentEventKind,
    /// The error number, if there is one.
    pub errno: Option<i32>,
    /// The system's error text, or a description of the wrong result.
    pub text: String,
}

/// Makes calls and records their results.
#[derive(Default)]
pub(super) struct Caller {
    answer: JobAnswer,
}

impl Caller {
    /// Makes a call and records its failure. The caller decides whether the failure ends the job.
    pub(super) fn call<T>(&mut self, name: &str, call: impl FnOnce() -> io::Result<T>) -> Result<T, io::Error> {
        // Standard output may be closed, and `println!` would panic.
        let _ = writeln!(io::stdout(), ">{name}");
        let started = Instant::now();
        let result = call();
        let took = started.elapsed().as_nanos() as u64;
        self.answer.longest_ns = self.answer.longest_ns.max(took);
        self.answer.fsyncs += u64::from(name == "fsync" && result.is_ok());
        if let Err(error) = &result {
            let errno = error.raw_os_error();
            self.answer.failures.push(Failure {
                call: name.to_owned(),
                what: match errno {
                    Some(_) => AgentEventKind::Errno,
                    None => AgentEventKind::Unnumbered,
                },
                errno,
                text: error.to_string(),
            });
        }
        result
    }

    /// Records that a call succeeded with a wrong result.
    pub(super) fn wrong(&mut self, call: &str, text: String) {
        self.failed(call, AgentEventKind::WrongBytes, text);
    }

    /// Records that a read did not show another writer's data in time.
    pub(super) fn late(&mut self, call: &str, text: String) {
        self.failed(call, AgentEventKind::Late, text);
    }

    fn failed(&mut self, call: &str, what: AgentEventKind, text: String) {
        self.answer.failures.push(Failure { call: call.to_owned(), what, errno: None, text });
    }

    pub(super) fn fact(&mut self, name: &str, fact: Fact) {
        self.answer.facts.insert(name.to_owned(), fact);
    }
}

/// State that an agent process keeps between jobs.
#[derive(Default)]
struct AgentState {
    held: Option<OpenRecord>,
    lock: Option<std::fs::File>,
}

/// Performs jobs until standard input ends.
/// Fails if a job cannot be parsed or an acknowledgement cannot be written. Neither is the backend's failure.
pub fn serve() -> anyhow::Result<()> {
    let mut kept = AgentState::default();
    for line in io::stdin().lock().lines() {
        let (at, job): (PathBuf, Job) = serde_json::from_str(&line?)?;
        let answer = perform(&at, job, &mut kept)?;
        let mut out = io::stdout().lock();
        let answer = serde_json::to_string(&answer)?;
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Performs a job on the file, directory or workspace `at`. Failed calls are in the answer.
fn perform(at: &Path, job: Job, kept: &mut AgentState) -> anyhow::Result<JobAnswer> {
    let caller = &mut Caller::default();
    match job {
        Job::Change(changes) => changes.perform(at, caller)?,
        Job::ChangeAndHold(changes) => kept.held = changes.write_and_hold(at, caller)?,
        Job::SyncHeld => {
            if let Some(held) = kept.held.take() {
                held.sync(caller)?;
            }
        }
        Job::ReadRecords(seed) => caller.answer.found = records::read(at, seed, caller),
        Job::RemoveLog => {
            // There may be no log.
            let _ = caller.call("unlink", || unlink(&at.join(LOG)));
        }
        Job::Look => look(at, caller),
        Job::Sync => {
            let _ = caller.call("sync", || records::sync(at));
        }
        Job::Pending => {
            let asked = || Ok(attribute::get(at, "user.ctx.pending")?);
            if let Ok(pending) = caller.call("getxattr", asked) {
                caller.fact("pending", Fact::Count(pending.trim().parse()?));
            }
        }
        Job::AddLines { how, agent, times, pause_us } => {
            let pause = Duration::from_micros(pause_us);
            sharing::add_lines(at, how, agent, times, pause, caller);
        }
        Job::CountLines => sharing::count(at, caller),
        Job::TryLock => {
            if let Some(lock) = sharing::try_lock(at, caller) {
                kept.lock = Some(lock);
            }
        }
        Job::Unlock => kept.lock = None,
        Job::AwaitText(text) => sharing::await_text(at, &text, caller),
        Job::OpenMany(files) => timed(caller, |caller| client::open_many(at, files, caller)),
        Job::ManyFiles(files) => timed(caller, |caller| client::many_files(at, files, caller)),
        Job::LargeFile { mib, written_mib } => {
            timed(caller, |caller| client::large_file(at, mib, written_mib, caller));
        }
        Job::OddNames => timed(caller, |caller| client::odd_names(at, caller)),
        Job::DeepPath(depth) => timed(caller, |caller| client::deep_path(at, depth, caller)),
        Job::RemoveTree => timed(caller, |caller| client::remove_tree(at, caller)),
        Job::WriteSeries(series) => series.write(at, caller),
        Job::ReadSeries(series) => series.read(at, caller),
        Job::RemoveSeries(series) => series.remove(at, caller),
        Job::AwaitSeries(series) => series.wait_for(at, caller),
        Job::List => remote::list(at, caller),
        Job::MakeDir => {
            let _ = caller.call("mkdir", || std::fs::create_dir(at));
        }
        Job::WriteText(text) => {
            let _ = caller.call("write", || std::fs::write(at, text));
        }
        Job::ReadAny => remote::read_any(at, caller),
    }
    Ok(std::mem::take(&mut caller.answer))
}

/// Removes a file that may be gone already.
fn unlink(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The first calls of any program. Each one is made even if an earlier one failed.
fn look(root: &Path, caller: &mut Caller) {
    let file = root.join("looked");
    let _ = caller.call("readdir", || std::fs::read_dir(root)?.try_for_each(|entry| entry.map(drop)));
    let _ = caller.call("stat", || std::fs::metadata(root));
    // The kernel may cache attributes, but not the free space.
    let _ = caller.call("statfs", || Ok(rustix::fs::statvfs(root)?));
    let _ = caller.call("write", || std::fs::write(&file, b"x"));
    match caller.call("read", || std::fs::read(&file)) {
        Ok(bytes) if bytes != b"x" => {
            caller.wrong("read", format!("{} bytes instead of what was just written", bytes.len()));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_number_does_not_count_as_a_wrong_byte() {
        let mut caller = Caller::default();
        let _ = caller.call::<()>("write", || Err(io::ErrorKind::WriteZero.into()));
        let _ = caller.call::<()>("read", || Err(io::Error::from_raw_os_error(5)));
        caller.late("read", "not seen within 10 ms".to_owned());
        caller.wrong("read", "byte 3 of 9".to_owned());
        let failures = caller.answer.failures.iter();
        let kinds: Vec<_> = failures.map(|failure| failure.what).collect();
        assert_eq!(
            kinds,
            [AgentEventKind::Unnumbered, AgentEventKind::Errno, AgentEventKind::Late, AgentEventKind::WrongBytes]
        );
    }
}
