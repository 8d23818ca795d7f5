//! Bringing everything up again that is gone from a bucket which was emptied, and not through a mount. Where another has
//! filled it again since, both are kept where they differ.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::Ordering;

use futures::{StreamExt, TryStreamExt, stream};

use super::cache::Object;
use super::forget::Forget;
use super::mark::{Filling, Found as Mark};
use super::object::Meta;
use super::probe::probe;
use super::remote::RemoteError;
use super::stubbed::StubChange;
use super::upload::PARALLEL;
use super::{Inner, cache, known, stub};
use crate::sqlite::db::Db;
use crate::sqlite::nodes::unsigned;
use crate::sqlite::{names, nodes};
use crate::store::{Errno, Ino, ROOT, StoreError};

/// How many lost files are named; the log has all of them.
const NAMED: usize = 10;

/// What goes up again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Refilled {
    was_emptied: bool,
    /// Another has filled it again since.
    was_filled: bool,
    files: usize,
    /// Files that the bucket has with something else in them.
    others: usize,
    /// Files whose content was nowhere but in the bucket, and that the bucket has with something else in them.
    replaced: Vec<String>,
    /// Files whose content was nowhere but in the bucket.
    lost: Vec<String>,
}

fn first(all: &[String]) -> String {
    let more = if all.len() > NAMED { ", …" } else { "" };
    format!("{}{more}", all[..all.len().min(NAMED)].join(", "))
}

impl fmt::Display for Refilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.was_emptied {
            return write!(f, "the bucket was not emptied: there is nothing to refill");
        }
        let since = match self.was_filled {
            true => ", and filled again by another mount",
            false => "",
        };
        let files = self.files;
        write!(
            f,
            "the bucket was emptied{since}: {files} files go up again"
        )?;
        if self.others > 0 {
            let others = self.others;
            write!(
                f,
                "; of {others} that are others there both are kept, theirs under the name"
            )?;
        }
        if !self.replaced.is_empty() {
            let (count, some) = (self.replaced.len(), first(&self.replaced));
            write!(
                f,
                "; {count} whose content was only there are replaced by what is there now: {some}"
            )?;
        }
        if !self.lost.is_empty() {
            let (count, some) = (self.lost.len(), first(&self.lost));
            write!(f, "; {count} whose content was only there are lost: {some}")?;
        }
        Ok(())
    }
}

/// What the bucket has now of what the cache knows.
struct Found {
    gone: HashSet<String>,
    /// The content that is known, with what its object says of it now.
    same: HashMap<String, Meta>,
    /// Another content.
    other: Vec<String>,
}

impl Inner {
    /// Takes what is missing in an emptied bucket for new, and what is another there for changed on both sides.
    pub(super) async fn refill(&self) -> Result<Refilled, StoreError> {
        let Some(known) = self.cache.transaction(known::settings)?.mark else {
            return Ok(Refilled::default());
        };
        let mark = match self.find_mark(&known).await? {
            Mark::Same => return Ok(Refilled::default()),
            Mark::Gone => None,
            Mark::Other(id) => Some(id),
        };
        let found = self.compare().await?;
        let mut refilled = Refilled {
            was_emptied: true,
            was_filled: mark.is_some(),
            ..Refilled::default()
        };
        let mut dropped = HashSet::new();
        self.with_stubs(|db, stubs| {
            cache::applying(db, |db| {
                let mut gone = Vec::new();
                for key in &found.gone {
                    cache::forget_touched(db, key)?;
                    if let Some(object) = cache::object_of_key(db, key)? {
                        cache::remove_object(db, object.parent, &object.name)?;
                        gone.push(object);
                    }
                }
                for (ino, stub, _) in stub::all(db)? {
                    if !found.gone.contains(&stub.key) {
                        continue;
                    }
                    let mut objects = gone.iter();
                    let object = objects.find(|object| object.key == stub.key);
                    // Another name of it may have an object still.
                    let follow = |object: &Object| StubChange::follow(db, object.ino, &object.key);
                    match object.map(follow).transpose()?.flatten() {
                        Some(followed) => stubs.push(followed),
                        None => {
                            dropped.insert(ino);
                        }
                    }
                }
                refilled.lost = self.lose(db, &dropped)?;
                stubs.extend(dropped.iter().copied().map(StubChange::Gone));
                let mut replaced = HashSet::new();
                for object in &gone {
                    refilled.files += usize::from(take_up(db, object)?);
                }
                for key in &found.other {
                    let Some(object) = cache::object_of_key(db, key)? else {
                        continue;
                    };
                    match stub::find(db, object.ino)? {
                        None => refilled.others += usize::from(take_up(db, &object)?),
                        Some(_) => {
                            replaced.insert(object.ino);
                        }
                    }
                }
                refilled.replaced = paths_of(db, &replaced)?;
                for (key, meta) in &found.same {
                    if let Some(object) = cache::object_of_key(db, key)? {
                        adopt(db, object, meta)?;
                    }
                }
                // The manifest is gone with the rest.
                for (dir, prefix, _) in cache::entries(db)? {
                    cache::set_directory(db, dir, &prefix, None)?;
                    cache::journal_inode(db, dir)?;
                }
                Ok(())
            })
        })?;
        for path in &refilled.lost {
            tracing::error!(path, "its content was in the bucket only: it is lost");
        }
        for path in &refilled.replaced {
            tracing::error!(
                path,
                "its content was in the bucket only: another is there now"
            );
        }
        self.changes.fetch_add(1, Ordering::AcqRel);
        // Last: who is interrupted before it finds the bucket emptied still, and begins anew.
        let mark = match mark {
            Some(mark) => mark,
            None => self.mark_anew().await?,
        };
        self.cache.transaction(|db| known::keep_mark(db, &mark))?;
        Ok(refilled)
    }

