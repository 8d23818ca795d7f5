//! The [`Backend`] and [`Workspace`] traits.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::connection::{Connection, detach};
use fuse::{Counters, own_file};
use processes::send;
use rustix::process::Signal;
use serde::Serialize;

use crate::promise::Promises;
use crate::source::Source;

/// The abilities of a backend. The harness skips a cell that needs a missing capability, with a reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// A read returns the bytes that were written.
    pub holds_data: bool,
    /// Files survive a stop and start of the daemon.
    pub persistent: bool,
    /// A daemon of ours counts the requests that reach it.
    pub counts_requests: bool,
    /// The mount answers lookups of names such as `:search?words`.
    pub answers_requests: bool,
    /// A language model produces a file's content at each read. A read is slow, warms no cache, and may be
    /// wrong.
    pub guesses_content: bool,
    /// A restarted daemon has an empty local cache, as on a new host. The first read of a file fetches it
    /// from the server.
    pub starts_empty: bool,
    /// A second host can mount the same files at the same time: [`Workspace::second_host`].
    pub several_hosts: bool,
    /// It stands for what a team does without a backend: rows of policies compare with it, and it is no candidate.
    pub is_practice: bool,
    /// Calls change the files of the source that it shows ([`Backend::source`]), in the directories of a controller. It
    /// lists entries that it computes, too.
    pub changes_source: bool,
}

/// A requirement of a backend, such as a program on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// The requirement's name, such as a device or a program.
    pub name: String,
    /// Why the backend needs it.
    pub why: String,
}

/// A backend's properties, the same on every machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Description {
    /// The name on the command line and in results.
    pub name: String,
    /// The TOML file that defines it, for a backend that is not part of this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// One sentence for help texts and reports.
    pub summary: String,
    /// Which completed calls survive a killed daemon and power loss.
    pub durability: String,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Processes that must run, besides the agent, while its files are in use.
    pub daemons: u32,
    /// Mounts that must exist while its files are in use.
    pub mounts: u32,
    /// Requirements, besides the kernel's own file system and the `ctxbench` binary.
    pub needs: Vec<Need>,
    /// Lines of this project's code that serve its files, without comments and tests.
    /// 0 for third-party file systems, whose code is not counted.
    pub lines_of_code: u32,
}

/// The [`Need::name`] of backends that request answers from a language model.
pub const MODEL: &str = "a language model";

impl Description {
    /// Whether the backend needs a language model.
    pub fn needs_model(&self) -> bool {
        self.needs.iter().any(|need| need.name == MODEL)
    }
}

/// The component whose version is the digest of a definition: only file systems of others have it.
pub const DEFINITION: &str = "definition";

/// The directory below [`WorkspaceConfig::dir`] that holds the files, mounted or not. All backends use one name: a longer
/// path takes longer to resolve.
pub const FILES: &str = "mnt";

/// Versions of a backend's components, by component.
pub type Versions = BTreeMap<String, String>;

/// Why a backend cannot be used on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (fix: {fix})")]
pub struct Unavailable {
    /// The missing requirement.
    pub reason: String,
    /// How to fix it.
    pub fix: String,
}

/// How long a daemon of the harness may take to start or to stop.
pub const DAEMON_PATIENCE: Duration = Duration::from_secs(20);

/// Where and how a workspace runs.
#[derive(Clone, Debug)]
pub struct WorkspaceConfig {
    /// A directory for this workspace alone, empty before the first open.
    pub dir: PathBuf,
    /// The `ctxbench` binary, for daemons.
    pub program: PathBuf,
    /// How long a daemon may take to start or to stop.
    pub patience: Duration,
    /// The processor on which a daemon answers requests; `None` for any.
    pub cpu: Option<usize>,
    /// Permit other users, subject to file permissions (`allow_other`); needs root.
    pub allow_other: bool,
}

impl WorkspaceConfig {
    /// A workspace in `dir` for this user alone, whose daemons have 20 seconds to start or to stop. `program` is the
    /// `ctxbench` binary.
    pub fn new(dir: PathBuf, program: PathBuf) -> Self {
        Self { dir, program, patience: DAEMON_PATIENCE, cpu: None, allow_other: false }
    }
}

/// Options and environment of a daemon, besides those that every daemon gets.
#[derive(Clone, Default)]
pub struct Launch {
    /// Options of `ctxbench mount`.
    pub arguments: Vec<OsString>,
    /// Environment variables; the only way to pass keys.
    pub environment: Vec<(&'static str, String)>,
}

/// How callers access the files of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By paths, from any program.
    Paths,
    /// By tool calls of an agent: [`Workspace::tools`].
    Tools,
    /// By calls in the harness's own process: [`Workspace::client`].
    Client,
    /// By an external program that makes and times a workload's calls: [`Workspace::timed_reader`].
    Program,
}

