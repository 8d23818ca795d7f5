//! A real server in this process, memories in it, hosts that mount them, and a way to the server that can be broken.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent_memory::Embeddings;
use fuse::store::{Errno, Ino, Kind, ROOT, RenameMode, Seek, Store};
use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use s3::client::{Bucket, Client};
use s3::config::{MirrorMode, S3Config, Secret, SyncMode};
use s3::credentials::{AccessKey, Credentials};
use s3::directory::is_directory;
use s3::tree::Hash;
use s3_store::{OpenError, OpenOptions, S3Memory, S3Store};
use servers::{Embedded, FaultProxy, Operation, Quirk, RequestFault, Rule, RuleFrequency, ServerAccess};

use crate::common::{caller, create, embedded, names, now, read, resize, s3_builder, wait_up_to, walk};

/// The time limit of requests that get no answer.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit of all other requests: a busy machine may answer late.
const PATIENT: Duration = Duration::from_secs(120);

/// How long a condition is waited for, and a call that fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// An embedded server.
pub struct Service {
    pub access: ServerAccess,
    runtime: tokio::runtime::Runtime,
    _server: Embedded,
    _dir: tempfile::TempDir,
}

impl Service {
    /// Starts one that deviates from S3 as `quirk` says.
    pub fn start(quirk: Quirk) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, server, access) = embedded(dir.path(), quirk);
        Self { access, runtime, _server: server, _dir: dir }
    }
}

/// One server for all tests of this process.
pub fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| Service::start(Quirk::None))
}

/// An access key.
pub fn credentials(id: &str, secret: &str) -> Credentials {
    let (secret, source) = (Secret(secret.to_owned()), "the test".to_owned());
    Credentials::Key(AccessKey { id: id.to_owned(), secret, token: None, source })
}

/// A mount of `agent`'s memory on a server. It polls and uploads only when a test asks for it.
pub fn config_of(access: &ServerAccess, agent: &str, writer: &str) -> S3Config {
    S3Config {
        endpoint: access.endpoint.clone(),
        region: access.region.clone(),
        bucket: servers::BUCKET.to_owned(),
        prefix: String::new(),
        agent: agent.to_owned(),
        writer: writer.to_owned(),
        path_style: true,
        credentials: if is_directory(&access.endpoint) {
            Credentials::None
        } else {
            credentials(&access.access_key, &access.secret_key)
        },
        sync: SyncMode::Local,
        poll: Duration::from_secs(3600),
        glance: Duration::from_secs(3600),
        delay: Duration::from_secs(3600),
        timeout: PATIENT,
        mirror: MirrorMode::Off,
        seal: None,
    }
}

/// A directory in place of a server.
pub fn shared_directory(dir: &Path) -> ServerAccess {
    ServerAccess {
        endpoint: format!("file://{}", dir.display()),
        region: servers::REGION.to_owned(),
        access_key: "none".to_owned(),
        secret_key: "none".to_owned(),
    }
}

/// An agent's memory, the caches of the hosts that mount it, and maybe a way to it that can be broken.
pub struct Memory {
    pub agent: String,
    pub access: ServerAccess,
    proxy: Option<FaultProxy>,
    dir: tempfile::TempDir,
}

impl Memory {
    /// On the server of this process; no other test has that agent.
    pub fn new() -> Self {
        Self::on(&service().access)
    }

