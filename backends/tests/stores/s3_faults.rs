//! The `s3` store while its server, or the way there, is broken: what a caller is told, how long he waits, and
//! that nothing that was acknowledged is lost, doubled or taken back when it works again.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store, SyncMode};
use backends::store::{Change, Errno, Ino, ROOT, Store, Timestamp, XattrMode};
use common::*;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use s3::{
    Broken, bucket, in_time, is_settled, now, object, remove_everything, service, text, try_text,
    write,
};
use servers::{Answered, Fault, Operation, Rule, When};

/// Requests that are about one object.
const OBJECTS: [Operation; 6] = [
    Operation::Get,
    Operation::Head,
    Operation::Put,
    Operation::Copy,
    Operation::Delete,
    Operation::Parts,
];

#[test]
fn wrong_bytes_never_reach_a_reader() {
    let broken = Broken::new();
    let large = "0123456789abcdef".repeat(6 << 16);
    let b = broken.elsewhere("bob");
    write(&b, "small.txt", b"the truth");
    write(&b, "large.txt", large.as_bytes());
    b.upload().unwrap();
    let a = broken.mount("alice");
    for (name, right) in [("small.txt", "the truth"), ("large.txt", &large)] {
        for fault in [Fault::DamageBody, Fault::ShortenBody] {
            broken.set(fault.clone(), &[Operation::Get], When::Always);
            let read = in_time(name, || try_text(&a, name));
            assert!(broken.fired() > 0, "{fault:?} of {name}");
            assert_eq!(read, Err(Errno::IO), "{fault:?} of {name}");
        }
        broken.set(Fault::DamageBody, &[Operation::Get], When::First(1));
        let read = in_time(name, || try_text(&a, name));
        assert!(
            read == Ok(right.to_owned()),
            "asked again, it is right: {name}"
        );
    }
}

#[test]
fn what_another_tool_has_put_there_is_no_damage() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n.txt", b"ours");
    a.upload().unwrap();
    let key = Key::from(format!("agents/{}/n.txt", broken.agent));
    service().runtime.block_on(async {
        let got = bucket().get(&key).await.unwrap();
        // As a tool does that keeps metadata it does not understand.
        let options = object_store::PutOptions {
            attributes: got.attributes.clone(),
            ..Default::default()
        };
        let payload = object_store::PutPayload::from_static(b"them");
        bucket().put_opts(&key, payload, options).await.unwrap();
    });
    a.pull().unwrap();
    assert_eq!(text(&a, "n.txt"), "them");
}

#[test]
fn bodies_that_break_off_are_fetched_again_or_an_error() {
    let broken = Broken::new();
    let b = broken.elsewhere("bob");
    let content = "line\n".repeat(10_000);
    write(&b, "n.txt", content.as_bytes());
    b.upload().unwrap();
    let a = broken.mount("alice");
    for fault in [
        Fault::CutBody,
        Fault::ResetInBody,
        Fault::LoseAnswer,
        Fault::Reset,
    ] {
        broken.set(fault.clone(), &[Operation::Get], When::Always);
        let read = in_time("a read", || try_text(&a, "n.txt"));
        assert!(broken.fired() > 0);
        assert!(
            matches!(read, Err(Errno::IO | Errno::TIMEDOUT)),
            "{fault:?}: {:?}",
            read.map(|text| text.len())
        );
    }
    for fault in [Fault::CutBody, Fault::ResetInBody, Fault::LoseAnswer] {
        let a = broken.mount(&format!("w{}", broken.proxy.seen().len()));
        broken.set(fault.clone(), &[Operation::Get], When::First(1));
        assert!(text(&a, "n.txt") == content, "{fault:?}");
        assert_eq!(broken.fired(), 1);
    }
}

