//! The `sqlite` and `sqlite-writeback` backends.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use crate::backend::{Description, Launch, WorkspaceConfig};
use crate::mounted::{MountedStore, description};
use crate::promise::{Acknowledgement, Promises};

/// The file name of the database in a workspace's directory.
pub(crate) const STORE: &str = "store.db";

/// A mount of a [`super::SqliteStore`].
pub(crate) struct SqliteMount {
    /// Whether the kernel gathers writes.
    pub(crate) writeback: bool,
}

impl MountedStore for SqliteMount {
    fn describe(&self) -> Description {
        let lines = env!("CTXBENCH_LINES_SQLITE");
        match self.writeback {
            false => description(
                "sqlite",
                "FUSE over one SQLite file; what is past 256 KiB of a file lies beside it",
                "every call that returned survives a killed daemon; fsync makes everything before it survive power loss",
                lines,
            ),
            true => description(
                "sqlite-writeback",
                "sqlite, where the kernel gathers writes until a file is closed or synced",
                "every call that returned survives a killed daemon, but of files still open what was only written; fsync as sqlite",
                lines,
            ),
        }
    }

    fn store(&self) -> String {
        "sqlite".to_owned()
    }

    fn gives(&self) -> &'static [&'static str] {
        &["one-file"]
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let mut arguments = vec!["--db".into(), config.dir.join(STORE).into()];
        if self.writeback {
            arguments.push("--writeback".into());
        }
        Ok(Launch {
            arguments,
            ..Launch::default()
        })
    }

    fn database(&self) -> Option<&'static str> {
        Some(STORE)
    }

    fn promises(&self) -> Promises {
        Promises {
            killed_daemon: Some(match self.writeback {
                // The kernel may still hold the dirty pages of an open file.
                true => Acknowledgement::Close,
                false => Acknowledgement::Write,
            }),
            ..PROMISES
        }
    }

    fn offline_read(
        &self,
        config: &WorkspaceConfig,
        name: &str,
    ) -> Option<(String, Vec<OsString>)> {
        Some(offline_read(config, name))
    }
}

/// The promises of a store in a SQLite file on this machine.
pub(crate) const PROMISES: Promises = Promises {
    killed_daemon: Some(Acknowledgement::Write),
    power_loss: Some(Acknowledgement::Fsync),
    machine_loss: None,
};

/// The `sqlite3` command that prints a file of the store of `config`.
pub(crate) fn offline_read(config: &WorkspaceConfig, name: &str) -> (String, Vec<OsString>) {
    let query = format!(
        "SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/{name}' ORDER BY at"
    );
    let db = config.dir.join(STORE);
    ("sqlite3".to_owned(), vec![db.into(), query.into()])
}
