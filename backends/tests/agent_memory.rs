//! Agent memory as its store is called: what is found, what is not, and what bad requests get.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use backends::agent_memory::AgentMemory;
use backends::sqlite::{SqliteStore, check};
use backends::store::{
    Caller, Change, Errno, Ino, Kind, ROOT, RenameMode, Store, Timestamp, XattrMode,
};
use common::{create, errno, names, node, read};
use proptest::prelude::*;

const DAY: i64 = 86_400_000_000_000;
/// 2026-11-22, more or less.
const START: i64 = 1_795_300_000_000_000_000;

/// A memory whose clock the test sets.
struct Memory {
    store: AgentMemory,
    now: Arc<AtomicI64>,
}

impl Memory {
    fn open(path: &Path, agent: Option<&str>) -> Self {
        let now = Arc::new(AtomicI64::new(START));
        let clock = Arc::clone(&now);
        let clock = move || Timestamp(clock.load(Ordering::Relaxed));
        let store = AgentMemory::open_at(path, &caller(START), agent, Box::new(clock)).unwrap();
        Self { store, now }
    }

    fn pass(&self, nanos: i64) -> i64 {
        self.now.fetch_add(nanos, Ordering::Relaxed) + nanos
    }

    fn caller(&self) -> Caller {
        caller(self.pass(1))
    }

    fn dir(&self, parent: Ino, name: &str) -> Ino {
        match self.store.lookup(parent, name.as_bytes()) {
            Ok(attr) => attr.ino,
            Err(_) => create(&self.store, parent, name, Kind::Directory).ino,
        }
    }

    fn write(&self, dir: Ino, name: &str, text: &str) -> Ino {
        self.write_bytes(dir, name, text.as_bytes())
    }

    fn write_bytes(&self, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
        let caller = self.caller();
        let ino = match self.store.lookup(dir, name.as_bytes()) {
            Ok(attr) => {
                let empty = Change {
                    size: Some(0),
                    ..Change::default()
                };
                self.store.setattr(&caller, attr.ino, &empty).unwrap();
                attr.ino
            }
            Err(_) => {
                let made = self
                    .store
                    .create(&caller, dir, name.as_bytes(), &node(Kind::File));
                made.unwrap().ino
            }
        };
        self.store.write(&caller, ino, 0, bytes).unwrap();
        self.store.close(ino).unwrap();
        ino
    }

    fn set(&self, ino: Ino, name: &str, value: &str) {
        let name = format!("user.ctx.{name}");
        let set = self.store.setxattr(
            &self.caller(),
            ino,
            name.as_bytes(),
            value.as_bytes(),
            XattrMode::Set,
        );
        set.unwrap();
    }

    /// What `cat NAME` shows.
    fn ask(&self, dir: Ino, name: &str) -> String {
        let attr = self.store.lookup(dir, name.as_bytes()).unwrap();
        let bytes = read(&self.store, attr.ino, 0, 1 << 24);
        assert_eq!(bytes.len() as u64, attr.size);
        String::from_utf8(bytes).unwrap()
    }

    fn last_error(&self) -> String {
        let stats = self.ask(ROOT, ":stats");
        let names = stats.lines().map(|line| line.split_once(": ").unwrap().0);
        let names: std::collections::BTreeSet<_> = names.collect();
        assert_eq!(
            names.len(),
            stats.lines().count(),
            "a line is forged: {stats}"
        );
        assert!(
            stats.lines().last().unwrap().starts_with("last-error: "),
            "{stats}"
        );
        stats.lines().last().unwrap().to_owned()
    }
}

fn caller(now: i64) -> Caller {
    Caller {
        uid: 1000,
        gid: 100,
        now: Timestamp(now),
    }
}

fn with_memory(test: impl FnOnce(&Memory)) {
    let dir = tempfile::tempdir().unwrap();
    test(&Memory::open(&dir.path().join("m.db"), None));
}

#[test]
fn what_is_written_is_found_at_once_with_or_without_close() {
    with_memory(|memory| {
        assert!(memory.ask(ROOT, ":search?RSI").starts_with("nothing found"));
        let ino = memory.write(ROOT, "rule.md", "RSI > 70 means exit\n");
        let found = memory.ask(ROOT, ":search?RSI");
        assert!(
            found.contains("/rule.md") && found.contains("RSI > 70 means exit"),
            "{found}"
        );
        // Not closed: whoever asks sees what was written all the same.
        memory
            .store
            .write(&memory.caller(), ino, 20, b"MACD too\n")
            .unwrap();
        assert!(memory.ask(ROOT, ":search?MACD").contains("/rule.md"));
        memory.write(ROOT, "rule.md", "nothing of the sort\n");
        assert!(
            memory
                .ask(ROOT, ":search?MACD")
                .starts_with("nothing found")
        );
        memory
            .store
            .unlink(&memory.caller(), ROOT, b"rule.md")
            .unwrap();
        assert!(
            memory
                .ask(ROOT, ":search?sort")
                .starts_with("nothing found")
        );
        assert!(memory.ask(ROOT, ":history").contains("removed /rule.md"));
    });
}

