//! The `s3` store against a real server in this process: what two machines see of one bucket, how many requests
//! that takes, and what becomes of conflicts, crashes and strangers' objects.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backends::memory::MemoryStore;
use backends::s3::{
    AccessKey, ConflictPolicy, S3Config, S3OpenError, S3Store, Secret, SyncMode, check,
};
use backends::store::{Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store};
use common::*;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use proptest::prelude::*;
use servers::{Access, Options, Server, ServerKind};

struct Service {
    access: Access,
    runtime: tokio::runtime::Runtime,
    _server: Server,
    _dir: tempfile::TempDir,
}

/// One server for all tests of this process.
fn service() -> &'static Service {
    static SERVICE: OnceLock<Service> = OnceLock::new();
    SERVICE.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let options = Options {
            server: ServerKind::Embedded.find().unwrap(),
            dir: dir.path().to_owned(),
            port: 0,
            rtt: Duration::ZERO,
            keys: None,
            launcher: Vec::new(),
        };
        let server = runtime.block_on(servers::start(options)).unwrap();
        Service {
            access: server.access().clone(),
            runtime,
            _server: server,
            _dir: dir,
        }
    })
}

/// A part of the bucket that no other test uses.
fn agent() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("a{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config(agent: &str, writer: &str) -> S3Config {
    let access = &service().access;
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
        // Nothing happens by itself: a test says when.
        poll: Duration::from_secs(3600),
        delay: Duration::from_secs(3600),
        timeout: Duration::from_secs(10),
        seal: None,
    }
}

/// Caches, one a machine.
struct Machines(tempfile::TempDir);