#[test]
fn a_server_that_does_not_answer_makes_nobody_wait_longer_than_the_timeout() {
    let broken = Broken::new();
    let b = broken.elsewhere("bob");
    write(&b, "n.txt", b"content");
    b.upload().unwrap();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Fsync,
        ..broken.config("alice")
    });
    broken.proxy.set(vec![Rule::always(Fault::Hang)]);
    let read = in_time("a read", || try_text(&a, "n.txt"));
    assert_eq!(read, Err(Errno::TIMEDOUT));
    let mut ino = ROOT;
    for nth in 0..200 {
        ino = write(&a, &format!("w{nth}"), format!("w{nth}").as_bytes());
    }
    let synced = in_time("fsync", || a.fsync(ino, false));
    assert_eq!(errno(synced), Errno::TIMEDOUT);
    let ordered = in_time("sync", || a.getxattr(ROOT, b"user.ctx.sync"));
    assert!(matches!(errno(ordered), Errno::TIMEDOUT | Errno::IO));
    let pulled = in_time("pull", || a.getxattr(ROOT, b"user.ctx.pull"));
    assert!(matches!(errno(pulled), Errno::TIMEDOUT | Errno::IO));
    assert!(broken.fired() > 0);
    // What is here can be read and changed meanwhile.
    assert_eq!(in_time("a local read", || text(&a, "w7")), "w7");
    broken.proxy.clear();
    a.upload().unwrap();
    is_settled(&a);
    for nth in 0..200 {
        let name = format!("w{nth}");
        assert_eq!(broken.taken(Operation::Put, &name), 1, "{name}");
    }
    assert_eq!(text(&a, "n.txt"), "content");
}

#[test]
fn a_mount_ends_in_time_though_the_server_does_not_answer() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for nth in 0..100 {
        write(&a, &format!("w{nth}"), b"x");
    }
    broken.proxy.set(vec![Rule::always(Fault::Hang)]);
    let failed = in_time("the last sync", || a.sync());
    let told = failed.unwrap_err().to_string();
    assert!(
        told.contains("200 changes") || told.contains("not in the bucket"),
        "{told}"
    );
    in_time("the end", || drop(a));
    broken.proxy.clear();
    let a = broken.mount("alice");
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(object(&broken, "w99").unwrap(), b"x");
}

#[test]
fn a_listing_that_lags_behind_takes_nothing_away_and_brings_nothing_back() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for name in ["kept", "changed", "deleted", "d1", "d2", "d3", "d4"] {
        write(&a, name, b"first");
    }
    a.upload().unwrap();
    a.pull().unwrap();
    broken
        .proxy
        .set(vec![Rule::always(Fault::StaleList).of(&[Operation::List])]);
    let ino = write(&a, "new", b"new");
    write(&a, "changed", b"changed");
    for name in ["deleted", "d1", "d2", "d3", "d4"] {
        a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    a.upload().unwrap();
    for _ in 0..3 {
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), ["changed", "kept", "new"]);
        assert_eq!(text(&a, "changed"), "changed");
        assert_eq!(text(&a, "new"), "new");
        assert_eq!(
            a.lookup(ROOT, b"new").unwrap().ino,
            ino,
            "who has it open keeps it"
        );
    }
    assert!(broken.fired() >= 3);
    // Deletions that others were told of by a writer's index do not come back, either.
    let b = broken.mount("bob");
    b.pull().unwrap();
    broken.proxy.clear();
    a.pull().unwrap();
    b.pull().unwrap();
    assert_eq!(names(&a, ROOT), ["changed", "kept", "new"]);
    assert_eq!(names(&b, ROOT), ["changed", "kept", "new"]);
    is_settled(&a);
}

#[test]
fn what_others_delete_goes_here_too() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for nth in 0..10 {
        write(&a, &format!("n{nth}"), b"x");
    }
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    for name in names(&b, ROOT) {
        b.unlink(&now(), ROOT, name.as_bytes()).unwrap();
    }
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(names(&a, ROOT), Vec::<String>::new());
    is_settled(&a);
}

fn no_bucket() -> Fault {
    Fault::Refuse {
        status: 404,
        code: "NoSuchBucket".to_owned(),
        retry_after: None,
    }
}

