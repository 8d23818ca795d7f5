//! Neighbours of a note: the note before and after it in a series, as the turns `007.md` and `008.md` of a conversation.
//! A question often has the words of one turn, and its answer is in the next.

use fuse::store::Result;
use rusqlite::{CachedStatement, params};

use sqlite::tables::{Db, first};

/// How far apart neighbours may be, in nanoseconds: ten minutes.
const APART: i64 = 600 * 1_000_000_000;

const BEFORE: &str = "SELECT b.id, n.name, b.name FROM memory_note n JOIN memory_note b
      ON b.id = (SELECT max(id) FROM memory_note WHERE dir = n.dir AND id < n.id)
    WHERE n.id = ?1 AND b.is_found = 1 AND abs(b.changed - n.changed) <= ?2";

const AFTER: &str = "SELECT b.id, n.name, b.name FROM memory_note n JOIN memory_note b
      ON b.id = (SELECT min(id) FROM memory_note WHERE dir = n.dir AND id > n.id)
    WHERE n.id = ?1 AND b.is_found = 1 AND abs(b.changed - n.changed) <= ?2";

/// Looks up neighbours, by two compiled statements.
pub(super) struct Neighbours<'a>([CachedStatement<'a>; 2]);

impl<'a> Neighbours<'a> {
    pub(super) fn new(db: &'a Db) -> Result<Self> {
        Ok(Self([db.statement(BEFORE)?, db.statement(AFTER)?]))
    }

    /// The neighbours of a note: indexed next to it in its directory, written within [`APART`] of it, with a name that
    /// differs in digits only, and not expired.
    pub(super) fn of(&mut self, id: i64) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        for statement in &mut self.0 {
            let beside = first(statement, params![id, APART], |row| {
                let names = [row.get_ref(1)?.as_bytes()?, row.get_ref(2)?.as_bytes()?];
                Ok((row.get::<_, i64>(0)?, is_series(names[0], names[1])))
            })?;
            found.extend(beside.filter(|(_, is_series)| *is_series).map(|(id, _)| id));
        }
        Ok(found)
    }
}

/// Whether two names have digits, and differ in nothing else.
fn is_series<'a>(a: &'a [u8], b: &'a [u8]) -> bool {
    let rest = |name: &'a [u8]| name.iter().filter(|byte| !byte.is_ascii_digit());
    let has_digit = |name: &[u8]| name.iter().any(u8::is_ascii_digit);
    has_digit(a) && has_digit(b) && rest(a).eq(rest(b))
}

#[cfg(test)]
mod tests {
    use super::is_series;

    #[test]
    fn names_of_a_series_differ_in_digits_only() {
        assert!(is_series(b"007.md", b"008.md"));
        assert!(is_series(b"turn-9.md", b"turn-10.md"));
        for other in [&b"notes.md"[..], b"turn-8.txt", b"turn-.md"] {
            assert!(!is_series(b"turn-7.md", other));
        }
        assert!(!is_series(b"rule.md", b"rule.md"));
    }
}
