//! Files that get other names or more of them: what other hosts see, and what becomes of what these have written.

use crate::common;
use crate::s3;

use std::time::{Duration, Instant};

use backends::s3::{S3Config, S3Store, check};
use backends::store::{Errno, Kind, ROOT, RenameMode, Store};
use common::*;
use object_store::ObjectStoreExt;
use object_store::path::Path as Key;
use s3::{
    Broken, Machines, agent, all_keys, bucket, bucket_of, config, config_of, keys, now, object,
    options, put_object, rename, runtime, service, text, write, write_in,
};
use servers::{Access, Fault, FaultProxy, Operation, Rule, ServerKind};

/// More than a plan holds, and more than goes up in one request.
const SIZES: [usize; 2] = [300 << 10, 9 << 20];

fn content(letter: char, size: usize) -> String {
    letter.to_string().repeat(size)
}

/// On each server that is installed and honours conditions.
fn on_each_server(mut work: impl FnMut(ServerKind, &Access)) {
    for kind in ServerKind::ALL {
        if kind == ServerKind::Rclone {
            continue;
        }
        let found = match kind.find() {
            Ok(found) => found,
            Err(missing) => {
                eprintln!("{kind} is left out: {missing}");
                continue;
            }
        };
        let (dir, runtime) = (tempfile::tempdir().unwrap(), runtime());
        let server = runtime
            .block_on(servers::start(options(found, dir.path())))
            .unwrap();
        work(kind, server.access());
    }
}

#[test]
fn a_file_that_was_changed_elsewhere_and_renamed_here_holds_up_nothing() {
    for size in SIZES {
        for is_gone in [false, true] {
            let (machines, agent) = (Machines::new(), agent());
            let a = machines.mount(config(&agent, "alice"));
            write(&a, "x", content('a', size).as_bytes());
            write(&a, "other", b"old");
            write(&a, "deleted", b"old");
            a.upload().unwrap();
            let b = machines.mount(config(&agent, "bob"));
            match is_gone {
                true => drop(b.unlink(&now(), ROOT, b"x").unwrap()),
                false => drop(write(&b, "x", b"bob's")),
            }
            b.upload().unwrap();
            rename(&a, "x", "z", RenameMode::NoReplace);
            write(&a, "other", b"new");
            a.unlink(&now(), ROOT, b"deleted").unwrap();
            a.upload().unwrap();
            assert_eq!(a.pending().unwrap(), 0);
            for store in [&a, &b] {
                store.pull().unwrap();
                assert!(text(store, "z") == content('a', size));
                assert_eq!(text(store, "other"), "new");
                let x = (!is_gone).then_some("x");
                let expected: Vec<&str> = ["other"].into_iter().chain(x).chain(["z"]).collect();
                assert_eq!(names(store, ROOT), expected);
            }
        }
    }
}

#[test]
fn what_is_copied_says_its_own_name_and_writer() {
    for size in SIZES {
        let (machines, agent) = (Machines::new(), agent());
        names_are_told(&machines.mount(config(&agent, "alice")), size, || {
            machines.mount(config(&agent, "bob"))
        });
    }
}

/// A file whose key is not its name gets another one, and one whose key would be taken.
fn names_are_told(a: &S3Store, size: usize, other: impl FnOnce() -> S3Store) {
    let dir = create(a, ROOT, "a", Kind::Directory).ino;
    write_in(a, dir, "f", b"f");
    a.upload().unwrap();
    rename(a, "a", "b", RenameMode::NoReplace);
    write(a, "a", content('1', size).as_bytes());
    a.upload().unwrap();
    // Its key is `a~2`, and its name `a`.
    rename(a, "a", "c", RenameMode::NoReplace);
    a.upload().unwrap();
    // Again its key is `a~2`.
    write(a, "plain", content('2', size).as_bytes());
    a.upload().unwrap();
    rename(a, "plain", "a", RenameMode::NoReplace);
    a.upload().unwrap();
    let b = other();
    for store in [a, &b] {
        assert_eq!(names(store, ROOT), ["a", "b", "c"]);
        assert!(text(store, "a") == content('2', size));
        assert!(text(store, "c") == content('1', size));
    }
    // Of a file that another has written, the host that gives it another name is the writer.
    rename(&b, "c", "d", RenameMode::NoReplace);
    b.upload().unwrap();
    let d = b.lookup(ROOT, b"d").unwrap().ino;
    let told = String::from_utf8(b.getxattr(d, b"user.ctx.object").unwrap()).unwrap();
    assert!(told.contains("\"writer\":\"bob\""), "{told}");
    a.pull().unwrap();
    assert_eq!(names(a, ROOT), ["a", "b", "d"]);
    assert!(text(a, "d") == content('1', size));
}

