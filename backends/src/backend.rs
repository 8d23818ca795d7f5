//! What every way to hold an agent's context as files has in common, and the list of those there are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::direct::Direct;
use crate::external::{self, External};
use crate::fio;
use crate::fuse::Counters;
use crate::fuse::connection::{Connection, detach};
use crate::model_service::Answers;
pub use crate::mounted::Launch;
use crate::mounted::{LlmMode, LlmMount, Mounted, S3Mount, S3Variant};
use crate::promise::Promises;
use crate::s3::S3Bare;
use crate::s3_service::Server;
use crate::state::State;

/// What a backend can do, so that cells which make no sense for it are skipped with a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    /// It returns the bytes that were written to it.
    pub holds_data: bool,
    /// What it holds is still there after its daemon has been stopped and started.
    pub persistent: bool,
    /// A daemon of its own counts what reaches it.
    pub counts_requests: bool,
    /// Names such as `:search?words` are answered.
    #[serde(default)]
    pub answers_requests: bool,
    /// A model is asked what a file holds each time that it is read: a read is slow, warms nothing, and may be wrong.
    #[serde(default)]
    pub guesses_content: bool,
    /// When its daemon is started anew it has nothing of its files on this machine, as on a new host: what is then read
    /// first is fetched from its server.
    #[serde(default)]
    pub starts_empty: bool,
    /// What it holds can be mounted by a second host at the same time: [`Workspace::second_host`].
    #[serde(default)]
    pub several_hosts: bool,
}

/// Something a backend needs on the machine before it can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// What it is, such as a device or a program.
    pub name: String,
    /// Why it is needed.
    pub why: String,
}

/// What a backend is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Its name on the command line and in results.
    pub name: String,
    /// The TOML file that describes it, where it is no part of this program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// What it is, in one sentence.
    pub summary: String,
    /// What survives a killed daemon and power loss, by the last call that returned.
    pub durability: String,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Processes that must run beside the agent for its files to be there.
    pub daemons: u32,
    /// Mounts that must exist for its files to be there.
    pub mounts: u32,
    /// What must be on the machine, beside the kernel's own file system and the `ctxbench` binary.
    pub needs: Vec<Need>,
    /// Lines of this project's code that must work for its files to be there, without comments and tests; 0
    /// for other people's file systems, which nobody counted.
    pub lines_of_code: u32,
}

/// What a backend needs that asks a language model.
pub(crate) const MODEL: &str = "a language model";

impl Description {
    /// Whether it can only be used with a language model.
    pub fn needs_model(&self) -> bool {
        self.needs.iter().any(|need| need.name == MODEL)
    }
}

/// The versions of every part of a backend, by part.
pub type Receipt = BTreeMap<String, String>;

/// Why a backend cannot be used here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} (fix: {fix})")]
pub struct Unavailable {
    /// What is missing.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
}

/// Where a workspace may live.
#[derive(Clone, Debug)]
pub struct Site {
    /// An empty directory of the workspace's own.
    pub dir: PathBuf,
    /// The `ctxbench` binary, for daemons.
    pub program: PathBuf,
    /// How long a daemon may take to start or to stop.
    pub patience: Duration,
    /// The processor on which a daemon is to answer; `None` for any.
    pub cpu: Option<usize>,
    /// Let other users in, as far as file permissions let them; needs root.
    pub allow_other: bool,
}

/// How the files of a backend are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By paths, from any program.
    Paths,
    /// By tool calls of an agent: [`Workspace::tools`].
    Tools,
    /// By calls in the harness's own process: [`Workspace::client`].
    Client,
    /// By a program that makes the calls of a workload and times them itself: [`Workspace::timed_reader`].
    Program,
}

/// A way of giving an agent its context as files.
pub trait Backend: Send + Sync {
    /// What it is; the same on every machine.
    fn describe(&self) -> Description;

    /// How its files are reached.
    fn access(&self) -> Access {
        Access::Paths
    }

    /// Whether other programs can use its files.
    fn has_paths(&self) -> bool {
        self.access() == Access::Paths
    }

    /// Why it cannot take part in a workload that reads files, where that is so. `workload` is its name, `sha256` what it is.
    fn lacks(&self, workload: &str, sha256: &str) -> Option<String> {
        let _ = (workload, sha256);
        None
    }

