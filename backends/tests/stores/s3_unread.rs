//! Files of the `s3` store whose content is in the bucket only, when others get the names of their objects.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store, SyncMode};
use backends::store::{Change, Ino, Kind, ROOT, RenameMode, Store, XattrMode};
use common::*;
use s3::{
    Broken, Machines, agent, config, is_settled, now, object, object_of, remove, rename, text,
    write,
};
use servers::{Fault, Operation, Rule, When};

#[test]
fn an_unread_file_whose_new_name_was_just_taken_is_kept_beside_it() {
    let (machines, agent) = (Machines::new(), agent());
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "a", b"the only copy");
    b.upload().unwrap();
    let mut quiet = config(&agent, "alice");
    quiet.keep_versions = false;
    let a = machines.mount(quiet);
    write(&b, "b", b"bob's");
    b.upload().unwrap();
    // It has not looked since.
    rename(&a, "a", "b", RenameMode::NoReplace);
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    a.pull().unwrap();
    b.pull().unwrap();
    s3::is_kept_beside(&[&a, &b]);
}

#[test]
fn an_unread_file_that_is_gone_elsewhere_holds_up_no_other() {
    let (machines, agent) = (Machines::new(), agent());
    let b = machines.mount(config(&agent, "bob"));
    for name in ["x", "y", "other"] {
        write(&b, name, name.as_bytes());
    }
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    rename(&a, "x", "y", RenameMode::Exchange);
    write(&a, "other", b"new");
    remove(&format!("agents/{agent}/y"));
    assert!(a.upload().is_err());
    b.pull().unwrap();
    assert_eq!(text(&b, "other"), "new");
    assert_eq!(text(&b, "x"), "x", "it was not overwritten");
}

#[test]
fn files_that_were_never_read_keep_their_content_when_their_objects_are_overwritten() {
    // Some of it is a race of one upload with another.
    for _ in 0..20 {
        let (machines, agent) = (Machines::new(), agent());
        let b = machines.mount(config(&agent, "bob"));
        for name in ["a", "b", "c", "under", "x", "y"] {
            write(&b, name, name.as_bytes());
        }
        b.upload().unwrap();
        let a = machines.mount(config(&agent, "alice"));
        for (from, to) in [("c", "d"), ("b", "c"), ("a", "b"), ("under", "moved")] {
            let (from, to) = ((ROOT, from.as_bytes()), (ROOT, to.as_bytes()));
            a.rename(&now(), from, to, RenameMode::NoReplace).unwrap();
        }
        write(&a, "under", b"new");
        let exchange = RenameMode::Exchange;
        a.rename(&now(), (ROOT, b"x"), (ROOT, b"y"), exchange)
            .unwrap();
        a.upload().unwrap();
        b.pull().unwrap();
        for store in [&a, &b] {
            let found: Vec<(String, String)> = names(store, ROOT)
                .into_iter()
                .map(|name| (name.clone(), text(store, &name)))
                .collect();
            let expected = [
                ("b", "a"),
                ("c", "b"),
                ("d", "c"),
                ("moved", "under"),
                ("under", "new"),
                ("x", "y"),
                ("y", "x"),
            ];
            assert_eq!(
                found,
                expected.map(|(name, content)| (name.to_owned(), content.to_owned()))
            );
        }
    }
}

#[test]
fn an_unread_file_that_others_have_emptied_can_be_written() {
    let (machines, agent) = (Machines::new(), agent());
    let b = machines.mount(config(&agent, "bob"));
    let theirs = write(&b, "f", b"never read by alice");
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    let ours = a.lookup(ROOT, b"f").unwrap().ino;
    let empty = Change {
        size: Some(0),
        ..Change::default()
    };
    b.setattr(&now(), theirs, &empty).unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, "f"), "");
    a.write(&now(), ours, 0, b"ours").unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(text(store, "f"), "ours");
    }
}

fn append(store: &S3Store, name: &str, more: &[u8]) {
    let attr = store.lookup(ROOT, name.as_bytes()).unwrap();
    store.write(&now(), attr.ino, attr.size, more).unwrap();
}

