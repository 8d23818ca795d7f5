//! Coming back from what should not have happened to the `s3` store: caches that are damaged, and buckets that were
//! emptied. Nothing is deleted on the way, and what could be read is not lost.

use crate::common;
use crate::s3;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use backends::s3::{OpenOptions, S3Config, S3OpenError, S3Store, check};
use backends::store::{Kind, NewNode, ROOT, RenameMode, Store, XattrMode};
use common::*;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use s3::{
    Broken, Machines, agent, bucket, config, is_settled, now, object_of, remove_everything,
    service, text, text_in, write, write_in,
};
use servers::{Fault, Operation, Rule};

const REFILL: OpenOptions = OpenOptions {
    allow_offline: false,
    refill_bucket: true,
};

/// Overwrites the first page of a table or an index.
fn damage(file: &Path, what: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    let page: u32 = db
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?1",
            [what],
            |row| row.get(0),
        )
        .unwrap();
    let size: u32 = db
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .unwrap();
    db.close().unwrap();
    let file = File::options().write(true).open(file).unwrap();
    let at = u64::from(page - 1) * u64::from(size);
    file.write_all_at(&vec![0xff; size as usize], at).unwrap();
}

/// What was set aside of a cache.
fn set_aside(cache: &Path) -> Vec<PathBuf> {
    let name = cache.file_name().unwrap().to_str().unwrap();
    let all = std::fs::read_dir(cache.parent().unwrap()).unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    let mut aside: Vec<PathBuf> = all
        .filter(|path| {
            let path = path.file_name().unwrap().to_str().unwrap();
            path.starts_with(&format!("{name}.set-aside-"))
                && !["-wal", "-shm", "-tails"]
                    .iter()
                    .any(|end| path.ends_with(end))
        })
        .collect();
    aside.sort();
    aside
}

#[test]
fn a_damaged_cache_is_set_aside_and_what_had_not_gone_up_is_taken_from_it() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    for name in ["changed", "contested", "deleted", "kept", "same"] {
        write(&a, name, b"1");
    }
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    write_in(&a, dir, "below", b"below");
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "unread", b"bob's");
    b.upload().unwrap();
    a.pull().unwrap();

    let large = "0123456789abcdef".repeat(20_000);
    write(&a, "changed", b"2");
    write(&a, "contested", b"alice's");
    write(&a, "same", b"2");
    let new = write(&a, "new.md", b"new");
    a.setxattr(&now(), new, b"user.tag", b"t", XattrMode::Set)
        .unwrap();
    write(&a, "large", large.as_bytes());
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    a.rename(&now(), (ROOT, b"d"), (ROOT, b"e"), RenameMode::NoReplace)
        .unwrap();
    a.rename(
        &now(),
        (ROOT, b"unread"),
        (ROOT, b"renamed"),
        RenameMode::NoReplace,
    )
    .unwrap();
    let link = NewNode {
        target: b"changed",
        ..node(Kind::Symlink)
    };
    a.create(&now(), ROOT, b"link", &link).unwrap();
    let empty = create(&a, ROOT, "empty", Kind::Directory).ino;
    write_in(&a, empty, "first", b"1");
    drop(a);
    write(&b, "contested", b"bob's");
    write(&b, "same", b"2");
    b.upload().unwrap();

    damage(&cache, "orphan");
    let open = || S3Store::open(config(&agent, "alice"), &cache, &caller(1));
    let told = open().unwrap_err();
    assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
    let told = told.to_string();
    assert!(
        told.contains("alice.db") && told.contains("fix: mount it with --rebuild-cache"),
        "{told}"
    );

    let rebuild = || S3Store::rebuild(config(&agent, "alice"), &cache, &caller(1));
    let a = rebuild().unwrap();
    let [note] = a.notes() else {
        panic!("{:?}", a.notes())
    };
    let [aside] = set_aside(&cache).try_into().unwrap();
    assert!(note.contains(aside.to_str().unwrap()), "{note}");
    assert!(
        note.contains("7 files and 0 removals, 1 of the files beside"),
        "{note}"
    );
    assert!(
        note.contains("1 removals were not taken over, as it is damaged")
            && note.contains("deleted"),
        "{note}"
    );
    assert!(!note.contains("could not be"), "{note}");
    let told = rebuild().unwrap_err().to_string();
    assert!(told.contains("is in use"), "{told}");
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(
            names(store, ROOT),
            [
                "changed",
                "contested",
                "contested.conflict-alice-1",
                "deleted",
                "e",
                "empty",
                "kept",
                "large",
                "link",
                "new.md",
                "renamed",
                "same",
            ]
        );
        assert_eq!(text(store, "changed"), "2");
        assert_eq!(text(store, "contested"), "bob's");
        assert_eq!(text(store, "contested.conflict-alice-1"), "alice's");
        assert!(text(store, "large") == large);
        assert_eq!(text(store, "new.md"), "new");
        assert_eq!(text(store, "renamed"), "bob's");
        let ino = |name: &str| store.lookup(ROOT, name.as_bytes()).unwrap().ino;
        assert_eq!(store.getxattr(ino("new.md"), b"user.tag").unwrap(), b"t");
        assert_eq!(store.readlink(ino("link")).unwrap(), b"changed");
        assert_eq!(text_in(store, ino("e"), "below"), "below");
        assert_eq!(text_in(store, ino("empty"), "first"), "1");
    }
    assert!(
        object_of(&agent, "d/below").is_some(),
        "renamed, and not copied"
    );
    assert_eq!(
        check(&config(&agent, "c")).unwrap().problems,
        Vec::<String>::new()
    );
    // Once more is safe: nothing had not gone up, and another file is set aside.
    drop(a);
    let a = rebuild().unwrap();
    assert!(
        a.notes()[0].contains("0 files and 0 removals"),
        "{:?}",
        a.notes()
    );
    assert_eq!(set_aside(&cache).len(), 2);
    assert_eq!(names(&a, ROOT), names(&b, ROOT));
}

