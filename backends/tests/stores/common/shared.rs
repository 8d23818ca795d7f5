//! What the end-to-end tests use, too: checks of texts, files, and servers.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use backends::view::find_postgresql;
use servers::{Access, Embedded, Quirk};
use tokio::runtime::Runtime;

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

/// What a test needs, if it is installed. If not, the test reports it and passes. The variable `required`, set in CI, makes
/// that a failure.
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

/// An embedded S3 server with its bucket, on a runtime of its own. It ends when it is dropped.
pub fn embedded(dir: &Path, quirk: Quirk) -> (Runtime, Embedded, Access) {
    let runtime = Runtime::new().unwrap();
    let (server, access) = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access::random(listener.local_addr().unwrap().port()).unwrap();
        let server = Embedded::serve_with(listener, dir, &access, quirk).unwrap();
        // A second server of a directory finds the bucket of the first.
        servers::create_bucket(&access, servers::BUCKET)
            .await
            .unwrap();
        (server, access)
    });
    (runtime, server, access)
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
        // Removed by the script, also if this process is killed. Short: a socket's path has 107 bytes.
        let dir = std::env::temp_dir().join(format!("ctxbench-pg-{}-{number}", std::process::id()));
        Self {
            script: Self::run(&dir),
            dir,
        }
    }

    pub fn run(dir: &Path) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres-cluster");
        let mut script = Command::new(script)
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
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
        let found = installed(
            find_postgresql().ok_or(missing),
            "CTXBENCH_REQUIRE_POSTGRES",
        );
        found.map(|_| Cluster::start())
    };
    CLUSTER.get_or_init(start).as_ref()
}
