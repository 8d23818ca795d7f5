//! `ctxbench mount`: mounts a backend and serves it, for a user or for the harness.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use arms::READY;
use arms::mount_command::{MountCommand, MountPoint, OpenedStore, absolute_path, beside};
use backends::registry::Registry;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};
use fuse::cpu;
use fuse::daemon_log;
use fuse::store::{Caller, ROOT, Store, Timestamp};
use fuse::{MountOptions, Stop, StoredOwner, check, serve};
use inputs::border;
use inputs::files::open_text_to_append;
use parking_lot::Mutex;

use super::mount_daemon;
use crate::error_text;
use crate::model_options::{GenerateMountOptions, HistoryMountOptions};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use trial::interrupt::{end_signals, stop_at_end_of_stdin, stop_at_signals};

/// Mount a store on an empty directory and serve it until Ctrl-C.
///
/// Only you can use the mount, unless --allow-other is given. It ends with Ctrl-C, SIGTERM, or `ctxbench unmount DIR`
/// from another terminal. The store keeps its content; mount it again to continue.
#[derive(Debug, Args)]
#[command(
    override_usage = "ctxbench mount [OPTIONS] <STORE> [OPTIONS OF THE STORE] <DIR>",
    subcommand_help_heading = "Stores",
    next_help_heading = "Options of every mount",
    after_help = "Examples:
  mkdir ctx && ctxbench mount sqlite ctx          # files in ctx.db
  ctxbench mount --daemon sqlite ctx              # the same in the background
  ctxbench mount s3 --help                        # the options of a store

The variable CTXBENCH_LOG sets the level of the log [default: warn]:
  error   a call or a background task failed: data may be lost, not durable, or stale
  warn    the mount continues, but with reduced function or after a repair
  info    settings that the mount chose, and retries
  debug   single events, such as a failed request; `warn,sqlite=debug` for one crate alone"
)]
pub struct Mount {
    #[command(subcommand)]
    chosen: MountChoice,
    /// Let other users use the mount, within file permissions. Needs root, or `user_allow_other` in /etc/fuse.conf.
    #[arg(long, global = true)]
    allow_other: bool,
    /// Honour set-user-ID programs and device nodes on the mount. Needs root.
    #[arg(long, global = true)]
    allow_privileges: bool,
    /// Map this stored user and group to yours: their files appear as yours, and your new files are stored as theirs.
    /// Files of a rootless container, or of another user namespace, are stored as 0:0.
    #[arg(long, global = true, value_name = "UID[:GID]")]
    owner: Option<StoredOwner>,
    /// Run in the background as soon as the mount is usable. `ctxbench status` shows it, and `ctxbench unmount` ends
    /// it.
    #[arg(long, global = true)]
    daemon: bool,
    /// Append the log to this file, which is created if missing; a file that is not text, a link or a device is
    /// refused [default: standard error; with --daemon DIR.log].
    #[arg(long, global = true, value_name = "FILE", value_parser = absolute_path())]
    pub(super) log: Option<PathBuf>,
    /// Whether this is the process that --daemon started.
    #[arg(long, global = true, hide = true)]
    detached: bool,
    /// Number of threads that answer requests. Requests that wait for a model or a server have separate threads
    /// [default: one for each usable processor, at most two].
    #[arg(long, global = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Answer requests on this processor, whatever processors the caller may use.
    #[arg(long, global = true, value_name = "NUMBER", hide = true)]
    cpu: Option<usize>,
    /// Listen on this Unix socket for counters and sync.
    #[arg(long, global = true, value_name = "SOCKET", hide = true, value_parser = absolute_path())]
    control: Option<PathBuf>,
    /// Say `ready` on standard output, and unmount when standard input ends; a parent that is killed wakes a stopped
    /// mount for that.
    #[arg(long, global = true, hide = true)]
    until_stdin_ends: bool,
}

/// All stores that can be mounted, in the order of the help.
pub fn stores() -> impl Iterator<Item = MountCommand> {
    let models = [MountCommand::of::<HistoryMountOptions>(), MountCommand::of::<GenerateMountOptions>()];
    Registry::mount_commands().into_iter().chain(models)
}

/// The store to be mounted, with its options and the directory.
#[derive(Clone, Debug)]
struct MountChoice {
    store: MountCommand,
    given: ArgMatches,
    dir: PathBuf,
}

