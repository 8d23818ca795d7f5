//! `--rebuild-cache` of the `s3` store: what is damaged does not go up, nothing is half taken over, and what was cut
//! short is done again.

use crate::common;
use crate::s3;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backends::s3::{S3Config, S3OpenError, S3Store};
use backends::store::{Change, Errno, ROOT, Store, XattrMode};
use common::*;
use s3::{Machines, agent, config, is_settled, now, object_of, text, try_text, write};

/// A file that belongs to a database.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", file.display()))
}

/// Renames a database with what belongs to it.
fn rename(from: &Path, to: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        std::fs::rename(beside(from, suffix), beside(to, suffix)).unwrap();
    }
}

/// Copies a cache in the state in which a killed daemon leaves it.
fn copy_killed(cache: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        std::fs::copy(beside(cache, suffix), beside(to, suffix)).unwrap();
    }
    std::fs::create_dir(beside(to, "-tails")).unwrap();
    for tail in std::fs::read_dir(beside(cache, "-tails")).unwrap() {
        let tail = tail.unwrap();
        let copy = beside(to, "-tails").join(tail.file_name());
        std::fs::copy(tail.path(), copy).unwrap();
    }
}

fn rebuild(config: S3Config, cache: &Path) -> S3Store {
    S3Store::rebuild(config, cache, &caller(1)).unwrap()
}

fn note(store: &S3Store) -> &str {
    let [note] = store.notes() else {
        panic!("{:?}", store.notes())
    };
    note
}

#[test]
fn a_flipped_bit_does_not_go_up() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "damaged", b"good");
    a.upload().unwrap();
    let ino = write(&a, "damaged", b"changed");
    write(&a, "whole", b"changed");
    drop(a);
    let db = rusqlite::Connection::open(&cache).unwrap();
    let flip = "UPDATE chunk SET bytes = CAST('chanGed' AS BLOB) WHERE id >> 24 = ?1";
    assert_eq!(db.execute(flip, [ino as i64]).unwrap(), 1);
    drop(db);

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("1 files and 0 removals; 1 could not be")
            && note(&a).contains("damaged (it is damaged at byte 0"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(text(&a, "damaged"), "good");
    assert_eq!(object_of(&agent, "damaged").unwrap(), b"good");
    assert_eq!(object_of(&agent, "whole").unwrap(), b"changed");
    assert_eq!(names(&a, ROOT), ["damaged", "whole"]);
}

#[test]
fn a_piece_that_is_missing_in_a_damaged_cache_is_no_hole() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "cut", b"good");
    a.upload().unwrap();
    let ino = write(&a, "cut", &[b'c'; 100_000]);
    write(&a, "whole", &[b'w'; 100_000]);
    let sparse = write(&a, "sparse", b"begins");
    a.write(&now(), sparse, 200_000, b"ends").unwrap();
    drop(a);
    let db = rusqlite::Connection::open(&cache).unwrap();
    let cut = "DELETE FROM chunk WHERE id = (?1 << 24) + 1";
    assert_eq!(db.execute(cut, [ino as i64]).unwrap(), 1);
    drop(db);
    damage(&cache, "orphan");

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("cut (some of it is missing)") && note(&a).contains("2 files"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    assert_eq!(object_of(&agent, "cut").unwrap(), b"good");
    assert!(object_of(&agent, "whole").unwrap() == [b'w'; 100_000]);
    assert_eq!(object_of(&agent, "sparse").unwrap().len(), 200_004);
}

/// Overwrites the first page of a table or an index.
fn damage(file: &Path, what: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let page: u32 = db.query_row(sql, [what], |row| row.get(0)).unwrap();
    let size: u32 = db
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .unwrap();
    db.close().unwrap();
    let file = File::options().write(true).open(file).unwrap();
    file.write_all_at(&vec![0xff; size as usize], u64::from((page - 1) * size))
        .unwrap();
}

#[test]
fn a_file_that_cannot_all_be_read_is_as_the_bucket_has_it() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "changed", b"good");
    a.upload().unwrap();
    let changed = write(&a, "changed", b"not all of it");
    let new = write(&a, "new", b"not all of it");
    for ino in [changed, new] {
        a.setxattr(&now(), ino, b"user.tag", b"t", XattrMode::Set)
            .unwrap();
    }
    drop(a);
    damage(&cache, "xattr");
    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(note(&a).contains("0 files and 0 removals"), "{}", note(&a));
    assert!(note(&a).contains("2 could not be"), "{}", note(&a));
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(names(&a, ROOT), ["changed"]);
    assert_eq!(text(&a, "changed"), "good");
    assert_eq!(object_of(&agent, "changed").unwrap(), b"good");
    assert_eq!(object_of(&agent, "new"), None);
}

#[test]
fn nothing_goes_up_before_all_is_taken_over() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    let files: Vec<String> = (0..100).map(|nth| format!("n{nth}")).collect();
    for name in &files {
        write(&a, name, b"good");
    }
    a.upload().unwrap();
    // Who has just uploaded looks again soon, and takes along what has changed by then.
    drop(a);
    let a = machines.mount(config(&agent, "alice"));
    for name in &files {
        write(&a, name, &vec![b'2'; 200_000]);
    }
    drop(a);
    let eager = S3Config {
        delay: Duration::from_millis(10),
        ..config(&agent, "alice")
    };
    let a = rebuild(eager, &cache);
    assert!(note(&a).contains("100 files"), "{}", note(&a));
    a.upload().unwrap();
    is_settled(&a);
    let counters = a.counters();
    assert_eq!(counters["s3_batches"], 1);
    assert_eq!(counters["s3_uploaded"], 100);
}

