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

/// Waits until a file is being committed.
fn commit_waits(store: &ViewStore, ino: Ino) {
    eventually("a commit", || store.is_slow(ino, SlowCall::Read { offset: 0, size: 1 }));
}

fn create_draft(store: &ViewStore, name: &str, text: &str) {
    write_new(store, go(store, "drafts").unwrap(), name, text).unwrap();
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
        shows(&store, "drafts/b.eml", &["second"]);

        // Another program deletes the row, and its next one gets the key.
        let row = "recipient = 'me', body = 'theirs'";
        mail.run(&format!("UPDATE messages SET {row} WHERE id = {key}"));
        assert_eq!(errno(go(&store, "drafts/b.eml")), Errno::NOENT);
        shows(&store, "drafts/a.eml", &["third"]);
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
            shows(&store, "drafts/a.eml", &[body]);
        }
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
    }
}

#[test]
fn a_change_that_begins_during_a_commit_is_committed_by_its_own_close() {
    for (mail, store, ino) in drafts() {
        let other = mail.second();
        other("BEGIN; UPDATE messages SET is_read = 0");
        let first = open_cut(&store, ino).unwrap();
        let long = draft(&"first ".repeat(100));
        write(&store, first, 0, &long).unwrap();
        std::thread::scope(|scope| {
            let first = scope.spawn(|| close(&store, first, ino));
            commit_waits(&store, ino);
            // Readers see no part.
            assert_eq!(read(&store, DRAFT).unwrap(), draft("one"));
            let second = scope.spawn(|| overwrite(&store, ino, &draft("second")));
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
        let writer = open_cut(&store, ino).unwrap();
        let reader = store.open(ino, false).unwrap();
        let text = draft("whole");
        let (half, rest) = text.split_at(5);
        write(&store, writer, 0, half).unwrap();
        store.close(reader, ino).unwrap();
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
        write(&store, writer, 5, rest).unwrap();
        store.close(writer, ino).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "whole");
        assert_eq!(mail.value("SELECT version FROM messages"), "2");
    }
}

#[test]
fn a_stale_change_can_be_made_again_at_once() {
    for (mail, store, ino) in drafts() {
        let writer = open_cut(&store, ino).unwrap();
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1");
        write(&store, writer, 0, &draft("ours")).unwrap();
        assert_eq!(errno(store.close(writer, ino)), Errno::STALE);
        overwrite(&store, ino, &draft("ours")).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "ours");
        // The same descriptor can, too.
        write_anew(&store, writer, ino, &draft("ours again"));
        close(&store, writer, ino).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "ours again");
    }
}

/// The file is opened twice, and both write: a part of the first, then all of the second, then the rest.
fn write_twice(store: &ViewStore, ino: Ino) -> [Result<()>; 2] {
    let texts = [draft(&"a".repeat(100)), draft("bbb")];
    let writers = [(); 2].map(|()| open_cut(store, ino).unwrap());
    let (part, rest) = texts[0].split_at(20);
    write(store, writers[0], 0, part).unwrap();
    write(store, writers[1], 0, &texts[1]).unwrap();
    write(store, writers[0], 20, rest).unwrap();
    for (writer, text) in writers.iter().zip(&texts) {
        let mut content = Vec::new();
        store.read_handle(*writer, ino, 0, 999, &mut content).unwrap();
        assert_eq!(String::from_utf8(content).unwrap(), *text);
        let attr = store.getattr_handle(*writer, ino).unwrap();
        assert_eq!(attr.size, text.len() as u64);
    }
    writers.map(|writer| close(store, writer, ino))
}

