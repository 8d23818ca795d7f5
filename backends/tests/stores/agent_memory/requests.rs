//! Names that are requests, errors of bad requests, and metadata of notes.

use fuse::store::{Change, Errno, Kind, NewNode, ROOT, RenameMode, Store, TARGET_MAX, XattrMode};
use sqlite::SqliteStore;

use super::{DAY, Memory, START, caller, place, with_memory};
use crate::common::{create, errno, has, lacks, names, node, read};

#[test]
fn listings_omit_requests_and_answers_refuse_writes() {
    with_memory(|memory| {
        memory.write(ROOT, "a.md", "alpha\n");
        memory.ask(ROOT, ":stats");
        memory.ask(ROOT, "a.md:meta");
        assert_eq!(names(&memory.store, ROOT), ["a.md"]);
        let answer = memory.store.lookup(ROOT, b":stats").unwrap();
        assert_eq!((answer.nlink, answer.permissions), (0, 0o444));
        let store = &memory.store;
        let caller = memory.caller();
        let written = store.write(&caller, answer.ino, 0, b"x");
        assert_eq!(errno(written), Errno::PERM);
        let changed = store.setattr(&caller, answer.ino, &Change::default());
        assert_eq!(errno(changed), Errno::PERM);
        assert_eq!(errno(store.lookup(answer.ino, b"x")), Errno::NOTDIR);
        for name in [&b":stats"[..], b":search?x", b"a.md:meta"] {
            let made = store.create(&caller, ROOT, name, &node(Kind::File));
            assert_eq!(errno(made), Errno::EXIST);
            let renamed = store.rename(&caller, (ROOT, b"a.md"), (ROOT, name), RenameMode::Replace);
            assert_eq!(errno(renamed), Errno::EXIST);
        }
        // Other names with colons are ordinary names.
        for name in [&b":note"[..], b"mail:2,S", b"b.md:meta", b":searching"] {
            let made = store.create(&caller, ROOT, name, &node(Kind::File));
            made.unwrap();
        }
        assert_eq!(errno(store.lookup(ROOT, b":nothing")), Errno::NOENT);
    });
}

#[test]
fn a_file_that_has_the_name_of_a_request_stays_reachable() {
    let (_dir, path) = place();
    let plain = SqliteStore::open(&path, &caller(START)).unwrap();
    let stats = create(&plain, ROOT, ":stats", Kind::File).ino;
    plain.write(&caller(START), stats, 0, b"my own\n").unwrap();
    drop(plain);
    let memory = Memory::open(&path, None);
    assert_eq!(memory.ask(ROOT, ":stats"), "my own\n");
    assert_eq!(names(&memory.store, ROOT), [":stats"]);
    memory.unlink(ROOT, ":stats");
    has(&memory.ask(ROOT, ":stats"), &["notes: 0"]);
}

#[test]
fn metadata_comes_from_attributes_and_front_matter_and_attributes_win() {
    with_memory(|memory| {
        let text = "---\nimportance: 0.9\ntags: [trading]\nauthor: kim\n---\nbody of it\n";
        let ino = memory.write(ROOT, "n.md", text);
        let meta = "importance: 0.9\ntags: trading\nttl: never expires\nauthor: kim\n";
        memory.says(ROOT, "n.md:meta", &[meta]);
        memory.set(ino, "importance", "0.2");
        memory.set(ino, "tags", "nvda,trading");
        let meta = "importance: 0.2\ntags: nvda,trading\n";
        memory.says(ROOT, "n.md:meta", &[meta]);
        assert_eq!(memory.ask(ROOT, "n.md:tags"), "nvda\ntrading\n");
        assert_eq!(memory.ask(ROOT, ":tags"), "1 nvda\n1 trading\n");
        has(&memory.ask(ROOT, ":meta"), &["n.md: 2026-"]);
        has(&memory.ask(ROOT, ":search?tags:nvda"), &["/n.md"]);
        // Front matter is not searched as text.
        memory.finds_nothing(ROOT, ":search?kim");
        lacks(&memory.ask(ROOT, ":recall?body"), &["---"]);
        let (store, name) = (&memory.store, b"user.ctx.importance");
        store.removexattr(&memory.caller(), ino, name).unwrap();
        has(&memory.ask(ROOT, "n.md:meta"), &["importance: 0.9\n"]);

        let wrong = store.setxattr(&memory.caller(), ino, name, b"very", XattrMode::Set);
        assert_eq!(errno(wrong), Errno::INVAL);
        let reason = "importance must be a number from 0 to 1";
        has(&memory.last_error(), &[reason]);
        memory.write(ROOT, "odd.md", "---\nimportance: [\n---\nodd text\n");
        memory.says(ROOT, "odd.md:meta", &["front-matter: invalid"]);
        has(&memory.ask(ROOT, ":search?odd"), &["/odd.md"]);
    });
}

