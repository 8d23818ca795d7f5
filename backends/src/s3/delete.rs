//! Taking objects away that were deleted here, as far as they are still what was deleted.

use std::sync::atomic::Ordering;

use futures::{StreamExt, stream};
use object_store::ObjectStore;
use object_store::path::Path;

use super::cache::{self, Object};
use super::config::ConflictPolicy;
use super::remote::{Remote, RemoteError, path};
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
    /// other: its name stays in the journal, and is the answer, with the reason.
    pub(super) async fn delete_all<'a>(
        &self,
        gone: &'a [Object],
        batch: u64,
    ) -> Result<Vec<(&'a Object, RemoteError)>, StoreError> {
        let mut failed = Vec::new();
        for chunk in gone.chunks(1000) {
            let kept = of_each(chunk, |object| self.keep_version(object), &mut failed).await?;
            let kept = kept.into_iter().map(|(object, ())| object);
            let found = of_each(kept, |object| self.key_to_delete(object), &mut failed).await?;
            if found.iter().any(|(_, it)| matches!(it, Found::Nothing(_))) {
                // HEAD does not say what is not there.
                self.remote.has_bucket().await?;
            }
            let (mut objects, mut nothing) = (Vec::with_capacity(found.len()), Vec::new());
            let (mut to_delete, mut keys) = (Vec::new(), Vec::new());
            for (object, found) in found {
                match found {
                    Found::Known(key) => {
                        to_delete.push(object);
                        keys.push(key);
                    }
                    Found::Nothing(key) => {
                        objects.push(object);
                        nothing.push(key);
                    }
                    Found::Another => objects.push(object),
                }
            }
            self.cache.transaction(|db| doubt::delete(db, &keys))?;
            let deleted = self.remote.delete(&keys).await?;
            let mut done = Vec::with_capacity(keys.len());
            for ((object, key), deleted) in to_delete.into_iter().zip(keys).zip(deleted) {
                match deleted {
                    Ok(()) => {
                        objects.push(object);
                        done.push(key);
                    }
                    Err(error) => failed.push((object, error)),
                }
            }
            for object in &objects {
                self.forgotten.forget(&object.key, &object.etag);
            }
            self.has_news.store(true, Ordering::Release);
            self.with_stubs(|db, stubs| {
                doubt::is_deleted(db, &done)?;
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
        Ok(failed)
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

impl Remote {
    /// Deletes objects, a request for a thousand; what became of each. What is not there is no error, and what the server
    /// refuses to delete is an error of that object: others can be put all the same, and have been.
    ///
    /// # Errors
    /// If the server is away.
    pub(super) async fn delete(
        &self,
        keys: &[String],
    ) -> Result<Vec<Result<(), RemoteError>>, RemoteError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let paths: Result<Vec<Path>, _> = keys.iter().map(|key| path(key)).collect();
        let paths = stream::iter(paths?.into_iter().map(Ok));
        // In the order of the keys; a request that has failed altogether is one error.
        let deleted = self.store.delete_stream(Box::pin(paths));
        let deleted = deleted.map(|deleted| deleted.map(drop).map_err(RemoteError::of_deletion));
        let deleted: Vec<Result<(), RemoteError>> = deleted.collect().await;
        each_of(keys.len(), deleted)
    }
}

/// What became of each of so many keys. Fewer answers are of requests that have failed altogether, also where these say
/// that something is not there.
fn each_of(
    keys: usize,
    answers: Vec<Result<(), RemoteError>>,
) -> Result<Vec<Result<(), RemoteError>>, RemoteError> {
    let is_of_each = answers.len() == keys;
    let mut each = Vec::with_capacity(keys);
    for answer in answers {
        match answer {
            Err(error) if error.is_away() => return Err(error),
            Err(error) if !is_of_each => {
                return Ok((0..keys).map(|_| Err(error.again())).collect());
            }
            Err(RemoteError::NotFound(_)) => each.push(Ok(())),
            answer => each.push(answer),
        }
    }
    match is_of_each {
        true => Ok(each),
        false => Err(RemoteError::Other(format!(
            "{} keys were to be deleted, and the server has answered of {}",
            keys,
            each.len()
        ))),
    }
}

/// What asking about each object answers. The error of one leaves that one out, and is noted; one of the server ends it.
async fn of_each<'a, T, Asked>(
    objects: impl IntoIterator<Item = &'a Object>,
    ask: impl Fn(&'a Object) -> Asked,
    failed: &mut Vec<(&'a Object, RemoteError)>,
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
            Err(error) => failed.push((object, error)),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    use super::super::config::{AccessKey, S3Config, Secret, SyncMode};
    use super::*;

    /// A server that answers one request so; its address.
    fn answers(body: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim().to_ascii_lowercase();
                if let Some(told) = line.strip_prefix("content-length: ") {
                    length = told.parse().unwrap();
                }
                if line.is_empty() {
                    break;
                }
            }
            reader.read_exact(&mut vec![0; length]).unwrap();
            let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length:";
            write!(stream, "{head} {}\r\n\r\n{body}", body.len()).unwrap();
        });
        endpoint
    }

    /// What becomes of deleting some keys where a server answers so.
    async fn deleted(keys: &[&str], answer: &'static str) -> Vec<Result<(), RemoteError>> {
        let config = S3Config {
            endpoint: answers(answer),
            region: "us-east-1".to_owned(),
            bucket: "bucket".to_owned(),
            prefix: String::new(),
            agent: "agent".to_owned(),
            writer: "alice".to_owned(),
            path_style: true,
            access_key: AccessKey {
                id: "id".to_owned(),
                secret: Secret("secret".to_owned()),
                token: None,
                source: "the test".to_owned(),
            },
            sync: SyncMode::Local,
            conflicts: ConflictPolicy::KeepBoth,
            front_matter_visible: false,
            keep_versions: true,
            poll: Duration::from_secs(3600),
            delay: Duration::from_secs(3600),
            timeout: Duration::from_secs(10),
            seal: None,
        };
        let remote = Remote::new(&config).unwrap();
        let keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        remote.delete(&keys).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_said_of_one_key_is_said_of_no_other() {
        let all = deleted(
            &["a", "b", "c", "d"],
            "<DeleteResult><Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code>\
             <Message>locked</Message></Error><Error><Key>c</Key><Code>EntityTooLarge</Code>\
             <Message>no</Message></Error></DeleteResult>",
        );
        let all = all.await;
        assert!(
            matches!(
                all[..],
                [
                    Ok(()),
                    Err(RemoteError::Refused(_)),
                    Err(RemoteError::Other(_)),
                    Ok(())
                ]
            ),
            "{all:?}"
        );
        let one = deleted(
            &["b"],
            "<DeleteResult><Error><Key>b</Key><Code>AccessDenied</Code><Message>locked</Message></Error></DeleteResult>",
        );
        let one = one.await;
        assert!(matches!(one[..], [Err(RemoteError::Refused(_))]), "{one:?}");
    }

    #[test]
    fn what_is_said_of_a_request_is_said_of_none_of_its_keys() {
        let missing = || RemoteError::NotFound("?delete".to_owned());
        let all = each_of(3, vec![Err(missing())]).unwrap();
        assert!(all.len() == 3 && all.iter().all(Result::is_err), "{all:?}");
        assert!(each_of(3, vec![Ok(())]).is_err());
        let one = each_of(1, vec![Err(missing())]).unwrap();
        assert!(matches!(one[..], [Ok(())]), "{one:?}");
    }
}