    /// What it promises to keep. Of others' file systems, what the operating system's interface asks of any.
    fn promises(&self) -> Promises {
        Promises::POSIX
    }

    /// The same backend, its daemons started by these options in place of its own, so that they ask somebody else: a
    /// scenario's server. `None` where no daemon of ours is started.
    fn launched_by(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        let _ = launch;
        None
    }

    /// The same backend, each of its mounts with this option of `ctxbench mount` beside its own: one that a refusal
    /// names. `None` where no daemon of ours is started.
    fn with_option(&self, option: &str) -> Option<Box<dyn Backend>> {
        let _ = option;
        None
    }

    /// The SQLite file in which a workspace at `site` holds its data, where there is one.
    fn database(&self, site: &Site) -> Option<PathBuf> {
        let _ = site;
        None
    }

    /// The command that mounts what the workspace at `site` holds a second time, on `beside/mnt`, with whatever a second
    /// host would have of its own below `beside`; it says [`crate::READY`], and ends when its standard input does. `None`
    /// where there is nothing to mount.
    ///
    /// # Errors
    /// If a server that it needs cannot be started.
    fn second_mount(&self, site: &Site, beside: &Path) -> io::Result<Option<Command>> {
        let _ = (site, beside);
        Ok(None)
    }

    /// The versions of its parts on this machine. No receipt, no measurement.
    ///
    /// # Errors
    /// [`Unavailable`] if it cannot be used here.
    fn receipt(&self) -> Result<Receipt, Unavailable>;

    /// Opens an empty workspace, or the one that an earlier workspace left at the same site.
    ///
    /// # Errors
    /// If it cannot be brought up; nothing of it stays behind but files in `site.dir`.
    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>>;

    /// How to print a file of a workspace at `site` with a tool that everybody has, while nothing of
    /// the backend runs: program and arguments. `None` where that is not possible.
    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)>;
}

/// Files that are reached by tool calls; answers are the text that an agent is shown.
pub trait Tools {
    /// Names and sizes of all files.
    fn ls_files(&mut self) -> String;

    /// Saves a file, replacing what was there under its name.
    ///
    /// # Errors
    /// If it cannot be held; nothing has changed then.
    fn write_file(&mut self, name: &str, content: &[u8]) -> Result<String, ToolError>;

    /// Shows up to `limit` lines from line `offset` on, counted from 1; as many as the tool shows by default
    /// where no limit is asked for.
    ///
    /// # Errors
    /// If there is no such file, or it has no such lines.
    fn read_file(
        &mut self,
        name: &str,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<String, ToolError>;

    /// All files, as JSON. No tool of the agent's: what its framework keeps of a session.
    fn snapshot(&self) -> String;

    /// Puts the files of a snapshot in the place of those that are there.
    ///
    /// # Errors
    /// If it is not one; nothing has changed then.
    fn restore(&mut self, snapshot: &str) -> io::Result<()>;
}

/// Files that the harness reads and writes by calls in its own process, without a path.
pub trait FileClient {
    /// Creates or replaces a file.
    ///
    /// # Errors
    /// If it cannot be written.
    fn write(&mut self, path: &str, content: &[u8]) -> io::Result<()>;

    /// Creates files, in any order and at once where that is faster: it is never timed.
    ///
    /// # Errors
    /// If one cannot be written.
    fn fill(&mut self, files: &[(String, &[u8])]) -> io::Result<()> {
        files
            .iter()
            .try_for_each(|(path, content)| self.write(path, content))
    }

    /// Appends what a file holds to `into`.
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

/// A program that makes the calls of a workload in place of the harness, and times them itself.
pub trait TimedReader {
    /// Reads `length` bytes at random places of a file `calls` times; answers the service times of all calls.
    ///
    /// # Errors
    /// If the program is missing or fails.
    fn pread(&mut self, file: &Path, length: usize, calls: usize) -> io::Result<ServiceTimes>;
}

/// Service times of calls that another program timed, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServiceTimes {
    /// How many calls.
    pub count: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Why a tool call failed, in the words that an agent is shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// There is no file of that name.
    #[error("Error: File {0} not found. Use ls_files() to see what there is.")]
    NotFound(String),
    /// The file has no lines where they were asked for.
    #[error(
        "Error: {name} has {total} lines; there are none from line {first} on (limit {limit})."
    )]
    NoSuchLines {
        /// The file.
        name: String,
        /// The first line asked for.
        first: u64,
        /// How many were asked for.
        limit: u64,
        /// How many there are.
        total: u64,
    },
    /// The content is not UTF-8.
    #[error(
        "Error: {0} was not saved: its content is not text, and an agent's state holds only text."
    )]
    NotText(String),
    /// The name cannot be a file's.
    #[error("Error: {0:?} is no name of a file: it is empty or has more than one line.")]
    BadName(String),
    /// The files could not be taken from the state, or put back; nothing has changed.
    #[error("Error: the files in the agent's state cannot be read or replaced: {0}")]
    Snapshot(String),
}

