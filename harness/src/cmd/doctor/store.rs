//! Checks a `sqlite` or `agent-memory` store.

use std::borrow::Cow;
use std::path::Path;

use inputs::border;
use reports::render::number_of;
use schemars::JsonSchema;
use serde::Serialize;
use sqlite::{DatabaseCheck, check};

use crate::cmd::format::ScreenFormat;

/// How many files without checksums are listed one by one.
const SHOWN: usize = 10;

/// What `doctor --store` prints for programs.
#[derive(Serialize, JsonSchema)]
pub(in crate::cmd) struct PrintedStoreCheck<'a> {
    store: Cow<'a, str>,
    is_whole: bool,
    problems: &'a [String],
    /// Files with content past 256 KiB that has no checksums.
    unchecked_tails: &'a [String],
    is_mounted: bool,
    inodes: u64,
    names: u64,
    chunks: u64,
    /// Files whose content past 256 KiB was compared with its checksums.
    tails: u64,
    /// Inodes without a name.
    orphans: u64,
}

/// Prints the defects of the database `store`. Returns whether it is sound.
pub fn print_store(store: &Path, format: ScreenFormat) -> anyhow::Result<bool> {
    let checked = check(store)?;
    let is_whole = checked.problems.is_empty();
    let document = PrintedStoreCheck {
        store: store.to_string_lossy(),
        is_whole,
        problems: &checked.problems,
        unchecked_tails: &checked.unchecked_tails,
        is_mounted: checked.is_mounted,
        inodes: checked.inodes,
        names: checked.names,
        chunks: checked.chunks,
        tails: checked.tails,
        orphans: checked.orphans,
    };
    format.print(|| lines(store, &checked).join("\n") + "\n", &document)?;
    Ok(is_whole)
}

/// The defects, and the conclusion. A finding is one line, whatever the names in it.
fn lines(store: &Path, checked: &DatabaseCheck) -> Vec<String> {
    let mut lines: Vec<String> = checked.problems.iter().map(|problem| border::line(problem).into_owned()).collect();
    let unchecked = checked.unchecked_tails.iter().take(SHOWN).map(border::path);
    lines.extend(unchecked.map(|path| format!("content past the first 256 KiB has no checksums: {path}")));
    lines.push(format!(
        "{}: {}, {}, {} of content, {}, {} without a name; {}",
        border::path(store),
        number_of(checked.inodes as usize, "inode"),
        number_of(checked.names as usize, "name"),
        number_of(checked.chunks as usize, "chunk"),
        number_of(checked.tails as usize, "tail"),
        number_of(checked.orphans as usize, "inode"),
        conclusion(checked)
    ));
    lines
}

/// Whether the store is whole, and what could not be checked.
fn conclusion(checked: &DatabaseCheck) -> String {
    let found = if checked.problems.is_empty() {
        "whole"
    } else {
        "DAMAGED: copy the file, and export what can be read with sqlite3"
    };
    let why = if checked.is_mounted {
        "the mount computes them at its unmount"
    } else {
        "the mount that wrote it was killed just then, the machine restarted, or the store was copied without its -sums or without file modes"
    };
    match checked.unchecked_tails.len() {
        0 => found.to_owned(),
        1 => format!(
            "{found}, but 1 file has content past 256 KiB without checksums: {why}; a changed byte there cannot be found"
        ),
        files => format!(
            "{found}, but {files} files have content past 256 KiB without checksums: {why}; a changed byte there cannot be found"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::Mutex;

    use fuse::store::{Caller, StoreError, Timestamp};
    use rusqlite::Connection;
    use sqlite::SqliteStore;

    use super::*;

    #[test]
    fn a_truncated_store_is_refused_with_its_lengths() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store.db");
        let connection = Connection::open(&store).unwrap();
        connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (randomblob(30000))").unwrap();
        drop(connection);
        let file = File::options().write(true).open(&store).unwrap();
        let wanted = file.metadata().unwrap().len();
        for left in [wanted - 1, 3000] {
            file.set_len(left).unwrap();
            let error = print_store(&store, ScreenFormat::Json).unwrap_err().to_string();
            assert!(error.contains(&format!("it is truncated: {left} of {wanted} bytes are left")), "{error}");
        }
    }

    #[test]
    fn a_damaged_page_is_logged_once() {
        let dir = tempfile::tempdir().unwrap();
        let (store, log) = (dir.path().join("store.db"), dir.path().join("log"));
        let owner = Caller { uid: 0, gid: 0, now: Timestamp(0) };
        drop(SqliteStore::open(&store, &owner).unwrap());
        let file = File::options().write(true).open(&store).unwrap();
        file.write_all_at(b"damage", 3 * 4096 + 100).unwrap();
        let subscriber = tracing_subscriber::fmt().with_writer(Mutex::new(File::create(&log).unwrap())).finish();
        let checked = tracing::subscriber::with_default(subscriber, || check(&store)).unwrap();
        assert!(
            checked.problems.contains(&"a page of the database is damaged: 4".to_owned()),
            "{:?}",
            checked.problems
        );
        let log = std::fs::read_to_string(log).unwrap();
        assert_eq!(log.matches("page 4 is damaged: wrong checksum").count(), 1, "{log}");
    }

    #[test]
    fn an_error_in_a_statement_of_a_store_is_told_without_the_statement() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE inodes (parent)").unwrap();
        let error = connection.prepare("SELECT name\nFROM inodes\nWHERE parent = ?1").map(drop).unwrap_err();
        assert!(error.to_string().contains("FROM inodes"), "{error}");
        let told = StoreError::from(error).into_reason();
        assert_eq!(told, "SQLite: no such column: name");
    }

    #[test]
    fn a_name_with_line_feeds_adds_no_line() {
        let name = "/x\na.db: 9 inodes; whole".to_owned();
        let checked = DatabaseCheck {
            problems: vec![format!("damaged: {name}")],
            unchecked_tails: vec![name],
            ..DatabaseCheck::default()
        };
        let lines = lines(Path::new("a\n.db"), &checked);
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
        assert_eq!(lines[0], r"damaged: /x\u000aa.db: 9 inodes; whole");
    }

    #[test]
    fn a_store_is_called_whole_without_a_condition_only_if_all_content_was_compared() {
        let mut checked = DatabaseCheck::default();
        assert_eq!(conclusion(&checked), "whole");
        checked.unchecked_tails = vec!["/a".to_owned(), "/b".to_owned()];
        let killed = conclusion(&checked);
        assert!(
            killed.starts_with(
                "whole, but 2 files have content past 256 KiB without checksums: the mount that wrote it was killed"
            ),
            "{killed}"
        );
        checked.is_mounted = true;
        let mounted = conclusion(&checked);
        assert!(mounted.contains("computes them at its unmount"), "{mounted}");
        checked.problems.push("damage".to_owned());
        assert!(conclusion(&checked).starts_with("DAMAGED: "));
    }
}
