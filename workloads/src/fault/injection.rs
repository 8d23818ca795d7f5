//! Injections: the faults that a scenario can inject, with their parameters.

use serde::Deserialize;

use super::llm::LlmFault;
use super::s3::S3Fault;

/// An injected fault with its parameters: `injection = "kill-daemon"`, or a table such as
/// `[injection.stop-daemon]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
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

impl Injection {
    /// Its name in files.
    pub fn name(&self) -> &'static str {
        match self {
            Injection::Nothing => "nothing",
            Injection::S3(fault) => fault.name(),
            Injection::Llm(fault) => fault.name(),
            Injection::KillDaemon => "kill-daemon",
            Injection::StopDaemon { .. } => "stop-daemon",
            Injection::PanicDaemon => "panic-daemon",
            Injection::MountTwice => "mount-twice",
            Injection::UnmountInUse => "unmount-in-use",
            Injection::CrashLoop { .. } => "crash-loop",
            Injection::FillDisk { .. } => "fill-disk",
            Injection::FillQuota { .. } => "fill-quota",
            Injection::CutPower { .. } => "cut-power",
            Injection::RemountReadOnly => "remount-read-only",
            Injection::LockDatabase { .. } => "lock-database",
            Injection::TruncateDatabase => "truncate-database",
            Injection::FlipBits { .. } => "flip-bits",
            Injection::NewerDatabase => "newer-database",
            Injection::RemoveLog => "remove-log",
            Injection::ManyWriters { .. } => "many-writers",
            Injection::TwoMounts { .. } => "two-mounts",
            Injection::KillClient => "kill-client",
            Injection::OpenMany { .. } => "open-many",
            Injection::ManyFiles { .. } => "many-files",
            Injection::LargeFile { .. } => "large-file",
            Injection::OddNames => "odd-names",
            Injection::DeepPath { .. } => "deep-path",
            Injection::RemoveTree => "remove-tree",
        }
    }

    /// Whether a scenario with this injection has a moment.
    pub(super) fn takes_moment(&self) -> bool {
        matches!(self, Injection::KillDaemon)
    }

    /// Checks the parameters.
    pub(super) fn check(&self) -> Result<(), String> {
        let positive = |field: &str, value: f64| {
            let is_so = value > 0.0 && value <= 3600.0;
            let name = self.name();
            is_so.then_some(()).ok_or(format!(
                "field `injection.{name}.{field}`: {value} is not above 0 and at most 3600"
            ))
        };
        let up_to = |field: &str, value: u64, most: u64| {
            let name = self.name();
            (1..=most).contains(&value).then_some(()).ok_or(format!(
                "field `injection.{name}.{field}`: {value} is not from 1 to {most}"
            ))
        };
        match self {
            Injection::S3(fault) => fault.check(),
            Injection::Llm(fault) => fault.check(),
            Injection::StopDaemon {
                seconds,
                long_seconds,
            } => {
                positive("seconds", *seconds)?;
                positive("long_seconds", *long_seconds)
            }
            Injection::LockDatabase { seconds } => positive("seconds", *seconds),
            Injection::CrashLoop { kills } => up_to("kills", (*kills).into(), 1000),
            Injection::FillDisk { mib } | Injection::FillQuota { mib } => up_to("mib", *mib, 1024),
            Injection::CutPower { mib, cuts } => {
                up_to("mib", *mib, 1024)?;
                up_to("cuts", (*cuts).into(), 1000)
            }
            Injection::FlipBits { bits } => up_to("bits", (*bits).into(), 1_000_000),
            Injection::ManyWriters {
                processes, times, ..
            } => {
                up_to("processes", (*processes).into(), 64)?;
                up_to("times", (*times).into(), 10_000)
            }
            Injection::TwoMounts { notes } => up_to("notes", (*notes).into(), 10_000),
            Injection::OpenMany { files } | Injection::ManyFiles { files } => {
                up_to("files", *files, 1_000_000)
            }
            Injection::LargeFile {
                mib,
                written_mib,
                long_written_mib,
            } => {
                up_to("mib", *mib, 65_536)?;
                up_to("written_mib", *written_mib, *mib)?;
                up_to("long_written_mib", *long_written_mib, *mib)
            }
            Injection::DeepPath { depth } => up_to("depth", (*depth).into(), 1000),
            _ => Ok(()),
        }
    }
}
