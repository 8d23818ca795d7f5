//! A real server in this process, machines with their caches, and a way to the server that can be broken.

#![allow(
    dead_code,
    missing_docs,
    clippy::unwrap_used,
    reason = "test helpers, each used by some"
)]

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backends::s3::{AccessKey, ConflictPolicy, S3Config, S3Store, Secret, SyncMode};
use backends::store::{Caller, Change, Errno, Ino, Kind, ROOT, RenameMode, Store};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use servers::{
    Access, Answered, Embedded, Fault, FaultProxy, Operation, Options, Quirk, Rule, Server, When,
};

use crate::common::{caller, create, names, read};

/// How long one request may take on a way that is broken.
pub const TIMEOUT: Duration = Duration::from_secs(1);

/// What a call may take beyond that on a busy machine.
pub const SLACK: Duration = Duration::from_secs(2);

pub struct Service {
    pub access: Access,
    pub runtime: tokio::runtime::Runtime,
    _server: Server,
    _dir: tempfile::TempDir,
}

/// How a server is started in `dir`.
pub fn options(server: servers::Found, dir: &std::path::Path) -> Options {
    Options {
        server,
        dir: dir.to_owned(),
        port: 0,
        rtt: Duration::ZERO,
        keys: None,
        launcher: Vec::new(),
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

/// One server for all tests of this process.
pub fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let embedded = servers::ServerKind::Embedded.find().unwrap();
        let server = runtime
            .block_on(servers::start(options(embedded, dir.path())))
            .unwrap();
        Service {
            access: server.access().clone(),
            runtime,
            _server: server,
            _dir: dir,
        }
    })
}

/// A server that does something otherwise than S3 does.
pub struct Quirky {
    pub access: Access,
    pub runtime: tokio::runtime::Runtime,
    _server: Embedded,
    _dir: tempfile::TempDir,
}

impl Quirky {
    pub fn new(quirk: Quirk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let (server, access) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let access = Access {
                endpoint: format!("http://{}", listener.local_addr().unwrap()),
                access_key: "key".to_owned(),
                secret_key: "secret".to_owned(),
                region: servers::REGION.to_owned(),
            };
            let server = Embedded::serve_with(listener, dir.path(), &access, quirk);
            servers::create_bucket(&access, servers::BUCKET)
                .await
                .unwrap();
            (server.unwrap(), access)
        });
        Self {
            access,
            runtime,
            _server: server,
            _dir: dir,
        }
    }
}

