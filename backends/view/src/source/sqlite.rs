//! Rows of an SQLite database: one of other programs, or a temporary one whose [`Tables`] are kept up to date.

mod apart;

use std::collections::HashMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use fuse::store::{Errno, Result, StoreError};
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Statement, ToSql, TransactionBehavior};

use super::{
    BODY_MAX, BoundStatement, Column, FileChange, FileRow, Parameter, Parameters, Source, StatementDescription, Text,
    TransactionResult, VALUE,
};

pub(super) use apart::Abandoned;
use apart::Outcome;

/// The prefix of the message of an error that becomes `EFBIG`.
pub(super) const TOO_LONG: &str = "EFBIG: ";

/// The most bytes of a value and of a row: a file of a view, and 1 MiB for the other columns.
const VALUE_MAX: i32 = (BODY_MAX + (1 << 20)) as i32;

/// How much of temporary tables is kept in memory.
const TABLES_CACHE_KIB: i32 = 32 << 10;

/// Keeps temporary tables up to date.
pub(super) trait Tables: Send {
    /// Adds the functions that the schema calls.
    ///
    /// # Errors
    /// SQLite's.
    fn add_functions(&self, _connection: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    /// Updates the tables from the source. The caller waits until `deadline` at most.
    ///
    /// # Errors
    /// `EIO` if the source is away or too slow.
    fn refresh(&mut self, connection: &Connection, deadline: Instant) -> Result<()>;

    /// As [`Source::change_file`], with the rows of the statement; the path of the file afterwards, in the column `path`.
    ///
    /// # Errors
    /// As there.
    fn change_file(&mut self, _change: FileChange, _rows: &[FileRow], _sync: bool) -> Result<Option<PathBuf>> {
        Err(Errno::ROFS.into())
    }

    /// As [`Source::sync_names`].
    ///
    /// # Errors
    /// As there.
    fn sync_names(&mut self) -> Result<()> {
        Ok(())
    }
}

/// An SQLite database as a source.
pub(super) struct Sqlite {
    connection: Option<Connection>,
    origin: Origin,
    may_write: bool,
    /// Whether the connection's authorizer allows changes now.
    allows_writing: Arc<AtomicBool>,
    deadline: Deadline,
    /// How often the file was opened, also because it was replaced by another one.
    files: u64,
    /// Whether a query runs on a thread of its own, because one instruction of it may take long.
    runs_apart: HashMap<Box<str>, bool>,
    /// Whether the connection refuses to compile a statement again, which may then have such an instruction.
    keeps_programs: Arc<AtomicBool>,
    /// The abandoned queries of this source.
    abandoned: Abandoned,
    /// Gives the connection of temporary tables back when its abandoned query ends.
    returning: Option<Receiver<Connection>>,
}

/// Instructions of SQLite's virtual machine between two checks of the deadline: well below a millisecond, unless they read
/// long values.
const INSTRUCTIONS: std::ffi::c_int = 1_000;

/// The time at which the running query is interrupted.
#[derive(Clone)]
struct Deadline {
    timeout: Duration,
    /// In milliseconds of [`Deadline::now`].
    at: Arc<AtomicU64>,
}

impl Deadline {
    fn new(timeout: Duration) -> Self {
        Self { timeout, at: Arc::default() }
    }

    fn now() -> u64 {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed().as_millis() as u64
    }

    /// Gives the next query its time.
    fn start(&self) {
        let at = Self::now() + self.timeout.as_millis() as u64;
        self.at.store(at, Ordering::Relaxed);
    }

    fn has_passed(&self) -> bool {
        Self::now() > self.at.load(Ordering::Relaxed)
    }

    /// The caller's error for an error of SQLite.
    fn explain(&self, error: rusqlite::Error) -> StoreError {
        if let rusqlite::Error::SqliteFailure(_, Some(reason)) = &error
            && let Some(reason) = reason.strip_prefix(TOO_LONG)
        {
            return StoreError::storage(Errno::FBIG, reason);
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => {
                let limit = self.timeout.as_millis();
                let reason = format!("the query took longer than {limit} ms (`timeout_ms`)");
                StoreError::storage(Errno::IO, reason)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::storage(Errno::IO, self.locked()),
            Some(ErrorCode::TooBig) => {
                let reason = format!("a value of the query has more than {} MiB", VALUE_MAX >> 20);
                StoreError::storage(Errno::FBIG, reason)
            }
            _ => error.into(),
        }
    }

    /// Why a statement could not begin.
    fn locked(&self) -> String {
        let limit = self.timeout.as_millis();
        format!("another program locked the database for longer than {limit} ms (`timeout_ms`)")
    }
}

enum Origin {
    /// A file of other programs. Device and inode show whether it is still the open one.
    File {
        path: PathBuf,
        identity: (u64, u64),
    },
    Tables(Box<dyn Tables>),
}

impl ToSql for Parameter<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Parameter::Integer(value) => ToSqlOutput::Owned(Value::Integer(*value)),
            // Bytes that are not UTF-8 are text, too: the name was made from a text column.
            Parameter::Text(bytes) => ToSqlOutput::Borrowed(ValueRef::Text(bytes)),
            Parameter::Number(digits) => ToSqlOutput::Owned(number(digits)),
            Parameter::Null => ToSqlOutput::Owned(Value::Null),
        })
    }
}