#[test]
fn requests_are_in_no_listing_and_take_no_writing() {
    with_memory(|memory| {
        memory.write(ROOT, "a.md", "alpha\n");
        memory.ask(ROOT, ":stats");
        memory.ask(ROOT, "a.md:meta");
        assert_eq!(names(&memory.store, ROOT), ["a.md"]);
        let answer = memory.store.lookup(ROOT, b":stats").unwrap();
        assert_eq!((answer.nlink, answer.permissions), (0, 0o444));
        let store = &memory.store;
        let caller = memory.caller();
        assert_eq!(
            errno(store.write(&caller, answer.ino, 0, b"x")),
            Errno::PERM
        );
        assert_eq!(
            errno(store.setattr(&caller, answer.ino, &Change::default())),
            Errno::PERM
        );
        assert_eq!(errno(store.lookup(answer.ino, b"x")), Errno::NOTDIR);
        for name in [&b":stats"[..], b":search?x", b"a.md:meta"] {
            let made = store.create(&caller, ROOT, name, &node(Kind::File));
            assert_eq!(errno(made), Errno::EXIST);
            let renamed = store.rename(&caller, (ROOT, b"a.md"), (ROOT, name), RenameMode::Replace);
            assert_eq!(errno(renamed), Errno::EXIST);
        }
        // Other names with colons are names.
        for name in [&b":note"[..], b"mail:2,S", b"b.md:meta", b":searching"] {
            store
                .create(&caller, ROOT, name, &node(Kind::File))
                .unwrap();
        }
        assert_eq!(errno(store.lookup(ROOT, b":nothing")), Errno::NOENT);
    });
}

#[test]
fn a_file_that_has_the_name_of_a_request_stays_reachable() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    let made = create(&plain, ROOT, ":stats", Kind::File);
    plain
        .write(&caller(START), made.ino, 0, b"my own\n")
        .unwrap();
    drop(plain);
    let memory = Memory::open(&path, None);
    assert_eq!(memory.ask(ROOT, ":stats"), "my own\n");
    assert_eq!(names(&memory.store, ROOT), [":stats"]);
    memory
        .store
        .unlink(&memory.caller(), ROOT, b":stats")
        .unwrap();
    assert!(memory.ask(ROOT, ":stats").contains("notes: 0"));
}

#[test]
fn what_was_written_while_nobody_indexed_is_found_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let memory = Memory::open(&path, None);
    memory.write(ROOT, "first.md", "alpha\n");
    drop(memory);
    // As `ctxbench mount sqlite` would, and as a crash before the index was written leaves it.
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    for number in 0..1200 {
        let file = create(&plain, ROOT, &format!("n{number}.md"), Kind::File);
        plain
            .write(
                &caller(START),
                file.ino,
                0,
                format!("beta{number}\n").as_bytes(),
            )
            .unwrap();
    }
    plain.unlink(&caller(START), ROOT, b"first.md").unwrap();
    drop(plain);
    let memory = Memory::open(&path, None);
    assert!(
        memory
            .ask(ROOT, ":search?alpha")
            .starts_with("nothing found")
    );
    assert!(memory.ask(ROOT, ":search?beta777").contains("/n777.md"));
    assert_eq!(memory.store.notes(), 1200);
    drop(memory);
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn what_the_document_says_drops_the_index_and_the_next_mount_builds_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let memory = Memory::open(&path, None);
    memory.write(ROOT, "a.md", "alpha\n");
    drop(memory);
    let document = include_str!("../../docs/MEMORY.md");
    let (_, rest) = document.split_once("```sql\n").unwrap();
    let (commands, _) = rest.split_once("```").unwrap();
    let db = rusqlite::Connection::open(&path).unwrap();
    db.execute_batch(commands).unwrap();
    let left: i64 = db
        .query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'memory%' OR tbl_name LIKE 'memory%'",
            (),
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(left, 0, "the document names them all");
    drop(db);
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    create(&plain, ROOT, "b.md", Kind::File);
    drop(plain);
    let memory = Memory::open(&path, None);
    assert!(memory.ask(ROOT, ":search?alpha").contains("/a.md"));
    assert_eq!(memory.store.notes(), 2);
    assert_eq!(check(&path).unwrap().problems, Vec::<String>::new());
}

