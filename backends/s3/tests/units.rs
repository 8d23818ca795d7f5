//! Parts of the crate that need no server: text, configuration, encryption, signatures, and what the mirror holds.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use jiff::Timestamp;
use proptest::prelude::*;
use reqwest::{Method, Request};
use s3::bucket::is_this_machine;
use s3::config::{MirrorMode, Secret, check_name, seal_key};
use s3::credentials::{AccessKey, Credentials};
use s3::mirror::{MirrorIndex, Origin, escape, files, origin, plan, unescape};
use s3::seal::{Seal, SealError};
use s3::signature::sign;
use s3::text::{is_journal, journal_base, merge};
use s3::tree::{
    Attributes, Body, CHUNK, Changes, Chunk, Content, FILE_MAX, Hash, Name, Node, NodeId, Place, ROOT, Tree,
};

fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
    merge(Some(base.as_bytes()), ours.as_bytes(), theirs.as_bytes(), false)
        .map(|bytes| String::from_utf8(bytes).unwrap())
}

#[test]
fn two_writers_that_append_keep_every_line_once() {
    let both = merged("a\n", "a\nours\n", "a\ntheirs\n");
    assert_eq!(both.as_deref(), Some("a\ntheirs\nours\n"));
    assert_eq!(merged("", "x\n", "y\n").as_deref(), Some("y\nx\n"));
    // A line that both append appears twice: neither writer loses one.
    assert_eq!(merged("", "x\n", "x\nx\n").as_deref(), Some("x\nx\nx\n"));
    assert_eq!(merged("a\n", "a\nb", "a\nc").as_deref(), Some("a\nc\nb"));
    // Latin-1, say.
    let both = merge(Some(b"\xfc\n"), b"\xfc\n\xe4\n", b"\xfc\n\xf6\n", false);
    assert_eq!(both.as_deref(), Some(&b"\xfc\n\xf6\n\xe4\n"[..]));
}

#[test]
fn two_journals_that_were_made_at_once_become_one() {
    let both = |ours: &str, theirs: &str| {
        let base = journal_base(ours.as_bytes(), theirs.as_bytes());
        merged(std::str::from_utf8(base).unwrap(), ours, theirs).unwrap()
    };
    assert_eq!(both("a\n", "b\n"), "b\na\n");
    assert_eq!(both("# Log\na\n", "# Log\nb"), "# Log\nb\na\n");
    assert_eq!(both("", "b\n"), "b\n");
    assert_eq!(both("a", "a\nb\n"), "a\nb\na");
    for name in ["run.LOG", "events.jsonl", "x.ndjson", "notes.txt", "2026-11-24.md", "Journal.md", "log"] {
        assert!(is_journal(name.as_bytes()), "{name}");
    }
    for name in ["plan.md", "2026-13-01.md", "main.rs", "blog", ".md", "log.db"] {
        assert!(!is_journal(name.as_bytes()), "{name}");
    }
    assert!(!is_journal(b"\xff.log"));
}

#[test]
fn edits_of_different_lines_are_merged_and_others_are_not() {
    let base = "1\n2\n3\n4\n5\n6\n7\n8\n";
    let both = merged(base, &base.replace('2', "two"), &base.replace('7', "seven"));
    assert_eq!(both.unwrap(), base.replace('2', "two").replace('7', "seven"));
    assert_eq!(merged(base, &base.replace('2', "a"), &base.replace('2', "b")), None);
    assert_eq!(merge(Some(&[0, 1]), &[0, 2], &[0, 3], false), None);
    assert_eq!(merge(Some(&[]), &[0xff, 2], &[0xff, 3], false), None);
    assert_eq!(merge(None, b"a", b"b", false), None);
}

#[test]
fn a_state_of_the_same_working_copy_is_not_taken_for_another_writers() {
    let merged = merge(Some(b"a\n"), b"a\nb\nc\n", b"a\nb\n", true);
    assert_eq!(merged.as_deref(), Some(b"a\nb\nc\n".as_slice()));
    let merged = merge(Some(b"a\n"), b"a\nb\n", b"a\nb\nc\n", true);
    assert_eq!(merged.as_deref(), Some(b"a\nb\nc\n".as_slice()));
    let merged = merge(Some(b"a\n"), b"a\nb\nc\n", b"a\nb\nd\n", true);
    assert_eq!(merged.as_deref(), Some(b"a\nb\nd\nc\n".as_slice()));
}

