//! Directory entries: names to inodes, in hash order.
//!
//! An entry sits in the slot that its name hashes to, or in the next free one of [`PROBES`]: one
//! B-tree serves look-up by name and listing by cookie, and a cookie stays valid while others come and go.

use std::ops::Range;

use fuse::store::{Attr, DirEntry, EntrySink, Errno, FIRST_COOKIE, Ino, Kind, Result, StoreError};
use rusqlite::params;

use crate::db::Db;
use crate::name_cache::Name;
use crate::nodes::{self, columns, signed, unsigned};

/// How far from its hash a name may sit.
const PROBES: u64 = 64;

/// The slots that `name` may sit in: FNV-1a, 61 bits of it, so that a cookie is a positive `off_t`.
pub(crate) fn slots(name: &[u8]) -> Range<u64> {
    let hash = name
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let first = FIRST_COOKIE + (hash >> 3);
    first..first + PROBES
}

/// Where a name is, or which slot it would get.
enum NameLookup {
    Taken(Name),
    Free(u64),
}

fn look_up(db: &Db, parent: Ino, name: &[u8]) -> Result<NameLookup> {
    let slots = slots(name);
    if let Some(kept) = db.names.borrow().get(parent, name, slots.start) {
        return Ok(kept.map_or(NameLookup::Free(slots.start), NameLookup::Taken));
    }
    let mut free = slots.start;
    let mut statement = db.statement(
        "SELECT slot, ino, name = ?4 FROM dirent
         WHERE parent = ?1 AND slot >= ?2 AND slot < ?3 ORDER BY slot",
    )?;
    let mut rows = statement.query(params![signed(parent), signed(slots.start), signed(slots.end), name])?;
    while let Some(row) = rows.next()? {
        let slot = unsigned(row.get(0)?);
        if row.get(2)? {
            let ino = unsigned(row.get(1)?);
            let found = Name { slot, ino };
            let mut names = db.names.borrow_mut();
            names.keep(parent, name, slots.start, Some(found));
            return Ok(NameLookup::Taken(found));
        }
        if slot == free {
            free += 1;
        }
    }
    if free == slots.start {
        db.names.borrow_mut().keep(parent, name, free, None);
    }
    Ok(NameLookup::Free(free))
}

/// The attributes of the node that `name` names, in one query.
pub(crate) fn lookup(db: &Db, parent: Ino, name: &[u8]) -> Result<Attr> {
    let slots = slots(name);
    let kept = db.names.borrow().get(parent, name, slots.start);
    let found = match kept {
        Some(None) => None,
        Some(Some(kept)) => Some(nodes::named(db, kept.ino)?),
        None => joined(db, parent, name, slots)?,
    };
    if found.is_none() {
        nodes::get_directory(db, parent)?;
    }
    found.ok_or_else(|| Errno::NOENT.into())
}

/// As [`look_up`], with attributes.
fn joined(db: &Db, parent: Ino, name: &[u8], slots: Range<u64>) -> Result<Option<Attr>> {
    let first = slots.start;
    let mut statement = db.statement(concat!(
        "SELECT ",
        columns!(),
        ", d.ino, d.slot, d.name = ?4 FROM dirent d LEFT JOIN inode i ON i.ino = d.ino
         WHERE d.parent = ?1 AND d.slot >= ?2 AND d.slot < ?3 ORDER BY d.slot"
    ))?;
    let mut rows = statement.query(params![signed(parent), signed(first), signed(slots.end), name])?;
    let mut is_free = true;
    while let Some(row) = rows.next()? {
        let slot = unsigned(row.get(nodes::COLUMNS + 1)?);
        if row.get(nodes::COLUMNS + 2)? {
            let ino = unsigned(row.get(nodes::COLUMNS)?);
            let attr = nodes::joined(db, ino, row, 0)?;
            let attr = attr.ok_or_else(|| nodes::missing(ino))?;
            db.keep(&attr);
            let found = Some(Name { slot, ino });
            db.names.borrow_mut().keep(parent, name, first, found);
            return Ok(Some(attr));
        }
        is_free &= slot != first;
    }
    if is_free {
        db.names.borrow_mut().keep(parent, name, first, None);
    }
    Ok(None)
}

/// Where `name` sits, if it is there.
pub fn find(db: &Db, parent: Ino, name: &[u8]) -> Result<Option<Name>> {
    Ok(match look_up(db, parent, name)? {
        NameLookup::Taken(found) => Some(found),
        NameLookup::Free(_) => None,
    })
}

