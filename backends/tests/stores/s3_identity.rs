//! Which object is which to the `s3` store: what it says of itself tells, and not its entity tag alone, which is one of the
//! bytes, and which some servers tell otherwise than they have answered.

use crate::common;
use crate::s3;

use backends::s3::{S3Config, S3Store};
use backends::store::{Change, Kind, NewNode, ROOT, Store, Timestamp, XattrMode};
use common::*;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use s3::{
    Broken, Machines, Quirky, agent, bucket_of, config, config_of, is_settled, now, object_of,
    service, text, write,
};
use servers::{Fault, Operation, Quirk, When};

/// What an object says of its file, under one of our names.
fn said(agent: &str, name: &str, what: &'static str) -> String {
    let key = Key::from(format!("agents/{agent}/{name}"));
    service().runtime.block_on(async {
        let got = bucket_of(&service().access).get(&key).await.unwrap();
        let attribute = object_store::Attribute::Metadata(what.into());
        got.attributes.get(&attribute).unwrap().as_ref().to_owned()
    })
}

/// Changes what of a file is not in it.
fn touch(store: &S3Store, name: &str, permissions: u16, mtime: i64, tag: &[u8]) {
    let ino = store.lookup(ROOT, name.as_bytes()).unwrap().ino;
    let change = Change {
        permissions: Some(permissions),
        mtime: Some(Timestamp(mtime)),
        ..Change::default()
    };
    store.setattr(&now(), ino, &change).unwrap();
    let mode = XattrMode::Set;
    store.setxattr(&now(), ino, b"user.tag", tag, mode).unwrap();
}

/// Mode, modification time and tag.
fn touched(store: &S3Store, name: &str) -> (u16, i64, Vec<u8>) {
    let attr = store.lookup(ROOT, name.as_bytes()).unwrap();
    let tag = store.getxattr(attr.ino, b"user.tag").unwrap();
    (attr.permissions, attr.mtime.0, tag)
}

/// Waits until others have been told of what went up: what that takes belongs to what was done before.
fn told(store: &S3Store) {
    for _ in 0..2000 {
        if store.counters()["s3_untold"] == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("nobody is told");
}

#[test]
fn attributes_that_change_after_an_upload_without_an_answer_go_up() {
    for name in ["n.txt", "n.md"] {
        for is_new in [true, false] {
            let broken = Broken::new();
            let a = broken.mount("alice");
            if !is_new {
                write(&a, name, b"before");
                a.upload().unwrap();
            }
            write(&a, name, b"content");
            let lost = [Operation::Put, Operation::Head];
            broken.set(Fault::LoseAnswer, &lost, When::Always);
            assert!(a.upload().is_err());
            assert!(broken.taken(Operation::Put, name) > 0 || broken.fired() > 0);
            // Nothing that its mode would tell.
            let mode = a.lookup(ROOT, name.as_bytes()).unwrap().permissions;
            touch(&a, name, mode, 1_234_000_000_000, b"mine");
            broken.proxy.clear();
            a.upload().unwrap();
            is_settled(&a);
            assert_eq!(said(&broken.agent, name, "ctx-modified"), "1234000000000");
            let b = broken.elsewhere("bob");
            assert_eq!(
                touched(&b, name),
                (mode, 1_234_000_000_000, b"mine".to_vec())
            );
            assert_eq!(touched(&a, name), touched(&b, name));
        }
    }
}

#[test]
fn an_attribute_that_was_set_here_outlives_one_that_another_has_set() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let b = machines.mount(config(&agent, "bob"));
    write(&a, "n.md", b"both have it");
    a.upload().unwrap();
    b.pull().unwrap();
    touch(&b, "n.md", 0o644, 1_000_000, b"bob's");
    b.upload().unwrap();
    touch(&a, "n.md", 0o644, 2_000_000, b"alice's");
    a.upload().unwrap();
    is_settled(&a);
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(
            touched(store, "n.md"),
            (0o644, 2_000_000, b"alice's".to_vec())
        );
        assert_eq!(text(store, "n.md"), "both have it");
    }
    // Who has written the same, and says the same of it, has written it for both.
    for (store, mtime) in [(&a, 3_000_000), (&b, 3_000_000)] {
        touch(store, "n.md", 0o644, mtime, b"same");
    }
    a.upload().unwrap();
    b.upload().unwrap();
    is_settled(&b);
    assert_eq!(said(&agent, "n.md", "ctx-writer"), "alice");
}

