//! Features of PostgreSQL alone: roles, channels, a server that ends, locks.

use super::*;

/// The trigger that notifies of each change; docs/VIEW.md shows it.
const TRIGGER: &str = "
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NOTIFY mail; RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON messages EXECUTE FUNCTION tell();";

/// A mailbox, if PostgreSQL is installed.
fn mail() -> Option<Mail> {
    cluster().map(Cluster::mail)
}

fn with_channel(text: String) -> String {
    text.replace("[source]", "[source]\nchannel = 'mail'")
}

#[test]
fn answers_are_kept_until_the_channel_notifies_of_a_change() {
    let Some(mail) = mail() else { return };
    mail.run(TRIGGER);
    mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    let store = mail.view_as(true, with_channel);
    for round in 0..200 {
        mail.run(&format!("UPDATE messages SET body = '{round}' WHERE id = 7"));
        let text = read(&store, FIRST).unwrap();
        assert!(text.ends_with(&format!("\n\n{round}\n")), "{text}");
    }
    // Without the trigger, the mount learns nothing of the next change.
    mail.run("ALTER TABLE messages DISABLE TRIGGER tell");
    mail.run("UPDATE messages SET body = 'untold'");
    lacks(&read(&store, FIRST).unwrap(), &["untold"]);
    mail.run("NOTIFY mail");
    shows(&store, FIRST, &["untold"]);
    // A change by the mount itself.
    let drafts = go(&store, "drafts").unwrap();
    assert!(list(&store, "drafts").is_empty());
    write_new(&store, drafts, "new", "To: ann\nSubject: s\n\nx\n").unwrap();
    assert_eq!(list(&store, "drafts").len(), 1);
    let text = with_channel(shipped("mail"));
    let refused = refusal(opened(&text, &Mail::new().place, false));
    has(&refused, &["channel"]);
}

#[test]
fn a_query_changes_nothing_whatever_it_calls() {
    let Some(mail) = mail() else { return };
    mail.run(
        "CREATE FUNCTION evil() RETURNS bigint LANGUAGE sql AS
           'INSERT INTO messages (folder) VALUES (''inbox'') RETURNING id'",
    );
    let text = |rows: &str| {
        format!(
            "name = 'x'\nessay = ''\n[source]\nkind = 'postgresql'\n[[computed]]\npath = 'x'\nrows = \"{rows}\"\n\
            [[computed]]\npath = 'y'\nrows = \"SELECT set_config('default_transaction_read_only', 'off', false)\"\n\
            [[computed]]\npath = 'z'\nrows = \"SELECT set_config('transaction_read_only', 'off', true)\""
        )
    };
    let open = |rows: &str| opened(&text(rows), &mail.place, true);
    let store = open("SELECT evil() AS id").unwrap();
    for name in ["x", "y", "x", "z", "x"] {
        let found = go(&store, name);
        if name != "y" {
            fails(found, Errno::IO, &["read"]);
        }
    }
    assert_eq!(mail.value("SELECT count(*) FROM messages"), "0");
    for rows in ["DELETE FROM messages RETURNING id", "SELECT 1; DROP TABLE messages"] {
        assert!(refusal(open(rows)).starts_with("x.toml:"));
    }
}

#[test]
fn a_password_in_the_url_and_a_superuser_are_refused_and_the_password_is_not_shown() {
    let Some(cluster) = cluster() else { return };
    let mail = cluster.mail();
    let (place, password) = (&mail.place, "postgresql://me:sesame@localhost/");
    let superuser = "files and programs of the server";
    for (place, parts) in [
        (place.replace("postgresql:///", password), &["PGPASSWORD"][..]),
        (format!("{place}&password=sesame"), &["PGPASSWORD"]),
        (cluster.url(&mail.name, "postgres"), &[superuser]),
        (cluster.url("missing", &mail.name), &["missing"]),
        (format!("{place}&sslmode=require"), &["TLS"]),
        ("postgresql:///mail?host=/nowhere&user=me".to_owned(), &["/nowhere", "fix:"]),
    ] {
        let said = refusal(opened(&shipped("mail"), &place, false));
        has(&said, parts);
        lacks(&said, &["sesame"]);
    }
}

