//! The records of shards in a bucket: `run --out s3://…` uploads them, `merge s3://…` downloads them.
//!
//! Below the prefix, `records/SHA256` is a piece of a file, and `shards/I-of-N.json` is the manifest of a shard, which
//! names its pieces. The manifest is created last, and on the condition that there is none: a shard without a manifest
//! is not there, and a shard that is there is never replaced.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use inputs::files::{self, RUN_RECORDS};
use inputs::sha256;
use network::limits::{RESULTS_MANIFEST, RESULTS_PIECE};
use rundir::{MOST_SHARDS, PLAN, RECORDS, Shard};
use s3::check::check_access;
use s3::client::{Bucket, ResultsClient};
use s3::config::S3Config;
use s3::objects::{Fault, PutOutcome};
use s3_store::BucketOptions;
use serde::{Deserialize, Serialize};

/// The start of an address.
const SCHEME: &str = "s3://";

/// The version of a manifest. A reader refuses any other.
const VERSION: u32 = 1;

/// Bytes of a prefix: with the rest, a key has less than the 1,024 that S3 permits.
const MOST_PREFIX: usize = 512;

/// The waits of an upload before a request that has failed is made again. A shard took minutes to measure.
const WAITS: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(4), Duration::from_secs(15), Duration::from_secs(40)];

/// Keys below this are manifests.
const SHARDS: &str = "shards/";

/// A prefix in a bucket: `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultsAddress {
    bucket: String,
    prefix: String,
}

impl ResultsAddress {
    /// The address in an argument that could also be a path; `None` if it is a path.
    pub fn of_argument(path: &Path) -> Option<Result<Self, String>> {
        let text = path.to_str().filter(|text| text.starts_with(SCHEME))?;
        Some(text.parse())
    }
}

impl FromStr for ResultsAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_bucket_character = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        if !(3..=63).contains(&bucket.len()) || !bucket.chars().all(is_bucket_character) {
            return Err(format!("{text:?} names no bucket: give s3://BUCKET/PREFIX"));
        }
        let is_name_character = |c: char| c.is_ascii_alphanumeric() || "._-=@+".contains(c);
        let is_name = |name: &str| !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name_character);
        if prefix.len() > MOST_PREFIX || !prefix.split('/').all(is_name) {
            return Err(format!(
                "{text:?} has no usable prefix: give s3://BUCKET/PREFIX, with names of letters, digits and ._-=@+ that do not begin with a dot"
            ));
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for ResultsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.prefix)
    }
}

/// The manifest of a shard.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    v: u32,
    shard: Shard,
    /// The pieces of each file of records, in order.
    files: BTreeMap<String, Vec<RecordsPiece>>,
}

/// A part of a file of records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordsPiece {
    /// Of its bytes, in hexadecimal.
    sha256: String,
    /// Its length.
    bytes: u64,
}

impl RecordsPiece {
    fn key(&self) -> String {
        format!("records/{}", self.sha256)
    }
}

impl Manifest {
    fn key(shard: Shard) -> String {
        format!("{SHARDS}{}-of-{}.json", shard.index, shard.of)
    }

    /// Reads the manifest of this key, which a stranger may have written.
    fn parse(key: &str, body: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if manifest.v != VERSION {
            return Err(format!("field `v`: {}; this ctxbench reads version {VERSION}", manifest.v));
        }
        let shard = manifest.shard;
        if shard.of > MOST_SHARDS || shard.index >= shard.of || Self::key(shard) != key {
            return Err(format!("field `shard`: {shard} is not the shard of its key"));
        }
        if !manifest.files.contains_key(PLAN) {
            return Err(format!("field `files`: there is no {PLAN}"));
        }
        for (name, pieces) in &manifest.files {
            if !RECORDS.contains(&name.as_str()) {
                return Err(format!("field `files`: {name:?} is not a file of records"));
            }
            let is_digest =
                |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            if pieces.iter().any(|piece| !is_digest(&piece.sha256) || piece.bytes > RESULTS_PIECE.bytes) {
                return Err(format!("field `files.{name}`: a piece is too long, or has no SHA-256"));
            }
            // A manifest has at most a megabyte, so the sum cannot overflow.
            if pieces.iter().map(|piece| piece.bytes).sum::<u64>() > RUN_RECORDS.bytes() {
                return Err(format!("field `files.{name}`: more than {} bytes", RUN_RECORDS.bytes()));
            }
        }
        Ok(manifest)
    }
}