#[test]
fn an_access_key_comes_from_the_environment_before_a_profile() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let text = "[default]\naws_access_key_id = a\n# no\naws_secret_access_key = b\n\
                [other]\naws_access_key_id=c\naws_secret_access_key=d=\naws_session_token=e\n";
    std::fs::write(&file, text).unwrap();
    let path = file.display().to_string();
    let from = |pairs: &[(&str, &str)]| {
        let value = |name: &str| pairs.iter().find(|(key, _)| *key == name);
        Credentials::find("x", "us-east-1", &|name| value(name).map(|(_, value)| (*value).to_owned())).map(|found| {
            let Credentials::Key(key) = found else { panic!("{found:?}") };
            key
        })
    };
    let file = ("AWS_SHARED_CREDENTIALS_FILE", path.as_str());
    let both = from(&[("AWS_ACCESS_KEY_ID", "E"), ("AWS_SECRET_ACCESS_KEY", "S"), file]);
    assert_eq!(both.unwrap().id, "E");
    let profile = from(&[file]).unwrap();
    assert_eq!((profile.id.as_str(), profile.secret.0.as_str()), ("a", "b"));
    let other = from(&[file, ("AWS_PROFILE", "other")]).unwrap();
    assert_eq!(other.secret.0, "d=");
    let shown = format!("{other:?}");
    assert!(!shown.contains("d="), "a secret is never shown");
    let nothing = [("HOME", "/nonexistent"), ("AWS_EC2_METADATA_DISABLED", "true")];
    let none = from(&nothing).unwrap_err().to_string();
    assert!(none.contains("AWS_ACCESS_KEY_ID"), "{none}");
}

#[test]
fn names_and_seal_keys_are_checked() {
    assert!(check_name("agent", "alice-1.x@host").is_ok());
    for bad in ["", "a/b", ".hidden", "a b", &"x".repeat(65)] {
        assert!(check_name("agent", bad).is_err(), "{bad:?}");
    }
    assert_eq!(seal_key(&"0f".repeat(32), "x").unwrap(), Secret([15; 32]));
    let odd = "0f".repeat(31) + "0";
    for bad in ["secret", &"0f".repeat(33), &"+f".repeat(32), &odd] {
        let wrong = seal_key(bad, "KEY").unwrap_err().to_string();
        assert!(wrong.contains("KEY") && !wrong.contains("secret"));
    }
}

#[test]
fn an_object_opens_only_with_its_key_under_its_name_and_unchanged() {
    let seal = Seal::new(&[1; 32]);
    for length in [0, 1, 200_000] {
        let content: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
        let object = seal.seal("log/1", &content).unwrap();
        assert_eq!(seal.open("log/1", object.clone()).unwrap(), content);
        assert_eq!(seal.open("log/2", object.clone()), Err(SealError::Closed));
        let other = Seal::new(&[2; 32]);
        assert_eq!(other.open("log/1", object.clone()), Err(SealError::Closed));
        for at in [8, object.len() / 2, object.len() - 1] {
            let mut damaged = object.to_vec();
            damaged[at] ^= 1;
            assert_eq!(seal.open("log/1", damaged.into()), Err(SealError::Closed));
        }
        let cut = object.slice(..object.len() - 1);
        assert_eq!(seal.open("log/1", cut), Err(SealError::Closed));
        assert_ne!(object, seal.seal("log/1", &content).unwrap(), "random nonce");
    }
    let plain = Bytes::from_static(b"ctxlog\0\x01");
    assert_eq!(seal.open("log/1", plain), Err(SealError::Plain));
    let short = Bytes::from_static(b"ctxseal\x01");
    assert_eq!(seal.open("log/1", short), Err(SealError::Closed));
}

#[test]
fn the_name_of_a_blob_does_not_tell_its_digest() {
    let (seal, hash) = (Seal::new(&[1; 32]), Hash::of(b"x"));
    assert_eq!(seal.blob_name(hash), seal.blob_name(hash));
    assert_ne!(seal.blob_name(hash), hash.to_string());
    assert_ne!(seal.blob_name(hash), Seal::new(&[2; 32]).blob_name(hash));
}

fn tree(files: &[(&str, &str)]) -> Tree {
    let mut changes = Changes::default();
    for (at, (name, content)) in files.iter().enumerate() {
        let id = NodeId { writer: 1, ino: 2 + at as u64 };
        let node = Node { body: Body::File(Content::local(content.as_bytes())), attributes: Attributes::default() };
        changes.nodes.insert(id, node);
        changes.names.insert((ROOT, Name(name.as_bytes().to_vec())), Some(id));
    }
    Tree::of(&changes).unwrap()
}

proptest! {
    #[test]
    fn every_name_comes_back_from_its_key(name in prop::collection::vec(any::<u8>(), 1..64)) {
        let key = escape(&name);
        prop_assert!(key.bytes().all(|byte| byte >= 0x20 && byte != 0x7f && byte != b'\\'));
        prop_assert_eq!(unescape(&key), name);
    }
}

