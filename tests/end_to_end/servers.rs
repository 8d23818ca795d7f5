//! The S3 servers of `ctxbench s3 serve`: how each starts and ends, and that it leaves nothing behind.

mod features;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Scratch, Server, ctxbench, has, has_ended, run, stderr, wait_for, write_executable};
use features::{get, put};
use rustix::process::{Pid, Signal, kill_process};
use servers::ServerKind;

/// Starts `ctxbench s3 serve` of a kind, with its standard error piped.
fn serve(server: &str, more: &[&str]) -> Server {
    let mut command = ctxbench(["s3", "serve", "--server", server, "--until-stdin-ends"]);
    command.args(more).stderr(Stdio::piped());
    Server::of(command)
}

impl Server {
    /// The process id of the server, if it is not the embedded one.
    fn child(&self) -> Option<u32> {
        let id = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let mut children = children.split_whitespace();
        children.next().map(|id| id.parse().unwrap())
    }

    /// Its standard error, up to its end.
    fn errors(&mut self) -> String {
        std::io::read_to_string(self.process.stderr.take().unwrap()).unwrap()
    }

    /// Waits for the end, and checks that no process and no file is left.
    fn ended(mut self, child: Option<u32>) {
        let status = wait(&mut self.process);
        assert!(status.success(), "{status}");
        assert!(child.is_none_or(has_ended), "its process is still there");
        let left: Vec<_> = std::fs::read_dir(self.tmp.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Waits for the process with its standard input open. `Child::wait` would close it, which ends the
/// process.
fn wait(process: &mut Child) -> ExitStatus {
    let stdin = process.stdin.take();
    let status = process.wait().unwrap();
    drop(stdin);
    status
}

fn pid(id: u32) -> Pid {
    Pid::from_raw(id.try_into().unwrap()).unwrap()
}

/// The files and directories below `dir` that another user could use, with their modes.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = std::fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o777;
            if mode & 0o077 != 0 {
                found.push(format!("{} {mode:o}", path.display()));
            }
            if metadata.is_dir() {
                left.push(path);
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_a_directory_keeps_its_keys_and_shows_no_other_user_anything() {
    for kind in found() {
        let scratch = Scratch::new();
        let dir = scratch.path().join("objects");
        let begin = || {
            let server = serve(kind.name(), &["--dir", dir.to_str().unwrap()]);
            let said = &server.announcement;
            ((said.access_key.clone(), said.secret_key.clone()), server)
        };
        let (keys, server) = begin();
        put(&server.client(), "a", b"object").await.unwrap();
        let child = server.child();
        server.signal(Signal::INT);
        server.ended(child);
        assert_eq!(open_to_others(&dir), Vec::<String>::new(), "{kind}");
        let (again, server) = begin();
        assert_eq!(again, keys, "{kind}");
        let read = get(&server.client(), "a").await.unwrap();
        assert_eq!(read, &b"object"[..], "{kind}");
        let child = server.child();
        server.signal(Signal::INT);
        server.ended(child);
    }
}

/// The installed servers. `CTXBENCH_REQUIRE_MINIO`, set in CI, makes a missing MinIO a failure.
fn found() -> Vec<ServerKind> {
    let is_found = |kind: &ServerKind| match kind.find() {
        Ok(_) => true,
        Err(missing) => {
            let is_required = *kind == ServerKind::Minio
                && std::env::var_os("CTXBENCH_REQUIRE_MINIO").is_some_and(|value| value != "0");
            assert!(!is_required, "{missing}");
            eprintln!("SKIPPED: {missing}");
            false
        }
    };
    ServerKind::ALL.into_iter().filter(is_found).collect()
}

/// The Unix sockets in /tmp on which a process listens.
fn sockets(process: Option<u32>) -> Vec<String> {
    let Some(process) = process else {
        return Vec::new();
    };
    let inodes: BTreeSet<String> = std::fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok())
        .filter_map(|link| {
            let link = link.to_str()?.strip_prefix("socket:[")?;
            Some(link.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    table
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(6);
            let (inode, path) = (fields.next()?, fields.next()?);
            let is_its = inodes.contains(inode) && path.starts_with("/tmp/");
            is_its.then(|| path.to_owned())
        })
        .collect()
}

#[test]
fn a_stopped_server_leaves_nothing_behind() {
    for kind in found() {
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            let server = serve(kind.name(), &[]);
            let child = server.child();
            assert_eq!(child.is_none(), kind == ServerKind::Embedded);
            let sockets = sockets(child);
            server.signal(signal);
            server.ended(child);
            let left = sockets.iter().find(|socket| Path::new(socket).exists());
            assert_eq!(left, None);
        }
        // Like the kill of its parent, which holds the other end.
        let mut server = serve(kind.name(), &[]);
        let child = server.child();
        drop(server.process.stdin.take());
        server.ended(child);
    }
}

#[test]
fn a_server_ends_when_serve_s3_is_killed() {
    for kind in found() {
        let mut server = serve(kind.name(), &[]);
        let Some(child) = server.child() else {
            continue;
        };
        let sockets = sockets(Some(child));
        server.process.kill().unwrap();
        server.process.wait().unwrap();
        wait_for("the server to be gone", || has_ended(child));
        // The killed process could not remove them.
        for socket in sockets {
            let _ = std::fs::remove_file(socket);
        }
    }
}

#[test]
fn a_server_that_dies_is_reported() {
    for kind in found() {
        let mut server = serve(kind.name(), &[]);
        let Some(child) = server.child() else {
            continue;
        };
        kill_process(pid(child), Signal::KILL).unwrap();
        let status = wait(&mut server.process);
        assert_eq!(status.code(), Some(1));
        let said = server.errors();
        let want = format!("{kind} ended unexpectedly (signal: 9 (SIGKILL))");
        has(&said, &[&want]);
        assert_eq!(std::fs::read_dir(server.tmp.path()).unwrap().count(), 0);
    }
}

#[test]
fn auto_selection_says_why_it_is_not_minio() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("minio");
    let mut command = ctxbench(["s3", "serve"]);
    command.env("CTXBENCH_MINIO", &missing).env_remove("CTXBENCH_REQUIRE_MINIO").stderr(Stdio::piped());
    let mut server = Server::of(command);
    assert_eq!(server.announcement.server, "embedded S3");
    server.signal(Signal::INT);
    has(&server.errors(), &["embedded S3 server instead of MinIO", "make minio"]);

    let output =
        ctxbench(["s3", "serve"]).env("CTXBENCH_MINIO", &missing).env("CTXBENCH_REQUIRE_MINIO", "1").output().unwrap();
    assert!(!output.status.success());
    let said = stderr(&output);
    has(&said, &["CTXBENCH_REQUIRE_MINIO is set", "make minio"]);
}

#[test]
fn a_server_that_cannot_start_is_named() {
    let scratch = Scratch::new();
    let not_a_server = scratch.path().join("minio");
    let script = "#!/bin/sh\necho 'no licence to serve' >&2\nexit 3\n";
    write_executable(&not_a_server, script);
    let output = ctxbench(["s3", "serve", "--server", "minio"]).env("CTXBENCH_MINIO", &not_a_server).output().unwrap();
    let ended = "MinIO ended before it was ready (exit status: 3)";
    has(&stderr(&output), &[ended, "no licence to serve"]);

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for more in [&[][..], &["--rtt", "1"]] {
        let mut arguments = vec!["s3", "serve", "--server", "embedded", "--port", &port];
        arguments.extend(more);
        let said = stderr(&run(arguments));
        has(&said, &[&port, "in use"]);
    }
}

#[test]
fn a_round_trip_time_is_added_to_each_request() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = serve("embedded", &["--rtt", "150"]);
    assert_eq!(server.announcement.rtt_ms, 150.0);
    let client = server.client();
    let took = runtime.block_on(async {
        put(&client, "far", b"away").await.unwrap();
        let mut least = Duration::MAX;
        // On a busy machine some take longer, on no machine all of them.
        for _ in 0..100 {
            let begun = Instant::now();
            get(&client, "far").await.unwrap();
            least = least.min(begun.elapsed());
            if least < Duration::from_millis(300) {
                break;
            }
        }
        least
    });
    assert!(took >= Duration::from_millis(150), "{took:?}");
    assert!(took < Duration::from_millis(300), "added twice: {took:?}");
}