#[test]
fn a_bucket_that_is_gone_for_a_while_changes_nothing_here() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "kept", b"kept");
    write(&a, "changed", b"1");
    write(&a, "deleted", b"1");
    a.upload().unwrap();
    broken.proxy.set(vec![Rule::always(no_bucket())]);
    assert!(a.pull().is_err());
    write(&a, "changed", b"2");
    write(&a, "new", b"2");
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    for _ in 0..3 {
        let told = a.upload().unwrap_err().to_string();
        assert!(told.contains("bucket"), "{told}");
        assert!(a.pending().unwrap() > 0);
    }
    assert!(broken.fired() > 0);
    broken.proxy.clear();
    a.upload().unwrap();
    a.pull().unwrap();
    is_settled(&a);
    assert_eq!(names(&a, ROOT), ["changed", "kept", "new"]);
    assert_eq!(object(&broken, "deleted"), None, "the deletion has arrived");
    assert_eq!(object(&broken, "changed").unwrap(), b"2");
}

#[test]
fn a_bucket_that_was_emptied_behind_our_back_empties_nothing_here() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for nth in 0..5 {
        write(&a, &format!("n{nth}"), b"the only copy");
    }
    a.upload().unwrap();
    a.pull().unwrap();
    remove_everything(&broken.agent);
    // What goes up before the next look does not make it look whole again.
    write(&a, "new", b"new");
    a.upload().unwrap();
    let told = a.pull().unwrap_err().to_string();
    assert!(told.contains("emptied") && told.contains("fix:"), "{told}");
    assert_eq!(names(&a, ROOT).len(), 6);
    assert_eq!(text(&a, "n3"), "the only copy");
    let synced = a.getxattr(ROOT, b"user.ctx.sync");
    assert!(
        synced.is_err(),
        "it is not durable, and must not be called so"
    );
    // The next mount shows what is here, too.
    drop(a);
    let a = broken.mount("alice");
    assert_eq!(text(&a, "n3"), "the only copy");
    assert!(a.upload().is_err());
}

#[test]
fn refusals_are_told_and_end_with_their_cause() {
    let refuse = |status: u16, code: &str| Fault::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    };
    for (fault, errnos) in [
        (refuse(503, "SlowDown"), [Errno::IO, Errno::IO]),
        (refuse(500, "InternalError"), [Errno::IO, Errno::IO]),
        (refuse(403, "AccessDenied"), [Errno::ACCESS, Errno::IO]),
        (
            refuse(403, "InvalidAccessKeyId"),
            [Errno::ACCESS, Errno::IO],
        ),
        (
            refuse(403, "RequestTimeTooSkewed"),
            [Errno::ACCESS, Errno::IO],
        ),
    ] {
        let broken = Broken::new();
        let b = broken.elsewhere("bob");
        write(&b, "n.txt", b"bob's");
        b.upload().unwrap();
        let a = broken.mount("alice");
        broken.proxy.set(vec![Rule::always(fault.clone())]);
        let read = in_time("a read", || try_text(&a, "n.txt"));
        assert!(
            errnos.contains(&read.clone().unwrap_err()),
            "{fault:?}: {read:?}"
        );
        write(&a, "m.txt", b"alice's");
        let Fault::Refuse { code, .. } = &fault else {
            unreachable!()
        };
        let told = in_time("an upload", || a.upload()).unwrap_err().to_string();
        assert!(told.contains(code), "{told}");
        assert!(broken.fired() > 0);
        broken.proxy.clear();
        a.upload().unwrap();
        is_settled(&a);
        assert_eq!(text(&a, "n.txt"), "bob's");
        assert_eq!(broken.taken(Operation::Put, "m.txt"), 1);
    }
}

#[test]
fn bursts_of_slow_down_are_ridden_out() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    let slow_down = Fault::Refuse {
        status: 503,
        code: "SlowDown".to_owned(),
        retry_after: None,
    };
    let bursts = When::Bursts {
        length: 2,
        every: 9,
    };
    broken.set(slow_down, &OBJECTS, bursts);
    for nth in 0..60 {
        write(&a, &format!("n{nth}"), b"x");
    }
    let begun = Instant::now();
    while a.upload().is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert!(broken.fired() > 5);
    is_settled(&a);
    for nth in 0..60 {
        assert_eq!(broken.taken(Operation::Put, &format!("n{nth}")), 1);
    }
}

