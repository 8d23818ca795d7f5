//! Hosts that are killed, requests whose answers are lost, copies of caches, and hosts without a connection.

use crate::common::*;
use crate::hosts::*;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use fuse::store::{Kind, ROOT, RenameMode, Store};
use s3::config::S3Config;
use s3_store::{OpenOptions, S3Store};
use servers::{Operation, RequestFault, Rule, RuleFrequency};

/// The mount of the process that is killed: endpoint, access key, secret key, agent and cache.
const MOUNTS: &str = "CTXBENCH_TEST_S3_MOUNTS";

/// As a mount does it: everything goes on in the background.
fn busy(config: S3Config) -> S3Config {
    S3Config { delay: Duration::from_millis(1), poll: Duration::from_millis(5), ..config }
}

#[test]
#[ignore = "a part of a_killed_host_loses_nothing_that_it_acknowledged"]
fn the_host_that_is_killed() {
    let mounts = std::env::var(MOUNTS).unwrap();
    let mut words = mounts.split(' ').map(str::to_owned);
    let mut word = || words.next().unwrap();
    let access = servers::ServerAccess {
        endpoint: word(),
        access_key: word(),
        secret_key: word(),
        region: servers::REGION.to_owned(),
    };
    let config = busy(config_of(&access, &word(), "killed"));
    let options = OpenOptions::default();
    let store = S3Store::open(config, word().as_ref(), &caller(1), options).unwrap();
    let log = find(&store, "log");
    let text = text(&store, "log");
    let written = text.lines().filter(|line| line.starts_with("killed"));
    let first = written.count();
    println!("has {first}");
    for number in first.. {
        append(&store, log, format!("killed {number}\n").as_bytes());
        let name = format!("file{}", number % 7);
        let content = format!("{number}\n").repeat(1 + number % 30_000);
        write(&store, &name, content.as_bytes());
        let renamed = format!("renamed{}", number % 5);
        rename(&store, &name, &renamed, RenameMode::Replace);
        println!("did {number}");
    }
}

#[test]
fn a_killed_host_loses_nothing_that_it_acknowledged() {
    for memory in Memory::everywhere() {
        let other = memory.mount("other");
        let log = write(&other, "log", b"");
        other.upload().unwrap();
        drop(memory.mount("killed"));
        let (access, cache) = (&memory.access, memory.cache("killed"));
        let cache = cache.display().to_string();
        let keys = [&access.endpoint, &access.access_key, &access.secret_key];
        let mounts = [&keys[..], &[&memory.agent, &cache]].concat();
        let mounts = mounts.into_iter().cloned().collect::<Vec<_>>().join(" ");
        let mut expected = 0;
        for round in 0..12 {
            let mut killed = Command::new(std::env::current_exe().unwrap())
                .args(["--ignored", "--exact", "--nocapture"])
                .arg("s3_crashes::the_host_that_is_killed")
                .env(MOUNTS, &mounts)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = BufReader::new(killed.stdout.take().unwrap()).lines().map_while(Result::ok);
            let has = said.find_map(|line| line.strip_prefix("has ")?.parse::<usize>().ok());
            let has = has.unwrap();
            // The last call may have been done without an answer.
            let may_be = expected..=expected + 1;
            assert!(may_be.contains(&has), "{has} of {expected} lines");
            append(&other, log, format!("other {round}\n").as_bytes());
            other.upload().unwrap();
            let acknowledged = said.by_ref().filter_map(|line| line.strip_prefix("did ")?.parse::<usize>().ok());
            expected = acknowledged.take(2 + round * 7 % 40).last().map_or(has, |last| last + 1);
            killed.kill().unwrap();
            killed.wait().unwrap();
            // The lines that it printed before its end.
            expected += said.filter(|line| line.starts_with("did ")).count();
        }
        let killed = memory.mount("killed");
        exchange(&killed, &other);
        let text = text(&other, "log");
        let of = |who: &str| -> Vec<String> {
            let written = text.lines().filter(|line| line.starts_with(who));
            written.map(str::to_owned).collect()
        };
        let count = of("killed").len();
        let may_be = expected..=expected + 1;
        assert!(may_be.contains(&count), "{count} of {expected} lines");
        let all =
            |who: &str, count: usize| -> Vec<String> { (0..count).map(|number| format!("{who} {number}")).collect() };
        assert_eq!(of("killed"), all("killed", count), "each once and in order");
        assert_eq!(of("other"), all("other", 12));
        assert_eq!(text.lines().count(), count + 12);
        assert_eq!(state(&other), state(&killed));
        assert_eq!(state(&memory.fresh()), state(&killed));
        is_settled(&killed);
        is_settled(&other);
        memory.check();
    }
}

