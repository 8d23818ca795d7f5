//! Answers to `:stats`, `:meta`, `:tags`, `:ttl` and `:history`, for a directory and for a file.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use fuse::store::{Attr, Errno, Ino, Result, Timestamp};
use rusqlite::Row;
use sqlite::tables::Db;
use sqlite::tables::nodes::{self, signed, unsigned};

use crate::embedder::EmbeddingState;
use crate::index::{attributes, expiry, text};
use crate::metadata::{DEFAULT_IMPORTANCE, head};
use crate::passage::{one_line, shown_name};
use crate::paths::{DirPath, PathCache, Scope, name_of};
use crate::request::Aspect;
use crate::{date, moment};

/// The most notes or events in an answer.
const SHOWN: usize = 100;

/// The columns of `memory_note` that answers show.
struct Note {
    dir: Ino,
    name: Vec<u8>,
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
            name: row.get(1)?,
            changed: Timestamp(row.get(2)?),
            importance: row.get(3)?,
            tags: row.get(4)?,
            author: row.get(5)?,
            expires: row.get::<_, Option<i64>>(6)?.map(Timestamp),
        })
    }

    fn line(&self) -> String {
        let mut line = format!("{}: {} importance {}", shown_name(&self.name), date(self.changed), self.importance);
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

/// Runs `each` on the rows of a query until it returns false.
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

/// The state of the mount, for `:stats`.
pub(super) struct Stats<'a> {
    pub(super) agent: Option<&'a str>,
    pub(super) notes: u64,
    /// The number of files without content; `None` if there can be none.
    pub(super) lacking: Option<u64>,
    pub(super) last_error: Option<String>,
    /// Why the index lacks changes.
    pub(super) behind: Option<String>,
    pub(super) embeddings: EmbeddingState,
}

pub(super) fn stats(db: &Db, scope: &Scope, stats: &Stats<'_>) -> Result<String> {
    let number = |sql: &'static str, params: &[&dyn rusqlite::ToSql]| {
        let number: Option<i64> = db.row(sql, params, |row| row.get(0))?;
        Ok::<_, fuse::store::StoreError>(number.unwrap_or(0))
    };
    let here = scope.all();
    let below = number("SELECT count(*) FROM memory_text WHERE memory_text MATCH ?1", &[&here])?;
    let not_text = number("SELECT count(*) FROM memory_note WHERE is_text = 0", &[])?;
    let expired = number("SELECT count(*) FROM memory_note WHERE expires IS NOT NULL AND is_found = 0", &[])?;
    let waiting = number("SELECT count(*) FROM memory_stale", &[])?;
    let segments = number("SELECT count(DISTINCT segid) FROM memory_text_idx", &[])?;
    let not_here = stats.lacking.map_or_else(String::new, |count| format!("not-here: {count}\n"));
    Ok(format!(
        "below: {}/\nnotes-below: {below}\nnotes: {}\n{not_here}not-text: {not_text}\nexpired: {expired}\nwaiting-to-be-indexed: {waiting}\nindex: {}\nindex-segments: {segments}\nagent: {}\nrelevance: {}\nlast-error: {}\n",
        scope.dir_path.path,
        stats.notes,
        stats.behind.as_ref().map_or_else(|| "current".to_owned(), |reason| format!("no room: {}", one_line(reason))),
        stats.agent.unwrap_or("none: no private namespaces"),
        relevance(&stats.embeddings, stats.notes),
        stats.last_error.as_deref().unwrap_or("none"),
    ))
}

/// How relevance is computed, and the state of embedding, with how many of all `notes` have no vector yet.
fn relevance(embeddings: &EmbeddingState, notes: u64) -> String {
    match embeddings {
        EmbeddingState::Off(reason) => format!("full text ({reason})"),
        // How many have none is not known yet, and must not look like none.
        EmbeddingState::Loading => {
            format!("full text (the embedding model is loading)\nwaiting-to-be-embedded: {}", notes.max(1))
        }
        EmbeddingState::Failed(reason) => format!("full text (embedding has failed: {reason})"),
        EmbeddingState::Ready { model, waiting } => {
            format!("full text and meaning (model {model})\nwaiting-to-be-embedded: {waiting}")
        }
    }
}

