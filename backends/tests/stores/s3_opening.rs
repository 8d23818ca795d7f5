//! Opening the `s3` store: what is wrong is said before anything is mounted, and what can be done about it does it:
//! servers that want the bucket in their name, and servers that are away.

use crate::common;
use crate::s3;

use std::path::Path;
use std::time::{Duration, Instant};

use backends::s3::{OpenOptions, S3Config, S3OpenError, S3Store, Secret, check};
use backends::store::{Errno, ROOT, Store};
use common::*;
use s3::{
    Broken, Machines, agent, config, config_of, in_time, is_settled, now, object, options,
    remove_everything, runtime, service, text, try_text, write,
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