/// The results below an address.
pub struct ResultsBucket {
    address: ResultsAddress,
    config: S3Config,
    client: ResultsClient,
    runtime: tokio::runtime::Runtime,
    /// The waits of an upload before a request that has failed is made again.
    waits: &'static [Duration],
}

impl ResultsBucket {
    /// Reads the server and the access key from the environment, as a mount does. The first request connects.
    pub fn new(address: &ResultsAddress) -> anyhow::Result<Self> {
        let config = BucketOptions::results(&address.bucket, &address.prefix)?;
        Self::of_config(address, config, &WAITS)
    }

    fn of_config(address: &ResultsAddress, config: S3Config, waits: &'static [Duration]) -> anyhow::Result<Self> {
        let bucket = Bucket::new(&config)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
        let client = ResultsClient::new(&bucket, &config);
        Ok(Self { address: address.clone(), config, client, runtime, waits })
    }

    pub fn address(&self) -> &ResultsAddress {
        &self.address
    }

    /// Makes a request.
    fn ask<T, F: Future<Output = Result<T, Fault>>>(&self, request: impl Fn() -> F) -> anyhow::Result<T> {
        self.ask_again(&[], request)
    }

    /// Makes a request, and after each wait again if its outcome is not known.
    fn ask_again<T, F: Future<Output = Result<T, Fault>>>(
        &self,
        waits: &[Duration],
        request: impl Fn() -> F,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            let mut waits = waits.iter();
            loop {
                let fault = match request().await {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => fault,
                };
                match (&fault, waits.next()) {
                    (Fault::Unknown(_), Some(wait)) => tokio::time::sleep(*wait).await,
                    _ => {
                        check_access(&self.config).await?;
                        bail!("{}: {fault}", self.address);
                    }
                }
            }
        })
    }

    /// Fails if a shard is there, or if the bucket cannot be used. Called before minutes of measuring.
    pub fn check_free(&self, shard: Shard) -> anyhow::Result<()> {
        let key = Manifest::key(shard);
        match self.ask(|| self.client.get(&key, RESULTS_MANIFEST))? {
            None => Ok(()),
            Some(_) => bail!(self.taken(shard)),
        }
    }

    fn taken(&self, shard: Shard) -> String {
        format!(
            "{}/{}: shard {shard} is already there, and is not replaced\n  fix: merge it, or name another prefix with --out",
            self.address,
            Manifest::key(shard)
        )
    }

    /// Uploads the records of a shard, its manifest last. The same records may be uploaded again; others are refused.
    pub fn upload(&self, dir: &Path, shard: Shard) -> anyhow::Result<()> {
        let mut manifest = Manifest { v: VERSION, shard, files: BTreeMap::new() };
        for name in RECORDS {
            let file = match files::open_inside(dir, Path::new(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.and_then(|file| files::check_length(&file, RUN_RECORDS).map(|()| file)),
            };
            let file = file.with_context(|| format!("reading {}", dir.join(name).display()))?;
            manifest.files.insert(name.to_owned(), self.upload_file(&file, &dir.join(name))?);
        }
        let body = bytes::Bytes::from(serde_json::to_vec(&manifest).context("writing the manifest")?);
        let key = Manifest::key(shard);
        if self.ask_again(self.waits, || self.client.create(&key, body.clone()))? == PutOutcome::Created {
            return Ok(());
        }
        // An earlier attempt of ours, or another upload of this shard.
        match self.ask_again(self.waits, || self.client.get(&key, RESULTS_MANIFEST))? {
            Some(there) if there == body => Ok(()),
            _ => bail!(self.taken(shard)),
        }
    }

    fn upload_file(&self, file: &File, name: &Path) -> anyhow::Result<Vec<RecordsPiece>> {
        let mut pieces = Vec::new();
        loop {
            let mut body = Vec::new();
            let read = file.take(RESULTS_PIECE.bytes).read_to_end(&mut body);
            read.with_context(|| format!("reading {}", name.display()))?;
            if body.is_empty() {
                return Ok(pieces);
            }
            let piece = RecordsPiece { sha256: sha256(&body), bytes: body.len() as u64 };
            let (key, body) = (piece.key(), bytes::Bytes::from(body));
            // A piece that exists has the same content, because its key is the digest.
            self.ask_again(self.waits, || self.client.create(&key, body.clone()))?;
            pieces.push(piece);
        }
    }

    /// Downloads all shards that have a manifest into directories of their own in `into`.
    pub fn download(&self, into: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let listed = self.ask(|| self.client.list(SHARDS, MOST_SHARDS as usize))?;
        if listed.is_empty() {
            bail!("{}: there is no shard\n  fix: name the address of `ctxbench run --out`", self.address);
        }
        let mut dirs = Vec::new();
        for object in listed {
            let key = format!("{SHARDS}{}", object.key);
            let wrong = |problem: &str| {
                format!("{}/{key}: {problem}\n  fix: remove it, and upload the shard again", self.address)
            };
            let body = self.ask(|| self.client.get(&key, RESULTS_MANIFEST))?;
            let Some(body) = body else { bail!(wrong("it is listed, but not there")) };
            let manifest = Manifest::parse(&key, &body).map_err(|problem| anyhow::anyhow!(wrong(&problem)))?;
            let dir = into.join(format!("shard-{}-of-{}", manifest.shard.index, manifest.shard.of));
            fs::create_dir(&dir).with_context(|| format!("creating {}", dir.display()))?;
            for (name, pieces) in &manifest.files {
                let place = dir.join(name);
                let writing = || format!("writing {}", place.display());
                let mut file = File::options().write(true).create_new(true).open(&place).with_context(writing)?;
                for piece in pieces {
                    let (key, limit) = (piece.key(), RESULTS_PIECE.at_most(piece.bytes));
                    let body = self.ask(|| self.client.get(&key, limit))?;
                    let Some(body) = body.filter(|body| sha256(body) == piece.sha256) else {
                        bail!(wrong(&format!("{key} of {name} is missing or damaged")));
                    };
                    file.write_all(&body).with_context(writing)?;
                }
            }
            dirs.push(dir);
        }
        Ok(dirs)
    }
}