/// A backend opened for one block. Dropping it takes everything down, whatever state it is in. The methods that have a
/// body say what holds where there is neither a daemon nor a mount.
pub trait Workspace: Send {
    /// The directory that the agent works in; an empty one where there are only [`Workspace::tools`].
    fn root(&self) -> &Path;

    /// The tools that reach the files, with [`Access::Tools`].
    fn tools(&mut self) -> Option<&mut dyn Tools> {
        None
    }

    /// The files, with [`Access::Client`].
    fn client(&mut self) -> Option<&mut dyn FileClient> {
        None
    }

    /// The program, with [`Access::Program`].
    fn timed_reader(&mut self) -> Option<&mut dyn TimedReader> {
        None
    }

    /// The same files as a second host has them at the same time, with whatever is its own below `beside`, an empty
    /// directory that must outlive it; it is to be closed before this one. `None` where there is no such thing.
    ///
    /// # Errors
    /// If it cannot be brought up; nothing of it stays behind but files in `beside`.
    fn second_host(&self, beside: &Path) -> io::Result<Option<Box<dyn Workspace>>> {
        let _ = beside;
        Ok(None)
    }

    /// What it takes to end a call that hangs in this workspace, from another thread.
    fn kill_handle(&self) -> KillHandle {
        KillHandle {
            daemon: None,
            mount: None,
        }
    }

    /// The process that serves the files, where there is one.
    fn daemon(&self) -> Option<u32> {
        None
    }

