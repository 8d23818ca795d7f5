//! A session of a PostgreSQL server: prepared statements, values, kept answers, and why a request failed.

use std::collections::HashMap;
use std::io;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use futures::StreamExt;
use inputs::with_causes;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, RowStream, Statement};

use super::super::parameters::numbered;
use super::super::{BoundStatement, Parameter, Parameters, Text, TransactionResult};
use super::connection::{LimitedConnection, Limits, ServerAddress, addresses};

/// Roles with which a query could reach files and programs of the server.
const REACH: &str = "SELECT coalesce(string_agg(rolname, ', '), '') FROM pg_roles
  WHERE (rolname = current_user AND rolsuper) OR (pg_has_role(current_user, oid, 'USAGE') AND rolname IN
    ('pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program'))";

/// A statement that the server knows, with the names of its parameters.
pub(super) type PreparedStatement = Arc<(Statement, Vec<String>)>;

/// How many bytes of answers a connection with a channel keeps, until it is notified.
pub(super) const ANSWERS: usize = 8 << 20;

/// Rows of a query with these parameters.
#[derive(Default)]
pub(super) struct Answers {
    pub(super) rows: HashMap<Vec<u8>, Vec<Vec<Text>>>,
    pub(super) bytes: usize,
    /// The count of notices for which these answers are current.
    pub(super) notices: u64,
}

/// One connection to a server.
pub(super) struct Session {
    pub(super) client: Client,
    address: ServerAddress,
    limits: Limits,
    prepared: HashMap<String, PreparedStatement>,
    pub(super) answers: Answers,
}

/// A failed request.
pub(super) enum Failure {
    /// The server did not answer in time.
    Late,
    /// There is no server.
    Unreachable(io::Error),
    Refused(tokio_postgres::Error),
    /// The source may not be used.
    Forbidden(String),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    fn database(&self) -> Option<&DbError> {
        match self {
            Self::Refused(error) => error.as_db_error(),
            _ => None,
        }
    }

    pub(super) fn code(&self) -> Option<&SqlState> {
        self.database().map(DbError::code)
    }

    /// Whether the connection is unusable now.
    pub(super) fn is_final(&self) -> bool {
        match self.code() {
            Some(code) => code.code().starts_with("57P") || code.code().starts_with("08"),
            None => true,
        }
    }

    /// Whether a value from a name is not valid for its column's type.
    pub(super) fn is_no_value(&self) -> bool {
        self.database().is_some_and(|error| {
            let is_data = error.code().code().starts_with("22");
            // The context of an error in binding: `unnamed portal parameter $1`.
            is_data && error.where_().is_some_and(|place| place.contains(" $"))
        })
    }

    /// Without values: the log must not hold content.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Late => "no answer in time".to_owned(),
            Self::Unreachable(error) => format!("error connecting to server: {}", with_causes(error)),
            Self::Forbidden(reason) => reason.clone(),
            Self::Refused(error) => match error.as_db_error() {
                Some(error) => {
                    let message = error.message();
                    message.split(": \"").next().unwrap_or(message).to_owned()
                }
                None => with_causes(error),
            },
        }
    }
}

/// A value in its text form, of whatever type: the server reads it as the type that it expects. Bytes are sent as they are.
#[derive(Debug)]
struct Value<'a>(Parameter<'a>);

impl ToSql for Value<'_> {
    fn to_sql(&self, _type: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self.0 {
            Parameter::Null => return Ok(IsNull::Yes),
            Parameter::Integer(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Parameter::Text(text) | Parameter::Number(text) => out.extend_from_slice(text),
        }
        Ok(IsNull::No)
    }

    fn accepts(_type: &Type) -> bool {
        true
    }

    fn encode_format(&self, kind: &Type) -> Format {
        match *kind {
            // As they were read.
            Type::BYTEA => Format::Binary,
            _ => Format::Text,
        }
    }

    to_sql_checked!();
}

/// The bytes of a column.
struct ColumnBytes(Vec<u8>);

