//! What else is in a bucket than what a mount shows: front matter, the audit log, and objects that other tools have put
//! there, which are readable where they can be, listed by `check`, and never lost.

use crate::common;
use crate::s3;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use backends::s3::{S3Config, S3Store, check};
use backends::store::{Kind, ROOT, Store};
use common::*;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt, PutOptions, PutPayload};
use s3::{
    Machines, agent, bucket, config, now, object_of, put_object, service, text, text_in, write,
    write_in,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new_with_prefix(pad(0x36)).chain_update(message);
    let outer = Sha256::new_with_prefix(pad(0x5c)).chain_update(inner.finalize());
    outer.finalize().to_vec()
}

/// Sends a request for a key as it is: every client tidies `//` and `..` away. Status and body.
fn raw(method: &str, key: &str, body: &str) -> (u16, String) {
    let access = &service().access;
    let host = access.endpoint.strip_prefix("http://").unwrap();
    let path = format!("/{}/{key}", servers::BUCKET);
    let at = jiff::Timestamp::now();
    let at = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &at[..8];
    let scope = format!("{day}/{}/s3/aws4_request", access.region);
    let payload = "UNSIGNED-PAYLOAD";
    let names = "host;x-amz-content-sha256;x-amz-date";
    let canonical = format!(
        "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{payload}\nx-amz-date:{at}\n\n{names}\n{payload}"
    );
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}");
    let secret = format!("AWS4{}", access.secret_key);
    let steps = [day, &access.region, "s3", "aws4_request", &to_sign];
    let signature = steps
        .iter()
        .fold(secret.into_bytes(), |key, step| hmac(&key, step.as_bytes()));
    let signature = hex(&signature);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {host}\r\nx-amz-date: {at}\r\nx-amz-content-sha256: {payload}\r\nauthorization: AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        access.access_key,
        body.len()
    );
    let mut stream = TcpStream::connect(host).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

fn put_raw(key: &str, body: &str) {
    let (status, answer) = raw("PUT", key, body);
    assert_eq!(status, 200, "{answer}");
}

