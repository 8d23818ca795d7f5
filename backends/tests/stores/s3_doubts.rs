//! Requests of the `s3` store whose answer never came, or which come late: what was acknowledged is neither lost nor
//! taken back by them, and none of them is taken for somebody else's, not even after a crash.

use crate::common;
use crate::s3;

use std::time::Duration;

use backends::s3::{ConflictPolicy, S3Config};
use backends::store::{Kind, ROOT, Store};
use common::*;
use s3::{Broken, is_settled, now, object, text, write};
use servers::{Fault, Operation, Rule, When};

/// What was held has arrived: the object is as `is_so` says.
fn arrives(broken: &Broken, name: &str, is_so: impl Fn(Option<&[u8]>) -> bool) {
    broken.proxy.clear();
    for _ in 0..200 {
        if is_so(object(broken, name).as_deref()) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("what was held has not come");
}

#[test]
fn an_upload_whose_answer_was_lost_is_no_conflict_with_oneself() {
    for (fault, is_new) in [
        (Fault::LoseAnswer, false),
        (Fault::LoseAnswer, true),
        (Fault::Hold, false),
        (Fault::Hold, true),
    ] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        if !is_new {
            write(&a, "n.txt", b"1");
            a.upload().unwrap();
        }
        write(&a, "n.txt", b"2");
        // Nor is what can be seen afterwards.
        let lost = [Operation::Put, Operation::Head];
        broken.set(fault.clone(), &lost, When::Always);
        assert!(a.upload().is_err());
        // Another try of what has changed again, and its answer is lost, too.
        write(&a, "n.txt", b"3");
        let _ = a.upload();
        assert!(broken.fired() >= 1);
        // The agent goes on before anybody knows.
        write(&a, "n.txt", b"4");
        broken.proxy.clear();
        if fault == Fault::Hold {
            // What was held arrives now.
            std::thread::sleep(Duration::from_millis(500));
        }
        a.upload().unwrap();
        is_settled(&a);
        assert_eq!(object(&broken, "n.txt").unwrap(), b"4", "{fault:?}");
        assert_eq!(text(&a, "n.txt"), "4");
        let b = broken.elsewhere("bob");
        assert_eq!(names(&b, ROOT), ["n.txt"]);
    }
}

#[test]
fn one_connection_that_breaks_is_not_noticed() {
    for fault in [Fault::LoseAnswer, Fault::Reset] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        // Of new objects, and then of those that replace others.
        for round in 1..=2 {
            for nth in 0..20 {
                write(&a, &format!("n{nth}"), format!("{round}").as_bytes());
            }
            // Each of five files once: of any five requests, two may be of one.
            let once = (5..10).map(|nth| {
                let key = format!("agents/{}/n{nth}", broken.agent);
                let rule = Rule::always(fault.clone()).of(&[Operation::Put]);
                rule.below(&key).when(When::First(1))
            });
            broken.proxy.set(once.collect());
            a.upload().unwrap();
            assert_eq!(broken.fired(), 5);
            is_settled(&a);
            for nth in 0..20 {
                // A lost answer was one of success.
                let taken = broken.taken(Operation::Put, &format!("n{nth}"));
                assert_eq!(taken, round, "{fault:?} of n{nth}");
            }
        }
    }
}

#[test]
fn another_writer_is_a_conflict_though_an_answer_was_lost() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n.txt", b"1");
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    write(&a, "n.txt", b"alice's");
    broken.set(Fault::Reset, &[Operation::Put], When::Always);
    assert!(a.upload().is_err());
    write(&b, "n.txt", b"bob's");
    b.upload().unwrap();
    write(&a, "n.txt", b"alice's, later");
    broken.proxy.clear();
    a.upload().unwrap();
    a.upload().unwrap();
    assert_eq!(a.counters()["s3_conflicts"], 1);
    assert_eq!(text(&a, "n.txt"), "bob's");
    assert_eq!(text(&a, "n.conflict-alice-2.txt"), "alice's, later");
    b.pull().unwrap();
    assert_eq!(names(&b, ROOT), ["n.conflict-alice-2.txt", "n.txt"]);
}

#[test]
fn a_deletion_that_comes_late_takes_nothing_away() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n.txt", b"first");
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"n.txt").unwrap();
    broken
        .proxy
        .set(vec![Rule::always(Fault::Hold).of(&[Operation::Delete])]);
    assert!(a.upload().is_err());
    assert_eq!(broken.fired(), 1);
    write(&a, "n.txt", b"second");
    // Uploads go through; the deletion is still under way.
    a.upload().unwrap();
    assert_eq!(object(&broken, "n.txt").unwrap(), b"second");
    broken.proxy.clear();
    for _ in 0..100 {
        if object(&broken, "n.txt").is_none() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(object(&broken, "n.txt").is_none(), "it has come");
    a.pull().unwrap();
    assert_eq!(text(&a, "n.txt"), "second");
    a.upload().unwrap();
    assert_eq!(object(&broken, "n.txt").unwrap(), b"second");
    is_settled(&a);
}

