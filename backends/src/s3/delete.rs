//! Taking objects away that were deleted here, as far as they are still what was deleted.

use std::sync::atomic::Ordering;

use futures::{StreamExt, stream};

use super::cache::{self, Object};
use super::config::ConflictPolicy;
use super::remote::RemoteError;
use super::stubbed::StubChange;
use super::upload::PARALLEL;
use super::{Inner, doubt};
use crate::store::StoreError;

/// What is where an object is to be deleted.
enum Found {
    /// The object, of this whole key.
    Known(String),
    /// What somebody else has put there.
    Another,
    /// Nothing is there under this whole key.
    Nothing(String),
}

impl Inner {
    /// Deletes objects, a thousand at a time, and notes it. What cannot be deleted for a reason of its own holds up no
    /// other: its name stays in the journal, and the first of these reasons is the answer.
    pub(super) async fn delete_all(&self, gone: &[Object], batch: u64) -> Result<(), StoreError> {
        let mut failed = None;
        for chunk in gone.chunks(1000) {
            let kept = of_each(chunk, |object| self.keep_version(object), &mut failed).await?;
            let kept = kept.into_iter().map(|(object, ())| object);
            let found = of_each(kept, |object| self.key_to_delete(object), &mut failed).await?;
            if found.iter().any(|(_, it)| matches!(it, Found::Nothing(_))) {
                // HEAD does not say what is not there.
                self.remote.has_bucket().await?;
            }
            let (mut nothing, mut keys) = (Vec::new(), Vec::new());
            let mut objects = Vec::with_capacity(found.len());
            for (object, found) in found {
                objects.push(object);
                match found {
                    Found::Known(key) => keys.push(key),
                    Found::Nothing(key) => nothing.push(key),
                    Found::Another => {}
                }
            }
            self.cache.transaction(|db| doubt::delete(db, &keys))?;
            self.remote.delete(&keys).await?;
            for object in &objects {
                self.forgotten.forget(&object.key, &object.etag);
            }
            self.has_news.store(true, Ordering::Release);
            self.with_stubs(|db, stubs| {
                doubt::is_deleted(db, &keys)?;
                // An earlier request was done, though its answer was lost.
                doubt::is_deleted(db, &nothing)?;
                for object in &objects {
                    doubt::is_over(db, &object.key)?;
                    cache::remove_object(db, object.parent, &object.name)?;
                    stubs.extend(StubChange::follow(db, object.ino, &object.key)?);
                    cache::clean_name(db, object.parent, &object.name, batch)?;
                    self.audit(db, "delete", &object.key, object.meta.version, "")?;
                }
                Ok(())
            })?;
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The key of an object, if it is still what was deleted here. Deletions carry no condition that servers
    /// honour, so that somebody may come between this look and the deletion.
    async fn key_to_delete(&self, object: &Object) -> Result<Found, RemoteError> {
        let key = self.key(&object.key);
        if self.config.conflicts == ConflictPolicy::LastWriteWins {
            return Ok(Found::Known(key));
        }
        match self.remote.head(&key).await {
            Ok(found) if self.is_still(object, &found) => {
                if found.etag != object.etag {
                    // It was not found under the entity tag that it was to be kept by.
                    let etag = found.etag;
                    self.keep_version(&Object {
                        etag,
                        ..object.clone()
                    })
                    .await?;
                }
                Ok(Found::Known(key))
            }
            Ok(found) if self.is_sent(&object.key, &found)? => Ok(Found::Known(key)),
            Ok(_) => {
                tracing::warn!(key, "deleted here, but changed by somebody else: it stays");
                self.tally.conflicts.fetch_add(1, Ordering::Relaxed);
                Ok(Found::Another)
            }
            Err(RemoteError::NotFound(_)) => Ok(Found::Nothing(key)),
            Err(error) => Err(error),
        }
    }
}

/// What asking about each object answers. The error of one leaves that one out, and the first of them is noted; one of
/// the server ends it.
async fn of_each<'a, T, Asked>(
    objects: impl IntoIterator<Item = &'a Object>,
    ask: impl Fn(&'a Object) -> Asked,
    failed: &mut Option<RemoteError>,
) -> Result<Vec<(&'a Object, T)>, RemoteError>
where
    Asked: Future<Output = Result<T, RemoteError>>,
{
    let mut answers = stream::iter(objects)
        .map(|object| {
            let asked = ask(object);
            async move { (object, asked.await) }
        })
        .buffer_unordered(PARALLEL);
    let mut all = Vec::new();
    while let Some((object, answer)) = answers.next().await {
        match answer {
            Ok(answer) => all.push((object, answer)),
            Err(error) if error.is_of_all() => return Err(error),
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
    }
    Ok(all)
}
