//! Promises of the SQLite store alone: durability, tails, upgrades, locking, and access by plain SQLite.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fuse::store::{Allocation, Caller, Errno, Kind, ROOT, Seek, Store, Timestamp};
use sqlite::{HEAD, SqliteOpenError, SqliteStore, check, go_on_without_log};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::common::{fails, has, names, node, read, resize};
use crate::hosts::{copy_cache, eventually};

const OWNER: Caller = Caller { uid: 0, gid: 0, now: Timestamp(1) };

fn open(path: &Path) -> Result<SqliteStore, SqliteOpenError> {
    SqliteStore::open(path, &OWNER)
}

/// A new store in a directory of its own, at `a.db`.
fn new_store() -> (tempfile::TempDir, PathBuf, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = open(&path).unwrap();
    (dir, path, store)
}

/// A copy at `b.db` of an open store as a killed daemon leaves it, but without its log.
fn killed_without_log(dir: &Path, path: &Path) -> PathBuf {
    let copy = dir.join("b.db");
    copy_cache(path, &copy);
    std::fs::remove_file(dir.join("b.db-wal")).unwrap();
    copy
}

/// Why a database without its log cannot be opened.
#[track_caller]
fn log_gone(path: &Path) -> String {
    let error = open(path).unwrap_err();
    assert!(matches!(error, SqliteOpenError::LogGone { .. }), "{error}");
    error.to_string()
}

/// A connection that gives the pages that it writes their checksums.
fn writer(path: &Path) -> rusqlite::Connection {
    let flags = rusqlite::OpenFlags::default();
    rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"ctxbench-pages").unwrap()
}

fn assert_whole(path: &Path) {
    assert_eq!(check(path).unwrap().problems, Vec::<String>::new());
}

fn write_file(store: &SqliteStore, name: &str, content: &[u8]) {
    let ino = create_file(store, name);
    store.write(&OWNER, ino, 0, content).unwrap();
}

fn read_file(store: &SqliteStore, name: &str) -> Vec<u8> {
    let file = store.lookup(ROOT, name.as_bytes()).unwrap();
    read(store, file.ino, 0, 1 << 20)
}

/// The first number that a query answers.
fn number(database: &rusqlite::Connection, sql: &str) -> i64 {
    database.query_row(sql, (), |row| row.get(0)).unwrap()
}

#[test]
fn every_fsync_after_a_change_syncs_one_of_the_logs() {
    let (_dir, _, store) = new_store();
    let syncs = || {
        let counters = store.counters();
        counters["log_syncs"] + counters["redo_syncs"]
    };
    let before = syncs();
    for number in 0..5 {
        write_file(&store, &number.to_string(), b"x");
        store.fsync(ROOT, number % 2 == 0).unwrap();
    }
    // A commit that the clock makes between two of them syncs, too.
    assert!(syncs() - before >= 5);
    assert!(store.counters()["redo_syncs"] > 0, "all was committed");
    let again = || {
        let before = syncs();
        store.fsync(ROOT, false).unwrap();
        syncs() - before
    };
    // A commit by the clock may come in between, but once.
    assert_eq!((0..3).map(|_| again()).min(), Some(0));
}

fn create_file(store: &SqliteStore, name: &str) -> u64 {
    let file = store.create(&OWNER, ROOT, name.as_bytes(), &node(Kind::File));
    file.unwrap().ino
}

const MIB: u64 = 1 << 20;

