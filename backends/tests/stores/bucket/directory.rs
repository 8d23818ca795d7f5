//! A bucket that is a directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::SystemTime;

use super::*;

/// A directory, and a memory in it.
struct DirectoryMemory {
    dir: tempfile::TempDir,
    config: S3Config,
}

impl DirectoryMemory {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(servers::BUCKET)).unwrap();
        let config = config(&shared_directory(dir.path()));
        Self { config, dir }
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

    /// The file of an object of the agent.
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(servers::BUCKET).join("team/agents/alice").join(name)
    }

    /// Everything below the bucket, by path.
    fn files(&self) -> Vec<String> {
        let found = Command::new("find").arg(self.dir.path().join(servers::BUCKET)).arg("-type").arg("f").output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap();
        let start = format!("{}/", self.file("x").parent().unwrap().display());
        let mut found: Vec<_> = found.lines().map(|path| path.trim_start_matches(&start).to_owned()).collect();
        found.sort();
        found
    }
}

async fn keys(mirror: &MirrorClient, start: &str) -> Vec<String> {
    let listed = mirror.list(start).await.unwrap();
    listed.into_iter().map(|object| format!("{start}{}", object.key)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_in_a_directory_is_created_once_and_read_whole_or_in_part() {
    let shared = DirectoryMemory::new();
    assert_eq!(check_access(&shared.config).await, Ok(()));
    let bucket = shared.bucket();
    let client = Client::new(&bucket, &shared.config);
    assert_eq!(client.get(Key::Log(1), None).await, Ok(None));
    assert_eq!(client.checkpoints().await, Ok(vec![]));
    let first = Bytes::from_static(b"0123456789");
    assert_eq!(client.put_new(Key::Log(1), first.clone()).await, Ok(PutOutcome::Created));
    assert_eq!(client.put_new(Key::Log(1), Bytes::from_static(b"other")).await, Ok(PutOutcome::Exists));
    assert_eq!(client.get(Key::Log(1), None).await, Ok(Some(first)));
    assert_eq!(client.get(Key::Log(1), Some(2..5)).await, Ok(Some(Bytes::from_static(b"234"))));
    assert_eq!(client.get(Key::Log(2), Some(0..8)).await, Ok(None));
    let beyond = client.get(Key::Log(1), Some(8..12)).await;
    assert!(matches!(beyond, Err(Fault::Unreadable(_))), "{beyond:?}");
    for number in [70, 3] {
        client.put_new(Key::Checkpoint(number), Bytes::from_static(b"checkpoint")).await.unwrap();
    }
    assert_eq!(client.checkpoints().await, Ok(vec![3, 70]));
    let requests = bucket.requests();
    let counts = ["s3_put", "s3_get", "s3_list", "s3_delete", "s3_bytes_sent", "s3_bytes_received"];
    assert_eq!(counts.map(|name| requests[name]), [4, 5, 2, 0, 35, 13]);
    let log = ".ctx/log/00000000000000000001".to_owned();
    assert_eq!(shared.files()[1..], [".ctx/checkpoint/00000000000000000070".to_owned(), log], "and nothing unfinished");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_writers_creates_an_object() {
    let shared = DirectoryMemory::new();
    for number in 1..=20 {
        let writers = (0..16).map(|writer| {
            let client = shared.client();
            tokio::spawn(async move { client.put_new(Key::Log(number), vec![writer; 1000].into()).await.unwrap() })
        });
        let writers: Vec<_> = writers.collect();
        let mut winners = Vec::new();
        for (at, writer) in writers.into_iter().enumerate() {
            if writer.await.unwrap() == PutOutcome::Created {
                winners.push(vec![at as u8; 1000]);
            }
        }
        let read = shared.client().get(Key::Log(number), None).await.unwrap().unwrap();
        assert_eq!(winners, [read.to_vec()]);
    }
    assert_eq!(shared.files().len(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_any_characters_is_a_path_that_stays_in_the_bucket() {
    let shared = DirectoryMemory::new();
    let mirror = shared.mirror();
    let all = ["plan.md", "a b/ü%2F.md", "../../up.md", "./here", "x//y", "line\nbreak", "%new/z", "dir/a", "dir/b/c"];
    for key in all {
        let put = mirror.put(key, Bytes::from(key.as_bytes().to_vec()), &[], Precondition::Absent);
        assert_eq!(put.await, Ok(true), "{key}");
    }
    let mut sorted: Vec<&str> = all.to_vec();
    sorted.sort_unstable();
    assert_eq!(keys(&mirror, "").await, sorted);
    assert_eq!(keys(&mirror, "di").await, ["dir/a", "dir/b/c"]);
    assert_eq!(keys(&mirror, "dir/").await, ["dir/a", "dir/b/c"]);
    assert_eq!(keys(&mirror, "none/").await, Vec::<String>::new());
    for key in all {
        assert_eq!(mirror.get(key).await.unwrap().unwrap().body, key.as_bytes(), "{key}");
    }
    assert_eq!(fs::read(shared.file("plan.md")).unwrap(), b"plan.md", "other programs can read it");
    assert_eq!(shared.files().len(), all.len(), "nothing is outside of the memory: {:?}", shared.files());
    for key in all {
        mirror.delete(key).await.unwrap();
        assert!(mirror.get(key).await.unwrap().is_none());
    }
    assert!(!shared.file("").exists(), "empty directories are removed");
    mirror.delete("never/there").await.unwrap();
    let long = "x".repeat(256);
    let refused = mirror.put(&long, Bytes::new(), &[], Precondition::None).await;
    assert!(matches!(refused, Err(Fault::Refused(_))), "{refused:?}");
    // A directory cannot have the name of an object, as on a server.
    mirror.put("a", Bytes::new(), &[], Precondition::None).await.unwrap();
    let below = mirror.put("a/b", Bytes::new(), &[], Precondition::None).await;
    assert!(matches!(below, Err(Fault::Unknown(_))), "tried again later: {below:?}");
    assert!(mirror.get("a/b").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_is_replaced_only_if_it_is_the_one_that_was_read() {
    let shared = DirectoryMemory::new();
    let mirror = shared.mirror();
    let put = async |key: &str, body: &'static str, precondition: Precondition<'_>| {
        let metadata = [("ctx-commit", "7".to_owned())];
        mirror.put(key, Bytes::from_static(body.as_bytes()), &metadata, precondition).await.unwrap()
    };
    assert!(put("n.bin", "1", Precondition::Absent).await);
    assert!(!put("n.bin", "2", Precondition::Absent).await);
    let read = mirror.get("n.bin").await.unwrap().unwrap();
    assert_eq!(read.metadata.get("ctx-commit").map(String::as_str), Some("7"));
    let etag = read.etag.unwrap();
    // Another program edits it.
    fs::write(shared.file("n.bin"), "edited").unwrap();
    assert!(!put("n.bin", "3", Precondition::Etag(&etag)).await);
    let etag = mirror.get("n.bin").await.unwrap().unwrap().etag.unwrap();
    assert!(put("n.bin", "4", Precondition::Etag(&etag)).await);
    assert!(!put("missing", "5", Precondition::Etag(&etag)).await);
    assert_eq!(fs::read(shared.file("n.bin")).unwrap(), b"4");
}

/// Environment of a process of the next test: the directory, and the number of the process.
const PROCESS: [&str; 2] = ["CTXBENCH_TEST_DIRECTORY", "CTXBENCH_TEST_PROCESS"];

/// Rounds of each process.
const ROUNDS: usize = 200;

#[test]
fn two_processes_that_replace_an_object_lose_no_line() {
    let shared = DirectoryMemory::new();
    let start = |process: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "bucket::directory::a_process_adds_its_lines_to_an_object";
        command.args(["--exact", name, "--ignored"]).env(PROCESS[0], shared.dir.path());
        command.env(PROCESS[1], process.to_string()).spawn().unwrap()
    };
    let processes = [0, 1].map(start);
    for mut process in processes {
        assert!(process.wait().unwrap().success());
    }
    let lines = fs::read_to_string(shared.file("lines.bin")).unwrap();
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..2 * ROUNDS).map(|at| format!("{}-{}", at / ROUNDS, at % ROUNDS)).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of two_processes_that_replace_an_object_lose_no_line"]
async fn a_process_adds_its_lines_to_an_object() {
    let [dir, process] = PROCESS.map(|name| std::env::var(name).unwrap());
    let config = config(&shared_directory(dir.as_ref()));
    let mirror = MirrorClient::new(&Bucket::new(&config).unwrap(), &config);
    for round in 0..ROUNDS {
        // Each attempt that another process was faster than is made again.
        loop {
            let there = mirror.get("lines.bin").await.unwrap();
            let (mut body, precondition) = match &there {
                Some(there) => (there.body.to_vec(), Precondition::Etag(there.etag.as_deref().unwrap())),
                None => (Vec::new(), Precondition::Absent),
            };
            body.extend(format!("{process}-{round}\n").into_bytes());
            if mirror.put("lines.bin", body.into(), &[], precondition).await.unwrap() {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_fifos_in_the_directory_are_refused_and_nothing_behind_them_changes() {
    let shared = DirectoryMemory::new();
    let client = shared.client();
    client.put_new(Key::Log(1), Bytes::from_static(b"1")).await.unwrap();
    let outside = shared.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    symlink(outside.join("file"), shared.file(".ctx/log/00000000000000000002")).unwrap();
    symlink(outside.join("new"), shared.file(".ctx/log/00000000000000000003")).unwrap();
    let fifo = shared.file(".ctx/log/00000000000000000004");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    symlink(&outside, shared.file(".ctx/checkpoint")).unwrap();
    symlink(&outside, shared.file("notes")).unwrap();
    for number in [2, 3, 4] {
        let read = client.get(Key::Log(number), None).await;
        assert!(matches!(read, Err(Fault::Unreadable(_))), "{number}: {read:?}");
        let put = client.put_new(Key::Log(number), Bytes::from_static(b"x")).await;
        assert!(matches!(put, Err(Fault::Refused(_))), "{number}: {put:?}");
    }
    let checkpoint = client.put_new(Key::Checkpoint(1), Bytes::from_static(b"x")).await;
    assert!(matches!(checkpoint, Err(Fault::Refused(_))), "{checkpoint:?}");
    assert!(client.checkpoints().await.is_err());
    let mirror = shared.mirror();
    assert!(mirror.get("notes/file").await.is_err());
    assert!(mirror.delete("notes/file").await.is_err());
    assert!(mirror.put("notes/file", Bytes::new(), &[], Precondition::None).await.is_err());
    assert_eq!(keys(&mirror, "").await, Vec::<String>::new(), "a listing leaves links out");
    let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["file"]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_used_is_named_with_what_to_do() {
    let shared = DirectoryMemory::new();
    let told = async |change: &dyn Fn(&mut S3Config)| {
        let mut config = shared.config.clone();
        change(&mut config);
        check_access(&config).await.unwrap_err().to_string()
    };
    let missing = told(&|config| config.bucket = "other".to_owned()).await;
    assert!(missing.contains("there is no directory") && missing.contains("mkdir -p"), "{missing}");
    for endpoint in ["file://host/path", "file:path", "file:"] {
        let wrong = told(&|config| config.endpoint = endpoint.to_owned()).await;
        assert!(wrong.contains("absolute path"), "{endpoint}: {wrong}");
    }
    // A file system that is not mounted now: no log is taken for an empty one, and none is begun.
    let away = S3Config { bucket: "other".to_owned(), ..shared.config.clone() };
    let away = Client::new(&Bucket::new(&away).unwrap(), &away);
    for read in [away.get(Key::Log(1), None).await.map(drop), away.checkpoints().await.map(drop)] {
        assert!(matches!(read, Err(Fault::Unknown(_))), "{read:?}");
    }
    assert!(away.put_new(Key::Log(1), Bytes::new()).await.is_err());
    assert!(!shared.dir.path().join("other").exists());
    if !rustix::process::geteuid().is_root() {
        let path = shared.dir.path().join(servers::BUCKET);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).unwrap();
        let refused = told(&|_| ()).await;
        assert!(refused.contains("no object can be created"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_writer_that_died_left_is_no_object_and_is_removed_a_day_later() {
    let shared = DirectoryMemory::new();
    let client = shared.client();
    client.put_new(Key::Checkpoint(1), Bytes::from_static(b"1")).await.unwrap();
    let unfinished = shared.dir.path().join(servers::BUCKET).join("%new");
    for (name, age) in [("old", 25), ("new", 1)] {
        let file = fs::File::create(unfinished.join(name)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age * 3600)).unwrap();
    }
    assert_eq!(check_access(&shared.config).await, Ok(()));
    let left: Vec<_> = fs::read_dir(&unfinished).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["new"]);
    let root = S3Config { prefix: String::new(), ..shared.config.clone() };
    let everything = MirrorClient::new(&Bucket::new(&root).unwrap(), &root).list("").await.unwrap();
    assert_eq!(everything, [], "of another prefix");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_in_a_directory_is_checked_and_collected() {
    let shared = DirectoryMemory::new();
    let client = shared.client();
    for content in ["one", "two", "three"] {
        let mut checkout = Checkout::open(&client, "alice@host").await.unwrap();
        let long = Bytes::from(content.repeat(50_000));
        checkout.write(b"long", &long, now()).unwrap();
        checkout.write(b"plan.md", &Bytes::from(content), now()).unwrap();
        checkout.commit(&client).await.unwrap();
    }
    let check = async || s3::check::check(&client, Some((&shared.mirror(), MirrorMode::All))).await.unwrap();
    assert_eq!(check().await.problems, Vec::<String>::new());
    let sweeper = Sweeper::new(&shared.bucket(), &shared.config);
    tokio::time::sleep(Duration::from_millis(5)).await;
    for _ in 0..2 {
        let options = GcOptions { older_than: Duration::ZERO, grace: Duration::ZERO, dry_run: false };
        collect(&client, &sweeper, options, now()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let blobs = shared.files().iter().filter(|file| file.starts_with(".ctx/blob/")).count();
    assert_eq!(blobs, 1, "of the newest content");
    let checked = check().await;
    assert_eq!((checked.problems, checked.nodes), (Vec::new(), 3), "the root and two files");
    // A changed byte is found.
    let blob = shared.files().into_iter().find(|file| file.starts_with(".ctx/blob/")).unwrap();
    let mut bytes = fs::read(shared.file(&blob)).unwrap();
    bytes[1] ^= 1;
    fs::write(shared.file(&blob), bytes).unwrap();
    assert_eq!(check().await.problems.len(), 1);
}