#[test]
fn two_descriptors_of_a_file_never_mix_their_bytes() {
    for (mail, store, ino) in drafts() {
        let [first, second] = write_twice(&store, ino);
        first.unwrap();
        assert_eq!(errno(second), Errno::STALE);
        assert_eq!(mail.value("SELECT body FROM messages"), "a".repeat(100));
        has(&reason(&store, ino), &["read the file again"]);
        // Nor does a handle that was opened without a cut, and has read nothing.
        let writers = [(); 2].map(|()| store.open(ino, true).unwrap());
        overwrite(&store, ino, &draft("ccc")).unwrap();
        for writer in writers {
            write(&store, writer, 4, "us").unwrap();
            assert_eq!(errno(close(&store, writer, ino)), Errno::STALE);
        }
        assert_eq!(read(&store, DRAFT).unwrap(), draft("ccc"));

        let store = mail.view_as(true, |text| text.replace(" AND version = :version", ""));
        let ino = go(&store, DRAFT).unwrap();
        let _ = write_twice(&store, ino).map(Result::unwrap);
        assert_eq!(read(&store, DRAFT).unwrap(), draft("bbb"));
    }
}

#[test]
fn a_descriptor_goes_on_with_what_it_has_committed_and_with_no_other_content() {
    for (mail, store, ino) in drafts() {
        let writer = open_cut(&store, ino).unwrap();
        write(&store, writer, 0, &draft("one")).unwrap();
        store.fsync_handle(writer).unwrap();
        let append = |text: &str| store.append_handle(writer, text.as_bytes());
        append("two\n").unwrap();
        store.close(writer, ino).unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("one\ntwo"));
        assert_eq!(mail.value("SELECT version FROM messages"), "3");
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1");
        append("three\n").unwrap();
        assert_eq!(errno(store.close(writer, ino)), Errno::STALE);
        assert_eq!(read(&store, DRAFT).unwrap(), draft("theirs"));
    }
}

#[test]
fn a_created_file_is_the_file_of_its_row_once_it_is_committed() {
    for mail in mails() {
        let store = mail.view(true);
        let dir = go(&store, "drafts").unwrap();
        let new = create(&store, dir, "new.eml", Kind::File).ino;
        let [writer, late] = [(); 2].map(|()| store.open(new, true).unwrap());
        write(&store, writer, 0, &draft("one")).unwrap();
        store.fsync_handle(writer).unwrap();
        let reader = store.open(new, false).unwrap();
        for handle in [writer, reader] {
            let mut bytes = Vec::new();
            store.read_handle(handle, new, 0, 999, &mut bytes).unwrap();
            assert_eq!(String::from_utf8(bytes).unwrap(), draft("one"));
        }
        let size = store.getattr(new).unwrap().size;
        assert_eq!(size, draft("one").len() as u64);
        let end = size as usize;
        write(&store, writer, end, "two\n").unwrap();
        close(&store, writer, new).unwrap();
        assert_eq!(read(&store, "drafts/new.eml").unwrap(), draft("one\ntwo"));
        // A handle opened before the row existed makes no second row, and changes the first only from its beginning.
        write(&store, late, 0, &draft("late")).unwrap();
        assert_eq!(errno(store.close(late, new)), Errno::STALE);
        assert_eq!(list(&store, "drafts").len(), 1);
        write_anew(&store, late, new, &draft("late"));
        close(&store, late, new).unwrap();
        assert_eq!(read(&store, "drafts/new.eml").unwrap(), draft("late"));
        // Another file gets the name, and another number.
        store.unlink(&caller(2), dir, b"new.eml").unwrap();
        assert_ne!(create(&store, dir, "new.eml", Kind::File).ino, new);
    }
}

#[test]
fn calls_that_wait_for_a_database_are_slow_and_no_others() {
    for (mail, store, ino) in drafts() {
        let dir = go(&store, "drafts").unwrap();
        let read = SlowCall::Read { offset: 0, size: 1 };
        let calls = [SlowCall::Close, SlowCall::Fsync, SlowCall::Open, SlowCall::Change, SlowCall::Approval, read];
        let slow = || calls.map(|call| store.is_slow(ino, call));
        let writer = open_cut(&store, ino).unwrap();
        assert_eq!(slow(), [true, true, false, false, false, false]);
        write(&store, writer, 0, &draft("two")).unwrap();
        assert!(store.is_slow(dir, SlowCall::Approval), "names are rows");
        let other = mail.second();
        other("BEGIN; UPDATE messages SET is_read = 0");
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| store.close(writer, ino));
            eventually("a commit that waits", || slow() == [true, true, true, true, false, true]);
            other("COMMIT");
            commit.join().unwrap().unwrap();
        });
        assert_eq!(slow(), [false; 6]);
        store.release(writer);
        assert!(!mail.view(false).is_slow(ROOT, SlowCall::Approval));
    }
}