#[test]
fn a_large_file_keeps_its_tail_in_a_file_that_is_removed_with_it() {
    let (dir, path, store) = new_store();
    let tails = dir.path().join("a.db-tails");
    let ino = create_file(&store, "big");
    store.write(&OWNER, ino, 0, &[1; HEAD as usize]).unwrap();
    assert!(!tails.exists(), "so much fits");
    store.write(&OWNER, ino, HEAD - 2, b"abcd").unwrap();
    let tail = tails.join(ino.to_string());
    assert_eq!(std::fs::read(&tail).unwrap(), b"cd");
    assert_eq!(read(&store, ino, HEAD - 3, 10), b"\x01abcd");
    assert!(store.getattr(ino).unwrap().blocks > HEAD / 512);

    let syncs = store.counters()["tail_syncs"];
    store.fsync(ino, true).unwrap();
    store.fsync(ino, true).unwrap();
    // The second has nothing left to sync.
    assert_eq!(store.counters()["tail_syncs"], syncs + 1);

    resize(&store, ino, 10);
    resize(&store, ino, 2 * MIB);
    assert!(read(&store, ino, 10, 3 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(store.seek(ino, 0, Seek::Hole).unwrap(), 32 * 1024);
    assert!(store.seek(ino, HEAD, Seek::Data).is_err());

    drop(store);
    let store = open(&path).unwrap();
    assert_eq!(store.getattr(ino).unwrap().size, 2 * MIB);
    let small = create_file(&store, "small");
    store.unlink(&OWNER, ROOT, b"small").unwrap();
    store.reclaim(small).unwrap();
    store.unlink(&OWNER, ROOT, b"big").unwrap();
    store.reclaim(ino).unwrap();
    // A tail goes only when nothing durable needs it any more.
    assert!(tail.exists());
    drop(store);
    assert!(!tail.exists());
    assert!(!tails.exists(), "what is left is one file");
}

#[test]
fn an_open_removes_tails_left_by_a_crash_and_no_other_file() {
    let (dir, path, store) = new_store();
    let tails = dir.path().join("a.db-tails");
    let (big, small) = (create_file(&store, "big"), create_file(&store, "small"));
    store.write(&OWNER, big, 0, &vec![7; 3 << 20]).unwrap();
    drop(store);
    for left in [&small.to_string(), "99", "readme"] {
        std::fs::write(tails.join(left), "left over").unwrap();
    }
    let store = open(&path).unwrap();
    assert_eq!(names_in(&tails), [big.to_string(), "readme".to_owned()]);
    assert!(read(&store, big, 0, 4 << 20) == vec![7; 3 << 20]);
}

#[test]
fn a_close_releases_the_space_reserved_for_a_growing_tail() {
    let (dir, path, store) = new_store();
    let ino = create_file(&store, "big");
    for mib in 0..5 {
        store.write(&OWNER, ino, mib * MIB, &[7; 1 << 20]).unwrap();
    }
    let tail = dir.path().join("a.db-tails").join(ino.to_string());
    let occupied = || std::os::unix::fs::MetadataExt::blocks(&tail.metadata().unwrap()) * 512;
    let reserved = occupied();
    assert!(reserved > 5 * MIB - HEAD, "{reserved}: no fallocate here?");
    assert!(store.getattr(ino).unwrap().blocks * 512 < 5 * MIB + 64 * 1024);
    drop(store);
    // ext4 may need a block for the list of its places.
    let released = 5 * MIB - HEAD..=5 * MIB - HEAD + 4096;
    assert!(released.contains(&occupied()), "{}", occupied());
    // The next open releases the space that a crash left reserved.
    let file = std::fs::File::options().write(true).open(&tail).unwrap();
    let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(file, keep, 0, 9 * MIB).unwrap();
    assert!(occupied() >= 9 * MIB);
    let store = open(&path).unwrap();
    assert!(released.contains(&occupied()), "{}", occupied());
    assert!(read(&store, ino, 0, 6 << 20) == vec![7; 5 << 20]);
}

#[test]
fn a_missing_tail_is_an_error_and_never_zeros() {
    let (dir, path, store) = new_store();
    let ino = create_file(&store, "big");
    store.write(&OWNER, ino, 0, &vec![7; 3 << 20]).unwrap();
    drop(store);
    assert_whole(&path);
    let tail = dir.path().join("a.db-tails").join(ino.to_string());

    std::fs::write(&tail, [7; 5]).unwrap();
    let missing = "past the first 256 KiB is missing";
    let of = format!("5 of {} bytes", 3 * MIB - HEAD);
    has(&check(&path).unwrap().problems[0], &[missing, &of]);

    std::fs::remove_file(&tail).unwrap();
    has(&check(&path).unwrap().problems[0], &["No such file"]);
    let store = open(&path).unwrap();
    let failed = store.read(ino, 0, 2 << 20, &mut Vec::new());
    fails(failed, Errno::IO, &["a.db-tails"]);
    // It must not come back as zeros.
    fails(store.write(&OWNER, ino, 2 * MIB, b"x"), Errno::IO, &[]);
    assert_eq!(read(&store, ino, 0, 100), [7; 100]);
}

#[test]
fn an_edit_of_one_byte_in_50_mib_writes_less_than_64_kib() {
    let (dir, path, store) = new_store();
    let log = dir.path().join("a.db-wal");
    let ino = create_file(&store, "big");
    for mib in 0..50 {
        store.write(&OWNER, ino, mib * MIB, &[7; 1 << 20]).unwrap();
    }
    let written = || log.metadata().unwrap().len();
    let offsets = [0, 200_000, HEAD - 1, HEAD, 30 * MIB + 5];
    for (later, offset) in offsets.into_iter().enumerate() {
        let caller = Caller { now: Timestamp(2 + later as i64), ..OWNER };
        // Empty the log, so that it then holds the edit alone. Retry while a checkpoint of the store runs.
        let other = rusqlite::Connection::open(&path).unwrap();
        eventually("the log is empty", || number(&other, "PRAGMA wal_checkpoint(TRUNCATE)") == 0);
        drop(other);
        assert_eq!(written(), 0);
        store.write(&caller, ino, offset, b"x").unwrap();
        eventually("the edit is in the log", || written() > 0);
        assert!(written() <= 64 * 1024, "{} at {offset}", written());
    }
}

#[test]
fn an_open_frees_a_file_that_was_unlinked_when_the_daemon_died() {
    let (_dir, path, store) = new_store();
    write_file(&store, "note", &[7; 100_000]);
    let ino = store.unlink(&OWNER, ROOT, b"note").unwrap().unwrap();
    drop(store);
    let store = open(&path).unwrap();
    assert!(store.getattr(ino).is_err());
    drop(store);
    let database = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(number(&database, "SELECT count(*) FROM chunk"), 0);
}

#[test]
fn a_second_open_fails_while_the_first_store_lives() {
    let (_dir, path, first) = new_store();
    let error = open(&path).unwrap_err();
    assert!(matches!(error, SqliteOpenError::Owned(..)), "{error}");
    has(&error.to_string(), &["in use by another ctxbench mount"]);
    drop(first);
    open(&path).unwrap();
}

#[test]
fn an_open_refuses_a_foreign_file_and_leaves_it_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");

    let refused = || {
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        error
    };

    let text = "this is text, and long enough to be looked at as a database header";
    std::fs::write(&path, text).unwrap();
    let error = refused();
    assert!(matches!(error, SqliteOpenError::Unknown { .. }), "{error}");

    std::fs::remove_file(&path).unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE t (n)").unwrap();
    drop(foreign);
    let error = refused();
    assert!(matches!(error, SqliteOpenError::Foreign { .. }), "{error}");

    std::fs::remove_file(&path).unwrap();
    drop(open(&path).unwrap());
    for version in [5, 99] {
        let other = rusqlite::Connection::open(&path).unwrap();
        other.pragma_update(None, "user_version", version).unwrap();
        drop(other);
        let words = format!("schema version {version}; this ctxbench knows version 6");
        for error in [open(&path).err(), check(&path).err()] {
            let error = error.unwrap().to_string();
            has(&error, &[&words]);
        }
    }

    let error = open(&dir.path().join("missing/dir/a.db")).unwrap_err();
    has(&error.to_string(), &["missing/dir/a.db"]);
}

#[test]
fn plain_sqlite_reads_a_database_while_it_is_open() {
    let (_dir, path, store) = new_store();
    write_file(&store, "note.md", b"# text\n");
    store.sync().unwrap();
    let reader = rusqlite::Connection::open(&path).unwrap();
    let (name, size): (String, i64) = reader
        .query_row("SELECT path, size FROM file WHERE ino != 1", (), |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert_eq!((name.as_str(), size), ("/note.md", 7));
    let content = "SELECT CAST(bytes AS TEXT) FROM content JOIN file USING (ino) WHERE path = '/note.md'";
    let text: String = reader.query_row(content, (), |row| row.get(0)).unwrap();
    assert_eq!(text, "# text\n");
    write_file(&store, "more.md", b"still writable");
}

#[test]
fn several_threads_see_one_file_system() {
    let (_dir, _, store) = new_store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for number in 0..50 {
                    let name = format!("{thread}-{number}");
                    write_file(store, &name, name.as_bytes());
                    assert_eq!(read_file(store, &name), name.as_bytes());
                }
            });
        }
    });
    assert_eq!(names(&store, ROOT).len(), 200);
}

