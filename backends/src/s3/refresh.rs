//! A file whose object has changed, or gone, since it was listed: found out when its content is fetched.

use std::sync::atomic::Ordering;

use super::Inner;
use super::apply::{Kept, News};
use super::cache;
use super::fetch::keeps_changing;
use super::forget::Forget;
use super::object::Meta;
use super::remote::{Listed, RemoteError};
use super::stub::{self, Stub};
use super::stubbed::{StubChange, Stubbed};
use crate::sqlite::db::Db;
use crate::sqlite::{names, nodes, xattrs};
use crate::store::{Attr, Errno, Ino, Kind, Store, StoreError, Timestamp, XattrMode};

/// A file's attributes as they are here.
struct Ours {
    attr: Attr,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Inner {
    /// Takes the version that is there now; of a file with several names, another object that holds what this one held.
    pub(super) async fn refresh(&self, ino: Ino, stub: &Stub) -> Result<(), RemoteError> {
        let is_same = |db: &Db| Ok(stub::find(db, ino)?.as_ref() == Some(stub));
        if !self.cache.transaction(is_same)? {
            return Ok(self.reread_stub(ino)?);
        }
        let is_followed = self.with_stubs(|db, stubs| {
            stubs.extend(StubChange::follow(db, ino, &stub.key)?);
            Ok(!stubs.is_empty())
        })?;
        if is_followed {
            return Ok(());
        }
        let key = self.key(&stub.key);
        let head = self.remote.head(&key).await?;
        let meta = self.meta_of(&key, &head).await?;
        if meta.kind() != Kind::File {
            // The next look at the bucket takes it in.
            return Err(keeps_changing().into());
        }
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
            kept: Kept::default(),
        };
        let mut forget = Forget::default();
        self.with_stubs(|db, stubs| {
            if !is_same(db)? {
                return Ok(());
            }
            let object = cache::object_of_key(db, &stub.key)?;
            let Some(object) = object.filter(|object| object.ino == ino) else {
                let key = &stub.key;
                let reason =
                    format!("S3: {key} is another file's now, and this one was not read before");
                return Err(StoreError::storage(Errno::IO, reason));
            };
            let ours = match cache::is_dirty_inode(db, ino)? {
                true => Some(ours(db, ino)?),
                false => None,
            };
            cache::applying(db, |db| {
                let (parent, name) = (object.parent, object.name.clone());
                let attr = nodes::get(db, ino)?;
                let is_its_name =
                    names::find(db, parent, &name)?.is_some_and(|found| found.ino == ino);
                // None of its content is here, so none of it can have been changed here.
                stubs.extend(self.place(db, parent, name, attr, false, &news, &mut forget)?);
                if !is_its_name {
                    // Who removed or replaced it here knew the version before: that alone may go, or be overwritten.
                    cache::put_object(db, &object)?;
                }
                match ours {
                    Some(ours) => self.keep_ours(db, &ours, &object.meta),
                    None => Ok(()),
                }
            })
        })?;
        self.kernel.tell(forget);
        self.cache.getattr(ino)?;
        Ok(())
    }

    /// Where the bytes of a file are: whole key and entity tag.
    pub(super) fn source_of(&self, stubbed: &Stubbed) -> (String, String) {
        let of_stub = || (self.key(&stubbed.stub.key), stubbed.stub.etag.clone());
        stubbed.kept.get().cloned().unwrap_or_else(of_stub)
    }

    /// Looks for the version that was kept of an object that is gone: whether it is there, and was not known of before.
    pub(super) async fn find_kept(&self, stubbed: &Stubbed) -> Result<bool, RemoteError> {
        let Stub {
            key, etag, meta, ..
        } = &stubbed.stub;
        if meta.is_foreign() || stubbed.kept.get().is_some() {
            return Ok(false);
        }
        let at = self.layout.version_of(&self.key(key), meta.version, etag);
        match self.remote.head(&at).await {
            Ok(head) => Ok(stubbed.kept.set((at, head.etag)).is_ok()),
            Err(RemoteError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What was changed here of a file's attributes, since its object said otherwise, outlives what others have written.
    fn keep_ours(&self, db: &Db, ours: &Ours, before: &Meta) -> Result<(), StoreError> {
        let mut attr = nodes::get(db, ours.attr.ino)?;
        if ours.attr.permissions != before.permissions() {
            attr.permissions = ours.attr.permissions;
        }
        if (ours.attr.uid, ours.attr.gid) != (before.uid, before.gid) {
            (attr.uid, attr.gid) = (ours.attr.uid, ours.attr.gid);
        }
        if ours.attr.mtime != Timestamp(before.modified) {
            attr.mtime = ours.attr.mtime;
        }
        nodes::update(db, &attr)?;
        let mut xattrs_before = before.xattrs();
        xattrs_before.sort();
        if ours.xattrs != xattrs_before {
            xattrs::clear(db, attr.ino)?;
            for (name, value) in &ours.xattrs {
                xattrs::set(db, &self.caller(), attr.ino, name, value, XattrMode::Set)?;
            }
        }
        // The batch that is under way has another state of it.
        cache::journal_inode(db, attr.ino)?;
        self.changes.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// Sorted by the names of what is extended.
fn ours(db: &Db, ino: Ino) -> Result<Ours, StoreError> {
    let names = xattrs::list(db, ino)?.into_iter();
    let xattrs = names.map(|name| Ok((name.clone(), xattrs::get(db, ino, &name)?)));
    Ok(Ours {
        attr: nodes::get(db, ino)?,
        xattrs: xattrs.collect::<Result<_, StoreError>>()?,
    })
}
