//! The client without a file system: what one request costs, for `ctxbench bucket` to hold mounts against.

use object_store::Attributes;

use super::config::S3Config;
use super::remote::{Expect, Remote, S3OpenError};
use crate::store::Result;

/// The same client that a mount uses.
#[derive(Debug)]
pub struct BareClient {
    remote: Remote,
    runtime: tokio::runtime::Runtime,
}

impl BareClient {
    /// A client; its first request connects.
    ///
    /// # Errors
    /// If the endpoint is no address.
    pub fn open(config: &S3Config) -> std::result::Result<Self, S3OpenError> {
        let remote = Remote::new(config)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(|error| S3OpenError::Cache(format!("starting threads: {error}")))?;
        Ok(Self { remote, runtime })
    }

    /// One PUT.
    ///
    /// # Errors
    /// If the server refuses or does not answer.
    pub fn put(&self, key: &str, body: Vec<u8>) -> Result<()> {
        let put = self
            .remote
            .put(key, body.into(), Attributes::new(), &Expect::Anything);
        self.runtime.block_on(put)?;
        Ok(())
    }

    /// One PUT of an object that must not be there yet, as every new file is written.
    ///
    /// # Errors
    /// If it is there, or the server does not answer.
    pub fn put_new(&self, key: &str, body: Vec<u8>) -> Result<()> {
        let put = self
            .remote
            .put(key, body.into(), Attributes::new(), &Expect::Absent);
        self.runtime.block_on(put)?;
        Ok(())
    }

    /// One GET; the bytes.
    ///
    /// # Errors
    /// If the server refuses or does not answer.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        let fetched = self.runtime.block_on(self.remote.get(key))?;
        Ok(fetched.body.to_vec())
    }

    /// As many LIST requests as there are thousands of keys; how many keys.
    ///
    /// # Errors
    /// If the server refuses or does not answer.
    pub fn list(&self, prefix: &str) -> Result<usize> {
        Ok(self.runtime.block_on(self.remote.list(prefix))?.len())
    }
}
