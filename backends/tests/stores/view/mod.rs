//! Views: rows of databases, files and interfaces of others as files.
//!
//! Here is what holds over every database.

mod databases;
mod definitions;
mod files;
mod limits;
mod names;
mod postgresql;
mod sources;
mod writers;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use databases::{Mail, mails};
use fuse::store::{Change, Errno, Ino, Kind, NewNode, OpenFiles, ROOT, RenameMode, Result, SlowCall, Store};
use view::{ViewOpenError, ViewSettings, ViewStore, definition};

use crate::common::*;
use crate::hosts::eventually;

type OpenResult = std::result::Result<ViewStore, ViewOpenError>;

/// A view by the definition `text`. Unless it says otherwise, a source has the time that a busy machine needs.
fn opened(text: &str, place: &str, may_write: bool) -> OpenResult {
    if text.contains("timeout_ms") {
        opened_unchanged(text, place, may_write)
    } else {
        opened_unchanged(&text.replacen("[source]", "[source]\ntimeout_ms = 60000", 1), place, may_write)
    }
}

/// A view by the definition `text`, as if it were in the file `x.toml`.
fn opened_unchanged(text: &str, place: &str, may_write: bool) -> OpenResult {
    let settings = ViewSettings { may_write, ..ViewSettings::default() };
    ViewStore::open((Path::new("x.toml"), text), place, settings, &caller(1))
}

/// Why there is no such view.
#[track_caller]
fn refusal(opened: OpenResult) -> String {
    opened.unwrap_err().to_string()
}

/// The text of a shipped definition.
fn shipped(name: &str) -> String {
    definition::find(name).unwrap().1
}

/// A view of the directories of a controller.
fn controller(dir: &Path) -> ViewStore {
    opened(&shipped("vsm"), dir.to_str().unwrap(), false).unwrap()
}

/// Checks that a file has each of these parts.
#[track_caller]
fn shows(store: &dyn Store, path: &str, parts: &[&str]) {
    has(&read(store, path).unwrap(), parts);
}

fn go(store: &dyn Store, path: &str) -> Result<Ino> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.into_iter().try_fold(ROOT, |dir, name| Ok(store.lookup(dir, name.as_bytes())?.ino))
}

