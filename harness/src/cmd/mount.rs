//! `ctxbench mount`: mounts a backend and serves it, for a user or for the harness.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use backends::READY;
use backends::agent_memory::{AgentMemory, Embeddings};
use backends::cpu;
use backends::daemon_log;
use backends::fuse::{MountOptions, check, serve};
use backends::registry::Registry;
use backends::s3::{OpenOptions, S3Store};
use backends::sqlite::{SqliteStore, go_on_without_log};
use backends::store::{Caller, Store, Timestamp};
use backends::view::{ViewStore, definition};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use super::mount_daemon;
use super::s3::{Behaviour, Bucket};
use crate::interrupt::{end_signals, stop_at_end_of_stdin, stop_at_signals};
use crate::model_options::{GenerateArgs, HistoryArgs, ModelArgs, beside};
use models::LlamaServer;
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use s3::config::check_name;

/// Mount a backend on an empty directory and serve it until Ctrl-C.
///
/// The mount belongs to you alone unless --allow-other is given. It ends with Ctrl-C, SIGTERM, or
/// `ctxbench unmount DIR` from elsewhere. What is in the store stays: mount it again to go on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  mkdir ctx && ctxbench mount sqlite ctx          # files in ctx.db
  ctxbench mount --daemon sqlite ctx              # the same in the background
  ctxbench mount sqlite --db notes.db ~/notes
  ctxbench mount memory /tmp/scratch              # gone when it ends
  ctxbench mount agent-memory --agent-id akashi --db avm.db /tmp/avm    # then: cat '/tmp/avm/:search?RSI'
  ctxbench mount s3 --endpoint http://127.0.0.1:9000 --agent-id alice ~/memory
  ctxbench mount s3 --agent-id alice --allow-offline ~/memory     # on the train, with the cache of yesterday
  ctxbench mount view --definition mail --source mail.db inbox    # rows of a database as files: docs/VIEW.md
  ctxbench mount llm-generate --prompt 'A small Python project' project    # after `make model`
  ctxbench mount llm-history --base-url http://127.0.0.1:11434/v1 --model qwen3 guess

The variable CTXBENCH_LOG sets the level of the log [default: warn]:
  error   a call or background work failed: data may be lost, not durable, or stale
  warn    the mount goes on, with less than was asked for, or after a repair
  info    settings that the mount chose, and retries
  debug   single events, such as a failed request; `warn,backends=debug` for one crate alone")]
pub struct Mount {
    /// The backend that holds the files.
    #[arg(value_parser = PossibleValuesParser::new(mountable()).map(Mountable::of))]
    backend: Mountable,
    /// An empty directory.
    dir: PathBuf,
    /// The database file of `sqlite` and `agent-memory`; created where missing [default: DIR.db].
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// The sentence model by which `agent-memory` recalls, as a directory, or `none`: full text alone
    /// [default: that of CTXBENCH_EMBEDDINGS, or of `make embeddings`, if it is installed].
    #[arg(long, value_name = "DIR")]
    embeddings: Option<PathBuf>,
    /// The definition of a `view`, as a .toml file or the name of a shipped one: vsm, mail, issues.
    #[arg(long, value_name = "NAME")]
    definition: Option<String>,
    /// Where the rows of a `view` are: a database file, a directory or a URL, as its definition says. PostgreSQL's password
    /// comes from PGPASSWORD.
    #[arg(long, value_name = "PLACE")]
    source: Option<String>,
    /// Let a `view` change rows, where its definition says how.
    #[arg(long)]
    writable: bool,
    #[command(flatten)]
    bucket: Bucket,
    #[command(flatten)]
    behaviour: Behaviour,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    generate: GenerateArgs,
    /// Let other users in, as far as file permissions let them. Needs root, or `user_allow_other`
    /// in /etc/fuse.conf.
    #[arg(long)]
    allow_other: bool,
    /// Honour set-user-ID programs and device nodes on the mount. Needs root.
    #[arg(long)]
    allow_privileges: bool,
    /// Let the kernel gather writes until a file is closed or synced (memory and sqlite only). What was written
    /// and neither closed nor synced is then lost with a killed daemon, and holes are not told from zeros.
    #[arg(long)]
    writeback: bool,
    /// Mount although the log of the database (`FILE-wal`) was removed after a crash: what was in the log alone is
    /// gone, and what is mounted is an earlier state (sqlite, agent-memory and the cache of s3).
    #[arg(long)]
    without_log: bool,
    /// Go to the background as soon as the mount can be used: `ctxbench status` shows it, `ctxbench unmount` ends it.
    #[arg(long)]
    daemon: bool,
    /// Append the log to this file [default: standard error; with --daemon DIR.log].
    #[arg(long, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Whether this is the process that --daemon started.
    #[arg(long, hide = true)]
    detached: bool,
    /// Threads that answer requests; what waits for a model or a server has one of its own [default: one for each
    /// processor that they may use, two at most].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Answer requests on this processor, whatever processors the caller may use.
    #[arg(long, value_name = "NUMBER", hide = true)]
    cpu: Option<usize>,
    /// Listen on this Unix socket for counters and sync.
    #[arg(long, value_name = "SOCKET", hide = true)]
    control: Option<PathBuf>,
    /// Say `ready` on standard output, and unmount when standard input ends; a parent that is killed wakes a stopped
    /// mount for that.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// A backend with options of its own, or another.
#[derive(Clone, Debug, PartialEq, Eq, ValueEnum)]
enum Mountable {
    /// One SQLite file.
    Sqlite,
    /// One SQLite file, whose notes can be searched and recalled: see docs/MEMORY.md.
    AgentMemory,
    /// A bucket on an S3 server, with a local cache.
    S3,
    /// A log of operations, from which a language model says what files hold.
    LlmHistory,
    /// Files that a language model makes up when they are first read.
    LlmGenerate,
    /// Rows of a database, files of a directory or answers of an interface, by a definition.
    View,
    /// A backend of the registry that has an opener, by its name.
    #[value(skip)]
    Plain(String),
}

impl Mountable {
    fn of(name: String) -> Self {
        Self::from_str(&name, false).unwrap_or(Self::Plain(name))
    }