#[test]
fn a_check_reports_each_damage_and_nothing_else() {
    let (dir, path, store) = new_store();
    write_file(&store, "a", &vec![7; 100_000]);
    write_file(&store, "b", b"small");
    store.link(&OWNER, 2, ROOT, b"c").unwrap();
    // A check finds nothing, neither on the open database nor after it is closed.
    assert_whole(&path);
    drop(store);
    let whole = check(&path).unwrap();
    assert_eq!(whole.problems, Vec::<String>::new());
    assert_eq!((whole.inodes, whole.names, whole.orphans), (3, 3, 0));

    let chunk = "INSERT INTO chunk (id, bytes) VALUES (77 << 24, x'00')".to_owned();
    let xattr = "INSERT INTO xattr VALUES (77, x'61', x'62')".to_owned();
    let inode = |set: &str| format!("UPDATE inode SET {set}");
    let slot = "UPDATE dirent SET slot = slot + 100 WHERE ino = 3".to_owned();
    let gone = "DELETE FROM inode WHERE ino = 3".to_owned();
    for (damage, found) in [
        (gone, "leads to no inode"),
        (inode("nlink = 5 WHERE ino = 2"), "the link count of a file"),
        (inode("nlink = 9 WHERE ino = 1"), "2 plus its subdirectories"),
        (inode("size = 10 WHERE ino = 2"), "past the end"),
        (inode("blocks = 0 WHERE ino = 2"), "block count of a file is wrong"),
        (inode("mode = 16877 WHERE ino = 3"), "the type of a name differs"),
        (inode("parent = 7 WHERE ino = 1"), "root"),
        (slot, "lookup does not find"),
        (xattr, "extended attribute"),
        (chunk, "belongs to no file"),
    ] {
        let copy = dir.path().join("damaged.db");
        std::fs::copy(&path, &copy).unwrap();
        let connection = writer(&copy);
        assert!(connection.execute(&damage, ()).unwrap() > 0, "{damage}");
        drop(connection);
        has(&check(&copy).unwrap().problems.join("\n"), &[found]);
    }
    assert!(check(&dir.path().join("missing.db")).is_err());
}

