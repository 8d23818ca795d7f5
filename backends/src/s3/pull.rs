//! Bringing in what others have changed: a listing, held against what this mount knows.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};

use super::cache::{self, DIRECTORY_PERMISSIONS, Entry, Manifest, Object, Stub};
use super::fetch::PART;
use super::forget::Forget;
use super::layout::Layout;
use super::object::{self, Meta};
use super::remote::{Expect, Fetched, Listed, Remote, RemoteError};
use super::upload::Parts;
use super::{Inner, Stubbed, layout};
use crate::sqlite::db::Db;
use crate::sqlite::{content, names, nodes, xattrs};
use crate::store::{Attr, Caller, Errno, Ino, Kind, ROOT, Store, StoreError, Timestamp, XattrMode};

/// Requests under way at once.
const PARALLEL: usize = 32;

/// From so many unknown objects on, the writers' indexes are asked before the objects themselves.
const ASK_INDEXES_FROM: usize = 4;

/// What a writer says of the objects it has written, so that listing them needs no request for each. It is a
/// hint: what is not in it, or has another entity tag, is asked for.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Index {
    pub(super) writer: String,
    pub(super) objects: BTreeMap<String, (String, Meta)>,
}

/// A file whose content has to be fetched, but for some parts.
struct NewStub {
    ino: Ino,
    stub: Stub,
    parts: Vec<u64>,
}

/// A directory on its way from one name to another.
struct Moved {
    dir: Ino,
    from: Ino,
    old: Vec<u8>,
    entry: Entry,
}

/// An object whose attributes are known.
struct News {
    listed: Listed,
    key: String,
    meta: Meta,
    /// Of a symbolic link.
    target: Vec<u8>,
    /// Parts of a large file that are here and have not changed.
    kept: Vec<u64>,
}

/// One look at a bucket.
pub(super) struct Look {
    listed: Result<Vec<Listed>, RemoteError>,
    /// `None` if it is the one that is known.
    manifest: Result<Option<Fetched>, RemoteError>,
    /// Where they were asked for.
    indexes: Option<Result<Vec<Fetched>, RemoteError>>,
}

/// Looks at a bucket: everything at once, the writers' indexes too for a mount that knows nothing yet.
pub(super) async fn look(
    remote: &Remote,
    layout: &Layout,
    known_manifest: Option<&str>,
    with_indexes: bool,
) -> Look {
    let manifest = layout.manifest();
    let indexes = async {
        match with_indexes {
            true => Some(indexes_of(remote, layout).await),
            false => None,
        }
    };
    let (listed, manifest, indexes) = tokio::join!(
        remote.list(layout.files()),
        remote.get_unless(&manifest, known_manifest),
        indexes
    );
    Look {
        listed,
        manifest,
        indexes,
    }
}

async fn indexes_of(remote: &Remote, layout: &Layout) -> Result<Vec<Fetched>, RemoteError> {
    let listed = remote.list(&layout.indexes()).await?;
    let fetched = stream::iter(listed)
        .map(|index| async move { remote.get(&index.key).await })
        .buffer_unordered(PARALLEL);
    fetched.try_collect().await
}

impl Inner {
    /// Looks at the bucket once, and takes in what changed.
    pub(super) async fn pull(&self) -> Result<(), StoreError> {
        let known = self.manifest_etag();
        let look = look(&self.remote, &self.layout, known.as_deref(), false);
        self.take_in(look.await).await
    }

