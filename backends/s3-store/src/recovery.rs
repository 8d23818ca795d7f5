//! `--rebuild-cache`: a new cache takes over the changes that only the old one has.
//!
//! The bucket has every committed change. So only unsent changes are taken from the old cache: of each file,
//! the readable part. Unsent deletions are not repeated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fuse::store::{Caller, Errno, Ino, Kind, NewNode, ROOT, Result, Store, StoreError, Timestamp};
use s3::tree::{Content, Node};
use sqlite::SqliteStore;
use sqlite::tables::{Db, held, names, nodes};

use crate::RECOVERY;
use crate::cache::Cache;
use crate::open_error::OpenError;
use crate::tables;

/// The files of a database that may exist beside it.
fn files_of(file: &Path) -> impl Iterator<Item = PathBuf> {
    ["", "-wal", "-shm", "-redo", "-log", "-tails", "-sums"]
        .map(|suffix| {
            let mut name = file.as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        })
        .into_iter()
}

/// Quarantines a cache; returns its new path.
pub(super) fn quarantine(file: &Path) -> std::result::Result<PathBuf, OpenError> {
    let stamp = Timestamp::now().0 / 1_000_000_000;
    let mut quarantined = file.as_os_str().to_owned();
    quarantined.push(format!(".aside-{stamp}"));
    let quarantined = PathBuf::from(quarantined);
    move_files(file, &quarantined)?;
    Ok(quarantined)
}

/// Undoes [`quarantine`].
pub(super) fn restore(quarantined: &Path, file: &Path) -> std::result::Result<(), OpenError> {
    move_files(quarantined, file)
}

fn move_files(from: &Path, to: &Path) -> std::result::Result<(), OpenError> {
    // The database last: a move that is interrupted leaves its other files where a mount misses them.
    let files: Vec<_> = std::iter::zip(files_of(from), files_of(to)).collect();
    for (from, to) in files.into_iter().rev() {
        match std::fs::rename(&from, &to) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("moving {} to {}: {error}", from.display(), to.display());
                return Err(OpenError::Cache(message));
            }
        }
    }
    Ok(())
}

/// A changed file of the old cache.
struct UnsentFile {
    /// Directory names from the root, and the file's.
    path: Vec<Vec<u8>>,
    ino: Ino,
    kind: Kind,
    permissions: u16,
    target: Vec<u8>,
    /// The file's content when the old cache last followed the log.
    base: Option<Content>,
}

/// Recovers the unsent changes of the quarantined cache; returns lines on what was recovered and what could not be.
pub(super) fn recover(quarantined: &Path, store: &SqliteStore, cache: &Cache, owner: &Caller) -> Result<Vec<String>> {
    let place = quarantined.display();
    let old = SqliteStore::open_with(quarantined, owner, RECOVERY);
    let opened = old.map_err(|error| error.to_string()).and_then(|old| {
        let unsent = unsent(&old).map_err(|error| error.to_string())?;
        Ok((old, unsent))
    });
    let (old, unsent) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return Ok(vec![format!(
                "nothing could be recovered from the old cache, which is now at {place}: {error}"
            )]);
        }
    };
    let (mut taken, mut notes) = (0, Vec::new());
    for file in &unsent {
        let path = String::from_utf8_lossy(&file.path.join(&b'/')).into_owned();
        match take(&old, file, store, cache, owner) {
            Ok(is_new) => taken += u32::from(is_new),
            Err(error) => notes.push(format!("{path} could not be recovered: {error}")),
        }
    }
    notes.insert(
        0,
        format!("{taken} files with uncommitted changes were recovered from the old cache, which is now at {place}"),
    );
    Ok(notes)
}

fn unsent(old: &SqliteStore) -> Result<Vec<UnsentFile>> {
    let db = old.db();
    let base = tables::base(&db)?;
    let mut inodes: BTreeSet<Ino> = tables::dirty_inodes(&db)?.into_iter().collect();
    for (parent, name) in tables::dirty_names(&db)? {
        if let Ok(Some(found)) = names::find(&db, parent, &name) {
            inodes.insert(found.ino);
        }
    }
    let mut unsent = Vec::new();
    for ino in inodes {
        let Ok(Some(attr)) = nodes::find(&db, ino) else {
            continue;
        };
        let Some(path) = path_of(&db, ino)? else {
            continue;
        };
        let id = tables::identity(&db, ino)?;
        let target = match attr.kind {
            Kind::Symlink => nodes::target(&db, ino)?,
            _ => Vec::new(),
        };
        unsent.push(UnsentFile {
            path,
            ino,
            kind: attr.kind,
            permissions: attr.permissions,
            target,
            base: id.and_then(|id| base.node(id)?.content().cloned()),
        });
    }
    // Directories before their entries.
    unsent.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(unsent)
}

