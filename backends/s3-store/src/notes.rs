//! The protocol's records in the redo log of a cache: steps of the base, and that a commit may be sent.

use std::borrow::Cow;

use fuse::store::{Ino, Result};
use s3::tree::NodeId;
use serde::{Deserialize, Serialize};
use sqlite::tables::Db;

use crate::tables::{self, Advance};

/// A change of the cache's own tables. A change of this type, or of one in it, needs a new [`tables::CACHE_VERSION`].
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Note<'a> {
    /// Steps that the tables take first.
    pub(super) saved: Cow<'a, [Advance]>,
    /// The batch of changes that was read after that.
    pub(super) batch: Option<Batch>,
}

impl Note<'_> {
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        tables::encode(self)
    }
}

/// Changes of the working copy that were read for a commit.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Batch {
    /// The session.
    pub(super) writer: u64,
    /// Inodes that got their identity from it.
    pub(super) identified: Vec<Ino>,
    /// Everything was read: later changes belong to another batch.
    pub(super) ends: bool,
    /// The nonce of the commit that may be sent.
    pub(super) intent: Option<[u8; 16]>,
}

impl Batch {
    /// Notes the end of the batch, and its commit; the mark up to which the journal is cleared after that.
    pub(super) fn end(&self, db: &Db) -> Result<u64> {
        let mark = if self.ends { tables::end_batch(db)? } else { 0 };
        if let Some(nonce) = self.intent {
            tables::add_intent(db, nonce)?;
        }
        Ok(mark)
    }
}

/// Makes a noted change again.
pub(super) fn apply(db: &Db, note: &[u8]) -> Result<()> {
    let note: Note<'_> = tables::decode(note)?;
    note.saved.iter().try_for_each(|step| step.save(db))?;
    let Some(batch) = note.batch else {
        return Ok(());
    };
    // Rows that earlier changes have left to the commit are of this batch.
    db.write_rows()?;
    let writer = batch.writer;
    for ino in &batch.identified {
        tables::identify(db, *ino, NodeId { writer, ino: *ino })?;
    }
    batch.end(db).map(|_| ())
}

#[cfg(test)]
mod tests {
    use fuse::store::{Caller, Errno, Kind, NewNode, Store, StoreError, Timestamp};
    use s3::replica::Head;
    use s3::tree::{Changes, Hash, Tree};
    use sqlite::SqliteStore;

    use super::*;

    #[test]
    fn a_change_that_fails_undoes_no_note() {
        let dir = tempfile::tempdir().unwrap();
        let owner = Caller { uid: 1, gid: 1, now: Timestamp(1) };
        let path = dir.path().join("cache");
        let store = SqliteStore::open_with(&path, &owner, crate::RECOVERY).unwrap();
        let made =
            store.transaction(|db| db.connection.execute_batch(include_str!("schema.sql")).map_err(StoreError::from));
        made.unwrap();
        let node = NewNode { kind: Kind::File, permissions: 0o600, rdev: 0, target: b"" };
        let ino = store.create(&owner, fuse::store::ROOT, b"a", &node).unwrap().ino;
        let head = Head { number: 1, hash: Hash([1; 32]), first: Hash([2; 32]) };
        let batch = Batch { writer: 9, identified: vec![ino], ends: true, intent: Some([7; 16]) };
        let step = Advance::make(&mut Tree::default(), head, &Changes::default(), None);
        let mark = store.note(|db| {
            let note = Note { saved: Cow::Owned(vec![step.clone()]), batch: Some(batch.clone()) };
            step.save(db)?;
            tables::identify(db, ino, NodeId { writer: 9, ino })?;
            Ok((batch.end(db)?, note.encode()?))
        });
        let seen = |db: &Db| {
            let journalled = tables::dirty_names(db).unwrap();
            let identity = tables::identity(db, ino).unwrap();
            let intents = tables::intents(db).unwrap();
            (tables::head(db).unwrap(), identity, intents, journalled)
        };
        let before = seen(&store.db());
        assert_eq!(before.0, head);
        assert_eq!(before.1, Some(NodeId { writer: 9, ino }));
        assert_eq!(before.2, [[7; 16]]);
        assert_eq!(before.3, [(fuse::store::ROOT, b"a".to_vec())]);
        let failed: Result<()> = store.transaction(|db| {
            tables::identify(db, ino, NodeId { writer: 5, ino })?;
            Err(Errno::NOSPC.into())
        });
        assert_eq!(failed.unwrap_err().errno, Errno::NOSPC);
        assert_eq!(seen(&store.db()), before);
        let settled = store.transaction(|db| {
            tables::clear_journal(db, mark.unwrap())?;
            Ok(tables::dirty_names(db)?.len())
        });
        assert_eq!(settled.unwrap(), 0);
    }
}
