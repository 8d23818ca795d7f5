//! Backends whose files a daemon serves: `ctxbench mount` in a process of its own.
//!
//! The daemon can be killed, stopped, measured and restarted, and a mount that waits for the process
//! it serves cannot happen. It unmounts when its standard input ends, so it does not outlive us.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::backend::{
    Backend, Capabilities, Description, Lifeline, MODEL, Need, Receipt, Site, Unavailable,
    Workspace, drop_machine_caches, kernel,
};
use crate::fuse::connection::{Connection, mount_at};
use crate::fuse::{self, Counters, MountError, Opcode};
use crate::model_service::Answers;
use crate::promise::{Acknowledgement, Promises};
use crate::s3_service::{self, Server};

/// The line a daemon prints on standard output when its mount can be used.
pub const READY: &str = "ready";

/// The database of a local store, in its site.
const STORE: &str = "store.db";

/// The cache and journal of a bucket, in its site.
const CACHE: &str = "cache.s3.db";

/// The longest answer of a model in a run, in its tokens: what it adds after the file must not take the run's time.
const ANSWER_TOKENS: u32 = 256;

/// The stores that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    Null,
    Memory,
    Sqlite,
    /// `sqlite` where the kernel gathers writes until a file is closed or synced.
    SqliteWriteback,
    AgentMemory,
    S3(S3Mount),
    Llm(LlmMount),
}

/// An `s3` mount, and the server that it is measured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct S3Mount {
    /// `fsync` waits for the bucket.
    pub(crate) fsync_waits: bool,
    pub(crate) server: Server,
}

impl S3Mount {
    /// The mount that a backend's name stands for: `s3` or `s3-fsync`, then maybe the server and the distance to
    /// it, as [`Server::of_suffix`] has them.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("s3")?;
        let (fsync_waits, suffix) = match rest.strip_prefix("-fsync") {
            Some(suffix) => (true, suffix),
            None => (false, rest),
        };
        let server = Server::of_suffix(suffix)?;
        Some(Self {
            fsync_waits,
            server,
        })
    }

    fn name(self) -> String {
        let fsync = if self.fsync_waits { "-fsync" } else { "" };
        format!("s3{fsync}{}", self.server.suffix())
    }
}

/// What a language model is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LlmMode {
    /// What a file holds, by the log of operations.
    History,
    /// What a file holds that nobody has written.
    Generate,
}

/// An `llm-history` or `llm-generate` mount, and what answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LlmMount {
    pub(crate) mode: LlmMode,
    pub(crate) answers: Answers,
}

impl LlmMode {
    fn store(self) -> &'static str {
        match self {
            LlmMode::History => "llm-history",
            LlmMode::Generate => "llm-generate",
        }
    }
}

impl LlmMount {
    /// The mount that a backend's name stands for: the mode, then maybe what answers, as in `llm-history-recorded`.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        [LlmMode::History, LlmMode::Generate]
            .into_iter()
            .find_map(|mode| {
                let answers = Answers::of_suffix(name.strip_prefix(mode.store())?)?;
                Some(Self { mode, answers })
            })
    }

    fn name(self) -> String {
        format!("{}{}", self.mode.store(), self.answers.suffix())
    }

    fn summary(self) -> String {
        let answers = self.answers.words();
        match self.mode {
            LlmMode::History => format!(
                "FUSE over a log of operations: each read asks a language model what the file holds now; {answers}, of at most {ANSWER_TOKENS} tokens"
            ),
            LlmMode::Generate => format!(
                "FUSE over memory, where a language model makes up what nobody has written; what a workload writes it keeps, and asks nothing; {answers}"
            ),
        }
    }

    fn launch(self, site: &Site) -> io::Result<Launch> {
        let mut arguments = self.answers.arguments(&site.program, &site.dir)?;
        arguments.push(format!("--answer-tokens={ANSWER_TOKENS}").into());
        match self.mode {
            LlmMode::History => {
                let log = site.dir.join("log.db");
                arguments.extend(["--log-db".into(), log.into()]);
            }
            LlmMode::Generate => {
                let cache = site.dir.join("answers");
                arguments.extend(["--cache-folder".into(), cache.into()]);
            }
        }
        let mut environment = vec![("CTXBENCH_PROMPT", String::new())];
        if self.answers != Answers::Given {
            // A model of our own wants no key, and is told none.
            environment.extend([
                ("CTXBENCH_API_KEY", String::new()),
                ("OPENAI_API_KEY", String::new()),
            ]);
        }
        Ok(Launch {
            arguments,
            environment,
        })
    }
}

