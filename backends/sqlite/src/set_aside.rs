//! Tails that a truncation has set aside. A power loss may bring back an earlier state, which needs them under their
//! names.
//!
//! Truncating inode 7 to its first 256 KiB or less renames its tail to `7.<change>.<mount>`: the number of the change, and
//! the mount that numbers it. So a new tail never overwrites the bytes of the old one. If the database is in a state before
//! that change at the next open, the file gets its name back. Otherwise nothing needs it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use fuse::store::Ino;

/// A change of one mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChangeId {
    pub(super) number: u64,
    pub(super) mount: i64,
}

/// A database's record of its redo log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RedoRecord {
    /// The mount that has one.
    pub(super) mount: Option<i64>,
    /// Its last change that is in the database.
    pub(super) applied: u64,
    /// The mount before, all of whose changes are.
    pub(super) ended: Option<i64>,
}

impl RedoRecord {
    /// Whether a mount is the last one that had a redo log.
    pub(super) fn is_of(self, mount: i64) -> bool {
        self.mount == Some(mount) || self.ended == Some(mount)
    }
}

impl ChangeId {
    /// Whether a database that knows `known`, with all changes up to `reached`, has this change.
    fn is_in(self, known: RedoRecord, reached: u64) -> bool {
        known.ended == Some(self.mount) || (known.mount == Some(self.mount) && self.number <= reached)
    }
}

/// The name of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TailName {
    pub(super) ino: Ino,
    /// The change that has set it aside.
    pub(super) set_aside: Option<ChangeId>,
}

impl TailName {
    /// The tail of an inode as it is now.
    pub(super) fn current(ino: Ino) -> Self {
        Self { ino, set_aside: None }
    }

    /// `None` if the name is not one of ours.
    pub(super) fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let Some((ino, change)) = name.split_once('.') else {
            return Some(Self::current(name.parse().ok()?));
        };
        let (number, mount) = change.split_once('.')?;
        let mount = u64::from_str_radix(mount, 16).ok()?;
        let change = ChangeId { number: number.parse().ok()?, mount: mount.cast_signed() };
        let parsed = Self { ino: ino.parse().ok()?, set_aside: Some(change) };
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for TailName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.set_aside {
            None => write!(f, "{}", self.ino),
            Some(change) => {
                let mount = change.mount.cast_unsigned();
                write!(f, "{}.{}.{mount:016x}", self.ino, change.number)
            }
        }
    }
}

/// The set-aside tails that belong to states after that of a database, which knows `known` and has all changes up to
/// `reached`: by inode, in the order of their changes. The database needs the first one of each inode.
fn needed(
    names: impl IntoIterator<Item = OsString>,
    known: RedoRecord,
    reached: u64,
) -> BTreeMap<Ino, BTreeMap<ChangeId, TailName>> {
    let mut needed: BTreeMap<Ino, BTreeMap<ChangeId, TailName>> = BTreeMap::new();
    for name in names {
        if let Some(name) = TailName::parse(&name)
            && let Some(change) = name.set_aside
            && !change.is_in(known, reached)
        {
            needed.entry(name.ino).or_default().insert(change, name);
        }
    }
    needed
}

fn names(dir: &Path) -> io::Result<Vec<OsString>> {
    match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name())).collect(),
    }
}

/// Names in the directory of the tails, at one moment.
#[derive(Debug, Default)]
pub(super) struct TailNames(Vec<OsString>);

impl TailNames {
    /// Reads the directory, which may be missing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(dir: &Path) -> io::Result<Self> {
        names(dir).map(Self)
    }

    /// The tails that [`restore`] would give their names back, by inode.
    pub(super) fn restored(self, known: RedoRecord, reached: u64) -> BTreeMap<Ino, TailName> {
        let needed = needed(self.0, known, reached);
        let first =
            |(ino, tails): (Ino, BTreeMap<ChangeId, TailName>)| tails.into_values().next().map(|name| (ino, name));
        needed.into_iter().filter_map(first).collect()
    }
}

/// Renames the tails that a database of this state needs back to their own names, durably. A second call does nothing.
///
/// # Errors
/// If the directory cannot be read or changed.
pub(super) fn restore(dir: &Path, known: RedoRecord, reached: u64) -> io::Result<()> {
    let needed = needed(names(dir)?, known, reached);
    if needed.is_empty() {
        return Ok(());
    }
    // Later tails belong to lost states. They are removed first, so that an interrupted restore cannot choose one of
    // them.
    let later = needed.values().flat_map(|tails| tails.values().skip(1));
    for name in later {
        remove_one(dir, *name)?;
    }
    let synced = || File::open(dir)?.sync_all();
    synced()?;
    for (ino, tails) in &needed {
        if let Some((_, name)) = tails.first_key_value() {
            let (aside, current) = (dir.join(name.to_string()), dir.join(ino.to_string()));
            match std::fs::rename(&aside, &current) {
                // A directory in the place of either damages this file alone.
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    tracing::warn!(tail = %aside.display(), %error, "cannot be renamed to {}", current.display());
                }
                // The file there belongs to a lost state: it must not be read.
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                    std::fs::remove_file(&current)?;
                    std::fs::rename(&aside, &current)?;
                }
                renamed => renamed?,
            }
        }
    }
    synced()
}

