//! Buckets of the `s3` store that somebody empties key by key while they are mounted, and the mark that tells it.

use crate::common;
use crate::s3;

use backends::s3::{OpenOptions, S3Store};
use backends::store::{ROOT, Store};
use common::*;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use s3::{
    Machines, agent, all_keys, bucket, bucket_of, config, config_of, is_settled, keys, options,
    put_object, remove, remove_everything, runtime, service, text, write,
};

const REFILL: OpenOptions = OpenOptions {
    allow_offline: false,
    refill_bucket: true,
};

fn body_of(key: &str) -> String {
    let got = service().runtime.block_on(async {
        let got = bucket().get(&Key::from(key)).await.unwrap();
        got.bytes().await.unwrap()
    });
    String::from_utf8(got.to_vec()).unwrap()
}

#[test]
fn a_look_while_a_bucket_is_being_emptied_takes_nothing_away() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    let files: Vec<String> = (0..10).map(|nth| format!("n{nth}")).collect();
    for name in &files {
        write(&a, name, b"the only copy");
    }
    a.upload().unwrap();
    a.pull().unwrap();
    // As `aws s3 rm --recursive` does: in the order in which they are listed.
    let all = all_keys(&agent);
    let is_file = |key: &String| key.starts_with("agents/");
    let last = all.iter().rposition(is_file).unwrap();
    for (nth, key) in all.iter().enumerate() {
        remove(key);
        if is_file(key) {
            let told = a.pull().unwrap_err().to_string();
            assert!(
                told.contains("emptied") && told.contains("--refill-bucket"),
                "{key}: {told}"
            );
            assert_eq!(names(&a, ROOT), files, "{key}");
            assert_eq!(text(&a, "n0"), "the only copy", "{key}");
            assert!(a.upload().is_err(), "{key}");
        }
        if nth == last {
            break;
        }
    }
    drop(a);
    let open = |options| S3Store::open_with(config(&agent, "alice"), &cache, &caller(1), options);
    let a = open(REFILL).unwrap();
    let [note] = a.notes() else {
        panic!("{:?}", a.notes())
    };
    assert!(note.contains("10 files go up again"), "{note}");
    a.upload().unwrap();
    is_settled(&a);
    let b = machines.mount(config(&agent, "bob"));
    assert_eq!(names(&b, ROOT), files);
    assert_eq!(text(&b, "n7"), "the only copy");
}

#[test]
fn a_mark_that_was_not_written_at_first_is_written_once_nothing_is_missing() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "note", b"the only copy");
    a.upload().unwrap();
    drop(a);
    // As it is where the first mount could not write it.
    let forget = || {
        let db = rusqlite::Connection::open(&cache).unwrap();
        let own = "DELETE FROM s3_setting WHERE name = 'mark'";
        assert_eq!(db.execute(own, ()).unwrap(), 1);
    };
    let mark = format!(".ctx/{agent}/mark");
    remove(&mark);
    forget();
    let a = machines.mount(config(&agent, "alice"));
    assert!(!body_of(&mark).is_empty());
    drop(a);
    // And it does not vouch for a bucket that was emptied before.
    forget();
    remove_everything(&agent);
    let a = machines.mount(config(&agent, "alice"));
    assert!(a.pull().unwrap_err().to_string().contains("emptied"));
    assert_eq!(text(&a, "note"), "the only copy");
    assert_eq!(all_keys(&agent), Vec::<String>::new());
}

#[test]
fn the_mark_is_before_every_other_key_and_no_file() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "!first", b"1");
    a.upload().unwrap();
    let all = all_keys(&agent);
    assert_eq!(all[0], format!(".ctx/{agent}/mark"), "{all:?}");
    assert_eq!(keys(&agent), [format!("agents/{agent}/!first")]);
    let b = machines.mount(config(&agent, "bob"));
    assert_eq!(names(&b, ROOT), ["!first"]);
}

#[test]
fn what_an_earlier_build_writes_of_the_server_is_no_emptied_bucket() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    for name in ["kept", "deleted"] {
        write(&a, name, b"1");
    }
    a.upload().unwrap();
    let server = format!("ctx/{agent}/server.json");
    // An earlier build refuses what it does not know.
    let found: serde_json::Value = serde_json::from_str(&body_of(&server)).unwrap();
    let mut fields: Vec<&String> = found.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["conditions_are_honoured", "endpoint"]);
    // One at another address has written it anew.
    put_object(
        &server,
        br#"{"endpoint":"http://elsewhere","conditions_are_honoured":true}"#,
    );
    let b = machines.mount(config(&agent, "bob"));
    b.unlink(&caller(5), ROOT, b"deleted").unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(names(&a, ROOT), ["kept"]);
    // The mark is told from a new one all the same.
    remove_everything(&agent);
    assert!(a.pull().is_err());
}

