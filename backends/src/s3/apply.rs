//! Taking in what a look at the bucket has found: names, attributes and stubs in the cache, in one transaction.
//! Nothing here talks to the server.

use std::sync::atomic::Ordering;

use super::cache::{self, DIRECTORY_PERMISSIONS, Entry, Manifest, Object};
use super::forget::Forget;
use super::identity::is_known;
use super::object::Meta;
use super::remote::Listed;
use super::stub::{self, Stub};
use super::stubbed::StubChange;
use super::{Inner, doubt, layout};
use crate::sqlite::db::Db;
use crate::sqlite::{content, names, nodes, xattrs};
use crate::store::{Attr, Caller, Ino, Kind, ROOT, StoreError, Timestamp, XattrMode};

/// A directory on its way from one name to another.
struct Moved {
    dir: Ino,
    from: Ino,
    old: Vec<u8>,
    entry: Entry,
    /// Its prefix, and what was said of it before.
    before: (String, Option<Entry>),
}

/// What became of what a manifest says.
#[derive(Default)]
pub(super) struct Said {
    /// Directories that nothing is said of any more.
    pub(super) plain: Vec<Ino>,
    /// Prefixes of directories that are not where it says, as their names are taken here.
    pub(super) unplaced: Vec<String>,
}

/// An object whose attributes are known.
pub(super) struct News {
    pub(super) listed: Listed,
    pub(super) key: String,
    pub(super) meta: Meta,
    /// Of a symbolic link.
    pub(super) target: Vec<u8>,
    pub(super) kept: Kept,
}

/// Parts of a large file that are here and have not changed.
#[derive(Default)]
pub(super) struct Kept {
    /// The entity tag of the version that they were here of.
    pub(super) of: String,
    pub(super) parts: Vec<u64>,
}