impl Machines {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn cache(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn mount(&self, config: S3Config) -> S3Store {
        let cache = self.cache(&format!("{}.db", config.writer));
        S3Store::open(config, &cache, &caller(1)).unwrap()
    }
}

fn bucket() -> object_store::aws::AmazonS3 {
    let access = &service().access;
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

/// An object as any S3 tool sees it.
fn object(key: &str) -> Vec<u8> {
    let service = service();
    let got = service
        .runtime
        .block_on(async { bucket().get(&Key::from(key)).await.unwrap().bytes().await });
    got.unwrap().to_vec()
}

fn put_object(key: &str, body: &'static [u8]) {
    let payload = PutPayload::from_static(body);
    service()
        .runtime
        .block_on(async { bucket().put(&Key::from(key), payload).await })
        .unwrap();
}

/// Every key of an agent's files.
fn keys(agent: &str) -> Vec<String> {
    use futures::TryStreamExt;
    use object_store::ObjectStore;
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

fn mkdir(store: &S3Store, parent: Ino, name: &str) -> Ino {
    let new = NewNode {
        permissions: 0o755,
        ..node(Kind::Directory)
    };
    let made = store.create(&now(), parent, name.as_bytes(), &new);
    made.unwrap().ino
}

fn write(store: &S3Store, parent: Ino, name: &str, content: &[u8]) -> Ino {
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

/// Time passes between operations.
fn now() -> backends::store::Caller {
    static NOW: AtomicU64 = AtomicU64::new(1_000_000);
    caller(NOW.fetch_add(1, Ordering::Relaxed) as i64)
}

fn text(store: &S3Store, parent: Ino, name: &str) -> String {
    let attr = store.lookup(parent, name.as_bytes()).unwrap();
    let content = read(store, attr.ino, 0, attr.size as usize);
    String::from_utf8(content).unwrap()
}

fn requests(store: &S3Store) -> BTreeMap<&'static str, u64> {
    let counters = store.counters().into_iter();
    counters
        .filter(|(name, _)| {
            [
                "s3_get",
                "s3_head",
                "s3_put",
                "s3_copy",
                "s3_list",
                "s3_delete",
                "s3_part",
            ]
            .contains(name)
        })
        .collect()
}

/// What requests something took, by kind; kinds without any are left out.
fn spent(store: &S3Store, work: impl FnOnce()) -> BTreeMap<&'static str, u64> {
    // What is told to others afterwards belongs to what was done before.
    for _ in 0..2000 {
        if store.counters()["s3_untold"] == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = requests(store);
    work();
    requests(store)
        .into_iter()
        .map(|(kind, count)| (kind, count - before[kind]))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[test]
fn another_machine_sees_what_was_written_and_tools_can_read_it() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let notes = mkdir(&a, ROOT, "notes");
    write(&a, notes, "today.md", b"# Today\n");
    write(&a, ROOT, "data.bin", &[0, 255, 0]);
    mkdir(&a, ROOT, "empty");
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);

    let seen = String::from_utf8(object(&format!("agents/{agent}/notes/today.md"))).unwrap();
    assert!(
        seen.starts_with("---\nctxbench:\n  version: 1\n  writer: alice\n"),
        "{seen}"
    );
    assert!(seen.ends_with("---\n# Today\n"), "{seen}");
    assert_eq!(object(&format!("agents/{agent}/data.bin")), [0, 255, 0]);

    let b = machines.mount(config(&agent, "bob"));
    let notes = b.lookup(ROOT, b"notes").unwrap().ino;
    assert_eq!(b.lookup(notes, b"today.md").unwrap().size, 8);
    assert_eq!(text(&b, notes, "today.md"), "# Today\n");
    assert_eq!(b.lookup(ROOT, b"empty").unwrap().kind, Kind::Directory);

    // And what is changed there, here.
    write(&b, notes, "today.md", b"# Today, later\n");
    b.unlink(&now(), ROOT, b"data.bin").unwrap();
    b.rmdir(&now(), ROOT, b"empty").unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    let notes = a.lookup(ROOT, b"notes").unwrap().ino;
    assert_eq!(text(&a, notes, "today.md"), "# Today, later\n");
    assert_eq!(names(&a, ROOT), ["notes"]);
    assert_eq!(
        check(&config(&agent, "c")).unwrap().problems,
        Vec::<String>::new()
    );
}

#[test]
fn requests_are_as_few_as_promised() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let dir = mkdir(&a, ROOT, "d");
    for at in 0..990 {
        write(&a, dir, &format!("f{at}"), b"x");
    }
    let up = spent(&a, || a.upload().unwrap());
    assert_eq!(up, BTreeMap::from([("s3_put", 990)]), "one a file");
    drop(a);

    // A cold listing: the files, the manifest (not there), the writers' indexes and the one there is.
    let b = S3Store::open(config(&agent, "bob"), &machines.cache("b.db"), &caller(1)).unwrap();
    let opened = requests(&b);
    assert_eq!(
        opened["s3_list"], 3,
        "one to check, one of the files, one of the indexes"
    );
    assert_eq!(opened["s3_head"], 0);
    assert_eq!(
        opened["s3_get"], 4,
        "the seal, the manifest, the index, what is known of the server"
    );
    assert_eq!(opened["s3_put"], 0);
    let dir = b.lookup(ROOT, b"d").unwrap().ino;
    let listed = spent(&b, || assert_eq!(names(&b, dir).len(), 990));
    assert_eq!(listed, BTreeMap::new(), "listing asks nobody");

    let first = spent(&b, || assert_eq!(text(&b, dir, "f7"), "x"));
    assert_eq!(first, BTreeMap::from([("s3_get", 1)]));
    let again = spent(&b, || assert_eq!(text(&b, dir, "f7"), "x"));
    assert_eq!(again, BTreeMap::new(), "a hot read asks nobody");
    let poll = spent(&b, || b.pull().unwrap());
    assert_eq!(poll, BTreeMap::from([("s3_list", 1), ("s3_get", 1)]));

    let twice = spent(&b, || {
        for _ in 0..10 {
            write(&b, dir, "f7", b"many times");
        }
        b.upload().unwrap();
    });
    assert_eq!(
        twice,
        BTreeMap::from([("s3_put", 1), ("s3_copy", 1)]),
        "ten writes go up as one, and what was there is kept"
    );
}

#[test]
fn a_renamed_directory_copies_nothing() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let dir = mkdir(&a, ROOT, "d");
    for at in 0..50 {
        write(&a, dir, &format!("f{at}"), b"x");
    }
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    let before = keys(&agent);
    let renamed = spent(&a, || {
        let replace = RenameMode::Replace;
        a.rename(&now(), (ROOT, b"d"), (ROOT, b"e"), replace)
            .unwrap();
        a.upload().unwrap();
    });
    assert_eq!(
        renamed,
        BTreeMap::from([("s3_get", 1), ("s3_put", 1)]),
        "the manifest"
    );
    assert_eq!(keys(&agent), before);
    // A new directory of the old name does not get in its way.
    let d = mkdir(&a, ROOT, "d");
    write(&a, d, "new", b"n");
    a.upload().unwrap();
    b.pull().unwrap();
    let seen = |store: &S3Store| {
        let mut lines = Vec::new();
        tree(store, ROOT, "", &mut lines);
        lines
    };
    assert_eq!(seen(&b), seen(&a));
    assert_eq!(names(&b, ROOT), ["d", "e"]);
    // A file that leaves it is copied by the server.
    let e = a.lookup(ROOT, b"e").unwrap().ino;
    a.rename(&now(), (e, b"f1"), (ROOT, b"f1"), RenameMode::Replace)
        .unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(seen(&b), seen(&a));
}

