//! Data that other programs write, for the backends that show it: views as files, tools by queries.
//!
//! The content is made by the harness, from a workload.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

/// The tables of the database: mail, tasks and their dependencies, log lines.
const SCHEMA: &str = include_str!("schema.sql");

/// The tasks and the log of the database as files, for a view's definition.
pub const TASKS_AND_LOGS: &str = include_str!("tasks_and_logs.toml");

/// The directories of a controller, which the view of it shows.
pub const CONTROLLER_DIRECTORIES: [&str; 6] = ["inbox", "logs", "observations", "outbox", "state", "tasks"];

/// Data that other programs write and a backend shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A SQLite database with mail, tasks and log lines.
    Database(PathBuf),
    /// The plain directory of a controller.
    Directory(PathBuf),
}

impl Source {
    /// The database in a workspace's directory.
    pub fn database(dir: &Path) -> Self {
        Source::Database(dir.join("source.db"))
    }

    /// A workspace's directory.
    pub fn directory(dir: &Path) -> Self {
        Source::Directory(dir.join("controller"))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        match self {
            Source::Database(path) | Source::Directory(path) => path,
        }
    }

    /// Makes it without data, where it is missing.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn make(&self) -> io::Result<()> {
        match self {
            Source::Database(file) => {
                if file.exists() {
                    return Ok(());
                }
                let made = Connection::open(file).and_then(|db| {
                    // Readers do not wait for the writer.
                    db.pragma_update(None, "journal_mode", "WAL")?;
                    db.execute_batch(SCHEMA)
                });
                made.map_err(|error| io::Error::other(format!("making {}: {error}", file.display())))
            }
            Source::Directory(root) => {
                let mut names = CONTROLLER_DIRECTORIES.iter();
                names.try_for_each(|name| std::fs::create_dir_all(root.join(name)))
            }
        }
    }
}