#[test]
fn a_file_that_is_removed_before_its_upload_was_confirmed_stays_away() {
    for is_new in [true, false] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        if !is_new {
            write(&a, "n.txt", b"1");
            a.upload().unwrap();
        }
        write(&a, "n.txt", b"2");
        let lost = [Operation::Put, Operation::Head];
        broken.set(Fault::LoseAnswer, &lost, When::Always);
        assert!(a.upload().is_err());
        assert!(broken.fired() >= 1);
        assert_eq!(object(&broken, "n.txt").unwrap(), b"2", "it got there");
        a.unlink(&now(), ROOT, b"n.txt").unwrap();
        broken.proxy.clear();
        a.upload().unwrap();
        assert_eq!(
            object(&broken, "n.txt"),
            None,
            "its removal is acknowledged, is_new: {is_new}"
        );
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), Vec::<String>::new());
        is_settled(&a);
    }
}

#[test]
fn an_upload_that_comes_after_the_removal_of_its_file_goes_again() {
    for crashes in [false, true] {
        let broken = Broken::new();
        let mut a = broken.mount("alice");
        let dir = create(&a, ROOT, "d", Kind::Directory).ino;
        let ino = create(&a, dir, "n.txt", Kind::File).ino;
        a.write(&now(), ino, 0, b"1").unwrap();
        broken.set(Fault::Hold, &[Operation::Put], When::Always);
        assert!(a.upload().is_err());
        assert_eq!(broken.fired(), 1);
        a.unlink(&now(), dir, b"n.txt").unwrap();
        a.rmdir(&now(), ROOT, b"d").unwrap();
        a.upload().unwrap();
        assert_eq!(object(&broken, "d/n.txt"), None);
        if crashes {
            drop(a);
            a = broken.mount("alice");
        }
        arrives(&broken, "d/n.txt", |found| found.is_some());
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), Vec::<String>::new(), "crashes: {crashes}");
        a.upload().unwrap();
        assert_eq!(object(&broken, "d/n.txt"), None, "crashes: {crashes}");
        a.pull().unwrap();
        assert_eq!(names(&a, ROOT), Vec::<String>::new());
        is_settled(&a);
    }
}

#[test]
fn an_upload_that_comes_after_a_later_one_is_written_over() {
    // As it was: the entity tag is one of the content, so that the condition of what is held is true again. Without
    // conditions, it need not be.
    for (conflicts, later) in [
        (ConflictPolicy::KeepBoth, "first"),
        (ConflictPolicy::LastWriteWins, "later"),
    ] {
        let broken = Broken::new();
        let a = broken.mount_as(S3Config {
            conflicts,
            ..broken.config("alice")
        });
        write(&a, "n.txt", b"first");
        a.upload().unwrap();
        write(&a, "n.txt", b"held");
        broken.set(Fault::Hold, &[Operation::Put], When::First(1));
        assert!(a.upload().is_err());
        assert_eq!(broken.fired(), 1);
        write(&a, "n.txt", later.as_bytes());
        a.upload().unwrap();
        assert_eq!(object(&broken, "n.txt").unwrap(), later.as_bytes());
        arrives(&broken, "n.txt", |found| found == Some(b"held"));
        a.pull().unwrap();
        assert_eq!(text(&a, "n.txt"), later, "what was acknowledged");
        a.upload().unwrap();
        assert_eq!(object(&broken, "n.txt").unwrap(), later.as_bytes());
        is_settled(&a);
        // What somebody else writes is no late upload, though it is the same.
        let b = broken.elsewhere("bob");
        write(&b, "n.txt", b"held");
        b.upload().unwrap();
        a.pull().unwrap();
        assert_eq!(text(&a, "n.txt"), "held");
    }
}

#[test]
fn after_a_crash_in_an_outage_ones_own_upload_is_no_conflict() {
    for fault in [Fault::LoseAnswer, Fault::Hold] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        write(&a, "changed", b"1");
        a.upload().unwrap();
        write(&a, "changed", b"2");
        write(&a, "new", b"2");
        let lost = [Operation::Put, Operation::Head];
        broken.set(fault.clone(), &lost, When::Always);
        assert!(a.upload().is_err());
        assert!(broken.fired() >= 1);
        drop(a);
        arrives(&broken, "new", |found| found == Some(b"2"));
        let a = broken.mount("alice");
        write(&a, "changed", b"3");
        write(&a, "new", b"3");
        a.upload().unwrap();
        is_settled(&a);
        for name in ["changed", "new"] {
            assert_eq!(object(&broken, name).unwrap(), b"3", "{fault:?}");
        }
        let b = broken.elsewhere("bob");
        assert_eq!(names(&b, ROOT), ["changed", "new"]);
    }
}

#[test]
fn after_a_crash_a_deletion_that_comes_late_takes_nothing_away() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n.txt", b"first");
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"n.txt").unwrap();
    let held = Rule::always(Fault::Hold).of(&[Operation::Delete]);
    broken.proxy.set(vec![held]);
    assert!(a.upload().is_err());
    assert_eq!(broken.fired(), 1);
    write(&a, "n.txt", b"second");
    a.upload().unwrap();
    assert_eq!(object(&broken, "n.txt").unwrap(), b"second");
    drop(a);
    let a = broken.mount("alice");
    arrives(&broken, "n.txt", |found| found.is_none());
    a.pull().unwrap();
    assert_eq!(text(&a, "n.txt"), "second");
    a.upload().unwrap();
    assert_eq!(object(&broken, "n.txt").unwrap(), b"second");
    is_settled(&a);
}
