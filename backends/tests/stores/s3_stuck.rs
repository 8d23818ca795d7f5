//! Files that can never go up, and those beside them: what their hosts are told, and what is sent again.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store, SyncMode};
use backends::store::{Change, Errno, Kind, ROOT, Store};
use common::*;
use s3::{Broken, all_keys, now, object, write};
use servers::{Fault, Operation, Rule};

fn refuse(status: u16, code: &str) -> Fault {
    Fault::Refuse {
        status,
        code: code.to_owned(),
        retry_after: None,
    }
}

/// The server refuses one key for ever.
fn refused(broken: &Broken, name: &str) -> Rule {
    Rule::always(refuse(400, "KeyTooLongError")).below(&format!("agents/{}/{name}", broken.agent))
}

fn errno_of(done: backends::store::Result<()>) -> Result<(), Errno> {
    done.map_err(|error| error.errno)
}

fn has_ended_in_time(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_waits_for_a_file_is_told_of_that_file() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Close,
        ..broken.config("alice")
    });
    let dir = create(&a, ROOT, "dir", Kind::Directory).ino;
    let read = write(&a, "read", b"here");
    a.fsync(read, false).unwrap();
    broken.proxy.set(vec![refused(&broken, "stuck")]);
    let stuck = write(&a, "stuck", b"stuck");
    assert_eq!(errno_of(a.fsync(stuck, false)), Err(Errno::IO));
    for nth in 0..3 {
        let other = s3::write_in(&a, dir, "other", nth.to_string().as_bytes());
        assert_eq!(errno_of(a.fsync(other, false)), Ok(()));
        assert_eq!(errno_of(a.close(other)), Ok(()));
        assert_eq!(
            object(&broken, "dir/other").unwrap(),
            nth.to_string().as_bytes()
        );
        assert_eq!(errno_of(a.close(read)), Ok(()), "it was only read");
        assert_eq!(errno_of(a.fsync(dir, false)), Ok(()));
        assert!(a.close(stuck).is_err() && a.fsync(stuck, false).is_err());
        assert!(a.fsync(ROOT, false).is_err(), "it is in there");
    }
    let told = a.sync().unwrap_err().to_string();
    assert!(told.contains("stuck"), "{told}");
    assert!(a.getxattr(ROOT, b"user.ctx.sync").is_err());
    // While the server refuses everything, what is there is there, and what is not is not.
    broken
        .proxy
        .set(vec![Rule::always(refuse(403, "AccessDenied"))]);
    let other = s3::write_in(&a, dir, "other", b"later");
    assert!(a.fsync(other, false).is_err());
    assert_eq!(errno_of(a.close(read)), Ok(()));
    broken.proxy.clear();
    assert_eq!(errno_of(a.fsync(stuck, false)), Ok(()));
    assert_eq!(object(&broken, "stuck").unwrap(), b"stuck");
    a.sync().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn what_is_beside_a_stuck_file_is_not_sent_again() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    let ino = write(&a, "h1", b"first");
    a.link(&now(), ino, ROOT, b"h2").unwrap();
    a.upload().unwrap();
    broken.proxy.set(vec![refused(&broken, "stuck")]);
    write(&a, "stuck", b"stuck");
    write(&a, "h1", b"second");
    create(&a, ROOT, "dir", Kind::Directory);
    for _ in 0..20 {
        assert!(a.upload().is_err());
    }
    assert!(broken.fired() >= 20);
    assert_eq!(
        a.pending().unwrap(),
        2,
        "the file that is stuck, and its name"
    );
    let versions = |name: &str| {
        let below = format!("ctx/{}/versions/{name}/", broken.agent);
        let keys = all_keys(&broken.agent).into_iter();
        keys.filter(|key| key.starts_with(&below)).count()
    };
    assert_eq!((versions("h1"), versions("h2")), (1, 1));
    for name in ["h1", "h2"] {
        assert_eq!(broken.taken(Operation::Put, name), 2, "{name}");
        assert_eq!(object(&broken, name).unwrap(), b"second");
    }
}

/// What happens by itself.
fn by_itself(broken: &Broken) -> S3Store {
    broken.mount_as(S3Config {
        poll: Duration::from_millis(20),
        delay: Duration::from_millis(10),
        ..broken.config("alice")
    })
}