#[test]
fn an_expired_note_is_not_found_but_stays_readable() {
    with_memory(|memory| {
        let dir = memory.dir(ROOT, "notes");
        let ino = memory.write(dir, "soon.md", "ephemeral fact\n");
        memory.write(dir, "always.md", "lasting fact\n");
        memory.set(ino, "ttl", "7d");
        assert!(memory.ask(ROOT, ":search?fact").starts_with("2 notes"));
        has(&memory.ask(ROOT, ":ttl"), &["/notes/soon.md expires 2026-"]);
        assert_eq!(memory.ask(dir, ":ttl?expired"), "");
        memory.pass(8 * DAY);
        assert!(memory.ask(ROOT, ":search?fact").starts_with("1 note matches"));
        lacks(&memory.ask(ROOT, ":recall?fact"), &["ephemeral"]);
        assert_eq!(memory.ask(dir, ":ttl?expired"), "./soon.md\0");
        assert_eq!(memory.ask(ROOT, ":ttl?expired"), "./notes/soon.md\0");
        assert_eq!(read(&memory.store, ino, 0, 100), b"ephemeral fact\n");
        // A write starts the time to live again.
        memory.write(dir, "soon.md", "ephemeral fact, renewed\n");
        assert!(memory.ask(ROOT, ":search?fact").starts_with("2 notes"));
    });
}

#[test]
fn an_answer_shows_a_name_with_newlines_on_one_line() {
    with_memory(|memory| {
        memory.write(ROOT, "victim.md", "kept fact\n");
        let odd = memory.write(ROOT, "x\nvictim.md", "odd fact\n");
        memory.set(odd, "ttl", "1d");
        for (request, lines) in [(":search?odd", 2), (":ttl", 1), (":history", 2), (":meta", 2), (":recall?odd", 4)] {
            let answer = memory.ask(ROOT, request);
            assert!(answer.contains("x\\nvictim.md"), "{request}: {answer}");
            assert_eq!(answer.lines().count(), lines, "{request}: {answer}");
        }
        memory.pass(2 * DAY);
        assert_eq!(memory.ask(ROOT, ":ttl?expired"), "./x\nvictim.md\0");
    });
}

#[test]
fn a_bad_request_fails_with_einval_and_a_reason() {
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
            (":search?", "the search is empty"),
            (":recall?query=&max_tokens=100", "no words"),
            (":recall?query=x&max_tokens=0", "from 64 to"),
            (":recall?query=x&max_tokens=-3", "from 64 to"),
            (":recall?query=x&max_tokens=lots", "from 64 to"),
            (":recall?query=x&strategy=fastest", "unknown strategy"),
            (":recall?file=missing.txt", "missing.txt"),
            (":recall?link=missing", "missing"),
            (":recall?link=a.md", "a.md"),
        ] {
            memory.refuses(request, reason);
        }
        let long = format!(":search?{}", "word+".repeat(13_000));
        memory.refuses(&long, "the maximum is 4096");
        // Valid requests with special characters.
        let question = format!("{} quoted", "what ".repeat(500));
        memory.write(ROOT, "question.txt", &question);
        for request in [
            ":search?\"it's+50%25\"",
            ":search?text%0Alines",
            ":recall?it's+\"50%25\"+(text",
            ":recall?AND+OR+NOT+text",
            ":recall?file=question.txt",
        ] {
            has(&memory.ask(ROOT, request), &["/a.md"]);
        }
        memory.write(ROOT, "large.txt", &"word ".repeat(13_000));
        memory.refuses(":recall?file=large.txt", "the maximum is 4096");
    });
}

#[test]
fn a_question_in_the_target_of_a_symbolic_link_is_not_a_note() {
    with_memory(|memory| {
        memory.write(ROOT, "a.md", "quoted text\n");
        let [bare, history] = [":recall?quoted", ":history"].map(|name| memory.ask(ROOT, name));
        let question = "what ".repeat(817) + "the quoted";
        assert_eq!(question.len(), TARGET_MAX);
        let link = NewNode { target: question.as_bytes(), ..node(Kind::Symlink) };
        let made = memory.store.create(&memory.caller(), ROOT, b"q", &link);
        made.unwrap();
        assert_eq!(memory.ask(ROOT, ":recall?link=q"), bare);
        memory.unlink(ROOT, "q");
        assert_eq!(memory.ask(ROOT, ":history"), history);
    });
}

#[test]
fn a_search_finds_a_binary_file_by_its_name_only() {
    with_memory(|memory| {
        let bytes: Vec<u8> = (0..=255).cycle().take(5000).collect();
        let file = memory.write_bytes(ROOT, "chart-nvda.png", &bytes);
        memory.store.close(0, file).unwrap();
        assert_eq!(read(&memory.store, file, 0, 10_000), bytes);
        has(&memory.ask(ROOT, ":search?nvda"), &["(not text)"]);
        memory.says(ROOT, "chart-nvda.png:meta", &["it is not text"]);
        has(&memory.ask(ROOT, ":stats"), &["not-text: 1"]);
    });
}

#[test]
fn a_recall_hides_text_that_is_not_utf8_and_keeps_its_budget() {
    with_memory(|memory| {
        // Latin-1: no NUL byte, but invalid UTF-8.
        let latin = b"caf\xe9 r\xe9sum\xe9 na\xefve \xfcber ".repeat(30);
        for number in 0..40 {
            memory.write_bytes(ROOT, &format!("regime {number}.txt"), &latin);
        }
        let answer = memory.ask(ROOT, ":recall?regime&max_tokens=500");
        assert!(tokens::count(&answer) <= 500, "{answer}");
        lacks(&answer, &["caf"]);
        let found = memory.ask(ROOT, ":search?regime");
        has(&found, &["(not text)"]);
        lacks(&found, &["caf"]);
    });
}
