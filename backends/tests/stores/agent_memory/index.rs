//! When the index of notes matches the files.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use agent_memory::AgentMemory;
use fuse::store::{Kind, ROOT, RenameMode, Store, Timestamp};
use sqlite::{SqliteStore, check};

use super::{DAY, Memory, START, caller, place, with_memory};
use crate::common::{create, has, lacks, node, read};

#[test]
fn a_search_finds_a_written_note_with_and_without_close() {
    with_memory(|memory| {
        memory.finds_nothing(ROOT, ":search?RSI");
        let ino = memory.write(ROOT, "rule.md", "RSI > 70 means exit\n");
        let found = memory.ask(ROOT, ":search?RSI");
        has(&found, &["/rule.md", "RSI > 70 means exit"]);
        // Without `close`: a request indexes marked notes, too.
        let written = memory.store.write(&memory.caller(), ino, 20, b"MACD too\n");
        written.unwrap();
        has(&memory.ask(ROOT, ":search?MACD"), &["/rule.md"]);
        memory.write(ROOT, "rule.md", "nothing of the sort\n");
        memory.finds_nothing(ROOT, ":search?MACD");
        memory.unlink(ROOT, "rule.md");
        memory.finds_nothing(ROOT, ":search?sort");
        has(&memory.ask(ROOT, ":history"), &["removed /rule.md"]);
    });
}