    fn name(&self) -> String {
        match (self, self.to_possible_value()) {
            (Self::Plain(name), _) => name.clone(),
            (_, value) => value.map_or_else(String::new, |value| value.get_name().to_owned()),
        }
    }
}

/// The backends that can be mounted: those with options, then the registry's with an opener. Backends that only serve
/// to measure come last.
pub fn mountable() -> Vec<PossibleValue> {
    let ours = Registry::default().ours().into_iter().rev();
    let plain = ours.filter(|backend| backend.opener().is_some());
    let plain = plain.map(|backend| backend.describe());
    let plain = plain.map(|backend| PossibleValue::new(backend.name).help(backend.summary));
    let with_options = Mountable::value_variants().iter();
    let with_options = with_options.filter_map(ValueEnum::to_possible_value);
    with_options.chain(plain).collect()
}

impl Mount {
    pub fn run(self, registry: &Registry) -> anyhow::Result<ExitCode> {
        self.check_options()?;
        if self.daemon {
            check(&self.dir)?;
            let log = self.log.clone();
            return mount_daemon::start(&log.unwrap_or_else(|| beside(&self.dir, ".log")));
        }
        if self.detached {
            // The terminal's signals must not end a background mount.
            setsid().context("leaving the session of the terminal")?;
        }
        if self.until_stdin_ends {
            wake_when_parent_ends()?;
        }
        // Check before creating a database that could not be mounted.
        check(&self.dir)?;
        if self.cpu.is_some() {
            // The harness is pinned to that processor. Background threads must not inherit this.
            cpu::go_anywhere().context("leaving the caller's processor")?;
        }
        // Start the log after that, because its thread inherits this thread's processors.
        let log = self.log_file()?;
        let has_log_file = log.is_some();
        daemon_log::start(log).context("starting the log")?;
        let served = self.open_and_serve(registry);
        if let (Err(error), true) = (&served, has_log_file) {
            // `main` writes the error to the log only, and the user looks here.
            let _ = writeln!(std::io::stderr(), "ctxbench: {error:#}");
        }
        served.map(|()| ExitCode::SUCCESS)
    }