pub fn read(store: &dyn Store, path: &str) -> Result<String> {
    let ino = go(store, path)?;
    let size = store.getattr(ino)?.size;
    let mut bytes = Vec::new();
    store.read(ino, 0, 1 << 20, &mut bytes)?;
    assert_eq!(bytes.len() as u64, size, "{path}");
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn list(store: &dyn Store, path: &str) -> Vec<String> {
    names(store, go(store, path).unwrap())
}

fn write(store: &ViewStore, writer: u64, offset: usize, text: &str) -> Result<()> {
    store.write_handle(writer, offset as u64, text.as_bytes())
}

/// The last close of an open file.
fn close(store: &ViewStore, handle: u64, ino: Ino) -> Result<()> {
    let closed = store.close(handle, ino);
    store.release(handle);
    closed
}

/// Opens a file for writing, and cuts it.
fn open_cut(store: &ViewStore, ino: Ino) -> Result<u64> {
    let writer = store.open(ino, true)?;
    store.setattr_handle(writer, &caller(2), ino, &size_change(0))?;
    Ok(writer)
}

/// As a shell does it: open and cut, close for a program that inherited it, write, close.
fn overwrite(store: &ViewStore, ino: Ino, text: &str) -> Result<()> {
    let writer = open_cut(store, ino)?;
    store.close(writer, ino)?;
    write(store, writer, 0, text)?;
    close(store, writer, ino)
}

/// Creates a file as a shell does it.
fn write_new(store: &ViewStore, dir: Ino, name: &str, text: &str) -> Result<()> {
    overwrite(store, create(store, dir, name, Kind::File).ino, text)
}

const FIRST: &str = "inbox/ann@x.org/2026-03-01 Budget 7.eml";

#[test]
fn rows_are_files_in_directories_that_queries_name() {
    for mail in mails() {
        mail.add(7, "inbox", "ann@x.org", "Budget", "Dear all,\nfine.");
        mail.add(8, "inbox", "bob", "Re: Budget", "no");
        mail.add(9, "archive", "bob", "Old", "");
        let store = mail.view(false);
        assert_eq!(list(&store, ""), ["archive", "dates", "drafts", "inbox", "threads"]);
        assert_eq!(list(&store, "dates"), ["2026-03-01"]);
        let mails = ["ann@x.org Budget 7.eml", "bob Old 9.eml", "bob Re: Budget 8.eml"];
        assert_eq!(list(&store, "dates/2026-03-01"), mails);
        assert_eq!(list(&store, "inbox"), ["ann@x.org", "bob"]);
        assert_eq!(list(&store, "inbox/ann@x.org"), ["2026-03-01 Budget 7.eml"]);
        assert_eq!(list(&store, "archive"), ["2026-03-01 bob Old 9.eml"]);
        assert_eq!(
            read(&store, FIRST).unwrap(),
            "From: ann@x.org\nTo: me\nDate: 2026-03-01T10:00:00Z\nSubject: Budget\n\nDear all,\nfine.\n"
        );
        let attr = store.getattr(go(&store, FIRST).unwrap()).unwrap();
        assert_eq!(attr.mtime.0, 1_772_359_200_000_000_000);
        assert_eq!(attr.permissions, 0o444);
        assert_eq!(errno(read(&store, "inbox/carl")), Errno::NOENT);
        assert_eq!(
            errno(read(&store, "inbox/bob/2026-03-01 Budget 7.eml")),
            Errno::NOENT,
            "a row of another directory"
        );
        assert_eq!(
            read(&store, ":about?budget").unwrap(),
            "threads/0/7 ann@x.org.eml: Budget\nthreads/0/8 bob.eml: Re: Budget\n"
        );
        assert_eq!(read(&store, ":from?ann").unwrap().lines().count(), 1);
        let injected = ":about?'; DROP TABLE messages; --";
        assert_eq!(read(&store, injected).unwrap(), "");
    }
}

#[test]
fn columns_that_a_definition_names_are_attributes_of_the_file() {
    for mail in mails() {
        mail.add(7, "inbox", "ann@x.org", "Budget", "one");
        let store = mail.view(true);
        let ino = go(&store, FIRST).unwrap();
        let value = |name: &str| {
            let value = store.getxattr(ino, format!("user.view.{name}").as_bytes());
            Ok(String::from_utf8(value?).unwrap())
        };
        let unread = |result: Result<String>| assert_eq!(errno(result), Errno::NODATA);
        assert_eq!(value("is_read").unwrap(), "0");
        mail.run("UPDATE messages SET is_read = 1, thread_id = NULL WHERE id = 7");
        assert_eq!(value("is_read").unwrap(), "1", "as it is now");
        unread(value("thread_id"));
        unread(value("subject"));
        unread(value("reason"));
        let names = store.listxattr(ino).unwrap();
        assert_eq!(names, [b"user.view.is_read".to_vec()]);
        mail.run("UPDATE messages SET thread_id = 4 WHERE id = 7");
        assert_eq!(store.listxattr(ino).unwrap().len(), 2);
        let dir = go(&store, "inbox").unwrap();
        assert_eq!(store.listxattr(dir).unwrap(), Vec::<Vec<u8>>::new());
        let long = "x".repeat((64 << 10) + 1);
        mail.run(&format!("ALTER TABLE messages RENAME COLUMN thread_id TO other; ALTER TABLE messages ADD COLUMN thread_id text; UPDATE messages SET thread_id = '{long}'"));
        assert_eq!(errno(value("thread_id")), Errno::TOOBIG);
        mail.run("DELETE FROM messages");
        assert_eq!(errno(value("is_read")), Errno::NOENT);
    }
}

#[test]
fn a_commit_is_seen_by_the_next_call() {
    for mail in mails() {
        mail.add(7, "inbox", "ann@x.org", "Budget", "one");
        let store = mail.view(false);
        let ino = go(&store, FIRST).unwrap();
        for round in 0..50 {
            let body = "x".repeat(round);
            mail.run(&format!("UPDATE messages SET body = '{body}' WHERE id = 7"));
            let text = read(&store, FIRST).unwrap();
            assert!(text.ends_with(&format!("\n\n{body}\n")), "{text}");
        }
        mail.run("UPDATE messages SET subject = 'Plan' WHERE id = 7");
        assert_eq!(errno(read(&store, FIRST)), Errno::NOENT);
        let renamed = "inbox/ann@x.org/2026-03-01 Plan 7.eml";
        assert_eq!(go(&store, renamed).unwrap(), ino, "the row has its number");
        mail.run("DELETE FROM messages");
        assert_eq!(list(&store, "inbox"), Vec::<String>::new());
        assert_eq!(errno(store.getattr(ino)), Errno::NOENT);
    }
}

#[test]
fn values_of_every_kind_are_names_that_are_found_again() {
    for mail in mails() {
        let long = "ä/".repeat(95);
        for (id, text) in ["", ".", "..", "a/b", "100%", "tab\there", "ünï", &long].iter().enumerate() {
            let sender = if id == 7 { "long" } else { text };
            mail.add(id as i64, "inbox", sender, text, text);
        }
        // All text in a PostgreSQL database is UTF-8.
        let odd = if mail.is_sqlite() {
            "CAST(x'ff2f00' AS TEXT), NULL, 'no time', CAST(x'fe' AS TEXT), x'00ff'"
        } else {
            "NULL, NULL, 'no time', NULL, NULL"
        };
        mail.run(&format!("INSERT INTO messages VALUES (50, NULL, {odd}, 'inbox', 0, 1)"));
        let store = mail.view(false);
        let senders = list(&store, "inbox");
        // NULL, of PostgreSQL's row, names no directory.
        let expected = if mail.is_sqlite() { 9 } else { 8 };
        assert_eq!(senders.len(), expected, "{senders:?}");
        for sender in &senders {
            let files = list(&store, &format!("inbox/{sender}"));
            assert_eq!(files.len(), 1, "{sender}");
            let text = read(&store, &format!("inbox/{sender}/{}", files[0])).unwrap();
            assert!(text.starts_with("From: "), "{text}");
            assert!(files[0].len() <= 255);
        }
    }
}

#[test]
fn a_long_directory_is_listed_in_parts_and_a_long_column_read_in_parts() {
    for mail in mails() {
        let fill = "
        WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 3000)
        INSERT INTO messages SELECT id, NULL, 'ann', 'me', '2026-03-01', 's' || id, 'b', 'inbox', 0, 1 FROM n";
        mail.run(fill);
        let store = mail.view(false);
        let dir = go(&store, "inbox/ann").unwrap();
        let (mut seen, mut after) = (Vec::new(), 0);
        loop {
            let (before, from) = (seen.len(), after);
            let mut emit = |entry: fuse::store::DirEntry<'_>| {
                if seen.len() == before + 700 {
                    return ControlFlow::Break(());
                }
                assert!(entry.cookie > after);
                assert_eq!(entry.attr.unwrap().ino, entry.ino);
                seen.push(String::from_utf8(entry.name.to_vec()).unwrap());
                after = entry.cookie;
                ControlFlow::Continue(())
            };
            store.readdir(dir, from, true, &mut emit).unwrap();
            if seen.len() == before {
                break;
            }
            // Rows that come and go meanwhile neither repeat nor hide others.
            mail.run("DELETE FROM messages WHERE id < 100");
        }
        let expected: Vec<String> = (1..=3000).map(|id| format!("2026-03-01 s{id} {id}.eml")).collect();
        assert_eq!(seen, expected);

        let long = "x".repeat(20_000_000);
        mail.run(&format!("UPDATE messages SET body = '{long}' WHERE id = 200"));
        let ino = go(&store, "inbox/ann/2026-03-01 s200 200.eml").unwrap();
        let size = store.getattr(ino).unwrap().size;
        assert!(size > 20_000_000);
        let mut bytes = Vec::new();
        let [handle, other] = [(); 2].map(|()| store.open(ino, false).unwrap());
        let part = |handle: u64, bytes: &mut Vec<u8>| {
            let at = bytes.len() as u64;
            store.read_handle(handle, ino, at, 1 << 20, bytes).unwrap();
        };
        part(handle, &mut bytes);
        // An open handle keeps the content that it began to read. Another one reads the new content.
        mail.run("UPDATE messages SET body = 'short' WHERE id = 200");
        let mut short = Vec::new();
        part(other, &mut short);
        assert!(short.ends_with(b"\n\nshort\n"));
        while (bytes.len() as u64) < size {
            let before = bytes.len();
            part(handle, &mut bytes);
            assert!(bytes.len() > before);
        }
        assert!(bytes.ends_with(b"xxx\n"));
        store.release(handle);
        let text = read(&store, "inbox/ann/2026-03-01 s200 200.eml").unwrap();
        assert!(text.ends_with("short\n"));
    }
}

