//! Requests whose answer never came: the server may have done them, or may do them yet.
//!
//! They are in the cache, so that a mount which was killed in the middle of an outage knows them when it comes back:
//! what the bucket has of them is its own, and no conflict. A write that comes late, when something else is to be
//! there or nothing, is seen at the next look, and is written over or deleted. That is no prevention: until then
//! others see it. Servers refuse what was signed more than fifteen minutes ago, so that nothing comes later than that.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use rusqlite::params;

use super::Inner;
use super::cache::{self, Object};
use super::object::Meta;
use super::remote::{Fetched, RemoteError};
use super::stub;
use super::upload::PARALLEL;
use crate::sqlite::db::Db;
use crate::sqlite::nodes::{signed, unsigned};
use crate::store::{Ino, Result, StoreError, Timestamp};

/// How many contents of one object are remembered: tries of a file that keeps changing.
const CONTENTS: i64 = 64;

/// How long a request can arrive late: servers refuse signatures that are older than 15 minutes.
const LATE: Duration = Duration::from_secs(20 * 60);

/// Deleted objects that are remembered; with more, the oldest are asked for again when a listing shows them.
const DELETED: usize = 100_000;

/// A name that is gone, and whose object may have been written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doubtful {
    pub(super) parent: Ino,
    pub(super) name: Vec<u8>,
    pub(super) key: String,
}

/// What was sent before this cannot arrive any more.
fn too_late() -> i64 {
    Timestamp::now().0 - LATE.as_nanos() as i64
}