/// Bob writes `a`; Alice, who has never read it, gives it the name `b`, too.
fn linked_unread(machines: &Machines, agent: &str) -> (S3Store, S3Store) {
    let b = machines.mount(config(agent, "bob"));
    write(&b, "a", b"one");
    b.upload().unwrap();
    let a = machines.mount(config(agent, "alice"));
    let ino = a.lookup(ROOT, b"a").unwrap().ino;
    a.link(&now(), ino, ROOT, b"b").unwrap();
    a.upload().unwrap();
    (a, b)
}

#[test]
fn the_other_name_of_an_unread_file_keeps_its_content_when_others_change_the_first() {
    for looks_first in [true, false] {
        let (machines, agent) = (Machines::new(), agent());
        let (a, b) = linked_unread(&machines, &agent);
        write(&b, "a", b"another");
        b.upload().unwrap();
        if looks_first {
            a.pull().unwrap();
        }
        assert_eq!(text(&a, "b"), "one", "looks first: {looks_first}");
        append(&a, "b", b" and more");
        a.pull().unwrap();
        a.upload().unwrap();
        a.pull().unwrap();
        b.pull().unwrap();
        assert_eq!(text(&b, "b"), "one and more");
        assert_eq!(text(&a, "b"), "one and more");
        // Where it had not looked, its write was one to both names.
        assert_eq!(text(&b, "a"), "another");
        assert_eq!(text(&a, "a"), "another");
    }
}

#[test]
fn the_other_name_of_an_unread_file_can_be_read_when_others_have_deleted_the_first() {
    for looks_first in [true, false] {
        let (machines, agent) = (Machines::new(), agent());
        let (a, b) = linked_unread(&machines, &agent);
        b.unlink(&now(), ROOT, b"a").unwrap();
        b.upload().unwrap();
        if looks_first {
            a.pull().unwrap();
            assert_eq!(names(&a, ROOT), ["b"]);
        }
        assert_eq!(text(&a, "b"), "one", "looks first: {looks_first}");
    }
}

/// Brings up what is journalled, also what the first batch has to leave to the next.
fn upload_all(store: &S3Store) {
    for _ in 0..3 {
        // What is said of it is not asked here.
        let _ = store.upload();
        if store.pending().unwrap() == 0 {
            return;
        }
    }
    panic!("{} changes are still pending", store.pending().unwrap());
}

#[test]
fn attributes_of_an_unread_file_that_were_changed_here_outlive_what_others_write() {
    for reads_first in [true, false] {
        let (machines, agent) = (Machines::new(), agent());
        let b = machines.mount(config(&agent, "bob"));
        let theirs = write(&b, "f", b"before");
        b.setxattr(&now(), theirs, b"user.of", b"bob", XattrMode::Set)
            .unwrap();
        b.upload().unwrap();
        let a = machines.mount(config(&agent, "alice"));
        let ours = a.lookup(ROOT, b"f").unwrap().ino;
        let change = Change {
            permissions: Some(0o600),
            ..Change::default()
        };
        a.setattr(&now(), ours, &change).unwrap();
        a.setxattr(&now(), ours, b"user.of", b"alice", XattrMode::Set)
            .unwrap();
        let written = write(&b, "f", b"written by bob");
        let written = b.getattr(written).unwrap().mtime;
        b.upload().unwrap();
        if reads_first {
            a.read(ours, 0, 100, &mut Vec::new()).unwrap();
        }
        upload_all(&a);
        b.pull().unwrap();
        for (store, ino) in [(&a, ours), (&b, theirs)] {
            assert_eq!(text(store, "f"), "written by bob");
            let attr = store.getattr(ino).unwrap();
            assert_eq!(attr.permissions, 0o600, "reads first: {reads_first}");
            assert_eq!(attr.mtime, written, "nobody has set that here");
            assert_eq!(store.getxattr(ino, b"user.of").unwrap(), b"alice");
            is_settled(store);
        }
    }
}