#[test]
fn changes_go_where_the_definition_allows_them() {
    for mail in mails() {
        mail.add(7, "inbox", "ann", "Budget", "one");
        let store = mail.view(true);
        let drafts = go(&store, "drafts").unwrap();
        let text = "To: ann\nSubject: Re: Budget\n\nyes\n";
        write_new(&store, drafts, "answer.eml", text).unwrap();
        assert_eq!(list(&store, "drafts"), ["Re: Budget 8.eml"]);
        // It has the name that it was given, too.
        for path in ["drafts/Re: Budget 8.eml", "drafts/answer.eml"] {
            assert_eq!(read(&store, path).unwrap(), text, "{path}");
        }

        let draft = go(&store, "drafts/Re: Budget 8.eml").unwrap();
        overwrite(&store, draft, "To: ann\nSubject: Re: Budget\n\nno, no\n").unwrap();
        let row = mail.value("SELECT body || ' ' || version FROM messages WHERE id = 8");
        assert_eq!(row, "no, no 2");

        // An editor saves by renaming.
        let text = "To: ann\nSubject: Re: Budget\n\nsaved\n";
        write_new(&store, drafts, ".tmp", text).unwrap();
        let (tmp, old) = ((drafts, &b".tmp"[..]), (drafts, &b"Re: Budget 8.eml"[..]));
        store.rename(&caller(2), tmp, old, RenameMode::Replace).unwrap();
        assert_eq!(list(&store, "drafts"), ["Re: Budget 8.eml"]);
        shows(&store, "drafts/Re: Budget 8.eml", &["saved"]);

        let name = &b"2026-03-01 Budget 7.eml"[..];
        let [from, to] = ["inbox/ann", "archive"].map(|dir| (go(&store, dir).unwrap(), name));
        store.rename(&caller(2), from, to, RenameMode::Replace).unwrap();
        assert_eq!(list(&store, "archive"), ["2026-03-01 ann Budget 7.eml"]);
        assert!(list(&store, "inbox").is_empty());
        let gone = store.unlink(&caller(2), drafts, b"Re: Budget 8.eml").unwrap();
        assert_eq!(gone, Some(draft));
        assert!(list(&store, "drafts").is_empty());
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
    }
}

