//! What had not gone up, read from a cache that may be damaged, and done again in a new one.
//!
//! Nothing here trusts the old file more than it has to: each row that cannot be read costs what it stands for, and no
//! more. What somebody else has changed meanwhile stays, and ours is kept beside it, as in any other conflict.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use sha2::{Digest, Sha256};

use super::cache::{self, Object};
use super::old::{Inode, Name, Old, OldObject, Reason, Xattr};
use super::{S3Store, layout, object};
use crate::sqlite::names;
use crate::sqlite::nodes::{self, unsigned};
use crate::store::{
    Attr, Caller, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, StoreError,
    Timestamp, XattrMode,
};

/// How many lost files are named; the log has all of them.
const NAMED: usize = 10;

fn first(all: &[String]) -> String {
    let more = if all.len() > NAMED { "; …" } else { "" };
    format!("{}{more}", all[..all.len().min(NAMED)].join("; "))
}

/// What was saved.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    files: usize,
    removals: usize,
    /// Files that are kept beside what others have written.
    beside: usize,
    /// What could not be read or done, and why.
    lost: Vec<String>,
    /// Names whose files stay, although they may have been removed.
    kept: Vec<String>,
    /// Why they stay.
    doubt: Option<Reason>,
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
            let (count, some) = (self.lost.len(), first(&self.lost));
            write!(f, "; {count} could not be, and are only there: {some}")?;
        }
        if let Some(doubt) = &self.doubt
            && !self.kept.is_empty()
        {
            let (count, some) = (self.kept.len(), first(&self.kept));
            write!(
                f,
                "; {count} removals were not taken over, as {doubt}: {some}"
            )?;
        }
        Ok(())
    }
}

/// Why something was not taken over.
#[derive(Debug)]
pub(super) enum Failed {
    /// It cannot be read in the old cache, or has no place: all others are taken over.
    Here(Reason),
    /// The new cache cannot hold it: nothing is wrong with the old one.
    NewCache(Reason),
}

impl From<Reason> for Failed {
    fn from(reason: Reason) -> Self {
        Self::Here(reason)
    }
}

/// Where an old file goes.
pub(super) enum Place {
    /// Its object is as it was: what is there is to be replaced.
    Ours,
    /// Nothing is there.
    Free,
    /// Somebody has written something else.
    Taken,
}

pub(super) struct Saving<'a> {
    pub(super) store: &'a S3Store,
    pub(super) old: &'a Old,
    writer: &'a str,
    /// Names of the old cache, by what they name.
    pub(super) names: BTreeMap<Ino, Vec<Name>>,
    /// How many files were begun; each has a name of its own until it is whole.
    begun: u64,
    /// Directories of the new cache by their numbers in the old one.
    directories: BTreeMap<Ino, Ino>,
    /// Old inodes that are not under the names they had: what the bucket has of them under others is all there is.
    left: BTreeSet<Ino>,
    done: Salvaged,
}

impl S3Store {
    /// Does again what an old cache says had not gone up.
    ///
    /// # Errors
    /// If the new cache cannot hold it.
    pub(super) fn salvage(&self, old: &Old, writer: &str) -> Result<Salvaged, Reason> {
        let (names, unread) = old.rows("SELECT parent, name, ino FROM dirent", |row| {
            let name: Name = (unsigned(row.get(0)?), row.get(1)?);
            Ok((unsigned(row.get(2)?), name))
        });
        let mut saving = Saving {
            store: self,
            old,
            writer,
            names: BTreeMap::new(),
            begun: 0,
            directories: BTreeMap::from([(ROOT, ROOT)]),
            left: BTreeSet::new(),
            done: Salvaged {
                doubt: old.doubt().or_else(|| unread.clone()),
                ..Salvaged::default()
            },
        };
        saving.lose_unread("names", unread);
        for (ino, name) in names {
            saving.names.entry(ino).or_default().push(name);
        }
        saving.all()?;
        for lost in &saving.done.lost {
            tracing::error!("{lost}");
        }
        Ok(saving.done)
    }
}

pub(super) fn told(error: StoreError) -> Failed {
    // A reason is of the storage: what is asked for in a wrong way has only a number.
    match error.reason {
        Some(_) => Failed::NewCache(error.to_string()),
        None => Failed::Here(error.to_string()),
    }
}