#[test]
fn keys_are_readable_and_never_those_of_logs() {
    assert_eq!(escape("Grüße: 100%.md".as_bytes()), "Grüße: 100%25.md");
    assert_eq!(escape(b".ctx"), "%2Ectx");
    assert_eq!(unescape("%2Ectx"), b".ctx");
    assert_eq!(unescape("50% off %+f"), b"50% off %+f");
}

#[test]
fn a_plan_writes_what_changed_and_deletes_what_is_gone() {
    let old = tree(&[("a.md", "1"), ("b.md", "2"), ("c.txt", "3")]);
    let new = tree(&[("a.md", "1"), ("d.MD", "2"), ("c.txt", "4")]);
    let plan_of = |mode| -> Vec<(String, bool)> {
        let plan = plan(&MirrorIndex::from(&files(&old, mode)), &files(&new, mode));
        let is_written = |(key, file): (String, Option<_>)| (key, file.is_some());
        plan.into_iter().map(is_written).collect()
    };
    let expected = |changes: &[(&str, bool)]| -> Vec<(String, bool)> {
        let owned = |(key, is_written): &(&str, bool)| ((*key).to_owned(), *is_written);
        changes.iter().map(owned).collect()
    };
    let markdown = [("b.md", false), ("d.MD", true)];
    assert_eq!(plan_of(MirrorMode::Markdown), expected(&markdown));
    let all = [("b.md", false), ("c.txt", true), ("d.MD", true)];
    assert_eq!(plan_of(MirrorMode::All), expected(&all));
    assert!(plan_of(MirrorMode::Off).is_empty());
}

#[test]
fn an_object_of_ours_is_told_from_one_that_another_tool_wrote() {
    let tree = tree(&[("a.md", "hello")]);
    let file = &files(&tree, MirrorMode::All)["a.md"];
    let object = file.object(Bytes::from_static(b"hello"), 7);
    let text = String::from_utf8(object.to_vec()).unwrap();
    assert!(text.contains("version: 7\n  modified: \"1970-01-01T00:00:00"), "{text}");
    let nothing = BTreeMap::new();
    let ours = Origin::Ours(Hash::of(b"hello"));
    assert_eq!(origin("a.md", &object, &nothing), ours);
    let edited = Bytes::from(text.replace("hello", "hello you"));
    let found = origin("a.md", &edited, &nothing);
    let Origin::Foreign { content, base: Some((7, digest)) } = found else {
        panic!("{found:?}");
    };
    assert_eq!(content, "hello you");
    assert_eq!(digest, file.digest().to_string());
    // Other front matter is content.
    for other in ["---\ntitle: x\n---\n", "---\nctxbench:\n  version: 1\n---\n", ""] {
        let body = Bytes::from(other);
        let content = body.clone();
        let found = origin("a.md", &body, &nothing);
        assert_eq!(found, Origin::Foreign { content, base: None });
    }
    let body = Bytes::from_static(b"data");
    let claimed = |digest: Hash| {
        let pairs = [("ctx-commit", "3".to_owned()), ("ctx-sha256", digest.to_string())];
        BTreeMap::from(pairs.map(|(name, value)| (name.to_owned(), value)))
    };
    let digest = Hash::of(b"data");
    assert_eq!(origin("x.bin", &body, &claimed(digest)), Origin::Ours(digest));
    // A tool that kept the metadata of the object it overwrote.
    let kept = origin("x.bin", &body, &claimed(Hash::of(b"old")));
    assert!(matches!(kept, Origin::Foreign { base: Some((3, _)), .. }), "{kept:?}");
}

/// A tree of one file with holes of these lengths.
fn with_holes(size: u64, lengths: &[u32]) -> Changes {
    let id = NodeId { writer: 1, ino: 2 };
    let chunk = |length: &u32| Chunk { hash: Hash::default(), length: *length, place: Place::Hole };
    let content = Content { size, chunks: lengths.iter().map(chunk).collect() };
    let node = Node { body: Body::File(content), attributes: Attributes::default() };
    Changes { nodes: BTreeMap::from([(id, node)]), names: BTreeMap::from([((ROOT, Name(b"f".to_vec())), Some(id))]) }
}

#[test]
fn a_log_cannot_state_lengths_that_no_file_has() {
    let full = CHUNK as u32;
    for (size, lengths) in [(0, &[][..]), (1, &[1]), (CHUNK + 1, &[full, 1])] {
        assert!(Tree::of(&with_holes(size, lengths)).is_ok(), "{lengths:?}");
    }
    let longest = vec![full; (FILE_MAX / CHUNK) as usize];
    assert!(Tree::of(&with_holes(FILE_MAX, &longest)).is_ok());
    for (size, lengths) in [
        (u64::from(u32::MAX), vec![u32::MAX]),
        (CHUNK + 1, vec![full + 1]),
        (0, vec![0]),
        (2, vec![1]),
        (1 << 45, vec![full]),
        (u64::MAX, vec![]),
        (FILE_MAX + 1, [&longest[..], &[1]].concat()),
    ] {
        assert!(Tree::of(&with_holes(size, &lengths)).is_err(), "{size}");
    }
}