#[test]
fn a_rebuild_that_was_cut_short_begins_anew() {
    let kills = [
        "before the database",
        "before the new cache",
        "in the new cache",
    ];
    for kill in kills {
        let (machines, agent) = (Machines::new(), agent());
        let cache = machines.cache("alice.db");
        let killed = machines.cache("killed.db");
        let a = machines.mount(config(&agent, "alice"));
        let large = vec![b'l'; 400_000];
        for name in ["changed", "deleted"] {
            write(&a, name, b"1");
        }
        a.upload().unwrap();
        write(&a, "changed", b"2");
        write(&a, "large", &large);
        a.unlink(&now(), ROOT, b"deleted").unwrap();
        copy_killed(&cache, &killed);
        drop(a);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&cache, suffix));
        }
        std::fs::remove_dir_all(beside(&cache, "-tails")).unwrap();

        let name = "alice.db.set-aside-20260101T000000Z";
        let aside = machines.cache(name);
        rename(&killed, &aside, &["-tails", "-wal"]);
        match kill {
            "before the database" => rename(&killed, &cache, &[""]),
            "before the new cache" => rename(&killed, &aside, &[""]),
            _ => {
                rename(&killed, &aside, &[""]);
                let new = machines.mount(config(&agent, "alice"));
                let ino = new.lookup(ROOT, b"changed").unwrap().ino;
                let emptied = Change {
                    size: Some(0),
                    ..Change::default()
                };
                new.setattr(&now(), ino, &emptied).unwrap();
                write(&new, "large", &large[..300_000]);
            }
        }
        let note_file = beside(&cache, "-rebuilding");
        std::fs::write(&note_file, format!("{name}\n")).unwrap();

        let open = || S3Store::open(config(&agent, "alice"), &cache, &caller(1));
        let told = open().unwrap_err();
        assert!(
            matches!(told, S3OpenError::Unfinished { .. }),
            "{kill}: {told}"
        );
        let told = told.to_string();
        assert!(
            told.contains(name) && told.contains("fix: mount it with --rebuild-cache again"),
            "{kill}: {told}"
        );

        let a = rebuild(config(&agent, "alice"), &cache);
        assert!(
            note(&a).contains("2 files and 1 removals") && !note(&a).contains("could not be"),
            "{kill}: {}",
            note(&a)
        );
        assert!(!note_file.exists(), "{kill}");
        a.upload().unwrap();
        is_settled(&a);
        assert_eq!(names(&a, ROOT), ["changed", "large"], "{kill}");
        assert_eq!(object_of(&agent, "changed").unwrap(), b"2", "{kill}");
        assert!(object_of(&agent, "large").unwrap() == large, "{kill}");
        assert_eq!(object_of(&agent, "deleted"), None, "{kill}");
        drop(a);
        drop(open().unwrap());
    }
}

#[test]
fn what_has_only_lost_its_name_is_not_removed() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    for name in ["lost", "deleted"] {
        write(&a, name, b"1");
    }
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    drop(a);
    // The trigger journals it, as if it had been changed before its leaf was lost.
    let db = rusqlite::Connection::open(&cache).unwrap();
    let lose = "DELETE FROM dirent WHERE name = CAST('lost' AS BLOB)";
    assert_eq!(db.execute(lose, ()).unwrap(), 1);
    drop(db);
    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("0 files and 1 removals")
            && note(&a).contains("lost (its removal: its file is still there, without a name)"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    assert_eq!(names(&a, ROOT), ["lost"]);
    assert_eq!(object_of(&agent, "lost").unwrap(), b"1");
    assert_eq!(object_of(&agent, "deleted"), None);
}

#[test]
fn without_its_log_nothing_is_removed() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "deleted", b"1");
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    drop(a);
    let a = machines.mount(config(&agent, "alice"));
    assert_eq!(try_text(&a, "deleted"), Err(Errno::NOENT));
    let copy = machines.cache("copy.db");
    std::fs::copy(&cache, &copy).unwrap();
    drop(a);
    let a = rebuild(config(&agent, "alice"), &copy);
    assert!(
        note(&a).contains("1 removals were not taken over, as its log is gone: deleted"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    assert_eq!(text(&a, "deleted"), "1");
    assert_eq!(object_of(&agent, "deleted").unwrap(), b"1");
}

#[test]
fn what_was_written_into_a_file_all_of_whose_parts_had_come_is_saved() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    let big = write(&a, "big", &vec![b'1'; (4 << 20) + 1]);
    a.upload().unwrap();
    a.write(&now(), big, 0, b"new").unwrap();
    drop(a);
    // As earlier builds could leave it.
    let db = rusqlite::Connection::open(&cache).unwrap();
    let stub = "INSERT INTO s3_stub (ino, key, etag, size, meta)
      SELECT ino, key, etag, 1, meta FROM s3_object WHERE ino = ?1";
    assert_eq!(db.execute(stub, [big as i64]).unwrap(), 1);
    let parts = "INSERT INTO s3_part VALUES (?1, 0), (?1, 1)";
    assert_eq!(db.execute(parts, [big as i64]).unwrap(), 2);
    drop(db);

    let a = rebuild(config(&agent, "alice"), &cache);
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(&object_of(&agent, "big").unwrap()[..5], b"new11");
}
