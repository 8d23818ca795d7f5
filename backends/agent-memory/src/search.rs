//! `:search`: the notes that match an FTS5 expression, newest first.
//!
//! FTS5 reads matches from the last indexed down and stops at the limit. The cost depends on the lines shown,
//! not on the number of matches. A ranking by `bm25()` would read all matches of every word first.

use std::cmp::Reverse;

use fuse::store::{Ino, Result, Timestamp};
use rusqlite::{ErrorCode, params};
use sqlite::tables::Db;
use sqlite::tables::nodes::{self, unsigned};

use crate::index::text_from;
use crate::passage;
use crate::paths::{PathCache, Scope};
use crate::words::question;
use crate::{Failure, date};

/// A matching note.
#[derive(Debug)]
pub(super) struct Hit {
    pub(super) id: i64,
    pub(super) ino: Ino,
    pub(super) dir: Ino,
    pub(super) name: Vec<u8>,
    pub(super) changed: Timestamp,
    /// Offset of the body in bytes.
    pub(super) body: usize,
}

/// Reads only as many matches as its limit, because SQLite does not sort.
const FIND: &str = "SELECT n.id, n.ino, n.dir, n.name, n.changed, n.body
    FROM memory_text CROSS JOIN memory_note n ON n.id = memory_text.rowid
    WHERE memory_text MATCH ?1 ORDER BY memory_text.rowid DESC LIMIT ?2";

/// The matching notes that were indexed last, at most `limit`.
fn find(db: &Db, scope: &Scope, query: &str, limit: usize) -> std::result::Result<Vec<Hit>, Failure> {
    check_syntax(db, query)?;
    let expression = scope.matching(query);
    let mut statement = db.statement(FIND)?;
    let hits = statement
        .query_map(params![expression, limit as i64], |row| {
            Ok(Hit {
                id: row.get(0)?,
                ino: unsigned(row.get(1)?),
                dir: unsigned(row.get(2)?),
                name: row.get(3)?,
                changed: Timestamp(row.get(4)?),
                body: row.get::<_, u32>(5)? as usize,
            })
        })
        .and_then(Iterator::collect);
    hits.map_err(|error| syntax(query, error))
}

/// Refuses an incomplete expression. Embedded in the scope's, it could close that and match outside the scope.
fn check_syntax(db: &Db, query: &str) -> std::result::Result<(), Failure> {
    let is_plain = query.chars().all(|c| c.is_alphanumeric() || c == ' ');
    if is_plain {
        return Ok(());
    }
    let mut statement = db.statement("SELECT 1 FROM memory_text WHERE memory_text MATCH ?1 AND rowid = -1")?;
    let parsed = statement.query_row([query], |_| Ok(()));
    match parsed {
        Ok(()) | Err(rusqlite::Error::QueryReturnedNoRows) => Ok(()),
        Err(error) => Err(syntax(query, error)),
    }
}

/// Distinguishes a syntax error of the query from an error of the database.
fn syntax(query: &str, error: rusqlite::Error) -> Failure {
    if error.sqlite_error_code() != Some(ErrorCode::Unknown) {
        return Failure::Storage(error.into());
    }
    let said = match &error {
        rusqlite::Error::SqliteFailure(_, Some(said)) => said.clone(),
        other => other.to_string(),
    };
    let quoted = query.replace('"', "");
    Failure::Asked(format!(
        "{said}; the query is an FTS5 expression: words, \"a phrase\", prefix*, AND, OR, NOT, ( ); for the words as they are, put them in quotes: \"{}\"",
        quoted.trim()
    ))
}

/// The answer to a search.
pub(super) fn answer(
    db: &Db,
    paths: &PathCache,
    scope: &Scope,
    query: &str,
    lines: usize,
    notes: u64,
) -> std::result::Result<String, Failure> {
    let mut hits = find(db, scope, query, lines + 1)?;
    let has_more = hits.len() > lines;
    hits.truncate(lines);
    if hits.is_empty() {
        return Ok(format!(
            "nothing found: no note below {}/ matches {query:?} ({notes} notes in all)\n",
            scope.dir_path.path
        ));
    }
    // The note indexed last need not be the newest: a file can get an older time.
    hits.sort_by_key(|hit| (Reverse(hit.changed), Reverse(hit.id)));
    let mut text = if has_more {
        format!("these {} notes match; more were indexed before them (&limit=)\n", hits.len())
    } else {
        match hits.len() {
            1 => "1 note matches\n".to_owned(),
            count => format!("{count} notes match, newest first\n"),
        }
    };
    let wanted: Vec<String> = question(query);
    for hit in hits {
        let line = match body(db, &hit)? {
            Some(body) => passage::line(&body, &wanted).to_owned(),
            None => "(not text)".to_owned(),
        };
        let dir = &paths.of(db, hit.dir)?.path;
        let path = format!("{dir}/{}", passage::shown_name(&hit.name));
        text += &format!("{} {}: {line}\n", scope.relative(&path), date(hit.changed));
    }
    Ok(text)
}

/// The text of a note after its front matter; `None` if it is not text, or gone.
pub(super) fn body(db: &Db, hit: &Hit) -> Result<Option<String>> {
    match nodes::find(db, hit.ino)? {
        Some(attr) => text_from(db, &attr, hit.body),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use fuse::store::Caller;
    use sqlite::SqliteStore;

    use super::*;
    use crate::index;

    #[test]
    fn a_search_reads_from_the_last_indexed_on_without_sorting() {
        // If SQLite sorted, it would read every match.
        let dir = tempfile::tempdir().unwrap();
        let owner = Caller { uid: 0, gid: 0, now: Timestamp(0) };
        let files = SqliteStore::open(&dir.path().join("m.db"), &owner).unwrap();
        files.transaction(index::prepare).unwrap();
        let db = files.db();
        let explain = format!("EXPLAIN QUERY PLAN {FIND}");
        let mut plan = db.connection.prepare(&explain).unwrap();
        let steps: Vec<String> =
            plan.query_map(params!["a", 5], |row| row.get(3)).unwrap().map(std::result::Result::unwrap).collect();
        assert!(!steps.is_empty() && steps.iter().all(|step| !step.contains("TEMP B-TREE")), "{steps:?}");
    }
}
