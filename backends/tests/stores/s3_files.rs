//! The `s3` store against a real server in this process: what two machines see of one bucket, how many requests
//! that takes, and what becomes of conflicts, crashes and strangers' objects.

use crate::common;
use crate::s3;

use std::collections::BTreeMap;
use std::time::Duration;

use backends::memory::MemoryStore;
use backends::s3::{ConflictPolicy, S3Config, S3OpenError, S3Store, check};
use backends::store::{Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store};
use common::*;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use proptest::prelude::*;
use s3::{
    Machines, agent, all_keys, bucket, config, keys, now, put_object, put_objects, service,
    text_in, write_in,
};

/// An object as any S3 tool sees it.
fn object(key: &str) -> Vec<u8> {
    let service = service();
    let got = service
        .runtime
        .block_on(async { bucket().get(&Key::from(key)).await.unwrap().bytes().await });
    got.unwrap().to_vec()
}

fn mkdir(store: &S3Store, parent: Ino, name: &str) -> Ino {
    let new = NewNode {
        permissions: 0o755,
        ..node(Kind::Directory)
    };
    let made = store.create(&now(), parent, name.as_bytes(), &new);
    made.unwrap().ino
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
    write_in(&a, notes, "today.md", b"# Today\n");
    write_in(&a, ROOT, "data.bin", &[0, 255, 0]);
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
    assert_eq!(text_in(&b, notes, "today.md"), "# Today\n");
    assert_eq!(b.lookup(ROOT, b"empty").unwrap().kind, Kind::Directory);

    // And what is changed there, here.
    write_in(&b, notes, "today.md", b"# Today, later\n");
    b.unlink(&now(), ROOT, b"data.bin").unwrap();
    b.rmdir(&now(), ROOT, b"empty").unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    let notes = a.lookup(ROOT, b"notes").unwrap().ino;
    assert_eq!(text_in(&a, notes, "today.md"), "# Today, later\n");
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
        write_in(&a, dir, &format!("f{at}"), b"x");
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
        opened["s3_get"], 5,
        "the seal, the manifest, the index, the mark, what is known of the server"
    );
    assert_eq!(opened["s3_put"], 0);
    let dir = b.lookup(ROOT, b"d").unwrap().ino;
    let listed = spent(&b, || assert_eq!(names(&b, dir).len(), 990));
    assert_eq!(listed, BTreeMap::new(), "listing asks nobody");

    let first = spent(&b, || assert_eq!(text_in(&b, dir, "f7"), "x"));
    assert_eq!(first, BTreeMap::from([("s3_get", 1)]));
    let again = spent(&b, || assert_eq!(text_in(&b, dir, "f7"), "x"));
    assert_eq!(again, BTreeMap::new(), "a hot read asks nobody");
    let poll = spent(&b, || b.pull().unwrap());
    assert_eq!(poll, BTreeMap::from([("s3_list", 1), ("s3_get", 1)]));

    let twice = spent(&b, || {
        for _ in 0..10 {
            write_in(&b, dir, "f7", b"many times");
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
fn a_listing_is_one_request_for_each_thousand_objects() {
    let (machines, agent) = (Machines::new(), agent());
    put_objects((0..2_100).map(|at| format!("agents/{agent}/d/f{at:04}")));
    let a = machines.mount(config(&agent, "alice"));
    let opened = requests(&a);
    assert_eq!(
        opened["s3_list"],
        3 + 2,
        "one to check, three of the files, one of the indexes"
    );
    assert_eq!(opened["s3_head"], 2_100, "no writer has an index of them");
    let dir = a.lookup(ROOT, b"d").unwrap().ino;
    let listed = spent(&a, || assert_eq!(names(&a, dir).len(), 2_100));
    assert_eq!(listed, BTreeMap::new(), "listing asks nobody");
    let look = spent(&a, || a.pull().unwrap());
    assert_eq!(look, BTreeMap::from([("s3_list", 3), ("s3_get", 1)]));
}

#[test]
fn mounting_deleting_and_missing_others_files_take_what_is_documented() {
    let (machines, agent) = (Machines::new(), agent());
    let all = |store: &S3Store| requests(store).values().sum::<u64>();
    let a = machines.mount(config(&agent, "alice"));
    let first = all(&a);
    for at in 0..7 {
        write_in(&a, ROOT, &format!("f{at}"), b"x");
    }
    a.upload().unwrap();
    spent(&a, || ());
    let b = machines.mount(config(&agent, "bob"));
    let later = all(&b);
    assert_eq!(
        (first, later),
        (7 + 10, 7 + 1),
        "finding out what the server honours, and leaving it there; alice's index"
    );
    let deleted = spent(&a, || {
        for at in 0..5 {
            let name = format!("f{at}");
            a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
        }
        a.upload().unwrap();
    });
    assert_eq!(
        deleted,
        BTreeMap::from([("s3_head", 5), ("s3_copy", 5), ("s3_delete", 1)])
    );
    let missed = spent(&b, || b.pull().unwrap());
    assert_eq!(
        missed,
        BTreeMap::from([("s3_list", 1), ("s3_get", 2), ("s3_head", 5)]),
        "the manifest, and whether the bucket was emptied"
    );
    assert_eq!(names(&b, ROOT), ["f5", "f6"]);
}

#[test]
fn a_renamed_directory_copies_nothing() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let dir = mkdir(&a, ROOT, "d");
    for at in 0..1_000 {
        write_in(&a, dir, &format!("f{at}"), b"x");
    }
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    let before = keys(&agent);
    assert_eq!(before.len(), 1_000);
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
    write_in(&a, d, "new", b"n");
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
fn a_directory_that_replaces_an_empty_one_has_its_name_on_other_hosts() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let b = machines.mount(config(&agent, "bob"));
    let above = mkdir(&a, ROOT, "above");
    mkdir(&a, above, "empty");
    let full = mkdir(&a, ROOT, "full");
    write_in(&a, full, "note", b"here");
    a.upload().unwrap();
    b.pull().unwrap();
    for (from, to) in [
        ((ROOT, &b"full"[..]), (above, &b"empty"[..])),
        ((above, b"empty"), (ROOT, b"full")),
    ] {
        a.rename(&now(), from, to, RenameMode::Replace).unwrap();
        a.upload().unwrap();
        b.pull().unwrap();
        assert_eq!(seen(&b), seen(&a));
    }
}

#[test]
fn a_directory_that_replaces_an_empty_one_leaves_those_above_as_they_are() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("bob.db");
    let a = machines.mount(config(&agent, "alice"));
    let b = machines.mount(config(&agent, "bob"));
    let replace = |store: &S3Store, from: (u64, &[u8]), to: (u64, &[u8])| {
        let mode = RenameMode::Replace;
        store.rename(&now(), from, to, mode).unwrap();
    };
    // Its name is what its keys say, and all that is in it is renamed at once.
    let d = mkdir(&a, ROOT, "d");
    write_in(&a, d, "file", b"1");
    let x = mkdir(&a, d, "x");
    write_in(&a, x, "f", b"1");
    mkdir(&a, d, "y");
    // Its name is not, until it goes back to that.
    let p = mkdir(&a, ROOT, "P");
    write_in(&a, p, "old", b"1");
    a.upload().unwrap();
    replace(&a, (ROOT, b"P"), (ROOT, b"Q"));
    let x = mkdir(&a, p, "x");
    write_in(&a, x, "f", b"1");
    mkdir(&a, p, "y");
    a.unlink(&now(), p, b"old").unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(seen(&b), seen(&a));
    let kept = b.lookup(ROOT, b"d").unwrap().ino;

    replace(&a, (d, b"file"), (d, b"file2"));
    replace(&a, (d, b"x"), (d, b"y"));
    replace(&a, (ROOT, b"Q"), (ROOT, b"P"));
    replace(&a, (p, b"x"), (p, b"y"));
    write_in(&a, p, "new", b"1");
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(seen(&b), seen(&a));
    assert_eq!(b.lookup(ROOT, b"d").unwrap().ino, kept);
    drop(b);
    let problems = backends::sqlite::check(&cache).unwrap().problems;
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn a_file_that_was_never_read_can_be_renamed_and_linked_and_read_then() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let large = "0123456789abcdef".repeat(6 << 16);
    for name in ["renamed", "linked"] {
        write_in(&a, ROOT, name, name.as_bytes());
    }
    write_in(&a, ROOT, "large", large.as_bytes());
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    let to = |name: &'static [u8]| (ROOT, name);
    for (from, new) in [(&b"renamed"[..], &b"new"[..]), (b"large", b"new-large")] {
        b.rename(&now(), to(from), to(new), RenameMode::NoReplace)
            .unwrap();
    }
    let linked = b.lookup(ROOT, b"linked").unwrap().ino;
    b.link(&now(), linked, ROOT, b"second").unwrap();
    // A part of it is here.
    let ino = b.lookup(ROOT, b"new-large").unwrap().ino;
    assert_eq!(read(&b, ino, 0, 16), b"0123456789abcdef");
    b.upload().unwrap();
    b.unlink(&now(), ROOT, b"linked").unwrap();
    b.upload().unwrap();
    assert_eq!(keys(&agent).len(), 3, "{:?}", keys(&agent));
    assert_eq!(text_in(&b, ROOT, "new"), "renamed");
    assert_eq!(text_in(&b, ROOT, "second"), "linked");
    assert!(text_in(&b, ROOT, "new-large") == large);
}

#[test]
fn both_versions_of_a_conflict_are_kept_and_the_loser_is_told() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write_in(&a, ROOT, "plan.md", b"base");
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    write_in(&a, ROOT, "plan.md", b"by alice");
    write_in(&b, ROOT, "plan.md", b"by bob");
    write_in(&a, ROOT, "new.md", b"alice's");
    write_in(&b, ROOT, "new.md", b"bob's");
    a.upload().unwrap();
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 2);
    b.upload().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(text_in(store, ROOT, "plan.md"), "by alice");
        assert_eq!(text_in(store, ROOT, "plan.conflict-bob-2.md"), "by bob");
        assert_eq!(text_in(store, ROOT, "new.md"), "alice's");
        assert_eq!(text_in(store, ROOT, "new.conflict-bob-1.md"), "bob's");
        let lost = store.lookup(ROOT, b"plan.conflict-bob-2.md").unwrap().ino;
        let told = store.getxattr(lost, b"user.ctx.conflict").unwrap();
        assert!(String::from_utf8_lossy(&told).contains("alice"), "{told:?}");
    }
    // The same on both sides is no conflict.
    write_in(&a, ROOT, "same", b"s");
    write_in(&b, ROOT, "same", b"s");
    a.upload().unwrap();
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 2);
    // Deleted there, changed here: the change stays.
    a.pull().unwrap();
    a.unlink(&now(), ROOT, b"same").unwrap();
    a.upload().unwrap();
    write_in(&b, ROOT, "same", b"changed");
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text_in(&a, ROOT, "same"), "changed");
    // Changed there, deleted here: the change stays, too.
    write_in(&b, ROOT, "same", b"again");
    b.upload().unwrap();
    a.unlink(&now(), ROOT, b"same").unwrap();
    a.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text_in(&a, ROOT, "same"), "again");
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
    write_in(&a, ROOT, "x", b"a");
    write_in(&b, ROOT, "x", b"b");
    a.upload().unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text_in(&a, ROOT, "x"), "b");
    assert_eq!(names(&a, ROOT), ["x"], "what alice wrote is lost");
}