    /// Refuses options of other backends.
    fn check_options(&self) -> anyhow::Result<()> {
        let view = self.definition.is_some() || self.source.is_some() || self.writable;
        let repairs = &self.behaviour;
        let repairs = repairs.allow_offline || repairs.rebuild_cache || repairs.refill_bucket;
        let options: [(&str, &[&str], bool); 8] = [
            ("--db is", &["sqlite", "agent-memory"], self.db.is_some()),
            (
                "--agent-id is",
                &["s3", "agent-memory"],
                self.bucket.agent_id.is_some(),
            ),
            (
                "--embeddings is",
                &["agent-memory"],
                self.embeddings.is_some(),
            ),
            ("--definition, --source and --writable are", &["view"], view),
            ("--endpoint is", &["s3"], self.bucket.endpoint.is_some()),
            (
                "--allow-offline, --rebuild-cache and --refill-bucket are",
                &["s3"],
                repairs,
            ),
            ("--writeback is", &["memory", "sqlite"], self.writeback),
            (
                "--without-log is",
                &["sqlite", "agent-memory", "s3"],
                self.without_log,
            ),
        ];
        let backend = self.backend.name();
        for (option, backends, is_given) in options {
            if is_given && !backends.contains(&backend.as_str()) {
                let names = backends.join(", ");
                match names.rsplit_once(", ") {
                    Some((others, last)) => {
                        bail!("{option} for the {others} and {last} backends only")
                    }
                    None => bail!("{option} for the {names} backend only"),
                }
            }
        }
        Ok(())
    }

    /// The file of `--log`, opened. The daemon of --daemon has it as its standard error.
    fn log_file(&self) -> anyhow::Result<Option<File>> {
        let log = self.log.as_ref().filter(|_| !self.detached);
        log.map(|log| {
            let opened = File::options().create(true).append(true).open(log);
            opened.with_context(|| format!("opening the log {}", log.display()))
        })
        .transpose()
    }

    fn open_and_serve(&self, registry: &Registry) -> anyhow::Result<()> {
        if self.without_log
            && let Some(database) = self.database()
            && go_on_without_log(&database)?
        {
            tracing::warn!(
                "{}: its log is gone; this is an earlier state of it",
                database.display()
            );
        }
        let Opened {
            store,
            source,
            notes,
            _server,
        } = self.open_store(registry)?;
        let options = MountOptions {
            source: format!("ctxbench-{source}"),
            allow_other: self.allow_other,
            allow_privileges: self.allow_privileges,
            writeback: self.writeback,
            threads: self.threads(),
            cpu: self.cpu,
            control: self.control.clone(),
        };
        // Catch signals now: one between mounting and serving would leave a mount behind.
        let signals = end_signals().context("setting up signal handling")?;
        let (dir, until_stdin_ends) = (self.dir.clone(), self.until_stdin_ends);
        let is_detached = self.detached;
        serve(store, &self.dir, &options, move |stop| {
            let at_signal = stop.clone();
            stop_at_signals(signals, move || at_signal.stop());
            // The reader may have closed standard output. `println!` would panic and leave the mount behind.
            let mut out = std::io::stdout();
            if until_stdin_ends {
                let _ = writeln!(out, "{READY}");
                stop_at_end_of_stdin(move || stop.stop());
            } else {
                let dir = dir.display();
                let end = match is_detached {
                    true => format!("`ctxbench unmount {dir}`"),
                    false => format!("Ctrl-C here, or `ctxbench unmount {dir}`"),
                };
                let _ = writeln!(out, "{source} is mounted on {dir}; unmount with {end}");
                for note in notes {
                    let _ = writeln!(out, "{note}");
                }
                if is_detached {
                    let _ = writeln!(out, "{READY}");
                }
            }
        })?;
        Ok(())
    }

    fn open_store(&self, registry: &Registry) -> anyhow::Result<Opened> {
        let owner = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            now: Timestamp::now(),
        };
        Ok(match &self.backend {
            Mountable::LlmHistory => {
                let (store, server) = self.history.open(&self.model, &self.dir, &owner)?;
                Opened {
                    _server: server,
                    ..Opened::of(store, "llm-history")
                }
            }
            Mountable::LlmGenerate => {
                let (store, server) = self.generate.open(&self.model, &self.dir, &owner)?;
                Opened {
                    _server: server,
                    ..Opened::of(store, "llm-generate")
                }
            }
            Mountable::S3 => self.open_bucket(&owner)?,
            Mountable::AgentMemory => {
                let agent = self.bucket.agent_id.as_deref();
                if let Some(agent) = agent {
                    check_name("agent", agent)?;
                }
                let db = self.local_database();
                let source = db.display().to_string();
                let wanted = self.embeddings();
                let mut memory = AgentMemory::open(&db, &owner, agent)?;
                if let Embeddings::Off { reason } = &wanted {
                    tracing::info!("recall is by full text alone: {reason}");
                }
                memory
                    .set_embeddings(wanted)
                    .map_err(|reason| anyhow::anyhow!("the embedding model: {reason}"))?;
                Opened::of(Arc::new(memory), &source)
            }
            Mountable::View => self.open_view(&owner)?,
            Mountable::Sqlite => {
                let db = self.local_database();
                let source = db.display().to_string();
                Opened::of(Arc::new(SqliteStore::open(&db, &owner)?), &source)
            }
            Mountable::Plain(name) => {
                let opener = registry.find(name)?.opener();
                let open = opener.with_context(|| format!("mounting {name} needs options"))?;
                Opened::of(open(&owner)?, name)
            }
        })
    }

