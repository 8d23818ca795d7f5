//! What had not gone up, read from a cache that may be damaged, and done again in a new one.
//!
//! Nothing here trusts the old file more than it has to: each row that cannot be read costs what it stands for, and no
//! more. What somebody else has changed meanwhile stays, and ours is kept beside it, as in any other conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sha2::{Digest, Sha256};

use super::cache::{self, Object};
use super::old::{Inode, Name, Old, Reason};
use super::{S3Store, layout, object};
use crate::sqlite::nodes::{self, unsigned};
use crate::store::{
    Attr, Caller, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, StoreError,
    Timestamp, XattrMode,
};

/// How many lost files are named; the log has all of them.
const NAMED: usize = 10;

/// What was saved.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    files: usize,
    removals: usize,
    /// Files that are kept beside what others have written.
    beside: usize,
    /// What could not be read or done, and why.
    lost: Vec<String>,
}

impl fmt::Display for Salvaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "what had not gone up was taken from it: {} files and {} removals",
            self.files, self.removals
        )?;
        if self.beside > 0 {
            let count = self.beside;
            write!(f, ", {count} of the files beside what others have written")?;
        }
        if !self.lost.is_empty() {
            let some = &self.lost[..self.lost.len().min(NAMED)];
            let more = if self.lost.len() > NAMED { "; …" } else { "" };
            let (count, some) = (self.lost.len(), some.join("; "));
            write!(
                f,
                "; {count} could not be, and are only there: {some}{more}"
            )?;
        }
        Ok(())
    }
}

/// Where an old file goes.
enum Place {
    /// Its object is as it was: what is there is to be replaced.
    Ours(Ino),
    /// Nothing is there.
    Free,
    /// Somebody has written something else.
    Taken,
}

struct Saving<'a> {
    store: &'a S3Store,
    old: &'a Old,
    writer: &'a str,
    /// Names of the old cache, by what they name.
    names: BTreeMap<Ino, Vec<Name>>,
    /// All names could be read: what is journalled and has none was removed.
    has_all_names: bool,
    /// Directories of the new cache by their numbers in the old one.
    directories: BTreeMap<Ino, Ino>,
    done: Salvaged,
}

impl S3Store {
    /// Does again what an old cache says had not gone up.
    pub(super) fn salvage(&self, old: &Old, writer: &str) -> Salvaged {
        let (names, unread) = old.rows("SELECT parent, name, ino FROM dirent", |row| {
            let name: Name = (unsigned(row.get(0)?), row.get(1)?);
            Ok((unsigned(row.get(2)?), name))
        });
        let mut saving = Saving {
            store: self,
            old,
            writer,
            names: BTreeMap::new(),
            has_all_names: unread.is_none(),
            directories: BTreeMap::from([(ROOT, ROOT)]),
            done: Salvaged::default(),
        };
        saving.lose_unread("names", unread);
        for (ino, name) in names {
            saving.names.entry(ino).or_default().push(name);
        }
        saving.all();
        for lost in &saving.done.lost {
            tracing::error!("{lost}");
        }
        saving.done
    }
}