    /// Takes in what changed.
    pub(super) async fn take_in(&self, look: Look) -> Result<(), StoreError> {
        self.tally.polls.fetch_add(1, Ordering::Relaxed);
        let files = self.layout.files();
        let Look {
            listed,
            manifest,
            indexes,
        } = look;
        let listed = listed?;
        let manifest: Option<(Manifest, String)> = match manifest {
            Ok(Some(fetched)) => Some((self.parse_json(&fetched.body)?, fetched.etag)),
            Ok(None) | Err(RemoteError::NotFound(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let known = self.cache.transaction(cache::etags)?;
        let touched = manifest.as_ref().map(|(manifest, _)| &manifest.touched);
        let mut unknown = Vec::new();
        let mut seen = HashSet::new();
        for object in listed {
            let Some(key) = object.key.strip_prefix(files) else {
                continue;
            };
            let key = key.to_owned();
            let version = touched.and_then(|touched| touched.get(&key)).copied();
            let version = version.unwrap_or(0);
            let is_news = known
                .get(&key)
                .is_none_or(|known| known.0 != object.etag || known.1 < version);
            seen.insert(key.clone());
            if is_news {
                unknown.push((key, object, version));
            }
        }
        let gone: Vec<String> = known
            .into_keys()
            .filter(|key| !seen.contains(key))
            .collect();
        if unknown.is_empty() && gone.is_empty() && manifest.is_none() {
            return Ok(());
        }
        let news = self.ask(unknown, indexes).await?;
        self.tally
            .pulled
            .fetch_add((news.len() + gone.len()) as u64, Ordering::Relaxed);
        let mut forget = Forget::default();
        let mut stubs = Vec::new();
        self.cache.transaction(|db| {
            cache::applying(db, |db| {
                // What is gone makes room for what was moved, and that for what is new.
                let mut left = Vec::new();
                for key in &gone {
                    left.extend(self.apply_gone(db, key, &mut forget)?);
                }
                if let Some((manifest, _)) = &manifest {
                    left.extend(self.apply_manifest(db, manifest, &mut forget)?);
                }
                for object in &news {
                    stubs.extend(self.apply(db, object, &mut forget)?);
                }
                for dir in left {
                    self.prune(db, dir, &mut forget)?;
                }
                Ok(())
            })
        })?;
        if let Some((_, etag)) = manifest {
            self.set_manifest_etag(etag);
        }
        self.add_stubs(stubs);
        self.kernel.tell(forget);
        Ok(())
    }

    /// The attributes of objects: from their writers' indexes where many are unknown, else from themselves.
    async fn ask(
        &self,
        unknown: Vec<(String, Listed, u64)>,
        indexes: Option<Result<Vec<Fetched>, RemoteError>>,
    ) -> Result<Vec<News>, StoreError> {
        let indexes = match indexes {
            Some(indexes) => self.read_indexes(indexes?),
            None if unknown.len() >= ASK_INDEXES_FROM => {
                self.read_indexes(indexes_of(&self.remote, &self.layout).await?)
            }
            None => HashMap::new(),
        };
        let asked = stream::iter(unknown).map(|(key, listed, version)| {
            let hint = indexes.get(&(key.clone(), listed.etag.clone()));
            // An index may be older than the attributes.
            let hint = hint.filter(|meta| meta.version >= version).cloned();
            async move {
                if let Some(meta) = hint {
                    let target = self.target(&listed.key, &meta).await?;
                    let kept = self.unchanged_parts(&key, &listed.etag, &meta).await?;
                    return Ok(Some(News {
                        listed,
                        key,
                        meta,
                        target,
                        kept,
                    }));
                }
                match self.remote.head(&listed.key).await {
                    Ok(head) => {
                        let meta = self.meta_of(&listed.key, &head).await?;
                        let listed = Listed {
                            etag: head.etag,
                            size: head.size,
                            ..listed
                        };
                        let target = self.target(&listed.key, &meta).await?;
                        let kept = self.unchanged_parts(&key, &listed.etag, &meta).await?;
                        Ok(Some(News {
                            listed,
                            key,
                            meta,
                            target,
                            kept,
                        }))
                    }
                    Err(RemoteError::NotFound(_)) => Ok(None),
                    // A key that no path can have: `check-store` lists it.
                    Err(RemoteError::Other(reason)) if reason.starts_with("key ") => {
                        tracing::debug!(reason, "left alone");
                        Ok(None)
                    }
                    Err(error) => Err(StoreError::from(error)),
                }
            }
        });
        let asked: Vec<Option<News>> = asked.buffer_unordered(PARALLEL).try_collect().await?;
        Ok(asked.into_iter().flatten().collect())
    }

    /// Which parts of a large file that is here are the same in a new version of it.
    async fn unchanged_parts(
        &self,
        key: &str,
        etag: &str,
        meta: &Meta,
    ) -> Result<Vec<u64>, StoreError> {
        if meta.size <= PART {
            return Ok(Vec::new());
        }
        let known = self.cache.transaction(|db| cache::object_of_key(db, key))?;
        let Some(known) = known else {
            return Ok(Vec::new());
        };
        let digests = match self.remote.get(&self.layout.parts(&self.key(key))).await {
            Ok(fetched) => self.parse_json::<Parts>(&fetched.body),
            Err(error) => Err(error),
        };
        // Without it, all of the file is fetched anew.
        let Some(digests) = digests.ok().filter(|digests| digests.etag == etag) else {
            return Ok(Vec::new());
        };
        let mut kept = Vec::new();
        for (part, digest) in (0..).zip(&digests.sha256) {
            let range = part * PART..(part + 1) * PART;
            let mut bytes = Vec::new();
            if self.is_here(known.ino, &range)
                && self
                    .cache
                    .read(known.ino, range.start, PART as usize, &mut bytes)
                    .is_ok()
                && object::checksum(&bytes) == *digest
            {
                kept.push(part);
            }
        }
        Ok(kept)
    }

    /// Where a symbolic link points: nothing for anything else.
    async fn target(&self, key: &str, meta: &Meta) -> Result<Vec<u8>, StoreError> {
        if meta.kind() != Kind::Symlink {
            return Ok(Vec::new());
        }
        let fetched = self.remote.get(key).await?;
        let target = object::open(&fetched.body, self.seal.as_ref());
        target.map_err(|error| StoreError::storage(Errno::IO, format!("{key}: {error}")))
    }

    /// What an object says of its file, in its metadata, or in front matter if another tool has dropped that.
    pub(super) async fn meta_of(&self, key: &str, head: &Fetched) -> Result<Meta, RemoteError> {
        if let Some(mut meta) = Meta::from_attributes(&head.attributes, self.seal.as_ref()) {
            let is_whole =
                super::upload::object_length(meta.header + meta.size, self.seal.is_some())
                    == head.size;
            if !is_whole && self.seal.is_none() && meta.kind() == Kind::File {
                tracing::warn!(
                    key,
                    "its length is not what its metadata says: its bytes are taken as they are"
                );
                meta.size = head.size;
                meta.header = 0;
            }
            return Ok(meta);
        }
        let mut meta = Meta::foreign(head.size, head.modified, self.owner.uid, self.owner.gid);
        if self.seal.is_none() && layout::is_markdown(key.as_bytes()) && head.size > 0 {
            let range = 0..head.size.min(1024);
            let start = self.remote.get_range(key, range, &head.etag).await?;
            if let Some((length, version, writer)) = object::parse_front_matter(&start.body) {
                meta.header = if self.config.front_matter_visible {
                    0
                } else {
                    length
                };
                meta.size = head.size - meta.header;
                (meta.version, meta.writer) = (version, writer);
            }
        }
        Ok(meta)
    }

    fn read_indexes(&self, fetched: Vec<Fetched>) -> HashMap<(String, String), Meta> {
        let mut all = HashMap::new();
        for index in fetched {
            match self.parse_json::<Index>(&index.body) {
                Ok(index) => {
                    let objects = index.objects.into_iter();
                    all.extend(objects.map(|(key, (etag, meta))| ((key, etag), meta)));
                }
                // It is a hint: without it, every object is asked for.
                Err(error) => tracing::warn!(%error, "an index cannot be read"),
            }
        }
        all
    }

    /// Tells others what this mount has written.
    pub(super) async fn write_index(&self) -> Result<(), StoreError> {
        let objects = self.cache.transaction(cache::objects)?;
        let ours = objects
            .into_iter()
            .filter(|object| object.meta.writer == self.config.writer);
        let index = Index {
            writer: self.config.writer.clone(),
            objects: ours
                .map(|object| (object.key, (object.etag, object.meta)))
                .collect(),
        };
        let key = self.layout.index();
        self.put_json(&key, &index, &Expect::Anything).await?;
        Ok(())
    }

    /// The directory of a prefix, made with those above it where it is not there yet. `None` if a file is in the way.
    fn directory(
        &self,
        db: &Db,
        prefix: &str,
        manifest: Option<&Manifest>,
        forget: &mut Forget,
    ) -> Result<Option<Ino>, StoreError> {
        if prefix.is_empty() {
            return Ok(Some(ROOT));
        }
        if let Some(dir) = cache::directory_of_prefix(db, prefix)? {
            if nodes::find(db, dir)?.is_some_and(|attr| attr.nlink > 0) {
                return Ok(Some(dir));
            }
            cache::remove_directory(db, prefix)?;
        }
        let entry = manifest.and_then(|manifest| manifest.directories.get(prefix));
        let (above, component) = match entry {
            Some(entry) => (entry.parent.as_str(), entry.name.as_str()),
            None => cache::split_prefix(prefix),
        };
        if above.len() >= prefix.len() && entry.is_none() {
            return Ok(None);
        }
        let Some(parent) = self.directory(db, above, manifest, forget)? else {
            return Ok(None);
        };
        let Some(name) = layout::name(component, self.seal.as_ref()) else {
            return Ok(None);
        };
        if let Some(there) = names::find(db, parent, &name)? {
            let attr = nodes::get(db, there.ino)?;
            if attr.kind != Kind::Directory {
                tracing::warn!(
                    prefix,
                    "a file here has the name of a directory there: it is not shown"
                );
                return Ok(None);
            }
            // Made on both sides: one directory, whichever prefix it has here.
            if cache::directory(db, there.ino)?.is_none() {
                cache::set_directory(db, there.ino, prefix, entry)?;
            }
            return Ok(Some(there.ino));
        }
        let permissions = entry.map_or(DIRECTORY_PERMISSIONS, |entry| entry.permissions);
        let dir = self.make(
            db,
            parent,
            &name,
            (Kind::Directory, permissions, b""),
            forget,
        )?;
        cache::set_directory(db, dir.ino, prefix, entry)?;
        Ok(Some(dir.ino))
    }

    /// Creates an inode with a name.
    fn make(
        &self,
        db: &Db,
        parent: Ino,
        name: &[u8],
        (kind, permissions, target): (Kind, u16, &[u8]),
        forget: &mut Forget,
    ) -> Result<Attr, StoreError> {
        let now = Timestamp::now();
        let is_directory = kind == Kind::Directory;
        let attr = Attr {
            ino: self.cache.new_ino()?,
            kind,
            permissions,
            nlink: if is_directory { 2 } else { 1 },
            uid: self.owner.uid,
            gid: self.owner.gid,
            rdev: 0,
            size: target.len() as u64,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        names::insert(db, parent, name, attr.ino, kind)?;
        nodes::insert(db, &attr, is_directory.then_some(parent), target)?;
        nodes::names_changed(db, parent, &self.caller(), i32::from(is_directory))?;
        forget.names.push((parent, name.to_vec()));
        forget.inodes.push(parent);
        Ok(attr)
    }

    fn caller(&self) -> Caller {
        Caller {
            now: Timestamp::now(),
            ..self.owner
        }
    }

    /// Puts directories where the manifest says, all at once: two may have changed places. One that has been
    /// moved here, too, or whose place is taken, stays where it is. Answers the directories that nothing is said
    /// of any more.
    fn apply_manifest(
        &self,
        db: &Db,
        manifest: &Manifest,
        forget: &mut Forget,
    ) -> Result<Vec<Ino>, StoreError> {
        let mut moves = Vec::new();
        for (prefix, entry) in &manifest.directories {
            if let Some(dir) = cache::directory_of_prefix(db, prefix)?
                && let Some((_, said)) = cache::directory(db, dir)?
                && said.as_ref() != Some(entry)
                && nodes::find(db, dir)?.is_some_and(|attr| attr.nlink > 0)
            {
                moves.extend(self.take_out(db, dir, entry)?);
            }
        }
        let mut plain = Vec::new();
        for (dir, prefix, said) in cache::entries(db)? {
            if manifest.directories.contains_key(&prefix) {
                continue;
            }
            // Nothing is said of it any more: it is where its keys say, or gone.
            cache::set_directory(db, dir, &prefix, None)?;
            let (parent, name) = cache::split_prefix(&prefix);
            let entry = Entry {
                parent: parent.to_owned(),
                name: name.to_owned(),
                permissions: DIRECTORY_PERMISSIONS,
            };
            if said != entry && nodes::find(db, dir)?.is_some_and(|attr| attr.nlink > 0) {
                moves.extend(self.take_out(db, dir, &entry)?);
            }
            plain.push(dir);
        }
        for (prefix, entry) in &manifest.directories {
            let Some(dir) = self.directory(db, prefix, Some(manifest), forget)? else {
                continue;
            };
            let is_same = cache::directory(db, dir)?.is_some_and(|(own, _)| own == *prefix);
            if !is_same || cache::is_dirty_inode(db, dir)? {
                continue;
            }
            let mut attr = nodes::get(db, dir)?;
            if attr.permissions != entry.permissions {
                attr.permissions = entry.permissions;
                attr.ctime = Timestamp::now();
                nodes::update(db, &attr)?;
                forget.inodes.push(dir);
            }
            cache::set_directory(db, dir, prefix, Some(entry))?;
        }
        for moved in moves {
            self.put_back(db, moved, manifest, forget)?;
        }
        Ok(plain)
    }

    /// Takes a directory's name away, if it is to be elsewhere and has not been moved here.
    fn take_out(&self, db: &Db, dir: Ino, entry: &Entry) -> Result<Option<Moved>, StoreError> {
        let from = nodes::parent(db, dir)?;
        let old = cache::name_of(db, from, dir)?;
        let above = cache::directory_of_prefix(db, &entry.parent)?;
        let name = layout::name(&entry.name, self.seal.as_ref());
        if (above == Some(from) && name.as_ref() == Some(&old))
            || name.is_none()
            || cache::is_dirty_name(db, from, &old)?
        {
            return Ok(None);
        }
        let slot = names::get(db, from, &old)?.slot;
        names::remove(db, from, slot)?;
        Ok(Some(Moved {
            dir,
            from,
            old,
            entry: entry.clone(),
        }))
    }

    /// Gives a directory that was taken out the name that it is to have.
    fn put_back(
        &self,
        db: &Db,
        moved: Moved,
        manifest: &Manifest,
        forget: &mut Forget,
    ) -> Result<(), StoreError> {
        let Moved {
            dir,
            from,
            old,
            entry,
        } = moved;
        let to = self.directory(db, &entry.parent, Some(manifest), forget)?;
        let name = layout::name(&entry.name, self.seal.as_ref());
        let mut place = None;
        if let (Some(to), Some(name)) = (to, name)
            && names::find(db, to, &name)?.is_none()
        {
            place = Some((to, name));
        }
        let (to, name) = match place {
            Some(place) => place,
            None => {
                tracing::warn!(
                    to = entry.name,
                    "a directory that others have renamed stays where it is: its new name is taken here"
                );
                (from, self.free_name(db, from, &old)?)
            }
        };
        let caller = self.caller();
        names::insert(db, to, &name, dir, Kind::Directory)?;
        nodes::names_changed(db, from, &caller, -1)?;
        nodes::names_changed(db, to, &caller, 1)?;
        nodes::set_parent(db, dir, to)?;
        forget.names.extend([(from, old), (to, name)]);
        forget.inodes.extend([from, to]);
        Ok(())
    }

    /// A name that is not taken: the given one, or one like it.
    fn free_name(&self, db: &Db, dir: Ino, name: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut free = name.to_vec();
        let mut other = 0;
        while names::find(db, dir, &free)?.is_some() {
            other += 1;
            free = layout::conflict_name(name, &self.config.writer, other);
        }
        Ok(free)
    }

    /// Takes in an object that is new or changed; the stub that comes of it.
    fn apply(
        &self,
        db: &Db,
        news: &News,
        forget: &mut Forget,
    ) -> Result<Option<NewStub>, StoreError> {
        let (prefix, component) = match news.key.rfind('/') {
            Some(at) => news.key.split_at(at + 1),
            None => ("", news.key.as_str()),
        };
        let component = news.meta.name.as_deref().unwrap_or(component);
        let Some(name) = layout::name(component, self.seal.as_ref()) else {
            // Not ours, or the marker that some tools make of a directory.
            return Ok(None);
        };
        let Some(parent) = self.directory(db, prefix, None, forget)? else {
            return Ok(None);
        };
        let known = cache::object(db, parent, &name)?;
        let local = names::find(db, parent, &name)?;
        if cache::is_dirty_name(db, parent, &name)?
            || known.is_none() && local.is_some()
            || match &local {
                Some(local) => cache::is_dirty_inode(db, local.ino)?,
                None => false,
            }
        {
            // Changed on both sides: the next batch meets it, and keeps both.
            return Ok(None);
        }
        let kind = news.meta.kind();
        let attr = match local {
            Some(local) => {
                let attr = nodes::get(db, local.ino)?;
                if attr.kind != kind || kind != Kind::File || attr.nlink > 1 {
                    self.drop_name(db, parent, &name, forget)?;
                    None
                } else {
                    Some(attr)
                }
            }
            None => None,
        };
        let is_new = attr.is_none();
        let attr = match attr {
            Some(attr) => attr,
            None => {
                let what = (kind, news.meta.permissions(), news.target.as_slice());
                self.make(db, parent, &name, what, forget)?
            }
        };
        self.place(db, parent, name, attr, is_new, news, forget)
    }

    #[expect(clippy::too_many_arguments, reason = "one step, cut out to be read")]
    fn place(
        &self,
        db: &Db,
        parent: Ino,
        name: Vec<u8>,
        mut attr: Attr,
        is_new: bool,
        news: &News,
        forget: &mut Forget,
    ) -> Result<Option<NewStub>, StoreError> {
        let meta = &news.meta;
        attr.permissions = meta.permissions();
        (attr.uid, attr.gid) = (meta.uid, meta.gid);
        attr.rdev = meta.rdev;
        attr.mtime = Timestamp(meta.modified);
        attr.btime = Timestamp(meta.created);
        attr.ctime = Timestamp::now();
        let is_file = attr.kind == Kind::File;
        let known = cache::object_of_key(db, &news.key)?;
        let has_content = !is_new
            && known.is_some_and(|known| known.ino == attr.ino && known.etag == news.listed.etag)
            && attr.size == meta.size;
        if is_file && !has_content {
            if news.kept.is_empty() {
                content::truncate(db, &mut attr, 0)?;
            }
            content::truncate(db, &mut attr, meta.size)?;
        }
        nodes::update(db, &attr)?;
        if !is_new {
            xattrs::clear(db, attr.ino)?;
        }
        for (xattr, value) in meta.xattrs() {
            self.cache.expect_xattrs();
            xattrs::set(db, &self.caller(), attr.ino, &xattr, &value, XattrMode::Set)?;
        }
        cache::put_object(
            db,
            &Object {
                parent,
                name,
                key: news.key.clone(),
                ino: attr.ino,
                etag: news.listed.etag.clone(),
                meta: meta.clone(),
            },
        )?;
        forget.inodes.push(attr.ino);
        if has_content {
            // Only attributes changed: what is here of the content stays here.
            return Ok(None);
        }
        if !is_file || meta.size == 0 {
            cache::remove_stub(db, attr.ino)?;
            return Ok(None);
        }
        let stub = Stub {
            key: news.key.clone(),
            etag: news.listed.etag.clone(),
            size: news.listed.size,
            meta: meta.clone(),
        };
        cache::put_stub(db, attr.ino, &stub)?;
        for part in &news.kept {
            cache::put_part(db, attr.ino, *part)?;
        }
        Ok(Some(NewStub {
            ino: attr.ino,
            stub,
            parts: news.kept.clone(),
        }))
    }

    /// Takes away what others have deleted, unless it has changed here; the directory that it was in.
    fn apply_gone(
        &self,
        db: &Db,
        key: &str,
        forget: &mut Forget,
    ) -> Result<Option<Ino>, StoreError> {
        let Some(object) = cache::object_of_key(db, key)? else {
            return Ok(None);
        };
        let is_ours = cache::is_dirty_inode(db, object.ino)?
            || cache::is_dirty_name(db, object.parent, &object.name)?;
        if is_ours {
            return Ok(None);
        }
        cache::remove_object(db, object.parent, &object.name)?;
        let local = names::find(db, object.parent, &object.name)?;
        if local.is_none_or(|local| local.ino != object.ino) {
            return Ok(None);
        }
        self.drop_name(db, object.parent, &object.name, forget)?;
        Ok(Some(object.parent))
    }

    fn drop_name(
        &self,
        db: &Db,
        parent: Ino,
        name: &[u8],
        forget: &mut Forget,
    ) -> Result<(), StoreError> {
        let found = names::get(db, parent, name)?;
        let caller = self.caller();
        let is_directory = nodes::get(db, found.ino)?.kind == Kind::Directory;
        names::remove(db, parent, found.slot)?;
        nodes::names_changed(db, parent, &caller, -i32::from(is_directory))?;
        // Who has it open keeps it; the next mount clears it away.
        nodes::drop_name(db, found.ino, &caller)?;
        forget.names.push((parent, name.to_vec()));
        forget.inodes.push(parent);
        Ok(())
    }

    /// Takes away directories that hold nothing, and that neither the manifest nor the journal knows.
    fn prune(&self, db: &Db, mut dir: Ino, forget: &mut Forget) -> Result<(), StoreError> {
        while dir != ROOT
            && nodes::find(db, dir)?.is_some_and(|attr| attr.nlink > 0)
            && names::is_empty(db, dir)?
        {
            let Some((prefix, None)) = cache::directory(db, dir)? else {
                return Ok(());
            };
            let parent = nodes::parent(db, dir)?;
            let name = cache::name_of(db, parent, dir)?;
            if cache::is_dirty_name(db, parent, &name)? {
                return Ok(());
            }
            self.drop_name(db, parent, &name, forget)?;
            cache::remove_directory(db, &prefix)?;
            dir = parent;
        }
        Ok(())
    }

    /// Both versions of a file stay: theirs under the name, ours under one that says whose it is.
    pub(super) async fn resolve_conflict(
        &self,
        put: &super::plan::Put,
        theirs: &Fetched,
    ) -> Result<(), StoreError> {
        let seal = self.seal.as_ref();
        let Some(meta) = Meta::from_attributes(&theirs.attributes, seal).or_else(|| {
            seal.is_none().then(|| {
                Meta::foreign(theirs.size, theirs.modified, self.owner.uid, self.owner.gid)
            })
        }) else {
            return Err(StoreError::storage(
                Errno::IO,
                format!("{} was overwritten by somebody without the key", put.key),
            ));
        };
        let target = self.target(&self.key(&put.key), &meta).await?;
        let version = put.known.as_ref().map_or(0, |known| known.meta.version) + 1;
        let mut forget = Forget::default();
        let mut stubs = Vec::new();
        let name = self.cache.transaction(|db| {
            let found = match names::find(db, put.parent, &put.name)? {
                Some(found) if found.ino == put.attr.ino => found,
                // Renamed or deleted since: the next batch sees what is there now.
                _ => return Ok(None),
            };
            let mut name = layout::conflict_name(&put.name, &self.config.writer, version);
            let mut other = version;
            while names::find(db, put.parent, &name)?.is_some() {
                other += 1;
                name = layout::conflict_name(&put.name, &self.config.writer, other);
            }
            names::remove(db, put.parent, found.slot)?;
            names::insert(db, put.parent, &name, found.ino, put.attr.kind)?;
            let told = format!(
                "{} was changed by {} (version {}) before this version could be written",
                String::from_utf8_lossy(&put.name),
                if meta.writer.is_empty() {
                    "somebody"
                } else {
                    &meta.writer
                },
                meta.version
            );
            self.cache.expect_xattrs();
            xattrs::set(
                db,
                &self.caller(),
                found.ino,
                b"user.ctx.conflict",
                told.as_bytes(),
                XattrMode::Set,
            )?;
            cache::remove_object(db, put.parent, &put.name)?;
            let news = News {
                listed: Listed {
                    key: self.key(&put.key),
                    etag: theirs.etag.clone(),
                    size: theirs.size,
                    modified: theirs.modified,
                },
                key: put.key.clone(),
                meta: meta.clone(),
                target: target.clone(),
                kept: Vec::new(),
            };
            cache::applying(db, |db| {
                db.execute(
                    "DELETE FROM s3_dirty_name WHERE parent = ?1 AND name = ?2",
                    rusqlite::params![nodes::signed(put.parent), put.name],
                )?;
                let what = (meta.kind(), meta.permissions(), target.as_slice());
                let attr = self.make(db, put.parent, &put.name, what, &mut forget)?;
                stubs.extend(self.place(
                    db,
                    put.parent,
                    put.name.clone(),
                    attr,
                    true,
                    &news,
                    &mut forget,
                )?);
                Ok(())
            })?;
            forget.names.push((put.parent, name.clone()));
            forget.inodes.push(found.ino);
            Ok(Some((name, told)))
        })?;
        if let Some((name, told)) = name {
            tracing::warn!(kept = %String::from_utf8_lossy(&name), "conflict: {told}");
        }
        // The renamed file has to go up: it is journalled.
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.add_stubs(stubs);
        self.kernel.tell(forget);
        Ok(())
    }

    fn add_stubs(&self, stubs: Vec<NewStub>) {
        if stubs.is_empty() {
            return;
        }
        let mut all = self.stubs_mut();
        for NewStub { ino, stub, parts } in stubs {
            all.insert(ino, Arc::new(Stubbed::new(stub, parts)));
        }
    }

    /// The attributes of an inode whose object has changed since it was listed.
    pub(super) async fn refresh(&self, ino: Ino, stub: &Stub) -> Result<(), StoreError> {
        let key = self.key(&stub.key);
        let head = self.remote.head(&key).await?;
        let meta = self.meta_of(&key, &head).await?;
        let news = News {
            listed: Listed {
                key,
                etag: head.etag,
                size: head.size,
                modified: head.modified,
            },
            key: stub.key.clone(),
            meta,
            target: Vec::new(),
            kept: Vec::new(),
        };
        let mut forget = Forget::default();
        let mut stubs = Vec::new();
        self.cache.transaction(|db| {
            if cache::stub(db, ino)?.is_none_or(|now| now.etag != stub.etag) {
                return Ok(());
            }
            // None of its content is here, so none of it can have been changed here.
            let Some(object) = cache::object_of_key(db, &stub.key)? else {
                return Ok(());
            };
            let attr = nodes::get(db, ino)?;
            cache::applying(db, |db| {
                let (parent, name) = (object.parent, object.name);
                stubs.extend(self.place(db, parent, name, attr, false, &news, &mut forget)?);
                Ok(())
            })
        })?;
        self.add_stubs(stubs);
        self.kernel.tell(forget);
        self.cache.getattr(ino).map(|_| ())
    }
}
