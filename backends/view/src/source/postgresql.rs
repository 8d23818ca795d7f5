//! Rows of a PostgreSQL database that others own.
//!
//! Every query is a read-only transaction of its own. Without a channel to listen on, each call queries the server.
//! With a channel, each call sends an empty request: the server sends pending notices before its answer.

mod connection;
#[cfg(test)]
mod hostile;
mod session;

use std::future::Future;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuse::store::{Errno, Result, StoreError};
use tokio::runtime::Runtime;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;

use super::{BoundStatement, Column, Parameters, Source, StatementDescription, Text, TransactionResult, VALUE};
use crate::definition::SourceDefinition;
use session::{ANSWERS, Answers, Failure, Session, key_of};

/// The variable with the password.
const PASSWORD: &str = "PGPASSWORD";

/// How much longer than the server's own limit a call waits for it.
const GRACE: Duration = Duration::from_millis(250);

/// A PostgreSQL database as a source.
pub(super) struct Postgresql {
    config: Config,
    /// The server, for messages.
    server: String,
    channel: Option<String>,
    may_write: bool,
    timeout: Duration,
    runtime: Runtime,
    session: Option<Session>,
    /// Notices, connections made, and changes of this view.
    notices: Arc<AtomicU64>,
}

/// The URL of a source as messages may show it.
pub(in super::super) fn without_password(place: &str) -> String {
    let Ok(mut url) = url::Url::parse(place) else {
        return place.to_owned();
    };
    if url.password().is_none() && !place.contains("password") {
        return place.to_owned();
    }
    url.set_query(None);
    match url.set_password(None) {
        Ok(()) => url.to_string(),
        Err(()) => format!("{}:…", url.scheme()),
    }
}

/// Refuses a connection over a network, which would be readable on its way, unless the URL asks for that.
fn refuse_plain_network(config: &Config) -> std::result::Result<(), String> {
    if config.get_ssl_mode() == SslMode::Disable {
        return Ok(());
    }
    // An address has priority over the name of the same host.
    let addresses = config.get_hostaddrs();
    let remote = addresses.iter().find(|address| !address.to_canonical().is_loopback());
    let remote = remote.map(ToString::to_string).or_else(|| {
        let named = config.get_hosts().iter().skip(addresses.len());
        named
            .filter_map(|host| match host {
                Host::Tcp(name) if !network::is_loopback(name) => Some(name.clone()),
                Host::Tcp(_) | Host::Unix(_) => None,
            })
            .next()
    });
    let Some(remote) = remote else { return Ok(()) };
    Err(format!(
        "a view does not support TLS, so the password and all rows would cross the network to \
         {remote} in plain text: use a Unix socket, or a tunnel to 127.0.0.1 such as `ssh -L \
         5432:localhost:5432 {remote}`; in a trusted network, add `sslmode=disable` to the URL"
    ))
}

/// Makes connections to the database at the URL `place`.
///
/// # Errors
/// Why the URL, or the channel of the definition, cannot be used.
pub(super) fn opener(
    place: &str,
    definition: &SourceDefinition,
    may_write: bool,
) -> std::result::Result<impl Fn() -> std::result::Result<Postgresql, String> + use<>, String> {
    let mut config: Config = place.parse().map_err(|error| format!("{error}"))?;
    if config.get_password().is_some() {
        return Err(format!(
            "every process can read a command's arguments: remove the password from the URL, and set {PASSWORD}"
        ));
    }
    if config.get_ssl_mode() == SslMode::Require {
        return Err("sslmode=require: a view does not support TLS; use a Unix socket or a tunnel".to_owned());
    }
    if config.get_target_session_attrs() != TargetSessionAttrs::Any {
        return Err(
            "target_session_attrs: a view uses the first server of the URL that accepts it; name only that server"
                .to_owned(),
        );
    }
    refuse_plain_network(&config)?;
    if let Some(password) = std::env::var_os(PASSWORD) {
        config.password(std::os::unix::ffi::OsStrExt::as_bytes(password.as_os_str()));
    }
    let (timeout, channel) = (definition.timeout(), definition.channel.clone());
    let milliseconds = timeout.as_millis();
    let given = config.get_options().unwrap_or_default().to_owned();
    config
        .connect_timeout(timeout)
        .application_name("ctxbench view")
        .options(format!(
            "{given} -c default_transaction_read_only=on -c statement_timeout={milliseconds} -c lock_timeout={milliseconds} \
             -c TimeZone=UTC -c DateStyle=ISO"
        ));
    let server = without_password(place);
    Ok(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("a PostgreSQL client: {error}"))?;
        let mut source = Postgresql {
            config: config.clone(),
            server: server.clone(),
            channel: channel.clone(),
            may_write,
            timeout,
            runtime,
            session: None,
            notices: Arc::default(),
        };
        source
            .begin(Instant::now() + timeout)
            .map_err(|error| error.reason.unwrap_or_else(|| error.errno.to_string()))?;
        Ok(source)
    })
}

