//! What is wrong with a definition is said before anything is mounted.

use backends::view::ViewStore;

use super::databases::Mail;
use super::*;

fn refusal(text: &str) -> String {
    let mail = Mail::new();
    let path = mail.path();
    let opened = ViewStore::open(
        (Path::new("x.toml"), text),
        path.to_str().unwrap(),
        true,
        &caller(1),
    );
    opened.unwrap_err().to_string()
}

#[test]
fn a_wrong_definition_is_refused_with_file_line_and_field() {
    let with = |rest: &str| format!("name = 'x'\nessay = ''\n[source]\nkind = 'sqlite'\n\n{rest}");
    let file = |path: &str, rows: &str, more: &str| {
        let path = format!("path = '{path}'\nkey = 'id'\nrows = \"{rows}\"");
        refusal(&with(&format!(
            "[[file]]\n{path}\nbody = '{{body}}'\n{more}"
        )))
    };
    let all = "SELECT * FROM messages";
    insta::assert_snapshot!(file("{id}.eml", "SELECT id FROM messages", ""), @"x.toml:9: rows: no column `body`; there are id");
    insta::assert_snapshot!(file("{subject}.eml", all, ""), @"x.toml:7: path: a name without the key `{id}`, once, could be that of two rows (or say `unique = true`)");
    insta::assert_snapshot!(file("{subject} {id} {body}", all, ""), @"x.toml:7: path: the key `{id}` must be the first or the last column, with text between it and the next");
    insta::assert_snapshot!(file("{id}{subject}", all, ""), @"x.toml:7: path: the key `{id}` must be the first or the last column, with text between it and the next");
    insta::assert_snapshot!(file("a/{sender}/{id}", all, ""), @r#"x.toml:7: path "a/{sender}/{id}": no [[directory]] has the path "a/{sender}""#);
    insta::assert_snapshot!(file("{id}", "SELECT * FROM messages WHERE sender = :sender", ""), @"x.toml:9: rows: parameter `:sender` is no column of a directory above");
    insta::assert_snapshot!(file("{id}", "DELETE FROM messages RETURNING *", ""), @"x.toml:9: rows: it changes rows; a query may not");
    insta::assert_snapshot!(file("{id}", "SELECT * FROM missing", ""), @"x.toml:9: rows: no such table: missing");
    insta::assert_snapshot!(file("{id}", all, "mode = 7"), @"x.toml:11: field `file[0].mode`: unknown field `mode`, expected one of `path`, `key`, `unique`, `rows`, `body`, `modified`, `write`");
    insta::assert_snapshot!(file("{id}", all, "write.update = 'UPDATE messages SET body = :text WHERE id = :id'"), @"x.toml:11: update: parameter `:text` is no column that it has");
    insta::assert_snapshot!(refusal(&with("")), @"x.toml:1: it shows nothing: needs a [[file]], [[computed]] or [[directory]]");
    insta::assert_snapshot!(refusal(&with("[[question]]\npath = 'about'\nrows = 'SELECT 1'")), @"x.toml:7: path: a question is `:name?{column}`");
    for rows in [
        "ATTACH '/etc/passwd' AS other",
        "PRAGMA user_version = 7",
        "SELECT load_extension('x')",
    ] {
        let said = file("{id}", rows, "");
        assert!(
            said.contains("not authorized") || said.contains("no such function"),
            "{said}"
        );
    }
    assert!(refusal("name = 'x'").contains("x.toml"));
}