#[test]
fn a_store_punches_a_range_far_larger_than_its_data() {
    let (_dir, _, store) = new_store();
    write_file(&store, "a", &vec![7; 100_000]);
    resize(&store, 2, 400 << 30);
    let punched = store.fallocate(&OWNER, 2, Allocation::PunchHole, 10, 399 << 30);
    punched.unwrap();
    let bytes = read(&store, 2, 0, 20);
    assert_eq!(bytes, [vec![7; 10], vec![0; 10]].concat());
    assert_eq!(store.getattr(2).unwrap().blocks, 64);
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn what_lies_in_the_place_of_a_file_of_a_store_is_never_written_to_nor_waited_for() {
    let (dir, path, store) = new_store();
    write_file(&store, "note", &vec![1; HEAD as usize + 10]);
    let killed = dir.path().join("b.db");
    copy_cache(&path, &killed);
    drop(store);
    let target = dir.path().join("of another program");
    let (new, inside) = (dir.path().join("new.db"), dir.path().join("inside"));
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("2"), b"a file named as a tail").unwrap();
    let suffixes = ["-wal", "-shm", "-journal", "-redo", "-redo-new", "-sums", "-tails"];
    for database in [&path, &killed, &new] {
        for suffix in suffixes {
            let copy = dir.path().join("c.db");
            if database.exists() {
                copy_cache(database, &copy);
            }
            let beside = dir.path().join(format!("c.db{suffix}"));
            for kind in 0..3 {
                let _ = std::fs::remove_dir_all(&beside);
                let _ = std::fs::remove_file(&beside);
                std::fs::write(&target, b"precious").unwrap();
                match kind {
                    0 if suffix == "-tails" => symlink(&inside, &beside).unwrap(),
                    0 => symlink(&target, &beside).unwrap(),
                    1 if suffix == "-tails" => std::fs::write(&beside, b"").unwrap(),
                    1 => std::fs::create_dir(&beside).unwrap(),
                    _ => mknodat(CWD, &beside, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                }
                let name = format!("c.db{suffix} is ");
                let name = name.as_str();
                let refused = open(&copy).unwrap_err().to_string();
                has(&refused, &[name, "move it away"]);
                if copy.exists() {
                    has(&check(&copy).unwrap_err().to_string(), &[name]);
                    has(&go_on_without_log(&copy).unwrap_err().to_string(), &[name]);
                }
                assert_eq!(std::fs::read(&target).unwrap(), b"precious");
                assert_eq!(names_in(&inside), ["2"]);
            }
            let _ = std::fs::remove_file(&beside);
            for file in names_in(dir.path()) {
                if file.starts_with("c.db") {
                    let file = dir.path().join(file);
                    let _ = std::fs::remove_dir_all(&file);
                    let _ = std::fs::remove_file(&file);
                }
            }
        }
    }
}

#[test]
fn an_open_without_its_log_fails_and_changes_nothing() {
    let (dir, path, store) = new_store();
    write_file(&store, "note", b"acknowledged");
    let left = dir.path().join("left");
    std::fs::create_dir(&left).unwrap();
    let copy = left.join("b.db");
    copy_cache(&path, &copy);
    drop(store);
    let (log, kept) = (left.join("b.db-wal"), dir.path().join("kept-wal"));
    std::fs::rename(&log, &kept).unwrap();
    let before = std::fs::read(&copy).unwrap();

    for _ in 0..2 {
        let parts = ["b.db-wal is missing", "put the log back", "--without-log"];
        has(&log_gone(&copy), &parts);
    }
    has(&check(&copy).unwrap().problems[0], &["b.db-wal is missing"]);
    // An empty log in its place counts as missing.
    std::fs::write(&log, b"").unwrap();
    log_gone(&copy);
    assert_eq!(names_in(&left), ["b.db", "b.db-redo"]);
    assert_eq!(std::fs::read(&copy).unwrap(), before);

    std::fs::rename(&kept, &log).unwrap();
    let store = open(&copy).unwrap();
    assert_eq!(read_file(&store, "note"), b"acknowledged");
}

#[test]
fn go_on_without_log_accepts_a_database_whose_log_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    assert!(!go_on_without_log(&path).unwrap(), "nothing is there");
    let store = open(&path).unwrap();
    write_file(&store, "early", b"early");
    drop(store);
    let store = open(&path).unwrap();
    write_file(&store, "late", b"late");
    let is_accepted = go_on_without_log(&path).unwrap();
    assert!(!is_accepted, "it is in use, with its log");
    let copy = dir.path().join("b.db");
    copy_cache(&path, &copy);
    drop(store);
    assert!(!go_on_without_log(&copy).unwrap(), "the log is there");
    std::fs::remove_file(dir.path().join("b.db-wal")).unwrap();
    assert!(go_on_without_log(&copy).unwrap());
    assert!(!go_on_without_log(&copy).unwrap(), "that was seen to");
    let store = open(&copy).unwrap();
    assert_eq!(read_file(&store, "early"), b"early");
    assert!(store.lookup(ROOT, b"late").is_err());
    drop(store);
    assert_whole(&copy);
}

