//! Limits of time, length and number, and a database that does not answer.

use std::ops::ControlFlow;

use fuse::store::Change;

use super::*;

#[test]
fn a_file_that_disappears_is_an_error_and_comes_back_by_itself() {
    let mail = Mail::new();
    mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    let store = mail.view(false);
    assert!(read(&store, FIRST).is_ok());
    let aside = mail.dir.path().join("aside.db");
    std::fs::rename(mail.path(), &aside).unwrap();
    let began = Instant::now();
    fails(read(&store, FIRST), Errno::IO, &["mail.db"]);
    assert!(began.elapsed() < Duration::from_secs(50), "it waited for the file");
    assert!(store.getattr(ROOT).is_ok());
    assert_eq!(list(&store, "").len(), 5, "names stay");
    std::fs::rename(&aside, mail.path()).unwrap();
    assert!(read(&store, FIRST).is_ok());
    let other = Mail::new();
    other.add(7, "inbox", "ann@x.org", "Budget", "another");
    // All of it in the one file that is moved.
    other.run("PRAGMA wal_checkpoint(TRUNCATE)");
    std::fs::rename(other.path(), mail.path()).unwrap();
    shows(&store, FIRST, &["another"]);
}

/// A definition with one computed file.
fn computed(mail: &Mail, rows: &str, timeout_ms: u64) -> ViewStore {
    let text = format!(
        "name = 'x'\nessay = ''\n[source]\nkind = ['sqlite', 'postgresql']\ntimeout_ms = {timeout_ms}\n\
         [[computed]]\npath = 'one.txt'\nrows = \"\"\"{rows}\"\"\"\n\
         [[computed]]\npath = 'quick.txt'\nrows = 'SELECT 1 AS one'\n"
    );
    opened(&text, &mail.place, false).unwrap()
}

const ENDLESS: &str =
    "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT (id + 1) % 1000 FROM n) SELECT count(*) AS n FROM n";

#[test]
fn a_query_that_takes_too_long_fails_in_time_and_holds_up_no_other() {
    for mail in mails() {
        // A busy machine may be late: then the slow query has more time.
        let is_held_up = |&timeout_ms: &u64| {
            let store = computed(&mail, ENDLESS, timeout_ms);
            let began = Instant::now();
            let (failed, quick, is_late) = std::thread::scope(|scope| {
                let failed = scope.spawn(|| go(&store, "one.txt"));
                std::thread::sleep(Duration::from_millis(100));
                let quick = read(&store, "quick.txt");
                let is_late = failed.is_finished();
                (failed.join().unwrap(), quick, is_late)
            });
            let took = began.elapsed();
            assert!(took > Duration::from_millis(timeout_ms - 100), "{took:?}");
            fails(failed, Errno::IO, &["one.txt", &format!("{timeout_ms} ms")]);
            eventually("it goes on", || read(&store, "quick.txt").is_ok_and(|text| text == "1\n"));
            is_late || !quick.is_ok_and(|text| text == "1\n")
        };
        let late: Vec<u64> = [2000, 10_000, 60_000].into_iter().take_while(is_held_up).collect();
        assert!(late.len() < 3, "it waited for the slow one");
    }
}

/// One call of a function that takes about half a minute.
const STUCK: &str = "SELECT instr(a, substr(a, 1, 300000) || 'b') AS n FROM (SELECT printf('%.*c', 2000000, 'a') AS a)";

#[test]
fn a_function_that_sqlite_cannot_interrupt_keeps_no_caller_after_the_timeout() {
    let mail = Mail::new();
    let store = computed(&mail, STUCK, 300);
    for _ in 0..2 {
        let began = Instant::now();
        fails(go(&store, "one.txt"), Errno::IO, &["one.txt", "300 ms", "still runs"]);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        eventually("other queries run", || read(&store, "quick.txt").is_ok_and(|text| text == "1\n"));
    }
    // No third thread starts.
    fails(go(&store, "one.txt"), Errno::IO, &["one.txt", "2 earlier queries", "still run"]);
    assert_eq!(read(&store, "quick.txt").unwrap(), "1\n");
}

