//! Servers that fail: the errors that callers get meanwhile, and the promises of `fsync` and `close`.

use crate::common::*;
use crate::hosts::*;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fuse::store::{Errno, ROOT, SlowCall, Store};
use s3::config::{S3Config, SyncMode};
use s3_store::S3Store;
use servers::{Operation, RequestFault, RuleFrequency};

fn refuse(status: u16, code: &str) -> RequestFault {
    RequestFault::Refuse { status, code: code.to_owned(), retry_after: None }
}

/// That commits and polls by itself.
fn by_itself(memory: &Memory, config: S3Config) -> S3Store {
    memory.mount_as(S3Config { delay: Duration::from_millis(5), poll: Duration::from_millis(5), ..config })
}

#[test]
fn fsync_and_close_wait_for_the_bucket_where_the_mode_says_so() {
    for (sync, fsync_waits, close_waits) in
        [(SyncMode::Local, false, false), (SyncMode::Fsync, true, false), (SyncMode::Close, true, true)]
    {
        let memory = Memory::new();
        let a = memory.mount_as(S3Config { sync, ..memory.config("a") });
        let is_in_bucket = |content: &str| text(&memory.fresh(), "file") == content;
        let file = write(&a, "file", b"");
        a.upload().unwrap();
        append(&a, file, b"1");
        assert_eq!(a.is_slow(file, SlowCall::Fsync), fsync_waits);
        a.fsync(file, false).unwrap();
        assert_eq!(is_in_bucket("1"), fsync_waits, "{sync:?}");
        append(&a, file, b"2");
        assert_eq!(a.wants_close(), close_waits);
        assert_eq!(a.is_slow(file, SlowCall::Close), close_waits);
        a.close(0, file).unwrap();
        assert_eq!(is_in_bucket("12"), close_waits, "{sync:?}");
        // Without a pending change, the client sends no request.
        a.sync().unwrap();
        assert!(is_in_bucket("12"), "a sync of the whole mount always waits");
        let idle = spent(&a, || {
            a.fsync(file, false).unwrap();
            a.close(0, file).unwrap();
            a.sync().unwrap();
        });
        assert_eq!(idle, [].into());
        assert!(!a.is_slow(file, SlowCall::Fsync) && !a.is_slow(file, SlowCall::Close));
    }
}

#[test]
fn requests_by_attribute_commit_poll_and_count() {
    let memory = Memory::new();
    let (a, b) = (memory.mount("a"), memory.mount("b"));
    let file = write(&a, "file", b"1");
    let ask = |store: &S3Store, what: &str| {
        let answer = store.getxattr(ROOT, format!("user.ctx.{what}").as_bytes());
        String::from_utf8(answer.unwrap()).unwrap()
    };
    assert_ne!(ask(&a, "pending"), "0");
    assert_eq!(ask(&a, "sync"), "durable");
    assert_eq!(ask(&a, "pending"), "0");
    assert_eq!(ask(&b, "pull"), "done");
    assert_eq!(text(&b, "file"), "1");
    assert_eq!(errno(set(&a, file, "user.ctx.sync", "")), Errno::PERM);
    assert_eq!(a.listxattr(file).unwrap(), Vec::<Vec<u8>>::new());
}

#[test]
fn changes_of_one_host_reach_another_by_themselves() {
    let memory = Memory::behind_proxy();
    let [a, b] = ["a", "b"].map(|writer| by_itself(&memory, memory.config(writer)));
    let log = write(&a, "log", b"1\n");
    eventually("b has it", || try_text(&b, "log").as_deref() == Ok("1\n"));
    append(&b, find(&b, "log"), b"2\n");
    eventually("a has it", || text(&a, "log") == "1\n2\n");
    assert_eq!(find(&a, "log"), log);
    for host in [&a, &b] {
        eventually("all is settled", || host.pending().unwrap() == 0);
        is_settled(host);
    }
}

#[test]
fn a_change_waits_for_its_delay_whatever_the_mount_polls_meanwhile() {
    let memory = Memory::new();
    let a = memory.mount_as(S3Config { poll: Duration::from_millis(5), ..memory.config("a") });
    write(&a, "file", b"1");
    let before = a.counters()["s3_polls"];
    eventually("it polls", || a.counters()["s3_polls"] >= before + 3);
    assert_ne!(a.pending().unwrap(), 0);
    assert_eq!(a.counters()["s3_commits"], 0);
}