    async fn mark_anew(&self) -> Result<String, StoreError> {
        let failed = |reason: String| StoreError::storage(Errno::IO, reason);
        match probe(&self.remote, &self.layout, &self.config, Filling::Again).await {
            Ok((_, Some(mark))) => Ok(mark),
            Ok((_, None)) => Err(failed(format!("{} cannot be written", self.layout.mark()))),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Holds what the cache knows against what the bucket has.
    async fn compare(&self) -> Result<Found, StoreError> {
        let files = self.layout.files();
        let listed = self.remote.list(files).await?.into_iter();
        let listed: HashMap<String, String> = listed
            .filter_map(|object| Some((object.key.strip_prefix(files)?.to_owned(), object.etag)))
            .collect();
        let (known, stubs) = self
            .cache
            .transaction(|db| Ok((cache::etags(db)?, stub::all(db)?)))?;
        let stubs = stubs.into_iter().map(|(_, stub, _)| stub.key);
        let missing: HashSet<String> = stubs
            .chain(known.keys().cloned())
            .filter(|key| !listed.contains_key(key))
            .collect();
        let gone = self.gone(missing.into_iter().collect()).await?;
        let there = known
            .into_iter()
            .filter(|(key, _)| listed.contains_key(key));
        let (same, other): (Vec<_>, Vec<_>) =
            there.partition(|(key, (etag, _))| listed.get(key) == Some(etag));
        let asked = stream::iter(same).map(|(key, (etag, _))| async move {
            let at = self.key(&key);
            match self.remote.head(&at).await {
                Ok(head) if head.etag == etag => Ok(Some((key, self.meta_of(&at, &head).await?))),
                // Changed since, or deleted: the next look at the bucket sees it.
                Ok(_) | Err(RemoteError::NotFound(_)) => Ok(None),
                Err(error) => Err(StoreError::from(error)),
            }
        });
        let same: Vec<_> = asked.buffer_unordered(PARALLEL).try_collect().await?;
        Ok(Found {
            gone: gone.into_iter().collect(),
            same: same.into_iter().flatten().collect(),
            other: other.into_iter().map(|(key, _)| key).collect(),
        })
    }

    /// Takes away every name of files whose content is nowhere any more; their paths.
    fn lose(&self, db: &Db, lost: &HashSet<Ino>) -> Result<Vec<String>, StoreError> {
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        let mut paths = Vec::new();
        for (parent, name, ino) in all_names(db)? {
            if lost.contains(&ino) {
                paths.push(path(db, parent, &name)?);
                self.drop_name(db, parent, &name, &mut Forget::default())?;
            }
        }
        paths.sort();
        Ok(paths)
    }
}

/// Journals a file whose object is not what it was, if it has its name still; whether it has.
fn take_up(db: &Db, object: &Object) -> Result<bool, StoreError> {
    let local = names::find(db, object.parent, &object.name)?;
    let is_here = local.is_some_and(|local| local.ino == object.ino);
    if is_here {
        cache::journal(db, object.parent, &object.name, object.ino)?;
    }
    Ok(is_here)
}

/// Takes what an object says of a content that is known. Where that is not what is known, it goes up once more.
fn adopt(db: &Db, object: Object, meta: &Meta) -> Result<(), StoreError> {
    let attributes = |meta: &Meta| {
        let owner = (meta.mode, meta.uid, meta.gid, meta.rdev);
        (owner, meta.modified, meta.xattrs.clone())
    };
    let ino = object.ino;
    let is_same = attributes(&object.meta) == attributes(meta);
    let meta = meta.clone();
    cache::put_object(db, &Object { meta, ..object })?;
    if !is_same {
        cache::journal_inode(db, ino)?;
    }
    Ok(())
}

fn all_names(db: &Db) -> Result<Vec<(Ino, Vec<u8>, Ino)>, StoreError> {
    let mut statement = db.statement("SELECT parent, name, ino FROM dirent")?;
    let rows = statement.query_map((), |row| {
        Ok((unsigned(row.get(0)?), row.get(1)?, unsigned(row.get(2)?)))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Every path of some files.
fn paths_of(db: &Db, inos: &HashSet<Ino>) -> Result<Vec<String>, StoreError> {
    let mut paths = Vec::new();
    if !inos.is_empty() {
        for (parent, name, ino) in all_names(db)? {
            if inos.contains(&ino) {
                paths.push(path(db, parent, &name)?);
            }
        }
    }
    paths.sort();
    Ok(paths)
}

/// Where a name is, from the root.
fn path(db: &Db, mut dir: Ino, name: &[u8]) -> Result<String, StoreError> {
    let mut path = String::from_utf8_lossy(name).into_owned();
    while dir != ROOT {
        let above = nodes::parent(db, dir)?;
        let name = cache::name_of(db, above, dir)?;
        path = format!("{}/{path}", String::from_utf8_lossy(&name));
        dir = above;
    }
    Ok(path)
}
