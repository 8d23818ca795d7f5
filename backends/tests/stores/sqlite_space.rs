//! Where the files of a SQLite store are, what they occupy, and when they are synced.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fuse::store::{Caller, Kind, ROOT, Store, Timestamp};
use sqlite::{HEAD, SqliteOpenError, SqliteStore, check, space};

use crate::common::{node, read};
use crate::hosts::eventually;

const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(1) };

const LONG: usize = HEAD as usize + 50_000;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &OWNER).unwrap()
}

fn write_file(store: &SqliteStore, name: &str, content: &[u8]) -> u64 {
    let file = store.create(&OWNER, ROOT, name.as_bytes(), &node(Kind::File));
    let ino = file.unwrap().ino;
    store.write(&OWNER, ino, 0, content).unwrap();
    ino
}

fn read_file(store: &SqliteStore, name: &str) -> Vec<u8> {
    let file = store.lookup(ROOT, name.as_bytes()).unwrap();
    read(store, file.ino, 0, 2 * LONG)
}

fn remove(store: &SqliteStore, name: &str) {
    let gone = store.unlink(&OWNER, ROOT, name.as_bytes()).unwrap();
    store.reclaim(gone.unwrap()).unwrap();
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// More files with tails than are held open, then a move by `to_move`, then a read, a write and a removal of others.
fn goes_on_after(opened: &Path, to_move: impl FnOnce(), moved: &Path) {
    let store = open(opened);
    for number in 0..80 {
        write_file(&store, &number.to_string(), &vec![number; LONG]);
    }
    to_move();
    for number in 0..80 {
        assert_eq!(read_file(&store, &number.to_string()), vec![number; LONG]);
    }
    write_file(&store, "new", &vec![99; LONG]);
    store.sync().unwrap();
    remove(&store, "0");
    store.statfs().unwrap();
    store.finish().unwrap();
    drop(store);
    let folder = moved.parent().unwrap();
    let name = moved.file_name().unwrap().to_str().unwrap();
    assert_eq!(names_in(folder), [name.to_owned(), format!("{name}-tails")]);
    assert_eq!(check(moved).unwrap().problems, Vec::<String>::new());
    let store = open(moved);
    assert_eq!(read_file(&store, "new"), vec![99; LONG]);
    assert_eq!(read_file(&store, "79"), vec![79; LONG]);
    assert!(store.lookup(ROOT, b"0").is_err());
}

#[test]
fn a_store_goes_on_when_a_directory_above_it_is_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir_all(old.join("below")).unwrap();
    let rename = || std::fs::rename(&old, &new).unwrap();
    goes_on_after(&old.join("below/a.db"), rename, &new.join("below/a.db"));
    assert!(!old.exists());
}

#[test]
fn a_store_goes_on_when_another_directory_takes_the_place_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    let replace = || {
        std::fs::rename(&old, &new).unwrap();
        std::fs::create_dir(&old).unwrap();
        for (name, text) in [("a.db", "x"), ("a.db-wal", "y"), ("a.db-redo", "z")] {
            std::fs::write(old.join(name), text).unwrap();
        }
    };
    goes_on_after(&old.join("a.db"), replace, &new.join("a.db"));
    assert_eq!(std::fs::read(old.join("a.db")).unwrap(), b"x");
    assert_eq!(std::fs::read(old.join("a.db-redo")).unwrap(), b"z");
}

#[test]
fn a_database_that_is_moved_alone_is_whole_without_its_logs() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("a.db"), dir.path().join("b.db"));
    let store = open(&old);
    write_file(&store, "one", b"1");
    store.sync().unwrap();
    std::fs::rename(&old, &new).unwrap();
    write_file(&store, "two", b"2");
    drop(store);
    assert_eq!(names_in(dir.path()), ["b.db"]);
    let store = open(&new);
    assert_eq!(read_file(&store, "one"), b"1");
    assert_eq!(read_file(&store, "two"), b"2");
}

