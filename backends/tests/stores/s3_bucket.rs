//! The store on an unexpected bucket: wrong addresses, other logs, emptied buckets, seals, other servers.
//! Also the store with a damaged cache.

use crate::common::*;
use crate::hosts::*;

use std::collections::BTreeMap;

use fuse::store::{Errno, Kind, ROOT, RenameMode, Store};
use s3::config::S3Config;
use s3_store::{OpenOptions, S3Store};
use servers::Quirk;
use sqlite::SqliteStore;

const REFILL: OpenOptions = OpenOptions { allow_offline: false, refill_bucket: true, rebuild_cache: false };

const REBUILD: OpenOptions = OpenOptions { allow_offline: false, refill_bucket: false, rebuild_cache: true };

/// Why a mount is refused: one line, and what to do.
fn refusal(memory: &Memory, config: S3Config, options: OpenOptions) -> String {
    let told = memory.open(config, options).unwrap_err().to_string();
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines.len() == 1 || (lines.len() == 2 && lines[1].starts_with("  fix: ")), "{told}");
    told
}

#[test]
fn an_unusable_bucket_is_reported_before_anything_is_mounted() {
    let memory = Memory::new();
    let good = || memory.config("a");
    let at = |endpoint: &str| S3Config { endpoint: endpoint.to_owned(), ..good() };
    let mut cases = [
        (at("http://127.0.0.1:9"), "does not answer"),
        (at("localhost:9000"), "not an http or https address"),
        (good(), "no bucket nothing-here"),
        (good(), "refuses the access key from the test"),
        (good(), "leave out --virtual-host"),
    ];
    cases[2].0.bucket = "nothing-here".to_owned();
    cases[3].0.credentials = credentials(&memory.access.access_key, "not-the-secret");
    cases[4].0.path_style = false;
    for (config, reason) in cases {
        let told = refusal(&memory, config, OpenOptions::default());
        has(&told, &[reason]);
        lacks(&told, &["not-the-secret"]);
        assert!(!memory.cache("a").exists(), "nothing is left behind");
    }
}

#[test]
fn the_cache_of_another_memory_is_refused() {
    let (memory, other) = (Memory::new(), Memory::new());
    write(&memory.mount("a"), "file", b"1");
    let open = |config: S3Config| {
        let cache = memory.cache("a");
        let opened = S3Store::open(config, &cache, &caller(1), OpenOptions::default());
        opened.map(drop).map_err(|error| error.to_string())
    };
    for config in [other.config("a"), memory.sealed("a", 7)] {
        has(&open(config).unwrap_err(), &["is the cache of"]);
    }
    open(memory.config("a")).unwrap();
    let sqlite = SqliteStore::open(&memory.cache("sqlite"), &caller(1)).unwrap();
    create(&sqlite, ROOT, "file", Kind::File);
    drop(sqlite);
    let told = refusal(&memory, memory.config("sqlite"), OpenOptions::default());
    has(&told, &["not the cache of a bucket"]);
}

/// A change of a bucket that the hosts do not make.
type Disaster = (&'static str, fn(&mut BTreeMap<String, Vec<u8>>), &'static str);

const DISASTERS: [Disaster; 3] = [
    ("emptied", BTreeMap::clear, "is missing"),
    (
        "rolled back",
        |objects| {
            let last = objects.keys().rfind(|key| key.contains("/log/")).cloned();
            objects.remove(&last.unwrap());
            objects.retain(|key, _| !key.contains("/checkpoint/"));
        },
        "is missing",
    ),
    (
        "replaced",
        |objects| {
            objects.retain(|key, _| !key.contains("/checkpoint/"));
            for (key, object) in objects.iter_mut() {
                if key.contains("/log/") {
                    object.insert(8, b'x');
                }
            }
        },
        "differs from the one that this cache knows",
    ),
];

