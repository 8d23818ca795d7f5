//! Opening the `s3` store: what is wrong is said before anything is mounted, and what can be done about it does it:
//! servers that want the bucket in their name, servers that are away, caches that are damaged, buckets that were emptied.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;
#[path = "common/s3.rs"]
mod s3;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backends::s3::{OpenOptions, S3Config, S3OpenError, S3Store, Secret, check};
use backends::store::{Errno, Kind, NewNode, ROOT, RenameMode, Store, XattrMode};
use common::*;
use s3::{
    Broken, Machines, agent, config, config_of, in_time, is_settled, now, object, object_of,
    options, remove_everything, runtime, service, text, text_in, try_text, write, write_in,
};
use servers::{Access, Embedded, Fault, Rule, ServerKind};

#[test]
fn what_is_wrong_is_said_before_anything_is_mounted() {
    let (machines, agent) = (Machines::new(), agent());
    let open = |config: S3Config| {
        S3Store::open(config, &machines.cache("x.db"), &caller(1))
            .unwrap_err()
            .to_string()
    };
    let good = config(&agent, "alice");
    let nobody = open(S3Config {
        endpoint: "http://127.0.0.1:9".to_owned(),
        ..good.clone()
    });
    assert!(nobody.contains("does not answer"), "{nobody}");
    let no_bucket = open(S3Config {
        bucket: "nothing-here".to_owned(),
        ..good.clone()
    });
    assert!(no_bucket.contains("no bucket nothing-here"), "{no_bucket}");
    let mut wrong = good.clone();
    wrong.access_key.secret = Secret("not-the-secret".to_owned());
    let refused = open(wrong);
    assert!(
        refused.contains("refuses the credentials from the test"),
        "{refused}"
    );
    assert!(!refused.contains("not-the-secret"));
    let no_address = open(S3Config {
        endpoint: "localhost:9000".to_owned(),
        ..good.clone()
    });
    assert!(
        no_address.contains("no http or https address"),
        "{no_address}"
    );
    assert!(!machines.cache("x.db").exists(), "nothing is left behind");
    // A cache belongs to one bucket.
    drop(machines.mount(good));
    let other = config("somebody-else", "alice");
    let taken = S3Store::open(other, &machines.cache("alice.db"), &caller(1)).unwrap_err();
    assert!(taken.to_string().contains("is the cache of"), "{taken}");
}

/// A server that wants the bucket in its name, and what it runs on.
fn virtual_hosts(dir: &Path) -> (tokio::runtime::Runtime, Embedded, Access) {
    let runtime = runtime();
    // It cannot be asked to make the bucket: that request has it in its path.
    std::fs::create_dir_all(dir.join(servers::BUCKET)).unwrap();
    let (server, access) = runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let domain = format!("localhost:{}", listener.local_addr().unwrap().port());
        let access = Access {
            endpoint: format!("http://{domain}"),
            access_key: "key".to_owned(),
            secret_key: "secret".to_owned(),
            region: servers::REGION.to_owned(),
        };
        let served = Embedded::serve_virtual_hosts(listener, dir, &access, &domain);
        (served.unwrap(), access)
    });
    (runtime, server, access)
}