fn told(error: StoreError) -> Reason {
    error.to_string()
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Saving<'_> {
    fn lose_unread(&mut self, what: &str, unread: Option<Reason>) {
        if let Some(reason) = unread {
            self.done.lost.push(format!("some {what} ({reason})"));
        }
    }

    fn caller(&self) -> Caller {
        Caller {
            now: Timestamp::now(),
            ..self.store.inner.owner
        }
    }

    fn all(&mut self) {
        let name = |row: &rusqlite::Row<'_>| Ok((unsigned(row.get(0)?), row.get(1)?));
        let (mut journal, unread) = self
            .old
            .rows("SELECT parent, name FROM s3_dirty_name", name);
        self.lose_unread("journalled names", unread);
        let ino = |row: &rusqlite::Row<'_>| row.get(0).map(unsigned);
        let (inodes, unread) = self.old.rows("SELECT ino FROM s3_dirty_inode", ino);
        self.lose_unread("journalled files", unread);
        for ino in inodes {
            journal.extend(self.names.get(&ino).into_iter().flatten().cloned());
        }
        let journal: BTreeSet<Name> = journal.into_iter().collect();
        let by_name: BTreeMap<&Name, Ino> = self
            .names
            .iter()
            .flat_map(|(ino, names)| names.iter().map(|name| (name, *ino)))
            .collect();
        let named: Vec<(Name, Option<Ino>)> = journal
            .iter()
            .map(|name| (name.clone(), by_name.get(name).copied()))
            .collect();
        let mut files = Vec::new();
        for (name, ino) in &named {
            let Some(ino) = ino else { continue };
            match self.old.inode(*ino) {
                Ok(inode) if inode.attr.kind == Kind::Directory => {
                    if let Err(reason) = self.directory(*ino) {
                        self.lose(&name.1, &reason);
                    }
                }
                Ok(inode) => files.push((name.clone(), inode)),
                Err(reason) => self.lose(&name.1, &reason),
            }
        }
        for (name, inode) in files {
            match self.file(&name, &inode) {
                Ok(is_beside) => {
                    self.done.files += usize::from(is_beside.is_some());
                    self.done.beside += usize::from(is_beside == Some(true));
                }
                Err(reason) => self.lose(&name.1, &reason),
            }
        }
        let gone = named.iter().filter(|(_, ino)| ino.is_none());
        for (name, _) in gone.rev() {
            if !self.has_all_names {
                self.lose(&name.1, "whether it was removed cannot be read");
                continue;
            }
            match self.remove(name) {
                Ok(is_done) => self.done.removals += usize::from(is_done),
                Err(reason) => self.lose(&name.1, &format!("its removal: {reason}")),
            }
        }
    }

    fn lose(&mut self, name: &[u8], reason: &str) {
        self.done.lost.push(format!("{} ({reason})", shown(name)));
    }

    fn object_of_key(&self, key: &str) -> Result<Option<Object>, Reason> {
        let cache = &self.store.inner.cache;
        cache
            .transaction(|db| cache::object_of_key(db, key))
            .map_err(told)
    }

    /// What a name leads to in the new cache.
    fn there(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>, Reason> {
        match self.store.lookup(parent, name) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(told(error)),
        }
    }

    /// The directory of the new cache that is one of the old: by its prefix in the bucket, else by its path.
    fn directory(&mut self, old: Ino) -> Result<Ino, Reason> {
        if let Some(new) = self.directories.get(&old) {
            return Ok(*new);
        }
        let name = self.names.get(&old).and_then(|names| names.first());
        let Some((old_parent, name)) = name.cloned() else {
            return Err(format!("directory {old} has no name any more"));
        };
        // Against a loop in a damaged file.
        self.directories.insert(old, ROOT);
        let parent = self.directory(old_parent)?;
        let inode = self.old.inode(old)?;
        let prefix = self.old.prefix(old);
        let cache = &self.store.inner.cache;
        let moved = cache.transaction(|db| {
            let dir = match prefix.as_deref() {
                Some(prefix) => cache::directory_of_prefix(db, prefix)?,
                None => None,
            };
            let Some(dir) = dir else { return Ok(None) };
            if nodes::find(db, dir)?.is_none_or(|attr| attr.nlink == 0) {
                return Ok(None);
            }
            let above = nodes::parent(db, dir)?;
            Ok(Some((dir, above, cache::name_of(db, above, dir)?)))
        });
        let there = self.there(parent, &name)?;
        let new = match (moved.map_err(told)?, there) {
            (Some((dir, above, old_name)), None) if dir != ROOT => {
                let (from, to) = ((above, old_name.as_slice()), (parent, name.as_slice()));
                let caller = self.caller();
                let renamed = self.store.rename(&caller, from, to, RenameMode::NoReplace);
                // A directory cannot go below itself: it stays where the bucket has it.
                if let Err(error) = renamed {
                    tracing::warn!(%error, "a renamed directory stays where it was");
                }
                dir
            }
            (Some((dir, ..)), _) => dir,
            (None, Some(attr)) if attr.kind == Kind::Directory => attr.ino,
            (None, Some(_)) => return Err("a file has its name in the bucket".to_owned()),
            (None, None) => {
                let made = self.make(parent, &name, &inode)?;
                made.ino
            }
        };
        let change = Change {
            permissions: Some(inode.attr.permissions),
            ..Change::default()
        };
        let changed = self.store.setattr(&self.caller(), new, &change);
        changed.map_err(told)?;
        self.directories.insert(old, new);
        Ok(new)
    }

    fn make(&self, parent: Ino, name: &[u8], inode: &Inode) -> Result<Attr, Reason> {
        let node = NewNode {
            kind: inode.attr.kind,
            permissions: inode.attr.permissions,
            rdev: inode.attr.rdev,
            target: &inode.target,
        };
        let made = self.store.create(&self.caller(), parent, name, &node);
        made.map_err(told)
    }

    /// Does again what was done to a file; whether it had to be kept beside another. `None` if the bucket has it.
    fn file(&mut self, name: &Name, inode: &Inode) -> Result<Option<bool>, Reason> {
        // A directory that is lost does not take its files with it.
        let parent = self.directory(name.0).unwrap_or(ROOT);
        let known = self.old.object(name)?;
        if let Some((key, etag)) = self.old.stub(inode.attr.ino)? {
            self.rename_unread(parent, &name.1, inode, &key, &etag)?;
            return Ok(Some(false));
        }
        let mut hash = Sha256::new();
        // All of it is read before anything of it is written.
        self.old.content(&inode.attr, &mut |_, bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        let sha256 = match inode.attr.kind {
            Kind::Symlink => object::checksum(&inode.target),
            _ => object::hex(&hash.finalize()),
        };
        let place = self.place(parent, &name.1, inode, known, &sha256)?;
        let Some(place) = place else {
            // It got there before the cache was lost.
            return Ok(None);
        };
        let (ino, is_beside) = match place {
            Place::Ours(ino) => (ino, false),
            Place::Free => (self.make(parent, &name.1, inode)?.ino, false),
            Place::Taken => {
                let mut version = 1;
                let free = loop {
                    let free = layout::conflict_name(&name.1, self.writer, version);
                    if self.there(parent, &free)?.is_none() {
                        break free;
                    }
                    version += 1;
                };
                let ino = self.make(parent, &free, inode)?.ino;
                let told_why =
                    "changed by somebody else while this version was in a cache that was lost";
                let caller = self.caller();
                let (key, value) = (b"user.ctx.conflict", told_why.as_bytes());
                let set = self
                    .store
                    .setxattr(&caller, ino, key, value, XattrMode::Set);
                set.map_err(told)?;
                (ino, true)
            }
        };
        if inode.attr.kind == Kind::File {
            let emptied = Change {
                size: Some(0),
                ..Change::default()
            };
            let caller = self.caller();
            self.store.setattr(&caller, ino, &emptied).map_err(told)?;
            self.old.content(&inode.attr, &mut |at, bytes| {
                self.store.write(&caller, ino, at, bytes).map_err(told)
            })?;
        }
        self.dress(ino, inode)?;
        Ok(Some(is_beside))
    }

    /// Where an old file goes; `None` if the bucket has it.
    fn place(
        &self,
        parent: Ino,
        name: &[u8],
        inode: &Inode,
        known: Option<(String, String)>,
        sha256: &str,
    ) -> Result<Option<Place>, Reason> {
        let Some(there) = self.there(parent, name)? else {
            return Ok(Some(Place::Free));
        };
        if let Some((key, etag)) = known
            && let Some(object) = self.object_of_key(&key)?
            && object.etag == etag
            && object.ino == there.ino
            && there.kind == inode.attr.kind
            && there.kind == Kind::File
        {
            return Ok(Some(Place::Ours(there.ino)));
        }
        let cache = &self.store.inner.cache;
        let objects = cache.transaction(|db| cache::objects_of(db, there.ino));
        let has_it = objects
            .map_err(told)?
            .iter()
            .any(|object| object.meta.sha256 == sha256 && there.kind == inode.attr.kind);
        Ok((!has_it).then_some(Place::Taken))
    }

    /// A file whose content is in the bucket only: its name or its attributes had changed.
    fn rename_unread(
        &self,
        parent: Ino,
        name: &[u8],
        inode: &Inode,
        key: &str,
        etag: &str,
    ) -> Result<(), Reason> {
        let object = self.object_of_key(key)?;
        let Some(object) = object.filter(|object| object.etag == etag) else {
            return Err("its content was in the bucket only, and has changed there".to_owned());
        };
        match self.there(parent, name)? {
            Some(there) if there.ino == object.ino => {}
            Some(_) => return Err("its new name is taken in the bucket".to_owned()),
            None => {
                let from = (object.parent, object.name.as_slice());
                let caller = self.caller();
                let mode = RenameMode::NoReplace;
                let renamed = self.store.rename(&caller, from, (parent, name), mode);
                renamed.map_err(told)?;
            }
        }
        self.dress(object.ino, inode)
    }

    /// Attributes and extended attributes.
    fn dress(&self, ino: Ino, inode: &Inode) -> Result<(), Reason> {
        let caller = self.caller();
        for (name, value) in self.old.xattrs(inode.attr.ino)? {
            let set = self
                .store
                .setxattr(&caller, ino, &name, &value, XattrMode::Set);
            set.map_err(told)?;
        }
        let change = Change {
            permissions: (inode.attr.kind != Kind::Symlink).then_some(inode.attr.permissions),
            uid: Some(inode.attr.uid),
            gid: Some(inode.attr.gid),
            atime: Some(inode.attr.atime),
            mtime: Some(inode.attr.mtime),
            ..Change::default()
        };
        let changed = self.store.setattr(&caller, ino, &change);
        changed.map_err(told)?;
        Ok(())
    }

    /// Removes what was removed, as far as it is still what was removed; whether anything was.
    fn remove(&mut self, name: &Name) -> Result<bool, Reason> {
        let caller = self.caller();
        if let Some((key, etag)) = self.old.object(name)? {
            let object = self.object_of_key(&key)?;
            let Some(object) = object.filter(|object| object.etag == etag) else {
                return Ok(false);
            };
            let there = self.there(object.parent, &object.name)?;
            if there.is_none_or(|there| there.ino != object.ino) {
                return Ok(false);
            }
            let removed = self.store.unlink(&caller, object.parent, &object.name);
            removed.map_err(told)?;
            return Ok(true);
        }
        // A directory that was empty.
        let Some(parent) = self.directories.get(&name.0).copied() else {
            return Ok(false);
        };
        match self.there(parent, &name.1)? {
            Some(attr) if attr.kind == Kind::Directory => {
                // What is in it now is not what was removed.
                Ok(self.store.rmdir(&caller, parent, &name.1).is_ok())
            }
            _ => Ok(false),
        }
    }
}