impl Inner {
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
    pub(super) fn make(
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

    pub(super) fn caller(&self) -> Caller {
        Caller {
            now: Timestamp::now(),
            ..self.owner
        }
    }

    /// Puts directories where the manifest says, all at once: two may have changed places. One that has been
    /// moved here, too, or whose place is taken, stays where it is.
    pub(super) fn apply_manifest(
        &self,
        db: &Db,
        manifest: &Manifest,
        forget: &mut Forget,
    ) -> Result<Said, StoreError> {
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
        let mut done = Said::default();
        for (dir, prefix, said) in cache::entries(db)? {
            if manifest.directories.contains_key(&prefix) {
                continue;
            }
            // Nothing is said of it any more: it is where its keys say, or gone.
            let (parent, name) = cache::split_prefix(&prefix);
            let entry = Entry {
                parent: parent.to_owned(),
                name: name.to_owned(),
                permissions: DIRECTORY_PERMISSIONS,
            };
            if said != entry && nodes::find(db, dir)?.is_some_and(|attr| attr.nlink > 0) {
                moves.extend(self.take_out(db, dir, &entry)?);
            }
            cache::set_directory(db, dir, &prefix, None)?;
            done.plain.push(dir);
        }
        for (prefix, entry) in &manifest.directories {
            if was_removed(db, prefix, entry)? {
                continue;
            }
            let Some(dir) = self.directory(db, prefix, Some(manifest), forget)? else {
                done.unplaced.push(prefix.clone());
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
            done.unplaced
                .extend(self.put_back(db, moved, manifest, forget)?);
        }
        Ok(done)
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
        let Some(before) = cache::directory(db, dir)? else {
            return Ok(None);
        };
        let slot = names::get(db, from, &old)?.slot;
        names::remove(db, from, slot)?;
        Ok(Some(Moved {
            dir,
            from,
            old,
            entry: entry.clone(),
            before,
        }))
    }

    /// Gives a directory that was taken out the name that it is to have; its prefix if it cannot.
    fn put_back(
        &self,
        db: &Db,
        moved: Moved,
        manifest: &Manifest,
        forget: &mut Forget,
    ) -> Result<Option<String>, StoreError> {
        let Moved {
            dir,
            from,
            old,
            entry,
            before: (prefix, said),
        } = moved;
        let to = self.directory(db, &entry.parent, Some(manifest), forget)?;
        let name = layout::name(&entry.name, self.seal.as_ref());
        if let (Some(above), Some(name)) = (to, &name)
            && let Some(taken) = names::find(db, above, name)?
        {
            // An empty directory that was renamed over is still here.
            self.prune_one(db, taken.ino, forget)?;
        }
        let mut place = None;
        if let (Some(to), Some(name)) = (to, name)
            && names::find(db, to, &name)?.is_none()
        {
            place = Some((to, name));
        }
        let (to, name, unplaced) = match place {
            Some((to, name)) => (to, name, None),
            None => {
                // As nothing of it was done here, nothing of it is said here, either.
                cache::set_directory(db, dir, &prefix, said.as_ref())?;
                let name = self.free_name(db, from, &old)?;
                if name == old {
                    // Nothing has changed that anybody could see.
                    names::insert(db, from, &old, dir, Kind::Directory)?;
                    return Ok(Some(prefix));
                }
                (from, name, Some(prefix))
            }
        };
        let caller = self.caller();
        names::insert(db, to, &name, dir, Kind::Directory)?;
        nodes::names_changed(db, from, &caller, -1)?;
        nodes::names_changed(db, to, &caller, 1)?;
        nodes::set_parent(db, dir, to)?;
        forget.names.extend([(from, old), (to, name)]);
        forget.inodes.extend([from, to]);
        Ok(unplaced)
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

    /// Takes in an object that is new or changed; what becomes of files' contents.
    pub(super) fn apply(
        &self,
        db: &Db,
        news: &News,
        forget: &mut Forget,
    ) -> Result<Vec<StubChange>, StoreError> {
        let (prefix, component) = match news.key.rfind('/') {
            Some(at) => news.key.split_at(at + 1),
            None => ("", news.key.as_str()),
        };
        let found = Object {
            parent: ROOT,
            name: Vec::new(),
            key: news.key.clone(),
            ino: 0,
            etag: news.listed.etag.clone(),
            meta: news.meta.clone(),
        };
        if self.is_late_and_gone(db, &found)? {
            self.changes.fetch_add(1, Ordering::AcqRel);
            return Ok(Vec::new());
        }
        let component = news.meta.name.as_deref().unwrap_or(component);
        let Some(mut name) = layout::name(component, self.seal.as_ref()) else {
            // Not ours, or the marker that some tools make of a directory.
            return Ok(Vec::new());
        };
        let Some(parent) = self.directory(db, prefix, None, forget)? else {
            return Ok(Vec::new());
        };
        let mut known = cache::object(db, parent, &name)?;
        if known.as_ref().is_some_and(|known| known.key != news.key) {
            // Two objects say that they are this file: the one that came second gets a name of its own, and keeps it.
            let before = cache::object_of_key(db, &news.key)?;
            name = match before.filter(|before| before.parent == parent) {
                Some(before) => before.name,
                None => self.free_name(db, parent, &name)?,
            };
            known = cache::object(db, parent, &name)?;
        }
        let local = names::find(db, parent, &name)?;
        if cache::is_dirty_name(db, parent, &name)?
            || known.is_none() && local.is_some()
            || match &local {
                Some(local) => cache::is_dirty_inode(db, local.ino)?,
                None => false,
            }
        {
            // Changed on both sides: the next batch meets it, and keeps both.
            return Ok(Vec::new());
        }
        if let Some(known) = known.filter(|known| known.etag != news.listed.etag)
            && self.is_late_and_old(db, &known, &found)?
        {
            self.changes.fetch_add(1, Ordering::AcqRel);
            return Ok(Vec::new());
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

    /// Whether the front matter of an object is part of its file here.
    pub(super) fn shows_front_matter(&self, meta: &Meta) -> bool {
        self.config.front_matter_visible && meta.header > 0
    }

    #[expect(clippy::too_many_arguments, reason = "one step, cut out to be read")]
    pub(super) fn place(
        &self,
        db: &Db,
        parent: Ino,
        name: Vec<u8>,
        mut attr: Attr,
        is_new: bool,
        news: &News,
        forget: &mut Forget,
    ) -> Result<Vec<StubChange>, StoreError> {
        let with_front_matter = self.shows_front_matter(&news.meta);
        let with_front_matter = with_front_matter.then(|| news.meta.with_front_matter());
        let meta = with_front_matter.as_ref().unwrap_or(&news.meta);
        attr.permissions = meta.permissions();
        (attr.uid, attr.gid) = (meta.uid, meta.gid);
        attr.rdev = meta.rdev;
        attr.mtime = Timestamp(meta.modified);
        attr.btime = Timestamp(meta.created);
        attr.ctime = Timestamp::now();
        let is_file = attr.kind == Kind::File;
        let known = cache::object_of_key(db, &news.key)?;
        // Who read the file meanwhile may have found another version, and nothing of that is here.
        let kept = match &known {
            Some(known) if known.ino == attr.ino && known.etag == news.kept.of => &*news.kept.parts,
            _ => &[],
        };
        let has_content = !is_new
            && known.as_ref().is_some_and(|known| {
                let etag = &news.listed.etag;
                known.ino == attr.ino && (known.etag == *etag || is_known(known, &news.meta, etag))
            })
            && attr.size == meta.size;
        if is_file && !has_content {
            // A tail would be cut at once, also if all this comes to nothing; what is left of it nobody reads in a stub.
            let keeps_tail = [attr.size, meta.size].map(content::tail_length);
            if kept.is_empty() && keeps_tail.contains(&0) {
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
                meta: news.meta.clone(),
            },
        )?;
        forget.inodes.push(attr.ino);
        let mut changes = Vec::new();
        // What was never read of another file is not there any more.
        if let Some(known) = known.filter(|known| known.ino != attr.ino) {
            changes.extend(StubChange::follow(db, known.ino, &known.key)?);
        }
        if has_content {
            // Only attributes changed: what is here of the content stays here.
            let retagged = stub::retag(db, attr.ino, &news.key, &news.listed.etag)?;
            changes.extend(retagged.map(|stub| StubChange::Followed(attr.ino, stub)));
            return Ok(changes);
        }
        if !is_file || meta.size == 0 {
            stub::remove(db, attr.ino)?;
            changes.push(StubChange::Gone(attr.ino));
            return Ok(changes);
        }
        let stub = Stub {
            key: news.key.clone(),
            etag: news.listed.etag.clone(),
            size: news.listed.size,
            meta: meta.clone(),
        };
        stub::put(db, attr.ino, &stub)?;
        for part in kept {
            stub::put_part(db, attr.ino, *part)?;
        }
        if stub::settle(db, attr.ino, &stub)? {
            changes.push(StubChange::Gone(attr.ino));
            return Ok(changes);
        }
        changes.push(StubChange::Made {
            ino: attr.ino,
            stub,
            parts: kept.to_vec(),
        });
        Ok(changes)
    }

    /// Takes away what others have deleted, unless it has changed here; the directory that it was in.
    pub(super) fn apply_gone(
        &self,
        db: &Db,
        key: &str,
        forget: &mut Forget,
        stubs: &mut Vec<StubChange>,
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
        // What was never read of it may be under another name of the file still.
        stubs.extend(StubChange::follow(db, object.ino, key)?);
        let is_late_deletion = doubt::may_have_deleted(db, &self.key(key))?
            && object.meta.writer == self.config.writer
            && stub::find(db, object.ino)?.is_none();
        if is_late_deletion {
            tracing::warn!(
                key,
                "a deletion whose answer was lost has come after the file was written anew: it goes up again"
            );
            cache::journal(db, object.parent, &object.name, object.ino)?;
            self.changes.fetch_add(1, Ordering::AcqRel);
            return Ok(None);
        }
        let local = names::find(db, object.parent, &object.name)?;
        if local.is_none_or(|local| local.ino != object.ino) {
            return Ok(None);
        }
        self.drop_name(db, object.parent, &object.name, forget)?;
        Ok(Some(object.parent))
    }

    pub(super) fn drop_name(
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
    pub(super) fn prune(
        &self,
        db: &Db,
        mut dir: Ino,
        forget: &mut Forget,
    ) -> Result<(), StoreError> {
        while let Some(parent) = self.prune_one(db, dir, forget)? {
            dir = parent;
        }
        Ok(())
    }

    /// As [`Inner::prune`], of one directory, whatever is left of the one above, which it answers.
    fn prune_one(&self, db: &Db, dir: Ino, forget: &mut Forget) -> Result<Option<Ino>, StoreError> {
        if dir == ROOT
            || nodes::find(db, dir)?.is_none_or(|attr| attr.nlink == 0)
            || !names::is_empty(db, dir)?
        {
            return Ok(None);
        }
        let Some((prefix, None)) = cache::directory(db, dir)? else {
            return Ok(None);
        };
        let parent = nodes::parent(db, dir)?;
        let name = cache::name_of(db, parent, dir)?;
        if cache::is_dirty_name(db, parent, &name)? {
            return Ok(None);
        }
        self.drop_name(db, parent, &name, forget)?;
        cache::remove_directory(db, &prefix)?;
        Ok(Some(parent))
    }
}

/// Whether a directory was removed here, which others have not been told of, and is there as it was before.
fn was_removed(db: &Db, prefix: &str, entry: &Entry) -> Result<bool, StoreError> {
    let Some(dir) = cache::directory_of_prefix(db, prefix)? else {
        return Ok(false);
    };
    let said = cache::directory(db, dir)?.and_then(|(_, said)| said);
    let is_gone = nodes::find(db, dir)?.is_none_or(|attr| attr.nlink == 0);
    Ok(is_gone && said.as_ref() == Some(entry))
}
