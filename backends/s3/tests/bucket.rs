//! The clients and the commands on a log, against the embedded S3 server. No mounts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{Attribute, Attributes, ObjectStore, ObjectStoreExt, PutOptions};
use s3::access::{Problem, check};
use s3::checkout::{Checkout, now};
use s3::client::{Bucket, Client, MirrorClient, Sweeper};
use s3::config::{AccessKey, MirrorMode, S3Config, Secret, SyncMode};
use s3::gc::{Collected, GcOptions, collect};
use s3::history::{At, Event, HistoryError, log, restore, show};
use s3::import::{Imported, import};
use s3::mirror::{MirrorPlan, files, plan, publish};
use s3::objects::{Fault, Key, Objects, Put};
use s3::tree::{CHUNK, Hash, Tree};
use servers::{Access, Embedded, Fault as Broken, FaultProxy, Operation, Quirk, Rule, When};

/// A server with a bucket, and the configuration of an agent's memory in it.
struct World {
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
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let access = Access::random(port).unwrap();
        let server = Embedded::serve_with(listener, dir.path(), &access, quirk).unwrap();
        servers::create_bucket(&access, servers::BUCKET)
            .await
            .unwrap();
        Self {
            config: config(&access),
            dir,
            _server: server,
        }
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
        AmazonS3Builder::new()
            .with_endpoint(&self.config.endpoint)
            .with_allow_http(true)
            .with_region(&self.config.region)
            .with_bucket_name(&self.config.bucket)
            .with_access_key_id(&self.config.access_key.id)
            .with_secret_access_key(&self.config.access_key.secret.0)
            .build()
            .unwrap()
    }

    /// The configuration behind a proxy that injects faults.
    fn behind_faults(&self) -> (FaultProxy, S3Config) {
        let upstream = self.config.endpoint.trim_start_matches("http://");
        let proxy = FaultProxy::start(0, upstream.parse().unwrap()).unwrap();
        let config = S3Config {
            endpoint: proxy.endpoint(),
            ..self.config.clone()
        };
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
                let at = bytes
                    .windows(content.len())
                    .position(|own| own == content)?;
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

    async fn show(&self, path: &str, at: At) -> Result<String, HistoryError> {
        let mut out = Vec::new();
        show(&self.client(), path, at, &mut out).await?;
        Ok(String::from_utf8(out).unwrap())
    }

    async fn head(&self, path: &str) -> String {
        self.show(path, At::Head).await.unwrap()
    }

    /// Publishes the newest tree, all of it.
    async fn publish(&self, commit: u64) {
        let plan = mirrored(&Tree::default(), &self.tree().await);
        let client = self.client();
        publish(&self.mirror(), &client, &plan, commit, &|_| None)
            .await
            .unwrap();
    }

    async fn import(&self, remove: Option<Duration>) -> Imported {
        let (client, mirror) = (self.client(), self.mirror());
        let imported = import(&client, &mirror, MirrorMode::All, remove, "bob@host");
        imported.await.unwrap()
    }

    async fn check(&self) -> s3::check::Checked {
        let (client, mirror) = (self.client(), self.mirror());
        s3::check::check(&client, Some((&mirror, MirrorMode::All)))
            .await
            .unwrap()
    }

    async fn collect(&self, older_than: Duration, grace: Duration, dry_run: bool) -> Collected {
        let sweeper = Sweeper::new(&self.bucket(), &self.config);
        let options = GcOptions {
            older_than,
            grace,
            dry_run,
        };
        // The server's times have whole milliseconds.
        tokio::time::sleep(Duration::from_millis(5)).await;
        collect(&self.client(), &sweeper, options, now())
            .await
            .unwrap()
    }
}

fn config(access: &Access) -> S3Config {
    S3Config {
        endpoint: access.endpoint.clone(),
        region: access.region.clone(),
        bucket: servers::BUCKET.to_owned(),
        prefix: "team/".to_owned(),
        agent: "alice".to_owned(),
        writer: "alice@host".to_owned(),
        path_style: true,
        access_key: AccessKey {
            id: access.access_key.clone(),
            secret: Secret(access.secret_key.clone()),
            token: None,
            source: "the test".to_owned(),
        },
        sync: SyncMode::Local,
        poll: Duration::from_secs(3600),
        delay: Duration::ZERO,
        timeout: Duration::from_secs(10),
        mirror: MirrorMode::All,
        seal: None,
    }
}