pub(super) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl Saving<'_> {
    fn lose_unread(&mut self, what: &str, unread: Option<Reason>) {
        if let Some(reason) = unread {
            self.done.lost.push(format!("some {what} ({reason})"));
        }
    }

    pub(super) fn caller(&self) -> Caller {
        Caller {
            now: Timestamp::now(),
            ..self.store.inner.owner
        }
    }

    fn all(&mut self) -> Result<(), Reason> {
        let name = |row: &rusqlite::Row<'_>| Ok((unsigned(row.get(0)?), row.get(1)?));
        let (mut journal, unread) = self
            .old
            .rows("SELECT parent, name FROM s3_dirty_name", name);
        self.lose_unread("journalled names", unread);
        let ino = |row: &rusqlite::Row<'_>| row.get(0).map(unsigned);
        let (inodes, unread) = self.old.rows("SELECT ino FROM s3_dirty_inode", ino);
        self.lose_unread("journalled files", unread);
        for ino in inodes {
            match self.names.get(&ino) {
                Some(names) => journal.extend(names.iter().cloned()),
                None if ino == ROOT => {}
                None => match self.old.links(ino) {
                    Ok(None | Some(0)) => {}
                    Ok(Some(_)) => self.lose_inode(ino, "its name is gone"),
                    Err(reason) => self.lose_inode(ino, &reason),
                },
            }
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
        let (mut files, mut unread) = (Vec::new(), Vec::new());
        for (name, ino) in &named {
            let Some(ino) = *ino else { continue };
            let begun = match self.old.inode(ino) {
                Ok(inode) if inode.attr.kind == Kind::Directory => self.directory(ino).map(|_| ()),
                Ok(inode) => self.unread(name, &inode).map(|found| match found {
                    Some(found) => unread.push(found),
                    None => files.push((name, inode)),
                }),
                Err(reason) => Err(reason.into()),
            };
            if let Err(failed) = begun {
                self.note(&name.1, ino, Err(failed))?;
            }
        }
        // First what is in the new cache already: what comes into it may have its name.
        self.move_unread(unread)?;
        for (name, inode) in files {
            let done = self.file(name, &inode);
            self.note(&name.1, inode.attr.ino, done)?;
        }
        let gone = named.iter().filter(|(_, ino)| ino.is_none());
        for (name, _) in gone.rev() {
            match self.remove(name) {
                Ok(is_done) => self.done.removals += usize::from(is_done),
                Err(Failed::Here(reason)) => self.lose(&name.1, &format!("its removal: {reason}")),
                Err(Failed::NewCache(reason)) => return Err(reason),
            }
        }
        Ok(())
    }

    /// Counts a file that was taken over, or not.
    ///
    /// # Errors
    /// If the new cache cannot hold it.
    pub(super) fn note(
        &mut self,
        name: &[u8],
        ino: Ino,
        done: Result<Option<bool>, Failed>,
    ) -> Result<(), Reason> {
        match done {
            Ok(is_beside) => {
                self.done.files += usize::from(is_beside.is_some());
                self.done.beside += usize::from(is_beside == Some(true));
            }
            Err(Failed::Here(reason)) => {
                self.left.insert(ino);
                self.lose(name, &reason);
            }
            Err(Failed::NewCache(reason)) => return Err(reason),
        }
        Ok(())
    }

    fn lose(&mut self, name: &[u8], reason: &str) {
        self.done.lost.push(format!("{} ({reason})", shown(name)));
    }

    fn lose_inode(&mut self, ino: Ino, reason: &str) {
        self.done.lost.push(format!("inode {ino} ({reason})"));
    }

    pub(super) fn object_of_key(&self, key: &str) -> Result<Option<Object>, Failed> {
        let cache = &self.store.inner.cache;
        cache
            .transaction(|db| cache::object_of_key(db, key))
            .map_err(told)
    }

    /// What a name leads to in the new cache.
    pub(super) fn there(&self, parent: Ino, name: &[u8]) -> Result<Option<Attr>, Failed> {
        match self.store.lookup(parent, name) {
            Ok(attr) => Ok(Some(attr)),
            Err(error) if error.errno == Errno::NOENT => Ok(None),
            Err(error) => Err(told(error)),
        }
    }

    /// The directory of the new cache that is one of the old: by its prefix in the bucket, else by its path.
    pub(super) fn directory(&mut self, old: Ino) -> Result<Ino, Failed> {
        if let Some(new) = self.directories.get(&old) {
            return Ok(*new);
        }
        let name = self.names.get(&old).and_then(|names| names.first());
        let Some((old_parent, name)) = name.cloned() else {
            return Err(format!("directory {old} has no name any more").into());
        };
        // Against a loop in a damaged file.
        self.directories.insert(old, ROOT);
        let new = self.make_directory(old, old_parent, name);
        match &new {
            Ok(new) => self.directories.insert(old, *new),
            Err(_) => self.directories.remove(&old),
        };
        new
    }

    fn make_directory(&mut self, old: Ino, old_parent: Ino, name: Vec<u8>) -> Result<Ino, Failed> {
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
                match renamed.map_err(told) {
                    // A directory cannot go below itself: it stays where the bucket has it.
                    Err(Failed::Here(reason)) => {
                        tracing::warn!(reason, "a renamed directory stays where it was");
                    }
                    renamed => {
                        renamed?;
                    }
                }
                dir
            }
            (Some((dir, ..)), _) => dir,
            (None, Some(attr)) if attr.kind == Kind::Directory => attr.ino,
            (None, Some(_)) => return Err("a file has its name in the bucket".to_owned().into()),
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
        Ok(new)
    }

    /// The directory for a file: one that is lost does not take its files with it.
    pub(super) fn directory_or_root(&mut self, old: Ino) -> Result<Ino, Failed> {
        match self.directory(old) {
            Err(Failed::Here(_)) => Ok(ROOT),
            found => found,
        }
    }

    fn make(&self, parent: Ino, name: &[u8], inode: &Inode) -> Result<Attr, Failed> {
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
    fn file(&mut self, name: &Name, inode: &Inode) -> Result<Option<bool>, Failed> {
        let parent = self.directory_or_root(name.0)?;
        // It has its name when it is whole: nothing takes the place of a good file before.
        let unfinished = self.unfinished_name(parent)?;
        let ino = self.make(parent, &unfinished, inode)?.ino;
        let finished = self.finish((parent, &unfinished), ino, name, inode);
        if !matches!(finished, Ok(Some(_))) {
            let caller = self.caller();
            let gone = self.store.unlink(&caller, parent, &unfinished);
            gone.and_then(|gone| gone.map_or(Ok(()), |ino| self.store.reclaim(ino)))
                .map_err(told)?;
        }
        finished
    }

    /// A name that nothing has in a directory.
    pub(super) fn unfinished_name(&mut self, parent: Ino) -> Result<Vec<u8>, Failed> {
        loop {
            self.begun += 1;
            let name = format!(".ctxbench-unfinished-{}", self.begun).into_bytes();
            if self.there(parent, &name)?.is_none() {
                return Ok(name);
            }
        }
    }

    /// Fills a new file with what an old one was, and gives it its name.
    fn finish(
        &self,
        from: (Ino, &[u8]),
        ino: Ino,
        name: &Name,
        inode: &Inode,
    ) -> Result<Option<bool>, Failed> {
        let caller = self.caller();
        let parent = from.0;
        let sha256 = match inode.attr.kind {
            Kind::Symlink => object::checksum(&inode.target),
            Kind::File => {
                let mut hash = Sha256::new();
                let is_doubtful = self.done.doubt.is_some();
                self.old
                    .content(&inode.attr, is_doubtful, &mut |at, bytes| {
                        hash.update(bytes);
                        self.store.write(&caller, ino, at, bytes).map_err(told)
                    })?;
                object::hex(&hash.finalize())
            }
            _ => object::checksum(&[]),
        };
        let known = self.old.object(name)?;
        let place = self.place(parent, &name.1, inode, known.as_ref(), &sha256)?;
        let Some(place) = place else {
            // It got there before the cache was lost.
            return Ok(None);
        };
        self.dress(ino, inode, &self.old.xattrs(inode.attr.ino)?)?;
        let (to, mode) = self.name_for(&place, ino, parent, &name.1)?;
        let replaced = self.store.rename(&caller, from, (parent, &to), mode);
        self.clear_away(replaced.map_err(told)?);
        Ok(Some(matches!(place, Place::Taken)))
    }

    /// The name that a file gets in a place; one beside another's says so.
    pub(super) fn name_for(
        &self,
        place: &Place,
        ino: Ino,
        parent: Ino,
        name: &[u8],
    ) -> Result<(Vec<u8>, RenameMode), Failed> {
        match place {
            Place::Ours => Ok((name.to_owned(), RenameMode::Replace)),
            Place::Free => Ok((name.to_owned(), RenameMode::NoReplace)),
            Place::Taken => {
                let told_why =
                    "changed by somebody else while this version was in a cache that was lost";
                let (key, value) = (b"user.ctx.conflict", told_why.as_bytes());
                let caller = self.caller();
                let set = self
                    .store
                    .setxattr(&caller, ino, key, value, XattrMode::Set);
                set.map_err(told)?;
                Ok((self.conflict_name(parent, name)?, RenameMode::NoReplace))
            }
        }
    }

    /// Frees what was replaced.
    pub(super) fn clear_away(&self, replaced: Option<Ino>) {
        if let Some(replaced) = replaced
            && let Err(error) = self.store.reclaim(replaced)
        {
            // The next mount does.
            tracing::warn!(%error, "what was replaced is not cleared away yet");
        }
    }

    /// The first name beside another that says whose version it is, and that nothing has.
    pub(super) fn conflict_name(&self, parent: Ino, name: &[u8]) -> Result<Vec<u8>, Failed> {
        let mut version = 1;
        loop {
            let free = layout::conflict_name(name, self.writer, version);
            if self.there(parent, &free)?.is_none() {
                return Ok(free);
            }
            version += 1;
        }
    }

    /// Where an old file goes; `None` if the bucket has it.
    pub(super) fn place(
        &self,
        parent: Ino,
        name: &[u8],
        inode: &Inode,
        known: Option<&OldObject>,
        sha256: &str,
    ) -> Result<Option<Place>, Failed> {
        let Some(there) = self.there(parent, name)? else {
            return Ok(Some(Place::Free));
        };
        if let Some(known) = known
            && let Some(object) = self.object_of_key(&known.key)?
            && object.etag == known.etag
            && object.ino == there.ino
            && there.kind != Kind::Directory
        {
            return Ok(Some(Place::Ours));
        }
        let cache = &self.store.inner.cache;
        let objects = cache.transaction(|db| cache::objects_of(db, there.ino));
        let has_it = objects
            .map_err(told)?
            .iter()
            .any(|object| object.meta.sha256 == sha256 && there.kind == inode.attr.kind);
        // What another tool has written says nothing of its content.
        Ok((!has_it || sha256.is_empty()).then_some(Place::Taken))
    }

    /// Attributes and extended attributes.
    pub(super) fn dress(&self, ino: Ino, inode: &Inode, xattrs: &[Xattr]) -> Result<(), Failed> {
        let caller = self.caller();
        for (name, value) in xattrs {
            let set = self
                .store
                .setxattr(&caller, ino, name, value, XattrMode::Set);
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

    /// Whether an old inode has lost a name because somebody took it, and not because it cannot be read.
    fn has_lost_a_name(&self, ino: Ino) -> Result<bool, Reason> {
        let links = self.old.links(ino)?;
        Ok(links.is_none_or(|links| links == 0) || self.names.contains_key(&ino))
    }

    /// Whether a name may be removed; if not, that it stays is noted.
    fn may_remove(&mut self, name: &Name, old: Ino) -> Result<bool, Failed> {
        if self.done.doubt.is_some() {
            self.done.kept.push(shown(&name.1));
            return Ok(false);
        }
        if !self.has_lost_a_name(old)? {
            return Err("its file is still there, without a name".to_owned().into());
        }
        if self.left.contains(&old) {
            let reason = "its file could not be taken over under its new name";
            return Err(reason.to_owned().into());
        }
        Ok(true)
    }

    /// Removes what was removed, as far as it is still what was removed; whether anything was.
    fn remove(&mut self, name: &Name) -> Result<bool, Failed> {
        let caller = self.caller();
        if let Some(known) = self.old.object(name)? {
            let object = self.object_of_key(&known.key)?;
            let Some(object) = object.filter(|object| object.etag == known.etag) else {
                return Ok(false);
            };
            let there = self.there(object.parent, &object.name)?;
            if there.is_none_or(|there| there.ino != object.ino)
                || !self.may_remove(name, known.ino)?
            {
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
        let there = self.there(parent, &name.1)?;
        let Some(dir) = there.filter(|attr| attr.kind == Kind::Directory) else {
            return Ok(false);
        };
        let cache = &self.store.inner.cache;
        let found = cache.transaction(|db| {
            // What is in it now is not what was removed.
            match names::is_empty(db, dir.ino)? {
                true => cache::directory(db, dir.ino),
                false => Ok(None),
            }
        });
        let Some((prefix, _)) = found.map_err(told)? else {
            return Ok(false);
        };
        // One that the old cache did not know is somebody else's.
        let Some(old) = self.old.directory_of_prefix(&prefix)? else {
            return Ok(false);
        };
        // It was not this one that was removed: it has a name still.
        if self.names.contains_key(&old) || !self.may_remove(name, old)? {
            return Ok(false);
        }
        let removed = self.store.rmdir(&caller, parent, &name.1);
        removed.map_err(told)?;
        Ok(true)
    }
}