/// A part of the bucket that no other test uses.
pub fn agent() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("a{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A mount of `agent`'s memory on a server, with nothing that happens by itself: a test says when.
pub fn config_of(access: &Access, agent: &str, writer: &str) -> S3Config {
    S3Config {
        endpoint: access.endpoint.clone(),
        region: access.region.clone(),
        bucket: servers::BUCKET.to_owned(),
        prefix: String::new(),
        agent: agent.to_owned(),
        writer: writer.to_owned(),
        path_style: true,
        access_key: AccessKey {
            id: access.access_key.clone(),
            secret: Secret(access.secret_key.clone()),
            token: None,
            source: "the test".to_owned(),
        },
        sync: SyncMode::Local,
        conflicts: ConflictPolicy::KeepBoth,
        front_matter_visible: false,
        keep_versions: true,
        poll: Duration::from_secs(3600),
        delay: Duration::from_secs(3600),
        timeout: Duration::from_secs(10),
        seal: None,
    }
}

/// As [`config_of`], on the server of this process.
pub fn config(agent: &str, writer: &str) -> S3Config {
    config_of(&service().access, agent, writer)
}

/// Caches, one a machine.
pub struct Machines(tempfile::TempDir);

impl Machines {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn cache(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn mount(&self, config: S3Config) -> S3Store {
        let cache = self.cache(&format!("{}.db", config.writer));
        S3Store::open(config, &cache, &caller(1)).unwrap()
    }
}

pub fn bucket() -> object_store::aws::AmazonS3 {
    bucket_of(&service().access)
}

pub fn bucket_of(access: &Access) -> object_store::aws::AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(&access.endpoint)
        .with_region(&access.region)
        .with_bucket_name(servers::BUCKET)
        .with_access_key_id(&access.access_key)
        .with_secret_access_key(&access.secret_key)
        .with_allow_http(true)
        .build()
        .unwrap()
}

/// An object of an agent's as any S3 tool sees it; `None` if there is none.
pub fn object_of(agent: &str, name: &str) -> Option<Vec<u8>> {
    let key = Key::from(format!("agents/{agent}/{name}"));
    service().runtime.block_on(async {
        let got = bucket().get(&key).await.ok()?;
        Some(got.bytes().await.unwrap().to_vec())
    })
}

pub fn put_object(key: &str, body: &'static [u8]) {
    let payload = PutPayload::from_static(body);
    service()
        .runtime
        .block_on(async { bucket().put(&Key::from(key), payload).await })
        .unwrap();
}

/// Many small objects of another tool's, at once.
pub fn put_objects(keys: impl IntoIterator<Item = String>) {
    use futures::{StreamExt, TryStreamExt};
    let bucket = bucket();
    let puts = keys.into_iter().map(|key| {
        let bucket = &bucket;
        async move {
            bucket
                .put(&Key::from(key), PutPayload::from_static(b"x"))
                .await
        }
    });
    let puts = futures::stream::iter(puts).buffer_unordered(32);
    service()
        .runtime
        .block_on(puts.try_for_each(|_| async { Ok(()) }))
        .unwrap();
}

/// Every key of an agent's files.
pub fn keys(agent: &str) -> Vec<String> {
    use futures::TryStreamExt;
    let prefix = Key::from(format!("agents/{agent}"));
    let listed = service().runtime.block_on(async {
        let listed: Vec<_> = bucket().list(Some(&prefix)).try_collect().await.unwrap();
        listed
    });
    let mut keys: Vec<String> = listed
        .into_iter()
        .map(|object| object.location.to_string())
        .collect();
    keys.sort();
    keys
}

/// Every key of an agent's, of files and of what is kept about them, in the order of a listing.
pub fn all_keys(agent: &str) -> Vec<String> {
    use futures::TryStreamExt;
    let mut keys = Vec::new();
    service().runtime.block_on(async {
        for prefix in [".ctx", "agents", "ctx"] {
            let prefix = Key::from(format!("{prefix}/{agent}"));
            let all: Vec<_> = bucket().list(Some(&prefix)).try_collect().await.unwrap();
            keys.extend(all.into_iter().map(|object| object.location.to_string()));
        }
    });
    keys.sort();
    keys
}

pub fn remove(key: &str) {
    let removed = async { bucket().delete(&Key::from(key)).await };
    service().runtime.block_on(removed).unwrap();
}

/// Everything of an agent's, files and what is kept about them.
pub fn remove_everything(agent: &str) {
    for key in all_keys(agent) {
        remove(&key);
    }
}

/// Time passes between operations.
pub fn now() -> Caller {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    caller(NOW.fetch_add(1, Ordering::Relaxed) as i64)
}

/// Gives a file its content, and makes it where it is not there.
pub fn write_in(store: &S3Store, parent: Ino, name: &str, content: &[u8]) -> Ino {
    let ino = match store.lookup(parent, name.as_bytes()) {
        Ok(attr) => {
            let empty = Change {
                size: Some(0),
                ..Change::default()
            };
            store.setattr(&now(), attr.ino, &empty).unwrap();
            attr.ino
        }
        Err(_) => create(store, parent, name, Kind::File).ino,
    };
    store.write(&now(), ino, 0, content).unwrap();
    ino
}

pub fn text_in(store: &S3Store, parent: Ino, name: &str) -> String {
    let attr = store.lookup(parent, name.as_bytes()).unwrap();
    let content = read(store, attr.ino, 0, attr.size as usize);
    String::from_utf8(content).unwrap()
}

/// What reading a file of the root answers.
pub fn try_text(store: &S3Store, name: &str) -> Result<String, Errno> {
    let attr = store.lookup(ROOT, name.as_bytes()).map_err(|e| e.errno)?;
    let mut out = Vec::new();
    store
        .read(attr.ino, 0, attr.size as usize, &mut out)
        .map_err(|error| error.errno)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// What it answers, and that it took no longer than the timeout.
pub fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    let took = begun.elapsed();
    assert!(took < TIMEOUT + SLACK, "{what} took {took:?}");
    done
}

/// No conflict of a writer with himself, and nothing pending.
pub fn is_settled(store: &S3Store) {
    assert_eq!(store.pending().unwrap(), 0);
    assert_eq!(store.counters()["s3_conflicts"], 0);
    assert!(
        names(store, ROOT)
            .iter()
            .all(|name| !name.contains("conflict")),
        "{:?}",
        names(store, ROOT)
    );
}

/// An agent of its own, and a broken way to its bucket.
pub struct Broken {
    pub agent: String,
    pub proxy: FaultProxy,
    dir: tempfile::TempDir,
}

impl Broken {
    pub fn new() -> Self {
        let endpoint = &service().access.endpoint;
        let upstream = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
        Self {
            agent: agent(),
            proxy: FaultProxy::start(0, upstream).unwrap(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// Behind the proxy.
    pub fn config(&self, writer: &str) -> S3Config {
        S3Config {
            endpoint: self.proxy.endpoint(),
            timeout: TIMEOUT,
            ..config(&self.agent, writer)
        }
    }

    pub fn cache(&self, writer: &str) -> PathBuf {
        self.dir.path().join(format!("{writer}.db"))
    }

    pub fn mount_as(&self, config: S3Config) -> S3Store {
        let cache = self.cache(&config.writer);
        S3Store::open(config, &cache, &caller(1)).unwrap()
    }

    pub fn mount(&self, writer: &str) -> S3Store {
        self.mount_as(self.config(writer))
    }

    /// Another host, whose way to the bucket is not broken.
    pub fn elsewhere(&self, writer: &str) -> S3Store {
        let config = S3Config {
            endpoint: service().access.endpoint.clone(),
            ..self.config(writer)
        };
        self.mount_as(config)
    }

    pub fn set(&self, fault: Fault, requests: &[Operation], when: When) {
        let below = format!("agents/{}", self.agent);
        self.proxy.set(vec![
            Rule::always(fault).of(requests).below(&below).when(when),
        ]);
    }

    /// How often the rule has done something: a fault that never was proves nothing.
    pub fn fired(&self) -> u64 {
        self.proxy.fired().iter().map(|fired| fired.done).sum()
    }

    /// How often the server has taken something of the agent's.
    pub fn taken(&self, operation: Operation, name: &str) -> usize {
        let path = format!("/{}/agents/{}/{name}", servers::BUCKET, self.agent);
        let all = self.proxy.seen().into_iter();
        all.filter(|seen| {
            let is_well = matches!(seen.answered, Answered::Status(200..=299));
            seen.operation == operation && seen.path == path && is_well
        })
        .count()
    }
}

/// As [`object_of`].
pub fn object(broken: &Broken, name: &str) -> Option<Vec<u8>> {
    object_of(&broken.agent, name)
}

/// Renames within the root.
pub fn rename(store: &S3Store, from: &str, to: &str, mode: RenameMode) {
    let (from, to) = ((ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
    store.rename(&now(), from, to, mode).unwrap();
}

/// Gives a file of the root its content.
pub fn write(store: &S3Store, name: &str, content: &[u8]) -> Ino {
    write_in(store, ROOT, name, content)
}

/// A file of the root.
pub fn text(store: &S3Store, name: &str) -> String {
    text_in(store, ROOT, name)
}

/// Asserts that Bob's `b` has its name, and what Alice called so is beside it.
pub fn is_kept_beside(stores: &[&S3Store]) {
    for store in stores {
        assert_eq!(names(*store, ROOT), ["b", "b.conflict-alice-1"]);
        assert_eq!(text(store, "b"), "bob's");
        assert_eq!(text(store, "b.conflict-alice-1"), "the only copy");
    }
}