#[test]
fn names_and_types_that_sqlite_does_not_have_are_handled() {
    let Some(mail) = mail() else { return };
    mail.run(
        "CREATE TABLE parts (id int PRIMARY KEY, made timestamptz, data bytea, price numeric(8, 2), tags text[]);
         INSERT INTO parts VALUES (1, '2026-03-01 11:00+01', '\\x00ff', 1.50, '{a,b}'), (2, NULL, NULL, NULL, NULL)",
    );
    let text = "name = 'x'\nessay = ''\n[source]\nkind = 'postgresql'\n\
        [[directory]]\npath = '{id}'\nrows = 'SELECT id FROM parts'\n\
        [[file]]\npath = '{id}/{price} {id}'\nkey = 'id'\nmodified = 'made'\n\
        rows = 'SELECT *, id::text AS name FROM parts WHERE id = :id'\nbody = '{data}|{price}|{tags}'\n\
        write.update = 'UPDATE parts SET data = :data WHERE id = :id'\n";
    let store = opened(text, &mail.place, true).unwrap();
    assert_eq!(list(&store, ""), ["1", "2"]);
    assert_eq!(list(&store, "1"), ["1.50 1"]);
    let ino = go(&store, "1/1.50 1").unwrap();
    let attr = store.getattr(ino).unwrap();
    assert_eq!(attr.mtime.0, 1_772_359_200_000_000_000);
    let bytes = crate::common::read(&store, ino, 0, 100);
    assert_eq!(bytes, b"\x00\xff|1.50|{a,b}");
    assert_eq!(bytes.len() as u64, attr.size);
    assert_eq!(read(&store, "2/% 2").unwrap(), "||");
    overwrite(&store, ino, "a\\b|1.50|{a,b}").unwrap();
    let data = mail.value("SELECT encode(data, 'hex') FROM parts WHERE id = 1");
    assert_eq!(data, "615c62");
    // Text that no integer can be.
    for name in ["x", "99999999999999999999", "%FF"] {
        assert_eq!(errno(go(&store, name)), Errno::NOENT, "{name}");
    }
}

#[test]
fn a_row_that_another_session_locks_is_an_error_in_time() {
    let Some(mail) = mail() else { return };
    mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    let limit = |text: String| text.replace("[source]", "[source]\ntimeout_ms = 300");
    let store = mail.view_as(true, limit);
    mail.run("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE");
    let began = Instant::now();
    assert_eq!(errno(read(&store, FIRST)), Errno::IO);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    mail.run("COMMIT");
    eventually("the row", || read(&store, FIRST).is_ok());
}

#[test]
fn a_server_that_ends_is_an_error_in_time_and_comes_back_by_itself() {
    let Some(shared) = cluster() else { return };
    // Only its connections end.
    let mail = shared.mail();
    mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    let unchanged: fn(String) -> String = |text| text;
    for edit in [unchanged, with_channel] {
        let store = mail.view_as(true, edit);
        assert!(read(&store, FIRST).is_ok());
        let end = format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = '{}' AND application_name = 'ctxbench view'",
            mail.name
        );
        shared.connect("postgres", "postgres").run(&end);
        assert!(read(&store, FIRST).is_ok());
        shared.connect("postgres", "postgres").run(&end);
        // Also a change.
        let from = go(&store, "inbox/ann@x.org").unwrap();
        let deleted = store.unlink(&caller(2), from, b"2026-03-01 Budget 7.eml");
        deleted.unwrap();
        mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    }
    let mut cluster = Cluster::start();
    let mail = cluster.mail();
    mail.add(7, "inbox", "ann@x.org", "Budget", "one");
    let store = mail.view(false);
    let ino = go(&store, FIRST).unwrap();
    cluster.stop();
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(errno(store.getattr(ino)), Errno::IO);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(60), "{took:?}");
    assert_eq!(list(&store, "").len(), 5, "names stay");
    cluster.start_anew();
    let again = cluster.mail_named(&mail.name);
    again.add(7, "inbox", "ann@x.org", "Budget", "again");
    shows(&store, FIRST, &["again"]);
}