/// How a daemon of ours is started, beside what every one is told.
#[derive(Clone, Default)]
pub struct Launch {
    /// Options of `ctxbench mount`.
    pub arguments: Vec<OsString>,
    /// Variables; keys are given by them alone.
    pub environment: Vec<(&'static str, String)>,
}

impl Mounted {
    fn name(self) -> String {
        match self {
            Mounted::S3(mount) => mount.name(),
            Mounted::Llm(mount) => mount.name(),
            Mounted::SqliteWriteback => "sqlite-writeback".to_owned(),
            store => store.store().to_owned(),
        }
    }

    /// What `ctxbench mount` calls it.
    fn store(self) -> &'static str {
        match self {
            Mounted::Null => "null",
            Mounted::Memory => "memory",
            Mounted::Sqlite | Mounted::SqliteWriteback => "sqlite",
            Mounted::AgentMemory => "agent-memory",
            Mounted::S3(_) => "s3",
            Mounted::Llm(mount) => mount.mode.store(),
        }
    }

    /// Where an agent works in the mount `root`: what it lists has to be its own files alone.
    fn work(self, root: &Path) -> PathBuf {
        match self {
            // The root also lists `.llmfs`.
            Mounted::Llm(mount) if mount.mode == LlmMode::Generate => root.join("workspace"),
            _ => root.to_owned(),
        }
    }

    fn command(self, site: &Site, mount: &Path, control: &Path, launch: Launch) -> Command {
        let mut command = Command::new(&site.program);
        command
            .arg("mount")
            .arg(self.store())
            .arg(mount)
            .args(launch.arguments)
            .envs(launch.environment)
            .arg("--control")
            .arg(control)
            .arg("--until-stdin-ends");
        command
    }

    /// How the workspace at `site` is mounted; `beside` is where another host that mounts the same would have its own.
    fn launch(self, site: &Site, beside: Option<&Path>) -> io::Result<Launch> {
        Ok(match self {
            Mounted::Null | Mounted::Memory => Launch::default(),
            Mounted::Sqlite | Mounted::SqliteWriteback | Mounted::AgentMemory => {
                let mut arguments = vec!["--db".into(), site.dir.join(STORE).into()];
                if self == Mounted::SqliteWriteback {
                    arguments.push("--writeback".into());
                }
                Launch {
                    arguments,
                    ..Launch::default()
                }
            }
            Mounted::Llm(mount) => mount.launch(site)?,
            Mounted::S3(mount) => {
                let cache = beside.unwrap_or(&site.dir).join(CACHE);
                let address = mount.server.address(&site.program)?;
                let mut arguments: Vec<OsString> = vec![
                    "--endpoint".into(),
                    address.endpoint.into(),
                    "--region".into(),
                    address.region.into(),
                    "--bucket".into(),
                    address.bucket.into(),
                    "--prefix".into(),
                    format!("{}/", s3_service::place(&site.dir)).into(),
                    "--agent-id".into(),
                    "agent".into(),
                    "--cache".into(),
                    cache.into(),
                ];
                if beside.is_some() {
                    arguments.extend(["--writer".into(), "second".into()]);
                }
                if mount.fsync_waits {
                    arguments.extend(["--sync".into(), "fsync".into()]);
                }
                let environment = match address.keys {
                    Some((id, secret)) => vec![
                        ("AWS_ACCESS_KEY_ID", id),
                        ("AWS_SECRET_ACCESS_KEY", secret),
                        ("AWS_SESSION_TOKEN", String::new()),
                        ("CTXBENCH_S3_KEY", String::new()),
                    ],
                    None => Vec::new(),
                };
                Launch {
                    arguments,
                    environment,
                }
            }
        })
    }
}