/// As [`find`], for a name that should exist in a directory.
pub(crate) fn get(db: &Db, parent: Ino, name: &[u8]) -> Result<Name> {
    nodes::get_directory(db, parent)?;
    find(db, parent, name)?.ok_or_else(|| Errno::NOENT.into())
}

/// The slot for a new name. `EEXIST` where it is taken.
fn free_slot(db: &Db, parent: Ino, name: &[u8]) -> Result<u64> {
    match look_up(db, parent, name)? {
        NameLookup::Taken(_) => Err(Errno::EXIST.into()),
        NameLookup::Free(slot) if slot == slots(name).end => {
            let reason = format!(
                "{PROBES} names in one directory have the same hash; no further name with this hash can be created"
            );
            Err(StoreError::storage(Errno::NOSPC, reason))
        }
        NameLookup::Free(slot) => Ok(slot),
    }
}

/// Notes that `name` is in a slot now.
fn note(db: &Db, parent: Ino, name: &[u8], at: Name) {
    let mut names = db.names.borrow_mut();
    // Another name may be known not to be there, with this slot as its first.
    names.forget(parent, at.slot);
    names.keep(parent, name, slots(name).start, Some(at));
}

/// Notes that `name` has left its slot.
fn note_gone(db: &Db, parent: Ino, name: &[u8], slot: u64) {
    let (first, mut names) = (slots(name).start, db.names.borrow_mut());
    if slot == first { names.keep(parent, name, first, None) } else { names.forget(parent, first) }
}

/// Adds a name. `EEXIST` where it is taken.
pub fn insert(db: &Db, parent: Ino, name: &[u8], ino: Ino, kind: Kind) -> Result<()> {
    let slot = free_slot(db, parent, name)?;
    db.execute(
        "INSERT INTO dirent (parent, slot, name, ino, mode) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![signed(parent), signed(slot), name, signed(ino), kind.mode_bits()],
    )?;
    note(db, parent, name, Name { slot, ino });
    Ok(())
}

/// Removes a name.
pub fn remove(db: &Db, parent: Ino, name: &[u8], at: Name) -> Result<()> {
    db.execute("DELETE FROM dirent WHERE parent = ?1 AND slot = ?2", [signed(parent), signed(at.slot)])?;
    note_gone(db, parent, name, at.slot);
    Ok(())
}

/// Renames an entry; the new name must be free.
pub(super) fn change(db: &Db, (from, from_name, at): (Ino, &[u8], Name), (to, to_name): (Ino, &[u8])) -> Result<()> {
    let slot = free_slot(db, to, to_name)?;
    db.execute(
        "UPDATE dirent SET parent = ?3, slot = ?4, name = ?5 WHERE parent = ?1 AND slot = ?2",
        params![signed(from), signed(at.slot), signed(to), signed(slot), to_name],
    )?;
    note_gone(db, from, from_name, at.slot);
    note(db, to, to_name, Name { slot, ..at });
    Ok(())
}

/// Makes a name name another inode.
pub(crate) fn point(db: &Db, parent: Ino, name: &[u8], at: Name, to: &Attr) -> Result<()> {
    db.execute(
        "UPDATE dirent SET ino = ?3, mode = ?4 WHERE parent = ?1 AND slot = ?2",
        params![signed(parent), signed(at.slot), signed(to.ino), to.kind.mode_bits()],
    )?;
    note(db, parent, name, Name { ino: to.ino, ..at });
    Ok(())
}

/// Whether a directory has no name.
pub fn is_empty(db: &Db, dir: Ino) -> Result<bool> {
    let any = db.row("SELECT 1 FROM dirent WHERE parent = ?1 LIMIT 1", [signed(dir)], |_| Ok(()))?;
    Ok(any.is_none())
}