    /// From the start of the daemon to a usable mount; zero where nothing has to start.
    fn time_to_ready(&self) -> Duration {
        Duration::ZERO
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// If the file system or the store reports one.
    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Empties caches of its own outside the kernel and the daemon, where it has any: some of others' file systems do.
    ///
    /// # Errors
    /// If it cannot.
    fn drop_own_caches(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Stops the daemon in order; files stay. Nothing where there is none.
    ///
    /// # Errors
    /// If it had to be stopped by force.
    fn stop(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Starts the daemon again on the files that are there.
    ///
    /// # Errors
    /// As [`Backend::open`].
    fn start(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// What reached the daemon since it started; `None` where nothing counts.
    ///
    /// # Errors
    /// If the daemon does not answer.
    fn counters(&mut self) -> io::Result<Option<Counters>> {
        Ok(None)
    }

    /// How the daemon ended, if it has although nobody told it to.
    fn exit_reason(&mut self) -> Option<String> {
        None
    }

    /// Kills the daemon and leaves its mount as it then is, as a crash does; false where there is no
    /// daemon to kill. The workspace is of no use afterwards, but to be dropped.
    ///
    /// # Errors
    /// If it cannot be killed.
    fn kill(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    /// Takes everything down in order. Files in the site stay.
    ///
    /// # Errors
    /// If it had to be done by force.
    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// What it takes to end a call that hangs.
#[derive(Clone, Debug)]
pub struct KillHandle {
    pub(crate) daemon: Option<u32>,
    pub(crate) mount: Option<(PathBuf, Option<Connection>)>,
}

/// What using a kill handle did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// The FUSE connection was aborted.
    pub aborted: bool,
    /// The daemon was killed.
    pub killed: bool,
}

impl KillHandle {
    /// Aborts the connection, kills the daemon and detaches the mount. Calls that hang in it fail.
    pub fn kill(&self) -> Killed {
        let connection = self
            .mount
            .as_ref()
            .and_then(|(_, connection)| connection.as_ref());
        let aborted = connection.is_some_and(|connection| connection.abort().is_ok());
        let pid = self.daemon.and_then(|pid| Pid::from_raw(pid as i32));
        let killed = pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok());
        if let Some((dir, _)) = &self.mount {
            // An error means that nothing is mounted there any more.
            let _ = detach(dir);
        }
        Killed { aborted, killed }
    }
}

/// Every backend of this program's own, in the order of reports.
pub fn registry() -> Vec<Box<dyn Backend>> {
    vec![
        Box::new(Direct),
        Box::new(Mounted::Null),
        Box::new(Mounted::Memory),
        Box::new(Mounted::Sqlite),
        Box::new(Mounted::SqliteWriteback),
        Box::new(Mounted::AgentMemory),
        Box::new(Mounted::AgentMemoryMeaning),
        Box::new(Mounted::S3(s3(S3Variant::Default))),
        Box::new(Mounted::S3(s3(S3Variant::Fsync))),
        Box::new(Mounted::Llm(llm(LlmMode::History))),
        Box::new(Mounted::Llm(llm(LlmMode::Generate))),
        Box::new(State),
    ]
}

/// Backends that are only measured: variants of one of [`registry`], of which holds whatever else is tried of that one,
/// and what an arm is compared with.
pub fn measured_otherwise() -> Vec<Box<dyn Backend>> {
    let variants = [
        S3Variant::Fresh,
        S3Variant::Close,
        S3Variant::LastWrite,
        S3Variant::Unversioned,
    ];
    variants
        .into_iter()
        .map(|variant| Box::new(Mounted::S3(s3(variant))) as Box<dyn Backend>)
        .chain(S3Bare::of_name("s3-bare").map(|bare| Box::new(bare) as Box<dyn Backend>))
        .chain([Box::new(fio::Fio) as Box<dyn Backend>])
        .collect()
}

fn s3(variant: S3Variant) -> S3Mount {
    S3Mount {
        variant,
        server: Server::default_here(),
    }
}

fn llm(mode: LlmMode) -> LlmMount {
    LlmMount {
        mode,
        answers: Answers::Local,
    }
}

/// Backends of others that this program comes with a description of, by name.
pub fn peers() -> Vec<Box<dyn Backend>> {
    let shipped = external::shipped().into_iter();
    shipped
        .map(|external| Box::new(external) as Box<dyn Backend>)
        .collect()
}

/// The backend called `name`, or the one that the TOML file of that path describes.
///
/// # Errors
/// [`inputs::InputError`] if there is none, or what is wrong with the file, and where.
pub fn find(name: &str) -> Result<Box<dyn Backend>, inputs::InputError> {
    let path = Path::new(name);
    if path
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        return Ok(Box::new(External::read(path)?));
    }
    if let Some(bare) = S3Bare::of_name(name) {
        return Ok(Box::new(bare));
    }
    if name == fio::NAME {
        return Ok(Box::new(fio::Fio));
    }
    if let Some(mount) = S3Mount::of_name(name) {
        return Ok(Box::new(Mounted::S3(mount)));
    }
    if let Some(mount) = LlmMount::of_name(name) {
        return Ok(Box::new(Mounted::Llm(mount)));
    }
    if let Some(external) = external::named(name) {
        return Ok(Box::new(external));
    }
    let mut all = registry().into_iter();
    all.find(|backend| backend.describe().name == name)
        .ok_or_else(|| {
            let known = registry().into_iter().chain(measured_otherwise());
            let known = known.chain(peers());
            let known: Vec<String> = known.map(|backend| backend.describe().name).collect();
            let message = format!(
                "there is no such backend; there are {}, or the path of a .toml file",
                known.join(", ")
            );
            inputs::InputError::whole(path, message)
        })
}

/// Writes back what is dirty on the file system of `dir` and empties the kernel's caches of the whole machine.
///
/// # Errors
/// If this user may not: it takes root.
pub fn drop_machine_caches(dir: &Path) -> io::Result<()> {
    // Dirty pages cannot be dropped.
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    std::fs::write("/proc/sys/vm/drop_caches", b"3").map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("dropping the kernel's caches needs root: {error}"),
        )
    })
}

/// Whether [`drop_machine_caches`] can work for this user.
pub fn can_drop_caches() -> bool {
    let caches = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/sys/vm/drop_caches");
    caches.is_ok()
}

/// The release of the running kernel.
pub(crate) fn kernel() -> String {
    let name = rustix::system::uname();
    name.release().to_string_lossy().into_owned()
}