#[test]
fn large_files_are_copied_where_the_server_can_and_sent_where_it_cannot() {
    on_each_server(|kind, access| {
        for (agent, seal) in [("open", None), ("sealed", Some([7; 32]))] {
            // Sealing takes seconds without optimisation: once is enough.
            if seal.is_some() && kind != ServerKind::Minio {
                continue;
            }
            let machines = Machines::new();
            let mount = |writer| {
                let config = config_of(access, agent, writer);
                machines.mount(S3Config { seal, ..config })
            };
            let a = mount("alice");
            names_are_told(&a, SIZES[1], || mount("bob"));
            // A part of a file that was copied is held against the digests that its writer has left.
            let c = mount("carol");
            let d = c.lookup(ROOT, b"d").unwrap().ino;
            let before = c.counters();
            let spent = |kind| c.counters()[kind] - before[kind];
            assert_eq!(read(&c, d, 5 << 20, 10), b"1111111111", "{kind}");
            assert_eq!(spent("s3_get"), 2, "{kind}: it and the digests");
            rename(&c, "d", "e", RenameMode::NoReplace);
            c.upload().unwrap();
            let copies = matches!(kind, ServerKind::Minio | ServerKind::Seaweedfs);
            let sent = spent("s3_bytes_sent");
            assert_eq!(sent < 1 << 20, copies, "{kind}: {sent} bytes");
            let received = spent("s3_bytes_received");
            assert_eq!(received < 6 << 20, copies, "{kind}: {received} bytes");
            a.pull().unwrap();
            for store in [&a, &c] {
                assert!(text(store, "e") == content('1', SIZES[1]), "{kind}");
            }
        }
    });
}

#[test]
fn what_another_tool_has_written_gets_a_checksum_with_another_name() {
    on_each_server(|kind, access| {
        let machines = Machines::new();
        let key = Key::from("agents/foreign/big");
        let body = content('f', SIZES[1]).into();
        let put = async { bucket_of(access).put(&key, body).await };
        service().runtime.block_on(put).unwrap();
        let config = config_of(access, "foreign", "alice");
        let a = machines.mount(config.clone());
        rename(&a, "big", "moved", RenameMode::NoReplace);
        a.upload().unwrap();
        let problems = check(&config).unwrap().problems;
        assert_eq!(problems, Vec::<String>::new(), "{kind}");
    });
}

#[test]
fn what_another_has_just_written_is_not_replaced_by_a_rename() {
    on_each_server(|kind, access| {
        for size in SIZES {
            let machines = Machines::new();
            let upstream = access.endpoint.strip_prefix("http://").unwrap();
            let proxy = FaultProxy::start(0, upstream.parse().unwrap()).unwrap();
            let agent = format!("agent{size}");
            let a = machines.mount(S3Config {
                endpoint: proxy.endpoint(),
                timeout: Duration::from_secs(30),
                ..config_of(access, &agent, "alice")
            });
            let b = machines.mount(config_of(access, &agent, "bob"));
            write(&a, "big", content('a', size).as_bytes());
            a.upload().unwrap();
            rename(&a, "big", "g", RenameMode::NoReplace);
            let sends = [Operation::Put, Operation::Copy, Operation::Parts];
            let target = format!("agents/{agent}/g");
            proxy.set(vec![Rule::always(Fault::Hold).of(&sends).below(&target)]);
            std::thread::scope(|scope| {
                let uploading = scope.spawn(|| a.upload());
                let begun = Instant::now();
                while proxy.fired().iter().all(|fired| fired.done == 0) {
                    assert!(begun.elapsed() < Duration::from_secs(20), "nothing is held");
                    std::thread::sleep(Duration::from_millis(5));
                }
                write(&b, "g", b"bob's");
                b.upload().unwrap();
                proxy.clear();
                uploading.join().unwrap().unwrap();
            });
            b.pull().unwrap();
            for store in [&a, &b] {
                assert_eq!(names(store, ROOT), ["g", "g.conflict-alice-1"], "{kind}");
                assert_eq!(text(store, "g"), "bob's", "{kind}");
                assert!(
                    text(store, "g.conflict-alice-1") == content('a', size),
                    "{kind}"
                );
            }
        }
    });
}

