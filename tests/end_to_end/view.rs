//! `ctxbench mount view` from the user's point of view.

use std::fs;
use std::io::{Seek, Write};
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{
    Cluster, Mount, ROWS, Scratch, Succeeds, beside_writers, cluster, ctxbench, has, in_own_process, lacks, lines,
    measure, mountable, mounts_under, refused, replays, said, serve_http, sh, stdout, text_of, wait_for, words,
    write_files,
};
use rusqlite::{Connection, params};
use rustix::fs::getxattr;
use serde_json::Value;

const MESSAGES: &str = "
CREATE TABLE messages (
  id INTEGER PRIMARY KEY, thread_id INTEGER, sender TEXT, recipient TEXT, sent_at TEXT, subject TEXT CHECK (subject <> ''),
  body TEXT, folder TEXT, is_read INTEGER, version INTEGER);
INSERT INTO messages VALUES (1, 1, 'ann', 'me', '2026-03-01T10:00:00Z', 'Budget', 'How much?', 'inbox', 0, 1);";

/// Two tasks and a log of a controller.
const CONTROLLER: [(&str, &str); 3] = [
    ("tasks/build.json", r#"{"state": "open", "depends_on": ["plan"]}"#),
    ("tasks/plan.json", r#"{"state": "open"}"#),
    ("logs/1.log", "one\n"),
];

#[test]
fn tools_see_a_controller_computed_from_its_plain_files() {
    let Some(scratch) = mountable() else { return };
    let (dir, plain) = (scratch.dir("vsm"), scratch.dir("controller"));
    write_files(&plain, &CONTROLLER);
    symlink("/etc/passwd", plain.join("tasks/outside.json")).unwrap();
    let source = plain.to_str().unwrap();
    let mount = Mount::new("view", &dir, &["--definition", "vsm", "--source", source]);
    let health = "{\"tasks\":2,\"open\":2,\"blocked\":1,\"unreadable\":0}\n";
    assert_eq!(text_of(&dir, "health/tasks.json"), health);
    has(&text_of(&dir, "health/files.json"), &["\"files\":3,\"bytes\":62,"]);
    let plan = text_of(&dir, "tasks/build/depends-on/plan.json");
    assert_eq!(plan, r#"{"state": "open"}"#);
    for round in 0..20 {
        fs::write(plain.join("logs/2.log"), format!("{round}\n")).unwrap();
        assert_eq!(text_of(&dir, "logs/all.log"), format!("one\n{round}\n"));
        for (state, blocked) in [("done", "\"blocked\":0"), ("open", "\"blocked\":1")] {
            let plan = format!(r#"{{"state": "{state}"}}"#);
            fs::write(plain.join("tasks/plan.json"), plan).unwrap();
            has(&text_of(&dir, "health/tasks.json"), &[blocked]);
        }
    }
    let found = said(&dir, "grep -rl depends_on tasks");
    assert_eq!(found, "tasks/build.json\n");
    assert!(fs::write(dir.join("tasks/new.json"), "{}").is_err());
    mount.end();
}

/// The files of source 1, section 5, in the places that it names.
const LAYOUT: [(&str, &str); 7] = [
    ("sandbox/tasks/build.json", "{\"state\": \"open\", \"depends_on\": [\"plan\"]}\n"),
    ("sandbox/tasks/plan.json", "{\"state\": \"open\"}\n"),
    ("sandbox/tasks/test.json", "{\"state\": \"open\"}\n"),
    ("state/state.json", "{\"cycle\": 6}\n"),
    (".claude/projects/-home-me/memory/MEMORY.md", "# The disk fills up\n"),
    ("inbox/new/1.M1.host", "From: ann\nSubject: Budget\n\nIs it enough?\n"),
    ("logs/1.log", "one\n"),
];

#[test]
fn a_shell_works_on_a_controllers_own_files_through_a_writable_view() {
    let Some(scratch) = mountable() else { return };
    let (dir, plain) = (scratch.dir("vsm"), scratch.dir("controller"));
    write_files(&plain, &LAYOUT);
    for empty in ["inbox/cur", "inbox/tmp", "outbox/new", "outbox/cur", "outbox/tmp"] {
        fs::create_dir_all(plain.join(empty)).unwrap();
    }
    let options = ["--definition", "vsm", "--writable", "--source", plain.to_str().unwrap()];
    let mount = Mount::new("view", &dir, &options);
    for (command, path, expected) in [
        ("echo '{\"cycle\": 7}' > state/state.json", "state/state.json", "{\"cycle\": 7}\n"),
        ("sed -i s/7/8/ state/state.json", "state/state.json", "{\"cycle\": 8}\n"),
        (": > state/stop", "state/stop", ""),
        ("sed -i 's/\"open\"/\"active\"/' tasks/test.json", "sandbox/tasks/test.json", "{\"state\": \"active\"}\n"),
        (
            "mkdir tasks-by-state/done; mv tasks-by-state/open/plan.json tasks-by-state/done/",
            "sandbox/tasks/plan.json",
            "{\"state\": \"done\"}\n",
        ),
        (
            "mkdir -p tasks/test/depends-on; ln -s ../../build.json tasks/test/depends-on/",
            "sandbox/tasks/test.json",
            "{\"depends_on\": [\"build\"], \"state\": \"active\"}\n",
        ),
        ("echo two >> logs/1.log", "logs/1.log", "one\ntwo\n"),
        (
            "echo '# More' >> observations/MEMORY.md",
            ".claude/projects/-home-me/memory/MEMORY.md",
            "# The disk fills up\n# More\n",
        ),
        ("mv inbox/new/1.M1.host inbox/cur/1.M1.host:2,S", "inbox/cur/1.M1.host:2,S", LAYOUT[5].1),
        (
            "echo Ten > outbox/tmp/2.M2.host; sync outbox/tmp/2.M2.host; mv outbox/tmp/2.M2.host outbox/new/",
            "outbox/new/2.M2.host",
            "Ten\n",
        ),
        (
            "cp state/state.json state/copy.json; mv state/copy.json state/old.json",
            "state/old.json",
            "{\"cycle\": 8}\n",
        ),
    ] {
        said(&dir, command);
        // An empty file is made at its release, which the kernel sends after the close has returned.
        if expected.is_empty() {
            wait_for(command, || plain.join(path).exists());
        }
        assert_eq!(text_of(&plain, path), expected, "{command}");
    }
    let modes = said(&plain, "stat -c %a sandbox/tasks/test.json sandbox/tasks/build.json | uniq | wc -l");
    assert_eq!(modes, "1\n", "sed keeps the mode");
    assert_eq!(
        said(&dir, "ls tasks inbox outbox tasks-by-state/done"),
        "inbox:\n1.M1.host:2,S\n\noutbox:\n2.M2.host\n\ntasks:\nbuild\nbuild.json\nplan.json\ntest\ntest.json\n\ntasks-by-state/done:\nplan.json\n"
    );
    let health = "{\"tasks\":3,\"open\":2,\"blocked\":1,\"unreadable\":0}\n";
    assert_eq!(text_of(&dir, "health/tasks.json"), health);
    said(&dir, "rm tasks/test/depends-on/build.json state/old.json inbox/*");
    assert_eq!(text_of(&plain, "sandbox/tasks/test.json"), "{\"depends_on\": [], \"state\": \"active\"}\n");
    assert!(!plain.join("state/old.json").exists() && fs::read_dir(plain.join("inbox/cur")).unwrap().next().is_none());
    // Read-only is what is computed, and the log says why.
    for refused in [
        "echo x > health/tasks.json",
        "rm logs/all.log",
        "touch health/x",
        "ln -s x state/x",
        "mkdir state/x",
        "mv health/tasks.json state/",
    ] {
        assert!(!sh(&dir, refused).status.success(), "{refused}");
    }
    let left = said(&plain, "find . -name '.ctxbench*' -o -name 'sed*'");
    assert_eq!(left, "");
    has(&mount.end_with_log(), &["its definition has no statement for it"]);
}

/// The calls of a cycle of `agent/vsm-cycle`, on the view and on a copy of the controller's directory.
#[test]
fn a_cycle_of_the_controller_leaves_the_files_that_it_leaves_in_a_plain_directory() {
    let Some(scratch) = mountable() else { return };
    let (dir, plain, copy) = (scratch.dir("vsm"), scratch.dir("controller"), scratch.dir("copy"));
    let files = [
        ("tasks/task-1.json", "{}\n"),
        ("state/state.json", "{}\n"),
        ("observations/obs-1.md", "# seen\n"),
        ("inbox/new/1.M1.vsm", "mail"),
    ];
    for root in [&plain, &copy] {
        write_files(root, &files);
        said(root, "mkdir -p inbox/cur inbox/tmp outbox/new outbox/cur outbox/tmp logs");
    }
    let options = ["--definition", "vsm", "--writable", "--source", plain.to_str().unwrap()];
    let mount = Mount::new("view", &dir, &options);
    let cycle = "set -e
        for cycle in 1 2 3; do
            cat state/state.json tasks/task-1.json $(find inbox/new inbox/cur -type f) > /dev/null
            if [ -e inbox/new/1.M1.vsm ]; then mv inbox/new/1.M1.vsm inbox/cur/1.M1.vsm:2,S; fi
            echo \"# $cycle\" > observations/obs-2-$cycle.md
            echo \"{\\\"cycle\\\": $cycle}\" > tasks/task-1.json.tmp; mv tasks/task-1.json.tmp tasks/task-1.json
            echo answer > outbox/tmp/$cycle.vsm; sync outbox/tmp/$cycle.vsm; mv outbox/tmp/$cycle.vsm outbox/new/
            for step in 1 2 3; do echo $step >> logs/cycle-$cycle.log; done
            stat state/state.json > /dev/null; ls -l tasks inbox/new outbox/new > /dev/null; cat logs/cycle-$cycle.log
            echo $cycle > state/state.json.tmp; mv state/state.json.tmp state/state.json
        done";
    assert_eq!(said(&dir, cycle), said(&copy, cycle));
    let left = "find . -type f | sort | xargs grep -H .; find . -type f | xargs stat -c '%n %a' | sort";
    assert_eq!(said(&plain, left), said(&copy, left));
    mount.end();
}

/// A pass compares each call with the model, and ends as `ok` only if the plain directory has the model's files.
#[test]
fn the_cycle_of_a_controller_is_measured_on_the_writable_view() {
    let Some(scratch) = mountable() else { return };
    let line = "--workload agent/vsm-cycle --workload micro/stat --backend view-vsm-writable \
                --no-probes --seed 7 --budget 1 --epochs 3 --rounds 1";
    let states = ["--state", "hot", "--state", "lukewarm", "--state", "cold"];
    let (out, mut command) = measure(&scratch, line);
    command.args(states).succeeds();
    assert!(mounts_under(scratch.path()).is_empty());
    let samples = lines(&out, "samples.jsonl");
    let of_view = |sample: &&Value| sample["arm"] == "view-vsm-writable";
    for state in ["hot", "lukewarm", "cold"] {
        let mut passes = samples.iter().filter(of_view).filter(|sample| sample["state"] == state);
        assert!(passes.next().is_some(), "{state}: no pass");
    }
    for sample in samples.iter().filter(of_view) {
        assert_eq!((&sample["outcome"], &sample["workload"]), (&"ok".into(), &"agent/vsm-cycle".into()), "{sample}");
    }
    let plan = fs::read_to_string(out.join("plan.toml")).unwrap();
    has(&plan, &["is in none of them"]);
}

#[test]
fn a_view_whose_definition_changes_nothing_is_not_mounted_for_writing() {
    let Some(scratch) = mountable() else { return };
    let (dir, definition) = (scratch.dir("view"), scratch.path().join("read.toml"));
    let text = "name = 'read'\nessay = ''\n[source]\nkind = 'directory'\n\n[[computed]]\npath = 'names'\nrows = 'SELECT name FROM file'\n";
    fs::write(&definition, text).unwrap();
    let [place, definition, source] = [&dir, &definition, scratch.path()].map(|path| path.to_str().unwrap());
    let said = refused(&words(&format!("mount view {place} --definition {definition} --writable --source {source}")));
    has(&said, &["--writable", "all its files are read-only", "fix:", source]);
    assert!(mounts_under(&dir).is_empty());
}

/// The six directories of source 1 at work: commands and answers as docs/VSM.md shows them.
#[test]
fn the_transcript_in_the_docs_is_what_a_shell_shows() {
    let Some(scratch) = mountable() else { return };
    let mail = "From: ann\nSubject: Budget\n\nIs it enough?\n";
    let more = [
        ("state/state.json", "{\"cycle\": 6}\n"),
        ("observations/disk.md", "# The disk fills up\n"),
        ("inbox/1.mail", mail),
    ];
    write_files(&scratch.path().join("controller"), &CONTROLLER);
    write_files(&scratch.path().join("controller"), &more);
    replays(&scratch, "VSM.md", "vsm");
}

#[test]
fn plain_names_are_not_split_by_xargs() {
    let Some(scratch) = mountable() else { return };
    let db = scratch.path().join("mail.db");
    let database = Connection::open(&db).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let row = "INSERT INTO messages VALUES (2, 1, 'O''Hara \"Bob\"', 'me', '2026-03-02T10:00:00Z', 'Re: a\\b', 'x', 'inbox', 0, 1)";
    database.execute_batch(row).unwrap();
    let dir = scratch.dir("mail");
    let options = ["--definition", "mail", "--plain-names", "--source", db.to_str().unwrap()];
    let mount = Mount::new("view", &dir, &options);
    assert_eq!(
        said(&dir, "ls inbox/ann dates/2026-03-02"),
        "dates/2026-03-02:\nO%27Hara%20%22Bob%22_Re:%20a%5Cb_2.eml\n\ninbox/ann:\n2026-03-01_Budget_1.eml\n"
    );
    let found = said(&dir, "find dates inbox threads -type f | xargs cat | grep -c ^Subject");
    assert_eq!(found, "6\n");
    // A path that an answer gives is there.
    assert_eq!(said(&dir, "cut -d: -f1 ':about?re'  | head -1 | xargs head -1"), "From: O'Hara \"Bob\"\n");
    mount.end();
}

#[test]
fn a_32_bit_program_can_use_the_inode_numbers_of_views_and_of_the_null_store() {
    let Some(scratch) = mountable() else { return };
    let (_database, mail) = mailbox(&scratch, "delete");
    let null = Mount::new("null", &scratch.dir("null"), &[]);
    for (mount, dir) in [(mail, "inbox/ann"), (null, "f0001")] {
        // The numbers that listings show, and those that `stat` does.
        let script = format!("ls -1fi . {dir} | awk '$1 ~ /^[0-9]+$/ {{print $1}}'; stat -c %i {dir} {dir}/*");
        let numbers = said(&mount.dir, &script);
        let numbers: Vec<u64> = numbers.lines().map(|number| number.parse().unwrap()).collect();
        assert!(numbers.len() > 5, "{numbers:?}");
        assert!(numbers.iter().all(|number| *number < 1 << 32), "{numbers:?}");
        mount.end();
    }
}

/// A writable view of a mailbox, on `mail`.
fn mount_mail(scratch: &Scratch, source: &str) -> Mount {
    // A busy machine may answer late.
    let (_, text) = view::definition::find("mail").unwrap();
    let text = text.replacen("[source]", "[source]\ntimeout_ms = 60000", 1);
    let definition = scratch.path().join("mail.toml");
    fs::write(&definition, text).unwrap();
    let options = ["--definition", definition.to_str().unwrap(), "--writable", "--source", source];
    Mount::new("view", &scratch.dir("mail"), &options)
}

/// A mailbox in SQLite with a journal of this mode, and its mount.
fn mailbox(scratch: &Scratch, journal: &str) -> (Connection, Mount) {
    let db = scratch.path().join("mail.db");
    let database = Connection::open(&db).unwrap();
    database.pragma_update(None, "journal_mode", journal).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    (database, mount_mail(scratch, db.to_str().unwrap()))
}

/// Uses a mounted mailbox by shell commands. `sql` runs a statement, and returns what it prints.
fn use_mail(mount: Mount, sql: impl Fn(&str) -> String) {
    let shell = |script: &str| said(&mount.dir, script);
    assert_eq!(shell("ls inbox/ann"), "2026-03-01 Budget 1.eml\n");
    let about = shell("cat ':about?budget'");
    assert_eq!(about, "threads/1/1 ann.eml: Budget\n");
    shell("printf 'To: ann\\nSubject: Re: Budget\\n\\nTen.\\n' > drafts/answer.eml");
    let draft = shell("cat drafts/*");
    assert_eq!(draft, "To: ann\nSubject: Re: Budget\n\nTen.\n");
    shell("sed -i s/Ten/Eleven/ drafts/*; mv inbox/ann/* archive/");
    assert_eq!(shell("ls archive"), "2026-03-01 ann Budget 1.eml\n");
    for (folder, body) in [("archive", "How much?"), ("drafts", "Eleven.")] {
        let body_of = format!("SELECT body FROM messages WHERE folder = '{folder}'");
        assert_eq!(sql(&body_of).trim(), body);
    }
    for refused in [
        // It has no headers.
        "cp /etc/hostname drafts/wrong.eml",
        "printf 'To: a\\nSubject: \\n\\nx\\n' | dd of=drafts/empty.eml status=none",
    ] {
        assert!(!sh(&mount.dir, refused).status.success(), "{refused}");
    }
    assert_eq!(shell("ls drafts | wc -l"), "1\n");
    shell("rm drafts/*");
    for round in 0..20 {
        sql(&format!("UPDATE messages SET subject = 'Changed {round}'"));
        let name = format!("2026-03-01 ann Changed {round} 1.eml\n");
        assert_eq!(shell("ls archive"), name);
    }
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    has(&table, &["/mail.toml "]);
    lacks(&table, &["postgresql://"]);
    // The reasons of both refusals.
    let log = mount.end_with_log();
    has(&log.to_lowercase(), &["line 1", "check constraint"]);
}

#[test]
fn a_shell_reads_writes_and_files_the_mail_of_a_database() {
    let Some(scratch) = mountable() else { return };
    let (database, mount) = mailbox(&scratch, "DELETE");
    use_mail(mount, |sql| {
        let mut rows = database.prepare(sql).unwrap();
        let mut rows = rows.query(()).unwrap();
        let row = rows.next().unwrap();
        row.map_or(String::new(), |row| row.get(0).unwrap())
    });
}

const STALE: Option<i32> = Some(116);
const INVALID: Option<i32> = Some(22);

#[test]
fn open_files_of_a_row_keep_their_contents_apart_and_a_refused_text_says_why() {
    in_own_process(use_open_files);
}

fn use_open_files() {
    let Some(scratch) = mountable() else { return };
    let (_database, mount) = mailbox(&scratch, "DELETE");
    let dir = &mount.dir;
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

    let mut wrong = fs::File::create(&path).unwrap();
    wrong.write_all(b"no header\n").unwrap();
    assert_eq!(wrong.sync_all().unwrap_err().raw_os_error(), INVALID);
    let mut reason = [0; 1000];
    let length = getxattr(&path, c"user.view.reason", &mut reason).unwrap();
    has(&String::from_utf8_lossy(&reason[..length]), &["line 1"]);
    drop(wrong);
    assert_eq!(fs::read_to_string(&path).unwrap(), text("First."));

    let mut log = fs::File::options().append(true).open(&path).unwrap();
    log.write_all(b"More.\n").unwrap();
    log.sync_all().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), text("First.\nMore."));
    assert!(getxattr(&path, c"user.view.reason", &mut reason).is_err());
    fs::remove_file(&path).unwrap();
    let written = log.write_all(b"Lost.\n");
    assert_eq!(written.unwrap_err().raw_os_error(), STALE);
    log.sync_all().unwrap();
    // A mount waits some seconds for its open files.
    drop(log);
    mount.end();
}

#[test]
fn writers_that_wait_for_a_locked_database_delay_no_reader() {
    in_own_process(read_beside_waiting_writers);
}

fn read_beside_waiting_writers() {
    let Some(scratch) = mountable() else { return };
    let (database, mount) = mailbox(&scratch, "WAL");
    let drafts = (0..6).map(|number| {
        let path = mount.dir.join(format!("drafts/{number}.eml"));
        let mut draft = fs::File::create(path).unwrap();
        draft.write_all(b"To: ann\nSubject: Re\n\nTen.\n").unwrap();
        draft
    });
    let drafts: Vec<fs::File> = drafts.collect();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let commits = drafts.iter().map(|draft| scope.spawn(|| draft.sync_all().unwrap()));
        let commits: Vec<_> = commits.collect();
        std::thread::sleep(Duration::from_millis(200));
        // A reader that waited for a connection would get an error.
        fs::read(mount.dir.join("inbox/ann/2026-03-01 Budget 1.eml")).unwrap();
        assert!(commits.iter().all(|commit| !commit.is_finished()));
        database.execute_batch("COMMIT").unwrap();
    });
    drop(drafts);
    assert_eq!(fs::read_dir(mount.dir.join("drafts")).unwrap().count(), 6);
    mount.end();
}

