//! The agent of a scenario: a process of its own, which alone touches the mount, and may hang or be killed.
//!
//! It takes one task a line on standard input and answers one line each on standard output, both JSON. Before each
//! call it says `>` and the call's name, so that whoever waits knows in which call it hangs.

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

/// What an agent is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Write, overwrite and remove records.
    Write(WriteTask),
    /// Write one record, and keep its file open.
    WriteAndHold(WriteTask),
    /// `fsync` and close the file that is kept open.
    SyncHeld,
    /// Read every record there is, and the log.
    ReadRecords {
        /// The workspace.
        root: PathBuf,
        /// The seed of the records.
        seed: u64,
    },
    /// What any program does first: list the directory, ask for attributes, read a file, write a byte.
    Look {
        /// The workspace.
        root: PathBuf,
    },
    /// What `ctxbench s3 sync` does.
    Sync {
        /// The workspace.
        root: PathBuf,
    },
    /// How many changes are not in the bucket yet, as the mount says when asked; fact `pending`.
    Pending {
        /// The workspace.
        root: PathBuf,
    },
    /// Remove the log of the records.
    RemoveLog {
        /// The workspace.
        root: PathBuf,
    },
    /// Something that several agents do at once.
    Share(ShareTask),
    /// Something that only an agent can do wrong.
    Client(ClientTask),
    /// Files that several hosts or a model have to do with.
    Remote(RemoteTask),
}

impl Task {
    /// Something in the file system that it touches; `None` where it goes on with what is open.
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

/// What came of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Calls that were made.
    pub calls: u64,
    /// Of those, calls of `fsync` that succeeded.
    pub fsyncs: u64,
    /// The longest of them, in nanoseconds.
    pub longest_ns: u64,
    /// Calls that failed, or gave what they should not.
    pub failures: Vec<Failure>,
    /// The next change's number.
    pub next: u64,
    /// Records that were found.
    pub found: BTreeMap<u64, State>,
    /// What else was found.
    pub facts: BTreeMap<String, Fact>,
}

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The call.
    pub call: String,
    /// What came of it.
    pub what: SeenKind,
    /// The error number, where there was one.
    pub errno: Option<i32>,
    /// What the system said, or what was wrong.
    pub text: String,
}

/// Makes calls, and notes what came of them.
#[derive(Default)]
pub(super) struct Caller {
    answer: Answer,
}

impl Caller {
    /// Makes a call; its failure is noted, and ends the task where it is not expected.
    pub(super) fn call<T>(
        &mut self,
        name: &str,
        call: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, io::Error> {
        // Nobody may be listening any more; `println!` would panic.
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

    /// Notes that a call succeeded with something wrong.
    pub(super) fn wrong(&mut self, call: &str, text: String) {
        self.failed(call, SeenKind::WrongBytes, text);
    }

    /// Notes that what another had written was not seen in time.
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

/// What an agent keeps from one task to the next.
#[derive(Default)]
struct Kept {
    held: Option<Held>,
    share: sharing::Kept,
}

/// Takes tasks until standard input ends.
///
/// # Errors
/// If a task cannot be read, or an acknowledgement not be written: neither is the backend's doing.
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
            // What came of it is noted.
            let _ = caller.call("sync", || records::sync(&root));
        }
        Task::Pending { root } => {
            let asked = || Ok(attribute::get(&root, "user.ctx.pending")?);
            if let Ok(pending) = caller.call("getxattr", asked) {
                caller.fact("pending", Fact::Count(pending.trim().parse()?));
            }
        }
        Task::RemoveLog { root } => {
            // What came of it is noted; there may be none.
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

/// Four calls that any program makes; each is made whatever came of the one before.
fn look(root: &Path, caller: &mut Caller) {
    let file = root.join("looked");
    let _ = caller.call("readdir", || {
        std::fs::read_dir(root)?.try_for_each(|entry| entry.map(drop))
    });
    let _ = caller.call("stat", || std::fs::metadata(root));
    // The kernel may have attributes in its cache; the space left never is.
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

/// Sleeps for so many microseconds, which may be none.
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