#[test]
fn writers_that_wait_for_a_lock_leave_connections_to_readers() {
    for mail in mails() {
        for id in 0..12 {
            mail.add(id, "drafts", "me", "Draft", "one");
        }
        let paths: Vec<String> = (0..12).map(|id| format!("drafts/Draft {id}.eml")).collect();
        let store = mail.view(true);
        let other = mail.second();
        let writers = paths.iter().map(|path| {
            let ino = go(&store, path).unwrap();
            let writer = open_cut(&store, ino).unwrap();
            write(&store, writer, 0, &draft("two")).unwrap();
            (writer, ino)
        });
        let writers: Vec<(u64, Ino)> = writers.collect();
        other("BEGIN; UPDATE messages SET is_read = 0");
        std::thread::scope(|scope| {
            let commits = writers.iter().map(|(writer, ino)| scope.spawn(|| close(&store, *writer, *ino)));
            let commits: Vec<_> = commits.collect();
            writers.iter().for_each(|(_, ino)| commit_waits(&store, *ino));
            // A reader that waited for a connection would get an error.
            assert_eq!(read(&store, &paths[0]).unwrap(), draft("one"));
            assert!(commits.iter().all(|commit| !commit.is_finished()));
            other("COMMIT");
            commits.into_iter().for_each(|it| it.join().unwrap().unwrap());
        });
        let committed = "SELECT count(*) FROM messages WHERE body = 'two'";
        assert_eq!(mail.value(committed), "12");
    }
}

fn save_by_rename(store: &ViewStore, text: &str) -> Result<()> {
    create_draft(store, ".tmp", text);
    rename_over(store)
}

fn rename_over(store: &ViewStore) -> Result<()> {
    let drafts = go(store, "drafts")?;
    let (from, to) = ((drafts, &b".tmp"[..]), (drafts, &b"Draft 8.eml"[..]));
    store.rename(&caller(2), from, to, RenameMode::Replace).map(|_| ())
}

#[test]
fn a_save_by_rename_changes_both_rows_or_none() {
    for (mail, store, _) in drafts().iter().filter(|(mail, ..)| mail.is_sqlite()) {
        mail.run("CREATE TRIGGER keeps BEFORE DELETE ON messages BEGIN SELECT RAISE(ABORT, 'kept'); END");
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
fn a_save_by_rename_takes_what_was_written_after_the_fsync_of_a_new_file() {
    for (mail, store, _) in drafts() {
        let drafts = go(&store, "drafts").unwrap();
        let ino = create(&store, drafts, ".tmp", Kind::File).ino;
        let writer = store.open(ino, true).unwrap();
        let text = draft("first");
        write(&store, writer, 0, &text).unwrap();
        store.fsync_handle(writer).unwrap();
        write(&store, writer, text.len() - 1, " and more\n").unwrap();
        rename_over(&store).unwrap();
        close(&store, writer, ino).unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("first and more"));
        assert_eq!(mail.value("SELECT count(*) FROM messages"), "1");
    }
}

#[test]
fn a_save_by_rename_over_a_row_that_changed_since_it_was_read_is_stale() {
    for (mail, store, _) in drafts() {
        assert_eq!(read(&store, DRAFT).unwrap(), draft("one"));
        mail.run("UPDATE messages SET body = 'theirs', version = version + 1");
        assert_eq!(errno(save_by_rename(&store, &draft("ours"))), Errno::STALE);
        let body = mail.value("SELECT body FROM messages WHERE id = 8");
        assert_eq!(body, "theirs");
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
        store.rename(&caller(2), from, to, RenameMode::Replace).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "first");
    }
}