impl Backend for Mounted {
    fn describe(&self) -> Description {
        let (summary, durability, lines) = match self {
            Mounted::Null => (
                "FUSE over nothing: fixed names, attributes and bytes, nothing cached by the kernel",
                "holds nothing",
                env!("CTXBENCH_LINES_NULL"),
            ),
            Mounted::Memory => (
                "FUSE over the daemon's memory: the floor of what our FUSE front end costs",
                "gone when the daemon ends, fsync or not",
                env!("CTXBENCH_LINES_MEMORY"),
            ),
            Mounted::Sqlite => (
                "FUSE over one SQLite file; what is past 256 KiB of a file lies beside it",
                "every call that returned survives a killed daemon; fsync makes everything before it survive power loss",
                env!("CTXBENCH_LINES_SQLITE"),
            ),
            Mounted::SqliteWriteback => (
                "sqlite, where the kernel gathers writes until a file is closed or synced",
                "every call that returned survives a killed daemon, but of files still open what was only written; fsync as sqlite",
                env!("CTXBENCH_LINES_SQLITE"),
            ),
            Mounted::AgentMemory => (
                "sqlite with an index: every directory answers searches and recalls, and shows none of it in listings",
                "as sqlite; what is found is derived from it, and up to date when close returns",
                env!("CTXBENCH_LINES_AGENT_MEMORY"),
            ),
            Mounted::S3(mount) => (
                "",
                if mount.fsync_waits {
                    "as sqlite after a killed daemon; fsync makes everything before it be in the bucket, which survives the loss of the machine"
                } else {
                    "as sqlite after a killed daemon or power loss; the bucket, which survives the loss of the machine, follows within a second"
                },
                env!("CTXBENCH_LINES_S3"),
            ),
            Mounted::Llm(LlmMount {
                mode: LlmMode::History,
                ..
            }) => (
                "",
                "of the log, as sqlite; of what a file holds, nothing: it is asked for anew",
                env!("CTXBENCH_LINES_LLM_HISTORY"),
            ),
            Mounted::Llm(LlmMount {
                mode: LlmMode::Generate,
                ..
            }) => (
                "",
                "what was written since the last fsync, unmount or generated file is gone with a killed daemon",
                env!("CTXBENCH_LINES_LLM_GENERATE"),
            ),
        };
        let summary = match self {
            Mounted::S3(mount) => {
                let server = mount.server.words();
                format!("FUSE over a local SQLite cache and journal of a bucket {server}")
            }
            Mounted::Llm(mount) => mount.summary(),
            _ => summary.to_owned(),
        };
        let need = |name: &str, why: &str| Need {
            name: name.to_owned(),
            why: why.to_owned(),
        };
        let mut needs = vec![
            need("/dev/fuse", "to serve files to the kernel"),
            need("fusermount3", "to mount without being root"),
        ];
        if let Mounted::S3(mount) = self {
            needs.push(need(mount.server.wanted.label(), "to hold the bucket"));
        }
        if let Mounted::Llm(mount) = self {
            needs.push(need(MODEL, mount.answers.need()));
        }
        Description {
            name: self.name(),
            file: None,
            summary,
            durability: durability.to_owned(),
            capabilities: Capabilities {
                holds_data: *self != Mounted::Null,
                persistent: *self != Mounted::Memory,
                counts_requests: true,
                answers_requests: *self == Mounted::AgentMemory,
                guesses_content: matches!(
                    self,
                    Mounted::Llm(mount) if mount.mode == LlmMode::History
                ),
            },
            daemons: 1,
            mounts: 1,
            needs,
            lines_of_code: lines.parse().unwrap_or(0),
        }
    }

    fn lacks(&self, workload: &str, sha256: &str) -> Option<String> {
        match self {
            Mounted::Llm(mount) if mount.mode == LlmMode::History => {
                mount.answers.lacks(workload, sha256)
            }
            _ => None,
        }
    }

    fn promises(&self) -> Promises {
        let local = Promises {
            killed_daemon: Some(Acknowledgement::Write),
            power_loss: Some(Acknowledgement::Fsync),
            machine_loss: None,
        };
        match self {
            Mounted::Null | Mounted::Memory => Promises::NONE,
            Mounted::Sqlite | Mounted::AgentMemory => local,
            // Of a file that is still open, the kernel may hold what was written.
            Mounted::SqliteWriteback => Promises {
                killed_daemon: Some(Acknowledgement::Close),
                ..local
            },
            Mounted::S3(mount) => Promises {
                machine_loss: Some(match mount.fsync_waits {
                    true => Acknowledgement::Fsync,
                    false => Acknowledgement::Sync,
                }),
                ..local
            },
            // The log is a SQLite file, but what a file holds is guessed from it.
            Mounted::Llm(LlmMount {
                mode: LlmMode::History,
                ..
            }) => Promises::NONE,
            Mounted::Llm(LlmMount {
                mode: LlmMode::Generate,
                ..
            }) => Promises::POSIX,
        }
    }

    fn database(&self, site: &Site) -> Option<PathBuf> {
        match self {
            Mounted::Sqlite | Mounted::SqliteWriteback | Mounted::AgentMemory => {
                Some(site.dir.join(STORE))
            }
            Mounted::S3(_) => Some(site.dir.join(CACHE)),
            Mounted::Null | Mounted::Memory | Mounted::Llm(_) => None,
        }
    }

    fn second_mount(&self, site: &Site, beside: &Path) -> io::Result<Option<Command>> {
        if !matches!(
            self,
            Mounted::Sqlite | Mounted::SqliteWriteback | Mounted::AgentMemory | Mounted::S3(_)
        ) {
            return Ok(None);
        }
        let launch = self.launch(site, Some(beside))?;
        let mount = beside.join("mnt");
        Ok(Some(self.command(
            site,
            &mount,
            &beside.join("control"),
            launch,
        )))
    }