#[test]
fn a_commit_that_failed_is_tried_again_before_its_delay() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    write(&a, "file", b"1");
    memory.set(refuse(403, "AccessDenied"), &[], RuleFrequency::Always);
    assert_eq!(errno(a.upload()), Errno::ACCESS);
    memory.proxy().clear();
    eventually("it is uploaded", || a.pending().unwrap() == 0);
    assert_eq!(text(&memory.fresh(), "file"), "1");
}

#[test]
fn a_mount_with_one_commit_after_another_still_finds_that_its_bucket_was_emptied() {
    let memory = Memory::behind_proxy();
    let glance = Duration::from_secs(1);
    let a = memory.mount_as(S3Config { sync: SyncMode::Fsync, glance, ..memory.config("a") });
    let log = write(&a, "log", b"");
    a.upload().unwrap();
    let next = || {
        append(&a, log, b"line\n");
        a.fsync(log, false)
    };
    let started = Instant::now();
    while started.elapsed() < 2 * glance {
        next().unwrap();
    }
    let started = Instant::now();
    let asked = spent(&a, || (0..50).for_each(|_| next().unwrap()));
    let asked = only_requests(&asked);
    let gets = asked.get("s3_get").copied().unwrap_or(0);
    // A checkpoint may be among them.
    let most = started.elapsed().as_secs() + 2;
    assert!(asked["s3_put"] <= 52 && gets <= most, "{asked:?}");
    memory.replace_objects(&[].into());
    let started = Instant::now();
    while next().is_ok() {
        let took = started.elapsed();
        assert!(took < Duration::from_secs(60), "an emptied bucket was not noticed");
    }
}

#[test]
fn a_failing_server_is_told_in_time_and_everything_arrives_when_it_is_back() {
    let faults: [(&str, Option<RequestFault>, Errno); 5] = [
        ("cut off", None, Errno::IO),
        ("silent", Some(RequestFault::Hang), Errno::TIMEDOUT),
        ("failing", Some(refuse(500, "InternalError")), Errno::IO),
        ("resetting", Some(RequestFault::Reset), Errno::IO),
        ("refusing", Some(refuse(403, "AccessDenied")), Errno::ACCESS),
    ];
    for (what, fault, expected) in faults {
        let memory = Memory::behind_proxy();
        let before = memory.fresh();
        let long = pattern(1 << 20, 1);
        write(&before, "unread", &long);
        before.upload().unwrap();
        let config = memory.config("a");
        let timeout = if expected == Errno::TIMEDOUT { TIMEOUT } else { config.timeout };
        let a = by_itself(&memory, S3Config { timeout, ..config });
        let log = write(&a, "log", b"1\n");
        eventually("it is uploaded", || a.upload().is_ok());
        match fault {
            None => memory.proxy().partition(true).unwrap(),
            Some(fault) => memory.set(fault, &[], RuleFrequency::Always),
        }
        // Whatever is only here goes on as before.
        append(&a, log, b"2\n");
        a.fsync(log, false).unwrap();
        assert_eq!(text(&a, "log"), "1\n2\n");
        let is_expected = |errno: Errno| errno == expected || (errno, expected) == (Errno::IO, Errno::TIMEDOUT);
        let told = in_time(what, || errno(a.upload()));
        assert!(is_expected(told), "{what}: {told:?}");
        let told = in_time(what, || try_text(&a, "unread").unwrap_err());
        assert!(is_expected(told), "{what}: {told:?}");
        let told = in_time(what, || errno(a.sync()));
        assert!(is_expected(told), "{what}: {told:?}");
        assert!(a.counters()["s3_failures"] > 0, "{what}");
        memory.proxy().clear();
        memory.proxy().partition(false).unwrap();
        eventually("it is uploaded", || a.pending().unwrap() == 0);
        assert_eq!(text(&memory.fresh(), "log"), "1\n2\n", "{what}");
        eventually("it is read", || try_text(&a, "unread").is_ok());
        assert!(bytes(&a, find(&a, "unread")) == long);
        is_settled(&a);
    }
}

#[test]
fn a_mount_ends_in_time_though_the_server_does_not_answer() {
    let memory = Memory::behind_proxy();
    let a = by_itself(&memory, memory.config("a"));
    memory.set(RequestFault::Hang, &[], RuleFrequency::Always);
    write(&a, "file", b"1");
    eventually("it waits for the server", || memory.fired() > 0);
    in_time("the end", || drop(a));
    memory.proxy().clear();
    let a = memory.mount("a");
    assert_eq!(text(&a, "file"), "1");
    a.upload().unwrap();
    is_settled(&a);
}

