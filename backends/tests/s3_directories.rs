//! Directories of the `s3` store that two hosts change: what the manifest says, and what was done here meanwhile.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;
#[path = "common/s3.rs"]
mod s3;

use backends::s3::S3Store;
use backends::store::{Change, Kind, ROOT, Store};
use common::*;
use s3::{Broken, now, text_in, write_in};
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
