//! Arms over a source that other programs write: views of it as files, and tools that query it.
//!
//! The data and the tasks on it are the harness's and the workloads'. The mount of a view is in [`crate::view`].

mod mcp;
mod tools;

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

pub(crate) use tools::{McpTools, SqlTools};

/// The tables of the database: mail, tasks and their dependencies, log lines.
const SCHEMA: &str = include_str!("schema.sql");

/// What follows the shipped definition `mail` in the definition of `view-mail`.
const TASKS_AND_LOGS: &str = include_str!("tasks_and_logs.toml");

/// The directories of a controller.
const DIRECTORIES: [&str; 5] = ["inbox", "logs", "observations", "state", "tasks"];

/// What other programs write, and a backend shows.
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
    pub(crate) fn directory(dir: &Path) -> Self {
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
                made.map_err(|error| {
                    io::Error::other(format!("making {}: {error}", file.display()))
                })
            }
            Source::Directory(root) => {
                let mut names = DIRECTORIES.iter();
                names.try_for_each(|name| std::fs::create_dir_all(root.join(name)))
            }
        }
    }
}

/// The definition of `view-mail`: the shipped one, with tasks and logs.
///
/// # Errors
/// If the shipped definition is missing.
pub(crate) fn mail_definition() -> io::Result<String> {
    let (_, mail) = crate::view::definition::find("mail").map_err(io::Error::other)?;
    Ok(mail + TASKS_AND_LOGS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Caller, ROOT, Store, Timestamp};
    use crate::view::ViewStore;

    #[test]
    fn the_definition_of_view_mail_fits_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::database(dir.path());
        source.make().unwrap();
        source.make().unwrap();
        let owner = Caller {
            uid: 0,
            gid: 0,
            now: Timestamp::now(),
        };
        let text = mail_definition().unwrap();
        let place = source.path().to_str().unwrap();
        let view = ViewStore::open((Path::new("mail.toml"), &text), place, true, &owner).unwrap();
        for name in ["inbox", "tasks", "tasks-by-state", "health", "logs"] {
            view.lookup(ROOT, name.as_bytes())
                .unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
    }
}