#[test]
fn what_another_mount_has_written_is_by_nobody_and_of_then() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    let write = |name: &str, text: &[u8]| {
        let at = caller(START + DAY);
        let made = plain.create(&at, ROOT, name.as_bytes(), &node(Kind::File));
        plain.write(&at, made.unwrap().ino, 0, text).unwrap();
    };
    write("old.md", b"alpha\n");
    write("kim.md", b"---\nauthor: kim\n---\nalpha\n");
    drop(plain);
    let now = || Timestamp(START + 30 * DAY);
    let store =
        AgentMemory::open_at(&path, &caller(START), Some("mallory"), Box::new(now)).unwrap();
    let memory = Memory {
        store,
        now: Arc::new(AtomicI64::new(START + 30 * DAY)),
    };
    let day = |days: i64| {
        let at = jiff::Timestamp::from_nanosecond((START + days * DAY).into()).unwrap();
        at.strftime("%Y-%m-%d").to_string()
    };
    let history = memory.ask(ROOT, "old.md:history");
    assert!(
        history.starts_with(&day(1)) && !history.contains("mallory"),
        "{history}"
    );
    assert!(memory.ask(ROOT, "old.md:meta").contains("author: \n"));
    assert!(!memory.ask(ROOT, ":recall?alpha").contains("mallory"));
    assert!(memory.ask(ROOT, "kim.md:meta").contains("author: kim\n"));
    memory.write(ROOT, "old.md", "alpha and beta\n");
    let history = memory.ask(ROOT, "old.md:history");
    assert!(history.starts_with(&day(30)), "{history}");
    assert!(
        memory
            .ask(ROOT, "old.md:meta")
            .contains("author: mallory\n")
    );
}