#[test]
fn go_on_without_log_refuses_an_inconsistent_database() {
    let (dir, path, store) = new_store();
    write_file(&store, "note", b"acknowledged");
    drop(store);
    let store = open(&path).unwrap();
    let copy = killed_without_log(dir.path(), &path);
    drop(store);
    // A killed checkpoint may leave a name without its inode.
    let torn = writer(&copy);
    let note = "SELECT ino FROM dirent WHERE name = CAST('note' AS BLOB)";
    let tear = format!("DELETE FROM inode WHERE ino = ({note})");
    torn.execute(&tear, ()).unwrap();
    drop(torn);
    let before = std::fs::read(&copy).unwrap();
    let error = go_on_without_log(&copy).unwrap_err();
    assert!(matches!(error, SqliteOpenError::NotWhole { .. }), "{error}");
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    log_gone(&copy);
}

#[test]
fn an_open_without_the_log_survives_a_removed_tail() {
    let (dir, path, store) = new_store();
    write_file(&store, "note", b"acknowledged");
    write_file(&store, "long", &[7; HEAD as usize + 1]);
    drop(store);
    let store = open(&path).unwrap();
    let long = store.lookup(ROOT, b"long").unwrap().ino;
    store.unlink(&OWNER, ROOT, b"long").unwrap();
    store.reclaim(long).unwrap();
    // As the next background sync does.
    let tail = dir.path().join("a.db-tails").join(long.to_string());
    std::fs::remove_file(tail).unwrap();
    let copy = killed_without_log(dir.path(), &path);
    drop(store);

    assert!(go_on_without_log(&copy).unwrap());
    let store = open(&copy).unwrap();
    assert_eq!(read_file(&store, "note"), b"acknowledged");
    let failed = store.read(long, HEAD, 1, &mut Vec::new());
    assert_eq!(failed.unwrap_err().errno, Errno::IO);
    assert_eq!(read(&store, long, 0, 16), [7; 16]);
    store.unlink(&OWNER, ROOT, b"long").unwrap();
}

