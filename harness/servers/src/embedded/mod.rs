//! An S3 server inside this process, over a directory.
//!
//! `s3s` speaks the protocol; what an object is, and when a conditional write wins, is decided in
//! `store`. It exists so that S3 can be measured where no other server is installed: it is ours, so
//! what it is found to be good at says nothing about anybody's product.

mod condition;
mod host;
mod incoming;
mod listing;
mod multipart;
mod object;
mod service;
mod store;

use std::io;
use std::path::Path;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::Access;
use host::VirtualHosts;
use service::Service;
use store::Store;

/// How long to wait when the process has no file descriptors left for another connection.
const AFTER_A_FAILED_ACCEPT: Duration = Duration::from_millis(50);

/// What a server of other people's does, and this one does not unless it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// It has none.
    None,
    /// It does what it is told whether or not the condition of a write holds, as `rclone serve s3` does.
    IgnoresConditions,
    /// As that, but only where parts are made an object.
    IgnoresConditionsOfParts,
    /// It answers an upload in parts with another entity tag than it tells later.
    TagsPartsAnew,
}

/// A running server; it and its connections end when this is dropped.
#[derive(Debug)]
pub struct Embedded(JoinHandle<()>);

impl Embedded {
    /// Serves the objects in `dir` to whoever has the credentials, until dropped.
    ///
    /// What is written is in the kernel's hands when the answer leaves, not on the disk: it survives
    /// this process, not the machine.
    ///
    /// # Errors
    /// If the directory cannot be used, or another server uses it.
    pub fn serve(listener: TcpListener, dir: &Path, access: &Access) -> io::Result<Self> {
        Self::serve_as(listener, dir, access, None, Quirk::None)
    }

    /// As [`Embedded::serve`], with a quirk of other servers.
    ///
    /// # Errors
    /// As [`Embedded::serve`].
    pub fn serve_with(
        listener: TcpListener,
        dir: &Path,
        access: &Access,
        quirk: Quirk,
    ) -> io::Result<Self> {
        Self::serve_as(listener, dir, access, None, quirk)
    }

    /// As [`Embedded::serve`], but wants the bucket as part of its name, as in `bucket.localhost:9000` where `domain`
    /// is `localhost:9000`: a request that names it in the path is refused. Only one that gives an address instead of
    /// a name is taken by its path.
    ///
    /// # Errors
    /// As [`Embedded::serve`].
    pub fn serve_virtual_hosts(
        listener: TcpListener,
        dir: &Path,
        access: &Access,
        domain: &str,
    ) -> io::Result<Self> {
        let hosts = Some(VirtualHosts::new(domain));
        Self::serve_as(listener, dir, access, hosts, Quirk::None)
    }

    fn serve_as(
        listener: TcpListener,
        dir: &Path,
        access: &Access,
        hosts: Option<VirtualHosts>,
        quirk: Quirk,
    ) -> io::Result<Self> {
        let mut builder = S3ServiceBuilder::new(Service::new(Store::open(dir)?, quirk));
        if let Some(hosts) = hosts {
            builder.set_host(hosts);
        }
        builder.set_auth(SimpleAuth::from_single(
            access.access_key.clone(),
            access.secret_key.clone(),
        ));
        let service = builder.build();
        let accepting = async move {
            let mut connections = JoinSet::new();
            loop {
                let stream = match listener.accept().await {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!("embedded S3 could not accept a connection: {error}");
                        tokio::time::sleep(AFTER_A_FAILED_ACCEPT).await;
                        continue;
                    }
                };
                // Small answers must not wait for an acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::warn!("embedded S3 could not set TCP_NODELAY: {error}");
                }
                while connections.try_join_next().is_some() {}
                let service = service.clone();
                connections.spawn(async move {
                    let server = auto::Builder::new(TokioExecutor::new());
                    let serving = server.serve_connection(TokioIo::new(stream), service);
                    if let Err(error) = serving.await {
                        tracing::debug!("embedded S3 lost a connection: {error}");
                    }
                });
            }
        };
        Ok(Self(tokio::spawn(accepting)))
    }
}

impl Embedded {
    /// Waits for an end that nobody asked for, and says why.
    pub(crate) async fn has_ended(&mut self) -> String {
        match (&mut self.0).await {
            Ok(()) => "it takes no more connections".to_owned(),
            Err(error) => error.to_string(),
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.0.abort();
    }
}