#[cfg(test)]
mod tests {
    use s3::config::{MirrorMode, Secret, SyncMode};
    use s3::credentials::{AccessKey, Credentials};
    use servers::{Embedded, FaultProxy, Operation, RequestFault, Rule, ServerAccess};
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn an_address_names_a_bucket_and_a_prefix() {
        let parsed = |text: &str| text.parse::<ResultsAddress>().map(|address| address.to_string());
        assert_eq!(parsed("s3://results/nightly/7"), Ok("s3://results/nightly/7".to_owned()));
        assert_eq!(parsed("s3://results/nightly/"), Ok("s3://results/nightly".to_owned()));
        for wrong in [
            "s3://",
            "s3://results",
            "s3://results/",
            "s3://a/b",
            "s3://Results/a",
            "s3://results/a//b",
            "s3://results/../b",
            "s3://results/agents/x/.ctx",
            "s3://results/a b",
            "s3://results/a?b",
            "s3://results/a%2fb",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
        assert!(parsed(&format!("s3://results/{}", "a".repeat(600))).is_err());
        assert_eq!(ResultsAddress::of_argument(Path::new("results/s3")), None);
    }

    #[test]
    fn a_manifest_of_a_stranger_names_only_files_of_records_within_their_limits() {
        let shard = Shard { index: 1, of: 3 };
        let piece = RecordsPiece { sha256: sha256(b"x"), bytes: 1 };
        let manifest = |change: &dyn Fn(&mut Manifest)| {
            let files = BTreeMap::from([(PLAN.to_owned(), vec![piece.clone()])]);
            let mut manifest = Manifest { v: VERSION, shard, files };
            change(&mut manifest);
            Manifest::parse("shards/1-of-3.json", &serde_json::to_vec(&manifest).unwrap())
        };
        assert!(manifest(&|_| {}).is_ok());
        type Plant<'a> = &'a dyn Fn(&mut Manifest);
        let large = RecordsPiece { bytes: RESULTS_PIECE.bytes, ..piece.clone() };
        let plants: [(&str, Plant<'_>); 8] = [
            ("field `v`", &|it| it.v = 2),
            ("field `shard`", &|it| it.shard.index = 2),
            ("field `shard`", &|it| it.shard = Shard { index: 3, of: 3 }),
            ("there is no plan.toml", &|it| it.files = BTreeMap::new()),
            ("not a file of records", &|it| {
                it.files.insert("../../etc/passwd".to_owned(), Vec::new());
            }),
            ("field `files.cells.jsonl`", &|it| {
                let piece = RecordsPiece { bytes: RESULTS_PIECE.bytes + 1, ..piece.clone() };
                it.files.insert("cells.jsonl".to_owned(), vec![piece]);
            }),
            ("field `files.cells.jsonl`", &|it| {
                let piece = RecordsPiece { sha256: "../".repeat(20) + "shar", bytes: 1 };
                it.files.insert("cells.jsonl".to_owned(), vec![piece]);
            }),
            ("more than 2147483648 bytes", &|it| {
                it.files.insert("cells.jsonl".to_owned(), vec![large.clone(); 65]);
            }),
        ];
        for (expected, plant) in plants {
            let refused = manifest(plant).unwrap_err();
            assert!(refused.contains(expected), "{expected}: {refused}");
        }
        assert!(Manifest::parse("shards/1-of-3.json", b"{}").is_err());
        assert!(Manifest::parse("shards/1-of-3.json", &b"[".repeat(100_000)).is_err());
    }

    /// The name of its directory, and the names and contents of its files.
    type DownloadedShard = (String, Vec<(String, Vec<u8>)>);

    /// A server of ours, and a proxy before it.
    struct ProxiedServer {
        proxy: FaultProxy,
        access: ServerAccess,
        address: ResultsAddress,
        dir: TempDir,
        /// The server and the proxy run on it.
        _runtime: tokio::runtime::Runtime,
        _server: Embedded,
    }

    impl ProxiedServer {
        fn new() -> Self {
            let (dir, runtime) = (tempfile::tempdir().unwrap(), tokio::runtime::Runtime::new().unwrap());
            let server = async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let at = listener.local_addr().unwrap();
                let access = ServerAccess::random(at.port()).unwrap();
                let server = Embedded::serve(listener, dir.path(), &access).unwrap();
                servers::create_bucket(&access, servers::BUCKET).await.unwrap();
                (server, FaultProxy::start(0, at).unwrap(), access)
            };
            let (server, proxy, access) = runtime.block_on(server);
            let address = format!("s3://{}/seed-7", servers::BUCKET).parse().unwrap();
            Self { proxy, access, address, dir, _runtime: runtime, _server: server }
        }

        fn bucket(&self) -> ResultsBucket {
            let config = S3Config {
                endpoint: self.proxy.endpoint(),
                region: self.access.region.clone(),
                bucket: servers::BUCKET.to_owned(),
                prefix: "seed-7/".to_owned(),
                agent: "results".to_owned(),
                writer: "results".to_owned(),
                path_style: true,
                credentials: Credentials::Key(AccessKey {
                    id: self.access.access_key.clone(),
                    secret: Secret(self.access.secret_key.clone()),
                    token: None,
                    source: "the test".to_owned(),
                }),
                sync: SyncMode::Local,
                poll: Duration::from_secs(3600),
                glance: Duration::from_secs(3600),
                delay: Duration::from_secs(3600),
                timeout: Duration::from_secs(60),
                mirror: MirrorMode::Off,
                seal: None,
            };
            ResultsBucket::of_config(&self.address, config, &[]).unwrap()
        }

        /// A directory with records of a shard.
        fn records(&self, name: &str, samples: &[u8]) -> PathBuf {
            let dir = self.dir.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(PLAN), name).unwrap();
            fs::write(dir.join("samples.jsonl"), samples).unwrap();
            fs::write(dir.join("report.html"), "not a record").unwrap();
            dir
        }

        fn downloaded(&self) -> Result<Vec<DownloadedShard>, String> {
            let into = tempfile::tempdir().unwrap();
            let dirs = self.bucket().download(into.path()).map_err(|error| format!("{error:#}"))?;
            let files = |dir: &PathBuf| {
                let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
                files.sort();
                files.iter().map(|file| (name_of(file), fs::read(file).unwrap())).collect()
            };
            Ok(dirs.iter().map(|dir| (name_of(dir), files(dir))).collect())
        }
    }

