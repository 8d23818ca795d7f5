//! Permissions on a bucket, by type: [`Client`] creates and reads objects of the log, [`MirrorClient`] writes only
//! outside of logs, [`Sweeper`] only deletes from one, [`ResultsClient`] creates and reads the results of runs.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use network::limits;
use network::limits::BodyLimit;

pub use crate::bucket::{Bucket, ListedObject, Precondition};
use crate::config::S3Config;
use crate::objects::{Fault, Key, Objects, PutOutcome};
use crate::seal::{Seal, SealError, is_sealed};

/// The prefix of the keys of an agent's memory, in the mirror (an empty `part`) or in the log (`.ctx/`).
fn prefix(config: &S3Config, part: &str) -> String {
    format!("{}agents/{}/{part}", config.prefix, config.agent)
}

/// The maximum length of an object of a kind: no version of this program writes a longer one.
fn limit(key: Key) -> BodyLimit {
    match key {
        Key::Log(_) => limits::COMMIT,
        Key::Blob(..) => limits::BLOB,
        Key::Checkpoint(_) => limits::CHECKPOINT,
        Key::Floor(_) => limits::FLOOR,
    }
}

/// The log of one agent: creates and reads objects, and does nothing else.
#[derive(Clone, Debug)]
pub struct Client {
    bucket: Bucket,
    prefix: String,
    seal: Option<Seal>,
}

impl Client {
    /// The log of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self {
            bucket: bucket.clone(),
            prefix: prefix(config, ".ctx/"),
            seal: config.seal.as_ref().map(|key| Seal::new(&key.0)),
        }
    }

    /// The key of an object below that of the log.
    pub(crate) fn path(&self, key: Key) -> String {
        key.path(|hash| match &self.seal {
            Some(seal) => seal.blob_name(hash),
            None => hash.to_string(),
        })
    }

    /// The whole key of an object.
    pub fn key(&self, key: Key) -> String {
        format!("{}{}", self.prefix, self.path(key))
    }

    /// Why this process cannot add a commit to the log, although it can read the log: the bucket is a directory that it may
    /// only read.
    ///
    /// # Errors
    /// If the bucket does not answer.
    pub async fn refusal(&self) -> Result<Option<String>, Fault> {
        self.bucket.refusal(&self.key(Key::Log(1))).await
    }

    /// The numbers of the objects of a kind, from a listing, which may be stale.
    async fn numbers(&self, kind: &str) -> Result<Vec<u64>, Fault> {
        let listed = self.bucket.list(&format!("{}{kind}", self.prefix)).await?;
        let numbers = listed.iter().filter_map(|object| object.key.parse().ok());
        Ok(numbers.collect())
    }

    /// The numbers of commits.
    pub(crate) async fn commits(&self) -> Result<Vec<u64>, Fault> {
        self.numbers("log/").await
    }
}

impl Objects for Client {
    async fn put_new(&self, key: Key, body: Bytes) -> Result<PutOutcome, Fault> {
        let name = self.key(key);
        let refused_of = |error: String| Fault::Refused(format!("{name}: {error}"));
        let refused = |error: SealError| refused_of(error.to_string());
        let sealed = match &self.seal {
            Some(seal) => seal.seal(&name, &body).map_err(refused)?,
            None => body,
        };
        let (length, limit) = (sealed.len(), limit(key));
        if length as u64 > limit.bytes {
            // No client would read it.
            let (kind, most) = (limit.kind, limit.bytes);
            return Err(refused_of(format!("it has {length} bytes, and {kind} may have at most {most}")));
        }
        let digest = match (&self.seal, key) {
            (None, Key::Blob(hash, _)) => Some(hash),
            _ => None,
        };
        if self.bucket.write(&name, sealed, &[], Precondition::Absent, digest).await? {
            Ok(PutOutcome::Created)
        } else {
            // Maybe by an earlier attempt of this request: the session knows its own commit by the nonce.
            Ok(PutOutcome::Exists)
        }
    }

    async fn get(&self, key: Key, range: Option<Range<u64>>) -> Result<Option<Bytes>, Fault> {
        let name = self.key(key);
        let unreadable = |reason: &str| Fault::Unreadable(format!("{name}: {reason}"));
        // A sealed object opens as a whole only.
        let asked = range.as_ref().filter(|_| self.seal.is_none());
        let Some(object) = self.bucket.get(&name, asked, limit(key)).await? else {
            return Ok(None);
        };
        let body = match &self.seal {
            Some(seal) => {
                let opened = seal.open(&name, object.body);
                opened.map_err(|error| unreadable(&error.to_string()))?
            }
            None if !object.is_part && is_sealed(&object.body) => {
                let fix = "it is encrypted: give the key with CTXBENCH_S3_KEY or --key-file";
                return Err(unreadable(fix));
            }
            None => object.body,
        };
        match range {
            Some(range) if !object.is_part => {
                let part = body.get(range.start as usize..range.end as usize);
                let part = part.map(|part| Some(body.slice_ref(part)));
                part.ok_or_else(|| unreadable("it is truncated"))
            }
            _ => Ok(Some(body)),
        }
    }

    async fn checkpoints(&self) -> Result<Vec<u64>, Fault> {
        self.numbers("checkpoint/").await
    }
}