/// What turns the mirror of one tree into that of another.
fn mirrored(old: &Tree, new: &Tree) -> MirrorPlan {
    plan(&files(old, MirrorMode::All), &files(new, MirrorMode::All))
}

fn path(key: &str) -> Path {
    Path::parse(format!("team/agents/alice/{key}")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_created_once_and_read_whole_or_in_part() {
    let world = World::new().await;
    let bucket = world.bucket();
    let client = Client::new(&bucket, &world.config);
    let first = Bytes::from_static(b"0123456789");
    assert_eq!(
        client.put_new(Key::Log(1), first.clone()).await,
        Ok(Put::Created)
    );
    let again = client
        .put_new(Key::Log(1), Bytes::from_static(b"other"))
        .await;
    assert_eq!(again, Ok(Put::Exists));
    assert_eq!(client.get(Key::Log(1), None).await, Ok(Some(first)));
    let part = client.get(Key::Log(1), Some(2..5)).await;
    assert_eq!(part, Ok(Some(Bytes::from_static(b"234"))));
    assert_eq!(client.get(Key::Log(2), None).await, Ok(None));
    assert_eq!(client.get(Key::Log(2), Some(0..8)).await, Ok(None));
    let beyond = client.get(Key::Log(1), Some(10..12)).await;
    assert!(matches!(beyond, Err(Fault::Unreadable(_))), "{beyond:?}");
    let (hash, empty) = (Hash::of(b""), Bytes::new());
    assert_eq!(
        client.put_new(Key::Blob(hash, 7), empty.clone()).await,
        Ok(Put::Created)
    );
    assert_eq!(client.get(Key::Blob(hash, 7), None).await, Ok(Some(empty)));
    for number in [3, 70] {
        let body = Bytes::from_static(b"checkpoint");
        client.put_new(Key::Checkpoint(number), body).await.unwrap();
    }
    assert_eq!(client.checkpoints().await, Ok(vec![3, 70]));
    let requests = bucket.requests();
    let counts = ["s3_put", "s3_get", "s3_list", "s3_delete", "s3_bytes_sent"];
    assert_eq!(counts.map(|name| requests[name]), [5, 6, 1, 0, 35]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_log_tells_nothing_without_its_key() {
    let mut world = World::new().await;
    let plain = world.client();
    world.config.seal = Some([7; 32]);
    let sealed = world.client();
    let (hash, content) = (Hash::of(b"secret"), Bytes::from_static(b"secret"));
    let key = Key::Blob(hash, 0);
    assert_eq!(sealed.put_new(key, content.clone()).await, Ok(Put::Created));
    assert_eq!(sealed.put_new(key, content.clone()).await, Ok(Put::Exists));
    assert_eq!(sealed.get(key, None).await, Ok(Some(content.clone())));
    let part = sealed.get(key, Some(1..3)).await;
    assert_eq!(part, Ok(Some(Bytes::from_static(b"ec"))));
    assert!(!sealed.key(key).contains(&hash.to_string()));
    assert_eq!(plain.get(key, None).await, Ok(None), "its name is hidden");
    sealed.put_new(Key::Log(1), content.clone()).await.unwrap();
    world.config.seal = Some([8; 32]);
    for other in [world.client(), plain.clone()] {
        let read = other.get(Key::Log(1), None).await;
        assert!(matches!(read, Err(Fault::Unreadable(_))), "{read:?}");
    }
    plain.put_new(Key::Log(2), content).await.unwrap();
    let read = sealed.get(Key::Log(2), None).await;
    assert!(matches!(read, Err(Fault::Unreadable(_))), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_log_is_checked_and_collected_like_any_other() {
    let mut world = World::with(Quirk::None).await;
    world.config.seal = Some([7; 32]);
    let big = |name: &str| name.repeat(40_000);
    world
        .commit(&[("a.md", "inline"), ("a.bin", &big("one "))])
        .await;
    world.commit(&[("a.bin", &big("two "))]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(
        swept.deleted.len(),
        1,
        "the blob of \"one \": {:?}",
        swept.deleted
    );
    assert!(swept.deleted[0].contains("/blob/"), "{:?}", swept.deleted);
    assert_eq!(world.head("a.bin").await, big("two "));
    assert_eq!(world.head("a.md").await, "inline");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_the_connection_are_retried_and_then_unknown() {
    let world = World::new().await;
    let (proxy, config) = world.behind_faults();
    let config = S3Config {
        timeout: Duration::from_millis(500),
        ..config
    };
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    let body = || Bytes::from(vec![b'x'; 200]);
    let put = |number: u64| client.put_new(Key::Log(number), body());
    let of_puts = |fault: Broken| Rule::always(fault).of(&[Operation::Put]);
    let refuse = |status: u16, code: &str| Broken::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    };
    let slow_down = of_puts(refuse(503, "SlowDown"));
    proxy.set(vec![slow_down.clone().when(When::First(2))]);
    assert_eq!(put(1).await, Ok(Put::Created));
    proxy.set(vec![slow_down]);
    assert!(matches!(put(2).await, Err(Fault::Unknown(_))));
    proxy.set(vec![of_puts(Broken::Reset).when(When::First(1))]);
    assert_eq!(put(2).await, Ok(Put::Created));
    // The request was done, and its answer lost.
    proxy.set(vec![of_puts(Broken::LoseAnswer).when(When::First(1))]);
    assert_eq!(put(3).await, Ok(Put::Exists));
    proxy.set(vec![of_puts(Broken::DamageRequest)]);
    let blob = Key::Blob(Hash::of(&body()), 0);
    assert!(
        matches!(put(4).await, Err(Fault::Unknown(_))),
        "another attempt may succeed"
    );
    assert!(client.put_new(blob, body()).await.is_err());
    proxy.set(vec![of_puts(refuse(403, "AccessDenied"))]);
    assert!(matches!(put(4).await, Err(Fault::Refused(told)) if told.contains("access key")));
    proxy.set(vec![of_puts(refuse(404, "NoSuchBucket"))]);
    assert!(matches!(put(4).await, Err(Fault::Refused(_))));
    proxy.set(vec![of_puts(Broken::Hang)]);
    let begun = Instant::now();
    assert!(matches!(put(4).await, Err(Fault::Unknown(_))));
    assert!(
        begun.elapsed() < Duration::from_millis(1500),
        "a timeout is not retried"
    );
    proxy.clear();
    assert_eq!(
        client.get(Key::Log(4), None).await,
        Ok(None),
        "a damaged body is refused"
    );
    assert_eq!(
        client.get(blob, None).await,
        Ok(None),
        "a damaged body is refused"
    );
    assert_eq!(client.get(Key::Log(3), None).await, Ok(Some(body())));
    proxy.set(vec![
        Rule::always(Broken::ShortenBody).of(&[Operation::List]),
    ]);
    client.put_new(Key::Checkpoint(1), body()).await.unwrap();
    assert!(
        matches!(client.checkpoints().await, Err(Fault::Unknown(_))),
        "a cut listing"
    );
    proxy.set(vec![
        Rule::always(Broken::ResetInBody)
            .of(&[Operation::Get])
            .when(When::First(1)),
    ]);
    assert_eq!(client.get(Key::Log(3), None).await, Ok(Some(body())));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bucket_policy_denies_overwriting_and_deleting_in_a_log() {
    let world = World::new().await;
    world.commit(&[("a.md", "1")]).await;
    let tool = world.tool();
    let log = path(".ctx/log/00000000000000000002");
    assert!(tool.put(&log, "overwritten".into()).await.is_err());
    assert!(tool.delete(&log).await.is_err());
    assert!(
        tool.copy(&path(".ctx/log/00000000000000000001"), &log)
            .await
            .is_err()
    );
    world
        .tool()
        .put(&path("notes.md"), "a note".into())
        .await
        .unwrap();
    let sweeper = Sweeper::new(&world.bucket(), &world.config);
    let options = GcOptions {
        older_than: Duration::ZERO,
        grace: Duration::ZERO,
        dry_run: false,
    };
    world.commit(&[("a.md", "2")]).await;
    world.commit(&[("a.md", "3")]).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let client = world.client();
    let floor = collect(&client, &sweeper, options, now())
        .await
        .unwrap()
        .floor;
    assert_eq!(floor, Some(4));
    tokio::time::sleep(Duration::from_millis(5)).await;
    let denied = collect(&client, &sweeper, options, now())
        .await
        .unwrap_err();
    assert!(denied.to_string().contains("AccessDenied"), "{denied}");
    assert_eq!(world.head("a.md").await, "3");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_key_or_bucket_is_named() {
    let world = World::new().await;
    assert_eq!(check(&world.config).await, Ok(()));
    let changed = async |change: &dyn Fn(&mut S3Config)| {
        let mut config = world.config.clone();
        change(&mut config);
        check(&config).await.unwrap_err()
    };
    let error = changed(&|config| config.bucket = "nobody".to_owned()).await;
    assert_eq!(error.problem, Problem::NoBucket, "{error}");
    let error = changed(&|config| config.access_key.secret = Secret("wrong".to_owned())).await;
    assert_eq!(error.problem, Problem::AccessKey, "{error}");
    assert!(!format!("{error} {error:?}").contains("wrong"), "{error}");
    let error = changed(&|config| config.access_key.id = "two words".to_owned()).await;
    assert_eq!(error.problem, Problem::AccessKey, "{error}");
    let error = changed(&|config| config.endpoint = "http://127.0.0.1:1".to_owned()).await;
    assert!(error.problem == Problem::Unreachable, "{error}");
    let error = changed(&|config| config.endpoint = "http://nowhere.invalid".to_owned()).await;
    assert_eq!(error.problem, Problem::Unreachable, "{error}");
    let error = changed(&|config| config.endpoint = "ftp://x".to_owned()).await;
    assert_eq!(error.problem, Problem::Endpoint, "{error}");
    let error = changed(&|config| config.path_style = false).await;
    assert_eq!(error.problem, Problem::AddressStyle, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_can_be_part_of_the_host_name() {
    let dir = tempfile::tempdir().unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let access = Access::random(port).unwrap();
    let domain = format!("s3.localhost:{port}");
    let _server = Embedded::serve_virtual_hosts(listener, dir.path(), &access, &domain).unwrap();
    let mut config = S3Config {
        path_style: false,
        endpoint: format!("http://{domain}"),
        ..config(&access)
    };
    // The host of this endpoint is an IP address.
    servers::create_bucket(&access, servers::BUCKET)
        .await
        .unwrap();
    assert_eq!(check(&config).await, Ok(()));
    let client = Client::new(&Bucket::new(&config).unwrap(), &config);
    let body = Bytes::from_static(b"x");
    assert_eq!(
        client.put_new(Key::Log(1), body.clone()).await,
        Ok(Put::Created)
    );
    assert_eq!(client.get(Key::Log(1), None).await, Ok(Some(body)));
    config.path_style = true;
    let error = check(&config).await.unwrap_err();
    assert!(error.problem == Problem::AddressStyle, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_tool_reads_the_mirror_and_cannot_be_given_a_log() {
    let world = World::new().await;
    let files = [
        ("notes/Grüße 100%.md", "hello"),
        ("data.bin", "raw"),
        (".ctx/x.md", "own"),
    ];
    let commit = world.commit(&files).await;
    world.publish(commit).await;
    let tool = world.tool();
    let read = async |key: &str| tool.get(&path(key)).await.unwrap();
    let note = read("notes/Grüße 100%25.md").await;
    let metadata = |name: &'static str| note.attributes.get(&Attribute::Metadata(name.into()));
    assert_eq!(metadata("ctx-commit").unwrap().as_ref(), commit.to_string());
    assert_eq!(
        metadata("ctx-sha256").unwrap().as_ref(),
        Hash::of(b"hello").to_string()
    );
    let text = String::from_utf8(note.bytes().await.unwrap().to_vec()).unwrap();
    let front = format!("---\nctxbench:\n  version: {commit}\n  modified: ");
    assert!(
        text.starts_with(&front) && text.ends_with("---\nhello"),
        "{text}"
    );
    assert!(text.contains(&Hash::of(b"hello").to_string()), "{text}");
    assert_eq!(read("data.bin").await.bytes().await.unwrap(), "raw");
    assert!(
        read("%2Ectx/x.md")
            .await
            .bytes()
            .await
            .unwrap()
            .ends_with(b"---\nown")
    );
    let log = format!("{}.ctx/log/00000000000000000001", world.mirror().prefix());
    let refused = world.mirror().put(&log, Bytes::new(), &[]).await;
    assert!(matches!(refused, Err(Fault::Refused(_))));
    assert!(matches!(
        world.mirror().delete(&log).await,
        Err(Fault::Refused(_))
    ));
    // A removed file leaves the mirror.
    let before = world.tree().await;
    let commit = world.remove("data.bin").await;
    let change = mirrored(&before, &world.tree().await);
    assert_eq!(
        (change.writes.len(), change.deletions.as_slice()),
        (0, &["data.bin".to_owned()][..])
    );
    let client = world.client();
    publish(&world.mirror(), &client, &change, commit, &|_| None)
        .await
        .unwrap();
    assert!(tool.get(&path("data.bin")).await.is_err());
    assert_eq!(world.check().await.notes, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_import_takes_in_what_other_tools_wrote_and_nothing_else() {
    let world = World::new().await;
    let poem = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let files = [
        ("a.md", "a\n"),
        ("dir/b.txt", "b"),
        ("poem.md", poem),
        ("gone.md", "x"),
        ("clash.md", "c"),
    ];
    let commit = world.commit(&files).await;
    world.publish(commit).await;
    let published = Instant::now();
    let nothing = world.import(Some(Duration::ZERO)).await;
    assert_eq!(nothing, Imported::default());
    // Longer than an import takes until it compares ages, on a busy machine too.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    // Commits that the mirror does not show yet.
    let late = [
        ("a.md", "newer\n"),
        ("late.md", "late"),
        ("clash.md", "theirs"),
    ];
    world.commit(&late).await;
    world
        .commit(&[("poem.md", &poem.replace('2', "two"))])
        .await;
    assert_eq!(
        world.import(None).await,
        Imported::default(),
        "a late mirror is no edit"
    );
    let tool = world.tool();
    let edit = async |key: &str, from: &str, to: &str| {
        let old = tool.get(&path(key)).await.unwrap();
        let (attributes, old) = (old.attributes.clone(), old.bytes().await.unwrap());
        let new = String::from_utf8(old.to_vec()).unwrap().replace(from, to);
        // Like s3fs, which keeps the metadata of what it overwrites.
        let options = PutOptions {
            attributes,
            ..PutOptions::default()
        };
        tool.put_opts(&path(key), new.into(), options)
            .await
            .unwrap();
    };
    edit("poem.md", "7\n", "seven\n").await;
    edit("dir/b.txt", "b", "edited").await;
    let clash = format!("{}ours", front(&tool, "clash.md").await);
    tool.put(&path("clash.md"), clash.into()).await.unwrap();
    tool.put(&path("new/n%0A.txt"), "new".into()).await.unwrap();
    let kept = Attributes::from_iter([(Attribute::ContentType, "text/plain")]);
    let options = PutOptions {
        attributes: kept,
        ..PutOptions::default()
    };
    tool.put_opts(&path("dir"), "a file where a directory is".into(), options)
        .await
        .unwrap();
    tool.delete(&path("gone.md")).await.unwrap();
    let done = world.import(Some(published.elapsed())).await;
    assert_eq!(done.added, ["new/n\n.txt"]);
    assert_eq!(done.changed, ["clash.md", "dir/b.txt", "poem.md"]);
    assert_eq!(done.removed, ["gone.md"], "late.md is late, not removed");
    assert_eq!(done.notes.len(), 2, "{:?}", done.notes);
    assert_eq!(
        world.head("poem.md").await,
        poem.replace('2', "two").replace('7', "seven")
    );
    assert_eq!(world.head("dir/b.txt").await, "edited");
    assert_eq!(world.head("new/n\n.txt").await, "new");
    assert_eq!(world.head("clash.md").await, "ours");
    let before = At::Commit(done.commit.unwrap() - 1);
    assert_eq!(world.show("clash.md", before).await.unwrap(), "theirs");
    assert_eq!(world.head("a.md").await, "newer\n");
    assert_eq!(world.head("late.md").await, "late");
    // The mirror was updated: the same edits are not taken in again.
    world.commit(&[("dir/b.txt", "edited again")]).await;
    let again = world.import(Some(published.elapsed())).await;
    assert_eq!((again.commit, again.changed), (None, Vec::new()));
    assert_eq!(world.head("dir/b.txt").await, "edited again");
}

/// The front matter of a mirrored file, as text.
async fn front(tool: &AmazonS3, key: &str) -> String {
    let object = tool.get(&path(key)).await.unwrap().bytes().await.unwrap();
    let (_, length) = s3::mirror::front_matter(&object).unwrap();
    String::from_utf8(object[..length].to_vec()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn history_shows_and_restores_every_version() {
    let world = World::new().await;
    let first = world
        .commit(&[("dir/a.md", "one"), ("dir/deep/b.md", "b")])
        .await;
    let between = now();
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = world.commit(&[("dir/a.md", "two"), ("c.md", "c")]).await;
    let third = world.remove("dir/deep/b.md").await;
    let show = async |at: At| world.show("dir/a.md", at).await;
    assert_eq!(show(At::Commit(first)).await.unwrap(), "one");
    assert_eq!(show(At::Time(between)).await.unwrap(), "one");
    assert_eq!(show(At::Commit(second)).await.unwrap(), "two");
    let far = show(At::Commit(99)).await;
    assert!(matches!(far, Err(HistoryError::NoCommit(99, newest)) if newest == third));
    let early = show(At::Commit(1)).await;
    assert!(matches!(early, Err(HistoryError::NoPath(..))), "{early:?}");
    let of_dir = world.show("dir", At::Head).await;
    assert!(
        matches!(of_dir, Err(HistoryError::NotFile(..))),
        "{of_dir:?}"
    );
    let entries = log(&world.client(), "dir/deep/").await.unwrap();
    let numbers: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
    assert_eq!(numbers, [third, first]);
    assert_eq!(
        entries[0].events,
        BTreeMap::from([("dir/deep/b.md".to_owned(), Event::Removed)])
    );
    assert_eq!(entries[0].writer, "alice@host");
    let all = log(&world.client(), "").await.unwrap();
    assert_eq!(all[1].events["dir/a.md"], Event::Changed);
    assert_eq!(all[1].events["c.md"], Event::Added);
    assert!(!all[1].events.contains_key("dir"));

    let bucket = world.bucket();
    let client = Client::new(&bucket, &world.config);
    let sent = bucket.requests()["s3_put"];
    let done = restore(&client, "dir", At::Commit(first), None, "alice@host")
        .await
        .unwrap();
    assert_eq!((done.from, done.nodes), (first, 4));
    assert_eq!(done.commit, Some(third + 1));
    assert_eq!(world.head("dir/a.md").await, "one");
    assert_eq!(world.head("dir/deep/b.md").await, "b");
    assert_eq!(world.head("c.md").await, "c");
    let copy = restore(
        &client,
        "dir/a.md",
        At::Commit(second),
        Some("old/a.md"),
        "w",
    )
    .await;
    assert!(copy.unwrap().commit.is_some());
    assert_eq!(world.head("old/a.md").await, "two");
    let same = restore(&client, "old/a.md", At::Head, None, "w")
        .await
        .unwrap();
    assert_eq!(same.commit, None);
    let over = restore(&client, "c.md", At::Head, Some("dir"), "w").await;
    assert!(matches!(over, Err(HistoryError::Occupied(_))), "{over:?}");
    let mut checkout = Checkout::open(&client, "w").await.unwrap();
    let id = checkout.tree().find(b"c.md").unwrap();
    checkout.link(b"dir/d.md", id).unwrap();
    checkout.remove(b"c.md");
    checkout.commit(&client).await.unwrap();
    let renamed = log(&client, "dir/d.md").await.unwrap();
    let events = BTreeMap::from([("dir/d.md".to_owned(), Event::Renamed("c.md".to_owned()))]);
    assert_eq!(renamed[0].events, events);
    // Three commits, and five times the proof that log/1 is not overwritten: no content is uploaded again.
    assert_eq!(bucket.requests()["s3_put"] - sent, 8);
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_damage_to_every_kind_of_object() {
    let world = World::new().await;
    let big = "big ".repeat(40_000);
    world
        .commit(&[("small.md", "a small file"), ("big.txt", &big)])
        .await;
    world.commit(&[("other.md", "another small file")]).await;
    let found = world.check().await;
    assert_eq!((found.commits, found.nodes, found.chunks), (3, 4, 3));
    assert_eq!(found.bytes, 12 + 160_000 + 18);
    assert_eq!(found.problems, Vec::<String>::new());
    assert_eq!(
        found.notes.len(),
        3,
        "nothing is mirrored: {:?}",
        found.notes
    );
    world.damage(big.as_bytes());
    let [problem] = &world.check().await.problems[..] else {
        panic!()
    };
    assert!(problem.contains("digest"), "{problem}");
    world.damage(b"another small file");
    let problems = world.check().await.problems;
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(
        problems[0].starts_with("Log(3): it is damaged"),
        "{problems:?}"
    );
    // What was committed after a damaged commit cannot be reached.
    world.damage(b"a small file");
    let problems = world.check().await.problems;
    assert!(
        problems
            .iter()
            .any(|problem| problem.starts_with("Log(2): it is damaged")),
        "{problems:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_collection_keeps_every_version_inside_the_window() {
    let world = World::with(Quirk::None).await;
    let big = |name: &str| name.repeat(40_000);
    world
        .commit(&[("kept.md", "kept inline"), ("old.bin", &big("old "))])
        .await;
    world
        .commit(&[("churn.md", "1"), ("dead.bin", &big("dead"))])
        .await;
    world.remove("dead.bin").await;
    world.commit(&[("churn.md", "2")]).await;
    world.commit(&[("old.bin", &big("new "))]).await;
    let floor = world.commit(&[("churn.md", "3")]).await;
    let hour = Duration::from_secs(3600);
    let cutoff = Instant::now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let fourth = world.commit(&[("churn.md", "4")]).await;
    world.commit(&[("old.bin", &big("last"))]).await;
    let before = world.tree().await;

    let young = world.collect(hour, Duration::ZERO, false).await;
    assert_eq!(young, Collected::default(), "nothing is older than an hour");
    let dry = world.collect(cutoff.elapsed(), hour, true).await;
    assert_eq!((dry.floor, dry.swept), (Some(floor), None));
    let made = world.collect(cutoff.elapsed(), hour, false).await;
    assert_eq!(
        (made.floor, made.swept),
        (Some(floor), None),
        "a floor deletes nothing at once"
    );
    assert_eq!(made.deleted, Vec::<String>::new());
    let still = world.collect(cutoff.elapsed(), hour, false).await;
    assert_eq!(
        (still.floor, still.swept),
        (None, None),
        "the grace time is not over"
    );

    let dry = world.collect(cutoff.elapsed(), Duration::ZERO, true).await;
    let swept = world.collect(cutoff.elapsed(), Duration::ZERO, false).await;
    assert_eq!(dry, swept, "a dry run says what a run does");
    assert_eq!(swept.swept, Some(floor));
    assert_eq!(swept.stray, Vec::<u64>::new());
    let client = world.client();
    let key = |number| client.key(Key::Log(number));
    // Commit 2 has kept.md inline; those after it are garbage, with the blobs of old.bin and dead.bin.
    let logs: Vec<String> = (3..floor).map(key).collect();
    let deleted = |part: &str| -> Vec<String> {
        let keys = swept.deleted.iter().filter(|key| key.contains(part));
        keys.cloned().collect()
    };
    assert_eq!(deleted("/log/"), logs);
    assert_eq!(deleted("/blob/").len(), 2, "{:?}", swept.deleted);
    // A mount that was away too long commits where there was a commit before: that is kept, and told.
    client
        .put_new(Key::Log(3), Bytes::from_static(b"stray"))
        .await
        .unwrap();
    let again = world.collect(cutoff.elapsed(), Duration::ZERO, false).await;
    assert_eq!((again.deleted, again.stray), (Vec::new(), vec![3]));

    assert_eq!(world.tree().await, before);
    assert_eq!(world.head("kept.md").await, "kept inline");
    assert_eq!(world.head("old.bin").await, big("last"));
    assert_eq!(
        world.show("churn.md", At::Commit(floor)).await.unwrap(),
        "3"
    );
    assert_eq!(
        world.show("old.bin", At::Commit(fourth)).await.unwrap(),
        big("new ")
    );
    let early = world.show("churn.md", At::Commit(floor - 1)).await;
    assert!(matches!(early, Err(HistoryError::TooOld(oldest)) if oldest == floor));
    assert_eq!(log(&client, "").await.unwrap().len(), 2);
    assert_eq!(world.check().await.problems, Vec::<String>::new());
    // Content of a deleted blob is uploaded again, and that of one that is kept is not.
    world
        .commit(&[("again.bin", &big("dead")), ("copy.bin", &big("last"))])
        .await;
    assert_eq!(world.head("again.bin").await, big("dead"));
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_that_was_away_goes_on_after_a_collection() {
    let world = World::with(Quirk::None).await;
    world.commit(&[("a.md", "1")]).await;
    let client = world.client();
    let mut away = Checkout::open(&client, "away").await.unwrap();
    away.write(b"mine.md", &Bytes::from_static(b"mine"), now())
        .unwrap();
    world.commit(&[("b.md", "1")]).await;
    world.commit(&[("a.md", "2"), ("b.md", "2")]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(
        swept.deleted.len(),
        2,
        "commits 2 and 3: {:?}",
        swept.deleted
    );
    away.join(&client).await.unwrap();
    let number = away.commit(&client).await.unwrap().number;
    assert_eq!(number, Some(5));
    assert_eq!(world.head("mine.md").await, "mine");
    assert_eq!(world.head("a.md").await, "2");
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_whose_head_is_kept_for_its_inline_files_follows_the_floor() {
    let world = World::with(Quirk::None).await;
    world.commit(&[("kept.md", "kept inline")]).await;
    let client = world.client();
    let mut away = Checkout::open(&client, "away").await.unwrap();
    away.write(b"mine.md", &Bytes::from_static(b"mine"), now())
        .unwrap();
    world.commit(&[("b.md", "1")]).await;
    world.commit(&[("b.md", "2")]).await;
    world.collect(Duration::ZERO, Duration::ZERO, false).await;
    let swept = world.collect(Duration::ZERO, Duration::ZERO, false).await;
    assert_eq!(
        swept.deleted,
        [client.key(Key::Log(3))],
        "commit 2 holds kept.md"
    );
    away.join(&client).await.unwrap();
    assert_eq!(away.commit(&client).await.unwrap().number, Some(5));
    assert_eq!(world.head("mine.md").await, "mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_several_chunks_are_committed_shown_and_checked() {
    let world = World::new().await;
    let long = Bytes::from(vec![b'l'; CHUNK as usize + 5]);
    let client = world.client();
    let mut checkout = Checkout::open(&client, "alice@host").await.unwrap();
    checkout.write(b"long.bin", &long, now()).unwrap();
    checkout.commit(&client).await.unwrap();
    assert_eq!(world.head("long.bin").await.as_bytes(), long);
    assert!(mirrored(&Tree::default(), &world.tree().await).is_empty());
    assert_eq!(world.check().await.problems, Vec::<String>::new());
}
