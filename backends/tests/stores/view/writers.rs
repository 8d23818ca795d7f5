//! Writers beside readers, other writers and other programs.

use super::*;

const DRAFT: &str = "drafts/Draft 8.eml";

fn draft(body: &str) -> String {
    format!("To: me\nSubject: Draft\n\n{body}\n")
}

/// A mailbox in each kind of database with one draft, its view, and the draft's inode.
fn drafts() -> Vec<(Mail, ViewStore, Ino)> {
    let with_draft = |mail: Mail| {
        mail.add(8, "drafts", "me", "Draft", "one");
        mail.run("UPDATE messages SET recipient = 'me'");
        let store = mail.view(true);
        let ino = go(&store, DRAFT).unwrap();
        (mail, store, ino)
    };
    mails().into_iter().map(with_draft).collect()
}

fn create_draft(store: &dyn Store, name: &str, text: &str) {
    let drafts = go(store, "drafts").unwrap();
    let new = create(store, drafts, name, Kind::File).ino;
    store.write(&caller(2), new, 0, text.as_bytes()).unwrap();
    store.close(new).unwrap();
}

#[test]
fn a_given_name_does_not_lead_to_another_row_that_gets_the_key() {
    for mail in mails() {
        let store = mail.view(true);
        create_draft(&store, "a.eml", &draft("first"));
        let drafts = go(&store, "drafts").unwrap();
        store.unlink(&caller(2), drafts, b"a.eml").unwrap();
        create_draft(&store, "b.eml", &draft("second"));
        let key = mail.value("SELECT max(id) FROM messages");
        assert_eq!(errno(go(&store, "drafts/a.eml")), Errno::NOENT, "{key}");
        create_draft(&store, "a.eml", &draft("third"));
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "2");
        assert!(read(&store, "drafts/b.eml").unwrap().contains("second"));

        // Another program deletes the row, and its next one gets the key.
        let row = "recipient = 'me', body = 'theirs'";
        mail.run(&format!("UPDATE messages SET {row} WHERE id = {key}"));
        assert_eq!(errno(go(&store, "drafts/b.eml")), Errno::NOENT);
        assert!(read(&store, "drafts/a.eml").unwrap().contains("third"));
    }
}

#[test]
fn a_given_name_stays_when_the_mount_changes_the_row() {
    for mail in mails() {
        let store = mail.view(true);
        create_draft(&store, "a.eml", &draft("first"));
        let ino = go(&store, "drafts/a.eml").unwrap();
        for body in ["second", "third"] {
            overwrite(&store, ino, &format!("To: you\nSubject: Other\n\n{body}\n")).unwrap();
            assert!(read(&store, "drafts/a.eml").unwrap().contains(body));
        }
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
    }
}

#[test]
fn a_change_that_begins_during_a_commit_is_committed_by_its_own_close() {
    for (mail, store, ino) in drafts() {
        let other = mail.second();
        other("BEGIN; UPDATE messages SET is_read = 0");
        let cut = Change {
            size: Some(0),
            ..Change::default()
        };
        store.setattr(&caller(2), ino, &cut).unwrap();
        let long = draft(&"first ".repeat(100));
        store.write(&caller(2), ino, 0, long.as_bytes()).unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| store.close(ino));
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(read(&store, DRAFT).unwrap(), long, "readers see no part");
            let second = scope.spawn(|| {
                store.setattr(&caller(2), ino, &cut)?;
                store.write(&caller(2), ino, 0, draft("second").as_bytes())?;
                store.close(ino)
            });
            std::thread::sleep(Duration::from_millis(150));
            other("COMMIT");
            first.join().unwrap().unwrap();
            second.join().unwrap().unwrap();
        });
        assert_eq!(mail.value("SELECT body FROM messages"), "second");
        assert_eq!(mail.value("SELECT version FROM messages"), "3");
    }
}