#[test]
fn an_open_indexes_notes_that_a_sqlite_mount_wrote() {
    let (_dir, path) = place();
    let memory = Memory::open(&path, None);
    memory.write(ROOT, "first.md", "alpha\n");
    drop(memory);
    // Like `ctxbench mount sqlite`, or a crash before the notes are indexed.
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    for number in 0..1200 {
        let file = create(&plain, ROOT, &format!("n{number}.md"), Kind::File);
        let text = format!("beta{number}\n");
        let written = plain.write(&caller(START), file.ino, 0, text.as_bytes());
        written.unwrap();
    }
    plain.unlink(&caller(START), ROOT, b"first.md").unwrap();
    drop(plain);
    let memory = Memory::open(&path, None);
    memory.finds_nothing(ROOT, ":search?alpha");
    has(&memory.ask(ROOT, ":search?beta777"), &["/n777.md"]);
    assert_eq!(memory.store.notes(), 1200);
    drop(memory);
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn the_documented_commands_drop_the_index_and_the_next_open_rebuilds_it() {
    let (_dir, path) = place();
    let memory = Memory::open(&path, None);
    memory.write(ROOT, "a.md", "alpha\n");
    drop(memory);
    let document = include_str!("../../../../docs/MEMORY.md");
    let (_, rest) = document.split_once("```sql\n").unwrap();
    let (commands, _) = rest.split_once("```").unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(commands).unwrap();
    let left = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'memory%' OR tbl_name LIKE 'memory%'";
    let left: i64 = db.query_row(left, (), |row| row.get(0)).unwrap();
    assert_eq!(left, 0, "the document names them all");
    drop(db);
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    create(&plain, ROOT, "b.md", Kind::File);
    drop(plain);
    let memory = Memory::open(&path, None);
    has(&memory.ask(ROOT, ":search?alpha"), &["/a.md"]);
    assert_eq!(memory.store.notes(), 2);
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_note_of_a_sqlite_mount_has_no_author_and_its_own_time() {
    let (_dir, path) = place();
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    let write = |name: &str, text: &[u8]| {
        let at = caller(START + DAY);
        let made = plain.create(&at, ROOT, name.as_bytes(), &node(Kind::File));
        plain.write(&at, made.unwrap().ino, 0, text).unwrap();
    };
    write("old.md", b"alpha\n");
    write("kim.md", b"---\nauthor: kim\n---\nalpha\n");
    drop(plain);
    let memory = Memory::open_at(&path, Some("mallory"), START + 30 * DAY);
    let day = |days: i64| {
        let at = jiff::Timestamp::from_nanosecond((START + days * DAY).into()).unwrap();
        at.strftime("%Y-%m-%d").to_string()
    };
    let history = memory.ask(ROOT, "old.md:history");
    assert!(history.starts_with(&day(1)), "{history}");
    lacks(&history, &["mallory"]);
    has(&memory.ask(ROOT, "old.md:meta"), &["author: \n"]);
    lacks(&memory.ask(ROOT, ":recall?alpha"), &["mallory"]);
    has(&memory.ask(ROOT, "kim.md:meta"), &["author: kim\n"]);
    memory.write(ROOT, "old.md", "alpha and beta\n");
    let history = memory.ask(ROOT, "old.md:history");
    assert!(history.starts_with(&day(30)), "{history}");
    has(&memory.ask(ROOT, "old.md:meta"), &["author: mallory\n"]);
}

#[test]
fn an_end_leaves_what_takes_too_long_to_the_next_open_which_knows_the_authors() {
    let (_dir, path) = place();
    let (is_slow, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (slows, may_go_on, own) = (Arc::clone(&is_slow), Arc::clone(&ends), std::thread::current().id());
    // Read twice before each batch. In the background, none goes on before the end.
    let clock = move || {
        let is_background = std::thread::current().id() != own;
        while is_background && slows.load(Ordering::SeqCst) && !may_go_on.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if slows.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(300));
        }
        Timestamp(START + 1)
    };
    let at = caller(START);
    let store = AgentMemory::open_at(&path, &at, Some("akashi"), Box::new(clock)).unwrap();
    is_slow.store(true, Ordering::SeqCst);
    let write = |store: &dyn Store, number: u32, text: &str| {
        let at = caller(START + i64::from(number));
        let name = format!("n{number}.md");
        let made = store.create(&at, ROOT, name.as_bytes(), &node(Kind::File));
        let ino = match made {
            Ok(made) => made.ino,
            Err(_) => store.lookup(ROOT, name.as_bytes()).unwrap().ino,
        };
        store.write(&at, ino, 0, text.as_bytes()).unwrap();
    };
    (0..1000).for_each(|number| write(&store, number, "halving\n"));
    ends.store(true, Ordering::SeqCst);
    store.finish().unwrap();
    drop(store);
    let left = || {
        let db = rusqlite::Connection::open(&path).unwrap();
        let count = |sql: &str| db.query_row(sql, (), |row| row.get::<_, i64>(0)).unwrap();
        let stale = count("SELECT count(*) FROM memory_stale");
        (stale, count("SELECT count(*) FROM memory_author"))
    };
    let (stale, authors) = left();
    assert!(stale > 100 && authors == stale, "{stale}, {authors}");
    // Another backend changes a note that waits; its author is not known.
    let plain = SqliteStore::open(&path, &at).unwrap();
    write(&plain, 1000, "beta\n");
    let changed = plain.lookup(ROOT, b"n999.md").unwrap().ino;
    plain.write(&caller(START + 5000), changed, 0, b"changed\n").unwrap();
    drop(plain);
    let memory = Memory::open(&path, Some("mallory"));
    assert_eq!(memory.store.notes(), 1001);
    for number in [0, 1, 500, 998] {
        let meta = memory.ask(ROOT, &format!("n{number}.md:meta"));
        has(&meta, &["author: akashi\n"]);
    }
    for number in [999, 1000] {
        has(&memory.ask(ROOT, &format!("n{number}.md:meta")), &["author: \n"]);
    }
    has(&memory.ask(ROOT, ":search?halving&limit=1"), &["/n998.md"]);
    drop(memory);
    assert_eq!(left(), (0, 0));
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn a_search_orders_notes_by_time_whatever_is_indexed_first() {
    let (_dir, path) = place();
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    // A higher number is an older time, as `cp -p` and `tar` create files.
    for number in 0..600 {
        let file = create(&plain, ROOT, &format!("n{number}.md"), Kind::File);
        let at = caller(START - number * DAY / 24);
        plain.write(&at, file.ino, 0, b"halving\n").unwrap();
    }
    drop(plain);
    let memory = Memory::open(&path, None);
    let newest = || {
        let found = memory.ask(ROOT, ":search?halving&limit=3");
        has(&found, &["these 3 notes match; more were indexed"]);
        let lines = found.lines().skip(1);
        let names = lines.filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(newest(), ["/n0.md", "/n1.md", "/n2.md"]);
    // A note indexed last, with a time between the first two.
    let late = create(&memory.store, ROOT, "late.md", Kind::File);
    let at = caller(START - DAY / 48);
    memory.store.write(&at, late.ino, 0, b"halving\n").unwrap();
    assert_eq!(newest(), ["/n0.md", "/late.md", "/n1.md"]);
}

#[test]
fn a_search_during_indexing_waits_for_the_whole_index() {
    const INDEXES: &str = "indexes";
    // The indexing thread reads the clock before each batch. From the third read on, with some notes indexed
    // and the database unlocked, the clock sleeps.
    let looked = Arc::new(AtomicI64::new(0));
    let looks = Arc::clone(&looked);
    let clock = move || {
        if std::thread::current().name() == Some(INDEXES) && looks.fetch_add(1, Ordering::SeqCst) >= 2 {
            std::thread::sleep(Duration::from_millis(200));
        }
        Timestamp(START)
    };
    let (_dir, path) = place();
    let store = AgentMemory::open_at(&path, &caller(START), None, Box::new(clock)).unwrap();
    let old = create(&store, ROOT, "old", Kind::Directory).ino;
    let archive = create(&store, ROOT, "archive", Kind::Directory).ino;
    for number in 0..1500 {
        let made = create(&store, old, &format!("n{number}.md"), Kind::File);
        let text = format!("halving {number}\n");
        let written = store.write(&caller(START), made.ino, 0, text.as_bytes());
        written.unwrap();
    }
    store.lookup(ROOT, b":stats").unwrap();
    let (from, to) = ((ROOT, &b"old"[..]), (archive, &b"old"[..]));
    let moved = store.rename(&caller(START), from, to, RenameMode::Replace);
    moved.unwrap();
    let ask = || {
        let name = b":search?halving&limit=1000";
        let attr = store.lookup(archive, name).unwrap();
        let found = String::from_utf8(read(&store, attr.ino, 0, 1 << 24)).unwrap();
        assert!(found.starts_with("these 1000 notes match"), "{found:.80}");
        let mut lines = found.lines().skip(1);
        assert!(lines.all(|line| line.starts_with("old/n")));
    };
    std::thread::scope(|scope| {
        let indexes = std::thread::Builder::new().name(INDEXES.to_owned());
        let indexes = indexes.spawn_scoped(scope, ask).unwrap();
        // The thread of the memory may have indexed all before.
        while looked.load(Ordering::SeqCst) < 2 && !indexes.is_finished() {
            std::thread::yield_now();
        }
        // The other thread is at its second batch of 512 notes.
        std::thread::sleep(Duration::from_millis(5));
        ask();
    });
}
