//! An S3 server in this process, over a directory, for machines without another server.
//!
//! `s3s` implements the protocol, `store` the objects and preconditions. Its results say nothing about any
//! other product.

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

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::{AFTER_A_FAILED_ACCEPT, ServerAccess};
use host::VirtualHosts;
use service::Service;
use store::Store;

/// A known deviation of another server, or a bucket policy, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// No deviation.
    None,
    /// Ignores the preconditions of writes, as `rclone serve s3` does.
    IgnoresConditions,
    /// Enforces the bucket policy for logs of `s3`: below `*/.ctx/`, uploads need `If-None-Match`, and nothing is
    /// deleted.
    ProtectsLogs,
}

/// A running server. Dropping it ends its connections.
#[derive(Debug)]
pub struct Embedded(JoinHandle<()>);

impl Embedded {
    /// Serves the objects in `dir` to clients with the credentials, until dropped.
    ///
    /// An acknowledged write is in the kernel's page cache, not on the disk. It survives this process, not
    /// the machine.
    ///
    /// # Errors
    /// If the directory cannot be used, or another server uses it.
    pub fn serve(listener: TcpListener, dir: &Path, access: &ServerAccess) -> io::Result<Self> {
        Self::serve_as(listener, dir, access, None, Quirk::None)
    }

    /// As [`Embedded::serve`], with a deviation of other servers.
    ///
    /// # Errors
    /// As [`Embedded::serve`].
    pub fn serve_with(listener: TcpListener, dir: &Path, access: &ServerAccess, quirk: Quirk) -> io::Result<Self> {
        Self::serve_as(listener, dir, access, None, quirk)
    }

    /// As [`Embedded::serve`], with virtual-hosted addressing: for the `domain` `localhost:9000`, a
    /// bucket's host is `bucket.localhost:9000`. Path-style requests are refused, unless their host is an
    /// IP address.
    ///
    /// # Errors
    /// As [`Embedded::serve`].
    pub fn serve_virtual_hosts(
        listener: TcpListener,
        dir: &Path,
        access: &ServerAccess,
        domain: &str,
    ) -> io::Result<Self> {
        let hosts = Some(VirtualHosts::new(domain));
        Self::serve_as(listener, dir, access, hosts, Quirk::None)
    }

    fn serve_as(
        listener: TcpListener,
        dir: &Path,
        access: &ServerAccess,
        hosts: Option<VirtualHosts>,
        quirk: Quirk,
    ) -> io::Result<Self> {
        let mut builder = S3ServiceBuilder::new(Service::new(Store::open(dir)?, quirk));
        if let Some(hosts) = hosts {
            builder.set_host(hosts);
        }
        builder.set_auth(SimpleAuth::from_single(access.access_key.clone(), access.secret_key.clone()));
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
                    let server = http1::Builder::new();
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
    /// Waits until the server ends by itself. Returns the reason.
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
