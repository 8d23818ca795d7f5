//! Directories of the `s3` store that two hosts change: what the manifest says, and what was done here meanwhile.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{ConflictPolicy, S3Config, S3Store};
use backends::store::{Change, Kind, ROOT, RenameMode, Store};
use common::*;
use s3::{Broken, Machines, agent, config, now, rename, text_in, write, write_in};
use servers::{Fault, Operation, Rule};

/// Looks at the bucket before others are told of what was done here.
fn pull_untold(broken: &Broken, store: &S3Store) {
    let refused = Fault::Refuse {
        status: 403,
        code: "AccessDenied".to_owned(),
        retry_after: None,
    };
    let manifest = format!("ctx/{}/manifest", broken.agent);
    broken.proxy.set(vec![
        Rule::always(refused).of(&[Operation::Put]).below(&manifest),
    ]);
    store.pull().unwrap();
    assert!(broken.fired() > 0 && store.pending().unwrap() > 0);
    broken.proxy.clear();
}

#[test]
fn a_directory_that_was_removed_here_stays_removed_when_others_change_the_manifest() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    create(&a, ROOT, "removed", Kind::Directory);
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    create(&b, ROOT, "other", Kind::Directory);
    b.upload().unwrap();
    a.rmdir(&now(), ROOT, b"removed").unwrap();
    pull_untold(&broken, &a);
    assert_eq!(names(&a, ROOT), ["other"]);
    a.upload().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["other"]);
    }
}

#[test]
fn a_directory_that_was_removed_here_is_there_again_with_what_others_put_into_it() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for name in ["file", "directory", "permissions"] {
        create(&a, ROOT, name, Kind::Directory);
    }
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    let dir = |name: &[u8]| b.lookup(ROOT, name).unwrap().ino;
    write_in(&b, dir(b"file"), "f", b"bob's");
    create(&b, dir(b"directory"), "d", Kind::Directory);
    let change = Change {
        permissions: Some(0o700),
        ..Change::default()
    };
    b.setattr(&now(), dir(b"permissions"), &change).unwrap();
    b.upload().unwrap();
    for name in ["file", "directory", "permissions"] {
        a.rmdir(&now(), ROOT, name.as_bytes()).unwrap();
    }
    pull_untold(&broken, &a);
    a.upload().unwrap();
    b.pull().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["directory", "file", "permissions"]);
        let dir = |name: &[u8]| store.lookup(ROOT, name).unwrap().ino;
        assert_eq!(text_in(store, dir(b"file"), "f"), "bob's");
        assert_eq!(names(store, dir(b"directory")), ["d"]);
        let permissions = store.getattr(dir(b"permissions")).unwrap().permissions;
        assert_eq!(permissions, 0o700);
    }
}

/// Holds requests of `a` while it uploads, does `work`, and lets them go.
fn amid_an_upload(broken: &Broken, a: &S3Store, held: (Operation, &str), work: impl FnOnce()) {
    let (operation, below) = held;
    let held = Rule::always(Fault::Hold).of(&[operation]).below(below);
    broken.proxy.set(vec![held]);
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        let begun = Instant::now();
        while broken.fired() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing is held");
            std::thread::sleep(Duration::from_millis(5));
        }
        work();
        broken.proxy.clear();
        uploading.join().unwrap().unwrap();
    });
}

#[test]
fn two_hosts_say_what_they_have_of_two_directories_whoever_wins_conflicts() {
    for conflicts in [ConflictPolicy::LastWriteWins, ConflictPolicy::KeepBoth] {
        let broken = Broken::new();
        let as_asked = |config: S3Config| S3Config {
            conflicts,
            timeout: Duration::from_secs(20),
            ..config
        };
        let a = broken.mount_as(as_asked(broken.config("alice")));
        let b = broken.mount_as(S3Config {
            endpoint: s3::service().access.endpoint.clone(),
            ..as_asked(broken.config("bob"))
        });
        create(&a, ROOT, "of-alice", Kind::Directory);
        create(&b, ROOT, "of-bob", Kind::Directory);
        let manifest = format!("ctx/{}/manifest", broken.agent);
        amid_an_upload(&broken, &a, (Operation::Put, &manifest), || {
            b.upload().unwrap();
        });
        for store in [&a, &b] {
            store.pull().unwrap();
            assert_eq!(names(store, ROOT), ["of-alice", "of-bob"], "{conflicts:?}");
        }
    }
}

#[test]
fn a_directory_has_its_name_elsewhere_as_soon_as_that_is_free() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    write_in(&a, dir, "f", b"1");
    a.upload().unwrap();
    let mut b = machines.mount(config(&agent, "bob"));
    write(&b, "new", b"bob's");
    b.upload().unwrap();
    rename(&a, "d", "new", RenameMode::NoReplace);
    a.upload().unwrap();
    for is_again in [false, true] {
        if is_again {
            drop(b);
            b = machines.mount(config(&agent, "bob"));
        }
        b.pull().unwrap();
        assert_eq!(names(&b, ROOT), ["d", "new"]);
        // What is done in it says nothing of its name.
        let dir = b.lookup(ROOT, b"d").unwrap().ino;
        write_in(&b, dir, &format!("g{is_again}"), b"2");
        b.upload().unwrap();
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), ["new"]);
    }
    b.unlink(&now(), ROOT, b"new").unwrap();
    b.upload().unwrap();
    b.pull().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["new"]);
        let dir = store.lookup(ROOT, b"new").unwrap().ino;
        assert_eq!(names(store, dir), ["f", "gfalse", "gtrue"]);
    }
    // It is not asked for again.
    let before = b.counters()["s3_bytes_received"];
    b.pull().unwrap();
    let one = b.counters()["s3_bytes_received"] - before;
    b.pull().unwrap();
    assert_eq!(b.counters()["s3_bytes_received"] - before, 2 * one);
}

#[test]
fn a_directory_in_the_place_of_a_file_is_seen_by_who_has_looked_in_between() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        timeout: Duration::from_secs(20),
        ..broken.config("alice")
    });
    let b = broken.elsewhere("bob");
    write(&a, "f", b"a file");
    a.upload().unwrap();
    b.pull().unwrap();
    a.unlink(&now(), ROOT, b"f").unwrap();
    let dir = create(&a, ROOT, "f", Kind::Directory).ino;
    write_in(&a, dir, "x", b"below");
    // What is to go is named in the body alone.
    amid_an_upload(&broken, &a, (Operation::Delete, ""), || {
        b.pull().unwrap();
        assert!(b.lookup(ROOT, b"f").unwrap().kind == Kind::File);
    });
    b.pull().unwrap();
    assert_eq!(names(&b, ROOT), ["f"]);
    let dir = b.lookup(ROOT, b"f").unwrap().ino;
    assert_eq!(text_in(&b, dir, "x"), "below");
}
