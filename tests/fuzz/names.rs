//! Names and paths that a program hands to a mount: every store answers, and keeps what it acknowledged.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use fuse::memory::MemoryStore;
use fuse::store::{Caller, Kind, NAME_MAX, NewNode, ROOT, RenameMode, Store, Timestamp};
use rand::RngExt;
use sqlite::SqliteStore;

use crate::{Rng, fuzz, mutation};

const OWNER: Caller = Caller { uid: 1000, gid: 100, now: Timestamp(1) };

const FILE: NewNode<'static> = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: &[] };

/// Names as the front end lets them through: without `/` and NUL, at most 255 bytes; separated by NUL.
fn make(rng: &mut Rng) -> Vec<u8> {
    let seeds: [&[u8]; 6] = [
        b"notes.md",
        b"a b\tc\nd",
        "\u{202e}gpj.exe \u{0301}e".as_bytes(),
        b"\xff\xfe\x80",
        b"-rf",
        b"CON.md:search?q=",
    ];
    let names = (0..rng.random_range(1..=6)).map(|_| {
        let seed = mutation::pick(rng, &seeds);
        let mut name = mutation::bytes(rng, seed);
        name.retain(|byte| !matches!(byte, 0 | b'/'));
        if rng.random_range(0..8) == 0 {
            name.resize(NAME_MAX, b'x');
        }
        name.truncate(NAME_MAX);
        name
    });
    let names: Vec<Vec<u8>> = names.filter(|name| !matches!(&name[..], b"" | b"." | b"..")).collect();
    names.join(&0)
}

/// Creates, renames and removes files of these names, and compares the listing after each step.
fn check(store: &dyn Store, input: &[u8]) {
    let mut expected = BTreeMap::new();
    for name in input.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match store.create(&OWNER, ROOT, name, &FILE) {
            Ok(attr) => {
                assert!(expected.insert(name.to_vec(), attr.ino).is_none(), "{name:?} was there");
                assert_eq!(store.lookup(ROOT, name).unwrap().ino, attr.ino);
            }
            Err(error) => assert!(expected.contains_key(name), "{name:?}: {error}"),
        }
    }
    let mut listed = BTreeMap::new();
    let mut emit = |entry: fuse::store::DirEntry<'_>| {
        listed.insert(entry.name.to_vec(), entry.ino);
        ControlFlow::Continue(())
    };
    store.readdir(ROOT, 0, false, &mut emit).unwrap();
    assert_eq!(listed, expected);
    let names: Vec<&Vec<u8>> = expected.keys().collect();
    if let [first, .., last] = names[..] {
        store.rename(&OWNER, (ROOT, first), (ROOT, last), RenameMode::Replace).unwrap();
        assert_eq!(store.lookup(ROOT, last).unwrap().ino, expected[first]);
        assert!(store.lookup(ROOT, first).is_err());
    }
    for name in names {
        if let Ok(Some(ino)) = store.unlink(&OWNER, ROOT, name) {
            store.reclaim(ino).unwrap();
        }
    }
}

#[test]
fn every_name_is_kept_as_it_is_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let sqlite = SqliteStore::open(&dir.path().join("a.db"), &OWNER).unwrap();
    let memory = MemoryStore::new(&OWNER);
    fuzz("names", make, |input| {
        check(&sqlite, input);
        check(&memory, input);
    });
}