#[test]
fn only_names_below_localhost_are_always_this_machine() {
    for here in ["ctxbench.localhost", "a.b.LOCALHOST", "x.localhost."] {
        assert!(is_this_machine(here), "{here}");
    }
    // The system knows `localhost` itself.
    for elsewhere in ["localhost", "notlocalhost", "localhost.example.com"] {
        assert!(!is_this_machine(elsewhere), "{elsewhere}");
    }
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = std::fs::read_dir(sources).unwrap().map(|file| file.unwrap());
    let modules = files.map(|file| {
        let text = std::fs::read_to_string(file.path()).unwrap();
        let names = text.split("crate::").skip(1).map(|rest| {
            let end = rest.find(|char: char| !char.is_ascii_lowercase() && char != '_');
            rest[..end.unwrap_or(rest.len())].to_owned()
        });
        let path = file.path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, names.collect::<BTreeSet<String>>())
    });
    let mut modules: BTreeMap<String, BTreeSet<String>> = modules.collect();
    assert!(modules.len() > 15, "{modules:?}");
    while !modules.is_empty() {
        let free = modules.iter().find(|(_, uses)| uses.iter().all(|it| !modules.contains_key(it)));
        let free = free.map(|(name, _)| name.clone());
        modules.remove(&free.unwrap_or_else(|| panic!("a circle in {modules:?}")));
    }
}

/// The access key of AWS's examples.
fn example_key(token: Option<&str>) -> AccessKey {
    AccessKey {
        id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
        secret: Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned()),
        token: token.map(|token| Secret(token.to_owned())),
        source: "the test".to_owned(),
    }
}

fn signed(method: Method, url: &str, headers: &[(&'static str, &str)], body: &str) -> String {
    let mut request = Request::new(method, url.parse().unwrap());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let now: Timestamp = "2013-05-24T00:00:00Z".parse().unwrap();
    let digest = Hash::of(body.as_bytes());
    sign(&mut request, &digest, &example_key(None), "us-east-1", now).unwrap();
    request.headers()["authorization"].to_str().unwrap().to_owned()
}

#[test]
fn requests_are_signed_as_in_the_examples_of_aws() {
    // https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    let host = "https://examplebucket.s3.amazonaws.com";
    let stored = [("date", "Fri, 24 May 2013 00:00:00 GMT"), ("x-amz-storage-class", "REDUCED_REDUNDANCY")];
    let welcome = "Welcome to Amazon S3.";
    for (method, path, headers, body, names, signature) in [
        (
            Method::GET,
            "/test.txt",
            &[("range", "bytes=0-9")][..],
            "",
            "host;range;x-amz-content-sha256;x-amz-date",
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            Method::PUT,
            "/test%24file.text",
            &stored,
            welcome,
            "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            Method::GET,
            "/?lifecycle",
            &[],
            "",
            "host;x-amz-content-sha256;x-amz-date",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            Method::GET,
            "/?max-keys=2&prefix=J",
            &[],
            "",
            "host;x-amz-content-sha256;x-amz-date",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let scope = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
        let expected = format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={signature}");
        let url = format!("{host}{path}");
        assert_eq!(signed(method, &url, headers, body), expected, "{path}");
    }
    // The order of a query and the length do not change the signature.
    let one = signed(Method::GET, &format!("{host}/?prefix=J&max-keys=2"), &[], "");
    let other = signed(Method::GET, &format!("{host}/?max-keys=2&prefix=J"), &[("content-length", "0")], "");
    assert_eq!(one, other);
}

#[test]
fn a_token_is_sent_signed_and_never_shown() {
    let url = "https://examplebucket.s3.amazonaws.com/test.txt";
    let mut request = Request::new(Method::GET, url.parse().unwrap());
    let key = example_key(Some("a-session-token"));
    let digest = Hash::of(b"");
    sign(&mut request, &digest, &key, "us-east-1", Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(request.headers()["x-amz-security-token"], "a-session-token");
    let authorization = request.headers()["authorization"].to_str().unwrap();
    let names = "host;x-amz-content-sha256;x-amz-date;x-amz-security-token";
    assert!(authorization.contains(&format!("SignedHeaders={names},")));
    let shown = format!("{:?}", request.headers());
    for secret in ["a-session-token", "Signature="] {
        assert!(!shown.contains(secret), "{shown}");
    }
}
