//! Merging of the full text index. Results do not depend on it.
//!
//! FTS5 writes one segment a transaction, and a query looks each word up in every segment. A list of notes that
//! is spread over segments is also too short for FTS5's skip index. A query for two words then reads all of
//! the longer list. Steps lock the database for a millisecond or two each.

use fuse::store::Result;

use sqlite::tables::Db;

/// About how many index pages, of 4 KiB, a step writes. Other threads wait for the database meanwhile.
const STEP_PAGES: i64 = 16;

/// How many segments of a level a merge needs. With two, each level ends with one segment.
const SEGMENTS: i64 = 2;

/// Sets FTS5's `usermerge` to [`SEGMENTS`], unless the database has that value.
pub(super) fn prepare(db: &Db) -> Result<()> {
    let is_set = db.row("SELECT 1 FROM memory_text_config WHERE k = 'usermerge' AND v = ?1", [SEGMENTS], |_| Ok(()))?;
    if is_set.is_none() {
        db.execute("INSERT INTO memory_text (memory_text, rank) VALUES ('usermerge', ?1)", [SEGMENTS])?;
    }
    Ok(())
}

/// Runs one step. False if there was nothing to merge.
pub(super) fn step(db: &Db) -> Result<bool> {
    // Once each level has one segment, merge all levels unless the largest segment has nearly all pages.
    Ok(merge(db, STEP_PAGES)? || (is_spread(db)? && merge(db, -STEP_PAGES)?))
}

/// Whether more than an eighth of the index is outside its largest segment. A merge of everything then writes
/// at most eight pages for each page of new notes.
fn is_spread(db: &Db) -> Result<bool> {
    let pages = db.row(
        "SELECT sum(pages), max(pages) FROM (SELECT count(*) AS pages FROM memory_text_idx GROUP BY segid)",
        (),
        |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
    )?;
    Ok(matches!(pages, Some((Some(all), Some(largest))) if (all - largest) * 8 > all))
}

/// Runs FTS5's `merge`; negative `pages` merge all segments. False if there was nothing to merge.
fn merge(db: &Db, pages: i64) -> Result<bool> {
    let before = db.connection.total_changes();
    db.execute("INSERT INTO memory_text (memory_text, rank) VALUES ('merge', ?1)", [pages])?;
    // The statement itself counts as one change, <https://www.sqlite.org/fts5.html#the_merge_command>.
    Ok(db.connection.total_changes() - before >= 2)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use fuse::store::{Caller, Kind, NewNode, ROOT, Store, Timestamp};
    use sqlite::SqliteStore;

    use super::*;
    use crate::{AgentMemory, index};

    const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(0) };

    fn found(db: &Db, word: &str) -> Vec<i64> {
        let sql = "SELECT rowid FROM memory_text WHERE memory_text MATCH ?1 ORDER BY rowid DESC";
        let mut statement = db.statement(sql).unwrap();
        let ids = statement.query_map([word], |row| row.get(0)).unwrap();
        ids.collect::<rusqlite::Result<_>>().unwrap()
    }

    /// Segments that FTS5 looks a word up in.
    fn segments(db: &Db) -> i64 {
        let sql = "SELECT count(DISTINCT segid) FROM memory_text_idx";
        db.row(sql, (), |row| row.get(0)).unwrap().unwrap()
    }

    fn filled(path: &std::path::Path) -> SqliteStore {
        let files = SqliteStore::open(path, &OWNER).unwrap();
        files.transaction(index::prepare).unwrap();
        for id in 1..=12_i64 {
            let add = |db: &Db| {
                db.execute(
                    "INSERT INTO memory_text (rowid, name, tags, text, within) VALUES (?1, '', '', ?2, '')",
                    rusqlite::params![id, format!("note {id}")],
                )
            };
            files.transaction(add).unwrap();
        }
        files
    }

    #[test]
    fn merging_leaves_one_segment_and_the_same_notes() {
        let dir = tempfile::tempdir().unwrap();
        let files = filled(&dir.path().join("notes.db"));
        assert!(segments(&files.db()) > 4);
        let gone = |db: &Db| db.execute("DELETE FROM memory_text WHERE rowid = 5", ());
        files.transaction(gone).unwrap();
        let before = found(&files.db(), "note");
        let mut steps = 0;
        while files.transaction(step).unwrap() {
            steps += 1;
            assert!(steps < 100, "there is no end to it");
        }
        assert!(steps > 0);
        assert_eq!(segments(&files.db()), 1);
        assert_eq!(found(&files.db(), "note"), before);
        assert_eq!(before.len(), 11);
        assert_eq!(found(&files.db(), "7"), [7]);
    }

    #[test]
    fn the_index_is_merged_once_writes_stop() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.db");
        let memory = AgentMemory::open(&path, &OWNER, None).unwrap();
        let file = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: b"" };
        for number in 0..12 {
            let name = format!("{number}.md");
            let made = memory.create(&OWNER, ROOT, name.as_bytes(), &file);
            let ino = made.unwrap().ino;
            memory.write(&OWNER, ino, 0, b"a note").unwrap();
            memory.close(0, ino).unwrap();
        }
        let started = Instant::now();
        let is_done = |db: &Db| found(db, "note").len() == 12 && segments(db) == 1;
        while !is_done(&memory.rows.db()) {
            assert!(started.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