#[test]
fn newest_first_is_by_time_whatever_is_indexed_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    // The later its number, the older it is: as `cp -p` and `tar` make files.
    for number in 0..600 {
        let file = create(&plain, ROOT, &format!("n{number}.md"), Kind::File);
        let at = caller(START - number * DAY / 24);
        plain.write(&at, file.ino, 0, b"halving\n").unwrap();
    }
    drop(plain);
    let memory = Memory::open(&path, None);
    let newest = |limit: usize| {
        let found = memory.ask(ROOT, &format!(":search?halving&limit={limit}"));
        let names = found
            .lines()
            .skip(1)
            .filter_map(|line| line.split(' ').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(newest(3), ["/n0.md", "/n1.md", "/n2.md"]);
    assert!(
        memory
            .ask(ROOT, ":search?halving&limit=3")
            .starts_with("these 3 notes match; more were indexed")
    );
    // One that comes late, with a time between the first two.
    let late = create(&memory.store, ROOT, "late.md", Kind::File);
    let at = caller(START - DAY / 48);
    memory.store.write(&at, late.ino, 0, b"halving\n").unwrap();
    assert_eq!(newest(3), ["/n0.md", "/late.md", "/n1.md"]);
}

#[test]
fn a_directory_is_asked_about_what_is_below_it_also_after_it_has_moved() {
    with_memory(|memory| {
        let trading = memory.dir(ROOT, "trading");
        let deep = memory.dir(trading, "2026");
        memory.write(deep, "btc.md", "halving lesson\n");
        memory.write(ROOT, "home.md", "halving of rent\n");
        assert!(
            memory
                .ask(ROOT, ":search?halving")
                .starts_with("2 notes match")
        );
        let found = memory.ask(trading, ":search?halving");
        assert!(found.starts_with("1 notes match") && found.contains("/trading/2026/btc.md"));
        let other = memory.dir(ROOT, "archive");
        memory
            .store
            .rename(
                &memory.caller(),
                (ROOT, b"trading"),
                (other, b"old"),
                RenameMode::Replace,
            )
            .unwrap();
        assert!(
            memory
                .ask(other, ":search?halving")
                .contains("/archive/old/2026/btc.md")
        );
        assert!(
            memory
                .ask(other, ":recall?halving")
                .contains("## /archive/old/2026/btc.md")
        );
        let empty = memory.dir(ROOT, "empty");
        assert!(
            memory
                .ask(empty, ":recall?halving")
                .starts_with("# nothing found")
        );
    });
}

#[test]
fn who_asks_while_others_index_gets_the_answer_of_a_whole_index() {
    const INDEXES: &str = "indexes";
    // Whoever indexes looks at the clock before each batch. Before the third, when there is an index of some notes and
    // nobody holds the database, it takes its time.
    let looked = Arc::new(AtomicI64::new(0));
    let looks = Arc::clone(&looked);
    let clock = move || {
        if std::thread::current().name() == Some(INDEXES)
            && looks.fetch_add(1, Ordering::SeqCst) >= 2
        {
            std::thread::sleep(Duration::from_millis(200));
        }
        Timestamp(START)
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let store = AgentMemory::open_at(&path, &caller(START), None, Box::new(clock)).unwrap();
    let old = create(&store, ROOT, "old", Kind::Directory).ino;
    let archive = create(&store, ROOT, "archive", Kind::Directory).ino;
    for number in 0..1500 {
        let made = create(&store, old, &format!("n{number}.md"), Kind::File);
        let text = format!("halving {number}\n");
        store
            .write(&caller(START), made.ino, 0, text.as_bytes())
            .unwrap();
    }
    store.close(old).unwrap();
    let replace = RenameMode::Replace;
    store
        .rename(&caller(START), (ROOT, b"old"), (archive, b"old"), replace)
        .unwrap();
    let ask = || {
        let name = b":search?halving&limit=1000";
        let attr = store.lookup(archive, name).unwrap();
        let found = String::from_utf8(read(&store, attr.ino, 0, 1 << 24)).unwrap();
        assert!(found.starts_with("these 1000 notes match"), "{found:.80}");
        let mut lines = found.lines().skip(1);
        assert!(lines.all(|line| line.starts_with("/archive/old/")));
    };
    std::thread::scope(|scope| {
        let indexes = std::thread::Builder::new().name(INDEXES.to_owned());
        indexes.spawn_scoped(scope, ask).unwrap();
        while looked.load(Ordering::SeqCst) < 2 {
            std::thread::yield_now();
        }
        // It is at the second batch: the first 512 notes.
        std::thread::sleep(Duration::from_millis(5));
        ask();
    });
}

#[test]
fn a_directory_with_the_number_of_one_that_is_gone_has_not_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let memory = Memory::open(&path, None);
    // The last number of all is the one that is used again.
    let note = memory.write(ROOT, "secret.md", "alpha\n");
    let make = |memory: &Memory, name: &str| {
        let made = memory.store.create(
            &memory.caller(),
            ROOT,
            name.as_bytes(),
            &node(Kind::Directory),
        );
        made.unwrap().ino
    };
    let gone = make(&memory, "gone");
    let places = [
        (ROOT, b"secret.md".as_slice(), gone),
        (gone, b"secret.md".as_slice(), ROOT),
    ];
    for (from, name, to) in places {
        let moved = (to, name);
        memory
            .store
            .rename(&memory.caller(), (from, name), moved, RenameMode::Replace)
            .unwrap();
        memory.set(note, "importance", "0.9");
        let mut caller = memory.caller();
        caller.now = Timestamp(memory.pass(1_000_000));
        memory.store.write(&caller, note, 0, b"beta\n").unwrap();
        memory.store.close(note).unwrap();
    }
    assert!(memory.ask(gone, ":history").contains("/gone/secret.md"));
    let removed = memory.store.rmdir(&memory.caller(), ROOT, b"gone");
    memory.store.reclaim(removed.unwrap().unwrap()).unwrap();
    drop(memory);
    let memory = Memory::open(&path, None);
    memory.pass(DAY);
    let new = make(&memory, "new");
    assert_eq!(new, gone, "the number is used again");
    let history = memory.ask(new, ":history");
    assert!(history.starts_with("nothing has happened"), "{history}");
}

#[test]
fn another_agents_private_notes_are_neither_seen_nor_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let akashi = Memory::open(&path, Some("akashi"));
    let memory_dir = akashi.dir(ROOT, "memory");
    let private = akashi.dir(memory_dir, "private");
    let own = akashi.dir(private, "akashi");
    let shared = akashi.dir(memory_dir, "shared");
    let market = akashi.dir(shared, "market");
    akashi.write(own, "secret.md", "tags: none\nregime alpha\n");
    let note = akashi.write(market, "regime.md", "regime risk-off\n");
    akashi.set(note, "tags", "macro");
    assert!(akashi.ask(ROOT, ":search?regime").starts_with("2 notes"));
    // Nobody moves the namespaces, or makes another agent's.
    let store = &akashi.store;
    let caller = akashi.caller();
    assert_eq!(errno(store.rmdir(&caller, private, b"akashi")), Errno::BUSY);
    let moved = store.rename(
        &caller,
        (ROOT, b"memory"),
        (ROOT, b"m"),
        RenameMode::Replace,
    );
    assert_eq!(errno(moved), Errno::BUSY);
    let made = store.create(&caller, private, b"bob", &node(Kind::Directory));
    assert_eq!(errno(made), Errno::PERM);
    drop(akashi);

    let bob = Memory::open(&path, Some("bob"));
    assert_eq!(names(&bob.store, private), ["bob"]);
    assert_eq!(errno(bob.store.lookup(private, b"akashi")), Errno::NOENT);
    for request in [
        ":search?regime",
        ":search?regime OR secret",
        ":search?\"regime\"",
        ":recall?regime+alpha",
        ":tags",
        ":ttl",
        ":history",
        ":meta",
    ] {
        let answer = bob.ask(ROOT, request);
        assert!(!answer.contains("secret.md"), "{request}: {answer}");
    }
    assert!(bob.ask(ROOT, ":search?regime").starts_with("1 notes"));
    assert!(
        bob.ask(private, ":search?alpha")
            .starts_with("nothing found")
    );
    let escape = format!(":search?regime)+OR+within:d{own}+OR+(regime");
    assert_eq!(
        errno(bob.store.lookup(ROOT, escape.as_bytes())),
        Errno::INVAL
    );
    let escape = format!(":search?within:d{own}");
    assert!(bob.ask(ROOT, &escape).starts_with("nothing found"));
    assert!(bob.ask(ROOT, ":stats").contains("notes-below: 1\n"));
}

