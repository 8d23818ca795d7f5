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
use std::path::{Path, PathBuf};
use std::time::Instant;

use fuse::store::Result;

use crate::definition::{SourceDefinition, SourceKind};

pub(super) use crate::template::Text;
pub(super) use pool::{Pool, PooledConnection, Version};
pub use postgresql::find_programs as find_postgresql;
pub(super) use postgresql::without_password;
use sqlite::Sqlite;

/// The parameter with the value that a name stands for.
pub(super) const VALUE: &str = "_value";

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
}

/// The parameters of a statement, and the columns of its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) columns: Vec<Column>,
    pub(super) parameters: Vec<String>,
}

/// A statement that changes rows, and its parameters.
pub(super) type BoundStatement<'a> = (&'a str, Parameters<'a>);

/// The result of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    /// Rows changed by the statement that changed the fewest; 0 if the transaction was rolled back.
    pub(super) rows: usize,
    /// The first column of the first row that the first statement returned.
    pub(super) key: Option<i64>,
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
    fn describe(&mut self, sql: &str, may_write: bool) -> std::result::Result<Described, String>;

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
    fn change(&mut self, statements: &[BoundStatement<'_>]) -> Result<Changed>;
}

/// How many connections a database gets at most.
const CONNECTIONS: usize = 8;

/// Opens the source at `place`. `may_write` permits statements that change rows.
///
/// # Errors
/// Why the source cannot be reached, in words.
pub(super) fn open(definition: &SourceDefinition, place: &str, may_write: bool) -> std::result::Result<Pool, String> {
    let kind = definition.kind_of(place)?;
    let timeout = definition.timeout();
    match kind {
        SourceKind::Sqlite => {
            let file = PathBuf::from(place);
            Pool::new(CONNECTIONS, timeout, move || Ok(Box::new(Sqlite::open(&file, may_write, timeout)?)))
        }
        SourceKind::Postgresql => {
            let opener = postgresql::opener(place, definition, may_write)?;
            Pool::new(CONNECTIONS, timeout, move || Ok(Box::new(opener()?)))
        }
        SourceKind::Directory => {
            let directory = directory::open(Path::new(place), definition)?;
            Pool::of(timeout, Box::new(directory))
        }
        SourceKind::Http => Pool::of(timeout, Box::new(http::open(place, definition)?)),
    }
}
