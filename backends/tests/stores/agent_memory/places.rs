//! Paths, privacy and history of notes.

use std::path::Path;

use fuse::store::{Errno, Ino, Kind, NewNode, ROOT, RenameMode, Store, Timestamp};
use sqlite::SqliteStore;

use super::{DAY, Memory, START, caller, place, with_memory};
use crate::common::{create, errno, has, lacks, names, node};

/// The memory as akashi mounts it: all private directories, akashi's own, and the shared one.
fn akashi(path: &Path) -> (Memory, [Ino; 3]) {
    let akashi = Memory::open(path, Some("akashi"));
    let memory = akashi.dir(ROOT, "memory");
    let private = akashi.dir(memory, "private");
    let home = akashi.dir(private, "akashi");
    let shared = akashi.dir(memory, "shared");
    (akashi, [private, home, shared])
}

#[test]
fn a_directory_renamed_before_many_changes_has_its_notes_at_their_new_path() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Memory::open(&dir.path().join("m.db"), None);
    let old = memory.dir(ROOT, "old");
    memory.write(old, "a.md", "zebra");
    // More than a request indexes at once.
    let changed: Vec<Ino> =
        (0..600).map(|at| create(&memory.store, ROOT, &format!("{at}.md"), Kind::File).ino).collect();
    memory.ask(ROOT, ":meta");
    memory.rename((ROOT, "old"), (ROOT, "new"));
    for ino in changed {
        let written = memory.store.write(&memory.caller(), ino, 0, b"horse");
        written.unwrap();
    }
    memory.says(ROOT, ":recall?query=zebra", &["## /new/a.md"]);
    memory.says(ROOT, ":stats", &["\nwaiting-to-be-indexed: 0\n"]);
}

#[test]
fn a_request_covers_the_notes_below_its_directory_also_after_a_rename() {
    with_memory(|memory| {
        let trading = memory.dir(ROOT, "trading");
        let deep = memory.dir(trading, "2026");
        memory.write(deep, "btc.md", "halving lesson\n");
        memory.write(ROOT, "home.md", "halving of rent\n");
        has(&memory.ask(ROOT, ":search?halving"), &["2 notes match"]);
        let found = memory.ask(trading, ":search?halving");
        has(&found, &["1 note matches", "\n2026/btc.md "]);
        let other = memory.dir(ROOT, "archive");
        memory.rename((ROOT, "trading"), (other, "old"));
        memory.says(other, ":search?halving", &["\nold/2026/btc.md "]);
        memory.says(other, ":recall?halving", &["## old/2026/btc.md\n"]);
        let empty = memory.dir(ROOT, "empty");
        memory.finds_nothing(empty, ":recall?halving");
    });
}

#[test]
fn a_directory_with_a_reused_inode_number_has_no_old_history() {
    let (_dir, path) = place();
    let memory = Memory::open(&path, None);
    // Only the highest inode number is reused.
    let note = memory.write(ROOT, "secret.md", "alpha\n");
    let make = |memory: &Memory, name: &str| {
        let (caller, new) = (memory.caller(), node(Kind::Directory));
        let made = memory.store.create(&caller, ROOT, name.as_bytes(), &new);
        made.unwrap().ino
    };
    let gone = make(&memory, "gone");
    for (from, to) in [(ROOT, gone), (gone, ROOT)] {
        memory.rename((from, "secret.md"), (to, "secret.md"));
        memory.set(note, "importance", "0.9");
        let mut caller = memory.caller();
        caller.now = Timestamp(memory.pass(1_000_000));
        memory.store.write(&caller, note, 0, b"beta\n").unwrap();
        memory.store.lookup(ROOT, b":stats").unwrap();
    }
    has(&memory.ask(gone, ":history"), &[" secret.md "]);
    let removed = memory.store.rmdir(&memory.caller(), ROOT, b"gone");
    memory.store.reclaim(removed.unwrap().unwrap()).unwrap();
    drop(memory);
    let memory = Memory::open(&path, None);
    memory.pass(DAY);
    let new = make(&memory, "new");
    assert_eq!(new, gone, "the number is used again");
    let history = memory.ask(new, ":history");
    assert!(history.starts_with("no event below"), "{history}");
}