#[test]
fn the_history_of_a_note_tells_nothing_of_places_that_others_may_not_see() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let akashi = Memory::open(&path, Some("akashi"));
    let memory_dir = akashi.dir(ROOT, "memory");
    let private = akashi.dir(memory_dir, "private");
    let own = akashi.dir(private, "akashi");
    let shared = akashi.dir(memory_dir, "shared");
    akashi.write(own, "takeover-of-acme.md", "draft\n");
    let renamed = akashi.store.rename(
        &akashi.caller(),
        (own, b"takeover-of-acme.md"),
        (shared, b"plan.md"),
        RenameMode::Replace,
    );
    renamed.unwrap();
    akashi.write(shared, "plan.md", "the plan\n");
    let history = akashi.ask(shared, "plan.md:history");
    assert!(
        history.contains("written /memory/private/akashi/takeover-of-acme.md"),
        "{history}"
    );
    drop(akashi);
    // Beside the private directories, where no agent can put one.
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    create(&plain, private, "stray-secret.md", Kind::File);
    drop(plain);

    let bob = Memory::open(&path, Some("bob"));
    bob.pass(DAY);
    let history = bob.ask(shared, "plan.md:history");
    assert!(
        history.contains("changed /memory/shared/plan.md"),
        "{history}"
    );
    assert!(
        !history.contains("acme") && !history.contains("private"),
        "{history}"
    );
    let meta = bob.ask(private, ":meta");
    assert!(!meta.contains("stray"), "{meta}");
}

#[test]
fn a_note_with_two_names_is_found_by_the_one_that_is_not_private() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let akashi = Memory::open(&path, Some("akashi"));
    let memory_dir = akashi.dir(ROOT, "memory");
    let private = akashi.dir(memory_dir, "private");
    let own = akashi.dir(private, "akashi");
    let shared = akashi.dir(memory_dir, "shared");
    // Made last, so that it is not the first of them by number either.
    let market = akashi.dir(shared, "market");
    assert!(market > own);
    let ino = akashi.write(own, "draft.md", "regime alpha\n");
    let link = |memory: &Memory| {
        let linked = memory
            .store
            .link(&memory.caller(), ino, market, b"regime.md");
        linked.unwrap();
    };
    link(&akashi);
    assert!(
        akashi
            .ask(ROOT, ":search?alpha")
            .contains("/memory/shared/market/regime.md")
    );
    drop(akashi);
    let bob = Memory::open(&path, Some("bob"));
    for request in [":search?alpha", ":recall?alpha"] {
        let found = bob.ask(market, request);
        assert!(
            found.contains("/memory/shared/market/regime.md"),
            "{request}: {found}"
        );
        assert!(!found.contains("draft.md"), "{request}: {found}");
    }
    let history = bob.ask(market, "regime.md:history");
    assert!(!history.contains("draft.md"), "{history}");
    drop(bob);
    // Without the other name it is akashi's alone again.
    let akashi = Memory::open(&path, Some("akashi"));
    akashi
        .store
        .unlink(&akashi.caller(), market, b"regime.md")
        .unwrap();
    assert!(
        akashi
            .ask(own, ":search?alpha")
            .contains("/akashi/draft.md")
    );
    drop(akashi);
    let bob = Memory::open(&path, Some("bob"));
    assert!(bob.ask(ROOT, ":search?alpha").starts_with("nothing found"));
}