#[test]
fn what_had_not_gone_up_goes_up_after_a_crash_and_only_once() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write_in(&a, ROOT, "changed", b"1");
    write_in(&a, ROOT, "deleted", b"1");
    a.upload().unwrap();
    write_in(&a, ROOT, "changed", b"2");
    write_in(&a, ROOT, "new", b"1");
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
    let ino = write_in(&a, ROOT, "n.md", b"first");
    a.upload().unwrap();
    write_in(&a, ROOT, "n.md", b"second");
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
    assert_eq!(text_in(&a, ROOT, "n.md"), "first");
    assert_eq!(a.getxattr(ino, b"user.ctx.sync").unwrap(), b"durable");
    assert_eq!(a.getxattr(ino, b"user.ctx.version.2").unwrap(), b"second");
    // Deleted files are kept, too.
    a.unlink(&now(), ROOT, b"n.md").unwrap();
    a.upload().unwrap();
    let third = format!("ctx/{agent}/versions/n.md/0000000003-");
    let kept = all_keys(&agent);
    let kept = kept.iter().find(|key| key.starts_with(&third));
    assert!(object(kept.unwrap()).ends_with(b"first"));
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
    write_in(&a, dir, "secret-name.md", b"secret content");
    let big: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 1000) as u8).collect();
    write_in(&a, dir, "big", &big);
    a.upload().unwrap();
    for key in keys(&agent) {
        assert!(!key.contains("secret"), "{key}");
        let body = object(&key);
        assert!(!body.windows(6).any(|window| window == b"secret"));
    }
    let b = machines.mount(sealed("bob", 1));
    let dir = b.lookup(ROOT, b"secret-dir").unwrap().ino;
    assert_eq!(text_in(&b, dir, "secret-name.md"), "secret content");
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
    let ino = write_in(&a, ROOT, "big.md", &big);
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
    assert_eq!(text_in(&a, ROOT, "plain.md"), "no front matter");
    let dir = a.lookup(ROOT, b"dir").unwrap().ino;
    assert_eq!(text_in(&a, dir, "100%"), "odd");
    assert_eq!(check(&config(&agent, "c")).unwrap().foreign.len(), 2);
    // Another tool edits a file of ours: the text that it sees, front matter and all.
    write_in(&a, ROOT, "mine.md", b"hello");
    a.upload().unwrap();
    let key = format!("agents/{agent}/mine.md");
    let mut edited = object(&key);
    edited.extend_from_slice(b" world");
    put_object(&key, edited.leak());
    a.pull().unwrap();
    assert_eq!(text_in(&a, ROOT, "mine.md"), "hello world");
    let checked = check(&config(&agent, "c")).unwrap();
    assert!(checked.problems[0].contains("another tool"), "{checked:?}");
    // A file in the way of a directory: both objects stay.
    put_object(&format!("agents/{agent}/plain.md/x"), b"below a file");
    a.pull().unwrap();
    assert_eq!(text_in(&a, ROOT, "plain.md"), "no front matter");
    assert!(keys(&agent).contains(&format!("agents/{agent}/plain.md/x")));
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