/// Every kind of request there is, with the bucket in the server's name.
fn works_with_virtual_hosts(access: &Access) {
    let machines = Machines::new();
    let config = |writer: &str| S3Config {
        path_style: false,
        ..config_of(access, "alice", writer)
    };
    let a = machines.mount(config("a"));
    let large = "0123456789abcdef".repeat(9 << 16);
    write(&a, "note.md", b"first");
    write(&a, "large", large.as_bytes());
    for nth in 0..5 {
        write(&a, &format!("n{nth}"), b"x");
    }
    a.upload().unwrap();
    write(&a, "note.md", b"second");
    a.link(&now(), a.lookup(ROOT, b"large").unwrap().ino, ROOT, b"copy")
        .unwrap();
    for nth in 0..5 {
        a.unlink(&now(), ROOT, format!("n{nth}").as_bytes())
            .unwrap();
    }
    a.upload().unwrap();
    let ino = a.lookup(ROOT, b"note.md").unwrap().ino;
    assert_eq!(a.getxattr(ino, b"user.ctx.version.1").unwrap(), b"first");
    let b = machines.mount(config("b"));
    assert_eq!(names(&b, ROOT), ["copy", "large", "note.md"]);
    assert_eq!(text(&b, "note.md"), "second");
    assert!(text(&b, "large") == large && text(&b, "copy") == large);
    write(&b, "note.md", b"third");
    b.upload().unwrap();
    a.pull().unwrap();
    assert_eq!(text(&a, "note.md"), "third");
    assert_eq!(check(&config("c")).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_bucket_can_be_part_of_the_servers_name() {
    let dir = tempfile::tempdir().unwrap();
    let (_runtime, _server, access) = virtual_hosts(dir.path());
    works_with_virtual_hosts(&access);
}

#[test]
fn the_bucket_can_be_part_of_minios_name() {
    let minio = match ServerKind::Minio.find() {
        Ok(minio) => minio,
        Err(missing) => {
            let required = std::env::var_os("CTXBENCH_REQUIRE_MINIO").is_some();
            assert!(!required, "{missing}");
            eprintln!("SKIPPED: {missing}");
            return;
        }
    };
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let server = runtime
        .block_on(servers::start(options(minio, dir.path())))
        .unwrap();
    let mut access = server.access().clone();
    access.endpoint = access.endpoint.replace("127.0.0.1", "localhost");
    works_with_virtual_hosts(&access);
    runtime.block_on(server.stop()).unwrap();
}

#[test]
fn the_wrong_style_of_address_is_told_from_a_wrong_key() {
    let machines = Machines::new();
    let open = |config: S3Config| {
        let told = S3Store::open(config, &machines.cache("x.db"), &caller(1)).unwrap_err();
        assert!(!machines.cache("x.db").exists(), "nothing is left behind");
        told.to_string()
    };
    let dir = tempfile::tempdir().unwrap();
    let (_runtime, _server, access) = virtual_hosts(dir.path());
    let by_path = config_of(&access, "alice", "alice");
    let told = open(by_path.clone());
    assert!(
        told.contains("wants bucket ctxbench as part of its name")
            && told.contains("fix: add --virtual-host"),
        "{told}"
    );
    let by_name = S3Config {
        path_style: false,
        ..by_path
    };
    let mut wrong = by_name.clone();
    wrong.access_key.secret = Secret("another".to_owned());
    let told = open(wrong);
    assert!(told.contains("refuses the credentials"), "{told}");
    let told = open(S3Config {
        bucket: "nothing-here".to_owned(),
        ..by_name
    });
    assert!(told.contains("no bucket nothing-here"), "{told}");

    // A server that knows buckets by their path only.
    let mut access = service().access.clone();
    let by_name = |access: &Access| S3Config {
        path_style: false,
        ..config_of(access, "alice", "alice")
    };
    let told = open(by_name(&access));
    assert!(
        told.contains("it is an address") && told.contains("fix: leave out --virtual-host"),
        "{told}"
    );
    access.endpoint = access.endpoint.replace("127.0.0.1", "localhost");
    let told = open(by_name(&access));
    assert!(
        told.contains("in the path") && told.contains("fix: leave out --virtual-host"),
        "{told}"
    );
}

const OFFLINE: OpenOptions = OpenOptions {
    allow_offline: true,
    refill_bucket: false,
};

const REFILL: OpenOptions = OpenOptions {
    allow_offline: false,
    refill_bucket: true,
};

fn open_with(
    broken: &Broken,
    config: S3Config,
    options: OpenOptions,
) -> Result<S3Store, S3OpenError> {
    let cache = broken.cache(&config.writer);
    S3Store::open_with(config, &cache, &caller(1), options)
}

#[test]
fn a_cache_can_be_mounted_while_the_server_is_away_and_everything_arrives_later() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "kept", b"kept");
    write(&a, "deleted", b"x");
    a.upload().unwrap();
    let b = broken.elsewhere("bob");
    write(&b, "unread", b"bob's");
    b.upload().unwrap();
    a.pull().unwrap();
    write(&a, "before", b"before");
    drop(a);

    broken.proxy.partition(true).unwrap();
    let config = S3Config {
        poll: Duration::from_millis(100),
        delay: Duration::from_millis(20),
        ..broken.config("alice")
    };
    // Not without being asked to: a wrong address must not look like success.
    let told = in_time("a mount", || {
        open_with(&broken, config.clone(), OpenOptions::default())
    });
    let told = told.unwrap_err().to_string();
    let cache = broken.cache("alice").display().to_string();
    assert!(
        told.contains("does not answer")
            && told.contains("--allow-offline")
            && told.contains(&cache),
        "{told}"
    );
    for _ in 0..2 {
        let a = in_time("a mount", || open_with(&broken, config.clone(), OFFLINE)).unwrap();
        let [note] = a.notes() else {
            panic!("{:?}", a.notes())
        };
        assert!(
            note.contains("offline") && note.contains("does not answer") && !note.contains('\n'),
            "{note}"
        );
        assert_eq!(text(&a, "kept"), "kept");
        assert_eq!(try_text(&a, "unread"), Err(Errno::IO));
        write(&a, "new", b"new");
        if a.lookup(ROOT, b"deleted").is_ok() {
            a.unlink(&now(), ROOT, b"deleted").unwrap();
        }
        assert!(a.pending().unwrap() > 0);
        let told = in_time("an upload", || a.upload()).unwrap_err().to_string();
        assert!(told.contains("does not answer"), "{told}");
        assert!(in_time("a look", || a.pull()).is_err());
        // The journal survives this mount, too.
    }
    let a = open_with(&broken, config, OFFLINE).unwrap();
    broken.proxy.partition(false).unwrap();
    let begun = Instant::now();
    while a.pending().unwrap() > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it does not come back"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    is_settled(&a);
    assert_eq!(object(&broken, "before").unwrap(), b"before");
    assert_eq!(object(&broken, "new").unwrap(), b"new");
    assert_eq!(object(&broken, "deleted"), None);
    assert_eq!(text(&a, "unread"), "bob's");
}