fn reason(store: &dyn Store, ino: Ino) -> String {
    String::from_utf8(store.getxattr(ino, b"user.view.reason").unwrap()).unwrap()
}

#[test]
fn a_refused_change_changes_nothing_and_says_why() {
    for mail in mails() {
        mail.add(8, "drafts", "me", "Draft", "one");
        mail.add(9, "archive", "ann", "Old", "one");
        let store = mail.view(true);
        let path = "drafts/Draft 8.eml";
        let draft = go(&store, path).unwrap();
        let before = read(&store, path).unwrap();
        let long = format!("To: me\nSubject: {}\n\nx\n", "s".repeat(300));
        assert_eq!(errno(overwrite(&store, draft, &long)), Errno::INVAL);
        let said = reason(&store, draft).to_lowercase();
        has(&said, &["check constraint"]);
        assert_eq!(errno(overwrite(&store, draft, "no header")), Errno::INVAL);
        has(&reason(&store, draft), &["line 1"]);
        assert_eq!(read(&store, path).unwrap(), before);
        // A program that goes on writing after a program before it had closed the file.
        let writer = open_cut(&store, draft).unwrap();
        write(&store, writer, 0, "To: me\n").unwrap();
        assert_eq!(errno(store.close(writer, draft)), Errno::INVAL);
        write(&store, writer, 7, "Subject: two\n\nx\n").unwrap();
        close(&store, writer, draft).unwrap();
        let reason = store.getxattr(draft, b"user.view.reason");
        assert_eq!(errno(reason), Errno::NODATA);
        shows(&store, "drafts/two 8.eml", &["two"]);

        // Another writer is faster.
        let writer = open_cut(&store, draft).unwrap();
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1 WHERE id = 8");
        write(&store, writer, 0, "To: me\nSubject: two\n\nours\n").unwrap();
        assert_eq!(errno(close(&store, writer, draft)), Errno::STALE);
        shows(&store, "drafts/two 8.eml", &["theirs"]);

        let archived = go(&store, "archive/2026-03-01 ann Old 9.eml").unwrap();
        assert_eq!(errno(overwrite(&store, archived, "x")), Errno::ROFS);
        let archive = go(&store, "archive").unwrap();
        let deleted = store.unlink(&caller(2), archive, b"2026-03-01 ann Old 9.eml");
        assert_eq!(errno(deleted), Errno::ROFS);
        let readers = mail.view(false);
        let draft = go(&readers, "drafts/two 8.eml").unwrap();
        assert_eq!(errno(overwrite(&readers, draft, "x")), Errno::ROFS);
    }
}