/// An object is about to be written.
pub(super) fn send(db: &Db, key: &str, sha256: &str, parent: Ino, name: &[u8]) -> Result<()> {
    db.execute(
        // What is sent again is the latest again: the highest ids are those that stay.
        "INSERT OR REPLACE INTO s3_sent (key, sha256, parent, name, at, is_over)
         VALUES (?1, ?2, ?3, ?4, ?5, 0)",
        params![key, sha256, signed(parent), name, Timestamp::now().0],
    )?;
    db.execute(
        "DELETE FROM s3_sent WHERE key = ?1 AND id <=
           (SELECT id FROM s3_sent WHERE key = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        params![key, CONTENTS],
    )?;
    Ok(())
}

/// The object holds this, as the server has said. Other contents that were sent may come yet, and are not wanted.
pub(super) fn is_written(db: &Db, key: &str, sha256: &str) -> Result<()> {
    db.execute(
        "DELETE FROM s3_sent WHERE key = ?1 AND sha256 = ?2",
        [key, sha256],
    )?;
    is_over(db, key)
}

/// What was sent for an object is not wanted any more.
pub(super) fn is_over(db: &Db, key: &str) -> Result<()> {
    db.execute("UPDATE s3_sent SET is_over = 1 WHERE key = ?1", [key])?;
    Ok(())
}

/// What was sent for an object was refused: somebody else has written it. Who finds ours there later has found what
/// somebody has put there.
pub(super) fn is_refused(db: &Db, key: &str) -> Result<()> {
    db.execute("DELETE FROM s3_sent WHERE key = ?1 AND is_over = 0", [key])?;
    Ok(())
}

/// The name that content which is found in an object was sent for, if its answer was lost.
pub(super) fn sent(db: &Db, key: &str, sha256: &str) -> Result<Option<(Ino, Vec<u8>)>> {
    db.row(
        "SELECT parent, name FROM s3_sent WHERE key = ?1 AND sha256 = ?2",
        [key, sha256],
        |row| Ok((unsigned(row.get(0)?), row.get(1)?)),
    )
}

/// Keys by the name that their objects were written for.
pub(super) type KeysByName = BTreeMap<(Ino, Vec<u8>), Vec<String>>;

/// The keys of all objects that may have been written, by the name they were written for.
pub(super) fn sent_by_name(db: &Db) -> Result<KeysByName> {
    let mut statement =
        db.statement("SELECT DISTINCT parent, name, key FROM s3_sent WHERE is_over = 0")?;
    let mut rows = statement.query(())?;
    let mut all = KeysByName::new();
    while let Some(row) = rows.next()? {
        let name = (unsigned(row.get(0)?), row.get(1)?);
        all.entry(name).or_default().push(row.get(2)?);
    }
    Ok(all)
}

/// Objects are about to be deleted.
pub(super) fn delete(db: &Db, keys: &[String]) -> Result<()> {
    for key in keys {
        db.execute(
            "INSERT INTO s3_deleting VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET at = excluded.at",
            params![key, Timestamp::now().0],
        )?;
    }
    Ok(())
}

/// They are deleted, as the server has said.
pub(super) fn is_deleted(db: &Db, keys: &[String]) -> Result<()> {
    for key in keys {
        db.execute("DELETE FROM s3_deleting WHERE key = ?1", [key])?;
    }
    Ok(())
}

/// Whether an object may be gone by a deletion of ours that came late.
pub(super) fn may_have_deleted(db: &Db, key: &str) -> Result<bool> {
    let found = db.row(
        "SELECT 1 FROM s3_deleting WHERE key = ?1 AND at > ?2",
        params![key, too_late()],
        |_| Ok(()),
    )?;
    Ok(found.is_some())
}

/// An upload in parts has begun.
pub(super) fn has_begun(db: &Db, key: &str, upload: &str) -> Result<()> {
    db.execute(
        "INSERT OR IGNORE INTO s3_parts VALUES (?1, ?2)",
        [key, upload],
    )?;
    Ok(())
}

/// An upload in parts has ended, well or not.
pub(super) fn has_ended(db: &Db, key: &str, upload: &str) -> Result<()> {
    db.execute(
        "DELETE FROM s3_parts WHERE key = ?1 AND upload = ?2",
        [key, upload],
    )?;
    Ok(())
}

/// The uploads in parts that have not ended: whole keys, and ids.
pub(super) fn unended(db: &Db) -> Result<Vec<(String, String)>> {
    let mut statement = db.statement("SELECT key, upload FROM s3_parts")?;
    let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Lets go of what cannot arrive any more. What is still to be there may have arrived long ago, and stays.
pub(super) fn expire(db: &Db) -> Result<()> {
    let too_late = too_late();
    db.execute(
        "DELETE FROM s3_sent WHERE is_over = 1 AND at < ?1",
        [too_late],
    )?;
    db.execute("DELETE FROM s3_deleting WHERE at < ?1", [too_late])?;
    Ok(())
}

/// Objects that are deleted, by their entity tags: listings and indexes that lag behind still show them.
#[derive(Debug, Default)]
pub(super) struct Forgotten(Mutex<(HashMap<String, String>, VecDeque<String>)>);

impl Forgotten {
    fn lock(&self) -> MutexGuard<'_, (HashMap<String, String>, VecDeque<String>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object is no more, whatever a listing or an index that lags behind says.
    pub(super) fn forget(&self, key: &str, etag: &str) {
        let (deleted, order) = &mut *self.lock();
        let is_new = deleted.insert(key.to_owned(), etag.to_owned()).is_none();
        if is_new {
            order.push_back(key.to_owned());
        }
        if order.len() > DELETED
            && let Some(oldest) = order.pop_front()
        {
            deleted.remove(&oldest);
        }
    }

    /// Whether this state of an object is one that was deleted here.
    pub(super) fn is_forgotten(&self, key: &str, etag: &str) -> bool {
        self.lock().0.get(key).is_some_and(|of| of == etag)
    }
}

impl Inner {
    /// What an object says of itself, if it is of an upload of ours whose answer was lost.
    pub(super) fn sent_in(&self, key: &str, found: &Fetched) -> Result<Option<Meta>> {
        let meta = Meta::from_attributes(&found.attributes, self.seal.as_ref());
        let Some(meta) = meta.filter(|meta| meta.writer == self.config.writer) else {
            return Ok(None);
        };
        let sent = self.cache.transaction(|db| sent(db, key, &meta.sha256))?;
        Ok(sent.map(|_| meta))
    }

    /// Whether an object is of an upload of ours whose answer was lost.
    pub(super) fn is_sent(&self, key: &str, found: &Fetched) -> Result<bool> {
        Ok(self.sent_in(key, found)?.is_some())
    }

    /// Which objects were written for names that are gone, though nobody had heard of it: they have to be deleted.
    /// With them, those of which the server does not say it, for a reason of their own.
    pub(super) async fn find_doubtful<'a>(
        &self,
        doubtful: &'a [Doubtful],
    ) -> std::result::Result<(Vec<Object>, Vec<(&'a Doubtful, RemoteError)>), StoreError> {
        let heads: Vec<_> = stream::iter(doubtful)
            .map(|doubt| async move { (doubt, self.remote.head(&self.key(&doubt.key)).await) })
            .buffer_unordered(PARALLEL)
            .collect()
            .await;
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        let mut is_missing = false;
        for (doubt, head) in heads {
            let head = match head {
                Ok(head) => head,
                Err(RemoteError::NotFound(_)) => {
                    is_missing = true;
                    continue;
                }
                Err(error) if error.is_of_all() => return Err(error.into()),
                Err(error) => {
                    failed.push((doubt, error));
                    continue;
                }
            };
            let key = &doubt.key;
            let ours = self.sent_in(key, &head)?;
            found.extend(ours.map(|meta| Object {
                parent: doubt.parent,
                name: doubt.name.clone(),
                key: key.clone(),
                ino: 0,
                etag: head.etag,
                meta,
            }));
        }
        if is_missing {
            // HEAD does not say what is not there.
            self.remote.has_bucket().await?;
        }
        Ok((found, failed))
    }

    /// Whether an object is a write of ours that came late, when its name was gone: then it is journalled to go, too.
    pub(super) fn is_late_and_gone(&self, db: &Db, found: &Object) -> Result<bool> {
        if found.meta.writer != self.config.writer {
            return Ok(false);
        }
        let Some((parent, name)) = sent(db, &found.key, &found.meta.sha256)? else {
            return Ok(false);
        };
        let is_wanted = cache::is_dirty_name(db, parent, &name)?
            || crate::sqlite::names::find(db, parent, &name)?.is_some()
            || cache::object(db, parent, &name)?.is_some();
        if is_wanted {
            return Ok(false);
        }
        tracing::warn!(
            key = found.key,
            "a write whose answer was lost has come after the file was removed: it goes again"
        );
        let object = Object {
            parent,
            name: name.clone(),
            ..found.clone()
        };
        cache::put_object(db, &object)?;
        cache::journal_name(db, parent, &name)?;
        Ok(true)
    }

    /// Whether an object that has changed is an earlier write of ours that came late: then what is here is journalled
    /// to go up again.
    pub(super) fn is_late_and_old(&self, db: &Db, known: &Object, found: &Object) -> Result<bool> {
        let is_ours = found.meta.writer == self.config.writer
            && known.meta.writer == self.config.writer
            && sent(db, &found.key, &found.meta.sha256)?.is_some();
        if !is_ours || stub::find(db, known.ino)?.is_some() {
            return Ok(false);
        }
        tracing::warn!(
            key = found.key,
            "a write whose answer was lost has come after a later one: the later one goes up again"
        );
        let mut meta = found.meta.clone();
        meta.version = meta.version.max(known.meta.version);
        let object = Object {
            etag: found.etag.clone(),
            meta,
            ..known.clone()
        };
        cache::put_object(db, &object)?;
        cache::journal(db, known.parent, &known.name, known.ino)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::SqliteStore;
    use crate::store::{Caller, ROOT};

    fn with_db(work: impl FnOnce(&Db) -> Result<()>) {
        let dir = tempfile::tempdir().unwrap();
        let owner = Caller {
            uid: 0,
            gid: 0,
            now: Timestamp(1),
        };
        let store = SqliteStore::open(&dir.path().join("x.db"), &owner).unwrap();
        store
            .transaction(|db| {
                db.connection.execute_batch(include_str!("doubt.sql"))?;
                work(db)
            })
            .unwrap();
    }

    fn is_sent(db: &Db, key: &str, sha256: &str) -> bool {
        sent(db, key, sha256).unwrap().is_some()
    }

    #[test]
    fn what_was_sent_is_known_until_it_is_written() {
        with_db(|db| {
            send(db, "k", "a", ROOT, b"n")?;
            send(db, "k", "b", ROOT, b"n")?;
            assert!(is_sent(db, "k", "a") && is_sent(db, "k", "b"));
            assert!(!is_sent(db, "k", "c") && !is_sent(db, "other", "a"));
            assert_eq!(sent_by_name(db)?[&(ROOT, b"n".to_vec())], ["k"]);
            for nth in 0..CONTENTS {
                send(db, "k", &nth.to_string(), ROOT, b"n")?;
            }
            assert!(!is_sent(db, "k", "a"), "what is remembered is bounded");
            send(db, "k", "0", ROOT, b"n")?;
            send(db, "k", "another", ROOT, b"n")?;
            assert!(is_sent(db, "k", "0"), "sent again, it is not the oldest");
            send(db, "k", "1", ROOT, b"n")?;
            is_written(db, "k", "0")?;
            assert!(!is_sent(db, "k", "0"));
            assert!(is_sent(db, "k", "1"), "it may come late");
            assert!(sent_by_name(db)?.is_empty(), "but is not to be there");
            expire(db)?;
            assert!(is_sent(db, "k", "1"));
            db.execute("UPDATE s3_sent SET at = 1", ())?;
            send(db, "k", "2", ROOT, b"n")?;
            expire(db)?;
            assert!(!is_sent(db, "k", "1") && is_sent(db, "k", "2"));
            Ok(())
        });
    }

    #[test]
    fn a_deletion_may_come_until_it_has() {
        with_db(|db| {
            let keys = ["k".to_owned()];
            delete(db, &keys)?;
            assert!(may_have_deleted(db, "k")?);
            is_deleted(db, &keys)?;
            assert!(!may_have_deleted(db, "k")?);
            delete(db, &keys)?;
            db.execute("UPDATE s3_deleting SET at = 1", ())?;
            assert!(!may_have_deleted(db, "k")?, "too late");
            Ok(())
        });
        let forgotten = Forgotten::default();
        forgotten.forget("k", "e");
        assert!(forgotten.is_forgotten("k", "e") && !forgotten.is_forgotten("k", "f"));
    }
}