/// Removes a tail, but no directory in its place.
fn remove_one(dir: &Path, name: TailName) -> io::Result<()> {
    let path = dir.join(name.to_string());
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            tracing::warn!(tail = %path.display(), %error, "cannot be removed");
            Ok(())
        }
        removed => removed,
    }
}

/// Removes, durably, all tails that were set aside.
///
/// # Errors
/// If the directory cannot be read or changed.
pub(super) fn remove(dir: &Path) -> io::Result<()> {
    let names = names(dir)?;
    let names = names.iter().filter_map(|name| TailName::parse(name));
    let aside: Vec<TailName> = names.filter(|name| name.set_aside.is_some()).collect();
    for name in &aside {
        remove_one(dir, *name)?;
    }
    if aside.is_empty() { Ok(()) } else { File::open(dir)?.sync_all() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: RedoRecord = RedoRecord { mount: Some(-7), applied: 0, ended: Some(5) };

    fn name(ino: Ino, number: u64, mount: i64) -> TailName {
        TailName { ino, set_aside: Some(ChangeId { number, mount }) }
    }

    #[test]
    fn a_name_is_parsed_as_it_is_written() {
        for name in [TailName::current(7), name(7, 12, -7), name(9, 1, i64::MAX)] {
            assert_eq!(TailName::parse(name.to_string().as_ref()), Some(name));
        }
        for other in ["", "x", "7.", "7.1", "7.1.2", "7.1.zz", "07.1.0000000000000000"] {
            assert_eq!(TailName::parse(other.as_ref()), None, "{other}");
        }
    }

    #[test]
    fn a_directory_in_the_place_of_a_tail_keeps_no_other_tail_from_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: TailName| dir.path().join(name.to_string());
        for ino in [1, 2, 3, 4] {
            std::fs::write(at(name(ino, 10, -7)), "old").unwrap();
        }
        std::fs::create_dir(at(TailName::current(1))).unwrap();
        std::fs::create_dir(at(name(2, 11, -7))).unwrap();
        std::fs::write(at(TailName::current(3)), "new").unwrap();
        std::fs::remove_file(at(name(3, 10, -7))).unwrap();
        std::fs::create_dir(at(name(3, 10, -7))).unwrap();
        restore(dir.path(), KNOWN, 9).unwrap();
        assert!([1, 3].iter().all(|ino| at(TailName::current(*ino)).is_dir()));
        for ino in [2, 4] {
            assert_eq!(std::fs::read_to_string(at(TailName::current(ino))).unwrap(), "old", "{ino}");
        }
        remove(dir.path()).unwrap();
    }

    #[test]
    fn the_first_tail_that_a_later_change_has_set_aside_is_restored() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), name).unwrap();
        let all = [
            name(1, 9, -7),
            name(1, 10, -7),
            name(1, 11, -7),
            // In the state: by its number, and by its mount.
            name(2, 9, -7),
            name(3, 99, 5),
            // Of a mount that the state does not know yet.
            name(4, 2, 6),
        ];
        all.iter().for_each(|name| write(&name.to_string()));
        ["1", "2", "3", "4"].iter().for_each(|name| write(name));
        for _ in 0..2 {
            restore(dir.path(), KNOWN, 9).unwrap();
            let content = |name: &str| std::fs::read_to_string(dir.path().join(name)).ok();
            assert_eq!(content("1"), Some(name(1, 10, -7).to_string()));
            assert_eq!(content("2").as_deref(), Some("2"));
            assert_eq!(content("3").as_deref(), Some("3"));
            assert_eq!(content("4"), Some(name(4, 2, 6).to_string()));
            assert_eq!(content(&name(1, 11, -7).to_string()), None);
            assert!(content(&name(1, 9, -7).to_string()).is_some());
        }
        remove(dir.path()).unwrap();
        let mut left: Vec<_> = names(dir.path()).unwrap();
        left.sort();
        assert_eq!(left, ["1", "2", "3", "4"]);
        let missing = dir.path().join("missing");
        restore(&missing, KNOWN, 9).unwrap();
        remove(&missing).unwrap();
    }
}
