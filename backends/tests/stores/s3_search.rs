//! Requests of `agent-memory` on the memory in a bucket: what they find, when, and what they say of content that is not here.

use crate::common::*;
use crate::hosts::*;

use agent_memory::AgentMemory;
use fuse::store::{Errno, Ino, Kind, ROOT, RenameMode, Store};
use proptest::prelude::*;
use s3_store::S3Memory;
use servers::{Operation, RequestFault, Rule};

/// The answer to a request.
fn ask(store: &dyn Store, dir: Ino, name: &str) -> String {
    let answer = store.lookup(dir, name.as_bytes()).unwrap();
    String::from_utf8(read(store, answer.ino, 0, 1 << 20)).unwrap()
}

/// A text that is too long for a commit, and begins with `words`.
fn long(words: &str) -> Vec<u8> {
    format!("{words}\n{}", "filler words of a long note\n".repeat(4000)).into_bytes()
}

/// Downloads of content fail; those of the log do not.
fn refuse_content(memory: &Memory) {
    let refused = RequestFault::Refuse { status: 403, code: "AccessDenied".to_owned(), retry_after: None };
    memory.proxy().set(vec![Rule::always(refused).of(&[Operation::Get]).below("/.ctx/blob/")]);
}

fn here(answer: &str) -> bool {
    !answer.contains("not here yet")
}

#[test]
fn a_search_finds_local_notes_and_those_of_other_hosts_after_their_adoption() {
    for memory in Memory::everywhere() {
        let (a, b) = (memory.mount_with_requests("a"), memory.mount_with_requests("b"));
        let dir = mkdir(&a, ROOT, "trading");
        write_in(&a, dir, "rule.md", b"RSI > 70: exit\n");
        let found = ask(&a, ROOT, ":search?RSI");
        has(&found, &["1 note matches\n/trading/rule.md", "RSI > 70: exit"]);
        lacks(&ask(&b, ROOT, ":search?RSI"), &["rule.md"]);

        exchange(a.files(), b.files());
        eventually("the content arrives", || here(&ask(&b, ROOT, ":search?RSI")));
        assert_eq!(ask(&b, ROOT, ":search?RSI"), found);
        has(&ask(&b, ROOT, ":recall?query=when+to+exit"), &["/trading/rule.md", "RSI > 70: exit"]);

        // A directory that moves, and a note that changes.
        a.rename(&now(), (ROOT, b"trading"), (ROOT, b"old"), RenameMode::Replace).unwrap();
        write_in(&a, dir, "rule.md", b"MACD crosses: enter\n");
        exchange(a.files(), b.files());
        eventually("the content arrives", || here(&ask(&b, ROOT, ":search?MACD")));
        has(&ask(&b, ROOT, ":search?MACD"), &["/old/rule.md"]);
        lacks(&ask(&b, ROOT, ":search?RSI"), &["rule.md"]);
        has(&ask(&b, find(b.files(), "old"), ":search?MACD"), &["\nrule.md "]);

        // A note that is removed.
        a.unlink(&now(), dir, b"rule.md").unwrap();
        exchange(a.files(), b.files());
        lacks(&ask(&b, ROOT, ":search?MACD"), &["rule.md"]);
        for host in [&a, &b] {
            assert_eq!(names(host, ROOT), ["old"]);
            is_settled(host.files());
        }
        memory.check();
    }
}

