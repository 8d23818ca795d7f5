//! The files of a database that a killed mount has left: the redo log and the write-ahead log.

use std::fs;
use std::path::Path;

use fuse::store::{Caller, Kind, NewNode, ROOT, Store, Timestamp, XattrMode};
use rand::RngExt;
use sqlite::SqliteStore;

use crate::{Rng, fuzz, mutation};

const OWNER: Caller = Caller { uid: 1000, gid: 100, now: Timestamp(1) };

const FILE: NewNode<'static> = NewNode { kind: Kind::File, permissions: 0o644, rdev: 0, target: &[] };

/// The files of a database while it is mounted, by name: what a killed daemon leaves.
fn killed(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let path = dir.join("a.db");
    let store = SqliteStore::open(&path, &OWNER).unwrap();
    for number in 0..20_u8 {
        let name = format!("note-{number}.md");
        let ino = store.create(&OWNER, ROOT, name.as_bytes(), &FILE).unwrap().ino;
        store.write(&OWNER, ino, 0, &[number; 500]).unwrap();
        store.setxattr(&OWNER, ino, b"user.k", b"v", XattrMode::Set).unwrap();
    }
    // Kept open: the files are those of a running mount.
    let files = ["a.db", "a.db-wal", "a.db-redo"].map(|name| (name.to_owned(), fs::read(dir.join(name)).unwrap()));
    drop(store);
    files.to_vec()
}

/// Reads every name and every byte; errors are answers.
fn read_all(store: &SqliteStore) {
    let mut names = Vec::new();
    let _ = store.readdir(ROOT, 0, false, &mut |entry| {
        names.push(entry.name.to_vec());
        std::ops::ControlFlow::Continue(())
    });
    for name in names {
        if let Ok(attr) = store.lookup(ROOT, &name) {
            let mut out = Vec::new();
            let _ = store.read(attr.ino, 0, 1 << 20, &mut out);
            let _ = store.listxattr(attr.ino);
        }
    }
}

#[test]
fn a_damaged_database_is_refused_or_answers() {
    let dir = tempfile::tempdir().unwrap();
    let files = killed(dir.path());
    let make = |rng: &mut Rng| {
        let at = rng.random_range(0..files.len());
        // Damage in what is used, not in the log's zeros.
        let length = files[at].1.len().min(16 << 10);
        let mut input = mutation::bytes(rng, &files[at].1[..length]);
        input.insert(0, at as u8);
        input
    };
    fuzz("redo-log", make, |input| {
        let place = tempfile::tempdir().unwrap();
        for (at, (name, whole)) in files.iter().enumerate() {
            let bytes = if at == input[0] as usize {
                [&input[1..], whole.get(input.len() - 1..).unwrap_or_default()].concat()
            } else {
                whole.clone()
            };
            fs::write(place.path().join(name), bytes).unwrap();
        }
        if let Ok(store) = SqliteStore::open(&place.path().join("a.db"), &OWNER) {
            read_all(&store);
        }
    });
}
