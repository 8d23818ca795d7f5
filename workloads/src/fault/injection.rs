//! Injections: the faults that a scenario can inject, with their parameters.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Bounds;
use super::llm::LlmFault;
use super::s3::S3Fault;

/// An injected fault with its parameters: `injection = "kill-daemon"`, or a table such as
/// `[injection.stop-daemon]`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Injection {
    /// No fault: the work as a reference.
    Nothing,

    // The daemon.
    /// The daemon gets SIGKILL.
    KillDaemon,
    /// The daemon gets SIGSTOP, and SIGCONT after `seconds`.
    StopDaemon {
        /// How long the daemon is stopped, in seconds.
        seconds: f64,
        /// How long the daemon is stopped with `--long`, in seconds.
        long_seconds: f64,
    },
    /// The thread that answers a request panics.
    PanicDaemon,
    /// The store is mounted a second time, and a second mount uses the same directory.
    MountTwice,
    /// The mount is removed while a program has a file open and a working directory in it.
    UnmountInUse,
    /// A caller starts repeatedly, and is killed with SIGKILL each time.
    CrashLoop {
        /// Number of kills.
        kills: u32,
    },

    // The storage below the store.
    /// The file system below the store is full.
    FillDisk {
        /// Its size in MiB.
        mib: u64,
    },
    /// The quota below the store is used up.
    FillQuota {
        /// Its size in MiB.
        mib: u64,
    },
    /// The disk below the store loses power.
    CutPower {
        /// Its size in MiB.
        mib: u64,
        /// Number of power cuts.
        cuts: u32,
    },
    /// The file system below the store becomes read-only.
    RemountReadOnly,
    /// Another process holds SQLite's exclusive lock.
    LockDatabase {
        /// How long it holds the lock, in seconds.
        seconds: f64,
    },
    /// The database file loses its second half while it is not mounted.
    TruncateDatabase,
    /// Bits of the database file flip while it is not mounted.
    FlipBits {
        /// Number of flipped bits.
        bits: u32,
    },
    /// The database has the version of a later ctxbench.
    NewerDatabase,
    /// The write-ahead log is removed after a crash.
    RemoveLog,

    // The bucket and the model.
    /// A fault of the S3 server or of the network to it.
    S3(S3Fault),
    /// A fault of the language model's provider.
    Llm(LlmFault),

    // Several agents.
    /// Several processes change one file.
    ManyWriters {
        /// Number of processes.
        processes: u32,
        /// Number of changes by each process.
        times: u32,
        /// How each process changes the file.
        mode: WriteMode,
    },
    /// Two mounts of one store: visibility of changes, and exclusion by locks.
    TwoMounts {
        /// Number of notes handed over.
        notes: u32,
    },

    // The agent.
    /// The agent is killed while it writes.
    KillClient,
    /// Many files are open at once.
    OpenMany {
        /// Number of files.
        files: u64,
    },
    /// Many files are in one directory.
    ManyFiles {
        /// Number of files.
        files: u64,
    },
    /// One large file, most of it a hole.
    LargeFile {
        /// Its size in MiB.
        mib: u64,
        /// How much of it is written, at start, middle and end together, in MiB.
        written_mib: u64,
        /// How much of it is written with `--long`, in MiB.
        long_written_mib: u64,
    },
    /// File names that programs often handle wrongly.
    OddNames,
    /// Directories within directories.
    DeepPath {
        /// Number of nested directories.
        depth: u32,
    },
    /// `rm -rf` removes the tree while records are written into it.
    RemoveTree,
}

/// How several writers change one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// Append each line by one `write` with `O_APPEND`.
    Append,
    /// Read all, append a line, write all.
    ReadModifyWrite,
    /// As `ReadModifyWrite`, under `flock`.
    Locked,
    /// Read all, append a line, write a new file, rename it over the old one.
    Rename,
}

/// The name of an enum's variant in files.
fn variant(of: &impl Serialize) -> String {
    match serde_json::to_value(of) {
        Ok(Value::String(name)) => name,
        Ok(Value::Object(fields)) => fields.into_iter().map(|(name, _)| name).collect(),
        _ => String::new(),
    }
}

impl LlmFault {
    /// Its name in files.
    pub fn name(&self) -> String {
        format!("llm.{}", variant(self))
    }
}

impl Injection {
    /// Its name in files.
    pub fn name(&self) -> String {
        match self {
            Injection::S3(fault) => format!("s3.{}", variant(fault)),
            Injection::Llm(fault) => fault.name(),
            other => variant(other),
        }
    }

    /// Whether a scenario with this injection has a moment.
    pub(super) fn takes_moment(&self) -> bool {
        matches!(self, Injection::KillDaemon)
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), String> {
        for (field, value, least, most) in self.ranges() {
            if !(least..=most).contains(&value) {
                let name = self.name();
                return Err(format!("field `injection.{name}.{field}`: {value} is not from {least} to {most}"));
            }
        }
        Ok(())
    }

    fn ranges(&self) -> Vec<Bounds> {
        let seconds = |field, value| (field, value, 0.001, 3600.0);
        let up_to = |field, value: u64, most: u64| (field, value as f64, 1.0, most as f64);
        match *self {
            Injection::S3(fault) => fault.ranges(),
            Injection::Llm(fault) => fault.ranges(),
            Injection::StopDaemon { seconds: short, long_seconds } => {
                vec![seconds("seconds", short), seconds("long_seconds", long_seconds)]
            }
            Injection::LockDatabase { seconds: locked } => vec![seconds("seconds", locked)],
            Injection::CrashLoop { kills } => vec![up_to("kills", kills.into(), 1000)],
            Injection::FillDisk { mib } | Injection::FillQuota { mib } => {
                vec![up_to("mib", mib, 1024)]
            }
            Injection::CutPower { mib, cuts } => {
                vec![up_to("mib", mib, 1024), up_to("cuts", cuts.into(), 1000)]
            }
            Injection::FlipBits { bits } => vec![up_to("bits", bits.into(), 1_000_000)],
            Injection::ManyWriters { processes, times, .. } => {
                vec![up_to("processes", processes.into(), 64), up_to("times", times.into(), 10_000)]
            }
            Injection::TwoMounts { notes } => vec![up_to("notes", notes.into(), 10_000)],
            Injection::OpenMany { files } | Injection::ManyFiles { files } => {
                vec![up_to("files", files, 1_000_000)]
            }
            Injection::LargeFile { mib, written_mib, long_written_mib } => vec![
                up_to("mib", mib, 65_536),
                up_to("written_mib", written_mib, mib),
                up_to("long_written_mib", long_written_mib, mib),
            ],
            Injection::DeepPath { depth } => vec![up_to("depth", depth.into(), 1000)],
            _ => Vec::new(),
        }
    }
}