/// The authorizer of a definition's statements: they may read, and change rows while `may_write` is true.
fn authorize(
    may_write: &Arc<AtomicBool>,
    keeps_programs: &Arc<AtomicBool>,
) -> impl Fn(AuthContext<'_>) -> Authorization + Send + 'static {
    let (may_write, keeps_programs) = (Arc::clone(may_write), Arc::clone(keeps_programs));
    move |asked| match asked.action {
        _ if keeps_programs.load(Ordering::Relaxed) => Authorization::Deny,
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if function_name != "load_extension" => Authorization::Allow,
        AuthAction::Transaction { .. } => Authorization::Allow,
        // It reveals only whether the database has changed.
        AuthAction::Pragma { pragma_name: "data_version", pragma_value: None } => Authorization::Allow,
        AuthAction::Insert { .. } | AuthAction::Update { .. } | AuthAction::Delete { .. }
            if may_write.load(Ordering::Relaxed) =>
        {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }
}

fn harden(
    connection: &mut Connection,
    may_write: &Arc<AtomicBool>,
    keeps_programs: &Arc<AtomicBool>,
    deadline: &Deadline,
) -> rusqlite::Result<()> {
    connection.busy_timeout(deadline.timeout)?;
    // Statements that compute or read a larger value fail before SQLite has allocated it.
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX)?;
    let limit = deadline.clone();
    deadline.start();
    connection.progress_handler(INSTRUCTIONS, Some(move || limit.has_passed()))?;
    connection.set_prepared_statement_cache_capacity(128);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.authorizer(Some(authorize(may_write, keeps_programs)))?;
    Ok(())
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    let away =
        |error: std::io::Error| StoreError::storage(Errno::IO, format!("the source {}: {error}", path.display()));
    // SQLite would wait for the writer of a FIFO.
    let file = inputs::files::metadata(path).map_err(away)?;
    Ok((file.dev(), file.ino()))
}

impl Sqlite {
    /// Opens the database in a file, which must exist.
    ///
    /// # Errors
    /// Why it cannot be opened, in words.
    pub(super) fn open(
        path: &Path,
        may_write: bool,
        timeout: Duration,
        abandoned: Abandoned,
    ) -> std::result::Result<Self, String> {
        let mut source = Self {
            connection: None,
            origin: Origin::File { path: path.to_owned(), identity: (0, 0) },
            may_write,
            allows_writing: Arc::new(AtomicBool::new(may_write)),
            deadline: Deadline::new(timeout),
            files: 0,
            runs_apart: HashMap::new(),
            keeps_programs: Arc::default(),
            abandoned,
            returning: None,
        };
        let began = source.begin(Instant::now() + timeout);
        began.map_err(StoreError::into_reason)?;
        Ok(source)
    }

    /// A temporary database with `schema`, which `tables` keeps up to date. It ends with the process.
    ///
    /// # Errors
    /// Why it cannot be made, in words.
    pub(super) fn temporary(
        schema: &str,
        tables: Box<dyn Tables>,
        may_write: bool,
        timeout: Duration,
    ) -> std::result::Result<Self, String> {
        let allows_writing = Arc::new(AtomicBool::new(false));
        let keeps_programs = Arc::default();
        let deadline = Deadline::new(timeout);
        let make = || -> rusqlite::Result<Connection> {
            // Without a name, SQLite keeps what does not fit its cache in a file that no directory lists.
            let mut connection = Connection::open("")?;
            connection.pragma_update(None, "cache_size", -TABLES_CACHE_KIB)?;
            connection.pragma_update(None, "journal_mode", "MEMORY")?;
            tables.add_functions(&connection)?;
            connection.execute_batch(schema)?;
            harden(&mut connection, &allows_writing, &keeps_programs, &deadline)?;
            Ok(connection)
        };
        let mut source = Self {
            connection: Some(make().map_err(|error| error.to_string())?),
            origin: Origin::Tables(tables),
            may_write,
            allows_writing,
            deadline,
            files: 0,
            runs_apart: HashMap::new(),
            keeps_programs,
            abandoned: Abandoned::default(),
            returning: None,
        };
        let began = source.begin(Instant::now() + timeout);
        began.map_err(StoreError::into_reason)?;
        Ok(source)
    }

    /// The key of a file that was just created or moved. `None` if it is gone, or if the table is not up to date: the change
    /// has happened nevertheless.
    fn key_of(&mut self, path: &Path) -> Option<i64> {
        let begun = self.begin(Instant::now() + self.deadline.timeout);
        let asked = begun.and_then(|()| {
            let key = "SELECT key FROM entry WHERE path = CAST(?1 AS TEXT)";
            let path = path.as_os_str().as_bytes();
            Ok(self.connection()?.query_row(key, [path], |row| row.get(0)).optional()?)
        });
        asked.unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "a file was changed and could not be read again");
            None
        })
    }

    /// Whether a query has to run on a thread of its own.
    fn is_apart(&mut self, sql: &str) -> Result<bool> {
        if let Some(is_apart) = self.runs_apart.get(sql) {
            return Ok(*is_apart);
        }
        self.deadline.start();
        let may_be_slow = apart::may_be_slow(self.connection()?, sql, matches!(self.origin, Origin::File { .. }));
        let is_apart = may_be_slow.map_err(|error| self.deadline.explain(error))?;
        self.runs_apart.insert(sql.into(), is_apart);
        Ok(is_apart)
    }

    /// Runs a query on this thread. `None`: SQLite would have to compile it again.
    fn query_here(
        &self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<Option<()>> {
        self.deadline.start();
        let connection = self.connection()?;
        let ran = connection.prepare_cached(sql).map(|mut statement| {
            self.keeps_programs.store(true, Ordering::Relaxed);
            let ran = bind(&mut statement, parameters).and_then(|()| rows_of(&mut statement, each));
            self.keeps_programs.store(false, Ordering::Relaxed);
            ran
        });
        match ran {
            Ok(Err(error)) if error.sqlite_error_code() == Some(ErrorCode::AuthorizationForStatementDenied) => Ok(None),
            Ok(Ok(())) => Ok(Some(())),
            Ok(Err(error)) | Err(error) => Err(of_temporary_file(self.deadline.explain(error))),
        }
    }

    /// Runs a query on a thread of its own, which keeps the connection if the query exceeds its time.
    fn query_apart(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.deadline.start();
        self.connection()?;
        let Some(connection) = self.connection.take() else { return Ok(()) };
        let timeout = self.deadline.timeout;
        match apart::query(connection, (sql, parameters), (timeout, &self.abandoned), each) {
            Outcome::Ended(connection, ran) => {
                self.connection = Some(connection);
                ran.map_err(|error| of_temporary_file(self.deadline.explain(error)))
            }
            Outcome::Abandoned(returned, error) => {
                match self.origin {
                    // The next call opens another connection. Its queries do not give the abandoned one more time.
                    Origin::File { .. } => self.deadline = Deadline::new(timeout),
                    Origin::Tables(_) => self.returning = Some(returned),
                }
                Err(error)
            }
            Outcome::Refused(connection, error) => {
                self.connection = Some(connection);
                Err(error)
            }
            Outcome::Lost(error) => Err(error),
        }
    }

    fn connection(&self) -> Result<&Connection> {
        let gone = || StoreError::storage(Errno::IO, "there is no connection");
        self.connection.as_ref().ok_or_else(gone)
    }
}