pub(crate) fn list(db: &Db, dir: Ino, after: u64, with_attr: bool, emit: EntrySink<'_>) -> Result<()> {
    nodes::get_directory(db, dir)?;
    let mut statement = db.statement(if with_attr {
        concat!(
            "SELECT d.slot, d.name, d.ino, d.mode, ",
            columns!(),
            " FROM dirent d LEFT JOIN inode i ON i.ino = d.ino
             WHERE d.parent = ?1 AND d.slot > ?2 ORDER BY d.slot"
        )
    } else {
        "SELECT slot, name, ino, mode FROM dirent WHERE parent = ?1 AND slot > ?2 ORDER BY slot"
    })?;
    let mut rows = statement.query([signed(dir), signed(after)])?;
    while let Some(row) = rows.next()? {
        let ino = unsigned(row.get(2)?);
        let attr =
            if with_attr { Some(nodes::joined(db, ino, row, 4)?.ok_or_else(|| nodes::missing(ino))?) } else { None };
        let entry = DirEntry {
            cookie: unsigned(row.get(0)?),
            name: row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?,
            ino,
            kind: nodes::kind(row.get(3)?, 3)?,
            attr,
        };
        if emit(entry).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::counters::Counters;
    use crate::room::Room;
    use crate::tails::Tails;

    #[test]
    fn slots_are_stable_positive_and_spread() {
        // On disk: these numbers may never change.
        assert_eq!(slots(b"").start, FIRST_COOKIE + (0xcbf2_9ce4_8422_2325 >> 3));
        assert_eq!(slots(b"a").start, FIRST_COOKIE + (0xaf63_dc4c_8601_ec8c >> 3));
        assert!(slots(&[255; 255]).end < 1 << 62);
        assert_ne!(slots(b"a").start, slots(b"b").start);
    }

    /// A table in which the first slots of the name `a` are taken by others.
    fn crowded(taken: u64) -> Db {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        let counters = Arc::new(Counters::default());
        let tails = Tails::new(std::path::Path::new("unused"), Arc::clone(&counters));
        let db = Db::new(
            connection,
            Arc::new(tails.unwrap()),
            Arc::new(Room::new(&Arc::new(tempfile::tempfile().unwrap()))),
            counters,
            crate::db::GuestRecovery::NONE,
        );
        for at in 0..taken {
            db.execute(
                "INSERT INTO dirent (parent, slot, name, ino, mode) VALUES (1, ?1, ?2, 9, 32768)",
                params![signed(slots(b"a").start + at), format!("other{at}").as_bytes()],
            )
            .unwrap();
        }
        db
    }

    #[test]
    fn names_with_the_same_hash_find_each_a_slot_and_keep_it() {
        let db = crowded(3);
        insert(&db, 1, b"a", 2, Kind::File).unwrap();
        let found = find(&db, 1, b"a").unwrap().unwrap();
        assert_eq!((found.slot, found.ino), (slots(b"a").start + 3, 2));
        // A gap before it does not hide it, nor let the name in twice.
        let second = slots(b"a").start + 1;
        remove(&db, 1, b"other1", Name { slot: second, ino: 9 }).unwrap();
        assert_eq!(find(&db, 1, b"a").unwrap().unwrap().slot, found.slot);
        let again = insert(&db, 1, b"a", 3, Kind::File).unwrap_err();
        assert_eq!(again.errno, Errno::EXIST);
    }

    #[test]
    fn cached_names_equal_those_of_the_table() {
        let db = crowded(0);
        let asked = |name: &[u8]| {
            let kept = find(&db, 1, name).unwrap().map(|found| found.ino);
            db.names.borrow_mut().clear();
            assert_eq!(find(&db, 1, name).unwrap().map(|found| found.ino), kept);
            kept
        };
        assert_eq!(asked(b"a"), None);
        insert(&db, 1, b"a", 2, Kind::File).unwrap();
        assert_eq!(asked(b"a"), Some(2));
        let at = find(&db, 1, b"a").unwrap().unwrap();
        change(&db, (1, b"a", at), (1, b"b")).unwrap();
        assert_eq!((asked(b"a"), asked(b"b")), (None, Some(2)));
        let at = find(&db, 1, b"b").unwrap().unwrap();
        remove(&db, 1, b"b", at).unwrap();
        assert_eq!(asked(b"b"), None);
        // As if the first slot of `b` had been the first free one for `c`.
        let slot = slots(b"b").start;
        note(&db, 1, b"c", Name { slot, ino: 3 });
        assert!(db.names.borrow().get(1, b"b", slot).is_none());
    }

    #[test]
    fn more_names_with_one_hash_than_there_are_slots_are_refused() {
        let db = crowded(PROBES);
        let full = insert(&db, 1, b"a", 2, Kind::File).unwrap_err();
        assert_eq!(full.errno, Errno::NOSPC);
    }
}