#[test]
fn an_answer_counts_files_whose_content_is_not_here_and_never_shows_their_old_content() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    write(&a, "long.md", &long("alpha"));
    write(&a, "longer.md", &long("beta"));
    a.upload().unwrap();
    let b = memory.mount_with_requests("b");
    refuse_content(&memory);
    let nothing = ask(&b, ROOT, ":search?alpha");
    has(&nothing, &["nothing found", "\n2 files were not searched: their content is not here yet\n"]);
    has(&ask(&b, ROOT, ":stats"), &["notes: 0\nnot-here: 2\n"]);
    has(&ask(&b, ROOT, ":recall?query=alpha&max_tokens=64"), &["\n# 2 files were not searched"]);
    eventually("the mount tries to fetch it", || memory.fired() > 0);

    memory.proxy().clear();
    eventually("the content arrives", || here(&ask(&b, ROOT, ":search?alpha")));
    has(&ask(&b, ROOT, ":search?alpha"), &["1 note matches\n/long.md"]);
    has(&ask(&b, ROOT, ":stats"), &["notes: 2\nnot-here: 0\n"]);

    // The cache still has the old bytes.
    write(&a, "long.md", &long("omega"));
    a.upload().unwrap();
    refuse_content(&memory);
    b.files().pull().unwrap();
    has(&ask(&b, ROOT, ":search?alpha"), &["nothing found", "\n1 file was not searched"]);
    memory.proxy().clear();
    // A read brings it, too.
    eventually("it can be read", || try_text(b.files(), "long.md").is_ok_and(|text| text.starts_with("omega")));
    has(&ask(&b, ROOT, ":search?omega"), &["1 note matches\n/long.md"]);
    lacks(&ask(&b, ROOT, ":search?alpha"), &["long.md"]);
}

#[test]
fn a_question_in_a_file_whose_content_is_not_here_is_refused_until_it_is_read() {
    let memory = Memory::behind_proxy();
    let a = memory.mount("a");
    write(&a, "question.md", b"alpha");
    a.upload().unwrap();
    // Its end writes a checkpoint, which has no content.
    drop(a);
    let b = memory.mount_with_requests("b");
    let refused = RequestFault::Refuse { status: 403, code: "AccessDenied".to_owned(), retry_after: None };
    memory.proxy().set(vec![Rule::always(refused).of(&[Operation::Get]).below("/.ctx/")]);
    assert_eq!(errno(b.lookup(ROOT, b":recall?file=question.md")), Errno::INVAL);
    has(&ask(&b, ROOT, ":stats"), &["\nnot-here: 1\n", "the content of \"question.md\" is not here yet"]);
    memory.proxy().clear();
    eventually("it can be read", || try_text(b.files(), "question.md").is_ok());
    has(&ask(&b, ROOT, ":recall?file=question.md"), &["# 1 of 1 relevant notes", "/question.md"]);
}

#[test]
fn a_memory_has_an_index_after_the_first_request_and_keeps_it() {
    let memory = Memory::new();
    let a = memory.mount_with_requests("a");
    write(&a, "note.md", b"alpha\n");
    assert_eq!(errno(a.lookup(ROOT, b"none.md:meta")), Errno::NOENT);
    assert!(!a.counters().contains_key("notes"));
    has(&ask(&a, ROOT, "note.md:meta"), &["importance: 0.5"]);
    assert_eq!(a.counters()["notes"], 1);
    a.files().upload().unwrap();
    assert_eq!(a.files().pending().unwrap(), 0, "the index is not part of the memory");
    let end = |store: S3Memory| {
        store.sync().unwrap();
        store.detach();
        store.finish().unwrap();
    };
    end(a);
    let a = memory.mount_with_requests("a");
    assert_eq!((a.counters()["notes"], a.counters()["notes_indexed"]), (1, 0), "it was not indexed a second time");
    end(a);
    // What a mount without requests changes, and another host, the next one indexes.
    let bare = memory.mount("a");
    write(&bare, "bare.md", b"alpha\n");
    bare.upload().unwrap();
    drop(bare);
    let b = memory.mount("b");
    write(&b, "other.md", b"alpha\n");
    b.upload().unwrap();
    let a = memory.mount_with_requests("a");
    eventually("the content arrives", || here(&ask(&a, ROOT, ":search?alpha")));
    has(&ask(&a, ROOT, ":search?alpha"), &["3 notes match"]);
}

/// A change of the notes `0.md` to `3.md` in the root or the directory `dir`.
#[derive(Clone, Debug)]
enum Edit {
    Write { in_dir: bool, note: u8, word: usize },
    Move { in_dir: bool, note: u8 },
    Remove { in_dir: bool, note: u8 },
}

