//! SQL as an agent's tools: `query`, and `execute` where rows may be changed. In-process, over a SQLite file that other
//! programs write. How an agent reaches them is in [`crate::tools`], and in the crate `mcp`.
//!
//! The limits here hold for statements that mean well: SQLite checks them between its steps, and one step can take minutes
//! and gigabytes. `mcp` runs statements in a process that the kernel limits.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::{Value as SqlValue, ValueRef};
use rusqlite::{Connection, OpenFlags, ffi, params_from_iter};
use serde::Deserialize;
use serde_json::{Value, json};

/// The most rows of an answer.
pub const ROWS_MAX: usize = 1000;

/// The most bytes of the columns and rows of an answer, as JSON.
const BYTES_MAX: usize = 256 << 10;

/// The most bytes of a value that `query` computes or reads. A part of a larger text than [`BYTES_MAX`] can be selected.
const VALUE_MAX: i32 = 16 << 20;

/// The most bytes of the schema in the description of `query`.
const SCHEMA_MAX: usize = 16 << 10;

/// How long a statement may run.
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// The most memory of a process that runs statements for others, in bytes.
pub const MEMORY_MAX: u64 = 512 << 20;

/// The most bytes that `execute` may add to a file of the database in such a process.
pub const GROWTH_MAX: u64 = 256 << 20;

/// How long a statement waits for a writer's lock.
const LOCK_MAX: Duration = Duration::from_secs(5);

/// Instructions of SQLite's virtual machine between two checks of the deadline.
const CLOCK_STEPS: i32 = 10_000;

/// The definition of a tool, as it stands in an agent's prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDefinition {
    /// Its name.
    pub name: &'static str,
    /// Its description for the model.
    pub description: String,
    /// Its arguments: a JSON object of schemas.
    pub properties: Value,
    /// The arguments that a call must have.
    pub required: &'static [&'static str],
}

impl ToolDefinition {
    /// The JSON Schema of its arguments.
    pub fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": false,
        })
    }
}

/// The tools over one database.
pub struct SqlTool {
    file: PathBuf,
    /// Device and inode of the open file: a program may put another one in its place.
    identity: (u64, u64),
    reader: Gate,
    /// `None` without `execute`.
    writer: Option<Gate>,
    schema: String,
}

/// A connection whose statements are checked and end in time.
struct Gate {
    db: Connection,
    opened: Instant,
    /// When the running statement ends, in milliseconds after `opened`.
    deadline: Arc<AtomicU64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    sql: String,
    #[serde(default)]
    parameters: Vec<Value>,
}