#[test]
fn what_was_refused_is_not_taken_for_a_late_upload() {
    let (machines, agent) = (Machines::new(), agent());
    let [a, b] = ["alice", "bob"].map(|writer| machines.mount(config(&agent, writer)));
    write(&b, "x", b"bob's");
    b.upload().unwrap();
    write(&a, "x", b"alice's");
    a.upload().unwrap();
    assert_eq!(names(&a, ROOT), ["x", "x.conflict-alice-1"]);
    b.pull().unwrap();
    b.unlink(&now(), ROOT, b"x").unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    // Another tool gives it its name again, with all that it says of itself.
    let [from, to] =
        ["x.conflict-alice-1", "x"].map(|name| Key::from(format!("agents/{agent}/{name}")));
    let moved = async { bucket().rename(&from, &to).await };
    service().runtime.block_on(moved).unwrap();
    a.pull().unwrap();
    a.upload().unwrap();
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(names(store, ROOT), ["x"]);
        assert_eq!(text(store, "x"), "alice's");
    }
}

#[test]
fn two_objects_that_say_they_are_one_file_are_two_files() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let dir = create(&a, ROOT, "a", Kind::Directory).ino;
    write_in(&a, dir, "f", b"f");
    a.upload().unwrap();
    rename(&a, "a", "b", RenameMode::NoReplace);
    write(&a, "a", b"ours");
    a.upload().unwrap();
    put_object(&format!("agents/{agent}/a"), b"theirs");
    let b = machines.mount(config(&agent, "bob"));
    for nth in 0..3 {
        for (store, writer) in [(&a, "alice"), (&b, "bob")] {
            store.pull().unwrap();
            let beside = format!("a.conflict-{writer}-1");
            assert_eq!(names(store, ROOT), ["a", &beside, "b"], "{nth}");
            let mut both = [text(store, "a"), text(store, &beside)];
            both.sort();
            let theirs = if nth == 0 { "theirs" } else { "theirs again" };
            assert_eq!(both, ["ours", theirs]);
        }
        put_object(&format!("agents/{agent}/a"), b"theirs again");
    }
    a.upload().unwrap();
    assert_eq!(keys(&agent).len(), 3);
}

/// What every version of a file holds that is kept.
fn kept(agent: &str, name: &str) -> Vec<String> {
    let below = format!("ctx/{agent}/versions/{name}/");
    let keys = all_keys(agent).into_iter();
    let contents = keys.filter(|key| key.starts_with(&below)).map(|key| {
        let got = service().runtime.block_on(async {
            let got = bucket().get(&Key::from(key)).await.unwrap();
            got.bytes().await.unwrap()
        });
        String::from_utf8(got.to_vec()).unwrap()
    });
    contents.collect()
}

#[test]
fn a_version_of_a_deleted_file_outlives_another_file_of_its_name() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    // It knows of what was deleted, and a host that has never seen it does not.
    for writer in ["alice", "bob", "carol"] {
        let host = match writer {
            "alice" => &a,
            writer => &machines.mount(config(&agent, writer)),
        };
        for content in ["old", "new", "newer"] {
            write(host, "plan", format!("{content} {writer}").as_bytes());
            host.upload().unwrap();
            if content == "old" {
                host.unlink(&now(), ROOT, b"plan").unwrap();
                host.upload().unwrap();
            }
        }
        if writer == "alice" {
            let plan = host.lookup(ROOT, b"plan").unwrap().ino;
            let first = host.getxattr(plan, b"user.ctx.version.1").unwrap();
            assert_eq!(first, b"old alice");
        }
        host.unlink(&now(), ROOT, b"plan").unwrap();
        host.upload().unwrap();
    }
    let mut all = kept(&agent, "plan");
    all.sort();
    let mut expected: Vec<String> = Vec::new();
    for content in ["new", "newer", "old"] {
        expected.extend(["alice", "bob", "carol"].map(|writer| format!("{content} {writer}")));
    }
    assert_eq!(all, expected);
}

#[test]
fn a_deletion_whose_answer_was_lost_is_over_when_it_finds_nothing() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n", b"1");
    a.upload().unwrap();
    a.unlink(&now(), ROOT, b"n").unwrap();
    broken.proxy.set(vec![
        Rule::always(Fault::LoseAnswer).of(&[Operation::Delete]),
    ]);
    assert!(a.upload().is_err());
    assert!(broken.fired() > 0);
    broken.proxy.clear();
    a.upload().unwrap();
    write(&a, "n", b"2");
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    b.unlink(&now(), ROOT, b"n").unwrap();
    b.upload().unwrap();
    a.pull().unwrap();
    a.upload().unwrap();
    assert_eq!(names(&a, ROOT), Vec::<String>::new());
    assert_eq!(object(&broken, "n"), None);
}