#[test]
fn a_symbolic_link_to_a_database_or_a_directory_is_followed() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().join("real");
    std::fs::create_dir(&real).unwrap();
    let (link, link_dir) = (dir.path().join("link.db"), dir.path().join("dir"));
    symlink(&real, &link_dir).unwrap();
    symlink("dir/a.db", &link).unwrap();
    // A new database, by a link of its directory.
    let store = open(&link_dir.join("a.db"));
    write_file(&store, "long", &vec![7; LONG]);
    drop(store);
    let store = open(&link);
    assert_eq!(read_file(&store, "long"), vec![7; LONG]);
    let again = SqliteStore::open(&real.join("a.db"), &OWNER).unwrap_err();
    assert!(matches!(again, SqliteOpenError::Owned(..)), "{again}");
    drop(store);
    assert_eq!(names_in(&real), ["a.db", "a.db-tails"]);
    assert_eq!(names_in(dir.path()), ["dir", "link.db", "real"]);
    assert_eq!(check(&link).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_symbolic_link_that_leads_nowhere_is_refused_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let link = dir.path().join("link.db");
    for target in ["missing.db", "missing/a.db", "link.db"] {
        symlink(target, &link).unwrap();
        let refused = SqliteStore::open(&link, &OWNER).unwrap_err().to_string();
        assert!(refused.contains("link"), "{refused}");
        assert_eq!(names_in(dir.path()), ["link.db"], "{target}");
        std::fs::remove_file(&link).unwrap();
    }
}

#[test]
fn a_change_is_durable_within_five_seconds_without_a_call() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir.path().join("a.db"));
    let syncs = || {
        let counters = store.counters();
        (counters["log_syncs"], counters["tail_syncs"])
    };
    write_file(&store, "short", b"text");
    let before = syncs();
    let began = Instant::now();
    write_file(&store, "long", &vec![1; LONG]);
    eventually("a sync in the background", || {
        let (log, tails) = syncs();
        log > before.0 && tails > before.1
    });
    // Five seconds, and what a busy disk takes.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    // Nothing is left that a sync would make durable.
    let synced = syncs();
    store.sync().unwrap();
    assert_eq!(syncs(), synced);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(syncs(), synced, "nothing has changed");
}

fn allocated(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// A database with files of so many bytes.
fn filled(dir: &Path, files: usize, length: usize) -> (PathBuf, SqliteStore) {
    let path = dir.join("a.db");
    let store = open(&path);
    for number in 0..files {
        write_file(&store, &number.to_string(), &vec![7; length]);
    }
    (path, store)
}

#[test]
fn an_unmounted_database_occupies_little_more_than_its_files() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (path, store) = filled(dir.path(), 300, 200 << 10);
    drop(store);
    let files = 300 * (200 << 10);
    assert!(allocated(&path) < files * 105 / 100, "{}", allocated(&path));
    let store = open(&path);
    for number in (0..300).filter(|number| number % 3 > 0) {
        remove(&store, &number.to_string());
    }
    drop(store);
    let left = files / 3;
    assert!(allocated(&path) < left * 105 / 100, "{}", allocated(&path));
    let store = open(&path);
    for number in (0..300).step_by(3) {
        assert!(read_file(&store, &number.to_string()) == vec![7; 200 << 10]);
        remove(&store, &number.to_string());
    }
    drop(store);
    assert!(allocated(&path) < 1 << 20, "{}", allocated(&path));
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_mounted_database_gives_back_the_pages_of_removed_files() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (path, store) = filled(dir.path(), 200, 200 << 10);
    for number in 0..180 {
        remove(&store, &number.to_string());
    }
    eventually("a smaller database", || allocated(&path) < 12 << 20);
    // The file may shrink between two looks at it.
    let mut found = space(&path).unwrap().unwrap();
    eventually("the space that the file takes", || {
        found = space(&path).unwrap().unwrap();
        found.database == allocated(&path)
    });
    assert!(found.free_pages < 8 << 20 && found.log > 0 && found.redo > 0);
    for number in 180..200 {
        assert!(read_file(&store, &number.to_string()) == vec![7; 200 << 10]);
    }
}

#[test]
fn a_tail_that_no_longer_grows_gives_back_what_it_has_reserved() {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    let (path, store) = filled(dir.path(), 1, 8 << 20);
    let ino = store.lookup(ROOT, b"0").unwrap().ino;
    let tail = PathBuf::from(format!("{}-tails/{ino}", path.display()));
    assert!(allocated(&tail) >= (10 << 20) - HEAD * 5 / 4);
    let found = space(&path).unwrap().unwrap();
    assert!(found.reserved_ahead >= ((8 << 20) - HEAD) / 4);
    eventually("a tail of its length", || allocated(&tail) <= (8 << 20) - HEAD + 4096);
    // A part of a file is written after that, and its end, too.
    store.write(&OWNER, ino, 8 << 20, b"end").unwrap();
    assert_eq!(read(&store, ino, (8 << 20) - 1, 9), b"\x07end");
}