#[test]
fn a_database_that_another_program_locks_is_eio_for_readers_and_ebusy_for_writers() {
    let (mail, store, ino) = impatient("DELETE");
    mail.run("BEGIN IMMEDIATE");
    let began = Instant::now();
    let refused = overwrite(&store, ino, &draft("two"));
    assert_eq!(errno(refused), Errno::BUSY);
    mail.run("COMMIT; BEGIN EXCLUSIVE");
    let failed = store.lookup(go(&store, "drafts").unwrap(), b"Draft 8.eml");
    fails(failed, Errno::IO, &["300 ms"]);
    assert!(began.elapsed() < Duration::from_secs(60));
    mail.run("COMMIT");
    eventually("the draft", || read(&store, DRAFT).is_ok_and(|text| text == draft("one")));
}

/// One draft in SQLite, and a view that waits for 300 ms.
fn impatient(journal: &str) -> (Mail, ViewStore, Ino) {
    let mail = Mail::new();
    mail.run(&format!("PRAGMA journal_mode = {journal}"));
    mail.add(8, "drafts", "me", "Draft", "one");
    let limit = |text: String| text.replace("[source]", "[source]\ntimeout_ms = 300");
    let store = mail.view_as(true, limit);
    eventually("the draft", || go(&store, DRAFT).is_ok());
    let ino = go(&store, DRAFT).unwrap();
    (mail, store, ino)
}

/// Cuts a file and writes it, without closing it.
fn write_anew(store: &ViewStore, writer: u64, ino: Ino, text: &str) {
    let cut = store.setattr_handle(writer, &caller(2), ino, &size_change(0));
    cut.unwrap();
    write(store, writer, 0, text).unwrap();
}

#[test]
fn a_refused_change_stays_refused_and_is_committed_once_the_lock_ends() {
    for (mail, store, ino) in drafts() {
        let writer = open_cut(&store, ino).unwrap();
        let reader = store.open(ino, false).unwrap();
        write(&store, writer, 0, "no header").unwrap();
        for _ in 0..2 {
            assert_eq!(errno(store.fsync_handle(writer)), Errno::INVAL);
            assert_eq!(errno(store.close(writer, ino)), Errno::INVAL);
        }
        store.close(reader, ino).unwrap();
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
    }
    let (mail, store, ino) = impatient("WAL");
    let writer = open_cut(&store, ino).unwrap();
    write(&store, writer, 0, &draft("two")).unwrap();
    mail.run("BEGIN IMMEDIATE");
    for _ in 0..2 {
        assert_eq!(errno(store.fsync_handle(writer)), Errno::BUSY);
    }
    assert_eq!(errno(store.close(writer, ino)), Errno::BUSY);
    mail.run("COMMIT");
    eventually("a commit", || store.fsync_handle(writer).is_ok());
    assert_eq!(mail.value("SELECT body FROM messages"), "two");
}

#[test]
fn a_program_that_opens_a_file_goes_on_with_what_readers_see() {
    let append = |store: &ViewStore, ino: Ino| {
        let writer = store.open(ino, true).unwrap();
        // Where the kernel takes the end to be does not matter.
        let appended = store.append_handle(writer, b"more\n");
        appended.unwrap();
        close(store, writer, ino).unwrap();
    };
    let long = draft(&"long ".repeat(60));
    for (_, store, ino) in drafts() {
        overwrite(&store, ino, &long).unwrap();
        let refused = open_cut(&store, ino).unwrap();
        write(&store, refused, 0, &"refused".repeat(9)).unwrap();
        assert_eq!(errno(store.close(refused, ino)), Errno::INVAL);
        append(&store, ino);
        assert_eq!(read(&store, DRAFT).unwrap(), format!("{long}more\n"));
        let cut = open_cut(&store, ino).unwrap();
        append(&store, ino);
        assert_eq!(read(&store, DRAFT).unwrap(), format!("{long}more\nmore\n"));
        close(&store, cut, ino).unwrap();
        assert_eq!(errno(close(&store, refused, ino)), Errno::INVAL);
    }
}

