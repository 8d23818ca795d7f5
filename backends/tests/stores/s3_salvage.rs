//! What `--rebuild-cache` of the `s3` store must not destroy: a log beside an empty file, files whose new names could
//! not be taken over, content that is in the bucket only.

use crate::common;
use crate::s3;

use std::path::{Path, PathBuf};
use std::process::Command;

use backends::s3::{S3Config, S3OpenError, S3Store};
use backends::store::{Kind, NewNode, ROOT, RenameMode, Store};
use common::*;
use s3::{
    Machines, agent, config, config_of, is_settled, now, object_of, rename, service, text, text_in,
    write, write_in,
};
use servers::Access;

/// A file that belongs to a database.
fn beside(file: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", file.display()))
}

fn open(config: S3Config, cache: &Path) -> Result<S3Store, S3OpenError> {
    S3Store::open(config, cache, &caller(1))
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

/// The one file beside a cache that was set aside, and whose name ends so.
fn set_aside(cache: &Path, suffix: &str) -> PathBuf {
    let begins = format!(
        "{}.set-aside-",
        cache.file_name().unwrap().to_str().unwrap()
    );
    let all = std::fs::read_dir(cache.parent().unwrap()).unwrap();
    let names = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let found: Vec<String> = names
        .filter(|name| {
            let time = name.strip_prefix(&begins);
            time.and_then(|time| time.strip_suffix(suffix))
                .is_some_and(|time| !time.contains('-'))
        })
        .collect();
    let [name] = found.try_into().unwrap();
    cache.with_file_name(name)
}

fn link_to(store: &S3Store, name: &str, target: &str) {
    let link = NewNode {
        target: target.as_bytes(),
        ..node(Kind::Symlink)
    };
    store.create(&now(), ROOT, name.as_bytes(), &link).unwrap();
}

#[test]
fn the_log_of_a_cache_that_was_cut_to_nothing_is_set_aside_with_it() {
    // SQLite takes a file of one byte for an empty one.
    for length in [0, 1] {
        let (machines, agent) = (Machines::new(), agent());
        let a = machines.mount(config(&agent, "alice"));
        write(&a, "n", b"not up");
        // As a crash leaves it: with its log.
        let (cache, copy) = (machines.cache("alice.db"), machines.cache("copy.db"));
        std::fs::copy(beside(&cache, "-wal"), beside(&copy, "-wal")).unwrap();
        std::fs::write(&copy, vec![b'x'; length]).unwrap();
        let log = std::fs::read(beside(&copy, "-wal")).unwrap();
        assert!(!log.is_empty());
        drop(a);
        let told = open(config(&agent, "alice"), &copy).unwrap_err();
        assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
        assert!(told.to_string().contains("--rebuild-cache"), "{told}");

        let a = rebuild(config(&agent, "alice"), &copy);
        let kept = std::fs::read(set_aside(&copy, "-wal")).unwrap();
        assert!(kept == log, "{length}: the log is as it was");
        assert!(
            note(&a).contains("nothing can be read of it") && note(&a).contains("only there"),
            "{}",
            note(&a)
        );
    }
}

#[test]
fn what_is_left_of_a_cache_without_its_database_is_set_aside() {
    for left in ["-wal", "-tails"] {
        let (machines, agent) = (Machines::new(), agent());
        let a = machines.mount(config(&agent, "alice"));
        write(&a, "kept", b"kept");
        write(&a, "long", &[b'l'; 300_000]);
        a.upload().unwrap();
        write(&a, "n", b"not up");
        let (cache, copy) = (machines.cache("alice.db"), machines.cache("copy.db"));
        match left {
            "-wal" => {
                std::fs::copy(beside(&cache, left), beside(&copy, left)).unwrap();
            }
            _ => {
                std::fs::create_dir(beside(&copy, left)).unwrap();
                std::fs::write(beside(&copy, left).join("7"), b"tail").unwrap();
            }
        }
        drop(a);
        let told = open(config(&agent, "alice"), &copy).unwrap_err();
        assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
        assert!(told.to_string().contains("--rebuild-cache"), "{told}");

        let a = rebuild(config(&agent, "alice"), &copy);
        assert!(set_aside(&copy, left).exists(), "{left}");
        assert!(
            note(&a).contains("nothing can be read of it") && note(&a).contains("only there"),
            "{left}: {}",
            note(&a)
        );
        assert_eq!(names(&a, ROOT), ["kept", "long"]);
        assert_eq!(text(&a, "kept"), "kept");
        drop(a);
        drop(open(config(&agent, "alice"), &copy).unwrap());
    }
}

#[test]
fn a_damaged_file_that_was_renamed_stays_in_the_bucket() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    let ino = write(&a, "a", b"good");
    write(&a, "removed", b"1");
    a.upload().unwrap();
    rename(&a, "a", "b", RenameMode::Replace);
    a.unlink(&now(), ROOT, b"removed").unwrap();
    drop(a);
    let db = rusqlite::Connection::open(&cache).unwrap();
    let flip = "UPDATE chunk SET bytes = CAST('gooD' AS BLOB) WHERE id >> 24 = ?1";
    assert_eq!(db.execute(flip, [ino as i64]).unwrap(), 1);
    drop(db);

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("0 files and 1 removals")
            && note(&a).contains("b (it is damaged at byte 0")
            && note(&a).contains("a (its removal: its file could not be taken over"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(names(&a, ROOT), ["a"]);
    assert_eq!(object_of(&agent, "a").unwrap(), b"good");
    assert_eq!(object_of(&agent, "removed"), None);
}

#[test]
fn an_unread_file_whose_new_name_was_taken_is_kept_beside_it() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "a", b"the only copy");
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    rename(&a, "a", "b", RenameMode::Replace);
    drop(a);
    write(&b, "b", b"bob's");
    b.upload().unwrap();

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("1 files and") && note(&a).contains("1 of the files beside"),
        "{}",
        note(&a)
    );
    assert!(!note(&a).contains("could not be"), "{}", note(&a));
    a.upload().unwrap();
    b.pull().unwrap();
    s3::is_kept_beside(&[&a, &b]);
}