impl<'a> FromSql<'a> for ColumnBytes {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        let number = match *kind {
            Type::INT2 => i16::from_sql(kind, raw)?.into(),
            Type::INT4 => i32::from_sql(kind, raw)?.into(),
            Type::INT8 => i64::from_sql(kind, raw)?,
            // Queries cast all else to text, but for bytes.
            _ => return Ok(Self(raw.to_vec())),
        };
        Ok(Self(number.to_string().into_bytes()))
    }

    fn accepts(_type: &Type) -> bool {
        true
    }
}

/// A query and its parameters as one key.
pub(super) fn key_of(sql: &str, parameters: Parameters<'_>) -> Vec<u8> {
    format!("{sql}\0{parameters:?}").into_bytes()
}

impl Answers {
    /// Keeps an answer. One that its reader broke off after the first row is kept as the part that such a reader wants.
    pub(super) fn keep(&mut self, key: Vec<u8>, rows: Vec<Vec<Text>>, bytes: usize, is_whole: bool) {
        if bytes > ANSWERS / 8 || !(is_whole || rows.len() == 1) {
            return;
        }
        if self.bytes + bytes > ANSWERS {
            self.rows.clear();
            self.bytes = 0;
        }
        self.bytes += bytes + key.len();
        self.rows.insert(key, rows);
    }
}

fn explained(limits: &Limits, failure: Failure) -> Failure {
    limits.refused().map_or(failure, Failure::Forbidden)
}

/// Connects to the first server of `config` that accepts it; the failure of the last one, if none does.
async fn connect(
    config: &Config,
    limits: &Limits,
) -> Result<(Client, Connection<LimitedConnection, NoTlsStream>, ServerAddress), Failure> {
    let mut failure = Failure::Unreachable(io::Error::other("the URL names no host"));
    for address in addresses(config) {
        failure = match LimitedConnection::connect(&address, limits.clone()).await {
            Ok(stream) => match config.connect_raw(stream, NoTls).await {
                Ok((client, connection)) => return Ok((client, connection, address)),
                Err(error) => error.into(),
            },
            Err(error) => Failure::Unreachable(error),
        };
    }
    Err(failure)
}

impl Session {
    /// The reason of a failure, if this side has ended the connection.
    pub(super) fn explained(&self, failure: Failure) -> Failure {
        explained(&self.limits, failure)
    }

    /// Has the server stop the running query.
    pub(super) async fn cancel(&self) -> Result<(), Failure> {
        let stream = LimitedConnection::connect(&self.address, Limits::default()).await;
        let stream = stream.map_err(Failure::Unreachable)?;
        let token = self.client.cancel_token();
        Ok(token.cancel_query_raw(stream, NoTls).await?)
    }

