//! The interface between a view and the source of its rows.
//!
//! A source answers queries in its own SQL with bound parameters, and changes rows only where it was opened for that. It
//! reaches nothing else. A call sees the commits before it, or those up to `stale_ms` earlier.

mod directory;
mod elements;
mod http;
mod parameters;
mod pool;
mod postgresql;
mod sqlite;

use std::ops::ControlFlow;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use fuse::store::{Errno, Result};

use crate::ViewSettings;
use crate::definition::{SourceDefinition, SourceKind};

pub(super) use crate::template::Text;
pub(super) use pool::{Pool, PooledConnection, Version};
pub use postgresql::find_programs as find_postgresql;
pub(super) use postgresql::without_password;
use sqlite::{Abandoned, Sqlite};

/// The longest content of a file, in bytes.
pub(super) const BODY_MAX: usize = 256 << 20;

/// The parameter with the value that a name stands for.
pub(super) const VALUE: &str = "_value";

/// The parameter with the name that a program gives to a file of a directory.
pub(super) const NAME: &str = "_name";

/// The parameter with the target that a program gives to a link of a directory.
pub(super) const TARGET: &str = "_target";

/// Parameters by name, without the colon.
pub(super) type Parameters<'a> = &'a [(&'a str, Parameter<'a>)];

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter<'a> {
    Integer(i64),
    Text(&'a [u8]),
    /// A number by its text, for a column that does not compare its numbers with text.
    Number(&'a [u8]),
    Null,
}

/// A column of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// The expression for its text form, in a query over this one.
    pub(super) text: String,
    /// The expression for the bytes of its text form; NULL if it is.
    pub(super) length: String,
    /// The condition that its text form equals `:_value`.
    pub(super) is_value: String,
    /// The expression for a value that is a number and does not equal its text; NULL for other values. `None`: every
    /// value equals its text.
    pub(super) number: Option<String>,
    /// The condition that a value is a BLOB, which no text equals. `None`: every value equals its text.
    pub(super) is_blob: Option<String>,
}

/// The parameters of a statement, and the columns of its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StatementDescription {
    pub(super) columns: Vec<Column>,
    pub(super) parameters: Vec<String>,
}

/// A statement that changes rows, and its parameters.
pub(super) type BoundStatement<'a> = (&'a str, Parameters<'a>);

/// The result of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransactionResult {
    /// Rows changed by the statement that changed the fewest; 0 if the transaction was rolled back.
    pub(super) rows: usize,
    /// The first column of the first row that the first statement returned.
    pub(super) key: Option<i64>,
}

/// A directory that a `directory` source shows at a path of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraDirectory {
    /// The path below the source.
    pub name: PathBuf,
    /// The directory.
    pub dir: PathBuf,
}

impl FromStr for ExtraDirectory {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, dir) =
            text.split_once('=').ok_or("write NAME=DIR, as in .claude/projects/me/memory=/home/me/notes")?;
        let (name, dir) = (PathBuf::from(name), std::path::absolute(dir).map_err(|error| error.to_string())?);
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        if is_plain && !name.as_os_str().is_empty() {
            Ok(Self { name, dir })
        } else {
            Err(format!("{}: NAME is a path below the source, without `..`", name.display()))
        }
    }
}

/// An operation on a file of a directory. The statement that names the file is a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    /// Creates a file with the columns `path` and `content`.
    Create { permissions: u16 },
    /// Replaces the file at `path`.
    Replace,
    /// Appends to the file at `path` what follows so many bytes of `content`.
    Append { from: usize },
    /// Removes the file at `path`.
    Remove,
    /// Moves the file at the column `moved` to `path`.
    Move { replaces: bool },
    /// Sets the permissions of the file at `path`.
    Permit { permissions: u16 },
    /// Makes the file at `path` durable, and all changes of names.
    Sync,
}