    fn name_of(path: &Path) -> String {
        path.file_name().unwrap().to_string_lossy().into_owned()
    }

    const FIRST: Shard = Shard { index: 0, of: 2 };
    const SECOND: Shard = Shard { index: 1, of: 2 };

    #[test]
    fn an_uploaded_shard_comes_back_and_is_never_replaced() {
        let server = ProxiedServer::new();
        // More than a piece, and a last piece that is not full.
        let samples: Vec<u8> = (0..RESULTS_PIECE.bytes + 10).map(|at| (at % 251) as u8).collect();
        let [first, other] = [server.records("first", &samples), server.records("other", b"{}\n")];
        let bucket = server.bucket();
        assert!(server.downloaded().unwrap_err().contains("there is no shard"));
        bucket.check_free(FIRST).unwrap();
        bucket.upload(&first, FIRST).unwrap();
        bucket.upload(&other, SECOND).unwrap();

        // The same again, as after an answer that was lost.
        bucket.upload(&first, FIRST).unwrap();
        for refused in [bucket.upload(&other, FIRST), bucket.check_free(FIRST)] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("shard 0/2 is already there"), "{refused}");
        }
        let downloaded = server.downloaded().unwrap();
        let expected = |name: &str, samples: &[u8]| {
            vec![(PLAN.to_owned(), name.as_bytes().to_vec()), ("samples.jsonl".to_owned(), samples.to_vec())]
        };
        assert_eq!(downloaded.len(), 2);
        assert_eq!(downloaded[0].0, "shard-0-of-2");
        assert!(downloaded[0].1 == expected("first", &samples), "the records differ");
        assert_eq!(downloaded[1], ("shard-1-of-2".to_owned(), expected("other", b"{}\n")));

        // A listing has a limit.
        let listed = bucket.runtime.block_on(bucket.client.list("records/", 3));
        assert!(matches!(&listed, Err(Fault::Unreadable(told)) if told.contains("more than 3 objects")), "{listed:?}");
    }

    #[test]
    fn a_shard_whose_upload_was_interrupted_is_not_there() {
        let server = ProxiedServer::new();
        let dir = server.records("first", b"1\n");
        for cut in ["records/", "shards/"] {
            let refuse = RequestFault::Refuse { status: 503, code: "SlowDown".to_owned(), retry_after: None };
            server.proxy.set(vec![Rule::always(refuse).of(&[Operation::Put]).below(cut)]);
            let failed = server.bucket().upload(&dir, FIRST).unwrap_err().to_string();
            assert!(failed.contains("SlowDown"), "{failed}");
            server.proxy.clear();
            assert!(server.downloaded().unwrap_err().contains("there is no shard"), "{cut}");
        }
        // The answer of the manifest's creation is lost: an upload that is tried again finds its own.
        server.proxy.set(vec![Rule::always(RequestFault::LoseAnswer).of(&[Operation::Put]).below("shards/")]);
        server.bucket().upload(&dir, FIRST).unwrap_err();
        server.proxy.clear();
        server.bucket().upload(&dir, FIRST).unwrap();
        assert_eq!(server.downloaded().unwrap().len(), 1);
    }

    #[test]
    fn a_damaged_piece_or_a_foreign_manifest_is_refused_by_name() {
        let server = ProxiedServer::new();
        server.bucket().upload(&server.records("first", b"12345678\n"), FIRST).unwrap();
        for (fault, expected) in [
            (RequestFault::DamageBody, "is missing or damaged"),
            (RequestFault::ShortenBody, "is missing or damaged"),
            (
                RequestFault::Refuse { status: 404, code: "NoSuchKey".to_owned(), retry_after: None },
                "is missing or damaged",
            ),
        ] {
            server.proxy.set(vec![Rule::always(fault).of(&[Operation::Get]).below("records/")]);
            let refused = server.downloaded().unwrap_err();
            assert!(refused.contains(expected) && refused.contains("shards/0-of-2.json"), "{refused}");
        }
        server.proxy.clear();
        let bucket = server.bucket();
        let foreign = bucket.client.create("shards/7.json", bytes::Bytes::from_static(b"{}"));
        bucket.runtime.block_on(foreign).unwrap();
        let refused = server.downloaded().unwrap_err();
        assert!(refused.contains("shards/7.json"), "{refused}");
    }
}