impl Gate {
    fn open(file: &Path, flags: OpenFlags, allows: fn(&AuthAction<'_>) -> bool) -> rusqlite::Result<Self> {
        let mut db = Connection::open_with_flags(file, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(LOCK_MAX)?;
        // What a statement sorts or keeps counts as memory, which has a limit, and not as files, which have none.
        db.pragma_update(None, "temp_store", "memory")?;
        // Without it a connection could attach another file, or change a setting.
        db.authorizer(Some(move |context: AuthContext<'_>| match context.action {
            AuthAction::Function { function_name } if function_name.eq_ignore_ascii_case("load_extension") => {
                Authorization::Deny
            }
            AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive | AuthAction::Function { .. } => {
                Authorization::Allow
            }
            // FTS5 asks so, before it reads its table, whether another connection has changed it. It only reads a number.
            AuthAction::Pragma { pragma_name: "data_version", pragma_value: None } => Authorization::Allow,
            action if allows(&action) => Authorization::Allow,
            _ => Authorization::Deny,
        }))?;
        let opened = Instant::now();
        let deadline = Arc::new(AtomicU64::new(u64::MAX));
        let until = Arc::clone(&deadline);
        let is_late = move || opened.elapsed().as_millis() as u64 > until.load(Ordering::Relaxed);
        db.progress_handler(CLOCK_STEPS, Some(is_late))?;
        Ok(Self { db, opened, deadline })
    }

    fn start(&self) {
        let end = self.opened.elapsed() + TIME_MAX;
        self.deadline.store(end.as_millis() as u64, Ordering::Relaxed);
    }
}

impl SqlTool {
    /// Opens the database in `file`, which must exist; with `execute` if `may_write`.
    ///
    /// # Errors
    /// Says why the file is not a readable SQLite database.
    pub fn open(file: &Path, may_write: bool) -> Result<Self, String> {
        let failed = |error: rusqlite::Error| unusable(file, &error);
        let identity = identity(file).map_err(|error| unusable(file, &error))?;
        let changes = |action: &AuthAction<'_>| {
            matches!(
                action,
                AuthAction::Insert { table_name }
                | AuthAction::Delete { table_name }
                | AuthAction::Update { table_name, .. } if !table_name.starts_with("sqlite_")
            )
        };
        let writer = may_write.then(|| Gate::open(file, OpenFlags::SQLITE_OPEN_READ_WRITE, changes));
        let writer = writer.transpose().map_err(failed)?;
        if let Some(gate) = &writer {
            // Its first read rolls back the change of a writer that was killed. A reader cannot.
            let read = gate.db.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()));
            read.map_err(failed)?;
        }
        let reader = Gate::open(file, OpenFlags::SQLITE_OPEN_READ_ONLY, |_| false);
        let reader = reader.map_err(failed)?;
        // Statements that compute or read a larger value fail before SQLite has allocated it.
        let limited = reader.db.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_MAX);
        limited.map_err(failed)?;
        let schema = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .and_then(|db| schema(&db))
            .map_err(failed)?;
        Ok(Self { file: file.to_owned(), identity, reader, writer, schema })
    }

    /// The definitions of its tools.
    pub fn definitions(&self) -> Vec<ToolDefinition> {
        let properties = json!({
            "sql": {"type": "string"},
            "parameters": {"type": "array", "items": {"type": ["string", "number", "boolean", "null"]}},
        });
        let mut all = vec![ToolDefinition {
            name: "query",
            description: format!(
                "Run one SELECT on a SQLite database; ?1, ?2, … in it are the parameters. Schema:{}",
                self.schema
            ),
            properties: properties.clone(),
            required: &["sql"],
        }];
        if self.writer.is_some() {
            all.push(ToolDefinition {
                name: "execute",
                description: "Run one INSERT, UPDATE or DELETE on it".to_owned(),
                properties,
                required: &["sql"],
            });
        }
        all
    }

    /// Calls a tool; `None` if it has no such tool. The agent reads the answer, or the reason why there is none.
    pub fn call(&mut self, tool: &str, arguments: Value) -> Option<Result<String, String>> {
        let is_write = match tool {
            "query" => false,
            "execute" if self.writer.is_some() => true,
            _ => return None,
        };
        let statement: Result<Statement, String> = serde_json::from_value(arguments)
            .map_err(|error| format!("{tool}: invalid arguments: {error}; see the tool's schema"));
        Some(statement.and_then(|asked| self.run(tool, is_write, asked)))
    }

    fn run(&mut self, tool: &str, is_write: bool, asked: Statement) -> Result<String, String> {
        let found = identity(&self.file);
        let found = found.map_err(|error| format!("{tool}: {}", unusable(&self.file, &error)))?;
        if found != self.identity {
            let opened = Self::open(&self.file, self.writer.is_some());
            *self = opened.map_err(|reason| format!("{tool}: {reason}"))?;
        }
        if asked.sql.contains('\0') {
            // SQLite would run what comes before it.
            return Err(format!("{tool}: the statement contains a NUL character; remove it"));
        }
        let parameters: Result<Vec<SqlValue>, String> =
            (1..).zip(asked.parameters).map(|(n, value)| bound(tool, n, value)).collect();
        let parameters = parameters?;
        let answer = match &self.writer {
            Some(gate) if is_write => {
                changed(gate, &asked.sql, parameters).inspect_err(|_| _ = roll_back(gate)).map(Some)
            }
            _ => rows(&self.reader, &asked.sql, parameters, false),
        };
        let answer = answer.map(|answer| answer.map(|answer| answer.to_string()));
        let less = if is_write { "change fewer rows" } else { "select less" };
        let answer = answer.map_err(|error| match error.sqlite_error_code() {
            // The check of a statement cannot tell which column such a name has.
            Some(rusqlite::ErrorCode::AuthorizationForStatementDenied)
                if self.schema.contains(char::REPLACEMENT_CHARACTER) =>
            {
                format!("{tool}: refused: the statement is of another kind than {tool} allows, or it uses a table or a column whose name is not UTF-8; use the others")
            }
            Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) if is_write => {
                "execute: only INSERT, UPDATE and DELETE are allowed, on this database".to_owned()
            }
            Some(rusqlite::ErrorCode::AuthorizationForStatementDenied) => {
                "query: only SELECT is allowed; this tool changes nothing and reads this database only".to_owned()
            }
            Some(rusqlite::ErrorCode::OperationInterrupted) => {
                format!("{tool}: stopped after {} s; {less}", TIME_MAX.as_secs())
            }
            Some(rusqlite::ErrorCode::OutOfMemory) => {
                format!("{tool}: stopped at {} MiB of memory; {less}", MEMORY_MAX >> 20)
            }
            Some(rusqlite::ErrorCode::SystemIoFailure) if is_write => format!(
                "{tool}: {error}; a statement may add {} MiB to the database: {less}",
                GROWTH_MAX >> 20
            ),
            Some(rusqlite::ErrorCode::TooBig) if !is_write => {
                format!("query: a value has more than {VALUE_MAX} bytes; select smaller ones")
            }
            _ => format!("{tool}: {error}"),
        })?;
        answer.ok_or_else(|| {
            format!("query: the first row has more than {BYTES_MAX} bytes; select fewer columns, or a part: substr(column, 1, 1000)")
        })
    }
}