#[test]
fn only_a_server_that_is_away_can_be_done_without() {
    let broken = Broken::new();
    let seal = Some([7; 32]);
    let config = S3Config {
        seal,
        ..broken.config("alice")
    };
    let a = open_with(&broken, config.clone(), OFFLINE).unwrap();
    assert_eq!(a.notes(), Vec::<String>::new(), "it is there");
    write(&a, "kept", b"kept");
    a.upload().unwrap();
    drop(a);
    let refuse = |status: u16, code: &str| {
        let fault = Fault::Refuse {
            status,
            code: code.to_owned(),
            retry_after: None,
        };
        broken.proxy.set(vec![Rule::always(fault)]);
        open_with(&broken, config.clone(), OFFLINE)
    };
    for (status, code, said) in [
        (403, "InvalidAccessKeyId", "refuses the credentials"),
        (403, "AccessDenied", "refuses the credentials"),
        (403, "RequestTimeTooSkewed", "clock"),
        (404, "NoSuchBucket", "no bucket"),
        (400, "Bad", "answered status 400"),
    ] {
        let told = refuse(status, code).unwrap_err().to_string();
        assert!(told.contains(said), "{code}: {told}");
    }
    // What stands before it says that it is away.
    let a = refuse(503, "ServiceUnavailable").unwrap();
    assert!(a.notes()[0].contains("503"), "{:?}", a.notes());
    drop(a);
    broken.proxy.clear();
    broken.proxy.partition(true).unwrap();
    let refused = |config: S3Config| open_with(&broken, config, OFFLINE).unwrap_err().to_string();
    let told = refused(S3Config {
        endpoint: "http://127.0.0.1:9".to_owned(),
        ..config.clone()
    });
    assert!(told.contains("is no cache of"), "another address: {told}");
    let told = refused(S3Config {
        agent: "somebody-else".to_owned(),
        ..config.clone()
    });
    assert!(told.contains("is no cache of"), "{told}");
    let told = refused(S3Config {
        writer: "never-here".to_owned(),
        ..config.clone()
    });
    assert!(told.contains("is no cache of"), "no cache: {told}");
    assert!(
        !broken.cache("never-here").exists(),
        "nothing is left behind"
    );
    let told = refused(S3Config {
        seal: Some([8; 32]),
        ..config.clone()
    });
    assert!(told.contains("another key"), "{told}");
    let a = open_with(&broken, config, OFFLINE).unwrap();
    assert_eq!(text(&a, "kept"), "kept");
}