#[test]
fn an_unread_file_that_loses_its_name_while_it_is_open_can_be_read() {
    let removed = |a: &S3Store| {
        a.unlink(&now(), ROOT, b"f").unwrap();
        a.upload().unwrap();
    };
    let replaced = |a: &S3Store| {
        write(a, "new", b"new");
        rename(a, "new", "f", RenameMode::Replace);
        a.upload().unwrap();
    };
    let made_anew = |a: &S3Store| {
        a.unlink(&now(), ROOT, b"f").unwrap();
        let new = create(a, ROOT, "f", Kind::File).ino;
        a.write(&now(), new, 0, b"new").unwrap();
        a.fsync(new, false).unwrap();
    };
    let ways: [&dyn Fn(&S3Store); 3] = [&removed, &replaced, &made_anew];
    for (nth, lose) in ways.into_iter().enumerate() {
        let (machines, agent) = (Machines::new(), agent());
        let b = machines.mount(config(&agent, "bob"));
        write(&b, "f", b"never read by alice");
        b.upload().unwrap();
        let a = machines.mount(S3Config {
            sync: SyncMode::Fsync,
            ..config(&agent, "alice")
        });
        let open: Ino = a.lookup(ROOT, b"f").unwrap().ino;
        lose(&a);
        assert_ne!(
            object_of(&agent, "f"),
            Some(b"never read by alice".to_vec())
        );
        assert_eq!(read(&a, open, 0, 100), b"never read by alice", "{nth}");
        // As when the kernel forgets it.
        a.reclaim(open).unwrap();
    }
}

fn slow_down() -> Fault {
    Fault::Refuse {
        status: 503,
        code: "SlowDown".to_owned(),
        retry_after: None,
    }
}

#[test]
fn what_others_wrote_into_an_unread_file_that_lost_its_name_here_stays() {
    let removed = |a: &S3Store| {
        a.unlink(&now(), ROOT, b"f").unwrap();
    };
    let replaced = |a: &S3Store| {
        write(a, "new", b"new");
        rename(a, "new", "f", RenameMode::Replace);
    };
    let linked = |a: &S3Store| {
        let f = a.lookup(ROOT, b"f").unwrap().ino;
        a.link(&now(), f, ROOT, b"g").unwrap();
        replaced(a);
    };
    let kept = "f.conflict-alice-2";
    let ways: [&dyn Fn(&S3Store); 3] = [&removed, &replaced, &linked];
    let left: [&[&str]; 3] = [&["f"], &["f", kept], &["f", kept, "g"]];
    for (nth, (lose, expected)) in ways.into_iter().zip(left).enumerate() {
        let broken = Broken::new();
        let b = broken.elsewhere("bob");
        write(&b, "f", b"first");
        b.upload().unwrap();
        let a = broken.mount("alice");
        let open = a.lookup(ROOT, b"f").unwrap().ino;
        write(&b, "f", b"bob's");
        b.upload().unwrap();
        lose(&a);
        // A batch that ends when it has fetched the file, and before it has taken it away.
        let rule = Rule::always(slow_down()).of(&[Operation::Copy]);
        broken.proxy.set(vec![rule]);
        assert!(a.upload().is_err(), "{nth}");
        assert!(broken.fired() > 0, "{nth}");
        broken.proxy.clear();
        upload_all(&a);
        assert_eq!(object(&broken, "f"), Some(b"bob's".to_vec()), "{nth}");
        assert_eq!(read(&a, open, 0, 100), b"bob's", "{nth}");
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), expected, "{nth}");
        assert_eq!(text(&a, "f"), "bob's", "{nth}");
        if expected.contains(&kept) {
            assert_eq!(text(&a, kept), "new", "{nth}");
        }
    }
}

#[test]
fn an_unread_file_that_is_open_is_not_removed_while_it_cannot_be_fetched() {
    for fault in [slow_down(), Fault::Reset] {
        let broken = Broken::new();
        let b = broken.elsewhere("bob");
        write(&b, "f", b"the only copy");
        b.upload().unwrap();
        let a = broken.mount("alice");
        let open = a.lookup(ROOT, b"f").unwrap().ino;
        a.unlink(&now(), ROOT, b"f").unwrap();
        broken.set(fault, &[Operation::Get], When::Always);
        assert!(a.upload().is_err());
        assert!(broken.fired() > 0);
        assert_eq!(object(&broken, "f"), Some(b"the only copy".to_vec()));
        broken.proxy.clear();
        a.upload().unwrap();
        assert_eq!(object(&broken, "f"), None);
        assert_eq!(read(&a, open, 0, 100), b"the only copy");
    }
}