    pub fn on(access: &ServerAccess) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            agent: format!("a{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            access: access.clone(),
            proxy: None,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// In a directory that the hosts share, without a server.
    pub fn in_directory() -> Self {
        let mut memory = Self::new();
        let shared = memory.dir.path().join("shared");
        std::fs::create_dir_all(shared.join(servers::BUCKET)).unwrap();
        memory.access = shared_directory(&shared);
        memory
    }

    /// One on a server, and one in a directory.
    pub fn everywhere() -> [Self; 2] {
        [Self::new(), Self::in_directory()]
    }

    /// As [`Memory::new`], behind a proxy.
    pub fn behind_proxy() -> Self {
        let endpoint = &service().access.endpoint;
        let upstream = endpoint.strip_prefix("http://").unwrap().parse().unwrap();
        Self { proxy: Some(FaultProxy::start(0, upstream).unwrap()), ..Self::new() }
    }

    pub fn proxy(&self) -> &FaultProxy {
        self.proxy.as_ref().unwrap()
    }

    pub fn config(&self, writer: &str) -> S3Config {
        let config = config_of(&self.access, &self.agent, writer);
        match &self.proxy {
            None => config,
            Some(proxy) => S3Config { endpoint: proxy.endpoint(), ..config },
        }
    }

    /// As [`Memory::config`], encrypted with a key of such bytes.
    pub fn sealed(&self, writer: &str, key: u8) -> S3Config {
        S3Config { seal: Some(Secret([key; 32])), ..self.config(writer) }
    }

    /// The cache of the host that writes as `writer`.
    pub fn cache(&self, writer: &str) -> PathBuf {
        self.dir.path().join(format!("{writer}.db"))
    }

    pub fn open(&self, config: S3Config, options: OpenOptions) -> Result<S3Store, OpenError> {
        let cache = self.cache(&config.writer);
        S3Store::open(config, &cache, &caller(1), options)
    }

    pub fn mount_as(&self, config: S3Config) -> S3Store {
        self.open(config, OpenOptions::default()).unwrap()
    }

    pub fn mount(&self, writer: &str) -> S3Store {
        self.mount_as(self.config(writer))
    }

    /// As [`Memory::mount`], with requests such as `:search`.
    pub fn mount_with_requests(&self, writer: &str) -> S3Memory {
        let embeddings = Embeddings::Off { reason: "a test".to_owned() };
        let (cache, options) = (self.cache(writer), OpenOptions::default());
        S3Memory::open(self.config(writer), &cache, &caller(1), options, embeddings).unwrap()
    }

    /// A host that has never mounted the memory, and whose way to the bucket is not broken.
    pub fn fresh(&self) -> S3Store {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let writer = format!("fresh{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.mount_as(config_of(&self.access, &self.agent, &writer))
    }

    /// A fault of requests for this memory.
    pub fn set(&self, fault: RequestFault, requests: &[Operation], when: RuleFrequency) {
        let below = format!("agents/{}", self.agent);
        self.proxy().set(vec![Rule::always(fault).of(requests).below(&below).when(when)]);
    }

    /// How often the rule was applied. A fault that never happened proves nothing.
    pub fn fired(&self) -> u64 {
        self.proxy().fired().iter().map(|fired| fired.done).sum()
    }

    fn bucket(&self) -> AmazonS3 {
        s3_builder(&self.access).build().unwrap()
    }

    /// Everything in the bucket that belongs to the memory, by key.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        let bucket = self.bucket();
        let prefix = Key::from(format!("agents/{}", self.agent));
        let read = async {
            let listed = bucket.list(Some(&prefix));
            let read = listed.and_then(|object| {
                let bucket = &bucket;
                async move {
                    let got = bucket.get(&object.location).await?;
                    Ok((object.location.to_string(), got.bytes().await?.to_vec()))
                }
            });
            read.try_collect().await.unwrap()
        };
        service().runtime.block_on(read)
    }

    /// The keys of the memory below its prefix.
    pub fn keys(&self) -> Vec<String> {
        let prefix = format!("agents/{}/", self.agent);
        let objects = self.objects();
        let keys = objects.keys();
        keys.map(|key| key.strip_prefix(&prefix).unwrap().to_owned()).collect()
    }

    /// Replaces everything that the bucket has of the memory.
    pub fn replace_objects(&self, objects: &BTreeMap<String, Vec<u8>>) {
        let bucket = self.bucket();
        let prefix = Key::from(format!("agents/{}", self.agent));
        service().runtime.block_on(async {
            let listed: Vec<_> = bucket.list(Some(&prefix)).try_collect().await.unwrap();
            for object in listed {
                bucket.delete(&object.location).await.unwrap();
            }
            let bucket = &bucket;
            let puts = objects.iter().map(|(key, body)| async move {
                let key = Key::from(key.as_str());
                bucket.put(&key, body.clone().into()).await.unwrap();
            });
            let puts = futures::stream::iter(puts).buffer_unordered(8);
            puts.collect::<Vec<()>>().await;
        });
    }

    /// Compares everything that can be reached with its digests.
    pub fn check(&self) {
        self.check_as(&config_of(&self.access, &self.agent, "checker"));
    }

    pub fn check_as(&self, config: &S3Config) {
        let client = Client::new(&Bucket::new(config).unwrap(), config);
        let checked = service().runtime.block_on(s3::check::check(&client, None));
        assert_eq!(checked.unwrap().problems, Vec::<String>::new());
    }
}

/// A path with more at its end.
fn with(path: &Path, end: &OsStr) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// The files of a store, by the end of their paths.
fn files_of(store: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let tails = std::fs::read_dir(with(store, "-tails".as_ref())).into_iter().flatten().flatten();
    let tails = tails.map(|tail| with(Path::new("-tails/"), &tail.file_name()).into_os_string());
    let ends = ["", "-wal", "-redo", "-count", "-sums"].map(OsString::from).into_iter().chain(tails);
    // A mount may remove one meanwhile.
    ends.filter_map(|end| std::fs::read(with(store, &end)).ok().map(|bytes| (end, bytes))).collect()
}

/// Copies the files of a store, which may be mounted, as they are at one moment: a commit may change several of them.
pub fn copy_cache(from: &Path, to: &Path) {
    eventually("a copy of one moment", || {
        let files = files_of(from);
        for end in files.keys() {
            let to = with(to, end);
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            let copied = std::fs::copy(with(from, end), &to);
            if copied.is_err() {
                return false;
            }
        }
        files_of(from) == files
    });
}

/// Waits for a condition.
pub fn eventually(what: &str, is_so: impl FnMut() -> bool) {
    wait_up_to(PATIENCE, what, is_so);
}

/// The result of `work`, which must not wait for a request that gets no answer within [`PATIENT`].
pub fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    let took = begun.elapsed();
    assert!(took < PATIENCE, "{what} took {took:?}");
    done
}

