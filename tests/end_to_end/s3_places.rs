//! The `s3` file system with the keys of a role.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Mount, Server, Succeeds, ctxbench, lacks, mountable};

/// The agent of a container's host: gives the keys of a server for a few seconds each, and counts how often.
fn key_agent(server: &Server, seconds: i64) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/key", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let (id, secret) = (server.announcement.access_key.clone(), server.announcement.secret_key.clone());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            head.take_while(|line| !line.is_empty()).for_each(drop);
            counted.fetch_add(1, Ordering::Relaxed);
            let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            let body = serde_json::json!({
                "AccessKeyId": id, "SecretAccessKey": secret, "Token": "of-a-role", "Expiration": end.to_string(),
            });
            let body = body.to_string();
            let _ =
                write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    (address, asked)
}

#[test]
fn a_mount_renews_the_key_of_a_role_before_it_expires() {
    let Some(scratch) = mountable() else { return };
    let server = Server::start(&scratch.dir("server"), &["--server", "embedded"]);
    let (agent, asked) = key_agent(&server, 6);
    let dir = scratch.dir("mount");
    let mut command = server.command(&["mount", "s3", "--agent-id", "alice", "--poll", "100", "--cache"]);
    command.arg(scratch.path().join("cache.db")).arg(&dir);
    command.env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nonexistent");
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &agent);
    let mount = Mount::of(command, &dir);
    for round in 0..10 {
        fs::write(dir.join("note.md"), format!("{round}\n")).unwrap();
        ctxbench(["s3", "sync"]).arg(&dir).succeeds();
        std::thread::sleep(Duration::from_secs(1));
    }
    let times = asked.load(Ordering::Relaxed);
    assert!((3..20).contains(&times), "{times} keys for ten seconds");
    let log = mount.end_with_log();
    lacks(&log, &[&server.announcement.secret_key, "of-a-role", "WARN"]);
}
