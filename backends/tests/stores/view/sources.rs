//! Sources other than databases: a directory, and an interface over HTTP.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use backends::view::OpenError;

use super::*;

#[test]
fn the_six_directories_of_a_controller_compute_health_logs_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write(
        "tasks/build.json",
        r#"{"state": "open", "depends_on": ["plan"]}"#,
    );
    write("tasks/plan.json", r#"{"state": "open"}"#);
    write("tasks/broken.json", "{");
    write("state/state.json", r#"{"cycle": 6}"#);
    write("observations/note.md", "# seen\n");
    write("inbox/new/1.mail", "hello");
    write("logs/1.log", "one\n");
    write("logs/2.log", "two\nthree\n");
    let store = shipped("vsm", root, false);
    let top = [
        "depends-on",
        "health",
        "inbox",
        "logs",
        "observations",
        "state",
        "tasks",
        "tasks-by-state",
    ];
    assert_eq!(list(&store, ""), top);
    let health = || read(&store, "health/tasks.json").unwrap();
    assert_eq!(
        health(),
        "{\"tasks\":2,\"open\":2,\"blocked\":1,\"unreadable\":1}\n"
    );
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\ntwo\nthree\n");
    assert_eq!(list(&store, "tasks-by-state"), ["open"]);
    assert_eq!(list(&store, "depends-on/build.json"), ["plan.json"]);
    let link = go(&store, "depends-on/build.json/plan.json").unwrap();
    let target = String::from_utf8(store.readlink(link).unwrap()).unwrap();
    let task = target.strip_prefix("../../").unwrap();
    assert_eq!(read(&store, task).unwrap(), r#"{"state": "open"}"#);

    for round in 0..20 {
        let state = if round % 2 == 0 { "done" } else { "open" };
        write("tasks/plan.json", &format!(r#"{{"state": "{state}"}}"#));
        let blocked = round % 2;
        assert!(
            health().contains(&format!("\"blocked\":{blocked}")),
            "{}",
            health()
        );
        write(&format!("logs/new/{round}/x.log"), "elsewhere\n");
        write("logs/2.log", &format!("two\n{round}\n"));
        assert_eq!(
            read(&store, "logs/all.log").unwrap(),
            format!("one\ntwo\n{round}\n")
        );
    }
    std::fs::remove_file(root.join("tasks/plan.json")).unwrap();
    assert!(health().contains("\"tasks\":1"));
    write("state/later.json", "{}");
    assert_eq!(list(&store, "state").len(), 2);
    assert_eq!(
        errno(overwrite(
            &store,
            go(&store, "health/tasks.json").unwrap(),
            "x"
        )),
        Errno::ROFS
    );
    std::fs::remove_dir_all(root).unwrap();
    assert_eq!(errno(read(&store, "health/tasks.json")), Errno::IO);
    assert_eq!(list(&store, ""), top, "names stay");
    write("tasks/again.json", r#"{"state": "done"}"#);
    assert!(health().contains("\"tasks\":1,\"open\":0"), "{}", health());
}

#[test]
fn a_mail_that_is_new_and_seen_at_once_is_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    for (place, text) in [("inbox/new", "new"), ("inbox/cur", "seen")] {
        std::fs::create_dir_all(dir.path().join(place)).unwrap();
        std::fs::write(dir.path().join(place).join("1.mail"), text).unwrap();
    }
    std::fs::write(dir.path().join("inbox/new/2.mail"), "other").unwrap();
    let store = shipped("vsm", dir.path(), false);
    assert_eq!(list(&store, "inbox"), ["1.mail", "2.mail"]);
    assert_eq!(read(&store, "inbox/1.mail").unwrap(), "seen");
    std::fs::remove_file(dir.path().join("inbox/cur/1.mail")).unwrap();
    assert_eq!(read(&store, "inbox/1.mail").unwrap(), "new");
}

#[test]
fn a_directory_may_be_stale_for_as_long_as_its_definition_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("state/one.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "1").unwrap();
    let (name, text) = definition::find("vsm").unwrap();
    let stale = |ms: u64| {
        let kind = "kind = \"directory\"";
        let text = text.replace(kind, &format!("{kind}\nstale_ms = {ms}"));
        let place = dir.path().to_str().unwrap();
        ViewStore::open((&name, &text), place, false, &caller(1)).unwrap()
    };
    let (long, brief) = (stale(600_000), stale(200));
    let shown = |store: &ViewStore| read(store, "state/one.json").unwrap();
    assert_eq!((shown(&long), shown(&brief)), ("1".into(), "1".into()));
    std::fs::write(&file, "22").unwrap();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(shown(&brief), "22");
    assert_eq!(shown(&long), "1");
}

#[test]
fn a_directory_that_takes_too_long_to_read_is_an_error_until_it_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let many = dir.path().join("many");
    std::fs::create_dir_all(&many).unwrap();
    for number in 0..20_000 {
        std::fs::write(many.join(number.to_string()), "").unwrap();
    }
    std::fs::create_dir(dir.path().join("state")).unwrap();
    let (name, text) = definition::find("vsm").unwrap();
    let kind = "kind = \"directory\"";
    let text = text.replace(kind, &format!("{kind}\ntimeout_ms = 5"));
    let place = dir.path().to_str().unwrap();
    let store = ViewStore::open((&name, &text), place, false, &caller(1)).unwrap();
    std::fs::write(dir.path().join("state/one.json"), "1").unwrap();
    let failed = read(&store, "state/one.json").unwrap_err();
    assert_eq!(failed.errno, Errno::IO);
    has(&failed.reason.unwrap(), &[place, "5 ms (`timeout_ms`)"]);
    std::fs::remove_dir_all(&many).unwrap();
    let began = Instant::now();
    while read(&store, "state/one.json").is_err() {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

/// Serves a list of issues in pages of two, with entity tags; counts the pages that it sent.
struct Issues {
    listener: TcpListener,
    issues: std::sync::Mutex<Vec<(i64, String)>>,
    sent: AtomicUsize,
    is_down: AtomicBool,
    /// Where the next page is, if it is on another server.
    elsewhere: std::sync::Mutex<String>,
    /// An issue that is inserted before the second page is asked for.
    grows_by: std::sync::Mutex<Option<(i64, String)>>,
}

impl Issues {
    fn new(count: i64) -> Arc<Self> {
        let issue = |number| (number, format!("Issue {number}"));
        Arc::new(Self {
            listener: TcpListener::bind("127.0.0.1:0").unwrap(),
            issues: std::sync::Mutex::new((1..=count).map(issue).collect()),
            sent: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
            elsewhere: std::sync::Mutex::default(),
            grows_by: std::sync::Mutex::default(),
        })
    }

    fn serve(self: &Arc<Self>) -> String {
        let address = self.listener.local_addr().unwrap();
        let server = Arc::clone(self);
        std::thread::spawn(move || {
            for stream in server.listener.incoming() {
                let server = Arc::clone(&server);
                std::thread::spawn(move || server.answer(stream.unwrap()));
            }
        });
        format!("http://{address}/api/")
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(request)) = lines.next() {
            let headers: Vec<String> = lines
                .by_ref()
                .map_while(std::result::Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            if self.is_down.load(Ordering::Relaxed) || !request.contains(" /api/issues") {
                return;
            }
            let page: usize = request
                .split("page=")
                .nth(1)
                .map_or(1, |rest| rest[..1].parse().unwrap());
            let mut issues = self.issues.lock().unwrap();
            if page == 2
                && let Some(new) = self.grows_by.lock().unwrap().take()
            {
                issues.insert(0, new);
            }
            let objects: Vec<String> = issues
                .iter()
                .skip((page - 1) * 2)
                .take(2)
                .map(|(number, title)| {
                    format!(
                        r#"{{"number": {number}, "title": "{title}", "user": {{"login": "ann"}}}}"#
                    )
                })
                .collect();
            let body = format!("[{}]", objects.join(","));
            let tag = format!(
                "\"{:x}\"",
                body.len() * 1000 + body.bytes().map(usize::from).sum::<usize>()
            );
            let is_same = headers.iter().any(|line| {
                line.to_lowercase().starts_with("if-none-match") && line.contains(&tag)
            });
            let next = match issues.len() > page * 2 {
                true => format!(
                    "Link: <{}/api/issues?page={}>; rel=\"next\"\r\n",
                    self.elsewhere.lock().unwrap(),
                    page + 1
                ),
                false => String::new(),
            };
            drop(issues);
            let answer = match is_same {
                true => format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n"),
                false => {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                    format!(
                        "HTTP/1.1 200 OK\r\nETag: {tag}\r\n{next}Content-Length: {}\r\n\r\n{body}",
                        body.len()
                    )
                }
            };
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn issues(url: &str, timeout_ms: u64) -> std::result::Result<ViewStore, OpenError> {
    let (file, text) = definition::find("issues").unwrap();
    let timeout = format!("timeout_ms = {timeout_ms}");
    let text = text.replace("timeout_ms = 4000", &timeout);
    // The server's pages are short.
    let text = text.replace("issues?per_page=100", "issues");
    let text = text.replace("page_rows = 100", "page_rows = 2");
    ViewStore::open((&file, &text), url, false, &caller(1))
}

/// Answers each connection with `answer`, or never if it is empty; counts the connections.
fn answering(answer: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (asked, answer) = (Arc::new(AtomicUsize::new(0)), answer.to_owned());
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            // A server that closes before it has read the request resets the connection.
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            let headers = request.map_while(std::result::Result::ok);
            headers.take_while(|line| !line.is_empty()).for_each(drop);
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.is_empty() {
                open.push(stream);
            }
        }
    });
    (url, asked)
}

#[test]
fn an_issue_that_is_inserted_between_two_pages_doubles_none() {
    let server = Issues::new(4);
    *server.grows_by.lock().unwrap() = Some((9, "New".to_owned()));
    let store = issues(&server.serve(), 4000).unwrap();
    let names = list(&store, "open");
    assert_eq!(
        names.iter().filter(|name| name.starts_with("2 ")).count(),
        1
    );
    assert_eq!(list(&store, "open").len(), 5);
}

#[test]
fn a_redirection_is_refused_and_the_other_server_is_not_asked() {
    let (elsewhere, asked) = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]");
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n");
    let (url, _) = answering(&redirect);
    let refused = issues(&url, 2000).unwrap_err().to_string();
    assert!(refused.contains("follows no redirection"), "{refused}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

/// The environment of a process is the same for all its tests: this one runs itself in another process.
#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    const PROXY: &str = "http_proxy";
    if std::env::var_os(PROXY).is_some() {
        let store = issues(&Issues::new(1).serve(), 2000).unwrap();
        assert_eq!(list(&store, "open").len(), 1);
        return;
    }
    let (proxy, asked) = answering("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n");
    let itself = "view::sources::a_proxy_of_the_environment_is_not_asked";
    let ran = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", itself])
        .env(PROXY, proxy)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_server_that_hangs_fails_every_waiting_call_within_one_timeout() {
    let (url, _) = answering("");
    let began = Instant::now();
    assert!(issues(&url, 300).is_err(), "while it is opened");
    assert!(began.elapsed() < Duration::from_millis(600));

    let server = Issues::new(1);
    let store = issues(&server.serve(), 600).unwrap();
    // It accepts requests, and does not answer: its answers wait for the list.
    let list = server.issues.lock().unwrap();
    let began = Instant::now();
    let took: Vec<Duration> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..6)
            .map(|_| {
                scope.spawn(|| {
                    assert_eq!(errno(read(&store, "open/1 Issue 1.md")), Errno::IO);
                    began.elapsed()
                })
            })
            .collect();
        calls.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert!(
        took.iter().all(|it| *it < Duration::from_millis(850)),
        "{took:?}"
    );
    drop(list);
    std::thread::sleep(Duration::from_millis(300));
    assert!(read(&store, "open/1 Issue 1.md").is_ok(), "it comes back");
}

#[test]
fn every_file_of_a_directory_has_one_name_that_opens_it() {
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    std::fs::create_dir(&state).unwrap();
    let mut expected = Vec::new();
    let long = |end: &str| [&b"x".repeat(250)[..], end.as_bytes()].concat();
    let escaped = |end: &str| [&b"%".repeat(200)[..], end.as_bytes()].concat();
    for (at, name) in [
        long("1"),
        long("2"),
        escaped("1"),
        escaped("2"),
        b"\xff".to_vec(),
        b"\xfe".to_vec(),
        b"%~7".to_vec(),
    ]
    .iter()
    .enumerate()
    {
        let path = state.join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, at.to_string()).unwrap();
        expected.push(at.to_string());
    }
    std::fs::hard_link(
        state.join(std::ffi::OsStr::from_bytes(b"\xff")),
        state.join("linked"),
    )
    .unwrap();
    expected.push("4".to_owned());
    expected.sort();
    let store = shipped("vsm", dir.path(), false);
    let mut names = list(&store, "state");
    let texts = names
        .iter()
        .map(|name| read(&store, &format!("state/{name}")));
    let mut texts: Vec<String> = texts.map(Result::unwrap).collect();
    texts.sort();
    assert_eq!(texts, expected);
    assert!(names.iter().all(|name| name.len() <= 255));
    names.dedup();
    assert_eq!(names.len(), expected.len());
    // A walk keeps all of them.
    std::fs::remove_file(state.join("linked")).unwrap();
    assert_eq!(list(&store, "state").len(), expected.len() - 1);
}

#[test]
fn a_file_with_the_name_of_a_computed_one_is_shown_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    std::fs::write(logs.join("1.log"), "one\n").unwrap();
    std::fs::write(logs.join("all.log"), "all\n").unwrap();
    let store = shipped("vsm", dir.path(), false);
    assert_eq!(list(&store, "logs"), ["%~all.log", "1.log", "all.log"]);
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\n");
    assert_eq!(read(&store, "logs/%~all.log").unwrap(), "all\n");
    assert_eq!(errno(go(&store, "logs/%~1.log")), Errno::NOENT);
}

#[test]
fn a_json_interface_is_asked_again_by_entity_tag_and_page_by_page() {
    let server = Issues::new(5);
    let store = issues(&server.serve(), 4000).unwrap();
    let expected: Vec<String> = (1..=5)
        .map(|number| format!("{number} Issue {number}.md"))
        .collect();
    assert_eq!(list(&store, "open"), expected);
    assert_eq!(server.sent.load(Ordering::Relaxed), 3);
    assert!(
        read(&store, "open/4 Issue 4.md")
            .unwrap()
            .contains("by ann")
    );
    assert_eq!(
        server.sent.load(Ordering::Relaxed),
        3,
        "nothing was sent again"
    );
    server.issues.lock().unwrap()[3].1 = "Closed".to_owned();
    assert_eq!(list(&store, "open")[3], "4 Closed.md");
    assert_eq!(server.sent.load(Ordering::Relaxed), 4);
    server.is_down.store(true, Ordering::Relaxed);
    let began = Instant::now();
    assert_eq!(errno(read(&store, "open/1 Issue 1.md")), Errno::IO);
    assert!(began.elapsed() < Duration::from_secs(5));
    server.is_down.store(false, Ordering::Relaxed);
    assert!(read(&store, "open/1 Issue 1.md").is_ok());

    *server.elsewhere.lock().unwrap() = "http://127.0.0.2:9".to_owned();
    server.issues.lock().unwrap()[0].1 = "Renamed".to_owned();
    let refused = read(&store, "open/1 Renamed.md").unwrap_err();
    assert_eq!(refused.errno, Errno::IO);
    let reason = refused.reason.unwrap();
    assert!(
        reason.contains("the next page is on another server"),
        "{reason}"
    );
}

#[test]
fn a_list_that_grows_behind_a_full_last_page_is_seen() {
    for count in [1, 2, 3, 4] {
        let server = Issues::new(count);
        let store = issues(&server.serve(), 4000).unwrap();
        assert_eq!(list(&store, "open").len(), count as usize);
        let sent = server.sent.load(Ordering::Relaxed);
        assert_eq!(list(&store, "open").len(), count as usize);
        // Only a full last page is sent again: none behind it would be seen otherwise.
        let again = server.sent.load(Ordering::Relaxed) - sent;
        assert_eq!(again > 0, count % 2 == 0, "{count} issues");
        server.issues.lock().unwrap().push((9, "New".to_owned()));
        assert_eq!(list(&store, "open").len(), count as usize + 1);
    }
}

#[test]
fn a_page_that_is_too_long_is_an_error() {
    let long = (64 << 20) + 1;
    let (url, _) = answering(&format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n{}",
        " ".repeat(long)
    ));
    let refused = issues(&url, 60_000).unwrap_err().to_string();
    has(&refused, &["GET /issues", "more than 64 MiB"]);
}

#[test]
fn a_url_without_a_slash_at_its_end_keeps_its_last_part() {
    let url = Issues::new(1).serve();
    let store = issues(url.trim_end_matches('/'), 4000).unwrap();
    assert_eq!(list(&store, "open"), ["1 Issue 1.md"]);
}

#[test]
fn a_link_to_an_issue_with_a_long_title_leads_to_its_file() {
    let server = Issues::new(3);
    for (at, title) in ["ä".repeat(150), "a/b".repeat(90), "x".repeat(245)]
        .iter()
        .enumerate()
    {
        server.issues.lock().unwrap()[at].1.clone_from(title);
    }
    let store = issues(&server.serve(), 4000).unwrap();
    for number in list(&store, "by-author/ann") {
        let link = go(&store, &format!("by-author/ann/{number}")).unwrap();
        let target = String::from_utf8(store.readlink(link).unwrap()).unwrap();
        read(&store, target.strip_prefix("../../").unwrap()).unwrap();
    }
    for path in [":about?ä", ":about?a%2Fb", ":about?xxx"] {
        let answer = read(&store, path).unwrap();
        read(&store, answer.trim_end()).unwrap();
    }
}

#[test]
fn a_file_that_is_too_long_is_an_error_until_it_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    std::fs::write(logs.join("1.log"), "one\n").unwrap();
    let long = std::fs::File::create(logs.join("2.log")).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    let store = shipped("vsm", dir.path(), false);
    for path in ["logs/2.log", "logs/all.log"] {
        let failed = read(&store, path).unwrap_err();
        assert_eq!(failed.errno, Errno::FBIG);
        has(&failed.reason.unwrap(), &["logs/2.log", "more than 64 MiB"]);
    }
    assert_eq!(read(&store, "logs/1.log").unwrap(), "one\n");
    let mut names = Vec::new();
    let dir = go(&store, "logs").unwrap();
    let mut emit = |entry: backends::store::DirEntry<'_>| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    };
    store.readdir(dir, 0, false, &mut emit).unwrap();
    names.sort();
    assert_eq!(names, ["1.log", "2.log", "all.log"]);
    long.set_len(3).unwrap();
    assert_eq!(read(&store, "logs/2.log").unwrap(), "\0\0\0");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    // No permission stops root. A path of more than 4,095 bytes does, also one whose directory is reached by a link.
    let mut deep = dir.path().to_owned();
    while deep.as_os_str().len() < 3800 {
        deep.push("d".repeat(200));
    }
    deep.push("d".repeat(4080 - deep.as_os_str().len()));
    std::fs::create_dir_all(&deep).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    std::os::unix::fs::symlink(&deep, &link).unwrap();
    std::fs::write(link.join("a-long-name.log"), "text").unwrap();
    let text = "name = 'x'\nessay = ''\n[source]\nkind = 'directory'\n[[computed]]\npath = 'all'\nrows = 'SELECT content FROM file'\n\
        [[computed]]\npath = 'sizes'\nrows = 'SELECT size FROM file'\n";
    let place = dir.path().to_str().unwrap();
    let store = ViewStore::open((Path::new("x.toml"), text), place, false, &caller(1)).unwrap();
    assert_eq!(read(&store, "sizes").unwrap(), "4\n");
    let failed = read(&store, "all").unwrap_err();
    assert_eq!(failed.errno, Errno::IO);
    has(
        &failed.reason.unwrap(),
        &["a-long-name.log", "name too long"],
    );
}

#[test]
fn the_link_of_an_unchanged_page_leads_to_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = BufReader::new(stream.try_clone().unwrap()).lines();
            let request: Vec<String> = request
                .map_while(std::result::Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let has_tag = |line: &String| line.to_lowercase().starts_with("if-none-match");
            let issue = r#"[{"number": 7, "title": "Seven"}]"#;
            let answer = match (request[0].contains("page=2"), request.iter().any(has_tag)) {
                (true, _) => format!("200 OK\r\nContent-Length: {}\r\n\r\n{issue}", issue.len()),
                (_, true) => {
                    "304 Not Modified\r\nLink: </issues?page=2>; rel=\"next\"\r\n\r\n".to_owned()
                }
                _ => "200 OK\r\nETag: \"one\"\r\nContent-Length: 2\r\n\r\n[]".to_owned(),
            };
            let answer = format!(
                "HTTP/1.1 {}",
                answer.replacen("\r\n", "\r\nConnection: close\r\n", 1)
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    let store = issues(&url, 4000).unwrap();
    assert_eq!(list(&store, "open"), ["7 Seven.md"]);
}
