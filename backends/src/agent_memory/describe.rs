//! What there is: `:stats`, `:meta`, `:tags`, `:ttl`, `:history`, of a directory and of a file.

use std::collections::BTreeMap;
use std::fmt::Write;

use rusqlite::Row;

use super::index::{attributes, expiry, text};
use super::meaning::EmbeddingState;
use super::metadata::{DEFAULT_IMPORTANCE, head};
use super::paths::{Places, Scope};
use super::request::Aspect;
use super::{date, moment};
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{self, signed, unsigned};
use crate::store::{Attr, Ino, Result, Timestamp};

/// Notes or events that are shown.
const SHOWN: usize = 100;

/// A row of `memory_note`, as far as it is shown.
struct Note {
    dir: Ino,
    name: String,
    changed: Timestamp,
    importance: f64,
    tags: String,
    author: String,
    expires: Option<Timestamp>,
}

impl Note {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            dir: unsigned(row.get(0)?),
            name: String::from_utf8_lossy(row.get_ref(1)?.as_blob().unwrap_or_default())
                .into_owned(),
            changed: Timestamp(row.get(2)?),
            importance: row.get(3)?,
            tags: row.get(4)?,
            author: row.get(5)?,
            expires: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        })
    }

    fn line(&self) -> String {
        let mut line = format!(
            "{}: {} importance {}",
            self.name,
            date(self.changed),
            self.importance
        );
        for (what, value) in [("tags", &self.tags), ("by", &self.author)] {
            if !value.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(line, " {what} {value}");
            }
        }
        if let Some(expires) = self.expires {
            let _ = write!(line, " expires {}", moment(expires));
        }
        line.push('\n');
        line
    }
}

/// Runs `each` on the rows of a query until it says that it has enough.
fn rows(
    db: &Db,
    sql: &'static str,
    params: impl rusqlite::Params,
    mut each: impl FnMut(Note) -> Result<bool>,
) -> Result<()> {
    let mut statement = db.statement(sql)?;
    let mut rows = statement.query(params)?;
    while let Some(row) = rows.next()? {
        if !each(Note::read(row)?)? {
            break;
        }
    }
    Ok(())
}

/// What a mount knows of itself, for `:stats`.
pub(super) struct Stats<'a> {
    pub(super) agent: Option<&'a str>,
    pub(super) notes: u64,
    pub(super) last_error: Option<String>,
    pub(super) embeddings: EmbeddingState,
}

pub(super) fn stats(db: &Db, scope: &Scope, stats: &Stats<'_>) -> Result<String> {
    let number = |sql: &'static str, params: &[&dyn rusqlite::ToSql]| {
        let number: Option<i64> = db.row(sql, params, |row| row.get(0))?;
        Ok::<_, crate::store::StoreError>(number.unwrap_or(0))
    };
    let here = scope.all();
    let below = number(
        "SELECT count(*) FROM memory_text WHERE memory_text MATCH ?1",
        &[&here],
    )?;
    let not_text = number("SELECT count(*) FROM memory_note WHERE is_text = 0", &[])?;
    let expired = number(
        "SELECT count(*) FROM memory_note WHERE expires IS NOT NULL AND is_found = 0",
        &[],
    )?;
    let waiting = number("SELECT count(*) FROM memory_stale", &[])?;
    Ok(format!(
        "below: {}/\nnotes-below: {below}\nnotes: {}\nnot-text: {not_text}\nexpired: {expired}\nwaiting-to-be-indexed: {waiting}\nagent: {}\nrelevance: {}\nlast-error: {}\n",
        scope.place.path,
        stats.notes,
        stats.agent.unwrap_or("none: no private namespaces"),
        relevance(&stats.embeddings),
        stats.last_error.as_deref().unwrap_or("none"),
    ))
}

/// What relevance is made of, and how far that is.
fn relevance(embeddings: &EmbeddingState) -> String {
    match embeddings {
        EmbeddingState::Off(reason) => format!("full text ({reason})"),
        EmbeddingState::Loading => "full text (the embedding model is being read)".to_owned(),
        EmbeddingState::Failed(reason) => format!("full text (embeddings have failed: {reason})"),
        EmbeddingState::Ready { model, waiting } => {
            format!("full text and meaning (model {model})\nwaiting-to-be-embedded: {waiting}")
        }
    }
}

/// Metadata of the notes in a directory, newest first.
pub(super) fn meta(db: &Db, scope: &Scope) -> Result<String> {
    let (mut text, mut shown, mut more) = (String::new(), 0, false);
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE dir = ?1 ORDER BY id DESC",
        [signed(scope.dir)],
        |note| {
            more = shown == SHOWN;
            if !more {
                text += &note.line();
                shown += 1;
            }
            Ok(!more)
        },
    )?;
    if more {
        text += "there are more: these are the newest; `NAME:meta` is about one\n";
    }
    if shown == 0 {
        text = format!("there are no notes in {}/\n", scope.place.path);
    }
    Ok(text)
}

/// How often each tag is used, below a directory.
pub(super) fn tags(db: &Db, places: &Places, scope: &Scope) -> Result<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE tags <> '' AND is_found = 1",
        (),
        |note| {
            if scope.covers(&*places.of(db, note.dir)?) {
                for tag in note.tags.split(',') {
                    *counts.entry(tag.to_owned()).or_default() += 1;
                }
            }
            Ok(true)
        },
    )?;
    if counts.is_empty() {
        return Ok(format!("no note below {}/ has tags\n", scope.place.path));
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    Ok(counts
        .into_iter()
        .map(|(tag, count)| format!("{count} {tag}\n"))
        .collect())
}

