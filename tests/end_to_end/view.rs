//! `ctxbench mount view` from the user's point of view.

use std::fs;
use std::io::{BufRead, BufReader, Seek, Write};
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    CTXBENCH, Mount, Scratch, ctxbench, mountable, mounts_under, run, said, stderr,
};

const MESSAGES: &str = "
CREATE TABLE messages (
  id INTEGER PRIMARY KEY, thread_id INTEGER, sender TEXT, recipient TEXT, sent_at TEXT, subject TEXT CHECK (subject <> ''),
  body TEXT, folder TEXT, is_read INTEGER, version INTEGER);
INSERT INTO messages VALUES (1, 1, 'ann', 'me', '2026-03-01T10:00:00Z', 'Budget', 'How much?', 'inbox', 0, 1);";

#[test]
fn tools_see_a_controller_computed_from_its_plain_files() {
    let Some(scratch) = mountable() else { return };
    let (dir, plain) = (scratch.dir("vsm"), scratch.dir("controller"));
    for (path, text) in [
        (
            "tasks/build.json",
            r#"{"state": "open", "depends_on": ["plan"]}"#,
        ),
        ("tasks/plan.json", r#"{"state": "open"}"#),
        ("logs/1.log", "one\n"),
    ] {
        fs::create_dir_all(plain.join(path).parent().unwrap()).unwrap();
        fs::write(plain.join(path), text).unwrap();
    }
    symlink("/etc/passwd", plain.join("tasks/outside.json")).unwrap();
    let source = plain.to_str().unwrap();
    let mount = Mount::new("view", &dir, &["--definition", "vsm", "--source", source]);
    let read = |path: &str| fs::read_to_string(dir.join(path)).unwrap();
    assert_eq!(
        read("health/tasks.json"),
        "{\"tasks\":2,\"open\":2,\"blocked\":1,\"unreadable\":0}\n"
    );
    assert_eq!(
        read("depends-on/build.json/plan.json"),
        r#"{"state": "open"}"#
    );
    for round in 0..20 {
        fs::write(plain.join("logs/2.log"), format!("{round}\n")).unwrap();
        assert_eq!(read("logs/all.log"), format!("one\n{round}\n"));
        fs::write(plain.join("tasks/plan.json"), r#"{"state": "done"}"#).unwrap();
        assert!(read("health/tasks.json").contains("\"blocked\":0"));
        fs::write(plain.join("tasks/plan.json"), r#"{"state": "open"}"#).unwrap();
        assert!(read("health/tasks.json").contains("\"blocked\":1"));
    }
    let found = Command::new("grep")
        .args(["-rl", "depends_on", "tasks"])
        .current_dir(&dir)
        .output();
    assert_eq!(
        String::from_utf8(found.unwrap().stdout).unwrap(),
        "tasks/build.json\n"
    );
    assert!(fs::write(dir.join("tasks/new.json"), "{}").is_err());
    mount.end();
    assert!(mounts_under(&dir).is_empty());
}

/// The six directories of source 1 at work: commands and answers as docs/VIEW.md shows them.
#[test]
fn the_transcript_in_the_docs_is_what_a_shell_shows() {
    let Some(scratch) = mountable() else { return };
    scratch.dir("vsm");
    for (path, text) in [
        (
            "tasks/build.json",
            r#"{"state": "open", "depends_on": ["plan"]}"#,
        ),
        ("tasks/plan.json", r#"{"state": "open"}"#),
        ("state/state.json", "{\"cycle\": 6}\n"),
        ("observations/disk.md", "# The disk fills up\n"),
        (
            "inbox/1.mail",
            "From: ann\nSubject: Budget\n\nIs it enough?\n",
        ),
        ("logs/1.log", "one\n"),
    ] {
        let path = scratch.path().join("controller").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/VIEW.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, transcript) = page.split_once("```console\n$ ").unwrap();
    let (transcript, _) = transcript.split_once("\n```").unwrap();
    let program = Path::new(CTXBENCH).parent().unwrap().display();
    let path = format!("PATH={program}:$PATH;");
    let mut commands = transcript.split("\n$ ");
    let mount = commands.next().unwrap();
    said(scratch.path(), &format!("{path} {mount}"));
    let mut tried = 0;
    for command in commands {
        let (command, expected) = command.split_once('\n').unwrap();
        // A listing is in columns on a terminal, and in lines here.
        let lines = said(scratch.path(), command);
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines), words(expected), "{command}");
        tried += 1;
    }
    assert!(tried > 5, "the transcript was not found");
    said(scratch.path(), &format!("{path} ctxbench unmount vsm"));
    assert!(mounts_under(scratch.path()).is_empty());
}

#[test]
fn a_shell_reads_writes_and_files_the_mail_of_a_database() {
    let Some(scratch) = mountable() else { return };
    let (dir, db) = (scratch.dir("mail"), scratch.path().join("mail.db"));
    let database = rusqlite::Connection::open(&db).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let source = db.to_str().unwrap();
    let mut mount = Mount::new(
        "view",
        &dir,
        &["--definition", "mail", "--source", source, "--writable"],
    );
    let shell = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(&dir)
            .output()
            .unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    assert_eq!(shell("ls inbox/ann").1, "2026-03-01 Budget 1.eml\n");
    assert_eq!(
        shell("cat ':about?budget'").1,
        "threads/1/1 ann.eml: Budget\n"
    );
    assert!(shell("printf 'To: ann\\nSubject: Re: Budget\\n\\nTen.\\n' > drafts/answer.eml").0);
    assert_eq!(
        shell("cat drafts/*").1,
        "To: ann\nSubject: Re: Budget\n\nTen.\n"
    );
    assert!(shell("sed -i s/Ten/Eleven/ drafts/*").0);
    assert!(shell("mv inbox/ann/* archive/").0);
    assert_eq!(shell("ls archive").1, "2026-03-01 ann Budget 1.eml\n");
    let draft = "SELECT body FROM messages WHERE folder = 'drafts'";
    let body: String = database.query_row(draft, (), |row| row.get(0)).unwrap();
    assert_eq!(body, "Eleven.");
    assert!(
        !shell("cp /etc/hostname drafts/wrong.eml").0,
        "it has no headers"
    );
    assert!(!shell("printf 'To: a\\nSubject: \\n\\nx\\n' | dd of=drafts/empty.eml status=none").0);
    assert_eq!(shell("ls drafts | wc -l").1, "1\n");
    assert!(shell("rm drafts/*").0);
    database
        .execute("UPDATE messages SET subject = 'Changed'", ())
        .unwrap();
    assert_eq!(shell("ls archive").1, "2026-03-01 ann Changed 1.eml\n");
    let log = mount.process.stderr.take();
    mount.end();
    let log = std::io::read_to_string(log.unwrap()).unwrap();
    assert!(
        log.contains("line 1") && log.contains("CHECK constraint"),
        "the reasons of both refusals: {log}"
    );
}

const STALE: Option<i32> = Some(116);

#[test]
fn open_files_of_a_row_keep_their_contents_apart() {
    let Some(scratch) = mountable() else { return };
    let (dir, db) = (scratch.dir("mail"), scratch.path().join("mail.db"));
    let database = rusqlite::Connection::open(&db).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let mount = Mount::new(
        "view",
        &dir,
        &[
            "--definition",
            "mail",
            "--source",
            db.to_str().unwrap(),
            "--writable",
        ],
    );
    let path = dir.join("drafts/answer.eml");
    let text = |body: &str| format!("To: ann\nSubject: Re\n\n{body}\n");
    let mut new = fs::File::options();
    let new = new.read(true).write(true).create_new(true);
    let mut new = new.open(&path).unwrap();
    new.write_all(text("Ten.").as_bytes()).unwrap();
    new.sync_all().unwrap();
    assert_eq!(new.metadata().unwrap().len(), text("Ten.").len() as u64);
    new.rewind().unwrap();
    assert_eq!(std::io::read_to_string(&new).unwrap(), text("Ten."));
    drop(new);

    let [mut first, mut second] = [(); 2].map(|()| fs::File::create(&path).unwrap());
    first.write_all(b"To: ann\n").unwrap();
    second.write_all(text("Second.").as_bytes()).unwrap();
    first.write_all(b"Subject: Re\n\nFirst.\n").unwrap();
    first.sync_all().unwrap();
    assert_eq!(second.sync_all().unwrap_err().raw_os_error(), STALE);
    drop((first, second));
    assert_eq!(fs::read_to_string(&path).unwrap(), text("First."));

    let mut log = fs::File::options().append(true).open(&path).unwrap();
    log.write_all(b"More.\n").unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text("First.\nMore."));
    fs::remove_file(&path).unwrap();
    let written = log.write_all(b"Lost.\n");
    assert_eq!(written.unwrap_err().raw_os_error(), STALE);
    log.sync_all().unwrap();
    mount.end();
}

#[test]
fn writers_that_wait_for_a_locked_database_hold_up_no_reader() {
    let Some(scratch) = mountable() else { return };
    let (dir, db) = (scratch.dir("mail"), scratch.path().join("mail.db"));
    let database = rusqlite::Connection::open(&db).unwrap();
    database.pragma_update(None, "journal_mode", "WAL").unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let mount = Mount::new(
        "view",
        &dir,
        &[
            "--definition",
            "mail",
            "--source",
            db.to_str().unwrap(),
            "--writable",
        ],
    );
    let writers = (0..6).map(|number| {
        let mut file = fs::File::create(dir.join(format!("drafts/{number}.eml"))).unwrap();
        file.write_all(b"To: ann\nSubject: Re\n\nTen.\n").unwrap();
        file
    });
    let writers: Vec<fs::File> = writers.collect();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let commits = writers
            .iter()
            .map(|file| scope.spawn(|| file.sync_all().unwrap()));
        let commits: Vec<_> = commits.collect();
        std::thread::sleep(Duration::from_millis(200));
        let began = Instant::now();
        fs::read(dir.join("inbox/ann/2026-03-01 Budget 1.eml")).unwrap();
        let took = began.elapsed();
        assert!(commits.iter().all(|commit| !commit.is_finished()));
        database.execute_batch("COMMIT").unwrap();
        assert!(took < Duration::from_millis(600), "{took:?}");
    });
    drop(writers);
    assert_eq!(fs::read_dir(dir.join("drafts")).unwrap().count(), 6);
    mount.end();
}