#[test]
fn a_table_that_becomes_a_view_with_such_a_function_keeps_no_caller_either() {
    let mail = Mail::new();
    mail.run("CREATE TABLE it (n INTEGER)");
    let store = computed(&mail, "SELECT n FROM it", 300);
    assert_eq!(read(&store, "one.txt").unwrap(), "");
    mail.run(&format!("DROP TABLE it; CREATE VIEW it AS {STUCK}"));
    let began = Instant::now();
    fails(go(&store, "one.txt"), Errno::IO, &["one.txt", "300 ms", "still runs"]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_query_that_makes_a_longer_value_than_a_file_fails_before_it_is_made() {
    for mail in mails().iter().filter(|mail| mail.is_sqlite()) {
        let store = computed(mail, "SELECT length(zeroblob(900000000)) AS n", 60_000);
        fails(go(&store, "one.txt"), Errno::FBIG, &["one.txt", "more than 257 MiB"]);
        assert_eq!(read(&store, "quick.txt").unwrap(), "1\n");
    }
}

#[test]
fn a_computed_file_is_asked_for_once_by_stat_and_read() {
    for mail in mails().iter().filter(|mail| mail.is_sqlite()) {
        mail.add(1, "inbox", "ann", "s", "x");
        let store = computed(mail, "SELECT count(*) AS n FROM messages", 60_000);
        let asked = || store.counters()["view_queries"];
        // The answer to `stat` is kept for 100 ms, which may end before the read on a busy machine.
        eventually("one query", || {
            let before = asked();
            assert_eq!(read(&store, "one.txt").unwrap(), "1\n");
            asked() - before == 1
        });
        mail.add(2, "inbox", "ann", "s", "x");
        assert_eq!(read(&store, "one.txt").unwrap(), "2\n", "after a commit");
    }
}

#[test]
fn a_computed_file_that_depends_on_the_time_is_computed_again() {
    let mail = Mail::new();
    let store = computed(&mail, "SELECT strftime('%f') AS now", 60_000);
    let first = read(&store, "one.txt").unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_ne!(read(&store, "one.txt").unwrap(), first);
}

#[test]
fn a_column_of_100_mb_is_read_whole() {
    const LENGTH: usize = 100_000_000;
    for mail in mails() {
        mail.add(7, "inbox", "ann", "s", "");
        let long =
            if mail.is_sqlite() { format!("hex(zeroblob({}))", LENGTH / 2) } else { format!("repeat('0', {LENGTH})") };
        mail.run(&format!("UPDATE messages SET body = {long}"));
        let store = mail.view(false);
        let ino = go(&store, "inbox/ann/2026-03-01 s 7.eml").unwrap();
        let size = store.getattr(ino).unwrap().size as usize;
        assert!(size > LENGTH);
        let (handle, mut read) = (store.open(ino, false).unwrap(), 0);
        let mut part = Vec::new();
        loop {
            part.clear();
            store.read_handle(handle, ino, read as u64, 1 << 20, &mut part).unwrap();
            read += part.len();
            if part.is_empty() {
                break;
            }
        }
        assert_eq!(read, size);
    }
}

#[test]
fn a_file_that_would_be_too_long_is_an_error() {
    for mail in mails() {
        let rows = if mail.is_sqlite() {
            "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 30) SELECT hex(zeroblob(5000000)) AS x FROM n"
        } else {
            "SELECT repeat('0', 10000000) AS x FROM generate_series(1, 30)"
        };
        let store = computed(&mail, rows, 60_000);
        fails(go(&store, "one.txt"), Errno::FBIG, &["256 MiB"]);
    }
}

/// Fills a directory with `rows` files, and lists it as a mount does: in parts of 150 names.
fn list_all(mail: &Mail, rows: usize) {
    mail.run(&format!(
        "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {rows})
         INSERT INTO messages SELECT id, NULL, 'ann', 'me', '2026-03-01', 'a/b', 'b', 'inbox', 0, 1 FROM n"
    ));
    if !mail.is_sqlite() {
        mail.run("ANALYZE messages");
    }
    let store = mail.view(false);
    let dir = go(&store, "inbox/ann").unwrap();
    let asked = store.counters()["view_queries"];
    let (mut seen, mut after) = (0, 0);
    loop {
        let part = list_part(&store, dir, &mut after);
        for name in &part {
            seen += 1;
            assert_eq!(*name, format!("2026-03-01 a%2Fb {seen}.eml"));
        }
        if part.is_empty() {
            break;
        }
    }
    assert_eq!(seen, rows);
    let asked = store.counters()["view_queries"] - asked;
    assert!(asked as usize <= rows / 1000 + 3, "{asked} queries");
    let last = format!("inbox/ann/2026-03-01 a%2Fb {rows}.eml");
    shows(&store, &last, &["Subject: a/b"]);
}

/// The next 150 names of a listing, which goes on after a cookie.
fn list_part(store: &dyn Store, dir: Ino, after: &mut u64) -> Vec<String> {
    let (mut some, from) = (Vec::new(), *after);
    let mut emit = |entry: fuse::store::DirEntry<'_>| {
        if some.len() == 150 {
            return ControlFlow::Break(());
        }
        some.push(String::from_utf8(entry.name.to_vec()).unwrap());
        *after = entry.cookie;
        ControlFlow::Continue(())
    };
    store.readdir(dir, from, false, &mut emit).unwrap();
    some
}

#[test]
fn many_directories_that_a_query_names_are_asked_for_by_pages() {
    const SENDERS: usize = 70_000;
    for mail in mails() {
        mail.run(&format!(
            "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < {SENDERS})
             INSERT INTO messages SELECT id, NULL, CAST(id + 100000 AS TEXT), 'me', '2026-03-01', 's', 'b', 'inbox', 0, 1 FROM n"
        ));
        let store = mail.view(false);
        let dir = go(&store, "inbox").unwrap();
        let asked = store.counters()["view_queries"];
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let part = list_part(&store, dir, &mut after);
            if part.is_empty() {
                break;
            }
            seen.extend(part);
        }
        let queries = store.counters()["view_queries"] - asked;
        assert_eq!(queries, 2, "a page of 65,536 and the rest");
        assert_eq!(seen.len(), SENDERS);
        assert!(seen.is_sorted_by(|one, other| one < other));
    }
}