#[test]
fn a_cache_of_which_nothing_can_be_read_is_kept_as_it_is() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let write_and_leave = || {
        let a = machines.mount(config(&agent, "alice"));
        write(&a, "kept", b"kept");
        a.upload().unwrap();
        write(&a, "lost", b"lost");
    };
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("no database", |cache| {
            let file = File::options().write(true).open(cache).unwrap();
            file.write_all_at(&[0xff; 512], 0).unwrap();
        }),
        ("cut", |cache| {
            let file = File::options().write(true).open(cache).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("newer", |cache| {
            let db = rusqlite::Connection::open(cache).unwrap();
            let newer = "UPDATE s3_setting SET value = '99' WHERE name = 'tables'";
            assert_eq!(db.execute(newer, ()).unwrap(), 1);
        }),
    ];
    for (nth, (what, damage)) in damages.into_iter().enumerate() {
        write_and_leave();
        damage(&cache);
        let before = std::fs::read(&cache).unwrap();
        let told = S3Store::open(config(&agent, "alice"), &cache, &caller(1)).unwrap_err();
        let is_newer = matches!(told, S3OpenError::Newer { .. });
        assert_eq!(is_newer, what == "newer", "{told}");
        let told = told.to_string();
        assert!(told.contains("--rebuild-cache"), "{what}: {told}");
        let before_rebuild = std::fs::read(&cache).unwrap();
        let a = S3Store::rebuild(config(&agent, "alice"), &cache, &caller(1)).unwrap();
        assert_eq!(text(&a, "kept"), "kept", "{what}");
        let aside = set_aside(&cache);
        assert_eq!(aside.len(), nth + 1, "{what}");
        let note = &a.notes()[0];
        let has_it = a.lookup(ROOT, b"lost").is_ok();
        assert!(
            has_it || note.contains("only there"),
            "{what}: what was not taken is said: {note}"
        );
        assert!(
            aside
                .iter()
                .any(|aside| std::fs::read(aside).unwrap() == before_rebuild),
            "{what}: it is as it was"
        );
        if what == "no database" {
            assert!(
                before == before_rebuild && note.contains("nothing can be read"),
                "{note}"
            );
        }
        // The next one begins anew.
        if has_it {
            a.unlink(&now(), ROOT, b"lost").unwrap();
        }
        a.upload().unwrap();
    }
}