const WORDS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

fn edit() -> impl Strategy<Value = Edit> {
    let place = (any::<bool>(), 0..4_u8);
    prop_oneof![
        3 => (place.clone(), 0..WORDS.len()).prop_map(|((in_dir, note), word)| Edit::Write { in_dir, note, word }),
        1 => place.clone().prop_map(|(in_dir, note)| Edit::Move { in_dir, note }),
        1 => place.prop_map(|(in_dir, note)| Edit::Remove { in_dir, note }),
    ]
}

fn apply(store: &dyn Store, edit: &Edit, sign: usize) {
    let dir = store.lookup(ROOT, b"dir").unwrap().ino;
    let parent = |in_dir: bool| if in_dir { dir } else { ROOT };
    let name = |note: u8| format!("{note}.md");
    match *edit {
        Edit::Write { in_dir, note, word } => {
            let text = format!("{} of change {sign}\n", WORDS[word]);
            write_in(store, parent(in_dir), &name(note), text.as_bytes());
        }
        Edit::Move { in_dir, note } => {
            let (from, to) = ((parent(in_dir), &*name(note)), (parent(!in_dir), &*name(note)));
            let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
            // There may be no such note.
            let _ = store.rename(&now(), from, to, RenameMode::Replace);
        }
        Edit::Remove { in_dir, note } => {
            let _ = store.unlink(&now(), parent(in_dir), name(note).as_bytes());
        }
    }
}

/// Reads all notes: what a program overwrites unread is kept under another name.
fn read_all(store: &dyn Store) {
    let dir = store.lookup(ROOT, b"dir").unwrap().ino;
    for (parent, note) in [ROOT, dir].into_iter().flat_map(|parent| (0..4).map(move |note| (parent, note))) {
        if let Ok(attr) = store.lookup(parent, format!("{note}.md").as_bytes()) {
            read(store, attr.ino, 0, 100);
        }
    }
}

/// The paths and lines that a search for each word finds in each directory, without dates and in one order.
fn findings(store: &dyn Store) -> Vec<String> {
    let dir = store.lookup(ROOT, b"dir").unwrap().ino;
    let mut found = Vec::new();
    for (at, word) in [ROOT, dir].into_iter().flat_map(|at| WORDS.map(|word| (at, word))) {
        let answer = ask(store, at, &format!(":search?{word}"));
        let mut lines: Vec<&str> = answer.lines().skip(1).collect();
        lines.sort_unstable();
        found.extend(lines.iter().map(|line| {
            let (path, rest) = line.split_once(' ').unwrap();
            format!("{} {word}: {path} {}", at == ROOT, rest.split_once(": ").unwrap().1)
        }));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn two_hosts_find_what_an_agent_memory_with_the_same_files_finds(
        edits in prop::collection::vec((any::<bool>(), edit()), 1..24),
    ) {
        let memory = Memory::new();
        let hosts = [memory.mount_with_requests("a"), memory.mount_with_requests("b")];
        let place = tempfile::tempdir().unwrap();
        let model = AgentMemory::open(&place.path().join("m.db"), &caller(1), None).unwrap();
        create(&hosts[0], ROOT, "dir", Kind::Directory);
        create(&model, ROOT, "dir", Kind::Directory);
        exchange(hosts[0].files(), hosts[1].files());
        for (sign, (is_second, edit)) in edits.iter().enumerate() {
            let (host, other) = (&hosts[usize::from(*is_second)], &hosts[usize::from(!is_second)]);
            read_all(host);
            apply(host, edit, sign);
            apply(&model, edit, sign);
            exchange(host.files(), other.files());
            prop_assert_eq!(findings(host), findings(&model));
            eventually("the content arrives", || here(&ask(other, ROOT, ":search?alpha")));
        }
        for host in &hosts {
            eventually("the content arrives", || here(&ask(host, ROOT, ":search?alpha")));
            prop_assert_eq!(findings(host), findings(&model));
        }
    }
}