/// What expires below a directory, or has; only paths from there on, of what has.
pub(super) fn ttl(
    db: &Db,
    places: &Places,
    scope: &Scope,
    only_expired: bool,
    now: Timestamp,
) -> Result<String> {
    let mut text = String::new();
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE expires IS NOT NULL ORDER BY expires",
        (),
        |note| {
            let place = places.of(db, note.dir)?;
            let Some(expires) = note.expires else {
                return Ok(true);
            };
            let has_expired = expires <= now;
            if !scope.covers(&place) || (only_expired && !has_expired) {
                return Ok(true);
            }
            if only_expired {
                let below = &place.path[scope.place.path.len()..];
                text += &format!(".{below}/{}\n", note.name);
            } else {
                let verb = if has_expired { "expired" } else { "expires" };
                text += &format!("{}/{} {verb} {}\n", place.path, note.name, moment(expires));
            }
            Ok(true)
        },
    )?;
    if text.is_empty() && !only_expired {
        text = format!("no note below {}/ expires\n", scope.place.path);
    }
    Ok(text)
}

/// What happened below a directory, newest first.
pub(super) fn history(db: &Db, places: &Places, scope: &Scope) -> Result<String> {
    let mut text = String::new();
    let mut statement = db
        .statement("SELECT at, what, dir, name, size, author FROM memory_event ORDER BY id DESC")?;
    let mut rows = statement.query(())?;
    let mut shown = 0;
    while let Some(row) = rows.next()? {
        let dir = unsigned(row.get(2)?);
        if nodes::find(db, dir)?.is_none_or(|attr| attr.nlink == 0) {
            continue;
        }
        let place = places.of(db, dir)?;
        if !scope.covers(&place) {
            continue;
        }
        if shown == SHOWN {
            text += "there is more; `NAME:history` is about one\n";
            break;
        }
        shown += 1;
        text += &event(row, &place.path)?;
    }
    if shown == 0 {
        text = format!("nothing has happened below {}/\n", scope.place.path);
    }
    Ok(text)
}

fn event(row: &Row<'_>, path: &str) -> rusqlite::Result<String> {
    let what: String = row.get(1)?;
    let name: Vec<u8> = row.get(3)?;
    let size: i64 = row.get(4)?;
    let author: String = row.get(5)?;
    let by = if author.is_empty() {
        String::new()
    } else {
        format!(" by {author}")
    };
    Ok(format!(
        "{} {what} {path}/{} {size} bytes{by}\n",
        moment(Timestamp(row.get(0)?)),
        String::from_utf8_lossy(&name),
    ))
}

/// What a name such as `note.md:meta` is answered.
pub(super) fn aspect(
    db: &Db,
    places: &Places,
    attr: &Attr,
    aspect: Aspect,
    now: Timestamp,
) -> Result<String> {
    let by_attribute = attributes(db, attr.ino)?;
    let content = text(db, attr)?;
    let head = head(content.as_deref().unwrap_or_default());
    let said = by_attribute.or(head.metadata);
    let tags = said.tags.unwrap_or_default().join(",");
    let expires = said.ttl.map(|ttl| expiry(attr.mtime, ttl));
    let life = match expires {
        None => "never expires".to_owned(),
        Some(at) if at <= now => format!("expired {}", moment(at)),
        Some(at) => format!("expires {}", moment(at)),
    };
    match aspect {
        Aspect::Tags => Ok(if tags.is_empty() {
            "no tags\n".to_owned()
        } else {
            tags.replace(',', "\n") + "\n"
        }),
        Aspect::Ttl => Ok(life + "\n"),
        Aspect::History => {
            let mut statement = db.statement(
                "SELECT at, what, dir, name, size, author FROM memory_event WHERE ino = ?1 ORDER BY id DESC LIMIT ?2",
            )?;
            let mut rows = statement.query([signed(attr.ino), SHOWN as i64])?;
            let mut text = String::new();
            while let Some(row) = rows.next()? {
                let dir = unsigned(row.get(2)?);
                let path = match nodes::find(db, dir)? {
                    Some(_) => places.of(db, dir)?.path.clone(),
                    None => String::new(),
                };
                text += &event(row, &path)?;
            }
            Ok(text)
        }
        Aspect::Meta => {
            let author: Option<String> = db.row(
                "SELECT author FROM memory_note WHERE ino = ?1",
                [signed(attr.ino)],
                |row| row.get(0),
            )?;
            let mut text = format!(
                "importance: {}{}\ntags: {tags}\nttl: {life}\nauthor: {}\nchanged: {}\nbytes: {}\nindexed: {}\n",
                said.importance.unwrap_or(DEFAULT_IMPORTANCE),
                if said.importance.is_none() {
                    " (nothing is said)"
                } else {
                    ""
                },
                author.unwrap_or_default(),
                moment(attr.mtime),
                attr.size,
                match &content {
                    Some(text) if (text.len() as u64) < attr.size =>
                        "its first 256 KiB, name and tags",
                    Some(_) => "text, name and tags",
                    None => "name and tags; it is not text",
                },
            );
            if let Some(problem) = head.problem {
                text += &format!("front-matter: not understood, so it counts as text: {problem}\n");
            }
            Ok(text)
        }
    }
}