/// Metadata of the notes in a directory, last indexed first.
pub(super) fn meta(db: &Db, scope: &Scope) -> Result<String> {
    let (mut text, mut shown, mut more) = (String::new(), 0, false);
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE dir = ?1 ORDER BY id DESC",
        [signed(scope.dir)],
        |note| {
            // Files directly in `/memory/private` belong to no agent and stay hidden.
            if !scope.covers(&scope.dir_path) {
                return Ok(false);
            }
            more = shown == SHOWN;
            if !more {
                text += &note.line();
                shown += 1;
            }
            Ok(!more)
        },
    )?;
    if more {
        text += "more notes were indexed before these; `NAME:meta` shows one\n";
    }
    if shown == 0 {
        text = format!("there are no notes in {}/\n", scope.dir_path.path);
    }
    Ok(text)
}

/// The tags below a directory with their counts, the most frequent first.
pub(super) fn tags(db: &Db, paths: &PathCache, scope: &Scope) -> Result<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE tags <> '' AND is_found = 1",
        (),
        |note| {
            if scope.covers(&*paths.of(db, note.dir)?) {
                for tag in note.tags.split(',') {
                    *counts.entry(tag.to_owned()).or_default() += 1;
                }
            }
            Ok(true)
        },
    )?;
    if counts.is_empty() {
        return Ok(format!("no note below {}/ has tags\n", scope.dir_path.path));
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    Ok(counts.into_iter().map(|(tag, count)| format!("{count} {tag}\n")).collect())
}

/// Runs `each` on the notes below a directory that expire, the earliest first, with their position and time.
fn expiring(
    db: &Db,
    paths: &PathCache,
    scope: &Scope,
    mut each: impl FnMut(&DirPath, &Note, Timestamp) -> Result<()>,
) -> Result<()> {
    rows(
        db,
        "SELECT dir, name, changed, importance, tags, author, expires FROM memory_note WHERE expires IS NOT NULL ORDER BY expires",
        (),
        |note| {
            let dir_path = paths.of(db, note.dir)?;
            if let Some(expires) = note.expires
                && scope.covers(&dir_path)
            {
                each(&dir_path, &note, expires)?;
            }
            Ok(true)
        },
    )
}

/// The notes below a directory that expire or have expired.
pub(super) fn ttl(db: &Db, paths: &PathCache, scope: &Scope, now: Timestamp) -> Result<String> {
    let mut text = String::new();
    expiring(db, paths, scope, |dir_path, note, expires| {
        let verb = if expires <= now { "expired" } else { "expires" };
        let path = format!("{}/{}", dir_path.path, shown_name(&note.name));
        text += &format!("{} {verb} {}\n", scope.relative(&path), moment(expires));
        Ok(())
    })?;
    if text.is_empty() {
        text = format!("no note below {}/ expires\n", scope.dir_path.path);
    }
    Ok(text)
}

/// The longest path that the kernel takes, in bytes.
const PATH_MAX: usize = 4096;

/// The paths of expired notes below a directory, relative to it, for programs that remove them. Their bytes are
/// unchanged, and each ends with a NUL, which no name contains. A path longer than the kernel takes is left out.
pub(super) fn expired(db: &Db, paths: &PathCache, scope: &Scope, now: Timestamp) -> Result<Vec<u8>> {
    let mut listed = Vec::new();
    expiring(db, paths, scope, |_, note, expires| {
        if expires > now {
            return Ok(());
        }
        let (mut names, mut length, mut dir) = (Vec::new(), 0, note.dir);
        while dir != scope.dir {
            // A directory that is not empty has a name.
            let (above, name) = name_of(db, dir)?.ok_or(Errno::IO)?;
            length += name.len() + 1;
            if length > PATH_MAX {
                return Ok(());
            }
            names.push(name);
            dir = above;
        }
        listed.push(b'.');
        for name in names.iter().rev() {
            listed.push(b'/');
            listed.extend(name);
        }
        listed.push(b'/');
        listed.extend(&note.name);
        listed.push(0);
        Ok(())
    })?;
    Ok(listed)
}