impl FileChange {
    /// The columns that a statement of a definition's `write` has.
    pub(super) fn columns(statement: &str) -> &'static [&'static str] {
        match statement {
            "delete" => &["path"],
            "receive" => &["moved", "path"],
            _ => &["path", "content"],
        }
    }
}

/// The row of a statement that names a file.
#[derive(Debug, Default)]
struct FileRow {
    /// Relative to the directory.
    path: PathBuf,
    moved: Option<PathBuf>,
    content: Text,
}

/// One connection to the source of a view's rows.
pub(super) trait Source: Send {
    /// Makes the next queries see all commits until now. The caller waits until `deadline` at most.
    ///
    /// # Errors
    /// `EIO` if the source is away or too slow.
    fn begin(&mut self, deadline: Instant) -> Result<()>;

    /// A number that differs from the last one if anything that queries see may have changed; after [`Source::begin`].
    /// `None` if the source cannot tell.
    ///
    /// # Errors
    /// As [`Source::begin`].
    fn version(&mut self) -> Result<Option<u64>>;

    /// Columns and parameters of a statement, after [`Source::begin`].
    ///
    /// # Errors
    /// Why the source does not accept it, in words.
    fn describe(&mut self, sql: &str, may_write: bool) -> std::result::Result<StatementDescription, String>;

    /// Hands each row of a query to `each`, values in their text form, until it breaks; after [`Source::begin`].
    ///
    /// # Errors
    /// `EIO` if the source is away or too slow.
    fn query(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<()>;

    /// Runs statements in one transaction, which is rolled back if one of them changes no row; after [`Source::begin`].
    ///
    /// # Errors
    /// `EINVAL` with the source's reason for a value that it refuses, `EBUSY` if another writer holds it until the timeout,
    /// `EROFS` if it is open for reading.
    fn change(&mut self, statements: &[BoundStatement<'_>]) -> Result<TransactionResult>;

    /// Carries out an operation on a file that the row of a query names; after [`Source::begin`]. The result has the key of
    /// the file afterwards, and no row if the query has none. With `sync`, the change is durable.
    ///
    /// # Errors
    /// `EROFS` if the source has no files or is open for reading, else those of Linux.
    fn change_file(
        &mut self,
        _change: FileChange,
        _statement: BoundStatement<'_>,
        _sync: bool,
    ) -> Result<TransactionResult> {
        Err(Errno::ROFS.into())
    }

    /// Makes all changes of names durable, where the source's files are changed.
    ///
    /// # Errors
    /// That of the failed sync.
    fn sync_names(&mut self) -> Result<()> {
        Ok(())
    }
}

/// How many connections a database gets at most.
const CONNECTIONS: usize = 8;

/// Opens the source at `place`. `may_write` permits statements that change rows.
///
/// # Errors
/// Why the source cannot be reached, in words.
pub(super) fn open(
    definition: &SourceDefinition,
    place: &str,
    settings: &ViewSettings,
) -> std::result::Result<Pool, String> {
    let may_write = settings.may_write;
    let kind = definition.kind_of(place)?;
    if !settings.also.is_empty() && kind != SourceKind::Directory {
        return Err("it is no directory, to which --also could add another one".to_owned());
    }
    let timeout = definition.timeout();
    match kind {
        SourceKind::Sqlite => {
            let file = PathBuf::from(place);
            let abandoned = Abandoned::default();
            Pool::new(CONNECTIONS, timeout, move || {
                Ok(Box::new(Sqlite::open(&file, may_write, timeout, abandoned.clone())?))
            })
        }
        SourceKind::Postgresql => {
            let opener = postgresql::opener(place, definition, may_write)?;
            Pool::new(CONNECTIONS, timeout, move || Ok(Box::new(opener()?)))
        }
        SourceKind::Directory => {
            let directory = directory::open(Path::new(place), settings.also.clone(), definition, may_write)?;
            Pool::of(timeout, Box::new(directory))
        }
        SourceKind::Http => Pool::of(timeout, Box::new(http::open(place, definition)?)),
    }
}