/// The reader's error on a full disk: a read writes only temporary files of SQLite, not the disk of the source.
fn of_temporary_file(error: StoreError) -> StoreError {
    match error.errno {
        Errno::NOSPC => {
            let at = "SQLite's temporary file, in SQLITE_TMPDIR, TMPDIR or /var/tmp";
            StoreError::storage(Errno::IO, format!("{at}: {error}"))
        }
        _ => error,
    }
}

/// Binds the parameters that a statement has.
fn bind(statement: &mut Statement<'_>, parameters: Parameters<'_>) -> rusqlite::Result<()> {
    for (name, value) in parameters {
        if let Some(index) = statement.parameter_index(&format!(":{name}"))? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

/// Hands the rows of a statement, whose parameters are bound, to `each` until it breaks.
fn rows_of(statement: &mut Statement<'_>, each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>) -> rusqlite::Result<()> {
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|at| Ok(text(row.get_ref(at)?)));
        if each(values.collect::<rusqlite::Result<_>>()?).is_break() {
            break;
        }
    }
    Ok(())
}

fn text(value: ValueRef<'_>) -> Text {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(value) => Some(value.to_string().into_bytes()),
        // Only `Column::number` gives one: all other values are cast to text.
        ValueRef::Real(value) => Some(value.to_string().into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(bytes.to_vec()),
    }
}

