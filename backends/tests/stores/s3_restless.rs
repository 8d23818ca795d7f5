//! Files that are written to while they go up, files that cannot go up at all, and uploads that are cut short.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store};
use backends::store::{Change, Errno, Ino, ROOT, RenameMode, Store, XattrMode};
use common::*;
use s3::{Broken, Machines, agent, config, now, object, object_of, rename, text, write};
use servers::{Answered, Fault, Operation, Rule, When};

/// More than goes up in one request.
const LARGE: usize = 9 << 20;

fn patient(broken: &Broken, writer: &str) -> S3Store {
    broken.mount_as(S3Config {
        timeout: Duration::from_secs(30),
        ..broken.config(writer)
    })
}

fn append(store: &S3Store, ino: Ino) {
    let size = store.getattr(ino).unwrap().size;
    store.write(&now(), ino, size, b"+").unwrap();
}

/// Appends to a file when its upload has begun, so many times, each time that it begins anew; `look` is called before.
fn upload_while_it_grows(
    broken: &Broken,
    store: &S3Store,
    ino: Ino,
    times: usize,
    mut look: impl FnMut(),
) -> Result<(), Errno> {
    let begins = || {
        Rule::always(Fault::Hold)
            .of(&[Operation::Parts])
            .below("uploads")
    };
    broken.proxy.set(vec![begins()]);
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| store.upload());
        for time in 1..=times {
            let begun = Instant::now();
            while broken.fired() == 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "nothing is held");
                std::thread::sleep(Duration::from_millis(5));
            }
            look();
            append(store, ino);
            let more = time < times;
            broken.proxy.set(more.then(begins).into_iter().collect());
        }
        uploading.join().unwrap().map_err(|error| error.errno)
    })
}

#[test]
fn a_file_that_grows_while_it_goes_up_is_there_when_that_is_said() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let ino = write(&a, "big.log", &vec![b'x'; LARGE]);
    let ended = upload_while_it_grows(&broken, &a, ino, 2, || {});
    let there = object(&broken, "big.log").map(|content| content.len());
    assert_eq!(
        (ended, there),
        (Ok(()), Some(LARGE + 1)),
        "as it was at one moment"
    );
    assert!(a.pending().unwrap() > 0, "what came since");
    a.upload().unwrap();
    assert_eq!(object(&broken, "big.log").unwrap().len(), LARGE + 2);
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn the_old_name_of_a_log_that_is_rotated_stays_until_the_new_one_is_there() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let ino = write(&a, "app.log", &vec![b'x'; LARGE]);
    a.upload().unwrap();
    rename(&a, "app.log", "app.log.1", RenameMode::NoReplace);
    append(&a, ino);
    let ended = upload_while_it_grows(&broken, &a, ino, 1, || {});
    let there = object(&broken, "app.log.1").map(|content| content.len());
    assert_eq!((ended, there), (Ok(()), Some(LARGE + 2)));
    assert_eq!(object(&broken, "app.log"), None);
}

#[test]
fn a_log_that_is_rotated_over_names_that_are_there_always_has_an_object() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let ino = write(&a, "app.log", &vec![b'x'; LARGE]);
    write(&a, "app.log.1", b"old");
    a.upload().unwrap();
    rename(&a, "app.log", "app.log.1", RenameMode::Replace);
    write(&a, "app.log", b"new");
    append(&a, ino);
    let look = || assert_eq!(object(&broken, "app.log").unwrap().len(), LARGE);
    let ended = upload_while_it_grows(&broken, &a, ino, 2, look);
    let there = object(&broken, "app.log.1").map(|content| content.len());
    assert_eq!((ended, there), (Ok(()), Some(LARGE + 2)));
    assert_eq!(object(&broken, "app.log").unwrap(), b"new");
}

