//! Shared with the end-to-end tests: checks of texts, files, and servers.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use object_store::aws::AmazonS3Builder;
use servers::{Embedded, Quirk, ServerAccess};
use tokio::runtime::Runtime;
use view::find_postgresql;

/// Checks that a text has each of these parts.
#[track_caller]
pub fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

/// Checks that a text has none of these parts.
#[track_caller]
pub fn lacks(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(!text.contains(part), "{part:?} is in {text}");
    }
}

/// Writes files below a directory, and makes the directories above them.
pub fn write_files(dir: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

/// A program that a test needs, if it is installed. If not, the test reports it and passes. The variable `required`,
/// set in CI, makes that a failure.
pub fn installed<T>(found: Result<T, impl Display>, required: &str) -> Option<T> {
    match found {
        Ok(found) => Some(found),
        Err(missing) => {
            assert!(std::env::var_os(required).is_none(), "{missing}");
            eprintln!("SKIPPED: {missing}");
            None
        }
    }
}

/// Waits until a condition holds, for `most`.
pub fn wait_up_to(most: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + most;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The rows of [`beside_writers`], numbered from 0.
pub const ROWS: usize = 20;

/// Two writers give rows new versions, and two readers check every row, for `time`. A writer gets a row and its new
/// version. A reader gets a row and the version that it has at least.
pub fn beside_writers<W: FnMut(usize, usize) + Send>(
    time: Duration,
    writers: [W; 2],
    read: impl Fn(usize, usize) + Sync,
) {
    // The newest version of each row that is committed.
    let committed: [AtomicUsize; ROWS] = Default::default();
    let (is_over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reader = || {
        let began = Instant::now();
        while began.elapsed() < time {
            for (row, newest) in committed.iter().enumerate() {
                read(row, newest.load(Ordering::SeqCst));
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for (number, mut write) in writers.into_iter().enumerate() {
            let (is_over, committed) = (&is_over, &committed);
            scope.spawn(move || {
                let versions = (number + 2..).step_by(2);
                for version in versions.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    write(version % ROWS, version);
                    committed[version % ROWS].store(version, Ordering::SeqCst);
                }
            });
        }
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let ended = readers.map(|reader| reader.join());
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    let newest = committed.iter().map(|row| row.load(Ordering::SeqCst)).max();
    let reads = reads.into_inner();
    assert!(reads > 200 && newest > Some(20), "{reads} reads, {newest:?} written");
}

/// An embedded S3 server with its bucket, on a runtime of its own. It ends when it is dropped.
pub fn embedded(dir: &Path, quirk: Quirk) -> (Runtime, Embedded, ServerAccess) {
    let runtime = Runtime::new().unwrap();
    let (server, access) = runtime.block_on(serve_embedded(dir, quirk));
    (runtime, server, access)
}

/// As [`embedded`], on the runtime of the caller.
pub async fn serve_embedded(dir: &Path, quirk: Quirk) -> (Embedded, ServerAccess) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let access = ServerAccess::random(listener.local_addr().unwrap().port()).unwrap();
    let server = Embedded::serve_with(listener, dir, &access, quirk).unwrap();
    // A second server of a directory finds the bucket of the first.
    servers::create_bucket(&access, servers::BUCKET).await.unwrap();
    (server, access)
}

/// The settings of a client of a server's bucket.
pub fn s3_builder(access: &ServerAccess) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_endpoint(&access.endpoint)
        .with_region(&access.region)
        .with_bucket_name(servers::BUCKET)
        .with_access_key_id(&access.access_key)
        .with_secret_access_key(&access.secret_key)
        .with_allow_http(true)
}

/// Serves HTTP, and returns its URL: `answer` is given the lines of each request. An empty answer
/// closes the connection, and so does one that says so in a header.
pub fn serve_http(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                loop {
                    let request = lines.by_ref().map_while(Result::ok);
                    let request: Vec<_> = request.take_while(|line| !line.is_empty()).collect();
                    if request.is_empty() {
                        break;
                    }
                    let text = answer(&request);
                    let is_last = text.is_empty() || text.contains("\r\nConnection: close\r\n");
                    if stream.write_all(text.as_bytes()).is_err() || is_last {
                        break;
                    }
                }
            });
        }
    });
    url
}

/// A PostgreSQL cluster that ends with its owner.
pub struct Cluster {
    pub script: Child,
    pub dir: PathBuf,
}

impl Cluster {
    pub fn start() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // The script removes it, even if this process is killed. Short: a socket's path has 107 bytes.
        let dir = std::env::temp_dir().join(format!("ctxbench-pg-{}-{number}", std::process::id()));
        Self { script: Self::run(&dir), dir }
    }

    pub fn run(dir: &Path) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres-cluster");
        let mut script = Command::new(script).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = String::new();
        let mut said = BufReader::new(script.stdout.take().unwrap());
        said.read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "the cluster did not start");
        script
    }

    pub fn url(&self, database: &str, user: &str) -> String {
        let dir = self.dir.display();
        format!("postgresql:///{database}?host={dir}&user={user}")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// The cluster that tests share, if PostgreSQL is installed. It ends with the process: the script's standard input does.
pub fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    let start = || {
        let missing = "PostgreSQL is not installed: make postgres";
        let found = installed(find_postgresql().ok_or(missing), "CTXBENCH_REQUIRE_POSTGRES");
        found.map(|_| Cluster::start())
    };
    CLUSTER.get_or_init(start).as_ref()
}
