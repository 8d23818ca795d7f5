//! Stores as sub-commands of `ctxbench mount`: the options of each, and how they open it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, ArgMatches, Args, Command, value_parser};
use models::LlamaServer;

use crate::store::{Caller, Store};

/// Why a store cannot be opened, in words for its user.
pub type StoreOpenError = Box<dyn std::error::Error + Send + Sync>;

/// The place at which a store is mounted.
#[derive(Clone, Copy, Debug)]
pub struct MountPoint<'a> {
    /// The directory.
    pub dir: &'a Path,
    /// The owner of the root of a new store.
    pub owner: &'a Caller,
}

impl MountPoint<'_> {
    /// The path of the directory with `suffix` at its end: of `ctx`, `ctx.db` with `.db`.
    pub fn beside(&self, suffix: &str) -> PathBuf {
        beside(self.dir, suffix)
    }
}

/// The path of `dir` with `suffix` at its end: of a directory `ctx`, `ctx.db` with `.db`.
pub fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut beside: OsString = dir.components().collect::<PathBuf>().into();
    beside.push(suffix);
    beside.into()
}

/// A store that is ready to be mounted.
pub struct OpenedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its source in the mount table, without the prefix `ctxbench-`.
    pub source: String,
    /// Messages for the user.
    pub notes: Vec<String>,
    /// Whether the kernel gathers writes.
    pub writeback: bool,
    /// A server that must live as long as the mount.
    pub server: Option<LlamaServer>,
}

impl OpenedStore {
    /// A store without messages and server; the kernel passes each write on.
    pub fn of(store: impl Store + 'static, source: impl Into<String>) -> Self {
        Self {
            store: Arc::new(store),
            source: source.into(),
            notes: Vec::new(),
            writeback: false,
            server: None,
        }
    }
}

/// An option of stores whose files nothing but the mount changes.
#[derive(Clone, Copy, Debug, Args)]
pub struct Writeback {
    /// Let the kernel gather writes until a file is closed or synced. What was written and neither closed nor synced
    /// is then lost with a killed daemon, and holes are not told from zeros.
    #[arg(long)]
    pub writeback: bool,
}

/// The options of a store in `ctxbench mount`. The documentation of the type is the store's help.
///
/// No field has the name of an option of every mount, such as `log` or `threads`, or is called `dir`; clap refuses that.
pub trait StoreOptions: Args {
    /// The name of the store there.
    const NAME: &'static str;

    /// Examples for its help, as arguments of `ctxbench mount`. The help adds one with `--daemon`.
    const EXAMPLES: &'static [&'static str] = &[];

    /// Opens the store.
    ///
    /// # Errors
    /// If the options do not fit, or the store cannot be opened.
    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError>;
}

/// A sub-command of `ctxbench mount`.
#[derive(Clone, Copy, Debug)]
pub struct MountCommand {
    /// The name of the store.
    pub name: &'static str,
    examples: &'static [&'static str],
    augment: fn(Command) -> Command,
    open: fn(&ArgMatches, MountPoint<'_>) -> Result<OpenedStore, StoreOpenError>,
}

impl MountCommand {
    /// The argument with the directory.
    pub const DIR: &'static str = "dir";

    /// The sub-command with the options `O`.
    pub fn of<O: StoreOptions>() -> Self {
        Self {
            name: O::NAME,
            examples: O::EXAMPLES,
            augment: O::augment_args,
            open: |matches, at| O::from_arg_matches(matches)?.open(at),
        }
    }

    /// Its definition for the command line.
    pub fn command(&self) -> Command {
        let dir = Arg::new(Self::DIR)
            .value_name("DIR")
            .help("An empty directory")
            .value_parser(value_parser!(PathBuf))
            .required(true);
        let plain = format!("{} ctx", self.name);
        let mut examples = self.examples.to_vec();
        if examples.is_empty() {
            examples.push(&plain);
        }
        let first = examples[0].split("  ").next().unwrap_or_default();
        let in_background = format!("--daemon {first}");
        examples.push(&in_background);
        let lines = examples.iter();
        let lines = lines.map(|line| format!("\n  ctxbench mount {line}"));
        let command = (self.augment)(Command::new(self.name).arg(dir));
        command.after_help(format!("Examples:{}", lines.collect::<String>()))
    }

    /// Opens the store by its options in `matches`, those of [`MountCommand::command`].
    ///
    /// # Errors
    /// As [`StoreOptions::open`].
    pub fn open(
        &self,
        matches: &ArgMatches,
        at: MountPoint<'_>,
    ) -> Result<OpenedStore, StoreOpenError> {
        (self.open)(matches, at)
    }
}
