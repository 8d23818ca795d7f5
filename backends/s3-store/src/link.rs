//! The way of one mount's engine to the bucket: connections and a runtime of its own, so that a commit waits for no other
//! thread.

use std::ops::Range;

use bytes::Bytes;
use s3::client::{Bucket, Client};
use s3::config::S3Config;
use s3::objects::{Fault, Key, Objects, PutOutcome};
use tokio::runtime::Runtime;

/// The connections and the runtime that drives them.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) bucket: Bucket,
    pub(super) log: Log,
    pub(super) runtime: Runtime,
}

impl Link {
    pub(super) fn new(bucket: Bucket, config: &S3Config) -> std::io::Result<Self> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        Ok(Self { log: Log(Client::new(&bucket, config)), bucket, runtime: runtime.enable_all().build()? })
    }
}

/// The log, whose reads go on when the caller has something more urgent to do: to drop one closes its connection, and the
/// next request would wait for another.
#[derive(Debug)]
pub(super) struct Log(pub(super) Client);

impl Objects for Log {
    async fn put_new(&self, key: Key, body: Bytes) -> Result<PutOutcome, Fault> {
        self.0.put_new(key, body).await
    }

    async fn get(&self, key: Key, range: Option<Range<u64>>) -> Result<Option<Bytes>, Fault> {
        let client = self.0.clone();
        let read = tokio::spawn(async move { client.get(key, range).await });
        let ended = |error: tokio::task::JoinError| Err(Fault::Unknown(error.to_string()));
        read.await.unwrap_or_else(ended)
    }

    async fn checkpoints(&self) -> Result<Vec<u64>, Fault> {
        self.0.checkpoints().await
    }
}
