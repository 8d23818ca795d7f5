//! Queries on threads of their own: SQLite interrupts a query only between two instructions of its virtual machine.
//!
//! One instruction may search one long text for another, or count all rows of a table. Its caller gets an error at the
//! deadline; the connection stays with the abandoned query until that ends.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::time::{Duration, Instant};

use fuse::store::{Errno, StoreError};
use rusqlite::Connection;

use super::super::{Parameter, Parameters, Text};
use super::{bind, rows_of};

/// How long after its deadline a query may still end by itself, which keeps its connection.
const GRACE: Duration = Duration::from_millis(100);

/// A source with so many abandoned queries begins no further query that could be abandoned.
const ABANDONED_MAX: usize = 2;

/// Rows, and bytes of rows, that a query's thread hands over at once.
const BATCH: (usize, usize) = (256, 64 << 10);

/// Functions of several arguments whose time is at most proportional to the length of them all.
const LINEAR: [&str; 32] = [
    "->",
    "->>",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "date",
    "datetime",
    "format",
    "group_concat",
    "json_array",
    "json_extract",
    "json_group_object",
    "json_insert",
    "json_object",
    "json_put",
    "json_remove",
    "json_replace",
    "json_set",
    "julianday",
    "max",
    "min",
    "nullif",
    "printf",
    "round",
    "strftime",
    "string_agg",
    "substr",
    "substring",
    "time",
    "timediff",
    "unixepoch",
];

/// A parameter for another thread.
enum OwnedParameter {
    Integer(i64),
    Text(Vec<u8>),
    Number(Vec<u8>),
    Null,
}

impl OwnedParameter {
    fn borrowed(&self) -> Parameter<'_> {
        match self {
            OwnedParameter::Integer(value) => Parameter::Integer(*value),
            OwnedParameter::Text(bytes) => Parameter::Text(bytes),
            OwnedParameter::Number(digits) => Parameter::Number(digits),
            OwnedParameter::Null => Parameter::Null,
        }
    }
}

impl From<Parameter<'_>> for OwnedParameter {
    fn from(value: Parameter<'_>) -> Self {
        match value {
            Parameter::Integer(value) => OwnedParameter::Integer(value),
            Parameter::Text(bytes) => OwnedParameter::Text(bytes.to_vec()),
            Parameter::Number(digits) => OwnedParameter::Number(digits.to_vec()),
            Parameter::Null => OwnedParameter::Null,
        }
    }
}

/// The number of queries of a source that exceeded their time and still run.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Abandoned(Arc<AtomicUsize>);

/// Whether a query runs, was abandoned, or has ended.
#[derive(Default)]
struct Progress(AtomicU8);

impl Progress {
    const ABANDONED: u8 = 1;
    const ENDED: u8 = 2;

