//! `s3-bare`: the requests that a mount cannot do without, by the mount's own S3 client and without a file system.
//!
//! Writing a file is one PUT, reading one is one GET, listing a directory its LIST requests. What `s3` takes beyond it
//! is what the mount costs.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use s3::client::{Bucket, MirrorClient, Precondition};
use s3::config::{GLANCE_EVERY, MirrorMode, S3Config, Secret, SyncMode};
use s3::credentials::{AccessKey, Credentials};
use s3::directory::is_directory;

use arms::backend::{
    Access, Backend, Capabilities, Description, FileClient, Need, Unavailable, Versions, Workspace, WorkspaceConfig,
};
use arms::promise::{Acknowledgement, Promises};
use arms::services::Services;
use arms::services::s3::{DistantServer, place};

/// How many files are written at once outside the clock.
const FILLED_AT_ONCE: usize = 32;

/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The client, and the server that it is measured with.
pub struct S3Bare {
    server: DistantServer,
    services: Arc<Services>,
}

impl S3Bare {
    /// The client of a server.
    pub fn on(server: DistantServer, services: &Arc<Services>) -> Self {
        let services = Arc::clone(services);
        Self { server, services }
    }

    /// The server in a backend's name: `s3-bare`, then maybe the server and the distance to it.
    pub fn server_of(name: &str) -> Option<DistantServer> {
        DistantServer::of_suffix(name.strip_prefix("s3-bare")?)
    }
}

impl Backend for S3Bare {
    fn describe(&self) -> Description {
        Description {
            name: format!("s3-bare{}", self.server.suffix()),
            summary: format!(
                "one S3 request for each call, with the client of `s3`; no mount, no cache, no path; {}",
                self.server.words()
            ),
            durability: "a file is in the bucket when its write returns".to_owned(),
            capabilities: Capabilities { holds_data: true, persistent: true, ..Capabilities::default() },
            needs: vec![Need { name: "an S3 server".to_owned(), why: "it holds the files".to_owned() }],
            ..Description::default()
        }
    }

    fn access(&self) -> Access {
        Access::Client
    }

    fn promises(&self) -> Promises {
        Promises {
            killed_daemon: Some(Acknowledgement::Write),
            machine_loss: Some(Acknowledgement::Write),
            ..Promises::POSIX
        }
    }

    fn versions(&self) -> Result<Versions, Unavailable> {
        let version = self.server.wanted.version()?;
        Ok(Versions::from([(self.server.wanted.label().to_owned(), version)]))
    }

    fn open(&self, config: &WorkspaceConfig) -> io::Result<Box<dyn Workspace>> {
        let servers = &self.services.s3;
        let address = servers.address(&config.program, self.server)?;
        let credentials = if is_directory(&address.endpoint) {
            Credentials::None
        } else {
            let (id, secret) = address.credentials()?;
            let (secret, source) = (Secret(secret), "the server that is measured".to_owned());
            Credentials::Key(AccessKey { id, secret, token: None, source })
        };
        let bucket = S3Config {
            endpoint: address.endpoint,
            region: address.region,
            bucket: address.bucket,
            prefix: format!("{}/", place(&config.dir)),
            agent: "agent".to_owned(),
            writer: "bare".to_owned(),
            path_style: true,
            credentials,
            sync: SyncMode::Close,
            mirror: MirrorMode::Off,
            poll: REQUEST_LIMIT,
            glance: GLANCE_EVERY,
            delay: Duration::ZERO,
            timeout: REQUEST_LIMIT,
            seal: None,
        };
        let mut client = BareClient { dir: config.dir.clone(), config: bucket, connected: None };
        client.start()?;
        Ok(Box::new(client))
    }
}

/// A client, and the threads that serve its connections.
struct BareClient {
    /// Empty: there is nothing on disk.
    dir: PathBuf,
    config: S3Config,
    connected: Option<(MirrorClient, tokio::runtime::Runtime)>,
}

impl BareClient {
    fn connected(&self) -> io::Result<&(MirrorClient, tokio::runtime::Runtime)> {
        self.connected.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }
}

impl FileClient for BareClient {
    fn write(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let put = bucket.put(path, content.to_vec().into(), &[], Precondition::None);
        runtime.block_on(put).map_err(io::Error::other)?;
        Ok(())
    }

    fn fill(&mut self, files: &[(String, &[u8])]) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let puts = files.iter().map(|(path, content)| {
            let body = content.to_vec().into();
            let put = bucket.put(path, body, &[], Precondition::None);
            async move { put.await.map(drop) }
        });
        let all = stream::iter(puts).buffer_unordered(FILLED_AT_ONCE);
        let all = all.try_collect::<()>();
        runtime.block_on(all).map_err(io::Error::other)
    }

    fn read(&mut self, path: &str, into: &mut Vec<u8>) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let fetched = runtime.block_on(bucket.get(path));
        let fetched = fetched.map_err(io::Error::other)?;
        let object = fetched.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        into.extend_from_slice(&object.body);
        Ok(())
    }

    fn list(&mut self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let (bucket, runtime) = self.connected()?;
        let listed = runtime.block_on(bucket.list(&format!("{dir}/")));
        let listed = listed.map_err(io::Error::other)?.into_iter();
        Ok(listed.map(|object| (object.key, object.size)).collect())
    }
}

impl Workspace for BareClient {
    fn root(&self) -> &Path {
        &self.dir
    }

    fn client(&mut self) -> Option<&mut dyn FileClient> {
        Some(self)
    }

    fn stop(&mut self) -> io::Result<()> {
        self.connected = None;
        Ok(())
    }

    /// A new client: its first request connects.
    fn start(&mut self) -> io::Result<()> {
        let bucket = Bucket::new(&self.config).map_err(io::Error::other)?;
        let client = MirrorClient::new(&bucket, &self.config);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        self.connected = Some((client, runtime));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_server_and_the_distance() {
        let server = S3Bare::server_of("s3-bare-embedded@30ms").unwrap();
        let bare = S3Bare::on(server, &Arc::default());
        assert_eq!(bare.describe().name, "s3-bare-embedded@30ms");
        assert!(S3Bare::server_of("s3").is_none());
        assert!(S3Bare::server_of("s3-barely").is_none());
    }
}