#[test]
fn readers_beside_writers_on_a_mount_see_whole_rows_and_never_an_old_one() {
    read_beside_writers(Duration::from_secs(3));
}

#[test]
#[ignore = "takes a minute: make speed runs it"]
fn readers_beside_writers_on_a_mount_see_whole_rows_for_a_minute() {
    read_beside_writers(Duration::from_secs(60));
}

/// Two programs replace rows of a database, and two read the files of its mount.
fn read_beside_writers(time: Duration) {
    let Some(scratch) = mountable() else { return };
    let (database, mount) = mailbox(&scratch, "WAL");
    let path = database.path().unwrap().to_owned();
    // Some are longer than what one request reads.
    let body = |number: usize| format!("{number:06}\n").repeat(100 + number * 7919 % 40_000);
    let replace = |database: &Connection, row: usize, number: usize| {
        let change = "INSERT OR REPLACE INTO messages
                      VALUES (?1, 1, 'ann', 'me', '2026-03-01', 's', ?2, 'inbox', 0, 1)";
        database.execute(change, params![row as i64, body(number)]).unwrap();
    };
    (0..ROWS).for_each(|row| replace(&database, row, 0));
    let writer = || {
        let database = Connection::open(&path).unwrap();
        database.busy_timeout(Duration::from_secs(60)).unwrap();
        move |row: usize, number: usize| replace(&database, row, number)
    };
    let file = |row: usize| mount.dir.join(format!("inbox/ann/2026-03-01 s {row}.eml"));
    let check = |row: usize, least: usize| {
        let text = fs::read_to_string(file(row)).unwrap();
        let (_, lines) = text.split_once("\n\n").unwrap();
        let number = lines[..6].parse().unwrap();
        assert!(number >= least, "row {row}: {number} after {least}");
        assert!(lines.trim_end() == body(number).trim_end(), "row {row} is torn");
    };
    beside_writers(time, [writer(), writer()], check);
    mount.end();
}