    /// On one processor a second thread only adds a switch to each request: the reply wakes the caller, whose next request
    /// wakes the other thread.
    fn threads(&self) -> usize {
        let processors = || match self.cpu {
            Some(_) => 1,
            None => std::thread::available_parallelism().map_or(2, |count| count.get().min(2)),
        };
        self.threads.map_or_else(processors, usize::from)
    }

    fn open_view(&self, owner: &Caller) -> anyhow::Result<Opened> {
        let shipped = definition::shipped().join(", ");
        let Some(name) = &self.definition else {
            bail!("a view needs --definition: {shipped}, or a .toml file (see docs/VIEW.md)");
        };
        let Some(place) = &self.source else {
            bail!("a view needs --source: the database, directory or URL that it shows");
        };
        let (file, text) = definition::find(name)?;
        let view = ViewStore::open((&file, &text), place, self.writable, owner)?;
        Ok(Opened::of(Arc::new(view), name))
    }

    fn open_bucket(&self, owner: &Caller) -> anyhow::Result<Opened> {
        let behaviour = &self.behaviour;
        let config = self.bucket.config(Some(behaviour))?;
        let cache = self.s3_cache();
        let source = format!("{}/{}agents/{}", config.bucket, config.prefix, config.agent);
        let options = OpenOptions {
            allow_offline: behaviour.allow_offline,
            refill_bucket: behaviour.refill_bucket,
            rebuild_cache: behaviour.rebuild_cache,
        };
        let store = S3Store::open(config, &cache, owner, options)?;
        let notes = store.notes().to_vec();
        Ok(Opened {
            notes,
            ..Opened::of(Arc::new(store), &source)
        })
    }
}

/// A store that is ready to be mounted.
struct Opened {
    store: Arc<dyn Store>,
    /// Its source in the mount table.
    source: String,
    /// Messages for the user.
    notes: Vec<String>,
    /// Must live as long as the mount.
    _server: Option<LlamaServer>,
}

impl Opened {
    fn of(store: Arc<dyn Store>, source: &str) -> Self {
        Self {
            store,
            source: source.to_owned(),
            notes: Vec::new(),
            _server: None,
        }
    }
}

impl Mount {
    /// The database file of a backend: its store, or its cache and journal. `None` if it has none.
    fn database(&self) -> Option<PathBuf> {
        match self.backend {
            Mountable::Sqlite | Mountable::AgentMemory => Some(self.local_database()),
            Mountable::S3 => Some(self.s3_cache()),
            Mountable::LlmHistory
            | Mountable::LlmGenerate
            | Mountable::View
            | Mountable::Plain(_) => None,
        }
    }

    fn local_database(&self) -> PathBuf {
        self.db.clone().unwrap_or_else(|| beside(&self.dir, ".db"))
    }

    fn s3_cache(&self) -> PathBuf {
        let cache = self.behaviour.cache.clone();
        cache.unwrap_or_else(|| beside(&self.dir, ".s3.db"))
    }

    /// The embedding model of `--embeddings`, or the installed one.
    fn embeddings(&self) -> Embeddings {
        let off = |reason: String| Embeddings::Off { reason };
        match &self.embeddings {
            Some(dir) if dir.as_os_str() == "none" => off("--embeddings none".to_owned()),
            Some(dir) => Embeddings::In(dir.clone()),
            None => {
                embeddings::find().map_or_else(|missing| off(missing.to_string()), Embeddings::In)
            }
        }
    }
}

/// Asks the kernel for SIGCONT when the parent ends. The harness stops a daemon while it measures another arm.
/// If the harness is killed meanwhile, SIGCONT lets the daemon read the end of its standard input.
fn wake_when_parent_ends() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::CONT))
        .context("asking for a signal when the parent ends")
}
