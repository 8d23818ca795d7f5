//! The bucket of a memory: on an S3 server, or a directory that hosts share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use network::limits::{self, BodyLimit};

use crate::config::S3Config;
use crate::directory::Directory;
use crate::objects::Fault;
use crate::server::Server;
pub use crate::stored::{ListedObject, Precondition, S3OpenError};
use crate::stored::{Object, Requests};
use crate::tree::Hash;
pub use crate::wire::is_this_machine;

/// A bucket. Clones share connections.
#[derive(Clone, Debug)]
pub struct Bucket(Arc<Place>);

#[derive(Debug)]
enum Place {
    Server(Box<Server>),
    Directory(Directory),
}

impl Bucket {
    /// The bucket of a configuration. Fails if endpoint or access key cannot be used; the first request connects.
    pub fn new(config: &S3Config) -> Result<Self, S3OpenError> {
        let place = match Directory::of(config)? {
            Some(directory) => Place::Directory(directory),
            None => Place::Server(Box::new(Server::new(config)?)),
        };
        Ok(Self(Arc::new(place)))
    }

    fn counts(&self) -> &Requests {
        match &*self.0 {
            Place::Server(server) => &server.requests,
            Place::Directory(directory) => &directory.requests,
        }
    }

    /// Requests sent by kind (`s3_get`, `s3_put`, …), retries included, and bytes of bodies moved (`s3_bytes_sent`,
    /// `s3_bytes_received`).
    pub fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.counts().counts()
    }

    /// How many requests have had an answer that does not ask for a repetition.
    pub fn answers(&self) -> u64 {
        self.counts().answers()
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
        match &*self.0 {
            Place::Server(server) => server.write(key, body, metadata, precondition, digest).await,
            Place::Directory(directory) => directory.write(key, body, metadata, precondition).await,
        }
    }

    /// Reads an object of at most `limit`. `None` if there is none.
    pub(crate) async fn get(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        limit: BodyLimit,
    ) -> Result<Option<Object>, Fault> {
        match &*self.0 {
            Place::Server(server) => server.get(key, range, limit).await,
            Place::Directory(directory) => directory.get(key, range.cloned(), limit).await,
        }
    }

    /// The entity tag of a whole object that [`Bucket::get`] read.
    pub(crate) fn etag(&self, object: &Object) -> Option<String> {
        match &*self.0 {
            Place::Server(_) => object.etag.clone(),
            Place::Directory(_) => Some(Hash::of(&object.body).to_string()),
        }
    }

    /// All objects whose keys begin with `prefix`, in order. Fails if there are more than a bucket of ours has.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<ListedObject>, Fault> {
        self.list_at_most(prefix, limits::LISTED_KEYS).await
    }

    /// The same for a prefix that holds at most this many objects. No page is asked for after one that has more.
    pub(crate) async fn list_at_most(&self, prefix: &str, most: usize) -> Result<Vec<ListedObject>, Fault> {
        match &*self.0 {
            Place::Server(server) => server.list(prefix, most).await,
            Place::Directory(directory) => directory.list(prefix, most).await,
        }
    }

    /// Why this process cannot create an object beside `key`, of a directory. A server says so when an object is created.
    pub(crate) async fn refusal(&self, key: &str) -> Result<Option<String>, Fault> {
        match &*self.0 {
            Place::Server(_) => Ok(None),
            Place::Directory(directory) => directory.refusal(key).await,
        }
    }

    /// Deletes an object, if there is one.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Fault> {
        match &*self.0 {
            Place::Server(server) => server.delete(key).await,
            Place::Directory(directory) => directory.delete(key).await,
        }
    }
}