#[test]
fn a_name_that_no_key_can_hold_is_refused_when_it_is_made() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let long = "x".repeat(200);
    let mut dir = ROOT;
    for _ in 0..4 {
        dir = create(&a, dir, &long, Kind::Directory).ino;
    }
    let fits = write_in(&a, dir, "fits", b"1");
    let refused = [
        a.create(&now(), dir, long.as_bytes(), &node(Kind::File))
            .map(|_| ()),
        a.link(&now(), fits, dir, long.as_bytes()).map(|_| ()),
        a.rename(
            &now(),
            (dir, b"fits"),
            (dir, long.as_bytes()),
            RenameMode::NoReplace,
        )
        .map(|_| ()),
    ];
    for refused in refused {
        assert_eq!(errno(refused), Errno::NAMETOOLONG);
    }
    a.upload().unwrap();
    // Its version has the longest key.
    write_in(&a, dir, "fits", b"2");
    let rest = 1024 - keys(&agent)[0].len() - 34 - 1;
    write_in(&a, dir, &"y".repeat("fits".len() + rest), b"1");
    a.upload().unwrap();
    write_in(&a, dir, &"y".repeat("fits".len() + rest), b"2");
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
}

#[test]
fn a_path_that_is_too_long_for_the_key_of_a_version_has_versions_all_the_same() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    let long = "x".repeat(200);
    let top = create(&a, ROOT, "d", Kind::Directory).ino;
    let mut dir = top;
    for _ in 0..4 {
        dir = create(&a, dir, &long, Kind::Directory).ino;
    }
    let before = format!("agents/{agent}/d/").len() + 4 * (long.len() + 1);
    let name = "y".repeat(1024 - 34 - 1 - before);
    let file = write_in(&a, dir, &name, b"1");
    write(&a, "other", b"1");
    // Before it has a key, which then has the longer name.
    rename(&a, "d", &"d".repeat(20), RenameMode::NoReplace);
    a.upload().unwrap();
    write_in(&a, dir, &name, b"2");
    a.upload().unwrap();
    assert_eq!(a.getxattr(file, b"user.ctx.version.1").unwrap(), b"1");
    a.unlink(&now(), dir, name.as_bytes()).unwrap();
    a.unlink(&now(), ROOT, b"other").unwrap();
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    assert_eq!(keys(&agent), Vec::<String>::new());
    let all = all_keys(&agent);
    let kept = |key: &&String| key.contains("versions/");
    assert_eq!(all.iter().filter(kept).count(), 3, "{all:?}");
    assert!(all.iter().all(|key| key.len() <= 1024), "{all:?}");
}

#[test]
fn a_file_that_cannot_be_deleted_holds_up_no_other() {
    for operation in [Operation::Copy, Operation::Head] {
        let broken = Broken::new();
        let a = broken.mount("alice");
        for name in ["bad", "good"] {
            write(&a, name, b"1");
        }
        a.upload().unwrap();
        let refused = Fault::Refuse {
            status: 400,
            code: "KeyTooLongError".to_owned(),
            retry_after: None,
        };
        let rule = Rule::always(refused).of(&[operation]).below("/bad");
        broken.proxy.set(vec![rule]);
        for name in ["bad", "good"] {
            a.unlink(&now(), ROOT, name.as_bytes()).unwrap();
        }
        assert!(a.upload().is_err(), "{operation:?}");
        assert!(broken.fired() > 0, "{operation:?}");
        assert_eq!(object(&broken, "good"), None, "{operation:?}");
        assert_eq!(object(&broken, "bad"), Some(b"1".to_vec()));
        assert_eq!(a.pending().unwrap(), 1, "{operation:?}");
        broken.proxy.clear();
        a.upload().unwrap();
        assert_eq!(object(&broken, "bad"), None);
        assert_eq!(a.pending().unwrap(), 0);
    }
}

#[test]
fn a_file_that_somebody_has_archived_holds_up_only_what_would_overwrite_it() {
    let broken = Broken::new();
    let b = broken.elsewhere("bob");
    for name in ["archived", "other"] {
        write(&b, name, b"bob's");
    }
    b.upload().unwrap();
    let a = broken.mount("alice");
    let refused = Fault::Refuse {
        status: 403,
        code: "InvalidObjectState".to_owned(),
        retry_after: None,
    };
    let rule = Rule::always(refused)
        .of(&[Operation::Get])
        .below("/archived");
    broken.proxy.set(vec![rule]);
    rename(&a, "archived", "moved", RenameMode::NoReplace);
    write(&a, "archived", b"alice's");
    write(&a, "other", b"alice's");
    let told = a.upload().unwrap_err().to_string();
    assert!(told.contains("InvalidObjectState"), "{told}");
    assert_eq!(object(&broken, "other"), Some(b"alice's".to_vec()));
    assert_eq!(object(&broken, "archived"), Some(b"bob's".to_vec()));
    broken.proxy.clear();
    a.upload().unwrap();
    assert_eq!(object(&broken, "moved"), Some(b"bob's".to_vec()));
    assert_eq!(object(&broken, "archived"), Some(b"alice's".to_vec()));
}
