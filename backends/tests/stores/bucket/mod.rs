//! The clients and the commands on a log, against the embedded S3 server. No mounts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::common::{s3_builder, serve_embedded};
use crate::hosts::{config_of, credentials, eventually, shared_directory};
use bytes::Bytes;
use object_store::aws::AmazonS3;
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};
use s3::check::check_access;
use s3::checkout::{Checkout, now};
use s3::client::{Bucket, Client, MirrorClient, Precondition, Sweeper};
use s3::config::{MirrorMode, S3Config, Secret};
use s3::gc::{GcOptions, GcReport, collect};
use s3::history::{CommitHistory, Event, HistoryError, HistoryPoint, log, restore, show};
use s3::mirror::{Files, ImportReport, MirrorIndex, MirrorPlan, files, import, plan, plan_all, publish};
use s3::objects::{Fault, Key, Objects, PutOutcome};
use s3::tree::{Body, CHUNK, Hash, Node, Tree};
use servers::{Embedded, FaultProxy, Operation, Quirk, RequestFault, Rule, RuleFrequency, ServerAccess};

mod directory;
mod gc;
mod history;
mod hostile;
mod mirror;
mod policy;
mod requests;
mod roles;

/// A server with a bucket, and the configuration of an agent's memory in it.
struct World {
    access: ServerAccess,
    config: S3Config,
    dir: tempfile::TempDir,
    _server: Embedded,
}

impl World {
    /// With the bucket policy for logs.
    async fn new() -> Self {
        Self::with(Quirk::ProtectsLogs).await
    }

    async fn with(quirk: Quirk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (server, access) = serve_embedded(dir.path(), quirk).await;
        Self { config: config(&access), access, dir, _server: server }
    }

    fn bucket(&self) -> Bucket {
        Bucket::new(&self.config).unwrap()
    }

    fn client(&self) -> Client {
        Client::new(&self.bucket(), &self.config)
    }

    fn mirror(&self) -> MirrorClient {
        MirrorClient::new(&self.bucket(), &self.config)
    }

    /// Another tool: a plain S3 client.
    fn tool(&self) -> AmazonS3 {
        s3_builder(&self.access).build().unwrap()
    }

    /// The configuration behind a proxy that injects faults.
    fn behind_faults(&self) -> (FaultProxy, S3Config) {
        let upstream = self.config.endpoint.trim_start_matches("http://");
        let proxy = FaultProxy::start(0, upstream.parse().unwrap()).unwrap();
        let config = S3Config { endpoint: proxy.endpoint(), ..self.config.clone() };
        (proxy, config)
    }

    /// Changes a byte of the object that holds `content`, on the server's disk.
    fn damage(&self, content: &[u8]) {
        let bucket = self.dir.path().join(servers::BUCKET);
        let files = std::fs::read_dir(bucket).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let found: Vec<(PathBuf, usize)> = paths
            .filter_map(|path| {
                let bytes = std::fs::read(&path).ok()?;
                let at = bytes.windows(content.len()).position(|window| window == content)?;
                Some((path, at))
            })
            .collect();
        let [(path, at)] = found.as_slice() else {
            panic!("{} objects hold it", found.len());
        };
        let mut bytes = std::fs::read(path).unwrap();
        bytes[*at] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }

    /// Commits files, by path and content.
    async fn commit(&self, files: &[(&str, &str)]) -> u64 {
        let client = self.client();
        let mut checkout = Checkout::open(&client, "alice@host").await.unwrap();
        for (path, content) in files {
            let bytes = Bytes::copy_from_slice(content.as_bytes());
            checkout.write(path.as_bytes(), &bytes, now()).unwrap();
        }
        checkout.commit(&client).await.unwrap().number.unwrap()
    }

    async fn remove(&self, path: &str) -> u64 {
        let client = self.client();
        let mut checkout = Checkout::open(&client, "alice@host").await.unwrap();
        assert!(checkout.remove(path.as_bytes()), "{path}");
        checkout.commit(&client).await.unwrap().number.unwrap()
    }

    async fn tree(&self) -> Tree {
        let checkout = Checkout::open(&self.client(), "reader").await.unwrap();
        checkout.tree().clone()
    }

    async fn show(&self, path: &str, at: HistoryPoint) -> Result<String, HistoryError> {
        let mut out = Vec::new();
        show(&self.client(), path, at, &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    async fn head(&self, path: &str) -> String {
        self.show(path, HistoryPoint::Head).await.unwrap()
    }

    /// Publishes the newest tree, all of it.
    async fn publish(&self, commit: u64) {
        let plan = mirrored(&Tree::default(), &self.tree().await);
        let client = self.client();
        publish(&self.mirror(), &client, &plan, commit, &|_| None).await.unwrap();
    }

    async fn import(&self, remove: Option<Duration>) -> ImportReport {
        let (client, mirror) = (self.client(), self.mirror());
        let imported = import(&client, &mirror, MirrorMode::All, remove, "bob@host");
        imported.await.unwrap()
    }

    async fn check(&self) -> s3::check::CheckReport {
        let (client, mirror) = (self.client(), self.mirror());
        s3::check::check(&client, Some((&mirror, MirrorMode::All))).await.unwrap()
    }

    async fn collect(&self, older_than: Duration, grace: Duration, dry_run: bool) -> GcReport {
        self.collect_as_of(|_| older_than, grace, dry_run).await
    }

    /// Collects what is older than `cutoff`, in nanoseconds since 1970.
    async fn collect_before(&self, cutoff: i64, grace: Duration, dry_run: bool) -> GcReport {
        let age = |now: i64| Duration::from_nanos((now - cutoff).try_into().unwrap());
        self.collect_as_of(age, grace, dry_run).await
    }

    async fn collect_as_of(&self, older_than: impl Fn(i64) -> Duration, grace: Duration, dry_run: bool) -> GcReport {
        let sweeper = Sweeper::new(&self.bucket(), &self.config);
        // The server's times have whole milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = now();
        let options = GcOptions { older_than: older_than(now), grace, dry_run };
        collect(&self.client(), &sweeper, options, now).await.unwrap()
    }
}

fn config(access: &ServerAccess) -> S3Config {
    S3Config {
        prefix: "team/".to_owned(),
        delay: Duration::ZERO,
        mirror: MirrorMode::All,
        ..config_of(access, "alice", "alice@host")
    }
}

/// The requests that turn the mirror of one tree into that of another.
fn mirrored(old: &Tree, new: &Tree) -> MirrorPlan {
    plan(&MirrorIndex::from(&files(old, MirrorMode::All)), &files(new, MirrorMode::All))
}

fn path(key: &str) -> Path {
    Path::parse(format!("team/agents/alice/{key}")).unwrap()
}