/// A number that [`text`] has written.
fn number(digits: &[u8]) -> Value {
    let digits = std::str::from_utf8(digits).unwrap_or_default();
    match (digits.parse(), digits.parse()) {
        (Ok(whole), _) => Value::Integer(whole),
        (_, Ok(real)) => Value::Real(real),
        _ => Value::Null,
    }
}

fn column(name: &str) -> Column {
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    Column {
        // The list can use an index, even of a column without a type; the condition after it is exact. The CASE
        // prevents a name that is not a number from finding all rows with 0.
        is_value: format!(
            "{quoted} IN (:{VALUE}, \
             CASE WHEN CAST(CAST(:{VALUE} AS NUMERIC) AS TEXT) = :{VALUE} THEN CAST(:{VALUE} AS NUMERIC) END, \
             CAST(:{VALUE} AS BLOB)) AND CAST({quoted} AS TEXT) = :{VALUE}"
        ),
        // The result of `||` has no affinity, so a number in a column with an affinity equals it.
        number: Some(format!(
            "CASE WHEN typeof({quoted}) IN ('integer', 'real') AND {quoted} <> ({quoted} || '') THEN {quoted} END"
        )),
        is_blob: Some(format!("typeof({quoted}) = 'blob'")),
        text: format!("CAST({quoted} AS TEXT)"),
        // The length of the column, not of its text, does not read long content.
        length: format!("octet_length({quoted})"),
        name: name.to_owned(),
    }
}