#[test]
fn a_token_is_sent_as_the_authorization_and_stands_in_no_error() {
    let Some(scratch) = mountable() else { return };
    let is_revoked = Arc::new(AtomicBool::new(false));
    let revoked = Arc::clone(&is_revoked);
    let url = serve_http(move |request| {
        let wanted = |line: &String| line.eq_ignore_ascii_case("authorization: Bearer sesame");
        let may = request.iter().any(wanted) && !revoked.load(Ordering::Relaxed);
        let (status, body) =
            if may { ("200 OK", r#"[{"number": 1, "title": "One"}]"#) } else { ("403 Forbidden", "not with sesame") };
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}")
    });
    let dir = scratch.dir("issues");
    let mut command = ctxbench(words("mount view --definition issues --source"));
    command.arg(url + "api/").arg(&dir);
    command.env("CTXBENCH_VIEW_TOKEN", "sesame");
    let mount = Mount::of(command, &dir);
    let file = dir.join("open/1 One.md");
    assert!(fs::read_to_string(&file).unwrap().contains("# One"));
    is_revoked.store(true, Ordering::Relaxed);
    let failed = fs::read(&file).unwrap_err();
    assert_eq!(failed.raw_os_error(), Some(5), "{failed}");
    let log = mount.end_with_log();
    has(&log, &["status 403"]);
    lacks(&log, &["sesame"]);
}

#[test]
fn a_view_that_cannot_be_mounted_says_what_to_do() {
    let scratch = Scratch::new();
    let dir = scratch.dir("view");
    let [bad, db] = ["bad.toml", "mail.db"].map(|name| scratch.path().join(name));
    let database = Connection::open(&db).unwrap();
    database.execute_batch(MESSAGES).unwrap();
    let text = "name = 'bad'\nessay = ''\n[source]\nkind = 'sqlite'\n\n[[file]]\npath = '{id}.eml'\nkey = 'id'\n\
                rows = 'SELECT id FROM messages'\nbody = '{body}'\n";
    fs::write(&bad, text).unwrap();
    let [dir, bad, db] = [&dir, &bad, &db].map(|path| path.to_str().unwrap());
    let reason = format!("{bad}:9: rows: no column `body`; there are id");
    for (options, parts) in [
        ("", &["--definition"][..]),
        ("--definition vsm", &["--source"]),
        ("--definition missing --source .", &["vsm"]),
        ("--definition mail --source /nowhere/mail.db", &["/nowhere/mail.db", "fix:"]),
        ("--definition mail --source postgresql://me:sesame@localhost/mail", &["PGPASSWORD"]),
        (&format!("--definition {bad} --source {db}"), &[&reason]),
    ] {
        let said = refused(&words(&format!("mount view {dir} {options}")));
        has(&said, parts);
        // A password in a URL is not shown.
        lacks(&said, &["sesame"]);
    }
    assert!(mounts_under(scratch.path()).is_empty());
}

/// The output of a statement that a user runs in a database.
fn psql(cluster: &Cluster, user: &str, database: &str, sql: &str) -> String {
    let bin = view::find_postgresql().unwrap();
    let mut psql = Command::new(bin.join("psql"));
    psql.args(words("-X -q -t -A -v ON_ERROR_STOP=1 -h"));
    psql.arg(&cluster.dir);
    psql.args(["-U", user, "-d", database, "-c", sql]);
    stdout(&psql.succeeds())
}

#[test]
fn a_shell_reads_writes_and_files_the_mail_of_a_postgresql_server() {
    let Some(scratch) = mountable() else { return };
    let Some(cluster) = cluster() else { return };
    let psql = |user: &str, sql: &str| psql(cluster, user, "postgres", sql);
    let role = "CREATE ROLE mail LOGIN; GRANT CREATE ON SCHEMA public TO mail";
    psql("postgres", role);
    let key = "BIGINT GENERATED BY DEFAULT AS IDENTITY (START 2) PRIMARY KEY";
    psql("mail", &MESSAGES.replace("INTEGER PRIMARY KEY", key));
    let mount = mount_mail(&scratch, &cluster.url("postgres", "mail"));
    use_mail(mount, |sql| psql("mail", sql));
}

#[test]
fn a_login_at_a_postgresql_server_takes_the_password_from_the_environment() {
    let Some(scratch) = mountable() else { return };
    let Some(cluster) = cluster() else { return };
    let psql = |database: &str, sql: &str| psql(cluster, "postgres", database, sql);
    let rules = psql("postgres", "SHOW hba_file");
    let others = fs::read_to_string(rules.trim()).unwrap();
    let rule = "local all keeper scram-sha-256\n".to_owned();
    fs::write(rules.trim(), rule + &others).unwrap();
    let role = "SET password_encryption = 'scram-sha-256'; CREATE ROLE keeper LOGIN PASSWORD 'sesame'";
    psql("postgres", role);
    psql("postgres", "CREATE DATABASE kept OWNER keeper");
    psql("kept", &format!("SET ROLE keeper; {MESSAGES}"));
    psql("postgres", "SELECT pg_reload_conf()");
    let dir = scratch.dir("mail");
    let mail = |password: &str| {
        let mut mount = ctxbench(words("mount view --definition mail --source"));
        mount.arg(cluster.url("kept", "keeper")).arg(&dir);
        mount.env("PGPASSWORD", password);
        mount
    };
    let mount = Mount::of(mail("sesame"), &dir);
    assert_eq!(said(&dir, "ls inbox"), "ann\n");
    lacks(&fs::read_to_string("/proc/self/mountinfo").unwrap(), &["sesame"]);
    lacks(&mount.end_with_log(), &["sesame"]);
    // A mount that is let in would serve on.
    let mut bounded = Command::new("timeout");
    let wrong = mail("barley");
    bounded.args(["--kill-after=5", "20"]).arg(wrong.get_program());
    bounded.args(wrong.get_args()).env("PGPASSWORD", "barley");
    let wrong = bounded.output().unwrap();
    assert!(!wrong.status.success());
    let said = String::from_utf8_lossy(&wrong.stderr);
    has(&said, &["password authentication failed"]);
    lacks(&said, &["barley"]);
}
