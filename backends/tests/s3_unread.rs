//! Files of the `s3` store whose content is in the bucket only, when others get the names of their objects.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;
#[path = "common/s3.rs"]
mod s3;

use backends::store::{ROOT, RenameMode, Store};
use common::*;
use s3::{Machines, agent, config, now, remove, rename, text, write};

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
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["b", "b.conflict-alice-1"]);
        assert_eq!(text(store, "b"), "bob's");
        assert_eq!(text(store, "b.conflict-alice-1"), "the only copy");
    }
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
