//! The `s3` store between hosts: everything that a file system holds arrives as it is, and how many requests that takes.

use crate::common::*;
use crate::hosts::*;

use std::collections::BTreeMap;

use fuse::memory::MemoryStore;
use fuse::store::{Allocation, Change, Errno, Ino, Kind, NewNode, ROOT, RenameMode, Seek, Store, Timestamp, XattrMode};
use proptest::prelude::*;
use s3::config::{S3Config, Secret};
use s3::tree::CHUNK;
use s3_store::S3Store;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

#[test]
fn another_host_sees_every_kind_of_file_with_its_attributes() {
    let memory = Memory::new();
    let (a, watching) = (memory.mount("a"), memory.mount("watching"));
    let dir = mkdir(&a, ROOT, "dir");
    let deep = mkdir(&a, mkdir(&a, dir, "sub"), "deep");
    write_in(&a, deep, "note.md", b"deep down");
    create(&a, ROOT, "empty", Kind::File);
    let file = write(&a, "file", b"with links");
    a.link(&now(), file, deep, b"other name").unwrap();
    let target = NewNode { target: b"../some\xffwhere", permissions: 0o777, ..node(Kind::Symlink) };
    a.create(&now(), dir, b"link", &target).unwrap();
    let device = NewNode { rdev: 0x103, ..node(Kind::CharDevice) };
    a.create(&now(), ROOT, b"null", &device).unwrap();
    create(&a, ROOT, "fifo", Kind::Fifo);
    for name in [&b"\xff\xfe"[..], b"a\nb", b"*?", b" ", b".ctx", &[b'x'; 255]] {
        a.create(&now(), dir, name, &node(Kind::File)).unwrap();
    }
    let change = Change {
        permissions: Some(0o6751),
        uid: Some(7),
        gid: Some(8),
        mtime: Some(Timestamp(-5)),
        ..Change::default()
    };
    a.setattr(&now(), file, &change).unwrap();
    for ino in [dir, ROOT] {
        a.setattr(&now(), ino, &permissions(0o1777)).unwrap();
    }
    for ino in [file, dir, ROOT] {
        a.setxattr(&now(), ino, b"user.k", b"\0\xff", XattrMode::Set).unwrap();
    }
    exchange(&a, &watching);
    let fresh = memory.fresh();
    for host in [&watching, &fresh] {
        assert_eq!(state(host), state(&a));
        let root = host.getattr(ROOT).unwrap();
        assert_eq!((root.permissions, root.nlink), (0o1777, 3));
        assert_eq!(host.getxattr(ROOT, b"user.k").unwrap(), b"\0\xff");
        is_settled(host);
    }
    memory.check();

    // An attribute that goes, and a device in the place of a file. The random sequences below change the rest.
    a.removexattr(&now(), file, b"user.k").unwrap();
    rename(&a, "null", "empty", RenameMode::Replace);
    a.upload().unwrap();
    for host in [&watching, &fresh] {
        host.pull().unwrap();
        assert_eq!(state(host), state(&a));
        is_settled(host);
    }
}

#[test]
fn files_of_every_size_arrive_byte_for_byte() {
    let memory = Memory::new();
    let (a, watching) = (memory.mount("a"), memory.mount("watching"));
    let sizes = [
        0,
        1,
        64 * KIB - 1,
        64 * KIB,
        64 * KIB + 1,
        256 * KIB - 1,
        256 * KIB,
        256 * KIB + 1,
        MIB + 3,
        8 * MIB,
        8 * MIB + 1,
        17 * MIB,
    ];
    for size in sizes {
        write(&a, &format!("f{size}"), &pattern(size, size as u64));
    }
    exchange(&a, &watching);
    for host in [&memory.fresh(), &watching] {
        for size in sizes {
            let content = bytes(host, find(host, &format!("f{size}")));
            assert!(content == pattern(size, size as u64), "{size} bytes");
        }
        is_settled(host);
    }
    // The next version of each, longer and shorter, for a host that has the first.
    for size in sizes {
        let [longer, shorter, renamed] = ["f", "g", "h"].map(|name| format!("{name}{size}"));
        write(&a, &longer, &pattern(size + 100, size as u64 + 1));
        write(&a, &shorter, &pattern(size / 2, size as u64));
        rename(&a, &shorter, &renamed, RenameMode::Replace);
    }
    exchange(&a, &watching);
    assert_eq!(state(&watching), state(&a));
    is_settled(&watching);
    memory.check();
}