#[test]
fn text_that_is_no_text_any_more_is_damage_too() {
    let (machines, agent) = (Machines::new(), agent());
    drop(machines.mount(config(&agent, "alice")));
    let cache = machines.cache("alice.db");
    let whole = std::fs::read(&cache).unwrap();
    for flip in [
        "UPDATE s3_setting SET value = CAST(x'ff' AS TEXT) WHERE name = 'conditions'",
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = CAST(x'ff' || sql AS TEXT) WHERE name = 's3_object'",
    ] {
        std::fs::write(&cache, &whole).unwrap();
        let db = rusqlite::Connection::open(&cache).unwrap();
        db.execute_batch(flip).unwrap();
        db.close().unwrap();
        let told = S3Store::open(config(&agent, "alice"), &cache, &caller(1)).unwrap_err();
        assert!(
            matches!(told, S3OpenError::Damaged { .. }),
            "{flip}: {told}"
        );
    }
}

#[test]
fn a_cache_that_was_cut_to_nothing_is_not_taken_for_a_new_one() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "n", b"not up");
    // As a crash leaves it: with its log.
    let (cache, copy) = (machines.cache("alice.db"), machines.cache("copy.db"));
    let log = |cache: &Path| PathBuf::from(format!("{}-wal", cache.display()));
    std::fs::copy(log(&cache), log(&copy)).unwrap();
    File::create(&copy).unwrap();
    let told = S3Store::open(config(&agent, "alice"), &copy, &caller(1)).unwrap_err();
    assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
    assert!(log(&copy).exists(), "its log is left alone");
}

#[test]
fn a_cache_stays_where_it_is_while_the_server_is_away() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n", b"not up");
    drop(a);
    let cache = broken.cache("alice");
    damage(&cache, "orphan");
    let before = std::fs::read(&cache).unwrap();
    broken.proxy.partition(true).unwrap();
    let told = S3Store::rebuild(broken.config("alice"), &cache, &caller(1)).unwrap_err();
    assert!(matches!(told, S3OpenError::Unreachable { .. }), "{told}");
    assert!(std::fs::read(&cache).unwrap() == before && set_aside(&cache).is_empty());
}

#[test]
fn an_emptied_bucket_can_be_filled_again_or_taken_as_it_is() {
    for seal in [None, Some([7; 32])] {
        let (machines, agent) = (Machines::new(), agent());
        let config = |writer: &str| S3Config {
            seal,
            ..config(&agent, writer)
        };
        let cache = machines.cache("alice.db");
        let open = |options| S3Store::open_with(config("alice"), &cache, &caller(1), options);
        let a = open(REFILL).unwrap();
        assert!(a.notes()[0].contains("was not emptied"), "{:?}", a.notes());
        for nth in 0..5 {
            write(&a, &format!("n{nth}"), b"the only copy");
        }
        create(&a, ROOT, "empty", Kind::Directory);
        a.upload().unwrap();
        let b = machines.mount(config("bob"));
        write(&b, "unread", b"bob's");
        b.upload().unwrap();
        a.pull().unwrap();
        drop((a, b));
        std::fs::copy(&cache, machines.cache("another.db")).unwrap();
        remove_everything(&agent);

        let a = open(OpenOptions::default()).unwrap();
        write(&a, "new", b"new");
        let told = a.upload().unwrap_err().to_string();
        assert!(
            told.contains("--refill-bucket") && told.contains("--rebuild-cache"),
            "{told}"
        );
        drop(a);
        let a = open(REFILL).unwrap();
        let [note] = a.notes() else {
            panic!("{:?}", a.notes())
        };
        assert!(
            note.contains("5 files go up again") && note.contains("lost: "),
            "{note}"
        );
        a.upload().unwrap();
        is_settled(&a);
        let all = ["empty", "n0", "n1", "n2", "n3", "n4", "new"];
        let b = machines.mount(config("carol"));
        for store in [&a, &b] {
            store.pull().unwrap();
            assert_eq!(names(store, ROOT), all);
            assert_eq!(text(store, "n3"), "the only copy");
        }
        drop((a, b));
        let a = open(REFILL).unwrap();
        assert!(a.notes()[0].contains("was not emptied"), "{:?}", a.notes());
        assert_eq!(names(&a, ROOT), all, "twice is safe");
        drop(a);

        // Or the bucket is right: what is here goes, but for what had not gone up, and is set aside.
        remove_everything(&agent);
        let a = open(OpenOptions::default()).unwrap();
        write(&a, "later", b"later");
        assert!(a.upload().is_err());
        drop(a);
        let a = S3Store::rebuild(config("alice"), &cache, &caller(1)).unwrap();
        assert_eq!(names(&a, ROOT), ["later"]);
        a.upload().unwrap();
        is_settled(&a);
        assert_eq!(set_aside(&cache).len(), 1);
    }
}