#[test]
fn both_versions_of_a_conflict_are_kept_and_the_loser_is_told() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, ROOT, "plan.md", b"base");
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    write(&a, ROOT, "plan.md", b"by alice");
    write(&b, ROOT, "plan.md", b"by bob");
    write(&a, ROOT, "new.md", b"alice's");
    write(&b, ROOT, "new.md", b"bob's");
    a.upload().unwrap();
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 2);
    b.upload().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(text(store, ROOT, "plan.md"), "by alice");
        assert_eq!(text(store, ROOT, "plan.conflict-bob-2.md"), "by bob");
        assert_eq!(text(store, ROOT, "new.md"), "alice's");
        assert_eq!(text(store, ROOT, "new.conflict-bob-1.md"), "bob's");
        let lost = store.lookup(ROOT, b"plan.conflict-bob-2.md").unwrap().ino;
        let told = store.getxattr(lost, b"user.ctx.conflict").unwrap();
        assert!(String::from_utf8_lossy(&told).contains("alice"), "{told:?}");
    }
    // The same on both sides is no conflict.
    write(&a, ROOT, "same", b"s");
    write(&b, ROOT, "same", b"s");
    a.upload().unwrap();
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 2);
    // Deleted there, changed here: the change stays.
    a.pull().unwrap();
    a.unlink(&now(), ROOT, b"same").unwrap();
    a.upload().unwrap();
    write(&b, ROOT, "same", b"changed");
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, ROOT, "same"), "changed");
    // Changed there, deleted here: the change stays, too.
    write(&b, ROOT, "same", b"again");
    b.upload().unwrap();
    a.unlink(&now(), ROOT, b"same").unwrap();
    a.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, ROOT, "same"), "again");
}

#[test]
fn the_last_writer_wins_where_that_is_asked_for() {
    let (machines, agent) = (Machines::new(), agent());
    let last = |writer: &str| S3Config {
        conflicts: ConflictPolicy::LastWriteWins,
        ..config(&agent, writer)
    };
    let a = machines.mount(last("alice"));
    let b = machines.mount(last("bob"));
    write(&a, ROOT, "x", b"a");
    write(&b, ROOT, "x", b"b");
    a.upload().unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, ROOT, "x"), "b");
    assert_eq!(names(&a, ROOT), ["x"], "what alice wrote is lost");
}

#[test]
fn what_had_not_gone_up_goes_up_after_a_crash_and_only_once() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, ROOT, "changed", b"1");
    write(&a, ROOT, "deleted", b"1");
    a.upload().unwrap();
    write(&a, ROOT, "changed", b"2");
    write(&a, ROOT, "new", b"1");
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    drop(a);
    // The daemon dies when the server has everything, and before the journal knows any of it: this is the journal.
    let before = machines.cache("before.db");
    std::fs::copy(machines.cache("alice.db"), &before).unwrap();
    let a = machines.mount(config(&agent, "alice"));
    assert!(a.pending().unwrap() > 0, "journalled");
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    drop(a);
    std::fs::rename(&before, machines.cache("alice.db")).unwrap();

    let a = machines.mount(config(&agent, "alice"));
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    assert_eq!(a.counters()["s3_conflicts"], 0);
    assert_eq!(names(&a, ROOT), ["changed", "new"]);
    let ino = a.lookup(ROOT, b"changed").unwrap().ino;
    // What it was first is the one version that was overwritten: the second writing of "2" had no effect.
    let versions = a.getxattr(ino, b"user.ctx.versions").unwrap();
    assert_eq!(versions.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert_eq!(a.getxattr(ino, b"user.ctx.version.1").unwrap(), b"1");
    let other = machines.mount(config(&agent, "bob"));
    assert_eq!(names(&other, ROOT), ["changed", "new"]);
    for (name, content) in [("changed", b"2"), ("new", b"1")] {
        let ino = other.lookup(ROOT, name.as_bytes()).unwrap().ino;
        assert_eq!(read(&other, ino, 0, 10), content, "{name}");
    }
    assert_eq!(spent(&a, || a.upload().unwrap()), BTreeMap::new());
}