#[test]
fn an_unread_file_that_is_open_and_gone_elsewhere_holds_up_nothing() {
    let (machines, agent) = (Machines::new(), agent());
    let b = machines.mount(config(&agent, "bob"));
    for name in ["f", "other"] {
        write(&b, name, b"1");
    }
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    for name in ["f", "other"] {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    remove(&format!("agents/{agent}/f"));
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    assert_eq!(object_of(&agent, "other"), None);
}

#[test]
fn new_files_wait_for_no_unread_one_that_goes_and_those_are_fetched_at_once() {
    let broken = Broken::new();
    let b = broken.elsewhere("bob");
    let unread = ["f1", "f2", "f3"];
    for name in unread {
        write(&b, name, b"the only copy");
    }
    b.upload().unwrap();
    let a = broken.mount_as(S3Config {
        timeout: Duration::from_secs(30),
        ..broken.config("alice")
    });
    let open = unread.map(|name| a.lookup(ROOT, name.as_bytes()).unwrap().ino);
    for name in unread {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    write(&a, "new", b"new");
    broken.set(Fault::Hold, &[Operation::Get], When::Always);
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        let begun = Instant::now();
        while broken.fired() < unread.len() as u64 {
            assert!(begun.elapsed() < Duration::from_secs(20), "not at once");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(object(&broken, "new"), Some(b"new".to_vec()));
        broken.proxy.clear();
        uploading.join().unwrap().unwrap();
    });
    for (name, open) in unread.into_iter().zip(open) {
        assert_eq!(object(&broken, name), None);
        assert_eq!(read(&a, open, 0, 100), b"the only copy");
    }
}

#[test]
fn an_unread_file_whose_object_another_host_has_deleted_is_read_from_the_version_that_was_kept() {
    for seal in [None, Some([7; 32])] {
        for size in [5, 9 << 20] {
            let (machines, agent) = (Machines::new(), agent());
            let config = |writer: &str| S3Config {
                seal,
                ..config(&agent, writer)
            };
            let content = "x".repeat(size);
            let b = machines.mount(config("bob"));
            for name in ["renamed", "open"] {
                write(&b, name, content.as_bytes());
            }
            b.upload().unwrap();
            let a = machines.mount(config("alice"));
            rename(&a, "renamed", "new", RenameMode::NoReplace);
            for name in ["renamed", "open"] {
                b.unlink(&now(), ROOT, name.as_bytes()).unwrap();
            }
            b.upload().unwrap();
            let ino = a.lookup(ROOT, b"open").unwrap().ino;
            assert_eq!(read(&a, ino, size as u64 - 5, 5), b"xxxxx");
            a.upload().unwrap();
            assert_eq!(a.pending().unwrap(), 0);
            b.pull().unwrap();
            for store in [&a, &b] {
                assert!(text(store, "new") == content);
            }
        }
    }
}

#[test]
fn who_reads_a_file_that_others_have_changed_since_sees_no_part_of_that() {
    let (machines, agent) = (Machines::new(), agent());
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "f", b"one\n");
    b.upload().unwrap();
    let a = machines.mount(config(&agent, "alice"));
    let ours = a.lookup(ROOT, b"f").unwrap();
    append(&b, "f", b"bob's\n");
    b.upload().unwrap();
    // A program asks for the size, reads so much, adds a line, and writes it back.
    let mut seen = Vec::new();
    a.read(ours.ino, 0, ours.size as usize, &mut seen).unwrap();
    assert_eq!(seen, b"one\n");
    write(&a, "f", b"one\nalice's\n");
    upload_all(&a);
    for store in [&a, &b] {
        store.pull().unwrap();
        assert_eq!(text(store, "f"), "one\nbob's\n");
        assert_eq!(text(store, "f.conflict-alice-2"), "one\nalice's\n");
    }
}