    fn receipt(&self) -> Result<Receipt, Unavailable> {
        if let Err(MountError::Device { problem, fix }) = fuse::check_device() {
            return Err(Unavailable {
                reason: problem,
                fix,
            });
        }
        let fusermount = Command::new("fusermount3").arg("--version").output();
        let fusermount = match fusermount {
            Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            Err(_) if rustix::process::geteuid().is_root() => "none (root needs none)".to_owned(),
            Err(_) => {
                return Err(Unavailable {
                    reason: "fusermount3 is not installed, and mounting without it needs root"
                        .to_owned(),
                    fix: "sudo apt-get install fuse3".to_owned(),
                });
            }
        };
        let mut receipt = Receipt::from([
            ("kernel".to_owned(), kernel()),
            ("ctxbench".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
            ("fusermount3".to_owned(), fusermount),
        ]);
        if matches!(
            self,
            Mounted::Sqlite | Mounted::SqliteWriteback | Mounted::AgentMemory | Mounted::S3(_)
        ) {
            receipt.insert("sqlite".to_owned(), rusqlite::version().to_owned());
        }
        if let Mounted::S3(mount) = self {
            let label = mount.server.wanted.label().to_owned();
            receipt.insert(label, mount.server.wanted.version()?);
        }
        if let Mounted::Llm(mount) = self {
            receipt.extend(mount.answers.receipt()?);
        }
        Ok(receipt)
    }

    fn launched_by(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        Some(Box::new(Relaunched {
            mounted: *self,
            launch,
        }))
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        self.open_by(site, None)
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        match self {
            Mounted::Null | Mounted::Memory | Mounted::S3(_) | Mounted::Llm(_) => None,
            Mounted::Sqlite | Mounted::SqliteWriteback | Mounted::AgentMemory => {
                let query = format!(
                    "SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/{name}' ORDER BY at"
                );
                let db = site.dir.join(STORE);
                Some(("sqlite3".to_owned(), vec![db.into(), query.into()]))
            }
        }
    }
}

impl Mounted {
    fn open_by(self, site: &Site, launch: Option<Launch>) -> io::Result<Box<dyn Workspace>> {
        let mount = site.dir.join("mnt");
        // A dead mount is there, but cannot be looked at; the daemon knows what to do about it.
        if mount_at(&mount)?.is_none() {
            std::fs::create_dir_all(&mount)?;
        }
        let mut workspace = MountedWorkspace {
            backend: self,
            launch,
            site: site.clone(),
            root: self.work(&mount),
            mount,
            daemon: None,
            connection: None,
            time_to_ready: Duration::ZERO,
        };
        workspace.start()?;
        if workspace.root != workspace.mount {
            std::fs::create_dir_all(&workspace.root)?;
        }
        Ok(Box::new(workspace))
    }
}

/// A mount that is started by other options than its own.
struct Relaunched {
    mounted: Mounted,
    launch: Launch,
}

impl Backend for Relaunched {
    fn describe(&self) -> Description {
        self.mounted.describe()
    }

    fn promises(&self) -> Promises {
        self.mounted.promises()
    }

    fn database(&self, site: &Site) -> Option<PathBuf> {
        self.mounted.database(site)
    }

    fn receipt(&self) -> Result<Receipt, Unavailable> {
        self.mounted.receipt()
    }

    fn launched_by(&self, launch: Launch) -> Option<Box<dyn Backend>> {
        self.mounted.launched_by(launch)
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        self.mounted.open_by(site, Some(self.launch.clone()))
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        self.mounted.offline_read(site, name)
    }
}

struct MountedWorkspace {
    backend: Mounted,
    /// In place of the backend's own.
    launch: Option<Launch>,
    site: Site,
    mount: PathBuf,
    /// Where the agent works: the mount, or a directory in it.
    root: PathBuf,
    daemon: Option<Daemon>,
    connection: Option<Connection>,
    time_to_ready: Duration,
}

struct Daemon {
    process: Child,
    /// Ends the daemon when closed.
    stdin: Option<ChildStdin>,
}

impl MountedWorkspace {
    fn control(&self) -> PathBuf {
        self.site.dir.join("control")
    }

    fn log(&self) -> PathBuf {
        self.site.dir.join("daemon.log")
    }

    /// What went wrong, with what the daemon said about it.
    fn failure(&self, what: &str) -> io::Error {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let last = log.trim().lines().rev().take(5).collect::<Vec<_>>();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        let name = self.backend.name();
        io::Error::other(format!("the {name} daemon {what}: {last}"))
    }