#[test]
fn old_versions_are_listed_read_and_restored() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let ino = write(&a, ROOT, "n.md", b"first");
    a.upload().unwrap();
    write(&a, ROOT, "n.md", b"second");
    a.upload().unwrap();
    let versions = a.getxattr(ino, b"user.ctx.versions").unwrap();
    let versions = String::from_utf8(versions).unwrap();
    assert_eq!(versions.lines().count(), 1, "{versions}");
    assert!(
        versions.contains("\"version\":1,\"writer\":\"alice\""),
        "{versions}"
    );
    assert_eq!(a.getxattr(ino, b"user.ctx.version.1").unwrap(), b"first");
    let none = a.getxattr(ino, b"user.ctx.version.7").unwrap_err();
    assert_eq!(none.errno, Errno::NODATA);
    let mode = backends::store::XattrMode::Set;
    a.setxattr(&now(), ino, b"user.ctx.restore", b"1", mode)
        .unwrap();
    assert_eq!(text(&a, ROOT, "n.md"), "first");
    assert_eq!(a.getxattr(ino, b"user.ctx.sync").unwrap(), b"durable");
    assert_eq!(a.getxattr(ino, b"user.ctx.version.2").unwrap(), b"second");
    // Deleted files are kept, too.
    a.unlink(&now(), ROOT, b"n.md").unwrap();
    a.upload().unwrap();
    let kept = object(&format!("ctx/{agent}/versions/n.md/0000000003"));
    assert!(kept.ends_with(b"first"));
}

#[test]
fn sealed_memory_opens_with_its_key_only() {
    let (machines, agent) = (Machines::new(), agent());
    let sealed = |writer: &str, key: u8| S3Config {
        seal: Some([key; 32]),
        ..config(&agent, writer)
    };
    let a = machines.mount(sealed("alice", 1));
    let dir = mkdir(&a, ROOT, "secret-dir");
    write(&a, dir, "secret-name.md", b"secret content");
    let big: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 1000) as u8).collect();
    write(&a, dir, "big", &big);
    a.upload().unwrap();
    for key in keys(&agent) {
        assert!(!key.contains("secret"), "{key}");
        let body = object(&key);
        assert!(!body.windows(6).any(|window| window == b"secret"));
    }
    let b = machines.mount(sealed("bob", 1));
    let dir = b.lookup(ROOT, b"secret-dir").unwrap().ino;
    assert_eq!(text(&b, dir, "secret-name.md"), "secret content");
    let ino = b.lookup(dir, b"big").unwrap().ino;
    assert_eq!(read(&b, ino, 9_000_000, 70_000), big[9_000_000..9_070_000]);
    assert_eq!(read(&b, ino, 0, big.len()), big);
    assert_eq!(
        check(&sealed("c", 1)).unwrap().problems,
        Vec::<String>::new()
    );

    let open = |config: S3Config, name: &str| {
        S3Store::open(config, &machines.cache(name), &caller(1)).unwrap_err()
    };
    let wrong = open(sealed("carol", 2), "c.db");
    assert!(matches!(wrong, S3OpenError::Key { .. }), "{wrong}");
    let none = open(config(&agent, "carol"), "d.db");
    assert!(matches!(none, S3OpenError::Key { .. }), "{none}");
}