/// One way to hold an agent's context as files.
pub trait Backend: Send + Sync {
    /// Its properties; the same on every machine.
    fn describe(&self) -> Description;

    /// How callers access its files.
    fn access(&self) -> Access {
        Access::Paths
    }

    /// Whether other programs can open its files by path.
    fn has_paths(&self) -> bool {
        self.access() == Access::Paths
    }

    /// Why the backend cannot run a workload that reads files; `None` if it can. `workload` is the
    /// workload's name, `sha256` the hash of its content.
    fn unsupported_reason(&self, workload: &str, sha256: &str) -> Option<String> {
        let _ = (workload, sha256);
        None
    }

    /// Whether the files of a workspace are on a server that this process starts and ends: a run measures such a backend,
    /// and an agent's own files must not be there.
    fn ends_with_process(&self) -> bool {
        false
    }

    /// Its durability promises. For a third-party file system, those of POSIX.
    fn promises(&self) -> Promises {
        Promises::POSIX
    }

    /// The same backend with `launch` replacing its own daemon options, so that its daemons use a fault
    /// scenario's server. `None` for a backend without a daemon of ours.
    fn with_launch(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        let _ = launch;
        None
    }

    /// The same backend with one more option of `ctxbench mount` at each mount, such as the one that an
    /// error message suggests. `None` for a backend without a daemon of ours.
    fn with_option(&self, option: &str) -> Option<Box<dyn Backend>> {
        let _ = option;
        None
    }

    /// The SQLite database of a workspace of `config`; `None` for a backend without one.
    fn database(&self, config: &WorkspaceConfig) -> Option<PathBuf> {
        let _ = config;
        None
    }

    /// The data that other programs write and this backend shows, for a workspace in `dir`. A backend with such data
    /// takes part only in workloads of tasks, and in those of a controller if it [changes](Capabilities::changes_source)
    /// the source. `None` for a backend whose files only its agent changes.
    fn source(&self, dir: &Path) -> Option<Source> {
        let _ = dir;
        None
    }

    /// As [`Workspace::second_host`], whether or not the workspace of `config` is open. `None` where that is not
    /// possible.
    ///
    /// # Errors
    /// As [`Workspace::second_host`].
    fn second_host(&self, config: &WorkspaceConfig, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        let _ = (config, beside);
        Ok(None)
    }

    /// The versions of its components on this machine. A measurement requires them.
    ///
    /// # Errors
    /// [`Unavailable`] if the backend cannot be used on this machine.
    fn versions(&self) -> Result<Versions, Unavailable>;

    /// Opens the workspace of `config`: a new empty one, or the files that an earlier workspace left there.
    ///
    /// # Errors
    /// If the workspace cannot start. No process and no mount remains, only files in `config.dir`.
    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>>;

    /// Opens a workspace in `config.dir`, where the state of another workspace was copied, or which lost its own: nothing
    /// is set up again.
    ///
    /// # Errors
    /// As [`Backend::open`].
    fn open_copy(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        self.open(config)
    }

    /// A common command that prints a file of a workspace of `config` while the backend is stopped:
    /// program and arguments. `None` where that is not possible.
    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        let _ = (config, name);
        None
    }
}

/// A property that a backend offers by a command, while it is mounted. Paths are relative to the agent's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyCall<'a> {
    /// Saves the state of this moment. The answer's last word is the name of the snapshot; without an answer, the snapshot
    /// is saved at the path `at`, where nothing is.
    Snapshot {
        /// An unused path.
        at: &'a Path,
    },
    /// Prints a file as it was at a snapshot.
    ReadSnapshot {
        /// The snapshot's name or path.
        snapshot: &'a str,
        /// The file.
        file: &'a str,
    },
    /// Prints the names of the files that changed since a snapshot.
    Diff {
        /// The snapshot's name or path.
        snapshot: &'a str,
    },
    /// Prints the names of all kept versions of a file, each as the first word of a line.
    Versions {
        /// The file.
        file: &'a str,
    },
    /// Prints a version of a file.
    ReadVersion {
        /// The version's name.
        version: &'a str,
        /// The file.
        file: &'a str,
    },
    /// Makes an independent, writable copy of a directory.
    Fork {
        /// The directory.
        from: &'a str,
        /// The copy, which does not exist yet.
        to: &'a str,
    },
}

/// Files behind an agent's tool calls. Each answer is the text that the agent reads.
pub trait Tools {
    /// Names and sizes of all files.
    fn ls_files(&mut self) -> String;