#[test]
fn a_stuck_file_is_tried_ever_more_rarely_and_holds_up_nothing() {
    let broken = Broken::new();
    let a = by_itself(&broken);
    broken.proxy.set(vec![refused(&broken, "stuck")]);
    write(&a, "stuck", b"stuck");
    has_ended_in_time("it is tried", || broken.fired() > 0);
    let begun = Instant::now();
    for nth in 0..30 {
        let name = format!("n{nth}");
        write(&a, &name, b"x");
        has_ended_in_time("it goes up", || object(&broken, &name).is_some());
    }
    has_ended_in_time("others are told", || a.counters()["s3_untold"] == 0);
    let polls = a.counters()["s3_polls"];
    has_ended_in_time("it looks", || a.counters()["s3_polls"] > polls + 20);
    // After 0.4, 1.2, 2.8, 6 … s, however often it has looked or brought up others.
    let tried = broken.fired();
    let at_most = 2 + (begun.elapsed().as_secs_f64() / 0.2).log2().max(0.0) as u64;
    assert!(tried <= at_most, "{tried} times, not {at_most}");
    broken.proxy.clear();
    a.upload().unwrap();
    assert_eq!(object(&broken, "stuck").unwrap(), b"stuck");
}

#[test]
fn a_file_that_the_server_does_not_delete_holds_up_no_other() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Fsync,
        ..broken.config("alice")
    });
    let ino = write(&a, "h1", b"1");
    a.link(&now(), ino, ROOT, b"h2").unwrap();
    write(&a, "locked", b"locked");
    a.upload().unwrap();
    let denied = Rule::always(refuse(403, "AccessDenied")).of(&[Operation::Delete]);
    broken.proxy.set(vec![denied]);
    a.unlink(&now(), ROOT, b"locked").unwrap();
    write(&a, "h1", b"2");
    for _ in 0..3 {
        let told = a.upload().unwrap_err().to_string();
        assert!(told.contains("AccessDenied"), "{told}");
        assert_eq!(errno_of(a.fsync(ino, false)), Ok(()));
    }
    assert_eq!(a.pending().unwrap(), 1, "the name that is gone here alone");
    assert_eq!(broken.taken(Operation::Put, "h1"), 2);
    broken.proxy.clear();
    a.upload().unwrap();
    assert_eq!(object(&broken, "locked"), None);
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn a_large_file_that_the_server_cannot_copy_is_written_and_deleted_without_a_version() {
    let broken = Broken::new();
    let a = broken.mount_as(S3Config {
        timeout: Duration::from_secs(60),
        ..broken.config("alice")
    });
    let ino = create(&a, ROOT, "large", Kind::File).ino;
    let length = (256 << 20) + 1;
    let long = Change {
        size: Some(length),
        ..Change::default()
    };
    a.setattr(&now(), ino, &long).unwrap();
    write(&a, "small", b"1");
    a.upload().unwrap();
    // As AWS refuses to copy more than 5 GiB; the server of this process copies no parts.
    let large = "versions/large/";
    let refused = Rule::always(refuse(400, "InvalidRequest"))
        .of(&[Operation::Copy])
        .below(large);
    broken.proxy.set(vec![refused]);
    a.write(&now(), ino, 0, b"changed").unwrap();
    write(&a, "small", b"2");
    a.upload().unwrap();
    assert_eq!(broken.fired(), 1);
    assert_eq!(broken.taken(Operation::Put, "small"), 2);
    a.unlink(&now(), ROOT, b"large").unwrap();
    a.upload().unwrap();
    assert_eq!(broken.fired(), 2);
    assert_eq!(object(&broken, "large"), None);
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn a_stuck_file_that_is_removed_holds_up_no_deletion() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "good", b"1");
    a.upload().unwrap();
    // HEAD says no more of such a key than PUT.
    broken.proxy.set(vec![refused(&broken, "stuck")]);
    write(&a, "stuck", b"stuck");
    assert!(a.upload().is_err());
    for name in [&b"stuck"[..], b"good"] {
        a.unlink(&now(), ROOT, name).unwrap();
    }
    assert!(a.upload().is_err(), "nobody knows whether it is there");
    assert_eq!(object(&broken, "good"), None);
    assert_eq!(a.pending().unwrap(), 1);
    broken.proxy.clear();
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn another_file_under_the_name_of_a_stuck_one_goes_up() {
    let broken = Broken::new();
    let b = broken.elsewhere("bob");
    write(&b, "plan", b"bob's");
    b.upload().unwrap();
    let a = broken.mount_as(S3Config {
        sync: SyncMode::Fsync,
        ..broken.config("alice")
    });
    // What was never read cannot be read, and so cannot go up under another name.
    let archived = Rule::always(refuse(403, "InvalidObjectState")).of(&[Operation::Get]);
    broken.proxy.set(vec![
        archived.below(&format!("agents/{}/plan", broken.agent)),
    ]);
    s3::rename(&a, "plan", "draft", backends::store::RenameMode::NoReplace);
    let stuck = a.lookup(ROOT, b"draft").unwrap().ino;
    assert!(a.fsync(stuck, false).is_err());
    s3::rename(&a, "draft", "old", backends::store::RenameMode::NoReplace);
    let new = write(&a, "draft", b"new");
    assert_eq!(errno_of(a.fsync(new, false)), Ok(()));
    assert_eq!(object(&broken, "draft").unwrap(), b"new");
}