/// A commit that is in the log, but whose host does not know it: this request and all later ones get no answer.
fn lose_answers(memory: &Memory) {
    let log = format!("agents/{}/.ctx/log/", memory.agent);
    memory.proxy().set(vec![
        Rule::always(RequestFault::LoseAnswer).of(&[Operation::Put]).below(&log).when(RuleFrequency::First(1)),
        Rule::always(RequestFault::Reset).of(&[Operation::Put, Operation::Get]).below(&log),
    ]);
}

#[test]
fn a_commit_whose_answer_was_lost_is_neither_repeated_nor_a_conflict() {
    type Act = fn(&S3Store);
    let before: Act = |a| {
        append(a, find(a, "log"), b"two\n");
        write(a, "new", b"new");
        rename(a, "moved", "there", RenameMode::Replace);
        unlink(a, "gone");
        write(a, "bytes", b"\xff\x01");
    };
    let after: Act = |a| {
        append(a, find(a, "log"), b"three\n");
        write(a, "new", b"newer");
        rename(a, "there", "elsewhere", RenameMode::Replace);
        write(a, "gone", b"back");
        write(a, "bytes", b"\xff\x02");
    };
    for (is_reopened, is_changed, has_other) in
        [(false, false, false), (true, false, false), (true, true, false), (false, true, true), (true, true, true)]
    {
        let memory = Memory::behind_proxy();
        let mut a = memory.mount("a");
        for name in ["log", "moved", "gone", "bytes"] {
            write(&a, name, b"one\n");
        }
        a.upload().unwrap();
        before(&a);
        lose_answers(&memory);
        assert!(a.upload().is_err());
        assert!(memory.fired() >= 2);
        if is_reopened {
            drop(a);
            memory.proxy().clear();
            a = memory.mount("a");
        }
        if is_changed {
            after(&a);
        }
        if has_other {
            let b = memory.fresh();
            append(&b, find(&b, "log"), b"of another\n");
            b.upload().unwrap();
        }
        // Not before: after a failure, a host tries again by itself, and would commit before the other one.
        memory.proxy().clear();
        a.upload().unwrap();
        a.pull().unwrap();
        is_settled(&a);
        let mut expected = "one\ntwo\n".to_owned();
        expected += if has_other { "of another\n" } else { "" };
        expected += if is_changed { "three\n" } else { "" };
        let b = memory.fresh();
        let case = (is_reopened, is_changed, has_other);
        assert_eq!(text(&b, "log"), expected, "{case:?}");
        assert_eq!(state(&b), state(&a));
        let expected: &[&str] =
            if is_changed { &["bytes", "elsewhere", "gone", "log", "new"] } else { &["bytes", "log", "new", "there"] };
        assert_eq!(names(&b, ROOT), expected);
        memory.check();
    }
}