#[test]
fn wrong_bytes_never_reach_a_reader() {
    use RequestFault::{CutBody, DamageBody, ResetInBody, ShortenBody};
    for fault in [CutBody, ShortenBody, ResetInBody, DamageBody] {
        let memory = Memory::behind_proxy();
        let long = pattern(9 << 20, 3);
        let writer = memory.fresh();
        write(&writer, "long", &long);
        writer.upload().unwrap();
        let a = memory.mount("a");
        // Once, and the next attempt is right.
        memory.set(fault.clone(), &[Operation::Get], RuleFrequency::First(1));
        assert!(bytes(&a, find(&a, "long")) == long, "{fault:?}");
        assert_eq!(memory.fired(), 1);
        // Always: an error, and nothing else.
        append(&writer, find(&writer, "long"), b"more");
        write(&writer, "small", b"small");
        writer.upload().unwrap();
        memory.set(fault.clone(), &[Operation::Get], RuleFrequency::Always);
        assert!(a.pull().is_err(), "{fault:?}");
        assert_eq!(names(&a, ROOT), ["long"]);
        memory.proxy().clear();
        a.pull().unwrap();
        memory.set(fault.clone(), &[Operation::Get], RuleFrequency::Always);
        assert_eq!(try_text(&a, "long").unwrap_err(), Errno::IO, "{fault:?}");
        assert!(memory.fired() > 0);
        memory.proxy().clear();
        assert_eq!(state(&a), state(&writer));
        is_settled(&a);
    }
}

#[test]
fn an_upload_that_is_damaged_in_transit_is_refused_and_sent_again() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    write(&a, "long", &pattern(1 << 20, 3));
    write(&a, "small", b"small");
    let (length, every) = (1, 2);
    let when = RuleFrequency::Bursts { length, every };
    memory.set(RequestFault::DamageRequest, &[Operation::Put], when);
    a.upload().unwrap();
    assert_eq!(memory.fired(), 2);
    memory.proxy().clear();
    assert_eq!(state(&memory.fresh()), state(&a));
    memory.check();
}

#[test]
fn a_busy_server_is_ridden_out() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    let (length, every) = (2, 3);
    let when = RuleFrequency::Bursts { length, every };
    memory.set(refuse(503, "SlowDown"), &[], when);
    for number in 0..5 {
        write(&a, &format!("f{number}"), &pattern(100_000, number));
        a.upload().unwrap();
        a.pull().unwrap();
    }
    assert!(memory.fired() > 10);
    memory.proxy().clear();
    assert_eq!(state(&memory.fresh()), state(&a));
    is_settled(&a);
}

#[test]
fn a_file_that_is_written_while_it_is_uploaded_is_a_state_that_it_had() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    let long = write(&a, "long", &[b'0'; 17 << 20]);
    let short = write(&a, "short", b"0");
    memory.set(RequestFault::Hold, &[Operation::Put], RuleFrequency::Always);
    std::thread::scope(|scope| {
        let uploading = scope.spawn(|| a.upload());
        eventually("an upload is under way", || memory.fired() > 0);
        a.write(&now(), long, 0, b"1").unwrap();
        a.write(&now(), long, 16 << 20, b"1").unwrap();
        a.write(&now(), short, 0, b"1").unwrap();
        memory.proxy().clear();
        uploading.join().unwrap().unwrap();
    });
    // The bucket has both files, and no mixture of two versions of the long one.
    let b = memory.fresh();
    let ino = find(&b, "long");
    let seen = (read(&b, ino, 0, 1), read(&b, ino, 16 << 20, 1));
    assert!(seen.0 == seen.1, "{seen:?}");
    exchange(&a, &b);
    assert_eq!(state(&b), state(&a));
    assert_eq!(text(&b, "short"), "1");
    is_settled(&a);
    memory.check();
}

#[test]
fn a_file_that_never_rests_is_committed_all_the_same() {
    let memory = Memory::new();
    let a = memory.mount("a");
    let long = write(&a, "long", &pattern(9 << 20, 1));
    write(&a, "other", b"other");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                a.write(&now(), long, 5, b"restless").unwrap();
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let uploaded = a.upload();
        is_done.store(true, Ordering::Relaxed);
        uploaded.unwrap();
    });
    let b = memory.fresh();
    assert_eq!(names(&b, ROOT), ["long", "other"]);
    let mut expected = pattern(9 << 20, 1);
    expected[5..13].copy_from_slice(b"restless");
    assert!(bytes(&b, find(&b, "long")) == expected);
    exchange(&a, &b);
    assert_eq!(state(&b), state(&a));
    is_settled(&a);
}
