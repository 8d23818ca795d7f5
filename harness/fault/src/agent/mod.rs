//! The agent process of a scenario: the only process that touches the mount. It may hang or be killed.
//!
//! It reads one JSON task per line from standard input and writes one JSON answer per line to standard
//! output. Before each call it writes `>` and the call's name, for the watchdog in `watch`.

mod client;
mod records;
mod remote;
mod sharing;

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rundir::faults::{Fact, SeenKind};
use serde::{Deserialize, Serialize};

pub use client::ClientTask;
pub use records::{Held, LastCall, WriteTask};
pub use remote::{RemoteTask, Series};
pub use sharing::{How, ShareTask, word};

use super::record::{LOG, State};
use backends::attribute;

/// A task of an agent process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Writes, overwrites and removes records.
    Write(WriteTask),
    /// Writes one record and keeps its file open.
    WriteAndHold(WriteTask),
    /// Syncs and closes the file that is kept open.
    SyncHeld,
    /// Reads every record and the log.
    ReadRecords {
        /// The workspace.
        root: PathBuf,
        /// The seed of the records.
        seed: u64,
    },
    /// The first calls of any program: list the directory, stat, statfs, write a file and read it.
    Look {
        /// The workspace.
        root: PathBuf,
    },
    /// Waits for the bucket, as `ctxbench s3 sync` does.
    Sync {
        /// The workspace.
        root: PathBuf,
    },
    /// Asks the mount how many changes are not in the bucket yet. Fact `pending`.
    Pending {
        /// The workspace.
        root: PathBuf,
    },
    /// Removes the log of the records.
    RemoveLog {
        /// The workspace.
        root: PathBuf,
    },
    /// A task of several concurrent agent processes on one file.
    Share(ShareTask),
    /// A task of unusual requests.
    Client(ClientTask),
    /// A task on files that other hosts or a model also serve.
    Remote(RemoteTask),
}

impl Task {
    /// A path that the task works on. `None` if it only uses an open file.
    pub fn place(&self) -> Option<&Path> {
        match self {
            Task::Write(task) | Task::WriteAndHold(task) => Some(&task.root),
            Task::SyncHeld => None,
            Task::ReadRecords { root, .. }
            | Task::Look { root }
            | Task::Sync { root }
            | Task::Pending { root }
            | Task::RemoveLog { root } => Some(root),
            Task::Share(task) => task.place(),
            Task::Client(task) => Some(task.place()),
            Task::Remote(task) => Some(task.place()),
        }
    }
}

/// The result of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// How many calls were made.
    pub calls: u64,
    /// How many of them were successful `fsync` calls.
    pub fsyncs: u64,
    /// Duration of the longest call, in nanoseconds.
    pub longest_ns: u64,
    /// Calls that failed or gave a wrong result.
    pub failures: Vec<Failure>,
    /// The number of the next change.
    pub next: u64,
    /// The states of the records that were read.
    pub found: BTreeMap<u64, State>,
    /// Other results of the task, by name.
    pub facts: BTreeMap<String, Fact>,
}

/// A call that failed or gave a wrong result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The name of the call.
    pub call: String,
    /// The kind of failure.
    pub what: SeenKind,
    /// The error number, if there is one.
    pub errno: Option<i32>,
    /// The system's error text, or a description of the wrong result.
    pub text: String,
}

/// Makes calls and records their results.
#[derive(Default)]
pub(super) struct Caller {
    answer: Answer,
}