#[test]
fn a_bucket_that_another_filled_again_is_an_emptied_one_and_can_be_filled_by_both() {
    for (seal, is_of_before) in [(None, false), (Some([7; 32]), false), (None, true)] {
        let (machines, agent) = (Machines::new(), agent());
        let config = |writer: &str| S3Config {
            seal,
            ..config(&agent, writer)
        };
        let open = |writer: &str, options| {
            let cache = machines.cache(&format!("{writer}.db"));
            S3Store::open_with(config(writer), &cache, &caller(1), options).unwrap()
        };
        let shared = ["n0", "n1", "n2", "n3", "n4.md"];
        let a = open("alice", OpenOptions::default());
        for name in shared {
            write(&a, name, b"shared");
        }
        a.upload().unwrap();
        let b = open("bob", OpenOptions::default());
        for name in shared {
            assert_eq!(text(&b, name), "shared");
        }
        // What alice has not seen when the bucket is emptied.
        write(&b, "n1", b"bob's later one");
        write(&b, "only bob's", b"bob's");
        create(&b, ROOT, "empty", Kind::Directory);
        let touched = b.lookup(ROOT, b"n2").unwrap().ino;
        let tag = b"user.tag";
        b.setxattr(&now(), touched, tag, b"bob's", XattrMode::Set)
            .unwrap();
        b.upload().unwrap();
        is_settled(&b);
        drop((a, b));
        if is_of_before {
            // As a cache of before marks had an id.
            let db = rusqlite::Connection::open(machines.cache("bob.db")).unwrap();
            let marked = "UPDATE s3_setting SET name = 'marked', value = 'yes' WHERE name = 'mark'";
            assert_eq!(db.execute(marked, ()).unwrap(), 1);
        }
        let b = open_after(&machines, &config("bob"), is_of_before);
        remove_everything(&agent);

        let a = open("alice", REFILL);
        let names_of_b = names(&b, ROOT);
        let refused = |when: &str| {
            let told = b.pull().unwrap_err().to_string();
            assert!(
                told.contains("filled again by another") && told.contains("--refill-bucket"),
                "{when}: {told}"
            );
            assert_eq!(names(&b, ROOT), names_of_b, "{when}");
            assert_eq!(text(&b, "n1"), "bob's later one", "{when}");
        };
        refused("before anything is there");
        a.upload().unwrap();
        is_settled(&a);
        refused("when everything of alice's is there");
        assert!(b.upload().is_err());
        write(&b, "new", b"new");
        assert!(b.upload().is_err(), "nothing goes up");
        drop(b);

        let b = open("bob", REFILL);
        let [note] = b.notes() else {
            panic!("{:?}", b.notes())
        };
        assert!(
            note.contains("filled again by another") && note.contains("1 files go up again"),
            "{note}"
        );
        b.upload().unwrap();
        b.upload().unwrap();
        assert_eq!(b.pending().unwrap(), 0);
        let c = open("carol", OpenOptions::default());
        let all = [
            "empty",
            "n0",
            "n1",
            "n1.conflict-bob-3",
            "n2",
            "n3",
            "n4.md",
            "new",
            "only bob's",
        ];
        for store in [&a, &b, &c] {
            store.pull().unwrap();
            assert_eq!(names(store, ROOT), all);
            assert_eq!(text(store, "n1"), "shared");
            assert_eq!(text(store, "n1.conflict-bob-3"), "bob's later one");
            assert_eq!(text(store, "n3"), "shared");
            assert_eq!(text(store, "only bob's"), "bob's");
            // The content was there already.
            let n2 = store.lookup(ROOT, b"n2").unwrap().ino;
            assert!(seal.is_some() || store.getxattr(n2, tag).is_ok());
        }
        // What one changes now, the others see: of content that was there, too.
        for (nth, store) in [&a, &b].into_iter().enumerate() {
            write(store, "n3", format!("{nth}").as_bytes());
            let ino = store.lookup(ROOT, b"n0").unwrap().ino;
            let value = nth.to_string();
            store
                .setxattr(&now(), ino, tag, value.as_bytes(), XattrMode::Set)
                .unwrap();
            store.upload().unwrap();
            for other in [&a, &b, &c] {
                other.pull().unwrap();
                assert_eq!(text(other, "n3"), value);
                let ino = other.lookup(ROOT, b"n0").unwrap().ino;
                assert_eq!(other.getxattr(ino, tag).unwrap(), value.as_bytes());
            }
        }
        drop(b);
        let b = open("bob", REFILL);
        assert!(b.notes()[0].contains("was not emptied"), "{:?}", b.notes());
    }
}

