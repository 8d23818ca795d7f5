//! What can be broken.

use serde::Deserialize;

use super::llm::LlmFault;
use super::s3::S3Fault;

/// What is broken, with its parameters: `injection = "kill-daemon"`, or a table such as `[injection.stop-daemon]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Injection {
    /// Nothing: what the work looks like in a whole world.
    Nothing,

    // The daemon.
    /// `kill -9`.
    KillDaemon,
    /// SIGSTOP, and SIGCONT after so many seconds.
    StopDaemon {
        /// How long it stands still.
        seconds: f64,
        /// How long it should stand still, which is what `--long` does.
        long_seconds: f64,
    },
    /// A panic in the thread that answers a request.
    PanicDaemon,
    /// A second mount of the same store, and one on the same directory.
    MountTwice,
    /// Unmounted while a program has a file open and works in a directory.
    UnmountInUse,
    /// A caller that starts again and again, and is hit by `kill -9` each time.
    CrashLoop {
        /// How often.
        kills: u32,
    },

    // What the store is kept on.
    /// A file system of so many MiB is filled under the store.
    FillDisk {
        /// Its size.
        mib: u64,
    },
    /// A quota of so many MiB is used up under the store.
    FillQuota {
        /// Its size.
        mib: u64,
    },
    /// The power of a disk of so many MiB under the store is cut, so often.
    CutPower {
        /// Its size.
        mib: u64,
        /// How often.
        cuts: u32,
    },
    /// The file system under the store becomes read-only.
    RemountReadOnly,
    /// Another process holds SQLite's exclusive lock for so many seconds.
    LockDatabase {
        /// How long.
        seconds: f64,
    },
    /// The database file loses its second half while nothing is mounted.
    TruncateDatabase,
    /// So many bits of the database file flip while nothing is mounted.
    FlipBits {
        /// How many.
        bits: u32,
    },
    /// The database says that a later ctxbench wrote it.
    NewerDatabase,
    /// The write-ahead log is removed after a crash.
    RemoveLog,

    // The bucket and the model.
    /// The S3 server, or the way to it.
    S3(S3Fault),
    /// The language model's provider.
    Llm(LlmFault),

    // Several agents.
    /// So many processes change one file, each so often.
    ManyWriters {
        /// How many processes.
        processes: u32,
        /// How often each.
        times: u32,
        /// How.
        mode: WriteMode,
    },
    /// Two mounts of one store: what one sees of the other, whether locks exclude.
    TwoMounts {
        /// How many notes are handed over.
        notes: u32,
    },

    // The agent.
    /// The agent is killed while it writes.
    KillClient,
    /// So many files are open at once.
    OpenMany {
        /// How many.
        files: u64,
    },
    /// So many files in one directory.
    ManyFiles {
        /// How many.
        files: u64,
    },
    /// One file of so many MiB, most of it a hole.
    LargeFile {
        /// Its size.
        mib: u64,
        /// How much of it is written, at its start, in its middle and at its end.
        written_mib: u64,
        /// How much of it should be written, which is what `--long` does.
        long_written_mib: u64,
    },
    /// Names that programs trip over.
    OddNames,
    /// Directories within directories.
    DeepPath {
        /// How many.
        depth: u32,
    },
    /// `rm -rf` of the tree while records are written into it.
    RemoveTree,
}

/// How several writers change one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// Each line by one `write` to a file opened for appending.
    Append,
    /// Read all, add a line, write all.
    ReadModifyWrite,
    /// The same under `flock`.
    Locked,
    /// Read all, add a line, write a new file, rename it over the old one.
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

    /// Whether a scenario says when.
    pub(super) fn takes_moment(&self) -> bool {
        matches!(self, Injection::KillDaemon)
    }

    /// Whether its parameters make sense.
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
