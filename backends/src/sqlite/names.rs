//! Directory entries: names to inodes, in hash order.
//!
//! An entry sits in the slot that its name hashes to, or in the next free one of [`PROBES`]: one
//! B-tree serves look-up by name and listing by cookie, and a cookie stays valid while others come and go.

use std::ops::ControlFlow;

use rusqlite::params;

use super::db::Db;
use super::nodes::{self, columns, signed, unsigned};
use crate::store::{Attr, DirEntry, Errno, FIRST_COOKIE, Ino, Kind, Result, StoreError};

/// How far from its hash a name may sit.
const PROBES: u64 = 64;

/// Where a name sits and what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name {
    pub(crate) slot: u64,
    pub(crate) ino: Ino,
}

/// The slots that `name` may sit in: FNV-1a, 61 bits of it, so that a cookie is a positive `off_t`.
pub(crate) fn slots(name: &[u8]) -> std::ops::Range<u64> {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let first = FIRST_COOKIE + (hash >> 3);
    first..first + PROBES
}

/// The attributes of what `name` names, in one query.
pub(crate) fn lookup(db: &Db, parent: Ino, name: &[u8]) -> Result<Attr> {
    let slots = slots(name);
    let found = db.row(
        concat!(
            "SELECT ",
            columns!(),
            ", d.ino FROM dirent d LEFT JOIN inode i ON i.ino = d.ino
             WHERE d.parent = ?1 AND d.slot >= ?2 AND d.slot < ?3 AND d.name = ?4"
        ),
        params![signed(parent), signed(slots.start), signed(slots.end), name],
        |row| nodes::joined(db, unsigned(row.get(nodes::COLUMNS)?), row, 0),
    )?;
    match found.flatten() {
        Some(attr) => {
            db.keep(&attr);
            Ok(attr)
        }
        None => {
            nodes::get_directory(db, parent)?;
            Err(Errno::NOENT.into())
        }
    }
}

/// Where `name` sits, if it is there.
pub(crate) fn find(db: &Db, parent: Ino, name: &[u8]) -> Result<Option<Name>> {
    let slots = slots(name);
    db.row(
        "SELECT slot, ino FROM dirent WHERE parent = ?1 AND slot >= ?2 AND slot < ?3 AND name = ?4",
        params![signed(parent), signed(slots.start), signed(slots.end), name],
        |row| {
            Ok(Name {
                slot: unsigned(row.get(0)?),
                ino: unsigned(row.get(1)?),
            })
        },
    )
}

/// As [`find`], for a name that should exist in a directory.
pub(crate) fn get(db: &Db, parent: Ino, name: &[u8]) -> Result<Name> {
    nodes::get_directory(db, parent)?;
    find(db, parent, name)?.ok_or_else(|| Errno::NOENT.into())
}

/// Adds a name. `EEXIST` where it is taken.
pub(crate) fn insert(db: &Db, parent: Ino, name: &[u8], ino: Ino, kind: Kind) -> Result<()> {
    let slots = slots(name);
    let mut free = slots.start;
    {
        let mut statement = db.statement(
            "SELECT slot, name = ?4 FROM dirent
             WHERE parent = ?1 AND slot >= ?2 AND slot < ?3 ORDER BY slot",
        )?;
        let mut rows = statement.query(params![
            signed(parent),
            signed(slots.start),
            signed(slots.end),
            name
        ])?;
        while let Some(row) = rows.next()? {
            if row.get(1)? {
                return Err(Errno::EXIST.into());
            }
            if unsigned(row.get(0)?) == free {
                free += 1;
            }
        }
    }
    if free == slots.end {
        let reason = format!("{PROBES} names in one directory have the same hash");
        return Err(StoreError::storage(Errno::NOSPC, reason));
    }
    db.execute(
        "INSERT INTO dirent (parent, slot, name, ino, mode) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            signed(parent),
            signed(free),
            name,
            signed(ino),
            kind.mode_bits()
        ],
    )?;
    Ok(())
}

/// Removes the name in a slot.
pub(crate) fn remove(db: &Db, parent: Ino, slot: u64) -> Result<()> {
    db.execute(
        "DELETE FROM dirent WHERE parent = ?1 AND slot = ?2",
        [signed(parent), signed(slot)],
    )?;
    Ok(())
}

/// Makes the name in a slot name another inode.
pub(crate) fn point(db: &Db, parent: Ino, slot: u64, to: &Attr) -> Result<()> {
    db.execute(
        "UPDATE dirent SET ino = ?3, mode = ?4 WHERE parent = ?1 AND slot = ?2",
        params![
            signed(parent),
            signed(slot),
            signed(to.ino),
            to.kind.mode_bits()
        ],
    )?;
    Ok(())
}

pub(crate) fn is_empty(db: &Db, dir: Ino) -> Result<bool> {
    let any = db.row(
        "SELECT 1 FROM dirent WHERE parent = ?1 LIMIT 1",
        [signed(dir)],
        |_| Ok(()),
    )?;
    Ok(any.is_none())
}

pub(crate) fn list(
    db: &Db,
    dir: Ino,
    after: u64,
    with_attr: bool,
    emit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
) -> Result<()> {
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
        let attr = match with_attr {
            true => nodes::joined(db, ino, row, 4)?,
            false => None,
        };
        if with_attr && attr.is_none() {
            // Damage: `doctor --store` names it.
            continue;
        }
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
    use crate::sqlite::db::Tally;
    use crate::sqlite::tails::Tails;

    #[test]
    fn slots_are_stable_positive_and_spread() {
        // On disk: these numbers may never change.
        assert_eq!(
            slots(b"").start,
            FIRST_COOKIE + (0xcbf2_9ce4_8422_2325 >> 3)
        );
        assert_eq!(
            slots(b"a").start,
            FIRST_COOKIE + (0xaf63_dc4c_8601_ec8c >> 3)
        );
        assert!(slots(&[255; 255]).end < 1 << 62);
        assert_ne!(slots(b"a").start, slots(b"b").start);
    }

    /// A table in which the first slots of the name `a` are taken by others.
    fn crowded(taken: u64) -> Db {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        connection
            .execute_batch(include_str!("schema.sql"))
            .unwrap();
        let tally = Arc::new(Tally::default());
        let tails = Tails::new(std::path::Path::new("unused"), Arc::clone(&tally));
        let db = Db::new(
            connection,
            Arc::new(tails),
            tally,
            crate::sqlite::db::no_notes,
        );
        for at in 0..taken {
            db.execute(
                "INSERT INTO dirent (parent, slot, name, ino, mode) VALUES (1, ?1, ?2, 9, 32768)",
                params![
                    signed(slots(b"a").start + at),
                    format!("other{at}").as_bytes()
                ],
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
        remove(&db, 1, slots(b"a").start + 1).unwrap();
        assert_eq!(find(&db, 1, b"a").unwrap().unwrap().slot, found.slot);
        let again = insert(&db, 1, b"a", 3, Kind::File).unwrap_err();
        assert_eq!(again.errno, Errno::EXIST);
    }

    #[test]
    fn more_names_with_one_hash_than_there_are_slots_are_refused() {
        let db = crowded(PROBES);
        let full = insert(&db, 1, b"a", 2, Kind::File).unwrap_err();
        assert_eq!(full.errno, Errno::NOSPC);
    }
}