#[test]
fn a_file_too_long_to_be_copied_that_never_rests_holds_up_no_other() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let ino = write(&a, "recording", &vec![b'x'; LARGE]);
    write(&a, "other", b"old");
    write(&a, "gone", b"gone");
    a.upload().unwrap();
    let long = Change {
        size: Some((1 << 30) + 1),
        ..Change::default()
    };
    a.setattr(&now(), ino, &long).unwrap();
    rename(&a, "recording", "renamed", RenameMode::NoReplace);
    write(&a, "other", b"new");
    a.unlink(&now(), ROOT, b"gone").unwrap();
    let ended = upload_while_it_grows(&broken, &a, ino, 2, || {});
    assert_eq!(ended, Err(Errno::AGAIN));
    assert_eq!(object(&broken, "other").unwrap(), b"new");
    assert_eq!(object(&broken, "gone"), None);
    let kept = object(&broken, "recording").map(|content| content.len());
    assert_eq!(kept, Some(LARGE), "until it is there under its new name");
    assert!(a.pending().unwrap() > 0);
}

/// Waits until as many requests as that were held.
fn are_held(broken: &Broken, many: u64) {
    let begun = Instant::now();
    while broken.fired() < many {
        assert!(begun.elapsed() < Duration::from_secs(20), "nothing is held");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_file_whose_time_is_set_back_is_not_taken_for_unchanged() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let ino = write(&a, "big.log", &vec![b'x'; LARGE]);
    let held = Rule::always(Fault::Hold).of(&[Operation::Parts]);
    broken.proxy.set(vec![held.below("uploads")]);
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        are_held(&broken, 1);
        let before = Change {
            mtime: Some(a.getattr(ino).unwrap().mtime),
            ..Change::default()
        };
        a.write(&now(), ino, 0, b"y").unwrap();
        a.setattr(&now(), ino, &before).unwrap();
        broken.proxy.clear();
        uploading.join().unwrap().unwrap();
    });
    let b = broken.elsewhere("bob");
    assert!(text(&b, "big.log").starts_with("yx"));
}

#[test]
fn files_that_do_not_rest_are_copied_one_after_the_other() {
    let broken = Broken::new();
    let a = patient(&broken, "alice");
    let logs = ["1.log", "2.log", "3.log"].map(|name| write(&a, name, &vec![b'x'; LARGE]));
    let held = || {
        let held = Rule::always(Fault::Hold).of(&[Operation::Parts]);
        broken.proxy.set(vec![held.below("uploads")]);
    };
    // Files without a name beside the cache.
    let copies = || {
        let dir = broken.cache("alice");
        let dir = dir.parent().unwrap().to_str().unwrap().to_owned();
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        let all = all.filter_map(|it| std::fs::read_link(it.ok()?.path()).ok());
        let all = all.map(|it| it.to_string_lossy().into_owned());
        all.filter(|it| it.starts_with(&dir) && it.ends_with("(deleted)"))
            .count()
    };
    held();
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        are_held(&broken, 3);
        assert_eq!(copies(), 0);
        for ino in logs {
            append(&a, ino);
        }
        for _ in logs {
            held();
            are_held(&broken, 1);
            assert_eq!(copies(), 1);
        }
        broken.proxy.clear();
        uploading.join().unwrap().unwrap();
    });
    assert_eq!(copies(), 0);
    assert_eq!(object(&broken, "3.log").unwrap().len(), LARGE + 1);
}

#[test]
fn an_upload_that_was_cut_short_is_given_up_by_the_next_mount() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "big", &vec![b'x'; LARGE]);
    let held = Rule::always(Fault::Hold).of(&[Operation::Parts]);
    broken.proxy.set(vec![held.below("partNumber=")]);
    std::thread::scope(|scope| {
        let a = &a;
        scope.spawn(|| a.upload().unwrap_err());
        are_held(&broken, 1);
        // As a mount ends.
        a.detach();
    });
    drop(a);
    broken.proxy.clear();
    let given_up = || {
        let seen = broken.proxy.seen().into_iter();
        seen.filter(|it| it.operation == Operation::Parts && it.answered == Answered::Status(204))
            .count()
    };
    let before = given_up();
    let a = patient(&broken, "alice");
    a.upload().unwrap();
    assert_eq!(given_up() - before, 1);
    assert_eq!(object(&broken, "big").unwrap().len(), LARGE);
    write(&a, "big", &vec![b'y'; LARGE]);
    a.upload().unwrap();
    assert_eq!(given_up() - before, 1, "each once");
}

