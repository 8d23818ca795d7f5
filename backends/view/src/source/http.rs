//! A JSON interface over HTTP as tables: lists of objects, page by page, asked for again by entity tag.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuse::store::{Errno, Result, StoreError};
use http::header;
use network::{BodyError, RedirectError, limits, read_body, refuse_plain_key, send};
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;

use super::elements::Elements;
use super::sqlite::{Sqlite, Tables};
use crate::definition::{KEY_END, SourceDefinition, TableDefinition};

/// The variable with the token that is sent as `Authorization: Bearer`.
const TOKEN: &str = "CTXBENCH_VIEW_TOKEN";

/// Rows between two checks of the deadline.
const ROWS_A_CHECK: usize = 256;

/// The last version of a page.
struct Page {
    url: reqwest::Url,
    tag: Option<String>,
    bytes: usize,
    rows: Arc<Vec<Vec<Value>>>,
    /// Elements of the page that give no row: they have no key, or cannot be read.
    bad: usize,
    next: Option<reqwest::Url>,
}

/// Rows of a table that no file shows, although they have a key.
#[derive(Debug, Default, PartialEq, Eq)]
struct KeyFaults {
    /// The key is not an integer from 0 to 2⁵³ - 1.
    unfit: usize,
    /// A later row has the same key.
    replaced: usize,
}

impl KeyFaults {
    /// Those in the pages of a table whose key is column `key`. The same row on two pages is one object: the list has grown
    /// between two requests.
    fn of<'a>(pages: impl Iterator<Item = &'a [Vec<Value>]>, key: usize) -> Self {
        let mut faults = Self::default();
        let mut seen: HashMap<String, (usize, &[Value])> = HashMap::new();
        for (number, page) in pages.enumerate() {
            for row in page {
                let name = match row.get(key) {
                    Some(Value::Integer(integer)) => integer.to_string(),
                    // SQLite compares it as the integer.
                    Some(Value::Real(real)) => format!("{real:.0}")
                        .parse::<i64>()
                        .ok()
                        .filter(|integer| *integer as f64 == *real)
                        .map_or_else(|| format!("{real:?}"), |integer| integer.to_string()),
                    Some(Value::Text(text)) => format!("'{text}"),
                    _ => continue,
                };
                let is_fit = |key: &i64| (0..KEY_END).contains(key);
                let integer = match row.get(key) {
                    Some(Value::Integer(integer)) => Some(*integer),
                    _ => None,
                };
                faults.unfit += usize::from(!integer.is_some_and(|key| is_fit(&key)));
                if let Some((before, earlier)) = seen.insert(name, (number, row)) {
                    faults.replaced += usize::from(before == number || earlier != &**row);
                }
            }
        }
        faults
    }
}

/// A server's answer to the request for a page.
enum Reply {
    Page(Box<Page>),
    /// The page has not changed; with the `Link` header, if the answer has one.
    Same(Option<String>),
}

struct Table {
    definition: TableDefinition,
    pages: Vec<Page>,
}

struct Interface {
    base: reqwest::Url,
    client: reqwest::Client,
    runtime: tokio::runtime::Runtime,
    token: Option<String>,
    tables: Vec<Table>,
    timeout: Duration,
    stale: Duration,
    looked: Option<Instant>,
    /// When a call last waited the whole timeout in vain.
    hung: Option<Instant>,
}