#[test]
fn a_bucket_that_was_emptied_or_rolled_back_stops_everything_and_can_be_filled_again() {
    for (what, disaster, expected) in &DISASTERS[..2] {
        let memory = Memory::new();
        let (a, b) = (memory.mount("a"), memory.mount("b"));
        let dir = mkdir(&a, ROOT, "dir");
        write_in(&a, dir, "old", b"old");
        let long = pattern(1 << 20, 1);
        write(&a, "long", &long);
        a.upload().unwrap();
        write(&a, "log", b"1\n");
        exchange(&a, &b);
        append(&a, find(&a, "log"), b"unsent of a\n");
        append(&b, find(&b, "log"), b"unsent of b\n");
        write(&b, "unsent", b"unsent");
        drop((a, b));
        let mut objects = memory.objects();
        disaster(&mut objects);
        memory.replace_objects(&objects);

        for writer in ["a", "b"] {
            let told = refusal(&memory, memory.config(writer), OpenOptions::default());
            has(&told, &[expected, "--refill-bucket", "--rebuild-cache"]);
        }
        assert_eq!(memory.objects(), objects, "{what}: nothing was written");

        let a = memory.open(memory.config("a"), REFILL).unwrap();
        a.upload().unwrap();
        assert_eq!(text(&a, "log"), "1\nunsent of a\n");
        assert_eq!(state(&memory.fresh()), state(&a), "{what}");
        is_settled(&a);
        // The next host has the same files, and changes of its own. It can read again what it had not fetched.
        let told = refusal(&memory, memory.config("b"), OpenOptions::default());
        has(&told, &["commit"]);
        let b = memory.open(memory.config("b"), REFILL).unwrap();
        exchange(&b, &a);
        assert_eq!(state(&a), state(&b), "{what}");
        assert!(bytes(&b, find(&b, "long")) == long, "{what}");
        assert_eq!(text(&b, "unsent"), "unsent");
        let logs = names(&b, ROOT).into_iter();
        let logs = logs.filter(|name| name.starts_with("log"));
        let all: String = logs.map(|name| text(&b, &name)).collect();
        has(&all, &["unsent of a\n", "unsent of b\n"]);
        memory.check();
        drop((a, b));
        for writer in ["a", "b"] {
            // Refilling what is not broken changes nothing.
            let again = memory.open(memory.config(writer), REFILL).unwrap();
            assert_eq!(spent(&again, || again.upload().unwrap()), BTreeMap::new());
        }
    }
}

#[test]
fn a_file_that_was_never_fetched_holds_up_no_other_when_its_bucket_was_emptied() {
    let memory = Memory::new();
    let a = memory.mount("a");
    write(&a, "unread", &pattern(1 << 20, 1));
    a.upload().unwrap();
    let b = memory.mount("b");
    write(&b, "own", b"own");
    drop((a, b));
    memory.replace_objects(&BTreeMap::new());
    let b = memory.open(memory.config("b"), REFILL).unwrap();
    let told = b.upload().unwrap_err().to_string();
    has(&told, &["unread"]);
    assert_eq!(try_text(&b, "unread").unwrap_err(), Errno::IO);
    assert_eq!(names(&memory.fresh(), ROOT), ["own"]);
    // Another host that has it brings it back, or it is removed.
    unlink(&b, "unread");
    b.upload().unwrap();
    is_settled(&b);
    memory.check();
}

#[test]
fn a_cache_can_be_rebuilt_from_the_bucket_and_its_unsent_changes_are_taken_over() {
    for (what, disaster, expected) in DISASTERS {
        let memory = Memory::new();
        let a = memory.mount("a");
        write(&a, "sent", b"sent");
        a.upload().unwrap();
        write(&a, "log", b"1\n");
        a.upload().unwrap();
        append(&a, find(&a, "log"), b"2\n");
        write_in(&a, mkdir(&a, ROOT, "new"), "file", b"unsent");
        drop(a);
        let mut objects = memory.objects();
        disaster(&mut objects);
        memory.replace_objects(&objects);
        if what == "replaced" {
            // Nothing can be made of it, and the cache is where it was.
            let told = refusal(&memory, memory.config("a"), REBUILD);
            assert!(!told.is_empty());
            let told = refusal(&memory, memory.config("a"), OpenOptions::default());
            has(&told, &[expected]);
            continue;
        }
        let a = memory.open(memory.config("a"), REBUILD).unwrap();
        has(&a.notes()[0], &["files with uncommitted changes were recovered"]);
        a.upload().unwrap();
        let here = match what {
            "emptied" => &["log", "new"][..],
            _ => &["log", "new", "sent"],
        };
        assert_eq!(names(&a, ROOT), here);
        assert_eq!(text(&a, "log"), "1\n2\n");
        assert_eq!(text_in(&a, find(&a, "new"), "file"), "unsent");
        assert_eq!(state(&memory.fresh()), state(&a));
        memory.check();
    }
}