#[test]
fn a_file_that_cannot_be_restored_stays_as_it_is() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let ino = write(&a, "f", &[b'1'; 300 << 10]);
    a.upload().unwrap();
    write(&a, "f", b"2");
    a.upload().unwrap();
    write(&a, "f", b"only here");
    // What is past 256 KiB cannot be written, as on a full disk; its descriptor is not kept open: others take its place.
    let tail = machines.cache("alice.db-tails").join(ino.to_string());
    // What was cut to nothing may be gone.
    let _ = std::fs::remove_file(&tail);
    std::fs::create_dir(&tail).unwrap();
    for nth in 0..70 {
        let ino = write(&a, &format!("t{nth}"), b"");
        a.write(&now(), ino, 270_000, b"x").unwrap();
    }
    let restore = |version: &[u8]| {
        let mode = XattrMode::Set;
        a.setxattr(&now(), ino, b"user.ctx.restore", version, mode)
    };
    assert!(restore(b"1").is_err());
    assert_eq!(text(&a, "f"), "only here");
    a.upload().unwrap();
    assert_eq!(object_of(&agent, "f").unwrap(), b"only here");
    restore(b"2").unwrap();
    assert_eq!(text(&a, "f"), "2");
    a.upload().unwrap();
    assert_eq!(object_of(&agent, "f").unwrap(), b"2");
}

#[test]
fn what_is_long_has_more_time() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "long", &[b'x'; 200 << 10]);
    // Longer than the timeout, and less than 200 KiB at 64 KiB a second.
    broken.set(Fault::Delay { ms: 1500.0 }, &[Operation::Put], When::Always);
    a.upload().unwrap();
    assert_eq!(broken.taken(Operation::Put, "long"), 1);
    assert_eq!(broken.fired(), 1);
    write(&a, "short", b"x");
    assert_eq!(
        a.upload().map_err(|error| error.errno),
        Err(Errno::TIMEDOUT)
    );
}

#[test]
fn nothing_is_deleted_where_the_server_lets_nobody_write() {
    for (status, code) in [
        (403, "AccessDenied"),
        (400, "XMinioAdminBucketQuotaExceeded"),
    ] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        write(&a, "part", b"part");
        a.upload().unwrap();
        write(&a, "whole", b"whole");
        a.unlink(&now(), ROOT, b"part").unwrap();
        let refusal = Fault::Refuse {
            status,
            code: code.to_owned(),
            retry_after: None,
        };
        let key = format!("agents/{}/whole", broken.agent);
        broken.proxy.set(vec![Rule::always(refusal).below(&key)]);
        assert!(a.upload().is_err());
        assert_eq!(object(&broken, "part").unwrap(), b"part", "{code}");
        broken.proxy.clear();
        a.upload().unwrap();
        assert_eq!(object(&broken, "part"), None);
        assert_eq!(object(&broken, "whole").unwrap(), b"whole");
    }
}

#[test]
fn a_file_that_cannot_be_read_here_is_not_called_durable() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let ino = write(&a, "long", &[b'x'; 1 << 20]);
    a.fsync(ino, false).unwrap();
    // Its tail is damaged, as by a disk: no file can be opened there.
    let tail = machines.cache("alice.db-tails").join(ino.to_string());
    std::fs::remove_file(&tail).unwrap();
    std::fs::create_dir(&tail).unwrap();
    write(&a, "other", b"fine");
    // Its descriptor is kept open: others take its place.
    for nth in 0..70 {
        let ino = write(&a, &format!("t{nth}"), b"");
        a.write(&now(), ino, 270_000, b"x").unwrap();
    }
    let uploaded = a.upload();
    assert!(uploaded.is_err(), "{uploaded:?}");
    assert!(a.pending().unwrap() > 0);
    assert_eq!(
        object_of(&agent, "other").unwrap(),
        b"fine",
        "it holds up no other"
    );
}