#[test]
fn a_file_with_the_number_of_one_that_is_gone_has_not_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let memory = Memory::open(&path, None);
    let gone = memory.write(ROOT, "gone.md", "alpha\n");
    let removed = memory.store.unlink(&memory.caller(), ROOT, b"gone.md");
    assert_eq!(removed.unwrap(), Some(gone));
    memory.store.reclaim(gone).unwrap();
    memory.ask(ROOT, ":stats");
    drop(memory);
    let memory = Memory::open(&path, None);
    memory.pass(DAY);
    let new = memory.write(ROOT, "new.md", "beta\n");
    assert_eq!(new, gone, "the number is used again");
    let history = memory.ask(ROOT, "new.md:history");
    assert!(history.contains("written /new.md"), "{history}");
    assert_eq!(history.lines().count(), 1, "{history}");
    // What has happened in a directory is known all the same.
    assert!(memory.ask(ROOT, ":history").contains("removed /gone.md"));
}

#[test]
fn metadata_comes_from_attributes_and_front_matter_and_attributes_win() {
    with_memory(|memory| {
        let ino = memory.write(
            ROOT,
            "n.md",
            "---\nimportance: 0.9\ntags: [trading]\nauthor: kim\n---\nbody of it\n",
        );
        let meta = memory.ask(ROOT, "n.md:meta");
        assert!(
            meta.contains("importance: 0.9\ntags: trading\nttl: never expires\nauthor: kim\n"),
            "{meta}"
        );
        memory.set(ino, "importance", "0.2");
        memory.set(ino, "tags", "nvda,trading");
        assert!(
            memory
                .ask(ROOT, "n.md:meta")
                .contains("importance: 0.2\ntags: nvda,trading\n")
        );
        assert_eq!(memory.ask(ROOT, "n.md:tags"), "nvda\ntrading\n");
        assert_eq!(memory.ask(ROOT, ":tags"), "1 nvda\n1 trading\n");
        assert!(memory.ask(ROOT, ":meta").contains("n.md: 2026-"));
        assert!(memory.ask(ROOT, ":search?tags:nvda").contains("/n.md"));
        // Front matter is not what a note is about.
        assert!(memory.ask(ROOT, ":search?kim").starts_with("nothing found"));
        assert!(!memory.ask(ROOT, ":recall?body").contains("---"));
        memory
            .store
            .removexattr(&memory.caller(), ino, b"user.ctx.importance")
            .unwrap();
        assert!(memory.ask(ROOT, "n.md:meta").contains("importance: 0.9\n"));

        let wrong = memory.store.setxattr(
            &memory.caller(),
            ino,
            b"user.ctx.importance",
            b"very",
            XattrMode::Set,
        );
        assert_eq!(errno(wrong), Errno::INVAL);
        assert!(
            memory
                .last_error()
                .contains("importance must be a number from 0 to 1")
        );
        memory.write(ROOT, "odd.md", "---\nimportance: [\n---\nodd text\n");
        assert!(
            memory
                .ask(ROOT, "odd.md:meta")
                .contains("front-matter: not understood")
        );
        assert!(memory.ask(ROOT, ":search?odd").contains("/odd.md"));
    });
}

#[test]
fn what_has_expired_is_not_found_but_can_still_be_read_and_listed() {
    with_memory(|memory| {
        let dir = memory.dir(ROOT, "notes");
        let ino = memory.write(dir, "soon.md", "ephemeral fact\n");
        memory.write(dir, "always.md", "lasting fact\n");
        memory.set(ino, "ttl", "7d");
        assert!(memory.ask(ROOT, ":search?fact").starts_with("2 notes"));
        assert!(
            memory
                .ask(ROOT, ":ttl")
                .contains("/notes/soon.md expires 2026-")
        );
        assert_eq!(memory.ask(dir, ":ttl?expired"), "");
        memory.pass(8 * DAY);
        assert!(memory.ask(ROOT, ":search?fact").starts_with("1 notes"));
        assert!(!memory.ask(ROOT, ":recall?fact").contains("ephemeral"));
        assert_eq!(memory.ask(dir, ":ttl?expired"), "./soon.md\0");
        assert_eq!(memory.ask(ROOT, ":ttl?expired"), "./notes/soon.md\0");
        assert_eq!(read(&memory.store, ino, 0, 100), b"ephemeral fact\n");
        // Written again, it lives again.
        memory.write(dir, "soon.md", "ephemeral fact, renewed\n");
        assert!(memory.ask(ROOT, ":search?fact").starts_with("2 notes"));
    });
}

#[test]
fn a_name_of_several_lines_is_shown_on_one_and_expires_as_itself() {
    with_memory(|memory| {
        memory.write(ROOT, "victim.md", "kept fact\n");
        let odd = memory.write(ROOT, "x\nvictim.md", "odd fact\n");
        memory.set(odd, "ttl", "1d");
        for (request, lines) in [
            (":search?odd", 2),
            (":ttl", 1),
            (":history", 2),
            (":meta", 2),
            (":recall?odd", 4),
        ] {
            let answer = memory.ask(ROOT, request);
            assert!(answer.contains("x\\nvictim.md"), "{request}: {answer}");
            assert_eq!(answer.lines().count(), lines, "{request}: {answer}");
        }
        memory.pass(2 * DAY);
        assert_eq!(memory.ask(ROOT, ":ttl?expired"), "./x\nvictim.md\0");
    });
}

