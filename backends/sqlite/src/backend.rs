//! The `sqlite` and `sqlite-writeback` backends.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use arms::backend::{Description, Launch, WorkspaceConfig};
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions, Writeback};
use arms::mounted::{MountedStore, description};
use arms::promise::{Acknowledgement, Promises};
use clap::Args;

use crate::{SqliteStore, go_on_without_log};

/// The file name of the database in a workspace's directory.
pub const STORE: &str = "store.db";

/// The whole state of a store in [`STORE`] after an orderly unmount: the database, and the directory of its tails.
pub const STATE: &[&str] = &[STORE, "store.db-tails"];

/// The options of every store that is in a database on this machine.
#[derive(Debug, Args)]
pub struct DatabaseOptions {
    /// The database, created if missing [default: DIR.db].
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    #[command(flatten)]
    log: LogOption,
}

impl DatabaseOptions {
    /// The path of the database, ready to be opened.
    ///
    /// # Errors
    /// As [`go_on_without_log`].
    pub fn prepare(self, at: MountPoint<'_>) -> Result<PathBuf, StoreOpenError> {
        let path = self.db.unwrap_or_else(|| at.beside(".db"));
        self.log.prepare(&path)?;
        Ok(path)
    }
}

/// The option by which a database without its log is opened.
#[derive(Clone, Copy, Debug, Args)]
pub struct LogOption {
    /// Mount although a log of the database or cache (`FILE-wal`, `FILE-redo`) was removed or damaged after a crash.
    /// Changes that only the log had are lost, and the mount shows an earlier state.
    #[arg(long)]
    without_log: bool,
}

impl LogOption {
    /// Prepares the database at `path`, if the option is given.
    ///
    /// # Errors
    /// As [`go_on_without_log`].
    pub fn prepare(self, path: &Path) -> Result<(), StoreOpenError> {
        if self.without_log && go_on_without_log(path)? {
            let path = path.display();
            tracing::warn!("{path}: its log is missing or damaged; the mount shows an earlier state");
        }
        Ok(())
    }
}

/// One SQLite file; content past 256 KiB of a file is in files beside it.
#[derive(Debug, Args)]
pub struct SqliteOptions {
    #[command(flatten)]
    database: DatabaseOptions,
    #[command(flatten)]
    writeback: Writeback,
}

impl StoreOptions for SqliteOptions {
    const NAME: &'static str = "sqlite";
    const EXAMPLES: &'static [&'static str] =
        &["sqlite ctx          # files in ctx.db", "sqlite --db notes.db ~/notes"];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let path = self.database.prepare(at)?;
        let source = path.display().to_string();
        let store = SqliteStore::open(&path, at.owner)?;
        Ok(OpenedStore {
            writeback: self.writeback.writeback,
            read_only: store.read_only().map(str::to_owned),
            ..OpenedStore::of(store, source)
        })
    }
}

/// A mount of a [`super::SqliteStore`].
pub struct SqliteMount {
    /// Whether the kernel gathers writes.
    pub writeback: bool,
}

impl MountedStore for SqliteMount {
    fn describe(&self) -> Description {
        if self.writeback {
            description(
                "sqlite-writeback",
                "sqlite, where the kernel caches writes until a file is closed or synced",
                "as sqlite, except that a killed daemon can lose writes to files that are still open",
            )
        } else {
            description(
                "sqlite",
                "FUSE over one SQLite file; content past 256 KiB of a file is in files beside it",
                "every completed call survives a killed daemon; after fsync, all earlier calls survive power loss",
            )
        }
    }

    fn store(&self) -> String {
        SqliteOptions::NAME.to_owned()
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let mut arguments = vec!["--db".into(), config.dir.join(STORE).into()];
        if self.writeback {
            arguments.push("--writeback".into());
        }
        Ok(Launch { arguments, ..Launch::default() })
    }

    fn database(&self) -> Option<&'static str> {
        Some(STORE)
    }

    fn state(&self) -> &'static [&'static str] {
        STATE
    }

    fn promises(&self) -> Promises {
        Promises {
            killed_daemon: Some(if self.writeback {
                // The kernel may still hold the dirty pages of an open file.
                Acknowledgement::Close
            } else {
                Acknowledgement::Write
            }),
            ..PROMISES
        }
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        Some(offline_read(config, name))
    }
}

/// The promises of a store in a SQLite file on this machine.
pub const PROMISES: Promises = Promises {
    killed_daemon: Some(Acknowledgement::Write),
    power_loss: Some(Acknowledgement::Fsync),
    machine_loss: None,
};

/// The `sqlite3` command that prints a file of the store of `config`.
pub fn offline_read(config: &WorkspaceConfig, name: &str) -> (String, Vec<OsString>) {
    let query =
        format!("SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/{name}' ORDER BY at");
    let db = config.dir.join(STORE);
    ("sqlite3".to_owned(), vec![db.into(), query.into()])
}