    /// Counts the query as abandoned unless it has ended.
    fn abandon(&self, abandoned: &Abandoned) {
        // Counted first: the query may end right after it is marked.
        abandoned.0.fetch_add(1, Ordering::SeqCst);
        if self.0.swap(Self::ABANDONED, Ordering::SeqCst) == Self::ENDED {
            abandoned.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn end(&self, abandoned: &Abandoned) {
        if self.0.swap(Self::ENDED, Ordering::SeqCst) == Self::ABANDONED {
            abandoned.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Functions that make a long text or BLOB of a number.
const LENGTHENING: [&str; 4] = ["format", "printf", "randomblob", "zeroblob"];

/// Whether one instruction of a query could take longer than its deadline. `is_file`: the tables may be of any kind and
/// size.
pub(super) fn may_be_slow(connection: &Connection, sql: &str, is_file: bool) -> rusqlite::Result<bool> {
    let mut program = connection.prepare(&format!("EXPLAIN {sql}"))?;
    let mut instructions = program.raw_query();
    // Of each function: its name, the number of its arguments, and how many of these are constant.
    let mut functions = Vec::new();
    while let Some(instruction) = instructions.next()? {
        let opcode: String = instruction.get("opcode")?;
        let constants: i64 = instruction.get("p1")?;
        // A text of the query need not be UTF-8.
        let function = instruction.get_ref("p4")?.as_str().ok();
        let constants = match opcode.as_str() {
            // A virtual table, such as one of full-text search, may read all of its rows.
            "Count" | "VFilter" if is_file => return Ok(true),
            "Function" | "PureFunc" => constants.count_ones(),
            "AggStep" | "AggStep1" | "AggInverse" => 0,
            _ => continue,
        };
        let Some((name, count)) = function.and_then(|it| it.strip_suffix(')')?.rsplit_once('(')) else {
            return Ok(true);
        };
        functions.push((name.to_owned(), count.parse::<u32>().ok(), constants));
    }
    // Constant arguments are literals of the definition and names, which are short, unless a function lengthens them.
    let calls = |name: &str| functions.iter().filter(|function| function.0 == name).count();
    let is_short = LENGTHENING.iter().all(|name| calls(name) == 0) && calls("replace") <= 1;
    // The time of a function of two long arguments, such as `instr(2)`, may grow with the product of their lengths.
    Ok(functions.iter().any(|(name, count, constants)| {
        let constants = if is_short { *constants } else { 0 };
        // A function without a fixed number of arguments has a negative one.
        !LINEAR.contains(&name.as_str()) && count.is_none_or(|count| count > constants + 1)
    }))
}

/// The error of a call while abandoned queries keep it from its turn.
pub(super) fn still_runs(count: usize, timeout: Duration) -> StoreError {
    let limit = timeout.as_millis();
    let reason = match count {
        1 => format!("an earlier query that took longer than {limit} ms (`timeout_ms`) still runs: try again later"),
        _ => format!(
            "{count} earlier queries that took longer than {limit} ms (`timeout_ms`) still run: try again later"
        ),
    };
    StoreError::storage(Errno::IO, reason)
}

/// How a query on its own thread ended for its caller.
pub(super) enum Outcome {
    Ended(Connection, rusqlite::Result<()>),
    /// It has not begun: too many queries are abandoned, or no thread starts.
    Refused(Connection, StoreError),
    /// The connection is gone.
    Lost(StoreError),
    /// The connection comes when the query ends.
    Abandoned(Receiver<Connection>, StoreError),
}

/// Runs a query on a thread of its own, and hands its rows to `each` on this one, for `timeout` at most.
pub(super) fn query(
    connection: Connection,
    (sql, parameters): (&str, Parameters<'_>),
    (timeout, abandoned): (Duration, &Abandoned),
    each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
) -> Outcome {
    let deadline = Instant::now() + timeout + GRACE;
    let count = abandoned.0.load(Ordering::SeqCst);
    if count >= ABANDONED_MAX {
        return Outcome::Refused(connection, still_runs(count, timeout));
    }
    let interrupt = connection.get_interrupt_handle();
    let progress = Arc::new(Progress::default());
    let (hand_over, batches) = sync_channel::<Vec<Vec<Text>>>(1);
    let (finish, finished) = channel();
    let (give_back, returned) = channel();
    let parameters: Vec<(String, OwnedParameter)> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), OwnedParameter::from(*value))).collect();
    let (sql, ends, counted) = (sql.to_owned(), Arc::clone(&progress), abandoned.clone());
    let (hand_in, handed_in) = channel::<Connection>();
    let run = move || {
        let Ok(connection) = handed_in.recv() else { return };
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut add = |row: Vec<Text>| {
            bytes += row.iter().flatten().map(Vec::len).sum::<usize>();
            batch.push(row);
            if batch.len() < BATCH.0 && bytes < BATCH.1 {
                return ControlFlow::Continue(());
            }
            bytes = 0;
            // It fails if the caller has ended.
            if hand_over.send(std::mem::take(&mut batch)).is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        };
        let parameters: Vec<_> = parameters.iter().map(|(name, value)| (name.as_str(), value.borrowed())).collect();
        let ran = connection.prepare_cached(&sql).and_then(|mut statement| {
            bind(&mut statement, &parameters)?;
            rows_of(&mut statement, &mut add)
        });
        let _ = hand_over.send(batch);
        drop(hand_over);
        // The receivers of a caller that has ended are gone.
        let _ = finish.send(ran);
        let _ = give_back.send(connection);
        ends.end(&counted);
    };
    if let Err(error) = std::thread::Builder::new().name("query".to_owned()).spawn(run) {
        return Outcome::Refused(connection, StoreError::storage(Errno::IO, format!("a thread for a query: {error}")));
    }
    if let Err(unsent) = hand_in.send(connection) {
        return Outcome::Refused(unsent.0, StoreError::storage(Errno::IO, "the thread of a query has ended"));
    }
    let remaining = || deadline.saturating_duration_since(Instant::now());
    let late = |returned| {
        // It ends the query before its next instruction.
        interrupt.interrupt();
        progress.abandon(abandoned);
        let limit = timeout.as_millis();
        let reason = format!(
            "the query took longer than {limit} ms (`timeout_ms`), and still runs: SQLite cannot interrupt a function of it"
        );
        Outcome::Abandoned(returned, StoreError::storage(Errno::IO, reason))
    };
    let mut has_enough = false;
    loop {
        match batches.recv_timeout(remaining()) {
            Ok(rows) => has_enough = rows.into_iter().any(|row| each(row).is_break()),
            Err(RecvTimeoutError::Timeout) => return late(returned),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if has_enough {
            interrupt.interrupt();
            break;
        }
    }
    drop(batches);
    let ran = match finished.recv_timeout(remaining()) {
        Ok(ran) => ran,
        Err(RecvTimeoutError::Timeout) => return late(returned),
        Err(RecvTimeoutError::Disconnected) => Ok(()),
    };
    match returned.recv() {
        Ok(connection) => Outcome::Ended(connection, if has_enough { Ok(()) } else { ran }),
        Err(_) => Outcome::Lost(StoreError::storage(Errno::IO, "the thread of a query has ended by a panic")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (a, b, c AS (instr(a, b)), json TEXT)").unwrap();
        connection
    }

    #[test]
    fn only_a_query_whose_instructions_may_take_long_needs_a_thread() {
        let connection = connection();
        let needs = |sql: &str| may_be_slow(&connection, sql, true).unwrap();
        for quick in [
            "SELECT a, octet_length(b), CAST(a AS TEXT), coalesce(substr(a, 1, 10), '') FROM t WHERE a = :a ORDER BY a",
            "SELECT DISTINCT CAST(a AS TEXT), typeof(a) FROM t WHERE a IN (:a, CAST(:a AS BLOB)) ORDER BY 1",
            "SELECT a FROM t WHERE lower(a) LIKE '%' || lower(:words) || '%' OR a GLOB '?*.json'",
            "SELECT json_object('a', a, 'b', json_extract(json, '$.x')), max(a), sum(a) FROM t",
            "SELECT 'aÿ', CAST(x'ff00fe' AS TEXT), rtrim(a, char(10)), replace(:name, '~', '/memory/') FROM t",
        ] {
            assert!(!needs(quick), "{quick}");
        }
        for slow in [
            "SELECT instr(a, b) FROM t",
            "SELECT c FROM t",
            "SELECT a FROM t WHERE a LIKE b",
            "SELECT replace(a, b, '') FROM t",
            "SELECT count(*) FROM t",
            "SELECT value FROM t, json_each(t.json)",
            "SELECT instr(printf('%.*c', 200000000, 'a'), printf('%.*c', 100000000, 'a') || 'b')",
            "SELECT instr(zeroblob(200000000), zeroblob(100000000) || 'b')",
            "SELECT instr('a', replace(replace('aaaa', 'a', 'bbbb'), 'b', 'cccc'))",
        ] {
            assert!(needs(slow), "{slow}");
        }
        assert!(!may_be_slow(&connection, "SELECT value FROM t, json_each(t.json)", false).unwrap());
    }

    #[test]
    fn an_abandoned_query_counts_until_it_ends_and_then_gives_its_connection_back() {
        let sql = "SELECT instr(a, substr(a, 1, 100000) || 'b') FROM (SELECT printf('%.*c', 600000, 'a') AS a)";
        let abandoned = Abandoned::default();
        let limits = (Duration::from_millis(1), &abandoned);
        let ask = |connection| query(connection, (sql, &[]), limits, &mut |_| ControlFlow::Continue(()));
        let Outcome::Abandoned(first, error) = ask(connection()) else { panic!("it ended in time") };
        assert!(error.into_reason().contains("1 ms (`timeout_ms`)"));
        let Outcome::Abandoned(second, _) = ask(connection()) else { panic!("it ended in time") };
        assert_eq!(abandoned.0.load(Ordering::SeqCst), 2);
        assert!(matches!(ask(connection()), Outcome::Refused(..)), "a third one does not begin");
        for returned in [first, second] {
            returned.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        while abandoned.0.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!matches!(ask(connection()), Outcome::Refused(..)));
    }
}
