//! The bucket of a memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use network::limits::BodyLimit;

use crate::config::S3Config;
use crate::objects::Fault;
use crate::server::Server;
pub use crate::stored::{Listed, Precondition, S3OpenError};
use crate::stored::Object;
use crate::tree::Hash;
pub use crate::wire::is_this_machine;

/// A bucket. Clones share connections.
#[derive(Clone, Debug)]
pub struct Bucket(Arc<Server>);

impl Bucket {
    /// The bucket of a configuration. Fails if endpoint or access key cannot be used; the first request connects.
    pub fn new(config: &S3Config) -> Result<Self, S3OpenError> {
        Ok(Self(Arc::new(Server::new(config)?)))
    }

    /// Requests sent by kind (`s3_get`, `s3_put`, …), retries included, and bytes of bodies moved (`s3_bytes_sent`,
    /// `s3_bytes_received`).
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.0.requests.counts()
    }

    /// How many requests have had an answer that does not ask for a repetition.
    pub fn answers(&self) -> u64 {
        self.0.requests.answers()
    }

    /// Writes an object; false if something else is there than the precondition says. `digest` is that of the body, if it
    /// is known.
    pub(crate) async fn write(
        &self,
        key: &str,
        body: Bytes,
        metadata: &[(&str, String)],
        precondition: Precondition<'_>,
        digest: Option<Hash>,
    ) -> Result<bool, Fault> {
        self.0.write(key, body, metadata, precondition, digest).await
    }

    /// Reads an object of at most `limit`. `None` if there is none.
    pub(crate) async fn get(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        limit: BodyLimit,
    ) -> Result<Option<Object>, Fault> {
        self.0.get(key, range, limit).await
    }

    /// The entity tag of a whole object that [`Bucket::get`] read.
    pub(crate) fn etag(&self, object: &Object) -> Option<String> {
        object.etag.clone()
    }

    /// All objects whose keys begin with `prefix`, in order. Fails if there are more than a bucket of ours has.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<Listed>, Fault> {
        self.0.list(prefix).await
    }

    /// Deletes an object, if there is one.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        self.0.delete(key).await
    }
}