#[test]
fn holes_take_no_space_on_another_host_and_no_requests() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let file = create(&a, ROOT, "file", Kind::File).ino;
    let far = 100 << 30;
    a.write(&now(), file, 0, b"begin").unwrap();
    a.write(&now(), file, 3 * CHUNK + 5, b"middle").unwrap();
    a.write(&now(), file, far, b"end").unwrap();
    let sent = spent(&a, || a.upload().unwrap());
    assert_eq!(sent["s3_put"], 4, "{sent:?}");
    assert!(sent["s3_bytes_sent"] < 20 << 20, "{sent:?}");
    let b = memory.fresh();
    let here = find(&b, "file");
    assert_eq!(b.getattr(here).unwrap().size, far + 3);
    let hole = spent(&b, || assert_eq!(read(&b, here, 2 * CHUNK, 9), [0; 9]));
    assert_eq!(hole, BTreeMap::new());
    assert_eq!(read(&b, here, 0, 6), b"begin\0");
    assert_eq!(read(&b, here, 3 * CHUNK + 4, 8), b"\0middle\0");
    assert_eq!(read(&b, here, far - 1, 9), b"\0end");
    assert!(b.getattr(here).unwrap().blocks < 64 << 11, "64 MiB");
    let data = b.seek(here, 4 * CHUNK, Seek::Data).unwrap();
    assert_eq!(data / CHUNK, far / CHUNK);

    // A hole in the place of bytes that the other host has.
    let punched = a.fallocate(&now(), file, Allocation::PunchHole, 0, 4 * CHUNK);
    punched.unwrap();
    exchange(&a, &b);
    assert_eq!(read(&b, here, 0, 6), [0; 6]);
    assert_eq!(read(&b, here, 3 * CHUNK + 4, 8), [0; 8]);
    assert_eq!(b.seek(here, 0, Seek::Data).unwrap() / CHUNK, far / CHUNK);
    is_settled(&b);
}

#[test]
fn a_batch_of_small_changes_is_one_put_and_an_idle_poll_one_get() {
    let memory = Memory::new();
    let (a, b) = (memory.mount("a"), memory.mount("b"));
    let dir = mkdir(&a, ROOT, "dir");
    for number in 0..100 {
        write_in(&a, dir, &format!("f{number}"), &pattern(900, number));
    }
    let batch = spent(&a, || a.upload().unwrap());
    assert_eq!(only_requests(&batch), BTreeMap::from([("s3_put", 1)]));
    assert_eq!(batch["s3_commits"], 1);
    assert_eq!(spent(&a, || a.upload().unwrap()), BTreeMap::new());
    let idle = spent(&a, || a.pull().unwrap());
    assert_eq!(only_requests(&idle), BTreeMap::from([("s3_get", 1)]));
    // The commit, and that there is none after it.
    let poll = spent(&b, || b.pull().unwrap());
    assert!(poll["s3_get"] <= 3 && poll["s3_adopted"] == 1, "{poll:?}");
    let reads = spent(&b, || assert_eq!(state(&b), state(&a)));
    assert_eq!(reads, BTreeMap::new());
    // Every kind of change, of a file and a directory.
    let file = a.lookup(dir, b"f1").unwrap().ino;
    append(&a, file, b"more");
    unlink_in(&a, dir, "f2");
    a.rename(&now(), (dir, b"f3"), (ROOT, b"g"), RenameMode::Replace).unwrap();
    rename(&a, "dir", "moved", RenameMode::Replace);
    let batch = spent(&a, || a.upload().unwrap());
    assert_eq!(only_requests(&batch), BTreeMap::from([("s3_put", 1)]));
    // A rename copies nothing.
    assert!(batch["s3_bytes_sent"] < 4096, "{batch:?}");
    b.pull().unwrap();
    assert_eq!(state(&b), state(&a));
}

fn unlink_in(store: &dyn Store, dir: Ino, name: &str) {
    if let Some(ino) = store.unlink(&now(), dir, name.as_bytes()).unwrap() {
        store.reclaim(ino).unwrap();
    }
}