#[test]
fn readers_beside_writers_see_whole_rows_and_never_an_old_one() {
    for mail in mails() {
        read_beside_writers(&mail, Duration::from_secs(3));
    }
}

#[test]
#[ignore = "takes two minutes: make conform and make speed run it"]
fn readers_beside_writers_see_whole_rows_for_a_minute() {
    for mail in mails() {
        read_beside_writers(&mail, Duration::from_secs(60));
    }
}

/// Two writers replace the bodies of rows, or delete rows and insert them again. Readers check every file.
fn read_beside_writers(mail: &Mail, time: Duration) {
    for id in 0..ROWS as i64 {
        mail.add(id, "inbox", "ann", "s", &"0\n".repeat(200));
    }
    let store = mail.view(false);
    // The state of each row, modulo 4: it exists, is being deleted, does not exist, is being inserted.
    let presence: [AtomicUsize; ROWS] = Default::default();
    let writer = || {
        let (writes, presence) = (mail.second(), &presence);
        move |row: usize, number: usize| {
            let body = format!("{number}\n").repeat(lines(number));
            if number % 9 != 4 {
                let id = format!("id = {row}");
                return writes(&format!("UPDATE messages SET body = '{body}' WHERE {id}"));
            }
            let next = || presence[row].fetch_add(1, Ordering::SeqCst);
            next();
            writes(&format!("DELETE FROM messages WHERE id = {row}"));
            next();
            std::thread::sleep(Duration::from_millis(2));
            next();
            writes(&format!(
                "INSERT INTO messages VALUES ({row}, 0, 'ann', 'me', '2026-03-01', 's', '{body}', 'inbox', 0, 1)"
            ));
            next();
        }
    };
    let check = |row: usize, least: usize| {
        let before = presence[row].load(Ordering::SeqCst);
        let found = read_whole(&store, row);
        let is_unchanged = presence[row].load(Ordering::SeqCst) == before;
        match found {
            Ok(text) => {
                let is_gone = is_unchanged && before % 4 == 2;
                assert!(!is_gone, "a deleted row is shown");
                check_whole(&text, least);
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::NOENT, "{error}");
                let is_there = is_unchanged && before.is_multiple_of(4);
                assert!(!is_there, "a row is not shown");
            }
        }
    };
    beside_writers(time, [writer(), writer()], check);
}

/// The lines of the body with this number: some bodies are longer than what one request reads.
fn lines(number: usize) -> usize {
    match number % 40 {
        7 => 300_000,
        _ => 100 + number % 300,
    }
}

/// The file of a row, through a handle.
fn read_whole(store: &ViewStore, row: usize) -> Result<String> {
    let ino = go(store, &format!("inbox/ann/2026-03-01 s {row}.eml"))?;
    let (handle, mut bytes) = (store.open(ino, false)?, Vec::new());
    let read = loop {
        let at = bytes.len();
        match store.read_handle(handle, ino, at as u64, 1 << 20, &mut bytes) {
            Ok(()) if bytes.len() > at => {}
            end => break end,
        }
    };
    store.release(handle);
    read.map(|()| String::from_utf8(bytes).unwrap())
}

/// Checks that a file is one version of its row, and that this version is `least` or newer.
fn check_whole(text: &str, least: usize) {
    let (_, body) = text.split_once("\n\n").unwrap();
    // The template ends with a line feed, too.
    let body = body.strip_suffix('\n').unwrap();
    let number: usize = body.lines().next().unwrap().parse().unwrap();
    assert!(number >= least, "{number} after {least}");
    if number > 0 {
        let whole = format!("{number}\n").repeat(lines(number));
        assert!(body == whole, "a torn file of {number}");
    }
}