#[test]
fn an_open_of_a_truncated_database_keeps_its_logs_and_tails() {
    let (dir, path, store) = new_store();
    write_file(&store, "long", &[7; HEAD as usize + 1]);
    let copy = dir.path().join("b.db");
    copy_cache(&path, &copy);
    drop(store);
    let log = dir.path().join("b.db-wal");
    let redo = dir.path().join("b.db-redo");
    let tails = dir.path().join("b.db-tails");
    let is_cut = |left: &Path| {
        let error = open(&copy).unwrap_err();
        let is_cut = matches!(&error, SqliteOpenError::Cut { beside, .. } if *beside == left);
        assert!(is_cut, "{error}");
    };
    let whole = std::fs::read(&copy).unwrap();
    for left in [None, Some(&b""[..]), Some(b"S")] {
        match left {
            None => std::fs::remove_file(&copy).unwrap(),
            Some(bytes) => std::fs::write(&copy, bytes).unwrap(),
        }
        is_cut(&log);
        // A check must not open it either: SQLite would remove the log of an empty file.
        let error = check(&copy).unwrap_err();
        assert!(matches!(&error, SqliteOpenError::Cut { .. }), "{error}");
        let kept = dir.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::rename(&log, kept.join("b.db-wal")).unwrap();
        is_cut(&redo);
        std::fs::rename(&redo, kept.join("b.db-redo")).unwrap();
        is_cut(&tails);
        std::fs::rename(kept.join("b.db-wal"), &log).unwrap();
        std::fs::rename(kept.join("b.db-redo"), &redo).unwrap();
        std::fs::remove_dir(&kept).unwrap();
    }
    std::fs::write(&copy, whole).unwrap();
    let store = open(&copy).unwrap();
    assert_eq!(read_file(&store, "long").len(), HEAD as usize + 1);
}