#[test]
fn large_files_go_in_parts_and_come_in_parts() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let big: Vec<u8> = (0..20_000_000_u32).map(|at| (at / 997) as u8).collect();
    let ino = write(&a, ROOT, "big.md", &big);
    let up = spent(&a, || a.upload().unwrap());
    assert_eq!(
        up,
        BTreeMap::from([("s3_part", 5), ("s3_put", 1)]),
        "start, three parts, end, and what tells others which parts changed"
    );
    let b = machines.mount(config(&agent, "bob"));
    let theirs = b.lookup(ROOT, b"big.md").unwrap();
    assert_eq!(theirs.size, big.len() as u64);
    let one = spent(&b, || {
        assert_eq!(
            read(&b, theirs.ino, 17_000_000, 1000),
            big[17_000_000..17_001_000]
        );
    });
    assert_eq!(
        one,
        BTreeMap::from([("s3_get", 2)]),
        "the part it lies in, and the digests that parts are held against"
    );
    assert_eq!(read(&b, theirs.ino, 0, big.len()), big);
    let hot = spent(&b, || {
        assert_eq!(read(&b, theirs.ino, 5_000_000, 10).len(), 10)
    });
    assert_eq!(hot, BTreeMap::new());
    // A change of one part is fetched as one part.
    a.write(&now(), ino, 9_000_000, b"changed").unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    let before = b.counters()["s3_bytes_received"];
    let again = spent(&b, || {
        let content = read(&b, theirs.ino, 0, big.len());
        assert_eq!(content[..9_000_000], big[..9_000_000]);
        assert_eq!(&content[9_000_000..9_000_007], b"changed");
        assert_eq!(content[9_000_007..], big[9_000_007..]);
    });
    assert_eq!(again, BTreeMap::from([("s3_get", 2)]), "and its digests");
    let received = b.counters()["s3_bytes_received"] - before;
    assert!(received <= (4 << 20) + 1000, "{received} bytes");
    // A conflict of large files is met at the end of the upload.
    a.write(&now(), ino, 0, b"A").unwrap();
    b.write(&now(), theirs.ino, 0, b"B").unwrap();
    a.upload().unwrap();
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 1);
}

#[test]
fn what_others_put_there_is_shown_and_never_lost() {
    let (machines, agent) = (Machines::new(), agent());
    put_object(&format!("agents/{agent}/plain.md"), b"no front matter");
    put_object(&format!("agents/{agent}/dir/100%"), b"odd");
    let a = machines.mount(config(&agent, "alice"));
    assert_eq!(text(&a, ROOT, "plain.md"), "no front matter");
    let dir = a.lookup(ROOT, b"dir").unwrap().ino;
    assert_eq!(text(&a, dir, "100%"), "odd");
    assert_eq!(check(&config(&agent, "c")).unwrap().foreign.len(), 2);
    // Another tool edits a file of ours: the text that it sees, front matter and all.
    write(&a, ROOT, "mine.md", b"hello");
    a.upload().unwrap();
    let key = format!("agents/{agent}/mine.md");
    let mut edited = object(&key);
    edited.extend_from_slice(b" world");
    put_object(&key, edited.leak());
    a.pull().unwrap();
    assert_eq!(text(&a, ROOT, "mine.md"), "hello world");
    let checked = check(&config(&agent, "c")).unwrap();
    assert!(checked.problems[0].contains("another tool"), "{checked:?}");
    // A file in the way of a directory: both objects stay.
    put_object(&format!("agents/{agent}/plain.md/x"), b"below a file");
    a.pull().unwrap();
    assert_eq!(text(&a, ROOT, "plain.md"), "no front matter");
    assert!(keys(&agent).contains(&format!("agents/{agent}/plain.md/x")));
}

