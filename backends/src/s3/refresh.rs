//! A file whose object has changed, or gone, since it was listed: found out when its content is fetched.

use super::Inner;
use super::apply::News;
use super::cache;
use super::fetch::keeps_changing;
use super::forget::Forget;
use super::remote::Listed;
use super::stub::{self, Stub};
use super::stubbed::StubChange;
use crate::sqlite::db::Db;
use crate::sqlite::nodes;
use crate::store::{Errno, Ino, Kind, Store, StoreError};

impl Inner {
    /// Takes the version that is there now; of a file with several names, another object that holds what this one held.
    pub(super) async fn refresh(&self, ino: Ino, stub: &Stub) -> Result<(), StoreError> {
        let is_same = |db: &Db| Ok(stub::find(db, ino)?.as_ref() == Some(stub));
        if !self.cache.transaction(is_same)? {
            return self.reread_stub(ino);
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
            return Err(keeps_changing());
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
            kept: Vec::new(),
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
            cache::applying(db, |db| {
                let (parent, name) = (object.parent, object.name);
                let attr = nodes::get(db, ino)?;
                // None of its content is here, so none of it can have been changed here.
                stubs.extend(self.place(db, parent, name, attr, false, &news, &mut forget)?);
                Ok(())
            })
        })?;
        self.kernel.tell(forget);
        self.cache.getattr(ino).map(|_| ())
    }
}
