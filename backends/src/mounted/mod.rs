//! Backends whose files a daemon serves: `ctxbench mount` as a child process.
//!
//! A separate process can be killed, stopped, measured and restarted. It also excludes a deadlock of a
//! mount with the process that uses it. It unmounts when its standard input closes, so it ends with us.

mod llm;
mod relaunched;
mod s3;
mod workspace;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) use llm::{LlmMode, LlmMount};
pub(crate) use s3::{S3Mount, S3Variant};

use crate::backend::{
    Backend, Capabilities, Description, MODEL, Need, Receipt, Site, Unavailable, Workspace, kernel,
};
use crate::fuse::{self, MountError};
use crate::promise::{Acknowledgement, Promises};
use relaunched::Relaunched;
use s3::CACHE;
use workspace::MountedWorkspace;

/// The line that a daemon prints on standard output once its mount is usable.
pub const READY: &str = "ready";

/// The file name of a local store's database in its site.
const STORE: &str = "store.db";

/// The stores that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mounted {
    Null,
    Memory,
    Sqlite,
    /// `sqlite` with the kernel's writeback cache.
    SqliteWriteback,
    AgentMemory,
    /// With an embedding model.
    AgentMemoryMeaning,
    S3(S3Mount),
    Llm(LlmMount),
}

/// Options and environment of a daemon, besides those that every daemon gets.
#[derive(Clone, Default)]
pub struct Launch {
    /// Options of `ctxbench mount`.
    pub arguments: Vec<OsString>,
    /// Environment variables; the only way to pass keys.
    pub environment: Vec<(&'static str, String)>,
}

impl Mounted {
    fn name(self) -> String {
        match self {
            Mounted::S3(mount) => mount.name(),
            Mounted::Llm(mount) => mount.name(),
            Mounted::SqliteWriteback => "sqlite-writeback".to_owned(),
            Mounted::AgentMemoryMeaning => "agent-memory-meaning".to_owned(),
            store => store.store().to_owned(),
        }
    }

    /// Whether a restart removes the local cache.
    fn starts_empty(self) -> bool {
        matches!(self, Mounted::S3(mount) if mount.starts_empty())
    }

    /// Its name in `ctxbench mount`.
    fn store(self) -> &'static str {
        match self {
            Mounted::Null => "null",
            Mounted::Memory => "memory",
            Mounted::Sqlite | Mounted::SqliteWriteback => "sqlite",
            Mounted::AgentMemory | Mounted::AgentMemoryMeaning => "agent-memory",
            Mounted::S3(_) => "s3",
            Mounted::Llm(mount) => mount.mode.store(),
        }
    }

    /// The agent's directory in the mount `root`, which must list only the agent's files.
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