/// Waits until others have been told of what went up.
fn told(store: &S3Store) {
    for _ in 0..2000 {
        if store.counters()["s3_untold"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nobody is told");
}

#[test]
fn front_matter_is_shown_where_that_is_asked_for() {
    let (machines, agent) = (Machines::new(), agent());
    let visible = |writer: &str| S3Config {
        front_matter_visible: true,
        ..config(&agent, writer)
    };
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "note.md", b"hello");
    write(&a, "data.bin", b"data");
    let large = "0123456789abcdef".repeat(6 << 16);
    write(&a, "large.md", large.as_bytes());
    a.upload().unwrap();

    let shown = machines.mount(visible("viewer"));
    let object = String::from_utf8(object_of(&agent, "note.md").unwrap()).unwrap();
    assert!(object.starts_with("---\nctxbench:\n  version: 1\n  writer: alice\n"));
    assert_eq!(text(&shown, "note.md"), object);
    assert_eq!(text(&shown, "data.bin"), "data");
    let large_object = object_of(&agent, "large.md").unwrap();
    assert!(text(&shown, "large.md").as_bytes() == large_object);
    assert!(large_object.ends_with(large.as_bytes()) && large_object.len() > large.len());

    // What others change is shown as it is then.
    write(&a, "note.md", b"hello again");
    a.upload().unwrap();
    shown.pull().unwrap();
    let again = text(&shown, "note.md");
    assert!(again.contains("  version: 2\n") && again.ends_with("---\nhello again"));
    // A rename copies nothing into the content.
    let replace = backends::store::RenameMode::Replace;
    for (from, to) in [
        (&b"large.md"[..], &b"renamed.md"[..]),
        (b"note.md", b"small.md"),
    ] {
        shown
            .rename(&now(), (ROOT, from), (ROOT, to), replace)
            .unwrap();
    }
    shown.upload().unwrap();
    // What is written there is the whole object.
    write(&shown, "note.md", b"mine");
    shown.upload().unwrap();
    assert_eq!(object_of(&agent, "note.md").unwrap(), b"mine");
    let hidden = machines.mount(config(&agent, "bob"));
    assert_eq!(text(&hidden, "note.md"), "mine");
    assert!(text(&hidden, "renamed.md") == large);
    assert_eq!(text(&hidden, "small.md"), "hello again");
    let checked = check(&config(&agent, "c")).unwrap();
    assert_eq!(checked.problems, Vec::<String>::new());
}

/// Everything that is in an agent's audit log, by key.
fn audit_log(agent: &str) -> BTreeMap<String, String> {
    use futures::TryStreamExt;
    let prefix = Key::from(format!("ctx/{agent}/audit"));
    service().runtime.block_on(async {
        let bucket = bucket();
        let listed: Vec<_> = bucket.list(Some(&prefix)).try_collect().await.unwrap();
        let mut log = BTreeMap::new();
        for object in listed {
            let body = bucket.get(&object.location).await.unwrap();
            let body = body.bytes().await.unwrap().to_vec();
            let text = String::from_utf8(body).unwrap();
            log.insert(object.location.to_string(), text);
        }
        log
    })
}

#[test]
fn the_audit_log_says_who_wrote_and_deleted_what() {
    let (machines, agent) = (Machines::new(), agent());
    let begun = jiff::Timestamp::now();
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "plan.md", b"one");
    write(&a, "gone", b"x");
    a.upload().unwrap();
    told(&a);
    let first = audit_log(&agent);
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "plan.md", b"two");
    b.unlink(&now(), ROOT, b"gone").unwrap();
    b.upload().unwrap();
    told(&b);
    let log = audit_log(&agent);
    for (key, lines) in &first {
        assert_eq!(log.get(key), Some(lines), "nothing is changed again");
    }
    let mut said = Vec::new();
    for (key, lines) in &log {
        for line in lines.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let at: jiff::Timestamp = line["at"].as_str().unwrap().parse().unwrap();
            assert!(begun <= at && at <= jiff::Timestamp::now(), "{line}");
            let text = |field: &str| line[field].as_str().unwrap().to_owned();
            let below = format!("ctx/{agent}/audit/{}/", text("writer"));
            assert!(key.starts_with(&below), "{key} holds {line}");
            said.push((
                text("writer"),
                text("what"),
                text("key"),
                line["version"].as_u64().unwrap(),
                text("sha256"),
            ));
        }
    }
    said.sort();
    let line = |writer: &str, what: &str, key: &str, version: u64, content: &str| {
        let sha256 = match what {
            "write" => hex(&Sha256::digest(content.as_bytes())),
            _ => String::new(),
        };
        let (writer, what) = (writer.to_owned(), what.to_owned());
        (writer, what, key.to_owned(), version, sha256)
    };
    assert_eq!(
        said,
        [
            line("alice", "write", "gone", 1, "x"),
            line("alice", "write", "plan.md", 1, "one"),
            line("bob", "delete", "gone", 1, ""),
            line("bob", "write", "plan.md", 2, "two"),
        ]
    );
}

#[test]
fn keys_that_are_no_path_are_listed_and_stay() {
    let (machines, agent) = (Machines::new(), agent());
    let odd = [
        "/double",
        "dir//deep",
        "../up.md",
        "dir/../side",
        "dir/./here",
    ];
    let odd = odd.map(|key| format!("agents/{agent}/{key}"));
    for key in &odd {
        put_raw(key, key);
    }
    put_object(&format!("agents/{agent}/fine.md"), b"fine");
    let a = machines.mount(config(&agent, "alice"));
    assert_eq!(names(&a, ROOT), ["fine.md"]);
    assert_eq!(text(&a, "fine.md"), "fine");
    // They make no look at the bucket dearer.
    let requests = |kind: &str| a.counters()[kind];
    let before = ["s3_list", "s3_get", "s3_head"].map(requests);
    a.pull().unwrap();
    let after = ["s3_list", "s3_get", "s3_head"].map(requests);
    assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), [1, 1, 0]);
    // Whatever is done beside them.
    let dir = create(&a, ROOT, "dir", Kind::Directory).ino;
    write_in(&a, dir, "deep", b"ours");
    write(&a, "double", b"ours");
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"double").unwrap();
    a.unlink(&now(), dir, b"deep").unwrap();
    a.rmdir(&now(), ROOT, b"dir").unwrap();
    a.unlink(&now(), ROOT, b"fine.md").unwrap();
    a.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(names(&a, ROOT), Vec::<String>::new());
    for key in &odd {
        assert_eq!(raw("GET", key, ""), (200, key.clone()));
    }
    let checked = check(&config(&agent, "c")).unwrap();
    let expected = odd.map(|key| format!("{key} is no path: it is not shown in a mount"));
    let mut problems = checked.problems;
    problems.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(problems, expected);
}