#[test]
fn a_request_that_arrives_late_does_nothing() {
    let memory = Memory::behind_proxy();
    let a = memory.mount_as(S3Config { timeout: TIMEOUT, ..memory.config("a") });
    let log = write(&a, "log", b"");
    eventually("it is uploaded", || a.upload().is_ok());
    let refused = || {
        let seen = memory.proxy().seen();
        seen.iter().filter(|seen| seen.answered == servers::AnswerStatus::Status(412)).count()
    };
    let before = refused();
    append(&a, log, b"one\n");
    // The proxy forwards it when the rules change, although the client has given up.
    memory.set(RequestFault::Hold, &[Operation::Put], RuleFrequency::First(1));
    assert!(a.upload().is_err());
    append(&a, log, b"two\n");
    eventually("it is uploaded", || a.upload().is_ok());
    assert_eq!(refused(), before);
    memory.proxy().clear();
    eventually("it has arrived", || refused() > before);
    a.pull().unwrap();
    for host in [&a, &memory.fresh()] {
        assert_eq!(text(host, "log"), "one\ntwo\n");
        is_settled(host);
    }
}

#[test]
fn a_kill_loses_no_acknowledged_commit() {
    for memory in Memory::everywhere() {
        let a = memory.mount("a");
        write(&a, "log", b"");
        write(&a, "gone", b"gone");
        for round in 0..6 {
            append(&a, find(&a, "log"), format!("{round}\n").as_bytes());
            a.upload().unwrap();
            write(&a, &format!("file{round}"), &[round; 100]);
            a.upload().unwrap();
            // A kill now: SQLite has committed little of this.
            let name = format!("killed{round}");
            copy_cache(&memory.cache("a"), &memory.cache(&name));
            let killed = memory.mount(&name);
            killed.upload().unwrap();
            assert_eq!(killed.counters()["s3_commits"], 0, "round {round}");
            assert_eq!(state(&killed), state(&a));
            is_settled(&killed);
        }
        unlink(&a, "gone");
        rename(&a, "file0", "file1", RenameMode::Replace);
        a.upload().unwrap();
        copy_cache(&memory.cache("a"), &memory.cache("killed"));
        let killed = memory.mount("killed");
        append(&killed, find(&killed, "log"), b"afterwards\n");
        exchange(&killed, &a);
        assert_eq!(state(&killed), state(&a));
        assert_eq!(state(&memory.fresh()), state(&a));
        is_settled(&killed);
        memory.check();
    }
}

#[test]
fn a_copy_of_a_cache_is_a_host_of_its_own() {
    for memory in Memory::everywhere() {
        let a = memory.mount("original");
        write(&a, "log", b"committed\n");
        a.upload().unwrap();
        append(&a, find(&a, "log"), b"unsent\n");
        write(&a, "unsent", b"unsent");
        drop(a);
        copy_cache(&memory.cache("original"), &memory.cache("copy"));
        let (a, b) = (memory.mount("original"), memory.mount("copy"));
        a.upload().unwrap();
        for (host, who) in [(&a, "original"), (&b, "copy")] {
            host.pull().unwrap();
            append(host, find(host, "log"), format!("{who}\n").as_bytes());
            write(host, &format!("of {who}"), who.as_bytes());
            host.upload().unwrap();
        }
        a.pull().unwrap();
        for host in [&a, &b, &memory.fresh()] {
            assert_eq!(text(host, "log"), "committed\nunsent\noriginal\ncopy\n");
            let all = ["log", "of copy", "of original", "unsent"];
            assert_eq!(names(host, ROOT), all);
            is_settled(host);
        }
        memory.check();
    }
}

#[test]
fn an_inode_number_of_a_file_that_others_removed_makes_no_other_file_that_one() {
    for memory in Memory::everywhere() {
        let a = memory.mount("a");
        let mut hosts = ["b", "c"].map(|writer| Some(memory.mount(writer)));
        write(&a, "f", b"f");
        a.upload().unwrap();
        for host in hosts.iter().flatten() {
            host.pull().unwrap();
        }
        unlink(&a, "f");
        a.upload().unwrap();
        for (host, writer) in hosts.iter_mut().zip(["b", "c"]) {
            host.take().unwrap().pull().unwrap();
            let again = memory.mount(writer);
            write(&again, writer, writer.as_bytes());
            again.upload().unwrap();
            *host = Some(again);
        }
        for host in hosts.iter().flatten().chain([&a]) {
            host.pull().unwrap();
            for name in ["b", "c"] {
                assert_eq!(text(host, name), name);
            }
            is_settled(host);
        }
    }
}