impl Postgresql {
    /// Waits for an answer for a limited time.
    fn wait<T>(&self, asked: impl Future<Output = std::result::Result<T, Failure>>) -> std::result::Result<T, Failure> {
        let limit = self.timeout + GRACE;
        let answer = async { tokio::time::timeout(limit, asked).await };
        self.runtime.block_on(answer).unwrap_or(Err(Failure::Late))
    }

    /// Runs `ask` in the session; drops the session after a failure that makes it unusable.
    fn in_session<T>(
        &mut self,
        ask: impl AsyncFnOnce(&mut Session) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<T, Failure> {
        let Some(mut session) = self.session.take() else {
            return Err(Failure::Forbidden("there is no connection".to_owned()));
        };
        let answer = self.wait(ask(&mut session));
        let answer = answer.map_err(|failure| session.explained(failure));
        match &answer {
            Err(failure) if failure.is_final() => {
                if matches!(failure, Failure::Late) {
                    // The server may still run the query, whose result no caller reads.
                    let cancelled = async { tokio::time::timeout(GRACE, session.cancel()).await };
                    if !matches!(self.runtime.block_on(cancelled), Ok(Ok(()))) {
                        tracing::debug!("could not cancel a query that exceeded its time limit");
                    }
                }
            }
            _ => self.session = Some(session),
        }
        answer
    }

    /// Waits for an empty answer, and so for everything that the server sent before it.
    fn ping(&mut self) -> Result<()> {
        let ping = async |session: &mut Session| Ok(session.client.batch_execute("").await?);
        match self.in_session(ping) {
            Ok(()) => Ok(()),
            Err(failure @ Failure::Late) => Err(self.away(&failure)),
            Err(_) => self.connect(),
        }
    }

    fn connect(&mut self) -> Result<()> {
        let notices = Arc::clone(&self.notices);
        let opened = self.wait(Session::open(&self.config, self.channel.as_deref(), notices));
        self.session = Some(opened.map_err(|failure| self.away(&failure))?);
        Ok(())
    }

    fn away(&self, failure: &Failure) -> StoreError {
        let reason = match failure.code() {
            Some(&SqlState::QUERY_CANCELED) => {
                let limit = self.timeout.as_millis();
                format!("the query took longer than {limit} ms (`timeout_ms`)")
            }
            _ => failure.words(),
        };
        StoreError::storage(Errno::IO, format!("the source {}: {reason}", self.server))
    }

    /// The error of a statement that changes rows. A value that the database refuses is the caller's mistake.
    fn refused(&self, failure: &Failure) -> StoreError {
        let Some(code) = failure.code() else {
            return self.away(failure);
        };
        let errno = match (&code.code()[..2], code) {
            ("22" | "23" | "44" | "P0", _) => Errno::INVAL,
            (_, &SqlState::INSUFFICIENT_PRIVILEGE) => Errno::ACCESS,
            (_, &SqlState::READ_ONLY_SQL_TRANSACTION) => Errno::ROFS,
            ("40" | "55", _) => Errno::BUSY,
            _ => return self.away(failure),
        };
        StoreError::storage(errno, format!("PostgreSQL: {}", failure.words()))
    }
}

impl Source for Postgresql {
    // Each request has its own timeout instead of the deadline: a pool of connections seldom makes a caller wait.
    fn begin(&mut self, _deadline: Instant) -> Result<()> {
        if self.session.as_ref().is_none_or(|it| it.client.is_closed()) {
            self.connect()?;
        } else if self.channel.is_some() {
            self.ping()?;
        }
        let notices = self.notices.load(Ordering::Relaxed);
        if let Some(session) = &mut self.session
            && session.answers.notices != notices
        {
            session.answers = Answers { notices, ..Answers::default() };
        }
        Ok(())
    }

    fn version(&mut self) -> Result<Option<u64>> {
        Ok((self.channel.is_some()).then(|| self.notices.load(Ordering::Relaxed)))
    }

    fn describe(&mut self, sql: &str, may_write: bool) -> std::result::Result<StatementDescription, String> {
        // A query cannot select from a statement that changes rows.
        let sql = if may_write {
            sql.to_owned()
        } else {
            format!("SELECT * FROM ({}\n) AS it", sql.trim().trim_end_matches(';'))
        };
        let prepared = self.in_session(async |session: &mut Session| session.prepare(&sql).await);
        let prepared = prepared.map_err(|failure| failure.words())?;
        let (statement, names) = &*prepared;
        let columns = statement.columns().iter();
        Ok(StatementDescription {
            columns: columns.map(|it| column(it.name(), it.type_())).collect(),
            parameters: names.clone(),
        })
    }

