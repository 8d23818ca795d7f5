//! Errors in a definition are reported before anything is mounted.

use super::databases::Mail;
use super::*;

fn refusal(text: &str) -> String {
    super::refusal(opened_unchanged(text, &Mail::new().place, true))
}

#[test]
fn a_fault_of_the_second_of_two_like_sections_has_its_line() {
    let file = |path: &str, more: &str| {
        format!("[[file]]\nkey = 'id'\nrows = 'SELECT * FROM messages'\npath = '{path}'\n{more}\n\n")
    };
    let two = |second: &str, more: &str| {
        let start = "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\n";
        let (first, second) = (file("a/{id}", "body = '{body}'"), file(second, more));
        refusal(&format!("{start}{first}{second}"))
    };
    insta::assert_snapshot!(two("b/{id}", "body = '{text}'"), @"x.toml:14: rows: no column `text`; there are id, thread_id, sender, recipient, sent_at, subject, body, folder, is_read, version");
    insta::assert_snapshot!(two("b/{id}", "body = '{body}'\nmodified = 'time'"), @"x.toml:14: rows: no column `time`; there are id, thread_id, sender, recipient, sent_at, subject, body, folder, is_read, version");
    insta::assert_snapshot!(two("b/{id}", "body = '{body'"), @"x.toml:16: body: `{body`: a column ends with `}`");
    insta::assert_snapshot!(two("a/{id}", "body = ''"), @r#"x.toml:15: path "a/{id}": it appears twice"#);
    insta::assert_snapshot!(two("b/{subject}", "body = ''"), @"x.toml:15: path: two rows could give one name: the name must have the key `{id}` once, or the file `unique = true`");
}

#[test]
fn a_unique_name_needs_a_key_that_is_a_column() {
    let text = "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\n[[file]]\npath = '{subject}'\nkey = 'number'\n\
        unique = true\nrows = 'SELECT subject FROM messages'\nbody = ''\n";
    insta::assert_snapshot!(refusal(text), @"x.toml:10: rows: no column `number`; there are subject");
}

#[test]
fn a_field_that_a_kind_of_source_lacks_is_refused_with_line_and_field() {
    let with = |line: &str| {
        refusal(&format!(
            "name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n{line}\n[[computed]]\npath = 'a'\nrows = 'SELECT 1'\n"
        ))
    };
    insta::assert_snapshot!(with("stale_ms = 7"), @"x.toml:5: stale_ms: only `directory` and `http` sources have one");
    insta::assert_snapshot!(with("channel = 'mail'"), @"x.toml:5: channel: only `postgresql` sources have one");
}

#[test]
fn a_wrong_definition_is_refused_with_file_line_and_field() {
    let with = |rest: &str| format!("name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\n{rest}");
    let file = |path: &str, rows: &str, more: &str| {
        let path = format!("path = '{path}'\nkey = 'id'\nrows = \"{rows}\"");
        refusal(&with(&format!("[[file]]\n{path}\nbody = '{{body}}'\n{more}")))
    };
    let all = "SELECT * FROM messages";
    insta::assert_snapshot!(file("{id}.eml", "SELECT id FROM messages", ""), @"x.toml:9: rows: no column `body`; there are id");
    insta::assert_snapshot!(file("{subject}.eml", all, ""), @"x.toml:7: path: two rows could give one name: the name must have the key `{id}` once, or the file `unique = true`");
    insta::assert_snapshot!(file("{subject} {id} {body}", all, ""), @"x.toml:7: path: the key `{id}` must be the first or the last column, with text between it and the next");
    insta::assert_snapshot!(file("{id}{subject}", all, ""), @"x.toml:7: path: the key `{id}` must be the first or the last column, with text between it and the next");
    insta::assert_snapshot!(file("a/{sender}/{id}", all, ""), @r#"x.toml:7: path "a/{sender}/{id}": no [[directory]] has the path "a/{sender}""#);
    insta::assert_snapshot!(file("{id}", "SELECT * FROM messages WHERE sender = :sender", ""), @"x.toml:9: rows: parameter `:sender` is not a column of a directory above");
    insta::assert_snapshot!(file("{id}", "DELETE FROM messages RETURNING *", ""), @"x.toml:9: rows: it changes rows; a query may not");
    insta::assert_snapshot!(file("{id}", "SELECT * FROM missing", ""), @"x.toml:9: rows: no such table: missing");
    insta::assert_snapshot!(file("{id}", all, "mode = 7"), @"x.toml:11: field `file[0].mode`: unknown field `mode`, expected one of `path`, `key`, `unique`, `rows`, `body`, `modified`, `attributes`, `write`");
    insta::assert_snapshot!(file("{id}", all, "write.update = 'UPDATE messages SET body = :text WHERE id = :id'"), @"x.toml:11: update: parameter `:text` is not one of its columns");
    insta::assert_snapshot!(refusal(&with("")), @"x.toml:1: it shows no file: add a [[file]], [[computed]] or [[directory]]");
    insta::assert_snapshot!(refusal(&with("[[question]]\npath = ':a?{x}'\nrows = 'SELECT 1'\nnote = '{id}'")), @"x.toml:9: note: it follows a `target`, which is missing");
    insta::assert_snapshot!(refusal(&with("[[question]]\npath = ':a?{x}'\nrows = 'SELECT 1 AS one'\ntarget = '{id}'")), @"x.toml:8: rows: no column `id`; there are one");
    insta::assert_snapshot!(refusal(&with("[[question]]\npath = 'about'\nrows = 'SELECT 1'")), @"x.toml:7: path: a question is `:name?{column}`");
    let folder = "[[directory]]\npath = '{folder}'\nrows = 'SELECT folder FROM messages'";
    let below = |more: &str| refusal(&with(&format!("{folder}\n{more}")));
    insta::assert_snapshot!(below(&folder.replace("'{", "'{folder}/{")), @r#"x.toml:10: path "{folder}/{folder}": `:folder` would be two of its parts"#);
    insta::assert_snapshot!(below("[[question]]\npath = '{folder}/:a?{folder}'\nrows = 'SELECT 1'"), @r#"x.toml:10: path "{folder}/:a?{folder}": `:folder` would be two of its parts"#);
    let two = |first: &str, second: &str| {
        let file = |path: &str| format!("[[file]]\npath = '{path}'\nkey = 'id'\nrows = '{all}'\nbody = ''\n");
        refusal(&with(&(file(first) + &file(second))))
    };
    insta::assert_snapshot!(two("{id} {subject}.eml", "{subject} {id}.eml"), @r#"x.toml:12: path "{subject} {id}.eml": a name could also be one of "{id} {subject}.eml" in the same directory"#);
    let computed = "[[computed]]\npath = '7.eml'\nrows = 'SELECT 1'";
    let within = "[[computed]]\npath = 'a'\nrows = 'SELECT 1'";
    insta::assert_snapshot!(file("a/{id}.md", all, within), @r#"x.toml:7: path "a/{id}.md": "a" is a computed file, not a directory"#);
    insta::assert_snapshot!(file("{id}.eml", all, computed), @r#"x.toml:7: path "{id}.eml": a name could also be "7.eml" in the same directory"#);
    let question = "[[question]]\npath = ':about?{words}'\nrows = 'SELECT 1'";
    insta::assert_snapshot!(file("{subject} {id}", all, question), @r#"x.toml:7: path "{subject} {id}": a name could also be ":about?{words}" in the same directory"#);
    let link = "[[link]]\npath = '{subject}'\nrows = 'SELECT subject FROM messages'\ntarget = ''";
    let unique = |path: &str, other: &str| file(path, all, &format!("unique = true\n{other}"));
    insta::assert_snapshot!(unique("{body}", link), @r#"x.toml:7: path "{body}": a name could also be one of "{subject}" in the same directory"#);
    let third = link.replace("path = '{subject}'", "path = 'a.txt/{subject}'");
    insta::assert_snapshot!(unique("{body}.txt", &format!("{link}\n{third}")), @r#"x.toml:7: path "{body}.txt": a name could also be "a.txt" in the same directory"#);
    insta::assert_snapshot!(file("{id}", all, "attributes = ['unread']"), @"x.toml:9: rows: no column `unread`; there are id, thread_id, sender, recipient, sent_at, subject, body, folder, is_read, version");
    insta::assert_snapshot!(file("{id}", all, "attributes = ['sender', 'sender']"), @"x.toml:11: attributes: `sender` appears twice");
    insta::assert_snapshot!(file("{id}", "SELECT *, 1 AS reason FROM messages", "attributes = ['reason']"), @"x.toml:11: attributes: `reason` says why a change was refused: name it otherwise");
    insta::assert_snapshot!(file("%~{id}", all, ""), @r#"x.toml:7: path "%~{id}": a name may not begin with `%~`"#);
    let long = file(&format!("{}{{id}}", "x".repeat(200)), all, "");
    assert!(long.contains("a part has more than 191 bytes"), "{long}");
    let table = "[[source.table]]\nname = 'issue'\npath = ''\nkey = 'id'\ncolumns = [['number', '/number']]";
    insta::assert_snapshot!(refusal(&with(&format!("{table}\n{computed}"))), @"x.toml:9: key: table `issue` has no column `id`");
    for rows in ["ATTACH '/etc/passwd' AS other", "PRAGMA user_version = 7", "SELECT load_extension('x')"] {
        let said = file("{id}", rows, "");
        assert!(said.contains("not authorized") || said.contains("no such function"), "{said}");
    }
    assert!(refusal("name = 'x'").contains("x.toml"));
}