/// The counters of requests and bytes that `work` increments.
pub fn spent(store: &S3Store, work: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    let requests = || {
        let all = store.counters().into_iter();
        all.filter(|(name, _)| name.starts_with("s3_"))
    };
    let before: BTreeMap<_, _> = requests().collect();
    work();
    let spent = requests().map(|(name, count)| (name, count - before[name]));
    spent.filter(|(_, count)| *count > 0).collect()
}

/// The numbers of requests by kind, from what [`spent`] returns.
pub fn only_requests(spent: &BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    let kinds = ["s3_get", "s3_put", "s3_list", "s3_head", "s3_delete"];
    let of = |(name, count): (&&'static str, &u64)| kinds.contains(name).then_some((*name, *count));
    spent.iter().filter_map(of).collect()
}

/// Bytes that no two seeds have in common, and that do not repeat within a chunk.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub fn find(store: &S3Store, name: &str) -> Ino {
    store.lookup(ROOT, name.as_bytes()).unwrap().ino
}

pub fn mkdir(store: &dyn Store, parent: Ino, name: &str) -> Ino {
    create(store, parent, name, Kind::Directory).ino
}

/// Gives a file its content, and makes it where there is none.
pub fn write_in(store: &dyn Store, parent: Ino, name: &str, content: &[u8]) -> Ino {
    let ino = match store.lookup(parent, name.as_bytes()) {
        Ok(attr) => {
            resize(store, attr.ino, 0);
            attr.ino
        }
        Err(_) => create(store, parent, name, Kind::File).ino,
    };
    store.write(&now(), ino, 0, content).unwrap();
    ino
}

/// Gives a file of the root its content.
pub fn write(store: &dyn Store, name: &str, content: &[u8]) -> Ino {
    write_in(store, ROOT, name, content)
}

/// Appends as the kernel does: at the end that it knows.
pub fn append(store: &S3Store, ino: Ino, more: &[u8]) {
    let end = store.getattr(ino).unwrap().size;
    store.append(&now(), ino, end, more).unwrap();
}

pub fn bytes(store: &S3Store, ino: Ino) -> Vec<u8> {
    let size = store.getattr(ino).unwrap().size;
    read(store, ino, 0, size as usize)
}