/// Rolls back a change that was cut off, by a kill or by a failed write: the first read of a writer does. No reader can.
fn roll_back(gate: &Gate) -> rusqlite::Result<()> {
    gate.start();
    let read = "SELECT count(*) FROM sqlite_schema";
    gate.db.query_row(read, (), |_| Ok(()))
}

/// How many rows a statement changed, and the rows of its RETURNING clause.
fn changed(gate: &Gate, sql: &str, parameters: Vec<SqlValue>) -> rusqlite::Result<Value> {
    if gate.db.prepare_cached(sql)?.readonly() {
        let refused = ffi::Error::new(ffi::SQLITE_AUTH);
        return Err(rusqlite::Error::SqliteFailure(refused, None));
    }
    let returned = rows(gate, sql, parameters, true)?;
    let mut answer = json!({"changed_rows": gate.db.changes()});
    match returned {
        Some(returned) if returned["columns"] == json!([]) => {}
        Some(Value::Object(returned)) => {
            for (name, value) in returned {
                answer[name] = value;
            }
        }
        _ => answer["truncated"] = json!("the change is made, but the first returned row is too large to show"),
    }
    Ok(answer)
}

/// The rows as JSON, as many as have room; `None` if the first one has none. `to_end`: steps through all of them, as a change
/// is committed by the last step.
fn rows(gate: &Gate, sql: &str, parameters: Vec<SqlValue>, to_end: bool) -> rusqlite::Result<Option<Value>> {
    gate.start();
    let mut statement = gate.db.prepare_cached(sql)?;
    let columns: Vec<&str> = statement.column_names().collect();
    let columns = json!(columns);
    let width = statement.column_count();
    let mut found = statement.query(params_from_iter(parameters))?;
    let (mut rows, mut bytes, mut is_cut) = (Vec::new(), columns.to_string().len(), false);
    while let Some(row) = found.next()? {
        // Check the size before copying a value: SQLite holds it until the next row.
        let mut text = 0;
        for column in 0..width {
            if let ValueRef::Text(value) = row.get_ref(column)? {
                text += value.len();
            }
        }
        is_cut = rows.len() == ROWS_MAX || bytes + text > BYTES_MAX;
        if is_cut {
            break;
        }
        let values: rusqlite::Result<Vec<Value>> = (0..width).map(|column| Ok(shown(row.get_ref(column)?))).collect();
        let values = Value::Array(values?);
        // Escaped, and with a comma.
        bytes += values.to_string().len() + 1;
        is_cut = bytes > BYTES_MAX;
        if is_cut {
            break;
        }
        rows.push(values);
    }
    while to_end && is_cut && found.next()?.is_some() {}
    if is_cut && rows.is_empty() {
        return Ok(None);
    }
    let mut answer = json!({"columns": columns, "rows": rows});
    if is_cut {
        answer["truncated"] =
            json!(format!("more rows than {ROWS_MAX}, or more than {BYTES_MAX} bytes; use LIMIT and OFFSET"));
    }
    Ok(Some(answer))
}