impl Caller {
    /// Makes a call and records its failure. The caller decides whether the failure ends the task.
    pub(super) fn call<T>(
        &mut self,
        name: &str,
        call: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, io::Error> {
        // Standard output may be closed, and `println!` would panic.
        let _ = writeln!(io::stdout(), ">{name}");
        let started = Instant::now();
        let result = call();
        self.answer.calls += 1;
        let took = started.elapsed().as_nanos() as u64;
        self.answer.longest_ns = self.answer.longest_ns.max(took);
        self.answer.fsyncs += u64::from(name == "fsync" && result.is_ok());
        if let Err(error) = &result {
            let errno = error.raw_os_error();
            self.answer.failures.push(Failure {
                call: name.to_owned(),
                what: match errno {
                    Some(_) => SeenKind::Errno,
                    None => SeenKind::Unnumbered,
                },
                errno,
                text: error.to_string(),
            });
        }
        result
    }

    /// Records that a call succeeded with a wrong result.
    pub(super) fn wrong(&mut self, call: &str, text: String) {
        self.failed(call, SeenKind::WrongBytes, text);
    }

    /// Records that a read did not show another writer's data in time.
    pub(super) fn late(&mut self, call: &str, text: String) {
        self.failed(call, SeenKind::Late, text);
    }

    fn failed(&mut self, call: &str, what: SeenKind, text: String) {
        self.answer.failures.push(Failure {
            call: call.to_owned(),
            what,
            errno: None,
            text,
        });
    }

    pub(super) fn fact(&mut self, name: &str, fact: Fact) {
        self.answer.facts.insert(name.to_owned(), fact);
    }
}

/// State that an agent process keeps between tasks.
#[derive(Default)]
struct Kept {
    held: Option<Held>,
    share: sharing::Kept,
}

/// Performs tasks until standard input ends.
///
/// # Errors
/// If a task cannot be parsed or an acknowledgement cannot be written. Neither is the backend's failure.
pub fn serve() -> anyhow::Result<()> {
    let mut kept = Kept::default();
    for line in io::stdin().lock().lines() {
        let task: Task = serde_json::from_str(&line?)?;
        let answer = perform(task, &mut kept)?;
        let mut out = io::stdout().lock();
        let answer = serde_json::to_string(&answer)?;
        if writeln!(out, "{answer}")
            .and_then(|()| out.flush())
            .is_err()
        {
            break;
        }
    }
    Ok(())
}

fn perform(task: Task, kept: &mut Kept) -> anyhow::Result<Answer> {
    let mut caller = Caller::default();
    match task {
        Task::Write(task) => task.perform(&mut caller)?,
        Task::WriteAndHold(task) => kept.held = task.write_and_hold(&mut caller)?,
        Task::SyncHeld => {
            if let Some(held) = kept.held.take() {
                held.sync(&mut caller)?;
            }
        }
        Task::ReadRecords { root, seed } => {
            caller.answer.found = records::read(&root, seed, &mut caller);
        }
        Task::Look { root } => look(&root, &mut caller),
        Task::Sync { root } => {
            // A failure is recorded.
            let _ = caller.call("sync", || records::sync(&root));
        }
        Task::Pending { root } => {
            let asked = || Ok(attribute::get(&root, "user.ctx.pending")?);
            if let Ok(pending) = caller.call("getxattr", asked) {
                caller.fact("pending", Fact::Count(pending.trim().parse()?));
            }
        }
        Task::RemoveLog { root } => {
            // A failure is recorded. There may be no log.
            let _ = caller.call("unlink", || match std::fs::remove_file(root.join(LOG)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                removed => removed,
            });
        }
        Task::Share(task) => task.perform(&mut caller, &mut kept.share)?,
        Task::Client(task) => task.perform(&mut caller),
        Task::Remote(task) => task.perform(&mut caller),
    }
    Ok(caller.answer)
}

/// The first calls of any program. Each one is made even if an earlier one failed.
fn look(root: &Path, caller: &mut Caller) {
    let file = root.join("looked");
    let _ = caller.call("readdir", || {
        std::fs::read_dir(root)?.try_for_each(|entry| entry.map(drop))
    });
    let _ = caller.call("stat", || std::fs::metadata(root));
    // The kernel may cache attributes, but not the free space.
    let _ = caller.call("statfs", || Ok(rustix::fs::statvfs(root)?));
    let _ = caller.call("write", || std::fs::write(&file, b"x"));
    match caller.call("read", || std::fs::read(&file)) {
        Ok(bytes) if bytes != b"x" => {
            caller.wrong(
                "read",
                format!("{} bytes instead of what was just written", bytes.len()),
            );
        }
        _ => {}
    }
}

/// Sleeps for `micros` microseconds.
fn pause(micros: u64) {
    if micros > 0 {
        std::thread::sleep(Duration::from_micros(micros));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_without_a_number_is_no_wrong_byte() {
        let mut caller = Caller::default();
        let _ = caller.call::<()>("write", || Err(io::ErrorKind::WriteZero.into()));
        let _ = caller.call::<()>("read", || Err(io::Error::from_raw_os_error(5)));
        caller.late("read", "not seen within 10 ms".to_owned());
        caller.wrong("read", "byte 3 of 9".to_owned());
        let kinds: Vec<_> = caller.answer.failures.iter().map(|own| own.what).collect();
        assert_eq!(
            kinds,
            [
                SeenKind::Unnumbered,
                SeenKind::Errno,
                SeenKind::Late,
                SeenKind::WrongBytes
            ]
        );
    }
}