#[test]
fn what_is_wrong_is_said_before_anything_is_mounted() {
    let (machines, agent) = (Machines::new(), agent());
    let open = |config: S3Config| {
        S3Store::open(config, &machines.cache("x.db"), &caller(1))
            .unwrap_err()
            .to_string()
    };
    let good = config(&agent, "alice");
    let nobody = open(S3Config {
        endpoint: "http://127.0.0.1:9".to_owned(),
        ..good.clone()
    });
    assert!(nobody.contains("does not answer"), "{nobody}");
    let no_bucket = open(S3Config {
        bucket: "nothing-here".to_owned(),
        ..good.clone()
    });
    assert!(no_bucket.contains("no bucket nothing-here"), "{no_bucket}");
    let mut wrong = good.clone();
    wrong.access_key.secret = Secret("not-the-secret".to_owned());
    let refused = open(wrong);
    assert!(
        refused.contains("refuses the credentials from the test"),
        "{refused}"
    );
    assert!(!refused.contains("not-the-secret"));
    let no_address = open(S3Config {
        endpoint: "localhost:9000".to_owned(),
        ..good.clone()
    });
    assert!(
        no_address.contains("no http or https address"),
        "{no_address}"
    );
    assert!(!machines.cache("x.db").exists(), "nothing is left behind");
    // A cache belongs to one bucket.
    drop(machines.mount(good));
    let other = config("somebody-else", "alice");
    let taken = S3Store::open(other, &machines.cache("alice.db"), &caller(1)).unwrap_err();
    assert!(taken.to_string().contains("is the cache of"), "{taken}");
}

#[test]
fn names_that_hurt_come_back() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let hurt: [&[u8]; 8] = [
        b"\xff\xfe not utf-8",
        b"new\nline",
        b"%41",
        b"a+b c&d=e?f#g",
        "Grüße 🦀".as_bytes(),
        b"back\\slash",
        b"~2",
        b"...",
    ];
    for name in hurt {
        let new = NewNode { ..node(Kind::File) };
        let ino = a.create(&now(), ROOT, name, &new).unwrap().ino;
        a.write(&now(), ino, 0, name).unwrap();
    }
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    for name in hurt {
        let attr = b.lookup(ROOT, name).unwrap();
        assert_eq!(read(&b, attr.ino, 0, 100), name);
    }
    for name in hurt {
        let ino = a.lookup(ROOT, name).unwrap().ino;
        a.write(&now(), ino, 0, b"second, and longer").unwrap();
    }
    a.upload().unwrap();
    for name in hurt {
        let ino = a.lookup(ROOT, name).unwrap().ino;
        assert_eq!(a.getxattr(ino, b"user.ctx.version.1").unwrap(), name);
    }
    assert_eq!(
        check(&config(&agent, "c")).unwrap().problems,
        Vec::<String>::new()
    );
}

fn seen(store: &dyn Store) -> Vec<String> {
    let mut lines = Vec::new();
    tree(store, ROOT, "", &mut lines);
    lines
}

/// A sequence, cut by moments in which everything goes up.
fn steps() -> impl Strategy<Value = Vec<(Step, bool)>> {
    prop::collection::vec((step(), prop::bool::weighted(0.1)), 1..50)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn another_machine_sees_what_the_reference_model_holds(steps in steps(), keyed in any::<bool>()) {
        let (machines, agent) = (Machines::new(), agent());
        let config = |writer: &str| S3Config {
            seal: keyed.then_some([7; 32]),
            ..config(&agent, writer)
        };
        let memory = MemoryStore::new(&caller(1));
        let a = machines.mount(config("alice"));
        let b = machines.mount(config("bob"));
        let mut model = Driven { store: &memory, made: vec![ROOT] };
        let mut tested = Driven { store: &a, made: vec![ROOT] };
        for (at, (step, goes_up)) in steps.iter().enumerate() {
            let now = 100 + at as i64;
            prop_assert_eq!(tested.step(step, now), model.step(step, now), "step {}: {:?}", at, step);
            if *goes_up {
                a.upload().unwrap();
                b.pull().unwrap();
                prop_assert_eq!(seen(&b), seen(&memory), "after step {}", at);
            }
        }
        prop_assert_eq!(tested.dump(), model.dump());
        a.upload().unwrap();
        prop_assert_eq!(a.pending().unwrap(), 0);
        b.pull().unwrap();
        prop_assert_eq!(seen(&b), seen(&memory), "a machine that was there all the time");
        let c = machines.mount(config("carol"));
        prop_assert_eq!(seen(&c), seen(&memory), "a machine that has just come");
        prop_assert_eq!(check(&config("dave")).unwrap().problems, Vec::<String>::new());
        // What goes around comes around: nothing of it looks like a change.
        let idle = spent(&a, || a.upload().unwrap());
        prop_assert_eq!(idle, BTreeMap::new());
    }
}