fn identity(file: &Path) -> std::io::Result<(u64, u64)> {
    // SQLite would wait for the writer of a FIFO.
    inputs::files::metadata(file).map(|found| (found.dev(), found.ino()))
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> String {
    let file = file.display();
    format!("cannot open {file} as a SQLite database: {error}")
}

/// The statements that created tables and views, as SQLite keeps them.
fn schema(db: &Connection) -> rusqlite::Result<String> {
    let sql = "SELECT sql FROM sqlite_schema WHERE type IN ('table', 'view') AND sql NOT NULL \
               AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid";
    let mut statement = db.prepare(sql)?;
    let mut all = statement.query([])?;
    let mut schema = String::new();
    while let Some(row) = all.next()? {
        // A program may have written names in another encoding.
        let sql = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?);
        if schema.len() + sql.len() > SCHEMA_MAX {
            schema += "\n(more: SELECT sql FROM sqlite_schema)";
            break;
        }
        schema += "\n";
        schema += &sql;
    }
    Ok(schema)
}

/// The `n`th parameter as a value of SQLite.
fn bound(tool: &str, n: usize, value: Value) -> Result<SqlValue, String> {
    Ok(match value {
        Value::Null => SqlValue::Null,
        Value::Bool(is) => SqlValue::Integer(is.into()),
        Value::String(text) => SqlValue::Text(text),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => SqlValue::Integer(integer),
            (None, Some(real)) => SqlValue::Real(real),
            (None, None) => return Err(format!("{tool}: parameter {n} is out of range")),
        },
        Value::Array(_) | Value::Object(_) => {
            return Err(format!(
                "{tool}: parameter {n} is an array or object; give null, a number, a text or a boolean"
            ));
        }
    })
}