    pub(super) async fn open(config: &Config, channel: Option<&str>, notices: Arc<AtomicU64>) -> Result<Self, Failure> {
        let limits = Limits::default();
        let (client, mut connection, address) = connect(config, &limits).await?;
        notices.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            let next = |context: &mut std::task::Context<'_>| connection.poll_message(context);
            let mut messages = pin!(futures::stream::poll_fn(next));
            while let Some(message) = messages.next().await {
                match message {
                    Ok(AsyncMessage::Notification(_)) => {
                        notices.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(AsyncMessage::Notice(notice)) => {
                        tracing::debug!("PostgreSQL: {}", notice.message())
                    }
                    Ok(_) => {}
                    // Calls only learn that the connection is closed.
                    Err(error) => {
                        let failure = Failure::from(error).words();
                        return tracing::warn!("PostgreSQL: the connection has ended: {failure}");
                    }
                }
            }
        });
        limits.describing();
        let reach = client.query_one(REACH, &[]).await;
        let reach = reach.and_then(|row| row.try_get::<_, String>(0));
        let reach = reach.map_err(|error| explained(&limits, error.into()))?;
        if !reach.is_empty() {
            return Err(Failure::Forbidden(format!(
                "its role has access to files and programs of the server ({reach}): use a role with rights on tables only"
            )));
        }
        if let Some(channel) = channel {
            let channel = channel.replace('"', "\"\"");
            client.batch_execute(&format!("LISTEN \"{channel}\"")).await?;
        }
        limits.streaming();
        Ok(Self { client, address, limits, prepared: HashMap::new(), answers: Answers::default() })
    }

    pub(super) async fn prepare(&mut self, sql: &str) -> Result<PreparedStatement, Failure> {
        if let Some(prepared) = self.prepared.get(sql) {
            return Ok(Arc::clone(prepared));
        }
        let (numbered, names) = numbered(sql);
        self.limits.describing();
        let statement = self.client.prepare(&numbered).await;
        self.limits.streaming();
        let prepared = Arc::new((statement?, names));
        self.prepared.insert(sql.to_owned(), Arc::clone(&prepared));
        Ok(prepared)
    }

    /// Runs statements in one transaction, which is rolled back if one of them changes no row.
    pub(super) async fn run_all(&mut self, statements: &[BoundStatement<'_>]) -> Result<TransactionResult, Failure> {
        let mut prepared = Vec::new();
        for (sql, _) in statements {
            prepared.push(self.prepare(sql).await?);
        }
        let (mut fewest, mut key) = (u64::MAX, None);
        let ran = async {
            self.client.batch_execute("BEGIN READ WRITE").await?;
            for (at, (prepared, (_, parameters))) in prepared.iter().zip(statements).enumerate() {
                let mut first = |row: Vec<Text>| {
                    let text = row.into_iter().next().flatten().filter(|_| at == 0);
                    key = key.or(text.and_then(|text| String::from_utf8(text).ok()?.parse().ok()));
                    ControlFlow::Break(())
                };
                let values = values(&prepared.1, parameters);
                let rows = self.client.query_raw(&prepared.0, &values).await?;
                fewest = fewest.min(read_rows(pin!(rows), &mut first).await?);
            }
            Ok::<_, tokio_postgres::Error>(())
        };
        let ran = ran.await;
        let end = if ran.is_ok() && fewest > 0 { "COMMIT" } else { "ROLLBACK" };
        let ended = self.client.batch_execute(end).await;
        ran?;
        ended?;
        Ok(TransactionResult { rows: fewest as usize, key })
    }

    /// Sends a query within a transaction, without waiting for each answer.
    pub(super) async fn query(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut (dyn FnMut(Vec<Text>) -> ControlFlow<()> + '_),
    ) -> Result<u64, Failure> {
        let prepared = self.prepare(sql).await?;
        let (statement, names) = &*prepared;
        let values = values(names, parameters);
        let begun = self.client.batch_execute("BEGIN READ ONLY");
        let ran = async {
            let rows = self.client.query_raw(statement, &values).await?;
            read_rows(pin!(rows), each).await
        };
        // A failed transaction is rolled back by this.
        let ended = self.client.batch_execute("COMMIT");
        let (begun, ran, ended) = tokio::join!(begun, ran, ended);
        begun?;
        let rows = ran?;
        ended?;
        Ok(rows)
    }
}

/// The values of a statement's parameters, in the order of their numbers.
fn values<'a>(names: &[String], parameters: Parameters<'a>) -> Vec<Value<'a>> {
    let value = |name: &String| {
        let found = parameters.iter().rev().find(|(has, _)| has == name);
        Value(found.map_or(Parameter::Null, |(_, value)| *value))
    };
    names.iter().map(value).collect()
}

async fn read_rows(
    mut rows: Pin<&mut RowStream>,
    each: &mut (dyn FnMut(Vec<Text>) -> ControlFlow<()> + '_),
) -> Result<u64, tokio_postgres::Error> {
    let mut is_done = false;
    while let Some(row) = rows.next().await {
        let row = row?;
        if is_done {
            continue;
        }
        let text = |at: usize| row.try_get::<_, Option<ColumnBytes>>(at);
        let values = (0..row.len()).map(text);
        let values = values.map(|value| value.map(|raw| raw.map(|raw| raw.0)));
        is_done = each(values.collect::<Result<_, _>>()?).is_break();
    }
    Ok(rows.rows_affected().unwrap_or(0))
}