#[test]
fn bad_requests_are_einval_with_a_reason_and_never_empty() {
    with_memory(|memory| {
        memory.write(ROOT, "a.md", "it's 50% \"quoted\" text\nof two lines\n");
        for (request, reason) in [
            (":search?AND", "syntax error"),
            (":search?\"open", "unterminated string"),
            (":search?a+(b", "syntax error"),
            (":search?a)", "syntax error"),
            (":search?colour:a", "no such column"),
            (":search?it's", "syntax error"),
            (":search?it's%0Anotes: 999", "it's\\nnotes: 999"),
            (":search?it's\nnotes: 999", "it's\\nnotes: 999"),
            (":search?", "nothing to search for"),
            (":recall?query=&max_tokens=100", "no words"),
            (":recall?query=x&max_tokens=0", "from 64 to"),
            (":recall?query=x&max_tokens=-3", "from 64 to"),
            (":recall?query=x&max_tokens=lots", "from 64 to"),
            (":recall?query=x&strategy=fastest", "no strategy"),
            (":recall?file=missing.txt", "missing.txt"),
        ] {
            let refused = memory.store.lookup(ROOT, request.as_bytes());
            assert_eq!(errno(refused), Errno::INVAL, "{request}");
            let said = memory.last_error();
            assert!(said.contains(reason), "{request}: {said}");
        }
        let long = format!(":search?{}", "word+".repeat(13_000));
        assert_eq!(
            errno(memory.store.lookup(ROOT, long.as_bytes())),
            Errno::INVAL
        );
        assert!(memory.last_error().contains("4096 is the most"));
        // What only looks bad is answered.
        assert!(memory.ask(ROOT, ":search?\"it's+50%25\"").contains("/a.md"));
        assert!(memory.ask(ROOT, ":search?text%0Alines").contains("/a.md"));
        assert!(
            memory
                .ask(ROOT, ":recall?it's+\"50%25\"+(text")
                .contains("/a.md")
        );
        assert!(
            memory
                .ask(ROOT, ":recall?AND+OR+NOT+text")
                .contains("/a.md")
        );
        memory.write(
            ROOT,
            "question.txt",
            &format!("{} quoted", "what ".repeat(500)),
        );
        assert!(
            memory
                .ask(ROOT, ":recall?file=question.txt")
                .contains("/a.md")
        );
        memory.write(ROOT, "large.txt", &"word ".repeat(13_000));
        assert_eq!(
            errno(memory.store.lookup(ROOT, b":recall?file=large.txt")),
            Errno::INVAL
        );
        assert!(memory.last_error().contains("4096 is the most"));
    });
}