const OFFLINE: OpenOptions = OpenOptions { allow_offline: true, refill_bucket: false, rebuild_cache: false };

#[test]
fn a_cache_can_be_mounted_while_the_server_is_away_and_everything_arrives_later() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    write(&a, "log", b"one\n");
    a.upload().unwrap();
    append(&a, find(&a, "log"), b"two\n");
    drop(a);
    memory.proxy().partition(true).unwrap();
    for (writer, options) in [("a", OpenOptions::default()), ("new", OFFLINE)] {
        let told = memory.open(memory.config(writer), options).unwrap_err();
        has(&told.to_string(), &["does not answer"]);
    }
    assert!(!memory.cache("new").exists());

    let config = S3Config { delay: Duration::from_millis(5), ..memory.config("a") };
    let a = memory.open(config, OFFLINE).unwrap();
    has(&a.notes()[0], &["does not answer"]);
    assert_eq!(text(&a, "log"), "one\ntwo\n");
    append(&a, find(&a, "log"), b"three\n");
    assert!(a.pull().is_err());
    let b = memory.fresh();
    append(&b, find(&b, "log"), b"of another\n");
    b.upload().unwrap();
    memory.proxy().partition(false).unwrap();
    eventually("it is uploaded", || a.pending().unwrap() == 0);
    b.pull().unwrap();
    for host in [&a, &b] {
        assert_eq!(text(host, "log"), "one\nof another\ntwo\nthree\n");
        is_settled(host);
    }
}

#[test]
fn unsent_changes_of_every_kind_outlive_a_remount() {
    for memory in Memory::everywhere() {
        let a = memory.mount("a");
        for name in ["changed", "moved", "gone"] {
            write(&a, name, &pattern(300 << 10, 1));
        }
        let dir = mkdir(&a, ROOT, "dir");
        create(&a, dir, "in", Kind::File);
        a.upload().unwrap();
        append(&a, find(&a, "changed"), b"more");
        rename(&a, "moved", "there", RenameMode::Replace);
        unlink(&a, "gone");
        let gone = a.unlink(&now(), dir, b"in").unwrap().unwrap();
        a.reclaim(gone).unwrap();
        let gone = a.rmdir(&now(), ROOT, b"dir").unwrap().unwrap();
        a.reclaim(gone).unwrap();
        let seen = state(&a);
        drop(a);
        let a = memory.mount("a");
        assert!(a.pending().unwrap() > 0);
        assert_eq!(state(&a), seen);
        a.upload().unwrap();
        assert_eq!(state(&memory.fresh()), seen);
        is_settled(&a);
        memory.check();
    }
}

#[test]
fn a_cache_that_cannot_be_used_is_refused_with_advice_that_this_mount_can_follow() {
    let memory = Memory::new();
    let cache = memory.cache("a");
    let refused = || {
        let error = memory.open(memory.config("a"), OpenOptions::default());
        let error = error.unwrap_err();
        assert!(std::error::Error::source(&error).is_none(), "printed twice");
        let text = error.to_string();
        has(&text, &["\n  fix: ", "choose another file with --cache"]);
        assert!(!text.contains("--db"), "{text}");
        text
    };
    let first = memory.mount("a");
    has(&refused(), &["in use by another ctxbench mount"]);
    drop(first);
    std::fs::remove_file(&cache).unwrap();
    std::fs::write(&cache, "notes, and no database").unwrap();
    refused();
    assert_eq!(std::fs::read(&cache).unwrap(), b"notes, and no database");
    std::fs::remove_file(&cache).unwrap();
    let target = cache.with_file_name("missing");
    std::os::unix::fs::symlink(&target, &cache).unwrap();
    refused();
    assert!(!target.exists());
}