#[test]
fn an_open_accepts_a_log_that_another_program_checkpointed() {
    let (dir, path, store) = new_store();
    write_file(&store, "note", b"acknowledged");
    store.sync().unwrap();
    let copy = dir.path().join("b.db");
    copy_cache(&path, &copy);
    drop(store);
    // The last connection checkpoints and removes the log when it closes.
    let other = rusqlite::Connection::open(&copy).unwrap();
    assert_eq!(number(&other, "SELECT count(*) FROM file"), 2);
    drop(other);
    assert!(!dir.path().join("b.db-wal").exists());
    assert_whole(&copy);
    assert_eq!(read_file(&open(&copy).unwrap(), "note"), b"acknowledged");
}

#[test]
fn an_open_detects_a_lost_log_also_after_a_checkpoint_in_the_background() {
    let (dir, path, store) = new_store();
    for number in 0..500 {
        write_file(&store, &number.to_string(), &[number as u8; 40_000]);
    }
    eventually("a checkpoint", || store.counters()["checkpoints"] > 0);
    for number in 0..500 {
        assert!(read_file(&store, &number.to_string()) == [number as u8; 40_000]);
    }
    let copy = killed_without_log(dir.path(), &path);
    drop(store);
    log_gone(&copy);
    // After an orderly end, the database alone is complete.
    std::fs::copy(&path, &copy).unwrap();
    assert!(read_file(&open(&copy).unwrap(), "499") == [499_u32 as u8; 40_000]);
}

#[test]
fn a_read_sees_all_of_a_write_or_nothing() {
    let (_dir, _, store) = new_store();
    // In rows, across the end of the head, and in the tail.
    for offset in [0, HEAD - 50_000, HEAD + 10_000] {
        let ino = create_file(&store, &offset.to_string());
        store.write(&OWNER, ino, offset, &[0; 100_000]).unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..300_u32 {
                    let bytes = [round as u8; 100_000];
                    store.write(&OWNER, ino, offset, &bytes).unwrap();
                }
                is_done.store(true, std::sync::atomic::Ordering::Release);
            });
            while !is_done.load(std::sync::atomic::Ordering::Acquire) {
                let bytes = read(&store, ino, offset, 100_000);
                assert_eq!(bytes.len(), 100_000);
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "at {offset}");
            }
        });
    }
}

/// Changes one bit of a file where it holds `text`.
fn flip_a_bit_of(path: &Path, text: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(text.len()).position(|piece| piece == text);
    bytes[at.unwrap()] ^= 4;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_content_is_an_error_and_never_data() {
    let (_dir, path, store) = new_store();
    write_file(&store, "small", b"the small one");
    let mut content = vec![7; 100_000];
    content[60_000..60_013].copy_from_slice(b"the large one");
    write_file(&store, "large", &content);
    write_file(&store, "whole", b"another");
    drop(store);
    flip_a_bit_of(&path, b"the small one");
    flip_a_bit_of(&path, b"the large one");

    let problems = check(&path).unwrap().problems.join("\n");
    let lost = ["lost: /small: its first", "lost: /large: its first"];
    has(&problems, &lost);
    has(&problems, &["a page of the database is damaged"]);

    let store = open(&path).unwrap();
    let ino = |name: &[u8]| store.lookup(ROOT, name).unwrap().ino;
    let failed = |result| fails::<()>(result, Errno::IO, &["is damaged"]);
    let mut bytes = Vec::new();
    failed(store.read(ino(b"small"), 0, 4, &mut bytes));
    failed(store.read(ino(b"large"), 0, 100_000, &mut bytes));
    // A partial write must not make damaged content valid.
    failed(store.write(&OWNER, ino(b"large"), 40_000, b"part"));
    failed(store.read(ino(b"large"), 40_000, 100, &mut bytes));
}