#[test]
fn a_mount_hides_the_private_notes_of_other_agents() {
    let (_dir, path) = place();
    let (akashi, [private, home, shared]) = akashi(&path);
    let market = akashi.dir(shared, "market");
    akashi.write(home, "secret.md", "tags: none\nregime alpha\n");
    let note = akashi.write(market, "regime.md", "regime risk-off\n");
    akashi.set(note, "tags", "macro");
    assert!(akashi.ask(ROOT, ":search?regime").starts_with("2 notes"));
    // An agent can neither move the namespaces nor create another agent's.
    let store = &akashi.store;
    let caller = akashi.caller();
    assert_eq!(errno(store.rmdir(&caller, private, b"akashi")), Errno::BUSY);
    let moved = (ROOT, &b"m"[..]);
    let moved = store.rename(&caller, (ROOT, b"memory"), moved, RenameMode::Replace);
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
        lacks(&bob.ask(ROOT, request), &["secret.md"]);
    }
    assert!(bob.ask(ROOT, ":search?regime").starts_with("1 note matches"));
    bob.finds_nothing(private, ":search?alpha");
    let escape = format!(":search?regime)+OR+within:d{home}+OR+(regime");
    bob.refuses(&escape, "");
    bob.finds_nothing(ROOT, &format!(":search?within:d{home}"));
    has(&bob.ask(ROOT, ":stats"), &["notes-below: 1\n"]);
}

#[test]
fn the_history_of_a_note_hides_private_directories_of_other_agents() {
    let (_dir, path) = place();
    let (akashi, [private, home, shared]) = akashi(&path);
    akashi.write(home, "takeover-of-acme.md", "draft\n");
    akashi.rename((home, "takeover-of-acme.md"), (shared, "plan.md"));
    akashi.write(shared, "plan.md", "the plan\n");
    let written = "written /memory/private/akashi/takeover-of-acme.md";
    akashi.says(shared, "plan.md:history", &[written]);
    drop(akashi);
    // A file in `/memory/private` itself, where no agent can create one.
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    create(&plain, private, "stray-secret.md", Kind::File);
    drop(plain);

    let bob = Memory::open(&path, Some("bob"));
    bob.pass(DAY);
    let history = bob.ask(shared, "plan.md:history");
    has(&history, &["changed plan.md"]);
    lacks(&history, &["acme", "private"]);
    lacks(&bob.ask(private, ":meta"), &["stray"]);
}

#[test]
fn a_note_with_two_names_is_found_by_the_one_that_is_not_private() {
    let (_dir, path) = place();
    let (akashi, [_, home, shared]) = akashi(&path);
    // Created last, so that its inode number is not the lower one.
    let market = akashi.dir(shared, "market");
    assert!(market > home);
    let ino = akashi.write(home, "draft.md", "regime alpha\n");
    let caller = akashi.caller();
    let linked = akashi.store.link(&caller, ino, market, b"regime.md");
    linked.unwrap();
    let shown = "/memory/shared/market/regime.md";
    akashi.says(ROOT, ":search?alpha", &[shown]);
    drop(akashi);
    let bob = Memory::open(&path, Some("bob"));
    for (request, shown) in [(":search?alpha", "\nregime.md "), (":recall?alpha", "\n## regime.md\n")] {
        let found = bob.ask(market, request);
        has(&found, &[shown]);
        lacks(&found, &["draft.md"]);
    }
    lacks(&bob.ask(market, "regime.md:history"), &["draft.md"]);
    drop(bob);
    // Without the shared name the note is private again.
    let akashi = Memory::open(&path, Some("akashi"));
    akashi.unlink(market, "regime.md");
    has(&akashi.ask(home, ":search?alpha"), &["\ndraft.md "]);
    drop(akashi);
    let bob = Memory::open(&path, Some("bob"));
    bob.finds_nothing(ROOT, ":search?alpha");
}

