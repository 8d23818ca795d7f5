//! Every name that a listing shows opens, whatever type its column has, and every path that an answer gives is there.

use super::databases::Mail;
use super::*;

/// Opens every entry of a directory and of those below it. Returns the paths of files and links.
fn open_all(store: &dyn Store, dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in list(store, dir) {
        let path = format!("{dir}{name}");
        let ino = go(store, &path).unwrap_or_else(|error| panic!("{path}: {error}"));
        match store.getattr(ino).unwrap().kind {
            Kind::Directory => {
                let below = open_all(store, &format!("{path}/"));
                assert!(!below.is_empty(), "{path} is empty");
                found.extend(below);
            }
            Kind::Symlink => {
                let target = String::from_utf8(store.readlink(ino).unwrap()).unwrap();
                let mut to: Vec<&str> = dir.split_terminator('/').collect();
                for part in target.split('/') {
                    match part {
                        ".." => _ = to.pop(),
                        part => to.push(part),
                    }
                }
                read(store, &to.join("/")).unwrap_or_else(|error| panic!("{path}: {error}"));
                found.push(path);
            }
            _ => {
                read(store, &path).unwrap();
                found.push(path);
            }
        }
    }
    found
}

/// A table whose columns have no type.
const LOOSE: &str = "
CREATE TABLE loose (id, year, name, n, version);
INSERT INTO loose VALUES (1, '2024', 4, 4, 1), (2, 2025, 'four', 0.5, 1), (3, 2025, x'42', '0', 1), (4, 2025, 0, 'x', 1)";

const LOOSE_VIEW: &str = r#"
name = 'x'
essay = ''
[source]
kind = 'sqlite'

[[directory]]
path = "by-year/{year}"
rows = "SELECT DISTINCT year + 0 AS year FROM loose"

[[file]]
path = "by-year/{year}/{id} {name}.txt"
key = "id"
rows = "SELECT * FROM loose WHERE year + 0 = :year"
body = "{name}: {n}\n"
write.update = "UPDATE loose SET n = :n, version = version + 1 WHERE id = :id AND version = :version"

[[directory]]
path = "by-n/{n}"
rows = "SELECT DISTINCT n FROM loose"

[[link]]
path = "by-n/{n}/{id}"
rows = "SELECT id, name FROM loose WHERE n = :n"
target = "../../unique/{name}"

[[file]]
path = "unique/{name}"
key = "id"
unique = true
rows = "SELECT * FROM loose"
body = "{n}"
"#;

fn loose() -> (Mail, ViewStore) {
    let mail = Mail::new();
    mail.run(LOOSE);
    let store = mail.view_as(true, |_| LOOSE_VIEW.to_owned());
    (mail, store)
}

#[test]
fn a_column_without_a_type_gives_names_that_open() {
    let (_mail, store) = loose();
    let mut found = open_all(&store, "");
    found.sort();
    let expected = [
        "by-n/0.5/2",
        "by-n/0/3",
        "by-n/4/1",
        "by-n/x/4",
        "by-year/2024/1 4.txt",
        "by-year/2025/2 four.txt",
        "by-year/2025/3 B.txt",
        "by-year/2025/4 0.txt",
        "unique/0",
        "unique/4",
        "unique/B",
        "unique/four",
    ];
    assert_eq!(found, expected);
    // `CAST('five' AS NUMERIC)` is 0.
    assert_eq!(errno(go(&store, "unique/five")), Errno::NOENT);
    assert_eq!(errno(go(&store, "by-n/five")), Errno::NOENT);
}

#[test]
fn a_directory_is_marked_where_a_file_beside_it_could_have_its_name() {
    let mail = Mail::new();
    for (id, sender, subject) in [(1, "ann", "ann"), (2, "one.txt", "one"), (3, "two.txt", "")] {
        mail.add(id, "inbox", sender, subject, "body");
    }
    let store = mail.view_as(false, |_| {
        "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\
         [[file]]\npath = '{subject}.txt'\nkey = 'id'\nunique = true\nrows = 'SELECT * FROM messages'\nbody = '{body}'\n\
         [[directory]]\npath = '{sender}'\nrows = 'SELECT sender FROM messages'\n\
         [[file]]\npath = '{sender}/{id}'\nkey = 'id'\nrows = 'SELECT * FROM messages WHERE sender = :sender'\nbody = ''"
            .to_owned()
    });
    let mut found = open_all(&store, "");
    found.sort();
    let files = ["%.txt", "%~one.txt/2", "%~two.txt/3", "ann.txt", "ann/1", "one.txt"];
    assert_eq!(found, files);
    // Not by its plain name either, though no file has it.
    assert_eq!(errno(go(&store, "two.txt")), Errno::NOENT);
}