    /// The launch of the workspace at `site`, or of a second host whose own files are in `beside`.
    fn launch(self, site: &Site, beside: Option<&Path>) -> io::Result<Launch> {
        Ok(match self {
            Mounted::Null | Mounted::Memory => Launch::default(),
            Mounted::Sqlite | Mounted::SqliteWriteback => {
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
            Mounted::AgentMemory | Mounted::AgentMemoryMeaning => {
                let embeddings = match self {
                    Mounted::AgentMemoryMeaning => {
                        embeddings::find().map_err(io::Error::other)?.into()
                    }
                    _ => "none".into(),
                };
                Launch {
                    arguments: vec![
                        "--db".into(),
                        site.dir.join(STORE).into(),
                        "--embeddings".into(),
                        embeddings,
                    ],
                    ..Launch::default()
                }
            }
            Mounted::S3(mount) => mount.launch(site, beside)?,
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
            Mounted::AgentMemoryMeaning => (
                "agent-memory that recalls by meaning, too, with a sentence model in the daemon",
                "as sqlite; what is found by words is up to date when close returns, by meaning soon after",
                env!("CTXBENCH_LINES_AGENT_MEMORY_MEANING"),
            ),
            Mounted::S3(mount) => (
                "",
                match mount.variant {
                    S3Variant::Fsync => {
                        "as sqlite after a killed daemon; fsync makes everything before it be in the bucket, which survives the loss of the machine"
                    }
                    S3Variant::Close => {
                        "as sqlite after a killed daemon; close and fsync make what is closed or synced be in the bucket, which survives the loss of the machine"
                    }
                    S3Variant::Default | S3Variant::Fresh => {
                        "as sqlite after a killed daemon or power loss; the bucket, which survives the loss of the machine, follows within a second"
                    }
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
                let empty = match mount.starts_empty() {
                    true => ", empty at each restart as on a new host (cold cells only)",
                    false => "",
                };
                let how = mount.variant.difference();
                format!(
                    "FUSE over a local SQLite cache and journal{empty} of a bucket {server}{how}"
                )
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
                answers_requests: matches!(
                    self,
                    Mounted::AgentMemory | Mounted::AgentMemoryMeaning
                ),
                guesses_content: matches!(
                    self,
                    Mounted::Llm(mount) if mount.mode == LlmMode::History
                ),
                starts_empty: self.starts_empty(),
                several_hosts: matches!(self, Mounted::S3(_)),
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
            Mounted::Sqlite | Mounted::AgentMemory | Mounted::AgentMemoryMeaning => local,
            // The kernel may still hold the dirty pages of an open file.
            Mounted::SqliteWriteback => Promises {
                killed_daemon: Some(Acknowledgement::Close),
                ..local
            },
            Mounted::S3(mount) => Promises {
                machine_loss: Some(match mount.variant {
                    S3Variant::Fsync => Acknowledgement::Fsync,
                    S3Variant::Close => Acknowledgement::Close,
                    S3Variant::Default | S3Variant::Fresh => Acknowledgement::Sync,
                }),
                ..local
            },
            // The log is a SQLite file, but the model derives a file's content from it anew.
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
            Mounted::Sqlite
            | Mounted::SqliteWriteback
            | Mounted::AgentMemory
            | Mounted::AgentMemoryMeaning => Some(site.dir.join(STORE)),
            Mounted::S3(_) => Some(site.dir.join(CACHE)),
            Mounted::Null | Mounted::Memory | Mounted::Llm(_) => None,
        }
    }

    fn second_mount(&self, site: &Site, beside: &Path) -> io::Result<Option<Command>> {
        if self.database(site).is_none() {
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
        if !matches!(self, Mounted::Null | Mounted::Memory | Mounted::Llm(_)) {
            receipt.insert("sqlite".to_owned(), rusqlite::version().to_owned());
        }
        if *self == Mounted::AgentMemoryMeaning {
            let dir = embeddings::find().map_err(|missing| Unavailable {
                reason: missing.to_string(),
                fix: "make embeddings".to_owned(),
            })?;
            receipt.insert("embeddings".to_owned(), dir.display().to_string());
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
        if self.starts_empty() {
            // Those options choose the cache's path, so a restart would not remove it.
            return None;
        }
        Some(Box::new(Relaunched {
            mounted: *self,
            launch: Some(launch),
            options: Vec::new(),
        }))
    }

    fn with_option(&self, option: &str) -> Option<Box<dyn Backend>> {
        Some(Box::new(Relaunched {
            mounted: *self,
            launch: None,
            options: vec![option.into()],
        }))
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        Ok(Box::new(MountedWorkspace::open(*self, site, None)?))
    }

    fn offline_read(&self, site: &Site, name: &str) -> Option<(String, Vec<OsString>)> {
        match self {
            Mounted::Null | Mounted::Memory | Mounted::S3(_) | Mounted::Llm(_) => None,
            Mounted::Sqlite
            | Mounted::SqliteWriteback
            | Mounted::AgentMemory
            | Mounted::AgentMemoryMeaning => {
                let query = format!(
                    "SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/{name}' ORDER BY at"
                );
                let db = site.dir.join(STORE);
                Some(("sqlite3".to_owned(), vec![db.into(), query.into()]))
            }
        }
    }
}