    fn start(&mut self) -> io::Result<()> {
        // A socket that an earlier daemon left behind would keep the new one from listening.
        let _ = std::fs::remove_file(self.control());
        let log = File::options().create(true).append(true).open(self.log())?;
        // A server that all workspaces share may start first; that is no workspace's time.
        let launch = match &self.launch {
            Some(launch) => launch.clone(),
            None => self.backend.launch(&self.site, None)?,
        };
        let started = Instant::now();
        let mut process = self
            .backend
            .command(&self.site, &self.mount, &self.control(), launch)
            .args(self.site.cpu.map(|cpu| format!("--cpu={cpu}")))
            .args(self.site.allow_other.then_some("--allow-other"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let stdin = process.stdin.take();
        let stdout = process.stdout.take();
        self.daemon = Some(Daemon { process, stdin });
        let (sender, ready) = mpsc::channel();
        if let Some(stdout) = stdout {
            std::thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // Nobody listens any more if it took too long.
                let _ = sender.send(read.is_ok() && line.trim() == READY);
            });
        }
        match ready.recv_timeout(self.site.patience) {
            Ok(true) => {}
            Ok(false) => {
                self.take_down_by_force();
                return Err(self.failure("did not mount"));
            }
            Err(_) => {
                self.take_down_by_force();
                return Err(self.failure("took too long to mount"));
            }
        }
        self.time_to_ready = started.elapsed();
        self.connection = mount_at(&self.mount)?.as_ref().and_then(Connection::of);
        Ok(())
    }

    fn stop(&mut self) -> io::Result<()> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        drop(daemon.stdin.take());
        match wait(&mut daemon.process, self.site.patience)? {
            Some(status) => {
                self.daemon = None;
                if status.success() {
                    return Ok(());
                }
                self.take_down_by_force();
                Err(self.failure(&format!("ended with {status}")))
            }
            None => {
                self.take_down_by_force();
                Err(self.failure("did not stop"))
            }
        }
    }

    fn take_down_by_force(&mut self) {
        self.lifeline().sever();
        if let Some(mut daemon) = self.daemon.take() {
            // A killed child ends at once; waiting for it leaves no zombie.
            let _ = daemon.process.wait();
        }
        self.connection = None;
    }

    /// Waits until the kernel has told the daemon which inodes it let go: until then those messages
    /// compete with what is to be measured.
    fn settle(&mut self) -> io::Result<()> {
        let mut last = u64::MAX;
        for _ in 0..100 {
            let forgets =
                fuse::ask(&self.control(), fuse::Command::Counters)?.count(Opcode::Forget);
            if forgets == last {
                break;
            }
            last = forgets;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Workspace for MountedWorkspace {
    fn root(&self) -> &Path {
        &self.root
    }

    fn lifeline(&self) -> Lifeline {
        Lifeline {
            daemon: self.daemon(),
            mount: Some((self.mount.clone(), self.connection)),
        }
    }

    fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.process.id())
    }

    fn time_to_ready(&self) -> Duration {
        self.time_to_ready
    }

    fn sync(&mut self) -> io::Result<()> {
        rustix::fs::syncfs(File::open(&self.mount)?)?;
        fuse::ask(&self.control(), fuse::Command::Sync)?;
        Ok(())
    }

    fn drop_caches(&mut self) -> io::Result<()> {
        self.sync()?;
        drop_machine_caches(&self.site.dir)?;
        self.settle()
    }

    fn restart(&mut self) -> io::Result<()> {
        self.stop()?;
        drop_machine_caches(&self.site.dir)?;
        self.start()
    }

    fn counters(&mut self) -> io::Result<Option<Counters>> {
        fuse::ask(&self.control(), fuse::Command::Counters).map(Some)
    }

    fn obituary(&mut self) -> Option<String> {
        let daemon = self.daemon.as_mut()?;
        match daemon.process.try_wait() {
            Ok(Some(status)) => Some(format!(
                "the {} daemon ended: {status}",
                self.backend.name()
            )),
            _ => None,
        }
    }

    fn kill(&mut self) -> io::Result<bool> {
        let Some(mut daemon) = self.daemon.take() else {
            return Ok(false);
        };
        daemon.process.kill()?;
        daemon.process.wait()?;
        Ok(true)
    }

    fn close(mut self: Box<Self>) -> io::Result<()> {
        self.stop()
    }
}

impl Drop for MountedWorkspace {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.take_down_by_force();
        }
    }
}

/// Waits for a child for at most `patience`.
fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
