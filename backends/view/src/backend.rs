//! The `view-mail`, `view-vsm` and `view-vsm-writable` backends: views of a mail database, and of a controller's plain
//! directory.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use arms::backend::{Description, Launch, Unavailable, Versions, WorkspaceConfig};
use arms::mount_command::{MountPoint, OpenedStore, StoreOpenError, StoreOptions};
use arms::mounted::{MountedStore, description};
use arms::promise::{Acknowledgement, Promises};
use arms::source::{Source, TASKS_AND_LOGS};
use clap::Args;
use fuse::store::Store;

use crate::source::without_password;
use crate::{ExtraDirectory, ViewSettings, ViewStore, definition};

/// Rows of a database, files of a directory or answers of an HTTP interface, shown as a definition says: see
/// docs/VIEW.md.
#[derive(Debug, Args)]
pub struct ViewOptions {
    /// The definition: a .toml file, or the name of a built-in one (vsm, mail, issues).
    #[arg(long, value_name = "NAME")]
    definition: String,
    /// A database file, a directory or a URL, as the definition says. PostgreSQL's password comes from PGPASSWORD.
    #[arg(long, value_name = "PLACE")]
    source: String,
    /// Show another directory at a path below a source that is a directory, such as
    /// observations=/home/me/.claude/projects/-home-me/memory. May be given several times.
    #[arg(long, value_name = "NAME=DIR")]
    also: Vec<ExtraDirectory>,
    /// Let programs change rows, or files of a directory, through the mount, where the definition allows it. Refused for a
    /// definition that allows no change, such as issues: change its source instead.
    #[arg(long)]
    writable: bool,
    /// Make names that `xargs` does not split: a blank, a quote or a backslash becomes `_` in the text of the definition, and
    /// `%` and two hexadecimal digits in a value.
    #[arg(long)]
    plain_names: bool,
}

impl StoreOptions for ViewOptions {
    const NAME: &'static str = "view";
    const EXAMPLES: &'static [&'static str] = &[
        "view --definition mail --source mail.db inbox    # rows of a database as files",
        "view --definition vsm --source ~/controller ~/vsm",
    ];

    fn open(self, at: MountPoint<'_>) -> Result<OpenedStore, StoreOpenError> {
        let (file, text) = definition::find(&self.definition)?;
        // A daemon leaves the directory that it was started from.
        let source = if Path::new(&self.source).exists() {
            std::path::absolute(&self.source)?.into_os_string()
        } else {
            self.source.into()
        };
        let source = source.to_string_lossy();
        let settings = ViewSettings { may_write: self.writable, has_plain_names: self.plain_names, also: self.also };
        let view = ViewStore::open((&file, &text), &source, settings, at.owner)?;
        if self.writable && !view.wants_close() {
            return Err(nothing_to_write(&self.definition, &source).into());
        }
        Ok(OpenedStore::of(view, self.definition))
    }
}

/// Why a view whose definition changes no row is not mounted for writing.
fn nothing_to_write(definition: &str, source: &str) -> String {
    let source = without_password(source);
    format!(
        "cannot mount the view {definition} with --writable: its definition has no `write` statement, so all its files are read-only\n  fix: leave out --writable, and change the files or rows of {source} themselves: the view shows each change at the next call"
    )
}

/// A mounted view, by what it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewMount {
    /// A database with mail, tasks and logs, by the shipped definition `mail` and ours for the rest.
    Mail,
    /// A controller's directory, by the shipped definition `vsm`.
    Controller {
        /// Whether programs change the controller's files through the mount.
        is_writable: bool,
    },
}

impl ViewMount {
    fn source_in(self, dir: &Path) -> Source {
        match self {
            ViewMount::Mail => Source::database(dir),
            ViewMount::Controller { .. } => Source::directory(dir),
        }
    }
}

impl MountedStore for ViewMount {
    fn describe(&self) -> Description {
        let (name, summary, durability) = match self {
            ViewMount::Mail => (
                "view-mail",
                "FUSE over the rows of a SQLite database that other programs write: mail, tasks and logs as files",
                "after close, what the database promises after a commit",
            ),
            ViewMount::Controller { is_writable: true } => (
                "view-vsm-writable",
                "as view-vsm, and the controller works through the mount, which changes the files of the plain directory",
                "after close, what the plain directory keeps",
            ),
            ViewMount::Controller { is_writable: false } => (
                "view-vsm",
                "FUSE over a controller's plain directory: its files, and health, logs and dependencies computed on read",
                "what the plain directory keeps; the controller writes to that directory without the view",
            ),
        };
        let mut description = description(name, summary, durability);
        description.capabilities.changes_source = *self == ViewMount::Controller { is_writable: true };
        description
    }

    fn store(&self) -> String {
        ViewOptions::NAME.to_owned()
    }

    fn promises(&self) -> Promises {
        Promises { killed_daemon: Some(Acknowledgement::Close), power_loss: None, machine_loss: None }
    }

    fn source(&self, dir: &Path) -> Option<Source> {
        Some(self.source_in(dir))
    }

    fn launch(&self, config: &WorkspaceConfig, _: Option<&Path>) -> io::Result<Launch> {
        let definition: OsString = match self {
            ViewMount::Mail => {
                let file = config.dir.join("mail.toml");
                std::fs::write(&file, mail_definition()?)?;
                file.into()
            }
            ViewMount::Controller { .. } => "vsm".into(),
        };
        let source = self.source_in(&config.dir);
        let mut arguments = vec!["--definition".into(), definition, "--source".into(), source.path().into()];
        if *self != (ViewMount::Controller { is_writable: false }) {
            arguments.push("--writable".into());
        }
        Ok(Launch { arguments, ..Launch::default() })
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let sqlite = ("sqlite".to_owned(), rusqlite::version().to_owned());
        Ok(Versions::from([sqlite]))
    }

    fn offline_read(&self, config: &WorkspaceConfig, name: &str) -> Option<(String, Vec<OsString>)> {
        match self {
            ViewMount::Mail => None,
            ViewMount::Controller { .. } => {
                let file = self.source_in(&config.dir).path().join(name);
                Some(("cat".to_owned(), vec![file.into()]))
            }
        }
    }
}

/// The definition of `view-mail`: the shipped one, with tasks and logs.
///
/// # Errors
/// If the shipped definition is missing.
fn mail_definition() -> io::Result<String> {
    let (_, mail) = definition::find("mail").map_err(io::Error::other)?;
    Ok(mail + TASKS_AND_LOGS)
}

#[cfg(test)]
mod tests {
    use fuse::store::{Caller, ROOT, Timestamp};

    use super::*;
    use crate::ViewStore;

    #[test]
    fn the_definition_of_view_mail_fits_the_database() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::database(dir.path());
        source.make().unwrap();
        source.make().unwrap();
        let owner = Caller { uid: 0, gid: 0, now: Timestamp::now() };
        let text = mail_definition().unwrap();
        let place = source.path().to_str().unwrap();
        let settings = ViewSettings { may_write: true, ..ViewSettings::default() };
        let view = ViewStore::open((Path::new("mail.toml"), &text), place, settings, &owner).unwrap();
        for name in ["inbox", "tasks", "tasks-by-state", "health", "logs"] {
            view.lookup(ROOT, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        }
    }
}
