//! `ctxbench mount`: mounts a backend and serves it, for a user or for the harness.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use backends::READY;
use backends::cpu;
use backends::daemon_log;
use backends::fuse::{MountOptions, check, serve};
use backends::mount_command::{MountCommand, MountPoint, OpenedStore, beside};
use backends::registry::Registry;
use backends::store::{Caller, Timestamp};
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand};

use super::mount_daemon;
use crate::interrupt::{end_signals, stop_at_end_of_stdin, stop_at_signals};
use crate::model_options::{GenerateMountOptions, HistoryMountOptions};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};

/// Mount a store on an empty directory and serve it until Ctrl-C.
///
/// The mount belongs to you alone unless --allow-other is given. It ends with Ctrl-C, SIGTERM, or
/// `ctxbench unmount DIR` from elsewhere. What is in the store stays: mount it again to go on.
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
  error   a call or background work failed: data may be lost, not durable, or stale
  warn    the mount goes on, with less than was asked for, or after a repair
  info    settings that the mount chose, and retries
  debug   single events, such as a failed request; `warn,backends=debug` for one crate alone"
)]
pub struct Mount {
    #[command(subcommand)]
    chosen: Chosen,
    /// Let other users in, as far as file permissions let them. Needs root, or `user_allow_other`
    /// in /etc/fuse.conf.
    #[arg(long, global = true)]
    allow_other: bool,
    /// Honour set-user-ID programs and device nodes on the mount. Needs root.
    #[arg(long, global = true)]
    allow_privileges: bool,
    /// Go to the background as soon as the mount can be used: `ctxbench status` shows it, `ctxbench unmount` ends it.
    #[arg(long, global = true)]
    daemon: bool,
    /// Append the log to this file [default: standard error; with --daemon DIR.log].
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) log: Option<PathBuf>,
    /// Whether this is the process that --daemon started.
    #[arg(long, global = true, hide = true)]
    detached: bool,
    /// Threads that answer requests; what waits for a model or a server has one of its own [default: one for each
    /// processor that they may use, two at most].
    #[arg(long, global = true, value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: Option<u8>,
    /// Answer requests on this processor, whatever processors the caller may use.
    #[arg(long, global = true, value_name = "NUMBER", hide = true)]
    cpu: Option<usize>,
    /// Listen on this Unix socket for counters and sync.
    #[arg(long, global = true, value_name = "SOCKET", hide = true)]
    control: Option<PathBuf>,
    /// Say `ready` on standard output, and unmount when standard input ends; a parent that is killed wakes a stopped
    /// mount for that.
    #[arg(long, global = true, hide = true)]
    until_stdin_ends: bool,
}

/// All stores that can be mounted, in the order of the help.
pub fn stores() -> impl Iterator<Item = MountCommand> {
    let models = [
        MountCommand::of::<HistoryMountOptions>(),
        MountCommand::of::<GenerateMountOptions>(),
    ];
    Registry::mount_commands().into_iter().chain(models)
}

/// The store to be mounted, with its options and the directory.
#[derive(Clone, Debug)]
struct Chosen {
    store: MountCommand,
    given: ArgMatches,
    dir: PathBuf,
}

impl FromArgMatches for Chosen {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let chosen = matches.subcommand();
        let (name, given) = chosen.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        let store = stores().find(|store| store.name == name).ok_or_else(|| {
            let names: Vec<&str> = stores().map(|store| store.name).collect();
            let message = format!("there is no store {name}; there are {}", names.join(", "));
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

impl Subcommand for Chosen {
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
        if self.daemon {
            check(&self.chosen.dir)?;
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
        // Check before creating a database that could not be mounted.
        check(&self.chosen.dir)?;
        if self.cpu.is_some() {
            // The harness is pinned to that processor. Background threads must not inherit this.
            cpu::go_anywhere().context("leaving the caller's processor")?;
        }
        // Start the log after that, because its thread inherits this thread's processors.
        let log = self.log_file()?;
        let has_log_file = log.is_some();
        daemon_log::start(log).context("starting the log")?;
        let served = self.open_and_serve();
        if let (Err(error), true) = (&served, has_log_file) {
            // `main` writes the error to the log only, and the user looks here.
            eprintln!("ctxbench: {error:#}");
        }
        served.map(|()| ExitCode::SUCCESS)
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

    fn open_and_serve(&self) -> anyhow::Result<()> {
        let owner = Caller {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            now: Timestamp::now(),
        };
        let dir = self.chosen.dir.as_path();
        let at = MountPoint { dir, owner: &owner };
        let opened = self.chosen.store.open(&self.chosen.given, at);
        let OpenedStore {
            store,
            source,
            notes,
            writeback,
            server: _server,
        } = opened.map_err(anyhow::Error::from_boxed)?;
        let options = MountOptions {
            source: format!("ctxbench-{source}"),
            allow_other: self.allow_other,
            allow_privileges: self.allow_privileges,
            writeback,
            threads: self.threads(),
            cpu: self.cpu,
            control: self.control.clone(),
        };
        // Catch signals now: one between mounting and serving would leave a mount behind.
        let signals = end_signals().context("setting up signal handling")?;
        let until_stdin_ends = self.until_stdin_ends;
        let is_detached = self.detached;
        serve(store, dir, &options, move |stop| {
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

/// Asks the kernel for SIGCONT when the parent ends. The harness stops a daemon while it measures another arm.
/// If the harness is killed meanwhile, SIGCONT lets the daemon read the end of its standard input.
fn wake_when_parent_ends() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::CONT))
        .context("asking for a signal when the parent ends")
}