fn path_of(db: &Db, ino: Ino) -> Result<Option<Vec<Vec<u8>>>> {
    let mut path = Vec::new();
    let mut at = ino;
    while at != ROOT {
        let found = db.row("SELECT parent, name FROM dirent WHERE ino = ?1 LIMIT 1", [nodes::signed(at)], |row| {
            Ok((nodes::unsigned(row.get(0)?), row.get::<_, Vec<u8>>(1)?))
        })?;
        let Some((parent, name)) = found else {
            return Ok(None);
        };
        path.push(name);
        at = parent;
        if path.len() > 4096 {
            return Err(StoreError::storage(Errno::LOOP, "a directory is inside itself"));
        }
    }
    path.reverse();
    Ok(Some(path))
}

/// Takes one file over; false where the log has it.
fn take(old: &SqliteStore, file: &UnsentFile, store: &SqliteStore, cache: &Cache, owner: &Caller) -> Result<bool> {
    let Some((name, dirs)) = file.path.split_last() else {
        return Ok(false);
    };
    let mut dir = ROOT;
    for name in dirs {
        dir = directory(store, owner, dir, name)?;
    }
    let found = match store.lookup(dir, name) {
        Ok(attr) => Some(attr),
        Err(error) if error.errno == Errno::NOENT => None,
        Err(error) => return Err(error),
    };
    if file.kind == Kind::Directory {
        directory(store, owner, dir, name)?;
        return Ok(found.is_none());
    }
    let node = NewNode { kind: file.kind, permissions: file.permissions, rdev: 0, target: &file.target };
    if file.kind != Kind::File {
        if found.is_none() {
            store.create(owner, dir, name, &node)?;
        }
        return Ok(found.is_none());
    }
    let bytes = read(old, file.ino)?;
    if let Some(found) = found.filter(|found| found.kind == Kind::File) {
        let id = tables::identity(&store.db(), found.ino)?;
        let now = id.and_then(|id| cache.base().node(id)).and_then(Node::content);
        if now.is_some_and(|now| now.same_bytes(&Content::local(&bytes))) {
            return Ok(false);
        }
        let is_as_it_was = match (&file.base, now) {
            (Some(base), Some(now)) => base.same_bytes(now),
            _ => false,
        };
        if is_as_it_was {
            let forget = |db: &Db| tables::clear_missing(db, found.ino, 0, true);
            store.replace_held(&store.db(), owner, found.ino, &bytes, forget)?;
            return Ok(true);
        }
    }
    let name = match found {
        Some(_) => [name.as_slice(), b".rescued"].concat(),
        None => name.clone(),
    };
    let attr = store.create(owner, dir, &name, &node)?;
    held::write(&store.db(), owner, attr.ino, 0, &bytes)?;
    Ok(true)
}

fn read(old: &SqliteStore, ino: Ino) -> Result<Vec<u8>> {
    let db = old.db();
    if tables::is_placeholder(&db, ino)? {
        let reason = "a part of it was never fetched";
        return Err(StoreError::storage(Errno::IO, reason));
    }
    let size = nodes::get_file(&db, ino)?.size;
    let mut bytes = Vec::new();
    held::read(&db, ino, 0, size as usize, &mut bytes)?;
    Ok(bytes)
}

fn directory(store: &SqliteStore, owner: &Caller, dir: Ino, name: &[u8]) -> Result<Ino> {
    let node = NewNode { kind: Kind::Directory, permissions: 0o755, rdev: 0, target: &[] };
    match store.lookup(dir, name) {
        Ok(attr) => Ok(attr.ino),
        Err(error) if error.errno == Errno::NOENT => Ok(store.create(owner, dir, name, &node)?.ino),
        Err(error) => Err(error),
    }
}