/// How long calls fail at once after one waited the whole timeout, so that queued calls do not wait as long again.
const HANGS: Duration = Duration::from_millis(250);

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The interface at `url` as a source.
///
/// # Errors
/// Why it cannot be reached, in words.
pub(super) fn open(url: &str, definition: &SourceDefinition) -> std::result::Result<Sqlite, String> {
    let mut base = reqwest::Url::parse(url).map_err(|error| format!("give a URL, as in https://host/path: {error}"))?;
    // A path is joined to a directory: without a slash, the last part would be replaced.
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    if token.is_some() {
        refuse_plain_key(&base, TOKEN)?;
    }
    // A definition reaches only its source: use no proxy of the environment.
    let client = network::build(network::client().no_proxy()).map_err(|error| format!("an HTTP client: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("an HTTP client: {error}"))?;
    let tables = definition.tables.iter().map(|definition| {
        // If the list grows between two requests, two pages can contain one object: the primary key makes it one row.
        let columns: Vec<String> =
            definition
                .columns
                .iter()
                .map(|(name, _)| {
                    if *name == definition.key {
                        format!("{} NOT NULL PRIMARY KEY", quoted(name))
                    } else {
                        quoted(name)
                    }
                })
                .collect();
        format!("CREATE TABLE {} ({});", quoted(&definition.name), columns.join(", "))
    });
    let schema: String = tables.collect();
    let interface = Interface {
        base,
        client,
        runtime,
        token,
        tables: (definition.tables.iter())
            .map(|definition| Table { definition: definition.clone(), pages: Vec::new() })
            .collect(),
        timeout: definition.timeout(),
        stale: definition.stale(),
        looked: None,
        hung: None,
    };
    Sqlite::temporary(&schema, Box::new(interface), false, definition.timeout())
}

fn failed(url: &reqwest::Url, error: impl ToString) -> StoreError {
    // Show only the part of the URL that has no secrets.
    StoreError::storage(Errno::IO, format!("GET {}: {}", url.path(), error.to_string()))
}

fn too_long(url: &reqwest::Url, what: &str, most: &str) -> StoreError {
    let reason = format!("GET {}: {what} has more than {most}", url.path());
    StoreError::storage(Errno::FBIG, reason)
}

/// The time that a call has is over; [`Tables::refresh`] names the limit.
fn check_time(url: &reqwest::Url, deadline: Instant) -> Result<()> {
    if Instant::now() < deadline { Ok(()) } else { Err(failed(url, "the time limit is over")) }
}

/// The rows in a page, and how many of its elements are none: without a key, too long, or not readable.
fn rows_of(
    body: &[u8],
    table: &TableDefinition,
    url: &reqwest::Url,
    deadline: Instant,
) -> Result<(Vec<Vec<Value>>, usize)> {
    let no_list = |_| failed(url, "the answer is not a JSON list");
    let (mut rows, mut bad) = (Vec::new(), 0);
    for (at, element) in Elements::of(body).map_err(no_list)?.enumerate() {
        if at % ROWS_A_CHECK == 0 {
            check_time(url, deadline)?;
        }
        let element = element.map_err(no_list)?;
        let object =
            if element.len() <= limits::VIEW_ROW { serde_json::from_slice::<Json>(element).ok() } else { None };
        let key = table.columns.iter().find(|(name, _)| *name == table.key);
        let key = key.map_or("", |(_, pointer)| pointer);
        let object = object.filter(|it| it.pointer(key).is_some_and(|key| !key.is_null()));
        let Some(object) = object else {
            bad += 1;
            continue;
        };
        if rows.len() >= limits::VIEW_ROWS {
            let most = format!("{} rows", limits::VIEW_ROWS);
            return Err(too_long(url, "the list", &most));
        }
        let columns = table.columns.iter();
        let values = columns.map(|(_, pointer)| value(object.pointer(pointer)));
        rows.push(values.collect());
    }
    Ok((rows, bad))
}

fn value(found: Option<&Json>) -> Value {
    match found {
        None | Some(Json::Null) => Value::Null,
        Some(Json::Bool(value)) => Value::Integer(i64::from(*value)),
        Some(Json::Number(number)) => match number.as_i64() {
            Some(value) => Value::Integer(value),
            None => Value::Real(number.as_f64().unwrap_or(f64::NAN)),
        },
        Some(Json::String(text)) => Value::Text(text.clone()),
        Some(other) => Value::Text(other.to_string()),
    }
}

/// The page that a `Link` header calls the next.
fn next(link: &str, url: &reqwest::Url) -> Option<reqwest::Url> {
    let next = link.split(',').find(|part| part.contains("rel=\"next\""))?;
    let (_, rest) = next.split_once('<')?;
    url.join(rest.split_once('>')?.0).ok()
}

impl Interface {
    /// Asks for a page.
    fn ask(&self, table: &Table, url: &reqwest::Url, tag: Option<&str>, deadline: Instant) -> Result<Reply> {
        // A server must not send the reader, and the token, elsewhere.
        if url.origin() != self.base.origin() {
            return Err(failed(url, "the next page is on another server"));
        }
        let mut request = self
            .client
            .get(url.clone())
            .timeout(deadline.saturating_duration_since(Instant::now()))
            .header(header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(tag) = tag {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let limit = limits::VIEW_PAGE.within(deadline.saturating_duration_since(Instant::now()));
        let answer = self.runtime.block_on(async {
            let answer = send(request).await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let redirected = RedirectError::of(&answer);
            let body = if status.is_success() { read_body(answer, limit).await? } else { Default::default() };
            Ok::<_, BodyError>((status, headers, redirected, body))
        });
        let (status, headers, redirected, body) = answer.map_err(|error| match error {
            BodyError::TooLong(limit) => too_long(url, limit.kind, &format!("{} MiB", limit.bytes >> 20)),
            error => failed(url, error),
        })?;
        let header = |name| headers.get(name)?.to_str().ok();
        if status == http::StatusCode::NOT_MODIFIED {
            return Ok(Reply::Same(header(header::LINK).map(str::to_owned)));
        }
        if let Some(redirected) = redirected {
            return Err(failed(url, redirected));
        }
        if !status.is_success() {
            return Err(failed(url, format!("status {status}")));
        }
        let (rows, bad) = rows_of(&body, &table.definition, url, deadline)?;
        Ok(Reply::Page(Box::new(Page {
            bytes: body.len(),
            tag: header(header::ETAG).map(str::to_owned),
            rows: Arc::new(rows),
            bad,
            next: header(header::LINK).and_then(|link| next(link, url)),
            url: url.clone(),
        })))
    }

    /// The pages of a table as they are now; `None` if nothing has changed.
    fn pages(&self, table: &Table, deadline: Instant) -> Result<Option<Vec<Page>>> {
        let first = self.base.join(&table.definition.path);
        let mut url = Some(first.map_err(|error| failed(&self.base, error))?);
        let (mut pages, mut any, mut bytes) = (Vec::<Page>::new(), false, 0);
        let mut rows = 0;
        while let Some(asked) = url.take() {
            let before = table.pages.get(pages.len()).filter(|page| page.url == asked);
            // A full last page does not change when the list grows: only a whole answer can name the next page, so the
            // request has no condition.
            let most = match (table.definition.page_rows, pages.first()) {
                (Some(most), _) => most,
                (None, Some(first)) => first.rows.len() + first.bad,
                (None, None) => 1,
            };
            let is_full = |page: &&Page| page.next.is_none() && page.rows.len() + page.bad >= most;
            let tag = before.filter(|page| !is_full(page)).and_then(|page| page.tag.as_deref());
            let page = match self.ask(table, &asked, tag, deadline)? {
                Reply::Page(page) => {
                    let is_same = |it: &Page| {
                        (&it.tag, &it.rows, it.bad, &it.next) == (&page.tag, &page.rows, page.bad, &page.next)
                    };
                    any |= !before.is_some_and(is_same);
                    *page
                }
                Reply::Same(link) => {
                    let unasked = || failed(&asked, "status 304 without a condition");
                    let before = before.ok_or_else(unasked)?;
                    let named = link.map(|link| next(&link, &asked));
                    Page {
                        url: before.url.clone(),
                        tag: before.tag.clone(),
                        bytes: before.bytes,
                        rows: Arc::clone(&before.rows),
                        bad: before.bad,
                        next: named.unwrap_or_else(|| before.next.clone()),
                    }
                }
            };
            bytes += page.bytes as u64;
            if bytes > limits::VIEW_LIST {
                let most = format!("{} MiB", limits::VIEW_LIST >> 20);
                return Err(too_long(&asked, "the list", &most));
            }
            rows += page.rows.len();
            if rows > limits::VIEW_ROWS {
                let most = format!("{} rows", limits::VIEW_ROWS);
                return Err(too_long(&asked, "the list", &most));
            }
            url.clone_from(&page.next);
            pages.push(page);
            if pages.len() > limits::VIEW_PAGES {
                let most = limits::VIEW_PAGES;
                return Err(failed(&asked, format!("more than {most} pages")));
            }
            // Also pages that have not changed take time.
            check_time(&asked, deadline)?;
        }
        Ok((any || pages.len() != table.pages.len()).then_some(pages))
    }
}

impl Tables for Interface {
    fn refresh(&mut self, connection: &Connection, deadline: Instant) -> Result<()> {
        if self.looked.is_some_and(|at| at.elapsed() < self.stale) {
            return Ok(());
        }
        let limit = self.timeout.as_millis();
        let late = failed(&self.base, format!("no answer within {limit} ms (`timeout_ms`)"));
        if self.hung.is_some_and(|at| at.elapsed() < HANGS) {
            return Err(late);
        }
        let began = Instant::now();
        let asked = self.ask_all(connection, deadline);
        if asked.is_ok() || Instant::now() < deadline {
            return asked;
        }
        // A call that had to wait for another one left the server less time, which proves no hang.
        if began.elapsed() > self.timeout / 2 {
            self.hung = Some(Instant::now());
        }
        Err(late)
    }
}

impl Interface {
    fn ask_all(&mut self, connection: &Connection, deadline: Instant) -> Result<()> {
        for at in 0..self.tables.len() {
            let Some(pages) = self.pages(&self.tables[at], deadline)? else {
                continue;
            };
            let base = &self.base;
            let table = &mut self.tables[at];
            let name = quoted(&table.definition.name);
            let bad: usize = pages.iter().map(|page| page.bad).sum();
            let mut columns = table.definition.columns.iter();
            let key_at = columns.position(|(name, _)| *name == table.definition.key);
            let rows = pages.iter().map(|page| page.rows.as_slice());
            let KeyFaults { unfit, replaced } = KeyFaults::of(rows, key_at.unwrap_or_default());
            if bad + unfit + replaced > 0 {
                let (table, key) = (&table.definition.name, &table.definition.key);
                tracing::warn!(
                    "table {table} of {}: {} elements are not shown as files: {bad} have no `{key}`, are longer than {} MiB, or are not JSON; the `{key}` of {unfit} is not an integer from 0 to 2⁵³ - 1; {replaced} have the `{key}` of a later element",
                    base.path(),
                    bad + unfit + replaced,
                    limits::VIEW_ROW >> 20
                );
            }
            let places = vec!["?"; table.definition.columns.len()].join(", ");
            let transaction = connection.unchecked_transaction()?;
            transaction.execute(&format!("DELETE FROM {name}"), ())?;
            {
                let insert = format!("INSERT OR REPLACE INTO {name} VALUES ({places})");
                let mut insert = transaction.prepare_cached(&insert)?;
                let rows = pages.iter().flat_map(|page| &*page.rows);
                for (at, row) in rows.enumerate() {
                    if at % ROWS_A_CHECK == 0 {
                        check_time(base, deadline)?;
                    }
                    insert.execute(rusqlite::params_from_iter(row))?;
                }
            }
            transaction.commit()?;
            table.pages = pages;
        }
        self.looked = Some(Instant::now());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a page, as [`rows_of`] makes them.
    fn page(body: &str) -> Vec<Vec<Value>> {
        let table = TableDefinition {
            name: "t".to_owned(),
            path: String::new(),
            key: "id".to_owned(),
            columns: vec![("title".to_owned(), "/title".to_owned()), ("id".to_owned(), "/id".to_owned())],
            page_rows: None,
        };
        let url = reqwest::Url::parse("http://localhost/").unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        rows_of(body.as_bytes(), &table, &url, deadline).unwrap().0
    }

    fn faults(pages: &[&str]) -> (usize, usize) {
        let pages: Vec<_> = pages.iter().map(|body| page(body)).collect();
        let faults = KeyFaults::of(pages.iter().map(Vec::as_slice), 1);
        (faults.unfit, faults.replaced)
    }

    #[test]
    fn every_element_whose_key_names_no_file_is_counted() {
        let keys = ["-1.5", "1208925819614629174706176", "\"7\"", "-9", "9007199254740992", "7.5", "[]", "{}"];
        for key in keys {
            assert_eq!(faults(&[&format!("[{{\"id\": {key}}}, {{\"id\": 7}}]")]), (1, 0), "{key}");
        }
        assert_eq!(faults(&[r#"[{"id": 0}, {"id": 9007199254740991}]"#]), (0, 0));
    }

    #[test]
    fn an_element_that_another_one_with_its_key_replaces_is_counted() {
        let (a, b) = (r#"[{"id": 1, "title": "a"}]"#, r#"[{"id": 1, "title": "b"}]"#);
        assert_eq!(faults(&[r#"[{"id": 1, "title": "a"}, {"id": 2}, {"id": 1, "title": "b"}, {"id": 1}]"#]), (0, 2));
        assert_eq!(faults(&[r#"[{"id": 1}, {"id": 1}]"#]), (0, 1));
        assert_eq!(faults(&[a, b]), (0, 1));
        // The list has grown between two requests.
        assert_eq!(faults(&[a, a]), (0, 0));
    }
}