#[test]
fn a_file_that_the_server_refuses_holds_up_only_what_follows_of_itself() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    let b = broken.elsewhere("bob");
    for name in ["kept", "changed", "deleted", "under"] {
        write(&a, name, name.as_bytes());
    }
    a.upload().unwrap();
    rename(&a, "kept", "refused", RenameMode::NoReplace);
    rename(&a, "under", "kept", RenameMode::NoReplace);
    write(&a, "changed", b"new");
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    create(&a, ROOT, "empty", backends::store::Kind::Directory);
    let refusal = Fault::Refuse {
        status: 400,
        code: "KeyTooLongError".to_owned(),
        retry_after: None,
    };
    let refused = format!("agents/{}/refused", broken.agent);
    broken
        .proxy
        .set(vec![Rule::always(refusal).below(&refused)]);
    for _ in 0..2 {
        let told = a.upload().unwrap_err().to_string();
        assert!(told.contains("refused"), "{told}");
        b.pull().unwrap();
        assert_eq!(names(&b, ROOT), ["changed", "empty", "kept", "under"]);
        assert_eq!(text(&b, "changed"), "new");
        assert_eq!(
            text(&b, "kept"),
            "kept",
            "the only object of what is refused"
        );
        assert_eq!(
            text(&b, "under"),
            "under",
            "the only object of what follows"
        );
    }
    assert!(broken.fired() > 0);
    broken.proxy.clear();
    a.upload().unwrap();
    b.pull().unwrap();
    assert_eq!(names(&b, ROOT), ["changed", "empty", "kept", "refused"]);
    assert_eq!(
        (text(&b, "kept"), text(&b, "refused")),
        ("under".to_owned(), "kept".to_owned())
    );
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn a_file_that_is_called_as_an_error_is_no_missing_bucket() {
    let (machines, agent) = (Machines::new(), agent());
    let [a, b] = ["alice", "bob"].map(|writer| machines.mount(config(&agent, writer)));
    write(&a, "NoSuchBucket", b"1");
    a.upload().unwrap();
    b.pull().unwrap();
    b.unlink(&now(), ROOT, b"NoSuchBucket").unwrap();
    b.upload().unwrap();
    write(&a, "NoSuchBucket", b"2");
    a.upload().unwrap();
    assert_eq!(
        object_of(&agent, "NoSuchBucket").unwrap(),
        b"2",
        "the change stays"
    );
}

#[test]
fn what_is_appended_at_an_end_that_is_none_any_more_goes_behind_what_others_have_appended() {
    let (machines, agent) = (Machines::new(), agent());
    let (a, b) = (
        machines.mount(config(&agent, "alice")),
        machines.mount(config(&agent, "bob")),
    );
    let ino = write(&a, "log", b"first\n");
    a.upload().unwrap();
    b.pull().unwrap();
    let theirs = b.lookup(ROOT, b"log").unwrap();
    b.append(&now(), theirs.ino, theirs.size, b"second\n")
        .unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    // The kernel has the size of before, and goes on from what it has written itself; twice, as it cuts what is long.
    a.append(&now(), ino, 6, b"third\n").unwrap();
    a.append(&now(), ino, 12, b"fourth\n").unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    // Somebody has cut it short: nothing is filled with zeros.
    for store in [&a, &b] {
        assert_eq!(text(store, "log"), "first\nsecond\nthird\nfourth\n");
    }
    write(&b, "log", b"new\n");
    b.upload().unwrap();
    a.pull().unwrap();
    a.append(&now(), ino, 26, b"fifth\n").unwrap();
    assert_eq!(text(&a, "log"), "new\nfifth\n");
}