#[test]
fn unread_files_that_changed_places_keep_their_content() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let b = machines.mount(config(&agent, "bob"));
    for name in [
        "a", "b", "c", "linked", "over", "replaced", "under", "x", "y",
    ] {
        write(&b, name, name.as_bytes());
    }
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    // Each makes room for the next.
    for (from, to) in [("c", "d"), ("b", "c"), ("a", "b")] {
        rename(&a, from, to, RenameMode::Replace);
    }
    // A new file has the name of one that was moved away.
    rename(&a, "under", "moved", RenameMode::Replace);
    write(&a, "under", b"new");
    rename(&a, "over", "replaced", RenameMode::Replace);
    let linked = a.lookup(ROOT, b"linked").unwrap().ino;
    a.link(&now(), linked, ROOT, b"second").unwrap();
    let exchange = RenameMode::Exchange;
    a.rename(&now(), (ROOT, b"x"), (ROOT, b"y"), exchange)
        .unwrap();
    drop(a);

    let a = rebuild(config(&agent, "alice"), &cache);
    a.upload().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        let all = names(store, ROOT);
        let mut found: Vec<(&str, String)> = all
            .iter()
            .map(|name| (name.as_str(), text(store, name)))
            .collect();
        let is_of_the_exchange =
            |(name, _): &(&str, String)| name.starts_with('x') || name.starts_with('y');
        let mut exchanged: Vec<String> = found
            .extract_if(.., |pair| is_of_the_exchange(pair))
            .map(|(_, content)| content)
            .collect();
        exchanged.sort();
        // One of them may be kept beside the other, but both are there.
        assert_eq!(exchanged, ["x", "y"], "{all:?}");
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, content)| (*name, content.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("b", "a"),
                ("c", "b"),
                ("d", "c"),
                ("linked", "linked"),
                ("moved", "under"),
                ("replaced", "over"),
                ("second", "linked"),
                ("under", "new"),
            ],
            "{}",
            note(&a)
        );
    }
}