#[test]
fn a_partition_in_mid_sync_loses_nothing_and_doubles_nothing() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "changed", b"1");
    write(&a, "deleted", b"1");
    a.upload().unwrap();
    // A few of the new files get there, and then nothing does.
    broken.set(Fault::Delay { ms: 100.0 }, &[Operation::Put], When::Always);
    for nth in 0..100 {
        write(&a, &format!("n{nth}"), b"x");
    }
    write(&a, "changed", b"2");
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        std::thread::sleep(Duration::from_millis(250));
        broken.proxy.partition(true).unwrap();
        assert!(in_time("an upload", || uploading.join().unwrap()).is_err());
    });
    assert_eq!(text(&a, "n7"), "x");
    write(&a, "n7", b"later");
    broken.proxy.clear();
    broken.proxy.partition(false).unwrap();
    a.upload().unwrap();
    is_settled(&a);
    let seen = broken.proxy.seen();
    let done: Vec<_> = seen
        .iter()
        // What was cut off may be there: it is asked for then, and not put again.
        .filter(|seen| {
            matches!(
                seen.answered,
                Answered::Status(200..=299) | Answered::Unknown
            )
        })
        .collect();
    let place = |name: &str| {
        let path = format!("/{}/agents/{}/{name}", servers::BUCKET, broken.agent);
        done.iter()
            .rposition(|seen| seen.path == path && seen.operation == Operation::Put)
    };
    let changed = place("changed").unwrap();
    let deletions = done.iter();
    let deleted = deletions
        .rev()
        .position(|seen| seen.operation == Operation::Delete);
    let deleted = done.len() - 1 - deleted.unwrap();
    assert!(changed < deleted);
    for nth in 0..100 {
        let name = format!("n{nth}");
        assert!(place(&name).unwrap() < deleted, "{name}");
        let expected = if nth == 7 { "later" } else { "x" };
        assert_eq!(
            object(&broken, &name).unwrap(),
            expected.as_bytes(),
            "{name}"
        );
        assert!(broken.taken(Operation::Put, &name) <= 2, "{name}");
    }
}

#[test]
fn what_is_damaged_on_its_way_up_is_refused_and_sent_again() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    broken.set(Fault::DamageRequest, &[Operation::Put], When::Always);
    write(&a, "n.txt", b"the truth");
    assert!(a.upload().is_err());
    assert!(broken.fired() > 0);
    assert_eq!(
        object(&broken, "n.txt"),
        None,
        "no wrong byte in the bucket"
    );
    broken.proxy.clear();
    a.upload().unwrap();
    is_settled(&a);
    assert_eq!(object(&broken, "n.txt").unwrap(), b"the truth");
}

#[test]
fn listings_that_break_change_nothing() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    for nth in 0..20 {
        write(&a, &format!("n{nth}"), b"x");
    }
    a.upload().unwrap();
    for fault in [
        Fault::ShortenBody,
        Fault::CutBody,
        Fault::DamageBody,
        Fault::ResetInBody,
    ] {
        broken
            .proxy
            .set(vec![Rule::always(fault.clone()).of(&[Operation::List])]);
        let _ = in_time("a look", || a.pull());
        assert!(broken.fired() > 0);
        assert_eq!(names(&a, ROOT).len(), 20, "{fault:?}");
    }
    broken.proxy.clear();
    a.pull().unwrap();
    assert_eq!(names(&a, ROOT).len(), 20);
    is_settled(&a);
}

#[test]
fn files_that_are_synced_at_once_are_all_there() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Fsync,
        ..broken.config("alice")
    });
    std::thread::scope(|scope| {
        for writer in 0..6 {
            let (a, broken) = (&a, &broken);
            scope.spawn(move || {
                for nth in 0..20 {
                    let name = format!("w{writer}-{nth}");
                    let ino = write(a, &name, name.as_bytes());
                    a.fsync(ino, false).unwrap();
                    let there = object(broken, &name);
                    assert_eq!(there.unwrap(), name.as_bytes(), "synced, and so there");
                }
            });
        }
    });
    a.upload().unwrap();
    is_settled(&a);
    for writer in 0..6 {
        for nth in 0..20 {
            let name = format!("w{writer}-{nth}");
            // A batch of others' may have met it while it was empty yet.
            let taken = broken.taken(Operation::Put, &name);
            assert!((1..=2).contains(&taken), "{name}: {taken}");
        }
    }
    let b = broken.elsewhere("bob");
    assert_eq!(names(&b, ROOT).len(), 120);
}

