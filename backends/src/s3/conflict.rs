//! Two have changed a file: both versions stay, and the writer who came second is told.

use std::sync::atomic::Ordering;

use super::apply::{Kept, News};
use super::forget::Forget;
use super::object::Meta;
use super::plan::Put;
use super::remote::{Fetched, Listed};
use super::{Inner, cache, doubt, layout};
use crate::sqlite::{names, nodes, xattrs};
use crate::store::{Errno, StoreError, XattrMode};

impl Inner {
    /// Both versions of a file stay: theirs under the name, ours under one that says whose it is.
    pub(super) async fn resolve_conflict(
        &self,
        put: &Put,
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
        let name = self.with_stubs(|db, stubs| {
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
            doubt::is_refused(db, &put.key)?;
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
                kept: Kept::default(),
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
        self.kernel.tell(forget);
        Ok(())
    }
}