    /// Creates or replaces a file.
    ///
    /// # Errors
    /// If the name or the content is not acceptable. The files are unchanged then.
    fn write_file(&mut self, name: &str, content: &[u8]) -> Result<String, ToolError>;

    /// Returns up to `limit` lines starting at line `offset`, counted from 1. Without a `limit`, the tool's
    /// default applies.
    ///
    /// # Errors
    /// If the file or the requested lines do not exist.
    fn read_file(&mut self, name: &str, offset: u64, limit: Option<u64>) -> Result<String, ToolError>;

    /// All files as JSON, as an agent framework stores a session. Not one of the agent's tools.
    fn snapshot(&self) -> String;

    /// Replaces all files by those of a snapshot.
    ///
    /// # Errors
    /// If `snapshot` is not valid. The files are unchanged then.
    fn restore(&mut self, snapshot: &str) -> io::Result<()>;
}

/// An agent's tools over a source that other programs write. Each answer is the text that the agent reads.
pub trait DomainTools {
    /// The definitions of all tools as JSON, as they stand in the agent's prompt.
    fn definitions(&self) -> &str;

    /// Calls a tool: the text of its answer, or of the error that it reports.
    ///
    /// # Errors
    /// If there is no such tool, or the process behind it does not answer.
    fn call(&mut self, tool: &str, arguments: &serde_json::Value) -> io::Result<Result<String, String>>;
}

/// Files that the harness reads and writes by calls in its own process, without a path.
pub trait FileClient {
    /// Creates or replaces a file.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&mut self, path: &str, content: &[u8]) -> io::Result<()>;

    /// Creates files in any order, possibly in parallel: this call is never timed.
    ///
    /// # Errors
    /// If one cannot be written.
    fn fill(&mut self, files: &[(String, &[u8])]) -> io::Result<()> {
        files.iter().try_for_each(|(path, content)| self.write(path, content))
    }

    /// Appends a file's content to `into`.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&mut self, path: &str, into: &mut Vec<u8>) -> io::Result<()>;

    /// Names and sizes in bytes of the files in a directory.
    ///
    /// # Errors
    /// If it cannot be listed.
    fn list(&mut self, dir: &str) -> io::Result<Vec<(String, u64)>>;
}

/// An external program that makes and times a workload's calls in place of the harness.
pub trait TimedReader {
    /// Reads `length` bytes at random offsets of a file, `calls` times; returns the service times.
    ///
    /// # Errors
    /// If the program is missing or fails.
    fn pread(&mut self, file: &Path, length: usize, calls: usize) -> io::Result<ServiceTimes>;
}

/// Service times of calls that an external program timed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTimes {
    /// Number of calls.
    pub count: u64,
    /// The mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Why a tool call failed; its text is shown to the agent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// No file has that name.
    #[error("Error: File {0} not found. Use ls_files() to see what there is.")]
    NotFound(String),
    /// The file has no lines in the requested range.
    #[error("Error: {name} has {total} lines; there are none from line {first} on (limit {limit}).")]
    NoSuchLines {
        /// The file.
        name: String,
        /// The first requested line.
        first: u64,
        /// Number of requested lines.
        limit: u64,
        /// Number of lines in the file.
        total: u64,
    },
    /// The content is not UTF-8.
    #[error("Error: {0} was not saved: its content is not text, and an agent's state holds only text.")]
    NotText(String),
    /// The name is not a valid file name.
    #[error("Error: {0:?} is not a file name: it is empty or has more than one line.")]
    BadName(String),
    /// The files could not be read from the state, or written back. Nothing has changed.
    #[error("Error: the files in the agent's state cannot be read or replaced: {0}")]
    Snapshot(String),
}

/// A backend opened for one cell of an epoch. Dropping it ends its processes and mounts in any state.
///
/// The default methods fit a backend without a daemon and a mount.
pub trait Workspace: Send {
    /// The agent's working directory; empty for a backend with [`Workspace::tools`] only.
    fn root(&self) -> &Path;

    /// The agent's tools, with [`Access::Tools`].
    fn tools(&mut self) -> Option<&mut dyn Tools> {
        None
    }

    /// The agent's tools over a source, of a backend that has them in place of files.
    fn domain_tools(&mut self) -> Option<&mut dyn DomainTools> {
        None
    }

    /// The in-process client, with [`Access::Client`].
    fn client(&mut self) -> Option<&mut dyn FileClient> {
        None
    }

    /// The external program, with [`Access::Program`].
    fn timed_reader(&mut self) -> Option<&mut dyn TimedReader> {
        None
    }