    fn query(
        &mut self,
        sql: &str,
        parameters: Parameters<'_>,
        each: &mut dyn FnMut(Vec<Text>) -> ControlFlow<()>,
    ) -> Result<()> {
        let kept = self.channel.as_ref().map(|_| key_of(sql, parameters));
        if let (Some(session), Some(key)) = (&self.session, &kept)
            && let Some(rows) = session.answers.rows.get(key)
        {
            let mut rows = rows.iter().cloned();
            while rows.next().is_some_and(|row| each(row).is_continue()) {}
            return Ok(());
        }
        let (mut rows, mut bytes, mut is_whole) = (Vec::new(), 0, true);
        let mut is_again = false;
        loop {
            // The request is not repeated after the first row: rows that were handed over cannot be taken back.
            let mut any = false;
            let mut counted = |row: Vec<Text>| {
                any = true;
                if kept.is_some() && bytes <= ANSWERS {
                    bytes += row.iter().flatten().map(Vec::len).sum::<usize>() + 64;
                    rows.push(row.clone());
                }
                let next = each(row);
                is_whole &= next.is_continue();
                next
            };
            let ran = self.in_session(async |session: &mut Session| session.query(sql, parameters, &mut counted).await);
            match ran {
                Ok(_) => {
                    if let (Some(session), Some(key)) = (&mut self.session, kept) {
                        session.answers.keep(key, rows, bytes, is_whole);
                    }
                    return Ok(());
                }
                Err(failure) if failure.is_no_value() => return Ok(()),
                // The server was restarted, or a table was replaced.
                Err(failure)
                    if !is_again
                        && !any
                        && !matches!(failure, Failure::Late)
                        && (failure.is_final() || failure.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)) =>
                {
                    is_again = true;
                    self.session = None;
                    self.connect()?;
                }
                Err(failure) => return Err(self.away(&failure)),
            }
        }
    }

    fn change(&mut self, statements: &[BoundStatement<'_>]) -> Result<TransactionResult> {
        if !self.may_write {
            return Err(Errno::ROFS.into());
        }
        // Test the connection first. A failed change is not repeated, because it may have been made.
        self.ping()?;
        let ran = self.in_session(async |session: &mut Session| session.run_all(statements).await);
        self.notices.fetch_add(1, Ordering::Relaxed);
        ran.map_err(|failure| self.refused(&failure))
    }
}

fn column(name: &str, kind: &Type) -> Column {
    let quoted = format!("\"{}\"", name.replace('"', "\"\""));
    let text = match *kind {
        Type::BYTEA => quoted.clone(),
        _ => format!("CAST({quoted} AS TEXT)"),
    };
    Column {
        name: name.to_owned(),
        is_value: format!("{quoted} = :{VALUE}"),
        // A parameter has the type of the value that it is compared with.
        number: None,
        is_blob: None,
        length: format!("octet_length({text})"),
        text,
    }
}

/// The directory of PostgreSQL's programs on this machine: Debian's newest, or one that is in `PATH`.
pub fn find_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let newest = found.into_iter().rev().map(|(_, dir)| dir);
    newest
        .chain(std::env::split_paths(&path))
        .find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_without_encryption_is_refused_unless_the_url_asks_for_it() {
        let refused = |url: &str| refuse_plain_network(&url.parse().unwrap()).err();
        for url in [
            "postgresql://me@127.0.0.1/mail",
            "postgresql://me@localhost:5433/mail",
            "postgresql://me@[::1]/mail",
            "postgresql:///mail?host=/run/postgresql&user=me",
            "host=/run/postgresql user=me",
            "host=127.0.0.1,::1 user=me",
            "postgresql://me@db.example.org/mail?hostaddr=127.0.0.1",
            "postgresql://me@db.example.org/mail?sslmode=disable",
            "host=10.0.0.1 user=me sslmode=disable",
        ] {
            assert_eq!(refused(url), None, "{url}");
        }
        for (url, remote) in [
            ("postgresql://me@db.example.org/mail", "db.example.org"),
            ("postgresql://me@db.example.org/mail?sslmode=prefer", "db.example.org"),
            ("postgresql://me@10.0.0.1/mail", "10.0.0.1"),
            ("postgresql://me@0.0.0.0/mail", "0.0.0.0"),
            ("postgresql://me@localhost/mail?hostaddr=10.0.0.1", "10.0.0.1"),
            ("postgresql://me@127.0.0.1,10.0.0.2/mail", "10.0.0.2"),
            ("host=localhost.example.org user=me", "localhost.example.org"),
            ("host=localhost,10.0.0.3 hostaddr=127.0.0.1,10.0.0.3 user=me", "10.0.0.3"),
        ] {
            let reason = refused(url).unwrap();
            let says = [remote, "sslmode=disable", "Unix socket"];
            assert!(says.iter().all(|part| reason.contains(part)), "{url}: {reason}");
        }
    }
}