/// The events below a directory, newest first.
pub(super) fn history(db: &Db, paths: &PathCache, scope: &Scope) -> Result<String> {
    let mut text = String::new();
    let mut statement = db.statement("SELECT at, what, dir, name, size, author FROM memory_event ORDER BY id DESC")?;
    let mut rows = statement.query(())?;
    let mut shown = 0;
    while let Some(row) = rows.next()? {
        let Some(dir_path) = path_of_event(db, paths, scope, row)? else {
            continue;
        };
        if shown == SHOWN {
            text += "there are earlier events; `NAME:history` shows one note\n";
            break;
        }
        shown += 1;
        text += &event(row, scope, &dir_path)?;
    }
    if shown == 0 {
        text = format!("no event below {}/ is recorded\n", scope.dir_path.path);
    }
    Ok(text)
}

/// The directory of an event, if it still exists and is in scope. A directory created after the event is
/// another one with a reused inode number.
fn path_of_event(db: &Db, paths: &PathCache, scope: &Scope, row: &Row<'_>) -> Result<Option<Arc<DirPath>>> {
    let (at, dir) = (Timestamp(row.get(0)?), unsigned(row.get(2)?));
    match nodes::find(db, dir)? {
        Some(attr) if attr.nlink > 0 && attr.btime <= at => {
            let dir_path = paths.of(db, dir)?;
            Ok(scope.covers(&dir_path).then_some(dir_path))
        }
        _ => Ok(None),
    }
}

fn event(row: &Row<'_>, scope: &Scope, dir_path: &DirPath) -> rusqlite::Result<String> {
    let what: String = row.get(1)?;
    let name: Vec<u8> = row.get(3)?;
    let size: i64 = row.get(4)?;
    let author: String = row.get(5)?;
    let by = if author.is_empty() { String::new() } else { format!(" by {author}") };
    let path = format!("{}/{}", dir_path.path, shown_name(&name));
    Ok(format!("{} {what} {} {size} bytes{by}\n", moment(Timestamp(row.get(0)?)), scope.relative(&path),))
}

/// The answer to a name such as `note.md:meta`: from all that the mount may show, with paths relative to the request's
/// directory.
pub(super) fn aspect(
    db: &Db,
    paths: &PathCache,
    [all, asked]: [&Scope; 2],
    (attr, file): (&Attr, &[u8]),
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
        Aspect::Tags => Ok(if tags.is_empty() { "no tags\n".to_owned() } else { tags.replace(',', "\n") + "\n" }),
        Aspect::Ttl => Ok(life + "\n"),
        Aspect::History => {
            // Earlier events of this inode number belong to another file. Those of its name belong to the notes that it
            // has replaced: editors and agents write a new file, and rename it.
            let mut statement = db.statement(
                "SELECT at, what, dir, name, size, author FROM memory_event \
                 WHERE (ino = ?1 AND at >= ?2) OR (dir = ?3 AND name = ?4) ORDER BY id DESC",
            )?;
            let mut rows = statement.query((signed(attr.ino), attr.btime.0, signed(asked.dir), file))?;
            let (mut text, mut shown) = (String::new(), 0);
            while shown < SHOWN
                && let Some(row) = rows.next()?
            {
                if let Some(dir_path) = path_of_event(db, paths, all, row)? {
                    text += &event(row, asked, &dir_path)?;
                    shown += 1;
                }
            }
            if shown == 0 {
                text = "no event of it is recorded\n".to_owned();
            }
            Ok(text)
        }
        Aspect::Meta => {
            let author: Option<String> =
                db.row("SELECT author FROM memory_note WHERE ino = ?1", [signed(attr.ino)], |row| row.get(0))?;
            let mut text = format!(
                "importance: {}{}\ntags: {tags}\nttl: {life}\nauthor: {}\nchanged: {}\nbytes: {}\nindexed: {}\n",
                said.importance.unwrap_or(DEFAULT_IMPORTANCE),
                if said.importance.is_none() { " (default)" } else { "" },
                author.unwrap_or_default(),
                moment(attr.mtime),
                attr.size,
                match &content {
                    Some(text) if (text.len() as u64) < attr.size => "its first 256 KiB, name and tags",
                    Some(_) => "text, name and tags",
                    None => "name and tags; it is not text",
                },
            );
            if let Some(problem) = head.problem {
                text += &format!("front-matter: invalid, so it counts as text: {problem}\n");
            }
            Ok(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_being_read_has_notes_left_to_embed() {
        for (notes, waiting) in [(0, 1), (3, 3)] {
            let shown = relevance(&EmbeddingState::Loading, notes);
            assert!(shown.ends_with(&format!("\nwaiting-to-be-embedded: {waiting}")), "{shown}");
        }
    }
}