    /// A second host that mounts the same files at the same time. `None` if the backend has none.
    ///
    /// Its own files are below `beside`, an empty directory that must outlive it. Close it before this
    /// workspace.
    ///
    /// # Errors
    /// If the second host cannot start. No process and no mount remains, only files in `beside`.
    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        let _ = beside;
        Ok(None)
    }

    /// A handle that ends a hanging call in this workspace from another thread.
    fn kill_handle(&self) -> KillHandle {
        KillHandle::default()
    }

    /// The process ID of the daemon that serves the files; `None` without a daemon.
    fn daemon(&self) -> Option<u32> {
        None
    }

    /// Time from the start of the daemon to a usable mount; zero without a daemon.
    fn time_to_ready(&self) -> Duration {
        Duration::ZERO
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// If the file system or the store cannot.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The files and directories below the workspace's directory that together are its whole state while nothing is
    /// mounted: copied elsewhere and opened by [`Backend::open_copy`], they show the same files. Empty if the backend
    /// names none. Some of them may not exist.
    fn state(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Runs the command by which the backend offers a property. Returns what it prints; `None` if the backend offers
    /// none.
    ///
    /// # Errors
    /// If the command fails.
    fn property(&mut self, call: PropertyCall<'_>) -> io::Result<Option<String>> {
        let _ = call;
        Ok(None)
    }

    /// Empties the backend's own caches outside the kernel and the daemon. Some third-party file systems
    /// have them.
    ///
    /// # Errors
    /// If a cache cannot be emptied.
    fn drop_own_caches(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the daemon gracefully; files stay. Does nothing without a daemon.
    ///
    /// # Errors
    /// If the daemon had to be killed.
    fn stop(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Starts the daemon again on the existing files.
    ///
    /// # Errors
    /// As [`Backend::open`].
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The daemon's counters since it started; `None` for a backend that does not count.
    ///
    /// # Errors
    /// If the daemon does not answer.
    fn counters(&mut self) -> io::Result<Option<Counters>> {
        Ok(None)
    }

    /// The exit reason of a daemon that ended without being stopped.
    fn exit_reason(&mut self) -> Option<String> {
        None
    }

    /// Kills the daemon and leaves its mount in place, as a crash does. False without a daemon.
    ///
    /// The only valid use of the workspace afterwards is to drop it.
    ///
    /// # Errors
    /// If the daemon cannot be killed.
    fn kill(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Stops the daemon and unmounts, gracefully. Files in its directory stay.
    ///
    /// # Errors
    /// If the daemon had to be killed, or the mount detached.
    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a call that hangs in a workspace.
#[derive(Clone, Debug, Default)]
pub struct KillHandle {
    /// The process ID of the daemon.
    pub daemon: Option<u32>,
    /// The mount point, and the connection that was mounted there.
    pub mount: Option<(PathBuf, Option<Connection>)>,
}

/// The result of [`KillHandle::kill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillResult {
    /// The FUSE connection was aborted.
    pub aborted: bool,
    /// The daemon was killed.
    pub killed: bool,
}

impl KillHandle {
    /// Aborts the connection. Hanging calls then fail. False if there is none, or it was not aborted.
    pub fn abort(&self) -> bool {
        let connection = self.mount.as_ref().and_then(|(_, connection)| connection.as_ref());
        connection.is_some_and(|connection| connection.abort().is_ok())
    }

    /// Aborts the connection, kills the daemon and detaches the mount.
    pub fn kill(&self) -> KillResult {
        let aborted = self.abort();
        let killed = self.daemon.is_some_and(|pid| send(pid, Signal::KILL).is_ok());
        if let Some((dir, _)) = &self.mount {
            // An error means that nothing is mounted there any more.
            let _ = detach(dir);
        }
        KillResult { aborted, killed }
    }
}

/// The last lines of a daemon's log, for an error.
pub(crate) fn log_end(log: &Path) -> String {
    processes::last_lines(&own_file::read(log).unwrap_or_default(), 5)
}

/// Writes back the dirty pages of the file system of `dir`. Empties the kernel's caches machine-wide.
///
/// # Errors
/// If this process is not root.
pub fn drop_machine_caches(dir: &Path) -> io::Result<()> {
    // Dirty pages cannot be dropped.
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    std::fs::write("/proc/sys/vm/drop_caches", b"3")
        .map_err(|error| io::Error::new(error.kind(), format!("dropping the kernel's caches needs root: {error}")))
}

/// Whether [`drop_machine_caches`] can work for this user.
pub fn can_drop_caches() -> bool {
    let caches = std::fs::OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches");
    caches.is_ok()
}

/// The release of the running kernel.
pub fn kernel() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}