#[test]
fn no_link_move_or_exchange_shows_an_agent_the_private_notes_of_another() {
    let (_dir, path) = place();
    let bob = Memory::open(&path, Some("bob"));
    let memory = bob.dir(ROOT, "memory");
    let private = bob.dir(memory, "private");
    let home = bob.dir(private, "bob");
    let shared = bob.dir(memory, "shared");
    let dir = |parent, name: &str| create(&bob.store, parent, name, Kind::Directory).ino;
    // Notes that were shared, in a file and in a directory that moved.
    bob.write(shared, "moved.md", "regime moved\n");
    bob.rename((shared, "moved.md"), (home, "moved.md"));
    bob.write(dir(shared, "project"), "inside.md", "regime inside\n");
    bob.rename((shared, "project"), (home, "project"));
    // Directories that exchanged their names.
    bob.write(dir(shared, "swap"), "swapped.md", "regime swapped\n");
    dir(home, "swap");
    let (from, to) = ((shared, &b"swap"[..]), (home, &b"swap"[..]));
    let exchanged = bob.store.rename(&bob.caller(), from, to, RenameMode::Exchange);
    exchanged.unwrap();
    // A public name that is gone, and a symbolic link that is still there.
    let linked = bob.write(home, "linked.md", "regime linked\n");
    let public = bob.store.link(&bob.caller(), linked, shared, b"public.md");
    public.unwrap();
    bob.ask(ROOT, ":meta");
    bob.unlink(shared, "public.md");
    let link = NewNode { target: b"../private/bob/linked.md", ..node(Kind::Symlink) };
    let link = bob.store.create(&bob.caller(), shared, b"link.md", &link);
    link.unwrap();
    bob.set(linked, "tags", "secret-tag");
    bob.set(linked, "ttl", "7d");
    // Written over what is shared.
    bob.write(home, "over.md", "regime over\n");
    bob.write(shared, "old.md", "regime in the open\n");
    has(&bob.ask(ROOT, ":search?regime"), &["6 notes match"]);
    drop(bob);

    let (akashi, [_, own, _]) = akashi(&path);
    for dir in [ROOT, memory, private, shared, own] {
        for request in [
            ":search?regime",
            ":search?regime OR name:linked",
            ":search?regime NOT open",
            ":recall?regime+moved+inside+swapped+linked+over",
            ":recall?regime&strategy=recency",
            ":recall?regime&strategy=importance",
            ":tags",
            ":ttl",
            ":ttl?expired",
            ":meta",
        ] {
            let answer = akashi.ask(dir, request);
            for secret in ["moved", "inside", "swapped", "linked", "over", "secret-tag"] {
                let query = format!("matches {:?}", request.trim_start_matches(":search?"));
                let said = answer.replace(&query, "");
                let said: String = said.lines().filter(|it| !it.starts_with("# in no")).collect();
                assert!(!said.contains(secret), "{dir} {request}: {answer}");
            }
        }
    }
    has(&akashi.ask(ROOT, ":search?regime"), &["1 note matches", "/old.md"]);
    // Neither is a note of another agent reached by its name.
    for name in [&b"bob"[..], b"bob/linked.md", b"../private/bob", b"."] {
        assert!(akashi.store.lookup(private, name).is_err(), "{name:?}");
    }
}

#[test]
fn a_file_with_a_reused_inode_number_has_no_old_history() {
    let (_dir, path) = place();
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
    has(&history, &["written /new.md"]);
    assert_eq!(history.lines().count(), 1, "{history}");
    // The history of the directory still has its events.
    has(&memory.ask(ROOT, ":history"), &["removed /gone.md"]);
}

#[test]
fn a_note_that_is_replaced_by_a_rename_keeps_the_history_of_its_place() {
    let (_dir, path) = place();
    let memory = Memory::open(&path, None);
    memory.write(ROOT, "a.md", "alpha\n");
    memory.write(ROOT, "other.md", "alpha\n");
    memory.ask(ROOT, ":stats");
    memory.pass(DAY);
    memory.write(ROOT, ".a.md.new", "beta\n");
    // The index may have seen the new file under its first name.
    memory.ask(ROOT, ":stats");
    memory.rename((ROOT, ".a.md.new"), (ROOT, "a.md"));
    let history = memory.ask(ROOT, "a.md:history");
    let days: Vec<&str> = history.lines().map(|line| &line[..10]).collect();
    assert!(history.contains(" /a.md ") && days.first() != days.last(), "{history}");
    lacks(&history, &["other.md"]);
}