#[test]
fn strategies_order_relevant_notes_as_they_say() {
    with_memory(|memory| {
        let old = memory.write(ROOT, "old.md", "NVDA risk is high after earnings\n");
        memory.set(old, "importance", "1");
        memory.pass(300 * DAY);
        let middle = memory.write(ROOT, "middle.md", "NVDA risk is moderate\n");
        memory.set(middle, "importance", "0.6");
        memory.pass(30 * DAY);
        let new = memory.write(ROOT, "new.md", "NVDA risk is low\n");
        memory.set(new, "importance", "0.1");
        for number in 0..30 {
            memory.write(ROOT, &format!("other{number}.md"), "weather in Lisbon\n");
        }
        let order = |strategy: &str| {
            let text = memory.ask(ROOT, &format!(":recall?NVDA+risk&strategy={strategy}"));
            text.lines()
                .filter_map(|line| line.strip_prefix("## /"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(order("recency"), ["new.md", "middle.md", "old.md"]);
        assert_eq!(order("importance"), ["old.md", "middle.md", "new.md"]);
        // As relevant as each other: 1 × 30/360 < 0.1 × 1 < 0.6 × ½.
        assert_eq!(order("balanced"), ["middle.md", "new.md", "old.md"]);
        let missing = memory.ask(ROOT, ":recall?NVDA+zebra");
        assert!(missing.contains("# in no note: zebra"), "{missing}");
    });
}

#[test]
fn how_many_notes_are_relevant_is_only_said_where_it_is_known() {
    with_memory(|memory| {
        for number in 0..60 {
            memory.write(ROOT, &format!("n{number}.md"), "NVDA risk\n");
        }
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100000");
        assert!(
            answer.starts_with("# 50 of 60 relevant notes, "),
            "{answer:.80}"
        );
        for number in 60..200 {
            memory.write(ROOT, &format!("n{number}.md"), "NVDA risk\n");
        }
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100000");
        assert!(
            answer.starts_with("# 50 of 64 best candidates, "),
            "{answer:.80}"
        );
    });
}

#[test]
fn what_does_not_fit_takes_nobodys_place() {
    with_memory(|memory| {
        let small = memory.write(ROOT, "small.md", "NVDA risk\n");
        memory.set(small, "importance", "0");
        for number in 0..55 {
            let text = format!("NVDA risk\n{}", "and more of it ".repeat(60));
            let ino = memory.write(ROOT, &format!("n{number}.md"), &text);
            memory.set(ino, "importance", "1");
        }
        let answer = memory.ask(ROOT, ":recall?NVDA&max_tokens=100");
        assert!(answer.contains("## /small.md"), "{answer}");
    });
}

#[test]
fn binary_files_are_found_by_name_only_and_stay_as_they_are() {
    with_memory(|memory| {
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let file = create(&memory.store, ROOT, "chart-nvda.png", Kind::File);
        memory
            .store
            .write(&memory.caller(), file.ino, 0, &bytes)
            .unwrap();
        memory.store.close(file.ino).unwrap();
        assert_eq!(read(&memory.store, file.ino, 0, 10_000), bytes);
        assert!(memory.ask(ROOT, ":search?nvda").contains("(not text)"));
        assert!(
            memory
                .ask(ROOT, "chart-nvda.png:meta")
                .contains("it is not text")
        );
        assert!(memory.ask(ROOT, ":stats").contains("not-text: 1"));
    });
}

#[test]
fn a_file_that_is_not_utf8_is_not_shown_and_costs_a_recall_what_it_counts() {
    with_memory(|memory| {
        // Latin-1: no NUL byte, and no UTF-8 either.
        let latin = b"caf\xe9 r\xe9sum\xe9 na\xefve \xfcber ".repeat(30);
        for number in 0..40 {
            memory.write_bytes(ROOT, &format!("regime {number}.txt"), &latin);
        }
        let answer = memory.ask(ROOT, ":recall?regime&max_tokens=500");
        assert!(tokens::count(&answer) <= 500, "{answer}");
        assert!(!answer.contains("caf"), "{answer}");
        let found = memory.ask(ROOT, ":search?regime");
        assert!(
            found.contains("(not text)") && !found.contains("caf"),
            "{found}"
        );
    });
}

/// Text of every script, or bytes that are none.
fn note_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-zé/#. \\n-]{0,400}".prop_map(String::into_bytes),
        "(?s).{0,200}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..400),
        // Hardly ever with a NUL among them, as in Latin-1.
        prop::collection::vec(0x20u8..=255, 0..400),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_recall_never_exceeds_its_budget(
        notes in prop::collection::vec((note_bytes(), 0u8..4, "[a-z]{1,12}"), 1..40),
        question in "[a-z]{1,3}( [a-z]{1,3}){0,6}",
        budgets in prop::collection::vec(64u64..3000, 1..6),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let memory = Memory::open(&dir.path().join("m.db"), None);
        for (number, (text, repeat, tag)) in notes.iter().enumerate() {
            // By its name, too: what is not text is found by nothing else.
            let mut bytes = format!("{question}\n").into_bytes();
            bytes.extend(text.repeat(1 << (2 * repeat)));
            let ino = memory.write_bytes(ROOT, &format!("{question} {number} {tag}.md"), &bytes);
            if number % 3 == 0 {
                memory.set(ino, "tags", tag);
            }
        }
        for budget in budgets {
            for strategy in ["recency", "importance", "balanced"] {
                let question = question.replace(' ', "+");
                let answer = memory.ask(ROOT, &format!(":recall?{question}&max_tokens={budget}&strategy={strategy}"));
                let counted = tokens::count(&answer);
                prop_assert!(counted <= budget, "{counted} of {budget}: {answer}");
                prop_assert!(answer.starts_with("# "));
                if let Some((said, _)) = answer.split_once(&format!(" of {budget} tokens, ")) {
                    let (_, said) = said.split_once(", ").unwrap();
                    prop_assert_eq!(said.parse::<u64>().ok(), Some(counted));
                }
            }
        }
    }

    #[test]
    fn any_request_is_answered_or_refused_with_a_reason(name in "(?s):(search|recall)\\?.{0,60}") {
        with_memory(|memory| {
            memory.write(ROOT, "a.md", "alpha beta\n");
            match memory.store.lookup(ROOT, name.as_bytes()) {
                Ok(attr) => assert!(attr.size > 0, "{name:?}"),
                Err(error) => {
                    assert_eq!(error.errno, Errno::INVAL, "{name:?}: {error}");
                    assert!(error.reason.is_some());
                }
            }
        });
    }
}