#[test]
fn a_fresh_host_lists_without_content_and_fetches_each_chunk_once() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let long = pattern(20 * MIB, 1);
    write(&a, "long", &long);
    write(&a, "small", &pattern(1000, 2));
    a.upload().unwrap();
    // So many commits make a checkpoint, which has no content in it.
    for number in 0..80 {
        write(&a, "n", &[number; 10]);
        a.upload().unwrap();
    }
    assert!(memory.keys().iter().any(|key| key.contains("checkpoint/")));
    let b = memory.fresh();
    let mounting = b.counters();
    assert!(mounting["s3_get"] < 40, "{mounting:?}");
    assert_eq!(mounting["s3_list"], 1, "{mounting:?}");
    assert!(mounting["s3_bytes_received"] < 100_000, "{mounting:?}");
    let listing = spent(&b, || {
        assert_eq!(names(&b, ROOT), ["long", "n", "small"]);
        assert_eq!(b.getattr(find(&b, "long")).unwrap().size, long.len() as u64);
    });
    assert_eq!(listing, BTreeMap::new());
    let ino = find(&b, "long");
    let part = spent(&b, || {
        let at = 9 * MIB;
        assert!(read(&b, ino, at as u64, 100) == long[at..at + 100]);
    });
    assert_eq!((part["s3_get"], part["s3_bytes_received"]), (1, CHUNK));
    let again = spent(&b, || {
        let at = 8 * MIB;
        assert!(read(&b, ino, at as u64, 8 * MIB) == long[at..at + 8 * MIB]);
    });
    assert_eq!(again, BTreeMap::new());
    let rest = spent(&b, || assert!(bytes(&b, ino) == long));
    assert_eq!(rest["s3_get"], 2);
    let small = spent(&b, || assert!(bytes(&b, find(&b, "small")) == pattern(1000, 2)));
    assert_eq!((small["s3_get"], small["s3_bytes_received"]), (1, 1000));
    let comparing = spent(&b, || assert_eq!(state(&b), state(&a)));
    assert_eq!(comparing, BTreeMap::new());
    // Reading changes nothing.
    is_settled(&b);
    assert_eq!(spent(&b, || b.upload().unwrap()), BTreeMap::new());
}

const EDITS: [&str; 11] = [
    "append",
    "append much",
    "write the first byte",
    "write the last byte",
    "write past the end",
    "empty",
    "cut in half",
    "cut, and grow again",
    "punch",
    "zero past the end",
    "reserve",
];

fn edit(store: &S3Store, ino: Ino, what: &str) {
    let end = store.getattr(ino).unwrap().size;
    let write = |at| store.write(&now(), ino, at, b"!").unwrap();
    let allocate = |how, at, length| store.fallocate(&now(), ino, how, at, length).unwrap();
    match what {
        "append" => append(store, ino, b"more"),
        "append much" => append(store, ino, &pattern(300 * KIB, 9)),
        "write the first byte" => write(0),
        "write the last byte" => write(end - 1),
        "write past the end" => write(end + 5000),
        "empty" => resize(store, ino, 0),
        "cut in half" => resize(store, ino, end / 2),
        "cut, and grow again" => {
            resize(store, ino, end / 3);
            resize(store, ino, end + 7);
        }
        "punch" => allocate(Allocation::PunchHole, 3, 1 << 30),
        "zero past the end" => allocate(Allocation::Zero { keep_size: false }, end - 2, 10),
        "reserve" => allocate(Allocation::Reserve { keep_size: false }, end, 10),
        _ => unreachable!("{what}"),
    }
}

/// The bytes of a file after an [`edit`].
fn edited(mut bytes: Vec<u8>, what: &str) -> Vec<u8> {
    let end = bytes.len();
    match what {
        "append" => bytes.extend(b"more"),
        "append much" => bytes.extend(pattern(300 * KIB, 9)),
        "write the first byte" => bytes[0] = b'!',
        "write the last byte" => bytes[end - 1] = b'!',
        "write past the end" => {
            bytes.resize(end + 5000, 0);
            bytes.push(b'!');
        }
        "empty" => bytes.clear(),
        "cut in half" => bytes.truncate(end / 2),
        "cut, and grow again" => {
            bytes.truncate(end / 3);
            bytes.resize(end + 7, 0);
        }
        "punch" => bytes[3..].fill(0),
        "zero past the end" => {
            bytes[end - 2..].fill(0);
            bytes.resize(end + 8, 0);
        }
        "reserve" => bytes.resize(end + 10, 0),
        _ => unreachable!("{what}"),
    }
    bytes
}

#[test]
fn a_placeholder_can_be_changed_in_every_way() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let sizes = [10, 64 * KIB + 1, 300 * KIB, 8 * MIB, 9 * MIB];
    for size in sizes {
        // Equal content is uploaded once.
        for what in EDITS {
            write(&a, &format!("{what} {size}"), &pattern(size, size as u64));
        }
    }
    a.upload().unwrap();
    let b = memory.fresh();
    for what in EDITS {
        for size in sizes {
            edit(&b, find(&b, &format!("{what} {size}")), what);
        }
        b.upload().unwrap();
    }
    a.pull().unwrap();
    for host in [&memory.fresh(), &b, &a] {
        for what in EDITS {
            for size in sizes {
                let expected = edited(pattern(size, size as u64), what);
                let name = format!("{what} {size}");
                assert!(bytes(host, find(host, &name)) == expected, "{name}");
            }
        }
        is_settled(host);
    }
    memory.check();
}