#[test]
fn what_another_has_made_anew_with_the_same_bytes_is_not_deleted() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let b = machines.mount(config(&agent, "bob"));
    for name in ["lock", "config.json"] {
        write(&a, name, if name == "lock" { b"" } else { b"{}" });
    }
    a.upload().unwrap();
    b.pull().unwrap();
    for name in ["lock", "config.json"] {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    b.unlink(&now(), ROOT, b"lock").unwrap();
    b.upload().unwrap();
    write(&b, "lock", b"");
    // Nothing but who may read it, and when it was written.
    touch(&b, "config.json", 0o600, 1_000_000, b"bob's");
    b.upload().unwrap();
    a.upload().unwrap();
    for name in ["lock", "config.json"] {
        assert!(object_of(&agent, name).is_some(), "{name}");
    }
    a.pull().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["config.json", "lock"]);
        assert_eq!(touched(store, "config.json").0, 0o600);
    }
}

#[test]
fn what_was_made_anew_with_the_same_bytes_is_seen_by_who_did_not_look_in_between() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let b = machines.mount(config(&agent, "bob"));
    for name in ["mode", "link", "other"] {
        write(&a, name, b"abc");
    }
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(text(&b, "link"), "abc");
    for name in ["mode", "link", "other"] {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    a.upload().unwrap();
    told(&a);
    write(&a, "mode", b"abc");
    touch(&a, "mode", 0o755, 1_000_000, b"new");
    let link = NewNode {
        permissions: 0o777,
        target: b"abc",
        ..node(Kind::Symlink)
    };
    a.create(&now(), ROOT, b"link", &link).unwrap();
    let puts = || {
        let before = a.counters()["s3_put"];
        a.upload().unwrap();
        a.counters()["s3_put"] - before
    };
    assert_eq!(puts(), 3, "and the manifest");
    b.pull().unwrap();
    assert_eq!(touched(&b, "mode"), (0o755, 1_000_000, b"new".to_vec()));
    let link = b.lookup(ROOT, b"link").unwrap();
    assert_eq!(link.kind, Kind::Symlink);
    assert_eq!(b.readlink(link.ino).unwrap(), b"abc");
    // Other bytes need no word: their entity tag tells.
    told(&a);
    write(&a, "other", b"xyz");
    assert_eq!(puts(), 1);
}

/// A server that tells another entity tag than it has answered to an upload in parts.
struct Retagging {
    server: Quirky,
    machines: Machines,
}

impl Retagging {
    fn new() -> Self {
        Self {
            server: Quirky::new(Quirk::TagsPartsAnew),
            machines: Machines::new(),
        }
    }

    fn mount(&self, agent: &str, writer: &str) -> S3Store {
        let config: S3Config = config_of(&self.server.access, agent, writer);
        let cache = self.machines.cache(&format!("{agent}-{writer}.db"));
        S3Store::open(config, &cache, &caller(1)).unwrap()
    }

    fn has(&self, agent: &str, name: &str) -> bool {
        let key = Key::from(format!("agents/{agent}/{name}"));
        let bucket = bucket_of(&self.server.access);
        self.server
            .runtime
            .block_on(async { bucket.head(&key).await.is_ok() })
    }
}

#[test]
fn ones_own_upload_is_known_under_another_entity_tag() {
    let served = Retagging::new();
    let large = |letter: &str| letter.repeat(9 << 20);
    for looks in [false, true] {
        let agent = agent();
        let a = served.mount(&agent, "alice");
        for name in ["written", "removed", "read"] {
            write(&a, name, large("a").as_bytes());
        }
        a.upload().unwrap();
        if looks {
            a.pull().unwrap();
        }
        let ino = a.lookup(ROOT, b"read").unwrap().ino;
        let before = a.counters()["s3_fetches"];
        assert_eq!(read(&a, ino, 8 << 20, 3), b"aaa");
        assert_eq!(a.counters()["s3_fetches"], before, "all of it is here");
        write(&a, "written", large("b").as_bytes());
        a.unlink(&now(), ROOT, b"removed").unwrap();
        a.upload().unwrap();
        a.pull().unwrap();
        is_settled(&a);
        assert_eq!(names(&a, ROOT), ["read", "written"]);
        assert!(!served.has(&agent, "removed"));
        let ino = a.lookup(ROOT, b"written").unwrap().ino;
        let versions = a.getxattr(ino, b"user.ctx.versions").unwrap();
        assert_eq!(versions.iter().filter(|byte| **byte == b'\n').count(), 1);
        let b = served.mount(&agent, "bob");
        assert!(text(&b, "written") == large("b"));
    }
}