#[test]
fn a_listing_of_names_goes_on_while_another_one_begins_after_a_commit() {
    for mail in mails() {
        for id in 100..500 {
            mail.add(id, "inbox", &format!("sender{id}"), "s", "b");
        }
        let store = mail.view(false);
        let dir = go(&store, "inbox").unwrap();
        let mut after = 0;
        let mut names = list_part(&store, dir, &mut after);
        mail.add(1, "inbox", "a first one", "s", "b");
        for _ in 0..100 {
            assert_eq!(list(&store, "inbox").len(), 401);
        }
        loop {
            let part = list_part(&store, dir, &mut after);
            if part.is_empty() {
                break;
            }
            names.extend(part);
        }
        let expected: Vec<String> = (100..500).map(|id| format!("sender{id}")).collect();
        assert_eq!(names, expected);
    }
}

#[test]
fn a_directory_of_many_rows_is_asked_for_by_pages() {
    for mail in mails() {
        list_all(&mail, 5_000);
    }
}

#[test]
#[ignore = "takes a minute, with a release build: make speed"]
fn a_directory_of_a_million_rows_is_asked_for_by_pages() {
    for mail in mails() {
        let began = Instant::now();
        list_all(&mail, 1_000_000);
        println!("{}: {:?}", mail.name, began.elapsed());
    }
}

#[test]
fn an_inode_that_the_kernel_forgets_is_dropped_and_found_again() {
    for mail in mails() {
        for id in 0..50 {
            mail.add(id, "inbox", "ann", "s", "x");
        }
        let store = mail.view(false);
        let path = |id: usize| format!("inbox/ann/2026-03-01 s {id}.eml");
        let inos: Vec<Ino> = (0..50).map(|id| go(&store, &path(id)).unwrap()).collect();
        store.forget(&inos[1..]);
        assert!(store.getattr(inos[0]).is_ok());
        assert_eq!(errno(store.getattr(inos[1])), Errno::NOENT);
        // It has the same number.
        assert_eq!(go(&store, &path(1)).unwrap(), inos[1]);
        assert!(store.getattr(inos[1]).is_ok());
        store.forget(&[inos[1]]);
        assert_eq!(errno(store.getattr(inos[1])), Errno::NOENT, "deleted");
    }
}

#[test]
fn values_too_long_for_a_name_are_left_out_by_pages() {
    let mail = Mail::new();
    let rows = "WITH RECURSIVE n(id) AS (SELECT 1000 UNION ALL SELECT id + 1 FROM n WHERE id < 1139)
        SELECT CASE id % 2 WHEN 0 THEN id ELSE id || printf('%.*c', 1000000, 'x') END AS name FROM n";
    let store = mail.view_as(false, |_| {
        format!(
            "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\ntimeout_ms = 60000\n\
             [[directory]]\npath = '{{name}}'\nrows = \"\"\"{rows}\"\"\"\n"
        )
    });
    let short: Vec<String> = (1000..1140).step_by(2).map(|id| id.to_string()).collect();
    assert_eq!(list(&store, ""), short);
    // 70 values of 1 MB, five of which make a page.
    assert_eq!(store.counters()["view_queries"], 15);
}

#[test]
fn a_blob_that_names_a_directory_costs_one_row_and_an_error_names_it() {
    let mail = Mail::new();
    mail.run("CREATE TABLE note (id INTEGER PRIMARY KEY, tag, text)");
    mail.run("INSERT INTO note VALUES (1, 'home', 'one'), (2, x'776f726b', 'two'), (3, x'626f7468', 'three'), (4, 'both', 'four')");
    let store = mail.view_as(false, |_| {
        "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\ntimeout_ms = 60000\n\
         [[directory]]\npath = '{tag}'\nrows = 'SELECT tag FROM note'\n\
         [[file]]\npath = '{tag}/{id}.md'\nkey = 'id'\nbody = '{text}'\nrows = 'SELECT * FROM note WHERE tag = :tag'\n"
            .to_owned()
    });
    assert_eq!(list(&store, ""), ["both", "home"]);
    assert_eq!(list(&store, "both"), ["4.md"], "the text has the directory");
    assert_eq!(read(&store, "home/1.md").unwrap(), "one");
    fails(go(&store, "work"), Errno::IO, &["{tag}", "`tag`", "\"work\"", "BLOB"]);
    assert_eq!(errno(go(&store, "play")), Errno::NOENT);
}