#[test]
fn a_directory_beside_files_with_a_key_is_marked_only_where_a_file_could_have_its_name() {
    let mail = Mail::new();
    let names = ["2026-03", "7 x.eml", "7up", "x 7.eml"];
    for (id, sender) in (1..).zip(names) {
        mail.add(id, "inbox", sender, "s", "body");
    }
    let view = |writes: &str| {
        let text = format!(
            "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\
             [[file]]\npath = 'in/{{id}} {{subject}}.eml'\nkey = 'id'\nrows = 'SELECT * FROM messages'\nbody = '{{body}}'\n{writes}\n\
             [[directory]]\npath = 'in/{{sender}}'\nrows = 'SELECT sender FROM messages'\n"
        );
        mail.view_as(!writes.is_empty(), |_| text.clone())
    };
    let store = view("");
    let mut dirs = list(&store, "in");
    dirs.retain(|name| store.getattr(go(&store, &format!("in/{name}")).unwrap()).unwrap().kind == Kind::Directory);
    assert_eq!(dirs, ["%~7 x.eml", "2026-03", "7up", "x 7.eml"]);

    // A file cannot get a name that a row could give to a directory.
    let insert = "write.insert = 'INSERT INTO messages (body) VALUES (:body) RETURNING id'";
    let store = view(insert);
    let dir = go(&store, "in").unwrap();
    let created = |name: &str| store.create(&caller(1), dir, name.as_bytes(), &node(Kind::File));
    fails(created("carl"), Errno::INVAL, &["a directory or a link"]);
    created("9 draft.eml").unwrap();
}

#[test]
fn a_row_whose_key_and_version_have_no_type_is_changed() {
    let (mail, store) = loose();
    let ino = go(&store, "by-year/2024/1 4.txt").unwrap();
    for n in ["7", "8"] {
        overwrite(&store, ino, &format!("4: {n}\n")).unwrap();
        assert_eq!(mail.value("SELECT n FROM loose WHERE id = 1"), n);
    }
    let row = "SELECT version || typeof(n) || typeof(name) FROM loose WHERE id = 1";
    assert_eq!(mail.value(row), "3integerinteger");
}

#[test]
fn an_index_on_a_column_without_a_type_finds_a_name() {
    let mail = Mail::new();
    mail.run(LOOSE);
    mail.run("CREATE INDEX by_name ON loose (name)");
    let rows = "WITH RECURSIVE n(id) AS (SELECT 10 UNION ALL SELECT id + 1 FROM n WHERE id < 300000)
        INSERT INTO loose SELECT id, 2025, id, 'x', 1 FROM n";
    mail.run(rows);
    let store = mail.view_as(false, |_| LOOSE_VIEW.to_owned());
    // The least time of a lookup, which no other process lengthens.
    let least = |from: usize| {
        let lookup = |round: usize| {
            let began = Instant::now();
            go(&store, &format!("unique/{}", 299_000 + round)).unwrap();
            assert!(go(&store, &format!("unique/missing {round}")).is_err());
            began.elapsed()
        };
        (from..from + 30).map(lookup).min().unwrap()
    };
    let indexed = least(0);
    mail.run("DROP INDEX by_name");
    let scanned = least(100);
    assert!(indexed * 4 < scanned, "{indexed:?} and {scanned:?}");
}

#[test]
fn a_task_whose_state_is_not_text_is_found_by_its_state() {
    let dir = tempfile::tempdir().unwrap();
    for (at, state) in ["4", "\"4\"", "true", "0.5", "\"open\""].iter().enumerate() {
        let (task, text) = (format!("tasks/{at}.json"), format!(r#"{{"state": {state}}}"#));
        write_files(dir.path(), &[(&task, &text)]);
    }
    let store = controller(dir.path());
    let found = open_all(&store, "tasks-by-state/");
    let expected = ["0.5/3.json", "1/2.json", "4/0.json", "4/1.json", "open/4.json"];
    let expected = expected.map(|path| format!("tasks-by-state/{path}"));
    assert_eq!(found, expected);
}

#[test]
fn an_answer_names_paths_that_are_there() {
    for mail in mails() {
        for (id, sender) in ["ann", "a/b\u{7}", "100%", "", &"ü".repeat(300)].iter().enumerate() {
            mail.add(id as i64, "inbox", sender, "Two\nlines: a/b", "body");
        }
        let store = mail.view(false);
        let answer = read(&store, ":about?two").unwrap();
        assert_eq!(answer.lines().count(), 5, "{answer}");
        for line in answer.lines() {
            let path = line.strip_suffix(": Two lines: a/b").unwrap();
            read(&store, path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        for question in [":from?a%2Fb", ":from?100%", ":from?100%25"] {
            let found = read(&store, question).unwrap();
            assert_eq!(found.lines().count(), 1, "{question}");
        }
    }
}

#[test]
fn a_row_with_an_invalid_key_is_left_out() {
    let mail = Mail::new();
    mail.run("CREATE TABLE keys (id); INSERT INTO keys VALUES (-1), (NULL), ('x'), (9007199254740992), (9007199254740991), (0)");
    let store = mail.view_as(false, |_| {
        let rows = "key = 'id'\nrows = 'SELECT * FROM keys'\nbody = 'x'\n";
        format!("name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n[[file]]\npath = '{{id}}.txt'\n{rows}")
    });
    assert_eq!(open_all(&store, ""), ["0.txt", "9007199254740991.txt"]);
    assert_eq!(errno(go(&store, "9007199254740992.txt")), Errno::NOENT);
}
