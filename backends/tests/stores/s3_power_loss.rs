//! The cache of a bucket after a power loss, which may take what no sync has made durable of the tails of long files.

use crate::common::*;
use crate::hosts::*;

use std::path::{Path, PathBuf};

use fuse::store::{Ino, Kind, Store};
use s3_store::{OpenOptions, S3Store};
use servers::{Operation, RequestFault, Rule, RuleFrequency};
use sqlite::{HEAD, SqliteStore, check, forget_boot};

/// A copy of the cache of `a` as a power loss leaves it, of whose tails `lose` makes what the disk has.
fn lose_power(memory: &Memory, lose: &dyn Fn(&Path)) -> PathBuf {
    let copy = memory.cache("copy");
    copy_cache(&memory.cache("a"), &copy);
    let _ = std::fs::remove_file(beside(&copy, "-sums"));
    for tail in std::fs::read_dir(beside(&copy, "-tails")).into_iter().flatten() {
        lose(&tail.unwrap().path());
    }
    forget_boot(&copy).unwrap();
    copy
}

fn beside(cache: &Path, suffix: &str) -> PathBuf {
    let mut name = cache.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn open(memory: &Memory, cache: &Path) -> S3Store {
    S3Store::open(memory.config("a"), cache, &caller(1), OpenOptions::default()).unwrap()
}

/// Leaves so much of a tail.
fn cut(tail: &Path, length: u64) {
    std::fs::File::options().write(true).open(tail).unwrap().set_len(length).unwrap();
}

/// Leaves a tail its length, and zeros from a byte on.
fn zero(tail: &Path, from: u64) {
    let length = tail.metadata().unwrap().len();
    cut(tail, from.min(length));
    cut(tail, length);
}

/// Commits, and notes the commit in the tables of the cache, which the next one does.
fn upload(store: &S3Store) {
    store.upload().unwrap();
    write(store, "marker", b"text");
    store.upload().unwrap();
    unlink(store, "marker");
    store.upload().unwrap();
}

#[test]
fn a_file_that_is_in_the_bucket_is_fetched_again_after_a_power_loss() {
    type Loss = (&'static str, fn(&Path));
    let losses: [Loss; 5] = [
        ("all", |tail| std::fs::remove_file(tail).unwrap()),
        ("the second chunk", |tail| cut(tail, 8 << 20)),
        ("all but a few bytes", |tail| cut(tail, 100)),
        ("bytes, not the length", |tail| zero(tail, 3_000)),
        ("nothing", |_| {}),
    ];
    let memory = Memory::in_directory();
    let store = memory.mount("a");
    let content = pattern(9 << 20, 7);
    let ino = write(&store, "long", &content);
    upload(&store);
    for (loss, lose) in losses {
        let copy = lose_power(&memory, &lose);
        let left = open(&memory, &copy);
        assert!(bytes(&left, ino) == content, "{loss}");
        assert!(left.counters()["s3_fetches"] > 0 || loss == "nothing", "{loss}");
        append(&left, ino, b"more");
        let longer = [&content[..], b"more"].concat();
        assert!(bytes(&left, ino) == longer, "{loss}");
        left.upload().unwrap();
        drop(left);
        assert_eq!(check(&copy).unwrap().problems, Vec::<String>::new(), "{loss}");
        let other = memory.fresh();
        assert!(bytes(&other, find(&other, "long")) == longer, "{loss}");
        // For the next loss, the bucket has the file as it was.
        resize(&other, find(&other, "long"), content.len() as u64);
        other.upload().unwrap();
        std::fs::remove_dir_all(beside(&copy, "-tails")).unwrap();
    }
}

/// Tries until `work` has made its copy of a cache before the background sync, which comes every few seconds.
fn before_a_sync(work: impl FnMut() -> bool) {
    eventually("a copy before the next sync", work);
}

fn syncs(store: &S3Store) -> u64 {
    store.counters()["tail_syncs"]
}

#[test]
fn a_change_that_was_neither_synced_nor_sent_is_all_that_a_power_loss_takes() {
    before_a_sync(|| {
        let memory = Memory::in_directory();
        let store = memory.mount("a");
        let (content, sent, unsent) = (pattern(1 << 20, 7), pattern(50_000, 8), pattern(60_000, 9));
        write(&store, "first", b"text");
        store.upload().unwrap();
        let ino = write(&store, "long", &content);
        store.fsync(ino, false).unwrap();
        let before = syncs(&store);
        append(&store, ino, &sent);
        store.upload().unwrap();
        append(&store, ino, &unsent);
        let new = write(&store, "new", &content);
        // The disk has all tables, and of the tails what is synced.
        let copy = lose_power(&memory, &|tail: &Path| {
            if tail.ends_with(new.to_string()) {
                std::fs::remove_file(tail).unwrap()
            } else {
                cut(tail, content.len() as u64 - HEAD)
            }
        });
        if syncs(&store) != before {
            return false;
        }
        assert_eq!(check(&copy).unwrap().problems, Vec::<String>::new());
        let left = open(&memory, &copy);
        assert!(bytes(&left, new) == content[..HEAD as usize]);
        let found = bytes(&left, ino);
        assert!(found == [&content[..], &sent].concat(), "{} bytes", found.len());
        left.upload().unwrap();
        let other = memory.fresh();
        assert!(bytes(&other, find(&other, "long")) == found);
        true
    });
}

#[test]
fn a_power_loss_takes_nothing_of_a_synced_change() {
    before_a_sync(|| {
        let memory = Memory::in_directory();
        let store = memory.mount("a");
        let (content, synced) = (pattern(1 << 20, 7), pattern(50_000, 8));
        let ino = write(&store, "long", &content);
        upload(&store);
        append(&store, ino, &synced);
        store.fsync(ino, false).unwrap();
        let before = syncs(&store);
        append(&store, ino, b"last");
        let all = [&content[..], &synced].concat();
        let copy = lose_power(&memory, &|tail: &Path| cut(tail, all.len() as u64 - HEAD));
        if syncs(&store) != before {
            return false;
        }
        let left = open(&memory, &copy);
        let found = bytes(&left, ino);
        assert!(found == all, "{} bytes", found.len());
        true
    });
}

#[test]
fn a_power_loss_cuts_no_file_of_a_commit_whose_answer_was_lost() {
    before_a_sync(|| {
        let memory = Memory::behind_proxy();
        let store = memory.mount("a");
        let content = pattern(1 << 20, 7);
        upload(&store);
        let before = syncs(&store);
        let ino = write(&store, "long", &content);
        let log = format!("agents/{}/.ctx/log/", memory.agent);
        memory.proxy().set(vec![
            Rule::always(RequestFault::LoseAnswer).of(&[Operation::Put]).below(&log).when(RuleFrequency::First(1)),
            Rule::always(RequestFault::Reset).of(&[Operation::Put, Operation::Get]).below(&log),
        ]);
        store.upload().unwrap_err();
        let copy = lose_power(&memory, &|tail: &Path| std::fs::remove_file(tail).unwrap());
        if syncs(&store) != before {
            return false;
        }
        memory.proxy().set(Vec::new());
        let left = open(&memory, &copy);
        assert!(bytes(&left, ino) == content);
        left.upload().unwrap();
        let other = memory.fresh();
        assert!(bytes(&other, find(&other, "long")) == content);
        true
    });
}

#[test]
fn a_power_loss_after_a_commit_that_did_not_arrive_leaves_the_synced_bytes_of_its_files() {
    before_a_sync(|| {
        let memory = Memory::behind_proxy();
        let store = memory.mount("a");
        let content = pattern(1 << 20, 7);
        let ino = write(&store, "long", &content);
        upload(&store);
        store.write(&caller(2), ino, 1 << 20, &[1; 1000]).unwrap();
        store.fsync(ino, false).unwrap();
        let log = format!("agents/{}/.ctx/log/", memory.agent);
        memory.proxy().set(vec![Rule::always(RequestFault::Reset).of(&[Operation::Put]).below(&log)]);
        store.upload().unwrap_err();
        let before = syncs(&store);
        store.write(&caller(2), ino, (1 << 20) + 1000, &[2; 1000]).unwrap();
        let copy = lose_power(&memory, &|tail: &Path| cut(tail, (1 << 20) + 1000 - HEAD));
        if syncs(&store) != before {
            return false;
        }
        // Else it would commit its last bytes, too.
        drop(store);
        memory.proxy().set(Vec::new());
        let left = open(&memory, &copy);
        assert!(bytes(&left, ino) == [&content[..], &[1; 1000]].concat());
        left.upload().unwrap();
        let other = memory.fresh();
        assert!(bytes(&other, find(&other, "long")) == bytes(&left, ino));
        true
    });
}

#[test]
fn a_changed_file_that_cannot_be_read_keeps_no_other_one_from_the_bucket() {
    let memory = Memory::in_directory();
    let (content, other) = (pattern(1 << 20, 7), memory.mount("other"));
    {
        let store = memory.mount("a");
        write(&store, "long", &content);
        upload(&store);
    }
    // Both files are changed without the bucket, and the tail of one of them is damaged.
    let ino: Ino = {
        let store = SqliteStore::open(&memory.cache("a"), &caller(1)).unwrap();
        let ino = store.lookup(fuse::store::ROOT, b"long").unwrap().ino;
        store.setattr(&caller(2), ino, &permissions(0o600)).unwrap();
        let short = create(&store, fuse::store::ROOT, "short", Kind::File).ino;
        store.write(&caller(2), short, 0, b"text").unwrap();
        ino
    };
    cut(&beside(&memory.cache("a"), "-tails").join(ino.to_string()), 100);
    let store = memory.mount("a");
    write(&store, "later", b"text");
    let failed = store.upload().unwrap_err().reason.unwrap();
    has(&failed, &["the content of long", "write these files again, or remove them"]);
    other.pull().unwrap();
    assert_eq!((text(&other, "short"), text(&other, "later")), ("text".to_owned(), "text".to_owned()));
    assert!(bytes(&other, find(&other, "long")) == content);
    // Changes of others arrive.
    write(&other, "theirs", b"text");
    other.upload().unwrap();
    store.pull().unwrap();
    assert_eq!(text(&store, "theirs"), "text");
    unlink(&store, "long");
    store.upload().unwrap();
}

#[test]
fn a_file_that_was_truncated_before_its_last_commit_is_fetched_again_after_a_power_loss() {
    before_a_sync(|| {
        let memory = Memory::in_directory();
        let store = memory.mount("a");
        let (content, later) = (pattern(1 << 20, 7), pattern(200_000, 8));
        let ino = write(&store, "long", &content);
        upload(&store);
        resize(&store, ino, 600_000);
        append(&store, ino, &later);
        upload(&store);
        let before = syncs(&store);
        append(&store, ino, b"last");
        // The disk has all tables, and of the tail only what was there before the truncation.
        let copy = lose_power(&memory, &|tail: &Path| cut(tail, 600_000 - HEAD));
        if syncs(&store) != before {
            return false;
        }
        let left = open(&memory, &copy);
        assert!(bytes(&left, ino) == [&content[..600_000], &later].concat());
        true
    });
}