pub fn text_in(store: &S3Store, parent: Ino, name: &str) -> String {
    let attr = store.lookup(parent, name.as_bytes()).unwrap();
    String::from_utf8(bytes(store, attr.ino)).unwrap()
}

/// A file of the root.
pub fn text(store: &S3Store, name: &str) -> String {
    text_in(store, ROOT, name)
}

/// The content of a file of the root, or the error of reading it.
pub fn try_text(store: &S3Store, name: &str) -> Result<String, Errno> {
    let attr = store.lookup(ROOT, name.as_bytes()).map_err(|e| e.errno)?;
    let mut out = Vec::new();
    store.read(attr.ino, 0, attr.size as usize, &mut out).map_err(|error| error.errno)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

/// Renames within the root.
pub fn rename(store: &S3Store, from: &str, to: &str, mode: RenameMode) {
    let (from, to) = ((ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
    let replaced = store.rename(&now(), from, to, mode).unwrap();
    if let Some(ino) = replaced {
        store.reclaim(ino).unwrap();
    }
}

/// Removes a file of the root that is not open.
pub fn unlink(store: &S3Store, name: &str) {
    if let Some(ino) = store.unlink(&now(), ROOT, name.as_bytes()).unwrap() {
        store.reclaim(ino).unwrap();
    }
}

/// Everything that other hosts see of a directory: by path, without inode numbers. Of long files, a digest.
pub fn state(store: &dyn Store) -> Vec<String> {
    let (mut lines, mut inodes) = (Vec::new(), BTreeMap::new());
    walk(store, ROOT, "", &mut |path, attr| {
        // The same number for all names of an inode.
        let number = inodes.len();
        let number = *inodes.entry(attr.ino).or_insert(number);
        let mut line = format!("{path} #{number} {:?} {:o} {}:{}", attr.kind, attr.permissions, attr.uid, attr.gid);
        match attr.kind {
            Kind::Directory => line += &format!(" {}", attr.nlink),
            Kind::Symlink => line += &format!(" {:?}", store.readlink(attr.ino).unwrap()),
            Kind::File => {
                let content = Hash::of(&all_bytes(store, attr.ino, attr.size));
                line += &format!(" {} {content:?}", attr.size);
            }
            _ => line += &format!(" {:x}", attr.rdev),
        }
        if attr.kind != Kind::Directory {
            line += &format!(" {} {} {}", attr.nlink, attr.mtime.0, attr.btime.0);
        }
        for xattr in store.listxattr(attr.ino).unwrap() {
            let value = store.getxattr(attr.ino, &xattr).unwrap();
            line += &format!(" {}={}", xattr.escape_ascii(), value.escape_ascii());
        }
        lines.push(line);
    });
    lines
}

/// The bytes other than zero, with their offsets.
fn all_bytes(store: &dyn Store, ino: Ino, size: u64) -> Vec<u8> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < size {
        // A host that has not fetched a hole does not know that it is one.
        let Ok(data) = store.seek(ino, at, Seek::Data) else {
            break;
        };
        let start = data - data % (1 << 20);
        let piece = read(store, ino, start, 1 << 20);
        if piece.iter().any(|byte| *byte != 0) {
            all.extend(start.to_le_bytes());
            // The end of the file may be a hole or zeros.
            let end = piece.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            all.extend(&piece[..=end]);
        }
        at = start + (1 << 20);
    }
    all
}

/// Commits the changes of a host, and lets another one adopt them.
pub fn exchange(from: &S3Store, to: &S3Store) {
    from.upload().unwrap();
    to.pull().unwrap();
}

/// Asserts that nothing is pending, and that there are no conflict files.
pub fn is_settled(store: &S3Store) {
    assert_eq!(store.pending().unwrap(), 0);
    assert_eq!(store.counters()["s3_conflicts"], 0);
    assert_eq!(conflicts(store), Vec::<String>::new());
}

/// The names of conflict files in the root.
pub fn conflicts(store: &S3Store) -> Vec<String> {
    let all = names(store, ROOT).into_iter();
    all.filter(|name| name.contains(".conflict-")).collect()
}
