//! Paths, privacy and history of notes.

use super::{DAY, Memory, START, caller, with_memory};
use crate::common::{create, errno, names, node};
use backends::sqlite::SqliteStore;
use backends::store::{Errno, Kind, ROOT, RenameMode, Store, Timestamp};

#[test]
fn a_request_covers_the_notes_below_its_directory_also_after_a_rename() {
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
fn a_directory_with_a_reused_inode_number_has_no_old_history() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.db");
    let memory = Memory::open(&path, None);
    // Only the highest inode number is reused.
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
        memory.store.lookup(ROOT, b":stats").unwrap();
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
fn a_mount_hides_the_private_notes_of_other_agents() {
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
    // An agent can neither move the namespaces nor create another agent's.
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
fn the_history_of_a_note_hides_private_directories_of_other_agents() {
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
    // A file in `/memory/private` itself, where no agent can create one.
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
    // Created last, so that its inode number is not the lower one.
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
    // Without the shared name the note is private again.
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
fn a_file_with_a_reused_inode_number_has_no_old_history() {
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
    // The history of the directory still has its events.
    assert!(memory.ask(ROOT, ":history").contains("removed /gone.md"));
}