#[test]
fn one_file_that_cannot_go_up_is_told_in_time_and_goes_up_later() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Fsync,
        ..broken.config("alice")
    });
    let ino = write(&a, "n.txt", b"1");
    a.fsync(ino, false).unwrap();
    for (fault, expected) in [
        (Fault::Hang, Errno::TIMEDOUT),
        (no_bucket(), Errno::IO),
        (Fault::LoseAnswer, Errno::IO),
    ] {
        broken.proxy.set(vec![Rule::always(fault.clone())]);
        write(&a, "n.txt", format!("{fault:?}").as_bytes());
        let told = in_time("fsync", || a.fsync(ino, false));
        assert_eq!(errno(told), expected, "{fault:?}");
        assert!(broken.fired() > 0 && a.pending().unwrap() > 0);
        broken.proxy.clear();
        a.fsync(ino, false).unwrap();
        assert_eq!(
            object(&broken, "n.txt").unwrap(),
            text(&a, "n.txt").as_bytes()
        );
    }
    // Somebody else's change is met by the engine, which keeps both.
    let b = broken.elsewhere("bob");
    write(&b, "n.txt", b"bob's");
    b.upload().unwrap();
    write(&a, "n.txt", b"alice's");
    a.fsync(ino, false).unwrap();
    assert_eq!(text(&a, "n.txt"), "bob's");
    // The same content again: others are told of its attributes in the manifest.
    let ino = write(&a, "same", b"same");
    a.fsync(ino, false).unwrap();
    b.pull().unwrap();
    write(&a, "same", b"same");
    change_attributes(&a, ino, 0o640);
    a.fsync(ino, false).unwrap();
    has_been_told(&a, &b, "same");
    // At once, and nothing else has to happen first.
    assert_eq!(a.pending().unwrap(), 0);
}

/// Changes everything of a file that others are told of, but for its content.
fn change_attributes(store: &S3Store, ino: Ino, permissions: u16) {
    let touch = Change {
        permissions: Some(permissions),
        mtime: Some(Timestamp(1_234_000_000_000 + i64::from(permissions))),
        ..Change::default()
    };
    store.setattr(&now(), ino, &touch).unwrap();
    let value = permissions.to_string();
    let mode = XattrMode::Set;
    store
        .setxattr(&now(), ino, b"user.tag", value.as_bytes(), mode)
        .unwrap();
}

/// After a look, another host has the attributes that a file has here.
fn has_been_told(here: &S3Store, there: &S3Store, name: &str) {
    there.pull().unwrap();
    let [ours, theirs] = [here, there].map(|store| {
        let attr = store.lookup(ROOT, name.as_bytes()).unwrap();
        let tag = store.getxattr(attr.ino, b"user.tag").unwrap();
        (attr.permissions, attr.mtime, tag)
    });
    assert_eq!(theirs, ours);
}

#[test]
fn attributes_that_could_not_be_told_are_told_by_the_next_sync_or_mount() {
    let broken = Broken::new();
    let config = || S3Config {
        sync: SyncMode::Close,
        ..broken.config("alice")
    };
    let mut a = broken.mount_as(config());
    let b = broken.elsewhere("bob");
    let ino = write(&a, "n.txt", b"1");
    a.close(ino).unwrap();
    let manifest = format!("ctx/{}/manifest.json", broken.agent);
    let fails = Rule::always(Fault::Reset)
        .of(&[Operation::Put])
        .below(&manifest);
    for (permissions, is_again) in [(0o640, false), (0o600, true)] {
        b.pull().unwrap();
        broken.proxy.set(vec![fails.clone()]);
        let ino = a.lookup(ROOT, b"n.txt").unwrap().ino;
        change_attributes(&a, ino, permissions);
        assert!(a.close(ino).is_err(), "others do not know");
        assert!(broken.fired() > 0);
        assert_eq!(a.pending().unwrap(), 1, "the object is there");
        broken.proxy.clear();
        if is_again {
            drop(a);
            a = broken.mount_as(config());
        }
        a.upload().unwrap();
        assert_eq!(a.pending().unwrap(), 0);
        has_been_told(&a, &b, "n.txt");
    }
}