#[test]
fn the_close_of_a_reader_commits_no_half_of_a_file() {
    for (mail, store, ino) in drafts() {
        let (writer, reader) = (
            store.open(ino, true).unwrap(),
            store.open(ino, false).unwrap(),
        );
        let text = draft("whole");
        store
            .setattr(
                &caller(2),
                ino,
                &Change {
                    size: Some(0),
                    ..Change::default()
                },
            )
            .unwrap();
        let (half, rest) = text.as_bytes().split_at(5);
        store.write(&caller(2), ino, 0, half).unwrap();
        store.close_handle(reader, ino).unwrap();
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
        store.write(&caller(2), ino, 5, rest).unwrap();
        store.close_handle(writer, ino).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "whole");
        assert_eq!(mail.value("SELECT version FROM messages"), "2");
    }
}

#[test]
fn a_stale_change_can_be_made_again_at_once() {
    for (mail, store, ino) in drafts() {
        let cut = Change {
            size: Some(0),
            ..Change::default()
        };
        store.setattr(&caller(2), ino, &cut).unwrap();
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1");
        let text = draft("ours");
        store.write(&caller(2), ino, 0, text.as_bytes()).unwrap();
        assert_eq!(errno(store.close(ino)), Errno::STALE);
        overwrite(&store, ino, &text).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "ours");
    }
}

fn save_by_rename(store: &dyn Store, text: &str) -> Result<()> {
    create_draft(store, ".tmp", text);
    rename_over(store)
}

fn rename_over(store: &dyn Store) -> Result<()> {
    let drafts = go(store, "drafts")?;
    let (from, to) = ((drafts, &b".tmp"[..]), (drafts, &b"Draft 8.eml"[..]));
    store
        .rename(&caller(2), from, to, RenameMode::Replace)
        .map(|_| ())
}

#[test]
fn a_save_by_rename_changes_both_rows_or_none() {
    for (mail, store, _) in drafts().iter().filter(|(mail, ..)| mail.is_sqlite()) {
        mail.run(
            "CREATE TRIGGER keeps BEFORE DELETE ON messages BEGIN SELECT RAISE(ABORT, 'kept'); END",
        );
        assert_eq!(errno(save_by_rename(store, &draft("two"))), Errno::INVAL);
        assert_eq!(read(store, DRAFT).unwrap(), draft("one"));
        mail.run("DROP TRIGGER keeps");
    }
    for (mail, store, _) in drafts() {
        save_by_rename(&store, &draft("two")).unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("two"));
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
        assert_eq!(errno(go(&store, "drafts/.tmp")), Errno::NOENT);
    }
}

#[test]
fn a_save_by_rename_over_a_row_that_changed_since_it_was_read_is_stale() {
    for (mail, store, _) in drafts() {
        assert_eq!(read(&store, DRAFT).unwrap(), draft("one"));
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1");
        assert_eq!(errno(save_by_rename(&store, &draft("ours"))), Errno::STALE);
        assert_eq!(
            mail.value("SELECT body FROM messages WHERE id = 8"),
            "theirs"
        );
        let drafts = go(&store, "drafts").unwrap();
        store.unlink(&caller(2), drafts, b".tmp").unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("theirs"));
        for body in ["ours", "ours again"] {
            save_by_rename(&store, &draft(body)).unwrap();
        }
        assert_eq!(read(&store, DRAFT).unwrap(), draft("ours again"));
    }
}

#[test]
fn a_rename_to_another_name_of_the_same_row_keeps_the_row() {
    for mail in mails() {
        let store = mail.view(true);
        create_draft(&store, "a.eml", &draft("first"));
        let shown = list(&store, "drafts").remove(0);
        let drafts = go(&store, "drafts").unwrap();
        let (from, to) = ((drafts, shown.as_bytes()), (drafts, &b"a.eml"[..]));
        store
            .rename(&caller(2), from, to, RenameMode::Replace)
            .unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "first");
    }
}

