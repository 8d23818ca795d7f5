//! Sources other than databases: a directory, and an interface over HTTP.

use std::sync::{Arc, Mutex};

use super::*;

#[test]
fn the_six_directories_of_a_controller_compute_health_logs_and_links() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let write = |path: &str, text: &str| write_files(root, &[(path, text)]);
    let build = r#"{"state": "open", "depends_on": ["plan"]}"#;
    let files = [
        ("tasks/build.json", build),
        ("tasks/plan.json", r#"{"state": "open"}"#),
        ("tasks/broken.json", "{"),
        ("state/state.json", r#"{"cycle": 6}"#),
        ("observations/note.md", "# seen\n"),
        ("inbox/new/1.mail", "hello"),
        ("logs/1.log", "one\n"),
        ("logs/2.log", "two\nthree\n"),
    ];
    write_files(root, &files);
    let store = controller(root);
    let top = ["health", "inbox", "logs", "observations", "outbox", "state", "tasks", "tasks-by-state"];
    assert_eq!(list(&store, ""), top);
    let is_healthy = |part: &str| shows(&store, "health/tasks.json", &[part]);
    is_healthy("{\"tasks\":2,\"open\":2,\"blocked\":1,\"unreadable\":1}\n");
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\ntwo\nthree\n");
    assert_eq!(list(&store, "tasks-by-state"), ["open"]);
    let tasks = ["broken.json", "build", "build.json", "plan.json"];
    assert_eq!(list(&store, "tasks"), tasks);
    assert_eq!(list(&store, "tasks/build/depends-on"), ["plan.json"]);
    let link = go(&store, "tasks/build/depends-on/plan.json").unwrap();
    let target = String::from_utf8(store.readlink(link).unwrap()).unwrap();
    let task = target.strip_prefix("../../").unwrap();
    assert_eq!(read(&store, &format!("tasks/{task}")).unwrap(), r#"{"state": "open"}"#);

    for round in 0..20 {
        let state = if round % 2 == 0 { "done" } else { "open" };
        write("tasks/plan.json", &format!(r#"{{"state": "{state}"}}"#));
        is_healthy(&format!("\"blocked\":{}", round % 2));
        write(&format!("logs/new/{round}/x.log"), "elsewhere\n");
        let two = format!("two\n{round}\n");
        write("logs/2.log", &two);
        let all = read(&store, "logs/all.log").unwrap();
        assert_eq!(all, format!("one\n{two}"));
    }
    std::fs::remove_file(root.join("tasks/plan.json")).unwrap();
    is_healthy("\"tasks\":1");
    write("state/later.json", "{}");
    assert_eq!(list(&store, "state").len(), 2);
    let computed = go(&store, "health/tasks.json").unwrap();
    assert_eq!(errno(overwrite(&store, computed, "x")), Errno::ROFS);
    std::fs::remove_dir_all(root).unwrap();
    assert_eq!(errno(read(&store, "health/tasks.json")), Errno::IO);
    assert_eq!(list(&store, ""), top, "names stay");
    write("tasks/again.json", r#"{"state": "done"}"#);
    is_healthy("\"tasks\":1,\"open\":0");
}

#[test]
fn the_layout_of_source_1_has_its_tasks_memories_and_mail_in_the_view() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let build = r#"{"state": "open", "depends_on": ["plan", "old"]}"#;
    let files = [
        ("sandbox/tasks/build.json", build),
        ("sandbox/tasks/plan.json", r#"{"state": "open"}"#),
        // Hidden by the one in sandbox/tasks; the other is shown beside it.
        ("tasks/plan.json", r#"{"state": "done"}"#),
        ("tasks/old.json", r#"{"state": "done"}"#),
        ("state/state.json", "{}"),
        (".claude/projects/-home-me-a/memory/MEMORY.md", "of a\n"),
        (".claude/projects/-home-me-b/memory/MEMORY.md", "of b\n"),
        (".claude/projects/-home-me-b/memory/disk.md", "full\n"),
        (".claude/projects/-home-me-b/session.jsonl", "{}\n"),
        (".claude/projects/-home-me-b/memory/deep/x.md", "not shown\n"),
        (".claude/projects/-home-me-b/x/memory/x.md", "not shown\n"),
        (".claude/projects/memory/x.md", "not shown\n"),
        ("inbox/new/1.M1.host", "new mail"),
        ("inbox/cur/2.M1.host:2,S", "seen mail"),
        ("inbox/tmp/3.M1.host", "half a mail"),
        ("outbox/new/4.M1.host", "sent mail"),
        ("outbox/cur/5.M1.host:2,S", "old mail"),
    ];
    write_files(root, &files);
    let store = controller(root);
    let tasks = ["build", "build.json", "old.json", "plan.json"];
    assert_eq!(list(&store, "tasks"), tasks);
    let plan = read(&store, "tasks/plan.json").unwrap();
    assert_eq!(plan, r#"{"state": "open"}"#);
    let depends_on = ["old.json", "plan.json"];
    assert_eq!(list(&store, "tasks/build/depends-on"), depends_on);
    let open = ["build.json", "plan.json"];
    assert_eq!(list(&store, "tasks-by-state/open"), open);
    assert_eq!(list(&store, "tasks-by-state/done"), ["old.json"]);
    let health = "{\"tasks\":3,\"open\":2,\"blocked\":1,\"unreadable\":0}\n";
    assert_eq!(read(&store, "health/tasks.json").unwrap(), health);
    let memories = ["-home-me-a~MEMORY.md", "-home-me-b~MEMORY.md", "disk.md"];
    assert_eq!(list(&store, "observations"), memories);
    let memory = read(&store, "observations/-home-me-b~MEMORY.md").unwrap();
    assert_eq!(memory, "of b\n");
    assert_eq!(list(&store, "inbox"), ["1.M1.host", "2.M1.host:2,S"]);
    assert_eq!(list(&store, "outbox"), ["4.M1.host", "5.M1.host:2,S"]);
    assert_eq!(read(&store, "outbox/4.M1.host").unwrap(), "sent mail");
    // A reader moves a mail, and another project goes.
    let (new, cur) = ("inbox/new/1.M1.host", "inbox/cur/1.M1.host:2,S");
    std::fs::rename(root.join(new), root.join(cur)).unwrap();
    std::fs::remove_dir_all(root.join(".claude/projects/-home-me-a")).unwrap();
    assert_eq!(list(&store, "inbox"), ["1.M1.host:2,S", "2.M1.host:2,S"]);
    assert_eq!(list(&store, "observations"), ["MEMORY.md", "disk.md"]);
}

#[test]
fn links_of_a_directory_are_followed_inside_it_and_never_outside() {
    let (dir, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = dir.path();
    let secret = elsewhere.path().join("secret.json");
    std::fs::write(&secret, "secret").unwrap();
    let files =
        [("kept/tasks/plan.json", r#"{"state": "open"}"#), ("kept/more/log.log", "one\n"), ("state/own.json", "{}")];
    write_files(root, &files);
    let link = |target: &Path, path: &str| {
        std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    };
    // A directory, by a relative path, and by an absolute one through another link.
    link(Path::new("kept/tasks"), "tasks");
    link(&root.join("kept"), "all");
    link(&root.join("all/more"), "logs");
    // Files.
    link(Path::new("../kept/tasks/plan.json"), "state/plan.json");
    link(Path::new("plan.json"), "state/again.json");
    // What leads out, in a circle or nowhere.
    link(&secret, "state/secret.json");
    link(elsewhere.path(), "inbox");
    link(Path::new("../../../../../../../../etc"), "outbox");
    link(Path::new("."), "observations");
    link(Path::new("missing"), "state/missing.json");
    link(Path::new("circle.json"), "state/circle.json");
    link(Path::new("/proc/self/root/etc/hostname"), "state/host.json");
    let store = controller(root);
    assert_eq!(list(&store, "tasks"), ["plan.json"]);
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\n");
    let state = ["again.json", "own.json", "plan.json"];
    assert_eq!(list(&store, "state"), state);
    for path in ["state/again.json", "state/plan.json", "tasks/plan.json"] {
        assert_eq!(read(&store, path).unwrap(), r#"{"state": "open"}"#, "{path}");
    }
    for outside in ["inbox", "outbox", "observations"] {
        assert_eq!(list(&store, outside), Vec::<String>::new(), "{outside}");
    }
    // A change of what a link leads to is seen, and so is another target.
    write_files(root, &[("kept/tasks/plan.json", r#"{"state": "done"}"#)]);
    assert_eq!(list(&store, "tasks-by-state"), ["done"]);
    assert_eq!(read(&store, "state/plan.json").unwrap(), r#"{"state": "done"}"#);
    for (target, shown) in [(Path::new("own.json"), Some("{}")), (&*secret, None)] {
        std::fs::remove_file(root.join("state/again.json")).unwrap();
        link(target, "state/again.json");
        let now = read(&store, "state/again.json").ok();
        assert_eq!(now.as_deref(), shown);
    }
    // A directory that was followed, and then became a link that leads out.
    std::fs::rename(root.join("kept/tasks"), root.join("kept/old")).unwrap();
    std::fs::write(elsewhere.path().join("plan.json"), "secret").unwrap();
    link(elsewhere.path(), "kept/tasks");
    assert_eq!(list(&store, "tasks"), Vec::<String>::new());
    assert_eq!(list(&store, "state"), ["own.json"]);
}

#[test]
fn links_that_multiply_each_other_show_a_bounded_number_of_files() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    write_files(root, &[("state/own.json", "{}"), ("s0/x.json", "{}")]);
    // Each directory has two links to the next one: 2^30 paths.
    for level in 0..30 {
        let at = root.join(format!("s{level}"));
        std::fs::create_dir_all(&at).unwrap();
        for side in ["a", "b"] {
            let next = format!("../s{}", (level + 1) % 30);
            std::os::unix::fs::symlink(next, at.join(side)).unwrap();
        }
    }
    // More links to one directory than a walk follows.
    for number in 0..1200 {
        std::os::unix::fs::symlink("state", root.join(format!("link{number}"))).unwrap();
    }
    let store = controller(root);
    assert_eq!(list(&store, "state"), ["own.json"]);
    let files = read(&store, "health/files.json").unwrap();
    let files: serde_json::Value = serde_json::from_str(&files).unwrap();
    let files = files["files"].as_u64().unwrap();
    assert!((900..=1003).contains(&files), "{files}");
}

#[test]
fn a_mail_that_is_new_and_seen_at_once_is_listed_once() {
    let dir = tempfile::tempdir().unwrap();
    let files = [("inbox/new/1.mail", "new"), ("inbox/cur/1.mail", "seen"), ("inbox/new/2.mail", "other")];
    write_files(dir.path(), &files);
    let store = controller(dir.path());
    assert_eq!(list(&store, "inbox"), ["1.mail", "2.mail"]);
    assert_eq!(read(&store, "inbox/1.mail").unwrap(), "seen");
    std::fs::remove_file(dir.path().join("inbox/cur/1.mail")).unwrap();
    assert_eq!(read(&store, "inbox/1.mail").unwrap(), "new");
}

/// A view of the directories of a controller, with another setting of the source.
fn controller_with(dir: &Path, setting: &str) -> ViewStore {
    let kind = "kind = \"directory\"";
    let text = shipped("vsm").replace(kind, &format!("{kind}\n{setting}"));
    opened(&text, dir.to_str().unwrap(), false).unwrap()
}

#[test]
fn a_directory_may_be_stale_for_as_long_as_its_definition_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = "state/one.json";
    write_files(dir.path(), &[(file, "1")]);
    let stale = |ms: u64| controller_with(dir.path(), &format!("stale_ms = {ms}"));
    let (long, brief) = (stale(600_000), stale(200));
    let shown = |store: &ViewStore| read(store, file).unwrap();
    assert_eq!((shown(&long), shown(&brief)), ("1".into(), "1".into()));
    write_files(dir.path(), &[(file, "22")]);
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
    let store = controller_with(dir.path(), "timeout_ms = 5");
    write_files(dir.path(), &[("state/one.json", "1")]);
    let reason = [dir.path().to_str().unwrap(), "5 ms (`timeout_ms`)"];
    fails(read(&store, "state/one.json"), Errno::IO, &reason);
    std::fs::remove_dir_all(&many).unwrap();
    let began = Instant::now();
    while read(&store, "state/one.json").is_err() {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
}

/// Serves a list of issues in pages of two, with entity tags; counts the pages that it sent.
#[derive(Default)]
struct Issues {
    issues: Mutex<Vec<(i64, String)>>,
    sent: AtomicUsize,
    is_down: AtomicBool,
    /// Where the next page is, if it is on another server.
    elsewhere: Mutex<String>,
    /// An issue that is inserted before the second page is asked for.
    grows_by: Mutex<Option<(i64, String)>>,
}

impl Issues {
    fn new(count: i64) -> Arc<Self> {
        let issue = |number| (number, format!("Issue {number}"));
        Arc::new(Self { issues: Mutex::new((1..=count).map(issue).collect()), ..Self::default() })
    }

    fn serve(self: &Arc<Self>) -> String {
        let server = Arc::clone(self);
        serve_http(move |request| server.answer(request)) + "api/"
    }

    fn answer(&self, request: &[String]) -> String {
        let (what, headers) = request.split_first().unwrap();
        if self.is_down.load(Ordering::Relaxed) || !what.contains(" /api/issues") {
            return String::new();
        }
        let page = what.split("page=").nth(1);
        let page: usize = page.map_or(1, |rest| rest[..1].parse().unwrap());
        let mut issues = self.issues.lock().unwrap();
        if page == 2
            && let Some(new) = self.grows_by.lock().unwrap().take()
        {
            issues.insert(0, new);
        }
        let shown = issues.iter().skip((page - 1) * 2).take(2);
        let objects = shown.map(|(number, title)| {
            format!(r#"{{"number": {number}, "title": "{title}", "user": {{"login": "ann"}}}}"#)
        });
        let body = format!("[{}]", objects.collect::<Vec<_>>().join(","));
        let length = body.len();
        let sum: usize = body.bytes().map(usize::from).sum();
        let tag = format!("\"{:x}\"", length * 1000 + sum);
        let mut headers = headers.iter();
        if headers.any(|line| is_tag(line) && line.contains(&tag)) {
            return format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\n\r\n");
        }
        let (elsewhere, after) = (self.elsewhere.lock().unwrap(), page + 1);
        let next = if issues.len() > page * 2 {
            format!("Link: <{elsewhere}/api/issues?page={after}>; rel=\"next\"\r\n")
        } else {
            String::new()
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        format!("HTTP/1.1 200 OK\r\nETag: {tag}\r\n{next}Content-Length: {length}\r\n\r\n{body}")
    }
}

fn is_tag(header: &str) -> bool {
    header.to_lowercase().starts_with("if-none-match")
}

fn issues(url: &str, timeout_ms: u64) -> OpenResult {
    let text = shipped("issues")
        .replace("timeout_ms = 4000", &format!("timeout_ms = {timeout_ms}"))
        // The server's pages are short.
        .replace("issues?per_page=100", "issues")
        .replace("page_rows = 100", "page_rows = 2");
    opened(&text, url, false)
}

/// Answers each request with `answer`, and counts them.
fn answering(answer: String) -> (String, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = serve_http(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        answer.clone()
    });
    (url, asked)
}

#[test]
fn an_issue_that_is_inserted_between_two_pages_doubles_none() {
    let server = Issues::new(4);
    *server.grows_by.lock().unwrap() = Some((9, "New".to_owned()));
    let store = issues(&server.serve(), 60_000).unwrap();
    let mut second = list(&store, "open");
    second.retain(|name| name.starts_with("2 "));
    assert_eq!(second.len(), 1);
    assert_eq!(list(&store, "open").len(), 5);
}

#[test]
fn a_redirection_is_refused_and_the_other_server_is_not_asked() {
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]".to_owned();
    let (elsewhere, asked) = answering(empty);
    let (url, _) = answering(format!("HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n"));
    let refused = refusal(issues(&url, 60_000));
    let host = elsewhere.trim_start_matches("http://").trim_end_matches('/');
    has(&refused, &["redirects are not followed", "(302)", host]);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn a_bad_element_of_a_list_costs_one_row() {
    let good = |number: i64| format!(r#"{{"number": {number}, "title": "Good", "user": {{"login": "ann"}}}}"#);
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let bad = [
        "null".to_owned(),
        "7".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        "{]".to_owned(),
        "nonsense".to_owned(),
        String::new(),
        r#"{"number": null, "title": "No number"}"#.to_owned(),
        r#"{"number": 5, "title": "\ud800"}"#.to_owned(),
        r#"{"number": 5, "title": 1e999999}"#.to_owned(),
        format!(r#"{{"number": 5, "title": {deep}}}"#),
    ];
    // These are rows, whose keys name no file.
    let odd = [
        r#"{"number": "five", "title": "Text"}"#,
        r#"{"number": -5, "title": "Negative"}"#,
        r#"{"number": 5.5, "title": "Fraction"}"#,
        r#"{"number": 1e300, "title": "Long"}"#,
        r#"{"number": [], "title": "List"}"#,
    ];
    let elements = bad.iter().map(String::as_str).chain(odd);
    for each in elements.map(str::to_owned).chain([bad.join(","), odd.join(",")]) {
        let body = format!("[{},{each},{}]", good(1), good(2));
        let length = body.len();
        let (url, _) = answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}"));
        let store = issues(&url, 60_000).unwrap();
        assert_eq!(list(&store, "open"), ["1 Good.md", "2 Good.md"], "{each}");
        shows(&store, "open/2 Good.md", &["# Good", "by ann"]);
        assert_eq!(errno(go(&store, "open/5 Fraction.md")), Errno::NOENT);
        assert_eq!(list(&store, "by-author/ann").len(), 2);
    }
}

#[test]
fn a_page_of_very_many_rows_keeps_to_the_time_that_a_call_has() {
    // As long as a page may be.
    let rows = r#"{"number":1},"#.repeat(63_000_000 / 13);
    let body = format!("[{}{{}}]", rows);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let (url, _) = answering(head + &body);
    let began = Instant::now();
    let refused = refusal(issues(&url, 4000));
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert!(refused.contains("1000000 rows") || refused.contains("4000 ms"), "{refused}");
}

/// The environment of a process is the same for all its tests: this one runs itself in another process.
#[test]
fn a_proxy_of_the_environment_is_not_asked() {
    const PROXY: &str = "http_proxy";
    if std::env::var_os(PROXY).is_some() {
        let store = issues(&Issues::new(1).serve(), 60_000).unwrap();
        assert_eq!(list(&store, "open").len(), 1);
        return;
    }
    let bad = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n".to_owned();
    let (proxy, asked) = answering(bad);
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
    let url = serve_http(|_| {
        loop {
            std::thread::park();
        }
    });
    let began = Instant::now();
    assert!(issues(&url, 300).is_err(), "while it is opened");
    assert!(began.elapsed() < Duration::from_secs(60));

    let server = Issues::new(1);
    let store = issues(&server.serve(), 3000).unwrap();
    // The server accepts requests, but its answers wait for this lock.
    let list = server.issues.lock().unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..30 {
            scope.spawn(|| {
                assert_eq!(errno(read(&store, "open/1 Issue 1.md")), Errno::IO);
                let took = began.elapsed();
                // One after the other, the calls would take 90 seconds.
                assert!(took < Duration::from_secs(60), "{took:?}");
            });
        }
    });
    drop(list);
    eventually("it comes back", || read(&store, "open/1 Issue 1.md").is_ok());
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
    for (at, name) in
        [long("1"), long("2"), escaped("1"), escaped("2"), b"\xff".to_vec(), b"\xfe".to_vec(), b"%~7".to_vec()]
            .iter()
            .enumerate()
    {
        let path = state.join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, at.to_string()).unwrap();
        expected.push(at.to_string());
    }
    let odd = state.join(std::ffi::OsStr::from_bytes(b"\xff"));
    std::fs::hard_link(odd, state.join("linked")).unwrap();
    expected.push("4".to_owned());
    expected.sort();
    let store = controller(dir.path());
    let mut names = list(&store, "state");
    let texts = names.iter().map(|name| read(&store, &format!("state/{name}")));
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
    let files = [("logs/1.log", "one\n"), ("logs/all.log", "all\n")];
    write_files(dir.path(), &files);
    let store = controller(dir.path());
    assert_eq!(list(&store, "logs"), ["%~all.log", "1.log", "all.log"]);
    assert_eq!(read(&store, "logs/all.log").unwrap(), "one\n");
    assert_eq!(read(&store, "logs/%~all.log").unwrap(), "all\n");
    assert_eq!(errno(go(&store, "logs/%~1.log")), Errno::NOENT);
}

#[test]
fn a_json_interface_is_asked_again_by_entity_tag_and_page_by_page() {
    let server = Issues::new(5);
    let store = issues(&server.serve(), 60_000).unwrap();
    let expected: Vec<String> = (1..=5).map(|number| format!("{number} Issue {number}.md")).collect();
    assert_eq!(list(&store, "open"), expected);
    assert_eq!(server.sent.load(Ordering::Relaxed), 3);
    shows(&store, "open/4 Issue 4.md", &["by ann"]);
    let sent = server.sent.load(Ordering::Relaxed);
    assert_eq!(sent, 3, "nothing was sent again");
    server.issues.lock().unwrap()[3].1 = "Closed".to_owned();
    assert_eq!(list(&store, "open")[3], "4 Closed.md");
    assert_eq!(server.sent.load(Ordering::Relaxed), 4);
    server.is_down.store(true, Ordering::Relaxed);
    let began = Instant::now();
    assert_eq!(errno(read(&store, "open/1 Issue 1.md")), Errno::IO);
    assert!(began.elapsed() < Duration::from_secs(60));
    server.is_down.store(false, Ordering::Relaxed);
    assert!(read(&store, "open/1 Issue 1.md").is_ok());

    *server.elsewhere.lock().unwrap() = "http://127.0.0.2:9".to_owned();
    server.issues.lock().unwrap()[0].1 = "Renamed".to_owned();
    let reason = "the next page is on another server";
    fails(read(&store, "open/1 Renamed.md"), Errno::IO, &[reason]);
}

#[test]
fn an_interface_may_be_stale_for_as_long_as_its_definition_says() {
    let server = Issues::new(1);
    let url = server.serve();
    let stale = |ms: u64| {
        let timeout = "timeout_ms = 4000";
        let text = shipped("issues").replace(timeout, &format!("timeout_ms = 60000\nstale_ms = {ms}"));
        opened(&text, &url, false).unwrap()
    };
    let (long, brief) = (stale(600_000), stale(200));
    let shown = |store: &ViewStore| list(store, "open");
    for store in [&long, &brief] {
        assert_eq!(shown(store), ["1 Issue 1.md"]);
    }
    server.issues.lock().unwrap()[0].1 = "Renamed".to_owned();
    std::thread::sleep(Duration::from_millis(250));
    assert_eq!(shown(&brief), ["1 Renamed.md"]);
    server.is_down.store(true, Ordering::Relaxed);
    assert_eq!(shown(&long), ["1 Issue 1.md"], "the server is not asked");
}

#[test]
fn a_list_that_grows_behind_a_full_last_page_is_seen() {
    for count in [1, 2, 3, 4] {
        let server = Issues::new(count);
        let store = issues(&server.serve(), 60_000).unwrap();
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
    let page = " ".repeat(long);
    let (url, _) = answering(format!("HTTP/1.1 200 OK\r\nContent-Length: {long}\r\n\r\n{page}"));
    let refused = refusal(issues(&url, 60_000));
    has(&refused, &["GET /issues", "more than 64 MiB"]);
}

#[test]
fn a_url_without_a_slash_at_its_end_keeps_its_last_part() {
    let url = Issues::new(1).serve();
    let store = issues(url.trim_end_matches('/'), 60_000).unwrap();
    assert_eq!(list(&store, "open"), ["1 Issue 1.md"]);
}

#[test]
fn a_link_to_an_issue_with_a_long_title_leads_to_its_file() {
    let server = Issues::new(3);
    for (at, title) in ["ä".repeat(150), "a/b".repeat(90), "x".repeat(245)].iter().enumerate() {
        server.issues.lock().unwrap()[at].1.clone_from(title);
    }
    let store = issues(&server.serve(), 60_000).unwrap();
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
    write_files(dir.path(), &[("logs/1.log", "one\n")]);
    let long = std::fs::File::create(dir.path().join("logs/2.log")).unwrap();
    long.set_len((64 << 20) + 1).unwrap();
    let store = controller(dir.path());
    for path in ["logs/2.log", "logs/all.log"] {
        let reason = ["logs/2.log", "more than 64 MiB"];
        fails(read(&store, path), Errno::FBIG, &reason);
    }
    assert_eq!(read(&store, "logs/1.log").unwrap(), "one\n");
    let mut names = Vec::new();
    let dir = go(&store, "logs").unwrap();
    let mut emit = |entry: fuse::store::DirEntry<'_>| {
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
    let store = opened(text, dir.path().to_str().unwrap(), false).unwrap();
    assert_eq!(read(&store, "sizes").unwrap(), "4\n");
    let reason = ["a-long-name.log", "name too long"];
    fails(read(&store, "all"), Errno::IO, &reason);
}

#[test]
fn the_link_of_an_unchanged_page_leads_to_the_next_one() {
    let url = serve_http(|request| {
        let issue = r#"[{"number": 7, "title": "Seven"}]"#;
        let has_tag = request.iter().any(|line| is_tag(line));
        let answer = match (request[0].contains("page=2"), has_tag) {
            (true, _) => format!("200 OK\r\nContent-Length: {}\r\n\r\n{issue}", issue.len()),
            (_, true) => "304 Not Modified\r\nLink: </issues?page=2>; rel=\"next\"\r\n\r\n".to_owned(),
            _ => "200 OK\r\nETag: \"one\"\r\nContent-Length: 2\r\n\r\n[]".to_owned(),
        };
        // A server may close each connection after one answer.
        let answer = answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        format!("HTTP/1.1 {answer}")
    });
    let store = issues(&url, 60_000).unwrap();
    assert_eq!(list(&store, "open"), ["7 Seven.md"]);
}