#[test]
fn nothing_goes_up_to_a_server_that_comes_back_wrong() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "kept", b"kept");
    a.upload().unwrap();
    drop(a);
    broken.proxy.partition(true).unwrap();
    let a = open_with(&broken, broken.config("alice"), OFFLINE).unwrap();
    write(&a, "new", b"new");
    remove_everything(&broken.agent);
    broken.proxy.partition(false).unwrap();
    let told = a.upload().unwrap_err().to_string();
    assert!(told.contains("emptied"), "{told}");
    assert_eq!(object(&broken, "new"), None);
    assert_eq!(names(&a, ROOT), ["kept", "new"]);
}

/// Overwrites the first page of a table or an index.
fn damage(file: &Path, what: &str) {
    let db = rusqlite::Connection::open(file).unwrap();
    let page: u32 = db
        .query_row(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?1",
            [what],
            |row| row.get(0),
        )
        .unwrap();
    let size: u32 = db
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .unwrap();
    db.close().unwrap();
    let file = File::options().write(true).open(file).unwrap();
    let at = u64::from(page - 1) * u64::from(size);
    file.write_all_at(&vec![0xff; size as usize], at).unwrap();
}

/// What was set aside of a cache.
fn set_aside(cache: &Path) -> Vec<PathBuf> {
    let name = cache.file_name().unwrap().to_str().unwrap();
    let all = std::fs::read_dir(cache.parent().unwrap()).unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    let mut aside: Vec<PathBuf> = all
        .filter(|path| {
            let path = path.file_name().unwrap().to_str().unwrap();
            path.starts_with(&format!("{name}.set-aside-"))
                && !["-wal", "-shm", "-tails"]
                    .iter()
                    .any(|end| path.ends_with(end))
        })
        .collect();
    aside.sort();
    aside
}

#[test]
fn a_damaged_cache_is_set_aside_and_what_had_not_gone_up_is_taken_from_it() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let a = machines.mount(config(&agent, "alice"));
    for name in ["changed", "contested", "deleted", "kept", "same"] {
        write(&a, name, b"1");
    }
    let dir = create(&a, ROOT, "d", Kind::Directory).ino;
    write_in(&a, dir, "below", b"below");
    a.upload().unwrap();
    let b = machines.mount(config(&agent, "bob"));
    write(&b, "unread", b"bob's");
    b.upload().unwrap();
    a.pull().unwrap();

    let large = "0123456789abcdef".repeat(20_000);
    write(&a, "changed", b"2");
    write(&a, "contested", b"alice's");
    write(&a, "same", b"2");
    let new = write(&a, "new.md", b"new");
    a.setxattr(&now(), new, b"user.tag", b"t", XattrMode::Set)
        .unwrap();
    write(&a, "large", large.as_bytes());
    a.unlink(&now(), ROOT, b"deleted").unwrap();
    a.rename(&now(), (ROOT, b"d"), (ROOT, b"e"), RenameMode::NoReplace)
        .unwrap();
    a.rename(
        &now(),
        (ROOT, b"unread"),
        (ROOT, b"renamed"),
        RenameMode::NoReplace,
    )
    .unwrap();
    let link = NewNode {
        target: b"changed",
        ..node(Kind::Symlink)
    };
    a.create(&now(), ROOT, b"link", &link).unwrap();
    let empty = create(&a, ROOT, "empty", Kind::Directory).ino;
    write_in(&a, empty, "first", b"1");
    drop(a);
    write(&b, "contested", b"bob's");
    write(&b, "same", b"2");
    b.upload().unwrap();

    damage(&cache, "orphan");
    let open = || S3Store::open(config(&agent, "alice"), &cache, &caller(1));
    let told = open().unwrap_err();
    assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
    let told = told.to_string();
    assert!(
        told.contains("alice.db") && told.contains("fix: mount it with --rebuild-cache"),
        "{told}"
    );

    let rebuild = || S3Store::rebuild(config(&agent, "alice"), &cache, &caller(1));
    let a = rebuild().unwrap();
    let [note] = a.notes() else {
        panic!("{:?}", a.notes())
    };
    let [aside] = set_aside(&cache).try_into().unwrap();
    assert!(note.contains(aside.to_str().unwrap()), "{note}");
    assert!(
        note.contains("7 files and 1 removals, 1 of the files beside"),
        "{note}"
    );
    assert!(!note.contains("could not be"), "{note}");
    let told = rebuild().unwrap_err().to_string();
    assert!(told.contains("is in use"), "{told}");
    a.upload().unwrap();
    assert_eq!(a.pending().unwrap(), 0);
    b.pull().unwrap();
    for store in [&a, &b] {
        assert_eq!(
            names(store, ROOT),
            [
                "changed",
                "contested",
                "contested.conflict-alice-1",
                "e",
                "empty",
                "kept",
                "large",
                "link",
                "new.md",
                "renamed",
                "same",
            ]
        );
        assert_eq!(text(store, "changed"), "2");
        assert_eq!(text(store, "contested"), "bob's");
        assert_eq!(text(store, "contested.conflict-alice-1"), "alice's");
        assert!(text(store, "large") == large);
        assert_eq!(text(store, "new.md"), "new");
        assert_eq!(text(store, "renamed"), "bob's");
        let ino = |name: &str| store.lookup(ROOT, name.as_bytes()).unwrap().ino;
        assert_eq!(store.getxattr(ino("new.md"), b"user.tag").unwrap(), b"t");
        assert_eq!(store.readlink(ino("link")).unwrap(), b"changed");
        assert_eq!(text_in(store, ino("e"), "below"), "below");
        assert_eq!(text_in(store, ino("empty"), "first"), "1");
    }
    assert!(
        object_of(&agent, "d/below").is_some(),
        "renamed, and not copied"
    );
    assert_eq!(
        check(&config(&agent, "c")).unwrap().problems,
        Vec::<String>::new()
    );
    // Once more is safe: nothing had not gone up, and another file is set aside.
    drop(a);
    let a = rebuild().unwrap();
    assert!(
        a.notes()[0].contains("0 files and 0 removals"),
        "{:?}",
        a.notes()
    );
    assert_eq!(set_aside(&cache).len(), 2);
    assert_eq!(names(&a, ROOT), names(&b, ROOT));
}

