//! A JSON interface over HTTP as tables: lists of objects, page by page, asked for again by entity tag.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header;
use rusqlite::Connection;
use rusqlite::types::Value;
use serde_json::Value as Json;

use super::super::definition::{SourceDefinition, TableDefinition};
use super::sqlite::{Sqlite, Tables};
use crate::store::{Errno, Result, StoreError};

/// The variable with the token that is sent as `Authorization: Bearer`.
const TOKEN: &str = "CTXBENCH_VIEW_TOKEN";

/// How many pages of a list are read at most.
const PAGES_MAX: usize = 1000;

/// The longest page.
const PAGE_MAX: usize = 64 << 20;

/// The longest list.
const LIST_MAX: usize = 256 << 20;

/// The last version of a page.
struct Page {
    url: reqwest::Url,
    tag: Option<String>,
    bytes: usize,
    rows: Arc<Vec<Vec<Value>>>,
    next: Option<reqwest::Url>,
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
pub(super) fn open(
    url: &str,
    definition: &SourceDefinition,
) -> std::result::Result<Sqlite, String> {
    let mut base = reqwest::Url::parse(url).map_err(|error| format!("{url}: {error}"))?;
    // A path is joined to a directory: without a slash, the last part would be replaced.
    if !base.path().ends_with('/') {
        base.set_path(&format!("{}/", base.path()));
    }
    // rustls takes its cryptography from the process; a second call changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    // A definition reaches only its source: follow no redirection, and use no proxy of the environment.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .user_agent("ctxbench")
        .build()
        .map_err(|error| format!("an HTTP client: {error}"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("an HTTP client: {error}"))?;
    let tables = definition.tables.iter().map(|definition| {
        // If the list grows between two requests, two pages can contain one object: the primary key makes it one row.
        let columns: Vec<String> = definition
            .columns
            .iter()
            .map(|(name, _)| match *name == definition.key {
                true => format!("{} NOT NULL PRIMARY KEY", quoted(name)),
                false => quoted(name),
            })
            .collect();
        format!(
            "CREATE TABLE {} ({});",
            quoted(&definition.name),
            columns.join(", ")
        )
    });
    let schema: String = tables.collect();
    let interface = Interface {
        base,
        client,
        runtime,
        token: std::env::var(TOKEN).ok().filter(|token| !token.is_empty()),
        tables: (definition.tables.iter())
            .map(|definition| Table {
                definition: definition.clone(),
                pages: Vec::new(),
            })
            .collect(),
        timeout: definition.timeout(),
        stale: definition.stale(),
        looked: None,
        hung: None,
    };
    Sqlite::temporary(&schema, Box::new(interface), definition.timeout())
}

fn failed(url: &reqwest::Url, error: impl ToString) -> StoreError {
    // Show only the part of the URL that has no secrets.
    StoreError::storage(
        Errno::IO,
        format!("GET {}: {}", url.path(), error.to_string()),
    )
}

fn too_long(url: &reqwest::Url, what: &str, most: usize) -> StoreError {
    let reason = format!(
        "GET {}: {what} has more than {} MiB",
        url.path(),
        most >> 20
    );
    StoreError::storage(Errno::FBIG, reason)
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
    fn ask(
        &self,
        table: &Table,
        url: &reqwest::Url,
        tag: Option<&str>,
        deadline: Instant,
    ) -> Result<Reply> {
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
        let answer = self.runtime.block_on(async {
            let mut answer = request.send().await?;
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut body = Vec::new();
            while let Some(part) = answer.chunk().await? {
                body.extend_from_slice(&part);
                if body.len() > PAGE_MAX {
                    break;
                }
            }
            Ok::<_, reqwest::Error>((status, headers, body))
        });
        let (status, headers, body) = answer.map_err(|error| failed(url, error.without_url()))?;
        if body.len() > PAGE_MAX {
            return Err(too_long(url, "a page", PAGE_MAX));
        }
        let header = |name| headers.get(name)?.to_str().ok();
        if status == http::StatusCode::NOT_MODIFIED {
            return Ok(Reply::Same(header(header::LINK).map(str::to_owned)));
        }
        if status.is_redirection() {
            let reason = format!(
                "status {status}: a view follows no redirection (give the final URL as --source)"
            );
            return Err(failed(url, reason));
        }
        if !status.is_success() {
            return Err(failed(url, format!("status {status}")));
        }
        let Ok(Json::Array(objects)) = serde_json::from_slice(&body) else {
            return Err(failed(url, "the answer is no JSON list"));
        };
        let row = |object: &Json| {
            let columns = table.definition.columns.iter();
            columns
                .map(|(_, pointer)| value(object.pointer(pointer)))
                .collect()
        };
        Ok(Reply::Page(Box::new(Page {
            bytes: body.len(),
            tag: header(header::ETAG).map(str::to_owned),
            rows: Arc::new(objects.iter().map(row).collect()),
            next: header(header::LINK).and_then(|link| next(link, url)),
            url: url.clone(),
        })))
    }

    /// The pages of a table as they are now; `None` if nothing has changed.
    fn pages(&self, table: &Table, deadline: Instant) -> Result<Option<Vec<Page>>> {
        let first = self.base.join(&table.definition.path);
        let mut url = Some(first.map_err(|error| failed(&self.base, error))?);
        let (mut pages, mut any, mut bytes) = (Vec::<Page>::new(), false, 0);
        while let Some(asked) = url.take() {
            let before = table
                .pages
                .get(pages.len())
                .filter(|page| page.url == asked);
            // A full last page does not change when the list grows: only a whole answer can name the next page, so the
            // request has no condition.
            let most = match (table.definition.page_rows, pages.first()) {
                (Some(most), _) => most,
                (None, Some(first)) => first.rows.len(),
                (None, None) => 1,
            };
            let is_full = |page: &&Page| page.next.is_none() && page.rows.len() >= most;
            let tag = before
                .filter(|page| !is_full(page))
                .and_then(|page| page.tag.as_deref());
            let page = match self.ask(table, &asked, tag, deadline)? {
                Reply::Page(page) => {
                    let is_same = |it: &Page| {
                        (&it.tag, &it.rows, &it.next) == (&page.tag, &page.rows, &page.next)
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
                        next: named.unwrap_or_else(|| before.next.clone()),
                    }
                }
            };
            bytes += page.bytes;
            if bytes > LIST_MAX {
                return Err(too_long(&asked, "the list", LIST_MAX));
            }
            url.clone_from(&page.next);
            pages.push(page);
            if pages.len() > PAGES_MAX {
                return Err(failed(&asked, format!("more than {PAGES_MAX} pages")));
            }
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
        let late = failed(
            &self.base,
            format!("no answer within {limit} ms (`timeout_ms`)"),
        );
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
            let table = &mut self.tables[at];
            let name = quoted(&table.definition.name);
            let places = vec!["?"; table.definition.columns.len()].join(", ");
            let transaction = connection.unchecked_transaction()?;
            transaction.execute(&format!("DELETE FROM {name}"), ())?;
            {
                let insert = format!("INSERT OR REPLACE INTO {name} VALUES ({places})");
                let mut insert = transaction.prepare_cached(&insert)?;
                for row in pages.iter().flat_map(|page| &*page.rows) {
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