/// An object outside of logs.
#[derive(Clone, Debug)]
pub struct MirrorObject {
    /// Its bytes.
    pub body: Bytes,
    /// Its metadata, by names without `x-amz-meta-`.
    pub metadata: BTreeMap<String, String>,
    /// Its entity tag, as the server gave it.
    pub etag: Option<String>,
}

/// Writes, reads and deletes objects of a mirror, by their keys below `agents/<agent>/`. Nothing that it reads is taken
/// for the truth. Requests fail with a [`Fault`], those that would change a log before they are sent.
#[derive(Clone, Debug)]
pub struct MirrorClient {
    bucket: Bucket,
    prefix: String,
}

impl MirrorClient {
    /// The mirror of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self { bucket: bucket.clone(), prefix: prefix(config, "") }
    }

    /// The whole key of an object.
    pub fn key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// The whole key of an object to change. Those of logs are refused, as the bucket policy does.
    fn changeable(&self, key: &str) -> Result<String, Fault> {
        if key.split('/').any(|name| name == ".ctx") {
            Err(Fault::Refused(format!("{key} belongs to a log, not to a mirror")))
        } else {
            Ok(self.key(key))
        }
    }

    /// Writes an object; false if something else is there than the precondition says.
    pub async fn put(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        precondition: Precondition<'_>,
    ) -> Result<bool, Fault> {
        let key = self.changeable(key)?;
        self.bucket.write(&key, body, metadata, precondition, None).await
    }

    /// Reads an object that any tool may have written. `None` if there is none.
    pub async fn get(&self, key: &str) -> Result<Option<MirrorObject>, Fault> {
        self.get_within(key, limits::FOREIGN_OBJECT).await
    }

    /// Reads an object that a mount may have written; one that is longer is [`Fault::Unreadable`].
    pub(crate) async fn get_ours(&self, key: &str) -> Result<Option<MirrorObject>, Fault> {
        self.get_within(key, limits::MIRROR_OBJECT).await
    }

    async fn get_within(&self, key: &str, limit: BodyLimit) -> Result<Option<MirrorObject>, Fault> {
        let key = self.key(key);
        let Some(object) = self.bucket.get(&key, None, limit).await? else {
            return Ok(None);
        };
        let etag = self.bucket.etag(&object);
        Ok(Some(MirrorObject { metadata: object.metadata, etag, body: object.body }))
    }

    /// The objects whose keys begin with `start`, without those of the log; in order of their keys, without `start`.
    pub async fn list(&self, start: &str) -> Result<Vec<ListedObject>, Fault> {
        let mut listed = self.bucket.list(&self.key(start)).await?;
        listed.retain(|object| !object.key.starts_with(".ctx/"));
        Ok(listed)
    }

    /// Deletes an object, if there is one.
    pub async fn delete(&self, key: &str) -> Result<(), Fault> {
        self.bucket.delete(&self.changeable(key)?).await
    }
}

/// Deletes objects of one log, for garbage collection alone.
#[derive(Debug)]
pub struct Sweeper(Client);

impl Sweeper {
    /// For the log of the configured agent in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self(Client::new(bucket, config))
    }

    /// Every object of the log, by its key below that of the log.
    pub(crate) async fn list(&self) -> Result<Vec<ListedObject>, Fault> {
        self.0.bucket.list(&self.0.prefix).await
    }

    /// Deletes an object of the log, by its key below that of the log.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        let key = format!("{}{key}", self.0.prefix);
        self.0.bucket.delete(&key).await
    }
}

/// The results of runs below a prefix: creates, reads and lists objects, and does nothing else.
#[derive(Clone, Debug)]
pub struct ResultsClient {
    bucket: Bucket,
    prefix: String,
}

impl ResultsClient {
    /// The results below the configured prefix in `bucket`.
    pub fn new(bucket: &Bucket, config: &S3Config) -> Self {
        Self { bucket: bucket.clone(), prefix: config.prefix.clone() }
    }

    /// Creates an object unless one has that key (`If-None-Match: *`). Fails with a [`Fault`]; after [`Fault::Unknown`] it
    /// may exist.
    pub async fn create(&self, key: &str, body: Bytes) -> Result<PutOutcome, Fault> {
        let key = format!("{}{key}", self.prefix);
        if self.bucket.write(&key, body, &[], Precondition::Absent, None).await? {
            Ok(PutOutcome::Created)
        } else {
            Ok(PutOutcome::Exists)
        }
    }

    /// Reads an object of at most `limit`. `None` if there is none. Fails with a [`Fault`].
    pub async fn get(&self, key: &str, limit: BodyLimit) -> Result<Option<Bytes>, Fault> {
        let key = format!("{}{key}", self.prefix);
        let answer = self.bucket.get(&key, None, limit).await?;
        Ok(answer.map(|answer| answer.body))
    }

    /// The objects whose keys begin with `start`, without it, in order. Fails with a [`Fault`], also if there are more than
    /// `most`.
    pub async fn list(&self, start: &str, most: usize) -> Result<Vec<ListedObject>, Fault> {
        self.bucket.list_at_most(&format!("{}{start}", self.prefix), most).await
    }
}