#[test]
fn unsent_changes_of_a_rebuilt_cache_replace_nothing_that_others_wrote() {
    let memory = Memory::new();
    let a = memory.mount("a");
    for name in ["ours", "both", "moved"] {
        write(&a, name, b"1\n");
    }
    a.upload().unwrap();
    append(&a, find(&a, "ours"), b"unsent\n");
    append(&a, find(&a, "both"), b"unsent\n");
    rename(&a, "moved", "there", RenameMode::Replace);
    drop(a);
    let b = memory.fresh();
    append(&b, find(&b, "both"), b"of another\n");
    b.upload().unwrap();
    let a = memory.open(memory.config("a"), REBUILD).unwrap();
    a.upload().unwrap();
    assert_eq!(text(&a, "ours"), "1\nunsent\n");
    assert_eq!(text(&a, "both"), "1\nof another\n");
    assert_eq!(text(&a, "both.rescued"), "1\nunsent\n");
    assert_eq!(text(&a, "there"), "1\n");
    b.pull().unwrap();
    assert_eq!(state(&b), state(&a));
}

#[test]
fn a_damaged_cache_is_set_aside_and_uploads_nothing_wrong() {
    let memory = Memory::new();
    let a = memory.mount("a");
    write(&a, "good", b"good");
    // Long enough that its end is on a page of its own: a damaged page takes all that is on it.
    let bad = [&[b'x'; 12_000], b"a text that is damaged".as_slice()].concat();
    write(&a, "bad", &bad);
    drop(a);
    let cache = memory.cache("a");
    let mut file = std::fs::read(&cache).unwrap();
    let at = file.windows(6).position(|window| window == b"a text");
    file[at.unwrap()] = b'A';
    std::fs::write(&cache, file).unwrap();
    let a = memory.mount("a");
    assert_eq!(a.upload().unwrap_err().errno, Errno::IO);
    assert_eq!(names(&memory.fresh(), ROOT), Vec::<String>::new());
    drop(a);
    let a = memory.open(memory.config("a"), REBUILD).unwrap();
    has(&a.notes().join("\n"), &["bad could not"]);
    a.upload().unwrap();
    assert_eq!(names(&memory.fresh(), ROOT), ["good"]);
    drop(a);
    // Of this one, nothing can be read; it is kept.
    std::fs::write(&cache, b"garbage").unwrap();
    let told = refusal(&memory, memory.config("a"), OpenOptions::default());
    has(&told, &["--cache"]);
    let a = memory.open(memory.config("a"), REBUILD).unwrap();
    has(&a.notes()[0], &["nothing could be recovered"]);
    assert_eq!(text(&a, "good"), "good");
    let beside = std::fs::read_dir(cache.parent().unwrap()).unwrap();
    let kept =
        beside.filter(|entry| std::fs::read(entry.as_ref().unwrap().path()).is_ok_and(|bytes| bytes == b"garbage"));
    assert_eq!(kept.count(), 1);
}