#[test]
fn a_symbolic_link_that_was_replaced_is_no_conflict() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    link_to(&a, "link", "old");
    link_to(&a, "contested", "old");
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    for name in ["link", "contested"] {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
        link_to(&a, name, "new");
    }
    drop(a);
    b.unlink(&now(), ROOT, b"contested").unwrap();
    link_to(&b, "contested", "bob's");
    b.upload().unwrap();

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("2 files and 0 removals, 1 of the files beside"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        let target = |name: &str| {
            let ino = store.lookup(ROOT, name.as_bytes()).unwrap().ino;
            String::from_utf8(store.readlink(ino).unwrap()).unwrap()
        };
        assert_eq!(
            names(store, ROOT),
            ["contested", "contested.conflict-alice-1", "link"]
        );
        assert_eq!(target("link"), "new");
        assert_eq!(target("contested"), "bob's");
        assert_eq!(target("contested.conflict-alice-1"), "new");
    }
}

#[test]
fn what_was_removed_below_a_directory_that_is_lost_is_not_looked_for_in_the_root() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    create(&a, ROOT, "x", Kind::Directory);
    a.upload().unwrap();
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    write_in(&a, dir, "below", b"below");
    create(&a, dir, "x", Kind::Directory);
    a.rmdir(&now(), dir, b"x").unwrap();
    drop(a);
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "d", b"a file");
    b.upload().unwrap();

    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("1 files and 0 removals")
            && note(&a).contains("d (a file has its name in the bucket)"),
        "{}",
        note(&a)
    );
    assert_eq!(names(&a, ROOT), ["below", "d", "x"]);
    assert_eq!(text_in(&a, ROOT, "below"), "below");
}

/// Says to the test below that it is to rebuild a cache, and of what.
const REBUILD: &str = "CTXBENCH_TEST_REBUILD";

#[test]
fn no_room_for_the_new_cache_is_no_damage_of_the_old_one() {
    if let Ok(what) = std::env::var(REBUILD) {
        return rebuild_without_room(&what);
    }
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    let long = "0123456789abcdef".repeat(20 << 16);
    write(&a, "short", b"short");
    write(&a, "removed", b"1");
    a.upload().unwrap();
    write(&a, "long", long.as_bytes());
    a.unlink(&now(), ROOT, b"removed").unwrap();
    drop(a);

    let access = &service().access;
    let what = [
        &access.endpoint,
        &access.access_key,
        &access.secret_key,
        &access.region,
        &agent,
        cache.to_str().unwrap(),
    ];
    // Files of no more than 8 or 16 MiB, whatever a block is to this shell.
    let limited = r#"trap "" XFSZ; ulimit -f 16384; exec "$0" --exact "$1" --nocapture"#;
    let test = "s3_salvage::no_room_for_the_new_cache_is_no_damage_of_the_old_one";
    let done = Command::new("sh")
        .args(["-c", limited])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(REBUILD, what.map(str::to_owned).join("\n"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && told.contains("1 passed"),
        "{told}{}",
        String::from_utf8_lossy(&done.stderr)
    );

    let told = open(config(&agent, "alice"), &cache).unwrap_err();
    assert!(matches!(told, S3OpenError::Unfinished { .. }), "{told}");
    let a = rebuild(config(&agent, "alice"), &cache);
    assert!(
        note(&a).contains("1 files and 1 removals") && !note(&a).contains("could not be"),
        "{}",
        note(&a)
    );
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(names(&a, ROOT), ["long", "short"]);
    assert!(text(&a, "long") == long);
}

/// In a process whose files cannot grow.
fn rebuild_without_room(what: &str) {
    let what: Vec<&str> = what.split('\n').collect();
    let [endpoint, access_key, secret_key, region, agent, cache] = what.try_into().unwrap();
    let access = Access {
        endpoint: endpoint.to_owned(),
        access_key: access_key.to_owned(),
        secret_key: secret_key.to_owned(),
        region: region.to_owned(),
    };
    let config = config_of(&access, agent, "alice");
    let told = S3Store::rebuild(config, Path::new(cache), &caller(1)).unwrap_err();
    let told = told.to_string();
    assert!(
        told.contains("fix: make room") && told.contains("--rebuild-cache again"),
        "{told}"
    );
}
