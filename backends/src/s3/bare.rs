//! `s3-bare`: the requests that a mount cannot do without, by the mount's own S3 client and without a file system.
//!
//! Writing a file is one PUT, reading one is one GET, listing a directory its LIST requests. What `s3` takes beyond it
//! is what the mount costs.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use s3::client::{Bucket, MirrorClient};
use s3::config::{AccessKey, MirrorMode, S3Config, Secret, SyncMode};

use crate::backend::{
    Access, Backend, Capabilities, Description, FileClient, Need, Receipt, Site, Unavailable,
    Workspace,
};
use crate::promise::{Acknowledgement, Promises};
use crate::s3_service::{self, Server};

/// How many files are written at once outside the clock.
const FILLED_AT_ONCE: usize = 32;

/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(30);

/// The client, and the server that it is measured with.
pub(crate) struct S3Bare {
    server: Server,
}

impl S3Bare {
    /// The client that a backend's name stands for: `s3-bare`, then maybe the server and the distance to it.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let server = Server::of_suffix(name.strip_prefix("s3-bare")?)?;
        Some(Self { server })
    }
}

impl Backend for S3Bare {
    fn describe(&self) -> Description {
        Description {
            name: format!("s3-bare{}", self.server.suffix()),
            file: None,
            summary: format!(
                "one S3 request for each call, by the client of `s3`; no mount, no cache, no path, {}",
                self.server.words()
            ),
            durability: "a file is in the bucket when its write returns".to_owned(),
            capabilities: Capabilities {
                holds_data: true,
                persistent: true,
                counts_requests: false,
                answers_requests: false,
                guesses_content: false,
                starts_empty: false,
                several_hosts: false,
            },
            daemons: 0,
            mounts: 0,
            needs: vec![Need {
                name: "an S3 server".to_owned(),
                why: "it holds the files".to_owned(),
            }],
            lines_of_code: 0,
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

    fn receipt(&self) -> Result<Receipt, Unavailable> {
        let version = self.server.wanted.version()?;
        Ok(Receipt::from([(
            self.server.wanted.label().to_owned(),
            version,
        )]))
    }

    fn open(&self, site: &Site) -> io::Result<Box<dyn Workspace>> {
        let address = self.server.address(&site.program)?;
        let (id, secret) = address.credentials()?;
        let config = S3Config {
            endpoint: address.endpoint,
            region: address.region,
            bucket: address.bucket,
            prefix: format!("{}/", s3_service::place(&site.dir)),
            agent: "agent".to_owned(),
            writer: "bare".to_owned(),
            path_style: true,
            access_key: AccessKey {
                id,
                secret: Secret(secret),
                token: None,
                source: "the server that is measured".to_owned(),
            },
            sync: SyncMode::Close,
            mirror: MirrorMode::Off,
            poll: REQUEST_LIMIT,
            delay: Duration::ZERO,
            timeout: REQUEST_LIMIT,
            seal: None,
        };
        let mut client = BareClient {
            dir: site.dir.clone(),
            config,
            connected: None,
        };
        client.start()?;
        Ok(Box::new(client))
    }

    fn offline_read(&self, _: &Site, _: &str) -> Option<(String, Vec<OsString>)> {
        None
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
    fn key(&self, path: &str) -> String {
        format!("{}{path}", self.config.prefix)
    }

    fn connected(&self) -> io::Result<&(MirrorClient, tokio::runtime::Runtime)> {
        self.connected
            .as_ref()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))
    }
}

impl FileClient for BareClient {
    fn write(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let (key, body) = (self.key(path), content.to_vec().into());
        let put = bucket.put(&key, body, &[]);
        runtime.block_on(put).map_err(io::Error::other)?;
        Ok(())
    }

    fn fill(&mut self, files: &[(String, &[u8])]) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let puts = files.iter().map(|(path, content)| {
            let (key, body) = (self.key(path), content.to_vec().into());
            async move { bucket.put(&key, body, &[]).await }
        });
        let all = stream::iter(puts).buffer_unordered(FILLED_AT_ONCE);
        let all = all.try_collect::<()>();
        runtime.block_on(all).map_err(io::Error::other)
    }

    fn read(&mut self, path: &str, into: &mut Vec<u8>) -> io::Result<()> {
        let (bucket, runtime) = self.connected()?;
        let fetched = runtime.block_on(bucket.get(&self.key(path)));
        let fetched = fetched.map_err(io::Error::other)?;
        let object = fetched.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        into.extend_from_slice(&object.body);
        Ok(())
    }

    fn list(&mut self, dir: &str) -> io::Result<Vec<(String, u64)>> {
        let (bucket, runtime) = self.connected()?;
        let prefix = self.key(&format!("{dir}/"));
        let listed = runtime.block_on(bucket.list(&prefix));
        let listed = listed.map_err(io::Error::other)?.into_iter();
        let named = listed.filter_map(|own| {
            let name = own.key.strip_prefix(&prefix)?.to_owned();
            Some((name, own.size))
        });
        Ok(named.collect())
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        self.connected = Some((client, runtime));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_the_server_and_the_distance() {
        let bare = S3Bare::of_name("s3-bare-embedded@30ms").unwrap();
        assert_eq!(bare.describe().name, "s3-bare-embedded@30ms");
        assert!(S3Bare::of_name("s3").is_none());
        assert!(S3Bare::of_name("s3-barely").is_none());
    }
}