/// The requests that the server has answered well since `from`, in their order, and what of the agent's they are about:
/// one that deletes names it in its body alone.
fn answered(broken: &Broken, from: usize) -> Vec<(Operation, String)> {
    let seen = broken.proxy.seen().split_off(from);
    let ours = format!("/{}/", broken.agent);
    let well = |answered| matches!(answered, Answered::Status(200..=299));
    let seen = seen.into_iter().filter(|seen| well(seen.answered));
    let named = seen.map(|seen| {
        let name = seen.path.split_once(&ours);
        let name = name.map_or("", |(_, name)| name).to_owned();
        (seen.operation, name)
    });
    named.collect()
}

#[test]
fn within_a_batch_what_is_new_comes_first_and_what_is_gone_last() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        timeout: Duration::from_secs(20),
        keep_versions: false,
        ..broken.config("alice")
    });
    let b = broken.elsewhere("bob");
    for name in ["report.md", "zero", "old"] {
        write(&a, name, b"old");
    }
    let dir = create(&a, ROOT, "dir", backends::store::Kind::Directory);
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(text(&b, "report.md"), "old");
    let change = || {
        write(&a, "report.md", b"new");
        write(&a, "zero", b"new");
        a.unlink(&now(), ROOT, b"old").unwrap();
        let mode = Change {
            permissions: Some(0o700),
            ..Change::default()
        };
        a.setattr(&now(), dir.ino, &mode).unwrap();
        write(&a, "done", b"done");
        write(&a, "also-new", b"new");
    };
    change();
    let report = format!("agents/{}/report.md", broken.agent);
    let held = Rule::always(Fault::Hold)
        .of(&[Operation::Put])
        .below(&report);
    broken.proxy.set(vec![held]);
    let from = broken.proxy.seen().len();
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        let begun = Instant::now();
        while broken.fired() == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "nothing is held");
            std::thread::sleep(Duration::from_millis(5));
        }
        b.pull().unwrap();
        // What docs/S3.md says is not promised, and what is.
        assert_eq!(
            (text(&b, "done"), text(&b, "report.md")),
            ("done".to_owned(), "old".to_owned())
        );
        assert_eq!(
            (text(&b, "also-new"), text(&b, "old")),
            ("new".to_owned(), "old".to_owned())
        );
        broken.proxy.clear();
        uploading.join().unwrap().unwrap();
    });
    let order = answered(&broken, from);
    let at = |operation: Operation, name: &str| {
        let found = order
            .iter()
            .position(|it| *it == (operation, name.to_owned()));
        found.unwrap_or_else(|| panic!("{operation:?} of {name} is not in {order:?}"))
    };
    let (put, delete) = (Operation::Put, Operation::Delete);
    let new = at(put, "done").max(at(put, "also-new"));
    let changed = [at(put, "report.md"), at(put, "zero")];
    assert!(changed.iter().all(|at| *at > new), "{order:?}");
    assert!(
        at(put, "manifest.json") > changed[0].max(changed[1]),
        "{order:?}"
    );
    assert!(at(delete, "") > at(put, "manifest.json"), "{order:?}");
    b.pull().unwrap();
    assert_eq!(text(&b, "report.md"), "new");
    // With the bucket waited for in between, nobody sees the one without the other.
    let from = broken.proxy.seen().len();
    write(&a, "report.md", b"newer");
    a.upload().unwrap();
    write(&a, "done-again", b"done");
    a.upload().unwrap();
    let order = answered(&broken, from);
    let puts = order.iter().filter(|(operation, _)| *operation == put);
    let puts: Vec<&str> = puts.map(|(_, name)| name.as_str()).collect();
    let puts: Vec<&str> = puts
        .into_iter()
        .filter(|name| !name.contains('/'))
        .collect();
    assert_eq!(puts, ["report.md", "done-again"]);
}