#[test]
fn a_placeholder_can_be_renamed_linked_and_replaced_unread() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let long = pattern(300 * KIB, 1);
    for name in ["moved", "linked", "replaced", "gone", "changed"] {
        write(&a, name, &long);
    }
    a.upload().unwrap();
    let b = memory.fresh();
    let changes = spent(&b, || {
        rename(&b, "moved", "here", RenameMode::Replace);
        b.link(&now(), find(&b, "linked"), ROOT, b"other").unwrap();
        write(&b, "new", b"new");
        rename(&b, "new", "replaced", RenameMode::Replace);
        unlink(&b, "gone");
        let changed = find(&b, "changed");
        b.setattr(&now(), changed, &permissions(0o400)).unwrap();
        b.upload().unwrap();
    });
    assert_eq!(only_requests(&changes), BTreeMap::from([("s3_put", 1)]));
    a.pull().unwrap();
    let all = ["changed", "here", "linked", "other", "replaced"];
    assert_eq!(names(&a, ROOT), all);
    assert_eq!(state(&a), state(&b));
    assert!(bytes(&b, find(&b, "here")) == long);
}

#[test]
fn an_unlinked_placeholder_that_is_open_can_be_read() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let long = pattern(300 * KIB, 1);
    for name in ["here", "there"] {
        write(&a, name, &long);
    }
    a.upload().unwrap();
    let b = memory.fresh();
    let (here, there) = (find(&b, "here"), find(&b, "there"));
    b.unlink(&now(), ROOT, b"here").unwrap();
    unlink(&a, "there");
    exchange(&a, &b);
    exchange(&b, &a);
    assert_eq!(names(&a, ROOT), Vec::<String>::new());
    for ino in [here, there] {
        assert_eq!(b.getattr(ino).unwrap().nlink, 0);
        assert!(bytes(&b, ino) == long);
        b.write(&now(), ino, 1, b"still").unwrap();
        b.reclaim(ino).unwrap();
        assert_eq!(errno(b.getattr(ino)), Errno::NOENT);
    }
    b.upload().unwrap();
    is_settled(&b);
}

/// The named inodes of a store, in an order that two equal stores share.
fn driven(store: &dyn Store) -> StoreDriver<'_> {
    let mut made = vec![ROOT];
    walk(store, ROOT, "", &mut |_, attr| {
        if !made.contains(&attr.ino) {
            made.push(attr.ino);
        }
    });
    StoreDriver { store, made }
}

/// A sequence, cut by moments at which everything is committed.
fn steps(most: usize) -> impl Strategy<Value = Vec<(Step, bool)>> {
    prop::collection::vec((step(), prop::bool::weighted(0.1)), 1..most)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn every_host_sees_what_the_reference_model_holds(
        first in steps(50),
        second in steps(30),
        is_sealed in any::<bool>(),
    ) {
        let memory = Memory::new();
        let config = |writer: &str| S3Config {
            seal: is_sealed.then_some(Secret([7; 32])),
            ..memory.config(writer)
        };
        let reference = MemoryStore::new(&caller(1));
        let a = memory.mount_as(config("a"));
        let b = memory.mount_as(config("b"));
        let mut model = StoreDriver { store: &reference, made: vec![ROOT] };
        let mut tested = StoreDriver { store: &a, made: vec![ROOT] };
        for (at, (step, is_committed)) in first.iter().enumerate() {
            let now = 100 + at as i64;
            prop_assert_eq!(tested.step(step, now), model.step(step, now), "step {}: {:?}", at, step);
            if *is_committed {
                exchange(&a, &b);
                prop_assert_eq!(tree(&b, ROOT), tree(&reference, ROOT), "after step {}", at);
            }
        }
        prop_assert_eq!(tested.dump(), model.dump());
        a.upload().unwrap();
        is_settled(&a);
        b.pull().unwrap();
        prop_assert_eq!(tree(&b, ROOT), tree(&reference, ROOT), "a host that was there all the time");

        // A host that has just come goes on, with placeholders.
        let c = memory.mount_as(config("c"));
        let (mut model, mut tested) = (driven(&reference), driven(&c));
        for (at, (step, is_committed)) in second.iter().enumerate() {
            let now = 1000 + at as i64;
            prop_assert_eq!(tested.step(step, now), model.step(step, now), "step {}: {:?}", at, step);
            if *is_committed {
                c.upload().unwrap();
            }
        }
        c.upload().unwrap();
        is_settled(&c);
        for host in [&memory.mount_as(config("d")), &c] {
            prop_assert_eq!(tree(host, ROOT), tree(&reference, ROOT));
        }
        for host in [&a, &b] {
            host.pull().unwrap();
            prop_assert_eq!(tree(host, ROOT), tree(&reference, ROOT));
            prop_assert_eq!(spent(host, || host.upload().unwrap()), BTreeMap::new());
        }
        memory.check_as(&config("checker"));
    }
}
