//! The `s3` store on a server that does what it is told whether or not the condition of a write holds: it is found out,
//! and each write is preceded by a look. What comes between the two is overwritten, as the mount's warning says.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store};
use backends::store::{ROOT, Store};
use common::names;
use s3::{Machines, Quirky, agent, bucket_of, config_of, now, text, write};
use serde_json::Value;
use servers::{Fault, FaultProxy, Operation, Quirk, Rule};

/// A server that ignores conditions, and machines that use it.
struct Unconditional {
    machines: Machines,
    agent: String,
    server: Quirky,
}

impl Unconditional {
    fn new() -> Self {
        Self::with(Quirk::IgnoresConditions)
    }

    fn with(quirk: Quirk) -> Self {
        Self {
            machines: Machines::new(),
            agent: agent(),
            server: Quirky::new(quirk),
        }
    }

    fn config(&self, writer: &str) -> S3Config {
        config_of(&self.server.access, &self.agent, writer)
    }

    fn mount(&self, writer: &str) -> S3Store {
        self.machines.mount(self.config(writer))
    }

    /// What the first mount has left for those that come later.
    fn mark(&self) -> Value {
        use object_store::ObjectStoreExt;
        let bucket = bucket_of(&self.server.access);
        let key = object_store::path::Path::from(format!("ctx/{}/server.json", self.agent));
        self.server.runtime.block_on(async {
            let body = bucket.get(&key).await.unwrap().bytes().await.unwrap();
            serde_json::from_slice(&body).unwrap()
        })
    }
}

/// What something took of one kind of request.
fn count(store: &S3Store, kind: &str, work: impl FnOnce()) -> u64 {
    let before = store.counters()[kind];
    work();
    store.counters()[kind] - before
}

#[test]
fn a_server_that_ignores_conditions_is_found_out() {
    let served = Unconditional::new();
    assert!(!served.mount("alice").conditions().are_honoured);
    let mark = served.mark();
    assert_eq!(mark["conditions_are_honoured"], false, "{mark}");
    assert!(
        mark.get("id").is_none(),
        "two first mounts could each write one"
    );
    // By what the first mount has left, and by a cache.
    for writer in ["bob", "alice"] {
        assert!(!served.mount(writer).conditions().are_honoured, "{writer}");
    }
}

#[test]
fn a_look_before_each_write_keeps_what_others_wrote_before() {
    let served = Unconditional::new();
    let (a, b) = (served.mount("alice"), served.mount("bob"));
    let large = |letter: &str| letter.repeat(9 << 20);
    write(&a, "plan.md", b"base");
    write(&a, "large", large("0").as_bytes());
    a.upload().unwrap();
    b.pull().unwrap();
    // An overwritten file and a new one, small and in parts.
    for (store, by) in [(&a, "a"), (&b, "b")] {
        write(store, "plan.md", by.as_bytes());
        write(store, "new.md", by.as_bytes());
        write(store, "large", large(by).as_bytes());
    }
    let looks = count(&a, "s3_head", || a.upload().unwrap());
    assert_eq!(looks, 3, "one before each write");
    b.upload().unwrap();
    assert_eq!(b.counters()["s3_conflicts"], 3);
    b.upload().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        for (name, kept) in [
            ("plan.md", "plan.conflict-bob-2.md"),
            ("new.md", "new.conflict-bob-1.md"),
        ] {
            assert_eq!(text(store, name), "a");
            assert_eq!(text(store, kept), "b");
        }
        assert!(text(store, "large") == large("a"));
        assert!(text(store, "large.conflict-bob-2") == large("b"));
        assert_eq!(names(store, ROOT).len(), 6);
    }
    // A deletion is preceded by a look, too.
    a.unlink(&now(), ROOT, b"plan.md").unwrap();
    write(&b, "plan.md", b"later");
    b.upload().unwrap();
    a.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, "plan.md"), "later");
}

#[test]
fn what_comes_between_the_look_and_the_write_is_overwritten() {
    let served = Unconditional::new();
    let upstream = served
        .server
        .access
        .endpoint
        .strip_prefix("http://")
        .unwrap();
    let proxy = FaultProxy::start(0, upstream.parse().unwrap()).unwrap();
    let a = served.mount("alice");
    let b = served.machines.mount(S3Config {
        endpoint: proxy.endpoint(),
        ..served.config("bob")
    });
    let below = format!("agents/{}", served.agent);
    let held = Rule::always(Fault::Hold)
        .of(&[Operation::Put])
        .below(&below);
    proxy.set(vec![held]);
    write(&b, "x", b"by bob");
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| b.upload());
        let begun = Instant::now();
        while proxy.fired().iter().all(|fired| fired.done == 0) {
            assert!(begun.elapsed() < Duration::from_secs(5), "nothing was sent");
            std::thread::sleep(Duration::from_millis(5));
        }
        write(&a, "x", b"by alice");
        a.upload().unwrap();
        proxy.clear();
        uploading.join().unwrap().unwrap();
    });
    assert_eq!(b.counters()["s3_conflicts"], 0, "nobody is told");
    let c = served.mount("carol");
    assert_eq!(
        (names(&c, ROOT), text(&c, "x")),
        (vec!["x".to_owned()], "by bob".to_owned())
    );
}

#[test]
fn a_look_before_parts_are_put_together_keeps_what_others_wrote_before() {
    let served = Unconditional::with(Quirk::IgnoresConditionsOfParts);
    let (a, b) = (served.mount("alice"), served.mount("bob"));
    for store in [&a, &b] {
        let conditions = store.conditions();
        assert!(conditions.are_honoured && !conditions.are_honoured_of_parts);
    }
    let large = |letter: &str| letter.repeat(9 << 20);
    write(&a, "large", large("0").as_bytes());
    a.upload().unwrap();
    b.pull().unwrap();
    write(&a, "small", b"a");
    for (store, by) in [(&a, "a"), (&b, "b")] {
        write(store, "large", large(by).as_bytes());
        let looks = count(store, "s3_head", || store.upload().unwrap());
        // The first that is refused looks once more, and finds what it was refused for.
        assert!(looks > 0, "one before the end");
    }
    assert_eq!(b.counters()["s3_conflicts"], 1);
    b.upload().unwrap();
    a.pull().unwrap();
    for store in [&a, &b] {
        assert!(text(store, "large") == large("a"));
        assert!(text(store, "large.conflict-bob-2") == large("b"));
    }
    // As a cache remembers it.
    drop(b);
    assert!(!served.mount("bob").conditions().are_honoured_of_parts);
}