/// Opens a cache, of a bucket whose mark is, or is not, as marks once were.
fn open_after(machines: &Machines, config: &S3Config, is_of_before: bool) -> S3Store {
    if is_of_before {
        s3::remove(&format!(".ctx/{}/mark", config.agent));
        let server = format!("ctx/{}/server.json", config.agent);
        let body = format!(
            r#"{{"endpoint":"{}","conditions_are_honoured":true}}"#,
            config.endpoint
        );
        s3::put_object(&server, body.leak().as_bytes());
    }
    let b = machines.mount(config.clone());
    b.pull().unwrap();
    write(&b, "n0", b"other");
    write(&b, "n0", b"shared");
    b.upload().unwrap();
    b
}

#[test]
fn a_rebuild_that_fails_on_an_emptied_bucket_takes_nothing_from_the_old_cache() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n", b"the only copy");
    a.upload().unwrap();
    drop(a);
    let cache = broken.cache("alice");
    remove_everything(&broken.agent);
    // It fails when the mark is there again.
    let manifest = format!("ctx/{}/manifest.json", broken.agent);
    let fails = Rule::always(Fault::Reset).of(&[Operation::Get]);
    broken.proxy.set(vec![fails.below(&manifest)]);
    assert!(S3Store::rebuild(broken.config("alice"), &cache, &caller(1)).is_err());
    assert!(broken.fired() > 0);
    broken.proxy.clear();
    let mark = Key::from(format!(".ctx/{}/mark", broken.agent));
    let marked = service()
        .runtime
        .block_on(async { bucket().get(&mark).await });
    assert!(marked.is_ok(), "it has got that far");
    let a = broken.mount("alice");
    let told = a.pull().unwrap_err().to_string();
    assert!(told.contains("--refill-bucket"), "{told}");
    assert_eq!(text(&a, "n"), "the only copy");
}

#[test]
fn an_unread_file_that_was_renamed_is_lost_by_the_name_it_has_and_blocks_nothing() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let open = |options| S3Store::open_with(config(&agent, "alice"), &cache, &caller(1), options);
    let b = machines.mount(config(&agent, "bob"));
    for name in ["unread", "linked", "read"] {
        write(&b, name, b"bob's");
    }
    b.upload().unwrap();
    drop(b);
    let a = open(OpenOptions::default()).unwrap();
    assert_eq!(text(&a, "read"), "bob's");
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    for (from, to) in [("unread", "renamed"), ("read", "renamed too")] {
        let to = (dir, to.as_bytes());
        a.rename(&now(), (ROOT, from.as_bytes()), to, RenameMode::NoReplace)
            .unwrap();
    }
    let linked = a.lookup(ROOT, b"linked").unwrap().ino;
    a.link(&now(), linked, dir, b"link").unwrap();
    drop(a);
    remove_everything(&agent);
    let a = open(REFILL).unwrap();
    let [note] = a.notes() else {
        panic!("{:?}", a.notes())
    };
    assert!(
        note.contains("3 whose content was only there are lost: d/link, d/renamed, linked"),
        "{note}"
    );
    write(&a, "new", b"new");
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(names(&a, ROOT), ["d", "new"]);
    assert_eq!(names(&a, dir), ["renamed too"]);
    let b = machines.mount(config(&agent, "carol"));
    let dir = b.lookup(ROOT, b"d").unwrap().ino;
    assert_eq!(text_in(&b, dir, "renamed too"), "bob's");
}