/// A value as JSON. Bytes that are not text are only counted: `{"blob_bytes": 5}`. A number that JSON cannot write is named:
/// `{"real": "-Infinity"}`.
fn shown(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => json!(integer),
        ValueRef::Real(real) if real.is_finite() => json!(real),
        ValueRef::Real(real) => json!({"real": match real {
            f64::INFINITY => "Infinity",
            f64::NEG_INFINITY => "-Infinity",
            _ => "NaN",
        }}),
        ValueRef::Text(text) => json!(String::from_utf8_lossy(text)),
        ValueRef::Blob(blob) => json!({"blob_bytes": blob.len()}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> (tempfile::TempDir, SqlTool) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        let db = Connection::open(&file).unwrap();
        db.execute_batch("CREATE TABLE t(a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, 'y''z')").unwrap();
        let tools = SqlTool::open(&file, true).unwrap();
        (dir, tools)
    }

    fn ask(tools: &mut SqlTool, given: Value) -> Result<String, String> {
        tools.call("query", given).unwrap()
    }

    #[test]
    fn a_fifo_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("a.db");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
        let refused = SqlTool::open(&fifo, false).err().unwrap();
        assert!(refused.ends_with("is a FIFO, not a regular file"), "{refused}");
    }

    #[test]
    fn the_query_tool_binds_parameters() {
        let (_dir, mut tools) = tools();
        let asked = json!({"sql": "SELECT a, b FROM t WHERE b = ?1", "parameters": ["y'z"]});
        let answer = ask(&mut tools, asked).unwrap();
        assert_eq!(answer, r#"{"columns":["a","b"],"rows":[[2,"y'z"]]}"#);
    }

    #[test]
    fn the_query_tool_names_the_numbers_that_json_cannot_write() {
        let (_dir, mut tools) = tools();
        let sql = "SELECT 9e999, -9e999, 1.5, -0.0, 1e308, NULL, 'Infinity', 9e999 - 9e999, max(9e999, 1)";
        let answer = ask(&mut tools, json!({ "sql": sql })).unwrap();
        let rows = r#""rows":[[{"real":"Infinity"},{"real":"-Infinity"},1.5,-0.0,1e+308,null,"Infinity",null,{"real":"Infinity"}]]"#;
        assert!(answer.contains(rows), "{answer}");
        for (real, shows) in [(f64::NAN, json!({"real": "NaN"})), (f64::MIN_POSITIVE, json!(f64::MIN_POSITIVE))] {
            assert_eq!(shown(ValueRef::Real(real)), shows);
        }
        let written = "INSERT INTO t VALUES (9e999, 'z') RETURNING a";
        let answer = tools.call("execute", json!({ "sql": written })).unwrap();
        assert!(answer.unwrap().contains(r#"[[{"real":"Infinity"}]]"#));
    }

    #[test]
    fn a_name_that_is_not_utf_8_costs_only_the_queries_that_show_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.db");
        let db = Connection::open(&file).unwrap();
        db.execute_batch(
            "CREATE TABLE latin(caXX TEXT, n); INSERT INTO latin VALUES ('x', 7); CREATE TABLE good(a); INSERT INTO good VALUES (1)",
        )
        .unwrap();
        drop(db);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes.windows(4).position(|it| it == b"caXX").unwrap();
        bytes[at + 2..at + 4].copy_from_slice(b"f\xe9");
        std::fs::write(&file, bytes).unwrap();
        let mut tools = SqlTool::open(&file, true).unwrap();
        let description = &tools.definitions()[0].description;
        assert!(description.contains("caf\u{fffd}") && description.contains("good(a)"));
        let mut query = |sql: &str| ask(&mut tools, json!({"sql": sql}));
        assert!(query("SELECT a FROM good").unwrap().contains("[[1]]"));
        assert!(query("SELECT n FROM latin").unwrap().contains("[[7]]"));
        let error = query("SELECT * FROM latin").unwrap_err();
        assert!(error.contains("not UTF-8"), "{error}");
    }

    #[test]
    fn the_query_tool_shows_the_schema_in_its_description() {
        let (_dir, tools) = tools();
        let description = &tools.definitions()[0].description;
        assert!(description.contains("CREATE TABLE t(a INTEGER, b TEXT)"));
    }

    #[test]
    fn the_query_tool_refuses_every_statement_but_select() {
        let (dir, mut tools) = tools();
        let other = dir.path().join("other.db");
        Connection::open(&other).unwrap();
        for sql in [
            "DELETE FROM t".to_owned(),
            "CREATE TABLE u(a)".to_owned(),
            "PRAGMA query_only = 0".to_owned(),
            "BEGIN".to_owned(),
            "SELECT load_extension('x')".to_owned(),
            format!("ATTACH '{}' AS other", other.display()),
            format!("VACUUM INTO '{}'", dir.path().join("copy.db").display()),
        ] {
            let error = ask(&mut tools, json!({"sql": sql})).unwrap_err();
            assert!(error.starts_with("query: "), "{sql}: {error}");
        }
        let error = ask(&mut tools, json!({"sql": "SELECT 1; SELECT 2"})).unwrap_err();
        assert!(error.contains("Multiple statements"), "{error}");
        assert!(!dir.path().join("copy.db").exists());
        assert!(ask(&mut tools, json!({"sql": "SELECT count(*) FROM t"})).unwrap().contains("[[2]]"));
    }

    #[test]
    fn the_query_tool_reads_a_full_text_table_and_does_not_change_it() {
        let (dir, mut tools) = tools();
        let db = Connection::open(dir.path().join("a.db")).unwrap();
        db.execute_batch(
            "CREATE VIRTUAL TABLE ft USING fts5(x); INSERT INTO ft VALUES ('one tree'), ('two trees');
             CREATE VIRTUAL TABLE words USING fts5vocab(ft, row);
             CREATE VIRTUAL TABLE of_t USING fts5(b, content = t, content_rowid = a);
             INSERT INTO of_t(of_t) VALUES ('rebuild')",
        )
        .unwrap();
        for (sql, rows) in [
            ("SELECT x FROM ft ORDER BY rowid", r#"[["one tree"],["two trees"]]"#),
            ("SELECT x FROM ft WHERE ft MATCH 'trees'", r#"[["two trees"]]"#),
            ("SELECT x FROM ft('one') ORDER BY rank", r#"[["one tree"]]"#),
            ("SELECT highlight(ft, 0, '<', '>') FROM ft('two') ORDER BY bm25(ft)", r#"[["<two> trees"]]"#),
            ("SELECT term FROM words WHERE doc = 1 LIMIT 1", r#"[["one"]]"#),
            ("SELECT a FROM t JOIN of_t ON a = of_t.rowid WHERE of_t MATCH 'x'", "[[1]]"),
        ] {
            let answer = ask(&mut tools, json!({"sql": sql}));
            let answer = answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert!(answer.contains(&format!(r#""rows":{rows}"#)), "{sql}: {answer}");
        }
        for sql in [
            "INSERT INTO ft(ft) VALUES ('optimize')",
            "INSERT INTO ft VALUES ('three')",
            "DELETE FROM ft",
            "DELETE FROM ft_data",
            "DROP TABLE ft",
            "CREATE VIRTUAL TABLE gt USING fts5(x)",
            "PRAGMA data_version = 1",
            "PRAGMA schema_version",
        ] {
            let error = ask(&mut tools, json!({"sql": sql})).unwrap_err();
            assert!(error.contains("only SELECT is allowed"), "{sql}: {error}");
        }
        let count = ask(&mut tools, json!({"sql": "SELECT count(*) FROM ft"}));
        assert!(count.unwrap().contains("[[2]]"));
    }

    #[test]
    fn the_query_tool_names_an_unknown_argument_and_a_wrong_parameter() {
        let (_dir, mut tools) = tools();
        let error = ask(&mut tools, json!({"sql": "SELECT 1", "limit": 3})).unwrap_err();
        assert!(error.contains("unknown field `limit`"), "{error}");
        let error = ask(&mut tools, json!({"sql": "SELECT ?1", "parameters": [[1]]})).unwrap_err();
        assert!(error.contains("parameter 1"), "{error}");
    }

    #[test]
    fn the_query_tool_shows_a_row_that_another_connection_commits() {
        let (dir, mut tools) = tools();
        let count = json!({"sql": "SELECT count(*) FROM t"});
        assert!(ask(&mut tools, count.clone()).unwrap().contains("[[2]]"));
        let writer = Connection::open(dir.path().join("a.db")).unwrap();
        writer.execute("INSERT INTO t VALUES (3, 'new')", []).unwrap();
        assert!(ask(&mut tools, count).unwrap().contains("[[3]]"));
    }

    #[test]
    fn the_query_tool_says_where_it_cut_an_answer() {
        let (_dir, mut tools) = tools();
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1001) SELECT i FROM n";
        let answer: Value = serde_json::from_str(&ask(&mut tools, json!({"sql": sql})).unwrap()).unwrap();
        assert_eq!(answer["rows"].as_array().unwrap().len(), ROWS_MAX);
        assert!(answer["truncated"].is_string());
    }

    #[test]
    fn an_answer_of_the_query_tool_never_exceeds_its_bytes() {
        let (dir, mut tools) = tools();
        let db = Connection::open(dir.path().join("a.db")).unwrap();
        // 200,000 bytes, and 1,200,000 once escaped.
        let values = "'small'), (4, hex(zeroblob(100000))), (5, hex(zeroblob(100000))), (6, replace(hex(zeroblob(100000)), '0', char(1)))";
        db.execute_batch(&format!("DELETE FROM t; INSERT INTO t VALUES (3, {values}")).unwrap();
        let mut rows_of = |sql: &str| {
            let answer = ask(&mut tools, json!({"sql": sql}))?;
            assert!(answer.len() <= BYTES_MAX + 200, "{}", answer.len());
            let answer: Value = serde_json::from_str(&answer).unwrap();
            let rows = answer["rows"].as_array().unwrap().len();
            Ok::<_, String>((rows, answer["truncated"].is_string()))
        };
        assert_eq!(rows_of("SELECT * FROM t ORDER BY a"), Ok((2, true)));
        assert_eq!(rows_of("SELECT * FROM t WHERE a = 5"), Ok((1, false)));
        assert_eq!(rows_of("SELECT substr(b, 1, 1000) FROM t"), Ok((4, false)));
        for sql in ["SELECT * FROM t WHERE a = 6", "SELECT b, b FROM t WHERE a = 4"] {
            let error = rows_of(sql).unwrap_err();
            assert!(error.contains("substr(column, 1, 1000)"), "{sql}: {error}");
        }
        let error = rows_of("SELECT hex(zeroblob(100000000))").unwrap_err();
        assert!(error.contains("a value has more than 16777216 bytes"), "{error}");
        // A blob is only counted, whatever its size.
        assert_eq!(rows_of("SELECT zeroblob(10000000)"), Ok((1, false)));
    }

    #[test]
    fn the_execute_tool_changes_rows_and_nothing_else() {
        let (dir, mut tools) = tools();
        let mut execute = |sql: &str| tools.call("execute", json!({"sql": sql})).unwrap();
        assert_eq!(execute("UPDATE t SET b = 'z' WHERE a = 1").unwrap(), r#"{"changed_rows":1}"#);
        assert_eq!(
            execute("INSERT INTO t VALUES (7, 'a'), (8, 'b') RETURNING a").unwrap(),
            r#"{"changed_rows":2,"columns":["a"],"rows":[[7],[8]]}"#
        );
        let many = "WITH RECURSIVE n(i) AS (SELECT 9 UNION ALL SELECT i + 1 FROM n LIMIT 2000) \
                    INSERT INTO t SELECT i, 'many' FROM n RETURNING a";
        let answer: Value = serde_json::from_str(&execute(many).unwrap()).unwrap();
        assert_eq!(answer["changed_rows"], 2000);
        assert!(answer["truncated"].is_string());
        // A reader blocks the commit of a rollback journal. The tool must report that nothing has changed.
        let reader = Connection::open(dir.path().join("a.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let error = execute(&many.replace("'many'", "'refused'")).unwrap_err();
        assert!(error.contains("locked"), "{error}");
        drop(reader);
        for sql in [
            "SELECT a FROM t".to_owned(),
            "SELECT load_extension('x')".to_owned(),
            "DROP TABLE t".to_owned(),
            "PRAGMA journal_mode = OFF".to_owned(),
            "DELETE FROM sqlite_schema".to_owned(),
            format!("ATTACH '{}' AS other", dir.path().join("a.db").display()),
        ] {
            assert!(execute(&sql).is_err(), "{sql}");
        }
        assert!(ask(&mut tools, json!({"sql": "SELECT b FROM t"})).unwrap().contains("z"));
    }

    #[test]
    fn the_tools_use_the_database_that_took_the_place_of_theirs() {
        let (dir, mut tools) = tools();
        let other = dir.path().join("b.db");
        let db = Connection::open(&other).unwrap();
        db.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (5)").unwrap();
        std::fs::rename(&other, dir.path().join("a.db")).unwrap();
        let count = json!({"sql": "SELECT a FROM t"});
        assert!(ask(&mut tools, count.clone()).unwrap().contains("[[5]]"));
        std::fs::remove_file(dir.path().join("a.db")).unwrap();
        let error = ask(&mut tools, count).unwrap_err();
        assert!(error.contains("a.db") && error.contains("No such file"), "{error}");
    }

    #[test]
    fn a_read_only_tool_has_no_execute() {
        let (dir, _) = tools();
        let mut tools = SqlTool::open(&dir.path().join("a.db"), false).unwrap();
        assert_eq!(tools.definitions().len(), 1);
        assert!(tools.call("execute", json!({"sql": "DELETE FROM t"})).is_none());
    }
}