#[test]
fn damage_in_the_bucket_is_an_error_and_no_wrong_byte() {
    let memory = Memory::new();
    let a = memory.mount("a");
    write(&a, "long", &pattern(1 << 20, 1));
    write(&a, "other", &pattern(1 << 20, 2));
    a.upload().unwrap();
    let b = memory.fresh();
    let good = memory.objects();
    let mut objects = good.clone();
    let mut blobs = objects.iter_mut();
    let blob = blobs.find(|(key, _)| key.contains("/blob/"));
    blob.unwrap().1[1000] ^= 1;
    memory.replace_objects(&objects);
    let read = ["long", "other"].map(|name| try_text(&b, name).map(drop));
    for expected in [Ok(()), Err(Errno::IO)] {
        assert!(read.contains(&expected), "{read:?}");
    }
    // A log that is damaged is refused by hosts that do not know it.
    let mut objects = good;
    let log = objects.iter_mut().rfind(|(key, _)| key.contains("/log/"));
    let (_, log) = log.unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    memory.replace_objects(&objects);
    let told = refusal(&memory, memory.config("new"), OpenOptions::default());
    has(&told, &["Log(2)"]);
}

#[test]
fn sealed_memory_shows_nothing_and_opens_with_its_key_only() {
    let memory = Memory::new();
    let a = memory.mount_as(memory.sealed("a", 7));
    let secret = b"the secret content ".repeat(10_000);
    let dir = mkdir(&a, ROOT, "secret-directory");
    write_in(&a, dir, "secret-name", &secret);
    write(&a, "secret-small", b"the secret content");
    a.upload().unwrap();
    for (key, object) in memory.objects() {
        for text in [key.as_bytes(), &object] {
            assert!(!text.windows(6).any(|window| window == b"secret"), "{key}");
        }
        // A digest would tell which memories have the same file.
        lacks(&key, &[&s3::tree::Hash::of(&secret).to_string()]);
    }
    let b = memory.mount_as(memory.sealed("b", 7));
    assert_eq!(state(&b), state(&a));
    let told = refusal(&memory, memory.sealed("c", 8), OpenOptions::default());
    has(&told, &["this key does not decrypt it"]);
    let told = refusal(&memory, memory.config("c"), OpenOptions::default());
    has(&told, &["it is encrypted"]);
    let plain = Memory::new();
    write(&plain.mount("a"), "file", b"1");
    let told = refusal(&plain, plain.sealed("b", 7), OpenOptions::default());
    has(&told, &["it is not encrypted"]);
    for memory in [&memory, &plain] {
        assert!(!memory.cache("c").exists());
    }
}

#[test]
fn a_server_that_ignores_conditions_is_mounted_read_only() {
    // The file is written while another server serves the bucket.
    let good = Memory::new();
    let a = good.mount("a");
    write(&a, "file", b"1");
    a.upload().unwrap();
    let quirky = Service::start(Quirk::IgnoresConditions);
    let mut memory = Memory::on(&quirky.access);
    memory.agent.clone_from(&good.agent);
    memory.replace_objects(&good.objects());
    for _ in 0..2 {
        let a = memory.mount("a");
        has(a.read_only().unwrap(), &["ignores If-None-Match"]);
        assert_eq!(text(&a, "file"), "1");
        let refused = a.create(&now(), ROOT, b"x", &node(Kind::File)).unwrap_err();
        assert_eq!(refused.errno, Errno::ROFS);
        has(&refused.to_string(), &["ignores If-None-Match"]);
        a.upload().unwrap();
        a.pull().unwrap();
    }
    assert_eq!(memory.objects(), good.objects());
}

#[test]
fn everything_works_under_a_policy_that_protects_logs() {
    let quirky = Service::start(Quirk::ProtectsLogs);
    let memory = Memory::on(&quirky.access);
    let a = memory.mount("a");
    write(&a, "long", &pattern(1 << 20, 1));
    for number in 0..70 {
        write(&a, "file", format!("{number}").as_bytes());
        a.upload().unwrap();
    }
    let b = memory.fresh();
    append(&b, find(&b, "file"), b"!");
    exchange(&b, &a);
    assert_eq!(text(&a, "file"), "69!");
    assert_eq!(state(&b), state(&a));
    memory.check();
}