impl FromArgMatches for MountChoice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let chosen = matches.subcommand();
        let (name, given) = chosen.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let store = stores().find(|store| store.name == name).ok_or_else(|| {
            let names: Vec<&str> = stores().map(|store| store.name).collect();
            let known = inputs::names::alternatives(name, names);
            let message = format!("unknown store {name}; {known}");
            let mut mount = Mount::augment_args(Command::new("ctxbench mount"));
            mount.error(ErrorKind::InvalidSubcommand, message)
        })?;
        let dir = given.get_one::<PathBuf>(MountCommand::DIR).cloned();
        Ok(Self {
            store,
            given: given.clone(),
            dir: dir.ok_or_else(|| clap::Error::new(ErrorKind::MissingRequiredArgument))?,
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Subcommand for MountChoice {
    fn augment_subcommands(command: Command) -> Command {
        // `from_arg_matches` answers an unknown name with the known ones.
        let command = command.allow_external_subcommands(true);
        command.subcommands(stores().map(|store| store.command()))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        stores().any(|store| store.name == name)
    }
}

impl Mount {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.check()?;
        if self.daemon {
            let log = self.log.clone();
            return mount_daemon::start(&log.unwrap_or_else(|| beside(&self.chosen.dir, ".log")));
        }
        if self.detached {
            // The terminal's signals must not end a background mount.
            setsid().context("leaving the session of the terminal")?;
        }
        if self.until_stdin_ends {
            wake_when_parent_ends()?;
        }
        if self.cpu.is_some() {
            // The harness is pinned to that processor. Background threads must not inherit this.
            cpu::unpin().context("leaving the caller's processor")?;
        }
        let start = Start::new().context("setting up signal handling")?;
        // A write past `ulimit -f` fails with EFBIG; without a handler, the signal would end the daemon.
        signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::<AtomicBool>::default())
            .context("handling the signal of the size limit")?;
        // A start that fails leaves none of these files.
        let of_models = [".llmfs.log", ".llmfs.json.lock"];
        let of_models = of_models.map(|suffix| beside(&self.chosen.dir, suffix));
        let new = NewFiles::of(self.log.iter().chain(&of_models));
        // Start the log after that, because its thread inherits this thread's processors.
        let log = self.log_file()?;
        let has_log_file = log.is_some();
        daemon_log::start(log).context("starting the log")?;
        let served = self.open_and_serve(&start);
        if !start.has_mounted() {
            daemon_log::finish();
            new.remove();
        }
        if let (Err(error), true) = (&served, has_log_file) {
            // `main` writes the error to the log only, and the user looks here.
            eprintln!("ctxbench: {}", error_text::words(error));
        }
        served
    }

    /// Checks the directory and all paths before anything is made.
    fn check(&self) -> anyhow::Result<()> {
        check(&self.chosen.dir)?;
        if self.allow_privileges && !rustix::process::geteuid().is_root() {
            bail!(
                "--allow-privileges has no effect for user {}: the kernel ignores set-user-ID bits and device nodes on the mounts of other users than root\n  fix: leave it out, or mount as root",
                rustix::process::geteuid().as_raw()
            );
        }
        if self.allow_other && !rustix::process::geteuid().is_root() && !may_allow_other() {
            bail!(
                "--allow-other is for root only, unless {FUSE_CONF} has the line `user_allow_other`\n  fix: add that line as root, or leave --allow-other out"
            );
        }
        let usual = || beside(&self.chosen.dir, ".log");
        let of_daemon = (self.daemon || self.detached).then(usual);
        if let Some(log) = self.log.clone().or(of_daemon) {
            MountCommand::check_log(&self.chosen.given, &log, &self.chosen.dir)?;
        }
        let more = self.log.iter().chain(&self.control);
        let more = more.map(PathBuf::as_path);
        MountCommand::check_paths(&self.chosen.given, more, &self.chosen.dir)?;
        Ok(())
    }

    /// The file of `--log`, opened. The daemon of --daemon has it as its standard error.
    fn log_file(&self) -> anyhow::Result<Option<File>> {
        let log = self.log.as_ref().filter(|_| !self.detached);
        log.map(|log| open_log(log)).transpose()
    }

    fn open_and_serve(&self, start: &Start) -> anyhow::Result<ExitCode> {
        let owner = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            now: Timestamp::now(),
        };
        let dir = self.chosen.dir.as_path();
        let at = MountPoint { dir, owner: &owner };
        let opened = self.chosen.store.open(&self.chosen.given, at);
        let OpenedStore { store, source, mut notes, writeback, read_only, server: _server } =
            opened.map_err(anyhow::Error::from_boxed)?;
        if start.is_interrupted() {
            store.discard_new();
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if self.detached {
            // The file system of the directory that it was started from can be unmounted.
            std::env::set_current_dir("/").context("leaving the current directory")?;
        }
        notes.extend(self.foreign_owner(&*store, &owner));
        notes.extend(read_only.iter().map(|reason| format!("read-only: {reason}")));
        let options = MountOptions {
            source: format!("ctxbench-{source}"),
            allow_other: self.allow_other,
            allow_privileges: self.allow_privileges,
            owner: self.owner,
            read_only: read_only.is_some(),
            writeback,
            threads: self.threads(),
            cpu: self.cpu,
            control: self.control.clone(),
        };
        let until_stdin_ends = self.until_stdin_ends;
        let is_detached = self.detached;
        serve(store, dir, &options, move |stop| {
            start.mounted(stop.clone());
            // The reader may have closed standard output. `println!` would panic and leave the mount behind.
            let mut out = io::stdout();
            if until_stdin_ends {
                let _ = writeln!(out, "{READY}");
                stop_at_end_of_stdin(move || stop.stop());
                return;
            }
            let dir = border::path(dir);
            let end = if is_detached {
                format!("`ctxbench unmount {dir}`")
            } else {
                format!("Ctrl-C here, or `ctxbench unmount {dir}`")
            };
            let _ = writeln!(out, "{} is mounted on {dir}; unmount with {end}", border::line(&source));
            for note in notes {
                let _ = writeln!(out, "{}", border::line(&note));
            }
            if is_detached && mount_daemon::leave_parent().is_err() {
                // The command that was to report this mount was killed.
                stop.stop();
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    /// A message if the root belongs to a user other than the mount's only user.
    fn foreign_owner(&self, store: &dyn Store, user: &Caller) -> Option<String> {
        let root = store.getattr(ROOT).ok()?;
        let is_usable = user.uid == 0 || self.allow_other || self.owner.is_some();
        (!is_usable && root.uid != user.uid).then(|| {
            let (uid, gid) = (root.uid, root.gid);
            format!(
                "its root directory belongs to user {uid}, and you are user {}: mount it with `--owner {uid}:{gid}` to use its files as yours",
                user.uid
            )
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
}

/// The settings of `fusermount3`.
const FUSE_CONF: &str = "/etc/fuse.conf";

/// Whether users other than root may let others use their mounts.
fn may_allow_other() -> bool {
    let settings = std::fs::read_to_string(FUSE_CONF).unwrap_or_default();
    settings.lines().any(|line| line.trim() == "user_allow_other")
}

/// The exit code of a start that a signal has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// How long opening a store may go on after a signal.
const START_PATIENCE: Duration = Duration::from_secs(3);

/// The progress of a mount's start, which decides the effect of a signal.
struct Start(Arc<Mutex<Progress>>);

#[derive(Default)]
struct Progress {
    is_interrupted: bool,
    mounted: Option<Stop>,
}

impl Start {
    /// Catches signals from now on.
    fn new() -> io::Result<Self> {
        let progress = Arc::new(Mutex::new(Progress::default()));
        let at_signal = Arc::clone(&progress);
        stop_at_signals(end_signals()?, move || {
            let mut progress = at_signal.lock();
            progress.is_interrupted = true;
            if let Some(stop) = &progress.mounted {
                return stop.stop();
            }
            let opening = Arc::clone(&at_signal);
            std::thread::spawn(move || {
                std::thread::sleep(START_PATIENCE);
                // Opening waits for a server or a model, and nothing ends that wait.
                if opening.lock().mounted.is_none() {
                    std::process::exit(INTERRUPTED.into());
                }
            });
        });
        Ok(Self(progress))
    }

    fn is_interrupted(&self) -> bool {
        self.0.lock().is_interrupted
    }

    fn has_mounted(&self) -> bool {
        self.0.lock().mounted.is_some()
    }

    /// The mount can be used: from now on a signal stops it, and one that came before stops it now.
    fn mounted(&self, stop: Stop) {
        let mut progress = self.0.lock();
        if progress.is_interrupted {
            stop.stop();
        }
        progress.mounted = Some(stop);
    }
}

/// Files that were not there before a start.
pub(super) struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Those of `files` that do not exist now.
    pub(super) fn of<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Self {
        let absent = files.filter(|file| file.symlink_metadata().is_err());
        Self(absent.cloned().collect())
    }

    /// Removes those that exist by now.
    pub(super) fn remove(&self) {
        for file in &self.0 {
            // An error means that it was not created.
            let _ = std::fs::remove_file(file);
        }
    }
}

/// Opens a log to append to it: a new file, or one of text.
pub(super) fn open_log(log: &Path) -> anyhow::Result<File> {
    let opened = open_text_to_append(log).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            let fix = "name a new file, or a log of earlier mounts, with --log FILE";
            io::Error::other(format!("it {error}\n  fix: {fix}"))
        }
        _ => inputs::advised_for_new(log, &error),
    });
    opened.with_context(|| format!("opening the log {}", border::path(log)))
}

/// Asks the kernel for SIGCONT when the parent ends. The harness stops a daemon while it measures another arm.
/// If the harness is killed meanwhile, SIGCONT lets the daemon read the end of its standard input.
fn wake_when_parent_ends() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::CONT)).context("asking for a signal when the parent ends")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use s3_store::S3Options;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: S3Options,
    }

    #[test]
    fn a_time_with_a_unit_is_refused_with_the_unit_that_is_meant() {
        for option in ["--poll", "--delay"] {
            for wrong in ["1s", "9", "1.5"] {
                let line = Line::try_parse_from(["s3", "--agent-id", "a", option, wrong]);
                let error = line.map(|line| line.options).unwrap_err().to_string();
                assert!(error.contains("milliseconds from 10 without a unit"), "{option} {wrong}: {error}");
            }
        }
    }
}