#[test]
fn a_token_is_sent_as_the_authorization_and_stands_in_no_error() {
    let Some(scratch) = mountable() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/", listener.local_addr().unwrap());
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let headers = lines.by_ref().map_while(Result::ok);
            let headers: Vec<String> = headers.take_while(|line| !line.is_empty()).collect();
            let wanted = |line: &String| line.eq_ignore_ascii_case("authorization: Bearer sesame");
            let may = headers.iter().any(wanted) && !revoked.load(Ordering::Relaxed);
            let (status, body) = match may {
                true => ("200 OK", r#"[{"number": 1, "title": "One"}]"#),
                false => ("403 Forbidden", "not with sesame"),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let dir = scratch.dir("issues");
    let mut command = ctxbench(["mount", "view"]);
    command
        .arg(&dir)
        .args(["--definition", "issues", "--source", &url]);
    command.env("CTXBENCH_VIEW_TOKEN", "sesame");
    let mut mount = Mount::of(command, &dir);
    let file = dir.join("open/1 One.md");
    assert!(fs::read_to_string(&file).unwrap().contains("# One"));
    is_revoked.store(true, Ordering::Relaxed);
    let failed = fs::read(&file).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    let log = mount.process.stderr.take();
    mount.end();
    let said = std::io::read_to_string(log.unwrap()).unwrap();
    assert!(
        said.contains("status 403") && !said.contains("sesame"),
        "{said}"
    );
}

#[test]
fn a_view_that_cannot_be_mounted_says_what_to_do() {
    let scratch = Scratch::new();
    let dir = scratch.dir("view");
    let refused = |arguments: &[&str]| {
        let arguments = ["mount", "view", dir.to_str().unwrap()]
            .into_iter()
            .chain(arguments.iter().copied());
        let output = run(arguments);
        assert!(!output.status.success());
        stderr(&output)
    };
    assert!(refused(&[]).contains("--definition"));
    assert!(refused(&["--definition", "vsm"]).contains("--source"));
    assert!(refused(&["--definition", "missing", "--source", "."]).contains("vsm"));
    let gone = refused(&["--definition", "mail", "--source", "/nowhere/mail.db"]);
    assert!(
        gone.contains("/nowhere/mail.db") && gone.contains("fix:"),
        "{gone}"
    );

    let (bad, db) = (
        scratch.path().join("bad.toml"),
        scratch.path().join("mail.db"),
    );
    let database = rusqlite::Connection::open(&db).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let text = "name = 'bad'\nessay = ''\n[source]\nkind = 'sqlite'\n\n[[file]]\npath = '{id}.eml'\nkey = 'id'\n\
                rows = 'SELECT id FROM messages'\nbody = '{body}'\n";
    fs::write(&bad, text).unwrap();
    let (bad, db) = (bad.to_str().unwrap(), db.to_str().unwrap());
    let malformed = refused(&["--definition", bad, "--source", db]);
    assert!(
        malformed.contains(&format!("{bad}:9: rows: no column `body`; there are id")),
        "{malformed}"
    );
    assert!(mounts_under(scratch.path()).is_empty());
}

/// A throwaway cluster; it ends when its standard input does.
struct Cluster {
    script: std::process::Child,
    dir: std::path::PathBuf,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

impl Cluster {
    /// `None` if PostgreSQL is not installed. `CTXBENCH_REQUIRE_POSTGRES`, set in CI, makes that a failure.
    fn start(scratch: &Scratch) -> Option<Self> {
        if backends::view::find_postgresql().is_none() {
            let is_required = std::env::var_os("CTXBENCH_REQUIRE_POSTGRES").is_some();
            assert!(!is_required, "PostgreSQL is not installed: make postgres");
            eprintln!("SKIPPED: PostgreSQL is not installed: make postgres");
            return None;
        }
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(scratch.path(), open).unwrap();
        let dir = scratch.path().join("pg");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/postgres-cluster");
        let mut script = Command::new(script)
            .arg(&dir)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        let said = script.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n");
        Some(Self { script, dir })
    }

    /// Runs statements; what they print.
    fn psql(&self, user: &str, sql: &str) -> String {
        let bin = backends::view::find_postgresql().unwrap();
        let output = Command::new(bin.join("psql"))
            .args([
                "-X",
                "-q",
                "-t",
                "-A",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                "postgres",
            ])
            .args(["-h", self.dir.to_str().unwrap(), "-U", user, "-c", sql])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn a_shell_reads_and_files_the_mail_of_a_postgresql_server() {
    let Some(scratch) = mountable() else { return };
    let Some(cluster) = Cluster::start(&scratch) else {
        return;
    };
    cluster.psql(
        "postgres",
        "CREATE ROLE mail LOGIN; GRANT CREATE ON SCHEMA public TO mail",
    );
    cluster.psql(
        "mail",
        &MESSAGES.replace(
            "INTEGER PRIMARY KEY",
            "BIGINT GENERATED BY DEFAULT AS IDENTITY (START 2) PRIMARY KEY",
        ),
    );
    let dir = scratch.dir("mail");
    let url = format!(
        "postgresql:///postgres?host={}&user=mail",
        cluster.dir.display()
    );
    let mount = Mount::new(
        "view",
        &dir,
        &["--definition", "mail", "--source", &url, "--writable"],
    );
    let shell = |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(&dir)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(shell("ls inbox/ann"), "2026-03-01 Budget 1.eml\n");
    assert_eq!(
        shell("cat ':about?budget'"),
        "threads/1/1 ann.eml: Budget\n"
    );
    assert_eq!(
        shell(
            "printf 'To: ann\\nSubject: Re: Budget\\n\\nTen.\\n' > drafts/answer.eml; cat drafts/*"
        ),
        "To: ann\nSubject: Re: Budget\n\nTen.\n"
    );
    shell("mv inbox/ann/* archive/; sed -i s/Ten/Eleven/ drafts/*");
    assert_eq!(
        cluster.psql("mail", "SELECT folder, body FROM messages ORDER BY id"),
        "archive|How much?\ndrafts|Eleven.\n"
    );
    for round in 0..20 {
        cluster.psql(
            "mail",
            &format!("UPDATE messages SET subject = 'Changed {round}' WHERE id = 1"),
        );
        assert_eq!(
            shell("ls archive"),
            format!("2026-03-01 ann Changed {round} 1.eml\n")
        );
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.contains("ctxbench-mail") && !table.contains("postgresql://"));
    mount.end();
}

#[test]
fn a_password_in_the_url_of_a_source_is_refused_and_not_shown() {
    let scratch = Scratch::new();
    let dir = scratch.dir("view");
    let url = "postgresql://me:sesame@localhost/mail";
    let output = run([
        "mount",
        "view",
        dir.to_str().unwrap(),
        "--definition",
        "mail",
        "--source",
        url,
    ]);
    assert!(!output.status.success());
    let said = stderr(&output);
    assert!(
        said.contains("PGPASSWORD") && !said.contains("sesame"),
        "{said}"
    );
}