#[test]
fn a_mark_that_was_in_what_is_known_of_the_server_gets_an_object_of_its_own() {
    for id in [Some("0123456789abcdef"), None] {
        let (machines, agent) = (Machines::new(), agent());
        let cache = machines.cache("alice.db");
        let a = machines.mount(config(&agent, "alice"));
        for name in ["deleted", "deleted later", "kept"] {
            write(&a, name, b"1");
        }
        a.upload().unwrap();
        let endpoint = config(&agent, "alice").endpoint;
        drop(a);
        // As a build left it that had no such object.
        let mark = format!(".ctx/{agent}/mark");
        remove(&mark);
        let in_server = id.map(|id| format!(r#","id":"{id}""#)).unwrap_or_default();
        let server =
            format!(r#"{{"endpoint":"{endpoint}","conditions_are_honoured":true{in_server}}}"#);
        put_object(
            &format!("ctx/{agent}/server.json"),
            server.leak().as_bytes(),
        );
        let known = id.unwrap_or("yes");
        let db = rusqlite::Connection::open(&cache).unwrap();
        let own = "DELETE FROM s3_setting WHERE name = 'mark'";
        assert_eq!(db.execute(own, ()).unwrap(), 1);
        let marked = "INSERT INTO s3_setting VALUES ('marked', ?1)";
        assert_eq!(db.execute(marked, [known]).unwrap(), 1);
        drop(db);
        remove(&format!("agents/{agent}/deleted"));

        let a = machines.mount(config(&agent, "alice"));
        assert_eq!(names(&a, ROOT), ["deleted later", "kept"]);
        assert_eq!(body_of(&mark).trim(), known);
        // From now on it counts, and not what is known of the server.
        remove(&mark);
        remove(&format!("agents/{agent}/deleted later"));
        let told = a.pull().unwrap_err().to_string();
        assert!(told.contains("emptied"), "{told}");
        assert_eq!(names(&a, ROOT), ["deleted later", "kept"]);
    }
}

#[test]
fn unread_files_that_another_has_replaced_are_named_when_a_bucket_is_filled_again() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let open = |options| S3Store::open_with(config(&agent, "alice"), &cache, &caller(1), options);
    let b = machines.mount(config(&agent, "bob"));
    for name in ["both", "same", "unread"] {
        write(&b, name, b"before");
    }
    b.upload().unwrap();
    drop(b);
    let a = open(OpenOptions::default()).unwrap();
    for name in ["both", "same"] {
        assert_eq!(text(&a, name), "before");
    }
    drop(a);
    remove_everything(&agent);
    let c = machines.mount(config(&agent, "carol"));
    for (name, content) in [("both", "after"), ("same", "before"), ("unread", "after")] {
        write(&c, name, content.as_bytes());
    }
    c.upload().unwrap();
    drop(c);

    let a = open(REFILL).unwrap();
    let [note] = a.notes() else {
        panic!("{:?}", a.notes())
    };
    assert!(
        note.contains("of 1 that are others there both are kept")
            && note.contains(
                "1 whose content was only there are replaced by what is there now: unread"
            )
            && !note.contains("lost"),
        "{note}"
    );
    assert_eq!(text(&a, "unread"), "after");
}

#[test]
fn the_mark_tells_an_emptied_bucket_on_every_server_that_is_installed() {
    use futures::TryStreamExt;
    for kind in servers::ServerKind::ALL {
        let found = match kind.find() {
            Ok(found) => found,
            Err(missing) => {
                eprintln!("{kind} is left out: {missing}");
                continue;
            }
        };
        let (machines, dir, runtime) = (Machines::new(), tempfile::tempdir().unwrap(), runtime());
        let server = runtime
            .block_on(servers::start(options(found, dir.path())))
            .unwrap();
        let access = server.access();
        let a = machines.mount(config_of(access, "agent", "alice"));
        for name in ["n0", "n1"] {
            write(&a, name, b"the only copy");
        }
        a.upload().unwrap();
        let b = machines.mount(config_of(access, "agent", "bob"));
        assert_eq!(names(&b, ROOT), ["n0", "n1"], "{kind}");
        let bucket = bucket_of(access);
        let keys: Vec<Key> = runtime
            .block_on(bucket.list(None).try_collect::<Vec<_>>())
            .unwrap()
            .into_iter()
            .map(|object| object.location)
            .collect();
        let first = keys.iter().min().unwrap();
        assert_eq!(first.as_ref(), ".ctx/agent/mark", "{kind}: {keys:?}");
        for key in [first, &Key::from("agents/agent/n0")] {
            runtime.block_on(bucket.delete(key)).unwrap();
        }
        let told = a.pull().unwrap_err().to_string();
        assert!(told.contains("emptied"), "{kind}: {told}");
        assert_eq!(names(&a, ROOT), ["n0", "n1"], "{kind}");
        drop((a, b));
        runtime.block_on(server.stop()).unwrap();
    }
}