#[test]
fn a_writer_of_a_deleted_file_changes_no_row_that_gets_its_key() {
    for (mail, store, ino) in drafts() {
        let writer = open_cut(&store, ino).unwrap();
        write(&store, writer, 0, &draft("ours")).unwrap();
        let idle = store.open(ino, true).unwrap();
        let dir = go(&store, "drafts").unwrap();
        store.unlink(&caller(2), dir, b"Draft 8.eml").unwrap();
        mail.add(8, "drafts", "me", "Draft", "theirs");
        assert_eq!(go(&store, DRAFT).unwrap(), ino);
        assert_eq!(read(&store, DRAFT).unwrap(), draft("theirs"));
        for writer in [writer, idle] {
            store.fsync_handle(writer).unwrap();
            store.close(writer, ino).unwrap();
            let later = write(&store, writer, 0, &draft("ours"));
            fails(later, Errno::STALE, &["deleted"]);
            let cut = store.setattr_handle(writer, &caller(2), ino, &size_change(0));
            assert_eq!(errno(cut), Errno::STALE);
            close(&store, writer, ino).unwrap();
        }
        assert_eq!(mail.value("SELECT body FROM messages"), "theirs");
        assert_eq!(mail.value("SELECT version FROM messages"), "1");
        overwrite(&store, ino, &draft("ours")).unwrap();
        assert_eq!(mail.value("SELECT body FROM messages"), "ours");
    }
}

#[test]
fn a_size_that_a_program_sets_is_committed_or_refused() {
    for (mail, store, ino) in drafts() {
        let text = draft("one\ntwo");
        overwrite(&store, ino, &text).unwrap();
        let writer = store.open(ino, true).unwrap();
        let set = store.setattr_handle(writer, &caller(2), ino, &size_change(10));
        assert_eq!(set.unwrap().size, 10);
        assert_eq!(errno(close(&store, writer, ino)), Errno::INVAL);
        // By its path: a change of its own.
        resize(&store, ino, text.len() as u64 - 4);
        assert_eq!(mail.value("SELECT body FROM messages"), "one");
        for size in [0, 10] {
            let set = store.setattr(&caller(2), ino, &size_change(size));
            assert_eq!(errno(set), Errno::INVAL);
        }
        assert_eq!(read(&store, DRAFT).unwrap(), draft("one"));
    }
}

#[test]
fn a_save_by_rename_waits_for_a_commit_and_replaces_what_is_not_committed() {
    for (mail, store, ino) in drafts() {
        let body = || mail.value("SELECT body FROM messages WHERE id = 8");
        let writer = open_cut(&store, ino).unwrap();
        write(&store, writer, 0, &draft("theirs")).unwrap();
        save_by_rename(&store, &draft("saved")).unwrap();
        assert_eq!(read(&store, DRAFT).unwrap(), draft("saved"));
        store.close(writer, ino).unwrap();
        assert_eq!(body(), "saved");

        create_draft(&store, ".tmp", &draft("saved again"));
        let writer = open_cut(&store, ino).unwrap();
        write(&store, writer, 0, &draft("theirs")).unwrap();
        let other = mail.second();
        other("BEGIN; UPDATE messages SET is_read = 0 WHERE id = 8");
        std::thread::scope(|scope| {
            let commit = scope.spawn(|| store.close(writer, ino));
            commit_waits(&store, ino);
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
            let writer = store.open(new, true).unwrap();
            write(&store, writer, 0, &draft("new")).unwrap();
            let begins = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    begins.wait();
                    close(&store, writer, new).unwrap();
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
        let write_open = |ino: Ino, text: &str| {
            let writer = open_cut(&store, ino).unwrap();
            write(&store, writer, 0, text).unwrap();
        };
        write_open(refused, "no header");
        for id in 20..25 {
            mail.add(id, "drafts", "me", "Draft", "one");
            let ino = go(&store, &format!("drafts/Draft {id}.eml")).unwrap();
            write_open(ino, &draft("two"));
        }
        assert_eq!(errno(store.sync()), Errno::INVAL);
        let committed = "SELECT count(*) FROM messages WHERE body = 'two'";
        assert_eq!(mail.value(committed), "5");
    }
}