impl Source for Sqlite {
    fn begin(&mut self, deadline: Instant) -> Result<()> {
        match &mut self.origin {
            Origin::File { path, identity: open } => {
                let found = match identity(path) {
                    Ok(found) => found,
                    Err(error) => {
                        // A deleted file must not be served from an open descriptor.
                        self.connection = None;
                        return Err(error);
                    }
                };
                if self.connection.is_none() || found != *open {
                    self.connection = None;
                    let access = if self.may_write {
                        OpenFlags::SQLITE_OPEN_READ_WRITE
                    } else {
                        OpenFlags::SQLITE_OPEN_READ_ONLY
                    };
                    let mut connection = Connection::open_with_flags(&*path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
                    harden(&mut connection, &self.allows_writing, &self.keeps_programs, &self.deadline)?;
                    *open = found;
                    self.files += 1;
                    self.runs_apart.clear();
                    self.connection = Some(connection);
                }
            }
            Origin::Tables(tables) => {
                if let Some(returning) = &self.returning {
                    match returning.try_recv() {
                        Ok(connection) => self.connection = Some(connection),
                        Err(TryRecvError::Empty) => return Err(apart::still_runs(1, self.deadline.timeout)),
                        Err(TryRecvError::Disconnected) => {}
                    }
                    self.returning = None;
                }
                let gone = || StoreError::storage(Errno::IO, "the temporary tables are gone");
                let connection = self.connection.as_ref().ok_or_else(gone)?;
                self.allows_writing.store(true, Ordering::Relaxed);
                // A refresh has its own limits.
                self.deadline.at.store(u64::MAX, Ordering::Relaxed);
                let refreshed = tables.refresh(connection, deadline);
                self.allows_writing.store(false, Ordering::Relaxed);
                refreshed.map_err(of_temporary_file)?;
            }
        }
        Ok(())
    }

    fn version(&mut self) -> Result<Option<u64>> {
        self.deadline.start();
        let connection = self.connection()?;
        // The pragma does not count this connection's own changes.
        let asked = || -> rusqlite::Result<u32> {
            let mut pragma = connection.prepare_cached("PRAGMA data_version")?;
            pragma.query_row((), |row| row.get(0))
        };
        let others = asked().map_err(|error| self.deadline.explain(error))?;
        let count = (self.files << 40) ^ (connection.total_changes() << 20) ^ u64::from(others);
        Ok(Some(count))
    }

    fn describe(&mut self, sql: &str, may_write: bool) -> std::result::Result<StatementDescription, String> {
        let connection = self.connection().map_err(|error| error.to_string())?;
        // Prepare runs nothing. Statements must be valid even on a read-only mount, which never runs them.
        let before = self.allows_writing.swap(true, Ordering::Relaxed);
        let statement = connection.prepare(sql);
        self.allows_writing.store(before, Ordering::Relaxed);
        let statement = statement.map_err(|error| error.to_string())?;
        if !may_write && !statement.readonly() {
            return Err("it changes rows; a query may not".to_owned());
        }
        let parameters = (1..=statement.parameter_count()).map(|at| {
            let name = statement.parameter_name(at).unwrap_or("?");
            match name.strip_prefix(':') {
                Some(name) => Ok(name.to_owned()),
                None => Err(format!("parameter {name}: write `:column`")),
            }
        });
        let columns = statement.column_names();
        Ok(StatementDescription {
            parameters: parameters.collect::<std::result::Result<_, _>>()?,
            columns: columns.map(column).collect(),
        })
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<()> {
        for _ in 0..2 {
            if self.is_apart(sql)? {
                return self.query_apart(sql, parameters, each);
            }
            if self.query_here(sql, parameters, each)?.is_some() {
                return Ok(());
            }
            // The schema has changed, and with it perhaps the instructions of the query.
            self.runs_apart.clear();
            self.connection()?.flush_prepared_statement_cache();
        }
        // SQLite compiles it for each value of a parameter.
        self.runs_apart.insert(sql.into(), true);
        self.query_apart(sql, parameters, each)
    }

    fn change(&mut self, statements: &[BoundStatement<'_>]) -> Result<TransactionResult> {
        if !self.may_write {
            return Err(Errno::ROFS.into());
        }
        self.deadline.start();
        let connection = self.connection()?;
        run_all(connection, statements).map_err(|error| match error.sqlite_error_code() {
            // A value that the database refuses is the caller's mistake.
            Some(ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig) => {
                StoreError::storage(Errno::INVAL, error)
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                StoreError::storage(Errno::BUSY, self.deadline.locked())
            }
            _ => self.deadline.explain(error),
        })
    }

    fn change_file(
        &mut self,
        change: FileChange,
        (sql, parameters): BoundStatement<'_>,
        sync: bool,
    ) -> Result<TransactionResult> {
        if !self.may_write {
            return Err(Errno::ROFS.into());
        }
        let columns = self.describe(sql, false).map_err(|reason| StoreError::storage(Errno::INVAL, reason))?.columns;
        let at = |name: &str| columns.iter().position(|column| column.name == name);
        let [path, moved, content] = ["path", "moved", "content"].map(at);
        let mut rows = Vec::new();
        self.query(sql, parameters, &mut |mut row| {
            let mut take = |at: Option<usize>| row.get_mut(at?)?.take();
            let name = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
            if let Some(path) = take(path) {
                rows.push(FileRow { path: name(path), moved: take(moved).map(name), content: take(content) });
            }
            if rows.len() < PLACES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        let Origin::Tables(tables) = &mut self.origin else {
            return Err(Errno::ROFS.into());
        };
        let Some(path) = tables.change_file(change, &rows, sync)? else {
            return Ok(TransactionResult { rows: 0, key: None });
        };
        let key = match change {
            FileChange::Create { .. } | FileChange::Move { .. } => self.key_of(&path),
            _ => None,
        };
        Ok(TransactionResult { rows: 1, key })
    }

    fn sync_names(&mut self) -> Result<()> {
        match &mut self.origin {
            Origin::Tables(tables) if self.may_write => tables.sync_names(),
            _ => Ok(()),
        }
    }
}

/// How many places a statement can name for a file.
const PLACES: usize = 16;

/// Runs statements in one transaction, which is rolled back if one of them changes no row.
fn run_all(connection: &Connection, statements: &[BoundStatement<'_>]) -> rusqlite::Result<TransactionResult> {
    // A drop rolls the transaction back.
    let transaction = rusqlite::Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    let (mut fewest, mut first) = (usize::MAX, None);
    for (at, (sql, parameters)) in statements.iter().enumerate() {
        let before = transaction.total_changes();
        let mut statement = transaction.prepare_cached(sql)?;
        bind(&mut statement, parameters)?;
        let mut rows = statement.raw_query();
        let mut key = None;
        while let Some(row) = rows.next()? {
            key = key.or(row.get(0).ok());
        }
        if at == 0 {
            first = key;
        }
        fewest = fewest.min((transaction.total_changes() - before) as usize);
    }
    if fewest > 0 {
        transaction.commit()?;
    }
    Ok(TransactionResult { rows: fewest, key: first })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("a.db");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let refused = Sqlite::open(&fifo, false, Duration::from_secs(60), Abandoned::default()).err().unwrap();
        assert!(refused.ends_with("is a FIFO, not a regular file"), "{refused}");
    }
}