#[test]
fn a_database_that_another_program_locks_is_eio_for_readers_and_ebusy_for_writers() {
    let mail = Mail::new();
    mail.add(8, "drafts", "me", "Draft", "one");
    mail.run("PRAGMA journal_mode = DELETE");
    let store = mail.view_as(true, |text| {
        text.replace("[source]", "[source]\ntimeout_ms = 300")
    });
    let ino = go(&store, DRAFT).unwrap();
    mail.run("BEGIN IMMEDIATE");
    let began = Instant::now();
    let refused = overwrite(&store, ino, "To: me\nSubject: Draft\n\ntwo\n").unwrap_err();
    assert_eq!(refused.errno, Errno::BUSY);
    mail.run("COMMIT; BEGIN EXCLUSIVE");
    let failed = store.lookup(go(&store, "drafts").unwrap(), b"Draft 8.eml");
    let failed = failed.unwrap_err();
    assert_eq!(failed.errno, Errno::IO);
    assert!(failed.reason.unwrap().contains("300 ms"));
    assert!(began.elapsed() < Duration::from_millis(1500));
    mail.run("COMMIT");
    assert!(read(&store, DRAFT).unwrap().contains("one"));
}

/// Cuts a file and writes it, without closing it.
fn write_anew(store: &dyn Store, ino: Ino, text: &str) {
    resize(store, ino, 0);
    store.write(&caller(2), ino, 0, text.as_bytes()).unwrap();
}

#[test]
fn a_refused_change_stays_refused_and_is_committed_once_the_lock_ends() {
    for (mail, store, ino) in drafts() {
        let (writer, reader) = (
            store.open(ino, true).unwrap(),
            store.open(ino, false).unwrap(),
        );
        write_anew(&store, ino, "no header");
        for _ in 0..2 {
            assert_eq!(errno(store.fsync(ino, false)), Errno::INVAL);
            assert_eq!(errno(store.close_handle(writer, ino)), Errno::INVAL);
        }
        store.close_handle(reader, ino).unwrap();
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
    }
    let mail = Mail::new();
    mail.add(8, "drafts", "me", "Draft", "one");
    let store = mail.view_as(true, |text| {
        text.replace("[source]", "[source]\ntimeout_ms = 300")
    });
    let ino = go(&store, DRAFT).unwrap();
    let writer = store.open(ino, true).unwrap();
    write_anew(&store, ino, &draft("two"));
    mail.run("BEGIN IMMEDIATE");
    for _ in 0..2 {
        assert_eq!(errno(store.fsync(ino, false)), Errno::BUSY);
    }
    assert_eq!(errno(store.close_handle(writer, ino)), Errno::BUSY);
    mail.run("COMMIT");
    store.fsync(ino, false).unwrap();
    assert_eq!(mail.value("SELECT body FROM messages"), "two");
}

#[test]
fn a_program_that_opens_a_file_goes_on_with_what_readers_see() {
    let append = |store: &dyn Store, ino: Ino| {
        let writer = store.open(ino, true).unwrap();
        let end = store.getattr(ino).unwrap().size;
        store.write(&caller(2), ino, end, b"more\n").unwrap();
        store.close_handle(writer, ino).unwrap();
    };
    let long = draft(&"long ".repeat(60));
    let all = drafts();
    for (_, store, ino) in &all {
        overwrite(store, *ino, &long).unwrap();
        write_anew(store, *ino, &"refused".repeat(9));
        assert_eq!(errno(store.close(*ino)), Errno::INVAL);
        append(store, *ino);
        assert_eq!(read(store, DRAFT).unwrap(), format!("{long}more\n"));
        resize(store, *ino, 0);
    }
    // As long as a file that was only cut waits for more.
    std::thread::sleep(Duration::from_millis(5200));
    for (_, store, ino) in &all {
        append(store, *ino);
        assert_eq!(read(store, DRAFT).unwrap(), format!("{long}more\nmore\n"));
    }
}