#[test]
fn a_row_with_a_bad_key_or_name_costs_one_row() {
    for mail in mails() {
        mail.add(7, "inbox", "ann", "s", "");
        // The key is text here, so that it can be anything.
        let rows = |keys: &[&str]| {
            let rows: Vec<String> =
                keys.iter().enumerate().map(|(at, key)| format!("SELECT {key} AS n, 'name {at}' AS title")).collect();
            rows.join(" UNION ALL ")
        };
        let view = |query: String| {
            mail.view_as(false, move |_| {
                format!(
                    "name = 'x'\nessay = ''\n[source]\nkind = ['sqlite', 'postgresql']\ntimeout_ms = 60000\n\
                     [[file]]\npath = '{{n}} {{title}}.md'\nkey = 'n'\nbody = '{{title}}'\nrows = \"\"\"{query}\"\"\"\n"
                )
            })
        };
        let store = view(rows(&["1", "NULL", "-1", "1.5", "2", "2", "9007199254740992", "3"]));
        let names = list(&store, "");
        assert_eq!(names.len(), 3, "{}: {names:?}", mail.name);
        for (name, key) in names.iter().zip(["1 ", "2 ", "3 "]) {
            assert!(name.starts_with(key), "{names:?}");
        }
        assert_eq!(read(&store, "1 name 0.md").unwrap(), "name 0");
        assert_eq!(errno(go(&store, "1.5 name 3.md")), Errno::NOENT);
        // Names that no file can have as they are.
        let quoted = |text: &str| format!("'{text}'");
        let long = quoted(&"x".repeat(5000));
        let titles = [&quoted("a/b"), &quoted(".."), &quoted(""), "NULL", &long];
        let rows: Vec<String> =
            titles.iter().enumerate().map(|(at, title)| format!("SELECT {at} AS n, {title} AS title")).collect();
        let store = view(rows.join(" UNION ALL "));
        let names = list(&store, "");
        assert_eq!(names.len(), titles.len(), "{}: {names:?}", mail.name);
        for name in &names {
            assert!(name.len() <= 255 && !name.contains('/'));
            assert!(go(&store, name).is_ok(), "{name}");
        }
        if mail.is_sqlite() {
            let store = view("SELECT 1 AS n, CAST(x'ff00fe' AS TEXT) AS title UNION ALL SELECT 2, 'good'".into());
            assert_eq!(list(&store, "").len(), 2);
            assert_eq!(read(&store, "2 good.md").unwrap(), "good");
        }
    }
}

#[test]
fn owner_and_group_and_mode_cannot_be_set() {
    let mail = Mail::new();
    let store = mail.view(false);
    let drafts = go(&store, "drafts").unwrap();
    let set = |(uid, gid, permissions)| {
        let change = Change { uid, gid, permissions, ..Change::default() };
        store.setattr(&caller(1), drafts, &change)
    };
    let owner = (Some(1), None, None);
    for change in [owner, (None, Some(1), None), (None, None, Some(0o600))] {
        assert_eq!(errno(set(change)), Errno::PERM);
    }
    set((None, None, None)).unwrap();
}

#[test]
fn a_row_whose_content_comes_apart_elsewhere_cannot_be_edited() {
    for mail in mails() {
        mail.add(8, "drafts", "me", "one\n\ntwo", "body");
        let store = mail.view(true);
        let name = list(&store, "drafts").remove(0);
        let ino = go(&store, &format!("drafts/{name}")).unwrap();
        let refused = overwrite(&store, ino, "To: \nSubject: one\n\ntwo\n\nother\n");
        fails(refused, Errno::INVAL, &["`subject`", "template"]);
        let dir = go(&store, "drafts").unwrap();
        write_new(&store, dir, "new", "To: \nSubject: one\n\nother\n").unwrap();
        let over = (dir, name.as_bytes());
        let saved = store.rename(&caller(2), (dir, b"new"), over, RenameMode::Replace);
        assert_eq!(errno(saved), Errno::INVAL);
        let kept = mail.value("SELECT subject FROM messages WHERE id = 8");
        assert_eq!(kept, "one\n\ntwo");
    }
}
