//! Attributes that are orders: waiting for the bucket, and old versions of a file.
//!
//! | attribute | reading it | writing it |
//! | --- | --- | --- |
//! | `user.ctx.sync` | waits until everything is in the bucket, answers `durable` | – |
//! | `user.ctx.pull` | looks for changes of others now, answers `done` | – |
//! | `user.ctx.pending` | how many changes are not in the bucket yet | – |
//! | `user.ctx.object` | the file's object, as JSON | – |
//! | `user.ctx.versions` | the versions that are kept, as JSON lines | – |
//! | `user.ctx.version.N` | the content of version N, up to 64 KiB | – |
//! | `user.ctx.restore` | – | `N`: the file gets the content of version N |

use super::cache::Object;
use super::forget::Forget;
use super::object::{self, Meta};
use super::{S3Store, cache, stub};
use crate::sqlite::HEAD;
use crate::store::{Caller, Errno, Ino, Result, Store, StoreError, XATTR_VALUE_MAX};

impl S3Store {
    /// Performs the order that reading an attribute is, if it is one.
    pub(super) fn order(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let Some(order) = name.strip_prefix(b"user.ctx.") else {
            return Ok(None);
        };
        Ok(Some(match order {
            b"sync" => {
                self.inner.cache.sync()?;
                self.upload()?;
                b"durable".to_vec()
            }
            b"pull" => {
                self.pull()?;
                b"done".to_vec()
            }
            b"pending" => self.pending()?.to_string().into_bytes(),
            b"object" => self.describe(ino)?,
            b"versions" => self.versions(ino)?,
            order => match order.strip_prefix(b"version.") {
                Some(version) => {
                    let content = self.version(ino, number(version)?)?;
                    if content.len() > XATTR_VALUE_MAX {
                        return Err(Errno::TOOBIG.into());
                    }
                    content
                }
                None => return Ok(None),
            },
        }))
    }

    /// Performs the order that writing an attribute is; false if it is none.
    pub(super) fn set_order(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
    ) -> Result<bool> {
        match name {
            b"user.ctx.restore" => {
                let content = self.version(ino, number(value)?)?;
                self.replace(caller, ino, &content)?;
                Ok(true)
            }
            b"user.ctx.sync" | b"user.ctx.pull" | b"user.ctx.pending" | b"user.ctx.object"
            | b"user.ctx.versions" => Err(Errno::PERM.into()),
            _ => Ok(false),
        }
    }

    /// Gives a file other content.
    fn replace(&self, caller: &Caller, ino: Ino, content: &[u8]) -> Result<()> {
        let cache = &self.inner.cache;
        let longest = cache.getattr(ino)?.size.max(content.len() as u64);
        if longest > HEAD && self.inner.has_changes() {
            // A tail is written over in place: what is here may be nowhere else.
            self.wait_for_bucket(ino)?;
        }
        let db = cache.db();
        let replaced = cache.replace_held(&db, caller, ino, content, |db| stub::remove(db, ino));
        self.changed(replaced)?;
        // The tables have let go of it in the same transaction.
        self.inner.forget_stub(ino);
        drop(db);
        self.inner.kernel.tell(Forget {
            inodes: vec![ino],
            names: Vec::new(),
        });
        Ok(())
    }

    /// The object that a file's content is in.
    fn object(&self, ino: Ino) -> Result<Object> {
        let mut objects = self
            .inner
            .cache
            .transaction(|db| cache::objects_of(db, ino))?;
        objects.pop().ok_or_else(|| Errno::NODATA.into())
    }

    fn describe(&self, ino: Ino) -> Result<Vec<u8>> {
        let object = self.object(ino)?;
        let json = serde_json::json!({
            "key": self.inner.key(&object.key),
            "etag": object.etag,
            "version": object.meta.version,
            "writer": object.meta.writer,
            "sha256": object.meta.sha256,
        });
        Ok(json.to_string().into_bytes())
    }

    fn versions(&self, ino: Ino) -> Result<Vec<u8>> {
        let object = self.object(ino)?;
        let inner = &self.inner;
        let key = inner.key(&object.key);
        let prefix = inner.layout.versions(&key);
        let listed = self
            .runtime
            .block_on(async { inner.remote.list(&prefix).await })?;
        let mut lines = String::new();
        for kept in listed {
            let Some(number) = inner.layout.number_of_version(&key, &kept.key) else {
                continue;
            };
            let head = self.runtime.block_on(inner.remote.head(&kept.key))?;
            let meta = Meta::from_attributes(&head.attributes, inner.seal.as_ref());
            let line = serde_json::json!({
                "version": number,
                "writer": meta.as_ref().map(|meta| meta.writer.as_str()),
                "modified": meta.as_ref().map(|meta| meta.modified),
                "size": meta.as_ref().map(|meta| meta.size),
            });
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
        Ok(lines.into_bytes())
    }

    /// The content of an old version. `ENODATA` if it is not kept.
    fn version(&self, ino: Ino, version: u64) -> Result<Vec<u8>> {
        let object = self.object(ino)?;
        let inner = &self.inner;
        let key = inner.key(&object.key);
        let prefix = inner.layout.version(&key, version);
        let kept = self.runtime.block_on(inner.remote.list(&prefix))?;
        // Hosts that did not know of each other may both have one of that number: the one that was kept last.
        let kept = kept
            .into_iter()
            .filter(|kept| inner.layout.number_of_version(&key, &kept.key) == Some(version));
        let Some(kept) = kept.max_by_key(|kept| kept.modified) else {
            return Err(Errno::NODATA.into());
        };
        let key = kept.key;
        let fetched = self.runtime.block_on(inner.remote.get(&key))?;
        let plain = object::open(&fetched.body, inner.seal.as_ref())
            .map_err(|error| StoreError::storage(Errno::IO, format!("{key}: {error}")))?;
        let meta = Meta::from_attributes(&fetched.attributes, inner.seal.as_ref());
        let header = match &meta {
            Some(meta) => meta.header,
            None => object::front_matter_length(&plain),
        };
        let content = plain.get(header as usize..).unwrap_or_default();
        if let Some(meta) = &meta {
            inner.check_content(&key, meta, content, &fetched)?;
        }
        Ok(content.to_vec())
    }
}

/// The number of a version.
fn number(text: &[u8]) -> Result<u64> {
    let text = std::str::from_utf8(text).map_err(|_| Errno::INVAL)?;
    Ok(text.trim().parse().map_err(|_| Errno::INVAL)?)
}