#[test]
fn a_writer_of_a_deleted_file_changes_no_row_that_gets_its_key() {
    for (mail, store, ino) in drafts() {
        let writer = store.open(ino, true).unwrap();
        write_anew(&store, ino, &draft("ours"));
        let dir = go(&store, "drafts").unwrap();
        store.unlink(&caller(2), dir, b"Draft 8.eml").unwrap();
        mail.add(8, "drafts", "me", "Draft", "theirs");
        assert_eq!(go(&store, DRAFT).unwrap(), ino);
        assert_eq!(read(&store, DRAFT).unwrap(), draft("theirs"));
        store.fsync(ino, false).unwrap();
        store.close_handle(writer, ino).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "theirs");
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
    }
}

#[test]
fn a_size_that_a_program_sets_is_committed_or_refused_by_its_close() {
    for (mail, store, ino) in drafts() {
        let text = draft("one\ntwo");
        overwrite(&store, ino, &text).unwrap();
        resize(&store, ino, text.len() as u64 - 4);
        store.close(ino).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "one");
        resize(&store, ino, 10);
        assert_eq!(errno(store.close(ino)), Errno::INVAL);
        assert_eq!(read(&store, DRAFT).unwrap(), draft("one"));
    }
}

#[test]
fn a_save_by_rename_waits_for_a_commit_and_replaces_what_is_not_committed() {
    for (mail, store, ino) in drafts() {
        let body = || mail.value("SELECT body FROM messages WHERE id = 8");
        let writer = store.open(ino, true).unwrap();
        write_anew(&store, ino, &draft("theirs"));
        save_by_rename(&store, &draft("saved")).unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("saved"));
        store.close_handle(writer, ino).unwrap();
        assert_eq!(body(), "saved");

        create_draft(&store, ".tmp", &draft("saved again"));
        write_anew(&store, ino, &draft("theirs"));
        let other = mail.second();
        other("BEGIN; UPDATE messages SET is_read = 0 WHERE id = 8");
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| store.close(ino));
            std::thread::sleep(Duration::from_millis(150));
            let rename = scope.spawn(|| rename_over(&store));
            std::thread::sleep(Duration::from_millis(150));
            other("COMMIT");
            commit.join().unwrap().unwrap();
            rename.join().unwrap().unwrap();
        });
        assert_eq!(body(), "saved again");
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
    }
}

#[test]
fn a_new_file_that_is_deleted_during_its_commit_has_no_row() {
    for mail in mails() {
        let store = mail.view(true);
        let dir = go(&store, "drafts").unwrap();
        for _ in 0..100 {
            let new = create(&store, dir, "new.eml", Kind::File).ino;
            write_anew(&store, new, &draft("new"));
            let begins = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begins.wait();
                    store.close(new).unwrap();
                });
                begins.wait();
                store.unlink(&caller(2), dir, b"new.eml").unwrap();
            });
            assert_eq!(mail.value("SELECT count(*) FROM messages"), "0");
        }
    }
}

#[test]
fn a_given_name_is_found_while_the_mount_changes_the_row() {
    for mail in mails() {
        let store = mail.view(true);
        create_draft(&store, "a.eml", &draft("first"));
        let ino = go(&store, "drafts/a.eml").unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..200 {
                    overwrite(&store, ino, &draft(&number.to_string())).unwrap();
                }
            });
            while !writer.is_finished() {
                assert_eq!(go(&store, "drafts/a.eml").unwrap(), ino);
            }
        });
        assert_eq!(read(&store, "drafts/a.eml").unwrap(), draft("199"));
    }
}

#[test]
fn a_sync_commits_every_file_that_the_database_takes() {
    for (mail, store, refused) in drafts() {
        write_anew(&store, refused, "no header");
        for id in 20..25 {
            mail.add(id, "drafts", "me", "Draft", "one");
            let ino = go(&store, &format!("drafts/Draft {id}.eml")).unwrap();
            write_anew(&store, ino, &draft("two"));
        }
        assert_eq!(errno(store.sync()), Errno::INVAL);
        let committed = "SELECT count(*) FROM messages WHERE body = 'two'";
        assert_eq!(mail.value(committed), "5");
    }
}