#[test]
fn a_cache_of_which_nothing_can_be_read_is_kept_as_it_is() {
    let (machines, agent) = (Machines::new(), agent());
    let cache = machines.cache("alice.db");
    let write_and_leave = || {
        let a = machines.mount(config(&agent, "alice"));
        write(&a, "kept", b"kept");
        a.upload().unwrap();
        write(&a, "lost", b"lost");
    };
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 3] = [
        ("no database", |cache| {
            let file = File::options().write(true).open(cache).unwrap();
            file.write_all_at(&[0xff; 512], 0).unwrap();
        }),
        ("cut", |cache| {
            let file = File::options().write(true).open(cache).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("newer", |cache| {
            let db = rusqlite::Connection::open(cache).unwrap();
            let newer = "UPDATE s3_setting SET value = '99' WHERE name = 'tables'";
            assert_eq!(db.execute(newer, ()).unwrap(), 1);
        }),
    ];
    for (nth, (what, damage)) in damages.into_iter().enumerate() {
        write_and_leave();
        damage(&cache);
        let before = std::fs::read(&cache).unwrap();
        let told = S3Store::open(config(&agent, "alice"), &cache, &caller(1)).unwrap_err();
        let is_newer = matches!(told, S3OpenError::Newer { .. });
        assert_eq!(is_newer, what == "newer", "{told}");
        let told = told.to_string();
        assert!(told.contains("--rebuild-cache"), "{what}: {told}");
        let before_rebuild = std::fs::read(&cache).unwrap();
        let a = S3Store::rebuild(config(&agent, "alice"), &cache, &caller(1)).unwrap();
        assert_eq!(text(&a, "kept"), "kept", "{what}");
        let aside = set_aside(&cache);
        assert_eq!(aside.len(), nth + 1, "{what}");
        let note = &a.notes()[0];
        let has_it = a.lookup(ROOT, b"lost").is_ok();
        assert!(
            has_it || note.contains("only there"),
            "{what}: what was not taken is said: {note}"
        );
        assert!(
            aside
                .iter()
                .any(|aside| std::fs::read(aside).unwrap() == before_rebuild),
            "{what}: it is as it was"
        );
        if what == "no database" {
            assert!(
                before == before_rebuild && note.contains("nothing can be read"),
                "{note}"
            );
        }
        // The next one begins anew.
        if has_it {
            a.unlink(&now(), ROOT, b"lost").unwrap();
        }
        a.upload().unwrap();
    }
}

#[test]
fn a_cache_that_was_cut_to_nothing_is_not_taken_for_a_new_one() {
    let (machines, agent) = (Machines::new(), agent());
    let a = machines.mount(config(&agent, "alice"));
    write(&a, "n", b"not up");
    // As a crash leaves it: with its log.
    let (cache, copy) = (machines.cache("alice.db"), machines.cache("copy.db"));
    let log = |cache: &Path| PathBuf::from(format!("{}-wal", cache.display()));
    std::fs::copy(log(&cache), log(&copy)).unwrap();
    File::create(&copy).unwrap();
    let told = S3Store::open(config(&agent, "alice"), &copy, &caller(1)).unwrap_err();
    assert!(matches!(told, S3OpenError::Damaged { .. }), "{told}");
    assert!(log(&copy).exists(), "its log is left alone");
}

#[test]
fn a_cache_stays_where_it_is_while_the_server_is_away() {
    let broken = Broken::new();
    let a = broken.mount("alice");
    write(&a, "n", b"not up");
    drop(a);
    let cache = broken.cache("alice");
    damage(&cache, "orphan");
    let before = std::fs::read(&cache).unwrap();
    broken.proxy.partition(true).unwrap();
    let told = S3Store::rebuild(broken.config("alice"), &cache, &caller(1)).unwrap_err();
    assert!(matches!(told, S3OpenError::Unreachable { .. }), "{told}");
    assert!(std::fs::read(&cache).unwrap() == before && set_aside(&cache).is_empty());
}

#[test]
fn an_emptied_bucket_can_be_filled_again_or_taken_as_it_is() {
    for seal in [None, Some([7; 32])] {
        let (machines, agent) = (Machines::new(), agent());
        let config = |writer: &str| S3Config {
            seal,
            ..config(&agent, writer)
        };
        let cache = machines.cache("alice.db");
        let open = |options| S3Store::open_with(config("alice"), &cache, &caller(1), options);
        let a = open(REFILL).unwrap();
        assert!(a.notes()[0].contains("was not emptied"), "{:?}", a.notes());
        for nth in 0..5 {
            write(&a, &format!("n{nth}"), b"the only copy");
        }
        create(&a, ROOT, "empty", Kind::Directory);
        a.upload().unwrap();
        let b = machines.mount(config("bob"));
        write(&b, "unread", b"bob's");
        b.upload().unwrap();
        a.pull().unwrap();
        drop((a, b));
        std::fs::copy(&cache, machines.cache("another.db")).unwrap();
        remove_everything(&agent);

        let a = open(OpenOptions::default()).unwrap();
        write(&a, "new", b"new");
        let told = a.upload().unwrap_err().to_string();
        assert!(
            told.contains("--refill-bucket") && told.contains("--rebuild-cache"),
            "{told}"
        );
        drop(a);
        let a = open(REFILL).unwrap();
        let [note] = a.notes() else {
            panic!("{:?}", a.notes())
        };
        assert!(
            note.contains("5 files go up again") && note.contains("lost: "),
            "{note}"
        );
        a.upload().unwrap();
        is_settled(&a);
        let all = ["empty", "n0", "n1", "n2", "n3", "n4", "new"];
        let b = machines.mount(config("carol"));
        for store in [&a, &b] {
            store.pull().unwrap();
            assert_eq!(names(store, ROOT), all);
            assert_eq!(text(store, "n3"), "the only copy");
        }
        drop((a, b));
        let a = open(REFILL).unwrap();
        assert!(a.notes()[0].contains("was not emptied"), "{:?}", a.notes());
        assert_eq!(names(&a, ROOT), all, "twice is safe");
        drop(a);

        // Or the bucket is right: what is here goes, but for what had not gone up, and is set aside.
        remove_everything(&agent);
        let a = open(OpenOptions::default()).unwrap();
        write(&a, "later", b"later");
        assert!(a.upload().is_err());
        drop(a);
        let a = S3Store::rebuild(config("alice"), &cache, &caller(1)).unwrap();
        assert_eq!(names(&a, ROOT), ["later"]);
        a.upload().unwrap();
        is_settled(&a);
        assert_eq!(set_aside(&cache).len(), 1);
    }
}