#[test]
fn a_file_and_a_directory_of_one_name_both_stay() {
    let (machines, agent) = (Machines::new(), agent());
    let (file, below) = (format!("agents/{agent}/a"), format!("agents/{agent}/a/b"));
    put_object(&below, b"below");
    let a = machines.mount(config(&agent, "alice"));
    put_object(&file, b"file");
    a.pull().unwrap();
    // What was there first is shown.
    let dir = a.lookup(ROOT, b"a").unwrap();
    assert_eq!(dir.kind, Kind::Directory);
    assert_eq!(text_in(&a, dir.ino, "b"), "below");
    let checked = check(&config(&agent, "c")).unwrap();
    assert_eq!(
        checked.problems,
        [format!(
            "{file} is an object, and a directory of others: only one of them is shown in a mount"
        )]
    );
    assert_eq!(checked.foreign, [file.clone(), below.clone()]);
    // A host that comes later shows one of them, and nothing of the other is lost.
    let b = machines.mount(config(&agent, "bob"));
    match b.lookup(ROOT, b"a").unwrap() {
        dir if dir.kind == Kind::Directory => assert_eq!(text_in(&b, dir.ino, "b"), "below"),
        _ => assert_eq!(text(&b, "a"), "file"),
    }
    write_in(&a, dir.ino, "b", b"changed");
    a.upload().unwrap();
    assert_eq!(object_of(&agent, "a").unwrap(), b"file");
    assert_eq!(object_of(&agent, "a/b").unwrap(), b"changed");
    // When the one is gone, the other can be seen.
    a.unlink(&now(), dir.ino, b"b").unwrap();
    a.rmdir(&now(), ROOT, b"a").unwrap();
    a.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, "a"), "file");
}

#[test]
fn content_that_another_tool_has_changed_is_shown_and_listed() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "same-length", b"ours");
    write(&a, "longer", b"ours");
    a.upload().unwrap();
    // A tool that keeps what the metadata says.
    service().runtime.block_on(async {
        let bucket = bucket();
        for (name, body) in [("same-length", "OURS"), ("longer", "and theirs")] {
            let key = Key::from(format!("agents/{agent}/{name}"));
            let got = bucket.get(&key).await.unwrap();
            let options = PutOptions {
                attributes: got.attributes.clone(),
                ..PutOptions::default()
            };
            let body = PutPayload::from_static(body.as_bytes());
            bucket.put_opts(&key, body, options).await.unwrap();
        }
    });
    a.pull().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    for store in [&a, &b] {
        assert_eq!(text(store, "same-length"), "OURS");
        assert_eq!(text(store, "longer"), "and theirs");
        assert_eq!(names(store, ROOT), ["longer", "same-length"]);
    }
    let checked = check(&config(&agent, "c")).unwrap();
    let wrong = ["longer", "same-length"].map(|name| {
        format!(
            "agents/{agent}/{name} has a wrong checksum: it was changed by another tool, or damaged"
        )
    });
    assert_eq!(checked.problems, wrong);
    // What a mount puts in its place keeps what was there.
    write(&a, "same-length", b"again");
    a.upload().unwrap();
    let ino = a.lookup(ROOT, b"same-length").unwrap().ino;
    assert_eq!(a.getxattr(ino, b"user.ctx.version.1").unwrap(), b"OURS");
}
